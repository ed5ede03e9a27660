//! The load generator and the laboratory, against real servers.

#[path = "../running/mod.rs"]
mod running;

mod lab;
mod load;
mod push;
