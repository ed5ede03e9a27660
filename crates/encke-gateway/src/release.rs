//! The end of idle connections for an application in which each process serves one connection.
//!
//! ```text
//!  a request on a new connection ─ no response for 100 ms ─► release, all workers ─► connections idle for 100 ms are closed
//!                                       ▲                      │ still none
//!                                       └────── 250 ms ◄───────┘ for a second: the request itself is slow, such as a long poll
//! ```
//! Such an application accepts a connection only when another one ends, so idle connections would keep the request waiting for
//! `keep_time`. Connections in steady use stay.

use crate::proxy::Proxy;
use crate::upstream::NamedUpstream;

/// Time without a response on a new connection before the first release, and time without a request after which a connection is idle,
/// in ns.
const IDLE_NS: u64 = 100_000_000;
/// Time between two releases, in ns.
const AGAIN_NS: u64 = 250_000_000;
/// Time after which further releases free no process, in ns.
const SLOW_NS: u64 = 1_000_000_000;

/// The time until the first release for a request on a new connection, in ns; `u64::MAX`: no connection is kept.
pub(crate) fn first_release_ns(upstream: &NamedUpstream) -> u64 {
    if upstream.settings.kept() > 0 { IDLE_NS } else { u64::MAX }
}

/// Releases idle connections for a request that has waited for `waited_ns`. Returns the time until the next release in ns.
pub(crate) fn release_idle(upstream: &NamedUpstream, waited_ns: u64, now_ns: u64) -> u64 {
    if upstream.settings.kept() == 0 || waited_ns > SLOW_NS {
        return u64::MAX;
    }
    upstream.queue.release(now_ns, AGAIN_NS);
    AGAIN_NS
}

impl Proxy {
    /// Closes the connections of this worker that are to be released.
    pub(crate) fn close_released(&mut self, now_ns: u64) {
        for place in 0..self.kept.len() {
            for (target, id) in self.kept[place].take_released() {
                let is_idle =
                    self.conns.get(&id).is_none_or(|conn| now_ns.saturating_sub(conn.active_ns) >= IDLE_NS);
                if is_idle {
                    self.kept[place].remove(target, id);
                    self.conns.remove(&id);
                    self.context.close(id);
                }
            }
        }
    }
}
