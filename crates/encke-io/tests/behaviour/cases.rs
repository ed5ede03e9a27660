//! The common behaviour of every back end and the simulator, one sentence per case.

use std::sync::Arc;

use encke_io::{
    LEASE_BYTES_MAX, LendLimit, NARROW_LEASE_BYTES, Op, OpError, OpKind, Peer as Origin, Reactor, Segment,
    Send, Token,
};

use crate::stage::{End, Note, Peer, Random, Scene, Stage, pattern};
use crate::temporary::TemporaryFile;

/// A window so small that a connection is soon full, and soon emptied.
const NARROW: Option<usize> = Some(32 * 1024);

fn bytes(bytes: &[u8]) -> Segment {
    Segment::Bytes(bytes.to_vec())
}

/// Starts a send that blocks, and waits until it does. Returns the number of bytes that the system has not accepted.
fn blocked_send<S: Scene>(stage: &mut Stage<S>, token: Token) -> u64 {
    stage.send(token, vec![Segment::Bytes(pattern(S::TOO_MUCH))]);
    stage.settle();
    let unsent = stage.reactor().unsent(token);
    assert!(unsent > 0, "{} bytes were taken although nobody reads", S::TOO_MUCH);
    unsent
}

pub fn a_listener_accepts_all_who_wait<S: Scene>(stage: &mut Stage<S>) {
    let (listener, address) = stage.listen();
    let peers: Vec<_> = (0..50).map(|_| stage.scene.peer(&address, None)).collect();
    stage.settle();
    assert!(stage.notes.is_empty(), "nothing is accepted before it is asked for: {:?}", stage.notes);
    stage.submit(listener, Op::Accept);
    let mut accepted: Vec<_> = peers.iter().map(|_| stage.accepted(listener)).collect();
    let mut addresses: Vec<_> = peers.iter().map(Peer::address).collect();
    accepted.sort_by_key(|(token, _)| token.index);
    accepted.dedup_by_key(|(token, _)| token.index);
    assert_eq!(accepted.len(), peers.len(), "each has a place of its own");
    let mut origins: Vec<_> = accepted
        .iter()
        .map(|(_, origin)| match origin {
            Origin::Inet(address) => *address,
            Origin::Local => panic!("a peer without an address"),
        })
        .collect();
    origins.sort_unstable();
    addresses.sort_unstable();
    assert_eq!(origins, addresses);
}

pub fn a_paused_listener_accepts_after_it_is_resumed<S: Scene>(stage: &mut Stage<S>) {
    let (listener, address) = stage.listen();
    stage.submit(listener, Op::Accept);
    let _first = stage.scene.peer(&address, None);
    stage.accepted(listener);
    stage.submit(listener, Op::Pause);
    stage.settle();
    let _others: Vec<_> = (0..5).map(|_| stage.scene.peer(&address, None)).collect();
    stage.settle();
    assert!(stage.notes.is_empty(), "a paused listener accepts nobody: {:?}", stage.notes);
    stage.submit(listener, Op::Accept);
    for _ in 0..5 {
        stage.accepted(listener);
    }
}

pub fn bytes_arrive_in_order_however_they_are_cut<S: Scene>(stage: &mut Stage<S>) {
    let message = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let (token, mut peer) = stage.connection();
    stage.submit(token, Op::Recv);
    stage.peer_sends(&mut peer, message);
    assert_eq!(stage.received(token, message.len()), message, "whole");
    for byte in message {
        stage.peer_sends(&mut peer, &[*byte]);
        assert_eq!(stage.received(token, 1), [*byte], "byte by byte");
    }
    for place in 1..message.len() {
        let (head, tail) = message.split_at(place);
        stage.peer_sends(&mut peer, head);
        assert_eq!(stage.received(token, head.len()), head, "split at {place}");
        stage.peer_sends(&mut peer, tail);
        assert_eq!(stage.received(token, tail.len()), tail, "split at {place}");
    }
}

pub fn what_arrived_before_receiving_was_asked_for_is_not_lost<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection();
    stage.peer_sends(&mut peer, b"early");
    stage.silent_about(token);
    stage.submit(token, Op::Recv);
    assert_eq!(stage.received(token, 5), b"early");
}

