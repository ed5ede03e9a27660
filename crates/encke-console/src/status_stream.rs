//! The status as an event stream: once at the start, then every second.
//!
//! ```text
//!  StatusTicker (a thread, while there are streams) ── due, wake ──► StatusStream::pull ──► data: {…}
//! ```
//! Without open streams the thread does not run.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use encke_io::lock;
use encke_server::{Pull, Pulled, WakeStream};

/// Interval of events.
const BEAT: Duration = Duration::from_secs(1);

/// Wakes all status streams at regular intervals.
#[derive(Default)]
pub(crate) struct StatusTicker {
    state: Mutex<TickerState>,
    early: Condvar,
}

#[derive(Default)]
struct TickerState {
    /// The thread runs.
    running: bool,
    /// The streams to wake, each with its `due` flag.
    streams: Vec<(Weak<AtomicBool>, WakeStream)>,
}

impl StatusTicker {
    /// Wakes a stream at every interval, until `due` is dropped. `due` is set before each wake-up.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn beat_for(self: &Arc<Self>, due: &Arc<AtomicBool>, stream: WakeStream) -> io::Result<()> {
        let mut state = lock(&self.state);
        if !state.running {
            let ticker = Arc::clone(self);
            thread::Builder::new().name("pulse".into()).spawn(move || ticker.run())?;
            state.running = true;
        }
        state.streams.push((Arc::downgrade(due), stream));
        Ok(())
    }

    /// Wakes all streams at once, because the status has changed.
    pub(crate) fn quicken(&self) {
        self.early.notify_all();
    }

    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            let waited = self.early.wait_timeout(state, BEAT);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.streams.retain(|(due, stream)| {
                let Some(due) = due.upgrade() else { return false };
                due.store(true, Ordering::Release);
                stream.wake();
                true
            });
            if state.streams.is_empty() {
                state.running = false;
                return;
            }
        }
    }
}

/// One status stream. `look` returns the status, or `None` at the end of the stream.
pub(crate) struct StatusStream<F> {
    due: Arc<AtomicBool>,
    look: F,
    /// The unread rest of an event.
    rest: Vec<u8>,
}

impl<F: Fn() -> Option<Value>> StatusStream<F> {
    /// Creates a stream whose first event is due at once.
    pub(crate) fn new(due: Arc<AtomicBool>, look: F) -> Self {
        due.store(true, Ordering::Release);
        Self { due, look, rest: Vec::new() }
    }
}

impl<F: Fn() -> Option<Value> + Send> Pull for StatusStream<F> {
    fn pull(&mut self, max: usize, out: &mut Vec<u8>) -> Pulled {
        if self.rest.is_empty() {
            if !self.due.swap(false, Ordering::AcqRel) {
                return Pulled::Pending;
            }
            let Some(status) = (self.look)() else { return Pulled::End };
            self.rest = format!("data: {status}\n\n").into_bytes();
        }
        let taken = self.rest.len().min(max);
        out.extend(self.rest.drain(..taken));
        Pulled::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_given_in_any_pieces_and_the_next_when_it_is_due() {
        let event = b"data: {\"n\":1}\n\n";
        for max in 1..=event.len() {
            let due = Arc::new(AtomicBool::new(false));
            let mut live = StatusStream::new(Arc::clone(&due), || Some(serde_json::json!({ "n": 1 })));
            for _ in 0..2 {
                let mut out = Vec::new();
                while live.pull(max, &mut out) == Pulled::More {}
                assert_eq!(out, event, "by {max}");
                assert_eq!(live.pull(max, &mut out), Pulled::Pending);
                due.store(true, Ordering::Release);
            }
        }
    }

    #[test]
    fn a_stream_ends_when_there_is_nothing_more_to_see() {
        let mut live = StatusStream::new(Arc::default(), || None);
        assert_eq!(live.pull(100, &mut Vec::new()), Pulled::End);
    }
}
