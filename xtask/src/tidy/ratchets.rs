//! Measured exceptions from rules: today's figures, which may only shrink.
//!
//! A figure above its limit is a finding. So is a figure below a [`RatchetLimit::Exactly`]: lower the limit in the change that reduces
//! the figure.

use std::fmt;

use super::{TidyFinding, TidyFindings};

/// A measured exception from a rule.
pub(super) struct Ratchet {
    pub(super) rule: &'static str,
    /// The measured file, or the source directory of the measured crate.
    pub(super) place: &'static str,
    pub(super) limit: RatchetLimit,
    /// The reason, as `cargo xtask rules` prints it.
    pub(super) why: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum RatchetLimit {
    /// Exactly today's figure.
    Exactly(usize),
    /// Today's figure, rounded up.
    UpTo(usize),
}

impl fmt::Display for RatchetLimit {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(figure) => write!(to, "is at {figure}"),
            Self::UpTo(figure) => write!(to, "is at most {figure}"),
        }
    }
}

pub(super) const RATCHETS: &[Ratchet] = &[
    Ratchet {
        rule: "directory",
        place: "crates/encke-server/src/",
        limit: RatchetLimit::Exactly(13),
        why: "the worker's `Core` has the state of h2/, tls/ and inspect/, and all extend it",
    },
    Ratchet {
        rule: "directory",
        place: "crates/encke-hub/src/",
        limit: RatchetLimit::Exactly(2),
        why: "the sequencer's lists for operators read rosters, which the sequencer owns",
    },
    Ratchet {
        rule: "directory",
        place: "crates/encke-push/src/",
        limit: RatchetLimit::Exactly(7),
        why: "the lists of console/ are walks of the worker that owns channels and subscribers",
    },
    Ratchet {
        rule: "directory",
        place: "crates/encke-load/src/",
        limit: RatchetLimit::Exactly(13),
        why: "each kind of client contributes to the run's report, which the clients' results are part of",
    },
    Ratchet {
        rule: "directory",
        place: "crates/encke/src/",
        limit: RatchetLimit::Exactly(4),
        why: "the flags of `load`, `pub` and `sub` share types with the commands that read them",
    },
    Ratchet {
        rule: "directory",
        place: "crates/encke-io/src/",
        limit: RatchetLimit::Exactly(16),
        why: "sys/ has the calls of each system and its back ends: it implements the traits and types of the files that use it",
    },
    Ratchet {
        rule: "size",
        place: "crates/encke-hub/src/hub.rs",
        limit: RatchetLimit::UpTo(1500),
        why: "one state machine: the subscribers of a worker and their positions",
    },
    Ratchet {
        rule: "size",
        place: "crates/encke-hub/src/sequencer.rs",
        limit: RatchetLimit::UpTo(1300),
        why: "one state machine: offsets, histories and the memory limit change together",
    },
    Ratchet {
        rule: "size",
        place: "crates/encke-hub/tests/orders.rs",
        limit: RatchetLimit::UpTo(1450),
        why: "one model: a world of hubs, and the oracle for what each subscriber receives",
    },
    Ratchet {
        rule: "size",
        place: "crates/encke-io/src/sim.rs",
        limit: RatchetLimit::UpTo(1400),
        why: "one state machine: the simulated network, with one clock and one seed",
    },
    Ratchet {
        rule: "size",
        place: "crates/encke-io/src/sys/linux/uring/mod.rs",
        limit: RatchetLimit::UpTo(1300),
        why: "one state machine: the operations in flight in one ring",
    },
    Ratchet {
        rule: "size",
        place: "crates/encke-load/src/push/audience.rs",
        limit: RatchetLimit::UpTo(1400),
        why: "one state machine: a subscriber from dialing to its last message",
    },
    Ratchet {
        rule: "size",
        place: "crates/encke-load/src/requests.rs",
        limit: RatchetLimit::UpTo(1250),
        why: "one state machine: a user from dialing to its last response",
    },
    Ratchet {
        rule: "size",
        place: "crates/encke-server/src/http1.rs",
        limit: RatchetLimit::UpTo(1300),
        why: "one state machine: a connection of HTTP/1",
    },
    Ratchet {
        rule: "size",
        place: "crates/encke-push/src/push_worker.rs",
        limit: RatchetLimit::UpTo(1200),
        why: "one state machine: push on one worker",
    },
    Ratchet {
        rule: "size",
        place: "crates/encke-push/src/simulation.rs",
        limit: RatchetLimit::UpTo(1150),
        why: "one model: servers, publishers and subscribers in the simulator",
    },
];

/// Removes the findings that the list allows, and adds one for each entry that is no longer true.
pub(super) fn apply(ratchets: &[Ratchet], findings: &mut TidyFindings) {
    for ratchet in ratchets {
        let Ratchet { rule, place, limit, .. } = *ratchet;
        let matches = |finding: &TidyFinding| {
            finding.rule == rule && finding.place == place && finding.figure.is_some()
        };
        let Some(at) = findings.0.iter().position(matches) else {
            findings.add(rule, place, 0, "its limit in RATCHETS is no longer needed: remove it");
            continue;
        };
        let finding = &mut findings.0[at];
        let figure = finding.figure.unwrap_or_default();
        match limit {
            RatchetLimit::Exactly(most) | RatchetLimit::UpTo(most) if figure > most => {
                finding.text = format!("{most} before; {}", finding.text);
            }
            RatchetLimit::Exactly(most) if figure < most => {
                finding.text = format!("{most} before, {figure} now: lower its limit in RATCHETS");
            }
            _ => {
                findings.0.remove(at);
            }
        }
    }
}
