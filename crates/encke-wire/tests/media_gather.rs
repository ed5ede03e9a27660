//! Pieces of a live stream: whole units, gathered by size and time.

#[path = "media/record.rs"]
mod record;

use encke_wire::media::gather::{GatherLimits, MediaGatherer, MediaPiece, PieceKind};
use encke_wire::media::gauge::{JUMP_US, MediaGauge};
use encke_wire::media::splitter::Splitter;
use encke_wire::media::{MediaSink, MediaUnit};
use proptest::prelude::*;
use record::{Recorded, Recording, file};

const MS: u64 = 1_000_000;

const LIMITS: GatherLimits = GatherLimits { bytes: 100, unit_bytes: 1_000, gather_ms: 50 };

/// A gatherer that is fed by hand.
struct Source(MediaGatherer);

impl Source {
    fn new(limits: GatherLimits) -> Self {
        Self(MediaGatherer::new(limits))
    }

    fn unit(&mut self, start: bool, bytes: &[u8]) {
        self.0.unit(MediaUnit { start, time_us: Some(7) });
        self.0.bytes(bytes);
    }

    /// The pieces as texts: `*` is a start, `+` continues, `#` is a head.
    fn pieces(&mut self) -> Vec<String> {
        let show = |piece: MediaPiece| {
            let head = if piece.kind == PieceKind::Head { "#" } else { "" };
            let start = if piece.start { "*" } else { "" };
            let continues = if piece.continues { "+" } else { "" };
            format!("{head}{start}{}{continues}", String::from_utf8_lossy(&piece.data))
        };
        self.0.drain().map(show).collect()
    }
}

#[test]
fn a_start_begins_a_new_piece_among_other_units() {
    let mut source = Source::new(LIMITS);
    for (start, bytes) in
        [(true, b"K1"), (false, b"p1"), (false, b"p2"), (true, b"K2"), (true, b"K3"), (false, b"p3")]
    {
        source.unit(start, bytes);
    }
    assert_eq!(source.pieces(), ["*K1p1p2", "*K2"]);
    source.0.finish(0);
    assert_eq!(source.pieces(), ["*K3p3"]);
}

#[test]
fn a_unit_that_has_ended_waits_for_no_other_one() {
    let mut source = Source::new(LIMITS);
    source.unit(true, b"K1");
    source.0.flush(0);
    assert!(source.pieces().is_empty(), "it may have more bytes");
    source.0.end();
    source.0.flush(0);
    assert_eq!(source.pieces(), ["*K1"]);
    // Bytes between units belong to no start.
    source.0.bytes(b"index");
    source.unit(true, b"K2");
    source.0.end();
    source.0.flush(0);
    assert_eq!(source.pieces(), ["index", "*K2"]);
    // A unit that is spread has no more pieces than without its end.
    source.unit(false, &[b'x'; 1_500]);
    source.0.end();
    source.unit(true, b"K3");
    source.0.end();
    source.0.flush(0);
    let lengths: Vec<(usize, bool)> =
        source.pieces().iter().map(|piece| (piece.len(), piece.ends_with('+'))).collect();
    assert_eq!(lengths, [(1_001, true), (500, false), (3, false)]);
}

#[test]
fn units_that_are_all_starts_share_pieces() {
    let mut source = Source::new(LIMITS);
    for _ in 0..26 {
        source.unit(true, b"frame----");
    }
    assert_eq!(source.pieces(), vec![format!("*{}", "frame----".repeat(12)); 2]);
}

#[test]
fn gather_time_ends_a_piece_behind_its_last_complete_unit() {
    let mut source = Source::new(LIMITS);
    source.0.set_now(10 * MS);
    source.unit(true, b"one");
    assert_eq!(source.0.due_ns(), None, "no unit is complete");
    source.0.set_now(30 * MS);
    source.unit(false, b"two");
    assert_eq!(source.0.due_ns(), Some(60 * MS), "50 ms after the first byte");
    source.0.flush(60 * MS);
    assert_eq!((source.pieces(), source.0.held_bytes()), (vec!["*one".to_owned()], 3));
    assert_eq!(source.0.due_ns(), None);
    source.0.bytes(b" more");
    source.0.set_now(79 * MS);
    source.unit(false, b"three");
    assert_eq!((source.pieces().len(), source.0.due_ns()), (0, Some(80 * MS)), "the unit began at 30 ms");
    source.0.set_now(80 * MS);
    source.unit(false, b"four");
    assert_eq!(source.pieces(), ["two morethree"]);
}

