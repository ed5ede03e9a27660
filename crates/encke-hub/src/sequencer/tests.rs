//! Unit tests of the sequencer.

use super::*;
use crate::message::IdempotencyKey;

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).expect("a name")
}

fn draft(channel: &str, data: &[u8]) -> Draft {
    Draft {
        channel: name(channel),
        data: data.into(),
        content_type: None,
        event: None,
        flags: Flags::default(),
        key: None,
    }
}

fn at(ms: u64) -> HubNow {
    HubNow { mono_ns: ms * 1_000_000, unix_ms: 1_000_000 + ms }
}

fn sequencer(change: impl FnOnce(&mut Rules)) -> Sequencer {
    let mut rules = Rules::default();
    change(&mut rules);
    Sequencer::new(Epoch(7), Arc::new(rules), 2)
}

fn publish(sequencer: &mut Sequencer, now: HubNow, channel: &str) -> u64 {
    published(sequencer.publish(now, draft(channel, b"0123456789"))).position.offset
}

/// Returns the result of a publish that waits for no store.
fn published(publishing: Result<Publishing, PublishError>) -> Published {
    publishing.expect("it is within limits").done().expect("no store is waited for")
}

/// Returns the offsets of the kept messages of a channel.
fn kept(sequencer: &Sequencer, channel: &str) -> Vec<u64> {
    let saved = sequencer.save();
    let found = saved.channels.iter().find(|saved| saved.name == name(channel));
    found.map_or_else(Vec::new, |saved| saved.messages.iter().map(|stored| stored.message.offset).collect())
}

/// Returns the feed of a worker as text: `open a 0-5 [1, 2]`, `a 3 lost 0`, `a lost 4`.
fn fed(sequencer: &mut Sequencer, core: usize, most: usize) -> Vec<String> {
    let mut feed = Vec::new();
    sequencer.take_feed(core, most, &mut feed);
    let words = |item: &Feed| match item {
        Feed::Opened { channel, lost_to, head, messages, .. } => {
            let offsets: Vec<u64> = messages.iter().map(|message| message.offset).collect();
            format!("open {channel} {lost_to}-{head} {offsets:?}")
        }
        Feed::Message { message, lost_to } => {
            format!("{} {} lost {lost_to}", message.channel, message.offset)
        }
        Feed::Lost { channel, to, .. } => format!("{channel} lost {to}"),
        Feed::Head { to } => format!("head {to}"),
        Feed::Newest { to, .. } => format!("newest {to}"),
        Feed::Recalled { run, .. } => format!("recalled up to {} lost {}", run.to, run.lost_to),
    };
    feed.iter().map(words).collect()
}

#[test]
fn a_channel_keeps_as_many_messages_and_bytes_as_its_rules_say() {
    let one = 16 + 88 + 10 + 8;
    let mut sequencer = sequencer(|rules| {
        rules.set("a".parse().expect("a pattern"), ChannelRules { messages: 2, ..rules.default });
        rules.set("b".parse().expect("a pattern"), ChannelRules { bytes: 3 * one, ..rules.default });
        rules.set("c".parse().expect("a pattern"), ChannelRules { messages: 0, bytes: 0, ..rules.default });
    });
    for _ in 0..5 {
        for channel in ["a", "b", "c"] {
            publish(&mut sequencer, at(0), channel);
        }
    }
    assert_eq!(kept(&sequencer, "a"), [10, 13]);
    assert_eq!(kept(&sequencer, "b"), [8, 11, 14]);
    assert_eq!(kept(&sequencer, "c"), [15]);
    let position = |offset| Some(Position { epoch: Epoch(7), offset });
    let info = Info {
        kept: true,
        messages: 3,
        bytes: 3 * one,
        first: position(8),
        last: position(14),
        subscribers: 0,
        members: 0,
    };
    assert_eq!(sequencer.info(&name("b")), Some(info));
    assert_eq!(sequencer.memory(), 6 * one);
}

