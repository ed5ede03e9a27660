//! The PROXY protocol, versions 1 and 2 (HAProxy's `doc/proxy-protocol.txt`): the client's address behind a load balancer. Reads
//! and writes headers.
//!
//! The header is sent once at the start of a connection, before the first byte of any other protocol, TLS included. Any client
//! could send it, so only listeners configured for it parse it. There it is mandatory: a connection without it is rejected.
//!
//! ```text
//!   v1   PROXY TCP4 203.0.113.9 10.0.0.1 51234 443 CRLF                            at most 107 bytes
//!   v2   0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A │ 21 │ 11 │ length │ addresses │ TLVs  16 bytes and `length`
//! ```
//!
//! Additional values (TLVs) of version 2 are checked for well-formedness and ignored. Their checksum is not verified.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum size of an accepted header in bytes. Version 2 allows 16 + 65,535, but its addresses take at most 216, and the
/// values that load balancers append some hundreds.
pub const PROXY_HEADER_BYTES_MAX: usize = 4096;

/// The result of [`read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// No error so far, but the header is incomplete: call again with all bytes once more have arrived.
    NeedMore,
    /// The header is complete.
    Done {
        /// Length of the header in bytes. The bytes after it belong to the announced protocol.
        bytes: usize,
        /// Address of the client. `None` for a connection of the proxy itself (a health check), an unknown address, or a Unix
        /// socket's. The address of the peer then applies.
        source: Option<SocketAddr>,
        /// Address that the client connected to; `None` as for `source`.
        destination: Option<SocketAddr>,
    },
    /// Not a PROXY header: close without a response.
    Bad(ProxyFault),
}

/// The reason why a PROXY header is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFault {
    /// The signature does not match.
    Signature,
    /// The version 1 line is malformed, or longer than 107 bytes.
    Line,
    /// The version 2 header has an unknown version or command.
    Command,
    /// The version 2 header is too short for its addresses, its values do not fit, or it is longer than
    /// [`PROXY_HEADER_BYTES_MAX`].
    Length,
}

impl ProxyFault {
    /// A short name for logs and metrics.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Signature => "proxy_signature",
            Self::Line => "proxy_line",
            Self::Command => "proxy_command",
            Self::Length => "proxy_length",
        }
    }
}

impl std::fmt::Display for ProxyFault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Signature => "the connection does not begin with a PROXY header",
            Self::Line => "the PROXY line is malformed",
            Self::Command => "the PROXY header has an unknown version or command",
            Self::Length => "the length of the PROXY header does not match its content",
        })
    }
}

impl std::error::Error for ProxyFault {}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Appends the header for a connection on behalf of a client. `addresses` are the client's, and the one that it connected to;
/// `None` if the client has no IP address. If their families differ, the IPv4 address is mapped to IPv6.
///
/// ```
/// use encke_wire::proxy::{ProxyVersion, put_header};
///
/// let mut header = Vec::new();
/// let addresses = ("203.0.113.9:51234".parse()?, "10.0.0.1:443".parse()?);
/// put_header(&mut header, ProxyVersion::V1, Some(addresses));
/// assert_eq!(header, b"PROXY TCP4 203.0.113.9 10.0.0.1 51234 443\r\n");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn put_header(out: &mut Vec<u8>, version: ProxyVersion, addresses: Option<(SocketAddr, SocketAddr)>) {
    let addresses = addresses.map(|(source, destination)| {
        let pair = match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            pair @ ((IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_))) => pair,
            (source, destination) => (as_v6(source), as_v6(destination)),
        };
        (pair, (source.port(), destination.port()))
    });
    match version {
        ProxyVersion::V1 => put_v1(out, addresses),
        ProxyVersion::V2 => put_v2(out, addresses),
    }
}

/// Two addresses of the same family, and their ports.
type SameFamily = ((IpAddr, IpAddr), (u16, u16));

