//! The address of a server to pull from, and the proof of its name.

use std::fmt;
use std::io;

use encke_io::Address;
use encke_session::tls::{ClientSessions, Session, SessionError, Sessions as _, TlsError, Trust};
use encke_settings::{TargetUrl, UpstreamTls};

/// A server that was looked up: its addresses, and its TLS sessions if it uses TLS.
pub(crate) struct PullLookup {
    addresses: io::Result<Vec<Address>>,
    sessions: Option<Result<ClientSessions, TlsError>>,
}

/// Why a server cannot be connected to.
#[derive(Debug)]
pub(crate) enum LookupError<'a> {
    /// The thread pool has ended, or the job has failed.
    Ended,
    Name(&'a io::Error),
    NoAddress,
    /// The authorities of `live.tls` cannot be read.
    Trust(&'a TlsError),
    /// No certificate can have the name.
    Session(SessionError),
}

impl PullLookup {
    /// Resolves the name of a server, and reads the authorities. Blocks.
    pub(crate) fn of(target: &TargetUrl, tls: &UpstreamTls) -> Self {
        let sessions = target.secure_name().map(|host| {
            let name = tls.name.clone().unwrap_or_else(|| host.to_owned());
            Ok(ClientSessions::new(Trust::of(tls)?, name))
        });
        Self { addresses: target.addresses(), sessions }
    }

    /// Returns the address for an attempt, and a session if the server uses TLS.
    ///
    /// # Errors
    /// The server has no address, or its name cannot be proved.
    pub(crate) fn connection(
        &self,
        attempt: usize,
    ) -> Result<(Address, Option<Box<dyn Session>>), LookupError<'_>> {
        let addresses = self.addresses.as_ref().map_err(LookupError::Name)?;
        let address = addresses.get(attempt % addresses.len().max(1)).ok_or(LookupError::NoAddress)?;
        let session = match &self.sessions {
            None => None,
            Some(Ok(sessions)) => Some(sessions.begin().map_err(LookupError::Session)?),
            Some(Err(error)) => return Err(LookupError::Trust(error)),
        };
        Ok((address.clone(), session))
    }
}

impl fmt::Display for LookupError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the server is stopping"),
            Self::Name(error) => write!(f, "the name has no address: {error}"),
            Self::NoAddress => f.write_str("the name has no address"),
            Self::Trust(error) => write!(f, "live.tls: {error}"),
            Self::Session(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LookupError<'_> {}
