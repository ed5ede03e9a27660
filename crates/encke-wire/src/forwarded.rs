//! The client's address behind proxies, from `Forwarded` (RFC 7239) or `X-Forwarded-For`.
//!
//! Each proxy appends the address of its peer, so only the elements to the right of the first untrusted proxy are reliable. The
//! list is read **from the right**:
//!
//! ```text
//!   X-Forwarded-For: 6.6.6.6 (invented),  203.0.113.9,  10.0.0.2        peer 10.0.0.1
//!                                         └─ not trusted: the client    └─ trusted ◄─ start
//! ```
//!
//! The operator selects one of the two fields, because a proxy that writes one of them passes on the other as invented by the
//! client. If the peer is not trusted, the peer is the client, whatever the fields contain.
//!
//! An element that is no address, next to our proxies, leaves the client **unknown**. It does not make the proxy the client: the
//! text may be the client's, and the proxy's address may have rights.

use std::net::{IpAddr, SocketAddr};

use crate::field;

/// The field that the trusted proxies write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardingField {
    /// `Forwarded: for=203.0.113.9;proto=https, for="[2001:db8::1]:4711"`
    Forwarded,
    /// `X-Forwarded-For: 203.0.113.9, 10.0.0.2`
    XForwardedFor,
}

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client<'a> {
    /// The client's address. IPv4-mapped IPv6 addresses are converted to IPv4. `None`: a trusted proxy has reported a client
    /// without an address (`unknown`, `_hidden`, or malformed).
    pub address: Option<IpAddr>,
    /// The scheme that the client used (`proto=`), according to its proxy. Only with `Forwarded`.
    pub proto: Option<&'a [u8]>,
    /// The authority that the client requested (`host=`), according to its proxy. Only with `Forwarded`. Not validated: use
    /// [`crate::target::parse_authority`].
    pub host: Option<&'a [u8]>,
}

/// Maximum number of proxies followed. Behind a longer chain of trusted proxies the client is unknown.
pub const HOPS_MAX: usize = 32;

/// Determines the client of a connection from `peer`. `lines` are the values of all lines of the field of `dialect`.
/// `is_trusted` returns whether an address is one of our proxies. If all elements are our proxies, the client is the outermost.
///
/// ```
/// use encke_wire::forwarded::{ForwardingField, client};
///
/// let lines = [&b"6.6.6.6, 203.0.113.9, 10.0.0.2"[..]];
/// let peer = [10, 0, 0, 1].into();
/// let is_trusted = |address: std::net::IpAddr| address.to_string().starts_with("10.");
/// let found = client(peer, ForwardingField::XForwardedFor, lines.into_iter(), is_trusted);
/// assert_eq!(found.address, Some([203, 0, 113, 9].into()));
/// ```
pub fn client<'a>(
    peer: IpAddr,
    dialect: ForwardingField,
    lines: impl Iterator<Item = &'a [u8]>,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Client<'a> {
    let peer = peer.to_canonical();
    let mut client = Client { address: Some(peer), proto: None, host: None };
    if !is_trusted(peer) {
        return client;
    }
    // The last HOPS_MAX elements, in a ring. The list may be long, and needs no allocation.
    let mut ring = [&b""[..]; HOPS_MAX];
    let mut count = 0;
    for element in lines.flat_map(|line| elements(line, dialect)) {
        ring[count % HOPS_MAX] = element;
        count += 1;
    }
    for back in 1..=count.min(HOPS_MAX) {
        let element = ring[(count - back) % HOPS_MAX];
        let hop = match dialect {
            ForwardingField::Forwarded => Hop::parse(element),
            ForwardingField::XForwardedFor => Hop { node: address(element), proto: None, host: None },
        };
        client = Client { address: hop.node, proto: hop.proto, host: hop.host };
        if !hop.node.is_some_and(&is_trusted) {
            return client;
        }
    }
    if count > HOPS_MAX {
        client.address = None;
    }
    client
}

/// The elements of one line. Only `Forwarded` has quoted strings (RFC 7239 §4): a proxy appends to X-Forwarded-For as it is, so a
/// client's quotation mark in it must not hide the comma before the proxy's own element.
fn elements(line: &[u8], dialect: ForwardingField) -> impl Iterator<Item = &[u8]> {
    let quoted = (dialect == ForwardingField::Forwarded).then(|| field::list(line));
    let plain = (dialect == ForwardingField::XForwardedFor).then(|| line.split(|&byte| byte == b','));
    let plain = plain.into_iter().flatten().map(field::trimmed).filter(|element| !element.is_empty());
    quoted.into_iter().flatten().chain(plain)
}

