//! Checks that the tree matches ARCHITECTURE.md: facts that the compiler does not verify, each a [`Rule`].
//!
//! `cargo fmt` and clippy run first; tidy repeats none of their checks.
//!
//! ```text
//!  git ls-files ─► Tree ─► RULES ─► Findings ─ EXCEPTIONS ─ RATCHETS ─► path:line: [rule] message
//!                   └─ source: Rust, with code separated from strings and comments
//! ```
//! A finding ends the run with status 1. So does an unused exception, or a ratchet with a lower figure than its limit.

use std::path::Path;
use std::process::ExitCode;

mod crates;
mod cycles;
mod documents;
mod engine;
mod errors;
mod manifest;
mod messages;
mod modules;
mod names;
mod ratchets;
mod source;
mod text;
mod tree;

use ratchets::{RATCHETS, Ratchet};
use tree::Tree;

/// A fact that must hold for the whole tree.
struct Rule {
    name: &'static str,
    says: &'static str,
    check: fn(&Tree, &mut TidyFindings),
}

/// All rules, in the order of the output.
const RULES: &[Rule] = &[
    Rule { name: "arrows", says: "crates depend on crates below them, as on the map", check: crates::arrows },
    Rule { name: "unsafe", says: "`unsafe` stays in its rooms", check: crates::unsafe_code },
    Rule { name: "safety", says: "each `unsafe` says why it is sound", check: crates::safety },
    Rule {
        name: "system",
        says: "only encke-io/src/sys knows operating systems apart",
        check: crates::system,
    },
    Rule { name: "clock", says: "only encke-io asks for the time", check: crates::clock },
    Rule { name: "sleep", says: "nothing waits for time to pass", check: crates::sleep },
    Rule { name: "engine", says: "encke-server names no feature", check: engine::names_no_feature },
    Rule { name: "directory", says: "no import cycle between directories", check: cycles::directories },
    Rule { name: "cycle", says: "at most 5 files of a directory import each other", check: cycles::files },
    Rule { name: "dependency", says: "a dependency enters at one crate", check: manifest::one_entrance },
    Rule { name: "reason", says: "a dependency is named in ARCHITECTURE.md", check: manifest::reason },
    Rule { name: "unfinished", says: "nothing is left for later", check: text::unfinished },
    Rule { name: "unwrap", says: "`unwrap` is for tests", check: text::unwrap },
    Rule { name: "error", says: "an error is a type, not a `String`", check: errors::typed },
    Rule { name: "unique", says: "a type name is declared once", check: names::unique },
    Rule { name: "header", says: "a source file opens with what it is", check: text::header },
    Rule { name: "machine", says: "no path of somebody's machine", check: text::machine_path },
    Rule { name: "size", says: "files stay readable", check: text::size },
    Rule { name: "path", says: "a path in a document exists", check: documents::path },
    Rule { name: "reach", says: "links lead from README.md to every document", check: documents::reach },
    Rule { name: "name", says: "documents name code that is there", check: documents::name },
    Rule { name: "excerpt", says: "code in docs/embedding.md is an excerpt", check: documents::excerpt },
    Rule {
        name: "translation",
        says: "pages keep up with their translations",
        check: documents::translation,
    },
    Rule {
        name: "coded",
        says: "the console's catalogue has every text with a code",
        check: messages::coded,
    },
    Rule { name: "metric", says: "docs/operations.md names every metric", check: documents::metric },
    Rule {
        name: "table",
        says: "documents name every reason of a refusal and of a close",
        check: documents::table,
    },
    Rule { name: "changelog", says: "CHANGELOG.md keeps its form", check: documents::changelog },
];

