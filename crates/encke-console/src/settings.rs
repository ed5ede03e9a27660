//! `[console]`: the users of the console, and whether it may edit the settings file.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use encke_rights::{PasswordFault, PasswordHash};
use encke_settings::{
    Contradiction, Period, Secret, SecretError, Section, ValueError, Written, quantity, written,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest as _, Sha256};

mod check_cache;
mod completion;
mod control;
mod difference;
mod editor;
mod file;
mod history;
mod masking;
mod patch;
mod scan;
mod shape;

pub(crate) use editor::{SettingsAnswer, SettingsCall, SettingsEditor};

pub use file::temporary_files;
pub use history::history_folder;
pub use masking::remember_secrets;

pub use control::{
    ApplyError, OverriddenSetting, RunningSettings, SettingsCheck, SettingsControl, SettingsProblem,
};

/// Maximum length of a user's name in bytes, that of other users (`encke-rights`).
pub(crate) const NAME_BYTES_MAX: usize = 256;
/// Names of users without settings: of one-time tokens, the admin token, and failed log-ins.
const RESERVED_NAMES: [&str; 3] = ["operator", "token", "-"];
/// The shortest session: time to read a page and to act.
const SESSION_MIN: Period = Period::seconds(60);
/// Maximum number of kept versions. With files of 1 MiB they take 1 GiB.
const HISTORY_MAX: u16 = 1_000;

/// `[console]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConsoleSettings {
    /// Whether users with the role `admin` may edit the settings file in the console. Such a user can then start programs
    /// (`[[app]]`) and read files with the rights of the server.
    pub edit: bool,
    /// Users of the console. Without any, only `server.admin.token` and the address that `encke serve` prints give access.
    pub user: Vec<ConsoleUser>,
    /// Time after the log-in at which a console session ends.
    pub session_time: Period,
    /// Failed attempts to log in per minute and client address, and as many requests with a wrong admin token. More are a 429. The
    /// address is that of the peer, or the one that a proxy in `server.trusted_proxies` reports. An IPv6 address counts with its
    /// /64.
    pub attempts: NonZeroU32,
    /// Number of versions of the settings file that the console keeps, from 1 to 1,000. They are stored in
    /// `settings-history` of `server.state_dir`, or without one in `.FILE.history` next to the settings file.
    #[serde(deserialize_with = "history")]
    #[schemars(range(min = 1, max = 1000))]
    pub history: u16,
}

impl Default for ConsoleSettings {
    fn default() -> Self {
        Self {
            edit: false,
            user: Vec::new(),
            session_time: Period::seconds(12 * 60 * 60),
            attempts: NonZeroU32::MIN.saturating_add(9),
            history: 20,
        }
    }
}

/// `[[console.user]]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsoleUser {
    /// The user's name, for the log-in and the audit log.
    pub name: String,
    /// Hash of the password: bcrypt (`htpasswd -nB NAME`, without the name), or SHA-crypt (`openssl passwd -6`).
    #[serde(default)]
    pub password: Option<Secret>,
    /// SHA-256 fingerprint of the user's client certificate, as `openssl x509 -noout -fingerprint -sha256` prints it.
    #[serde(default)]
    pub certificate: Option<CertFingerprint>,
    /// The rights of the user.
    #[serde(default)]
    pub role: ConsoleRole,
}

/// The rights of a user of the console.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConsoleRole {
    /// Read everything except secrets and the text of the settings file.
    #[default]
    View,
    /// Also act on connections, channels and upstreams, and edit the settings file if `edit` is set.
    Admin,
}

impl fmt::Display for ConsoleRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::View => "view",
            Self::Admin => "admin",
        })
    }
}

/// The SHA-256 digest of a certificate in DER.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CertFingerprint(pub [u8; 32]);

impl FromStr for CertFingerprint {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::invalid("fingerprint", text, Self::EXPECTED);
        let digits: Vec<u8> = text
            .chars()
            .filter(|letter| *letter != ':')
            .map(|letter| letter.to_digit(16).map(|digit| digit as u8))
            .collect::<Option<_>>()
            .ok_or_else(wrong)?;
        let (pairs, []) = digits.as_chunks::<2>() else { return Err(wrong()) };
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
        bytes.try_into().map(Self).map_err(|_| wrong())
    }
}

impl fmt::Display for CertFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02X}", if place > 0 { ":" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for CertFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Written for CertFingerprint {
    const NAME: &'static str = "CertFingerprint";
    const EXPECTED: &'static str = "expected 64 hexadecimal digits, with or without colons, as `openssl x509 -noout -fingerprint -sha256` prints them";
    const EXAMPLES: &'static [&'static str] =
        &["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"];
}

written! { CertFingerprint }

