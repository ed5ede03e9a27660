//! The `Date` field's value, written once a second (RFC 9110 §6.6.1).

use encke_wire::date::{DATE_BYTES, imf_fixdate};

/// The present second's date.
pub(crate) struct DateCache {
    second: u64,
    text: [u8; DATE_BYTES],
}

impl DateCache {
    pub(crate) fn new(unix_s: u64) -> Self {
        Self { second: unix_s, text: imf_fixdate(unix_s) }
    }

    /// Follows the clock; true if it is another second.
    pub(crate) fn turn(&mut self, unix_s: u64) -> bool {
        let another = unix_s != self.second;
        if another {
            *self = Self::new(unix_s);
        }
        another
    }

    pub(crate) fn bytes(&self) -> &[u8; DATE_BYTES] {
        &self.text
    }
}
