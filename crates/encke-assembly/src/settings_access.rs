//! The settings of a running server for its console: what is in force, the check of a text, and reloads on request.
//!
//! ```text
//!  console's thread: apply ─► queue, wake (SIGHUP) ─┐                              ┌─► result ─► console's thread
//!  operator: kill -HUP ─────────────────────────────┴─► main thread: begin ─► reload ─┴─► finish
//! ```
//! A request gets the result of a reload that began after it was queued, whoever caused that reload.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use encke_console::{
    ApplyError, OverriddenSetting, RunningSettings, SettingsCheck, SettingsControl, SettingsProblem,
    remember_secrets,
};
use encke_io::lock;
use encke_settings::{Problems, SourceLine, SourceMap};
use serde_json::Value;

use crate::reload_figures::ReloadFigures;
use crate::settings::{Settings, schema};

/// Time in which a reload must begin. Another reload may have to end first: it resolves names and reads certificates.
const BEGIN_PATIENCE: Duration = Duration::from_secs(30);

/// The result of a reload: warnings, or the reason why the settings in force stay.
pub type ReloadResult = Result<Vec<String>, ApplyError>;

/// Applies the flags of the command line to settings that were read from the file. An error is a message for the user.
type CommandLineFlags = dyn Fn(Settings) -> Result<Settings, FlagConflict> + Send + Sync;

/// The settings contradict the flags of the command line: the message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlagConflict(pub String);

impl fmt::Display for FlagConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FlagConflict {}

/// Access to the settings of a running server. [`SettingsControl`] is the console's side.
pub struct SettingsAccess {
    /// The settings file as passed to the program.
    shown: PathBuf,
    flags: Box<CommandLineFlags>,
    overridden: Vec<OverriddenSetting>,
    /// Wakes the thread that reloads; `None` if the program does not reload.
    wake: Option<Box<dyn Fn() + Send + Sync>>,
    state: Mutex<AccessState>,
    figures: Arc<ReloadFigures>,
}

struct AccessState {
    /// The settings at the start of the process.
    started: Settings,
    running: Settings,
    /// The requests whose reload has not begun.
    queue: Vec<(u64, SyncSender<ReloadResult>)>,
    next: u64,
    is_closed: bool,
}

/// The requests that a reload answers. Dropping it answers that the server is stopping.
pub struct ReloadRequests {
    requests: Vec<SyncSender<ReloadResult>>,
    figures: Arc<ReloadFigures>,
}

impl ReloadRequests {
    /// Counts the reload, and responds to all requests.
    pub fn finish(self, result: &ReloadResult) {
        self.figures.count(result, self.requests.is_empty());
        for request in self.requests {
            // The channel has room for the one result.
            let _gone = request.try_send(result.clone());
        }
    }
}

/// Conceals the secrets in these settings in everything that leaves the program. Call this before the settings are used.
pub(crate) fn conceal_secrets(settings: &Settings) {
    // A struct of numbers, texts and maps with text keys is always JSON.
    remember_secrets(&serde_json::to_value(settings).unwrap_or(Value::Null), &schema());
}

impl fmt::Debug for SettingsAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettingsAccess").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl SettingsAccess {
    /// Creates the access for a program that does not reload its settings.
    pub fn fixed(settings: &Settings) -> Self {
        Self::with(settings, PathBuf::new(), Ok, Vec::new(), None)
    }

    /// Creates the access for a program that reloads its settings. `shown` is the settings file as passed to the program, `flags`
    /// applies the command line to the settings of a file, and `overridden` lists the keys that it changes. `wake` makes the
    /// program call [`SettingsAccess::begin`] and reload.
    pub fn new(
        settings: &Settings,
        shown: &Path,
        flags: impl Fn(Settings) -> Result<Settings, FlagConflict> + Send + Sync + 'static,
        overridden: Vec<OverriddenSetting>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self::with(settings, shown.to_owned(), flags, overridden, Some(Box::new(wake)))
    }

    fn with(
        settings: &Settings,
        shown: PathBuf,
        flags: impl Fn(Settings) -> Result<Settings, FlagConflict> + Send + Sync + 'static,
        overridden: Vec<OverriddenSetting>,
        wake: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Self {
        conceal_secrets(settings);
        let state = AccessState {
            started: settings.clone(),
            running: settings.clone(),
            queue: Vec::new(),
            next: 0,
            is_closed: false,
        };
        let figures = Arc::default();
        Self { shown, flags: Box::new(flags), overridden, wake, state: Mutex::new(state), figures }
    }

    fn state(&self) -> MutexGuard<'_, AccessState> {
        lock(&self.state)
    }

    /// Takes the requests for the reload that begins now. Call it before the settings file is read.
    pub fn begin(&self) -> ReloadRequests {
        let requests = self.state().queue.drain(..).map(|(_, request)| request).collect();
        ReloadRequests { requests, figures: Arc::clone(&self.figures) }
    }

    /// Rejects all further requests, because the server stops.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.queue.clear();
    }

    /// The metrics of reloads.
    pub(crate) fn figures(&self) -> Arc<ReloadFigures> {
        Arc::clone(&self.figures)
    }

    /// Sets the settings in force.
    pub(crate) fn set_running(&self, settings: &Settings) {
        self.state().running = settings.clone();
    }

    /// Reads a text as a start would.
    fn read(&self, text: &str, path: &Path) -> Result<Settings, Vec<SettingsProblem>> {
        let settings =
            Settings::parse_file(&self.shown, path, text).map_err(|problems| located(&problems))?;
        (self.flags)(settings).map_err(|error| vec![unlocated(error.to_string())])
    }

    /// Whether a start with these settings would differ from the settings in force.
    fn differs(&self, new: &Settings, running: &Settings) -> bool {
        let plain = |settings: &Settings| Settings {
            text: None,
            notes: Vec::new(),
            // The program adds them at the start and at a reload; no text has them.
            keys: Vec::new(),
            source: SourceMap::default(),
            ..settings.clone()
        };
        let mut new = plain(new);
        // The certificates of the local authority are added at the start only.
        if self.overridden.iter().any(|one| one.by == SELF_SIGNED) {
            new.server.listen.clone_from(&running.server.listen);
        }
        new != plain(running)
    }
}

