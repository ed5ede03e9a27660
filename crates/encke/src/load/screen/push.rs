//! The live screen of a push run: subscribers, deliveries, latencies to the first and last receiver, CPU of server and
//! generator.
//!
//! ```text
//!   tallies ── 2 samples a second ──► Screen::show ─► one more Second in the series ─► a frame
//! ```
//! First and last receivers are determined per thread of the generator; the report combines all threads.

use std::io;

use encke_io::host;
use encke_load::push::{PushRunPlan, PushTotals};
use encke_load::{Stop, words};
use encke_stats::Distribution;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use super::{Canvas, ViewAction, draw_curves, draw_foot, draw_histogram, draw_progress, draw_rate, log};

/// The screen of a push run.
pub(in crate::load) struct PushScreen {
    canvas: Canvas,
    text: String,
    url: String,
    plan: PushRunPlan,
    first_ns: Option<u64>,
    /// The time of the last frame, the CPU time in seconds of the generator, and that of the server in nanoseconds, until then.
    before: Option<(u64, f64, Option<u64>)>,
    busy: f64,
    server: Option<ServerUsage>,
    /// The time of the last entry in `seconds`, and the totals at that time.
    second: Option<(u64, PushTotals)>,
    seconds: Vec<Second>,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    at_s: f64,
    received_per_s: f64,
    published_per_s: f64,
    /// The median time to the first and to the last receiver, and p99 of all receipts.
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    receipt_ns: Option<u64>,
}

/// Resource usage of a watched server.
#[derive(Clone, Copy, Debug)]
struct ServerUsage {
    /// As a share of one core.
    busy: f64,
    resident_bytes: u64,
}

/// The content of a frame.
struct PushScreenView<'a> {
    text: &'a str,
    url: &'a str,
    elapsed_s: f64,
    done: Option<f64>,
    subscribers: u32,
    totals: &'a PushTotals,
    seconds: &'a [Second],
    busy: f64,
    server: Option<ServerUsage>,
    ending: bool,
}

const SECOND_NS: u64 = 1_000_000_000;
/// Seconds that are kept: more than the columns of any terminal.
const SECONDS_MAX: usize = 1_000;

impl PushScreen {
    /// Takes the terminal.
    ///
    ///  # Errors
    /// The terminal is not available.
    pub(in crate::load) fn open(plan: &PushRunPlan, text: String, url: String) -> io::Result<Self> {
        Ok(Self {
            canvas: Canvas::take()?,
            text,
            url,
            plan: plan.clone(),
            first_ns: None,
            before: None,
            busy: 0.0,
            server: None,
            second: None,
            seconds: Vec::new(),
        })
    }

    /// Draws a frame, and returns the user's request.
    pub(in crate::load) fn show(&mut self, now_ns: u64, totals: &PushTotals) -> ViewAction {
        let first_ns = *self.first_ns.get_or_insert(now_ns);
        let elapsed_s = (now_ns - first_ns) as f64 / 1e9;
        self.look_at_processes(now_ns);
        self.add(now_ns, elapsed_s, totals);
        let done = match self.plan.stop {
            Stop::Count(count) => Some(totals.published as f64 / count.max(1) as f64),
            Stop::After(time) => Some(elapsed_s / time.as_secs_f64().max(1e-9)),
            Stop::Told => None,
        };
        let view = PushScreenView {
            text: &self.text,
            url: &self.url,
            elapsed_s,
            done: done.filter(|_| self.plan.cycles.is_none()),
            subscribers: self.plan.subscribers,
            totals,
            seconds: &self.seconds,
            busy: self.busy,
            server: self.server,
            ending: self.canvas.ending,
        };
        self.canvas.show(|frame| draw(frame, &view))
    }

    fn look_at_processes(&mut self, now_ns: u64) {
        let usage = self.plan.watch.and_then(host::process_usage);
        let cpu_s = host::cpu_seconds();
        let before = self.before.replace((now_ns, cpu_s, usage.as_ref().map(|usage| usage.cpu_ns)));
        let Some((then_ns, cpu_before_s, server_before)) = before.filter(|before| before.0 < now_ns) else {
            return;
        };
        let seconds = (now_ns - then_ns) as f64 / 1e9;
        self.busy = (cpu_s - cpu_before_s) / seconds;
        self.server = usage.zip(server_before).map(|(usage, before_ns)| ServerUsage {
            busy: usage.cpu_ns.saturating_sub(before_ns) as f64 / 1e9 / seconds,
            resident_bytes: usage.resident_bytes,
        });
    }

