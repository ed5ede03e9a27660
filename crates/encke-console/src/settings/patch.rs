//! Changes of single values in the text of a settings file. Comments, order, line ends and format of all else stay.

use std::error::Error;
use std::fmt;

use serde::Deserialize;
use serde_json::Value as JsonValue;
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::difference::{DiffLine, difference};

/// Maximum number of changes in one request: more than a form has fields.
pub(crate) const CHANGES_MAX: usize = 1_000;
/// Maximum number of keys that lead to a value. The settings have six.
const DEPTH_MAX: usize = 16;

/// A change of one value.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ValueChange {
    /// The keys that lead to the value; a number is an index in a list.
    pub(crate) path: Vec<PathPart>,
    /// The new value; null removes it.
    pub(crate) value: JsonValue,
}

/// A part of a path.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum PathPart {
    Index(usize),
    Key(String),
}

/// Why a change cannot be made. The origin is always the request, or a text that does not fit to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PatchError {
    /// The text is not TOML.
    NotToml(String),
    /// The path is empty or too long.
    Path,
    /// A part of the path goes into a value that is no table or list: the path up to it.
    NoTable(String),
    /// The index is beyond the end of the list: the path up to it, and the length.
    Index(String, usize),
    /// TOML has no such value.
    Value(&'static str),
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotToml(error) => write!(f, "the file is not TOML, so edit it as text: {error}"),
            Self::Path => write!(f, "a path has 1 to {DEPTH_MAX} keys"),
            Self::NoTable(path) => write!(f, "{path} is neither a table nor a list with this part"),
            Self::Index(path, len) => write!(f, "{path} has {len} items: the index is at most {len}"),
            Self::Value(reason) => write!(f, "not a value of TOML: {reason}"),
        }
    }
}

impl Error for PatchError {}

/// Applies changes to a text, in order.
///
/// # Errors
/// The first change that cannot be made, with its index.
pub(crate) fn patched(text: &str, changes: &[ValueChange]) -> Result<String, (usize, PatchError)> {
    let mut document: DocumentMut = text
        .trim_start_matches(BYTE_ORDER_MARK)
        .parse()
        .map_err(|error: toml_edit::TomlError| (0, PatchError::NotToml(error.message().to_owned())))?;
    for (place, ValueChange { path, value }) in changes.iter().enumerate() {
        let mut change = || {
            if path.is_empty() || path.len() > DEPTH_MAX {
                return Err(PatchError::Path);
            }
            let value = if value.is_null() { None } else { Some(toml_value(value)?) };
            set_in_table(document.as_table_mut(), path, value, &mut Vec::new(), false)
        };
        change().map_err(|error| (place, error))?;
    }
    Ok(with_ends_of(text, &document.to_string()))
}

/// U+FEFF, which some editors put at the start of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Gives the lines of `new` that are also in `old` their line ends there, and all other lines the first line end of `old`.
fn with_ends_of(old: &str, new: &str) -> String {
    let (mark, old) = match old.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => (&old[..BYTE_ORDER_MARK.len_utf8()], rest),
        None => ("", old),
    };
    let new = new.trim_start_matches(BYTE_ORDER_MARK);
    let mut result = String::with_capacity(new.len() + mark.len());
    result.push_str(mark);
    if !old.contains("\r\n") {
        result.push_str(new);
        return result;
    }
    let ends: Vec<&str> =
        old.split_inclusive('\n').map(|line| if line.ends_with("\r\n") { "\r\n" } else { "\n" }).collect();
    let usual = ends.first().copied().unwrap_or("\n");
    let mut old_ends = ends.iter();
    for line in difference(old, new) {
        let (text, end) = match line {
            DiffLine::Same(text) => (text, old_ends.next().copied().unwrap_or(usual)),
            DiffLine::Added(text) => (text, usual),
            DiffLine::Removed(_) => {
                old_ends.next();
                continue;
            }
        };
        result.push_str(text);
        result.push_str(end);
    }
    if !new.ends_with('\n') {
        result.truncate(result.trim_end_matches(['\r', '\n']).len());
    }
    result
}

