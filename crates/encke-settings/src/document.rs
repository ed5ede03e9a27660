//! Parses the text of a settings file into all settings, or reports all of its errors at once.
//!
//! ```text
//!  text ─► TOML document ─► Settings ─► checks between values ─► Ok(Settings)
//!             │  ▲             │                 │
//!             │  └─ remove ◄───┤ first problem   │
//!             │     the value  │                 │
//!             ▼                ▼                 ▼
//!          not TOML        unknown key,     contradictions
//!                          bad value               └──────────► Err(Problems)
//! ```
//! Serde stops at the first error. The parser therefore records it, removes the value from the document, and deserializes the
//! rest again, until no error is left.

use std::ops::Range;
use std::path::Path;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{Problem, Problems, meant};
use crate::reference::sections;
use crate::section::Contradiction;
use crate::source::SourceMap;

/// Maximum number of reported problems. A file with more of them is probably not a settings file.
const PROBLEMS_MAX: usize = 20;

/// All sections of a program's settings file.
pub trait Document: DeserializeOwned + JsonSchema {
    /// The schema's title.
    const TITLE: &'static str;

    /// Makes every relative path start at `folder`.
    fn anchor(&mut self, folder: &Path);

    /// Returns contradictions within sections and between them.
    fn check(&self) -> Vec<Contradiction>;
}

/// Parses the text of a settings file. `file` is its name in problems, and relative paths start at `folder`. Returns the
/// settings and the position of each value.
///
/// # Errors
/// All problems of the text, with their positions.
pub fn parse<S: Document>(file: &str, text: &str, folder: &Path) -> Result<(S, SourceMap), Problems> {
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let list = errors.iter().take(PROBLEMS_MAX).map(|error| not_toml(error, text)).collect();
        return Err(Problems::new(file, text, list));
    }
    let mut rest = root.clone();
    let mut problems = Vec::new();
    let settings = loop {
        match S::deserialize(toml::Deserializer::from(rest.clone())) {
            Ok(settings) => break Some(settings),
            Err(error) => {
                problems.push(told::<S>(&error, root.get_ref()));
                let taken = error.span().is_some_and(|span| take_out(rest.get_mut(), &span));
                if !taken || problems.len() == PROBLEMS_MAX {
                    break None;
                }
            }
        }
    };
    // Contradictions are not checked if a value was removed: they may result from its absence.
    let mut settings = settings.filter(|_| problems.is_empty());
    if let Some(settings) = &mut settings {
        settings.anchor(folder);
        problems = settings
            .check()
            .into_iter()
            .map(|Contradiction { path, message }| Problem {
                span: span_at(root.get_ref(), &path),
                message,
                hint: None,
            })
            .collect();
    }
    match settings {
        Some(settings) if problems.is_empty() => Ok((settings, SourceMap::of(file, text, root.get_ref()))),
        _ => Err(Problems::new(file, text, problems)),
    }
}

/// An error of TOML syntax: quotes, brackets, a duplicate key.
fn not_toml(error: &toml::de::Error, text: &str) -> Problem {
    let span = error.span().unwrap_or(text.len()..text.len());
    Problem { span, message: error.message().to_owned(), hint: None }
}

/// Converts an error of serde into a problem.
fn told<S: Document>(error: &toml::de::Error, root: &DeTable<'_>) -> Problem {
    let span = error.span().unwrap_or(0..0);
    let mut path = Vec::new();
    path_to(root, &span, &mut path);
    let message = error.message().trim_end();
    if let Some((word, known)) = unknown(message, "unknown field ") {
        path.retain(|part| part != word);
        return Problem {
            span,
            message: format!("unknown key `{word}`{}", within(&path)),
            hint: hint_for_key::<S>(word, &known, &path),
        };
    }
    if let Some((word, known)) = unknown(message, "unknown variant ") {
        let hint = meant(word, known.iter().copied()).map_or_else(|| one_of(&known), did_you_mean);
        return Problem { span, message: format!("{} cannot be `{word}`", path.join(".")), hint: Some(hint) };
    }
    if let Some(key) = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        return Problem { span, message: format!("`{key}` is missing{}", within(&path)), hint: None };
    }
    let message = match message.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "))
    {
        Some((found, expected)) => format!("expected {expected}, found {found}"),
        None => message.to_owned(),
    };
    let message = if path.is_empty() { message } else { format!("{}: {message}", path.join(".")) };
    Problem { span, message, hint: None }
}

