//! Time series made from metric families: their names, and how each is derived from two snapshots.
//!
//! ```text
//!  families ─► Snapshot ─┐
//!  families ─► Snapshot ─┴─► Measure of each series ─► one number, or none
//! ```
//! A series is named by metric names only, so this crate depends on no feature. A family that is absent gives no number.

use std::borrow::Cow;
use std::collections::HashMap;

use encke_stats::{Distribution, DistributionInterval, Family, Sample, Value};

/// A series: its name in the API, and its measure.
pub(crate) struct FigureSeries {
    pub(crate) name: &'static str,
    measure: Measure,
}

/// How a number is derived. Times are in seconds, sizes in bytes.
enum Measure {
    /// Increase of counters per second.
    Rate(Selection),
    /// Sum of gauges.
    Gauge(Selection),
    /// Quantile of the durations of the interval.
    Quantile(&'static str, f64),
    /// Longest duration of the interval.
    Longest(&'static str),
    /// The highest increase per second of the samples.
    HighestRate(&'static str),
    /// Gauges less others, which may be absent; 0 if the difference is negative.
    Difference(Selection, Selection),
}

/// Samples of families: a family, and the beginning of a label's value; an empty label selects all samples.
type Selection = &'static [(&'static str, &'static str, &'static str)];

/// All series, in the order of the API.
pub(crate) const SERIES: &[FigureSeries] = &[
    rate("requests", &[("encke_http_requests_total", "", "")]),
    rate("bytes_out", &[("encke_sent_bytes_total", "", "")]),
    rate("bytes_in", &[("encke_received_bytes_total", "", "")]),
    quantile("latency_p50", REQUEST_TIME, 0.5),
    quantile("latency_p90", REQUEST_TIME, 0.9),
    quantile("latency_p99", REQUEST_TIME, 0.99),
    FigureSeries { name: "latency_max", measure: Measure::Longest(REQUEST_TIME) },
    gauge("connections", &[("encke_connections", "", "")]),
    FigureSeries {
        name: "connections_idle",
        measure: Measure::Difference(&[("encke_connections", "state", "idle")], SUBSCRIBERS),
    },
    gauge("connections_streaming", SUBSCRIBERS),
    gauge("connections_active", &[("encke_connections", "state", "active")]),
    rate("accepts", &[("encke_accepts_total", "", "")]),
    gauge("subscribers", SUBSCRIBERS),
    rate("publishes", &[("encke_push_messages_total", "", "")]),
    rate("deliveries", &[("encke_push_deliveries_total", "", "")]),
    quantile("fanout_p50", FANOUT_TIME, 0.5),
    quantile("fanout_p99", FANOUT_TIME, 0.99),
    rate("errors_4xx", &[("encke_http_requests_total", "status", "4xx")]),
    rate("errors_5xx", &[("encke_http_requests_total", "status", "5xx")]),
    rate("refusals", REFUSALS),
    rate("cpu_ratio", &[("process_cpu_seconds_total", "", "")]),
    FigureSeries { name: "busy_ratio", measure: Measure::HighestRate(WORKER_BUSY) },
    gauge("resident_bytes", &[("process_resident_memory_bytes", "", "")]),
    gauge("connection_bytes", &[("encke_push_subscriber_bytes", "memory", "user")]),
    gauge("kernel_bytes", &[("encke_push_subscriber_bytes", "memory", "kernel")]),
    gauge("descriptors", &[("process_open_fds", "", "")]),
    FigureSeries {
        name: "descriptors_free",
        measure: Measure::Difference(&[("process_max_fds", "", "")], &[("process_open_fds", "", "")]),
    },
    rate("listen_drops", &[("encke_listen_drops_total", "", "")]),
    rate("upstream_requests", &[("encke_gateway_requests_sent_total", "", "")]),
    rate("upstream_failures", &[("encke_gateway_failures_total", "", "")]),
    gauge("upstream_waiting", &[("encke_gateway_queue_requests", "", "")]),
];

/// Connections with an open stream of events.
const SUBSCRIBERS: Selection = &[("encke_push_subscribers", "", "")];
const REQUEST_TIME: &str = "encke_http_request_seconds";
const WORKER_CPU: &str = "encke_worker_cpu_seconds_total";
const WORKER_BUSY: &str = "encke_worker_busy_seconds_total";
const FANOUT_TIME: &str = "encke_push_fanout_seconds";

/// The counters of refusals, whatever their reason.
pub(crate) const REFUSALS: Selection = &[
    ("encke_http_refusals_total", "", ""),
    ("encke_push_rejected_total", "", ""),
    ("encke_tls_handshake_failures_total", "", ""),
    ("encke_closes_total", "origin", "us"),
    ("encke_listen_drops_total", "", ""),
];

/// Failures whose reasons are shown with the refusals: those of responses that other programs should have given.
const FAILURES: Selection = &[("encke_gateway_failures_total", "", "")];

const fn rate(name: &'static str, selection: Selection) -> FigureSeries {
    FigureSeries { name, measure: Measure::Rate(selection) }
}

const fn gauge(name: &'static str, selection: Selection) -> FigureSeries {
    FigureSeries { name, measure: Measure::Gauge(selection) }
}

const fn quantile(name: &'static str, family: &'static str, quantile: f64) -> FigureSeries {
    FigureSeries { name, measure: Measure::Quantile(family, quantile) }
}

/// The metric families of a moment.
pub(crate) struct Snapshot {
    /// The monotonic clock, in nanoseconds.
    pub(crate) mono_ns: u64,
    families: HashMap<Cow<'static, str>, Vec<Sample>>,
}

impl Snapshot {
    pub(crate) fn new(mono_ns: u64, families: Vec<Family>) -> Self {
        let families = families.into_iter().map(|family| (family.name, merge_histograms(family.samples)));
        Self { mono_ns, families: families.collect() }
    }

