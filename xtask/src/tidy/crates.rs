//! The map of crates and its rules: dependencies, `unsafe`, operating systems, clocks, sleeps.

use super::TidyFindings;
use super::manifest::{self, DependencyKind};
use super::source::{RustLine, has_word};
use super::tree::Tree;

/// A crate of the workspace.
struct CrateRule {
    name: &'static str,
    /// The crates that it may use, all of which are further down in the table.
    below: &'static [&'static str],
    /// The paths that may contain `unsafe`; empty for none.
    unsafe_in: &'static [&'static str],
}

/// Every crate. A crate precedes the crates it depends on.
const ROOMS: &[CrateRule] = &[
    CrateRule {
        name: "encke",
        below: &[
            "encke-lab",
            "encke-load",
            "encke-assembly",
            "encke-live",
            "encke-push",
            "encke-rights",
            "encke-site",
            "encke-server",
            "encke-session",
            "encke-settings",
            "encke-io",
            "encke-wire",
            "encke-stats",
        ],
        unsafe_in: &[],
    },
    CrateRule {
        name: "encke-lab",
        below: &[
            "encke-load",
            "encke-assembly",
            "encke-server",
            "encke-settings",
            "encke-io",
            "encke-wire",
            "encke-stats",
        ],
        unsafe_in: &["crates/encke-lab/src/specimens/"],
    },
    CrateRule {
        name: "encke-load",
        below: &["encke-session", "encke-io", "encke-wire", "encke-stats"],
        unsafe_in: &[],
    },
    CrateRule {
        name: "encke-assembly",
        below: &[
            "encke-console",
            "encke-apps",
            "encke-gateway",
            "encke-live",
            "encke-push",
            "encke-site",
            "encke-rights",
            "encke-server",
            "encke-session",
            "encke-settings",
            "encke-broker",
            "encke-hub",
            "encke-io",
            "encke-wire",
            "encke-stats",
        ],
        unsafe_in: &[],
    },
    CrateRule {
        name: "encke-console",
        below: &["encke-rights", "encke-server", "encke-settings", "encke-io", "encke-wire", "encke-stats"],
        unsafe_in: &[],
    },
    CrateRule {
        name: "encke-apps",
        below: &["encke-settings", "encke-io", "encke-wire", "encke-stats"],
        unsafe_in: &[],
    },
    CrateRule {
        name: "encke-gateway",
        below: &["encke-server", "encke-session", "encke-settings", "encke-io", "encke-wire", "encke-stats"],
        unsafe_in: &[],
    },
    CrateRule {
        name: "encke-live",
        below: &[
            "encke-push",
            "encke-server",
            "encke-session",
            "encke-settings",
            "encke-hub",
            "encke-io",
            "encke-wire",
            "encke-stats",
        ],
        unsafe_in: &[],
    },
    CrateRule {
        name: "encke-push",
        below: &[
            "encke-rights",
            "encke-server",
            "encke-settings",
            "encke-broker",
            "encke-hub",
            "encke-io",
            "encke-wire",
            "encke-stats",
        ],
        unsafe_in: &[],
    },
    CrateRule {
        name: "encke-site",
        below: &["encke-server", "encke-settings", "encke-io", "encke-wire", "encke-stats"],
        unsafe_in: &[],
    },
    CrateRule {
        name: "encke-rights",
        below: &[
            "encke-server",
            "encke-session",
            "encke-settings",
            "encke-hub",
            "encke-io",
            "encke-wire",
            "encke-stats",
        ],
        unsafe_in: &[],
    },
    CrateRule {
        name: "encke-server",
        below: &["encke-session", "encke-settings", "encke-io", "encke-wire", "encke-stats"],
        unsafe_in: &[],
    },
    CrateRule {
        name: "encke-session",
        below: &["encke-settings", "encke-io", "encke-wire", "encke-stats"],
        unsafe_in: &[],
    },
    CrateRule { name: "encke-settings", below: &["encke-io", "encke-wire"], unsafe_in: &[] },
    CrateRule { name: "encke-broker", below: &["encke-hub", "encke-io"], unsafe_in: &[] },
    CrateRule { name: "encke-hub", below: &[], unsafe_in: &[] },
    CrateRule { name: "encke-io", below: &[], unsafe_in: &["crates/encke-io/"] },
    CrateRule { name: "encke-wire", below: &[], unsafe_in: &["crates/encke-wire/src/scan/"] },
    CrateRule { name: "encke-stats", below: &[], unsafe_in: &[] },
];

/// Crates of the table that do not exist yet. Their dependencies are checked once they exist.
const PLANNED: &[&str] = &[];

