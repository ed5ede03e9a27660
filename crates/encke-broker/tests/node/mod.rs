//! A node of a cluster without workers: its sequencer, and its engine on a real nats-server.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use encke_broker::nats::{About, ClusterConfig, Login, NatsEngine, Note, Outlet};
use encke_hub::{
    ClusterEvent, Draft, Epoch, Flags, HubNow, Name, NodeId, PublishError, PublishTicket, Publishing, Rules,
    Sequencer,
};

use crate::server::Nats;

/// Long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const NOW: HubNow = HubNow { mono_ns: 1, unix_ms: 1 };

/// A node: its sequencer, and an engine that the test drives.
pub(crate) struct Node {
    pub(crate) engine: NatsEngine,
    pub(crate) sequencer: Sequencer,
    pub(crate) news: Receiver<Vec<ClusterEvent>>,
    /// Outcomes of publishes.
    pub(crate) fates: Vec<(PublishTicket, Fate)>,
    /// Number of messages received from the stream.
    pub(crate) came: usize,
}

/// The offset, and whether the publish is a repetition.
pub(crate) type Fate = Result<(u64, bool), PublishError>;

/// Passes events to the test.
pub(crate) struct Hand(pub(crate) Mutex<Sender<Vec<ClusterEvent>>>);

impl Outlet for Hand {
    fn on_events(&self, news: Vec<ClusterEvent>) {
        let _gone = self.0.lock().expect("no panic").send(news);
    }

    fn note(&self, note: Note) {
        println!("{note:?}");
    }

    fn now(&self) -> Duration {
        static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGUN.elapsed()
    }
}

pub(crate) fn cluster(nats: &Nats) -> ClusterConfig {
    ClusterConfig {
        servers: vec![nats.url()],
        login: Login::Nobody,
        authority: None,
        stream: "encke".into(),
        replicas: 1,
        memory: false,
        age: Duration::from_secs(3_600),
        bytes: 64 << 20,
        remembered: Duration::from_secs(120),
        patience: PATIENCE,
        filters: 16,
        linger: Duration::from_secs(1),
        queue_age: Duration::ZERO,
        node: node_id(),
        about: About::default(),
        sources: None,
    }
}

/// Returns a new id on each call.
fn node_id() -> NodeId {
    static IDS: AtomicU64 = AtomicU64::new(1);
    NodeId(IDS.fetch_add(1, Ordering::Relaxed))
}

impl Node {
    pub(crate) fn join(nats: &Nats) -> Self {
        Self::join_at(nats.url(), nats)
    }

    /// Joins by another address of the server.
    pub(crate) fn join_at(url: String, nats: &Nats) -> Self {
        Self::join_by(ClusterConfig { servers: vec![url], ..cluster(nats) })
    }

    pub(crate) fn join_by(cluster: ClusterConfig) -> Self {
        let engine = NatsEngine::join(cluster).unwrap_or_else(|error| panic!("{error}"));
        let (tell, news) = channel();
        engine.begin(Arc::new(Hand(Mutex::new(tell))));
        let mut rules = Rules::default();
        rules.default.messages = 5;
        let sequencer = Sequencer::follow(engine.epoch, engine.newest, Arc::new(rules), 1);
        Self { engine, sequencer, news, fates: Vec::new(), came: 0 }
    }

    /// Joins with subscriptions to all channels that the test publishes to. Such a node needs no info of the stream's head, and
    /// publishes no beacon.
    pub(crate) fn listening(nats: &Nats, channels: &[&str]) -> Self {
        let mut node = Self::join(nats);
        channels.iter().for_each(|channel| node.sequencer.want(0, &name(channel)));
        node.until("opened", |node| {
            channels.iter().all(|channel| node.sequencer.info(&name(channel)).is_some_and(|info| info.kept))
        });
        node
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.engine.epoch
    }

    /// Exchanges commands and events until a condition holds.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        loop {
            let mut errands = Vec::new();
            self.sequencer.take_commands(&mut errands);
            errands.into_iter().for_each(|errand| self.engine.run(errand));
            if holds(self) {
                return;
            }
            let news = self.news.recv_timeout(6 * PATIENCE).unwrap_or_else(|_| panic!("never {what}"));
            self.engine.taken();
            for news in news {
                if let ClusterEvent::Messages { messages, .. } = &news {
                    self.came += messages.len();
                }
                if let Some((ticket, result)) = self.sequencer.on_event(news) {
                    let fate = result.map(|published| (published.position.offset, published.repeated));
                    self.fates.push((ticket, fate));
                }
            }
        }
    }

    /// Publishes a draft, and returns the outcome.
    pub(crate) fn publish(&mut self, draft: Draft) -> Fate {
        match self.sequencer.publish(NOW, draft)? {
            Publishing::Waits(ticket) => {
                self.until("answered", |node| node.fates.iter().any(|(one, _)| *one == ticket));
                let at = self.fates.iter().position(|(one, _)| *one == ticket).expect("it holds");
                self.fates.remove(at).1
            }
            Publishing::Done(_) | Publishing::Queued { .. } => {
                panic!("it has no place before the stream gives it one")
            }
        }
    }

    /// Subscribes to a channel, which requests its history.
    pub(crate) fn ask_for(&mut self, channel: &str) {
        self.sequencer.want(0, &name(channel));
        self.until("asked", |_| true);
    }

    /// Waits for an offset, then returns a channel's lost offset and the offsets of its history.
    pub(crate) fn kept(&mut self, channel: &str, to: u64) -> (u64, Vec<u64>) {
        self.ask_for(channel);
        self.until("there", |node| node.sequencer.newest().offset >= to);
        let mut feed = Vec::new();
        while feed.is_empty() {
            self.until("opened", |node| node.sequencer.has_feed(0));
            self.sequencer.take_feed(0, 1, &mut feed);
        }
        self.sequencer.unwant(0, &name(channel));
        match feed.remove(0) {
            encke_hub::Feed::Opened { lost_to, messages, .. } => {
                (lost_to, messages.iter().map(|message| message.offset).collect())
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).expect("a name")
}

pub(crate) fn draft(channel: &str, data: &str) -> Draft {
    Draft {
        channel: name(channel),
        data: data.as_bytes().into(),
        content_type: None,
        event: None,
        flags: Flags::default(),
        key: None,
    }
}
