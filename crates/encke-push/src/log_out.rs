//! Log-outs: `DELETE ?user=` ends the subscriptions of a user on all workers.
//!
//! ```text
//! handler ─► LogOutRequest ─► its worker ── LogOutOrder ─► each worker: a slice of its connections per turn
//!                                │                             │ a subscriber of the user: `PushWorker::log_out`
//!                                └── sum ◄── Gathered ◄────────┘ (the count of this worker)
//!                                     └─► the response, and a line for the operator
//! ```
//! A subscriber ends like one whose token expires, between two sends: its identity becomes an ended one
//! ([`Principal::ended`]). Transports differ in how they report it:
//!
//! | transport | between sends | before the start of the response |
//! |---|---|---|
//! | event stream, NDJSON | the end of the response | 403 |
//! | WebSocket | close code 4403 | 101, then close code 4403 |
//! | poll | – | 403 |

use std::collections::VecDeque;
use std::sync::Arc;

use encke_hub::Name;
use encke_rights::{Act, Principal};
use encke_server::{Body, Exchange, Reply};
use encke_settings::notice::{self, Level};
use encke_stats::Ticket;
use encke_wire::target::query_pairs;
use encke_wire::websocket;

use super::negotiate::{bad, refusal, shown};

/// Close code: the user was logged out. The client of Encke takes it as final; the token still works until it expires.
const CLOSE_FORBIDDEN: u16 = 4403;
/// The text for a subscriber that an administrator has ended.
pub(crate) const LOGGED_OUT: &str = "an administrator has ended the subscriptions of this user";

/// Limit of a user's name in a query, in bytes: that of a token's subject is smaller.
const USER_BYTES_MAX: usize = 1_024;

/// The subscriptions to end.
pub(crate) struct LogOutOrder {
    /// The name of a token or certificate. A name that a client has chosen itself (`?name=`) does not count.
    pub(crate) user: Arc<str>,
    /// Subscriptions with one of these channels; `None`: with a channel that the administrator may manage.
    pub(crate) channels: Option<Vec<Name>>,
    /// The client of the request; `None`: an operator, who may manage all channels.
    pub(crate) identity: Option<Principal>,
}

/// A request for a log-out.
pub(crate) struct LogOutRequest {
    pub(crate) exchange: Exchange,
    pub(crate) order: LogOutOrder,
}

/// A log-out in progress on a worker.
pub(crate) struct LogOutScan {
    pub(crate) order: Arc<LogOutOrder>,
    /// The next slot to visit.
    pub(crate) next: usize,
    /// Number of ended subscriptions.
    pub(crate) count: u64,
    /// Receives that number.
    pub(crate) ticket: Ticket<u64>,
}

/// Returns the user in the query of a DELETE, if there is one.
///
/// # Errors
/// A 400: the name is empty or too long, or there is an unknown parameter. Without this check, a misspelled `user` would delete
/// messages.
pub(crate) fn user_in(query: Option<&[u8]>) -> Result<Option<Arc<str>>, Reply> {
    let mut user = None;
    for (key, value) in query_pairs(query.unwrap_or_default()) {
        match &*key {
            "user" if user.is_some() => return Err(bad("user is given twice: name one user".into())),
            "user" if value.is_empty() || value.len() > USER_BYTES_MAX => {
                return Err(bad(format!("invalid user: expected a name of 1 to {USER_BYTES_MAX} bytes")));
            }
            "user" => user = Some(Arc::from(&*value)),
            "access_token" => {}
            other => {
                let other = shown(other);
                return Err(bad(format!("unknown parameter {other:?}: DELETE takes user and access_token")));
            }
        }
    }
    Ok(user)
}

impl LogOutOrder {
    /// Returns whether the order includes the subscriptions of an identity to these channels.
    pub(crate) fn includes(&self, identity: &Principal, channels: &[Name]) -> bool {
        identity.name.as_deref() == Some(&*self.user)
            && !identity.is_ended()
            && match &self.channels {
                Some(named) => channels.iter().any(|channel| named.contains(channel)),
                // A WebSocket without a channel may still publish.
                None => {
                    let managed = |channel| {
                        self.identity.as_ref().is_none_or(|identity| identity.may(Act::Manage, channel))
                    };
                    channels.is_empty() || channels.iter().any(managed)
                }
            }
    }
}

/// Returns the Close for a WebSocket whose user was logged out.
pub(crate) fn logged_out_close() -> Vec<u8> {
    let mut out = Vec::new();
    websocket::put_close(&mut out, CLOSE_FORBIDDEN, LOGGED_OUT);
    out
}

/// Reports a log-out to the operator, and returns the response; `None`: all workers have ended.
pub(crate) fn reply(order: &LogOutOrder, count: Option<u64>) -> Reply {
    let Some(count) = count else { return refusal(503, "the server is stopping".into()) };
    let LogOutOrder { user, channels, identity } = order;
    let by = identity.as_ref().and_then(|identity| identity.name.as_deref());
    let by = by.map_or_else(|| "a client without a name".into(), |name| format!("{name:?}"));
    let on = channels.as_ref().map_or_else(String::new, |channels| {
        let names: Vec<&str> = channels.iter().map(Name::as_str).collect();
        format!(" on {}", names.join(","))
    });
    notice::report(
        Level::Info,
        &format!("user {user:?} was logged out{on} by {by}; ended subscriptions: {count}"),
    );
    Reply::new(200)
        .with("Content-Type", "application/json")
        .with("Cache-Control", "no-store")
        .body(Body::Bytes(format!("{{\"disconnected\":{count}}}\n").into_bytes()))
}

/// The log-outs in progress on a worker, oldest first.
pub(crate) type LogOutQueue = VecDeque<LogOutScan>;
