//! Limits on chores and resets: frames that cost the server work and the client little.
//!
//! ```text
//! bytes ─► frame headers ─┬─ PING, SETTINGS, PRIORITY, WINDOW_UPDATE, CONTINUATION, empty DATA, unknown: a chore
//!                         ├─ RST_STREAM: a reset; without a token for it, a chore, and the connection takes no more streams
//!                         └─ HEADERS: opens a field block until END_HEADERS; for the stream that the client reset last
//!                                     it is a breach, which `h2` may no longer detect; for an open stream these are
//!                                     trailers
//! ```
//! Chores and resets are paid from two token buckets that fill with time. Bytes sent to the client fill the first one, too. The
//! watch reads nine bytes of each frame and the first field of trailers, and copies no payload. The `h2` crate decides whether
//! a frame is well formed.

use super::trailers::FirstField;

/// Burst of chores. A browser sends some ten such frames a second. A client that receives 64 MiB in frames of 16 KiB sends
/// 8,192 window updates, which the bytes sent to it pay for.
const CHORES_MAX: u32 = 1_000;
/// Chores a second.
const CHORES_PER_SECOND: u64 = 100;
/// Bytes sent that pay for one chore. A small client with windows of 1 KiB sends two window updates for every 512 bytes, one
/// for the stream and one for the connection. A window update costs less than sealing and sending 256 bytes.
const CHORE_BYTES: u64 = 256;
/// The part of the burst of resets that each second permits again.
const RESETS_PART: u32 = 10;

const HEADER_BYTES: usize = 9;
const PREFACE_BYTES: u32 = 24;

/// Frame types (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
/// Bytes before the field block of a frame with the flag PRIORITY (RFC 9113 §6.2).
const PRIORITY_BYTES: u32 = 5;
/// Limit of remembered streams with malformed trailers: the default limit of open streams. They take at most 512 bytes per
/// connection.
const MALFORMED_MAX: usize = 128;

/// The reason to reject a client's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Breach {
    /// The client sent too many chores.
    Chores,
    /// The client sent HEADERS for a stream that it had reset (RFC 9113 §5.1, closed).
    Closed,
}

/// The limits on the frames of one client, and the state of its field blocks.
pub struct AbuseGuard {
    header: [u8; HEADER_BYTES],
    /// Bytes of `header` received so far.
    have: u8,
    /// Bytes to skip: the preface, then payloads.
    skip: u32,
    /// A field block is incomplete.
    block: bool,
    /// The stream that the client reset last, or 0.
    reset: u32,
    /// The last stream that the client opened, or 0.
    opened: u32,
    /// Trailers that are arriving.
    trailers: Option<Trailers>,
    /// Streams whose trailers have a pseudo-header field.
    malformed: Vec<u32>,
    chores: FrameBucket,
    resets: FrameBucket,
    /// The client has opened and reset too many streams.
    is_flooded: bool,
}

/// Trailers that have arrived in part.
struct Trailers {
    stream: u32,
    first: FirstField,
    /// The next byte is the length of the padding.
    padded: bool,
    /// Bytes before this frame's fragment of the field block.
    before: u32,
    /// Remaining bytes of that fragment.
    part: u32,
}

/// A token bucket: `most` tokens at once, refilled at `per_second`.
struct FrameBucket {
    left: u32,
    most: u32,
    per_second: u64,
    filled_ns: u64,
}

impl AbuseGuard {
    /// `resets`: streams that the client may reset in a burst.
    pub(super) fn new(now_ns: u64, resets: u32) -> Self {
        let purse = |most, per_second| FrameBucket { left: most, most, per_second, filled_ns: now_ns };
        Self {
            header: [0; HEADER_BYTES],
            have: 0,
            skip: PREFACE_BYTES,
            block: false,
            reset: 0,
            opened: 0,
            trailers: None,
            malformed: Vec::new(),
            chores: purse(CHORES_MAX, CHORES_PER_SECOND),
            resets: purse(resets, u64::from((resets / RESETS_PART).max(1))),
            is_flooded: false,
        }
    }

