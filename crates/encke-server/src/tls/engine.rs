//! TLS on one connection (RFC 8446, RFC 5246): records in, plaintext out, and the other way round.
//!
//! ```text
//!  lease ─► open ─┬─ plaintext, gathered in the worker's scratch ─► protocol
//!                 ├─ half a record ─► `partial`, only while there is one
//!                 └─ what TLS itself has to say ─► `control` ─┐
//!  segments ─► `queue` ─► seal: at most WINDOW_BYTES a send ──┴─► one buffer of records
//! ```
//! At rest nothing is kept but keys: no buffer, no queue. What is sealed for a slow client is bounded by the window; a
//! file is read as it is sent.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use encke_io::{Fault, Segment};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{HandshakeKind, ProtocolVersion, ServerConfig};

use super::{Opened, TlsFault};

/// What is sealed for one send. 64 KiB are four records: enough to keep a socket busy that holds some 200 KiB, and the
/// most that a client who stops reading makes us hold of sealed bytes.
const WINDOW_BYTES: usize = 64 * 1024;

/// Plaintext in a record, at most (RFC 8446 §5.1).
const RECORD_BYTES: usize = 16 * 1024;

/// What a record has besides its plaintext, at most: header 5, content type 1 or nonce 8, tag 16, and room to spare for
/// a change of keys.
const RECORD_EXTRA: usize = 256;

/// The content type of a handshake record (RFC 8446 §5.1): what every TLS connection begins with.
const HANDSHAKE: u8 = 22;

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
    session: UnbufferedServerConnection,
    /// The beginning of a record of which the rest has not arrived.
    partial: Vec<u8>,
    /// Records of TLS itself, to be sent before anything else.
    control: Vec<u8>,
    /// Plaintext that is not sealed yet.
    queue: VecDeque<Segment>,
    established: bool,
    /// The peer has said that it sends nothing more.
    ended: bool,
    /// Nothing is sent behind what is in the queue.
    last: bool,
    /// After a fault the session is asked nothing more.
    broken: bool,
    /// Until when the handshake must be over, on the monotonic clock in ns.
    pub(crate) handshake_ends_ns: u64,
}

impl Tls {
    /// A connection that begins.
    pub(crate) fn new(config: Arc<ServerConfig>, handshake_ends_ns: u64) -> Option<Box<Self>> {
        let session = UnbufferedServerConnection::new(config).ok()?;
        Some(Box::new(Self {
            session,
            partial: Vec::new(),
            control: Vec::new(),
            queue: VecDeque::new(),
            established: false,
            ended: false,
            last: false,
            broken: false,
            handshake_ends_ns,
        }))
    }

    /// Opens what has arrived: plaintext is appended to `plain`. After a fault an alert may be in [`Tls::seal`].
    pub(crate) fn open(&mut self, lease: &mut [u8], plain: &mut Vec<u8>) -> Result<Opened, TlsFault> {
        if self.broken {
            return Ok(Opened::default());
        }
        if !self.established && self.partial.is_empty() && looks_like_http(lease) {
            return Err(TlsFault::PlainHttp);
        }
        let (established, ended) = (self.established, self.ended);
        let mut kept = std::mem::take(&mut self.partial);
        let incoming = if kept.is_empty() {
            lease
        } else {
            kept.extend_from_slice(lease);
            &mut kept[..]
        };
        // Others' code reads a stranger's bytes here: should it fail in a way that nobody foresaw, that ends this
        // connection, and not the thousands beside it. The hook has printed the panic.
        let opened = catch_unwind(AssertUnwindSafe(|| self.open_records(incoming, plain)));
        let (used, outcome) = opened.unwrap_or((0, Err(TlsFault::Protocol)));
        self.broken = outcome.is_err();
        outcome?;
        if used < incoming.len() && !self.ended {
            self.partial = incoming[used..].to_vec();
        }
        Ok(Opened { established: self.established && !established, ended: self.ended && !ended })
    }