/// Returns the crates that exist, for the trees of tests.
#[cfg(test)]
pub(super) fn existing() -> impl Iterator<Item = &'static str> {
    ROOMS.iter().map(|room| room.name).filter(|name| !PLANNED.contains(name))
}

/// The only crate that depends on the operating system and reads clocks.
const GROUND: &str = "crates/encke-io/";

/// Rule: a crate uses only crates below it. The table and ARCHITECTURE.md contain every crate.
pub(super) fn arrows(tree: &Tree, findings: &mut TidyFindings) {
    check_arrows(tree, ROOMS, PLANNED, findings);
}

const MAP: &str = "ARCHITECTURE.md";

fn check_arrows(tree: &Tree, rooms: &[CrateRule], planned: &[&str], findings: &mut TidyFindings) {
    let shown = map_rows(tree.text(MAP).unwrap_or_default());
    let mut existing = Vec::new();
    for (path, text) in manifest::crates(tree) {
        let name = path.trim_start_matches("crates/").trim_end_matches("/Cargo.toml");
        existing.push(name);
        if !shown.contains(&name) {
            findings.add("arrows", MAP, 0, format!("its map does not show `{name}`"));
        }
        if planned.contains(&name) {
            findings.add("arrows", path, 0, format!("{name} exists: remove it from PLANNED in xtask"));
        }
        let Some(room) = rooms.iter().find(|room| room.name == name) else {
            findings.add("arrows", path, 0, format!("{name} is not on the map: add it to ROOMS in xtask"));
            continue;
        };
        for used in manifest::dependencies(text).filter(|used| used.name.starts_with("encke")) {
            // The tests of a crate may depend on the crate itself.
            let own = used.kind == DependencyKind::Development && used.name == name;
            if !own && !room.below.contains(&used.name.as_str()) {
                findings.add("arrows", path, used.line, format!("{} does not lie below {name}", used.name));
            }
        }
    }
    for name in shown.iter().filter(|name| !existing.contains(name)) {
        findings.add("arrows", MAP, 0, format!("its map shows `{name}`, which does not exist"));
    }
    for room in rooms.iter().filter(|room| !existing.contains(&room.name) && !planned.contains(&room.name)) {
        let text =
            format!("{} does not exist: remove it from ROOMS in xtask, or add it to PLANNED", room.name);
        findings.add("arrows", room.name, 0, text);
    }
}

/// Returns the crates in the table of ARCHITECTURE.md: rows that begin with the name of one.
fn map_rows(map: &str) -> Vec<&str> {
    map.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| *name == "encke" || name.starts_with("encke-"))
        .collect()
}

/// Rule: `unsafe` occurs only where its crate allows it.
pub(super) fn unsafe_code(tree: &Tree, findings: &mut TidyFindings) {
    let allowed: Vec<&str> = ROOMS.iter().flat_map(|room| room.unsafe_in).copied().collect();
    let elsewhere = |path: &str| !allowed.iter().any(|place| path.starts_with(place));
    each_line(tree, elsewhere, |path, number, line| {
        if has_word(&line.code, "unsafe") {
            let text = format!("`unsafe` belongs to {}", allowed.join(" and "));
            findings.add("unsafe", path, number, text);
        }
    });
}

/// Maximum distance in lines between an `unsafe` and the start of its reason: a long reason and the head of a statement.
const REASON_LINES: usize = 12;

