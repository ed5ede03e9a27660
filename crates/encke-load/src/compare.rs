//! Compares two servers or two runs: the change from A to B with an interval, and "no difference shown" if the interval
//! includes none.
//!
//! ```text
//!   servers   A B·B A   B A·A B   …    a ratio B ÷ A per pair of neighbours: slow changes of the machine affect both
//!                                      equally, and a bad second spoils one pair of many
//!   runs      A's stretches, B's       each with each: the machine may have changed between the runs, and no
//!                                      interval accounts for that
//! ```
//! Times on shared machines do not follow a normal distribution. The intervals are therefore nonparametric, and exact for few
//! values. Pairs use the median of the pairwise means, with the interval of Wilcoxon's signed-rank test (Hodges, Lehmann 1963).
//! Runs use the median of all differences, with the interval of Mann and Whitney. A bootstrap of ten ratios would claim 95 %
//! and achieve 90 %. The intervals of all rows hold *together* in 95 of 100 comparisons. So a server compared with itself shows
//! a difference in at most one comparison of twenty, however many metrics there are.
//!
//! Different responses are not compared (`responses.rs`): an error is often faster than a page.

use std::cmp::Ordering;
use std::fmt::Write as _;

use encke_stats::Distribution;
use serde_json::{Map, Value, json};

use crate::environment::Environment;
use crate::push;
use crate::random::Random;
use crate::ranks::{median, outside, rank_sums, signed_ranks, sorted, walsh_averages};
use crate::report::saved::{SavedDistribution, SavedVerdict};
use crate::report::{Report, Saved};
use crate::responses::ResponseMix;
use crate::series::Stretch;
use crate::words;

/// Probability that all intervals hold together.
const TRUST: f64 = 0.95;
/// Minimum pairs for an interval (2 · 1/2⁸ < 5 % ÷ 6).
pub const PAIRS_MIN: usize = 8;
/// Random stream of the orders.
const ORDERS: u64 = 0xAB_BA;
/// A larger ratio is printed without digits, since they would not be exact.
const RATIO_MAX: f64 = 1_000.0;
/// Ratios from here on are times in sentences, not percent.
const TIMES_MIN: f64 = 10.0;
/// Maximum blocks of a saved run.
const BLOCKS_MAX: usize = 10;
const DIFFERENT_TIMES: &str = "The runs were made at different times: the ratios include other changes of the machine in between, and the intervals do not. To compare two servers, give both URLs: they are then measured alternately.";

/// A measured stretch of time.
#[derive(Clone, Debug, Default)]
pub struct Block {
    seconds: f64,
    finished: u64,
    /// Failed requests and wrong responses.
    errors: u64,
    failed: u64,
    latency: Distribution,
    /// Subscribers only: their other metrics.
    push: Vec<(Metric, f64)>,
    /// CPU time of the server per response, if it was watched.
    cpu_ns: Option<u64>,
    responses: ResponseMix,
}

/// A compared metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// Responses per second.
    Rate,
    /// Median latency.
    P50,
    /// 99th percentile of latency.
    P99,
    /// The share of requests that failed or had a wrong response.
    Errors,
    /// Subscribers: time until all are subscribed (*c* in reports).
    Connect,
    /// Messages, median: time from the send to the first receipt.
    First,
    /// Messages, median: time from the first receipt to the last.
    FirstToLast,
    /// Messages, median: time from the send to the last receipt.
    Last,
    /// 99th percentile of the time to a receipt.
    Receipt,
    /// The share of receipts that are missing.
    Lost,
    /// CPU time of the server per response.
    Cpu,
}

/// The comparison of B with A.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Names of A and B.
    pub names: [String; 2],
    /// How they were measured, in one line.
    pub how: String,
    /// One row per metric that both have.
    pub rows: Vec<ComparisonRow>,
    /// Remarks that qualify the results.
    pub remarks: Vec<String>,
    /// Whether the results describe the servers: neither the generator nor errors.
    pub is_verdict: bool,
    /// The responses of A and B, and the differences that make them incomparable, in words.
    responses: [ResponseMix; 2],
    unlike: Vec<String>,
    may_differ: bool,
}

/// One metric of both sides.
#[derive(Clone, PartialEq, Debug)]
pub struct ComparisonRow {
    /// The metric.
    pub metric: Metric,
    /// The medians of A and B: per second, in nanoseconds, or as a share.
    pub values: [f64; 2],
    /// B ÷ A. For shares, which may be 0: B − A.
    pub change: f64,
    /// Confidence interval of `change`; `None` with too few measurements.
    pub interval: Option<[f64; 2]>,
}

