//! Request targets and their parts (RFC 3986, RFC 9112 §3.2): paths, queries, authorities.
//!
//! A path is decoded **once**, in one pass. All later checks see only the decoded form:
//!
//! ```text
//!   /a/%66ile/../b%20c//d?x=1
//!   └───────┬────────────┘ └┬┘
//!     decode_path        query_pairs
//!   /a/b c/d             ("x", "1")
//! ```
//!
//! A path that another reader could understand differently is rejected. This applies to escapes that hide a slash, a backslash
//! (raw or escaped), NUL and other control characters, malformed escapes, invalid UTF-8 (overlong forms included), and dots
//! that climb above the root. Runs of slashes become one slash. Rejecting them would break sites that have such links. Keeping
//! them would mean one thing to a rule that matches by prefix and another to the file system (and `//host/` in a Location is
//! another site). [`encode_path`] escapes paths in responses.
//!
//! A path needs no limits of its own. Its length is limited by its target (`uri_bytes`), and the work is linear in it. This
//! includes `..`, since each one removes bytes decoded before.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The reason why a target is rejected. Every variant is an error of the peer, with status 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TargetError {
    /// The path does not begin with `/`.
    NotAbsolute,
    /// A `%` is not followed by two hexadecimal digits.
    BadEscape,
    /// An escaped `/`: some servers would split the path there, some would not.
    EscapedSlash,
    /// A backslash, raw or escaped: some servers treat it as a slash.
    Backslash,
    /// A control character, NUL included, raw or escaped.
    Control,
    /// The decoded path is not UTF-8.
    NotUtf8,
    /// `..` climbs above the root.
    AboveRoot,
    /// The authority is not a host with an optional port.
    InvalidAuthority,
}

impl TargetError {
    /// A short name for logs and metrics.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        self.reason_ref()
    }

    /// A reference to the name, for structures that store a thin pointer.
    #[must_use]
    pub const fn reason_ref(self) -> &'static &'static str {
        match self {
            Self::NotAbsolute => &"path_not_absolute",
            Self::BadEscape => &"bad_escape",
            Self::EscapedSlash => &"escaped_slash",
            Self::Backslash => &"backslash",
            Self::Control => &"control_in_path",
            Self::NotUtf8 => &"path_not_utf8",
            Self::AboveRoot => &"above_root",
            Self::InvalidAuthority => &"invalid_authority",
        }
    }
}

impl std::fmt::Display for TargetError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::NotAbsolute => "the path does not begin with a slash",
            Self::BadEscape => "a % in the path is not followed by two hexadecimal digits",
            Self::EscapedSlash => "the path has an escaped slash (%2F)",
            Self::Backslash => "the path has a backslash",
            Self::Control => "the path has a control character",
            Self::NotUtf8 => "the decoded path is not UTF-8",
            Self::AboveRoot => "the path climbs above the root",
            Self::InvalidAuthority => "the authority is not a host with an optional port",
        })
    }
}

impl std::error::Error for TargetError {}

/// Decodes the path `raw` (as returned by [`crate::http1::Head::path`]) into `out`, whose capacity is reused.
///
/// The result begins with `/`. Its segments, separated by single slashes, are never `.` or `..`. Only the last segment may be
/// empty, if the path names a directory (it ended in `/`, `/.` or `/..`).
///
/// ```
/// use encke_wire::target::decode_path;
///
/// let mut path = String::new();
/// decode_path(b"/docs/../caf%C3%A9//menu", &mut path)?;
/// assert_eq!(path, "/caf\u{e9}/menu");
/// assert!(decode_path(b"/a%2Fb", &mut path).is_err(), "an escape hides a slash");
/// # Ok::<(), encke_wire::target::TargetError>(())
/// ```
///
/// # Errors
/// A [`TargetError`] if the path could be understood in more than one way. `out` is then empty.
pub fn decode_path(raw: &[u8], out: &mut String) -> Result<(), TargetError> {
    let mut path = std::mem::take(out).into_bytes();
    path.clear();
    decode_segments(raw, &mut path)?;
    *out = String::from_utf8(path).map_err(|_| TargetError::NotUtf8)?;
    Ok(())
}

