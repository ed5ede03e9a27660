//! Heads, starts, times and codecs of each file.

use encke_wire::media::fragmented_mp4::FragmentedMp4Splitter;
use encke_wire::media::matroska::MatroskaSplitter;
use encke_wire::media::mpeg_ts::MpegTsSplitter;
use encke_wire::media::{Container, MediaSink, MediaUnit};

use super::record::{Event, Kind, Record, file, split, streams, with_unknown_sizes, without_indicators};

#[test]
fn heads_and_units_are_the_bytes_of_the_source() {
    for (name, kind, bytes) in streams() {
        let record = split(kind, [&bytes[..]]);
        assert_eq!(record.error, None, "{name}");
        if kind == Kind::Ts {
            let body = record.body();
            assert!(bytes.ends_with(&body), "{name}");
            assert!(
                bytes.len() - body.len() <= 188 * 20,
                "{name}: only packets before the first frame are dropped"
            );
        } else {
            assert!(record.all() == bytes, "{name}");
        }
        assert_eq!(record.heads().len(), 1, "{name}");
        assert!(matches!(record.events[..], [Event::Head(_), Event::Unit(_), ..]), "{name}");
    }
}

/// Container, video, codecs, and the number of starts (audio: the least number).
#[test]
fn each_file_has_its_codecs_and_a_start_each_second() {
    let expected: [(&str, Container, bool, &[&str], usize); 12] = [
        ("vp8-vorbis.webm", Container::WebM, true, &["vp8", "vorbis"], 4),
        ("vp9-opus.webm", Container::WebM, true, &["vp09.00.10.08", "opus"], 4),
        ("opus.webm", Container::WebM, false, &["opus"], 7),
        ("h264-aac.mkv", Container::Matroska, true, &["avc1.64000a", "mp4a.40.2"], 4),
        ("h264-aac.mp4", Container::FragmentedMp4, true, &["avc1.64000a", "mp4a.40.2"], 4),
        ("chunks.mp4", Container::FragmentedMp4, true, &["avc1.64000a", "mp4a.40.2"], 2),
        ("aac.mp4", Container::FragmentedMp4, false, &["mp4a.40.2"], 7),
        ("h264-aac.ts", Container::MpegTs, true, &["avc1.64000a", "mp4a.40.2"], 3),
        ("h265-aac.ts", Container::MpegTs, true, &["hvc1.1.6.L30.90", "mp4a.40.2"], 3),
        ("aac.ts", Container::MpegTs, false, &["mp4a.40.2"], 7),
        ("h264-aac.flv", Container::Flv, true, &["avc1.64000a", "mp4a.40.2"], 4),
        ("aac.flv", Container::Flv, false, &["mp4a.40.2"], 100),
    ];
    for (name, container, video, codecs, starts) in expected {
        let kind = super::record::FILES.iter().find(|(other, ..)| *other == name).expect("a file").1;
        let bytes = file(name);
        let record = split(kind, [&bytes[..]]);
        let info = record.info.as_ref().expect("there is a head");
        assert_eq!((info.container, info.video), (container, video), "{name}");
        assert_eq!(info.codecs.iter().map(|codec| &**codec).collect::<Vec<_>>(), codecs, "{name}");
        let times: Vec<_> = record.starts().iter().map(|unit| unit.time_us.expect("a time")).collect();
        assert!(times.len() >= starts && (!video || times.len() == starts), "{name}: {times:?}");
        for pair in times.windows(2) {
            let apart = pair[1] - pair[0];
            assert!(
                if video { (900_000..=1_200_000).contains(&apart) } else { apart < 800_000 },
                "{name}: {times:?}"
            );
        }
    }
}

#[test]
fn a_transport_stream_without_indicators_has_the_same_units() {
    for name in ["h264-aac.ts", "h265-aac.ts"] {
        let bytes = file(name);
        let plain = without_indicators(&bytes);
        assert_ne!(bytes, plain);
        assert_eq!(split(Kind::Ts, [&plain[..]]).units(), split(Kind::Ts, [&bytes[..]]).units(), "{name}");
    }
}

