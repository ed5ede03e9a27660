//! A run of subscribers as it is saved: JSON, schema 1, `"kind": "push"`, written and read by the same types.
//!
//! Keys are snake_case with the unit last; they are added to, never changed. What is read may be of an older program, so
//! whatever came later has a default.

use encke_stats::Distribution;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Report;
use crate::environment::Environment;
use crate::plan::Stop;
use crate::push::{Column, Memory, Plan};
use crate::report::saved::{
    Held, SCHEMA, SavedError, SavedPace, SavedVerdict, System, Thread, nanoseconds, rfc3339,
};

/// A run: what was done, where, and what came of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Saved {
    /// 1.
    pub schema: u32,
    /// `push`.
    pub kind: String,
    /// Of the program that made it.
    pub version: String,
    /// The command that does it again.
    pub command: String,
    /// When it began, as RFC 3339 has it, UTC.
    #[serde(default)]
    pub began: String,
    /// The same, in nanoseconds since 1970.
    #[serde(default)]
    pub began_unix_ns: u64,
    /// To what, as it was written.
    pub url: String,
    /// On what.
    #[serde(default)]
    pub environment: Environment,
    /// How.
    pub plan: SavedPlan,
    /// Who was there.
    pub subscribers: Subscribers,
    /// What was said.
    pub messages: Published,
    /// Who has received it.
    pub receipts: Receipts,
    /// Receipts a second.
    pub rate_per_s: f64,
    /// From the beginning of publishing to the last receipt.
    pub elapsed_ns: u64,
    /// Bytes.
    pub bytes: Traffic,
    /// How long things took.
    pub times: Times,
    /// How all came back who were cut at once.
    pub storm: Option<SavedStorm>,
    /// The rounds of a cycle.
    pub rounds: Vec<SavedRound>,
    /// What subscribers cost in memory here.
    pub memory: Option<SavedMemory>,
    /// What the server used, if it was watched.
    pub server: Option<Server>,
    /// What went wrong, the most frequent first.
    pub errors: Vec<SavedError>,
    /// The generator's threads.
    pub threads: Vec<Thread>,
    /// What TCP on this machine counted meanwhile, other programs included.
    pub system: System,
    /// Who was the limit.
    pub verdict: SavedVerdict,
    /// The run over time, by when messages were sent.
    #[serde(default)]
    pub columns: Vec<Column>,
    /// The runs that were joined to this one; none if it is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<SavedPart>,
}

/// A run that is part of another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is the field of the same name in Saved")]
pub struct SavedPart {
    pub command: String,
    pub began: String,
    pub began_unix_ns: u64,
    pub environment: Environment,
    pub receipts: Receipts,
    pub rate_per_s: f64,
    pub verdict: SavedVerdict,
}

/// As [`Plan`], for people and scripts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is the field of the same name in Plan")]
pub struct SavedPlan {
    /// What was done, in a line.
    pub text: String,
    pub server: String,
    pub transport: String,
    pub subscribers: u32,
    pub channels: usize,
    pub publishers: u16,
    pub payload_bytes: usize,
    pub pace: SavedPace,
    pub stop: Extent,
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

/// So many messages, so long, or neither.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "that is all")]
pub struct Extent {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// Who was there.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the others are the cells of the same names in Tally")]
pub struct Subscribers {
    pub answered: u64,
    /// At the end.
    pub held: u32,
    /// Of those, the ones that read nothing.
    pub slow: u32,
    pub closed: u64,
    pub turned_away: u64,
    pub left: u64,
    pub unconnected: u64,
    pub handshakes: u64,
    pub resumed: u64,
    /// From the first connect(2) until the last subscriber was answered.
    pub opening_ns: u64,
    /// How many had been answered so long after the first connect(2): ns, subscribers.
    pub course: Vec<(u64, u64)>,
}

/// What was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is the cell of the same name in Tally")]
pub struct Published {
    pub published: u64,
    pub refused: u64,
    pub queued: u64,
    /// On a schedule: due, and never begun.
    pub unsent: u64,
}

/// Who has received what was said.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "as in Reach and Tally")]
pub struct Receipts {
    pub expected: u64,
    pub received: u64,
    pub lost: u64,
    /// The share of those due that happened.
    pub reach: Option<f64>,
    pub repeated: u64,
    pub out_of_order: u64,
    pub early: u64,
    pub gaps_told: u64,
}

/// Bytes that went to and fro, all framing included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "that is all")]
pub struct Traffic {
    pub received: u64,
    pub sent: u64,
}

/// How long things took; what was not measured is not there.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// From a publisher's send to a subscriber's receive, of each receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Held>,
    /// The same to the first who had it, of each message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Held>,
    /// From the first who had it to the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_to_last: Option<Held>,
    /// From the send to the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Held>,
    /// From connect(2) to established, TLS' handshake included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<Held>,
    /// TLS' handshake alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake: Option<Held>,
    /// From connect(2) to the server's answer, of subscribers at the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Held>,
    /// The same of those who came back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back: Option<Held>,
    /// From a publisher's send to the server's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<Held>,
    /// On a schedule: from when a message was due to its send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<Held>,
}

/// How all came back who were cut at once; what did not come to its end is not there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedStorm {
    /// Until the last of them was answered.
    pub back_ns: Option<u64>,
    /// Until the last of them had what was said meanwhile.
    pub caught_up_ns: Option<u64>,
    /// How many were back so long after the cut: ns, subscribers.
    pub course: Vec<(u64, u64)>,
}

