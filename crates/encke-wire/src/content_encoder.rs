//! Compresses content as it arrives, with gzip (RFC 1952) or zstd (RFC 8878).
//!
//! ```text
//!  write(piece)* ─► flush ─► write … ─► finish      the encoder is then ready for the next content
//! ```
//! After [`ContentEncoder::flush`] a receiver can read everything that was written so far, so that content which arrives slowly
//! is not held back. An encoder takes about 270 kB of memory, whatever the length of the content. Creating one costs as much as
//! compressing a few kilobytes, so callers keep finished ones.

use std::fmt;

use flate2::{Compress, Compression, Crc, FlushCompress, Status};

use crate::coding::Coding;

/// A compressor for one content after the other.
pub struct ContentEncoder {
    algorithm: EncoderState,
}

enum EncoderState {
    Gzip(Box<Gzip>),
    #[cfg(feature = "zstd")]
    Zstd(Box<zstd::stream::raw::Encoder<'static>>),
}

struct Gzip {
    deflate: Compress,
    crc: Crc,
    has_begun: bool,
}

/// The compressor failed. The content so far is of no use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncoderFault(Coding);

impl fmt::Display for EncoderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "compression with {} failed", self.0.name())
    }
}

impl std::error::Error for EncoderFault {}

impl fmt::Debug for ContentEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ContentEncoder").field(&self.coding()).finish()
    }
}

impl ContentEncoder {
    /// The codings that an encoder can have, the one with the smallest results first.
    pub const CODINGS: &'static [Coding] =
        if cfg!(feature = "zstd") { &[Coding::Zstd, Coding::Gzip] } else { &[Coding::Gzip] };

    /// Creates an encoder. `None` if `coding` is not one of [`ContentEncoder::CODINGS`], or the system lacks memory for it.
    pub fn new(coding: Coding) -> Option<Self> {
        let algorithm = match coding {
            Coding::Gzip => EncoderState::Gzip(Box::new(Gzip::new(GZIP_LEVEL))),
            #[cfg(feature = "zstd")]
            Coding::Zstd => {
                use zstd::stream::raw::{CParameter, Encoder};
                let mut encoder = Encoder::new(ZSTD_LEVEL).ok()?;
                encoder.set_parameter(CParameter::WindowLog(ZSTD_WINDOW_LOG)).ok()?;
                EncoderState::Zstd(Box::new(encoder))
            }
            _ => return None,
        };
        Some(Self { algorithm })
    }

    /// Compresses complete content that is sent often: for size rather than speed.
    ///
    /// # Errors
    /// The compressor failed, or `coding` is not one of [`ContentEncoder::CODINGS`].
    pub fn encode_whole(coding: Coding, plain: &[u8]) -> Result<Vec<u8>, EncoderFault> {
        match coding {
            Coding::Gzip => {
                let mut gzip = Gzip::new(THOROUGH_GZIP_LEVEL);
                let mut out = Vec::with_capacity(plain.len() / 3);
                gzip.crc.update(plain);
                gzip.put(plain, FlushCompress::None, &mut out)?;
                gzip.finish(&mut out)?;
                Ok(out)
            }
            #[cfg(feature = "zstd")]
            Coding::Zstd => {
                zstd::bulk::compress(plain, THOROUGH_ZSTD_LEVEL).map_err(|_| EncoderFault(Coding::Zstd))
            }
            other => Err(EncoderFault(other)),
        }
    }

    /// The coding of the output.
    pub const fn coding(&self) -> Coding {
        match self.algorithm {
            EncoderState::Gzip(_) => Coding::Gzip,
            #[cfg(feature = "zstd")]
            EncoderState::Zstd(_) => Coding::Zstd,
        }
    }

    /// Compresses a piece of the content. Appends output to `out`, if there is any yet.
    ///
    /// # Errors
    /// The compressor failed.
    pub fn write(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), EncoderFault> {
        match &mut self.algorithm {
            EncoderState::Gzip(gzip) => {
                gzip.crc.update(piece);
                gzip.put(piece, FlushCompress::None, out)
            }
            #[cfg(feature = "zstd")]
            EncoderState::Zstd(encoder) => zstd_codec::write(encoder, piece, out),
        }
    }