/// Sets or removes the value at a path below a table. `done` is the path to the table, for errors.
fn set_in_table(
    table: &mut dyn TableLike,
    path: &[PathPart],
    value: Option<Value>,
    done: &mut Vec<String>,
    is_inline: bool,
) -> Result<(), PatchError> {
    let Some((PathPart::Key(key), rest)) = path.split_first() else {
        return Err(PatchError::NoTable(shown(done)));
    };
    done.push(key.clone());
    if rest.is_empty() {
        match value {
            None => drop(table.remove(key)),
            Some(value) => put(table.entry(key).or_insert(Item::None), value, !is_inline && done.len() == 1),
        }
        return Ok(());
    }
    if table.get(key).is_none_or(Item::is_none) {
        if value.is_none() {
            return Ok(());
        }
        let is_table_next = rest.len() > 1 || value.as_ref().is_some_and(Value::is_inline_table);
        let made = match (&rest[0], is_inline) {
            (PathPart::Key(_), true) => Item::Value(InlineTable::new().into()),
            (PathPart::Key(_), false) => Item::Table(section()),
            (PathPart::Index(_), false) if is_table_next => Item::ArrayOfTables(ArrayOfTables::new()),
            (PathPart::Index(_), _) => Item::Value(Array::new().into()),
        };
        table.insert(key, made);
    }
    match table.get_mut(key) {
        Some(Item::Table(inner)) => set_in_table(inner, rest, value, done, false),
        Some(Item::ArrayOfTables(list)) => set_in_tables(list, rest, value, done),
        Some(Item::Value(inner)) => set_in_value(inner, rest, value, done),
        _ => Err(PatchError::NoTable(shown(done))),
    }
}

/// Below `[[list]]`.
fn set_in_tables(
    list: &mut ArrayOfTables,
    path: &[PathPart],
    value: Option<Value>,
    done: &mut Vec<String>,
) -> Result<(), PatchError> {
    let Some((PathPart::Index(index), rest)) = path.split_first() else {
        return Err(PatchError::NoTable(shown(done)));
    };
    if *index > list.len() {
        return Err(PatchError::Index(shown(done), list.len()));
    }
    let is_new = *index == list.len();
    done.push(index.to_string());
    match (rest.is_empty(), value) {
        (true, None) if is_new => {}
        (true, None) => drop(list.remove(*index)),
        (true, Some(Value::InlineTable(table))) if is_new => list.push(as_section(table)),
        (true, Some(Value::InlineTable(table))) => {
            if let Some(old) = list.get_mut(*index) {
                let mut new = table.into_table();
                *new.decor_mut() = old.decor().clone();
                new.set_position(old.position());
                *old = new;
            }
        }
        (true, Some(_)) => return Err(PatchError::Value("the items of this list are tables")),
        (false, None) if is_new => {}
        (false, value) => {
            if is_new {
                list.push(section());
            }
            if let Some(table) = list.get_mut(*index) {
                return set_in_table(table, rest, value, done, false);
            }
        }
    }
    Ok(())
}

/// Below a value: an inline table, or a list in brackets.
fn set_in_value(
    inner: &mut Value,
    path: &[PathPart],
    value: Option<Value>,
    done: &mut Vec<String>,
) -> Result<(), PatchError> {
    match (inner, path.split_first()) {
        (Value::InlineTable(table), _) => set_in_table(table, path, value, done, true),
        (Value::Array(list), Some((PathPart::Index(index), rest))) => {
            if *index > list.len() {
                return Err(PatchError::Index(shown(done), list.len()));
            }
            let is_new = *index == list.len();
            done.push(index.to_string());
            match (rest.is_empty(), value) {
                (_, None) if is_new => {}
                (true, None) => drop(list.remove(*index)),
                (true, Some(value)) if is_new => list.push(value),
                (true, Some(value)) => {
                    if let Some(old) = list.get_mut(*index) {
                        replace(old, value);
                    }
                }
                (false, value) => {
                    if is_new {
                        list.push(InlineTable::new());
                    }
                    if let Some(item) = list.get_mut(*index) {
                        return set_in_value(item, rest, value, done);
                    }
                }
            }
            Ok(())
        }
        _ => Err(PatchError::NoTable(shown(done))),
    }
}