/// As [`decode_path`], without the check for UTF-8.
fn decode_segments(raw: &[u8], path: &mut Vec<u8>) -> Result<(), TargetError> {
    let Some((b'/', rest)) = raw.split_first() else { return Err(TargetError::NotAbsolute) };
    path.reserve(raw.len());
    path.push(b'/');
    let mut rest = rest.iter();
    // `path` ends in a slash here and at the start of every segment. `segment` is the start of the current one.
    let mut segment = path.len();
    while let Some(&byte) = rest.next() {
        let byte = match byte {
            b'/' => {
                end_segment(path, segment)?;
                if path.last() != Some(&b'/') {
                    path.push(b'/');
                }
                segment = path.len();
                continue;
            }
            b'%' => {
                let (decoded, after) = unescape(rest.as_slice())?;
                rest = after.iter();
                decoded
            }
            plain => plain,
        };
        match byte {
            b'\\' => return Err(TargetError::Backslash),
            0..=0x1f | 0x7f => return Err(TargetError::Control),
            _ => path.push(byte),
        }
    }
    end_segment(path, segment)
}

/// Resolves the segment from `segment` to the end of `path` if it is `.` or `..`. `path` then ends in the slash before it, or
/// before its parent.
fn end_segment(path: &mut Vec<u8>, segment: usize) -> Result<(), TargetError> {
    match &path[segment..] {
        b"." => path.truncate(segment),
        b".." => {
            path.truncate(segment);
            let parent = path[..segment - 1].iter().rposition(|&byte| byte == b'/');
            path.truncate(parent.ok_or(TargetError::AboveRoot)? + 1);
        }
        _ => {}
    }
    Ok(())
}

/// Decodes the escapes in a part of a path, the name of a channel. Changes and checks nothing else.
///
/// # Errors
/// [`TargetError::BadEscape`], or [`TargetError::EscapedSlash`].
pub fn decode_escapes(raw: &[u8]) -> Result<Cow<'_, [u8]>, TargetError> {
    if !raw.contains(&b'%') {
        return Ok(Cow::Borrowed(raw));
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&byte, tail)) = rest.split_first() {
        let (byte, after) = if byte == b'%' { unescape(tail)? } else { (byte, tail) };
        decoded.push(byte);
        rest = after;
    }
    Ok(Cow::Owned(decoded))
}

/// Decodes the two digits after a `%`. Returns the byte and the remaining input. An escaped slash is an error.
fn unescape(digits: &[u8]) -> Result<(u8, &[u8]), TargetError> {
    let [high, low, after @ ..] = digits else { return Err(TargetError::BadEscape) };
    match hex_byte(*high, *low).ok_or(TargetError::BadEscape)? {
        b'/' => Err(TargetError::EscapedSlash),
        decoded => Ok((decoded, after)),
    }
}

/// Splits a target at the first `?` into path and query.
#[must_use]
pub fn split_target(raw: &[u8]) -> (&[u8], Option<&[u8]>) {
    match raw.iter().position(|&byte| byte == b'?') {
        Some(mark) => (&raw[..mark], Some(&raw[mark + 1..])),
        None => (raw, None),
    }
}

/// The `key=value` pairs of a query, decoded like forms: `+` is a space and `%XX` a byte. A malformed escape is kept as it is,
/// as in browsers. A pair without `=` has an empty value. Bytes that are not UTF-8 become U+FFFD.
///
/// ```
/// use encke_wire::target::query_pairs;
///
/// let pairs: Vec<_> = query_pairs(b"q=a+b%21&all").collect();
/// assert_eq!(pairs, [("q".into(), "a b!".into()), ("all".into(), "".into())]);
/// ```
pub fn query_pairs(query: &[u8]) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let mut halves = pair.splitn(2, |&byte| byte == b'=');
        let (key, value) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
        (decode_form(key), decode_form(value))
    })
}

