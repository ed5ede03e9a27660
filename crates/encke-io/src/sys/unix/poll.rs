//! poll(2), plain POSIX: the kernel receives the whole table at every wait.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io;
use std::time::Duration;

use crate::op::Token;
use crate::poller::{Interest, Poller, Ready};
use crate::reactor::Backend;
use crate::sys::bell::Bell;
use crate::sys::net::FileSender;
use crate::sys::own::net::PEER_ENDED;

/// The dense table of descriptors, with the token of each row.
///
/// INVARIANT: `table` and `tokens` are equally long, and `rows[tokens[r].index] == r` for every row `r`.
pub struct Poll {
    table: Vec<PollFd<'static>>,
    tokens: Vec<Token>,
    /// The row of each source by index, so that neither direction needs a search.
    rows: Vec<u32>,
}

impl Poll {
    fn row(&self, token: Token) -> Option<usize> {
        let row = *self.rows.get(token.index as usize)? as usize;
        (self.tokens.get(row) == Some(&token)).then_some(row)
    }

    fn entry(descriptor: BorrowedFd<'_>, interest: Interest) -> PollFd<'static> {
        let mut flags = PollFlags::empty();
        if interest.read {
            flags |= PollFlags::IN;
        }
        if interest.read || interest.hangup {
            flags |= PEER_ENDED;
        }
        if interest.write {
            flags |= PollFlags::OUT;
        }
        // SAFETY: the reactor calls `remove` before it closes a descriptor, so none outlives its row.
        // WHY: otherwise every wait would have to rebuild the table from borrowed descriptors.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor.as_raw_fd()) };
        PollFd::from_borrowed_fd(descriptor, flags)
    }
}

impl Poller for Poll {
    const BACKEND: Backend = Backend::Poll;
    const EDGE: bool = false;
    const ONE_SHOT: bool = false;

    fn new() -> io::Result<Self> {
        Ok(Self { table: Vec::new(), tokens: Vec::new(), rows: Vec::new() })
    }

    fn bell(&mut self, token: Token) -> io::Result<Bell> {
        let bell = Bell::new()?;
        self.add(bell.as_fd(), token, Interest { read: true, ..Interest::default() })?;
        Ok(bell)
    }

    fn add(&mut self, descriptor: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let index = token.index as usize;
        if self.rows.len() <= index {
            self.rows.resize(index + 1, u32::MAX);
        }
        self.rows[index] = self.table.len() as u32;
        self.table.push(Self::entry(descriptor, interest));
        self.tokens.push(token);
        Ok(())
    }

    fn modify(&mut self, descriptor: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        if let Some(row) = self.row(token) {
            self.table[row] = Self::entry(descriptor, interest);
        }
        Ok(())
    }

    fn remove(&mut self, _: BorrowedFd<'_>, token: Token, _: bool) {
        if let Some(row) = self.row(token) {
            self.table.swap_remove(row);
            self.tokens.swap_remove(row);
            if let Some(moved) = self.tokens.get(row) {
                self.rows[moved.index as usize] = row as u32;
            }
        }
    }

    fn file_sender(&self, _: Token) -> FileSender<'_> {
        FileSender::none()
    }

    fn wait(&mut self, timeout: Option<Duration>, mut report: impl FnMut(Token, Ready)) -> io::Result<()> {
        let timeout = timeout.map(|limit| Timespec {
            tv_sec: limit.as_secs().min(i64::MAX as u64) as _,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let mut left = match poll(&mut self.table, timeout.as_ref()) {
            Err(io::Errno::INTR) => 0,
            other => other?,
        };
        for (entry, token) in self.table.iter().zip(&self.tokens) {
            if left == 0 {
                break;
            }
            let flags = entry.revents();
            if flags.is_empty() {
                continue;
            }
            left -= 1;
            let hangup = flags.intersects(PollFlags::HUP | PEER_ENDED);
            report(
                *token,
                Ready {
                    read: flags.contains(PollFlags::IN),
                    write: flags.contains(PollFlags::OUT),
                    hangup,
                    error: flags.intersects(PollFlags::ERR | PollFlags::NVAL),
                },
            );
        }
        Ok(())
    }
}