    /// Appends the rest of the content so far to `out`: a receiver can read all of it now.
    ///
    /// # Errors
    /// The compressor failed.
    pub fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), EncoderFault> {
        match &mut self.algorithm {
            EncoderState::Gzip(gzip) => gzip.put(&[], FlushCompress::Sync, out),
            #[cfg(feature = "zstd")]
            EncoderState::Zstd(encoder) => zstd_codec::flush(encoder, out),
        }
    }

    /// Appends the end of the content to `out`. The encoder is then ready for the next content.
    ///
    /// # Errors
    /// The compressor failed.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EncoderFault> {
        match &mut self.algorithm {
            EncoderState::Gzip(gzip) => {
                gzip.finish(out)?;
                gzip.reset();
                Ok(())
            }
            #[cfg(feature = "zstd")]
            EncoderState::Zstd(encoder) => zstd_codec::finish(encoder, out),
        }
    }

    /// Drops the content so far. The encoder is then ready for the next content.
    ///
    /// # Errors
    /// The compressor failed. The encoder must not be used again.
    pub fn reset(&mut self) -> Result<(), EncoderFault> {
        match &mut self.algorithm {
            EncoderState::Gzip(gzip) => {
                gzip.reset();
                Ok(())
            }
            #[cfg(feature = "zstd")]
            EncoderState::Zstd(encoder) => zstd_codec::reset(encoder),
        }
    }
}

impl Gzip {
    fn new(level: u32) -> Self {
        Self { deflate: Compress::new(Compression::new(level), false), crc: Crc::new(), has_begun: false }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EncoderFault> {
        self.put(&[], FlushCompress::Finish, out)?;
        out.extend_from_slice(&self.crc.sum().to_le_bytes());
        out.extend_from_slice(&self.crc.amount().to_le_bytes());
        Ok(())
    }

    fn put(&mut self, mut piece: &[u8], flush: FlushCompress, out: &mut Vec<u8>) -> Result<(), EncoderFault> {
        if !self.has_begun {
            out.extend_from_slice(&GZIP_HEAD);
            self.has_begun = true;
        }
        loop {
            out.reserve(piece.len() / 2 + ROOM_BYTES);
            let (taken, made) = (self.deflate.total_in(), self.deflate.total_out());
            let status = self.deflate.compress_vec(piece, out, flush);
            let status = status.map_err(|_| EncoderFault(Coding::Gzip))?;
            let taken = usize::try_from(self.deflate.total_in() - taken).unwrap_or(piece.len());
            piece = piece.get(taken..).unwrap_or_default();
            let is_full = out.len() == out.capacity();
            let is_over = match flush {
                FlushCompress::Finish => status == Status::StreamEnd,
                _ => piece.is_empty() && !is_full,
            };
            if is_over {
                return Ok(());
            }
            if taken == 0 && self.deflate.total_out() == made && !is_full {
                return Err(EncoderFault(Coding::Gzip));
            }
        }
    }

    fn reset(&mut self) {
        self.deflate.reset();
        self.crc.reset();
        self.has_begun = false;
    }
}

#[cfg(feature = "zstd")]
mod zstd_codec {
    use zstd::stream::raw::{Encoder, InBuffer, Operation, OutBuffer};

    use super::{EncoderFault, ROOM_BYTES};
    use crate::coding::Coding;

    pub(super) fn write(
        encoder: &mut Encoder<'static>,
        piece: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), EncoderFault> {
        let mut input = InBuffer::around(piece);
        while input.pos() < piece.len() {
            each(out, |out| encoder.run(&mut input, out))?;
        }
        Ok(())
    }

    pub(super) fn flush(encoder: &mut Encoder<'static>, out: &mut Vec<u8>) -> Result<(), EncoderFault> {
        while each(out, |out| encoder.flush(out))? > 0 {}
        Ok(())
    }

    pub(super) fn finish(encoder: &mut Encoder<'static>, out: &mut Vec<u8>) -> Result<(), EncoderFault> {
        while each(out, |out| encoder.finish(out, true))? > 0 {}
        reset(encoder)
    }

    pub(super) fn reset(encoder: &mut Encoder<'static>) -> Result<(), EncoderFault> {
        encoder.reinit().map_err(fault)
    }

