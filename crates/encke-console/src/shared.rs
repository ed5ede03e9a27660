//! The state that the handler, the ticker and the program share.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use encke_io::clock::Clock;
use encke_io::{host, lock};
use encke_server::ServerStatus;
use encke_settings::{Level, notice};
use encke_stats::{Family, json, prometheus};
use encke_wire::host::HostPattern;
use serde_json::{Value, json};

use crate::audit::Audit;
use crate::history::History;
use crate::live::Ticker;
use crate::log_in::access_ended;
use crate::problem::ApiProblem;
use crate::series::{SERIES, Snapshot};
use crate::session::{ConsoleSessions, Identity, IdentityProof};
use crate::settings::{ConsoleUsers, SettingsEditor};
use crate::worker::ConsoleThread;

/// Number of warnings in the overview.
const WARNINGS_MAX: usize = 5;

/// What all parts of the console share.
pub(crate) struct ConsoleShared {
    pub(crate) board: Arc<ServerStatus>,
    /// The token of the role admin.
    pub(crate) token: Arc<str>,
    pub(crate) metrics_open: bool,
    /// Names of this server that are accepted as the host of a request.
    pub(crate) hosts: Arc<[HostPattern]>,
    pub(crate) sessions: ConsoleSessions,
    pub(crate) audit: Arc<Audit>,
    pub(crate) history: Mutex<History>,
    pub(crate) ticker: Arc<Ticker>,
    /// Settings, by user: viewers must not delay changes.
    pub(crate) thread: ConsoleThread<Arc<str>>,
    /// Passwords, by address, so that a log-in never waits for settings, nor they for it.
    pub(crate) passwords: ConsoleThread<Option<IpAddr>>,
    /// The editor of the settings file; `None` if the program has none.
    pub(crate) settings: Option<Mutex<SettingsEditor>>,
}

impl Drop for ConsoleShared {
    fn drop(&mut self) {
        self.ticker.end();
    }
}

impl ConsoleShared {
    /// The time in milliseconds since 1970.
    pub(crate) fn unix_ms() -> u64 {
        Clock::new().now().unix_ns / 1_000_000
    }

    /// The monotonic clock in milliseconds.
    pub(crate) fn mono_ms() -> u64 {
        Clock::new().now().mono_ns / 1_000_000
    }

    pub(crate) fn stops(&self) -> bool {
        self.board.is_stopping()
    }

    pub(crate) fn users(&self) -> ConsoleUsers {
        self.sessions.users()
    }

    /// Whether a user of an earlier request still has the same rights.
    pub(crate) fn still_knows(&self, identity: &Identity, now_ms: u64) -> bool {
        match &identity.credential {
            IdentityProof::Token => true,
            IdentityProof::Session(key) => self.sessions.view(key, now_ms).is_some(),
            IdentityProof::Certificate(fingerprint) => {
                let known = self.users().with_certificate(fingerprint);
                known.is_some_and(|(user, role)| user == identity.user && role == identity.role)
            }
        }
    }

    /// Checks that the user of a waiting request still has its rights. Open routes have no user.
    ///
    /// # Errors
    /// The session has ended, or the user was changed.
    pub(crate) fn check_access(&self, identity: Option<&Identity>) -> Result<(), ApiProblem> {
        let has_access = identity.is_none_or(|identity| self.still_knows(identity, Self::unix_ms()));
        if has_access { Ok(()) } else { Err(access_ended()) }
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Takes a snapshot of all metrics.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let families = self.families();
        Snapshot::new(Clock::new().now().mono_ns, families)
    }

    /// All metrics in the text format of Prometheus.
    pub(crate) fn metrics(&self) -> String {
        prometheus::render(&self.families())
    }

    /// The status as JSON, with all metric families.
    pub(crate) fn full_status(&self) -> Value {
        let mut status = self.status();
        let families = serde_json::from_str::<Value>(&json::render(&self.families()));
        status["families"] = families.unwrap_or_default()["families"].take();
        status
    }

    /// The status as JSON, without the metric families.
    pub(crate) fn status(&self) -> Value {
        let board = &self.board;
        let text =
            |addresses: &[encke_io::Address]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut status = json!({
            "schema": 1,
            "version": env!("CARGO_PKG_VERSION"),
            "state": self.state(),
            "backend": board.backend().0.name(),
            "backend_reason": board.backend().1,
            "workers": board.workers(),
            "pid": std::process::id(),
            "started_s": board.started_unix_s(),
            "listen": text(&board.addresses()),
            "admin": text(&board.admin_addresses()),
            "connections_limit": board.connections_limit(),
            "connections": board.connections(),
            "requests": board.requests(),
            "resident_bytes": host::resident_bytes(),
            "descriptors": host::open_descriptors(),
        });
        for source in board.sources() {
            // A source cannot replace a key of the engine.
            if let (None, Some(part)) = (status.get(source.name()), source.status()) {
                status[source.name()] = part;
            }
        }
        status
    }

    /// The overview as JSON: the figures of the interval between two snapshots, and the present state.
    pub(crate) fn overview(&self, before: &Snapshot, now: &Snapshot) -> Value {
        let board = &self.board;
        let figures: serde_json::Map<String, Value> =
            SERIES.iter().map(|series| (series.name.to_owned(), json!(series.number(before, now)))).collect();
        let refusals: Vec<Value> = now
            .refusals(before)
            .into_iter()
            .map(|refusal| {
                json!({
                    "reason": refusal.reason,
                    "metric": refusal.metric,
                    "count": refusal.count,
                    "rate": refusal.rate,
                })
            })
            .collect();
        let recent = notice::recent();
        let grave = recent.iter().rev().filter(|notice| notice.level <= Level::Warn);
        let warnings: Vec<&str> = grave.take(WARNINGS_MAX).map(|notice| &*notice.text).collect();
        json!({
            "schema": 1,
            "time_ms": Self::unix_ms(),
            "version": env!("CARGO_PKG_VERSION"),
            "state": self.state(),
            "pid": std::process::id(),
            "started_s": board.started_unix_s(),
            "backend": board.backend().0.name(),
            "workers": now.workers(before),
            "connections_limit": board.connections_limit(),
            "figures": figures,
            "refusals": refusals,
            "certificates": now.certificates(),
            "warnings": warnings,
        })
    }

    fn state(&self) -> &'static str {
        if self.stops() { "stopping" } else { "serving" }
    }

    fn families(&self) -> Vec<Family> {
        let mut families = self.board.families();
        let info = Family::gauge("encke_build_info", "Version and back end. The value is always 1.");
        families.push(info.with(
            &[("version", env!("CARGO_PKG_VERSION")), ("backend", self.board.backend().0.name())],
            1u64,
        ));
        families.push(
            Family::gauge("encke_connections_limit", "Maximum number of open connections.")
                .value(self.board.connections_limit() as u64),
        );
        let process = [
            ("process_resident_memory_bytes", "Resident memory in bytes.", host::resident_bytes()),
            (
                "process_open_fds",
                "Open file descriptors.",
                host::open_descriptors().map(|count| count as u64),
            ),
            ("process_max_fds", "Maximum number of open file descriptors.", host::descriptor_limit()),
            (
                "process_start_time_seconds",
                "Start time in seconds since 1970.",
                Some(self.board.started_unix_s()),
            ),
        ];
        for (name, help, value) in process {
            if let Some(value) = value {
                families.push(Family::gauge(name, help).value(value));
            }
        }
        families.push(
            Family::counter("process_cpu_seconds_total", "User and system CPU time in seconds.")
                .value(host::cpu_seconds()),
        );
        families
    }
}
