//! Merges the results of several machines, for example of a class, into one table.
//!
//! ```text
//!  lab.json of each ─► [`SavedLab::read`] ─┐
//!  lab.json of each ─► [`SavedLab::read`] ─┴─► [`text`]  [`csv`]  [`page`]: a table for each experiment, a line for each load
//!                                                                       and machine, a column for each row
//! ```
//! Verdicts and claims are taken from the files, not computed again. Times of different machines are shown but not compared;
//! only ratios are comparable.

use std::fmt;
use std::fmt::Write as _;

use encke_stats::page::{self, escaped};
use serde::Deserialize;

use crate::experiment::{Fact, Seen};
use crate::interval::Interval;
use crate::table::{columns, duration, fact_text, quoted, times};
use crate::texts::Language;

/// The output of `encke lab --json` on one machine.
#[derive(Clone, Debug, Deserialize)]
pub struct SavedLab {
    /// The machine's name in the tables: the name of its file.
    #[serde(skip)]
    name: String,
    schema: u32,
    date: String,
    machine: Where,
    experiments: Vec<SavedExperiment>,
}

/// The machine's properties that are shown here.
#[derive(Clone, Debug, Deserialize)]
struct Where {
    processor: String,
    processors: usize,
    system: String,
    encke: String,
    optimised: bool,
}

#[derive(Clone, Debug, Deserialize)]
struct SavedExperiment {
    name: String,
    /// Older files lack this key; like most experiments, theirs compare CPU time.
    #[serde(default)]
    judged: SavedJudged,
    cells: Vec<SavedCell>,
    claims: Vec<SavedClaim>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedJudged {
    #[default]
    Cpu,
    Wall,
    Facts,
}

#[derive(Clone, Debug, Deserialize)]
struct SavedCell {
    row: String,
    load: String,
    wall_ns: Option<Interval>,
    cpu_ns: Option<Interval>,
    ratio: Option<Interval>,
    verdict: String,
    facts: serde_json::Map<String, serde_json::Value>,
}

#[derive(Clone, Debug, Deserialize)]
struct SavedClaim {
    claim: String,
    seen: Seen,
}

/// Why a file cannot be read as a result.
#[derive(Debug)]
pub enum SavedLabError {
    /// The file is not an output of `encke lab --json`.
    Json(serde_json::Error),
    /// The file has another schema: its number.
    Schema(u32),
}

/// The schema that `encke lab --json` writes.
pub(crate) const SCHEMA: u32 = 1;

impl fmt::Display for SavedLabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "not an output of `encke lab --json`: {error}"),
            Self::Schema(schema) => write!(f, "it has schema {schema}, but this version supports {SCHEMA}"),
        }
    }
}

impl std::error::Error for SavedLabError {}

impl SavedLab {
    /// Parses an output of `encke lab --json`; `name` is the machine's name in the tables.
    ///
    /// # Errors
    /// The text is something else, or has another schema.
    pub fn read(name: &str, text: &str) -> Result<Self, SavedLabError> {
        let saved: Self = serde_json::from_str(text).map_err(SavedLabError::Json)?;
        if saved.schema != SCHEMA {
            return Err(SavedLabError::Schema(saved.schema));
        }
        Ok(Self { name: name.to_owned(), ..saved })
    }

    fn line(&self, language: Language) -> String {
        let Where { processor, processors, system, encke, optimised } = &self.machine;
        let debug = if *optimised { String::new() } else { format!(", {}", language.words().unoptimised) };
        format!("{processors} × {processor}, {system}, Encke {encke}{debug}, {}", self.date)
    }
}

impl SavedCell {
    fn judged(&self, judged: SavedJudged) -> Option<Interval> {
        match judged {
            SavedJudged::Cpu => self.cpu_ns,
            SavedJudged::Wall => self.wall_ns,
            SavedJudged::Facts => None,
        }
    }

    /// The cell as in the table of one machine.
    fn shown(&self, judged: SavedJudged) -> String {
        if judged == SavedJudged::Facts && !self.verdict.starts_with("absent") {
            let facts = self.facts.values().filter_map(|fact| Fact::deserialize(fact).ok());
            return facts.map(|fact| fact_text(&fact)).collect::<Vec<_>>().join(" ");
        }
        let Some(time) = self.judged(judged) else { return "–".into() };
        let beside = match (self.verdict.as_str(), self.ratio) {
            ("differs", Some(ratio)) => format!(" {}", times(ratio)),
            ("no difference seen", _) => " ~".into(),
            _ => String::new(),
        };
        format!("{}{beside}", duration(time.median))
    }
}

