//! Reads the responses of an application from the bytes of one connection, as strictly as requests are read.
//!
//! ```text
//!  begin(method) ─► Head ─┬─ 1xx ──► Interim, Head again
//!                         ├─ none ─────────────────────────────► End
//!                         └─ length · chunks · until the end ──► Data … ─► End
//!  any rule broken ─► ResponseFault: the connection is of no further use
//! ```

use super::{BodyState, ChunkedDecoder, HeadLimits, Progress, Refusal, ResponseFraming, ResponseHead};
use crate::method::Method;

/// The responses of one connection.
#[derive(Debug)]
pub struct AppResponseReader {
    method: Method,
    phase: ReaderPhase,
    /// Whether a byte of the expected response has arrived.
    touched: bool,
    /// A head that arrived in pieces. Whole heads are parsed where they arrive.
    partial: Option<Box<PartialHead>>,
    /// The trailers of the response so far: field lines with their line ends, the last one empty.
    trailers: Vec<u8>,
}

#[derive(Debug)]
struct PartialHead {
    head: ResponseHead,
    bytes: Vec<u8>,
    /// Whether the head was complete, and has been lent to the caller.
    is_read: bool,
}

#[derive(Clone, Copy, Debug)]
enum ReaderPhase {
    /// No response is expected.
    Idle,
    Head,
    Length(u64),
    Chunked(ChunkedDecoder),
    /// The body ends with the connection.
    UntilEnd,
}

/// The result of one step of [`AppResponseReader::step`], and the number of bytes that it used.
#[derive(Debug)]
pub enum ReadStep<'a> {
    /// All bytes are used; more are needed.
    More,
    /// The head of an interim (1xx) or of the final response.
    Head(HeadView<'a>, usize),
    /// A piece of the body.
    Data(&'a [u8], usize),
    /// The response is complete.
    End {
        /// Whether the connection can carry another request.
        keeps: bool,
        /// The number of bytes used.
        used: usize,
    },
}

/// The head of a response.
#[derive(Debug)]
pub struct HeadView<'a> {
    /// The parsed head.
    pub head: &'a ResponseHead,
    /// The bytes of the head.
    pub bytes: &'a [u8],
}

/// Why the bytes of an application are not a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseFault {
    /// The response breaks a rule of HTTP/1.
    Malformed(Refusal),
    /// Bytes arrived without a request.
    Unasked,
    /// The connection ended within the response.
    Truncated,
    /// The connection ended before the response.
    Ended,
}

impl Default for AppResponseReader {
    fn default() -> Self {
        Self::new()
    }
}

impl AppResponseReader {
    /// Creates a reader that expects no response yet.
    pub const fn new() -> Self {
        Self {
            method: Method::Get,
            phase: ReaderPhase::Idle,
            touched: false,
            partial: None,
            trailers: Vec::new(),
        }
    }

    /// Expects the response to a request with `method`.
    pub fn begin(&mut self, method: Method) {
        self.method = method;
        self.phase = ReaderPhase::Head;
        self.touched = false;
        self.partial = None;
        self.trailers.clear();
    }

