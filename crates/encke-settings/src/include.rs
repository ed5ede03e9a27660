//! `include`: further files that belong to a settings file.
//!
//! ```text
//!  include = "sites/*.toml" ─► files, by name ─► texts ─► tables ─► merge ─► one document
//! ```
//! Sections of all files are merged. Lists of tables, such as `[[site]]`, are appended in the order of the files; a key that two
//! files set is an error. An included file includes no others.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::Problem;
use crate::source::SourceTexts;

/// The key of the whole document that names the files.
pub(crate) const INCLUDE: &str = "include";
/// Maximum number of included files: more than the sites of most servers, and far below the limit of open descriptors.
pub(crate) const INCLUDED_MAX: usize = 1_000;
/// Maximum size of a settings file with all files that it includes, which rejects files of another kind.
pub const BYTES_MAX: u64 = 1024 * 1024;

/// Why a file cannot be included. The origin is the settings file, or the file system.
#[derive(Debug)]
enum IncludeError {
    /// The file or its directory cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The pattern matches a directory or a special file.
    NotAFile(PathBuf),
    /// The pattern has `*` or `?` in a directory.
    DirectoryPattern,
    /// The text is empty or ends in a separator.
    NoFile,
    /// The pattern matches the settings file itself.
    Itself,
    /// More than [`INCLUDED_MAX`] files.
    TooMany,
    /// With this file, the settings are larger than [`BYTES_MAX`].
    TooLarge(PathBuf),
}

impl fmt::Display for IncludeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(f, "cannot include {}: {error}", path.display()),
            Self::NotAFile(path) => write!(f, "cannot include {}: not a file", path.display()),
            Self::DirectoryPattern => {
                f.write_str("`*` and `?` stand for parts of a file's name, not of a directory's")
            }
            Self::NoFile => {
                f.write_str("include needs the name of a file, or a pattern such as sites/*.toml")
            }
            Self::Itself => f.write_str("the pattern matches this file itself: use another directory"),
            Self::TooMany => write!(f, "more than {INCLUDED_MAX} included files"),
            Self::TooLarge(path) => {
                write!(f, "the settings are larger than 1 MiB with {}", path.display())
            }
        }
    }
}

impl std::error::Error for IncludeError {}

/// The files that a settings file includes.
#[derive(Default)]
pub(crate) struct Included {
    /// The paths of the files, in the order of the texts.
    pub(crate) paths: Vec<PathBuf>,
    /// Patterns that match no file.
    pub(crate) notes: Vec<String>,
    /// Files that cannot be included.
    pub(crate) problems: Vec<Problem>,
}

/// Reads the files that the document `root` includes, and appends their texts. `folder` is the directory of the settings file.
pub(crate) fn read(texts: &mut SourceTexts, root: &DeTable<'_>, folder: &Path) -> Included {
    let mut included = Included::default();
    let name = PathBuf::from(&*texts.file_at(0).name);
    let mut left = BYTES_MAX.saturating_sub(texts.file_at(0).text.len() as u64);
    for (pattern, span) in patterns(root) {
        let mut wrong = |error: &IncludeError| {
            included.problems.push(Problem { span: span.clone(), message: error.to_string(), hint: None });
        };
        let files = match find(folder, pattern) {
            Ok(files) => files,
            Err(error) => {
                wrong(&error);
                continue;
            }
        };
        if files.is_empty() {
            let line = texts.place(span.start).0;
            included
                .notes
                .push(format!("{}:{line}: include = \"{pattern}\" matches no file", name.display()));
        }
        for file in files {
            let path = folder.join(&file);
            if included.paths.contains(&path) {
                continue;
            }
            if name.file_name().is_some_and(|name| path == folder.join(name)) {
                wrong(&IncludeError::Itself);
                continue;
            }
            if included.paths.len() == INCLUDED_MAX {
                wrong(&IncludeError::TooMany);
                return included;
            }
            // Named as the settings file is: conf/encke.toml includes conf/sites/a.toml.
            let shown = name.parent().unwrap_or(Path::new("")).join(&file);
            match text_of(&path, &shown, left) {
                Ok(text) => {
                    left -= text.len() as u64;
                    texts.add(shown.display().to_string(), text);
                    included.paths.push(path);
                }
                Err(error) => {
                    let full = matches!(error, IncludeError::TooLarge(_));
                    wrong(&error);
                    if full {
                        return included;
                    }
                }
            }
        }
    }
    included
}

/// The texts of `include`: one or a list. Other values are errors of the document's type.
fn patterns<'a>(root: &'a DeTable<'_>) -> Vec<(&'a str, Range<usize>)> {
    let text = |value: &'a Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(text) => Some((&**text, value.span())),
        _ => None,
    };
    match root.get(INCLUDE).map(|value| (value, value.get_ref())) {
        Some((_, DeValue::Array(list))) => list.iter().filter_map(text).collect(),
        Some((value, _)) => text(value).into_iter().collect(),
        None => Vec::new(),
    }
}