pub fn more_than_a_lease_arrives_in_pieces<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection();
    let message = pattern(5 * LEASE_BYTES_MAX + 1);
    stage.submit(token, Op::Recv);
    stage.peer_sends(&mut peer, &message);
    assert!(stage.received(token, message.len()) == message);
    // Repeat without an armed receive, so that the data accumulates.
    stage.submit(token, Op::Pause);
    stage.settle();
    let mut held = 0;
    while held < message.len() {
        match peer.send(&message[held..]) {
            0 => break,
            sent => held += sent,
        }
    }
    stage.silent_about(token);
    stage.submit(token, Op::Recv);
    stage.peer_sends(&mut peer, &message[held..]);
    assert!(stage.received(token, message.len()) == message);
}

pub fn narrow_leases_are_short_and_lose_nothing<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection();
    let message = pattern(5 * LEASE_BYTES_MAX + 1);
    for limit in [LendLimit::Narrow, LendLimit::Wide, LendLimit::Narrow] {
        stage.submit(token, Op::Lend(limit));
        // Without an armed receive, so that more than a lease accumulates.
        let held = peer.send(&message);
        stage.submit(token, Op::Recv);
        stage.peer_sends(&mut peer, &message[held..]);
        let mut seen = Vec::new();
        while seen.len() < message.len() {
            let lease = stage.lease(token);
            let most = if limit == LendLimit::Narrow { NARROW_LEASE_BYTES } else { LEASE_BYTES_MAX };
            assert!(lease.len() <= most, "a lease of {} bytes is {limit:?}", lease.len());
            seen.extend(lease);
        }
        assert!(seen == message);
        stage.submit(token, Op::Pause);
        stage.settle();
    }
}

pub fn the_end_comes_after_the_data_and_once<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection();
    stage.peer_sends(&mut peer, b"last words");
    peer.shutdown();
    stage.settle();
    stage.submit(token, Op::Recv);
    assert_eq!(stage.received(token, 10), b"last words");
    // The end may have been reported with `behind_data` before receiving was armed.
    while stage.peer_closed(token) {}
    stage.submit(token, Op::Recv);
    stage.silent_about(token);
}

pub fn after_the_peers_end_sending_still_works<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection();
    stage.submit(token, Op::Recv);
    peer.shutdown();
    assert!(!stage.peer_closed(token));
    stage.send(token, vec![bytes(b"answer")]);
    assert_eq!(stage.sent(token), 6);
    assert_eq!(stage.peer_receives(&mut peer, 6), b"answer");
    stage.submit(token, Op::Shutdown);
    assert_eq!(stage.peer_ends(&mut peer), (Vec::new(), End::Finished));
}

pub fn an_end_is_hinted_while_receiving_is_paused<S: Scene>(stage: &mut Stage<S>) {
    // Paused long before the peer ends, or at the same time.
    for long_before in [true, false] {
        let (token, mut peer) = stage.connection();
        stage.submit(token, Op::Recv);
        stage.peer_sends(&mut peer, b"one");
        assert_eq!(stage.received(token, 3), b"one");
        stage.submit(token, Op::Pause);
        if long_before {
            stage.settle();
        }
        let unread: &[u8] = if S::TELLS_END_BEHIND_DATA { b"two" } else { b"" };
        stage.peer_sends(&mut peer, unread);
        peer.shutdown();
        assert!(stage.peer_closed(token), "bytes may lie before the end");
        stage.silent_about(token);
        stage.submit(token, Op::Recv);
        assert_eq!(stage.received(token, unread.len()), unread);
        assert!(!stage.peer_closed(token), "told again once they are read");
        stage.silent_about(token);
    }
}

pub fn an_end_is_hinted_beside_a_blocked_send<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection_with(NARROW);
    stage.submit(token, Op::Recv);
    stage.submit(token, Op::Pause);
    blocked_send(stage, token);
    peer.shutdown();
    assert!(stage.peer_closed(token));
    stage.silent_about(token);
    assert!(stage.peer_receives(&mut peer, S::TOO_MUCH) == pattern(S::TOO_MUCH));
    assert_eq!(stage.sent(token), S::TOO_MUCH as u64);
}

pub fn a_paused_connection_keeps_what_arrives<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection();
    stage.submit(token, Op::Recv);
    for round in 0..20_u8 {
        stage.submit(token, Op::Pause);
        if round % 2 == 0 {
            stage.settle();
        }
        stage.peer_sends(&mut peer, &[round; 3]);
        if round % 3 == 0 {
            stage.silent_about(token);
        }
        stage.submit(token, Op::Recv);
        assert_eq!(stage.received(token, 3), [round; 3]);
    }
}

