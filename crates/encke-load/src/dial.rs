//! Source and destination of new connections.
//!
//! ```text
//!   sources given ────────────────────────────────► in rotation
//!   none given, the server is on 127.0.0.0/8, and
//!   127.0.0.1 has too few free ports ─────────────► 127.0.0.1, 127.0.0.2, … as many as needed, without
//!                                                   those that have too few free ports
//!   otherwise ────────────────────────────────────► the system's choice
//! ```
//! A connection is identified by its two addresses and ports. One source can therefore have as many connections to a server as
//! the system has local ports. Connections of other programs to that server count, as do TIME-WAIT entries of an earlier run.
//! This file resolves no names: the plan contains the server's address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use encke_io::socket::{self, Address, Stream};
use encke_io::{OpError, host};

use crate::input::InputError;
use crate::plan::PlanShare;

/// A socket being connected.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) stream: Stream,
    /// The address to connect to. `None` for a Unix socket, which is connected at once.
    pub(crate) peer: Option<SocketAddr>,
}

/// Creates the sockets of a user: by the system, or in a simulated world. Takes a spare socket to reuse, if there is one.
pub(crate) type Sockets = Box<dyn FnMut(u32, Option<Stream>) -> Result<Dial, OpError>>;

/// The sockets of a thread to one server. Sources rotate over all threads.
pub(crate) fn sockets(server: Address, sources: Vec<IpAddr>, share: PlanShare) -> Sockets {
    let mut turn = share.number;
    Box::new(move |_user, spare| match &server {
        Address::Unix(path) => Ok(Dial { stream: socket::connected_local(path)?, peer: None }),
        Address::Inet(peer) => {
            if let Some(stream) = spare {
                return Ok(Dial { stream, peer: Some(*peer) });
            }
            let place = turn.checked_rem(sources.len());
            turn = turn.wrapping_add(share.threads);
            let source = place.and_then(|place| sources.get(place)).map(|ip| SocketAddr::new(*ip, 0));
            Ok(Dial { stream: socket::unconnected(peer, source)?, peer: Some(*peer) })
        }
    })
}

/// Local addresses that connections are made from, in order: `127.0.0.2-9,127.0.0.20`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sources(pub Vec<IpAddr>);

/// Connections per source and server if the port range is unknown: half of Linux' 28,232 local ports (ip_local_port_range,
/// ip(7)). First, connect(2) hands out that half, one port after the other. For each port of the other half it searches all of
/// the first half again.
const PORTS: u64 = 14_000;
/// 127.0.0.1 to 127.0.0.254.
const LOOPBACK_MAX: u64 = 254;

impl Sources {
    /// The sources for this number of connections to a server: the given ones if there are any. Empty: the system's choice.
    pub(crate) fn of(server: &Address, given: &[IpAddr], connections: u64) -> Vec<IpAddr> {
        let Address::Inet(SocketAddr::V4(server)) = server else { return given.to_vec() };
        if !given.is_empty() || !server.ip().is_loopback() {
            return given.to_vec();
        }
        let ports = host::local_ports().map_or(PORTS, |ports| u64::from(ports / 2).clamp(1, PORTS));
        // With fewer sockets than this on the machine, every address has enough ports.
        let taken =
            host::connections_to(*server, (ports + 1).saturating_sub(connections)).unwrap_or_default();
        of_loopback(connections, ports, |source| taken.get(&source).copied().unwrap_or(0))
    }
}

