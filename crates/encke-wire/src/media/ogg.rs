//! Ogg (RFC 3533) with Vorbis, Opus (RFC 7845), FLAC (RFC 9639 §10.1) or Theora.
//!
//! **Head.** The pages that begin logical streams, and the pages with the header packets of the codecs: three for Vorbis and
//! Theora, two for Opus, for FLAC the number that its first packet states. The pages of other codecs (Skeleton, for example)
//! belong to the head while their granule position is 0. A page that begins a stream after the head begins a new head (a
//! chained stream).
//!
//! **Units.** A page whose first packet is not continued, and the continued pages after it. One stream determines starts and
//! times: the first with Theora, else the first with a known codec. In an audio stream each of its units is a start; in a Theora
//! stream, those whose first packet is a key frame. Without a known codec each unit is a start, and the container is reported as
//! [`Container::Unknown`]: whether a player can start there is not known.
//!
//! The time of a unit is that at the end of its first page, which is what a granule position states.
//!
//! Lengths are checked, the CRC of a page is not: a decoder checks it, and TCP already has.

use super::ogg_page::{BEGINS_STREAM, CONTINUED, OggCodec, OggPage, OggStream, PAGE_HEAD_BYTES, body_bytes};
use super::{Container, HELD_BYTES_MAX, MediaError, MediaInfo, MediaSink, MediaUnit};

/// The splitter of Ogg.
#[derive(Debug, Default)]
pub struct OggSplitter {
    /// The pages of the head, while it is not complete. After these, the first bytes of the next page.
    held: Vec<u8>,
    /// Where in `held` the next page begins.
    parsed: usize,
    /// Whether the head was passed on.
    running: bool,
    /// Whether a unit has begun since the head.
    in_unit: bool,
    streams: Vec<OggStream>,
    /// Bytes of the current page that are still to be passed on.
    page_rest: usize,
    /// The position of the next page in the source.
    at: u64,
    failed: Option<MediaError>,
    info: Option<MediaInfo>,
}

/// Logical streams in one head. Real files have up to five.
const STREAMS_MAX: usize = 64;

