//! Readiness of descriptors: the only difference between poll and the two kinds of epoll.
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

/// The kinds of readiness that a source waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interest {
    /// Data or a connection to read.
    pub read: bool,
    /// Room to write.
    pub write: bool,
    /// The end of the peer's stream, also while `read` is false.
    pub hangup: bool,
}

/// The readiness of a source, as the kernel reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ready {
    /// Data or a connection to read.
    pub read: bool,
    /// Room to write.
    pub write: bool,
    /// The peer has ended its stream, or both directions are closed: a read reaches the end.
    pub hangup: bool,
    /// An error is pending on the socket.
    pub error: bool,
}

/// A mechanism to wait for many descriptors.
pub trait Poller: Sized {
    /// The back end that uses this poller.
    const BACKEND: Backend;
    /// Whether readiness is reported only when it begins. Every kind is then registered once, and `modify` has no effect.
    const EDGE: bool;

    fn new() -> io::Result<Self>;

    fn add(&mut self, descriptor: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()>;

    fn modify(&mut self, descriptor: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()>;

    /// Removes a descriptor. `closing` means that the caller closes it at once.
    fn remove(&mut self, descriptor: BorrowedFd<'_>, token: Token, closing: bool);

    /// Waits, at most `timeout`, and reports every ready source.
    fn wait(&mut self, timeout: Option<Duration>, report: impl FnMut(Token, Ready)) -> io::Result<()>;
}