fn put_v1(out: &mut Vec<u8>, addresses: Option<SameFamily>) {
    let line = match addresses {
        None => "PROXY UNKNOWN\r\n".to_owned(),
        Some(((source, destination), (from, to))) => {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            format!("PROXY {family} {source} {destination} {from} {to}\r\n")
        }
    };
    out.extend_from_slice(line.as_bytes());
}

fn put_v2(out: &mut Vec<u8>, addresses: Option<SameFamily>) {
    out.extend_from_slice(V2_SIGNATURE);
    let Some((pair, (from, to))) = addresses else { return out.extend_from_slice(&[V2_LOCAL, 0, 0, 0]) };
    match pair {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            out.extend_from_slice(&[V2_PROXY, V2_TCP4, 0, 12]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
        }
        (source, destination) => {
            out.extend_from_slice(&[V2_PROXY, V2_TCP6, 0, 36]);
            for address in [source, destination] {
                out.extend_from_slice(&octets_v6(address));
            }
        }
    }
    out.extend_from_slice(&from.to_be_bytes());
    out.extend_from_slice(&to.to_be_bytes());
}

fn as_v6(address: IpAddr) -> IpAddr {
    IpAddr::V6(octets_v6(address).into())
}

fn octets_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Parses the header at the start of `buf`, which holds all bytes received on the connection.
#[must_use]
pub fn read(buf: &[u8]) -> ProxyHeader {
    let begins_like = |signature: &[u8]| {
        let length = buf.len().min(signature.len());
        buf[..length] == signature[..length]
    };
    let found = if begins_like(V2_SIGNATURE) {
        read_v2(buf)
    } else if begins_like(V1_SIGNATURE) {
        read_v1(buf)
    } else {
        Err(ProxyFault::Signature)
    };
    match found {
        Ok(Some((bytes, addresses))) => {
            let (source, destination) = addresses.unzip();
            ProxyHeader::Done { bytes, source, destination }
        }
        Ok(None) => ProxyHeader::NeedMore,
        Err(fault) => ProxyHeader::Bad(fault),
    }
}

/// The length of a complete header, and its source and destination.
type Header = (usize, Option<(SocketAddr, SocketAddr)>);

fn read_v1(buf: &[u8]) -> Result<Option<Header>, ProxyFault> {
    let window = &buf[..buf.len().min(V1_BYTES_MAX)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        let is_open =
            buf.len() < V1_BYTES_MAX && window.iter().all(|&byte| byte == b'\r' || is_visible(byte));
        return if is_open { Ok(None) } else { Err(ProxyFault::Line) };
    };
    let line = std::str::from_utf8(&window[..end]).map_err(|_| ProxyFault::Line)?;
    let bytes = end + 2;
    let mut words = line.split(' ').skip(1);
    let addresses = match words.next() {
        // Anything may follow, and is ignored (§2.1).
        Some("UNKNOWN") => return Ok(Some((bytes, None))),
        Some("TCP4") => pair(&mut words, |text| text.parse::<Ipv4Addr>().ok().map(IpAddr::V4)),
        Some("TCP6") => pair(&mut words, |text| text.parse::<Ipv6Addr>().ok().map(IpAddr::V6)),
        _ => None,
    };
    match addresses {
        Some(addresses) if words.next().is_none() => Ok(Some((bytes, Some(addresses)))),
        _ => Err(ProxyFault::Line),
    }
}

/// Parses `source destination source-port destination-port`.
fn pair<'a>(
    words: &mut impl Iterator<Item = &'a str>,
    parse: impl Fn(&str) -> Option<IpAddr>,
) -> Option<(SocketAddr, SocketAddr)> {
    let (source, destination) = (parse(words.next()?)?, parse(words.next()?)?);
    let mut port = || -> Option<u16> {
        let digits = words.next()?;
        let is_plain = digits == "0" || !digits.starts_with('0');
        if is_plain { crate::target::parse_port(digits.as_bytes()) } else { None }
    };
    Some((SocketAddr::new(source, port()?), SocketAddr::new(destination, port()?)))
}

