//! Dependencies in the crates' Cargo.toml files: the crate where each enters, and its reason in ARCHITECTURE.md.

use std::collections::BTreeMap;

use super::TidyFindings;
use super::tree::Tree;

/// An entry of a dependency table.
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) kind: DependencyKind,
    pub(super) line: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DependencyKind {
    /// For the program.
    Shipped,
    /// For tests and examples.
    Development,
}

/// Returns the manifests of the crates, by path.
pub(super) fn crates(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.texts().filter(|(path, _)| path.starts_with("crates/") && path.ends_with("/Cargo.toml"))
}

/// Parses the dependencies of a manifest. Supports the style of this repository only: dependency tables with one key per line,
/// and arrays over several lines.
pub(super) fn dependencies(manifest: &str) -> impl Iterator<Item = Dependency> {
    let mut kind = None;
    let mut depth = 0_i32;
    manifest.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let inside = depth > 0;
        if line.starts_with('[') && !inside {
            return match header(line) {
                TableHeader::Table(of) => {
                    kind = of;
                    None
                }
                TableHeader::One(of, name) => {
                    kind = None;
                    Some(Dependency { name, kind: of, line: index + 1 })
                }
            };
        }
        depth += line.chars().map(|char| i32::from(char == '[') - i32::from(char == ']')).sum::<i32>();
        let key = line.split(['=', '.']).next()?.trim().trim_matches('"');
        (!inside && !key.is_empty()).then_some(kind?).map(|kind| Dependency {
            name: key.to_owned(),
            kind,
            line: index + 1,
        })
    })
}

/// The meaning of a table header.
enum TableHeader {
    /// A table whose keys are dependencies, or `None` for any other table.
    Table(Option<DependencyKind>),
    /// A table of one dependency.
    One(DependencyKind, String),
}

fn header(line: &str) -> TableHeader {
    let kind_of = |table: &str| match table {
        "dependencies" | "build-dependencies" => Some(DependencyKind::Shipped),
        "dev-dependencies" => Some(DependencyKind::Development),
        _ => None,
    };
    let line = line.trim_matches(['[', ']']);
    let (front, last) = line.rsplit_once('.').unwrap_or(("", line));
    match kind_of(front.rsplit('.').next().unwrap_or(front)) {
        Some(kind) => TableHeader::One(kind, last.to_owned()),
        None => TableHeader::Table(kind_of(last)),
    }
}

/// Rule: a dependency enters the program at one crate, so that it can be replaced in one place.
pub(super) fn one_entrance(tree: &Tree, findings: &mut TidyFindings) {
    let mut entrances: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (path, text) in crates(tree) {
        for dependency in foreign(text).filter(|one| one.kind == DependencyKind::Shipped) {
            let paths = entrances.entry(dependency.name).or_default();
            if paths.last() != Some(&path) {
                paths.push(path);
            }
        }
    }
    for (name, paths) in entrances.iter().filter(|(_, paths)| paths.len() > 1) {
        findings.add("dependency", name, 0, format!("it enters at {}", paths.join(" and at ")));
    }
}

/// Rule: every dependency, of tests too, has a line in ARCHITECTURE.md.
pub(super) fn reason(tree: &Tree, findings: &mut TidyFindings) {
    let document = tree.text("ARCHITECTURE.md").unwrap_or_default();
    let fuzz = tree.text("fuzz/Cargo.toml").map(|text| ("fuzz/Cargo.toml", text));
    for (path, text) in crates(tree).chain(fuzz) {
        for dependency in foreign(text) {
            if !document.contains(&format!("`{}`", dependency.name)) {
                let text = format!("ARCHITECTURE.md does not say what `{}` is for", dependency.name);
                findings.add("reason", path, dependency.line, text);
            }
        }
    }
}

fn foreign(manifest: &str) -> impl Iterator<Item = Dependency> {
    dependencies(manifest).filter(|dependency| !dependency.name.starts_with("encke"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_in_every_form_that_we_write() {
        let manifest = "\
[package]
name = \"x\" # [dependencies]

[dependencies]
encke-io.workspace = true
# a comment
serde = { version = \"1\", features = [
    \"derive\",
] }
\"quoted\" = \"1\"

[target.'cfg(unix)'.dependencies]
libc = \"0.2\"

[dependencies.long]
version = \"1\"

[features]
default = []

[dev-dependencies]
toml = \"1\"
";
        let found: Vec<(String, DependencyKind, usize)> =
            dependencies(manifest).map(|one| (one.name, one.kind, one.line)).collect();
        let expected = [
            ("encke-io", DependencyKind::Shipped, 5),
            ("serde", DependencyKind::Shipped, 7),
            ("quoted", DependencyKind::Shipped, 10),
            ("libc", DependencyKind::Shipped, 13),
            ("long", DependencyKind::Shipped, 15),
            ("toml", DependencyKind::Development, 22),
        ];
        assert_eq!(found, expected.map(|(name, kind, line)| (name.to_owned(), kind, line)));
    }
}
