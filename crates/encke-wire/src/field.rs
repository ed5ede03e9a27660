//! Field names and values (RFC 9110 §5): the bytes allowed in them, and the names that Encke uses.
//!
//! A head can have any fields, of which the server uses about fifty. [`Known::of`] recognises those while the head is parsed,
//! so that each later lookup is one array access. Names match as a whole and case-insensitively, never by prefix: `Conn:` is
//! not `Connection:`, `H:` is not `Host:`.
//!
//! The name's length and its first and last eight bytes (and, above 16 bytes, the eight between) are folded to lower case. They
//! are then hashed into a table, which is built and checked for collisions at compile time. This takes some 25 instructions per
//! name.

use crate::scan::{self, FIELD_NAME};

/// Declares [`Known`] and its names together, so that they cannot diverge.
macro_rules! known_fields {
    ($($variant:ident = $name:literal,)+) => {
        /// A field name that Encke uses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Known {
            $(#[doc = concat!("`", $name, "`")] $variant,)+
        }

        impl Known {
            /// All known fields, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }

        /// Names in lower case, indexed by `Known as usize`.
        const NAMES: [&str; Known::ALL.len()] = [$($name),+];
    };
}

known_fields! {
    Accept = "accept",
    AcceptEncoding = "accept-encoding",
    AcceptLanguage = "accept-language",
    Age = "age",
    Authorization = "authorization",
    CacheControl = "cache-control",
    Connection = "connection",
    ContentEncoding = "content-encoding",
    ContentLength = "content-length",
    ContentRange = "content-range",
    ContentType = "content-type",
    Cookie = "cookie",
    Date = "date",
    Etag = "etag",
    Expect = "expect",
    Forwarded = "forwarded",
    Host = "host",
    Http2Settings = "http2-settings",
    IdempotencyKey = "idempotency-key",
    IfMatch = "if-match",
    IfModifiedSince = "if-modified-since",
    IfNoneMatch = "if-none-match",
    IfRange = "if-range",
    IfUnmodifiedSince = "if-unmodified-since",
    KeepAlive = "keep-alive",
    LastEventId = "last-event-id",
    LastModified = "last-modified",
    Location = "location",
    Origin = "origin",
    Pragma = "pragma",
    ProxyConnection = "proxy-connection",
    Range = "range",
    Referer = "referer",
    RetryAfter = "retry-after",
    SecWebSocketAccept = "sec-websocket-accept",
    SecWebSocketExtensions = "sec-websocket-extensions",
    SecWebSocketKey = "sec-websocket-key",
    SecWebSocketProtocol = "sec-websocket-protocol",
    SecWebSocketVersion = "sec-websocket-version",
    Server = "server",
    Te = "te",
    Trailer = "trailer",
    TransferEncoding = "transfer-encoding",
    Upgrade = "upgrade",
    UserAgent = "user-agent",
    Vary = "vary",
    Via = "via",
    XForwardedFor = "x-forwarded-for",
    XForwardedHost = "x-forwarded-host",
    XForwardedProto = "x-forwarded-proto",
    XRequestId = "x-request-id",
}

impl Known {
    /// The known field called `name` (case-insensitive). `name` must be a token (RFC 9110 §5.6.2), which the head parser has
    /// checked before.
    #[inline(always)]
    #[must_use]
    pub fn of(name: &[u8]) -> Option<Self> {
        Self::spelt(Folded::of(name))
    }

    /// As [`Self::of`], for the name from `start` to `end` in a head.
    #[inline(always)]
    pub(crate) fn at(head: &[u8], start: usize, end: usize) -> Option<Self> {
        Self::spelt(Folded::at(head, start, end))
    }

    #[inline(always)]
    fn spelt(name: Folded) -> Option<Self> {
        let known = SLOTS[name.slot(MULTIPLIER)]?;
        KEYS[known as usize].is(&name).then_some(known)
    }

    /// The name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// The bit of this field in a set of known fields.
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// Whether `bytes` is a token: one or more of the characters of names and methods (RFC 9110 §5.6.2).
#[must_use]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| FIELD_NAME.has(byte))
}

/// Whether `bytes` is allowed as a field value: visible characters, space, tab and bytes above 0x7f, but no other control
/// characters (RFC 9110 §5.5). Allows white space at the ends, which readers trim.
#[must_use]
pub fn is_field_value(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| scan::is_text(byte))
}

/// Returns `bytes` without optional white space (RFC 9110 §5.6.3: space and tab only) at both ends.
#[must_use]
pub fn trimmed(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let [b' ' | b'\t', tail @ ..] = rest {
        rest = tail;
    }
    while let [head @ .., b' ' | b'\t'] = rest {
        rest = head;
    }
    rest
}

