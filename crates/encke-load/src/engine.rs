//! The event loop of a thread: connects a reactor and a crowd, and passes time to both.
//!
//! ```text
//!   turn:  wait for an event or the crowd's next due time; responses may gather meanwhile
//!          ─► ≤ 256 events; after each that caused an operation: submit, dial, read the clock,
//!             and begin the requests that became due
//!          ─► without further events: dial once more
//!          ─► begin the requests that are due
//! ```
//! The clock is read once per wait, once per send, and before each dial: 28 ns each, of the 7,000 ns a request costs. Dials are
//! queued, so that no connect time includes earlier dials: over loopback each takes 40 µs of this thread. The crowd decides how
//! many are made in a row ([`Crowd::DIALS_AT_ONCE`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use encke_io::{Event, Op, OpError, Reactor, ReactorSource};

use crate::crowd::{Crowd, Outbox, TurnTime};
use crate::dial::Sockets;

/// Maximum events per turn, so that due requests are not starved.
const EVENTS_PER_TURN: usize = 256;
/// A wait longer than this may end a millisecond late: epoll_wait(2) rounds up.
const ROUNDED_NS: u64 = 20_000_000;
/// A long wait therefore ends this much early, and a short one follows. At 20 requests per second, half of the requests were
/// 0.5 ms late without this, and are 0.06 ms late with it.
const END_NS: u64 = 10_000_000;

/// A crowd and its reactor.
pub(crate) struct LoadEngine<R, C> {
    reactor: R,
    crowd: C,
    sockets: Sockets,
    /// Set by other threads, which then wake the reactor.
    halt: Arc<AtomicBool>,
    halted: bool,
    /// The most recent clock reading.
    seen_ns: u64,
    out: Outbox,
}

impl<R: Reactor, C: Crowd> LoadEngine<R, C> {
    pub(crate) fn new(reactor: R, crowd: C, sockets: Sockets, halt: Arc<AtomicBool>) -> Self {
        Self { reactor, crowd, sockets, halt, halted: false, seen_ns: 0, out: Outbox::default() }
    }

    /// Opens the connections that must be open before the run begins.
    ///
    /// # Errors
    /// The reactor cannot wait for events.
    pub(crate) fn open(&mut self) -> Result<(), OpError> {
        self.prepare();
        while !self.crowd.is_open() && !self.halted {
            self.turn()?;
        }
        Ok(())
    }

    /// Runs until the crowd is finished. Returns the time on the monotonic clock.
    ///
    /// # Errors
    /// The reactor cannot wait for events.
    pub(crate) fn run(&mut self) -> Result<u64, OpError> {
        self.begin();
        while !self.crowd.is_over() {
            self.turn()?;
        }
        Ok(self.reactor.now().mono_ns)
    }

    /// Starts to open connections. The caller runs turns until [`Crowd::is_open`].
    pub(crate) fn prepare(&mut self) {
        let mut at = self.moment();
        self.crowd.open(at, &mut self.out);
        self.submit(&mut at);
    }

    /// Begins the run. The caller runs turns until [`Crowd::is_over`].
    pub(crate) fn begin(&mut self) {
        let mut at = self.moment();
        self.crowd.begin(at, &mut self.out);
        if self.halted {
            self.crowd.stop(at);
        }
        self.submit(&mut at);
    }

    /// Runs one turn: waits, then handles events and due work.
    ///
    /// # Errors
    /// The reactor cannot wait for events, so the thread cannot continue.
    pub(crate) fn turn(&mut self) -> Result<(), OpError> {
        let until_ns = if self.out.dials.is_empty() {
            self.crowd.next_ns().map(|next_ns| match next_ns.saturating_sub(self.seen_ns) {
                0..=ROUNDED_NS => next_ns,
                _ => next_ns - END_NS,
            })
        } else {
            Some(0)
        };
        let gathered = self.reactor.gather(Duration::from_nanos(self.crowd.gather_ns()));
        let woken_ns = self.reactor.wait(until_ns)?.mono_ns;
        let mut at = TurnTime { woken_ns, now_ns: woken_ns, gathered };
        for _ in 0..EVENTS_PER_TURN {
            match self.reactor.next() {
                Some(event) => self.crowd.on_event(event, at, &mut self.out),
                None if self.out.dials.is_empty() => break,
                // Handle the results of these dials before dialing more.
                None => {
                    self.submit(&mut at);
                    break;
                }
            }
            if !self.out.is_empty() {
                self.submit(&mut at);
                if self.crowd.next_ns().is_some_and(|due_ns| due_ns <= at.now_ns) {
                    self.pass_time(&mut at);
                }
            }
        }
        self.pass_time(&mut at);
        self.seen_ns = at.now_ns;
        if !self.halted && self.halt.load(Ordering::Relaxed) {
            self.halted = true;
            self.crowd.stop(at);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn crowd(&self) -> &C {
        &self.crowd
    }

    /// Connections that were dialed and are not closed.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.reactor.occupancy().sources
    }

    /// Closes all connections. Returns how many remain open.
    #[cfg(test)]
    pub(crate) fn close(&mut self) -> usize {
        self.crowd.close(&mut self.out);
        let mut at = self.moment();
        self.submit(&mut at);
        self.connections()
    }

    /// The time on the monotonic clock.
    pub(crate) fn now_ns(&mut self) -> u64 {
        self.reactor.now().mono_ns
    }

    /// Returns the crowd, once it is finished.
    pub(crate) fn into_crowd(self) -> C {
        self.crowd
    }

    fn pass_time(&mut self, at: &mut TurnTime) {
        self.crowd.on_time(*at, &mut self.out);
        if !self.out.is_empty() {
            self.submit(at);
        }
    }

    /// Submits the crowd's operations and up to `DIALS_AT_ONCE` of its dials.
    fn submit(&mut self, at: &mut TurnTime) {
        self.operate();
        for _ in 0..C::DIALS_AT_ONCE {
            let Some(user) = self.next_dial() else { break };
            self.dial(user, at);
            self.operate();
        }
        at.now_ns = self.reactor.now().mono_ns;
    }

    fn next_dial(&mut self) -> Option<u32> {
        while let Some(user) = self.out.dials.pop_front() {
            if self.crowd.is_queued(user) {
                return Some(user);
            }
        }
        None
    }

    fn operate(&mut self) {
        for (token, op) in self.out.ops.drain(..) {
            self.reactor.submit(token, op);
        }
    }

    fn dial(&mut self, user: u32, at: &mut TurnTime) {
        at.now_ns = self.reactor.now().mono_ns;
        let spare = self.reactor.spare();
        let dial = (self.sockets)(user, spare);
        let peer = dial.as_ref().map_or(None, |dial| dial.peer);
        let token = dial.and_then(|dial| self.reactor.adopt(ReactorSource::Stream(dial.stream)));
        self.crowd.dialed(user, token, *at, &mut self.out);
        match (token, peer) {
            (Ok(token), Some(peer)) => self.reactor.submit(token, Op::Connect(peer)),
            (Ok(token), None) => self.crowd.on_event(Event::Connected { token }, *at, &mut self.out),
            (Err(_), _) => {}
        }
    }

    fn moment(&mut self) -> TurnTime {
        let now_ns = self.reactor.now().mono_ns;
        TurnTime { woken_ns: now_ns, now_ns, gathered: false }
    }
}
