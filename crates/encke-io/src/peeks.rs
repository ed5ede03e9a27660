//! Receiving that is acknowledged late: bytes are told as they come, and taken from the kernel a few reads later.
//!
//! ```text
//!   in the socket   told before, still here │ new      a peek finds what is new (MSG_PEEK behind SO_PEEK_OFF), four times
//!                                                      a plain read then takes all of it, and the new is told
//! ```
//! Linux acknowledges when a reader empties the socket of a second small segment (`tcp_cleanup_rbuf` in net/ipv4/tcp.c).
//! Who is answered in many small segments so answers every second one with a segment of its own, where the next request
//! would have told the same. What is only peeked at does not count as read, and is acknowledged later (delayed ACK, RFC
//! 9293 §3.8.6.3).
//!
//! How late that may be is the sender's affair. With its ten first segments unacknowledged (RFC 6928) it falls silent,
//! and a delayed ACK comes after 40 ms only. So all that is left unacknowledged is four reads of at most 256 bytes
//! each: eight segments, if none is smaller than 128 bytes. A read that finds less than that is followed by plain ones.
//! What cannot be seen is that a longer read was of several tiny segments: ten of those, read in four, would stand
//! still until the delayed ACK. A sender that pauses for more than some 10 ms with two segments or more unacknowledged
//! sends the last one again (RFC 8985 §7), as it does without this.

use rustix::fd::BorrowedFd;
use rustix::net::{RecvFlags, sockopt};

#[cfg(target_os = "linux")]
use crate::socket::set_int;

/// How the streams that are acknowledged late are received from, by place.
#[derive(Default)]
pub(crate) struct Peeks(Vec<Row>);

#[derive(Clone, Copy, Default)]
struct Row {
    /// Bytes that were told and are not taken.
    untaken: u16,
    /// Peeks since anything was acknowledged.
    peeks: u8,
    /// What was found the last time is not of the kind for which peeking pays.
    plainly: bool,
}

/// The next read takes all.
const PEEKS_MAX: u8 = 4;
/// Bytes of a read that is likely one small segment, or two.
const SMALL: std::ops::RangeInclusive<usize> = 128..=256;
/// A peek that finds more than those finds no more at once: a plain read follows.
const PEEK_BYTES_MAX: usize = *SMALL.end() + 1;
/// The next read takes all, also where each peek was acknowledged by something sent.
const UNTAKEN_BYTES_MAX: u16 = 2048;
/// A socket must have room for far more, or a peer may wait for the window while its bytes wait for more.
const ROOM_BYTES_MIN: usize = 16 * 1024;

/// How a read is to be made.
pub(crate) struct Read {
    pub(crate) flags: RecvFlags,
    pub(crate) bytes_max: usize,
}

impl Peeks {
    /// Has the kernel remember how far a TCP stream was peeked at; false where it cannot (before Linux 6.9), or where
    /// there is too little room to leave anything in it.
    pub(crate) fn begin(&mut self, index: u32, stream: BorrowedFd<'_>) -> bool {
        let room = sockopt::socket_recv_buffer_size(stream).unwrap_or(0);
        if room < ROOM_BYTES_MIN || !remember_peeks(stream) {
            return false;
        }
        let index = index as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, Row::default());
        }
        self.0[index] = Row::default();
        true
    }

    /// How the next read is to be made, with room for `bytes_max`.
    pub(crate) fn next(&self, index: u32, bytes_max: usize) -> Read {
        if self.0[index as usize].is_peek() {
            Read { flags: RecvFlags::PEEK, bytes_max: PEEK_BYTES_MAX }
        } else {
            Read { flags: RecvFlags::empty(), bytes_max }
        }
    }

    /// What that read has found; how many bytes of its beginning were told before.
    pub(crate) fn found(&mut self, index: u32, bytes: usize) -> usize {
        let row = &mut self.0[index as usize];
        let mut told = 0;
        if row.is_peek() {
            row.untaken += bytes as u16;
            row.peeks += 1;
        } else {
            told = bytes.min(row.untaken.into());
            row.untaken -= told as u16;
            row.peeks = 0;
        }
        row.plainly = !SMALL.contains(&(bytes - told));
        told
    }

    /// Something was sent, and has acknowledged all.
    pub(crate) fn sent(&mut self, index: u32) {
        self.0[index as usize].peeks = 0;
    }

    /// Takes what was told, before the stream is closed: what lies unread in it would reset the connection.
    pub(crate) fn take(&mut self, index: u32, stream: BorrowedFd<'_>) {
        let row = &mut self.0[index as usize];
        if row.untaken > 0 {
            discard(stream, row.untaken.into());
            row.untaken = 0;
        }
    }
}

