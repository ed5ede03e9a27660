//! Plots as SVG within a page: curves, bars and heat maps on linear, logarithmic and percentile axes; and rankings, which are
//! named bars without an axis.
//!
//! ```text
//!   numbers ─► Axis (scale, ends, ticks) ┐
//!   numbers ─► Axis                      ┴─► Plot ─ curve, bar, cell … ─► <figure>
//!   names, numbers ────────────────────────► Ranking ───────────────────► <figure>
//! ```
//! Colours are classes that the page's style sheet defines for light and dark ([`crate::page`]). A plot only illustrates: its
//! caller also puts the numbers into a table.

use std::fmt::Write as _;

use crate::page::escaped;

/// The mapping of numbers to positions on an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Equal differences have equal lengths.
    Linear,
    /// Equal ratios have equal lengths.
    Log,
    /// For percentiles: shares from 0 to below 1. Each further nine has the same length: 0.9, 0.99, 0.999.
    Nines,
}

/// An axis: its scale, its ends, and the format of its numbers.
#[derive(Clone, Debug)]
pub struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Formats a number.
    told: fn(f64) -> String,
    /// The numbers to label, in place of round ones.
    ticks: Option<Vec<f64>>,
}

/// A plot of curves, bars and cells, which are added one by one.
#[derive(Clone, Debug)]
pub struct Plot {
    caption: String,
    x: Axis,
    y: Axis,
    marks: String,
    keys: Vec<String>,
}

/// More ticks would overlap.
const TICKS_MAX: usize = 7;
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 546.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 230.0;

impl Axis {
    /// Creates an axis that covers the numbers; from 0 (logarithmic: 0.1) to 1 if there are none. `told` formats a number.
    ///
    /// A linear axis begins at 0, or at the lowest negative number, and ends 5 % above the highest. A logarithmic one ends
    /// at 1, 2 or 5 times a power of ten. An axis of nines begins at 0 and ends between 0.9 and 1.
    pub fn over(scale: Scale, numbers: impl IntoIterator<Item = f64>, told: fn(f64) -> String) -> Self {
        let usable = |number: &f64| number.is_finite() && (scale != Scale::Log || *number > 0.0);
        let (least, most) = numbers
            .into_iter()
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), number| {
                (least.min(number), most.max(number))
            });
        let (low, high) = match scale {
            _ if least > most => (if scale == Scale::Log { 0.1 } else { 0.0 }, 1.0),
            Scale::Linear => (least.min(0.0), if most > 0.0 { most * 1.05 } else { 1.0 }),
            // Down and up to 1, 2 or 5 times a power of ten.
            Scale::Log => (round_down(least), round_up(most.max(least * 1.01))),
            Scale::Nines => (0.0, most.clamp(0.9, 1.0 - 1e-9)),
        };
        Self::between(scale, low, high, told)
    }

    /// Creates an axis from `low` to `high`. `told` formats a number.
    pub fn between(scale: Scale, low: f64, high: f64, told: fn(f64) -> String) -> Self {
        Self { scale, low, high, told, ticks: None }
    }

    /// Labels these numbers in place of round ones. Numbers whose labels would overlap are left out.
    #[must_use]
    pub fn telling(mut self, numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        // Labels closer to each other than this would overlap.
        let apart = 1.0 / (2 * TICKS_MAX) as f64;
        let mut told: Vec<f64> = Vec::new();
        for number in numbers {
            if told.last().is_none_or(|last| self.place(number) - self.place(*last) >= apart) {
                told.push(number);
            }
        }
        self.ticks = Some(told);
        self
    }

    /// The position of a number: 0 for the lower end and 1 for the upper end. Numbers beyond an end have its position.
    pub fn place(&self, number: f64) -> f64 {
        let along = |number: f64| match self.scale {
            Scale::Linear => number,
            Scale::Log => number.max(f64::MIN_POSITIVE).ln(),
            Scale::Nines => -(1.0 - number).max(1e-12).log10(),
        };
        let (low, high) = (along(self.low), along(self.high));
        if high > low { ((along(number) - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The numbers to label: those set by [`Axis::telling`], or else round numbers from end to end.
    pub fn ticks(&self) -> Vec<f64> {
        if let Some(ticks) = &self.ticks {
            return ticks.clone();
        }
        let within = |number: &f64| *number >= self.low * (1.0 - 1e-9) && *number <= self.high * (1.0 + 1e-9);
        match self.scale {
            Scale::Linear => {
                let step = [1.0, 2.0, 5.0, 10.0, 20.0]
                    .map(|factor| factor * power_below((self.high - self.low) / TICKS_MAX as f64))
                    .into_iter()
                    .find(|step| (self.high - self.low) / step < TICKS_MAX as f64)
                    .unwrap_or(self.high - self.low);
                let first = (self.low / step).ceil();
                (0..TICKS_MAX).map(|count| (first + count as f64) * step).take_while(within).collect()
            }
            Scale::Log => {
                let decades = (self.high / self.low).log10();
                let factors: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let first = self.low.log10().floor() as i32;
                let powers = (first..).take(decades.ceil() as usize + 2);
                let all: Vec<f64> = powers
                    .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)))
                    .filter(within)
                    .collect();
                let each = all.len().div_ceil(TICKS_MAX + 2).max(1);
                all.into_iter().step_by(each).collect()
            }
            Scale::Nines => {
                let nines = (1..=9).map(|nines| 1.0 - 10_f64.powi(-nines));
                [0.0, 0.5].into_iter().chain(nines).filter(within).collect()
            }
        }
    }
}

