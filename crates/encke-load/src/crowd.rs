//! Interface between connections and the loop that drives them: a crowd receives events and returns operations.
//!
//! ```text
//!   Engine: wait ─► event ─► Crowd::on_event ─┐
//!                   time  ─► Crowd::on_time  ─┼─► Outbox: dials and operations ─► Reactor::submit
//!                   dial  ─► Crowd::dialed   ─┘
//! ```
//! [`crate::requests`] is a crowd that sends requests; the crowd of [`crate::push`] subscribes to channels. A crowd has no
//! socket, and its only clock is the argument `at`, so the simulator runs the same code.

use std::collections::VecDeque;

use encke_io::{Event, Op, OpError, Token};

/// Virtual users, each with at most one connection.
pub(crate) trait Crowd {
    /// Connections dialed in a row before their results are processed. With 1, each connect time contains the least of the
    /// others' work. With more, a server on another core stays busy and awake, which saves the sender a wake-up per connection.
    const DIALS_AT_ONCE: usize;

    /// Opens the connections that must be open before the run begins.
    fn open(&mut self, at: TurnTime, out: &mut Outbox);

    /// Whether opening has finished, successfully or not.
    fn is_open(&self) -> bool;

    /// Begins the run.
    fn begin(&mut self, at: TurnTime, out: &mut Outbox);

    /// Whether a queued dial is still wanted. A user may cancel a queued dial, and is queued twice if it dials again.
    fn is_queued(&self, user: u32) -> bool;

    /// Result of a user's dial: the token of its new connection, or the reason why there is none.
    fn dialed(&mut self, user: u32, token: Result<Token, OpError>, at: TurnTime, out: &mut Outbox);

    /// Handles an event of the reactor.
    fn on_event(&mut self, event: Event<'_>, at: TurnTime, out: &mut Outbox);

    /// Called when the time of [`Crowd::next_ns`] is reached, and at the end of each turn.
    fn on_time(&mut self, at: TurnTime, out: &mut Outbox);

    /// How long the reactor may gather events before it returns them ([`encke_io::Reactor::gather`]), in ns.
    fn gather_ns(&self) -> u64 {
        0
    }

    /// The next moment at which [`Crowd::on_time`] must run even without an event.
    fn next_ns(&self) -> Option<u64>;

    /// Begins nothing new; open work may finish.
    fn stop(&mut self, at: TurnTime);

    /// Whether all work is finished.
    fn is_over(&self) -> bool;

    /// Aborts open work and closes every connection.
    fn close(&mut self, out: &mut Outbox);
}

/// Time within a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TurnTime {
    /// When the turn's wait ended; all its events happened before. Responses are timed by it, so that none is charged for
    /// others read earlier in the same turn.
    pub(crate) woken_ns: u64,
    /// The present, read again after each send. Requests are timed by it.
    pub(crate) now_ns: u64,
    /// Whether the wait gathered events: they may have happened up to [`Crowd::gather_ns`] before its end.
    pub(crate) gathered: bool,
}

/// Operations and dials requested by a crowd.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Operations, in order.
    pub(crate) ops: Vec<(Token, Op)>,
    /// Users that need a connection, in order.
    pub(crate) dials: VecDeque<u32>,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.dials.is_empty()
    }

    pub(crate) fn put(&mut self, token: Token, op: Op) {
        self.ops.push((token, op));
    }
}
