//! Invalid streams give an error or their valid units, never a panic, and need bounded memory.

use encke_wire::media::HELD_BYTES_MAX;
use proptest::prelude::*;

use super::pieces::cut;
use super::record::{FILES, Kind, file, measure, split};

const KINDS: [Kind; 4] = [Kind::Ts, Kind::Matroska, Kind::Mp4, Kind::Flv];

/// Whether the bytes of `part` are in `whole` in their order.
fn is_subsequence(part: &[u8], whole: &[u8]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|byte| whole.any(|other| other == byte))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_bytes_give_no_panic_and_are_split_alike(
        which in 0..KINDS.len(),
        begin in 0..600_usize,
        noise in prop::collection::vec(any::<u8>(), 0..4000),
        sizes in prop::collection::vec(1..300_usize, 1..5),
    ) {
        let (_, _, valid) = FILES.iter().find(|(_, kind, _)| *kind == KINDS[which]).expect("a file");
        let stream = [&valid[..begin], &noise].concat();
        prop_assert_eq!(split(KINDS[which], cut(&stream, &sizes)), split(KINDS[which], [&stream[..]]));
    }

    #[test]
    fn mutated_files_keep_their_order_and_are_split_alike(
        which in 0..FILES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30),
        early in any::<bool>(),
        sizes in prop::collection::vec(1..2000_usize, 1..5),
    ) {
        let (_, kind, bytes) = FILES[which];
        let mut bytes = bytes.to_vec();
        let range = if early { 800 } else { bytes.len() };
        for (at, byte) in changes {
            bytes[at.index(range)] = byte;
        }
        let whole = split(kind, [&bytes[..]]);
        prop_assert!(is_subsequence(&whole.body(), &bytes));
        // FLV repeats the header, and TS the tables, in a second head.
        if matches!(kind, Kind::Matroska | Kind::Mp4) {
            prop_assert!(bytes.starts_with(&whole.all()));
        }
        prop_assert_eq!(split(kind, cut(&bytes, &sizes)), whole);
    }

    #[test]
    fn files_with_bytes_missing_are_split_alike(
        which in 0..FILES.len(),
        from in any::<prop::sample::Index>(),
        missing in 1..1000_usize,
        sizes in prop::collection::vec(1..2000_usize, 1..5),
    ) {
        let (_, kind, bytes) = FILES[which];
        let from = from.index(bytes.len());
        let bytes = [&bytes[..from], &bytes[(from + missing).min(bytes.len())..]].concat();
        prop_assert_eq!(split(kind, cut(&bytes, &sizes)), split(kind, [&bytes[..]]));
    }
}

/// The begin of a file, then `rest` again and again until the splitter has been given 12 MiB.
fn flood(kind: Kind, begin: &[u8], rest: &[u8]) -> super::record::Record {
    let piece = rest.repeat(16_384_usize.div_ceil(rest.len()));
    let count = 3 * HELD_BYTES_MAX / piece.len();
    measure(kind, std::iter::once(begin).chain(std::iter::repeat_n(&piece[..], count)))
}

#[test]
fn no_claim_of_a_size_makes_a_splitter_hold_more_than_its_limit() {
    let (mkv, mp4, flv) = (file("h264-aac.mkv"), file("h264-aac.mp4"), file("h264-aac.flv"));
    let moov = mp4.windows(4).position(|kind| kind == b"moov").expect("a moov") - 4;
    let moof = mp4.windows(4).position(|kind| kind == b"moof").expect("a moof") - 4;
    let cluster = mkv.windows(4).position(|id| id == [0x1f, 0x43, 0xb6, 0x75]).expect("a Cluster");
    let mut huge = mp4[..moov].to_vec();
    huge.extend_from_slice(b"\xff\xff\xff\xffmoov");
    let floods = [
        ("a moov of 4 GiB", Kind::Mp4, huge, b"x".to_vec(), true),
        (
            "boxes before a fragment",
            Kind::Mp4,
            mp4[..moof].to_vec(),
            b"\0\0\0\x10styp12345678".to_vec(),
            true,
        ),
        ("a moof of 4 GiB", Kind::Mp4, [&mp4[..moof], b"\xff\xff\xff\xffmoof"].concat(), b"x".to_vec(), true),
        ("a Matroska head", Kind::Matroska, mkv[..cluster].to_vec(), b"\xec\x83xyz".to_vec(), true),
        (
            "Tracks of 2^56 bytes",
            Kind::Matroska,
            [&mkv[..cluster], b"\x16\x54\xae\x6b\x01\xf0\0\0\0\0\0\0"].concat(),
            b"x".to_vec(),
            true,
        ),
        (
            "audio in a Cluster",
            Kind::Matroska,
            [&mkv[..cluster], b"\x1f\x43\xb6\x75\xff"].concat(),
            b"\xa3\x85\x82\0\0\0x".to_vec(),
            false,
        ),
        (
            "a group of 2^55 bytes",
            Kind::Matroska,
            [&mkv[..cluster], b"\x1f\x43\xb6\x75\xff\xa0\x01\x7f\0\0\0\0\0\0"].concat(),
            b"x".to_vec(),
            false,
        ),
        (
            "FLV metadata",
            Kind::Flv,
            flv[..13].to_vec(),
            b"\x12\0\0\x01\0\0\0\0\0\0\0x\0\0\0\x0c".to_vec(),
            true,
        ),
        (
            "FLV configurations",
            Kind::Flv,
            flv.clone(),
            b"\x09\xff\xff\xf0\0\0\0\0\0\0\0\x17\0\0\0\0".to_vec(),
            true,
        ),
    ];
    for (name, kind, begin, rest, fails) in floods {
        let record = flood(kind, &begin, &rest);
        assert_eq!(record.error.is_some(), fails, "{name}: {:?}", record.error);
        assert!(record.held_max <= HELD_BYTES_MAX + 32_768, "{name}: {} bytes held", record.held_max);
    }
}