#[test]
fn clusters_of_unknown_size_have_the_same_starts_and_more_units() {
    for name in ["vp8-vorbis.webm", "vp9-opus.webm", "h264-aac.mkv", "opus.webm"] {
        let bytes = file(name);
        let unknown = with_unknown_sizes(&bytes);
        let (known, unknown) = (split(Kind::Matroska, [&bytes[..]]), split(Kind::Matroska, [&unknown[..]]));
        assert_eq!(known.starts(), unknown.starts(), "{name}");
        assert!(unknown.units().len() > 10 * known.units().len(), "{name}");
    }
}

#[test]
fn a_transport_stream_reports_its_tables_again_only_if_they_change() {
    let (first, second) = (file("h264-aac.ts"), file("h265-aac.ts"));
    let twice = [&first[..], &first[..]].concat();
    assert_eq!(split(Kind::Ts, [&twice[..]]).heads().len(), 1);
    let changed = [&first[..], &second[..]].concat();
    let record = split(Kind::Ts, [&changed[..]]);
    assert_eq!(record.heads().len(), 2);
    assert_eq!(record.info.expect("a head").codecs[0].as_ref(), "hvc1.1.6.L30.90");
}

#[test]
fn a_second_file_in_the_stream_begins_a_new_head() {
    for (first, second, kind) in [
        ("vp8-vorbis.webm", "vp9-opus.webm", Kind::Matroska),
        ("h264-aac.mp4", "aac.mp4", Kind::Mp4),
        ("h264-aac.flv", "aac.flv", Kind::Flv),
    ] {
        let (first, second) = (file(first), file(second));
        // Without the index at the end of the MP4, which has the last word of a file.
        let both = [&first[..], &second[..]].concat();
        let record = split(kind, [&both[..]]);
        assert_eq!(record.error, None);
        assert!(record.all() == both);
        let alone = split(kind, [&second[..]]);
        assert_eq!(record.heads(), [split(kind, [&first[..]]).heads()[0], alone.heads()[0]]);
        assert_eq!(record.info, alone.info);
    }
}

/// The tags of an FLV, each with its trailing size.
fn tags(bytes: &[u8]) -> Vec<&[u8]> {
    let mut rest = &bytes[13..];
    let mut tags = Vec::new();
    while !rest.is_empty() {
        let size = u32::from_be_bytes([0, rest[1], rest[2], rest[3]]) as usize + 15;
        let (tag, behind) = rest.split_at(size);
        tags.push(tag);
        rest = behind;
    }
    tags
}

#[test]
fn a_changed_flv_configuration_makes_a_new_head() {
    let bytes = file("h264-aac.flv");
    let tags = tags(&bytes);
    let video = tags.iter().position(|tag| tag[0] == 9 && tag[12] == 0).expect("a configuration");
    let mut changed = tags[video].to_vec();
    changed[11 + 5 + 3] ^= 1;
    let twice = [&bytes[..], tags[video], &changed, tags[video + 2]].concat();
    let record = split(Kind::Flv, [&twice[..]]);
    let heads = record.heads();
    assert_eq!(heads.len(), 2, "the repeated one is no new head");
    assert_eq!(
        heads[1],
        [&bytes[..13], &tags[..video].concat(), &changed, &tags[video + 1..3].concat()].concat()
    );
}

/// A tag of FLV.
fn tag(kind: u8, content: &[u8]) -> Vec<u8> {
    let size = content.len() as u32;
    let mut tag = vec![kind];
    tag.extend_from_slice(&size.to_be_bytes()[1..]);
    tag.extend_from_slice(&[0; 7]);
    tag.extend_from_slice(content);
    tag.extend_from_slice(&(size + 11).to_be_bytes());
    tag
}

