//! Flags that have no effect in combination with others. Clap accepts them, because it does not know their meaning. Each is
//! rejected by name, since a user would otherwise misread the result.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Error};

/// Arguments with an effect on a comparison of saved runs. (`--watch` has an error of its own.)
const COMPARE_FILES: &[&str] = &["one", "other", "different_responses", "json", "watch"];
/// Arguments with an effect on `encke lab --list`.
const LAB_LIST: &[&str] = &["list", "lang"];
/// Arguments without an effect on `--paced`, which prints a line of JSON for each round.
const NOT_PACED: &[&str] = &["json", "plain", "watch"];

/// Returns an error that names the first flag without effect.
///
///  # Errors
/// There is one.
pub(crate) fn check(program: &Command, matches: &ArgMatches) -> Result<(), Error> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(()) };
    let Some(command) = program.find_subcommand(name) else { return Ok(()) };
    let (inner_name, inner) = matches.subcommand().unzip();
    let inner_command = inner_name.and_then(|name| command.find_subcommand(name));
    let found = match (name, inner_name, inner_command.zip(inner)) {
        ("lab", None, _) if matches.get_flag("list") => {
            given(command, matches).find(|argument| !LAB_LIST.contains(&argument.get_id().as_str())).map(
                |argument| format!("{} has no effect with --list, which runs no experiment", flag(argument)),
            )
        }
        ("load", Some("compare"), Some((command, matches))) => {
            let is_file = |side| matches.get_one::<String>(side).is_some_and(|name| !name.contains("://"));
            given(command, matches)
                .find(|argument| !COMPARE_FILES.contains(&argument.get_id().as_str()))
                .filter(|_| is_file("one") && is_file("other"))
                .map(|argument| format!("{} has no effect on saved runs: it is for two URLs", flag(argument)))
        }
        ("load", Some("push"), Some((command, matches))) if matches.contains_id("paced") => {
            given(command, matches).find(|argument| NOT_PACED.contains(&argument.get_id().as_str())).map(
                |argument| {
                    format!("{} has no effect with --paced, which prints JSON for each round", flag(argument))
                },
            )
        }
        _ => None,
    };
    match found {
        None => Ok(()),
        Some(text) => Err(Error::raw(ErrorKind::ArgumentConflict, text)),
    }
}

/// The arguments on the command line.
fn given<'a>(command: &'a Command, matches: &'a ArgMatches) -> impl Iterator<Item = &'a Arg> {
    let given = move |argument: &&Arg| {
        let id = argument.get_id().as_str();
        matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    command.get_arguments().filter(given)
}

/// The name of an argument, as users write it.
fn flag(argument: &Arg) -> String {
    match (argument.get_long(), argument.get_short(), argument.get_value_names()) {
        (Some(long), Some(short), _) => format!("-{short}, --{long}"),
        (Some(long), None, _) => format!("--{long}"),
        (None, Some(short), _) => format!("-{short}"),
        (None, None, names) => {
            names.and_then(|names| names.first()).map_or_else(String::new, ToString::to_string)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn flags_without_effect_are_rejected_by_name() {
        for (line, said) in [
            ("encke load compare a.json b.json --rate 5", Some("--rate has no effect on saved runs")),
            ("encke load compare a.json b.json --rounds 5", Some("--rounds has no effect on saved runs")),
            ("encke load compare a.json b.json -d 5s", Some("-d, --block has no effect on saved runs")),
            ("encke load compare a.json b.json --json --different-responses", None),
            ("encke load compare http://a/ http://b/ --rate 5 --rounds 5", None),
            ("encke load push --paced fan --json 8080", Some("--json has no effect with --paced")),
            ("encke load push --paced fan --watch 1 8080", Some("--watch has no effect with --paced")),
            ("encke load push --json --watch 1 8080", None),
            ("encke lab --list --quick", Some("--quick has no effect with --list")),
            ("encke lab parser --list", Some("EXPERIMENT has no effect with --list")),
            ("encke lab --list --lang ja", None),
            ("encke lab parser --quick", None),
        ] {
            let program = Arguments::command();
            let words: Vec<&str> = line.split(' ').collect();
            let matches =
                program.clone().try_get_matches_from(words).unwrap_or_else(|error| panic!("{error}"));
            let found = check(&program, &matches).err().map(|error| error.to_string());
            match said {
                None => assert_eq!(found, None, "{line}"),
                Some(said) => {
                    assert!(found.as_ref().is_some_and(|found| found.contains(said)), "{line}: {found:?}");
                }
            }
        }
    }
}
