//! Each rule finds the faults planted in a small, clean tree, and nothing else.

use super::crates::existing;
use super::ratchets::{Ratchet, RatchetLimit};
use super::tree::Tree;
use super::{Exception, RULES, check};

/// A tree with material for every rule and no findings. The crates of the table and their rows on the map are added to it.
const CLEAN: &[(&str, &str)] = &[
    ("Cargo.toml", "[workspace.package]\nversion = \"0.1.0\"\n"),
    // No finding: a document that links lead to over two others, and one in a directory that is linked.
    (
        "README.md",
        "# R\n\n[a](ARCHITECTURE.md) [c](CHANGELOG.md) [d](docs/operations.md#operations) [client](client/)\n",
    ),
    ("client/README.md", "# C\n\n[up](../README.md)\n"),
    (
        "ARCHITECTURE.md",
        "# Architecture\n\n`libc`: the gaps.\n\
         `Worker::turn` begins in `crates/encke-server/src/lib.rs`.\n",
    ),
    ("CHANGELOG.md", "# Changelog\n\n## [0.1.0] - Unreleased\n\n### Added\n\n- All.\n"),
    (
        "docs/operations.md",
        "# Operations\n\n[Map](../ARCHITECTURE.md#architecture) [e](embedding.md) [l](lab/a.md)\n\n| `encke_turns_total` |\n",
    ),
    ("docs/embedding.md", "# E\n\n[b](../crates/encke-hub/src/b.rs):\n\n```rust\npub struct B;\n```\n"),
    ("docs/lab/a.md", "# A\n\n[ja](ja/a.md) [zh](zh-Hant/a.md)\n\n| `x` | 10 |\n"),
    ("docs/lab/ja/a.md", "# あ\n\n[en](../a.md)\n\n| `x` | 10 |\n"),
    ("docs/lab/zh-Hant/a.md", "# 甲\n\n[en](../a.md)\n\n| `x` | 10 |\n"),
    ("crates/encke/Cargo.toml", "[dependencies]\nencke-server.workspace = true\n"),
    // No finding: five files in a cycle, a directory and its own module, a re-export, a test.
    (
        "crates/encke-hub/src/lib.rs",
        "//! Hub.\nmod a; mod b; mod c; mod d; mod e; mod f; mod g;\npub use g::h::Item;\n\
         #[cfg(test)]\nmod tests { use crate::f::F; }\n",
    ),
    ("crates/encke-hub/src/a.rs", "//! A.\nuse crate::b::B;\npub struct A;\n"),
    ("crates/encke-hub/src/b.rs", "//! B.\nuse super::c::C;\npub struct B;\n"),
    ("crates/encke-hub/src/c.rs", "//! C.\nfn c() -> crate::d::D {}\npub struct C;\n"),
    ("crates/encke-hub/src/d.rs", "//! D.\nuse crate::{e::{self, E}};\npub struct D;\n"),
    ("crates/encke-hub/src/e.rs", "//! E.\nuse crate::a::A;\npub struct E;\n"),
    ("crates/encke-hub/src/f.rs", "//! F.\nuse crate::Item;\nuse crate::e::E;\npub struct F;\n"),
    ("crates/encke-hub/src/g.rs", "//! G.\npub mod h;\npub struct G;\nfn g() { h::h() }\n"),
    ("crates/encke-hub/src/g/h.rs", "//! H.\nuse super::G;\npub struct Item;\n"),
    // No finding: an escape, a text in two places, and one of a test.
    (
        "console/src/messages/en/server.json",
        "{\n  \"gone\": \"it \\\"went\\\"\",\n  \"full\": \"{n} are there\"\n}\n",
    ),
    (
        "crates/encke-live/src/lib.rs",
        "//! Live.\nfn a() { CodedText::new(\"gone\", \"it \\\"went\\\"\") }\n\
         fn b() {\n CodedText::new(\n  \"full\",\n  \"{n} are there\",\n )\n}\n\
         fn c() { CodedText::new(\"full\", \"{n} are there\") }\n\
         #[cfg(test)]\nmod tests {\n fn a() { CodedText::new(\"x\", \"y\") }\n}\n",
    ),
    ("crates/encke-io/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n"),
    ("crates/encke-server/Cargo.toml", "[dependencies]\nencke-io.workspace = true\n"),
    ("crates/encke-io/src/lib.rs", "//! Io.\n// SAFETY: it is.\nunsafe { clock_gettime() };\n"),
    (
        "crates/encke-server/src/lib.rs",
        "//! Server.\nimpl Worker { fn turn() { count(\"encke_turns_total\") } }\n\
         #[cfg(test)]\nmod tests {\n fn a() { b.unwrap(); Instant::now(); }\n \
         fn b() -> Result<(), String> {}\n}\n",
    ),
];

