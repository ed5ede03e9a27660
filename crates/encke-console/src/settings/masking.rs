//! Hides secrets in settings: in values, and in the text of a file.
//!
//! A value is a secret if
//!
//! - the schema says so (`writeOnly`),
//! - its key has a free name that sounds like a secret (a header field `Authorization`),
//! - the schema does not know its key, which may be a misspelled one,
//! - it is a URL with user information, a parameter that sounds like a secret, or a part of its path that looks like a key,
//! - it is an argument of a program that looks like a key, or follows an option such as `--token`, or
//! - its key has a free name, or it is an argument of a program, and a user with the role `view` reads it.
//!
//! For such users comments are hidden as a whole: a line that was commented out may be a former secret.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Range;

use encke_settings::conceal::{self, MASK, conceal_setting, is_key_like, setting_parts, sounds_secret};
use serde_json::Value;
use toml_edit::{Document, Item, TableLike, Value as TomlValue};

use super::scan;
use super::shape::SchemaShape;

/// The user that reads settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    /// Comments and the values of free keys are hidden, too.
    View,
    Admin,
}

/// What is known about the value of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueSecrecy {
    Open,
    Secret,
    /// The schema does not know the key.
    Unknown,
}

impl Reader {
    /// The secrecy of the value of a key. `inner` is the shape of the value.
    fn secrecy(self, shape: &SchemaShape<'_>, key: &str, inner: &SchemaShape<'_>) -> ValueSecrecy {
        if inner.is_empty() {
            return ValueSecrecy::Unknown;
        }
        let is_free_secret = shape.is_free(key) && (self == Self::View || sounds_secret(key));
        if inner.is_secret() || is_free_secret { ValueSecrecy::Secret } else { ValueSecrecy::Open }
    }
}

/// Masks the secrets in values.
pub(crate) fn mask_values(value: &mut Value, shape: &SchemaShape<'_>, reader: Reader) {
    mask("", value, shape, shape.is_secret(), reader);
}

fn mask(key: &str, value: &mut Value, shape: &SchemaShape<'_>, is_secret: bool, reader: Reader) {
    match value {
        Value::String(text) if is_secret => MASK.clone_into(text),
        Value::String(text) => {
            if let Cow::Owned(concealed) = conceal_setting(text) {
                *text = concealed;
            }
        }
        // The place of a secret is none.
        Value::Object(map) if is_secret && is_place(map.keys().map(String::as_str)) => {}
        Value::Object(map) => {
            for (key, value) in map {
                let inner = shape.key(key);
                match reader.secrecy(shape, key, &inner) {
                    ValueSecrecy::Unknown if !value.is_null() => *value = MASK.into(),
                    secrecy => mask(key, value, &inner, is_secret || secrecy == ValueSecrecy::Secret, reader),
                }
            }
        }
        Value::Array(list) => {
            let items = shape.items();
            // A list may be written as its only item.
            let items = if items.is_empty() { shape.clone() } else { items };
            let is_secret = is_secret || items.is_secret();
            let mut before: Option<String> = None;
            for (place, item) in list.iter_mut().enumerate() {
                let text = item.as_str().map(str::to_owned);
                let hides =
                    text.as_ref().is_some_and(|text| reader.hides_item(key, place, before.as_deref(), text));
                mask(key, item, &items, is_secret || hides, reader);
                before = text;
            }
        }
        _ => {}
    }
}

/// `{ file = … }` or `{ env = … }`.
fn is_place<'a>(keys: impl IntoIterator<Item = &'a str>) -> bool {
    let keys: Vec<&str> = keys.into_iter().collect();
    matches!(keys[..], ["file" | "env"])
}

/// Whether an argument follows an option whose value is a secret: `--token VALUE`.
fn is_secret_option(argument: Option<&str>) -> bool {
    argument.is_some_and(|option| option.starts_with('-') && !option.contains('=') && sounds_secret(option))
}

/// The arguments of a program.
const ARGUMENTS: &str = "run";

