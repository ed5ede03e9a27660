//! Finds the end of each response: heads are parsed in place, bodies are counted and skipped.
//!
//! ```text
//!             ┌── 1xx: an interim response, the final one follows
//!             ▼              ┌─ no body ───────────────────────────────────► Done
//!   Head ── complete head ───┼─ Length(n) ── n bytes skipped ──────────────► Done
//!             ▲              ├─ Chunked ──── last chunk skipped ───────────► Done
//!             └─ next one    └─ UntilClose ─ end of connection (ended) ────► Done
//! ```
//! The reader copies nothing and keeps only its state (40 bytes). The caller keeps a partial head, and passes it again together
//! with the bytes that follow. Ambiguous input is an error ([`Refusal`]), as in the server.
//!
//! Most responses of a run have the same head, byte for byte, until the second in `Date` changes. [`Heads`] remembers the last
//! head and its meaning: comparing 150 bytes takes 5 ns, parsing them about 150 ns.

use encke_wire::http1::{
    BodyState, ChunkedDecoder, HeadLimits, Progress, Refusal, ResponseFraming, ResponseHead,
};
use encke_wire::method::Method;

/// Position within the responses of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseReader {
    phase: ResponsePhase,
    status: u16,
    keep_alive: bool,
}

/// Head parser, shared by all connections of a thread.
#[derive(Debug)]
pub(crate) struct Heads {
    parsed: ResponseHead,
    /// The last complete head; empty if there was none or it was too long.
    last: Vec<u8>,
    /// Request method of the last head, and the meaning of the head as a response to it.
    method: Method,
    meaning: HeadSummary,
}

/// The properties of a head that a reader needs.
#[derive(Clone, Copy, Debug)]
struct HeadSummary {
    status: u16,
    keep_alive: bool,
    framing: ResponseFraming,
}

/// Longer heads are parsed each time.
const REMEMBERED_BYTES_MAX: usize = 1_024;

impl Heads {
    pub(crate) const fn new() -> Self {
        let meaning = HeadSummary { status: 0, keep_alive: true, framing: ResponseFraming::None };
        Self { parsed: ResponseHead::new(), last: Vec::new(), method: Method::Get, meaning }
    }

    /// The length of the head at the start of `input`, and its meaning as a response to `method`; `None` if incomplete.
    fn read(&mut self, input: &[u8], method: Method) -> Result<Option<(usize, HeadSummary)>, Refusal> {
        // The same bytes have the same meaning, whatever follows them.
        if !self.last.is_empty() && self.method == method && input.starts_with(&self.last) {
            return Ok(Some((self.last.len(), self.meaning)));
        }
        self.parsed.reset();
        let bytes = match self.parsed.feed(input, &HeadLimits::default()) {
            Progress::Partial => return Ok(None),
            Progress::Refused(refusal) => return Err(refusal),
            Progress::Done { head_bytes } => head_bytes,
        };
        self.method = method;
        self.meaning = HeadSummary {
            status: self.parsed.status(),
            keep_alive: self.parsed.keep_alive(),
            framing: self.parsed.framing(method),
        };
        self.last.clear();
        if bytes <= REMEMBERED_BYTES_MAX {
            self.last.extend_from_slice(&input[..bytes]);
        }
        Ok(Some((bytes, self.meaning)))
    }
}

/// Result of reading some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ResponseStep {
    /// Bytes consumed. If the step is not done, the rest of the input is a partial head.
    pub(crate) consumed: usize,
    /// Body bytes among them, without framing.
    pub(crate) body: usize,
    /// Whether a response is complete.
    pub(crate) done: bool,
}

#[derive(Clone, Copy, Debug)]
enum ResponsePhase {
    Head,
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
}

impl ResponseReader {
    pub(crate) const fn new() -> Self {
        Self { phase: ResponsePhase::Head, status: 0, keep_alive: true }
    }

