//! The texts of the settings, and the position of each value, kept after parsing: an explanation names the line of the rule that
//! applied.
//!
//! ```text
//!  encke.toml          sites/a.toml      sites/b.toml
//!  0 ─────────── 120   121 ───────── 300   301 ────── 350      positions are offsets in all texts, one after another
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The texts of a settings file and of the files that it includes. Never empty. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct SourceTexts {
    files: Vec<SourceText>,
}

/// A file of settings.
#[derive(Clone, Debug)]
pub(crate) struct SourceText {
    /// The file's name for the user.
    pub(crate) name: Arc<str>,
    pub(crate) text: Arc<str>,
    /// The offset of its first byte in all texts.
    pub(crate) start: usize,
}

impl SourceTexts {
    pub(crate) fn new(name: String, text: String) -> Self {
        Self { files: vec![SourceText { name: name.into(), text: text.into(), start: 0 }] }
    }

    /// Appends a file.
    pub(crate) fn add(&mut self, name: String, text: String) {
        // One byte between two files, so that the end of one is not the start of the next.
        let start = self.files.last().map_or(0, |last| last.start + last.text.len() + 1);
        self.files.push(SourceText { name: name.into(), text: text.into(), start });
    }

    pub(crate) fn files(&self) -> &[SourceText] {
        &self.files
    }

    /// The number of the file that has this offset.
    fn number_at(&self, offset: usize) -> usize {
        self.files.partition_point(|file| file.start <= offset).saturating_sub(1)
    }

    /// The file that has this offset.
    pub(crate) fn file_at(&self, offset: usize) -> &SourceText {
        &self.files[self.number_at(offset)]
    }

    /// The text of a span; empty outside the texts.
    pub(crate) fn text_at(&self, span: &Range<usize>) -> &str {
        let file = self.file_at(span.start);
        file.text.get(span.start - file.start..span.end.saturating_sub(file.start)).unwrap_or_default()
    }

    /// The line and the column of an offset in its file, both from 1. The column counts characters.
    pub(crate) fn place(&self, offset: usize) -> (usize, usize) {
        let file = self.file_at(offset);
        let before = file.text.get(..offset - file.start).unwrap_or(&file.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// The lines of the settings' values, by the keys that lead to them. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct SourceMap {
    files: Arc<[Arc<str>]>,
    /// The number of the file, and line and column from 1, by path: `site.0.redirects.2`.
    lines: Arc<BTreeMap<String, (usize, u32, u32)>>,
}

/// The position of a value in a settings file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceLine {
    /// The file's name: as passed to the program, or, of an included file, relative to the same directory.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl SourceMap {
    pub(crate) fn of(texts: &SourceTexts, root: &DeTable<'_>) -> Self {
        let starts = texts.files.iter().enumerate().flat_map(|(number, file)| {
            let lines = std::iter::once(0).chain(file.text.match_indices('\n').map(|(at, _)| at + 1));
            lines.zip(1..).map(move |(at, line)| (file.start + at, number, line))
        });
        let mut walk = Walk { texts, starts: starts.collect(), lines: BTreeMap::new() };
        walk.table("", root);
        let files = texts.files.iter().map(|file| Arc::clone(&file.name)).collect();
        Self { files, lines: Arc::new(walk.lines) }
    }

    /// The line of the value at a path of keys, or of the closest table around it in the file. A number is an index in a list.
    /// `None` if the file has no part of the path: the value is a default or comes from a flag.
    pub fn line(&self, path: &[&str]) -> Option<SourceLine> {
        let mut key = path.join(".");
        loop {
            if let Some(&(file, line, column)) = self.lines.get(&key) {
                return Some(SourceLine { file: Arc::clone(self.files.get(file)?), line, column });
            }
            key.truncate(key.rfind('.')?);
        }
    }

    /// Whether the file has the value at a path of keys itself.
    pub fn contains(&self, path: &[&str]) -> bool {
        self.lines.contains_key(&path.join("."))
    }

    /// The paths of all values and tables in the file, sorted: `server.backlog`, `site.0.root`.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.lines.keys().map(String::as_str)
    }

    /// Whether the file has no values: it is empty, or there is none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The positions of one section. Its keys then begin the paths.
    #[must_use]
    pub fn section(&self, name: &str) -> Self {
        let prefix = format!("{name}.");
        let inner = self.lines.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let lines = inner.map(|(path, place)| (path[prefix.len()..].to_owned(), *place)).collect();
        Self { files: Arc::clone(&self.files), lines: Arc::new(lines) }
    }
}

