//! Framing: every response of every protocol is written here.
//!
//! ```text
//! put_interim* ─► put_head ─► data* ─► finish
//!
//!               HTTP/1 (Raw, Close, Chunked)               HTTP/2 (Http2)
//! put_interim   a head in the output                       informational fields of the stream
//! put_head      status line, Date, fields, length,         status, date, fields, length of the stream; END_STREAM, if
//!               Connection, in the output                  there is no content
//! data          the output; Chunked: chunks in it          the output: the stream makes DATA frames of it
//! finish        Chunked: the last chunk and trailers       trailers; the stream ends when its slot closes
//!               Close: the close of the connection
//! ```
//! Callers name a status, fields and a length; [`FramingKind`] is all that they know of the protocol. It belongs to a request
//! ([`Asked::framing`](crate::Asked)) and holds until the response is complete.
//!
//! **Writing in place.** [`FramingKind::put_data`] appends to any buffer, so many connections may share one encoding.
//! Content of a known length needs no framing: it may go to the output as segments (files, shared bytes).
//!
//! `heads.rs` writes the heads of both protocols.

use encke_wire::http1::{self, Version};

use crate::reply::Fields;

/// The way in which the end of a response's content is marked on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FramingKind {
    /// HTTP/1.0: content without a length ends with the connection.
    Close,
    /// HTTP/1.1: content without a length is sent in chunks.
    Chunked,
    /// An HTTP/2 stream.
    Http2,
    /// Bytes of another protocol, sent unchanged.
    Raw,
}

/// The statement of a response's head about the content that follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContentLength {
    /// No content and no length field: 204, 304.
    Absent,
    /// A known length in bytes.
    Known(u64),
    /// A length not known in advance; [`FramingKind`] marks the end.
    Open,
    /// The response to an upgrade (status 101; 200 with HTTP/2). Bytes of another protocol follow.
    Upgrade,
}

/// A piece of content that is being appended to a buffer.
pub(crate) struct OpenPiece {
    chunked: bool,
    start: usize,
}

/// The size line of a chunk: four digits and CRLF (RFC 9112 §7.1 allows leading zeros).
const CHUNK_HEAD: &[u8] = b"0000\r\n";
/// Maximum size in bytes of a piece that is written in place.
pub(crate) const OPEN_PIECE_BYTES_MAX: usize = 0xffff;

impl FramingKind {
    /// Returns the framing of the response to a request of this version.
    #[inline]
    pub(crate) const fn of(version: Version) -> Self {
        match version {
            Version::Http11 => Self::Chunked,
            Version::Http10 => Self::Close,
            Version::Http2 => Self::Http2,
        }
    }

    /// Appends a piece of content without a length. An empty piece appends nothing.
    pub fn put_data(self, data: &[u8], out: &mut Vec<u8>) {
        if self != Self::Chunked {
            out.extend_from_slice(data);
        } else if !data.is_empty() {
            http1::put_chunk_head(out, data.len() as u64);
            out.extend_from_slice(data);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends the end of content without a length, where bytes mark the end. In HTTP/2 trailers are not part of the content:
    /// only [`Slot::finish`](crate::Slot::finish) sends them there.
    pub fn put_end(self, trailers: &Fields, out: &mut Vec<u8>) {
        if self == Self::Chunked {
            // The last chunk's size line, the trailers, then the empty line.
            let (size, end) = http1::LAST_CHUNK.split_at(b"0\r\n".len());
            for part in [size, trailers.lines(), end] {
                out.extend_from_slice(part);
            }
        }
    }

    /// Begins a piece of content without a length. The caller appends at most [`OPEN_PIECE_BYTES_MAX`] bytes to `out` before
    /// [`OpenPiece::close`].
    #[inline]
    pub(crate) fn open_piece(self, out: &mut Vec<u8>) -> OpenPiece {
        let piece = OpenPiece { chunked: self == Self::Chunked, start: out.len() };
        if piece.chunked {
            out.extend_from_slice(CHUNK_HEAD);
        }
        piece
    }

    /// The `Connection` field, where the version's default does not apply.
    pub(crate) fn persistence(self, last: bool) -> &'static [u8] {
        match (last, self) {
            (true, _) => b"Connection: close\r\n",
            (false, Self::Close) => b"Connection: keep-alive\r\n",
            (false, _) => b"",
        }
    }
}

impl OpenPiece {
    /// Ends the piece. Returns its length in bytes.
    #[inline]
    pub(crate) fn close(self, out: &mut Vec<u8>) -> usize {
        if !self.chunked {
            return out.len() - self.start;
        }
        let len = out.len() - self.start - CHUNK_HEAD.len();
        debug_assert!(len <= OPEN_PIECE_BYTES_MAX, "four digits");
        if len == 0 {
            out.truncate(self.start);
            return 0;
        }
        for (digit, shift) in out[self.start..self.start + 4].iter_mut().zip([12, 8, 4, 0]) {
            *digit = b"0123456789abcdef"[len >> shift & 15];
        }
        out.extend_from_slice(b"\r\n");
        len
    }
}

#[cfg(test)]
mod tests {
    use encke_wire::http1::{BodyState, ChunkedDecoder};

    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in pairs {
            fields.push(name, value.as_bytes()).expect("well-formed");
        }
        fields
    }

    #[test]
    fn content_in_chunks_is_decoded_however_it_was_written() {
        for len in [0, 1, 15, 16, 4_096, OPEN_PIECE_BYTES_MAX] {
            let content = vec![b'x'; len];
            let (mut copied, mut in_place) = (Vec::new(), b"before".to_vec());
            FramingKind::Chunked.put_data(&content, &mut copied);
            let piece = FramingKind::Chunked.open_piece(&mut in_place);
            in_place.extend_from_slice(&content);
            assert_eq!(piece.close(&mut in_place), len);
            let in_place = in_place.strip_prefix(b"before").expect("what was there stays");
            for bytes in [copied.as_slice(), in_place] {
                let mut bytes = bytes.to_vec();
                FramingKind::Chunked.put_end(&fields(&[("Checksum", "abc")]), &mut bytes);
                assert!(bytes.ends_with(b"0\r\nChecksum: abc\r\n\r\n"));
                assert_eq!(decoded(&bytes), content, "{len} bytes");
            }
        }
    }

    fn decoded(mut bytes: &[u8]) -> Vec<u8> {
        let (mut decoder, mut content) = (ChunkedDecoder::new(), Vec::new());
        loop {
            let chunk = decoder.feed(bytes).expect("chunks");
            content.extend_from_slice(chunk.data);
            bytes = &bytes[chunk.consumed..];
            if chunk.state == BodyState::Done {
                assert_eq!(bytes, b"");
                return content;
            }
            assert!(chunk.consumed > 0, "the end is missing");
        }
    }

    #[test]
    fn content_without_chunks_is_bytes_as_they_are() {
        for framing in [FramingKind::Close, FramingKind::Http2, FramingKind::Raw] {
            let mut out = Vec::new();
            framing.put_data(b"one", &mut out);
            let piece = framing.open_piece(&mut out);
            out.extend_from_slice(b"two");
            assert_eq!(piece.close(&mut out), 3);
            framing.put_end(&fields(&[("Checksum", "abc")]), &mut out);
            assert_eq!(out, b"onetwo", "{framing:?}");
        }
    }
}
