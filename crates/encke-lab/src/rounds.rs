//! Runs an experiment: rounds of all its cells, in an order that the seed decides.
//!
//! ```text
//!  warm-up: each cell once, with growing counts, until it lasts a batch ──► operations per round, for each cell
//!  round 1: C A D B    round 2: A D B C    …    until the rounds are done, the time is up, or a stop is requested
//! ```
//!
//! A temporary disturbance of the machine then affects all rows alike. Ratios of two rows are computed within a round, never
//! across rounds.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use encke_io::clock::Clock;
use encke_io::host;

use crate::experiment::{Absent, CellIndex, Experiment, judged_here};
use crate::results::{Numbers, Results};

/// The duration and number of rounds, and the seed.
#[derive(Clone, Debug)]
pub struct RoundPace {
    /// Runs fewer and smaller loads: all experiments take three minutes.
    pub quick: bool,
    /// Number of measured rounds.
    pub rounds: usize,
    /// Minimum duration of a cell in a round, in ns.
    pub batch_ns: u64,
    /// Time after which an experiment ends with the rounds it has, in ns.
    pub experiment_ns: u64,
    /// Seed of the order of cells, and of an experiment's other random choices.
    pub seed: u64,
    /// The program that serves with [`crate::UNDER_TEST`]. With `None` this process serves, so memory and CPU time are not the
    /// server's alone.
    pub program: Option<PathBuf>,
}

impl RoundPace {
    /// All loads, within 20 minutes.
    pub const fn full(seed: u64) -> Self {
        Self {
            quick: false,
            rounds: 101,
            batch_ns: 4_000_000,
            experiment_ns: 100_000_000_000,
            seed,
            program: None,
        }
    }

    /// Fewer loads, within 3 minutes. Five of the ten experiments take 18 s, or nine rounds if those take longer (up to 32 s in
    /// practice). The other five take about 25 s together.
    pub const fn quick(seed: u64) -> Self {
        Self {
            quick: true,
            rounds: 61,
            batch_ns: 1_000_000,
            experiment_ns: 18_000_000_000,
            seed,
            program: None,
        }
    }
}

/// A request to end a run early, from another thread. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StopHandle(Arc<AtomicBool>);