#[test]
fn enhanced_flv_tags_have_a_configuration_and_key_frames() {
    let header = b"FLV\x01\x05\0\0\0\x09\0\0\0\0";
    let av1 = tag(9, b"\x90av01\x81\x08\x0c\x00");
    let opus = tag(8, b"\x90OpusOpusHead");
    let (key, inter) = (tag(9, b"\x91av01data"), tag(9, b"\xa3av01data"));
    // A modifier of three bytes in front of the FourCC, then a key frame.
    let modified = tag(9, b"\x97\x02abc\x01av01data");
    let sound = tag(8, b"\x91Opusdata");
    let stream = [&header[..], &av1, &opus, &sound, &inter, &key, &modified].concat();
    let record = split(Kind::Flv, [&stream[..]]);
    assert_eq!(record.heads(), [[&header[..], &av1, &opus].concat()]);
    assert_eq!(record.units().iter().map(|unit| unit.start).collect::<Vec<_>>(), [false, false, true, true]);
    let info = record.info.expect("a head");
    assert_eq!(info.codecs.iter().map(|codec| &**codec).collect::<Vec<_>>(), ["av01.0.08M.08", "opus"]);
}

/// The positions of units and of their ends among the bytes passed on, and the number of bytes received at each end.
#[derive(Default)]
struct Ends {
    received: usize,
    out: usize,
    units: Vec<usize>,
    ends: Vec<(usize, usize)>,
}

impl MediaSink for Ends {
    fn head(&mut self, head: &[u8]) {
        self.out += head.len();
    }
    fn unit(&mut self, _: MediaUnit) {
        self.units.push(self.out);
    }
    fn bytes(&mut self, bytes: &[u8]) {
        self.out += bytes.len();
    }
    fn end(&mut self) {
        self.ends.push((self.received, self.out));
    }
}

#[test]
fn fragments_clusters_and_blocks_end_with_their_last_byte() {
    fn ends(file: &[u8], mut push: impl FnMut(&[u8], &mut Ends)) -> Ends {
        let mut ends = Ends::default();
        for byte in file.chunks(1) {
            ends.received += 1;
            push(byte, &mut ends);
        }
        ends
    }
    let webm = file("vp8-vorbis.webm");
    for (name, bytes) in [
        ("h264-aac.mp4", file("h264-aac.mp4")),
        ("chunks.mp4", file("chunks.mp4")),
        ("webm", webm.clone()),
        ("webm of unknown sizes", with_unknown_sizes(&webm)),
    ] {
        let mut mp4 = FragmentedMp4Splitter::new();
        let mut matroska = MatroskaSplitter::new();
        let Ends { units, ends, .. } = ends(&bytes, |byte, sink| {
            let pushed = if name.ends_with("mp4") { mp4.push(byte, sink) } else { matroska.push(byte, sink) };
            pushed.expect(name);
        });
        assert!(units.len() > 3 && ends.len() == units.len(), "{name}: {} of {}", ends.len(), units.len());
        for (number, (received, out)) in ends.iter().enumerate() {
            assert_eq!(received, out, "{name}: unit {number} ends late");
            let next = units.get(number + 1);
            assert!(
                next.is_none_or(|next| next == out),
                "{name}: unit {number} does not end at the next one"
            );
        }
    }
}

#[test]
fn a_transport_stream_is_described_with_the_codec_of_its_video() {
    for (name, codec) in [("h264-aac.ts", "avc1."), ("h265-aac.ts", "hvc1.")] {
        let (bytes, mut splitter, mut record) = (file(name), MpegTsSplitter::new(), Record::default());
        let info = bytes.chunks(188).find_map(|packet| {
            splitter.push(packet, &mut record).expect(name);
            splitter.info()
        });
        let codecs = info.expect(name).codecs;
        assert!(codecs.iter().any(|one| one.starts_with(codec)), "{name}: {codecs:?}");
    }
}

#[test]
fn a_transport_stream_without_starts_is_described_after_some_units() {
    let record = split(Kind::Ts, [&file("h264-aac.ts")[..]]);
    let mut is_start = true;
    let mut others = Vec::new();
    for event in &record.events {
        match event {
            Event::Unit(unit) => is_start = unit.start,
            Event::Bytes(bytes) if !is_start => others.extend_from_slice(bytes),
            _ => {}
        }
    }
    let (mut splitter, mut sink) = (MpegTsSplitter::new(), Record::default());
    splitter.push(record.heads()[0], &mut sink).expect("packets");
    while splitter.info().is_none() {
        assert!(sink.units().len() < 400, "it is never described");
        splitter.push(&others, &mut sink).expect("packets");
    }
    assert!(sink.units().len() >= 250 && sink.starts().is_empty());
}
