//! A run as an HTML page: key figures, plots, findings, and tables of all numbers. Parts shared with pages of subscribers
//! ([`crate::push`]) follow after the page of requests.

use std::fmt::Write as _;

use encke_stats::Distribution;
use encke_stats::page::{escaped, page, table};
use encke_stats::plot::{Axis, Plot, Scale};

use super::saved::{Percentiles, Saved, SavedDistribution, SavedError, SavedVerdict};
use super::summary::told;
use super::{PERCENTILES, blob};
use crate::environment::Environment;
use crate::explain::{self, Explained, FigureTrust};
use crate::series::Stretch;
use crate::words;

/// Maximum points along the time axis: a plot is about 500 points wide, and a longer table is not read.
const COLUMNS: usize = 240;
/// Rows of a heat map per factor of ten.
const CELLS_PER_DECADE: f64 = 12.0;

impl Saved {
    /// A self-contained HTML file.
    pub fn page(&self) -> String {
        let mut body = String::new();
        self.put_head(&mut body);
        let columns = columns(&self.seconds);
        let _infallible = writeln!(body, "<h2>Latency</h2>\n<div class=\"plots\">");
        body += &self.spectrum();
        body += &self.histogram();
        if columns.len() > 1 {
            body += &latency_over_time(&columns);
            body += &heat(&columns);
            body += "</div>\n<h2>Over time</h2>\n<div class=\"plots\">\n";
            body += &rate_over_time(&columns);
            body += &errors_over_time(&columns);
        }
        body += &self.connects(&columns);
        body += "</div>\n";
        put_findings(&mut body, &explain::of(self));
        self.put_tables(&mut body, &columns);
        page("en", &format!("Load: {}", self.urls.join(" ")), &body)
    }

    /// Title, origin, key figures and verdict.
    fn put_head(&self, body: &mut String) {
        put_title(body, &self.urls.join(" "), &self.plan.text);
        put_origin(body, &self.began, &self.version, &self.environment, &self.command);
        let waited = self.waited();
        let quantile = |share| told(waited.and_then(|waited| waited.quantile_ns(share)));
        let busiest = self.threads.iter().map(|thread| thread.busy).fold(0.0, f64::max);
        let errors = self.error_share().map_or_else(|| "–".to_owned(), words::percent);
        let figures = [
            ("answers a second", words::number(self.rate_per_s)),
            ("p50", quantile(0.5)),
            ("p99", quantile(0.99)),
            ("p99.9", quantile(0.999)),
            ("longest", told(waited.map(Distribution::max_ns))),
            ("errors", errors),
            ("answers", words::count(self.requests.finished)),
            ("the generator's busiest thread", words::percent(busiest)),
        ];
        put_figures(body, &figures);
        put_verdict(body, &self.verdict);
    }

    /// The measured distributions and their names.
    fn measured(&self) -> Vec<(&'static str, &Distribution)> {
        let latency = &self.latency;
        let named = [
            ("response time", &latency.response),
            ("service time", &latency.service),
            ("first byte", &latency.first_byte),
            ("lag", &latency.lag),
        ];
        named.into_iter().filter_map(|(name, held)| Some((name, &held.as_ref()?.0))).collect()
    }

    /// Latency by percentile.
    fn spectrum(&self) -> String {
        let estimate = self.latency.open_loop_estimate.as_ref().map(estimated).unwrap_or_default();
        spectrum("Latency by percentile: this share took no longer", &self.measured(), estimate)
    }

    /// Histogram of latencies.
    fn histogram(&self) -> String {
        let Some(waited) = self.waited() else { return String::new() };
        let mut bars: Vec<(f64, f64, f64)> = Vec::new();
        for (first, last, count) in waited.buckets() {
            let bin = cell(first.midpoint(last));
            match bars.last_mut() {
                Some(bar) if bar.0 == edge(bin) => bar.2 += count as f64,
                _ => bars.push((edge(bin), edge(bin + 1), count as f64)),
            }
        }
        let ends = bars.iter().flat_map(|(from, to, _)| [*from, *to]);
        let x = Axis::over(Scale::Log, ends, time);
        let y = Axis::over(Scale::Linear, bars.iter().map(|bar| bar.2), number);
        let mut plot = Plot::new("How many took how long", x, y);
        plot.bars("answers", bars);
        plot.figure()
    }