/// The path of the value or key at `span`, with the indices of lists: `site.0.root`. Empty if there is none.
pub(crate) fn key_at(root: &DeTable<'_>, span: &Range<usize>) -> String {
    fn in_table(path: &str, table: &DeTable<'_>, span: &Range<usize>) -> Option<String> {
        table.iter().find_map(|(key, value)| {
            let path = joined(path, key.get_ref());
            if key.span() == *span { Some(path) } else { in_value(path, value, span) }
        })
    }
    fn in_value(path: String, value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<String> {
        match value.get_ref() {
            _ if value.span() == *span => Some(path),
            DeValue::Table(table) => in_table(&path, table, span),
            DeValue::Array(list) => list
                .iter()
                .enumerate()
                .find_map(|(place, item)| in_value(joined(&path, &place.to_string()), item, span)),
            _ => None,
        }
    }
    in_table("", root, span).unwrap_or_default()
}

struct Walk<'a> {
    texts: &'a SourceTexts,
    /// Offset, file and number of each line.
    starts: Vec<(usize, usize, u32)>,
    lines: BTreeMap<String, (usize, u32, u32)>,
}

impl Walk<'_> {
    fn table(&mut self, path: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let path = joined(path, key.get_ref());
            self.value(&path, value, key.span().start);
        }
    }

    fn value(&mut self, path: &str, value: &Spanned<DeValue<'_>>, start: usize) {
        let after = self.starts.partition_point(|(line_start, ..)| *line_start <= start);
        if let Some(&(line_start, file, line)) = self.starts.get(after.saturating_sub(1)) {
            let before = self.texts.text_at(&(line_start..start)).chars().count();
            let column = u32::try_from(before + 1).unwrap_or(u32::MAX);
            self.lines.insert(path.to_owned(), (file, line, column));
        }
        match value.get_ref() {
            DeValue::Table(table) => self.table(path, table),
            DeValue::Array(list) => {
                for (place, item) in list.iter().enumerate() {
                    self.value(&joined(path, &place.to_string()), item, item.span().start);
                }
            }
            _ => {}
        }
    }
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[server]\nbacklog = 7\n\n[[site]]\nhost = \"a\"\nheaders = [\n  { path = \"*\" },\n  { path = \"/x\" },\n]\n\n[[site]]\nhost = \"b\"\n";

    fn map() -> SourceMap {
        let (root, errors) = DeTable::parse_recoverable(TEXT);
        assert!(errors.is_empty(), "{errors:?}");
        SourceMap::of(&SourceTexts::new("encke.toml".into(), TEXT.into()), root.get_ref())
    }

    #[test]
    fn each_value_has_the_line_on_which_it_stands() {
        let map = map();
        for (path, line) in [
            (&["server", "backlog"][..], 2),
            (&["site", "0", "host"], 5),
            (&["site", "0", "headers", "0"], 7),
            (&["site", "0", "headers", "1", "path"], 8),
            (&["site", "1", "host"], 12),
        ] {
            let found = map.line(path).map(|found| found.to_string());
            assert_eq!(found, Some(format!("encke.toml:{line}")), "{path:?}");
        }
    }

    #[test]
    fn each_value_has_a_column() {
        let map = map();
        let column = |path: &[&str]| map.line(path).map(|found| found.column);
        assert_eq!(column(&["site", "0", "headers", "0"]), Some(3));
        assert_eq!(column(&["site", "0", "headers", "0", "path"]), Some(5));
        assert_eq!(column(&["server", "backlog"]), Some(1));
    }

    #[test]
    fn a_value_that_the_file_lacks_has_the_line_of_its_table() {
        let map = map();
        assert_eq!(map.line(&["server", "workers"]).map(|found| found.line), Some(1));
        assert_eq!(map.line(&["push", "prefix"]), None);
        assert!(map.contains(&["server", "backlog"]) && !map.contains(&["server", "workers"]));
        assert!(map.section("push").is_empty() && !map.section("server").is_empty());
    }

    #[test]
    fn a_section_has_the_positions_of_its_own_keys() {
        let site = map().section("site");
        assert_eq!(site.line(&["1", "host"]).map(|found| found.line), Some(12));
        assert_eq!(site.line(&["server", "backlog"]), None);
    }
}
