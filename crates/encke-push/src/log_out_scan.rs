//! Log-outs on a worker: passes an order to all workers, visits the connections in slices, and ends the user's subscribers.

use std::sync::Arc;

use encke_hub::Form;
use encke_server::{Asked, CloseReason, Engine, Slot};
use encke_stats::{Gathered, Ticket};

use super::form::{self, EXPIRES};
use super::log_out::{self, LogOutOrder, LogOutRequest, LogOutScan};
use super::negotiate::refusal;
use super::push_worker::{PushMessage, PushWorker};
use super::side::RequestDetails;

/// Limit of connections that a log-out visits in a turn: about 0.2 ms.
const SLICE_PLACES: usize = 4_096;

impl PushWorker {
    /// Passes a log-out to all workers, which count the ended subscriptions.
    pub(crate) fn order_log_out(&mut self, request: LogOutRequest) {
        let LogOutRequest { exchange, order } = request;
        let order = Arc::new(order);
        if self.links.is_empty() {
            let text = "the server is starting: retry in a second";
            return exchange.answer(refusal(503, text.into()).with("Retry-After", "1"));
        }
        let told = Arc::clone(&order);
        let ticket = Ticket::new(move |count: Option<u64>| exchange.answer(log_out::reply(&told, count)));
        let parts = Gathered::new(ticket, |sum, part| *sum += part);
        for link in self.links.iter() {
            link.send(PushMessage::LogOut { order: Arc::clone(&order), ticket: parts.ticket() });
        }
    }

    /// Accepts a log-out of another worker.
    pub(crate) fn begin_log_out(&mut self, order: Arc<LogOutOrder>, ticket: Ticket<u64>) {
        self.log_outs.push_back(LogOutScan { order, next: 0, count: 0, ticket });
    }

    /// Visits the next connections for the oldest log-out.
    pub(crate) fn continue_log_outs(&mut self, engine: &mut Engine<'_>) {
        let Some(mut scan) = self.log_outs.pop_front() else { return };
        let places = engine.places();
        let end = places.min(scan.next.saturating_add(SLICE_PLACES));
        for place in scan.next..end {
            let Some(mut slot) = engine.slot_at(place) else { continue };
            let right = self.sides.request(slot.place()).and_then(|request| request.right.as_ref());
            if right.is_some_and(|(identity, channels)| scan.order.includes(identity, channels)) {
                scan.count += 1;
                self.log_out(&mut slot);
            }
        }
        scan.next = end;
        if end < places {
            self.log_outs.push_front(scan);
        } else {
            scan.ticket.resolve(scan.count);
        }
        // A later log-out, or the next slice, follows in the next turn.
        self.pending |= !self.log_outs.is_empty();
    }

    /// Ends a subscriber: now, or after its send in flight.
    fn log_out(&mut self, slot: &mut Slot<'_>) {
        let place = slot.place();
        if let Some(RequestDetails { right: Some((identity, _)), until_ns, .. }) =
            self.sides.request_mut(place)
        {
            *identity = identity.ended();
            *until_ns = None;
        }
        if let Some(state) = self.sides.socket(place) {
            state.speaker.identity = state.speaker.identity.ended();
        }
        slot.set_form(slot.form() | EXPIRES);
        if slot.is_sending() {
            return;
        }
        if form::is_poll(form::kind(Form(slot.form()))) {
            self.refuse_logged_out(slot);
        } else {
            self.expire(slot);
        }
    }

    /// Returns whether the subscriber's user was logged out.
    pub(crate) fn is_logged_out(&self, slot: &Slot<'_>) -> bool {
        slot.form() & EXPIRES != 0
            && self.sides.request(slot.place()).is_some_and(|request| {
                request.right.as_ref().is_some_and(|(identity, _)| identity.is_ended())
            })
    }

    /// Ends a subscriber that has received no part of a response.
    pub(crate) fn refuse_logged_out(&mut self, slot: &mut Slot<'_>) {
        let form = Form(slot.form());
        let share = self.leave_unanswered(slot);
        if form::is_socket(form::kind(form)) {
            slot.out().extend_from_slice(&log_out::logged_out_close());
            slot.part(CloseReason::LoggedOut);
        } else {
            let mut asked = Asked::unread(slot.token());
            asked.framing = form::framing(form);
            slot.set_reason(CloseReason::LoggedOut);
            slot.respond(
                asked,
                share.onto(refusal(403, log_out::LOGGED_OUT.into()).because(&"logged_out")).and_close(),
            );
        }
        slot.settle();
    }
}
