//! Unit tests of the hub: a sequencer, one hub, and an encoder that writes deliveries as text.

use super::*;
use crate::message::{Draft, Flags};
use crate::rules::ChannelRules;
use crate::sequencer::Sequencer;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// A worker with its sequencer.
struct Rig {
    now: HubNow,
    sequencer: Sequencer,
    hub: Hub,
    encoder: Words,
}

fn offset(positions: &Positions) -> u64 {
    positions.as_slice()[0].offset
}

/// Writes messages as `3:a 4:b`, with an optional gap, the position and the number of further messages: `gap 1-2 3:a @3 +7`.
#[derive(Default)]
struct Words {
    made: usize,
}

impl Encoder for Words {
    fn encode(&mut self, _: Form, run: &Run<'_>, out: &mut Vec<u8>) {
        self.made += 1;
        let mut words = Vec::new();
        if let Some(gap) = run.gap {
            words.push(format!("gap {}-{}", offset(&gap.from), offset(&gap.to)));
        }
        for message in run.messages {
            let data = String::from_utf8_lossy(&message.data);
            words.push(format!("{}:{}", message.offset, data.get(..20).unwrap_or(&data)));
        }
        words.push(format!("@{}", run.position.offset));
        if run.more > 0 {
            words.push(format!("+{}", run.more));
        }
        out.extend(words.join(" ").bytes());
    }
}

impl Rig {
    fn new(rules: &Rules) -> Self {
        let rules = Arc::new(rules.clone());
        Self {
            now: HubNow { mono_ns: SECOND, unix_ms: 1_000_000 },
            sequencer: Sequencer::new(Epoch(7), Arc::clone(&rules), 1),
            hub: Hub::new(0, Epoch(7), rules),
            encoder: Words::default(),
        }
    }

    fn passes(&mut self, ms: u64) {
        self.now.mono_ns += ms * MS;
        self.now.unix_ms += ms;
    }

    fn subscribe(&mut self, channels: &[&str], since: Since, once: Once) -> SubscriberId {
        let subscribe = Subscribe {
            channels: channels.iter().map(|text| name(text)).collect(),
            since,
            form: Form(0),
            once,
            key: 0,
            member: None,
        };
        self.hub.subscribe(self.now, subscribe).expect("it is within limits")
    }

    fn publish(&mut self, channel: &str, data: &str) -> u64 {
        let published = self.sequencer.publish(self.now, draft(channel, data)).expect("it is within limits");
        published.done().expect("no store is waited for").position.offset
    }

    fn depends_on_others(&self, id: SubscriberId) -> bool {
        self.hub.depends_on_others(id, self.now)
    }

    /// Carries all values between the two machines until none are left.
    fn carry(&mut self) {
        loop {
            let mut requests = Vec::new();
            self.hub.take_requests(&mut requests);
            let asked = requests.len();
            for request in requests {
                self.sequencer.apply(self.now, 0, request);
            }
            let mut feed = Vec::new();
            while self.sequencer.take_feed(0, 3, &mut feed) {}
            if asked + feed.len() == 0 {
                return;
            }
            for item in feed {
                self.hub.feed(self.now, item);
            }
        }
    }

    /// Carries all values, and returns the resulting deliveries.
    fn told(&mut self) -> Vec<(SubscriberId, String)> {
        self.carry();
        let mut out = Vec::new();
        while self.hub.slice(self.now, 256, &mut self.encoder, &mut out) {}
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let words = |what: &DeliveryContent| match what {
            DeliveryContent::Started { position, gap: None } => format!("started {}", offset(position)),
            DeliveryContent::Started { position, gap: Some(gap) } => {
                format!("started {} gap {}-{}", offset(position), offset(&gap.from), offset(&gap.to))
            }
            DeliveryContent::Bytes(bytes) => text(bytes),
            DeliveryContent::Last(bytes) => format!("last {}", text(bytes)),
            DeliveryContent::Waiting => "waiting".to_owned(),
            DeliveryContent::Overrun => "overrun".to_owned(),
            DeliveryContent::Ended => "ended".to_owned(),
        };
        out.iter().map(|delivery| (delivery.subscriber, words(&delivery.what))).collect()
    }

    /// Returns the deliveries, or a single one if all are equal.
    fn said(&mut self) -> Vec<String> {
        let mut said: Vec<String> = self.told().into_iter().map(|(_, words)| words).collect();
        said.dedup();
        said
    }

    /// Adds a streaming subscriber that has started and is writable.
    fn stream(&mut self, channels: &[&str], since: Since) -> SubscriberId {
        let id = self.subscribe(channels, since, Once::Never);
        let told = self.told();
        assert!(
            matches!(&told[..], [(told, words)] if *told == id && words.starts_with("started")),
            "{told:?}"
        );
        self.hub.sent(id);
        id
    }
}

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).expect("a name")
}

