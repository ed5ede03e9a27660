//! Unit tests of a shared stream: pending publishes, events, and kept messages.

use super::*;
use crate::HubNow;
use crate::subscriber::{Member, SubscriberId};
use crate::values::{Feed, FeedRequest, Recalled};

const NOW: HubNow = HubNow { mono_ns: 1_000, unix_ms: 1_000_000 };

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

fn message(channel: &str, offset: u64) -> Arc<Message> {
    Arc::new(Message::placed(offset, NOW.unix_ms, draft(channel, offset.to_string().as_bytes()), false))
}

/// Creates a node that joins a stream at offset 10; rings keep three messages.
fn node() -> Sequencer {
    let mut rules = Rules::default();
    rules.default.messages = 3;
    Sequencer::follow(Epoch(7), 10, Arc::new(rules), 2)
}

fn told(sequencer: &mut Sequencer, messages: &[(&str, u64)], to: u64) {
    let messages = messages.iter().map(|(channel, offset)| message(channel, *offset)).collect();
    assert_eq!(sequencer.on_event(ClusterEvent::Messages { messages, to }), None);
}

/// Creates the history that responds to a ticket.
fn past(ticket: u64, channel: &str, to: u64, lost_to: u64, offsets: &[u64]) -> ClusterEvent {
    let messages = offsets.iter().map(|offset| message(channel, *offset)).collect();
    ClusterEvent::Past { ticket: PublishTicket(ticket), channel: name(channel), to, lost_to, messages }
}

/// Returns the feed of a worker as text.
fn feed(sequencer: &mut Sequencer, core: usize) -> Vec<String> {
    let mut feed = Vec::new();
    sequencer.take_feed(core, 100, &mut feed);
    let one = |feed: &Feed| match feed {
        Feed::Opened { channel, lost_to, head, messages, .. } => {
            let offsets: Vec<u64> = messages.iter().map(|message| message.offset).collect();
            format!("{channel} {offsets:?} behind {lost_to} up to {head}")
        }
        Feed::Message { message, lost_to } => format!("{} behind {lost_to}", message.offset),
        Feed::Lost { channel, to, .. } => format!("{channel} lost {to}"),
        Feed::Head { to } => format!("head {to}"),
        Feed::Newest { to, .. } => format!("newest {to}"),
        Feed::Recalled { reader: SubscriberId(reader), number, run } => {
            let offsets: Vec<u64> = run.messages.iter().map(|message| message.offset).collect();
            let gone = if run.gone_to > 0 { format!(" and {}", run.gone_to) } else { String::new() };
            format!("{reader} {number} {offsets:?} up to {} behind {}{gone}", run.to, run.lost_to)
        }
    };
    feed.iter().map(one).collect()
}

/// Returns the commands to the stream as text.
fn asked(sequencer: &mut Sequencer) -> Vec<String> {
    let mut errands = Vec::new();
    sequencer.take_commands(&mut errands);
    let one = |errand: ClusterCommand| match errand {
        ClusterCommand::Publish { draft, .. } => format!("publish to {}", draft.channel),
        ClusterCommand::Read { channel, to, most, .. } => format!("read {channel} up to {to}, {most}"),
        ClusterCommand::Release { channel } => format!("release {channel}"),
        ClusterCommand::Announce(Announcement { channel, member, joins: comes, .. }) => {
            format!("{member} {comes} {channel}")
        }
        ClusterCommand::Tell(AudienceChange { channel, subscribers, .. }) => {
            format!("{subscribers} listen to {channel}")
        }
        ClusterCommand::Recall { channels, after, to, .. } => {
            let channels: Vec<&str> = channels.iter().map(Name::as_str).collect();
            format!("recall {channels:?} from {after} to {to}")
        }
        ClusterCommand::Forget { channel, .. } => format!("forget {channel}"),
    };
    errands.into_iter().map(one).collect()
}

