//! Specimens: code from the reports, kept for measurements. These are slow counterparts of Encke's code, in C where the
//! reports' programs were in C, each with a safe interface. None of this code serves clients.
//!
//! These files contain the only `unsafe` code of the crate: calls into C that this crate compiles itself.

pub(crate) mod accept;
pub(crate) mod bytewise;
pub(crate) mod files;
pub(crate) mod heaps;
pub(crate) mod mux;
pub(crate) mod pico;
pub(crate) mod system;
pub(crate) mod trigger;
