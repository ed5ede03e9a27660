//! A connection's slot: what stays in memory while nothing happens on it.
//!
//! ```text
//!            ┌────────────── answered, kept ──────────────┐
//!            ▼                                            │
//! Proxy ─► Idle ──bytes──► Head ──head complete──► (call) ┤
//!                          ▲  │                           ├── Later, a body or a stream ──► Open
//!                          └──┘ partial                   │                                  │
//!                                                         └── answered, last ──┐◄────────────┘
//!                                                                              ▼
//!                             Closing ◄── the peer's end, or time ── Lingering, or at once Closing
//! ```
//! On a listener with TLS a handshake (`Handshake`) comes before `Idle`, and behind the PROXY header if there is one.
//!
//! Beside the phase two things go on by themselves: a send may be in flight (`SENDING`), and receiving may be
//! paused (`PAUSED`). While a send is in flight no further request is looked at; its bytes wait in `input`.
//!
//! A handler may give its request's connection to a resident (`Resident`), which keeps it until it closes, or until the
//! resident responds and HTTP continues.
//!
//! A connection whose first bytes are the preface of HTTP/2 stays `Http2` until it ends; see `h2`. Each of its streams is
//! a connection of its own here, with one request.
//!
//! Everything a request needs (its head, buffers, its exchange) hangs on `input` and `duty` and is gone when
//! the connection is idle.

use encke_io::Peer;
use encke_wire::http1::Head;

use crate::close::CloseReason;
pub(crate) use crate::duty::{Duty, NONE};
use crate::peer::PackedPeer;
use crate::transport::Transport;

/// Where a connection stands; drawn above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No connection.
    Vacant,
    /// A PROXY header must come first.
    Proxy,
    /// A TLS handshake must come first.
    Handshake,
    /// Nothing of a request has arrived.
    Idle,
    /// A part of a head has arrived.
    Head,
    /// A request is being answered. Once its exchange outlives the call of the handler, `duty` names it.
    Open,
    /// A resident has it; `duty` names it.
    Resident,
    /// It speaks HTTP/2; `duty` names its engine. Each of its streams has a slot of its own.
    Http2,
    /// It is an outgoing connection; `duty` has its place among them until it is closed.
    Upstream,
    /// The final answer is out; what the client still sends is dropped.
    Lingering,
    /// Closed; `Closed` has not come back yet.
    Closing,
}

/// A send is in flight.
pub(crate) const SENDING: u16 = 1;
/// Receiving is paused.
pub(crate) const PAUSED: u16 = 1 << 1;
/// After what is in flight the connection closes.
pub(crate) const LAST: u16 = 1 << 2;
/// Requests are sent on to `https`.
pub(crate) const TO_HTTPS: u16 = 1 << 3;
/// The peer has ended its side; nothing more will arrive.
pub(crate) const PEER_ENDED: u16 = 1 << 4;
/// The connection came through the admin listener.
pub(crate) const ADMIN: u16 = 1 << 5;
/// The peer is a trusted proxy that spoke TLS with the client.
pub(crate) const SECURE: u16 = 1 << 6;
/// Counted against its address.
pub(crate) const COUNTED: u16 = 1 << 7;
/// Behind [`LAST`]: the client may not have read everything then, so linger.
pub(crate) const LINGER: u16 = 1 << 8;
/// Its resident reads no further for now.
pub(crate) const HELD: u16 = 1 << 9;
/// The peer has ended its side, but bytes it sent before are unread. [`PEER_ENDED`] is set once they are read.
pub(crate) const ENDING: u16 = 1 << 10;
/// Its resident has it stay open after the peer has ended its side.
pub(crate) const OUTLASTS: u16 = 1 << 11;

