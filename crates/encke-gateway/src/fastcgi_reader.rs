//! Reads the responses of a FastCGI application, with the steps of a reader of HTTP/1 responses.
//!
//! ```text
//!  records ─┬─ output ─► CgiHead ─► Head ─► Data … ─┐
//!           ├─ messages ─► the log                  ├─► End, only by END_REQUEST
//!           └─ END_REQUEST ─────────────────────────┘
//! ```
//! A response whose connection ends without END_REQUEST is truncated, whatever it contains: its program has died.

use encke_wire::cgi::CgiHead;
use encke_wire::fastcgi::{EndStatus, RecordPiece, RecordReader};
use encke_wire::http1::{
    HeadView, Progress, ReadStep, Refusal, ResponseFault, ResponseFraming, ResponseHead,
};
use encke_wire::method::Method;

use crate::app_file::HEAD_LIMITS;

/// The responses of one connection.
#[derive(Default)]
pub(crate) struct FastCgiReader {
    records: RecordReader,
    cgi: CgiHead,
    /// The head of the present response as HTTP/1.1.
    head: Vec<u8>,
    phase: Phase,
    method: Option<Method>,
    touched: bool,
    /// Whether the application keeps the connection after the present response.
    keeps: bool,
    /// Whether content beyond its length was dropped.
    is_cut: bool,
    /// Messages of the application for its operator, up to [`MESSAGES_MAX`] bytes.
    messages: Vec<u8>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// No response is expected.
    #[default]
    Idle,
    Head,
    /// Content of this length follows.
    Length(u64),
    /// Content up to END_REQUEST follows.
    Open,
    /// There is no content. Output of the program is dropped.
    None,
}

/// Bytes of messages that are kept for the log, for each response.
const MESSAGES_MAX: usize = 4 * 1024;
/// The message about content that is dropped.
const CUT: &[u8] = b"the response is longer than its Content-Length, and its end was dropped\n";

impl FastCgiReader {
    /// Expects the response to a request with `method`. `keeps`: whether the request asks the application to keep the connection.
    pub(crate) fn begin(&mut self, method: Method, keeps: bool) {
        self.method = Some(method);
        self.phase = Phase::Head;
        self.touched = false;
        self.is_cut = false;
        self.keeps = keeps;
        self.messages.clear();
    }

    /// Whether no byte of the expected response has arrived.
    pub(crate) const fn is_untouched(&self) -> bool {
        !self.touched
    }

    /// The application's messages so far.
    pub(crate) fn take_messages(&mut self) -> Option<Vec<u8>> {
        if self.messages.is_empty() { None } else { Some(std::mem::take(&mut self.messages)) }
    }

