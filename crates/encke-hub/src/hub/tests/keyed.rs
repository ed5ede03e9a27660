//! Unit tests of preambles, and of subscribers that start at a key frame.

use super::*;

const NONE: Flags = Flags::KEY_FRAME.without(Flags::KEY_FRAME);
const KEY: Flags = Flags::KEY_FRAME;
const HEAD: Flags = Flags::PREAMBLE;
const BREAK: Flags = Flags::PREAMBLE.with(Flags::BREAK);
const PART: Flags = Flags::CONTINUES;

impl Rig {
    fn media(&mut self, data: &str, flags: Flags) -> u64 {
        let draft = Draft { flags, ..draft("tv", data) };
        let published = self.sequencer.publish(self.now, draft).expect("it is within limits");
        published.done().expect("no store is waited for").position.offset
    }

    fn media_of(&mut self, messages: &[(&str, Flags)]) {
        for (data, flags) in messages {
            self.media(data, *flags);
        }
    }

    /// Adds a subscriber that starts at a key frame, and returns it with its deliveries until there are none.
    fn joins(&mut self) -> (SubscriberId, Vec<String>) {
        let id = self.subscribe(&["tv"], Since::Key, Once::Never);
        let mut said = self.reads(id);
        assert!(said.remove(0).starts_with("started"));
        (id, said)
    }

    /// Returns the deliveries to a subscriber that receives all of them. It is writable at the end.
    fn reads(&mut self, id: SubscriberId) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let mut said = self.told();
            said.retain(|(told, _)| *told == id);
            if said.is_empty() {
                return all;
            }
            all.extend(said.into_iter().map(|(_, words)| words));
            self.hub.sent(id);
        }
    }
}

#[test]
fn a_stream_starts_with_the_preamble_and_the_newest_key_frame() {
    let mut rig = Rig::new(&plain());
    rig.media_of(&[("head", HEAD), ("K1", KEY), ("a", NONE), ("K2", KEY), ("b", NONE)]);
    assert_eq!(rig.joins().1, ["1:head @1", "4:K2 5:b @5"]);
}

#[test]
fn a_channel_without_a_preamble_starts_with_the_key_frame() {
    let mut rig = Rig::new(&plain());
    rig.media_of(&[("a", NONE), ("K1", KEY), ("b", NONE)]);
    assert_eq!(rig.joins().1, ["2:K1 3:b @3"]);
    rig.media_of(&[("head", HEAD), ("K2", KEY), ("", HEAD), ("K3", KEY)]);
    assert_eq!(rig.joins().1, ["7:K3 @7"], "an empty preamble is none");
}

#[test]
fn the_preamble_is_kept_when_the_ring_has_dropped_it() {
    let mut rig = Rig::new(&rules(2, Overrun::Key));
    rig.media_of(&[("head", HEAD), ("a", NONE), ("b", NONE), ("K", KEY), ("c", NONE)]);
    assert_eq!(rig.joins().1, ["1:head @1", "4:K 5:c @5"]);
    // The worker had the channel already.
    rig.media_of(&[("next", HEAD), ("d", NONE), ("e", NONE), ("K", KEY)]);
    assert_eq!(rig.joins().1, ["6:next @6", "9:K @9"]);
}

#[test]
fn without_a_key_frame_a_subscriber_waits_for_one_and_is_not_behind() {
    let mut rig = Rig::new(&rules(3, Overrun::Disconnect));
    rig.media_of(&[("K1", KEY), ("head", HEAD), ("a", NONE)]);
    let (id, said) = rig.joins();
    assert_eq!(said, ["2:head @2"], "the key frame before the preamble is none of its own");
    for number in 0..9 {
        rig.media(&number.to_string(), NONE);
        rig.passes(500);
        assert!(rig.told().is_empty());
        assert!(rig.hub.waits(id));
        assert_eq!(rig.hub.lag(rig.now), Lag::default());
    }
    assert_eq!(rig.hub.reader_states(id, None, 1)[0].behind, 0);
    rig.media_of(&[("K2", KEY), ("b", NONE)]);
    assert_eq!(rig.reads(id), ["13:K2 14:b @14"]);
    let figures = rig.sequencer.figures(&name("tv"), 0).expect("it exists");
    assert_eq!((figures.slow_ended, figures.slow_skipped), (0, 0));
}