    /// Reads up to the end of one response to a request with `method`. `body` receives the pieces of the body.
    ///
    /// # Errors
    /// The bytes are not a valid response; the connection cannot be read any further.
    pub(crate) fn feed(
        &mut self,
        heads: &mut Heads,
        method: Method,
        input: &[u8],
        mut body: impl FnMut(&[u8]),
    ) -> Result<ResponseStep, Refusal> {
        let mut step = ResponseStep { consumed: 0, body: 0, done: false };
        loop {
            let rest = &input[step.consumed..];
            match &mut self.phase {
                ResponsePhase::Head => {
                    let Some((head_bytes, meaning)) = heads.read(rest, method)? else { return Ok(step) };
                    step.consumed += head_bytes;
                    if self.understand(meaning) {
                        step.done = true;
                        return Ok(step);
                    }
                }
                ResponsePhase::Length(left) => {
                    // At most `rest.len()`, so the cast holds.
                    let passed = (*left).min(rest.len() as u64) as usize;
                    *left -= passed as u64;
                    body(&rest[..passed]);
                    step.consumed += passed;
                    step.body += passed;
                    if *left == 0 {
                        self.phase = ResponsePhase::Head;
                        step.done = true;
                    }
                    return Ok(step);
                }
                ResponsePhase::Chunked(decoder) => {
                    let chunk = decoder.feed(rest)?;
                    step.consumed += chunk.consumed;
                    step.body += chunk.data.len();
                    body(chunk.data);
                    if chunk.state == BodyState::Done {
                        self.phase = ResponsePhase::Head;
                        step.done = true;
                        return Ok(step);
                    }
                    if chunk.consumed == rest.len() {
                        return Ok(step);
                    }
                }
                ResponsePhase::UntilClose => {
                    step.consumed = input.len();
                    step.body += rest.len();
                    body(rest);
                    return Ok(step);
                }
            }
        }
    }

    /// Handles an orderly end of the connection. Returns whether it completes a response.
    pub(crate) fn ended(&mut self) -> bool {
        let complete = matches!(self.phase, ResponsePhase::UntilClose);
        if complete {
            self.phase = ResponsePhase::Head;
        }
        complete
    }

    /// Status of the current response, or of the last one.
    pub(crate) const fn status(&self) -> u16 {
        self.status
    }

    /// Whether another request may follow on the connection.
    pub(crate) const fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Applies a complete head; returns whether the response ends with it.
    fn understand(&mut self, HeadSummary { status, keep_alive, framing }: HeadSummary) -> bool {
        if (100..200).contains(&status) && status != SWITCHING_PROTOCOLS {
            return false;
        }
        self.status = status;
        self.keep_alive = keep_alive && status != SWITCHING_PROTOCOLS;
        match framing {
            ResponseFraming::None | ResponseFraming::Length(0) => return true,
            ResponseFraming::Length(bytes) => self.phase = ResponsePhase::Length(bytes),
            ResponseFraming::Chunked => self.phase = ResponsePhase::Chunked(ChunkedDecoder::new()),
            ResponseFraming::Close => {
                self.phase = ResponsePhase::UntilClose;
                self.keep_alive = false;
            }
        }
        false
    }
}

/// After this status the connection uses another protocol (RFC 9110 section 15.2.2), which no request here asks for.
const SWITCHING_PROTOCOLS: u16 = 101;

#[cfg(test)]
mod tests {
    use super::*;

