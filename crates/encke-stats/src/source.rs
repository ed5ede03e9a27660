//! Sources: the metrics and lists of one feature.
//!
//! ```text
//!  Source ─ families ──► /metrics
//!         ─ status ────► /api/v1/status, under the source's name
//!         ─ list ──┬─► worker 0 ── ListTicket::add ─┐
//!                  └─► worker n ── ListTicket::add ─┴─► filtered, sorted, limited ─► Rows
//! ```
//! The feature owns its metrics: cells that its workers write, and a source that sums them on a read. The crates that show
//! metrics know sources, and no feature.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use crate::family::Family;
use crate::ticket::{Gathered, Ticket};

/// The metrics and lists of a feature. Each name of a family or of a source belongs to only one source.
///
/// ```
/// use encke_stats::{Family, Source};
///
/// struct Shop;
///
/// impl Source for Shop {
///     fn name(&self) -> &'static str {
///         "shop"
///     }
///
///     fn families(&self) -> Vec<Family> {
///         vec![Family::gauge("shop_open_orders", "Orders not shipped.").value(2_u64)]
///     }
/// }
///
/// assert_eq!(Shop.families()[0].samples.len(), 1);
/// ```
pub trait Source: Send + Sync {
    /// The name of the source's part of the status, and of its list.
    fn name(&self) -> &'static str;

    /// The source's metrics, summed over all workers.
    fn families(&self) -> Vec<Family> {
        Vec::new()
    }

    /// The source's part of `/api/v1/status`, if any. Keys are only ever added.
    fn status(&self) -> Option<serde_json::Value> {
        None
    }

    /// The names of all columns that rows of the list may have, in the order of display. Empty: the source has no list.
    fn columns(&self) -> &'static [&'static str] {
        &[]
    }

    /// Lists rows, such as connections or channels. This must not block: the ticket may be cloned and sent to workers, which
    /// respond later. The source may leave out rows that the query does not select; the ticket drops them in any case.
    fn list(&self, _query: &Query, _ticket: ListTicket) {}
}

/// A query for rows of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Query {
    /// Text that at least one cell of a row contains.
    pub filter: Option<String>,
    /// Columns and their exact text. A row without one of these columns is not selected.
    pub whole: Vec<(String, String)>,
    /// The order of rows. Rows that it leaves equal, or all rows without it, are in the order of their cells.
    pub sort: Option<Sort>,
    /// Maximum number of rows. A list needs memory for twice as many.
    pub limit: usize,
}

/// An order of rows. Rows without the column come last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sort {
    /// The name of the column.
    pub column: String,
    /// Whether the highest cells come first.
    pub descending: bool,
}

