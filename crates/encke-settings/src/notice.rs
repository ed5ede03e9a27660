//! Lines for the operator on standard error: one for each report, with its level. Repeated errors and warnings are counted.
//!
//! ```text
//! under the journal   <3>text                                   the journal adds its own time
//! on a terminal       error: text                               coloured
//! elsewhere           2026-11-21T21:26:03Z error: text
//! ```
//! A repeated error, warning or detail is written again only after 10, 100, 1,000 … repetitions, with their number. An error
//! on every request therefore fills no disk. Before another line, a summary has the text of the repeated line and the number
//! of its repetitions, because other output may separate the two. An info line confirms an action of the operator, such as a
//! reload, so every one is written. Secrets are concealed. The state is process-wide, like standard error.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock};

use encke_io::lock;
use encke_wire::civil::Civil;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conceal::conceal;

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

/// Maximum number of lines that [`recent`] returns.
const RECENT_MAX: usize = 200;

/// The last lines, oldest first, and the number of lines ever written.
static RECENT: Mutex<(VecDeque<WrittenNotice>, u64)> = Mutex::new((VecDeque::new(), 0));

/// A line for the operator that was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenNotice {
    /// Time in milliseconds since 1970.
    pub unix_ms: u64,
    /// The level.
    pub level: Level,
    /// The text, without time and level.
    pub text: String,
    /// The process of the application that wrote the text; `None` for lines of this program.
    pub application: Option<Box<str>>,
}

/// Returns the last 200 lines, oldest first.
pub fn recent() -> Vec<WrittenNotice> {
    lock(&RECENT).0.iter().cloned().collect()
}

/// The number of lines written since the start. Changes whenever [`recent`] does.
pub fn written_lines() -> u64 {
    lock(&RECENT).1
}

/// Returns the highest level that is written.
pub fn level() -> Level {
    match LEVEL.load(Ordering::Relaxed) {
        0 => Level::Error,
        1 => Level::Warn,
        2 => Level::Info,
        _ => Level::Debug,
    }
}

/// Writes lines up to `level` from now on.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Whether lines of this level are written. Ask before composing a costly line.
pub fn is_written(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Writes one line for the operator. A closed standard error is ignored.
pub fn report(level: Level, text: &str) {
    report_with(level, text, &Details::default());
}

/// Further lines of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Details<'a> {
    /// The lines on standard error. They may quote the settings file.
    pub on_stderr: &'a str,
    /// The lines that [`recent`] has in their place. Users of the console without the right to see secrets read them.
    pub recent: &'a str,
}

/// Writes a line for the operator, and after it the lines of `details`, each in the form of a line of its own. No line of
/// another thread comes between them.
pub fn report_with(level: Level, text: &str, details: &Details<'_>) {
    if is_written(level) {
        write(level, text, details);
    }
}

/// Writes a line of the audit, as info, at every level: otherwise a change of the level could hide all later changes.
pub fn record(text: &str) {
    write(Level::Info, text, &Details::default());
}

/// Writes a line of an application's output. [`recent`] marks it: users without the right to see secrets must not read it.
pub fn report_output(title: &str, line: &str) {
    if is_written(Level::Info) {
        write_from(Some(title), Level::Info, &format!("{title}: {line}"), &Details::default());
    }
}

fn write(level: Level, text: &str, details: &Details<'_>) {
    write_from(None, level, text, details);
}

fn write_from(application: Option<&str>, level: Level, text: &str, details: &Details<'_>) {
    let (text, on_stderr) = (conceal(text), conceal(details.on_stderr));
    let (text, on_stderr) = (&*text, &*on_stderr);
    // The lock is held while writing, so that lines of several threads do not mix.
    let mut lines = lock(&LINES);
    let style = NoticeStyle::of_stderr();
    let mut written = String::new();
    let said = lines.say(level, text, on_stderr);
    // The details are the last lines.
    let own = said.len().saturating_sub(on_stderr.lines().count());
    for (place, (level, said)) in said.into_iter().enumerate() {
        written.push_str(&style.line(level, &said));
        if place < own {
            keep(application, level, said);
        }
    }
    details.recent.lines().for_each(|line| keep(None, level, conceal(line).into_owned()));
    let _nobody_listens = io::stderr().lock().write_all(written.as_bytes());
}