impl Section for ConsoleSettings {
    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let mut wrong = |path: &[&str], message: String| found.push(Contradiction::at(path, message));
        if self.session_time < SESSION_MIN {
            let text =
                format!("a session of {} would end before its first use: 1m or more", self.session_time);
            wrong(&["session_time"], text);
        }
        for (place, user) in self.user.iter().enumerate() {
            let (number, earlier) = (place.to_string(), &self.user[..place]);
            let name = &user.name;
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
                let text = format!(
                    "a user's name has 1 to {NAME_BYTES_MAX} bytes and no control characters: {name:?}"
                );
                wrong(&["user", &number, "name"], text);
            }
            if RESERVED_NAMES.contains(&name.as_str()) {
                let text =
                    format!("the name {name:?} stands for a user without settings: choose another one");
                wrong(&["user", &number, "name"], text);
            }
            if earlier.iter().any(|other| other.name == *name) {
                wrong(&["user", &number, "name"], format!("two users have the name {name:?}"));
            }
            if user.certificate.is_some() && earlier.iter().any(|other| other.certificate == user.certificate)
            {
                wrong(&["user", &number, "certificate"], "two users have the same certificate".into());
            }
            if user.password.is_none() && user.certificate.is_none() {
                let text = format!("the user {name:?} cannot log in: set password or certificate");
                wrong(&["user", &number], text);
            }
            if let Some(Secret::Text(hash)) = &user.password
                && let Err(fault) = PasswordHash::parse(hash)
            {
                wrong(
                    &["user", &number, "password"],
                    format!("console.user.password: the password hash {fault}"),
                );
            }
        }
        found
    }

    fn anchor(&mut self, folder: &Path) {
        for user in &mut self.user {
            if let Some(Secret::File(path)) = &mut user.password {
                *path = folder.join(&*path);
            }
        }
    }

    fn private_files(&self) -> Vec<PathBuf> {
        let file = |user: &ConsoleUser| match &user.password {
            Some(Secret::File(path)) => Some(path.clone()),
            _ => None,
        };
        self.user.iter().filter_map(file).collect()
    }
}

/// The users of the console, with their hashes read. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ConsoleUsers {
    users: Arc<[KnownUser]>,
    by_name: Arc<HashMap<String, usize>>,
    /// Chooses the hash for an unknown user.
    chooser: RandomState,
}

#[derive(Debug)]
struct KnownUser {
    name: Arc<str>,
    hash: Option<PasswordHash>,
    certificate: Option<CertFingerprint>,
    role: ConsoleRole,
    /// Digest of the role, the password's hash and the certificate.
    credentials: [u8; 32],
}

/// Why a user of the console has no password.
#[derive(Debug)]
pub struct ConsoleUserError {
    /// The index of the user in the settings.
    pub place: usize,
    /// The user's name.
    pub user: String,
    /// The cause.
    pub fault: ConsoleUserFault,
}

/// The cause of a [`ConsoleUserError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ConsoleUserFault {
    /// The file or the environment variable of the hash cannot be read.
    Secret(SecretError),
    /// The hash cannot be used.
    Hash(PasswordFault),
}

impl fmt::Display for ConsoleUserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "console.user {:?}: ", self.user)?;
        match &self.fault {
            ConsoleUserFault::Secret(error) => error.fmt(f),
            ConsoleUserFault::Hash(fault) => write!(f, "the password hash {fault}"),
        }
    }
}

impl Error for ConsoleUserError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.fault {
            ConsoleUserFault::Secret(error) => Some(error),
            ConsoleUserFault::Hash(_) => None,
        }
    }
}

impl ConsoleUsers {
    /// Reads the hashes of all users.
    ///
    /// # Errors
    /// The first hash that cannot be read, or has an unsupported scheme.
    pub fn read(settings: &ConsoleSettings) -> Result<Self, ConsoleUserError> {
        let mut users = Vec::new();
        for (place, user) in settings.user.iter().enumerate() {
            let wrong = |fault| ConsoleUserError { place, user: user.name.clone(), fault };
            let mut written = format!("{:?} {:?}", user.role, user.certificate);
            let hash = match &user.password {
                Some(secret) => {
                    let text = secret.reveal().map_err(|error| wrong(ConsoleUserFault::Secret(error)))?;
                    written.push_str(&text);
                    let hash =
                        PasswordHash::parse(&text).map_err(|fault| wrong(ConsoleUserFault::Hash(fault)))?;
                    Some(hash)
                }
                None => None,
            };
            users.push(KnownUser {
                name: user.name.as_str().into(),
                hash,
                certificate: user.certificate,
                role: user.role,
                credentials: Sha256::digest(written).into(),
            });
        }
        let by_name = users.iter().enumerate().map(|(place, user)| (user.name.to_string(), place)).collect();
        Ok(Self { users: users.into(), by_name: Arc::new(by_name), chooser: RandomState::new() })
    }

