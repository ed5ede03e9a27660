//! `encke lab`: runs experiments and reports their results.
//!
//! ```text
//!  names ─► --explain: texts ─► run in turn, each on a thread of its own ─► table │ --json │ --csv
//!                                │                                           and --report FILE
//!                                └─ ^C, TERM, HUP: the current cell is the last; the results so far are
//!                                   reported; 130. A second ^C or TERM ends the process immediately.
//! ```

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use encke_io::clock::Clock;
use encke_io::host::{self, Signal, Signals};
use encke_lab::merged::{self, SavedLab};
use encke_lab::texts::{Language, filled};
use encke_lab::{
    ExperimentOutcome, Machine, NAMES, RoundPace, StopHandle, UNDER_TEST, open, report, rounds, table,
    under_test,
};

use crate::arguments::{Lab, LabCommand, LabMerge};
use crate::error::{CommandError, CommandResult, INTERRUPTED};
use crate::output::{check_files, note, print, print_result, text_within};

pub(crate) fn run(arguments: &Lab) -> CommandResult {
    if let Some(LabCommand::Merge(arguments)) = &arguments.command {
        return merge(arguments);
    }
    if arguments.under_test {
        return serve_under_test(&arguments.experiments);
    }
    let language = spoken(arguments.lang);
    if arguments.list {
        print(&table::list(language))?;
        return Ok(ExitCode::SUCCESS);
    }
    let names = chosen(&arguments.experiments)?;
    if arguments.explain {
        for text in names.iter().filter_map(|name| language.text(name)) {
            print(&format!(
                "{}: {}\n\n{}\n\n{}\n\n",
                text.name, text.title, text.question, text.expectation
            ))?;
        }
    }
    check_files(&[("--report", arguments.report.as_ref())], &[])?;
    let stop = stop_at_interrupt()?;
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => entropy().map_err(|error| CommandError::system(error).context("no random seed"))?,
    };
    let pace = if arguments.quick { RoundPace::quick(seed) } else { RoundPace::full(seed) };
    let program = std::env::current_exe()
        .map_err(|error| CommandError::system(error).context("cannot find the path of this program"))?;
    let pace = RoundPace { program: Some(program), ..pace };
    let machine = Machine::look();
    let date = encke_lab::rfc3339(Clock::new().now().unix_s());
    let is_table = !arguments.json && !arguments.csv;
    // With `--report`, the experiments continue without a reader of standard output.
    let print = if arguments.report.is_some() { print_result } else { print };
    if is_table {
        let seed = filled(language.words().seed, &[("seed", seed.to_string())]);
        print(&format!("{date}, Encke {}, {}, {seed}\n\n", machine.encke, machine.line(language)))?;
    }
    if !machine.optimised {
        note(language.words().not_optimised);
    }
    let mut outcomes = Vec::new();
    for name in names {
        if stop.asked() {
            break;
        }
        progress(&format!("{name} …"));
        let outcome = seen(name, &pace, &stop)?;
        progress("");
        if is_table {
            print(&format!("{}\n", table::text(&outcome, language)))?;
        }
        outcomes.push(outcome);
    }
    if arguments.json {
        print(&table::json(&outcomes, &machine, &pace, &date))?;
    } else if arguments.csv {
        print(&table::csv(&outcomes))?;
    }
    if let Some(path) = &arguments.report {
        write(path, &report::page(&outcomes, &machine, &pace, &date, language))?;
    }
    Ok(if stop.asked() { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// Returns the requested language, or that of the environment.
fn spoken(asked: Option<Language>) -> Language {
    asked.unwrap_or_else(|| {
        Language::of_environment(|variable| std::env::var_os(variable)?.into_string().ok())
    })
}

/// Prints the saved results of several machines side by side.
fn merge(arguments: &LabMerge) -> CommandResult {
    let inputs: Vec<&Path> = arguments.files.iter().map(PathBuf::as_path).collect();
    check_files(&[("--report", arguments.report.as_ref())], &inputs)?;
    let all: Vec<SavedLab> = arguments.files.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let language = spoken(arguments.lang);
    if let Some(path) = &arguments.report {
        write(path, &merged::page(&all, language))?;
    }
    print(&if arguments.csv { merged::csv(&all) } else { merged::text(&all, language) })?;
    Ok(ExitCode::SUCCESS)
}

/// Maximum size of a results file: all experiments have about 200 KB.
const BYTES_MAX: u64 = 64 << 20;

fn read(path: &Path) -> Result<SavedLab, CommandError> {
    let failed = |error: io::Error| CommandError::system(error).context(path.display());
    let file = File::open(path).map_err(failed)?;
    let text = text_within(file, BYTES_MAX, "results of the lab").map_err(failed)?;
    let name = path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    SavedLab::read(&name, &text).map_err(|error| CommandError::system(error).context(path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    std::fs::write(path, text)
        .map_err(|error| CommandError::system(error).context(format_args!("cannot write {}", path.display())))
}

/// Runs the server under test, which an experiment starts as a child process. The argument is the connection limit; without it,
/// the maximum.
fn serve_under_test(words: &[String]) -> CommandResult {
    let connections = words.first().map(|word| word.parse()).transpose();
    let connections = connections.map_err(|error| CommandError::usage(error).context(UNDER_TEST))?;
    under_test(connections).map_err(|error| CommandError::system(error).context("the server under test"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the named experiments, each once, in the order of [`NAMES`].
fn chosen(named: &[String]) -> Result<Vec<&'static str>, CommandError> {
    if let Some(unknown) = named.iter().find(|name| *name != "all" && !NAMES.contains(&name.as_str())) {
        let known = NAMES.join(", ");
        return Err(CommandError::usage(format!("unknown experiment `{unknown}`; expected {known}, or all")));
    }
    let all = named.iter().any(|name| name == "all");
    Ok(NAMES.into_iter().filter(|name| all || named.iter().any(|one| one == name)).collect())
}

/// Runs an experiment on a thread of its own, so that CPU pinning ends with the experiment.
fn seen(name: &'static str, pace: &RoundPace, stop: &StopHandle) -> Result<ExperimentOutcome, CommandError> {
    let work = || {
        let mut experiment = open(name, pace)?;
        let results = rounds::run(&mut *experiment, pace, stop);
        Some(ExperimentOutcome::new(&*experiment, results))
    };
    let outcome = thread::scope(|scope| scope.spawn(work).join());
    match outcome {
        Ok(outcome) => Ok(outcome.expect("names come from the list of experiments")),
        Err(_) => Err(CommandError::system(format!("{name} failed; see the message above"))),
    }
}

/// Shows a line of progress on a terminal. An empty text clears it.
fn progress(text: &str) {
    let mut terminal = io::stderr();
    if terminal.is_terminal() {
        let _nobody_listens = write!(terminal, "\r\x1b[K{text}");
    }
}

/// Installs the signal handling. The first ^C, TERM or HUP requests a stop; a second ^C or TERM ends the process. A second HUP
/// does not: when a terminal disappears, its shell and the system send one each. Must be called before the first thread starts.
fn stop_at_interrupt() -> Result<StopHandle, CommandError> {
    let stop = StopHandle::new();
    let asked = stop.clone();
    let signals = Signals::block();
    let obeying = thread::Builder::new().name("signals".into()).spawn(move || {
        loop {
            match signals.wait() {
                Signal::Interrupt | Signal::Terminate if asked.asked() => host::exit_now(INTERRUPTED.into()),
                Signal::Interrupt | Signal::Terminate | Signal::HangUp => asked.ask(),
                Signal::User1 | Signal::User2 => {}
            }
        }
    });
    match obeying {
        Ok(_detached) => Ok(stop),
        Err(error) => Err(CommandError::system(error).context("cannot start the signal thread")),
    }
}

fn entropy() -> io::Result<u64> {
    let mut bytes = [0; 8];
    host::random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_are_chosen_by_name_each_once_in_the_order_of_the_list() {
        let chosen = |names: &[&str]| {
            chosen(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
                .map_err(|failure| failure.to_string())
        };
        assert_eq!(chosen(&["ring", "parser", "ring"]), Ok(vec!["parser", "ring"]));
        assert_eq!(chosen(&["all"]), Ok(NAMES.to_vec()));
        assert!(chosen(&["parsr"]).is_err_and(|said| said.contains("`parsr`; expected accept, backlog")));
    }
}
