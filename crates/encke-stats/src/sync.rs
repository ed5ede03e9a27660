//! Synchronisation primitives of `ticket.rs`. `tests/loom.rs` compiles that file against loom's primitives instead, which explore
//! the interleavings of threads.

pub(crate) use std::sync::{Arc, Mutex, PoisonError};