    /// Connect times, and when the connections were made.
    fn connects(&self, columns: &[Stretch]) -> String {
        let mut figures = String::new();
        if let Some(SavedDistribution(connect)) = &self.latency.connect {
            let all = connect.count() as f64;
            let mut below = 0.0;
            let points: Vec<(f64, f64)> = connect
                .buckets()
                .map(|(_, last, count)| {
                    below += count as f64;
                    (last.min(connect.max_ns()).max(1) as f64, below / all)
                })
                .collect();
            let x = Axis::over(Scale::Log, points.iter().map(|point| point.0), time);
            let y = Axis::between(Scale::Linear, 0.0, 1.0, share);
            let mut plot =
                Plot::new("Connecting: the share of connections that were made within a time", x, y);
            plot.curve("connect", points);
            figures += &plot.figure();
        }
        if columns.iter().filter(|column| column.connected > 0).count() > 1 {
            let mut sum = 0;
            let points: Vec<(f64, f64)> = columns
                .iter()
                .map(|column| {
                    sum += column.connected;
                    (column.at_s, sum as f64)
                })
                .collect();
            let y = Axis::over(Scale::Linear, points.iter().map(|point| point.1), number);
            let mut plot = Plot::new("Connections made since the beginning", time_axis(columns), y);
            plot.curve("connections", points);
            figures += &plot.figure();
        }
        figures
    }

    fn put_tables(&self, body: &mut String, columns: &[Stretch]) {
        body.push_str("<h2>Numbers</h2>\n");
        let mut rows: Vec<Vec<String>> = Vec::new();
        let connect = self.latency.connect.iter().map(|SavedDistribution(held)| ("connect", held));
        for (name, held) in self.measured().into_iter().chain(connect) {
            rows.push(quantile_row(name, held));
        }
        if let Some(estimate) = &self.latency.open_loop_estimate {
            let values = estimate.values().map(told);
            rows.push(
                std::iter::once("an open-loop user, at most (estimate)".to_owned()).chain(values).collect(),
            );
        }
        *body += &table(&quantile_names(), rows);

        let requests = &self.requests;
        let counts = [
            ("begun", requests.begun),
            ("finished", requests.finished),
            ("of those wrong", requests.wrong),
            ("failed", requests.failed),
            ("without a response at the end", requests.aborted),
            ("due and not sent", requests.unsent),
            ("warm-up", requests.warm_up),
            ("bytes received", self.bytes.received),
            ("bytes of bodies", self.bytes.bodies),
            ("bytes sent", self.bytes.sent),
            ("connections made", self.connections.made),
            ("connections that could not be made", self.connections.failed),
        ];
        let classes = self.statuses.iter().map(|(class, count)| (class.as_str(), *count));
        let counts = counts.into_iter().chain(classes.filter(|(_, count)| *count > 0));
        *body +=
            &table(&["", "count"], counts.map(|(name, count)| vec![name.to_owned(), words::count(count)]));
        put_errors(body, &self.errors);
        if !columns.is_empty() {
            body.push_str("<details><summary>Over time</summary>\n");
            let rows = columns.iter().map(|column| {
                vec![
                    format!("{:.1} s", column.at_s),
                    words::number(column.finished as f64 / column.seconds),
                    told(column.p50_ns),
                    told(column.p99_ns),
                    told(Some(column.max_ns)),
                    words::count(column.failed),
                    words::count(column.wrong),
                    words::count(column.connected),
                ]
            });
            *body +=
                &table(&["until", "a second", "p50", "p99", "max", "failed", "wrong", "connected"], rows);
            body.push_str("</details>\n");
        }
        if !self.parts.is_empty() {
            let rows = self.parts.iter().map(|part| {
                vec![
                    part.command.clone(),
                    part.began.clone(),
                    words::number(part.rate_per_s),
                    words::count(part.requests.finished),
                    part.environment.line(),
                ]
            });
            *body += &table(&["joined from", "began", "a second", "finished", "machine"], rows);
        }
        let histogram = self.waited().map(|waited| {
            blob::text(&waited.buckets().map(|(_, last, count)| (last, count)).collect::<Vec<_>>())
        });
        if let Some(histogram) = histogram {
            let _infallible = writeln!(
                body,
                "<details><summary>All latencies, for HdrHistogram's tools (V2, deflated, base64; ns)</summary>\n\
                 <p><code>{histogram}</code></p></details>"
            );
        }
    }
}