/// The elements of a comma-separated list (RFC 9110 §5.6.1), trimmed, without empty ones. A comma inside a quoted string is
/// data. An unclosed quote extends to the end.
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    Parts { rest: Some(value), separator: b',' }.filter(|element| !element.is_empty())
}

/// The parameters of one list element, split at `;` outside of quoted strings. The first item is the element itself.
pub fn parameters(element: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    Parts { rest: Some(element), separator: b';' }
}

/// Splits a list element into its name and its weight (RFC 9110 §12.4.2) in thousandths: 1,000 unless `;q=` specifies less.
/// Ignores other parameters. `None` if the weight is malformed, so that the element is ignored.
#[must_use]
pub fn weighted(element: &[u8]) -> Option<(&[u8], u16)> {
    if !element.contains(&b';') {
        return Some((element, 1_000));
    }
    let mut parts = parameters(element);
    let name = parts.next()?;
    for parameter in parts {
        if let [b'q' | b'Q', b'=', weight @ ..] = parameter {
            return Some((name, thousandths(weight)?));
        }
    }
    Some((name, 1_000))
}

/// Parses a weight: `0`, `0.5`, `1.000`. At most three decimals, at most 1.
fn thousandths(weight: &[u8]) -> Option<u16> {
    let (&whole, rest) = weight.split_first()?;
    let decimals = match rest {
        [] => rest,
        [b'.', decimals @ ..] if decimals.len() <= 3 => decimals,
        _ => return None,
    };
    if !matches!(whole, b'0' | b'1') || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = [&whole].into_iter().chain(decimals).chain(&[b'0'; 3]).take(4);
    let value = digits.fold(0, |value, digit| value * 10 + u16::from(digit - b'0'));
    (value <= 1_000).then_some(value)
}

/// Splits at a separator outside of quoted strings.
#[derive(Clone)]
struct Parts<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let plain = rest.iter().position(|&byte| byte == self.separator || byte == b'"');
        if plain.is_none_or(|at| rest[at] != b'"') {
            let end = plain.unwrap_or(rest.len());
            self.rest = plain.map(|at| &rest[at + 1..]);
            return Some(trimmed(&rest[..end]));
        }
        let (mut quoted, mut escaped) = (false, false);
        for (at, &byte) in rest.iter().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                _ if byte == self.separator && !quoted => {
                    self.rest = Some(&rest[at + 1..]);
                    return Some(trimmed(&rest[..at]));
                }
                _ => {}
            }
        }
        self.rest = None;
        Some(trimmed(rest))
    }
}

/// A short text in lower case as words, for case-insensitive comparison.
///
/// Folding is `| 0x20`. The known texts consist of letters, digits and `-`. Apart from their own two cases, only control
/// characters fold onto these, and tokens contain none (`names_match_whole_and_in_any_case` tries every byte of a token).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Folded {
    /// The first eight bytes, or a shorter text padded with zeros (folded like the rest).
    first: u64,
    /// The eight bytes from the ninth on, if the text has more than 16.
    middle: u64,
    /// The last eight bytes. Equal to `first` for a text shorter than eight bytes.
    last: u64,
    bytes: usize,
}

impl Folded {
    /// Folds a text. The words overlap unless the length is a multiple of eight. Together they hold every byte of a text of at
    /// most [`FOLDED_BYTES_MAX`].
    #[inline(always)]
    pub(crate) const fn of(text: &[u8]) -> Self {
        match (text.first_chunk(), text.last_chunk()) {
            (Some(first), Some(last)) => {
                let middle = if text.len() > 16 { word_at(text, 8) } else { 0 };
                Self::new(u64::from_le_bytes(*first), middle, u64::from_le_bytes(*last), text.len())
            }
            _ => Self::short(short_word(text), text.len()),
        }
    }

    /// As [`Self::of`], for the text from `start` to `end` in a larger one. A short text with at least eight bytes before its
    /// end is loaded at once, whatever those bytes are.
    #[inline(always)]
    pub(crate) fn at(larger: &[u8], start: usize, end: usize) -> Self {
        let text = &larger[start..end];
        if text.len() >= 8 {
            return Self::of(text);
        }
        match larger[..end].last_chunk() {
            Some(word) if start < end => {
                Self::short(u64::from_le_bytes(*word) >> (64 - 8 * text.len()), text.len())
            }
            _ => Self::short(short_word(text), text.len()),
        }
    }

