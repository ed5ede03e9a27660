//! Negotiation of media types (RFC 9110 §12.5.1): selects the offered type that the client prefers.
//!
//! ```text
//!   Accept: text/html, application/*;q=0.8, */*;q=0.1     offered: [application/json, text/html]
//!           └ 1 for it ┘ └ 0.8 for json ─┘                ─► text/html
//! ```
//!
//! For each offered type the most specific range decides, not the best one: `text/html;q=0, */*` excludes HTML. Parameters of a
//! range other than its weight are ignored. Offered types have none, and clients that send `application/json; charset=utf-8`
//! mean `application/json`.

use crate::field;

/// Whether `Accept` names a type itself, and not only by a wildcard. Weights do not count.
///
/// ```
/// use encke_wire::accept::names;
///
/// assert!(names([&b"image/png, Text/HTML;q=0.8"[..]].into_iter(), "text/html"));
/// assert!(!names([&b"*/*, x-text/html"[..]].into_iter(), "text/html"));
/// ```
#[must_use]
pub fn names<'a>(lines: impl Iterator<Item = &'a [u8]>, name: &str) -> bool {
    let range = |element: &[u8]| {
        let range = field::parameters(element).next().unwrap_or_default();
        range.eq_ignore_ascii_case(name.as_bytes())
    };
    lines.flat_map(field::list).any(range)
}

/// The index in `offered` of the type with the highest weight, and the first of equal ones. `lines` are the values of all
/// `Accept` lines; without any, every type is accepted. `None` if the client accepts none of the types.
///
/// ```
/// use encke_wire::accept::preferred;
///
/// let accept = [&b"text/html, application/*;q=0.8"[..]];
/// assert_eq!(preferred(accept.into_iter(), &["application/json", "text/html"]), Some(1));
/// assert_eq!(preferred(accept.into_iter(), &["image/png"]), None);
/// ```
#[must_use]
pub fn preferred<'a>(lines: impl Iterator<Item = &'a [u8]> + Clone, offered: &[&str]) -> Option<usize> {
    if lines.clone().all(<[u8]>::is_empty) {
        return (!offered.is_empty()).then_some(0);
    }
    let mut best = None;
    let mut most = 0;
    for (index, offer) in offered.iter().enumerate() {
        let weight = weight_of(lines.clone(), offer);
        if weight > most {
            (best, most) = (Some(index), weight);
        }
    }
    best
}

/// The weight of one type in thousandths: that of the most specific range that includes the type.
fn weight_of<'a>(lines: impl Iterator<Item = &'a [u8]>, offer: &str) -> u16 {
    let ranges = lines.flat_map(field::list).filter_map(field::weighted);
    let matching = ranges.filter_map(|(range, weight)| Some((specificity(range, offer)?, weight)));
    // The first of several equally specific ranges applies.
    let first_most_specific = matching.reduce(|best, next| if next.0 > best.0 { next } else { best });
    first_most_specific.map_or(0, |(_, weight)| weight)
}

/// How specifically `range` includes `offer`: 2 by its name, 1 by its main type, 0 by `*/*`. `None` if it does not.
fn specificity(range: &[u8], offer: &str) -> Option<u8> {
    if range.eq_ignore_ascii_case(offer.as_bytes()) {
        return Some(2);
    }
    if range == b"*/*" {
        return Some(0);
    }
    let main = range.strip_suffix(b"/*")?;
    let (offered, _) = offer.split_once('/')?;
    main.eq_ignore_ascii_case(offered.as_bytes()).then_some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFERED: [&str; 3] = ["application/json", "text/html", "text/event-stream"];

    fn choice(lines: &[&str]) -> Option<&'static str> {
        let lines = lines.iter().map(|line| line.as_bytes());
        preferred(lines, &OFFERED).map(|index| OFFERED[index])
    }

    #[test]
    fn the_first_type_is_for_clients_that_do_not_care() {
        assert_eq!(choice(&[]), Some("application/json"));
        assert_eq!(choice(&[""]), Some("application/json"));
        assert_eq!(choice(&["*/*"]), Some("application/json"));
        assert_eq!(preferred([].into_iter(), &[]), None);
    }

    #[test]
    fn a_browser_gets_html_and_an_event_source_its_stream() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";
        assert_eq!(choice(&[browser]), Some("text/html"));
        assert_eq!(choice(&["text/event-stream"]), Some("text/event-stream"));
        assert_eq!(choice(&["application/json, text/plain, */*"]), Some("application/json"));
        assert_eq!(choice(&["Application/JSON; charset=utf-8"]), Some("application/json"));
    }

    #[test]
    fn the_most_specific_range_decides() {
        assert_eq!(choice(&["text/*, application/json;q=0.5"]), Some("text/html"));
        assert_eq!(choice(&["text/*;q=0.4, text/event-stream;q=0.6, */*;q=0.5"]), Some("text/event-stream"));
        assert_eq!(choice(&["*/*, application/json;q=0"]), Some("text/html"));
        assert_eq!(choice(&["application/*;q=0", "*/*;q=0.1"]), Some("text/html"));
        assert_eq!(choice(&["text/html;q=0.1, text/html"]), Some("text/html"));
    }

    #[test]
    fn what_is_not_accepted_is_none() {
        assert_eq!(choice(&["image/png"]), None);
        assert_eq!(choice(&["*/*;q=0"]), None);
        assert_eq!(choice(&["text/html;q=much"]), None);
        assert_eq!(choice(&["*"]), None);
        assert_eq!(choice(&["texts/*, tex/html"]), None);
    }
}
