//! Log entries of requests whose lines are not written yet: their responses are open, in the output, in flight, or ended.

use super::{LogEntry, LogNotes};

/// The log entry of a response that is in the output, in flight, or ended.
pub(crate) struct PendingEntry {
    pub(crate) entry: Box<LogEntry>,
    /// Bytes of the response's content.
    pub(crate) content: u64,
    pub(crate) started_ns: u64,
    pub(crate) reason: Option<&'static str>,
}

/// The log entry of a request whose connection belongs to a resident.
pub(crate) struct WaitingEntry {
    pub(crate) entry: Box<LogEntry>,
    pub(crate) started_ns: u64,
    /// Bytes of the response's content so far.
    pub(crate) sent_bytes: u64,
    /// Bytes of the present output that do not belong to the content: the head, and responses to earlier requests.
    pub(crate) uncounted_bytes: u64,
    /// The notes of the resident. They are added at the end, because the line shares its texts until then.
    pub(crate) notes: Option<Box<LogNotes>>,
}

/// Log entries of responses whose send is in flight.
pub(crate) struct LogFlight {
    pub(crate) entries: Vec<PendingEntry>,
}
