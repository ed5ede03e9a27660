//! TLS on one connection of a server: records in, plaintext out, and the other way round.
//!
//! ```text
//!  lease ─► await_hello, until the ClientHello is complete
//!           open ─┬─ plaintext, in the worker's scratch buffer ─► protocol
//!                 └─ records of TLS itself ────────────────────┐
//!  segments ─► `queue` ─► seal: at most WINDOW_BYTES a send ───┴─► one buffer of records
//! ```
//! An idle connection keeps only its keys: no buffer, no queue. The window bounds the records that wait for a slow client.
//! Files are read as they are sent.

use std::collections::VecDeque;
use std::sync::Arc;

use encke_io::clock::Clock;
use encke_io::{OpError, Segment};
use rustls::server::UnbufferedServerConnection;
use rustls::{CipherSuite, HandshakeKind, ProtocolVersion, ServerConfig};

use super::hello::{HANDSHAKE, Hello};
use super::identity::ends_s;
use super::proofs::PROOF_PROTOCOL;
use super::queue::fill;
use super::records::Records;
use super::{Certified, HandshakeState, Opened, Session, SessionError, TlsFault, TlsKnown, known};

/// Buffers that all connections of a worker share, one at a time.
#[derive(Default)]
pub struct Scratch {
    /// Received plaintext.
    pub plain: Vec<u8>,
    /// Plaintext of one record, gathered from several segments.
    pub gathered: Vec<u8>,
}

/// The server's side of TLS on one connection.
pub struct Tls {
    records: Records<UnbufferedServerConnection>,
    /// Plaintext that is not sealed yet.
    queue: VecDeque<Segment>,
    /// Close_notify follows the queue.
    last: bool,
    /// The server name that the client requested (SNI), until the handshake ends.
    server_name: Option<Box<str>>,
    /// The facts of the handshake, once it has ended.
    known: Option<Arc<TlsKnown>>,
    /// Deadline of the handshake, in ns of the monotonic clock.
    pub handshake_ends_ns: u64,
    /// The state of the handshake, for the limit on open handshakes.
    pub handshake: HandshakeState,
}

impl Tls {
    /// Creates a session for a new connection. Returns `None` if rustls rejects the configuration.
    pub fn new(config: Arc<ServerConfig>, handshake_ends_ns: u64) -> Option<Box<Self>> {
        let session = UnbufferedServerConnection::new(config).ok()?;
        let records = Records::new(session);
        Some(Box::new(Self {
            records,
            queue: VecDeque::new(),
            last: false,
            server_name: None,
            known: None,
            handshake_ends_ns,
            handshake: HandshakeState::Awaited,
        }))
    }