impl Reader {
    /// Whether an item of a list is a secret. `before` is the item before it.
    fn hides_item(self, key: &str, place: usize, before: Option<&str>, item: &str) -> bool {
        let is_argument = key == ARGUMENTS && place > 0;
        is_argument && (self == Self::View || is_key_like(item) || is_secret_option(before))
    }
}

/// Whether a value has a masked secret: it was shown to a reader, and is no value for the file.
pub(crate) fn has_mask(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(MASK),
        Value::Array(list) => list.iter().any(has_mask),
        Value::Object(map) => map.values().any(has_mask),
        _ => false,
    }
}

/// Conceals the secrets in these settings in everything that leaves the program (`encke_settings::conceal`).
pub fn remember_secrets(values: &Value, schema: &Value) {
    let mut masked = values.clone();
    mask_values(&mut masked, &SchemaShape::of(schema), Reader::Admin);
    remember_differences("", values, &masked);
}

fn remember_differences(key: &str, value: &Value, masked: &Value) {
    match (value, masked) {
        (Value::Object(values), Value::Object(masked)) => {
            for (key, value) in values {
                masked.get(key).into_iter().for_each(|masked| remember_differences(key, value, masked));
            }
        }
        (Value::Array(values), Value::Array(masked)) => {
            values.iter().zip(masked).for_each(|(value, masked)| remember_differences(key, value, masked));
        }
        (Value::String(text), Value::String(masked)) if text != masked => {
            // A variable of an application may have any value, such as the name of a host.
            if masked == MASK && (sounds_secret(key) || is_key_like(text) || key == ARGUMENTS) {
                conceal::remember(text);
                // `Authorization = "Bearer TOKEN"`
                text.split_ascii_whitespace().last().into_iter().for_each(conceal::remember);
            }
            for part in conceal::setting_parts(text) {
                let secret = text.get(part).unwrap_or_default();
                conceal::remember(secret);
                secret.split_once(':').into_iter().for_each(|(_, password)| conceal::remember(password));
            }
        }
        _ => {}
    }
}

/// Masks the secrets of a settings file; `None` if the text is not TOML.
pub(crate) fn mask_text(text: &str, schema: &Value, reader: Reader) -> Option<String> {
    let document = Document::parse(text).ok()?;
    let mut spans: Vec<Range<usize>> = Vec::new();
    if reader == Reader::View {
        let contents = scan::comments(text).into_iter().map(|comment| comment.start + 1..comment.end);
        spans.extend(contents.filter(|content| !content.is_empty()));
    }
    SpanSearch { reader, spans: &mut spans }.table(document.as_table(), &SchemaShape::of(schema), false);
    spans.sort_by_key(|span| (span.start, Reverse(span.end)));
    let mut masked = String::with_capacity(text.len());
    let mut at = 0;
    for span in spans.into_iter().filter(|span| !span.is_empty()) {
        let (Some(before), Some(secret)) = (text.get(at..span.start), text.get(span.clone())) else {
            continue;
        };
        masked.push_str(before);
        // The number of lines stays.
        let lines = secret.matches('\n').count();
        let is_comment = masked.ends_with('#');
        let quote = if is_comment { "" } else { "\"" };
        let space = if is_comment { " " } else { "" };
        masked.push_str(&format!("{space}{quote}{MASK}{quote}{}", "\n".repeat(lines)));
        at = span.end;
    }
    masked.push_str(text.get(at..).unwrap_or_default());
    Some(masked)
}

/// Searches the positions of secrets.
struct SpanSearch<'a> {
    reader: Reader,
    spans: &'a mut Vec<Range<usize>>,
}

