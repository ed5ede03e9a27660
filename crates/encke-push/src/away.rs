//! Why subscribers are turned away, and how they would have listened.

use encke_server::CloseReason;

use crate::form::Kind;

/// The service restarts.
pub(crate) const CLOSE_RESTART: u16 = 1012;
/// The service asks to try again later (IANA's registry of close codes).
pub(crate) const CLOSE_TRY_AGAIN: u16 = 1013;

/// Why somebody is turned away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Away {
    /// The server stops.
    Drain,
    /// Only the last connections are left, which all others need.
    Connections,
    /// Too many come at once.
    Admission,
    /// What it asks for is not known here, and the cluster cannot be asked.
    Outage,
    /// The client address opens channels too fast.
    Channels,
}

/// By what means somebody listens, for what is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Transport {
    Sse,
    Ndjson,
    Poll,
    WebSocket,
}

impl Away {
    /// Every reason, in the order of their numbers.
    pub(crate) const ALL: [Self; 5] =
        [Self::Drain, Self::Connections, Self::Admission, Self::Outage, Self::Channels];

    /// Its name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Connections => "connections",
            Self::Admission => "admission",
            Self::Outage => "outage",
            Self::Channels => "channels",
        }
    }

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Drain => "the server stops",
            Self::Connections => "there is no connection left to listen on (limits.connections)",
            Self::Admission => "too many begin to listen at once (push.admission)",
            Self::Outage => {
                "the cluster cannot be reached, and this node does not know the channel's messages"
            }
            Self::Channels => "too many new channels from one address (push.channel_rate)",
        }
    }

    pub(crate) const fn status(self) -> u16 {
        match self {
            Self::Drain | Self::Connections | Self::Admission | Self::Outage => 503,
            Self::Channels => 429,
        }
    }

    pub(crate) const fn close_code(self) -> u16 {
        match self {
            Self::Drain => CLOSE_RESTART,
            Self::Connections | Self::Admission | Self::Outage | Self::Channels => CLOSE_TRY_AGAIN,
        }
    }

    pub(crate) const fn close_reason(self) -> CloseReason {
        match self {
            Self::Drain => CloseReason::Drain,
            Self::Connections | Self::Admission | Self::Outage | Self::Channels => CloseReason::TurnedAway,
        }
    }
}

impl Transport {
    /// Every one, in the order of their numbers.
    pub(crate) const ALL: [Self; 4] = [Self::Sse, Self::Ndjson, Self::Poll, Self::WebSocket];

    pub(crate) const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Sse | Kind::SseEnvelope => Self::Sse,
            Kind::Ndjson => Self::Ndjson,
            Kind::Raw | Kind::Json => Self::Poll,
            Kind::Envelope | Kind::Payload => Self::WebSocket,
        }
    }

    /// Its name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sse => "sse",
            Self::Ndjson => "ndjson",
            Self::Poll => "poll",
            Self::WebSocket => "websocket",
        }
    }
}