    fn samples(&self, family: &str) -> &[Sample] {
        self.families.get(family).map_or(&[], Vec::as_slice)
    }

    /// The sum of the selected samples; `None` if no family of the selection exists.
    fn sum(&self, selection: &[(&str, &str, &str)]) -> Option<f64> {
        let mut sum = None;
        for (family, label, value) in selection {
            let Some(samples) = self.families.get(*family) else { continue };
            let selected = samples.iter().filter(|sample| has_label(sample, label, value));
            *sum.get_or_insert(0.0) += selected.filter_map(|sample| number(&sample.value)).sum::<f64>();
        }
        sum
    }

    /// All durations of a family.
    fn distribution(&self, family: &str) -> Option<&Distribution> {
        // [`merge_histograms`] leaves one sample.
        match &self.samples(family).first()?.value {
            Value::Distribution(distribution) => Some(distribution),
            Value::Count(_) | Value::Number(_) => None,
        }
    }

    /// The counts of each reason in the refusals, with their increase per second since `before`.
    pub(crate) fn refusals(&self, before: &Self) -> Vec<Refusal> {
        let seconds = self.seconds_since(before);
        let mut refusals = Vec::new();
        for (family, label, value) in REFUSALS.iter().chain(FAILURES) {
            for sample in self.samples(family).iter().filter(|sample| has_label(sample, label, value)) {
                let count = number(&sample.value).unwrap_or(0.0);
                if count == 0.0 {
                    continue;
                }
                let old = before.samples(family).iter().find(|old| old.labels == sample.labels);
                let grown = count - old.and_then(|old| number(&old.value)).unwrap_or(0.0);
                let labels: Vec<&str> = sample
                    .labels
                    .iter()
                    .filter(|(name, _)| name != "origin")
                    .map(|(_, value)| &**value)
                    .collect();
                refusals.push(Refusal {
                    metric: family,
                    reason: labels.join(", "),
                    count,
                    rate: if seconds > 0.0 { grown.max(0.0) / seconds } else { 0.0 },
                });
            }
        }
        refusals
    }

