//! The list of channels: their figures, and the rules that apply to them.

use encke_hub::{ChannelCursor, ChannelFigures, Name, Overrun};
use encke_io::Now;
use encke_stats::{Cell, ListTicket, Query, Row};

use super::best_rows::BestRows;
use crate::push_worker::{PushWorker, hub_now};

/// The columns, in the order of display.
pub(super) const COLUMNS: &[&str] = &[
    "channel",
    "subscribers",
    "messages",
    "rate",
    "last_ms",
    "retained",
    "retained_bytes",
    "dropped",
    "dropped_slow",
    "dropped_skipped",
    "latency_p50",
    "latency_p99",
    "pattern",
    "keep_messages",
    "keep_bytes",
    "keep_s",
    "policy",
    "presence",
    "durable",
];

/// Limit of channels visited in a turn: about 0.1 ms.
const SLICE_CHANNELS: u32 = 1_024;
/// The same if each channel needs a row, because the query looks for text in its cells.
const SLICE_ROWS: u32 = 128;

/// A list of channels in progress.
pub(crate) struct ChannelRows {
    query: Query,
    ticket: ListTicket,
    /// The only channel, if the query names it; the inner `None`: no channel can have this name.
    only: Option<Option<Name>>,
    cursor: ChannelCursor,
    /// The stream that the walk is in.
    stream: usize,
    classes: ChannelClasses,
    best: Option<BestRows<ListedChannel>>,
}

/// A channel, ordered by its name.
struct ListedChannel(Name, ChannelFigures);

/// The classes of channels: the patterns, and the delivery times of their channels in ns.
struct ChannelClasses(Vec<ChannelClass>);

struct ChannelClass {
    pattern: String,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
}

impl ChannelRows {
    pub(super) fn new(
        query: Query,
        ticket: ListTicket,
        only: Option<Option<Name>>,
        worker: &PushWorker,
    ) -> Self {
        let (classes, best) = (ChannelClasses::of(worker), Some(BestRows::new(&query)));
        Self { query, ticket, only, cursor: ChannelCursor::default(), stream: 0, classes, best }
    }

    /// Visits the next channels. Returns whether the list is complete.
    pub(super) fn advance(&mut self, worker: &PushWorker, now: Now) -> bool {
        let unix_ms = hub_now(now).unix_ms;
        if let Some(only) = &self.only {
            if let Some(name) = only
                && let Some(figures) = worker.sequencer_of(name).and_then(|one| one.figures(name, unix_ms))
            {
                self.ticket.add([self.classes.row(name, &figures)]);
            }
            return true;
        }
        let Some(best) = &mut self.best else { return true };
        let Some(sequencer) = worker.sequencers().nth(self.stream) else { return self.finish() };
        let (query, classes) = (&self.query, &self.classes);
        let slice = if needs_row(query) { SLICE_ROWS } else { SLICE_CHANNELS };
        let is_over = sequencer.each_channel(&mut self.cursor, slice, unix_ms, |name, figures| {
            if selects(query, classes, name, &figures) {
                let cell = best.column().and_then(|column| classes.cell(column, name, &figures));
                best.add(cell, || ListedChannel(name.clone(), figures));
            }
        });
        self.stream += usize::from(is_over);
        if self.stream < worker.sequencers().count() {
            return false;
        }
        self.finish()
    }

    fn finish(&mut self) -> bool {
        if let Some(best) = self.best.take() {
            let (kept, omitted) = best.finish();
            self.ticket.add_selected(Vec::new(), omitted);
            self.ticket.add(kept.iter().map(|ListedChannel(name, figures)| self.classes.row(name, figures)));
        }
        true
    }
}

/// Whether the query can only be decided with the cells of a row.
fn needs_row(query: &Query) -> bool {
    query.filter.is_some() || !query.whole.is_empty()
}

fn selects(query: &Query, classes: &ChannelClasses, name: &Name, figures: &ChannelFigures) -> bool {
    if !needs_row(query) {
        return true;
    }
    let is_named = query.filter.as_ref().is_some_and(|filter| name.as_str().contains(filter.as_str()));
    (is_named && query.whole.is_empty()) || query.admits(&classes.row(name, figures))
}

impl ChannelClasses {
    fn of(worker: &PushWorker) -> Self {
        let class = |pattern: &String| {
            let delivered = worker.plan.figures.fanout(pattern);
            let quantile_ns = |quantile| delivered.quantile_ns(quantile);
            ChannelClass { pattern: pattern.clone(), p50_ns: quantile_ns(0.5), p99_ns: quantile_ns(0.99) }
        };
        Self(worker.plan.classes.iter().map(class).collect())
    }

    fn row(&self, name: &Name, figures: &ChannelFigures) -> Row {
        let cell = |column: &&'static str| Some((*column, self.cell(column, name, figures)?));
        Row(COLUMNS.iter().filter_map(cell).collect())
    }

    /// Returns a cell; `None` if its value is unknown.
    fn cell(&self, column: &str, name: &Name, figures: &ChannelFigures) -> Option<Cell> {
        let rules = &figures.rules;
        let class = self.0.get(usize::from(rules.class));
        let seconds = |ns: u64| Cell::Number(ns as f64 / 1e9);
        let flag = |flag: bool| Cell::from(if flag { "yes" } else { "no" });
        let dropped = u64::from(figures.slow_ended) + u64::from(figures.slow_skipped);
        Some(match column {
            "channel" => name.as_str().to_owned().into(),
            "subscribers" => u64::from(figures.subscribers).into(),
            "messages" => figures.messages.into(),
            "rate" => figures.rate.into(),
            "last_ms" => figures.last_unix_ms?.into(),
            // A node does not know the history of a channel that only other nodes keep.
            "retained" if figures.kept => (figures.retained as u64).into(),
            "retained_bytes" if figures.kept => figures.retained_bytes.into(),
            "dropped" => dropped.into(),
            "dropped_slow" => u64::from(figures.slow_ended).into(),
            "dropped_skipped" => u64::from(figures.slow_skipped).into(),
            "latency_p50" => seconds(class?.p50_ns?),
            "latency_p99" => seconds(class?.p99_ns?),
            "pattern" => class?.pattern.clone().into(),
            "keep_messages" => (rules.messages as u64).into(),
            "keep_bytes" => rules.bytes.into(),
            "keep_s" => (rules.age_ms / 1_000).into(),
            "policy" => policy_name(rules.policy).into(),
            "presence" => flag(rules.presence),
            "durable" => flag(figures.durable),
            _ => return None,
        })
    }
}

/// Returns the name of a policy in the settings.
pub(super) const fn policy_name(policy: Overrun) -> &'static str {
    match policy {
        Overrun::Disconnect => "disconnect",
        Overrun::Skip => "skip",
        Overrun::Latest => "latest",
        Overrun::Key => "key",
    }
}

impl PartialEq for ListedChannel {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for ListedChannel {}

impl PartialOrd for ListedChannel {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ListedChannel {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}
