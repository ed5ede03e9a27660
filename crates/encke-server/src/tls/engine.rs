//! TLS on one connection of a server: records in, plaintext out, and the other way round.
//!
//! ```text
//!  lease ─► await_hello, until the ClientHello is complete
//!           open ─┬─ plaintext, gathered in the worker's scratch ─► protocol
//!                 └─ what TLS itself has to say ──────────────┐
//!  segments ─► `queue` ─► seal: at most WINDOW_BYTES a send ──┴─► one buffer of records
//!                └── a large file, and a kernel that encrypts ───► the segments as they are, from then on
//! ```
//! At rest nothing is kept but keys: no buffer, no queue. What is sealed for a slow client is bounded by the window; a
//! file is read as it is sent.

use std::collections::VecDeque;
use std::sync::Arc;

use encke_io::ktls::{self, SendKeys};
use encke_io::{Fault, Op, Segment};
use rustls::server::UnbufferedServerConnection;
use rustls::{CipherSuite, HandshakeKind, ProtocolVersion, ServerConfig};

use super::acme::PROOF_PROTOCOL;
use super::hello::{HANDSHAKE, Hello};
use super::kernel::{self, KernelSession};
use super::records::{RECORD_BYTES, Records};
use super::{Certified, Handshake, Opened, TlsFault, TlsKnown, known};

/// What is sealed for one send. 64 KiB are four records: enough to keep a socket busy that holds some 200 KiB, and the
/// most that a client who stops reading makes us hold of sealed bytes.
const WINDOW_BYTES: usize = 64 * 1024;

/// From a file of so many bytes on it is worth while to have the kernel encrypt. The change costs two system calls and
/// the kernel's state of a cipher, once a connection; what it saves a byte is a copy.
const KERNEL_FILE_BYTES: u64 = 256 * 1024;

/// What the connections of a worker work with, one at a time.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Plaintext that has arrived.
    pub(crate) plain: Vec<u8>,
    /// Plaintext of one record that comes from several places.
    gathered: Vec<u8>,
}

/// TLS on one connection.
pub(crate) struct Tls {
    layer: Layer,
    handing: Handing,
    /// Something has arrived since the last record was sealed.
    heard: bool,
    /// Plaintext that is not sealed yet.
    queue: VecDeque<Segment>,
    /// Nothing is sent behind what is in the queue.
    last: bool,
    /// The name that was asked for, until the handshake is over.
    server_name: Option<Box<str>>,
    /// What the handshake has brought to light.
    known: Option<Arc<TlsKnown>>,
    /// Until when the handshake must be over, on the monotonic clock in ns.
    pub(crate) handshake_ends_ns: u64,
    pub(crate) handshake: Handshake,
}

/// Who makes records, and who opens them.
#[expect(clippy::large_enum_variant, reason = "by far the most are the large one, in the box of their `Tls`")]
enum Layer {
    /// rustls does both.
    Ours(Records<UnbufferedServerConnection>),
    /// The kernel makes them.
    Kernel(Box<KernelSession>),
    /// Nobody: the keys could not be taken out, which ends the connection.
    Nobody,
}

/// How far sending is on its way to the kernel.
enum Handing {
    /// It stays here.
    Never,
    /// It may go when a large file is to be sent.
    Possible,
    /// The kernel is to get ready, by the next operation.
    Asking,
    /// It has got ready, unless it said no.
    Ready,
    /// It is to get these keys, by the next operation.
    Giving(Box<SendKeys>),
    /// It has them.
    Given,
}

impl Tls {
    /// A connection that begins.
    pub(crate) fn new(config: Arc<ServerConfig>, handshake_ends_ns: u64) -> Option<Box<Self>> {
        let handing = if config.enable_secret_extraction { Handing::Possible } else { Handing::Never };
        let session = UnbufferedServerConnection::new(config).ok()?;
        let records = Records::new(session);
        Some(Box::new(Self {
            layer: Layer::Ours(records),
            handing,
            heard: false,
            queue: VecDeque::new(),
            last: false,
            server_name: None,
            known: None,
            handshake_ends_ns,
            handshake: Handshake::Awaited,
        }))
    }

