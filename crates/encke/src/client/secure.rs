//! `https`: the trusted certificates, and a socket with TLS.

use std::cell::OnceCell;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;

use encke_session::tls::{ClientSession, TlsError, Trust};

use super::MonoTime;
use super::connection::{ClientError, READ_BYTES, left};

/// The CA certificates that a command trusts. Loaded at first use: the system's certificates take 200 KiB.
pub(crate) struct TrustSettings {
    source: TrustSource,
    trust: OnceCell<Trust>,
}

/// The source of the CA certificates.
enum TrustSource {
    /// The system's certificates, or `$SSL_CERT_FILE`.
    System,
    /// The file of `--cacert`.
    File(PathBuf),
    /// None: `--insecure` skips verification.
    Insecure,
}

impl TrustSettings {
    /// Creates the trust settings from the flags.
    pub(crate) fn new(cacert: Option<PathBuf>, insecure: bool) -> Self {
        let source = match cacert {
            _ if insecure => TrustSource::Insecure,
            Some(path) => TrustSource::File(path),
            None => TrustSource::System,
        };
        Self { source, trust: OnceCell::new() }
    }

    /// Returns the certificates, and loads them at the first call.
    ///
    ///  # Errors
    /// There are no certificates, or the file cannot be read.
    pub(crate) fn trust(&self) -> Result<&Trust, TlsError> {
        if let Some(trust) = self.trust.get() {
            return Ok(trust);
        }
        let trust = match &self.source {
            TrustSource::System => Trust::of_system(),
            TrustSource::File(path) => Trust::of_file(path),
            TrustSource::Insecure => Trust::of_anybody(),
        };
        trust.map(|trust| self.trust.get_or_init(|| trust))
    }
}

/// A TLS connection for reads and writes of plaintext.
pub(super) struct Secure {
    socket: TcpStream,
    session: ClientSession,
    /// Decrypted bytes; `plain[used..]` is not yet read.
    plain: Vec<u8>,
    used: usize,
}

impl Secure {
    /// Performs the handshake with the server named `host`.
    ///
    ///  # Errors
    /// [`ClientError::NoBelief`], [`ClientError::Distrusted`], or the connection ends or times out during the handshake.
    pub(super) fn with(
        host: &str,
        socket: TcpStream,
        belief: &TrustSettings,
        until: MonoTime,
    ) -> Result<Self, ClientError> {
        let trust = belief.trust().map_err(ClientError::NoBelief)?;
        let session = trust.session(host).map_err(ClientError::Distrusted)?;
        let mut new = Self { socket, session, plain: Vec::new(), used: 0 };
        while !new.session.is_established() {
            let time = left(until)?;
            new.socket.set_read_timeout(Some(time)).map_err(ClientError::Unreachable)?;
            new.socket.set_write_timeout(Some(time)).map_err(ClientError::Unreachable)?;
            new.speak()?;
            new.fill()?;
        }
        new.speak()?;
        Ok(new)
    }

    pub(super) const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends pending TLS records, such as handshake messages and alerts.
    fn speak(&mut self) -> Result<(), ClientError> {
        let mut out = Vec::new();
        self.session.output(&mut out);
        self.socket.write_all(&out).map_err(ClientError::of)
    }

    /// Reads and decrypts records. End of file without a close_notify alert is an error.
    fn fill(&mut self) -> Result<(), ClientError> {
        let mut records = [0; READ_BYTES];
        let read = self.socket.read(&mut records).map_err(ClientError::of)?;
        if read == 0 {
            return Err(ClientError::Lost(None));
        }
        self.plain.drain(..self.used);
        self.used = 0;
        let opened = self.session.open(&mut records[..read], &mut self.plain);
        // Sends an alert, too. A server that has already closed does not need it.
        let spoken = self.speak();
        opened.map_err(ClientError::Distrusted).and(spoken)
    }

    /// Reads plaintext. Returns [`io::ErrorKind::Interrupted`] if only TLS messages arrived: the caller knows how much time is
    /// left.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, ClientError> {
        if self.used == self.plain.len() {
            if self.session.is_ended() {
                return Ok(0);
            }
            self.fill()?;
        }
        let mut plain = &self.plain[self.used..];
        let read = plain.read(buffer).map_err(ClientError::of)?;
        self.used += read;
        if read == 0 && !self.session.is_ended() {
            return Err(ClientError::of(io::ErrorKind::Interrupted.into()));
        }
        Ok(read)
    }

    /// Writes all bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let mut records = Vec::new();
        self.session.seal(bytes, &mut records).map_err(ClientError::Distrusted)?;
        self.socket.write_all(&records).map_err(ClientError::of)
    }
}

impl Drop for Secure {
    /// Sends close_notify, so that the server can tell the close from a truncation.
    fn drop(&mut self) {
        if self.session.is_established() {
            let mut farewell = Vec::new();
            self.session.finish(&mut farewell);
            // Non-blocking: a server that has closed or does not read need not receive it.
            let _unheard = self.socket.set_nonblocking(true).and_then(|()| self.socket.write_all(&farewell));
        }
    }
}
