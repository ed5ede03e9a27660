//! Tickets: the right to give a result later, from any thread, and to merge the results of several workers.
//!
//! ```text
//!  Ticket ───────────────────────── resolve ─► respond(Some(result))      dropped ─► respond(None)
//!
//!  Gathered ─┬─ clone ─► worker 0 ──── add ──┐
//!            └─ clone ─► worker n ──── add ──┴─► merged ─► last copy dropped ─► respond(merged)
//! ```
//! A ticket never waits, and it always ends: a worker that cannot respond, or ends, drops its copy.

use std::fmt;

use crate::sync::{Arc, Mutex, PoisonError};

/// The right to give one result, once.
///
/// ```
/// use std::sync::mpsc::channel;
/// use encke_stats::Ticket;
///
/// let (send, results) = channel();
/// let send_again = send.clone();
/// let ticket = Ticket::new(move |result| send.send(result).expect("the test receives it"));
/// std::thread::spawn(move || ticket.resolve(7)).join().expect("it does not panic");
/// drop(Ticket::<u32>::new(move |result| send_again.send(result).expect("the test receives it")));
/// assert_eq!(results.iter().collect::<Vec<_>>(), [Some(7), None]);
/// ```
pub struct Ticket<T> {
    /// `None` after use.
    respond: Option<Box<dyn FnOnce(Option<T>) + Send>>,
}

impl<T> Ticket<T> {
    /// Creates a ticket. It passes its result to `respond` on the thread that gives it, or `None` if it was dropped.
    pub fn new(respond: impl FnOnce(Option<T>) + Send + 'static) -> Self {
        Self { respond: Some(Box::new(respond)) }
    }

    /// Gives the result.
    pub fn resolve(mut self, result: T) {
        if let Some(respond) = self.respond.take() {
            respond(Some(result));
        }
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        if let Some(respond) = self.respond.take() {
            respond(None);
        }
    }
}

impl<T> fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}

/// Merges results from any number of threads into one. The result is complete when the last copy is dropped.
pub struct Gathered<T>(Arc<GatheredParts<T>>);

struct GatheredParts<T> {
    merge: fn(&mut T, T),
    state: Mutex<(Option<T>, Option<Ticket<T>>)>,
}

impl<T> Gathered<T> {
    /// Merges all parts with `merge`, in any order, and gives the result to `ticket`. Without any part, drops the ticket.
    pub fn new(ticket: Ticket<T>, merge: fn(&mut T, T)) -> Self {
        Self(Arc::new(GatheredParts { merge, state: Mutex::new((None, Some(ticket))) }))
    }

    /// Adds a part of the result.
    pub fn add(&self, part: T) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut state.0 {
            Some(merged) => (self.0.merge)(merged, part),
            none => *none = Some(part),
        }
    }
}

impl<T: Send + 'static> Gathered<T> {
    /// Creates a ticket for one part.
    pub fn ticket(&self) -> Ticket<T> {
        let copy = self.clone();
        Ticket::new(move |part| {
            if let Some(part) = part {
                copy.add(part);
            }
        })
    }
}

impl<T> Clone for Gathered<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for GatheredParts<T> {
    fn drop(&mut self) {
        let (merged, ticket) = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let (Some(merged), Some(ticket)) = (merged.take(), ticket.take()) {
            ticket.resolve(merged);
        }
    }
}

impl<T> fmt::Debug for Gathered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathered").finish_non_exhaustive()
    }
}
