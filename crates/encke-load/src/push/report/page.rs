//! A push run as an HTML page: key figures, plots, findings, and tables of all numbers.

use encke_stats::page::{page, table};
use encke_stats::plot::{Axis, Plot, Scale};

use super::SavedPushRun;
use super::summary::reach;
use crate::push::Column;
use crate::push::course::row_of;
use crate::report::page::{
    durations_over_time, number, put_errors, put_figures, put_findings, put_origin, put_title, put_verdict,
    quantile_names, quantile_row, seconds, shade, spectrum, time,
};
use crate::report::saved::SavedDistribution;
use crate::report::summary::told;
use crate::words;

impl SavedPushRun {
    /// A self-contained HTML file.
    pub fn page(&self) -> String {
        let mut body = String::new();
        self.put_head(&mut body);
        body.push_str("<h2>How messages spread</h2>\n<div class=\"plots\">\n");
        body += &spectrum(
            "By percentile: this share took no longer",
            &self.measured().into_iter().filter(|(name, _)| SPREAD.contains(name)).collect::<Vec<_>>(),
            Vec::new(),
        );
        if !self.columns.is_empty() {
            body += &fan_out(&self.columns);
            body += &messages_over_time(&self.columns);
            body += &receipts_over_time(&self.columns);
        }
        body.push_str("</div>\n<h2>How subscribers connected</h2>\n<div class=\"plots\">\n");
        body += &course("Accepted subscribers, since the first connect", &self.subscribers.course);
        if let Some(storm) = &self.storm {
            body += &course("Reconnected subscribers, since all were cut", &storm.course);
        }
        let connecting = ["connect to answer", "back after"];
        body += &spectrum(
            "Connecting by percentile: this share took no longer",
            &self.measured().into_iter().filter(|(name, _)| connecting.contains(name)).collect::<Vec<_>>(),
            Vec::new(),
        );
        body.push_str("</div>\n");
        put_findings(&mut body, &self.explained());
        self.put_tables(&mut body);
        page("en", &format!("Push: {}", self.url), &body)
    }

    /// Title, origin, key figures and verdict.
    fn put_head(&self, body: &mut String) {
        put_title(body, &self.url, &self.plan.text);
        put_origin(body, &self.began, &self.version, &self.environment, &self.command);
        let quantile = |held: &Option<SavedDistribution>, share: f64| {
            told(held.as_ref().and_then(|SavedDistribution(held)| held.quantile_ns(share)))
        };
        let figures = [
            ("reach", reach(self.receipts.reach)),
            ("receipts a second", words::number(self.rate_per_s)),
            ("p50 of each receiver", quantile(&self.times.receipt, 0.5)),
            ("p99 of each receiver", quantile(&self.times.receipt, 0.99)),
            ("p50 of the first", quantile(&self.times.first, 0.5)),
            ("p50 of the last", quantile(&self.times.last, 0.5)),
            ("c, until all were accepted", words::time(self.subscribers.opening_ns)),
            ("subscribers", words::count(self.subscribers.answered)),
        ];
        put_figures(body, &figures);
        put_verdict(body, &self.verdict);
    }

    fn put_tables(&self, body: &mut String) {
        let Self { receipts, messages, subscribers, bytes, .. } = self;
        body.push_str("<h2>Accounts</h2>\n");
        let rows = [
            ("receipts that were due", receipts.expected),
            ("receipts", receipts.received),
            ("lost", receipts.lost),
            ("repeated", receipts.repeated),
            ("out of order", receipts.out_of_order),
            ("gaps reported by the server", receipts.gaps_told),
            ("of messages sent before their receiver joined", receipts.early),
            ("messages published", messages.published),
            ("rejected or without a response", messages.refused),
            ("that waited for a publisher", messages.queued),
            ("due and not sent", messages.unsent),
            ("subscribers accepted", subscribers.answered),
            ("held at the end", subscribers.held.into()),
            ("that read nothing", subscribers.slow.into()),
            ("closed by the server", subscribers.closed),
            ("rejected with a retry time", subscribers.turned_away),
            ("left and reconnected", subscribers.left),
            ("attempts to connect that failed", subscribers.unconnected),
            ("bytes received", bytes.received),
            ("bytes sent", bytes.sent),
        ];
        let counts = rows.map(|(name, count)| vec![name.to_owned(), words::count(count)]);
        let mut rows = vec![vec!["reach".to_owned(), reach(receipts.reach)]];
        rows.extend(counts);
        for (name, memory) in [
            ("memory of a subscriber here", self.memory),
            ("memory of a subscriber at the server", self.server.map(|server| server.memory)),
        ] {
            rows.extend(memory.map(|memory| vec![name.to_owned(), format!("{:.0} B", memory.each_bytes)]));
        }
        rows.extend(self.storm.as_ref().map(|storm| vec!["storm".to_owned(), storm.words()]));
        *body += &table(&["", "count"], rows);

        body.push_str("<h2>Numbers</h2>\n");
        let rows = self.measured().into_iter().map(|(name, held)| quantile_row(name, held));
        *body += &table(&quantile_names(), rows);
        put_errors(body, &self.errors);
        if !self.rounds.is_empty() {
            let rows = self.rounds.iter().map(|round| {
                let times = [round.connect_ns, round.first_ns, round.first_to_last_ns].map(words::time);
                let counts = [round.held, round.received].map(|count| words::count(count.into()));
                times.into_iter().chain(counts).collect()
            });
            *body += &table(&["c", "first", "r", "subscribers", "receipts"], rows);
        }
        if !self.columns.is_empty() {
            body.push_str("<details><summary>Over time</summary>\n");
            let rows = self.columns.iter().map(|column| {
                let receipts: u64 = column.receipts.iter().map(|(_, count)| count).sum();
                vec![
                    format!("{:.2} s", column.at_s),
                    words::count(column.messages),
                    told(column.first_ns),
                    told(column.first_to_last_ns),
                    told(column.last_ns),
                    words::count(receipts),
                ]
            });
            let head = ["sent from", "messages", "the first", "first to last", "the last", "receipts"];
            *body += &table(&head, rows);
            body.push_str("</details>\n");
        }
        if !self.parts.is_empty() {
            let rows = self.parts.iter().map(|part| {
                vec![
                    part.command.clone(),
                    part.began.clone(),
                    words::count(part.receipts.received),
                    reach(part.receipts.reach),
                    part.environment.line(),
                ]
            });
            *body += &table(&["joined from", "began", "receipts", "reach", "machine"], rows);
        }
    }
}