/// A place where a rule does not apply.
struct Exception {
    rule: &'static str,
    /// A file's path, or the subject of the rule (a dependency).
    place: &'static str,
    /// The reason, as printed by `cargo xtask rules`.
    why: &'static str,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        rule: "dependency",
        place: "serde",
        why: "the traits of data formats: settings, snapshots and saved runs are different data of different crates",
    },
    Exception {
        rule: "dependency",
        place: "serde_json",
        why: "as serde: the schema, snapshots, results of the lab",
    },
    Exception {
        rule: "dependency",
        place: "schemars",
        why: "as serde: each feature derives the schema of its own section",
    },
    Exception {
        rule: "dependency",
        place: "tokio",
        why: "two traits of it there, for h2; a runtime here, for an order by ACME on a thread of its own",
    },
    Exception {
        rule: "dependency",
        place: "h2",
        why: "connections of HTTP/2 there; the heads and data of a server's streams here, until its framing is ours",
    },
    Exception { rule: "dependency", place: "http", why: "as h2: the heads that it speaks in" },
    Exception { rule: "dependency", place: "bytes", why: "as h2: the data that it speaks in" },
    Exception { rule: "dependency", place: "sha2", why: "digests of tokens there, of bodies here" },
    Exception {
        rule: "unsafe",
        place: "crates/encke-assembly/tests/allocations.rs",
        why: "an allocator that counts must be one (GlobalAlloc); it ships nowhere",
    },
];

/// The findings of all rules.
#[derive(Default)]
struct TidyFindings(Vec<TidyFinding>);

#[derive(Debug)]
struct TidyFinding {
    rule: &'static str,
    /// A file's path, or the subject of the rule.
    place: String,
    /// Line number from 1, or 0 for the whole file.
    line: usize,
    text: String,
    /// The measured figure, for [`RATCHETS`].
    figure: Option<usize>,
}

impl TidyFindings {
    fn add(&mut self, rule: &'static str, place: &str, line: usize, text: impl Into<String>) {
        self.0.push(TidyFinding { rule, place: place.to_owned(), line, text: text.into(), figure: None });
    }

    /// Adds a finding with a figure that a [`Ratchet`] may allow.
    fn measure(&mut self, rule: &'static str, place: &str, figure: usize, text: impl Into<String>) {
        self.add(rule, place, 0, text);
        if let Some(finding) = self.0.last_mut() {
            finding.figure = Some(figure);
        }
    }
}

/// Checks the tree that contains this program, and prints the findings.
pub(crate) fn run() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
    let tree = match Tree::tracked(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: cannot read the tree: {error}");
            return ExitCode::from(1);
        }
    };
    let findings = check(&tree, EXCEPTIONS, RATCHETS);
    for TidyFinding { rule, place, line, text, .. } in &findings {
        let line = if *line == 0 { String::new() } else { format!("{line}:") };
        println!("{place}:{line} [{rule}] {text}");
    }
    let (files, rules) = (tree.files().count(), RULES.len());
    match findings.len() {
        0 => {
            println!("tidy: {files} files, {rules} rules: all is as ARCHITECTURE.md says");
            ExitCode::SUCCESS
        }
        wrong => {
            println!("tidy: {files} files, {rules} rules, {wrong} findings");
            ExitCode::from(1)
        }
    }
}

/// Prints the rules and their exceptions.
pub(crate) fn list() -> ExitCode {
    for rule in RULES {
        println!("{:12}{}", rule.name, rule.says);
        for exception in EXCEPTIONS.iter().filter(|exception| exception.rule == rule.name) {
            println!("{:12}  but for {}: {}", "", exception.place, exception.why);
        }
        for ratchet in RATCHETS.iter().filter(|ratchet| ratchet.rule == rule.name) {
            println!("{:12}  {} {}: {}", "", ratchet.place, ratchet.limit, ratchet.why);
        }
    }
    ExitCode::SUCCESS
}

fn check(tree: &Tree, exceptions: &[Exception], ratchets: &[Ratchet]) -> Vec<TidyFinding> {
    let mut findings = TidyFindings::default();
    for rule in RULES {
        (rule.check)(tree, &mut findings);
    }
    let mut used = vec![false; exceptions.len()];
    findings.0.retain(|finding| {
        let excused = |one: &Exception| one.rule == finding.rule && one.place == finding.place;
        let place = exceptions.iter().position(excused);
        if let Some(place) = place {
            used[place] = true;
        }
        place.is_none()
    });
    for (exception, _) in exceptions.iter().zip(used).filter(|(_, used)| !used) {
        findings.add(exception.rule, exception.place, 0, "its exception excuses nothing any more: remove it");
    }
    ratchets::apply(ratchets, &mut findings);
    findings.0
}

#[cfg(test)]
mod tests;
