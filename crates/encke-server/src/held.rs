//! A request that a guard holds, as its exchange's record keeps it.

use std::rc::Rc;

use crate::reply::Reply;
use crate::request::Kept;
use crate::verdict::{GuardVerdict, Passage};

/// A request that a guard holds.
pub(crate) struct HeldRequest {
    pub(crate) request: Kept,
    pub(crate) way: GuardProgress,
    /// A verdict that came while a send was in flight.
    pub(crate) verdict: Option<Option<Box<GuardVerdict>>>,
}

/// The progress of a request along its guards.
pub(crate) struct GuardProgress {
    pub(crate) chain: Chain,
    /// The next guard's place in the chain.
    pub(crate) next: usize,
    /// The passages of the guards so far, merged, unless all are empty.
    pub(crate) passage: Option<Box<Passage>>,
}

/// The numbers of guards that a request has to pass, in order.
pub(crate) type Chain = Rc<[u16]>;

impl GuardProgress {
    /// Adds the passage of a guard.
    pub(crate) fn add(&mut self, new: Passage) {
        if new.user.is_none() && new.fields.is_empty() {
            return;
        }
        let passage = self.passage.get_or_insert_default();
        passage.fields.extend(&new.fields);
        if new.user.is_some() {
            passage.user = new.user;
        }
    }

    /// Adds the fields of all guards so far to a response.
    pub(crate) fn add_fields(&self, reply: &mut Reply) {
        if let Some(passage) = &self.passage {
            reply.fields.extend(&passage.fields);
        }
    }
}
