//! Limits of keys and tokens.

/// Limit of keys: each token is tried with every key that has no `kid`.
pub(crate) const KEYS_MAX: usize = 64;

/// Limit of a key file, in bytes: 64 keys take about 16 KiB.
pub(crate) const KEY_FILE_BYTES_MAX: u64 = 256 * 1024;

/// HS256 needs a secret at least as long as its digest (RFC 7518 §3.2).
pub(crate) const SECRET_BYTES_MIN: usize = 32;

/// Limit of static tokens: a token that the worker has not cached is compared with all of them.
pub(crate) const TOKENS_MAX: usize = 1024;

/// Minimum length of a static token: 16 hexadecimal digits are 64 bits, too many to guess over a network.
pub(crate) const STATIC_TOKEN_BYTES_MIN: usize = 16;

/// Limit of a token in bytes. Cookies end at 4 KiB, and 8 KiB name about 200 channels.
pub(crate) const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Limit of a user's name in bytes. All members of a channel see it.
pub(crate) const SUBJECT_BYTES_MAX: usize = 256;