/// A row of a list: column names and cells, in the order of display.
#[derive(Clone, PartialEq, Debug)]
pub struct Row(pub Vec<(&'static str, Cell)>);

/// A cell of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// A whole number.
    Count(u64),
    /// Any number, in base units: seconds, bytes, ratios from 0 to 1.
    Number(f64),
    /// Text.
    Text(Cow<'static, str>),
}

/// The rows of a list.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct Rows {
    /// Number of rows that the query selects, beyond the limit as well.
    pub total: usize,
    /// The first rows, up to the limit.
    pub rows: Vec<Row>,
}

/// Collects the rows of a list from any number of threads. The list is complete when the last copy of its ticket is dropped: a
/// worker that cannot respond, or ends, delays nothing.
#[derive(Clone, Debug)]
pub struct ListTicket {
    query: Arc<Query>,
    parts: Gathered<FilteredRows>,
}

/// Rows that the filter admits, at most twice the query's limit.
struct FilteredRows {
    query: Arc<Query>,
    rows: Rows,
}

impl Query {
    /// Compares cells of the column by which the query sorts, in its order.
    pub fn compare_cells(&self, one: Option<&Cell>, other: Option<&Cell>) -> Ordering {
        match (one, other) {
            (Some(one), Some(other)) if self.is_descending() => other.compare(one),
            (Some(one), Some(other)) => one.compare(other),
            (one, other) => other.is_some().cmp(&one.is_some()),
        }
    }

    fn is_descending(&self) -> bool {
        self.sort.as_ref().is_some_and(|sort| sort.descending)
    }

    /// Whether the query selects a row.
    pub fn admits(&self, row: &Row) -> bool {
        let contains = |filter: &String| row.0.iter().any(|(_, cell)| cell.contains(filter));
        let is_whole = |(column, text): &(String, String)| row.cell(column).is_some_and(|cell| cell.is(text));
        self.whole.iter().all(is_whole) && self.filter.as_ref().is_none_or(contains)
    }

    /// The exact text that the query requires of a column, if any. A source can use it to visit fewer rows.
    pub fn whole_of(&self, column: &str) -> Option<&str> {
        self.whole.iter().find(|(name, _)| name == column).map(|(_, text)| text.as_str())
    }

    fn compare(&self, one: &Row, other: &Row) -> Ordering {
        let by_column = self.sort.as_ref().map_or(Ordering::Equal, |Sort { column, .. }| {
            self.compare_cells(one.cell(column), other.cell(column))
        });
        by_column.then_with(|| {
            let mut cells = one.0.iter().zip(&other.0).map(|((_, one), (_, other))| one.compare(other));
            cells.find(|order| order.is_ne()).unwrap_or_else(|| one.0.len().cmp(&other.0.len()))
        })
    }

    /// Sorts rows and drops those beyond the limit.
    fn cut(&self, rows: &mut Vec<Row>) {
        rows.sort_by(|one, other| self.compare(one, other));
        rows.truncate(self.limit);
    }
}

impl Row {
    /// Returns the cell of a column.
    pub fn cell(&self, column: &str) -> Option<&Cell> {
        self.0.iter().find(|(name, _)| *name == column).map(|(_, cell)| cell)
    }
}

impl Cell {
    /// Compares two cells of a column. Numbers come before text.
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Count(one), Self::Count(other)) => one.cmp(other),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            (Self::Text(_), _) => Ordering::Greater,
            (_, Self::Text(_)) => Ordering::Less,
            (one, other) => one.number().total_cmp(&other.number()),
        }
    }

    fn number(&self) -> f64 {
        match self {
            Self::Count(count) => *count as f64,
            Self::Number(number) => *number,
            Self::Text(_) => f64::NAN,
        }
    }

    /// Whether the cell's text is exactly `text`.
    fn is(&self, text: &str) -> bool {
        match self {
            Self::Count(count) => text.parse() == Ok(*count),
            Self::Number(number) => text.parse() == Ok(*number),
            Self::Text(cell) => *cell == text,
        }
    }

    fn contains(&self, text: &str) -> bool {
        match self {
            Self::Count(count) => count.to_string().contains(text),
            Self::Number(number) => number.to_string().contains(text),
            Self::Text(cell) => cell.contains(text),
        }
    }
}

impl ListTicket {
    /// Creates a ticket for a list. The thread that drops the ticket's last copy calls `respond` once.
    pub fn new(query: &Query, respond: impl FnOnce(Rows) + Send + 'static) -> Self {
        let ticket = Ticket::new(|part: Option<FilteredRows>| {
            respond(part.map_or_else(Rows::default, FilteredRows::finish));
        });
        Self { query: Arc::new(query.clone()), parts: Gathered::new(ticket, FilteredRows::merge) }
    }

    /// Returns the query.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Adds rows that the source has selected itself: at most the query's limit, the first in its order, of `total` rows that
    /// the query selects. So a source need not build rows that the list would drop.
    pub fn add_selected(&self, rows: Vec<Row>, total: usize) {
        self.parts.add(FilteredRows { query: Arc::clone(&self.query), rows: Rows { total, rows } });
    }

