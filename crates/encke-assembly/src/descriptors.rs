//! The number of connections that the limit of open descriptors allows.
//!
//! ```text
//! connections = descriptors − (listeners + 3) × workers − 64 (reserve) − 512 (open files), or half of the rest if that is less
//! ```

use encke_io::host;
use encke_settings::OrAuto;

use crate::settings::Settings;

/// Descriptors reserved for temporary use: logs, directories, jobs, libraries.
const RESERVED: u64 = 64;
/// Maximum number of files that sites keep open (setting `open_files.count`). They close them when descriptors run out.
const FILE_CACHE_MAX: u64 = 512;
/// Maximum number of descriptors for which the table is allocated at start: half a mebibyte of kernel memory. Beyond it, the
/// kernel doubles the table while connections are accepted.
const AT_ONCE_MAX: u64 = 65_536;
/// Fewer connections are reported: a browser opens six.
const FEW: usize = 1_000;

/// Returns the number of connections that the descriptor limit allows, or the setting if it is lower. Adds a note if the limit is
/// the reason for few.
pub(crate) fn connections(settings: &Settings, listeners: usize, notes: &mut Vec<String>) -> usize {
    let descriptors = host::raise_descriptor_limit();
    let workers = match settings.server.workers {
        OrAuto::Auto => host::processors(),
        OrAuto::Set(count) => count.get().into(),
    };
    let most = allowed(descriptors, listeners, workers);
    let wanted = match settings.limits.connections {
        OrAuto::Auto => FEW,
        OrAuto::Set(count) => count.get() as usize,
    };
    if most < wanted {
        let connections = if most == 1 { "connection" } else { "connections" };
        notes.push(format!(
            "the limit of {descriptors} open files allows {most} {connections}: raise it, by LimitNOFILE= in the unit or \
             ulimit -Hn in a shell"
        ));
    }
    match settings.limits.connections {
        OrAuto::Auto => most,
        OrAuto::Set(count) => most.min(count.get() as usize),
    }
}

fn allowed(descriptors: u64, listeners: usize, workers: usize) -> usize {
    // Every worker has its own listeners, poller, wake-up descriptor and file watch.
    let own = ((listeners + 3) * workers) as u64;
    let rest = descriptors.saturating_sub(own + RESERVED);
    let most = rest - FILE_CACHE_MAX.min(rest / 2);
    usize::try_from(most.max(1)).unwrap_or(usize::MAX)
}

/// Sizes the descriptor table for all connections, while the process has one thread. Later the kernel waits for the other threads
/// when a worker accepts connection 256, 512 and so on, which stalls all connections of that worker for 5 to 20 ms (measured with
/// two workers).
pub(crate) fn reserve(connections: usize) {
    let descriptors = (connections as u64).saturating_add(FILE_CACHE_MAX + RESERVED);
    host::reserve_descriptors(descriptors.min(AT_ONCE_MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_is_shared_by_connections_and_open_files() {
        for (descriptors, expected) in
            [(20_000, 19_404), (1_172, 576), (1_024, 470), (512, 214), (84, 1), (20, 1)]
        {
            assert_eq!(allowed(descriptors, 2, 4), expected, "{descriptors} descriptors");
        }
    }

    #[test]
    fn more_connections_than_descriptors_allow_are_reported() {
        let mut settings = Settings::default();
        let mut notes = Vec::new();
        let most = connections(&settings, 1, &mut notes);
        settings.limits.connections = OrAuto::Set(1.try_into().expect("above 0"));
        notes.clear();
        assert_eq!((connections(&settings, 1, &mut notes), notes.len()), (1, 0));
        settings.limits.connections = OrAuto::Set(u32::MAX.try_into().expect("above 0"));
        assert_eq!(connections(&settings, 1, &mut notes), most);
        // Only a limit above 4 billion allows as many.
        assert!(
            notes.first().is_some_and(|note| note.contains(&format!("allows {most} connections"))),
            "{notes:?}"
        );
    }
}
