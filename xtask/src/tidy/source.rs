//! A lexer for Rust: separates code from strings and comments, and marks test lines.
//!
//! It covers the needs of the rules and is not a parser: code inside macros is treated like any other.
//!
//! ```text
//! Code ──"──► Text ──"──► Code        Code ──//──► Comment ──newline──► Code
//! Code ──/*─► Block (nested) ──*/──► Code
//! ```

/// The lines of a Rust file.
pub(super) struct RustSource {
    lines: Vec<RustLine>,
    test_modules: Vec<String>,
}

/// A line of Rust.
pub(super) struct RustLine {
    /// The code, with blanks in place of strings, characters and comments.
    pub(super) code: String,
    /// The comment, including its `//`.
    pub(super) comment: String,
    /// Whether the line is compiled only for tests.
    pub(super) test: bool,
}

impl RustSource {
    pub(super) fn of(text: &str) -> Self {
        let (code, comments) = told_apart(text);
        let mut lines: Vec<RustLine> = code
            .split('\n')
            .zip(comments.split('\n'))
            .map(|(code, comment)| RustLine {
                code: code.to_owned(),
                comment: comment.trim().to_owned(),
                test: false,
            })
            .collect();
        let mut test_modules = Vec::new();
        for (start, end) in test_items(&code) {
            let first = code[..start].matches('\n').count();
            let last = code[..end].matches('\n').count();
            lines[first..=last].iter_mut().for_each(|line| line.test = true);
            let item = code[start..end].trim_end();
            if let Some((_, module)) = item.strip_suffix(';').and_then(|item| item.rsplit_once("mod ")) {
                test_modules.push(module.trim().to_owned());
            }
        }
        Self { lines, test_modules }
    }

    /// Returns the lines with their numbers, from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &RustLine)> {
        self.lines.iter().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Returns the lines that are compiled into the program.
    pub(super) fn shipped(&self) -> impl Iterator<Item = (usize, &RustLine)> {
        self.lines().filter(|(_, line)| !line.test)
    }

    /// Returns the test modules that the file declares in other files.
    pub(super) fn test_modules(&self) -> &[String] {
        &self.test_modules
    }

    pub(super) fn make_test(&mut self) {
        self.lines.iter_mut().for_each(|line| line.test = true);
    }
}

/// Whether `line` contains `word` with no letter, digit or underscore next to it.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let part = |char: char| char.is_alphanumeric() || char == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let behind = line[at + word.len()..].chars().next();
        let goes_on = word.starts_with(part) && before.is_some_and(part)
            || word.ends_with(part) && behind.is_some_and(part);
        !goes_on
    })
}

/// Returns the code and the comments of a text. Both have the length and the newlines of the text; the rest is blank.
fn told_apart(text: &str) -> (String, String) {
    let chars: Vec<char> = text.chars().collect();
    let mut split = Split { chars: &chars, at: 0, code: String::new(), comments: String::new() };
    while split.at < chars.len() {
        split.step();
    }
    (split.code, split.comments)
}

struct Split<'a> {
    chars: &'a [char],
    at: usize,
    code: String,
    comments: String,
}

#[derive(Clone, Copy)]
enum Is {
    Code,
    Comment,
    Text,
}

