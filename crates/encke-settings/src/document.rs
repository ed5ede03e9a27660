//! Parses the text of a settings file into all settings, or reports its errors at once: the first ones, and their number.
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
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::foreign::{ForeignKey, equivalent};
use crate::include::{self, INCLUDE, Included};
use crate::problem::{Problem, Problems, meant};
use crate::reference::{TableKeys, tables};
use crate::section::Contradiction;
use crate::source::{SourceMap, SourceText, SourceTexts};
use crate::terms;

/// The search ends at this number of problems, because each takes a pass over the document. More than are shown, since serde
/// reads the keys of a section in alphabetical order, and the first ones of the file are shown.
const PROBLEMS_MAX: usize = 100;

/// All sections of a program's settings file.
pub trait Document: DeserializeOwned + JsonSchema {
    /// The schema's title.
    const TITLE: &'static str;
    /// The sections that may be repeated: `site` for `[[site]]`.
    const LISTS: &'static [&'static str];
    /// Keys of other programs, for hints at unknown keys.
    const FOREIGN: &'static [ForeignKey];

    /// Makes every relative path start at `folder`.
    fn anchor(&mut self, folder: &Path);

    /// Returns contradictions within sections and between them.
    fn check(&self) -> Vec<Contradiction>;
}

/// A valid settings file, with the files that it includes.
#[derive(Debug)]
pub struct Parsed<S> {
    /// The settings.
    pub settings: S,
    /// The position of each value.
    pub source: SourceMap,
    /// The included files.
    pub included: Vec<PathBuf>,
    /// Warnings for the operator.
    pub notes: Vec<String>,
}

/// Parses the text of a settings file and reads the files that it includes. `file` is its name in problems; relative paths, in
/// included files too, start at `folder`, its directory.
///
/// # Errors
/// All problems of the texts, with their positions.
pub fn parse<S: Document>(file: &str, text: &str, folder: &Path) -> Result<Parsed<S>, Problems> {
    let mut texts = SourceTexts::new(file.into(), text.into());
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let list = errors.iter().take(PROBLEMS_MAX).map(|error| not_toml::<S>(error, text, 0)).collect();
        return Err(Problems::of(texts.clone(), list, errors.len() > PROBLEMS_MAX));
    }
    let mut root = root.into_inner();
    let Included { paths, notes, mut problems } = include::read(&mut texts, &root, folder);
    for file in &texts.files()[1..] {
        merge_file::<S>(&mut root, file, &texts, &mut problems);
    }
    let mut rest = root.clone();
    take_repeated::<S>(&mut rest, &mut problems);
    let found_before = problems.len();
    let mut is_cut = false;
    let settings = loop {
        match S::deserialize(toml::Deserializer::from(Spanned::new(0..0, rest.clone()))) {
            Ok(settings) => break Some(settings),
            Err(error) => {
                problems.push(told::<S>(&error, &root));
                let taken = error.span().is_some_and(|span| take_out(&mut rest, &span));
                is_cut = problems.len() - found_before == PROBLEMS_MAX;
                if !taken || is_cut {
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
                span: span_at(&root, &path),
                message,
                hint: None,
            })
            .collect();
    }
    match settings {
        Some(settings) if problems.is_empty() => {
            Ok(Parsed { settings, source: SourceMap::of(&texts, &root), included: paths, notes })
        }
        _ => Err(Problems::of(texts.clone(), problems, is_cut)),
    }
}

/// Parses an included file and merges it into the document.
fn merge_file<'a, S: Document>(
    root: &mut DeTable<'a>,
    file: &'a SourceText,
    texts: &SourceTexts,
    problems: &mut Vec<Problem>,
) {
    let (table, errors) = DeTable::parse_recoverable(&file.text);
    if !errors.is_empty() {
        problems.extend(errors.iter().map(|error| not_toml::<S>(error, &file.text, file.start)));
        return;
    }
    let mut table = include::shifted(table.into_inner(), file.start);
    if let Some((key, _)) = table.remove_entry(INCLUDE) {
        problems.push(Problem {
            span: key.span(),
            message: "an included file cannot include others".into(),
            hint: Some(format!("add the file to `{INCLUDE}` in {}", texts.file_at(0).name)),
        });
    }
    include::merge(root, table, texts, "", problems);
}

/// An error of TOML syntax: quotes, brackets, a duplicate key. `start` is the offset of the file.
fn not_toml<S: Document>(error: &toml::de::Error, text: &str, start: usize) -> Problem {
    let span = error.span().unwrap_or(text.len()..text.len());
    let before = text.get(..span.start).unwrap_or(text);
    let line = text[before.rfind('\n').map_or(0, |at| at + 1)..].lines().next().unwrap_or_default();
    let hint = match error.message() {
        "duplicate key" => hint_for_heading::<S>(line),
        message if message.contains("escaped value") || message.contains("unicode") => {
            let text = "a backslash in double quotes begins an escape: write a path in single quotes, or with slashes";
            Some(text.to_owned())
        }
        _ => hint_for_line::<S>(line),
    };
    Problem { span: start + span.start..start + span.end, message: error.message().to_owned(), hint }
}

