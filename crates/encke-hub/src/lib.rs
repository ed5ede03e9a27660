//! The core of push: channels with a history, subscribers that are positions in it, presence.
//!
//! It is no server: nothing here reads, writes, waits, starts a thread or asks for the time or for entropy. (The tables
//! of std draw a seed for their hashes, so that nobody can choose names that collide; nothing depends on their order.)
//! Two machines with `&mut self` methods exchange values; whoever owns threads carries the values between them.
//!
//! ```text
//!  publisher ─ Draft ─► Sequencer (one) ── Feed, in the order of offsets ──► Hub (one a core) ── Delivery ─► connections
//!                          ▲   histories, memory, epoch, members               │  replicas of wanted channels,
//!                          └──────────────────── Request ──────────────────────┘  subscribers, passes
//! ```
//!
//! **One order.** The [`Sequencer`] gives every message of all channels the next offset of one stream, and each
//! [`Hub`] is fed the messages of the channels it wants in that order. So one [`Position`] says what a subscriber
//! has seen of all its channels, however many they are and whenever they change.
//!
//! **Several streams** are several such pairs of machines that know nothing of one another: [`Streams`] says which channel is
//! of which. [`Hubs`] makes one subscriber of those that somebody has in several of them.
//!
//! **A subscriber is a position, not a queue.** Messages lie once in the ring of their channel; a subscriber that
//! falls behind costs nothing more. When the ring has passed it, the channel's [`Overrun`] policy decides.
//!
//! **A gap is said, never silence.** Each channel knows up to which offset it has lost messages. A subscriber whose
//! position is older is told a [`Gap`] (unless it only wants the latest), and one whose position is not is told none.
//!
//! **Nothing grows with messages but the rings**, whose memory is charged and limited ([`Rules`]): what waits between
//! the two machines is a position and a mark for each channel and core, and a core that stays away is told what it
//! has lost.
#![forbid(unsafe_code)]

mod channel;
mod encoding;
mod hub;
mod hubs;
mod keys;
pub mod limits;
mod message;
mod name;
mod pace;
mod pattern;
mod position;
mod ring;
mod roster;
mod rules;
mod sequencer;
mod slab;
mod start;
mod streams;
mod subscriber;
mod values;

pub use encoding::{Encoder, Form, Gap, GapReason, Run};
pub use hub::{Delivery, Hub, Lag, Pass, Refused, Subscribe, What};
pub use hubs::Hubs;
pub use message::{Draft, Flags, IdempotencyKey, Message};
pub use name::{Name, NameError};
pub use pace::{Pace, Paces};
pub use pattern::{Pattern, PatternError};
pub use position::{Beside, Epoch, Id, Position, PositionError, Positions, Since, SinceError};
pub use rules::{Ack, ChannelRules, Overrun, Rules};
pub use sequencer::{
    Announcement, Backlog, Change, Commit, Deletion, Errand, Info, News, NodeId, Place, Published,
    Publishing, Queueing, Recall, Refusal, Saved, SavedChannel, Sequencer, Stored, Ticket,
};
pub use streams::Streams;
pub use subscriber::{Member, Once, SUBSCRIBER_BYTES, SubscriberId};
pub use values::{Feed, Recalled, Request};

/// A moment, as the one who calls has read it from its clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds on a clock that never goes back.
    pub mono_ns: u64,
    /// Milliseconds since 1970-01-01T00:00:00Z, on a clock that may be set.
    pub unix_ms: u64,
}
