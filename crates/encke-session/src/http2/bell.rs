//! The wakers of streams: each notes the place of its stream, so that only streams with news are polled.

use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use encke_io::lock;

/// Places of streams with news.
#[derive(Default)]
pub struct Rung(Mutex<Vec<u32>>);

impl Rung {
    /// The waker of the stream at a place.
    pub fn bell(self: &Arc<Self>, place: u32) -> Waker {
        Waker::from(Arc::new(Bell { place, rung: Arc::clone(self) }))
    }

    /// Notes that the stream at a place has news.
    pub fn ring(&self, place: u32) {
        lock(&self.0).push(place);
    }

    /// Moves them to `into`.
    pub fn take(&self, into: &mut Vec<u32>) {
        into.append(&mut lock(&self.0));
    }
}

struct Bell {
    place: u32,
    rung: Arc<Rung>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.ring(self.place);
    }
}
