//! Conditional requests (RFC 9110 §13): decides between the normal response, 304 and 412.
//!
//! ```text
//!   If-Match there? ──── yes ─► no tag matches (strong) ──► 412
//!        │ no
//!   If-Unmodified-Since? yes ─► modified since ───────────► 412
//!        ▼ passed
//!   If-None-Match there? yes ─► a tag matches (weak) ─────► GET, HEAD: 304, else 412
//!        │ no
//!   If-Modified-Since? ─ yes ─► GET, HEAD, unmodified ────► 304
//!        ▼ passed
//!     Proceed ─► Range there? If-Range decides whether it counts: [`if_range_holds`]
//! ```
//!
//! The validators belong to the **selected representation**: the compressed one, if it would be sent. A list may be spread over
//! several lines, and a comma inside a tag is part of it. A malformed condition matches nothing: a malformed If-Match prevents
//! the request, a malformed If-None-Match lets it proceed. A date is compared with `≤`, not only for equality, and an invalid
//! date is ignored.

use crate::date::parse_date;
use crate::field;
use crate::method::Method;

/// The validators of a representation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// The entity tag; `None` if there is none.
    pub etag: Option<EntityTag<'a>>,
    /// Time of the last modification, in seconds since 1970; `None` if unknown.
    pub last_modified: Option<u64>,
}

/// An entity tag (RFC 9110 §8.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// Whether the tag means "equivalent" instead of "the same bytes".
    pub weak: bool,
    /// The text between the quotes.
    pub opaque: &'a [u8],
}

/// The conditions of a request. `L` yields the values of all lines of one field, and none if it is absent.
#[derive(Clone, Debug)]
pub struct Conditions<'a, L> {
    /// If-Match
    pub if_match: L,
    /// If-None-Match
    pub if_none_match: L,
    /// If-Modified-Since; `None` also if it is repeated, because it is then not a valid date.
    pub if_modified_since: Option<&'a [u8]>,
    /// If-Unmodified-Since; `None` also if it is repeated.
    pub if_unmodified_since: Option<&'a [u8]>,
}

/// The result of evaluating the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionResult {
    /// Respond as without conditions.
    Proceed,
    /// Respond with 304: the client has the current representation.
    NotModified,
    /// Respond with 412, and change nothing.
    PreconditionFailed,
}

/// Evaluates the conditions in the order of RFC 9110 §13.2.2 against an existing representation.
///
/// ```
/// use encke_wire::conditional::{ConditionResult, Conditions, EntityTag, Validators, evaluate};
/// use encke_wire::method::Method;
///
/// let conditions = Conditions {
///     if_match: None.into_iter(),
///     if_none_match: Some(&b"\"v1\", \"v2\""[..]).into_iter(),
///     if_modified_since: None,
///     if_unmodified_since: None,
/// };
/// let etag = Some(EntityTag { weak: false, opaque: b"v2" });
/// let validators = Validators { etag, last_modified: None };
/// assert_eq!(evaluate(&conditions, Method::Get, &validators), ConditionResult::NotModified);
/// ```
#[must_use]
pub fn evaluate<'a, L>(
    conditions: &Conditions<'a, L>,
    method: Method,
    validators: &Validators<'_>,
) -> ConditionResult
where
    L: Iterator<Item = &'a [u8]> + Clone,
{
    if is_present(&conditions.if_match) {
        let matches = |tag: EntityTag<'_>| validators.etag.is_some_and(|etag| etag.is_strongly(tag));
        if !any_tag(&conditions.if_match, matches) {
            return ConditionResult::PreconditionFailed;
        }
    } else if let (Some(since), Some(modified)) =
        (conditions.if_unmodified_since.and_then(parse_date), validators.last_modified)
        && modified > since
    {
        return ConditionResult::PreconditionFailed;
    }

    if is_present(&conditions.if_none_match) {
        let matches = |tag: EntityTag<'_>| validators.etag.is_some_and(|etag| etag.is_weakly(tag));
        if any_tag(&conditions.if_none_match, matches) {
            return if method.reads() {
                ConditionResult::NotModified
            } else {
                ConditionResult::PreconditionFailed
            };
        }
    } else if method.reads()
        && let (Some(since), Some(modified)) =
            (conditions.if_modified_since.and_then(parse_date), validators.last_modified)
        && modified <= since
    {
        return ConditionResult::NotModified;
    }
    ConditionResult::Proceed
}

