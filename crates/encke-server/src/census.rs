//! Counts of connections: of the process, and of each client address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use encke_io::lock;

use crate::drain_census::DrainCensus;
use crate::inspect::AddressBlocks;

/// Connection counts of all workers. Changed when a connection is accepted or closed, never by a request.
#[derive(Default)]
pub(crate) struct Census {
    open: AtomicUsize,
    /// Outgoing connections.
    upstreams: AtomicUsize,
    /// Used only if addresses have a limit.
    addresses: Mutex<HashMap<IpAddr, u32>>,
    pub(crate) drain: DrainCensus,
    pub(crate) blocks: AddressBlocks,
    /// Distinguishes connections of this server from connections of an earlier one, whose ids an operator may still see.
    server_id: u16,
}

impl Census {
    /// Creates counts of zero for a server that starts at `unix_ns`.
    pub(crate) fn starting(unix_ns: u64) -> Self {
        // Milliseconds: two starts differ, and the number repeats after a minute.
        Self { server_id: (unix_ns / 1_000_000) as u16, ..Self::default() }
    }

    /// The part of connection ids that this server's connections share.
    pub(crate) fn server_id(&self) -> u16 {
        self.server_id
    }

    /// Counts a new connection. Returns the number of connections including it.
    pub(crate) fn enter(&self) -> usize {
        self.open.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a new outgoing connection. Returns false if there are `most` already.
    pub(crate) fn enter_upstream(&self, most: usize) -> bool {
        let before = self.upstreams.fetch_add(1, Ordering::Relaxed);
        if before >= most {
            self.leave_upstream();
        }
        before < most
    }

    pub(crate) fn leave_upstream(&self) {
        self.upstreams.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a new connection of an address. Returns false if the address has `most` already. An IPv6 address counts as its
    /// [`household`].
    pub(crate) fn enter_address(&self, address: IpAddr, most: u32) -> bool {
        let mut addresses = self.addresses();
        let count = addresses.entry(household(address)).or_insert(0);
        if *count >= most {
            return false;
        }
        *count += 1;
        true
    }

    pub(crate) fn leave_address(&self, address: IpAddr) {
        let mut addresses = self.addresses();
        let key = household(address);
        if let Some(count) = addresses.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&key);
            }
        }
    }

    /// Locks the counts. They are consistent wherever a thread could panic, so a poisoned lock is usable.
    fn addresses(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        lock(&self.addresses)
    }
}

/// Returns the unit by which an address is counted: an IPv4 address itself, or the /64 network of an IPv6 address. A provider
/// gives each of its subscribers such a network.
pub fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_so_many_and_no_more() {
        let census = Census::default();
        let one: IpAddr = "2001:db8::1".parse().expect("an address");
        let neighbour: IpAddr = "2001:db8::2".parse().expect("an address");
        let other: IpAddr = "192.0.2.1".parse().expect("an address");
        assert!(census.enter_address(one, 2));
        assert!(census.enter_address(neighbour, 2));
        assert!(!census.enter_address(one, 2));
        assert!(census.enter_address(other, 2));
        census.leave_address(neighbour);
        assert!(census.enter_address(one, 2));
        for address in [one, one, other] {
            census.leave_address(address);
        }
        assert!(census.addresses().is_empty());
    }
}
