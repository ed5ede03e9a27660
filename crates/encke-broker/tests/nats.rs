//! The cluster's engine against a real nats-server.
#![cfg(feature = "nats")]

mod node;
mod server;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy};
use encke_broker::SourceBoard;
use encke_broker::nats::{About, ClusterConfig, JoinError, Login, Misfit, NatsEngine};
use encke_hub::{
    ClusterCommand, ClusterEvent, Draft, IdempotencyKey, Position, PublishError, PublishTicket, Publishing,
    Queueing,
};
use node::{Fate, NOW, Node, PATIENCE, cluster, draft, name};
use server::Nats;

fn keyed(channel: &str, data: &str, key: &str) -> Draft {
    Draft { key: Some(IdempotencyKey { publisher: 1, key: key.into() }), ..draft(channel, data) }
}

#[test]
fn nodes_agree_on_ids_and_on_what_a_channel_keeps() {
    let nats = Nats::start("agree", &[]);
    let listening = || Node::listening(&nats, &["a.b/c", "a/b.c", "few"]);
    let (mut one, mut other) = (listening(), listening());
    assert_eq!(one.epoch(), other.epoch());
    for number in 1..=12 {
        let (node, channel) = if number % 2 == 0 { (&mut one, "a.b/c") } else { (&mut other, "a/b.c") };
        assert_eq!(node.publish(draft(channel, &number.to_string())), Ok((number, false)));
    }
    // Rings keep five messages. A channel with fewer has lost none.
    assert_eq!(one.publish(draft("few", "x")), Ok((13, false)));
    // A node that joins later agrees as well.
    let mut third = Node::join(&nats);
    assert_eq!((third.epoch(), third.kept("a/b.c", 13)), (one.epoch(), (1, vec![3, 5, 7, 9, 11])));
    for node in [&mut third, &mut Node::join(&nats)] {
        assert_eq!(node.kept("a.b/c", 13), (2, vec![4, 6, 8, 10, 12]));
        assert_eq!(node.kept("few", 13), (0, vec![13]));
        assert_eq!(node.kept("none", 13), (0, vec![]));
    }
}

#[test]
fn the_newest_messages_of_a_long_channel_are_found_among_many() {
    let nats = Nats::start("long", &[]);
    let mut node = Node::listening(&nats, &["rare", "often"]);
    for number in 0..300 {
        let channel = if number % 3 == 0 { "rare" } else { "often" };
        let published = node.sequencer.publish(NOW, draft(channel, "x")).expect("taken");
        assert!(matches!(published, Publishing::Waits(_)));
    }
    node.until("answered", |node| node.fates.len() == 300);
    let mut offsets: Vec<u64> = node.fates.iter().map(|(_, fate)| fate.as_ref().expect("stored").0).collect();
    assert!(offsets.is_sorted(), "in the order of publishing");
    offsets.dedup();
    assert_eq!(offsets.len(), 300);
    let mut node = Node::join(&nats);
    assert_eq!(node.kept("rare", 300), (283, vec![286, 289, 292, 295, 298]));
    assert_eq!(node.kept("often", 300), (293, vec![294, 296, 297, 299, 300]));
}

#[test]
fn a_key_makes_a_publish_happen_once_whichever_node_it_comes_to() {
    let nats = Nats::start("keys", &[]);
    let (mut one, mut other) = (Node::listening(&nats, &["a", "b"]), Node::listening(&nats, &["a", "b"]));
    assert_eq!(one.publish(keyed("a", "x", "k")), Ok((1, false)));
    assert_eq!(other.publish(keyed("a", "x", "k")), Ok((1, true)));
    assert_eq!(other.publish(keyed("a", "y", "k")), Err(PublishError::KeyMismatch));
    assert_eq!(other.publish(keyed("b", "y", "k")), Ok((2, false)));
}

