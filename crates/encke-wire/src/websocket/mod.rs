//! The WebSocket protocol (RFC 6455): the handshake, decoding and encoding of frames.
//!
//! ```text
//!   GET, Upgrade: websocket ─► WebSocketHandshake::check ─┬─► 101: put_fields     HandshakeError: 400 or 426
//!                                                         ▼
//!   bytes ─► Decoder::feed ─► Data pieces · Ping · Pong · Close          Failure: Close with its code
//!                                └─ compressed ─► Inflater::feed
//!   bytes ◄─ put_frame, put_masked, put_close, frame_head
//! ```
//!
//! This module is not a connection. It responds to no Ping, sends no Close by itself, and stores no message. Messages are
//! delivered in the pieces in which they arrive; a caller that needs a whole message collects it, within its own limit. So
//! announcing a huge message costs nothing, and an idle connection needs no [`Decoder`].
//!
//! The decoder is as strict as the RFC allows, and fails at the first byte that breaks a rule. Examples are reserved bits, an
//! unmasked client, a length in more bytes than necessary, and text that cannot be UTF-8. Attacks through tunnels need two
//! parties that read the same frames differently (RFC 6455 §10.3).

mod decode;
mod deflate;
mod encode;
mod failure;
mod handshake;
mod mask;

pub use decode::{Decoder, FrameEvent, FrameRules, FrameSender, FrameStep};
pub use deflate::{Deflate, Deflater, Inflater};
pub use encode::{ClosePayload, FrameHead, close_payload, frame_head, put_close, put_frame, put_masked};
pub use failure::Failure;
pub use handshake::{HandshakeError, VERSION, WebSocketHandshake, accept_of, key_of};

/// Maximum payload of a Close, Ping or Pong in bytes (RFC 6455 §5.5).
pub const CONTROL_BYTES_MAX: usize = 125;

/// The type of a frame (RFC 6455 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// The next part of the open message.
    Continuation = 0x0,
    /// The first, possibly only, part of a text message.
    Text = 0x1,
    /// The first, possibly only, part of a binary message.
    Binary = 0x2,
    /// The last frame from its sender.
    Close = 0x8,
    /// A request for a Pong with the same payload.
    Ping = 0x9,
    /// The response to a Ping, or an unsolicited heartbeat.
    Pong = 0xa,
}

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

impl Opcode {
    /// The opcode with this number; `None` if it is reserved.
    #[must_use]
    pub const fn of(number: u8) -> Option<Self> {
        Some(match number {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return None,
        })
    }

    /// Whether frames of this type may appear within a message, and are therefore small and never fragmented.
    #[must_use]
    pub const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// Whether a Close may carry `code` (RFC 6455 §7.4 and the IANA registry): 1000 to 1003, 1007 to 1014, and 3000 to 4999
/// (libraries and applications). 1004 has no meaning. 1005, 1006 and 1015 denote closes without a code, and are never sent.
#[must_use]
pub const fn is_close_code(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// FIN: the frame is the last of its message.
const LAST: u8 = 0x80;
/// RSV1: the message is compressed (RFC 7692 §6).
const COMPRESSED: u8 = 0x40;
/// RSV2 and RSV3, which no supported extension uses.
const RESERVED: u8 = 0x30;
/// MASK: a key follows the length.
const MASKED: u8 = 0x80;
/// Values of the seven-bit length that announce 2 or 8 bytes with the actual length.
const LENGTH_IN_2: u8 = 126;
const LENGTH_IN_8: u8 = 127;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_have_their_numbers_and_no_other() {
        let known: Vec<u8> = (0..=255).filter(|&number| Opcode::of(number).is_some()).collect();
        assert_eq!(known, [0x0, 0x1, 0x2, 0x8, 0x9, 0xa]);
        for number in known {
            let opcode = Opcode::of(number).expect("filtered above");
            assert_eq!((opcode as u8, opcode.is_control()), (number, number >= 0x8));
        }
    }

    #[test]
    fn close_codes_that_may_travel_are_those_of_the_registry_and_of_applications() {
        for (codes, sendable) in [
            (0..=999, false),
            (1000..=1003, true),
            (1004..=1006, false),
            (1007..=1014, true),
            (1015..=2999, false),
            (3000..=4999, true),
            (5000..=u16::MAX, false),
        ] {
            for code in codes {
                assert_eq!(is_close_code(code), sendable, "{code}");
            }
        }
    }
}