    /// Reads up to the end of the next part of a response, as [`encke_wire::http1::AppResponseReader::step`] does.
    ///
    /// # Errors
    /// The bytes are no response, or an unexpected one.
    pub(crate) fn step<'a>(
        &'a mut self,
        scratch: &'a mut ResponseHead,
        bytes: &'a [u8],
    ) -> Result<ReadStep<'a>, ResponseFault> {
        self.touched |= !bytes.is_empty();
        if self.phase == Phase::Idle {
            // Even a part of a record would shift the records of the next response. An end is reported with its padding, so a reader
            // that expects no response is between two records.
            debug_assert!(self.records.is_between(), "no response is expected within a record");
            return if bytes.is_empty() { Ok(ReadStep::More) } else { Err(ResponseFault::Unasked) };
        }
        let mut at = 0;
        loop {
            let (piece, used) = self.records.step(&bytes[at..]).map_err(|_| malformed())?;
            at += used;
            match piece {
                RecordPiece::More => return Ok(ReadStep::More),
                RecordPiece::Messages(text) => {
                    let room = MESSAGES_MAX.saturating_sub(self.messages.len());
                    self.messages.extend_from_slice(&text[..text.len().min(room)]);
                }
                RecordPiece::Output(output) => match self.phase {
                    Phase::Idle | Phase::None => {}
                    Phase::Open => return Ok(ReadStep::Data(output, at)),
                    Phase::Length(left) => {
                        // Many scripts end with a line feed that their Content-Length does not count. As with HTTP, the length holds.
                        let kept = output.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                        if kept < output.len() && !self.is_cut {
                            self.is_cut = true;
                            let room = MESSAGES_MAX.saturating_sub(self.messages.len());
                            self.messages.extend_from_slice(&CUT[..CUT.len().min(room)]);
                        }
                        if kept == 0 {
                            continue;
                        }
                        self.phase = Phase::Length(left - kept as u64);
                        return Ok(ReadStep::Data(&output[..kept], at));
                    }
                    Phase::Head => {
                        let Some((head, taken)) = self.cgi.take(output).map_err(|_| malformed())? else {
                            continue;
                        };
                        let rest = output.len() - taken;
                        self.records.give_back(rest);
                        self.head = head;
                        return self.head(scratch, at - rest);
                    }
                },
                RecordPiece::End(EndStatus::Complete(_)) => {
                    let is_whole = matches!(self.phase, Phase::Open | Phase::None | Phase::Length(0));
                    self.phase = Phase::Idle;
                    return if is_whole {
                        Ok(ReadStep::End { keeps: self.keeps, used: at })
                    } else {
                        Err(ResponseFault::Truncated)
                    };
                }
                RecordPiece::End(_) => return Err(malformed()),
            }
        }
    }

    fn head<'a>(
        &'a mut self,
        scratch: &'a mut ResponseHead,
        used: usize,
    ) -> Result<ReadStep<'a>, ResponseFault> {
        scratch.reset();
        match scratch.feed(&self.head, &HEAD_LIMITS) {
            Progress::Done { head_bytes } if head_bytes == self.head.len() => {}
            Progress::Refused(refusal) => return Err(ResponseFault::Malformed(refusal)),
            Progress::Done { .. } | Progress::Partial => return Err(malformed()),
        }
        self.phase = match scratch.framing(self.method.unwrap_or(Method::Get)) {
            ResponseFraming::None => Phase::None,
            ResponseFraming::Length(length) => Phase::Length(length),
            ResponseFraming::Chunked | ResponseFraming::Close => Phase::Open,
        };
        Ok(ReadStep::Head(HeadView { head: scratch, bytes: &self.head }, used))
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// A response is missing, or incomplete.
    pub(crate) fn end(&mut self) -> Result<(), ResponseFault> {
        match std::mem::take(&mut self.phase) {
            Phase::Idle => Ok(()),
            _ if !self.touched => Err(ResponseFault::Ended),
            _ => Err(ResponseFault::Truncated),
        }
    }
}

