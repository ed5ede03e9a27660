//! `comet` (report 001): N clients connect at once, one message is published, all receive it, all leave.
//!
//! ```text
//!  a server for each round: its memory is that of these N connections
//!    ├─ connect: all at once, until the last one has its response ─────── c
//!    ├─ memory:  the process before the first one, and now ────────────── VSZ, RSS
//!    └─ one message ──► received by the first one ────────► received by the last one
//!             └── first ──────┘└─────────── r ─────────────┘
//! ```
//! `encke load` provides the clients, on one thread. Their own time is part of every result.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use encke_io::host;
use encke_load::push::{Dialect, Memory, Preset, PushRun, PushRunPlan, Transport};

use crate::error::LabError;
use crate::experiment::{
    Absent, CellIndex, CellSample, Claim, Design, DesignRow, Drawn, Experiment, Fact, Judged, Load, LoadAxis,
    Seen, Way, loads_within,
};
use crate::helper::HelperThread;
use crate::results::Results;
use crate::rounds::RoundPace;
use crate::served::RunningServer;

/// The clients' transport, and the server's limit of connections.
struct Chat {
    transport: Transport,
    connections: Option<NonZeroU32>,
    way: Way,
    name: &'static str,
}

const ROWS: [Chat; 4] = [
    Chat { transport: Transport::Poll, connections: None, way: Way::Old, name: "long poll" },
    Chat { transport: Transport::Sse, connections: None, way: Way::Encke, name: "event stream" },
    Chat { transport: Transport::Ws, connections: None, way: Way::Encke, name: "WebSocket" },
    Chat {
        transport: Transport::Sse,
        connections: NonZeroU32::new(FLAT as u32),
        way: Way::Old,
        name: "event stream, 1,000 connections allowed",
    },
];
const STREAM: usize = 1;
const CAPPED: usize = 3;
/// The number of connections where the report's memory curve becomes flat.
const FLAT: usize = 1_000;

/// Numbers of clients. The report had those up to 2,000.
const CROWDS: [usize; 11] = [10, 50, 100, 200, 300, 500, FLAT, LARGE, 5_000, 10_000, 18_000];
const CROWDS_QUICK: [usize; 5] = [10, 100, 500, FLAT, LARGE];
const LARGE: usize = 2_000;

/// Descriptors for everything but the connections.
const DESCRIPTORS_ASIDE: u64 = 256;

/// Timeout for connections and messages.
const PATIENCE: Duration = Duration::from_secs(10);
/// Timeout where the server admits only some of the clients.
const PATIENCE_CAPPED: Duration = Duration::from_millis(600);

const C: &str = "c, ms";
const R: &str = "r, ms";
const FIRST: &str = "publish to first, ms";
const VSZ: &str = "VSZ, KB";
const RSS: &str = "RSS, KB";
const EACH: &str = "RSS a connection, bytes";
const HELD: &str = "held";

/// The report's figures. From 500 on, the listener had a larger backlog.
const REPORTED_C_MS: &[(f64, f64)] = &[
    (10.0, 8.6),
    (50.0, 46.0),
    (100.0, 92.4),
    (200.0, 199.0),
    (300.0, 3_310.0),
    (500.0, 599.0),
    (1_000.0, 1_350.0),
    (2_000.0, 2_620.0),
];
const REPORTED_R_MS: &[(f64, f64)] = &[
    (10.0, 0.83),
    (50.0, 28.3),
    (100.0, 73.0),
    (200.0, 234.0),
    (300.0, 528.0),
    (500.0, 1_180.0),
    (1_000.0, 4_650.0),
    (2_000.0, 9_480.0),
];
const REPORTED_VSZ_KB: &[(f64, f64)] =
    &[(50.0, 14_232.0), (500.0, 18_980.0), (1_000.0, 24_260.0), (2_000.0, 24_656.0)];

pub(super) struct Comet {
    design: Design,
    crowds: Vec<usize>,
    aside: HelperThread,
    program: Option<PathBuf>,
}

