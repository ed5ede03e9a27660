//! A bounded cache keyed by SHA-256 digest, for verified tokens and for verdicts of the application.
//!
//! ```text
//!  digest ─► set (its first bytes) ─► │ used last │ … │ … │ unused longest │      a hit moves to the front,
//!                                                                               a new entry evicts the last one
//! ```
//! Digests spread evenly, and a client cannot choose them cheaply: entries are verified tokens, or cost one query to the
//! application each. Four-way sets therefore need neither another hash nor an LRU list.

use super::keys::Digest;

/// Limit of entries.
pub(super) const ENTRIES_MAX: usize = 4096;
const WAYS: usize = 4;
const SETS: usize = ENTRIES_MAX / WAYS;

/// A cache of values by digest. A full set evicts the entry that was not stored or found for the longest time.
pub(super) struct Table<T> {
    /// Empty until the first entry, then [`SETS`] sets. Within a set the most recently used entry comes
    /// first.
    sets: Vec<[Option<(Digest, T)>; WAYS]>,
}

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self { sets: Vec::new() }
    }

    /// Returns the entry of a digest, and moves it to the front of its set.
    pub(super) fn find(&mut self, digest: &Digest) -> Option<&T> {
        let set = self.sets.get_mut(place(digest))?;
        let at = set.iter().position(|entry| entry.as_ref().is_some_and(|(other, _)| other == digest))?;
        set[..=at].rotate_right(1);
        set[0].as_ref().map(|(_, thing)| thing)
    }

    /// Stores an entry. Replaces the one with the same digest, or else evicts the last of the set.
    pub(super) fn keep(&mut self, digest: Digest, thing: T) {
        if self.sets.is_empty() {
            self.sets.resize_with(SETS, || [const { None }; WAYS]);
        }
        if self.find(&digest).is_none() {
            self.sets[place(&digest)].rotate_right(1);
        }
        self.sets[place(&digest)][0] = Some((digest, thing));
    }

    /// Returns whether no entry was ever stored.
    #[cfg(test)]
    pub(super) const fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }
}

fn place(digest: &Digest) -> usize {
    (digest.short() % SETS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digest with this last byte, in the first set.
    fn in_first_set(number: u8) -> Digest {
        let mut bytes = [0; 32];
        bytes[31] = number;
        Digest(bytes)
    }

    #[test]
    fn a_table_that_has_kept_nothing_takes_no_memory() {
        let mut table: Table<u8> = Table::new();
        assert_eq!(table.find(&in_first_set(0)), None);
        assert_eq!(table.sets.capacity(), 0);
        table.keep(in_first_set(0), 5);
        assert!(!table.is_empty());
    }

    #[test]
    fn of_a_full_set_the_one_that_was_not_asked_for_is_pushed_out() {
        let mut table = Table::new();
        for number in 0..4 {
            table.keep(in_first_set(number), number);
        }
        for number in [0, 1, 3] {
            assert_eq!(table.find(&in_first_set(number)), Some(&number));
        }
        table.keep(in_first_set(4), 4);
        for number in 0..5 {
            assert_eq!(table.find(&in_first_set(number)), Some(&number).filter(|number| **number != 2));
        }
    }

    #[test]
    fn what_is_known_already_is_replaced() {
        let mut table = Table::new();
        for number in 0..4 {
            table.keep(in_first_set(number), number);
        }
        table.keep(in_first_set(2), 20);
        assert_eq!(table.find(&in_first_set(2)), Some(&20));
        for number in [0, 1, 3] {
            assert_eq!(table.find(&in_first_set(number)), Some(&number));
        }
    }

    #[test]
    fn however_many_are_kept_memory_is_bounded() {
        let mut table = Table::new();
        for number in 0..3 * ENTRIES_MAX as u64 {
            table.keep(Digest::of(&number.to_be_bytes()), number);
        }
        let kept = table.sets.iter().flatten().flatten().count();
        assert!(kept <= ENTRIES_MAX && kept > ENTRIES_MAX * 9 / 10, "{kept}");
        let newest = 3 * ENTRIES_MAX as u64 - 1;
        assert_eq!(table.find(&Digest::of(&newest.to_be_bytes())), Some(&newest));
    }
}