#[test]
fn a_subscriber_of_an_empty_channel_waits_for_its_preamble_and_its_key_frame() {
    let mut rig = Rig::new(&plain());
    let (id, said) = rig.joins();
    assert!(said.is_empty());
    rig.media("a", NONE);
    assert!(rig.reads(id).is_empty());
    rig.media("head", BREAK);
    assert_eq!(rig.reads(id), ["2:head @2"]);
    rig.media_of(&[("b", NONE), ("K", KEY)]);
    assert_eq!(rig.reads(id), ["4:K @4"]);
}

#[test]
fn the_end_of_a_stream_ends_subscribers_without_data_and_spares_later_ones() {
    let mut rig = Rig::new(&plain());
    let end = BREAK.with(Flags::END);
    let (early, said) = rig.joins();
    assert!(said.is_empty());
    // A break without data alone is the begin of a stream without a preamble.
    rig.media_of(&[("", BREAK), ("a", NONE)]);
    assert!(rig.reads(early).is_empty());
    rig.media("", end);
    assert_eq!(rig.reads(early), ["ended"]);
    let (late, said) = rig.joins();
    assert!(said.is_empty(), "the end is from before");
    rig.media_of(&[("head", BREAK), ("b", NONE), ("K", KEY)]);
    assert_eq!(rig.reads(late), ["4:head @4", "6:K @6"]);
    rig.media("", end);
    assert_eq!(rig.reads(late), ["ended"]);
}

#[test]
fn a_burst_starts_at_a_key_frame_of_its_age_or_else_at_the_oldest() {
    let mut rules = plain();
    rules.default.burst_ms = 1_000;
    let mut rig = Rig::new(&rules);
    rig.media_of(&[("head", HEAD), ("K1", KEY)]);
    for number in 2..5 {
        rig.passes(400);
        rig.media(&format!("K{number}"), KEY);
    }
    assert_eq!(rig.joins().1, ["1:head @1", "2:K1 3:K2 4:K3 5:K4 @5"]);
    rig.passes(200);
    assert_eq!(rig.joins().1, ["1:head @1", "3:K2 4:K3 5:K4 @5"]);
    rig.passes(9_000);
    assert_eq!(rig.joins().1, ["1:head @1", "5:K4 @5"]);
    rig.media_of(&[("next", HEAD), ("K5", KEY), ("K6", KEY)]);
    assert_eq!(rig.joins().1, ["6:next @6", "7:K5 8:K6 @8"], "none of the new preamble is old enough");
}

#[test]
fn a_preamble_without_a_break_flows_like_any_message() {
    let mut rig = Rig::new(&plain());
    rig.media_of(&[("head", HEAD), ("K1", KEY)]);
    let (id, _) = rig.joins();
    rig.media_of(&[("a", NONE), ("next", HEAD), ("b", NONE), ("K2", KEY)]);
    assert_eq!(rig.reads(id), ["3:a 4:next 5:b 6:K2 @6"]);
}

#[test]
fn a_break_ends_the_stream_after_everything_before_it() {
    let mut rig = Rig::new(&plain());
    rig.media_of(&[("head", HEAD), ("K1", KEY)]);
    let (id, _) = rig.joins();
    rig.media_of(&[("a", NONE), ("next", BREAK), ("K2", KEY)]);
    assert_eq!(rig.reads(id), ["3:a @3 +2", "ended"]);
    assert_eq!(rig.hub.subscribers(), 0);
    assert_eq!(rig.joins().1, ["4:next @4", "5:K2 @5"]);
    rig.carry();
    let figures = rig.sequencer.figures(&name("tv"), 0).expect("it exists");
    assert_eq!((figures.slow_ended, figures.slow_skipped), (0, 0), "it was not slow");
}

