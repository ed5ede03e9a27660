//! The keeper of live streams: ends listeners whose source was lost for too long, and pulls streams from other servers.
//!
//! ```text
//! source lost ─► held_until_ns ─► the keeper's deadline ─► an empty head with END: each listener's stream ends
//! want        ─► LivePull ─► until 30 s after its last listener
//! SourceBoard ─► a source here whose stream another node has taken over ends; streams with listeners are pulled from that node
//! ```
//! A resident of every worker; that of the first one acts.

use std::any::Any;
use std::sync::Arc;

use encke_io::{Done, lock};
use encke_push::{Draft, Flags, PushPublisher};
use encke_server::{
    Asked, Engine, JobId, Kernel, Reply, Resident, ResidentMailbox, Slot, UpstreamEvent, UpstreamId,
};

use crate::pull::{LivePull, PullSetup};
use crate::pull_lookup::PullLookup;
use crate::state::{KeeperLook, KeeperWake, LiveState, SourceNotice};

pub(crate) struct LiveKeeper {
    state: Arc<LiveState>,
    publisher: PushPublisher,
    /// Whether this is the keeper of the first worker.
    is_first: bool,
    /// Whether the server stops: listeners that are still here begin no pull.
    has_drained: bool,
    pulls: Vec<LivePull>,
    mailbox: Option<ResidentMailbox>,
    /// The next deadline, on the monotonic clock in ns.
    due_ns: Option<u64>,
    /// The sources to be woken, each with its time.
    wakes: Vec<(u64, Arc<SourceNotice>)>,
}

impl LiveKeeper {
    pub(crate) fn new(state: Arc<LiveState>, publisher: PushPublisher, is_first: bool) -> Self {
        Self {
            state,
            publisher,
            is_first,
            has_drained: false,
            pulls: Vec::new(),
            mailbox: None,
            due_ns: None,
            wakes: Vec::new(),
        }
    }

    /// Ends the streams that are due, and finds the next deadline.
    fn look(&mut self, now_ns: u64) {
        self.due_ns = None;
        for stream in self.state.all() {
            let mut inner = lock(&stream.inner);
            let Some(until_ns) = inner.held_until_ns else { continue };
            if until_ns > now_ns {
                self.due_ns = Some(self.due_ns.map_or(until_ns, |due_ns| due_ns.min(until_ns)));
                continue;
            }
            inner.held_until_ns = None;
            inner.info = None;
            inner.container = None;
            inner.torn = false;
            inner.head = Arc::default();
            // Requests that wait for the description of the stream get the end, too.
            inner.wake();
            let end = Draft {
                flags: Flags::PREAMBLE.with(Flags::BREAK).with(Flags::END),
                ..Draft::new(stream.name.clone(), Vec::new())
            };
            // If the server is too busy or stops, listeners stay until they leave or a source returns.
            self.publisher.publish(end, |_| {});
        }
        self.state.drop_unused();
    }

    /// Begins the pulls that are wanted, and does what is due in all.
    fn pull(&mut self, engine: &mut Engine<'_>) {
        if self.has_drained {
            return;
        }
        self.want_from_others(engine.now().mono_ns);
        let pulls_max = self.state.pulls_max();
        for (stream, hops) in self.state.take_wanted() {
            if let Some(pull) = self.pulls.iter_mut().find(|pull| Arc::ptr_eq(&pull.stream, &stream)) {
                pull.shorten(hops);
                continue;
            }
            let places = self.state.places_of(&stream.name);
            let refusal = if places.is_empty() {
                "no node has the source of the stream any more"
            } else if self.pulls.len() >= pulls_max {
                "the server fetches as many streams as live.pulls allows"
            } else {
                self.pulls.push(LivePull::begin(engine, stream, places, hops));
                continue;
            };
            lock(&stream.inner).fail_pull(refusal.into(), engine.now().mono_ns);
        }
        let state = &self.state;
        self.pulls.retain_mut(|pull| {
            pull.redirect(engine, state.places_of(&pull.stream.name));
            let is_fallback = state.replaces_for_listeners(&pull.stream.name);
            pull.look(engine, is_fallback)
        });
        let due_ns = self.pulls.iter().filter_map(LivePull::due_ns).min();
        self.due_ns = self.due_ns.into_iter().chain(due_ns).min();
    }

