//! Ids of requests, for the log and by choice for the client.
//!
//! ```text
//! 019f0c2d7a1e  9b3c0d5e7f21  003  0002a
//! time, in ms   process       │    a request of this millisecond
//!               at random     worker
//! ```
//! A trusted proxy may have given the request an id in `X-Request-Id`. It replaces the own one, so that the logs of both have the
//! same id. The field of any other client is ignored.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::sync::OnceLock;

/// Length of an own id in bytes.
pub(crate) const ID_BYTES: usize = 32;
/// Length of the part that all ids of a worker share.
pub(crate) const PREFIX_BYTES: usize = 15;
/// Maximum length in bytes of an id from a proxy: a UUID has 36, a trace context 55.
const GIVEN_BYTES_MAX: usize = 128;
/// Numbers within a millisecond: a worker serves some 100 requests in it.
const NUMBERS: u32 = 1 << 20;

/// The part of an id that names process and worker.
pub(crate) type IdPrefix = [u8; PREFIX_BYTES];

/// The prefix before a worker has set its own.
pub(crate) const NO_PREFIX: IdPrefix = [b'0'; PREFIX_BYTES];

/// The source of a worker's ids.
pub(crate) struct RequestIds {
    prefix: IdPrefix,
    last: u32,
}

impl RequestIds {
    pub(crate) fn new(worker: usize) -> Self {
        static PROCESS: OnceLock<u64> = OnceLock::new();
        let process = PROCESS.get_or_init(|| RandomState::new().hash_one(0)) & 0xffff_ffff_ffff;
        let text = format!("{process:012x}{:03x}", worker & 0xfff);
        let mut prefix = NO_PREFIX;
        prefix.copy_from_slice(text.as_bytes());
        Self { prefix, last: 0 }
    }

    pub(crate) fn prefix(&self) -> IdPrefix {
        self.prefix
    }

    /// Returns the number of a new id.
    pub(crate) fn next(&mut self) -> NonZeroU32 {
        self.last = self.last % (NUMBERS - 1) + 1;
        NonZeroU32::MIN.saturating_add(self.last - 1)
    }
}

/// Returns the id with this number.
pub(crate) fn id(prefix: &IdPrefix, unix_ns: u64, number: NonZeroU32) -> [u8; ID_BYTES] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut id = [0; ID_BYTES];
    let mut put = |at: usize, digits: usize, value: u64| {
        for (place, byte) in id[at..at + digits].iter_mut().enumerate() {
            *byte = HEX[(value >> (4 * (digits - 1 - place)) & 0xf) as usize];
        }
    };
    put(0, 12, unix_ns / 1_000_000);
    put(12 + PREFIX_BYTES, 5, u64::from(number.get()));
    id[12..12 + PREFIX_BYTES].copy_from_slice(prefix);
    id
}

/// Returns the number of an id of this process.
pub(crate) fn number(id: &[u8]) -> Option<NonZeroU32> {
    let digits = id.get(12 + PREFIX_BYTES..ID_BYTES)?;
    NonZeroU32::new(u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?)
}

/// Whether a value is an id that a proxy may give: at most 128 letters, digits and `-._~+/=:@`.
pub(crate) fn is_id(value: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=:@".contains(byte);
    (1..=GIVEN_BYTES_MAX).contains(&value.len()) && value.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_time_process_worker_and_number() {
        let mut ids = RequestIds::new(3);
        let numbers: Vec<u32> = (0..3).map(|_| ids.next().get()).collect();
        assert_eq!(numbers, [1, 2, 3]);
        let number = ids.next();
        let text = id(&ids.prefix(), 1_795_296_363_042_999_999, number);
        let text = std::str::from_utf8(&text).expect("ASCII");
        assert_eq!(&text[..12], format!("{:012x}", 1_795_296_363_042_u64));
        assert_eq!(&text[24..], "00300004");
        assert_eq!(super::number(text.as_bytes()), Some(number));
        assert_eq!(ids.prefix()[..12], RequestIds::new(0).prefix()[..12], "one process");
        ids.last = NUMBERS - 1;
        assert_eq!(ids.next().get(), 1, "five digits");
    }

    #[test]
    fn an_id_of_a_proxy_is_short_and_harmless() {
        for (value, expected) in [
            ("7f3a", true),
            ("0b7c2a54-6d0e-4a53-9f3e-2f6d8f1c9a10", true),
            ("Root=1-67891233-abcdef012345678912345678", true),
            ("", false),
            ("a b", false),
            ("a;b", false),
            ("é", false),
        ] {
            assert_eq!(is_id(value.as_bytes()), expected, "{value:?}");
        }
        assert!(is_id(&[b'a'; 128]) && !is_id(&[b'a'; 129]));
    }
}