impl Block {
    /// The block of a whole run.
    pub fn of(report: &Report) -> Self {
        let totals = &report.outcome.totals;
        Self {
            seconds: report.outcome.elapsed.as_secs_f64(),
            finished: totals.finished,
            errors: totals.unanswered() + totals.wrong,
            failed: totals.unanswered(),
            latency: totals.latency().clone(),
            push: Vec::new(),
            cpu_ns: report.outcome.server.as_ref().and_then(|server| server.cpu_per_request_ns),
            responses: ResponseMix {
                statuses: totals.statuses.clone(),
                bodies: totals.finished,
                body_bytes: totals.body_bytes,
            },
        }
    }

    /// The block of a whole run of subscribers.
    pub fn of_push(run: &push::SavedPushRun) -> Self {
        let middle = |held: &Option<SavedDistribution>| {
            held.as_ref()
                .and_then(|SavedDistribution(held)| quantile_of(held, 0.5).filter(|_| held.count() > 0))
        };
        let receipt = run.times.receipt.as_ref().and_then(|SavedDistribution(held)| quantile_of(held, 0.99));
        let opening_ns = run.subscribers.opening_ns;
        let push = [
            (Metric::Connect, (opening_ns > 0).then_some(opening_ns as f64)),
            (Metric::First, middle(&run.times.first)),
            (Metric::FirstToLast, middle(&run.times.first_to_last)),
            (Metric::Last, middle(&run.times.last)),
            (Metric::Receipt, receipt),
            (Metric::Lost, run.receipts.reach.map(|reach| 1.0 - reach)),
        ];
        Self {
            seconds: run.elapsed_ns as f64 / 1e9,
            finished: run.receipts.received,
            push: push.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect(),
            ..Self::default()
        }
    }

    /// Responses per second, or receipts per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.finished as f64 / self.seconds } else { 0.0 }
    }

    fn of_stretches(stretches: &[Stretch]) -> Self {
        let mut block = Self::default();
        for stretch in stretches {
            block.seconds += stretch.seconds;
            block.finished += stretch.finished;
            block.failed += stretch.failed;
            block.errors += stretch.failed + stretch.wrong;
            stretch.latency.iter().for_each(|&(ns, count)| block.latency.record_many(ns, count));
        }
        block
    }
}

impl Metric {
    const ALL: [Self; 5] = [Self::Rate, Self::P50, Self::P99, Self::Errors, Self::Cpu];
    const PUSH: [Self; 6] =
        [Self::Connect, Self::First, Self::FirstToLast, Self::Last, Self::Receipt, Self::Lost];

    /// Name in texts and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Errors => "errors",
            Self::Connect => "c",
            Self::First => "first",
            Self::FirstToLast => "first to last",
            Self::Last => "last",
            Self::Receipt => "receiver p99",
            Self::Lost => "lost",
            Self::Cpu => "CPU each",
        }
    }

    /// Whether it may be 0, so that it is compared by difference instead of ratio.
    const fn is_share(self) -> bool {
        matches!(self, Self::Errors | Self::Lost)
    }

    /// The value in a block; `None` if the block does not have it.
    fn of(self, block: &Block) -> Option<f64> {
        let ended = block.finished + block.failed;
        match self {
            Self::Rate => (block.finished > 0 && block.seconds > 0.0).then(|| block.rate()),
            Self::P50 => quantile_of(&block.latency, 0.5),
            Self::P99 => quantile_of(&block.latency, 0.99),
            Self::Errors => (ended > 0).then(|| block.errors as f64 / ended as f64),
            Self::Connect | Self::First | Self::FirstToLast | Self::Last | Self::Receipt | Self::Lost => {
                block.push.iter().find(|(metric, _)| *metric == self).map(|(_, value)| *value)
            }
            // The logarithm needs a positive value.
            Self::Cpu => block.cpu_ns.map(|ns| (ns as f64).max(1.0)),
        }
    }

    /// The scale of means and differences: logarithmic for ratios, so that double and half have equal weight.
    fn scale(self, value: f64) -> f64 {
        if self.is_share() { value } else { value.max(self.resolution()).ln() }
    }

    /// The least value of a ratio. A time below it is noise, and the ratio to it would say nothing: if all subscribers have a
    /// message in one read, its first and last receipt are 1 ns apart.
    const fn resolution(self) -> f64 {
        match self {
            Self::Rate | Self::Errors | Self::Lost => f64::MIN_POSITIVE,
            // A mean over many responses, which may take less than a microsecond each.
            Self::Cpu => 100.0,
            _ => 1_000.0,
        }
    }

    fn unscale(self, value: f64) -> f64 {
        if self.is_share() { value } else { value.exp() }
    }

    /// The value of `change` that means no difference.
    const fn neutral(self) -> f64 {
        if self.is_share() { 0.0 } else { 1.0 }
    }

    fn words(self, value: f64) -> String {
        match self {
            Self::Rate => words::number(value),
            Self::Errors | Self::Lost => words::percent(value),
            _ => words::time(value as u64),
        }
    }

    fn change_words(self, change: f64) -> String {
        match change {
            _ if self.is_share() => format!("{:+.2} %", change * 100.0),
            0.001..RATIO_MAX => format!("{change:.3}"),
            RATIO_MAX.. => format!(">{RATIO_MAX}"),
            _ => "<0.001".to_owned(),
        }
    }
}

