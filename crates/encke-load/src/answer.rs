//! Where an answer ends: heads are parsed where they lie, bodies are counted and passed over.
//!
//! ```text
//!             ┌── 1xx: an interim answer, the real one follows
//!             ▼                ┌─ no body ────────────────────────────────────► Done
//!   Head ── a whole head ──────┼─ Length(n) ── n bytes passed ────────────────► Done
//!             ▲                ├─ Chunked ──── the last chunk passed ─────────► Done
//!             └── next answer  └─ UntilClose ─ the end of the connection (ended) ► Done
//! ```
//! It copies nothing and keeps nothing but where it stands (40 bytes). Half a head is the caller's to keep, who calls
//! again with all of it. What two readers could understand in two ways is an error ([`Refusal`]), here as in the
//! server.

use encke_wire::http1::{
    BodyState, ChunkedDecoder, HeadLimits, Progress, Refusal, ResponseFraming, ResponseHead,
};
use encke_wire::method::Method;

/// Where reading stands in the answers of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    phase: Phase,
    status: u16,
    keep_alive: bool,
}

/// What some bytes came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// Bytes that are dealt with. What is left of the input once a step is not done is half a head.
    pub(crate) consumed: usize,
    /// Bytes of the body among them, without what frames it.
    pub(crate) body: usize,
    /// Whether an answer is whole.
    pub(crate) done: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Head,
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
}

impl Reader {
    pub(crate) const fn new() -> Self {
        Self { phase: Phase::Head, status: 0, keep_alive: true }
    }

    /// Looks at what has come, up to the end of one answer to a request with `method`. `head` is room to work in, and
    /// `body` gets the pieces of the body.
    ///
    /// # Errors
    /// No answer has such bytes there; nothing more can be read from the connection.
    pub(crate) fn feed(
        &mut self,
        head: &mut ResponseHead,
        method: Method,
        input: &[u8],
        mut body: impl FnMut(&[u8]),
    ) -> Result<Step, Refusal> {
        let mut step = Step { consumed: 0, body: 0, done: false };
        loop {
            let rest = &input[step.consumed..];
            match &mut self.phase {
                Phase::Head => {
                    head.reset();
                    match head.feed(rest, &HeadLimits::default()) {
                        Progress::Partial => return Ok(step),
                        Progress::Refused(refusal) => return Err(refusal),
                        Progress::Done { head_bytes } => step.consumed += head_bytes,
                    }
                    if self.understand(head, method) {
                        step.done = true;
                        return Ok(step);
                    }
                }
                Phase::Length(left) => {
                    // Within `rest`, so the cast holds.
                    let passed = (*left).min(rest.len() as u64) as usize;
                    *left -= passed as u64;
                    body(&rest[..passed]);
                    step.consumed += passed;
                    step.body += passed;
                    if *left == 0 {
                        self.phase = Phase::Head;
                        step.done = true;
                    }
                    return Ok(step);
                }
                Phase::Chunked(decoder) => {
                    let chunk = decoder.feed(rest)?;
                    step.consumed += chunk.consumed;
                    step.body += chunk.data.len();
                    body(chunk.data);
                    if chunk.state == BodyState::Done {
                        self.phase = Phase::Head;
                        step.done = true;
                        return Ok(step);
                    }
                    if chunk.consumed == rest.len() {
                        return Ok(step);
                    }
                }
                Phase::UntilClose => {
                    step.consumed = input.len();
                    step.body += rest.len();
                    body(rest);
                    return Ok(step);
                }
            }
        }
    }

    /// The connection has ended in order: whether that is the end of an answer, too.
    pub(crate) fn ended(&mut self) -> bool {
        let complete = matches!(self.phase, Phase::UntilClose);
        if complete {
            self.phase = Phase::Head;
        }
        complete
    }

    /// The status of the answer that is read, or was read last.
    pub(crate) const fn status(&self) -> u16 {
        self.status
    }

    /// Whether another request may follow on the connection.
    pub(crate) const fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Takes a whole head; true if the answer ends with it.
    fn understand(&mut self, head: &ResponseHead, method: Method) -> bool {
        let status = head.status();
        if (100..200).contains(&status) && status != SWITCHING_PROTOCOLS {
            return false;
        }
        self.status = status;
        self.keep_alive = head.keep_alive() && status != SWITCHING_PROTOCOLS;
        match head.framing(method) {
            ResponseFraming::None | ResponseFraming::Length(0) => return true,
            ResponseFraming::Length(bytes) => self.phase = Phase::Length(bytes),
            ResponseFraming::Chunked => self.phase = Phase::Chunked(ChunkedDecoder::new()),
            ResponseFraming::Close => {
                self.phase = Phase::UntilClose;
                self.keep_alive = false;
            }
        }
        false
    }
}

/// After it the connection speaks something else (RFC 9110 §15.2.2), which nobody here has asked for.
const SWITCHING_PROTOCOLS: u16 = 101;

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer: its status, its body, whether the next may follow.
    type Told = (u16, &'static str, bool);
    type Read = (u16, String, bool);

    /// Reads answers from pieces as a connection does.
    fn read(method: Method, pieces: &[&[u8]], end: bool) -> Result<Vec<Read>, Refusal> {
        let (mut reader, mut head) = (Reader::new(), ResponseHead::new());
        let (mut kept, mut body, mut answers) = (Vec::new(), String::new(), Vec::new());
        for piece in pieces {
            kept.extend_from_slice(piece);
            loop {
                let before = body.len();
                let take = |piece: &[u8]| body.push_str(std::str::from_utf8(piece).expect("text"));
                let step = reader.feed(&mut head, method, &kept, take)?;
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

    /// Whole, byte by byte, and split at every place.
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
    fn it_takes_forty_bytes_a_connection() {
        assert!(size_of::<Reader>() <= 40, "{}", size_of::<Reader>());
    }
}
