//! Flags of other load generators that have no meaning, or another one, here. Each is rejected with the equivalent flag.
//!
//! They are hidden entries of the argument table, so that clap splits `-z10s` and `-kc 5` as those tools do.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// Parsed if no foreign flag is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreign;

/// The flag, whether it takes a value, its meaning in other tools, and the equivalent here.
const FLAGS: &[(&str, bool, &str, &str)] = &[
    ("z", true, "the duration of hey and oha", "-d TIME"),
    ("q", true, "the rate of hey and oha", "-r RATE, for all connections together"),
    ("R", true, "the rate of wrk2", "-r RATE"),
    (
        "m",
        true,
        "the method of hey and oha, or the streams of h2load",
        "-X METHOD; concurrent requests on a connection are --http2 --streams N, or --pipeline N",
    ),
    ("D", true, "the duration of h2load, or the body of oha", "-d TIME, or --body @FILE"),
    ("T", true, "the content type of ab, hey and oha", "-H 'Content-Type: TYPE'"),
    ("A", true, "the credentials of ab, or the Accept of oha", "-H 'Authorization: …', or -H 'Accept: …'"),
    ("a", true, "the credentials of hey and oha", "-H 'Authorization: …'"),
    ("C", true, "the cookie of ab", "-H 'Cookie: NAME=VALUE'"),
    ("p", true, "the body of ab", "--body @FILE"),
    ("u", true, "the body of ab", "-X PUT --body @FILE"),
    ("b", true, "the body of siege and others", "--body TEXT"),
    ("s", true, "the script of wrk", "{seq}, {rand:1-100} and {uuid} in URL, fields and body"),
    ("k", false, "keep-alive in ab", "the default (--no-keepalive disables it)"),
    ("L", false, "latencies in wrk2", "the default"),
    ("l", false, "bodies of changing length in ab", "the default"),
    ("i", false, "HEAD in ab", "-X HEAD"),
];

impl clap::Args for Foreign {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(|&(flag, valued, ..)| {
            let action = if valued { ArgAction::Append } else { ArgAction::Count };
            Arg::new(flag).short(flag.chars().next()).hide(true).action(action).allow_hyphen_values(valued)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Foreign {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |flag| matches.value_source(flag) == Some(ValueSource::CommandLine);
        match FLAGS.iter().find(|(flag, ..)| given(flag)) {
            None => Ok(Self),
            Some((flag, _, theirs, ours)) => {
                let text = format!("-{flag} is {theirs}; here it is {ours}");
                Err(clap::Error::raw(ErrorKind::UnknownArgument, text))
            }
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        Self::from_arg_matches(matches).map(|_| ())
    }
}