    /// Whether there are no users.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Returns the name and the role of a user with this password. An unknown user costs the same time as a known one, because
    /// the password is verified against the hash of another user. Takes 5 to 500 ms of a processor, so never call it on a
    /// worker.
    pub fn log_in(&self, name: &str, password: &[u8]) -> Option<(Arc<str>, ConsoleRole)> {
        let with_hash: Vec<&KnownUser> = self.users.iter().filter(|user| user.hash.is_some()).collect();
        let known = self.by_name.get(name).and_then(|place| self.users.get(*place));
        let known = known.filter(|user| user.hash.is_some());
        let other = || {
            let count = with_hash.len().max(1) as u64;
            with_hash.get((self.chooser.hash_one(name) % count) as usize).copied()
        };
        let user = known.or_else(other)?;
        let is_right = user.hash.as_ref().is_some_and(|hash| hash.verifies(password));
        (is_right & known.is_some()).then(|| (Arc::clone(&user.name), user.role))
    }

    /// Returns a digest of a user's role, password and certificate, which changes with each of them.
    pub(crate) fn credentials(&self, name: &str) -> Option<[u8; 32]> {
        self.by_name.get(name).and_then(|place| self.users.get(*place)).map(|user| user.credentials)
    }

    /// Returns the name and the role of the user with a client certificate.
    pub fn with_certificate(&self, fingerprint: &CertFingerprint) -> Option<(Arc<str>, ConsoleRole)> {
        let user = self.users.iter().find(|user| user.certificate.as_ref() == Some(fingerprint))?;
        Some((Arc::clone(&user.name), user.role))
    }
}

fn history<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    quantity::within(deserializer, 1, HISTORY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `openssl passwd -6 -salt saltsalt secret`
    const HASH: &str =
        "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1";

    fn user(name: &str, password: Option<Secret>) -> ConsoleUser {
        ConsoleUser { name: name.into(), password, certificate: None, role: ConsoleRole::Admin }
    }

    fn errors(user: Vec<ConsoleUser>) -> String {
        let settings = ConsoleSettings { user, ..ConsoleSettings::default() };
        settings.check().into_iter().map(|one| format!("{}: {}\n", one.path.join("."), one.message)).collect()
    }

    #[test]
    fn a_user_needs_a_name_of_its_own_and_a_way_to_log_in() {
        let hash = || Some(Secret::Text(HASH.into()));
        assert_eq!(errors(vec![user("ann", hash()), user("ben", hash())]), "");
        for (users, path, text) in [
            (vec![user("", hash())], "user.0.name", "1 to 256 bytes"),
            (vec![user("ann", hash()), user("ann", hash())], "user.1.name", "two users"),
            (vec![user("ann", None)], "user.0:", "set password or certificate"),
            (vec![user("ann", Some(Secret::Text("hunter2".into())))], "user.0.password", "openssl passwd -6"),
        ] {
            let found = errors(users);
            assert!(found.contains(path) && found.contains(text), "{found}");
            assert!(!found.contains("hunter2"), "the password is repeated: {found}");
        }
        let short = ConsoleSettings { session_time: Period::seconds(59), ..ConsoleSettings::default() };
        assert_eq!(short.check().len(), 1);
        assert!(ConsoleSettings::default().check().is_empty());
    }

    #[test]
    fn a_right_password_logs_in_and_every_other_does_not() {
        let settings = ConsoleSettings {
            user: vec![
                user("ann", Some(Secret::Text(HASH.into()))),
                ConsoleUser { certificate: Some(CertFingerprint([7; 32])), ..user("cert", None) },
            ],
            ..ConsoleSettings::default()
        };
        let users = ConsoleUsers::read(&settings).expect("a valid hash");
        assert_eq!(users.log_in("ann", b"secret"), Some(("ann".into(), ConsoleRole::Admin)));
        for (name, password) in [("ann", "Secret"), ("ben", "secret"), ("cert", "secret"), ("", "")] {
            assert_eq!(users.log_in(name, password.as_bytes()), None, "{name} {password}");
        }
        assert!(users.with_certificate(&CertFingerprint([7; 32])).is_some());
        assert!(users.with_certificate(&CertFingerprint([8; 32])).is_none());
        assert!(ConsoleUsers::default().log_in("ann", b"secret").is_none());
    }

    #[test]
    fn a_fingerprint_is_read_with_and_without_colons() {
        let plain = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let fingerprint: CertFingerprint = plain.parse().expect("64 digits");
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        assert!(fingerprint.to_string().starts_with("9F:86:"));
        for wrong in ["", "9f", "9f86d0", &plain[1..], &plain.replace('9', "x"), &format!("{plain}00")] {
            assert!(wrong.parse::<CertFingerprint>().is_err(), "{wrong}");
        }
    }
}
