//! How connections begin: where each one leads, and from which address of this machine.
//!
//! ```text
//!   sources are given ─────────────────────────────► each in its turn
//!   none, and the server is on 127.0.0.0/8, to which
//!   127.0.0.1 has not enough ports left of PORTS ──► 127.0.0.1, 127.0.0.2, … as many as that takes, without those
//!   else ──────────────────────────────────────────► the system's choice                     that have not enough
//! ```
//! A connection is told from others by its two addresses and ports, so one source has as many connections to a server
//! as the system has local ports; what another program has to that server counts, and what an earlier run has left
//! there in TIME-WAIT. It is no resolver: whoever makes the plan has found the server's address.

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

/// Where new sockets come from, for which user: the system, or a simulated world. A socket that it has made may be given
/// back to it.
pub(crate) type Sockets = Box<dyn FnMut(u32, Option<Stream>) -> Result<Dial, Fault>>;

/// Those of a thread to a server; sources are taken in turn over all threads.
pub(crate) fn sockets(server: Address, sources: Vec<IpAddr>, share: Share) -> Sockets {
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
    pub(crate) fn of(server: &Address, given: &[IpAddr], connections: u64) -> Vec<IpAddr> {
        let Address::Inet(SocketAddr::V4(server)) = server else { return given.to_vec() };
        if !given.is_empty() || !server.ip().is_loopback() {
            return given.to_vec();
        }
        let ports = host::local_ports().map_or(PORTS, |ports| u64::from(ports / 2).clamp(1, PORTS));
        // With fewer sockets than that on the machine, any address has ports enough.
        let taken =
            host::connections_to(*server, (ports + 1).saturating_sub(connections)).unwrap_or_default();
        of_loopback(connections, ports, |source| taken.get(&source).copied().unwrap_or(0))
    }
}

/// The fewest addresses of 127.0.0.0/8 that have ports enough for so many connections, beside those that are taken; where
/// all have too many of them, as if none had.
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

/// Where connections come from, behind what says how many they are; nothing where that is the system's choice.
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
            assert!(
                text.parse::<Sources>().is_err_and(|error| error.contains("expected an address")),
                "{text}"
            );
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
        // Connections, what is taken of 127.0.0.1, 127.0.0.2 and so on, and which of these are used; of 1,000 ports.
        for (connections, taken, used) in [
            (0, &[] as &[u64], &[] as &[u8]),
            (64, &[], &[]),
            (1_000, &[], &[]),
            (1_001, &[], &[1, 2]),
            (3_000, &[], &[1, 2, 3]),
            // As the run before has left them.
            (64, &[936], &[]),
            (64, &[937], &[2]),
            (600, &[600], &[2]),
            (600, &[600, 600], &[3]),
            (1_500, &[750, 750], &[3, 4]),
            // The second address has room for a part of them.
            (1_500, &[0, 250], &[1, 2]),
            (1_500, &[0, 251], &[1, 3]),
            // Nobody has a thousand ports left, but two have five hundred.
            (1_000, &[1, 1].repeat(127), &[1, 2]),
            // Nobody has any.
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
        let mut sockets = sockets(nowhere, Vec::new(), Share { number: 0, threads: 1 });
        assert!(sockets(0, None).is_err());
    }
}