impl Row {
    fn is_peek(self) -> bool {
        !self.plainly && self.peeks < PEEKS_MAX && self.untaken < UNTAKEN_BYTES_MAX
    }
}

/// SO_PEEK_OFF (socket(7)): the next peek begins behind this one. Not for a Unix socket, which has it, too: nothing is
/// acknowledged there.
#[cfg(target_os = "linux")]
fn remember_peeks(stream: BorrowedFd<'_>) -> bool {
    use rustix::net::AddressFamily;
    let domain = sockopt::socket_domain(stream);
    domain.is_ok_and(|domain| matches!(domain, AddressFamily::INET | AddressFamily::INET6))
        && set_int(stream, libc::SOL_SOCKET, libc::SO_PEEK_OFF, 0).is_ok()
}

/// Takes so many bytes off a TCP stream and throws them away (MSG_TRUNC, tcp(7)).
#[cfg(target_os = "linux")]
fn discard(stream: BorrowedFd<'_>, bytes: usize) {
    use std::os::fd::AsRawFd;
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: with this flag nothing is written to the buffer, so there need not be one (tcp(7)).
    // WHY: rustix wants one.
    let _best_effort = unsafe { libc::recv(stream.as_raw_fd(), std::ptr::null_mut(), bytes, flags) };
}

/// Other systems do not remember, and so have nothing to take.
#[cfg(not(target_os = "linux"))]
fn remember_peeks(_: BorrowedFd<'_>) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn discard(_: BorrowedFd<'_>, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many reads in a row are peeks, up to the one that takes all, when each finds one small segment.
    fn peeks_in_a_row(answered: bool) -> usize {
        const SEGMENT_BYTES: usize = 200;
        let mut peeks = Peeks(vec![Row::default()]);
        let is_peek = |peeks: &Peeks| peeks.next(0, 4096).flags.contains(RecvFlags::PEEK);
        let mut count = 0;
        while is_peek(&peeks) {
            assert_eq!(peeks.found(0, SEGMENT_BYTES), 0, "what a peek finds is new");
            if answered {
                peeks.sent(0);
            }
            count += 1;
        }
        let untaken = count * SEGMENT_BYTES;
        assert_eq!(peeks.found(0, untaken + SEGMENT_BYTES), untaken, "what was told is told once");
        assert!(is_peek(&peeks), "it begins anew");
        count
    }

    #[test]
    fn each_fifth_read_takes_all_unless_what_is_sent_acknowledges_between() {
        assert_eq!(peeks_in_a_row(false), usize::from(PEEKS_MAX));
        assert_eq!(peeks_in_a_row(true), 11, "up to 2,048 bytes, of which each finds 200");
    }

    #[test]
    fn what_is_not_one_small_segment_is_read_plainly_the_next_time() {
        for bytes in [1, 127, 257] {
            let mut peeks = Peeks(vec![Row::default()]);
            peeks.found(0, bytes);
            let read = peeks.next(0, 4096);
            assert_eq!((read.flags.contains(RecvFlags::PEEK), read.bytes_max), (false, 4096), "{bytes}");
        }
    }
}
