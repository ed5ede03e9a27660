//! The counters of live streams.

use std::sync::atomic::AtomicU64;

/// Counters of all streams.
#[derive(Debug, Default)]
pub(crate) struct LiveFigures {
    /// Bytes received from sources.
    pub(crate) bytes: AtomicU64,
    pub(crate) sources_begun: AtomicU64,
    pub(crate) sources_ended: AtomicU64,
    /// Sources rejected because their stream had one.
    pub(crate) sources_refused: AtomicU64,
    /// Pieces that were dropped because the server was too busy.
    pub(crate) pieces_dropped: AtomicU64,
}
