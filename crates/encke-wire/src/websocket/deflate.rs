//! Message compression (RFC 7692, permessage-deflate): negotiation, compression and decompression.
//!
//! ```text
//!   offered   permessage-deflate; client_max_window_bits, permessage-deflate
//!   answered  permessage-deflate; server_no_context_takeover; client_no_context_takeover
//!
//!   message ─► Deflater ─► one payload for all who get it        payload pieces ─► Inflater ─► message pieces
//! ```
//!
//! **No context takeover** in either direction: each message is compressed by itself. So a message of a channel is compressed
//! once for all subscribers. A connection holds a window (some 40 KiB) only while a compressed message from its peer is
//! incomplete. The price is that similarities between messages are not used.
//!
//! **Decompression bombs** are stopped: the size limit applies while the message grows, so it is never exceeded.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::{Failure, MessageKind, Opcode, frame_head, put_frame};
use crate::field;
use crate::utf8::Utf8;

/// An acceptable offer of permessage-deflate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deflate {
    /// Whether the client limited the server's window to its actual size, which the response must confirm.
    says_window: bool,
}

impl Deflate {
    /// Finds the first acceptable offer in the values of all `Sec-WebSocket-Extensions` lines. `None` if messages are not
    /// compressed. Ignores unknown extensions and unacceptable offers.
    pub fn accepted<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        lines.flat_map(field::list).find_map(Self::offered)
    }

    /// Appends the field line that accepts the offer.
    pub fn put_field(self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            b"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; \
              client_no_context_takeover",
        );
        if self.says_window {
            out.extend_from_slice(b"; server_max_window_bits=15");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Parses one offer (RFC 7692 §7.1). Declines offers with an unknown, repeated or malformed parameter. Also declines a
    /// smaller server window than that of the messages shared by all clients.
    fn offered(offer: &[u8]) -> Option<Self> {
        let mut parameters = field::parameters(offer);
        if !parameters.next()?.eq_ignore_ascii_case(b"permessage-deflate") {
            return None;
        }
        let mut seen = [false; PARAMETERS.len()];
        for parameter in parameters {
            let equals = parameter.iter().position(|&byte| byte == b'=');
            let (name, value) = match equals {
                Some(equals) => (&parameter[..equals], Some(unquoted(&parameter[equals + 1..]))),
                None => (parameter, None),
            };
            let known = PARAMETERS.iter().position(|known| name.eq_ignore_ascii_case(known))?;
            let holds = match (PARAMETERS[known], value) {
                (SERVER_WINDOW, value) => value == Some(b"15"),
                (CLIENT_WINDOW, value) => value.is_none_or(is_window),
                (_, value) => value.is_none(),
            };
            if !holds || std::mem::replace(&mut seen[known], true) {
                return None;
            }
        }
        Some(Self { says_window: seen[0] })
    }
}

/// A compressor for a sequence of messages.
#[derive(Debug)]
pub struct Deflater {
    level: u32,
    /// Created for the first message.
    stream: Option<Compress>,
}

impl Deflater {
    /// Creates a compressor. Uses some 300 KiB after the first message, so each worker has one, not each connection. `level` is
    /// that of zlib, from 1 (fast) to 9 (small).
    #[must_use]
    pub const fn new(level: u32) -> Self {
        Self { level, stream: None }
    }

    /// Appends the frame of a whole message. The frame is compressed if the message has 128 bytes to 256 KiB and becomes
    /// shorter. Both kinds of frames may be mixed freely (RFC 7692 §6).
    pub fn put_frame(&mut self, out: &mut Vec<u8>, opcode: Opcode, message: &[u8]) {
        if !WORTHWHILE_BYTES.contains(&message.len()) {
            return put_frame(out, opcode, message);
        }
        let start = out.len();
        self.put(message, out);
        let payload_bytes = out.len() - start;
        if payload_bytes >= message.len() {
            out.truncate(start);
            return put_frame(out, opcode, message);
        }
        // The length of the head is known only now.
        let head = frame_head(opcode, payload_bytes as u64).compressed();
        out.splice(start..start, head.as_bytes().iter().copied());
    }

