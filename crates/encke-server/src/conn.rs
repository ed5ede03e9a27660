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
//! Everything a request needs (its head, buffers, its exchange) hangs on `input` and `record` and is gone when
//! the connection is idle.

use encke_io::Peer;
use encke_wire::http1::Head;

use crate::close::CloseReason;
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
    /// An exchange is open: `record` names it.
    Open,
    /// A resident has it: `record` and `form` are the resident's words.
    Resident,
    /// It speaks HTTP/2: `record` is its engine. Each of its streams has a slot of its own.
    Http2,
    /// It is an outgoing connection: `record` is its place among them, [`NONE`] once it is closed.
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
/// The flags from here on are the seat of its resident.
pub(crate) const RESIDENT_SHIFT: u32 = 12;
/// Residents that a worker may have, at most.
pub(crate) const RESIDENTS_MAX: usize = 1 << (u16::BITS - RESIDENT_SHIFT);

/// What an idle connection is. Its size is pinned by a test.
pub(crate) struct Conn {
    /// The moment that the present phase must not outlast; `u64::MAX`: none. The timer may be armed earlier.
    pub(crate) deadline_ns: u64,
    /// While sending: what the peer did not have when the present rate window began, [`UNMEASURED`] before the
    /// first look. While lingering: what has been dropped. In bytes.
    pub(crate) window_bytes: u64,
    /// Bytes that wait to be looked at, and the head they are part of.
    pub(crate) input: Option<Box<Input>>,
    pub(crate) transport: Transport,
    pub(crate) peer: PackedPeer,
    pub(crate) phase: Phase,
    pub(crate) flags: u16,
    /// Why it will close, once [`LAST`] is set.
    pub(crate) reason: CloseReason,
    /// The second word of its resident.
    pub(crate) form: u8,
    pub(crate) generation: u32,
    /// Requests so far.
    pub(crate) requests: u32,
    /// The open exchange's place, or the first word of its resident; [`NONE`] if there is none.
    pub(crate) record: u32,
    /// The log entries that wait for the send in flight; [`NONE`] if there are none.
    pub(crate) flight: u32,
}

/// No place.
pub(crate) const NONE: u32 = u32::MAX;

/// Of a send nobody has looked yet how much of it is left.
pub(crate) const UNMEASURED: u64 = u64::MAX;

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
            window_bytes: 0,
            input: None,
            transport: Transport::Plain,
            peer: PackedPeer::NONE,
            phase: Phase::Vacant,
            flags: 0,
            reason: CloseReason::PeerDone,
            form: 0,
            generation: 0,
            requests: 0,
            record: NONE,
            flight: NONE,
        }
    }

    pub(crate) fn new(generation: u32, peer: Peer, phase: Phase) -> Self {
        Self { generation, phase, peer: PackedPeer::new(peer), ..Self::vacant() }
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// The seat of its resident.
    #[inline]
    pub(crate) fn seat(&self) -> u8 {
        (self.flags >> RESIDENT_SHIFT) as u8
    }

    /// Gives it to the resident at a seat, below [`RESIDENTS_MAX`].
    pub(crate) fn set_seat(&mut self, seat: u8) {
        let other = (1 << RESIDENT_SHIFT) - 1;
        self.flags = self.flags & other | u16::from(seat) << RESIDENT_SHIFT;
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
        let sum = 3 * 8 // deadline, window, input
            + size_of::<Transport>()
            + size_of::<PackedPeer>() // 16 + 2 + 1
            + 5 // phase, flags, reason, form
            + 4 * 4; // generation, requests, record, flight
        assert_eq!(size_of::<Conn>(), sum.next_multiple_of(8));
        assert!(size_of::<Conn>() <= 128);
    }
}
