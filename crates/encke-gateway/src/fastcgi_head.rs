//! Writes the start of a FastCGI request: the variables of a CGI program (RFC 3875 §4.1), from the head that an HTTP application
//! would get.
//!
//! ```text
//!  head for an application ─► method, target ─► REQUEST_METHOD, REQUEST_URI, SCRIPT_NAME, PATH_INFO, QUERY_STRING
//!                            fields ──────────► CONTENT_TYPE, CONTENT_LENGTH, HTTP_*
//!  origin ───────────────────────────────────► REMOTE_ADDR, REMOTE_PORT, HTTPS
//! ```
//! The head has neither names with underscores nor `Proxy` (httpoxy): see [`crate::request_head`].

use std::path::Path;

use encke_io::Peer;
use encke_server::Origin;
use encke_wire::fastcgi::{put_begin, put_pair, put_params};
use encke_wire::field::Known;
use encke_wire::http1::{Head, HeadField, Progress, decimal};
use encke_wire::target::{decode_path, parse_authority};

use crate::app_file::HEAD_LIMITS;
use crate::request_head::put_address;
use crate::script::PhpScript;

/// What [`FastCgiWriter::put`] needs besides the head.
pub(crate) struct FastCgiPlan<'a> {
    pub(crate) origin: &'a Origin,
    /// The script of a PHP request; `None` for a program that serves all paths itself.
    pub(crate) script: Option<&'a PhpScript>,
    /// The directory of the site's files.
    pub(crate) root: Option<&'a Path>,
    /// Whether the application may keep the connection.
    pub(crate) keep: bool,
}

/// Writes the starts of requests, with buffers that all of them use.
#[derive(Default)]
pub(crate) struct FastCgiWriter {
    parsed: Box<Head>,
    pairs: Vec<u8>,
    name: Vec<u8>,
}

/// Bytes of variables for which a buffer is kept.
const KEPT_BYTES: usize = 16 * 1024;

impl FastCgiWriter {
    /// Appends the start of a request. `head` is that for an HTTP application. Returns false if it is malformed.
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, head: &[u8], plan: &FastCgiPlan<'_>) -> bool {
        let Self { parsed, pairs, name } = self;
        parsed.reset();
        if !matches!(parsed.feed(head, &HEAD_LIMITS), Progress::Done { .. }) {
            return false;
        }
        pairs.clear();
        pairs.reserve(head.len() * 2 + 512);
        let mut pair = |name: &[u8], value: &[u8]| put_pair(pairs, name, value);
        pair(b"GATEWAY_INTERFACE", b"CGI/1.1");
        pair(b"SERVER_SOFTWARE", b"encke");
        pair(b"SERVER_PROTOCOL", b"HTTP/1.1");
        pair(b"REQUEST_METHOD", parsed.method_text(head));
        let target = parsed.target(head);
        pair(b"REQUEST_URI", target);
        let query = target.iter().position(|byte| *byte == b'?');
        pair(b"QUERY_STRING", query.and_then(|at| target.get(at + 1..)).unwrap_or_default());
        match plan.script {
            Some(script) => {
                pair(b"SCRIPT_NAME", script.name.as_bytes());
                pair(b"PATH_INFO", script.path_info.as_bytes());
                pair(b"SCRIPT_FILENAME", script.file.as_os_str().as_encoded_bytes());
                // php-cgi refuses to run without it.
                pair(b"REDIRECT_STATUS", b"200");
            }
            None => {
                let raw = target.get(..query.unwrap_or(target.len())).unwrap_or_default();
                let mut path = String::new();
                if decode_path(raw, &mut path).is_err() {
                    return false;
                }
                pair(b"SCRIPT_NAME", b"");
                pair(b"PATH_INFO", path.as_bytes());
            }
        }
        if let Some(root) = plan.root {
            pair(b"DOCUMENT_ROOT", root.as_os_str().as_encoded_bytes());
        }
        put_origin(&mut pair, plan.origin, parsed.host(head), name);
        let fields: Vec<HeadField<'_>> = parsed.head_fields(head).collect();
        for (place, field) in fields.iter().enumerate() {
            match field.known {
                // A second one would be a second variable, of which programs take the first or the last.
                Some(Known::ContentType)
                    if fields.iter().take(place).any(|other| other.known == Some(Known::ContentType)) => {}
                Some(Known::ContentType) => pair(b"CONTENT_TYPE", field.value),
                Some(Known::ContentLength) => pair(b"CONTENT_LENGTH", field.value),
                Some(Known::Connection | Known::TransferEncoding | Known::Te | Known::Upgrade) => {}
                // PHP reads a dot and others as an underscore, and so as a part of another name.
                _ if !field
                    .name
                    .iter()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) => {}
                _ => {
                    let same = |other: &&HeadField<'_>| other.name.eq_ignore_ascii_case(field.name);
                    // Several fields are one variable (RFC 3875 §4.1.18), at the place of the first one.
                    if fields.iter().take(place).any(|other| same(&other)) {
                        continue;
                    }
                    let mut later = fields.iter().skip(place + 1).filter(same).map(|other| other.value);
                    put_name(name, field.name);
                    match later.next() {
                        None => pair(name, field.value),
                        Some(second) => {
                            let separator: &[u8] =
                                if field.known == Some(Known::Cookie) { b"; " } else { b", " };
                            let values = [field.value, second].into_iter().chain(later);
                            pair(name, &values.collect::<Vec<_>>().join(separator));
                        }
                    }
                }
            }
        }
        put_begin(out, plan.keep);
        put_params(out, pairs);
        if pairs.capacity() > KEPT_BYTES {
            *pairs = Vec::new();
        }
        true
    }
}