/// A quantile, interpolated within its bucket. Otherwise servers that differ by less than a bucket would look equal, or a whole
/// bucket apart.
fn quantile_of(latency: &Distribution, quantile: f64) -> Option<f64> {
    let rank = quantile * latency.count() as f64;
    let mut below = 0.0;
    for (first, last, count) in latency.buckets() {
        let count = count as f64;
        if below + count >= rank {
            let (first, last) = (first as f64, last.min(latency.max_ns()) as f64);
            // The logarithm needs a positive value.
            return Some((first + (last - first) * ((rank - below) / count)).max(1.0));
        }
        below += count;
    }
    None
}

/// The rows of two saved runs. Blocks give intervals if both runs have any; `among` is the number of such metrics.
fn rows_of_runs(
    metrics: &[Metric],
    among: usize,
    whole: &[Block; 2],
    parts: &[Vec<Block>; 2],
) -> Vec<ComparisonRow> {
    let rows = metrics.iter().filter_map(|&metric| {
        let values = [metric.of(&whole[0])?, metric.of(&whole[1])?];
        let [a, b] = parts
            .each_ref()
            .map(|parts| parts.iter().filter_map(|part| metric.of(part)).collect::<Vec<f64>>());
        let differences = a.iter().flat_map(|a| b.iter().map(|b| metric.scale(*b) - metric.scale(*a)));
        let differences = sorted(differences.collect());
        if differences.is_empty() {
            let change = metric.unscale(metric.scale(values[1]) - metric.scale(values[0]));
            return Some(ComparisonRow { metric, values, change, interval: None });
        }
        ComparisonRow::new(metric, values, differences, &rank_sums(a.len(), b.len()), among)
    });
    rows.collect()
}

/// Remarks on two saved runs, from the verdict, the plan in words and the environment of each.
fn remarks_on_runs(runs: [(&SavedVerdict, &str, &Environment); 2], did_the_same: bool) -> Vec<String> {
    let mut remarks = vec![DIFFERENT_TIMES.to_owned()];
    for (name, (verdict, ..)) in ["A", "B"].iter().zip(runs) {
        if !verdict.is_verdict {
            remarks.push(format!("{name}: {}", verdict.text));
        }
    }
    let [(_, plan, environment), (_, other_plan, other_environment)] = runs;
    if !did_the_same {
        remarks.push(format!("The runs have different plans. A: {plan}. B: {other_plan}."));
    }
    if environment != other_environment {
        remarks.push(format!(
            "The runs were made on different machines. A: {}. B: {}.",
            environment.line(),
            other_environment.line()
        ));
    }
    remarks
}

impl Comparison {
    /// Compares pairs of blocks, measured directly one after the other. The order in each pair is A, B.
    pub fn of_pairs(names: [String; 2], how: String, pairs: &[[Block; 2]]) -> Self {
        // Blocks of subscribers have no metrics of requests, and vice versa.
        let of_push = pairs.iter().flatten().any(|block| !block.push.is_empty());
        let watched = pairs.iter().flatten().any(|block| block.cpu_ns.is_some());
        let metrics = match (of_push, watched) {
            (true, _) => &Metric::PUSH[..],
            (false, true) => &Metric::ALL,
            (false, false) => &Metric::ALL[..Metric::ALL.len() - 1],
        };
        let rows = metrics.iter().filter_map(|&metric| {
            let pairs = pairs.iter().filter_map(|[a, b]| Some([metric.of(a)?, metric.of(b)?]));
            let pairs: Vec<[f64; 2]> = pairs.collect();
            let changes: Vec<f64> = pairs.iter().map(|[a, b]| metric.scale(*b) - metric.scale(*a)).collect();
            let values = [0, 1].map(|side| median(pairs.iter().map(|pair| pair[side])));
            ComparisonRow::new(
                metric,
                values,
                walsh_averages(&changes),
                &signed_ranks(changes.len()),
                metrics.len(),
            )
        });
        let comparison = Self { rows: rows.collect(), ..Self::without_rows(names, how) };
        comparison.with_responses(pairs)
    }

