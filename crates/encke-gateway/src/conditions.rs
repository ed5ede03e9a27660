//! Conditions about entity tags that a compression has made weak.
//!
//! ```text
//!  application ─► ETag: "a" ─► compressed ─► ETag: W/"a" ─► client
//!  application ◄─ If-Match: "a" ◄────────── If-Match: W/"a" ◄─┤
//!  application ◄─ If-None-Match: W/"a", "a" ◄─ If-None-Match: W/"a" ◄─┘
//! ```
//! `If-Match` compares strongly (RFC 9110 §13.1.1), so a weak tag is a 412 for ever. An application whose own tag is weak responds 412 in
//! either case. `If-None-Match` compares weakly, but some applications compare the text. `If-Range` stays: ranges of the plain content do
//! not fit to compressed content.

use encke_wire::field::Known;

/// Appends the field of a client, with the tags that the application gave, if it is a condition with a weak tag. Returns false if the
/// field is to be passed on without a change.
pub(crate) fn put_restored(out: &mut Vec<u8>, known: Known, value: &[u8]) -> bool {
    let (name, keeps): (&[u8], bool) = match known {
        Known::IfMatch => (b"If-Match: ", false),
        Known::IfNoneMatch => (b"If-None-Match: ", true),
        _ => return false,
    };
    if !value.windows(WEAK.len()).any(|start| start == WEAK) {
        return false;
    }
    out.extend_from_slice(name);
    let mut rest = value;
    while let Some(quote) = rest.iter().position(|byte| *byte == b'"') {
        let Some(length) = rest[quote + 1..].iter().position(|byte| *byte == b'"') else { break };
        let tag = &rest[quote..=quote + 1 + length];
        let before = &rest[..quote];
        match before.strip_suffix(b"W/") {
            Some(before) if !keeps => out.extend_from_slice(before),
            Some(_) => {
                out.extend_from_slice(before);
                out.extend_from_slice(tag);
                out.extend_from_slice(b", ");
            }
            None => out.extend_from_slice(before),
        }
        out.extend_from_slice(tag);
        rest = &rest[quote + 2 + length..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(b"\r\n");
    true
}

/// The start of a weak tag (RFC 9110 §8.8.3).
const WEAK: &[u8] = b"W/\"";

#[cfg(test)]
mod tests {
    use super::*;

    fn restored(known: Known, value: &str) -> Option<String> {
        let mut out = Vec::new();
        put_restored(&mut out, known, value.as_bytes())
            .then(|| String::from_utf8(out).expect("text"))
            .and_then(|line| Some(line.trim_end().split_once(": ")?.1.to_owned()))
    }

    #[test]
    fn a_weak_tag_is_what_the_application_gave() {
        for (value, matching, none_matching) in [
            ("W/\"a\"", "\"a\"", "W/\"a\", \"a\""),
            ("\"a\", W/\"b,W/c\"", "\"a\", \"b,W/c\"", "\"a\", W/\"b,W/c\", \"b,W/c\""),
            ("W/\"a\",W/\"\"", "\"a\",\"\"", "W/\"a\", \"a\",W/\"\", \"\""),
            ("W/\"a", "W/\"a", "W/\"a"),
            ("\"aW/\"", "\"aW/\"", "\"aW/\""),
        ] {
            assert_eq!(restored(Known::IfMatch, value).as_deref(), Some(matching));
            assert_eq!(restored(Known::IfNoneMatch, value).as_deref(), Some(none_matching));
        }
    }

    #[test]
    fn other_conditions_stay() {
        for value in ["*", "\"a\"", "", "\"a\", \"b\""] {
            assert_eq!(restored(Known::IfMatch, value), None, "{value}");
            assert_eq!(restored(Known::IfNoneMatch, value), None, "{value}");
        }
        assert_eq!(restored(Known::IfRange, "W/\"a\""), None);
    }
}
