//! Listeners: where a server accepts, how an address is bound for all workers, and the identities of those that speak TLS.
//!
//! Each worker has a listener of its own on a TCP address, and a handle of a shared one on a Unix socket.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use encke_io::socket::{ListenOptions, Listener};
use encke_io::{Address, lock};

use crate::command::DoorKind;
use encke_session::tls::Identity;

/// A place to listen.
#[derive(Clone)]
pub struct Door {
    /// Where.
    pub address: Address,
    /// Connections begin with a PROXY header (haproxy's protocol, versions 1 and 2).
    pub proxy_protocol: bool,
    /// Permission bits of a Unix socket's file.
    pub mode: Option<u32>,
    /// A machine that does not have this address serves without it.
    pub optional: bool,
    /// Connections speak TLS, as this one.
    pub tls: Option<Arc<Identity>>,
    /// Requests that came in the clear are sent on to `https`, at [`Policy::https_port`](crate::Policy::https_port).
    pub to_https: bool,
}

impl From<SocketAddr> for Door {
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

/// Who a listener says it is.
pub(crate) struct Named {
    /// The address as the settings have it, and with the port that the system chose.
    pub(crate) asked: Address,
    pub(crate) bound: Address,
    pub(crate) identity: Arc<Identity>,
}

impl Named {
    pub(crate) fn of(door: &Door, bound: &Address) -> Option<Self> {
        let identity = Arc::clone(door.tls.as_ref()?);
        Some(Self { asked: door.address.clone(), bound: bound.clone(), identity })
    }
}

/// Returns the identities of all listeners at each call.
pub(crate) fn present(
    identities: &Arc<Mutex<Vec<Named>>>,
) -> impl Fn() -> Vec<Arc<Identity>> + Send + Sync + use<> {
    let identities = Arc::clone(identities);
    move || lock(&identities).iter().map(|named| Arc::clone(&named.identity)).collect()
}

/// Listeners that were bound for a reload: those of each worker.
#[derive(Default)]
pub struct Bound(pub(crate) Vec<Vec<(Listener, DoorKind)>>);

/// Binds a door for every worker. `None`: it is optional, and this machine does not have the address.
pub(crate) fn bind(
    door: &Door,
    backlog: u32,
    queues: &mut [Vec<(Listener, DoorKind)>],
) -> io::Result<Option<Address>> {
    let kind = DoorKind {
        admin: false,
        proxy_protocol: door.proxy_protocol,
        to_https: door.to_https,
        tls: door.tls.clone(),
    };
    let shared = queues.len() > 1 && matches!(door.address, Address::Inet(_));
    let options = ListenOptions { backlog, shared: false, mode: door.mode };
    // Asked alone first: sharing a port would also share it with another server of this user, without a word.
    let alone = match Listener::bind(&door.address, options) {
        Err(error) if door.optional && is_absent(&error) => return Ok(None),
        other => other.map_err(|error| named(&error, &door.address))?,
    };
    let address = alone.address().clone();
    if !shared {
        share(alone, kind, queues)?;
        return Ok(Some(address));
    }
    drop(alone);
    for queue in queues {
        let options = ListenOptions { shared: true, ..options };
        let listener = Listener::bind(&address, options).map_err(|error| named(&error, &address))?;
        queue.push((listener, kind.clone()));
    }
    Ok(Some(address))
}

/// The machine has no such address, or not even its family.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable || error.kind() == io::ErrorKind::Unsupported
}

pub(crate) fn named(error: &io::Error, address: &Address) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {address}: {error}{}", hint(error)))
}

/// Gives every worker a handle of one queue.
pub(crate) fn share(
    listener: Listener,
    kind: DoorKind,
    queues: &mut [Vec<(Listener, DoorKind)>],
) -> io::Result<()> {
    let (last, others) = queues.split_last_mut().expect("there is at least one worker");
    for queue in others {
        queue.push((listener.duplicate()?, kind.clone()));
    }
    last.push((listener, kind));
    Ok(())
}

/// What helps against a failed bind.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => " (another program listens there; choose another port with -l)",
        io::ErrorKind::PermissionDenied => {
            " (ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one with -l)"
        }
        io::ErrorKind::AddrNotAvailable => " (this machine has no such address)",
        _ => "",
    }
}