#[test]
fn a_nats_that_ends_and_comes_back_loses_nothing_and_doubles_nothing() {
    let mut nats = Nats::start("back", &[]);
    let (mut one, mut other) = (Node::listening(&nats, &["a"]), Node::listening(&nats, &["a"]));
    assert_eq!(one.publish(draft("a", "1")), Ok((1, false)));
    nats.stop();
    one.until("down", |node| !node.sequencer.is_up());
    other.until("down", |node| !node.sequencer.is_up());
    assert_eq!(one.publish(draft("a", "2")), Err(PublishError::Away));
    nats.run();
    one.until("up", |node| node.sequencer.is_up());
    other.until("up", |node| node.sequencer.is_up());
    assert_eq!(other.publish(draft("a", "2")), Ok((2, false)));
    for node in [&mut one, &mut other] {
        assert_eq!(node.kept("a", 2), (0, vec![1, 2]));
    }
}

#[test]
fn a_node_gets_what_it_wants_and_knows_all_the_same_how_far_the_stream_is() {
    let nats = Nats::start("wants", &[]);
    let (mut one, mut other) = (Node::join(&nats), Node::listening(&nats, &["wanted"]));
    let mut last = 0;
    for number in 0..200 {
        let channel = if number % 10 == 0 { "wanted".to_owned() } else { format!("foreign/{number}") };
        (last, _) = one.publish(draft(&channel, "x")).expect("stored");
    }
    // This is past the last wanted message, so the node also knows that no other follows.
    other.until("as far", |node| node.sequencer.newest().offset >= last);
    assert_eq!(other.came, 20, "and no other message came");
    // A message published to an unsubscribed channel can be read afterwards, on any node.
    for node in [&mut one, &mut Node::join(&nats)] {
        let (offset, _) = node.publish(draft("read-back", "x")).expect("stored");
        let (_, kept) = node.kept("read-back", 0);
        assert_eq!(kept.last(), Some(&offset));
    }
}

#[test]
fn channels_come_and_go_while_messages_flow_and_nothing_is_missed() {
    let nats = Nats::start("turns", &[]);
    let mut one = Node::join(&nats);
    let mut other = Node::join(&nats);
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    println!("seed {seed}");
    let mut below = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    // More channels than filters, in three groups.
    let channels: Vec<String> =
        (0..40).map(|number| format!("{}/{number}", ["a", "b", "c"][number % 3])).collect();
    let mut published: Vec<Vec<u64>> = vec![Vec::new(); channels.len()];
    let mut wanted = vec![false; channels.len()];
    let mut last = 0;
    for round in 0..12 {
        // A few channels, then so many that filters get coarse.
        let among = if round % 2 == 0 { 10 } else { channels.len() as u64 };
        for _ in 0..60 {
            let at = below(among) as usize;
            match below(4) {
                0 => other.sequencer.want(0, &name(&channels[at])),
                1 => other.sequencer.unwant(0, &name(&channels[at])),
                _ => {
                    (last, _) = one.publish(draft(&channels[at], "x")).expect("stored");
                    published[at].push(last);
                    continue;
                }
            }
            wanted[at] = other.sequencer.info(&name(&channels[at])).is_some();
            // Handles the events received so far.
            other.until("asked", |_| true);
        }
        let kept =
            |node: &Node, channel: &str| node.sequencer.info(&name(channel)).is_some_and(|info| info.kept);
        other.until("as far", |node| {
            let all = channels.iter().zip(&wanted).all(|(channel, wanted)| !wanted || kept(node, channel));
            all && node.sequencer.newest().offset >= last
        });
        for (at, channel) in channels.iter().enumerate().filter(|(at, _)| wanted[*at]) {
            let info = other.sequencer.info(&name(channel)).expect("wanted");
            let newest = &published[at][published[at].len().saturating_sub(5)..];
            let offset = |position: Option<Position>| position.map(|position| position.offset);
            assert_eq!(
                (info.messages, offset(info.first), offset(info.last)),
                (newest.len(), newest.first().copied(), newest.last().copied()),
                "{channel} in round {round}: rings keep five"
            );
        }
    }
    assert!(other.came < published.iter().map(Vec::len).sum(), "what nobody wanted did not come");
}

