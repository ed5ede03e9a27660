//! The rule that encke-server, the engine, names no feature. Features are mounted on it.

use super::TidyFindings;
use super::modules::named;
use super::tree::Tree;

const ENGINE: &str = "crates/encke-server/src/";

/// The crates of features.
const FEATURE_CRATES: &[&str] = &[
    "encke_hub",
    "encke_push",
    "encke_site",
    "encke_rights",
    "encke_console",
    "encke_gateway",
    "encke_live",
];

/// The modules of features that have no crates of their own.
const FEATURE_MODULES: &[&str] = &["push", "site", "rights", "admin"];

/// Rule: no source of the engine names a feature, tests included.
pub(super) fn names_no_feature(tree: &Tree, findings: &mut TidyFindings) {
    let naming: Vec<String> = tree
        .sources()
        .filter_map(|(path, source)| {
            let below = path.strip_prefix(ENGINE)?;
            let is_feature =
                below.trim_end_matches(".rs").split('/').any(|part| FEATURE_MODULES.contains(&part));
            let code: Vec<&str> = source.lines().map(|(_, line)| line.code.as_str()).collect();
            let names = is_feature || named(&code.join("\n")).iter().any(|path| is_feature_path(path));
            names.then(|| below.to_owned())
        })
        .collect();
    if !naming.is_empty() {
        let text = format!("{} files name a feature: {}", naming.len(), naming.join(", "));
        findings.measure("engine", ENGINE, naming.len(), text);
    }
}

/// Whether a path leads to a feature, or into it. `Vec::push` does not: the name of a module precedes another name, or
/// follows `crate`, `self` or `super`.
fn is_feature_path(path: &[String]) -> bool {
    let local = matches!(path[0].as_str(), "crate" | "self" | "super");
    path.iter().enumerate().any(|(at, part)| {
        FEATURE_CRATES.contains(&part.as_str())
            || FEATURE_MODULES.contains(&part.as_str()) && (at + 1 < path.len() || local)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_named_by_its_crate_or_by_a_path_through_its_module() {
        let names = |code| named(code).iter().any(|path| is_feature_path(path));
        for code in [
            "use encke_hub::Name;",
            "fn a() -> encke_push::B {}",
            "use crate::{conn::Conn, push::{Room, Whose}};",
            "use super::site;",
            "pub(in crate::push) fn a() {}",
            "mod rights;",
            "fn a() { push::b() }",
            "use crate::settings::push::Policy;",
        ] {
            assert!(names(code), "{code}");
        }
        for code in
            ["fn a() { b.push(1); c.map(Vec::push) }", "fn push() { site() }", "use crate::conn::Conn;"]
        {
            assert!(!names(code), "{code}");
        }
    }
}