impl SpanSearch<'_> {
    fn table(&mut self, table: &dyn TableLike, shape: &SchemaShape<'_>, is_secret: bool) {
        if is_secret && is_place(table.iter().map(|(key, _)| key)) {
            return;
        }
        for (key, item) in table.iter() {
            if is_secret {
                // A secret that was written as a table by mistake: `token = { SECRET = "" }`.
                self.spans.extend(table.key(key).and_then(toml_edit::Key::span));
            }
            let inner = shape.key(key);
            let secrecy = self.reader.secrecy(shape, key, &inner);
            let is_secret = is_secret || secrecy == ValueSecrecy::Secret;
            match item {
                Item::None => {}
                Item::Value(value) if secrecy == ValueSecrecy::Unknown => self.spans.extend(value.span()),
                Item::Value(value) => self.value(key, value, &inner, is_secret),
                Item::Table(table) => self.table(table, &inner, is_secret),
                Item::ArrayOfTables(list) => {
                    let items = inner.items();
                    list.iter().for_each(|table| self.table(table, &items, is_secret));
                }
            }
        }
    }

    fn value(&mut self, key: &str, value: &TomlValue, shape: &SchemaShape<'_>, is_secret: bool) {
        match value {
            TomlValue::InlineTable(table) if is_secret && !is_place(table.iter().map(|(key, _)| key)) => {
                self.spans.extend(value.span());
            }
            TomlValue::InlineTable(table) => self.table(table, shape, is_secret),
            TomlValue::Array(list) => {
                let items = shape.items();
                let items = if items.is_empty() { shape.clone() } else { items };
                let is_secret = is_secret || items.is_secret();
                let mut before = None;
                for (place, item) in list.iter().enumerate() {
                    let text = item.as_str();
                    let hides = text.is_some_and(|text| self.reader.hides_item(key, place, before, text));
                    self.value(key, item, &items, is_secret || hides);
                    before = text;
                }
            }
            TomlValue::String(content) if is_secret || !setting_parts(content.value()).is_empty() => {
                self.spans.extend(value.span());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({
            "properties": {
                "server": { "$ref": "#/$defs/Server" },
                "list": { "type": "array", "items": { "$ref": "#/$defs/Server" } },
            },
            "$defs": {
                "Server": { "properties": {
                    "token": { "anyOf": [{ "$ref": "#/$defs/Secret" }, { "type": "null" }] },
                    "tokens": { "type": "array", "items": { "$ref": "#/$defs/Secret" } },
                    "set": { "type": "object", "additionalProperties": { "type": "string" } },
                    "env": { "type": "object", "additionalProperties": { "type": "string", "writeOnly": true } },
                    "url": { "type": "string" },
                    "key_file": { "type": "string" },
                } },
                "Secret": { "anyOf": [{ "type": "string" }], "writeOnly": true },
            },
        })
    }

    #[test]
    fn values_that_are_secrets_are_masked() {
        let schema = schema();
        let server = json!({
            "token": "t", "tokens": ["a", { "file": "/f" }], "set": { "X-Api-Key": "k", "X-Plain": "p" },
            "env": { "PATH": "x", "file": "y" }, "url": "nats://ann:pw@h:4222/x", "key_file": "/k",
            "tokn": "t", "keys": ["t"],
        });
        let values = json!({ "server": server, "list": [server] });
        for (reader, plain) in [(Reader::Admin, "p"), (Reader::View, MASK)] {
            let mut values = values.clone();
            mask_values(&mut values, &SchemaShape::of(&schema), reader);
            let masked = json!({
                "token": MASK, "tokens": [MASK, { "file": "/f" }], "set": { "X-Api-Key": MASK, "X-Plain": plain },
                "env": { "PATH": MASK, "file": MASK }, "url": format!("nats://{MASK}@h:4222/x"), "key_file": "/k",
                "tokn": MASK, "keys": MASK,
            });
            assert_eq!(values, json!({ "server": masked, "list": [masked] }));
        }
    }

    #[test]
    fn arguments_of_a_program_are_masked_for_viewers_and_by_their_form_for_all() {
        let schema = json!({ "properties": { "run": { "type": "array", "items": { "type": "string" } } } });
        let run = ["shop", "--token", "s3cret", "--password=s3cret", "abcdef0123456789", "-w", "4", "x/y"];
        for (reader, expected) in [
            (Reader::Admin, ["shop", "--token", MASK, "--password=•••", MASK, "-w", "4", "x/y"]),
            (Reader::View, ["shop", MASK, MASK, MASK, MASK, MASK, MASK, MASK]),
        ] {
            let mut values = json!({ "run": run });
            mask_values(&mut values, &SchemaShape::of(&schema), reader);
            assert_eq!(values, json!({ "run": expected }));
            assert!(has_mask(&values) && !has_mask(&json!({ "run": run })));
            let text = mask_text(&format!("run = {}", json!(run)), &schema, reader).expect("TOML");
            assert!(!text.contains("s3cret") && !text.contains("abcdef"), "{text}");
            assert_eq!(text.contains("x/y"), reader == Reader::Admin, "{text}");
        }
    }

    #[test]
    fn secrets_and_comments_of_a_text_are_masked_and_lines_stay() {
        let text = "# old = \"s3cret\"\n[server]\ntoken = \"s3cret\" # s3cret\ntokens = ['s3cret', { file = \"/f\" }]\n\
                    set = { X-Api-Key = \"s3cret\", X = \"s3cret\" }\nenv.A = '''\ns3cret\n'''\nurl = \"nats://s3cret@h\"\n\
                    tokn = \"s3cret\"\nkey_file = \"/k\"\n[server.kees]\na = [\"s3cret\"]\n\
                    [[list]]\ntoken = { s3cret = \"x\" }\n[list.env]\nB = \"s3cret\"\n[[list]]\n[list.token]\ns3cret = 1\n\
                    [[list]]\ntoken.s3cret = 2\n";
        let masked = mask_text(text, &schema(), Reader::View).expect("TOML");
        assert!(!masked.contains("s3cret"), "{masked}");
        assert!(masked.contains("\"/k\"") && masked.contains("\"/f\""), "{masked}");
        assert_eq!(masked.lines().count(), text.lines().count());
        assert_eq!(mask_text("a = ", &schema(), Reader::View), None);
        let shown =
            mask_text("# c\nserver.token = 's3cret' # d\nserver.set.X = 'p'", &schema(), Reader::Admin);
        assert_eq!(shown.as_deref(), Some("# c\nserver.token = \"•••\" # d\nserver.set.X = 'p'"));
    }

    /// Fills a value of a schema with `MARKER` in each secret, and in each value of a free key.
    fn filled(shape: &SchemaShape<'_>, is_secret: bool, depth: usize) -> Value {
        const DEPTH_MAX: usize = 8;
        let is_secret = is_secret || shape.is_secret();
        if is_secret {
            return json!(MARKER);
        }
        if depth > DEPTH_MAX {
            return Value::Null;
        }
        let free = shape.key("no-such-key");
        if shape.is_list() {
            return json!([filled(&shape.items(), is_secret, depth + 1)]);
        }
        let mut map = serde_json::Map::new();
        for (key, _) in shape.keys() {
            map.insert(key.to_owned(), filled(&shape.key(key), is_secret, depth + 1));
        }
        if !free.is_empty() {
            map.insert("X-Free".into(), json!(MARKER));
        }
        map.insert("misspelled".into(), json!(MARKER));
        if map.len() == 1 && free.is_empty() {
            json!(format!("nats://{MARKER}@h/?token={MARKER}"))
        } else {
            map.into()
        }
    }

    const MARKER: &str = "m4rk3r";

    #[test]
    fn no_secret_of_the_real_schema_is_shown() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/guards/golden/schema.json");
        let text = std::fs::read_to_string(golden).expect("the golden schema");
        let schema: Value = serde_json::from_str(&text).expect("JSON");
        let values = filled(&SchemaShape::of(&schema), false, 0);
        let written = |value: &Value| value.to_string().matches(MARKER).count();
        assert!(written(&values) > 100, "{} markers", written(&values));
        let mut masked = values.clone();
        mask_values(&mut masked, &SchemaShape::of(&schema), Reader::View);
        assert_eq!(written(&masked), 0, "{masked:#}");
        // The same as text, each top key as an inline table.
        let Value::Object(sections) = &values else { panic!("no table") };
        let mut document = toml_edit::DocumentMut::new();
        for (key, value) in sections.iter().filter(|(_, value)| !value.is_null()) {
            document.insert(key, Item::Value(super::super::patch::toml_value(value).expect("a value")));
        }
        let text = document.to_string();
        assert!(text.matches(MARKER).count() > 100);
        let masked = mask_text(&text, &schema, Reader::View).expect("TOML");
        assert_eq!(masked.matches(MARKER).count(), 0, "{masked}");
    }
}
