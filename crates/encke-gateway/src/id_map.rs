//! Maps by ids that the worker assigns: no peer can choose ids that collide, so a multiplication is hash enough.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by ids of exchanges or connections.
pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// The hasher of an [`IdMap`].
#[derive(Default)]
pub(crate) struct IdHasher(u64);

/// 2⁶⁴ divided by the golden ratio: neighbouring ids are far apart (Knuth, The Art of Computer Programming, §6.4).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0.rotate_left(32) ^ u64::from(number)).wrapping_mul(FACTOR);
    }

    fn finish(&self) -> u64 {
        // The upper bits depend on all of the id, and the map uses the lower ones, too.
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::Hash;

    use super::*;

    #[test]
    fn ids_of_a_busy_worker_rarely_share_a_bucket() {
        let hash = |id: (u32, u32)| {
            let mut hasher = IdHasher::default();
            id.hash(&mut hasher);
            hasher.finish()
        };
        // 1,024 slots, each used 4 times, in a map of 8,192 buckets: at random some 3,200 buckets would be in use.
        let ids = (0..1_024).flat_map(|slot| (0..4).map(move |generation| (slot, generation * 1_024 + slot)));
        let buckets: HashSet<u64> = ids.map(|id| hash(id) % 8_192).collect();
        assert!(buckets.len() > 3_000, "{}", buckets.len());
    }
}
