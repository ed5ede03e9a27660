//! The console of a server: its options and its start.

use std::io;
use std::sync::{Arc, Mutex};

use encke_server::ServerStatus;
use encke_wire::host::HostPattern;

use crate::audit::Audit;
use crate::history::History;
use crate::live::Ticker;
use crate::log_in::operator;
use crate::session::{ConsoleSessions, SessionLimits, SessionOpenError};
use crate::settings::{ConsoleUsers, SettingsControl, SettingsEditor};
use crate::shared::ConsoleShared;
use crate::worker::ConsoleThread;

/// The set-up of a console.
#[derive(Clone, Debug, Default)]
pub struct ConsoleOptions {
    /// The token of programs and of the first log-in; it has the role admin.
    pub token: Arc<str>,
    /// Whether the metrics need no token, and are served under every host name.
    pub metrics_open: bool,
    /// Names of this server. Without them only IP addresses and loopback names are accepted as the host of a request.
    pub hosts: Vec<HostPattern>,
    /// The users that may log in with a password.
    pub users: ConsoleUsers,
    /// Limits of sessions.
    pub limits: SessionLimits,
    /// Access to the settings; without it there are none to see.
    pub settings: Option<Arc<dyn SettingsControl>>,
}

/// The handler of the admin listener: health, metrics, the API, and the pages. Clones show the same console.
#[derive(Clone)]
pub struct Console {
    pub(crate) shared: Arc<ConsoleShared>,
}

impl Console {
    /// Starts the console of a server, with its threads.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(board: Arc<ServerStatus>, options: ConsoleOptions) -> io::Result<Self> {
        let ConsoleOptions { token, metrics_open, hosts, users, limits, settings } = options;
        let ticker = Arc::<Ticker>::default();
        let woken = Arc::clone(&ticker);
        board.on_drain(move || woken.quicken());
        let shared = Arc::new(ConsoleShared {
            board,
            token,
            metrics_open,
            hosts: hosts.into(),
            sessions: ConsoleSessions::new(users, limits),
            audit: Arc::<Audit>::default(),
            history: Mutex::new(History::new()),
            ticker: Arc::clone(&ticker),
            thread: ConsoleThread::start("console")?,
            passwords: ConsoleThread::start("console-log-in")?,
            settings: settings.map(|control| Mutex::new(SettingsEditor::new(control))),
        });
        ticker.start(Arc::downgrade(&shared))?;
        Ok(Self { shared })
    }

    /// Creates a one-time token, which opens a session of the role admin within ten minutes.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn login_token(&self) -> io::Result<String> {
        match self.shared.sessions.login_token(operator(), ConsoleShared::unix_ms()) {
            Ok((token, _)) => Ok(token),
            Err(SessionOpenError::Random(error)) => Err(error),
            Err(SessionOpenError::UserChanged) => unreachable!("an operator is no configured user"),
        }
    }

    /// Replaces the users, and the limits of later sessions. Open sessions of users that are gone, or have another role, end.
    pub fn set_users(&self, users: ConsoleUsers, limits: SessionLimits) {
        self.shared.sessions.set_users(users, limits);
    }
}
