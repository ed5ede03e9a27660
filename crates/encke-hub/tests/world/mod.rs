//! Shared parts of the randomised tests: each runs many worlds, one per seed, and a failure names the seed.
//!
//! ```text
//!   Seeds ─► World::new ─► step, step, … ─► settle ─► the test adds up the events of the world ─► assert_met
//! ```
//! `ENCKE_SEED=7` runs one world of a test, `ENCKE_SEEDS=20000` that many. The models stay in the tests, because each predicts
//! different results.
#![allow(dead_code, reason = "no test uses all of it")]

use std::ops::Range;

use encke_hub::{Draft, Feed, FeedRequest, Flags, HubNow, Name, Sequencer};

/// The time at which worlds begin.
pub(crate) const NOW: HubNow = HubNow { mono_ns: 1_000_000_000_000, unix_ms: 1_700_000_000_000 };

/// A sequence of random steps against a model.
pub(crate) trait World {
    fn new(seed: u64) -> Self;

    /// Takes one random step.
    fn step(&mut self);

    /// Ends all faults, delivers everything, and checks the final state.
    fn settle(&mut self);
}

/// The seeds of a test.
pub(crate) struct Seeds {
    one: Option<u64>,
    most: u64,
}

impl Seeds {
    /// Takes the seeds from the environment, or the first `most`.
    ///
    /// # Panics
    /// A variable is no number (or `full`, which other crates distinguish).
    pub(crate) fn of(most: u64) -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok().filter(|text| text != "full")?;
            Some(text.parse().unwrap_or_else(|_| panic!("invalid {name} `{text}`: expected a number")))
        };
        Self { one: number("ENCKE_SEED"), most: number("ENCKE_SEEDS").unwrap_or(most) }
    }

    /// Returns whether the environment selects a single world. Such a run need not meet every case.
    pub(crate) fn is_single(&self) -> bool {
        self.one.is_some()
    }

    pub(crate) fn count(&self) -> u64 {
        self.most
    }

    fn range(&self) -> Range<u64> {
        self.one.map_or(1..self.most + 1, |seed| seed..seed + 1)
    }

    /// Runs a world for each seed.
    pub(crate) fn run<W: World>(&self, steps: usize, mut ended: impl FnMut(W)) {
        for seed in self.range() {
            let mut world = W::new(seed);
            for _ in 0..steps {
                world.step();
            }
            world.settle();
            ended(world);
        }
    }

    /// Asserts that every case occurred. A test without a case does not test it.
    pub(crate) fn assert_met<'a>(&self, cases: impl IntoIterator<Item = (&'a str, u64)>) {
        for (what, count) in cases {
            assert!(self.is_single() || count > 0, "no world has seen {what}: the test does not test it");
        }
    }
}

/// Counts of `N` cases.
#[derive(Debug)]
pub(crate) struct Counts<const N: usize>([u64; N]);

impl<const N: usize> Default for Counts<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Counts<N> {
    pub(crate) fn count(&mut self, case: impl Into<usize>) {
        self.0[case.into()] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, one)| *sum += one);
    }

    pub(crate) fn named(&self, names: [&'static str; N]) -> impl Iterator<Item = (&'static str, u64)> {
        names.into_iter().zip(self.0)
    }
}

/// Applies requests of worker 0, and returns at most `most` feeds for it.
pub(crate) fn turn_of_core(
    sequencer: &mut Sequencer,
    now: HubNow,
    requests: impl IntoIterator<Item = FeedRequest>,
    most: usize,
) -> Vec<Feed> {
    for request in requests {
        sequencer.apply(now, 0, request);
    }
    sequencer.expire(now);
    let mut feeds = Vec::new();
    sequencer.take_feed(0, most, &mut feeds);
    feeds
}

/// Creates a message with data only.
pub(crate) fn draft(channel: Name, data: Vec<u8>) -> Draft {
    Draft { channel, data: data.into(), content_type: None, event: None, flags: Flags::default(), key: None }
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).expect("a name")
}

/// xorshift64*, seeded through splitmix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Self((mixed ^ (mixed >> 31)) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
