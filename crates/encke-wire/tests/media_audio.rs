//! The splitters of MPEG audio, ADTS and Ogg on files of ffmpeg (`media/make_audio.sh`), checked against independent readers.

#[path = "media/record.rs"]
mod record;

use std::io::Cursor;

use adts_reader::AdtsHeader;
use encke_wire::media::adts::AdtsSplitter;
use encke_wire::media::mpeg_audio::Mp3Splitter;
use encke_wire::media::ogg::OggSplitter;
use encke_wire::media::splitter::{DETECTION_BYTES_MAX, Splitter};
use encke_wire::media::{Container, HELD_BYTES_MAX, MediaInfo};
use ogg::{Packet, PacketReader, PacketWriteEndInfo, PacketWriter};
use proptest::prelude::*;
use record::{Recorded, Recording, file};

const FILES: [&str; 9] = [
    "cbr.mp3",
    "vbr.mp3",
    "layer2.mp2",
    "tone.aac",
    "vorbis.ogg",
    "opus.ogg",
    "flac.ogg",
    "theora.ogg",
    "chained.ogg",
];

struct Outcome {
    recording: Recording,
    info: Option<MediaInfo>,
    dropped: u64,
}

/// Feeds the pieces to a splitter for any container.
fn split<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    feed(Splitter::new(), pieces)
}

fn feed<'a>(mut splitter: Splitter, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut recording = Recording::default();
    for piece in pieces {
        if let Err(error) = splitter.push(piece, &mut recording) {
            recording.0.push(Recorded::Error(error));
            break;
        }
    }
    splitter.finish(&mut recording);
    Outcome { recording, info: splitter.info(), dropped: splitter.dropped_bytes() }
}

fn whole(name: &str) -> Outcome {
    split([file(name).as_slice()])
}

/// Cuts at sizes that are used in turn.
fn cut<'a>(mut bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at((*size).clamp(1, bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

#[test]
fn streams_fed_byte_by_byte_split_as_whole_ones() {
    for name in FILES {
        let bytes = file(name);
        assert_eq!(split(bytes.chunks(1)).recording, whole(name).recording, "{name}");
    }
}

#[test]
fn streams_cut_in_two_anywhere_split_as_whole_ones() {
    for name in FILES {
        let bytes = file(name);
        // Every place in the first 6,000 bytes, and of the others one in 23.
        let expected = whole(name).recording;
        let begin = &bytes[..6_000];
        let expected_begin = split([begin]).recording;
        for at in 0..begin.len() {
            let (first, second) = begin.split_at(at);
            assert_eq!(split([first, second]).recording, expected_begin, "{name} cut at {at}");
        }
        for at in (begin.len()..bytes.len()).step_by(23) {
            let (first, second) = bytes.split_at(at);
            assert_eq!(split([first, second]).recording, expected, "{name} cut at {at}");
        }
    }
}

#[test]
fn only_tags_are_dropped() {
    for name in FILES {
        let bytes = file(name);
        let outcome = split([bytes.as_slice()]);
        let (front, behind) = match name {
            "cbr.mp3" => (0, 128),
            "vbr.mp3" => (10 + bytes[6..10].iter().fold(0, |size, byte| size << 7 | usize::from(*byte)), 0),
            _ => (0, 0),
        };
        assert_eq!(outcome.recording.bytes(), bytes[front..bytes.len() - behind], "{name}");
        assert_eq!(outcome.dropped, (front + behind) as u64, "{name}");
    }
}

#[test]
fn infos_state_container_codecs_and_bit_rate() {
    let expected = [
        ("cbr.mp3", Container::Mp3, "mp3", Some(64_000)),
        ("layer2.mp2", Container::Mp3, "mp2", Some(96_000)),
        ("tone.aac", Container::Adts, "mp4a.40.2", None),
        ("vorbis.ogg", Container::Ogg, "vorbis", Some(60_000)),
        ("opus.ogg", Container::Ogg, "opus", None),
        ("flac.ogg", Container::Ogg, "flac", None),
    ];
    for (name, container, codec, bit_rate) in expected {
        let expected = MediaInfo { container, video: false, codecs: vec![codec.into()], bit_rate };
        assert_eq!(whole(name).info, Some(expected), "{name}");
    }
    let theora = whole("theora.ogg").info.expect("a head");
    assert_eq!((theora.video, theora.codecs), (true, vec!["theora".into(), "vorbis".into()]));
    let variable = whole("vbr.mp3").info.and_then(|info| info.bit_rate).expect("a Xing frame");
    let by_size = (file("vbr.mp3").len() * 8 / 2) as u64;
    assert!(variable.abs_diff(by_size) < by_size / 20, "{variable} bit/s stated, {by_size} by the file");
    assert!(by_size > 70_000, "the first frame's header states 64,000");
}

