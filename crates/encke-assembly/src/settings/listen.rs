//! Listening addresses: `8080`, `:8080`, `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, `unix:/run/encke.sock`, or a table
//! with such an address and further keys.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;

use encke_io::Address;
use encke_settings::{Secret, ShortForm, TextOrTable, TlsSettings, ValueError, Written, written};
use encke_wire::host::HostPattern;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// A listener, or a pair of listeners for both address families.
#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listen {
    /// `8080` (both loopback addresses), `:8080` (all addresses of this machine), `127.0.0.1:8080`, `[::1]:8080`,
    /// `localhost:8080` or `unix:/run/encke.sock`.
    pub address: ListenAddress,
    /// Requires every connection to begin with a PROXY header (version 1 or 2), which states the client's address. Use it only
    /// for a listener that the proxy alone can reach.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Permission bits of a Unix socket, in octal: `"0660"`. Without it the process's umask decides.
    #[serde(default)]
    pub mode: Option<FileMode>,
    /// Certificate and key. Connections to this listener use TLS.
    #[serde(default)]
    pub tls: Option<TlsSettings>,
    /// `"https"` redirects every request to `https` on the same host: to port 443, or to the first listener with `tls` if none
    /// of them has port 443. `"https:8443"` names the port, for a server whose https has another port to the outside.
    #[serde(default)]
    pub redirect: Option<HttpsPort>,
}

impl Listen {
    /// Creates a listener with default settings at an address.
    pub const fn at(address: ListenAddress) -> Self {
        Self { address, proxy_protocol: false, mode: None, tls: None, redirect: None }
    }
}

impl FromStr for Listen {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.parse().map(Self::at)
    }
}

/// A listening address as written in the settings.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ListenAddress {
    /// `8080`: 127.0.0.1 and `[::1]`.
    Loopback(u16),
    /// `:8080`: 0.0.0.0 and `[::]`.
    Everywhere(u16),
    /// `127.0.0.1:8080`.
    Inet(SocketAddr),
    /// `localhost:8080`: all addresses of the name at start.
    Name(String, u16),
    /// `unix:/run/encke.sock`.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Resolves the address: to one, or to one of each family.
    ///
    ///  # Errors
    /// The system's resolver does not know the host name.
    pub fn addresses(&self) -> io::Result<Vec<Address>> {
        let pair = |v4: Ipv4Addr, v6: Ipv6Addr, port| {
            vec![Address::Inet((IpAddr::V4(v4), port).into()), Address::Inet((IpAddr::V6(v6), port).into())]
        };
        Ok(match self {
            Self::Loopback(port) => pair(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST, *port),
            Self::Everywhere(port) => pair(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, *port),
            Self::Inet(address) => vec![Address::Inet(*address)],
            Self::Unix(path) => vec![Address::Unix(path.clone())],
            Self::Name(host, port) => {
                let mut found: Vec<Address> = Vec::new();
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    if !found.contains(&Address::Inet(address)) {
                        found.push(Address::Inet(address));
                    }
                }
                found
            }
        })
    }

    /// Returns the port, unless the system is to choose one.
    pub fn port(&self) -> Option<NonZeroU16> {
        NonZeroU16::new(match self {
            Self::Loopback(port) | Self::Everywhere(port) | Self::Name(_, port) => *port,
            Self::Inet(address) => address.port(),
            Self::Unix(_) => 0,
        })
    }

    /// Whether the address covers both families, so that a machine that lacks one of them (EADDRNOTAVAIL, EAFNOSUPPORT) may
    /// continue with the other.
    pub const fn is_pair(&self) -> bool {
        matches!(self, Self::Loopback(_) | Self::Everywhere(_) | Self::Name(..))
    }
}

impl FromStr for ListenAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::invalid("address", text, Self::EXPECTED);
        let port = |digits: &str| {
            if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
                digits.parse::<u16>().map_err(|_| ValueError::invalid("port", digits, "the maximum is 65535"))
            } else {
                Err(wrong())
            }
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong()) } else { Ok(Self::Unix(path.into())) };
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Inet(address));
        }
        if text.parse::<IpAddr>().is_ok() {
            return Err(ValueError::NoPort { text: text.into(), expected: Self::EXPECTED });
        }
        match text.rsplit_once(':') {
            None => port(text).map(Self::Loopback),
            Some(("" | "*", digits)) => port(digits).map(Self::Everywhere),
            Some((host, digits)) if is_host_name(host) => Ok(Self::Name(host.into(), port(digits)?)),
            // The host is valid, so the port is not.
            Some((host, digits)) if is_address(host) => Err(port(digits).err().unwrap_or_else(wrong)),
            Some(_) => Err(wrong()),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(port) => write!(f, "{port}"),
            Self::Everywhere(port) => write!(f, ":{port}"),
            Self::Inet(address) => address.fmt(f),
            Self::Name(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Written for ListenAddress {
    const NAME: &'static str = "ListenAddress";
    const EXPECTED: &'static str = "expected 8080, :8080, HOST:PORT, [IPV6]:PORT or unix:PATH";
    const EXAMPLES: &'static [&'static str] =
        &["8080", ":8080", "127.0.0.1:8080", "[::1]:8080", "localhost:8080", "unix:/run/encke.sock"];
    const NUMBERS: bool = true;
}

/// Permission bits of a file, as chmod(1) takes them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileMode(pub u32);

impl FromStr for FileMode {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        // The leading 0 is required, because TOML reads a bare 660 as a decimal number. The error then tells the user to quote
        // an octal number.
        let digits = text.strip_prefix('0').filter(|digits| digits.len() == 3);
        let octal = digits.filter(|digits| digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit)));
        octal
            .and_then(|digits| u32::from_str_radix(digits, 8).ok())
            .map(Self)
            .ok_or_else(|| ValueError::invalid("permission bits", text, Self::EXPECTED))
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl Written for FileMode {
    const NAME: &'static str = "FileMode";
    const EXPECTED: &'static str = "expected 0 and three octal digits in quotes, such as \"0660\"";
    const EXAMPLES: &'static [&'static str] = &["0660"];
}

