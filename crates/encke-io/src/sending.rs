//! A send in flight: its progress, and the system calls that advance it.
//!
//! ```text
//!  segments   [ Bytes ][ Shared ][   File   ][ Bytes ]
//!  done        ████████ ███░
//!                          ▲ segment 1, offset 3: everything before is with the kernel
//! ```
//!
//! One sendmsg(2) sends a run of memory segments. With MSG_MORE (tcp(7)) the data after it shares its last packet. So a head
//! travels with its file, and no packet waits for an acknowledgement. sendfile(2) sends a file without a copy through this
//! process. `sys::net` has the calls of each system.

use std::io::IoSlice;

use crate::files::OpenFile;
use crate::op::{Event, OpKind, Segment, Send, Token};
use crate::op_error::OpError;
use crate::reactor::SEND_QUANTUM;
use crate::sys::net::{self, HandleRef, INTERRUPTED, SLICES_MAX, SysError, WOULD_BLOCK};

/// A send whose segments before `segment`, and the first `offset` bytes of that one, have been sent.
pub(crate) struct Sending {
    segments: Vec<Segment>,
    more: bool,
    segment: usize,
    offset: u64,
    sent: u64,
}

/// The segment size that every peer accepts (RFC 9293 §3.7.1).
const SEGMENT_BYTES: u64 = 536;

/// Whether Nagle's algorithm would not delay a connection's first send. It delays only the end of a larger send, and data sent
/// before an acknowledgement (RFC 1122 §4.2.3.4). For a connection with a single request this saves one system call of five.
pub(crate) fn is_one_segment(send: &Send) -> bool {
    !send.more && send.segments.iter().map(Segment::len).sum::<u64>() <= SEGMENT_BYTES
}

