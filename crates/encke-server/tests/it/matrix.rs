//! The stands that each case runs on, and the stands that only `ENCKE_MATRIX=full` adds.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use encke_io::Backend;

use crate::rig::Stand;

/// A case of any file.
pub(crate) type Case = fn(Stand);

/// Whether every case runs on every stand.
fn is_full() -> bool {
    match std::env::var("ENCKE_MATRIX") {
        Ok(value) => {
            assert_eq!(value, "full", "ENCKE_MATRIX is either unset or `full`");
            true
        }
        Err(_unset) => false,
    }
}

/// The stands that `on_two_stands!` does not use.
fn others() -> impl Iterator<Item = Stand> {
    let all = Backend::NAMED.into_iter().flat_map(|backend| [1, 4].map(|workers| Stand { backend, workers }));
    all.filter(|stand| {
        !matches!((stand.backend, stand.workers), (Backend::EpollEdge, 1) | (Backend::Uring, 4))
    })
}

/// Runs a file's cases on the six other stands, if the matrix is full. A case that fails does not stop the others.
pub(crate) fn play_on_the_others(cases: &[(&str, Case)]) {
    if !is_full() {
        return;
    }
    let mut failed = Vec::new();
    for stand in others() {
        for (name, case) in cases {
            let played = format!("{name} on {}, {} workers", stand.backend, stand.workers);
            println!("{played}");
            if catch_unwind(AssertUnwindSafe(|| case(stand))).is_err() {
                failed.push(played);
            }
        }
    }
    assert!(failed.is_empty(), "failed: {failed:#?}");
}

/// The stand of a test module, by the names that the macros use.
fn stand_of(module: &str) -> Option<(&'static str, usize)> {
    let module = module.strip_prefix("only_").unwrap_or(module);
    let (backend, workers) = match module.strip_suffix("_by_four") {
        Some(backend) => (backend, 4),
        None => (module.strip_suffix("_by_one").unwrap_or(module), 1),
    };
    let mut names = Backend::NAMED.into_iter().map(Backend::name);
    Some((names.find(|name| name.replace('-', "_") == backend)?, workers))
}

/// Lists this program's own tests, so the figures describe the tests that exist.
#[test]
fn the_matrix() {
    let program = std::env::current_exe().expect("a running program");
    let listed = Command::new(program).arg("--list").output().expect("it starts");
    let mut stands: BTreeMap<(&str, usize), usize> = BTreeMap::new();
    let mut cases: BTreeMap<String, BTreeSet<(&str, usize)>> = BTreeMap::new();
    for line in String::from_utf8(listed.stdout).expect("names").lines() {
        let Some(path) = line.strip_suffix(": test") else { continue };
        let [file, .., module, case] = path.split("::").collect::<Vec<_>>()[..] else { continue };
        if case == "on_the_other_stands" {
            continue;
        }
        let stand = stand_of(module).unwrap_or_else(|| panic!("{path}: no stand is called {module}"));
        *stands.entry(stand).or_default() += 1;
        cases.entry(format!("{file}::{case}")).or_default().insert(stand);
    }
    let two = BTreeSet::from([("epoll-edge", 1), ("uring", 4)]);
    for (case, stands) in &cases {
        assert!(matches!(stands.len(), 4 | 8) || *stands == two, "{case} runs on {stands:?}");
    }
    assert_eq!(stands.len(), 2 * Backend::NAMED.len(), "{stands:?}");

    let reduced = cases.values().filter(|stands| **stands == two).count();
    let mut text = format!("\n{} cases run as {} tests:\n", cases.len(), stands.values().sum::<usize>());
    for ((backend, workers), count) in &stands {
        text += &format!("  {backend:<11}  {workers} workers  {count} cases\n");
    }
    text += &if is_full() {
        format!("  and {reduced} cases on 6 other stands, as ENCKE_MATRIX says\n")
    } else {
        format!("  ENCKE_MATRIX=full adds {} runs: {reduced} cases on 6 other stands\n", reduced * 6)
    };
    // Written directly, because the harness shows a test's output only if the test fails.
    std::io::stderr().write_all(text.as_bytes()).expect("standard error is open");
}
