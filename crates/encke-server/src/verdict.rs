//! The decision of a guard, and its additions to a request that passes.

use std::sync::Arc;

use crate::end_token::EndToken;
use crate::passed_fields::PassedFields;
use crate::reply::{Fields, Reply};

/// A guard's decision about a request.
pub enum GuardVerdict {
    /// See [`GuardOutcome::Pass`](crate::GuardOutcome::Pass).
    Pass(Passage),
    /// See [`GuardOutcome::Refuse`](crate::GuardOutcome::Refuse).
    Refuse(Reply),
}

/// Additions of a guard to a request that passes.
#[derive(Clone, Debug, Default)]
pub struct Passage {
    /// Fields of the response, whether a handler or a later guard gives it. With `Set-Cookie` among them, `Cache-Control` of the response becomes `private, no-store`.
    pub fields: Fields,
    /// The user's name, for later guards, the handler and the log.
    pub user: Option<Arc<str>>,
    /// Changes to the fields that an application gets.
    pub passed: Option<Arc<PassedFields>>,
    /// Values that are dropped at the end of the request.
    pub until_end: Vec<EndToken>,
}
