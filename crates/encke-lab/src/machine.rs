//! What the results were seen on.

use encke_io::{Backend, host};

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
        let first = |path: &str, key: &str| {
            let text = std::fs::read_to_string(path).ok()?;
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        let total = first("/proc/meminfo", "MemTotal").and_then(|text| {
            let kilobytes: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
            Some(kilobytes * 1024)
        });
        Self {
            processor: first("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.into()),
            processors: host::processors(),
            system: format!("{} {}", std::env::consts::OS, release.as_deref().map_or("", str::trim))
                .trim()
                .into(),
            memory_bytes: [total, host::memory_limit()].into_iter().flatten().min(),
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
    pub fn line(&self) -> String {
        let memory = self.memory_bytes.map_or_else(|| "?".into(), |bytes| format!("{} MiB", bytes >> 20));
        format!(
            "{} × {}, {memory}, {}, {} descriptors, specimens by {}",
            self.processors, self.processor, self.system, self.descriptors, self.compiler
        )
    }
}

/// A moment as RFC 3339 has it, in UTC. `unix_s` counts seconds since 1970.
pub fn rfc3339(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Days from 0000-03-01, so that the leap day is the last of its year; 400 years are 146,097 days. (Howard Hinnant,
    // "chrono-Compatible Low-Level Date Algorithms", civil_from_days.)
    let (era, day) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) =
        if month < 10 { (era * 400 + year, month + 3) } else { (era * 400 + year + 1, month - 9) };
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(unix_s), date);
        }
    }
}
