//! Positions in a TOML text, also in one that is not valid yet: comments, and the table and key at a cursor.
//!
//! ```text
//!  text before the cursor ─► headings, keys, strings, brackets ─► Cursor: a heading, a key of a table, or the value of a key
//! ```

use std::collections::HashSet;
use std::ops::Range;

/// The position of a cursor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cursor {
    /// What is written there.
    pub(crate) place: CursorPlace,
    /// The keys that lead to the table, or to the value.
    pub(crate) path: Vec<String>,
    /// The offset in bytes at which the incomplete word begins.
    pub(crate) start: usize,
    /// The keys that the table has before the cursor.
    pub(crate) present: HashSet<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CursorPlace {
    /// Within `[…` or `[[…`.
    Heading,
    Key,
    /// `is_quoted`: after the opening quote of a text.
    Value {
        is_quoted: bool,
    },
    Comment,
}

/// An open bracket, with the keys that lead to its value.
struct Scope {
    is_table: bool,
    path: Vec<String>,
    present: HashSet<String>,
}

/// Determines what is written at the end of `text`, the part of a TOML text before the cursor.
pub(crate) fn cursor(text: &str) -> Cursor {
    let mut heading: Vec<String> = Vec::new();
    let mut present = HashSet::new();
    let mut scopes: Vec<Scope> = Vec::new();
    // The keys of the present statement, once its `=` is read.
    let mut path: Option<Vec<String>> = None;
    let mut start = 0;
    let mut at = 0;
    let bytes = text.as_bytes();
    while at < bytes.len() {
        let in_table = scopes.last().is_none_or(|scope| scope.is_table);
        match bytes[at] {
            b'#' => {
                let end = line_end(text, at);
                if end == text.len() {
                    return Cursor { place: CursorPlace::Comment, path: Vec::new(), start: at, present };
                }
                at = end;
                continue;
            }
            quote @ (b'"' | b'\'') => {
                let (content, end) = string(text, at, quote);
                let Some(end) = end else {
                    let is_value = path.is_some() || !in_table;
                    let place =
                        if is_value { CursorPlace::Value { is_quoted: true } } else { CursorPlace::Key };
                    return done(place, heading, present, scopes, path, content);
                };
                at = end;
                continue;
            }
            b'[' if scopes.is_empty() && path.is_none() && text[start..at].trim().is_empty() => {
                let open = at + text[at..].bytes().take_while(|byte| *byte == b'[').count();
                let end = line_end(text, at);
                let Some(close) = text[open..end].find(']') else {
                    if end == text.len() {
                        let begun = open + text[open..].len() - text[open..].trim_start().len();
                        let path = Vec::new();
                        return Cursor { place: CursorPlace::Heading, path, start: begun, present };
                    }
                    (at, start) = (end, end);
                    continue;
                };
                heading = keys(&text[open..open + close]);
                present.clear();
                at = open + close + 1;
                start = at;
                continue;
            }
            b'=' if path.is_none() && in_table => {
                let written = keys(&text[start..at]);
                let scope = scopes.last_mut();
                let (base, present) =
                    scope.map_or((&heading, &mut present), |scope| (&scope.path, &mut scope.present));
                present.extend(written.first().cloned());
                path = Some(base.iter().cloned().chain(written).collect());
                start = at + 1;
            }
            open @ (b'[' | b'{') if path.is_some() || !in_table => {
                let path_of = path.take().or_else(|| scopes.last().map(|scope| scope.path.clone()));
                let path = path_of.unwrap_or_default();
                scopes.push(Scope { is_table: open == b'{', path, present: HashSet::new() });
                start = at + 1;
            }
            b']' | b'}' => {
                // The value of the statement ends; the next word follows a comma or a line end.
                if let Some(scope) = scopes.pop() {
                    path = Some(scope.path);
                    start = at + 1;
                }
            }
            b',' => {
                path = None;
                start = at + 1;
            }
            b'\n' => {
                if scopes.is_empty() {
                    path = None;
                }
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    let in_list = scopes.last().is_some_and(|scope| !scope.is_table);
    let is_value = path.is_some() || in_list;
    let place = if is_value { CursorPlace::Value { is_quoted: false } } else { CursorPlace::Key };
    let word = start + (text[start..].len() - text[start..].trim_start().len());
    done(place, heading, present, scopes, path, word)
}

fn done(
    place: CursorPlace,
    heading: Vec<String>,
    present: HashSet<String>,
    scopes: Vec<Scope>,
    path: Option<Vec<String>>,
    start: usize,
) -> Cursor {
    let (base, present) = match scopes.into_iter().last() {
        Some(scope) => (scope.path, scope.present),
        None => (heading, present),
    };
    Cursor { place, path: path.unwrap_or(base), start, present }
}

/// The parts of a dotted key, without quotes.
fn keys(text: &str) -> Vec<String> {
    let part = |part: &str| part.trim().trim_matches(['"', '\'']).to_owned();
    text.split('.').map(part).filter(|part| !part.is_empty()).collect()
}

fn line_end(text: &str, from: usize) -> usize {
    text[from..].find('\n').map_or(text.len(), |end| from + end)
}

/// The start of the content of a string, and the end of the string; `None` if it has no end.
fn string(text: &str, at: usize, quote: u8) -> (usize, Option<usize>) {
    let rest = &text[at..];
    let triple = if quote == b'"' { "\"\"\"" } else { "'''" };
    let (mark, is_long) = if rest.starts_with(triple) { (triple, true) } else { (&triple[..1], false) };
    let content = at + mark.len();
    let mut place = content;
    while place < text.len() {
        let rest = &text[place..];
        if rest.starts_with(mark) {
            return (content, Some(place + mark.len()));
        }
        match rest.as_bytes()[0] {
            // A string of one line that has no end there ends with the line, so that the next lines are read as such.
            b'\n' if !is_long => return (content, Some(place)),
            b'\\' if quote == b'"' => place += 1,
            _ => {}
        }
        place += text.get(place..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
    }
    (content, None)
}

/// The comments of a text, each without its line end.
pub(crate) fn comments(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        match text.as_bytes()[at] {
            b'#' => {
                let end = line_end(text, at);
                found.push(at..end);
                at = end;
            }
            quote @ (b'"' | b'\'') => at = string(text, at, quote).1.unwrap_or(text.len()),
            _ => at += 1,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn at(text: &str, place: CursorPlace, path: &str, word: &str) -> Cursor {
        let cursor = cursor(text);
        assert_eq!((cursor.place, cursor.path.join(".").as_str()), (place, path), "{text:?}");
        assert_eq!(&text[cursor.start..], word, "{text:?}");
        cursor
    }

    const VALUE: CursorPlace = CursorPlace::Value { is_quoted: false };
    const QUOTED: CursorPlace = CursorPlace::Value { is_quoted: true };

    #[test]
    fn a_cursor_is_in_a_heading_a_key_or_a_value() {
        at("", CursorPlace::Key, "", "");
        at("incl", CursorPlace::Key, "", "incl");
        at("[ser", CursorPlace::Heading, "", "ser");
        at("a = 1\n[[push.ch", CursorPlace::Heading, "", "push.ch");
        at("[server]\n", CursorPlace::Key, "server", "");
        at("[server]\nbacklog = 1\nwork", CursorPlace::Key, "server", "work");
        at("[server]\nbackend = ", VALUE, "server.backend", "");
        at("[server]\nbackend = \"ep", QUOTED, "server.backend", "ep");
        at("[server]\nadmin = { met", CursorPlace::Key, "server.admin", "met");
        at("[server]\nadmin = { metrics = \"o", QUOTED, "server.admin.metrics", "o");
        at("[push]\nchannel = [\n  { pattern = \"a\", pre", CursorPlace::Key, "push.channel", "pre");
        at("[push]\nchannel = [\n  { pattern = \"a\" },\n  { ", CursorPlace::Key, "push.channel", "");
        at("[auth]\nanonymous = [\"publish\", \"s", QUOTED, "auth.anonymous", "s");
        at("[server]\nlog.level = d", VALUE, "server.log.level", "d");
        at("[[site]] # text", CursorPlace::Comment, "", "# text");
        at("[[site]]\nro", CursorPlace::Key, "site", "ro");
    }

    #[test]
    fn strings_and_comments_hide_what_they_contain() {
        at("a = \"[x]\\\"#\" # \"c\nb", CursorPlace::Key, "", "b");
        at("a = '''\n[x]\n''' \nb", CursorPlace::Key, "", "b");
        at("a = \"not closed\n[server]\nw", CursorPlace::Key, "server", "w");
        at("[server]\n# comm", CursorPlace::Comment, "", "# comm");
        let text = "a = \"#1\" # two\n# three\nb = '#4'";
        let found: Vec<&str> = comments(text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(found, ["# two", "# three"]);
    }

    #[test]
    fn keys_before_the_cursor_are_known() {
        let cursor = at("[a]\nx = 1\n[server]\nbacklog = 1\n", CursorPlace::Key, "server", "");
        assert_eq!(cursor.present, HashSet::from(["backlog".to_owned()]));
    }

    #[test]
    fn no_text_is_too_broken() {
        let text = "[a]\nb = [{ c = \"ä\\\", d = ''' ] } # \n = = [[ ]] \"\"\" x\\";
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            let cursor = cursor(&text[..end]);
            assert!(text.is_char_boundary(cursor.start) && cursor.start <= end);
            comments(&text[..end]);
        }
    }
}
