//! A type name means one thing: no two modules declare types of the same name.
//!
//! Only declarations that begin a line are checked. Types within functions and inline modules are local to what a reader sees.
//! A `without.rs` declares the types of its neighbours again, for a build without their feature. The directories of
//! `sys` declare equal types, too: a build contains the directories of one operating system only.

use std::collections::BTreeMap;

use super::TidyFindings;
use super::tree::Tree;

/// Type names are unique in the shipped sources of the workspace.
pub(super) fn unique(tree: &Tree, findings: &mut TidyFindings) {
    let mut places: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for (path, source) in tree.sources().filter(|(path, _)| path.contains("/src/") && !path.ends_with(TWIN)) {
        for (number, line) in source.shipped() {
            let Some(name) = declared(&line.code) else { continue };
            let declarations = places.entry(name).or_default();
            let is_twin =
                |(other, _): &(&str, usize)| system(other).is_some_and(|other| Some(other) != system(path));
            if system(path).is_none() || !declarations.iter().any(is_twin) {
                declarations.push((path, number));
            }
        }
    }
    for (name, declarations) in places {
        let Some(((path, number), others)) =
            declarations.split_last().filter(|(_, others)| !others.is_empty())
        else {
            continue;
        };
        let others: Vec<String> = others.iter().map(|(path, number)| format!("{path}:{number}")).collect();
        let text = format!("type `{name}` is declared in {path}:{number} and in {}", others.join(", "));
        findings.add("unique", name, 0, text);
    }
}

const TWIN: &str = "/without.rs";

/// The operating system that a file is for: a directory of `sys`.
fn system(path: &str) -> Option<&str> {
    path.split_once("/src/sys/")?.1.split('/').next()
}

/// The name of the type that a line of code declares at its beginning.
fn declared(code: &str) -> Option<&str> {
    let item = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.trim_start(),
        None => code,
    };
    let (kind, rest) = item.split_once(' ')?;
    let rest = match kind {
        "struct" | "enum" | "trait" | "union" | "type" => rest,
        "unsafe" => rest.strip_prefix("trait ")?,
        _ => return None,
    };
    let end = rest.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(rest.len());
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_at_the_beginning_of_a_line_have_names() {
        for code in [
            "struct Part;",
            "pub struct Part<T> {",
            "pub(crate) enum Part {",
            "pub(in crate::a) trait Part: Send {",
            "pub unsafe trait Part {}",
            "type Part = Vec<u8>;",
            "pub union Part {",
        ] {
            assert_eq!(declared(code), Some("Part"), "{code}");
        }
        for code in
            ["    struct Part;", "impl Part {", "use a::Part;", "mod part;", "pub fn part() {}", "}", ""]
        {
            assert_eq!(declared(code), None, "{code}");
        }
    }
}
