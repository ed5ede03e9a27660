//! Rounds that somebody begins from outside: who measures a server's processor time beside must know when a round is on.
//!
//! ```text
//!             made ready                          run, measured
//!   connect   nobody is connected                 all connect
//!   fan       all are connected                   one message, until everybody has it
//!   sustained all are connected                   publishers publish as soon as they are answered, as long as planned
//!   cycle     nobody is connected                 all connect at once, one message, until everybody has it
//!   storm     all are connected                   all are cut and connect again at once
//!
//!   who looks on ── step ──► Pacer ──► the audience ── Ready │ Done ──► who looks on
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// What a round is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the head of this file says it")]
pub enum Paced {
    Connect,
    Fan,
    Sustained,
    Cycle,
    Storm,
}

/// What an audience says of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The next one runs a round.
    Ready,
    /// That is what a round came to.
    Done(Figures),
}

/// What a round came to; what it has nothing of is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// From the round's beginning until all were answered, ns.
    pub connect_ns: u64,
    /// From the message's send to the first who had it, ns.
    pub first_ns: u64,
    /// From the first who had it to the last, ns.
    pub first_to_last_ns: u64,
    /// Subscribers that were there.
    pub held: u32,
    /// Receipts until publishing ended, and how long that was, ns.
    pub in_time: u64,
    /// See above.
    pub published_ns: u64,
    /// Receipts that did not happen.
    pub lost: u64,
}

/// The audience's end: what it may do, and where it tells of it.
#[derive(Debug)]
pub(crate) struct Pacer {
    allowed: Arc<AtomicU32>,
    taken: u32,
    told: Sender<Step>,
}

/// The other end.
#[derive(Debug)]
pub(crate) struct Pacing {
    allowed: Arc<AtomicU32>,
    steps: Receiver<Step>,
}

/// Both ends.
pub(crate) fn pair() -> (Pacer, Pacing) {
    let allowed = Arc::new(AtomicU32::new(0));
    let (told, steps) = channel();
    (Pacer { allowed: Arc::clone(&allowed), taken: 0, told }, Pacing { allowed, steps })
}

impl Paced {
    /// All of them, by the names that they have on the command line.
    pub const NAMED: [(&'static str, Self); 5] = [
        ("connect", Self::Connect),
        ("fan", Self::Fan),
        ("sustained", Self::Sustained),
        ("cycle", Self::Cycle),
        ("storm", Self::Storm),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMED.into_iter().find(|(_, paced)| *paced == self).map_or("", |(name, _)| name)
    }

    /// Whether it begins with nobody there.
    pub(super) const fn begins_alone(self) -> bool {
        matches!(self, Self::Connect | Self::Cycle)
    }
}

impl Pacing {
    /// One step more may be taken. Who waits has to be woken.
    pub(crate) fn allow(&self) {
        self.allowed.fetch_add(1, Ordering::Release);
    }

    /// Waits so long for what comes of it.
    pub(crate) fn wait(&self, at_most: Duration) -> Result<Step, RecvTimeoutError> {
        self.steps.recv_timeout(at_most)
    }
}

impl Pacer {
    /// Whether a step may be taken now; then it is.
    pub(crate) fn take(&mut self) -> bool {
        let may = self.allowed.load(Ordering::Acquire) != self.taken;
        self.taken += u32::from(may);
        may
    }

    pub(crate) fn tell(&self, step: Step) {
        let _nobody_looks_on = self.told.send(step);
    }
}
