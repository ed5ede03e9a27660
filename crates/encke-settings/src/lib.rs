//! Types for settings: the syntax of values, their positions in the file, and errors in them.
//!
//! ```text
//!  encke.toml ─► document::parse ─► all sections, SourceMap (the line of each value)
//!    + include
//!                      └─► Problems: line, column, caret, the word that was meant
//!  Section   a feature owns its part of the file: checks, paths, private files
//!  state     the directory for data that outlives the process
//!  notice    lines for the operator on standard error, by level
//!  conceal   masks secrets in everything that leaves the program
//! ```
//! In scope: quantities, secrets, choices, positions, problems, the schema and the reference page, and `tls` of listeners and
//! upstreams, which several crates read. Out of scope: the values of any feature; each feature's crate has its own section.

mod choice;
pub mod conceal;
pub mod document;
mod foreign;
mod include;
mod network;
pub mod notice;
mod problem;
pub mod quantity;
pub mod reference;
mod secret;
mod section;
mod source;
pub mod state;
mod target_url;
pub mod template;
mod terms;
pub mod text_or_table;
mod tls;
mod upstream_tls;
mod value_error;
pub mod written;

pub use choice::{Choice, LogTarget, OrAuto};
pub use document::{Document, Parsed};
pub use foreign::{Equivalent, ForeignKey};
pub use include::BYTES_MAX;
pub use network::Network;
pub use notice::Level;
pub use problem::{Problem, ProblemRange, Problems, meant};
pub use quantity::{ByteRate, ByteSize, OrOff, Period};
pub use secret::{Secret, SecretError, secret_variables};
pub use section::{Contradiction, Section};
pub use source::{SourceLine, SourceMap};
pub use target_url::{TargetScheme, TargetUrl, is_app_name};
pub use text_or_table::{ShortForm, TextOrTable};
pub use tls::{AcmeChallenge, AcmeSettings, CertSettings, ClientCert, TlsSettings, TlsVersion, is_dns_name};
pub use upstream_tls::UpstreamTls;
pub use value_error::ValueError;
pub use written::Written;