#[test]
fn a_publish_waits_for_its_place_and_is_told_to_nobody_before() {
    let mut node = node();
    node.want(0, &name("a"));
    node.count(0, &name("a"), 2, 0);
    let Ok(Publishing::Waits(ticket)) = node.publish(NOW, draft("a", b"x")) else { panic!("it waits") };
    assert_eq!(asked(&mut node), ["read a up to 10, 3", "publish to a", "2 listen to a"]);
    node.on_event(past(1, "a", 10, 0, &[]));
    assert_eq!(feed(&mut node, 0), ["a [] behind 0 up to 10"]);

    let fate = Ok(PublishAck { offset: 11, repeated: false });
    let (answered, result) = node.on_event(ClusterEvent::Placed { ticket, fate }).expect("an answer");
    let published = result.expect("published");
    assert_eq!((answered, published.position.offset, published.subscribers), (ticket, 11, 2));
    assert_eq!(feed(&mut node, 0), [""; 0], "it has yet to come");
    assert_eq!(node.on_event(ClusterEvent::Placed { ticket, fate }), None, "answered once");

    told(&mut node, &[("a", 11)], 11);
    assert_eq!(feed(&mut node, 0), ["11 behind 0"]);
    told(&mut node, &[("a", 11)], 11);
    assert_eq!(feed(&mut node, 0), [""; 0], "told again after an outage");
}

#[test]
fn an_outage_is_told_to_publishers_and_what_is_on_its_way_is_still_answered() {
    let mut node = node();
    let Ok(Publishing::Waits(ticket)) = node.publish(NOW, draft("a", b"x")) else { panic!("it waits") };
    node.on_event(ClusterEvent::Down);
    assert!(!node.is_up());
    assert_eq!(node.publish(NOW, draft("a", b"y")), Err(PublishError::Away));
    let answer = node.on_event(ClusterEvent::Placed { ticket, fate: Err(PublishError::Unanswered) });
    assert_eq!(answer, Some((ticket, Err(PublishError::Unanswered))));
    node.on_event(ClusterEvent::Up);
    assert!(matches!(node.publish(NOW, draft("a", b"y")), Ok(Publishing::Waits(_))));
}

#[test]
fn only_so_much_may_be_on_its_way() {
    let mut node = node();
    let mut first = None;
    for _ in 0..FLIGHTS_MAX {
        let Ok(Publishing::Waits(ticket)) = node.publish(NOW, draft("a", b"")) else { panic!("it waits") };
        first.get_or_insert(ticket);
    }
    assert_eq!(node.publish(NOW, draft("a", b"")), Err(PublishError::Crowded));
    let ticket = first.expect("there was one");
    node.on_event(ClusterEvent::Placed { ticket, fate: Err(PublishError::Unanswered) });
    assert!(node.publish(NOW, draft("a", b"")).is_ok());
}

#[test]
fn a_channel_is_opened_with_its_past_and_what_came_meanwhile() {
    let mut node = node();
    node.want(0, &name("a"));
    told(&mut node, &[("b", 11), ("a", 12)], 13);
    assert_eq!(feed(&mut node, 0), [""; 0], "its past is not known yet");
    node.on_event(past(1, "a", 10, 4, &[6, 9]));
    assert_eq!(feed(&mut node, 0), ["a [6, 9, 12] behind 4 up to 13"]);
    // A second worker causes no second read.
    asked(&mut node);
    node.want(1, &name("a"));
    assert_eq!(asked(&mut node), [""; 0]);
    assert_eq!(feed(&mut node, 1), ["a [6, 9, 12] behind 4 up to 13"]);
    told(&mut node, &[("a", 14)], 14);
    assert_eq!(feed(&mut node, 1), ["14 behind 6"]);
}

#[test]
fn a_past_behind_a_hole_is_lost_with_it() {
    let mut node = node();
    node.want(0, &name("a"));
    // The ring keeps three messages, so 11 is lost before the history arrives.
    told(&mut node, &[("a", 11), ("a", 12), ("a", 13), ("a", 14)], 14);
    node.on_event(past(1, "a", 10, 0, &[8, 9]));
    assert_eq!(feed(&mut node, 0), ["a [12, 13, 14] behind 11 up to 14"]);
}

