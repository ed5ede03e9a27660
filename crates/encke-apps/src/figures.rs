//! The metrics of applications, their part of the status, and the list of their processes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use encke_io::clock::Clock;
use encke_io::lock;
use encke_stats::{Cell, Family, ListTicket, Query, Row, Source};

/// The state of an application, as the supervisor sees it.
#[derive(Clone, Debug)]
pub(crate) struct AppState {
    pub(crate) name: Arc<str>,
    pub(crate) processes: Vec<AppProcess>,
}

/// A process of an application.
#[derive(Clone, Debug)]
pub(crate) struct AppProcess {
    /// From 0.
    pub(crate) number: usize,
    /// `None` between an end and the next start.
    pub(crate) pid: Option<i32>,
    pub(crate) phase: &'static str,
    pub(crate) address: SocketAddr,
    /// The time of its start, in ms since 1970.
    pub(crate) started_ms: Option<u64>,
    pub(crate) last_end: Option<AppEnd>,
}

/// The unasked end of a process.
#[derive(Clone, Debug)]
pub(crate) struct AppEnd {
    /// The exit status or signal, in words.
    pub(crate) text: Arc<str>,
    /// In ms since 1970.
    pub(crate) time_ms: u64,
}

/// The figures of an application.
#[derive(Clone, Debug)]
pub(crate) struct AppTally {
    state: AppState,
    restarts: u64,
}

impl AppTally {
    /// Replaces the states. Figures of applications that are gone are removed.
    pub(crate) fn update(tallies: &mut Vec<Self>, states: Vec<AppState>) {
        let mut updated: Vec<Self> = states
            .into_iter()
            .map(|state| {
                let old = tallies.iter().find(|old| old.state.name == state.name);
                Self { restarts: old.map_or(0, |old| old.restarts), state }
            })
            .collect();
        updated.sort_by(|one, other| one.state.name.cmp(&other.state.name));
        *tallies = updated;
    }

    /// Counts a process that has ended unasked.
    pub(crate) fn count_restart(tallies: &mut [Self], app: &str) {
        if let Some(tally) = tallies.iter_mut().find(|tally| *tally.state.name == *app) {
            tally.restarts += 1;
        }
    }

    fn ready(&self) -> u64 {
        self.state.processes.iter().filter(|process| process.phase == "ready").count() as u64
    }
}

/// The source of all applications.
pub(crate) struct AppFigures(pub(crate) Arc<Mutex<Vec<AppTally>>>);

impl Source for AppFigures {
    fn name(&self) -> &'static str {
        "apps"
    }

    fn families(&self) -> Vec<Family> {
        let tallies = lock(&self.0).clone();
        if tallies.is_empty() {
            return Vec::new();
        }
        let mut ready = Family::gauge("encke_app_ready_processes", "Processes of applications that respond.");
        let mut restarts =
            Family::counter("encke_app_restarts_total", "Processes of applications that ended unasked.");
        for tally in &tallies {
            ready = ready.labelled("app", &*tally.state.name, tally.ready());
            restarts = restarts.labelled("app", &*tally.state.name, tally.restarts);
        }
        vec![ready, restarts]
    }

    fn status(&self) -> Option<serde_json::Value> {
        let tallies = lock(&self.0).clone();
        let apps = tallies.iter().map(|tally| {
            let last_end = tally.state.processes.iter().filter_map(|process| process.last_end.as_ref());
            let last_end = last_end.max_by_key(|end| end.time_ms);
            let ready = serde_json::json!({
                "ready": tally.ready(),
                "processes": tally.state.processes.len(),
                "restarts": tally.restarts,
                "last_end": last_end.map(|end| &*end.text),
                "last_end_ms": last_end.map(|end| end.time_ms),
            });
            (tally.state.name.to_string(), ready)
        });
        (!tallies.is_empty()).then(|| serde_json::Value::Object(apps.collect()))
    }

    fn columns(&self) -> &'static [&'static str] {
        &["app", "number", "pid", "state", "address", "since_s", "restarts", "last_end", "last_end_ms"]
    }

    fn list(&self, _: &Query, ticket: ListTicket) {
        let tallies = lock(&self.0).clone();
        let now_ms = Clock::new().now().unix_ns / 1_000_000;
        for tally in &tallies {
            ticket.add(tally.state.processes.iter().map(|process| tally.row(process, now_ms)));
        }
    }
}

impl AppTally {
    /// Returns the row of a process. It has no `since_s` between an end and the next start.
    fn row(&self, process: &AppProcess, now_ms: u64) -> Row {
        let AppProcess { number, pid, phase, address, started_ms, last_end } = process;
        let since_s = started_ms.map(|started_ms| now_ms.saturating_sub(started_ms) as f64 / 1e3);
        let mut cells: Vec<(&'static str, Cell)> = vec![
            ("app", self.state.name.to_string().into()),
            ("number", (*number as u64 + 1).into()),
            ("pid", pid.map_or(0, |pid| pid.unsigned_abs().into()).into()),
            ("state", (*phase).into()),
            ("address", address.to_string().into()),
        ];
        cells.extend(since_s.map(|since_s| ("since_s", since_s.into())));
        cells.push(("restarts", self.restarts.into()));
        if let Some(AppEnd { text, time_ms }) = last_end {
            cells.push(("last_end", text.to_string().into()));
            cells.push(("last_end_ms", (*time_ms).into()));
        }
        Row(cells)
    }
}
