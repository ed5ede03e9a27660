//! Pages of Ogg, and the first packet of a logical stream.

/// A logical stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct OggStream {
    pub(super) serial: u32,
    pub(super) codec: OggCodec,
    /// Header packets that are not complete yet.
    pub(super) headers_left: u32,
    /// Bits per second, 0 if not stated.
    pub(super) bit_rate: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OggCodec {
    Vorbis { rate: u32 },
    Opus { skip: u16 },
    Flac { rate: u32 },
    Theora { frames: u32, seconds: u32, shift: u16 },
    Other,
}

/// The header of a page (RFC 3533 §6).
#[derive(Clone, Copy, Debug)]
pub(super) struct OggPage<'a> {
    pub(super) flags: u8,
    /// `None`: no packet ends in the page.
    pub(super) granule: Option<u64>,
    pub(super) serial: u32,
    /// The sizes of the segments. A packet ends with a segment of less than 255 bytes.
    pub(super) lacing: &'a [u8],
}

/// Bytes of a page's header without its table of segments.
pub(super) const PAGE_HEAD_BYTES: usize = 27;

/// The flags of a page.
pub(super) const CONTINUED: u8 = 1;
pub(super) const BEGINS_STREAM: u8 = 2;

/// [`OggStream::headers_left`] of FLAC that does not state a number: up to the last metadata block.
pub(super) const UP_TO_LAST: u32 = u32::MAX;

impl OggStream {
    /// Parses the first packet of a stream, which has a page of its own.
    pub(super) fn new(serial: u32, packet: &[u8]) -> Self {
        let word = |at: usize| packet.get(at..)?.first_chunk::<4>();
        let little = |at: usize| word(at).map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let big = |at: usize| word(at).map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let short =
            |at: usize| packet.get(at..).and_then(<[u8]>::first_chunk::<2>).copied().unwrap_or_default();
        let (codec, headers_left, bit_rate) = if packet.starts_with(b"\x01vorbis") {
            (OggCodec::Vorbis { rate: little(12) }, 3, little(20))
        } else if packet.starts_with(b"OpusHead") {
            (OggCodec::Opus { skip: u16::from_le_bytes(short(10)) }, 2, 0)
        } else if packet.starts_with(b"\x7fFLAC") {
            let count = u32::from(u16::from_be_bytes(short(7)));
            (OggCodec::Flac { rate: big(27) >> 12 }, if count == 0 { UP_TO_LAST } else { 1 + count }, 0)
        } else if packet.starts_with(b"\x80theora") {
            let shift = u16::from_be_bytes(short(40)) >> 5 & 0x1f;
            (OggCodec::Theora { frames: big(22), seconds: big(26), shift }, 3, big(36) & 0x00ff_ffff)
        } else {
            (OggCodec::Other, 0, 0)
        };
        // Encoders write -1 for a rate that is not set.
        Self { serial, codec, headers_left, bit_rate: if bit_rate > i32::MAX as u32 { 0 } else { bit_rate } }
    }

    /// Counts the header packets that end in a page.
    pub(super) fn count_headers(&mut self, page: &OggPage<'_>, body: &[u8]) {
        let (mut at, mut begins) = (0, !page.has(CONTINUED));
        for segment in page.lacing {
            let is_last = begins && body.get(at).is_some_and(|byte| byte & 0x80 != 0);
            if self.headers_left == UP_TO_LAST && is_last {
                self.headers_left = 1;
            }
            at += usize::from(*segment);
            begins = *segment < 255;
            if begins && self.headers_left != UP_TO_LAST {
                self.headers_left = self.headers_left.saturating_sub(1);
            }
        }
    }
}

impl OggCodec {
    pub(super) const fn is_video(self) -> bool {
        matches!(self, Self::Theora { .. })
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Vorbis { .. } => "vorbis",
            Self::Opus { .. } => "opus",
            Self::Flac { .. } => "flac",
            Self::Theora { .. } => "theora",
            Self::Other => "",
        }
    }

    /// Returns the time of a granule position: samples, with Opus of 48 kHz and from the pre-skip on. With Theora the number of
    /// the last key frame, and in the lower bits the frames since.
    pub(super) fn time_us(self, granule: u64) -> Option<u64> {
        let (count, rate, seconds) = match self {
            Self::Vorbis { rate } | Self::Flac { rate } => (granule, rate, 1),
            Self::Opus { skip } => (granule.saturating_sub(skip.into()), 48_000, 1),
            Self::Theora { frames, seconds, shift } => {
                ((granule >> shift).saturating_add(granule & ((1 << shift) - 1)), frames, seconds)
            }
            Self::Other => return None,
        };
        let us = (u128::from(count) * u128::from(seconds) * 1_000_000).checked_div(rate.into())?;
        u64::try_from(us).ok()
    }
}

impl<'a> OggPage<'a> {
    /// Parses a page at the start of `bytes`. Returns the page, and the part of its body that `bytes` contain.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = bytes.split_first_chunk::<PAGE_HEAD_BYTES>()?;
        let (lacing, body) = rest.split_at_checked(usize::from(*head.last()?))?;
        let granule = u64::from_le_bytes(*head.get(6..)?.first_chunk()?);
        let serial = u32::from_le_bytes(*head.get(14..)?.first_chunk()?);
        let flags = *head.get(5)?;
        Some((
            Self { flags, granule: Some(granule).filter(|granule| *granule != u64::MAX), serial, lacing },
            body,
        ))
    }

    /// Returns whether the first packet is a key frame of Theora: its first two bits are 0. An empty packet repeats a frame.
    pub(super) fn begins_with_key(&self, body: &[u8]) -> bool {
        self.lacing.first() != Some(&0) && body.first().is_some_and(|byte| byte & 0xc0 == 0)
    }

    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

pub(super) fn body_bytes(lacing: &[u8]) -> usize {
    lacing.iter().map(|bytes| usize::from(*bytes)).sum()
}