    /// Adds an entry to `seconds` if a second has passed.
    fn add(&mut self, now_ns: u64, at_s: f64, totals: &PushTotals) {
        let Some((then_ns, before)) = &self.second else {
            self.second = Some((now_ns, totals.clone()));
            return;
        };
        if now_ns < then_ns + SECOND_NS {
            return;
        }
        let seconds = (now_ns - then_ns) as f64 / 1e9;
        let since = |now: &Distribution, then: &Distribution, share: f64| now.since(then).quantile_ns(share);
        let second = Second {
            at_s,
            received_per_s: (totals.received - before.received) as f64 / seconds,
            published_per_s: (totals.published - before.published) as f64 / seconds,
            first_ns: since(&totals.first, &before.first, 0.5),
            last_ns: since(&totals.last, &before.last, 0.5),
            receipt_ns: since(&totals.latency, &before.latency, 0.99),
        };
        if self.seconds.len() == SECONDS_MAX {
            self.seconds.remove(0);
        }
        self.seconds.push(second);
        self.second = Some((now_ns, totals.clone()));
    }
}

/// Draws a frame.
fn draw(frame: &mut Frame<'_>, view: &PushScreenView<'_>) {
    let [head, progress, counts, over_time, shares, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Length(5),
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let title = vec![Line::styled(view.url, bold), Line::raw(view.text)];
    frame.render_widget(Paragraph::new(title), head);
    draw_progress(frame, progress, view.elapsed_s, view.done);
    frame.render_widget(Paragraph::new(counted(view)), counts);
    let [rate, times] = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(over_time);
    draw_rate(frame, rate, "receipts per second", view.seconds.iter().map(|second| second.received_per_s));
    draw_times(frame, times, view.seconds);
    let [percentiles, histogram] =
        Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(shares);
    draw_percentiles(frame, percentiles, view.totals);
    draw_histogram(frame, histogram, &view.totals.latency);
    draw_foot(frame, foot, view.ending);
}

/// Formats the counts in five lines. Errors are red.
fn counted<'a>(view: &PushScreenView<'_>) -> Vec<Line<'a>> {
    let totals = view.totals;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let alarm = |count: u64, what: &str| {
        let style = if count > 0 { Style::new().fg(Color::Red) } else { Style::new() };
        Span::styled(format!("{} {what}", words::count(count)), style)
    };
    let now = view.seconds.last().copied().unwrap_or_default();
    // Connected subscribers: accepted, minus left and closed.
    let there = totals.answered.saturating_sub(totals.left + totals.closed);
    let late = totals.lag.quantile_ns(0.99).map_or_else(|| "–".to_owned(), words::time);
    let server = view.server.map_or_else(
        || "not watched (--watch PID)".to_owned(),
        |server| {
            let (busy, memory) = (words::percent(server.busy), words::bytes(server.resident_bytes));
            format!("{busy} of a core, {memory}")
        },
    );
    vec![
        Line::from(vec![
            Span::raw("subscribers  "),
            Span::styled(
                format!("{} of {} connected", words::count(there), words::count(view.subscribers.into())),
                bold,
            ),
            Span::raw(format!(", {} reconnected, ", words::count(totals.left))),
            alarm(totals.closed, "closed by the server"),
            Span::raw(", "),
            alarm(totals.unconnected, "attempts failed"),
        ]),
        Line::from(vec![
            Span::raw("messages     "),
            Span::styled(format!("{} per second", words::number(now.published_per_s)), bold),
            Span::raw(format!(", {} in total, ", words::count(totals.published))),
            alarm(totals.refused, "rejected"),
            Span::raw(format!("; sent late by {late} (p99)")),
        ]),
        Line::from(vec![
            Span::raw("receipts     "),
            Span::styled(format!("{} per second", words::number(now.received_per_s)), bold),
            Span::raw(format!(", {} in total; ", words::count(totals.received))),
            alarm(totals.repeated, "repeated"),
            Span::raw(", "),
            alarm(totals.late, "out of order"),
            Span::raw(", "),
            alarm(totals.gaps, "gaps reported"),
        ]),
        Line::from(format!("server       {server}")),
        Line::from(format!("generator    {} of a core", words::percent(view.busy))),
    ]
}

