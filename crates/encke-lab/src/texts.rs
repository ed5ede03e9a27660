//! The lab's texts for people, by language.
//!
//! ```text
//!  experiments ── English names of rows, loads, facts ─┬──► JSON, CSV: unchanged
//!                                                      └──► table, page: Language::name
//!  texts/english.rs  japanese.rs  chinese.rs ── one `Words` each ─► table, page: titles, claims, verdicts, lessons
//! ```
//! A new word is a field of [`Words`], a new experiment another [`ExperimentText`]: a language that lacks one of them does not compile.
//! Names in experiments are looked up by their English words, with placeholders in braces for figures. Tests below check that
//! each language knows all names, with the same placeholders and figures.

use std::fmt;
use std::str::FromStr;

use crate::NAMES;
use crate::experiment::{CellIndex, Design, Figure, Judged, Seen};
use crate::results::CellVerdict;

mod chinese;
mod english;
mod japanese;
mod template;

use template::matched;

pub use template::filled;

/// The text of an experiment. An empty line separates paragraphs.
#[derive(Debug)]
pub struct ExperimentText {
    /// The name on the command line.
    pub name: &'static str,
    /// The headline.
    pub title: &'static str,
    /// The question, and the report that it comes from.
    pub question: &'static str,
    /// The method, and the expected result.
    pub expectation: &'static str,
    /// The lesson to learn.
    pub lesson: &'static str,
    /// The claims, in the order of [`crate::Experiment::claims`].
    pub claims: &'static [&'static str],
}

/// The words around the experiments. Braces are placeholders for figures.
#[derive(Debug)]
pub struct Words {
    /// The language's tag (RFC 5646), for the page and the command line.
    pub tag: &'static str,
    /// The page's title.
    pub title: &'static str,
    /// The page's introduction.
    pub preface: &'static str,
    /// The machine: `{processors}`, `{processor}`, `{memory}`, `{system}`, `{descriptors}`, `{compiler}`.
    pub machine: &'static str,
    /// The seed that reproduces the order of the run: `{seed}`.
    pub seed: &'static str,
    /// How to read the tables.
    pub reading: &'static str,
    /// Head of a section.
    pub question: &'static str,
    /// Head of a section.
    pub expectation: &'static str,
    /// Head of a section.
    pub seen: &'static str,
    /// Head of a section.
    pub lesson: &'static str,
    /// Result of a claim: seen.
    pub yes: &'static str,
    /// Result of a claim: not seen.
    pub no: &'static str,
    /// Result of a claim: unclear.
    pub unclear: &'static str,
    /// Replaces the figures of a claim without measurements.
    pub not_measured: &'static str,
    /// The figures of a claim: `{compared}`, `{ratio}`, `{low}`, `{high}`.
    pub ratio: &'static str,
    /// Verdict: the first row, with which the others are compared.
    pub baseline: &'static str,
    /// Verdict: the cell differs from the first row.
    pub differs: &'static str,
    /// Verdict: no difference was seen.
    pub no_difference: &'static str,
    /// Verdict: the cell has facts, not times.
    pub untimed: &'static str,
    /// Verdict: `{rounds}` rounds are too few.
    pub too_few: &'static str,
    /// Verdict: the cell could not be measured, for `{reason}`.
    pub absent: &'static str,
    /// Name of the compared time.
    pub cpu_time: &'static str,
    /// Name of the compared time.
    pub wall_time: &'static str,
    /// Description of a table with loads of different kinds: `{time}`, `{unit}`, `{rounds}`, `{seconds}`.
    pub times_of_kinds: &'static str,
    /// Description of a table with amounts, whose scale is `{axis}`; otherwise as [`Words::times_of_kinds`].
    pub times_of_amounts: &'static str,
    /// Description of a table of facts.
    pub facts: &'static str,
    /// Column heads of the processor's counts; the first is that of the cells' names.
    pub counted: [&'static str; 4],
    /// Remark on a machine whose program was compiled without optimizations.
    pub unoptimised: &'static str,
    /// Warning if this program was compiled without optimizations.
    pub not_optimised: &'static str,
    /// The texts of all experiments.
    pub experiments: &'static [ExperimentText; NAMES.len()],
    /// Translations of names in experiments, by their English words: rows, loads, units, scales, facts, and reasons for absent
    /// cells. The first match is used.
    pub names: &'static [(&'static str, &'static str)],
}

/// A language of the lab.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Language {
    /// English.
    #[default]
    English,
    /// Japanese.
    Japanese,
    /// Traditional Chinese, as written in Taiwan and Hong Kong.
    TraditionalChinese,
}