    /// The load of each worker since `before`, by the worker's number.
    pub(crate) fn workers(&self, before: &Self) -> Vec<serde_json::Value> {
        let seconds = self.seconds_since(before);
        let rate = |family: &str, labels: &[(Cow<'static, str>, Cow<'static, str>)]| {
            let of = |snapshot: &Self| {
                let sample = snapshot.samples(family).iter().find(|sample| sample.labels == labels)?;
                number(&sample.value)
            };
            let grown = of(self)? - of(before)?;
            (seconds > 0.0).then(|| grown.max(0.0) / seconds)
        };
        let workers = self.samples(WORKER_CPU).iter().filter_map(|sample| {
            let (_, number) = sample.labels.iter().find(|(name, _)| name == "worker")?;
            Some(serde_json::json!({
                "number": number.parse::<u64>().ok()?,
                "cpu_ratio": rate(WORKER_CPU, &sample.labels),
                "busy_ratio": rate(WORKER_BUSY, &sample.labels),
            }))
        });
        workers.collect()
    }

    /// The certificates of all listeners, with the end of each.
    pub(crate) fn certificates(&self) -> Vec<serde_json::Value> {
        let samples = self.samples("encke_tls_certificate_expiry_seconds").iter();
        let certificates = samples.filter_map(|sample| {
            let (_, file) = sample.labels.first()?;
            Some(serde_json::json!({ "name": file, "expires_ms": number(&sample.value)? * 1000.0 }))
        });
        certificates.collect()
    }

    fn seconds_since(&self, before: &Self) -> f64 {
        self.mono_ns.saturating_sub(before.mono_ns) as f64 / 1e9
    }
}

/// Refusals of one reason.
#[derive(PartialEq, Debug)]
pub(crate) struct Refusal {
    pub(crate) metric: &'static str,
    /// The values of the metric's labels.
    pub(crate) reason: String,
    /// Number since the start.
    pub(crate) count: f64,
    /// Increase per second.
    pub(crate) rate: f64,
}

impl FigureSeries {
    /// Returns the number for the interval from `before` to `now`; `None` if it is not known.
    pub(crate) fn number(&self, before: &Snapshot, now: &Snapshot) -> Option<f64> {
        let seconds = now.seconds_since(before);
        match &self.measure {
            Measure::Gauge(selection) => now.sum(selection),
            Measure::Difference(whole, part) => {
                Some((now.sum(whole)? - now.sum(part).unwrap_or(0.0)).max(0.0))
            }
            _ if seconds <= 0.0 => None,
            Measure::Rate(selection) => {
                let grown = now.sum(selection)? - before.sum(selection)?;
                Some(grown.max(0.0) / seconds)
            }
            Measure::HighestRate(family) => {
                let rates = now.samples(family).iter().filter_map(|sample| {
                    let old = before.samples(family).iter().find(|old| old.labels == sample.labels)?;
                    Some((number(&sample.value)? - number(&old.value)?).max(0.0) / seconds)
                });
                rates.fold(None, |highest: Option<f64>, rate| {
                    Some(highest.map_or(rate, |high| high.max(rate)))
                })
            }
            Measure::Quantile(family, quantile) => {
                let ns = interval(family, before, now)?.quantile_ns(*quantile)?;
                Some(ns as f64 / 1e9)
            }
            Measure::Longest(family) => {
                let durations = interval(family, before, now)?;
                (durations.count() > 0).then(|| durations.max_ns() as f64 / 1e9)
            }
        }
    }
}

/// Merges the samples of a histogram: the series have no labels, and each sample takes 30 KiB.
fn merge_histograms(mut samples: Vec<Sample>) -> Vec<Sample> {
    if let Some((first, others)) = samples.split_first_mut()
        && let Value::Distribution(sum) = &mut first.value
    {
        for other in others {
            if let Value::Distribution(other) = &other.value {
                sum.merge(other);
            }
        }
        samples.truncate(1);
    }
    samples
}

/// The durations of an interval.
fn interval<'a>(family: &str, before: &'a Snapshot, now: &'a Snapshot) -> Option<DistributionInterval<'a>> {
    Some(DistributionInterval::new(before.distribution(family), now.distribution(family)?))
}

fn has_label(sample: &Sample, label: &str, value: &str) -> bool {
    label.is_empty() || sample.labels.iter().any(|(name, own)| name == label && own.starts_with(value))
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Count(count) => Some(*count as f64),
        Value::Number(number) => Some(*number),
        Value::Distribution(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str) -> &'static FigureSeries {
        SERIES.iter().find(|series| series.name == name).expect("a series of the API")
    }

