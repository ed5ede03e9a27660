//! The core of push: channels with a history, subscribers that are positions in it, and presence.
//!
//! The crate does no I/O. It never reads, writes, waits, starts a thread, or queries the time or entropy. (Hash tables of std
//! seed themselves, so that clients cannot choose colliding names. Nothing depends on iteration order.) Two state machines with
//! `&mut self` methods exchange values. The owner of the threads carries the values between them.
//!
//! ```text
//!  publisher ─ Draft ─► Sequencer (one) ── Feed, in offset order ──► Hub (one per worker) ── Delivery ─► connections
//!                          ▲   histories, memory, epoch, members               │  replicas of wanted channels,
//!                          └──────────────────── Request ──────────────────────┘  subscribers, passes
//! ```
//!
//! **One order.** The [`Sequencer`] assigns every message of all channels the next offset of one stream. Each [`Hub`] receives
//! the messages of its wanted channels in that order. So one [`Position`] is enough to describe the progress of a subscriber in
//! all its channels, however many they are and however often they change.
//!
//! **Several streams** are several such pairs of machines that share nothing. [`Streams`] assigns channels to streams. [`Hubs`]
//! presents a subscriber with channels of several streams as one.
//!
//! **A subscriber is a position, not a queue.** The ring of a channel holds each message once, so a slow subscriber costs no
//! extra memory. When the ring has passed a subscriber, the channel's [`Overrun`] policy decides.
//!
//! **Every gap is reported.** Each channel records the offset up to which it has lost messages. A subscriber with an older
//! position receives a [`Gap`], unless it wants only the latest message. A subscriber with a newer position receives none.
//!
//! **Only the rings grow with messages**, and their memory is charged and limited ([`Rules`]). Between the two machines each
//! channel has one position and one mark per worker. A worker that takes no feed for a while later receives its losses.
#![forbid(unsafe_code)]

mod channel;
mod encoding;
mod hub;
mod hubs;
mod keys;
pub mod limits;
mod message;
mod name;
mod pattern;
mod position;
mod preamble;
mod ring;
mod roster;
mod rules;
mod sequencer;
mod slab;
mod start;
mod streams;
mod subscriber;
mod token_bucket;
mod values;

pub use encoding::{Encoder, Form, Gap, GapReason, Run};
pub use hub::{Delivery, DeliveryContent, Hub, Lag, Pass, ReaderState, Subscribe, SubscribeError};
pub use hubs::Hubs;
pub use message::{Draft, Flags, IdempotencyKey, Message};
pub use name::{Name, NameError};
pub use pattern::{Pattern, PatternError};
pub use position::{Beside, Epoch, Id, Position, PositionError, Positions, Since, SinceError};
pub use preamble::ChannelPreamble;
pub use rules::{Ack, ChannelRules, Overrun, Rules};
pub use sequencer::{
    Announcement, AudienceChange, Backlog, ChannelCursor, ChannelFigures, ChannelPage, ChannelRow,
    ChannelWalk, ClusterCommand, ClusterEvent, Commit, Deletion, Info, MemberPresence, NodeId, PublishAck,
    PublishError, PublishTicket, Published, Publishing, Queueing, Recall, SavedChannel, SavedHistories,
    Sequencer, Stored,
};
pub use streams::Streams;
pub use subscriber::{Member, Once, SUBSCRIBER_BYTES, SubscriberId};
pub use token_bucket::{TokenBucket, TokenBuckets};
pub use values::{Feed, FeedRequest, Recalled};

/// A moment, as read by the caller from its clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HubNow {
    /// Nanoseconds on a monotonic clock.
    pub mono_ns: u64,
    /// Milliseconds since 1970-01-01T00:00:00Z, on a clock that may be set.
    pub unix_ms: u64,
}