impl Language {
    /// All languages.
    pub const ALL: [Self; 3] = [Self::English, Self::Japanese, Self::TraditionalChinese];

    /// The language of a POSIX locale in the environment. The first non-empty variable of `LC_ALL`, `LC_MESSAGES` and `LANG`
    /// decides; any other language is English.
    pub fn of_environment(said: impl Fn(&str) -> Option<String>) -> Self {
        let locale = ["LC_ALL", "LC_MESSAGES", "LANG"]
            .into_iter()
            .find_map(|variable| said(variable).filter(|locale| !locale.is_empty()));
        Self::of_locale(locale.as_deref().unwrap_or_default())
    }

    /// Maps a locale name such as `ja_JP.UTF-8`. Simplified Chinese maps to English: its readers use other terms, and some of
    /// the same words with another meaning (程序 is a program there, and a process here).
    fn of_locale(locale: &str) -> Self {
        let name = locale.split(['.', '@']).next().unwrap_or_default();
        match name.split_once('_').unwrap_or((name, "")) {
            ("ja", _) => Self::Japanese,
            ("zh", "TW" | "HK" | "MO" | "Hant") => Self::TraditionalChinese,
            _ => Self::English,
        }
    }

    /// The words of this language.
    pub const fn words(self) -> &'static Words {
        match self {
            Self::English => &english::WORDS,
            Self::Japanese => &japanese::WORDS,
            Self::TraditionalChinese => &chinese::WORDS,
        }
    }

    /// The text of an experiment in this language.
    pub fn text(self, name: &str) -> Option<&'static ExperimentText> {
        self.words().experiments.iter().find(|text| text.name == name)
    }

    /// Translates an English name of an experiment. Figures keep their positions, and names within a name are translated as
    /// well. A name without a translation stays unchanged.
    pub fn name(self, english: &str) -> String {
        self.known(english).unwrap_or_else(|| english.to_owned())
    }

    fn known(self, english: &str) -> Option<String> {
        self.words().names.iter().find_map(|(template, own)| {
            let values = matched(template, english)?;
            let values: Vec<(&str, String)> =
                values.into_iter().map(|(place, value)| (place, self.name(value))).collect();
            Some(filled(own, &values))
        })
    }

    pub(crate) const fn seen(self, seen: Seen) -> &'static str {
        match seen {
            Seen::Yes => self.words().yes,
            Seen::No => self.words().no,
            Seen::Unclear => self.words().unclear,
        }
    }

    /// The verdict in this language; programs read [`CellVerdict::text`].
    pub(crate) fn verdict(self, verdict: &CellVerdict) -> String {
        let words = self.words();
        match verdict {
            CellVerdict::Baseline => words.baseline.into(),
            CellVerdict::Differs => words.differs.into(),
            CellVerdict::NoDifferenceSeen => words.no_difference.into(),
            CellVerdict::Facts => words.untimed.into(),
            CellVerdict::TooFew(rounds) => filled(words.too_few, &[("rounds", rounds.to_string())]),
            CellVerdict::Absent(reason) => filled(words.absent, &[("reason", self.name(reason))]),
        }
    }

    /// The figures of a claim, for an experiment of this design.
    pub(crate) fn figure(self, figure: &Figure, design: &Design) -> String {
        let words = self.words();
        match figure {
            Figure::NotMeasured => words.not_measured.into(),
            Figure::Said(english) => self.name(english),
            Figure::All(figures) => {
                figures.iter().map(|figure| self.figure(figure, design)).collect::<Vec<_>>().join("; ")
            }
            Figure::Found { cell: CellIndex { row, load }, told } => {
                let [row, load] = [&design.rows[*row].name, &design.loads[*load].name];
                format!("{}, {}: {}", self.name(row), self.name(load), self.name(told))
            }
            Figure::Ratio { cell, other, ratio } => {
                let row = |index: usize| self.name(&design.rows[index].name);
                let load = |index: usize| self.name(&design.loads[index].name);
                let compared = match (cell.row == other.row, cell.load == other.load) {
                    (false, true) => format!("{} / {}, {}", row(cell.row), row(other.row), load(cell.load)),
                    (true, _) => format!("{}, {} / {}", row(cell.row), load(cell.load), load(other.load)),
                    (false, false) => format!(
                        "{}, {} / {}, {}",
                        row(cell.row),
                        load(cell.load),
                        row(other.row),
                        load(other.load)
                    ),
                };
                let told = |number: f64| format!("{number:.2}");
                let [middle, low, high] = [ratio.median, ratio.low, ratio.high].map(told);
                let values = [("compared", compared), ("ratio", middle), ("low", low), ("high", high)];
                filled(words.ratio, &values)
            }
        }
    }

    /// Describes a table's contents, with the number of rounds and the duration of the run.
    pub(crate) fn held(self, design: &Design, rounds: usize, took_ns: u64) -> String {
        let words = self.words();
        let time = match design.judged {
            Judged::Cpu => words.cpu_time,
            Judged::Wall => words.wall_time,
            Judged::Facts => return words.facts.into(),
        };
        let mut values = vec![
            ("time", time.to_owned()),
            ("unit", self.name(design.unit)),
            ("rounds", rounds.to_string()),
            ("seconds", format!("{:.1}", took_ns as f64 / 1e9)),
        ];
        match design.axis {
            crate::LoadAxis::Kinds => filled(words.times_of_kinds, &values),
            crate::LoadAxis::Amounts(scale) => {
                values.push(("axis", self.name(scale)));
                filled(words.times_of_amounts, &values)
            }
        }
    }
}

