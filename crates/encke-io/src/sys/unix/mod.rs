//! Unix.

pub(crate) mod poll;
pub(crate) mod process;
