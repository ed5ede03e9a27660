//! A send in flight: how far it has come, and the calls that take it further.
//!
//! ```text
//!  segments   [ Bytes ][ Shared ][   File   ][ Bytes ]
//!  done        ████████ ███░
//!                          ▲ segment 1, offset 3: everything before is with the kernel
//! ```
//!
//! A run of memory segments goes with one sendmsg(2); what follows it shares a packet with it by MSG_MORE
//! (tcp(7)), so that a head travels with its file and no packet waits for an acknowledgement. A file goes by
//! sendfile(2), which copies nothing through this process.

use crate::fault::Fault;
use crate::files::OpenFile;
use crate::op::{Event, OpKind, Segment, Send, Token};

/// Everything before `segment` is sent, and `offset` bytes of it.
pub(crate) struct Sending {
    segments: Vec<Segment>,
    more: bool,
    segment: usize,
    offset: u64,
    sent: u64,
}

/// What any peer takes as one segment (RFC 9293 §3.7.1).
#[cfg(unix)]
const SEGMENT_BYTES: u64 = 536;

/// Whether a connection's first send goes at once though Nagle's algorithm is on, which holds back nothing but the end of
/// a larger one, and what follows before it is acknowledged (RFC 1122 §4.2.3.4). Of a connection for one request
/// switching it off would be one system call of five.
#[cfg(unix)]
pub(crate) fn is_one_segment(send: &Send) -> bool {
    !send.more && send.segments.iter().map(Segment::len).sum::<u64>() <= SEGMENT_BYTES
}

/// The rest of the segment that is being sent.
pub(crate) enum Head<'a> {
    Memory(&'a [u8]),
    File { file: &'a OpenFile, offset: u64, left: u64 },
}

/// How far a call got.
pub(crate) enum Step {
    /// Everything is sent.
    Done,
    /// The socket takes no more at the moment.
    Blocked,
    /// The quantum is used up: others have their turn.
    Yielded,
    /// It ends here.
    Failed(Fault),
}

impl Sending {
    pub(crate) fn new(Send { segments, more }: Send) -> Self {
        let mut sending = Self { segments, more, segment: 0, offset: 0, sent: 0 };
        sending.skip(0);
        sending
    }

    /// What is to be sent next; nothing if all is sent.
    pub(crate) fn head(&self) -> Option<Head<'_>> {
        let segment = self.segments.get(self.segment)?;
        Some(match segment {
            Segment::File { file, offset, len } => {
                Head::File { file, offset: offset + self.offset, left: len - self.offset }
            }
            memory => Head::Memory(&memory.memory().expect("not a file")[self.offset as usize..]),
        })
    }

    /// What is left of the run of memory segments at the current place; nothing if a file is next.
    pub(crate) fn run(&self) -> impl Iterator<Item = &[u8]> {
        let mut skipped = self.offset as usize;
        self.segments[self.segment..]
            .iter()
            .map_while(Segment::memory)
            .map(move |bytes| &bytes[std::mem::take(&mut skipped)..])
    }

    /// Whether a piece of a file is still to be sent.
    pub(crate) fn has_file(&self) -> bool {
        self.segments[self.segment..].iter().any(|segment| matches!(segment, Segment::File { .. }))
    }

    /// Moves on by `sent` bytes, over the segments that are thereby done.
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

    /// Whether everything is with the kernel.
    pub(crate) fn is_done(&self) -> bool {
        self.segment == self.segments.len()
    }

    pub(crate) fn unsent(&self) -> u64 {
        self.segments[self.segment..].iter().map(Segment::len).sum::<u64>() - self.offset
    }

    pub(crate) fn into_segments(self) -> Vec<Segment> {
        self.segments
    }

    /// Its completion.
    pub(crate) fn ended(self, token: Token, result: Result<(), Fault>) -> Event<'static> {
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

/// The calls: what the simulator does without.
#[cfg(unix)]
mod system {
    use std::io::IoSlice;

    use rustix::fd::BorrowedFd;
    use rustix::io::Errno;
    use rustix::net::{self as sys, SendFlags};

    use super::{Head, Sending, Step};
    use crate::fault::Fault;
    use crate::files::OpenFile;
    use crate::reactor::SEND_QUANTUM;

    /// Slices handed to one sendmsg(2); Linux takes up to 1,024.
    pub(crate) const SLICES: usize = 32;

    impl Sending {
        /// Hands the kernel as much as it takes, at most a quantum.
        pub(crate) fn advance(&mut self, socket: BorrowedFd<'_>, scratch: &mut [u8]) -> Step {
            let quantum_end = self.sent + SEND_QUANTUM;
            while let Some(head) = self.head() {
                if self.sent >= quantum_end {
                    return Step::Yielded;
                }
                let result = match head {
                    Head::File { file, offset, left } => {
                        send_file(socket, file, offset, left.min(SEND_QUANTUM), scratch)
                    }
                    Head::Memory(_) => self.send_run(socket),
                };
                match result {
                    Ok(sent) => self.skip(sent),
                    Err(SendFault::Errno(Errno::AGAIN)) => return Step::Blocked,
                    Err(SendFault::Errno(Errno::INTR)) => {}
                    Err(SendFault::Errno(errno)) => return Step::Failed(errno.into()),
                    Err(SendFault::FileShrunk) => return Step::Failed(Fault::FileShrunk),
                }
            }
            Step::Done
        }

        /// Sends the run of memory segments at the current place.
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

        /// What follows `count` segments shall share a packet with them: a head and its file. If only nothing
        /// follows they must go at once: the kernel would hold them back for 200 ms.
        pub(crate) fn flags(&self, count: usize) -> SendFlags {
            let mut rest = self.segments[self.segment + count..].iter();
            if self.more || rest.any(|segment| !segment.is_empty()) { QUIET | MORE } else { QUIET }
        }
    }

    #[cfg(target_os = "linux")]
    const MORE: SendFlags = SendFlags::MORE;
    #[cfg(not(target_os = "linux"))]
    const MORE: SendFlags = SendFlags::empty();

    /// A peer that is gone is an error, not a signal. Systems without the flag rely on Rust's runtime, which
    /// ignores SIGPIPE from the start.
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

    /// Sends a range of a file through the scratch: other systems' sendfile calls differ and come with their
    /// back ends.
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
