//! Flags and commands of other programs. Each is rejected with its equivalent here, as a tip below clap's error.
//!
//! ```text
//!   encke serve --root public
//!   error: unexpected argument '--root' found
//!     tip: '--root' is the directory in Caddy; here it is an argument without a flag: encke serve DIR
//! ```
//! The flags of load generators are in `load/foreign.rs`.

use std::ffi::OsString;
use std::path::Path;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::arguments::Arguments;

/// A flag that another program has: the flag, its meaning there, and the equivalent here.
pub(crate) type ForeignFlag = (&'static str, &'static str, &'static str);

/// Flags of servers: Python's `http.server`, Caddy, nginx, and the servers of npm.
const SERVE: &[ForeignFlag] = &[
    (
        "--access-log",
        "the access log in Caddy",
        "the default, on standard output; a file is log.access in the settings",
    ),
    ("--adapter", "the format of the settings in Caddy", "always TOML: -c FILE"),
    ("--address", "the address in other servers", "-l HOST:PORT, or -l :PORT for all addresses"),
    ("--bind", "the address in Python's http.server", "-l HOST:PORT, or -l :PORT for all addresses"),
    ("--browse", "listings in Caddy", "--list"),
    ("--cert", "the certificate in other servers", "server.listen.tls in the settings, or --tls-self-signed"),
    ("--cgi", "programs in Python's http.server", "not available: Encke serves files and channels"),
    (
        "--cors",
        "fields for other origins in http-server",
        "headers in [[site]], and push.origins for channels",
    ),
    ("--daemon", "a server in the background elsewhere", "not available: systemd or `&` puts it there"),
    ("--debug", "messages of other servers", "log.level in the settings"),
    ("--directory", "the directory in Python's http.server", "an argument without a flag: encke serve DIR"),
    ("--directory-listing", "listings in other servers", "--list"),
    ("--domain", "the host name in Caddy", "host in a [[site]] of the settings"),
    ("--envfile", "variables in Caddy", "not available: the settings read a secret with { env = \"NAME\" }"),
    ("--host", "the address in other servers", "-l HOST:PORT, or -l :PORT for all addresses"),
    ("--https", "TLS in other servers", "--tls-self-signed, or server.listen.tls in the settings"),
    ("--index", "the index file in other servers", "index in a [[site]] of the settings"),
    ("--key", "the private key in other servers", "server.listen.tls in the settings, or --tls-self-signed"),
    ("--no-compress", "uncompressed files in Caddy", "compression in a [[site]] of the settings"),
    ("--precompressed", "compressed siblings in Caddy", "the default: FILE.br, FILE.zst and FILE.gz"),
    ("--protocol", "the HTTP version in Python's http.server", "not available: the client chooses"),
    ("--proxy", "a server for other paths in http-server", "not available: Encke does not forward requests"),
    ("--quiet", "fewer lines in other servers", "log.access = \"off\" in the settings"),
    ("--resume", "the last settings in Caddy", "not available: -c FILE"),
    ("--root", "the directory in Caddy", "an argument without a flag: encke serve DIR"),
    ("--silent", "fewer lines in other servers", "log.access = \"off\" in the settings"),
    ("--single", "one page for all paths in serve", "--spa"),
    ("--ssl", "TLS in other servers", "--tls-self-signed, or server.listen.tls in the settings"),
    ("--templates", "templates in Caddy", "not available: Encke sends files as they are"),
    ("--threads", "the workers of other servers", "-w COUNT"),
    ("--tls", "TLS in other servers", "--tls-self-signed, or server.listen.tls in the settings"),
    ("--verbose", "messages of other servers", "log.level in the settings"),
    ("--watch", "a reload by changed settings in Caddy", "kill -HUP PID"),
    ("-S", "TLS in http-server", "--tls-self-signed, or server.listen.tls in the settings"),
    ("-a", "the address in http-server", "-l HOST:PORT, or -l :PORT for all addresses"),
    ("-b", "the address in Python's http.server", "-l HOST:PORT, or -l :PORT for all addresses"),
    ("-d", "the directory in Python's http.server", "an argument without a flag: encke serve DIR"),
    ("-g", "directives in nginx", "-c FILE, and the flags of encke serve"),
    ("-p", "the port in other servers", "-l PORT, or -l :PORT for all addresses"),
    ("-q", "fewer lines in other servers", "log.access = \"off\" in the settings"),
    ("-r", "the directory in Caddy", "an argument without a flag: encke serve DIR"),
    ("-s", "a signal in nginx", "kill -HUP PID (reload), -USR1 (reopen logs), -TERM (drain and stop)"),
    ("-t", "the check of the settings in nginx", "encke check FILE"),
    ("-v", "messages of other servers", "log.level in the settings; encke -V prints the version"),
];

/// Flags that users expect at a command: the command, the flag, and the remedy.
const EXPECTED: &[(&str, &str, &str)] = &[
    ("check", "--config", "the file is an argument without a flag: encke check FILE"),
    ("check", "-c", "the file is an argument without a flag: encke check FILE"),
    ("demo", "--workers", "encke demo has one worker for each core; encke serve -w COUNT chooses"),
    ("demo", "-w", "encke demo has one worker for each core; encke serve -w COUNT chooses"),
    ("pub", "--data", "the message is an argument without a flag: encke pub CHANNEL DATA"),
    ("pub", "--message", "the message is an argument without a flag: encke pub CHANNEL DATA"),
    ("pub", "-d", "the message is an argument without a flag: encke pub CHANNEL DATA"),
    ("pub", "-f", "use --file FILE, or @FILE in place of the message"),
    ("pub", "-m", "the message is an argument without a flag: encke pub CHANNEL DATA"),
    ("pub", "-t", "use --type TYPE for the content type, --token TOKEN for the access token"),
    ("schema", "--json", "JSON is the default"),
    ("status", "--url", "the address is an argument without a flag: encke status HOST:PORT"),
    ("status", "-w", "use --watch"),
    ("sub", "--history", "use --since last:N, --since 10m or --since all"),
    ("sub", "--last", "use --since last:N"),
    ("sub", "-c", "use -n COUNT for the number of messages; channels are arguments without a flag"),
    ("token", "--expires", "use --ttl TIME"),
    ("token", "--secret", "use --key FILE, or -c FILE for the keys of the settings"),
    ("token", "--user", "use --sub NAME"),
    ("token", "-u", "use --sub NAME"),
];

/// Commands of other programs, and the equivalent here.
const COMMANDS: &[(&str, &str)] = &[
    ("adapt", "not available: settings are TOML; encke check FILE checks them"),
    ("bench", "encke load URL"),
    ("checkconfig", "encke check FILE"),
    ("file-server", "encke serve DIR"),
    ("genconfig", "not needed: every key has a default; encke schema --markdown lists them"),
    ("gentoken", "encke token"),
    ("publish", "encke pub CHANNEL DATA"),
    ("reload", "kill -HUP PID, or systemctl reload encke"),
    ("reverse-proxy", "not available: Encke serves files and channels"),
    ("run", "encke serve"),
    ("server", "encke serve"),
    ("start", "encke serve, which stays in the foreground"),
    ("stop", "kill -TERM PID, or systemctl stop encke"),
    ("subscribe", "encke sub CHANNEL"),
    ("test", "encke check FILE"),
    ("validate", "encke check FILE"),
];

/// Translates `help COMMAND…` to `COMMAND… --help`, and `version` to `--version`.
pub(crate) fn translate(mut words: Vec<OsString>) -> Vec<OsString> {
    match words.get(1).and_then(|word| word.to_str()) {
        Some("help") => {
            words.remove(1);
            words.push("--help".into());
        }
        Some("version") if words.len() == 2 => words[1] = "--version".into(),
        _ => {}
    }
    words
}

/// Adds a tip to clap's error if a word of the command line belongs to another program, and removes secrets of a URL from it.
/// `words` is the command line, with the program's name.
pub(crate) fn teach(mut error: clap::Error, words: &[String]) -> clap::Error {
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
        let value = ContextValue::String(crate::load::redacted_url(value));
        error.insert(ContextKind::InvalidValue, value);
    }
    if let Some(tip) = tip(&error, words) {
        // A similar flag is less likely meant than the equivalent.
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// The tip for an error.
fn tip(error: &clap::Error, words: &[String]) -> Option<String> {
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let flag = named(ContextKind::InvalidArg)?;
            let flag = flag.split_once('=').map_or(flag, |(flag, _)| flag);
            let table = match words.get(1)?.as_str() {
                "load" => crate::load::FOREIGN,
                "serve" | "demo" => SERVE,
                first if first.starts_with('-') => return Some(command_first(flag)),
                _ => &[],
            };
            if let Some((_, theirs, ours)) = table.iter().find(|(known, ..)| *known == flag) {
                return Some(format!("'{flag}' is {theirs}; here it is {ours}"));
            }
            let command = words.get(1)?;
            let expected = EXPECTED.iter().find(|(name, known, _)| name == command && *known == flag);
            match expected {
                Some((.., remedy)) => Some((*remedy).to_owned()),
                // Clap knows a similar flag.
                None if error.get(ContextKind::SuggestedArg).is_some() => None,
                None => options_of(command),
            }
        }
        ErrorKind::InvalidSubcommand => {
            let word = named(ContextKind::InvalidSubcommand)?;
            let known = COMMANDS.iter().find(|(known, _)| *known == word);
            match known {
                Some((_, ours)) => Some(format!("here it is {ours}")),
                // `translate` has not taken it, because more words follow.
                None if word == "version" => Some("encke version has no arguments".into()),
                None if Path::new(word).is_dir() => Some(format!("to serve a directory: encke serve {word}")),
                None => None,
            }
        }
        _ => None,
    }
}

