//! The console's API, from outside.

#[path = "../running/mod.rs"]
mod running;

mod left_token;
mod proxies;
mod settings;
mod streams;
