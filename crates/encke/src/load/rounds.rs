//! `encke load push --paced ROUND`: one line of standard input prepares a round, the next one runs it.
//!
//! ```text
//!   stdin   ⏎                     ⏎                     ⏎   …   end of input ends the run
//!   stdout      {"ready":true}        {"round":"fan",…}
//! ```
//! Between a line and its response only the round runs. The difference of the server's processor time between the two is
//! therefore that of the round.

use std::io;
use std::process::ExitCode;

use encke_io::host;
use encke_load::push::{PacedStep, PushRun, PushRunPlan, PushTotals, RoundFigures};
use serde_json::{Value, json};

use super::{Interrupts, LOOK};
use crate::error::{CommandError, CommandResult, INTERRUPTED};
use crate::output::print;

pub(super) fn run(plan: PushRunPlan, interrupts: &Interrupts) -> CommandResult {
    let mut run = PushRun::start(plan.clone())?;
    interrupts.end(run.halter());
    for _line in io::stdin().lines().map_while(Result::ok) {
        let ((_, before), cpu_s) = (run.totals(), host::cpu_seconds());
        let told = match run.step() {
            None => break,
            Some(PacedStep::Ready) => json!({ "ready": true }),
            Some(PacedStep::Done(figures)) => {
                let (_, after) = run.totals();
                told(&plan, figures, &before, &after, host::cpu_seconds() - cpu_s)
            }
        };
        print(&format!("{told}\n"))?;
    }
    run.halter().halt();
    while !run.wait(LOOK) {}
    let outcome = run.outcome()?;
    if let Some(error) = outcome.errors.iter().next().filter(|_| outcome.totals.answered == 0) {
        let text = format!("{} ({})", error.cause, error.phase);
        return Err(CommandError::server(text).context(&plan.server));
    }
    Ok(if interrupts.seen() { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// Returns the results of a round. Times are in ns; latencies are from just before the publisher's send to each receive.
fn told(
    plan: &PushRunPlan,
    figures: RoundFigures,
    before: &PushTotals,
    after: &PushTotals,
    cpu_s: f64,
) -> Value {
    let latency = after.latency.since(&before.latency);
    let seconds = figures.published_ns as f64 / 1e9;
    json!({
        "round": plan.paced.map(encke_load::push::Paced::name),
        "transport": plan.transport.name(),
        "subscribers": plan.subscribers,
        "held": figures.held,
        "publishers": plan.publishers,
        "published": after.published - before.published,
        "refused": after.refused - before.refused,
        "received": after.received - before.received,
        "lost": figures.lost,
        "repeated": after.repeated - before.repeated,
        "out_of_order": after.late - before.late,
        "closed": after.closed - before.closed,
        "turned_away": after.turned_away - before.turned_away,
        "unconnected": after.unconnected - before.unconnected,
        "connect_ns": figures.connect_ns,
        "first_ns": figures.first_ns,
        "first_to_last_ns": figures.first_to_last_ns,
        "p50_ns": latency.quantile_ns(0.5),
        "p99_ns": latency.quantile_ns(0.99),
        "max_ns": latency.quantile_ns(1.0),
        "seconds": seconds,
        "delivered_per_second": if seconds > 0.0 { figures.in_time as f64 / seconds } else { 0.0 },
        "own_cpu_ns": (cpu_s * 1e9) as u64,
    })
}
