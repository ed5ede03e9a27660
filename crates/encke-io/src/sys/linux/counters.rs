//! Processor counters of Linux: perf_event_open(2).

use std::io;

use crate::counters::{CountedEvent, CounterError};

/// Counters of one thread, starting when they are created.
#[derive(Debug)]
pub struct Counters {
    descriptors: Vec<std::fs::File>,
}

impl Counters {
    /// Counts these events of the calling thread, in user space only. This is the most that an unprivileged program may count.
    ///
    /// # Errors
    /// The machine or its administrator does not allow programs to count.
    pub fn of_this_thread(events: &[CountedEvent]) -> Result<Self, CounterError> {
        let mut descriptors: Vec<std::fs::File> = Vec::with_capacity(events.len());
        for &event in events {
            let opened = open(event, descriptors.first()).map_err(reason);
            descriptors.push(opened?);
        }
        Ok(Self { descriptors })
    }

    /// Returns all counts so far, in the order of the requested events. If the processor could not count all events at the same
    /// time, the counts are scaled up to the full time.
    ///
    /// # Errors
    /// The kernel did not count at all.
    pub fn read(&mut self) -> Result<Vec<u64>, CounterError> {
        use std::io::Read as _;
        // The layout: nr, time_enabled, time_running, and one value per event.
        let mut bytes = vec![0; 8 * (3 + self.descriptors.len())];
        let Some(leader) = self.descriptors.first_mut() else { return Ok(Vec::new()) };
        leader.read_exact(&mut bytes).map_err(CounterError::System)?;
        let mut words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().expect("chunks of 8 have 8 bytes")));
        let [_count, enabled_ns, running_ns] = [(); 3].map(|()| words.next().unwrap_or(0));
        if running_ns == 0 && enabled_ns > 0 {
            return Err(CounterError::Busy);
        }
        let scaled = |value: u64| match running_ns {
            running_ns if running_ns < enabled_ns => {
                (u128::from(value) * u128::from(enabled_ns) / u128::from(running_ns)) as u64
            }
            _ => value,
        };
        Ok(words.map(scaled).collect())
    }
}

/// The first 64 bytes of struct perf_event_attr: its first published version, supported by every kernel.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    bytes: u32,
    event: u64,
    period: u64,
    sample: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    address: u64,
}

fn open(event: CountedEvent, leader: Option<&std::fs::File>) -> io::Result<std::fs::File> {
    use std::os::fd::FromRawFd as _;
    const HARDWARE: u32 = 0;
    const SOFTWARE: u32 = 1;
    // TOTAL_TIME_ENABLED, TOTAL_TIME_RUNNING, GROUP.
    const READ_FORMAT: u64 = 1 | 2 | 8;
    // exclude_kernel, exclude_hv.
    const USER_ALONE: u64 = 1 << 5 | 1 << 6;
    const CLOSE_ON_EXEC: u64 = 8;
    let (kind, number) = match event {
        CountedEvent::Cycles => (HARDWARE, 0),
        CountedEvent::Instructions => (HARDWARE, 1),
        CountedEvent::BranchMisses => (HARDWARE, 5),
        CountedEvent::PageFaults => (SOFTWARE, 2),
    };
    let attributes = Attributes {
        kind,
        bytes: size_of::<Attributes>() as u32,
        event: number,
        read_format: READ_FORMAT,
        flags: USER_ALONE,
        ..Attributes::default()
    };
    let group = leader.map_or(-1, std::os::fd::AsRawFd::as_raw_fd);
    // SAFETY: the attributes are as long as they say, and are read alone; this thread (0) on any processor (-1).
    let opened = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0, -1, group, CLOSE_ON_EXEC)
    };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has opened the descriptor, and no other code owns it.
    Ok(unsafe { std::fs::File::from_raw_fd(opened as i32) })
}

/// Classifies an error of perf_event_open(2).
pub(crate) fn reason(error: io::Error) -> CounterError {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => CounterError::Hidden(error),
        Some(libc::EACCES | libc::EPERM) => CounterError::Denied(error),
        Some(libc::ENOSYS) => CounterError::NotBuilt(error),
        _ => CounterError::Open(error),
    }
}
