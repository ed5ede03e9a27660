//! The difference between two texts, line by line.
//!
//! ```text
//!  lines ─► numbers ─► common start and end removed ─► Myers, at most DISTANCE_MAX edits ─► same, removed, added
//!                                                        └─ more: all old lines removed, all new lines added
//! ```
//! The algorithm is that of E. Myers, "An O(ND) Difference Algorithm and Its Variations" (1986): the shortest script of edits.

use std::collections::HashMap;

use serde_json::{Value, json};

/// Maximum number of edits for which the shortest script is searched: its table has as many rows, of up to twice as many
/// numbers, together 4 MB. A settings file with more edits has been replaced.
const DISTANCE_MAX: usize = 1_000;

/// A line of a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DiffLine<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// Returns the lines of both texts, without line ends: removed lines precede the added ones that replace them.
pub(crate) fn difference<'a>(old: &'a str, new: &'a str) -> Vec<DiffLine<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let start = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let (old_rest, new_rest) = (&old[start..], &new[start..]);
    let end =
        old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(one, other)| one == other).count();
    let (old_middle, tail) = old_rest.split_at(old_rest.len() - end);
    let new_middle = &new_rest[..new_rest.len() - end];
    let mut lines: Vec<DiffLine<'a>> = old[..start].iter().copied().map(DiffLine::Same).collect();
    let mut numbers = HashMap::new();
    let mut number = |line: &&'a str| {
        let next = numbers.len();
        *numbers.entry(*line).or_insert(next)
    };
    let old_numbers: Vec<usize> = old_middle.iter().map(&mut number).collect();
    let new_numbers: Vec<usize> = new_middle.iter().map(&mut number).collect();
    match kept(&old_numbers, &new_numbers) {
        Some(kept) => {
            let (mut x, mut y) = (0, 0);
            for (keep_x, keep_y) in kept.into_iter().chain([(old_middle.len(), new_middle.len())]) {
                lines.extend(old_middle[x..keep_x].iter().copied().map(DiffLine::Removed));
                lines.extend(new_middle[y..keep_y].iter().copied().map(DiffLine::Added));
                lines.extend(old_middle.get(keep_x).copied().map(DiffLine::Same));
                (x, y) = (keep_x + 1, keep_y + 1);
            }
        }
        None => {
            lines.extend(old_middle.iter().copied().map(DiffLine::Removed));
            lines.extend(new_middle.iter().copied().map(DiffLine::Added));
        }
    }
    lines.extend(tail.iter().copied().map(DiffLine::Same));
    lines
}

/// The positions of the lines that both texts keep, in order; `None` beyond [`DISTANCE_MAX`] edits.
fn kept(old: &[usize], new: &[usize]) -> Option<Vec<(usize, usize)>> {
    // Diagonal k is x - y. `far[k + d]` is the largest x reached on it with d edits; `rows[d]` is `far` after d edits.
    let mut rows: Vec<Vec<u32>> = Vec::new();
    for d in 0..=(old.len() + new.len()).min(DISTANCE_MAX) {
        let mut row = vec![0; 2 * d + 1];
        for place in (0..=2 * d).step_by(2) {
            let mut x = rows.last().map_or(0, |before| step(before, place, d).0);
            let mut y = y_of(x, place, d);
            while x < old.len() && y < new.len() && old[x] == new[y] {
                (x, y) = (x + 1, y + 1);
            }
            row[place] = x as u32;
            if x >= old.len() && y >= new.len() {
                return Some(walk_back(&rows, old, new, place));
            }
        }
        rows.push(row);
    }
    None
}

/// The x at which diagonal `place` of row `d` is entered from the row before, and whether by an insertion (down).
fn step(before: &[u32], place: usize, d: usize) -> (usize, bool) {
    // The row before has one place less at each end: its place p is diagonal p - (d - 1).
    let down = before.get(place).map(|x| *x as usize);
    let right = place.checked_sub(2).and_then(|left| before.get(left)).map(|x| *x as usize + 1);
    debug_assert!(down.is_some() || right.is_some(), "place {place} of row {d}");
    match (down, right) {
        (Some(down), Some(right)) if down >= right => (down, true),
        (_, Some(right)) => (right, false),
        (down, None) => (down.unwrap_or(0), true),
    }
}

/// y = x - k, where `place` of row `d` is the diagonal k = place - d. Never negative on a valid path; a diagonal that leaves the
/// texts at the top is only passed with the x that keeps y at 0 or more.
fn y_of(x: usize, place: usize, d: usize) -> usize {
    (x + d).saturating_sub(place)
}

/// Walks the path back from its end on diagonal `place` of the row after `rows`.
fn walk_back(rows: &[Vec<u32>], old: &[usize], new: &[usize], mut place: usize) -> Vec<(usize, usize)> {
    let mut kept = Vec::new();
    let (mut x, mut y) = (old.len(), new.len());
    for (d, before) in rows.iter().enumerate().map(|(row, before)| (row + 1, before)).rev() {
        let (entered, is_down) = step(before, place, d);
        while x > entered {
            (x, y) = (x - 1, y - 1);
            kept.push((x, y));
        }
        if is_down {
            y = y.saturating_sub(1);
        } else {
            x = x.saturating_sub(1);
            place -= 2;
        }
    }
    while x > 0 && y > 0 {
        (x, y) = (x - 1, y - 1);
        kept.push((x, y));
    }
    kept.reverse();
    kept
}

/// The lines as JSON of the API.
pub(crate) fn as_json(lines: &[DiffLine<'_>]) -> Value {
    let line = |line: &DiffLine<'_>| {
        let (kind, text) = match line {
            DiffLine::Same(text) => ("same", text),
            DiffLine::Removed(text) => ("removed", text),
            DiffLine::Added(text) => ("added", text),
        };
        json!({ "kind": kind, "text": text })
    };
    lines.iter().map(line).collect()
}

