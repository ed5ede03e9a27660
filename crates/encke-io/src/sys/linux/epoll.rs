//! epoll(7), level-triggered or edge-triggered.

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io;
use std::time::Duration;

use crate::op::Token;
use crate::poller::{Interest, Poller, Ready};
use crate::reactor::Backend;
use crate::sys::bell::Bell;
use crate::sys::net::FileSender;

/// Events fetched per call. Further events stay in the kernel and come with the next call, in order of arrival.
const EVENTS: usize = 256;

/// Waits shorter than this are made exact by one more call. epoll_wait(2) rounds up to whole milliseconds. That matters for a
/// schedule of requests, but not for a deadline of seconds.
const EXACT: Duration = Duration::from_millis(20);

/// The kernel's table of interests. `EDGE` selects how readiness is reported.
pub struct Epoll<const EDGE: bool> {
    epoll: OwnedFd,
    events: Vec<Event>,
}

/// Reports everything that is ready at each wait.
pub(crate) type EpollLevel = Epoll<false>;
/// Reports everything that became ready since the last wait.
pub(crate) type EpollEdge = Epoll<true>;

impl<const EDGE: bool> Epoll<EDGE> {
    fn flags(interest: Interest) -> EventFlags {
        if EDGE {
            return EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        }
        let mut flags = EventFlags::empty();
        if interest.read {
            flags |= EventFlags::IN;
        }
        if interest.read || interest.hangup {
            flags |= EventFlags::RDHUP;
        }
        if interest.write {
            flags |= EventFlags::OUT;
        }
        flags
    }
}

impl<const EDGE: bool> Poller for Epoll<EDGE> {
    const BACKEND: Backend = if EDGE { Backend::EpollEdge } else { Backend::EpollLevel };
    const EDGE: bool = EDGE;
    const ONE_SHOT: bool = false;

    fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(EVENTS) })
    }

    fn bell(&mut self, token: Token) -> io::Result<Bell> {
        let bell = Bell::new()?;
        self.add(bell.as_fd(), token, Interest { read: true, ..Interest::default() })?;
        Ok(bell)
    }

    fn add(&mut self, descriptor: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        epoll::add(&self.epoll, descriptor, EventData::new_u64(token.word()), Self::flags(interest))
    }

    fn modify(&mut self, descriptor: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        if EDGE {
            return Ok(());
        }
        epoll::modify(&self.epoll, descriptor, EventData::new_u64(token.word()), Self::flags(interest))
    }

    fn remove(&mut self, descriptor: BorrowedFd<'_>, _: Token, closing: bool) {
        // Closing the last descriptor of a socket removes it from the set (epoll(7), Q6), which saves a system call.
        if !closing {
            let _not_there = epoll::delete(&self.epoll, descriptor);
        }
    }

    fn file_sender(&self, _: Token) -> FileSender<'_> {
        FileSender::none()
    }

    fn wait(&mut self, timeout: Option<Duration>, mut report: impl FnMut(Token, Ready)) -> io::Result<()> {
        let spec = |limit: Duration| Timespec {
            tv_sec: limit.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut timeout = timeout;
        if let Some(limit) = timeout.filter(|limit| !limit.is_zero() && *limit < EXACT) {
            // An epoll descriptor can itself be polled (epoll(7)), and ppoll(2) counts in nanoseconds.
            match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&spec(limit))) {
                Err(io::Errno::INTR) | Ok(_) => timeout = Some(Duration::ZERO),
                Err(errno) => return Err(errno),
            }
        }
        let timeout = timeout.map(spec);
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Err(io::Errno::INTR) | Ok(_) => {}
            Err(errno) => return Err(errno),
        }
        for event in &self.events {
            let flags = event.flags;
            report(
                Token::from_word(event.data.u64()),
                Ready {
                    read: flags.contains(EventFlags::IN),
                    write: flags.contains(EventFlags::OUT),
                    hangup: flags.intersects(EventFlags::RDHUP | EventFlags::HUP),
                    error: flags.contains(EventFlags::ERR),
                },
            );
        }
        Ok(())
    }
}