    /// A response: status, body, and whether another may follow.
    type Told = (u16, &'static str, bool);
    type Read = (u16, String, bool);

    /// Reads responses from pieces, as a connection does.
    fn read(method: Method, pieces: &[&[u8]], end: bool) -> Result<Vec<Read>, Refusal> {
        read_with(&mut Heads::new(), method, pieces, end)
    }

    fn read_with(
        heads: &mut Heads,
        method: Method,
        pieces: &[&[u8]],
        end: bool,
    ) -> Result<Vec<Read>, Refusal> {
        let mut reader = ResponseReader::new();
        let (mut kept, mut body, mut answers) = (Vec::new(), String::new(), Vec::new());
        for piece in pieces {
            kept.extend_from_slice(piece);
            loop {
                let before = body.len();
                let take = |piece: &[u8]| body.push_str(std::str::from_utf8(piece).expect("text"));
                let step = reader.feed(heads, method, &kept, take)?;
                kept.drain(..step.consumed);
                assert_eq!(step.body, body.len() - before);
                if !step.done {
                    break;
                }
                answers.push((reader.status(), std::mem::take(&mut body), reader.keep_alive()));
                if kept.is_empty() {
                    break;
                }
            }
        }
        if end && reader.ended() {
            answers.push((reader.status(), body, reader.keep_alive()));
        }
        Ok(answers)
    }

    /// Reads the bytes whole, byte by byte, and split at every position.
    fn every_way(method: Method, bytes: &[u8], end: bool) -> Result<Vec<Read>, Refusal> {
        let whole = read(method, &[bytes], end);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(method, &single, end), whole, "byte by byte: {}", bytes.escape_ascii());
        for at in 0..=bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert_eq!(read(method, &[first, second], end), whole, "split at {at}: {}", bytes.escape_ascii());
        }
        whole
    }

    #[test]
    fn each_kind_of_body_is_counted_to_its_end() {
        let cases: [(Method, &str, bool, &[Told]); 12] = [
            (
                Method::Get,
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                false,
                &[(200, "hello", true)],
            ),
            (Method::Get, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, &[(200, "", true)]),
            (
                Method::Get,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b\r\n\r\n",
                false,
                &[(200, "abcde", true)],
            ),
            (Method::Get, "HTTP/1.1 200 OK\r\n\r\nuntil the end", true, &[(200, "until the end", false)]),
            (Method::Get, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", true, &[(200, "", false)]),
            (Method::Head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, &[(200, "", true)]),
            (Method::Get, "HTTP/1.1 204 No Content\r\n\r\n", false, &[(204, "", true)]),
            (
                Method::Get,
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
                false,
                &[(304, "", true)],
            ),
            (
                Method::Post,
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 201 Made\r\n\
                 Content-Length: 1\r\n\r\nx",
                false,
                &[(201, "x", true)],
            ),
            (
                Method::Get,
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
                false,
                &[(200, "x", false)],
            ),
            (
                Method::Get,
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nbb",
                false,
                &[(200, "a", true), (404, "bb", true)],
            ),
            (Method::Get, "HTTP/1.1 101 Switching Protocols\r\n\r\n", false, &[(101, "", false)]),
        ];
        for (method, bytes, end, answers) in cases {
            let read =
                every_way(method, bytes.as_bytes(), end).unwrap_or_else(|refusal| panic!("{refusal:?}"));
            let told: Vec<_> = read.iter().map(|(status, body, next)| (*status, &body[..], *next)).collect();
            assert_eq!(told, answers, "{bytes}");
        }
    }

    #[test]
    fn what_breaks_off_is_no_answer() {
        for bytes in [
            "",
            "HTTP/1.1 200 OK\r\nContent-Le",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        ] {
            assert_eq!(every_way(Method::Get, bytes.as_bytes(), true).as_deref(), Ok(&[][..]), "{bytes}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for bytes in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\n",
            "SSH-2.0-OpenSSH\r\n",
        ] {
            assert!(every_way(Method::Get, bytes.as_bytes(), true).is_err(), "{bytes}");
        }
    }

    #[test]
    fn a_head_that_is_remembered_means_what_it_means_to_one_who_remembers_nothing() {
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 1\r\n\r\nx", "y".repeat(2_000));
        let answers = [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhellHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: 55\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\n\r\nuntil the end",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
            &long,
        ];
        for first in answers {
            for second in answers {
                for (before, now) in [Method::Get, Method::Head, Method::Connect]
                    .iter()
                    .flat_map(|before| [Method::Get, Method::Head].map(|now| (*before, now)))
                {
                    let mut heads = Heads::new();
                    let _whatever = read_with(&mut heads, before, &[first.as_bytes()], true);
                    let fresh = read(now, &[second.as_bytes()], true);
                    let told = read_with(&mut heads, now, &[second.as_bytes()], true);
                    assert_eq!(told, fresh, "{before:?} {first} before {now:?} {second}");
                }
            }
        }
    }

    #[test]
    fn it_takes_forty_bytes_a_connection() {
        assert!(size_of::<ResponseReader>() <= 40, "{}", size_of::<ResponseReader>());
    }
}
