//! The saved form of a run: JSON, schema 1, written and read by the same types.
//!
//! Keys are snake_case with the unit last. Keys are added, but never changed. A file may be from an older program, so later
//! fields have defaults.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use encke_io::host::TcpCounters;
use encke_stats::Distribution;
use encke_wire::civil::Civil;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Report, SavedRun, blob};
use crate::environment::Environment;
use crate::estimate::Estimate;
use crate::pace::{Arrivals, Pace};
use crate::plan::{Plan, Stop, WarmUp};
use crate::probe::ProbeResult;
use crate::run::{ServerOutcome, ThreadShare};
use crate::series::Stretch;
use crate::statuses::StatusCounts;
use crate::tally::{Error, Totals};
use crate::verdict::Verdict;

/// Schema version of the files that can be read.
pub(crate) const SCHEMA: u32 = 1;

/// A run of requests: plan, environment and results.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Saved {
    /// Schema version, 1.
    pub schema: u32,
    /// Version of the program that made the run.
    pub version: String,
    /// The command that repeats the run.
    pub command: String,
    /// Begin of the run: RFC 3339, UTC.
    #[serde(default)]
    pub began: String,
    /// Begin of the run, in nanoseconds since 1970.
    #[serde(default)]
    pub began_unix_ns: u64,
    /// The machine of the generator.
    #[serde(default)]
    pub environment: Environment,
    /// The URLs as given by the user.
    pub urls: Vec<String>,
    /// The plan.
    pub plan: SavedPlan,
    /// The bottleneck.
    pub verdict: SavedVerdict,
    /// Requests by their end.
    pub requests: SavedRequests,
    /// Responses per second.
    pub rate_per_s: f64,
    /// Time from the first counted request to the last response, in ns.
    pub elapsed_ns: u64,
    /// Finished requests by status class, such as `2xx`.
    pub statuses: BTreeMap<String, u64>,
    /// Finished requests by status; empty in runs of older versions.
    #[serde(default, skip_serializing_if = "StatusCounts::is_empty")]
    pub status_codes: StatusCounts,
    /// Bytes received and sent.
    pub bytes: Bytes,
    /// Connections made and failed.
    pub connections: Connections,
    /// Histograms of times.
    pub latency: Latencies,
    /// Errors, the most frequent first.
    pub errors: Vec<SavedError>,
    /// The generator's threads.
    pub threads: Vec<Thread>,
    /// TCP counters of this machine during the run, other programs included.
    pub system: System,
    /// Resources used by the server, if it was watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ProbeResult>,
    /// Per-server results of a run with several servers; otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<SavedTarget>,
    /// The run over time.
    pub seconds: Vec<Stretch>,
    /// The runs that were merged into this one; otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<SavedPart>,
}

/// The results of one server among several.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SavedTarget {
    /// `http://HOST:PORT`.
    pub name: String,
    /// Requests by their end. `unsent` is known only for the whole run, and 0 here.
    pub requests: SavedRequests,
    /// Responses per second.
    pub rate_per_s: f64,
    /// Time from its first counted request to its last response, in ns.
    pub elapsed_ns: u64,
    /// Bytes of bodies received.
    pub bodies_bytes: u64,
    /// Latency of users.
    pub latency: Option<SavedDistribution>,
}

impl SavedTarget {
    fn of(aimed: &ServerOutcome) -> Self {
        let totals = &aimed.totals;
        Self {
            name: aimed.name.clone(),
            requests: SavedRequests::of(totals, 0),
            rate_per_s: per_second(totals.finished, aimed.elapsed),
            elapsed_ns: nanoseconds(aimed.elapsed),
            bodies_bytes: totals.body_bytes,
            latency: SavedDistribution::of(totals.latency()),
        }
    }
}

/// A run that was merged into another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is the field of the same name in Saved")]
pub struct SavedPart {
    pub command: String,
    pub began: String,
    pub began_unix_ns: u64,
    pub environment: Environment,
    pub requests: SavedRequests,
    pub rate_per_s: f64,
    pub elapsed_ns: u64,
    pub verdict: SavedVerdict,
}