/// Whether the range of a request with `If-Range: value` applies (RFC 9110 §13.1.5): only if the value equals the current
/// strong tag, or exactly the date of the last modification. `now` is in seconds since 1970. A date is a strong validator only
/// once it is two seconds old, because before that the file may change again within the same second.
#[must_use]
pub fn if_range_holds(value: &[u8], validators: &Validators<'_>, now: u64) -> bool {
    if let Some(tag) = EntityTag::parse(value) {
        return validators.etag.is_some_and(|etag| etag.is_strongly(tag));
    }
    let is_settled = |modified: u64| modified.saturating_add(DATE_IS_STRONG_AFTER) <= now;
    validators
        .last_modified
        .is_some_and(|modified| is_settled(modified) && parse_date(value) == Some(modified))
}

impl<'a> EntityTag<'a> {
    /// Parses `"opaque"` or `W/"opaque"`; `None` for anything else.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let (weak, quoted) = match text {
            [b'W', b'/', quoted @ ..] => (true, quoted),
            quoted => (false, quoted),
        };
        let [b'"', opaque @ .., b'"'] = quoted else { return None };
        opaque.iter().all(|&byte| is_tag_byte(byte)).then_some(Self { weak, opaque })
    }

    /// Strong comparison: the same bytes. A weak tag is never strongly equal.
    #[must_use]
    pub fn is_strongly(self, other: EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Weak comparison: equivalent.
    #[must_use]
    pub fn is_weakly(self, other: EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }

    /// Appends the tag in the form used in a field.
    pub fn put(self, out: &mut Vec<u8>) {
        debug_assert!(self.opaque.iter().all(|&byte| is_tag_byte(byte)), "an etag of ours is malformed");
        out.extend_from_slice(if self.weak { b"W/\"" } else { b"\"" });
        out.extend_from_slice(self.opaque);
        out.push(b'"');
    }
}

/// Whether a list field is present. An empty one is present and matches nothing.
fn is_present<'a>(lines: &(impl Iterator<Item = &'a [u8]> + Clone)) -> bool {
    lines.clone().next().is_some()
}

/// Whether the list is `*` (the representation exists) or has a matching tag. In a list with malformed elements, the
/// well-formed ones still count.
fn any_tag<'a>(
    lines: &(impl Iterator<Item = &'a [u8]> + Clone),
    matches: impl Fn(EntityTag<'_>) -> bool,
) -> bool {
    lines
        .clone()
        .flat_map(tags)
        .any(|element| element == b"*" || EntityTag::parse(element).is_some_and(&matches))
}

/// The elements of a list of entity tags, each a tag or `*` if well-formed. Unlike in a quoted string, a backslash in a tag is
/// an ordinary character, so [`field::list`] does not apply here.
pub fn tags(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    line.split(move |&byte| {
        quoted ^= byte == b'"';
        byte == b',' && !quoted
    })
    .map(field::trimmed)
    .filter(|element| !element.is_empty())
}

/// etagc (RFC 9110 §8.8.3).
const fn is_tag_byte(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x7e | 0x80..)
}

