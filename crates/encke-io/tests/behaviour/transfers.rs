//! Files that are sent: whole, in ranges, and interrupted. On Windows once by TransmitFile, and once by reading.

use std::sync::Arc;
use std::time::{Duration, Instant};

use encke_io::files::{FileSends, OpenFile, file_sends};
use encke_io::{Op, OpError, OpKind, Reactor, Segment, Token};

use crate::loopback::{BackEnd, Loopback};
use crate::stage::{End, Note, PATIENCE, Peer, Scene, Stage, pattern};
use crate::temporary::TemporaryFile;

/// A window so small that a connection is soon full.
const NARROW: Option<usize> = Some(32 * 1024);

/// More bytes than a connection's buffers hold.
const TOO_MUCH: usize = 16 << 20;

fn bytes(bytes: &[u8]) -> Segment {
    Segment::Bytes(bytes.to_vec())
}

fn range(file: &Arc<OpenFile>, offset: u64, len: u64) -> Segment {
    Segment::File { file: Arc::clone(file), offset, len }
}

/// Fails unless the system itself has sent exactly these files since `before`; where it does not, none.
fn check_calls<B: BackEnd>(before: FileSends, calls: u64, with_head: u64) {
    let after = file_sends();
    let expected = if B::TRANSMITS { (calls, with_head) } else { (0, 0) };
    assert_eq!(
        (after.calls - before.calls, after.with_head - before.with_head),
        expected,
        "calls, with a head"
    );
}

/// A blocked send of a file to a peer that reads nothing. The last value is kept only by the segments of the send.
fn blocked_file<B: BackEnd>(
    stage: &mut Stage<Loopback<B>>,
) -> (Token, <Loopback<B> as Scene>::Peer, TemporaryFile, Arc<OpenFile>) {
    let (token, peer) = stage.connection_with(NARROW);
    let file = TemporaryFile::new("blocked", &pattern(TOO_MUCH));
    let open = file.open();
    stage.send(token, vec![bytes(b"head"), range(&open, 0, TOO_MUCH as u64)]);
    stage.settle();
    assert!(stage.reactor().unsent(token) > 0);
    (token, peer, file, open)
}

pub fn a_file_arrives_between_its_head_and_its_end<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let content = pattern(2_397_701);
    let file = TemporaryFile::new("whole", &content);
    let open = file.open();
    for (heads, with_head) in [(vec![bytes(b"one "), bytes(b""), bytes(b"head ")], 1), (vec![], 0)] {
        let before = file_sends();
        let (token, mut peer) = stage.connection();
        let mut wanted: Vec<u8> =
            heads.iter().flat_map(|head| head.memory().expect("bytes")).copied().collect();
        let mut segments = heads;
        segments.extend([range(&open, 0, content.len() as u64), bytes(b" the end")]);
        wanted.extend(&content);
        wanted.extend(b" the end");
        stage.send(token, segments);
        assert!(stage.peer_receives(&mut peer, wanted.len()) == wanted);
        assert_eq!(stage.sent(token), wanted.len() as u64);
        check_calls::<B>(before, 1, with_head);
        assert_eq!(stage.reactor().unsent(token), 0);
        stage.close(token, Op::Close);
        assert_eq!(stage.peer_ends(&mut peer), (Vec::new(), End::Finished), "nothing follows");
    }
    assert_eq!(Arc::strong_count(&open), 1, "the file is released");
}

pub fn ranges_of_files_arrive_in_order<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let (one, other) = (pattern(900_001), pattern(300_000));
    let files = [TemporaryFile::new("one", &one), TemporaryFile::new("other", &other)];
    let [first, second] = [files[0].open(), files[1].open()];
    let (token, mut peer) = stage.connection();
    let mut wanted = Vec::new();
    let mut segments = Vec::new();
    // The shortest range of a call, the longest of a read, the last byte, a head that is too long to share a call.
    for (content, file, offset, len, head) in [
        (&one, &first, 0, 65_536, 3),
        (&one, &first, 834_464, 65_537, 0),
        (&other, &second, 1, 65_535, 100),
        (&one, &first, 900_000, 1, 0),
        (&other, &second, 99_999, 200_001, 16_384),
        (&other, &second, 0, 300_000, 16_385),
        (&one, &first, 4_095, 700_000, 0),
    ] {
        let head = pattern(head);
        wanted.extend(&head);
        wanted.extend(&content[offset..offset + len]);
        segments.extend([Segment::Bytes(head), range(file, offset as u64, len as u64)]);
    }
    let before = file_sends();
    stage.send(token, segments);
    assert!(stage.peer_receives(&mut peer, wanted.len()) == wanted);
    assert_eq!(stage.sent(token), wanted.len() as u64);
    // A part of the long head may have shared the call.
    let calls = file_sends().calls - before.calls;
    assert_eq!(calls, if B::TRANSMITS { 5 } else { 0 });
}

