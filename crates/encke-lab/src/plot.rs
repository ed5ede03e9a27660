//! Results as plots: a ranking for each load that is a kind, a curve for each row over loads that are amounts.

use encke_stats::plot::{Axis, Plot, Ranking, Scale};

use crate::experiment::{self, Cell, Way};
use crate::results::Results;
use crate::table::duration;
use crate::texts::Language;

/// All plots of an experiment, as HTML.
pub(crate) fn plots(results: &Results, language: Language) -> String {
    let plots = match results.design().axis {
        experiment::Axis::Kinds => rankings(results, language),
        experiment::Axis::Amounts(name) => curves(results, name, language),
    };
    format!("<div class=\"plots\">\n{plots}</div>\n")
}

/// A ranking of the rows for each load; the whisker is the 95 % interval.
fn rankings(results: &Results, language: Language) -> String {
    let design = results.design();
    let ranking = |(load, named): (usize, &experiment::Load)| {
        let mut ranking = Ranking::new(&language.name(&named.name), duration);
        for (row, of) in design.rows.iter().enumerate() {
            let within = results.judged(Cell { row, load }).map(|time| [time.median, time.low, time.high]);
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

/// A logarithm needs more than zero: no time is shorter than this.
const SHORT_NS: f64 = 1e-3;

fn plain(number: f64) -> String {
    match number {
        large if large >= 1e6 => format!("{}M", large / 1e6),
        large if large >= 1e4 => format!("{}k", large / 1e3),
        small => format!("{small}"),
    }
}

/// A class of the page's style.
const fn colour(way: Way) -> &'static str {
    match way {
        Way::Old => "old",
        Way::Cure => "cure",
        Way::Peer => "peer",
        Way::Encke => "encke",
    }
}