#[test]
fn a_break_ends_a_stream_that_has_received_only_a_preamble() {
    let mut rig = Rig::new(&plain());
    let (untouched, _) = rig.joins();
    rig.media("head", BREAK);
    assert_eq!(rig.reads(untouched), ["1:head @1"], "it had received nothing");
    rig.media("next", HEAD);
    assert_eq!(rig.reads(untouched), ["2:next @2"]);
    rig.media_of(&[("other", BREAK), ("K", KEY)]);
    assert_eq!(rig.reads(untouched), ["ended"]);
}

#[test]
fn a_break_without_a_preamble_separates_key_frames() {
    let mut rules = plain();
    rules.default.burst_ms = 1_000;
    let mut rig = Rig::new(&rules);
    rig.media("K1", KEY);
    let (id, _) = rig.joins();
    rig.media_of(&[("K2", KEY.with(Flags::BREAK)), ("a", NONE)]);
    assert_eq!(rig.reads(id), ["ended"]);
    assert_eq!(rig.joins().1, ["2:K2 3:a @3"]);
}

#[test]
fn a_slow_subscriber_continues_at_the_newest_key_frame_without_a_gap() {
    let mut rig = Rig::new(&rules(4, Overrun::Key));
    rig.media_of(&[("head", HEAD), ("K1", KEY)]);
    let (id, _) = rig.joins();
    rig.media("a", NONE);
    assert_eq!(rig.said(), ["3:a @3"]);
    rig.media_of(&[("b", NONE), ("K2", KEY), ("c", NONE), ("K3", KEY), ("d", NONE)]);
    rig.carry();
    rig.hub.sent(id);
    let skips = |rig: &Rig| rig.hub.reader_states(id, None, 1)[0].skips;
    assert_eq!(skips(&rig), 0);
    assert_eq!(rig.reads(id), ["7:K3 8:d @8"]);
    assert_eq!(skips(&rig), 1);
    // Now without a key frame in the ring.
    rig.media("e", NONE);
    assert_eq!(rig.said(), ["9:e @9"]);
    rig.media_of(&[("f", NONE), ("g", NONE), ("h", NONE), ("i", NONE), ("j", NONE)]);
    rig.carry();
    rig.hub.sent(id);
    assert!(rig.reads(id).is_empty());
    rig.media_of(&[("K4", KEY)]);
    assert_eq!(rig.reads(id), ["15:K4 @15"]);
    rig.carry();
    let figures = rig.sequencer.figures(&name("tv"), 0).expect("it exists");
    assert_eq!((figures.slow_ended, figures.slow_skipped, skips(&rig)), (0, 2, 2));
}

#[test]
fn a_slow_subscriber_receives_a_new_preamble_before_the_key_frame() {
    let mut rig = Rig::new(&rules(3, Overrun::Key));
    rig.media_of(&[("head", HEAD), ("K1", KEY)]);
    let (id, _) = rig.joins();
    rig.media("a", NONE);
    assert_eq!(rig.said(), ["3:a @3"]);
    rig.media_of(&[("next", HEAD), ("K2", KEY), ("b", NONE), ("K3", KEY), ("c", NONE)]);
    rig.carry();
    rig.hub.sent(id);
    assert_eq!(rig.reads(id), ["4:next @4", "7:K3 8:c @8"]);
}

#[test]
fn a_slow_subscriber_ends_at_a_break_that_it_has_missed() {
    for last in [&[("next", BREAK)][..], &[("next", BREAK), ("other", HEAD)]] {
        let mut rig = Rig::new(&rules(2, Overrun::Key));
        rig.media_of(&[("head", HEAD), ("K1", KEY)]);
        let (id, _) = rig.joins();
        rig.media("a", NONE);
        assert_eq!(rig.said(), ["3:a @3"]);
        rig.media_of(last);
        rig.media_of(&[("b", NONE), ("K2", KEY), ("c", NONE)]);
        // The worker is fed nothing meanwhile: it learns of the break with the loss.
        rig.carry();
        rig.hub.sent(id);
        assert_eq!(rig.reads(id), ["ended"]);
    }
}

