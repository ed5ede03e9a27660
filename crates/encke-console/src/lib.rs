//! The admin listener: health, metrics, status, and the status as an event stream.
//!
//! ```text
//! request ─► Console (a handler) ─► ServerStatus (encke-server): the engine's state, and the sources of all features
//! ```
//! The crate depends on no feature: each feature provides its part of the status by a `Source`. All requests are read-only.

mod api;
mod status_stream;

pub use api::Console;
