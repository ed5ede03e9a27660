//! Waking a worker from another thread: one bell, rung at most once per wait. `tests/loom.rs` has models of it.

use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sys::bell::Bell;

/// Wakes one reactor from any thread. The reactor then delivers one [`crate::Event::Woken`].
#[derive(Clone)]
pub struct Waker(Arc<WakeSignal>);

pub(crate) struct WakeSignal {
    /// Set from the first `wake` until the reactor handles it, so that any number of wakes cost one system call.
    set: AtomicBool,
    /// Interrupts the system's wait. `None` in the simulator, whose world checks `set` itself.
    bell: Option<Bell>,
}

impl Waker {
    /// Creates a waker that sets `signal`.
    pub(crate) fn of(signal: &Arc<WakeSignal>) -> Self {
        Self(Arc::clone(signal))
    }

    /// Wakes the reactor. May be called any number of times, even before the reactor waits.
    pub fn wake(&self) {
        if !self.0.set.swap(true, Ordering::AcqRel)
            && let Some(bell) = &self.0.bell
            && !bell.ring()
        {
            // The next wake rings again. A store would hide the work of threads that found the flag set in between; a swap does not.
            self.0.set.swap(false, Ordering::AcqRel);
        }
    }
}

impl WakeSignal {
    /// Creates a wake signal without a bell, for the simulator.
    pub(crate) fn without_bell() -> Arc<Self> {
        Arc::new(Self { set: AtomicBool::new(false), bell: None })
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
pub(crate) struct WakeReceiver {
    signal: Arc<WakeSignal>,
}

impl WakeReceiver {
    /// Creates a wake signal, which [`WakeReceiver::waker`] sets.
    pub(crate) fn new(bell: Bell) -> Self {
        Self { signal: Arc::new(WakeSignal { set: AtomicBool::new(false), bell: Some(bell) }) }
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker::of(&self.signal)
    }

    /// Clears the signal and returns whether it was set. Call this when the bell has rung.
    ///
    /// The bell is silenced before the flag is cleared. In the opposite order, a `wake` in between would set the flag and ring
    /// the bell, which is then silenced. The flag would stay set, and no later `wake` would ring again.
    pub(crate) fn clear(&self) -> bool {
        self.bell().silence();
        self.signal.clear()
    }

    /// The bell, which rings when the signal is set.
    pub(crate) fn bell(&self) -> &Bell {
        self.signal.bell.as_ref().expect("made with one")
    }
}