#[test]
fn what_is_too_old_goes_and_the_next_moment_is_told() {
    let mut sequencer = sequencer(|rules| rules.default.age_ms = 100);
    publish(&mut sequencer, at(0), "a");
    publish(&mut sequencer, at(30), "b");
    publish(&mut sequencer, at(60), "a");
    assert_eq!(sequencer.expire(at(99)), Some(100 * 1_000_000));
    assert_eq!(sequencer.expire(at(100)), Some(130 * 1_000_000));
    assert_eq!((kept(&sequencer, "a"), kept(&sequencer, "b")), (vec![3], vec![2]));
    assert_eq!(sequencer.expire(at(130)), Some(160 * 1_000_000));
    assert_eq!((sequencer.info(&name("b")), sequencer.forgotten_to()), (None, 2));
    assert_eq!(sequencer.expire(at(160)), None);
    assert_eq!((sequencer.channels(), sequencer.forgotten_to(), sequencer.memory()), (0, 3, 0));
}

#[test]
fn messages_keep_their_age_when_the_clock_is_set() {
    const YEAR_MS: u64 = 365 * 24 * 3_600_000;
    let mut sequencer = sequencer(|rules| rules.default.age_ms = 60_000);
    let moment =
        |mono_ms: u64, set_ms: u64| HubNow { mono_ns: mono_ms * 1_000_000, unix_ms: mono_ms + set_ms };
    publish(&mut sequencer, moment(0, 0), "a");
    publish(&mut sequencer, moment(20_000, 0), "a");
    sequencer.expire(moment(20_000, 0));
    // The clock is set forward, and a message later once more.
    assert_eq!(sequencer.expire(moment(30_000, YEAR_MS)), Some(60_000 * 1_000_000));
    publish(&mut sequencer, moment(40_000, YEAR_MS), "a");
    sequencer.expire(moment(45_000, 2 * YEAR_MS));
    publish(&mut sequencer, moment(50_000, 2 * YEAR_MS), "a");
    for (mono_ms, left) in [
        (59_999, vec![1, 2, 3, 4]),
        (60_000, vec![2, 3, 4]),
        (79_999, vec![2, 3, 4]),
        (80_000, vec![3, 4]),
        (99_999, vec![3, 4]),
        (105_000, vec![4]),
        (109_999, vec![4]),
        (110_000, vec![]),
    ] {
        sequencer.expire(moment(mono_ms, 2 * YEAR_MS));
        assert_eq!(kept(&sequencer, "a"), left, "after {mono_ms} ms");
    }
    // Set back, it makes them older by nothing.
    publish(&mut sequencer, moment(200_000, 2 * YEAR_MS), "a");
    sequencer.expire(moment(200_001, 0));
    assert_eq!(kept(&sequencer, "a"), vec![5]);
}

#[test]
fn history_that_was_used_least_recently_makes_room_first() {
    let one = 16 + 88 + 10 + 8;
    let mut sequencer = sequencer(|rules| rules.memory_bytes = 4 * one);
    for channel in ["a", "a", "b", "c"] {
        publish(&mut sequencer, at(0), channel);
    }
    // A want counts as a use of the history.
    sequencer.want(0, &name("a"));
    publish(&mut sequencer, at(0), "d");
    assert_eq!(sequencer.info(&name("b")), None);
    publish(&mut sequencer, at(0), "d");
    assert_eq!(sequencer.info(&name("c")), None);
    publish(&mut sequencer, at(0), "d");
    assert_eq!((kept(&sequencer, "a"), kept(&sequencer, "d")), (vec![2], vec![5, 6, 7]));
    publish(&mut sequencer, at(0), "d");
    publish(&mut sequencer, at(0), "d");
    assert_eq!((kept(&sequencer, "a"), kept(&sequencer, "d")), (vec![], vec![6, 7, 8, 9]));
    assert!(sequencer.info(&name("a")).is_some(), "it is wanted");
}

#[test]
fn lent_memory_is_missing_until_it_is_returned() {
    let one = 16 + 88 + 10 + 8;
    let mut sequencer = sequencer(|rules| rules.memory_bytes = 4 * one);
    for channel in ["a", "b", "c", "d"] {
        publish(&mut sequencer, at(0), channel);
    }
    sequencer.lend(2 * one);
    assert_eq!((sequencer.info(&name("b")), sequencer.memory()), (None, 2 * one));
    publish(&mut sequencer, at(0), "e");
    assert_eq!((sequencer.info(&name("c")), sequencer.memory()), (None, 2 * one));
    sequencer.lend(one);
    publish(&mut sequencer, at(0), "f");
    assert_eq!((kept(&sequencer, "d").len(), sequencer.memory()), (1, 3 * one));
}

