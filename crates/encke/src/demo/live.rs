//! The source of `encke demo --live`: a thread that sends the clip in real time.
//!
//! ```text
//! Clip ─► ClipPlayer: what is due ─► LiveFeed ─► the stream `demo` ─► listeners
//! ```
//! A source with `?takeover` replaces it. When that source has ended, the clip is sent again.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use encke_io::clock::Clock;
use encke_live::{LiveFeed, LiveFeeds};

use super::clip::Clip;

/// The name of the stream.
pub(crate) const STREAM: &str = "demo";
const TITLE: &str = "Encke test picture";
const FILE: &[u8] = include_bytes!("live.webm");

/// Time between two sends: about a picture.
const TICK: Duration = Duration::from_millis(50);
/// Time between two attempts to become the source.
const RETRY: Duration = Duration::from_secs(1);
/// Delay of the thread above which the times of the clip shift, in ms. After a shorter delay the missed bytes are sent at once.
const LATE_MAX_MS: u64 = 1_000;

/// The running source. Dropping it ends the source.
pub(crate) struct TestPicture {
    thread: Option<JoinHandle<()>>,
    /// Dropped to end the thread.
    running: Option<Sender<()>>,
}

impl TestPicture {
    /// Becomes the source, so that the stream is there for the first listener, and starts the thread that sends.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(crate) fn start(feeds: LiveFeeds) -> io::Result<Self> {
        let mut clock = Clock::new();
        let first = begin(&feeds, &mut clock);
        let (running, stop) = channel();
        let thread = thread::Builder::new()
            .name("test-picture".into())
            .spawn(move || send(&feeds, first, &mut clock, &stop))?;
        Ok(Self { thread: Some(thread), running: Some(running) })
    }
}

impl Drop for TestPicture {
    fn drop(&mut self) {
        self.running = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported on standard error.
            let _panicked = thread.join();
        }
    }
}

/// Becomes the source of the stream. None if another source has it.
fn begin(feeds: &LiveFeeds, clock: &mut Clock) -> Option<LiveFeed> {
    // The name is valid, so an error is a reason to try again later.
    feeds.begin(STREAM, TITLE, "video/webm", clock.now()).ok()
}

/// Sends the clip to `feed`, and to its successors when another source has taken over, until `stop` has no sender.
fn send(feeds: &LiveFeeds, mut feed: Option<LiveFeed>, clock: &mut Clock, stop: &Receiver<()>) {
    let clip = Clip::parse(FILE).expect("a test parses the file");
    loop {
        if let Some(feed) = feed {
            play(&clip, feed, clock, stop);
        }
        if is_stopped(stop, RETRY) {
            return;
        }
        feed = begin(feeds, clock);
    }
}

/// Sends the clip until the feed or the demo ends.
fn play(clip: &Clip<'_>, mut feed: LiveFeed, clock: &mut Clock, stop: &Receiver<()>) {
    let mut player = clip.player();
    let mut bytes = Vec::new();
    let (mut last_ns, mut played_ns) = (clock.now().mono_ns, 0);
    loop {
        let now = clock.now();
        let step_ns = now.mono_ns.saturating_sub(std::mem::replace(&mut last_ns, now.mono_ns));
        // A process that was suspended does not send all that it has missed.
        played_ns += step_ns.min(LATE_MAX_MS * 1_000_000);
        bytes.clear();
        player.play(played_ns / 1_000_000, &mut bytes);
        if !bytes.is_empty() && feed.push(&bytes, now).is_err() {
            return;
        }
        if is_stopped(stop, TICK) {
            return feed.end(clock.now());
        }
    }
}

/// Waits. Returns whether the demo has ended meanwhile.
fn is_stopped(stop: &Receiver<()>, time: Duration) -> bool {
    stop.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
}