    /// Compares only the responses of two blocks; figures are not compared.
    pub fn of_responses(names: [String; 2], how: String, blocks: &[Block; 2]) -> Self {
        Self::without_rows(names, how).with_responses(std::slice::from_ref(blocks))
    }

    fn without_rows(names: [String; 2], how: String) -> Self {
        Self {
            names,
            how,
            rows: Vec::new(),
            remarks: Vec::new(),
            is_verdict: true,
            responses: Default::default(),
            unlike: Vec::new(),
            may_differ: false,
        }
    }

    fn with_responses(mut self, pairs: &[[Block; 2]]) -> Self {
        for pair in pairs {
            for (sum, block) in self.responses.iter_mut().zip(pair) {
                sum.merge(&block.responses);
            }
        }
        self.unlike = ResponseMix::differences(self.responses.each_ref());
        self
    }

    /// Compares the figures even if the responses differ; a remark names the differences.
    pub fn allow_different_responses(&mut self) {
        self.may_differ = true;
        if !self.unlike.is_empty() {
            self.remarks.push(format!("The responses differ: {}.", self.unlike.join(", ")));
        }
    }

    /// Whether the comparison has a verdict.
    pub fn concludes(&self) -> bool {
        self.is_verdict && self.is_comparable()
    }

    /// The statuses of both sides.
    pub fn status_words(&self) -> String {
        let [a, b] = self.responses.each_ref().map(|responses| responses.statuses.words());
        if a == b { a } else { format!("A {a}; B {b}") }
    }

    /// Whether the responses are alike, or may differ.
    pub fn is_comparable(&self) -> bool {
        self.may_differ || self.unlike.is_empty()
    }

    /// Compares two saved runs.
    pub fn of_runs(names: [String; 2], runs: [&Saved; 2]) -> Self {
        let blocks = runs.map(|run| blocks_of_seconds(&run.seconds));
        let plain = |run: &Saved| (run.plan.pace.clone(), run.plan.connections, run.plan.pipeline);
        let whole = runs.map(Block::of_run);
        let comparison = Self {
            // A saved run has the server's CPU only as a whole.
            rows: rows_of_runs(&Metric::ALL, Metric::ALL.len() - 1, &whole, &blocks),
            remarks: remarks_on_runs(
                runs.map(|run| (&run.verdict, &*run.plan.text, &run.environment)),
                plain(runs[0]) == plain(runs[1]),
            ),
            is_verdict: runs.iter().all(|run| run.verdict.is_verdict),
            ..Self::without_rows(names, "Two saved runs".to_owned())
        };
        comparison.with_responses(&[whole])
    }

    /// Compares two saved runs of subscribers. Connect time and lost share have one value per run, and so no interval.
    pub fn of_push_runs(names: [String; 2], runs: [&push::SavedPushRun; 2]) -> Self {
        let blocks = runs.map(|run| blocks_of_columns(&run.columns));
        Self {
            rows: rows_of_runs(&Metric::PUSH, Metric::PUSH.len(), &runs.map(Block::of_push), &blocks),
            remarks: remarks_on_runs(
                runs.map(|run| (&run.verdict, &*run.plan.text, &run.environment)),
                runs[0].plan.text == runs[1].plan.text,
            ),
            is_verdict: runs.iter().all(|run| run.verdict.is_verdict),
            ..Self::without_rows(names, "Two saved runs of subscribers".to_owned())
        }
    }

    /// Whether any row shows a difference. Rows of different responses show none.
    pub fn differs(&self) -> bool {
        self.is_comparable() && self.rows.iter().any(|row| row.shown() != Ordering::Equal)
    }