/// The difference in words: `2 lines changed, 1 added`.
pub(crate) fn summary(lines: &[DiffLine<'_>]) -> String {
    let count = |wanted: fn(&DiffLine<'_>) -> bool| lines.iter().filter(|line| wanted(line)).count();
    let removed = count(|line| matches!(line, DiffLine::Removed(_)));
    let added = count(|line| matches!(line, DiffLine::Added(_)));
    let changed = removed.min(added);
    let mut parts = Vec::new();
    for (number, word) in [(changed, "changed"), (added - changed, "added"), (removed - changed, "removed")] {
        if number > 0 {
            // The noun is said once.
            let noun = match (parts.is_empty(), number) {
                (false, _) => "",
                (true, 1) => " line",
                (true, _) => " lines",
            };
            parts.push(format!("{number}{noun} {word}"));
        }
    }
    if parts.is_empty() { "no change".into() } else { parts.join(", ") }
}

/// Maximum length in characters of each side in the audit log.
const SHORT_CHARS_MAX: usize = 200;

/// The removed and the added lines in short, for the audit log.
pub(crate) fn short(lines: &[DiffLine<'_>]) -> (String, String) {
    let joined = |texts: Vec<&str>| {
        let texts: Vec<&str> = texts.into_iter().map(str::trim).filter(|text| !text.is_empty()).collect();
        let text = texts.join("; ");
        match text.char_indices().nth(SHORT_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    };
    let mut sides = (Vec::new(), Vec::new());
    for line in lines {
        match line {
            DiffLine::Same(_) => {}
            DiffLine::Removed(text) => sides.0.push(*text),
            DiffLine::Added(text) => sides.1.push(*text),
        }
    }
    (joined(sides.0), joined(sides.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(old: &str, new: &str) -> Vec<String> {
        let line = |line: &DiffLine<'_>| match line {
            DiffLine::Same(text) => format!(" {text}"),
            DiffLine::Removed(text) => format!("-{text}"),
            DiffLine::Added(text) => format!("+{text}"),
        };
        difference(old, new).iter().map(line).collect()
    }

    /// The length of the longest common subsequence, by the plain table.
    fn common(old: &[&str], new: &[&str]) -> usize {
        let mut table = vec![vec![0; new.len() + 1]; old.len() + 1];
        for (i, one) in old.iter().enumerate() {
            for (j, other) in new.iter().enumerate() {
                table[i + 1][j + 1] =
                    if one == other { table[i][j] + 1 } else { table[i][j + 1].max(table[i + 1][j]) };
            }
        }
        table[old.len()][new.len()]
    }

    #[test]
    fn changed_lines_are_removed_and_added() {
        assert_eq!(marked("a\nb\nc\n", "a\nx\nc\n"), [" a", "-b", "+x", " c"]);
        assert_eq!(marked("", "a\n"), ["+a"]);
        assert_eq!(marked("a\n", ""), ["-a"]);
        assert_eq!(marked("", ""), Vec::<String>::new());
        assert_eq!(marked("a\nb\n", "b\na\n").len(), 3);
        assert_eq!(marked("a\nb", "a\nb\n"), [" a", " b"]);
    }

    #[test]
    fn each_difference_is_the_shortest_and_restores_both_texts() {
        // All pairs of texts of up to five lines over two letters, and a larger alphabet by a linear congruence.
        let mut texts: Vec<Vec<&str>> = vec![Vec::new()];
        for length in 1..=5_u32 {
            for bits in 0..1_u32 << length {
                texts.push((0..length).map(|at| if bits >> at & 1 == 1 { "a" } else { "b" }).collect());
            }
        }
        let letters = ["a", "b", "c", "d", "e"];
        let mut state = 12_345_u64;
        for length in [9, 14, 20, 33] {
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                letters[(state >> 33) as usize % letters.len()]
            };
            texts.push((0..length).map(|_| next()).collect());
        }
        for old in &texts {
            for new in &texts {
                let (old_text, new_text) = (old.join("\n"), new.join("\n"));
                let lines = difference(&old_text, &new_text);
                let (mut left, mut right, mut same) = (Vec::new(), Vec::new(), 0);
                for line in &lines {
                    match line {
                        DiffLine::Same(text) => {
                            left.push(*text);
                            right.push(*text);
                            same += 1;
                        }
                        DiffLine::Removed(text) => left.push(text),
                        DiffLine::Added(text) => right.push(text),
                    }
                }
                assert_eq!((&left, &right), (old, new), "{old:?} {new:?}");
                assert_eq!(same, common(old, new), "{old:?} {new:?}");
            }
        }
    }

    #[test]
    fn texts_without_a_common_line_beyond_the_limit_are_replaced_as_a_whole() {
        let text = |letter: char| (0..2_000).map(|line| format!("{letter}{line}\n")).collect::<String>();
        let (old, new) = (text('a'), text('b'));
        let lines = difference(&old, &new);
        assert_eq!(lines.len(), 4_000);
        assert_eq!(summary(&lines), "2000 lines changed");
    }

    #[test]
    fn a_summary_counts_lines_in_words() {
        for (old, new, said) in [
            ("a\n", "a\n", "no change"),
            ("a\n", "b\n", "1 line changed"),
            ("a\nb\n", "c\nd\ne\n", "2 lines changed, 1 added"),
            ("a\nb\n", "", "2 lines removed"),
        ] {
            assert_eq!(summary(&difference(old, new)), said);
        }
        assert_eq!(short(&difference("a\nb\n", "a\nc\n")), ("b".into(), "c".into()));
    }
}