pub fn pausing_and_resuming_within_a_turn_loses_nothing<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection();
    for round in 0..20_u8 {
        stage.submit(token, Op::Recv);
        stage.peer_sends(&mut peer, &[round; 3]);
        stage.submit(token, Op::Pause);
        stage.submit(token, Op::Recv);
        assert_eq!(stage.received(token, 3), [round; 3]);
        stage.submit(token, Op::Pause);
        stage.submit(token, Op::Recv);
        stage.submit(token, Op::Pause);
    }
    stage.silent_about(token);
}

pub fn segments_arrive_in_order<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection();
    let content = pattern(200_000);
    let file = TemporaryFile::new("segments", &content);
    let shared: Arc<[u8]> = pattern(5_000).into();
    let segments = vec![
        bytes(b"head"),
        bytes(b""),
        Segment::Shared(Arc::clone(&shared), 10),
        Segment::File { file: file.open(), offset: 1_000, len: 150_000 },
        Segment::File { file: file.open(), offset: 0, len: 0 },
        bytes(b"middle"),
        Segment::Shared(Arc::clone(&shared), shared.len()),
        Segment::File { file: file.open(), offset: 199_999, len: 1 },
        bytes(b"tail"),
    ];
    let mut wanted = b"head".to_vec();
    wanted.extend(&shared[10..]);
    wanted.extend(&content[1_000..151_000]);
    wanted.extend(b"middle");
    wanted.extend(&content[199_999..]);
    wanted.extend(b"tail");
    stage.send(token, segments);
    assert!(stage.peer_receives(&mut peer, wanted.len()) == wanted);
    assert_eq!(stage.sent(token), wanted.len() as u64);

    // More slices than one system call takes, and none of them empty.
    let many: Vec<_> = (0..100_u8).map(|number| Segment::Bytes(vec![number; 3])).collect();
    let wanted: Vec<_> = (0..100_u8).flat_map(|number| [number; 3]).collect();
    stage.send(token, many);
    assert_eq!(stage.peer_receives(&mut peer, wanted.len()), wanted);
    assert_eq!(stage.sent(token), 300);
}

pub fn a_send_gives_its_segments_back<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection();
    stage.submit(token, Op::Send(Send { segments: vec![bytes(b"a"), bytes(b"b")], more: true }));
    let returned = stage.expect("a send's completion", |note| match note {
        Note::Sent { token: of, segments, .. } if *of == token => Some(segments.len()),
        _ => None,
    });
    assert_eq!(returned, 2);
    stage.send(token, vec![bytes(b"c")]);
    assert_eq!(stage.sent(token), 1);
    assert_eq!(stage.peer_receives(&mut peer, 3), b"abc");
    stage.send(token, vec![bytes(b"")]);
    assert_eq!(stage.sent(token), 0, "nothing to send is sent at once");
}

pub fn a_send_to_a_slow_reader_goes_on_as_it_reads<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection_with(NARROW);
    let mut unsent = blocked_send(stage, token);
    assert_eq!(stage.reactor().occupancy().sends, 1);
    let mut arrived = Vec::new();
    while arrived.len() < S::TOO_MUCH {
        // The kernel resumes when a good part of its buffer is free, not after each byte.
        let share = (S::TOO_MUCH / 4).min(S::TOO_MUCH - arrived.len());
        arrived.extend(stage.peer_receives(&mut peer, share));
        let now = stage.reactor().unsent(token);
        assert!(now < unsent || unsent == 0, "{share} bytes were read, and {now} of {unsent} are unsent");
        unsent = now;
    }
    assert!(arrived == pattern(S::TOO_MUCH));
    assert_eq!(stage.sent(token), S::TOO_MUCH as u64);
    assert_eq!((stage.reactor().unsent(token), stage.reactor().occupancy().sends), (0, 0));
}

pub fn a_connection_receives_while_its_send_is_blocked<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection_with(NARROW);
    stage.submit(token, Op::Recv);
    blocked_send(stage, token);
    for round in 0..10_u8 {
        stage.peer_sends(&mut peer, &[round; 7]);
        assert_eq!(stage.received(token, 7), [round; 7]);
    }
}

