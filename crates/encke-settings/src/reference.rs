//! The JSON Schema of the settings, for editors, and the reference page generated from it.

use std::fmt::Write as _;

use serde_json::Value;

use crate::document::Document;

/// The JSON Schema of a settings file.
pub fn schema<S: Document>() -> Value {
    let mut schema = schemars::schema_for!(S).to_value();
    if let Some(object) = schema.as_object_mut() {
        object.insert("title".into(), S::TITLE.into());
    }
    schema
}

/// A table of the settings file: a section, or a table in one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableKeys {
    /// The keys that lead to it, joined by dots; empty for the whole file.
    pub path: String,
    /// The heading in the file: `[limits]`, `[[site]]`; empty for the whole file.
    pub heading: String,
    /// The keys of the table.
    pub keys: Vec<String>,
}

/// The tables of a settings file, each before the tables in it. The whole file is the first one.
pub fn tables<S: Document>() -> Vec<TableKeys> {
    let schema = schema::<S>();
    let mut found = Vec::new();
    add_tables(&mut found, &schema, &schema, "", String::new());
    found
}

fn add_tables(found: &mut Vec<TableKeys>, schema: &Value, table: &Value, path: &str, heading: String) {
    let keys = properties(table).map(|(key, _)| key.to_owned()).collect();
    found.push(TableKeys { path: path.to_owned(), heading, keys });
    for (key, property) in properties(table) {
        let Some(inner) = table_of(schema, property) else { continue };
        let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        add_tables(found, schema, inner, &path, heading_of(&path, property));
    }
}

fn heading_of(path: &str, property: &Value) -> String {
    if is_list(property) { format!("[[{path}]]") } else { format!("[{path}]") }
}

/// The reference of all settings, as Markdown.
pub fn markdown<S: Document>() -> String {
    let schema = schema::<S>();
    let mut page = String::from(HEAD);
    for (key, property) in properties(&schema) {
        write_section(&mut page, &schema, key, property, 2);
    }
    page
}

const HEAD: &str = "\
# Settings

<!-- Made by `encke schema --markdown`; change the doc comments of the settings instead. -->

Settings come from the TOML file named by `-c FILE` or `$ENCKE_CONFIG`, and from nowhere else. Flags override it.
Every key has a default. An unknown key or an invalid value is an error that names the place and suggests a correction:
try `encke check FILE`. `encke schema` prints a JSON Schema for editors.

- Durations have units: `250ms`, `10s`, `1m30s`, `2h`. Sizes: `64KiB` (1024), `64kB` (1000), `4096` (bytes).
  Rates: `1KiB/s`.
- Relative paths start at the directory of the settings file.
- `include = \"sites/*.toml\"` above all sections, or a list of names and patterns, adds files
  ([several files](guide.md#several-files)). At most 1,000, and 1 MiB together.
- A secret is given in the file, or as `{ file = \"PATH\" }` (its first line) or `{ env = \"NAME\" }`. It is never
  printed.
- SIGHUP reloads the file. A file with an error is rejected as a whole, and the present settings stay. Settings marked
  *start* change at the next start.
";

/// Writes the table at the key `path`, and then the tables in it.
fn write_section(page: &mut String, schema: &Value, path: &str, property: &Value, level: usize) {
    let Some(table) = table_of(schema, property) else { return };
    let name = heading_of(path, property);
    let note = if level > 2 && is_text_too(schema, property) { ", as a table" } else { "" };
    let text =
        [property, table].iter().find_map(|place| place.get("description")?.as_str()).unwrap_or_default();
    // Cannot fail: writes to a String.
    let _ = write!(page, "\n{} `{name}`{note}\n\n{}\n\n", "#".repeat(level), text.trim());
    page.push_str("| key | default | meaning |\n|---|---|---|\n");
    for (key, property) in properties(table) {
        let default = match property.get("default").map(toml_of).filter(|text| !text.is_empty()) {
            _ if is_required(table, key) => "*needed*".into(),
            Some(_) if table_of(schema, property).is_some() && !is_text_too(schema, property) => {
                "*below*".into()
            }
            Some(default) => format!("`{default}`"),
            None => "–".into(),
        };
        let mut meaning = cell(property.get("description").and_then(Value::as_str).unwrap_or_default());
        let words = choices(schema, property);
        if !words.is_empty() {
            meaning.push_str(&cell(&format!(" One of: {words}.")));
        }
        let _ = writeln!(page, "| `{key}` | {default} | {meaning} |");
    }
    for (key, property) in properties(table) {
        write_section(page, schema, &format!("{path}.{key}"), property, level + 1);
    }
}

pub(crate) fn is_list(property: &Value) -> bool {
    property.get("type").is_some_and(|kind| kind == "array")
}

pub(crate) fn is_required(table: &Value, key: &str) -> bool {
    table.get("required").and_then(Value::as_array).is_some_and(|keys| keys.iter().any(|name| name == key))
}

pub(crate) fn properties(table: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let object = table.get("properties").and_then(Value::as_object);
    object.into_iter().flatten().map(|(key, property)| (key.as_str(), property))
}

/// The schema of the table that a property is, contains, or may be.
pub(crate) fn table_of<'a>(schema: &'a Value, property: &'a Value) -> Option<&'a Value> {
    let property = target(schema, property);
    if property.get("properties").is_some()
        && property.get("additionalProperties").is_some_and(|more| more == false)
    {
        // The alternatives of a secret are tables of one key: the secret's description covers them.
        return (properties(property).count() > 1).then_some(property);
    }
    property
        .get("items")
        .into_iter()
        .chain(["anyOf", "oneOf", "allOf"].iter().filter_map(|key| property.get(*key)?.as_array()).flatten())
        .find_map(|inner| table_of(schema, inner))
}

/// Whether text may replace the table.
pub(crate) fn is_text_too(schema: &Value, property: &Value) -> bool {
    target(schema, property).get("anyOf").is_some()
}

/// The schema that a `$ref` names; for any other schema, itself.
fn target<'a>(schema: &'a Value, property: &'a Value) -> &'a Value {
    let name = property.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#'));
    name.and_then(|name| schema.pointer(name)).unwrap_or(property)
}

/// The words that a property may be, each with its meaning.
pub(crate) fn choices(schema: &Value, property: &Value) -> String {
    let variants = target(schema, property).get("oneOf").and_then(Value::as_array);
    let words: Vec<String> = variants
        .into_iter()
        .flatten()
        .filter_map(|variant| {
            let word = variant.get("const")?.as_str()?;
            let meaning = variant.get("description").and_then(Value::as_str).unwrap_or_default();
            Some(format!("`{word}` ({})", meaning.trim_end_matches('.')))
        })
        .collect();
    words.join(", ")
}

/// Text for one cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace("\n\n", "<br>").replace('\n', " ").replace('|', "\\|")
}

/// A default value in TOML.
pub(crate) fn toml_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Array(list) if list.is_empty() => String::new(),
        Value::Array(list) => format!("[{}]", list.iter().map(toml_of).collect::<Vec<_>>().join(", ")),
        Value::Object(map) if map.is_empty() => String::new(),
        Value::Object(map) => {
            let pairs: Vec<String> =
                map.iter().map(|(key, value)| format!("{key} = {}", toml_of(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}
