//! The addresses of a target's name, and which of them did not respond lately.
//!
//! ```text
//!  connect ─► the first address that is not dead, for 250 ms if there are others ─┬─ connected: alive
//!                │ all are dead: the one that failed first, for `connect_time`    └─ failed: dead for 10 s
//! ```
//! A name with one dead address thus costs 250 ms every 10 s (RFC 8305 §5), not `connect_time` for each connection. Addresses that are only
//! slow are found in the second round.

use encke_io::Address;

/// Time to establish a connection to an address while another one may respond, in ns (RFC 8305 §8).
const FIRST_NS: u64 = 250_000_000;
/// Time for which an address that did not respond is tried last, in ns.
const DEAD_NS: u64 = 10_000_000_000;

/// The addresses of a target, in order of preference.
pub(crate) struct TargetAddresses {
    known: Vec<KnownAddress>,
}

struct KnownAddress {
    address: Address,
    /// 0, or the time in ns of the monotonic clock until which the address is tried last.
    dead_until_ns: u64,
}

impl TargetAddresses {
    pub(crate) fn new(addresses: Vec<Address>) -> Self {
        let alive = |address| KnownAddress { address, dead_until_ns: 0 };
        Self { known: addresses.into_iter().map(alive).collect() }
    }

    pub(crate) const fn len(&self) -> usize {
        self.known.len()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&Address> {
        self.known.get(place).map(|known| &known.address)
    }

    /// The address for the next connection, and the most time to establish it in ns: at most `connect_ns`.
    pub(crate) fn next(&self, now_ns: u64, connect_ns: u64) -> Option<(Address, u64)> {
        let alive = self.known.iter().find(|known| known.dead_until_ns <= now_ns);
        let next = alive.or_else(|| self.known.iter().min_by_key(|known| known.dead_until_ns))?;
        let is_hasty = alive.is_some() && self.known.len() > 1;
        Some((next.address.clone(), if is_hasty { connect_ns.min(FIRST_NS) } else { connect_ns }))
    }

    /// No connection to an address was established. Returns whether all are dead now.
    pub(crate) fn failed(&mut self, address: &Address, now_ns: u64) -> bool {
        if let Some(known) = self.known.iter_mut().find(|known| known.address == *address) {
            known.dead_until_ns = now_ns.saturating_add(DEAD_NS);
        }
        self.known.iter().all(|known| known.dead_until_ns > now_ns)
    }

    /// A connection to an address was established.
    pub(crate) fn works(&mut self, address: &Address) {
        if let Some(known) = self.known.iter_mut().find(|known| known.address == *address) {
            known.dead_until_ns = 0;
        }
    }

    /// Takes the addresses that the name has now.
    pub(crate) fn replace(&mut self, addresses: Vec<Address>) {
        let before = std::mem::replace(self, Self::new(addresses));
        for known in &mut self.known {
            let old = before.known.iter().find(|old| old.address == known.address);
            known.dead_until_ns = old.map_or(0, |old| old.dead_until_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn address(last: u8) -> Address {
        Address::Inet(([192, 0, 2, last], 80).into())
    }

    #[test]
    fn a_dead_address_is_tried_last() {
        let mut addresses = TargetAddresses::new([1, 2, 3].map(address).into());
        let next = |addresses: &TargetAddresses, now_ns| addresses.next(now_ns, 2 * SECOND).expect("one");
        assert_eq!(next(&addresses, SECOND), (address(1), FIRST_NS));
        assert!(!addresses.failed(&address(1), SECOND));
        assert_eq!(next(&addresses, SECOND), (address(2), FIRST_NS));
        assert!(!addresses.failed(&address(2), 2 * SECOND));
        assert!(addresses.failed(&address(3), 3 * SECOND), "all are dead");
        // The second round has time for a slow address.
        assert_eq!(next(&addresses, 3 * SECOND), (address(1), 2 * SECOND));
        assert!(addresses.failed(&address(1), 5 * SECOND));
        assert_eq!(next(&addresses, 5 * SECOND), (address(2), 2 * SECOND));
        addresses.works(&address(2));
        assert_eq!(next(&addresses, 6 * SECOND), (address(2), FIRST_NS));
        // What has failed for 10 s is tried again.
        assert_eq!(next(&addresses, 15 * SECOND), (address(1), FIRST_NS));
    }

    #[test]
    fn a_single_address_has_all_the_time() {
        let mut addresses = TargetAddresses::new(vec![address(1)]);
        assert_eq!(addresses.next(0, 2 * SECOND), Some((address(1), 2 * SECOND)));
        assert!(addresses.failed(&address(1), SECOND));
        assert_eq!(addresses.next(SECOND, 2 * SECOND), Some((address(1), 2 * SECOND)));
        assert_eq!(TargetAddresses::new(Vec::new()).next(0, SECOND), None);
    }

    #[test]
    fn a_resolution_keeps_what_is_known() {
        let mut addresses = TargetAddresses::new([1, 2].map(address).into());
        addresses.failed(&address(1), SECOND);
        addresses.replace([3, 1].map(address).into());
        assert_eq!(addresses.next(SECOND, SECOND), Some((address(3), FIRST_NS)));
        assert!(addresses.failed(&address(3), SECOND));
        assert_eq!(addresses.len(), 2);
    }
}
