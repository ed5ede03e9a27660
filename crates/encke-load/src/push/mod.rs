//! Push load: subscribers with open streams or polls, publishers, and an account of every message.
//!
//! ```text
//!   Plan ─► Run: threads, each an Engine with an Audience ─► Tally, while it runs ─► Outcome ─► Report
//!                                                ├─ listeners: stream (bytes to events), receipts (accounts)
//!                                                └─ publishers, on the first thread: mark (identity of a message)
//! ```
//! Guarantees: a subscriber counts once the server has responded. Each message is accounted for at each subscriber (received,
//! late, lost, repeated). All times use one clock, from just before a publisher's send to each receive. `docs/load.md`, "Push",
//! describes what is measured and how.

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
pub use paced::{Paced, PacedStep, RoundFigures};
pub use plan::{DIALS_MAX, PushRunPlan};
pub use publishers::MESSAGES_MAX;
pub use report::{PushReport, SavedPushRun, saved};
pub use run::{Memory, Messages, PushRun, PushRunOutcome, Reach, Storm};
pub use stream::StreamError;
pub use tally::PushTotals;

/// The clock that times messages and receipts: the system's monotonic clock, or that of a simulated world.
pub(crate) type Clockwork = Box<dyn FnMut() -> u64>;