/// Decodes one key or value of a query.
fn decode_form(text: &[u8]) -> Cow<'_, str> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return String::from_utf8_lossy(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        decoded.push(match (byte, tail) {
            (b'+', _) => b' ',
            (b'%', [high, low, after @ ..]) => match hex_byte(*high, *low) {
                Some(escaped) => {
                    rest = after;
                    escaped
                }
                None => b'%',
            },
            _ => byte,
        });
    }
    Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
}

/// Appends `path` escaped, for a request target. Keeps all characters that a path may contain (RFC 3986 §3.3), such as the `;` of
/// matrix parameters.
///
/// ```
/// use encke_wire::target::encode_target_path;
///
/// let mut target = String::new();
/// encode_target_path("/a b;v=1&x='y'/caf\u{e9}", &mut target);
/// assert_eq!(target, "/a%20b;v=1&x='y'/caf%C3%A9");
/// ```
pub fn encode_target_path(path: &str, out: &mut String) {
    out.reserve(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            push_escape(byte, out);
        }
    }
}

/// Appends the escape of a byte (RFC 3986 §2.1).
pub fn push_escape(byte: u8, out: &mut String) {
    out.push('%');
    for half in [byte >> 4, byte & 0xf] {
        out.push(char::from(b"0123456789ABCDEF"[usize::from(half)]));
    }
}

/// Appends the path of a request for another program. A path with dot segments or doubled slashes is appended in its resolved form,
/// so that the program cannot understand another path than the rules here have matched. Any other path is appended as received,
/// because programs may depend on its escapes. Returns false if the path cannot be decoded.
///
/// ```
/// use encke_wire::target::put_resolved_path;
///
/// let mut out = Vec::new();
/// assert!(put_resolved_path(&mut out, b"/a%20b/x/../c"));
/// assert_eq!(out, b"/a%20b/c");
/// ```
pub fn put_resolved_path(out: &mut Vec<u8>, raw: &[u8]) -> bool {
    if !raw.windows(2).any(|pair| matches!(pair, b"//" | b"/." | b"/%")) {
        out.extend_from_slice(raw);
        return true;
    }
    let mut path = String::new();
    if decode_path(raw, &mut path).is_err() {
        return false;
    }
    let mut encoded = String::new();
    encode_target_path(&path, &mut encoded);
    out.extend_from_slice(encoded.as_bytes());
    true
}

/// Appends `path` escaped, for a Location or a link. Keeps `/`, `:`, `@`, and the unreserved characters and sub-delims of RFC
/// 3986. But quotes, `&` and `;` are escaped, so that the result is safe in HTML. Decoding the result gives `path` again.
pub fn encode_path(path: &str, out: &mut String) {
    out.reserve(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$()*+,=:@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            push_escape(byte, out);
        }
    }
}

/// A host and an optional port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// The host as sent; an IPv6 address includes its brackets.
    pub host: &'a [u8],
    /// The port; `None` if absent or empty after the colon.
    pub port: Option<u16>,
}

/// Parses `uri-host [":" port]` (RFC 9110 §7.2). The host is a name, an IPv4 address, or an IPv6 address in brackets, and must
/// not be empty. User information (`user@host`) is an error.
///
/// # Errors
/// [`TargetError::InvalidAuthority`] for anything else.
pub fn parse_authority(text: &[u8]) -> Result<Authority<'_>, TargetError> {
    let host_end = match text {
        [b'[', ..] => text.iter().position(|&byte| byte == b']').map_or(text.len(), |at| at + 1),
        _ => text.iter().position(|&byte| byte == b':').unwrap_or(text.len()),
    };
    let (host, rest) = text.split_at(host_end);
    let port = match rest {
        [] | [b':'] => Some(None),
        [b':', digits @ ..] => parse_port(digits).map(Some),
        _ => None,
    };
    match port {
        Some(port) if is_host(host) => Ok(Authority { host, port }),
        _ => Err(TargetError::InvalidAuthority),
    }
}

/// Whether `host` is a registered name, an IPv4 address or an IPv6 address in brackets.
fn is_host(host: &[u8]) -> bool {
    if let [b'[', address @ .., b']'] = host {
        return std::str::from_utf8(address).is_ok_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    let mut rest = host;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = match (byte, tail) {
            (b'%', [high, low, after @ ..]) if hex_byte(*high, *low).is_some() => after,
            _ if crate::scan::HOST_NAME.has(byte) => tail,
            _ => return false,
        };
    }
    !host.is_empty()
}

