//! The bell of Windows: a packet posted to the reactor's completion port.

use std::sync::Arc;

use crate::sys::windows::port::Port;

/// Interrupts a reactor's wait from any thread.
pub struct Bell {
    port: Arc<Port>,
}

impl Bell {
    /// A bell whose ringing arrives at `port` as a packet without an operation.
    pub(crate) fn posting_to(port: Arc<Port>) -> Self {
        Self { port }
    }

    /// Posts a packet. Returns whether the system had memory for it.
    pub(crate) fn ring(&self) -> bool {
        self.port.post().is_ok()
    }

    /// Does nothing: the wait has taken the packet.
    pub(crate) fn silence(&self) {}
}
