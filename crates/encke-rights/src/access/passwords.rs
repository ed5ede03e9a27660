//! Password files: lines `USER:HASH`, comments and empty lines.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use bcrypt::HashParts;
use sha_crypt::{PasswordVerifier as _, ShaCrypt};

use super::error::{PasswordFault, PasswordFileError, RejectedScheme};
use crate::limits::{
    BCRYPT_COST_MAX, PASSWORD_FILE_BYTES_MAX, SHA_CRYPT_ROUNDS_MAX, SHA_CRYPT_ROUNDS_MIN, SUBJECT_BYTES_MAX,
};

/// Maximum length of a password in bytes. bcrypt reads 72; the time of SHA-crypt grows with the square of the length.
const PASSWORD_BYTES_MAX: usize = 256;

/// The users of a file, and their hashes. Never empty.
pub(crate) struct PasswordFile {
    entries: Vec<PasswordEntry>,
    /// The entries by user.
    places: HashMap<Arc<str>, usize>,
    /// Chooses the hash for an unknown user.
    chooser: RandomState,
}

struct PasswordEntry {
    user: Arc<str>,
    hash: PasswordHash,
}

/// The hash of a password in a supported scheme (bcrypt, SHA-crypt), checked for its form. Cheap to clone.
#[derive(Clone)]
pub struct PasswordHash(HashScheme);

#[derive(Clone)]
enum HashScheme {
    Bcrypt(Arc<str>),
    ShaCrypt(Arc<str>),
}

/// The scheme only, never the hash.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            HashScheme::Bcrypt(_) => "bcrypt",
            HashScheme::ShaCrypt(_) => "SHA-crypt",
        })
    }
}

/// A password to be verified, on any thread.
pub(crate) struct PasswordJob {
    hash: PasswordHash,
    is_known: bool,
}