/// Puts a value in the place of an item. A section stays one: its keys are replaced. `is_top`: a table here becomes a section.
fn put(item: &mut Item, value: Value, is_top: bool) {
    match (&mut *item, value) {
        (Item::Value(old), value) => replace(old, value),
        (Item::Table(old), Value::InlineTable(table)) => {
            let new = table.into_table();
            let gone: Vec<String> =
                old.iter().map(|(key, _)| key.to_owned()).filter(|key| !new.contains_key(key)).collect();
            gone.iter().for_each(|key| drop(old.remove(key)));
            for (key, item) in new {
                match item.into_value() {
                    Ok(value) => put(old.entry(&key).or_insert(Item::None), value, false),
                    Err(item) => drop(old.insert(&key, item)),
                }
            }
        }
        (_, Value::InlineTable(table)) if is_top => *item = Item::Table(as_section(table)),
        (_, Value::Array(list)) if is_top && !list.is_empty() && list.iter().all(Value::is_inline_table) => {
            let tables = list.into_iter().filter_map(|value| match value {
                Value::InlineTable(table) => Some(as_section(table)),
                _ => None,
            });
            *item = Item::ArrayOfTables(tables.collect());
        }
        (_, value) => *item = Item::Value(value),
    }
}

/// Replaces a value; spaces and comments around it stay.
fn replace(old: &mut Value, mut new: Value) {
    *new.decor_mut() = old.decor().clone();
    *old = new;
}

/// A section after an empty line.
fn section() -> Table {
    let mut table = Table::new();
    table.decor_mut().set_prefix("\n");
    table
}

fn as_section(table: InlineTable) -> Table {
    let mut table = table.into_table();
    table.decor_mut().set_prefix("\n");
    table
}

/// Converts a value.
pub(super) fn toml_value(value: &JsonValue) -> Result<Value, PatchError> {
    Ok(match value {
        JsonValue::Null => return Err(PatchError::Value("null in a list")),
        JsonValue::Bool(flag) => (*flag).into(),
        JsonValue::String(text) => text.as_str().into(),
        JsonValue::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) if number.is_finite() && !value.is_u64() => number.into(),
            _ => return Err(PatchError::Value("the number is too large")),
        },
        JsonValue::Array(list) => {
            let list: Array = list.iter().map(toml_value).collect::<Result<_, _>>()?;
            list.into()
        }
        JsonValue::Object(map) => {
            let mut table = InlineTable::new();
            for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
                table.insert(key, toml_value(value)?);
            }
            table.into()
        }
    })
}

