//! Progress display of a run: a screen, lines, or nothing.
//!
//! The display reads the counters of the generator's threads a few times a second. The threads do not know about it.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use encke_load::series::Stretch;
use encke_load::{Plan, Series, Totals, words};

use super::LOOKS_PER_LINE;
#[cfg(feature = "screen")]
use super::screen::Screen;

/// Minimum length of a stretch of the series.
const SECOND_NS: u64 = 1_000_000_000;

/// The kind of progress display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ViewMode {
    /// A screen if standard error is a terminal, otherwise lines.
    Live,
    /// Lines.
    Plain,
    /// None.
    Silent,
}

/// The progress display of a run.
pub(super) enum ProgressView {
    Nobody,
    /// On a terminal one line that is overwritten, elsewhere a line per [`LOOKS_PER_LINE`] samples.
    Lines {
        terminal: bool,
        looks: usize,
    },
    #[cfg(feature = "screen")]
    Screen(Box<Screen>),
}

/// A request of the user at the display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the user has requested it"]
pub(super) enum ViewAction {
    /// Continue.
    Nothing,
    /// Start no more requests, and report.
    End,
}

impl ProgressView {
    pub(super) fn new(shown: ViewMode, plan: &Plan, text: &str, urls: &[String]) -> Self {
        let terminal = io::stderr().is_terminal();
        match shown {
            ViewMode::Silent => return Self::Nobody,
            #[cfg(feature = "screen")]
            ViewMode::Live if terminal && std::env::var_os("TERM").is_some_and(|name| name != "dumb") => {
                // Falls back to lines if the screen cannot be opened.
                if let Ok(screen) = Screen::open(plan, text, urls) {
                    return Self::Screen(Box::new(screen));
                }
            }
            ViewMode::Live | ViewMode::Plain => {}
        }
        let _only_a_screen_shows = (plan, text, urls);
        Self::Lines { terminal, looks: 0 }
    }

    /// Returns the time between two samples.
    pub(super) const fn pause(&self) -> Duration {
        match self {
            Self::Nobody | Self::Lines { .. } => super::LOOK,
            #[cfg(feature = "screen")]
            Self::Screen(_) => super::screen::PAUSE,
        }
    }

    /// Shows a sample, and adds it to the series if a second has passed since the last one.
    pub(super) fn look(&mut self, now_ns: u64, totals: Totals, series: &mut Series) -> ViewAction {
        #[cfg(feature = "screen")]
        let wish = match self {
            Self::Screen(screen) => screen.show(now_ns, &totals, series),
            Self::Nobody | Self::Lines { .. } => ViewAction::Nothing,
        };
        #[cfg(not(feature = "screen"))]
        let wish = ViewAction::Nothing;
        if series.last_ns().is_some_and(|last| now_ns < last + SECOND_NS) {
            return wish;
        }
        if let Some(stretch) = series.look(now_ns, totals) {
            self.tell(stretch);
        }
        wish
    }

    fn tell(&mut self, stretch: &Stretch) {
        let Self::Lines { terminal, looks } = self else { return };
        *looks += 1;
        if !*terminal && !looks.is_multiple_of(LOOKS_PER_LINE) {
            return;
        }
        let rate = words::number(stretch.finished as f64 / stretch.seconds);
        let [p50, p99] =
            [stretch.p50_ns, stretch.p99_ns].map(|ns| ns.map_or_else(|| "–".into(), words::time));
        let at = stretch.at_s;
        let failed = words::count(stretch.failed);
        let line = format!("{at:.0} s: {rate} per second, p50 {p50}, p99 {p99}, {failed} failed");
        let (begin, end) = if *terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let mut error = io::stderr().lock();
        let _nobody_listens = write!(error, "{begin}{line}{end}").and_then(|()| error.flush());
    }

    /// Restores the terminal before the process ends immediately.
    pub(super) fn abandon() {
        #[cfg(feature = "screen")]
        super::screen::give_back();
    }

    /// Clears the progress line at the end of a run.
    pub(super) fn leave(self) {
        if matches!(self, Self::Lines { terminal: true, looks: 1.. }) {
            let _nobody_listens = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