impl StopHandle {
    /// Creates a stop that is not requested.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the stop: the run ends after the current cell.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the stop was requested.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs an experiment on this thread, which is pinned where the system supports it: a thread that migrates starts with cold
/// caches. A stopped run returns the results so far, which may be too few for a verdict.
pub fn run(experiment: &mut dyn Experiment, pace: &RoundPace, stop: &StopHandle) -> Results {
    // Unpinned, the intervals are wider but still correct.
    let _unpinned = host::pin_thread_here();
    let mut design = experiment.design().clone();
    design.judged = judged_here(design.judged);
    let cells: Vec<CellIndex> = (0..design.rows.len())
        .flat_map(|row| (0..design.loads.len()).map(move |load| CellIndex { row, load }))
        .collect();
    let mut clock = Clock::new();
    let begun_ns = clock.now().mono_ns;
    let mut numbers: Vec<Numbers> = cells.iter().map(|_| Numbers::default()).collect();
    let mut counts = vec![0; cells.len()];
    for (place, &cell) in cells.iter().enumerate() {
        if stop.asked() {
            break;
        }
        match warm(experiment, cell, pace) {
            Ok(count) => counts[place] = count,
            Err(absent) => numbers[place].absent = Some(absent),
        }
    }
    let mut random = OrderRandom::new(pace.seed);
    let mut order: Vec<usize> = (0..cells.len()).filter(|&place| counts[place] > 0).collect();
    for round in 0..pace.rounds {
        let spent_ns = clock.now().mono_ns - begun_ns;
        let late = spent_ns > pace.experiment_ns && round >= ROUNDS_MIN;
        if late || stop.asked() {
            break;
        }
        random.shuffle(&mut order);
        for &place in &order {
            if stop.asked() {
                break;
            }
            match experiment.measure(cells[place], counts[place]) {
                Ok(sample) => numbers[place].take(
                    round,
                    counts[place] as f64 * design.loads[cells[place].load].units,
                    sample,
                ),
                // A cell that failed has a gap, so its later rounds would not match the other cells' rounds.
                Err(absent) => numbers[place].absent = Some(absent),
            }
        }
        order.retain(|&place| numbers[place].absent.is_none());
    }
    Results::new(design, numbers, clock.now().mono_ns - begun_ns)
}

/// Runs a cell with growing counts until it lasts about a batch, and returns that count. Each count is tried twice and the
/// shorter time is used, because first touches and preemption add time.
fn warm(experiment: &mut dyn Experiment, cell: CellIndex, pace: &RoundPace) -> Result<u64, Absent> {
    let count_max = experiment.count_max().min(COUNT_MAX);
    let mut count = experiment.count_min(cell).min(count_max);
    loop {
        let mut wall_ns = experiment.measure(cell, count)?.wall_ns;
        if count >= count_max {
            return Ok(count);
        }
        if wall_ns < LONG_NS {
            wall_ns = wall_ns.min(experiment.measure(cell, count)?.wall_ns);
        }
        if wall_ns >= pace.batch_ns / 2 {
            return Ok(count);
        }
        let grown = count.saturating_mul(pace.batch_ns / wall_ns.max(1));
        count = grown.clamp(count * 2, count * GROWTH_MAX).min(count_max);
    }
}

/// Rounds that run regardless of time: from nine values on, one outlier does not widen the interval.
const ROUNDS_MIN: usize = 9;
/// A count that takes this long is not tried twice.
const LONG_NS: u64 = 200_000_000;
/// Maximum operations of a cell in a round, so that an empty operation ends as well.
const COUNT_MAX: u64 = 1 << 24;
/// Maximum growth per step: the first operation predicts little about the next ones.
const GROWTH_MAX: u64 = 64;

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): repeatable, and good enough for an
/// order.
pub(crate) struct OrderRandom(u64);

impl OrderRandom {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    fn shuffle(&mut self, order: &mut [usize]) {
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{CellSample, Claim, Design, DesignRow, Fact, Judged, Load, LoadAxis, Way};
    use crate::results::CellVerdict;

    /// Four rows with given times, without a clock; the last one is absent.
    struct Told {
        design: Design,
        asked: Vec<CellIndex>,
        stop_at: Option<(usize, StopHandle)>,
        /// The second row fails at this call and after it, counting from 1.
        fails_at: usize,
        /// Whether the second row has only facts.
        untimed: bool,
    }

    impl Told {
        fn new() -> Self {
            let design = Design {
                name: "told",
                unit: "a question",
                judged: Judged::Cpu,
                rows: ["old", "half", "same", "absent"].map(|name| DesignRow::new(Way::Old, name)).to_vec(),
                loads: vec![Load::kind("all")],
                axis: LoadAxis::Kinds,
                drawn: Vec::new(),
            };
            Self { design, asked: Vec::new(), stop_at: None, fails_at: usize::MAX, untimed: false }
        }
    }

    impl Experiment for Told {
        fn design(&self) -> &Design {
            &self.design
        }

        fn measure(&mut self, cell: CellIndex, count: u64) -> Result<CellSample, Absent> {
            self.asked.push(cell);
            if let Some((at, stop)) = &self.stop_at
                && self.asked.len() == *at
            {
                stop.ask();
            }
            if cell.row == 1 && self.asked.len() >= self.fails_at {
                return Err(Absent("no more".into()));
            }
            if cell.row == 1 && self.untimed {
                return Ok(CellSample { facts: vec![("held", Fact::Number(7.0))], ..CellSample::default() });
            }
            // A temporary disturbance, which affects all rows of a round alike.
            let weather = 100 + (self.asked.len() as u64 / 4 % 5) * 50;
            let share = [20, 10, 20][..].get(cell.row).ok_or_else(|| Absent("there is none".into()))?;
            Ok(CellSample {
                wall_ns: count * weather * share,
                cpu_ns: count * weather * share,
                ..CellSample::default()
            })
        }

