//! Completion in the text of a settings file: keys and values of the schema at the cursor, with their documentation.

use serde_json::{Value, json};

use super::scan::{CursorPlace, cursor};
use super::shape::SchemaShape;

/// Maximum number of suggestions: more than any table has keys.
const ITEMS_MAX: usize = 100;
/// Maximum depth of the tables that are suggested for a heading: `[site.compression]`.
const HEADING_DEPTH_MAX: usize = 2;

/// Suggestions for the word at a cursor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SettingsCompletion {
    /// The offset at which the word begins, in UTF-16 code units.
    pub(crate) start: usize,
    pub(crate) items: Vec<CompletionItem>,
}

/// A suggestion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CompletionItem {
    pub(crate) label: String,
    /// The text that replaces the word.
    pub(crate) insert: String,
    pub(crate) help: String,
}

impl SettingsCompletion {
    pub(crate) fn json(&self) -> Value {
        let item =
            |item: &CompletionItem| json!({ "label": item.label, "insert": item.insert, "help": item.help });
        let items: Vec<Value> = self.items.iter().map(item).collect();
        json!({ "schema": 1, "start": self.start, "items": items })
    }
}

/// Returns suggestions at an offset of a text, in UTF-16 code units. An offset beyond the end, or within a character, is the end
/// of the text or of the character.
pub(crate) fn complete(text: &str, offset: usize, schema: &Value) -> SettingsCompletion {
    let before = &text[..byte_offset(text, offset)];
    let at = cursor(before);
    let word = before.get(at.start..).unwrap_or_default();
    let root = SchemaShape::of(schema);
    let mut items = match at.place {
        CursorPlace::Comment => Vec::new(),
        CursorPlace::Heading => headings(&root),
        CursorPlace::Key => keys(&root, &at.path, &at.present),
        CursorPlace::Value { is_quoted } => values(&root.at(&at.path), is_quoted),
    };
    let lower = word.to_lowercase();
    items.retain(|item| item.label.trim_matches(['[', ']', '"']).to_lowercase().starts_with(&lower));
    items.truncate(ITEMS_MAX);
    SettingsCompletion { start: before.get(..at.start).unwrap_or_default().encode_utf16().count(), items }
}

fn byte_offset(text: &str, utf16: usize) -> usize {
    let mut units = 0;
    for (place, letter) in text.char_indices() {
        if units >= utf16 {
            return place;
        }
        units += letter.len_utf16();
    }
    text.len()
}

/// Whether a heading may name the value: it is a table, or a list of tables.
fn has_heading(shape: &SchemaShape<'_>) -> bool {
    // The alternatives of a secret are tables, too.
    !shape.is_secret() && !shape.keys().is_empty()
}

fn headings(root: &SchemaShape<'_>) -> Vec<CompletionItem> {
    let mut items = Vec::new();
    add_headings(&mut items, root, "", 0);
    items
}

fn add_headings(items: &mut Vec<CompletionItem>, shape: &SchemaShape<'_>, path: &str, depth: usize) {
    for (key, _) in shape.keys() {
        let inner = shape.key(key);
        if !has_heading(&inner) {
            continue;
        }
        let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        let close = if inner.is_list() { "]]" } else { "]" };
        let help = inner.help().to_owned();
        items.push(CompletionItem { label: path.clone(), insert: format!("{path}{close}"), help });
        if depth + 1 < HEADING_DEPTH_MAX {
            add_headings(items, &inner, &path, depth + 1);
        }
    }
}

fn keys(
    root: &SchemaShape<'_>,
    path: &[String],
    present: &std::collections::HashSet<String>,
) -> Vec<CompletionItem> {
    let shape = root.at(path);
    let is_root = path.is_empty();
    let item = |(key, _): (&str, &Value)| {
        let inner = shape.key(key);
        let (label, insert) = match (is_root && has_heading(&inner), inner.is_list()) {
            (true, true) => (format!("[[{key}]]"), format!("[[{key}]]\n")),
            (true, false) => (format!("[{key}]"), format!("[{key}]\n")),
            (false, _) => (key.to_owned(), format!("{key} = ")),
        };
        CompletionItem { label, insert, help: inner.help().to_owned() }
    };
    shape.keys().into_iter().filter(|(key, _)| !present.contains(*key)).map(item).collect()
}