/// The results of all machines for one experiment, as tables.
struct Sheet {
    name: String,
    heads: Vec<String>,
    lines: Vec<Vec<String>>,
    /// The texts of the claims, and for each machine whether it confirms them.
    claims: Vec<String>,
    seen: Vec<Vec<String>>,
}

/// A sheet for each experiment of any machine, in the order of appearance.
fn sheets(all: &[SavedLab], language: Language) -> Vec<Sheet> {
    let mut names: Vec<&str> = Vec::new();
    for experiment in all.iter().flat_map(|saved| &saved.experiments) {
        remember(&mut names, &experiment.name);
    }
    names.into_iter().map(|name| sheet(name, all, language)).collect()
}

fn sheet(name: &str, all: &[SavedLab], language: Language) -> Sheet {
    let found: Vec<(&SavedLab, &SavedExperiment)> = all
        .iter()
        .filter_map(|saved| Some((saved, saved.experiments.iter().find(|one| one.name == name)?)))
        .collect();
    let (mut rows, mut loads, mut claims): (Vec<&str>, Vec<&str>, Vec<&str>) = Default::default();
    for (_, experiment) in &found {
        for cell in &experiment.cells {
            remember(&mut rows, &cell.row);
            remember(&mut loads, &cell.load);
        }
        for claim in &experiment.claims {
            remember(&mut claims, &claim.claim);
        }
    }
    let line = |load: &str, (saved, experiment): &(&SavedLab, &SavedExperiment)| {
        let shown = |row: &&str| {
            let cell = experiment.cells.iter().find(|cell| cell.row == *row && cell.load == load);
            cell.map_or_else(|| "–".into(), |cell| cell.shown(experiment.judged))
        };
        [language.name(load), saved.name.clone()].into_iter().chain(rows.iter().map(shown)).collect()
    };
    let seen = |(saved, experiment): &(&SavedLab, &SavedExperiment)| {
        let word = |claim: &&str| {
            let found = experiment.claims.iter().find(|one| one.claim == *claim);
            found.map_or("–", |found| language.seen(found.seen)).to_owned()
        };
        std::iter::once(saved.name.clone()).chain(claims.iter().map(word)).collect()
    };
    Sheet {
        name: name.to_owned(),
        heads: ["", ""].into_iter().chain(rows.iter().copied()).map(|row| language.name(row)).collect(),
        lines: loads.iter().flat_map(|load| found.iter().map(|one| line(load, one))).collect(),
        seen: found.iter().map(seen).collect(),
        claims: claims.into_iter().map(|claim| translated(name, claim, language)).collect(),
    }
}

/// Translates a claim, which is saved in English. A claim unknown to this program stays unchanged.
fn translated(name: &str, claim: &str, language: Language) -> String {
    let place =
        Language::English.text(name).and_then(|text| text.claims.iter().position(|own| *own == claim));
    let own = place.and_then(|place| language.text(name)?.claims.get(place).copied());
    own.unwrap_or(claim).to_owned()
}

/// The column heads of a table of claims: their numbers.
fn numbers(claims: &[String]) -> Vec<String> {
    std::iter::once(String::new()).chain((1..=claims.len()).map(|number| number.to_string())).collect()
}

fn remember<'a>(known: &mut Vec<&'a str>, name: &'a str) {
    if !known.contains(&name) {
        known.push(name);
    }
}

/// Tables for people.
pub fn text(all: &[SavedLab], language: Language) -> String {
    let mut text = String::new();
    for saved in all {
        let _infallible = writeln!(text, "{}: {}", saved.name, saved.line(language));
    }
    for Sheet { name, heads, mut lines, claims, mut seen } in sheets(all, language) {
        let title = language.text(&name).map_or("", |text| text.title);
        lines.insert(0, heads);
        let _infallible = write!(text, "\n{name}: {title}\n\n{}", columns(&lines));
        if !claims.is_empty() {
            seen.insert(0, numbers(&claims));
            let _infallible = write!(text, "\n{}\n", columns(&seen));
            for (number, claim) in claims.iter().enumerate() {
                let _infallible = writeln!(text, "{:>3}  {claim}", number + 1);
            }
        }
    }
    text
}

