//! The address of an application, as settings and flags have it.

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::str::FromStr;

use encke_io::Address;
use encke_wire::target;

use crate::{ValueError, Written, written};

/// The address of an application: `http://HOST[:PORT]`, `https://HOST[:PORT]`, `fcgi://HOST[:PORT]` for FastCGI,
/// `http://unix:PATH` for a Unix socket, and `app:NAME` or `fcgi://app:NAME` for an application that this program supervises.
///
/// ```
/// use encke_settings::TargetUrl;
///
/// let url: TargetUrl = "http://127.0.0.1:3000".parse()?;
/// assert_eq!(url.to_string(), "http://127.0.0.1:3000");
/// assert_eq!("3000".parse::<TargetUrl>()?, "http://localhost:3000".parse()?);
/// assert!("http://127.0.0.1:3000/path".parse::<TargetUrl>().is_err(), "a target is an address, not a page");
/// # Ok::<(), encke_settings::ValueError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TargetUrl {
    place: TargetPlace,
    scheme: TargetScheme,
}

/// The protocol of an application.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TargetScheme {
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// FastCGI.
    FastCgi,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum TargetPlace {
    /// Host (an IPv6 address without brackets) and port.
    Host(String, u16),
    Unix(PathBuf),
    /// A supervised application, or its process of this number, from 1.
    App(String, Option<usize>),
}

impl TargetUrl {
    /// Returns the addresses to connect to, in order of preference. Blocks while the system resolves a name (getaddrinfo(3)).
    ///
    /// # Errors
    /// The name cannot be resolved, or has no address.
    pub fn addresses(&self) -> io::Result<Vec<Address>> {
        match &self.place {
            TargetPlace::Unix(path) => Ok(vec![Address::Unix(path.clone())]),
            // The supervisor knows the address.
            TargetPlace::App(..) => Ok(Vec::new()),
            TargetPlace::Host(host, port) => {
                let found: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.map(Address::Inet).collect();
                if found.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
                }
                Ok(found)
            }
        }
    }

    /// A warning for the operator: the name has no address.
    pub fn unresolved_note(&self) -> String {
        format!(
            "the name in {self} has no address at present: requests for this application fail until it has one"
        )
    }

    /// The protocol.
    pub const fn scheme(&self) -> TargetScheme {
        self.scheme
    }

    /// The name in the certificate of an application that is reached over TLS; `None` without TLS.
    pub fn secure_name(&self) -> Option<&str> {
        match &self.place {
            _ if self.scheme != TargetScheme::Https => None,
            TargetPlace::Host(host, _) => Some(host),
            TargetPlace::Unix(_) => Some("localhost"),
            TargetPlace::App(..) => None,
        }
    }

    /// The value of the field Host in a request of this server's own: the host, and the port unless it is the scheme's.
    ///
    /// ```
    /// use encke_settings::TargetUrl;
    ///
    /// assert_eq!("http://[::1]:3000".parse::<TargetUrl>()?.authority(), "[::1]:3000");
    /// assert_eq!("https://a.example".parse::<TargetUrl>()?.authority(), "a.example");
    /// assert_eq!("http://unix:/run/app.sock".parse::<TargetUrl>()?.authority(), "localhost");
    /// # Ok::<(), encke_settings::ValueError>(())
    /// ```
    pub fn authority(&self) -> String {
        let default_port = if self.scheme == TargetScheme::Https { 443 } else { 80 };
        match &self.place {
            TargetPlace::Unix(_) | TargetPlace::App(..) => "localhost".to_owned(),
            TargetPlace::Host(host, port) => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                if *port == default_port { host } else { format!("{host}:{port}") }
            }
        }
    }

    /// Whether the target is a socket that listens at one of these addresses on this machine. Resolves no name except
    /// `localhost`.
    ///
    /// ```
    /// use encke_settings::TargetUrl;
    ///
    /// let listener = [encke_io::Address::Inet("0.0.0.0:8080".parse()?)];
    /// assert!("http://localhost:8080".parse::<TargetUrl>()?.is_one_of(&listener));
    /// assert!(!"http://localhost:3000".parse::<TargetUrl>()?.is_one_of(&listener));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_one_of(&self, listeners: &[Address]) -> bool {
        listeners.iter().any(|listener| match (&self.place, listener) {
            (TargetPlace::Unix(path), Address::Unix(other)) => path == other,
            (TargetPlace::Host(host, port), Address::Inet(address)) if *port == address.port() => {
                let ip: Option<IpAddr> = host.parse().ok();
                match ip {
                    None => host.eq_ignore_ascii_case("localhost") && is_local(address.ip()),
                    Some(ip) if ip == address.ip() => true,
                    Some(ip) => is_local(ip) && address.ip().is_unspecified(),
                }
            }
            _ => false,
        })
    }

    /// Whether the target is a host name, whose addresses may change.
    pub fn is_name(&self) -> bool {
        matches!(&self.place, TargetPlace::Host(host, _) if host.parse::<std::net::IpAddr>().is_err())
    }

    /// Returns the path of a Unix socket.
    pub fn unix_path(&mut self) -> Option<&mut PathBuf> {
        match &mut self.place {
            TargetPlace::Unix(path) => Some(path),
            TargetPlace::Host(..) | TargetPlace::App(..) => None,
        }
    }

    /// The name of a supervised application.
    ///
    /// ```
    /// use encke_settings::TargetUrl;
    ///
    /// assert_eq!("app:shop".parse::<TargetUrl>()?.app(), Some("shop"));
    /// assert_eq!("app:3000".parse::<TargetUrl>()?.app(), None, "a host and its port");
    /// # Ok::<(), encke_settings::ValueError>(())
    /// ```
    pub fn app(&self) -> Option<&str> {
        match &self.place {
            TargetPlace::App(name, _) => Some(name),
            TargetPlace::Host(..) | TargetPlace::Unix(_) => None,
        }
    }

    /// The URL of a process of a supervised application; `number` from 0. The same as this one if the application has only one
    /// process, or if this is another URL.
    #[must_use]
    pub fn of_process(&self, number: usize, count: usize) -> Self {
        match &self.place {
            TargetPlace::App(name, _) if count > 1 => {
                Self { place: TargetPlace::App(name.clone(), Some(number + 1)), scheme: self.scheme }
            }
            _ => self.clone(),
        }
    }
}

