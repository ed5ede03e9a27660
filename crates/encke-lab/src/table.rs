//! Results as text: a table for people, CSV and JSON for programs.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr as _;

use crate::experiment::{CellIndex, Fact, Judged};
use crate::interval::Interval;
use crate::machine::Machine;
use crate::merged::SCHEMA;
use crate::results::{CellVerdict, ExperimentOutcome, Results};
use crate::rounds::RoundPace;
use crate::texts::Language;

/// A table of one experiment, with its claims.
pub fn text(outcome: &ExperimentOutcome, language: Language) -> String {
    let words = language.words();
    let results = &outcome.results;
    let design = results.design();
    let mut lines = String::new();
    let title = language.text(design.name).map_or("", |text| text.title);
    let _infallible = writeln!(lines, "{}: {title}\n{}", design.name, told_of(results, language));
    for difference in &outcome.differences {
        lines += &language.name(difference);
        lines.push('\n');
    }
    lines.push('\n');
    let rows: Vec<Vec<String>> = std::iter::once(heads(results, language))
        .chain((0..design.rows.len()).map(|row| {
            let name = language.name(&design.rows[row].name);
            let cells = results.cells().filter(move |cell| cell.row == row);
            std::iter::once(name).chain(cells.map(|cell| shown(results, cell, language))).collect()
        }))
        .collect();
    lines += &columns(&rows);
    if design.judged == Judged::Facts || results.cells().any(|cell| !results.facts(cell).is_empty()) {
        lines += &facts(results, language);
    }
    lines += &counts(results, language);
    lines.push('\n');
    let claims = language.text(design.name).map_or(&[][..], |text| text.claims);
    for (claim, said) in outcome.claims.iter().zip(claims) {
        let seen = language.seen(claim.seen);
        let space = " ".repeat(SEEN_COLUMNS.saturating_sub(seen.width()));
        let figure = language.figure(&claim.figure, design);
        let _infallible = writeln!(lines, "{space}{seen}  {said}\n{:SEEN_COLUMNS$}  {figure}", "");
    }
    let absent = results.cells().filter_map(|cell| match results.verdict(cell) {
        CellVerdict::Absent(reason) => {
            Some((language.name(&design.rows[cell.row].name), language.name(&reason)))
        }
        _ => None,
    });
    let mut absent: Vec<(String, String)> = absent.collect();
    absent.dedup();
    for (row, reason) in absent {
        let _infallible = writeln!(lines, "{:>SEEN_COLUMNS$}  {row}: {reason}", "–");
    }
    if let Some(reason) = results.uncounted() {
        let (counted, reason) = (words.counted[1..].join(", "), language.name(reason));
        let _infallible = writeln!(lines, "{:>SEEN_COLUMNS$}  {counted}: {reason}", "–");
    }
    let _infallible = writeln!(lines, "\n{}", words.reading);
    lines
}

/// The names and titles of all experiments.
pub fn list(language: Language) -> String {
    language
        .words()
        .experiments
        .iter()
        .fold(String::new(), |lines, text| lines + &format!("{:10}{}\n", text.name, text.title))
}

/// Describes the numbers, and the number of rounds that they come from.
pub(crate) fn told_of(results: &Results, language: Language) -> String {
    language.held(results.design(), results.rounds(), results.took_ns())
}

/// The column heads; the first one is above the rows' names.
fn heads(results: &Results, language: Language) -> Vec<String> {
    std::iter::once(String::new())
        .chain(results.design().loads.iter().map(|load| language.name(&load.name)))
        .collect()
}

/// A cell for people: median and ratio.
pub(crate) fn shown(results: &Results, cell: CellIndex, language: Language) -> String {
    match results.verdict(cell) {
        CellVerdict::Absent(_) => return "–".into(),
        CellVerdict::TooFew(_) => return "?".into(),
        CellVerdict::Facts if results.design().judged != Judged::Facts => {
            return language.words().untimed.into();
        }
        CellVerdict::Facts => {
            let facts = results.facts(cell).iter().map(|(_, fact)| fact_text(fact)).collect::<Vec<_>>();
            return facts.join(" ");
        }
        CellVerdict::Baseline | CellVerdict::Differs | CellVerdict::NoDifferenceSeen => {}
    }
    let (Some(time), Some(ratio)) = (results.judged(cell), results.ratio(cell.row, 0, cell.load)) else {
        return "?".into();
    };
    let beside = match results.verdict(cell) {
        CellVerdict::Baseline => String::new(),
        CellVerdict::Differs => format!(" {}", times(ratio)),
        _ => " ~".into(),
    };
    format!("{}{beside}", duration(time.median))
}

