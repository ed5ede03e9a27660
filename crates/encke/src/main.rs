//! The `encke` program. Each sub-command is one file, which only combines the crates below it.
//!
//! Exit status: 0 success · 1 could not run · 2 wrong usage · 3 a required condition (`--slo`) did not hold · 4 no verdict ·
//! 130 interrupted by ^C. When the reader of the output closes it (`encke schema | head`), the program ends silently with
//! status 0.

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use encke_assembly::settings::SettingsError;
use encke_io::host;

mod arguments;
mod check;
mod client;
mod completions;
mod demo;
mod greeting;
mod lab;
mod load;
mod man;
mod notify;
mod publish;
mod schema;
mod serve;
mod status;
mod subscribe;
mod token;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    // `parse_from` and `exit` end the process with status 2 on wrong flags.
    let arguments = match load::undress(std::env::args_os()) {
        Ok(words) => Arguments::parse_from(words),
        Err(text) => Arguments::command().error(ErrorKind::UnknownArgument, text).exit(),
    };
    let done = match &arguments.command {
        Command::Serve(serve) => serve::run(serve),
        Command::Demo(demo) => demo::run(demo),
        Command::Pub(publish) => publish::run(publish),
        Command::Sub(subscribe) => subscribe::run(subscribe),
        Command::Load(load) => load::run(load),
        Command::Token(token) => token::run(token),
        Command::Lab(lab) => lab::run(lab),
        Command::Check(check) => check::run(check),
        Command::Schema(schema) => schema::run(schema),
        Command::Status(status) => status::run(status),
        Command::Completions(completions) => completions::run(completions),
        Command::Man(man) => man::run(man),
    };
    match done {
        Ok(code) => code,
        Err(CommandError::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            let _nobody_listens = writeln!(io::stderr(), "{}", failure.to_string().trim_end());
            ExitCode::from(failure.status())
        }
    }
}

/// The reason why a sub-command failed.
#[derive(Debug)]
enum CommandError {
    /// A resource is missing or failed. The text names it and, where possible, the remedy.
    CouldNotRun(String),
    /// The settings file is invalid or cannot be read.
    Settings(SettingsError),
    /// The arguments contradict each other.
    Usage(String),
    /// The reader of standard output has closed it.
    ReaderGone,
}

impl CommandError {
    const fn status(&self) -> u8 {
        match self {
            Self::CouldNotRun(_) | Self::Settings(_) => 1,
            Self::Usage(_) => 2,
            Self::ReaderGone => 0,
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CouldNotRun(text) | Self::Usage(text) => write!(f, "error: {text}"),
            // A settings error quotes the lines of the file, so it formats itself.
            Self::Settings(error) => error.fmt(f),
            Self::ReaderGone => f.write_str("the reader of the output has closed it"),
        }
    }
}

impl From<SettingsError> for CommandError {
    fn from(error: SettingsError) -> Self {
        Self::Settings(error)
    }
}

type CommandResult = Result<ExitCode, CommandError>;

/// Exit status after ^C, by the convention of shells: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// Writes a text to standard output. Errors as for [`put`].
fn print(text: &str) -> Result<(), CommandError> {
    put(text.as_bytes())
}

/// Prints the result of a run. Without a reader, the run still ends with its own exit status.
fn print_result(text: &str) -> Result<(), CommandError> {
    match print(text) {
        Err(CommandError::ReaderGone) => Ok(()),
        printed => printed,
    }
}

/// Writes to standard output and flushes it.
///
///  # Errors
/// [`CommandError::ReaderGone`] if the reading process has ended or the terminal has disappeared; otherwise
/// [`CommandError::CouldNotRun`].
fn put(bytes: &[u8]) -> Result<(), CommandError> {
    let mut output = io::stdout().lock();
    output.write_all(bytes).and_then(|()| output.flush()).map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe || host::is_lost_terminal(&error, &io::stdout()) {
            CommandError::ReaderGone
        } else {
            CommandError::CouldNotRun(format!("standard output: {error}"))
        }
    })
}

/// Prints a note for the user to standard error, separate from the output.
fn note(text: &str) {
    let _nobody_listens = writeln!(io::stderr(), "note: {text}");
}
