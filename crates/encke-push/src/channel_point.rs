//! Channels at a prefix of their own: another feature decides what a body becomes and how a channel is read. Push keeps rights,
//! subscribers and histories.
//!
//! ```text
//! GET /live/CH   ─► rights: subscribe to live/CH ─► PointHandler::read  ─► a stream of payloads from a key frame, or a response
//! PUT, POST      ─► rights: publish to live/CH   ─► PointHandler::write ─► PointBody ◄─ pieces of the body
//! GET /live/     ─► PointHandler::list
//! ```
//! The channels of a point are named after its prefix: `/live/film` is the channel `live/film`. Clients cannot publish to them
//! elsewhere, since a message of theirs would tear the point's data.

use std::sync::Arc;

use encke_hub::{ChannelRules, Name, Pattern};
use encke_io::Now;
use encke_rights::Act;
use encke_server::{EndToken, Exchange, Fields, HandlerContext, Kept, Reply, Request, WorkerSetup};
use encke_stats::Source;

/// A feature that serves channels at a prefix of its own.
pub trait ChannelPoint: Send + Sync + 'static {
    /// The path prefix, with a slash at both ends.
    fn prefix(&self) -> &str;

    /// The rules of its channels.
    fn rules(&self) -> Vec<(Pattern, ChannelRules)>;

    /// Opens the feature's part on one worker.
    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn PointHandler>;

    /// The metrics of the feature.
    fn sources(&self) -> Vec<Arc<dyn Source>> {
        Vec::new()
    }
}

/// The part of a [`ChannelPoint`] on one worker.
pub trait PointHandler {
    /// Responds to a request for the prefix itself. `may_read` tells which channels the client may read.
    fn list(&mut self, request: &Request<'_>, may_read: &dyn Fn(&Name) -> bool) -> Reply;

    /// Handles a GET or HEAD of a client that may read the channel.
    fn read(&mut self, request: &Request<'_>, channel: &Name) -> PointRead;

    /// Takes the body of a POST or PUT, of any length, from a client that may publish to the channel. `publisher` identifies the client.
    ///
    /// # Errors
    /// The response to a request that is rejected.
    fn write(
        &mut self,
        request: &Request<'_>,
        channel: Name,
        publisher: u64,
    ) -> Result<Box<dyn PointBody>, Reply>;
}

/// The result of [`PointHandler::read`].
pub enum PointRead {
    /// The client becomes a subscriber: the payloads are its response, from the newest key frame on.
    Stream(PointStream),
    /// A response instead.
    Reply(Reply),
    /// The request waits. [`PointHandler::read`] is called again when the handler is woken ([`HandlerContext::waker`]).
    Wait,
}

/// A subscriber of a point's channel.
#[derive(Default)]
pub struct PointStream {
    /// The fields of an HTTP response; a WebSocket gets no fields.
    pub fields: Fields,
    /// Names the client in the list of subscribers, if it relays the channel.
    pub relay: Option<Box<str>>,
    /// A value that is dropped once the subscriber has ended.
    pub until_end: Option<EndToken>,
}

/// The consumer of a body.
pub trait PointBody {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// The response with which the request ends.
    fn data(&mut self, bytes: &[u8], now: Now) -> Result<(), Reply>;

    /// Returns whether further bytes are wanted now. If not, the body wakes its handler ([`HandlerContext::waker`]) once they
    /// are.
    ///
    /// # Errors
    /// The response with which the request ends.
    fn wants_more(&mut self, now: Now) -> Result<bool, Reply>;

    /// The body is complete. Returns the response.
    fn end(&mut self, now: Now) -> Reply;

    /// The client has disconnected.
    fn broken(&mut self, now: Now);
}

/// Returns whether a channel belongs to a point.
pub(crate) fn owns(point: &dyn ChannelPoint, channel: &Name) -> bool {
    channel.as_str().starts_with(names_of(point))
}

/// Returns the begin of the names of a point's channels: its prefix without the first slash.
pub(crate) fn names_of(point: &dyn ChannelPoint) -> &str {
    point.prefix().strip_prefix('/').unwrap_or_default()
}

/// A body that is being read.
pub(crate) struct PointUpload {
    pub(crate) exchange: Exchange,
    pub(crate) body: Box<dyn PointBody>,
    /// No piece was requested: the body wakes the handler.
    pub(crate) rests: bool,
}

/// A read that waits.
pub(crate) struct PointWaiting {
    pub(crate) request: Kept,
    pub(crate) exchange: Exchange,
    /// The acts that an application has allowed for the request.
    pub(crate) granted: Vec<(Act, Name)>,
}
