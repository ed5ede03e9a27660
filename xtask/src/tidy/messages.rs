//! Rule about the texts of the server that the console shows in other languages.

use std::collections::BTreeMap;

use super::TidyFindings;
use super::tree::Tree;

/// The English texts by code. The check of the pages (`npm run check`) compares the other languages with it.
const ENGLISH: &str = "console/src/messages/en/server.json";
/// Begin of a text with a code: `CodedText::new("code", "text")`.
const TEXT: &str = "CodedText::new(";

/// Rule: the English catalogue has each text with a code as the server writes it, and no other. So a text cannot change without
/// its translations.
pub(super) fn coded(tree: &Tree, findings: &mut TidyFindings) {
    let mut told = catalogue(tree.text(ENGLISH).unwrap_or_default());
    let mut written: BTreeMap<String, String> = BTreeMap::new();
    for (path, file) in tree.files() {
        let (Some(source), Some(text)) = (&file.rust, &file.text) else { continue };
        if !path.starts_with("crates/") {
            continue;
        }
        // Lines of tests and comments are left empty, so that the numbers of the others stay.
        let lines = source.lines().zip(text.lines());
        let shipped: Vec<&str> = lines
            .map(|((_, line), raw)| if line.test || line.comment.starts_with("//") { "" } else { raw })
            .collect();
        let shipped = shipped.join("\n");
        for (at, _) in shipped.match_indices(TEXT) {
            let number = shipped[..at].matches('\n').count() + 1;
            let Some((code, text)) = literals(&shipped[at + TEXT.len()..]) else {
                findings.add("coded", path, number, "code and text are literals of one line");
                continue;
            };
            let known = written.insert(code.to_owned(), text.to_owned());
            if known.is_some_and(|known| known != text) {
                findings.add("coded", path, number, format!("`{code}` has another text elsewhere"));
            } else if told.get(code).is_none_or(|known| known != text) {
                findings.add("coded", path, number, format!("{ENGLISH} has no `{code}` with this text"));
            }
        }
    }
    told.retain(|code, _| !written.contains_key(code));
    for code in told.keys() {
        findings.add("coded", ENGLISH, 0, format!("no crate writes `{code}`"));
    }
}

/// Returns the messages of a catalogue with one message a line. Quotes and backslashes have the same escapes in JSON and in Rust.
fn catalogue(text: &str) -> BTreeMap<String, String> {
    let messages = text.lines().filter_map(|line| {
        let message = line.trim().trim_end_matches(',').strip_prefix('"')?.strip_suffix('"')?;
        let (code, text) = message.split_once("\": \"")?;
        Some((code.to_owned(), text.to_owned()))
    });
    messages.collect()
}

/// Returns the first two arguments of a call.
fn literals(arguments: &str) -> Option<(&str, &str)> {
    let (code, rest) = literal(arguments)?;
    let (text, _) = literal(rest.trim_start().strip_prefix(',')?)?;
    Some((code, text))
}

/// Returns the content of a string literal as it is written, and the text after it.
fn literal(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start().strip_prefix('"')?;
    let mut escaped = false;
    let end = text.find(|letter| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    })?;
    let content = &text[..end];
    (!content.contains('\n')).then_some((content, &text[end + 1..]))
}
