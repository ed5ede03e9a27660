//! `encke man [COMMAND]`: prints a man page.

use std::process::ExitCode;

use clap::{Command, CommandFactory as _};

use crate::arguments::{Arguments, Man};
use crate::error::{CommandError, CommandResult};
use crate::output::print;

/// The sub-command of a name: `load`, or `load-push`, as the pages name each other.
fn named<'a>(program: &'a Command, name: &str) -> Option<&'a Command> {
    program.find_subcommand(name).or_else(|| {
        let (outer, inner) = name.split_once('-')?;
        program.find_subcommand(outer)?.find_subcommand(inner)
    })
}

/// A page has the text of every option. `clap_mangen` omits the texts of options that `-h` leaves out.
fn with_all_texts(command: Command) -> Command {
    command.mut_subcommands(with_all_texts).mut_args(|arg| arg.hide_short_help(false))
}

pub(crate) fn run(arguments: &Man) -> CommandResult {
    let mut program = with_all_texts(Arguments::command());
    // `build` gives the sub-commands their full names and the global flags.
    program.build();
    let command = match &arguments.command {
        None => program,
        Some(name) => match named(&program, name) {
            Some(found) => found.clone(),
            None => {
                let inner = |outer: &Command| {
                    let names = outer
                        .get_subcommands()
                        .map(|inner| format!("{}-{}", outer.get_name(), inner.get_name()));
                    names.collect::<Vec<_>>()
                };
                let known = program
                    .get_subcommands()
                    .flat_map(|outer| std::iter::once(outer.get_name().to_owned()).chain(inner(outer)));
                let known: Vec<_> = known.collect();
                let text = format!("unknown sub-command `{name}`; expected one of {}", known.join(", "));
                return Err(CommandError::usage(text));
            }
        },
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .source(concat!("encke ", env!("CARGO_PKG_VERSION")))
        .render(&mut page)
        .map_err(|error| CommandError::system(error).context("cannot generate the page"))?;
    print(&String::from_utf8_lossy(&page))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pages of a command and of those below it, but not of hidden ones.
    fn pages(command: &Command) -> Vec<String> {
        let mut page = Vec::new();
        clap_mangen::Man::new(command.clone()).render(&mut page).expect("memory takes everything");
        let mut all = vec![String::from_utf8(page).expect("text")];
        all.extend(command.get_subcommands().filter(|inner| !inner.is_hide_set()).flat_map(pages));
        all
    }

    #[test]
    fn every_option_of_every_page_has_its_text() {
        let mut program = with_all_texts(Arguments::command());
        program.build();
        for page in pages(&program) {
            let title = page.lines().find(|line| line.starts_with(".TH")).unwrap_or_default();
            // An option is a line with its names, and lines of text up to the next request of roff.
            for option in page.split("\n.TP\n").skip(1) {
                let (names, text) = option.split_once('\n').unwrap_or((option, ""));
                let first = text.lines().find(|line| !line.is_empty()).unwrap_or_default();
                assert!(!first.is_empty() && !first.starts_with(".TP"), "{title}: {names} has no text");
            }
        }
    }
}