pub fn a_range_beyond_four_gigabytes_arrives<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    const START: u64 = (4 << 30) + 11;
    let file =
        TemporaryFile::sparse("high", 5 << 30, &[(START, *b"12345678"), (START + 99_992, *b"87654321")]);
    let (token, mut peer) = stage.connection();
    stage.send(token, vec![range(&file.open(), START, 100_000)]);
    let arrived = stage.peer_receives(&mut peer, 100_000);
    assert!(arrived.starts_with(b"12345678") && arrived.ends_with(b"87654321"));
    assert_eq!(stage.sent(token), 100_000);
}

pub fn a_file_that_is_shorter_than_its_range_fails_the_send<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let content = pattern(200_000);
    for (offset, len, there) in [(0, 200_001, 200_000), (100_000, 300_000, 100_000), (200_000, 100_000, 0)] {
        let file = TemporaryFile::new("short", &content);
        let (token, mut peer) = stage.connection();
        stage.send(token, vec![bytes(b"head"), range(&file.open(), offset, len), bytes(b"never")]);
        let (fault, sent) = stage.failed(token, OpKind::Send);
        assert_eq!((fault, sent), (OpError::FileShrunk, 4 + there), "{len} bytes from {offset} on");
        stage.submit(token, Op::Shutdown);
        let (arrived, end) = stage.peer_ends(&mut peer);
        assert_eq!((arrived.len() as u64, end), (sent, End::Finished));
        assert!(arrived[..4] == *b"head" && arrived[4..] == content[offset as usize..][..there as usize]);
    }
}

pub fn a_file_that_shrinks_in_flight_fails_the_send<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let (token, mut peer, file, _open) = blocked_file(stage);
    file.shrink(1_000);
    let mut arrived = Vec::new();
    stage.until("the failure", |stage| {
        peer.receive(usize::MAX, &mut arrived);
        stage.notes.iter().any(|note| matches!(note, Note::Failed { .. }))
    });
    let (fault, sent) = stage.failed(token, OpKind::Send);
    assert_eq!(fault, OpError::FileShrunk);
    assert!(sent < TOO_MUCH as u64);
    // As the server does, so that the client cannot take the response for a complete one.
    stage.close(token, Op::Abort);
    assert_eq!(stage.peer_ends(&mut peer).1, End::Reset);
}

pub fn a_file_in_flight_can_be_given_up<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let (token, mut peer, _file, open) = blocked_file(stage);
    stage.submit(token, Op::Cancel);
    let (fault, sent) = stage.failed(token, OpKind::Send);
    assert_eq!(fault, OpError::Canceled);
    assert_eq!(Arc::strong_count(&open), 1, "the file is released");
    assert_eq!(stage.reactor().occupancy().sends, 0);
    let mut wanted = b"head".to_vec();
    wanted.extend(pattern(TOO_MUCH));
    assert!(
        stage.peer_receives(&mut peer, sent as usize) == wanted[..sent as usize],
        "{sent} bytes were sent"
    );
    // The connection continues where the send stopped.
    stage.send(token, vec![range(&open, 7, 100_000), bytes(b"more")]);
    let mut arrived = stage.peer_receives(&mut peer, 100_004);
    assert_eq!(arrived.split_off(100_000), b"more");
    assert!(arrived == pattern(TOO_MUCH)[7..100_007]);
    stage.sent(token);
}

pub fn closing_ends_a_file_in_flight<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    for (op, expected) in [(Op::Close, None), (Op::Abort, Some(End::Reset))] {
        let (token, mut peer, _file, open) = blocked_file(stage);
        let segments = stage.close(token, op);
        assert_eq!(segments.len(), 2, "the segments return");
        drop(segments);
        assert_eq!(Arc::strong_count(&open), 1, "the file is released");
        let (arrived, end) = stage.peer_ends(&mut peer);
        assert!(arrived.len() < TOO_MUCH && expected.is_none_or(|expected| end == expected), "{end:?}");
    }
}

pub fn a_reset_fails_a_file_in_flight<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    for receives in [false, true] {
        let (token, peer, _file, open) = blocked_file(stage);
        if receives {
            stage.submit(token, Op::Recv);
            stage.settle();
        }
        peer.reset();
        let (fault, sent) = stage.failed(token, OpKind::Send);
        assert_eq!(fault, OpError::Reset);
        assert!(sent < TOO_MUCH as u64);
        assert_eq!(Arc::strong_count(&open), 1, "the file is released");
    }
}