impl Split<'_> {
    /// Consumes one token, or one character outside of a token.
    fn step(&mut self) {
        match (self.peek(0), self.peek(1)) {
            (Some('/'), Some('/')) => self.take_while(Is::Comment, |char| char != '\n'),
            (Some('/'), Some('*')) => self.block_comment(),
            (Some('"'), _) => self.string(),
            (Some('\''), Some('\\')) => self.character(),
            (Some('\''), Some(_)) if self.peek(2) == Some('\'') => self.take(Is::Text, 3),
            (Some(first), _) if first.is_alphabetic() || first == '_' => self.word(),
            _ => self.take(Is::Code, 1),
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn take(&mut self, is: Is, count: usize) {
        for &char in self.chars[self.at..].iter().take(count) {
            let blank = if char == '\n' { '\n' } else { ' ' };
            let (code, comment) = match is {
                Is::Code => (char, blank),
                Is::Comment => (blank, char),
                Is::Text => (blank, blank),
            };
            self.code.push(code);
            self.comments.push(comment);
        }
        self.at = (self.at + count).min(self.chars.len());
    }

    fn take_while(&mut self, is: Is, part: impl Fn(char) -> bool) {
        let count = self.chars[self.at..].iter().take_while(|&&char| part(char)).count();
        self.take(is, count);
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.take(Is::Comment, 2);
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    self.take(Is::Comment, 2);
                    if depth == 0 {
                        return;
                    }
                }
                (Some(_), _) => self.take(Is::Comment, 1),
                (None, _) => return,
            }
        }
    }

    fn string(&mut self) {
        self.take(Is::Text, 1);
        self.text_until('"');
    }

    fn character(&mut self) {
        self.take(Is::Text, 1);
        self.text_until('\'');
    }

    fn text_until(&mut self, end: char) {
        while let Some(char) = self.peek(0) {
            self.take(Is::Text, if char == '\\' { 2 } else { 1 });
            if char == end {
                return;
            }
        }
    }

    /// Consumes a name, a keyword, or the start of a raw string.
    fn word(&mut self) {
        let start = self.at;
        self.take_while(Is::Code, |char| char.is_alphanumeric() || char == '_');
        let word: String = self.chars[start..self.at].iter().collect();
        let hashes = self.chars[self.at..].iter().take_while(|&&char| char == '#').count();
        if !matches!(word.as_str(), "r" | "br" | "cr") || self.peek(hashes) != Some('"') {
            return;
        }
        self.take(Is::Text, hashes + 1);
        while self.at < self.chars.len() {
            let closes = self.peek(0) == Some('"') && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'));
            self.take(Is::Text, if closes { hashes + 1 } else { 1 });
            if closes {
                return;
            }
        }
    }
}

/// Returns the ranges of items under `#[cfg(test)]` or `#[cfg(all(test, …))]`, in code without strings and comments.
fn test_items(code: &str) -> Vec<(usize, usize)> {
    let mut items = Vec::new();
    let mut from = 0;
    while let Some(start) = code[from..].find("#[cfg(").map(|at| from + at) {
        let condition = &code[start..start + code[start..].find(']').map_or(0, |at| at + 1)];
        from = start + condition.len().max(1);
        if condition == "#[cfg(test)]" || condition.starts_with("#[cfg(all(test,") {
            from += item_end(&code[from..]);
            items.push((start, from));
        }
    }
    items
}

/// Returns the end of an item: after the `;` or the closing brace at its own depth.
fn item_end(code: &str) -> usize {
    let mut depth = 0;
    for (at, char) in code.char_indices() {
        match char {
            '{' | '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        told_apart(text).0
    }

    #[test]
    fn strings_characters_and_comments_are_no_code() {
        let cases = [
            (r#"a("b\"c")"#, "a(      )"),
            (r"('d', '\'', b'e')", "(   ,     , b   )"),
            ("a // b", "a     "),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r##"r#"a "b" c"# + d"##, "r            + d"),
            (r#"br"a\" + b"#, "br     + b"),
        ];
        for (text, expected) in cases {
            assert_eq!(code(text), expected, "{text}");
        }
    }

    #[test]
    fn a_lifetime_is_code() {
        assert_eq!(code("fn a<'b>(c: &'b str) -> &'static d"), "fn a<'b>(c: &'b str) -> &'static d");
    }

    #[test]
    fn comments_keep_their_lines() {
        let source = RustSource::of("a; // one\nb; /* two\nthree */ c;\n");
        let comments: Vec<&str> = source.lines().map(|(_, line)| line.comment.as_str()).collect();
        assert_eq!(comments, ["// one", "/* two", "three */", ""]);
    }

    #[test]
    fn what_follows_cfg_test_is_a_test_to_its_last_brace() {
        let source =
            RustSource::of("fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { \"}\" }\n}\nfn c() {}\n");
        let shipped: Vec<usize> = source.shipped().map(|(number, _)| number).collect();
        assert_eq!(shipped, [1, 6, 7]);
        assert!(source.test_modules().is_empty());
    }

    #[test]
    fn a_test_module_in_a_file_of_its_own_is_named() {
        let source = RustSource::of("#[cfg(test)]\npub(crate) mod testing;\nfn a() {}\n");
        assert_eq!(source.test_modules(), ["testing"]);
        let shipped: Vec<usize> = source.shipped().map(|(number, _)| number).collect();
        assert_eq!(shipped, [3, 4]);
    }

    #[test]
    fn a_word_is_no_part_of_another() {
        assert!(has_word("let a = unsafe { b };", "unsafe"));
        assert!(!has_word("#![allow(unsafe_code)]", "unsafe"));
        assert!(has_word("x.unwrap()", ".unwrap()"));
    }
}
