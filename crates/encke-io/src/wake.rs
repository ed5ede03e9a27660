//! How another thread gets a worker out of its wait: one descriptor, written at most once per sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes one reactor from any thread; it then delivers one [`crate::Event::Woken`].
#[derive(Clone)]
pub struct Waker(Arc<Bell>);

struct Bell {
    /// Set from the first `wake` until the reactor has heard it: any number of wakes cost one system call.
    rung: AtomicBool,
    #[cfg(unix)]
    rope: rustix::fd::OwnedFd,
}

impl Waker {
    /// Wakes the reactor. It may be called any number of times, also before the reactor waits.
    pub fn wake(&self) {
        if !self.0.rung.swap(true, Ordering::AcqRel) {
            #[cfg(unix)]
            // Eight bytes is what an eventfd(2) takes. A full pipe or counter means that it is rung already.
            let _full = rustix::io::write(&self.0.rope, &1u64.to_ne_bytes());
        }
    }
}

/// The reactor's end: silences the bell so that the next `wake` rings it again.
pub(crate) struct Listener {
    bell: Arc<Bell>,
    /// The end to read from, where it is not the end that is written to (a pipe).
    #[cfg(all(unix, not(target_os = "linux")))]
    reader: rustix::fd::OwnedFd,
}

impl Listener {
    /// Makes a bell and the waker that rings it.
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> rustix::io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let rope = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { bell: Arc::new(Bell { rung: AtomicBool::new(false), rope }) })
    }

    /// Makes a bell and the waker that rings it.
    #[cfg(all(unix, not(target_os = "linux")))]
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let (reader, rope) = rustix::pipe::pipe()?;
        for end in [&reader, &rope] {
            rustix::io::ioctl_fionbio(end, true)?;
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        }
        Ok(Self { bell: Arc::new(Bell { rung: AtomicBool::new(false), rope }), reader })
    }

    /// A bell without a descriptor, for the simulator, which looks at it itself.
    #[cfg(not(unix))]
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { bell: Arc::new(Bell { rung: AtomicBool::new(false) }) })
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.bell))
    }

    /// Whether it was rung; it can then be rung again. Call it when the descriptor is readable.
    ///
    /// The rope is pulled slack before the flag is cleared. The other way round, a `wake` in between would ring
    /// a bell whose word is then read away, and as the flag would stay set nobody could ring it again.
    pub(crate) fn silence(&self) -> bool {
        #[cfg(unix)]
        {
            let mut word = [0; 64];
            let _empty = rustix::io::read(self.descriptor(), &mut word);
        }
        self.bell.rung.swap(false, Ordering::AcqRel)
    }

    /// What becomes readable when it is rung.
    #[cfg(target_os = "linux")]
    pub(crate) fn descriptor(&self) -> &rustix::fd::OwnedFd {
        &self.bell.rope
    }

    /// What becomes readable when it is rung.
    #[cfg(all(unix, not(target_os = "linux")))]
    pub(crate) fn descriptor(&self) -> &rustix::fd::OwnedFd {
        &self.reader
    }
}