pub fn a_busy_connection_does_not_starve_a_quiet_one<S: Scene>(stage: &mut Stage<S>) {
    let (busy, mut flood) = stage.connection();
    let (quiet, mut drop) = stage.connection();
    let chunk: Arc<[u8]> = pattern(1 << 20).into();
    stage.submit(busy, Op::Recv);
    stage.submit(quiet, Op::Recv);
    stage.send(busy, vec![Segment::Shared(Arc::clone(&chunk), 0)]);
    let mut swallowed = Vec::new();
    for round in 0..50_u8 {
        // As much as the connection holds, in both directions, then one byte from the other.
        while flood.send(&chunk) > 0 {}
        flood.receive(usize::MAX, &mut swallowed);
        swallowed.clear();
        assert_eq!(drop.send(&[round]), 1);
        let mut before = 0;
        let found = stage.expect("the quiet connection's byte", |note| match note {
            Note::Received(token, bytes) if *token == quiet => Some(bytes.clone()),
            Note::Received(..) => {
                before += 1;
                None
            }
            _ => None,
        });
        assert_eq!(found, [round]);
        assert!(before <= S::BURST, "{before} events of the busy connection came first");
        let sent = stage.notes.iter().any(|note| matches!(note, Note::Sent { .. }));
        stage.notes.clear();
        if sent {
            stage.send(busy, vec![Segment::Shared(Arc::clone(&chunk), 0)]);
        }
    }
}

pub fn a_file_that_shrinks_while_it_is_sent_fails_the_send<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection_with(NARROW);
    let content = pattern(S::TOO_MUCH);
    let file = TemporaryFile::new("shrinks", &content);
    let whole = Segment::File { file: file.open(), offset: 0, len: content.len() as u64 };
    stage.send(token, vec![bytes(b"head"), whole, bytes(b"never")]);
    stage.settle();
    assert!(stage.reactor().unsent(token) > 0);
    file.shrink(1_000);
    let mut arrived = Vec::new();
    stage.until("the failure", |stage| {
        peer.receive(usize::MAX, &mut arrived);
        stage.notes.iter().any(|note| matches!(note, Note::Failed { .. }))
    });
    let (fault, sent) = stage.failed(token, OpKind::Send);
    assert_eq!(fault, OpError::FileShrunk);
    assert!(sent < content.len() as u64);
    stage.submit(token, Op::Shutdown);
    let (rest, end) = stage.peer_ends(&mut peer);
    arrived.extend(rest);
    assert_eq!((arrived.len() as u64, end), (sent, End::Finished), "what was sent arrived");
}

pub fn a_reset_fails_receiving<S: Scene>(stage: &mut Stage<S>) {
    let (token, peer) = stage.connection();
    stage.submit(token, Op::Recv);
    stage.settle();
    peer.reset();
    assert_eq!(stage.failed(token, OpKind::Recv), (OpError::Reset, 0));
    stage.submit(token, Op::Recv);
    stage.silent_about(token);
}

pub fn a_reset_is_told_while_receiving_is_paused<S: Scene>(stage: &mut Stage<S>) {
    for long_before in [true, false] {
        let (token, peer) = stage.connection();
        stage.submit(token, Op::Recv);
        stage.settle();
        stage.submit(token, Op::Pause);
        if long_before {
            stage.settle();
        }
        peer.reset();
        assert_eq!(stage.failed(token, OpKind::Recv), (OpError::Reset, 0));
        stage.submit(token, Op::Recv);
        stage.silent_about(token);
    }
}

pub fn a_reset_fails_a_blocked_send<S: Scene>(stage: &mut Stage<S>) {
    let (token, peer) = stage.connection_with(NARROW);
    let unsent = blocked_send(stage, token);
    peer.reset();
    assert_eq!(stage.failed(token, OpKind::Send), (OpError::Reset, S::TOO_MUCH as u64 - unsent));
    assert_eq!(stage.reactor().occupancy().sends, 0);
}

