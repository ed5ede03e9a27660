//! TLS to servers that this one connects to.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS to servers that this one connects to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamTls {
    /// PEM file of the authorities that sign the servers' certificates. The default is the authorities of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The name that the servers' certificates have. The default is the host of each URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Accepts every certificate. An attacker in the network can then read and change all data. Only for experiments.
    pub insecure: bool,
}
