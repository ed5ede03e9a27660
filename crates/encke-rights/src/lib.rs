//! Who may do what on channels.
//!
//! ```text
//!  request ─► a page of another site? ──────────────────────────────────────────► Denial: 403
//!    │
//!    ├─ a token: Authorization: Bearer, ?access_token=, cookie
//!    │    ├─ this worker has seen it ─────────────────► Identity
//!    │    ├─ a fixed one of the settings ─────────────► Identity ┐ remembered by its SHA-256
//!    │    ├─ a JWT that a key of ours has signed ─────► Identity ┘ until it ends
//!    │    └─ neither ─────────────────────────────────► Denial: 401; nobody, if an application is asked
//!    └─ none
//!         ├─ a certificate, and the server is not open ► Identity that may do what `certificates` names
//!         ├─ the server is open to the request (`open`) ► Identity that may do everything
//!         └─ nobody ──────────────────────────────────► Identity that may do what `anonymous` names
//!
//!  Identity ─► may it? ─► if not, and there is an application to ask: Question ─► (offload) ─► Verdict
//! ```
//! [`Rights`] are made from settings, replaced whole at a reload, and shared by all workers without a lock: what a
//! worker finds out it keeps in a [`TokenCache`] of its own. Only what was found good is kept.
//!
//! A token is a secret. It is held as long as the request is looked at and no longer: the cache knows its digest,
//! an [`Identity`] not even that. The access log masks it in targets (`log/line.rs`), and no error repeats it.

mod act;
mod ask;
mod denial;
mod grants;
mod keys;
mod open;
mod origins;
mod rights;
mod settings;
mod share;
mod signer;
mod table;
mod token;

pub use act::Act;
pub use ask::{Question, Verdict};
pub use denial::Denial;
pub use grants::pattern;
pub use keys::Digest;
pub use open::{Openness, Shut};
pub use rights::{Decision, Identity, Rights, TokenCache, client_number};
pub use settings::{AskUrl, AuthSettings, CertificateRights, KeySettings, StaticToken};
pub use share::Share;
pub use signer::{Pass, Signer};
