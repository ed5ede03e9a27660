//! Resources that the server used during a run: processor time and memory.
//!
//! ```text
//!   a sample before the run ─► one each second ─► one after it
//!   ServerProbe: the last minus the first; of memory, the maximum
//! ```
//! A sample covers a process of this machine and its children, or a page of metrics. The caller takes the samples.

use std::fmt::Write as _;

use encke_io::host;
use serde::{Deserialize, Serialize};

use crate::words;

/// A server's resources at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProbeSample {
    at_ns: u64,
    cpu_ns: u64,
    resident_bytes: u64,
    quota: host::QuotaPeriods,
    threads: Vec<host::ThreadUsage>,
}

/// Accumulates samples of a server.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerProbe {
    what: String,
    first: ProbeSample,
    last: ProbeSample,
    resident_bytes_max: u64,
}

/// The result of watching a server, as saved.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeResult {
    /// The process, or the source of the metrics.
    pub what: String,
    /// Duration of watching, including opening connections and waiting for the last responses.
    pub seconds: f64,
    /// CPU time used, in ns.
    pub cpu_ns: u64,
    /// CPU time per response, in ns.
    pub cpu_per_request_ns: Option<u64>,
    /// Average number of cores used.
    pub cores: f64,
    /// The share of the time in which its busiest thread ran; not available from a page of metrics.
    pub busiest_thread: Option<f64>,
    /// The share in which that thread was runnable but waited for a processor.
    pub starved_thread: Option<f64>,
    /// The share of CPU quota periods in which its quota was exhausted.
    pub throttled: Option<f64>,
    /// Resident memory before the run, in bytes. Memory shared by several processes counts for each.
    pub resident_bytes: u64,
    /// The maximum of it over all samples.
    pub resident_bytes_max: u64,
}

impl ProbeResult {
    /// For the busiest thread: the share of the time in which it ran, and in which it waited for a processor.
    pub fn busiest(&self) -> Option<(f64, f64)> {
        self.busiest_thread.zip(self.starved_thread)
    }
}

impl ProbeResult {
    /// Appends a line to a summary.
    pub(crate) fn put(&self, out: &mut String) -> std::fmt::Result {
        let [now, most] = [self.resident_bytes, self.resident_bytes_max].map(words::bytes);
        write!(out, "server       {} of a core", words::number(self.cores))?;
        if let Some(ns) = self.cpu_per_request_ns {
            write!(out, ", {} of CPU per request", words::time(ns))?;
        }
        writeln!(out, "; {now} of memory, at most {most} ({})", self.what)
    }
}

impl ProbeSample {
    /// Samples a process of this machine and its children; `None` if there is no such process, or its usage is unavailable.
    pub fn at_process(pid: u32, at_ns: u64) -> Option<Self> {
        let host::ProcessUsage { cpu_ns, resident_bytes, threads, .. } = host::process_usage(pid)?;
        let quota = host::quota_periods(Some(pid));
        Some(Self { at_ns, cpu_ns, resident_bytes, quota, threads })
    }

    /// Reads a page of metrics in the Prometheus text format with the conventional process metrics; `None` if they are missing.
    pub fn at_metrics(page: &str, at_ns: u64) -> Option<Self> {
        let value = |name: &str| {
            let mut values = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            values.next()?.split_ascii_whitespace().next()?.parse::<f64>().ok().filter(|value| *value >= 0.0)
        };
        let seconds = value("process_cpu_seconds_total")?;
        let resident = value("process_resident_memory_bytes").unwrap_or(0.0);
        let (cpu_ns, resident_bytes) = ((seconds * 1e9) as u64, resident as u64);
        Some(Self { at_ns, cpu_ns, resident_bytes, ..Self::default() })
    }
}

impl ServerProbe {
    /// Starts with a first sample.
    pub fn new(what: String, first: ProbeSample) -> Self {
        Self { what, last: first.clone(), resident_bytes_max: first.resident_bytes, first }
    }

    /// Adds a sample.
    pub fn look(&mut self, look: ProbeSample) {
        self.resident_bytes_max = self.resident_bytes_max.max(look.resident_bytes);
        self.last = look;
    }

