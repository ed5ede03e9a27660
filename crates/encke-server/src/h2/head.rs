//! A stream's request in the form of HTTP/1.
//!
//! ```text
//! :method GET  :path /a?b  :authority h  cookie a  cookie b  ──►  GET /a?b HTTP/1.1 · Host: h · cookie: a; b
//! ```
//! Requests are written as text for two reasons. The only parser of heads (`encke_wire::http1::Head`) validates the requests of
//! every protocol, and a handler's `Request` is a view of that parser's result.

use http::Method;
use http::header::{self, HeaderValue};
use http::request::Parts;

/// The form of a request's body between the stream and the connection above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BodyForm {
    /// No body.
    None,
    /// The head has the length.
    Length,
    /// The length is unknown: the body is written in chunks.
    Chunked,
    /// The bytes of a tunnel: WebSocket frames (RFC 8441).
    Tunnel,
}

/// A request that HTTP/1 cannot express: a stream error (RFC 9113 §8.1.1).
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// Writes a request in the form of HTTP/1.1. `ended`: the request has no body.
pub(super) fn put_request(parts: &Parts, ended: bool, out: &mut Vec<u8>) -> Result<BodyForm, Malformed> {
    let protocol = parts.extensions.get::<h2::ext::Protocol>();
    let tunnel = parts.method == Method::CONNECT && protocol.is_some_and(|it| it.as_str() == "websocket");
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let host = parts.headers.get(header::HOST).map(HeaderValue::as_bytes);
    if let (Some(authority), Some(host)) = (authority, host)
        && !authority.eq_ignore_ascii_case(host)
    {
        return Err(Malformed);
    }
    // An origin server serves only http and https (RFC 9113 §8.3.1). The engine reports the scheme only with an authority.
    let scheme = parts.uri.scheme_str().filter(|_| authority.is_some()).unwrap_or("http");
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(Malformed);
    }
    let target = match parts.uri.path_and_query() {
        Some(path) if parts.method != Method::CONNECT || tunnel => path.as_str().as_bytes(),
        None if parts.method == Method::CONNECT => authority.ok_or(Malformed)?,
        // An extended CONNECT for another protocol is rejected like any CONNECT.
        Some(_) => authority.ok_or(Malformed)?,
        None => return Err(Malformed),
    };
    let method = if tunnel { "GET" } else { parts.method.as_str() };
    for part in [method.as_bytes(), b" ", target, b" HTTP/1.1\r\n"] {
        out.extend_from_slice(part);
    }
    if let Some(host) = authority.or(host) {
        put_line(b"Host", host, out);
    }
    let mut cookies = Vec::new();
    for (name, value) in &parts.headers {
        if name == header::HOST {
            continue;
        }
        if name == header::COOKIE {
            // HTTP/2 may split cookies into several fields, which are one field elsewhere (RFC 9113 §8.2.3).
            if !cookies.is_empty() {
                cookies.extend_from_slice(b"; ");
            }
            cookies.extend_from_slice(value.as_bytes());
            continue;
        }
        put_line(name.as_str().as_bytes(), value.as_bytes(), out);
    }
    if !cookies.is_empty() {
        put_line(b"cookie", &cookies, out);
    }
    let form = if tunnel {
        out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: ");
        out.extend_from_slice(SOCKET_KEY);
        out.extend_from_slice(b"\r\n");
        BodyForm::Tunnel
    } else if ended {
        BodyForm::None
    } else if parts.headers.contains_key(header::CONTENT_LENGTH) {
        BodyForm::Length
    } else {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        BodyForm::Chunked
    };
    out.extend_from_slice(b"\r\n");
    Ok(form)
}

fn put_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// A fixed WebSocket key: handshakes by RFC 8441 have none, and their responses have no proof.
const SOCKET_KEY: &[u8] = b"AAAAAAAAAAAAAAAAAAAAAA==";

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn written(request: http::request::Builder, ended: bool) -> Result<(String, BodyForm), Malformed> {
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let mut out = Vec::new();
        let form = put_request(&parts, ended, &mut out)?;
        Ok((String::from_utf8(out).expect("text"), form))
    }

    #[test]
    fn a_request_is_written_down_as_http1_has_it() {
        for (request, ended, expected, form) in [
            (
                Request::get("http://h:80/a?b").header("accept", "x"),
                true,
                "GET /a?b HTTP/1.1\r\nHost: h:80\r\naccept: x\r\n\r\n",
                BodyForm::None,
            ),
            (
                Request::post("http://h/").header("content-length", "3"),
                false,
                "POST / HTTP/1.1\r\nHost: h\r\ncontent-length: 3\r\n\r\n",
                BodyForm::Length,
            ),
            (
                Request::put("/").header("host", "h"),
                false,
                "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
                BodyForm::Chunked,
            ),
            (
                Request::get("http://h/").header("cookie", "a=1").header("cookie", "b=2"),
                true,
                "GET / HTTP/1.1\r\nHost: h\r\ncookie: a=1; b=2\r\n\r\n",
                BodyForm::None,
            ),
            (
                Request::connect("http://h/ws").extension(h2::ext::Protocol::from_static("websocket")),
                false,
                "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
                BodyForm::Tunnel,
            ),
            (
                Request::connect("h:443"),
                false,
                "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\nTransfer-Encoding: chunked\r\n\r\n",
                BodyForm::Chunked,
            ),
        ] {
            assert_eq!(written(request, ended), Ok((expected.to_owned(), form)));
        }
    }

    #[test]
    fn an_authority_and_a_host_that_differ_are_no_request() {
        assert_eq!(written(Request::get("http://h/").header("host", "other"), true), Err(Malformed));
        assert!(written(Request::get("http://h/").header("host", "H"), true).is_ok());
    }

    #[test]
    fn a_request_has_a_scheme_of_http() {
        for (uri, expected) in [
            ("http://h/", true),
            ("HTTPS://h/", true),
            ("ftp://h/", false),
            ("httpx://h/", false),
            ("/", true),
        ] {
            assert_eq!(written(Request::get(uri).header("host", "h"), true).is_ok(), expected, "{uri}");
        }
    }
}
