//! Chunked bodies (RFC 9112 §7.1): separates data from framing, and finds the end of the body.
//!
//! ```text
//!               ┌────────────────────────── LF ◄─ DataCr ◄─ (all data seen) ─┐
//!               ▼                                                            │
//!   new ──► Size ──► (extensions) ──► SizeLf ─┬─ size > 0 ──► Data ──────────┘
//!                                             └─ size = 0 ──► TrailerStart ─┬─ CR ─► EndLf ──► Done
//!                                                    ▲                      │
//!                                                    └─ LF ◄── a field line ┘
//! ```
//!
//! The decoder is not a buffer: data is lent from the caller's input, and only the state is kept (24 bytes). Extensions are
//! checked against their grammar, limited and dropped. Trailers are checked and limited, and lent like data. A trailer must
//! never be treated as a field (RFC 9110 §6.5.1).
//!
//! Sizes are digits only. Other parsers have accepted signs, spaces, `0x` and `_`, or wrapped around at 64 bits, each of which
//! allows smuggling.

use crate::http1::Refusal;
use crate::limits::{CHUNK_EXCESS_BYTES, CHUNK_LINE_BYTES, TRAILER_BYTES};
use crate::scan::{FIELD_NAME, is_text};

/// A decoder for the chunks of a body.
///
/// In addition to the length of single lines, the total cost of lines is limited. Each chunk may cost 16 bytes plus twice its
/// data. The excess adds up, and more than [`CHUNK_EXCESS_BYTES`] of it is rejected. (The rule is that of Go's `net/http`,
/// after CVE-2023-39326.)
#[derive(Clone, Copy, Debug)]
pub struct ChunkedDecoder {
    /// The chunk's size while it is parsed, then the number of its data bytes still missing.
    left: u64,
    /// Excess bytes of size lines, compared with the sizes of their chunks.
    excess: u16,
    /// Bytes of this chunk's size line, or of all trailers.
    line: u16,
    line_max: u16,
    trailer_max: u16,
    /// Number of digits of the size.
    digits: u8,
    phase: ChunkPhase,
}

/// The result of one call of [`ChunkedDecoder::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// A piece of the body, possibly empty.
    pub data: &'a [u8],
    /// Number of input bytes consumed: framing, then `data`.
    pub consumed: usize,
    /// Bytes of trailers among the consumed ones: field lines, of which the last is empty, with their line ends. They may
    /// arrive in several pieces.
    pub trailers: &'a [u8],
    /// Whether the body has ended.
    pub state: BodyState,
}

/// Whether a body continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyState {
    /// Call again with the input after the consumed bytes.
    More,
    /// The body, with its trailers, ended at the last consumed byte.
    Done,
}

impl ChunkedDecoder {
    /// Creates a decoder at the first byte of a body, with the limits of [`crate::limits`].
    #[must_use]
    pub const fn new() -> Self {
        Self::with_limits(CHUNK_LINE_BYTES, TRAILER_BYTES)
    }

    /// Creates a decoder at the first byte of a body that accepts size lines of up to `line_bytes`, and up to `trailer_bytes`
    /// of trailers in total.
    #[must_use]
    pub const fn with_limits(line_bytes: u16, trailer_bytes: u16) -> Self {
        Self {
            left: 0,
            excess: 0,
            line: 0,
            line_max: if line_bytes < LINE_MAX { line_bytes } else { LINE_MAX },
            trailer_max: if trailer_bytes < LINE_MAX { trailer_bytes } else { LINE_MAX },
            digits: 0,
            phase: ChunkPhase::Size,
        }
    }

    /// Bytes of data of the current chunk that have not arrived; 0 between two chunks.
    #[must_use]
    pub const fn announced(&self) -> u64 {
        if matches!(self.phase, ChunkPhase::Data) { self.left } else { 0 }
    }

