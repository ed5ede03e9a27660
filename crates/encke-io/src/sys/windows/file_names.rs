//! Names of files that a request may use on Windows.
//!
//! One file has many names here: other case, trailing dots and spaces, short names, streams; and some names are devices. So a
//! name is checked before it is used ([`segments`]), and the file that it opens must have exactly this name
//! ([`is_true_name`]). Otherwise every rule by name could be bypassed (CVE-1999-0012, CVE-2001-0795).

use std::borrow::Cow;
use std::io;
use std::os::windows::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf, Prefix};

/// Characters that a name may not contain: separators, streams and drives, wildcards, and others that Windows reserves.
const RESERVED: &[char] = &['\\', '/', ':', '*', '?', '"', '<', '>', '|'];

/// Returns the segments of a name, and whether it ends with a slash. `None` if a segment cannot be the name of a file, or leads
/// upwards.
pub(crate) fn segments(name: &[u8]) -> Option<(Vec<&str>, bool)> {
    let name = str::from_utf8(name).ok()?;
    let (name, is_folder) = match name.strip_suffix('/') {
        Some(name) if !name.is_empty() => (name, true),
        _ => (name, false),
    };
    let mut segments = Vec::new();
    for segment in name.split('/') {
        match segment {
            "." => {}
            "" if name.is_empty() => {}
            _ if is_name(segment) => segments.push(segment),
            _ => return None,
        }
    }
    Some((segments, is_folder))
}

/// Whether a segment can be the name of a file.
pub(crate) fn is_name(segment: &str) -> bool {
    !segment.is_empty()
        && !segment.ends_with(['.', ' '])
        && !segment.contains(|letter: char| letter < ' ' || RESERVED.contains(&letter))
        && !is_device(segment)
}

/// Whether a name opens a device, in any directory and with any extension.
fn is_device(segment: &str) -> bool {
    let stem = segment.split('.').next().unwrap_or(segment).trim().to_uppercase();
    if ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"].contains(&stem.as_str()) {
        return true;
    }
    let number = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT"));
    // The superscript digits count as digits.
    number.is_some_and(|number| {
        let mut letters = number.chars();
        matches!(letters.next(), Some('0'..='9' | '¹' | '²' | '³')) && letters.next().is_none()
    })
}

/// Whether a file's true name is the root's with these segments, unit by unit.
pub(crate) fn is_true_name(true_name: &[u16], root: &[u16], segments: &[&str]) -> bool {
    let mut expected: Vec<u16> = root.to_vec();
    for segment in segments {
        if expected.last() != Some(&SEPARATOR) {
            expected.push(SEPARATOR);
        }
        expected.extend(segment.encode_utf16());
    }
    true_name == expected
}

/// Whether a request may use `name`, a path relative to `root` with `/` between its segments, for the file at `real`, an
/// absolute path without links: only if it is the file's true name. `root` has no links either.
pub fn is_used_name(root: &Path, name: &str, real: &Path) -> bool {
    segments(name.as_bytes()).is_some_and(|(segments, _)| {
        let mut expected = root.to_path_buf();
        expected.extend(segments);
        // Paths are compared as the system compares them, which may ignore case.
        expected.as_os_str() == real.as_os_str()
    })
}

