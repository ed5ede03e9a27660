//! The value of the `Date` field, formatted once per second (RFC 9110 §6.6.1).

use std::cell::OnceCell;

use encke_wire::date::{DATE_BYTES, imf_fixdate};
use http::HeaderValue;

/// The date of the present second.
pub(crate) struct DateCache {
    second: u64,
    text: [u8; DATE_BYTES],
    /// The value for HTTP/2 heads, created when the first of them needs it.
    header_value: OnceCell<HeaderValue>,
}

impl DateCache {
    pub(crate) fn new(unix_s: u64) -> Self {
        Self { second: unix_s, text: imf_fixdate(unix_s), header_value: OnceCell::new() }
    }

    /// Sets the time. Returns true if the second has changed.
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

    /// Returns the date as an HTTP/2 field value. Copies share its bytes.
    pub(crate) fn header_value(&self) -> HeaderValue {
        let make = || HeaderValue::from_bytes(&self.text).unwrap_or(HeaderValue::from_static(""));
        self.header_value.get_or_init(make).clone()
    }
}
