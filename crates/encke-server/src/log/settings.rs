//! `[log]`: target and format of the access log, and the level of messages.

use std::path::{Path, PathBuf};

use encke_settings::{Level, LogTarget, Section};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[log]`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// Target of the access log: `stdout`, `off` (no log) or a file, which Encke reopens on SIGUSR1. A log that cannot keep up
    /// drops lines and counts them; it never delays a response.
    pub access: LogTarget,
    /// Format of a line.
    pub format: LogFormat,
    /// Sends the id of a request, `request_id` in the JSON log, to the client in `X-Request-Id`.
    pub request_id_header: bool,
    /// Least severe level that Encke writes to standard error.
    pub level: Level,
}

impl Section for LogSettings {
    fn anchor(&mut self, folder: &Path) {
        if let LogTarget::File(path) = &mut self.access {
            *path = folder.join(&*path);
        }
    }

    fn private_files(&self) -> Vec<PathBuf> {
        match &self.access {
            LogTarget::File(path) => vec![path.clone()],
            LogTarget::Stdout | LogTarget::Off => Vec::new(),
        }
    }
}

/// Format of a line of the access log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// The common format that every log reader supports.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
}
