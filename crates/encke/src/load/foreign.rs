//! Flags of other load generators that have no meaning, or another one, here. Each is rejected with the equivalent flag.
//!
//! Letters are hidden entries of the argument table, so that clap splits `-z10s` and `-kc 5` as those tools do. Long flags are
//! unknown to clap; `foreign.rs` of the program adds the equivalent to its error.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// Parsed if no foreign flag is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreign;

/// The letter, whether it takes a value, its meaning in other tools, and the equivalent here.
const LETTERS: &[(&str, bool, &str, &str)] = &[
    ("z", true, "the duration of hey and oha", "-d TIME"),
    ("q", true, "the rate of hey and oha", "-r RATE, for all connections together"),
    ("R", true, "the rate of wrk2", "-r RATE"),
    (
        "m",
        true,
        "the method of hey and oha, or the streams of h2load",
        "-X METHOD; concurrent requests on a connection are --http2 --streams N, or --pipeline N",
    ),
    ("D", true, "the duration of h2load, or the body of hey and oha", "-d TIME, or --body @FILE"),
    ("T", true, "the content type of ab, hey and oha", "-H 'Content-Type: TYPE'"),
    (
        "A",
        true,
        "the credentials of ab, or the Accept of hey and oha",
        "-H 'Authorization: …', or -H 'Accept: …'",
    ),
    ("a", true, "the credentials of hey and oha", "-H 'Authorization: …'"),
    ("C", true, "the cookie of ab", "-H 'Cookie: NAME=VALUE'"),
    ("p", true, "the body of ab, or the streams of oha", "--body @FILE, or --http2 --streams N"),
    (
        "u",
        true,
        "the body of ab, or the time unit of oha",
        "-X PUT --body @FILE; the report chooses its units",
    ),
    ("b", true, "the body of siege and others", "--body TEXT"),
    ("s", true, "the script of wrk", "{seq}, {rand:1-100} and {uuid} in URL, fields and body"),
    ("F", true, "a form of oha", "--body @FILE with -H 'Content-Type: multipart/form-data; boundary=…'"),
    ("Z", true, "bodies from lines in oha", "{seq}, {rand:1-100} and {uuid} in --body"),
    ("x", true, "the proxy of hey and oha", "not available"),
    ("o", true, "the output of hey and oha", "--json, or --save FILE"),
    ("j", false, "JSON in oha", "--json"),
    ("w", false, "waiting for open requests in oha", "the default"),
    ("k", false, "keep-alive in ab", "the default (--no-keepalive disables it)"),
    ("L", false, "latencies in wrk2", "the default"),
    ("l", false, "bodies of changing length in ab", "the default"),
    ("i", false, "HEAD in ab", "-X HEAD"),
];

