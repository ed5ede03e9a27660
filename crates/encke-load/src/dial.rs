//! How connections begin: where each one leads, and from which address of this machine.
//!
//! ```text
//!   sources are given ─────────────────────────────► each in its turn
//!   none, and the server is on 127.0.0.0/8, which
//!   is asked for more connections than PORTS ──────► 127.0.0.1, 127.0.0.2, … as many as that takes
//!   else ──────────────────────────────────────────► the system's choice
//! ```
//! A connection is told from others by its two addresses and ports, so one source has as many connections to a server
//! as the system has local ports. It is no resolver: whoever makes the plan has found the server's address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use encke_io::socket::{self, Address, Stream};
use encke_io::{Fault, host};

use crate::plan::Share;

/// A socket on its way.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) stream: Stream,
    /// Where it has yet to be connected to; a Unix socket is connected at once.
    pub(crate) peer: Option<SocketAddr>,
}

/// Where new sockets come from, for which user: the system, or a simulated world.
pub(crate) type Sockets = Box<dyn FnMut(u32) -> Result<Dial, Fault>>;

/// Those of a thread to a server; sources are taken in turn over all threads.
pub(crate) fn sockets(server: Address, Sources(sources): Sources, share: Share) -> Sockets {
    let mut turn = share.number;
    Box::new(move |_user| match &server {
        Address::Unix(path) => Ok(Dial { stream: socket::connected_local(path)?, peer: None }),
        Address::Inet(peer) => {
            let place = turn.checked_rem(sources.len());
            turn = turn.wrapping_add(share.threads);
            let source = place.and_then(|place| sources.get(place)).map(|ip| SocketAddr::new(*ip, 0));
            Ok(Dial { stream: socket::unconnected(peer, source)?, peer: Some(*peer) })
        }
    })
}

/// Addresses of this machine that connections come from, in their order: `127.0.0.2-9,127.0.0.20`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sources(pub Vec<IpAddr>);

/// Connections from one source to one server where nothing else is known: half of Linux' 28,232 local ports
/// (ip_local_port_range, ip(7)). connect(2) gives out that half first, one port after the other; for each of the
/// other half it looks through all of the first.
const PORTS: u64 = 14_000;
/// 127.0.0.1 to 127.0.0.254.
const LOOPBACK_MAX: u64 = 254;

impl Sources {
    /// Those that so many connections to a server come from, of which somebody may have given some; none: the system's
    /// choice.
    pub(crate) fn of(server: &Address, given: &[IpAddr], connections: u64) -> Self {
        let ports = host::local_ports().map_or(PORTS, |ports| u64::from(ports / 2).clamp(1, PORTS));
        let loopback = matches!(server, Address::Inet(SocketAddr::V4(peer)) if peer.ip().is_loopback());
        if !given.is_empty() || !loopback || connections <= ports {
            return Self(given.to_vec());
        }
        let needed = connections.div_ceil(ports).min(LOOPBACK_MAX);
        // At most 254, so the cast holds.
        Self((1..=needed).map(|last| IpAddr::from(Ipv4Addr::new(127, 0, 0, last as u8))).collect())
    }
}

impl FromStr for Sources {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |part: &str| format!("`{part}`: expected an address, or a range such as 127.0.0.2-9");
        let mut sources = Vec::new();
        for part in text.split(',').map(str::trim) {
            if let Ok(address) = part.parse::<IpAddr>() {
                sources.push(address);
                continue;
            }
            let (first, last) = part.split_once('-').ok_or_else(|| wrong(part))?;
            let first: Ipv4Addr = first.parse().map_err(|_| wrong(part))?;
            let [a, b, c, from] = first.octets();
            let to: u8 = last.parse().map_err(|_| wrong(part))?;
            if from > to {
                return Err(wrong(part));
            }
            sources.extend((from..=to).map(|last| IpAddr::from(Ipv4Addr::new(a, b, c, last))));
        }
        Ok(Self(sources))
    }
}

impl fmt::Display for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, .., last] = &self.0[..] else {
            return self.0.iter().try_for_each(|only| write!(f, "{only}"));
        };
        write!(f, "{} addresses, {first} to {last}", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_addresses_and_ranges() {
        for (text, told) in [
            ("127.0.0.2", "[127.0.0.2]"),
            ("127.0.0.2-4,127.0.0.20", "[127.0.0.2, 127.0.0.3, 127.0.0.4, 127.0.0.20]"),
            ("10.0.0.254-255, ::1", "[10.0.0.254, 10.0.0.255, ::1]"),
        ] {
            assert_eq!(format!("{:?}", text.parse::<Sources>().expect(text).0), told, "{text}");
        }
        for text in ["", "localhost", "127.0.0.9-2", "127.0.0.2-256", "127.0.0.2-", "::1-::3", "127.0.0.2,,"]
        {
            assert!(
                text.parse::<Sources>().is_err_and(|error| error.contains("expected an address")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_loopback_server_is_asked_from_as_many_addresses_as_it_takes() {
        let of = |server: &str, given: &[IpAddr], connections| {
            Sources::of(&Address::Inet(server.parse().expect("an address")), given, connections).0.len()
        };
        assert_eq!(of("127.0.0.1:80", &[], 64), 0);
        assert!(of("127.0.0.1:80", &[], 50_000) >= 4);
        assert_eq!(of("127.0.0.1:80", &[], u64::MAX), 254);
        // What somebody has asked for, and what has one address only, stays.
        assert_eq!(of("127.0.0.1:80", &[Ipv4Addr::new(127, 0, 0, 7).into()], 50_000), 1);
        assert_eq!(of("10.0.0.1:80", &[], 50_000), 0);
        assert_eq!(of("[::1]:80", &[], 50_000), 0);
    }

    #[test]
    fn a_path_at_which_nobody_listens_is_told_when_it_is_dialed() {
        let nowhere = Address::Unix("/nowhere/at/all".into());
        let mut sockets = sockets(nowhere, Sources::default(), Share { number: 0, threads: 1 });
        assert!(sockets(0).is_err());
    }
}