impl FromStr for Language {
    type Err = UnknownLanguage;

    /// Parses a language tag.
    fn from_str(tag: &str) -> Result<Self, UnknownLanguage> {
        let found = Self::ALL.into_iter().find(|language| language.words().tag.eq_ignore_ascii_case(tag));
        found.ok_or(UnknownLanguage)
    }
}

/// A tag of a language that the lab has no texts in; an error of the user's input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownLanguage;

impl fmt::Display for UnknownLanguage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags = Language::ALL.map(|language| language.words().tag).join(", ");
        write!(f, "the laboratory supports {tags}")
    }
}

impl std::error::Error for UnknownLanguage {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::template::{TextPart, parts};
    use super::*;
    use crate::{ExperimentOutcome, Interval, RoundPace, StopHandle, open, rounds};

    #[test]
    fn every_experiment_has_a_text_and_answers_each_of_its_claims() {
        let pace = RoundPace { rounds: 0, batch_ns: 0, ..RoundPace::quick(1) };
        let stop = StopHandle::new();
        stop.ask();
        for name in NAMES {
            let mut experiment = open(name, &pace).expect("a name of the list");
            assert_eq!(experiment.design().name, name);
            let results = rounds::run(&mut *experiment, &pace, &stop);
            let outcome = ExperimentOutcome::new(&*experiment, results);
            for language in Language::ALL {
                let text = language.text(name).expect(name);
                assert_eq!(outcome.claims.len(), text.claims.len(), "{name}, {language:?}");
            }
        }
    }