#[test]
fn mp3_units_are_the_frames_of_an_independent_reader() {
    for name in ["cbr.mp3", "vbr.mp3"] {
        let outcome = whole(name);
        // The reader counts a tag at the end to the last frame.
        let bytes = file(name);
        let tag = bytes.iter().rposition(|byte| *byte == b'T').filter(|at| bytes[*at..].starts_with(b"TAG"));
        let read = mp3_metadata::read_from_slice(&bytes[..tag.unwrap_or(bytes.len())]).expect("an MP3 file");
        let sizes: Vec<usize> = read.frames.iter().map(|frame| frame.size as usize).collect();
        let units: Vec<usize> = outcome.recording.units().map(|(_, bytes)| bytes.len()).collect();
        assert!(units.len() > 70, "{name} has {} frames", units.len());
        assert!(units.ends_with(&sizes), "{name}: {units:?}, and not {sizes:?}");
        assert!(units.len() - sizes.len() <= 1, "{name}: the reader skips the frame that counts the others");
    }
}

#[test]
fn adts_units_are_the_frames_of_an_independent_reader() {
    let outcome = whole("tone.aac");
    assert!(outcome.recording.units().count() > 80);
    for (unit, bytes) in outcome.recording.units() {
        let header = AdtsHeader::from_bytes(bytes).expect("a header");
        assert!(unit.start);
        assert_eq!(usize::from(header.frame_length()), bytes.len());
        assert!(header.payload().is_ok());
    }
}

/// All packets of an Ogg stream. The reader checks the CRC of each page.
fn packets(bytes: &[u8]) -> Vec<Packet> {
    let mut reader = PacketReader::new(Cursor::new(bytes));
    std::iter::from_fn(|| reader.read_packet().expect("pages that follow each other")).collect()
}

#[test]
fn joins_of_ogg_have_the_headers_and_the_last_packets() {
    for (name, headers) in [("vorbis.ogg", 3), ("opus.ogg", 2), ("flac.ogg", 2)] {
        let all = packets(&file(name));
        let joins = whole(name).recording.joins();
        assert!(joins.len() >= 5, "{name} has {} starts", joins.len());
        let mut counts = Vec::new();
        for join in joins {
            let joined = packets(&join);
            let behind = all.len() - (joined.len() - headers);
            let expected = all[..headers].iter().chain(&all[behind..]);
            assert!(
                joined.iter().map(|packet| &packet.data).eq(expected.map(|packet| &packet.data)),
                "{name}"
            );
            counts.push(joined.len());
        }
        assert_eq!(counts[0], all.len(), "{name}: a join at the first start lacks nothing");
        assert!(counts.is_sorted_by(|a, b| a > b), "{name}: {counts:?}");
    }
}

#[test]
fn a_chained_stream_has_a_head_per_link() {
    let outcome = whole("chained.ogg");
    let heads: Vec<_> = outcome.recording.heads().map(packets).collect();
    let begins: Vec<_> = heads.iter().map(|head| (head.len(), head[0].data[..8].to_vec())).collect();
    let [vorbis, opus] = [b"\x01vorbis\0".to_vec(), b"OpusHead".to_vec()];
    assert_eq!(begins, [(3, vorbis.clone()), (3, vorbis), (2, opus)]);
    assert_eq!(outcome.info.map(|info| info.codecs), Some(vec!["opus".into()]), "the last link");
    for join in outcome.recording.joins() {
        assert!(packets(&join).len() > 3);
    }
}