/// Parses a port of one to five digits.
#[inline(always)]
pub(crate) fn parse_port(digits: &[u8]) -> Option<u16> {
    if digits.is_empty() || digits.len() > 5 {
        return None;
    }
    let mut port = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        port = port * 10 + u32::from(digit);
    }
    u16::try_from(port).ok()
}

impl Authority<'_> {
    /// Whether the host refers to this machine's loopback: `localhost`, a name below it, or a loopback address.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let Ok(host) = std::str::from_utf8(self.host) else { return false };
        if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            return address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback());
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        host == "localhost"
            || host.ends_with(".localhost")
            || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
    }
}

/// The byte given by two hexadecimal digits.
#[inline]
fn hex_byte(high: u8, low: u8) -> Option<u8> {
    // `to_digit` yields at most 15, so the sum fits.
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(raw: &str) -> Result<String, TargetError> {
        let mut out = "left from before".to_owned();
        let result = decode_path(raw.as_bytes(), &mut out);
        if result.is_err() {
            assert_eq!(out, "", "a refused path leaves nothing behind");
        }
        result.map(|()| out)
    }

    #[test]
    fn escapes_are_decoded_once() {
        for (raw, path) in [
            ("/", "/"),
            ("/file.txt", "/file.txt"),
            ("/%66ile.txt", "/file.txt"),
            ("/sp%20ace.txt", "/sp ace.txt"),
            ("/100%25.txt", "/100%.txt"),
            ("/%E6%97%A5%E6%9C%AC.txt", "/日本.txt"),
            ("/%252e%252e/x", "/%2e%2e/x"),
            ("/a+b;c=d", "/a+b;c=d"),
            ("/%3f%23", "/?#"),
        ] {
            assert_eq!(decoded(raw).as_deref(), Ok(path), "{raw}");
        }
    }

    #[test]
    fn dot_segments_are_resolved_escaped_or_not() {
        for (raw, path) in [
            ("/dir/../file.txt", "/file.txt"),
            ("/dir/%2e%2e/file.txt", "/file.txt"),
            ("/dir/.%2E/file.txt", "/file.txt"),
            ("/./a/./b/.", "/a/b/"),
            ("/a/b/..", "/a/"),
            ("/a/..", "/"),
            ("/a/b/../../", "/"),
            ("/a/b/c/../../d", "/a/d"),
            ("/...", "/..."),
            ("/..a/.b/c..", "/..a/.b/c.."),
            ("/..;/x", "/..;/x"),
            ("/a//../b", "/b"),
            ("/%2e", "/"),
        ] {
            assert_eq!(decoded(raw).as_deref(), Ok(path), "{raw}");
        }
    }

    #[test]
    fn climbing_above_the_root_is_refused() {
        for raw in [
            "/..",
            "/../",
            "/../secret.txt",
            "/dir/../../secret.txt",
            "/%2e%2e/secret.txt",
            "/.%2e/x",
            "//../x",
            "/a/../..",
            "/./..",
            "/a/./../../b",
        ] {
            assert_eq!(decoded(raw), Err(TargetError::AboveRoot), "{raw}");
        }
    }

    #[test]
    fn runs_of_slashes_become_one() {
        for (raw, path) in
            [("//", "/"), ("//dir", "/dir"), ("/a///b//", "/a/b/"), ("//etc/passwd", "/etc/passwd")]
        {
            assert_eq!(decoded(raw).as_deref(), Ok(path), "{raw}");
        }
    }

    #[test]
    fn whatever_has_two_meanings_is_refused() {
        for (raw, error) in [
            ("", TargetError::NotAbsolute),
            ("*", TargetError::NotAbsolute),
            ("../x", TargetError::NotAbsolute),
            ("http://x/", TargetError::NotAbsolute),
            ("/%zz", TargetError::BadEscape),
            ("/file.txt%", TargetError::BadEscape),
            ("/file.txt%2", TargetError::BadEscape),
            ("/%+1", TargetError::BadEscape),
            ("/% 1", TargetError::BadEscape),
            ("/..%2fsecret.txt", TargetError::EscapedSlash),
            ("/a%2Fb", TargetError::EscapedSlash),
            ("/..\\secret.txt", TargetError::Backslash),
            ("/dir/..%5c..%5csecret.txt", TargetError::Backslash),
            ("/file.txt%00", TargetError::Control),
            ("/file.txt%00.html", TargetError::Control),
            ("/dir%0d%0aX-Inj:%201", TargetError::Control),
            ("/a\tb", TargetError::Control),
            ("/%7f", TargetError::Control),
            ("/%c0%ae%c0%ae/secret.txt", TargetError::NotUtf8),
            ("/%ff", TargetError::NotUtf8),
            ("/%ed%a0%80", TargetError::NotUtf8),
        ] {
            assert_eq!(decoded(raw), Err(error), "{raw}");
            assert!(!error.reason().is_empty() && !error.to_string().is_empty());
        }
    }

    #[test]
    fn escapes_of_a_part_are_decoded_and_hide_no_slash() {
        for (raw, decoded) in [
            ("news", Ok(&b"news"[..])),
            ("", Ok(b"")),
            ("%7E%2d%41", Ok(b"~-A")),
            ("a/../%2E.", Ok(b"a/../..")),
            ("%00%ff%25", Ok(b"\0\xff%")),
            ("%2541", Ok(b"%41")),
            ("a%2Fb", Err(TargetError::EscapedSlash)),
            ("%2f", Err(TargetError::EscapedSlash)),
            ("%", Err(TargetError::BadEscape)),
            ("a%4", Err(TargetError::BadEscape)),
            ("%4g", Err(TargetError::BadEscape)),
            ("%+4", Err(TargetError::BadEscape)),
        ] {
            assert_eq!(
                decode_escapes(raw.as_bytes()).as_deref(),
                decoded.as_ref().map(|bytes| *bytes),
                "{raw}"
            );
        }
    }

    #[test]
    fn the_query_begins_at_the_first_question_mark() {
        assert_eq!(split_target(b"/a?b=?c"), (&b"/a"[..], Some(&b"b=?c"[..])));
        assert_eq!(split_target(b"/a?"), (&b"/a"[..], Some(&b""[..])));
        assert_eq!(split_target(b"/a"), (&b"/a"[..], None));
    }

    #[test]
    fn query_pairs_are_decoded_like_forms() {
        let pairs = |query: &str| -> Vec<(String, String)> {
            query_pairs(query.as_bytes()).map(|(k, v)| (k.into_owned(), v.into_owned())).collect()
        };
        let expected = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        assert_eq!(pairs("a=1&b=x+y%21&&c"), expected(&[("a", "1"), ("b", "x y!"), ("c", "")]));
        assert_eq!(pairs("a=b=c&=d"), expected(&[("a", "b=c"), ("", "d")]));
        assert_eq!(pairs("a=%zz&b=%4&c=%"), expected(&[("a", "%zz"), ("b", "%4"), ("c", "%")]));
        assert_eq!(pairs("%E6%97%A5=%ff"), expected(&[("日", "\u{fffd}")]));
        assert_eq!(pairs(""), expected(&[]));
    }

    #[test]
    fn encoded_paths_need_no_further_escaping() {
        let encoded = |path: &str| {
            let mut out = String::new();
            encode_path(path, &mut out);
            out
        };
        assert_eq!(encoded("/a b/日.txt"), "/a%20b/%E6%97%A5.txt");
        assert_eq!(encoded("/\"<'&>;%?#\r\n\\"), "/%22%3C%27%26%3E%3B%25%3F%23%0D%0A%5C");
        assert_eq!(encoded("/-._~!$()*+,=:@"), "/-._~!$()*+,=:@");
    }

    #[test]
    fn an_authority_is_a_host_with_an_optional_port() {
        for (text, host, port) in [
            ("example.com", "example.com", None),
            ("example.com:8080", "example.com", Some(8080)),
            ("a:", "a", None),
            ("a:0", "a", Some(0)),
            ("a:65535", "a", Some(65_535)),
            ("127.0.0.1:1", "127.0.0.1", Some(1)),
            ("[::1]", "[::1]", None),
            ("[2001:db8::1]:443", "[2001:db8::1]", Some(443)),
            ("a%20b", "a%20b", None),
            ("xn--bcher-kva.example.", "xn--bcher-kva.example.", None),
        ] {
            let authority =
                parse_authority(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((authority.host, authority.port), (host.as_bytes(), port), "{text}");
        }
        for text in [
            "",
            ":80",
            "a b",
            "a/b",
            "u@a",
            "a:b",
            "a:65536",
            "a:000001",
            "a:-1",
            "a:1:2",
            "::1",
            "[::1",
            "[::1]x",
            "[]",
            "[::1]:x",
            "[v1.a]",
            "[1.2.3.4]",
            "a\0b",
            "a%zz",
            "a%2",
            "é",
            "a?b",
            "a#b",
            "a\\b",
            "[fe80::1%25eth0]",
        ] {
            assert_eq!(parse_authority(text.as_bytes()), Err(TargetError::InvalidAuthority), "{text:?}");
        }
    }

    #[test]
    fn loopback_hosts_are_told_from_others() {
        let loopback =
            |text: &str| parse_authority(text.as_bytes()).is_ok_and(|authority| authority.is_loopback());
        for text in ["localhost", "LOCALHOST.:80", "app.localhost", "127.0.0.1", "127.9.9.9:1", "[::1]:8080"]
        {
            assert!(loopback(text), "{text}");
        }
        for text in ["localhost.example.com", "127.0.0.1.example.com", "10.0.0.1", "[::2]", "notlocalhost"] {
            assert!(!loopback(text), "{text}");
        }
    }

    /// The rules of `decode_path` in a slow form: split, decode, resolve.
    fn reference(raw: &str) -> Option<String> {
        let mut segments: Vec<Vec<u8>> = Vec::new();
        let mut is_folder = true;
        for raw in raw.strip_prefix('/')?.split('/') {
            let mut segment = Vec::new();
            let mut bytes = raw.bytes();
            while let Some(byte) = bytes.next() {
                segment.push(match byte {
                    b'%' => {
                        let digits = [bytes.next()?, bytes.next()?];
                        let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
                        u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                    }
                    byte => byte,
                });
            }
            if segment.iter().any(|byte| byte.is_ascii_control() || b"/\\".contains(byte)) {
                return None;
            }
            is_folder = matches!(&segment[..], b"" | b"." | b"..");
            match &segment[..] {
                b"" | b"." => {}
                b".." => drop(segments.pop()?),
                _ => segments.push(segment),
            }
        }
        let mut path = segments.iter().flat_map(|segment| [b"/", &segment[..]].concat()).collect::<Vec<u8>>();
        if is_folder {
            path.push(b'/');
        }
        String::from_utf8(path).ok()
    }

    proptest! {
        #[test]
        fn decoding_agrees_with_the_rules_written_the_slow_way(
            raw in "/(/|\\.|a|%2e|%2E|%41|%C3%A9|%c0|%2f|%5c|%00|%|b|\\\\|é){0,12}",
        ) {
            prop_assert_eq!(decoded(&raw).ok(), reference(&raw), "{}", raw);
        }

        #[test]
        fn a_decoded_path_has_no_dot_segment_and_decodes_to_itself_once_encoded(
            raw in "(/|\\.|%2e|[a-z]|%20|%25|%3f|é){0,16}",
        ) {
            if let Ok(path) = decoded(&raw) {
                let middle = path.strip_prefix('/').expect("a decoded path begins with a slash");
                let middle = middle.strip_suffix('/').unwrap_or(middle);
                let clean = |segment: &str| !matches!(segment, "" | "." | "..");
                prop_assert!(middle.is_empty() || middle.split('/').all(clean), "{}", path);
                let mut encoded = String::new();
                encode_path(&path, &mut encoded);
                prop_assert_eq!(decoded(&encoded), Ok(path));
            }
        }
    }
}
