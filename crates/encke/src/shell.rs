//! Words of a shell. That of Windows, cmd.exe, obeys double quotes only.

use std::path::Path;

/// Whether this program runs on Windows.
pub(crate) fn on_windows() -> bool {
    std::env::consts::OS == "windows"
}

/// A path as a word of a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| {
        letter.is_alphanumeric() || "/._-+=:,@%".contains(letter) || (letter == '\\' && on_windows())
    };
    if text.chars().all(plain) { text } else { word(&text) }
}

/// A text with spaces as a word of a shell.
pub(crate) fn word(text: &str) -> String {
    word_of(text, on_windows())
}

fn word_of(text: &str, on_windows: bool) -> String {
    if !on_windows {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    // Programs of Windows take backslashes before a quote for its escapes, two for one.
    let (mut word, mut backslashes) = (String::from('"'), 0);
    for letter in text.chars() {
        if letter == '"' {
            word.extend(std::iter::repeat_n('\\', backslashes + 1));
        }
        backslashes = if letter == '\\' { backslashes + 1 } else { 0 };
        word.push(letter);
    }
    word.extend(std::iter::repeat_n('\\', backslashes));
    word.push('"');
    word
}

/// A command that a test writes for sh, in the quotes of this system's shell.
#[cfg(test)]
pub(crate) fn quoted_here(command: &str) -> String {
    if !on_windows() {
        return command.to_owned();
    }
    command.split(r"'\''").map(|part| part.replace('\'', "\"")).collect::<Vec<_>>().join("'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell_of_the_system() {
        assert_eq!(word_of("it's", false), r"'it'\''s'");
        for (text, expected) in [
            (r"C:\a b", r#""C:\a b""#),
            (r"C:\a b\", r#""C:\a b\\""#),
            (r#"say "hi""#, r#""say \"hi\"""#),
            (r#"\\a\"b"#, r#""\\a\\\"b""#),
        ] {
            assert_eq!(word_of(text, true), expected, "{text}");
        }
        assert_eq!(quoted(Path::new("/srv/site")), "/srv/site");
        assert_eq!(quoted(Path::new("/srv/my site")), word("/srv/my site"));
    }
}
