//! Each rule finds the faults planted for it in a small tree that is clean without them, and nothing else.

use super::tree::Tree;
use super::{Exception, RULES, check};

/// A tree in which every rule has something to look at, and finds nothing.
const CLEAN: &[(&str, &str)] = &[
    ("Cargo.toml", "[workspace.package]\nversion = \"0.1.0\"\n"),
    (
        "ARCHITECTURE.md",
        "# Architecture\n\n`encke` `encke-lab` `encke-server` `encke-load` `encke-broker` `encke-hub` `encke-io` `encke-wire` `encke-stats`\n\n`libc`: the gaps.\n\
         `Worker::turn` begins in `crates/encke-server/src/lib.rs`.\n",
    ),
    ("CHANGELOG.md", "# Changelog\n\n## [0.1.0] - Unreleased\n\n### Added\n\n- All.\n"),
    (
        "docs/operations.md",
        "# Operations\n\n[Map](../ARCHITECTURE.md#architecture)\n\n| `encke_turns_total` |\n",
    ),
    ("docs/lab/a.md", "# A\n\n[ja](ja/a.md) [zh](zh-Hant/a.md)\n\n| `x` | 10 |\n"),
    ("docs/lab/ja/a.md", "# あ\n\n[en](../a.md)\n\n| `x` | 10 |\n"),
    ("docs/lab/zh-Hant/a.md", "# 甲\n\n[en](../a.md)\n\n| `x` | 10 |\n"),
    ("crates/encke/Cargo.toml", "[dependencies]\nencke-server.workspace = true\n"),
    ("crates/encke-io/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n"),
    ("crates/encke-server/Cargo.toml", "[dependencies]\nencke-io.workspace = true\n"),
    ("crates/encke-io/src/lib.rs", "//! Io.\n// SAFETY: it is.\nunsafe { clock_gettime() };\n"),
    (
        "crates/encke-server/src/lib.rs",
        "//! Server.\nimpl Worker { fn turn() { count(\"encke_turns_total\") } }\n\
         #[cfg(test)]\nmod tests {\n fn a() { b.unwrap(); Instant::now(); }\n}\n",
    ),
];

/// Rule, path, and what is put at the end of that file (a file that is not there is made).
const PLANTED: &[(&str, &str, &str)] = &[
    ("arrows", "crates/encke-io/Cargo.toml", "[dependencies]\nencke-server.workspace = true\n"),
    ("arrows", "crates/encke-other/Cargo.toml", "[package]\n"),
    ("unsafe", "crates/encke-server/src/lib.rs", "// SAFETY: no.\nunsafe fn c() {}\n"),
    ("safety", "crates/encke-io/src/more.rs", "//! More.\nfn a() { unsafe { b() } }\n"),
    ("system", "crates/encke-server/src/lib.rs", "#[cfg(target_os = \"linux\")]\nfn c() {}\n"),
    ("clock", "crates/encke-server/src/lib.rs", "fn c() { Instant::now(); }\n"),
    ("clock", "crates/encke-server/src/lib.rs", "fn c() { d.elapsed(); }\n"),
    ("sleep", "crates/encke-server/tests/a.rs", "//! A.\nfn c() { std::thread::sleep(d); }\n"),
    ("dependency", "crates/encke/Cargo.toml", "libc = \"0.2\"\n"),
    ("reason", "crates/encke-io/Cargo.toml", "rustix = \"1\"\n"),
    ("reason", "fuzz/Cargo.toml", "[dependencies]\nlibfuzzer-sys = \"0.4\"\n"),
    ("unfinished", "crates/encke-io/src/lib.rs", "fn a() { todo!() }\n"),
    ("unfinished", "crates/encke-io/src/lib.rs", "fn a() {} // FIXME later\n"),
    ("unfinished", "crates/encke-io/tests/a.rs", "//! A.\n#[test]\n#[ignore = \"slow\"]\nfn a() {}\n"),
    ("unwrap", "crates/encke-io/src/lib.rs", "fn a() { b.unwrap(); }\n"),
    ("header", "crates/encke-io/src/more.rs", "use std::io;\n//! More.\n"),
    ("size", "crates/encke-io/src/more.rs", LONG),
    ("link", "README.md", "[gone](docs/gone.md)\n"),
    ("link", "README.md", "[gone](ARCHITECTURE.md#gone)\n"),
    ("link", "README.md", "<img src=\"docs/gone.svg\">\n"),
    ("link", "README.md", "See `crates/gone/src/lib.rs`.\n"),
    ("name", "README.md", "See `Worker::gone`.\n"),
    ("translation", "docs/lab/ja/a.md", "## い\n"),
    ("translation", "docs/lab/ja/a.md", "11 ms\n"),
    ("translation", "docs/lab/zh-Hant/a.md", "`y`\n"),
    ("metric", "docs/operations.md", "| `encke_gone_total` |\n"),
    ("metric", "crates/encke-server/src/lib.rs", "fn c() { count(\"encke_new_total\") }\n"),
    (
        "table",
        "crates/encke-server/src/close.rs",
        "//! Close.\nclose_reasons! {\n    Gone Peer \"gone\" \"It is gone.\",\n}\n",
    ),
    ("changelog", "CHANGELOG.md", "## [0.2.0] - Unreleased\n"),
    ("changelog", "CHANGELOG.md", "### News\n"),
    ("changelog", "CHANGELOG.md", "## soon\n"),
];