fn read_v2(buf: &[u8]) -> Result<Option<Header>, ProxyFault> {
    let Some(&command) = buf.get(12) else { return Ok(None) };
    if !matches!(command, V2_LOCAL | V2_PROXY) {
        return Err(ProxyFault::Command);
    }
    let Some(&[.., family, length_high, length_low]) = buf.first_chunk::<16>() else { return Ok(None) };
    let bytes = 16 + usize::from(u16::from_be_bytes([length_high, length_low]));
    if bytes > PROXY_HEADER_BYTES_MAX {
        return Err(ProxyFault::Length);
    }
    let Some(rest) = buf.get(16..bytes) else { return Ok(None) };
    if command == V2_LOCAL {
        // The proxy itself, such as a health check. Receivers ignore the family and the block (PROXY protocol §2.2).
        return Ok(Some((bytes, None)));
    }
    let (addresses, values) = match family {
        V2_TCP4 => {
            let (block, values) = rest.split_first_chunk().ok_or(ProxyFault::Length)?;
            (Some(v4_pair(block)), values)
        }
        V2_TCP6 => {
            let (block, values) = rest.split_first_chunk().ok_or(ProxyFault::Length)?;
            (Some(v6_pair(block)), values)
        }
        // Unix sockets, datagrams and unknown families: nothing usable, and nothing to check.
        _ => (None, &[][..]),
    };
    if !are_values(values) {
        return Err(ProxyFault::Length);
    }
    Ok(Some((bytes, addresses)))
}

/// Source and destination of version 2: both addresses, then both ports, in network byte order.
fn v4_pair(block: &[u8; 12]) -> (SocketAddr, SocketAddr) {
    let [a, b, c, d, e, f, g, h, source_high, source_low, destination_high, destination_low] = *block;
    let source = Ipv4Addr::new(a, b, c, d);
    let destination = Ipv4Addr::new(e, f, g, h);
    (
        SocketAddr::from((source, u16::from_be_bytes([source_high, source_low]))),
        SocketAddr::from((destination, u16::from_be_bytes([destination_high, destination_low]))),
    )
}

/// As [`v4_pair`], for IPv6.
fn v6_pair(block: &[u8; 36]) -> (SocketAddr, SocketAddr) {
    let word = |at: usize| u16::from_be_bytes([block[at], block[at + 1]]);
    let address = |at: usize| Ipv6Addr::from(std::array::from_fn::<u16, 8, _>(|index| word(at + 2 * index)));
    (SocketAddr::from((address(0), word(32))), SocketAddr::from((address(16), word(34))))
}

/// Whether `values` is a sequence of type, length and value that ends exactly with its last value.
fn are_values(mut values: &[u8]) -> bool {
    while let [_kind, high, low, rest @ ..] = values {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(after) = rest.get(length..) else { return false };
        values = after;
    }
    values.is_empty()
}

