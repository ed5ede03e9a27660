//! The interface to the settings of the server, implemented outside: this crate knows no section but its own.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

use super::ConsoleSettings;

/// Access to the settings of a running server. All calls are made on the console's thread, and may block.
pub trait SettingsControl: fmt::Debug + Send + Sync {
    /// The settings in force.
    fn running(&self) -> RunningSettings;

    /// The JSON Schema of the settings file.
    fn schema(&self) -> Value;

    /// Checks the text of a settings file as a reload would, with the flags of the command line. With `files` it also reads the
    /// files and directories that the text names, such as certificates.
    fn check(&self, text: &str, files: bool) -> SettingsCheck;

    /// Reads the settings file and applies it, as SIGHUP does. The reload begins after the call. Returns warnings.
    ///
    /// # Errors
    /// The settings in force stay.
    fn apply(&self) -> Result<Vec<String>, ApplyError>;
}

/// The settings in force.
#[derive(Clone, Debug, Default)]
pub struct RunningSettings {
    /// The values as JSON. Secrets may be masked.
    pub values: Value,
    /// The path of the settings file, if there is one.
    pub file: Option<PathBuf>,
    /// The text of the settings file at the last reload.
    pub text: Option<String>,
    /// The files that it includes.
    pub included: Vec<PathBuf>,
    /// The paths of the keys that it sets: `server.backlog`.
    pub set: Vec<String>,
    /// The keys that flags of the command line override.
    pub overridden: Vec<OverriddenSetting>,
    /// The keys that differ from the values at the start, and take effect at the next start.
    pub waiting_for_start: Vec<String>,
    /// Warnings about the settings.
    pub warnings: Vec<String>,
    /// Why settings cannot be applied, if the program does not support it.
    pub fixed: Option<String>,
    /// The section of the console.
    pub console: ConsoleSettings,
    /// The directory of the data that outlives the process.
    pub state_dir: Option<PathBuf>,
}

/// A setting that the command line overrides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OverriddenSetting {
    /// The key, or a section: `server.listen`.
    pub key: String,
    /// The flag: `--listen`.
    pub by: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct SettingsCheck {
    /// Errors and warnings, by position. Without errors a reload accepts the text.
    pub problems: Vec<SettingsProblem>,
    /// The keys that differ from the values at the start, and take effect at the next start.
    pub waiting_for_start: Vec<String>,
    /// The paths of the keys that the text sets; empty if it has errors.
    pub set: Vec<String>,
    /// Whether the settings differ from those in force.
    pub differs: bool,
}

/// An error or a warning with its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsProblem {
    /// The included file that it is in; `None` for the settings file itself.
    pub file: Option<String>,
    /// Line and column of the first character, both from 1. The column counts characters. `None` without a place.
    pub start: Option<(usize, usize)>,
    /// Line and column after the last character.
    pub end: Option<(usize, usize)>,
    /// The keys that lead to the value, joined by dots; empty if unknown.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// The remedy, if it is known.
    pub hint: Option<String>,
    /// Whether a reload rejects the text.
    pub is_error: bool,
}

/// Why settings were not applied. The settings in force stay in each case.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ApplyError {
    /// The settings are invalid, or a step of the reload failed: the messages of the server.
    Rejected(String),
    /// The server is stopping.
    Stopping,
    /// The reload did not begin in time, because the main thread is busy.
    Busy,
    /// This program cannot reload its settings: the reason.
    Fixed(String),
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(reason) | Self::Fixed(reason) => f.write_str(reason),
            Self::Stopping => f.write_str("the server is stopping"),
            Self::Busy => f.write_str("another reload is still in progress: try again"),
        }
    }
}

impl Error for ApplyError {}
