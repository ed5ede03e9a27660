//! The state of a limit: one time per key (GCRA), in a table of fixed size that all workers share.
//!
//! ```text
//!  key ─► RateHasher (random per process) ─► set ─► Mutex ─► up to 7 entries: hash, arrival time
//!
//!   now                        arrival ─ tolerance                 arrival
//!  ──┼─────────────────────────────┼───────────────────────────────────┼──► time
//!    │ ◄────────── wait ─────────► │ ◄── interval × (burst - 1) ─────► │
//! ```
//! **GCRA.** Each admitted request moves the *theoretical arrival time* of its key one interval further, from now or later. A
//! request has to wait until this time is no more than the tolerance ahead. So the state is one number, and an entry whose time has
//! passed holds no information: its place is free.
//!
//! **Exact across workers.** A request changes an entry under the lock of its set, for some 20 ns. Two workers meet in a
//! set only if their requests have the same key, or by chance.
//!
//! **Many keys.** A full set gives up the entry with the earliest time: the key whose limit is free again first. With a burst of
//! several requests, a flood of addresses with one request each displaces no key at its limit. With a burst of 1 each request puts
//! its key at the limit, and later than all others, so such a flood displaces every key. To reject new keys instead would let the
//! flood lock out all other clients. The random hash prevents a client from choosing the set.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;

use encke_io::{host, lock};

use super::error::RateError;

/// Entries of a set: with its lock they fill two cache lines.
const WAYS: usize = 7;
/// Keys for each set. With random hashes, 5 % of the sets overflow once the table holds all its keys.
const KEYS_PER_SET: u32 = 4;

/// The limit of one rule, and its state.
pub(crate) struct RateTable {
    sets: Box<[RateSet]>,
    /// Mean distance of two requests, in ns.
    interval_ns: u64,
    /// Limit of the arrival time of a key ahead of the present, in ns.
    tolerance_ns: u64,
}

#[repr(align(64))]
#[derive(Default)]
struct RateSet(Mutex<[RateEntry; WAYS]>);

/// The state of a key. Free once `arrival_ns` has passed.
#[derive(Clone, Copy, Default)]
struct RateEntry {
    /// The hash of the key.
    hash: u64,
    /// Theoretical arrival time of the next request, in ns of the monotonic clock.
    arrival_ns: u64,
}

/// The result of [`RateTable::admit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RateAdmission {
    /// The request is admitted after this time, in ns; 0 is at once. `evicts`: another key made room.
    After { wait_ns: u64, evicts: bool },
    /// The request is not admitted. In this time, in ns, it would be admitted at once.
    Rejected { retry_ns: u64 },
}

impl RateTable {
    pub(crate) fn new(keys: u32, interval_ns: u64, burst: u32) -> Self {
        let sets = keys.div_ceil(KEYS_PER_SET).max(1);
        Self {
            sets: (0..sets).map(|_| RateSet::default()).collect(),
            interval_ns,
            tolerance_ns: interval_ns.saturating_mul(u64::from(burst.saturating_sub(1))),
        }
    }

    /// Admits a request of a key if its turn comes within `delay_ns`.
    pub(crate) fn admit(&self, hash: u64, now_ns: u64, delay_ns: u64) -> RateAdmission {
        let mut entries = lock(&self.set(hash).0);
        let Some(entry) = entries.iter_mut().find(|entry| entry.hash == hash) else {
            return self.admit_new(&mut entries, hash, now_ns);
        };
        let arrival_ns = entry.arrival_ns.max(now_ns);
        let wait_ns = (arrival_ns - now_ns).saturating_sub(self.tolerance_ns);
        if wait_ns > delay_ns {
            return RateAdmission::Rejected { retry_ns: wait_ns };
        }
        entry.arrival_ns = arrival_ns.saturating_add(self.interval_ns);
        RateAdmission::After { wait_ns, evicts: false }
    }

    /// Admits the first request of a key, in the place of the entry with the earliest time.
    #[inline(never)]
    fn admit_new(&self, entries: &mut [RateEntry; WAYS], hash: u64, now_ns: u64) -> RateAdmission {
        let earliest = entries.iter_mut().min_by_key(|entry| entry.arrival_ns);
        let earliest = earliest.expect("a set has entries");
        let evicts = earliest.arrival_ns > now_ns;
        *earliest = RateEntry { hash, arrival_ns: now_ns.saturating_add(self.interval_ns) };
        RateAdmission::After { wait_ns: 0, evicts }
    }

    /// Takes back an admission, because another limit rejects the request.
    pub(crate) fn refund(&self, hash: u64) {
        let mut entries = lock(&self.set(hash).0);
        if let Some(entry) = entries.iter_mut().find(|entry| entry.hash == hash) {
            entry.arrival_ns = entry.arrival_ns.saturating_sub(self.interval_ns);
        }
    }

    fn set(&self, hash: u64) -> &RateSet {
        let place = ((hash >> 32) * self.sets.len() as u64) >> 32;
        // The product is below the number of sets.
        &self.sets[place as usize]
    }
}

/// Hashes keys with random numbers of this process, so that no client can choose keys of one set, or with one hash.
pub(crate) struct RateHasher {
    secrets: [u64; 4],
    texts: RandomState,
}

/// The key of `by = "all"`.
pub(crate) const ALL: u64 = 1;

impl RateHasher {
    pub(crate) fn new() -> Result<Self, RateError> {
        let mut bytes = [0; 32];
        host::random(&mut bytes).map_err(RateError::Random)?;
        let (words, _) = bytes.as_chunks::<8>();
        let mut secrets = [0; 4];
        for (secret, word) in secrets.iter_mut().zip(words) {
            *secret = u64::from_le_bytes(*word);
        }
        Ok(Self { secrets, texts: RandomState::new() })
    }

    /// Hashes the octets of a client's address: an IPv6 address by the bits of `mask`, an IPv4-mapped one by all of its bits. `None`
    /// is a Unix socket whose peer reports no address. Two multiplications: SipHash would take half of the time of the check.
    #[inline]
    pub(crate) fn address(&self, client: Option<[u8; 16]>, mask: u128) -> u64 {
        let bits = client.map_or(0, u128::from_be_bytes);
        let bits = if bits >> 32 == 0xffff { bits } else { bits & mask };
        let [one, two, three, four] = self.secrets;
        let mixed = fold((bits >> 64) as u64 ^ one, bits as u64 ^ two);
        // 0 is the hash of an unused entry.
        fold(mixed ^ three, four | 1).max(2)
    }

    /// Hashes a user or the value of a field.
    pub(crate) fn text(&self, text: &[u8]) -> u64 {
        self.texts.hash_one(text).max(2)
    }
}

/// The mask of the first bits of an address.
pub(crate) fn prefix_mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(u32::from(bits))).unwrap_or(0)
}

/// Both halves of the product, combined.
const fn fold(one: u64, two: u64) -> u64 {
    let product = one as u128 * two as u128;
    (product >> 64) as u64 ^ product as u64
}
