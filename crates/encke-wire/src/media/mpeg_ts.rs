//! MPEG transport streams (ISO/IEC 13818-1).
//!
//! ```text
//!  PAT PMT  V₁ V₁ A V₁ A  PAT PMT  V₂ V₂ A V₂   …    packets of 188 bytes; V₁: the first frame of the video
//!  └head─┘  └────── unit ───────┘  └─ unit ─┘        the unit begins where a frame of the video begins
//! ```

use frame::{FrameScan, SliceVerdict, codec};
use packet::{PACKET, SYNC, TsPacket};
use program::Program;

use super::held_input::{ContainerParser, HeldInput, InputStep};
use super::{Container, HELD_BYTES_MAX, MediaError, MediaInfo, MediaSink, MediaUnit};

mod frame;
mod packet;
mod program;

/// Bytes held back to find the first slice of a frame. Parameter sets and supplemental information in front of it are shorter.
const SCAN_BYTES_MAX: usize = 64 * 1024;

/// Units without a start after which a stream is described without the codec of its video. At 25 pictures a second these are 10 s, the
/// longest usual interval of key frames.
const UNSETTLED_UNITS_MAX: u32 = 250;

/// The splitter of MPEG-TS.
///
/// The head is the packets with the PAT and with the PMT of the first program, as received last. It is passed on when both are
/// complete, and again if their content has changed. Its packets also stay where they are in the stream. A unit is all packets
/// from the begin of a frame (a PES packet) of the first video stream to the next; without video, of the first audio stream. A
/// unit is a start if its first packet is marked by `random_access_indicator`, or its frame begins with a key frame of H.264,
/// H.265 or MPEG-2.
///
/// The splitter drops the packets before the first frame after the first head, bytes outside of packets (up to the next two sync
/// bytes 188 bytes apart), and an incomplete packet at the end. The time of a unit restarts at 0 after 26.5 hours, as in the
/// stream.
#[derive(Debug, Default)]
pub struct MpegTsSplitter {
    input: HeldInput,
    parser: MpegTsParser,
}

#[derive(Debug)]
struct MpegTsParser {
    program: Program,
    /// Whether a unit has begun. Packets are dropped before.
    begun: bool,
    /// Whether the last packet, or a search, shows where the next packet begins.
    synchronised: bool,
    /// The begin of a unit, while it is not known whether it is a start.
    undecided: Option<Undecided>,
    codec: Option<Box<str>>,
    /// Units since the head that were no starts; `None` after the first start.
    unsettled: Option<u32>,
    /// Bytes dropped in a row, because they are no packets.
    dropped: usize,
}

impl Default for MpegTsParser {
    fn default() -> Self {
        Self {
            program: Program::default(),
            begun: false,
            synchronised: false,
            undecided: None,
            codec: None,
            unsettled: Some(0),
            dropped: 0,
        }
    }
}

#[derive(Debug)]
struct Undecided {
    held: Vec<u8>,
    scan: FrameScan,
    time_us: Option<u64>,
}

impl MpegTsSplitter {
    /// Returns a splitter. The stream may begin anywhere.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// [`HELD_BYTES_MAX`] bytes in a row are no packets. Later calls return the same error.
    pub fn push(&mut self, bytes: &[u8], sink: &mut impl MediaSink) -> Result<(), MediaError> {
        self.input.push(&mut self.parser, bytes, sink)
    }

    /// Ends the stream. Passes on a unit that is held back.
    pub fn finish(&mut self, sink: &mut impl MediaSink) {
        self.input = HeldInput::default();
        self.parser.decide(false, sink);
    }

    /// Returns the description of the stream, from the first start on: it has the codec of H.264 and H.265. A stream without starts
    /// is described after 250 units.
    #[must_use]
    pub fn info(&self) -> Option<MediaInfo> {
        let program = &self.parser.program;
        (program.is_known() && self.parser.unsettled.is_none()).then(|| MediaInfo {
            container: Container::MpegTs,
            video: program.video.is_some(),
            codecs: self.parser.codec.iter().chain(program.codecs.iter()).cloned().collect(),
            bit_rate: None,
        })
    }

    /// Returns whether a stream that begins with `first`, perhaps inside a packet, is MPEG-TS. `None`: 564 bytes are needed.
    #[must_use]
    pub fn recognises(first: &[u8]) -> Option<bool> {
        let fits =
            |at: usize| (0..3).all(|packet| first.get(at + packet * PACKET).is_none_or(|&byte| byte == SYNC));
        let whole = |at: usize| at + 2 * PACKET < first.len();
        if (0..PACKET).any(|at| whole(at) && fits(at)) {
            return Some(true);
        }
        (!(0..PACKET).any(fits)).then_some(false)
    }
}