/// Draws the latencies of the first, the last and each receiver over time.
fn draw_times(frame: &mut Frame<'_>, area: Rect, seconds: &[Second]) {
    let of = |value: fn(&Second) -> Option<u64>| -> Vec<(f64, f64)> {
        seconds.iter().filter_map(|second| Some((second.at_s, log(value(second)?)))).collect()
    };
    let curves = [
        ("first, p50", Color::Green, of(|second| second.first_ns)),
        ("last, p50", Color::Yellow, of(|second| second.last_ns)),
        ("each, p99", Color::Red, of(|second| second.receipt_ns)),
    ];
    draw_curves(frame, area, "from send to receive, by second", &curves);
}

fn draw_percentiles(frame: &mut Frame<'_>, area: Rect, totals: &PushTotals) {
    let columns = [("first", &totals.first), ("each", &totals.latency), ("last", &totals.last)];
    let told =
        |held: &Distribution, share: f64| held.quantile_ns(share).map_or_else(|| "–".to_owned(), words::time);
    let head = columns.map(|(name, _)| format!("{name:>10}")).concat();
    let mut lines = vec![Line::from(format!("{:<8}{head}", ""))];
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("longest", 1.0)] {
        let row = columns.map(|(_, held)| format!("{:>10}", told(held, share))).concat();
        lines.push(Line::from(format!("{name:<8}{row}")));
    }
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title("the run")), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn picture(width: u16, height: u16, view: &PushScreenView<'_>) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
        terminal.draw(|frame| draw(frame, view)).expect("it is drawn");
        terminal.backend().to_string()
    }

    fn totals() -> PushTotals {
        let mut totals = PushTotals {
            answered: 1_010,
            left: 8,
            closed: 2,
            published: 300,
            received: 299_990,
            ..PushTotals::default()
        };
        (0..300).for_each(|_| totals.first.record(1_000_000));
        (0..1_000).for_each(|_| totals.latency.record(5_000_000));
        totals
    }

    fn view<'a>(totals: &'a PushTotals, seconds: &'a [Second]) -> PushScreenView<'a> {
        PushScreenView {
            text: "1,000 subscribers of 1 channel by sse",
            url: "http://h/",
            elapsed_s: 30.0,
            done: Some(0.5),
            subscribers: 1_000,
            totals,
            seconds,
            busy: 0.25,
            server: Some(ServerUsage { busy: 0.5, resident_bytes: 12_000_000 }),
            ending: false,
        }
    }

    #[test]
    fn a_picture_has_subscribers_deliveries_times_and_both_sides() {
        let totals = totals();
        let second = |at: u32| Second {
            at_s: at.into(),
            received_per_s: 10_000.0,
            published_per_s: 10.0,
            first_ns: Some(1_000_000),
            last_ns: Some(9_000_000),
            receipt_ns: Some(8_000_000),
        };
        let seconds: Vec<Second> = (1..=30).map(second).collect();
        let text = picture(110, 32, &view(&totals, &seconds));
        for said in [
            "http://h/",
            "1,000 of 1,000 connected, 8 reconnected, 2 closed by the server",
            "10.0 per second, 300 in total",
            "10,000 per second, 299,990 in total",
            "50.0 % of a core, 12.0 MB",
            "25.0 % of a core",
            "receipts per second",
            "from send to receive",
            "longest",
            "q  end the run and report",
        ] {
            assert!(text.contains(said), "no `{said}`:\n{text}");
        }
    }

    #[test]
    fn it_is_drawn_on_any_terminal_and_before_anything_is_known() {
        let totals = PushTotals::default();
        for (width, height) in [(80, 24), (40, 10), (1, 1), (300, 90)] {
            let view = PushScreenView { done: None, server: None, ..view(&totals, &[]) };
            let text = picture(width, height, &view);
            assert!(width < 80 || text.contains("not watched"), "{text}");
        }
    }
}