    /// Decodes `input` up to the end of its first piece of data. The caller uses `data`, advances by `consumed`, and calls
    /// again until its input is used up or the state is `Done`. The rest of the input is then the next message. An empty `data`
    /// with `More` means that all of the input was framing.
    ///
    /// ```
    /// use encke_wire::http1::{BodyState, ChunkedDecoder};
    ///
    /// let mut decoder = ChunkedDecoder::new();
    /// let chunk = decoder.feed(b"5\r\nhello\r\n0\r\n\r\n")?;
    /// assert_eq!((chunk.data, chunk.state), (&b"hello"[..], BodyState::More));
    /// let end = decoder.feed(&b"5\r\nhello\r\n0\r\n\r\n"[chunk.consumed..])?;
    /// assert_eq!((end.data, end.state), (&b""[..], BodyState::Done));
    /// # Ok::<(), encke_wire::http1::Refusal>(())
    /// ```
    ///
    /// # Errors
    /// A [`Refusal`] at the first byte that cannot be part of a valid body. The decoder must not be used afterwards.
    pub fn feed<'a>(&mut self, input: &'a [u8]) -> Result<Chunk<'a>, Refusal> {
        let mut at = 0;
        let mut trailers_at = if self.phase >= ChunkPhase::TrailerStart { 0 } else { input.len() };
        loop {
            if self.phase == ChunkPhase::Data {
                // At most the length of `input`, so the cast holds.
                let taken = self.left.min((input.len() - at) as u64) as usize;
                self.left -= taken as u64;
                if self.left == 0 {
                    self.phase = ChunkPhase::DataCr;
                }
                let data = &input[at..at + taken];
                return Ok(Chunk { data, consumed: at + taken, trailers: &[], state: BodyState::More });
            }
            if self.phase == ChunkPhase::Done {
                let trailers = input.get(trailers_at..at).unwrap_or_default();
                return Ok(Chunk { data: &[], consumed: at, trailers, state: BodyState::Done });
            }
            let Some(&byte) = input.get(at) else {
                let trailers = input.get(trailers_at..).unwrap_or_default();
                return Ok(Chunk { data: &[], consumed: at, trailers, state: BodyState::More });
            };
            self.phase = self.framing(byte)?;
            at += 1;
            if self.phase == ChunkPhase::TrailerStart {
                trailers_at = trailers_at.min(at);
            }
        }
    }

    /// Handles one byte that is not data.
    fn framing(&mut self, byte: u8) -> Result<ChunkPhase, Refusal> {
        self.line = self.line.saturating_add(1);
        if self.phase < ChunkPhase::TrailerStart && self.line > self.line_max {
            return Err(Refusal::ChunkLineTooLong);
        }
        if self.phase >= ChunkPhase::TrailerStart && self.line > self.trailer_max + 2 {
            return Err(Refusal::TrailersTooLarge);
        }
        let token = FIELD_NAME.has(byte);
        Ok(match (self.phase, byte) {
            (ChunkPhase::Size, _) if byte.is_ascii_hexdigit() => {
                if self.digits == SIZE_DIGITS_MAX {
                    return Err(Refusal::InvalidChunkSize);
                }
                self.digits += 1;
                self.left = self.left << 4 | u64::from(hex_value(byte));
                ChunkPhase::Size
            }
            (ChunkPhase::Size, _) if self.digits == 0 => return Err(Refusal::InvalidChunkSize),
            (
                ChunkPhase::Size
                | ChunkPhase::ExtensionName
                | ChunkPhase::ExtensionToken
                | ChunkPhase::ExtensionNext,
                b'\r',
            ) => ChunkPhase::SizeLf,
            (
                ChunkPhase::Size
                | ChunkPhase::ExtensionName
                | ChunkPhase::ExtensionToken
                | ChunkPhase::ExtensionNext,
                b';',
            ) => ChunkPhase::ExtensionStart,
            (ChunkPhase::Size, b' ' | b'\t') => ChunkPhase::ExtensionBefore,
            (ChunkPhase::Size, _) => return Err(Refusal::InvalidChunkSize),

            // chunk-ext = *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )
            (ChunkPhase::ExtensionBefore, b';') => ChunkPhase::ExtensionStart,
            (ChunkPhase::ExtensionBefore, b' ' | b'\t') => ChunkPhase::ExtensionBefore,
            (ChunkPhase::ExtensionStart, b' ' | b'\t') => ChunkPhase::ExtensionStart,
            (ChunkPhase::ExtensionStart | ChunkPhase::ExtensionName, _) if token => ChunkPhase::ExtensionName,
            (ChunkPhase::ExtensionName | ChunkPhase::ExtensionEquals, b'=') => ChunkPhase::ExtensionValue,
            (ChunkPhase::ExtensionName | ChunkPhase::ExtensionEquals, b' ' | b'\t') => {
                ChunkPhase::ExtensionEquals
            }
            (ChunkPhase::ExtensionEquals, b';') => ChunkPhase::ExtensionStart,
            (ChunkPhase::ExtensionValue, b' ' | b'\t') => ChunkPhase::ExtensionValue,
            (ChunkPhase::ExtensionValue, b'"') => ChunkPhase::ExtensionQuoted,
            (ChunkPhase::ExtensionValue | ChunkPhase::ExtensionToken, _) if token => {
                ChunkPhase::ExtensionToken
            }
            (ChunkPhase::ExtensionToken | ChunkPhase::ExtensionNext, b' ' | b'\t') => {
                ChunkPhase::ExtensionBefore
            }
            (ChunkPhase::ExtensionQuoted, b'"') => ChunkPhase::ExtensionNext,
            (ChunkPhase::ExtensionQuoted, b'\\') => ChunkPhase::ExtensionEscape,
            (ChunkPhase::ExtensionQuoted | ChunkPhase::ExtensionEscape, _) if is_text(byte) => {
                ChunkPhase::ExtensionQuoted
            }

            (ChunkPhase::SizeLf, b'\n') => self.size_line_ended()?,
            (ChunkPhase::SizeLf, _) => return Err(Refusal::BareCr),

            (ChunkPhase::DataCr, b'\r') => ChunkPhase::DataLf,
            (ChunkPhase::DataLf, b'\n') => {
                (self.line, self.digits) = (0, 0);
                ChunkPhase::Size
            }
            (ChunkPhase::DataCr | ChunkPhase::DataLf, _) => return Err(Refusal::ChunkEndMissing),

            (ChunkPhase::TrailerStart, b'\r') => ChunkPhase::EndLf,
            (ChunkPhase::TrailerStart | ChunkPhase::TrailerName, _) if token => ChunkPhase::TrailerName,
            (ChunkPhase::TrailerName, b':') => ChunkPhase::TrailerValue,
            (ChunkPhase::TrailerValue, b'\r') => ChunkPhase::TrailerLf,
            (ChunkPhase::TrailerValue, _) if is_text(byte) => ChunkPhase::TrailerValue,
            (ChunkPhase::TrailerLf, b'\n') => ChunkPhase::TrailerStart,
            (ChunkPhase::EndLf, b'\n') => ChunkPhase::Done,

            (_, b'\n') => return Err(Refusal::BareLf),
            (ChunkPhase::TrailerLf | ChunkPhase::EndLf, _) => return Err(Refusal::BareCr),
            (phase, _) if phase >= ChunkPhase::TrailerStart => return Err(Refusal::InvalidTrailer),
            _ => return Err(Refusal::InvalidChunkExtension),
        })
    }

    /// Handles the LF after a chunk's size: checks the overhead and selects the next phase.
    fn size_line_ended(&mut self) -> Result<ChunkPhase, Refusal> {
        let justified = self.left.saturating_mul(2).saturating_add(16);
        let excess = i64::from(self.excess) + i64::from(self.line)
            - i64::try_from(justified).unwrap_or(i64::MAX).min(i64::from(u16::MAX));
        self.excess = u16::try_from(excess.max(0)).unwrap_or(u16::MAX);
        if self.excess > CHUNK_EXCESS_BYTES {
            return Err(Refusal::ChunkOverhead);
        }
        self.line = 0;
        Ok(if self.left > 0 { ChunkPhase::Data } else { ChunkPhase::TrailerStart })
    }
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        Self::new()
    }
}