/// The saved form of [`Plan`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is the field of the same name in Plan")]
pub struct SavedPlan {
    /// One line: kind of loop, connections and threads.
    #[serde(default)]
    pub text: String,
    pub server: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    pub pace: SavedPace,
    pub stop: SavedExtent,
    pub warm_up: SavedExtent,
    pub connections: u32,
    pub threads: u16,
    /// `http/1` or `http/2`; empty in runs saved before there was a choice.
    #[serde(default)]
    pub protocol: String,
    pub pipeline: u16,
    pub requests_per_connection: Option<u64>,
    pub timeout_s: f64,
    pub backend: String,
    pub seed: u64,
}

/// The saved form of [`Pace`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SavedPace {
    /// `closed` or `open`.
    pub r#loop: String,
    /// Open loop: requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Open loop: `even` or `poisson`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<String>,
}

/// A number of requests, a duration, or neither.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "that is all")]
pub struct SavedExtent {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// The saved form of [`crate::Verdict`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is the field of the same name in Verdict")]
pub struct SavedVerdict {
    /// `server`, `connections`, `kept`, `behind`, `generator`, `starved`, `server_starved`, `too_short`, `unexpected`,
    /// `unanswered`.
    pub limit: String,
    /// Whether the results describe the server.
    pub is_verdict: bool,
    pub text: String,
    pub remarks: Vec<String>,
}

/// The saved form of the request counters in [`crate::Totals`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is the field of the same name in Totals")]
pub struct SavedRequests {
    pub begun: u64,
    pub finished: u64,
    pub wrong: u64,
    pub differing: u64,
    pub failed: u64,
    pub aborted: u64,
    pub warm_up: u64,
    pub queued: u64,
    /// Finished requests whose response may have been read late, with others.
    pub gathered: u64,
    /// Open loop: requests that were due and never begun.
    pub unsent: u64,
}

/// Bytes transferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bytes {
    /// Bytes received, including heads and framing.
    pub received: u64,
    /// Bytes of bodies received, without their framing.
    pub bodies: u64,
    /// Bytes handed to the kernel.
    pub sent: u64,
}

/// Connection counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Connections {
    /// Connections established.
    pub made: u64,
    /// Connections that could not be established.
    pub failed: u64,
    /// TLS handshakes completed.
    pub handshakes: u64,
    /// TLS handshakes that resumed an earlier session.
    pub resumed: u64,
    /// Connections that the server ended while no request was open on them.
    pub ended_at_rest: u64,
    /// Time to open the connections before the run, in ns.
    pub opening_ns: u64,
}

/// Histograms of times; `None` if not measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is the field of the same name in Totals")]
pub struct Latencies {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<SavedDistribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<SavedDistribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<SavedDistribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<SavedDistribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<SavedDistribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake: Option<SavedDistribution>,
    /// Closed loop with stalls: upper estimate of the latency of an open-loop user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_loop_estimate: Option<Percentiles>,
}

/// A distribution of durations, saved as percentiles and as a complete histogram.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(into = "SavedHistogram", from = "SavedHistogram")]
pub struct SavedDistribution(pub Distribution);

#[derive(Serialize, Deserialize)]
struct SavedHistogram {
    count: u64,
    #[serde(flatten)]
    percentiles: Percentiles,
    max_ns: u64,
    mean_ns: Option<f64>,
    /// At most 2^64 - 1, which is 584 years.
    sum_ns: u64,
    #[serde(with = "blob")]
    histogram: Vec<(u64, u64)>,
}

/// Percentiles in ns; `None` without values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Percentiles {
    pub p50_ns: Option<u64>,
    pub p90_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p99_9_ns: Option<u64>,
    pub p99_99_ns: Option<u64>,
    pub p99_999_ns: Option<u64>,
}

/// One kind of failure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SavedError {
    /// Phase of the request.
    pub phase: String,
    /// Reason.
    pub cause: String,
    /// Number of occurrences.
    pub count: u64,
    /// Time of the first occurrence, in ns after the beginning of the run.
    pub first_ns: u64,
    /// First bytes of the response received at the first occurrence; invalid UTF-8 is replaced.
    #[serde(default)]
    pub sample: String,
    /// Whether the generator ran out of a resource.
    #[serde(default)]
    pub ours: bool,
}

/// Processor use of a generator thread, as shares of the run's time.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Thread {
    /// The share in which it ran.
    pub busy: f64,
    /// The share in which it was runnable but waited for a processor.
    pub waiting: f64,
    /// CPU time, in ns.
    pub cpu_ns: u64,
}

