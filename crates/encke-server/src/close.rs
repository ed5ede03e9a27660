//! Close reasons: every end of a connection has exactly one, which is counted and names its origin.

/// Declares [`CloseReason`] and its properties in one table.
macro_rules! close_reasons {
    ($($variant:ident $origin:ident $name:literal $sentence:literal,)+) => {
        /// The reason for the end of a connection.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum CloseReason {
            $(#[doc = $sentence] $variant,)+
        }

        impl CloseReason {
            /// Every reason, in the order of discriminants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the name in metrics and logs, which is stable between versions.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Returns the reason in words, one sentence.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)+ }
            }

            /// Returns the origin of the end.
            pub const fn origin(self) -> CloseOrigin {
                match self { $(Self::$variant => CloseOrigin::$origin,)+ }
            }
        }
    };
}

/// The origin of a connection's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseOrigin {
    /// A regular end.
    Nobody,
    /// The client, or the network in between.
    Peer,
    /// This server: a limit, a drain, a failure of a handler.
    Us,
    /// The operating system.
    System,
}

close_reasons! {
    PeerDone Nobody "peer_done" "The client closed between requests.",
    Answered Nobody "answered" "The response was the last one, at the request of either side.",
    IdleTime Nobody "idle_time" "No request came within the idle time.",
    PeerReset Peer "peer_reset" "The client reset the connection.",
    PeerAborted Peer "peer_aborted" "The client closed in the middle of a request.",
    Refused Peer "refused" "The request was malformed or beyond a limit.",
    HeadTime Peer "head_time" "The request's head did not arrive in time.",
    BodyRate Peer "body_rate" "The request's body arrived too slowly.",
    WriteRate Peer "write_rate" "The client received the response too slowly.",
    LingerTime Peer "linger_time" "The client kept sending after the final response.",
    HandshakeTime Peer "handshake_time" "The TLS handshake did not finish in time.",
    Handshake Peer "handshake" "The TLS handshake failed.",
    Tls Peer "tls" "An established TLS connection received an alert or data that is not TLS.",
    Flood Peer "flood" "The client sent too many HTTP/2 frames that cost work without a request: resets, pings, settings.",
    ProxyHeader Peer "proxy_header" "The PROXY header was missing or malformed.",
    AddressLimit Us "address_limit" "The client address had reached its limit of connections.",
    HandshakeLimit Us "handshake_limit" "The limit of open TLS handshakes was reached.",
    Shed Us "shed" "The connection was idle while descriptors were short.",
    Drain Us "drain" "The server was draining.",
    Rejected Us "rejected" "A new subscriber was rejected with a retry time.",
    Overrun Us "overrun" "The subscriber was too slow: its next messages were no longer kept.",
    TokenExpired Us "token_expired" "The right to subscribe ended.",
    LoggedOut Us "logged_out" "An administrator ended the connections of the user.",
    Operator Us "operator" "An operator closed the connection.",
    Blocked Us "blocked" "An operator has blocked the client address.",
    HandlerPanic Us "handler_panic" "A handler panicked.",
    StreamFailed Us "stream_failed" "A body could not be continued.",
    BodyLength Us "body_length" "A response was longer or shorter than the length in its head.",
    Upstream Us "upstream" "The upstream connection failed.",
    FileShrunk Us "file_shrunk" "A file became shorter while it was sent.",
    System System "system" "The operating system failed an operation.",
}