impl Comet {
    pub(super) fn new(pace: &RoundPace) -> Self {
        let most = host::raise_descriptor_limit().saturating_sub(DESCRIPTORS_ASIDE).max(1);
        let crowds = within(loads_within(&CROWDS, &CROWDS_QUICK, pace), most);
        let named = |&crowd: &usize| {
            let cut = if CROWDS.contains(&crowd) { "" } else { " (the limit here)" };
            Load::amount(format!("{crowd}{cut}"), crowd as f64)
        };
        let drawn = |fact, reported| Drawn { fact, reported };
        let design = Design {
            name: "comet",
            unit: "a message, from its publishing to the last receiver",
            judged: Judged::Wall,
            rows: ROWS.iter().map(|row| DesignRow::new(row.way, row.name)).collect(),
            loads: crowds.iter().map(named).collect(),
            axis: LoadAxis::Amounts("subscribed clients"),
            drawn: vec![
                drawn(C, REPORTED_C_MS),
                drawn(R, REPORTED_R_MS),
                drawn(VSZ, REPORTED_VSZ_KB),
                drawn(RSS, &[]),
                drawn(EACH, &[]),
            ],
        };
        Self { design, crowds, aside: HelperThread::start("comet"), program: pace.program.clone() }
    }
}

/// Keeps the numbers of clients for which there are enough descriptors. If any are removed, adds the largest possible number.
fn within(mut crowds: Vec<usize>, most: u64) -> Vec<usize> {
    let all = crowds.len();
    crowds.retain(|crowd| *crowd as u64 <= most);
    let largest = usize::try_from(most).unwrap_or(usize::MAX);
    // A number that is hardly larger than the previous one adds no information.
    if crowds.len() < all && crowds.last().is_none_or(|last| largest > last + last / 4) {
        crowds.push(largest);
    }
    crowds
}

impl Experiment for Comet {
    fn design(&self) -> &Design {
        &self.design
    }

    fn measure(&mut self, cell: CellIndex, count: u64) -> Result<CellSample, Absent> {
        let (row, crowd) = (&ROWS[cell.row], self.crowds[cell.load]);
        if row.connections.is_some() && (crowd < FLAT || self.program.is_none()) {
            return Err(Absent("measured only from 1,000 on, for memory".into()));
        }
        if row.connections.is_some() && crowd > LARGE {
            return Err(Absent("measured only up to 2,000".into()));
        }
        let mut all = CellSample::default();
        for _ in 0..count {
            let program = self.program.clone();
            let one = self
                .aside
                .run(move || cycle(row, crowd, program))
                .unwrap_or(Err(LabError::Ended("its thread panicked or could not start")))?;
            all = CellSample {
                wall_ns: all.wall_ns + one.wall_ns,
                cpu_ns: all.cpu_ns + one.cpu_ns,
                facts: one.facts,
                ..CellSample::default()
            };
        }
        Ok(all)
    }

    /// Each operation starts a server.
    fn count_max(&self) -> u64 {
        1
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let load = |crowd| self.crowds.iter().position(|known| *known == crowd);
        let every = |crowd, bound, fact| match load(crowd) {
            Some(load) => Claim::all((0..CAPPED).map(|row| {
                results.found_at_most(bound, CellIndex { row, load }, fact, |ms| format!("{ms:.1} ms"))
            })),
            None => Claim::unclear(),
        };
        let small = load(LARGE).map_or_else(Claim::unclear, |load| {
            Claim::all((0..CAPPED).map(|row| {
                results.found_at_most(2_048.0, CellIndex { row, load }, EACH, |bytes| {
                    format!("{bytes:.0} bytes")
                })
            }))
        });
        vec![
            every(LARGE, 9_480.0 / 100.0, R),
            every(LARGE, 2_620.0 / 5.0, C),
            every(500, 1_000.0, C),
            small,
            self.flat(results),
        ]
    }
}