fn draft(channel: &str, data: &str) -> Draft {
    Draft {
        channel: name(channel),
        data: data.as_bytes().into(),
        content_type: None,
        event: None,
        flags: Flags::default(),
        key: None,
    }
}

fn rules(messages: usize, policy: Overrun) -> Rules {
    let mut rules = Rules::default();
    rules.default = ChannelRules { messages, policy, ..ChannelRules::default() };
    rules
}

fn plain() -> Rules {
    rules(100, Overrun::Disconnect)
}

#[test]
fn a_stream_starts_and_is_told_what_is_published_then() {
    let mut rig = Rig::new(&plain());
    rig.publish("news", "old");
    rig.passes(1);
    rig.subscribe(&["news"], Since::Now, Once::Never);
    assert_eq!(rig.said(), ["started 1"]);
    rig.publish("news", "a");
    assert!(rig.said().is_empty(), "its head is still on its way out");
    rig.hub.sent(SubscriberId(0));
    assert_eq!(rig.said(), ["2:a @2"]);
    rig.hub.sent(SubscriberId(0));
    assert!(rig.said().is_empty());
    rig.publish("other", "x");
    rig.publish("news", "b");
    assert_eq!(rig.said(), ["4:b @4"]);
}

#[test]
fn each_way_to_begin_gives_what_it_says() {
    for (since, said) in [
        (Since::Now, &["started 4"][..]),
        (Since::All, &["started 0", "1:a 2:b 4:c @4"]),
        (Since::Last(0), &["started 4"]),
        (Since::Last(2), &["started 1", "2:b 4:c @4"]),
        (Since::Last(9), &["started 0", "1:a 2:b 4:c @4"]),
        (Since::Age { ms: 3_000 }, &["started 1", "2:b 4:c @4"]),
        (Since::Age { ms: 0 }, &["started 4"]),
        (Since::After(Position { epoch: Epoch(7), offset: 1 }.into()), &["started 1", "2:b 4:c @4"]),
        (Since::After(Position { epoch: Epoch(7), offset: 3 }.into()), &["started 3", "4:c @4"]),
        (Since::After(Position { epoch: Epoch(7), offset: 4 }.into()), &["started 4"]),
        (
            Since::After(Position { epoch: Epoch(7), offset: 5 }.into()),
            &["started 0 gap 5-0", "1:a 2:b 4:c @4"],
        ),
        (
            Since::After(Position { epoch: Epoch(8), offset: 9 }.into()),
            &["started 0 gap 9-0", "1:a 2:b 4:c @4"],
        ),
    ] {
        let mut rig = Rig::new(&plain());
        for (channel, data) in [("news", "a"), ("news", "b"), ("x", "x"), ("news", "c")] {
            rig.publish(channel, data);
            rig.passes(1_000);
        }
        let id = rig.subscribe(&["news"], since.clone(), Once::Never);
        let mut all = rig.said();
        // An id ahead takes one more round trip: the hub requests the newest offset.
        all.extend(rig.said());
        rig.hub.sent(id);
        all.extend(rig.said());
        assert_eq!(all, said, "{since:?}");
    }
}

/// A poll receives nothing before its response, so it must not miss messages published while its channel opens.
#[test]
fn what_is_published_while_a_channel_is_opened_is_told() {
    let mut rig = Rig::new(&plain());
    rig.publish("news", "old");
    rig.passes(1);
    rig.subscribe(&["news"], Since::Now, Once::Oldest);
    rig.publish("news", "new");
    assert_eq!(rig.said(), ["last 2:new @2"]);
}

#[test]
fn one_position_serves_several_channels_in_the_order_of_all() {
    for (since, said) in [
        (Since::Now, &["started 6"][..]),
        (Since::All, &["started 0", "1:a 2:b 3:a 5:c 6:b @6"]),
        (Since::Last(3), &["started 2", "3:a 5:c 6:b @6"]),
        (Since::After(Position { epoch: Epoch(7), offset: 3 }.into()), &["started 3", "5:c 6:b @6"]),
    ] {
        let mut rig = Rig::new(&plain());
        for channel in ["a", "b", "a", "x", "c", "b"] {
            rig.publish(channel, channel);
        }
        rig.passes(1);
        let id = rig.subscribe(&["a", "b", "c", "a"], since.clone(), Once::Never);
        let mut all = rig.said();
        rig.hub.sent(id);
        all.extend(rig.said());
        assert_eq!(all, said, "{since:?}");
        rig.hub.sent(id);
        rig.publish("b", "later");
        assert_eq!(rig.said(), ["7:later @7"]);
    }
}

