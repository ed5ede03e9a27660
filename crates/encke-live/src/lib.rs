//! Live streams: a source sends a picture or sound by PUT, and any number of listeners receive it by GET, from a key frame on.
//!
//! ```text
//! PUT /live/film ─► LiveSource: Splitter ─► MediaGatherer ─► messages of the channel live/film ─► hub of push
//!                                                              head: the preamble                  │
//!                                                              start: a key frame                  ▼
//! GET /live/film ─► LivePoint::read: Content-Type ─► subscriber from the newest key frame: preamble, then messages
//! GET /live/     ─► the list of streams
//! ```
//! The crate knows containers (`encke_wire::media`) and sources. Listeners are subscribers of push; so are their limits, rights
//! and memory. A channel has one source at a time: [`LiveState`] grants leases.

mod actions;
mod counters;
mod feed;
mod figures;
mod keeper;
mod listener_places;
mod mirror;
mod page;
mod point;
mod pull;
mod pull_lookup;
mod pull_reach;
mod pull_token;
mod pull_url;
mod settings;
mod source;
mod state;
#[cfg(test)]
mod tests;

pub use feed::{LiveFeed, LiveFeedError, LiveFeeds};
pub use point::LivePoint;
pub use pull_token::PullTokenError;
pub use settings::{LiveChannelSettings, LiveSettings, PullSettings};
pub use state::LiveState;