pub(crate) fn times(ratio: Interval) -> String {
    match ratio.median {
        small if small < 0.095 => format!("×{small:.3}"),
        large if large >= 100.0 => format!("×{large:.0}"),
        median => format!("×{median:.2}"),
    }
}

/// Formats nanoseconds with three digits and a unit.
pub(crate) fn duration(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    match value {
        value if value < 10.0 => format!("{value:.2} {unit}"),
        value if value < 100.0 => format!("{value:.1} {unit}"),
        value => format!("{value:.0} {unit}"),
    }
}

/// Facts in addition to times, a line for each cell that has some.
fn facts(results: &Results, language: Language) -> String {
    let design = results.design();
    if design.judged == Judged::Facts {
        return String::new();
    }
    let mut lines = vec![];
    for cell in results.cells().filter(|cell| !results.facts(*cell).is_empty()) {
        let told = facts_of(results, cell, language).join(", ");
        let [row, load] = [&design.rows[cell.row].name, &design.loads[cell.load].name];
        lines.push(vec![language.name(row), language.name(load), told]);
    }
    format!("\n{}", columns(&lines))
}

/// The facts of a cell, each with its name.
pub(crate) fn facts_of(results: &Results, cell: CellIndex, language: Language) -> Vec<String> {
    let facts = results.facts(cell).iter();
    facts.map(|(name, fact)| format!("{} {}", language.name(name), fact_text(fact))).collect()
}

/// The processor's counts, a line per cell; nothing if they were not requested.
fn counts(results: &Results, language: Language) -> String {
    let design = results.design();
    let mut lines = vec![language.words().counted.map(str::to_owned).to_vec()];
    for cell in results.cells() {
        let Some(counts) = results.counts(cell) else { continue };
        let [row, load] = [&design.rows[cell.row].name, &design.loads[cell.load].name];
        let name = format!("{}, {}", language.name(row), language.name(load));
        lines.push(std::iter::once(name).chain(counts.map(|count| quantity(count.median))).collect());
    }
    if lines.len() == 1 { String::new() } else { format!("\n{}", columns(&lines)) }
}

/// Formats a count with three digits or more.
pub(crate) fn quantity(count: f64) -> String {
    match count {
        small if small < 10.0 => format!("{small:.2}"),
        medium if medium < 100.0 => format!("{medium:.1}"),
        large => format!("{large:.0}"),
    }
}

pub(crate) fn fact_text(fact: &Fact) -> String {
    match fact {
        Fact::Number(number) if number.fract() == 0.0 || number.abs() >= 100.0 => format!("{number:.0}"),
        Fact::Number(number) => format!("{number:.2}"),
        Fact::Text(text) => text.clone(),
    }
}

/// Aligns columns to their widest cell: the first is flush left, the others flush right. Widths are those on a terminal
/// (Unicode's UAX #11): an ideograph takes two columns.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or(0)
    };
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let space = " ".repeat(width(column) - cell.width());
            text += &if column == 0 { format!("{cell}{space}") } else { format!("  {space}{cell}") };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// All cells as CSV (RFC 4180) with a header line. Times are in ns per unit; a field is empty if there is no value.
