//! Finds the end of a ClientHello in the bytes of a new connection (RFC 8446 §4 and §5.1, RFC 5246 §7.4) before a session
//! reads them. Until then a connection costs no computation, and no more memory than its client has sent bytes.
//!
//! ```text
//!  22 3 x len len ─ fragment ─ 22 3 x len len ─ fragment …     records; the first four bytes of all fragments:
//!                                                              1 (client_hello), then the message's length
//! ```

use super::records::RECORD_BYTES;

/// Limit of a ClientHello with its record headers. Browsers send 2 KiB with a post-quantum key share; a TLS 1.3 ticket that
/// holds the client's certificate chain adds up to 6 KiB.
const HELLO_BYTES_MAX: usize = 16 * 1024;

/// The content type of a handshake record (RFC 8446 §5.1).
pub(super) const HANDSHAKE: u8 = 22;

/// The type of a ClientHello among handshake messages (RFC 8446 §4).
const CLIENT_HELLO: u8 = 1;

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
        loop {
            match rest {
                [] | [HANDSHAKE] | [HANDSHAKE, 3, ..] => {}
                _ => return Self::Whole,
            }
            let Some(([_, _, _, high, low], behind)) = rest.split_first_chunk() else { break };
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            if len == 0 || len > RECORD_BYTES {
                return Self::Whole;
            }
            let (fragment, behind) = behind.split_at(len.min(behind.len()));
            for (byte, from) in message.iter_mut().skip(arrived).zip(fragment) {
                *byte = *from;
            }
            arrived += fragment.len();
            let [kind, length @ ..] = message;
            if arrived > 0 && kind != CLIENT_HELLO {
                return Self::Whole;
            }
            if arrived >= message.len() {
                let [high, middle, low] = length;
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
            &[HANDSHAKE, 2],
            &[23, 3, 3],
            &[HANDSHAKE, 3, 1, 0, 0],
            &[HANDSHAKE, 3, 1, 0x40, 1],
            &[HANDSHAKE, 3, 1, 0, 4, 2],
            &[HANDSHAKE, 3, 1, 0, 1, CLIENT_HELLO, 21],
        ] {
            assert_eq!(Hello::of(bytes), Hello::Whole, "{bytes:?}");
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