/// The usual form of an absolute path, for other programs: `C:\a` for `\\?\C:\a`, which few programs know. A path that has no
/// such form stays as it is.
pub fn plain_path(path: &Path) -> Cow<'_, Path> {
    let text = path.as_os_str().to_str().and_then(|text| text.strip_prefix(r"\\?\"));
    let plain = text.filter(|text| {
        let mut parts = text.split('\\');
        let is_drive = parts
            .next()
            .is_some_and(|drive| matches!(drive.as_bytes(), [letter, b':'] if letter.is_ascii_alphabetic()));
        // Without the prefix the system would rewrite other names.
        is_drive
            && text.len() < PLAIN_BYTES_MAX
            && parts.all(|part| part.is_empty() && text.ends_with(":\\") || is_name(part))
    });
    plain.map_or(Cow::Borrowed(path), |plain| Cow::Owned(PathBuf::from(plain)))
}

/// The longest path that all programs can open (MAX_PATH).
const PLAIN_BYTES_MAX: usize = 248;

const SEPARATOR: u16 = b'\\' as u16;

/// A path for calls of the system, which ends with a zero. On a drive it has the form that may be longer than 260 units.
///
/// # Errors
/// The path contains a zero, or is empty.
pub(crate) fn system_path(path: &Path) -> io::Result<Vec<u16>> {
    let path = std::path::absolute(path)?;
    let is_on_drive = matches!(path.components().next(),
        Some(Component::Prefix(prefix)) if matches!(prefix.kind(), Prefix::Disk(_)));
    let prefix = if is_on_drive { r"\\?\" } else { "" };
    let mut name: Vec<u16> = prefix.encode_utf16().chain(path.as_os_str().encode_wide()).collect();
    if name.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    name.push(0);
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_windows_reads_differently_are_refused() {
        for name in [
            "a/../b", "..", "a\\b", "a//b", "/a", "a:b", "a::$DATA", "C:", "a*", "a?", "a\"", "a<", "a>",
            "a|", "a.", "a ", "a...  ", "a./b", "NUL", "nul", "Nul.html", "nul .txt", "aux", "con.a.b",
            "PRN", "COM1", "com0.txt", "LPT9", "COM¹", "lpt³.x", "conin$", "CONOUT$", "a\u{1}", "a\n",
            "sub/NUL",
        ] {
            assert_eq!(segments(name.as_bytes()), None, "{name:?}");
        }
        assert_eq!(segments(b"a\xFF"), None, "not UTF-8");
    }

    #[test]
    fn other_names_are_names() {
        for (name, expected) in [
            ("", (vec![], false)),
            (".", (vec![], false)),
            ("a", (vec!["a"], false)),
            ("sub/b.html", (vec!["sub", "b.html"], false)),
            ("./sub/./b", (vec!["sub", "b"], false)),
            ("sub/", (vec!["sub"], true)),
            (".hidden", (vec![".hidden"], false)),
            ("console", (vec!["console"], false)),
            ("com10", (vec!["com10"], false)),
            ("nulls.txt", (vec!["nulls.txt"], false)),
            ("日本 語.txt", (vec!["日本 語.txt"], false)),
        ] {
            assert_eq!(segments(name.as_bytes()), Some(expected), "{name:?}");
        }
    }

    #[test]
    fn a_true_name_is_equal_unit_by_unit() {
        let wide = |text: &str| text.encode_utf16().collect::<Vec<u16>>();
        let root = wide(r"\\?\C:\site");
        assert!(is_true_name(&wide(r"\\?\C:\site\sub\b"), &root, &["sub", "b"]));
        assert!(is_true_name(&root, &root, &[]));
        assert!(is_true_name(&wide(r"\\?\C:\a"), &wide(r"\\?\C:\"), &["a"]));
        for other in [r"\\?\C:\site\Sub\b", r"\\?\C:\site\sub\B", r"\\?\C:\site\sub", r"\\?\C:\sub\b"] {
            assert!(!is_true_name(&wide(other), &root, &["sub", "b"]), "{other}");
        }
    }

    #[test]
    fn a_file_is_used_by_its_true_name_only() {
        let root = Path::new(r"\\?\C:\site");
        for (name, real, is_used) in [
            ("a.php", r"\\?\C:\site\a.php", true),
            ("sub/a.php", r"\\?\C:\site\sub\a.php", true),
            ("A.php", r"\\?\C:\site\a.php", false),
            ("sub\\a.php", r"\\?\C:\site\sub\a.php", false),
            ("a.php::$DATA", r"\\?\C:\site\a.php", false),
            ("LONGNA~1.php", r"\\?\C:\site\long name.php", false),
            ("link.php", r"\\?\C:\site\a.php", false),
            ("a.php", r"\\?\C:\other\a.php", false),
        ] {
            assert_eq!(is_used_name(root, name, Path::new(real)), is_used, "{name}");
        }
    }

    #[test]
    fn a_path_for_other_programs_has_its_usual_form() {
        let long = format!(r"\\?\C:\{}", "a".repeat(300));
        for (path, expected) in [
            (r"\\?\C:\a\b.html", r"C:\a\b.html"),
            (r"\\?\C:\", r"C:\"),
            (r"C:\a", r"C:\a"),
            (r"\\?\UNC\server\share\a", r"\\?\UNC\server\share\a"),
            (r"\\?\C:\a.", r"\\?\C:\a."),
            (r"\\?\C:\a\nul", r"\\?\C:\a\nul"),
            (r"\\?\C:\a/b", r"\\?\C:\a/b"),
            (&long, &long),
        ] {
            assert_eq!(plain_path(Path::new(path)).as_os_str(), expected);
        }
    }

    #[test]
    fn paths_may_be_long_and_have_no_zero() {
        let text = |path: &str| {
            let mut units = system_path(Path::new(path))?;
            assert_eq!(units.pop(), Some(0));
            Ok::<_, io::Error>(String::from_utf16(&units).expect("Unicode"))
        };
        for (path, expected) in [
            (r"C:\a\b", r"\\?\C:\a\b"),
            ("C:/a/./b", r"\\?\C:\a\b"),
            (r"\\?\C:\a", r"\\?\C:\a"),
            (r"\\server\share\a", r"\\server\share\a"),
        ] {
            assert_eq!(text(path).expect("a path"), expected);
        }
        assert_eq!(text("C:\\a\0b").expect_err("a zero").kind(), io::ErrorKind::InvalidInput);
    }
}
