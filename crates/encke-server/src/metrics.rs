//! What a worker counts, and how the counts of all workers are told.
//!
//! Each worker writes its own [`Metrics`] without a lock; whoever asks adds them up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;

use encke_stats::{Counter, Distribution, Family, Gauge, Histogram};

use crate::close::CloseReason;
use crate::push::admission::{Away, Transport};

/// One worker's counts.
#[derive(Default)]
pub(crate) struct Metrics {
    pub(crate) accepted: Counter,
    pub(crate) open: Gauge,
    /// Heads that have arrived in part.
    pub(crate) partial: Gauge,
    pub(crate) requests: Counter,
    responses: [Counter; 5],
    closes: [Counter; CloseReason::ALL.len()],
    /// By the rule that was broken. Refusals are rare: a lock is cheap enough.
    refusals: Mutex<BTreeMap<&'static str, u64>>,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) turns: Counter,
    pub(crate) accept_pauses: Counter,
    pub(crate) listen_drops: Counter,
    pub(crate) handler_panics: Counter,
    pub(crate) exchanges: Gauge,
    pub(crate) sends: Gauge,
    pub(crate) jobs: Gauge,
    pub(crate) latency: Histogram,
    pub(crate) subscribers: Gauge,
    /// Subscribers that began to listen.
    pub(crate) admissions: Counter,
    pub(crate) turned_away: [[Counter; Transport::ALL.len()]; Away::ALL.len()],
    pub(crate) published: Counter,
    pub(crate) deliveries: Counter,
    /// From a message's acceptance to the last send of its fan-out on this worker.
    pub(crate) fanout: Histogram,
}

impl Metrics {
    pub(crate) fn responses(&self, status: u16) {
        if let Some(class) = self.responses.get(usize::from(status / 100).wrapping_sub(1)) {
            class.add(1);
        }
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        let mut refusals = self.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *refusals.entry(reason).or_default() += 1;
    }

    pub(crate) fn closed(&self, reason: CloseReason) {
        self.closes[reason as usize].add(1);
    }
}

/// Adds up the workers' counts under the names that operators read.
pub(crate) fn families(workers: &[Arc<Metrics>], log_dropped: u64) -> Vec<Family> {
    let sum = |of: &dyn Fn(&Metrics) -> u64| workers.iter().map(|worker| of(worker)).sum::<u64>();
    let level = |of: &dyn Fn(&Metrics) -> i64| workers.iter().map(|worker| of(worker)).sum::<i64>();
    let open = level(&|worker| worker.open.value());
    let active =
        level(&|worker| worker.partial.value() + worker.exchanges.value() + worker.sends.value()).min(open);

    let mut responses =
        Family::counter("encke_http_requests_total", "Requests answered, by class of status.");
    for (class, label) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().enumerate() {
        let count = sum(&|worker| worker.responses[class].value());
        responses = responses.with(&[("status", label)], count);
    }
    let mut closes =
        Family::counter("encke_closes_total", "Connections ended, by reason and by whose doing.");
    for reason in CloseReason::ALL {
        let count = sum(&|worker| worker.closes[*reason as usize].value());
        let guilty = match reason.guilty() {
            crate::close::Guilty::Nobody => "nobody",
            crate::close::Guilty::Peer => "peer",
            crate::close::Guilty::Us => "us",
            crate::close::Guilty::System => "system",
        };
        closes = closes.with(&[("reason", reason.name()), ("guilty", guilty)], count);
    }
    let mut refused: BTreeMap<&'static str, u64> = BTreeMap::new();
    for worker in workers {
        let refusals = worker.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (reason, count) in refusals.iter() {
            *refused.entry(reason).or_default() += count;
        }
    }
    let mut refusals =
        Family::counter("encke_http_refusals_total", "Requests refused, by the rule they broke.");
    for (reason, count) in refused {
        refusals = refusals.with(&[("reason", reason)], count);
    }
    let mut turned_away = Family::counter(
        "encke_push_turned_away_total",
        "Subscribers that were told to come back later, by why and by how they listen.",
    );
    for (away, transport) in
        Away::ALL.into_iter().flat_map(|away| Transport::ALL.map(|transport| (away, transport)))
    {
        let count = sum(&|worker| worker.turned_away[away as usize][transport as usize].value());
        let labels = [("reason", away.name()), ("transport", transport.name())];
        turned_away = turned_away.with(&labels, count);
    }
    let mut latency = Distribution::new();
    let mut fanout = Distribution::new();
    for worker in workers {
        worker.latency.add_to(&mut latency);
        worker.fanout.add_to(&mut fanout);
    }

    vec![
        Family::gauge("encke_connections", "Open connections, by state.")
            .with(&[("state", "active")], active)
            .with(&[("state", "idle")], open - active),
        Family::counter("encke_accepts_total", "Connections accepted.")
            .value(sum(&|worker| worker.accepted.value())),
        Family::counter("encke_accept_pauses_total", "Times accepting was paused for want of descriptors or room.")
            .value(sum(&|worker| worker.accept_pauses.value())),
        Family::counter("encke_listen_drops_total", "Connections the kernel dropped because a listener's queue was full.")
            .value(sum(&|worker| worker.listen_drops.value())),
        responses,
        refusals,
        closes,
        Family::counter("encke_received_bytes_total", "Bytes received.")
            .value(sum(&|worker| worker.received_bytes.value())),
        Family::counter("encke_sent_bytes_total", "Bytes handed to the kernel.")
            .value(sum(&|worker| worker.sent_bytes.value())),
        Family::gauge("encke_exchanges_open", "Requests that are not fully answered.")
            .value(level(&|worker| worker.exchanges.value())),
        Family::gauge("encke_sends_in_flight", "Answers that the kernel has not taken whole.")
            .value(level(&|worker| worker.sends.value())),
        Family::gauge("encke_offload_jobs", "Blocking jobs that have not come back.")
            .value(level(&|worker| worker.jobs.value())),
        Family::counter("encke_handler_panics_total", "Calls of handlers that panicked.")
            .value(sum(&|worker| worker.handler_panics.value())),
        Family::counter("encke_log_dropped_lines_total", "Lines of the access log dropped because it was not written fast enough.")
            .value(log_dropped),
        Family::counter("encke_turns_total", "Turns of the workers' loops.")
            .value(sum(&|worker| worker.turns.value())),
        Family::histogram(
            "encke_http_request_seconds",
            "From a request's head to the last byte of its answer handed to the kernel. What is answered within one turn counts with the length of that turn.",
        )
        .value(latency),
        Family::gauge("encke_push_subscribers", "Connections that listen to channels.")
            .value(level(&|worker| worker.subscribers.value())),
        Family::counter("encke_push_admissions_total", "Subscribers that began to listen.")
            .value(sum(&|worker| worker.admissions.value())),
        turned_away,
        Family::counter("encke_push_messages_total", "Messages accepted from publishers.")
            .value(sum(&|worker| worker.published.value())),
        Family::counter("encke_push_deliveries_total", "Sends of messages to subscribers; one may carry several messages.")
            .value(sum(&|worker| worker.deliveries.value())),
        Family::histogram(
            "encke_push_fanout_seconds",
            "From a message's acceptance to the last send of it to a subscriber that could take it.",
        )
        .value(fanout),
    ]
}
