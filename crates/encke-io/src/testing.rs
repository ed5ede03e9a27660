//! For tests of all crates: waiting for an event that no channel reports, the seeds of randomised tests, unused addresses.
//!
//! A test waits for the event itself, and only a test that fails waits for [`PATIENCE`].

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The time after which a wait fails: longer than any event takes on two busy cores.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two checks.
const PAUSE: Duration = Duration::from_millis(1);

/// Checks `happened` until it holds.
///
/// # Panics
/// It does not hold within [`PATIENCE`]. The message names `what`.
#[track_caller]
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    wait_for(what, || happened().then_some(()));
}

/// Calls `look` until it finds a value, and returns the value.
///
/// # Panics
/// `look` finds nothing within [`PATIENCE`]. The message names `what`.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::park_timeout(PAUSE);
    }
}

/// Returns a loopback address that no other call of this test program returns, and no other test program at the same time.
///
/// A server that stops and starts again at its port needs such an address. At 127.0.0.1 the port may belong to another test by then,
/// or to a connection: clients of any loopback address have 127.0.0.1, and a connection of theirs keeps its port for a minute.
pub fn own_host() -> String {
    static HOSTS: AtomicU16 = AtomicU16::new(1);
    let number = HOSTS.fetch_add(1, Ordering::Relaxed);
    assert!(number < 255, "no address is left");
    let [.., middle, low] = std::process::id().to_be_bytes();
    format!("127.{number}.{middle}.{low}")
}

/// The seeds of a randomised test. Each runs one world.
///
/// `make test` runs a tenth of them and `make verify` all, by `ENCKE_SEEDS=full`. `ENCKE_SEEDS=20000` runs that many, and
/// `ENCKE_SEED=7` only the seventh.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    first: u64,
    last: u64,
}

impl Seeds {
    /// Returns the seeds of a test whose complete run has `full` worlds. The environment may select others.
    pub fn of(full: u64) -> Self {
        let set = |name| std::env::var(name).ok();
        if let Some(one) = set("ENCKE_SEED") {
            let seed =
                one.parse().unwrap_or_else(|_| panic!("invalid ENCKE_SEED `{one}`: expected a number"));
            return Self { first: seed, last: seed };
        }
        let last = match set("ENCKE_SEEDS").as_deref() {
            None => full.div_ceil(10),
            Some("full") => full,
            Some(count) => count
                .parse()
                .unwrap_or_else(|_| panic!("invalid ENCKE_SEEDS `{count}`: expected `full` or a number")),
        };
        Self { first: 1, last }
    }

    /// Returns whether the environment selects a single world. Such a run need not meet every case.
    pub fn is_single(&self) -> bool {
        self.first == self.last
    }

    /// All seeds, in order.
    pub fn range(&self) -> RangeInclusive<u64> {
        self.first..=self.last
    }

    /// The number of seeds.
    pub fn count(&self) -> u64 {
        self.last - self.first + 1
    }
}
