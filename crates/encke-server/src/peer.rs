//! The compact form of a peer's address, as slots store it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use encke_io::Peer;

/// A peer in 19 bytes, where a [`Peer`] takes 32. An IPv4 address is stored in its IPv6-mapped form.
#[derive(Clone, Copy)]
pub(crate) struct PackedPeer {
    address: [u8; 16],
    /// As bytes, which need no alignment.
    port: [u8; 2],
    local: bool,
}

impl PackedPeer {
    /// No address: the peer of a vacant slot.
    pub(crate) const NONE: Self = Self { address: [0; 16], port: [0; 2], local: false };

    pub(crate) fn new(peer: Peer) -> Self {
        match peer {
            Peer::Local => Self { address: [0; 16], port: [0; 2], local: true },
            Peer::Inet(address) => Self {
                address: match address.ip() {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                    IpAddr::V6(v6) => v6.octets(),
                },
                port: address.port().to_ne_bytes(),
                local: false,
            },
        }
    }

    /// Returns the octets of the address, IPv4 in its IPv6-mapped form; `None` for a Unix socket.
    pub(crate) fn octets(self) -> Option<[u8; 16]> {
        (!self.local).then_some(self.address)
    }

    /// Returns the peer. An IPv4-mapped address is returned as IPv4.
    pub(crate) fn unpack(self) -> Peer {
        if self.local {
            return Peer::Local;
        }
        let v6 = Ipv6Addr::from(self.address);
        let ip = v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), |v4: Ipv4Addr| IpAddr::V4(v4));
        Peer::Inet(SocketAddr::new(ip, u16::from_ne_bytes(self.port)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_peer_unpacks_to_itself() {
        for text in ["192.0.2.1:80", "[2001:db8::1]:65535", "127.0.0.1:1"] {
            let peer = Peer::Inet(text.parse().expect("an address"));
            assert_eq!(PackedPeer::new(peer).unpack(), peer);
        }
        assert_eq!(PackedPeer::new(Peer::Local).unpack(), Peer::Local);
    }
}