/// Whether a value of `Forwarded` has a quoted string without an end. A proxy's own element, appended to it, would be data of
/// that string.
///
/// ```
/// use encke_wire::forwarded::is_unclosed;
///
/// assert!(is_unclosed(b"for=\"192.0.2.1, for=203.0.113.9"));
/// assert!(!is_unclosed(b"for=\"[2001:db8::1]\";by=\"a\\\"b\""));
/// ```
pub fn is_unclosed(value: &[u8]) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for &byte in value {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
    }
    quoted
}

/// One element of `Forwarded`.
struct Hop<'a> {
    node: Option<IpAddr>,
    proto: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
}

impl<'a> Hop<'a> {
    /// A repeated or malformed pair makes the whole element unknown.
    fn parse(element: &'a [u8]) -> Self {
        let (mut node, mut proto, mut host) = (None, None, None);
        for pair in field::parameters(element).filter(|pair| !pair.is_empty()) {
            let mut halves = pair.splitn(2, |&byte| byte == b'=');
            let (name, value) = (halves.next().unwrap_or_default(), halves.next().and_then(unquoted));
            let slot = match name {
                _ if name.eq_ignore_ascii_case(b"for") => &mut node,
                _ if name.eq_ignore_ascii_case(b"proto") => &mut proto,
                _ if name.eq_ignore_ascii_case(b"host") => &mut host,
                _ => continue,
            };
            if slot.is_some() || value.is_none() {
                return Self { node: None, proto: None, host: None };
            }
            *slot = value;
        }
        Self { node: node.and_then(address), proto, host }
    }
}

/// A token, or the text between quotes. `None` for escapes, which no address, scheme or host needs.
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    match value {
        [b'"', inner @ .., b'"'] => (!inner.iter().any(|byte| matches!(byte, b'"' | b'\\'))).then_some(inner),
        token => field::is_token(token).then_some(token),
    }
}

