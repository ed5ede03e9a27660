//! Counts over time, in a bounded number of columns that a plot can show.
//!
//! ```text
//!   time since the begin ─► column: 2^n ns wide       a time beyond the last column: n grows by one,
//!   duration             ─► row: four per octave      and two columns become one
//! ```

use encke_stats::Distribution;
use serde::{Deserialize, Serialize};

use super::receipts::MessageReceipts;
use crate::report::blob;

/// Number of events over time since a begin.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Curve(Columns<u32>);

/// Durations of receipts by the send time of their messages: 112 rows of 4 bytes per column, at most 57 KB.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Course(Columns<DurationCounts>);

/// Counts of receipts by duration.
#[derive(Clone, PartialEq, Eq, Debug)]
struct DurationCounts([u32; ROWS]);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Columns<T> {
    /// Binary logarithm of a column's width in ns.
    shift: u32,
    columns: Vec<T>,
}

/// Merges one column into another.
trait Join {
    fn join(&mut self, other: &Self);
}

const COLUMNS_MAX: usize = 128;
/// The first columns are about 1 ms wide.
const SHIFT_MIN: u32 = 20;
/// The first row holds everything below about 1 µs; the last begins at 240 s.
const OCTAVE_MIN: u32 = 10;
const PER_OCTAVE: usize = 4;
const ROWS: usize = 28 * PER_OCTAVE;

/// Consecutive messages of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Column {
    /// Begin of the column, in seconds after publishing began.
    pub at_s: f64,
    /// Width in seconds.
    pub seconds: f64,
    /// Messages sent within the column that have receipts.
    pub messages: u64,
    /// Median time from the send to the first receipt, in ns.
    pub first_ns: Option<u64>,
    /// Median time from the first receipt to the last, in ns.
    pub first_to_last_ns: Option<u64>,
    /// Median time from the send to the last receipt, in ns.
    pub last_ns: Option<u64>,
    /// Durations of the receipts: the upper bound of each non-empty bin in ns, and its count. A bin is a quarter of an octave.
    #[serde(rename = "histogram", with = "blob")]
    pub receipts: Vec<(u64, u64)>,
}

impl Curve {
    /// Counts an event this long after the begin.
    pub(crate) fn note(&mut self, since_ns: u64) {
        let count = self.0.at(since_ns);
        *count = count.saturating_add(1);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }

    /// The cumulative count at the end of each non-empty column, in ns after the begin.
    pub(crate) fn points(&self) -> Vec<(u64, u64)> {
        let mut all = 0;
        let held = self.0.columns.iter().enumerate().filter(|(_, count)| **count > 0);
        held.map(|(column, count)| {
            all += u64::from(*count);
            (self.0.begin_ns(column + 1), all)
        })
        .collect()
    }
}

impl Course {
    /// Counts a receipt by the send time of its message (after the begin) and by its duration.
    pub(crate) fn note(&mut self, sent_ns: u64, took_ns: u64) {
        let count = &mut self.0.at(sent_ns).0[row(took_ns)];
        *count = count.saturating_add(1);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }

    pub(crate) fn width_ns(&self) -> u64 {
        1 << self.0.shift
    }

    /// The column of a message.
    pub(crate) fn column(&self, sent_ns: u64) -> usize {
        (sent_ns >> self.0.shift) as usize
    }

    /// For each column in order: the upper bound of each non-empty row in ns, and its count.
    pub(crate) fn columns(&self) -> impl Iterator<Item = Vec<(u64, u64)>> {
        self.0.columns.iter().map(|DurationCounts(rows)| {
            let held = rows.iter().enumerate().filter(|(_, count)| **count > 0);
            held.map(|(row, count)| (edge_ns(row + 1) - 1, u64::from(*count))).collect()
        })
    }
}

/// The heat map row of a value.
fn row(ns: u64) -> usize {
    let octave = ns.max(1).ilog2();
    if octave < OCTAVE_MIN {
        return 0;
    }
    // The two bits after the leading one.
    let quarter = (ns >> (octave - 2)) as usize & (PER_OCTAVE - 1);
    ((octave - OCTAVE_MIN) as usize * PER_OCTAVE + quarter).min(ROWS - 1)
}

/// The lower bound of a row.
fn edge_ns(row: usize) -> u64 {
    ((PER_OCTAVE + row % PER_OCTAVE) as u64) << (OCTAVE_MIN as usize - 2 + row / PER_OCTAVE)
}

/// The bounds in ns of the row that contains `last_ns`.
pub(crate) fn row_of(last_ns: u64) -> [u64; 2] {
    let row = row(last_ns);
    [edge_ns(row), edge_ns(row + 1)]
}