/// The files that a pattern matches, sorted by name, relative to `folder` or absolute as the pattern is. A name without `*` and
/// `?` is returned whether the file exists or not.
fn find(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, IncludeError> {
    let (directory, name) = match pattern.rfind(std::path::is_separator) {
        Some(at) => pattern.split_at(at + 1),
        None => ("", pattern),
    };
    let is_pattern = |text: &str| text.contains(['*', '?']);
    if is_pattern(directory) {
        return Err(IncludeError::DirectoryPattern);
    }
    if name.is_empty() {
        return Err(IncludeError::NoFile);
    }
    if !is_pattern(name) {
        return Ok(vec![pattern.into()]);
    }
    let place = folder.join(directory);
    let named = if directory.is_empty() { "." } else { directory };
    let unreadable = |error| IncludeError::Unreadable(named.into(), error);
    // An empty path is the working directory.
    let opened = if place.as_os_str().is_empty() { fs::read_dir(".") } else { fs::read_dir(&place) };
    let entries = match opened {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let found = entry.map_err(unreadable)?.file_name();
        // As in a shell, hidden files need a dot in the pattern: editors leave such files.
        let found_text = found.to_string_lossy();
        if matches(name, &found_text) && (name.starts_with('.') || !found_text.starts_with('.')) {
            names.push(found);
        }
        // One name more than allowed, so that the limit is reported.
        if names.len() > INCLUDED_MAX {
            return Err(IncludeError::TooMany);
        }
    }
    names.sort();
    Ok(names.into_iter().map(|name| Path::new(directory).join(name)).collect())
}

/// Whether a name matches a pattern: `*` stands for any characters, `?` for one.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut read) = (0, 0);
    // The position after the last `*`, and the end of the text that it matches so far.
    let mut star = None;
    while read < name.len() {
        match pattern.get(at) {
            Some('*') => {
                at += 1;
                star = Some((at, read));
            }
            Some('?') => (at, read) = (at + 1, read + 1),
            Some(letter) if *letter == name[read] => (at, read) = (at + 1, read + 1),
            _ => {
                let Some((after, end)) = star else { return false };
                star = Some((after, end + 1));
                (at, read) = (after, end + 1);
            }
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

/// Reads a file of at most `left` bytes.
fn text_of(path: &Path, shown: &Path, left: u64) -> Result<String, IncludeError> {
    let unreadable = |error| IncludeError::Unreadable(shown.to_owned(), error);
    // Not opened before: opening a FIFO would wait for its writer.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(IncludeError::NotAFile(shown.to_owned()));
    }
    let mut text = String::new();
    File::open(path).and_then(|file| file.take(left + 1).read_to_string(&mut text)).map_err(unreadable)?;
    if text.len() as u64 > left { Err(IncludeError::TooLarge(shown.to_owned())) } else { Ok(text) }
}

/// Moves all positions of a file's table to their offsets in all texts.
pub(crate) fn shifted(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    let key = |key: Spanned<_>| Spanned::new(key.span().start + by..key.span().end + by, key.into_inner());
    table.into_iter().map(|(name, value)| (key(name), shifted_value(value, by))).collect()
}

fn shifted_value(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let span = value.span().start + by..value.span().end + by;
    let inner = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(shifted(table, by)),
        DeValue::Array(list) => {
            DeValue::Array(list.into_iter().map(|item| shifted_value(item, by)).collect())
        }
        other => other,
    };
    Spanned::new(span, inner)
}

/// Merges the table of an included file into the document. A key that both set is a problem, which names both places.
pub(crate) fn merge<'a>(
    into: &mut DeTable<'a>,
    from: DeTable<'a>,
    texts: &SourceTexts,
    path: &str,
    problems: &mut Vec<Problem>,
) {
    for (key, value) in from {
        let Some((first, _)) = into.get_key_value(&key) else {
            into.insert(key, value);
            continue;
        };
        let first = first.span();
        let full =
            if path.is_empty() { key.get_ref().to_string() } else { format!("{path}.{}", key.get_ref()) };
        let Some(existing) = into.get_mut(&key) else { continue };
        let open = is_open(existing, texts) && is_open(&value, texts);
        match (existing.get_mut(), value.into_inner()) {
            (DeValue::Table(into), DeValue::Table(from)) if open => merge(into, from, texts, &full, problems),
            (DeValue::Array(into), DeValue::Array(from)) if open => {
                from.into_iter().for_each(|item| into.push(item));
            }
            _ => {
                let (line, column) = texts.place(first.start);
                problems.push(Problem {
                    span: key.span(),
                    message: format!("`{full}` is set in two files"),
                    hint: Some(format!("first set at {}:{line}:{column}", texts.file_at(first.start).name)),
                });
            }
        }
    }
}

/// Whether further headings may add to a value: it is written as `[table]` or `[[list]]`, not as `{ … }` or `[ … ]`.
fn is_open(value: &Spanned<DeValue<'_>>, texts: &SourceTexts) -> bool {
    let written = texts.text_at(&value.span());
    match value.get_ref() {
        DeValue::Table(_) => !written.starts_with('{'),
        DeValue::Array(_) => written.starts_with("[["),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text_and_a_question_mark_one_character() {
        for (pattern, name) in [
            ("*.toml", "a.toml"),
            ("*", "a"),
            ("a*b*c", "a--b-b-c"),
            ("?.toml", "ä.toml"),
            ("**", "x"),
            ("a", "a"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("*.toml", "a.toml~"),
            ("?", ""),
            ("?", "ab"),
            ("a*b", "a--c"),
            ("a", "ab"),
            ("", "a"),
            ("*a", "b"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_in_a_directory_is_rejected_and_a_name_is_taken_as_it_is() {
        let found = |pattern| find(Path::new("/nonexistent"), pattern);
        assert!(matches!(found("*/a.toml"), Err(IncludeError::DirectoryPattern)));
        assert!(matches!(found("sites/"), Err(IncludeError::NoFile)));
        assert!(matches!(found(""), Err(IncludeError::NoFile)));
        assert_eq!(found("sites/a.toml").expect("a name"), [PathBuf::from("sites/a.toml")]);
        assert_eq!(found("sites/*.toml").expect("no directory matches nothing"), Vec::<PathBuf>::new());
    }
}
