//! A request held by a guard, as part of its exchange's [`Record`](crate::record::Record).

use std::rc::Rc;
use std::sync::Arc;

use crate::reply::Reply;
use crate::request::Kept;
use crate::verdict::{GuardVerdict, Passage};

/// A request held by a guard.
pub(crate) struct HeldRequest {
    pub(crate) request: Kept,
    pub(crate) way: GuardProgress,
    /// A verdict that arrived while a send was in flight; `Some(None)` if the ticket was dropped.
    pub(crate) verdict: Option<Option<Box<GuardVerdict>>>,
}

/// The progress of a request along its guards.
pub(crate) struct GuardProgress {
    pub(crate) chain: Chain,
    /// Index of the next guard in the chain.
    pub(crate) next: usize,
    /// The merged passages of the guards so far; `None` if all are empty.
    pub(crate) passage: Option<Box<Passage>>,
}

/// The numbers of guards that a request has to pass, in order.
pub(crate) type Chain = Rc<[u16]>;

impl GuardProgress {
    /// Adds the passage of a guard.
    pub(crate) fn add(&mut self, new: Passage) {
        let Passage { fields, user, passed, until_end } = new;
        if user.is_none() && fields.is_empty() && passed.is_none() && until_end.is_empty() {
            return;
        }
        let passage = self.passage.get_or_insert_default();
        passage.fields.extend(&fields);
        passage.until_end.extend(until_end);
        if user.is_some() {
            passage.user = user;
        }
        if let Some(passed) = passed {
            match &mut passage.passed {
                Some(earlier) => Arc::make_mut(earlier).add(&passed),
                None => passage.passed = Some(passed),
            }
        }
    }

    /// Adds the fields of all guards so far to a response.
    pub(crate) fn add_fields(&self, reply: &mut Reply) {
        if let Some(passage) = &self.passage {
            reply.add_guard_fields(&passage.fields);
        }
    }
}
