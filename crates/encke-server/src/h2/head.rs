//! Heads at the border: a stream's request in the form of HTTP/1, and an answer's head as fields of a stream.
//!
//! ```text
//! :method GET  :path /a?b  :authority h  cookie a  cookie b  ──►  GET /a?b HTTP/1.1 · Host: h · cookie: a; b
//! HTTP/1.1 200 OK · Date: … · Connection: close              ──►  :status 200  date …
//! ```
//! Requests are written down because the one recogniser of heads (`encke_wire::http1::Head`) judges what is in them,
//! however they came, and because a handler's `Request` is a view of what it recognised. Answers are read because
//! they are lines everywhere: in `Fields`, in prepared blocks, in the polls that push encodes once for all who wait.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};

/// How a request's body travels between the stream and the connection above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BodyForm {
    /// There is none.
    None,
    /// Its length is in the head.
    Length,
    /// Its length is not known: it is written down in chunks.
    Chunked,
    /// It is a tunnel's: frames of a WebSocket (RFC 8441).
    Tunnel,
}

/// The request is malformed in a way that HTTP/1 cannot even express: a stream error (RFC 9113 §8.1.1).
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// Writes a request down in the form of HTTP/1.1. `ended`: nothing follows its head.
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
    // An origin server serves http and https alone (RFC 9113 §8.3.1). The engine reports the scheme only with an authority.
    let scheme = parts.uri.scheme_str().filter(|_| authority.is_some()).unwrap_or("http");
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(Malformed);
    }
    let target = match parts.uri.path_and_query() {
        Some(path) if parts.method != Method::CONNECT || tunnel => path.as_str().as_bytes(),
        None if parts.method == Method::CONNECT => authority.ok_or(Malformed)?,
        // An extended CONNECT for some other protocol: the head is refused as the CONNECT it is.
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
            // They may come in crumbs, which are one field to everybody else (RFC 9113 §8.2.3).
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

/// An answer's head.
pub(super) struct Answer {
    pub(super) response: Response<()>,
    /// What `Content-Length` says.
    pub(super) content_bytes: Option<u64>,
    /// Length of the block it was read from, its empty line included.
    pub(super) block_bytes: usize,
}

/// Reads the head at the beginning of `block`, which is one that this server has written: whole, and well formed.
/// `None` if it is not. The 101 of a handshake is the 200 of a stream (RFC 8441 §5).
pub(super) fn answer(block: &[u8]) -> Option<Answer> {
    let status_end = block.iter().position(|&byte| byte == b'\n')?;
    let status = StatusCode::from_bytes(block.get(9..12)?).ok()?;
    let tunnel = status == StatusCode::SWITCHING_PROTOCOLS;
    let mut headers = HeaderMap::with_capacity(8);
    let mut content_bytes = None;
    let mut at = status_end + 1;
    loop {
        let line_end = at + block[at..].iter().position(|&byte| byte == b'\n')?;
        let line = block[at..line_end].strip_suffix(b"\r")?;
        at = line_end + 1;
        if line.is_empty() {
            break;
        }
        let (name, value) = field(line)?;
        if is_of_the_connection(&name) {
            continue;
        }
        if name == header::CONTENT_LENGTH {
            content_bytes = value.to_str().ok().and_then(|text| text.parse().ok());
        }
        headers.append(name, value);
    }
    let mut response = Response::new(());
    *response.status_mut() = if tunnel { StatusCode::OK } else { status };
    *response.headers_mut() = headers;
    Some(Answer { response, content_bytes, block_bytes: at })
}

/// The fields of trailers, which are lines as a head's are. `None` if they are not, or there are none.
pub(super) fn trailers(lines: &[u8]) -> Option<HeaderMap> {
    let mut fields = HeaderMap::new();
    for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let (name, value) = field(line.strip_suffix(b"\r")?)?;
        if !is_of_the_connection(&name) {
            fields.append(name, value);
        }
    }
    (!fields.is_empty()).then_some(fields)
}

fn field(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let name = HeaderName::from_bytes(&line[..colon]).ok()?;
    let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
    Some((name, value))
}

/// Whether a field speaks of an HTTP/1 connection: no stream has it (RFC 9113 §8.2.2, RFC 8441 §5).
fn is_of_the_connection(name: &HeaderName) -> bool {
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::SEC_WEBSOCKET_ACCEPT]
        .contains(name)
}

fn put_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// The key of a handshake that has none: RFC 8441 does without, and its answer's proof is dropped again.
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

    #[test]
    fn an_answer_loses_what_speaks_of_a_connection() {
        let block = b"HTTP/1.1 200 OK\r\nDate: now\r\nETag: \"x\"\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
        let answer = answer(block).expect("well formed");
        assert_eq!(answer.response.status(), 200);
        assert_eq!(answer.content_bytes, Some(5));
        assert_eq!(&block[answer.block_bytes..], b"hello");
        let names: Vec<&str> = answer.response.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["date", "etag", "content-length"]);
    }

    #[test]
    fn trailers_are_fields_without_a_head() {
        let fields =
            trailers(b"Checksum: abc\r\nTransfer-Encoding: chunked\r\nRows: 3\r\n").expect("well formed");
        let names: Vec<&str> = fields.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["checksum", "rows"]);
        for none in [&b""[..], b"Connection: close\r\n", b"no field\r\n", b"A: b\n"] {
            assert_eq!(trailers(none), None, "{none:?}");
        }
    }

    #[test]
    fn switching_protocols_is_a_plain_yes() {
        let block = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: encke.v1\r\n\r\n";
        let answer = answer(block).expect("well formed");
        assert_eq!(answer.response.status(), 200);
        let names: Vec<&str> = answer.response.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["sec-websocket-protocol"]);
    }

    #[test]
    fn what_is_no_whole_head_is_none() {
        let block = b"HTTP/1.1 204 No Content\r\nA: b\r\n\r\n";
        assert!(answer(block).is_some());
        for end in 0..block.len() {
            assert!(answer(&block[..end]).is_none(), "{end} bytes");
        }
    }
}
