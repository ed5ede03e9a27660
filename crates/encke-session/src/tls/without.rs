//! Substitutes for a build without TLS: the same types, without values.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use encke_io::{OpError, Segment};

use super::{Distrust, HandshakeState, Opened, TlsError, TlsFault, TlsKnown};
use encke_settings::{CertSettings, TlsSettings};

/// The certificates of a listener: none in this build.
pub struct TlsIdentity(Infallible);

impl TlsIdentity {
    /// Fails: this build has no TLS.
    ///
    /// # Errors
    /// Always.
    pub fn read(_: &TlsSettings, _: &mut Vec<String>) -> Result<Self, TlsError> {
        Err(TlsError::Missing)
    }

    pub fn proved_by(
        settings: &TlsSettings,
        _: &Arc<Proofs>,
        notes: &mut Vec<String>,
    ) -> Result<Self, TlsError> {
        Self::read(settings, notes)
    }

    /// Unreachable: no value exists.
    ///
    /// # Errors
    /// None.
    pub fn reread(&self, _: &mut Vec<String>) -> Result<(), TlsError> {
        match self.0 {}
    }

    /// Unreachable: no value exists.
    pub fn renew(&self, _: &Self) {
        match self.0 {}
    }

    pub fn ends(&self) -> Vec<(PathBuf, u64)> {
        match self.0 {}
    }

    pub fn names(&self) -> Vec<String> {
        match self.0 {}
    }

    pub fn config(&self) -> Config {
        match self.0 {}
    }
}

/// The stand-in for the configuration of handshakes.
pub struct Config(Infallible);

/// A local authority: none in this build.
#[derive(Debug)]
pub struct LocalAuthority {
    /// The authority's certificate.
    pub certificate: PathBuf,
    /// The certificate for a listener.
    pub leaf: CertSettings,
    /// The authority is new.
    pub is_new: bool,
}

impl LocalAuthority {
    /// Fails: this build has no TLS.
    ///
    /// # Errors
    /// Always.
    pub fn open(_: &Path) -> Result<Self, TlsError> {
        Err(TlsError::Missing)
    }
}

/// The stand-in for certificates that prove names.
#[derive(Debug, Default)]
pub struct Proofs;

/// The stand-in for the watcher of certificate files.
pub struct CertWatcher;

impl CertWatcher {
    pub fn start(_: Duration, _: impl Fn() -> Vec<Arc<TlsIdentity>>) -> io::Result<Self> {
        Ok(Self)
    }

    pub fn stop(self) {}
}

/// The stand-in for the buffers of a worker's connections.
#[derive(Default)]
pub struct Scratch {
    pub plain: Vec<u8>,
    pub gathered: Vec<u8>,
}

/// TLS on a connection: none in this build.
pub struct Tls {
    none: Infallible,
    pub handshake_ends_ns: u64,
    pub handshake: HandshakeState,
}

impl Tls {
    pub fn new(config: Config, _: u64) -> Option<Box<Self>> {
        match config.0 {}
    }

    pub fn await_hello<'lease>(&mut self, _: &'lease mut [u8]) -> Result<Option<&'lease mut [u8]>, TlsFault> {
        match self.none {}
    }

    pub fn open(&mut self, _: &mut [u8], _: &mut Vec<u8>) -> Result<Opened, TlsFault> {
        match self.none {}
    }

    pub fn push(&mut self, _: &mut Vec<Segment>) {
        match self.none {}
    }

    pub fn waiting_bytes(&self) -> u64 {
        match self.none {}
    }

    pub fn finish(&mut self) {
        match self.none {}
    }

    pub fn is_established(&self) -> bool {
        match self.none {}
    }

    pub fn has_output(&self) -> bool {
        match self.none {}
    }

    pub fn seal(&mut self, _: &mut Vec<u8>, _: &mut Scratch) -> Result<(), OpError> {
        match self.none {}
    }

    pub fn description(&self) -> (&'static str, &'static str) {
        match self.none {}
    }

    pub fn known(&self) -> Option<Arc<TlsKnown>> {
        match self.none {}
    }

    pub fn speaks_http2(&self) -> bool {
        match self.none {}
    }

    pub fn is_proof(&self) -> bool {
        match self.none {}
    }

    pub fn take_partial(&mut self) -> Vec<u8> {
        match self.none {}
    }

    pub fn keep_partial(&mut self, _: Vec<u8>) {
        match self.none {}
    }
}

/// The trust of a client: none in this build.
#[derive(Clone)]
pub struct Trust(Infallible);

impl Trust {
    /// Fails: this build has no TLS.
    ///
    /// # Errors
    /// Always.
    pub fn of_system() -> Result<Self, TlsError> {
        Err(TlsError::Missing)
    }

    /// Fails: this build has no TLS.
    ///
    /// # Errors
    /// Always.
    pub fn of_file(_: &Path) -> Result<Self, TlsError> {
        Self::of_system()
    }

    /// Fails: this build has no TLS.
    ///
    /// # Errors
    /// Always.
    pub fn of_anybody() -> Result<Self, TlsError> {
        Self::of_system()
    }

    /// Unreachable: no value exists.
    #[must_use]
    pub fn forgetting(self) -> Self {
        match self.0 {}
    }

    /// Unreachable: no value exists.
    #[must_use]
    pub fn for_http2(self) -> Self {
        match self.0 {}
    }

    /// Unreachable: no value exists.
    ///
    /// # Errors
    /// None.
    pub fn session(&self, _: &str) -> Result<ClientSession, Distrust> {
        match self.0 {}
    }
}

/// A client's session: none in this build.
pub struct ClientSession(Infallible);

impl ClientSession {
    /// Unreachable: no value exists.
    ///
    /// # Errors
    /// None.
    pub fn open(&mut self, _: &mut [u8], _: &mut Vec<u8>) -> Result<(), Distrust> {
        match self.0 {}
    }

    /// Unreachable: no value exists.
    pub fn output(&mut self, _: &mut Vec<u8>) {
        match self.0 {}
    }

    /// Unreachable: no value exists.
    ///
    /// # Errors
    /// None.
    pub fn seal(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), Distrust> {
        match self.0 {}
    }

    /// Unreachable: no value exists.
    pub fn finish(&mut self, _: &mut Vec<u8>) {
        match self.0 {}
    }

    /// Unreachable: no value exists.
    pub fn is_established(&self) -> bool {
        match self.0 {}
    }

    /// Unreachable: no value exists.
    pub fn is_ended(&self) -> bool {
        match self.0 {}
    }

    /// Unreachable: no value exists.
    pub fn speaks_http2(&self) -> bool {
        match self.0 {}
    }

    /// Unreachable: no value exists.
    pub fn is_resumed(&self) -> bool {
        match self.0 {}
    }
}
