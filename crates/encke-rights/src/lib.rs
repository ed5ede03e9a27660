//! Authorization: which client may publish to a channel, read it, list its members, or manage it.
//!
//! ```text
//!  request ─► from a page of another site? ─────────────────────────────────────► Denial: 403
//!    │
//!    ├─ has a token: Authorization: Bearer, ?access_token=, cookie
//!    │    ├─ cached by this worker ───────────────────► Principal
//!    │    ├─ a static token of the settings ──────────► Principal ┐ cached by its SHA-256
//!    │    ├─ a JWT signed by one of our keys ─────────► Principal ┘ until it expires
//!    │    └─ neither ─────────────────────────────────► Denial: 401; with `auth.ask` an anonymous Principal
//!    └─ has none
//!         ├─ a certificate, and the server is not open ► Principal with the rights of `certificates`
//!         ├─ the server is open to the request (`open`) ► Principal with every right
//!         └─ neither ─────────────────────────────────► Principal with the rights of `anonymous`
//!
//!  Principal ─► allowed? ─► if not, and `auth.ask` is set: Question ─► AskClient ─► AskVerdict
//! ```
//! [`Rights`] are built from the settings, replaced as a whole at a reload, and shared by all workers without a lock. Each
//! worker caches verified tokens in its own [`TokenCache`]. Rejected tokens are not cached.
//!
//! [`AccessRules`] are rules for addresses and passwords: a guard of the server, independent of tokens and channels (`access.rs`).
//! [`RateRules`] limit how many requests a client may send (`rate.rs`).
//!
//! A token is a secret, held only while its request is processed. The cache stores its digest, and a [`Principal`] stores no
//! token text. The access log masks tokens in targets (`log/line.rs`), and no error repeats them.

mod access;
mod act;
mod ask;
mod ask_client;
mod denial;
mod error;
mod grants;
mod keys;
mod limits;
mod open;
mod origins;
mod rate;
mod retry_pace;
mod rights;
mod settings;
mod share;
mod signer;
mod table;
mod token;
mod turns;

pub use access::{
    AccessError, AccessFigures, AccessRules, AccessSettings, PasswordFault, PasswordFileError, PasswordHash,
    RejectedScheme,
};
pub use act::Act;
pub use ask::{AskVerdict, Question};
pub use ask_client::{AskClient, AskForm};
pub use denial::Denial;
pub use error::{
    ChannelPatternError, KeyError, RightsError, RightsErrorOrigin, SigningError, StaticTokenError,
    SubjectError,
};
pub use grants::pattern;
pub use keys::Digest;
pub use open::{Openness, Shut};
pub use origins::check_origin;
pub use rate::{RateBy, RateError, RateFigures, RateRules, RateSettings, RateStage, RequestRate};
pub use rights::{Decision, Principal, Rights, TokenCache, client_number};
pub use settings::{AskUrl, AuthSettings, CertificateRights, KeySettings, StaticToken};
pub use share::Share;
pub use signer::{Signer, TokenContents};
pub use turns::Turns;