pub fn a_blocked_send_can_be_given_up<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection_with(NARROW);
    let unsent = blocked_send(stage, token);
    stage.submit(token, Op::Cancel);
    let (sent, segments) = stage.expect("the send's end", |note| match note {
        Note::Failed { op: OpKind::Send, fault: OpError::Canceled, sent, segments, .. } => {
            Some((*sent, segments.len()))
        }
        _ => None,
    });
    assert_eq!((sent, segments), (S::TOO_MUCH as u64 - unsent, 1));
    stage.submit(token, Op::Cancel);
    stage.silent_about(token);
    let arrived = stage.peer_receives(&mut peer, sent as usize);
    assert!(arrived == pattern(S::TOO_MUCH)[..sent as usize]);
    // The connection continues where the send stopped, and no trace of the cancellation remains.
    blocked_send(stage, token);
    assert!(stage.peer_receives(&mut peer, S::TOO_MUCH) == pattern(S::TOO_MUCH));
    assert_eq!(stage.sent(token), S::TOO_MUCH as u64);
}

pub fn a_shutdown_waits_for_the_send_in_flight<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection_with(NARROW);
    blocked_send(stage, token);
    stage.submit(token, Op::Shutdown);
    let (arrived, end) = stage.peer_ends(&mut peer);
    assert!(arrived == pattern(S::TOO_MUCH), "{} bytes arrived", arrived.len());
    assert_eq!(end, End::Finished);
    assert_eq!(stage.sent(token), S::TOO_MUCH as u64);
}

pub fn closing_delivers_what_was_sent<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection();
    stage.submit(token, Op::Recv);
    // No more than fits into any connection's buffers, because nothing is read before the close.
    let message = pattern(10_000);
    stage.send(token, vec![Segment::Bytes(message.clone())]);
    assert_eq!(stage.sent(token), message.len() as u64);
    assert!(stage.close(token, Op::Close).is_empty());
    let (arrived, end) = stage.peer_ends(&mut peer);
    assert!(arrived == message, "{} bytes arrived", arrived.len());
    assert_eq!(end, End::Finished);
}

pub fn aborting_resets<S: Scene>(stage: &mut Stage<S>) {
    let (token, mut peer) = stage.connection();
    stage.submit(token, Op::Recv);
    stage.settle();
    stage.close(token, Op::Abort);
    assert_eq!(stage.peer_ends(&mut peer), (Vec::new(), End::Reset));
}

pub fn closing_gives_back_an_unfinished_send<S: Scene>(stage: &mut Stage<S>) {
    for op in [Op::Close, Op::Abort] {
        let (token, _peer) = stage.connection_with(NARROW);
        blocked_send(stage, token);
        let segments = stage.close(token, op);
        assert_eq!(segments.len(), 1);
        assert!(segments[0].memory() == Some(&pattern(S::TOO_MUCH)), "the very bytes");
        assert_eq!(stage.reactor().occupancy().sends, 0);
    }
}

pub fn closing_a_listener_ends_those_that_nobody_accepted<S: Scene>(stage: &mut Stage<S>) {
    let (listener, address) = stage.listen();
    stage.submit(listener, Op::Accept);
    let mut peers: Vec<_> = (0..5).map(|_| stage.scene.peer(&address, None)).collect();
    // The kernel may have accepted some already, but their events are never fetched.
    stage.wait_only();
    stage.close(listener, Op::Close);
    for peer in &mut peers {
        stage.peer_ends(peer);
    }
    let accepted = stage.notes.iter().any(|note| matches!(note, Note::Accepted { .. }));
    assert!(!accepted, "nothing of a listener follows its end");
}

pub fn what_was_not_fetched_before_a_close_is_gone<S: Scene>(stage: &mut Stage<S>) {
    for pause in [false, true] {
        let (token, mut peer) = stage.connection();
        // More than the kernel receives in a row, so that the connection closes in the middle of it.
        let chunk = pattern(100_000);
        while peer.send(&chunk) > 0 {}
        stage.submit(token, Op::Recv);
        stage.wait_only();
        if pause {
            stage.submit(token, Op::Pause);
            stage.settle();
        }
        stage.close(token, Op::Close);
        stage.notes.clear();
        assert_eq!(stage.reactor().occupancy().leases, 0);
    }
}

