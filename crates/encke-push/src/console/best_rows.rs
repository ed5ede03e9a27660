//! The first rows of a list in the order of a query, kept as values: rows are built for them alone.

use std::cmp::Ordering;

use encke_stats::{Cell, Query, Sort};

/// The first values, and the number of all.
pub(super) struct BestRows<T> {
    sort: Option<Sort>,
    limit: usize,
    /// At most twice the limit.
    kept: Vec<(Option<Cell>, T)>,
    /// Whether `kept` was cut: then the entry at `limit - 1` is the last valid one.
    is_cut: bool,
    total: usize,
}

impl<T: Ord> BestRows<T> {
    /// Begins a list. `T` orders rows whose cells of the sorted column are equal.
    pub(super) fn new(query: &Query) -> Self {
        Self { sort: query.sort.clone(), limit: query.limit, kept: Vec::new(), is_cut: false, total: 0 }
    }

    /// The column by which rows are sorted, if any.
    pub(super) fn column(&self) -> Option<&str> {
        self.sort.as_ref().map(|sort| sort.column.as_str())
    }

    /// Adds a value with its cell of the sorted column.
    pub(super) fn add(&mut self, cell: Option<Cell>, value: impl FnOnce() -> T)
    where
        T: Ord,
    {
        self.total += 1;
        if self.limit == 0 {
            return;
        }
        if self.is_cut
            && let Some((last, _)) = self.kept.get(self.limit - 1)
            && self.compare_cells(cell.as_ref(), last.as_ref()) == Ordering::Greater
        {
            return;
        }
        if self.kept.len() >= self.limit.saturating_mul(2) {
            self.cut();
        }
        self.kept.push((cell, value()));
    }

    /// Returns the first values in order, and the number of the others.
    pub(super) fn finish(mut self) -> (Vec<T>, usize) {
        self.cut();
        let omitted = self.total - self.kept.len();
        (self.kept.into_iter().map(|(_, value)| value).collect(), omitted)
    }

    fn cut(&mut self) {
        let mut kept = std::mem::take(&mut self.kept);
        kept.sort_by(|(one, value), (other, other_value)| {
            self.compare_cells(one.as_ref(), other.as_ref()).then_with(|| value.cmp(other_value))
        });
        kept.truncate(self.limit);
        self.is_cut = kept.len() == self.limit;
        self.kept = kept;
    }

    /// Orders two cells as [`Query`] does: rows without the column come last.
    fn compare_cells(&self, one: Option<&Cell>, other: Option<&Cell>) -> Ordering {
        let is_descending = self.sort.as_ref().is_some_and(|sort| sort.descending);
        match (one, other) {
            (Some(one), Some(other)) if is_descending => other.compare(one),
            (Some(one), Some(other)) => one.compare(other),
            (one, other) => other.is_some().cmp(&one.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use encke_stats::{ListTicket, Row, Rows};

    use super::*;

    /// Compares with the order of a ticket, which builds every row.
    #[test]
    fn the_kept_rows_are_those_of_a_list_of_all_rows() {
        let mut seed = 5_u64;
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for round in 0..400 {
            let mut values: Vec<(u64, Option<u64>)> =
                (0..random(200)).map(|number| (number, (random(5) > 0).then(|| random(20)))).collect();
            // A later row may precede an equal earlier row in the list.
            if random(2) > 0 {
                values.reverse();
            }
            let limit = random(30) as usize;
            let sort = Sort { column: "rate".into(), descending: random(2) > 0 };
            let query = Query { sort: (random(4) > 0).then_some(sort), limit, ..Query::default() };
            let row = |&(number, rate): &(u64, Option<u64>)| {
                let rate = rate.map(|rate| ("rate", Cell::Count(rate)));
                Row([("number", Cell::Count(number))].into_iter().chain(rate).collect())
            };
            let (send, receive) = std::sync::mpsc::channel();
            let all = ListTicket::new(&query, move |rows| send.send(rows).expect("the test waits"));
            all.add(values.iter().map(row));
            drop(all);
            let Rows { total, rows } = receive.try_recv().expect("all rows were added");
            let mut best = BestRows::new(&query);
            for value in &values {
                let cell = query.sort.as_ref().and_then(|_| value.1.map(Cell::Count));
                best.add(cell, || *value);
            }
            let (kept, omitted) = best.finish();
            assert_eq!(kept.len() + omitted, total, "round {round}");
            assert_eq!(kept.iter().map(row).collect::<Vec<_>>(), rows, "round {round}, {query:?}");
        }
    }
}