/// Joins seconds into at most [`COLUMNS`] columns.
fn columns(seconds: &[Stretch]) -> Vec<Stretch> {
    let each = seconds.len().div_ceil(COLUMNS).max(1);
    let joined = seconds.chunks(each).map(|chunk| {
        let mut latency = Distribution::new();
        let mut sum = Stretch::default();
        for second in chunk {
            sum.at_s = second.at_s;
            sum.seconds += second.seconds;
            sum.finished += second.finished;
            sum.wrong += second.wrong;
            sum.failed += second.failed;
            sum.connected += second.connected;
            sum.received_bytes += second.received_bytes;
            sum.max_ns = sum.max_ns.max(second.max_ns);
            second.latency.iter().for_each(|&(ns, count)| latency.record_many(ns, count));
        }
        Stretch {
            p50_ns: latency.quantile_ns(0.5),
            p99_ns: latency.quantile_ns(0.99),
            latency: latency.buckets().map(|(_, last, count)| (last, count)).collect(),
            ..sum
        }
    });
    // A column shorter than a tenth of the longest is too noisy to plot.
    let joined: Vec<Stretch> = joined.collect();
    let longest = joined.iter().map(|column| column.seconds).fold(0.0, f64::max);
    joined.into_iter().filter(|column| column.seconds > 0.1 * longest).collect()
}

/// Durations by percentile, with the estimate for an open-loop user.
pub(crate) fn spectrum(
    caption: &str,
    measured: &[(&str, &Distribution)],
    estimate: Vec<(f64, f64)>,
) -> String {
    let count = measured.iter().map(|(_, held)| held.count()).max().unwrap_or(0);
    let most = 1.0 - 1.0 / (count.max(10) as f64);
    let points = |held: &Distribution| -> Vec<(f64, f64)> {
        let (all, mut below) = (held.count() as f64, 0.0);
        held.buckets()
            .map(|(_, last, count)| {
                below += count as f64;
                // The last value would have infinitely many nines.
                ((below / all).min(1.0 - 0.5 / all), last.min(held.max_ns()).max(1) as f64)
            })
            .collect()
    };
    let curves: Vec<_> = measured.iter().map(|(name, held)| (*name, points(held))).collect();
    // A lag below a microsecond is negligible, and would dominate a logarithmic axis.
    let values = curves.iter().flat_map(|(_, points)| points.iter().map(|(_, ns)| ns.max(1_000.0)));
    let values = values.chain(estimate.iter().map(|(_, ns)| *ns));
    let (x, y) = (Axis::over(Scale::Nines, [most], percentile), Axis::over(Scale::Log, values, time));
    let mut plot = Plot::new(caption, x, y);
    for (name, points) in curves {
        plot.curve(name, points);
    }
    if !estimate.is_empty() {
        plot.broken_curve("an open-loop user, at most (estimate)", estimate);
    }
    plot.figure()
}

/// Appends the title: URLs and plan.
pub(crate) fn put_title(body: &mut String, urls: &str, how: &str) {
    let _infallible = writeln!(body, "<h1>{}</h1>\n<p>{}</p>", escaped(urls), escaped(how));
}