/// The https port of a redirect, as in `https:8443`; `None` for `https`, the port of the listener with TLS.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HttpsPort(pub Option<NonZeroU16>);

impl FromStr for HttpsPort {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let port = match text.strip_prefix("https") {
            Some("") => return Ok(Self(None)),
            Some(rest) => rest
                .strip_prefix(':')
                .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|port| port.parse().ok()),
            None => None,
        };
        port.map(|port| Self(Some(port))).ok_or_else(|| ValueError::invalid("redirect", text, Self::EXPECTED))
    }
}

impl fmt::Display for HttpsPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("https"),
            Some(port) => write!(f, "https:{port}"),
        }
    }
}

impl Written for HttpsPort {
    const NAME: &'static str = "HttpsPort";
    const EXPECTED: &'static str = "expected https, or https:PORT";
    const EXAMPLES: &'static [&'static str] = &["https", "https:8443"];
}

/// The listener for operators.
#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// An address as in `listen`. If the default, 127.0.0.1:8081, is in use, Encke warns and starts without the listener. An
    /// address configured here must be free.
    #[serde(default)]
    pub address: Option<ListenAddress>,
    /// Access to `/metrics`.
    #[serde(default)]
    pub metrics: MetricsAccess,
    /// Host names under which clients may use the listener, such as `"encke-1"` or `"*.internal"`; IP addresses and loopback
    /// names always work. A page on the Internet could read responses under any other name (DNS rebinding). `/healthz`,
    /// `/readyz` and open metrics are served under every name.
    #[serde(default)]
    pub hosts: Vec<AdminHost>,
    /// TLS, as in `listen`, without `acme`. Client certificates (`client_ca`) are credentials of the users in `[[console.user]]`
    /// that name them.
    #[serde(default)]
    pub tls: Option<TlsSettings>,
    /// Token for all paths but `/healthz` and `/readyz`. Without it Encke makes a new one at each start.
    #[serde(default)]
    pub token: Option<Secret>,
}

/// The default address of the admin listener.
pub const ADMIN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

impl Admin {
    /// Creates the default settings.
    pub const fn new() -> Self {
        Self { address: None, metrics: MetricsAccess::Token, hosts: Vec::new(), tls: None, token: None }
    }

    /// Returns the configured or the default address.
    pub fn address(&self) -> ListenAddress {
        self.address.clone().unwrap_or(ListenAddress::Inet(ADMIN_DEFAULT))
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self::new()
    }
}

impl FromStr for Admin {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        Ok(Self { address: Some(text.parse()?), ..Self::new() })
    }
}

/// A host name of the admin listener: `encke-1`, or `*.internal` for every name below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdminHost(pub HostPattern);

impl FromStr for AdminHost {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.parse().map(Self).map_err(|_| ValueError::invalid("host name", text, Self::EXPECTED))
    }
}

impl fmt::Display for AdminHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Written for AdminHost {
    const NAME: &'static str = "AdminHost";
    const EXPECTED: &'static str = "expected a name without scheme and port, such as encke-1 or *.internal";
    const EXAMPLES: &'static [&'static str] = &["encke-1", "*.internal"];
}

/// Access to the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MetricsAccess {
    /// Requires the admin token.
    #[default]
    Token,
    /// Open to every client that reaches the admin listener, under every host name.
    Open,
}

written! { ListenAddress, FileMode, HttpsPort, AdminHost }

impl ShortForm for Listen {
    type Text = ListenAddress;
    const EXPECTED: &'static str = "an address in quotes, or a table { address = … }";
}

impl ShortForm for Admin {
    type Text = ListenAddress;
    const EXPECTED: &'static str = "an address in quotes, or a table { address = … }";
}

pub(crate) fn serialize_listens<S: Serializer>(listens: &[Listen], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(listens)
}