/// A file of too many lines.
const LONG: &str = "//! Long.\n";
const LONG_TIMES: usize = 1600;

#[test]
fn the_clean_tree_is_clean() {
    let found = check(&tree(None), &[]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn each_planted_fault_is_found_by_its_rule_alone() {
    for planted in planted() {
        let found = check(&tree(Some(&planted)), &[]);
        let rules: Vec<&str> = found.iter().map(|finding| finding.rule).collect();
        assert_eq!(rules, [planted.rule], "{} + {:?}: {found:?}", planted.path, planted.text);
    }
}

#[test]
fn each_rule_has_a_planted_fault() {
    for rule in RULES {
        assert!(
            planted().iter().any(|planted| planted.rule == rule.name),
            "{} is not shown to find anything",
            rule.name
        );
    }
}

#[test]
fn an_exception_excuses_its_place_and_is_a_finding_once_it_excuses_nothing() {
    let exception = Exception { rule: "dependency", place: "libc", why: "for this test" };
    let shared = Planted::new("dependency", "crates/encke/Cargo.toml", "libc = \"0.2\"\n");
    assert!(check(&tree(Some(&shared)), &[exception]).is_empty());

    let exception = Exception { rule: "dependency", place: "libc", why: "for this test" };
    let found = check(&tree(None), &[exception]);
    assert_eq!(found.len(), 1, "{found:?}");
}

/// A fault for a rule.
struct Planted {
    rule: &'static str,
    path: &'static str,
    text: String,
}

impl Planted {
    fn new(rule: &'static str, path: &'static str, text: impl Into<String>) -> Self {
        Self { rule, path, text: text.into() }
    }
}

/// The table, and the faults that may not stand in this file as they are.
fn planted() -> Vec<Planted> {
    let mut all: Vec<Planted> = PLANTED
        .iter()
        .map(|&(rule, path, text)| {
            Planted::new(rule, path, if text == LONG { LONG.repeat(LONG_TIMES) } else { text.into() })
        })
        .collect();
    all.push(Planted::new("machine", "docs/operations.md", format!("Look into /{}/x.\n", "tmp")));
    all.push(Planted::new("size", "docs/picture.bin", "\0".repeat(600 * 1024)));
    all
}

fn tree(planted: Option<&Planted>) -> Tree {
    let mut files: Vec<(String, Vec<u8>)> =
        CLEAN.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
    if let Some(Planted { path, text, .. }) = planted {
        match files.iter_mut().find(|(other, _)| other == path) {
            Some((_, bytes)) => bytes.extend_from_slice(text.as_bytes()),
            None => files.push(((*path).to_owned(), text.as_bytes().to_vec())),
        }
    }
    Tree::of(files)
}
