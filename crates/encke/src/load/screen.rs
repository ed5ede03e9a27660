//! The live screen of a run: rate, latencies, histogram, errors, connections, the generator's own CPU.
//!
//! ```text
//!   tallies ── 2 samples a second ──► Screen::show ─► draw: one frame ─► Canvas: the terminal
//!   keys: q, ^C ────────────────────► Wish::End; once more: the process exits immediately
//!   terminal disappears ────────────► the run continues without frames and keys
//! ```
//! The canvas restores the terminal when it is dropped. Frames go to standard error, so that the report on standard output can
//! be redirected. A terminal disappears when its window or connection is closed: from then on reads return end of file, and
//! writes EIO.

pub(super) mod push;

use std::io::{self, BufWriter, IsTerminal as _, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use encke_io::host;
use encke_load::series::Stretch;
use encke_load::{Plan, Series, Stop, Totals, words};
use encke_stats::Distribution;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph, Sparkline};
use ratatui::{Frame, Terminal};

use super::progress::ViewAction;
use crate::error::INTERRUPTED;

/// Time between two frames. Curves change once a second. Drawing five frames a second took 1.2 % of a core, and counts that change
/// so fast are unreadable.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// Size of the output buffer: one frame of a large terminal, with colours. Unbuffered, standard error takes one system call per
/// cell and wakes the terminal emulator for each: 6 % of the cost of a run.
const PICTURE_BYTES: usize = 64 << 10;
/// Bins of the histogram per decade, and the decades shown: from 10 µs to 10 s.
const BINS_PER_DECADE: usize = 8;
const FIRST_DECADE: i32 = 4;
const DECADES: usize = 6;

/// The screen of a run of requests.
pub(super) struct Screen {
    canvas: Canvas,
    text: String,
    urls: String,
    stop: Stop,
    connections: u32,
    first_ns: Option<u64>,
    /// The time of the last frame, and the CPU time in seconds used until then.
    before: Option<(u64, f64)>,
    busy: f64,
}

/// The terminal, held for the lifetime of this value, and its keys.
struct Canvas {
    terminal: Terminal<CrosstermBackend<BufWriter<Ink>>>,
    /// Set once the terminal has disappeared.
    gone: Arc<AtomicBool>,
    /// Receives one message for each key that ends the run.
    ends: Receiver<()>,
    /// Such a key was pressed.
    ending: bool,
}

/// Writes to standard error until the terminal has disappeared, then drops all output. It never returns that as an error:
/// `Terminal` prints an error of its last write to standard error, which panics if that fails, too.
struct Ink {
    gone: Arc<AtomicBool>,
}

/// The content of a frame.
struct ScreenView<'a> {
    text: &'a str,
    urls: &'a str,
    /// Since the first sample.
    elapsed_s: f64,
    /// The completed share of the run, if the end is known.
    done: Option<f64>,
    connections: u32,
    totals: &'a Totals,
    stretches: &'a [Stretch],
    /// CPU time of the generator per elapsed time.
    busy: f64,
    ending: bool,
}

impl Screen {
    /// Takes the terminal.
    ///
    ///  # Errors
    /// The terminal is not available.
    pub(super) fn open(plan: &Plan, text: &str, urls: &[String]) -> io::Result<Self> {
        Ok(Self {
            canvas: Canvas::take()?,
            text: text.to_owned(),
            urls: urls.join(" "),
            stop: plan.stop,
            connections: plan.connections,
            first_ns: None,
            before: None,
            busy: 0.0,
        })
    }

    /// Draws a frame, and returns the user's request.
    pub(super) fn show(&mut self, now_ns: u64, totals: &Totals, series: &Series) -> ViewAction {
        let first_ns = *self.first_ns.get_or_insert(now_ns);
        let cpu = host::cpu_seconds();
        if let Some((then_ns, before)) = self.before.replace((now_ns, cpu)).filter(|(then, _)| *then < now_ns)
        {
            self.busy = (cpu - before) / ((now_ns - then_ns) as f64 / 1e9);
        }
        let elapsed_s = (now_ns - first_ns) as f64 / 1e9;
        let view = ScreenView {
            text: &self.text,
            urls: &self.urls,
            elapsed_s,
            done: match self.stop {
                Stop::Count(count) => Some((totals.finished + totals.failed) as f64 / count.max(1) as f64),
                Stop::After(time) => Some(elapsed_s / time.as_secs_f64().max(1e-9)),
                Stop::Told => None,
            },
            connections: self.connections,
            totals,
            stretches: series.stretches(),
            busy: self.busy,
            ending: self.canvas.ending,
        };
        self.canvas.show(|frame| draw(frame, &view))
    }
}