/// Rule: each `unsafe` block has `SAFETY:` above it, each `unsafe fn` its `# Safety`. Clippy checks only code that is compiled
/// for this machine, not the vector code of other machines.
pub(super) fn safety(tree: &Tree, findings: &mut TidyFindings) {
    for (path, source) in tree.sources() {
        let lines: Vec<&RustLine> = source.lines().map(|(_, line)| line).collect();
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

/// The only place with `cfg` for operating systems, besides tests and the lab's specimens.
const SYSTEMS: &str = "crates/encke-io/src/sys/";
const SPECIMENS: &str = "crates/encke-lab/src/specimens/";

/// Conditions that distinguish operating systems.
const FAMILIES: &[&str] = &["target_os", "target_family", "target_vendor", "unix", "windows"];

/// Rule: only `sys` of encke-io distinguishes operating systems.
pub(super) fn system(tree: &Tree, findings: &mut TidyFindings) {
    let elsewhere = |path: &str| !path.starts_with(SYSTEMS) && !path.starts_with(SPECIMENS);
    each_line(tree, elsewhere, |path, number, line| {
        let is_condition = ["cfg", "cfg_attr"].into_iter().any(|word| has_word(&line.code, word));
        if is_condition && !line.test && FAMILIES.iter().any(|family| has_word(&line.code, family)) {
            findings.add("system", path, number, "what depends on the system belongs to encke-io/src/sys");
        }
    });
}

const CLOCKS: &[&str] = &["Instant::now", "SystemTime::now", "clock_gettime", ".elapsed()"];

/// Rule: only encke-io reads a clock. All other crates receive the time, so that the simulator can provide another. Tests may
/// read it for timeouts, and examples for measurements.
pub(super) fn clock(tree: &Tree, findings: &mut TidyFindings) {
    each_line(tree, above_ground, |path, number, line| {
        let read = CLOCKS.iter().find(|clock| has_word(&line.code, clock));
        if let Some(clock) = read.filter(|_| !line.test && !path.contains("/examples/")) {
            findings.add("clock", path, number, format!("`{clock}`: take the time as an argument"));
        }
    });
}

const SLEEPS: &[&str] = &["thread::sleep", "time::sleep", "sleep_ms", "nanosleep", "usleep"];

/// Rule: nothing sleeps, tests included. Code waits for events.
pub(super) fn sleep(tree: &Tree, findings: &mut TidyFindings) {
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

fn each_line(tree: &Tree, chosen: impl Fn(&str) -> bool, mut look: impl FnMut(&str, usize, &RustLine)) {
    for (path, source) in tree.sources().filter(|(path, _)| chosen(path)) {
        for (number, line) in source.lines() {
            look(path, number, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPPER: CrateRule = CrateRule { name: "encke-upper", below: &["encke-lower"], unsafe_in: &[] };
    const LOWER: CrateRule = CrateRule { name: "encke-lower", below: &[], unsafe_in: &[] };

    fn found(planned: &[&str], files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()));
        let mut findings = TidyFindings::default();
        check_arrows(&Tree::of(files), &[UPPER, LOWER], planned, &mut findings);
        findings.0.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn crates_use_only_crates_further_down_in_the_table() {
        for (place, room) in ROOMS.iter().enumerate() {
            for used in room.below {
                let below = ROOMS[place + 1..].iter().any(|other| other.name == *used);
                assert!(below, "{} uses {used}", room.name);
            }
        }
        for name in PLANNED {
            assert!(ROOMS.iter().any(|room| room.name == *name), "{name} is planned, but not in the table");
        }
    }

    #[test]
    fn a_planned_crate_may_be_absent_and_is_checked_once_it_exists() {
        let map = (MAP, "| `encke-lower` | x |\n");
        let lower = ("crates/encke-lower/Cargo.toml", "[package]\n");
        assert!(found(&["encke-upper"], &[map, lower]).is_empty());
        let both = (MAP, "| `encke-upper` | x |\n| `encke-lower` | x |\n");
        let upper = ("crates/encke-upper/Cargo.toml", "[dependencies]\nencke-lower.workspace = true\n");
        assert!(found(&[], &[both, lower, upper]).is_empty());
        let stale = found(&["encke-upper"], &[both, lower, upper]);
        assert_eq!(stale, ["encke-upper exists: remove it from PLANNED in xtask"]);
        let wrong = ("crates/encke-upper/Cargo.toml", "[dependencies]\nencke-other.workspace = true\n");
        assert_eq!(found(&[], &[both, lower, wrong]), ["encke-other does not lie below encke-upper"]);
        let unknown = ("crates/encke-new/Cargo.toml", "[package]\n");
        let both = (MAP, "| `encke-new` | x |\n| `encke-lower` | x |\n");
        assert_eq!(
            found(&["encke-upper"], &[both, lower, unknown]),
            ["encke-new is not on the map: add it to ROOMS in xtask"]
        );
    }

    #[test]
    fn the_map_shows_exactly_the_crates_that_exist() {
        let lower = ("crates/encke-lower/Cargo.toml", "[package]\n");
        let planned = &["encke-upper"];
        assert_eq!(found(planned, &[lower]), ["its map does not show `encke-lower`"]);
        let both = (MAP, "| `encke-upper` | x |\n| `encke-lower` | x |\n");
        assert_eq!(found(planned, &[both, lower]), ["its map shows `encke-upper`, which does not exist"]);
    }

    #[test]
    fn a_crate_of_the_table_that_is_gone_is_a_finding() {
        let found = found(&["encke-lower"], &[]);
        assert_eq!(
            found,
            ["encke-upper does not exist: remove it from ROOMS in xtask, or add it to PLANNED"]
        );
    }
}
