//! The reasons to fail a connection (RFC 6455 §7.1.7) in one table: the close code, a name for logs and metrics, and a sentence
//! for the Close.

use std::fmt;

/// Declares [`Failure`] and the properties of each variant as one table, so that none lacks a code, a name or a sentence.
macro_rules! failures {
    ($($variant:ident = $code:literal $reason:literal $sentence:literal,)+) => {
        /// The error of the peer that ends the connection.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Failure {
            $(#[doc = $sentence] $variant,)+
        }

        impl Failure {
            /// All failures.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The close code: 1002 for a protocol error, 1007 for data that does not match its type, 1009 for a message that
            /// is too large.
            #[must_use]
            pub const fn code(self) -> u16 {
                match self { $(Self::$variant => $code,)+ }
            }

            /// A short name in `snake_case`, stable between versions.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self { $(Self::$variant => $reason,)+ }
            }

            /// A sentence about the error, short enough for the payload of a Close.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)+ }
            }
        }
    };
}

failures! {
    ReservedBits = 1002 "reserved_bits" "A frame sets a reserved bit without a negotiated extension.",
    ReservedOpcode = 1002 "reserved_opcode" "A frame has a reserved opcode.",
    ControlInPieces = 1002 "control_in_pieces" "A Close, Ping or Pong is fragmented.",
    ControlTooLong = 1002 "control_too_long" "A Close, Ping or Pong has more than 125 bytes.",
    NothingToContinue = 1002 "nothing_to_continue" "A continuation frame arrives while no message is open.",
    MessageWithinMessage = 1002 "message_within_message" "A message begins before the previous one has ended.",
    Unmasked = 1002 "unmasked" "A client's frame is not masked.",
    Masked = 1002 "masked" "A server's frame is masked.",
    LengthNotMinimal = 1002 "length_not_minimal" "A length is encoded in more bytes than necessary.",
    LengthOverflow = 1002 "length_overflow" "A length has its highest bit set.",
    CloseTooShort = 1002 "close_too_short" "The payload of a Close is only one byte.",
    InvalidCloseCode = 1002 "invalid_close_code" "A Close has a code that must not be sent.",
    ReasonNotUtf8 = 1007 "reason_not_utf8" "The reason of a Close is not UTF-8.",
    TextNotUtf8 = 1007 "text_not_utf8" "A text message is not UTF-8.",
    InvalidDeflate = 1007 "invalid_deflate" "The data of a compressed message is invalid.",
    FrameTooLarge = 1009 "frame_too_large" "A frame announces more bytes than the limit.",
    MessageTooLarge = 1009 "message_too_large" "A message is larger than the limit.",
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.sentence())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websocket::close_payload;
    use std::collections::HashSet;

    #[test]
    fn every_failure_has_its_own_name_and_fits_whole_in_a_close() {
        let names: HashSet<_> = Failure::ALL.iter().map(|failure| failure.reason()).collect();
        assert_eq!(names.len(), Failure::ALL.len());
        for &failure in Failure::ALL {
            assert!(matches!(failure.code(), 1002 | 1007 | 1009), "{failure:?}");
            assert!(failure.to_string().ends_with('.'), "{failure:?}");
            let payload = close_payload(failure.code(), failure.sentence());
            assert_eq!(&payload.as_bytes()[2..], failure.sentence().as_bytes());
            assert!(failure.reason().bytes().all(|byte| byte.is_ascii_lowercase() || b"_8".contains(&byte)));
        }
    }
}
