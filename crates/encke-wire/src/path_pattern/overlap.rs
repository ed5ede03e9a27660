//! Whether two patterns match a common path: a search through the pairs of their states.

use std::collections::HashSet;

use super::{PathPattern, PatternPiece};

/// A step of a pattern: a character, or a star.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PatternStep {
    Character(char),
    Star(Star),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Star {
    /// `*`
    Name,
    /// `**/`
    Folders,
    /// `**`
    All,
}

/// The characters that a step accepts.
#[derive(Clone, Copy)]
enum Accepts {
    One(char),
    NoSlash,
    Any,
}

/// The index of the next step, and whether the path is within a segment that `**/` matches.
type PatternState = (usize, bool);

impl PathPattern {
    /// Whether a path exists that both patterns match. Takes time for each pair of their characters, so it is for checks of
    /// settings, not for requests.
    ///
    /// ```
    /// use encke_wire::path_pattern::PathPattern;
    ///
    /// let pattern = |text| PathPattern::parse(text).expect("a pattern");
    /// assert!(pattern("/admin/**").overlaps(&pattern("/*/users")));
    /// assert!(!pattern("/admin/**").overlaps(&pattern("/api/**")));
    /// ```
    pub fn overlaps(&self, other: &Self) -> bool {
        let (left, right) = (self.steps(), other.steps());
        let mut open: Vec<(PatternState, PatternState)> = vec![((0, false), (0, false))];
        let mut seen = HashSet::new();
        while let Some(pair) = open.pop() {
            if !seen.insert(pair) {
                continue;
            }
            let (a, b) = pair;
            if a == (left.len(), false) && b == (right.len(), false) {
                return true;
            }
            open.extend(skipped(&left, a).map(|a| (a, b)));
            open.extend(skipped(&right, b).map(|b| (a, b)));
            for (accepts_a, a) in taken(&left, a) {
                for (accepts_b, b) in taken(&right, b) {
                    if accepts_a.overlaps(accepts_b) {
                        open.push((a, b));
                    }
                }
            }
        }
        false
    }

    fn steps(&self) -> Vec<PatternStep> {
        let mut steps = Vec::new();
        for piece in &self.pieces {
            match piece {
                PatternPiece::Text(text) => steps.extend(text.chars().map(PatternStep::Character)),
                PatternPiece::Name => steps.push(PatternStep::Star(Star::Name)),
                PatternPiece::Folders => steps.push(PatternStep::Star(Star::Folders)),
                PatternPiece::All => steps.push(PatternStep::Star(Star::All)),
            }
        }
        steps
    }
}

/// The state after a star that matches nothing more.
fn skipped(steps: &[PatternStep], (at, within): PatternState) -> Option<PatternState> {
    (!within && matches!(steps.get(at), Some(PatternStep::Star(_)))).then_some((at + 1, false))
}

/// The states after one character.
fn taken(steps: &[PatternStep], (at, _): PatternState) -> Vec<(Accepts, PatternState)> {
    match steps.get(at) {
        None => Vec::new(),
        Some(PatternStep::Character(letter)) => vec![(Accepts::One(*letter), (at + 1, false))],
        Some(PatternStep::Star(Star::Name)) => vec![(Accepts::NoSlash, (at, false))],
        Some(PatternStep::Star(Star::All)) => vec![(Accepts::Any, (at, false))],
        Some(PatternStep::Star(Star::Folders)) => {
            vec![(Accepts::NoSlash, (at, true)), (Accepts::One('/'), (at, false))]
        }
    }
}

impl Accepts {
    fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::One(one), Self::One(other)) => one == other,
            (Self::One(one), Self::NoSlash) | (Self::NoSlash, Self::One(one)) => one != '/',
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(one: &str, other: &str) -> bool {
        let [one, other] = [one, other].map(|text| PathPattern::parse(text).expect("a pattern"));
        let found = one.overlaps(&other);
        assert_eq!(found, other.overlaps(&one), "{one} and {other}: the order makes no difference");
        found
    }

    #[test]
    fn patterns_overlap_if_a_path_matches_both() {
        for (one, other) in [
            ("/", "/"),
            ("/**", "/a/b"),
            ("/admin/**", "/admin/"),
            ("/admin/**", "/*/users"),
            ("/a/**/b", "/a/b"),
            ("/a/**/b", "/a/x/*"),
            ("/**/*.css", "/assets/**"),
            ("/a*c", "/*bc"),
            ("/**/x", "/a/**/x"),
        ] {
            assert!(overlap(one, other), "{one} and {other}");
        }
        for (one, other) in [
            ("/", "/a"),
            ("/admin/**", "/api/**"),
            ("/admin/**", "/admin"),
            ("/*", "/a/b"),
            ("/a/**/b", "/a/xb"),
            ("/**/*.css", "/**/*.js"),
            ("/a*c", "/b*"),
        ] {
            assert!(!overlap(one, other), "{one} and {other}");
        }
    }
}