/// Durations measured from a publisher's send.
const SPREAD: [&str; 4] = ["each receiver", "the first", "first to last", "the last"];

/// Minimum messages per bar, and maximum bars.
const MESSAGES_EACH: u64 = 10;
const BARS_MAX: u64 = 60;

fn time_axis(columns: &[Column]) -> Axis {
    let end = columns.last().map_or(1.0, |column| column.at_s + column.seconds);
    Axis::between(Scale::Linear, 0.0, end, seconds)
}

/// The share of a message's receivers by time since its send: darker cells have more receipts.
fn fan_out(columns: &[Column]) -> String {
    let mut cells = Vec::new();
    for (place, column) in columns.iter().enumerate() {
        // Extends to the next column, so that rare messages are not drawn as thin lines, but not across long pauses.
        let next_s = columns.get(place + 1).map_or(f64::INFINITY, |next| next.at_s);
        let end_s = (column.at_s + column.seconds * 3.0).min(next_s);
        let end_s = if next_s.is_finite() { end_s } else { column.at_s + column.seconds };
        let all: u64 = column.receipts.iter().map(|(_, count)| count).sum();
        for &(ns, count) in &column.receipts {
            let [from, to] = row_of(ns).map(|end| end as f64);
            cells.push(([column.at_s, end_s], [from, to], shade(count, all)));
        }
    }
    let y = Axis::over(Scale::Log, cells.iter().flat_map(|(_, ends, _)| *ends), time);
    let mut plot = Plot::new(
        "Fan-out: receivers reached, by when a message was sent and how long after",
        time_axis(columns),
        y,
    );
    plot.cells("receivers", cells);
    plot.figure()
}

fn messages_over_time(columns: &[Column]) -> String {
    let of = |value: fn(&Column) -> Option<u64>| -> Vec<(f64, f64)> {
        let points = columns.iter().filter_map(|column| Some((middle(column), value(column)?.max(1) as f64)));
        points.collect()
    };
    let curves = [
        ("the first", of(|column| column.first_ns)),
        ("first to last", of(|column| column.first_to_last_ns)),
        ("the last", of(|column| column.last_ns)),
    ];
    let caption = "The first, first to last, and the last, by when a message was sent";
    durations_over_time(caption, time_axis(columns), curves)
}

fn receipts_over_time(columns: &[Column]) -> String {
    // A bar with few messages would only show how they happen to fall into bars.
    let messages: u64 = columns.iter().map(|column| column.messages).sum();
    let count = (messages / MESSAGES_EACH).clamp(1, BARS_MAX);
    let end_s = columns.last().map_or(1.0, |column| column.at_s + column.seconds);
    let each_s = end_s / count as f64;
    let mut bars: Vec<(f64, f64, f64)> =
        (0..count).map(|bar| (bar as f64 * each_s, (bar + 1) as f64 * each_s, 0.0)).collect();
    for column in columns {
        let receipts: u64 = column.receipts.iter().map(|(_, count)| count).sum();
        if let Some(bar) = bars.get_mut((middle(column) / each_s) as usize) {
            bar.2 += receipts as f64 / each_s;
        }
    }
    let y = Axis::over(Scale::Linear, bars.iter().map(|bar| bar.2), number);
    let mut plot = Plot::new("Receipts a second, by when their messages were sent", time_axis(columns), y);
    plot.bars("receipts", bars);
    plot.figure()
}

/// Subscribers over time.
fn course(caption: &str, points: &[(u64, u64)]) -> String {
    let points: Vec<(f64, f64)> = std::iter::once((0.0, 0.0))
        .chain(points.iter().map(|&(ns, count)| (ns as f64 / 1e9, count as f64)))
        .collect();
    let x = Axis::over(Scale::Linear, points.iter().map(|point| point.0), seconds);
    let y = Axis::over(Scale::Linear, points.iter().map(|point| point.1), number);
    let mut plot = Plot::new(caption, x, y);
    plot.curve("subscribers", points);
    plot.figure()
}

fn middle(column: &Column) -> f64 {
    column.at_s + column.seconds / 2.0
}
