//! Digests of credentials that were verified a short time ago.

use std::collections::{HashMap, VecDeque};

use crate::keys::Digest;

/// Digests with the same time to live, so that the oldest one expires first.
pub(crate) struct RecentDigests {
    kept_ns: u64,
    count_max: usize,
    until_ns: HashMap<Digest, u64>,
    /// By age, the oldest first.
    order: VecDeque<Digest>,
}

impl RecentDigests {
    pub(crate) fn new(kept_ns: u64, count_max: usize) -> Self {
        Self { kept_ns, count_max, until_ns: HashMap::new(), order: VecDeque::new() }
    }

    /// Whether the digest was stored and has not expired.
    pub(crate) fn has(&self, digest: &Digest, now_ns: u64) -> bool {
        self.until_ns.get(digest).is_some_and(|until_ns| now_ns < *until_ns)
    }

    /// Stores a digest. Drops expired ones, and the oldest if there are too many. One that is stored already keeps its time.
    pub(crate) fn keep(&mut self, digest: Digest, now_ns: u64) {
        while let Some(oldest) = self.order.front() {
            let has_expired = !self.has(oldest, now_ns);
            if !has_expired && self.order.len() < self.count_max {
                break;
            }
            self.until_ns.remove(oldest);
            self.order.pop_front();
        }
        if let std::collections::hash_map::Entry::Vacant(free) = self.until_ns.entry(digest) {
            free.insert(now_ns.saturating_add(self.kept_ns));
            self.order.push_back(digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_expire_and_the_oldest_makes_room() {
        let digest = |number: u8| Digest::of(&[number]);
        let mut recent = RecentDigests::new(10, 3);
        recent.keep(digest(0), 0);
        assert!(recent.has(&digest(0), 9) && !recent.has(&digest(0), 10) && !recent.has(&digest(1), 0));
        recent.keep(digest(0), 5);
        assert!(!recent.has(&digest(0), 10), "a stored digest keeps its time");
        for number in 1..=3 {
            recent.keep(digest(number), 10);
        }
        assert_eq!(recent.order.len(), 3);
        recent.keep(digest(4), 11);
        assert_eq!((recent.order.len(), recent.until_ns.len()), (3, 3));
        assert!(!recent.has(&digest(1), 11) && recent.has(&digest(2), 11) && recent.has(&digest(4), 11));
    }
}
