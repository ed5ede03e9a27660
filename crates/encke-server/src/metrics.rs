//! The figures of the engine: each worker counts in its own [`WorkerMetrics`] without a lock, and [`EngineFigures`] adds them up.
//!
//! A feature counts separately, and adds its figures through its own source ([`Mount::sources`](crate::Mount::sources)).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use encke_stats::{Counter, Distribution, Family, Gauge, Histogram, Source};

use crate::close::CloseReason;
use crate::handshake_figures::TlsCounters;
use crate::log::AccessLog;
use crate::outgoing::UpstreamEnd;
use encke_io::lock;

/// The counters of one worker.
#[derive(Default)]
pub(crate) struct WorkerMetrics {
    pub(crate) accepted: Counter,
    pub(crate) open: Gauge,
    /// Connections with a partially received head.
    pub(crate) partial: Gauge,
    /// The id of the worker's thread, for the kernel's figures of it.
    pub(crate) thread: OnceLock<u32>,
    /// Connections and HTTP/2 streams of residents.
    pub(crate) streams: Gauge,
    pub(crate) tunnels: Gauge,
    pub(crate) requests: Counter,
    responses: [Counter; 5],
    closes: [Counter; CloseReason::ALL.len()],
    /// By the violated rule. Refusals are rare: a lock is cheap enough.
    refusals: Mutex<BTreeMap<&'static str, u64>>,
    pub(crate) tls: Arc<TlsCounters>,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) turns: Counter,
    pub(crate) accept_pauses: Counter,
    pub(crate) listen_drops: Counter,
    pub(crate) handler_panics: Counter,
    pub(crate) guard_panics: Counter,
    pub(crate) guard_tickets_dropped: Counter,
    pub(crate) exchanges: Gauge,
    pub(crate) sends: Gauge,
    pub(crate) jobs: Gauge,
    pub(crate) latency: Histogram,
    pub(crate) dials: Counter,
    pub(crate) upstreams_open: Gauge,
    pub(crate) upstream_received_bytes: Counter,
    pub(crate) upstream_sent_bytes: Counter,
    upstream_ends: [Counter; UpstreamEnd::ALL.len()],
    pub(crate) h2_connections: Counter,
    pub(crate) h2_connections_open: Gauge,
    pub(crate) h2_streams: Counter,
    pub(crate) h2_streams_open: Gauge,
    pub(crate) h2_unsent_bytes: Gauge,
    pub(crate) h2_resets_received: Counter,
    pub(crate) h2_resets_sent: Counter,
}

impl WorkerMetrics {
    pub(crate) fn responses(&self, status: u16) {
        if let Some(class) = self.responses.get(usize::from(status / 100).wrapping_sub(1)) {
            class.add(1);
        }
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        let mut refusals = lock(&self.refusals);
        *refusals.entry(reason).or_default() += 1;
    }

    /// Number of refusals for a reason.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn refusals(&self, reason: &str) -> u64 {
        lock(&self.refusals).get(reason).copied().unwrap_or_default()
    }

    /// The gauge for the connections of a resident.
    pub(crate) fn lasting(&self, is_tunnel: bool) -> &Gauge {
        if is_tunnel { &self.tunnels } else { &self.streams }
    }

    pub(crate) fn closed(&self, reason: CloseReason) {
        self.closes[reason as usize].add(1);
    }

    pub(crate) fn upstream_ended(&self, end: UpstreamEnd) {
        self.upstream_ends[end as usize].add(1);
    }

    /// Numbers of ended connections, by the name of the reason.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn close_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CloseReason::ALL.iter().map(|reason| (reason.name(), self.closes[*reason as usize].value()))
    }
}

/// The engine's source.
pub(crate) struct EngineFigures {
    pub(crate) workers: Vec<Arc<WorkerMetrics>>,
    pub(crate) log: AccessLog,
}

impl Source for EngineFigures {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn families(&self) -> Vec<Family> {
        families(&self.workers, self.log.dropped())
    }
}