fn values(shape: &SchemaShape<'_>, is_quoted: bool) -> Vec<CompletionItem> {
    let mut items: Vec<CompletionItem> = Vec::new();
    let mut add = |value: &Value, help: &str| {
        let (label, insert) = match value {
            Value::String(text) if is_quoted => (text.clone(), format!("{text}\"")),
            Value::String(_) | Value::Bool(_) | Value::Number(_) if !is_quoted => {
                (value.to_string(), value.to_string())
            }
            _ => return,
        };
        if items.iter().all(|item| item.label != label) {
            items.push(CompletionItem { label, insert, help: help.to_owned() });
        }
    };
    let list = |part: &Value, key: &str| part.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let items_of = shape.items();
    for part in shape.parts().chain(items_of.parts()) {
        let help = part.get("description").and_then(Value::as_str).unwrap_or_default();
        if let Some(word) = part.get("const") {
            add(word, help);
        }
        list(part, "enum").iter().for_each(|word| add(word, help));
        if part.get("type").is_some_and(|kind| kind == "boolean") {
            [true, false].iter().for_each(|flag| add(&json!(flag), ""));
        }
        if let Some(default) = part.get("default") {
            add(default, "default");
        }
        list(part, "examples").iter().for_each(|example| add(example, "example"));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({
            "properties": {
                "include": { "type": "string" },
                "server": { "description": "The process.", "$ref": "#/$defs/Server" },
                "site": { "type": "array", "items": { "properties": { "root": { "type": "string" } } } },
            },
            "$defs": { "Server": { "properties": {
                "backlog": { "description": "Queue.", "type": "integer", "default": 4096 },
                "backend": { "oneOf": [{ "const": "epoll", "description": "Linux." }, { "const": "poll" }] },
                "list": { "type": "boolean" },
                "admin": { "properties": { "metrics": { "enum": ["open", "token"] } } },
            } } },
        })
    }

    #[track_caller]
    fn labels(text: &str, expected: &[&str]) -> SettingsCompletion {
        let completion = complete(text, text.encode_utf16().count(), &schema());
        let found: Vec<&str> = completion.items.iter().map(|item| item.label.as_str()).collect();
        assert_eq!(found, expected, "{text:?}");
        completion
    }

    #[test]
    fn keys_values_and_sections_are_suggested_with_their_help() {
        labels("", &["include", "[server]", "[[site]]"]);
        let server = labels("[ser", &["server", "server.admin"]);
        assert_eq!((server.start, server.items[0].insert.as_str()), (1, "server]"));
        assert_eq!(server.items[0].help, "The process.");
        labels("[[si", &["site"]);
        labels("[server.", &["server.admin"]);
        let keys = labels("[server]\nback", &["backlog", "backend"]);
        assert_eq!((keys.items[0].insert.as_str(), keys.items[0].help.as_str()), ("backlog = ", "Queue."));
        labels("[server]\nbacklog = 1\nback", &["backend"]);
        labels("[server]\nbackend = ", &["\"epoll\"", "\"poll\""]);
        let quoted = labels("[server]\nbackend = \"ep", &["epoll"]);
        assert_eq!((quoted.items[0].insert.as_str(), quoted.items[0].help.as_str()), ("epoll\"", "Linux."));
        labels("[server]\nlist = t", &["true"]);
        labels("[server]\nbacklog = ", &["4096"]);
        labels("[server]\nadmin = { ", &["metrics"]);
        labels("[server]\nadmin = { metrics = \"", &["open", "token"]);
        labels("[server]\nadmin.metrics = \"o", &["open"]);
        labels("[[site]]\n", &["root"]);
        labels("# ser", &[]);
        labels("[unknown]\nx", &[]);
    }

    #[test]
    fn offsets_count_utf16_units() {
        let text = "# 😀\n[server]\nba\n";
        let completion = complete(text, 16, &schema());
        assert_eq!((completion.start, completion.items.len()), (14, 2));
        assert_eq!(complete("", 99, &schema()).start, 0);
        complete("😀", 1, &schema());
    }
}
