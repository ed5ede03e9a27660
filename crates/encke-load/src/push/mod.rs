//! Subscribers that are held open and those who publish to them: what comes to whom, when, and what does not.
//!
//! ```text
//!   Plan ─► Run: threads, each an Engine with an Audience ─► Tally, while it runs ─► Outcome ─► Report
//!                                                ├─ listeners: stream (bytes to what is told), receipts (who has what)
//!                                                └─ publishers, on the first thread: mark (what is known of a message)
//! ```
//! What it promises: a subscriber counts when the server has answered it; each message is accounted for at each
//! subscriber (received, late, lost, repeated); all times are of one clock, from just before a publisher's send to
//! each receive. `docs/load.md`, "Push", has what is measured and how.

mod audience;
mod course;
mod dialect;
mod mark;
mod paced;
mod plan;
mod publishers;
mod receipts;
mod report;
mod run;
#[cfg(test)]
mod simulation;
mod stream;
mod tally;

pub use audience::Round;
pub use course::Column;
pub use dialect::{Dialect, Preset, Resume, Transport};
pub use mark::BYTES as PAYLOAD_BYTES_MIN;
pub use paced::{Figures, Paced, Step};
pub use plan::{DIALS_MAX, Plan};
pub use publishers::MESSAGES_MAX;
pub use report::{Report, Saved, saved};
pub use run::{Memory, Messages, Outcome, Reach, Run, Storm};
pub use stream::Wrong;
pub use tally::Totals;

/// The clock by which messages and receipts are timed: the system's monotonic one, or that of a simulated world.
pub(crate) type Clockwork = Box<dyn FnMut() -> u64>;