/// The next byte in the input. The order matters: trailers come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum ChunkPhase {
    /// A digit of the size, or the byte after it.
    Size,
    /// White space after a size or extension, where only `;` may follow.
    ExtensionBefore,
    ExtensionStart,
    ExtensionName,
    /// White space after a name.
    ExtensionEquals,
    ExtensionValue,
    ExtensionToken,
    ExtensionQuoted,
    ExtensionEscape,
    /// The byte after a quoted string.
    ExtensionNext,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

/// The value of a hexadecimal digit.
const fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// 16 digits fill 64 bits, so no size can overflow.
const SIZE_DIGITS_MAX: u8 = 16;

/// Maximum for both limits, so that the u16 counter can exceed them, including the empty line after trailers.
const LINE_MAX: u16 = u16::MAX - 3;

const _: () = assert!(size_of::<ChunkedDecoder>() <= 24, "every open request body holds one");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::testing::{Random, splits};

    /// The data of a whole body, and the input after it.
    type Decoded = Result<(Vec<u8>, Option<Vec<u8>>), Refusal>;

    /// Feeds the pieces in order. The second part is the input after the end, or `None` without an end.
    fn decode_with(mut decoder: ChunkedDecoder, pieces: &[&[u8]]) -> Decoded {
        let mut body = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            let mut rest = *piece;
            loop {
                let chunk = decoder.feed(rest)?;
                assert!(chunk.consumed >= chunk.data.len() && chunk.consumed <= rest.len());
                body.extend_from_slice(chunk.data);
                rest = &rest[chunk.consumed..];
                if chunk.state == BodyState::Done {
                    return Ok((body, Some([rest, &pieces[index + 1..].concat()].concat())));
                }
                if rest.is_empty() {
                    break;
                }
            }
        }
        Ok((body, None))
    }

    fn decode(input: &[u8]) -> Decoded {
        let whole = decode_with(ChunkedDecoder::new(), &[input]);
        for pieces in splits(input) {
            let split = decode_with(ChunkedDecoder::new(), &pieces);
            assert_eq!(split, whole, "{} in {pieces:?}", input.escape_ascii());
        }
        whole
    }

    fn body(input: &[u8]) -> Vec<u8> {
        let (body, rest) =
            decode(input).unwrap_or_else(|refusal| panic!("{}: {refusal}", input.escape_ascii()));
        assert_eq!(rest.as_deref(), Some(&b""[..]), "{} is one whole body", input.escape_ascii());
        body
    }

    fn refusal(input: &[u8]) -> Refusal {
        decode(input).expect_err("this body is malformed")
    }

    #[test]
    fn data_are_taken_out_of_their_chunks() {
        assert_eq!(body(b"3\r\nabc\r\n0\r\n\r\n"), b"abc");
        assert_eq!(body(b"0\r\n\r\n"), b"");
        assert_eq!(body(b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"), b"abcd");
        assert_eq!(body(b"A\r\n0123456789\r\n00\r\n\r\n"), b"0123456789");
        assert_eq!(body(b"0000000000000003\r\nabc\r\n0\r\n\r\n"), b"abc");
        assert_eq!(body(b"a\r\n\r\n0\r\n\r\nx\r\n\r\n0\r\n\r\n"), b"\r\n0\r\n\r\nx\r\n");
    }

    #[test]
    fn a_chunk_announces_its_data_at_the_end_of_its_size_line() {
        let mut decoder = ChunkedDecoder::new();
        for (input, announced) in
            [(&b"7fffffffffffffff"[..], 0), (b"\r\n", 0x7fff_ffff_ffff_ffff), (b"abc", 0x7fff_ffff_ffff_fffc)]
        {
            decoder.feed(input).expect("valid so far");
            assert_eq!(decoder.announced(), announced, "{}", input.escape_ascii());
        }
        let mut decoder = ChunkedDecoder::new();
        let chunk = decoder.feed(b"3\r\nabc\r\n").expect("valid so far");
        assert_eq!((chunk.data, decoder.announced()), (&b"abc"[..], 0));
    }

    #[test]
    fn what_follows_the_body_is_left_alone() {
        let (body, rest) = decode(b"3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n").expect("valid");
        assert_eq!(body, b"abc");
        assert_eq!(rest.as_deref(), Some(&b"GET / HTTP/1.1\r\n"[..]));
    }

    #[test]
    fn trailers_are_lent_whole_or_in_pieces() {
        let input = b"3\r\nabc\r\n0\r\nX-T: 1\r\nX-U: 2\r\n\r\nGET";
        for piece in 1..=input.len() {
            let (mut decoder, mut trailers, mut is_done) = (ChunkedDecoder::new(), Vec::new(), false);
            for mut bytes in input.chunks(piece) {
                while !bytes.is_empty() && !is_done {
                    let chunk = decoder.feed(bytes).expect("valid");
                    trailers.extend_from_slice(chunk.trailers);
                    is_done = chunk.state == BodyState::Done;
                    bytes = &bytes[chunk.consumed..];
                }
            }
            assert!(is_done);
            assert_eq!(trailers, b"X-T: 1\r\nX-U: 2\r\n\r\n", "{piece}");
        }
    }

    #[test]
    fn a_truncated_body_is_never_done() {
        let whole = b"3;a=b\r\nabc\r\n0\r\nX-T: 1\r\n\r\n";
        for end in 0..whole.len() {
            let (_, rest) = decode(&whole[..end]).expect("a prefix of a valid body has no fault");
            assert_eq!(rest, None, "{end}");
        }
        assert_eq!(body(whole), b"abc");
    }

    #[test]
    fn trailers_are_checked_and_are_no_data() {
        assert_eq!(body(b"3\r\nabc\r\n0\r\nX-T: 1\r\nX-U:\t2 \r\n\r\n"), b"abc");
        assert_eq!(body(b"0\r\nContent-Length: 50\r\n\r\n"), b"");
        assert_eq!(body(b"0\r\nX-T:\r\n\r\n"), b"");
        assert_eq!(refusal(b"0\r\nbad line\r\n\r\n"), Refusal::InvalidTrailer);
        assert_eq!(refusal(b"0\r\n: no name\r\n\r\n"), Refusal::InvalidTrailer);
        assert_eq!(refusal(b"0\r\nX : a\r\n\r\n"), Refusal::InvalidTrailer);
        assert_eq!(refusal(b"0\r\nX: a\r\n folded\r\n\r\n"), Refusal::InvalidTrailer);
        assert_eq!(refusal(b"0\r\nX: a\0\r\n\r\n"), Refusal::InvalidTrailer);
        assert_eq!(refusal(b"0\r\nX: a\n\r\n"), Refusal::BareLf);
        assert_eq!(refusal(b"0\r\nX: a\rb\r\n\r\n"), Refusal::BareCr);
        assert_eq!(refusal(b"0\r\n\n"), Refusal::BareLf);
        assert_eq!(refusal(b"0\r\n\rx"), Refusal::BareCr);
    }

    #[test]
    fn sizes_are_hexadecimal_digits_and_nothing_else() {
        for size in [
            &b"-3"[..],
            b"+3",
            b" 3",
            b"\t3",
            b"",
            b"0x3",
            b"0_3",
            b"3_0",
            b"3g",
            b"g",
            b"3.",
            b"\"3\"",
            b"10000000000000003",
            b"00000000000000000",
            b"fffffffffffffffff",
        ] {
            let input = [size, b"\r\nabc\r\n0\r\n\r\n"].concat();
            assert_eq!(refusal(&input), Refusal::InvalidChunkSize, "{}", size.escape_ascii());
        }
        let (body, rest) = decode(b"ffffffffffffffff\r\nabc").expect("the largest size there is");
        assert_eq!((&body[..], rest), (&b"abc"[..], None));
    }

    #[test]
    fn lines_end_in_crlf_and_data_too() {
        assert_eq!(refusal(b"3\nabc\r\n0\r\n\r\n"), Refusal::InvalidChunkSize);
        assert_eq!(refusal(b"3\rabc\r\n0\r\n\r\n"), Refusal::BareCr);
        assert_eq!(refusal(b"3;a\nabc\r\n0\r\n\r\n"), Refusal::BareLf);
        assert_eq!(refusal(b"3;a=\"\n\"\r\nabc\r\n0\r\n\r\n"), Refusal::BareLf);
        assert_eq!(refusal(b"3\r\nabcdef\r\n0\r\n\r\n"), Refusal::ChunkEndMissing);
        assert_eq!(refusal(b"3\r\nabc\n0\r\n\r\n"), Refusal::ChunkEndMissing);
        assert_eq!(refusal(b"3\r\nabc\rx0\r\n\r\n"), Refusal::ChunkEndMissing);
        assert_eq!(refusal(b"3\r\nabc0\r\n\r\n"), Refusal::ChunkEndMissing);
    }

    #[test]
    fn extensions_follow_their_grammar_and_mean_nothing() {
        for extension in [
            &b";a"[..],
            b";a=b",
            b" ; a = b",
            b"\t;\ta\t=\tb\t;c",
            b";a;b;c=d",
            b";a=\"x;\\\"y\\\\\"",
            b";a=\"\"",
            b";a=\"b\" ;c",
            b";a ;b",
        ] {
            let input = [b"3", extension, b"\r\nabc\r\n0", extension, b"\r\n\r\n"].concat();
            assert_eq!(body(&input), b"abc", "{}", extension.escape_ascii());
        }
        for extension in [
            &b" "[..],
            b";",
            b"; ",
            b";=b",
            b";a=",
            b";a=b c",
            b";a b",
            b";a=\"b",
            b";a=\"b\"c",
            b";a@",
            b" a",
            b";a=b=c",
            b";a\0",
            b";a=\"\x7f\"",
            b";a=\"\\\0\"",
        ] {
            let input = [b"3", extension, b"\r\nabc\r\n0\r\n\r\n"].concat();
            assert_eq!(refusal(&input), Refusal::InvalidChunkExtension, "{}", extension.escape_ascii());
        }
    }

    #[test]
    fn a_size_line_and_all_trailers_have_a_limit() {
        let decoder = ChunkedDecoder::with_limits(10, 10);
        let longest = decode_with(decoder, &[b"3;aaaaaa\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"]);
        assert!(longest.is_ok(), "{longest:?}");
        let line = decode_with(decoder, &[b"3;aaaaaaa\r\nabc\r\n0\r\n\r\n"]);
        assert_eq!(line, Err(Refusal::ChunkLineTooLong));
        let trailer = decode_with(decoder, &[b"0\r\nX-T: 12345\r\n\r\n"]);
        assert_eq!(trailer, Err(Refusal::TrailersTooLarge));
        let endless = decode_with(ChunkedDecoder::new(), &[b"0\r\n", &b"X-T: 1\r\n".repeat(2_000)]);
        assert_eq!(endless, Err(Refusal::TrailersTooLarge));
        let widest = decode_with(ChunkedDecoder::with_limits(u16::MAX, u16::MAX), &[b"0;", &[b'a'; 70_000]]);
        assert_eq!(widest, Err(Refusal::ChunkLineTooLong), "no limit is beyond what is counted");
    }

    #[test]
    fn many_small_chunks_with_long_extensions_are_refused_and_plain_ones_are_not() {
        let wasteful = [&b"1;"[..], &[b'x'; 400], b"\r\na\r\n"].concat().repeat(60);
        assert_eq!(decode_with(ChunkedDecoder::new(), &[&wasteful]), Err(Refusal::ChunkOverhead));
        let plain = [b"1\r\na\r\n".repeat(20_000), b"0\r\n\r\n".to_vec()].concat();
        let (body, rest) = decode_with(ChunkedDecoder::new(), &[&plain]).expect("valid");
        assert_eq!((body.len(), rest), (20_000, Some(Vec::new())));
    }

    #[test]
    fn random_bodies_come_out_as_they_went_in() {
        let seed = 0x5eed_0002;
        println!("seed {seed:#x}");
        let mut random = Random::new(seed);
        for _ in 0..300 {
            let (mut encoded, mut expected) = (Vec::new(), Vec::new());
            for _ in 0..random.below(6) {
                let data: Vec<u8> = (0..=random.below(30)).map(|_| random.byte()).collect();
                crate::http1::put_chunk_head(&mut encoded, data.len() as u64);
                encoded.extend_from_slice(&data);
                encoded.extend_from_slice(b"\r\n");
                expected.extend_from_slice(&data);
            }
            encoded.extend_from_slice(crate::http1::LAST_CHUNK);
            assert_eq!(body(&encoded), expected);
        }
    }
}