#[test]
fn a_subscriber_that_loses_the_rest_of_a_unit_is_disconnected() {
    let mut rig = Rig::new(&rules(2, Overrun::Key));
    rig.media("K1", KEY);
    let (id, _) = rig.joins();
    rig.media_of(&[("a1", PART)]);
    assert_eq!(rig.said(), ["2:a1 @2"]);
    rig.media_of(&[("a2", PART), ("a3", NONE), ("K2", KEY), ("b", NONE)]);
    rig.carry();
    rig.hub.sent(id);
    assert_eq!(rig.reads(id), ["overrun"]);
    rig.carry();
    let figures = rig.sequencer.figures(&name("tv"), 0).expect("it exists");
    assert_eq!((figures.slow_ended, figures.slow_skipped), (1, 0));
}

#[test]
fn a_join_between_the_parts_of_a_unit_does_not_end_it() {
    let mut rules = rules(3, Overrun::Key);
    rules.default.presence = true;
    let mut rig = Rig::new(&rules);
    rig.media("K1", KEY);
    let (id, _) = rig.joins();
    rig.media("a1", PART);
    let member = Some(Member { name: "ada".into(), client: None });
    let (channels, since) = (vec![name("tv")], Since::Now);
    let ada = Subscribe { channels, since, form: Form(0), once: Once::Never, key: 1, member };
    rig.hub.subscribe(rig.now, ada).expect("it is within limits");
    assert_eq!(rig.reads(id).last().map(|last| last.ends_with("@3")), Some(true));
    let busy = rig.media("a2", PART);
    assert_eq!(rig.told().iter().filter(|(told, _)| *told == id).count(), 1);
    for _ in 0..9 {
        rig.media("b", NONE);
    }
    rig.carry();
    rig.hub.sent(id);
    assert_eq!((busy, rig.reads(id)), (4, vec!["overrun".to_owned()]));
}

#[test]
fn a_preamble_in_the_middle_of_a_unit_ends_the_stream() {
    let mut rig = Rig::new(&plain());
    rig.media_of(&[("head", HEAD), ("K1", KEY)]);
    let (id, _) = rig.joins();
    rig.media_of(&[("a1", PART), ("next", HEAD), ("K2", KEY)]);
    assert_eq!(rig.reads(id), ["3:a1 @3 +2", "ended"]);
}

#[test]
fn a_slow_subscriber_is_disconnected_if_the_policy_says_so() {
    let mut rig = Rig::new(&rules(2, Overrun::Disconnect));
    rig.media("K1", KEY);
    let (id, _) = rig.joins();
    rig.media("a", NONE);
    assert_eq!(rig.said(), ["2:a @2"]);
    rig.media_of(&[("b", NONE), ("K2", KEY), ("c", NONE)]);
    rig.carry();
    rig.hub.sent(id);
    assert_eq!(rig.reads(id), ["overrun"]);
}

#[test]
fn other_subscribers_receive_each_message_and_skip_with_a_gap() {
    let mut rig = Rig::new(&rules(9, Overrun::Key));
    rig.media_of(&[("head", HEAD), ("K1", KEY)]);
    let (other, keyed) = (rig.stream(&["tv"], Since::Now), rig.joins().0);
    rig.hub.sent(other);
    rig.media_of(&[("a", NONE), ("next", BREAK), ("K2", KEY)]);
    let mut told = rig.told();
    told.sort();
    let whole = "3:a 4:next 5:K2 @5".to_owned();
    assert_eq!(told, [(other, whole.clone()), (keyed, "3:a @3 +2".to_owned())]);
    // A run up to the break fits any subscriber; the whole one does not.
    let late = rig.stream(&["tv"], Since::After(Position { epoch: Epoch(7), offset: 2 }.into()));
    assert_eq!(rig.reads(late), [whole]);
    for number in 0..20 {
        rig.media(&number.to_string(), NONE);
    }
    rig.carry();
    rig.hub.sent(other);
    let said = rig.reads(other);
    assert_eq!(said[0], "gap 5-16 @16");
    assert!(said[1].starts_with("17:11 18:12"), "{said:?}");
}

