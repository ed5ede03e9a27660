//! TLS records of either side (RFC 8446, RFC 5246): received records become plaintext, plaintext becomes records.
//!
//! ```text
//!  arrived ─► open ─┬─ plaintext, appended for the caller
//!                   ├─ an incomplete record ─► `partial`, empty otherwise
//!                   └─ records of TLS itself ─► `control`, which is sent before anything else
//!  plaintext ─► seal ─► records, appended for the caller
//! ```
//! The callers decide when to send and how much at once: [`super::engine`] for a server's connections, [`super::client`] for a
//! client's.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustls::Error;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};

use super::Opened;
use super::queue::RECORD_BYTES;

/// Maximum overhead of a record: header 5, content type 1 or nonce 8, tag 16. The rest is reserve for a change of keys.
const RECORD_EXTRA: usize = 256;

/// A rustls session of either side. The two have no type in common.
pub(super) trait Unbuffered {
    /// The rustls type of the side.
    type Side;

    /// Processes received bytes.
    fn step<'session, 'bytes>(
        &'session mut self,
        arrived: &'bytes mut [u8],
    ) -> UnbufferedStatus<'session, 'bytes, Self::Side>;
}

impl Unbuffered for UnbufferedServerConnection {
    type Side = rustls::server::ServerConnectionData;

    fn step<'session, 'bytes>(
        &'session mut self,
        arrived: &'bytes mut [u8],
    ) -> UnbufferedStatus<'session, 'bytes, Self::Side> {
        self.process_tls_records(arrived)
    }
}

impl Unbuffered for UnbufferedClientConnection {
    type Side = rustls::client::ClientConnectionData;

    fn step<'session, 'bytes>(
        &'session mut self,
        arrived: &'bytes mut [u8],
    ) -> UnbufferedStatus<'session, 'bytes, Self::Side> {
        self.process_tls_records(arrived)
    }
}

/// A session and its state between two calls.
pub(super) struct Records<S> {
    pub(super) session: S,
    /// The beginning of a record whose rest has not arrived.
    pub(super) partial: Vec<u8>,
    /// Records of TLS itself, sent before anything else.
    pub(super) control: Vec<u8>,
    established: bool,
    /// The peer has sent close_notify.
    ended: bool,
    /// The session has failed, and is not called again.
    broken: bool,
}

impl<S: Unbuffered> Records<S> {
    pub(super) const fn new(session: S) -> Self {
        Self {
            session,
            partial: Vec::new(),
            control: Vec::new(),
            established: false,
            ended: false,
            broken: false,
        }
    }

    /// Whether the handshake has ended.
    pub(super) const fn is_established(&self) -> bool {
        self.established
    }

    /// Whether the peer has sent close_notify.
    pub(super) const fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether plaintext may be sealed.
    pub(super) const fn can_seal(&self) -> bool {
        self.established && !self.broken
    }

    /// Ends the session without an alert. Later bytes are dropped.
    pub(super) fn give_up(&mut self) {
        self.broken = true;
        self.partial = Vec::new();
    }

    /// Decrypts received records in place, and appends their plaintext to `plain`.
    ///
    /// # Errors
    /// The session's error; `control` may then hold an alert for the peer.
    pub(super) fn open(&mut self, arrived: &mut [u8], plain: &mut Vec<u8>) -> Result<Opened, Error> {
        if self.broken {
            return Ok(Opened::default());
        }
        let (established, ended) = (self.established, self.ended);
        let mut kept = std::mem::take(&mut self.partial);
        let incoming = if kept.is_empty() {
            arrived
        } else {
            kept.extend_from_slice(arrived);
            &mut kept[..]
        };
        // Third-party code parses untrusted bytes here. A panic in it ends this connection, not the thousands of others on the
        // worker. The panic hook has printed it.
        let opened = catch_unwind(AssertUnwindSafe(|| self.open_records(incoming, plain)));
        let (used, outcome) = opened.unwrap_or_else(|_| (0, Err(Error::General("it panicked".into()))));
        self.broken = outcome.is_err();
        outcome?;
        if used < incoming.len() && !self.ended {
            self.partial = incoming[used..].to_vec();
        }
        Ok(Opened { established: self.established && !established, ended: self.ended && !ended })
    }

    /// Returns the number of processed bytes, and the session's error.
    fn open_records(&mut self, bytes: &mut [u8], plain: &mut Vec<u8>) -> (usize, Result<(), Error>) {
        let mut at = 0;
        loop {
            let UnbufferedStatus { discard, state } = self.session.step(&mut bytes[at..]);
            let mut more = true;
            match state {
                Err(error) => {
                    self.take_alert(&mut bytes[at + discard..]);
                    return (at, Err(error));
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => plain.extend_from_slice(record.payload),
                            Err(error) => return (at, Err(error)),
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
                // Early data is not accepted, so its state does not occur.
                Ok(_) => more = false,
            }
            at += discard;
            if !more {
                return (at, Ok(()));
            }
        }
    }

    /// Appends the alert that reports the error to the peer: the only output of a session after an error. `rest` holds the
    /// unprocessed bytes, to which the session may refer by range.
    fn take_alert(&mut self, rest: &mut [u8]) {
        if let UnbufferedStatus { state: Ok(ConnectionState::EncodeTlsData(mut data)), .. } =
            self.session.step(rest)
        {
            append(&mut self.control, |room| data.encode(room));
        }
    }

    /// Moves records of TLS itself to the end of `out`.
    pub(super) fn output(&mut self, out: &mut Vec<u8>) {
        out.append(&mut std::mem::take(&mut self.control));
    }

    /// Appends plaintext as records.
    ///
    /// # Errors
    /// The handshake has not ended, or the keys are exhausted.
    pub(super) fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        loop {
            // The session may refer to ranges of the received, unprocessed bytes, so it must not get an empty slice.
            match self.session.step(&mut self.partial).state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let records = plain.len().div_ceil(RECORD_BYTES);
                    let (start, room) = (out.len(), plain.len() + records * RECORD_EXTRA);
                    out.resize(start + room, 0);
                    let written = match traffic.encrypt(plain, &mut out[start..]) {
                        Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) => {
                            out.resize(start + required_size, 0);
                            traffic.encrypt(plain, &mut out[start..])
                        }
                        other => other,
                    };
                    out.truncate(start + *written.as_ref().unwrap_or(&0));
                    return written.map(drop).map_err(|_| Error::EncryptError);
                }
                // A key update or a ticket comes first.
                ConnectionState::EncodeTlsData(mut data) => append(out, |room| data.encode(room)),
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => {}
                _ => return Err(Error::HandshakeNotComplete),
            }
        }
    }

    /// Appends pending records of TLS itself, then close_notify.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        self.output(out);
        // A broken session has ranges of bytes that no longer exist, so it is not called again.
        if self.can_seal() {
            self.put_close_notify(out);
        }
    }

    /// Appends close_notify (RFC 8446 §6.1), which proves that nothing was truncated.
    pub(super) fn put_close_notify(&mut self, out: &mut Vec<u8>) {
        if let UnbufferedStatus { state: Ok(ConnectionState::WriteTraffic(mut traffic)), .. } =
            self.session.step(&mut self.partial)
        {
            append(out, |room| traffic.queue_close_notify(room));
        }
    }
}

/// An error of writing records.
trait Wants {
    /// The buffer size that is needed, if the buffer was too small.
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

/// Appends the output of `write`, growing the buffer to the size that it requires.
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
