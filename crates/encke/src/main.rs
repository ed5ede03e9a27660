//! The `encke` program. Each sub-command is one file, which only combines the crates below it.
//!
//! Exit status: 0 success · 1 could not run · 2 wrong usage · 3 a required condition (`--slo`) did not hold · 4 no verdict ·
//! 130 interrupted by ^C. When the reader of the output closes it (`encke schema | head`), the program ends silently with
//! status 0.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};

mod admin_target;
mod admin_token;
mod arguments;
mod check;
mod client;
mod command_line;
mod completions;
mod console;
mod demo;
mod error;
mod foreign;
mod greeting;
mod help;
mod lab;
mod load;
mod man;
mod misplaced;
mod notify;
mod output;
mod publish;
mod schema;
mod serve;
mod service;
mod service_arguments;
mod shell;
mod status;
mod subscribe;
mod token;

use arguments::{Arguments, Command};
use error::CommandError;

/// Parses the command line, and rejects flags that have no effect in it.
fn parse(words: Vec<OsString>) -> Result<Arguments, clap::Error> {
    let mut program = help::command();
    let mut matches = program.try_get_matches_from_mut(words)?;
    misplaced::check(&program, &matches).map_err(|error| error.format(&mut program))?;
    Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut program))
}

fn main() -> ExitCode {
    encke_io::host::prepare_console();
    // `exit` ends the process: with status 2 on wrong flags, with 0 after help.
    let arguments = match load::undress(foreign::translate(std::env::args_os().collect()).into_iter()) {
        Ok(words) => {
            let texts: Vec<_> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            parse(words).unwrap_or_else(|error| foreign::teach(error, &texts).exit())
        }
        Err(error) => Arguments::command().error(ErrorKind::UnknownArgument, error).exit(),
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
        Command::Console(console) => console::run(console),
        Command::Completions(completions) => completions::run(completions),
        Command::Service(service) => service::run(service),
        Command::Man(man) => man::run(man),
    };
    match done {
        Ok(code) => code,
        Err(CommandError::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            let _nobody_listens = writeln!(io::stderr(), "{}", failure.message());
            ExitCode::from(failure.status())
        }
    }
}