/// Writes each packet to a page of its own.
fn paged(packets: &[Packet]) -> Vec<u8> {
    let mut writer = PacketWriter::new(Vec::new());
    for packet in packets {
        let (data, serial, granule) = (packet.data.clone(), packet.stream_serial(), packet.absgp_page());
        writer.write_packet(data, serial, PacketWriteEndInfo::EndPage, granule).expect("memory takes all");
    }
    writer.into_inner()
}

#[test]
fn heads_have_all_header_packets_however_they_are_paged() {
    for (name, headers) in [("vorbis.ogg", 3), ("opus.ogg", 2), ("flac.ogg", 2), ("theora.ogg", 6)] {
        let mut all = packets(&file(name));
        // The second time FLAC does not state the number of its header packets.
        for _ in 0..2 {
            let outcome = split([paged(&all).as_slice()]);
            let heads: Vec<_> = outcome.recording.heads().collect();
            assert_eq!(heads, [paged(&all[..headers])], "{name}");
            if name == "flac.ogg" {
                all[0].data[7..9].fill(0);
            }
        }
    }
}

#[test]
fn starts_of_theora_are_key_frames() {
    let outcome = whole("theora.ogg");
    let head = outcome.recording.heads().next().expect("a head");
    let headers = packets(head);
    let video = headers[0].stream_serial();
    let starts: Vec<_> = outcome.recording.units().filter(|(unit, _)| unit.start).collect();
    for (unit, bytes) in &starts {
        let first = &packets(&[head, bytes].concat())[headers.len()];
        assert_eq!((first.stream_serial(), first.data[0] & 0xc0), (video, 0), "a key frame");
        assert!(unit.time_us.is_some());
    }
    let is_key = |packet: &Packet| {
        packet.stream_serial() == video && packet.data.first().is_some_and(|byte| byte & 0xc0 == 0)
    };
    let keys = packets(&file("theora.ogg")).iter().filter(|packet| is_key(packet)).count();
    assert!(keys >= 4, "{keys} key frames");
    assert_eq!(starts.len(), keys, "ffmpeg begins a page at each key frame");
}

#[test]
fn times_grow_up_to_the_duration() {
    for (name, seconds) in [
        ("cbr.mp3", 2),
        ("vbr.mp3", 2),
        ("layer2.mp2", 1),
        ("tone.aac", 2),
        ("vorbis.ogg", 2),
        ("opus.ogg", 2),
        ("flac.ogg", 1),
    ] {
        let outcome = whole(name);
        let times: Vec<u64> = outcome.recording.units().filter_map(|(unit, _)| unit.time_us).collect();
        assert_eq!(times.len(), outcome.recording.units().count(), "{name}");
        assert!(times.is_sorted_by(|a, b| a < b), "{name}: {times:?}");
        let last = times.last().copied().unwrap_or_default();
        assert!(last.abs_diff(seconds * 1_000_000) < 110_000, "{name} ends at {last} µs");
    }
}

#[test]
fn the_time_of_ogg_ends_exactly_with_the_sound() {
    for (name, us) in [("vorbis.ogg", 2_000_000), ("opus.ogg", 2_000_000), ("flac.ogg", 1_000_000)] {
        let outcome = whole(name);
        assert_eq!(outcome.recording.units().last().and_then(|(unit, _)| unit.time_us), Some(us), "{name}");
    }
    // Ten frames a second, of which each fifth is a key frame. The time is that at its end.
    let outcome = whole("theora.ogg");
    let keys = outcome.recording.units().filter(|(unit, _)| unit.start);
    let times: Vec<_> = keys.filter_map(|(unit, _)| unit.time_us).collect();
    assert_eq!(times, [100_000, 600_000, 1_100_000, 1_600_000]);
}

