//! The saved form of a push run: JSON, schema 1, `"kind": "push"`, written and read by the same types.
//!
//! Keys are snake_case with the unit last. Keys are added, but never changed. A file may be from an older program, so later
//! fields have defaults.

use encke_stats::Distribution;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::PushReport;
use crate::environment::Environment;
use crate::plan::Stop;
use crate::push::{Column, Memory, PushRunPlan};
use crate::report::saved::{
    SCHEMA, SavedDistribution, SavedError, SavedPace, SavedVerdict, System, Thread, nanoseconds, rfc3339,
};

/// A push run: plan, environment and results.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SavedPushRun {
    /// Schema version, 1.
    pub schema: u32,
    /// `push`.
    pub kind: String,
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
    /// The URL as given by the user.
    pub url: String,
    /// The machine of the generator.
    #[serde(default)]
    pub environment: Environment,
    /// The plan.
    pub plan: SavedPushPlan,
    /// Subscriber counters.
    pub subscribers: Subscribers,
    /// Message counters.
    pub messages: SavedPublished,
    /// Receipt counters.
    pub receipts: SavedReceipts,
    /// Receipts per second.
    pub rate_per_s: f64,
    /// Time from the begin of publishing to the last receipt, in ns.
    pub elapsed_ns: u64,
    /// Bytes received and sent.
    pub bytes: SavedTraffic,
    /// Histograms of times.
    pub times: SavedTimes,
    /// How subscribers reconnected after a storm.
    pub storm: Option<SavedStorm>,
    /// The rounds of a cycle.
    pub rounds: Vec<SavedRound>,
    /// The generator's memory per subscriber.
    pub memory: Option<SavedMemory>,
    /// Resources used by the server, if it was watched.
    pub server: Option<SavedServer>,
    /// Errors, the most frequent first.
    pub errors: Vec<SavedError>,
    /// The generator's threads.
    pub threads: Vec<Thread>,
    /// TCP counters of this machine during the run, other programs included.
    pub system: System,
    /// The bottleneck.
    pub verdict: SavedVerdict,
    /// The run over time, by the send time of messages.
    #[serde(default)]
    pub columns: Vec<Column>,
    /// The runs that were merged into this one; otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<SavedPushPart>,
}

/// A run that was merged into another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is the field of the same name in Saved")]
pub struct SavedPushPart {
    pub command: String,
    pub began: String,
    pub began_unix_ns: u64,
    pub environment: Environment,
    pub receipts: SavedReceipts,
    pub rate_per_s: f64,
    pub verdict: SavedVerdict,
}

/// The saved form of [`PushRunPlan`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is the field of the same name in Plan")]
pub struct SavedPushPlan {
    /// One line: subscribers, messages and threads.
    pub text: String,
    pub server: String,
    pub transport: String,
    pub subscribers: u32,
    pub channels: usize,
    pub publishers: u16,
    pub payload_bytes: usize,
    pub pace: SavedPace,
    pub stop: SavedPushExtent,
    pub connect_rate: Option<String>,
    pub slow: f64,
    pub churn_per_s: f64,
    pub storm: bool,
    pub cycles: Option<u32>,
    pub threads: u16,
    pub timeout_s: f64,
    pub drain_s: f64,
    pub backend: String,
    pub seed: u64,
}