/// TCP counters, where the system provides them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct System {
    /// Connections that listeners dropped because their queue was full.
    pub listen_drops: Option<u64>,
    /// Segments retransmitted.
    pub retransmits: Option<u64>,
}

/// Why a text is not a saved run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SavedRunError {
    /// The text is not JSON, or a field is missing.
    Malformed(String),
    /// The schema version is not supported.
    Schema(u64),
    /// The text is the result of `--find-max`, which consists of many runs.
    Search,
}

impl Saved {
    /// Parses the output of [`Report::json`].
    ///
    /// # Errors
    /// The text is not a saved run of requests.
    pub fn read(text: &str) -> Result<Self, SavedRunError> {
        match SavedRun::read(text)? {
            SavedRun::Requests(run) => Ok(*run),
            SavedRun::Push(_) => Err(SavedRunError::Malformed("it is a run of subscribers".into())),
        }
    }

    /// The run as JSON.
    pub fn json(&self) -> Value {
        serde_json::to_value(self).expect("every key is a string, and every number one of JSON's")
    }

    /// The latency of users: in an open loop from when a request was due, in a closed loop from its send.
    pub fn waited(&self) -> Option<&Distribution> {
        self.latency
            .response
            .as_ref()
            .or(self.latency.service.as_ref())
            .map(|SavedDistribution(distribution)| distribution)
    }

    /// The share of counted requests that had no complete response, or a wrong one; `None` if none has ended.
    pub fn error_share(&self) -> Option<f64> {
        let requests = &self.requests;
        let missing = requests.failed + requests.aborted;
        let ended = requests.finished + missing;
        (ended > 0).then(|| (missing + requests.wrong) as f64 / ended as f64)
    }

    /// Whether the run was a closed loop.
    pub fn is_closed(&self) -> bool {
        self.plan.pace.r#loop == "closed"
    }
}

impl Report {
    /// The saved form of the run.
    pub fn saved(&self) -> Saved {
        let outcome = &self.outcome;
        let totals = &outcome.totals;
        Saved {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: self.command.clone(),
            began: rfc3339(outcome.began_unix_ns),
            began_unix_ns: outcome.began_unix_ns,
            environment: self.environment.clone(),
            urls: self.urls.clone(),
            plan: SavedPlan { text: self.plan.to_string(), ..SavedPlan::of(&self.plan) },
            verdict: SavedVerdict::of(&self.verdict),
            requests: SavedRequests::of(totals, self.unsent()),
            rate_per_s: self.rate(),
            elapsed_ns: nanoseconds(outcome.elapsed),
            statuses: (1..10).map(|class| (format!("{class}xx"), totals.statuses.class(class))).collect(),
            status_codes: totals.statuses.clone(),
            bytes: Bytes {
                received: totals.received_bytes,
                bodies: totals.body_bytes,
                sent: totals.sent_bytes,
            },
            connections: Connections {
                made: totals.connected,
                failed: totals.unconnected,
                handshakes: totals.handshakes,
                resumed: totals.resumed,
                ended_at_rest: totals.ended_idle,
                opening_ns: nanoseconds(outcome.opening),
            },
            latency: Latencies {
                service: SavedDistribution::of(&totals.service),
                first_byte: SavedDistribution::of(&totals.first_byte),
                response: SavedDistribution::of(&totals.response),
                lag: SavedDistribution::of(&totals.lag),
                connect: SavedDistribution::of(&totals.connect),
                handshake: SavedDistribution::of(&totals.handshake),
                open_loop_estimate: self.estimate().as_ref().map(Percentiles::estimated),
            },
            errors: outcome.errors.iter().map(SavedError::of).collect(),
            threads: outcome.threads.iter().map(Thread::of).collect(),
            system: System::of(outcome.tcp),
            server: outcome.server.clone(),
            targets: outcome.targets.iter().map(SavedTarget::of).collect(),
            seconds: self.series.stretches().to_vec(),
            parts: Vec::new(),
        }
    }

    /// The run as JSON.
    pub fn json(&self) -> Value {
        self.saved().json()
    }
}

