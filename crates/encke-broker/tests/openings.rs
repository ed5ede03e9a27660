//! A channel opens on a node although NATS loses responses, deliveries, beacons, or the end of the stream.
#![cfg(feature = "nats")]

mod node;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use async_nats::HeaderMap;
use async_nats::jetstream;
use node::{Node, draft, name};
use server::Nats;
use server::proxy::{Frame, Proxy};

/// Adds a number to the last sequence that a response with the stream's info reports. Returns whether the frame is one.
fn shift_head(frame: &mut Frame, by: i64) -> bool {
    let Ok(text) = std::str::from_utf8(&frame.body) else { return false };
    if !text.contains("stream_info_response") {
        return false;
    }
    let (before, rest) = text.split_once("\"last_seq\":").expect("the info has it");
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let last: i64 = rest[..digits].parse().expect("digits");
    frame.body = format!("{before}\"last_seq\":{}{}", (last + by).max(0), &rest[digits..]).into_bytes();
    true
}

#[test]
fn a_history_whose_messages_are_lost_in_transit_is_read_again() {
    let nats = Nats::start("lost-history", &[]);
    let mut one = Node::listening(&nats, &["a"]);
    for number in 1..=3 {
        assert_eq!(one.publish(draft("a", "x")), Ok((number, false)));
    }
    // A server that is killed after the request of a history's messages never responds to it.
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dropped);
    let proxy = Proxy::start(&nats, move |frame| {
        let is_fetch = frame.control.contains(" $JS.API.CONSUMER.MSG.NEXT.")
            && String::from_utf8_lossy(&frame.body).contains("\"no_wait\":true");
        !is_fetch || count.fetch_add(1, Ordering::Relaxed) > 0
    });
    let mut node = Node::join_at(proxy.url(), &nats);
    assert_eq!(node.kept("a", 3), (0, vec![1, 2, 3]));
    assert_eq!(dropped.load(Ordering::Relaxed), 2, "one was lost, one served");
}

#[test]
fn a_channel_opens_although_the_stream_has_lost_the_end_that_it_reported() {
    let nats = Nats::start("lost-end", &[]);
    let mut one = Node::listening(&nats, &["a"]);
    assert_eq!(one.publish(draft("a", "x")), Ok((1, false)));
    let (shift, shifted) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicUsize::new(0)));
    let (by, count) = (Arc::clone(&shift), Arc::clone(&shifted));
    let proxy = Proxy::start(&nats, move |frame| {
        let by = by.load(Ordering::Relaxed);
        if shift_head(frame, by) && by > 0 {
            count.fetch_add(1, Ordering::Relaxed);
        }
        true
    });
    let mut node = Node::join_at(proxy.url(), &nats);
    assert_eq!(node.kept("b", 0), (0, vec![]), "it follows the stream");
    // A leader reports messages that its successor does not have.
    shift.store(1_000, Ordering::Relaxed);
    node.ask_for("a");
    // The first request may be older than the read. Beacons arrive meanwhile.
    node.until("looked", |_| shifted.load(Ordering::Relaxed) >= 3);
    assert!(node.sequencer.info(&name("a")).is_some_and(|info| !info.kept), "it waits for the head");
    shift.store(0, Ordering::Relaxed);
    assert_eq!(node.kept("a", 1), (0, vec![1]));
}

#[test]
fn a_stream_that_loses_its_end_is_noticed_without_a_reconnect() {
    let nats = Nats::start("lost-end-noticed", &[]);
    let mut one = Node::listening(&nats, &["a"]);
    for number in 1..=3 {
        assert_eq!(one.publish(draft("a", "x")), Ok((number, false)));
    }
    let is_short = Arc::new(AtomicBool::new(false));
    let short = Arc::clone(&is_short);
    let proxy = Proxy::start(&nats, move |frame| {
        shift_head(frame, if short.load(Ordering::Relaxed) { -3 } else { 0 });
        true
    });
    let mut node = Node::join_at(proxy.url(), &nats);
    assert_eq!(node.kept("b", 0), (0, vec![]), "it follows the stream");
    is_short.store(true, Ordering::Relaxed);
    node.until("down", |node| !node.sequencer.is_up());
    is_short.store(false, Ordering::Relaxed);
    node.until("up again", |node| node.sequencer.is_up());
    assert_eq!(node.kept("a", 3), (0, vec![1, 2, 3]));
}

#[test]
fn a_beacon_whose_id_the_stream_rejects_gets_another_id() {
    let nats = Nats::start("taken", &[]);
    let mut node = Node::join(&nats);
    node.until("up", |node| node.sequencer.is_up());
    // A leader that lost a beacon rejects its id until the duplicate window ends. Here a message of a channel that the node
    // does not consume has that id.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = async_nats::connect(nats.url()).await.expect("it listens");
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_MESSAGE_ID, "$beacon 0");
        let context = jetstream::new(client);
        let sent = context.publish_with_headers("encke.m.other", headers, "x".into()).await;
        let stored = sent.expect("sent").await.expect("stored");
        assert_eq!((stored.sequence, stored.duplicate), (1, false));
    });
    assert_eq!(node.kept("a", 1), (0, vec![]));
}

#[test]
fn a_consumer_that_delivers_nothing_is_replaced() {
    let nats = Nats::start("silent", &[]);
    let mut one = Node::join(&nats);
    // The consumer that delivers the next message falls silent: its heartbeats pass, its messages do not.
    let (is_armed, lost) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (armed, count) = (Arc::clone(&is_armed), Arc::clone(&lost));
    let mut silent: Option<String> = None;
    let proxy = Proxy::start(&nats, move |frame| {
        let consumer = frame
            .control
            .split(' ')
            .find_map(|word| word.strip_prefix("$JS.ACK.encke."))
            .and_then(|reply| reply.split('.').next());
        let Some(consumer) = consumer.filter(|_| armed.load(Ordering::Relaxed)) else { return true };
        let is_silent = silent.get_or_insert_with(|| consumer.to_owned()) == consumer;
        if is_silent {
            count.fetch_add(1, Ordering::Relaxed);
        }
        !is_silent
    });
    let mut node = Node::join_at(proxy.url(), &nats);
    node.ask_for("a");
    node.until("opened", |node| node.sequencer.info(&name("a")).is_some_and(|info| info.kept));
    is_armed.store(true, Ordering::Relaxed);
    let (last, _) = one.publish(draft("a", "x")).expect("stored");
    node.until("as far", |node| node.sequencer.newest().offset >= last);
    assert_eq!(node.kept("a", last), (0, vec![last]));
    assert!(lost.load(Ordering::Relaxed) > 1, "the message and a beacon were lost");
}
