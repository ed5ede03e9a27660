//! A stream is split alike in whatever pieces it arrives.

use proptest::prelude::*;

use super::record::{FILES, Kind, recognise, split, streams};

/// The begin of a file, in which every place is tried.
const PREFIX: usize = 8_000;

#[test]
fn single_bytes_give_the_same_units_as_the_whole() {
    for (name, kind, bytes) in streams() {
        assert_eq!(split(kind, bytes.chunks(1)), split(kind, [&bytes[..]]), "{name}");
    }
}

#[test]
fn every_split_in_two_gives_the_same_units() {
    for (name, kind, bytes) in streams() {
        let bytes = &bytes[..bytes.len().min(PREFIX)];
        let whole = split(kind, [bytes]);
        for at in 0..bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert!(split(kind, [first, second]) == whole, "{name}, split at {at}");
        }
    }
}

/// Cuts bytes into pieces of these sizes, in turn.
pub(crate) fn cut<'a>(bytes: &'a [u8], sizes: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let (mut rest, mut sizes) = (bytes, sizes.iter().cycle());
    std::iter::from_fn(move || {
        let size = (*sizes.next()?).clamp(1, rest.len().max(1)).min(rest.len());
        let (piece, behind) = rest.split_at(size);
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn random_pieces_give_the_same_units(which in 0..FILES.len(), sizes in prop::collection::vec(1..3000_usize, 1..20)) {
        let (_, kind, bytes) = FILES[which];
        prop_assert_eq!(split(kind, cut(bytes, &sizes)), split(kind, [bytes]));
    }
}

#[test]
fn each_stream_is_recognised_by_its_splitter_alone() {
    for (name, kind, bytes) in FILES {
        let expected: Vec<_> = [Kind::Ts, Kind::Matroska, Kind::Mp4, Kind::Flv]
            .iter()
            .map(|other| Some(*other == kind))
            .collect();
        assert_eq!(recognise(&bytes[..600]), expected, "{name}");
        for len in 0..600 {
            for (answer, final_answer) in recognise(&bytes[..len]).iter().zip(&expected) {
                assert!(answer.is_none() || answer == final_answer, "{name}, {len} bytes");
            }
        }
    }
}

#[test]
fn a_transport_stream_is_recognised_inside_a_packet() {
    let bytes = super::record::file("h264-aac.ts");
    for at in 0..188 {
        assert_eq!(recognise(&bytes[at..at + 564])[0], Some(true), "from byte {at}");
    }
}