impl ContainerParser for MpegTsParser {
    fn step(&mut self, window: &[u8], at: u64, sink: &mut impl MediaSink) -> Result<InputStep, MediaError> {
        if !self.synchronised || window.first() != Some(&SYNC) {
            self.synchronised = false;
            if let Some(step) = self.resynchronise(window, at)? {
                return Ok(step);
            }
        }
        if window.len() < PACKET {
            return Ok(InputStep::Need(PACKET));
        }
        self.dropped = 0;
        // Packets that need no look inside are passed on together.
        let (mut passed, mut seen) = (0, 0);
        for packet in window.as_chunks::<PACKET>().0.iter().take_while(|packet| packet[0] == SYNC) {
            let first = TsPacket::of(packet);
            let begins = first.begins && Some(first.pid) == self.program.leading();
            let looks = begins || self.undecided.is_some() || self.program.reads(first.pid);
            if looks {
                self.put(window.get(passed..seen).unwrap_or_default(), sink);
                passed = seen + PACKET;
                self.look(packet, &first, begins, sink);
            }
            seen += PACKET;
        }
        self.put(window.get(passed..seen).unwrap_or_default(), sink);
        Ok(InputStep::Used(seen))
    }

    fn held(&self) -> usize {
        self.undecided.as_ref().map_or(0, |undecided| undecided.held.len())
    }

    fn container(&self) -> Container {
        Container::MpegTs
    }
}

impl MpegTsParser {
    /// Passes on one packet that may begin a unit, decide about one, or be a part of the head.
    fn look(
        &mut self,
        packet: &[u8; PACKET],
        fields: &TsPacket<'_>,
        begins: bool,
        sink: &mut impl MediaSink,
    ) {
        if self.program.reads(fields.pid) && self.program.read(packet, fields) {
            sink.head(&self.program.head());
            (self.codec, self.unsettled) = (None, Some(0));
        }
        if begins {
            self.decide(false, sink);
            self.begun = true;
            let (scan, time_us) = FrameScan::of(fields.payload, self.program.video);
            if fields.random_access || self.program.video.is_none() {
                self.unsettled = None;
                sink.unit(MediaUnit { start: true, time_us });
            } else {
                self.undecided = Some(Undecided { held: Vec::new(), scan, time_us });
            }
        }
        self.put(packet, sink);
        let leads = Some(fields.pid) == self.program.leading();
        if let Some((_, kind)) = self.program.video.filter(|_| leads && self.codec.is_none()) {
            self.codec = codec(kind, fields.payload);
        }
        let Some(undecided) = &mut self.undecided else { return };
        let verdict = if leads { undecided.scan.push(fields.payload) } else { SliceVerdict::Open };
        match verdict {
            SliceVerdict::Open if undecided.held.len() < SCAN_BYTES_MAX => {}
            SliceVerdict::Key => self.decide(true, sink),
            SliceVerdict::Open | SliceVerdict::Other => self.decide(false, sink),
        }
    }

    /// Begins the unit that is held back.
    fn decide(&mut self, start: bool, sink: &mut impl MediaSink) {
        if let Some(Undecided { held, time_us, .. }) = self.undecided.take() {
            self.unsettled =
                self.unsettled.map(|units| units + 1).filter(|units| !start && *units < UNSETTLED_UNITS_MAX);
            sink.unit(MediaUnit { start, time_us });
            sink.bytes(&held);
        }
    }

    fn put(&mut self, packets: &[u8], sink: &mut impl MediaSink) {
        match &mut self.undecided {
            _ if packets.is_empty() => {}
            Some(undecided) => undecided.held.extend_from_slice(packets),
            None if self.begun => sink.bytes(packets),
            None => {}
        }
    }

    /// Drops bytes up to the next sync byte with another one a packet later. `None`: the window begins there.
    fn resynchronise(&mut self, window: &[u8], at: u64) -> Result<Option<InputStep>, MediaError> {
        let ahead = window.iter().skip(PACKET);
        let found = window.iter().zip(ahead).position(|pair| pair == (&SYNC, &SYNC));
        let used = match found {
            Some(found) => found,
            None if window.len() <= PACKET => return Ok(Some(InputStep::Need(PACKET + 1))),
            None => window.len() - PACKET,
        };
        self.dropped += used;
        self.synchronised = found.is_some();
        if self.dropped > HELD_BYTES_MAX {
            let what = "4 MiB without packets of 188 bytes that begin with 0x47";
            return Err(MediaError { container: Container::MpegTs, at, what });
        }
        Ok((used > 0).then_some(InputStep::Used(used)))
    }
}
