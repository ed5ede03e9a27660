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
//! process.

use crate::files::OpenFile;
use crate::op::{Event, OpKind, Segment, Send, Token};
use crate::op_error::OpError;

/// A send whose segments before `segment`, and the first `offset` bytes of that one, have been sent.
pub(crate) struct Sending {
    segments: Vec<Segment>,
    more: bool,
    segment: usize,
    offset: u64,
    sent: u64,
}

/// The segment size that every peer accepts (RFC 9293 §3.7.1).
#[cfg(unix)]
const SEGMENT_BYTES: u64 = 536;

/// Whether Nagle's algorithm would not delay a connection's first send. It delays only the end of a larger send, and data sent
/// before an acknowledgement (RFC 1122 §4.2.3.4). For a connection with a single request this saves one system call of five.
#[cfg(unix)]
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
    pub(crate) fn is_done(&self) -> bool {
        self.segment == self.segments.len()
    }

    pub(crate) fn unsent(&self) -> u64 {
        self.segments[self.segment..].iter().map(Segment::len).sum::<u64>() - self.offset
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

#[cfg(unix)]
pub(crate) use system::QUIET;
#[cfg(target_os = "linux")]
pub(crate) use system::SLICES;

/// The system calls, which the simulator does not need.
#[cfg(unix)]
mod system {
    use std::io::IoSlice;

    use rustix::fd::BorrowedFd;
    use rustix::io::Errno;
    use rustix::net::{self as sys, SendFlags};

    use super::{SegmentRest, SendStep, Sending};
    use crate::files::OpenFile;
    use crate::op_error::OpError;
    use crate::reactor::SEND_QUANTUM;

    /// Maximum number of slices per sendmsg(2). Linux accepts up to 1,024.
    pub(crate) const SLICES: usize = 32;

    impl Sending {
        /// Sends as much as the kernel accepts, at most one quantum.
        pub(crate) fn advance(&mut self, socket: BorrowedFd<'_>, scratch: &mut [u8]) -> SendStep {
            let quantum_end = self.sent + SEND_QUANTUM;
            while let Some(head) = self.head() {
                if self.sent >= quantum_end {
                    return SendStep::Yielded;
                }
                let result = match head {
                    SegmentRest::File { file, offset, left } => {
                        send_file(socket, file, offset, left.min(SEND_QUANTUM), scratch)
                    }
                    SegmentRest::Memory(_) => self.send_run(socket),
                };
                match result {
                    Ok(sent) => self.skip(sent),
                    Err(SendFault::Errno(Errno::AGAIN)) => return SendStep::Blocked,
                    Err(SendFault::Errno(Errno::INTR)) => {}
                    Err(SendFault::Errno(errno)) => return SendStep::Failed(errno.into()),
                    Err(SendFault::FileShrunk) => return SendStep::Failed(OpError::FileShrunk),
                }
            }
            SendStep::Done
        }

        /// Sends the run of memory segments at the current position.
        fn send_run(&self, socket: BorrowedFd<'_>) -> Result<u64, SendFault> {
            let mut run = self.run();
            let first = run.next().expect("the current segment is in memory");
            let Some(second) = run.next() else {
                return Ok(sys::send(socket, first, self.flags(1))? as u64);
            };
            let mut slices = [IoSlice::new(&[]); SLICES];
            slices[0] = IoSlice::new(first);
            slices[1] = IoSlice::new(second);
            let mut count = 2;
            for (slice, bytes) in slices[2..].iter_mut().zip(run) {
                *slice = IoSlice::new(bytes);
                count += 1;
            }
            let mut control = sys::SendAncillaryBuffer::default();
            Ok(sys::sendmsg(socket, &slices[..count], &mut control, self.flags(count))? as u64)
        }

        /// The flags for sending `count` segments. Data that follows shares a packet with them, as a file with its head. If no
        /// data follows they must be sent at once: with MSG_MORE the kernel would delay them for 200 ms.
        pub(crate) fn flags(&self, count: usize) -> SendFlags {
            let mut rest = self.segments[self.segment + count..].iter();
            if self.more || rest.any(|segment| !segment.is_empty()) { QUIET | MORE } else { QUIET }
        }
    }

    #[cfg(target_os = "linux")]
    const MORE: SendFlags = SendFlags::MORE;
    #[cfg(not(target_os = "linux"))]
    const MORE: SendFlags = SendFlags::empty();

    /// A lost peer is an error, not a signal. Systems without the flag rely on Rust's runtime, which ignores SIGPIPE from the
    /// start.
    #[cfg(not(target_vendor = "apple"))]
    pub(crate) const QUIET: SendFlags = SendFlags::NOSIGNAL;
    #[cfg(target_vendor = "apple")]
    pub(crate) const QUIET: SendFlags = SendFlags::empty();

    enum SendFault {
        Errno(Errno),
        FileShrunk,
    }

    impl From<Errno> for SendFault {
        fn from(errno: Errno) -> Self {
            Self::Errno(errno)
        }
    }

    /// Sends a range of a file without a copy through this process (sendfile(2)).
    #[cfg(target_os = "linux")]
    fn send_file(
        socket: BorrowedFd<'_>,
        file: &OpenFile,
        mut offset: u64,
        len: u64,
        _scratch: &mut [u8],
    ) -> Result<u64, SendFault> {
        match rustix::fs::sendfile(socket, file, Some(&mut offset), len as usize)? {
            0 => Err(SendFault::FileShrunk),
            sent => Ok(sent as u64),
        }
    }

    /// Sends a range of a file through the scratch buffer. The sendfile calls of other systems differ, and will be added with
    /// their back ends.
    #[cfg(not(target_os = "linux"))]
    fn send_file(
        socket: BorrowedFd<'_>,
        file: &OpenFile,
        offset: u64,
        len: u64,
        scratch: &mut [u8],
    ) -> Result<u64, SendFault> {
        let wanted = scratch.len().min(usize::try_from(len).unwrap_or(usize::MAX));
        match rustix::io::pread(file, &mut scratch[..wanted], offset)? {
            0 => Err(SendFault::FileShrunk),
            read => Ok(sys::send(socket, &scratch[..read], QUIET)? as u64),
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
            assert_eq!(of(&[5], false).flags(1), QUIET);
            assert_eq!(of(&[5, 5], false).flags(1), QUIET | MORE);
            assert_eq!(of(&[5, 5], false).flags(2), QUIET);
            assert_eq!(of(&[5, 0, 0], false).flags(1), QUIET, "nothing follows");
            assert_eq!(of(&[5], true).flags(1), QUIET | MORE, "the caller has more");
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
}
