//! TLS on one connection, whichever side of it, for those who have the socket.
//!
//! ```text
//!   connected ─► Sessions::begin ─► output: a hello
//!                     open ◄── what has arrived; output: what TLS has to say to that
//!                      … is_established: the connection is open
//!                     seal ◄── plaintext to send; open ─► plaintext that has arrived
//!                     finish ─► farewell
//! ```

use std::fmt;

use super::{ClientSession, Distrust, TlsFault, Trust};

/// One side of TLS on one connection: bytes in, bytes out.
pub trait Session {
    /// Opens what has arrived, in place: plaintext is appended to `plain`. There may be output afterwards, also after an
    /// error: an alert.
    ///
    /// # Errors
    /// The session cannot go on.
    fn open(&mut self, arrived: &mut [u8], plain: &mut Vec<u8>) -> Result<(), SessionError>;

    /// Appends plaintext as records, behind what TLS itself has to say.
    ///
    /// # Errors
    /// There was no handshake, or the session is broken.
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SessionError>;

    /// Moves what TLS itself has to say to the end of `out`.
    fn output(&mut self, out: &mut Vec<u8>);

    /// Appends, behind everything else, that nothing more comes.
    fn finish(&mut self, out: &mut Vec<u8>);

    /// Whether the handshake is over, and plaintext may be sealed.
    fn is_established(&self) -> bool;

    /// Whether the peer has said that nothing more comes. A connection that ends without it may have been cut by a third party.
    fn is_ended(&self) -> bool;

    /// Whether both sides have agreed on HTTP/2 (ALPN, RFC 7301).
    fn speaks_http2(&self) -> bool;

    /// Whether the session goes on with the secrets of an earlier one.
    fn is_resumed(&self) -> bool;
}

/// Begins sessions with one server; those it begins may resume each other.
pub trait Sessions: fmt::Debug + Send + Sync {
    /// A session for a connection that was just made.
    ///
    /// # Errors
    /// There can be none.
    fn begin(&self) -> Result<Box<dyn Session>, SessionError>;
}

/// The reason for which a session cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionError {
    /// … of a client.
    Client(Distrust),
    /// … of a server.
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

impl std::error::Error for SessionError {}

/// Sessions with the server of one name.
pub struct ClientSessions {
    trust: Trust,
    name: String,
}

impl ClientSessions {
    /// Sessions with the server of that name or address (IPv6 without brackets), if `trust` believes it.
    pub const fn new(trust: Trust, name: String) -> Self {
        Self { trust, name }
    }
}

impl Sessions for ClientSessions {
    fn begin(&self) -> Result<Box<dyn Session>, SessionError> {
        Ok(Box::new(self.trust.session(&self.name)?))
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