/// As [`crate::push::Round`].
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

/// As [`Memory`].
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what its name says")]
pub struct SavedMemory {
    pub before_bytes: u64,
    pub held_bytes: u64,
    /// Of one subscriber.
    pub each_bytes: f64,
}

/// What a watched server used.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Before the first connection, and when all subscribers were there.
    pub memory: SavedMemory,
    /// Processor time while messages were published.
    pub cpu_ns: u64,
}

impl Saved {
    /// As JSON.
    pub fn json(&self) -> Value {
        serde_json::to_value(self).expect("every key is a string, and every number one of JSON's")
    }

    /// The distributions that were measured, by their names; those of messages first.
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

impl Report {
    /// Everything that is known of a run, as it is saved.
    pub fn saved(&self) -> Saved {
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
        Saved {
            schema: SCHEMA,
            kind: "push".into(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: self.command.clone(),
            began: rfc3339(outcome.began_unix_ns),
            began_unix_ns: outcome.began_unix_ns,
            url: self.url.clone(),
            environment: self.environment.clone(),
            plan: SavedPlan { text: plan.to_string(), ..SavedPlan::of(plan) },
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
            messages: Published {
                published: totals.published,
                refused: totals.refused,
                queued: totals.queued,
                unsent: self.unsent(),
            },
            receipts: Receipts {
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
            bytes: Traffic { received: totals.received_bytes, sent: totals.sent_bytes },
            times: Times {
                receipt: Held::of(&totals.latency),
                first: Held::of(&outcome.messages.first),
                first_to_last: Held::of(&outcome.messages.spread),
                last: Held::of(&outcome.messages.last),
                connect: Held::of(&totals.connect),
                handshake: Held::of(&totals.handshake),
                answer: Held::of(&totals.answer),
                back: Held::of(&totals.back),
                publish: Held::of(&totals.taken),
                lag: Held::of(&totals.lag),
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
                .map(|(held, used)| Server { memory: memory(held), cpu_ns: nanoseconds(used) }),
            errors: outcome.errors.iter().map(SavedError::of).collect(),
            threads: outcome.threads.iter().map(Thread::of).collect(),
            system: System::of(outcome.tcp),
            verdict: SavedVerdict::of(&self.verdict),
            columns: outcome.columns.clone(),
            parts: Vec::new(),
        }
    }

    /// The same as JSON.
    pub fn json(&self) -> Value {
        self.saved().json()
    }
}

impl SavedPlan {
    fn of(plan: &Plan) -> Self {
        let stop = match plan.stop {
            Stop::Count(count) => Extent { messages: Some(count), seconds: None },
            Stop::After(time) => Extent { messages: None, seconds: Some(time.as_secs_f64()) },
            Stop::Told => Extent::default(),
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
