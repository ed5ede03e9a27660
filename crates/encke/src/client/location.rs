//! Server addresses as users write them: `8080`, `HOST:PORT`, `http://HOST:PORT/PATH?QUERY`, `https://…`, `unix:PATH`.

use encke_wire::punycode;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;

/// A server with the path and query of its URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    pub(crate) server: ServerLocation,
    /// Empty, or begins with a slash.
    pub(crate) path: String,
    /// Without `?`.
    pub(crate) query: Option<String>,
}

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ServerLocation {
    /// Host name or address (IPv6 without brackets) and port.
    Inet(String, u16),
    /// Host and port as in [`ServerLocation::Inet`], with TLS.
    Secure(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Why a text is not the address of a server. The origin is the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LocationError {
    /// The text has another form.
    Invalid(String),
    /// The URL contains a user name.
    User(String),
}

/// Default ports of `http` and `https` (RFC 9110 §4.2).
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

impl Location {
    /// Parses an address.
    ///
    ///  # Errors
    /// The text is not an address; the message lists the accepted forms.
    pub(crate) fn parse(text: &str) -> Result<Self, LocationError> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            let server = ServerLocation::Unix(path.into());
            return Ok(Self { server, path: String::new(), query: None });
        }
        let wrong = || LocationError::Invalid(text.to_owned());
        // Other characters are invalid in a URL, and must not get into a request line.
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong());
        }
        let secure = text.strip_prefix("https://");
        let plain = text.strip_prefix("http://");
        let rest = secure.or(plain).unwrap_or(text);
        let rest = rest.split('#').next().unwrap_or(rest);
        let (authority, behind) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (path, query) = match behind.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (behind, None),
        };
        if let Some((_, server)) = authority.rsplit_once('@') {
            // Without the password and the query, which may contain a token: logs keep errors.
            let scheme = secure.or(plain).map_or("", |written| &text[..text.len() - written.len()]);
            return Err(LocationError::User(format!("{scheme}…@{server}{path}")));
        }
        let port_default = secure.map(|_| HTTPS_PORT).or(plain.map(|_| HTTP_PORT));
        let (host, port) = host_and_port(authority, port_default).ok_or_else(wrong)?;
        let server = if secure.is_some() {
            ServerLocation::Secure(host, port)
        } else {
            ServerLocation::Inet(host, port)
        };
        Ok(Self { server, path: path.to_owned(), query })
    }
}

/// Parses `HOST:PORT`, `:PORT` or `PORT`; also `HOST` if there is a default port.
fn host_and_port(authority: &str, port_default: Option<u16>) -> Option<(String, u16)> {
    let port = |digits: &str| {
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse::<u16>().ok()).flatten()
    };
    if let Some(number) = port(authority) {
        return Some(("127.0.0.1".into(), number));
    }
    let (host, number) = match authority.strip_prefix('[') {
        Some(inner) => {
            let (address, behind) = inner.split_once(']')?;
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (address, if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) })
        }
        None => match authority.rsplit_once(':') {
            Some(("", digits)) => ("127.0.0.1", Some(digits)),
            Some((host, digits)) => (host, Some(digits)),
            None => (authority, None),
        },
    };
    let name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if host.is_empty() || (!authority.starts_with('[') && !host.bytes().all(name)) {
        return None;
    }
    let number = match number {
        Some(digits) => port(digits)?,
        None => port_default?,
    };
    Some((host.to_owned(), number))
}

impl ServerLocation {
    /// Whether a connection to the server stays on this machine.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Inet(host, _) | Self::Secure(host, _) => {
                let is_name = host.eq_ignore_ascii_case("localhost");
                is_name || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
            }
            Self::Unix(_) => true,
        }
    }

    /// Returns the value of `Host`. A Unix socket has no host name; `localhost` has the rights of this machine.
    pub(crate) fn authority(&self) -> String {
        match self {
            Self::Inet(..) | Self::Secure(..) => self.to_string(),
            Self::Unix(_) => "localhost".into(),
        }
    }
}

impl fmt::Display for ServerLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(host, port) | Self::Secure(host, port) if host.contains(':') => {
                write!(f, "[{host}]:{port}")
            }
            Self::Inet(host, port) | Self::Secure(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for LocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => write!(
                f,
                "invalid server address `{text}`: expected http://HOST:PORT/, https://HOST/, HOST:PORT or unix:PATH{}",
                punycode::remark(text)
            ),
            Self::User(text) => {
                write!(f, "`{text}` contains a user name: pass a token with --token or $ENCKE_TOKEN")
            }
        }
    }
}

impl Error for LocationError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_in_any_form() {
        for (text, server, path, query) in [
            ("8080", "127.0.0.1:8080", "", None),
            (":8080", "127.0.0.1:8080", "", None),
            ("localhost:8080", "localhost:8080", "", None),
            ("[::1]:8080", "[::1]:8080", "", None),
            ("http://example.com", "example.com:80", "", None),
            ("http://[::1]/", "[::1]:80", "/", None),
            ("https://example.com/push/news", "example.com:443", "/push/news", None),
            ("https://[::1]:8443", "[::1]:8443", "", None),
            ("http://h:1/push/a,b?since=all&x=/?#top", "h:1", "/push/a,b", Some("since=all&x=/?")),
            ("h:1?token=x", "h:1", "", Some("token=x")),
            ("h:1/push/news", "h:1", "/push/news", None),
            ("unix:/run/e.sock", "unix:/run/e.sock", "", None),
        ] {
            let found = Location::parse(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(found.server.to_string(), server, "{text}");
            assert_eq!((found.path.as_str(), found.query.as_deref()), (path, query), "{text}");
        }
        assert_eq!(ServerLocation::Unix("/s".into()).authority(), "localhost");
        let secure = Location::parse("https://h/").expect("a server").server;
        assert_eq!(secure, ServerLocation::Secure("h".into(), 443));
    }

    #[test]
    fn what_is_no_server_is_refused_with_a_reason() {
        for (text, said) in [
            ("", "invalid server address"),
            ("localhost", "invalid server address"),
            ("http://", "invalid server address"),
            ("http:///push/x", "invalid server address"),
            ("h:", "invalid server address"),
            ("h:65536", "invalid server address"),
            ("h:+1", "invalid server address"),
            ("a b:1", "invalid server address"),
            ("h:1/a\r\nX: y", "invalid server address"),
            ("http://[::1", "invalid server address"),
            ("http://[zz]:1/", "invalid server address"),
            ("ftp://h:1/", "invalid server address"),
            ("unix:", "invalid server address"),
            ("https:h:1/", "invalid server address"),
            ("http://user@h/", "`http://…@h/` contains a user name: pass a token with --token"),
        ] {
            let error = Location::parse(text).expect_err(text);
            assert!(error.to_string().contains(said), "{text}: {error}");
        }
    }
}
