//! Refusals of the engine: requests that reach no handler, or whose handler cannot respond to them. Each has a reason, which the
//! log has, and under which it is counted.

use encke_io::Token;
use encke_settings::ByteSize;
use encke_wire::field::Known;
use encke_wire::forwarded::{ForwardingField, is_unclosed};
use encke_wire::http1::{Framing, Refusal, TargetForm};
use encke_wire::method::Method;
use encke_wire::path_pattern::PATH_BYTES_MAX;
use encke_wire::target::decode_path;

use crate::close::CloseReason;
use crate::conn::{ConnPhase, LINGER};
use crate::core::Core;
use crate::https;
use crate::log;
use crate::record::Asked;
use crate::reply::Reply;
use crate::request::Request;

/// The methods that a handler may receive; any other method is a 501.
pub(crate) const METHODS: &str = "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS";

/// The response to a request, or to a body, that is rejected by its form or size.
pub(crate) fn refusal_reply(refusal: Refusal) -> Reply {
    let status = refusal.status();
    let setting = log::setting_of(refusal.reason()).map_or_else(String::new, |key| format!(" ({key})"));
    let text = format!("{status} {}\n{refusal}{setting}\n", encke_wire::status::reason(status));
    Reply::text(status, text).with("X-Content-Type-Options", "nosniff").because(refusal.reason_ref())
}

/// The response to a request with a body that would otherwise be taken over by a resident.
pub(crate) fn has_body() -> Reply {
    let text = "a request for a stream or a WebSocket must not have a body\n";
    Reply::text(400, text).because(&"body_of_stream").and_close()
}

impl Core {
    /// The response to a request for a path that no mount point serves.
    pub(crate) fn no_handler() -> Reply {
        Reply::error(404).because(&"no_handler")
    }

    /// Counts a refusal of the engine by its reason. A redirect has none, and neither has a 500.
    pub(crate) fn count_refusal(&self, reply: &Reply) {
        if let Some(reason) = reply.reason {
            self.metrics.refused(reason);
        }
    }

    /// Responds with 408 to a request that did not arrive in time.
    pub(crate) fn time_out(&mut self, token: Token, reason: CloseReason) {
        let conn = &mut self.conns[token.index as usize];
        conn.phase = ConnPhase::Open;
        conn.reason = reason;
        conn.flags |= LINGER;
        self.metrics.refused(reason.name());
        let (_, content) = self.put_reply(token, Asked::unread(token), true, Reply::error(408));
        let entry = self.begin_refused_entry(token);
        self.end_entry(entry, 408, content, self.now.mono_ns, reason.cause());
        self.next_request(token);
        self.settle(token);
    }

    /// Returns the response to a request that needs no handler, if there is one. `to_https`: the listener redirects to https.
    #[inline(always)]
    pub(crate) fn preliminary(&self, request: &Request<'_>, to_https: bool) -> Option<Reply> {
        let too_large = match (request.framing(), self.policy.limits.body_bytes.on().map(ByteSize::bytes)) {
            (Framing::Length(length), Some(most)) => length > most,
            _ => false,
        };
        match request.method() {
            _ if too_large => Some(Reply::error(413).because(&"body_too_large").and_close()),
            _ if request.head.expects_unknown() => Some(Reply::error(417).because(&"unknown_expectation")),
            Method::Other => Some(Reply::error(501).because(&"unknown_method")),
            // A tunnel: bytes that follow would belong to it, so nothing more is read.
            Method::Connect => Some(Reply::error(501).because(&"connect").and_close()),
            // TRACE would echo cookies and tokens to any script that can make a browser send it.
            Method::Trace => Some(Reply::error(405).with("Allow", METHODS).because(&"trace")),
            Method::Options if request.form() == TargetForm::Asterisk => {
                Some(Reply::new(204).with("Allow", METHODS))
            }
            _ if to_https && https::is_missing(request) => {
                Some(https::redirect(request, self.policy.https_port))
            }
            _ if is_path_too_long(request.path()) => Some(Reply::error(414).because(&"path_too_long")),
            _ if self.policy.dialect == ForwardingField::Forwarded && has_unclosed_forwarded(request) => {
                Some(Reply::error(400).because(&"invalid_forwarded"))
            }
            _ => None,
        }
    }
}

/// Whether no pattern of a rule could match the path: it is too long.
#[inline]
fn is_path_too_long(path: &[u8]) -> bool {
    path.len() > PATH_BYTES_MAX && is_decoded_path_too_long(path)
}

/// A path with escapes or dot segments may be short when decoded. One that cannot be decoded is rejected by its handler.
#[cold]
fn is_decoded_path_too_long(path: &[u8]) -> bool {
    let mut decoded = String::new();
    decode_path(path, &mut decoded).is_ok() && decoded.len() > PATH_BYTES_MAX
}

fn has_unclosed_forwarded(request: &Request<'_>) -> bool {
    request.all(Known::Forwarded).any(is_unclosed)
}