pub fn csv(outcomes: &[ExperimentOutcome]) -> String {
    let mut lines = String::from(
        "experiment,row,load,amount,wall_ns,wall_low_ns,wall_high_ns,cpu_ns,cpu_low_ns,cpu_high_ns,ratio,ratio_low,\
         ratio_high,verdict,facts,cycles,instructions,branch_misses\r\n",
    );
    for results in outcomes.iter().map(|outcome| &outcome.results) {
        let design = results.design();
        for cell in results.cells() {
            let load = &design.loads[cell.load];
            let intervals = [results.wall(cell), results.cpu(cell), results.ratio(cell.row, 0, cell.load)];
            let facts = results.facts(cell).iter().map(|(name, fact)| format!("{name} {}", fact_text(fact)));
            let mut fields =
                vec![design.name.to_owned(), design.rows[cell.row].name.clone(), load.name.clone()];
            fields.push(load.amount.to_string());
            for interval in intervals {
                fields.extend(match interval {
                    Some(Interval { median, low, high }) => {
                        [median, low, high].map(|number| number.to_string())
                    }
                    None => [const { String::new() }; 3],
                });
            }
            fields.push(results.verdict(cell).text());
            fields.push(facts.collect::<Vec<_>>().join("; "));
            fields.extend(match results.counts(cell) {
                Some(counts) => counts.map(|count| count.median.to_string()),
                None => [const { String::new() }; 3],
            });
            lines += &fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(",");
            lines += "\r\n";
        }
    }
    lines
}

pub(crate) fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.into()
    }
}

/// All results as JSON. A schema only ever gains keys.
pub fn json(outcomes: &[ExperimentOutcome], machine: &Machine, pace: &RoundPace, date: &str) -> String {
    use serde_json::{Value, json};
    let interval = |interval: Option<Interval>| serde_json::to_value(interval).unwrap_or(Value::Null);
    let experiments = outcomes.iter().map(|ExperimentOutcome { results, claims, differences }| {
        let design = results.design();
        let said = Language::English.text(design.name).map_or(&[][..], |text| text.claims);
        let cells = results.cells().map(|cell| {
            let facts = results.facts(cell).iter().map(|(name, fact)| ((*name).to_owned(), json!(fact)));
            let counts = results.counts(cell);
            let counted = |place: usize| interval(counts.map(|counts| counts[place]));
            json!({
                "row": design.rows[cell.row].name,
                "way": design.rows[cell.row].way,
                "load": design.loads[cell.load].name,
                "amount": design.loads[cell.load].amount,
                "wall_ns": interval(results.wall(cell)),
                "cpu_ns": interval(results.cpu(cell)),
                "ratio": interval(results.ratio(cell.row, 0, cell.load)),
                "verdict": results.verdict(cell).text(),
                "cycles": counted(0),
                "instructions": counted(1),
                "branch_misses": counted(2),
                "facts": facts.collect::<serde_json::Map<_, _>>(),
            })
        });
        let claims = claims
            .iter()
            .zip(said)
            .map(|(claim, said)| json!({ "claim": said, "seen": claim.seen, "figure": Language::English.figure(&claim.figure, design) }));
        json!({
            "name": design.name,
            "unit": design.unit,
            "judged": design.judged,
            "rounds": results.rounds(),
            "took_ns": results.took_ns(),
            "uncounted": results.uncounted(),
            "differences": differences,
            "cells": cells.collect::<Vec<_>>(),
            "claims": claims.collect::<Vec<_>>(),
        })
    });
    let experiments: Vec<Value> = experiments.collect();
    let all = json!({
        "schema": SCHEMA,
        "date": date,
        "seed": pace.seed.to_string(),
        "quick": pace.quick,
        "machine": machine,
        "experiments": experiments,
    });
    format!("{all:#}\n")
}

/// Width of the widest word for a claim's result.
const SEEN_COLUMNS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        let told = [0.0, 1.0, 12.34, 999.4, 1_234.0, 123_456.0, 10e6, 2.5e9].map(duration);
        assert_eq!(
            told,
            ["0.00 ns", "1.00 ns", "12.3 ns", "999 ns", "1.23 µs", "123 µs", "10.0 ms", "2.50 s"]
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["".to_owned(), "a".into()], vec!["µs".into(), "1.0".into()]];
        assert_eq!(columns(&rows), "      a\nµs  1.0\n");
        let rows = [vec!["延遲".to_owned(), "接続".into()], vec!["µs".into(), "1.0".into()]];
        assert_eq!(columns(&rows), "延遲  接続\nµs     1.0\n");
    }

    #[test]
    fn a_field_with_a_comma_or_a_quote_is_quoted() {
        assert_eq!(["a", "a,b", "a\"b"].map(quoted), ["a", "\"a,b\"", "\"a\"\"b\""]);
    }
}