/// A number of messages, a duration, or neither.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "that is all")]
pub struct SavedPushExtent {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// Subscriber counters.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the others are the cells of the same names in Tally")]
pub struct Subscribers {
    pub answered: u64,
    /// Subscribers at the end.
    pub held: u32,
    /// Subscribers at the end that do not read.
    pub slow: u32,
    pub closed: u64,
    pub turned_away: u64,
    pub left: u64,
    pub unconnected: u64,
    pub handshakes: u64,
    pub resumed: u64,
    /// Time from the first connect(2) until the last subscriber was subscribed, in ns.
    pub opening_ns: u64,
    /// Subscribers over time: ns since the first connect(2), and how many were subscribed.
    pub course: Vec<(u64, u64)>,
}

/// Message counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is the cell of the same name in Tally")]
pub struct SavedPublished {
    pub published: u64,
    pub refused: u64,
    pub queued: u64,
    /// On a schedule: messages that were due and never begun.
    pub unsent: u64,
}

/// Receipt counters.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "as in Reach and Tally")]
pub struct SavedReceipts {
    pub expected: u64,
    pub received: u64,
    pub lost: u64,
    /// Receipts as a share of those expected.
    pub reach: Option<f64>,
    pub repeated: u64,
    pub out_of_order: u64,
    pub early: u64,
    pub gaps_told: u64,
}

/// Bytes transferred, including all framing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "that is all")]
pub struct SavedTraffic {
    pub received: u64,
    pub sent: u64,
}

/// Histograms of times; `None` if not measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedTimes {
    /// Per receipt: time from the publisher's send to the receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<SavedDistribution>,
    /// Per message: time from the send to the first receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<SavedDistribution>,
    /// Per message: time from the first receipt to the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_to_last: Option<SavedDistribution>,
    /// Per message: time from the send to the last receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<SavedDistribution>,
    /// Time from connect(2) to established, including the TLS handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<SavedDistribution>,
    /// The TLS handshake alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake: Option<SavedDistribution>,
    /// Initial subscribers: time from connect(2) to the server's response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<SavedDistribution>,
    /// Reconnects: time from connect(2) to the server's response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back: Option<SavedDistribution>,
    /// Time from a publisher's send to the server's response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<SavedDistribution>,
    /// On a schedule: time from when a message was due to its send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<SavedDistribution>,
}

/// How subscribers reconnected after a storm; `None` if they did not.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedStorm {
    /// Time from the cut until the last subscriber was subscribed again, in ns.
    pub back_ns: Option<u64>,
    /// Time from the cut until the last subscriber had received all missed messages, in ns.
    pub caught_up_ns: Option<u64>,
    /// Reconnects over time: ns since the cut, and how many were subscribed again.
    pub course: Vec<(u64, u64)>,
}

/// The saved form of [`crate::push::Round`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is the field of the same name in Round")]
pub struct SavedRound {
    pub connect_ns: u64,
    pub first_ns: u64,
    pub first_to_last_ns: u64,
    pub held: u32,
    pub received: u32,
}

/// The saved form of [`Memory`].
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what its name says")]
pub struct SavedMemory {
    pub before_bytes: u64,
    pub held_bytes: u64,
    /// Bytes per subscriber.
    pub each_bytes: f64,
}

/// Resources used by a watched server.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedServer {
    /// Memory before the first connection, and with all subscribers.
    pub memory: SavedMemory,
    /// Processor time while messages were published, in ns.
    pub cpu_ns: u64,
}

impl SavedPushRun {
    /// The run as JSON.
    pub fn json(&self) -> Value {
        serde_json::to_value(self).expect("every key is a string, and every number one of JSON's")
    }

    /// The measured distributions and their names, distributions of messages first.
    pub(crate) fn measured(&self) -> Vec<(&'static str, &Distribution)> {
        let times = &self.times;
        let named = [
            ("each receiver", &times.receipt),
            ("the first", &times.first),
            ("first to last", &times.first_to_last),
            ("the last", &times.last),
            ("sent late by", &times.lag),
            ("publish to its answer", &times.publish),
            ("connect to answer", &times.answer),
            ("back after", &times.back),
        ];
        named.into_iter().filter_map(|(name, held)| Some((name, &held.as_ref()?.0))).collect()
    }
}