impl SavedRequests {
    fn of(totals: &Totals, unsent: u64) -> Self {
        Self {
            begun: totals.begun,
            finished: totals.finished,
            wrong: totals.wrong,
            differing: totals.differing,
            failed: totals.failed,
            aborted: totals.aborted,
            warm_up: totals.warm_up,
            queued: totals.queued,
            gathered: totals.gathered,
            unsent,
        }
    }
}

impl SavedPlan {
    fn of(plan: &Plan) -> Self {
        let stop = match plan.stop {
            Stop::Count(count) => SavedExtent::requests(count),
            Stop::After(time) => SavedExtent::seconds(time.as_secs_f64()),
            Stop::Told => SavedExtent::default(),
        };
        let warm_up = match plan.warm_up {
            WarmUp::None => SavedExtent::default(),
            WarmUp::Count(count) => SavedExtent::requests(count),
            WarmUp::For(time) => SavedExtent::seconds(time.as_secs_f64()),
        };
        Self {
            text: String::new(),
            server: plan.server.to_string(),
            sources: plan.sources.iter().map(ToString::to_string).collect(),
            pace: SavedPace::of(&plan.pace),
            stop,
            warm_up,
            connections: plan.connections,
            threads: plan.threads,
            protocol: plan.protocol.name().to_owned(),
            pipeline: plan.pipeline,
            requests_per_connection: plan.requests_per_connection,
            timeout_s: plan.timeout.as_secs_f64(),
            backend: plan.backend.name().to_owned(),
            seed: plan.seed,
        }
    }
}

impl SavedPace {
    pub(crate) fn of(pace: &Pace) -> Self {
        let Pace::Open(rate, arrivals) = pace else {
            return Self { r#loop: "closed".into(), ..Self::default() };
        };
        let arrivals = match arrivals {
            Arrivals::Even => "even",
            Arrivals::Poisson => "poisson",
        };
        Self { r#loop: "open".into(), rate: Some(rate.to_string()), arrivals: Some(arrivals.to_owned()) }
    }
}

impl SavedVerdict {
    pub(crate) fn of(verdict: &Verdict) -> Self {
        Self {
            limit: verdict.limit.name().to_owned(),
            is_verdict: verdict.limit.is_verdict(),
            text: verdict.text.clone(),
            remarks: verdict.remarks.clone(),
        }
    }
}

impl SavedError {
    pub(crate) fn of(error: &Error) -> Self {
        Self {
            phase: error.phase.to_string(),
            cause: error.cause.to_string(),
            count: error.count,
            first_ns: error.first_ns,
            sample: String::from_utf8_lossy(&error.sample).into_owned(),
            ours: error.cause.is_ours(),
        }
    }
}

impl Thread {
    pub(crate) const fn of(share: &ThreadShare) -> Self {
        Self { busy: share.busy, waiting: share.waiting, cpu_ns: share.run_ns }
    }
}

impl System {
    pub(crate) fn of(tcp: Option<TcpCounters>) -> Self {
        Self { listen_drops: tcp.map(|tcp| tcp.listen_drops), retransmits: tcp.map(|tcp| tcp.retransmits) }
    }
}

impl SavedDistribution {
    /// The measured distribution; `None` if it is empty.
    pub(crate) fn of(distribution: &Distribution) -> Option<Self> {
        (distribution.count() > 0).then(|| Self(distribution.clone()))
    }
}

impl SavedExtent {
    const fn requests(count: u64) -> Self {
        Self { requests: Some(count), seconds: None }
    }

    const fn seconds(seconds: f64) -> Self {
        Self { requests: None, seconds: Some(seconds) }
    }
}

impl Percentiles {
    pub(crate) fn of(quantile_ns: impl Fn(f64) -> Option<u64>) -> Self {
        Self {
            p50_ns: quantile_ns(0.5),
            p90_ns: quantile_ns(0.9),
            p99_ns: quantile_ns(0.99),
            p99_9_ns: quantile_ns(0.999),
            p99_99_ns: quantile_ns(0.9999),
            p99_999_ns: quantile_ns(0.99999),
        }
    }

    pub(crate) fn estimated(estimate: &Estimate) -> Self {
        Self::of(|quantile| estimate.quantile_ns(quantile))
    }
}

impl Percentiles {
    /// The percentiles in ascending order.
    pub(crate) fn values(&self) -> [Option<u64>; 6] {
        [self.p50_ns, self.p90_ns, self.p99_ns, self.p99_9_ns, self.p99_99_ns, self.p99_999_ns]
    }
}

impl From<SavedDistribution> for SavedHistogram {
    fn from(SavedDistribution(distribution): SavedDistribution) -> Self {
        Self {
            count: distribution.count(),
            percentiles: Percentiles::of(|quantile| distribution.quantile_ns(quantile)),
            max_ns: distribution.max_ns(),
            mean_ns: distribution.mean_ns(),
            sum_ns: u64::try_from(distribution.sum_ns()).unwrap_or(u64::MAX),
            histogram: distribution.buckets().map(|(_, last, count)| (last, count)).collect(),
        }
    }
}

impl From<SavedHistogram> for SavedDistribution {
    fn from(told: SavedHistogram) -> Self {
        Self(Distribution::restored(told.histogram, told.sum_ns.into(), told.max_ns))
    }
}

impl fmt::Display for SavedRunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(reason) => write!(f, "not a run of `encke load --json`: {reason}"),
            Self::Schema(schema) => {
                write!(f, "the run has schema {schema}, but this version supports {SCHEMA}")
            }
            Self::Search => {
                f.write_str("this is a search (--find-max), not a run: use the `report` of one of its trials")
            }
        }
    }
}