#[test]
fn bytes_are_made_once_for_all_at_the_same_place() {
    let mut rig = Rig::new(&plain());
    let ids: Vec<_> = (0..1_000).map(|_| rig.subscribe(&["news"], Since::Now, Once::Never)).collect();
    assert_eq!(rig.told().len(), 1_000);
    for id in &ids {
        rig.hub.sent(*id);
    }
    rig.publish("news", "a");
    rig.publish("news", "b");
    rig.publish("news", "c");
    let told = rig.told();
    assert_eq!(told.len(), 1_000);
    assert!(told.iter().all(|(_, words)| words == "1:a 2:b 3:c @3"));
    assert_eq!(rig.encoder.made, 1);
    // Once more for the next message, which all receive later.
    rig.publish("news", "d");
    assert!(rig.told().is_empty());
    for id in &ids {
        rig.hub.sent(*id);
    }
    assert_eq!(rig.said(), ["4:d @4"]);
    assert_eq!(rig.encoder.made, 2);
}

#[test]
fn who_was_busy_gets_all_that_waits_in_one_delivery() {
    let mut rig = Rig::new(&plain());
    let id = rig.stream(&["news"], Since::Now);
    let all: Vec<String> = (0..100).map(|number| format!("{}:{number}", number + 1)).collect();
    rig.publish("news", "0");
    assert_eq!(rig.said(), ["1:0 @1"]);
    for number in 1..100 {
        rig.publish("news", &number.to_string());
    }
    rig.hub.sent(id);
    assert_eq!(rig.said(), [format!("{} @65 +35", all[1..65].join(" "))]);
    rig.hub.sent(id);
    assert_eq!(rig.said(), [format!("{} @100", all[65..].join(" "))]);
}

#[test]
fn a_run_ends_at_its_bytes_and_a_large_message_goes_alone() {
    let mut rig = Rig::new(&plain());
    let large = "x".repeat(70_000);
    let half = "y".repeat(33_000);
    for data in [&half, &half, &large, &half] {
        rig.publish("news", data);
    }
    let id = rig.stream(&["news"], Since::All);
    let mut positions = Vec::new();
    loop {
        let said = rig.said();
        let Some(words) = said.first() else { break };
        positions.push(words.split('@').nth(1).unwrap_or_default().to_owned());
        rig.hub.sent(id);
    }
    assert_eq!(positions, ["1 +3", "2 +2", "3 +1", "4"]);
}

#[test]
fn who_asks_once_is_answered_once() {
    let mut rig = Rig::new(&plain());
    rig.publish("news", "a");
    rig.publish("news", "b");
    rig.subscribe(&["news"], Since::All, Once::Oldest);
    assert_eq!(rig.said(), ["last 1:a @1 +1"]);
    rig.subscribe(&["news"], Since::All, Once::All);
    assert_eq!(rig.said(), ["last 1:a 2:b @2"]);
    assert_eq!(rig.hub.subscribers(), 0);
    let id = rig.subscribe(&["news"], Since::Now, Once::Oldest);
    assert_eq!(rig.said(), ["waiting"]);
    assert_eq!(rig.hub.position_of(id), Some(Position { epoch: Epoch(7), offset: 2 }.into()));
    rig.publish("other", "x");
    assert!(rig.said().is_empty());
    rig.publish("news", "c");
    assert_eq!(rig.said(), ["last 4:c @4"]);
    assert_eq!(rig.hub.position_of(id), None);
    // The number of further messages is current, not that of an earlier subscriber.
    rig.subscribe(&["news"], Since::All, Once::Oldest);
    assert_eq!(rig.said(), ["last 1:a @1 +2"]);
}

#[test]
fn an_answer_carries_its_gap_and_comes_at_once_also_when_nothing_is_left() {
    let mut rig = Rig::new(&rules(2, Overrun::Disconnect));
    for data in ["a", "b", "c"] {
        rig.publish("news", data);
    }
    let from = Since::After(Position { epoch: Epoch(7), offset: 0 }.into());
    rig.subscribe(&["news"], from.clone(), Once::Oldest);
    assert_eq!(rig.said(), ["last gap 0-1 2:b @2 +1"]);
    rig.sequencer.delete(&name("news"));
    rig.subscribe(&["news"], from, Once::All);
    assert_eq!(rig.said(), ["last gap 0-3 @3"]);
}

