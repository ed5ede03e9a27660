//! Errors in a settings file: the position, the message, and a hint.
//!
//! ```text
//! error: unknown key `adress` in [server]
//!   --> encke.toml:3:1
//!    |
//!  3 | adress = "127.0.0.1:8080"
//!    | ^^^^^^ did you mean `admin`?
//! ```

use std::fmt;
use std::ops::Range;

use toml::de::DeTable;

use crate::source::{SourceTexts, key_at};

/// Maximum number of problems that are shown. A file with more of them is probably not a settings file.
const SHOWN_MAX: usize = 20;

/// The errors in a settings file and in the files that it includes: the first ones, and the number of the others.
#[derive(Debug, Clone)]
pub struct Problems {
    texts: SourceTexts,
    list: Vec<Problem>,
    /// The number of problems that are not in the list.
    more: usize,
    /// Whether the search ended early, so that there may be even more.
    is_cut: bool,
}

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The range of bytes in the text of all files, one after another; empty at the end of a file.
    pub span: Range<usize>,
    /// The error message.
    pub message: String,
    /// The word that was probably meant, or another remedy.
    pub hint: Option<String>,
}

/// The position of a problem in its file, for an editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemRange {
    /// The file's name for the user; `None` for the settings file itself.
    pub included: Option<String>,
    /// Line and column of the first character, both from 1. The column counts characters.
    pub start: (usize, usize),
    /// Line and column after the last character.
    pub end: (usize, usize),
    /// The keys that lead to the value, joined by dots; empty if the file is not TOML there.
    pub key: String,
}

impl Problems {
    /// Creates a list of the problems of a file, sorted by position and without duplicates. Only the number is kept of those
    /// after the first 20.
    pub fn new(file: impl Into<String>, text: impl Into<String>, list: Vec<Problem>) -> Self {
        Self::of(SourceTexts::new(file.into(), text.into()), list, false)
    }

    /// Creates a list of the problems of several files. `is_cut`: the search for problems ended early.
    pub(crate) fn of(texts: SourceTexts, mut list: Vec<Problem>, is_cut: bool) -> Self {
        list.sort_by_key(|problem| (problem.span.start, problem.span.end));
        list.dedup();
        let more = list.len().saturating_sub(SHOWN_MAX);
        list.truncate(SHOWN_MAX);
        Self { texts, list, more, is_cut }
    }

    /// The first problems, by position.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }

    /// The line and the column at which a problem begins, both from 1. The column counts characters.
    pub fn place(&self, problem: &Problem) -> (usize, usize) {
        self.texts.place(problem.span.start)
    }

    /// The position of a problem in its file, and its key.
    pub fn range(&self, problem: &Problem) -> ProblemRange {
        let file = self.texts.file_at(problem.span.start);
        let local = problem.span.start - file.start..problem.span.end.saturating_sub(file.start);
        let (root, _) = DeTable::parse_recoverable(&file.text);
        ProblemRange {
            included: (file.start > 0).then(|| file.name.to_string()),
            start: self.place(problem),
            end: self.texts.place(problem.span.end.max(problem.span.start)),
            key: key_at(root.get_ref(), &local),
        }
    }

    /// Each problem in one line, without text of the file, which may be a secret: `encke.toml:3:1: unknown key … in [server]`.
    pub fn without_values(&self) -> String {
        let line = |problem: &Problem| {
            let file = self.texts.file_at(problem.span.start);
            let (line, column) = self.place(problem);
            let message = without_quotes(&problem.message, self.texts.text_at(&problem.span));
            format!("{}:{line}:{column}: {message}\n", file.name)
        };
        self.list.iter().map(line).collect()
    }

