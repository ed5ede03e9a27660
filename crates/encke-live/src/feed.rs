//! Sources within the program: bytes that do not arrive by a request.
//!
//! ```text
//! LiveFeeds::begin ─► lease ─► LiveFeed::push ─► … ─► LiveFeed::end
//!                       └─ a source with ?takeover: the next push returns an error
//! ```

use std::sync::Arc;

use encke_io::Now;
use encke_push::{Name, PushPublisher};

use crate::settings::LiveSettings;
use crate::source::{LiveSource, SourceFault, SourceRequest, TITLE_CHARS_MAX, shown};
use crate::state::{LiveState, Occupied, SourceKind};

/// Begins sources within the program, from any thread.
#[derive(Clone)]
pub struct LiveFeeds {
    state: Arc<LiveState>,
    publisher: PushPublisher,
    /// Begin of the names of all channels.
    names: Box<str>,
}

/// A source within the program. Dropping it gives up the stream at once.
pub struct LiveFeed {
    source: LiveSource,
}

/// Why a feed has not begun, or has ended.
#[derive(Debug)]
pub struct LiveFeedError(FeedFault);

#[derive(Debug)]
enum FeedFault {
    Name,
    Occupied(Occupied),
    Source(SourceFault),
}

impl LiveFeeds {
    /// Creates the feeds of a server. `publisher` is that of its push plan.
    pub fn new(settings: &LiveSettings, state: &Arc<LiveState>, publisher: PushPublisher) -> Self {
        Self { state: Arc::clone(state), publisher, names: settings.names().into() }
    }

    /// Becomes the source of a stream. `stream` is its name without the prefix, `media_type` that of the bytes.
    ///
    /// # Errors
    /// The name is invalid, or the stream has a source.
    pub fn begin(
        &self,
        stream: &str,
        title: &str,
        media_type: &str,
        now: Now,
    ) -> Result<LiveFeed, LiveFeedError> {
        let name = Name::parse(format!("{}{stream}", self.names).as_bytes())
            .map_err(|_| LiveFeedError(FeedFault::Name))?;
        let stream = self.state.found_or_made(&name);
        let request = SourceRequest {
            content_type: Some(media_type.into()),
            title: Some(shown(title, TITLE_CHARS_MAX)),
            origin: "this program".into(),
            takeover: false,
            path: String::new(),
            kind: SourceKind::Own,
            program: None,
            // The next push reports the end.
            wake: Box::new(|| {}),
        };
        let source = LiveSource::begin(&self.state, stream, self.publisher.clone(), request, now)
            .map_err(|occupied| LiveFeedError(FeedFault::Occupied(occupied)))?;
        Ok(LiveFeed { source })
    }
}

impl LiveFeed {
    /// Sends the next bytes of the stream. While the server is too busy to publish them, it drops them up to the next key frame.
    ///
    /// # Errors
    /// Another source has taken over, the bytes are not valid in their container, or the server has stopped. The feed has ended.
    pub fn push(&mut self, bytes: &[u8], now: Now) -> Result<(), LiveFeedError> {
        self.source.data(bytes, now).map_err(|fault| LiveFeedError(FeedFault::Source(fault)))?;
        // The time of a feed is its own: it does not wait for the server.
        let _has_room =
            self.source.wants_more(now).map_err(|fault| LiveFeedError(FeedFault::Source(fault)))?;
        Ok(())
    }

    /// Ends the stream: its last units are published.
    pub fn end(mut self, now: Now) {
        self.source.release(now, true);
    }
}

impl std::fmt::Display for LiveFeedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            FeedFault::Name => f.write_str("the name of the stream is invalid"),
            FeedFault::Occupied(occupied) => occupied.fmt(f),
            FeedFault::Source(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for LiveFeedError {}