#[test]
fn who_has_yet_to_be_told_of_a_gap_does_not_wait_and_stands_nowhere() {
    let mut rig = Rig::new(&rules(2, Overrun::Disconnect));
    rig.stream(&["news"], Since::Now);
    for data in ["a", "b", "c"] {
        rig.publish("news", data);
    }
    rig.told();
    rig.sequencer.delete(&name("news"));
    rig.carry();
    let from = Since::After(Position { epoch: Epoch(7), offset: 0 }.into());
    let id = rig.subscribe(&["news"], from, Once::All);
    // Otherwise a poll that times out now would receive a position after the gap, and never the gap.
    assert_eq!((rig.hub.waits(id), rig.hub.position_of(id)), (false, None));
    assert_eq!(rig.said(), ["last gap 0-3 @3"]);
}

#[test]
fn every_poll_is_answered_though_each_answer_removes_one() {
    let mut rig = Rig::new(&plain());
    for _ in 0..2_000 {
        rig.subscribe(&["news"], Since::Now, Once::Oldest);
    }
    assert_eq!(rig.said(), ["waiting"]);
    rig.publish("news", "a");
    let told = rig.told();
    assert_eq!(told.len(), 2_000);
    assert!(told.iter().all(|(_, words)| words == "last 1:a @1"));
    assert_eq!((rig.hub.subscribers(), rig.encoder.made), (0, 1));
}

#[test]
fn who_was_too_slow_is_treated_as_the_policy_says() {
    for (policy, said) in [
        (Overrun::Disconnect, &["overrun"][..]),
        (Overrun::Skip, &["gap 1-3 @3", "4:d 5:e @5"]),
        (Overrun::Latest, &["5:e @5"]),
    ] {
        let mut rig = Rig::new(&rules(2, policy));
        let id = rig.stream(&["news"], Since::Now);
        rig.publish("news", "a");
        assert_eq!(rig.said(), ["1:a @1"]);
        for data in ["b", "c", "d", "e"] {
            rig.publish("news", data);
            assert!(rig.said().is_empty(), "what is in flight is finished first");
        }
        rig.hub.sent(id);
        let mut all = rig.said();
        rig.hub.sent(id);
        all.extend(rig.said());
        assert_eq!(all, said, "{policy:?}");
        assert_eq!(rig.hub.subscribers(), usize::from(policy != Overrun::Disconnect));
    }
}

#[test]
fn whom_we_served_too_late_is_told_of_the_gap_and_stays() {
    let mut rig = Rig::new(&rules(2, Overrun::Disconnect));
    let id = rig.stream(&["news"], Since::Now);
    for data in ["a", "b", "c"] {
        rig.publish("news", data);
    }
    assert_eq!(rig.said(), ["gap 0-1 @1"]);
    rig.hub.sent(id);
    assert_eq!(rig.said(), ["2:b 3:c @3"]);
    rig.hub.sent(id);
    rig.publish("news", "d");
    rig.sequencer.delete(&name("news"));
    assert_eq!(rig.said(), ["gap 3-4 @4"]);
}

#[test]
fn a_loss_in_one_channel_costs_nothing_of_the_others() {
    let mut rig = Rig::new(&rules(2, Overrun::Skip));
    let id = rig.stream(&["a", "b"], Since::Now);
    rig.publish("b", "1");
    assert_eq!(rig.said(), ["1:1 @1"]);
    rig.publish("b", "2");
    for data in ["3", "4", "5", "6"] {
        rig.publish("a", data);
    }
    rig.carry();
    rig.hub.sent(id);
    assert_eq!(rig.said(), ["gap 1-4 @1"]);
    rig.hub.sent(id);
    assert_eq!(rig.said(), ["2:2 5:5 6:6 @6"]);
}

#[test]
fn a_slice_is_bounded_and_no_channel_waits_for_a_large_one() {
    let mut rig = Rig::new(&plain());
    for _ in 0..1_000 {
        rig.stream(&["large"], Since::Now);
    }
    let small = rig.stream(&["small"], Since::Now);
    rig.publish("large", "a");
    rig.publish("small", "b");
    rig.carry();
    let mut out = Vec::new();
    assert!(rig.hub.slice(rig.now, 100, &mut rig.encoder, &mut out));
    assert_eq!(out.len(), 100);
    assert!(rig.hub.slice(rig.now, 100, &mut rig.encoder, &mut out));
    assert!(out.iter().any(|delivery| delivery.subscriber == small));
    while rig.hub.slice(rig.now, 100, &mut rig.encoder, &mut out) {}
    assert_eq!(out.len(), 1_001);
}

