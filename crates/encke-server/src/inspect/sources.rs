//! The engine's lists for operators, and the figures of its workers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use encke_io::clock::Clock;
use encke_io::host::ThreadTimes;
use encke_io::{figures, lock};
use encke_stats::{Cell, Family, ListTicket, Query, Row, Source};

use super::{blocks, closes, row};
use crate::census::Census;
use crate::command::WorkerQueues;
use crate::listener::ListenerIdentity;
use crate::metrics::WorkerMetrics;
use crate::operate::OperatorCommand;

/// The list `connections`: all connections of clients.
pub(crate) struct ConnectionList(pub(crate) Arc<WorkerQueues>);

/// The list `closes`: the last closes of each worker.
pub(crate) struct CloseList(pub(crate) Arc<WorkerQueues>);

/// The list `blocks`: the blocked addresses.
pub(crate) struct BlockList(pub(crate) Arc<Census>);

/// The list `certificates`: the files of all TLS listeners.
pub(crate) struct CertificateList(pub(crate) Arc<Mutex<Vec<ListenerIdentity>>>);

/// The list `workers`, and the figures of each worker and of the machine's TCP. The kernel has the times of the workers'
/// threads, so that measuring them costs the workers nothing.
pub(crate) struct WorkerFigures {
    workers: Vec<Arc<WorkerMetrics>>,
    samples: Mutex<TimeSamples>,
}

/// Two readings of the workers' times, for their ratios.
#[derive(Default)]
struct TimeSamples {
    earlier: Option<TimeSample>,
    latest: Option<TimeSample>,
}

#[derive(Clone)]
struct TimeSample {
    mono_ns: u64,
    workers: Vec<ThreadTimes>,
}

/// The least time over which a ratio is measured. Within it, several readers get the same measurement.
const SAMPLE_NS: u64 = 1_000_000_000;

impl Source for ConnectionList {
    fn name(&self) -> &'static str {
        "connections"
    }

    fn columns(&self) -> &'static [&'static str] {
        row::COLUMNS
    }

    fn list(&self, _: &Query, ticket: ListTicket) {
        self.0.order_all(|| OperatorCommand::Connections(ticket.clone()));
    }
}

impl Source for CloseList {
    fn name(&self) -> &'static str {
        "closes"
    }

    fn columns(&self) -> &'static [&'static str] {
        closes::COLUMNS
    }

    fn list(&self, _: &Query, ticket: ListTicket) {
        self.0.order_all(|| OperatorCommand::Closes(ticket.clone()));
    }
}

impl Source for BlockList {
    fn name(&self) -> &'static str {
        "blocks"
    }

    fn columns(&self) -> &'static [&'static str] {
        blocks::COLUMNS
    }

    fn list(&self, _: &Query, ticket: ListTicket) {
        ticket.add(self.0.blocks.rows(Clock::new().now()));
    }
}

impl Source for CertificateList {
    fn name(&self) -> &'static str {
        "certificates"
    }

    fn columns(&self) -> &'static [&'static str] {
        &["names", "expires_ms", "listener", "file"]
    }

    fn list(&self, _: &Query, ticket: ListTicket) {
        let mut rows = Vec::new();
        for listener in lock(&self.0).iter() {
            for (file, ends_s) in listener.identity.ends() {
                rows.push(Row(vec![
                    ("names", Cell::Text(listener.identity.names().join(" ").into())),
                    ("expires_ms", Cell::Count(ends_s.saturating_mul(1_000))),
                    ("listener", Cell::Text(listener.bound.to_string().into())),
                    ("file", Cell::Text(file.display().to_string().into())),
                ]));
            }
        }
        ticket.add(rows);
    }
}

impl WorkerFigures {
    pub(crate) fn new(workers: Vec<Arc<WorkerMetrics>>) -> Self {
        Self { workers, samples: Mutex::default() }
    }

    /// Reads the times of all workers; `None` if the system does not report them.
    fn times(&self) -> Option<Vec<ThreadTimes>> {
        let times = |worker: &Arc<WorkerMetrics>| figures::thread_times_of(*worker.thread.get()?);
        self.workers.iter().map(times).collect()
    }

