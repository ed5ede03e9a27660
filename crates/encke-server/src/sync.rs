//! Synchronisation primitives of `call_mark.rs` and `log/tail/queue.rs`. `tests/loom.rs` compiles these files against loom's
//! primitives instead, which explore the interleavings of threads.

pub(crate) use std::sync::{Arc, Mutex, Weak, atomic, mpsc};

pub(crate) use encke_io::lock;
