//! A report for machines: JSON, schema 1. Keys are snake_case with the unit last; they are added to, never changed.

use encke_stats::Distribution;
use serde_json::{Map, Value, json};

use super::{PERCENTILES, Report};
use crate::pace::{Arrivals, Pace};
use crate::plan::{Stop, WarmUp};

impl Report {
    /// Everything that is known of a run.
    pub fn json(&self) -> Value {
        let totals = &self.outcome.totals;
        let statuses: Map<String, Value> =
            (1..10).map(|class| (format!("{class}xx"), totals.statuses[class].into())).collect();
        let mut latency = Map::new();
        for (name, distribution) in [
            ("service", &totals.service),
            ("first_byte", &totals.first_byte),
            ("response", &totals.response),
            ("lag", &totals.lag),
            ("connect", &totals.connect),
        ] {
            if distribution.count() > 0 {
                latency.insert(name.into(), of_distribution(distribution));
            }
        }
        if let Some(estimate) = self.estimate() {
            let percentiles =
                PERCENTILES.map(|(_, key, share)| (key.to_owned(), json!(estimate.quantile_ns(share))));
            latency.insert("open_loop_estimate".into(), Value::Object(percentiles.into_iter().collect()));
        }
        let errors = self.outcome.errors.iter().map(|error| {
            json!({
                "phase": error.phase.to_string(),
                "cause": error.cause.to_string(),
                "count": error.count,
                "first_ns": error.first_ns,
                "sample": String::from_utf8_lossy(&error.sample),
            })
        });
        let errors: Vec<Value> = errors.collect();
        let seconds: Vec<Value> = self
            .series
            .stretches()
            .iter()
            .map(|stretch| {
                json!({
                    "at_s": stretch.at_s,
                    "seconds": stretch.seconds,
                    "finished": stretch.finished,
                    "failed": stretch.failed,
                    "received_bytes": stretch.received_bytes,
                    "p50_ns": stretch.p50_ns,
                    "p99_ns": stretch.p99_ns,
                    "max_ns": stretch.max_ns,
                    "buckets": of_pairs(stretch.latency.iter().copied()),
                })
            })
            .collect();
        let threads: Vec<Value> = self
            .outcome
            .threads
            .iter()
            .map(|thread| json!({ "busy": thread.busy, "waiting": thread.waiting, "cpu_ns": thread.run_ns }))
            .collect();
        json!({
            "schema": 1,
            "version": env!("CARGO_PKG_VERSION"),
            "command": self.command,
            "urls": self.urls,
            "plan": self.of_plan(),
            "requests": {
                "begun": totals.begun,
                "finished": totals.finished,
                "wrong": totals.wrong,
                "failed": totals.failed,
                "aborted": totals.aborted,
                "warm_up": totals.warm_up,
                "queued": totals.queued,
                "unsent": self.unsent(),
            },
            "rate_per_s": self.rate(),
            "elapsed_ns": self.outcome.elapsed.as_nanos() as u64,
            "statuses": statuses,
            "bytes": {
                "received": totals.received_bytes,
                "bodies": totals.body_bytes,
                "sent": totals.sent_bytes,
            },
            "connections": {
                "made": totals.connected,
                "failed": totals.unconnected,
                "ended_at_rest": totals.ended_idle,
                "opening_ns": self.outcome.opening.as_nanos() as u64,
            },
            "latency": latency,
            "errors": errors,
            "seconds": seconds,
            "threads": threads,
            "system": {
                "listen_drops": self.outcome.tcp.map(|tcp| tcp.listen_drops),
                "retransmits": self.outcome.tcp.map(|tcp| tcp.retransmits),
            },
            "verdict": {
                "limit": self.verdict.limit.name(),
                "is_verdict": self.verdict.limit.is_verdict(),
                "text": self.verdict.text,
                "remarks": self.verdict.remarks,
            },
        })
    }

    fn of_plan(&self) -> Value {
        let plan = &self.plan;
        let stop = match plan.stop {
            Stop::Count(count) => json!({ "requests": count }),
            Stop::After(time) => json!({ "seconds": time.as_secs_f64() }),
            Stop::Told => json!({}),
        };
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
        let warm_up = match plan.warm_up {
            WarmUp::None => json!({}),
            WarmUp::Count(count) => json!({ "requests": count }),
            WarmUp::For(time) => json!({ "seconds": time.as_secs_f64() }),
        };
        json!({
            "server": plan.server.to_string(),
            "pace": pace,
            "stop": stop,
            "warm_up": warm_up,
            "connections": plan.connections,
            "threads": plan.threads,
            "pipeline": plan.pipeline,
            "requests_per_connection": plan.requests_per_connection,
            "timeout_s": plan.timeout.as_secs_f64(),
            "backend": plan.backend.name(),
            "seed": plan.seed,
        })
    }
}

fn of_distribution(distribution: &Distribution) -> Value {
    let mut told = Map::new();
    told.insert("count".into(), distribution.count().into());
    for (_, key, share) in PERCENTILES {
        told.insert(key.into(), json!(distribution.quantile_ns(share)));
    }
    told.insert("max_ns".into(), distribution.max_ns().into());
    told.insert("mean_ns".into(), json!(distribution.mean_ns()));
    told.insert("buckets".into(), of_pairs(distribution.buckets().map(|(_, last, count)| (last, count))));
    Value::Object(told)
}

/// `[last value in ns, count]` of each bucket: enough to merge runs and plot them again, to 1/64 of a value.
fn of_pairs(pairs: impl Iterator<Item = (u64, u64)>) -> Value {
    pairs.map(|(last, count)| json!([last, count])).collect()
}
