//! A worker's inbox: messages of handlers, other workers and the program, and the flags by which the worker wakes.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use encke_io::Waker;
use encke_io::lock;

use crate::call_mark::CallMark;
use crate::exchange::ExchangeKey;
use crate::outgoing::{UpstreamFault, UpstreamId};
use crate::reply::{Fields, Reply};
use crate::takeover::Takeover;
use crate::verdict::GuardVerdict;

/// A message to a worker from a handler or another thread.
pub(crate) enum WorkerMessage {
    Answer(ExchangeKey, Box<Reply>),
    /// The response of a handler to which the exchange's handler has delegated the request.
    Delegated(ExchangeKey, Box<Reply>),
    Takeover(ExchangeKey, Takeover),
    Interim(ExchangeKey, u16, Fields),
    ReadMore(ExchangeKey),
    /// The body may be of any length.
    Endless(ExchangeKey),
    Wake(ExchangeKey),
    /// For the handler with this number. If it was dropped, another handler may have its number.
    WakeHandler(u16),
    Dropped(ExchangeKey),
    /// An outgoing connection could not get a socket. The worker sends this to itself.
    Undialed(UpstreamId, UpstreamFault),
    /// A guard's verdict; `None` if its ticket was dropped.
    Verdict(ExchangeKey, Option<Box<GuardVerdict>>),
    /// For the resident at a seat.
    Resident(u8, Box<dyn Any + Send>),
    /// The first command in the worker's [`CommandQueue`](crate::command::CommandQueue).
    Command,
    /// The worker continues a walk over its connections ([`ConnWalk`](crate::inspect::ConnWalk)).
    Walk,
    /// The work that was open at the beginning of a drain has ended on all workers.
    Left,
}

/// A worker's queue of messages.
pub(crate) struct Inbox {
    inbox: Mutex<VecDeque<WorkerMessage>>,
    waker: Waker,
    /// The worker is not waiting, and will check the inbox before it waits.
    awake: AtomicBool,
    /// The inbox may contain messages.
    pending: AtomicBool,
    /// The present call of a handler.
    pub(crate) call: CallMark,
}

impl Inbox {
    pub(crate) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            inbox: Mutex::new(VecDeque::new()),
            waker,
            awake: AtomicBool::new(false),
            pending: AtomicBool::new(false),
            call: CallMark::new(),
        })
    }

    pub(crate) fn send(&self, message: WorkerMessage) {
        lock(&self.inbox).push_back(message);
        self.pending.store(true, Ordering::SeqCst);
        if !self.awake.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Prepares the worker to wait. Returns false if a message must be processed first. Sender and worker each set their flag
    /// before they read the other's, so every message is either seen here or wakes the worker.
    pub(crate) fn sleep(&self) -> bool {
        self.awake.store(false, Ordering::SeqCst);
        !self.pending.load(Ordering::SeqCst)
    }

    /// Marks the worker as awake: until it sleeps again, messages do not wake it.
    pub(crate) fn awake(&self) {
        self.awake.store(true, Ordering::SeqCst);
    }

    /// Whether there is no message.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.pending.load(Ordering::Relaxed)
    }

    /// Moves at most `most` messages to `into`. Returns whether messages are left.
    pub(crate) fn take(&self, most: usize, into: &mut Vec<WorkerMessage>) -> bool {
        if self.is_empty() {
            return false;
        }
        self.pending.store(false, Ordering::SeqCst);
        let mut inbox = lock(&self.inbox);
        let count = most.min(inbox.len());
        into.extend(inbox.drain(..count));
        let left = !inbox.is_empty();
        if left {
            self.pending.store(true, Ordering::SeqCst);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use encke_io::Reactor as _;

    #[test]
    fn what_a_turn_leaves_in_the_inbox_is_there_in_the_next() {
        let world = encke_io::sim::World::new(1);
        let link = Inbox::new(world.reactor().waker());
        let key = ExchangeKey { slot: 0, generation: 0, stream: 0 };
        for _ in 0..5 {
            link.send(WorkerMessage::Wake(key));
        }
        let mut taken = Vec::new();
        assert!(link.take(2, &mut taken));
        assert!(!link.sleep(), "there is a message to look at before sleeping");
        assert!(link.take(2, &mut taken));
        assert!(!link.take(2, &mut taken));
        assert_eq!(taken.len(), 5);
        assert!(link.sleep());
    }
}