#[test]
fn publishers_wait_for_those_who_can_take_more_and_for_nobody_else() {
    let mut rig = Rig::new(&rules(10, Overrun::Disconnect));
    let id = rig.stream(&["news"], Since::Now);
    assert_eq!(rig.hub.lag(rig.now), Lag::default());
    rig.publish("news", "a");
    rig.carry();
    rig.passes(8);
    assert_eq!(rig.hub.lag(rig.now), Lag { behind_ns: 8 * MS, exceeded: false });
    rig.passes(3);
    assert_eq!(rig.hub.lag(rig.now), Lag { behind_ns: 11 * MS, exceeded: true });
    assert_eq!(rig.said(), ["1:a @1"]);
    rig.publish("news", "b");
    assert!(rig.said().is_empty());
    rig.passes(1_000);
    assert_eq!(rig.hub.lag(rig.now), Lag::default(), "it is busy: that is its own affair");
    rig.hub.sent(id);
    rig.passes(1);
    assert_eq!(rig.hub.lag(rig.now), Lag::default(), "it has just become able to take more");
    rig.hub.slice(rig.now, 0, &mut rig.encoder, &mut Vec::new());
    rig.passes(11);
    assert_eq!(rig.hub.lag(rig.now), Lag { behind_ns: 11 * MS, exceeded: true });
    assert_eq!(rig.said(), ["2:b @2"]);
    rig.hub.sent(id);
    for data in ["c", "d", "e", "f", "g"] {
        rig.publish("news", data);
    }
    rig.carry();
    assert!(!rig.hub.lag(rig.now).exceeded);
    rig.publish("news", "h");
    rig.carry();
    assert!(rig.hub.lag(rig.now).exceeded, "more than half of the ring has gone by");
    assert_eq!(rig.said().len(), 1);
    assert_eq!(rig.hub.lag(rig.now), Lag::default());
}

#[test]
fn channels_are_asked_for_once_and_given_back_after_half_a_minute() {
    let mut rig = Rig::new(&plain());
    let first = rig.subscribe(&["news"], Since::Now, Once::Never);
    let second = rig.subscribe(&["news"], Since::Now, Once::Never);
    rig.hub.leave(first);
    let mut requests = Vec::new();
    rig.hub.take_requests(&mut requests);
    let channel = name("news");
    let want = FeedRequest::Want { channel: channel.clone() };
    assert_eq!(requests, [want, FeedRequest::Count { channel: channel.clone(), joined: 2, left: 1 }]);
    for request in requests.drain(..) {
        rig.sequencer.apply(rig.now, 0, request);
    }
    rig.told();
    assert_eq!(rig.sequencer.info(&channel).map(|info| info.subscribers), Some(1));
    rig.hub.leave(second);
    rig.told();
    assert_eq!(rig.hub.due_ns(), Some(rig.now.mono_ns + UNWANTED_NS));
    rig.passes(29_000);
    let third = rig.subscribe(&["news"], Since::Now, Once::Never);
    rig.hub.leave(third);
    rig.told();
    rig.passes(2_000);
    rig.told();
    assert!(rig.sequencer.info(&channel).is_some(), "somebody was there two seconds ago");
    rig.passes(30_000);
    rig.told();
    rig.told();
    assert_eq!((rig.sequencer.info(&channel), rig.hub.channels(), rig.hub.due_ns()), (None, 0, None));
}

#[test]
fn an_unwanted_channel_that_is_wanted_again_is_opened_anew() {
    let mut rig = Rig::new(&plain());
    let id = rig.stream(&["news"], Since::Now);
    rig.hub.leave(id);
    rig.told();
    rig.publish("news", "a");
    rig.passes(31_000);
    rig.hub.slice(rig.now, 1, &mut rig.encoder, &mut Vec::new());
    rig.subscribe(&["news"], Since::All, Once::Never);
    // The feed for the first want arrives before the response to the second, and is ignored.
    let mut feed = Vec::new();
    rig.sequencer.take_feed(0, 10, &mut feed);
    assert!(matches!(&feed[..], [Feed::Message { .. }]));
    for item in feed {
        rig.hub.feed(rig.now, item);
    }
    assert_eq!(rig.said(), ["started 0"]);
    assert_eq!(rig.hub.channels(), 1);
}

#[test]
fn channels_come_to_a_running_stream_and_go() {
    let mut rig = Rig::new(&plain());
    rig.publish("b", "old");
    let id = rig.stream(&["a"], Since::Now);
    rig.hub.change(rig.now, id, &[name("b"), name("a")], &[]).expect("it is within limits");
    assert!(rig.said().is_empty(), "what is added begins now");
    rig.publish("b", "new");
    rig.publish("a", "x");
    assert_eq!(rig.said(), ["2:new 3:x @3"]);
    rig.hub.change(rig.now, id, &[], &[name("a"), name("none")]).expect("it is within limits");
    rig.hub.sent(id);
    rig.publish("a", "y");
    rig.publish("b", "z");
    assert_eq!(rig.said(), ["5:z @5"]);
    rig.hub.change(rig.now, id, &[], &[name("b")]).expect("it is within limits");
    rig.hub.sent(id);
    rig.publish("b", "nobody");
    assert!(rig.said().is_empty());
    rig.hub.leave(id);
    rig.hub.leave(id);
    assert_eq!(rig.hub.subscribers(), 0);
}