impl std::error::Error for SavedRunError {}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The rate per second; 0 if no time has elapsed.
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

pub(crate) fn rfc3339(unix_ns: u64) -> String {
    let date = Civil::of(unix_ns / 1_000_000_000).rfc3339();
    format!("{}Z", String::from_utf8_lossy(&date))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;
    use crate::report::tests::report;

    #[test]
    fn a_run_comes_back_from_its_json() {
        let open = Pace::Open(Rate::constant(100.0).expect("a rate"), Arrivals::Poisson);
        for pace in [Pace::Closed, open] {
            let mut report = report(pace);
            let mut totals = crate::Totals::default();
            report.series.look(1, totals.clone());
            totals.finished = 3;
            totals.service.record_many(5_000, 3);
            report.series.look(1_000_000_001, totals);
            report.outcome.began_unix_ns = 1_795_296_363_000_000_000;
            let saved = report.saved();
            assert_eq!(saved.began, "2026-11-21T21:26:03Z");
            let text = saved.json().to_string();
            assert_eq!(Saved::read(&text).as_ref(), Ok(&saved));
        }
    }

    #[test]
    fn the_json_has_every_count_and_the_histogram() {
        let json = report(Pace::Closed).json();
        assert_eq!(json["schema"], 1);
        assert_eq!(json["requests"]["begun"], 1_003);
        assert_eq!(json["requests"]["finished"], 1_000);
        assert_eq!(json["statuses"]["5xx"], 10);
        assert_eq!(json["status_codes"], serde_json::json!({ "200": 990, "503": 10 }));
        assert_eq!(json["errors"][0]["phase"], "first byte");
        assert_eq!(json["latency"]["service"]["count"], 1_000);
        let histogram = json["latency"]["service"]["histogram"].as_str().and_then(blob::held);
        let count: u64 = histogram.expect("a histogram").iter().map(|(_, count)| count).sum();
        assert_eq!(count, 1_000);
        assert_eq!(json["verdict"]["limit"], "server");
        assert_eq!(json["latency"].get("response"), None, "what was not measured is not there");
    }

    #[test]
    fn what_is_no_saved_run_is_said() {
        let json = report(Pace::Closed).json();
        let with = |key: &str, value: Value| {
            let mut json = json.clone();
            json[key] = value;
            json.to_string()
        };
        for (text, said) in [
            ("no JSON".to_owned(), "not a run"),
            ("{}".into(), "`schema` is missing"),
            (with("schema", 2.into()), "schema 2"),
            (with("requests", Value::Null), "not a run"),
            (with("find_max", Value::Null), "a search"),
            (with("seconds", serde_json::json!([{ "histogram": "x" }])), "not a run"),
        ] {
            let error = Saved::read(&text).expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
        // Fields that older programs did not write have defaults.
        let mut old = json.clone();
        let object = old.as_object_mut().expect("an object");
        for key in ["environment", "began", "began_unix_ns", "status_codes"] {
            object.remove(key);
        }
        assert!(Saved::read(&old.to_string()).is_ok());
    }
}
