//! `timers` (report 004): the cost of a deadline for every connection, by the data structure.

use encke_io::wheel::Wheel;

use crate::experiment::{
    Absent, CellIndex, CellSample, Claim, Design, DesignRow, Experiment, Fact, Judged, Load, LoadAxis, Way,
    loads_within,
};
use crate::results::Results;
use crate::rounds::{OrderRandom, RoundPace};
use crate::specimens::heaps::{IndexedHeap, LazyHeap, TimerSet as Kept, TimerTree};
use crate::stopwatch;

/// Number of connections with a deadline.
const AMOUNTS: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
const AMOUNTS_QUICK: [u32; 3] = [1_000, 10_000, 100_000];

/// The timeout of a connection.
const TIMEOUT_NS: u64 = 10_000_000_000;

/// Time between two requests of any connections: 100,000 a second.
const STEP_NS: u64 = 10_000;

/// Requests between two expiry checks: a turn of a busy worker.
const TURN: u64 = 64;

const ROWS: [(Way, &str); 4] = [
    (Way::Old, "heap, lazy deletion"),
    (Way::Cure, "heap with deletion"),
    (Way::Peer, "ordered tree"),
    (Way::Encke, "Encke's wheel"),
];

pub(super) struct TimersExperiment {
    design: Design,
    amounts: Vec<u32>,
    /// By cell, created when it is first measured: a set with all timers armed, and its current time.
    sets: Vec<Option<ArmedTimers>>,
}

/// A set of timers in use.
struct ArmedTimers {
    kept: Box<dyn Kept>,
    now_ns: u64,
    random: OrderRandom,
    due: Vec<u32>,
}

impl TimersExperiment {
    pub(super) fn new(pace: &RoundPace) -> Self {
        let amounts = loads_within(&AMOUNTS, &AMOUNTS_QUICK, pace);
        let loads = amounts.iter().map(|&amount| Load::amount(amount.to_string(), amount.into()));
        let design = Design {
            name: "timers",
            unit: "a request that postpones its connection's deadline",
            judged: Judged::Cpu,
            rows: ROWS.iter().map(|&(way, name)| DesignRow::new(way, name)).collect(),
            loads: loads.collect(),
            axis: LoadAxis::Amounts("connections with a deadline of 10 s, 100,000 requests a second"),
            drawn: Vec::new(),
        };
        let sets = (0..ROWS.len() * amounts.len()).map(|_| None).collect();
        Self { design, amounts, sets }
    }
}

impl ArmedTimers {
    fn new(row: usize, amount: u32) -> Self {
        let mut kept: Box<dyn Kept> = match row {
            0 => Box::new(LazyHeap::new(amount)),
            1 => Box::new(IndexedHeap::new(amount)),
            2 => Box::new(TimerTree::new(amount)),
            _ => Box::new(Wheel::new(0)),
        };
        let mut random = OrderRandom::new(u64::from(amount));
        for index in 0..amount {
            kept.arm(index, random.below(TIMEOUT_NS));
        }
        let mut set = Self { kept, now_ns: 0, random, due: Vec::new() };
        // Runs until every deadline was set by a request, so that a lazy heap has reached its steady size.
        set.requests(amount, TIMEOUT_NS / STEP_NS);
        set
    }

    /// Handles `count` requests of random connections, each of which postpones a deadline. Expired timers are armed again.
    fn requests(&mut self, amount: u32, count: u64) {
        for turn in 0..count.div_ceil(TURN) {
            for _ in 0..TURN.min(count - turn * TURN) {
                self.now_ns += STEP_NS;
                let index = self.random.below(amount.into()) as u32;
                self.kept.arm(index, self.now_ns + TIMEOUT_NS);
            }
            self.kept.expire(self.now_ns, &mut self.due);
            while let Some(index) = self.due.pop() {
                self.kept.arm(index, self.now_ns + TIMEOUT_NS);
            }
        }
    }
}

impl Experiment for TimersExperiment {
    fn design(&self) -> &Design {
        &self.design
    }

    fn measure(&mut self, cell: CellIndex, count: u64) -> Result<CellSample, Absent> {
        let amount = self.amounts[cell.load];
        let set = self.sets[cell.row * self.amounts.len() + cell.load]
            .get_or_insert_with(|| ArmedTimers::new(cell.row, amount));
        let mut sample = stopwatch::count(|| set.requests(amount, count));
        sample
            .facts
            .push(("bytes a timer", Fact::Number((set.kept.bytes() as f64 / f64::from(amount)).round())));
        Ok(sample)
    }

    /// A lazy heap removes nothing until its first valid timer expires, and then many entries at once: with 100,000 timers some
    /// 20,000 requests later. A round must contain a few of these events to show their cost.
    fn count_min(&self, cell: CellIndex) -> u64 {
        (u64::from(self.amounts[cell.load]) / 2).min(50_000)
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let every_load = 0..self.amounts.len();
        let (indexed, tree, wheel) = (1, 2, 3);
        vec![
            Claim::all(every_load.clone().map(|load| results.at_most(0.8, wheel, 0, load))),
            Claim::all(every_load.clone().map(|load| results.at_most(0.8, wheel, indexed, load))),
            Claim::all(every_load.map(|load| results.at_most(0.8, wheel, tree, load))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wheel's tick: a timer may expire this late, in the other structures it is on time.
    const TICK_NS: u64 = 1 << 24;

    #[test]
    fn all_structures_expire_the_same_timers() {
        for seed in 1..40 {
            let mut random = OrderRandom::new(seed);
            let mut sets: Vec<Box<dyn Kept>> = vec![
                Box::new(LazyHeap::new(50)),
                Box::new(IndexedHeap::new(50)),
                Box::new(TimerTree::new(50)),
                Box::new(Wheel::new(0)),
            ];
            let mut now_ns = 0;
            for _ in 0..400 {
                let index = random.below(50) as u32;
                match random.below(4) {
                    0 | 1 => {
                        // On a tick, where a wheel expires exactly on time.
                        let deadline_ns = now_ns + (1 + random.below(500)) * TICK_NS;
                        sets.iter_mut().for_each(|set| set.arm(index, deadline_ns));
                    }
                    2 => sets.iter_mut().for_each(|set| set.cancel(index)),
                    _ => {
                        now_ns += random.below(100) * TICK_NS;
                        let due = sets.iter_mut().map(|set| {
                            let mut due = Vec::new();
                            set.expire(now_ns, &mut due);
                            due.sort_unstable();
                            due
                        });
                        let due: Vec<Vec<u32>> = due.collect();
                        assert!(due.iter().all(|one| *one == due[0]), "seed {seed}: {due:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_lazy_heap_keeps_what_was_postponed_and_the_others_do_not() {
        let bytes = |row| ArmedTimers::new(row, 1_000).kept.bytes();
        let [lazy, indexed, tree, wheel] = [0, 1, 2, 3].map(bytes);
        assert!(lazy > 4 * indexed && lazy > 4 * tree && lazy > 4 * wheel, "{lazy} {indexed} {tree} {wheel}");
    }

    #[test]
    fn each_cell_is_measured() {
        let mut timers = TimersExperiment::new(&RoundPace::quick(1));
        for row in 0..ROWS.len() {
            let sample = timers.measure(CellIndex { row, load: 0 }, 1_000).expect("nothing is lacking");
            assert!(matches!(sample.facts[..], [("bytes a timer", Fact::Number(bytes))] if bytes > 0.0));
        }
    }
}