    /// Returns each worker's shares of the time since a second ago or more: on a processor, and busy. The first reading counts
    /// from the reading itself, and has none.
    fn ratios(&self) -> Option<Vec<(f64, f64)>> {
        let now = TimeSample { mono_ns: Clock::new().now().mono_ns, workers: self.times()? };
        let mut samples = lock(&self.samples);
        let age_ns = |sample: &Option<TimeSample>| {
            sample.as_ref().map_or(u64::MAX, |sample| now.mono_ns.saturating_sub(sample.mono_ns))
        };
        if age_ns(&samples.latest) >= SAMPLE_NS {
            samples.earlier = samples.latest.replace(now.clone());
        }
        let earlier = samples.earlier.as_ref()?;
        let lasted_ns = now.mono_ns.saturating_sub(earlier.mono_ns).max(1) as f64;
        let ratio = |(now, earlier): (&ThreadTimes, &ThreadTimes)| {
            let run_ns = now.run_ns.saturating_sub(earlier.run_ns) as f64;
            let wait_ns = now.wait_ns.saturating_sub(earlier.wait_ns) as f64;
            ((run_ns / lasted_ns).min(1.0), ((run_ns + wait_ns) / lasted_ns).min(1.0))
        };
        Some(now.workers.iter().zip(&earlier.workers).map(ratio).collect())
    }
}

impl Source for WorkerFigures {
    fn name(&self) -> &'static str {
        "workers"
    }

    fn families(&self) -> Vec<Family> {
        let number = |worker: usize| worker.to_string();
        let seconds = |ns: u64| ns as f64 / 1e9;
        let mut cpu =
            Family::counter("encke_worker_cpu_seconds_total", "Processor time of a worker, in seconds.");
        let mut busy = Family::counter(
            "encke_worker_busy_seconds_total",
            "Time for which a worker did not wait for events: on a processor, or runnable but waiting for one, in seconds.",
        );
        for (worker, times) in self.times().into_iter().flatten().enumerate() {
            cpu = cpu.labelled("worker", number(worker), seconds(times.run_ns));
            busy = busy.labelled("worker", number(worker), seconds(times.run_ns + times.wait_ns));
        }
        let mut connections = Family::gauge("encke_worker_connections", "Open connections of a worker.");
        let mut requests = Family::counter("encke_worker_requests_total", "Requests of a worker.");
        for (worker, metrics) in self.workers.iter().enumerate() {
            connections = connections.labelled("worker", number(worker), metrics.open.value());
            requests = requests.labelled("worker", number(worker), metrics.requests.value());
        }
        let kinds = BTreeMap::from([
            ("stream", self.workers.iter().map(|worker| worker.streams.value()).sum::<i64>()),
            ("tunnel", self.workers.iter().map(|worker| worker.tunnels.value()).sum::<i64>()),
        ]);
        let mut lasting = Family::gauge(
            "encke_lasting_connections",
            "Connections and HTTP/2 streams that outlive their request: streams of messages and WebSockets, and tunnels.",
        );
        for (kind, count) in kinds {
            lasting = lasting.with(&[("kind", kind)], count);
        }
        let mut families = vec![cpu, busy, connections, requests, lasting];
        if let Some(tcp) = figures::machine_tcp() {
            families.extend([
                Family::counter(
                    "encke_machine_listen_drops_total",
                    "Connections that listeners of all programs dropped, for any reason, in this network namespace.",
                )
                .value(tcp.listen_drops),
                Family::counter(
                    "encke_machine_listen_overflows_total",
                    "Connections that listeners of all programs dropped because their queue was full.",
                )
                .value(tcp.listen_overflows),
                Family::gauge(
                    "encke_machine_tcp_buffer_bytes",
                    "Kernel memory for the buffers of all TCP connections, in this network namespace.",
                )
                .value(tcp.memory_bytes()),
            ]);
        }
        families
    }

    fn columns(&self) -> &'static [&'static str] {
        &["number", "connections", "cpu_ratio", "busy_ratio", "requests"]
    }

    fn list(&self, _: &Query, ticket: ListTicket) {
        let ratios = self.ratios();
        let rows = self.workers.iter().enumerate().map(|(number, worker)| {
            let open = u64::try_from(worker.open.value()).unwrap_or(0);
            let mut cells = vec![("number", Cell::Count(number as u64)), ("connections", Cell::Count(open))];
            if let Some((cpu, busy)) = ratios.as_ref().and_then(|ratios| ratios.get(number)) {
                cells.push(("cpu_ratio", Cell::Number(*cpu)));
                cells.push(("busy_ratio", Cell::Number(*busy)));
            }
            cells.push(("requests", Cell::Count(worker.requests.value())));
            Row(cells)
        });
        ticket.add(rows);
    }
}
