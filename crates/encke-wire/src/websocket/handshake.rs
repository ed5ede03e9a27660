//! The handshake (RFC 6455 §4): checks whether a request is a valid upgrade, and creates the response.
//!
//! ```text
//!   GET /push/news HTTP/1.1                            HTTP/1.1 101 Switching Protocols
//!   Connection: keep-alive, Upgrade                    Connection: Upgrade
//!   Upgrade: websocket                    check        Upgrade: websocket
//!   Sec-WebSocket-Version: 13            ───────►      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=
//!   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==
//!   Sec-WebSocket-Protocol: encke.v1, chat             Sec-WebSocket-Protocol: encke.v1
//! ```
//!
//! The server decides whether the client may connect (Origin, rights), and which of the offered sub-protocols is used.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

use crate::field::{self, Known};
use crate::http1::Version;
use crate::method::Method;

/// The only supported version. A 426 announces it in `Sec-WebSocket-Version`.
pub const VERSION: &str = "13";

/// A request that may be accepted with 101.
#[derive(Clone, Debug)]
pub struct WebSocketHandshake<V> {
    /// The value of `Sec-WebSocket-Accept`.
    pub accept: [u8; 28],
    offered: V,
}

/// The reason why a request is not a valid handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The method is not GET.
    Method,
    /// The request is HTTP/1.0.
    Http10,
    /// `Connection` does not name `upgrade`.
    Connection,
    /// `Upgrade` does not name `websocket`.
    Upgrade,
    /// The request has a body, which would be taken for frames.
    Body,
    /// `Sec-WebSocket-Version` is missing or repeated.
    VersionMissing,
    /// `Sec-WebSocket-Version` is a version other than 13.
    VersionUnknown,
    /// `Sec-WebSocket-Key` is missing or repeated.
    KeyMissing,
    /// `Sec-WebSocket-Key` is not the Base64 form of 16 bytes.
    KeyInvalid,
    /// `Sec-WebSocket-Protocol` has an element that is not a token.
    Protocol,
}

impl<'a, V: Iterator<Item = &'a [u8]> + Clone> WebSocketHandshake<V> {
    /// Checks a request. `all` yields the values of all lines of a field, as [`crate::http1::Head::all`] does.
    ///
    /// # Errors
    /// The first rule that the request breaks.
    pub fn check(method: Method, version: Version, all: impl Fn(Known) -> V) -> Result<Self, HandshakeError> {
        if method != Method::Get {
            return Err(HandshakeError::Method);
        }
        if version == Version::Http10 {
            return Err(HandshakeError::Http10);
        }
        if !names(all(Known::Connection), b"upgrade") {
            return Err(HandshakeError::Connection);
        }
        if !names(all(Known::Upgrade), b"websocket") {
            return Err(HandshakeError::Upgrade);
        }
        let is_empty = |length: &[u8]| length.iter().all(|&digit| digit == b'0');
        if all(Known::TransferEncoding).next().is_some() || !all(Known::ContentLength).all(is_empty) {
            return Err(HandshakeError::Body);
        }
        let version = single(all(Known::SecWebSocketVersion)).ok_or(HandshakeError::VersionMissing)?;
        if version != VERSION.as_bytes() {
            return Err(HandshakeError::VersionUnknown);
        }
        let key = single(all(Known::SecWebSocketKey)).ok_or(HandshakeError::KeyMissing)?;
        let key: &[u8; 24] = key.try_into().map_err(|_| HandshakeError::KeyInvalid)?;
        if !is_key(key) {
            return Err(HandshakeError::KeyInvalid);
        }
        let offered = all(Known::SecWebSocketProtocol);
        if !offered.clone().flat_map(field::list).all(field::is_token) {
            return Err(HandshakeError::Protocol);
        }
        Ok(Self { accept: accept_of(key), offered })
    }

