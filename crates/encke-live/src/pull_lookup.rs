//! The address of a server to pull from, the proof of its name, and the token for it.

use std::fmt;
use std::io;

use encke_io::Address;
use encke_session::tls::{ClientSessions, Session, SessionError, Sessions as _, TlsError, Trust};
use encke_settings::UpstreamTls;

use crate::pull_reach::PullReach;
use crate::pull_token::{self, PullTokenError};
use crate::pull_url::PullUrl;

/// A server that was looked up: its addresses, its TLS sessions if it uses TLS, and the token if it requires one.
pub(crate) struct PullLookup {
    addresses: io::Result<Vec<Address>>,
    sessions: Option<Result<ClientSessions, TlsError>>,
    token: Result<Option<String>, PullTokenError>,
}

/// A connection that can be opened.
pub(crate) struct PullRoute<'a> {
    pub(crate) address: Address,
    /// If the server uses TLS.
    pub(crate) session: Option<Box<dyn Session>>,
    pub(crate) token: Option<&'a str>,
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
    Token(&'a PullTokenError),
    /// Its addresses reach less far than those of the server that redirects to it.
    Internal,
}

impl PullLookup {
    /// Resolves the name of a server, and reads the authorities and the token. Blocks.
    pub(crate) fn of(url: &PullUrl, tls: &UpstreamTls) -> Self {
        let sessions = url.target.secure_name().map(|host| {
            let name = tls.name.clone().unwrap_or_else(|| host.to_owned());
            Ok(ClientSessions::new(Trust::of(tls)?, name))
        });
        let token = url.token.as_ref().map(pull_token::reveal).transpose();
        Self { addresses: url.target.addresses(), sessions, token }
    }

    /// Returns how far the least known address reaches.
    pub(crate) fn reach(&self) -> PullReach {
        let addresses = self.addresses.as_deref().unwrap_or_default();
        addresses.iter().map(PullReach::of).max().unwrap_or_default()
    }

    /// Returns the connection for an attempt: each address in turn.
    ///
    /// # Errors
    /// The server has no address, or one that reaches less far than `reach`; its name cannot be proved, or its token cannot be used.
    pub(crate) fn route(&self, attempt: usize, reach: PullReach) -> Result<PullRoute<'_>, LookupError<'_>> {
        let token = self.token.as_ref().map_err(LookupError::Token)?.as_deref();
        let addresses = self.addresses.as_ref().map_err(LookupError::Name)?;
        let address = addresses.get(attempt % addresses.len().max(1)).ok_or(LookupError::NoAddress)?;
        if PullReach::of(address) > reach {
            return Err(LookupError::Internal);
        }
        let session = match &self.sessions {
            None => None,
            Some(Ok(sessions)) => Some(sessions.begin().map_err(LookupError::Session)?),
            Some(Err(error)) => return Err(LookupError::Trust(error)),
        };
        Ok(PullRoute { address: address.clone(), session, token })
    }
}

impl LookupError<'_> {
    /// Returns the text for listeners, without names of files.
    pub(crate) fn public(&self) -> String {
        match self {
            Self::Trust(_) => "the authorities of live.tls cannot be read".to_owned(),
            Self::Token(_) => "the token for the server cannot be used".to_owned(),
            Self::Ended | Self::Name(_) | Self::NoAddress | Self::Session(_) | Self::Internal => {
                self.to_string()
            }
        }
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
            Self::Internal => f.write_str("the server redirects to an internal address"),
            Self::Token(error) => write!(f, "live.channel.pull.token: {error}"),
        }
    }
}

impl std::error::Error for LookupError<'_> {}