/// As its address, or as a table with the keys that are set.
impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { address, proxy_protocol, mode, tls, redirect } = self;
        if *self == Self::at(address.clone()) {
            return serializer.collect_str(address);
        }
        let mut table = serializer.serialize_map(None)?;
        table.serialize_entry("address", address)?;
        if *proxy_protocol {
            table.serialize_entry("proxy_protocol", proxy_protocol)?;
        }
        mode.iter().try_for_each(|mode| table.serialize_entry("mode", mode))?;
        tls.iter().try_for_each(|tls| table.serialize_entry("tls", tls))?;
        redirect.iter().try_for_each(|redirect| table.serialize_entry("redirect", redirect))?;
        table.end()
    }
}

pub(crate) fn listens_schema(generator: &mut SchemaGenerator) -> Schema {
    let one = TextOrTable::<Listen>::json_schema(generator);
    json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
}

/// As its address, or as a table with the keys that are set.
impl Serialize for Admin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { address, metrics, hosts, tls, token } = self;
        if *self == (Self { address: address.clone(), ..Self::new() }) {
            return serializer.collect_str(&self.address());
        }
        let mut table = serializer.serialize_map(None)?;
        address.iter().try_for_each(|address| table.serialize_entry("address", address))?;
        table.serialize_entry("metrics", metrics)?;
        table.serialize_entry("hosts", hosts)?;
        tls.iter().try_for_each(|tls| table.serialize_entry("tls", tls))?;
        token.iter().try_for_each(|token| table.serialize_entry("token", token))?;
        table.end()
    }
}

/// Whether `host` is an IP address in the form before a port.
fn is_address(host: &str) -> bool {
    let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    host.parse::<Ipv4Addr>().is_ok() || v6.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok())
}

/// Whether `host` consists of letters, digits, hyphens, underscores and dots, as resolvers accept them.
fn is_host_name(host: &str) -> bool {
    !host.is_empty()
        && host.len() <= 253
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        // 1.2.3.400 is a malformed address, not a name.
        && !host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_address_is_read_and_shown_as_it_was() {
        for (text, addresses) in [
            ("8080", vec!["127.0.0.1:8080", "[::1]:8080"]),
            (":8080", vec!["0.0.0.0:8080", "[::]:8080"]),
            ("127.0.0.1:8080", vec!["127.0.0.1:8080"]),
            ("[::1]:8080", vec!["[::1]:8080"]),
            ("[2001:db8::1]:443", vec!["[2001:db8::1]:443"]),
            ("unix:/run/encke.sock", vec!["unix:/run/encke.sock"]),
            ("unix:relative.sock", vec!["unix:relative.sock"]),
        ] {
            let address: ListenAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
            let all: Vec<String> =
                address.addresses().expect("no name to ask for").iter().map(ToString::to_string).collect();
            assert_eq!(all, addresses, "{text}");
        }
        assert_eq!("*:80".parse(), Ok(ListenAddress::Everywhere(80)));
        assert_eq!("localhost:80".parse(), Ok(ListenAddress::Name("localhost".into(), 80)));
    }

    #[test]
    fn what_is_no_address_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "expected 8080, :8080"),
            ("http://localhost:8080", "expected 8080, :8080"),
            ("127.0.0.1", "has no port"),
            ("::1", "has no port"),
            ("65536", "the maximum is 65535"),
            (":99999", "the maximum is 65535"),
            ("127.0.0.1:65536", "the maximum is 65535"),
            ("[::1]:65536", "the maximum is 65535"),
            ("[::1]:x", "expected 8080"),
            ("host:", "expected 8080"),
            ("host:+1", "expected 8080"),
            ("host:80x", "expected 8080"),
            ("a b:80", "expected 8080"),
            ("1.2.3.400:80", "expected 8080"),
            ("unix:", "expected 8080"),
        ] {
            let error = text.parse::<ListenAddress>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_is_asked_for_at_the_resolver() {
        let named = |text: &str| text.parse::<ListenAddress>().expect(text).addresses();
        let found = named("localhost:81").expect("every machine knows localhost");
        assert!(
            found.iter().all(|address| matches!(address, Address::Inet(inet) if inet.ip().is_loopback()))
        );
        assert!(!found.is_empty());
    }

    #[test]
    fn https_has_its_port_unless_another_is_named() {
        for (text, port) in [("https", None), ("https:443", Some(443)), ("https:8443", Some(8443))] {
            let port = HttpsPort(port.and_then(NonZeroU16::new));
            assert_eq!(text.parse(), Ok(port));
            assert_eq!(port.to_string(), text);
        }
        for text in ["", "http", "https:", "https:0", "https:+1", "https:65536", "https://example.org", "443"]
        {
            let error = text.parse::<HttpsPort>().expect_err(text).to_string();
            assert!(error.contains("https:PORT"), "{text}: {error}");
        }
    }

    #[test]
    fn permission_bits_are_octal() {
        assert_eq!("0660".parse(), Ok(FileMode(0o660)));
        assert_eq!(FileMode(0o660).to_string(), "0660");
        for text in ["", "66", "660", "0888", "1777", "-600", "0+60", "rw-------"] {
            assert!(text.parse::<FileMode>().is_err(), "{text}");
        }
    }
}
