//! Specimens: code as the reports had it, kept to be looked at. The slow twins of what Encke does, in C where the
//! reports' programs were C, each behind a safe front. Nothing here serves anybody.
//!
//! `unsafe` stands in these files alone: calls into C that this crate compiles itself.

pub(crate) mod accept;
pub(crate) mod bytewise;
pub(crate) mod files;
pub(crate) mod heaps;
pub(crate) mod mux;
pub(crate) mod pico;
pub(crate) mod trigger;
