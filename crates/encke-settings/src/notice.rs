//! Lines for the operator on standard error: one for each report, with its level. Repeated lines are counted.
//!
//! ```text
//! under the journal   <3>text                                   the journal adds its own time
//! on a terminal       error: text                               coloured
//! elsewhere           2026-11-21T21:26:03Z error: text
//! ```
//! A repeated line is written again only after 10, 100, 1,000 … repetitions, with their number. An error on every request
//! therefore fills no disk. The state is process-wide, like standard error.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock};

use encke_io::lock;
use encke_wire::civil::Civil;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Severity of messages on standard error. Each level includes the more severe ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Errors that need action.
    Error,
    /// Conditions that may need action later.
    Warn,
    /// Information for operators.
    #[default]
    Info,
    /// Details for finding faults.
    Debug,
}

/// The highest level that is written.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);

static LINES: Mutex<Repeats> = Mutex::new(Repeats::new());

/// Writes lines up to `level` from now on.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Writes one line for the operator. A closed standard error is ignored.
pub fn report(level: Level, text: &str) {
    if level as u8 > LEVEL.load(Ordering::Relaxed) {
        return;
    }
    // The lock is held while writing, so that lines of several threads do not mix.
    let mut lines = lock(&LINES);
    let Some(said) = lines.say(level, text) else { return };
    let line = NoticeStyle::of_stderr().line(level, &said);
    let _nobody_listens = io::stderr().lock().write_all(line.as_bytes());
}

/// The last line, and its number of repetitions.
struct Repeats {
    last: String,
    level: Level,
    count: u64,
}

/// A repeated line is written the 10th time, then the 100th, and so on.
const REPEATS_TOLD: u64 = 10;

impl Repeats {
    const fn new() -> Self {
        Self { last: String::new(), level: Level::Info, count: 0 }
    }

    /// The text to write for a line, if any.
    fn say(&mut self, level: Level, text: &str) -> Option<String> {
        if self.count > 0 && level == self.level && text == self.last {
            self.count += 1;
            let told = is_power_of(REPEATS_TOLD, self.count);
            return told.then(|| format!("{text} (repeated {} times)", self.count));
        }
        let left = self.count.saturating_sub(1);
        let untold = left > 0 && !is_power_of(REPEATS_TOLD, self.count);
        let before =
            if untold { format!("(the previous line was repeated {left} times) ") } else { String::new() };
        text.clone_into(&mut self.last);
        self.level = level;
        self.count = 1;
        Some(before + text)
    }
}

fn is_power_of(base: u64, mut number: u64) -> bool {
    while number > 1 && number.is_multiple_of(base) {
        number /= base;
    }
    number == 1
}

/// The format of a line.
#[derive(Clone, Copy)]
enum NoticeStyle {
    Journal,
    Terminal,
    Plain,
}

impl NoticeStyle {
    fn of_stderr() -> Self {
        static STYLE: OnceLock<NoticeStyle> = OnceLock::new();
        *STYLE.get_or_init(|| {
            if under_journal() {
                Self::Journal
            } else if io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
                Self::Terminal
            } else {
                Self::Plain
            }
        })
    }

    fn line(self, level: Level, text: &str) -> String {
        // (syslog(3) priority, word, terminal colour)
        let (priority, word, colour) = match level {
            Level::Error => (3, "error", 31),
            Level::Warn => (4, "warning", 33),
            Level::Info => (6, "info", 36),
            Level::Debug => (7, "debug", 90),
        };
        let mut line = String::with_capacity(text.len() + 40);
        match self {
            Self::Journal => write!(line, "<{priority}>"),
            Self::Terminal => write!(line, "\x1b[1;{colour}m{word}:\x1b[0m "),
            Self::Plain => {
                let time = Civil::of(encke_io::clock::Clock::new().now().unix_s()).rfc3339();
                write!(line, "{}Z {word}: ", String::from_utf8_lossy(&time))
            }
        }
        .expect("a String takes everything");
        // A report is one line, even if its text contains control characters.
        line.extend(text.trim_end().chars().map(|letter| if letter.is_control() { ' ' } else { letter }));
        line.push('\n');
        line
    }
}

#[cfg(unix)]
fn under_journal() -> bool {
    encke_io::host::under_journal()
}

#[cfg(not(unix))]
fn under_journal() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_line_is_told_at_powers_of_ten() {
        let mut lines = Repeats::new();
        let told: Vec<String> = (0..1_000).filter_map(|_| lines.say(Level::Error, "full")).collect();
        assert_eq!(
            told,
            ["full", "full (repeated 10 times)", "full (repeated 100 times)", "full (repeated 1000 times)"]
        );
    }

    #[test]
    fn another_line_says_how_often_the_one_before_came() {
        let mut lines = Repeats::new();
        let mut say = |text| lines.say(Level::Warn, text);
        assert_eq!(say("a").as_deref(), Some("a"));
        assert_eq!(say("a"), None);
        assert_eq!(say("a"), None);
        assert_eq!(say("b").as_deref(), Some("(the previous line was repeated 2 times) b"));
        assert_eq!(say("a").as_deref(), Some("a"));
        assert_eq!(say("b").as_deref(), Some("b"));
    }

    #[test]
    fn the_same_text_of_another_level_is_another_line() {
        let mut lines = Repeats::new();
        assert!(lines.say(Level::Warn, "a").is_some());
        assert!(lines.say(Level::Error, "a").is_some());
    }

    #[test]
    fn each_place_has_its_dress_and_every_report_is_one_line() {
        assert_eq!(NoticeStyle::Journal.line(Level::Error, "a\nb\u{1b}[2J\n"), "<3>a b [2J\n");
        assert_eq!(NoticeStyle::Terminal.line(Level::Warn, "a"), "\x1b[1;33mwarning:\x1b[0m a\n");
        let plain = NoticeStyle::Plain.line(Level::Info, "a");
        assert!(plain.ends_with("Z info: a\n") && plain.starts_with("20"), "{plain}");
    }
}
