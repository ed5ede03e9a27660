//! Tests of complete servers from outside, over real sockets: sites, channels, rights, services.
//!
//! The tables of cases are shared with the engine's tests (`encke-server/tests/it/main.rs`).

#![cfg(unix)]

#[path = "../../../encke-server/tests/it/matrix.rs"]
mod matrix;
#[path = "../rig/mod.rs"]
mod rig;
#[macro_use]
#[path = "../../../encke-server/tests/rig/stands.rs"]
mod stands;

mod access;
mod asking;
mod console_push;
mod cuts;
mod defects;
mod deflate;
mod error_texts;
mod examples;
mod expiry;
mod files;
mod h2;
mod https;
mod json_data;
mod log;
mod manage;
mod operators;
mod publisher;
mod push;
mod push_clients;
mod reload;
mod routes;
mod service;
mod storm;
#[cfg(feature = "tls")]
mod tls;
mod websocket_closes;