impl Comet {
    /// Claims that with a limit of 1,000 connections, 2,000 clients take as much memory as 1,000; without the limit they take
    /// more.
    fn flat(&self, results: &Results) -> Claim {
        let load = |crowd| self.crowds.iter().position(|known| *known == crowd);
        let (Some(fewer), Some(more)) = (load(FLAT), load(LARGE)) else { return Claim::unclear() };
        let taken = |row, load| results.found(CellIndex { row, load }, TAKEN);
        let (Some(before), Some(after), Some(free_before), Some(free_after)) =
            (taken(CAPPED, fewer), taken(CAPPED, more), taken(STREAM, fewer), taken(STREAM, more))
        else {
            return Claim::unclear();
        };
        // Half of the growth without a limit is far from both cases.
        let is_flat = after.median - before.median < (free_after.median - free_before.median) / 2.0;
        let figure = format!(
            "RSS beyond an empty server's at 1,000 and 2,000: {:.0} and {:.0} KB; with 1,000 allowed {:.0} and {:.0} KB",
            free_before.median, free_after.median, before.median, after.median
        );
        Claim { seen: if is_flat { Seen::Yes } else { Seen::No }, figure: figure.into() }
    }
}

/// Memory of the server beyond that of the empty server.
const TAKEN: &str = "RSS of all connections, KB";

/// One round of the report, against a server of its own.
fn cycle(chat: &Chat, crowd: usize, program: Option<PathBuf>) -> Result<CellSample, LabError> {
    let served = RunningServer::start(program.as_deref(), chat.connections)?;
    let address = served.address();
    let dialect = Dialect::of(Preset::Encke, chat.transport, false)
        .ok_or_else(|| LabError::unexpected("Encke has no such transport"))?;
    let capped = chat.connections.is_some();
    let subscribers = u32::try_from(crowd);
    let plan = PushRunPlan {
        channels: vec!["comet".into()],
        subscribers: subscribers.map_err(|_| LabError::unexpected("too many subscribers"))?,
        cycles: Some(1),
        timeout: if capped { PATIENCE_CAPPED } else { PATIENCE },
        watch: served.process(),
        ..PushRunPlan::new(address, address.to_string(), dialect, chat.transport, 1)
    };
    let mut run = PushRun::start(plan)?;
    while !run.wait(PATIENCE) {}
    let outcome = run.outcome()?;
    let Some(round) = outcome.rounds.first() else {
        return Err(LabError::unexpected("the round was not completed"));
    };
    let (held, received) = (round.held, round.received);
    if !capped && (held as usize != crowd || received != held) {
        return Err(LabError::unexpected(format!(
            "of {crowd}, {held} were there and {received} had the message"
        )));
    }
    let ms = |ns: u64| Fact::Number(ns as f64 / 1e6);
    let mut facts = vec![(C, ms(round.connect_ns)), (FIRST, ms(round.first_ns)), (R, ms(round.spread_ns))];
    let kilobytes = |bytes: u64| Fact::Number(bytes as f64 / 1024.0);
    if let (Some((resident, _)), Some(mapped)) = (outcome.server, outcome.server_mapped) {
        let Memory { before_bytes, held_bytes } = resident;
        facts.push((VSZ, kilobytes(mapped.held_bytes)));
        facts.push((RSS, kilobytes(held_bytes)));
        facts.push((TAKEN, kilobytes(held_bytes.saturating_sub(before_bytes))));
        facts.push((EACH, Fact::Number(resident.each(held).round())));
    }
    if capped {
        // Clients that were not admitted have no times.
        facts.retain(|(name, _)| ![C, R, FIRST].contains(name));
        facts.push((HELD, Fact::Number(held.into())));
        return Ok(CellSample { facts, ..CellSample::default() });
    }
    Ok(CellSample { wall_ns: round.first_ns + round.spread_ns, facts, ..CellSample::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_every_transport_everybody_has_what_was_said() {
        for chat in &ROWS[..CAPPED] {
            let sample = cycle(chat, 20, None).expect("loopback works");
            assert!(sample.wall_ns > 0, "{}", chat.name);
            let told: Vec<&str> = sample.facts.iter().map(|(name, _)| *name).collect();
            assert_eq!(told, [C, FIRST, R], "memory is told of a server that has a process of its own");
        }
    }

    #[test]
    fn what_there_are_no_descriptors_for_is_cut_and_said() {
        assert_eq!(within(vec![10, 500, 18_000], 20_000), [10, 500, 18_000]);
        assert_eq!(within(vec![10, 500, 18_000], 768), [10, 500, 768]);
        assert_eq!(within(vec![10, 500, 18_000], 600), [10, 500], "a fifth more shows nothing more");
    }
}