/// Keeps a line for [`recent`].
fn keep(application: Option<&str>, level: Level, text: String) {
    let unix_ms = encke_io::clock::Clock::new().now().unix_ns / 1_000_000;
    let mut recent = lock(&RECENT);
    if recent.0.len() >= RECENT_MAX {
        recent.0.pop_front();
    }
    recent.0.push_back(WrittenNotice { unix_ms, level, text, application: application.map(Into::into) });
    recent.1 += 1;
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

    /// The lines to write for a line and its details. Info lines and lines with details are never counted as repeated.
    fn say(&mut self, level: Level, text: &str, details: &str) -> Vec<(Level, String)> {
        if self.count > 0 && level == self.level && text == self.last && details.is_empty() {
            self.count += 1;
            let told = is_power_of(REPEATS_TOLD, self.count);
            return told.then(|| (level, repeated(text, self.count))).into_iter().collect();
        }
        let mut lines = Vec::new();
        if self.count > 1 && !is_power_of(REPEATS_TOLD, self.count) {
            lines.push((self.level, repeated(&self.last, self.count)));
        }
        lines.push((level, text.to_owned()));
        lines.extend(details.lines().map(|line| (level, line.to_owned())));
        text.clone_into(&mut self.last);
        self.level = level;
        self.count = u64::from(details.is_empty() && level != Level::Info);
        lines
    }
}

/// Maximum length in characters of a repeated text; `…` replaces the rest. It identifies the line.
const REPEATED_CHARS_MAX: usize = 200;

/// The line for a text that was reported `count` times.
fn repeated(text: &str, count: u64) -> String {
    let end = text.char_indices().nth(REPEATED_CHARS_MAX).map(|(at, _)| at);
    let (start, more) = end.map_or((text, ""), |end| (&text[..end], "…"));
    format!("{}{more} (repeated {count} times)", start.trim_end())
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
            if encke_io::host::under_journal() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_line_is_told_at_powers_of_ten() {
        let mut lines = Repeats::new();
        let told: Vec<String> =
            (0..1_000).flat_map(|_| lines.say(Level::Error, "full", "")).map(|(_, line)| line).collect();
        assert_eq!(
            told,
            ["full", "full (repeated 10 times)", "full (repeated 100 times)", "full (repeated 1000 times)"]
        );
    }

    #[test]
    fn a_summary_names_the_line_that_was_repeated() {
        let mut lines = Repeats::new();
        let mut say = |level, text: &str| -> Vec<(Level, String)> { lines.say(level, text, "") };
        let line = |level, text: &str| (level, text.to_owned());
        assert_eq!(say(Level::Warn, "a"), [line(Level::Warn, "a")]);
        for _ in 0..18 {
            say(Level::Warn, "a");
        }
        // The line is written first, at the level and with the text of the repeated line.
        assert_eq!(
            say(Level::Error, "b"),
            [line(Level::Warn, "a (repeated 19 times)"), line(Level::Error, "b")]
        );
        assert_eq!(say(Level::Warn, "a"), [line(Level::Warn, "a")]);
        assert_eq!(say(Level::Error, "b"), [line(Level::Error, "b")], "nothing was repeated");
        let long = "é".repeat(300);
        say(Level::Warn, &long);
        say(Level::Warn, &long);
        let shown = format!("{}… (repeated 2 times)", "é".repeat(200));
        assert_eq!(say(Level::Warn, "a"), [(Level::Warn, shown), line(Level::Warn, "a")]);
    }

    #[test]
    fn details_follow_their_line_in_its_form() {
        let mut lines = Repeats::new();
        for _ in 0..2 {
            let said = lines.say(Level::Error, "rejected", "one\n  two\n");
            assert_eq!(said, ["rejected", "one", "  two"].map(|line| (Level::Error, line.to_owned())));
        }
        assert_eq!(lines.say(Level::Error, "rejected", "").len(), 1, "it was no repetition");
    }

    #[test]
    fn details_are_not_kept_but_the_lines_in_their_place_are() {
        let details = Details { on_stderr: " 1 | token = \"s3cret\"\n   | ^", recent: "a.toml:1:1: wrong" };
        report_with(Level::Error, "rejected by a test", &details);
        let recent = recent();
        let place = recent.iter().position(|notice| notice.text == "rejected by a test").expect("kept");
        assert_eq!(recent[place + 1].text, "a.toml:1:1: wrong");
        assert!(recent.iter().all(|notice| !notice.text.contains("s3cret")), "{recent:?}");
    }

    #[test]
    fn an_info_line_is_written_every_time() {
        let mut lines = Repeats::new();
        for _ in 0..12 {
            let said = lines.say(Level::Info, "settings reloaded", "");
            assert_eq!(said, [(Level::Info, "settings reloaded".to_owned())]);
        }
    }

    #[test]
    fn the_same_text_of_another_level_is_another_line() {
        let mut lines = Repeats::new();
        assert_eq!(lines.say(Level::Warn, "a", "").len(), 1);
        assert_eq!(lines.say(Level::Error, "a", "").len(), 1);
    }

    #[test]
    fn each_place_has_its_dress_and_every_report_is_one_line() {
        assert_eq!(NoticeStyle::Journal.line(Level::Error, "a\nb\u{1b}[2J\n"), "<3>a b [2J\n");
        assert_eq!(NoticeStyle::Terminal.line(Level::Warn, "a"), "\x1b[1;33mwarning:\x1b[0m a\n");
        let plain = NoticeStyle::Plain.line(Level::Info, "a");
        assert!(plain.ends_with("Z info: a\n") && plain.starts_with("20"), "{plain}");
    }
}
