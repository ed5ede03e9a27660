//! A complete server: the settings file, the features that it mounts on the engine, state, reload.
//!
//! ```text
//! encke.toml ─► Settings ─► Service::start ─► Server, Mount, Mount, … ─► Running
//!               (sections of the features)    (encke-server)
//! ```
//! This is the only library that knows every feature: a feature is added here, with its section in [`Settings`] and its
//! mount in [`Service`], and nowhere below. It owns the settings of the process, and checks what contradicts between sections;
//! within a section its owner does. It parses no request and owns no connection.
//!
//! [`Settings`]: settings::Settings

#[cfg(feature = "tls")]
mod acme;
#[cfg(not(feature = "tls"))]
#[path = "acme/without.rs"]
mod acme;
mod service;
pub mod settings;

pub use service::Service;