impl PasswordFile {
    /// Reads a file.
    ///
    /// # Errors
    /// The first error of the file.
    pub(crate) fn read(path: &Path) -> Result<Self, PasswordFileError> {
        let whole = |fault| PasswordFileError { file: path.to_owned(), line: None, user: None, fault };
        let mut bytes = Vec::new();
        let read = encke_io::files::open_regular(path)
            .and_then(|file| file.take(PASSWORD_FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
        read.map_err(|error| whole(PasswordFault::Unreadable(error)))?;
        if bytes.len() as u64 > PASSWORD_FILE_BYTES_MAX {
            return Err(whole(PasswordFault::Large));
        }
        let text = String::from_utf8(bytes).map_err(|_| whole(PasswordFault::NotUtf8))?;
        Self::parse(&text).map_err(|(line, user, fault)| PasswordFileError {
            file: path.to_owned(),
            line,
            user: user.map(str::to_owned),
            fault,
        })
    }

    /// Parses the text of a file. An error has its line and its user.
    fn parse(text: &str) -> Result<Self, (Option<usize>, Option<&str>, PasswordFault)> {
        let mut file = Self { entries: Vec::new(), places: HashMap::new(), chooser: RandomState::new() };
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate().map(|(place, line)| (place + 1, line.trim_end())) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((user, rest)) = line.split_once(':') else {
                return Err((Some(number), None, PasswordFault::NoColon));
            };
            if user.is_empty() || user.len() > SUBJECT_BYTES_MAX || user.chars().any(char::is_control) {
                return Err((Some(number), None, PasswordFault::User));
            }
            let wrong = |fault| (Some(number), Some(user), fault);
            if let Some(earlier) = file.places.get(user) {
                return Err(wrong(PasswordFault::Duplicate(lines[*earlier])));
            }
            // A third field is a comment.
            let hash = rest.split(':').next().unwrap_or_default();
            let hash = PasswordHash::parse(hash).map_err(wrong)?;
            let user: Arc<str> = user.into();
            file.places.insert(Arc::clone(&user), file.entries.len());
            file.entries.push(PasswordEntry { user, hash });
            lines.push(number);
        }
        if file.entries.is_empty() { Err((None, None, PasswordFault::Empty)) } else { Ok(file) }
    }

    /// The name of a user, if the file has it.
    pub(crate) fn user(&self, user: &str) -> Option<Arc<str>> {
        self.places.get(user).map(|place| Arc::clone(&self.entries[*place].user))
    }

    /// Returns the job that verifies a user's password. An unknown user gets the hash of another one, always the same, so that
    /// the time of the job does not depend on whether the file has the user.
    pub(crate) fn job(&self, user: &str) -> PasswordJob {
        let place = self.places.get(user).copied();
        let other = || (self.chooser.hash_one(user) % self.entries.len() as u64) as usize;
        let entry = &self.entries[place.unwrap_or_else(other)];
        PasswordJob { hash: entry.hash.clone(), is_known: place.is_some() }
    }
}

impl PasswordJob {
    /// Whether the password is right. Takes a long time.
    pub(crate) fn run(&self, password: &[u8]) -> bool {
        // Not `&&`: an unknown user must cost a hash, too.
        self.hash.verifies(password) & self.is_known
    }
}

impl PasswordHash {
    /// Recognizes a hash, and checks its form.
    ///
    /// # Errors
    /// The scheme is not supported, its cost is outside of the limits, or the hash is damaged.
    pub fn parse(text: &str) -> Result<Self, PasswordFault> {
        match text.strip_prefix('$').and_then(|rest| rest.split_once('$')) {
            Some(("2a" | "2b" | "2y", _)) => {
                let parts: HashParts = text.parse().map_err(|_| PasswordFault::Damaged)?;
                match parts.get_cost() {
                    4..=BCRYPT_COST_MAX => Ok(Self(HashScheme::Bcrypt(text.into()))),
                    cost => Err(PasswordFault::Cost(cost)),
                }
            }
            Some(("5", rest)) => Self::parse_sha(text, rest, 43),
            Some(("6", rest)) => Self::parse_sha(text, rest, 86),
            Some(("apr1", _)) => Err(PasswordFault::Scheme(RejectedScheme::Apr1)),
            Some(("1", _)) => Err(PasswordFault::Scheme(RejectedScheme::Md5)),
            Some(("2" | "2x", _)) => Err(PasswordFault::Scheme(RejectedScheme::OldBcrypt)),
            Some(_) => Err(PasswordFault::Scheme(RejectedScheme::Other)),
            None if text.starts_with("{SHA}") || text.starts_with("{SSHA}") => {
                Err(PasswordFault::Scheme(RejectedScheme::Sha1))
            }
            None if text.len() == 13 && text.bytes().all(is_crypt64) => {
                Err(PasswordFault::Scheme(RejectedScheme::Des))
            }
            None => Err(PasswordFault::Scheme(RejectedScheme::Plain)),
        }
    }

    /// Checks the rest of a SHA-crypt hash: `[rounds=N$]SALT$HASH`.
    fn parse_sha(text: &str, rest: &str, hash_len: usize) -> Result<Self, PasswordFault> {
        let (rounds, rest) = match rest.strip_prefix("rounds=") {
            Some(rest) => {
                let (rounds, rest) = rest.split_once('$').ok_or(PasswordFault::Damaged)?;
                (rounds.parse().map_err(|_| PasswordFault::Rounds)?, rest)
            }
            None => (SHA_CRYPT_ROUNDS_MIN, rest),
        };
        if !(SHA_CRYPT_ROUNDS_MIN..=SHA_CRYPT_ROUNDS_MAX).contains(&rounds) {
            return Err(PasswordFault::Rounds);
        }
        let (salt, hash) = rest.split_once('$').ok_or(PasswordFault::Damaged)?;
        let is_whole = hash.len() == hash_len && hash.bytes().all(is_crypt64) && salt.bytes().all(is_crypt64);
        if is_whole { Ok(Self(HashScheme::ShaCrypt(text.into()))) } else { Err(PasswordFault::Damaged) }
    }

    /// Whether the password is right. Takes 5 to 500 ms of a processor, so never call it on a worker.
    pub fn verifies(&self, password: &[u8]) -> bool {
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        match &self.0 {
            HashScheme::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            HashScheme::ShaCrypt(hash) => ShaCrypt::default().verify_password(password, &**hash).is_ok(),
        }
    }
}

/// The alphabet of crypt(3).
fn is_crypt64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'/'
}
