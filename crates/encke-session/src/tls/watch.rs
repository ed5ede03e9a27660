//! Reads certificates again when their files have changed, without a restart or a signal.
//!
//! ```text
//!  known ──a check differs──► settling ──the next check is the same──► read ─┬─ valid ────► presented from now on
//!    ▲                         │    ▲                                        └─ invalid ──► logged; the old one stays
//!    │                         └────┘ differs again                                  │
//!    └───────────────────────────────────────────────────────────────────────────────┘
//! ```
//! The thread polls the files themselves, following links, and uses no notifications (inotify(7)). A link on the path may
//! change (certbot's `live` to `archive`, the `..data` of a mounted secret), and some file systems send no notifications. A
//! check is two calls of stat(2) a file, some 2 µs. Three files a listener and a check a second take 6 µs of a processor core.
//!
//! A certificate and its key are two files, which cannot be replaced atomically. A changed pair is therefore read only after
//! two consecutive checks see the same files. A program that writes both within the time between two checks is never warned of
//! an incomplete pair.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use encke_io::files::{FileId, id_of};

use super::TlsIdentity;
use encke_io::lock;
use encke_settings::{Level, TlsSettings, notice};

/// The state of files at a moment; `None` for a missing file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stamp(Vec<Option<Likeness>>);

/// The identity, the modification time and the length of the file at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Likeness {
    id: Option<FileId>,
    changed: Option<SystemTime>,
    bytes: u64,
}

impl Stamp {
    /// The state of all files that the settings name.
    pub(super) fn of(settings: &TlsSettings) -> Self {
        let look = |path: PathBuf| {
            let found = fs::metadata(&path).ok()?;
            Some(Likeness { id: id_of(&path), changed: found.modified().ok(), bytes: found.len() })
        };
        Self(settings.files().map(look).collect())
    }
}

/// A thread that polls certificate files.
pub struct CertWatcher {
    end: Arc<WatchEnd>,
    thread: JoinHandle<()>,
}

/// The request to end the thread, and the condition that wakes it.
#[derive(Default)]
struct WatchEnd {
    over: Mutex<bool>,
    bell: Condvar,
}

impl CertWatcher {
    /// Starts to poll the files of the identities that `identities` returns, once per `every`.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(
        every: Duration,
        identities: impl Fn() -> Vec<Arc<TlsIdentity>> + Send + 'static,
    ) -> io::Result<Self> {
        let end = Arc::new(WatchEnd::default());
        let ended = Arc::clone(&end);
        let thread = thread::Builder::new().name("certificates".into()).spawn(move || {
            let mut settling = Vec::new();
            while !ended.within(every) {
                settling = check_files(identities(), &settling);
            }
        })?;
        Ok(Self { end, thread })
    }

    /// Ends the thread, and waits for its end.
    pub fn stop(self) {
        *lock(&self.end.over) = true;
        self.end.bell.notify_one();
        // The panic hook has printed a panic of the thread, and nothing depends on it.
        let _ended = self.thread.join();
    }
}

impl WatchEnd {
    /// Waits for the end for at most `time`. Returns whether it was requested.
    fn within(&self, time: Duration) -> bool {
        let over = self.bell.wait_timeout_while(lock(&self.over), time, |over| !*over);
        *over.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// An identity whose files have changed, and their state at the last check.
type Settling = (Arc<TlsIdentity>, Stamp);

/// Checks each identity once. Reads those whose changed files are as at the last check; returns the other changed ones.
fn check_files(mut identities: Vec<Arc<TlsIdentity>>, before: &[Settling]) -> Vec<Settling> {
    // The IPv4 and IPv6 listeners of one address share an identity.
    identities.dedup_by(|one, other| Arc::ptr_eq(one, other));
    let mut settling = Vec::new();
    for identity in identities {
        let Some(stamp) = identity.changed() else { continue };
        if before.iter().any(|(other, last)| Arc::ptr_eq(other, &identity) && *last == stamp) {
            take(&identity);
        } else {
            settling.push((identity, stamp));
        }
    }
    settling
}

fn take(identity: &TlsIdentity) {
    let mut notes = Vec::new();
    match identity.reread(&mut notes) {
        Ok(()) => {
            let files: Vec<String> =
                identity.ends().iter().map(|(file, _)| file.display().to_string()).collect();
            notice::report(Level::Info, &format!("tls: reloaded the certificates {}", files.join(", ")));
        }
        Err(error) => {
            let text =
                format!("tls: keeping the old certificates, because the changed ones are invalid: {error}");
            notice::report(Level::Error, &text);
        }
    }
    for note in notes {
        notice::report(Level::Warn, &note);
    }
}