#[test]
fn a_prefix_is_never_refused_by_its_own_splitter() {
    for name in FILES {
        let bytes = file(name);
        let own = match name.rsplit('.').next() {
            Some("mp3" | "mp2") => 0,
            Some("aac") => 1,
            _ => 2,
        };
        for at in 0..3 {
            let recognises = |first: &[u8]| match at {
                0 => Mp3Splitter::recognises(first),
                1 => AdtsSplitter::recognises(first),
                _ => OggSplitter::recognises(first),
            };
            let verdicts: Vec<_> = (0..bytes.len().min(3_000)).map(|end| recognises(&bytes[..end])).collect();
            assert!(!verdicts.contains(&Some(at != own)), "{name} by splitter {at}");
            assert_eq!(recognises(&bytes), Some(at == own), "{name} by splitter {at}");
        }
    }
}

/// The frames of an MP3 file.
fn frames(name: &str) -> Vec<Vec<u8>> {
    whole(name).recording.units().map(|(_, bytes)| bytes.to_vec()).collect()
}

#[test]
fn garbage_between_frames_is_dropped_up_to_a_confirmed_frame() {
    for name in ["cbr.mp3", "tone.aac"] {
        let frames = frames(name);
        // A header of the same kind, and at the end of its frame the first bytes of another.
        let mut garbage = b"no frame".repeat(100);
        garbage[300..307].copy_from_slice(&frames[0][..7]);
        let end = 300 + frames[0].len();
        garbage[end..end + 2].copy_from_slice(&[0xff, 0xe0]);
        let source = [frames[..10].concat(), garbage.clone(), frames[10..].concat()].concat();
        for pieces in [vec![source.as_slice()], source.chunks(1).collect()] {
            let outcome = split(pieces);
            assert!(
                outcome.recording.units().map(|(_, bytes)| bytes).eq(frames.iter().map(Vec::as_slice)),
                "{name}"
            );
            assert_eq!(outcome.dropped, garbage.len() as u64, "{name}");
        }
    }
}

#[test]
fn a_torn_frame_costs_itself_and_the_next() {
    let frames = frames("cbr.mp3");
    let source = [frames[..20].concat(), frames[20][..100].to_vec(), frames[21..].concat()].concat();
    let outcome = split([source.as_slice()]);
    let units: Vec<_> = outcome.recording.units().map(|(_, bytes)| bytes).collect();
    assert_eq!(units.len(), frames.len() - 1);
    assert!(units[21..].iter().eq(frames[22..].iter()));
}

#[test]
fn a_changed_sample_rate_goes_on_with_the_time() {
    let (first, second) = (frames("cbr.mp3"), frames("layer2.mp2"));
    let source = [first.concat(), second.concat()].concat();
    let outcome = split([source.as_slice()]);
    assert_eq!(outcome.recording.units().count(), first.len() + second.len());
    assert_eq!(outcome.info.map(|info| info.codecs), Some(vec!["mp2".into()]));
    let times: Vec<_> = outcome.recording.units().filter_map(|(unit, _)| unit.time_us).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    assert!(times.last().is_some_and(|last| last.abs_diff(3_050_000) < 110_000), "{times:?}");
}

#[test]
fn frames_in_free_format_are_measured() {
    // The first frame is a padded one.
    let mut frames = frames("cbr.mp3").split_off(2);
    assert_ne!(frames[0][2] & 2, 0);
    for frame in &mut frames {
        frame[2] &= 0x0f;
    }
    let source = frames.concat();
    for pieces in [vec![source.as_slice()], source.chunks(1).collect()] {
        let outcome = split(pieces);
        assert!(outcome.recording.units().map(|(_, bytes)| bytes).eq(frames.iter().map(Vec::as_slice)));
        let rate = outcome.info.and_then(|info| info.bit_rate).unwrap_or_default();
        assert!(rate.abs_diff(64_000) < 500, "{rate} bit/s");
    }
}

