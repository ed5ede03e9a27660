//! `backlog` (report 001): how long N clients take to connect at once, depending on the listener's backlog.
//!
//! ```text
//!  N connects, one after the other ──► the kernel's queue: `backlog` of them; it silently drops the others
//!                                             │                          └── tried again after 1 s, 3 s, 7 s …
//!  then accept, until all are connected ◄─────┘
//! ```
//! One thread runs both ends, so that nothing is accepted before the last connect has started.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use encke_io::offload::Pool;
use encke_io::socket::{self, Address, ListenOptions};
use encke_io::{Event, Listener, Op, OpKind, PlainReactor, Reactor as _, ReactorSource, Token, host};

use crate::error::LabError;
use crate::experiment::{
    Absent, CellIndex, CellSample, Claim, Design, DesignRow, Experiment, Fact, Judged, Load, LoadAxis, Seen,
    Way, is_windows, loads_within,
};
use crate::results::Results;
use crate::rounds::RoundPace;
use crate::stopwatch;

/// Backlogs that programs request. The first was the value of SOMAXCONN for decades.
const ROWS: [(u32, Way, &str); 4] = [
    (16, Way::Old, "backlog 16"),
    (128, Way::Old, "backlog 128"),
    (511, Way::Peer, "backlog 511, a common value"),
    (ENCKE, Way::Encke, "backlog 4096, Encke's default"),
];
/// The default of `server.backlog`.
const ENCKE: u32 = 4096;

/// Clients that connect at once. The report's limit was at about 230.
const BURSTS: [usize; 5] = [100, 230, 600, 1_000, 3_000];
/// A round has three cells that take a second, and at least nine rounds are run: some 30 s.
const BURSTS_QUICK: [usize; 3] = [100, 230, 600];
const EDGE: usize = 230;
const BEYOND: usize = 600;

/// Descriptors for everything but the connections, which take two each.
const DESCRIPTORS_ASIDE: u64 = 128;

/// Three attempts of TCP take 3 s, four take 7 s; clients that are not connected then are given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lower bound of the first retry: it follows after 1 s (RFC 6298 §2.1), which the kernel counts in steps of a few ms.
const SECOND_NS: f64 = 0.9e9;

/// The difference on Windows.
const ON_WINDOWS: &str = "Windows does not drop the attempts that a full queue has no room for: it rejects them, and its TCP repeats \
                          them sooner. It does not count them.";

pub(super) struct BacklogExperiment {
    design: Design,
    rows: &'static [(u32, Way, &'static str)],
    bursts: Vec<usize>,
}

impl BacklogExperiment {
    pub(super) fn new(pace: &RoundPace) -> Self {
        let most = host::raise_descriptor_limit().saturating_sub(DESCRIPTORS_ASIDE) / 2;
        let mut bursts = loads_within(&BURSTS, &BURSTS_QUICK, pace);
        // A reduced burst would need another name, so it is left out.
        bursts.retain(|burst| *burst as u64 <= most);
        // With a backlog of 16 every burst takes a second or more, which does not fit into three minutes.
        let rows = if pace.quick { &ROWS[1..] } else { &ROWS[..] };
        let allowed = host::backlog_limit().unwrap_or(u32::MAX);
        let named = |&(backlog, way, name): &(u32, Way, &str)| {
            let cut =
                if backlog > allowed { format!("; the system allows {allowed}") } else { String::new() };
            DesignRow::new(way, format!("{name}{cut}"))
        };
        let design = Design {
            name: "backlog",
            unit: "a burst, until the last client is connected",
            judged: Judged::Wall,
            rows: rows.iter().map(named).collect(),
            loads: bursts.iter().map(|&burst| Load::amount(burst.to_string(), burst as f64)).collect(),
            axis: LoadAxis::Amounts("clients that connect at once"),
            drawn: Vec::new(),
        };
        Self { design, rows, bursts }
    }
}

impl Experiment for BacklogExperiment {
    fn design(&self) -> &Design {
        &self.design
    }

    fn measure(&mut self, cell: CellIndex, count: u64) -> Result<CellSample, Absent> {
        let mut all = CellSample::default();
        for _ in 0..count {
            let one = burst(self.rows[cell.row].0, self.bursts[cell.load])?;
            all = CellSample {
                wall_ns: all.wall_ns + one.wall_ns,
                cpu_ns: all.cpu_ns + one.cpu_ns,
                facts: one.facts,
                ..CellSample::default()
            };
        }
        Ok(all)
    }

