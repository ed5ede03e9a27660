//! The calls of a splitter, in a form that tests can compare.

use encke_wire::media::flv::FlvSplitter;
use encke_wire::media::fragmented_mp4::FragmentedMp4Splitter;
use encke_wire::media::matroska::MatroskaSplitter;
use encke_wire::media::mpeg_ts::MpegTsSplitter;
use encke_wire::media::{MediaError, MediaInfo, MediaSink, MediaUnit};

/// A call of a sink. Calls of `bytes` in a row are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Head(Vec<u8>),
    Unit(MediaUnit),
    Bytes(Vec<u8>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) events: Vec<Event>,
    pub(crate) error: Option<MediaError>,
    pub(crate) info: Option<MediaInfo>,
    /// The most bytes that were received and neither passed on nor reported as a head.
    pub(crate) held_max: usize,
}

impl MediaSink for Record {
    fn head(&mut self, head: &[u8]) {
        self.events.push(Event::Head(head.to_vec()));
    }
    fn unit(&mut self, unit: MediaUnit) {
        self.events.push(Event::Unit(unit));
    }
    fn bytes(&mut self, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "a call without bytes");
        // TS: a head may be in the middle of a unit.
        let begun = self.events.iter().rev().any(|event| matches!(event, Event::Unit(_)));
        match self.events.last_mut() {
            Some(Event::Bytes(last)) => last.extend_from_slice(bytes),
            Some(_) if begun => self.events.push(Event::Bytes(bytes.to_vec())),
            _ => panic!("bytes without a unit"),
        }
    }
}

impl Record {
    fn out(&self) -> usize {
        self.events
            .iter()
            .map(|event| match event {
                Event::Head(bytes) | Event::Bytes(bytes) => bytes.len(),
                Event::Unit(_) => 0,
            })
            .sum()
    }

    pub(crate) fn units(&self) -> Vec<MediaUnit> {
        self.events
            .iter()
            .filter_map(|event| if let Event::Unit(unit) = event { Some(*unit) } else { None })
            .collect()
    }

    pub(crate) fn starts(&self) -> Vec<MediaUnit> {
        self.units().into_iter().filter(|unit| unit.start).collect()
    }

    pub(crate) fn heads(&self) -> Vec<&[u8]> {
        self.events
            .iter()
            .filter_map(|event| if let Event::Head(head) = event { Some(&head[..]) } else { None })
            .collect()
    }

    /// Heads and bytes in their order.
    pub(crate) fn all(&self) -> Vec<u8> {
        self.events
            .iter()
            .flat_map(|event| match event {
                Event::Head(bytes) | Event::Bytes(bytes) => &bytes[..],
                Event::Unit(_) => &[],
            })
            .copied()
            .collect()
    }

    /// The bytes of units.
    pub(crate) fn body(&self) -> Vec<u8> {
        self.events
            .iter()
            .flat_map(|event| if let Event::Bytes(bytes) = event { &bytes[..] } else { &[] })
            .copied()
            .collect()
    }

    /// Returns the last head and the later bytes for a listener that joins at each start, or `late` units after it.
    pub(crate) fn tails(&self, late: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut head = Vec::new();
        let mut units = Vec::new();
        for (at, event) in self.events.iter().enumerate() {
            match event {
                Event::Head(bytes) => head.clone_from(bytes),
                Event::Unit(unit) => units.push((unit.start, at, head.clone())),
                Event::Bytes(_) => {}
            }
        }
        let starts = (0..units.len().saturating_sub(late)).filter(|at| units[*at].0);
        starts
            .map(|at| {
                let (_, from, head) = &units[at + late];
                (head.clone(), Self { events: self.events[*from..].to_vec(), ..Self::default() }.body())
            })
            .collect()
    }
}

/// A splitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ts,
    Matroska,
    Mp4,
    Flv,
}

macro_rules! drive {
    ($splitter:ty, $pieces:expr, $measure:expr) => {{
        let mut splitter = <$splitter>::new();
        let (mut record, mut pushed) = (Record::default(), 0);
        for piece in $pieces {
            pushed += piece.len();
            record.error = splitter.push(piece, &mut record).err();
            if record.error.is_some() {
                break;
            }
            if $measure {
                record.held_max = record.held_max.max(pushed.saturating_sub(record.out()));
            }
        }
        splitter.finish(&mut record);
        record.info = splitter.info();
        record
    }};
}

