//! Patterns for channel names: `news/*`, `rooms/**`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::limits::{NAME_BYTES_MAX, NAME_SEGMENTS_MAX};
use crate::name::{Name, NameError, check_segment};

/// A pattern for channel names, with the syntax of a name.
///
/// ```text
///   *    matches one segment                            news/*   matches news/today
///   **   matches all remaining segments, at least one   news/**  matches news/today and news/a/b, not news
/// ```
/// A star is a whole segment, and `**` is only valid as the last one. Every other segment matches itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    segments: Vec<PatternSegment>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PatternSegment {
    Rest,
    Any,
    Literal(Box<str>),
}

/// The reason why a text is not a [`Pattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// A segment is neither a star nor a valid segment of a name.
    Name(NameError),
    /// `**` is not the last segment.
    RestNotLast {
        /// The index of `**`, from 0.
        at: usize,
    },
}

impl Pattern {
    /// Returns whether the pattern matches a name.
    ///
    /// ```
    /// use encke_hub::{Name, Pattern};
    ///
    /// let pattern: Pattern = "news/**".parse()?;
    /// assert!(pattern.matches(&Name::parse(b"news/a/b")?));
    /// assert!(!pattern.matches(&Name::parse(b"news")?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn matches(&self, name: &Name) -> bool {
        let mut names = name.segments();
        for segment in &self.segments {
            let Some(name) = names.next() else { return false };
            match segment {
                PatternSegment::Rest => return true,
                PatternSegment::Any => {}
                PatternSegment::Literal(text) if **text == *name => {}
                PatternSegment::Literal(_) => return false,
            }
        }
        names.next().is_none()
    }

    /// Returns whether the pattern matches every name that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        let mut others = other.segments.iter();
        for segment in &self.segments {
            let Some(other) = others.next() else { return false };
            match segment {
                PatternSegment::Rest => return true,
                PatternSegment::Any if *other == PatternSegment::Rest => return false,
                PatternSegment::Any => {}
                PatternSegment::Literal(_) if segment == other => {}
                PatternSegment::Literal(_) => return false,
            }
        }
        others.next().is_none()
    }

    /// Returns the rank of the pattern among patterns that match the same name: the greater, the more specific. Equal ranks
    /// mean equal patterns.
    ///
    /// Segments count from the left, two bits each: a literal (3) beats `*` (2) beats `**` (1). So `a/*` beats `*/b`, and
    /// `a/*/c` beats `a/**`.
    pub fn specificity(&self) -> u16 {
        let kinds = self.segments.iter().map(|segment| match segment {
            PatternSegment::Rest => 1,
            PatternSegment::Any => 2,
            PatternSegment::Literal(_) => 3,
        });
        kinds.chain(std::iter::repeat(0)).take(NAME_SEGMENTS_MAX).fold(0, |packed, kind| packed << 2 | kind)
    }
}

/// Orders by specificity, least specific first, then by text.
impl Ord for Pattern {
    fn cmp(&self, other: &Self) -> Ordering {
        self.specificity().cmp(&other.specificity()).then_with(|| self.segments.cmp(&other.segments))
    }
}

impl PartialOrd for Pattern {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Name(NameError::Empty));
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(PatternError::Name(NameError::TooLong { bytes: text.len() }));
        }
        let mut segments = Vec::new();
        let mut at = 0;
        for part in text.split('/') {
            if segments.len() == NAME_SEGMENTS_MAX {
                return Err(PatternError::Name(NameError::TooManySegments { at }));
            }
            if segments.last() == Some(&PatternSegment::Rest) {
                return Err(PatternError::RestNotLast { at: at - "**/".len() });
            }
            segments.push(match part {
                "**" => PatternSegment::Rest,
                "*" => PatternSegment::Any,
                _ => {
                    check_segment(part.as_bytes(), at).map_err(PatternError::Name)?;
                    PatternSegment::Literal(part.into())
                }
            });
            at += part.len() + 1;
        }
        Ok(Self { segments })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments.iter().enumerate() {
            if index > 0 {
                f.write_str("/")?;
            }
            f.write_str(match segment {
                PatternSegment::Rest => "**",
                PatternSegment::Any => "*",
                PatternSegment::Literal(text) => text,
            })?;
        }
        Ok(())
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(NameError::BadByte { at, byte: b'*' }) => {
                write!(f, "the star at byte {at} is part of a segment: write * or ** as a whole segment")
            }
            Self::Name(error) => error.fmt(f),
            Self::RestNotLast { at } => {
                write!(f, "** at byte {at} must be the last segment: write * for one segment")
            }
        }
    }
}

