//! Windows: SOCKET and HANDLE.

pub(crate) mod afd;
pub(crate) mod backends;
pub(crate) mod bell;
pub(crate) mod changes;
pub(crate) mod command_line;
pub(crate) mod console;
pub(crate) mod counters;
pub(crate) mod drain_mark;
pub(crate) mod error;
pub(crate) mod event_wait;
pub(crate) mod file_names;
pub(crate) mod files;
pub(crate) mod host;
pub(crate) mod links;
pub(crate) mod net;
pub(crate) mod object;
pub(crate) mod port;
mod private_files;
pub(crate) mod process;
pub(crate) mod security;
pub(crate) mod service;
pub(crate) mod transmit;
pub(crate) mod usage;
