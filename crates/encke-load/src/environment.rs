//! Where a run was made: what somebody must know who compares its figures with others.

use encke_io::host;
use serde::{Deserialize, Serialize};

/// A machine, as far as figures depend on it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Operating system and release of its kernel.
    pub system: String,
    /// The processor's name, or its architecture.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Memory that its cgroup allows, if there is a limit.
    pub memory_limit_bytes: Option<u64>,
    /// Descriptors that it may hold.
    pub descriptors_max: u64,
    /// Local ports for connections to one address.
    pub local_ports: Option<u32>,
    /// The kernel's cap on the backlog of a listener.
    pub backlog_max: Option<u32>,
    /// Whether this program was compiled to be quick; if not, its own cost says nothing.
    pub optimised: bool,
}

impl Environment {
    /// This one. Raises the limit of descriptors as far as it may be.
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

    /// In a line.
    pub fn line(&self) -> String {
        let debug = if self.optimised { "" } else { "; compiled without optimisation" };
        format!("{} × {}, {}{debug}", self.processors, self.processor, self.system)
    }
}
