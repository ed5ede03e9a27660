//! Which descriptors are ready: the part in which poll and the two kinds of epoll differ.
//!
//! ```text
//!                 add        modify             remove              a descriptor that stays ready
//! poll            table      table              table               is reported each turn
//! epoll-level     1 call     1 call             by close(2)         is reported each turn
//! epoll-edge      1 call     nothing to do      by close(2)         is reported when it becomes ready
//! ```

use rustix::fd::BorrowedFd;
use rustix::io;
use std::time::Duration;

use crate::op::Token;
use crate::reactor::Backend;

#[cfg(target_os = "linux")]
pub(crate) mod epoll;
pub(crate) mod poll;

/// What a source waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interest {
    /// Something to read.
    pub read: bool,
    /// Room to write.
    pub write: bool,
    /// Only whether the peer has ended its side.
    pub hangup: bool,
}

/// What the kernel reports of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ready {
    /// Something to read.
    pub read: bool,
    /// Room to write.
    pub write: bool,
    /// The peer has ended its side, or both are down: reading will meet the end.
    pub hangup: bool,
    /// An error is pending on the socket.
    pub error: bool,
}

/// A way to wait for many descriptors.
pub trait Poller: Sized {
    /// Its name.
    const BACKEND: Backend;
    /// Readiness is reported once, when it begins: interest need never be changed.
    const EDGE: bool;

    fn new() -> io::Result<Self>;

    fn add(&mut self, descriptor: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()>;

    fn modify(&mut self, descriptor: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()>;

    /// Takes a descriptor out; `closing` says that it will be closed at once.
    fn remove(&mut self, descriptor: BorrowedFd<'_>, token: Token, closing: bool);

    /// Waits, at most `timeout`, and reports every ready source.
    fn wait(&mut self, timeout: Option<Duration>, report: impl FnMut(Token, Ready)) -> io::Result<()>;
}
