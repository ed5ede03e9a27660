//! The interface of TLS on one connection, server or client, for the owner of the socket.
//!
//! ```text
//!   connected ─► Sessions::begin ─► output: a hello
//!                     open ◄── received bytes; output: records of TLS itself
//!                      … is_established: the connection is open
//!                     seal ◄── plaintext to send; open ─► received plaintext
//!                     finish ─► close_notify
//! ```

use std::fmt;

use encke_settings::UpstreamTls;

use super::{ClientSession, Distrust, TlsError, TlsFault, Trust};

/// One side of TLS on one connection: bytes in, bytes out.
pub trait Session {
    /// Decrypts received records in place, and appends their plaintext to `plain`. Output may follow, also after an error: an
    /// alert.
    ///
    /// # Errors
    /// The session has failed.
    fn open(&mut self, arrived: &mut [u8], plain: &mut Vec<u8>) -> Result<(), SessionError>;

    /// Appends records of TLS itself, then `plain` as records.
    ///
    /// # Errors
    /// The handshake has not ended, or the session has failed.
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SessionError>;

    /// Moves records of TLS itself (handshake, tickets, alerts) to the end of `out`.
    fn output(&mut self, out: &mut Vec<u8>);

    /// Appends pending records of TLS itself, then close_notify (RFC 8446 §6.1).
    fn finish(&mut self, out: &mut Vec<u8>);

    /// Whether the handshake has ended and plaintext may be sealed.
    fn is_established(&self) -> bool;

    /// Whether the peer has sent close_notify. A connection that ends without it may have been truncated by a third party.
    fn is_ended(&self) -> bool;

    /// Whether both sides agreed on HTTP/2 (ALPN, RFC 7301).
    fn speaks_http2(&self) -> bool;

    /// Whether the handshake resumed an earlier session.
    fn is_resumed(&self) -> bool;
}

/// A factory of sessions with one server. Its sessions may resume each other.
pub trait Sessions: fmt::Debug + Send + Sync {
    /// Starts the session of a new connection.
    ///
    /// # Errors
    /// No certificate can match the server's name, or TLS cannot be initialised.
    fn begin(&self) -> Result<Box<dyn Session>, SessionError>;
}

/// An error of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionError {
    /// An error on the client's side.
    Client(Distrust),
    /// An error on the server's side.
    Server(TlsFault),
}

impl From<Distrust> for SessionError {
    fn from(distrust: Distrust) -> Self {
        Self::Client(distrust)
    }
}

impl From<TlsFault> for SessionError {
    fn from(fault: TlsFault) -> Self {
        Self::Server(fault)
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(distrust) => distrust.fmt(f),
            Self::Server(fault) => write!(f, "TLS with the client has failed: {}", fault.name()),
        }
    }
}

impl std::error::Error for SessionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Client(distrust) => Some(distrust),
            Self::Server(_) => None,
        }
    }
}

/// A factory of client sessions with the server of one name.
pub struct ClientSessions {
    trust: Trust,
    name: String,
}

impl ClientSessions {
    /// Creates a factory for the server of a name or address (IPv6 without brackets), whose certificate `trust` verifies.
    pub const fn new(trust: Trust, name: String) -> Self {
        Self { trust, name }
    }
}

impl Sessions for ClientSessions {
    fn begin(&self) -> Result<Box<dyn Session>, SessionError> {
        Ok(Box::new(self.trust.session(&self.name)?))
    }
}

impl Trust {
    /// Trusts the servers that settings name.
    ///
    /// # Errors
    /// The authorities cannot be read.
    pub fn of(settings: &UpstreamTls) -> Result<Self, TlsError> {
        match &settings.ca {
            _ if settings.insecure => Self::of_anybody(),
            Some(file) => Self::of_file(file),
            None => Self::of_system(),
        }
    }
}

impl fmt::Debug for ClientSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSessions").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Session for ClientSession {
    fn open(&mut self, arrived: &mut [u8], plain: &mut Vec<u8>) -> Result<(), SessionError> {
        Ok(Self::open(self, arrived, plain)?)
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SessionError> {
        Ok(Self::seal(self, plain, out)?)
    }

    fn output(&mut self, out: &mut Vec<u8>) {
        Self::output(self, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        Self::finish(self, out);
    }

    fn is_established(&self) -> bool {
        Self::is_established(self)
    }

    fn is_ended(&self) -> bool {
        Self::is_ended(self)
    }

    fn speaks_http2(&self) -> bool {
        Self::speaks_http2(self)
    }

    fn is_resumed(&self) -> bool {
        Self::is_resumed(self)
    }
}