/// Adds up the workers' counts, and names them as the operator sees them.
fn families(workers: &[Arc<WorkerMetrics>], log_dropped: u64) -> Vec<Family> {
    let sum = |of: &dyn Fn(&WorkerMetrics) -> u64| workers.iter().map(|worker| of(worker)).sum::<u64>();
    let level = |of: &dyn Fn(&WorkerMetrics) -> i64| workers.iter().map(|worker| of(worker)).sum::<i64>();
    let open = level(&|worker| worker.open.value());
    let active =
        level(&|worker| worker.partial.value() + worker.exchanges.value() + worker.sends.value()).min(open);

    let mut responses =
        Family::counter("encke_http_requests_total", "Requests with a response, by status class.");
    for (class, label) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().enumerate() {
        let count = sum(&|worker| worker.responses[class].value());
        responses = responses.with(&[("status", label)], count);
    }
    let mut closes = Family::counter("encke_closes_total", "Closed connections, by reason and origin.");
    for reason in CloseReason::ALL {
        let count = sum(&|worker| worker.closes[*reason as usize].value());
        let origin = match reason.origin() {
            crate::close::CloseOrigin::Nobody => "nobody",
            crate::close::CloseOrigin::Peer => "peer",
            crate::close::CloseOrigin::Us => "us",
            crate::close::CloseOrigin::System => "system",
        };
        closes = closes.with(&[("reason", reason.name()), ("origin", origin)], count);
    }
    let mut upstream_ends =
        Family::counter("encke_upstream_closes_total", "Closed or failed outgoing connections, by reason.");
    for end in UpstreamEnd::ALL {
        let count = sum(&|worker| worker.upstream_ends[end as usize].value());
        upstream_ends = upstream_ends.with(&[("reason", end.name())], count);
    }
    let mut refused: BTreeMap<&'static str, u64> = BTreeMap::new();
    for worker in workers {
        let refusals = lock(&worker.refusals);
        for (reason, count) in refusals.iter() {
            *refused.entry(reason).or_default() += count;
        }
    }
    let mut refusals =
        Family::counter("encke_http_refusals_total", "Rejected requests, by the rule that they broke.");
    for (reason, count) in refused {
        refusals = refusals.with(&[("reason", reason)], count);
    }
    let mut latency = Distribution::new();
    for worker in workers {
        worker.latency.add_to(&mut latency);
    }

    vec![
        Family::gauge("encke_connections", "Open connections, by state.")
            .with(&[("state", "active")], active)
            .with(&[("state", "idle")], open - active),
        Family::counter("encke_accepts_total", "Connections accepted.")
            .value(sum(&|worker| worker.accepted.value())),
        Family::counter("encke_accept_pauses_total", "Pauses of accepting, for lack of descriptors or at the connection limit.")
            .value(sum(&|worker| worker.accept_pauses.value())),
        Family::counter("encke_listen_drops_total", "Connections the kernel dropped because a listener's queue was full.")
            .value(sum(&|worker| worker.listen_drops.value())),
        responses,
        refusals,
        closes,
        Family::counter("encke_received_bytes_total", "Bytes received.")
            .value(sum(&|worker| worker.received_bytes.value())),
        Family::counter("encke_sent_bytes_total", "Bytes passed to the kernel.")
            .value(sum(&|worker| worker.sent_bytes.value())),
        Family::gauge("encke_exchanges_open", "Requests without a complete response.")
            .value(level(&|worker| worker.exchanges.value())),
        Family::gauge("encke_sends_in_flight", "Sends that the kernel has not completed.")
            .value(level(&|worker| worker.sends.value())),
        Family::gauge("encke_offload_jobs", "Blocking jobs, queued or running.")
            .value(level(&|worker| worker.jobs.value())),
        Family::counter("encke_handler_panics_total", "Calls of handlers that panicked.")
            .value(sum(&|worker| worker.handler_panics.value())),
        Family::counter("encke_guard_failures_total", "Failures of guards, by kind. Each affected request received a 500.")
            .with(&[("reason", "panic")], sum(&|worker| worker.guard_panics.value()))
            .with(&[("reason", "dropped")], sum(&|worker| worker.guard_tickets_dropped.value())),
        Family::counter("encke_log_dropped_lines_total", "Access log lines dropped because writing failed or was too slow.")
            .value(log_dropped),
        Family::counter("encke_turns_total", "Turns of the workers' event loops.")
            .value(sum(&|worker| worker.turns.value())),
        Family::histogram(
            "encke_http_request_seconds",
            "Time from a request's head to the last byte of its response passed to the kernel. A response in the same turn counts the length of the turn.",
        )
        .value(latency),
        Family::gauge("encke_upstream_connections", "Open outgoing connections.")
            .value(level(&|worker| worker.upstreams_open.value())),
        Family::counter("encke_upstream_dials_total", "Attempts to open an outgoing connection.")
            .value(sum(&|worker| worker.dials.value())),
        upstream_ends,
        Family::counter(
            "encke_upstream_bytes_total",
            "Bytes of outgoing connections, with TLS of plaintext. Included in the bytes of all connections.",
        )
        .with(&[("direction", "received")], sum(&|worker| worker.upstream_received_bytes.value()))
        .with(&[("direction", "sent")], sum(&|worker| worker.upstream_sent_bytes.value())),
        Family::counter("encke_h2_connections_total", "Connections that used HTTP/2.")
            .value(sum(&|worker| worker.h2_connections.value())),
        Family::gauge("encke_h2_connections", "Open HTTP/2 connections.")
            .value(level(&|worker| worker.h2_connections_open.value())),
        Family::counter("encke_h2_streams_total", "Streams that clients of HTTP/2 have opened, one for each request.")
            .value(sum(&|worker| worker.h2_streams.value())),
        Family::gauge("encke_h2_streams", "Open HTTP/2 streams.")
            .value(level(&|worker| worker.h2_streams_open.value())),
        Family::gauge("encke_h2_unsent_bytes", "Bytes of HTTP/2 responses in memory that are not sent yet.")
            .value(level(&|worker| worker.h2_unsent_bytes.value())),
        Family::counter("encke_h2_resets_total", "HTTP/2 streams reset before the end of their response, by the side that reset them.")
            .with(&[("by", "peer")], sum(&|worker| worker.h2_resets_received.value()))
            .with(&[("by", "us")], sum(&|worker| worker.h2_resets_sent.value())),
    ]
}