/// Appends the origin: begin, program version, machine and command.
pub(crate) fn put_origin(
    body: &mut String,
    began: &str,
    version: &str,
    environment: &Environment,
    command: &str,
) {
    let _infallible = writeln!(
        body,
        "<p class=\"quiet\">{} · Encke {} · {}<br><code>{}</code></p>",
        escaped(began),
        escaped(version),
        escaped(&environment.line()),
        escaped(command)
    );
}

/// Appends key figures, given as name and value.
pub(crate) fn put_figures(body: &mut String, figures: &[(&str, String)]) {
    body.push_str("<div class=\"figures\">\n");
    for (name, figure) in figures {
        let _infallible = writeln!(body, "<div><b>{}</b>{name}</div>", escaped(figure));
    }
    body.push_str("</div>\n");
}

/// Appends a table of errors, if there are any.
pub(crate) fn put_errors(body: &mut String, errors: &[SavedError]) {
    if errors.is_empty() {
        return;
    }
    let rows = errors.iter().map(|error| {
        vec![
            format!("{}: {}", error.phase, error.cause),
            words::count(error.count),
            words::time(error.first_ns),
            error.sample.escape_debug().collect(),
        ]
    });
    *body += &table(&["failure", "count", "first at", "what had come of the first"], rows);
}

/// Appends the findings as a list.
pub(crate) fn put_findings(body: &mut String, explained: &Explained) {
    body.push_str("<h2>What not to trust</h2>\n<ul>\n");
    for finding in explained.findings() {
        let class = if finding.trust == FigureTrust::Not { " class=\"warning\"" } else { "" };
        let _infallible =
            writeln!(body, "<li{class}><b>{}</b>: {}</li>", escaped(finding.about), escaped(&finding.text));
    }
    body.push_str("</ul>\n");
}

/// Appends a verdict and its remarks.
pub(crate) fn put_verdict(body: &mut String, verdict: &SavedVerdict) {
    let class = if verdict.is_verdict { "" } else { " class=\"warning\"" };
    let _infallible = writeln!(body, "<p{class}>{}</p>", escaped(&verdict.text));
    for remark in &verdict.remarks {
        let _infallible = writeln!(body, "<p class=\"warning\">{}</p>", escaped(remark));
    }
}

/// The header of a table of durations.
pub(crate) fn quantile_names() -> Vec<&'static str> {
    let names = PERCENTILES.iter().map(|(name, _)| *name);
    std::iter::once("").chain(names).chain(["max", "mean", "count"]).collect()
}

/// A row of a table of durations.
pub(crate) fn quantile_row(name: &str, held: &Distribution) -> Vec<String> {
    let quantiles = PERCENTILES.iter().map(|(_, share)| told(held.quantile_ns(*share)));
    let ends =
        [told(Some(held.max_ns())), told(held.mean_ns().map(|ns| ns as u64)), words::count(held.count())];
    std::iter::once(name.to_owned()).chain(quantiles).chain(ends).collect()
}

fn time_axis(columns: &[Stretch]) -> Axis {
    Axis::between(Scale::Linear, 0.0, columns.last().map_or(1.0, |column| column.at_s), seconds)
}

fn latency_over_time(columns: &[Stretch]) -> String {
    let of = |value: fn(&Stretch) -> Option<u64>| -> Vec<(f64, f64)> {
        let points = columns.iter().filter_map(|column| Some((middle(column), value(column)?.max(1) as f64)));
        points.collect()
    };
    let curves = [
        ("p50", of(|column| column.p50_ns)),
        ("p99", of(|column| column.p99_ns)),
        ("longest", of(|column| column.p50_ns.map(|_| column.max_ns))),
    ];
    durations_over_time("Latency over time", time_axis(columns), curves)
}

