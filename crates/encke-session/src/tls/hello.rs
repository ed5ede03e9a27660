//! Finds the end of a ClientHello (RFC 8446 §4 and §5.1, RFC 5246 §7.4) in the bytes of a new connection, before a session
//! reads them. Until then a connection costs no computation, and no more memory than its client has sent bytes.
//!
//! ```text
//!  22 3 x len len ─ fragment ─ 22 3 x len len ─ fragment …     records; the first four bytes of all fragments:
//!                                                              the message's type, then its length
//! ```
//! A first message of another type is gathered like a ClientHello, because a session waits for all of it before it rejects it.

use super::queue::RECORD_BYTES;

/// Limit of a ClientHello with its record headers. Browsers send 2 KiB with a post-quantum key share; a TLS 1.3 ticket that
/// holds the client's certificate chain adds up to 6 KiB.
const HELLO_BYTES_MAX: usize = 16 * 1024;

/// The content type of a handshake record (RFC 8446 §5.1).
pub(super) const HANDSHAKE: u8 = 22;

/// The content types of records (RFC 8446 §B.1, RFC 6520 §3).
const RECORD_KINDS: std::ops::RangeInclusive<u8> = 20..=24;

/// The state of a ClientHello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hello {
    /// More bytes must arrive.
    Partial,
    /// The session can read the whole message, or rejects the bytes at once.
    Whole,
    /// The announced or received length exceeds [`HELLO_BYTES_MAX`].
    TooLarge,
}

impl Hello {
    /// The state of the ClientHello at the beginning of `bytes`.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let (mut rest, mut message, mut arrived) = (bytes, [0; 4], 0);
        while let Some(([kind, major, _, high, low], behind)) = rest.split_first_chunk() {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            if !RECORD_KINDS.contains(kind) || *major != 3 || len > RECORD_BYTES {
                return Self::Whole;
            }
            let (fragment, behind) = behind.split_at(len.min(behind.len()));
            if *kind != HANDSHAKE || len == 0 {
                // The session waits for the record, and then rejects it.
                if fragment.len() == len {
                    return Self::Whole;
                }
                break;
            }
            for (byte, from) in message.iter_mut().skip(arrived).zip(fragment) {
                *byte = *from;
            }
            arrived += fragment.len();
            if arrived >= message.len() {
                let [_, high, middle, low] = message;
                let total = message.len() + u32::from_be_bytes([0, high, middle, low]) as usize;
                if total > HELLO_BYTES_MAX {
                    return Self::TooLarge;
                }
                if arrived >= total && fragment.len() == len {
                    return Self::Whole;
                }
            }
            rest = behind;
        }
        if bytes.len() > HELLO_BYTES_MAX { Self::TooLarge } else { Self::Partial }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT_HELLO: u8 = 1;

    /// A ClientHello with a body of `len` bytes, in records of `fragment` bytes.
    fn hello(len: u32, fragment: usize) -> Vec<u8> {
        let mut message = vec![CLIENT_HELLO];
        message.extend_from_slice(&len.to_be_bytes()[1..]);
        message.resize(4 + len as usize, 0xaa);
        let record = |fragment: &[u8]| {
            [&[HANDSHAKE, 3, 1][..], &(fragment.len() as u16).to_be_bytes(), fragment].concat()
        };
        message.chunks(fragment).flat_map(record).collect()
    }

    #[test]
    fn a_hello_is_whole_with_its_last_byte() {
        for fragment in [1, 2, 3, 4, 5, 100, 300] {
            let bytes = hello(250, fragment);
            for end in 0..bytes.len() {
                assert_eq!(Hello::of(&bytes[..end]), Hello::Partial, "{end} bytes, records of {fragment}");
            }
            assert_eq!(Hello::of(&bytes), Hello::Whole, "records of {fragment}");
            let more = [&bytes[..], &[23, 3, 3, 0, 1]].concat();
            assert_eq!(Hello::of(&more), Hello::Whole, "early data may follow");
        }
    }

    #[test]
    fn the_session_judges_what_is_no_hello() {
        for bytes in [
            &b"GET / HTTP/1.1"[..],
            &[HANDSHAKE, 2, 0, 0, 1],
            &[23, 3, 3, 0, 1, 0],
            &[HANDSHAKE, 3, 1, 0, 0],
            &[HANDSHAKE, 3, 1, 0x48, 1],
            &[HANDSHAKE, 3, 1, 0, 4, 2, 0, 0, 0],
            &[HANDSHAKE, 3, 1, 0, 1, CLIENT_HELLO, 21, 3, 3, 0, 0],
        ] {
            assert_eq!(Hello::of(bytes), Hello::Whole, "{bytes:?}");
            // A session waits for a whole record header, record and message.
            let waits = if bytes[0] == b'G' { 5 } else { bytes.len() };
            for end in 0..waits {
                assert_eq!(Hello::of(&bytes[..end]), Hello::Partial, "{end} of {bytes:?}");
            }
        }
    }

    #[test]
    fn a_hello_has_a_limit_in_every_form() {
        let largest = hello(HELLO_BYTES_MAX as u32 - 4, RECORD_BYTES);
        assert_eq!(Hello::of(&largest), Hello::Whole);
        assert_eq!(Hello::of(&[HANDSHAKE, 3, 1, 0, 9, CLIENT_HELLO, 0, 0x3f, 0xfd]), Hello::TooLarge);
        let drips = hello(HELLO_BYTES_MAX as u32 - 4, 1);
        assert_eq!(Hello::of(&drips[..HELLO_BYTES_MAX]), Hello::Partial);
        assert_eq!(Hello::of(&drips[..=HELLO_BYTES_MAX]), Hello::TooLarge);
    }
}
