//! The origin check: pages of the server's own origin and of `push.origins` may use this server.
//!
//! A browser sends the page's origin with every request that could change state, and with every WebSocket (RFC 6454, Fetch
//! §3.1). A page cannot forge it. Without the check a page of another site could use the cookie, or the network position, of
//! its visitor. A request without `Origin` comes from no page, or from a plain link.

use std::sync::Arc;

use encke_wire::field::Known;
use encke_wire::target::{self, Authority};

use crate::error::RightsError;
use encke_server::Request;

/// The origins whose pages may use this server, in addition to its own.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    any: bool,
    /// Lower case, without the scheme's default port: as browsers send them.
    listed: Box<[Arc<str>]>,
}

/// The page that sent a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestPage<'a> {
    /// The request names no page.
    None,
    /// A page of this server.
    Same,
    /// A page that the settings allow, with its origin.
    Listed(&'a [u8]),
    /// A page of another site, or with a hidden origin (`null`).
    Foreign(&'a [u8]),
}

/// Checks a text of `push.origins`.
///
/// ```
/// assert!(encke_rights::check_origin("https://example.org").is_ok());
/// assert!(encke_rights::check_origin("example.org").is_err());
/// ```
///
/// # Errors
/// The text is not an origin.
pub fn check_origin(text: &str) -> Result<(), RightsError> {
    Origins::new(&[text.to_owned()]).map(drop)
}

impl Origins {
    /// Parses the origins of the settings: `https://example.org`, or `*` for all.
    ///
    /// # Errors
    /// A text is not an origin.
    pub(crate) fn new(list: &[String]) -> Result<Self, RightsError> {
        let mut origins = Self::default();
        let mut listed = Vec::new();
        for text in list {
            if text == "*" {
                origins.any = true;
                continue;
            }
            let lower = text.to_ascii_lowercase();
            let (scheme, authority) =
                take_apart(lower.as_bytes()).ok_or_else(|| RightsError::Origin(text.clone()))?;
            let port = authority.port.filter(|port| Some(*port) != default_port(scheme));
            let end = port.map_or_else(String::new, |port| format!(":{port}"));
            let part = |bytes| String::from_utf8_lossy(bytes).into_owned();
            listed.push(format!("{}://{}{end}", part(scheme), part(authority.host)).into());
        }
        origins.listed = listed.into();
        Ok(origins)
    }

    /// Returns whether pages of every site are allowed.
    pub(super) const fn are_all(&self) -> bool {
        self.any
    }

    /// Returns an origin as the settings list it; `None` if only `*` allows it.
    pub(super) fn named(&self, origin: &[u8]) -> Option<Arc<str>> {
        self.listed.iter().find(|listed| listed.as_bytes() == origin).map(Arc::clone)
    }

    /// Returns the page that sent a request.
    pub(super) fn page<'a>(&self, request: &Request<'a>) -> RequestPage<'a> {
        let mut fields = request.all(Known::Origin);
        let Some(origin) = fields.next() else { return RequestPage::None };
        if fields.next().is_some() {
            return RequestPage::Foreign(b"null");
        }
        if self.any && origin != b"null" || self.named(origin).is_some() {
            return RequestPage::Listed(origin);
        }
        if is_same(origin, request) { RequestPage::Same } else { RequestPage::Foreign(origin) }
    }
}

impl RequestPage<'_> {
    /// Returns whether the page was loaded from this machine, on any port.
    pub(super) fn is_loopback(self) -> bool {
        match self {
            // The page was loaded from the Host of this request, which the caller has checked.
            Self::Same => true,
            Self::Listed(origin) | Self::Foreign(origin) => take_apart(origin)
                .is_some_and(|(scheme, authority)| default_port(scheme).is_some() && authority.is_loopback()),
            Self::None => false,
        }
    }
}

/// Returns whether an origin is the target of the request. A proxy in front may terminate TLS unnoticed, so an `http` origin is
/// rejected only if the request is known to be encrypted.
fn is_same(origin: &[u8], request: &Request<'_>) -> bool {
    let Some((scheme, page)) = take_apart(origin) else { return false };
    let Ok(here) = target::parse_authority(request.authority()) else { return false };
    let Some(default) = default_port(scheme) else { return false };
    page.host.eq_ignore_ascii_case(here.host)
        && page.port.unwrap_or(default) == here.port.unwrap_or(default)
        && (scheme.eq_ignore_ascii_case(b"https") || !request.origin().secure)
}

