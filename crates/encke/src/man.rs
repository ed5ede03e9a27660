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

pub(crate) fn run(arguments: &Man) -> CommandResult {
    let mut program = Arguments::command();
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
