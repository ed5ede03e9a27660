//! `encke completions SHELL`: prints a completion script.

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::arguments::{Arguments, Completions};
use crate::error::CommandResult;
use crate::output::print;

pub(crate) fn run(arguments: &Completions) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "encke", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