/// Rule, path, and text that is appended to the file, which is created if it is missing.
const PLANTED: &[(&str, &str, &str)] = &[
    ("arrows", "crates/encke-io/Cargo.toml", "[dependencies]\nencke-server.workspace = true\n"),
    ("arrows", "crates/encke-hub/Cargo.toml", "[dev-dependencies]\nencke-broker.workspace = true\n"),
    ("arrows", "ARCHITECTURE.md", "| `encke-gone` | gone |\n"),
    ("engine", "crates/encke-server/src/lib.rs", "use encke_hub::Hub;\n"),
    ("engine", "crates/encke-server/src/lib.rs", "use crate::{conn::Conn, push::Room};\n"),
    (
        "engine",
        "crates/encke-server/src/lib.rs",
        "#[cfg(test)]\nmod more {\n fn a() -> super::site::B {}\n}\n",
    ),
    ("engine", "crates/encke-server/src/admin.rs", "//! Admin.\n"),
    ("directory", "crates/encke-hub/src/g/h.rs", "use crate::f::F;\n"),
    ("directory", "crates/encke-hub/src/g/h.rs", "fn b() -> crate::f::F {}\n"),
    ("cycle", "crates/encke-hub/src/e.rs", "use crate::f;\n"),
    ("cycle", "crates/encke-hub/src/e.rs", "fn b() -> super::f::F {}\n"),
    ("unsafe", "crates/encke-server/src/lib.rs", "// SAFETY: no.\nunsafe fn c() {}\n"),
    ("safety", "crates/encke-io/src/more.rs", "//! More.\nfn a() { unsafe { b() } }\n"),
    ("system", "crates/encke-server/src/lib.rs", "#[cfg(target_os = \"linux\")]\nfn c() {}\n"),
    ("system", "crates/encke-server/src/lib.rs", "#[cfg(not(unix))]\nfn c() {}\n"),
    ("system", "crates/encke-io/src/more.rs", "//! More.\nfn c() -> bool { cfg!(windows) }\n"),
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
    ("error", "crates/encke-io/src/lib.rs", "fn a() -> Result<(), String> {}\n"),
    ("error", "crates/encke-io/src/more.rs", "//! More.\nimpl FromStr for A {\n type Err = String;\n}\n"),
    ("error", "xtask/src/more.rs", "//! More.\nfn a() -> Result<\n Vec<u8>,\n String,\n> {}\n"),
    ("unique", "crates/encke-io/src/more.rs", "//! More.\npub struct Twice;\nenum Twice {}\n"),
    ("header", "crates/encke-io/src/more.rs", "use std::io;\n//! More.\n"),
    ("size", "crates/encke-io/src/more.rs", LONG),
    ("path", "README.md", "See `crates/gone/src/lib.rs`.\n"),
    ("reach", "docs/orphan.md", "# O\n\n[start](../README.md)\n"),
    ("reach", "docs/orphan.md", "# O\n\n[itself](orphan.md#o)\n"),
    ("name", "README.md", "See `Worker::gone`.\n"),
    ("excerpt", "docs/embedding.md", "\n```rust\npub struct C;\n```\n"),
    ("translation", "docs/lab/ja/a.md", "## い\n"),
    ("translation", "docs/lab/ja/a.md", "11 ms\n"),
    ("translation", "docs/lab/zh-Hant/a.md", "`y`\n"),
    ("coded", "crates/encke-live/src/lib.rs", "fn d() { CodedText::new(\"new\", \"it came\") }\n"),
    ("coded", "crates/encke-live/src/lib.rs", "fn d() { CodedText::new(\"gone\", \"it went\") }\n"),
    ("coded", "crates/encke-live/src/lib.rs", "fn d() { CodedText::new(CODE, \"it went\") }\n"),
    ("coded", "console/src/messages/en/server.json", "  \"unused\": \"never\"\n"),
    ("metric", "docs/operations.md", "| `encke_gone_total` |\n"),
    ("metric", "crates/encke-hub/src/lib.rs", "fn c() { count(\"encke_new_total\") }\n"),
    (
        "table",
        "crates/encke-server/src/close.rs",
        "//! Close.\nclose_reasons! {\n    Gone Peer \"gone\" \"It is gone.\",\n}\n",
    ),
    ("changelog", "CHANGELOG.md", "## [0.2.0] - Unreleased\n"),
    ("changelog", "CHANGELOG.md", "### News\n"),
    ("changelog", "CHANGELOG.md", "## soon\n"),
];

