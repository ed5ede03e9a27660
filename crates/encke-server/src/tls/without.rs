//! A build without TLS: the same names, and nothing behind them.

use std::convert::Infallible;
use std::io;

use encke_io::{Fault, Segment};

use super::{Opened, TlsFault};
use crate::settings::TlsSettings;

/// Who a listener says it is: nobody, in this build.
pub struct Identity(Infallible);

impl Identity {
    /// Says that this build has no TLS.
    ///
    /// # Errors
    /// Always.
    pub fn read(_: &TlsSettings, _: &mut Vec<String>) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "tls: this build is without it (cargo feature `tls`)"))
    }

    /// Says that this build has no TLS.
    ///
    /// # Errors
    /// None: there is no such value.
    pub fn reread(&self, _: &TlsSettings, _: &mut Vec<String>) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn renew(&self, _: &Self) {
        match self.0 {}
    }

    pub(crate) fn config(&self) -> Config {
        match self.0 {}
    }
}

/// What handshakes would obey.
pub(crate) struct Config(Infallible);

/// What connections of a worker would work with.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) plain: Vec<u8>,
}

/// TLS on a connection: there is none.
pub(crate) struct Tls {
    none: Infallible,
    pub(crate) handshake_ends_ns: u64,
}

impl Tls {
    pub(crate) fn new(config: Config, _: u64) -> Option<Box<Self>> {
        match config.0 {}
    }

    pub(crate) fn open(&mut self, _: &mut [u8], _: &mut Vec<u8>) -> Result<Opened, TlsFault> {
        match self.none {}
    }

    pub(crate) fn push(&mut self, _: &mut Vec<Segment>) {
        match self.none {}
    }

    pub(crate) fn finish(&mut self) {
        match self.none {}
    }

    pub(crate) fn is_established(&self) -> bool {
        match self.none {}
    }

    pub(crate) fn has_output(&self) -> bool {
        match self.none {}
    }

    pub(crate) fn seal(&mut self, _: &mut Vec<u8>, _: &mut Scratch) -> Result<(), Fault> {
        match self.none {}
    }

    pub(crate) fn description(&self) -> (&'static str, &'static str) {
        match self.none {}
    }

    pub(crate) fn speaks_http2(&self) -> bool {
        match self.none {}
    }

    pub(crate) fn take_partial(&mut self) -> Vec<u8> {
        match self.none {}
    }

    pub(crate) fn keep_partial(&mut self, _: Vec<u8>) {
        match self.none {}
    }
}