#[test]
fn a_stream_may_begin_without_a_channel() {
    let mut rig = Rig::new(&plain());
    let id = rig.stream(&[], Since::Now);
    rig.hub.change(rig.now, id, &[name("a")], &[]).expect("it is within limits");
    rig.carry();
    rig.publish("a", "x");
    assert_eq!(rig.said(), ["1:x @1"]);
}

#[test]
fn too_many_channels_are_refused_and_nothing_changes() {
    let mut limited = plain();
    limited.channels_per_stream = 2;
    limited.channels = 3;
    let mut rig = Rig::new(&limited);
    let subscribe = |channels: &[&str]| Subscribe {
        channels: channels.iter().map(|text| name(text)).collect(),
        since: Since::Now,
        form: Form(0),
        once: Once::Never,
        key: 0,
        member: None,
    };
    let on_stream = Err(SubscribeError::TooManyOnStream { most: 2 });
    assert_eq!(rig.hub.subscribe(rig.now, subscribe(&["a", "b", "c", "d"])), on_stream);
    let id = rig.hub.subscribe(rig.now, subscribe(&["a", "b", "a"])).expect("two are allowed");
    assert_eq!(
        rig.hub.change(rig.now, id, &[name("c")], &[]),
        Err(SubscribeError::TooManyOnStream { most: 2 })
    );
    rig.hub.change(rig.now, id, &[name("c")], &[name("a")]).expect("one for one");
    let too_many = Err(SubscribeError::TooManyChannels { most: 3 });
    assert_eq!(rig.hub.subscribe(rig.now, subscribe(&["d"])), too_many);
    assert!(rig.hub.subscribe(rig.now, subscribe(&["a"])).is_ok());
    assert_eq!((rig.hub.subscribers(), rig.hub.channels()), (2, 3));
}

#[test]
fn the_channel_that_was_empty_longest_makes_room_for_a_new_one() {
    let mut limited = plain();
    limited.channels = 3;
    let mut rig = Rig::new(&limited);
    let stays = rig.stream(&["stays"], Since::Now);
    for channel in ["a", "b", "a", "c", "d"] {
        let id = rig.stream(&[channel], Since::Now);
        rig.hub.leave(id);
        rig.told();
        rig.passes(10);
    }
    let known = |rig: &Rig, channel: &str| rig.sequencer.info(&name(channel)).is_some();
    assert!(!known(&rig, "a") && !known(&rig, "b"), "they were empty longest");
    assert!(known(&rig, "c") && known(&rig, "d"));
    rig.publish("stays", "x");
    assert_eq!(rig.told(), [(stays, "1:x @1".to_owned())]);
    // A released channel opens again on the next subscribe.
    rig.publish("a", "y");
    rig.subscribe(&["a"], Since::All, Once::Never);
    assert_eq!(rig.said(), ["started 1"]);
    assert_eq!(rig.hub.channels(), 3);
}

#[test]
fn members_are_told_when_they_come_and_go_and_a_poll_lingers() {
    let mut present = plain();
    present.default.presence = true;
    let mut rig = Rig::new(&present);
    let watcher = rig.stream(&["room"], Since::Now);
    let ada = |once| Subscribe {
        channels: vec![name("room")],
        since: Since::Now,
        form: Form(0),
        once,
        key: 0,
        member: Some(Member { name: "ada".into(), client: None }),
    };
    let stream = rig.hub.subscribe(rig.now, ada(Once::Never)).expect("it is within limits");
    let said = rig.said();
    assert!(said.contains(&"1:{\"name\":\"ada\"} @1".to_owned()), "{said:?}");
    let second = rig.hub.subscribe(rig.now, ada(Once::Never)).expect("it is within limits");
    rig.told();
    rig.hub.leave(stream);
    rig.hub.sent(watcher);
    assert!(rig.said().is_empty(), "one of two tabs was closed");
    assert_eq!(rig.sequencer.members(&name("room")), ["ada".into()]);
    rig.hub.leave(second);
    assert_eq!(rig.said(), ["2:{\"name\":\"ada\"} @2"]);
    assert!(rig.sequencer.members(&name("room")).is_empty());

    let poll = rig.hub.subscribe(rig.now, ada(Once::Oldest)).expect("it is within limits");
    rig.told();
    rig.hub.sent(watcher);
    rig.told();
    rig.hub.sent(watcher);
    rig.hub.leave(poll);
    rig.told();
    rig.passes(9_000);
    assert!(rig.said().is_empty());
    let again = rig.hub.subscribe(rig.now, ada(Once::Oldest)).expect("it is within limits");
    rig.told();
    rig.passes(2_000);
    assert!(rig.said().is_empty(), "it came back in time");
    rig.hub.leave(again);
    rig.told();
    assert_eq!(rig.hub.due_ns(), Some(rig.now.mono_ns + LINGER_NS));
    rig.passes(10_000);
    rig.told();
    assert_eq!(rig.said(), ["4:{\"name\":\"ada\"} @4"]);
}

