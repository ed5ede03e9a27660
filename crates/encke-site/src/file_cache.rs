//! The file cache of a worker: results of look-ups by path, so that a warm request touches no disk.
//!
//! ```text
//!   (site, raw path) ─► keyed hash ─► names ─► slot ─► Rc<Resource>, fresh until …
//!                                                │
//!         hand ─► ─► ─► ─► ─► ─► ─► ─► ─► ─► ─► ─┘   clock: skips slots used since its last visit
//! ```
//! The raw bytes of the path are the key, so that a hit decodes nothing; two spellings of one path take two slots. A hash with
//! a secret key finds the slot. It need only be fast and hard to predict. The path is compared with the slot's before it
//! counts, one hash has one slot, and the table has a limit. Even an attacker with collisions could therefore only evict
//! entries.
//!
//! New entries start unreferenced, so a scan over many paths evicts entries requested once, not entries requested repeatedly.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

/// A slot of the cache, and its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SlotKey {
    slot: u32,
    generation: u32,
}

/// The cost of an entry, or a limit on all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CacheCost {
    pub(super) names: usize,
    /// The number of open files.
    pub(super) descriptors: usize,
    /// Bytes of memory without `made`.
    pub(super) memory: usize,
    /// Bytes of content compressed on the fly.
    pub(super) made: usize,
}

/// A value that the cache can hold.
pub(super) trait Cacheable {
    /// Returns the load that the value puts on the cache: its cost, without its name.
    fn load(&self) -> CacheCost;
}

/// A cache of values by name.
pub(super) struct FileCache<T> {
    hash_key: HashKey,
    names: HashMap<u64, u32, BuildHasherDefault<KeyHasher>>,
    slots: Vec<CacheSlot<T>>,
    free: Vec<u32>,
    /// The slot that eviction visited last, as the hand of a clock.
    hand: usize,
    limit: CacheCost,
    /// The cost of all entries together.
    load: CacheCost,
}

struct CacheSlot<T> {
    hash: u64,
    generation: u32,
    site: u16,
    /// Requested since the hand's last visit.
    used: bool,
    /// The end of freshness, in ns of the monotonic clock.
    fresh_until_ns: u64,
    path: Box<[u8]>,
    /// `None` for a free slot.
    thing: Option<Rc<T>>,
    /// The cost of the entry.
    load: CacheCost,
}

impl<T: Cacheable> FileCache<T> {
    /// Creates an empty cache.
    pub(super) fn new(hash_key: HashKey, limit: CacheCost) -> Self {
        Self {
            hash_key,
            names: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            limit,
            load: CacheCost::default(),
        }
    }

