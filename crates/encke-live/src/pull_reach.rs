//! How far the address of a server reaches, so that a redirection never leads further inside than the server that the settings name.
//!
//! Otherwise a public server could have this one fetch from its own services or its network, and send what is there to all listeners.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use encke_io::Address;

/// The machines that reach an address, the most first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum PullReach {
    #[default]
    Public,
    /// Those of a private network.
    Network,
    /// This one alone, or those of its link: loopback, sockets of files, and link-local addresses, where clouds serve credentials.
    Machine,
}

impl PullReach {
    pub(crate) fn of(address: &Address) -> Self {
        match address {
            Address::Inet(address) => match address.ip().to_canonical() {
                IpAddr::V4(ip) => Self::of_v4(ip),
                IpAddr::V6(ip) => Self::of_v6(ip),
            },
            Address::Unix(_) => Self::Machine,
        }
    }

    fn of_v4(ip: Ipv4Addr) -> Self {
        let [first, second, ..] = ip.octets();
        if ip.is_loopback() || ip.is_link_local() || ip.is_broadcast() || ip.is_multicast() || first == 0 {
            Self::Machine
        } else if ip.is_private() || (first == 100 && second & 0xC0 == 64) {
            // RFC 6598: addresses between a carrier and its clients, also used by clouds and overlays.
            Self::Network
        } else {
            Self::Public
        }
    }

    fn of_v6(ip: Ipv6Addr) -> Self {
        match ip.segments() {
            // RFC 6052: an IPv4 address behind a translator.
            [0x64, 0xFF9B, 0, 0, 0, 0, high, low] => {
                Self::of_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
            }
            _ if ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip.is_unicast_link_local() =>
            {
                Self::Machine
            }
            // Unique local and the deprecated site-local addresses.
            [first, ..] if first & 0xFE00 == 0xFC00 || first & 0xFFC0 == 0xFEC0 => Self::Network,
            _ => Self::Public,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reaches_as_far_as_its_block() {
        for (ip, expected) in [
            ("93.184.216.34", PullReach::Public),
            ("100.63.255.255", PullReach::Public),
            ("172.32.0.1", PullReach::Public),
            ("2a00::1", PullReach::Public),
            ("64:ff9b::5db8:d822", PullReach::Public),
            ("10.0.0.1", PullReach::Network),
            ("172.31.255.255", PullReach::Network),
            ("192.168.1.1", PullReach::Network),
            ("100.64.0.1", PullReach::Network),
            ("fd00::1", PullReach::Network),
            ("::ffff:10.0.0.1", PullReach::Network),
            ("64:ff9b::a00:1", PullReach::Network),
            ("127.0.0.1", PullReach::Machine),
            ("0.0.0.0", PullReach::Machine),
            ("169.254.169.254", PullReach::Machine),
            ("224.0.0.1", PullReach::Machine),
            ("::1", PullReach::Machine),
            ("::", PullReach::Machine),
            ("fe80::1", PullReach::Machine),
            ("::ffff:127.0.0.1", PullReach::Machine),
            ("64:ff9b::7f00:1", PullReach::Machine),
        ] {
            let address = Address::Inet((ip.parse::<IpAddr>().expect("an address"), 80).into());
            assert_eq!(PullReach::of(&address), expected, "{ip}");
        }
        assert!(PullReach::Public < PullReach::Network && PullReach::Network < PullReach::Machine);
    }
}
