//! The PROXY header at the start of a connection to an application: the address of the client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use encke_io::{Address, Peer};
use encke_server::Origin;
use encke_wire::proxy::{ProxyVersion, put_header};

/// Appends the header for a connection to `target` with the request of a client. Names the client that a trusted proxy reports,
/// whose port is unknown then (0).
pub(crate) fn put_proxy_header(out: &mut Vec<u8>, version: ProxyVersion, origin: &Origin, target: &Address) {
    let peer = match origin.peer {
        Peer::Inet(address) => Some(address),
        Peer::Local => None,
    };
    let source = match (origin.client, peer) {
        (Some(client), Some(peer)) if client.to_canonical() == peer.ip().to_canonical() => Some(peer),
        (Some(client), _) => Some(SocketAddr::new(client, 0)),
        // The application must not take the proxy for the client.
        (None, _) if origin.hidden => None,
        (None, peer) => peer,
    };
    let addresses = source.map(|source| match target {
        Address::Inet(target) => (source, *target),
        Address::Unix(_) => (source, SocketAddr::new(unspecified(source.ip().to_canonical()), 0)),
    });
    put_header(out, version, addresses);
}

const fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}
