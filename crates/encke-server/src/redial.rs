//! Dials that wait for room in the backlog of another server's Unix socket.
//!
//! connect(2) waits for a server behind an Internet address, but fails at once with EAGAIN if the backlog of a Unix socket is full
//! (unix(7)), and no event reports room. So these dials are tried again, the oldest first, until the deadline of the owner. A
//! later dial to the same address does not overtake them.

use encke_io::Address;

use crate::conns::earlier;
use crate::outgoing::{UpstreamDial, UpstreamId};

/// Time between two attempts, in ns. An application that accepts a connection in less keeps up with its backlog.
const PAUSE_NS: u64 = 5_000_000;

/// A dial that waits.
pub(crate) struct Redial {
    pub(crate) dial: UpstreamDial,
    /// The owner's deadline, in ns of the monotonic clock.
    until_ns: u64,
}

impl Redial {
    pub(crate) const fn new(dial: UpstreamDial) -> Self {
        Self { dial, until_ns: u64::MAX }
    }
}

/// The waiting dials of a worker, oldest first.
#[derive(Default)]
pub(crate) struct Redials {
    waiting: Vec<Redial>,
    /// The next attempt, in ns of the monotonic clock.
    due_ns: u64,
}

impl Redials {
    /// Whether a dial to this address must wait after others.
    pub(crate) fn has(&self, address: &Address) -> bool {
        self.waiting.iter().any(|redial| redial.dial.address == *address)
    }

    pub(crate) fn push(&mut self, redial: Redial, now_ns: u64) {
        if self.waiting.is_empty() {
            self.due_ns = now_ns.saturating_add(PAUSE_NS);
        }
        self.waiting.push(redial);
    }

    /// Sets the owner's deadline, in ns of the monotonic clock.
    pub(crate) fn set_deadline(&mut self, id: UpstreamId, until_ns: u64) {
        // The newest has it set, as a rule.
        if let Some(redial) = self.waiting.iter_mut().rev().find(|redial| redial.dial.id == id) {
            redial.until_ns = until_ns;
        }
    }

    /// The time of the next attempt or deadline.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let deadline_ns = self.waiting.iter().map(|redial| redial.until_ns).min()?;
        earlier(Some(self.due_ns), Some(deadline_ns))
    }

    /// The id of a dial whose deadline is over. Each deadline is returned once.
    pub(crate) fn overdue(&mut self, now_ns: u64) -> Option<UpstreamId> {
        let redial = self.waiting.iter_mut().find(|redial| redial.until_ns <= now_ns)?;
        redial.until_ns = u64::MAX;
        Some(redial.dial.id)
    }

    /// Takes all dials if an attempt is due. Those that must wait further are pushed again, in the same order.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Vec<Redial> {
        if self.due_ns <= now_ns { std::mem::take(&mut self.waiting) } else { Vec::new() }
    }
}