fn shown(path: &[String]) -> String {
    if path.is_empty() { "the file".into() } else { path.join(".") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patch(text: &str, changes: JsonValue) -> Result<String, (usize, PatchError)> {
        let changes: Vec<ValueChange> = serde_json::from_value(changes).expect("changes");
        patched(text, &changes)
    }

    #[track_caller]
    fn becomes(text: &str, path: JsonValue, value: JsonValue, expected: &str) {
        let result = patch(text, json!([{ "path": path, "value": value }]));
        assert_eq!(result.as_deref(), Ok(expected), "{path} = {value}");
    }

    const FILE: &str = "# Our server.\n[server]\nbacklog = 512 # enough\nlisten = [ \"8080\", \"8081\" ]\n\n# Pages.\n[[site]]\nroot = \"a\"\n\n[[site]]\nroot = \"b\" # second\n";

    #[test]
    fn a_changed_value_keeps_comments_order_and_format() {
        becomes(FILE, json!(["server", "backlog"]), json!(4096), &FILE.replace("512", "4096"));
        becomes(FILE, json!(["server", "listen", 1]), json!("9"), &FILE.replace("8081", "9"));
        becomes(FILE, json!(["site", 1, "root"]), json!("c"), &FILE.replace("\"b\"", "\"c\""));
        becomes(FILE, json!(["site", 1, "root"]), json!(null), &FILE.replace("root = \"b\" # second\n", ""));
        becomes(
            FILE,
            json!(["server", "backlog"]),
            json!(null),
            &FILE.replace("backlog = 512 # enough\n", ""),
        );
        becomes(FILE, json!(["server", "nothing", "here"]), json!(null), FILE);
    }

    #[test]
    fn line_ends_and_a_byte_order_mark_stay() {
        let windows = format!("\u{feff}{}", FILE.replace('\n', "\r\n"));
        becomes(&windows, json!(["server", "backlog"]), json!(4096), &windows.replace("512", "4096"));
        becomes(
            &windows,
            json!(["site", 2, "root"]),
            json!("c"),
            &format!("{windows}\r\n[[site]]\r\nroot = \"c\"\r\n"),
        );
        becomes("a = 1\r\nb = 2\nc = 3\n", json!(["b"]), json!(4), "a = 1\r\nb = 4\r\nc = 3\n");
        becomes("a = 1\r\nb = 2\nc = 3\n", json!(["a"]), json!(4), "a = 4\r\nb = 2\nc = 3\n");
        becomes(
            "a = '''\r\nx\r\n'''\r\nb = 1\r\n",
            json!(["b"]),
            json!(2),
            "a = '''\r\nx\r\n'''\r\nb = 2\r\n",
        );
    }

    #[test]
    fn missing_tables_and_items_are_made() {
        becomes("", json!(["server", "backlog"]), json!(1), "\n[server]\nbacklog = 1\n");
        becomes(
            "a = 1\n",
            json!(["server", "admin", "x"]),
            json!(1),
            "a = 1\n\n[server]\n\n[server.admin]\nx = 1\n",
        );
        becomes(
            FILE,
            json!(["site", 2]),
            json!({ "root": "c", "list": true }),
            &format!("{FILE}\n[[site]]\nroot = \"c\"\nlist = true\n"),
        );
        becomes(FILE, json!(["site", 2, "root"]), json!("c"), &format!("{FILE}\n[[site]]\nroot = \"c\"\n"));
        becomes("", json!(["site", 0, "root"]), json!("c"), "\n[[site]]\nroot = \"c\"\n");
        becomes(
            "site = [{ root = \"a\" }]\n",
            json!(["site", 1]),
            json!({"root": "b"}),
            "site = [{ root = \"a\" }, { root = \"b\" }]\n",
        );
        becomes(
            "[a]\nb = { c = 1 }\n",
            json!(["a", "b", "d"]),
            json!([1, 2]),
            "[a]\nb = { c = 1 , d = [1, 2] }\n",
        );
        becomes("", json!(["console"]), json!({ "edit": true }), "\n[console]\nedit = true\n");
        becomes("[a]\nx = 1 # one\ny = 2\n", json!(["a"]), json!({ "x": 3 }), "[a]\nx = 3 # one\n");
        becomes("", json!(["site"]), json!([{ "root": "c" }]), "\n[[site]]\nroot = \"c\"\n");
    }

    #[test]
    fn items_are_removed_by_their_index() {
        becomes("l = [1, 2, 3]\n", json!(["l", 1]), json!(null), "l = [1, 3]\n");
        becomes("[[s]]\na = 1\n[[s]]\na = 2\n", json!(["s", 0]), json!(null), "[[s]]\na = 2\n");
    }

    #[test]
    fn changes_that_do_not_fit_are_errors() {
        for (path, value, expected) in [
            (json!([]), json!(1), PatchError::Path),
            (json!(["server", "backlog", "x"]), json!(1), PatchError::NoTable("server.backlog".into())),
            (json!(["site", 5, "root"]), json!("c"), PatchError::Index("site".into(), 2)),
            (json!(["site", "root"]), json!("c"), PatchError::NoTable("site".into())),
            (json!([0]), json!("c"), PatchError::NoTable("the file".into())),
            (json!(["server", "backlog"]), json!([null]), PatchError::Value("null in a list")),
            (json!(["server", "backlog"]), json!(u64::MAX), PatchError::Value("the number is too large")),
        ] {
            let result = patch(FILE, json!([{ "path": path, "value": value }]));
            assert_eq!(result, Err((0, expected)));
        }
        assert!(matches!(
            patch("a = ", json!([{ "path": ["a"], "value": 1 }])),
            Err((0, PatchError::NotToml(_)))
        ));
    }
}
