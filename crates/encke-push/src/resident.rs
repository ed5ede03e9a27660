//! Push as a resident: the calls of the worker, and the order in which push does its part of a turn.
//!
//! ```text
//! begin ─► new rights · requests from handlers · values between workers · a commit
//! slice ─► deliveries become sends      sliced ─► durations of fan-outs      finish ─► confirmations to WebSockets,
//!                                                                                slices of log-outs and lists
//! ```

use std::any::Any;
use std::sync::Arc;

use encke_io::{Done, Now};

use super::publisher::ProgramPublish;
use super::push_worker::{PushMessage, PushWorker};
use encke_server::{Asked, ConnDescription, Engine, Gone, JobId, Kernel, Resident, ResidentMailbox, Slot};

impl Resident for PushWorker {
    fn enter(&mut self, slot: &mut Slot<'_>, asked: Asked, start: Box<dyn Any + Send>) {
        self.start(slot, asked, start);
    }

    fn received(&mut self, slot: &mut Slot<'_>, bytes: &mut [u8]) -> usize {
        self.frames(slot, bytes)
    }

    fn sent(&mut self, slot: &mut Slot<'_>) {
        self.on_sent(slot);
    }

    fn ended(&mut self, slot: &mut Slot<'_>) {
        self.peer_ended(slot);
    }

    fn overdue(&mut self, slot: &mut Slot<'_>) {
        self.is_due(slot);
    }

    fn closed(&mut self, gone: Gone) {
        self.forget(gone);
    }

    fn message(&mut self, engine: &mut Engine<'_>, message: Box<dyn Any + Send>) {
        match message.downcast::<PushMessage>() {
            Ok(message) => {
                if let Some((token, answer)) = self.read(engine.now(), *message) {
                    self.on_publish_reply(engine, token, &answer);
                }
            }
            Err(message) => match message.downcast::<ProgramPublish>() {
                Ok(publish) => self.publish_for_program(engine.now(), *publish),
                Err(_) => debug_assert!(false, "only workers and the program send messages to push"),
            },
        }
    }

    fn offloaded(&mut self, engine: &mut Engine<'_>, _: JobId, done: Option<Done>) {
        self.committed(engine.now(), done);
    }

    fn start(&mut self, mailboxes: Arc<[ResidentMailbox]>) {
        self.know(mailboxes);
    }

    fn due_ns(&self) -> Option<u64> {
        self.next_ns()
    }

    fn begin(&mut self, engine: &mut Engine<'_>) {
        if std::mem::take(&mut self.renewing) {
            self.renew_rights(engine);
        }
        self.take_push_requests(engine.now());
        for (token, answer) in self.exchange_feeds(engine.now()) {
            self.on_publish_reply(engine, token, &answer);
        }
        self.note_queue_age(engine.now());
        if let Some(commit) = self.take_commit(engine.now()) {
            engine.offload(commit);
        }
    }

    fn slice(&mut self, engine: &mut Engine<'_>, sends: usize) -> bool {
        self.push_slice(engine, sends)
    }

    fn sliced(&mut self, _: &mut Engine<'_>, now: Now, more: bool) {
        self.record_fanouts(now);
        if more {
            self.note_queue_age(now);
        } else {
            self.end_fanout();
        }
    }

    fn finish(&mut self, engine: &mut Engine<'_>, kernel: &dyn Kernel) {
        self.confirm_changes(engine);
        if !self.log_outs.is_empty() {
            self.continue_log_outs(engine);
        }
        self.continue_listing(engine.now());
        if !self.walks.is_empty() {
            self.continue_walks(engine, kernel);
        }
        self.counters.subscribers.set(self.hub.subscribers() as i64);
    }

    fn each_second(&mut self, engine: &mut Engine<'_>, kernel: &dyn Kernel) {
        self.sample(engine, kernel);
    }

    fn describe(&mut self, slot: &mut Slot<'_>) -> ConnDescription {
        self.describe_subscriber(slot)
    }

    fn drain(&mut self, engine: &mut Engine<'_>, time_ns: u64) {
        self.farewells = Some(engine.farewells(time_ns));
        for place in 0..engine.places() {
            // A subscriber with a send in flight gets its deadline when that completes.
            if let Some(mut slot) = engine.slot_at(place).filter(|slot| !slot.is_sending()) {
                self.await_due(&mut slot);
            }
        }
    }

    fn may_end(&self, late: bool) -> bool {
        self.is_done(late)
    }

    fn end(&mut self, now: Now) {
        self.close(now);
    }

    fn park(&mut self, slot: &mut Slot<'_>) -> Option<Vec<u8>> {
        self.park_subscriber(slot)
    }

    fn unpark(&mut self, slot: &mut Slot<'_>, parked: &[u8]) -> bool {
        self.unpark_subscriber(slot, parked)
    }
}
