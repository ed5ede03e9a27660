//! `encke man [COMMAND]`: prints a man page.

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::arguments::{Arguments, Man};
use crate::error::{CommandError, CommandResult};
use crate::output::print;

pub(crate) fn run(arguments: &Man) -> CommandResult {
    let mut program = Arguments::command();
    // `build` gives the sub-commands their full names and the global flags.
    program.build();
    let command = match &arguments.command {
        None => program,
        Some(name) => match program.find_subcommand(name) {
            Some(found) => found.clone(),
            None => {
                let known: Vec<_> = program.get_subcommands().map(clap::Command::get_name).collect();
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
