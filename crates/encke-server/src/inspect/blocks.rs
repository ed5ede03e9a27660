//! Blocked client addresses: their connections are refused when they are accepted, until the block ends.
//!
//! The admin listener ignores blocks, so that an operator cannot block all operators. Blocks belong to the server and not to its
//! settings: they survive a reload, and end with the process.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use encke_io::Now;
use encke_io::lock;
use encke_settings::Network;
use encke_stats::{Cell, Row};

/// The columns of the list, in the order of display.
pub(super) const COLUMNS: &[&str] = &["address", "ends_ms", "reason", "refused"];

/// Maximum number of blocks. While there are any, each new connection is compared with all of them: 1,000 take some 3 µs.
const BLOCKS_MAX: usize = 1_000;

/// The blocked networks, shared by all workers.
#[derive(Default)]
pub(crate) struct AddressBlocks {
    /// Number of blocks, so that an accept without any costs one test.
    count: AtomicUsize,
    blocks: Mutex<Vec<NetworkBlock>>,
}

struct NetworkBlock {
    network: Network,
    /// On the monotonic clock.
    ends_ns: u64,
    /// Connections that were refused.
    refused: u64,
}

/// There are [`BLOCKS_MAX`] blocks already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlocksFull;

impl AddressBlocks {
    /// Whether there are blocks.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Whether an address is blocked. Counts the refused connection.
    pub(crate) fn refuses(&self, address: IpAddr, now_ns: u64) -> bool {
        let mut blocks = lock(&self.blocks);
        self.expire(&mut blocks, now_ns);
        let found = blocks.iter_mut().find(|block| block.network.contains(address));
        found.map(|block| block.refused += 1).is_some()
    }

    /// Blocks a network until `ends_ns` on the monotonic clock. Replaces the end of an earlier block of the same network.
    ///
    /// # Errors
    /// There are too many blocks.
    pub(super) fn block(&self, network: Network, ends_ns: u64, now_ns: u64) -> Result<(), BlocksFull> {
        let mut blocks = lock(&self.blocks);
        self.expire(&mut blocks, now_ns);
        if let Some(block) = blocks.iter_mut().find(|block| block.network == network) {
            block.ends_ns = ends_ns;
            return Ok(());
        }
        if blocks.len() >= BLOCKS_MAX {
            return Err(BlocksFull);
        }
        blocks.push(NetworkBlock { network, ends_ns, refused: 0 });
        self.count.store(blocks.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Ends the block of a network. Returns false if there is none.
    pub(super) fn unblock(&self, network: Network, now_ns: u64) -> bool {
        let mut blocks = lock(&self.blocks);
        self.expire(&mut blocks, now_ns);
        let before = blocks.len();
        blocks.retain(|block| block.network != network);
        self.count.store(blocks.len(), Ordering::Relaxed);
        blocks.len() < before
    }

    /// Returns the rows of the list `blocks`.
    pub(super) fn rows(&self, now: Now) -> Vec<Row> {
        let mut blocks = lock(&self.blocks);
        self.expire(&mut blocks, now.mono_ns);
        let row = |block: &NetworkBlock| {
            let ends_unix_ns = now.unix_ns.saturating_add(block.ends_ns.saturating_sub(now.mono_ns));
            Row(vec![
                ("address", Cell::Text(text(block.network).into())),
                ("ends_ms", Cell::Count(ends_unix_ns / 1_000_000)),
                ("reason", "by an operator".into()),
                ("refused", Cell::Count(block.refused)),
            ])
        };
        blocks.iter().map(row).collect()
    }

    /// Removes blocks that have ended.
    fn expire(&self, blocks: &mut Vec<NetworkBlock>, now_ns: u64) {
        blocks.retain(|block| block.ends_ns > now_ns);
        self.count.store(blocks.len(), Ordering::Relaxed);
    }
}

/// Returns a network as text: a single address without its prefix.
fn text(network: Network) -> String {
    let bits = if network.address.is_ipv4() { 32 } else { 128 };
    if network.prefix == bits { network.address.to_string() } else { network.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().expect("a network")
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_block_refuses_its_network_until_it_ends() {
        let blocks = AddressBlocks::default();
        assert!(!blocks.has_any());
        blocks.block(network("192.0.2.0/24"), 100, 0).expect("room");
        blocks.block(network("2001:db8::1"), 50, 0).expect("room");
        assert!(blocks.refuses(ip("192.0.2.7"), 10));
        assert!(blocks.refuses(ip("::ffff:192.0.2.8"), 10), "the same address, as IPv6 sockets have it");
        assert!(!blocks.refuses(ip("192.0.3.7"), 10));
        assert!(blocks.refuses(ip("2001:db8::1"), 49));
        assert!(!blocks.refuses(ip("2001:db8::1"), 50));
        let rows = blocks.rows(Now { mono_ns: 60, unix_ns: 5_000_000 });
        let cells: Vec<_> =
            rows.iter().map(|row| (row.cell("address").cloned(), row.cell("refused").cloned())).collect();
        assert_eq!(cells, [(Some(Cell::Text("192.0.2.0/24".into())), Some(Cell::Count(2)))]);
        assert!(!blocks.refuses(ip("192.0.2.7"), 100));
        assert!(!blocks.has_any(), "no accept tests an empty list");
    }

    #[test]
    fn a_network_is_unblocked_as_it_was_blocked() {
        let blocks = AddressBlocks::default();
        blocks.block(network("192.0.2.7"), 100, 0).expect("room");
        blocks.block(network("192.0.2.7"), 200, 0).expect("the same block");
        assert!(blocks.refuses(ip("192.0.2.7"), 150), "the later end counts");
        assert!(!blocks.unblock(network("192.0.2.0/24"), 0));
        assert!(blocks.unblock(network("192.0.2.7"), 0));
        assert!(!blocks.unblock(network("192.0.2.7"), 0) && !blocks.has_any());
        for number in 0..BLOCKS_MAX as u32 {
            blocks.block(Network { address: IpAddr::V4(number.into()), prefix: 32 }, 10, 0).expect("room");
        }
        assert_eq!(blocks.block(network("192.0.2.7"), 10, 0), Err(BlocksFull));
        assert_eq!(blocks.block(network("192.0.2.7"), 20, 10), Ok(()), "the others have ended");
    }
}