#[test]
fn without_gathering_each_unit_is_a_piece() {
    let mut source = Source::new(GatherLimits { gather_ms: 0, ..LIMITS });
    for (start, bytes) in [(true, b"a"), (false, b"b"), (false, b"c")] {
        source.unit(start, bytes);
    }
    assert_eq!(source.pieces(), ["*a", "b"]);
}

#[test]
fn a_unit_larger_than_the_limit_is_spread_and_shares_no_piece() {
    let mut source = Source::new(GatherLimits { unit_bytes: 4, ..LIMITS });
    source.unit(true, b"abcd");
    source.unit(false, b"0123");
    source.0.bytes(b"456789ABCDEF");
    assert_eq!(source.pieces(), ["*abcd", "0123+", "4567+", "89AB+"]);
    source.0.flush(500 * MS);
    assert_eq!(source.pieces(), [""; 0], "the end of the unit is not known");
    source.unit(false, b"x");
    assert_eq!(source.pieces(), ["CDEF"]);
    source.0.finish(0);
    assert_eq!(source.pieces(), ["x"]);
}

#[test]
fn a_head_ends_the_piece_and_is_passed_on_once() {
    let mut source = Source::new(LIMITS);
    source.0.head(b"H1");
    source.unit(true, b"a");
    source.0.head(b"H1");
    source.0.bytes(b"b");
    source.unit(true, b"c");
    assert_eq!(source.pieces(), ["#H1"]);
    source.0.head(b"H2");
    source.unit(true, b"d");
    assert_eq!(source.pieces(), ["*abc", "#H2"]);
    source.0.head(b"H1");
    assert_eq!(source.pieces(), ["*d", "#H1"], "a head of before is new again");
}

#[test]
fn the_time_of_a_piece_is_that_of_its_first_unit() {
    let mut gatherer = MediaGatherer::new(GatherLimits { unit_bytes: 4, ..LIMITS });
    for (time_us, bytes) in [(Some(1), b"a".as_slice()), (Some(2), b"b"), (Some(3), b"cdefghi"), (None, b"j")]
    {
        gatherer.unit(MediaUnit { start: true, time_us });
        gatherer.bytes(bytes);
    }
    gatherer.finish(0);
    let pieces: Vec<_> = gatherer.drain().map(|piece| (piece.data, piece.start, piece.time_us)).collect();
    let expected: [(&[u8], bool, Option<u64>); 4] =
        [(b"ab", true, Some(1)), (b"cdef", true, Some(3)), (b"ghi", false, None), (b"j", true, None)];
    assert_eq!(pieces, expected.map(|(data, start, time_us)| (data.to_vec(), start, time_us)));
}

#[test]
fn gauges_count_units_and_the_interval_of_starts() {
    let mut gauge = MediaGauge::new();
    for (start, time_us) in [(true, 0), (false, 40_000), (true, 500_000), (false, 900_000)] {
        gauge.unit(MediaUnit { start, time_us: Some(time_us) });
    }
    gauge.unit(MediaUnit { start: false, time_us: None });
    assert_eq!((gauge.units, gauge.starts, gauge.start_interval_us, gauge.gaps), (5, 2, Some(500_000), 0));
}

#[test]
fn gauges_count_jumps_of_the_time_as_gaps() {
    let gaps = |units: &[(bool, u64)]| {
        let mut gauge = MediaGauge::new();
        for (start, time_us) in units {
            gauge.unit(MediaUnit { start: *start, time_us: Some(*time_us) });
        }
        gauge.gaps
    };
    assert_eq!(gaps(&[(true, 0), (false, JUMP_US), (false, 2 * JUMP_US)]), 0);
    assert_eq!(gaps(&[(true, 0), (false, JUMP_US + 1), (false, JUMP_US + 2)]), 1, "forwards");
    assert_eq!(gaps(&[(true, 500), (false, 1_000), (false, 400)]), 0, "pictures in another order");
    assert_eq!(gaps(&[(true, 500), (true, 1_000), (true, 999)]), 1, "a start before the last start");
    assert_eq!(gaps(&[(true, 9 * JUMP_US), (false, 0), (false, 40_000)]), 1, "back");
    let mut gauge = MediaGauge::new();
    gauge.unit(MediaUnit { start: true, time_us: Some(9 * JUMP_US) });
    gauge.restart();
    gauge.unit(MediaUnit { start: true, time_us: Some(0) });
    assert_eq!(gauge.gaps, 0, "a new head begins a new time");
}

