//! The console's API, from outside.

#[path = "../running/mod.rs"]
mod running;

mod settings;
mod streams;
