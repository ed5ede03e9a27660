//! `encke load compare A B`: measures two servers in turns, or compares two saved runs.
//!
//! ```text
//!   warm-up: A, B ─► rounds of A B B A or B A A B ─► a pair of blocks per change of turns ─► Comparison
//!      └── the responses differ, or are errors: no verdict
//! ```
//! A block is a run of its own: its connections are opened before its clock starts, and the other server receives no requests
//! meanwhile. Exit status: 0 with or without a significant difference · 4 if the generator was the bottleneck in most blocks, if
//! the responses of A and B differ, or if they are errors.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use encke_io::host::Signals;
use encke_load::compare::{self, Block};
use encke_load::verdict::Bottleneck;
use encke_load::{Comparison, Report, SavedRun, Stop, words};

use super::progress::ViewMode;
use super::{Interrupts, NO_VERDICT, Weighted, again, command, measure, nothing_measured, plan, saved};
use crate::arguments::Compare;
use crate::error::{CommandError, CommandResult, INTERRUPTED};
use crate::output::{note, print_result};

pub(crate) fn run(arguments: &Compare, signals: Signals) -> CommandResult {
    let names = [&arguments.one, &arguments.other].map(|name| again::url(name));
    match [&arguments.one, &arguments.other].map(|name| name.contains("://")) {
        [true, true] => servers(arguments, names, signals),
        [false, false] if !arguments.watch.is_empty() => {
            Err(CommandError::usage("--watch requires servers, not saved runs"))
        }
        [false, false] => {
            let runs = [saved::read(Path::new(&arguments.one))?, saved::read(Path::new(&arguments.other))?];
            let compared = SavedRun::compared(names, [&runs[0], &runs[1]]);
            let mut comparison = compared.map_err(CommandError::usage)?;
            if arguments.different_responses {
                comparison.allow_different_responses();
            }
            told(&comparison, arguments.json, false)
        }
        _ => Err(CommandError::usage(
            "cannot compare a server with a saved run: expected two URLs, or two files",
        )),
    }
}

fn servers(arguments: &Compare, names: [String; 2], signals: Signals) -> CommandResult {
    let url = |name: &String| name.parse::<Weighted>().map(|url| [url]).map_err(CommandError::from);
    let urls = [url(&arguments.one)?, url(&arguments.other)?];
    let block = Some(Stop::After(arguments.block.duration()));
    let plans = [plan(&urls[0], &arguments.traffic, block)?, plan(&urls[1], &arguments.traffic, block)?];
    let watching = match &arguments.watch[..] {
        [] => [None, None],
        [both] => [Some(both), Some(both)],
        [a, b] => [Some(a), Some(b)],
        _ => return Err(CommandError::usage("expected --watch at most twice: for A, and for B")),
    };
    let interrupts = Interrupts::watch(signals)?;
    let measured = |side: usize| -> Result<Report, CommandError> {
        let plan = plans[side].clone();
        let report = measure(plan, &urls[side], watching[side], ViewMode::Silent, &interrupts)?;
        nothing_measured(&report)?;
        Ok(report)
    };
    let time = arguments.block.duration();
    if !arguments.json {
        let blocks = 2 + 4 * u32::from(arguments.rounds);
        let whole_ns = time.saturating_mul(blocks).as_nanos();
        let whole = words::time(u64::try_from(whole_ns).unwrap_or(u64::MAX));
        note(&format!(
            "{blocks} blocks of {time:?} take {whole} or a little more; change that with --rounds COUNT or -d TIME"
        ));
    }
    let warm_up = [measured(0)?, measured(1)?];
    let how = format!("{}\nTwo blocks of {time:?}, the warm-up", warm_up[0].saved().plan.text);
    let mut comparison = Comparison::of_responses(names.clone(), how, &warm_up.each_ref().map(Block::of));
    if arguments.different_responses {
        comparison.allow_different_responses();
    }
    judge_responses(&mut comparison, &warm_up.each_ref().map(|report| report.verdict.limit));
    if !interrupts.seen() && !comparison.concludes() {
        return told(&comparison, arguments.json, false);
    }
    let (mut pairs, mut limits) = (Vec::new(), Vec::new());
    let mut how = String::new();
    for (number, order) in compare::orders(arguments.traffic.seed, arguments.rounds).enumerate() {
        let mut pair = [Block::default(), Block::default()];
        for side in order {
            let report = measured(side)?;
            if interrupts.seen() {
                break;
            }
            pair[side] = Block::of(&report);
            limits.push(report.verdict.limit);
            how = report.saved().plan.text;
        }
        if interrupts.seen() {
            break;
        }
        if !arguments.json {
            progress(number + 1, arguments.rounds, &pair);
        }
        pairs.push(pair);
    }
    let pairs_made = words::plural(pairs.len() as u64, "pair");
    let how = format!("{how}\n{pairs_made} of blocks of {time:?}, in turns");
    let mut comparison = Comparison::of_pairs(names, how, &pairs);
    if arguments.different_responses {
        comparison.allow_different_responses();
    }
    judge(&mut comparison, &limits);
    told(&comparison, arguments.json, interrupts.seen())
}

