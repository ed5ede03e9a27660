//! Outgoing connections as values: ids, events, ends and their table. `upstream.rs` is the worker's part.

use encke_io::{Address, OpError, Segment, Token};
use encke_session::tls::{Distrust, Session, SessionError, TlsFault};

use crate::upstream_session::UpstreamSession;

/// The id of an outgoing connection, unique on its worker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UpstreamId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// An event of an outgoing connection.
#[derive(PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UpstreamEvent<'a> {
    /// The connection is established, with TLS after the handshake. Bytes that were sent before leave now.
    Connected,
    /// Bytes arrived. They are lent for the call.
    Received(&'a mut [u8]),
    /// The kernel has taken this many of the bytes given to [`HandlerContext::send`](crate::HandlerContext::send). With TLS
    /// these are bytes of plaintext.
    Sent(u64),
    /// The peer sends no more. This side may continue to send, and closes the connection.
    Ended,
    /// The deadline has passed. No deadline is set now.
    Overdue,
    /// The connection could not be established, or has failed. The id has ended.
    Failed(UpstreamFault),
}

/// The reason for the failure of an outgoing connection.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UpstreamFault {
    /// The limit on outgoing connections is reached.
    Limit,
    /// The server is draining.
    Draining,
    /// A failure of the peer, the network or the system.
    Failed(OpError),
    /// A failure of TLS.
    Session(SessionError),
    /// The connection ended without a close_notify: bytes may be missing, or the handshake was incomplete.
    Truncated,
}

impl std::fmt::Display for UpstreamFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Limit => f.write_str("too many outgoing connections are open"),
            Self::Draining => f.write_str("the server is stopping"),
            Self::Failed(fault) => fault.fmt(f),
            Self::Session(error) => error.fmt(f),
            Self::Truncated => f.write_str("the connection ended without the close_notify of TLS"),
        }
    }
}

impl std::error::Error for UpstreamFault {}

/// The end of an outgoing connection, as metrics count it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UpstreamEnd {
    Closed,
    Refused,
    Unreachable,
    Reset,
    Limit,
    Drain,
    /// The connection's handler panicked.
    Panic,
    /// A reload replaced the connection's handler, which had no open exchange.
    Retired,
    System,
    /// The peer's certificate is not trusted.
    Distrust,
    /// The peer does not speak TLS, violates its rules, or shares no parameters with this side.
    Protocol,
    /// The peer sent an alert.
    Alert,
    Truncated,
}

impl UpstreamEnd {
    pub(crate) const ALL: [Self; 13] = [
        Self::Closed,
        Self::Refused,
        Self::Unreachable,
        Self::Reset,
        Self::Limit,
        Self::Drain,
        Self::Panic,
        Self::Retired,
        Self::System,
        Self::Distrust,
        Self::Protocol,
        Self::Alert,
        Self::Truncated,
    ];

    /// The name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Reset => "reset",
            Self::Limit => "limit",
            Self::Drain => "drain",
            Self::Panic => "panic",
            Self::Retired => "retired",
            Self::System => "system",
            Self::Distrust => "tls_distrust",
            Self::Protocol => "tls_protocol",
            Self::Alert => "tls_alert",
            Self::Truncated => "tls_truncated",
        }
    }

    pub(crate) const fn of(fault: &UpstreamFault) -> Self {
        match fault {
            UpstreamFault::Limit => Self::Limit,
            UpstreamFault::Draining => Self::Drain,
            UpstreamFault::Failed(OpError::Refused) => Self::Refused,
            UpstreamFault::Failed(OpError::Unreachable) => Self::Unreachable,
            UpstreamFault::Failed(OpError::Reset) => Self::Reset,
            UpstreamFault::Failed(_) => Self::System,
            UpstreamFault::Truncated => Self::Truncated,
            UpstreamFault::Session(
                SessionError::Client(Distrust::Refused(_)) | SessionError::Server(TlsFault::Refused),
            ) => Self::Alert,
            UpstreamFault::Session(
                SessionError::Client(Distrust::NotTls | Distrust::Protocol(_))
                | SessionError::Server(
                    TlsFault::PlainHttp
                    | TlsFault::Incompatible
                    | TlsFault::NoCertificate
                    | TlsFault::Protocol,
                ),
            ) => Self::Protocol,
            UpstreamFault::Session(_) => Self::Distrust,
        }
    }

    /// Whether this side found a fault of TLS, which an alert reports to the peer.
    pub(crate) const fn sends_alert(self) -> bool {
        matches!(self, Self::Distrust | Self::Protocol)
    }

    /// Whether the connection can still carry the last TLS records.
    pub(crate) const fn sends_records(self) -> bool {
        self.sends_alert() || matches!(self, Self::Closed | Self::Drain | Self::Retired)
    }
}