#[test]
fn the_charge_is_the_sum_of_all_messages_after_every_step() {
    let mut seed = 42_u64;
    println!("seed {seed}");
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut sequencer = sequencer(|rules| {
        rules.memory_bytes = 5_000;
        rules.default.messages = 9;
        rules.default.age_ms = 300;
    });
    let mut most = 0;
    for step in 0..5_000 {
        let channel = format!("c/{}", random(12));
        match random(12) {
            0 => {
                sequencer.delete(&name(&channel));
            }
            1 => sequencer.want(random(2) as usize, &name(&channel)),
            2 => sequencer.unwant(random(2) as usize, &name(&channel)),
            3 => {
                sequencer.expire(at(step));
            }
            _ => {
                let data = vec![0; random(200) as usize];
                sequencer.publish(at(step), draft(&channel, &data)).expect("it is within limits");
            }
        }
        let saved = sequencer.save();
        let messages = saved.channels.iter().flat_map(|channel| &channel.messages);
        assert_eq!(sequencer.memory(), messages.map(|stored| stored.message.charge()).sum::<u64>());
        assert!(sequencer.memory() <= 5_000);
        assert!(saved.channels.iter().all(|channel| !channel.messages.is_empty()));
        most = most.max(sequencer.memory());
    }
    assert!(most > 4_500, "the limit was never reached");
}

#[test]
fn a_publish_with_a_key_happens_once() {
    let mut sequencer = sequencer(|rules| rules.key_window_ms = 1_000);
    let keyed = |data: &[u8]| Draft {
        key: Some(IdempotencyKey { publisher: 1, key: "k".into() }),
        ..draft("news", data)
    };
    let first = published(sequencer.publish(at(0), keyed(b"a")));
    let again = published(sequencer.publish(at(999), keyed(b"a")));
    assert_eq!(again, Published { repeated: true, ..first });
    assert_eq!(sequencer.publish(at(999), keyed(b"b")), Err(PublishError::KeyMismatch));
    let later = published(sequencer.publish(at(1_000), keyed(b"b")));
    assert_eq!((later.repeated, later.position.offset), (false, 2));
}

#[test]
fn what_may_not_be_published_is_refused_and_leaves_nothing() {
    let mut sequencer = sequencer(|rules| {
        rules.message_bytes = 10;
        rules.channels = 1;
    });
    let text = |text: &str| Some(Box::from(text));
    let refused = [
        (draft("a", b"01234567890"), PublishError::TooLarge { bytes: 11, most: 10 }),
        (Draft { event: text("encke.join"), ..draft("a", b"") }, PublishError::ReservedEvent),
        (Draft { event: text("a\nid: 7"), ..draft("a", b"") }, PublishError::BadEvent),
        (Draft { event: text(""), ..draft("a", b"") }, PublishError::BadEvent),
        (Draft { content_type: text("text/plain\r\nx"), ..draft("a", b"") }, PublishError::BadType),
        (
            Draft {
                key: Some(IdempotencyKey { publisher: 0, key: "k".repeat(256).into() }),
                ..draft("a", b"")
            },
            PublishError::KeyTooLong,
        ),
    ];
    for (draft, refusal) in refused {
        assert_eq!(sequencer.publish(at(0), draft), Err(refusal));
        assert!(!refusal.to_string().is_empty());
        assert_eq!((sequencer.channels(), sequencer.newest().offset), (0, 0));
    }
    assert!(sequencer.publish(at(0), draft("a", b"0123456789")).is_ok());
    assert_eq!(sequencer.publish(at(0), draft("b", b"")), Err(PublishError::TooManyChannels { most: 1 }));
    let control = Draft { flags: Flags::CONTROL.with(Flags::KEY_FRAME), ..draft("a", b"") };
    sequencer.publish(at(0), control).expect("flags are no fault");
    let flags = sequencer.save().channels[0].messages[1].message.flags;
    assert_eq!(flags, Flags::KEY_FRAME);
}

