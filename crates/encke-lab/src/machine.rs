//! What the results were seen on.

use encke_io::{Backend, host};
use encke_wire::civil::Civil;

use crate::texts::{Language, filled};

/// A description of this machine, for the head of every table.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// How many of them this process may use.
    pub processors: usize,
    /// Kernel and its release.
    pub system: String,
    /// Memory in bytes, of the machine or of the cgroup, whichever is less.
    pub memory_bytes: Option<u64>,
    /// Descriptors that this process may hold.
    pub descriptors: u64,
    /// The kernel's cap on the backlog of a listener.
    pub backlog: Option<u32>,
    /// The C compiler of the specimens.
    pub compiler: String,
    /// Encke's version.
    pub encke: String,
    /// The back ends that were compiled in.
    pub backends: Vec<String>,
    /// Whether this program was compiled to be quick; if not, Encke's rows say nothing.
    pub optimised: bool,
}

impl Machine {
    /// Looks round. Raises the limit of descriptors as far as it may be.
    pub fn look() -> Self {
        Self {
            processor: host::processor_name().unwrap_or_else(|| std::env::consts::ARCH.into()),
            processors: host::processors(),
            system: format!("{} {}", std::env::consts::OS, host::kernel_release().unwrap_or_default())
                .trim()
                .into(),
            memory_bytes: [host::memory_bytes(), host::memory_limit()].into_iter().flatten().min(),
            descriptors: host::raise_descriptor_limit(),
            backlog: host::backlog_limit(),
            compiler: env!("LAB_COMPILER").into(),
            encke: env!("CARGO_PKG_VERSION").into(),
            backends: Backend::NAMED
                .into_iter()
                .filter(|backend| backend.compiled())
                .map(|backend| backend.name().to_owned())
                .collect(),
            optimised: cfg!(not(debug_assertions)),
        }
    }

    /// In a line.
    pub fn line(&self, language: Language) -> String {
        let memory = self.memory_bytes.map_or_else(|| "?".into(), |bytes| format!("{} MiB", bytes >> 20));
        let values = [
            ("processors", self.processors.to_string()),
            ("processor", self.processor.clone()),
            ("memory", memory),
            ("system", self.system.clone()),
            ("descriptors", self.descriptors.to_string()),
            ("compiler", self.compiler.clone()),
        ];
        filled(language.words().machine, &values)
    }
}

/// A moment as RFC 3339 has it, in UTC. `unix_s` counts seconds since 1970.
pub fn rfc3339(unix_s: u64) -> String {
    format!("{}Z", String::from_utf8_lossy(&Civil::of(unix_s).rfc3339()))
}