        fn count_max(&self) -> u64 {
            if self.untimed { 1 } else { u64::MAX }
        }

        fn claims(&self, _results: &Results) -> Vec<Claim> {
            Vec::new()
        }
    }

    #[test]
    fn a_half_differs_and_the_same_does_not_whatever_the_weather() {
        let results = run(&mut Told::new(), &RoundPace::quick(7), &StopHandle::new());
        assert_eq!(results.verdict(CellIndex { row: 0, load: 0 }), CellVerdict::Baseline);
        assert_eq!(results.verdict(CellIndex { row: 1, load: 0 }), CellVerdict::Differs);
        assert_eq!(
            results.verdict(CellIndex { row: 3, load: 0 }),
            CellVerdict::Absent("there is none".into())
        );
        let half = results.ratio(1, 0, 0).expect("both were measured");
        // The disturbance affects both rows equally in most rounds, so the median is exact.
        assert_eq!(half.median, 0.5, "{half:?}");
        assert!((half.low..=half.high).contains(&0.5) && half.high < 1.0, "{half:?}");
    }

    #[test]
    fn the_seed_decides_the_order_and_every_round_has_every_cell() {
        let asked = |seed| {
            let mut told = Told::new();
            run(&mut told, &RoundPace::quick(seed), &StopHandle::new());
            told.asked
        };
        assert_eq!(asked(1), asked(1));
        assert_ne!(asked(1), asked(2));
        let counted = asked(3);
        let rounds = RoundPace::quick(3).rounds;
        let tail = &counted[counted.len() - 3 * rounds..];
        for round in tail.chunks(3) {
            let mut rows: Vec<usize> = round.iter().map(|cell| cell.row).collect();
            rows.sort_unstable();
            assert_eq!(rows, [0, 1, 2]);
        }
    }

    #[test]
    fn what_fails_in_a_round_is_absent_from_then_on_and_the_others_go_on() {
        let mut told = Told::new();
        run(&mut told, &RoundPace::quick(7), &StopHandle::new());
        let whole = told.asked.len();
        let mut told = Told { fails_at: whole / 2, ..Told::new() };
        let results = run(&mut told, &RoundPace::quick(7), &StopHandle::new());
        assert_eq!(results.verdict(CellIndex { row: 1, load: 0 }), CellVerdict::Absent("no more".into()));
        assert_eq!(results.rounds(), RoundPace::quick(7).rounds);
        let failed = told.asked.iter().rposition(|cell| cell.row == 1).expect("it was asked");
        assert!(failed >= whole / 2 - 1, "it was asked until it failed");
        assert!(told.asked[whole / 2 + 3..].iter().all(|cell| cell.row != 1), "and then no more");
    }

    #[test]
    fn a_cell_without_times_is_not_held_against_others() {
        let mut told = Told { untimed: true, ..Told::new() };
        let results = run(&mut told, &RoundPace::quick(7), &StopHandle::new());
        let cell = CellIndex { row: 1, load: 0 };
        assert_eq!(results.verdict(cell), CellVerdict::Facts);
        assert_eq!((results.wall(cell), results.ratio(1, 0, 0)), (None, None));
        assert_eq!(results.number(cell, "held"), Some(7.0));
        assert_eq!(results.verdict(CellIndex { row: 0, load: 0 }), CellVerdict::Baseline);
        assert_eq!(results.rounds(), RoundPace::quick(7).rounds);
    }

    #[test]
    fn who_is_stopped_ends_with_the_cell_at_hand() {
        let stop = StopHandle::new();
        let mut told = Told { stop_at: Some((2, stop.clone())), ..Told::new() };
        let results = run(&mut told, &RoundPace::quick(1), &stop);
        assert!(told.asked.len() < 40, "{}", told.asked.len());
        assert!(matches!(results.verdict(CellIndex { row: 0, load: 0 }), CellVerdict::TooFew(0)));
    }
}