/// Creates the stream as another program might.
fn make(nats: &Nats, config: Config) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = async_nats::connect(nats.url()).await.expect("it listens");
        async_nats::jetstream::new(client).create_stream(config).await.expect("made");
    });
}

/// Waits until the stream begins at `first`. It drops surplus messages when or soon after it acknowledges the next one.
fn until_it_begins_at(nats: &Nats, first: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let begins = async {
        let client = async_nats::connect(nats.url()).await.expect("it listens");
        let mut stream = async_nats::jetstream::new(client).get_stream("encke").await.expect("there");
        while stream.info().await.expect("told").state.first_sequence < first {}
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, begins).await }).expect("in time");
}

fn theirs() -> Config {
    Config { name: "encke".into(), subjects: vec!["encke.m.>".into()], ..Config::default() }
}

#[test]
fn a_stream_that_is_full_and_takes_no_more_says_so() {
    let nats = Nats::start("full", &[]);
    make(&nats, Config { max_messages: 2, discard: DiscardPolicy::New, ..theirs() });
    let mut node = Node::listening(&nats, &["a"]);
    assert_eq!(node.publish(draft("a", "1")), Ok((1, false)));
    assert_eq!(node.publish(draft("a", "2")), Ok((2, false)));
    assert_eq!(node.publish(draft("a", "3")), Err(PublishError::NoSpace));
}

#[test]
fn a_stream_that_drops_its_oldest_messages_says_up_to_where() {
    let nats = Nats::start("drops", &[]);
    make(&nats, Config { max_messages: 3, discard: DiscardPolicy::Old, ..theirs() });
    let mut node = Node::listening(&nats, &["a", "b"]);
    for number in 1..=5 {
        let channel = if number == 4 { "b" } else { "a" };
        assert_eq!(node.publish(draft(channel, "x")), Ok((number, false)));
    }
    until_it_begins_at(&nats, 3);
    let mut node = Node::join(&nats);
    assert_eq!(node.kept("a", 5), (2, vec![3, 5]));
    assert_eq!(node.kept("none", 5), (2, vec![]));
}

#[test]
fn what_a_stream_has_dropped_before_a_node_was_told_is_a_loss_whatever_else_was_dropped() {
    let nats = Nats::start("behind", &[]);
    make(&nats, Config { max_messages: 50, discard: DiscardPolicy::Old, ..theirs() });
    let (mut one, other) = (Node::join(&nats), Node::listening(&nats, &["a"]));
    // The other node takes no events, so its engine waits. NATS waits as well when it has sent as much as it may.
    let mut wanted = Vec::new();
    for number in 0..5_000 {
        let published = one.sequencer.publish(NOW, draft(if number % 2 == 0 { "a" } else { "b" }, "x"));
        let Ok(Publishing::Waits(ticket)) = published else { panic!("{published:?}") };
        if number % 100 == 99 {
            one.until("answered", |node| node.fates.iter().any(|(answered, _)| *answered == ticket));
        }
        if number % 2 == 0 {
            wanted.push(ticket);
        }
    }
    let offset = |(ticket, fate): &(PublishTicket, Fate)| {
        wanted.contains(ticket).then(|| fate.as_ref().expect("stored").0)
    };
    let wanted: std::collections::BTreeSet<u64> = one.fates.iter().filter_map(offset).collect();
    let last = *wanted.last().expect("some");
    let (mut told_to, mut lost) = (0, 0);
    while told_to < last {
        for news in other.news.recv_timeout(6 * PATIENCE).expect("more") {
            let (offsets, to) = match news {
                ClusterEvent::Messages { messages, to } => {
                    (messages.iter().map(|message| message.offset).collect(), to)
                }
                ClusterEvent::Lost { to } => {
                    lost += wanted.range(told_to + 1..=to).count();
                    (Vec::new(), std::mem::replace(&mut told_to, to).max(to))
                }
                _ => continue,
            };
            let expected: Vec<u64> = wanted.range(told_to + 1..to + 1).copied().collect();
            assert_eq!(offsets, expected, "all that was wanted up to {to}, behind {told_to}");
            told_to = to;
        }
        other.engine.taken();
    }
    assert!(lost > 0, "the test has seen no loss");
}

