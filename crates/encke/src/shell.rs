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
    if on_windows {
        format!("\"{}\"", text.replace('"', "\\\""))
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell_of_the_system() {
        assert_eq!(word_of("it's", false), r"'it'\''s'");
        assert_eq!(word_of(r"C:\a b", true), r#""C:\a b""#);
        assert_eq!(quoted(Path::new("/srv/site")), "/srv/site");
        assert_eq!(quoted(Path::new("/srv/my site")), word("/srv/my site"));
    }
}