    #[inline(always)]
    const fn new(first: u64, middle: u64, last: u64, bytes: usize) -> Self {
        Self { first: first | LOWER, middle: middle | LOWER, last: last | LOWER, bytes }
    }

    #[inline(always)]
    const fn short(word: u64, bytes: usize) -> Self {
        Self::new(word, 0, word, bytes)
    }

    /// Whether both texts are equal, if at least one of them has at most [`FOLDED_BYTES_MAX`] bytes.
    #[inline(always)]
    pub(crate) const fn is(&self, other: &Self) -> bool {
        self.first == other.first
            && self.last == other.last
            && self.bytes == other.bytes
            && self.middle == other.middle
    }

    #[inline(always)]
    const fn slot(&self, multiplier: u64) -> usize {
        let mixed = (self.first ^ self.last.rotate_left(29)).wrapping_add(self.bytes as u64);
        (mixed.wrapping_mul(multiplier) >> (64 - SLOT_BITS)) as usize
    }
}

/// The eight bytes at `at`. Returns 0 if there are fewer, which no caller requests.
#[inline(always)]
const fn word_at(text: &[u8], at: usize) -> u64 {
    match text.split_at(at).1.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => 0,
    }
}

/// Up to seven bytes in one word, padded with zeros: two overlapping halves.
#[inline(always)]
const fn short_word(text: &[u8]) -> u64 {
    match (text.first_chunk(), text.last_chunk()) {
        (Some(first), Some(last)) => {
            u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << (8 * (text.len() - 4))
        }
        _ => match text {
            [] => 0,
            [first, .., last] => {
                let middle = text.len() / 2;
                *first as u64
                    | (text[middle] as u64) << (8 * middle)
                    | (*last as u64) << (8 * (text.len() - 1))
            }
            [only] => *only as u64,
        },
    }
}

/// The bit in which `a` differs from `A`, in every byte of a word.
const LOWER: u64 = 0x2020_2020_2020_2020;

/// Maximum length of a text that [`Folded`] can distinguish from all others: three words.
const FOLDED_BYTES_MAX: usize = 24;

/// 512 one-byte slots for some 50 names. Few unknown names hit a used slot and cost a comparison, and about one multiplier in
/// 15 gives every name a slot of its own.
const SLOT_BITS: u32 = 9;

static KEYS: [Folded; Known::ALL.len()] = {
    let mut keys = [Folded::of(b""); Known::ALL.len()];
    let mut index = 0;
    while index < keys.len() {
        assert!(NAMES[index].len() <= FOLDED_BYTES_MAX, "a known field name has at most 24 bytes");
        keys[index] = Folded::of(NAMES[index].as_bytes());
        index += 1;
    }
    keys
};

/// The first multiplier in a fixed sequence of odd numbers that gives every name a slot of its own.
const MULTIPLIER: u64 = {
    let mut multiplier: u64 = 0x9e37_79b9_7f4a_7c15;
    while slots(multiplier).is_none() {
        multiplier = multiplier.wrapping_mul(0xd134_2543_de82_ef95) | 1;
    }
    multiplier
};

static SLOTS: [Option<Known>; 1 << SLOT_BITS] =
    slots(MULTIPLIER).expect("MULTIPLIER was chosen because it gives every name its own slot");

/// The known fields at their slots; `None` if two share a slot.
const fn slots(multiplier: u64) -> Option<[Option<Known>; 1 << SLOT_BITS]> {
    let mut slots = [None; 1 << SLOT_BITS];
    let mut index = 0;
    while index < KEYS.len() {
        let slot = KEYS[index].slot(multiplier);
        if slots[slot].is_some() {
            return None;
        }
        slots[slot] = Some(Known::ALL[index]);
        index += 1;
    }
    Some(slots)
}