    fn requests(ok: u64, failed: u64) -> Family {
        Family::counter("encke_http_requests_total", "Requests.")
            .with(&[("status", "2xx")], ok)
            .with(&[("status", "5xx")], failed)
    }

    fn times(durations_ns: &[u64]) -> Family {
        let mut distribution = Distribution::new();
        durations_ns.iter().for_each(|ns| distribution.record(*ns));
        Family::histogram(REQUEST_TIME, "Time.").value(distribution)
    }

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn rates_are_per_second_of_the_interval() {
        let before = Snapshot::new(0, vec![requests(100, 1)]);
        let now = Snapshot::new(2 * SECOND_NS, vec![requests(120, 5)]);
        assert_eq!(series("requests").number(&before, &now), Some(12.0));
        assert_eq!(series("errors_5xx").number(&before, &now), Some(2.0));
        assert_eq!(series("errors_4xx").number(&before, &now), Some(0.0));
        assert_eq!(series("subscribers").number(&before, &now), None, "no such family");
        assert_eq!(series("requests").number(&now, &now), None, "no time has passed");
    }

    #[test]
    fn quantiles_are_those_of_the_interval_alone() {
        let before = Snapshot::new(0, vec![times(&[9 * SECOND_NS; 100])]);
        let slow: Vec<u64> = std::iter::repeat_n(9 * SECOND_NS, 100).chain([1_000_000; 10]).collect();
        let now = Snapshot::new(SECOND_NS, vec![times(&slow)]);
        let median = series("latency_p50").number(&before, &now).expect("ten requests");
        assert!((0.001..0.0011).contains(&median), "{median}");
        assert_eq!(series("latency_p50").number(&now, &now), None);
        let quiet = Snapshot::new(2 * SECOND_NS, vec![times(&slow)]);
        assert_eq!(series("latency_p99").number(&now, &quiet), None, "no request in the interval");
        assert_eq!(series("latency_max").number(&now, &quiet), None);
    }

    #[test]
    fn the_busiest_worker_counts() {
        let busy = |one: f64, other: f64| {
            Family::counter("encke_worker_busy_seconds_total", "Busy.")
                .with(&[("worker", "0")], one)
                .with(&[("worker", "1")], other)
        };
        let before = Snapshot::new(0, vec![busy(1.0, 5.0)]);
        let now = Snapshot::new(2 * SECOND_NS, vec![busy(2.5, 5.5)]);
        assert_eq!(series("busy_ratio").number(&before, &now), Some(0.75));
    }

    #[test]
    fn refusals_are_named_by_their_labels() {
        let refused = |count: u64| {
            Family::counter("encke_closes_total", "Closes.")
                .with(&[("reason", "shed"), ("origin", "us")], count)
                .with(&[("reason", "peer_done"), ("origin", "nobody")], 9_u64)
        };
        let before = Snapshot::new(0, vec![refused(0)]);
        let now = Snapshot::new(2 * SECOND_NS, vec![refused(4)]);
        let expected = Refusal { metric: "encke_closes_total", reason: "shed".into(), count: 4.0, rate: 2.0 };
        assert_eq!(now.refusals(&before), [expected]);
    }

    #[test]
    fn a_series_has_one_name() {
        let mut names: Vec<&str> = SERIES.iter().map(|series| series.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