/// The fewest addresses of 127.0.0.0/8 with enough ports for these connections in addition to the taken ones. If no set of
/// addresses has enough, taken ports are ignored.
fn of_loopback(connections: u64, ports: u64, taken: impl Fn(Ipv4Addr) -> u64) -> Vec<IpAddr> {
    let fewest = connections.div_ceil(ports).clamp(1, LOOPBACK_MAX);
    // There are at most 254, so the cast holds.
    let all = || (1..=LOOPBACK_MAX).map(|last| Ipv4Addr::new(127, 0, 0, last as u8));
    let roomy = (fewest..=LOOPBACK_MAX).find_map(|count| {
        let each = connections.div_ceil(count);
        let roomy = all().filter(|source| taken(*source).saturating_add(each) <= ports);
        let roomy: Vec<Ipv4Addr> = roomy.take(count as usize).collect();
        (roomy.len() as u64 == count).then_some(roomy)
    });
    let sources = roomy.unwrap_or_else(|| all().take(fewest as usize).collect());
    if sources == [Ipv4Addr::LOCALHOST] {
        return Vec::new();
    }
    sources.into_iter().map(IpAddr::from).collect()
}

impl FromStr for Sources {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        let wrong = |part: &str| InputError::Source(part.to_owned());
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

/// The sources, as a suffix to a number of connections; empty if they are the system's choice.
pub(crate) fn from(sources: &[IpAddr]) -> String {
    match sources {
        [] => String::new(),
        [only] => format!(", from {only}"),
        [first, .., last] => format!(", from {} addresses, {first} to {last}", sources.len()),
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
            let error = text.parse::<Sources>().expect_err(text);
            assert!(matches!(error, InputError::Source(_)), "{text}: {error}");
        }
    }

    #[test]
    fn what_has_one_address_or_was_given_some_stays_as_it_is() {
        let of = |server: &str, given: &[IpAddr], connections| {
            Sources::of(&Address::Inet(server.parse().expect("an address")), given, connections)
        };
        let given = [Ipv4Addr::new(127, 0, 0, 7).into()];
        assert_eq!(of("127.0.0.1:1", &given, 50_000), given);
        assert_eq!(of("10.0.0.1:80", &[], 50_000), [] as [IpAddr; 0]);
        assert_eq!(of("[::1]:80", &[], 50_000), [] as [IpAddr; 0]);
        assert!(of("127.0.0.1:1", &[], 50_000).len() >= 4);
    }

    #[test]
    fn a_loopback_server_is_asked_from_as_many_addresses_as_it_takes() {
        // Connections; ports taken of 127.0.0.1, 127.0.0.2 and so on; the addresses used. Each has 1,000 ports.
        for (connections, taken, used) in [
            (0, &[] as &[u64], &[] as &[u8]),
            (64, &[], &[]),
            (1_000, &[], &[]),
            (1_001, &[], &[1, 2]),
            (3_000, &[], &[1, 2, 3]),
            // Ports left in TIME-WAIT by an earlier run.
            (64, &[936], &[]),
            (64, &[937], &[2]),
            (600, &[600], &[2]),
            (600, &[600, 600], &[3]),
            (1_500, &[750, 750], &[3, 4]),
            // The second address has room for some of them.
            (1_500, &[0, 250], &[1, 2]),
            (1_500, &[0, 251], &[1, 3]),
            // No address has a thousand ports left, but two have five hundred.
            (1_000, &[1, 1].repeat(127), &[1, 2]),
            // No address has any.
            (1_001, &[1_000, 1_000].repeat(127), &[1, 2]),
        ] {
            let of = |source: Ipv4Addr| taken.get(usize::from(source.octets()[3]) - 1).copied().unwrap_or(0);
            let sources = of_loopback(connections, 1_000, of);
            let used: Vec<IpAddr> = used.iter().map(|last| Ipv4Addr::new(127, 0, 0, *last).into()).collect();
            assert_eq!(sources, used, "{connections} beside {taken:?}");
        }
        assert_eq!(of_loopback(u64::MAX, 1_000, |_| 0).len(), 254);
    }

    #[test]
    fn a_path_at_which_nobody_listens_is_told_when_it_is_dialed() {
        let nowhere = Address::Unix("/nowhere/at/all".into());
        let mut sockets = sockets(nowhere, Vec::new(), PlanShare { number: 0, threads: 1 });
        assert!(sockets(0, None).is_err());
    }
}
