//! Processor counters of a thread (perf_event_open(2)): cycles, instructions and other events.
//!
//! ```text
//!  Counters::of_this_thread ─► a descriptor for each event, of which the first leads: all are read at one moment
//!            read ─► numbers since then, of this thread in user space
//! ```
//! Many machines deny access: virtual machines have no such counters, others reserve them for the administrator.
//! [`CounterError`] gives the reason.

use std::fmt;
use std::io;

/// An event to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountedEvent {
    /// Clock cycles of the processor.
    Cycles,
    /// Retired instructions.
    Instructions,
    /// Mispredicted branches.
    BranchMisses,
    /// Page faults. The kernel counts them itself, so they are available even without hardware counters.
    PageFaults,
}

/// Why there are no counts. The origin is always this machine. A retry may help only with [`CounterError::Busy`].
#[derive(Debug)]
#[non_exhaustive]
pub enum CounterError {
    /// The machine shows programs no such counters.
    Hidden(io::Error),
    /// The administrator does not allow programs to count.
    Denied(io::Error),
    /// The kernel was built without counters.
    NotBuilt(io::Error),
    /// The kernel did not open a counter for another reason.
    Open(io::Error),
    /// The counters cannot be read, or this system is not supported.
    System(io::Error),
    /// Other programs used the counters all the time.
    Busy,
}

impl fmt::Display for CounterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hidden(_) => {
                "this machine has no hardware counters for programs, like most virtual machines"
            }
            Self::Denied(_) => {
                "the kernel denies access to hardware counters: set kernel.perf_event_paranoid to 2 or less"
            }
            Self::NotBuilt(_) => "the kernel was built without perf_event_open",
            Self::Open(error) => return write!(f, "perf_event_open: {error}"),
            Self::System(error) => return error.fmt(f),
            Self::Busy => "other programs used the hardware counters all the time",
        })
    }
}

impl std::error::Error for CounterError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Hidden(error)
            | Self::Denied(error)
            | Self::NotBuilt(error)
            | Self::Open(error)
            | Self::System(error) => Some(error),
            Self::Busy => None,
        }
    }
}

/// Counters of one thread, starting when they are created.
#[derive(Debug)]
pub struct Counters {
    #[cfg(target_os = "linux")]
    descriptors: Vec<std::fs::File>,
}

#[cfg(target_os = "linux")]
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

#[cfg(not(target_os = "linux"))]
impl Counters {
    /// Not supported: Encke does not use the counters of other systems.
    ///
    /// # Errors
    /// Always.
    pub fn of_this_thread(_: &[CountedEvent]) -> Result<Self, CounterError> {
        Err(CounterError::System(crate::host::unsupported()))
    }

    /// Not supported on this system.
    ///
    /// # Errors
    /// Always.
    pub fn read(&mut self) -> Result<Vec<u64>, CounterError> {
        Err(CounterError::System(crate::host::unsupported()))
    }
}

/// The first 64 bytes of struct perf_event_attr: its first published version, supported by every kernel.
#[cfg(target_os = "linux")]
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

#[cfg(target_os = "linux")]
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
    // SAFETY: the kernel has just opened it for us, and nobody else knows of it.
    Ok(unsafe { std::fs::File::from_raw_fd(opened as i32) })
}

/// Classifies an error of perf_event_open(2).
#[cfg(target_os = "linux")]
fn reason(error: io::Error) -> CounterError {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => CounterError::Hidden(error),
        Some(libc::EACCES | libc::EPERM) => CounterError::Denied(error),
        Some(libc::ENOSYS) => CounterError::NotBuilt(error),
        _ => CounterError::Open(error),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// If the kernel allows counting at all, page faults show that the counts belong to this thread.
    #[test]
    fn what_this_thread_does_is_counted_or_it_is_said_why_not() {
        const PAGES: usize = 64;
        match Counters::of_this_thread(&[CountedEvent::PageFaults, CountedEvent::PageFaults]) {
            Ok(mut counters) => {
                let before = counters.read().expect("it counts");
                let fresh = vec![1_u8; PAGES * 65_536];
                let after = counters.read().expect("it counts");
                assert_eq!(after.len(), 2);
                assert!(after[0] >= before[0] + PAGES as u64, "{before:?} {after:?}");
                drop(fresh);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn hardware_that_is_not_shown_is_named_in_words() {
        let told = |number| reason(io::Error::from_raw_os_error(number)).to_string();
        assert!(told(libc::ENOENT).contains("virtual"));
        assert!(told(libc::EACCES).contains("kernel.perf_event_paranoid"));
        assert!(told(libc::EMFILE).starts_with("perf_event_open: "));
        if let Err(error) = Counters::of_this_thread(&[CountedEvent::Cycles, CountedEvent::Instructions]) {
            assert!(error.to_string().len() > 20, "{error}");
        }
    }
}
