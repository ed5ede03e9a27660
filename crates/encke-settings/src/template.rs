//! The commented settings file: every section and key with its meaning and its default, generated from the schema.
//!
//! ```text
//! # The process: listeners, workers, state, drain.       the comment of the section
//! [server]
//!
//! # Threads for work that may block on a disk …          the comment of the key
//! #offload_threads = 2                                    its default: remove the # to change it
//! ```
//! A line that begins with `#` and a letter is a setting. A line that begins with `#` and a space is text, or belongs to a list of
//! tables without an entry in the file.

use std::fmt::Write as _;

use serde_json::Value;

use crate::document::Document;
use crate::reference::{choices, is_list, is_required, is_text_too, properties, schema, table_of, toml_of};

/// Maximum length of a line of text, in characters.
const LINE_MAX: usize = 118;

/// The parts of the file that the schema does not have.
pub struct SettingsTemplate {
    /// The text at the head of the file.
    pub head: &'static str,
    /// Settings that the file contains in effect: the path of the key, and its value in TOML.
    pub set: &'static [(&'static str, &'static str)],
    /// Examples: the path of a key, and lines of TOML in its section. A key may have several.
    pub examples: &'static [(&'static str, &'static str)],
}

/// Returns the commented settings file.
pub fn toml<S: Document>(template: &SettingsTemplate) -> String {
    let schema = schema::<S>();
    let mut writer = TemplateWriter { page: String::new(), schema: &schema, template, mark: "" };
    writer.text("", template.head);
    for (section, property) in properties(&schema) {
        let Some(table) = table_of(&schema, property) else { continue };
        writer.page.push('\n');
        writer.text("", description(property));
        // An entry of a list takes effect, even without keys.
        let is_set = template.set.iter().any(|(key, _)| key.split('.').next() == Some(section));
        writer.mark = if is_list(property) && !is_set { "# " } else { "#" };
        writer.line(&match (is_list(property), is_set) {
            (false, _) => format!("[{section}]"),
            (true, true) => format!("[[{section}]]"),
            (true, false) => format!("# [[{section}]]"),
        });
        for (key, property) in properties(table) {
            writer.key(section, key, property);
        }
    }
    writer.page
}

struct TemplateWriter<'a> {
    page: String,
    schema: &'a Value,
    template: &'a SettingsTemplate,
    /// The start of a line with a default.
    mark: &'static str,
}

impl TemplateWriter<'_> {
    fn line(&mut self, line: &str) {
        self.page.push_str(line);
        self.page.push('\n');
    }

    /// Writes paragraphs of text as comments of at most [`LINE_MAX`] characters a line.
    fn text(&mut self, indent: &str, text: &str) {
        for paragraph in text.split("\n\n") {
            let mut line = format!("# {indent}");
            let mut is_empty = true;
            for word in paragraph.split_whitespace() {
                if !is_empty && line.chars().count() + 1 + word.chars().count() > LINE_MAX {
                    self.line(&line);
                    line = format!("# {indent}{}", if indent.is_empty() { "" } else { "  " });
                    is_empty = true;
                }
                if !is_empty {
                    line.push(' ');
                }
                line.push_str(word);
                is_empty = false;
            }
            if !is_empty {
                self.line(&line);
            }
        }
    }

    /// Writes a key of a section: its meaning, its examples, and its value. `key` may be dotted.
    fn key(&mut self, section: &str, key: &str, property: &Value) {
        let table = table_of(self.schema, property);
        let is_text = is_text_too(self.schema, property);
        self.page.push('\n');
        if let Some(table) = table.filter(|_| !is_list(property) && !is_text) {
            self.text("", description(property));
            for (inner, property) in properties(table) {
                self.key(section, &format!("{key}.{inner}"), property);
            }
            return;
        }
        self.text("", &self.meaning(property));
        if let Some(table) = table {
            self.text("", if is_text { "Keys of its table:" } else { "Keys of an entry:" });
            self.inner_keys("", table);
        }
        let path = format!("{section}.{key}");
        let examples: Vec<&str> =
            self.template.examples.iter().filter(|(of, _)| *of == path).map(|(_, lines)| *lines).collect();
        for lines in &examples {
            match lines.split_once('\n') {
                None => self.line(&format!("# Example: {lines}")),
                Some(_) => {
                    self.line("# Example:");
                    lines.lines().for_each(|line| self.line(&format!("#   {line}")));
                }
            }
        }
        let default = property.get("default").filter(|default| !default.is_null());
        let default = default.map(toml_value);
        let set = self.template.set.iter().find(|(of, _)| *of == path);
        match (set, default) {
            (Some((_, value)), default) => {
                if let Some(default) = default {
                    self.line(&format!("# The default is {default}."));
                }
                self.line(&format!("{key} = {value}"));
            }
            (None, Some(default)) => self.line(&format!("{}{key} = {default}", self.mark)),
            (None, None) if examples.is_empty() => self.line(&format!("# {key} has no default.")),
            (None, None) => {}
        }
    }

    /// Writes the keys of a table within a value, indented, including the keys of nested tables.
    fn inner_keys(&mut self, prefix: &str, table: &Value) {
        for (key, property) in properties(table) {
            let mut text = format!("{prefix}{key}");
            let default = property.get("default").map(toml_of).filter(|default| !default.is_empty());
            let inner = table_of(self.schema, property);
            if is_required(table, key) {
                text.push_str(" (required)");
            } else if let Some(default) = default.filter(|_| inner.is_none()) {
                // Cannot fail: writes to a String.
                let _ = write!(text, " ({default})");
            }
            let _ = write!(text, ": {}", self.meaning(property));
            self.text("  ", &text);
            if let Some(inner) = inner {
                self.inner_keys(&format!("{prefix}{key}."), inner);
            }
        }
    }

    fn meaning(&self, property: &Value) -> String {
        let words = choices(self.schema, property);
        let one_of = if words.is_empty() { String::new() } else { format!(" One of: {words}.") };
        format!("{}{one_of}", description(property).trim())
    }
}

fn description(property: &Value) -> &str {
    property.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// A default in TOML, including empty lists and tables.
fn toml_value(value: &Value) -> String {
    match value {
        Value::Array(list) if list.is_empty() => "[]".into(),
        Value::Object(map) if map.is_empty() => "{}".into(),
        other => toml_of(other),
    }
}