    /// The sub-protocols that the client supports, in order of preference.
    pub fn protocols(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a, V> {
        self.offered.clone().flat_map(field::list)
    }

    /// Appends the field lines of the response, a 101. `protocol` is one of [`WebSocketHandshake::protocols`], or `None`.
    pub fn put_fields(&self, out: &mut Vec<u8>, protocol: Option<&str>) {
        out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ");
        out.extend_from_slice(&self.accept);
        out.extend_from_slice(b"\r\n");
        if let Some(protocol) = protocol {
            debug_assert!(field::is_token(protocol.as_bytes()), "{protocol}");
            out.extend_from_slice(b"Sec-WebSocket-Protocol: ");
            out.extend_from_slice(protocol.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

impl HandshakeError {
    /// The status of the response. A 426 must also have `Sec-WebSocket-Version:` [`VERSION`] and `Upgrade: websocket`.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::VersionUnknown => 426,
            _ => 400,
        }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Method => "A WebSocket begins with GET.",
            Self::Http10 => "A WebSocket needs HTTP/1.1.",
            Self::Connection => "Connection does not name upgrade.",
            Self::Upgrade => "Upgrade does not name websocket.",
            Self::Body => "A request that opens a WebSocket has no body.",
            Self::VersionMissing => "Sec-WebSocket-Version is missing or repeated.",
            Self::VersionUnknown => "Sec-WebSocket-Version is not 13.",
            Self::KeyMissing => "Sec-WebSocket-Key is missing or repeated.",
            Self::KeyInvalid => "Sec-WebSocket-Key is not 16 bytes in Base64.",
            Self::Protocol => "Sec-WebSocket-Protocol is not a list of tokens.",
        })
    }
}

impl std::error::Error for HandshakeError {}

/// Encodes a client's key: 16 unpredictable bytes in Base64.
#[must_use]
pub fn key_of(nonce: [u8; 16]) -> [u8; 24] {
    let mut key = [0; 24];
    let written = STANDARD.encode_slice(nonce, &mut key);
    debug_assert_eq!(written, Ok(key.len()), "16 bytes are 24 in Base64");
    key
}

/// The accept value with which a server responds to `key` (RFC 6455 §4.2.2), and which the client checks.
///
/// ```
/// // The example of RFC 6455, section 1.3.
/// let accept = encke_wire::websocket::accept_of(b"dGhlIHNhbXBsZSBub25jZQ==");
/// assert_eq!(&accept, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
/// ```
#[must_use]
pub fn accept_of(key: &[u8; 24]) -> [u8; 28] {
    let digest = Sha1::new().chain_update(key).chain_update(SALT).finalize();
    let mut accept = [0; 28];
    let written = STANDARD.encode_slice(digest, &mut accept);
    debug_assert_eq!(written, Ok(accept.len()), "20 bytes are 28 in Base64");
    accept
}

/// Whether a line of a field lists `name` (case-insensitive).
fn names<'a>(lines: impl Iterator<Item = &'a [u8]>, name: &[u8]) -> bool {
    lines.flat_map(field::list).any(|element| element.eq_ignore_ascii_case(name))
}

/// The value of a field that has exactly one line.
fn single<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    let value = lines.next()?;
    lines.next().is_none().then_some(value)
}

/// Whether `key` is the canonical Base64 form of 16 bytes: padded, and without set bits that belong to no byte.
fn is_key(key: &[u8; 24]) -> bool {
    // The decoder requires room for whole groups of three.
    STANDARD.decode_slice(key, &mut [0; 18]) == Ok(16)
}