/// The tip for an unknown flag: the options of the command. `None` for a command with many of them, or with commands of its own.
fn options_of(name: &str) -> Option<String> {
    let command = Arguments::command();
    let command = command.find_subcommand(name)?;
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let options: Vec<_> = shown.filter_map(|argument| Some(format!("--{}", argument.get_long()?))).collect();
    match options.len() {
        _ if command.has_subcommands() => None,
        0 => Some(format!("encke {name} has no options but --help")),
        1..=OPTIONS_LISTED => Some(format!("the options of encke {name} are {}", options.join(", "))),
        _ => None,
    }
}

/// Maximum number of options in a tip: what fits a line or two.
const OPTIONS_LISTED: usize = 12;

/// The tip for a flag in front of the command.
fn command_first(flag: &str) -> String {
    let command = Arguments::command();
    let has = |name: &str| {
        command.find_subcommand(name).is_some_and(|command| {
            command.get_arguments().any(|argument| {
                argument.get_long().is_some_and(|long| flag == format!("--{long}"))
                    || argument.get_short().is_some_and(|short| flag == format!("-{short}"))
                    || argument
                        .get_all_aliases()
                        .is_some_and(|all| all.iter().any(|one| flag == format!("--{one}")))
            })
        })
    };
    if has("serve") {
        format!("the command comes first: encke serve {flag} …")
    } else {
        "the command comes first: encke COMMAND [OPTIONS]".into()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn error(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        teach(Arguments::try_parse_from(&words).expect_err(line), &words).to_string()
    }

    fn translated(line: &str) -> String {
        let words = translate(line.split(' ').map(OsString::from).collect());
        words.iter().map(|word| word.to_str().expect("text")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn help_and_version_are_flags_of_clap() {
        for (line, ours) in [
            ("encke help", "encke --help"),
            ("encke help load", "encke load --help"),
            ("encke help load push", "encke load push --help"),
            ("encke version", "encke --version"),
            ("encke pub version", "encke pub version"),
            ("encke", "encke"),
        ] {
            assert_eq!(translated(line), ours);
        }
    }

    #[test]
    fn every_equivalent_of_a_flag_of_serve_exists() {
        let command = Arguments::command();
        let serve = command.find_subcommand("serve").expect("serve");
        let exists = |flag: &str| {
            serve.get_arguments().any(|argument| {
                argument.get_long().is_some_and(|long| flag == format!("--{long}"))
                    || argument.get_short().is_some_and(|short| flag == format!("-{short}"))
            })
        };
        for (flag, _, ours) in SERVE {
            assert!(!exists(flag), "{flag} exists here");
            // Signals of kill and flags of the program itself are not flags of serve.
            let plain =
                ours.split("kill").next().unwrap_or_default().split("; encke").next().unwrap_or_default();
            for word in
                plain.split([' ', ',', ';', ':']).filter(|word| word.len() > 1 && word.starts_with('-'))
            {
                assert!(exists(word), "{flag}: {word} does not exist");
            }
        }
        assert!(SERVE.is_sorted() && COMMANDS.is_sorted(), "sorted, so that an entry is found by eye");
    }

    #[test]
    fn every_setting_that_an_equivalent_names_exists() {
        let tables = encke_settings::reference::tables::<encke_assembly::settings::Settings>();
        let known = |word: &str| {
            let (parent, key) = word.rsplit_once('.').unwrap_or(("", word));
            tables.iter().any(|table| table.path == parent && table.keys.iter().any(|one| one == key))
        };
        for (flag, _, ours) in SERVE {
            for word in ours.split([' ', ',', ';']) {
                if ["log.", "server.", "push."].iter().any(|section| word.starts_with(section)) {
                    assert!(known(word), "{flag}: {word} is no setting");
                }
            }
        }
    }

    #[test]
    fn commands_of_other_programs_do_not_exist_and_their_equivalents_do() {
        let command = Arguments::command();
        for (theirs, ours) in COMMANDS {
            assert!(command.find_subcommand(theirs).is_none(), "{theirs} exists");
            for named in ours.split("encke ").skip(1) {
                let name = named.split([' ', ',', ';']).next().unwrap_or_default();
                assert!(command.find_subcommand(name).is_some(), "{theirs}: {name} does not exist");
            }
        }
    }

    #[test]
    fn flags_and_commands_of_other_servers_get_a_tip() {
        for (line, said) in [
            ("encke serve --root public", "here it is an argument without a flag: encke serve DIR"),
            ("encke serve --directory=public", "'--directory' is the directory in Python's http.server"),
            ("encke serve --bind 127.0.0.1", "-l HOST:PORT"),
            ("encke serve -p 8080", "-l PORT"),
            ("encke demo -p 8080", "-l PORT"),
            ("encke serve -s reload", "kill -HUP PID (reload)"),
            ("encke serve -t", "encke check FILE"),
            ("encke -l 8080", "the command comes first: encke serve -l …"),
            ("encke --port 8080", "the command comes first: encke serve --port …"),
            ("encke --frobnicate", "encke COMMAND [OPTIONS]"),
            ("encke run", "here it is encke serve"),
            ("encke validate", "encke check FILE"),
            ("encke version now", "encke version has no arguments"),
            ("encke .", "to serve a directory: encke serve ."),
        ] {
            let error = error(line);
            assert!(error.contains(said) && error.contains("tip: "), "{line}: {error}");
        }
        let typo = error("encke serve --backlgo 5");
        assert!(typo.contains("'--backlog'"), "clap's own tip stays: {typo}");
    }

    #[test]
    fn an_error_about_a_url_contains_no_password() {
        let error = error("encke load http://ann:hush@h/");
        assert!(error.contains("'http://…@h/'") && !error.contains("hush"), "{error}");
    }

    #[test]
    fn long_flags_of_other_load_generators_get_a_tip() {
        for (line, said) in [
            ("encke load --no-tui http://h/", "'--no-tui' is plain text in oha; here it is --plain"),
            ("encke load --unix-socket=/a http://h/", "--unix PATH"),
            ("encke load compare --latency-correction http://a/ http://b/", "the default with -r RATE"),
        ] {
            let error = error(line);
            assert!(error.contains(said) && error.contains("tip: "), "{line}: {error}");
        }
    }

    #[test]
    fn flags_that_users_expect_do_not_exist_and_their_remedies_do() {
        let command = Arguments::command();
        let exists = |name: &str, flag: &str| {
            let command = command.find_subcommand(name).unwrap_or_else(|| panic!("{name} is no command"));
            command.get_arguments().any(|argument| {
                argument.get_long().is_some_and(|long| flag == format!("--{long}"))
                    || argument.get_short().is_some_and(|short| flag == format!("-{short}"))
            })
        };
        for (name, flag, remedy) in EXPECTED {
            assert!(!exists(name, flag), "{name} {flag} exists");
            // A remedy may name another command.
            let other = remedy.split("encke ").skip(1).filter_map(|rest| rest.split(' ').next()).last();
            for word in remedy.split([' ', ',', ';']).filter(|word| word.len() > 1 && word.starts_with('-')) {
                assert!(exists(other.unwrap_or(name), word), "{name} {flag}: {word} does not exist");
            }
        }
        assert!(EXPECTED.is_sorted(), "sorted, so that an entry is found by eye");
    }

    #[test]
    fn an_unknown_flag_of_any_command_gets_a_remedy() {
        for command in Arguments::command().get_subcommands() {
            let line = format!("encke {} --frobnicate", command.get_name());
            let error = error(&line);
            let many = command.has_subcommands() || command.get_arguments().count() > OPTIONS_LISTED;
            assert!(error.contains("'--frobnicate'"), "{line}: {error}");
            assert!(many || error.contains("encke "), "{line}: {error}");
            assert!(
                many || error.contains("the options of encke ") || error.contains("no options but"),
                "{line}: {error}"
            );
        }
        for (line, said) in [
            ("encke check -c encke.toml", "encke check FILE"),
            ("encke pub news -m hello", "encke pub CHANNEL DATA"),
            ("encke sub news --last 5", "--since last:N"),
            ("encke status -w", "use --watch"),
            ("encke token --user ann", "use --sub NAME"),
            ("encke man -p", "encke man has no options but --help"),
        ] {
            let error = error(line);
            assert!(error.contains(said) && !error.contains("as a value"), "{line}: {error}");
        }
    }

    #[test]
    fn a_port_is_an_address_to_listen_on() {
        for line in ["encke serve --port 8080", "encke demo --port 8080", "encke serve --port=:80 public"] {
            let words: Vec<&str> = line.split(' ').collect();
            if let Err(error) = Arguments::try_parse_from(words) {
                panic!("{line}: {error}");
            }
        }
    }
}