    /// Takes bytes of the ClientHello. Once it is complete, returns the slice to pass to [`Tls::open`]; `None` before.
    ///
    /// # Errors
    /// The bytes are an HTTP request, or a ClientHello beyond its limit.
    pub fn await_hello<'lease>(
        &mut self,
        lease: &'lease mut [u8],
    ) -> Result<Option<&'lease mut [u8]>, TlsFault> {
        let kept = &mut self.records.partial;
        if kept.is_empty() {
            if looks_like_http(lease) {
                return Err(TlsFault::PlainHttp);
            }
            // Most ClientHellos arrive in one piece, which is not copied.
            if Hello::of(lease) == Hello::Whole {
                return Ok(Some(lease));
            }
        }
        kept.extend_from_slice(lease);
        match Hello::of(kept) {
            Hello::Partial => Ok(None),
            Hello::Whole => Ok(Some(&mut [])),
            Hello::TooLarge => {
                self.records.give_up();
                self.handshake = HandshakeState::Over;
                Err(TlsFault::Protocol)
            }
        }
    }

    /// Opens received records in place, and appends their plaintext to `plain`.
    ///
    /// # Errors
    /// The session has failed. [`Tls::seal`] may then return an alert for the client.
    pub fn open(&mut self, lease: &mut [u8], plain: &mut Vec<u8>) -> Result<Opened, TlsFault> {
        if self.is_established() {
            return self.records.open(lease, plain).map_err(|error| TlsFault::of(&error));
        }
        let received = plain.len();
        let opened = self.records.open(lease, plain);
        self.server_name = known::take_server_name().or_else(|| self.server_name.take());
        let opened = opened.map_err(|error| TlsFault::of(&error))?;
        if opened.established {
            if self.is_resumed() && self.has_expired_client() {
                plain.truncate(received);
                self.records.give_up();
                return Err(TlsFault::ClientCertificate);
            }
            self.known = Some(Arc::new(self.knowledge()));
        }
        Ok(opened)
    }

    /// Whether a certificate of the client's chain has expired. A full handshake verifies this, a resumed session presents no
    /// certificate: its ticket has the chain of the first handshake.
    fn has_expired_client(&self) -> bool {
        let Some(chain) = self.records.session.peer_certificates() else { return false };
        let now_s = Clock::new().now().unix_s();
        !chain.iter().all(|certificate| ends_s(certificate).is_some_and(|ends_s| ends_s >= now_s))
    }

    fn is_resumed(&self) -> bool {
        self.records.session.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    fn knowledge(&mut self) -> TlsKnown {
        let session = &self.records.session;
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let cipher = session.negotiated_cipher_suite().map_or("", |suite| iana_name(suite.suite()));
        let client = certificate.and_then(|certificate| Certified::of(certificate));
        TlsKnown::new(self.description().0, cipher, self.server_name.take(), client)
    }

    /// The facts of the handshake; `None` before its end.
    pub fn known(&self) -> Option<Arc<TlsKnown>> {
        self.known.clone()
    }

    /// Appends segments to the queue of plaintext to send.
    pub fn push(&mut self, segments: &mut Vec<Segment>) {
        self.queue.extend(segments.drain(..).filter(|segment| !segment.is_empty()));
    }

    /// Marks the end of output: close_notify follows the queue.
    pub const fn finish(&mut self) {
        self.last = true;
    }

    /// Bytes of plaintext in the queue.
    pub fn waiting_bytes(&self) -> u64 {
        self.queue.iter().map(Segment::len).sum()
    }

    /// Whether the handshake has ended.
    pub const fn is_established(&self) -> bool {
        self.records.is_established()
    }

    /// Whether there is output to send.
    pub fn has_output(&self) -> bool {
        let more = !self.queue.is_empty() || self.last;
        !self.records.control.is_empty() || self.records.can_seal() && more
    }

    /// Appends the records of one send to `out`.
    ///
    /// # Errors
    /// A file in the queue has become shorter, or cannot be read.
    pub fn seal(&mut self, out: &mut Vec<u8>, scratch: &mut Scratch) -> Result<(), OpError> {
        self.records.output(out);
        if !self.records.can_seal() {
            return Ok(());
        }
        let records = &mut self.records;
        fill(&mut self.queue, &mut scratch.gathered, out, |plain, out| {
            records.seal(plain, out).map_err(|_| OpError::Reset)
        })?;
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
            if self.last {
                self.last = false;
                self.records.put_close_notify(out);
            }
        }
        Ok(())
    }

    /// The TLS version (`1.3` or `1.2`), and whether the session is `new` or `resumed`.
    pub fn description(&self) -> (&'static str, &'static str) {
        let version = match self.records.session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "1.3",
            _ => "1.2",
        };
        let how = match self.records.session.handshake_kind() {
            Some(HandshakeKind::Resumed) => "resumed",
            _ => "new",
        };
        (version, how)
    }

    /// Whether both sides have agreed on HTTP/2 (ALPN, RFC 7301).
    pub fn speaks_http2(&self) -> bool {
        self.records.session.alpn_protocol() == Some(b"h2")
    }

    /// Whether the client connected only to validate a name (ACME, RFC 8737).
    pub fn is_proof(&self) -> bool {
        self.records.session.alpn_protocol() == Some(PROOF_PROTOCOL)
    }

    /// Takes the bytes received before the first record: an incomplete header of the PROXY protocol.
    pub fn take_partial(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.records.partial)
    }

    /// Keeps these bytes until more have arrived.
    pub fn keep_partial(&mut self, bytes: Vec<u8>) {
        self.records.partial = bytes;
    }
}

/// Bypasses the queue of segments: the caller passes plaintext and sends all records.
impl Session for Tls {
    fn open(&mut self, arrived: &mut [u8], plain: &mut Vec<u8>) -> Result<(), SessionError> {
        Ok(Self::open(self, arrived, plain).map(drop)?)
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SessionError> {
        self.records.output(out);
        if !self.records.can_seal() {
            return Err(TlsFault::Protocol.into());
        }
        Ok(self.records.seal(plain, out).map_err(|error| TlsFault::of(&error))?)
    }

    fn output(&mut self, out: &mut Vec<u8>) {
        self.records.output(out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.records.finish(out);
    }

    fn is_established(&self) -> bool {
        Self::is_established(self)
    }

    fn is_ended(&self) -> bool {
        self.records.is_ended()
    }

    fn speaks_http2(&self) -> bool {
        Self::speaks_http2(self)
    }

    fn is_resumed(&self) -> bool {
        Self::is_resumed(self)
    }
}

/// The IANA name of a cipher suite. Rustls names TLS 1.3 suites differently.
fn iana_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or(""),
    }
}

/// Whether bytes begin like an HTTP request: with a capital letter, as every method does, and not like a TLS record.
fn looks_like_http(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| *first != HANDSHAKE && first.is_ascii_uppercase())
}

impl TlsFault {
    fn of(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_) => {
                Self::ClientCertificate
            }
            rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol => Self::Incompatible,
            // Rustls returns this error to a peer only if the resolver finds no certificate. `Records::open` also returns it
            // after a panic of rustls, which therefore counts as this fault.
            rustls::Error::General(_) => Self::NoCertificate,
            rustls::Error::AlertReceived(_) => Self::Refused,
            _ => Self::Protocol,
        }
    }
}