pub fn a_connection_receives_while_a_file_is_in_flight<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let (token, mut peer, _file, _open) = blocked_file(stage);
    stage.submit(token, Op::Recv);
    for round in 0..10_u8 {
        stage.peer_sends(&mut peer, &[round; 7]);
        assert_eq!(stage.received(token, 7), [round; 7]);
    }
    let until = stage.reactor().now().plus(Duration::from_millis(50));
    let mut turns = 0;
    while stage.reactor().now().mono_ns < until {
        stage.turn(Duration::from_millis(50));
        turns += 1;
        assert!(turns < 10, "a blocked file keeps the worker busy");
    }
}

pub fn a_slow_reader_of_a_file_is_seen_to_read<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let (token, mut peer, _file, _open) = blocked_file(stage);
    let mut wanted = b"head".to_vec();
    wanted.extend(pattern(TOO_MUCH));
    let mut unsent = stage.reactor().unsent(token);
    let mut arrived = Vec::new();
    while arrived.len() < wanted.len() {
        let share = (TOO_MUCH / 4).min(wanted.len() - arrived.len());
        arrived.extend(stage.peer_receives(&mut peer, share));
        // The system may report the progress late, but then it does.
        let begun = Instant::now();
        loop {
            stage.turn(Duration::ZERO);
            let now = stage.reactor().unsent(token);
            assert!(now <= unsent, "{unsent}, then {now} bytes unsent");
            if now < unsent || now == 0 {
                unsent = now;
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{} bytes were read, and {unsent} are unsent", arrived.len());
        }
    }
    assert!(arrived == wanted);
    assert_eq!(stage.sent(token), wanted.len() as u64);
}

pub fn many_files_are_in_flight_at_once<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    const FILES: usize = 40;
    let content = pattern(1 << 20);
    let file = TemporaryFile::new("many", &content);
    let open = file.open();
    let before = file_sends();
    let mut pairs: Vec<_> = (0..FILES).map(|_| (stage.connection_with(NARROW), Vec::new())).collect();
    for (number, ((token, _), _)) in pairs.iter().enumerate() {
        let offset = number as u64 * 1_000;
        stage.send(*token, vec![bytes(&[number as u8]), range(&open, offset, content.len() as u64 - offset)]);
    }
    stage.until("all files", |_| {
        for ((_, peer), arrived) in &mut pairs {
            peer.receive(100_000, arrived);
        }
        pairs.iter().enumerate().all(|(number, (_, arrived))| arrived.len() > content.len() - number * 1_000)
    });
    for (number, ((token, _), arrived)) in pairs.iter().enumerate() {
        assert_eq!(stage.sent(*token), arrived.len() as u64);
        assert!(arrived[0] == number as u8 && arrived[1..] == content[number * 1_000..], "file {number}");
    }
    check_calls::<B>(before, FILES as u64, FILES as u64);
}

pub fn a_reactor_that_is_dropped_ends_files_in_flight<B: BackEnd>(_: &mut Stage<Loopback<B>>) {
    let mut stage = Stage::<Loopback<B>>::open();
    let mut flights: Vec<_> = (0..5).map(|_| blocked_file(&mut stage)).collect();
    drop(stage);
    for (_, peer, _, open) in &mut flights {
        assert_eq!(Arc::strong_count(open), 1, "the file is released");
        let begun = Instant::now();
        while peer.end() == End::Open {
            assert!(begun.elapsed() < PATIENCE, "a connection is still open");
            peer.receive(usize::MAX, &mut Vec::new());
        }
    }
}

/// A file of 2.2 GiB: offsets and lengths beyond 31 bits. It takes no room on the disk.
#[cfg(windows)]
pub fn a_file_beyond_two_gigabytes_arrives<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    const LEN: u64 = 2_362_232_013;
    const MARKS: [u64; 5] = [0, 5_000_000, 2_147_483_632, 2_147_483_642, LEN - 8];
    let file = TemporaryFile::sparse("large", LEN, &MARKS.map(|mark| (mark, mark.to_le_bytes())));
    let before = file_sends();
    let (token, mut peer) = stage.connection();
    stage.send(token, vec![bytes(b"head"), range(&file.open(), 0, LEN)]);
    assert_eq!(stage.peer_receives(&mut peer, 4), b"head");
    let (mut at, mut piece, zeros) = (0_u64, Vec::new(), vec![0; 8 << 20]);
    stage.until("the file", |_| {
        peer.receive(8 << 20, &mut piece);
        let end = at + piece.len() as u64;
        for mark in MARKS {
            for (place, byte) in (mark..).zip(mark.to_le_bytes()) {
                if (at..end).contains(&place) {
                    assert_eq!(
                        std::mem::take(&mut piece[(place - at) as usize]),
                        byte,
                        "the byte at {place}"
                    );
                }
            }
        }
        assert!(piece == zeros[..piece.len()], "from {at} to {end}");
        at = end;
        piece.clear();
        assert_eq!(peer.end(), End::Open, "after {at} bytes");
        at == LEN
    });
    assert_eq!(stage.sent(token), 4 + LEN);
    check_calls::<B>(before, 2, 1);
}
