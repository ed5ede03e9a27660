//! Requests that are held until their turn, in order of their times.
//!
//! A guard has no clock of its own, so a resident of the worker wakes it: [`RateTimer`], which owns no connection.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use std::sync::Arc;

use encke_server::{Asked, Engine, ExchangeKey, GuardVerdict, Passage, Reply, Resident, Slot, Ticket};

use super::table::RateTable;

/// Held requests of one worker, shared by its guards of rates and its timer.
#[derive(Default)]
pub(crate) struct DelayedRequests {
    /// By the time of their turn, in ns of the monotonic clock, and in order of arrival.
    turns: BTreeMap<(u64, u64), DelayedRequest>,
    /// The places in `turns`.
    places: HashMap<ExchangeKey, (u64, u64)>,
    count: u64,
    /// Numbers of held requests, by the place of their rule in the settings.
    by_rule: HashMap<usize, u32>,
}

/// A request that is held until its turn.
pub(crate) struct DelayedRequest {
    pub(crate) key: ExchangeKey,
    pub(crate) ticket: Ticket<GuardVerdict>,
    pub(crate) passage: Passage,
    /// The place of the rule that holds it.
    pub(crate) rule: usize,
    /// The limits that it has used, with its key in each.
    pub(crate) used: Vec<UsedLimit>,
}

/// A limit that a request has used, and the hash of its key.
pub(crate) type UsedLimit = (Arc<RateTable>, u64);

impl DelayedRequests {
    /// Number of requests that a rule holds on this worker.
    pub(crate) fn held_by(&self, rule: usize) -> u32 {
        self.by_rule.get(&rule).copied().unwrap_or_default()
    }

    /// Holds a request until `due_ns`.
    pub(crate) fn hold(&mut self, due_ns: u64, request: DelayedRequest) {
        self.count += 1;
        let place = (due_ns, self.count);
        self.places.insert(request.key, place);
        *self.by_rule.entry(request.rule).or_default() += 1;
        self.turns.insert(place, request);
    }

    /// Forgets a request whose client has disconnected, and takes it back from its limits.
    pub(crate) fn forget(&mut self, key: ExchangeKey) {
        let place = self.places.remove(&key);
        if let Some(request) = place.and_then(|place| self.turns.remove(&place)) {
            self.released(request.rule);
            for (table, hash) in &request.used {
                table.refund(*hash);
            }
        }
    }

    fn released(&mut self, rule: usize) {
        if let Some(count) = self.by_rule.get_mut(&rule) {
            *count -= 1;
            if *count == 0 {
                self.by_rule.remove(&rule);
            }
        }
    }

    /// The time of the next turn.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.turns.first_key_value().map(|((due_ns, _), _)| *due_ns)
    }

    /// Passes all requests that are due.
    pub(crate) fn release(&mut self, now_ns: u64) {
        while let Some(first) = self.turns.first_entry().filter(|first| first.key().0 <= now_ns) {
            let DelayedRequest { key, ticket, passage, rule, used: _ } = first.remove();
            self.places.remove(&key);
            self.released(rule);
            ticket.resolve(GuardVerdict::Pass(passage));
        }
    }
}

/// Wakes the held requests of a worker.
#[derive(Default)]
pub(crate) struct RateTimer {
    pub(crate) delayed: Rc<RefCell<DelayedRequests>>,
}

impl Resident for RateTimer {
    fn due_ns(&self) -> Option<u64> {
        self.delayed.borrow().due_ns()
    }

    fn begin(&mut self, engine: &mut Engine<'_>) {
        self.delayed.borrow_mut().release(engine.now().mono_ns);
    }

    // No connection is ever passed to it.
    fn enter(&mut self, slot: &mut Slot<'_>, asked: Asked, _start: Box<dyn Any + Send>) {
        slot.respond(asked, Reply::error(500));
    }

    fn sent(&mut self, _slot: &mut Slot<'_>) {}

    fn overdue(&mut self, _slot: &mut Slot<'_>) {}
}