const _: () = assert!(Known::ALL.len() <= 64, "a set of known fields is one u64");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_whole_and_in_any_case() {
        for &known in Known::ALL {
            let name = known.name();
            assert_eq!(Known::of(name.as_bytes()), Some(known));
            assert_eq!(Known::of(name.to_uppercase().as_bytes()), Some(known));
            assert_eq!(name, name.to_lowercase(), "NAMES are in lower case");
            assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
            // Replacing one byte by any token byte gives another name, unless only the case differs.
            for at in 0..name.len() {
                for byte in (0..=255u8).filter(|&byte| is_token(&[byte])) {
                    let mut other = name.as_bytes().to_vec();
                    other[at] = byte;
                    let same = other.eq_ignore_ascii_case(name.as_bytes());
                    let is_known = Known::ALL.iter().any(|k| other.eq_ignore_ascii_case(k.name().as_bytes()));
                    assert_eq!(Known::of(&other) == Some(known), same, "{other:?}");
                    assert_eq!(Known::of(&other).is_some(), is_known, "{other:?}");
                }
            }
        }
    }

    #[test]
    fn a_text_folds_the_same_whatever_stands_around_it() {
        let text = b"Accept-Encoding-And-Then-Some";
        for before in 0..12 {
            for behind in 0..12 {
                for bytes in 0..=text.len() {
                    let larger =
                        [&b"\xff!Zz\0~\n:@[`{"[..before], &text[..bytes], &b"{`[@:\n~\0zZ!\xff"[..behind]];
                    let folded = Folded::at(&larger.concat(), before, before + bytes);
                    assert_eq!(folded, Folded::of(&text[..bytes]), "{bytes} bytes with {before} before them");
                }
            }
        }
    }

    #[test]
    fn a_prefix_or_an_extension_of_a_known_name_is_another_name() {
        for &known in Known::ALL {
            let name = known.name().as_bytes();
            for end in 0..name.len() {
                let is_known = Known::ALL.iter().any(|k| k.name().as_bytes() == &name[..end]);
                assert_eq!(Known::of(&name[..end]).is_some(), is_known);
            }
            let longer = [name, b"-x"].concat();
            assert_eq!(Known::of(&longer), None);
        }
        assert_eq!(Known::of(b"conn"), None);
        assert_eq!(Known::of(b"h"), None);
        assert_eq!(Known::of(&[b'a'; 200]), None);
    }

    #[test]
    fn tokens_are_exactly_the_characters_of_the_grammar() {
        let grammar = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        for byte in 0..=255u8 {
            assert_eq!(is_token(&[byte]), grammar.contains(&byte), "{byte:#x}");
        }
        assert!(!is_token(b""));
        assert!(!is_token(b"a b"));
    }

    #[test]
    fn field_values_hold_no_control_character_but_tab() {
        for byte in 0..=255u8 {
            let allowed = byte == b'\t' || (byte >= 0x20 && byte != 0x7f);
            assert_eq!(is_field_value(&[b'a', byte, b'b']), allowed, "{byte:#x}");
        }
        assert!(is_field_value(b""));
    }

    #[test]
    fn lists_split_at_commas_outside_of_quotes_and_drop_what_is_empty() {
        let split = |value: &'static [u8]| list(value).collect::<Vec<_>>();
        assert_eq!(split(b"a, b ,\t,c"), [b"a", b"b", b"c"]);
        assert_eq!(split(br#""x", "y,z" , W/"\",""#), [&br#""x""#[..], br#""y,z""#, br#"W/"\",""#]);
        assert_eq!(split(br#"a, "unclosed, b"#), [&b"a"[..], br#""unclosed, b"#]);
        assert!(split(b" , ,").is_empty());
        assert!(split(b"").is_empty());
    }

    #[test]
    fn parameters_split_at_semicolons_outside_of_quotes() {
        let split = |value: &'static [u8]| parameters(value).collect::<Vec<_>>();
        assert_eq!(split(b"text/html ; q=0.5;a=\"x;y\""), [&b"text/html"[..], b"q=0.5", b"a=\"x;y\""]);
        assert_eq!(split(b""), [b""]);
    }

    #[test]
    fn weights_are_thousandths_and_malformed_ones_count_for_nothing() {
        for (element, expected) in [
            ("gzip", Some(("gzip", 1_000))),
            ("gzip;q=1", Some(("gzip", 1_000))),
            ("gzip ; Q=0.5", Some(("gzip", 500))),
            ("text/html;level=1;q=0.123", Some(("text/html", 123))),
            ("*;q=0", Some(("*", 0))),
            ("a;q=0.", Some(("a", 0))),
            ("a;q=1.000", Some(("a", 1_000))),
            ("a;q=1.001", None),
            ("a;q=2", None),
            ("a;q=", None),
            ("a;q=.5", None),
            ("a;q=0.1234", None),
            ("a;q=0,5", None),
            ("a;q=-1", None),
        ] {
            let expected = expected.map(|(name, weight)| (name.as_bytes(), weight));
            assert_eq!(weighted(element.as_bytes()), expected, "{element}");
        }
    }

    #[test]
    fn trimming_takes_spaces_and_tabs_from_both_ends() {
        assert_eq!(trimmed(b" \ta b\t "), b"a b");
        assert_eq!(trimmed(b" \t"), b"");
        assert_eq!(trimmed(b""), b"");
        assert_eq!(trimmed(b"x"), b"x");
    }
}