#[test]
fn a_stream_on_which_a_resume_could_not_be_whole_is_refused() {
    let nats = Nats::start("unfit", &[]);
    make(&nats, Config { max_messages_per_subject: 1, ..theirs() });
    let error = NatsEngine::join(cluster(&nats)).err().expect("refused");
    assert!(matches!(&error, JoinError::Unfit(_, Misfit::SubjectLimit)), "{error}");
}

#[test]
fn who_may_not_come_in_is_told_so() {
    let nats = Nats::start("login", &["--user", "encke", "--pass", "secret"]);
    for login in [Login::Nobody, Login::User("encke".into(), "wrong".into()), Login::Token("secret".into())] {
        let error = NatsEngine::join(ClusterConfig { login, ..cluster(&nats) }).err().expect("refused");
        assert!(matches!(error, JoinError::Refused(_)), "{error}");
    }
    let login = Login::User("encke".into(), "secret".into());
    assert!(NatsEngine::join(ClusterConfig { login, ..cluster(&nats) }).is_ok());
    let nobody = ClusterConfig { servers: vec!["nats://127.0.0.1:1".into()], ..cluster(&nats) };
    let error = NatsEngine::join(nobody).err().expect("nobody is there");
    assert!(matches!(error, JoinError::Unreachable(..)), "{error}");
}

#[test]
fn nodes_know_of_each_other_and_of_who_listens_and_one_that_ends_is_gone() {
    let nats = Nats::start("nodes", &[]);
    let (mut one, mut other) = (Node::join(&nats), Node::join(&nats));
    let ann = Arc::from("ann");
    one.sequencer.want(0, &name("a"));
    one.sequencer.count(0, &name("a"), 3, 0);
    one.sequencer.member_joins(NOW, &name("a"), &encke_hub::Member { name: Arc::clone(&ann), client: None });
    one.until("told", |_| true);
    other.until("known", |node| node.sequencer.info(&name("a")).is_some());
    let info = other.sequencer.info(&name("a")).expect("known");
    assert_eq!((info.kept, info.subscribers, info.members), (false, 3, 1));
    assert_eq!(other.sequencer.members(&name("a")), [ann]);
    assert!(other.engine.nodes().iter().any(|node| !node.here && node.about.subscriptions == 3));
    // A node that joins later requests the full state.
    let mut third = Node::join(&nats);
    third.until("known", |node| node.sequencer.info(&name("a")).is_some());
    one.engine.leave();
    for node in [&mut other, &mut third] {
        node.until("gone", |node| node.sequencer.info(&name("a")).is_none());
    }
}

#[test]
fn a_node_that_is_killed_is_gone_within_seconds() {
    let nats = Nats::start("dead", &[]);
    let (mut one, mut other) = (Node::join(&nats), Node::join(&nats));
    one.sequencer.want(0, &name("a"));
    one.sequencer.count(0, &name("a"), 1, 0);
    one.until("told", |_| true);
    other.until("known", |node| node.sequencer.info(&name("a")).is_some());
    // The engine's thread ends as well, without a last heartbeat.
    drop(one);
    other.until("gone", |node| node.sequencer.info(&name("a")).is_none());
}