    fn write_one(&self, f: &mut fmt::Formatter<'_>, problem: &Problem) -> fmt::Result {
        let file = self.texts.file_at(problem.span.start);
        let (line_number, column) = self.place(problem);
        let line = file.text.lines().nth(line_number - 1).unwrap_or_default();
        let gutter = line_number.to_string().len() + 1;
        // The indent repeats the line's tabs, so that the caret is below its character in every terminal.
        let indent: String =
            line.chars().take(column - 1).map(|before| if before == '\t' { '\t' } else { ' ' }).collect();
        let marked = self.texts.text_at(&problem.span);
        let marked = marked.lines().next().unwrap_or_default().chars().count();
        let carets = "^".repeat(marked.clamp(1, line.chars().count().saturating_sub(column - 1).max(1)));
        writeln!(f, "error: {}", problem.message)?;
        writeln!(f, "{:gutter$}--> {}:{line_number}:{column}", "", file.name)?;
        writeln!(f, "{:gutter$} |", "")?;
        writeln!(f, " {line_number} | {}", Printable(line))?;
        write!(f, "{:gutter$} | {indent}{carets}", "")?;
        if let Some(hint) = &problem.hint {
            write!(f, " {hint}")?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (count, problem) in self.list.iter().enumerate() {
            if count > 0 {
                writeln!(f)?;
            }
            self.write_one(f, problem)?;
        }
        if self.more > 0 {
            let least = if self.is_cut { "at least " } else { "" };
            let errors = if self.more == 1 { "error" } else { "errors" };
            writeln!(f, "\nand {least}{} more {errors}", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A message without its quotations, and without `value` and the words of `value`. A value may contain quotes itself, so everything
/// from the first quote to the last one is left out.
fn without_quotes(message: &str, value: &str) -> String {
    const QUOTES: [char; 2] = ['`', '"'];
    /// Shorter words, such as numbers, are no secrets, and parts of other words.
    const WORD_MIN: usize = 4;
    let is_end = |letter: char| {
        letter.is_whitespace() || matches!(letter, '"' | '\'' | '=' | '{' | '}' | '[' | ']' | ',')
    };
    let value = value.trim_matches(is_end);
    let mut text = message.to_owned();
    // Before the quotes: a quote within a value would take it apart.
    for part in std::iter::once(value).chain(value.split(is_end)).filter(|part| part.len() >= WORD_MIN) {
        text = text.replace(part, "…");
    }
    match text.find(QUOTES).zip(text.rfind(QUOTES)) {
        Some((first, last)) => format!("{}…{}", &text[..first], &text[last + 1..]),
        None => text,
    }
}

/// A line of a file without control characters, which could steer a terminal.
struct Printable<'a>(&'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        self.0.chars().try_for_each(|character| {
            f.write_char(if character.is_control() && character != '\t' { '\u{fffd}' } else { character })
        })
    }
}

/// The word of `known` that was probably meant: the edit distance is at most a third of its length.
///
/// ```
/// use encke_settings::meant;
///
/// assert_eq!(meant("lisen", ["listen", "workers"]), Some("listen"));
/// assert_eq!(meant("colour", ["listen", "workers"]), None);
/// ```
pub fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count().max(3) / 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The number of letters to insert, remove, replace or swap with a neighbour to turn one word into the other (optimal string
/// alignment). Case is ignored, and `-` equals `_`.
fn distance(left: &str, right: &str) -> usize {
    let letters = |word: &str| -> Vec<char> {
        word.chars().map(|letter| if letter == '-' { '_' } else { letter.to_ascii_lowercase() }).collect()
    };
    let (left, right) = (letters(left), letters(right));
    let mut before_last = vec![0; right.len() + 1];
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, &a) in left.iter().enumerate() {
        let mut row = vec![i + 1; right.len() + 1];
        for (j, &b) in right.iter().enumerate() {
            row[j + 1] = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a == right[j - 1] && left[i - 1] == b {
                row[j + 1] = row[j + 1].min(before_last[j - 1] + 1);
            }
        }
        before_last = last;
        last = row;
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_values_has_the_place_and_no_text_of_the_file() {
        let text = "[server]\ntoken = \"s3cret`x\"\n";
        let problem =
            |message: &str| Problem { span: 17..28, message: message.into(), hint: Some("s3cret".into()) };
        let list = vec![
            problem("invalid URL `s3cret`x`: expected a URL"),
            problem("unknown key `s3cret` in [server], expected `token`"),
            problem("the host s3cret`x is no name"),
            problem("the value s3cret`x"),
        ];
        let lines = Problems::new("a.toml", text, list).without_values();
        assert!(!lines.contains("s3cret"), "{lines}");
        assert!(lines.starts_with("a.toml:2:9: invalid URL …: expected a URL\n"), "{lines}");
        assert!(lines.contains("unknown key …\n"), "{lines}");
    }

    #[test]
    fn a_range_has_the_file_the_end_and_the_key() {
        let mut texts = SourceTexts::new("encke.toml".into(), "[server]\nbacklog = \"ä\"\n".into());
        texts.add("a.toml".into(), "[[site]]\nroot = 5\n".into());
        let second = texts.files()[1].start;
        let problem = |span| Problem { span, message: String::new(), hint: None };
        let list = vec![problem(19..23), problem(second + 16..second + 17)];
        let problems = Problems::of(texts, list, false);
        let found: Vec<ProblemRange> = problems.iter().map(|one| problems.range(one)).collect();
        let expected = [
            ProblemRange { included: None, start: (2, 11), end: (2, 14), key: "server.backlog".into() },
            ProblemRange {
                included: Some("a.toml".into()),
                start: (2, 8),
                end: (2, 9),
                key: "site.0.root".into(),
            },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn distances_count_typing_mistakes() {
        for (left, right, expected) in [
            ("", "", 0),
            ("listen", "listen", 0),
            ("Listen", "listen", 0),
            ("head-time", "head_time", 0),
            ("lisen", "listen", 1),
            ("lisetn", "listen", 1),
            ("listten", "listen", 1),
            ("lusten", "listen", 1),
            ("abc", "xyz", 3),
            ("", "abc", 3),
        ] {
            assert_eq!(distance(left, right), expected, "{left} {right}");
            assert_eq!(distance(right, left), expected, "{right} {left}");
        }
    }

    #[test]
    fn the_nearest_word_is_meant_unless_all_are_far() {
        let known = ["listen", "limits", "log", "workers"];
        assert_eq!(meant("lissen", known), Some("listen"));
        assert_eq!(meant("worker", known), Some("workers"));
        assert_eq!(meant("lgo", known), Some("log"));
        assert_eq!(meant("certificate", known), None);
        assert_eq!(meant("x", known), None);
    }

    #[test]
    fn a_problem_shows_its_line_with_a_caret() {
        let text = "[server]\n\tädd = 1\n";
        let start = text.find("ädd").expect("there");
        let problem = Problem {
            span: start..start + "ädd".len(),
            message: "unknown key `ädd`".into(),
            hint: Some("did you mean `admin`?".into()),
        };
        let problems = Problems::new("encke.toml", text, vec![problem]);
        assert_eq!(
            problems.to_string(),
            "error: unknown key `ädd`\n  --> encke.toml:2:2\n   |\n 2 | \tädd = 1\n   | \t^^^ did you mean `admin`?\n"
        );
    }

    #[test]
    fn a_place_at_the_end_or_outside_is_shown_without_fault() {
        for span in [0..0, 3..3, 4..4, 9..12] {
            let problem = Problem { span, message: "m".into(), hint: None };
            let problems = Problems::new("f", "a\nb\n", vec![problem]);
            assert!(problems.to_string().contains('^'));
        }
        let empty = Problems::new("f", "", vec![Problem { span: 0..0, message: "m".into(), hint: None }]);
        assert_eq!(empty.to_string(), "error: m\n  --> f:1:1\n   |\n 1 | \n   | ^\n");
    }

    #[test]
    fn the_first_problems_of_the_file_are_shown_and_the_others_counted() {
        let text = "a\n".repeat(30);
        let told = |count: usize, is_cut| {
            let line = |number: usize| Problem {
                span: 2 * number..2 * number + 1,
                message: format!("m{number}"),
                hint: None,
            };
            let list = (0..count).rev().map(line).collect();
            Problems::of(SourceTexts::new("f".into(), text.clone()), list, is_cut).to_string()
        };
        let twenty = told(20, false);
        assert!(twenty.starts_with("error: m0\n") && twenty.contains("error: m19\n"), "{twenty}");
        assert!(!twenty.contains("more"), "{twenty}");
        assert_eq!(told(21, false), format!("{twenty}\nand 1 more error\n"));
        assert_eq!(told(30, false), format!("{twenty}\nand 10 more errors\n"));
        assert_eq!(told(30, true), format!("{twenty}\nand at least 10 more errors\n"));
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let problem = Problem { span: 0..1, message: "m".into(), hint: None };
        let shown = Problems::new("f", "a\u{1b}[2J", vec![problem]).to_string();
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
    }
}