/// RFC 6455 §1.3.
const SALT: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{Head, HeadLimits, Progress, Values};

    const VALID: &[&str] = &[
        "Host: x",
        "Connection: keep-alive, Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];

    /// The result for the request with `lines` after its first one: accept value and protocols.
    fn check(first: &str, lines: &[&str]) -> Result<(String, Vec<String>), HandshakeError> {
        let request = format!("{first}\r\n{}\r\n\r\n", lines.join("\r\n"));
        let mut head = Head::new();
        let progress = head.feed(request.as_bytes(), &HeadLimits::default());
        assert!(matches!(progress, Progress::Done { .. }), "{request}: {progress:?}");
        let values = |known| -> Values<'_> { head.all(request.as_bytes(), known) };
        let handshake = WebSocketHandshake::check(head.method(), head.version(), values)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((text(&handshake.accept), handshake.protocols().map(text).collect()))
    }

    fn get(lines: &[&str]) -> Result<(String, Vec<String>), HandshakeError> {
        check("GET /chat HTTP/1.1", lines)
    }

    /// The valid request, in which `lines` replace the line of `name`.
    fn with(name: &str, lines: &[&'static str]) -> Vec<&'static str> {
        let kept = VALID.iter().filter(|line| !line.starts_with(&format!("{name}:"))).copied();
        kept.chain(lines.iter().copied()).collect()
    }

    #[test]
    fn the_example_of_the_rfc_is_accepted() {
        assert_eq!(get(VALID), Ok(("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".into(), vec![])));
        assert_eq!(key_of(*b"the sample nonce"), *b"dGhlIHNhbXBsZSBub25jZQ==");
    }

    #[test]
    fn lists_may_be_spread_over_lines_and_have_any_mix_of_cases() {
        let lines = with("Connection", &["Connection: keep-alive", "CONNECTION: foo,,UPGRADE ,bar"]);
        assert!(get(&lines).is_ok());
        assert!(get(&with("Upgrade", &["Upgrade: h2c, WebSocket"])).is_ok());
        assert!(get(&with("Upgrade", &["Upgrade: h2c", "Upgrade: WEBSOCKET"])).is_ok());
        assert!(get(&with("None", &["Content-Length: 0"])).is_ok());
        let lines = with("None", &["Sec-WebSocket-Protocol: encke.v1 ,chat", "Sec-WebSocket-Protocol: mqtt"]);
        assert_eq!(get(&lines).expect("valid").1, ["encke.v1", "chat", "mqtt"]);
    }

    #[test]
    fn each_broken_rule_has_its_own_answer() {
        use HandshakeError as E;
        let cases: &[(&str, &[&'static str], E)] = &[
            ("Connection", &["Connection: keep-alive"], E::Connection),
            ("Connection", &["Connection: upgraded, up grade"], E::Connection),
            ("Connection", &[], E::Connection),
            ("Upgrade", &[], E::Upgrade),
            ("Upgrade", &["Upgrade: h2c"], E::Upgrade),
            ("Upgrade", &["Upgrade: websockets"], E::Upgrade),
            ("Upgrade", &["Upgrade: \"websocket\""], E::Upgrade),
            ("None", &["Content-Length: 5"], E::Body),
            ("None", &["Transfer-Encoding: chunked"], E::Body),
            ("Sec-WebSocket-Version", &[], E::VersionMissing),
            ("None", &["Sec-WebSocket-Version: 13"], E::VersionMissing),
            ("Sec-WebSocket-Version", &["Sec-WebSocket-Version: 12"], E::VersionUnknown),
            ("Sec-WebSocket-Version", &["Sec-WebSocket-Version: 8"], E::VersionUnknown),
            ("Sec-WebSocket-Version", &["Sec-WebSocket-Version: 013"], E::VersionUnknown),
            ("Sec-WebSocket-Version", &["Sec-WebSocket-Version: 13, 8"], E::VersionUnknown),
            ("Sec-WebSocket-Version", &["Sec-WebSocket-Version:"], E::VersionUnknown),
            ("Sec-WebSocket-Key", &[], E::KeyMissing),
            ("None", &["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="], E::KeyMissing),
            ("Sec-WebSocket-Key", &["Sec-WebSocket-Key:"], E::KeyInvalid),
            ("Sec-WebSocket-Key", &["Sec-WebSocket-Key: SGVsbG8sIHdvcmxkIQ=="], E::KeyInvalid), // 13 bytes
            ("Sec-WebSocket-Key", &["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZSE="], E::KeyInvalid), // 17
            ("Sec-WebSocket-Key", &["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZSEh"], E::KeyInvalid), // 18
            ("Sec-WebSocket-Key", &["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ"], E::KeyInvalid), // no padding
            ("Sec-WebSocket-Key", &["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZR=="], E::KeyInvalid), // a spare bit
            ("Sec-WebSocket-Key", &["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j-_=="], E::KeyInvalid), // URL alphabet
            ("Sec-WebSocket-Key", &["Sec-WebSocket-Key: dGhl IHNhbXBsZSBub25jQ=="], E::KeyInvalid),
            ("None", &["Sec-WebSocket-Protocol: a b"], E::Protocol),
            ("None", &["Sec-WebSocket-Protocol: ok, \"quoted\""], E::Protocol),
        ];
        for &(name, lines, error) in cases {
            assert_eq!(get(&with(name, lines)), Err(error), "{lines:?} for {name}");
        }
        assert_eq!(check("POST /chat HTTP/1.1", VALID), Err(E::Method));
        assert_eq!(check("HEAD /chat HTTP/1.1", VALID), Err(E::Method));
        assert_eq!(check("GET /chat HTTP/1.0", VALID), Err(E::Http10));
    }

    #[test]
    fn only_another_version_is_a_426() {
        use HandshakeError as E;
        let all = [
            E::Method,
            E::Http10,
            E::Connection,
            E::Upgrade,
            E::Body,
            E::VersionMissing,
            E::VersionUnknown,
            E::KeyMissing,
            E::KeyInvalid,
            E::Protocol,
        ];
        for error in all {
            let expected = if error == E::VersionUnknown { 426 } else { 400 };
            assert_eq!(error.status(), expected, "{error}");
            assert!(!crate::status::reason(error.status()).is_empty());
            assert!(error.to_string().ends_with('.'));
        }
    }

    #[test]
    fn the_answer_is_a_head_that_lacks_its_last_line() {
        let lines: Vec<Vec<&[u8]>> = vec![
            vec![b"Upgrade"],
            vec![b"websocket"],
            vec![b"13"],
            vec![b"dGhlIHNhbXBsZSBub25jZQ=="],
            vec![b"encke.v1"],
        ];
        let all = |known| {
            let index = match known {
                Known::Connection => Some(0),
                Known::Upgrade => Some(1),
                Known::SecWebSocketVersion => Some(2),
                Known::SecWebSocketKey => Some(3),
                Known::SecWebSocketProtocol => Some(4),
                _ => None,
            };
            index.map_or(&[][..], |index: usize| &lines[index]).iter().copied()
        };
        let handshake = WebSocketHandshake::check(Method::Get, Version::Http11, all).expect("valid");
        let mut out = Vec::new();
        handshake.put_fields(&mut out, Some("encke.v1"));
        let expected = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: encke.v1\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        out.clear();
        handshake.put_fields(&mut out, None);
        assert!(!out.windows(8).any(|part| part == b"Protocol:"), "no protocol was chosen");
    }
}
