//! Redirects from `http` to `https`, for listeners with [`ListenConfig::to_https`](crate::ListenConfig::to_https).
//!
//! ```text
//!  GET, HEAD ─────► 301 ┐
//!  anything else ─► 308 ┴─ Location: https://HOST[:PORT]/PATH?QUERY, as they were sent
//! ```
//! ACME challenges (HTTP-01) are answered over plain HTTP. The `hsts` setting of a site makes browsers use `https` from the
//! start next time.

use encke_wire::method::Method;

use crate::reply::{Fields, Reply};
use crate::request::Request;

/// The default port of `https` (RFC 9110 §4.2.2).
pub const PORT: u16 = 443;

/// The path prefix of ACME HTTP-01 challenges (RFC 8555 §8.3).
pub const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// Whether a request must be redirected: it used https neither to this server nor to a trusted proxy, and is no ACME challenge.
pub(crate) fn is_missing(request: &Request<'_>) -> bool {
    !request.path().starts_with(CHALLENGES.as_bytes()) && !request.origin().secure
}

/// Builds the redirect of a request.
pub(crate) fn redirect(request: &Request<'_>, port: u16) -> Reply {
    let host = host(request.authority());
    let mut target = Vec::with_capacity(16 + host.len() + request.target().len());
    target.extend_from_slice(b"https://");
    target.extend_from_slice(host);
    if port != PORT {
        target.extend_from_slice(format!(":{port}").as_bytes());
    }
    target.extend_from_slice(request.path());
    if let Some(query) = request.query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    let mut fields = Fields::new();
    if host.is_empty() || fields.push("Location", &target).is_err() {
        return Reply::text(400, "400 Bad Request\nUse https. This request names no host.\n");
    }
    // Old clients turn a POST into a GET on a 301.
    let status = if matches!(request.method(), Method::Get | Method::Head) { 301 } else { 308 };
    let mut reply = Reply::text(status, format!("{status} {}\n", encke_wire::status::reason(status)));
    reply.fields.extend(&fields);
    reply
}

/// Returns an authority without its port.
fn host(authority: &[u8]) -> &[u8] {
    let ends = match authority.iter().position(|&byte| byte == b']') {
        Some(bracket) => bracket + 1,
        None => authority.iter().position(|&byte| byte == b':').unwrap_or(authority.len()),
    };
    &authority[..ends]
}

#[cfg(test)]
mod tests {
    use encke_io::{Now, Peer};
    use encke_wire::http1::{Head, HeadLimits};

    use super::*;
    use crate::request::{Asker, Origin};

    fn asked(head: &str, secure: bool, port: u16) -> Option<(u16, String)> {
        let mut parsed = Head::new();
        parsed.feed(head.as_bytes(), &HeadLimits::default());
        let origin = Origin {
            peer: Peer::Local,
            client: None,
            forwards: false,
            hidden: false,
            secure,
            tls: None,
            local: true,
        };
        let now = Now { mono_ns: 1, unix_ns: 1 };
        let request = Request {
            head: &parsed,
            bytes: head.as_bytes(),
            asker: Asker::Known(&origin),
            now,
            user: None,
            passed: None,
        };
        is_missing(&request).then(|| {
            let reply = redirect(&request, port);
            let place = reply.fields.value("Location").unwrap_or_default();
            (reply.status, String::from_utf8_lossy(place).into_owned())
        })
    }

    #[test]
    fn a_request_is_sent_on_with_its_path_and_query() {
        for (line, host, port, status, place) in [
            ("GET / HTTP/1.1", "example.org", 443, 301, "https://example.org/"),
            ("HEAD /a%20b?c=d&e HTTP/1.1", "example.org:80", 443, 301, "https://example.org/a%20b?c=d&e"),
            ("GET /? HTTP/1.1", "example.org", 443, 301, "https://example.org/?"),
            ("POST /push/news HTTP/1.1", "example.org:8080", 8443, 308, "https://example.org:8443/push/news"),
            ("GET / HTTP/1.1", "[2001:db8::1]:80", 443, 301, "https://[2001:db8::1]/"),
            ("GET / HTTP/1.1", "[2001:db8::1]", 8443, 301, "https://[2001:db8::1]:8443/"),
            ("GET http://other.org/x?y HTTP/1.1", "other.org", 443, 301, "https://other.org/x?y"),
            ("GET //evil.org/ HTTP/1.1", "example.org", 443, 301, "https://example.org//evil.org/"),
            ("GET /x HTTP/1.1", "", 443, 400, ""),
        ] {
            let head = format!("{line}\r\nHost: {host}\r\n\r\n");
            assert_eq!(asked(&head, false, port), Some((status, place.into())), "{head}");
        }
    }

    #[test]
    fn what_came_by_https_and_what_authorities_ask_for_is_answered_here() {
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: example.org\r\n\r\n");
        assert_eq!(asked(&get("/"), true, 443), None);
        assert_eq!(asked(&get("/.well-known/acme-challenge/token"), false, 443), None);
        assert!(asked(&get("/.well-known/other"), false, 443).is_some());
    }
}
