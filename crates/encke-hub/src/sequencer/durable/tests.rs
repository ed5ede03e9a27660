//! Unit tests of commits: waiting publishes and deletes, contents of commits, and failures.

use super::*;
use crate::rules::{Ack, ChannelRules, Rules};
use crate::sequencer::{Deletion, SavedChannel, SavedHistories};
use crate::values::Feed;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> HubNow {
    HubNow { mono_ns: ms * MS, unix_ms: 1_000_000 + ms }
}

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).expect("a name")
}

/// Channels below `disk` are durable, and those below `soon` are acknowledged early.
fn rules(messages: usize) -> Arc<Rules> {
    let mut rules = Rules::default();
    rules.default.messages = messages;
    for (pattern, ack) in [("disk/*", Ack::Stored), ("soon/*", Ack::Memory)] {
        let one = ChannelRules { durable: true, ack, messages, ..ChannelRules::default() };
        rules.set(pattern.parse().expect("a pattern"), one);
    }
    Arc::new(rules)
}

fn empty() -> SavedHistories {
    SavedHistories {
        epoch: Epoch(7),
        newest: 0,
        forgotten_to: 0,
        durable_forgotten_to: 0,
        durability: Box::default(),
        channels: Vec::new(),
    }
}

fn sequencer(messages: usize) -> Sequencer {
    let mut sequencer = Sequencer::restore(at(0), empty(), CEILING, rules(messages), 1);
    // The first commit has the set of durable channels.
    let commit = sequencer.take_commit(at(0)).expect("it does not know");
    assert!(!commit.early && commit.messages.is_empty());
    assert_eq!(sequencer.committed(at(0), Ok(())), []);
    sequencer
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

fn keyed(channel: &str, data: &str, key: &str) -> Draft {
    Draft { key: Some(IdempotencyKey { publisher: 1, key: key.into() }), ..draft(channel, data) }
}

fn waits(publishing: Result<Publishing, PublishError>) -> PublishTicket {
    match publishing {
        Ok(Publishing::Waits(ticket)) => ticket,
        other => panic!("it does not wait: {other:?}"),
    }
}

fn deletes(sequencer: &mut Sequencer, channel: &str) -> PublishTicket {
    match sequencer.delete(&name(channel)) {
        Deletion::Waits(ticket) => ticket,
        other => panic!("it does not wait: {other:?}"),
    }
}

fn offset(publishing: Result<Publishing, PublishError>) -> u64 {
    publishing.expect("accepted").done().expect("it does not wait").position.offset
}

/// Returns the feed of a worker: the texts of messages, openings and losses.
fn told(sequencer: &mut Sequencer) -> Vec<String> {
    let mut feed = Vec::new();
    sequencer.take_feed(0, 100, &mut feed);
    let text = |message: &Arc<Message>| String::from_utf8_lossy(&message.data).into_owned();
    feed.iter()
        .map(|feed| match feed {
            Feed::Opened { messages, lost_to, .. } => {
                format!("open, lost to {lost_to}: {:?}", messages.iter().map(text).collect::<Vec<_>>())
            }
            Feed::Message { message, .. } => text(message),
            Feed::Lost { to, .. } => format!("lost to {to}"),
            Feed::Head { .. } => "head".into(),
            Feed::Newest { .. } => "newest".into(),
            Feed::Recalled { .. } => "recalled".into(),
        })
        .collect()
}

/// A store that applies commits.
#[derive(Default)]
struct Store {
    messages: std::collections::BTreeMap<(Name, u64), Stored>,
    lost: std::collections::BTreeMap<Name, u64>,
    forgotten_to: u64,
    durability: Box<str>,
    ceiling: u64,
}

impl Store {
    fn keep(&mut self, commit: &Commit) {
        for (name, offset) in &commit.void {
            self.messages.remove(&(name.clone(), *offset));
        }
        for (name, to) in commit.lost.iter().chain(&commit.deleted) {
            self.messages.retain(|(other, offset), _| other != name || offset > to);
            self.lost.insert(name.clone(), *to);
        }
        for name in &commit.forgotten {
            self.lost.remove(name);
        }
        for stored in &commit.messages {
            self.messages.insert((stored.message.channel.clone(), stored.message.offset), stored.clone());
        }
        self.forgotten_to = commit.forgotten_to;
        self.durability.clone_from(&commit.durability);
        self.ceiling = commit.ceiling;
    }

    /// Returns the saved state after a crash.
    fn saved(&self) -> SavedHistories {
        let mut channels: Vec<SavedChannel> = Vec::new();
        for ((name, _), stored) in &self.messages {
            match channels.last_mut() {
                Some(last) if last.name == *name => last.messages.push(stored.clone()),
                _ => channels.push(SavedChannel {
                    name: name.clone(),
                    lost_to: self.lost.get(name).copied().unwrap_or(self.forgotten_to),
                    durable: true,
                    messages: vec![stored.clone()],
                }),
            }
        }
        SavedHistories {
            epoch: Epoch(7),
            newest: self.ceiling,
            forgotten_to: self.ceiling,
            durable_forgotten_to: self.forgotten_to,
            durability: self.durability.clone(),
            channels,
        }
    }
}

#[test]
fn a_durable_message_is_told_when_it_is_stored_and_holds_nobody_up() {
    let mut sequencer = sequencer(10);
    sequencer.want(0, &name("disk/a"));
    sequencer.want(0, &name("other"));
    assert_eq!(told(&mut sequencer).len(), 2, "both are opened");
    let ticket = waits(sequencer.publish(at(0), draft("disk/a", "kept")));
    assert_eq!(told(&mut sequencer), [""; 0]);
    let commit = sequencer.take_commit(at(0)).expect("somebody waits");
    let ahead = commit.messages[0].message.offset;
    // Publishes while a commit is in flight.
    assert!(sequencer.take_commit(at(0)).is_none(), "one is on its way");
    let between = offset(sequencer.publish(at(0), draft("other", "not kept")));
    assert!(between < ahead);
    assert_eq!(told(&mut sequencer), ["not kept"]);
    let later = waits(sequencer.publish(at(0), draft("disk/a", "kept, too")));
    let answers = sequencer.committed(at(1), Ok(()));
    assert_eq!(answers.len(), 1);
    let published = answers[0].1.expect("stored");
    assert_eq!((answers[0].0, published.position.offset, published.early), (ticket, ahead, false));
    assert_eq!(told(&mut sequencer), ["kept"]);
    assert_eq!(offset(sequencer.publish(at(1), draft("other", "x"))), ahead + 1);
    sequencer.take_commit(at(1)).expect("the later one waits");
    assert_eq!(sequencer.committed(at(1), Ok(()))[0].0, later);
    assert_eq!(told(&mut sequencer), ["x", "kept, too"]);
}

#[test]
fn what_could_not_be_stored_was_never_there_and_its_offset_is_not_given_again() {
    let mut sequencer = sequencer(10);
    sequencer.want(0, &name("disk/a"));
    told(&mut sequencer);
    let ticket = waits(sequencer.publish(at(0), keyed("disk/a", "lost", "k")));
    let first = sequencer.take_commit(at(0)).expect("somebody waits");
    let before = first.messages[0].message.offset;
    assert_eq!(
        sequencer.committed(at(0), Err(PublishError::NoSpace)),
        [(ticket, Err(PublishError::NoSpace))]
    );
    assert_eq!(told(&mut sequencer), [""; 0]);
    assert_eq!(sequencer.commit_due_ns(), Some(1_000 * MS), "what may have reached the disk is taken back");
    // A different message may be published under the same key immediately.
    waits(sequencer.publish(at(1), keyed("disk/a", "again", "k")));
    let second = sequencer.take_commit(at(1)).expect("somebody waits");
    assert_eq!(second.void, [(name("disk/a"), before)]);
    assert!(second.messages[0].message.offset > before);
    sequencer.committed(at(1), Ok(()));
    assert_eq!(told(&mut sequencer), ["again"]);
    assert_eq!(sequencer.commit_due_ns(), None);
}

#[test]
fn a_publish_is_repeated_once_it_is_known_what_became_of_the_first() {
    let mut sequencer = sequencer(10);
    let tickets: Vec<PublishTicket> = [("k", "a"), ("k", "a"), ("k", "b")]
        .map(|(key, data)| waits(sequencer.publish(at(0), keyed("disk/a", data, key))))
        .into();
    assert_eq!(sequencer.take_commit(at(0)).expect("they wait").messages.len(), 1);
    let third = waits(sequencer.publish(at(0), keyed("disk/a", "a", "k")));
    let answers = sequencer.committed(at(0), Ok(()));
    let first = answers[0].1.expect("stored");
    assert_eq!(answers[1], (tickets[1], Ok(Published { repeated: true, ..first })));
    assert_eq!(answers[2], (tickets[2], Err(PublishError::KeyMismatch)));
    assert!(sequencer.take_commit(at(0)).expect("it waits").messages.is_empty());
    assert_eq!(sequencer.committed(at(0), Ok(())), [(third, Ok(Published { repeated: true, ..first }))]);
}

#[test]
fn what_is_acknowledged_early_is_told_at_once_and_stored_with_the_next_commit() {
    let mut sequencer = sequencer(10);
    // The store has to know before the first early acknowledgement.
    waits(sequencer.publish(at(0), draft("soon/a", "first")));
    assert!(sequencer.take_commit(at(0)).expect("it waits").early);
    sequencer.committed(at(0), Ok(()));
    let early = sequencer.publish(at(0), draft("soon/a", "x")).expect("accepted").done().expect("at once");
    assert!(early.early);
    let commit = sequencer.take_commit(at(0)).expect("it is owed");
    assert_eq!(commit.messages[0].message.offset, early.position.offset);
    sequencer.committed(at(0), Err(PublishError::NotStored));
    assert!(sequencer.take_commit(at(999)).is_none(), "nobody waits");
    assert_eq!(sequencer.take_commit(at(1_000)).expect("tried again").messages, commit.messages);
    sequencer.committed(at(1_000), Ok(()));
    // A second later a crash can lose nothing, and the store learns this.
    assert_eq!(sequencer.commit_due_ns(), Some(2_000 * MS));
    assert!(!sequencer.take_commit(at(2_000)).expect("due").early);
    waits(sequencer.publish(at(2_000), draft("soon/a", "as the first")));
    sequencer.committed(at(2_000), Ok(()));
    assert!(sequencer.take_commit(at(2_000)).expect("it waits").early);
    sequencer.committed(at(2_000), Ok(()));
}

#[test]
fn nothing_is_acknowledged_early_after_a_failed_commit_that_may_have_told_the_store_otherwise() {
    let mut sequencer = sequencer(10);
    let first = waits(sequencer.publish(at(0), draft("soon/a", "x")));
    assert!(sequencer.take_commit(at(0)).expect("it waits").early);
    assert_eq!(sequencer.committed(at(0), Ok(()))[0].0, first);
    // No early message was published since, so the next commit ends early acknowledgement. It is reported as failed, with an
    // unknown outcome.
    waits(sequencer.publish(at(1), draft("disk/a", "y")));
    assert!(!sequencer.take_commit(at(1)).expect("it waits").early);
    sequencer.committed(at(1), Err(PublishError::NotStored));
    let second = waits(sequencer.publish(at(2), draft("soon/a", "z")));
    assert!(sequencer.take_commit(at(2)).expect("it waits").early);
    assert_eq!(sequencer.committed(at(2), Ok(()))[0].0, second);
    let early = sequencer.publish(at(3), draft("soon/a", "w")).expect("accepted").done().expect("at once");
    assert!(early.early);
}

#[test]
fn what_the_ring_lets_go_of_is_taken_from_the_store_by_and_by() {
    let mut sequencer = sequencer(2);
    let mut store = Store::default();
    for number in 0..5 {
        waits(sequencer.publish(at(0), draft("disk/a", &number.to_string())));
    }
    store.keep(&sequencer.take_commit(at(0)).expect("they wait"));
    sequencer.committed(at(0), Ok(()));
    assert_eq!(store.messages.len(), 5);
    assert_eq!(sequencer.commit_due_ns(), Some(1_000 * MS));
    store.keep(&sequencer.take_commit(at(1_000)).expect("losses"));
    sequencer.committed(at(1_000), Ok(()));
    assert_eq!(store.messages.len(), 2);
    // A delete gets its result when it is stored. After that the store removes the channel.
    let ticket = deletes(&mut sequencer, "disk/a");
    store.keep(&sequencer.take_commit(at(1_000)).expect("somebody waits"));
    assert_eq!(sequencer.committed(at(1_000), Ok(()))[0].0, ticket);
    assert!(store.messages.is_empty() && !store.lost.is_empty());
    assert_eq!(sequencer.commit_due_ns(), Some(2_000 * MS));
    let commit = sequencer.take_commit(at(2_000)).expect("due");
    store.keep(&commit);
    assert_eq!((&commit.lost[..], &commit.forgotten[..]), (&[][..], &[name("disk/a")][..]));
    assert!(store.lost.is_empty());
}

#[test]
fn a_failed_delete_changes_nothing_and_a_stored_one_deletes() {
    let mut sequencer = sequencer(10);
    let mut store = Store::default();
    sequencer.want(0, &name("disk/a"));
    for data in ["1", "2"] {
        waits(sequencer.publish(at(0), draft("disk/a", data)));
    }
    store.keep(&sequencer.take_commit(at(0)).expect("they wait"));
    sequencer.committed(at(0), Ok(()));
    assert_eq!(told(&mut sequencer), [r#"open, lost to 0: ["1", "2"]"#]);
    let last = sequencer.newest().offset;

    let ticket = deletes(&mut sequencer, "disk/a");
    let commit = sequencer.take_commit(at(1)).expect("it waits");
    assert_eq!(sequencer.info(&name("disk/a")).expect("there").messages, 2, "not before it is stored");
    assert_eq!(
        sequencer.committed(at(1), Err(PublishError::NoSpace)),
        [(ticket, Err(PublishError::NoSpace))]
    );
    assert_eq!(commit.deleted, [(name("disk/a"), last)]);
    assert_eq!(sequencer.info(&name("disk/a")).expect("there").messages, 2);
    assert_eq!(told(&mut sequencer), [""; 0]);
    assert_eq!(sequencer.commit_due_ns(), None, "the delete is over");

    let ticket = deletes(&mut sequencer, "disk/a");
    store.keep(&sequencer.take_commit(at(2)).expect("it waits"));
    let answers = sequencer.committed(at(2), Ok(()));
    assert!(matches!(answers[..], [(one, Ok(_))] if one == ticket));
    assert_eq!(sequencer.info(&name("disk/a")).expect("it has a subscriber").messages, 0);
    assert_eq!(told(&mut sequencer), [format!("lost to {last}")]);
    assert!(store.messages.is_empty());
}

#[test]
fn a_delete_takes_its_turn_among_publishes_in_a_commit_without_messages() {
    let mut sequencer = sequencer(10);
    let mut store = Store::default();
    let before = waits(sequencer.publish(at(0), draft("disk/a", "before")));
    let delete = deletes(&mut sequencer, "disk/a");
    let after = waits(sequencer.publish(at(0), draft("disk/a", "after")));
    for (ticket, messages) in [(before, 1), (delete, 0), (after, 1)] {
        let commit = sequencer.take_commit(at(0)).expect("it waits");
        assert_eq!((commit.messages.len(), commit.only_removes()), (messages, messages == 0));
        store.keep(&commit);
        let answers = sequencer.committed(at(0), Ok(()));
        assert!(matches!(answers[..], [(one, Ok(_))] if one == ticket));
    }
    let kept: Vec<_> = store.messages.values().map(|stored| stored.message.data.to_vec()).collect();
    assert_eq!(kept, [b"after".to_vec()]);
    assert_eq!(sequencer.info(&name("disk/a")).expect("there").messages, 1);
}

#[test]
fn a_delete_leaves_early_messages_of_other_channels_to_the_next_commit() {
    let mut sequencer = sequencer(10);
    waits(sequencer.publish(at(0), draft("soon/a", "first")));
    sequencer.take_commit(at(0)).expect("it waits");
    sequencer.committed(at(0), Ok(()));
    for channel in ["soon/a", "soon/b"] {
        assert!(matches!(sequencer.publish(at(0), draft(channel, "early")), Ok(Publishing::Done(_))));
    }
    deletes(&mut sequencer, "soon/a");
    let commit = sequencer.take_commit(at(0)).expect("it waits");
    assert!(commit.only_removes() && commit.early, "an abrupt end may still lose the early messages");
    sequencer.committed(at(0), Ok(()));
    let commit = sequencer.take_commit(at(0)).expect("one is owed");
    let names: Vec<&str> = commit.messages.iter().map(|stored| stored.message.channel.as_str()).collect();
    assert_eq!((names, commit.early), (vec!["soon/b"], true));
}

#[test]
fn a_full_disk_gets_rid_of_expired_messages_before_it_takes_new_ones() {
    let mut sequencer = sequencer(1);
    for data in ["1", "2"] {
        waits(sequencer.publish(at(0), draft("disk/a", data)));
    }
    sequencer.take_commit(at(0)).expect("they wait");
    sequencer.committed(at(0), Ok(()));
    // The ring has evicted the first message. The commit with that loss fails, because it has a message, too.
    waits(sequencer.publish(at(1), draft("disk/b", "3")));
    assert_eq!(sequencer.take_commit(at(1)).expect("it waits").lost.len(), 2);
    sequencer.committed(at(1), Err(PublishError::NoSpace));
    let waiting = waits(sequencer.publish(at(2), draft("disk/b", "4")));
    let commit = sequencer.take_commit(at(2)).expect("it waits");
    assert!(commit.only_removes() && commit.lost.iter().any(|(lost, _)| *lost == name("disk/a")));
    // If this commit fails as well, the publisher gets the result of the next one.
    assert_eq!(sequencer.committed(at(2), Err(PublishError::NoSpace)), []);
    assert_eq!(sequencer.take_commit(at(2)).expect("it waits").messages.len(), 1);
    let answers = sequencer.committed(at(2), Err(PublishError::NoSpace));
    assert_eq!(answers, [(waiting, Err(PublishError::NoSpace))]);
}

#[test]
fn after_an_end_without_warning_durable_channels_are_whole_and_no_offset_comes_again() {
    let mut first = sequencer(10);
    let mut store = Store::default();
    let mut given = Vec::new();
    for (channel, data) in [("disk/a", "1"), ("other", "2"), ("disk/a", "3"), ("disk/b", "4")] {
        match first.publish(at(0), keyed(channel, data, data)).expect("accepted") {
            Publishing::Done(published) => given.push(published.position.offset),
            Publishing::Queued { .. } => panic!("a store has no queue"),
            Publishing::Waits(_) => {
                store.keep(&first.take_commit(at(0)).expect("it waits"));
                given.push(first.committed(at(0), Ok(()))[0].1.expect("stored").position.offset);
            }
        }
    }
    let mut second = Sequencer::restore(at(5), store.saved(), store.ceiling + CEILING, rules(10), 1);
    assert!(offset(second.publish(at(5), draft("other", "x"))) > *given.iter().max().expect("some"));
    for (channel, told_of) in [
        ("disk/a", r#"open, lost to 0: ["1", "3"]"#.to_owned()),
        ("disk/b", r#"open, lost to 0: ["4"]"#.to_owned()),
        ("disk/c", "open, lost to 0: []".to_owned()),
        ("another", format!("open, lost to {}: []", store.ceiling)),
    ] {
        second.want(0, &name(channel));
        assert_eq!(told(&mut second), [told_of], "{channel}");
    }
    waits(second.publish(at(5), keyed("disk/a", "3", "3")));
    assert!(second.take_commit(at(5)).expect("it waits").messages.is_empty(), "its key is still known");
    assert!(second.committed(at(5), Ok(()))[0].1.expect("known").repeated);
}

#[test]
fn a_channel_that_becomes_durable_is_stored_and_one_that_is_no_longer_is_removed() {
    let mut sequencer = sequencer(10);
    let mut store = Store::default();
    offset(sequencer.publish(at(0), draft("other", "here")));
    waits(sequencer.publish(at(0), draft("disk/a", "there")));
    store.keep(&sequencer.take_commit(at(0)).expect("it waits"));
    sequencer.committed(at(0), Ok(()));
    let mut rules = Rules::default();
    let durable = ChannelRules { durable: true, ..ChannelRules::default() };
    rules.set("other".parse().expect("a pattern"), durable);
    sequencer.reload(Arc::new(rules));
    store.keep(&sequencer.take_commit(at(0)).expect("there is something to store"));
    sequencer.committed(at(0), Ok(()));
    let stored: Vec<&str> = store.messages.keys().map(|(name, _)| name.as_str()).collect();
    assert_eq!(stored, ["other"]);
    assert_eq!(offset(sequencer.publish(at(1), draft("disk/a", "x"))), sequencer.newest().offset);
}

#[test]
fn a_store_that_hangs_stops_the_stream_before_an_offset_could_be_given_twice() {
    let mut sequencer = sequencer(10);
    waits(sequencer.publish(at(0), draft("disk/a", "x")));
    let ahead = sequencer.take_commit(at(0)).expect("it waits").messages[0].message.offset;
    sequencer.newest = ahead - 2;
    assert_eq!(offset(sequencer.publish(at(0), draft("other", "last"))), ahead - 1);
    assert_eq!(sequencer.publish(at(0), draft("other", "one more")), Err(PublishError::Stalled));
    sequencer.committed(at(0), Ok(()));
    assert_eq!(offset(sequencer.publish(at(0), draft("other", "goes on"))), ahead + 1);
}

#[test]
fn a_delete_of_unknown_outcome_is_repeated_until_it_is_stored() {
    let mut sequencer = sequencer(10);
    waits(sequencer.publish(at(0), draft("disk/a", "1")));
    sequencer.take_commit(at(0)).expect("it waits");
    sequencer.committed(at(0), Ok(()));
    let ticket = deletes(&mut sequencer, "disk/a");
    let deleted = sequencer.take_commit(at(0)).expect("it waits").deleted.clone();
    let refused = Err(PublishError::NotStored);
    assert_eq!(sequencer.committed(at(0), refused), [(ticket, Err(PublishError::NotStored))]);
    // A publish meanwhile gets its result, and the delete does not cover its message.
    let after = waits(sequencer.publish(at(1), draft("disk/a", "2")));
    assert_eq!(sequencer.take_commit(at(1)).expect("it waits").deleted, deleted);
    assert_eq!(sequencer.committed(at(1), refused), [(after, Err(PublishError::NotStored))]);
    assert_eq!(sequencer.info(&name("disk/a")).expect("there").messages, 1);
    assert_eq!(sequencer.commit_due_ns(), Some(1_001 * MS));
    waits(sequencer.publish(at(2), draft("disk/a", "3")));
    assert_eq!(sequencer.take_commit(at(2)).expect("it waits").deleted, deleted);
    sequencer.committed(at(2), Ok(()));
    let info = sequencer.info(&name("disk/a")).expect("there");
    assert!(info.messages == 1 && info.first.expect("one").offset > deleted[0].1);
}

#[test]
fn a_publish_to_a_channel_that_is_deleted_before_it_tells_the_store_what_was_lost() {
    let mut sequencer = sequencer(10);
    let mut store = Store::default();
    let commits = |sequencer: &mut Sequencer, store: &mut Store| {
        store.keep(&sequencer.take_commit(at(0)).expect("something waits"));
        sequencer.committed(at(0), Ok(()));
    };
    for channel in ["disk/a", "disk/b"] {
        waits(sequencer.publish(at(0), draft(channel, "1")));
    }
    commits(&mut sequencer, &mut store);
    let [first, second] =
        ["disk/a", "disk/b"].map(|channel| sequencer.info(&name(channel)).expect("there").last.expect("one"));
    // The delete removes the channel, and its publish is the next commit.
    deletes(&mut sequencer, "disk/a");
    waits(sequencer.publish(at(0), draft("disk/a", "2")));
    commits(&mut sequencer, &mut store);
    commits(&mut sequencer, &mut store);
    deletes(&mut sequencer, "disk/b");
    commits(&mut sequencer, &mut store);
    assert_eq!(store.lost.get(&name("disk/a")), Some(&first.offset), "not what other channels have lost");
    assert!(second.offset > first.offset);
}
