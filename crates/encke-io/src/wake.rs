//! Waking a worker from another thread: one descriptor, written at most once per wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes one reactor from any thread. The reactor then delivers one [`crate::Event::Woken`].
#[derive(Clone)]
pub struct Waker(Arc<WakeSignal>);

pub(crate) struct WakeSignal {
    /// Set from the first `wake` until the reactor handles it, so that any number of wakes cost one system call.
    set: AtomicBool,
    /// The descriptor that interrupts the system's wait. `None` in the simulator, whose world checks `set` itself.
    #[cfg(unix)]
    descriptor: Option<rustix::fd::OwnedFd>,
}

impl Waker {
    /// Wakes the reactor. May be called any number of times, even before the reactor waits.
    pub fn wake(&self) {
        if !self.0.set.swap(true, Ordering::AcqRel) {
            #[cfg(unix)]
            if let Some(descriptor) = &self.0.descriptor {
                // An eventfd(2) takes eight bytes. If the pipe or counter is full, the signal is already set.
                let _full = rustix::io::write(descriptor, &1u64.to_ne_bytes());
            }
        }
    }
}

impl WakeSignal {
    /// Creates a wake signal without a descriptor, for the simulator.
    pub(crate) fn without_descriptor() -> Arc<Self> {
        Arc::new(Self {
            set: AtomicBool::new(false),
            #[cfg(unix)]
            descriptor: None,
        })
    }

    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker(Arc::clone(self))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Clears the flag, so that the next `wake` sets it again. Returns whether it was set.
    pub(crate) fn clear(&self) -> bool {
        self.set.swap(false, Ordering::AcqRel)
    }
}

/// The reactor's side of a wake signal, which clears it so that the next `wake` sets it again.
#[cfg(unix)]
pub(crate) struct WakeReceiver {
    signal: Arc<WakeSignal>,
    /// The reading end of the pipe, where it is not the end written to.
    #[cfg(not(target_os = "linux"))]
    reader: rustix::fd::OwnedFd,
}

#[cfg(unix)]
impl WakeReceiver {
    /// Creates a wake signal, which [`WakeReceiver::waker`] sets.
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> rustix::io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let descriptor = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self {
            signal: Arc::new(WakeSignal { set: AtomicBool::new(false), descriptor: Some(descriptor) }),
        })
    }

    /// Creates a wake signal, which [`WakeReceiver::waker`] sets.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe()?;
        for end in [&reader, &writer] {
            rustix::io::ioctl_fionbio(end, true)?;
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        }
        let signal = WakeSignal { set: AtomicBool::new(false), descriptor: Some(writer) };
        Ok(Self { signal: Arc::new(signal), reader })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.signal.waker()
    }

    /// Clears the signal and returns whether it was set. Call this when the descriptor is readable.
    ///
    /// The descriptor is read before the flag is cleared. In the opposite order, a `wake` in between would set the flag and
    /// write a word that is then read. The flag would stay set, and no later `wake` would write again.
    pub(crate) fn clear(&self) -> bool {
        let mut word = [0; 64];
        let _empty = rustix::io::read(self.descriptor(), &mut word);
        self.signal.clear()
    }

    /// The descriptor that becomes readable when the signal is set.
    #[cfg(target_os = "linux")]
    pub(crate) fn descriptor(&self) -> &rustix::fd::OwnedFd {
        self.signal.descriptor.as_ref().expect("made with one")
    }

    /// The descriptor that becomes readable when the signal is set.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn descriptor(&self) -> &rustix::fd::OwnedFd {
        &self.reader
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    const WAKES: usize = 100_000;

    fn is_readable(listener: &WakeReceiver) -> bool {
        let mut entries = [PollFd::new(listener.descriptor(), PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut entries, Some(&at_once)).expect("a descriptor of ours") > 0
    }

    #[test]
    fn a_bell_that_is_rung_can_be_heard_whenever_it_was_silenced() {
        let listener = WakeReceiver::new().expect("a descriptor");
        let ringers: Vec<_> = (0..2)
            .map(|_| {
                let waker = listener.waker();
                std::thread::spawn(move || (0..WAKES).for_each(|_| waker.wake()))
            })
            .collect();
        // Behaves as a reactor does: the signal is cleared only when its descriptor is readable.
        while ringers.iter().any(|ringer| !ringer.is_finished()) {
            if is_readable(&listener) {
                listener.clear();
            }
        }
        ringers.into_iter().for_each(|ringer| ringer.join().expect("no panic"));
        assert!(!listener.signal.is_set() || is_readable(&listener), "rung, and nobody will ever hear it");
    }
}
