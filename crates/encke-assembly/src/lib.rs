//! A complete server: settings file, features mounted on the engine, status, reload.
//!
//! ```text
//! encke.toml ─► Settings ─► Service::start ─► Server, Mount, Mount, … ─► Running
//!               (sections of the features)    (encke-server)
//! ```
//! Only this library knows every feature. A feature is added here, with its section in [`Settings`] and its mount in
//! [`Service`], and in no crate below. The library owns the settings of the process and checks for contradictions between
//! sections; each feature checks its own section. It parses no request and owns no connection.
//!
//! [`Settings`]: settings::Settings

#[cfg(feature = "tls")]
mod acme;
#[cfg(not(feature = "tls"))]
#[path = "acme/without.rs"]
mod acme;
mod app_actions;
mod descriptors;
mod error;
mod predecessor;
mod reload_figures;
mod service;
pub mod settings;
mod settings_access;

pub use encke_console::{ApplyError, OverriddenSetting};
pub use encke_server::{Drained, OpenWork};
pub use error::ServiceError;
pub use predecessor::Predecessor;
pub use service::Service;
pub use settings_access::{FlagConflict, ReloadRequests, ReloadResult, SettingsAccess};
