//! Windows.

pub(crate) mod process;
