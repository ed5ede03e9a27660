//! The program and its server: flags, signals, logs, TLS, other programs' clients, the documents' examples.

#[path = "../running/mod.rs"]
mod running;

mod documents;
mod https;
mod program;
mod restart;
mod secure;
mod serve;
mod strangers;
mod terminal;
