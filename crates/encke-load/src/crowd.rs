//! What connections do, apart from the loop that serves them: a crowd is told what has happened, and says what is to
//! be done.
//!
//! ```text
//!   Engine: wait ─► event ─► Crowd::on_event ─┐
//!                   time  ─► Crowd::on_time  ─┼─► Outbox: dials and operations ─► Reactor::submit
//!                   dial  ─► Crowd::dialed   ─┘
//! ```
//! [`crate::requests`] is a crowd that sends requests, [`crate::push`] has one that listens. A crowd has no socket, and
//! no clock but one that it is given, so that the simulator runs the same code.

use std::collections::VecDeque;

use encke_io::{Event, Fault, Op, Token};

/// Users, each with a connection of its own or without one.
pub(crate) trait Crowd {
    /// Connections that are dialed, one after the other, before what they come to is heard of. With one the time of each
    /// has least of the others' in it; with more a server on another processor has enough to do not to fall asleep, and
    /// whoever sends has not to wake it each time.
    const DIALS_AT_ONCE: usize;

    /// Opens the connections that are open before the run begins.
    fn open(&mut self, at: Moment, out: &mut Outbox);

    /// Whether opening has come to its end, well or badly.
    fn is_open(&self) -> bool;

    /// The run begins.
    fn begin(&mut self, at: Moment, out: &mut Outbox);

    /// Whether a user who stands in the line of dials still wants the connection: it may have been given up there, and
    /// may stand there twice if it then asked again.
    fn is_in_line(&self, user: u32) -> bool;

    /// A connection that was asked for has its name, or cannot even be tried.
    fn dialed(&mut self, user: u32, token: Result<Token, Fault>, at: Moment, out: &mut Outbox);

    /// Something has happened.
    fn on_event(&mut self, event: Event<'_>, at: Moment, out: &mut Outbox);

    /// The moment of [`Crowd::next_ns`] has come, or a turn ends.
    fn on_time(&mut self, at: Moment, out: &mut Outbox);

    /// How long what comes may gather before it is told of ([`encke_io::Reactor::gather`]), ns.
    fn gather_ns(&self) -> u64 {
        0
    }

    /// When it must hear of the time, if nothing happens before.
    fn next_ns(&self) -> Option<u64>;

    /// Nothing new is to begin.
    fn stop(&mut self, at: Moment);

    /// Whether all is done.
    fn is_over(&self) -> bool;

    /// Gives up what is under way, and closes every connection.
    fn close(&mut self, out: &mut Outbox);
}

/// A moment within a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    /// When the turn's wait ended: what it brought had happened by then. Answers are timed by it, so that none is
    /// charged for those that were read before it in the same turn.
    pub(crate) woken_ns: u64,
    /// Now, read again after each send: requests are timed by it.
    pub(crate) now_ns: u64,
    /// What the wait brought may have happened by [`Crowd::gather_ns`] before its end.
    pub(crate) gathered: bool,
}

/// What a crowd wants done.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Operations, in order.
    pub(crate) ops: Vec<(Token, Op)>,
    /// Users who want a connection, in order.
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