impl PushReport {
    /// The saved form of the run.
    pub fn saved(&self) -> SavedPushRun {
        let Self { plan, outcome, .. } = self;
        let totals = &outcome.totals;
        let rounds = outcome.rounds.iter().map(|round| SavedRound {
            connect_ns: round.connect_ns,
            first_ns: round.first_ns,
            first_to_last_ns: round.spread_ns,
            held: round.held,
            received: round.received,
        });
        let memory = |memory: Memory| SavedMemory {
            before_bytes: memory.before_bytes,
            held_bytes: memory.held_bytes,
            each_bytes: memory.each(plan.subscribers),
        };
        SavedPushRun {
            schema: SCHEMA,
            kind: "push".into(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: self.command.clone(),
            began: rfc3339(outcome.began_unix_ns),
            began_unix_ns: outcome.began_unix_ns,
            url: self.url.clone(),
            environment: self.environment.clone(),
            plan: SavedPushPlan { text: plan.to_string(), ..SavedPushPlan::of(plan) },
            subscribers: Subscribers {
                answered: totals.answer.count(),
                held: outcome.held,
                slow: outcome.slow,
                closed: totals.closed,
                turned_away: totals.turned_away,
                left: totals.left,
                unconnected: totals.unconnected,
                handshakes: totals.handshakes,
                resumed: totals.resumed,
                opening_ns: nanoseconds(outcome.opening),
                course: outcome.opened.clone(),
            },
            messages: SavedPublished {
                published: totals.published,
                refused: totals.refused,
                queued: totals.queued,
                unsent: self.unsent(),
            },
            receipts: SavedReceipts {
                expected: outcome.reach.expected,
                received: totals.received,
                lost: outcome.reach.lost,
                reach: outcome.reach.share(),
                repeated: totals.repeated,
                out_of_order: totals.late,
                early: totals.early,
                gaps_told: totals.gaps,
            },
            rate_per_s: self.rate(),
            elapsed_ns: nanoseconds(outcome.elapsed),
            bytes: SavedTraffic { received: totals.received_bytes, sent: totals.sent_bytes },
            times: SavedTimes {
                receipt: SavedDistribution::of(&totals.latency),
                first: SavedDistribution::of(&outcome.messages.first),
                first_to_last: SavedDistribution::of(&outcome.messages.spread),
                last: SavedDistribution::of(&outcome.messages.last),
                connect: SavedDistribution::of(&totals.connect),
                handshake: SavedDistribution::of(&totals.handshake),
                answer: SavedDistribution::of(&totals.answer),
                back: SavedDistribution::of(&totals.back),
                publish: SavedDistribution::of(&totals.taken),
                lag: SavedDistribution::of(&totals.lag),
            },
            storm: outcome.storm.as_ref().map(|storm| SavedStorm {
                back_ns: storm.back.map(nanoseconds),
                caught_up_ns: storm.caught_up.map(nanoseconds),
                course: outcome.returned.clone(),
            }),
            rounds: rounds.collect(),
            memory: outcome.own.map(memory),
            server: outcome
                .server
                .map(|(held, used)| SavedServer { memory: memory(held), cpu_ns: nanoseconds(used) }),
            errors: outcome.errors.iter().map(SavedError::of).collect(),
            threads: outcome.threads.iter().map(Thread::of).collect(),
            system: System::of(outcome.tcp),
            verdict: SavedVerdict::of(&self.verdict),
            columns: outcome.columns.clone(),
            parts: Vec::new(),
        }
    }

    /// The run as JSON.
    pub fn json(&self) -> Value {
        self.saved().json()
    }
}

impl SavedPushPlan {
    fn of(plan: &PushRunPlan) -> Self {
        let stop = match plan.stop {
            Stop::Count(count) => SavedPushExtent { messages: Some(count), seconds: None },
            Stop::After(time) => SavedPushExtent { messages: None, seconds: Some(time.as_secs_f64()) },
            Stop::Told => SavedPushExtent::default(),
        };
        Self {
            text: String::new(),
            server: plan.server.to_string(),
            transport: plan.transport.name().to_owned(),
            subscribers: plan.subscribers,
            channels: plan.channels.len(),
            publishers: plan.publishers,
            payload_bytes: plan.payload_bytes,
            pace: SavedPace::of(&plan.pace),
            stop,
            connect_rate: plan.connect_rate.as_ref().map(ToString::to_string),
            slow: plan.slow,
            churn_per_s: plan.churn,
            storm: plan.storm,
            cycles: plan.cycles,
            threads: plan.threads,
            timeout_s: plan.timeout.as_secs_f64(),
            drain_s: plan.drain.as_secs_f64(),
            backend: plan.backend.name().to_owned(),
            seed: plan.seed,
        }
    }
}