impl Canvas {
    /// Takes the terminal.
    ///
    ///  # Errors
    /// There is no terminal, or the thread that reads its keys cannot be started.
    fn take() -> io::Result<Self> {
        let gone = Arc::new(AtomicBool::new(false));
        let ink = BufWriter::with_capacity(PICTURE_BYTES, Ink { gone: Arc::clone(&gone) });
        let terminal = Terminal::new(CrosstermBackend::new(ink))?;
        enable_raw_mode()?;
        OURS.store(true, Ordering::Relaxed);
        let (typed, ends) = channel();
        // From here on, dropping the canvas restores the terminal.
        let mut canvas = Self { terminal, gone, ends, ending: false };
        // `enable_raw_mode` also needs one of the two.
        let keys: Box<dyn Read + Send> =
            if io::stdin().is_terminal() { Box::new(io::stdin()) } else { Box::new(host::open_terminal()?) };
        // Detached: the thread ends with the terminal or with the process.
        let _reader = thread::Builder::new().name("keys".into()).spawn(move || read_keys(keys, &typed))?;
        execute!(io::stderr(), EnterAlternateScreen)?;
        canvas.terminal.hide_cursor()?;
        Ok(canvas)
    }

    /// Draws a frame, and returns the request of the keys pressed since the last one. In raw mode ^C is a key, not a signal.
    fn show(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> ViewAction {
        if !self.gone.load(Ordering::Relaxed)
            && let Err(error) = self.terminal.draw(draw)
            && has_disappeared(&error)
        {
            self.gone.store(true, Ordering::Relaxed);
        }
        let mut wish = ViewAction::Nothing;
        for () in self.ends.try_iter() {
            if self.ending {
                give_back();
                host::exit_now(INTERRUPTED.into());
            }
            self.ending = true;
            wish = ViewAction::End;
        }
        wish
    }
}

/// Whether an error means that the terminal has disappeared. All errors except temporary ones do.
fn has_disappeared(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl Write for Ink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.gone.load(Ordering::Relaxed) {
            return Ok(bytes.len());
        }
        match io::stderr().write(bytes) {
            Err(error) if has_disappeared(&error) => {
                self.gone.store(true, Ordering::Relaxed);
                Ok(bytes.len())
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // Standard error is unbuffered.
        Ok(())
    }
}

/// Sends a message for each key that ends a run, until the terminal has disappeared. A thread of its own blocks in read(2):
/// crossterm's event source loops forever on a terminal at end of file.
fn read_keys(mut keys: impl Read, typed: &Sender<()>) {
    let mut bytes = [0; 64];
    loop {
        let read = match keys.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => return,
            Ok(read) => &bytes[..read],
        };
        for _key in 0..ends_in(read) {
            if typed.send(()).is_err() {
                return;
            }
        }
    }
}

/// Counts the keys of one read that end a run: q, ^C, Esc. The byte of Esc also begins the sequence of another key, such as an
/// arrow. It is the key itself only as the last byte of a read.
fn ends_in(read: &[u8]) -> usize {
    let (plain, escape) = match read.iter().position(|byte| *byte == ESC) {
        Some(at) => (&read[..at], &read[at..]),
        None => (read, &[][..]),
    };
    plain.iter().filter(|byte| matches!(**byte, b'q' | INTERRUPT)).count() + usize::from(escape.len() == 1)
}

const INTERRUPT: u8 = 0x03;
const ESC: u8 = 0x1b;

impl Drop for Canvas {
    fn drop(&mut self) {
        give_back();
    }
}

/// Whether a canvas holds the terminal.
static OURS: AtomicBool = AtomicBool::new(false);

/// Restores the terminal if a canvas holds it. Callable from any thread that ends the process.
pub(super) fn give_back() {
    if OURS.swap(false, Ordering::Relaxed) {
        let _gone = execute!(io::stderr(), Show, LeaveAlternateScreen);
        let _gone = disable_raw_mode();
    }
}

/// Draws a frame.
fn draw(frame: &mut Frame<'_>, view: &ScreenView<'_>) {
    let [head, progress, counts, over_time, shares, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Length(3),
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let title = vec![Line::styled(view.urls, bold), Line::raw(view.text)];
    frame.render_widget(Paragraph::new(title), head);
    draw_progress(frame, progress, view.elapsed_s, view.done);
    frame.render_widget(Paragraph::new(counted(view)), counts);
    let [rate, latency] = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(over_time);
    let rates = view.stretches.iter().map(|stretch| stretch.finished as f64 / stretch.seconds);
    draw_rate(frame, rate, "responses per second", rates);
    draw_latency(frame, latency, view);
    let [percentiles, histogram] =
        Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(shares);
    draw_percentiles(frame, percentiles, view);
    draw_histogram(frame, histogram, view.totals.latency());
    draw_foot(frame, foot, view.ending);
}

fn draw_foot(frame: &mut Frame<'_>, foot: Rect, ending: bool) {
    let said = if ending {
        "Finishing open requests. q or ^C again: exit immediately, without a report"
    } else {
        "q  end the run and report"
    };
    frame.render_widget(Paragraph::new(said).style(Style::new().fg(Color::DarkGray)), foot);
}

fn draw_progress(frame: &mut Frame<'_>, area: Rect, elapsed_s: f64, done: Option<f64>) {
    let elapsed = format!("{elapsed_s:.0} s");
    match done {
        None => frame.render_widget(Paragraph::new(elapsed), area),
        Some(done) => {
            let gauge = Gauge::default().ratio(done.clamp(0.0, 1.0)).label(elapsed).gauge_style(Color::Green);
            frame.render_widget(gauge, area);
        }
    }
}

/// Formats the counts in three lines. Errors are red.
fn counted<'a>(view: &ScreenView<'_>) -> Vec<Line<'a>> {
    let totals = view.totals;
    let alarm = |count: u64| if count > 0 { Style::new().fg(Color::Red) } else { Style::new() };
    let wanted = view.stretches.last();
    let rate = wanted.map_or(0.0, |stretch| stretch.finished as f64 / stretch.seconds);
    let mut statuses: Vec<String> = (1..10)
        .filter(|class| totals.statuses.class(*class) > 0)
        .map(|class| format!("{class}xx {}", words::count(totals.statuses.class(class))))
        .collect();
    if statuses.is_empty() {
        statuses.push("no response yet".into());
    }
    vec![
        Line::from(vec![
            Span::raw("responses    "),
            Span::styled(
                format!("{} per second", words::number(rate)),
                Style::new().add_modifier(Modifier::BOLD),
            ),
            Span::raw(format!(", {} in total; {}", words::count(totals.finished), statuses.join(", "))),
        ]),
        Line::from(vec![
            Span::raw("errors       "),
            Span::styled(format!("{} failed", words::count(totals.failed)), alarm(totals.failed)),
            Span::raw(", "),
            Span::styled(format!("{} wrong", words::count(totals.wrong)), alarm(totals.wrong)),
            Span::raw(format!("; {} queued for a connection", words::count(totals.queued))),
        ]),
        Line::from(vec![
            Span::raw("connections  "),
            Span::raw(format!("{} of {} established, ", words::count(totals.connected), view.connections)),
            Span::styled(format!("{} failed", words::count(totals.unconnected)), alarm(totals.unconnected)),
            Span::raw(format!("; the generator uses {} of a core", words::percent(view.busy))),
        ]),
    ]
}

