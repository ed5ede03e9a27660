//! Reasons for rejecting a subscriber, and the transports that the metrics distinguish.

use encke_server::CloseReason;

use crate::form::MessageForm;

/// Close code: the service restarts (IANA registry of WebSocket close codes).
pub(crate) const CLOSE_RESTART: u16 = 1012;
/// Close code: the service asks to try again later (IANA registry of WebSocket close codes).
pub(crate) const CLOSE_TRY_AGAIN: u16 = 1013;

/// The reason for rejecting a subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RejectReason {
    /// The server drains.
    Drain,
    /// Only the connections reserved for other requests are left.
    Connections,
    /// Too many subscribers arrive at once.
    Admission,
    /// The node does not have the channel's history, and the cluster cannot be reached.
    Outage,
    /// The client address opens channels too fast.
    Channels,
}

/// The transport of a subscriber, as a label of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum SubscriberTransport {
    Sse,
    Ndjson,
    Poll,
    WebSocket,
    Media,
}

impl RejectReason {
    /// Every reason, in the order of its discriminant.
    pub(crate) const ALL: [Self; 5] =
        [Self::Drain, Self::Connections, Self::Admission, Self::Outage, Self::Channels];

    /// Returns its name in metrics.
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
            Self::Drain => "the server is stopping",
            Self::Connections => "the server has reached its limit of connections (limits.connections)",
            Self::Admission => "too many new subscribers at once (push.admission)",
            Self::Outage => "the cluster is unreachable, and this node does not have the channel's messages",
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
            Self::Connections | Self::Admission | Self::Outage | Self::Channels => CloseReason::Rejected,
        }
    }
}

impl SubscriberTransport {
    /// Every transport, in the order of its discriminant.
    pub(crate) const ALL: [Self; 5] = [Self::Sse, Self::Ndjson, Self::Poll, Self::WebSocket, Self::Media];

    pub(crate) const fn of(kind: MessageForm) -> Self {
        match kind {
            MessageForm::Sse | MessageForm::SseEnvelope => Self::Sse,
            MessageForm::Ndjson => Self::Ndjson,
            MessageForm::Raw | MessageForm::Json => Self::Poll,
            MessageForm::Envelope | MessageForm::Payload => Self::WebSocket,
            MessageForm::Media => Self::Media,
        }
    }

    /// Returns its name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sse => "sse",
            Self::Ndjson => "ndjson",
            Self::Poll => "poll",
            Self::WebSocket => "websocket",
            Self::Media => "media",
        }
    }
}