#[test]
fn nodes_announce_their_sources_and_forget_those_of_a_node_that_ends() {
    let nats = Nats::start("sources", &[]);
    let (tell, changes) = channel();
    let join = |number: u32| {
        let (board, tell) = (Arc::new(SourceBoard::default()), tell.clone());
        board.open(&format!("http://node-{number}/live/"), move || {
            let _receiver_gone = tell.send(());
        });
        let about = About { name: format!("node {number}").into(), ..About::default() };
        let node =
            Node::join_by(ClusterConfig { sources: Some(Arc::clone(&board)), about, ..cluster(&nats) });
        (board, node)
    };
    let [(one, first), (two, second), (three, _third)] = [1, 2, 3].map(join);
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        while !holds() {
            changes.recv_timeout(6 * PATIENCE).unwrap_or_else(|_| panic!("never {what}"));
        }
    };
    let holder = |board: &SourceBoard| board.holder("film").map(|holder| holder.node.to_string());
    one.claim("film", false, 1).expect("it is free");
    let at_first = Some("node 1".to_owned());
    until("announced", &|| holder(&two) == at_first && holder(&three) == at_first);
    two.claim("film", true, 0).expect("a takeover");
    until("taken over", &|| !one.outranked().is_empty() && holder(&three) == Some("node 2".into()));
    let (title, rank) = one.outranked().remove(0);
    one.release(&title, rank);
    // A node that leaves says so; one that is killed expires.
    second.engine.leave();
    until("left", &|| holder(&three).is_none());
    drop(second);
    one.claim("film", false, 9).expect("it is free again");
    until("announced again", &|| holder(&three) == at_first);
    drop(first);
    until("expired", &|| holder(&three).is_none());
}

#[test]
fn what_waits_while_nats_is_away_is_in_the_stream_once_however_often_it_is_sent() {
    let mut nats = Nats::start("waits", &[]);
    let mut node = Node::listening(&nats, &["a"]);
    assert_eq!(node.publish(draft("a", "first")), Ok((1, false)));
    node.sequencer.limit_queue(Queueing { bytes: 1 << 20, age_ms: 60_000 });
    nats.stop();
    node.until("known", |node| !node.sequencer.is_up());
    for _ in 0..300 {
        let queued = node.sequencer.publish(NOW, draft("a", "x")).expect("there is room");
        assert!(matches!(queued, Publishing::Queued { .. }), "{queued:?}");
    }
    nats.run();
    node.until("back", |node| node.sequencer.is_up());
    // Unacknowledged publishes are sent again; here each of them is sent twice.
    while node.sequencer.backlog().messages > 0 {
        let waiting = node.sequencer.backlog().messages;
        let mut errands = Vec::new();
        node.sequencer.take_commands(&mut errands);
        for errand in errands {
            if let ClusterCommand::Publish { ticket, draft, number } = &errand {
                node.engine.run(ClusterCommand::Publish {
                    ticket: *ticket,
                    draft: draft.clone(),
                    number: *number,
                });
            }
            node.engine.run(errand);
        }
        node.until("one more", |node| node.sequencer.backlog().messages < waiting);
    }
    assert_eq!(node.sequencer.backlog().dropped, 0);
    assert_eq!(node.publish(draft("a", "last")), Ok((302, false)), "300 are between");
}

#[test]
fn a_stream_that_forgets_too_soon_what_it_was_sent_is_refused_with_the_remedy() {
    let nats = Nats::start("forgetful", &[]);
    let queueing = |seconds| ClusterConfig { queue_age: Duration::from_secs(seconds), ..cluster(&nats) };
    // The first node creates the stream with a window that is long enough for it.
    assert!(NatsEngine::join(queueing(90)).is_ok());
    assert!(NatsEngine::join(queueing(30)).is_ok());
    let error = NatsEngine::join(queueing(91)).err().expect("refused");
    assert!(matches!(error, JoinError::Unfit(..)), "{error}");
    assert!(error.to_string().contains("nats stream edit encke --dupe-window=182s"), "{error}");
}