/// Removes sections that are written as lists, such as `[[server]]` or `server = []`: serde would read each element of the list
/// as one key of the section.
fn take_repeated<S: Document>(rest: &mut DeTable<'_>, problems: &mut Vec<Problem>) {
    let lists: Vec<(String, Range<usize>)> = rest
        .iter()
        .filter(|(_, value)| matches!(value.get_ref(), DeValue::Array(_)))
        .map(|(key, _)| (key.get_ref().to_string(), key.span()))
        .filter(|(key, _)| !S::LISTS.contains(&key.as_str()))
        .collect();
    if lists.is_empty() {
        return;
    }
    let tables = tables::<S>();
    for (key, span) in lists {
        let heading = format!("[{key}]");
        if tables.iter().any(|table| table.heading == heading) && rest.remove(key.as_str()).is_some() {
            let message = format!("`{key}` is one section, not a list");
            problems.push(Problem { span, message, hint: Some(once::<S>(&heading)) });
        }
    }
}

/// The hint for a heading that occurs twice; `None` if the line is no heading of a section.
fn hint_for_heading<S: Document>(line: &str) -> Option<String> {
    let line = line.trim();
    if !line.starts_with('[') {
        return None;
    }
    let path = line.trim_start_matches('[').split(']').next()?.trim();
    let tables = tables::<S>();
    let heading = &tables.iter().find(|table| table.path == path)?.heading;
    Some(if heading.starts_with("[[") { format!("write {heading} for each") } else { once::<S>(heading) })
}

/// The hint for a section that is written more than once.
fn once<S: Document>(heading: &str) -> String {
    let lists: Vec<String> = S::LISTS.iter().map(|key| format!("[[{key}]]")).collect();
    if lists.is_empty() {
        format!("write {heading} once")
    } else {
        format!("write {heading} once; {} may be repeated", lists.join(", "))
    }
}

/// The hint for a line that is not TOML: a directive of another program, such as `gzip on;` or `timeout client 30s`.
fn hint_for_line<S: Document>(line: &str) -> Option<String> {
    if line.contains('=') {
        return None;
    }
    let mut words = line.split([' ', '\t', ';', '{', '}', ':', '"']).filter(|word| !word.is_empty());
    let (first, second) = (words.next()?, words.next());
    let tables = tables::<S>();
    let pair = second.map(|second| format!("{first} {second}"));
    let known = pair.as_deref().into_iter().chain([first]).find_map(|key| equivalent(S::FOREIGN, &[], key));
    match known {
        Some(equivalent) => Some(equivalent.hint(|path| place_of(&tables, path))),
        None if tables.iter().any(|table| table.keys.iter().any(|key| key == first)) => {
            Some(format!("settings are TOML: `{first} = VALUE`"))
        }
        None => None,
    }
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
    let message = terms::plain(message);
    let message =
        if path.is_empty() { message.into_owned() } else { format!("{}: {message}", path.join(".")) };
    Problem { span, message, hint: None }
}

/// Parses serde's "unknown field `x`, expected one of `a`, `b`" into the unknown word and the known ones.
fn unknown<'a>(message: &'a str, start: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let mut quoted = message.strip_prefix(start)?.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

fn hint_for_key<S: Document>(word: &str, known: &[&str], path: &[String]) -> Option<String> {
    let tables = tables::<S>();
    if let Some(equivalent) = equivalent(S::FOREIGN, path, word) {
        return Some(equivalent.hint(|path| place_of(&tables, path)));
    }
    if let Some(meant) = meant(word, known.iter().copied()) {
        return Some(did_you_mean(meant));
    }
    let here = path.join(".");
    let elsewhere =
        tables.iter().find(|table| table.path != here && table.keys.iter().any(|key| key == word));
    match elsewhere {
        Some(table) if table.path.is_empty() => {
            Some(format!("`{word}` belongs at the top of the file, above all sections"))
        }
        Some(table) => Some(format!("`{word}` belongs in {}", table.heading)),
        None => (!known.is_empty()).then(|| one_of(known)),
    }
}

/// The path of a setting as a user writes it: `limits.idle_time`, or `host` in `[[site]]`.
fn place_of(tables: &[TableKeys], path: &str) -> String {
    let parent = path
        .rsplit_once('.')
        .and_then(|(parent, key)| Some((tables.iter().find(|table| table.path == parent)?, key)));
    match parent {
        Some((table, key)) if table.heading.starts_with("[[") => format!("`{key}` in {}", table.heading),
        _ => format!("`{path}`"),
    }
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
