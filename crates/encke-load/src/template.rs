//! Text with placeholders: `/item/{seq}?r={rand:1-100}&id={uuid}`, filled in for each request.
//!
//! ```text
//!   "/item/{seq}?r={rand:1-9}"  ──►  Text("/item/") · Seq · Text("?r=") · Rand(1, 9)
//! ```
//! Unknown braces stay as they are, so JSON needs no escapes. There is deliberately no template language: it would run in the
//! loop that measures.

use encke_wire::http1::put_number;

use crate::random::Random;

/// A text whose placeholders are filled in at each use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Template(Vec<TemplatePiece>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum TemplatePiece {
    Text(Vec<u8>),
    /// `{seq}`: 1, 2, 3 and so on, over all threads.
    Sequence,
    /// `{rand:LOW-HIGH}`: a random number in this range, inclusive.
    Between(u64, u64),
    /// `{uuid}`: a random UUID (RFC 9562, version 4), in the form 8-4-4-4-12.
    Uuid,
}

impl Template {
    /// Parses the placeholders of a text.
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some((&first, tail)) = rest.split_first() {
            let hole = (first == b'{').then(|| tail.iter().position(|&byte| byte == b'}')).flatten();
            match hole.and_then(|end| Some((end, TemplatePiece::of(&tail[..end])?))) {
                Some((end, piece)) => {
                    if !plain.is_empty() {
                        pieces.push(TemplatePiece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(piece);
                    rest = &tail[end + 1..];
                }
                None => {
                    plain.push(first);
                    rest = tail;
                }
            }
        }
        if !plain.is_empty() {
            pieces.push(TemplatePiece::Text(plain));
        }
        Self(pieces)
    }

    /// A text without placeholders, whatever it contains.
    pub(crate) fn literal(text: &[u8]) -> Self {
        Self(vec![TemplatePiece::Text(text.to_vec())])
    }

    /// Whether the text is the same at each use.
    pub(crate) fn is_fixed(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, TemplatePiece::Text(_)))
    }

    /// Appends the text with its placeholders filled in.
    pub(crate) fn put(&self, sequence: u64, random: &mut Random, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                TemplatePiece::Text(text) => out.extend_from_slice(text),
                TemplatePiece::Sequence => put_number(out, sequence),
                TemplatePiece::Between(low, high) => put_number(out, low + random.below(high - low + 1)),
                TemplatePiece::Uuid => put_uuid(random, out),
            }
        }
    }
}

impl TemplatePiece {
    fn of(name: &[u8]) -> Option<Self> {
        match name {
            b"seq" => Some(Self::Sequence),
            b"uuid" => Some(Self::Uuid),
            _ => {
                let range = std::str::from_utf8(name.strip_prefix(b"rand:")?).ok()?;
                let (low, high) = range.split_once('-')?;
                let (low, high): (u64, u64) = (low.parse().ok()?, high.parse().ok()?);
                // The number of values must itself fit into 64 bits.
                (low <= high && high - low < u64::MAX).then_some(Self::Between(low, high))
            }
        }
    }
}

fn put_uuid(random: &mut Random, out: &mut Vec<u8>) {
    let bits = u128::from(random.word()) << 64 | u128::from(random.word());
    let version = (bits & !(0xF << 76)) | (0x4 << 76);
    let uuid = (version & !(0x3 << 62)) | (0x2 << 62);
    for nibble in (0..32).rev() {
        if matches!(nibble, 23 | 19 | 15 | 11) {
            out.push(b'-');
        }
        out.push(b"0123456789abcdef"[(uuid >> (4 * nibble)) as usize & 0xF]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> String {
        let mut out = Vec::new();
        Template::of(text.as_bytes()).put(41, &mut Random::new(1, 0), &mut out);
        String::from_utf8(out).expect("holes are filled with ASCII")
    }

    #[test]
    fn holes_are_filled_and_the_rest_stays() {
        for (text, expected) in [
            ("/", "/"),
            ("/{seq}", "/41"),
            ("{seq}{seq}", "4141"),
            ("{\"a\": {\"b\": {seq}}}", "{\"a\": {\"b\": 41}}"),
            ("{rand:5-5}", "5"),
            (
                "{rand:9-1}{rand:x}{rand:0-18446744073709551615}",
                "{rand:9-1}{rand:x}{rand:0-18446744073709551615}",
            ),
            ("{other}{", "{other}{"),
            ("", ""),
        ] {
            assert_eq!(filled(text), expected, "{text}");
        }
    }

    #[test]
    fn a_template_without_holes_is_fixed() {
        assert!(Template::of(b"{\"a\":1}").is_fixed());
        assert!(!Template::of(b"a{uuid}").is_fixed());
    }

    #[test]
    fn a_uuid_has_the_form_of_version_four() {
        let uuid = filled("{uuid}");
        let parts: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{uuid}");
        assert!(uuid[14..].starts_with('4') && matches!(uuid.as_bytes()[19], b'8'..=b'b'), "{uuid}");
    }

    #[test]
    fn random_numbers_stay_between_their_bounds() {
        let template = Template::of(b"{rand:10-12}");
        let mut random = Random::new(5, 0);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut out = Vec::new();
            template.put(0, &mut random, &mut out);
            seen.insert(String::from_utf8(out).expect("digits"));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["10", "11", "12"]);
    }
}