fn draw_rate(frame: &mut Frame<'_>, area: Rect, title: &str, rates: impl Iterator<Item = f64>) {
    let block = Block::bordered().title(title);
    let wide = usize::from(block.inner(area).width);
    let mut rates: Vec<u64> = rates.map(|rate| rate as u64).collect();
    rates.drain(..rates.len().saturating_sub(wide));
    let most = rates.iter().copied().max().unwrap_or(0);
    let block = block.title_bottom(Line::from(format!("up to {}", words::count(most))).right_aligned());
    let line = Sparkline::default().block(block).data(rates).style(Style::new().fg(Color::Green));
    frame.render_widget(line, area);
}

fn draw_latency(frame: &mut Frame<'_>, area: Rect, view: &ScreenView<'_>) {
    let of = |value: fn(&Stretch) -> Option<u64>| -> Vec<(f64, f64)> {
        let points = view.stretches.iter().filter_map(|stretch| Some((stretch.at_s, log(value(stretch)?))));
        points.collect()
    };
    let curves = [
        ("p50", Color::Green, of(|stretch| stretch.p50_ns)),
        ("p99", Color::Yellow, of(|stretch| stretch.p99_ns)),
        ("longest", Color::Red, of(|stretch| stretch.p50_ns.map(|_| stretch.max_ns))),
    ];
    draw_curves(frame, area, "latency by second", &curves);
}