#[test]
fn sizes_of_frames_follow_version_layer_and_padding() {
    // Sizes by ISO/IEC 11172-3 §2.4.3.1: slots of 4 bytes in layer I, half as many samples in layer III of MPEG-2.
    let cases: [([u8; 4], usize, u64); 6] = [
        ([0xff, 0xff, 0xc0, 0x00], 416, 384_000),
        ([0xff, 0xff, 0xc2, 0x00], 420, 384_000),
        ([0xff, 0xfd, 0xc4, 0x00], 768, 256_000),
        ([0xff, 0xf3, 0x84, 0x00], 192, 64_000),
        ([0xff, 0xf3, 0x86, 0x00], 193, 64_000),
        ([0xff, 0xe3, 0x88, 0x00], 576, 64_000),
    ];
    for (header, size, bit_rate) in cases {
        let frame = [header.as_slice(), &vec![0x55; size - 4]].concat();
        let outcome = split([frame.repeat(3).as_slice()]);
        let sizes: Vec<_> = outcome.recording.units().map(|(_, bytes)| bytes.len()).collect();
        assert_eq!(
            (sizes, outcome.info.and_then(|info| info.bit_rate)),
            (vec![size; 3], Some(bit_rate)),
            "{header:x?}"
        );
    }
}

#[test]
fn the_end_passes_on_a_complete_frame_and_drops_a_part() {
    let frame = &frames("cbr.mp3")[3];
    for (source, units, dropped) in [(frame.clone(), 1, 0), (frame[..100].to_vec(), 0, 100)] {
        let (mut splitter, mut recording) = (Mp3Splitter::new(), Recording::default());
        splitter.push(&source, &mut recording).expect("MPEG audio has no errors");
        assert_eq!(recording.units().count(), 0, "nothing confirms the frame yet");
        splitter.finish(&mut recording);
        assert_eq!((recording.units().count(), splitter.dropped_bytes()), (units, dropped));
    }
}

#[test]
fn an_ape_tag_behind_the_frames_is_dropped() {
    let frames = frames("cbr.mp3").concat();
    let items = b"\x05\0\0\0\0\0\0\0Title\0tone!";
    let block = |flags: u32| {
        let size = items.len() as u32 + 32;
        let words = [2_000, size, 1, flags].map(u32::to_le_bytes).concat();
        [b"APETAGEX".to_vec(), words, vec![0; 8]].concat()
    };
    let tag = [block(0xa000_0000), items.to_vec(), block(0x8000_0000)].concat();
    let outcome = split([[frames.as_slice(), &tag].concat().as_slice()]);
    assert_eq!(outcome.recording.bytes(), frames);
    assert_eq!(outcome.dropped, tag.len() as u64);
}

#[test]
fn a_tag_larger_than_the_limit_does_not_hide_the_container() {
    let size = 3 * DETECTION_BYTES_MAX as u32;
    let bits = [21, 14, 7, 0].map(|shift| (size >> shift & 0x7f) as u8);
    let tag = [b"ID3\x04\0\0".as_slice(), &bits, &vec![0xff; size as usize]].concat();
    for name in ["cbr.mp3", "tone.aac"] {
        let frames = frames(name).concat();
        let source = [tag.as_slice(), &frames].concat();
        for pieces in [vec![source.as_slice()], source.chunks(1_000).collect()] {
            let outcome = split(pieces);
            assert_eq!(outcome.recording.bytes(), frames, "{name}");
            assert_eq!(outcome.dropped, tag.len() as u64, "{name}");
        }
    }
}

#[test]
fn files_of_all_containers_are_recognised_in_any_pieces() {
    for (name, container) in [
        ("h264-aac.ts", Container::MpegTs),
        ("h264-aac.mkv", Container::Matroska),
        ("vp9-opus.webm", Container::WebM),
        ("h264-aac.mp4", Container::FragmentedMp4),
        ("h264-aac.flv", Container::Flv),
        ("vorbis.ogg", Container::Ogg),
        ("tone.aac", Container::Adts),
        ("cbr.mp3", Container::Mp3),
    ] {
        let bytes = file(name);
        for size in [1, 1_000, bytes.len()] {
            let info = split(bytes.chunks(size)).info;
            assert_eq!(info.map(|info| info.container), Some(container), "{name} in pieces of {size}");
        }
    }
}

#[test]
fn unknown_streams_pass_as_they_are() {
    let first = b"fLaC and ".repeat(100);
    let pieces = [first.as_slice(), b"", b"so", b" on"];
    let outcome = split(pieces);
    let units: Vec<_> =
        outcome.recording.units().map(|(unit, bytes)| (unit.start, unit.time_us, bytes)).collect();
    assert_eq!(units, [(true, None, pieces[0]), (true, None, pieces[2]), (true, None, pieces[3])]);
    assert_eq!(outcome.info.map(|info| info.container), Some(Container::Unknown));
    assert_eq!(split([b"I".as_slice()]).recording.bytes(), b"I", "a stream that ends undecided");
}

