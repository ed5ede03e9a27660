//! Open TLS handshakes of a worker: the limit on their number, and the eviction of stalled ones.
//!
//! ```text
//!  ClientHello complete ─► begin ─┬─ below the limit ──────────────────────────► open ─► end
//!                                 ├─ the oldest one is STALLED_NS old: close it ─► open
//!                                 └─ else: rejected
//! ```
//! A connection counts once its ClientHello is complete, so silent and slow clients use up no limit. A handshake that stalls
//! after its ClientHello is closed only when another one needs its place.

use std::collections::VecDeque;

use encke_io::Token;
use encke_session::tls::HandshakeState;

use crate::close::CloseReason;
use crate::core::Core;
use crate::transport::MaybeTls;

/// The age at which a handshake counts as stalled, in ns: three round trips of 300 ms. After its ClientHello a handshake takes
/// one or two.
const STALLED_NS: u64 = 1_000_000_000;

/// Open handshakes of a worker.
#[derive(Default)]
pub(crate) struct Handshakes {
    open: usize,
    /// Handshakes with the monotonic time of their ClientHello, oldest first. Some of them have ended.
    queue: VecDeque<(Token, u64)>,
}

impl Core {
    /// Counts the handshake of a connection whose ClientHello is complete. Returns false if the limit is reached.
    pub(super) fn begin_handshake(&mut self, token: Token) -> bool {
        if self.handshakes.open >= self.policy.limits.handshakes.get() as usize
            && !self.close_stalled_handshake()
        {
            self.metrics.tls.refused.add(1);
            return false;
        }
        let mut queue = std::mem::take(&mut self.handshakes.queue);
        // At least half of the queue has ended, so each entry is examined twice on average.
        if queue.len() >= (self.policy.limits.handshakes.get() as usize).saturating_mul(2) {
            queue.retain(|(token, _)| self.handshake(*token) == Some(&mut HandshakeState::Open));
        }
        queue.push_back((token, self.now.mono_ns));
        self.handshakes.queue = queue;
        if let Some(handshake) = self.handshake(token) {
            *handshake = HandshakeState::Open;
            self.handshakes.open += 1;
        }
        true
    }

    /// Stops counting the handshake of a connection, if it was counted.
    pub(crate) fn end_handshake(&mut self, token: Token) {
        if let Some(handshake) = self.handshake(token)
            && std::mem::replace(handshake, HandshakeState::Over) == HandshakeState::Open
        {
            self.handshakes.open -= 1;
        }
    }

    /// Closes the oldest open handshake, if it is stalled.
    fn close_stalled_handshake(&mut self) -> bool {
        while let Some((token, since_ns)) = self.handshakes.queue.front().copied() {
            let open = self.handshake(token) == Some(&mut HandshakeState::Open);
            if open && since_ns.saturating_add(STALLED_NS) > self.now.mono_ns {
                return false;
            }
            self.handshakes.queue.pop_front();
            if open {
                self.end_handshake(token);
                self.close(token, CloseReason::HandshakeTime, false);
                return true;
            }
        }
        false
    }

    /// The handshake of a TLS connection.
    fn handshake(&mut self, token: Token) -> Option<&mut HandshakeState> {
        match &mut self.conn(token)?.transport {
            MaybeTls::Tls(tls) => Some(&mut tls.handshake),
            MaybeTls::Plain => None,
        }
    }
}