#[test]
fn five_hundred_subscribers_share_their_encodings() {
    let mut rig = Rig::new(&plain());
    rig.media_of(&[("head", HEAD), ("K1", KEY), ("a", NONE)]);
    rig.carry();
    let ids: Vec<_> = (0..500).map(|_| rig.subscribe(&["tv"], Since::Key, Once::Never)).collect();
    assert_eq!(rig.told().len(), 500);
    for _ in 0..2 {
        ids.iter().for_each(|id| rig.hub.sent(*id));
        let mut out = Vec::new();
        while rig.hub.slice(rig.now, 64, &mut rig.encoder, &mut out) {}
        let bytes = |delivery: &Delivery| match &delivery.what {
            DeliveryContent::Bytes(bytes) => Arc::clone(bytes),
            other => panic!("{other:?}"),
        };
        let first = bytes(&out[0]);
        assert_eq!(out.len(), 500);
        assert!(out.iter().all(|delivery| Arc::ptr_eq(&bytes(delivery), &first)));
    }
    assert_eq!(rig.encoder.made, 2);
    // The preamble stays encoded for the next subscriber.
    rig.media("b", NONE);
    let (_, said) = rig.joins();
    assert_eq!((said[0].as_str(), rig.encoder.made), ("1:head @1", 3));
    rig.media_of(&[("next", HEAD), ("K2", KEY)]);
    assert_eq!(rig.joins().1, ["5:next @5", "6:K2 @6"]);
}

#[test]
fn polls_and_subscribers_of_several_channels_do_not_start_at_a_key_frame() {
    let mut rig = Rig::new(&plain());
    rig.media_of(&[("head", HEAD), ("K1", KEY), ("a", NONE), ("b", NONE)]);
    rig.subscribe(&["tv"], Since::Key, Once::All);
    assert_eq!(rig.said(), ["last 4:b @4"]);
    let id = rig.subscribe(&["tv", "news"], Since::Key, Once::Never);
    assert_eq!(rig.said(), ["started 4"]);
    rig.hub.sent(id);
    rig.media("next", BREAK);
    assert_eq!(rig.said(), ["5:next @5"]);
}

#[test]
fn a_subscriber_that_changes_its_channels_becomes_an_ordinary_one() {
    let mut rig = Rig::new(&plain());
    rig.media_of(&[("head", HEAD), ("K1", KEY)]);
    let (flows, waits) = (rig.joins().0, rig.stream(&["tv"], Since::Key));
    for id in [flows, waits] {
        assert!(rig.hub.parked(id).is_none(), "a position does not describe it");
        rig.hub.change(rig.now, id, &[name("news")], &[]).expect("it is within limits");
    }
    rig.reads(waits);
    rig.media_of(&[("next", BREAK)]);
    rig.publish("news", "x");
    assert_eq!(rig.said(), ["3:next 4:x @4"]);
    rig.hub.sent(flows);
    assert!(rig.hub.parked(flows).is_some());
}

#[test]
fn a_worker_learns_of_a_preamble_that_was_lost_before_it_was_fed() {
    let mut rig = Rig::new(&rules(2, Overrun::Key));
    rig.media("K0", KEY);
    let (id, _) = rig.joins();
    rig.media_of(&[("head", BREAK), ("a", NONE), ("b", NONE), ("K1", KEY), ("c", NONE)]);
    assert_eq!(rig.reads(id), ["ended"]);
    assert_eq!(rig.joins().1, ["2:head @2", "5:K1 6:c @6"]);
}

