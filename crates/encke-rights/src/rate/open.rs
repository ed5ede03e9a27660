//! Open requests per key (`[[rate]] at_once`), counted across all workers.
//!
//! A request counts from its check until its response is sent; an event stream or a WebSocket until its end. A table has an entry for
//! each key with open requests, so its size is bounded by the number of connections and HTTP/2 streams, and no entry is evicted.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use encke_io::lock;
use encke_server::EndToken;

/// Parts of the table, so that workers rarely wait for each other.
const SHARDS: usize = 16;

/// The open requests of one rule.
pub(crate) struct OpenRequests {
    counts: [Mutex<HashMap<u64, u32>>; SHARDS],
    most: NonZeroU32,
}

/// An open request.
struct OpenPermit {
    requests: Arc<OpenRequests>,
    key: u64,
}

impl OpenRequests {
    pub(crate) fn new(most: NonZeroU32) -> Self {
        Self { counts: Default::default(), most }
    }

    /// Counts a request until the token is dropped; `None` if its key has too many.
    pub(crate) fn enter(self: &Arc<Self>, key: u64) -> Option<EndToken> {
        let mut counts = lock(self.shard(key));
        let count = counts.entry(key).or_insert(0);
        if *count >= self.most.get() {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(EndToken::new(OpenPermit { requests: Arc::clone(self), key }))
    }

    /// Number of keys with open requests.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.counts.iter().map(|shard| lock(shard).len()).sum()
    }

    fn shard(&self, key: u64) -> &Mutex<HashMap<u64, u32>> {
        // The remainder is below the number of shards.
        &self.counts[(key % SHARDS as u64) as usize]
    }
}

impl Drop for OpenPermit {
    fn drop(&mut self) {
        let mut counts = lock(self.requests.shard(self.key));
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}