/// The ids of a worker. An id is current from its dial until its feature closes it or the engine ends it.
#[derive(Default)]
pub(crate) struct UpstreamIds {
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl UpstreamIds {
    /// Returns a new id.
    pub(crate) fn take(&mut self) -> UpstreamId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.generations.push(0);
            self.generations.len() as u32 - 1
        });
        UpstreamId { slot, generation: self.generations[slot as usize] }
    }

    pub(crate) fn is_current(&self, id: UpstreamId) -> bool {
        self.generations.get(id.slot as usize) == Some(&id.generation)
    }

    /// Ends an id. Returns false if it had ended before. The index is not reused before [`UpstreamIds::release`].
    pub(crate) fn end(&mut self, id: UpstreamId) -> bool {
        let current = self.is_current(id);
        if current {
            self.generations[id.slot as usize] = id.generation.wrapping_add(1);
        }
        current
    }

    /// Ends an id unless it has ended, and frees its index.
    pub(crate) fn release(&mut self, id: UpstreamId) {
        self.end(id);
        self.free.push(id.slot);
    }
}

/// The state of an outgoing connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UpstreamState {
    /// No connection.
    Vacant,
    /// Dialed, without a socket so far. A failed dial keeps this state until its failure is reported.
    Undialed,
    Connecting,
    /// Connected; the TLS handshake is in progress.
    Handshaking,
    Open,
    /// A send has failed. The connection only receives the remaining bytes of the peer.
    Deaf,
}

impl UpstreamState {
    /// Whether plaintext of the peer is reported.
    pub(crate) const fn receives(self) -> bool {
        matches!(self, Self::Open | Self::Deaf)
    }
}

/// An outgoing connection, in addition to its slot.
pub(crate) struct Upstream {
    pub(crate) token: Token,
    pub(crate) generation: u32,
    /// The number of the owner: a handler, a guard or a resident.
    pub(crate) owner: u16,
    pub(crate) state: UpstreamState,
    /// Whether to shut down this side once all waiting bytes are sent.
    pub(crate) ending: bool,
    /// Bytes of the send in flight.
    pub(crate) in_flight: u64,
    /// Segments to send after the send in flight.
    pub(crate) waiting: Vec<Segment>,
    /// The session of a TLS connection.
    pub(crate) session: Option<Box<UpstreamSession>>,
}

impl Upstream {
    pub(crate) const VACANT: Self = Self {
        token: Token::NONE,
        generation: 0,
        owner: 0,
        state: UpstreamState::Vacant,
        ending: false,
        in_flight: 0,
        waiting: Vec::new(),
        session: None,
    };
}

/// An outgoing connection to be opened.
pub(crate) struct UpstreamDial {
    pub(crate) id: UpstreamId,
    /// The number of the handler, or of the resident, in the handlers' number range.
    pub(crate) owner: u16,
    pub(crate) address: Address,
    pub(crate) session: Option<Box<dyn Session>>,
}

/// The outgoing connections of a worker.
#[derive(Default)]
pub(crate) struct Upstreams {
    pub(crate) table: Vec<Upstream>,
    /// Number of sockets, including closing ones.
    pub(crate) open: usize,
    /// Indices of connections with new segments to send.
    pub(crate) touched: Vec<u32>,
}

impl Upstreams {
    /// Number of sockets, including closing ones.
    pub(crate) const fn open(&self) -> usize {
        self.open
    }

    /// Returns the connection of an id, unless the id has ended.
    pub(crate) fn get_mut(&mut self, id: UpstreamId) -> Option<&mut Upstream> {
        let upstream = self.table.get_mut(id.slot as usize)?;
        (upstream.state != UpstreamState::Vacant && upstream.generation == id.generation).then_some(upstream)
    }

    pub(crate) fn id(&self, place: u32) -> UpstreamId {
        UpstreamId { slot: place, generation: self.table[place as usize].generation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_ends_once_and_its_place_comes_back_with_another_generation() {
        let mut ids = UpstreamIds::default();
        let (first, second) = (ids.take(), ids.take());
        assert!(ids.is_current(first) && ids.is_current(second));
        assert!(ids.end(first));
        assert!(!ids.end(first), "it has ended");
        assert_ne!(ids.take().slot, first.slot, "the socket is not closed yet");
        ids.release(first);
        let again = ids.take();
        assert_eq!(again.slot, first.slot);
        assert!(ids.is_current(again) && !ids.is_current(first));
    }

    #[test]
    fn an_outgoing_connection_at_rest_is_small() {
        assert!(size_of::<Upstream>() <= 56, "{} bytes", size_of::<Upstream>());
        assert_eq!(Upstream::VACANT.waiting.capacity(), 0);
    }
}