impl Plot {
    /// Creates an empty plot.
    pub fn new(caption: &str, x: Axis, y: Axis) -> Self {
        Self { caption: caption.to_owned(), x, y, marks: String::new(), keys: Vec::new() }
    }

    /// Adds a curve through points, in the next colour.
    pub fn curve(&mut self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        self.line(name, points, "curve");
    }

    /// Adds a dashed curve, for an estimate.
    pub fn broken_curve(&mut self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        self.line(name, points, "curve dashed");
    }

    /// Adds a curve with a dot and an error bar at each point: `[x, y, least, most]`.
    pub fn curve_within(&mut self, name: &str, points: impl IntoIterator<Item = [f64; 4]>) {
        let points: Vec<[f64; 4]> =
            points.into_iter().filter(|point| point.iter().all(|number| number.is_finite())).collect();
        self.line(name, points.iter().map(|[x, y, ..]| (*x, *y)), "curve");
        let colour = format!("c{}", (self.keys.len() - 1) % 8);
        for [x, y, least, most] in points {
            let (x, told) = (self.across(x), (self.y.told)(y));
            let _infallible = writeln!(
                self.marks,
                "<line class=\"whisker {colour}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
                 <circle class=\"dot {colour}\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}: {}</title></circle>",
                self.up(least),
                self.up(most),
                self.up(y),
                escaped(name),
                escaped(&told)
            );
        }
    }