impl std::error::Error for PatternError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).expect("a name")
    }

    fn pattern(text: &str) -> Pattern {
        text.parse().expect("a pattern")
    }

    #[test]
    fn a_pattern_covers_another_if_it_matches_whatever_that_matches() {
        let texts = [
            "**", "*", "a", "b", "*/**", "*/*", "a/*", "a/**", "*/a", "a/b", "a/*/b", "a/b/**", "*/*/*",
            "a/b/c",
        ];
        let names: Vec<Name> =
            ["a", "b", "c", "a/a", "a/b", "b/a", "c/c", "a/b/b", "a/c/b", "a/b/c", "c/c/c", "a/b/c/d"]
                .map(name)
                .into();
        for one in texts.map(pattern) {
            for other in texts.map(pattern) {
                let covers = names.iter().all(|name| !other.matches(name) || one.matches(name));
                // Seven segments distinguish patterns that fewer segments do not.
                let deep = name("x/y/z/x/y/z/x");
                let covers = covers && (!other.matches(&deep) || one.matches(&deep));
                assert_eq!(one.covers(&other), covers, "{one} {other}");
            }
        }
    }

    #[test]
    fn a_star_is_one_segment_and_two_are_the_rest() {
        for (text, matched, other) in [
            ("news", "news", "new"),
            ("*", "news", "news/today"),
            ("**", "a/b/c", ""),
            ("news/*", "news/today", "news/a/b"),
            ("news/**", "news/a/b", "news"),
            ("*/b", "a/b", "b/a"),
            ("a/*/c", "a/b/c", "a/b/d"),
            ("a/b", "a/b", "a"),
        ] {
            assert!(pattern(text).matches(&name(matched)), "{text} {matched}");
            if !other.is_empty() {
                assert!(!pattern(text).matches(&name(other)), "{text} {other}");
            }
            assert_eq!(pattern(text).to_string(), text);
        }
    }

    #[test]
    fn texts_that_are_no_patterns_are_told_with_their_place() {
        for (text, error) in [
            ("", PatternError::Name(NameError::Empty)),
            ("a/**/b", PatternError::RestNotLast { at: 2 }),
            ("a*", PatternError::Name(NameError::BadByte { at: 1, byte: b'*' })),
            ("a/***", PatternError::Name(NameError::BadByte { at: 2, byte: b'*' })),
            ("a//b", PatternError::Name(NameError::EmptySegment { at: 2 })),
            ("*/*/*/*/*/*/*/*/*", PatternError::Name(NameError::TooManySegments { at: 16 })),
        ] {
            assert_eq!(text.parse::<Pattern>(), Err(error), "{text}");
            assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn specificity_is_a_total_order_on_all_that_match_one_name() {
        // All patterns for a/b/c made of its segments, `*` and `**`.
        let mut all: Vec<Pattern> = Vec::new();
        for (first, second, third) in (0..8).map(|bits| (bits & 4 != 0, bits & 2 != 0, bits & 1 != 0)) {
            let part = |star: bool, text: &str| if star { "*".to_owned() } else { text.to_owned() };
            let parts = [part(first, "a"), part(second, "b"), part(third, "c")];
            all.push(pattern(&parts.join("/")));
            all.push(pattern(&format!("{}/{}/**", parts[0], parts[1])));
            all.push(pattern(&format!("{}/**", parts[0])));
        }
        all.push(pattern("**"));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 8 + 4 + 2 + 1);
        assert!(all.iter().all(|one| one.matches(&name("a/b/c"))));
        for pair in all.windows(2) {
            assert!(pair[0].specificity() < pair[1].specificity(), "{} {}", pair[0], pair[1]);
        }
        let told: Vec<String> = all.iter().map(Pattern::to_string).collect();
        assert_eq!(
            told,
            [
                "**", "*/**", "*/*/**", "*/*/*", "*/*/c", "*/b/**", "*/b/*", "*/b/c", "a/**", "a/*/**",
                "a/*/*", "a/*/c", "a/b/**", "a/b/*", "a/b/c"
            ]
        );
    }
}
