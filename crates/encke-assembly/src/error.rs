//! The errors of a complete server. Errors in the settings file are [`SettingsError`](crate::settings::SettingsError).

use std::error::Error;
use std::fmt;
use std::io;

use encke_apps::AppError;
use encke_console::ConsoleUserError;
use encke_gateway::GatewayError;
use encke_push::PushError;
use encke_rights::{AccessError, RateError};
use encke_server::ServerError;
use encke_session::tls::TlsError;
use encke_settings::SecretError;
use encke_settings::state::StateError;
use encke_site::SiteError;

use crate::settings::ListenAddress;

/// Why a service cannot start or take over new settings. The variant names the part that failed, whose error states the origin.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServiceError {
    /// The engine: an address, a worker, a thread, the access log.
    Server(ServerError),
    /// System: the admin listener cannot be bound.
    Admin(ServerError),
    /// The certificates of a listener.
    Tls(TlsError),
    /// The state directory.
    State(StateError),
    /// A site, its rules or its root.
    Site(SiteError),
    /// The routes of a site, or an upstream.
    Gateway(GatewayError),
    /// A supervised application.
    App(AppError),
    /// Access rules, or a password file.
    Access(AccessError),
    /// A user of the console.
    ConsoleUser(ConsoleUserError),
    /// Rates.
    Rate(RateError),
    /// Channels: their rules, their rights, the store or the cluster.
    Push(PushError),
    /// The token of the admin listener.
    Secret(SecretError),
    /// System: the host name of a listener cannot be resolved.
    Name(ListenAddress, io::Error),
    /// System: the listeners of the service manager cannot be taken over.
    Inherited(io::Error),
    /// System: there are no random bytes for a token.
    Random(io::Error),
    /// System: the thread that orders certificates, or supervises applications, cannot be started.
    Thread(io::Error),
}

impl ServiceError {
    /// Whether another process holds an address or the state directory. A retry helps once that process has ended.
    pub fn is_in_use(&self) -> bool {
        match self {
            Self::Server(error) | Self::Admin(error) => error.is_address_in_use(),
            Self::Push(PushError::Store(error)) => error.is_in_use(),
            _ => false,
        }
    }
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) => error.fmt(f),
            // The engine's remedy is that of the other listeners.
            Self::Admin(ServerError::Listen(address, error)) => {
                write!(f, "cannot listen on {address} for the admin listener: {error}{}", admin_hint(error))
            }
            Self::Admin(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::State(error) => error.fmt(f),
            Self::Site(error) => error.fmt(f),
            Self::Gateway(error) => error.fmt(f),
            Self::App(error) => error.fmt(f),
            Self::Access(error) => error.fmt(f),
            Self::ConsoleUser(error) => error.fmt(f),
            Self::Rate(error) => error.fmt(f),
            Self::Push(error) => error.fmt(f),
            Self::Secret(error) => error.fmt(f),
            Self::Name(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::Inherited(error) => write!(f, "cannot take over inherited listeners: {error}"),
            Self::Random(error) => write!(f, "no random bytes: {error}"),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl Error for ServiceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Server(error) | Self::Admin(error) => Some(error),
            Self::Tls(error) => Some(error),
            Self::State(error) => Some(error),
            Self::Site(error) => Some(error),
            Self::Gateway(error) => Some(error),
            Self::App(error) => Some(error),
            Self::Access(error) => Some(error),
            Self::ConsoleUser(error) => Some(error),
            Self::Rate(error) => Some(error),
            Self::Push(error) => Some(error),
            Self::Secret(error) => Some(error),
            Self::Name(_, error) | Self::Inherited(error) | Self::Random(error) | Self::Thread(error) => {
                Some(error)
            }
        }
    }
}

/// A hint for the user after a failed bind of the admin listener.
fn admin_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            " (another program listens there; choose another address with --admin or server.admin)"
        }
        io::ErrorKind::PermissionDenied => {
            " (ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one with --admin or server.admin)"
        }
        io::ErrorKind::AddrNotAvailable => " (this machine has no such address)",
        _ => "",
    }
}

macro_rules! from {
    ($($cause:ty => $variant:ident),* $(,)?) => {
        $(impl From<$cause> for ServiceError {
            fn from(cause: $cause) -> Self {
                Self::$variant(cause)
            }
        })*
    };
}

from! {
    PushError => Push,
    ServerError => Server,
    TlsError => Tls,
    StateError => State,
    SiteError => Site,
    GatewayError => Gateway,
    AccessError => Access,
    ConsoleUserError => ConsoleUser,
    RateError => Rate,
    SecretError => Secret,
}