#[test]
fn a_stream_without_packets_is_an_error_after_the_limit() {
    let bytes = file("h264-aac.ts");
    let lost = vec![0_u8; HELD_BYTES_MAX - 1000];
    let found = [&bytes[..], &lost, &bytes].concat();
    let record = split(Kind::Ts, found.chunks(10_000));
    assert_eq!((record.error.as_ref(), record.starts().len()), (None, 6));
    let record = split(Kind::Ts, [&bytes[..], &lost, &lost]);
    let error = record.error.expect("too much was lost");
    assert_eq!(
        error.to_string().split(": ").nth(1),
        Some("4 MiB without packets of 188 bytes that begin with 0x47")
    );
}

#[test]
fn lost_bytes_in_a_transport_stream_cost_only_the_packets_around() {
    let bytes = file("h264-aac.ts");
    for missing in [1, 100, 187, 189, 3000] {
        let torn = [&bytes[..5000], &bytes[5000 + missing..]].concat();
        let record = split(Kind::Ts, [&torn[..]]);
        assert_eq!(record.starts().len(), 3, "{missing} bytes missing");
        assert!(record.body().len() + missing + 188 * 6 > bytes.len(), "{missing} bytes missing");
    }
}

#[test]
fn a_file_that_is_not_fragmented_is_refused_with_the_remedy() {
    let plain = include_bytes!("../media/plain.mp4");
    let error = split(Kind::Mp4, [&plain[..]]).error.expect("it is not fragmented");
    assert!(error.to_string().contains("-movflags frag_keyframe+empty_moov"), "{error}");
    // With the moov in front, as after -movflags faststart.
    let moov = plain.windows(4).position(|kind| kind == b"moov").expect("a moov") - 4;
    let fast = [&plain[..32], &plain[moov..], &plain[32..moov]].concat();
    let error = split(Kind::Mp4, [&fast[..]]).error.expect("it is not fragmented");
    assert!(error.to_string().contains("mvex") && error.to_string().contains("-movflags"), "{error}");
}

#[test]
fn a_joined_transport_stream_begins_with_the_first_whole_frame() {
    let bytes = file("h264-aac.ts");
    let whole = split(Kind::Ts, [&bytes[..]]);
    for from in (0..bytes.len() / 2).step_by(331) {
        let record = split(Kind::Ts, [&bytes[from..]]);
        assert_eq!(record.error, None);
        assert!(whole.body().ends_with(&record.body()), "from byte {from}");
        assert!(!record.starts().is_empty(), "from byte {from}");
    }
}

#[test]
fn sync_bytes_between_packets_do_not_begin_a_packet() {
    let bytes = file("h264-aac.ts");
    let (first, second) = bytes.split_at(188 * 20);
    // Sync bytes in odd places, none of them 188 bytes before another one.
    let noise: Vec<u8> = (0..5000).map(|at| if at % 101 == 50 { 0x47 } else { 0 }).collect();
    let torn = [first, &noise, second].concat();
    let whole = split(Kind::Ts, [&torn[..]]);
    assert!(whole.body() == split(Kind::Ts, [&bytes[..]]).body());
    for size in [1, 7, 100, 189, 1000] {
        assert!(split(Kind::Ts, torn.chunks(size)) == whole, "pieces of {size} bytes");
    }
}