    /// The comparison as text: a table, the result in words, and the remarks.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        self.put(&mut text).expect("a String takes everything");
        // Columns are padded; line ends need not be.
        text.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
    }

    fn put(&self, out: &mut String) -> std::fmt::Result {
        let [a, b] = &self.names;
        writeln!(out, "A  {a}\nB  {b}\n{}\n", self.how)?;
        let wide = self.rows.iter().map(|row| row.metric.name().len() + 2).fold(8, usize::max);
        if !self.rows.is_empty() {
            writeln!(out, "{:<wide$}{:>12}{:>12}{:>10}   {:<19}", "", "A", "B", "B ÷ A", "95 % interval")?;
        }
        for row in &self.rows {
            let [a, b] = row.values.map(|value| row.metric.words(value));
            let interval = row.interval.map_or_else(
                || "unknown".to_owned(),
                |ends| {
                    let [low, high] = ends.map(|end| row.metric.change_words(end));
                    format!("{low} … {high}")
                },
            );
            let (name, change) = (row.metric.name(), row.metric.change_words(row.change));
            let words = if self.is_comparable() { row.words() } else { "not comparable" };
            writeln!(out, "{name:<wide$}{a:>12}{b:>12}{change:>10}   {interval:<19} {words}")?;
        }
        if !self.rows.is_empty() {
            writeln!(out)?;
        }
        writeln!(out, "{}", self.words())?;
        for remark in &self.remarks {
            writeln!(out, "{remark}")?;
        }
        Ok(())
    }

    /// The differences shown, in words.
    fn words(&self) -> String {
        let shown = |row: &&ComparisonRow| row.shown() != Ordering::Equal;
        let told: Vec<String> = self.rows.iter().filter(shown).map(ComparisonRow::sentence).collect();
        if !self.is_comparable() {
            return format!(
                "No verdict, because the responses differ: {}. If that is intended: --different-responses.",
                self.unlike.join(", ")
            );
        }
        if self.rows.is_empty() {
            return "Nothing was compared.".to_owned();
        }
        if self.rows.iter().all(|row| row.interval.is_none()) {
            return format!(
                "Too little was measured to show a difference: at least {} rounds, or runs of {} s, are needed.",
                PAIRS_MIN / 2,
                PAIRS_MIN + 2,
            );
        }
        if told.is_empty() {
            return "No difference shown. (Differences smaller than the intervals cannot be seen.)"
                .to_owned();
        }
        format!("B against A: {}. No other difference shown.", told.join(", "))
    }

    /// The comparison as JSON.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let change = if row.metric.is_share() { "difference" } else { "ratio" };
            let told = json!({
                "a": row.values[0],
                "b": row.values[1],
                change: row.change,
                "low": row.interval.map(|[low, _]| low),
                "high": row.interval.map(|[_, high]| high),
                "shown": match (row.interval, row.shown()) {
                    (None, _) => Value::Null,
                    _ if !self.is_comparable() => Value::Null,
                    (_, Ordering::Less) => "less".into(),
                    (_, Ordering::Equal) => "none".into(),
                    (_, Ordering::Greater) => "more".into(),
                },
            });
            (row.json_name().to_owned(), told)
        });
        json!({
            "schema": 1,
            "version": env!("CARGO_PKG_VERSION"),
            "compare": {
                "a": self.names[0],
                "b": self.names[1],
                "how": self.how,
                "figures": rows.collect::<Map<_, _>>(),
                "differs": self.differs(),
                "responses": {
                    "a": self.responses[0].json(),
                    "b": self.responses[1].json(),
                    "differ": !self.unlike.is_empty(),
                },
                "is_verdict": self.concludes(),
                "text": self.words(),
                "remarks": self.remarks,
            },
        })
    }
}

impl ComparisonRow {
    /// A row from sorted candidates for the change, and the probability of each number of candidates below the true one. `None`
    /// without candidates. `among` is the number of metrics in the comparison.
    fn new(
        metric: Metric,
        values: [f64; 2],
        candidates: Vec<f64>,
        below: &[f64],
        among: usize,
    ) -> Option<Self> {
        if candidates.is_empty() {
            return None;
        }
        let change = metric.unscale(median(candidates.iter().copied()));
        let outside = outside(below, (1.0 - TRUST) / among as f64);
        let interval = outside.map(|outside| {
            let last = candidates.len() - 1;
            [candidates[outside], candidates[last - outside]].map(|end| metric.unscale(end))
        });
        Some(Self { metric, values, change, interval })
    }

    /// The side of "no difference" that contains the whole interval: B is less or more. `Equal` if no difference is shown.
    pub fn shown(&self) -> Ordering {
        let neutral = self.metric.neutral();
        match self.interval {
            Some([low, _]) if low > neutral => Ordering::Greater,
            Some([_, high]) if high < neutral => Ordering::Less,
            _ => Ordering::Equal,
        }
    }