#[test]
fn a_past_that_reaches_behind_the_asking_has_what_came_meanwhile() {
    let mut node = node();
    node.want(0, &name("a"));
    // The first message was delivered because of an earlier want of the channel; the second was not.
    told(&mut node, &[("a", 11)], 15);
    told(&mut node, &[("b", 16), ("a", 17)], 17);
    node.on_event(past(1, "a", 15, 9, &[11, 14]));
    assert_eq!(feed(&mut node, 0), ["a [11, 14, 17] behind 9 up to 17"]);
    let bytes = [11, 14, 17].map(|offset| message("a", offset).charge()).iter().sum::<u64>();
    assert_eq!(node.memory(), bytes);
    // Messages that the ring has lost meanwhile are in the history as well.
    node.want(0, &name("c"));
    told(&mut node, &[("c", 18), ("c", 19), ("c", 20), ("c", 21)], 21);
    node.on_event(past(2, "c", 21, 17, &[18, 19, 20, 21]));
    assert_eq!(feed(&mut node, 0), ["c [19, 20, 21] behind 18 up to 21"]);
}

#[test]
fn who_publishes_to_a_channel_that_nobody_wants_here_waits_for_nobody() {
    let mut node = node();
    for wanted in [false, true] {
        if wanted {
            node.want(0, &name("a"));
        }
        let Ok(Publishing::Waits(ticket)) = node.publish(NOW, draft("a", b"x")) else { panic!("it waits") };
        let fate = Ok(PublishAck { offset: 11, repeated: false });
        let (_, result) = node.on_event(ClusterEvent::Placed { ticket, fate }).expect("an answer");
        assert_eq!(result.map(|published| published.wanted), Ok(wanted));
    }
}

#[test]
fn what_nobody_wants_is_not_kept_and_an_old_answer_opens_nothing() {
    let mut node = node();
    node.want(0, &name("a"));
    node.unwant(0, &name("a"));
    told(&mut node, &[("a", 11)], 11);
    assert_eq!((node.channels(), node.memory()), (0, 0));
    node.want(0, &name("a"));
    assert_eq!(asked(&mut node), ["read a up to 10, 3", "release a", "read a up to 11, 3"]);
    node.on_event(past(1, "a", 10, 0, &[9]));
    assert_eq!(feed(&mut node, 0), [""; 0]);
    node.on_event(past(2, "a", 11, 0, &[9, 11]));
    assert_eq!(feed(&mut node, 0), ["a [9, 11] behind 0 up to 11"]);
    node.unwant(0, &name("a"));
    assert_eq!((node.channels(), node.memory()), (0, 0));
}

#[test]
fn what_the_stream_dropped_before_it_came_is_told_as_lost() {
    let mut node = node();
    for core in 0..2 {
        node.want(core, &name("a"));
    }
    node.on_event(past(1, "a", 10, 0, &[9]));
    assert_eq!(feed(&mut node, 0), ["a [9] behind 0 up to 10"]);
    node.on_event(ClusterEvent::Lost { to: 20 });
    node.on_event(ClusterEvent::Lost { to: 15 });
    assert_eq!(feed(&mut node, 0), ["a lost 20"]);
    told(&mut node, &[("a", 21)], 21);
    assert_eq!(feed(&mut node, 0), ["21 behind 20"]);
    assert_eq!(feed(&mut node, 1), ["a [21] behind 20 up to 21"]);
}

#[test]
fn a_channel_that_opens_before_a_loss_is_told_says_nothing_of_what_is_behind_it() {
    let mut node = node();
    node.want(0, &name("a"));
    node.on_event(past(1, "a", 10, 0, &[9]));
    feed(&mut node, 0);
    node.on_event(ClusterEvent::Lost { to: 20 });
    node.want(0, &name("b"));
    node.on_event(past(2, "b", 20, 20, &[]));
    // If the opening were fed up to 19, the worker's position would claim all messages of `a` up to there.
    assert_eq!(feed(&mut node, 0), ["b [] behind 20 up to 10", "a lost 20"]);
}

