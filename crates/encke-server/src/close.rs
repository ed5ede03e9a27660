//! Close reasons: every end of a connection has exactly one, which is counted and names its origin.

/// Declares [`CloseReason`] and its properties in one table.
macro_rules! close_reasons {
    ($($variant:ident $guilty:ident $name:literal $sentence:literal,)+) => {
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

            /// Returns the origin of the end.
            pub const fn guilty(self) -> Guilty {
                match self { $(Self::$variant => Guilty::$guilty,)+ }
            }
        }
    };
}

/// The origin of a connection's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guilty {
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
    Answered Nobody "answered" "The answer was the last one, by the wish of either side.",
    IdleTime Nobody "idle_time" "No request came within the idle time.",
    PeerReset Peer "peer_reset" "The client reset the connection.",
    PeerAborted Peer "peer_aborted" "The client closed in the middle of a request.",
    Refused Peer "refused" "The request was malformed or beyond a limit.",
    HeadTime Peer "head_time" "The request's head did not arrive in time.",
    BodyRate Peer "body_rate" "The request's body arrived too slowly.",
    WriteRate Peer "write_rate" "The client took the answer too slowly.",
    LingerTime Peer "linger_time" "The client went on sending after the final answer.",
    HandshakeTime Peer "handshake_time" "The TLS handshake was not over in time.",
    Handshake Peer "handshake" "The TLS handshake failed.",
    Tls Peer "tls" "What arrived on an established TLS connection was no TLS, or an alert.",
    Flood Peer "flood" "The client had too much done for nothing: resets, pings, settings and the like of HTTP/2.",
    ProxyHeader Peer "proxy_header" "The PROXY header was missing or malformed.",
    AddressLimit Us "address_limit" "Its address has as many connections as it may have.",
    HandshakeLimit Us "handshake_limit" "As many TLS handshakes were open as may be.",
    Shed Us "shed" "It was idle while descriptors were short.",
    Drain Us "drain" "The server stops.",
    TurnedAway Us "turned_away" "It wanted to listen when it could not: it was told when to come back.",
    Overrun Us "overrun" "It was too slow: what it had not taken yet was no longer kept.",
    TokenExpired Us "token_expired" "Its right to listen has ended.",
    HandlerPanic Us "handler_panic" "A handler failed while it was answering.",
    StreamFailed Us "stream_failed" "A body could not be continued.",
    BodyLength Us "body_length" "A response was longer or shorter than the length in its head.",
    Upstream Us "upstream" "The server that it was connected to has failed.",
    FileShrunk Us "file_shrunk" "A file became shorter while it was sent.",
    System System "system" "The operating system failed an operation.",
}
