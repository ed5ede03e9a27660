//! Outgoing connections as values: their names, events, ends and table. The worker's part is in `upstream.rs`.

use encke_io::{Fault, Segment, Token};
use encke_session::tls::{Distrust, SessionError, TlsFault};

use crate::upstream_session::UpstreamSession;

/// Names an outgoing connection of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UpstreamId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// What has happened on an outgoing connection.
#[derive(PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UpstreamEvent<'a> {
    /// It is established, by TLS with its handshake. Bytes that were sent before leave now.
    Connected,
    /// Bytes have arrived. They are lent for the call.
    Received(&'a mut [u8]),
    /// So many bytes of those given to [`HandlerContext::send`](crate::HandlerContext::send) have been handed to the kernel.
    /// By TLS these are bytes of plaintext.
    Sent(u64),
    /// The peer sends no more. This side may go on sending, and closes the connection.
    Ended,
    /// The deadline has passed, and there is none now.
    Overdue,
    /// It could not be established, or has broken. The id has ended.
    Failed(UpstreamFault),
}

/// Why an outgoing connection has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UpstreamFault {
    /// As many outgoing connections are open as may be.
    Limit,
    /// The server stops.
    Draining,
    /// The peer or the system.
    Failed(Fault),
    /// TLS cannot go on: the reason.
    Session(SessionError),
    /// The connection has ended without a close_notify: bytes may be missing, or the handshake was not over.
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

/// Why an outgoing connection was closed, as metrics count it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UpstreamEnd {
    Closed,
    Refused,
    Unreachable,
    Reset,
    Limit,
    Drain,
    /// Its handler has panicked.
    Panic,
    /// Its handler was replaced at a reload, and had no open exchange.
    Retired,
    System,
    /// The peer's certificate is not trusted.
    Distrust,
    /// The peer does not speak TLS, breaks its rules, or has nothing in common with this side.
    Protocol,
    /// The peer has sent an alert.
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

    /// Its name in metrics.
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
            UpstreamFault::Failed(Fault::Refused) => Self::Refused,
            UpstreamFault::Failed(Fault::Unreachable) => Self::Unreachable,
            UpstreamFault::Failed(Fault::Reset) => Self::Reset,
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

    /// Whether this side has found a fault of TLS. The peer learns it by an alert.
    pub(crate) const fn sends_alert(self) -> bool {
        matches!(self, Self::Distrust | Self::Protocol)
    }

    /// Whether the connection can still carry the last records of TLS.
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
    /// A new id.
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

    /// Ends an id; false if it has ended before. Its place is not used until [`UpstreamIds::release`].
    pub(crate) fn end(&mut self, id: UpstreamId) -> bool {
        let current = self.is_current(id);
        if current {
            self.generations[id.slot as usize] = id.generation.wrapping_add(1);
        }
        current
    }

    /// Ends an id if it has not ended, and gives its place free.
    pub(crate) fn release(&mut self, id: UpstreamId) {
        self.end(id);
        self.free.push(id.slot);
    }
}

/// How far an outgoing connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// No connection.
    Vacant,
    /// It has no socket: its failure is about to be reported.
    Undialed,
    Connecting,
    /// It is connected, and the handshake of TLS goes on.
    Handshaking,
    Open,
}

/// An outgoing connection, beside its slot.
pub(crate) struct Upstream {
    pub(crate) token: Token,
    pub(crate) generation: u32,
    /// The number of its handler, or of its resident among handlers.
    pub(crate) owner: u16,
    pub(crate) state: State,
    /// This side ends once everything that waits was sent.
    pub(crate) ending: bool,
    /// Bytes of the send in flight.
    pub(crate) in_flight: u64,
    /// What follows the send in flight.
    pub(crate) waiting: Vec<Segment>,
    /// By TLS.
    pub(crate) session: Option<Box<UpstreamSession>>,
}

impl Upstream {
    pub(crate) const VACANT: Self = Self {
        token: Token::NONE,
        generation: 0,
        owner: 0,
        state: State::Vacant,
        ending: false,
        in_flight: 0,
        waiting: Vec::new(),
        session: None,
    };
}

/// The outgoing connections of a worker.
#[derive(Default)]
pub(crate) struct Upstreams {
    pub(crate) table: Vec<Upstream>,
    /// Sockets, those that are closing included.
    pub(crate) open: usize,
    /// Places with something new to send.
    pub(crate) touched: Vec<u32>,
}

impl Upstreams {
    /// Sockets, those that are closing included.
    pub(crate) const fn open(&self) -> usize {
        self.open
    }

    /// The connection of an id, if it is still that of the id.
    pub(crate) fn get_mut(&mut self, id: UpstreamId) -> Option<&mut Upstream> {
        let upstream = self.table.get_mut(id.slot as usize)?;
        (upstream.state != State::Vacant && upstream.generation == id.generation).then_some(upstream)
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