/// Decides whether the results describe the servers. A generator that is the bottleneck limits both servers alike.
pub(super) fn judge(comparison: &mut Comparison, limits: &[Bottleneck]) {
    let all = limits.len();
    let times = |limit: Bottleneck| limits.iter().filter(|other| **other == limit).count();
    let (generator, starved) = (times(Bottleneck::Generator), times(Bottleneck::Starved));
    if generator * 2 > all {
        comparison.is_verdict = false;
        comparison.remarks.push(format!(
            "In {generator} of {all} blocks the generator was the bottleneck, for both servers alike: the ratios \
             understate the difference. Use more threads (-t), or a rate (-r) that the generator reaches."
        ));
    }
    if starved * 4 > all {
        comparison.remarks.push(format!(
            "In {starved} of {all} blocks other processes used the generator's processor: this affects both servers \
             alike, and widens the intervals."
        ));
    }
    judge_responses(comparison, limits);
}

/// Gives no verdict on errors, even if both servers respond with the same ones.
fn judge_responses(comparison: &mut Comparison, limits: &[Bottleneck]) {
    let all = limits.len();
    let times = |limit: Bottleneck| limits.iter().filter(|other| **other == limit).count();
    let (unexpected, unanswered) = (times(Bottleneck::Unexpected), times(Bottleneck::Unanswered));
    if unanswered * 2 > all {
        comparison.is_verdict = false;
        comparison.remarks.push(format!(
            "No verdict, because errors were measured: in {unanswered} of {all} blocks most requests got no response."
        ));
    }
    if unexpected * 2 > all {
        comparison.is_verdict = false;
        comparison.remarks.push(format!(
            "No verdict, because errors were measured: in {unexpected} of {all} blocks most responses had an \
             unexpected status ({}). If that is intended: --expect-status.",
            comparison.status_words()
        ));
    }
}

pub(super) fn told(comparison: &Comparison, json: bool, interrupted: bool) -> CommandResult {
    if json {
        let mut told = comparison.json();
        told["command"] = command().into();
        print_result(&format!("{told:#}\n"))?;
    } else {
        print_result(&comparison.summary())?;
    }
    Ok(ExitCode::from(match (interrupted, comparison.concludes()) {
        (true, _) => INTERRUPTED,
        (_, false) => NO_VERDICT,
        (_, true) => 0,
    }))
}

pub(super) fn progress(number: usize, rounds: u16, pair: &[Block; 2]) {
    let [a, b] = [0, 1].map(|side| words::number(pair[side].rate()));
    let all = 2 * rounds;
    let _nobody_listens = writeln!(std::io::stderr(), "{number} of {all}: A {a}, B {b} per second");
}