/// The flag that adds certificates to all listeners.
const SELF_SIGNED: &str = "--tls-self-signed";

impl SettingsControl for SettingsAccess {
    fn running(&self) -> RunningSettings {
        let (started, running) = {
            let state = self.state();
            (state.started.clone(), state.running.clone())
        };
        let fixed = "this program does not reload its settings";
        RunningSettings {
            // A struct of numbers, texts and maps with text keys is always JSON.
            values: serde_json::to_value(&running).unwrap_or(Value::Null),
            set: set(&running),
            waiting_for_start: waiting(&started, &running),
            warnings: running.warnings().iter().map(ToString::to_string).collect(),
            overridden: self.overridden.clone(),
            fixed: self.wake.is_none().then(|| fixed.to_owned()),
            file: running.file,
            text: running.text.map(|text| text.to_string()),
            included: running.included,
            console: running.console,
            // The directory of the versions does not move before the next start.
            state_dir: started.server.state_dir,
        }
    }

    fn schema(&self) -> Value {
        schema()
    }

    fn check(&self, text: &str, files: bool) -> SettingsCheck {
        let (started, running) = {
            let state = self.state();
            (state.started.clone(), state.running.clone())
        };
        let path = running.file.clone().unwrap_or_default();
        let settings = match self.read(text, &path) {
            Ok(settings) => settings,
            Err(problems) => return SettingsCheck { problems, differs: true, ..SettingsCheck::default() },
        };
        let mut notes = Vec::new();
        let errors = if files { settings.file_errors(&mut notes) } else { Vec::new() };
        let included: Vec<String> = settings.included_names(&self.shown);
        let placed = |place: Option<SourceLine>, message: String, is_error| {
            let at = place.as_ref().map(|place| (place.line as usize, place.column as usize));
            let file = place.map(|place| place.file.to_string()).filter(|file| included.contains(file));
            SettingsProblem { file, start: at, end: at, is_error, ..unlocated(message) }
        };
        let mut problems: Vec<SettingsProblem> =
            errors.into_iter().map(|error| placed(error.place, error.message, true)).collect();
        problems.extend(
            settings.warnings().into_iter().map(|warning| placed(warning.place, warning.message, false)),
        );
        problems.extend(notes.into_iter().map(|note| placed(None, note, false)));
        problems.sort_by_key(|problem| (problem.file.clone(), problem.start));
        SettingsCheck {
            problems,
            waiting_for_start: waiting(&started, &settings),
            set: set(&settings),
            differs: self.differs(&settings, &running),
        }
    }

    fn apply(&self) -> ReloadResult {
        let Some(wake) = &self.wake else {
            return Err(ApplyError::Fixed("this program does not reload its settings".into()));
        };
        let (request, result) = sync_channel(1);
        let number = {
            let mut state = self.state();
            if state.is_closed {
                return Err(ApplyError::Stopping);
            }
            let number = state.next;
            state.next += 1;
            state.queue.push((number, request));
            number
        };
        wake();
        match result.recv_timeout(BEGIN_PATIENCE) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => Err(ApplyError::Stopping),
            Err(RecvTimeoutError::Timeout) => {
                {
                    let mut state = self.state();
                    if let Some(place) = state.queue.iter().position(|(other, _)| *other == number) {
                        state.queue.remove(place);
                        return Err(ApplyError::Busy);
                    }
                }
                // It has begun, so its result decides whether the file stays.
                result.recv().unwrap_or(Err(ApplyError::Stopping))
            }
        }
    }
}

/// The paths of the keys in the file.
fn set(settings: &Settings) -> Vec<String> {
    settings.source.paths().map(str::to_owned).collect()
}

/// The keys of `new` that differ from those at the start, and take effect at the next start.
fn waiting(started: &Settings, new: &Settings) -> Vec<String> {
    let mut keys = started.waiting_for_start(new);
    if started.server.admin != new.server.admin {
        keys.push("server.admin".into());
    }
    keys.extend(started.listeners_waiting_for_start(new));
    keys
}

/// The problems of a text, with their positions.
fn located(problems: &Problems) -> Vec<SettingsProblem> {
    let problem = |problem: &encke_settings::Problem| {
        let range = problems.range(problem);
        SettingsProblem {
            file: range.included,
            start: Some(range.start),
            end: Some(range.end),
            key: range.key,
            message: problem.message.clone(),
            hint: problem.hint.clone(),
            is_error: true,
        }
    };
    problems.iter().map(problem).collect()
}

fn unlocated(message: String) -> SettingsProblem {
    SettingsProblem {
        file: None,
        start: None,
        end: None,
        key: String::new(),
        message,
        hint: None,
        is_error: true,
    }
}
