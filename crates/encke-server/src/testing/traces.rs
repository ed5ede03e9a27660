//! Digests of the observations of the simulations' clients, compared with `tests/guards/golden/traces`.
//!
//! A digest covers every byte that reached a client, its simulated time, and each end of a connection. At the end of a run the
//! server's counts of close reasons are added. A change that only moves code leaves all digests equal. A change of behaviour or
//! of the order of operations changes some: `tests/guards/check --update --only traces` records them, and the commit message
//! explains the difference.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;

use encke_io::Now;
use encke_io::sim::SimReadState;

use crate::metrics::WorkerMetrics;

/// A digest of the observations of one run's clients (64-bit FNV-1a).
#[derive(Clone, Copy, Debug)]
pub struct Observed {
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
    /// Adds bytes that a client received.
    pub fn received(&mut self, client: usize, now: Now, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.add(&[client as u64, now.mono_ns, bytes.len() as u64]);
            self.add_bytes(bytes);
            self.bytes += bytes.len() as u64;
        }
    }

    /// Adds the end of a client's connection.
    pub fn ended(&mut self, client: usize, now: Now, end: SimReadState) {
        self.add(&[client as u64, now.mono_ns]);
        self.add_bytes(format!("{end:?}").as_bytes());
        self.ends += 1;
    }

    /// Adds the close reasons of a worker.
    pub(crate) fn closed(&mut self, metrics: &WorkerMetrics) {
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

/// A simulation and its recorded seeds. Each line of the golden file is a group of seeds.
pub struct Suite {
    /// The first word of the suite's lines.
    pub name: &'static str,
    /// The recorded seeds.
    pub seeds: RangeInclusive<u64>,
    /// Number of seeds per line.
    pub group: usize,
    /// Runs a seed.
    pub run: fn(u64) -> Observed,
}

impl Suite {
    /// Returns the line of a group: name, seeds, digest, bytes received, connections ended.
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

    /// The lines of the first `groups` groups.
    fn records(&self, groups: usize) -> String {
        let seeds: Vec<u64> = self.seeds.clone().collect();
        seeds.chunks(self.group).take(groups).fold(String::new(), |mut text, group| {
            text.write_str(&self.record(group)).expect("a String takes all");
            text
        })
    }

    /// Compares the observations of the first group of seeds with this suite's first line in the golden file at `golden`, or of
    /// all seeds with all lines if `ENCKE_SEEDS` is `full`. If `ENCKE_GUARDS_UPDATE` is set, writes the lines instead.
    ///
    /// # Panics
    /// Lines differ, or the file cannot be read or written.
    pub fn compare(&self, golden: &Path) {
        let is_update = std::env::var_os("ENCKE_GUARDS_UPDATE").is_some();
        let is_full = is_update || std::env::var("ENCKE_SEEDS").is_ok_and(|seeds| seeds == "full");
        let groups = if is_full { usize::MAX } else { 1 };
        let found = self.records(groups);
        let whole = std::fs::read_to_string(golden).expect("the golden file is in the repository");
        let prefix = format!("{} ", self.name);
        let own = |line: &&str| line.starts_with(&prefix);
        let recorded = whole.lines().filter(own).take(groups);
        let recorded = recorded.fold(String::new(), |text, line| text + line + "\n");
        if is_update {
            let others = whole.lines().filter(|line| !own(line));
            let mut lines: Vec<&str> = others.chain(found.lines()).collect();
            // Suites are sorted by name. A stable sort keeps each suite's lines in the order of their seeds.
            lines.sort_by_key(|line| line.split(' ').next());
            std::fs::write(golden, lines.join("\n") + "\n").expect("the golden file can be written");
            return;
        }
        println!("now:\n{found}recorded:\n{recorded}");
        let differs = |(now, before): &(&str, &str)| now != before;
        let different: Vec<&str> =
            found.lines().zip(recorded.lines()).filter(differs).map(|(now, _)| now).collect();
        assert!(found == recorded, "the clients of these seeds observe something else: {different:#?}");
    }

    /// Runs the first seeds twice.
    ///
    /// # Panics
    /// The two runs differ.
    pub fn repeat(&self) {
        let seeds: Vec<u64> = self.seeds.clone().take(8).collect();
        assert_eq!(self.record(&seeds), self.record(&seeds));
    }
}