    fn line(&mut self, name: &str, points: impl IntoIterator<Item = (f64, f64)>, class: &str) {
        let points: Vec<(f64, f64)> =
            points.into_iter().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        let colour = self.key(name);
        if let [(x, y)] = points[..] {
            let (x, y) = (self.across(x), self.up(y));
            let _infallible =
                writeln!(self.marks, "<circle class=\"dot {colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
            return;
        }
        let places: Vec<String> =
            points.iter().map(|&(x, y)| format!("{:.1},{:.1}", self.across(x), self.up(y))).collect();
        let _infallible =
            writeln!(self.marks, "<polyline class=\"{class} {colour}\" points=\"{}\"/>", places.join(" "));
    }

    /// Adds bars from the lower end of the y axis: the left end, the right end, and the height of each. All have one colour and
    /// one name.
    pub fn bars(&mut self, name: &str, bars: impl IntoIterator<Item = (f64, f64, f64)>) {
        let colour = self.key(name);
        for (from, to, height) in bars {
            let (left, right, top) = (self.across(from), self.across(to), self.up(height));
            let width = (right - left - 0.4).max(0.8);
            let _infallible = writeln!(
                self.marks,
                "<rect class=\"bar {colour}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>",
                BOTTOM - top
            );
        }
    }

    /// Adds the cells of a heat map: `[from, to]` on the x axis and on the y axis, and the heat from 0 to 1.
    pub fn cells(&mut self, name: &str, cells: impl IntoIterator<Item = ([f64; 2], [f64; 2], f64)>) {
        let colour = self.key(name);
        for (across, up, heat) in cells {
            let [left, right] = across.map(|x| self.across(x));
            let [bottom, top] = up.map(|y| self.up(y));
            let _infallible = writeln!(
                self.marks,
                "<rect class=\"cell {colour}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                 opacity=\"{:.2}\"/>",
                (right - left).max(0.5),
                (bottom - top).max(0.5),
                heat.clamp(0.0, 1.0)
            );
        }
    }

    /// Renders the plot as an HTML figure, with its axes and a legend.
    pub fn figure(&self) -> String {
        let caption = escaped(&self.caption);
        let mut figure = format!(
            "<figure><svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{caption}\" viewBox=\"0 0 {WIDTH} \
             {HEIGHT}\">\n"
        );
        for tick in self.y.ticks() {
            let y = self.up(tick);
            let _infallible = writeln!(
                figure,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                escaped(&(self.y.told)(tick))
            );
        }
        for tick in self.x.ticks() {
            let x = self.across(tick);
            let _infallible = writeln!(
                figure,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 18.0,
                escaped(&(self.x.told)(tick))
            );
        }
        figure.push_str(&self.marks);
        let _infallible = write!(figure, "</svg><figcaption>{caption}");
        if self.keys.len() > 1 {
            figure.push_str("<br>");
            for (number, key) in self.keys.iter().enumerate() {
                let _infallible =
                    write!(figure, "<span class=\"key c{}\">{}</span>", number % 8, escaped(key));
            }
        }
        figure + "</figcaption></figure>\n"
    }

    /// Adds a name to the legend, and returns the class of its colour.
    fn key(&mut self, name: &str) -> String {
        self.keys.push(name.to_owned());
        format!("c{}", (self.keys.len() - 1) % 8)
    }

    fn across(&self, x: f64) -> f64 {
        LEFT + self.x.place(x) * (RIGHT - LEFT)
    }

    fn up(&self, y: f64) -> f64 {
        BOTTOM - self.y.place(y) * (BOTTOM - TOP)
    }
}

/// A plot of named bars from zero, which are added one by one. Shorter bars are better.
#[derive(Clone, Debug)]
pub struct Ranking {
    caption: String,
    told: fn(f64) -> String,
    bars: Vec<Bar>,
}

/// One bar of a ranking.
#[derive(Clone, Debug)]
struct Bar {
    name: String,
    colour: &'static str,
    /// The number with its lower and upper bound; `None` if it is not available.
    within: Option<[f64; 3]>,
}

impl Ranking {
    /// Creates an empty ranking.
    pub fn new(caption: &str, told: fn(f64) -> String) -> Self {
        Self { caption: caption.to_owned(), told, bars: Vec::new() }
    }

    /// Adds a bar: its number with the lower and upper bound, or `None` if not available. `colour` is a class of the page.
    pub fn bar(&mut self, name: &str, colour: &'static str, within: Option<[f64; 3]>) {
        self.bars.push(Bar { name: name.to_owned(), colour, within });
    }

