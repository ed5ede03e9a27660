//! Patterns for paths in rules: `/assets/**`, `/**/*.css`, `/blog/*/old`.
//!
//! ```text
//!   *     any characters of one segment, or none
//!   **/   any directories, or none           /**/*.css   matches /a.css and /b/c/a.css
//!   **    anything, or nothing               /assets/**  matches /assets/ and everything below it
//! ```
//! All other characters match themselves. A pattern matches whole decoded paths. Each star captures the text that it matches,
//! the shortest first: `$1` … `$8` of a redirect.
//!
//! Matching backtracks to the last `*`, and once that has reached the end of its segment, to the last `**`. Text that an
//! earlier star could match instead can be matched by a later one. The time is at most the square of the path's length, which
//! [`PATH_BYTES_MAX`] bounds; without two stars of both kinds it is linear.

mod overlap;

use std::fmt;
use std::ops::Range;

/// Maximum number of stars in one pattern.
pub const STARS_MAX: usize = 8;

/// Maximum length of a decoded path, in bytes: PATH_MAX of Linux. The server answers 414 to a request with a longer one before any
/// rule is asked. A pattern with a star before its end does not match a longer path.
pub const PATH_BYTES_MAX: usize = 4096;

/// A parsed pattern.
///
/// ```
/// use encke_wire::path_pattern::PathPattern;
///
/// let pattern = PathPattern::parse("/blog/*/**")?;
/// let path = "/blog/2026/a/b";
/// let captures = pattern.captures(path).expect("it matches");
/// assert_eq!([&path[captures[0].clone()], &path[captures[1].clone()]], ["2026", "a/b"]);
/// # Ok::<(), encke_wire::path_pattern::PathPatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    pieces: Vec<PatternPiece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPiece {
    Text(String),
    /// `*`
    Name,
    /// `**/`
    Folders,
    /// `**`
    All,
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            PatternPiece::Text(text) => f.write_str(text),
            PatternPiece::Name => f.write_str("*"),
            PatternPiece::Folders => f.write_str("**/"),
            PatternPiece::All => f.write_str("**"),
        })
    }
}

/// The ranges of a path that the stars of a pattern matched, in order.
pub type Captures = Vec<Range<usize>>;

/// The reason why a text is not a pattern of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathPatternError {
    /// Paths begin with a slash, so patterns do.
    NotAbsolute,
    /// More than eight stars.
    TooManyStars,
    /// `***`, which would match the same as `**`.
    ThreeStars,
}

impl fmt::Display for PathPatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAbsolute => f.write_str("a pattern begins with a slash, for example /**/*.css"),
            Self::TooManyStars => write!(f, "a pattern has at most {STARS_MAX} stars"),
            Self::ThreeStars => {
                f.write_str("write * for a part of one segment, ** for any number of segments")
            }
        }
    }
}

impl std::error::Error for PathPatternError {}

/// Whether decoding a path returns the same bytes. One look-up per byte: decoding costs three times as much.
fn is_plain(path: &[u8]) -> bool {
    /// A byte that decoding may change or reject.
    const ANYWHERE: u8 = 1;
    /// A byte that decoding may change after a slash.
    const AFTER_SLASH: u8 = 2;
    const SLASH: u8 = 4;
    const CLASSES: [u8; 256] = {
        let mut classes = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            classes[byte] = match byte as u8 {
                b'/' => AFTER_SLASH | SLASH,
                b'.' => AFTER_SLASH,
                b'%' | b'\\' | 0..=0x20 | 0x7f..=0xff => ANYWHERE,
                _ => 0,
            };
            byte += 1;
        }
        classes
    };
    let (mut found, mut sought) = (0, ANYWHERE);
    for &byte in path {
        let class = CLASSES[usize::from(byte)];
        found |= class & sought;
        // A slash makes the next byte one after a slash.
        sought = ANYWHERE | ((class & SLASH) >> 1);
    }
    found == 0 && path.first() == Some(&b'/')
}