#[test]
fn a_deleted_preamble_is_lost_on_each_worker_even_if_messages_follow_at_once() {
    let mut rig = Rig::new(&plain());
    rig.media_of(&[("head", HEAD), ("K1", KEY)]);
    let (id, said) = rig.joins();
    assert_eq!(said.len(), 2);
    rig.sequencer.delete(&name("tv"));
    rig.media_of(&[("K2", KEY)]);
    assert_eq!(rig.reads(id), ["3:K2 @3"]);
    assert_eq!(rig.joins().1, ["3:K2 @3"]);
}

#[test]
fn the_preamble_is_charged_once_and_for_as_long_as_it_is_kept() {
    let each = |bytes: u64| 16 + 88 + bytes + 8;
    let mut rules = rules(2, Overrun::Key);
    rules.default.age_ms = 1_000;
    let mut rig = Rig::new(&rules);
    rig.subscribe(&["tv"], Since::Key, Once::Never);
    rig.told();
    rig.media("head", HEAD);
    assert_eq!(rig.sequencer.memory(), each(4));
    rig.media("a", NONE);
    assert_eq!(rig.sequencer.memory(), each(4) + each(1));
    rig.media_of(&[("b", NONE), ("c", NONE)]);
    assert_eq!(rig.sequencer.memory(), each(4) + 2 * each(1), "the ring has dropped it");
    let info = rig.sequencer.info(&name("tv")).expect("it exists");
    assert_eq!((info.messages, info.bytes), (2, 2 * each(1)), "it is no message of the history");
    rig.media("next!", HEAD);
    assert_eq!(rig.sequencer.memory(), each(5) + each(1), "replaced");
    rig.passes(500);
    rig.media_of(&[("d", NONE), ("e", NONE)]);
    rig.passes(500);
    rig.sequencer.expire(rig.now);
    assert_eq!(rig.sequencer.memory(), each(5) + 2 * each(1), "no message of the ring is too old");
    rig.passes(500);
    rig.sequencer.expire(rig.now);
    assert_eq!(rig.sequencer.memory(), 0, "expired with the last message");
    rig.media_of(&[("third", HEAD), ("f", NONE), ("g", NONE)]);
    rig.sequencer.delete(&name("tv"));
    assert_eq!(rig.sequencer.memory(), 0, "deleted");
}

#[test]
fn the_memory_limit_counts_preambles_and_evicts_them_with_their_channel() {
    let mut rules = rules(2, Overrun::Key);
    rules.memory_bytes = 4_000;
    let mut rig = Rig::new(&rules);
    let large = "x".repeat(2_000);
    rig.media_of(&[(&large, HEAD), ("a", NONE), ("b", NONE)]);
    let before = rig.sequencer.memory();
    assert!(before > 2_000);
    rig.publish("news", &large);
    assert!(rig.sequencer.memory() < 2_200, "the channel and its preamble: {}", rig.sequencer.memory());
    assert_eq!(rig.sequencer.info(&name("tv")), None);
}

#[test]
fn a_preamble_is_saved_and_restored() {
    let rules = rules(2, Overrun::Key);
    let mut rig = Rig::new(&rules);
    rig.media_of(&[("head", HEAD), ("a", NONE), ("b", NONE), ("K", KEY), ("c", NONE)]);
    let memory = rig.sequencer.memory();
    let saved = rig.sequencer.save();
    rig.sequencer = Sequencer::restore(rig.now, saved, 1_000, Arc::new(rules.clone()), 1);
    rig.hub = Hub::new(0, Epoch(7), Arc::new(rules));
    assert_eq!(rig.sequencer.memory(), memory);
    assert_eq!(rig.joins().1, ["1:head @1", "4:K 5:c @5"]);
    rig.sequencer.delete(&name("tv"));
    assert_eq!(rig.sequencer.memory(), 0);
}
