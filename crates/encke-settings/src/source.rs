//! The position of each value of a settings file, kept after parsing: an explanation names the line of the rule that applied.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The lines of a settings file's values, by the keys that lead to them. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct SourceMap {
    file: Arc<str>,
    /// Lines and columns from 1, by path: `site.0.redirects.2`.
    lines: Arc<BTreeMap<String, (u32, u32)>>,
}

/// The position of a value in a settings file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceLine {
    /// The file's name, as passed to the program.
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
    pub(crate) fn of(file: &str, text: &str, root: &DeTable<'_>) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut walk = Walk { text, starts, lines: BTreeMap::new() };
        walk.table("", root);
        Self { file: file.into(), lines: Arc::new(walk.lines) }
    }

    /// The line of the value at a path of keys, or of the closest table around it in the file. A number is an index in a list.
    /// `None` if the file has no part of the path: the value is a default or comes from a flag.
    pub fn line(&self, path: &[&str]) -> Option<SourceLine> {
        let mut key = path.join(".");
        loop {
            if let Some(&(line, column)) = self.lines.get(&key) {
                return Some(SourceLine { file: Arc::clone(&self.file), line, column });
            }
            key.truncate(key.rfind('.')?);
        }
    }

    /// Whether the file has the value at a path of keys itself.
    pub fn contains(&self, path: &[&str]) -> bool {
        self.lines.contains_key(&path.join("."))
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
        Self { file: Arc::clone(&self.file), lines: Arc::new(lines) }
    }
}

struct Walk<'a> {
    text: &'a str,
    /// Byte offset of each line.
    starts: Vec<usize>,
    lines: BTreeMap<String, (u32, u32)>,
}

impl Walk<'_> {
    fn table(&mut self, path: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let path = joined(path, key.get_ref());
            self.value(&path, value, key.span().start);
        }
    }

    fn value(&mut self, path: &str, value: &Spanned<DeValue<'_>>, start: usize) {
        let line = self.starts.partition_point(|line_start| *line_start <= start);
        let line_start = line.checked_sub(1).and_then(|before| self.starts.get(before)).copied().unwrap_or(0);
        let column = self.text.get(line_start..start).map_or(0, |before| before.chars().count()) + 1;
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.lines.insert(path.to_owned(), (number(line), number(column)));
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
        SourceMap::of("encke.toml", TEXT, root.get_ref())
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