    /// Takes bytes of the ClientHello. Returns what [`Tls::open`] is to be called with once it is complete, and `None`
    /// before.
    ///
    /// # Errors
    /// The bytes are an HTTP request, or a ClientHello beyond its limit.
    pub(crate) fn await_hello<'lease>(
        &mut self,
        lease: &'lease mut [u8],
    ) -> Result<Option<&'lease mut [u8]>, TlsFault> {
        let Layer::Ours(records) = &mut self.layer else { return Ok(Some(lease)) };
        let kept = &mut records.partial;
        if kept.is_empty() {
            if looks_like_http(lease) {
                return Err(TlsFault::PlainHttp);
            }
            // Most arrive in one piece, which is not copied.
            if Hello::of(lease) == Hello::Whole {
                return Ok(Some(lease));
            }
        }
        kept.extend_from_slice(lease);
        match Hello::of(kept) {
            Hello::Partial => Ok(None),
            Hello::Whole => Ok(Some(&mut [])),
            Hello::TooLarge => {
                records.give_up();
                self.handshake = Handshake::Over;
                Err(TlsFault::Protocol)
            }
        }
    }

    /// Opens what has arrived: plaintext is appended to `plain`. After a fault an alert may be in [`Tls::seal`].
    pub(crate) fn open(&mut self, lease: &mut [u8], plain: &mut Vec<u8>) -> Result<Opened, TlsFault> {
        let records = match &mut self.layer {
            Layer::Ours(records) => records,
            Layer::Kernel(kernel) => return kernel.open(lease, plain),
            Layer::Nobody => return Ok(Opened::default()),
        };
        self.heard = true;
        if records.is_established() {
            return records.open(lease, plain).map_err(|error| TlsFault::of(&error));
        }
        let opened = records.open(lease, plain);
        self.server_name = known::take_server_name().or_else(|| self.server_name.take());
        let opened = opened.map_err(|error| TlsFault::of(&error))?;
        if opened.established {
            self.known = Some(Arc::new(self.knowledge()));
        }
        Ok(opened)
    }

    fn knowledge(&mut self) -> TlsKnown {
        let session = self.session();
        let certificate = session.and_then(|session| session.peer_certificates()).and_then(<[_]>::first);
        let suite = session.and_then(|session| session.negotiated_cipher_suite());
        TlsKnown {
            version: self.description().0,
            cipher: suite.map_or("", |suite| iana_name(suite.suite())),
            client: certificate.and_then(|certificate| Certified::of(certificate)),
            server_name: self.server_name.take(),
        }
    }

    /// The session, as long as it is one.
    fn session(&self) -> Option<&UnbufferedServerConnection> {
        match &self.layer {
            Layer::Ours(records) => Some(&records.session),
            Layer::Kernel(_) | Layer::Nobody => None,
        }
    }

    /// What is known since the handshake.
    pub(crate) fn known(&self) -> Option<Arc<TlsKnown>> {
        self.known.clone()
    }

    /// Has segments sent behind what is to be sent already.
    pub(crate) fn push(&mut self, segments: &mut Vec<Segment>) {
        self.queue.extend(segments.drain(..).filter(|segment| !segment.is_empty()));
    }

    /// Nothing comes behind what was pushed.
    pub(crate) const fn finish(&mut self) {
        self.last = true;
    }

    /// Whether the handshake is over.
    pub(crate) const fn is_established(&self) -> bool {
        match &self.layer {
            Layer::Ours(records) => records.is_established(),
            Layer::Kernel(_) | Layer::Nobody => true,
        }
    }

    /// Whether there is something to send.
    pub(crate) fn has_output(&self) -> bool {
        let more = !self.queue.is_empty() || self.last;
        match &self.layer {
            Layer::Ours(records) => !records.control.is_empty() || records.may_speak() && more,
            Layer::Kernel(kernel) => kernel.has_alert() || kernel.may_speak() && more,
            Layer::Nobody => more,
        }
    }

    /// Puts what is sent next, and fits into one send, in the place of what is in `out`.
    ///
    /// # Errors
    /// A file that is to be sent has become shorter, or cannot be read; the keys are worn out or cannot be had.
    pub(crate) fn seal(&mut self, out: &mut Vec<Segment>, scratch: &mut Scratch) -> Result<(), Fault> {
        out.clear();
        if matches!(self.handing, Handing::Possible | Handing::Ready) {
            self.hand_over();
        }
        match &mut self.layer {
            Layer::Ours(_) => {
                let mut sealed = Vec::new();
                self.seal_window(&mut sealed, scratch)?;
                out.push(Segment::Bytes(sealed));
                Ok(())
            }
            Layer::Kernel(kernel) => kernel.seal(&mut self.queue, std::mem::take(&mut self.last), out),
            Layer::Nobody => Err(Fault::Reset),
        }
    }

    /// What must be done before what was sealed is sent.
    pub(crate) fn preparation(&mut self) -> Option<Op> {
        match std::mem::replace(&mut self.handing, Handing::Never) {
            Handing::Asking => {
                self.handing = Handing::Ready;
                Some(Op::Layer)
            }
            Handing::Giving(keys) => {
                self.handing = Handing::Given;
                Some(Op::Encrypt(keys))
            }
            other => {
                self.handing = other;
                None
            }
        }
    }

    /// The kernel does not encrypt for this connection.
    pub(crate) fn stay(&mut self) {
        self.handing = Handing::Never;
    }

    /// Brings sending nearer to the kernel, where a large file is to be sent.
    fn hand_over(&mut self) {
        let Layer::Ours(records) = &mut self.layer else { return };
        let bytes = self.queue.iter().filter(|segment| segment.memory().is_none()).map(Segment::len).sum();
        match self.handing {
            Handing::Possible if (KERNEL_FILE_BYTES..kernel::KEY_BYTES_MAX / 2).contains(&bytes) => {
                let agreed = kernel::agreed(&records.session);
                let can = agreed.is_some_and(|(version, cipher)| ktls::support().has(version, cipher));
                self.handing = if can { Handing::Asking } else { Handing::Never };
            }
            // What has arrived since may have put a change of our key in front of the next record.
            Handing::Ready if bytes >= WINDOW_BYTES as u64 && !self.heard && records.is_settled() => {
                let Layer::Ours(records) = std::mem::replace(&mut self.layer, Layer::Nobody) else { return };
                if let Ok((session, keys)) = KernelSession::take_over(records.session) {
                    self.layer = Layer::Kernel(session);
                    self.handing = Handing::Giving(keys);
                }
            }
            _ => {}
        }
    }

    /// Seals what fits into one send, behind what is in `out`.
    fn seal_window(&mut self, out: &mut Vec<u8>, scratch: &mut Scratch) -> Result<(), Fault> {
        let Layer::Ours(records) = &mut self.layer else { return Ok(()) };
        out.append(&mut std::mem::take(&mut records.control));
        if !records.may_speak() {
            return Ok(());
        }
        self.heard = false;
        while out.len() < WINDOW_BYTES && !self.queue.is_empty() {
            // What is large and in memory goes as it is; all else is gathered into a record.
            let large = |segment: &Segment| segment.memory().is_some_and(|bytes| bytes.len() >= RECORD_BYTES);
            if self.queue.front().is_some_and(large)
                && let Some(segment) = self.queue.pop_front()
            {
                let bytes = segment.memory().unwrap_or_default();
                let take = bytes.len().min(WINDOW_BYTES);
                records.seal(&bytes[..take], out).map_err(|_| Fault::Reset)?;
                if let Some(rest) = segment.after(take as u64) {
                    self.queue.push_front(rest);
                }
                continue;
            }
            scratch.gathered.clear();
            gather(&mut self.queue, &mut scratch.gathered)?;
            records.seal(&scratch.gathered, out).map_err(|_| Fault::Reset)?;
        }
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
            if self.last {
                self.last = false;
                records.say_goodbye(out);
            }
        }
        Ok(())
    }

    /// The version that is spoken, and whether a session was new or resumed.
    pub(crate) fn description(&self) -> (&'static str, &'static str) {
        let version = match self.session().and_then(|session| session.protocol_version()) {
            Some(ProtocolVersion::TLSv1_3) => "1.3",
            _ => "1.2",
        };
        let how = match self.session().and_then(|session| session.handshake_kind()) {
            Some(HandshakeKind::Resumed) => "resumed",
            _ => "new",
        };
        (version, how)
    }

    /// Whether both sides have agreed on HTTP/2 (ALPN, RFC 7301).
    pub(crate) fn speaks_http2(&self) -> bool {
        self.session().and_then(|session| session.alpn_protocol()) == Some(b"h2")
    }

    /// Whether the peer came only to see a proof that a name is ours (RFC 8737).
    pub(crate) fn is_proof(&self) -> bool {
        self.session().and_then(|session| session.alpn_protocol()) == Some(PROOF_PROTOCOL)
    }

    /// What came before the first record, and is not whole yet.
    pub(crate) fn take_partial(&mut self) -> Vec<u8> {
        match &mut self.layer {
            Layer::Ours(records) => std::mem::take(&mut records.partial),
            Layer::Kernel(_) | Layer::Nobody => Vec::new(),
        }
    }

    /// Keeps that until more of it has come.
    pub(crate) fn keep_partial(&mut self, bytes: Vec<u8>) {
        if let Layer::Ours(records) = &mut self.layer {
            records.partial = bytes;
        }
    }
}