#[test]
fn a_core_is_told_everything_it_wants_in_the_order_of_all() {
    let mut sequencer = sequencer(|_| {});
    publish(&mut sequencer, at(0), "a");
    publish(&mut sequencer, at(0), "b");
    sequencer.want(0, &name("a"));
    sequencer.want(0, &name("c"));
    assert_eq!(fed(&mut sequencer, 0, 9), ["open a 0-2 [1]", "open c 0-2 []"]);
    assert!(!sequencer.has_feed(0));
    for channel in ["c", "b", "a", "a", "c"] {
        publish(&mut sequencer, at(0), channel);
    }
    assert!(sequencer.has_feed(0) && !sequencer.has_feed(1));
    assert_eq!(fed(&mut sequencer, 0, 2), ["c 3 lost 0", "a 5 lost 0"]);
    // A channel that opens in between starts at the worker's offset, and continues in the same order.
    sequencer.want(0, &name("b"));
    assert_eq!(fed(&mut sequencer, 0, 9), ["open b 0-5 [2, 4]", "a 6 lost 0", "c 7 lost 0"]);
    sequencer.unwant(0, &name("a"));
    publish(&mut sequencer, at(0), "a");
    publish(&mut sequencer, at(0), "b");
    assert_eq!(fed(&mut sequencer, 0, 9), ["b 9 lost 0"]);
    assert!(!sequencer.has_feed(0));
}

#[test]
fn how_far_a_core_was_told_is_known() {
    let mut sequencer = sequencer(|_| {});
    sequencer.want(1, &name("a"));
    sequencer.want(1, &name("b"));
    fed(&mut sequencer, 1, 10);
    for channel in ["a", "b", "c", "a"] {
        publish(&mut sequencer, at(0), channel);
    }
    let mut told = vec![sequencer.fed_to(1)];
    while sequencer.has_feed(1) && told.len() < 10 {
        fed(&mut sequencer, 1, 1);
        told.push(sequencer.fed_to(1));
    }
    // The worker does not want the channel of the third message.
    assert_eq!(told, [0, 1, 3, 4]);
    assert_eq!(sequencer.fed_to(0), 4, "it wants nothing");
}

#[test]
fn a_core_that_stays_away_is_told_what_it_has_lost_at_its_place() {
    let mut sequencer = sequencer(|rules| rules.default.messages = 2);
    for channel in ["a", "b"] {
        sequencer.want(0, &name(channel));
    }
    fed(&mut sequencer, 0, 9);
    for channel in ["a", "b", "a", "a", "b", "a"] {
        publish(&mut sequencer, at(0), channel);
    }
    // Messages 1 and 3 of `a` are lost. The loss is fed before message 2, not with message 4.
    assert_eq!(
        fed(&mut sequencer, 0, 9),
        ["a lost 3", "b 2 lost 0", "a 4 lost 3", "b 5 lost 0", "a 6 lost 3"]
    );
    sequencer.delete(&name("b"));
    assert_eq!(fed(&mut sequencer, 0, 9), ["b lost 5"]);
    assert!(fed(&mut sequencer, 0, 9).is_empty());
    // A loss and the message after it are one item.
    sequencer.delete(&name("a"));
    publish(&mut sequencer, at(0), "a");
    assert_eq!(fed(&mut sequencer, 0, 9), ["a 7 lost 6"]);
}

#[test]
fn a_core_without_news_is_told_now_and_then_how_far_the_stream_is() {
    let mut sequencer = sequencer(|_| {});
    sequencer.want(0, &name("quiet"));
    assert_eq!(fed(&mut sequencer, 0, 9), ["open quiet 0-0 []"]);
    publish(&mut sequencer, at(0), "other");
    sequencer.expire(at(1));
    assert!(sequencer.has_feed(0) && !sequencer.has_feed(1));
    assert_eq!(fed(&mut sequencer, 0, 9), ["head 1"]);
    publish(&mut sequencer, at(2), "other");
    sequencer.expire(at(1_000));
    assert!(fed(&mut sequencer, 0, 9).is_empty());
    sequencer.expire(at(1_001));
    publish(&mut sequencer, at(1_001), "quiet");
    assert_eq!(fed(&mut sequencer, 0, 9), ["quiet 3 lost 0"]);
    sequencer.expire(at(9_000));
    assert!(!sequencer.has_feed(0));
}

#[test]
fn subscribers_of_all_cores_are_counted() {
    let mut sequencer = sequencer(|_| {});
    let news = name("news");
    for core in [0, 1] {
        sequencer.want(core, &news);
        sequencer.count(core, &news, 5, 2);
    }
    let subscribers = published(sequencer.publish(at(0), draft("news", b""))).subscribers;
    assert_eq!(subscribers, 6);
    sequencer.unwant(0, &news);
    sequencer.count(0, &news, 9, 0);
    sequencer.count(1, &news, 0, 9);
    assert_eq!(sequencer.info(&news).map(|info| info.subscribers), Some(0));
}