    fn difference(&self) -> Option<&'static str> {
        is_windows().then_some(ON_WINDOWS)
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let row =
            |backlog| self.rows.iter().position(|(known, ..)| *known == backlog).expect("it is in the table");
        let load = |burst| self.bursts.iter().position(|known| *known == burst);
        let takes_a_second = |backlog, burst| {
            let cell = load(burst).map(|load| CellIndex { row: row(backlog), load });
            let Some(time) = cell.and_then(|cell| results.wall(cell)) else { return Claim::unclear() };
            let seen = match time {
                time if time.low >= SECOND_NS => Seen::Yes,
                time if time.high < SECOND_NS => Seen::No,
                _ => Seen::Unclear,
            };
            Claim { seen, figure: format!("{burst} at {backlog}: {:.3} s", time.median / 1e9).into() }
        };
        let quicker = |backlog, burst: Option<usize>| match burst {
            Some(load) => results.at_most(0.2, row(backlog), row(128), load),
            None => Claim::unclear(),
        };
        vec![
            takes_a_second(128, EDGE),
            quicker(ENCKE, load(EDGE)),
            Claim::all([quicker(511, load(EDGE)), takes_a_second(511, BEYOND)]),
            quicker(ENCKE, self.bursts.len().checked_sub(1)),
        ]
    }
}

/// Opens `clients` connections at once to a listener with this backlog, on a port of its own.
fn burst(backlog: u32, clients: usize) -> Result<CellSample, LabError> {
    let pool = Pool::start(1, 1)?;
    let mut reactor = PlainReactor::new(pool.clone())?;
    let any = Address::Inet(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let listener = Listener::bind(&any, ListenOptions { backlog, shared: false, mode: None })?;
    let Address::Inet(address) = *listener.address() else {
        return Err(LabError::unexpected("a TCP listener has another address"));
    };
    let door = reactor.adopt(ReactorSource::Listener(listener))?;
    let mut ends = Vec::with_capacity(clients);
    for _ in 0..clients {
        let stream = socket::unconnected(&address, None)?;
        ends.push(reactor.adopt(ReactorSource::Stream(stream))?);
    }
    let mut accepted: Vec<Token> = Vec::with_capacity(clients);
    let mut connected = 0;
    let mut result = Ok(());
    let mut sample = stopwatch::time(|| {
        for &end in &ends {
            reactor.submit(end, Op::Connect(address));
        }
        reactor.submit(door, Op::Accept);
        result = settle(&mut reactor, clients, &mut connected, &mut accepted);
    });
    result?;
    let dropped = reactor.listen_drops(door).map(|drops| ("dropped", Fact::Number(drops.into())));
    sample.facts = dropped.into_iter().collect();
    let waiting = connected.saturating_sub(accepted.len());
    sample.facts.push(("connected, not accepted", Fact::Number(waiting as f64)));
    // Resets the connections, so that no port stays in TIME-WAIT (RFC 9293).
    for token in ends.into_iter().chain(accepted) {
        reactor.submit(token, Op::Abort);
    }
    pool.close();
    Ok(sample)
}

/// Accepts until `clients` clients are connected.
fn settle(
    reactor: &mut PlainReactor,
    clients: usize,
    connected: &mut usize,
    accepted: &mut Vec<Token>,
) -> Result<(), LabError> {
    let until = reactor.now().plus(PATIENCE);
    while *connected < clients {
        let now = reactor.wait(Some(until))?;
        while let Some(event) = reactor.next() {
            match event {
                Event::Connected { .. } => *connected += 1,
                Event::Accepted { token, .. } => accepted.push(token),
                Event::Failed { op: OpKind::Connect | OpKind::Accept, fault, .. } => {
                    return Err(fault.into());
                }
                _ => {}
            }
        }
        if now.mono_ns >= until {
            return Err(LabError::unexpected(format!(
                "{} of {clients} were not connected within {} s",
                clients - *connected,
                PATIENCE.as_secs()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's count, where there is one.
    fn dropped(sample: &CellSample) -> Option<f64> {
        match sample.facts[..] {
            [("dropped", Fact::Number(dropped)), ..] => Some(dropped),
            _ => None,
        }
    }

    /// The slow case is recognized by the kernel's count, and by a clock that cannot run too fast.
    #[test]
    fn a_burst_that_the_backlog_does_not_hold_takes_a_second_and_one_that_it_holds_drops_nobody() {
        let held = burst(64, 32).expect("loopback works");
        assert_eq!(dropped(&held).unwrap_or(0.0), 0.0);
        // Windows counts nothing, and its TCP repeats sooner.
        if is_windows() {
            return;
        }
        let overflown = burst(4, 32).expect("loopback works");
        assert!(dropped(&overflown).is_some_and(|dropped| dropped >= 1.0), "{overflown:?}");
        assert!(overflown.wall_ns as f64 >= SECOND_NS, "{overflown:?}");
    }

    #[test]
    fn the_default_is_that_of_the_settings() {
        let settings = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/encke.toml");
        let text = std::fs::read_to_string(settings).expect("it is part of the source");
        assert!(text.contains(&format!("backlog = {ENCKE}\n")));
    }
}
