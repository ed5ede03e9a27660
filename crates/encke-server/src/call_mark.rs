//! The exchange that a worker has lent to a handler for its call, and whether it was dropped meanwhile.
//!
//! An exchange that is dropped during the call of its handler sends no message: the worker learns it when the call returns. One that
//! is dropped at any other time, perhaps on another thread, sends a message. Both facts, which call is running and whether its
//! exchange was dropped, are one word. As two they could contradict each other: a drop between the end of a call and the next one
//! would be lost, or would answer the next request.
//!
//! ```text
//!            enter(a)           drop of a              leave
//!   NONE ──────────────► a ──────────────► DROPPED ──────────────► NONE, it was dropped
//!                        └──────────────────────────────────────► NONE, and a later drop sends a message
//! ```

use crate::sync::atomic::{AtomicU64, Ordering};

/// No handler is being called. Not the word of an exchange, whose slot is never so large.
const NONE: u64 = u64::MAX;
/// The exchange of the present call was dropped.
const DROPPED: u64 = u64::MAX - 1;

/// The present call of a worker. Exchanges are given by their word, which no other exchange has at the same time.
pub(crate) struct CallMark(AtomicU64);

impl CallMark {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(NONE))
    }

    /// Marks the start of a call with an exchange.
    #[inline]
    pub(crate) fn enter(&self, exchange: u64) {
        self.0.store(exchange, Ordering::Release);
    }

    /// Marks the end of a call. Returns whether its exchange was dropped.
    #[inline]
    pub(crate) fn leave(&self) -> bool {
        self.0.swap(NONE, Ordering::AcqRel) == DROPPED
    }

    /// Runs a call within another one. Returns its result, and whether its exchange was dropped. The exchange of the outer call
    /// sends a message if it is dropped meanwhile.
    pub(crate) fn within<T>(&self, exchange: u64, call: impl FnOnce() -> T) -> (T, bool) {
        let outer = self.0.swap(exchange, Ordering::AcqRel);
        let called = call();
        let dropped = self.0.swap(outer, Ordering::AcqRel) == DROPPED;
        (called, dropped)
    }

    /// Marks an exchange as dropped. Returns whether the worker learns it at the end of the present call: otherwise it needs a
    /// message.
    pub(crate) fn drop_in_call(&self, exchange: u64) -> bool {
        self.0.compare_exchange(exchange, DROPPED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
