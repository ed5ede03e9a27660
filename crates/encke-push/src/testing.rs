//! The settings of rights, for tests of features that serve channels: those crates do not depend on `encke-rights`.
//!
//! The feature `testing` adds this module. No program enables it.

pub use encke_rights::{Act, AuthSettings, Openness, Shut, StaticToken};