    /// The name of a path of a site.
    #[inline]
    pub(super) fn name<'a>(&self, site: u16, path: &'a [u8]) -> CachePath<'a> {
        CachePath { site, path, hash: self.hash_key.hash(site, path) }
    }

    /// The value of a name, if it is still fresh at `now_ns`.
    #[inline]
    pub(super) fn find(&mut self, name: &CachePath<'_>, now_ns: u64) -> Option<&Rc<T>> {
        let slot = *self.names.get(&name.hash)?;
        let slot = &mut self.slots[slot as usize];
        if slot.site != name.site || *slot.path != *name.path || slot.fresh_until_ns <= now_ns {
            return None;
        }
        slot.used = true;
        slot.thing.as_ref()
    }

    /// The value of a name, fresh or stale.
    pub(super) fn find_stale(&self, name: &CachePath<'_>) -> Option<&Rc<T>> {
        let slot = &self.slots[*self.names.get(&name.hash)? as usize];
        if slot.site == name.site && *slot.path == *name.path { slot.thing.as_ref() } else { None }
    }

    /// Inserts a value in place of the name's former one, and evicts entries that were not used recently. Appends the key of
    /// every removed slot to `removed`.
    pub(super) fn put(
        &mut self,
        name: &CachePath<'_>,
        thing: Rc<T>,
        fresh_until_ns: u64,
        removed: &mut Vec<SlotKey>,
    ) -> SlotKey {
        if let Some(&slot) = self.names.get(&name.hash) {
            self.remove_slot(slot as usize, removed);
        }
        let load = CacheCost {
            names: 1,
            memory: thing.load().memory + size_of::<CacheSlot<T>>() + name.path.len() + NAME_BYTES,
            ..thing.load()
        };
        let slot = self.free.pop().map_or(self.slots.len(), |slot| slot as usize);
        let generation = self.slots.get(slot).map_or(0, |slot| slot.generation);
        let filled = CacheSlot {
            hash: name.hash,
            generation,
            site: name.site,
            used: false,
            fresh_until_ns,
            path: name.path.into(),
            thing: Some(thing),
            load,
        };
        if slot == self.slots.len() {
            self.slots.push(filled);
        } else {
            self.slots[slot] = filled;
        }
        // The limit of `names` keeps slots far below 32 bits.
        let key = SlotKey { slot: slot as u32, generation };
        self.names.insert(name.hash, key.slot);
        self.load.add(load);
        self.make_room(key, removed);
        key
    }

    /// Replaces the value of a slot; its name and freshness stay.
    pub(super) fn replace(&mut self, key: SlotKey, thing: Rc<T>) {
        let Some(slot) = self.slots.get_mut(key.slot as usize) else { return };
        if slot.generation != key.generation || slot.thing.is_none() {
            return;
        }
        self.load.subtract(slot.load);
        let own = size_of::<CacheSlot<T>>() + slot.path.len() + NAME_BYTES;
        slot.load = CacheCost { names: 1, memory: thing.load().memory + own, ..thing.load() };
        self.load.add(slot.load);
        slot.thing = Some(thing);
    }

    /// Extends the freshness of a name's value.
    pub(super) fn extend(&mut self, name: &CachePath<'_>, fresh_until_ns: u64) {
        if let Some(key) = self.key(name) {
            let slot = &mut self.slots[key.slot as usize];
            slot.used = true;
            slot.fresh_until_ns = fresh_until_ns;
        }
    }

    /// The slot of a name.
    pub(super) fn key(&self, name: &CachePath<'_>) -> Option<SlotKey> {
        let &slot = self.names.get(&name.hash)?;
        let filled = &self.slots[slot as usize];
        (filled.site == name.site && *filled.path == *name.path)
            .then_some(SlotKey { slot, generation: filled.generation })
    }

    /// The value of a slot, unless it was removed.
    pub(super) fn at(&self, key: SlotKey) -> Option<&Rc<T>> {
        let slot = self.slots.get(key.slot as usize)?;
        if slot.generation == key.generation { slot.thing.as_ref() } else { None }
    }

    /// Removes the value of a slot, unless it was already removed.
    pub(super) fn remove(&mut self, key: SlotKey, removed: &mut Vec<SlotKey>) {
        if self.at(key).is_some() {
            self.remove_slot(key.slot as usize, removed);
        }
    }

    /// Removes all values.
    pub(super) fn clear(&mut self, removed: &mut Vec<SlotKey>) {
        for slot in 0..self.slots.len() {
            self.remove_slot(slot, removed);
        }
    }

    /// Changes the limits; the next [`FileCache::put`] evicts down to them.
    pub(super) fn limit(&mut self, limit: CacheCost) {
        self.limit = limit;
    }

    /// The next slot from which to drop content compressed on the fly, while that exceeds its limit.
    pub(super) fn next_made(&mut self) -> Option<SlotKey> {
        if self.load.made <= self.limit.made {
            return None;
        }
        // Two rounds: the first may only clear marks.
        for _ in 0..2 * self.slots.len() {
            let slot = self.step();
            let filled = &mut self.slots[slot];
            if filled.load.made > 0 && !std::mem::take(&mut filled.used) {
                return Some(SlotKey { slot: slot as u32, generation: filled.generation });
            }
        }
        None
    }

    fn make_room(&mut self, keep: SlotKey, removed: &mut Vec<SlotKey>) {
        let mut steps = 2 * self.slots.len();
        while steps > 0 && self.load.exceeds(self.limit) {
            steps -= 1;
            let slot = self.step();
            let filled = &mut self.slots[slot];
            let helps = self.load.names > self.limit.names
                || self.load.memory > self.limit.memory
                || filled.load.descriptors > 0;
            if filled.thing.is_none() || slot == keep.slot as usize || !helps {
                continue;
            }
            if !std::mem::take(&mut filled.used) {
                self.remove_slot(slot, removed);
            }
        }
    }

    /// Moves the hand to the next slot.
    fn step(&mut self) -> usize {
        self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
        self.hand
    }

    fn remove_slot(&mut self, slot: usize, removed: &mut Vec<SlotKey>) {
        let filled = &mut self.slots[slot];
        if filled.thing.take().is_none() {
            return;
        }
        removed.push(SlotKey { slot: slot as u32, generation: filled.generation });
        filled.generation = filled.generation.wrapping_add(1);
        filled.path = Box::default();
        self.load.subtract(std::mem::take(&mut filled.load));
        self.names.remove(&filled.hash);
        self.free.push(slot as u32);
    }
}

