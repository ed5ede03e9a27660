//! Access control: addresses, passwords, and the decision of an application, by host and path, for files, channels and routes alike.
//!
//! ```text
//!  [[access]] ─► AccessRules (GuardMount) ─ open ─► AccessGuard, one per worker
//!
//!  request ─► decoded path ─► rules whose host and pattern match, each of which must pass
//!               │ an address is denied ─────────────────────────────────────► 403
//!               │ no password is required, or `any` and an allowed address ─► passes
//!               ├─ no credentials ──────────────────────────────────────────► 401
//!               └─ credentials ─┬─ cached: right, wrong ────────────────────► passes with the user's name · 401
//!                               └─ not cached: held ─► turns ─► (offload) one hash at a time ─┘
//!  passes ─► `ask` of the rules: held ─► AskClient ─► the application's answer (`asking.rs`)
//! ```
//! - A path that cannot be decoded passes: every handler rejects it. ACME challenges pass.
//! - **Cost.** Without rules no guard is mounted. A hash takes 5 to 500 ms of a processor, so a worker verifies one password at
//!   a time, on threads that files do not use, and requests with the same credentials share its result. Results are cached: 60 s
//!   if the password is right, 1 s if it is wrong.
//! - **Addresses take turns.** A client that guesses passwords delays the others by one hash, and takes no place that another
//!   address needs ([`Turns`](crate::turns::Turns)).
//! - **Secrets.** The cache stores SHA-256 digests with a random prefix. A password is held while its request waits.
//! - **Unknown users** cost the same time as known ones: their password is verified against the hash of another user, chosen by
//!   the name, and then rejected.
//! - Password files are read when the rules are built, at the start and at a reload.

mod asking;
mod cache;
mod error;
mod figures;
mod guard;
mod passwords;
mod rule;
mod settings;
#[cfg(test)]
mod tests;

pub use error::{AccessError, PasswordFault, PasswordFileError, RejectedScheme};
pub use figures::AccessFigures;
pub use passwords::PasswordHash;
pub use rule::AccessRules;
pub use settings::AccessSettings;

pub(crate) use settings::scope_errors;