/// Long flags: each with its meaning in other tools and the equivalent here. No entries of the argument table, because completions
/// would list them.
pub(crate) const FOREIGN: &[(&str, &str, &str)] = &[
    ("--aws-session", "a signature of oha", "not available"),
    ("--aws-sigv4", "a signature of oha", "not available"),
    ("--burst-delay", "a pause in oha", "not available; -r RATE --arrivals poisson has bursts"),
    ("--burst-rate", "requests in a row in oha", "not available; -r RATE --arrivals poisson has bursts"),
    ("--cert", "the client certificate of oha", "not available"),
    ("--clients", "the connections of h2load", "-c COUNT"),
    ("--concurrency", "the users of siege", "-c COUNT"),
    ("--connect-timeout", "a timeout of oha", "--timeout TIME, for the whole request"),
    ("--connect-to", "another address in oha", "an address in URL, with -H 'Host: NAME' and --sni NAME"),
    ("--db-url", "a database of requests in oha", "not available; --save FILE has all figures"),
    ("--debug", "one printed request in oha", "not available; curl -v URL prints one"),
    ("--disable-color", "plain text in oha", "--plain"),
    ("--disable-compression", "the absence of Accept-Encoding in hey and oha", "the default"),
    ("--disable-keepalive", "a connection per request in hey and oha", "--no-keepalive"),
    ("--disable-redirects", "redirects that hey does not follow", "the default"),
    ("--dump-urls", "the URLs of oha's pattern", "not available"),
    ("--form", "a form of oha", "--body @FILE with -H 'Content-Type: multipart/form-data; boundary=…'"),
    ("--fps", "the frames of oha's screen", "not available; --plain shows lines"),
    ("--host", "the Host of oha", "-H 'Host: NAME'"),
    ("--http-version", "the HTTP version of oha", "--http2 or --http10; the default is 1.1"),
    ("--ipv4", "the choice of addresses in oha", "an address in URL, such as http://127.0.0.1/"),
    ("--ipv6", "the choice of addresses in oha", "an address in URL, such as http://[::1]/"),
    ("--key", "the client certificate of oha", "not available"),
    ("--latency", "latencies in wrk", "the default"),
    (
        "--latency-correction",
        "response times without coordinated omission in oha",
        "the default with -r RATE",
    ),
    ("--max-concurrent-streams", "the streams of h2load", "--http2 --streams N"),
    ("--max-repeat", "a limit of oha's pattern of URLs", "{seq}, {rand:1-100} and {uuid} in URL"),
    ("--no-color", "plain text in oha", "--plain"),
    ("--no-pre-lookup", "a look-up per connection in oha", "not available; names are looked up once"),
    ("--no-tui", "plain text in oha", "--plain"),
    ("--output", "a file of results in oha", "--save FILE"),
    ("--output-format", "the output of oha", "--json"),
    ("--proxy-header", "a field for the proxy in oha", "not available"),
    ("--proxy-http-version", "HTTP to the proxy in oha", "not available"),
    ("--proxy-http2", "HTTP/2 to the proxy in oha", "not available"),
    ("--rand-regex-url", "a pattern of URLs in oha", "{seq}, {rand:1-100} and {uuid} in URL"),
    ("--redirect", "the redirects that oha follows", "not available; a redirect is a response"),
    ("--script", "the script of wrk", "{seq}, {rand:1-100} and {uuid} in URL, fields and body"),
    ("--stats-success-breakdown", "figures by status in oha", "--json, which counts each status"),
    ("--time-unit", "the unit of times in oha", "not available; the report chooses its units"),
    ("--unix-socket", "the Unix socket of oha", "--unix PATH"),
    ("--urls-from-file", "a file of URLs in oha", "--urls FILE"),
    ("--wait-ongoing-requests-after-deadline", "waiting for open requests in oha", "the default"),
];

impl clap::Args for Foreign {
    fn augment_args(command: Command) -> Command {
        command.args(LETTERS.iter().map(|&(flag, valued, ..)| {
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
        match LETTERS.iter().find(|(flag, ..)| given(flag)) {
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::arguments::Arguments;

    /// Every flag named by an equivalent: `-d TIME` is `-d`.
    fn flags(text: &str) -> impl Iterator<Item = &str> {
        text.split([' ', ',', ';', '(', ')']).filter(|word| word.len() > 1 && word.starts_with('-'))
    }

    #[test]
    fn every_equivalent_is_a_flag_of_load() {
        let command = Arguments::command();
        let load = command.find_subcommand("load").expect("load");
        let exists = |flag: &str| {
            load.get_arguments().filter(|argument| !argument.is_hide_set()).any(|argument| {
                argument.get_long().is_some_and(|long| flag == format!("--{long}"))
                    || argument.get_short().is_some_and(|short| flag == format!("-{short}"))
            })
        };
        let letters = LETTERS.iter().map(|(letter, _, _, ours)| (format!("-{letter}"), *ours));
        let long = FOREIGN.iter().map(|(flag, _, ours)| ((*flag).to_owned(), *ours));
        for (flag, ours) in letters.chain(long) {
            assert!(!exists(&flag), "{flag} exists here");
            // What another program is called with is no flag of ours.
            let ours = ours.split("curl").next().unwrap_or_default();
            for named in flags(ours) {
                assert!(exists(named), "{flag}: {named} does not exist");
            }
        }
        assert!(FOREIGN.is_sorted(), "sorted, so that a flag is found by eye");
    }
}