#[test]
fn a_channel_exists_while_it_has_a_message_or_is_wanted() {
    let mut sequencer = sequencer(|_| {});
    let news = name("news");
    sequencer.want(0, &news);
    sequencer.want(1, &news);
    publish(&mut sequencer, at(0), "news");
    sequencer.unwant(0, &news);
    assert_eq!(sequencer.delete(&news), Deletion::Done);
    assert!(sequencer.info(&news).is_some());
    sequencer.unwant(1, &news);
    assert_eq!((sequencer.info(&news), sequencer.forgotten_to()), (None, 1));
    assert_eq!(sequencer.delete(&news), Deletion::Absent);
    // The losses of a position before 1 are unknown.
    sequencer.want(0, &news);
    assert_eq!(fed(&mut sequencer, 0, 9), ["open news 1-1 []"]);
}

#[test]
fn what_is_saved_goes_on_in_the_same_epoch() {
    let mut first = sequencer(|rules| rules.default.messages = 3);
    for channel in ["a", "b", "a", "a", "c", "a"] {
        publish(&mut first, at(0), channel);
    }
    first.want(0, &name("c"));
    first.delete(&name("c"));
    first.want(0, &name("b"));
    let saved = first.save();
    assert_eq!(saved.channels.iter().map(|channel| channel.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let mut rules = Rules::default();
    rules.default.messages = 2;
    let mut second = Sequencer::restore(at(0), saved, u64::MAX, Arc::new(rules), 1);
    assert_eq!((second.newest(), second.forgotten_to()), (first.newest(), 5));
    assert_eq!((kept(&second, "a"), kept(&second, "b")), (vec![4, 6], vec![2]));
    assert_eq!(publish(&mut second, at(1), "a"), 7);
    second.want(0, &name("a"));
    assert_eq!(fed(&mut second, 0, 9), ["open a 4-7 [6, 7]"]);
    assert_eq!(second.expire(at(0)), Some(600_000 * 1_000_000));
    let charges = |sequencer: &Sequencer| {
        let saved = sequencer.save();
        saved.channels.iter().flat_map(|one| &one.messages).map(|stored| stored.message.charge()).sum::<u64>()
    };
    assert_eq!(second.memory(), charges(&second));
}

#[test]
fn new_rules_hold_at_once() {
    let mut sequencer = sequencer(|_| {});
    sequencer.want(0, &name("a"));
    fed(&mut sequencer, 0, 9);
    for _ in 0..5 {
        publish(&mut sequencer, at(0), "a");
    }
    fed(&mut sequencer, 0, 9);
    let mut rules = Rules::default();
    rules.default.messages = 2;
    rules.default.age_ms = 50;
    sequencer.reload(Arc::new(rules));
    assert_eq!(kept(&sequencer, "a"), [4, 5]);
    assert_eq!(fed(&mut sequencer, 0, 9), ["a lost 3"]);
    assert_eq!(sequencer.expire(at(49)), Some(50 * 1_000_000));
    sequencer.expire(at(50));
    assert!(kept(&sequencer, "a").is_empty());
}

#[test]
fn one_publisher_evicts_no_key_of_another() {
    let mut sequencer = sequencer(|rules| rules.memory_bytes = 1_000_000);
    let keyed = |channel: &str, publisher, key: &str| Draft {
        key: Some(IdempotencyKey { publisher, key: key.into() }),
        ..draft(channel, b"a")
    };
    let first = published(sequencer.publish(at(0), keyed("news", 1, "k")));
    for number in 0..130_000 {
        let flood = keyed(&format!("flood/{}", number % 130), 2, &number.to_string());
        assert!(!published(sequencer.publish(at(1), flood)).repeated);
    }
    let again = published(sequencer.publish(at(2), keyed("news", 1, "k")));
    assert_eq!(again, Published { repeated: true, ..first });
}

#[test]
fn channels_without_message_and_subscriber_count_towards_no_limit() {
    let mut sequencer = sequencer(|rules| rules.channels = 2);
    for (core, channel) in [(0, "a"), (1, "a"), (0, "b"), (0, "c")] {
        sequencer.want(core, &name(channel));
        sequencer.count(core, &name(channel), 1, 1);
    }
    publish(&mut sequencer, at(0), "d");
    sequencer.count(1, &name("a"), 1, 0);
    let refused = Err(PublishError::TooManyChannels { most: 2 });
    assert_eq!(sequencer.publish(at(0), draft("e", b"")), refused);
    sequencer.unwant(1, &name("a"));
    publish(&mut sequencer, at(0), "b");
    assert_eq!(sequencer.publish(at(0), draft("e", b"")), refused);
    sequencer.delete(&name("b"));
    publish(&mut sequencer, at(0), "e");
    assert_eq!(sequencer.publish(at(0), draft("f", b"")), refused);
}

fn member(name: &str, client: Option<u64>) -> Member {
    Member { name: name.into(), client }
}

#[test]
fn joins_and_leaves_evict_no_message() {
    let mut sequencer = sequencer(|rules| {
        rules.default =
            ChannelRules { presence: true, messages: 3, bytes: 400, members: 10, ..rules.default };
    });
    let room = name("room");
    sequencer.want(0, &room);
    sequencer.want(1, &room);
    fed(&mut sequencer, 0, 9);
    fed(&mut sequencer, 1, 9);
    for _ in 0..3 {
        publish(&mut sequencer, at(0), "room");
    }
    for number in 0..220 {
        let member = member(&format!("m{number}"), None);
        sequencer.member_joins(at(0), &room, &member);
        sequencer.member_leaves(at(0), &room, &member.name);
        if number % 7 == 0 {
            fed(&mut sequencer, 0, 9);
        }
    }
    let kept_now = kept(&sequencer, "room");
    assert_eq!((&kept_now[..3], kept_now.len()), (&[1, 2, 3][..], 23));
    // A worker that took no feed meanwhile gets the whole ring in order, and no loss.
    let all: Vec<String> = kept_now.iter().map(|offset| format!("room {offset} lost 0")).collect();
    assert_eq!(fed(&mut sequencer, 1, 99), all);
    assert!(fed(&mut sequencer, 0, 99).ends_with(&all[20..]));
    publish(&mut sequencer, at(0), "room");
    assert_eq!(kept(&sequencer, "room")[..3], [2, 3, 424]);
}

#[test]
fn a_channel_lists_no_more_members_than_its_rules_say() {
    let mut sequencer = sequencer(|rules| {
        rules.default = ChannelRules { presence: true, members: 2, ..rules.default };
    });
    let room = name("room");
    sequencer.want(0, &room);
    let [ann, bob, cid] = ["ann", "bob", "cid"].map(|name| member(name, None));
    for member in [&ann, &bob, &cid] {
        sequencer.member_joins(at(0), &room, member);
    }
    assert_eq!(sequencer.members(&room), [ann.name.clone(), bob.name.clone()]);
    sequencer.member_leaves(at(0), &room, &cid.name);
    assert_eq!(sequencer.newest().offset, 2, "neither its join nor its leave is told");
    sequencer.member_leaves(at(0), &room, &ann.name);
    sequencer.member_joins(at(0), &room, &cid);
    assert_eq!(sequencer.members(&room), [bob.name, cid.name]);
    assert_eq!(sequencer.newest().offset, 4);
}

#[test]
fn joins_of_one_client_are_told_at_a_rate_and_others_at_once() {
    let mut sequencer = sequencer(|rules| {
        rules.default.presence = true;
        rules.join_rate = NonZeroU32::new(10);
    });
    let room = name("room");
    sequencer.want(0, &room);
    for number in 0..220 {
        let member = member(&format!("m{number}"), Some(1));
        sequencer.member_joins(at(0), &room, &member);
        if number >= 25 {
            sequencer.member_leaves(at(0), &room, &member.name);
        }
    }
    assert_eq!((sequencer.newest().offset, sequencer.members(&room).len()), (20, 20));
    sequencer.member_joins(at(0), &room, &member("other", Some(2)));
    assert_eq!(sequencer.members(&room).len(), 21, "another client does not wait");
    assert_eq!(sequencer.expire(at(99)), Some(100 * 1_000_000));
    for (ms, members) in [(99, 21), (100, 22), (350, 24), (60_000, 26)] {
        sequencer.expire(at(ms));
        assert_eq!(sequencer.members(&room).len(), members, "after {ms} ms");
    }
    assert_eq!(sequencer.newest().offset, 26, "members that have left meanwhile are not told");
    assert!(sequencer.joins.waiting.is_empty());
}
