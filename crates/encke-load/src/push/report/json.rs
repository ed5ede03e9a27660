//! A report for machines: JSON, schema 1. Keys are snake_case with the unit last; they are added to, never changed.

use encke_stats::Distribution;
use serde_json::{Map, Value, json};

use super::Report;
use crate::pace::{Arrivals, Pace};
use crate::plan::Stop;
use crate::push::{Memory, Plan};
use crate::report::saved::Held;

impl Report {
    /// Everything that is known of a run.
    pub fn json(&self) -> Value {
        let outcome = &self.outcome;
        let totals = &outcome.totals;
        let mut times = Map::new();
        for (name, distribution) in [
            ("receipt", &totals.latency),
            ("first", &outcome.messages.first),
            ("first_to_last", &outcome.messages.spread),
            ("last", &outcome.messages.last),
            ("connect", &totals.connect),
            ("answer", &totals.answer),
            ("back", &totals.back),
            ("publish", &totals.taken),
            ("lag", &totals.lag),
        ] {
            if distribution.count() > 0 {
                times.insert(name.into(), of_distribution(distribution));
            }
        }
        let errors = outcome.errors.iter().map(|error| {
            json!({
                "phase": error.phase.to_string(),
                "cause": error.cause.to_string(),
                "count": error.count,
                "first_ns": error.first_ns,
                "ours": error.cause.is_ours(),
            })
        });
        let rounds = outcome.rounds.iter().map(|round| {
            json!({
                "connect_ns": round.connect_ns,
                "first_ns": round.first_ns,
                "first_to_last_ns": round.spread_ns,
                "held": round.held,
                "received": round.received,
            })
        });
        let threads = outcome.threads.iter();
        let threads = threads
            .map(|thread| json!({ "busy": thread.busy, "waiting": thread.waiting, "cpu_ns": thread.run_ns }));
        json!({
            "schema": 1,
            "kind": "push",
            "version": env!("CARGO_PKG_VERSION"),
            "command": self.command,
            "url": self.url,
            "environment": self.environment,
            "plan": of_plan(&self.plan),
            "subscribers": {
                "answered": totals.answer.count(),
                "held": outcome.held,
                "slow": outcome.slow,
                "closed": totals.closed,
                "turned_away": totals.turned_away,
                "left": totals.left,
                "unconnected": totals.unconnected,
                "opening_ns": ns(outcome.opening),
            },
            "messages": {
                "published": totals.published,
                "refused": totals.refused,
                "queued": totals.queued,
                "unsent": self.unsent(),
            },
            "receipts": {
                "expected": outcome.reach.expected,
                "received": totals.received,
                "lost": outcome.reach.lost,
                "reach": outcome.reach.share(),
                "repeated": totals.repeated,
                "out_of_order": totals.late,
                "early": totals.early,
                "gaps_told": totals.gaps,
            },
            "rate_per_s": self.rate(),
            "elapsed_ns": ns(outcome.elapsed),
            "bytes": { "received": totals.received_bytes, "sent": totals.sent_bytes },
            "times": times,
            "storm": outcome.storm.map(|storm| json!({
                "back_ns": storm.back.map(ns),
                "caught_up_ns": storm.caught_up.map(ns),
            })),
            "rounds": rounds.collect::<Vec<_>>(),
            "memory": outcome.own.map(|own| of_memory(own, &self.plan)),
            "server": outcome.server.map(|(memory, used)| json!({
                "memory": of_memory(memory, &self.plan),
                "cpu_ns": ns(used),
            })),
            "errors": errors.collect::<Vec<_>>(),
            "threads": threads.collect::<Vec<_>>(),
            "system": {
                "listen_drops": outcome.tcp.map(|tcp| tcp.listen_drops),
                "retransmits": outcome.tcp.map(|tcp| tcp.retransmits),
            },
            "verdict": {
                "limit": self.verdict.limit.name(),
                "is_verdict": self.verdict.limit.is_verdict(),
                "text": self.verdict.text,
                "remarks": self.verdict.remarks,
            },
        })
    }
}

fn of_plan(plan: &Plan) -> Value {
    let pace = match &plan.pace {
        Pace::Closed => json!({ "loop": "closed" }),
        Pace::Open(rate, arrivals) => {
            let arrivals = match arrivals {
                Arrivals::Even => "even",
                Arrivals::Poisson => "poisson",
            };
            json!({ "loop": "open", "rate": rate.to_string(), "arrivals": arrivals })
        }
    };
    let stop = match plan.stop {
        Stop::Count(count) => json!({ "messages": count }),
        Stop::After(time) => json!({ "seconds": time.as_secs_f64() }),
        Stop::Told => json!({}),
    };
    json!({
        "server": plan.server.to_string(),
        "transport": plan.transport.name(),
        "subscribers": plan.subscribers,
        "channels": plan.channels.len(),
        "publishers": plan.publishers,
        "payload_bytes": plan.payload_bytes,
        "pace": pace,
        "stop": stop,
        "connect_rate": plan.connect_rate.as_ref().map(ToString::to_string),
        "slow": plan.slow,
        "churn_per_s": plan.churn,
        "storm": plan.storm,
        "cycles": plan.cycles,
        "threads": plan.threads,
        "timeout_s": plan.timeout.as_secs_f64(),
        "drain_s": plan.drain.as_secs_f64(),
        "backend": plan.backend.name(),
        "seed": plan.seed,
    })
}

fn of_memory(memory: Memory, plan: &Plan) -> Value {
    json!({
        "before_bytes": memory.before_bytes,
        "held_bytes": memory.held_bytes,
        "each_bytes": memory.each(plan.subscribers),
    })
}

fn of_distribution(distribution: &Distribution) -> Value {
    serde_json::to_value(Held(distribution.clone())).expect("every number is one of JSON's")
}

fn ns(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
