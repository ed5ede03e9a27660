//! Who looks on while a run is on: a screen, lines of progress, or nobody.
//!
//! It reads what the threads count, from outside and a few times a second; they do not know of it.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use encke_load::series::Stretch;
use encke_load::{Plan, Series, Totals, words};

use super::LOOKS_PER_LINE;
#[cfg(feature = "screen")]
use super::screen::Screen;

/// A stretch of the series.
const SECOND_NS: u64 = 1_000_000_000;

/// How a run is to be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    /// As a screen if standard error is a terminal, else as lines.
    Live,
    /// As lines.
    Plain,
    /// Not at all.
    Silent,
}

/// Somebody who looks on, or nobody.
pub(super) enum Onlooker {
    Nobody,
    /// On a terminal one line that is written over, elsewhere one now and then.
    Lines {
        terminal: bool,
        looks: usize,
    },
    #[cfg(feature = "screen")]
    Screen(Box<Screen>),
}

/// What somebody who looks on wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "somebody has typed it"]
pub(super) enum Wish {
    /// To go on.
    Nothing,
    /// Begin nothing more, and report.
    End,
}

impl Onlooker {
    pub(super) fn new(shown: Shown, plan: &Plan, text: &str, urls: &[String]) -> Self {
        let terminal = io::stderr().is_terminal();
        match shown {
            Shown::Silent => return Self::Nobody,
            #[cfg(feature = "screen")]
            Shown::Live if terminal && std::env::var_os("TERM").is_some_and(|name| name != "dumb") => {
                // Where no screen can be had, lines do.
                if let Ok(screen) = Screen::open(plan, text, urls) {
                    return Self::Screen(Box::new(screen));
                }
            }
            Shown::Live | Shown::Plain => {}
        }
        let _only_a_screen_shows = (plan, text, urls);
        Self::Lines { terminal, looks: 0 }
    }

    /// Time between two looks.
    pub(super) const fn pause(&self) -> Duration {
        match self {
            Self::Nobody | Self::Lines { .. } => super::LOOK,
            #[cfg(feature = "screen")]
            Self::Screen(_) => super::screen::PAUSE,
        }
    }

    /// Takes a look, which becomes a part of the series when a second has passed.
    pub(super) fn look(&mut self, now_ns: u64, totals: Totals, series: &mut Series) -> Wish {
        #[cfg(feature = "screen")]
        let wish = match self {
            Self::Screen(screen) => screen.show(now_ns, &totals, series),
            Self::Nobody | Self::Lines { .. } => Wish::Nothing,
        };
        #[cfg(not(feature = "screen"))]
        let wish = Wish::Nothing;
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
        let line = format!("{at:.0} s: {rate} a second, p50 {p50}, p99 {p99}, {failed} failed");
        let (begin, end) = if *terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let mut error = io::stderr().lock();
        let _nobody_listens = write!(error, "{begin}{line}{end}").and_then(|()| error.flush());
    }

    /// The process ends at once: gives the terminal back, if it was taken.
    pub(super) fn abandon() {
        #[cfg(feature = "screen")]
        super::screen::give_back();
    }

    /// The run is over: nothing of it stays on the terminal.
    pub(super) fn leave(self) {
        if matches!(self, Self::Lines { terminal: true, looks: 1.. }) {
            let _nobody_listens = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
