//! How another thread gets a worker out of its wait: one descriptor, written at most once per sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes one reactor from any thread; it then delivers one [`crate::Event::Woken`].
#[derive(Clone)]
pub struct Waker(Arc<Bell>);

pub(crate) struct Bell {
    /// Set from the first `wake` until the reactor has heard it: any number of wakes cost one system call.
    rung: AtomicBool,
    /// What wakes the system's wait; none in the simulator, whose world looks at `rung` itself.
    #[cfg(unix)]
    rope: Option<rustix::fd::OwnedFd>,
}

impl Waker {
    /// Wakes the reactor. It may be called any number of times, also before the reactor waits.
    pub fn wake(&self) {
        if !self.0.rung.swap(true, Ordering::AcqRel) {
            #[cfg(unix)]
            if let Some(rope) = &self.0.rope {
                // Eight bytes is what an eventfd(2) takes. A full pipe or counter means that it is rung already.
                let _full = rustix::io::write(rope, &1u64.to_ne_bytes());
            }
        }
    }
}

impl Bell {
    /// One that wakes nobody by itself: the simulator's.
    pub(crate) fn without_rope() -> Arc<Self> {
        Arc::new(Self {
            rung: AtomicBool::new(false),
            #[cfg(unix)]
            rope: None,
        })
    }

    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker(Arc::clone(self))
    }

    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }

    /// Whether it was rung; it can then be rung again.
    pub(crate) fn silence(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }
}

/// A reactor's end: silences the bell so that the next `wake` rings it again.
#[cfg(unix)]
pub(crate) struct Listener {
    bell: Arc<Bell>,
    /// The end to read from, where it is not the end that is written to (a pipe).
    #[cfg(not(target_os = "linux"))]
    reader: rustix::fd::OwnedFd,
}

#[cfg(unix)]
impl Listener {
    /// Makes a bell and the waker that rings it.
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> rustix::io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let rope = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { bell: Arc::new(Bell { rung: AtomicBool::new(false), rope: Some(rope) }) })
    }

    /// Makes a bell and the waker that rings it.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let (reader, rope) = rustix::pipe::pipe()?;
        for end in [&reader, &rope] {
            rustix::io::ioctl_fionbio(end, true)?;
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        }
        Ok(Self { bell: Arc::new(Bell { rung: AtomicBool::new(false), rope: Some(rope) }), reader })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.bell.waker()
    }

    /// Whether it was rung; it can then be rung again. Call it when the descriptor is readable.
    ///
    /// The rope is pulled slack before the flag is cleared. The other way round, a `wake` in between would ring
    /// a bell whose word is then read away, and as the flag would stay set nobody could ring it again.
    pub(crate) fn silence(&self) -> bool {
        let mut word = [0; 64];
        let _empty = rustix::io::read(self.descriptor(), &mut word);
        self.bell.silence()
    }

    /// What becomes readable when it is rung.
    #[cfg(target_os = "linux")]
    pub(crate) fn descriptor(&self) -> &rustix::fd::OwnedFd {
        self.bell.rope.as_ref().expect("made with one")
    }

    /// What becomes readable when it is rung.
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

    fn is_readable(listener: &Listener) -> bool {
        let mut entries = [PollFd::new(listener.descriptor(), PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut entries, Some(&at_once)).expect("a descriptor of ours") > 0
    }

    #[test]
    fn a_bell_that_is_rung_can_be_heard_whenever_it_was_silenced() {
        let listener = Listener::new().expect("a descriptor");
        let ringers: Vec<_> = (0..2)
            .map(|_| {
                let waker = listener.waker();
                std::thread::spawn(move || (0..WAKES).for_each(|_| waker.wake()))
            })
            .collect();
        // As a reactor: it listens only to what wakes it.
        while ringers.iter().any(|ringer| !ringer.is_finished()) {
            if is_readable(&listener) {
                listener.silence();
            }
        }
        ringers.into_iter().for_each(|ringer| ringer.join().expect("no panic"));
        assert!(!listener.bell.is_rung() || is_readable(&listener), "rung, and nobody will ever hear it");
    }
}
