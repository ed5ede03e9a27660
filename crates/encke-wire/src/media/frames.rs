//! Streams that consist only of audio frames, each with a header: MPEG audio and ADTS.
//!
//! **Dropped bytes.** Tags (ID3v1, ID3v2, APEv2) and bytes between frames are not passed on, because a player that starts later
//! has no use for them. All other bytes are passed on, in their order.
//!
//! **Synchronisation.** A frame is passed on if it directly follows a frame of the same kind. Otherwise it is held back until the
//! header after it confirms it: the pattern of a header also occurs within frames.

use super::audio_header::{AudioHeader, FrameVerdict, confirmed};
use super::tags::tag_bytes;
use super::{MediaInfo, MediaSink, MediaUnit};

/// The element at a position of the stream.
enum FrameFound<H> {
    Frame(H, usize),
    Tag(u64),
    Garbage(usize),
    Short,
}

/// Splits frames with the header `H`.
#[derive(Debug)]
pub(super) struct FrameSplitter<H> {
    /// Bytes that are neither passed on nor dropped yet.
    held: Vec<u8>,
    /// The latest frame, while frames follow each other without a gap.
    latest: Option<H>,
    /// Whether a tag is possible here: at the start, after a frame and after a tag.
    boundary: bool,
    /// Bytes of the current frame that are still to be passed on.
    frame_rest: usize,
    /// Bytes of the current tag that are still to be dropped.
    tag_rest: u64,
    dropped: u64,
    /// Samples since the sample rate changed last, that rate, and the time before in µs.
    samples: u64,
    rate: u32,
    before_us: u64,
    info: Option<MediaInfo>,
}

impl<H: AudioHeader> FrameSplitter<H> {
    pub(super) const fn new() -> Self {
        Self {
            held: Vec::new(),
            latest: None,
            boundary: true,
            frame_rest: 0,
            tag_rest: 0,
            dropped: 0,
            samples: 0,
            rate: 0,
            before_us: 0,
            info: None,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8], sink: &mut impl MediaSink) {
        if self.held.is_empty() {
            let used = self.advance(bytes, false, sink);
            self.held.extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(bytes);
            let used = self.advance(&held, false, sink);
            held.drain(..used.min(held.len()));
            self.held = held;
        }
    }

    pub(super) fn finish(&mut self, sink: &mut impl MediaSink) {
        let held = std::mem::take(&mut self.held);
        let used = self.advance(&held, true, sink);
        self.dropped += held.len().saturating_sub(used) as u64;
        (self.latest, self.boundary, self.frame_rest, self.tag_rest) = (None, true, 0, 0);
    }

    pub(super) fn info(&self) -> Option<MediaInfo> {
        self.info.clone()
    }

    pub(super) const fn dropped_bytes(&self) -> u64 {
        self.dropped
    }

    /// Passes on and drops bytes as far as possible. Returns how many.
    fn advance(&mut self, all: &[u8], ended: bool, sink: &mut impl MediaSink) -> usize {
        let mut rest = all;
        loop {
            if self.frame_rest > 0 {
                let (now, later) = rest.split_at(self.frame_rest.min(rest.len()));
                if !now.is_empty() {
                    sink.bytes(now);
                }
                self.frame_rest -= now.len();
                rest = later;
            } else if self.tag_rest > 0 {
                let now = rest.len().min(usize::try_from(self.tag_rest).unwrap_or(usize::MAX));
                self.tag_rest -= now as u64;
                rest = self.drop_front(rest, now);
            }
            if rest.is_empty() {
                return all.len();
            }
            match self.find(rest, ended) {
                FrameFound::Frame(header, bytes) => self.begin(header, rest, bytes, sink),
                FrameFound::Tag(bytes) => self.tag_rest = bytes,
                FrameFound::Garbage(bytes) => {
                    (self.latest, self.boundary) = (None, false);
                    rest = self.drop_front(rest, bytes);
                }
                FrameFound::Short => return all.len() - rest.len(),
            }
        }
    }

    fn drop_front<'a>(&mut self, bytes: &'a [u8], count: usize) -> &'a [u8] {
        let (now, later) = bytes.split_at(count.min(bytes.len()));
        self.dropped += now.len() as u64;
        later
    }

    fn begin(&mut self, header: H, frame: &[u8], bytes: usize, sink: &mut impl MediaSink) {
        let (samples, rate) = header.samples();
        if self.rate != rate {
            self.before_us = self.time_us();
            (self.samples, self.rate) = (0, rate);
        }
        if self.latest.is_none_or(|latest| !header.follows(&latest)) {
            self.info = Some(header.info(frame.get(..bytes).unwrap_or(frame)));
        }
        sink.unit(MediaUnit { start: true, time_us: Some(self.time_us()) });
        self.samples += u64::from(samples);
        (self.latest, self.boundary, self.frame_rest) = (Some(header), true, bytes);
    }

    fn time_us(&self) -> u64 {
        let us = u128::from(self.samples) * 1_000_000 / u128::from(self.rate.max(1));
        self.before_us.saturating_add(u64::try_from(us).unwrap_or(u64::MAX))
    }

    /// Returns what `rest` begins with, which is not empty.
    fn find(&self, rest: &[u8], ended: bool) -> FrameFound<H> {
        if self.boundary {
            match tag_bytes(rest) {
                Some(0) => {}
                Some(bytes) => return FrameFound::Tag(bytes),
                None if ended => {}
                None => return FrameFound::Short,
            }
        }
        match rest.iter().position(|byte| *byte == 0xff) {
            Some(0) => {}
            at => return FrameFound::Garbage(at.unwrap_or(rest.len())),
        }
        if rest.len() < H::BYTES {
            return if ended { FrameFound::Garbage(1) } else { FrameFound::Short };
        }
        let Some(header) = H::parse(rest) else { return FrameFound::Garbage(1) };
        if let Some(latest) = self.latest.filter(|latest| header.follows(latest)) {
            let header = header.sized_like(&latest);
            if let Some(bytes) = header.frame_bytes() {
                return FrameFound::Frame(header, bytes);
            }
        }
        match confirmed(header, rest, ended) {
            FrameVerdict::Yes(header, bytes) => FrameFound::Frame(header, bytes),
            FrameVerdict::No => FrameFound::Garbage(1),
            FrameVerdict::Short => FrameFound::Short,
        }
    }
}
