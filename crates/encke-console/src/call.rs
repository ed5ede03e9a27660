//! A request of the API that has passed all checks, and the right to respond to it.

use std::net::IpAddr;
use std::sync::Arc;

use encke_server::{Body, Exchange, Reply};
use encke_settings::conceal::conceal_json;

use crate::audit::AuditEntry;
use crate::problem::ApiProblem;
use crate::session::Identity;
use crate::settings::ConsoleRole;
use crate::shared::ConsoleShared;

/// The CSRF token of users with a certificate. It is no secret: only its presence in a field proves the origin.
pub(crate) const CERTIFICATE_CSRF: &str = "certificate";

/// A request that has passed all checks.
pub(crate) struct Call {
    pub(crate) shared: Arc<ConsoleShared>,
    /// The user; `None` on routes that are open.
    pub(crate) identity: Option<Identity>,
    pub(crate) path: String,
    /// The variable segments of the path.
    pub(crate) params: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) if_match: Option<String>,
    /// The host and port of the request, as the client wrote them.
    pub(crate) authority: String,
    pub(crate) is_secure: bool,
    pub(crate) is_head: bool,
    /// The name of the session cookie.
    pub(crate) cookie_name: String,
    /// The client's address, as a trusted proxy reports it; without such a report the peer's. `None` for a Unix socket.
    pub(crate) client: Option<IpAddr>,
    /// Maximum size of the body in bytes.
    pub(crate) body_max: usize,
    pub(crate) responder: CallResponder,
}

/// The right to respond to a call. Records the change in the audit.
pub(crate) struct CallResponder {
    pub(crate) exchange: Exchange,
    pub(crate) shared: Arc<ConsoleShared>,
    pub(crate) audit: Option<AuditEntry>,
    /// Whether the response has no secrets: always but for an administrator who edits the settings.
    pub(crate) conceals: bool,
}

/// The result of a call.
pub(crate) type CallResult = Result<Reply, ApiProblem>;

impl CallResponder {
    /// Sets the old and the new value of a change, in short, for the audit.
    pub(crate) fn change(&mut self, old: impl Into<String>, new: impl Into<String>) {
        if let Some(entry) = &mut self.audit {
            (entry.old, entry.new) = (old.into(), new.into());
        }
    }

    /// Names the user of the change, who is known only now.
    pub(crate) fn set_user(&mut self, user: &Arc<str>) {
        if let Some(entry) = &mut self.audit {
            entry.user = Arc::clone(user);
        }
    }

    /// Responds.
    pub(crate) fn send(self, result: CallResult) {
        let reply = result.unwrap_or_else(Reply::from);
        if let Some(entry) = self.audit {
            self.shared.audit.record(AuditEntry { result: reply.status, ..entry });
        }
        self.exchange.answer(finished(if self.conceals { concealed(reply) } else { reply }));
    }

    /// The handle that wakes the response's stream.
    pub(crate) fn wake_handle(&self) -> encke_server::WakeStream {
        self.exchange.wake_handle()
    }
}

/// Conceals the secrets of the settings in a response.
fn concealed(mut reply: Reply) -> Reply {
    if let Body::Bytes(bytes) = reply.body {
        reply.body = Body::Bytes(match String::from_utf8(bytes) {
            Ok(text) => conceal_json(text).into_bytes(),
            Err(error) => error.into_bytes(),
        });
    }
    reply
}

/// Adds the fields of every response of the API.
pub(crate) fn finished(reply: Reply) -> Reply {
    reply.with("Cache-Control", "no-store").with("X-Content-Type-Options", "nosniff")
}

impl Call {
    /// Parses the body as JSON.
    ///
    /// # Errors
    /// The body is not the expected JSON.
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, ApiProblem> {
        serde_json::from_slice(&self.body)
            .map_err(|error| ApiProblem::new(400, format!("the body is not the expected JSON: {error}")))
    }

    /// Checks that the query has no other parameters.
    ///
    /// # Errors
    /// The first unknown parameter.
    pub(crate) fn allow_query(&self, known: &[&str]) -> Result<(), ApiProblem> {
        match self.query.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            Some((key, _)) => Err(ApiProblem::new(400, format!("the parameter `{key}` is unknown"))),
            None => Ok(()),
        }
    }

    /// Checks that the user still has the rights with which the request began.
    ///
    /// # Errors
    /// The session has ended, or the user was changed.
    pub(crate) fn check_access(&self) -> Result<(), ApiProblem> {
        self.shared.check_access(self.identity.as_ref())
    }

    /// The role of the user; the least one on open routes.
    pub(crate) fn role(&self) -> ConsoleRole {
        self.identity.as_ref().map_or(ConsoleRole::View, |identity| identity.role)
    }

    pub(crate) fn param(&self, place: usize) -> &str {
        self.params.get(place).map_or("", String::as_str)
    }

    pub(crate) fn address(&self) -> String {
        address_text(self.client)
    }
}

/// An address for the audit.
pub(crate) fn address_text(client: Option<IpAddr>) -> String {
    client.map_or_else(|| "unix".to_owned(), |client| client.to_string())
}
