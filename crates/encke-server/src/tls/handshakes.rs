//! Open TLS handshakes of a worker: how many there may be, and which one gives way to another.
//!
//! ```text
//!  ClientHello complete ─► begin ─┬─ below the limit ──────────────────────────► open ─► end
//!                                 ├─ the oldest one is STALLED_NS old: close it ─► open
//!                                 └─ else: rejected
//! ```
//! A connection counts from its complete ClientHello, so silent and slow clients take no place. A handshake that stalls
//! after its ClientHello keeps its place only until another one needs it.

use std::collections::VecDeque;

use encke_io::Token;
use encke_session::tls::Handshake;

use crate::close::CloseReason;
use crate::core::Core;
use crate::transport::Transport;

/// The age at which a handshake gives way: three round trips of 300 ms. After its ClientHello a handshake takes one or two.
const STALLED_NS: u64 = 1_000_000_000;

/// Open handshakes of a worker.
#[derive(Default)]
pub(crate) struct Handshakes {
    open: usize,
    /// Open ones and the monotonic time of their ClientHellos, the oldest first, among others that have ended.
    queue: VecDeque<(Token, u64)>,
}

impl Core {
    /// Counts the handshake of a connection whose ClientHello is complete. False if the limit is reached.
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
            queue.retain(|(token, _)| self.handshake(*token) == Some(&mut Handshake::Open));
        }
        queue.push_back((token, self.now.mono_ns));
        self.handshakes.queue = queue;
        if let Some(handshake) = self.handshake(token) {
            *handshake = Handshake::Open;
            self.handshakes.open += 1;
        }
        true
    }

    /// Counts the handshake of a connection no more, if it was.
    pub(crate) fn end_handshake(&mut self, token: Token) {
        if let Some(handshake) = self.handshake(token)
            && std::mem::replace(handshake, Handshake::Over) == Handshake::Open
        {
            self.handshakes.open -= 1;
        }
    }

    /// Closes the oldest open handshake, if it is stalled.
    fn close_stalled_handshake(&mut self) -> bool {
        while let Some((token, since_ns)) = self.handshakes.queue.front().copied() {
            let open = self.handshake(token) == Some(&mut Handshake::Open);
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

    /// The handshake of a connection by TLS.
    fn handshake(&mut self, token: Token) -> Option<&mut Handshake> {
        match &mut self.conn(token)?.transport {
            Transport::Tls(tls) => Some(&mut tls.handshake),
            Transport::Plain => None,
        }
    }
}
