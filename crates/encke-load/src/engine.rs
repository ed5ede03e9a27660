//! The loop of a thread: a reactor, a crowd, and nothing between them but time.
//!
//! ```text
//!   turn:  wait until something happens or the crowd's next moment, and while answers may gather
//!          ─► ≤ 256 events; after each that led to an operation the clock is read again,
//!             and what has become due meanwhile is begun; after each event some connections are dialed, and
//!             some if there is no event
//!          ─► what is due, and dials again
//! ```
//! The clock is read once a wait, once a send, and before each dial: 28 ns each, of the 7,000 that a request costs. Dials
//! stand in a line, so that none is timed with those before it: over loopback each takes 40 µs of this thread. How many of
//! them are made at a time is the crowd's to say ([`Crowd::DIALS_AT_ONCE`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use encke_io::{Event, Fault, Op, Reactor, Source};

use crate::crowd::{Crowd, Moment, Outbox};
use crate::dial::Sockets;

/// Events served before what is due has its turn all the same.
const EVENTS_PER_TURN: usize = 256;
/// A wait that is longer than this may end a millisecond late: epoll_wait(2) rounds up.
const ROUNDED_NS: u64 = 20_000_000;
/// So of a long wait the end is waited for by itself: at 20 requests a second half of them were 0.5 ms late, now 0.06.
const END_NS: u64 = 10_000_000;

/// A crowd on its reactor.
pub(crate) struct Engine<R, C> {
    reactor: R,
    crowd: C,
    sockets: Sockets,
    /// Set by others, who then wake the reactor.
    halt: Arc<AtomicBool>,
    halted: bool,
    /// About now: the last moment that was read.
    seen_ns: u64,
    out: Outbox,
}

impl<R: Reactor, C: Crowd> Engine<R, C> {
    pub(crate) fn new(reactor: R, crowd: C, sockets: Sockets, halt: Arc<AtomicBool>) -> Self {
        Self { reactor, crowd, sockets, halt, halted: false, seen_ns: 0, out: Outbox::default() }
    }

    /// Opens the connections that are open before the run begins.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub(crate) fn open(&mut self) -> Result<(), Fault> {
        self.prepare();
        while !self.crowd.is_open() && !self.halted {
            self.turn()?;
        }
        Ok(())
    }

    /// Runs until all is done; the moment, on the monotonic clock.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub(crate) fn run(&mut self) -> Result<u64, Fault> {
        self.begin();
        while !self.crowd.is_over() {
            self.turn()?;
        }
        Ok(self.reactor.now().mono_ns)
    }

    /// Begins to open connections; turns follow until [`Crowd::is_open`].
    pub(crate) fn prepare(&mut self) {
        let mut at = self.moment();
        self.crowd.open(at, &mut self.out);
        self.submit(&mut at);
    }

    /// Begins the run; turns follow until [`Crowd::is_over`].
    pub(crate) fn begin(&mut self) {
        let mut at = self.moment();
        self.crowd.begin(at, &mut self.out);
        if self.halted {
            self.crowd.stop(at);
        }
        self.submit(&mut at);
    }

    /// Waits, and serves what has happened.
    ///
    /// # Errors
    /// The system refuses to wait: the thread cannot go on.
    pub(crate) fn turn(&mut self) -> Result<(), Fault> {
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
        let mut at = Moment { woken_ns, now_ns: woken_ns, gathered };
        for _ in 0..EVENTS_PER_TURN {
            match self.reactor.next() {
                Some(event) => self.crowd.on_event(event, at, &mut self.out),
                None if self.out.dials.is_empty() => break,
                // What they come to is heard of before the next are dialed.
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

    /// Closes what is open; how many connections are left all the same.
    #[cfg(test)]
    pub(crate) fn close(&mut self) -> usize {
        self.crowd.close(&mut self.out);
        let mut at = self.moment();
        self.submit(&mut at);
        self.connections()
    }

    /// The moment, on the monotonic clock.
    pub(crate) fn now_ns(&mut self) -> u64 {
        self.reactor.now().mono_ns
    }

    /// What the crowd has come to, when it is over.
    pub(crate) fn into_crowd(self) -> C {
        self.crowd
    }

    fn pass_time(&mut self, at: &mut Moment) {
        self.crowd.on_time(*at, &mut self.out);
        if !self.out.is_empty() {
            self.submit(at);
        }
    }

    /// Does what the crowd wants done, but of its dials only some.
    fn submit(&mut self, at: &mut Moment) {
        self.operate();
        for _ in 0..C::DIALS_AT_ONCE {
            let Some(user) = self.next_in_line() else { break };
            self.dial(user, at);
            self.operate();
        }
        at.now_ns = self.reactor.now().mono_ns;
    }

    fn next_in_line(&mut self) -> Option<u32> {
        while let Some(user) = self.out.dials.pop_front() {
            if self.crowd.is_in_line(user) {
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

    fn dial(&mut self, user: u32, at: &mut Moment) {
        at.now_ns = self.reactor.now().mono_ns;
        let spare = self.reactor.spare();
        let dial = (self.sockets)(user, spare);
        let peer = dial.as_ref().map_or(None, |dial| dial.peer);
        let token = dial.and_then(|dial| self.reactor.adopt(Source::Stream(dial.stream)));
        self.crowd.dialed(user, token, *at, &mut self.out);
        match (token, peer) {
            (Ok(token), Some(peer)) => self.reactor.submit(token, Op::Connect(peer)),
            (Ok(token), None) => self.crowd.on_event(Event::Connected { token }, *at, &mut self.out),
            (Err(_), _) => {}
        }
    }

    fn moment(&mut self) -> Moment {
        let now_ns = self.reactor.now().mono_ns;
        Moment { woken_ns: now_ns, now_ns, gathered: false }
    }
}
