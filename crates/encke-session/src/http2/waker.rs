//! Wakers of HTTP/2 streams. Each queues the index of its stream, so that only streams with progress are polled.

use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use encke_io::lock;

/// A queue of the indices of streams to poll. Wakers may push from any thread.
#[derive(Default)]
pub struct WokenStreams(Mutex<Vec<u32>>);

impl WokenStreams {
    /// Returns a waker that queues the stream at index `place`.
    pub fn waker(self: &Arc<Self>, place: u32) -> Waker {
        Waker::from(Arc::new(StreamWaker { place, queue: Arc::clone(self) }))
    }

    /// Queues the stream at index `place`.
    pub fn wake(&self, place: u32) {
        lock(&self.0).push(place);
    }

    /// Moves the queued indices to the end of `into`.
    pub fn take(&self, into: &mut Vec<u32>) {
        into.append(&mut lock(&self.0));
    }
}

struct StreamWaker {
    place: u32,
    queue: Arc<WokenStreams>,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.queue.wake(self.place);
    }
}
