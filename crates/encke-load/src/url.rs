//! URLs as people write them: `http://HOST[:PORT]/PATH?QUERY`, `https://…`, `HOST:PORT/PATH`, `:PORT/PATH`.
//!
//! Parses the parts of a URL (RFC 3986) that a request needs: the server to connect to, the value of `Host`, and the request
//! target. Relative references are not resolved and nothing is normalised: the text is sent as written.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use crate::input::InputError;

/// URL of a server that load is sent to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    /// Whether the scheme is https.
    secure: bool,
    /// Name or address; IPv6 without brackets.
    host: String,
    port: u16,
    /// Path and query; begins with a slash.
    target: String,
}

/// Default port of http (RFC 9110 section 4.2.1).
const HTTP_PORT: u16 = 80;
/// Default port of https (RFC 9110 section 4.2.2).
const HTTPS_PORT: u16 = 443;

impl Url {
    /// Whether the scheme is https.
    pub const fn is_secure(&self) -> bool {
        self.secure
    }

    /// Name or address of the server; IPv6 without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Path and query, as in the request line.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Host and port as in the field `Host` (RFC 9110 section 7.2), without the default port.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == usual_port(self.secure) { host } else { format!("{host}:{}", self.port) }
    }

    /// Scheme, host and port, without the default port.
    pub fn origin(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// Whether both URLs have the same scheme, host and port.
    pub fn same_server(&self, other: &Self) -> bool {
        (self.secure, &self.host, self.port) == (other.secure, &other.host, other.port)
    }

    /// The addresses of the server, in the system's order of preference (getaddrinfo(3)).
    ///
    /// # Errors
    /// The name is unknown, or has no address.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let found: Vec<SocketAddr> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("`{}` has no address", self.host)));
        }
        Ok(found)
    }
}

impl FromStr for Url {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        let wrong = || InputError::Url(text.to_owned());
        // Only visible ASCII is valid in a URL. Anything else must not reach the lines of a request.
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong());
        }
        let secured = text.strip_prefix("https://");
        let secure = secured.is_some();
        let written = secured.or_else(|| text.strip_prefix("http://"));
        let rest = written.unwrap_or(text);
        let rest = rest.split('#').next().unwrap_or(rest);
        let (authority, behind) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if let Some((_, server)) = authority.rsplit_once('@') {
            // Without the password: logs keep errors.
            let scheme = written.map_or("", |written| &text[..text.len() - written.len()]);
            return Err(InputError::UserInUrl(format!("{scheme}…@{server}{behind}")));
        }
        let (host, port) = server(authority).ok_or_else(wrong)?;
        let port = match port {
            Some(port) => port,
            None if written.is_some() => usual_port(secure),
            None => return Err(wrong()),
        };
        let target = if behind.starts_with('/') { behind.to_owned() } else { format!("/{behind}") };
        Ok(Self { secure, host, port, target })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.target)
    }
}

const fn usual_port(secure: bool) -> u16 {
    if secure { HTTPS_PORT } else { HTTP_PORT }
}

/// Parses `HOST`, `HOST:PORT`, `:PORT`, `PORT` or `[IPV6]:PORT`.
fn server(authority: &str) -> Option<(String, Option<u16>)> {
    const LOOPBACK: &str = "127.0.0.1";
    if let Some(port) = number(authority) {
        return Some((LOOPBACK.into(), Some(port)));
    }
    if let Some(inner) = authority.strip_prefix('[') {
        let (address, behind) = inner.split_once(']')?;
        address.parse::<std::net::Ipv6Addr>().ok()?;
        let port = if behind.is_empty() { None } else { Some(number(behind.strip_prefix(':')?)?) };
        return Some((address.to_owned(), port));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, digits)) => (if host.is_empty() { LOOPBACK } else { host }, Some(number(digits)?)),
        None => (authority, None),
    };
    let named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (!host.is_empty() && host.bytes().all(named)).then(|| (host.to_owned(), port))
}

fn number(digits: &str) -> Option<u16> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_as_it_is_written() {
        for (text, authority, target) in [
            ("http://example.com", "example.com", "/"),
            ("http://example.com:80/a", "example.com", "/a"),
            ("http://example.com:8080/a?b=c#d", "example.com:8080", "/a?b=c"),
            ("http://h?x", "h", "/?x"),
            ("http://[::1]:81/", "[::1]:81", "/"),
            ("localhost:8080/x", "localhost:8080", "/x"),
            (":8080", "127.0.0.1:8080", "/"),
            ("8080/x", "127.0.0.1:8080", "/x"),
            ("https://example.com/a", "example.com", "/a"),
            ("https://example.com:80/a", "example.com:80", "/a"),
            ("http://h/{seq}?r={rand:1-9}", "h", "/{seq}?r={rand:1-9}"),
        ] {
            let url: Url = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((url.authority().as_str(), url.target()), (authority, target), "{text}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused_with_a_reason() {
        for (text, said) in [
            ("", "invalid URL"),
            ("example.com/x", "invalid URL"),
            ("http://", "invalid URL"),
            ("http://h:65536/", "invalid URL"),
            ("http://h:/", "invalid URL"),
            ("http://[::1/", "invalid URL"),
            ("http://h/a b", "invalid URL"),
            ("http://h/a\r\nX:y", "invalid URL"),
            ("ftp://h:1/", "invalid URL"),
            ("https:/h/", "invalid URL"),
            ("http://a:b@h/", "`http://…@h/` contains a user name: send credentials with -H 'Authorization"),
        ] {
            let error = text.parse::<Url>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
