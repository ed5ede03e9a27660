//! Readiness of handles: the only difference between poll, the two kinds of epoll, and AFD.
//!
//! ```text
//!                 add        modify             remove              a handle that stays ready
//! poll            table      table              table               is reported each turn
//! epoll-level     1 call     1 call             by close(2)         is reported each turn
//! epoll-edge      1 call     nothing to do      by close(2)         is reported when it becomes ready
//! afd             1 call     0 to 2 calls       0 or 1 call         is reported once, and added again
//! ```

use std::time::Duration;

use crate::op::Token;
use crate::reactor::Backend;
use crate::sys::bell::Bell;
use crate::sys::net::{FileSender, HandleRef, SysError};

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

/// A mechanism to wait for many handles.
pub trait Poller: Sized {
    /// The back end that uses this poller.
    const BACKEND: Backend;
    /// Whether readiness is reported only when it begins. Every kind is then registered once, and `modify` has no effect.
    const EDGE: bool;
    /// Whether a report ends the registration, so that the handle has to be added again.
    const ONE_SHOT: bool;

    fn new() -> Result<Self, SysError>;

    /// Creates a bell whose ringing is reported as readiness of `token`.
    fn bell(&mut self, token: Token) -> Result<Bell, SysError>;

    /// Adds a handle. A one-shot poller that still has it modifies it.
    fn add(&mut self, handle: HandleRef<'_>, token: Token, interest: Interest) -> Result<(), SysError>;

    fn modify(&mut self, handle: HandleRef<'_>, token: Token, interest: Interest) -> Result<(), SysError>;

    /// Removes a handle. `closing` means that the caller closes it at once.
    fn remove(&mut self, handle: HandleRef<'_>, token: Token, closing: bool);

    /// Reports the end of a file that the system sends by itself ([`crate::sys::net::FileFlight`]) as readiness of `token` to
    /// write.
    fn file_sender(&self, token: Token) -> FileSender<'_>;

    /// Waits, at most `timeout`, and reports every ready source.
    fn wait(&mut self, timeout: Option<Duration>, report: impl FnMut(Token, Ready)) -> Result<(), SysError>;
}
