//! Paced rounds: the caller starts each round, so that it can measure the server's processor time during it.
//!
//! ```text
//!             prepared                            run, measured
//!   connect   no connections                      all connect
//!   fan       all are connected                   one message, until all have received it
//!   sustained all are connected                   publishers publish back to back for the planned time
//!   cycle     no connections                      all connect at once, one message, until all have received it
//!   storm     all are connected                   all are cut and reconnect at once
//!
//!   caller ── step ──► Pacer ──► the audience ── Ready │ Done ──► caller
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The kind of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the head of this file says it")]
pub enum Paced {
    Connect,
    Fan,
    Sustained,
    Cycle,
    Storm,
}

/// A report of the audience about a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacedStep {
    /// The round is prepared; the next step runs it.
    Ready,
    /// The figures of a completed round.
    Done(RoundFigures),
}

/// The figures of a round; 0 if a figure does not apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundFigures {
    /// Time from the begin of the round until all were subscribed, in ns.
    pub connect_ns: u64,
    /// Time from the message's send to its first receipt, in ns.
    pub first_ns: u64,
    /// Time from the first receipt to the last, in ns.
    pub first_to_last_ns: u64,
    /// Number of subscribers.
    pub held: u32,
    /// Receipts until publishing ended.
    pub in_time: u64,
    /// Duration of publishing, in ns.
    pub published_ns: u64,
    /// Missing receipts.
    pub lost: u64,
}

/// The audience's side: takes permitted steps, and reports their results.
#[derive(Debug)]
pub(crate) struct Pacer {
    allowed: Arc<AtomicU32>,
    taken: u32,
    told: Sender<PacedStep>,
}

/// The caller's side.
#[derive(Debug)]
pub(crate) struct Pacing {
    allowed: Arc<AtomicU32>,
    steps: Receiver<PacedStep>,
}

/// Creates both sides.
pub(crate) fn pair() -> (Pacer, Pacing) {
    let allowed = Arc::new(AtomicU32::new(0));
    let (told, steps) = channel();
    (Pacer { allowed: Arc::clone(&allowed), taken: 0, told }, Pacing { allowed, steps })
}

impl Paced {
    /// All kinds, with their names on the command line.
    pub const NAMED: [(&'static str, Self); 5] = [
        ("connect", Self::Connect),
        ("fan", Self::Fan),
        ("sustained", Self::Sustained),
        ("cycle", Self::Cycle),
        ("storm", Self::Storm),
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        Self::NAMED.into_iter().find(|(_, paced)| *paced == self).map_or("", |(name, _)| name)
    }

    /// Whether rounds begin without connections.
    pub(super) const fn begins_alone(self) -> bool {
        matches!(self, Self::Connect | Self::Cycle)
    }
}

impl Pacing {
    /// Permits one more step. The caller must then wake the audience's thread.
    pub(crate) fn allow(&self) {
        self.allowed.fetch_add(1, Ordering::Release);
    }

    /// Waits for the report of a step.
    pub(crate) fn wait(&self, at_most: Duration) -> Result<PacedStep, RecvTimeoutError> {
        self.steps.recv_timeout(at_most)
    }
}

impl Pacer {
    /// Takes a step if one is permitted; returns whether it did.
    pub(crate) fn take(&mut self) -> bool {
        let may = self.allowed.load(Ordering::Acquire) != self.taken;
        self.taken += u32::from(may);
        may
    }

    pub(crate) fn tell(&self, step: PacedStep) {
        let _nobody_looks_on = self.told.send(step);
    }
}
