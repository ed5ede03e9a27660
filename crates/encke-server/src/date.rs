//! The `Date` field's value, written once a second (RFC 9110 §6.6.1).

use std::cell::OnceCell;

use encke_wire::date::{DATE_BYTES, imf_fixdate};
use http::HeaderValue;

/// The present second's date.
pub(crate) struct DateCache {
    second: u64,
    text: [u8; DATE_BYTES],
    /// The text for heads of HTTP/2, made when the first of them needs it.
    header_value: OnceCell<HeaderValue>,
}

impl DateCache {
    pub(crate) fn new(unix_s: u64) -> Self {
        Self { second: unix_s, text: imf_fixdate(unix_s), header_value: OnceCell::new() }
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

    /// The date as a field of HTTP/2; copies share their bytes.
    pub(crate) fn header_value(&self) -> HeaderValue {
        let make = || HeaderValue::from_bytes(&self.text).unwrap_or(HeaderValue::from_static(""));
        self.header_value.get_or_init(make).clone()
    }
}