    /// Appends the compressed payload of `message`, for a frame with [`super::FrameHead::compressed`]. The caller checks
    /// whether it is shorter.
    pub fn put(&mut self, message: &[u8], out: &mut Vec<u8>) {
        let level = self.level;
        let stream = self.stream.get_or_insert_with(|| Compress::new(Compression::new(level), false));
        stream.reset();
        let start = out.len();
        // Enough room for incompressible data: a stored block costs 5 bytes per 16 Ki or more.
        out.reserve(message.len() + message.len() / 1024 + 16);
        loop {
            // The consumed bytes are within the message, so the cast holds.
            let rest = &message[stream.total_in() as usize..];
            stream
                .compress_vec(rest, out, FlushCompress::Sync)
                .expect("a compressor fails only out of order");
            // A flush is complete when it leaves room.
            if out.len() < out.capacity() {
                break;
            }
            out.reserve(out.capacity() - start);
        }
        debug_assert!(out.ends_with(TAIL), "a flush ends with an empty block");
        // The receiver appends these bytes again (§7.2.1).
        out.truncate(out.len() - TAIL.len());
    }
}

/// Decompresses a message piece by piece. Needed from the first piece to the last.
#[derive(Debug)]
pub struct Inflater {
    stream: Decompress,
    /// The UTF-8 check of a text.
    text: Utf8,
    /// Decompressed bytes of the message so far.
    bytes: u64,
    /// Number of deflate streams that ended in the message.
    ends: u8,
}

impl Inflater {
    /// Creates a decompressor for a message; some 40 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self { stream: Decompress::new(false), text: Utf8::new(), bytes: 0, ends: 0 }
    }

    /// Decompresses the next piece and appends the result. `payload`, `kind` and `last` are the fields of the Data event. After
    /// the last piece the decompressor is ready for another message.
    ///
    /// # Errors
    /// [`Failure::MessageTooLarge`] before the message grows beyond `bytes_max`; [`Failure::InvalidDeflate`] if it is not
    /// compressed data; [`Failure::TextNotUtf8`] as early as possible.
    pub fn feed(
        &mut self,
        payload: &[u8],
        kind: MessageKind,
        last: bool,
        bytes_max: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        self.inflate(payload, kind, bytes_max, out)?;
        if !last {
            return Ok(());
        }
        self.inflate(TAIL, kind, bytes_max, out)?;
        // A complete message accepts this as its end. A truncated one takes it as more of its data.
        let ended = self.inflate(END, kind, bytes_max, out)?;
        if !ended {
            return Err(Failure::InvalidDeflate);
        }
        if kind == MessageKind::Text && !self.text.is_whole() {
            return Err(Failure::TextNotUtf8);
        }
        (self.text, self.bytes, self.ends) = (Utf8::new(), 0, 0);
        Ok(())
    }

    /// Decompresses `input` and appends the result. Returns whether a deflate stream ends with it.
    fn inflate(
        &mut self,
        mut input: &[u8],
        kind: MessageKind,
        bytes_max: u64,
        out: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        let mut block = [0; BLOCK_BYTES];
        loop {
            let (taken, given) = (self.stream.total_in(), self.stream.total_out());
            let status = self.stream.decompress(input, &mut block, FlushDecompress::Sync);
            // Both are within the given slices, so the casts hold.
            let taken = (self.stream.total_in() - taken) as usize;
            let given = (self.stream.total_out() - given) as usize;
            // The order gives the same result as feeding byte by byte: first the data within the limit, then the limit, then an
            // error in the following data.
            let left = usize::try_from(bytes_max - self.bytes).unwrap_or(usize::MAX);
            let piece = &block[..given.min(left)];
            if kind == MessageKind::Text {
                self.text.feed(piece).map_err(|_| Failure::TextNotUtf8)?;
            }
            out.extend_from_slice(piece);
            self.bytes += piece.len() as u64;
            if piece.len() < given {
                return Err(Failure::MessageTooLarge);
            }
            let status = status.map_err(|_| Failure::InvalidDeflate)?;
            input = &input[taken..];
            if status == Status::StreamEnd {
                if self.ends == ENDS_MAX {
                    return Err(Failure::InvalidDeflate);
                }
                self.ends += 1;
                self.stream.reset(false);
                if input.is_empty() {
                    return Ok(true);
                }
            } else if input.is_empty() && given < block.len() {
                return Ok(false);
            } else if taken == 0 && given == 0 {
                return Err(Failure::InvalidDeflate);
            }
        }
    }
}

