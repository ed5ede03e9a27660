//! A drain as all workers see it: their open work at its beginning, and how many of them have ended it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use encke_io::{Token, lock};

/// Open work of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct OpenWork {
    /// Connections of residents: event streams, WebSockets, polls, tunnels.
    pub streams: usize,
    /// Requests whose response is not complete.
    pub requests: usize,
}

/// The result of a drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Drained {
    /// Streams and requests that were closed at the deadline, before they had ended.
    pub late: usize,
}

/// The state of a drain that all workers share.
#[derive(Default)]
pub(crate) struct DrainCensus {
    state: Mutex<DrainState>,
    counted: Condvar,
}

#[derive(Default)]
struct DrainState {
    /// Workers that have counted their open work, and the sum.
    counted: usize,
    open: OpenWork,
    /// Workers whose open work has ended.
    ended: usize,
    late: usize,
}

impl DrainCensus {
    fn state(&self) -> MutexGuard<'_, DrainState> {
        lock(&self.state)
    }

    /// Adds a worker's open work at the beginning of the drain.
    pub(crate) fn count(&self, open: OpenWork) {
        let mut state = self.state();
        state.counted += 1;
        state.open.streams += open.streams;
        state.open.requests += open.requests;
        drop(state);
        self.counted.notify_all();
    }

    /// Waits until `workers` have counted their open work. Returns the sum, or `None` after `patience`.
    pub(crate) fn wait(&self, workers: usize, patience: Duration) -> Option<OpenWork> {
        let missing = |state: &mut DrainState| state.counted < workers;
        let waited = self.counted.wait_timeout_while(self.state(), patience, missing);
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        (!timeout.timed_out()).then_some(state.open)
    }

    /// Records that a worker's open work has ended. Returns the number of such workers.
    pub(crate) fn end_one(&self) -> usize {
        let mut state = self.state();
        state.ended += 1;
        state.ended
    }

    pub(crate) fn ended(&self) -> usize {
        self.state().ended
    }

    pub(crate) fn add_late(&self, count: usize) {
        self.state().late += count;
    }

    /// Returns the result, after the workers have ended.
    pub(crate) fn drained(&self) -> Drained {
        Drained { late: self.state().late }
    }
}

/// A worker's part of a drain.
#[derive(Default)]
pub(crate) struct Leaving {
    /// Connections with open work at the beginning of the drain. Those that have ended are removed from the end of the list.
    pub(crate) open: Vec<Token>,
    /// Whether the worker has reported the end of all of them.
    pub(crate) ended: bool,
}