/// A curve: its name, its colour, and points of seconds and the decimal logarithm of nanoseconds.
type PlotCurve<'a> = (&'a str, Color, Vec<(f64, f64)>);

/// Draws percentiles of each second on a logarithmic axis.
fn draw_curves(frame: &mut Frame<'_>, area: Rect, title: &str, curves: &[PlotCurve<'_>]) {
    let values = curves.iter().flat_map(|(_, _, points)| points.iter().map(|point| point.1));
    let (least, most) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)));
    let (least, most) =
        if least > most { (5.0, 7.0) } else { (least.floor(), most.ceil().max(least.floor() + 1.0)) };
    let moments = || curves.iter().flat_map(|(_, _, points)| points.iter().map(|point| point.0));
    let last_s = moments().reduce(f64::max).unwrap_or(1.0);
    let first_s = moments().reduce(f64::min).unwrap_or(0.0).min(last_s - 1.0);
    let sets = curves.iter().map(|(name, colour, points)| {
        Dataset::default()
            .name(*name)
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(Style::new().fg(*colour))
            .data(points)
    });
    let decades = (least as i32..=most as i32).map(decade);
    let chart = Chart::new(sets.collect())
        .block(Block::bordered().title(title))
        .x_axis(
            Axis::default()
                .bounds([first_s, last_s])
                .labels([format!("{first_s:.0} s"), format!("{last_s:.0} s")]),
        )
        .y_axis(Axis::default().bounds([least, most]).labels(decades));
    frame.render_widget(chart, area);
}

fn draw_percentiles(frame: &mut Frame<'_>, area: Rect, view: &ScreenView<'_>) {
    let latency = view.totals.latency();
    let last = view.stretches.last();
    let told = |ns: Option<u64>| ns.map_or_else(|| "–".to_owned(), words::time);
    let seconds = |share: f64| match share {
        0.5 => told(last.and_then(|stretch| stretch.p50_ns)),
        0.99 => told(last.and_then(|stretch| stretch.p99_ns)),
        1.0 => told(last.filter(|stretch| stretch.p50_ns.is_some()).map(|stretch| stretch.max_ns)),
        _ => String::new(),
    };
    let rows = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("longest", 1.0)];
    let mut lines = vec![Line::from(format!("{:<8}{:>10}{:>12}", "", "the run", "last second"))];
    lines.extend(rows.map(|(name, share)| {
        let whole = told(latency.quantile_ns(share));
        Line::from(format!("{name:<8}{whole:>10}{:>12}", seconds(share)))
    }));
    let what = if view.totals.response.max_ns() > 0 { "response time" } else { "service time" };
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(what)), area);
}

/// Draws the distribution of latencies since the beginning. The height is the square root of the count, so that rare values are
/// visible.
fn draw_histogram(frame: &mut Frame<'_>, area: Rect, latency: &Distribution) {
    let mut bins = [0_u64; BINS_PER_DECADE * DECADES];
    for (first, last, count) in latency.buckets() {
        let place = (log(first.midpoint(last)) - f64::from(FIRST_DECADE)) * BINS_PER_DECADE as f64;
        bins[(place.max(0.0) as usize).min(bins.len() - 1)] += count;
    }
    let heights = bins.map(|count| (count as f64).sqrt().ceil() as u64);
    let block = Block::bordered().title("distribution of latencies (square roots)");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [bars, scale] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(inner);
    // As wide as possible, so that the labels below are aligned with their decades.
    let each = (usize::from(inner.width) / heights.len()).max(1);
    let wide: Vec<u64> = heights.iter().flat_map(|height| std::iter::repeat_n(*height, each)).collect();
    frame.render_widget(Sparkline::default().data(wide).style(Style::new().fg(Color::Cyan)), bars);
    let width = each * BINS_PER_DECADE;
    let names = (0..DECADES as i32).map(|power| format!("{:<width$}", decade(FIRST_DECADE + power)));
    frame.render_widget(Paragraph::new(names.collect::<String>()), scale);
}

