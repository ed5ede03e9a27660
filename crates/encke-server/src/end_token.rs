//! Tokens of guards that live as long as a request: from its admission until its response is sent, or its connection is closed.
//!
//! ```text
//!  Passage ─► GuardProgress ─► Record ─┬─ response complete ─► Core::end_tokens ─ sent, closed ─► dropped
//!                                      ├─ takeover ──────────► Core::end_tokens ─ resident ends ► dropped
//!                                      └─ client gone ─────────────────────────────────────────► dropped
//! ```
//! Without tokens a completed send and a closed connection test one flag each.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::reply::Fields;

/// A value that is dropped once a request has ended: its response is sent, or its connection is closed. If its connection passes to
/// a resident, such as an event stream or a WebSocket, it is dropped at the end of that.
#[derive(Clone)]
pub struct EndToken(#[expect(dead_code, reason = "only its destructor matters")] Arc<dyn Any + Send + Sync>);

impl EndToken {
    /// Wraps a value.
    pub fn new(value: impl Any + Send + Sync) -> Self {
        Self(Arc::new(value))
    }
}

impl fmt::Debug for EndToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndToken")
    }
}

/// The tokens of a connection without an open exchange.
#[derive(Default)]
pub(crate) struct ConnTokens {
    /// Tokens of requests whose responses are in the output.
    pub(crate) responses: Vec<EndToken>,
    /// Tokens of the request that has passed the connection to a resident. Responses to pipelined requests before it may still
    /// be in the output.
    pub(crate) resident: Vec<EndToken>,
    /// Fields of guards for the response of that resident, until its head is written.
    pub(crate) fields: Fields,
}
