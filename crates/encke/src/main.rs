//! The program: each sub-command is a file, and all of them only put the rooms below together.
//!
//! Exit status: 0 fine · 1 could not run · 2 wrong usage · 3 what was asked for did not hold · 4 no verdict · 130 ended by ^C. A reader that goes away
//! (`encke schema | head`) ends it quietly.

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
    // Wrong flags end here, with status 2.
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
        Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            let _nobody_listens = writeln!(io::stderr(), "{}", failure.to_string().trim_end());
            ExitCode::from(failure.status())
        }
    }
}

/// Why a sub-command did not do what it was asked.
#[derive(Debug)]
enum Failure {
    /// Something it needs is not to be had: what, and what helps.
    CouldNotRun(String),
    /// The settings file.
    Settings(SettingsError),
    /// Arguments that cannot be meant together.
    Usage(String),
    /// Nobody reads the output any more.
    ReaderGone,
}

impl Failure {
    const fn status(&self) -> u8 {
        match self {
            Self::CouldNotRun(_) | Self::Settings(_) => 1,
            Self::Usage(_) => 2,
            Self::ReaderGone => 0,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CouldNotRun(text) | Self::Usage(text) => write!(f, "error: {text}"),
            // It shows the lines it is about, so it words itself.
            Self::Settings(error) => error.fmt(f),
            Self::ReaderGone => f.write_str("nobody reads the output"),
        }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self::Settings(error)
    }
}

type Done = Result<ExitCode, Failure>;

/// Status after ^C, as shells have it: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// Writes a text to standard output, as [`put`].
fn print(text: &str) -> Result<(), Failure> {
    put(text.as_bytes())
}

/// Prints the result of a run. Without a reader the run still ends with its own exit status.
fn print_result(text: &str) -> Result<(), Failure> {
    match print(text) {
        Err(Failure::ReaderGone) => Ok(()),
        printed => printed,
    }
}

/// Writes to standard output and flushes it. [`Failure::ReaderGone`] if the reading process has ended, or the terminal
/// has disappeared.
fn put(bytes: &[u8]) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    output.write_all(bytes).and_then(|()| output.flush()).map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe || host::is_lost_terminal(&error, &io::stdout()) {
            Failure::ReaderGone
        } else {
            Failure::CouldNotRun(format!("standard output: {error}"))
        }
    })
}

/// Says beside the output what somebody should know who watches.
fn note(text: &str) {
    let _nobody_listens = writeln!(io::stderr(), "note: {text}");
}