/// A cipher suite's name; rustls writes those of TLS 1.3 in its own way.
fn iana_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or(""),
    }
}

/// Fills a record with plaintext from the front of the queue.
fn gather(queue: &mut VecDeque<Segment>, record: &mut Vec<u8>) -> Result<(), Fault> {
    while record.len() < RECORD_BYTES {
        let Some(segment) = queue.pop_front() else { return Ok(()) };
        let room = RECORD_BYTES - record.len();
        let take = match &segment {
            Segment::File { file, offset, len } => {
                let start = record.len();
                let wish = usize::try_from(*len).unwrap_or(usize::MAX).min(room);
                record.resize(start + wish, 0);
                let read = match file.read_cached_at(*offset, &mut record[start..]) {
                    Some(read) => read,
                    // As sendfile(2), it waits for the disk.
                    None => file.read_at(*offset, &mut record[start..]).map_err(|_| Fault::FileShrunk)?,
                };
                if read == 0 {
                    return Err(Fault::FileShrunk);
                }
                record.truncate(start + read);
                read
            }
            other => {
                let bytes = other.memory().unwrap_or_default();
                let take = bytes.len().min(room);
                record.extend_from_slice(&bytes[..take]);
                take
            }
        };
        if let Some(rest) = segment.after(take as u64) {
            queue.push_front(rest);
        }
    }
    Ok(())
}

/// Whether bytes begin like a request: with a capital letter, as every method does, and no TLS record.
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
            // What it says when it finds no certificate; in a handshake it says nothing else in this way to a peer.
            rustls::Error::General(_) => Self::NoCertificate,
            rustls::Error::AlertReceived(_) => Self::Refused,
            _ => Self::Protocol,
        }
    }
}
