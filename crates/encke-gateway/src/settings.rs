//! The settings of an upstream: one `[[upstream]]` table.

use std::path::Path;

use encke_settings::{Contradiction, Period, Section};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::target_url::TargetUrl;

/// Applications that serve the same requests.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamSettings {
    /// The name by which routes refer to the upstream.
    pub name: String,
    /// The applications: `"http://127.0.0.1:3000"`, or `"http://unix:/run/app.sock"`.
    pub to: Vec<TargetUrl>,
    /// Connections to each target that a worker keeps for further requests; 0: each request has its own connection.
    pub keep: u32,
    /// Time after which a kept connection is closed. It should be shorter than the application's own limit.
    pub keep_time: Period,
    /// Time for a connection to be established.
    pub connect_time: Period,
    /// Time from the request, or its last byte, to the first byte of the response.
    pub response_time: Period,
    /// Time without a byte within a response.
    pub idle_time: Period,
    /// Further attempts for a request that no application has executed.
    pub retries: u32,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            name: String::new(),
            to: Vec::new(),
            keep: 64,
            // Node closes a connection after 5 s.
            keep_time: Period::seconds(4),
            connect_time: Period::seconds(2),
            response_time: Period::seconds(60),
            idle_time: Period::seconds(60),
            retries: 2,
        }
    }
}

/// Maximum number of targets: a request remembers those that failed in 64 bits.
pub(crate) const TARGETS_MAX: usize = 64;

impl Section for UpstreamSettings {
    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        if self.to.is_empty() {
            found.push(Contradiction::at(&["to"], "an upstream needs a target: to = [\"http://127.0.0.1:3000\"]"));
        }
        if self.to.len() > TARGETS_MAX {
            let message = format!("an upstream has at most {TARGETS_MAX} targets, and this one has {}", self.to.len());
            found.push(Contradiction::at(&["to"], message));
        }
        found
    }

    fn anchor(&mut self, folder: &Path) {
        for path in self.to.iter_mut().filter_map(TargetUrl::unix_path) {
            *path = folder.join(&*path);
        }
    }
}
