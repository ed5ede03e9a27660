//! `pub`, `sub`, `token`, and channels that survive a restart.

#[path = "../running/mod.rs"]
mod running;

mod durable;
mod push;
mod token;
