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
//!
//! Some systems send a file by themselves, and report its end later ([`FileFlight`]): the head and the file are then one call.
//! Meanwhile `advance` returns `Blocked`, and the report of the end continues the send.

use std::io::IoSlice;
use std::sync::Arc;

use crate::files::OpenFile;
use crate::op::{Event, OpKind, Segment, Send, Token};
use crate::op_error::OpError;
use crate::reactor::SEND_QUANTUM;
use crate::sys::net::{
    self, FileFlight, FileSender, HandleRef, INTERRUPTED, SLICES_MAX, SysError, WOULD_BLOCK,
};

/// A send whose segments before `segment`, and the first `offset` bytes of that one, have been sent.
pub(crate) struct Sending {
    /// The part that the system sends by itself. No bytes on systems without [`FileFlight`].
    flight: FileFlight,
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

/// The next file range of a send.
#[allow(dead_code, reason = "not every system sends files by itself")]
pub(crate) struct FileAhead<'a> {
    pub(crate) file: &'a Arc<OpenFile>,
    pub(crate) offset: u64,
    pub(crate) left: u64,
    /// Bytes in memory to send before the file.
    pub(crate) head_bytes: u64,
}

/// The state of a [`FileFlight`].
#[allow(dead_code, reason = "not every system sends files by itself")]
pub(crate) enum FlightState {
    /// Nothing is in flight.
    Idle,
    /// The system is sending. It reports the end as readiness to write.
    Pending,
    /// The flight has ended after this number of bytes. A failure ends the send.
    Ended(u64, Result<(), SendFault>),
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
        let mut sending = Self { flight: FileFlight::none(), segments, more, segment: 0, offset: 0, sent: 0 };
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

    /// Bytes that the kernel has not accepted; of a file in flight, bytes that the peer has not received.
    pub(crate) fn unsent(&self) -> u64 {
        let left = self.segments[self.segment..].iter().map(Segment::len).sum::<u64>() - self.offset;
        if FileFlight::EXISTS { left.saturating_sub(self.flight.progress()) } else { left }
    }

    /// Whether the system is sending a file by itself, so that readiness to write has no meaning.
    pub(crate) fn is_in_flight(&self) -> bool {
        FileFlight::EXISTS && self.flight.is_pending()
    }

    /// Ends a flight, and counts its bytes. Call this before the socket is closed.
    pub(crate) fn halt(&mut self) {
        if FileFlight::EXISTS {
            let sent = self.flight.halt();
            self.skip(sent);
        }
    }

    /// Sends as much as the kernel accepts, at most one quantum. `sender` reports the end of a flight.
    pub(crate) fn advance(
        &mut self,
        socket: HandleRef<'_>,
        sender: FileSender<'_>,
        scratch: &mut [u8],
    ) -> SendStep {
        if FileFlight::EXISTS {
            match self.flight.state() {
                FlightState::Idle => {}
                FlightState::Pending => return SendStep::Blocked,
                FlightState::Ended(sent, result) => {
                    self.skip(sent);
                    if let Err(fault) = result {
                        return SendStep::Failed(fault.into());
                    }
                }
            }
        }
        let quantum_end = self.sent + SEND_QUANTUM;
        while let Some(head) = self.head() {
            if self.sent >= quantum_end {
                return SendStep::Yielded;
            }
            if FileFlight::EXISTS && self.file_ahead().is_some_and(|ahead| self.flight.fits(sender, &ahead)) {
                return self.take_off(socket, sender);
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
                Err(fault) => return SendStep::Failed(fault.into()),
            }
        }
        SendStep::Done
    }

    /// The file range that comes next, possibly after a run of memory segments.
    fn file_ahead(&self) -> Option<FileAhead<'_>> {
        let ahead = &self.segments[self.segment..];
        let heads = ahead.iter().take_while(|segment| segment.memory().is_some());
        let (count, bytes) = heads.fold((0, 0), |(count, bytes), head| (count + 1, bytes + head.len()));
        let Segment::File { file, offset, len } = ahead.get(count)? else { return None };
        let (head_bytes, skipped) = if count == 0 { (0, self.offset) } else { (bytes - self.offset, 0) };
        Some(FileAhead { file, offset: offset + skipped, left: len - skipped, head_bytes })
    }

    /// Lets the system send the next file range by itself, with the memory before it.
    fn take_off(&mut self, socket: HandleRef<'_>, sender: FileSender<'_>) -> SendStep {
        let mut flight = std::mem::replace(&mut self.flight, FileFlight::none());
        if let Some(ahead) = self.file_ahead() {
            flight.start(socket, sender, self.run(), &ahead);
        }
        self.flight = flight;
        // A flight that has ended within the call, or could not start, continues when the other connections were served.
        if self.is_in_flight() { SendStep::Blocked } else { SendStep::Yielded }
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

impl From<SendFault> for OpError {
    fn from(fault: SendFault) -> Self {
        match fault {
            SendFault::System(error) => error.into(),
            SendFault::FileShrunk => Self::FileShrunk,
        }
    }
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
