//! Templates with placeholders, as in `"{active} of {connections} active"`: filled, and matched against a text.

/// Fills a template's placeholders. A placeholder without a value stays in the text, so that the error is visible.
pub fn filled(template: &str, values: &[(&str, String)]) -> String {
    parts(template).fold(String::new(), |said, part| match part {
        TextPart::Literal(text) => said + text,
        TextPart::Place(name) => match values.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => said + value,
            None => format!("{said}{{{name}}}"),
        },
    })
}

/// Matches a text against a template, and returns the placeholders' values; `None` if it does not match. A value ends at the
/// first occurrence of the literal after it, the last value at the end.
pub(super) fn matched<'a, 'b>(template: &'a str, said: &'b str) -> Option<Vec<(&'a str, &'b str)>> {
    let mut values = Vec::new();
    let mut rest = said;
    let mut open = None;
    for part in parts(template) {
        match (part, open) {
            (TextPart::Place(name), _) => open = Some(name),
            (TextPart::Literal(text), None) => rest = rest.strip_prefix(text)?,
            (TextPart::Literal(text), Some(name)) => {
                let (value, behind) = rest.split_once(text)?;
                values.push((name, value));
                (rest, open) = (behind, None);
            }
        }
    }
    match open {
        Some(name) => values.push((name, rest)),
        None if rest.is_empty() => {}
        None => return None,
    }
    values.iter().all(|(_, value)| !value.is_empty()).then_some(values)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TextPart<'a> {
    Literal(&'a str),
    /// The name between the braces.
    Place(&'a str),
}

/// Splits a template into literals and placeholders. An unclosed brace is text.
pub(super) fn parts(template: &str) -> impl Iterator<Item = TextPart<'_>> {
    let mut rest = template;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some((name, behind)) = rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            rest = behind;
            return Some(TextPart::Place(name));
        }
        let end = rest.char_indices().skip(1).find(|(_, char)| *char == '{').map_or(rest.len(), |(at, _)| at);
        let (text, behind) = rest.split_at(end);
        rest = behind;
        Some(TextPart::Literal(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CROWD: &str = "{active} of {connections} active";

    #[test]
    fn what_is_filled_is_found_again() {
        let said = filled(CROWD, &[("active", "10".into()), ("connections", "2000".into())]);
        assert_eq!(said, "10 of 2000 active");
        assert_eq!(matched(CROWD, &said), Some(vec![("active", "10"), ("connections", "2000")]));
        assert_eq!(matched("at {time}", "at 5 ms"), Some(vec![("time", "5 ms")]));
        assert_eq!(matched("poll", "poll"), Some(vec![]));
    }

    #[test]
    fn what_a_template_does_not_say_is_not_found_in_it() {
        for other in ["", "10 of 2000", "10 of 2000 active now", " of  active"] {
            assert_eq!(matched(CROWD, other), None, "{other}");
        }
    }

    #[test]
    fn a_place_without_a_value_is_seen() {
        assert_eq!(filled("{a} and {b}", &[("a", "1".into())]), "1 and {b}");
        assert_eq!(filled("é{a}{", &[("a", "1".into())]), "é1{");
    }
}
