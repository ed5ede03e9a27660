//! A connection's slot: the state that stays in memory while the connection is idle.
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
//! On a TLS listener a handshake (`Handshake`) comes before `Idle`, after the PROXY header if there is one.
//!
//! Two more states are independent of the phase: a send may be in flight (`SENDING`), and receiving may be paused (`PAUSED`).
//! While a send is in flight no further request is processed; its bytes wait in `input`.
//!
//! A handler may pass its request's connection to a resident (`Resident`). The resident keeps it until it closes, or until the
//! resident responds and HTTP continues.
//!
//! A connection that begins with the HTTP/2 preface stays `Http2` until it ends; see `h2`. Each of its streams is a connection
//! of its own here, with one request.
//!
//! All memory that a request needs (its head, buffers, its exchange) is owned by `input` and `duty`, and is released when the
//! connection is idle.

use encke_io::Peer;
use encke_wire::http1::Head;

use crate::close::CloseReason;
pub(crate) use crate::duty::{Duty, NONE};
use crate::peer::PackedPeer;
use crate::transport::MaybeTls;

/// The phase of a connection; see the diagram above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum ConnPhase {
    /// No connection.
    Vacant,
    /// A PROXY header must arrive first.
    Proxy,
    /// A TLS handshake must complete first.
    Handshake,
    /// Between requests: no byte of the next one has arrived.
    Idle,
    /// Part of a head has arrived.
    Head,
    /// A request is open. Once its exchange outlives the call of the handler, `duty` has its index.
    Open,
    /// A resident owns the connection; `duty` has its seat.
    Resident,
    /// An HTTP/2 connection; `duty` has the index of its engine. Each of its streams has a slot of its own.
    Http2,
    /// An outgoing connection; `duty` has its index until it is closed.
    Upstream,
    /// The final response is sent; further bytes of the client are dropped.
    Lingering,
    /// Closed; the reactor's `Closed` event has not arrived yet.
    Closing,
}

/// A send is in flight.
pub(crate) const SENDING: u16 = 1;
/// Receiving is paused.
pub(crate) const PAUSED: u16 = 1 << 1;
/// The connection closes after the send in flight.
pub(crate) const LAST: u16 = 1 << 2;
/// Requests are redirected to `https`.
pub(crate) const TO_HTTPS: u16 = 1 << 3;
/// The peer has ended its side: no more bytes will arrive.
pub(crate) const PEER_ENDED: u16 = 1 << 4;
/// The connection was accepted by the admin listener.
pub(crate) const ADMIN: u16 = 1 << 5;
/// The connection is encrypted: this server terminates its TLS. A stream has the flag of its carrier.
pub(crate) const SECURE: u16 = 1 << 6;
/// The connection counts against the limit of its address.
pub(crate) const COUNTED: u16 = 1 << 7;
/// With [`LAST`]: the client may not have read everything by then, so linger.
pub(crate) const LINGER: u16 = 1 << 8;
/// The connection's resident has paused reading.
pub(crate) const HELD: u16 = 1 << 9;
/// The peer has ended its side, but bytes before the end are unread. [`PEER_ENDED`] is set once they are read.
pub(crate) const ENDING: u16 = 1 << 10;
/// The connection's resident keeps it open after the peer has ended its side.
pub(crate) const OUTLASTS: u16 = 1 << 11;

/// With [`LINGER`]: the client may still be sending the body of a valid request.
pub(crate) const UPLOADING: u16 = 1 << 12;
/// With [`UPLOADING`]: that body has no end.
pub(crate) const ENDLESS_BODY: u16 = 1 << 13;

/// The state of an idle connection. A test pins its size.
pub(crate) struct Conn {
    /// The deadline of the present phase; `u64::MAX` if there is none. The timer may be armed earlier.
    pub(crate) deadline_ns: u64,
    /// Bytes that wait to be processed, and the head that they belong to.
    pub(crate) input: Option<Box<Input>>,
    pub(crate) transport: MaybeTls,
    pub(crate) peer: PackedPeer,
    pub(crate) phase: ConnPhase,
    pub(crate) flags: u16,
    /// The reason for closing, once [`LAST`] is set.
    pub(crate) reason: CloseReason,
    pub(crate) duty: Duty,
    /// The rate window of the send in flight.
    pub(crate) window: RateWindow,
    pub(crate) generation: u32,
    /// Number of requests so far.
    pub(crate) requests: u32,
    /// Index of the log entries that wait for the send in flight; [`NONE`] if there are none.
    pub(crate) flight: u32,
}

/// The start of a send's present rate window.
#[derive(Clone, Copy)]
pub(crate) enum RateWindow {
    /// The send has just begun: the number of unsent bytes is not known yet.
    Unmeasured,
    /// The bytes that the peer had not received at the start: the lower six bytes of a number, little-endian.
    Unsent([u8; 6]),
}

impl RateWindow {
    /// Begins a window at this number of unsent bytes. Numbers above 2^48 - 1 are stored as 2^48 - 1.
    pub(crate) fn begin(unsent: u64) -> Self {
        let [low @ .., _, _] = unsent.min((1 << 48) - 1).to_le_bytes();
        Self::Unsent(low)
    }

    /// Returns the number of bytes that the peer has received since the window began. `unsent` is the present number of unsent
    /// bytes.
    pub(crate) fn taken(self, unsent: u64) -> Option<u64> {
        let Self::Unsent([a, b, c, d, e, f]) = self else { return None };
        Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]).saturating_sub(unsent))
    }
}

/// Received bytes that are not processed yet.
pub(crate) struct Input {
    /// Begins at the first byte of a head (`parsing`), or directly after the head of the open request.
    pub(crate) bytes: Vec<u8>,
    /// The head, as far as it is parsed.
    pub(crate) head: Box<Head>,
    pub(crate) parsing: bool,
}

impl Conn {
    pub(crate) const fn vacant() -> Self {
        Self {
            deadline_ns: u64::MAX,
            input: None,
            transport: MaybeTls::Plain,
            peer: PackedPeer::NONE,
            phase: ConnPhase::Vacant,
            flags: 0,
            reason: CloseReason::PeerDone,
            duty: Duty::Rest,
            window: RateWindow::Unmeasured,
            generation: 0,
            requests: 0,
            flight: NONE,
        }
    }

    pub(crate) fn new(generation: u32, peer: Peer, phase: ConnPhase) -> Self {
        Self { generation, phase, peer: PackedPeer::new(peer), ..Self::vacant() }
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Sets or clears a flag.
    #[inline]
    pub(crate) fn set(&mut self, flag: u16, is_set: bool) {
        self.flags = if is_set { self.flags | flag } else { self.flags & !flag };
    }

    /// Whether the connection waits for the next request and has no other work.
    #[inline]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.phase == ConnPhase::Idle
            && self.flags & (SENDING | PAUSED | LAST | PEER_ENDED) == 0
            && self.input.is_none()
            && self.flight == NONE
    }

    /// Whether the connection has had a request and is idle, so that it may be closed to make room for another.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == ConnPhase::Idle && !self.has(SENDING) && self.requests > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_as_large_as_its_fields_and_no_larger_than_planned() {
        // Each of 10,000 idle connections costs this, plus 16 bytes in the reactor and 12 in the wheel.
        let sum = 2 * 8 // deadline, input
            + size_of::<MaybeTls>()
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