    /// Examines received bytes at `now_ns`, on the monotonic clock.
    ///
    /// # Errors
    /// The limit or rule that the client violated.
    pub fn look(&mut self, mut bytes: &[u8], now_ns: u64) -> Result<(), Breach> {
        self.chores.fill(now_ns);
        self.resets.fill(now_ns);
        while !bytes.is_empty() {
            if self.skip > 0 {
                let passed = bytes.len().min(self.skip as usize);
                self.skip -= passed as u32;
                if self.trailers.is_some() {
                    self.look_into_trailers(&bytes[..passed]);
                }
                bytes = &bytes[passed..];
                continue;
            }
            let have = usize::from(self.have);
            let taken = bytes.len().min(HEADER_BYTES - have);
            self.header[have..have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken as u8;
            bytes = &bytes[taken..];
            if usize::from(self.have) == HEADER_BYTES {
                self.have = 0;
                self.frame()?;
            }
        }
        Ok(())
    }

    /// Whether the client has opened and reset too many streams. The connection should take no more, and finish the open ones:
    /// a page that cancels much may receive something else.
    pub fn is_flooded(&self) -> bool {
        self.is_flooded
    }

    /// Adds tokens for bytes sent to the client, whose window updates they cause.
    pub fn sent(&mut self, bytes: u64) {
        let earned = u32::try_from(bytes / CHORE_BYTES).unwrap_or(u32::MAX);
        self.chores.left = self.chores.left.saturating_add(earned).min(self.chores.most);
    }

    /// Whether a field block is incomplete: the client has begun a head and not finished it.
    pub fn in_block(&self) -> bool {
        self.block
    }

    /// Whether the trailers of a stream contain a pseudo-header field.
    pub fn is_malformed(&self, stream: u32) -> bool {
        self.malformed.contains(&stream)
    }

    /// Forgets a stream that has ended.
    pub fn forget(&mut self, stream: u32) {
        self.malformed.retain(|malformed| *malformed != stream);
    }

    /// Examines a piece of payload of a frame that belongs to trailers.
    fn look_into_trailers(&mut self, mut payload: &[u8]) {
        let Some(trailers) = &mut self.trailers else { return };
        if trailers.padded
            && let Some((padding, rest)) = payload.split_first()
        {
            trailers.padded = false;
            trailers.part = trailers.part.saturating_sub(u32::from(*padding));
            payload = rest;
        }
        let before = payload.len().min(trailers.before as usize);
        trailers.before -= before as u32;
        let part = &payload[before..];
        let part = &part[..part.len().min(trailers.part as usize)];
        trailers.part -= part.len() as u32;
        trailers.first.feed(part);
        let FirstField::Known(is_pseudo) = trailers.first else { return };
        let stream = trailers.stream;
        self.trailers = None;
        if is_pseudo {
            self.malformed.truncate(MALFORMED_MAX - 1);
            self.malformed.push(stream);
        }
    }

    fn frame(&mut self) -> Result<(), Breach> {
        let [a, b, c, kind, flags, id @ ..] = self.header;
        // The first bit is reserved (RFC 9113 §4.1).
        let id = u32::from_be_bytes(id) & (u32::MAX >> 1);
        let len = u32::from_be_bytes([0, a, b, c]);
        self.skip = len;
        let chore = match kind {
            DATA => len == 0 && flags & END_STREAM == 0,
            HEADERS => false,
            RST_STREAM if self.resets.pay().is_some() => false,
            RST_STREAM => {
                self.is_flooded = true;
                true
            }
            _ => true,
        };
        if matches!(kind, HEADERS | CONTINUATION) {
            self.block = flags & END_HEADERS == 0;
        }
        if kind == RST_STREAM {
            self.reset = id;
        }
        if kind == HEADERS && id != 0 && id == self.reset {
            return Err(Breach::Closed);
        }
        self.trailers = match kind {
            HEADERS if id > self.opened => {
                self.opened = id;
                None
            }
            HEADERS => {
                let padded = flags & PADDED != 0;
                let before = if flags & PRIORITY != 0 { PRIORITY_BYTES } else { 0 };
                let part = len.saturating_sub(u32::from(padded) + before);
                Some(Trailers { stream: id, first: FirstField::Representation, padded, before, part })
            }
            CONTINUATION => self.trailers.take().map(|trailers| Trailers { part: len, ..trailers }),
            _ => None,
        };
        if chore { self.chores.pay().ok_or(Breach::Chores) } else { Ok(()) }
    }
}

impl FrameBucket {
    fn fill(&mut self, now_ns: u64) {
        let step_ns = 1_000_000_000 / self.per_second;
        let steps = now_ns.saturating_sub(self.filled_ns) / step_ns;
        if steps > 0 {
            self.left = self.left.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX)).min(self.most);
            // The rest of a step counts for the next one.
            self.filled_ns = self.filled_ns.saturating_add(steps.saturating_mul(step_ns));
        }
    }

    fn pay(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags, 0, 0, 0, 1]);
        bytes.extend_from_slice(payload);
        bytes
    }

    const RESETS: u32 = 200;

    fn watch() -> AbuseGuard {
        let mut watch = AbuseGuard::new(0, RESETS);
        watch.look(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0).expect("no frame");
        watch
    }

    /// Feeds bytes whole to one watch and byte by byte to another. Both must return the same.
    fn look(
        whole: &mut AbuseGuard,
        bytewise: &mut AbuseGuard,
        bytes: &[u8],
        now_ns: u64,
    ) -> Result<(), Breach> {
        let said = whole.look(bytes, now_ns);
        let again = bytes.iter().try_for_each(|byte| bytewise.look(&[*byte], now_ns));
        assert_eq!(said, again);
        said
    }

    #[test]
    fn chores_are_limited_at_once_and_go_on_with_time() {
        let (mut whole, mut bytewise) = (watch(), watch());
        let ping = frame(PING, 0, &[0; 8]);
        for _ in 0..CHORES_MAX {
            assert_eq!(look(&mut whole, &mut bytewise, &ping, 0), Ok(()));
        }
        assert_eq!(look(&mut whole, &mut bytewise, &ping, 0), Err(Breach::Chores));
        assert_eq!(look(&mut whole, &mut bytewise, &ping, 1_000_000_000 / CHORES_PER_SECOND), Ok(()));
    }

    #[test]
    fn chores_have_their_full_rate_between_two_steps() {
        let (mut whole, mut bytewise) = (watch(), watch());
        let ping = frame(PING, 0, &[0; 8]);
        for _ in 0..CHORES_MAX {
            assert_eq!(look(&mut whole, &mut bytewise, &ping, 0), Ok(()));
        }
        // A look every one and a half steps, with as many chores as whole steps have passed.
        let half_ns = 500_000_000 / CHORES_PER_SECOND;
        for number in 1..=100 {
            let now_ns = 3 * half_ns * number;
            for _ in 0..(3 * number / 2 - 3 * (number - 1) / 2) {
                assert_eq!(look(&mut whole, &mut bytewise, &ping, now_ns), Ok(()), "{number}");
            }
        }
        assert_eq!(look(&mut whole, &mut bytewise, &ping, 300 * half_ns), Err(Breach::Chores));
    }

    #[test]
    fn what_a_client_is_sent_pays_for_its_window_updates() {
        const WINDOW_UPDATE: u8 = 8;
        let (mut whole, mut bytewise) = (watch(), watch());
        let update = frame(WINDOW_UPDATE, 0, &[0; 4]);
        for _ in 0..10 * CHORES_MAX {
            assert_eq!(look(&mut whole, &mut bytewise, &update, 0), Ok(()));
            whole.sent(CHORE_BYTES);
            bytewise.sent(CHORE_BYTES);
        }
    }

    #[test]
    fn resets_are_limited_before_chores_are() {
        let (mut whole, mut bytewise) = (watch(), watch());
        let opened_and_reset = |number: u32| {
            let mut frames = [frame(HEADERS, END_HEADERS, b"x"), frame(RST_STREAM, 0, &[0; 4])];
            for frame in &mut frames {
                frame[5..9].copy_from_slice(&(2 * number + 1).to_be_bytes());
            }
            frames.concat()
        };
        for number in 0..RESETS {
            assert_eq!(look(&mut whole, &mut bytewise, &opened_and_reset(number), 0), Ok(()));
        }
        assert!(!whole.is_flooded() && !bytewise.is_flooded());
        // Open streams may end, so the connection bears as many more as it bears chores.
        for number in RESETS..RESETS + CHORES_MAX {
            assert_eq!(look(&mut whole, &mut bytewise, &opened_and_reset(number), 0), Ok(()));
            assert!(whole.is_flooded() && bytewise.is_flooded());
        }
        let one_more = opened_and_reset(RESETS + CHORES_MAX);
        assert_eq!(look(&mut whole, &mut bytewise, &one_more, 0), Err(Breach::Chores));
    }

    #[test]
    fn each_second_permits_a_tenth_of_the_resets_again() {
        let (mut whole, mut bytewise) = (watch(), watch());
        let reset = frame(RST_STREAM, 0, &[0; 4]);
        for _ in 0..RESETS {
            assert_eq!(look(&mut whole, &mut bytewise, &reset, 0), Ok(()));
        }
        for _ in 0..RESETS / RESETS_PART {
            assert_eq!(look(&mut whole, &mut bytewise, &reset, 1_000_000_000), Ok(()));
        }
        assert!(!whole.is_flooded());
        assert_eq!(look(&mut whole, &mut bytewise, &reset, 1_000_000_000), Ok(()));
        assert!(whole.is_flooded() && bytewise.is_flooded());
    }

    #[test]
    fn a_stream_that_was_reset_has_no_further_head() {
        let (mut whole, mut bytewise) = (watch(), watch());
        let reset = [frame(HEADERS, END_HEADERS, b"x"), frame(RST_STREAM, 0, &[0; 4])].concat();
        assert_eq!(look(&mut whole, &mut bytewise, &reset, 0), Ok(()));
        assert_eq!(
            look(&mut whole, &mut bytewise, &frame(DATA, 0, b"late"), 0),
            Ok(()),
            "the engine's to judge"
        );
        let mut other = frame(HEADERS, END_HEADERS, b"x");
        other[8] = 3;
        assert_eq!(look(&mut whole, &mut bytewise, &other, 0), Ok(()));
        let mut again = frame(HEADERS, END_HEADERS, b"x");
        again[5] = 0x80;
        assert_eq!(look(&mut whole, &mut bytewise, &again, 0), Err(Breach::Closed));
    }

    #[test]
    fn a_block_is_open_until_its_last_frame() {
        let (mut whole, mut bytewise) = (watch(), watch());
        for (bytes, open) in [
            (frame(HEADERS, 0, b"abc"), true),
            (frame(CONTINUATION, 0, b""), true),
            (frame(CONTINUATION, END_HEADERS, b"d"), false),
            (frame(HEADERS, END_HEADERS, b"abc"), false),
            (frame(DATA, 0, &[0; 100]), false),
        ] {
            look(&mut whole, &mut bytewise, &bytes, 0).expect("no flood");
            assert_eq!((whole.in_block(), bytewise.in_block()), (open, open), "{bytes:?}");
        }
    }

    #[test]
    fn data_is_no_chore_unless_it_is_empty_and_not_the_end() {
        let (mut whole, mut bytewise) = (watch(), watch());
        for _ in 0..2 * CHORES_MAX {
            look(&mut whole, &mut bytewise, &frame(DATA, 0, b"x"), 0).expect("data");
            look(&mut whole, &mut bytewise, &frame(DATA, END_STREAM, b""), 0).expect("an end");
        }
        let empty = frame(DATA, 0, b"").repeat(CHORES_MAX as usize + 1);
        assert_eq!(look(&mut whole, &mut bytewise, &empty, 0), Err(Breach::Chores));
    }
}
