//! The listeners of a stream. Each holds a place from its admission until its connection ends, so the count is exact on every
//! worker at every moment, and the limit holds.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use encke_settings::OrOff;

use crate::state::LiveChannel;

/// The number of places taken.
#[derive(Default)]
pub(crate) struct ListenerPlaces(AtomicU32);

impl ListenerPlaces {
    /// Returns the number of listeners.
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether `limit` admits another listener.
    pub(crate) fn admits(&self, limit: OrOff<NonZeroU32>) -> bool {
        is_below(self.count(), limit)
    }
}

fn is_below(count: u32, limit: OrOff<NonZeroU32>) -> bool {
    match limit {
        OrOff::On(most) => count < most.get(),
        OrOff::Off => true,
    }
}

/// The place of a listener, given back when dropped.
pub(crate) struct ListenerPlace(Arc<LiveChannel>);

impl ListenerPlace {
    /// Takes a place; `None` if all places of `limit` are taken.
    pub(crate) fn take(stream: Arc<LiveChannel>, limit: OrOff<NonZeroU32>) -> Option<Self> {
        let one_more = |count: u32| is_below(count, limit).then(|| count.checked_add(1)).flatten();
        stream.listeners.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self(stream))
    }
}

impl Drop for ListenerPlace {
    fn drop(&mut self) {
        self.0.listeners.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use encke_push::Name;

    use super::*;
    use crate::settings::LiveSettings;
    use crate::state::LiveState;

    #[test]
    fn workers_that_admit_at_once_never_pass_the_limit() {
        const WORKERS: usize = 4;
        let state = LiveState::new(&LiveSettings::default());
        let stream = state.found_or_made(&Name::parse(b"live/song").expect("a name"));
        let limit = OrOff::On(NonZeroU32::new(2).expect("above 0"));
        let barrier = Barrier::new(WORKERS);
        for _ in 0..200 {
            let taken: Vec<Option<ListenerPlace>> = std::thread::scope(|scope| {
                let take = || {
                    barrier.wait();
                    ListenerPlace::take(Arc::clone(&stream), limit)
                };
                let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(take)).collect();
                workers.into_iter().map(|worker| worker.join().expect("it ends")).collect()
            });
            assert_eq!(taken.iter().flatten().count(), 2);
            assert!(!stream.listeners.admits(limit));
            drop(taken);
            assert_eq!(stream.listeners.count(), 0);
        }
    }
}