impl CacheCost {
    fn add(&mut self, other: Self) {
        self.names += other.names;
        self.descriptors += other.descriptors;
        self.memory += other.memory;
        self.made += other.made;
    }

    fn subtract(&mut self, other: Self) {
        self.names -= other.names;
        self.descriptors -= other.descriptors;
        self.memory -= other.memory;
        self.made -= other.made;
    }

    /// `made` is enforced separately: this content is dropped without the entry that owns it.
    fn exceeds(&self, limit: Self) -> bool {
        self.names > limit.names || self.descriptors > limit.descriptors || self.memory > limit.memory
    }

    /// The sum of both, saturating.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            names: self.names.saturating_add(other.names),
            descriptors: self.descriptors.saturating_add(other.descriptors),
            memory: self.memory.saturating_add(other.memory),
            made: self.made.saturating_add(other.made),
        }
    }

    /// An even share of these limits for each of `count` caches.
    pub(super) fn shared_by(self, count: usize) -> Self {
        let count = count.max(1);
        Self {
            names: (self.names / count).max(1),
            descriptors: (self.descriptors / count).max(1),
            memory: self.memory / count,
            made: self.made / count,
        }
    }
}

/// A path of a site, and its hash.
#[derive(Clone, Copy)]
pub(super) struct CachePath<'a> {
    pub(super) site: u16,
    pub(super) path: &'a [u8],
    hash: u64,
}

/// The secret key of a cache's hashes.
#[derive(Clone, Copy)]
pub(super) struct HashKey(u64, u64);

impl HashKey {
    /// Creates a key from two secret random words.
    pub(super) const fn new(first: u64, second: u64) -> Self {
        // An even multiplier would lose bits.
        Self(first, second | 1)
    }

    /// Folds 8 bytes at a time with one widening multiplication, as wyhash does: 4 instructions for 8 bytes, where SipHash
    /// takes 60.
    #[inline]
    fn hash(self, site: u16, path: &[u8]) -> u64 {
        let (words, tail) = path.as_chunks::<8>();
        let mut state = self.0 ^ (path.len() as u64) << 16 ^ u64::from(site);
        for &word in words {
            state = fold(state ^ u64::from_le_bytes(word), self.1);
        }
        // Up to seven bytes, little-endian: fewer instructions than a call of memcpy.
        let last = tail.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        fold(fold(state ^ last, self.1) ^ self.0, self.1)
    }

    /// A pseudo-random word, the same for the same `count`.
    pub(super) fn word(self, count: u64) -> u64 {
        fold(fold(self.0 ^ count, self.1) ^ count.rotate_left(32), self.1)
    }
}

#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    // Both halves: the low half alone would not depend on the high bits of its factors.
    (product >> 64) as u64 ^ product as u64
}