pub fn a_connection_may_be_closed_as_soon_as_it_is_accepted<S: Scene>(stage: &mut Stage<S>) {
    let (listener, address) = stage.listen();
    stage.submit(listener, Op::Accept);
    for round in 0..20 {
        let mut peer = stage.scene.peer(&address, None);
        let (token, _) = stage.accepted(listener);
        if round % 2 == 0 {
            stage.submit(token, Op::Recv);
        }
        stage.send(token, vec![bytes(b"busy")]);
        stage.sent(token);
        assert!(stage.close(token, Op::Close).is_empty());
        assert_eq!(stage.peer_ends(&mut peer), (b"busy".to_vec(), End::Finished));
    }
}

pub fn a_stale_token_is_ignored<S: Scene>(stage: &mut Stage<S>) {
    let (old, _peer) = stage.connection();
    stage.submit(old, Op::Recv);
    stage.close(old, Op::Close);
    let (new, mut peer) = stage.connection();
    for op in [Op::Recv, Op::Pause, Op::Cancel, Op::Shutdown, Op::Close, Op::Abort] {
        stage.submit(old, op);
    }
    stage.send(old, vec![bytes(b"to nobody")]);
    assert_eq!(stage.reactor().unsent(old), 0);
    stage.submit(new, Op::Recv);
    stage.peer_sends(&mut peer, b"here");
    assert_eq!(stage.received(new, 4), b"here");
    stage.silent_about(old);
    stage.send(new, vec![bytes(b"there")]);
    assert_eq!(stage.peer_receives(&mut peer, 5), b"there");
}

pub fn a_place_is_used_again_only_after_its_end_was_told<S: Scene>(stage: &mut Stage<S>) {
    let (listener, address) = stage.listen();
    stage.submit(listener, Op::Accept);
    let mut peers = Vec::new();
    let mut old = Vec::new();
    for _ in 0..8 {
        peers.push(stage.scene.peer(&address, None));
        let (token, _) = stage.accepted(listener);
        stage.submit(token, Op::Recv);
        old.push(token);
    }
    for _ in 0..8 {
        peers.push(stage.scene.peer(&address, None));
    }
    for token in &old {
        stage.submit(*token, Op::Close);
    }
    let mut closed = Vec::new();
    let mut new = Vec::new();
    for _ in 0..16 {
        stage.expect("the end of a connection, or a new one", |note| match note {
            Note::Closed { token, .. } => {
                closed.push(token.index);
                Some(())
            }
            Note::Accepted { token, .. } => {
                let in_use = old.iter().any(|old| old.index == token.index) && !closed.contains(&token.index);
                assert!(!in_use, "{token:?} is in use");
                new.push(*token);
                Some(())
            }
            _ => None,
        });
    }
    assert_eq!((closed.len(), new.len()), (8, 8));
    for _ in 0..8 {
        peers.push(stage.scene.peer(&address, None));
        new.push(stage.accepted(listener).0);
    }
    assert!(new.iter().all(|token| !old.contains(token)), "the generation tells them apart");
    let again = new.iter().filter(|token| closed.contains(&token.index)).count();
    assert_eq!(again, 8, "free places are used before the table grows");
    for token in new.drain(..8) {
        stage.close(token, Op::Close);
    }
}

pub fn connecting_succeeds_or_is_refused<S: Scene>(stage: &mut Stage<S>) {
    let (listener, address) = stage.listen();
    stage.submit(listener, Op::Accept);
    let target = Stage::<S>::inet(&address);
    let client = stage.unconnected(&target);
    stage.submit(client, Op::Connect(target));
    stage.expect("the connection", |note| {
        matches!(note, Note::Connected(token) if *token == client).then_some(())
    });
    let (server, _) = stage.accepted(listener);
    stage.submit(server, Op::Recv);
    stage.submit(client, Op::Recv);
    stage.send(client, vec![bytes(b"ping")]);
    assert_eq!(stage.received(server, 4), b"ping");
    stage.send(server, vec![bytes(b"pong")]);
    assert_eq!(stage.received(client, 4), b"pong");
    stage.close(client, Op::Close);
    assert!(!stage.peer_closed(server));

    stage.close(listener, Op::Close);
    let client = stage.unconnected(&target);
    stage.submit(client, Op::Connect(target));
    assert_eq!(stage.failed(client, OpKind::Connect), (OpError::Refused, 0));
    stage.silent_about(client);
}

