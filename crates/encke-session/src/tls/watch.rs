//! Certificates whose files have changed are taken by themselves, without a restart or a signal.
//!
//! ```text
//!  known ──a look differs──► settling ──the next look is the same──► read ─┬─ holds ──────► shown from now on
//!    ▲                        │    ▲                                       └─ does not ───► told; the old one stays
//!    │                        └────┘ differs again                                 │
//!    └─────────────────────────────────────────────────────────────────────────────┘
//! ```
//! It looks at the files themselves, links followed, and is told of nothing (inotify(7)): what changes may be a link on the
//! way (certbot's `live` to `archive`, the `..data` of a mounted secret), or lie on a file system that sends no notices. A look
//! is two calls of stat(2) a file, some 2 µs; three files a listener and a look a second are 6 µs of a core.
//!
//! A certificate and its key are two files, and nobody can change both at once. So one that differs is read when two
//! looks in a row have seen the same: who writes both within the time between two looks is never told of half a pair.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use encke_io::files::{FileId, id_of};

use super::Identity;
use encke_io::lock;
use encke_settings::{Level, TlsSettings, notice};

/// What files were like at a moment; `None`: one was not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stamp(Vec<Option<Likeness>>);

/// Which file a path led to, when that was changed, and how long it was.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Likeness {
    id: Option<FileId>,
    changed: Option<SystemTime>,
    bytes: u64,
}

impl Stamp {
    /// Of all files that these settings name.
    pub(super) fn of(settings: &TlsSettings) -> Self {
        let look = |path: PathBuf| {
            let found = fs::metadata(&path).ok()?;
            Some(Likeness { id: id_of(&path), changed: found.modified().ok(), bytes: found.len() })
        };
        Self(settings.files().map(look).collect())
    }
}

/// Looks at the files of certificates, on a thread of its own.
pub struct Watch {
    end: Arc<End>,
    thread: JoinHandle<()>,
}

/// Whether it is over, and the bell that says so.
#[derive(Default)]
struct End {
    over: Mutex<bool>,
    bell: Condvar,
}

impl Watch {
    /// Begins to look, `every` so often, at the files of whatever `identities` returns.
    ///
    /// # Errors
    /// The system has no room for another thread.
    pub fn start(
        every: Duration,
        identities: impl Fn() -> Vec<Arc<Identity>> + Send + 'static,
    ) -> io::Result<Self> {
        let end = Arc::new(End::default());
        let ended = Arc::clone(&end);
        let thread = thread::Builder::new().name("certificates".into()).spawn(move || {
            let mut settling = Vec::new();
            while !ended.within(every) {
                settling = look(identities(), &settling);
            }
        })?;
        Ok(Self { end, thread })
    }

    /// Ends it, and waits for that.
    pub fn stop(self) {
        *lock(&self.end.over) = true;
        self.end.bell.notify_one();
        // A panic in it has been printed, and nothing depends on it.
        let _ended = self.thread.join();
    }
}

impl End {
    /// Whether it comes within that time.
    fn within(&self, time: Duration) -> bool {
        let over = self.bell.wait_timeout_while(lock(&self.over), time, |over| !*over);
        *over.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// An identity whose files differ from what was read, and what they were like at the last look.
type Settling = (Arc<Identity>, Stamp);

/// Looks at each once. Takes those which are as they were at the last look; returns the others that differ.
fn look(mut identities: Vec<Arc<Identity>>, before: &[Settling]) -> Vec<Settling> {
    // Both families of an address share one.
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

fn take(identity: &Identity) {
    let mut notes = Vec::new();
    match identity.reread(&mut notes) {
        Ok(()) => {
            let files: Vec<String> =
                identity.ends().iter().map(|(file, _)| file.display().to_string()).collect();
            notice::report(Level::Info, &format!("tls: certificates read again: {}", files.join(", ")));
        }
        Err(error) => {
            let text = format!("certificates have changed and are refused; the old ones stay: {error}");
            notice::report(Level::Error, &text);
        }
    }
    for note in notes {
        notice::report(Level::Warn, &note);
    }
}
