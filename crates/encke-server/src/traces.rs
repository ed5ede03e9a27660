//! Digests of what the clients of the simulations observe, compared with `tests/guards/golden/traces`.
//!
//! A digest covers every byte that reached a client, at which simulated time, and how each connection ended; at the end of
//! a run also the server's count of each close reason. A change that only moves code leaves all digests equal. A change of
//! behaviour or of the order of operations changes some: `tests/guards/check --update --only traces` records them, and the
//! commit message explains the difference.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;

use encke_io::Now;
use encke_io::sim::End;

use crate::metrics::Metrics;
use crate::push;
use crate::simulation;

/// What the clients of one run observe, as a digest (64-bit FNV-1a).
pub(crate) struct Observed {
    digest: u64,
    bytes: u64,
    ends: u64,
}

impl Default for Observed {
    fn default() -> Self {
        Self { digest: 0xcbf2_9ce4_8422_2325, bytes: 0, ends: 0 }
    }
}

impl Observed {
    /// Adds the bytes that a client takes.
    pub(crate) fn received(&mut self, client: usize, now: Now, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.add(&[client as u64, now.mono_ns, bytes.len() as u64]);
            self.add_bytes(bytes);
            self.bytes += bytes.len() as u64;
        }
    }

    /// Adds the end of a client's connection.
    pub(crate) fn ended(&mut self, client: usize, now: Now, end: End) {
        self.add(&[client as u64, now.mono_ns]);
        self.add_bytes(format!("{end:?}").as_bytes());
        self.ends += 1;
    }

    /// Adds why a worker closed its connections.
    pub(crate) fn closed(&mut self, metrics: &Metrics) {
        for (reason, count) in metrics.close_counts().filter(|(_, count)| *count > 0) {
            self.add_bytes(reason.as_bytes());
            self.add(&[count]);
        }
    }

    fn add(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.add_bytes(&word.to_le_bytes()));
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

const SUITES: [Suite; 2] = [
    Suite { name: "http", seeds: 1..=100, group: 25, run: simulation::observe },
    Suite { name: "push", seeds: 1..=200, group: 50, run: push::simulation::observe },
];

/// A simulation, and the seeds that are recorded. Each line of the golden file is a group of seeds.
struct Suite {
    name: &'static str,
    seeds: RangeInclusive<u64>,
    group: usize,
    run: fn(u64) -> Observed,
}

impl Suite {
    /// One line per group: name, seeds, digest, bytes received, connections ended.
    fn record(&self, seeds: &[u64]) -> String {
        let mut sum = Observed::default();
        for seed in seeds {
            let observed = (self.run)(*seed);
            // Shown when the comparison fails: two checkouts show which seeds differ.
            println!("{} seed {seed}: {:016x}", self.name, observed.digest);
            sum.add(&[*seed, observed.digest]);
            sum.bytes += observed.bytes;
            sum.ends += observed.ends;
        }
        let (first, last) = (seeds.first().expect("a group"), seeds.last().expect("a group"));
        let Observed { digest, bytes, ends } = sum;
        format!("{} {first}-{last} {digest:016x} {bytes} bytes {ends} ends\n", self.name)
    }

    fn records(&self) -> String {
        let seeds: Vec<u64> = self.seeds.clone().collect();
        seeds.chunks(self.group).fold(String::new(), |mut text, group| {
            text.write_str(&self.record(group)).expect("a String takes all");
            text
        })
    }
}

#[test]
fn simulated_clients_observe_what_is_recorded() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guards/golden/traces");
    let found: String = std::thread::scope(|scope| {
        let suites = SUITES.each_ref().map(|suite| scope.spawn(|| suite.records()));
        suites.into_iter().map(|suite| suite.join().expect("every seed passes")).collect()
    });
    if std::env::var_os("ENCKE_GUARDS_UPDATE").is_some() {
        std::fs::write(&golden, &found).expect("the golden file can be written");
    }
    let recorded = std::fs::read_to_string(&golden).expect("the golden file is in the repository");
    println!("now:\n{found}recorded:\n{recorded}");
    let differs = |(now, before): &(&str, &str)| now != before;
    let different: Vec<&str> =
        found.lines().zip(recorded.lines()).filter(differs).map(|(now, _)| now).collect();
    assert!(found == recorded, "the clients of these seeds observe something else: {different:#?}");
}

#[test]
fn a_seed_always_gives_the_same_digest() {
    for suite in &SUITES {
        let seeds: Vec<u64> = suite.seeds.clone().take(8).collect();
        assert_eq!(suite.record(&seeds), suite.record(&seeds));
    }
}
