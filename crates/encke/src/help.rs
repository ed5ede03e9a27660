//! The command line as this system has it. Its texts are written for Unix; on Windows the examples quote for cmd.exe, and
//! name neither directories nor back ends of Unix.

use clap::builder::StyledStr;
use clap::{Command, CommandFactory as _};

use crate::arguments::Arguments;
use crate::shell::on_windows;

/// Phrases of the help on Unix, and those on Windows. A path is replaced by one of the same width, so columns stay aligned.
const ON_WINDOWS: [(&str, &str); 8] = [
    ("ENCKE_CONFIG=/etc/encke/encke.toml encke check", "set \"ENCKE_CONFIG=encke.toml\" && encke check"),
    ("\n  encke check encke.toml && kill -HUP \"$(cat /run/encke.pid)\"", ""),
    ("/etc/encke/encke.toml", "encke.toml           "),
    (", HOST:PORT or unix:PATH", " or HOST:PORT"),
    ("auto, uring, epoll-edge, epoll-level or poll", "auto or afd"),
    ("'starman app.psgi'", "\"node server.js {port}\""),
    (" | less", " | more"),
    ("tail -f app.log", "type app.log"),
];

/// The command line of this system.
pub(crate) fn command() -> Command {
    let command = Arguments::command();
    if on_windows() { for_windows(command) } else { command }
}

fn for_windows(command: Command) -> Command {
    let after = command.get_after_help().map(windows_text);
    let command = command.mut_subcommands(for_windows).mut_args(|arg| {
        let (short, long) = (arg.get_help().map(windows_text), arg.get_long_help().map(windows_text));
        let arg = short.into_iter().fold(arg, clap::Arg::help);
        long.into_iter().fold(arg, clap::Arg::long_help)
    });
    after.into_iter().fold(command, Command::after_help)
}

fn windows_text(text: &StyledStr) -> String {
    let text =
        ON_WINDOWS.into_iter().fold(text.to_string(), |text, (unix, windows)| text.replace(unix, windows));
    let lines: Vec<String> = text
        .lines()
        .map(|line| if line.starts_with("  encke ") { double_quoted(line) } else { line.to_owned() })
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// Replaces single quotes, which cmd.exe passes on as they are.
fn double_quoted(line: &str) -> String {
    let mut is_quoted = false;
    line.chars().fold(String::new(), |mut text, char| {
        match char {
            '\'' => {
                is_quoted = !is_quoted;
                text.push('"');
            }
            '"' if is_quoted => text.push_str("\\\""),
            char => text.push(char),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The help of a command and of those below it, but not of hidden ones.
    fn helps(command: &mut Command) -> Vec<String> {
        let mut texts = vec![command.render_long_help().to_string()];
        for command in command.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
            texts.extend(helps(command));
        }
        texts
    }

    #[test]
    fn help_on_windows_names_nothing_of_unix() {
        for help in helps(&mut for_windows(Arguments::command())) {
            let foreign = ["unix:PATH", "epoll", "/etc/encke", "/run/", "kill -HUP", "starman"];
            let named = foreign.into_iter().filter(|word| help.contains(word)).collect::<Vec<_>>();
            assert!(named.is_empty(), "{named:?} in\n{help}");
            let quoted = help.lines().find(|line| line.starts_with("  encke ") && line.contains('\''));
            assert_eq!(quoted, None);
        }
    }

    #[test]
    fn examples_are_quoted_for_cmd_exe() {
        assert_eq!(double_quoted("  encke pub news 'a b'  x"), "  encke pub news \"a b\"  x");
        assert_eq!(double_quoted("  encke pub c '{\"a\":1}'"), "  encke pub c \"{\\\"a\\\":1}\"");
    }
}
