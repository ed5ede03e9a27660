//! The map of crates, and the facts that it draws: arrows, `unsafe`, operating systems, clocks, sleeps.

use super::Findings;
use super::manifest::{self, Kind};
use super::source::{Line, has_word};
use super::tree::Tree;

/// A crate of the workspace, as ARCHITECTURE.md draws it.
struct Room {
    name: &'static str,
    /// The rooms it may use.
    below: &'static [&'static str],
    /// Where in it `unsafe` may stand; empty: nowhere.
    unsafe_in: &'static [&'static str],
}

const ROOMS: &[Room] = &[
    Room {
        name: "encke",
        below: &[
            "encke-lab",
            "encke-server",
            "encke-load",
            "encke-settings",
            "encke-io",
            "encke-wire",
            "encke-stats",
        ],
        unsafe_in: &[],
    },
    Room {
        name: "encke-lab",
        below: &["encke-server", "encke-load", "encke-io", "encke-wire", "encke-stats"],
        unsafe_in: &["crates/encke-lab/src/specimens/"],
    },
    Room { name: "encke-load", below: &["encke-io", "encke-wire", "encke-stats"], unsafe_in: &[] },
    Room {
        name: "encke-server",
        below: &["encke-settings", "encke-broker", "encke-hub", "encke-io", "encke-wire", "encke-stats"],
        unsafe_in: &[],
    },
    Room { name: "encke-settings", below: &["encke-io", "encke-wire"], unsafe_in: &[] },
    Room { name: "encke-broker", below: &["encke-hub"], unsafe_in: &[] },
    Room { name: "encke-hub", below: &[], unsafe_in: &[] },
    Room { name: "encke-io", below: &[], unsafe_in: &["crates/encke-io/"] },
    Room { name: "encke-wire", below: &[], unsafe_in: &["crates/encke-wire/src/scan/"] },
    Room { name: "encke-stats", below: &[], unsafe_in: &[] },
];

/// The one room that knows operating systems and their clocks.
const GROUND: &str = "crates/encke-io/";

/// A crate uses only what lies below it, and every crate is on the map.
pub(super) fn arrows(tree: &Tree, findings: &mut Findings) {
    for (path, text) in manifest::crates(tree) {
        let name = path.trim_start_matches("crates/").trim_end_matches("/Cargo.toml");
        let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
            findings.add("arrows", path, 0, format!("{name} is not on the map: add it to ROOMS in xtask"));
            continue;
        };
        for used in manifest::dependencies(text).filter(|used| used.name.starts_with("encke")) {
            // A crate's own tests may look through its own front door.
            let own = used.kind == Kind::Development && used.name == name;
            if !own && !room.below.contains(&used.name.as_str()) {
                findings.add("arrows", path, used.line, format!("{} does not lie below {name}", used.name));
            }
        }
    }
    let map = tree.text("ARCHITECTURE.md").unwrap_or_default();
    for room in ROOMS.iter().filter(|room| !map.contains(&format!("`{}`", room.name))) {
        findings.add("arrows", "ARCHITECTURE.md", 0, format!("its map does not show `{}`", room.name));
    }
}

/// `unsafe` stands only where its room allows it.
pub(super) fn unsafe_code(tree: &Tree, findings: &mut Findings) {
    let allowed: Vec<&str> = ROOMS.iter().flat_map(|room| room.unsafe_in).copied().collect();
    let elsewhere = |path: &str| !allowed.iter().any(|place| path.starts_with(place));
    each_line(tree, elsewhere, |path, number, line| {
        if has_word(&line.code, "unsafe") {
            let text = format!("`unsafe` belongs to {}", allowed.join(" and "));
            findings.add("unsafe", path, number, text);
        }
    });
}

/// Lines above an `unsafe` in which its reason must begin: a long reason and the head of a statement.
const REASON_LINES: usize = 12;

/// Each `unsafe` block has `SAFETY:` above it, each `unsafe fn` its `# Safety`. Clippy asks for the same, but only
/// of what is compiled for this machine: not of the vector code of another.
pub(super) fn safety(tree: &Tree, findings: &mut Findings) {
    for (path, source) in tree.sources() {
        let lines: Vec<&Line> = source.lines().map(|(_, line)| line).collect();
        for (index, _) in lines.iter().enumerate().filter(|(_, line)| has_word(&line.code, "unsafe")) {
            let above = &lines[index.saturating_sub(REASON_LINES)..=index];
            let reasoned = above
                .iter()
                .any(|line| line.comment.contains("SAFETY:") || line.comment.contains("# Safety"));
            if !reasoned {
                findings.add("safety", path, index + 1, "say above it, after `// SAFETY:`, why it is sound");
            }
        }
    }
}

/// Only the ground knows one operating system from another. `cfg(unix)` may stand elsewhere: it is a family with
/// one standard, and what depends on it (errno, signals) has a meaning there.
pub(super) fn system(tree: &Tree, findings: &mut Findings) {
    each_line(tree, above_ground, |path, number, line| {
        if has_word(&line.code, "target_os") {
            findings.add("system", path, number, "what depends on the system belongs to encke-io");
        }
    });
}

const CLOCKS: &[&str] = &["Instant::now", "SystemTime::now", "clock_gettime", ".elapsed()"];

/// Only the ground reads a clock: all above is given the time, so that the simulator can give another. Tests may
/// read it, to give up at last; so may examples that measure.
pub(super) fn clock(tree: &Tree, findings: &mut Findings) {
    each_line(tree, above_ground, |path, number, line| {
        let read = CLOCKS.iter().find(|clock| has_word(&line.code, clock));
        if let Some(clock) = read.filter(|_| !line.test && !path.contains("/examples/")) {
            findings.add("clock", path, number, format!("`{clock}`: take the time as an argument"));
        }
    });
}

const SLEEPS: &[&str] = &["thread::sleep", "time::sleep", "sleep_ms", "nanosleep", "usleep"];

/// Nothing sleeps, tests included: whoever waits, waits for what happens.
pub(super) fn sleep(tree: &Tree, findings: &mut Findings) {
    each_line(
        tree,
        |_| true,
        |path, number, line| {
            if SLEEPS.iter().any(|sleep| has_word(&line.code, sleep)) {
                findings.add("sleep", path, number, "wait for what is to happen, not for time to pass");
            }
        },
    );
}

fn above_ground(path: &str) -> bool {
    !path.starts_with(GROUND)
}

fn each_line(tree: &Tree, chosen: impl Fn(&str) -> bool, mut look: impl FnMut(&str, usize, &Line)) {
    for (path, source) in tree.sources().filter(|(path, _)| chosen(path)) {
        for (number, line) in source.lines() {
            look(path, number, line);
        }
    }
}
