//! `https`: whom it believes, and a socket that speaks TLS.

use std::cell::OnceCell;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use encke_session::tls::{ClientSession, Trust};

use super::Moment;
use super::connection::{READ_BYTES, Trouble, left};

/// Whom a command believes. It is read at the first need: what a system believes is 200 KiB.
pub(crate) struct Belief {
    source: Source,
    trust: OnceCell<Trust>,
}

/// Where belief comes from.
enum Source {
    /// The system, or `$SSL_CERT_FILE`.
    System,
    /// `--cacert`
    File(PathBuf),
    /// `--insecure`
    Credulity,
}

impl Belief {
    /// What the flags say.
    pub(crate) fn new(cacert: Option<PathBuf>, insecure: bool) -> Self {
        let source = match cacert {
            _ if insecure => Source::Credulity,
            Some(path) => Source::File(path),
            None => Source::System,
        };
        Self { source, trust: OnceCell::new() }
    }

    /// Read, once it is needed.
    ///
    /// # Errors
    /// There is nobody to believe, or the file cannot be read.
    pub(crate) fn trust(&self) -> io::Result<&Trust> {
        if let Some(trust) = self.trust.get() {
            return Ok(trust);
        }
        let trust = match &self.source {
            Source::System => Trust::of_system(),
            Source::File(path) => Trust::of_file(path),
            Source::Credulity => Trust::of_anybody(),
        };
        trust.map(|trust| self.trust.get_or_init(|| trust))
    }
}

/// A connection by TLS, for reads and writes of plaintext.
pub(super) struct Secure {
    socket: TcpStream,
    session: ClientSession,
    /// Opened; `plain[used..]` is still to be read.
    plain: Vec<u8>,
    used: usize,
}

impl Secure {
    /// Shakes hands with the server of this name.
    ///
    /// # Errors
    /// [`Trouble::NoBelief`], [`Trouble::Distrusted`], or the connection ends before the handshake does.
    pub(super) fn with(
        host: &str,
        socket: TcpStream,
        belief: &Belief,
        until: Moment,
    ) -> Result<Self, Trouble> {
        let trust = belief.trust().map_err(Trouble::NoBelief)?;
        let session = trust.session(host).map_err(Trouble::Distrusted)?;
        let mut new = Self { socket, session, plain: Vec::new(), used: 0 };
        while !new.session.is_established() {
            let time = left(until)?;
            new.socket.set_read_timeout(Some(time)).map_err(Trouble::Unreachable)?;
            new.socket.set_write_timeout(Some(time)).map_err(Trouble::Unreachable)?;
            new.speak().and_then(|()| new.receive()).map_err(Trouble::of)?;
        }
        new.speak().map_err(Trouble::of)?;
        Ok(new)
    }

    pub(super) const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends what TLS itself has to say.
    fn speak(&mut self) -> io::Result<()> {
        let mut out = Vec::new();
        self.session.output(&mut out);
        self.socket.write_all(&out)
    }

    /// Takes what the socket has; an end that the server has not told is an error.
    fn receive(&mut self) -> io::Result<()> {
        let mut records = [0; READ_BYTES];
        let read = self.socket.read(&mut records)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.plain.drain(..self.used);
        self.used = 0;
        let opened = self.session.open(&mut records[..read], &mut self.plain);
        // Also an alert, which a server that has gone already need not hear.
        let spoken = self.speak();
        opened.map_err(io::Error::other).and(spoken)
    }
}

impl Read for Secure {
    /// As any socket; [`io::ErrorKind::Interrupted`] where TLS had something to say to itself and no plaintext came: who
    /// asked knows how much time is left.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.used == self.plain.len() {
            if self.session.is_ended() {
                return Ok(0);
            }
            self.receive()?;
        }
        let mut plain = &self.plain[self.used..];
        let read = plain.read(buffer)?;
        self.used += read;
        if read == 0 && !self.session.is_ended() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(read)
    }
}

impl Write for Secure {
    /// Takes all of it, or fails.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut records = Vec::new();
        self.session.seal(bytes, &mut records).map_err(io::Error::other)?;
        self.socket.write_all(&records)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Secure {
    /// Says goodbye, so that the server knows that nobody has cut the connection.
    fn drop(&mut self) {
        if self.session.is_established() {
            let mut farewell = Vec::new();
            self.session.finish(&mut farewell);
            // A server that has gone, or does not read, need not hear it.
            let _unheard = self.socket.set_nonblocking(true).and_then(|()| self.socket.write_all(&farewell));
        }
    }
}
