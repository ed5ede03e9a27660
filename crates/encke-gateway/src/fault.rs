//! The reasons for which a request gets no response of an application.

use encke_io::OpError;
use encke_server::UpstreamFault;

use encke_wire::http1::ResponseFault;

/// Why a request got no response of an application, or only a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GatewayFault {
    /// The target's name has no address.
    Unresolved,
    /// No process of the supervised application could respond.
    NotReady,
    /// Nothing listens at the target, or the network does not reach it.
    Unreachable,
    /// The connection was not established in time.
    ConnectTime,
    /// TLS to the application has failed.
    Tls,
    /// No response began in time.
    ResponseTime,
    /// The response stalled.
    IdleTime,
    /// The application closed the connection before its response.
    Ended,
    /// The application closed or reset the connection within its response.
    Truncated,
    /// The response breaks a rule of HTTP/1.
    Malformed,
    /// Bytes followed the response.
    Unasked,
    /// The application changed to a protocol that the client did not ask for.
    Upgrade,
    /// The limit on outgoing connections, or of the system, is reached.
    Limit,
    /// The server is stopping.
    Draining,
    /// The compression of the response has failed.
    Coding,
    /// The request cannot be written for the application.
    Request,
    /// The request has waited for a connection for `queue_time`.
    QueueTime,
    /// The queue of requests that wait for a connection is full.
    QueueFull,
    /// The client ended its side while its request waited for a connection.
    QueueLeft,
    /// All targets are drained.
    NoTarget,
}

impl GatewayFault {
    pub(crate) const ALL: [Self; 20] = [
        Self::Unresolved,
        Self::NotReady,
        Self::Unreachable,
        Self::ConnectTime,
        Self::Tls,
        Self::ResponseTime,
        Self::IdleTime,
        Self::Ended,
        Self::Truncated,
        Self::Malformed,
        Self::Unasked,
        Self::Upgrade,
        Self::Limit,
        Self::Draining,
        Self::Coding,
        Self::Request,
        Self::QueueTime,
        Self::QueueFull,
        Self::QueueLeft,
        Self::NoTarget,
    ];

    /// The name in metrics and logs.
    pub(crate) const fn name(self) -> &'static str {
        self.reason()
    }

    /// The name as the reason of a response.
    pub(crate) const fn reason(self) -> &'static &'static str {
        match self {
            Self::Unresolved => &"unresolved",
            Self::NotReady => &"not_ready",
            Self::Unreachable => &"unreachable",
            Self::ConnectTime => &"connect_time",
            Self::Tls => &"tls",
            Self::ResponseTime => &"response_time",
            Self::IdleTime => &"idle_time",
            Self::Ended => &"ended",
            Self::Truncated => &"truncated",
            Self::Malformed => &"malformed",
            Self::Unasked => &"unasked",
            Self::Upgrade => &"upgrade",
            Self::Limit => &"limit",
            Self::Draining => &"draining",
            Self::Coding => &"coding",
            Self::Request => &"request",
            Self::QueueTime => &"queue_time",
            Self::QueueFull => &"queue_full",
            Self::QueueLeft => &"queue_left",
            Self::NoTarget => &"no_target",
        }
    }

    /// The fault in words, for an operator.
    pub(crate) const fn sentence(self) -> &'static str {
        match self {
            Self::Unresolved => "its name has no address",
            Self::NotReady => "no process of the application responds",
            Self::Unreachable => "connection refused, or no route to it",
            Self::ConnectTime => "no connection within the time limit",
            Self::Tls => "TLS to it failed",
            Self::ResponseTime => "no response within the time limit",
            Self::IdleTime => "its response stalled",
            Self::Ended => "it closed the connection before its response",
            Self::Truncated => "it closed the connection within its response",
            Self::Malformed => "its response breaks a rule of the protocol",
            Self::Unasked => "it sent bytes after its response",
            Self::Upgrade => "it changed to a protocol that the client did not request",
            Self::Limit => "the limit on outgoing connections is reached",
            Self::Draining => "the server is stopping",
            Self::Coding => "the compression of the response failed",
            Self::Request => "the request cannot be written for it",
            Self::QueueTime => "the request waited too long for a connection",
            Self::QueueFull => "too many requests wait for a connection",
            Self::QueueLeft => "the client left while its request waited",
            Self::NoTarget => "all targets are drained",
        }
    }

    /// The status of the response to the client (RFC 9110 §15.6).
    pub(crate) const fn status(self) -> u16 {
        match self {
            Self::ConnectTime | Self::ResponseTime | Self::IdleTime => 504,
            Self::NotReady | Self::Limit | Self::Draining | Self::NoTarget => 503,
            _ if self.is_queues() => 503,
            _ => 502,
        }
    }

    /// Whether this counts towards the ejection of the target: it gives no response. A response that has begun does not count,
    /// whatever follows: it depends on the request, such as an event stream that is silent, and other requests succeed.
    pub(crate) const fn ejects(self) -> bool {
        matches!(
            self,
            Self::Unresolved
                | Self::Unreachable
                | Self::ConnectTime
                | Self::Tls
                | Self::ResponseTime
                | Self::Ended
        )
    }

    /// Whether the target is at fault, so that another one may do better.
    pub(crate) const fn is_targets(self) -> bool {
        let is_own = matches!(
            self,
            Self::NotReady | Self::Limit | Self::Draining | Self::Coding | Self::Request | Self::NoTarget
        );
        !is_own && !self.is_queues()
    }

    /// Whether the request has not found a connection within the limits of the queue.
    pub(crate) const fn is_queues(self) -> bool {
        matches!(self, Self::QueueTime | Self::QueueFull | Self::QueueLeft)
    }

    pub(crate) fn of_connection(fault: &UpstreamFault, was_connected: bool) -> Self {
        match fault {
            UpstreamFault::Limit | UpstreamFault::Failed(OpError::Descriptors | OpError::Memory) => {
                Self::Limit
            }
            UpstreamFault::Draining => Self::Draining,
            UpstreamFault::Session(_) => Self::Tls,
            UpstreamFault::Failed(OpError::Refused | OpError::Unreachable) => Self::Unreachable,
            _ if was_connected => Self::Ended,
            _ => Self::Unreachable,
        }
    }
}

impl From<ResponseFault> for GatewayFault {
    fn from(fault: ResponseFault) -> Self {
        match fault {
            ResponseFault::Malformed(_) => Self::Malformed,
            ResponseFault::Unasked => Self::Unasked,
            ResponseFault::Truncated => Self::Truncated,
            ResponseFault::Ended => Self::Ended,
        }
    }
}