#[test]
fn what_others_write_to_the_stream_is_read_as_far_as_it_can_be_said() {
    let odd = Draft {
        content_type: Some("".into()),
        event: Some("encke.join".into()),
        flags: Flags::CONTROL.with(Flags::KEY_FRAME),
        ..draft("a", b"\xff")
    };
    let message = Message::placed(5, 7, odd, false);
    assert_eq!((&message.content_type, &message.event), (&None, &None));
    assert_eq!((message.flags, message.text), (Flags::KEY_FRAME, false));
    let fine = Draft { event: Some("x".into()), ..draft("a", b"y") };
    assert_eq!(Message::placed(5, 7, fine, false).event.as_deref(), Some("x"));
}

#[test]
fn who_listens_on_other_nodes_counts_until_they_end() {
    let mut node = node();
    let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
    let there = |subscribers, came: &[&Arc<str>], went: &[&Arc<str>]| AudienceChange {
        channel: name("a"),
        subscribers,
        joined: came.iter().map(|one| Arc::clone(one)).collect(),
        left: went.iter().map(|one| Arc::clone(one)).collect(),
    };
    let all =
        |node: &Sequencer| (node.info(&name("a")).map(|info| info.subscribers), node.members(&name("a")));
    node.on_event(ClusterEvent::Told {
        node: NodeId(1),
        anew: true,
        changes: vec![there(2, &[&ann, &bob], &[])],
    });
    node.on_event(ClusterEvent::Told { node: NodeId(2), anew: true, changes: vec![there(5, &[&ann], &[])] });
    assert_eq!(all(&node), (Some(7), vec![ann.clone(), bob.clone()]));
    assert!(node.info(&name("a")).is_some_and(|info| !info.kept), "its history is not here");
    // Together with the subscribers of this node, which are announced to the others.
    node.want(0, &name("a"));
    node.count(0, &name("a"), 1, 0);
    node.member_joins(NOW, &name("a"), &Member { name: Arc::clone(&bob), client: None });
    assert_eq!(all(&node).0, Some(8));
    let mut errands = Vec::new();
    node.take_commands(&mut errands);
    let told = errands.into_iter().find_map(|errand| match errand {
        ClusterCommand::Tell(change) => Some(change),
        _ => None,
    });
    assert_eq!(told, Some(there(1, &[&bob], &[])));

    node.on_event(ClusterEvent::Told { node: NodeId(1), anew: false, changes: vec![there(1, &[], &[&ann])] });
    assert_eq!(all(&node), (Some(7), vec![ann, bob.clone()]));
    node.on_event(ClusterEvent::Gone { node: NodeId(2) });
    assert_eq!(all(&node), (Some(2), vec![bob.clone()]));
    // Earlier announcements of the node are void.
    node.on_event(ClusterEvent::Told { node: NodeId(1), anew: true, changes: Vec::new() });
    assert_eq!(all(&node), (Some(1), vec![bob]));
}

fn tombstone(channel: &str, offset: u64, to: u64) -> Arc<Message> {
    Arc::new(Message::placed(offset, NOW.unix_ms, Draft::tombstone(name(channel), to), true))
}

/// Subscriber 4 of a worker requests, with number 9, the messages of `a` after an offset.
fn recall(node: &mut Sequencer, core: usize, after: u64, to: u64) -> Option<Recall> {
    let (reader, number) = (SubscriberId(4), 9);
    node.apply(NOW, core, FeedRequest::Recall { reader, number, channels: vec![name("a")], after, to });
    let mut errands = Vec::new();
    node.take_commands(&mut errands);
    errands.into_iter().find_map(|errand| match errand {
        ClusterCommand::Recall { recall, channels, after: from, to: end } => {
            assert_eq!((channels, from, end), (vec![name("a")], after, to));
            Some(recall)
        }
        _ => None,
    })
}