    /// The result, for a run with this number of responses.
    pub fn watched(&self, answers: u64) -> ProbeResult {
        let (first, last) = (&self.first, &self.last);
        let time_ns = last.at_ns.saturating_sub(first.at_ns).max(1) as f64;
        let cpu_ns = last.cpu_ns.saturating_sub(first.cpu_ns);
        let shares = last.threads.iter().map(|thread| {
            let before = first.threads.iter().find(|before| before.number == thread.number);
            let (ran, waited) = before.map_or((0, 0), |before| (before.run_ns, before.wait_ns));
            let share = |after: u64, before: u64| after.saturating_sub(before) as f64 / time_ns;
            (share(thread.run_ns, ran), share(thread.wait_ns, waited))
        });
        let busiest = shares.max_by(|(one, _), (other, _)| one.total_cmp(other));
        ProbeResult {
            what: self.what.clone(),
            seconds: time_ns / 1e9,
            cpu_ns,
            cpu_per_request_ns: cpu_ns.checked_div(answers),
            cores: cpu_ns as f64 / time_ns,
            busiest_thread: busiest.map(|(ran, _)| ran),
            starved_thread: busiest.map(|(_, waited)| waited),
            throttled: busiest.map(|_| last.quota.share_since(first.quota)),
            resident_bytes: first.resident_bytes,
            resident_bytes_max: self.resident_bytes_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use encke_io::host::ThreadUsage;

    use super::*;

    const MS: u64 = 1_000_000;

    fn look(at_ms: u64, cpu_ms: u64, resident_bytes: u64, threads: &[(u32, u64, u64)]) -> ProbeSample {
        let thread = |&(number, run_ms, wait_ms): &(u32, u64, u64)| ThreadUsage {
            number,
            run_ns: run_ms * MS,
            wait_ns: wait_ms * MS,
        };
        let threads = threads.iter().map(thread).collect();
        ProbeSample {
            at_ns: at_ms * MS,
            cpu_ns: cpu_ms * MS,
            resident_bytes,
            quota: host::QuotaPeriods { all: at_ms, used_up: at_ms / 10 },
            threads,
        }
    }

    #[test]
    fn what_was_used_is_the_last_look_less_the_first() {
        let mut watch = ServerProbe::new("it".into(), look(1_000, 500, 10, &[(1, 100, 0), (2, 400, 50)]));
        watch.look(look(1_500, 700, 30, &[]));
        // Thread 1 has ended, thread 3 is new.
        watch.look(look(3_000, 2_000, 20, &[(2, 1_400, 150), (3, 500, 0)]));
        let watched = watch.watched(1_000);
        assert_eq!((watched.seconds, watched.cores), (2.0, 0.75));
        assert_eq!(watched.cpu_per_request_ns, Some(1_500_000));
        assert_eq!((watched.busiest_thread, watched.starved_thread), (Some(0.5), Some(0.05)));
        assert_eq!(watched.throttled, Some(0.1));
        assert_eq!((watched.resident_bytes, watched.resident_bytes_max), (10, 30));
        assert_eq!(watch.watched(0).cpu_per_request_ns, None);
    }

    #[test]
    fn a_page_of_metrics_has_two_names_that_all_agree_upon() {
        let page = "# HELP process_cpu_seconds_total Time.\n# TYPE process_cpu_seconds_total counter\n\
                    process_cpu_seconds_total 12.5\nprocess_cpu_seconds_total_other 1\n\
                    process_resident_memory_bytes 1.8e+07 1700000000000\n";
        assert_eq!(ProbeSample::at_metrics(page, 0), Some(look(0, 12_500, 18_000_000, &[])));
        for page in
            ["", "process_cpu_seconds_total", "process_cpu_seconds_total x", "process_cpu_seconds_total -1"]
        {
            assert_eq!(ProbeSample::at_metrics(page, 0), None, "{page}");
        }
    }

    #[test]
    fn a_process_is_watched_at_work() {
        let own = std::process::id();
        let at = |ms| ProbeSample::at_process(own, ms * MS).expect("it runs");
        let mut watch = ServerProbe::new("this".into(), at(0));
        let mut looks = 1_000;
        while watch.watched(1).cpu_ns == 0 {
            looks += 1;
            watch.look(at(looks));
        }
        let watched = watch.watched(1);
        assert!(watched.resident_bytes > 100_000, "{watched:?}");
        // Windows does not report the threads of a process.
        assert!(cfg!(windows) || watched.busiest_thread > Some(0.0), "{watched:?}");
        assert_eq!(ProbeSample::at_process(u32::MAX, 0), None);
    }
}