/// A hasher for keys that are already hashes.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Memory of a name in the table: 12 bytes and a control byte, in a table that is at least half full.
const NAME_BYTES: usize = 26;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Toy(CacheCost);

    impl Cacheable for Toy {
        fn load(&self) -> CacheCost {
            self.0
        }
    }

    const ANY: CacheCost = CacheCost { names: 100, descriptors: 100, memory: 1 << 20, made: 1 << 20 };

    fn cache(limit: CacheCost) -> FileCache<Toy> {
        FileCache::new(HashKey::new(0x1234, 0x5678_9abc_def1), limit)
    }

    fn put(cache: &mut FileCache<Toy>, path: &str, load: CacheCost) -> Vec<SlotKey> {
        let mut removed = Vec::new();
        let name = cache.name(0, path.as_bytes());
        cache.put(&name, Rc::new(Toy(load)), 100, &mut removed);
        removed
    }

    fn has(cache: &mut FileCache<Toy>, path: &str) -> bool {
        let name = cache.name(0, path.as_bytes());
        cache.find(&name, 0).is_some()
    }

    #[test]
    fn a_thing_is_found_by_its_own_name_while_it_is_fresh() {
        let mut cache = cache(ANY);
        put(&mut cache, "/a", CacheCost::default());
        assert!(has(&mut cache, "/a"));
        assert!(!has(&mut cache, "/b"));
        let name = cache.name(0, b"/a");
        assert!(cache.find(&name, 99).is_some());
        assert!(cache.find(&name, 100).is_none());
        assert!(cache.find_stale(&name).is_some());
        let other = cache.name(1, b"/a");
        assert!(cache.find(&other, 0).is_none(), "another site's");
    }

    #[test]
    fn a_name_of_the_same_hash_is_not_taken_for_another() {
        let mut cache = cache(ANY);
        put(&mut cache, "/a", CacheCost::default());
        let mut name = cache.name(0, b"/b");
        name.hash = cache.name(0, b"/a").hash;
        assert!(cache.find(&name, 0).is_none());
        assert!(cache.find_stale(&name).is_none());
        assert!(cache.key(&name).is_none());
        let mut removed = Vec::new();
        cache.put(&name, Rc::new(Toy(CacheCost::default())), 100, &mut removed);
        assert!(cache.find(&name, 0).is_some());
        assert_eq!(removed.len(), 1);
        assert_eq!(cache.load.names, 1);
    }

    #[test]
    fn what_is_used_stays_when_many_others_pass() {
        let mut cache = cache(CacheCost { names: 10, ..ANY });
        put(&mut cache, "/hot", CacheCost::default());
        for number in 0..1_000 {
            assert!(has(&mut cache, "/hot"), "gone after {number}");
            put(&mut cache, &format!("/scan/{number}"), CacheCost::default());
            assert!(cache.load.names <= 10);
        }
    }

    #[test]
    fn each_limit_is_kept_and_names_who_must_go() {
        let mut cache = cache(CacheCost { descriptors: 2, ..ANY });
        let open = CacheCost { descriptors: 1, ..CacheCost::default() };
        put(&mut cache, "/small", CacheCost::default());
        for number in 0..10 {
            put(&mut cache, &format!("/{number}"), open);
        }
        assert_eq!(cache.load.descriptors, 2);
        assert!(has(&mut cache, "/small"), "it holds no descriptor");

        cache.limit(CacheCost { memory: 10_000, ..ANY });
        for number in 0..10 {
            put(&mut cache, &format!("/m{number}"), CacheCost { memory: 4_000, ..CacheCost::default() });
        }
        assert!(cache.load.memory <= 10_000);
        put(&mut cache, "/huge", CacheCost { memory: 1 << 30, ..CacheCost::default() });
        assert!(has(&mut cache, "/huge"), "the newest stays, whatever it costs");
        put(&mut cache, "/next", CacheCost::default());
        assert!(cache.load.memory <= 10_000);
    }

    #[test]
    fn an_old_key_names_nothing_new() {
        let mut cache = cache(ANY);
        put(&mut cache, "/a", CacheCost::default());
        let name = cache.name(0, b"/a");
        let old = cache.key(&name).expect("there");
        assert_eq!(put(&mut cache, "/a", CacheCost::default()), [old]);
        assert!(cache.at(old).is_none());
        cache.replace(old, Rc::new(Toy(CacheCost { made: 5, ..CacheCost::default() })));
        let mut removed = Vec::new();
        cache.remove(old, &mut removed);
        assert!(removed.is_empty() && has(&mut cache, "/a"));
        assert_eq!(cache.load.made, 0);
        cache.clear(&mut removed);
        assert_eq!(cache.load, CacheCost::default());
        assert_eq!(removed.len(), 1);
    }

    #[test]
    fn what_was_made_is_given_up_by_itself() {
        let mut cache = cache(CacheCost { made: 100, ..ANY });
        for path in ["/a", "/b"] {
            put(&mut cache, path, CacheCost { made: 80, ..CacheCost::default() });
        }
        let over = cache.next_made().expect("160 are more than 100");
        cache.replace(over, Rc::new(Toy(CacheCost::default())));
        assert_eq!(cache.load.made, 80);
        assert_eq!(cache.next_made(), None);
        assert!(has(&mut cache, "/a") && has(&mut cache, "/b"));
    }

    #[test]
    fn hashes_of_similar_names_spread() {
        let cache = cache(ANY);
        let mut seen = std::collections::HashSet::new();
        let mut low = [0u32; 64];
        for number in 0..4_096 {
            let path = format!("/assets/{number}.css");
            let hash = cache.name(0, path.as_bytes()).hash;
            assert!(seen.insert(hash), "{path}");
            low[(hash & 63) as usize] += 1;
        }
        assert!(low.iter().all(|&count| (20..120).contains(&count)), "{low:?}");
        assert_ne!(cache.name(0, b"/a\0").hash, cache.name(0, b"/a").hash);
        assert_ne!(cache.name(0, b"/a").hash, cache.name(1, b"/a").hash);
    }
}