#[test]
fn joins_and_leaves_are_delivered_between_messages_and_evict_none() {
    let mut present = plain();
    present.default.presence = true;
    present.default.messages = 3;
    present.default.members = 2;
    let mut rig = Rig::new(&present);
    let watcher = rig.stream(&["room"], Since::Now);
    let mut position = 0;
    for (number, data) in ["a", "b", "c", "d"].into_iter().enumerate() {
        rig.publish("room", data);
        for letter in ["x", "y"] {
            let member = Some(Member { name: format!("{letter}{number}").into(), client: None });
            let subscribe = Subscribe {
                channels: vec![name("room")],
                since: Since::Now,
                form: Form(0),
                once: Once::Never,
                key: 0,
                member,
            };
            let id = rig.hub.subscribe(rig.now, subscribe).expect("it is within limits");
            rig.carry();
            rig.hub.leave(id);
            rig.carry();
        }
        position += 5;
        let said = rig.said().join(" ");
        assert!(said.contains(&format!(":{data} ")), "{said}");
        assert!(said.ends_with(&format!("@{position}")), "it was told all: {said}");
        rig.hub.sent(watcher);
    }
    rig.hub.leave(watcher);
    // The ring keeps the last four of 16 joins and leaves, and the last three messages.
    rig.subscribe(&["room"], Since::All, Once::All);
    let all = "last 6:b 11:c 16:d 17:{\"name\":\"x3\"} 18:{\"name\":\"x3\"} 19:{\"name\":\"y3\"} \
               20:{\"name\":\"y3\"} @20";
    assert_eq!(rig.said(), [all]);
    rig.subscribe(&["room"], Since::Last(2), Once::All);
    assert_eq!(rig.said(), [all.replace("6:b ", "")], "joins and leaves do not count as messages");
    // A dropped join is no gap.
    rig.subscribe(&["room"], Since::After(Position { epoch: Epoch(7), offset: 8 }.into()), Once::All);
    assert_eq!(rig.said(), [all.replace("6:b ", "")]);
    let info = rig.sequencer.info(&name("room")).expect("it is there");
    assert_eq!((info.messages, info.members), (3, 0));
}

#[test]
fn a_reload_begins_and_ends_presence_for_those_who_are_there() {
    let mut rig = Rig::new(&plain());
    let ada = Subscribe {
        channels: vec![name("room")],
        since: Since::Now,
        form: Form(0),
        once: Once::Never,
        key: 0,
        member: Some(Member { name: "ada".into(), client: None }),
    };
    rig.hub.subscribe(rig.now, ada).expect("it is within limits");
    rig.told();
    assert!(rig.sequencer.members(&name("room")).is_empty());
    let mut present = plain();
    present.default.presence = true;
    for (rules, members) in [(present, 1), (plain(), 0)] {
        let rules = Arc::new(rules);
        rig.sequencer.reload(Arc::clone(&rules));
        rig.hub.reload(rules);
        rig.told();
        assert_eq!(rig.sequencer.members(&name("room")).len(), members);
    }
}

#[test]
fn what_a_heartbeat_says_is_true_and_stays_so() {
    let mut rig = Rig::new(&plain());
    let id = rig.stream(&["news"], Since::Now);
    let other = rig.stream(&["other"], Since::Now);
    rig.publish("other", "x");
    rig.told();
    rig.hub.sent(other);
    let position = rig.hub.position_of(id).expect("it is there");
    assert_eq!(offset(&position), 1);
    rig.publish("news", "a");
    rig.carry();
    assert_eq!(rig.hub.position_of(id), Some(position));
    assert_eq!(rig.said(), ["2:a @2"]);
}

#[test]
fn encodings_are_charged_until_the_last_connection_lets_go() {
    let mut rig = Rig::new(&plain());
    rig.stream(&["news"], Since::Now);
    rig.publish("news", &"x".repeat(10_000));
    rig.carry();
    let mut out = Vec::new();
    while rig.hub.slice(rig.now, 10, &mut rig.encoder, &mut out) {}
    assert!(rig.hub.memory() > 20);
    drop(out);
    assert_eq!(rig.hub.memory(), 0);
}