impl PathPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// See [`PathPatternError`].
    pub fn parse(text: &str) -> Result<Self, PathPatternError> {
        if !text.starts_with('/') {
            return Err(PathPatternError::NotAbsolute);
        }
        if text.contains("***") {
            return Err(PathPatternError::ThreeStars);
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let at_segment = matches!(pieces.last(), Some(PatternPiece::Text(text)) if text.ends_with('/'))
                || matches!(pieces.last(), Some(PatternPiece::Folders));
            let (piece, bytes) = if at_segment && rest.starts_with("**/") {
                (PatternPiece::Folders, 3)
            } else if rest.starts_with("**") {
                (PatternPiece::All, 2)
            } else if rest.starts_with('*') {
                (PatternPiece::Name, 1)
            } else {
                let end = rest.find('*').unwrap_or(rest.len());
                (PatternPiece::Text(rest[..end].to_owned()), end)
            };
            pieces.push(piece);
            rest = &rest[bytes..];
        }
        let pattern = Self { pieces };
        if pattern.stars() > STARS_MAX { Err(PathPatternError::TooManyStars) } else { Ok(pattern) }
    }

    /// The number of stars, and of captures of a match.
    pub fn stars(&self) -> usize {
        self.pieces.iter().filter(|piece| !matches!(piece, PatternPiece::Text(_))).count()
    }

    /// The number of bytes besides stars: of several patterns that match a path, the one with the most is the most specific.
    pub fn weight(&self) -> usize {
        let bytes = |piece: &PatternPiece| match piece {
            PatternPiece::Text(text) => text.len(),
            PatternPiece::Folders => 1,
            PatternPiece::Name | PatternPiece::All => 0,
        };
        self.pieces.iter().map(bytes).sum()
    }

    /// A path that the pattern matches: each star becomes a name.
    pub fn sample(&self) -> String {
        let name = |piece: &PatternPiece| match piece {
            PatternPiece::Text(text) => text.clone(),
            PatternPiece::Folders => "x/".to_owned(),
            PatternPiece::Name | PatternPiece::All => "x".to_owned(),
        };
        self.pieces.iter().map(name).collect()
    }

    /// Whether the pattern matches all of `path`.
    pub fn matches(&self, path: &str) -> bool {
        match &*self.pieces {
            [PatternPiece::Text(text)] => path == text,
            // `/**`, `/api/**`: no captures to allocate.
            [PatternPiece::Text(text), PatternPiece::All] => path.starts_with(text.as_str()),
            _ => path.len() <= PATH_BYTES_MAX && self.captures(path).is_some(),
        }
    }

    /// Whether the pattern matches a path as received, if that can be decided without decoding it: the path has no escapes, dot
    /// segments or doubled slashes and consists of ASCII, and the pattern has no star, or only `**` at its end.
    ///
    /// ```
    /// use encke_wire::path_pattern::PathPattern;
    ///
    /// let pattern = PathPattern::parse("/api/**")?;
    /// assert_eq!(pattern.matches_plain(b"/api/items"), Some(true));
    /// assert_eq!(pattern.matches_plain(b"/x/../api/items"), None);
    /// # Ok::<(), encke_wire::path_pattern::PathPatternError>(())
    /// ```
    pub fn matches_plain(&self, path: &[u8]) -> Option<bool> {
        match &*self.pieces {
            [PatternPiece::Text(text)] => is_plain(path).then(|| path == text.as_bytes()),
            [PatternPiece::Text(text), PatternPiece::All] => {
                is_plain(path).then(|| path.starts_with(text.as_bytes()))
            }
            _ => None,
        }
    }

    /// The range of `path` that each star matches; `None` if the pattern does not match.
    pub fn captures(&self, path: &str) -> Option<Captures> {
        let mut captures = Captures::new();
        let (mut piece, mut at) = (0, 0);
        // The states to backtrack to: the last `*`, and the last `**` of either kind, as the index of its piece and of its
        // capture.
        let mut name: Option<(usize, usize)> = None;
        let mut deep: Option<(usize, usize)> = None;
        loop {
            let matched = match self.pieces.get(piece) {
                None => at == path.len(),
                Some(PatternPiece::Text(text)) => {
                    let matched = path[at..].starts_with(text.as_str());
                    if matched {
                        at += text.len();
                        piece += 1;
                    }
                    matched
                }
                Some(star) => {
                    let place = Some((piece, captures.len()));
                    if *star == PatternPiece::Name {
                        name = place;
                    } else {
                        (deep, name) = (place, None);
                    }
                    captures.push(at..at);
                    piece += 1;
                    true
                }
            };
            if matched {
                if piece == self.pieces.len() && at == path.len() {
                    return Some(captures);
                }
                if piece < self.pieces.len() {
                    continue;
                }
            }
            // Backtrack: the last star that can take another character takes it.
            let more = |(star, capture): (usize, usize), captures: &Captures| -> Option<usize> {
                let end = captures[capture].end;
                let next = path[end..].chars().next()?;
                match self.pieces[star] {
                    PatternPiece::Name if next == '/' => None,
                    PatternPiece::Folders => path[end..].find('/').map(|slash| end + slash + 1),
                    _ => Some(end + next.len_utf8()),
                }
            };
            let (star, capture, end) = match name.and_then(|place| Some((place, more(place, &captures)?))) {
                Some(((star, capture), end)) => (star, capture, end),
                None => {
                    let place = deep?;
                    name = None;
                    (place.0, place.1, more(place, &captures)?)
                }
            };
            captures[capture].end = end;
            captures.truncate(capture + 1);
            (piece, at) = (star + 1, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text).expect("a pattern")
    }

    #[test]
    fn a_plain_path_matches_as_its_decoded_form() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let (mut plain, mut decided) = (0, 0);
        for _ in 0..200_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let letters = b"//..a%2f\\A \xc3".iter();
            let letters: Vec<u8> = letters.copied().collect();
            let length = (seed >> 60) as usize % 8;
            let mut path = if seed & 15 == 0 { Vec::new() } else { b"/".to_vec() };
            path.extend((0..length).map(|place| letters[(seed >> (place * 6)) as usize % letters.len()]));
            let mut decoded = String::new();
            let is_valid = crate::target::decode_path(&path, &mut decoded).is_ok();
            for text in ["/", "/a", "/a/**", "/**", "/a**", "/*"] {
                let Some(matches) = pattern(text).matches_plain(&path) else { continue };
                decided += 1;
                let shown = String::from_utf8_lossy(&path);
                assert!(is_valid && decoded.as_bytes() == path, "{shown} is not plain");
                assert_eq!(matches, pattern(text).matches(&decoded), "{text}: {shown}");
            }
            plain += usize::from(is_plain(&path));
        }
        assert!(plain > 1_000 && decided == plain * 5, "{plain} plain paths");
    }

    fn captured<'a>(text: &str, path: &'a str) -> Option<Vec<&'a str>> {
        let captures = pattern(text).captures(path)?;
        Some(captures.into_iter().map(|range| &path[range]).collect())
    }

    #[test]
    fn a_star_stays_within_its_segment_and_two_stars_do_not() {
        for (text, path, matches) in [
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("/a", "/", false),
            ("/*", "/", true),
            ("/*", "/a", true),
            ("/*", "/a/b", false),
            ("/*/", "/a/", true),
            ("/*.css", "/a.css", true),
            ("/*.css", "/a.css.map", false),
            ("/*.css", "/a.css.css", true),
            ("/*.css", "/b/a.css", false),
            ("/**", "/", true),
            ("/**", "/a/b/c", true),
            ("/**/*.css", "/a.css", true),
            ("/**/*.css", "/b/c/a.css", true),
            ("/**/*.css", "/b/c/a.js", false),
            ("/**/b", "/ab", false),
            ("/**/b", "/a/b", true),
            ("/a/**/b", "/a/b", true),
            ("/a/**/b", "/a/x/y/b", true),
            ("/a/**/b", "/ab", false),
            ("/assets/**", "/assets/", true),
            ("/assets/**", "/assets", false),
            ("/a**z", "/a/b/z", true),
            ("/*/x/*", "/a/x/b", true),
            ("/*/x/*", "/a/y/b", false),
            ("/*a*b/c", "/xaab/c", true),
            ("/**/x*y/**/z", "/q/xy/x1y/p/z", true),
            ("/**a*b", "/xa/ab", true),
            ("/**a*b", "/ab/c", false),
            ("/日*", "/日本", true),
        ] {
            assert_eq!(pattern(text).matches(path), matches, "{text} on {path}");
        }
    }

    #[test]
    fn captures_are_what_the_stars_stood_for() {
        assert_eq!(captured("/old/*", "/old/page"), Some(vec!["page"]));
        assert_eq!(captured("/*/by/*", "/a/by/b"), Some(vec!["a", "b"]));
        assert_eq!(captured("/blog/**", "/blog/2024/05/x"), Some(vec!["2024/05/x"]));
        assert_eq!(captured("/**/*.htm", "/a/b/c.htm"), Some(vec!["a/b/", "c"]));
        assert_eq!(captured("/**/*.htm", "/c.htm"), Some(vec!["", "c"]));
        assert_eq!(captured("/x", "/x"), Some(vec![]));
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        assert_eq!(PathPattern::parse("a/*"), Err(PathPatternError::NotAbsolute));
        assert_eq!(PathPattern::parse(""), Err(PathPatternError::NotAbsolute));
        assert_eq!(PathPattern::parse("/***"), Err(PathPatternError::ThreeStars));
        assert_eq!(PathPattern::parse("/*a*a*a*a*a*a*a*a*a"), Err(PathPatternError::TooManyStars));
    }

    #[test]
    fn matching_agrees_with_trying_everything() {
        /// Tries every way to match, one by one.
        fn slow(pieces: &[PatternPiece], path: &str) -> bool {
            let Some((piece, rest)) = pieces.split_first() else { return path.is_empty() };
            match piece {
                PatternPiece::Text(text) => {
                    path.strip_prefix(text.as_str()).is_some_and(|path| slow(rest, path))
                }
                star => (0..=path.len()).any(|end| {
                    let text = &path[..end];
                    let allowed = match star {
                        PatternPiece::Name => !text.contains('/'),
                        PatternPiece::Folders => text.is_empty() || text.ends_with('/'),
                        _ => true,
                    };
                    allowed && slow(rest, &path[end..])
                }),
            }
        }
        let mut state = 0x5eed_u64;
        let mut draw = |choices: &[&'static str], most: u64| {
            let mut text = String::from("/");
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            for _ in 0..(state >> 33) % most {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push_str(choices[(state >> 33) as usize % choices.len()]);
            }
            text
        };
        let mut matched = 0;
        for round in 0..60_000 {
            let text = draw(&["*", "**", "**/", "/", "a", "b"], 8);
            let Ok(pattern) = PathPattern::parse(&text) else { continue };
            let path = draw(&["/", "a", "b", "ab"], 9);
            let expected = slow(&pattern.pieces, &path);
            matched += usize::from(expected);
            assert_eq!(pattern.matches(&path), expected, "round {round}: {text} on {path}");
        }
        assert!(matched > 5_000, "{matched} matches are too few to mean anything");
    }

    #[test]
    fn the_worst_pattern_on_the_longest_path_ends_soon() {
        let path = format!("/{}", "a".repeat(PATH_BYTES_MAX - 1));
        assert!(!pattern("/**a*a*a*a*a*a*b").matches(&path));
    }
}