    /// Adds rows.
    pub fn add(&self, rows: impl IntoIterator<Item = Row>) {
        self.parts.add(FilteredRows::new(&self.query, rows));
    }
}

impl FilteredRows {
    fn new(query: &Arc<Query>, rows: impl IntoIterator<Item = Row>) -> Self {
        let mut part = Self { query: Arc::clone(query), rows: Rows::default() };
        for row in rows.into_iter().filter(|row| query.admits(row)) {
            part.rows.total += 1;
            part.push(row);
        }
        part
    }

    fn merge(&mut self, other: Self) {
        self.rows.total += other.rows.total;
        for row in other.rows.rows {
            self.push(row);
        }
    }

    fn push(&mut self, row: Row) {
        let rows = &mut self.rows.rows;
        if rows.len() >= self.query.limit.saturating_mul(2).max(1) {
            self.query.cut(rows);
        }
        rows.push(row);
    }

    fn finish(mut self) -> Rows {
        self.query.cut(&mut self.rows.rows);
        self.rows
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&'static str> for Cell {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A source with rows on two workers.
    struct Channels {
        workers: [Sender<ListTicket>; 2],
    }

    impl Source for Channels {
        fn name(&self) -> &'static str {
            "channels"
        }

        fn list(&self, _: &Query, ticket: ListTicket) {
            for worker in &self.workers {
                worker.send(ticket.clone()).expect("the worker lives");
            }
        }
    }

    fn row(channel: &str, subscribers: u64) -> Row {
        Row(vec![("channel", channel.to_owned().into()), ("subscribers", subscribers.into())])
    }

    fn by(column: &str, descending: bool) -> Option<Sort> {
        Some(Sort { column: column.into(), descending })
    }

    /// The list for a query whose rows are added in this order.
    fn listed(query: &Query, rows: Vec<Row>) -> Rows {
        let (send, receive) = channel();
        ListTicket::new(query, move |rows| send.send(rows).expect("somebody waits")).add(rows);
        receive.try_recv().expect("the only copy of the ticket is dropped")
    }

    #[test]
    fn rows_of_two_threads_are_merged_sorted_and_limited() {
        let (one, first) = channel();
        let (other, second) = channel();
        let source: Arc<dyn Source> = Arc::new(Channels { workers: [one, other] });
        let query = Query {
            filter: Some("news".into()),
            sort: by("subscribers", true),
            limit: 2,
            ..Query::default()
        };
        let (send, listing) = channel();
        source.list(&query, ListTicket::new(&query, move |rows| send.send(rows).expect("somebody waits")));
        let answer = |tickets: &Receiver<ListTicket>, rows: Vec<Row>| {
            let ticket = tickets.recv().expect("the source has sent it");
            std::thread::scope(|scope| {
                scope.spawn(move || ticket.add(rows));
            });
        };
        answer(&second, vec![row("news", 7), row("chat", 100), row("news/a", 3)]);
        assert!(listing.try_recv().is_err(), "a worker has not answered");
        answer(&first, vec![row("news/b", 9), row("news/c", 1)]);
        let Rows { total, rows } = listing.try_recv().expect("both have answered");
        assert_eq!((total, rows), (4, vec![row("news/b", 9), row("news", 7)]));
    }

    #[test]
    fn a_worker_that_ends_without_an_answer_holds_up_no_list() {
        let query = Query { limit: 10, ..Query::default() };
        let (send, listing) = channel();
        let ticket = ListTicket::new(&query, move |rows| send.send(rows).expect("somebody waits"));
        ticket.clone().add([row("a", 1)]);
        assert!(listing.try_recv().is_err());
        drop(ticket);
        assert_eq!(listing.try_recv().expect("nothing is missing").rows, [row("a", 1)]);
    }