    fn words(&self) -> &'static str {
        match (self.interval, self.shown()) {
            (None, _) => "",
            (_, Ordering::Less) => "B is less",
            (_, Ordering::Equal) => "no difference shown",
            (_, Ordering::Greater) => "B is more",
        }
    }

    fn sentence(&self) -> String {
        let name = self.metric.name();
        let way = if self.shown() == Ordering::Less { "less" } else { "more" };
        if self.metric.is_share() {
            format!("{name} {}", self.metric.change_words(self.change))
        } else if self.change >= TIMES_MIN {
            format!("{name} {} times as much", self.metric.change_words(self.change))
        } else {
            format!("{name} {:.1} % {way}", (self.change - 1.0).abs() * 100.0)
        }
    }

    const fn json_name(&self) -> &'static str {
        match self.metric {
            Metric::Rate => "rate_per_s",
            Metric::P50 => "p50_ns",
            Metric::P99 => "p99_ns",
            Metric::Errors => "error_share",
            Metric::Connect => "connect_ns",
            Metric::First => "first_ns",
            Metric::FirstToLast => "first_to_last_ns",
            Metric::Last => "last_ns",
            Metric::Receipt => "receipt_p99_ns",
            Metric::Lost => "lost_share",
            Metric::Cpu => "server_cpu_per_request_ns",
        }
    }
}

impl Block {
    fn of_run(run: &Saved) -> Self {
        Self {
            seconds: run.elapsed_ns as f64 / 1e9,
            finished: run.requests.finished,
            errors: run.requests.failed + run.requests.aborted + run.requests.wrong,
            failed: run.requests.failed + run.requests.aborted,
            latency: run.waited().cloned().unwrap_or_default(),
            push: Vec::new(),
            cpu_ns: run.server.as_ref().and_then(|server| server.cpu_per_request_ns),
            responses: ResponseMix {
                statuses: run.status_codes.clone(),
                bodies: run.requests.finished,
                body_bytes: run.bytes.bodies,
            },
        }
    }
}

/// The order within each pair, 0 for A and 1 for B: rounds of A B B A or B A A B, at random.
pub fn orders(seed: u64, rounds: u16) -> impl Iterator<Item = [usize; 2]> {
    let mut random = Random::new(seed, ORDERS);
    (0..rounds).flat_map(move |_| {
        let first = random.below(2) as usize;
        [[first, 1 - first], [1 - first, first]]
    })
}

/// The seconds of a run as at most [`BLOCKS_MAX`] blocks. The first and last seconds are incomplete, and neighbouring seconds
/// are correlated, so single seconds would give too narrow intervals.
fn blocks_of_seconds(seconds: &[Stretch]) -> Vec<Block> {
    let begun = seconds.iter().position(|second| second.finished > 0).unwrap_or(seconds.len());
    let whole = seconds.get(begun + 1..seconds.len().saturating_sub(1)).unwrap_or_default();
    let count = whole.len().min(BLOCKS_MAX);
    let cut = |place: usize| place * whole.len() / count;
    (0..count).map(|place| Block::of_stretches(&whole[cut(place)..cut(place + 1)])).collect()
}

