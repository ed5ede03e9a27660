//! Patterns of media types in settings: a type, `text/*` for all with that beginning, `*+json` for all with that end.

/// Whether `pattern` includes a media type without parameters. Case is ignored.
///
/// ```
/// use encke_wire::type_pattern::matches;
///
/// assert!(matches("text/*", b"Text/HTML") && matches("*+json", b"application/geo+json"));
/// assert!(!matches("text/*", b"application/json") && !matches("*+json", b"application/json"));
/// ```
#[must_use]
pub fn matches(pattern: &str, media_type: &[u8]) -> bool {
    let pattern = pattern.as_bytes();
    let len = media_type.len();
    if let Some(start) = pattern.strip_suffix(b"*") {
        return media_type.get(..start.len()).is_some_and(|part| part.eq_ignore_ascii_case(start));
    }
    if let Some(end) = pattern.strip_prefix(b"*") {
        let at = len.checked_sub(end.len());
        return at.and_then(|at| media_type.get(at..)).is_some_and(|part| part.eq_ignore_ascii_case(end));
    }
    media_type.eq_ignore_ascii_case(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_type_or_has_one_star_at_an_end() {
        for (pattern, included, excluded) in [
            ("font/otf", "FONT/otf", "font/otf2"),
            ("text/*", "text/", "text"),
            ("*+xml", "image/svg+xml", "text/xml"),
            ("*+xml", "+xml", "xml"),
            ("*", "a/b", "a"),
            ("", "", "a/b"),
        ] {
            assert!(matches(pattern, included.as_bytes()), "{pattern} {included}");
            assert!(pattern == "*" || !matches(pattern, excluded.as_bytes()), "{pattern} {excluded}");
        }
    }
}