/// A file with too many lines.
const LONG: &str = "//! Long.\n";
const LONG_TIMES: usize = 901;

#[test]
fn the_clean_tree_is_clean() {
    let found = check(&tree(None), &[], &[]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn each_planted_fault_is_found_by_its_rule_alone() {
    for planted in planted() {
        let found = check(&tree(Some(&planted)), &[], &[]);
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
    assert!(check(&tree(Some(&shared)), &[exception], &[]).is_empty());

    let exception = Exception { rule: "dependency", place: "libc", why: "for this test" };
    let found = check(&tree(None), &[exception], &[]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn a_ratchet_allows_its_figure_and_no_larger_one() {
    const FILE: &str = "crates/encke-io/src/more.rs";
    let found = |lines: usize, limit: RatchetLimit| {
        let planted = Planted::new("size", FILE, LONG.repeat(lines));
        let ratchet = Ratchet { rule: "size", place: FILE, limit, why: "for this test" };
        let found = check(&tree(Some(&planted)), &[], &[ratchet]);
        found.into_iter().map(|finding| finding.text).collect::<Vec<_>>()
    };
    for (lines, limit) in
        [(901, RatchetLimit::UpTo(950)), (950, RatchetLimit::UpTo(950)), (950, RatchetLimit::Exactly(950))]
    {
        assert!(found(lines, limit).is_empty(), "{lines} lines, {limit:?}");
    }
    for (lines, limit, text) in [
        (951, RatchetLimit::UpTo(950), "950 before; 951 lines"),
        (951, RatchetLimit::Exactly(950), "950 before; 951 lines"),
        (949, RatchetLimit::Exactly(950), "950 before, 949 now"),
        (900, RatchetLimit::UpTo(950), "no longer needed"),
        (900, RatchetLimit::Exactly(950), "no longer needed"),
    ] {
        let found = found(lines, limit);
        assert!(found.len() == 1 && found[0].contains(text), "{lines} lines, {limit:?}: {found:?}");
    }
}

/// A planted fault.
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

/// Returns the faults of the table, and the faults that this file may not contain literally.
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
    for name in existing() {
        let path = format!("crates/{name}/Cargo.toml");
        if !files.iter().any(|(other, _)| *other == path) {
            files.push((path, b"[package]\n".to_vec()));
        }
        let row = format!("| `{name}` | x |\n");
        files
            .iter_mut()
            .filter(|(path, _)| path == "ARCHITECTURE.md")
            .for_each(|(_, map)| map.extend(row.as_bytes()));
    }
    if let Some(Planted { path, text, .. }) = planted {
        match files.iter_mut().find(|(other, _)| other == path) {
            Some((_, bytes)) => bytes.extend_from_slice(text.as_bytes()),
            None => files.push(((*path).to_owned(), text.as_bytes().to_vec())),
        }
    }
    Tree::of(files)
}