/// Whether a text is the name of a supervised application: letters, digits, `-`, `_` and `.`, with a letter first, so that it is no
/// port.
pub fn is_app_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Whether a connection to this address stays on this machine, whatever its interfaces.
const fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

impl FromStr for TargetUrl {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::invalid("URL", text, Self::EXPECTED);
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let port = text.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
            return Ok(Self {
                place: TargetPlace::Host("localhost".to_owned(), port),
                scheme: TargetScheme::Http,
            });
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (TargetScheme::Http, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (TargetScheme::Https, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("fcgi") => (TargetScheme::FastCgi, rest),
            Some(_) => return Err(wrong()),
            None => (TargetScheme::Http, text),
        };
        if let Some(path) = rest.strip_prefix("unix:") {
            let place = TargetPlace::Unix(path.into());
            return if path.is_empty() { Err(wrong()) } else { Ok(Self { place, scheme }) };
        }
        if let Some(name) = rest.strip_prefix("app:").filter(|name| is_app_name(name)) {
            let place = TargetPlace::App(name.to_owned(), None);
            return if scheme == TargetScheme::Https { Err(wrong()) } else { Ok(Self { place, scheme }) };
        }
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let parsed = target::parse_authority(authority.as_bytes()).map_err(|_| wrong())?;
        let host = std::str::from_utf8(parsed.host).map_err(|_| wrong())?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || authority.ends_with(':') {
            return Err(wrong());
        }
        let port = parsed.port.unwrap_or(match scheme {
            TargetScheme::Http => 80,
            TargetScheme::Https => 443,
            TargetScheme::FastCgi => 9000,
        });
        if port == 0 {
            return Err(wrong());
        }
        Ok(Self { place: TargetPlace::Host(host.to_owned(), port), scheme })
    }
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_app = self.app().is_some();
        f.write_str(match self.scheme {
            TargetScheme::Http if is_app => "",
            TargetScheme::Http => "http://",
            TargetScheme::Https => "https://",
            TargetScheme::FastCgi => "fcgi://",
        })?;
        match &self.place {
            TargetPlace::Host(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            TargetPlace::Host(host, port) => write!(f, "{host}:{port}"),
            TargetPlace::Unix(path) => write!(f, "unix:{}", path.display()),
            TargetPlace::App(name, None) => write!(f, "app:{name}"),
            TargetPlace::App(name, Some(number)) => write!(f, "app:{name}/{number}"),
        }
    }
}

impl Written for TargetUrl {
    const NAME: &'static str = "TargetUrl";
    const EXPECTED: &'static str = "expected http://HOST:PORT, https://HOST:PORT, fcgi://HOST:PORT, http://unix:PATH, app:NAME or a port of this machine";
    const EXAMPLES: &'static [&'static str] = &["http://127.0.0.1:3000", "http://unix:/run/app.sock"];
    const NUMBERS: bool = true;
}

written! { TargetUrl }

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        text.parse::<TargetUrl>().ok().map(|url| url.to_string())
    }

    #[test]
    fn targets_are_hosts_ports_and_unix_sockets() {
        for (text, url) in [
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("HTTP://app.internal/", "http://app.internal:80"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("app:3000", "http://app:3000"),
            ("3000", "http://localhost:3000"),
            ("unix:/run/app.sock", "http://unix:/run/app.sock"),
            ("http://unix:app.sock", "http://unix:app.sock"),
            ("https://app.internal", "https://app.internal:443"),
            ("https://unix:app.sock", "https://unix:app.sock"),
            ("app:shop", "app:shop"),
            ("http://app:shop.2", "app:shop.2"),
            ("fcgi://app:fpm", "fcgi://app:fpm"),
        ] {
            assert_eq!(read(text).as_deref(), Some(url), "{text}");
        }
        for text in [
            "",
            "http://",
            "http://a/b",
            "ftp://a",
            "unix:",
            "a:",
            "a:99999",
            "http://a b",
            "70000",
            "0",
            "http://127.0.0.1:0",
            "https://app:shop",
            "app:shop/2",
            "app:-",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn an_address_needs_no_resolver() {
        let url: TargetUrl = "http://[::1]:3000".parse().expect("a URL");
        let expected: std::net::SocketAddr = "[::1]:3000".parse().expect("an address");
        assert_eq!(url.addresses().expect("no resolver is asked"), [Address::Inet(expected)]);
    }
}
