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

/// Limit of a password file, in bytes: about 12,000 users with a bcrypt hash.
pub(crate) const PASSWORD_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Limit of a password, in bytes: the time of SHA-crypt grows with the square of the length. bcrypt uses the first 72 bytes.
pub(crate) const PASSWORD_BYTES_MAX: usize = 512;

/// Maximum cost of a bcrypt hash, as in htpasswd. A cost of 17 takes some 10 s per password.
pub(crate) const BCRYPT_COST_MAX: u32 = 17;

/// Rounds of a SHA-crypt hash. Fewer are not allowed by the scheme; more than ten million take over 10 s per password.
pub(crate) const SHA_CRYPT_ROUNDS_MIN: u32 = 1_000;
pub(crate) const SHA_CRYPT_ROUNDS_MAX: u32 = 10_000_000;

/// Limit of verified credentials that a worker caches, and of rejected ones: an entry takes some 80 bytes.
pub(crate) const CREDENTIALS_CACHED_MAX: usize = 1_000;

/// Limit of answers of an application (`[[access]] ask`) that a worker caches: an entry takes some 500 bytes.
pub(crate) const ANSWERS_CACHED_MAX: usize = 1_000;

/// Limit of credentials that wait for verification on a worker, and of those from one address (of IPv6 a /64). Addresses are served
/// in turn: at 100 ms per hash an address waits for 0.1 s for each other one, and the last of its own for 1.6 s more.
pub(crate) const CREDENTIALS_WAITING_MAX: usize = 256;
pub(crate) const CREDENTIALS_WAITING_PER_ADDRESS_MAX: usize = 16;