    #[test]
    fn the_order_of_rows_does_not_depend_on_who_answers_first() {
        let rows = vec![row("c", 5), row("a", 5), row("b", 10), row("d", 9)];
        for sort in [None, by("subscribers", false), by("subscribers", true), by("channel", true)] {
            for limit in 0..=5 {
                let query = Query { sort: sort.clone(), limit, ..Query::default() };
                let listing = listed(&query, rows.clone());
                assert_eq!((listing.total, listing.rows.len()), (4, limit.min(4)));
                let reversed = rows.iter().rev().cloned().collect();
                assert_eq!(listing, listed(&query, reversed), "{query:?}");
            }
        }
    }

    #[test]
    fn numbers_are_sorted_by_value_and_rows_without_the_column_come_last() {
        let query = |descending| Query { sort: by("rate", descending), limit: 9, ..Query::default() };
        let cell = |cell: Cell| Row(vec![("rate", cell)]);
        let rows = [cell(10_u64.into()), cell(9.5.into()), cell("off".into()), row("none", 1)];
        let [ten, less, off, none] = rows.clone();
        assert_eq!(
            listed(&query(false), rows.to_vec()).rows,
            [less.clone(), ten.clone(), off.clone(), none.clone()]
        );
        assert_eq!(listed(&query(true), rows.to_vec()).rows, [off, ten, less, none]);
    }

    #[test]
    fn a_whole_cell_selects_rows_by_column() {
        let rows = || {
            let rate = Row(vec![("channel", "12".into()), ("rate", 0.5.into())]);
            vec![row("news", 12), row("news/a", 3), row("12", 3), rate]
        };
        let whole = |conditions: &[(&str, &str)]| {
            let whole = conditions.iter().map(|(column, text)| ((*column).into(), (*text).into())).collect();
            let listing = listed(&Query { whole, limit: 9, ..Query::default() }, rows());
            listing.rows.iter().filter_map(|row| row.cell("channel").cloned()).collect::<Vec<_>>()
        };
        assert_eq!(whole(&[]).len(), 4);
        assert_eq!(whole(&[("channel", "news")]), ["news".into()], "no part of a cell");
        assert_eq!(whole(&[("subscribers", "12")]), ["news".into()], "no other column");
        assert_eq!(whole(&[("channel", "12"), ("rate", "0.5")]), ["12".into()]);
        assert_eq!(whole(&[("channel", "12"), ("rate", "5")]), []);
        let all = Query { whole: vec![("channel".into(), "news".into())], ..Query::default() };
        assert_eq!((all.whole_of("channel"), all.whole_of("rate")), (Some("news"), None));
    }

    #[test]
    fn a_source_may_select_its_rows_itself() {
        let query = Query {
            filter: Some("news".into()),
            sort: by("subscribers", true),
            limit: 2,
            ..Query::default()
        };
        let (send, receive) = channel();
        let ticket = ListTicket::new(&query, move |rows| send.send(rows).expect("somebody waits"));
        ticket.add_selected(vec![row("news", 9), row("news/a", 7)], 40);
        ticket.add([row("news/b", 8), row("chat", 100)]);
        drop(ticket);
        let Rows { total, rows } = receive.try_recv().expect("the only copy of the ticket is dropped");
        assert_eq!((total, rows), (41, vec![row("news", 9), row("news/b", 8)]));
    }

    #[test]
    fn a_list_keeps_at_most_twice_its_limit() {
        let query = Arc::new(Query { limit: 3, ..Query::default() });
        let part = || FilteredRows::new(&query, (0..1_000).map(|number| row("channel", number)));
        let mut merged = part();
        assert!(merged.rows.rows.len() <= 2 * query.limit, "{}", merged.rows.rows.len());
        assert_eq!(merged.rows.total, 1_000);
        merged.merge(part());
        assert!(merged.rows.rows.len() <= 2 * query.limit, "{}", merged.rows.rows.len());
        assert_eq!(merged.rows.total, 2_000);
    }
}