/// A plot of three curves of durations.
pub(crate) fn durations_over_time(
    caption: &str,
    x: Axis,
    curves: [(&'static str, Vec<(f64, f64)>); 3],
) -> String {
    // Values below a microsecond (with one receiver, the first receipt is the last) would dominate the logarithmic axis.
    let values = curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.1.max(1_000.0)));
    let y = Axis::over(Scale::Log, values, time);
    let mut plot = Plot::new(caption, x, y);
    for (name, points) in curves {
        plot.curve(name, points);
    }
    plot.figure()
}

/// Darkness of a heat map cell: the root of its share, so that one slow response of a thousand is visible.
pub(crate) fn shade(count: u64, most: u64) -> f64 {
    0.08 + 0.92 * (count as f64 / most.max(1) as f64).sqrt()
}

/// A heat map of latency over time: darker cells have a larger share of that column's responses.
fn heat(columns: &[Stretch]) -> String {
    let mut cells = Vec::new();
    for column in columns {
        let mut held: Vec<(i32, u64)> = Vec::new();
        for &(ns, count) in &column.latency {
            match held.last_mut() {
                Some((bin, sum)) if *bin == cell(ns) => *sum += count,
                _ => held.push((cell(ns), count)),
            }
        }
        let most = held.iter().map(|(_, count)| *count).max().unwrap_or(1);
        for (bin, count) in held {
            let times = [column.at_s - column.seconds, column.at_s];
            cells.push((times, [edge(bin), edge(bin + 1)], shade(count, most)));
        }
    }
    let y = Axis::over(Scale::Log, cells.iter().flat_map(|(_, ends, _)| *ends), time);
    let mut plot = Plot::new("How many took how long, over time", time_axis(columns), y);
    plot.cells("answers", cells);
    plot.figure()
}

fn rate_over_time(columns: &[Stretch]) -> String {
    let points: Vec<(f64, f64)> =
        columns.iter().map(|column| (middle(column), column.finished as f64 / column.seconds)).collect();
    let y = Axis::over(Scale::Linear, points.iter().map(|point| point.1), number);
    let mut plot = Plot::new("Answers a second", time_axis(columns), y);
    plot.curve("answers", points);
    plot.figure()
}

/// Failures and wrong responses per second; empty if there are none.
fn errors_over_time(columns: &[Stretch]) -> String {
    let bars = |count: fn(&Stretch) -> u64| -> Vec<(f64, f64, f64)> {
        let held = columns.iter().filter(|column| count(column) > 0);
        held.map(|column| (column.at_s - column.seconds, column.at_s, count(column) as f64 / column.seconds))
            .collect()
    };
    let (wrong, failed) = (bars(|column| column.wrong + column.failed), bars(|column| column.failed));
    if wrong.is_empty() {
        return String::new();
    }
    let y = Axis::over(Scale::Linear, wrong.iter().map(|bar| bar.2), number);
    let mut plot = Plot::new("Errors a second", time_axis(columns), y);
    plot.bars("wrong answers", wrong);
    plot.bars("failed", failed);
    plot.figure()
}

fn estimated(estimate: &Percentiles) -> Vec<(f64, f64)> {
    let values = PERCENTILES.iter().zip(estimate.values());
    values.filter_map(|((_, share), ns)| Some((*share, ns?.max(1) as f64))).collect()
}

fn middle(column: &Stretch) -> f64 {
    column.at_s - column.seconds / 2.0
}

/// The heat map row of a value.
fn cell(ns: u64) -> i32 {
    (ns.max(1) as f64).log10().mul_add(CELLS_PER_DECADE, 1e-9).floor() as i32
}

/// The lower bound of a row.
fn edge(cell: i32) -> f64 {
    10_f64.powf(f64::from(cell) / CELLS_PER_DECADE)
}

pub(crate) fn time(ns: f64) -> String {
    let text = words::time(ns.round() as u64);
    // Axis labels are round numbers: 1 ms, not 1.00 ms.
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {unit}")
}

pub(crate) fn number(value: f64) -> String {
    if value >= 10.0 || value == 0.0 { words::count(value.round() as u64) } else { words::rate(value) }
}

pub(crate) fn seconds(value: f64) -> String {
    // Three times 0.1 is slightly more than 0.3.
    format!("{} s", (value * 1e6).round() / 1e6)
}

