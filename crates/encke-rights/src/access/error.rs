//! Errors of access rules and of password files. All of them are permanent until the settings or a file change.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use encke_session::tls::TlsError;
use encke_wire::host::HostPatternError;
use encke_wire::path_pattern::PathPatternError;

use crate::limits::{BCRYPT_COST_MAX, PASSWORD_FILE_BYTES_MAX, SHA_CRYPT_ROUNDS_MAX, SHA_CRYPT_ROUNDS_MIN};

/// Why settings give no access rules. The number of a rule begins at 1.
#[derive(Debug)]
#[non_exhaustive]
pub enum AccessError {
    /// Settings: a host of a rule is invalid.
    Host(usize, HostPatternError),
    /// Settings: the pattern of a rule is invalid.
    Pattern(usize, PathPatternError),
    /// File: the passwords of a rule cannot be used.
    Passwords(usize, PasswordFileError),
    /// File: the authorities of an application (`ask_ca`) cannot be used.
    Ask(usize, TlsError),
    /// System: there are no random bytes for the digests of credentials.
    Random(io::Error),
}

/// Why a password file cannot be used.
#[derive(Debug)]
pub struct PasswordFileError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; `None` for an error of the whole file.
    pub line: Option<usize>,
    /// The user of the line, if it has one.
    pub user: Option<String>,
    /// The cause.
    pub fault: PasswordFault,
}

/// The cause of a [`PasswordFileError`]. No variant contains a hash or a password.
#[derive(Debug)]
#[non_exhaustive]
pub enum PasswordFault {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The file is too large.
    Large,
    /// The file is not UTF-8.
    NotUtf8,
    /// The file has no entries.
    Empty,
    /// The line has no colon.
    NoColon,
    /// The user's name is empty, too long, or has control characters.
    User,
    /// The user has an entry in an earlier line, with this number.
    Duplicate(usize),
    /// The hash has a scheme that Encke does not support.
    Scheme(RejectedScheme),
    /// The hash is incomplete or damaged.
    Damaged,
    /// The cost of the bcrypt hash is not between 4 and the maximum.
    Cost(u32),
    /// The number of rounds of the SHA-crypt hash is outside of the limits.
    Rounds,
}

/// A scheme of password hashes that Encke does not support.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RejectedScheme {
    /// `$apr1$`, the default of older versions of htpasswd.
    Apr1,
    /// `$1$`.
    Md5,
    /// `{SHA}` and `{SSHA}`.
    Sha1,
    /// `$2$` and `$2x$`, versions of bcrypt with known defects.
    OldBcrypt,
    /// crypt(3): DES.
    Des,
    /// Another scheme in dollar signs.
    Other,
    /// No scheme: probably the password itself.
    Plain,
}

impl RejectedScheme {
    /// The scheme's name in errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apr1 => "$apr1$ (MD5)",
            Self::Md5 => "$1$ (MD5)",
            Self::Sha1 => "{SHA} (SHA-1)",
            Self::OldBcrypt => "an old version of bcrypt ($2$, $2x$)",
            Self::Des => "crypt(3) (DES)",
            Self::Other => "a scheme that is not supported",
            Self::Plain => "no scheme, as plain text",
        }
    }
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(number, error) => write!(f, "access, number {number}: host: {error}"),
            Self::Pattern(number, error) => write!(f, "access, number {number}: pattern: {error}"),
            Self::Passwords(number, error) => write!(f, "access, number {number}: {error}"),
            Self::Ask(number, error) => write!(f, "access, number {number}: ask_ca: {error}"),
            Self::Random(error) => write!(f, "no random bytes: {error}"),
        }
    }
}

impl fmt::Display for PasswordFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, user, fault } = self;
        let file = file.display();
        write!(f, "password file {file}")?;
        if let Some(line) = line {
            write!(f, ":{line}")?;
        }
        let user = user.as_deref().unwrap_or("USER");
        match fault {
            PasswordFault::Unreadable(error) if error.kind() == io::ErrorKind::NotFound => {
                write!(f, ": {error}: create it with `htpasswd -cB {file} USER`")
            }
            PasswordFault::Unreadable(error) => {
                write!(f, ": {error}: the user that Encke runs as must be able to read it")
            }
            PasswordFault::Large => {
                write!(f, ": larger than {} MiB: expected lines USER:HASH", PASSWORD_FILE_BYTES_MAX >> 20)
            }
            PasswordFault::NotUtf8 => f.write_str(": not UTF-8: expected lines USER:HASH"),
            PasswordFault::Empty => {
                write!(f, ": no entries, so no client could pass: add one with `htpasswd -B {file} USER`")
            }
            PasswordFault::NoColon => {
                write!(f, ": no colon: expected USER:HASH, as `htpasswd -B {file} USER` writes it")
            }
            PasswordFault::User => {
                f.write_str(": invalid user name: expected 1 to 256 bytes without control characters")
            }
            PasswordFault::Duplicate(earlier) => {
                write!(f, ": the user {user:?} is already in line {earlier}: remove one of the lines")
            }
            PasswordFault::Scheme(scheme) => write!(
                f,
                ": the password of {user:?} is stored with {}: replace it with `htpasswd -B {file} {user}`, or replace the \
                 hash with the output of `openssl passwd -6`",
                scheme.name()
            ),
            PasswordFault::Damaged => write!(
                f,
                ": the hash of {user:?} is damaged: replace it with `htpasswd -B {file} {user}`, or with the output of \
                 `openssl passwd -6`"
            ),
            PasswordFault::Cost(cost) => write!(
                f,
                ": the hash of {user:?} has a cost of {cost}: expected 4 to {BCRYPT_COST_MAX}, as from `htpasswd -B -C 10 {file} \
                 {user}`"
            ),
            PasswordFault::Rounds => write!(
                f,
                ": the hash of {user:?} has an invalid number of rounds: expected {SHA_CRYPT_ROUNDS_MIN} to \
                 {SHA_CRYPT_ROUNDS_MAX}; `openssl passwd -6` uses 5000"
            ),
        }
    }
}

/// The fault of a hash alone, as the end of a sentence that begins with "the password hash".
impl fmt::Display for PasswordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const REMEDY: &str = "use the output of `openssl passwd -6`";
        match self {
            Self::Unreadable(error) => write!(f, "cannot be read: {error}"),
            Self::Large => f.write_str("is too large"),
            Self::NotUtf8 => f.write_str("is not UTF-8"),
            Self::Empty => f.write_str("is empty"),
            Self::NoColon => f.write_str("has no colon"),
            Self::User => f.write_str("belongs to an invalid user name"),
            Self::Duplicate(earlier) => write!(f, "belongs to a user of line {earlier}"),
            Self::Scheme(scheme) => write!(f, "has {}: {REMEDY}", scheme.name()),
            Self::Damaged => write!(f, "is damaged: {REMEDY}"),
            Self::Cost(cost) => {
                write!(f, "has a cost of {cost}, but 4 to {BCRYPT_COST_MAX} are allowed: {REMEDY}")
            }
            Self::Rounds => write!(
                f,
                "has an invalid number of rounds, but {SHA_CRYPT_ROUNDS_MIN} to {SHA_CRYPT_ROUNDS_MAX} are allowed: {REMEDY}"
            ),
        }
    }
}

impl Error for AccessError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Host(_, error) => Some(error),
            Self::Pattern(_, error) => Some(error),
            Self::Passwords(_, error) => Some(error),
            Self::Ask(_, error) => Some(error),
            Self::Random(error) => Some(error),
        }
    }
}

impl Error for PasswordFileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.fault {
            PasswordFault::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}