#[test]
fn what_is_before_a_ring_is_read_for_the_core_that_asks() {
    let mut node = node();
    let recall = recall(&mut node, 1, 2, 8).expect("the stream is asked");
    let run = Recalled { lost_to: 3, to: 6, messages: vec![message("a", 5)], ..Recalled::default() };
    node.on_event(ClusterEvent::Recalled { recall, run });
    assert!(!node.has_feed(0) && node.has_feed(1));
    assert_eq!(feed(&mut node, 1), ["4 9 [5] up to 6 behind 3"]);
}

#[test]
fn where_no_stream_is_shared_nothing_is_before_a_ring() {
    let mut node = Sequencer::new(Epoch(7), Arc::default(), 1);
    assert_eq!(recall(&mut node, 0, 2, 8), None);
    assert_eq!(feed(&mut node, 0), ["4 9 [] up to 8 behind 8"]);
}

#[test]
fn a_tombstone_empties_a_channel_and_is_told_to_nobody() {
    let mut node = node();
    node.want(0, &name("a"));
    node.on_event(past(1, "a", 10, 0, &[3, 9]));
    assert_eq!(feed(&mut node, 0), ["a [3, 9] behind 0 up to 10"]);
    let Ok(Publishing::Waits(ticket)) = node.forget(&name("a")) else { panic!("it waits") };
    assert_eq!(asked(&mut node), ["read a up to 10, 3", "forget a"]);
    let answer =
        node.on_event(ClusterEvent::Placed { ticket, fate: Ok(PublishAck { offset: 12, repeated: false }) });
    assert_eq!(answer.expect("an answer").1.expect("it has its place").position.offset, 12);
    node.on_event(ClusterEvent::Messages {
        messages: vec![message("a", 11), tombstone("a", 12, 11)],
        to: 13,
    });
    assert_eq!(feed(&mut node, 0), ["a lost 11"]);
    assert_eq!(node.newest().offset, 13);
    assert_eq!(node.info(&name("a")).expect("it is wanted").messages, 0);

    node.on_event(ClusterEvent::Down);
    assert_eq!(node.forget(&name("a")), Err(PublishError::Away));
}

#[test]
fn behind_a_tombstone_nothing_is_there_though_the_stream_has_it() {
    let mut node = node();
    // A tombstone is in the history that is read when the channel is created here.
    node.want(0, &name("a"));
    let messages = vec![message("a", 3), message("a", 4), tombstone("a", 5, 3), message("a", 7)];
    node.on_event(ClusterEvent::Past {
        ticket: PublishTicket(1),
        channel: name("a"),
        to: 10,
        lost_to: 0,
        messages,
    });
    assert_eq!(feed(&mut node, 0), ["a [4, 7] behind 3 up to 10"]);
    // Another one arrives while the history is read.
    node.want(0, &name("b"));
    node.on_event(ClusterEvent::Messages { messages: vec![tombstone("b", 11, 8), message("b", 12)], to: 12 });
    node.on_event(past(2, "b", 10, 0, &[8]));
    assert_eq!(feed(&mut node, 0), ["b [12] behind 8 up to 12"]);
    // The messages that it deletes were purged before they arrived here.
    node.on_event(ClusterEvent::Messages { messages: vec![tombstone("a", 20, 19)], to: 20 });
    assert_eq!(feed(&mut node, 0), ["a lost 19"]);
    // Deleted messages before the ring are hidden.
    let recall = recall(&mut node, 0, 1, 19).expect("the stream is asked");
    let messages = vec![message("a", 3), tombstone("a", 5, 3), message("a", 7), tombstone("a", 20, 19)];
    node.on_event(ClusterEvent::Recalled {
        recall,
        run: Recalled { to: 20, messages, ..Recalled::default() },
    });
    assert_eq!(feed(&mut node, 0), ["4 9 [20] up to 20 behind 0 and 19"]);
}
