//! The client of the sub-commands that talk to a running server: HTTP/1.1, blocking, one connection, one request at a time.
//!
//! The client follows no redirects and keeps no cookies and no cache. It supports `http` and `https`.
//!
//! ```text
//!  argument ─► Location ─► Server ─ connect ─► Connection ─ ask ───► Answer, complete
//!                                                  │
//!                                                  └─ begin ─► Head, then the body piece by piece
//! ```
//! Errors of a connection are [`ClientError`]; [`refusal`] describes error responses.

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

pub(crate) use channels::ChannelsPath;
pub(crate) use connection::{ClientError, ClientRequest, ClientResponse, Connection};
pub(crate) use location::{Location, LocationError, ServerLocation};
pub(crate) use secure::TrustSettings;

use crate::error::{CommandError, INTERRUPTED};

/// A moment on the monotonic clock, in nanoseconds.
pub(crate) type MonoTime = u64;

/// Returns the current time.
pub(crate) fn now() -> MonoTime {
    Clock::new().now().mono_ns
}

/// Returns the moment `after` from now.
pub(crate) fn moment_in(after: Duration) -> MonoTime {
    Clock::new().now().plus(after)
}

/// Blocks the thread for `time`. The sub-commands have no reactor that could wait.
pub(crate) fn pause(time: Duration) {
    let (_kept, never) = mpsc::channel::<()>();
    let _timed_out = never.recv_timeout(time);
}

/// Makes ^C end the process with the usual status, whatever the main thread waits for. Must be called before the first thread
/// starts.
///
///  # Errors
/// The thread that waits for signals cannot be started.
pub(crate) fn end_at_interrupt() -> Result<(), CommandError> {
    let signals = Signals::block();
    let obeying = thread::Builder::new().name("signals".into()).spawn(move || {
        loop {
            match signals.wait() {
                Signal::Interrupt => host::exit_now(INTERRUPTED.into()),
                // The status that shells report for a program killed by the signal: 128 plus its number.
                Signal::HangUp => host::exit_now(129),
                Signal::Terminate => host::exit_now(143),
                Signal::User1 | Signal::User2 => {}
            }
        }
    });
    obeying.map(drop).map_err(|error| CommandError::system(error).context("cannot start the signal thread"))
}