/// The records, or the head that they contain, break a rule.
const fn malformed() -> ResponseFault {
    ResponseFault::Malformed(Refusal::InvalidFieldName)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let length = u16::try_from(content.len()).expect("short").to_be_bytes();
        [&[1, kind, 0, 1, length[0], length[1], padding, 0], content, &vec![0; usize::from(padding)]].concat()
    }

    fn output(content: &str) -> Vec<u8> {
        record(6, content.as_bytes(), 3)
    }

    fn end() -> Vec<u8> {
        record(3, &[0; 8], 0)
    }

    /// The status, the content, the messages, and whether the response is complete and its connection kept.
    type Parts = (u16, Vec<u8>, Vec<u8>, Option<bool>);

    fn read(method: Method, pieces: &[&[u8]], is_over: bool) -> Result<Parts, ResponseFault> {
        let (mut reader, mut scratch) = (FastCgiReader::default(), ResponseHead::new());
        reader.begin(method, true);
        let mut parts = (0, Vec::new(), Vec::new(), None);
        for piece in pieces {
            let mut rest = *piece;
            loop {
                match reader.step(&mut scratch, rest)? {
                    ReadStep::More => break,
                    ReadStep::Head(view, used) => {
                        parts.0 = view.head.status();
                        rest = &rest[used..];
                    }
                    ReadStep::Data(data, used) => {
                        parts.1.extend_from_slice(data);
                        rest = &rest[used..];
                    }
                    ReadStep::End { keeps, used } => {
                        parts.3 = Some(keeps);
                        rest = &rest[used..];
                    }
                }
            }
        }
        parts.2 = reader.take_messages().unwrap_or_default();
        if is_over {
            reader.end()?;
        }
        Ok(parts)
    }

    fn every_way(method: Method, input: &[u8], is_over: bool) -> Result<Parts, ResponseFault> {
        let whole = read(method, &[input], is_over);
        assert_eq!(read(method, &input.chunks(1).collect::<Vec<_>>(), is_over), whole, "byte by byte");
        for cut in 0..=input.len() {
            assert_eq!(read(method, &[&input[..cut], &input[cut..]], is_over), whole, "cut at {cut}");
        }
        whole
    }

    #[test]
    fn a_response_is_read_from_its_records() {
        let input = [
            output("Status: 201 Created\nContent-"),
            record(7, b"a warning", 1),
            output("Type: text/plain\n\nhel"),
            output("lo"),
            output(""),
            end(),
        ]
        .concat();
        let parts = every_way(Method::Get, &input, true).expect("a response");
        assert_eq!(parts, (201, b"hello".to_vec(), b"a warning".to_vec(), Some(true)));
    }

    #[test]
    fn a_length_is_kept_to() {
        let of = |content: &str| [output("Content-Length: 2\n\n"), output(content), end()].concat();
        assert_eq!(every_way(Method::Get, &of("ok"), true).expect("whole").3, Some(true));
        assert_eq!(every_way(Method::Get, &of("o"), false), Err(ResponseFault::Truncated));
        for more in ["ok\n", "okay"] {
            assert_eq!(
                every_way(Method::Get, &of(more), true).expect("cut"),
                (200, b"ok".to_vec(), CUT.to_vec(), Some(true))
            );
        }
        let later =
            [output("Content-Length: 2\n\n"), output("ok"), output("ay"), output("!"), end()].concat();
        assert_eq!(every_way(Method::Get, &later, true).expect("cut").2, CUT, "one message");
        assert_eq!(
            every_way(Method::Head, &of("ok"), true).expect("whole").1,
            b"",
            "a program may forget HEAD"
        );
    }

    #[test]
    fn a_program_that_dies_leaves_no_complete_response() {
        let input = [output("A: b\n\n"), output("all that it wanted to say")].concat();
        assert_eq!(every_way(Method::Get, &input, true), Err(ResponseFault::Truncated));
        assert_eq!(every_way(Method::Get, b"", true), Err(ResponseFault::Ended));
        assert_eq!(every_way(Method::Get, &end(), false), Err(ResponseFault::Truncated), "no head at all");
    }

    #[test]
    fn output_without_a_request_is_a_fault() {
        let whole = [output("A: b\n\n"), end()].concat();
        assert_eq!(
            every_way(Method::Get, &[whole.clone(), output("more")].concat(), false),
            Err(ResponseFault::Unasked)
        );
        for stray in 1..=8 {
            let input = [&whole[..], &record(6, b"", 0)[..stray]].concat();
            assert_eq!(every_way(Method::Get, &input, false), Err(ResponseFault::Unasked), "{stray} bytes");
        }
    }

    #[test]
    fn what_is_no_fastcgi_is_malformed() {
        for input in [
            b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
            output("Status: none\n\n"),
            output("Content-Length: x\n\n"),
            record(3, &[0, 0, 0, 0, 2, 0, 0, 0], 0),
        ] {
            let result = every_way(Method::Get, &input, false);
            assert!(matches!(result, Err(ResponseFault::Malformed(_))), "{result:?}");
        }
    }
}
