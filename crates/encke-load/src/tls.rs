//! `https` as this crate sees it: a session stands between the bytes of a connection and what is read of them.
//!
//! ```text
//!   connected ─► Sessions::begin ─► output: a hello
//!                     open ◄── what has arrived; output: what TLS has to say to that
//!                      … is_established: the connection is open
//!                     seal ◄── requests; open ─► answers
//!                     finish ─► farewell
//! ```
//! Who speaks TLS is for the program to say: rustls enters the workspace at the crate that serves, and nothing here
//! knows of certificates.

use std::fmt::Debug;

/// Begins sessions with one server; those it begins may resume each other.
pub trait Sessions: Debug + Send + Sync {
    /// A session for a connection that was just made.
    ///
    /// # Errors
    /// There can be none; said in words.
    fn begin(&self) -> Result<Box<dyn Session>, String>;
}

/// A client's side of TLS on one connection: bytes in, bytes out.
pub trait Session {
    /// Opens what has arrived, in place: plaintext is appended to `plain`. There may be output afterwards, also after an
    /// error.
    ///
    /// # Errors
    /// It cannot go on; said in words.
    fn open(&mut self, arrived: &mut [u8], plain: &mut Vec<u8>) -> Result<(), String>;

    /// Appends plaintext as records, behind what TLS itself has to say.
    ///
    /// # Errors
    /// There was no handshake, or the session is broken; said in words.
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), String>;

    /// Moves what TLS itself has to say to the end of `out`.
    fn output(&mut self, out: &mut Vec<u8>);

    /// Appends, behind everything else, that nothing more comes.
    fn finish(&mut self, out: &mut Vec<u8>);

    /// Whether the handshake is over.
    fn is_established(&self) -> bool;

    /// Whether the server has said that nothing more comes.
    fn is_ended(&self) -> bool;

    /// Whether the server has agreed to speak HTTP/2 (ALPN, RFC 7301).
    fn speaks_http2(&self) -> bool;

    /// Whether the server knew us from a session before.
    fn is_resumed(&self) -> bool;
}
