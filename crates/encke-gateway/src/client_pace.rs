//! How much is received from an application at a time: little until its client has proven to receive.
//!
//! Bytes of an application that a client does not take must be kept. A client that sends a request and never reads would otherwise hold
//! two reads of 64 KiB for some hundred bytes of its own.

use encke_io::LendLimit;
use encke_server::{HandlerContext, PROVEN_BYTES, UNPROVEN_WAITING_MAX, UpstreamId};

/// The pace of one client. A connection to an application begins narrow.
pub(crate) struct ClientPace {
    /// Bytes that were passed on, up to [`PROVEN_BYTES`].
    passed: u32,
    /// Whether as much as possible is received at a time.
    is_wide: bool,
}

impl ClientPace {
    pub(crate) const NEW: Self = Self { passed: 0, is_wide: false };

    /// Counts bytes that were passed on to the client's connection.
    pub(crate) fn count(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.passed = self.passed.saturating_add(bytes).min(PROVEN_BYTES as u32);
    }

    /// Receives more at a time if the client has proven to receive. Its connection has sent what was passed on.
    pub(crate) fn widen(&mut self, context: &HandlerContext, id: UpstreamId) {
        if !self.is_wide && u64::from(self.passed) >= PROVEN_BYTES {
            self.is_wide = true;
            context.lend(id, LendLimit::Wide);
        }
    }

    /// Begins again, for another client.
    pub(crate) fn restart(&mut self, context: &HandlerContext, id: UpstreamId) {
        if self.is_wide {
            context.lend(id, LendLimit::Narrow);
        }
        *self = Self::NEW;
    }

    /// The number of waiting bytes at which receiving pauses; `most` for a client that receives.
    pub(crate) const fn waiting_max(&self, most: usize) -> usize {
        if self.is_wide { most } else { UNPROVEN_WAITING_MAX }
    }
}
