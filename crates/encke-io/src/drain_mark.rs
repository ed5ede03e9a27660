//! A mark by which a draining server tells its successor that it will soon release its ports and files.
//!
//! ```text
//! draining server:  DrainMark::set ─► listens on an abstract Unix socket named after each resource, and accepts nothing
//! its successor:    DrainingProcess::find ─► connects ─► wait: until the process has ended, or a deadline
//! ```
//! The kernel removes the mark with the process, also after a crash, so no mark is stale. Abstract names belong to a network
//! namespace, as ports do. Linux only: elsewhere no process is found.

use crate::files::FileId;

/// A resource that only one server can hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HeldResource {
    /// A TCP port, on any address.
    Port(u16),
    /// A directory, or the file of a Unix socket.
    File(FileId),
}

pub use crate::sys::drain_mark::{DrainMark, DrainingProcess};