/// Parses the address of a node, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`,
/// `[2001:db8::1]:80`.
fn address(node: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(node).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let parsed = match bare {
        Some(inside) => inside.parse::<std::net::Ipv6Addr>().ok().map(IpAddr::V6),
        None => text.parse().ok().or_else(|| text.parse().ok().map(|socket: SocketAddr| socket.ip())),
    };
    parsed.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// The trusted proxies are in 10.0.0.0/8 and at ::1.
    fn is_ours(address: IpAddr) -> bool {
        address.to_string().starts_with("10.") || address == ip("::1")
    }

    fn by_list(peer: &str, lines: &[&'static str]) -> Option<IpAddr> {
        let lines = lines.iter().map(|line| line.as_bytes());
        client(ip(peer), ForwardingField::XForwardedFor, lines, is_ours).address
    }

    fn by_forwarded(peer: &str, lines: &[&'static str]) -> Client<'static> {
        client(ip(peer), ForwardingField::Forwarded, lines.iter().map(|line| line.as_bytes()), is_ours)
    }

    #[test]
    fn nobody_can_forge_an_address_without_a_trusted_proxy() {
        assert_eq!(by_list("203.0.113.1", &["1.2.3.4"]), Some(ip("203.0.113.1")));
        assert_eq!(by_forwarded("203.0.113.1", &["for=1.2.3.4"]).address, Some(ip("203.0.113.1")));
    }

    #[test]
    fn the_list_is_walked_from_the_right_to_the_first_stranger() {
        assert_eq!(by_list("10.0.0.1", &["203.0.113.9"]), Some(ip("203.0.113.9")));
        assert_eq!(by_list("10.0.0.1", &["6.6.6.6, 203.0.113.9, 10.0.0.2"]), Some(ip("203.0.113.9")));
        assert_eq!(by_list("10.0.0.1", &["6.6.6.6", "203.0.113.9 ", "10.0.0.2"]), Some(ip("203.0.113.9")));
        assert_eq!(
            by_list("10.0.0.1", &["10.0.0.3, 10.0.0.2"]),
            Some(ip("10.0.0.3")),
            "all are ours: the outermost"
        );
        assert_eq!(by_list("10.0.0.1", &[]), Some(ip("10.0.0.1")));
        assert_eq!(by_list("10.0.0.1", &[""]), Some(ip("10.0.0.1")));
    }

    #[test]
    fn what_is_no_address_makes_the_client_unknown() {
        for list in [
            "6.6.6.6, garbage, 10.0.0.2",
            "6.6.6.6, unknown",
            "6.6.6.6, 1.2.3.4.5",
            "10.0.0.3\"",
            "\"203.0.113.9\"",
        ] {
            assert_eq!(by_list("10.0.0.1", &[list]), None, "{list}");
        }
        for element in [
            "for=unknown",
            "for=_hidden",
            "for=",
            "for",
            "proto=https",
            "for=1.2.3.4;for=5.6.7.8",
            "for=\"1.2.3.4",
            "for=\"1.2.3.\\4\"",
            "for=[::1]x",
            "for=1.2.3.4:port",
        ] {
            assert_eq!(by_forwarded("10.0.0.1", &[element]).address, None, "{element}");
        }
    }

    #[test]
    fn a_quotation_mark_of_a_client_does_not_hide_the_element_of_the_proxy() {
        for sent in ["\"", "a\"", "\"\\", "\", 10.0.0.7", "for=\"", ",\","] {
            let appended: &'static str = format!("{sent}, 203.0.113.9").leak();
            assert_eq!(by_list("10.0.0.1", &[appended]), Some(ip("203.0.113.9")), "{appended}");
            let appended: &'static str = format!("{sent}, 203.0.113.9, 10.0.0.2").leak();
            assert_eq!(by_list("10.0.0.1", &[appended]), Some(ip("203.0.113.9")), "{appended}");
        }
        let client = by_forwarded("10.0.0.1", &["for=\", for=203.0.113.9"]);
        assert_eq!(client.address, None, "it is not the proxy");
        assert!(is_unclosed(b"for=\", for=203.0.113.9"));
        assert!(is_unclosed(b"for=\"a\\\", for=203.0.113.9"), "an escaped quotation mark closes nothing");
        assert!(!is_unclosed(b"for=\"a\\\"b\", for=203.0.113.9"));
    }

    #[test]
    fn addresses_may_have_ports_and_brackets() {
        for (element, address) in [
            ("192.0.2.1:4711", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(by_list("10.0.0.1", &[element]), Some(ip(address)), "{element}");
        }
        assert_eq!(
            by_list("::ffff:10.0.0.1", &["192.0.2.1"]),
            Some(ip("192.0.2.1")),
            "the peer may be mapped as well"
        );
    }

    #[test]
    fn forwarded_says_address_scheme_and_host_of_the_same_hop() {
        let client = by_forwarded(
            "10.0.0.1",
            &[
                "for=6.6.6.6;proto=gopher, For=\"[2001:db8:cafe::17]:4711\";Proto=https;HOST=\"example.com:8443\";by=_x",
                "for=10.0.0.2;proto=http",
            ],
        );
        assert_eq!(client.address, Some(ip("2001:db8:cafe::17")));
        assert_eq!(client.proto, Some(&b"https"[..]));
        assert_eq!(client.host, Some(&b"example.com:8443"[..]));
        let bare = by_forwarded("10.0.0.1", &["for=192.0.2.60; proto=http"]);
        assert_eq!((bare.address, bare.proto), (Some(ip("192.0.2.60")), Some(&b"http"[..])));
    }

    #[test]
    fn only_so_many_hops_are_walked() {
        let hops = ["203.0.113.9"].into_iter().chain(std::iter::repeat_n("10.0.0.2", HOPS_MAX));
        let list = hops.collect::<Vec<_>>().join(",");
        let line = list.as_bytes();
        let found = client(ip("10.0.0.1"), ForwardingField::XForwardedFor, [line].into_iter(), is_ours);
        assert_eq!(found.address, None, "neither the client nor our outermost proxy is known");
        let shorter = &line[..line.len() - ",10.0.0.2".len()];
        let found = client(ip("10.0.0.1"), ForwardingField::XForwardedFor, [shorter].into_iter(), is_ours);
        assert_eq!(found.address, Some(ip("203.0.113.9")));
    }
}
