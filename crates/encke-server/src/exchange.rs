//! An exchange: one request and the right to answer it, from any thread.
//!
//! ```text
//! Handler::call(&Request, Exchange) ─┬─► Outcome::Now(reply)      answered within the call
//!                                    └─► Outcome::Later           the handler keeps the Exchange:
//!                                          interim(103) · read_more() → Handler::body(key, Piece)
//!                                          answer(reply) · wake() for a stream that had nothing
//!                                          dropped unanswered: the client gets a 500
//! ```

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use encke_io::Waker;
use encke_io::lock;

use crate::reply::{Fields, Reply};
use crate::resident::Takeover;

/// Names an exchange among those of its worker. Stream 0 is the only one of an HTTP/1 connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExchangeKey {
    /// Place in the worker's table of open exchanges.
    pub slot: u32,
    /// Which use of the place.
    pub generation: u32,
    /// Stream of the connection.
    pub stream: u32,
}

impl ExchangeKey {
    fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }
}

/// The right to answer one request.
pub struct Exchange {
    link: Arc<Link>,
    key: ExchangeKey,
    open: bool,
    /// What every answer has besides its own fields.
    fields: Fields,
}

impl Exchange {
    pub(crate) fn new(link: Arc<Link>, key: ExchangeKey) -> Self {
        Self { link, key, open: true, fields: Fields::new() }
    }

    /// Adds fields to the answer, whoever gives it.
    pub(crate) fn add_fields(&mut self, fields: &Fields) {
        self.fields.extend(fields);
    }

    /// Its name: what [`crate::Handler::body`] is called with.
    pub fn key(&self) -> ExchangeKey {
        self.key
    }

    /// Answers. If the client has gone meanwhile, nothing happens.
    pub fn answer(mut self, mut reply: Reply) {
        self.open = false;
        reply.fields.extend(&self.fields);
        self.link.send(Message::Answer(self.key, Box::new(reply)));
    }

    /// Gives the request's connection to a resident. If the client has gone meanwhile, nothing happens.
    pub fn take_over(mut self, takeover: Takeover) {
        self.open = false;
        self.link.send(Message::Takeover(self.key, takeover));
    }

    /// Sends an interim answer (RFC 9110 §15.2), such as 103 with early hints. HTTP/1.0 clients get none.
    pub fn interim(&self, status: u16, fields: Fields) {
        debug_assert!((102..200).contains(&status));
        self.link.send(Message::Interim(self.key, status, fields));
    }

    /// Asks for the next piece of the request's body, which comes by [`crate::Handler::body`]. The first one
    /// sends `100 Continue` if the client waits for it; without it the client is not read from.
    pub fn read_more(&self) {
        self.link.send(Message::ReadMore(self.key));
    }

    /// A handle that wakes this exchange's stream ([`crate::reply::Pulled::Pending`]) after it was answered.
    pub fn wake_handle(&self) -> WakeStream {
        WakeStream { link: Arc::clone(&self.link), key: self.key }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.open && !self.link.dropped_in_call(self.key) {
            self.link.send(Message::Dropped(self.key));
        }
    }
}

/// Tells a worker that a stream has more.
#[derive(Clone)]
pub struct WakeStream {
    link: Arc<Link>,
    key: ExchangeKey,
}

impl WakeStream {
    /// Has the stream pulled again. Harmless after its end.
    pub fn wake(&self) {
        self.link.send(Message::Wake(self.key));
    }
}

/// What reaches a worker from handlers and other threads.
pub(crate) enum Message {
    Answer(ExchangeKey, Box<Reply>),
    Takeover(ExchangeKey, Takeover),
    Interim(ExchangeKey, u16, Fields),
    ReadMore(ExchangeKey),
    Wake(ExchangeKey),
    Dropped(ExchangeKey),
    /// For the resident at a seat.
    Resident(u8, Box<dyn Any + Send>),
    Command(crate::worker::Command),
}

/// A worker's letter box.
pub(crate) struct Link {
    inbox: Mutex<VecDeque<Message>>,
    waker: Waker,
    /// The worker is not waiting: it will look into the inbox before it does.
    awake: AtomicBool,
    /// There may be messages.
    letters: AtomicBool,
    /// The exchange whose handler is being called now, as a word; [`NO_CALL`] otherwise. An exchange that is
    /// dropped meanwhile needs no letter: the worker sees `dropped` when the call returns.
    calling: AtomicU64,
    dropped: AtomicBool,
}

const NO_CALL: u64 = u64::MAX;

impl Link {
    pub(crate) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            inbox: Mutex::new(VecDeque::new()),
            waker,
            awake: AtomicBool::new(false),
            letters: AtomicBool::new(false),
            calling: AtomicU64::new(NO_CALL),
            dropped: AtomicBool::new(false),
        })
    }

    pub(crate) fn send(&self, message: Message) {
        lock(&self.inbox).push_back(message);
        self.letters.store(true, Ordering::SeqCst);
        if !self.awake.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// The worker is about to wait; false if there is a message that it must look at first. Sender and worker
    /// each write their flag before they read the other's, so that a message is either seen here or rings.
    pub(crate) fn sleep(&self) -> bool {
        self.awake.store(false, Ordering::SeqCst);
        !self.letters.load(Ordering::SeqCst)
    }

    /// The worker has woken: until it sleeps again messages need no bell.
    pub(crate) fn awake(&self) {
        self.awake.store(true, Ordering::SeqCst);
    }

    /// Whether there is no message.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.letters.load(Ordering::Relaxed)
    }

    /// Moves at most `most` messages out; true if some are left.
    pub(crate) fn take(&self, most: usize, into: &mut Vec<Message>) -> bool {
        if self.is_empty() {
            return false;
        }
        self.letters.store(false, Ordering::SeqCst);
        let mut inbox = lock(&self.inbox);
        let count = most.min(inbox.len());
        into.extend(inbox.drain(..count));
        let left = !inbox.is_empty();
        if left {
            self.letters.store(true, Ordering::SeqCst);
        }
        left
    }

    /// The worker is about to call a handler with this exchange.
    pub(crate) fn enter_call(&self, key: ExchangeKey) {
        self.dropped.store(false, Ordering::Relaxed);
        self.calling.store(key.word(), Ordering::Release);
    }

    /// The call has returned; true if its exchange was dropped unanswered meanwhile.
    pub(crate) fn leave_call(&self) -> bool {
        self.calling.store(NO_CALL, Ordering::Release);
        self.dropped.load(Ordering::Acquire)
    }

    fn dropped_in_call(&self, key: ExchangeKey) -> bool {
        let calling = self.calling.load(Ordering::Acquire) == key.word();
        if calling {
            self.dropped.store(true, Ordering::Release);
        }
        calling
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use encke_io::Reactor as _;

    #[test]
    fn what_a_turn_leaves_in_the_inbox_is_there_in_the_next() {
        let world = encke_io::sim::World::new(1);
        let link = Link::new(world.reactor().waker());
        let key = ExchangeKey { slot: 0, generation: 0, stream: 0 };
        for _ in 0..5 {
            link.send(Message::Wake(key));
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