    /// Renders the ranking as an HTML figure; empty if no bar has a length.
    pub fn figure(&self) -> String {
        let most = self.bars.iter().filter_map(|bar| Some(bar.within?[0])).fold(0.0, f64::max);
        if most <= 0.0 {
            return String::new();
        }
        let caption = escaped(&self.caption);
        let height = BAR_STEP * self.bars.len() as f64 + 4.0;
        let mut figure = format!(
            "<figure><svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{caption}\" viewBox=\"0 0 \
             {BAR_FRAME} {height}\">\n"
        );
        let length = |number: f64| (number / most * BAR_LENGTH).min(BAR_LENGTH * 1.08);
        for (place, bar) in self.bars.iter().enumerate() {
            let top = BAR_STEP * place as f64 + 2.0;
            let (middle, line) = (top + BAR_STEP / 2.0, top + BAR_STEP / 2.0 + 4.0);
            let _infallible = write!(
                figure,
                "<text x=\"{:.0}\" y=\"{line:.1}\" text-anchor=\"end\">{}</text>",
                BAR_LEFT - 6.0,
                escaped(&bar.name)
            );
            let Some([number, least, most]) = bar.within else {
                let _infallible = writeln!(figure, "<text x=\"{BAR_LEFT}\" y=\"{line:.1}\">–</text>");
                continue;
            };
            let _infallible = writeln!(
                figure,
                "<rect class=\"bar {}\" x=\"{BAR_LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"/>\
                 <line class=\"whisker\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{line:.1}\">{}</text>",
                bar.colour,
                top + 2.0,
                length(number).max(0.5),
                BAR_STEP - 4.0,
                BAR_LEFT + length(least),
                BAR_LEFT + length(most),
                BAR_LEFT + length(most.max(number)) + 6.0,
                escaped(&(self.told)(number))
            );
        }
        figure + "</svg><figcaption>" + &caption + "</figcaption></figure>\n"
    }
}

const BAR_FRAME: f64 = 460.0;
const BAR_LEFT: f64 = 180.0;
const BAR_LENGTH: f64 = 190.0;
const BAR_STEP: f64 = 20.0;

/// The largest power of ten that is at most `number`, which is above 0.
fn power_below(number: f64) -> f64 {
    10_f64.powf(number.max(f64::MIN_POSITIVE).log10().floor())
}

fn round_down(number: f64) -> f64 {
    let power = power_below(number);
    [5.0, 2.0].map(|factor| factor * power).into_iter().find(|round| *round <= number).unwrap_or(power)
}

fn round_up(number: f64) -> f64 {
    let power = power_below(number);
    [1.0, 2.0, 5.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|round| *round >= number)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(number: f64) -> String {
        format!("{number}")
    }

    #[test]
    fn axes_end_at_round_numbers_and_lay_them_out_by_their_scale() {
        let axis = Axis::over(Scale::Log, [30.0, 4_000.0], plain);
        assert_eq!([20.0, 5_000.0].map(|end| axis.place(end)), [0.0, 1.0]);
        assert!((axis.place((20.0_f64 * 5_000.0).sqrt()) - 0.5).abs() < 1e-9);
        let axis = Axis::over(Scale::Linear, [3.0, 100.0], plain);
        assert_eq!((axis.place(0.0), axis.place(52.5)), (0.0, 0.5));
        let axis = Axis::over(Scale::Nines, [0.5, 0.9999], plain);
        let near = |number: f64, place: f64| (axis.place(number) - place).abs() < 1e-6;
        assert!(near(0.0, 0.0) && near(0.9, 0.25) && near(0.99, 0.5) && near(0.9999, 1.0));
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(Axis::over(Scale::Linear, [97.0], plain).ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(Axis::over(Scale::Log, [100.0, 3e6], plain).ticks(), [1e2, 1e3, 1e4, 1e5, 1e6]);
        let few = Axis::over(Scale::Log, [130.0, 180.0], plain).ticks();
        assert_eq!(few, [100.0, 200.0]);
        let nines = Axis::over(Scale::Nines, [0.995], plain).ticks();
        assert_eq!(nines, [0.0, 0.5, 0.9, 0.99]);
        for high in [1.0, 7.3, 1_234.0, 1e9, 0.004] {
            for scale in [Scale::Linear, Scale::Log] {
                let ticks = Axis::over(scale, [high / 1e7, high], plain).ticks();
                assert!((1..=TICKS_MAX + 2).contains(&ticks.len()), "{scale:?} {high}: {ticks:?}");
                assert!(ticks.is_sorted());
            }
        }
    }

    #[test]
    fn numbers_that_are_none_draw_nothing_and_break_nothing() {
        let empty = || Axis::over(Scale::Log, [f64::NAN, 0.0, -1.0], plain);
        let mut plot = Plot::new("nothing <here>", empty(), empty());
        plot.curve("none", []);
        plot.curve("one", [(0.5, 0.5)]);
        plot.curve("not", [(f64::NAN, 1.0), (0.2, f64::INFINITY)]);
        let figure = plot.figure();
        assert!(!figure.contains("NaN") && !figure.contains("inf"), "{figure}");
        assert!(figure.contains("nothing &lt;here&gt;") && figure.contains("<circle"));
        assert_eq!(figure.matches('<').count(), figure.matches('>').count());
    }

    #[test]
    fn an_axis_tells_the_numbers_it_is_given_unless_they_cover_each_other() {
        let axis = Axis::over(Scale::Log, [1.0, 16.0], plain).telling([4.0, 1.0, 2.0, 3.0, 16.0, 2.0]);
        assert_eq!(axis.ticks(), [1.0, 2.0, 3.0, 4.0, 16.0]);
        let crowded = Axis::over(Scale::Linear, [100.0], plain).telling((0..100).map(f64::from));
        assert!((8..=2 * TICKS_MAX).contains(&crowded.ticks().len()), "{:?}", crowded.ticks());
    }

    #[test]
    fn a_curve_shows_between_what_its_points_lie() {
        let axis = || Axis::between(Scale::Linear, 0.0, 10.0, plain);
        let mut plot = Plot::new("p", axis(), axis());
        plot.curve_within("<c>", [[0.0, 5.0, 0.0, 10.0], [10.0, 5.0, 5.0, f64::NAN], [10.0, 0.0, 0.0, 0.0]]);
        let figure = plot.figure();
        assert!(figure.contains("points=\"66.0,120.0 546.0,230.0\""), "{figure}");
        assert!(figure.contains("x1=\"66.0\" x2=\"66.0\" y1=\"230.0\" y2=\"10.0\"/>"), "{figure}");
        assert!(figure.contains("<title>&lt;c&gt;: 5</title>") && !figure.contains("NaN"), "{figure}");
    }

    #[test]
    fn bars_are_as_long_as_their_numbers_and_who_has_none_has_a_dash() {
        let mut ranking = Ranking::new("a & b", plain);
        assert_eq!(ranking.figure(), "");
        ranking.bar("whole", "old", Some([4.0, 3.0, 4.0]));
        ranking.bar("half", "encke", Some([2.0, 2.0, 2.0]));
        ranking.bar("<none>", "peer", None);
        let figure = ranking.figure();
        let drawn = [
            "width=\"190.0\"",
            "width=\"95.0\"",
            "bar encke",
            "&lt;none&gt;</text><text x=\"180\" y=\"56.0\">–",
        ];
        for mark in drawn.into_iter().chain(["a &amp; b</figcaption>"]) {
            assert!(figure.contains(mark), "{mark} in {figure}");
        }
        assert_eq!(figure.matches('<').count(), figure.matches('>').count());
    }

    #[test]
    fn marks_lie_where_their_numbers_are() {
        let (x, y) =
            (Axis::between(Scale::Linear, 0.0, 10.0, plain), Axis::between(Scale::Linear, 0.0, 1.0, plain));
        let mut plot = Plot::new("p", x, y);
        plot.curve("c", [(0.0, 0.0), (10.0, 1.0)]);
        plot.bars("b", [(0.0, 5.0, 1.0)]);
        plot.cells("h", [([5.0, 10.0], [0.0, 0.5], 2.0)]);
        let figure = plot.figure();
        assert!(figure.contains("points=\"66.0,230.0 546.0,10.0\""), "{figure}");
        assert!(figure.contains("x=\"66.0\" y=\"10.0\" width=\"239.6\" height=\"220.0\""), "{figure}");
        assert!(
            figure.contains("x=\"306.0\" y=\"120.0\" width=\"240.0\" height=\"110.0\" opacity=\"1.00\""),
            "{figure}"
        );
        assert!(figure.contains("key c2\">h</span>"), "{figure}");
    }
}