#[test]
fn a_hint_finds_frames_behind_a_torn_one_and_nothing_else() {
    let mp3 = frames("cbr.mp3");
    let torn = [mp3[0][50..].to_vec(), mp3[1..].concat()].concat();
    let hinted = |content_type: &str, source: &[u8]| {
        let whole = feed(Splitter::with_hint(content_type), [source]);
        let single = feed(Splitter::with_hint(content_type), source.chunks(1));
        assert_eq!(whole.info, single.info, "{content_type}");
        whole
    };
    let outcome = hinted("Audio/MPEG; charset=x", &torn);
    assert_eq!(outcome.recording.bytes(), mp3[1..].concat());
    assert_eq!(
        split([torn.as_slice()]).info.map(|info| info.container),
        Some(Container::Unknown),
        "without a hint"
    );
    let flac = b"fLaC".repeat(40_000);
    let outcome = hinted("audio/mpeg", &flac);
    assert_eq!(outcome.info.map(|info| info.container), Some(Container::Unknown));
    assert_eq!(outcome.recording.bytes(), flac);
    let outcome = hinted("audio/aac", &file("opus.ogg"));
    assert_eq!(outcome.info.map(|info| info.container), Some(Container::Ogg), "the bytes decide");
}

fn ogg_error(source: &[u8]) -> Option<(u64, &'static str)> {
    let (mut splitter, mut recording) = (OggSplitter::new(), Recording::default());
    let error = splitter.push(source, &mut recording).err()?;
    assert_eq!(splitter.push(b"more", &mut recording), Err(error.clone()), "an error stays");
    assert_eq!(error.container, Container::Ogg);
    Some((error.at, error.what))
}

#[test]
fn errors_of_ogg_name_the_place() {
    let opus = file("opus.ogg");
    let second = 1 + opus[1..].windows(4).position(|bytes| bytes == b"OggS").expect("two pages");
    assert_eq!(ogg_error(&opus), None);
    let at = |mutate: fn(&mut [u8])| {
        let mut source = opus.clone();
        mutate(&mut source[second..]);
        ogg_error(&source)
    };
    let expected = "a page was expected, which begins with `OggS` and version 0";
    assert_eq!(at(|page| page[3] = b'T'), Some((second as u64, expected)));
    assert_eq!(at(|page| page[4] = 1), Some((second as u64, expected)));
    // The page of the second header packet is missing.
    let tags = second + 27 + usize::from(opus[second + 26]);
    let size: usize = opus[second + 27..tags].iter().map(|byte| usize::from(*byte)).sum();
    let data = opus.len() - tags - size;
    let source = [&opus[..second], &opus[opus.len() - data..]].concat();
    // The next page is taken for the headers, and the one after it is data.
    assert_eq!(ogg_error(&source), None);
    assert_eq!(ogg_error(&source[second..]).map(|error| error.0), Some(0), "no page begins a stream");
}

#[test]
fn a_head_larger_than_the_limit_is_refused() {
    // The first page of Vorbis, and then pages of a comment without an end.
    let vorbis = file("vorbis.ogg");
    let second = 1 + vorbis[1..].windows(4).position(|bytes| bytes == b"OggS").expect("two pages");
    let mut page = [&vorbis[second..second + 26], &[255], &[255; 255]].concat();
    page.resize(page.len() + 255 * 255, 0);
    let (mut splitter, mut recording) = (OggSplitter::new(), Recording::default());
    splitter.push(&vorbis[..second], &mut recording).expect("a page");
    let pages = (0..).take_while(|_| splitter.push(&page, &mut recording).is_ok()).count();
    assert_eq!(pages, (HELD_BYTES_MAX - second) / page.len());
    assert_eq!(recording, Recording::default());
}