/// All cells of all machines as CSV (RFC 4180) with a header line. Times are in ns per unit; a field is empty if there is no
/// value.
pub fn csv(all: &[SavedLab]) -> String {
    let mut lines = String::from(
        "machine,processors,processor,system,experiment,row,load,wall_ns,wall_low_ns,wall_high_ns,cpu_ns,cpu_low_ns,\
         cpu_high_ns,ratio,ratio_low,ratio_high,verdict\r\n",
    );
    for saved in all {
        let Where { processor, processors, system, .. } = &saved.machine;
        for (experiment, cell) in
            saved.experiments.iter().flat_map(|one| one.cells.iter().map(move |cell| (one, cell)))
        {
            let mut fields = [&saved.name, &processors.to_string(), processor, system, &experiment.name]
                .map(String::clone)
                .to_vec();
            fields.extend([cell.row.clone(), cell.load.clone()]);
            for interval in [cell.wall_ns, cell.cpu_ns, cell.ratio] {
                fields.extend(match interval {
                    Some(Interval { median, low, high }) => {
                        [median, low, high].map(|number| number.to_string())
                    }
                    None => [const { String::new() }; 3],
                });
            }
            fields.push(cell.verdict.clone());
            lines += &fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(",");
            lines += "\r\n";
        }
    }
    lines
}

/// The same tables as an HTML page.
pub fn page(all: &[SavedLab], language: Language) -> String {
    let words = language.words();
    let mut body =
        format!("<header>\n<h1>{}</h1>\n<p>{}</p>\n", escaped(words.title), escaped(words.preface));
    let machines = all.iter().map(|saved| vec![saved.name.clone(), saved.line(language)]);
    body += &page::table(&["", ""], machines);
    body += "</header>\n<main>\n";
    for Sheet { name, heads, lines, claims, seen } in sheets(all, language) {
        let title = language.text(&name).map_or("", |text| text.title);
        let _infallible = writeln!(
            body,
            "<section id=\"{0}\">\n<h2><code>{0}</code> {1}</h2>",
            escaped(&name),
            escaped(title)
        );
        body += &page::table(&heads.iter().map(String::as_str).collect::<Vec<_>>(), lines);
        if !claims.is_empty() {
            let heads = numbers(&claims);
            body += &page::table(&heads.iter().map(String::as_str).collect::<Vec<_>>(), seen);
            body += "<ol class=\"claims\">\n";
            for claim in &claims {
                let _infallible = writeln!(body, "<li>{}</li>", escaped(claim));
            }
            body += "</ol>\n";
        }
        body += "</section>\n";
    }
    let _infallible = writeln!(body, "<p class=\"quiet\">{}</p>\n</main>", escaped(words.reading));
    page::page(words.tag, words.title, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::is_windows;
    use crate::rounds::{self, RoundPace, StopHandle};
    use crate::{ExperimentOutcome, Machine, open, table};

    /// A quick run of one experiment, as a machine would save it.
    fn saved(name: &str, experiment: &str) -> SavedLab {
        let pace = RoundPace { rounds: 6, batch_ns: 1_000, ..RoundPace::quick(1) };
        let mut experiment = open(experiment, &pace).expect("a name of the list");
        let results = rounds::run(&mut *experiment, &pace, &StopHandle::new());
        let outcome = ExperimentOutcome::new(&*experiment, results);
        let text = table::json(&[outcome], &Machine::look(), &pace, "2026-01-01T00:00:00Z");
        SavedLab::read(name, &text).expect("it was just written")
    }

    #[test]
    fn each_machine_has_a_line_for_each_load_and_a_column_for_each_claim() {
        let all = [saved("one.json", "ring"), saved("<two>.json", "ring"), saved("three.json", "trigger")];
        let text = text(&all, Language::English);
        let lines = |of: &str| text.lines().filter(|line| line.contains(of)).count();
        // The machine's description, two loads, the claims.
        assert_eq!((lines("one.json"), lines("<two>.json")), (4, 4), "{text}");
        assert!(text.contains("aa | bb | cc | -"), "{text}");
        assert!(text.contains("  1  A mask is faster than % 8124, reading alone."), "{text}");
        let csv = csv(&all);
        // Windows has another row in place of three.
        let (triggers, name) =
            if is_windows() { (1, "WSAPoll: level, 2 bytes a turn") } else { (3, "edge, 2 bytes a turn") };
        assert_eq!(csv.lines().count(), 1 + 2 * 8 + 2 * triggers, "a head and every cell:\n{csv}");
        assert!(csv.contains("three.json") && csv.contains(&format!("\"{name}\"")), "{csv}");
        let page = page(&all, Language::English);
        assert!(page.contains("&lt;two&gt;.json") && !page.contains("<two>"), "what is text stays text");
        assert_eq!(page.matches("<section").count(), 2);
    }

    #[test]
    fn what_is_no_result_is_refused_with_its_reason() {
        let told = |text: &str| SavedLab::read("x", text).map(|_| ()).map_err(|error| error.to_string());
        assert!(told("{}").is_err_and(|said| said.contains("encke lab --json")));
        let other = r#"{"schema":9,"date":"","machine":{"processor":"","processors":1,"system":"","encke":"","optimised":true},"experiments":[]}"#;
        assert!(told(other).is_err_and(|said| said.contains("schema 9")));
    }
}