    /// The trailers of a complete response.
    pub fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let lines = self.trailers.split(|byte| *byte == b'\n');
        lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((line.get(..colon)?, line.get(colon + 1..)?.trim_ascii()))
        })
    }

    /// Whether no byte of the expected response has arrived.
    pub const fn is_untouched(&self) -> bool {
        !self.touched
    }

    /// Reads up to the end of the next part of a response. `scratch` is any head; it is valid until the next call.
    ///
    /// # Errors
    /// The bytes are no response, or an unexpected one.
    pub fn step<'a>(
        &'a mut self,
        scratch: &'a mut ResponseHead,
        bytes: &'a [u8],
        keeps: &mut bool,
    ) -> Result<ReadStep<'a>, ResponseFault> {
        if self.partial.as_ref().is_some_and(|partial| partial.is_read) {
            self.partial = None;
        }
        self.touched |= !bytes.is_empty();
        match &mut self.phase {
            ReaderPhase::Idle | ReaderPhase::Head if bytes.is_empty() => Ok(ReadStep::More),
            ReaderPhase::Idle => Err(ResponseFault::Unasked),
            ReaderPhase::Head => self.head(scratch, bytes, keeps),
            ReaderPhase::Length(0) => {
                self.phase = ReaderPhase::Idle;
                Ok(ReadStep::End { keeps: *keeps, used: 0 })
            }
            _ if bytes.is_empty() => Ok(ReadStep::More),
            ReaderPhase::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= taken as u64;
                Ok(ReadStep::Data(&bytes[..taken], taken))
            }
            ReaderPhase::Chunked(decoder) => {
                let chunk = decoder.feed(bytes).map_err(ResponseFault::Malformed)?;
                self.trailers.extend_from_slice(chunk.trailers);
                if chunk.state == BodyState::Done {
                    self.phase = ReaderPhase::Idle;
                    return Ok(ReadStep::End { keeps: *keeps, used: chunk.consumed });
                }
                Ok(ReadStep::Data(chunk.data, chunk.consumed))
            }
            ReaderPhase::UntilEnd => Ok(ReadStep::Data(bytes, bytes.len())),
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// A response is missing, or incomplete.
    pub fn end(&mut self) -> Result<(), ResponseFault> {
        match std::mem::replace(&mut self.phase, ReaderPhase::Idle) {
            ReaderPhase::Idle | ReaderPhase::UntilEnd => Ok(()),
            ReaderPhase::Head if !self.touched => Err(ResponseFault::Ended),
            _ => Err(ResponseFault::Truncated),
        }
    }

    fn head<'a>(
        &'a mut self,
        scratch: &'a mut ResponseHead,
        bytes: &'a [u8],
        keeps: &mut bool,
    ) -> Result<ReadStep<'a>, ResponseFault> {
        let limits = HeadLimits::default();
        let before = self.partial.as_ref().map_or(0, |partial| partial.bytes.len());
        if before == 0 {
            scratch.reset();
            if scratch.feed(bytes, &limits) == Progress::Partial {
                let mut head = ResponseHead::new();
                head.feed(bytes, &limits);
                self.partial = Some(Box::new(PartialHead { head, bytes: bytes.to_vec(), is_read: false }));
                return Ok(ReadStep::More);
            }
        } else if let Some(partial) = &mut self.partial {
            partial.bytes.extend_from_slice(bytes);
            if partial.head.feed(&partial.bytes, &limits) == Progress::Partial {
                return Ok(ReadStep::More);
            }
            partial.is_read = true;
            std::mem::swap(scratch, &mut partial.head);
        }
        let whole = self.partial.as_ref().map_or(bytes, |partial| &partial.bytes);
        let head_bytes = match scratch.feed(whole, &limits) {
            Progress::Done { head_bytes } => head_bytes,
            Progress::Refused(refusal) => return Err(ResponseFault::Malformed(refusal)),
            Progress::Partial => return Ok(ReadStep::More),
        };
        if scratch.status() >= 200 || scratch.status() == 101 {
            *keeps = scratch.keep_alive();
            self.phase = match scratch.framing(self.method) {
                ResponseFraming::None => ReaderPhase::Length(0),
                ResponseFraming::Length(length) => ReaderPhase::Length(length),
                ResponseFraming::Chunked => ReaderPhase::Chunked(ChunkedDecoder::new()),
                ResponseFraming::Close => {
                    *keeps = false;
                    ReaderPhase::UntilEnd
                }
            };
        }
        Ok(ReadStep::Head(HeadView { head: scratch, bytes: &whole[..head_bytes] }, head_bytes - before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statuses, the content, and whether the connection may be kept, once the response is complete.
    type ReadParts = (Vec<u16>, Vec<u8>, Option<bool>);

    /// Everything that a reader reports about `input`, fed in the given pieces.
    fn read(method: Method, pieces: &[&[u8]], is_over: bool) -> Result<ReadParts, ResponseFault> {
        let (mut reader, mut scratch, mut keeps) = (AppResponseReader::new(), ResponseHead::new(), false);
        reader.begin(method);
        let (mut statuses, mut body, mut end) = (Vec::new(), Vec::new(), None);
        for piece in pieces {
            let mut rest = *piece;
            loop {
                match reader.step(&mut scratch, rest, &mut keeps)? {
                    ReadStep::More => break,
                    ReadStep::Head(view, used) => {
                        assert!(view.bytes.ends_with(b"\r\n\r\n"));
                        statuses.push(view.head.status());
                        rest = &rest[used..];
                    }
                    ReadStep::Data(data, used) => {
                        body.extend_from_slice(data);
                        rest = &rest[used..];
                    }
                    ReadStep::End { keeps, used } => {
                        end = Some(keeps);
                        rest = &rest[used..];
                    }
                }
            }
        }
        if is_over {
            reader.end()?;
        }
        Ok((statuses, body, end))
    }

    /// Reads `input` whole, in two pieces at every position, and byte by byte: the result must be the same.
    fn every_way(method: Method, input: &[u8], is_over: bool) -> Result<ReadParts, ResponseFault> {
        let whole = read(method, &[input], is_over);
        for at in 0..=input.len() {
            let (first, second) = input.split_at(at);
            assert_eq!(read(method, &[first, second], is_over), whole, "cut at {at}");
        }
        let bytes: Vec<_> = input.chunks(1).collect();
        assert_eq!(read(method, &bytes, is_over), whole, "byte by byte");
        whole
    }

    #[test]
    fn bodies_end_as_their_head_says() {
        let get = |input: &str| every_way(Method::Get, input.as_bytes(), false).expect("a response");
        let body = |text: &str, keeps| (vec![200], text.as_bytes().to_vec(), keeps);
        assert_eq!(get("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), body("hello", Some(true)));
        assert_eq!(get("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), body("", Some(true)));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nA: b\r\n\r\n";
        assert_eq!(get(chunked), body("hello", Some(true)));
        assert_eq!(get("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi"), body("hi", Some(false)));
        assert_eq!(
            get("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"),
            body("hi", Some(false))
        );
        let open = every_way(Method::Get, b"HTTP/1.1 200 OK\r\n\r\nto the end", true);
        assert_eq!(open.expect("a response"), (vec![200], b"to the end".to_vec(), None));
    }

    #[test]
    fn responses_without_content_need_none() {
        for (method, head) in [
            (Method::Head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
            (Method::Get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
            (Method::Get, "HTTP/1.1 204 No Content\r\n\r\n"),
        ] {
            let (_, body, end) = every_way(method, head.as_bytes(), false).expect("a response");
            assert_eq!((body, end), (Vec::new(), Some(true)), "{head}");
        }
    }

    #[test]
    fn interim_responses_precede_the_final_one() {
        let input = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
        let (statuses, body, end) = every_way(Method::Get, input, false).expect("responses");
        assert_eq!((statuses, body, end), (vec![100, 103, 200], b"x".to_vec(), Some(true)));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n",
            "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
            "HTTP/1.1 200 OK\nA: b\n\n",
            "HTTP/2 200 OK\r\n\r\n",
            "garbage",
        ] {
            let result = every_way(Method::Get, head.as_bytes(), false);
            assert!(matches!(result, Err(ResponseFault::Malformed(_))), "{head}: {result:?}");
        }
    }

    #[test]
    fn bytes_behind_a_response_are_a_fault() {
        let input = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n\r\n";
        assert_eq!(every_way(Method::Get, input, false), Err(ResponseFault::Unasked));
    }

    #[test]
    fn an_early_end_is_no_complete_response() {
        let cut = |input: &str| every_way(Method::Get, input.as_bytes(), true);
        assert_eq!(cut(""), Err(ResponseFault::Ended));
        assert_eq!(cut("HTTP/1.1 200"), Err(ResponseFault::Truncated));
        assert_eq!(cut("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"), Err(ResponseFault::Truncated));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
        assert_eq!(cut(chunked), Err(ResponseFault::Truncated));
        assert_eq!(cut("HTTP/1.1 100 Continue\r\n\r\n"), Err(ResponseFault::Truncated));
    }
}
