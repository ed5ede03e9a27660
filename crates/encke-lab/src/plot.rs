//! Plots of results: a ranking per load if loads are kinds, a curve per row if they are amounts.

use encke_stats::plot::{Axis, Plot, Ranking, Scale};

use crate::experiment::{self, CellIndex, Drawn, Way};
use crate::results::Results;
use crate::table::duration;
use crate::texts::Language;

/// All plots of an experiment, as HTML.
pub(crate) fn plots(results: &Results, language: Language) -> String {
    let plots = match results.design().axis {
        experiment::LoadAxis::Kinds => rankings(results, language),
        experiment::LoadAxis::Amounts(name) => curves(results, name, language),
    };
    let drawn: String = results.design().drawn.iter().map(|drawn| found(results, drawn, language)).collect();
    format!("<div class=\"plots\">\n{plots}{drawn}</div>\n")
}

/// A ranking of the rows for each load; the whisker is the 95 % interval.
fn rankings(results: &Results, language: Language) -> String {
    let design = results.design();
    let ranking = |(load, named): (usize, &experiment::Load)| {
        let mut ranking = Ranking::new(&language.name(&named.name), duration);
        for (row, of) in design.rows.iter().enumerate() {
            let within =
                results.judged(CellIndex { row, load }).map(|time| [time.median, time.low, time.high]);
            ranking.bar(&language.name(&of.name), colour(of.way), within);
        }
        ranking.figure()
    };
    design.loads.iter().enumerate().map(ranking).collect()
}

/// A curve for each row, both axes logarithmic.
fn curves(results: &Results, amount: &str, language: Language) -> String {
    let design = results.design();
    let marks: Vec<(usize, [f64; 4])> = results
        .cells()
        .filter_map(|cell| {
            let (time, amount) = (results.judged(cell)?, design.loads[cell.load].amount);
            let mark = [amount, time.median, time.low.max(SHORT_NS), time.high];
            (amount > 0.0 && time.median > 0.0).then_some((cell.row, mark))
        })
        .collect();
    if marks.is_empty() {
        return String::new();
    }
    let amounts = || marks.iter().map(|(_, [amount, ..])| *amount);
    let x = Axis::over(Scale::Log, amounts(), plain).telling(amounts());
    let y = Axis::over(Scale::Log, marks.iter().flat_map(|(_, [_, times @ ..])| *times), duration);
    let mut plot = Plot::new(&language.name(amount), x, y);
    for (row, of) in design.rows.iter().enumerate() {
        let own = marks.iter().filter(|(known, _)| *known == row).map(|(_, mark)| *mark);
        plot.curve_within(&language.name(&of.name), own);
    }
    plot.figure()
}

/// A curve of a fact for each row, and a dashed one of the report's values; both axes logarithmic.
fn found(results: &Results, drawn: &Drawn, language: Language) -> String {
    let design = results.design();
    let marks: Vec<(usize, [f64; 4])> = results
        .cells()
        .filter_map(|cell| {
            let (found, amount) = (results.found(cell, drawn.fact)?, design.loads[cell.load].amount);
            let mark = [amount, found.median, found.low, found.high];
            (amount > 0.0 && found.low > 0.0).then_some((cell.row, mark))
        })
        .collect();
    if marks.is_empty() {
        return String::new();
    }
    let reported = || drawn.reported.iter().copied();
    let amounts =
        || marks.iter().map(|(_, [amount, ..])| *amount).chain(reported().map(|(amount, _)| amount));
    let numbers = marks.iter().flat_map(|(_, [_, numbers @ ..])| *numbers);
    let x = Axis::over(Scale::Log, amounts(), plain).telling(marks.iter().map(|(_, [amount, ..])| *amount));
    let y = Axis::over(Scale::Log, numbers.chain(reported().map(|(_, number)| number)), plain);
    let mut plot = Plot::new(&language.name(drawn.fact), x, y);
    for (row, of) in design.rows.iter().enumerate() {
        let own: Vec<[f64; 4]> =
            marks.iter().filter(|(known, _)| *known == row).map(|(_, mark)| *mark).collect();
        if !own.is_empty() {
            plot.curve_within(&language.name(&of.name), own);
        }
    }
    if !drawn.reported.is_empty() {
        plot.broken_curve(&language.name("the report's"), reported());
    }
    plot.figure()
}

/// Lower bound of plotted times: a logarithm needs a positive value.
const SHORT_NS: f64 = 1e-3;

fn plain(number: f64) -> String {
    match number {
        large if large >= 1e6 => format!("{}M", large / 1e6),
        large if large >= 1e4 => format!("{}k", large / 1e3),
        small => format!("{}", (small * 1e6).round() / 1e6),
    }
}

/// The CSS class of a row's color.
const fn colour(way: Way) -> &'static str {
    match way {
        Way::Old => "old",
        Way::Cure => "cure",
        Way::Peer => "peer",
        Way::Encke => "encke",
    }
}