impl Default for Inflater {
    fn default() -> Self {
        Self::new()
    }
}

/// Removes the quotes around a parameter's value.
fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// Whether `bits` is a window size: 8 to 15, without leading zeros.
fn is_window(bits: &[u8]) -> bool {
    matches!(bits, [b'8' | b'9'] | [b'1', b'0'..=b'5'])
}

const SERVER_WINDOW: &[u8] = b"server_max_window_bits";
const CLIENT_WINDOW: &[u8] = b"client_max_window_bits";

/// The parameters of an offer (RFC 7692 §7.1).
const PARAMETERS: [&[u8]; 4] =
    [SERVER_WINDOW, CLIENT_WINDOW, b"server_no_context_takeover", b"client_no_context_takeover"];

/// Sizes of messages that [`Deflater::put_frame`] compresses, in bytes. Measured at level 3 with envelopes of words (`cargo run
/// --release -p encke-wire --example deflate_speed`):
///
/// | bytes | 64 | 96 | 128 | 256 | 1,024 | 4,096 | 65,536 | 1,048,576 |
/// |---|---|---|---|---|---|---|---|---|
/// | remaining share | 100 % | 92 % | 88 % | 71 % | 45 % | 34 % | 28 % | 28 % |
/// | µs | 7 | 8 | 8 | 10 | 15 | 49 | 767 | 12,913 |
///
/// Smaller messages save less than a tenth. Larger ones block the worker for more than 3 ms.
const WORTHWHILE_BYTES: std::ops::RangeInclusive<usize> = 128..=256 * 1024;

/// The empty block at the end of every message, which is not sent (RFC 7692 §7.2.1).
const TAIL: &[u8] = b"\x00\x00\xff\xff";

/// An empty block that ends a deflate stream.
const END: &[u8] = b"\x01\x00\x00\xff\xff";

/// Maximum number of deflate streams in one message (RFC 7692 §7.2.3.4 allows several). Senders end one per message or per
/// fragment. Each end costs a reset of the window, for two bytes from the peer.
const ENDS_MAX: u8 = 16;

