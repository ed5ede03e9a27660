//! Unix: what Linux and the other Unix systems share.

pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod host;
pub(crate) mod net;
pub(crate) mod poll;
pub(crate) mod process;
pub(crate) mod service;
pub(crate) mod usage;

pub(crate) use super::own::{backends, bell, changes, counters, drain_mark};