    /// Runs one step of the compressor with room behind `out`.
    fn each(
        out: &mut Vec<u8>,
        mut step: impl FnMut(&mut OutBuffer<'_, Vec<u8>>) -> std::io::Result<usize>,
    ) -> Result<usize, EncoderFault> {
        out.reserve(ROOM_BYTES);
        let end = out.len();
        let mut output = OutBuffer::around_pos(out, end);
        step(&mut output).map_err(fault)
    }

    fn fault(_: std::io::Error) -> EncoderFault {
        EncoderFault(Coding::Zstd)
    }
}

/// The head of a gzip member without a name and a time (RFC 1952 §2.3), from an unknown system.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// Room for output of one step, in bytes.
const ROOM_BYTES: usize = 1_024;
/// The usual compromise of time and size.
const THOROUGH_GZIP_LEVEL: u32 = 6;
/// Levels up to 9 keep to a window of 4 MiB; browsers need not accept more than 8 MiB (RFC 9659).
#[cfg(feature = "zstd")]
const THOROUGH_ZSTD_LEVEL: i32 = 9;
/// Each response is compressed for one client: speed counts more than size.
const GZIP_LEVEL: u32 = 4;
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 1;
/// A window of 128 KiB bounds the memory of an encoder.
#[cfg(feature = "zstd")]
const ZSTD_WINDOW_LOG: u32 = 17;

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            Coding::Gzip => {
                flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut plain).expect("gzip");
            }
            #[cfg(feature = "zstd")]
            Coding::Zstd => plain = zstd::stream::decode_all(bytes).expect("zstd"),
            _ => {}
        }
        plain
    }

    /// Decodes the readable part of incomplete content.
    fn decoded_so_far(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        let mut reader: Box<dyn std::io::Read> = match coding {
            #[cfg(feature = "zstd")]
            Coding::Zstd => Box::new(zstd::stream::Decoder::new(bytes).expect("a decoder")),
            _ => Box::new(flate2::read::GzDecoder::new(bytes)),
        };
        let mut piece = [0; 512];
        while let Ok(read @ 1..) = reader.read(&mut piece) {
            plain.extend_from_slice(&piece[..read]);
        }
        plain
    }

    /// Text that repeats itself, and noise, by turns.
    fn sample(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut made = Vec::with_capacity(bytes + 64);
        while made.len() < bytes {
            made.extend_from_slice(b"Comet Encke has the shortest period of all. ");
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            made.extend_from_slice(&state.to_le_bytes());
        }
        made.truncate(bytes);
        made
    }

    #[test]
    fn content_in_pieces_of_any_size_can_be_read_back() {
        for &coding in ContentEncoder::CODINGS {
            let mut encoder = ContentEncoder::new(coding).expect("an encoder");
            assert_eq!(encoder.coding(), coding);
            for (bytes, piece) in [(0, 1), (1, 1), (3_000, 1), (100_000, 7), (1_000_000, 65_536)] {
                let plain = sample(bytes);
                let mut out = Vec::new();
                for piece in plain.chunks(piece) {
                    encoder.write(piece, &mut out).expect("compressed");
                }
                encoder.finish(&mut out).expect("finished");
                assert_eq!(decoded(coding, &out), plain, "{coding:?} {bytes} {piece}");
                assert!(bytes < 3_000 || out.len() < bytes * 3 / 4, "{coding:?}: {} of {bytes}", out.len());
            }
        }
    }

    #[test]
    fn flushed_content_can_be_read_before_the_end() {
        for &coding in ContentEncoder::CODINGS {
            let mut encoder = ContentEncoder::new(coding).expect("an encoder");
            let mut out = Vec::new();
            let mut plain = Vec::new();
            for line in 0..50 {
                let text = format!("{{\"event\": {line}}}\n");
                plain.extend_from_slice(text.as_bytes());
                encoder.write(text.as_bytes(), &mut out).expect("compressed");
                encoder.flush(&mut out).expect("flushed");
                assert_eq!(decoded_so_far(coding, &out), plain, "{coding:?} {line}");
            }
        }
    }

    #[test]
    fn an_encoder_that_is_reset_forgets_the_content_so_far() {
        for &coding in ContentEncoder::CODINGS {
            let mut encoder = ContentEncoder::new(coding).expect("an encoder");
            encoder.write(&sample(50_000), &mut Vec::new()).expect("compressed");
            encoder.reset().expect("ready");
            let mut out = Vec::new();
            encoder.write(b"the next one", &mut out).expect("compressed");
            encoder.finish(&mut out).expect("finished");
            assert_eq!(decoded(coding, &out), b"the next one");
        }
    }

    #[test]
    fn whole_content_can_be_read_back() {
        for &coding in ContentEncoder::CODINGS {
            for bytes in [0, 1, 100_000] {
                let plain = sample(bytes);
                let coded = ContentEncoder::encode_whole(coding, &plain).expect("compressed");
                assert_eq!(decoded(coding, &coded), plain, "{coding:?} {bytes}");
            }
        }
        assert!(ContentEncoder::encode_whole(Coding::Brotli, b"a").is_err());
    }

    #[test]
    fn codings_without_a_compressor_have_no_encoder() {
        assert!(ContentEncoder::new(Coding::Brotli).is_none());
        assert!(ContentEncoder::new(Coding::Identity).is_none());
    }
}