const fn is_visible(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

const V1_SIGNATURE: &[u8] = b"PROXY ";
/// Includes two addresses of 39 characters and two ports of five (§2.1).
const V1_BYTES_MAX: usize = 107;
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2: a connection of the proxy itself.
const V2_LOCAL: u8 = 0x20;
/// Version 2: a connection on behalf of a client.
const V2_PROXY: u8 = 0x21;
const V2_TCP4: u8 = 0x11;
const V2_TCP6: u8 = 0x21;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::testing::Random;

    /// Feeds `input` at every length: more bytes are needed until it is complete, and the result stays the same afterwards.
    fn read_growing(input: &[u8]) -> ProxyHeader {
        let whole = read(input);
        for end in 0..=input.len() {
            let part = read(&input[..end]);
            match whole {
                ProxyHeader::Done { bytes, .. } if end >= bytes => assert_eq!(part, whole, "{end}"),
                ProxyHeader::Bad(_) => {
                    assert!(part == whole || part == ProxyHeader::NeedMore, "{end}: {part:?}");
                }
                _ => assert_eq!(part, ProxyHeader::NeedMore, "{end}"),
            }
        }
        whole
    }

    fn done(bytes: usize, addresses: Option<(&str, &str)>) -> ProxyHeader {
        let socket = |text: &str| text.parse().expect("an address with a port");
        let (source, destination) = addresses.map(|(from, to)| (socket(from), socket(to))).unzip();
        ProxyHeader::Done { bytes, source, destination }
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("a test header fits").to_be_bytes();
        [V2_SIGNATURE, &[command, family], &length, rest].concat()
    }

    const V4_BLOCK: [u8; 12] = [203, 0, 113, 9, 10, 0, 0, 1, 0xc8, 0x22, 0x01, 0xbb];

    #[test]
    fn version_1_names_source_and_destination() {
        let line = b"PROXY TCP4 203.0.113.9 10.0.0.1 51234 443\r\n";
        let addresses = Some(("203.0.113.9:51234", "10.0.0.1:443"));
        assert_eq!(read_growing(line), done(line.len(), addresses));
        let followed = [&line[..], b"GET / HTTP/1.1\r\n"].concat();
        assert_eq!(read_growing(&followed), done(line.len(), addresses));
        let line = b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n";
        assert_eq!(read_growing(line), done(line.len(), Some(("[2001:db8::1]:1", "[::1]:65535"))));
    }

    #[test]
    fn a_written_header_is_read_back() {
        let pairs = [
            ("203.0.113.9:51234", "10.0.0.1:443", "203.0.113.9:51234", "10.0.0.1:443"),
            ("[2001:db8::1]:1", "[::1]:65535", "[2001:db8::1]:1", "[::1]:65535"),
            ("[::ffff:10.0.0.2]:0", "10.0.0.1:80", "10.0.0.2:0", "10.0.0.1:80"),
            ("10.0.0.2:7", "[::1]:80", "[::ffff:10.0.0.2]:7", "[::1]:80"),
        ];
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            for (source, destination, read_source, read_destination) in pairs {
                let mut header = Vec::new();
                let socket = |text: &str| text.parse().expect("an address with a port");
                put_header(&mut header, version, Some((socket(source), socket(destination))));
                assert_eq!(read_growing(&header), done(header.len(), Some((read_source, read_destination))));
            }
            let mut header = Vec::new();
            put_header(&mut header, version, None);
            assert_eq!(read_growing(&header), done(header.len(), None));
        }
    }

    #[test]
    fn version_1_may_not_know() {
        assert_eq!(read_growing(b"PROXY UNKNOWN\r\n"), done(15, None));
        assert_eq!(read_growing(b"PROXY UNKNOWN ff:: ff:: 1 2\r\n"), done(29, None));
    }

    #[test]
    fn malformed_lines_of_version_1_are_refused() {
        for line in [
            "PROXY \r\n",
            "PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            "PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 1.2.3.4 ::1 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n",
            "PROXY tcp4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n",
            "PROXY TCP4 1.2.3.4\t1.2.3.4 1 2\r\n",
            "PROXY TCP4 \0",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
        ] {
            assert_eq!(read_growing(line.as_bytes()), ProxyHeader::Bad(ProxyFault::Line), "{line:?}");
        }
        let endless = [V1_SIGNATURE, &[b'1'; 200]].concat();
        assert_eq!(read_growing(&endless), ProxyHeader::Bad(ProxyFault::Line));
        let longest = format!("PROXY UNKNOWN {}\r\n", "1".repeat(91));
        assert_eq!(read_growing(longest.as_bytes()), done(V1_BYTES_MAX, None));
        let longer = format!("PROXY UNKNOWN {}\r\n", "1".repeat(92));
        assert_eq!(read_growing(longer.as_bytes()), ProxyHeader::Bad(ProxyFault::Line));
    }

    #[test]
    fn version_2_names_source_and_destination() {
        let addresses = Some(("203.0.113.9:51234", "10.0.0.1:443"));
        let header = v2(V2_PROXY, V2_TCP4, &V4_BLOCK);
        assert_eq!(read_growing(&header), done(28, addresses));
        let values = [&V4_BLOCK[..], &[0x04, 0, 0], &[0x02, 0, 3], b"a.b"].concat();
        let header = [v2(V2_PROXY, V2_TCP4, &values), b"GET".to_vec()].concat();
        assert_eq!(read_growing(&header), done(37, addresses));
        let mut block = [0; 36];
        (block[0], block[15], block[31], block[33], block[35]) = (0x20, 1, 2, 80, 81);
        let header = v2(V2_PROXY, V2_TCP6, &block);
        assert_eq!(read_growing(&header), done(52, Some(("[2000::1]:80", "[::2]:81"))));
    }

    #[test]
    fn version_2_may_speak_for_itself_or_for_what_has_no_address() {
        assert_eq!(read_growing(&v2(V2_LOCAL, 0, &[])), done(16, None));
        assert_eq!(read_growing(&v2(V2_LOCAL, V2_TCP4, &V4_BLOCK)), done(28, None));
        assert_eq!(read_growing(&v2(V2_LOCAL, V2_TCP4, &[])), done(16, None), "the block is ignored");
        assert_eq!(read_growing(&v2(V2_LOCAL, V2_TCP6, &[1; 7])), done(23, None), "whatever it contains");
        assert_eq!(read_growing(&v2(V2_PROXY, 0x31, &[0; 216])), done(232, None));
        assert_eq!(read_growing(&v2(V2_PROXY, 0x12, &V4_BLOCK)), done(28, None));
    }

    #[test]
    fn malformed_headers_of_version_2_are_refused() {
        let bad = |fault| ProxyHeader::Bad(fault);
        assert_eq!(read_growing(&v2(0x11, V2_TCP4, &V4_BLOCK)), bad(ProxyFault::Command));
        assert_eq!(read_growing(&v2(0x22, V2_TCP4, &V4_BLOCK)), bad(ProxyFault::Command));
        assert_eq!(read_growing(&v2(V2_PROXY, V2_TCP4, &V4_BLOCK[..11])), bad(ProxyFault::Length));
        assert_eq!(read_growing(&v2(V2_PROXY, V2_TCP6, &[0; 35])), bad(ProxyFault::Length));
        let cut = [&V4_BLOCK[..], &[0x04, 0, 9, 1]].concat();
        assert_eq!(read_growing(&v2(V2_PROXY, V2_TCP4, &cut)), bad(ProxyFault::Length));
        let stub = [&V4_BLOCK[..], &[0x04, 0]].concat();
        assert_eq!(read_growing(&v2(V2_PROXY, V2_TCP4, &stub)), bad(ProxyFault::Length));
        let long = v2(V2_PROXY, 0, &[0; PROXY_HEADER_BYTES_MAX]);
        assert_eq!(read_growing(&long[..16]), bad(ProxyFault::Length), "before what is announced arrives");
    }

    #[test]
    fn anything_else_is_refused_at_its_first_wrong_byte() {
        for input in
            [&b"GET / HTTP/1.1\r\n"[..], b"PROXYTCP4", b"\r\n\r\n\0\r\nQUIX", b"\x16\x03\x01", b"proxy "]
        {
            assert_eq!(
                read_growing(input),
                ProxyHeader::Bad(ProxyFault::Signature),
                "{}",
                input.escape_ascii()
            );
        }
        assert_eq!(read(b""), ProxyHeader::NeedMore);
        for fault in [ProxyFault::Signature, ProxyFault::Line, ProxyFault::Command, ProxyFault::Length] {
            assert!(fault.reason().starts_with("proxy_") && fault.to_string().contains("PROXY"));
        }
    }

    #[test]
    fn random_bytes_after_a_signature_never_consume_more_than_there_is() {
        let seed = 0x5eed_0004;
        println!("seed {seed:#x}");
        let mut random = Random::new(seed);
        for _ in 0..20_000 {
            let signature = [V1_SIGNATURE, V2_SIGNATURE][random.below(2)];
            let mut input = signature.to_vec();
            input.extend((0..random.below(80)).map(|_| random.byte() & 0x3f));
            if let ProxyHeader::Done { bytes, .. } = read(&input) {
                assert!(bytes <= input.len());
            }
        }
    }
}