/// Splits a stream that arrives in these pieces.
pub(crate) fn split<'a>(kind: Kind, pieces: impl IntoIterator<Item = &'a [u8]>) -> Record {
    drive(kind, pieces, false)
}

/// Splits a stream like [`split`], and measures `held_max`.
pub(crate) fn measure<'a>(kind: Kind, pieces: impl IntoIterator<Item = &'a [u8]>) -> Record {
    drive(kind, pieces, true)
}

fn drive<'a>(kind: Kind, pieces: impl IntoIterator<Item = &'a [u8]>, measure: bool) -> Record {
    match kind {
        Kind::Ts => drive!(MpegTsSplitter, pieces, measure),
        Kind::Matroska => drive!(MatroskaSplitter, pieces, measure),
        Kind::Mp4 => drive!(FragmentedMp4Splitter, pieces, measure),
        Kind::Flv => drive!(FlvSplitter, pieces, measure),
    }
}

/// The splitter that recognises `first`.
pub(crate) fn recognise(first: &[u8]) -> Vec<Option<bool>> {
    vec![
        MpegTsSplitter::recognises(first),
        MatroskaSplitter::recognises(first),
        FragmentedMp4Splitter::recognises(first),
        FlvSplitter::recognises(first),
    ]
}

macro_rules! file {
    ($kind:expr, $name:literal) => {
        ($name, $kind, include_bytes!(concat!("../media/", $name)).as_slice())
    };
}

/// The files of `make.sh`, and what splits them.
pub(crate) const FILES: [(&str, Kind, &[u8]); 13] = [
    file!(Kind::Matroska, "vp8-vorbis.webm"),
    file!(Kind::Matroska, "vp9-opus.webm"),
    file!(Kind::Matroska, "opus.webm"),
    file!(Kind::Matroska, "unknown-size.webm"),
    file!(Kind::Matroska, "h264-aac.mkv"),
    file!(Kind::Mp4, "h264-aac.mp4"),
    file!(Kind::Mp4, "chunks.mp4"),
    file!(Kind::Mp4, "aac.mp4"),
    file!(Kind::Ts, "h264-aac.ts"),
    file!(Kind::Ts, "h265-aac.ts"),
    file!(Kind::Ts, "aac.ts"),
    file!(Kind::Flv, "h264-aac.flv"),
    file!(Kind::Flv, "aac.flv"),
];

pub(crate) fn file(wanted: &str) -> Vec<u8> {
    FILES.iter().find(|(name, ..)| *name == wanted).expect("there is such a file").2.to_vec()
}

/// Gives each Cluster of a Matroska file an unknown size, as a live source does that does not buffer a Cluster.
pub(crate) fn with_unknown_sizes(file: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    let mut at = 0;
    while let Some(found) = file[at..].windows(4).position(|id| id == [0x1f, 0x43, 0xb6, 0x75]) {
        at += found + 4;
        let len = file[at].leading_zeros() as usize + 1;
        file[at] = 0xff >> (len - 1);
        file[at + 1..at + len].fill(0xff);
    }
    file
}

/// Turns off each `random_access_indicator` of a TS.
pub(crate) fn without_indicators(file: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    for packet in file.chunks_exact_mut(188) {
        if packet[3] & 0x20 != 0 && packet[4] > 0 {
            packet[5] &= !0x40;
        }
    }
    file
}

/// All files, and the variants that are made here.
pub(crate) fn streams() -> Vec<(String, Kind, Vec<u8>)> {
    let mut streams: Vec<_> =
        FILES.iter().map(|(name, kind, bytes)| ((*name).to_owned(), *kind, bytes.to_vec())).collect();
    for (name, kind, bytes) in FILES {
        match kind {
            Kind::Matroska => {
                streams.push((format!("unknown sizes, {name}"), kind, with_unknown_sizes(bytes)));
            }
            Kind::Ts => streams.push((format!("no indicators, {name}"), kind, without_indicators(bytes))),
            _ => {}
        }
    }
    streams
}
