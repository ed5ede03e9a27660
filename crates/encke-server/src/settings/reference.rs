//! The schema of the settings, for editors, and the reference page that is made from it.

use std::fmt::Write as _;

use serde_json::Value;

use super::Settings;

/// The JSON Schema of a settings file.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Settings).to_value();
    if let Some(object) = schema.as_object_mut() {
        object.insert("title".into(), "Settings of Encke".into());
    }
    schema
}

/// The sections of a settings file and the keys of each.
pub(super) fn sections() -> Vec<(String, Vec<String>)> {
    let schema = schema();
    properties(&schema)
        .map(|(name, property)| {
            let table = table_of(&schema, property);
            let keys = table.map(|table| properties(table).map(|(key, _)| key.to_owned()).collect());
            (name.to_owned(), keys.unwrap_or_default())
        })
        .collect()
}

/// The reference of all settings as Markdown.
pub fn markdown() -> String {
    let schema = schema();
    let mut page = String::from(HEAD);
    for (name, property) in properties(&schema) {
        let Some(table) = table_of(&schema, property) else { continue };
        write_section(&mut page, &schema, &heading(name, property), table, 2);
    }
    page
}

const HEAD: &str = "\
# Settings

<!-- Made by `encke schema --markdown`; change the comments in crates/encke-server/src/settings.rs instead. -->

Settings come from the TOML file named by `-c FILE` or `$ENCKE_CONFIG`, and from nowhere else; flags win over it.
Every key has a default. An unknown key or a bad value is refused, with its place and what was probably meant:
try `encke check FILE`. `encke schema` prints a JSON Schema for editors.

- Durations have units: `250ms`, `10s`, `1m30s`, `2h`. Sizes: `64KiB` (1024), `64kB` (1000), `4096` (bytes).
  Rates: `1KiB/s`.
- Relative paths start at the settings file's folder.
- A secret may stand in the file, or as `{ file = \"PATH\" }` (its first line) or `{ env = \"NAME\" }`; it is never
  shown.
- On SIGHUP the file is read again. A file with any mistake is refused whole, and the old settings stay. What a
  running server cannot change (marked *start*) waits for the next start.
";

fn write_section(page: &mut String, schema: &Value, name: &str, table: &Value, level: usize) {
    write!(page, "\n{} {name}\n\n", "#".repeat(level)).expect("a String takes everything");
    if let Some(text) = table.get("description").and_then(Value::as_str) {
        write!(page, "{}\n\n", text.trim()).expect("a String takes everything");
    }
    page.push_str("| key | default | meaning |\n|---|---|---|\n");
    let mut below = Vec::new();
    for (key, property) in properties(table) {
        let default = property.get("default").map_or_else(String::new, toml_of);
        let default = if default.is_empty() { "–".into() } else { format!("`{default}`") };
        let mut meaning = cell(property.get("description").and_then(Value::as_str).unwrap_or_default());
        let words = choices(schema, property);
        if !words.is_empty() {
            meaning.push_str(&cell(&format!(" One of:\n{words}")));
        }
        writeln!(page, "| `{key}` | {default} | {meaning} |").expect("a String takes everything");
        if let Some(inner) = table_of(schema, property) {
            below.push((key, property, inner));
        }
    }
    for (key, property, inner) in below {
        let name = format!("{}, as a table", heading(key, property));
        let name = if table_is_text_too(schema, property) { name } else { heading(key, property) };
        write_section(page, schema, &name, inner, level + 1);
    }
}

/// `[server]`, or `[[site]]` where the value is a list.
fn heading(name: &str, property: &Value) -> String {
    if property.get("type").is_some_and(|kind| kind == "array") {
        format!("`[[{name}]]`")
    } else {
        format!("`[{name}]`")
    }
}

fn properties(table: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let object = table.get("properties").and_then(Value::as_object);
    object.into_iter().flatten().map(|(key, property)| (key.as_str(), property))
}

/// The table that a property is, contains, or may be.
fn table_of<'a>(schema: &'a Value, property: &'a Value) -> Option<&'a Value> {
    if let Some(name) = property.get("$ref").and_then(Value::as_str) {
        return table_of(schema, schema.pointer(name.strip_prefix('#')?)?);
    }
    if property.get("properties").is_some()
        && property.get("additionalProperties").is_some_and(|more| more == false)
    {
        // A secret's places are tables of one key: its description says all.
        return (properties(property).count() > 1).then_some(property);
    }
    property
        .get("items")
        .into_iter()
        .chain(["anyOf", "oneOf", "allOf"].iter().filter_map(|key| property.get(*key)?.as_array()).flatten())
        .find_map(|inner| table_of(schema, inner))
}

fn table_is_text_too(schema: &Value, property: &Value) -> bool {
    let property = property
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|name| schema.pointer(name.strip_prefix('#')?))
        .unwrap_or(property);
    property.get("anyOf").is_some()
}

/// The words that a property may be, with what each means.
fn choices(schema: &Value, property: &Value) -> String {
    let Some(target) =
        property.get("$ref").and_then(Value::as_str).and_then(|name| schema.pointer(name.strip_prefix('#')?))
    else {
        return String::new();
    };
    let variants = target.get("oneOf").and_then(Value::as_array);
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

/// Text in one cell of a table.
fn cell(text: &str) -> String {
    text.replace("\n\n", "<br>").replace('\n', " ").replace('|', "\\|")
}

/// A default as it would stand in the file.
fn toml_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Array(list) => format!("[{}]", list.iter().map(toml_of).collect::<Vec<_>>().join(", ")),
        Value::Object(map) if map.is_empty() => "{}".into(),
        Value::Object(map) => {
            let pairs: Vec<String> =
                map.iter().map(|(key, value)| format!("{key} = {}", toml_of(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}
