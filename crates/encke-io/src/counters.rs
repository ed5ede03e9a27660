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

pub use crate::sys::counters::Counters;

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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::sys::counters::reason;

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