/// Bytes decompressed before the limit is checked again. The excess over the limit is never larger than this.
const BLOCK_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::super::{Decoder, FrameEvent, FrameRules, FrameSender};
    use super::*;
    use crate::http1::testing::{Random, splits};

    fn answer(lines: &[&str]) -> Option<String> {
        let accepted = Deflate::accepted(lines.iter().map(|line| line.as_bytes()))?;
        let mut out = Vec::new();
        accepted.put_field(&mut out);
        Some(String::from_utf8(out).expect("a field is ASCII"))
    }

    fn deflated(message: &[u8]) -> Vec<u8> {
        let mut out = b"before".to_vec();
        Deflater::new(6).put(message, &mut out);
        out.split_off(6)
    }

    /// Decompresses a message in every possible split.
    fn inflated(payload: &[u8], kind: MessageKind, bytes_max: u64) -> Result<Vec<u8>, Failure> {
        let whole = inflated_pieces(&[payload], kind, bytes_max);
        for pieces in splits(payload) {
            assert_eq!(inflated_pieces(&pieces, kind, bytes_max), whole, "{pieces:?}");
        }
        whole
    }

    fn inflated_pieces(pieces: &[&[u8]], kind: MessageKind, bytes_max: u64) -> Result<Vec<u8>, Failure> {
        let (mut inflater, mut out) = (Inflater::new(), Vec::new());
        for round in 0..2 {
            out.clear();
            for piece in pieces {
                inflater.feed(piece, kind, false, bytes_max, &mut out)?;
                assert!(out.len() as u64 <= bytes_max, "round {round}");
            }
            inflater.feed(b"", kind, true, bytes_max, &mut out)?;
        }
        Ok(out)
    }

    #[test]
    fn what_is_offered_is_accepted_without_context() {
        let plain = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; \
            client_no_context_takeover\r\n";
        for offer in [
            "permessage-deflate",
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate; client_max_window_bits=8",
            "permessage-deflate; client_max_window_bits=\"10\"",
            "Permessage-Deflate ; SERVER_NO_CONTEXT_TAKEOVER;client_no_context_takeover",
            "x-webkit-deflate-frame, permessage-deflate",
            "permessage-deflate; server_max_window_bits=10, permessage-deflate",
        ] {
            assert_eq!(answer(&[offer]).as_deref(), Some(plain), "{offer}");
        }
        assert_eq!(answer(&["foo", "permessage-deflate"]).as_deref(), Some(plain));
        let window = answer(&["permessage-deflate; server_max_window_bits=15"]).expect("acceptable");
        assert!(window.ends_with("client_no_context_takeover; server_max_window_bits=15\r\n"), "{window}");
    }

    #[test]
    fn what_cannot_be_kept_is_declined() {
        for offer in [
            "",
            "permessage-bzip2",
            "permessage-deflate2",
            "permessage-deflate; foo",
            "permessage-deflate;",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=14",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; client_max_window_bits=7",
            "permessage-deflate; client_max_window_bits=16",
            "permessage-deflate; client_max_window_bits=08",
            "permessage-deflate; client_max_window_bits=",
            "permessage-deflate; client_no_context_takeover=1",
            "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
            "permessage-deflate; server_max_window_bits=15; server_max_window_bits=15",
        ] {
            assert_eq!(answer(&[offer]), None, "{offer}");
        }
        assert_eq!(answer(&[]), None);
    }

    #[test]
    fn the_examples_of_the_rfc_become_hello() {
        for payload in [
            &b"\xf2\x48\xcd\xc9\xc9\x07\x00"[..],
            b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00", // not compressed
            b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00",             // BFINAL set
            b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", // two blocks
        ] {
            assert_eq!(
                inflated(payload, MessageKind::Text, 5).as_deref(),
                Ok(&b"Hello"[..]),
                "{payload:02x?}"
            );
        }
        assert_eq!(deflated(b"Hello"), b"\xf2\x48\xcd\xc9\xc9\x07\x00");
        assert_eq!(deflated(b""), b"\x00");
        assert_eq!(inflated(b"\x00", MessageKind::Text, 0).as_deref(), Ok(&b""[..]));
    }

    #[test]
    fn what_is_deflated_is_inflated() {
        const SEED: u64 = 0x6465_666c;
        let mut random = Random::new(SEED);
        for round in 0..60 {
            let bytes = [3, 200, 5_000, 100_000][round % 4];
            let variety = [2, 30, 256][round % 3];
            let message: Vec<u8> = (0..random.below(bytes)).map(|_| (random.below(variety)) as u8).collect();
            let payload = deflated(&message);
            let cut = random.below(payload.len());
            let pieces = [&payload[..cut], &payload[cut..]];
            let inflated = inflated_pieces(&pieces, MessageKind::Binary, message.len() as u64);
            assert_eq!(inflated.as_ref(), Ok(&message), "seed {SEED:#x}, round {round}");
        }
    }

    #[test]
    fn a_frame_is_compressed_only_if_that_makes_it_shorter() {
        const SEED: u64 = 0x7368_6f72;
        let mut random = Random::new(SEED);
        let noise: Vec<u8> = (0..5_000).map(|_| random.below(256) as u8).collect();
        let (least, most) = WORTHWHILE_BYTES.into_inner();
        let mut deflater = Deflater::new(1);
        for (what, message, compressed) in [
            ("nothing", vec![], false),
            ("too small", vec![b'x'; least - 1], false),
            ("large enough", vec![b'x'; least], true),
            ("a length of two bytes", b"{\"id\":1}".repeat(1_000), true),
            ("as large as may be", vec![b'x'; most], true),
            ("too large", vec![b'x'; most + 1], false),
            ("noise", noise, false),
        ] {
            let mut out = b"before".to_vec();
            deflater.put_frame(&mut out, Opcode::Binary, &message);
            let mut frame = out.split_off(6);
            assert_eq!(out, b"before");
            let rules = FrameRules { deflate: true, ..FrameRules::new(FrameSender::Server, 1 << 24) };
            let mut decoder = Decoder::new();
            let bytes = frame.len();
            let step = decoder.feed(&mut frame, &rules).expect("a frame of ours");
            assert_eq!(step.used, bytes, "{what}: one frame");
            let Some(FrameEvent::Data { payload, compressed: is, first: true, last: true, .. }) = step.event
            else {
                panic!("{what}: {step:?}");
            };
            assert_eq!(is, compressed, "{what}, seed {SEED:#x}");
            assert!(payload.len() <= message.len(), "{what}");
            let mut said = payload.to_vec();
            if is {
                let pieces = inflated_pieces(&[payload], MessageKind::Binary, message.len() as u64);
                said = pieces.expect("a payload of ours");
            }
            assert!(said == message, "{what}");
        }
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_larger_than_the_limit() {
        let bomb = deflated(&vec![0; 20_000_000]);
        assert!(bomb.len() < 25_000, "{} bytes", bomb.len());
        let (mut inflater, mut out) = (Inflater::new(), Vec::new());
        let end = inflater.feed(&bomb, MessageKind::Binary, true, 100_000, &mut out);
        assert_eq!(end, Err(Failure::MessageTooLarge));
        assert!(out.len() <= 100_000 && out.capacity() <= 200_000, "{} {}", out.len(), out.capacity());
        let payload = deflated(&[7; 1_000]);
        assert_eq!(inflated(&payload, MessageKind::Binary, 999), Err(Failure::MessageTooLarge));
        assert_eq!(inflated(&payload, MessageKind::Binary, 1_000).map(|out| out.len()), Ok(1_000));
    }

    #[test]
    fn a_message_may_be_made_of_a_few_streams_but_not_of_nothing_else() {
        // An empty stream with BFINAL set, repeated.
        let streams = |count: usize| [b"\x03\x00".repeat(count), vec![0]].concat();
        assert_eq!(inflated(&streams(15), MessageKind::Binary, 0).as_deref(), Ok(&b""[..]));
        assert_eq!(inflated(&streams(16), MessageKind::Binary, 0), Err(Failure::InvalidDeflate));
    }

    #[test]
    fn what_is_nothing_compressed_is_refused() {
        for payload in [&b"\xff\xff\xff\xff"[..], b"Hello", b"\x00\x05\x00\xfa\xfe\x48"] {
            assert_eq!(
                inflated(payload, MessageKind::Binary, 1_000),
                Err(Failure::InvalidDeflate),
                "{payload:02x?}"
            );
        }
        let whole = deflated(b"a message, a message, and no end of a message");
        for end in 0..whole.len() {
            let cut = inflated(&whole[..end], MessageKind::Binary, 1_000);
            assert_eq!(cut, Err(Failure::InvalidDeflate), "{end} bytes");
        }
    }

    #[test]
    fn text_is_checked_when_it_has_become_text() {
        assert_eq!(
            inflated(&deflated("日本語".as_bytes()), MessageKind::Text, 9).as_deref(),
            Ok("日本語".as_bytes())
        );
        for text in [&b"a\xff"[..], b"\xed\xa0\x80", b"\xe6\x97"] {
            assert_eq!(inflated(&deflated(text), MessageKind::Text, 1_000), Err(Failure::TextNotUtf8));
            assert_eq!(inflated(&deflated(text), MessageKind::Binary, 1_000).as_deref(), Ok(text));
        }
        let (mut inflater, mut out) = (Inflater::new(), Vec::new());
        let flushed = deflated(b"a\xff");
        assert!(
            inflater.feed(&[&flushed, TAIL].concat(), MessageKind::Text, false, 10, &mut out).is_err(),
            "before the message ends"
        );
    }
}