pub fn a_connect_may_be_closed_within_its_turn<S: Scene>(stage: &mut Stage<S>) {
    let (_listener, address) = stage.listen();
    let target = Stage::<S>::inet(&address);
    let first = stage.unconnected(&target);
    stage.submit(first, Op::Connect(target));
    stage.close(first, Op::Close);
    stage.silent_about(first);
    // The slot has another owner, which connects as usual.
    let second = stage.unconnected(&target);
    assert_eq!((second.index, second == first), (first.index, false));
    stage.submit(second, Op::Connect(target));
    stage.expect("the connection", |note| {
        matches!(note, Note::Connected(token) if *token == second).then_some(())
    });
    stage.silent_about(second);
    stage.close(second, Op::Close);
}

pub fn what_the_server_says_first_is_received_after_connecting<S: Scene>(stage: &mut Stage<S>) {
    let (listener, address) = stage.listen();
    stage.submit(listener, Op::Accept);
    let target = Stage::<S>::inet(&address);
    for end in [false, true] {
        let client = stage.unconnected(&target);
        stage.submit(client, Op::Connect(target));
        // No turn in between: the server's data and the client's connection are reported at the same time.
        let (server, _) = stage.accepted(listener);
        stage.send(server, vec![bytes(b"220 ready")]);
        if end {
            stage.submit(server, Op::Shutdown);
        }
        stage.settle();
        stage.expect("the connection", |note| {
            matches!(note, Note::Connected(token) if *token == client).then_some(())
        });
        stage.submit(client, Op::Recv);
        assert_eq!(stage.received(client, 9), b"220 ready");
        if end {
            // The end may have been reported with `behind_data` before receiving was armed.
            while stage.peer_closed(client) {}
        }
        stage.sent(server);
    }
}

/// A connection of the random mix, with the data seen at both ends.
struct Talk<P> {
    token: Token,
    peer: Option<P>,
    from_peer: Vec<u8>,
    received: Vec<u8>,
    to_peer: Vec<u8>,
    arrived: Vec<u8>,
    receiving: bool,
    sending: bool,
    peer_done: bool,
    ended: bool,
    /// Reset: the received data is a prefix of the sent data, and nothing more can be checked.
    broken: bool,
}

pub fn random_mixes_deliver_every_byte<S: Scene>(stage: &mut Stage<S>) {
    let content = pattern(300_000);
    let file = TemporaryFile::new("mix", &content);
    for seed in 1..=6 {
        println!("seed {seed}");
        random_mix(stage, &mut Random::new(seed), &content, &file);
    }
}

fn random_mix<S: Scene>(stage: &mut Stage<S>, random: &mut Random, content: &[u8], file: &TemporaryFile) {
    let (listener, address) = stage.listen();
    stage.submit(listener, Op::Accept);
    let mut talks: Vec<Talk<S::Peer>> = Vec::new();
    for _ in 0..400 {
        if talks.len() < 12 {
            let window = if random.below(2) == 0 { NARROW } else { None };
            let peer = stage.scene.peer(&address, window);
            let (token, _) = stage.accepted(listener);
            talks.push(Talk {
                token,
                peer: Some(peer),
                from_peer: Vec::new(),
                received: Vec::new(),
                to_peer: Vec::new(),
                arrived: Vec::new(),
                receiving: false,
                sending: false,
                peer_done: false,
                ended: false,
                broken: false,
            });
        }
        take_notes(stage, &mut talks);
        let number = random.below(talks.len());
        let talk = &mut talks[number];
        match random.below(100) {
            0..=24 => {
                if let Some(peer) = talk.peer.as_mut().filter(|_| !talk.peer_done) {
                    let message = pattern(1 + random.below(100_000));
                    let sent = peer.send(&message);
                    talk.from_peer.extend(&message[..sent]);
                }
            }
            25..=44 => {
                if !talk.sending && !talk.broken {
                    let mut segments = Vec::new();
                    for _ in 0..=random.below(5) {
                        let segment = random_segment(random, content, file);
                        match &segment {
                            Segment::File { offset, len, .. } => {
                                talk.to_peer.extend(&content[*offset as usize..][..*len as usize]);
                            }
                            memory => talk.to_peer.extend(memory.memory().expect("not a file")),
                        }
                        segments.push(segment);
                    }
                    stage.send(talk.token, segments);
                    talk.sending = true;
                }
            }
            45..=59 => {
                if !talk.ended {
                    talk.receiving = !talk.receiving;
                    stage.submit(talk.token, if talk.receiving { Op::Recv } else { Op::Pause });
                }
            }
            60..=79 => {
                if let Some(peer) = &mut talk.peer {
                    peer.receive(1 + random.below(200_000), &mut talk.arrived);
                }
            }
            80..=83 => {
                if let Some(peer) = talk.peer.as_mut().filter(|_| !talk.peer_done) {
                    peer.shutdown();
                    talk.peer_done = true;
                }
            }
            84 => {
                if let Some(peer) = talk.peer.take() {
                    peer.reset();
                    talk.broken = true;
                }
            }
            85 => {
                let talk = talks.swap_remove(number);
                stage.close(talk.token, if random.below(2) == 0 { Op::Close } else { Op::Abort });
                stage.notes.retain(|note| note.token() != Some(talk.token));
                let mut peer = talk.peer;
                if let Some(peer) = &mut peer {
                    let mut arrived = talk.arrived;
                    arrived.extend(stage.peer_ends(peer).0);
                    assert!(talk.to_peer.starts_with(&arrived), "closed: what arrived was sent");
                }
            }
            _ => stage.turn(std::time::Duration::ZERO),
        }
    }
    take_notes(stage, &mut talks);
    for talk in &mut talks {
        finish_talk(stage, talk);
    }
    stage.close(listener, Op::Close);
}