/// Receipts and messages by the send time of the messages. Publishing began at `begun_ns`.
pub(super) fn columns<'a>(
    course: &Course,
    records: impl Iterator<Item = &'a MessageReceipts>,
    begun_ns: u64,
) -> Vec<Column> {
    let width_ns = course.width_ns();
    let mut columns: Vec<(Column, [Distribution; 3])> = (0..)
        .zip(course.columns())
        .map(|(place, receipts)| {
            let (at_s, seconds) = ((place * width_ns) as f64 / 1e9, width_ns as f64 / 1e9);
            (Column { at_s, seconds, receipts, ..Column::default() }, Default::default())
        })
        .collect();
    for record in records {
        let place = course.column(record.sent_ns.saturating_sub(begun_ns));
        let Some((column, measured)) = columns.get_mut(place) else { continue };
        column.messages += 1;
        let [sent, first, last] = [record.sent_ns, record.first_ns, record.last_ns];
        for (distribution, ns) in measured.iter_mut().zip([
            first.saturating_sub(sent),
            last.saturating_sub(first),
            last.saturating_sub(sent),
        ]) {
            distribution.record(ns);
        }
    }
    let whole = columns.into_iter().filter(|(column, _)| column.messages > 0);
    whole
        .map(|(column, measured)| {
            let [first_ns, first_to_last_ns, last_ns] = measured.map(|held| held.quantile_ns(0.5));
            Column { first_ns, first_to_last_ns, last_ns, ..column }
        })
        .collect()
}

impl<T: Join + Default> Columns<T> {
    fn at(&mut self, ns: u64) -> &mut T {
        while ns >> self.shift >= COLUMNS_MAX as u64 {
            self.widen();
        }
        let column = (ns >> self.shift) as usize;
        if self.columns.len() <= column {
            self.columns.resize_with(column + 1, T::default);
        }
        &mut self.columns[column]
    }

    fn widen(&mut self) {
        self.shift += 1;
        let halves = std::mem::take(&mut self.columns);
        let mut halves = halves.into_iter();
        while let Some(mut column) = halves.next() {
            if let Some(second) = halves.next() {
                column.join(&second);
            }
            self.columns.push(column);
        }
    }

    fn merge(&mut self, mut other: Self) {
        while self.shift < other.shift {
            self.widen();
        }
        while other.shift < self.shift {
            other.widen();
        }
        for (column, theirs) in other.columns.iter().enumerate() {
            let begin_ns = self.begin_ns(column);
            self.at(begin_ns).join(theirs);
        }
    }

    fn begin_ns(&self, column: usize) -> u64 {
        (column as u64) << self.shift
    }
}

impl<T> Default for Columns<T> {
    fn default() -> Self {
        Self { shift: SHIFT_MIN, columns: Vec::new() }
    }
}

impl Join for u32 {
    fn join(&mut self, other: &Self) {
        *self = self.saturating_add(*other);
    }
}

impl Default for DurationCounts {
    fn default() -> Self {
        Self([0; ROWS])
    }
}

impl Join for DurationCounts {
    fn join(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            sum.join(&count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_row_holds_what_lies_between_its_ends() {
        for ns in [1_024, 1_279, 1_280, 5_000, MS, 999 * MS, 100_000 * MS] {
            let [from, to] = row_of(ns);
            assert!(from <= ns && ns < to, "{ns} is not in {from}..{to}");
            assert!((to - from) * 5 <= to, "{from}..{to} is a fifth of it or less");
        }
        assert_eq!((row(0), row(1_023), row(u64::MAX)), (0, 0, ROWS - 1));
    }

    #[test]
    fn whatever_the_time_nothing_is_lost_and_columns_are_few() {
        let mut course = Course::default();
        let mut curve = Curve::default();
        for at in 0..10_000 {
            course.note(at * 7 * MS, 3 * MS);
            curve.note(at * 7 * MS);
        }
        let columns: Vec<_> = course.columns().collect();
        assert!(columns.len() <= COLUMNS_MAX);
        let all: u64 = columns.iter().flatten().map(|(_, count)| count).sum();
        assert_eq!(all, 10_000);
        assert!(columns.iter().flatten().all(|(ns, _)| row_of(*ns) == row_of(3 * MS)));
        assert_eq!(curve.points().last().map(|(_, all)| *all), Some(10_000));
        assert!(curve.points().is_sorted());
    }

    #[test]
    fn threads_that_ran_for_different_times_have_one_course() {
        let (mut short, mut long) = (Course::default(), Course::default());
        short.note(0, MS);
        short.note(3 * MS, MS);
        long.note(0, 2 * MS);
        long.note(5_000 * MS, MS);
        let mut other_way = long.clone();
        other_way.merge(short.clone());
        short.merge(long);
        assert_eq!(short, other_way);
        assert_eq!(short.columns().flatten().map(|(_, count)| count).sum::<u64>(), 4);
    }
}
