//! An error is a type whose variants say where it comes from and what to do, not a text.
//!
//! Only what a signature or an alias states is seen: `Result<_, String>`, and `type Err = String` of a trait.

use std::collections::BTreeMap;

use super::TidyFindings;
use super::tree::Tree;

/// No shipped source of a crate has a `String` for an error. Measured by crate.
pub(super) fn typed(tree: &Tree, findings: &mut TidyFindings) {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, source) in tree.sources() {
        let Some(end) = path.find(SOURCES).map(|at| at + SOURCES.len()) else { continue };
        let lines = source.lines().map(|(_, line)| if line.test { "" } else { line.code.as_str() });
        let code = lines.collect::<Vec<_>>().join("\n");
        let found = texts(&code).into_iter().map(|at| {
            let line = 1 + code[..at].matches('\n').count();
            format!("{path}:{line}")
        });
        places.entry(&path[..end]).or_default().extend(found);
    }
    for (place, found) in places.into_iter().filter(|(_, found)| !found.is_empty()) {
        let text = format!("{} of the errors are a `String`: {}", found.len(), found.join(", "));
        findings.measure("error", place, found.len(), text);
    }
}

const SOURCES: &str = "/src/";

/// Where code has a `String` for an error.
fn texts(code: &str) -> Vec<usize> {
    let results = code
        .match_indices("Result<")
        .filter(|(at, found)| error(&code[at + found.len()..]) == Some("String"));
    let associated = code.match_indices("type Err").filter(|(at, found)| {
        let rest = &code[at + found.len()..];
        let value = rest.strip_prefix("or").unwrap_or(rest).trim_start().strip_prefix('=');
        value.and_then(|value| value.split(';').next()).is_some_and(|value| value.trim() == "String")
    });
    let mut all: Vec<usize> = results.chain(associated).map(|(at, _)| at).collect();
    all.sort_unstable();
    all
}

/// The second argument of a `Result`, whose arguments begin where `code` does; `None` if it has only one.
fn error(code: &str) -> Option<&str> {
    let (mut depth, mut comma, mut before) = (0, None, ' ');
    for (at, char) in code.char_indices() {
        match char {
            '<' | '(' | '[' | '{' => depth += 1,
            // An arrow closes nothing.
            '>' if before == '-' => {}
            '>' if depth == 0 => {
                let second = comma.map(|comma: usize| code[comma + 1..at].trim());
                return second.map(|second| second.trim_end_matches(','));
            }
            '>' | ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 && comma.is_none() => comma = Some(at),
            _ => {}
        }
        before = char;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_an_error_in_any_signature_and_nowhere_else() {
        for code in [
            "fn a() -> Result<(), String> {",
            "fn a() -> Result<HashMap<String, (u8, u8)>, String>",
            "fn a() -> Result<\n    (String, u8),\n    String,\n>",
            "type Read = Box<dyn Fn() -> Result<fn(u8) -> u8, String>>;",
            "let all: std::result::Result<Vec<_>, String> = a.collect();",
            "a.collect::<Result<Vec<_>, String>>()",
            "type Err = String;",
            "type Error = String;",
        ] {
            assert_eq!(texts(code).len(), 1, "{code}");
        }
        for code in [
            "fn a() -> io::Result<String>",
            "fn a() -> Result<String, Fault>",
            "fn a() -> Result<Vec<(u8, String)>, Fault>",
            "fn a() -> Result<(), (String, Fault)>",
            "type Err = Fault;",
            "struct Errors(Vec<String>);",
            "fn a() -> Option<(u8, String)>",
        ] {
            assert!(texts(code).is_empty(), "{code}");
        }
    }
}