impl OggSplitter {
    /// Returns a splitter at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the source.
    ///
    /// # Errors
    /// If the bytes after a page are not a page, or a head is larger than [`HELD_BYTES_MAX`], has more than 64 streams, or does
    /// not end before the first page of data. Later calls return the same error.
    pub fn push(&mut self, bytes: &[u8], sink: &mut impl MediaSink) -> Result<(), MediaError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.page_rest > 0 {
                let (now, later) = rest.split_at(self.page_rest.min(rest.len()));
                sink.bytes(now);
                self.page_rest -= now.len();
                rest = later;
                continue;
            }
            let wanted = self.wanted();
            if wanted > HELD_BYTES_MAX {
                return Err(self.fail("the head is larger than 4 MiB"));
            }
            let (now, later) = rest.split_at(wanted.saturating_sub(self.held.len()).min(rest.len()));
            self.held.extend_from_slice(now);
            rest = later;
            while self.page_rest == 0 && self.step(sink).map_err(|what| self.fail(what))? {}
        }
        Ok(())
    }

    /// The source has ended: passes on a complete head that is held back, and drops other bytes.
    pub fn finish(&mut self, sink: &mut impl MediaSink) {
        let held = std::mem::take(&mut self.held);
        if !self.running && self.headers_complete() {
            self.pass_head(held.get(..self.parsed).unwrap_or_default(), sink);
        }
        (self.parsed, self.page_rest) = (0, 0);
    }

    /// Returns the description of the stream, once its head is complete.
    #[must_use]
    pub fn info(&self) -> Option<MediaInfo> {
        self.info.clone()
    }

    /// Returns whether a stream begins with a page that begins a logical stream; `None` if more bytes are needed.
    #[must_use]
    pub fn recognises(first: &[u8]) -> Option<bool> {
        if first.iter().zip(b"OggS\0").any(|(byte, magic)| byte != magic) {
            return Some(false);
        }
        first.get(5).map(|flags| flags & BEGINS_STREAM != 0)
    }

    fn fail(&mut self, what: &'static str) -> MediaError {
        self.failed.insert(MediaError { container: Container::Ogg, at: self.at, what }).clone()
    }

    /// Returns the bytes of `held` that the next step needs: a page in the head. After the head, the header of a page and one
    /// more byte, by which Theora marks key frames.
    fn wanted(&self) -> usize {
        let page = self.held.get(self.parsed..).unwrap_or_default();
        let Some(segments) = page.get(PAGE_HEAD_BYTES - 1) else { return self.parsed + PAGE_HEAD_BYTES };
        let head = PAGE_HEAD_BYTES + usize::from(*segments);
        let body = page.get(PAGE_HEAD_BYTES..head).map_or(0, body_bytes);
        self.parsed + head + if self.running { body.min(1) } else { body }
    }

    /// Handles the next page, if enough of it is held. Returns whether it was.
    fn step(&mut self, sink: &mut impl MediaSink) -> Result<bool, &'static str> {
        let begin = self.held.get(self.parsed..).unwrap_or_default();
        if begin.iter().zip(b"OggS\0").any(|(byte, magic)| byte != magic) {
            return Err("a page was expected, which begins with `OggS` and version 0");
        }
        if begin.is_empty() || self.held.len() < self.wanted() {
            return Ok(false);
        }
        let held = std::mem::take(&mut self.held);
        let (head, bytes) = held.split_at(self.parsed);
        let Some((page, body)) = OggPage::parse(bytes) else { return Ok(false) };
        if page.has(BEGINS_STREAM) && self.running {
            (self.running, self.held) = (false, held);
            self.streams.clear();
            return Ok(true);
        }
        if !self.running && self.belongs_to_head(&page) {
            self.take_headers(&page, body)?;
            self.at += bytes.len() as u64;
            (self.parsed, self.held) = (held.len(), held);
            return Ok(true);
        }
        if !self.running {
            if !self.headers_complete() {
                return Err("a page of data stands in front of the last header page");
            }
            self.pass_head(head, sink);
        }
        if !page.has(CONTINUED) || !self.in_unit {
            sink.unit(self.unit(&page, body));
            self.in_unit = true;
        }
        sink.bytes(bytes);
        self.at += (bytes.len() - body.len() + body_bytes(page.lacing)) as u64;
        self.page_rest = body_bytes(page.lacing) - body.len();
        Ok(true)
    }

    fn headers_complete(&self) -> bool {
        !self.streams.is_empty() && self.streams.iter().all(|stream| stream.headers_left == 0)
    }

    fn belongs_to_head(&self, page: &OggPage<'_>) -> bool {
        let is_known = |stream: &&OggStream| stream.serial == page.serial && stream.codec != OggCodec::Other;
        match self.streams.iter().find(is_known) {
            Some(stream) => stream.headers_left > 0 || page.has(BEGINS_STREAM),
            None => page.has(BEGINS_STREAM) || page.granule.is_none_or(|granule| granule == 0),
        }
    }

    /// Takes a page of the head.
    fn take_headers(&mut self, page: &OggPage<'_>, body: &[u8]) -> Result<(), &'static str> {
        if page.has(BEGINS_STREAM) {
            if self.streams.len() == STREAMS_MAX {
                return Err("the head has more than 64 streams");
            }
            self.streams.retain(|stream| stream.serial != page.serial);
            self.streams.push(OggStream::new(page.serial, body));
        }
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.serial == page.serial) {
            stream.count_headers(page, body);
        }
        Ok(())
    }

    fn pass_head(&mut self, head: &[u8], sink: &mut impl MediaSink) {
        sink.head(head);
        (self.running, self.in_unit, self.parsed) = (true, false, 0);
        let known = self.streams.iter().filter(|stream| stream.codec != OggCodec::Other);
        let rates = known.clone().map(|stream| Some(stream.bit_rate).filter(|rate| *rate > 0).map(u64::from));
        self.info = Some(MediaInfo {
            container: self.main().map_or(Container::Unknown, |_| Container::Ogg),
            video: known.clone().any(|stream| stream.codec.is_video()),
            codecs: known.map(|stream| stream.codec.name().into()).collect(),
            bit_rate: rates.sum::<Option<u64>>().filter(|rate| *rate > 0),
        });
    }

    /// The stream that determines starts and times.
    fn main(&self) -> Option<&OggStream> {
        let video = self.streams.iter().find(|stream| stream.codec.is_video());
        video.or_else(|| self.streams.iter().find(|stream| stream.codec != OggCodec::Other))
    }

    fn unit(&self, page: &OggPage<'_>, body: &[u8]) -> MediaUnit {
        let has_packet = !page.has(CONTINUED) && !page.lacing.is_empty();
        match self.main() {
            None => MediaUnit { start: has_packet, time_us: None },
            Some(main) if main.serial != page.serial => MediaUnit { start: false, time_us: None },
            Some(main) => {
                let start = has_packet && (!main.codec.is_video() || page.begins_with_key(body));
                MediaUnit { start, time_us: page.granule.and_then(|granule| main.codec.time_us(granule)) }
            }
        }
    }
}