fn random_segment(random: &mut Random, content: &[u8], file: &TemporaryFile) -> Segment {
    let len = random.below(60_000);
    match random.below(3) {
        0 => Segment::Bytes(pattern(len)),
        1 => Segment::Shared(pattern(len + 5).into(), 5),
        _ => {
            let offset = random.below(content.len() - len);
            Segment::File { file: file.open(), offset: offset as u64, len: len as u64 }
        }
    }
}

/// Records each event in the talk that it belongs to.
fn take_notes<S: Scene>(stage: &mut Stage<S>, talks: &mut [Talk<S::Peer>]) {
    for note in std::mem::take(&mut stage.notes) {
        let Some(talk) = note.token().and_then(|token| talks.iter_mut().find(|talk| talk.token == token))
        else {
            stage.notes.push_back(note);
            continue;
        };
        match note {
            Note::Received(_, bytes) => {
                assert!(talk.receiving && !talk.ended, "bytes for one who does not receive");
                talk.received.extend(bytes);
            }
            Note::PeerClosed { behind_data, .. } => {
                assert!(talk.peer_done || talk.broken, "an end that the peer has not sent");
                if behind_data {
                    assert!(!talk.receiving);
                } else {
                    talk.ended = true;
                    talk.receiving = false;
                }
            }
            Note::Sent { .. } => talk.sending = false,
            Note::Failed { op, fault, .. } => {
                assert!(talk.broken, "{op:?} failed on a whole connection: {fault}");
                match op {
                    OpKind::Send => talk.sending = false,
                    _ => talk.ended = true,
                }
            }
            other => panic!("unexpected: {other:?}"),
        }
    }
}

/// Runs a talk to its end, and compares both ends.
fn finish_talk<S: Scene>(stage: &mut Stage<S>, talk: &mut Talk<S::Peer>) {
    if talk.broken {
        assert!(talk.from_peer.starts_with(&talk.received), "what was received was sent");
        stage.close(talk.token, Op::Close);
        stage.notes.retain(|note| note.token() != Some(talk.token));
        return;
    }
    let mut peer = talk.peer.take().expect("a whole connection has its peer");
    take_notes(stage, std::slice::from_mut(talk));
    if !talk.peer_done {
        peer.shutdown();
        talk.peer_done = true;
    }
    if !talk.ended && !talk.receiving {
        talk.receiving = true;
        stage.submit(talk.token, Op::Recv);
    }
    stage.submit(talk.token, Op::Shutdown);
    stage.until("both ends", |stage| {
        take_notes(stage, std::slice::from_mut(talk));
        peer.receive(usize::MAX, &mut talk.arrived);
        talk.ended && !talk.sending && peer.end() != End::Open
    });
    assert_eq!(peer.end(), End::Finished);
    assert!(talk.received == talk.from_peer, "{} of {}", talk.received.len(), talk.from_peer.len());
    assert!(talk.arrived == talk.to_peer, "{} of {}", talk.arrived.len(), talk.to_peer.len());
    stage.close(talk.token, Op::Close);
}