/// A run of subscribers as at most [`BLOCKS_MAX`] blocks, from medians of messages per column. The first column is left out,
/// since it contains every first-time cost.
fn blocks_of_columns(columns: &[push::Column]) -> Vec<Block> {
    let whole = columns.get(1..).unwrap_or_default();
    let count = whole.len().min(BLOCKS_MAX);
    let cut = |place: usize| place * whole.len() / count;
    let block = |columns: &[push::Column]| {
        let middle = |value: fn(&push::Column) -> Option<u64>| {
            let values = columns.iter().filter_map(value).map(|ns| ns.max(1) as f64);
            Some(median(values)).filter(|middle| middle.is_finite())
        };
        let mut receipts = Distribution::new();
        for &(ns, count) in columns.iter().flat_map(|column| &column.receipts) {
            receipts.record_many(ns, count);
        }
        let push = [
            (Metric::First, middle(|column| column.first_ns)),
            (Metric::FirstToLast, middle(|column| column.first_to_last_ns)),
            (Metric::Last, middle(|column| column.last_ns)),
            (Metric::Receipt, quantile_of(&receipts, 0.99)),
        ];
        let push = push.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect();
        Block { push, ..Block::default() }
    };
    (0..count).map(|place| block(&whole[cut(place)..cut(place + 1)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn a_ratio_to_almost_nothing_is_no_figure() {
        let ratio = |metric: Metric, a: f64, b: f64| metric.unscale(metric.scale(b) - metric.scale(a));
        assert!((ratio(Metric::FirstToLast, 1.0, 20_000.0) - 20.0).abs() < 1e-9);
        assert!((ratio(Metric::FirstToLast, 1.0, 900.0) - 1.0).abs() < 1e-9);
        assert!((ratio(Metric::Cpu, 1.0, 5_000.0) - 50.0).abs() < 1e-9);
        let row = |change: f64| ComparisonRow {
            metric: Metric::Last,
            values: [1.0, change],
            change,
            interval: Some([change, change]),
        };
        for (change, words, sentence) in [
            (2.0, "2.000", "last 100.0 % more"),
            (20.0, "20.000", "last 20.000 times as much"),
            (123_456.0, ">1000", "last >1000 times as much"),
            (0.000_01, "<0.001", "last 100.0 % less"),
        ] {
            assert_eq!(
                (Metric::Last.change_words(change).as_str(), row(change).sentence().as_str()),
                (words, sentence)
            );
        }
    }

    /// A machine whose speed drifts, and that is sometimes busy with other work.
    struct Weather {
        random: Random,
        drift: f64,
    }

    impl Weather {
        fn new(seed: u64) -> Self {
            Self { random: Random::new(seed, 1), drift: 0.0 }
        }

        /// An approximately standard normal value.
        fn bell(&mut self) -> f64 {
            (0..12).map(|_| self.random.share()).sum::<f64>() - 6.0
        }

        /// One second of a server that is `speed` times as fast as the reference.
        fn block(&mut self, speed: f64) -> Block {
            self.drift = 0.9 * self.drift + 0.015 * self.bell();
            let bad = if self.random.below(50) == 0 { 0.5 } else { 1.0 };
            let pace = speed * bad * (self.drift + 0.015 * self.bell()).exp();
            let mut latency = Distribution::new();
            for _ in 0..200 {
                let ns = 100_000.0 / pace * (1.0 + 0.2 * self.random.interval());
                latency.record(ns as u64);
            }
            Block { seconds: 1.0, finished: (10_000.0 * pace) as u64, latency, ..Block::default() }
        }

        fn compared(&mut self, speed: f64) -> Comparison {
            let mut pairs = Vec::new();
            for order in orders(self.random.word(), 10) {
                let [one, other] = order.map(|side| self.block([1.0, speed][side]));
                pairs.push(if order == [0, 1] { [one, other] } else { [other, one] });
            }
            Comparison::of_pairs(["A".into(), "B".into()], String::new(), &pairs)
        }
    }

    #[test]
    fn a_server_against_itself_shows_a_difference_in_one_of_twenty_at_most() {
        let shown = (0..300).filter(|seed| Weather::new(*seed).compared(1.0).differs()).count();
        println!("{shown} of 300");
        assert!(shown <= 15, "{shown} of 300");
    }

    #[test]
    fn five_percent_are_found_in_noise() {
        let found = (0..100).filter(|seed| {
            let faster = Weather::new(*seed).compared(1.05);
            let [rate, p50] = [0, 1].map(|row| &faster.rows[row]);
            assert_ne!(rate.shown(), Ordering::Less, "seed {seed}: {rate:?}");
            let [low, high] = rate.interval.expect("twenty pairs have one");
            assert!(low <= rate.change && rate.change <= high, "seed {seed}: {rate:?}");
            (rate.shown(), p50.shown()) == (Ordering::Greater, Ordering::Less)
        });
        let found = found.count();
        println!("{found} of 100");
        assert!(found >= 95, "{found} of 100");
    }

    #[test]
    fn a_server_that_was_watched_has_a_row_for_its_cpu() {
        let block = |cpu_ns| Block { cpu_ns: Some(cpu_ns), ..Block::of(&example()) };
        let pairs: Vec<_> = (0..8).map(|at| [block(10_000 + at), block(12_000 + at)]).collect();
        let compared = Comparison::of_pairs(["a".into(), "b".into()], String::new(), &pairs);
        assert!(compared.summary().contains("CPU each 20.0 % more"), "{}", compared.summary());
        let figure = &compared.json()["compare"]["figures"]["server_cpu_per_request_ns"];
        assert_eq!(figure["shown"], "more", "{figure}");
    }

    #[test]
    fn what_is_the_same_each_time_is_no_difference() {
        let block = Block { seconds: 1.0, finished: 100, ..Block::of(&example()) };
        let pairs = vec![[block.clone(), block]; 8];
        let same = Comparison::of_pairs(["a".into(), "b".into()], "eight pairs".into(), &pairs);
        assert!(!same.differs());
        let text = same.summary();
        for said in ["no difference shown", "No difference shown.", "1.000 … 1.000", "+0.00 %", "eight pairs"]
        {
            assert!(text.contains(said), "no `{said}`:\n{text}");
        }
        let json = same.json();
        assert_eq!(json["compare"]["figures"]["rate_per_s"]["shown"], "none");
        assert_eq!(json["compare"]["differs"], false);
        let few = Comparison::of_pairs(["a".into(), "b".into()], String::new(), &pairs[..7]);
        assert!(few.summary().contains("Too little was measured"), "{}", few.summary());
    }

    #[test]
    fn different_responses_are_named_and_give_no_verdict() {
        let block = |status, bytes: u64, cpu_ns| {
            let mut report = example();
            report.outcome.totals.statuses.add(status, 1_000);
            report.outcome.totals.body_bytes = 1_000 * bytes;
            Block { cpu_ns: Some(cpu_ns), ..Block::of(&report) }
        };
        let pairs = vec![[block(200, 612, 10_000), block(403, 153, 12_000)]; 8];
        let mut compared = Comparison::of_pairs(["a".into(), "b".into()], String::new(), &pairs);
        let text = compared.summary();
        let said = "No verdict, because the responses differ: statuses A 200 100 %; B 403 100 %, bodies A 612 B, B 153 B";
        assert!(text.contains(said) && text.contains("not comparable"), "{text}");
        assert!(!text.contains("more") && !compared.differs(), "{text}");
        let json = &compared.json()["compare"];
        assert_eq!((&json["is_verdict"], &json["responses"]["differ"]), (&false.into(), &true.into()));
        assert_eq!(json["figures"]["server_cpu_per_request_ns"]["shown"], Value::Null);
        assert_eq!(json["responses"]["b"]["status_codes"]["403"], 8_000);
        let first = Comparison::of_responses(["a".into(), "b".into()], String::new(), &pairs[0]);
        assert!(!first.is_comparable() && first.summary().contains(said), "{}", first.summary());

        compared.allow_different_responses();
        let text = compared.summary();
        assert!(text.contains("CPU each 20.0 % more") && text.contains("The responses differ: "), "{text}");
        let json = &compared.json()["compare"];
        assert_eq!((&json["is_verdict"], &json["responses"]["differ"]), (&true.into(), &true.into()));

        let saved = |status| {
            let mut report = example();
            report.outcome.totals.statuses.add(status, 1_000);
            report.saved()
        };
        let runs = [&saved(200), &saved(403)];
        assert!(!Comparison::of_runs(["a".into(), "b".into()], runs).is_comparable());
    }

    #[test]
    fn saved_runs_are_compared_by_their_seconds() {
        let run = |speed: f64, seed| {
            let mut weather = Weather::new(seed);
            let mut saved = example().saved();
            saved.seconds = (1..=14)
                .map(|at| {
                    let block = weather.block(speed);
                    let latency = block.latency.buckets().map(|(_, last, count)| (last, count)).collect();
                    let seconds = 1.0;
                    Stretch {
                        at_s: f64::from(at),
                        seconds,
                        finished: block.finished,
                        latency,
                        ..Stretch::default()
                    }
                })
                .collect();
            saved
        };
        let names = || ["a.json".to_owned(), "b.json".to_owned()];
        let compared = Comparison::of_runs(names(), [&run(1.0, 1), &run(1.6, 2)]);
        assert_eq!(compared.rows[0].shown(), Ordering::Greater, "{}", compared.summary());
        assert!(compared.summary().contains("at different times"));
        let short = Comparison::of_runs(names(), [&example().saved(), &example().saved()]);
        assert_eq!((short.rows[0].change, short.rows[0].interval), (1.0, None));
        let mut other = run(1.0, 3);
        (other.plan.connections, other.verdict.is_verdict) = (7, false);
        let unlike = Comparison::of_runs(names(), [&run(1.0, 1), &other]);
        assert!(!unlike.is_verdict);
        assert!(unlike.remarks.iter().any(|remark| remark.starts_with("The runs have different plans")));
    }
}