/// Parses serde's "unknown field `x`, expected one of `a`, `b`" into the unknown word and the known ones.
fn unknown<'a>(message: &'a str, start: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let mut quoted = message.strip_prefix(start)?.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

fn hint_for_key<S: Document>(word: &str, known: &[&str], path: &[String]) -> Option<String> {
    if let Some(meant) = meant(word, known.iter().copied()) {
        return Some(did_you_mean(meant));
    }
    let here = path.first().map(String::as_str);
    let elsewhere = sections::<S>()
        .into_iter()
        .find(|(section, keys)| Some(section.as_str()) != here && keys.iter().any(|key| key == word));
    if let Some((section, _)) = elsewhere {
        return Some(format!("`{word}` belongs in [{section}]"));
    }
    (!known.is_empty()).then(|| one_of(known))
}

fn did_you_mean(word: &str) -> String {
    format!("did you mean `{word}`?")
}

fn one_of(words: &[&str]) -> String {
    format!("expected one of: {}", words.join(", "))
}

fn within(path: &[String]) -> String {
    if path.is_empty() { String::new() } else { format!(" in [{}]", path.join(".")) }
}

/// Finds the keys that lead to the value or key at `span`.
fn path_to(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<String>) -> bool {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        if key.span() == *span || value.span() == *span || path_into(value, span, path) {
            return true;
        }
        path.pop();
    }
    false
}

fn path_into(value: &Spanned<DeValue<'_>>, span: &Range<usize>, path: &mut Vec<String>) -> bool {
    match value.get_ref() {
        DeValue::Table(table) => path_to(table, span, path),
        DeValue::Array(list) => list.iter().any(|item| item.span() == *span || path_into(item, span, path)),
        _ => false,
    }
}

/// Removes the value, or the key with its value, at `span` from the document. Only the smallest invalid part is removed, so
/// that the rest is still checked.
fn take_out(table: &mut DeTable<'_>, span: &Range<usize>) -> bool {
    let found = table
        .iter()
        .find(|(key, value)| key.span() == *span || value.span() == *span)
        .map(|(key, _)| key.get_ref().to_string());
    match found {
        Some(key) => table.remove(key.as_str()).is_some(),
        None => table.iter_mut().any(|(_, value)| take_out_of(value, span)),
    }
}

fn take_out_of(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    match value.get_mut() {
        DeValue::Table(table) => take_out(table, span),
        DeValue::Array(list) => match list.iter().position(|item| item.span() == *span) {
            Some(index) => {
                // A `DeArray` can grow and be collected, but not shrink.
                let rest = list.iter().take(index).chain(list.iter().skip(index + 1));
                *list = rest.cloned().collect();
                true
            }
            None => list.iter_mut().any(|item| take_out_of(item, span)),
        },
        _ => false,
    }
}

/// The span of the value at a path of keys and indices, or of the longest part of the path that exists.
fn span_at(root: &DeTable<'_>, path: &[String]) -> Range<usize> {
    let mut parts = path.iter();
    let Some(mut value) = parts.next().and_then(|key| root.get(key.as_str())) else { return 0..0 };
    for part in parts {
        let inner = match value.get_ref() {
            DeValue::Table(table) => table.get(part.as_str()),
            DeValue::Array(list) => part.parse::<usize>().ok().and_then(|place| list.get(place)),
            _ => None,
        };
        let Some(inner) = inner else { break };
        value = inner;
    }
    value.span()
}
