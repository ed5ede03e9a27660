//! `[log]`: where each request is recorded, and how.

use std::path::{Path, PathBuf};

use encke_settings::{Level, LogTarget, Section};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[log]`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// Where each request's line goes: `stdout`, `off` or a file, which is opened again on SIGUSR1. A log that
    /// cannot keep up loses lines, which are counted; it never slows an answer.
    pub access: LogTarget,
    /// How a line looks.
    pub format: LogFormat,
    /// What is told on standard error.
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

/// How a line of the access log looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// The format that every log reader knows.
    #[default]
    Combined,
    /// One JSON object a line.
    Json,
}