    /// Requests the streams that have listeners here and their source on another node, and the fallbacks of those without any.
    fn want_from_others(&self, now_ns: u64) {
        if !self.state.is_clustered() {
            return;
        }
        for stream in self.state.all() {
            let is_wanted = stream.listeners.count() > 0 || lock(&stream.inner).is_awaited();
            let has_source = lock(&stream.inner).source.is_some();
            if !is_wanted || has_source {
                continue;
            }
            if self.state.holder_of(&stream.name).is_some() {
                self.state.add_wanted(&stream, "");
            } else if let Some(fallback) = self.state.fallback_elsewhere(&stream.name, now_ns) {
                self.state.add_wanted(&fallback, "");
            }
        }
    }
}

impl Resident for LiveKeeper {
    fn enter(&mut self, slot: &mut Slot<'_>, asked: Asked, _: Box<dyn Any + Send>) {
        // No handler gives connections to the keeper.
        slot.respond(asked, Reply::error(500).and_close());
    }

    fn sent(&mut self, _: &mut Slot<'_>) {}

    fn overdue(&mut self, _: &mut Slot<'_>) {}

    fn message(&mut self, engine: &mut Engine<'_>, message: Box<dyn Any + Send>) {
        if message.is::<KeeperLook>() {
            self.state.yield_to_others(engine.now().mono_ns);
            self.look(engine.now().mono_ns);
            self.pull(engine);
        } else if let Ok(wake) = message.downcast::<KeeperWake>() {
            let KeeperWake(at_ns, notice) = *wake;
            self.wakes.push((at_ns, notice));
        }
    }

    fn offloaded(&mut self, engine: &mut Engine<'_>, job: JobId, done: Option<Done>) {
        let lookup = done.and_then(|done| done.downcast::<PullLookup>().ok());
        for pull in &mut self.pulls {
            if pull.resolved(engine, job, lookup.as_deref()) {
                break;
            }
        }
        self.pull(engine);
    }

    fn upstream(&mut self, engine: &mut Engine<'_>, id: UpstreamId, event: UpstreamEvent<'_>) {
        let Self { state, publisher, pulls, mailbox, .. } = self;
        let setup = PullSetup { state, publisher, mailbox: mailbox.as_ref() };
        let Some(pull) = pulls.iter_mut().find(|pull| pull.has(id)) else { return };
        pull.event(engine, &setup, event);
        let due_ns = pull.due_ns();
        self.due_ns = self.due_ns.into_iter().chain(due_ns).min();
    }

    fn each_second(&mut self, engine: &mut Engine<'_>, _: &dyn Kernel) {
        if !self.is_first {
            return;
        }
        self.state.drop_unused();
        if !self.pulls.is_empty() || self.state.is_clustered() {
            self.pull(engine);
        }
    }

    fn drain(&mut self, engine: &mut Engine<'_>, _: u64) {
        self.has_drained = true;
        for mut pull in self.pulls.drain(..) {
            pull.close(engine);
        }
    }

    fn start(&mut self, mailboxes: Arc<[ResidentMailbox]>) {
        if let Some(first) = mailboxes.first() {
            self.state.set_keeper(first.clone());
            self.mailbox = Some(first.clone());
            // For listeners that came before the first keeper was known. Only that one fetches streams.
            self.due_ns = self.is_first.then_some(0);
        }
    }

    fn due_ns(&self) -> Option<u64> {
        let wakes = self.wakes.iter().map(|(at_ns, _)| *at_ns);
        let flushes = self.pulls.iter().filter_map(LivePull::flush_ns);
        self.due_ns.into_iter().chain(wakes).chain(flushes).min()
    }

    fn begin(&mut self, engine: &mut Engine<'_>) {
        let now_ns = engine.now().mono_ns;
        self.wakes.retain(|(at_ns, notice)| {
            if *at_ns <= now_ns {
                (notice.wake)();
            }
            *at_ns > now_ns
        });
        self.pulls.iter_mut().for_each(|pull| pull.flush_due(engine));
        if self.due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            self.look(now_ns);
            self.pull(engine);
        }
    }
}