    /// Names that are the same in every language.
    const SAME: &[&str] = &[
        "c = {clients}",
        "{bytes} B",
        "{size} KiB",
        "{size} MiB",
        "{size} MB",
        "% 8124",
        "& 8191",
        "httparse",
        "picohttpparser",
        "Encke",
        "sendfile",
        "splice",
        "TransmitFile",
        "MSG_ZEROCOPY",
        "WebSocket",
        "VSZ, KB",
        "RSS, KB",
        "c, ms",
        "r, ms",
    ];

    /// Collects all names that are quick to find: both paces, and a measurement of the first and the last row.
    fn named() -> BTreeSet<String> {
        let mut named = BTreeSet::new();
        for (name, pace) in
            NAMES.iter().flat_map(|name| [(name, RoundPace::quick(1)), (name, RoundPace::full(1))])
        {
            let mut experiment = open(name, &pace).expect("a name of the list");
            let design = experiment.design().clone();
            named.extend(design.rows.iter().map(|row| row.name.clone()));
            named.extend(design.loads.iter().map(|load| load.name.clone()));
            named.insert(design.unit.to_owned());
            named.extend(design.drawn.iter().map(|drawn| drawn.fact.to_owned()));
            if let crate::LoadAxis::Amounts(scale) = design.axis {
                named.insert(scale.to_owned());
            }
            for row in [0, design.rows.len() - 1].into_iter().filter(|_| pace.quick) {
                match experiment.measure(CellIndex { row, load: 0 }, 1) {
                    Ok(sample) => named.extend(sample.facts.iter().map(|(name, _)| (*name).to_owned())),
                    Err(crate::Absent(reason)) => drop(named.insert(reason)),
                }
            }
        }
        named.retain(|name| name.chars().any(char::is_alphabetic));
        named
    }

    #[test]
    fn what_experiments_name_has_a_word_in_each_language() {
        let named = named();
        let own = named.iter().filter(|name| SAME.iter().all(|template| matched(template, name).is_none()));
        for name in own {
            for language in [Language::Japanese, Language::TraditionalChinese] {
                assert!(language.known(name).is_some(), "{language:?} has no word for {name:?}");
            }
        }
    }

    /// The placeholders of a template.
    fn places(template: &str) -> BTreeSet<&str> {
        parts(template)
            .filter_map(|part| match part {
                TextPart::Place(name) => Some(name),
                TextPart::Literal(_) => None,
            })
            .collect()
    }

    /// Numbers of two digits or more, which no language spells out, sorted.
    fn figures(text: &str) -> Vec<String> {
        let number = |char: char| char.is_ascii_digit() || matches!(char, '.' | ',');
        let mut figures: Vec<String> = text
            .split(|char: char| !number(char))
            .map(|token| token.trim_matches(['.', ',']).to_owned())
            .filter(|token| token.len() > 1)
            .collect();
        figures.sort();
        figures
    }

    /// The words that contain placeholders.
    fn templates(words: &Words) -> [&'static str; 7] {
        let Words { machine, seed, ratio, too_few, absent, times_of_kinds, times_of_amounts, .. } = *words;
        [machine, seed, ratio, too_few, absent, times_of_kinds, times_of_amounts]
    }

