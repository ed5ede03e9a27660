//! Plots as SVG within the page: bars for loads that are kinds, lines for loads that are amounts.
//!
//! Colours are classes, so that the page's style sheet decides them for light and dark. Each mark has its number as a
//! text or a title: nothing is told by colour alone.

use std::fmt::Write as _;

use crate::experiment::{Cell, Way};
use crate::report::escaped;
use crate::results::Results;
use crate::table::duration;

/// A panel of bars for each load, from zero: the shorter the better. The whisker is the 95 % interval.
pub(crate) fn bars(results: &Results) -> String {
    let design = results.design();
    let mut plots = String::from("<div class=\"plots\">\n");
    for (load, named) in design.loads.iter().enumerate() {
        let times: Vec<_> = (0..design.rows.len()).map(|row| results.judged(Cell { row, load })).collect();
        let most = times.iter().flatten().map(|time| time.median).fold(0.0, f64::max);
        if most == 0.0 {
            continue;
        }
        let height = BAR_STEP * design.rows.len() as f64 + 4.0;
        let _infallible = writeln!(
            plots,
            "<figure><svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\">"
        );
        let scale = |ns: f64| (ns / most * BAR_WIDTH).min(BAR_WIDTH * 1.08);
        for (row, time) in times.iter().enumerate() {
            let y = BAR_STEP * row as f64 + 2.0;
            let middle = y + BAR_STEP / 2.0;
            let name = escaped(&design.rows[row].name);
            let _infallible = writeln!(
                plots,
                "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
                BAR_LEFT - 6.0,
                middle + 4.0
            );
            let Some(time) = time else {
                let _infallible = writeln!(
                    plots,
                    "<text class=\"quiet\" x=\"{BAR_LEFT}\" y=\"{:.1}\">–</text>",
                    middle + 4.0
                );
                continue;
            };
            let _infallible = writeln!(
                plots,
                "<rect class=\"{}\" x=\"{BAR_LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"/>\
                 <line class=\"whisker\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                class(design.rows[row].way),
                y + 2.0,
                scale(time.median),
                BAR_STEP - 4.0,
                BAR_LEFT + scale(time.low),
                BAR_LEFT + scale(time.high),
                BAR_LEFT + scale(time.high.max(time.median)) + 6.0,
                middle + 4.0,
                duration(time.median),
            );
        }
        let _infallible = writeln!(plots, "</svg><figcaption>{}</figcaption></figure>", escaped(&named.name));
    }
    plots + "</div>\n"
}

