//! A command in one argument: `'starman --workers 5 app.psgi'`.

use std::str::FromStr;

use crate::error::ArgumentError;
use crate::shell::on_windows;

/// A program and its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CommandLine(pub(crate) Vec<String>);

impl FromStr for CommandLine {
    type Err = ArgumentError;

    /// Splits a command at spaces, except within quotes and after a backslash. On Windows, where a backslash separates directories,
    /// it has a meaning before a double quote only. Nothing else has a meaning, as no shell reads it.
    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        Self::split(text, on_windows())
    }
}

impl CommandLine {
    fn split(text: &str, on_windows: bool) -> Result<Self, ArgumentError> {
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let mut quote = None;
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match (quote, letter) {
                (None, ' ' | '\t' | '\n') => words.extend(word.take()),
                (None, '\'' | '"') => {
                    quote = Some(letter);
                    word.get_or_insert_default();
                }
                (Some(open), _) if open == letter => quote = None,
                (None | Some('"'), '\\') if !on_windows || letters.peek() == Some(&'"') => {
                    word.get_or_insert_default().extend(letters.next());
                }
                _ => word.get_or_insert_default().push(letter),
            }
        }
        if let Some(open) = quote {
            return Err(ArgumentError::Quote(open));
        }
        words.extend(word);
        if words.is_empty() { Err(ArgumentError::NoCommand) } else { Ok(Self(words)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_at_spaces_outside_of_quotes() {
        let words = |text: &str| CommandLine::split(text, false).map(|command| command.0).ok();
        for (text, expected) in [
            ("starman app.psgi", &["starman", "app.psgi"][..]),
            ("  node\tserver.js  ", &["node", "server.js"]),
            ("sh -c 'exec node \"$1\"'", &["sh", "-c", "exec node \"$1\""]),
            ("a \"b \\\" c\"", &["a", "b \" c"]),
            ("a '' b", &["a", "", "b"]),
            ("a\\ b", &["a b"]),
            ("--x='1 2'", &["--x=1 2"]),
        ] {
            let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
            assert_eq!(words(text), Some(expected), "{text}");
        }
        for text in ["", "  ", "a 'b", "a \"b"] {
            assert_eq!(words(text), None, "{text}");
        }
    }

    #[test]
    fn a_backslash_separates_directories_on_windows() {
        let words = |text: &str| CommandLine::split(text, true).map(|command| command.0).ok();
        for (text, expected) in [
            (r"C:\Node\node.exe server.js {port}", &[r"C:\Node\node.exe", "server.js", "{port}"][..]),
            (r#""C:\Program Files\node.exe" a"#, &[r"C:\Program Files\node.exe", "a"]),
            (r#"node -e "print(\"a b\")""#, &["node", "-e", "print(\"a b\")"]),
            (r"\\server\share\a.exe 'b\'", &[r"\\server\share\a.exe", r"b\"]),
        ] {
            let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
            assert_eq!(words(text), Some(expected), "{text}");
        }
    }
}