/// Seconds after which a file can no longer change within the second of its last modification, plus one as a margin for the
/// file system's own clock. RFC 9110 §8.8.2.2 suggests up to 60 for caches. Here the same clock wrote the file.
const DATE_IS_STRONG_AFTER: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const MODIFIED: u64 = 1_700_000_000;
    const SAME: &[u8] = b"Tue, 14 Nov 2023 22:13:20 GMT";
    const EARLIER: &[u8] = b"Sat, 01 Jan 2000 00:00:00 GMT";
    const LATER: &[u8] = b"Sat, 01 Jan 2028 00:00:00 GMT";

    fn strong(opaque: &str) -> Validators<'_> {
        let etag = EntityTag { weak: false, opaque: opaque.as_bytes() };
        Validators { etag: Some(etag), last_modified: Some(MODIFIED) }
    }

    fn weak(opaque: &str) -> Validators<'_> {
        let etag = EntityTag { weak: true, opaque: opaque.as_bytes() };
        Validators { etag: Some(etag), last_modified: Some(MODIFIED) }
    }

    /// The verdict on a request with these field lines, parsed by the real head parser.
    fn verdict(method: &str, validators: Validators<'_>, lines: &[(&str, &[u8])]) -> ConditionResult {
        let mut request = format!("{method} / HTTP/1.1\r\nHost: a\r\n").into_bytes();
        for (name, value) in lines {
            request.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        request.extend_from_slice(b"\r\n");
        let mut head = crate::http1::Head::new();
        let progress = head.feed(&request, &crate::limits::HeadLimits::default());
        assert_eq!(progress, crate::http1::Progress::Done { head_bytes: request.len() });
        evaluate(&head.conditions(&request), head.method(), &validators)
    }

    #[test]
    fn without_conditions_the_answer_is_sent() {
        assert_eq!(verdict("GET", strong("a"), &[]), ConditionResult::Proceed);
        assert_eq!(verdict("PUT", Validators::default(), &[]), ConditionResult::Proceed);
    }

    #[test]
    fn if_none_match_finds_a_tag_in_lists_over_several_lines_with_commas_inside_of_tags() {
        let value = |value: &'static str| verdict("GET", strong("a"), &[("If-None-Match", value.as_bytes())]);
        assert_eq!(value(r#""a""#), ConditionResult::NotModified);
        assert_eq!(value(r#""x", "y,z", "a""#), ConditionResult::NotModified);
        assert_eq!(value(r#""x","a""#), ConditionResult::NotModified);
        assert_eq!(value(r#"W/"a""#), ConditionResult::NotModified, "the comparison is weak");
        assert_eq!(value("*"), ConditionResult::NotModified);
        assert_eq!(value(r#""nope""#), ConditionResult::Proceed);
        assert_eq!(value(r#""x,a,y""#), ConditionResult::Proceed);
        assert_eq!(value(r#"a"#), ConditionResult::Proceed, "a tag has quotes");
        assert_eq!(value(r#"w/"a""#), ConditionResult::Proceed, "W is a capital");
        assert_eq!(value(""), ConditionResult::Proceed);
        assert_eq!(
            value(r#""\", "a""#),
            ConditionResult::NotModified,
            "a backslash escapes nothing in a tag"
        );
        let lines: [(&str, &[u8]); 2] = [("If-None-Match", br#""x""#), ("if-none-match", br#""a""#)];
        assert_eq!(verdict("GET", strong("a"), &lines), ConditionResult::NotModified);
        assert_eq!(verdict("GET", weak("a"), &[("If-None-Match", br#""a""#)]), ConditionResult::NotModified);
    }

    #[test]
    fn if_none_match_on_a_change_is_a_precondition() {
        let lines: [(&str, &[u8]); 1] = [("If-None-Match", b"*")];
        assert_eq!(verdict("HEAD", strong("a"), &lines), ConditionResult::NotModified);
        assert_eq!(verdict("PUT", strong("a"), &lines), ConditionResult::PreconditionFailed);
    }

    #[test]
    fn if_match_compares_strongly() {
        let value = |validators, value: &'static [u8]| verdict("GET", validators, &[("If-Match", value)]);
        assert_eq!(value(strong("a"), br#""x", "a""#), ConditionResult::Proceed);
        assert_eq!(value(strong("a"), b"*"), ConditionResult::Proceed);
        assert_eq!(value(strong("a"), br#""nope""#), ConditionResult::PreconditionFailed);
        assert_eq!(value(strong("a"), br#"W/"a""#), ConditionResult::PreconditionFailed);
        assert_eq!(value(weak("a"), br#""a""#), ConditionResult::PreconditionFailed);
        assert_eq!(value(weak("a"), br#"W/"a""#), ConditionResult::PreconditionFailed);
        assert_eq!(value(strong("a"), b"garbage"), ConditionResult::PreconditionFailed);
        assert_eq!(value(strong("a"), b""), ConditionResult::PreconditionFailed);
        assert_eq!(value(Validators::default(), br#""a""#), ConditionResult::PreconditionFailed);
    }

    #[test]
    fn if_modified_since_is_later_or_equal_and_not_equality_only() {
        let value = |value| verdict("GET", strong("a"), &[("If-Modified-Since", value)]);
        assert_eq!(value(SAME), ConditionResult::NotModified);
        assert_eq!(value(LATER), ConditionResult::NotModified);
        assert_eq!(value(EARLIER), ConditionResult::Proceed);
        assert_eq!(value(b"Tue Nov 14 22:13:20 2023"), ConditionResult::NotModified, "asctime");
        assert_eq!(value(b"Tuesday, 14-Nov-23 22:13:20 GMT"), ConditionResult::NotModified, "RFC 850");
        assert_eq!(
            value(b"Tue, 14 Nov 2023 22:13:20 +0900"),
            ConditionResult::Proceed,
            "what is no date is ignored"
        );
        let put = verdict("PUT", strong("a"), &[("If-Modified-Since", LATER)]);
        assert_eq!(put, ConditionResult::Proceed, "it is for reading only");
        let twice =
            verdict("GET", strong("a"), &[("If-Modified-Since", LATER), ("If-Modified-Since", LATER)]);
        assert_eq!(twice, ConditionResult::Proceed, "two dates are no date");
        let unknown = Validators { last_modified: None, ..strong("a") };
        assert_eq!(verdict("GET", unknown, &[("If-Modified-Since", LATER)]), ConditionResult::Proceed);
    }

    #[test]
    fn if_unmodified_since_fails_when_modified_later() {
        let value = |value| verdict("GET", strong("a"), &[("If-Unmodified-Since", value)]);
        assert_eq!(value(EARLIER), ConditionResult::PreconditionFailed);
        assert_eq!(value(SAME), ConditionResult::Proceed);
        assert_eq!(value(LATER), ConditionResult::Proceed);
        assert_eq!(value(b"garbage"), ConditionResult::Proceed);
    }

    #[test]
    fn tags_take_precedence_over_dates_and_preconditions_come_first() {
        let miss_then_not_modified: [(&str, &[u8]); 2] =
            [("If-None-Match", br#""nope""#), ("If-Modified-Since", LATER)];
        assert_eq!(verdict("GET", strong("a"), &miss_then_not_modified), ConditionResult::Proceed);
        let match_then_modified: [(&str, &[u8]); 2] =
            [("If-Match", br#""a""#), ("If-Unmodified-Since", EARLIER)];
        assert_eq!(verdict("GET", strong("a"), &match_then_modified), ConditionResult::Proceed);
        let failed_and_not_modified: [(&str, &[u8]); 2] =
            [("If-None-Match", br#""a""#), ("If-Match", br#""nope""#)];
        assert_eq!(
            verdict("GET", strong("a"), &failed_and_not_modified),
            ConditionResult::PreconditionFailed
        );
        let passed_and_not_modified: [(&str, &[u8]); 2] =
            [("If-None-Match", br#""a""#), ("If-Match", br#""a""#)];
        assert_eq!(verdict("GET", strong("a"), &passed_and_not_modified), ConditionResult::NotModified);
    }

    #[test]
    fn if_range_holds_for_exactly_what_we_have() {
        let later = MODIFIED + 100;
        assert!(if_range_holds(br#""a""#, &strong("a"), later));
        assert!(!if_range_holds(br#""b""#, &strong("a"), later));
        assert!(!if_range_holds(br#"W/"a""#, &strong("a"), later));
        assert!(!if_range_holds(br#"W/"a""#, &weak("a"), later));
        assert!(!if_range_holds(br#""a", "b""#, &strong("a"), later), "a list is no tag");
        assert!(if_range_holds(SAME, &strong("a"), later));
        assert!(!if_range_holds(SAME, &strong("a"), MODIFIED + 1), "too fresh to be sure");
        assert!(!if_range_holds(LATER, &strong("a"), later), "dates are compared for equality here");
        assert!(!if_range_holds(EARLIER, &strong("a"), later));
        assert!(!if_range_holds(b"", &strong("a"), later));
        assert!(!if_range_holds(br#""a""#, &Validators::default(), later));
    }

    #[test]
    fn tags_are_written_as_they_are_read() {
        for text in [&br#""a""#[..], br#"W/"x-gz""#, br#""""#, b"\"\xe9\\\""] {
            let mut out = Vec::new();
            EntityTag::parse(text).expect("a valid tag").put(&mut out);
            assert_eq!(out, text);
        }
        for text in [&b"\"a b\""[..], b"\"", b"", b"W/", b"\"a\"b\"", b"\"\x7f\"", b"a"] {
            assert_eq!(EntityTag::parse(text), None, "{}", text.escape_ascii());
        }
    }
}