/// Passes the variables of the client and of this server to `pair`. The content of `text` is replaced.
fn put_origin(pair: &mut impl FnMut(&[u8], &[u8]), origin: &Origin, host: &[u8], text: &mut Vec<u8>) {
    if let Some(client) = origin.client {
        text.clear();
        put_address(text, client.to_canonical());
        pair(b"REMOTE_ADDR", text);
    }
    if let Peer::Inet(peer) = origin.peer
        && origin.client.is_some_and(|client| client.to_canonical() == peer.ip().to_canonical())
    {
        pair(b"REMOTE_PORT", decimal(peer.port().into(), &mut [0; 20]));
    }
    pair(b"REQUEST_SCHEME", if origin.secure { b"https" } else { b"http" });
    if origin.secure {
        pair(b"HTTPS", b"on");
    }
    let authority = parse_authority(host).ok();
    pair(b"SERVER_NAME", authority.as_ref().map_or(host, |authority| authority.host));
    let port = authority.and_then(|authority| authority.port).unwrap_or(if origin.secure { 443 } else { 80 });
    pair(b"SERVER_PORT", decimal(port.into(), &mut [0; 20]));
}

/// Replaces `out` by the name of the variable for a field (RFC 3875 §4.1.18): `User-Agent` is `HTTP_USER_AGENT`.
fn put_name(out: &mut Vec<u8>, name: &[u8]) {
    out.clear();
    out.extend_from_slice(b"HTTP_");
    out.extend(name.iter().map(|byte| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() }));
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    /// The variables in PARAMS records, as `NAME=value`.
    fn variables(bytes: &[u8]) -> Vec<String> {
        let mut pairs = Vec::new();
        let mut rest = bytes;
        while let [1, kind, 0, 1, high, low, 0, 0, after @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if *kind == 4 {
                pairs.extend_from_slice(&after[..length]);
            }
            rest = &after[length..];
        }
        let mut found = Vec::new();
        let mut rest = &pairs[..];
        let length = |rest: &mut &[u8]| match **rest {
            [short, ref after @ ..] if short < 0x80 => {
                *rest = after;
                usize::from(short)
            }
            [a, b, c, d, ref after @ ..] => {
                *rest = after;
                u32::from_be_bytes([a & 0x7f, b, c, d]) as usize
            }
            _ => panic!("a length"),
        };
        while !rest.is_empty() {
            let (name, value) = (length(&mut rest), length(&mut rest));
            found.push(format!(
                "{}={}",
                String::from_utf8_lossy(&rest[..name]),
                String::from_utf8_lossy(&rest[name..name + value])
            ));
            rest = &rest[name + value..];
        }
        found
    }

    fn of(head: &str, script: Option<&PhpScript>) -> Vec<String> {
        let peer = "203.0.113.9:5000".parse().expect("an address");
        let origin = Origin {
            peer: Peer::Inet(peer),
            client: Some(IpAddr::from([203, 0, 113, 9])),
            forwards: false,
            hidden: false,
            secure: true,
            tls: None,
            local: false,
        };
        let plan = FastCgiPlan { origin: &origin, script, root: Some(Path::new("/srv/www")), keep: false };
        let mut out = Vec::new();
        assert!(FastCgiWriter::default().put(&mut out, head.as_bytes(), &plan));
        variables(&out)
    }

    #[test]
    fn several_content_types_are_one_variable() {
        let head =
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\ncontent-type: text/x-evil\r\n\r\n";
        let found = of(head, None);
        let types: Vec<_> = found.iter().filter(|variable| variable.contains("CONTENT_TYPE")).collect();
        assert_eq!(types, ["CONTENT_TYPE=text/plain"]);
    }

    #[test]
    fn a_program_gets_the_variables_of_cgi() {
        let head = "POST /a%20b/c?d=e&f HTTP/1.1\r\nHost: shop.example:8443\r\nContent-Type: text/plain\r\n\
                    Content-Length: 3\r\nX-Own: 1\r\nX-Own: 2\r\nX.Own: evil\r\nX-Ow~n: evil\r\nConnection: close\r\n\r\n";
        let found = of(head, None);
        for variable in [
            "REQUEST_METHOD=POST",
            "REQUEST_URI=/a%20b/c?d=e&f",
            "QUERY_STRING=d=e&f",
            "SCRIPT_NAME=",
            "PATH_INFO=/a b/c",
            "DOCUMENT_ROOT=/srv/www",
            "REMOTE_ADDR=203.0.113.9",
            "REMOTE_PORT=5000",
            "HTTPS=on",
            "SERVER_NAME=shop.example",
            "SERVER_PORT=8443",
            "CONTENT_TYPE=text/plain",
            "CONTENT_LENGTH=3",
            "HTTP_HOST=shop.example:8443",
            "HTTP_X_OWN=1, 2",
        ] {
            assert!(found.iter().any(|other| other == variable), "{variable}: {found:?}");
        }
        let names: Vec<_> = found.iter().filter_map(|pair| pair.split('=').next()).collect();
        assert!(!names.contains(&"HTTP_CONNECTION") && !names.contains(&"HTTP_CONTENT_LENGTH"), "{names:?}");
        assert_eq!(
            names.iter().filter(|name| name.starts_with("HTTP_X")).count(),
            1,
            "one variable: {names:?}"
        );
    }

    #[test]
    fn a_script_has_a_name_a_file_and_the_rest_of_the_path() {
        let script = PhpScript {
            name: "/app/index.php".into(),
            path_info: "/x/y".into(),
            file: "/srv/www/app/index.php".into(),
            root: "/srv/www".into(),
            is_front: false,
        };
        let found = of("GET /app/index.php/x/y HTTP/1.1\r\nHost: a\r\n\r\n", Some(&script));
        for variable in [
            "SCRIPT_NAME=/app/index.php",
            "PATH_INFO=/x/y",
            "SCRIPT_FILENAME=/srv/www/app/index.php",
            "QUERY_STRING=",
        ] {
            assert!(found.iter().any(|other| other == variable), "{variable}: {found:?}");
        }
    }
}
