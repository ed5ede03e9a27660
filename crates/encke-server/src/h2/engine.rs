//! An HTTP/2 connection of a worker: the protocol's state, its streams, and the reason for its end.

use encke_io::Token;
use encke_session::http2::{BYTES_LEAST, Budgets, Http2ConnEnd, Limits, ServerConnection};
use h2::Reason;

use super::sources::StreamSources;
use super::stream::StreamData;
use crate::close::CloseReason;
use crate::policy::ConnLimits;

/// An HTTP/2 connection.
pub(super) struct Http2Engine {
    pub(super) connection: ServerConnection<StreamData>,
    /// The connection that carries the streams.
    pub(super) token: Token,
    /// Indices of open streams.
    pub(super) streams: Vec<u32>,
    /// The deadline of the first request, on the monotonic clock.
    pub(super) first_by_ns: u64,
    /// The start of an incomplete field block, on the monotonic clock.
    pub(super) block_since: Option<u64>,
    /// Whether this engine is queued for polling.
    pub(super) stirred: bool,
    /// Indices of streams that wait until the connection may hold more bytes.
    crowded: Vec<u32>,
    /// Streams whose responses come from elsewhere.
    pub(super) sources: StreamSources,
    /// The reason given to [`Http2Engine::stop`].
    stopped: Option<CloseReason>,
    /// The reason given to [`Http2Engine::leave`].
    leaving: Option<CloseReason>,
}

impl Http2Engine {
    pub(super) fn new(token: Token, policy: &ConnLimits, now_ns: u64, budgets: &Budgets) -> Self {
        let limits = Limits {
            streams: policy.limits.streams.get(),
            head_bytes: policy.limits.head().head_bytes,
            resets: policy.limits.stream_resets.get(),
        };
        Self {
            connection: ServerConnection::new(limits, now_ns, budgets),
            token,
            streams: Vec::new(),
            first_by_ns: now_ns.saturating_add(policy.limits.head_time.nanoseconds()),
            block_since: None,
            stirred: false,
            crowded: Vec::new(),
            sources: StreamSources::default(),
            stopped: None,
            leaving: None,
        }
    }

    /// Queues a stream until the connection may hold more bytes.
    pub(super) fn wait_for_room(&mut self, place: u32) {
        if !self.crowded.contains(&place) {
            self.crowded.push(place);
        }
    }

    /// Returns the waiting streams, if the connection may hold more bytes.
    pub(super) fn take_crowded(&mut self) -> Vec<u32> {
        if self.crowded.is_empty() || self.connection.bytes.room() < BYTES_LEAST {
            Vec::new()
        } else {
            std::mem::take(&mut self.crowded)
        }
    }

    /// Accepts no new streams, and ends after the open ones (RFC 9113 §6.8).
    pub(super) fn leave(&mut self, reason: CloseReason) {
        self.leaving = Some(reason);
        self.connection.leave();
    }

    /// Takes no further streams if its client has cancelled too many. Returns true once.
    pub(super) fn calm(&mut self) -> bool {
        let is_flooded = self.connection.watch.is_flooded() && self.leaving.is_none();
        if is_flooded {
            self.leave(CloseReason::Flood);
        }
        is_flooded
    }

    /// Ends at once, with a GOAWAY.
    pub(super) fn stop(&mut self, goaway: Reason, reason: CloseReason) {
        if self.connection.end.is_none() {
            self.stopped.get_or_insert(reason);
        }
        self.connection.stop(goaway);
    }

    /// The reason for the connection's end.
    pub(super) fn reason(&self) -> CloseReason {
        self.stopped.unwrap_or(match self.connection.end {
            Some(Http2ConnEnd::Done) => self.leaving.unwrap_or(CloseReason::PeerDone),
            Some(Http2ConnEnd::PeerLeft) | None => CloseReason::PeerDone,
            Some(Http2ConnEnd::PeerAborted) => CloseReason::PeerAborted,
            Some(Http2ConnEnd::Refused) => CloseReason::Refused,
            Some(Http2ConnEnd::Flood) => CloseReason::Flood,
        })
    }
}
