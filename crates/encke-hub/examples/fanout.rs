//! Measures the cost of one message per subscriber in the hub: `cargo run --release -p encke-hub --example fanout`.
//!
//! The measurement covers all but sockets and encodings: the sequencer, the feed, a pass in slices of 256, and `sent` for each
//! subscriber. Two cases: all subscribers in one channel, and each of them in three. A third case measures subscribers that
//! join and leave.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use encke_hub::{
    Delivery, Draft, Encoder, Epoch, Feed, FeedRequest, Flags, Form, Hub, HubNow, Name, Once, Rules, Run,
    Sequencer, Since, Subscribe, SubscriberId,
};

const SUBSCRIBERS: usize = 18_000;
const MESSAGES: usize = 200;
const SLICE: usize = 256;
/// Subscribers that join and leave together: few enough that a run of them is seldom interrupted.
const COMING: usize = 1_000;

fn main() {
    println!("{SUBSCRIBERS} subscribers, {MESSAGES} messages, best and median of {MESSAGES}");
    let single = [Name::parse(b"news").expect("a name")];
    let several = [b"a", b"b", b"c"].map(|text| Name::parse(text).expect("a name"));
    fan_out("one channel", &single);
    fan_out("three channels", &several);
    come_and_go("come and go", &single);
}

fn fan_out(what: &str, channels: &[Name]) {
    let mut rig = Rig::new();
    let ids: Vec<SubscriberId> = (0..SUBSCRIBERS).map(|key| rig.subscribe(channels, key as u64)).collect();
    rig.carry();
    rig.serve();
    for id in &ids {
        rig.hub.sent(*id);
    }
    let (mut passes, mut sents) = (Vec::new(), Vec::new());
    for _ in 0..MESSAGES {
        rig.publish(&channels[0]);
        let begun = Instant::now();
        rig.carry();
        let delivered = rig.serve();
        passes.push(begun.elapsed().as_nanos() as usize / SUBSCRIBERS);
        assert_eq!(delivered, SUBSCRIBERS);
        let begun = Instant::now();
        for id in &ids {
            rig.hub.sent(*id);
        }
        sents.push(begun.elapsed().as_nanos() as usize / SUBSCRIBERS);
    }
    tell(&format!("{what}: deliver"), passes);
    tell(&format!("{what}: sent"), sents);
}

fn come_and_go(what: &str, channels: &[Name]) {
    let mut rig = Rig::new();
    let mut times = Vec::new();
    for _ in 0..MESSAGES {
        let begun = Instant::now();
        let ids: Vec<SubscriberId> = (0..COMING).map(|key| rig.subscribe(channels, key as u64)).collect();
        rig.carry();
        rig.serve();
        for id in ids {
            rig.hub.leave(id);
        }
        times.push(begun.elapsed().as_nanos() as usize / COMING);
    }
    tell(what, times);
}

fn tell(what: &str, mut times: Vec<usize>) {
    times.sort_unstable();
    println!("{what:24} {:5} ns {:5} ns a subscriber", times[0], times[times.len() / 2]);
}

struct Rig {
    now: HubNow,
    sequencer: Sequencer,
    hub: Hub,
    out: Vec<Delivery>,
    requests: Vec<FeedRequest>,
    feed: Vec<Feed>,
}

struct Nothing;

impl Encoder for Nothing {
    fn encode(&mut self, _: Form, run: &Run<'_>, out: &mut Vec<u8>) {
        out.extend(run.messages.iter().flat_map(|message| message.data.iter()));
    }
}

impl Rig {
    fn new() -> Self {
        let rules = Arc::new(Rules::default());
        Self {
            now: HubNow::default(),
            sequencer: Sequencer::new(Epoch(1), Arc::clone(&rules), 1),
            hub: Hub::new(0, Epoch(1), rules),
            out: Vec::new(),
            requests: Vec::new(),
            feed: Vec::new(),
        }
    }

    fn subscribe(&mut self, channels: &[Name], key: u64) -> SubscriberId {
        let subscribe = Subscribe {
            channels: channels.to_vec(),
            since: Since::Now,
            form: Form(0),
            once: Once::Never,
            key,
            member: None,
        };
        self.hub.subscribe(self.now, subscribe).expect("it is within limits")
    }

    fn publish(&mut self, channel: &Name) {
        let draft = Draft {
            channel: channel.clone(),
            data: Box::new([b'x'; 64]),
            content_type: None,
            event: None,
            flags: Flags::default(),
            key: None,
        };
        self.sequencer.publish(self.now, draft).expect("it is within limits");
    }

    fn carry(&mut self) {
        self.hub.take_requests(&mut self.requests);
        for request in self.requests.drain(..) {
            self.sequencer.apply(self.now, 0, request);
        }
        while self.sequencer.take_feed(0, 64, &mut self.feed) {}
        for item in self.feed.drain(..) {
            self.hub.feed(self.now, item);
        }
    }

    fn serve(&mut self) -> usize {
        let mut delivered = 0;
        loop {
            let more = self.hub.slice(self.now, SLICE, &mut Nothing, &mut self.out);
            delivered += self.out.len();
            for delivery in self.out.drain(..) {
                black_box(delivery);
            }
            if !more {
                return delivered;
            }
        }
    }
}