    #[test]
    fn places_and_figures_are_the_same_in_each_language() {
        let english = Language::English;
        for language in [Language::Japanese, Language::TraditionalChinese] {
            for (own, theirs) in templates(language.words()).into_iter().zip(templates(english.words())) {
                assert_eq!(places(own), places(theirs), "{own}");
            }
            for (theirs, own) in language.words().names {
                assert_eq!(places(own), places(theirs), "{own}");
                assert_eq!(figures(own), figures(theirs), "{own}");
                let is_told_apart = parts(theirs).any(|part| matches!(part, TextPart::Literal(_)));
                assert!(is_told_apart, "{theirs:?} fits everything");
            }
            for name in NAMES {
                let [own, theirs] = [language, english].map(|language| language.text(name).expect(name));
                let prose =
                    |text: &ExperimentText| [text.title, text.question, text.expectation, text.lesson];
                let own = prose(own).into_iter().chain(own.claims.iter().copied());
                let theirs = prose(theirs).into_iter().chain(theirs.claims.iter().copied());
                for (own, theirs) in own.zip(theirs) {
                    assert_eq!(figures(own), figures(theirs), "{name}, {language:?}: {own}");
                    let paragraphs = |text: &str| text.split("\n\n").count();
                    assert_eq!(paragraphs(own), paragraphs(theirs), "{name}, {language:?}: {own}");
                    assert!(!own.is_ascii(), "{name}, {language:?}: not translated: {own}");
                }
            }
        }
    }

    #[test]
    fn a_name_keeps_its_figures_and_translates_what_is_named_within() {
        let ja = Language::Japanese;
        assert_eq!(ja.name("10 of 2000 active"), "2000 中 10 がアクティブ");
        assert_eq!(ja.name("all of 2000 active"), "2000 すべてアクティブ");
        assert_eq!(ja.name("backlog 128; the system allows 100"), "バックログ 128、システムの上限は 100");
        assert_eq!(ja.name("httparse"), "httparse");
        assert_eq!(Language::English.name("10 of 2000 active"), "10 of 2000 active");
    }

    #[test]
    fn figures_of_a_claim_name_what_differs() {
        let pace = RoundPace::quick(1);
        let experiment = open("parser", &pace).expect("a name of the list");
        let ratio = Interval { median: 0.5, low: 0.4, high: 0.625 };
        let told = |cell: [usize; 2], other: [usize; 2]| {
            let [cell, other] = [cell, other].map(|[row, load]| CellIndex { row, load });
            Language::English.figure(&Figure::Ratio { cell, other, ratio }, experiment.design())
        };
        assert_eq!(told([8, 0], [5, 0]), "Encke / httparse, 35 B: 0.50 (0.40 to 0.62)");
        assert_eq!(told([8, 1], [8, 0]), "Encke, 106 B / 35 B: 0.50 (0.40 to 0.62)");
        assert_eq!(told([8, 1], [5, 0]), "Encke, 106 B / httparse, 35 B: 0.50 (0.40 to 0.62)");
    }

    #[test]
    fn the_first_variable_that_says_something_decides() {
        let of = |said: &[(&str, &str)]| {
            Language::of_environment(|variable| {
                said.iter().find(|(known, _)| *known == variable).map(|(_, locale)| (*locale).to_owned())
            })
        };
        assert_eq!(of(&[]), Language::English);
        assert_eq!(of(&[("LANG", "ja_JP.UTF-8")]), Language::Japanese);
        assert_eq!(of(&[("LANG", "ja_JP.UTF-8"), ("LC_ALL", "C")]), Language::English);
        assert_eq!(
            of(&[("LANG", "C"), ("LC_MESSAGES", "zh_TW.UTF-8"), ("LC_ALL", "")]),
            Language::TraditionalChinese
        );
        for (locale, language) in [
            ("ja", Language::Japanese),
            ("ja_JP.eucJP@x", Language::Japanese),
            ("zh_HK", Language::TraditionalChinese),
            ("zh_CN.UTF-8", Language::English),
            ("zh", Language::English),
            ("jam_JM", Language::English),
            ("de_DE.UTF-8", Language::English),
        ] {
            assert_eq!(Language::of_locale(locale), language, "{locale}");
        }
    }

    #[test]
    fn a_tag_names_a_language() {
        assert_eq!("zh-hant".parse(), Ok(Language::TraditionalChinese));
        let unknown = "zh".parse::<Language>().expect_err("not a tag of the lab");
        assert_eq!(unknown.to_string(), "the laboratory supports en, ja, zh-Hant");
    }
}
