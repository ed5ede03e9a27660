//! A connection of HTTP/2 as a worker has it: its engine, its streams, and the reason for its end.

use encke_io::Token;
use encke_session::http2::{BYTES_LEAST, Budgets, End, Limits, ServerConnection};
use h2::Reason;

use super::stream::Data;
use crate::close::CloseReason;
use crate::policy::Policy;

/// One connection.
pub(super) struct Engine {
    pub(super) connection: ServerConnection<Data>,
    /// The connection that carries it.
    pub(super) token: Token,
    /// Its open streams, by place.
    pub(super) streams: Vec<u32>,
    /// By when its first request is to come, on the monotonic clock.
    pub(super) first_by_ns: u64,
    /// Since when a field block has not been whole, on the monotonic clock.
    pub(super) block_since: Option<u64>,
    /// It is among those that want to be polled.
    pub(super) stirred: bool,
    /// Streams that wait for it to hold less, by place.
    crowded: Vec<u32>,
    /// Why it was stopped.
    stopped: Option<CloseReason>,
    /// It takes no new streams, for this reason.
    leaving: Option<CloseReason>,
}

impl Engine {
    pub(super) fn new(token: Token, policy: &Policy, now_ns: u64, budgets: &Budgets) -> Self {
        let limits =
            Limits { streams: policy.limits.streams.get(), head_bytes: policy.limits.head().head_bytes };
        Self {
            connection: ServerConnection::new(limits, now_ns, budgets),
            token,
            streams: Vec::new(),
            first_by_ns: now_ns.saturating_add(policy.limits.head_time.nanoseconds()),
            block_since: None,
            stirred: false,
            crowded: Vec::new(),
            stopped: None,
            leaving: None,
        }
    }

    /// Has a stream wait until the connection may hold more.
    pub(super) fn wait_for_room(&mut self, place: u32) {
        if !self.crowded.contains(&place) {
            self.crowded.push(place);
        }
    }

    /// Streams that waited for room, if there is some again.
    pub(super) fn take_crowded(&mut self) -> Vec<u32> {
        if self.crowded.is_empty() || self.connection.bytes.room() < BYTES_LEAST {
            Vec::new()
        } else {
            std::mem::take(&mut self.crowded)
        }
    }

    /// Takes no new streams, and ends when the open ones have ended (RFC 9113 §6.8).
    pub(super) fn leave(&mut self, reason: CloseReason) {
        self.leaving = Some(reason);
        self.connection.leave();
    }

    /// Ends now: its last words are a GOAWAY.
    pub(super) fn stop(&mut self, goaway: Reason, reason: CloseReason) {
        if self.connection.end.is_none() {
            self.stopped.get_or_insert(reason);
        }
        self.connection.stop(goaway);
    }

    /// Why it has ended.
    pub(super) fn reason(&self) -> CloseReason {
        self.stopped.unwrap_or(match self.connection.end {
            Some(End::Done) => self.leaving.unwrap_or(CloseReason::PeerDone),
            Some(End::PeerLeft) | None => CloseReason::PeerDone,
            Some(End::PeerAborted) => CloseReason::PeerAborted,
            Some(End::Refused) => CloseReason::Refused,
            Some(End::Flood) => CloseReason::Flood,
        })
    }
}
