//! The machine that the results come from.

use encke_io::{Backend, host};
use encke_wire::civil::Civil;

use crate::texts::{Language, filled};

/// A description of this machine, for the head of every table.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Number of processors that this process may use.
    pub processors: usize,
    /// Operating system and kernel release.
    pub system: String,
    /// Memory in bytes, of the machine or of the cgroup, whichever is less.
    pub memory_bytes: Option<u64>,
    /// Limit of open descriptors of this process.
    pub descriptors: u64,
    /// The kernel's limit of a listener's backlog.
    pub backlog: Option<u32>,
    /// The C compiler of the specimens.
    pub compiler: String,
    /// Encke's version.
    pub encke: String,
    /// The compiled back ends.
    pub backends: Vec<String>,
    /// Whether this program was compiled with optimizations. If not, the results of Encke's rows are meaningless.
    pub optimised: bool,
}

impl Machine {
    /// Describes this machine. Raises the descriptor limit as far as possible.
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

    /// The description as one line.
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

/// Formats a UTC time as in RFC 3339. `unix_s` counts seconds since 1970.
pub fn rfc3339(unix_s: u64) -> String {
    format!("{}Z", String::from_utf8_lossy(&Civil::of(unix_s).rfc3339()))
}
