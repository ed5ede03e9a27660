//! Listeners: binds an address for all workers, and keeps the certificates of TLS listeners.
//!
//! On a TCP address each worker has its own listener. On a Unix socket all workers share one listener.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use encke_io::socket::{ListenOptions, Listener};
use encke_io::{Address, lock};
use encke_session::tls::TlsIdentity;

use crate::error::ServerError;

/// The configuration of a listener.
#[derive(Clone)]
pub struct ListenConfig {
    /// The address.
    pub address: Address,
    /// Whether connections begin with a PROXY header (haproxy's protocol, versions 1 and 2).
    pub proxy_protocol: bool,
    /// Permission bits of a Unix socket's file.
    pub mode: Option<u32>,
    /// Whether the server starts without this listener if the machine does not have the address.
    pub optional: bool,
    /// The identity for TLS connections. `None`: connections are plaintext.
    pub tls: Option<Arc<TlsIdentity>>,
    /// Whether plain HTTP requests are redirected to `https`, at [`ConnLimits::https_port`](crate::ConnLimits::https_port).
    pub to_https: bool,
}

impl From<SocketAddr> for ListenConfig {
    fn from(address: SocketAddr) -> Self {
        Self {
            address: Address::Inet(address),
            proxy_protocol: false,
            mode: None,
            optional: false,
            tls: None,
            to_https: false,
        }
    }
}

/// Properties of a listener, most of which its connections inherit.
#[derive(Clone, Default)]
pub(crate) struct ListenerKind {
    /// Requests reach the admin handlers, and no others.
    pub(crate) admin: bool,
    /// Connections begin with a PROXY header.
    pub(crate) proxy_protocol: bool,
    /// Requests are sent on to `https`.
    pub(crate) to_https: bool,
    /// Connections speak TLS, behind the PROXY header if there is one.
    pub(crate) tls: Option<Arc<TlsIdentity>>,
    /// Another process holds the socket, too, and passes it to the next server (socket activation).
    pub(crate) outlives: bool,
}

/// The identity of a bound listener.
pub(crate) struct ListenerIdentity {
    /// The address in the settings, and the bound address with the port that the system chose.
    pub(crate) asked: Address,
    pub(crate) bound: Address,
    pub(crate) identity: Arc<TlsIdentity>,
    /// The listener is for operators. It stays as it is until the end of the process.
    pub(crate) admin: bool,
}

impl ListenerIdentity {
    pub(crate) fn of(door: &ListenConfig, bound: &Address) -> Option<Self> {
        let identity = Arc::clone(door.tls.as_ref()?);
        Some(Self { asked: door.address.clone(), bound: bound.clone(), identity, admin: false })
    }

    pub(crate) fn of_admin(bound: &Address, identity: Arc<TlsIdentity>) -> Self {
        Self { asked: bound.clone(), bound: bound.clone(), identity, admin: true }
    }
}

/// Returns a function that lists the current identities of all listeners.
pub(crate) fn present(
    identities: &Arc<Mutex<Vec<ListenerIdentity>>>,
) -> impl Fn() -> Vec<Arc<TlsIdentity>> + Send + Sync + use<> {
    let identities = Arc::clone(identities);
    move || lock(&identities).iter().map(|named| Arc::clone(&named.identity)).collect()
}

/// Listeners that were bound for a reload, and nothing of which is in effect yet.
#[derive(Default)]
pub struct Bound {
    /// The listeners of each worker.
    pub(crate) queues: Vec<Vec<(Listener, ListenerKind)>>,
    pub(crate) identities: Vec<ListenerIdentity>,
}

/// Binds a listener for every worker. Returns `None` if the listener is optional and this machine does not have the address.
pub(crate) fn bind(
    door: &ListenConfig,
    backlog: u32,
    queues: &mut [Vec<(Listener, ListenerKind)>],
) -> Result<Option<Address>, ServerError> {
    let kind = ListenerKind {
        admin: false,
        proxy_protocol: door.proxy_protocol,
        to_https: door.to_https,
        tls: door.tls.clone(),
        outlives: false,
    };
    let shared = Listener::SHARES_ADDRESS && queues.len() > 1 && matches!(door.address, Address::Inet(_));
    let options = ListenOptions { backlog, shared: false, mode: door.mode };
    // The first is bound unshared: sharing the port would silently share it with another server of this user, too.
    let first = match Listener::bind(&door.address, options) {
        Err(error) if door.optional && is_absent(&error) => return Ok(None),
        other => other.map_err(|error| ServerError::Listen(door.address.clone(), error))?,
    };
    let address = first.address().clone();
    if !shared {
        share(first, kind, queues)?;
        return Ok(Some(address));
    }
    // It stays open, so that no other program can take the port meanwhile.
    let failed = |error| ServerError::Listen(address.clone(), error);
    first.share_address().map_err(failed)?;
    let mut first = Some(first);
    for queue in queues {
        let listener = match first.take() {
            Some(first) => first,
            None => Listener::bind(&address, ListenOptions { shared: true, ..options }).map_err(failed)?,
        };
        queue.push((listener, kind.clone()));
    }
    Ok(Some(address))
}

/// Whether the machine lacks the address or its address family.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable || error.kind() == io::ErrorKind::Unsupported
}

/// Gives every worker a handle of one listener.
pub(crate) fn share(
    listener: Listener,
    kind: ListenerKind,
    queues: &mut [Vec<(Listener, ListenerKind)>],
) -> Result<(), ServerError> {
    let (last, others) = queues.split_last_mut().expect("there is at least one worker");
    for queue in others {
        let copy =
            listener.duplicate().map_err(|error| ServerError::Listen(listener.address().clone(), error))?;
        queue.push((copy, kind.clone()));
    }
    last.push((listener, kind));
    Ok(())
}
