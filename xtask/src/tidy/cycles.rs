//! Import cycles within a crate: between its directories, and among the files of one directory.
//!
//! A file belongs to the directory of which it is the module, or to the one that contains it ([`modules::CrateFile`](super::modules::CrateFile)). Each
//! directory is checked on its own:
//!
//! ```text
//! cycle      its files, with the file that is its module           at most CYCLE_FILES_MAX import each other
//! directory  its files and its subdirectories, each as one piece;  no subdirectory is part of a cycle
//!            without its module, which knows what is below it
//! ```
//! Pieces import each other if each can be reached from the other by imports.

use std::collections::{BTreeMap, BTreeSet};

use super::TidyFindings;
use super::manifest;
use super::modules::{CrateFile, Graph};
use super::tree::Tree;

/// Files of one directory that may import each other: the files of one state machine.
const CYCLE_FILES_MAX: usize = 5;

/// Rule: the files of a directory do not all depend on each other.
pub(super) fn files(tree: &Tree, findings: &mut TidyFindings) {
    for (folder, graph) in graphs(tree) {
        let largest = largest(
            &graph,
            |file, directory| (file.directory == directory).then(|| file.path.clone()),
            |_| true,
        );
        if let Some(cycle) = largest.filter(|cycle| cycle.len() > CYCLE_FILES_MAX) {
            let text =
                format!("{} files of a directory import each other: {}", cycle.len(), told(&folder, &cycle));
            findings.measure("cycle", &folder, cycle.len(), text);
        }
    }
}

/// Rule: no directory is part of an import cycle with its siblings.
pub(super) fn directories(tree: &Tree, findings: &mut TidyFindings) {
    for (folder, graph) in graphs(tree) {
        let largest = largest(&graph, piece, |cycle| cycle.iter().any(|piece| piece.ends_with('/')));
        if let Some(cycle) = largest {
            let text =
                format!("a directory and what is beside it import each other: {}", told(&folder, &cycle));
            findings.measure("directory", &folder, cycle.len(), text);
        }
    }
}

/// Returns the source directory of each crate with its graph.
fn graphs(tree: &Tree) -> impl Iterator<Item = (String, Graph)> {
    manifest::crates(tree).map(|(path, _)| {
        let folder = format!("{}src/", path.trim_end_matches("Cargo.toml"));
        let graph = Graph::of(tree, &folder);
        (folder, graph)
    })
}

/// Returns the piece of a directory that contains a file: the file, or a subdirectory, which ends in `/`.
fn piece(file: &CrateFile, directory: &str) -> Option<String> {
    if file.directory == directory {
        return (!file.facade).then(|| file.path.clone());
    }
    let below = file.directory.strip_prefix(directory)?.strip_prefix('/')?;
    Some(format!("{directory}/{}/", below.split('/').next().unwrap_or(below)))
}

/// Returns the largest cycle of any directory that `counts` accepts.
fn largest(
    graph: &Graph,
    piece: impl Fn(&CrateFile, &str) -> Option<String>,
    counts: impl Fn(&[String]) -> bool,
) -> Option<Vec<String>> {
    let directories: BTreeSet<&str> = graph.files.iter().map(|file| file.directory.as_str()).collect();
    let cycles = directories.into_iter().flat_map(|directory| {
        let pieces: Vec<Option<String>> = graph.files.iter().map(|file| piece(file, directory)).collect();
        let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for &(from, to) in &graph.edges {
            if let (Some(from), Some(to)) = (&pieces[from], &pieces[to])
                && from != to
            {
                edges.entry(from).or_default().insert(to);
            }
        }
        cycles(&edges)
    });
    cycles.filter(|cycle| counts(cycle)).max_by_key(Vec::len)
}

/// Returns the sets of pieces that can all be reached from each other.
fn cycles(edges: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|&from| (from, reached_from(from, edges))).collect();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut all = Vec::new();
    for (&one, others) in &reached {
        let back = |other: &&&str| reached.get(**other).is_some_and(|reached| reached.contains(one));
        let cycle: Vec<&str> = others.iter().filter(back).copied().collect();
        if !cycle.is_empty() && !done.contains(one) {
            done.extend(&cycle);
            all.push(cycle.into_iter().map(str::to_owned).collect());
        }
    }
    all
}

/// Returns the pieces that the imports of `from` lead to. It contains `from` itself only if there is a cycle.
fn reached_from<'a>(from: &'a str, edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(one) = open.pop() {
        let next = edges.get(one).into_iter().flatten();
        open.extend(next.filter(|&&one| reached.insert(one)));
    }
    reached
}

fn told(folder: &str, cycle: &[String]) -> String {
    let names: Vec<&str> = cycle.iter().map(|piece| piece.strip_prefix(folder).unwrap_or(piece)).collect();
    names.join(", ")
}