    /// How many bytes are dealt with.
    fn open_records(&mut self, bytes: &mut [u8], plain: &mut Vec<u8>) -> (usize, Result<(), TlsFault>) {
        let mut at = 0;
        loop {
            let UnbufferedStatus { discard, state } = self.session.process_tls_records(&mut bytes[at..]);
            let mut more = true;
            match state {
                Err(error) => {
                    let fault = TlsFault::of(&error);
                    self.take_alert(&mut bytes[at + discard..]);
                    return (at, Err(fault));
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => plain.extend_from_slice(record.payload),
                            Err(error) => return (at, Err(TlsFault::of(&error))),
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(&mut self.control, |room| data.encode(room));
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.ended = true,
                Ok(ConnectionState::WriteTraffic(_)) => {
                    self.established = true;
                    more = false;
                }
                // Early data is not taken, and its state does not come up.
                Ok(_) => more = false,
            }
            at += discard;
            if !more {
                return (at, Ok(()));
            }
        }
    }

    /// Puts the alert that tells the peer what is wrong behind what is to be sent: the one thing that a session still has
    /// to say after an error. `rest` is what was not dealt with, in which it may have marks.
    fn take_alert(&mut self, rest: &mut [u8]) {
        if let UnbufferedStatus { state: Ok(ConnectionState::EncodeTlsData(mut data)), .. } =
            self.session.process_tls_records(rest)
        {
            append(&mut self.control, |room| data.encode(room));
        }
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
        self.established
    }

    /// Whether there is something to send.
    pub(crate) fn has_output(&self) -> bool {
        let speaks = self.established && !self.broken;
        !self.control.is_empty() || speaks && (!self.queue.is_empty() || self.last)
    }

    /// Seals what fits into one send, behind what is in `out`.
    ///
    /// # Errors
    /// A file that is to be sent has become shorter, or cannot be read.
    pub(crate) fn seal(&mut self, out: &mut Vec<u8>, scratch: &mut Scratch) -> Result<(), Fault> {
        out.append(&mut std::mem::take(&mut self.control));
        if !self.established || self.broken {
            return Ok(());
        }
        while out.len() < WINDOW_BYTES && !self.queue.is_empty() {
            // What is large and in memory goes as it is; all else is gathered into a record.
            let large = |segment: &Segment| segment.memory().is_some_and(|bytes| bytes.len() >= RECORD_BYTES);
            if self.queue.front().is_some_and(large)
                && let Some(segment) = self.queue.pop_front()
            {
                let bytes = segment.memory().unwrap_or_default();
                let take = bytes.len().min(WINDOW_BYTES);
                encrypt(&mut self.session, &mut self.partial, &bytes[..take], out)?;
                if let Some(rest) = segment.after(take as u64) {
                    self.queue.push_front(rest);
                }
                continue;
            }
            scratch.gathered.clear();
            gather(&mut self.queue, &mut scratch.gathered)?;
            encrypt(&mut self.session, &mut self.partial, &scratch.gathered, out)?;
        }
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
            if self.last {
                self.last = false;
                self.say_goodbye(out);
            }
        }
        Ok(())
    }

    /// Appends close_notify (RFC 8446 §6.1): what came before is all there is.
    fn say_goodbye(&mut self, out: &mut Vec<u8>) {
        if let UnbufferedStatus { state: Ok(ConnectionState::WriteTraffic(mut traffic)), .. } =
            self.session.process_tls_records(&mut self.partial)
        {
            append(out, |room| traffic.queue_close_notify(room));
        }
    }

    /// The version that is spoken, and whether a session was new or resumed.
    pub(crate) fn description(&self) -> (&'static str, &'static str) {
        let version = match self.session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "1.3",
            _ => "1.2",
        };
        let how = match self.session.handshake_kind() {
            Some(HandshakeKind::Resumed) => "resumed",
            _ => "new",
        };
        (version, how)
    }

    /// Whether both sides have agreed on HTTP/2 (ALPN, RFC 7301).
    pub(crate) fn speaks_http2(&self) -> bool {
        self.session.alpn_protocol() == Some(b"h2")
    }

    /// What came before the first record, and is not whole yet.
    pub(crate) fn take_partial(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }

    /// Keeps that until more of it has come.
    pub(crate) fn keep_partial(&mut self, bytes: Vec<u8>) {
        self.partial = bytes;
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

/// Appends plaintext as records. `partial` is what has arrived and is not dealt with: the session may have marks in it, and
/// would look for them in vain in an empty slice.
fn encrypt(
    session: &mut UnbufferedServerConnection,
    partial: &mut [u8],
    plain: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    loop {
        match session.process_tls_records(partial).state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                let records = plain.len().div_ceil(RECORD_BYTES);
                let (start, room) = (out.len(), plain.len() + records * RECORD_EXTRA);
                out.resize(start + room, 0);
                let written = match traffic.encrypt(plain, &mut out[start..]) {
                    Ok(written) => written,
                    Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) => {
                        out.resize(start + required_size, 0);
                        traffic.encrypt(plain, &mut out[start..]).map_err(|_| Fault::Reset)?
                    }
                    Err(_) => return Err(Fault::Reset),
                };
                out.truncate(start + written);
                return Ok(());
            }
            // A key update or a ticket comes first.
            Ok(ConnectionState::EncodeTlsData(mut data)) => append(out, |room| data.encode(room)),
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => {}
            _ => return Err(Fault::Reset),
        }
    }
}

/// Why something was not written.
trait Wants {
    /// Bytes, if room is all that is missing.
    fn required(&self) -> Option<usize>;
}

impl Wants for EncodeError {
    fn required(&self) -> Option<usize> {
        match self {
            Self::InsufficientSize(error) => Some(error.required_size),
            Self::AlreadyEncoded => None,
        }
    }
}

impl Wants for EncryptError {
    fn required(&self) -> Option<usize> {
        match self {
            Self::InsufficientSize(error) => Some(error.required_size),
            Self::EncryptExhausted => None,
        }
    }
}

/// Appends what `write` writes, which says how much room it needs.
fn append<E: Wants>(out: &mut Vec<u8>, mut write: impl FnMut(&mut [u8]) -> Result<usize, E>) {
    let start = out.len();
    let mut room = 0;
    loop {
        out.resize(start + room, 0);
        match write(&mut out[start..]) {
            Ok(written) => return out.truncate(start + written),
            Err(error) => match error.required() {
                Some(required) if required > room => room = required,
                _ => return out.truncate(start),
            },
        }
    }
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
            rustls::Error::AlertReceived(_) => Self::Refused,
            _ => Self::Protocol,
        }
    }
}