/// Formats a power of ten of nanoseconds as a time in round numbers.
fn decade(power: i32) -> String {
    words::time(10_u64.pow(power.clamp(0, 19) as u32)).replace(".00 ", " ").replace(".0 ", " ")
}

/// Returns the decimal logarithm.
fn log(ns: u64) -> f64 {
    (ns.max(1) as f64).log10()
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;

    use super::*;

    fn totals() -> Totals {
        let mut totals =
            Totals { begun: 3_000, finished: 2_997, failed: 3, connected: 64, ..Totals::default() };
        totals.statuses.add(200, 2_997);
        (0..2_900).for_each(|_| totals.service.record(1_000_000));
        (0..97).for_each(|_| totals.service.record(50_000_000));
        totals
    }

    fn stretches() -> Vec<Stretch> {
        let stretch = |at: u32| Stretch {
            at_s: at.into(),
            seconds: 1.0,
            finished: 1_000 + u64::from(at % 3) * 200,
            p50_ns: Some(1_000_000),
            p99_ns: Some(20_000_000),
            max_ns: 50_000_000,
            ..Stretch::default()
        };
        (1..=30).map(stretch).collect()
    }

    fn picture(width: u16, height: u16, view: &ScreenView<'_>) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
        terminal.draw(|frame| draw(frame, view)).expect("it is drawn");
        terminal.backend().to_string()
    }

    fn view<'a>(totals: &'a Totals, stretches: &'a [Stretch]) -> ScreenView<'a> {
        ScreenView {
            text: "Closed loop; 64 connections",
            urls: "http://h/",
            elapsed_s: 30.0,
            done: Some(0.5),
            connections: 64,
            totals,
            stretches,
            busy: 0.25,
            ending: false,
        }
    }

    #[test]
    fn a_picture_has_rate_latencies_errors_and_connections() {
        let (totals, stretches) = (totals(), stretches());
        let text = picture(100, 30, &view(&totals, &stretches));
        for said in [
            "http://h/",
            "Closed loop; 64 connections",
            "30 s",
            "1,000 per second, 2,997 in total; 2xx 2,997",
            "3 failed, 0 wrong",
            "64 of 64 established",
            "25.0 % of a core",
            "up to 1,400",
            "latency by second",
            "p99.9",
            "service time",
            "1 ms",
            "q  end the run and report",
        ] {
            assert!(text.contains(said), "no `{said}`:\n{text}");
        }
        // The bars of the histogram, and the curves in Braille characters.
        assert!(
            text.contains('█') && text.chars().any(|char| ('\u{2801}'..='\u{28ff}').contains(&char)),
            "{text}"
        );
    }

    #[test]
    fn it_is_drawn_on_any_terminal_and_before_anything_is_known() {
        let (totals, stretches) = (totals(), stretches());
        for (width, height) in [(80, 24), (40, 10), (20, 5), (1, 1), (300, 90)] {
            picture(width, height, &view(&totals, &stretches));
            let nothing = Totals::default();
            let text = picture(width, height, &ScreenView { done: None, ..view(&nothing, &[]) });
            assert!(width < 80 || text.contains("no response yet"), "{text}");
        }
    }

    #[test]
    fn keys_that_end_a_run_are_not_taken_from_escape_sequences() {
        let cases: [(&[u8], usize); 8] = [
            (b"q", 1),
            (b"\x03", 1),
            (b"\x1b", 1),
            (b"q\x03", 2),
            (b"x", 0),
            (b"\x1b[A", 0),
            (b"\x1bq", 0),
            (b"q\x1b[1;5q", 1),
        ];
        for (read, ends) in cases {
            assert_eq!(ends_in(read), ends, "{read:?}");
        }
    }

    #[test]
    fn the_reader_of_keys_ends_with_its_terminal() {
        let (typed, ends) = channel();
        read_keys(&b"xq"[..], &typed);
        drop(typed);
        assert_eq!(ends.iter().count(), 1);
    }

    #[test]
    fn who_ends_it_is_told_what_happens_now() {
        let (totals, stretches) = (totals(), stretches());
        let text = picture(100, 30, &ScreenView { ending: true, ..view(&totals, &stretches) });
        assert!(text.contains("Finishing open requests"), "{text}");
    }
}