fn share(value: f64) -> String {
    format!("{:.0} %", value * 100.0)
}

fn percentile(value: f64) -> String {
    let percent = format!("{:.7}", value * 100.0);
    format!("{} %", percent.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::report::example;

    /// A run of this many seconds with occasional errors.
    fn run(seconds: u32) -> Saved {
        let mut random = Random::new(7, 0);
        let mut saved = example().saved();
        let mut all = Distribution::new();
        saved.seconds = (1..=seconds)
            .map(|at| {
                let mut latency = Distribution::new();
                (0..50).for_each(|_| latency.record(100_000 + (random.interval() * 300_000.0) as u64));
                all.merge(&latency);
                Stretch {
                    at_s: at.into(),
                    seconds: 1.0,
                    finished: 50,
                    failed: random.below(2),
                    connected: 1,
                    p50_ns: latency.quantile_ns(0.5),
                    p99_ns: latency.quantile_ns(0.99),
                    max_ns: latency.max_ns(),
                    latency: latency.buckets().map(|(_, last, count)| (last, count)).collect(),
                    ..Stretch::default()
                }
            })
            .collect();
        saved.latency.connect = Some(SavedDistribution(all.clone()));
        saved.latency.service = Some(SavedDistribution(all));
        saved
    }

    #[test]
    fn a_page_has_its_plots_and_tables_and_needs_nothing_else() {
        let mut saved = run(30);
        saved.urls = vec!["http://h/?<script>".into()];
        let (phase, cause, sample) = ("answer".into(), "<ended>".into(), "HTTP/1.1 2\r\n<b>".into());
        saved.errors = vec![SavedError { phase, cause, count: 3, first_ns: 5, sample, ours: false }];
        let page = saved.page();
        for said in [
            "Latency by percentile",
            "How many took how long</figcaption>",
            "Latency over time",
            "Answers a second</figcaption>",
            "Errors a second",
            "Connecting",
            "Connections made since",
            "What not to trust",
            "HISTFAAA",
        ] {
            assert!(page.contains(said), "no `{said}`");
        }
        assert_eq!(page.matches("<figure>").count(), 8);
        assert_eq!(page.matches('<').count(), page.matches('>').count(), "what is text is escaped");
        let own = page.replace("http://www.w3.org/2000/svg", "").replace("http://h/", "");
        for from_elsewhere in ["http:", "https:", "<script", "<link", "@import", "url(", "NaN", "inf,"] {
            assert!(!own.contains(from_elsewhere), "{from_elsewhere}");
        }
    }

    #[test]
    fn a_long_run_is_drawn_in_as_many_columns_as_can_be_seen() {
        let page = run(2_000).page();
        assert!(page.len() < 600_000, "{} bytes", page.len());
        let joined = columns(&run(2_000).seconds);
        assert!(joined.len() <= COLUMNS);
        assert_eq!(joined.iter().map(|column| column.finished).sum::<u64>(), 100_000);
    }

    #[test]
    fn a_run_without_an_answer_has_a_page_all_the_same() {
        let mut saved = run(0);
        saved.latency = crate::report::saved::Latencies::default();
        (saved.requests, saved.rate_per_s) = (crate::report::saved::SavedRequests::default(), 0.0);
        let page = saved.page();
        assert!(page.contains("No request got a response") && !page.contains("NaN"));
    }

    #[test]
    fn axes_tell_round_numbers() {
        assert_eq!([time(1e6), time(2e5), time(1.5e3)], ["1 ms", "200 µs", "1.5 µs"]);
        assert_eq!([percentile(0.0), percentile(0.5), percentile(0.999)], ["0 %", "50 %", "99.9 %"]);
        assert_eq!([seconds(0.1 + 0.2), seconds(2.0)], ["0.3 s", "2 s"]);
        assert_eq!([number(0.0), number(0.5), number(20_000.0)], ["0", "0.5", "20,000"]);
    }
}