/// Splits `scheme://host[:port]` into scheme and authority; nothing may follow.
fn take_apart(origin: &[u8]) -> Option<(&[u8], Authority<'_>)> {
    let colon = origin.iter().position(|&byte| byte == b':')?;
    let (scheme, rest) = origin.split_at(colon);
    let well_formed = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    let authority = rest.strip_prefix(b"://").filter(|_| well_formed)?;
    Some((scheme, target::parse_authority(authority).ok()?))
}

fn default_port(scheme: &[u8]) -> Option<u16> {
    if scheme.eq_ignore_ascii_case(b"http") {
        Some(80)
    } else if scheme.eq_ignore_ascii_case(b"https") {
        Some(443)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::tests::Asked;

    #[test]
    fn a_page_is_of_this_server_if_scheme_host_and_port_say_so() {
        let origins = Origins::default();
        for (host, origin, same) in [
            ("example.org", "http://example.org", true),
            ("example.org", "https://example.org", true),
            ("example.org:443", "https://example.org", true),
            ("EXAMPLE.org:80", "http://example.ORG", true),
            ("example.org:8080", "http://example.org:8080", true),
            ("[::1]:8080", "http://[::1]:8080", true),
            ("example.org:8080", "http://example.org", false),
            ("example.org", "http://example.org:8080", false),
            ("example.org:80", "https://example.org", false),
            ("example.org", "https://www.example.org", false),
            ("example.org", "https://example.org.evil.example", false),
            ("example.org", "https://evil.example/example.org", false),
            ("example.org", "https://example.org@evil.example", false),
            ("example.org", "app://example.org", false),
            ("example.org", "null", false),
            ("example.org", "", false),
            ("", "http://", false),
        ] {
            let asked = Asked::get("/push/a").field("Host", host).field("Origin", origin);
            let page = asked.look(|request| origins.page(request) == RequestPage::Same);
            assert_eq!(page, same, "{origin} at {host}");
        }
    }

    #[test]
    fn a_plain_page_is_not_of_an_encrypted_server() {
        let asked = Asked::get("/push/a").field("Host", "h").secure();
        let page = |origin| {
            asked
                .clone()
                .field("Origin", origin)
                .look(|request| Origins::default().page(request) == RequestPage::Same)
        };
        assert!(page("https://h") && !page("http://h"));
    }

    #[test]
    fn listed_pages_are_taken_as_browsers_name_them() {
        let list =
            ["https://Example.org:443", "http://localhost:5173", "capacitor://localhost"].map(String::from);
        let origins = Origins::new(&list).expect("origins");
        for (origin, listed) in [
            ("https://example.org", true),
            ("http://localhost:5173", true),
            ("capacitor://localhost", true),
            ("http://example.org", false),
            ("https://example.org:444", false),
            ("http://localhost", false),
            ("null", false),
        ] {
            let asked = Asked::get("/").field("Host", "h").field("Origin", origin);
            assert_eq!(
                asked.look(|request| matches!(origins.page(request), RequestPage::Listed(_))),
                listed,
                "{origin}"
            );
        }
    }

    #[test]
    fn a_star_is_for_all_but_those_that_hide() {
        let origins = Origins::new(&["*".into()]).expect("a star");
        let listed = |origin| {
            let asked = Asked::get("/").field("Host", "h").field("Origin", origin);
            asked.look(|request| matches!(origins.page(request), RequestPage::Listed(_)))
        };
        assert!(listed("https://any.example") && !listed("null"));
    }

    #[test]
    fn two_origins_are_foreign() {
        let origins = Origins::new(&["http://a".into(), "http://b".into()]).expect("origins");
        let asked =
            Asked::get("/").field("Host", "a").field("Origin", "http://a").field("Origin", "http://b");
        assert!(asked.look(|request| matches!(origins.page(request), RequestPage::Foreign(_))));
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for text in
            ["", "example.org", "https://", "https://example.org/", "https://a b", "://a", "1a://b", "null"]
        {
            let error = Origins::new(&[text.to_owned()]).expect_err(text);
            assert!(error.to_string().contains("invalid origin"), "{error}");
        }
    }
}