#[test]
fn the_bit_rate_is_that_of_the_last_ten_seconds() {
    const S: u64 = 1_000 * MS;
    let mut gauge = MediaGauge::new();
    assert_eq!(gauge.bit_rate(5 * S), None);
    for second in 5..8 {
        gauge.bytes(1_000, second * S + 300 * MS);
    }
    assert_eq!(gauge.bit_rate(7 * S), Some(8_000), "of two complete seconds");
    for second in 8..30 {
        gauge.bytes(2_000, second * S);
    }
    assert_eq!(gauge.bit_rate(29 * S), Some(16_000));
    assert_eq!(gauge.bit_rate(35 * S), Some(8_000), "five seconds without bytes");
    assert_eq!(gauge.bit_rate(1_000_000 * S), Some(0));
    assert_eq!(gauge.bytes, 3_000 + 44_000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    /// The pieces of a file that arrives in any way: its bytes, cut only between units, within the limits.
    #[test]
    fn pieces_are_whole_units_of_the_stream(
        name in prop::sample::select(vec!["cbr.mp3", "tone.aac", "opus.ogg", "theora.ogg", "chained.ogg"]),
        sizes in prop::collection::vec((1..4_000_usize, 0..60_u64), 1..10),
        bytes in 1..9_000_usize,
        unit_bytes in 1_000..3_000_usize,
        gather_ms in 0..300_u32,
    ) {
        let source = file(name);
        let (mut splitter, mut recording) = (Splitter::new(), Recording::default());
        splitter.push(&source, &mut recording)?;
        splitter.finish(&mut recording);

        let (mut splitter, mut gatherer) = (Splitter::new(), MediaGatherer::new(GatherLimits { bytes, unit_bytes, gather_ms }));
        let (mut rest, mut now_ns, mut pieces) = (source.as_slice(), 0, Vec::new());
        for (size, ms) in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            now_ns += ms * MS;
            if gatherer.due_ns().is_some_and(|due| due <= now_ns) {
                gatherer.flush(now_ns);
            }
            gatherer.set_now(now_ns);
            let (now, later) = rest.split_at((*size).min(rest.len()));
            rest = later;
            splitter.push(now, &mut gatherer)?;
            pieces.extend(gatherer.drain());
            prop_assert!(gatherer.held_bytes() <= bytes + 2 * unit_bytes);
        }
        splitter.finish(&mut gatherer);
        gatherer.finish(now_ns);
        pieces.extend(gatherer.drain());

        let mut parts = recording.0.iter();
        let mut open: &[u8] = &[];
        let has_others = recording.units().any(|(unit, _)| !unit.start);
        for piece in &pieces {
            let mut data = piece.data.as_slice();
            let mut is_first = open.is_empty();
            prop_assert!(!data.is_empty() && (piece.kind == PieceKind::Head || data.len() < bytes + unit_bytes));
            while !data.is_empty() {
                if open.is_empty() {
                    match parts.next() {
                        Some(Recorded::Head(head)) => {
                            prop_assert_eq!((piece.kind, data), (PieceKind::Head, head.as_slice()));
                            break;
                        }
                        Some(Recorded::Unit(unit, bytes)) => {
                            prop_assert!(piece.kind == PieceKind::Data);
                            prop_assert!(is_first || !unit.start || !has_others, "a start within a piece");
                            prop_assert!(!is_first || unit.start == piece.start);
                            open = bytes;
                        }
                        other => return Err(TestCaseError::fail(format!("{other:?}"))),
                    }
                    is_first = false;
                }
                let same = open.len().min(data.len());
                prop_assert_eq!(&open[..same], &data[..same]);
                (open, data) = (&open[same..], &data[same..]);
            }
            prop_assert_eq!(piece.continues, !open.is_empty());
        }
        prop_assert!(parts.next().is_none() && open.is_empty());
    }
}