#[test]
fn ogg_without_a_known_codec_is_unknown_but_has_a_head() {
    let mut source = file("opus.ogg");
    let name = source.windows(8).position(|bytes| bytes == b"OpusHead").expect("Opus");
    source[name] = b'X';
    let outcome = split([source.as_slice()]);
    assert_eq!(
        outcome.info.map(|info| (info.container, info.codecs)),
        Some((Container::Unknown, Vec::new()))
    );
    assert_eq!(outcome.recording.heads().count(), 1);
    assert_eq!(outcome.recording.bytes(), source);
}

/// A change to a file.
#[derive(Clone, Debug)]
enum Mutation {
    Set(usize, u8),
    Remove(usize, usize),
    Insert(usize, Vec<u8>),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (any::<usize>(), 1..2_000_usize).prop_map(|(at, count)| Mutation::Remove(at, count)),
        (any::<usize>(), prop::collection::vec(any::<u8>(), 1..50))
            .prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
    ]
}

fn mutated(name: &str, mutations: &[Mutation]) -> Vec<u8> {
    let mut bytes = file(name);
    for mutation in mutations {
        match mutation {
            Mutation::Set(at, byte) => {
                let at = at % bytes.len();
                bytes[at] = *byte;
            }
            Mutation::Remove(at, count) => {
                let at = at % bytes.len();
                bytes.drain(at..(at + count).min(bytes.len() - 1).max(at));
            }
            Mutation::Insert(at, new) => {
                let at = at % bytes.len();
                bytes.splice(at..at, new.iter().copied());
            }
        }
    }
    bytes
}

/// Splits in pieces of the given sizes, and checks what holds for any input.
fn check(source: &[u8], sizes: &[usize]) {
    // Two frames in free format, or the rest of an Ogg page; and what recognises a container.
    const HELD_MAX: usize = 128 * 1024;
    let expected = split([source]);
    let (mut splitter, mut recording, mut pushed) = (Splitter::new(), Recording::default(), 0);
    for piece in cut(source, sizes) {
        if let Err(error) = splitter.push(piece, &mut recording) {
            recording.0.push(Recorded::Error(error));
            break;
        }
        pushed += piece.len();
        let held = pushed - recording.bytes().len() - splitter.dropped_bytes() as usize;
        assert!(held <= HELD_MAX, "{held} bytes are held");
    }
    splitter.finish(&mut recording);
    let passed = recording.bytes();
    if splitter.container() == Some(Container::Unknown) {
        assert_eq!(passed, expected.recording.bytes());
    } else {
        assert_eq!(recording, expected.recording);
    }
    let dropped = splitter.dropped_bytes() as usize;
    match splitter.container() {
        Some(Container::Mp3 | Container::Adts) => {
            assert_eq!(passed.len() + dropped, source.len());
            let mut rest = source.iter();
            assert!(passed.iter().all(|byte| rest.any(|other| other == byte)), "in the order of the source");
        }
        Some(Container::Unknown) | None => assert_eq!(passed.len() + dropped, source.len()),
        // These drop an incomplete unit at the end.
        Some(_) => assert!(source.starts_with(&passed)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(120) })]

    #[test]
    fn files_split_equally_in_random_pieces(name in 0..FILES.len(), sizes in prop::collection::vec(1..3_000_usize, 1..20)) {
        check(&file(FILES[name]), &sizes);
    }

    #[test]
    fn mutated_files_lose_no_byte(
        name in 0..FILES.len(),
        mutations in prop::collection::vec(mutation(), 1..8),
        sizes in prop::collection::vec(1..3_000_usize, 1..20),
    ) {
        check(&mutated(FILES[name], &mutations), &sizes);
    }

    #[test]
    fn random_bytes_lose_no_byte(
        begin in prop::sample::select(vec![
            b"".as_slice(), b"ID3\x03\0\0\0\0\x01\x00", b"\xff\xfb\x90\x00", b"\xff\xfb\x00\x00", b"\xff\xf1\x50\x80", b"OggS\0\x02", b"TAG", b"APETAGEX",
        ]),
        bytes in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(0xff), 1 => Just(0xfb), 1 => Just(0)], 0..6_000),
        sizes in prop::collection::vec(1..500_usize, 1..20),
    ) {
        check(&[begin, bytes.as_slice()].concat(), &sizes);
    }
}