#[test]
fn while_those_who_stall_hold_much_nobody_gets_more_than_a_message_at_once() {
    let mut few = plain();
    few.memory_bytes = 40_000;
    let mut rig = Rig::new(&few);
    let ids = [rig.stream(&["news"], Since::Now), rig.stream(&["other"], Since::Now)];
    rig.publish("news", &"x".repeat(11_000));
    rig.carry();
    let mut held = Vec::new();
    let mut large = Large;
    while rig.hub.slice(rig.now, 10, &mut large, &mut held) {}
    for data in ["a", "b", "c"] {
        rig.publish("other", data);
    }
    assert_eq!(rig.told(), [(ids[1], "2:a @2 +2".to_owned())]);
    drop(held);
    assert!(rig.hub.memory() < 100);
    rig.hub.sent(ids[1]);
    assert_eq!(rig.said(), ["3:b 4:c @4"]);
}

/// Writes payloads only, so that large messages make large runs.
struct Large;

impl Encoder for Large {
    fn encode(&mut self, _: Form, run: &Run<'_>, out: &mut Vec<u8>) {
        out.extend(run.messages.iter().flat_map(|message| message.data.iter()));
    }
}

#[test]
fn a_parked_subscriber_goes_on_where_it_stood() {
    let mut rig = Rig::new(&Rules::default());
    let one = rig.subscribe(&["a"], Since::Now, Once::Never);
    let several = rig.subscribe(&["a", "b"], Since::Now, Once::Never);
    let poll = rig.subscribe(&["a"], Since::Now, Once::Oldest);
    for id in [one, several, poll] {
        assert!(rig.hub.parked(id).is_none(), "it was told nothing yet");
    }
    rig.told();
    assert!(rig.hub.parked(one).is_none(), "what it was told is on its way");
    for id in [one, several] {
        rig.hub.sent(id);
    }
    rig.publish("b", "before");
    assert_eq!(rig.said(), ["1:before @1"]);
    rig.hub.sent(several);
    let mut back = Vec::new();
    for id in [one, several, poll] {
        let parked = rig.hub.parked(id).expect("it is at rest");
        assert_eq!(parked.since, Since::After(Position { epoch: Epoch(7), offset: 1 }.into()));
        rig.hub.leave(id);
        back.push(rig.hub.subscribe(rig.now, parked).expect("it is within limits"));
    }
    assert_eq!(rig.said(), ["started 1", "waiting"], "no gap, and nothing twice");
    for id in &back[..2] {
        rig.hub.sent(*id);
    }
    rig.publish("a", "after");
    assert_eq!(rig.said(), ["2:after @2", "last 2:after @2"]);
}

#[test]
fn a_channel_is_said_to_be_unknown_when_the_sequencer_has_had_its_time_to_tell_it() {
    let mut rig = Rig::new(&Rules::default());
    let asks = rig.subscribe(&["a"], Since::Now, Once::Oldest);
    let several = rig.subscribe(&["a", "b"], Since::Now, Once::Oldest);
    rig.passes(TELLING_MS - 1);
    assert!(!rig.depends_on_others(asks) && !rig.depends_on_others(several), "an answer may be on its way");
    rig.passes(1);
    assert!(rig.depends_on_others(asks) && rig.depends_on_others(several), "there would have been one");
    rig.now.unix_ms -= 500_000;
    assert!(rig.depends_on_others(asks), "a clock that was set back hides nothing");
    rig.told();
    assert!(!rig.depends_on_others(asks) && !rig.depends_on_others(several), "it is known");
}

mod keyed;
mod reading;

#[test]
fn a_subscriber_that_stays_busy_is_shown_behind_and_counted_when_it_is_removed() {
    let mut rig = Rig::new(&rules(3, Overrun::Disconnect));
    let slow = rig.stream(&["news"], Since::Now);
    let state = |rig: &Rig| rig.hub.reader_states(slow, None, 9);
    assert_eq!((state(&rig)[0].behind, state(&rig)[0].behind_since_ms), (0, None));
    rig.publish("news", "first");
    assert_eq!(rig.told().len(), 1, "it is busy with this message");
    for text in ["one", "two"] {
        rig.publish("news", text);
    }
    rig.carry();
    let behind = &state(&rig)[0];
    assert_eq!((behind.channel.as_str(), behind.behind, behind.behind_bytes), ("news", 2, 6));
    assert_eq!(behind.behind_since_ms, Some(rig.now.unix_ms));
    for text in ["three", "four", "five"] {
        rig.publish("news", text);
    }
    rig.carry();
    rig.hub.sent(slow);
    assert_eq!(rig.told(), [(slow, "overrun".to_owned())]);
    assert!(state(&rig).is_empty());
    rig.carry();
    let figures = rig.sequencer.figures(&name("news"), 0).expect("it exists");
    assert_eq!((figures.slow_ended, figures.slow_skipped), (1, 0));
}
