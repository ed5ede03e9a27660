//! The machine a run was made on, for comparing runs.

use encke_io::host;
use serde::{Deserialize, Serialize};

/// Properties of a machine that influence results.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Operating system and kernel release.
    pub system: String,
    /// Processor name, or its architecture.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Memory limit of the cgroup in bytes, if there is one.
    pub memory_limit_bytes: Option<u64>,
    /// Maximum open descriptors.
    pub descriptors_max: u64,
    /// Number of local ports for connections to one address.
    pub local_ports: Option<u32>,
    /// The kernel's maximum for the backlog of a listener.
    pub backlog_max: Option<u32>,
    /// Whether this program was compiled with optimisation. If not, its own costs are meaningless.
    pub optimised: bool,
}

impl Environment {
    /// Describes this machine. Raises the descriptor limit to its maximum.
    pub fn look() -> Self {
        let system = format!("{} {}", std::env::consts::OS, host::kernel_release().unwrap_or_default());
        Self {
            system: system.trim().to_owned(),
            processor: host::processor_name().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            processors: host::processors(),
            memory_limit_bytes: host::memory_limit(),
            descriptors_max: host::raise_descriptor_limit(),
            local_ports: host::local_ports(),
            backlog_max: host::backlog_limit(),
            optimised: cfg!(not(debug_assertions)),
        }
    }

    /// The description in one line.
    pub fn line(&self) -> String {
        let debug = if self.optimised { "" } else { "; compiled without optimisation" };
        format!("{} × {}, {}{debug}", self.processors, self.processor, self.system)
    }
}