/// A curve for each row, both axes logarithmic.
pub(crate) fn lines(results: &Results, amount: &str) -> String {
    let design = results.design();
    let marks: Vec<_> = results
        .cells()
        .filter_map(|cell| Some((cell, design.loads[cell.load].amount, results.judged(cell)?)))
        .filter(|(_, amount, time)| *amount > 0.0 && time.median > 0.0)
        .collect();
    let (Some(x), Some(y)) = (
        Scale::over(marks.iter().map(|(_, amount, _)| *amount), LINE_LEFT, LINE_RIGHT),
        Scale::over(marks.iter().map(|(_, _, time)| time.median), LINE_BOTTOM, LINE_TOP),
    ) else {
        return String::new();
    };
    let mut plot = format!(
        "<div class=\"plots\"><figure><svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
         viewBox=\"0 0 {LINE_WIDTH} {LINE_HEIGHT}\" width=\"{LINE_WIDTH}\" height=\"{LINE_HEIGHT}\">\n"
    );
    for decade in y.decades() {
        let at = y.place(decade);
        let _infallible = writeln!(
            plot,
            "<line class=\"grid\" x1=\"{LINE_LEFT}\" x2=\"{LINE_RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"quiet\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LINE_LEFT - 6.0,
            at + 4.0,
            duration(decade)
        );
    }
    for load in design.loads.iter().filter(|load| load.amount > 0.0) {
        let _infallible = writeln!(
            plot,
            "<text class=\"quiet\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x.place(load.amount),
            LINE_BOTTOM + 18.0,
            escaped(&load.name)
        );
    }
    for (row, named) in design.rows.iter().enumerate() {
        let own: Vec<_> = marks.iter().filter(|(cell, ..)| cell.row == row).collect();
        let place = |amount: f64, ns: f64| format!("{:.1},{:.1}", x.place(amount), y.place(ns));
        let points: Vec<String> = own.iter().map(|(_, amount, time)| place(*amount, time.median)).collect();
        let _infallible = writeln!(
            plot,
            "<g class=\"s{}\"><polyline class=\"curve\" points=\"{}\"/>",
            row % 8,
            points.join(" ")
        );
        for (_, amount, time) in &own {
            let (at, low, high) = (x.place(*amount), y.place(time.low.max(1e-3)), y.place(time.high));
            let _infallible = writeln!(
                plot,
                "<line class=\"bar\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>\
                 <circle class=\"dot\" cx=\"{at:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}: {}</title></circle>",
                y.place(time.median),
                escaped(&named.name),
                duration(time.median)
            );
        }
        let legend = LINE_TOP + 18.0 * row as f64;
        let _infallible = writeln!(
            plot,
            "<line class=\"curve\" x1=\"{:.0}\" x2=\"{:.0}\" y1=\"{legend:.1}\" y2=\"{legend:.1}\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\">{}</text></g>",
            LINE_RIGHT + 14.0,
            LINE_RIGHT + 34.0,
            LINE_RIGHT + 40.0,
            legend + 4.0,
            escaped(&named.name)
        );
    }
    let _infallible = writeln!(plot, "</svg><figcaption>{}</figcaption></figure></div>", escaped(amount));
    plot
}

/// Numbers to places, logarithmically.
struct Scale {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// `None` if there are no numbers.
    fn over(numbers: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Option<Self> {
        let least = numbers.clone().fold(f64::INFINITY, f64::min);
        let most = numbers.fold(0.0, f64::max);
        (least <= most).then_some(Self { least, most: most.max(least * 1.01), from, to })
    }

    fn place(&self, number: f64) -> f64 {
        self.from + (number / self.least).ln() / (self.most / self.least).ln() * (self.to - self.from)
    }

    /// The powers of ten within, and both ends if there are none.
    fn decades(&self) -> Vec<f64> {
        let first = self.least.log10().ceil() as i32;
        let decades: Vec<f64> =
            (first..).map(|power| 10_f64.powi(power)).take_while(|ten| *ten <= self.most).collect();
        if decades.len() > 1 { decades } else { vec![self.least, self.most] }
    }
}

const fn class(way: Way) -> &'static str {
    match way {
        Way::Old => "old",
        Way::Cure => "cure",
        Way::Peer => "peer",
        Way::Encke => "encke",
    }
}

const WIDTH: f64 = 460.0;
const BAR_LEFT: f64 = 165.0;
const BAR_WIDTH: f64 = 200.0;
const BAR_STEP: f64 = 20.0;
const LINE_WIDTH: f64 = 820.0;
const LINE_HEIGHT: f64 = 340.0;
const LINE_LEFT: f64 = 70.0;
const LINE_RIGHT: f64 = 580.0;
const LINE_TOP: f64 = 16.0;
const LINE_BOTTOM: f64 = 300.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_puts_its_ends_at_its_ends_and_knows_its_decades() {
        let scale = Scale::over([5.0, 500.0, 50.0].into_iter(), 0.0, 100.0).expect("there are numbers");
        assert_eq!([5.0, 50.0, 500.0].map(|number| scale.place(number).round()), [0.0, 50.0, 100.0]);
        assert_eq!(scale.decades(), [10.0, 100.0]);
        assert!(Scale::over([].into_iter(), 0.0, 1.0).is_none());
    }
}
