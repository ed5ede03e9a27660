//! A client of Encke's own servers, for the sub-commands that talk to one that runs: HTTP/1.1, blocking, one
//! connection, one request at a time.
//!
//! It is no browser: it follows no redirects, keeps no cookies and no cache, and speaks `http` and `https`.
//!
//! ```text
//!  what was typed ─► Location ─► Server ─ connect ─► Connection ─ ask ───► Answer, whole
//!                                                        │
//!                                                        └─ begin ─► Head, then piece after piece for as long as
//!                                                                    the server likes
//! ```
//! What goes wrong is a [`Trouble`]; an answer that says no is put into words by [`refusal`].

mod channels;
mod connection;
mod location;
pub(crate) mod refusal;
mod secure;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use encke_io::clock::Clock;
use encke_io::host::{self, Signal, Signals};

pub(crate) use channels::Channels;
pub(crate) use connection::{Answer, Connection, Request, Trouble};
pub(crate) use location::{Location, Server};
pub(crate) use secure::Belief;

use crate::{Failure, INTERRUPTED};

/// A moment on the monotonic clock, in nanoseconds.
pub(crate) type Moment = u64;

/// This moment.
pub(crate) fn now() -> Moment {
    Clock::new().now().mono_ns
}

/// The moment `after` this one.
pub(crate) fn moment_in(after: Duration) -> Moment {
    Clock::new().now().plus(after)
}

/// Lets time pass: nothing happens here that could be waited for.
pub(crate) fn pause(time: Duration) {
    let (_kept, never) = mpsc::channel::<()>();
    let _timed_out = never.recv_timeout(time);
}

/// Has ^C end the process with the status that stands for it, whatever it waits for at that moment. Call it before
/// the first thread starts.
///
/// # Errors
/// The system gives no thread to wait for signals.
pub(crate) fn end_at_interrupt() -> Result<(), Failure> {
    let signals = Signals::block();
    let obeying = thread::Builder::new().name("signals".into()).spawn(move || {
        loop {
            match signals.wait() {
                Signal::Interrupt => host::exit_now(INTERRUPTED.into()),
                // As shells tell it of a program that the signal has ended: 128 and its number.
                Signal::HangUp => host::exit_now(129),
                Signal::Terminate => host::exit_now(143),
                Signal::User1 | Signal::User2 => {}
            }
        }
    });
    obeying.map(drop).map_err(|error| Failure::CouldNotRun(format!("no thread for signals: {error}")))
}
