//! The reasons why a message is rejected: one variant per rule, with a status, a name for logs and metrics, and a sentence for
//! people.
//!
//! Every refusal is an error of the peer and ends the connection, because the start of the next message is unknown.

use std::fmt;

/// Declares [`Refusal`] and the properties of each variant as one table.
macro_rules! refusals {
    ($($variant:ident = $status:literal $reason:literal $sentence:literal,)+) => {
        /// The reason why a message is rejected.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Refusal {
            $(#[doc = $sentence] $variant,)+
        }

        impl Refusal {
            /// All refusals, for tables of counters.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The status of the response.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// A short name in `snake_case`, stable between versions.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self { $(Self::$variant => $reason,)+ }
            }

            /// A reference to the name, for structures that store a thin pointer.
            #[must_use]
            pub const fn reason_ref(self) -> &'static &'static str {
                match self { $(Self::$variant => &$reason,)+ }
            }

            /// A sentence about the error and its location.
            const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)+ }
            }
        }
    };
}

refusals! {
    EmptyLines = 400 "empty_lines" "More than two empty lines before the request line.",
    InvalidMethod = 400 "invalid_method" "The method is not a token followed by one space.",
    MethodTooLong = 501 "method_too_long" "The method is longer than any known method.",
    TargetMissing = 400 "target_missing" "The request line has no target.",
    InvalidTarget = 400 "invalid_target" "A byte of the request target is not allowed in a URI.",
    TargetForm = 400 "target_form" "The form of the request target does not match the method.",
    UriTooLong = 414 "uri_too_long" "The request target is longer than the limit.",
    InvalidVersion = 400 "invalid_version" "The start line has no valid HTTP version.",
    NotHttp = 400 "not_http" "The request line is not HTTP: its target and its version are invalid.",
    UnsupportedVersion = 505 "unsupported_version" "The major version is not 1.",
    InvalidStatus = 400 "invalid_status" "The status line has no valid status code.",
    BareCr = 400 "bare_cr" "A CR is not followed by LF.",
    BareLf = 400 "bare_lf" "A line ends in LF without CR.",
    ControlByte = 400 "control_byte" "A field value has a control character.",
    LeadingSpace = 400 "leading_space" "White space precedes the first field.",
    ObsoleteFold = 400 "obsolete_fold" "A field is continued on the next line (obs-fold).",
    EmptyFieldName = 400 "empty_field_name" "A field line begins with a colon.",
    SpaceBeforeColon = 400 "space_before_colon" "White space separates a field's name from its colon.",
    MissingColon = 400 "missing_colon" "A field line has no colon.",
    InvalidFieldName = 400 "invalid_field_name" "A field name has a byte that is not a token character.",
    FieldNameTooLong = 431 "field_name_too_long" "A field name is longer than 255 bytes.",
    TooManyFields = 431 "too_many_fields" "The head has more fields than the limit.",
    HeadTooLarge = 431 "head_too_large" "The head is larger than the limit.",
    HostMissing = 400 "host_missing" "An HTTP/1.1 request has no Host field.",
    HostRepeated = 400 "host_repeated" "The Host field is repeated.",
    InvalidHost = 400 "invalid_host" "The Host field or the target's authority is not a host with an optional port.",
    InvalidLength = 400 "invalid_length" "Content-Length is not one decimal number.",
    LengthRepeated = 400 "length_repeated" "Content-Length is repeated.",
    LengthOverflow = 413 "length_overflow" "Content-Length does not fit in 64 bits.",
    LengthWithCoding = 400 "length_with_coding" "Content-Length and Transfer-Encoding are both present.",
    InvalidCoding = 400 "invalid_coding" "Transfer-Encoding is malformed, or its last coding is not chunked.",
    CodingRepeated = 400 "coding_repeated" "Transfer-Encoding is repeated.",
    CodingInHttp10 = 400 "coding_in_http10" "An HTTP/1.0 message has a Transfer-Encoding.",
    UnsupportedCoding = 501 "unsupported_coding" "Transfer-Encoding names a coding other than chunked.",
    InvalidChunkSize = 400 "invalid_chunk_size" "A chunk size is not 1 to 16 hexadecimal digits.",
    InvalidChunkExtension = 400 "invalid_chunk_extension" "A chunk extension is malformed.",
    ChunkLineTooLong = 400 "chunk_line_too_long" "The line of a chunk's size is longer than the limit.",
    ChunkOverhead = 400 "chunk_overhead" "The body's chunk lines are too long in proportion to its data.",
    ChunkEndMissing = 400 "chunk_end_missing" "A chunk's data is not followed by CRLF.",
    InvalidTrailer = 400 "invalid_trailer" "A trailer line is not a field line.",
    TrailersTooLarge = 431 "trailers_too_large" "The trailers are larger than the limit.",
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.sentence())
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_refusal_has_its_own_name_and_an_error_status_that_has_a_reason_phrase() {
        let names: HashSet<_> = Refusal::ALL.iter().map(|refusal| refusal.reason()).collect();
        assert_eq!(names.len(), Refusal::ALL.len());
        for refusal in Refusal::ALL {
            assert!((400..=599).contains(&refusal.status()), "{refusal:?}");
            assert!(!crate::status::reason(refusal.status()).is_empty(), "{refusal:?}");
            assert!(refusal.to_string().ends_with('.'), "{refusal:?}");
            let name = refusal.reason();
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{name}"
            );
        }
    }
}