/// What an idle connection is. Its size is pinned by a test.
pub(crate) struct Conn {
    /// The moment that the present phase must not outlast; `u64::MAX`: none. The timer may be armed earlier.
    pub(crate) deadline_ns: u64,
    /// Bytes that wait to be looked at, and the head they are part of.
    pub(crate) input: Option<Box<Input>>,
    pub(crate) transport: Transport,
    pub(crate) peer: PackedPeer,
    pub(crate) phase: Phase,
    pub(crate) flags: u16,
    /// Why it will close, once [`LAST`] is set.
    pub(crate) reason: CloseReason,
    pub(crate) duty: Duty,
    /// The rate window of the send in flight.
    pub(crate) window: RateWindow,
    pub(crate) generation: u32,
    /// Requests so far.
    pub(crate) requests: u32,
    /// The log entries that wait for the send in flight; [`NONE`] if there are none.
    pub(crate) flight: u32,
}

/// The start of a send's present rate window.
#[derive(Clone, Copy)]
pub(crate) enum RateWindow {
    /// The send has just begun: the number of unsent bytes is not known yet.
    Unmeasured,
    /// The bytes that the peer did not have: the lower six of a number, little-endian.
    Unsent([u8; 6]),
}

impl RateWindow {
    /// A window that begins with this number of bytes unsent. A number above 2^48 - 1 is kept as that.
    pub(crate) fn begin(unsent: u64) -> Self {
        let [low @ .., _, _] = unsent.min((1 << 48) - 1).to_le_bytes();
        Self::Unsent(low)
    }

    /// The bytes that the peer has taken since the window began, if now so many are unsent.
    pub(crate) fn taken(self, unsent: u64) -> Option<u64> {
        let Self::Unsent([a, b, c, d, e, f]) = self else { return None };
        Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]).saturating_sub(unsent))
    }
}

/// What has arrived of requests and is not dealt with.
pub(crate) struct Input {
    /// Begins at the first byte of a head (`parsing`) or of what follows the open request's head.
    pub(crate) bytes: Vec<u8>,
    /// The head as far as it is parsed.
    pub(crate) head: Box<Head>,
    pub(crate) parsing: bool,
}

impl Conn {
    pub(crate) const fn vacant() -> Self {
        Self {
            deadline_ns: u64::MAX,
            input: None,
            transport: Transport::Plain,
            peer: PackedPeer::NONE,
            phase: Phase::Vacant,
            flags: 0,
            reason: CloseReason::PeerDone,
            duty: Duty::Rest,
            window: RateWindow::Unmeasured,
            generation: 0,
            requests: 0,
            flight: NONE,
        }
    }

    pub(crate) fn new(generation: u32, peer: Peer, phase: Phase) -> Self {
        Self { generation, phase, peer: PackedPeer::new(peer), ..Self::vacant() }
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Whether nothing goes on with it and nothing is to be done: it waits for the next request.
    #[inline]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.phase == Phase::Idle
            && self.flags & (SENDING | PAUSED | LAST | PEER_ENDED) == 0
            && self.input.is_none()
            && self.flight == NONE
    }

    /// Whether it holds nothing but itself: it may be shed.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && !self.has(SENDING) && self.requests > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_as_large_as_its_fields_and_no_larger_than_planned() {
        // Every one of 10,000 idle connections costs this, 16 bytes in the reactor and 12 in the wheel.
        let sum = 2 * 8 // deadline, input
            + size_of::<Transport>()
            + size_of::<PackedPeer>() // 16 + 2 + 1
            + 4 // phase, flags, reason
            + size_of::<Duty>() // 1 + 4 + 1
            + size_of::<RateWindow>() // 1 + 6
            + 3 * 4; // generation, requests, flight
        assert_eq!(size_of::<Conn>(), sum);
        assert_eq!(size_of::<Conn>(), 72);
    }

    #[test]
    fn a_rate_window_counts_what_the_peer_has_taken_since() {
        assert_eq!(RateWindow::Unmeasured.taken(0), None);
        assert_eq!(RateWindow::begin(1_000).taken(400), Some(600));
        assert_eq!(RateWindow::begin(1_000).taken(1_001), Some(0), "never less than none");
        let terabyte = 1 << 40;
        assert_eq!(RateWindow::begin(terabyte).taken(terabyte - 1), Some(1));
        assert_eq!(RateWindow::begin(u64::MAX).taken(0), Some((1 << 48) - 1));
    }
}
