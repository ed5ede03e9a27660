//! Access to the admin listener: host names, origins, and credentials.
//!
//! ```text
//!  request ─► own host? ─ no ─► 421      own origin? ─ no ─► 403      credentials? ─► Identity, or 401
//! ```
//! A foreign web page can send a browser here. If its host name resolves to this machine (DNS rebinding), the host gives it
//! away. Otherwise its origin does: browsers add `Sec-Fetch-Site` (Fetch Metadata) to every request, and `Origin` to those that
//! can change something. The session cookie is for same-site requests only, and changes need the session's CSRF token as well.

use std::net::{Ipv4Addr, Ipv6Addr};

use encke_server::Request;
use encke_wire::field::Known;
use encke_wire::target;

/// The name of the session cookie, and its name over TLS (RFC 6265bis §4.1.3.2).
const COOKIE: &str = concat!("encke", "_session_");
const SECURE_COOKIE: &str = concat!("__Host-encke", "_session_");

/// Returns whether a foreign web page cannot have this host: an IP address, a loopback name, or none.
pub(crate) fn host_is_own(authority: &[u8]) -> bool {
    let Ok(authority) = target::parse_authority(authority) else { return authority.is_empty() };
    let host = std::str::from_utf8(authority.host).unwrap_or_default();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    authority.is_loopback()
        || host.parse::<Ipv4Addr>().is_ok()
        || address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

/// The origin of a request, as far as its browser tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestOrigin {
    /// No browser, the user, or a page of this listener.
    Own,
    /// A page of another origin opens this page, by a link.
    Navigation,
    /// A page of another origin sends a request.
    Foreign,
}

impl RequestOrigin {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let is_navigation = request.field("sec-fetch-mode") == Some(b"navigate");
        let mut origins = request.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"origin"));
        if origins.any(|(_, origin)| !is_same_origin(origin, request.authority())) {
            return Self::Foreign;
        }
        match request.field("sec-fetch-site") {
            None | Some(b"same-origin" | b"none") => Self::Own,
            Some(_) if is_navigation => Self::Navigation,
            Some(_) => Self::Foreign,
        }
    }
}

/// Whether an origin has this authority. The scheme is not compared: a listener has only one.
fn is_same_origin(origin: &[u8], authority: &[u8]) -> bool {
    let of =
        |scheme: &[u8]| origin.strip_prefix(scheme).is_some_and(|host| host.eq_ignore_ascii_case(authority));
    of(b"http://") || of(b"https://")
}

/// Returns the token of `Authorization: Bearer`.
pub(crate) fn bearer<'a>(request: &Request<'a>) -> Option<&'a [u8]> {
    let (scheme, token) = request.known(Known::Authorization)?.split_first_chunk::<7>()?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Returns the values of the session cookie; a foreign page of the same host may have set others. A connection with TLS has a
/// cookie of its own, which no plain page can set.
pub(crate) fn session_cookies<'a>(request: &Request<'a>) -> impl Iterator<Item = &'a str> {
    let name = cookie_name(request);
    let pairs = request.all(Known::Cookie).flat_map(|field| field.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        std::str::from_utf8(value).ok()
    })
}

/// The name of the session cookie on the listener of a request. Cookies ignore ports, so the name has the port: two servers on
/// one host do not log each other out.
pub(crate) fn cookie_name(request: &Request<'_>) -> String {
    let is_secure = request.origin().secure;
    let port = target::parse_authority(request.authority()).ok().and_then(|authority| authority.port);
    let port = port.unwrap_or(if is_secure { 443 } else { 80 });
    format!("{}{port}", if is_secure { SECURE_COOKIE } else { COOKIE })
}

/// Compares in constant time: the time does not depend on the position of the first difference.
pub(crate) fn same(given: &[u8], wanted: &[u8]) -> bool {
    let differing = given.iter().zip(wanted).fold(0, |differing, (one, other)| differing | (one ^ other));
    given.len() == wanted.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use encke_server::{Fields, Kept};

    use super::*;

    #[test]
    fn only_hosts_that_no_foreign_page_can_have_are_answered() {
        for host in
            ["", "localhost", "localhost:8081", "127.0.0.1:8081", "[::1]:8081", "10.1.2.3", "[2001:db8::1]"]
        {
            assert!(host_is_own(host.as_bytes()), "{host}");
        }
        for host in ["example.org", "localhost.example.org", "127.0.0.1.example.org:8081", "1.2.3", "a b"] {
            assert!(!host_is_own(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn a_token_is_compared_whole() {
        assert!(same(b"secret", b"secret"));
        for other in ["", "secre", "secret ", "Secret", "secretsecret"] {
            assert!(!same(other.as_bytes(), b"secret"), "{other}");
        }
    }

    fn origin(fields: &[(&str, &str)]) -> RequestOrigin {
        let mut sent = Fields::new();
        for (name, value) in fields {
            sent.push(name, value.as_bytes()).expect("a valid field");
        }
        let kept = Kept::sample("POST", "/api/v1/session", "127.0.0.1:8081", &sent).expect("a valid request");
        RequestOrigin::of(&kept.view())
    }

    #[test]
    fn requests_of_other_origins_are_recognized() {
        use RequestOrigin::{Foreign, Navigation, Own};
        for (fields, expected) in [
            (&[][..], Own),
            (&[("Origin", "http://127.0.0.1:8081")], Own),
            (&[("Origin", "HTTP://127.0.0.1:8081")], Foreign),
            (&[("Origin", "http://127.0.0.1:8080")], Foreign),
            (&[("Origin", "http://localhost:8081")], Foreign),
            (&[("Origin", "null")], Foreign),
            (&[("Origin", "")], Foreign),
            (&[("Sec-Fetch-Site", "same-origin")], Own),
            (&[("Sec-Fetch-Site", "none")], Own),
            (&[("Sec-Fetch-Site", "same-site")], Foreign),
            (&[("Sec-Fetch-Site", "cross-site")], Foreign),
            (&[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")], Navigation),
            (&[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "cors")], Foreign),
            (
                &[("Origin", "null"), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")],
                Foreign,
            ),
        ] {
            assert_eq!(origin(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn the_session_cookie_is_found_among_others() {
        for (cookie, expected) in [
            ("encke_session_8081=abc", &["abc"][..]),
            ("a=b; encke_session_8081=abc; c=d", &["abc"]),
            ("encke_session_8081=foreign;encke_session_8081=abc", &["foreign", "abc"]),
            ("a=b;encke_session_8081=", &[""]),
            ("xencke_session_8081=abc", &[]),
            ("encke_session_80=abc", &[]),
            ("__Host-encke_session_8081=abc", &[]),
            ("", &[]),
        ] {
            let mut sent = Fields::new();
            sent.push("Cookie", cookie.as_bytes()).expect("a valid field");
            let kept = Kept::sample("GET", "/", "localhost:8081", &sent).expect("a valid request");
            assert_eq!(session_cookies(&kept.view()).collect::<Vec<_>>(), expected, "{cookie}");
        }
    }
}
