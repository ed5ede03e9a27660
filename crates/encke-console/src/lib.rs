//! The admin listener: health, metrics, status, and a stream of the latter.
//!
//! ```text
//! request ─► Console (a handler) ─► Board (encke-server): the engine's state, and the sources of all features
//! ```
//! It knows no feature: what a feature shows comes by its `Source`. It changes nothing.

mod api;
mod live;

pub use api::Console;