/// The rest of the segment being sent.
pub(crate) enum SegmentRest<'a> {
    Memory(&'a [u8]),
    File { file: &'a OpenFile, offset: u64, left: u64 },
}

/// The result of [`Sending::advance`].
pub(crate) enum SendStep {
    /// All bytes are sent.
    Done,
    /// The socket accepts no more bytes at the moment.
    Blocked,
    /// The quantum is used up: other connections are served first.
    Yielded,
    /// The send failed.
    Failed(OpError),
}

impl Sending {
    pub(crate) fn new(Send { segments, more }: Send) -> Self {
        let mut sending = Self { segments, more, segment: 0, offset: 0, sent: 0 };
        sending.skip(0);
        sending
    }

    /// The next bytes to send; `None` if everything is sent.
    pub(crate) fn head(&self) -> Option<SegmentRest<'_>> {
        let segment = self.segments.get(self.segment)?;
        Some(match segment {
            Segment::File { file, offset, len } => {
                SegmentRest::File { file, offset: offset + self.offset, left: len - self.offset }
            }
            memory => SegmentRest::Memory(&memory.memory().expect("not a file")[self.offset as usize..]),
        })
    }

    /// The rest of the run of memory segments at the current position; empty if a file is next.
    pub(crate) fn run(&self) -> impl Iterator<Item = &[u8]> {
        let mut skipped = self.offset as usize;
        self.segments[self.segment..]
            .iter()
            .map_while(Segment::memory)
            .map(move |bytes| &bytes[std::mem::take(&mut skipped)..])
    }

    /// Whether a file range remains to be sent.
    #[allow(dead_code, reason = "io_uring alone uses it, and not every system has it")]
    pub(crate) fn has_file(&self) -> bool {
        self.segments[self.segment..].iter().any(|segment| matches!(segment, Segment::File { .. }))
    }

    /// Advances by `sent` bytes, past all segments that are thereby complete.
    pub(crate) fn skip(&mut self, sent: u64) {
        self.sent += sent;
        self.offset += sent;
        while let Some(segment) = self.segments.get(self.segment)
            && self.offset >= segment.len()
        {
            self.offset -= segment.len();
            self.segment += 1;
        }
    }

    /// Whether the kernel has accepted everything.
    #[allow(dead_code, reason = "io_uring alone uses it, and not every system has it")]
    pub(crate) fn is_done(&self) -> bool {
        self.segment == self.segments.len()
    }

    pub(crate) fn unsent(&self) -> u64 {
        self.segments[self.segment..].iter().map(Segment::len).sum::<u64>() - self.offset
    }

    /// Sends as much as the kernel accepts, at most one quantum.
    pub(crate) fn advance(&mut self, socket: HandleRef<'_>, scratch: &mut [u8]) -> SendStep {
        let quantum_end = self.sent + SEND_QUANTUM;
        while let Some(head) = self.head() {
            if self.sent >= quantum_end {
                return SendStep::Yielded;
            }
            let result = match head {
                SegmentRest::File { file, offset, left } => {
                    net::send_file(socket, file, offset, left.min(SEND_QUANTUM), scratch)
                }
                SegmentRest::Memory(_) => self.send_run(socket),
            };
            match result {
                Ok(sent) => self.skip(sent),
                Err(SendFault::System(WOULD_BLOCK)) => return SendStep::Blocked,
                Err(SendFault::System(INTERRUPTED)) => {}
                Err(SendFault::System(error)) => return SendStep::Failed(error.into()),
                Err(SendFault::FileShrunk) => return SendStep::Failed(OpError::FileShrunk),
            }
        }
        SendStep::Done
    }

    /// Sends the run of memory segments at the current position.
    fn send_run(&self, socket: HandleRef<'_>) -> Result<u64, SendFault> {
        let mut run = self.run();
        let first = run.next().expect("the current segment is in memory");
        let Some(second) = run.next() else {
            return Ok(net::send(socket, first, self.has_more(1))? as u64);
        };
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        slices[0] = IoSlice::new(first);
        slices[1] = IoSlice::new(second);
        let mut count = 2;
        for (slice, bytes) in slices[2..].iter_mut().zip(run) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        Ok(net::send_slices(socket, &slices[..count], self.has_more(count))? as u64)
    }

    /// Whether data follows `count` segments from the current position on, and may share a packet with them, as a file with its
    /// head. If no data follows they must be sent at once: with MSG_MORE the kernel would delay them for 200 ms.
    pub(crate) fn has_more(&self, count: usize) -> bool {
        let mut rest = self.segments[self.segment + count..].iter();
        self.more || rest.any(|segment| !segment.is_empty())
    }

    pub(crate) fn into_segments(self) -> Vec<Segment> {
        self.segments
    }

    /// Converts the send into its completion event.
    pub(crate) fn ended(self, token: Token, result: Result<(), OpError>) -> Event<'static> {
        let Self { segments, sent, .. } = self;
        match result {
            Ok(()) => Event::Sent { token, bytes: sent, segments },
            Err(fault) => Event::Failed { token, op: OpKind::Send, fault, sent, segments },
        }
    }
}

/// Why a call sent nothing.
pub(crate) enum SendFault {
    System(SysError),
    FileShrunk,
}

impl From<SysError> for SendFault {
    fn from(error: SysError) -> Self {
        Self::System(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Event, Segment, Send, Token};

    fn of(lens: &[usize], more: bool) -> Sending {
        let segments = lens.iter().map(|len| Segment::Bytes(vec![b'x'; *len])).collect();
        Sending::new(Send { segments, more })
    }

    #[test]
    fn only_what_has_a_successor_is_held_back() {
        assert!(!of(&[5], false).has_more(1));
        assert!(of(&[5, 5], false).has_more(1));
        assert!(!of(&[5, 5], false).has_more(2));
        assert!(!of(&[5, 0, 0], false).has_more(1), "nothing follows");
        assert!(of(&[5], true).has_more(1), "the caller has more");
    }

    #[test]
    fn every_way_of_cutting_a_send_sends_each_byte_once() {
        for first in 0..=9 {
            for second in 0..=9 - first {
                let mut sending = of(&[0, 3, 0, 4, 2, 0], false);
                let mut left = 9;
                for cut in [first, second, 9 - first - second] {
                    assert_eq!(sending.unsent(), left);
                    let run: usize = sending.run().map(<[u8]>::len).sum();
                    assert_eq!(run as u64, left);
                    sending.skip(cut);
                    left -= cut;
                }
                assert!(sending.is_done() && sending.run().next().is_none());
                assert!(matches!(
                    sending.ended(Token::NONE, Ok(())),
                    Event::Sent { bytes: 9, segments, .. } if segments.len() == 6
                ));
            }
        }
    }
}
