//! Errors of the API: problem details (RFC 9457).

use std::borrow::Cow;

use encke_server::{Body, Reply};
use encke_wire::status;
use serde_json::{Value, json};

/// The member with the time to wait in seconds; the field `Retry-After` repeats it.
const RETRY_AFTER: &str = "retry_after_s";

/// An error response of the API.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ApiProblem {
    pub(crate) status: u16,
    /// The last part of the problem's type, `/problems/KIND`; empty for `about:blank`, whose meaning is that of the status.
    kind: &'static str,
    /// What is wrong, and the remedy.
    detail: Cow<'static, str>,
    /// Further members.
    more: Vec<(&'static str, Value)>,
}

impl ApiProblem {
    /// Creates a problem that has no type beyond its status.
    pub(crate) fn new(status: u16, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::of("", status, detail)
    }

    /// Creates a problem of a type.
    pub(crate) fn of(kind: &'static str, status: u16, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, kind, detail: detail.into(), more: Vec::new() }
    }

    /// Adds a member.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.more.push((name, value.into()));
        self
    }

    /// Adds the time in seconds after which the request may succeed.
    #[must_use]
    pub(crate) fn retry_after(self, wait_s: u64) -> Self {
        self.with(RETRY_AFTER, wait_s)
    }

    /// Names the field of the request's body that is wrong, by its JSON pointer (RFC 6901).
    #[must_use]
    pub(crate) fn at(self, pointer: &str) -> Self {
        let errors = json!([{ "pointer": pointer, "detail": self.detail }]);
        self.with("errors", errors)
    }

    /// Returns the problem as JSON.
    pub(crate) fn json(&self) -> Value {
        let kind = match self.kind {
            "" => "about:blank".to_owned(),
            kind => format!("/problems/{kind}"),
        };
        let mut json = json!({
            "type": kind,
            "title": status::reason(self.status),
            "status": self.status,
            "detail": self.detail,
        });
        for (name, value) in &self.more {
            json[*name] = value.clone();
        }
        json
    }
}

impl From<ApiProblem> for Reply {
    fn from(problem: ApiProblem) -> Self {
        let mut reply = Self::new(problem.status).with("Content-Type", "application/problem+json");
        if problem.status == 401 {
            reply = reply.with("WWW-Authenticate", "Bearer");
        }
        if let Some((_, wait_s)) = problem.more.iter().find(|(name, _)| *name == RETRY_AFTER) {
            reply = reply.with("Retry-After", wait_s.to_string());
        }
        reply.body(Body::Bytes(problem.json().to_string().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_its_type_its_cause_and_the_wrong_field() {
        let plain = ApiProblem::new(404, "no list is named `x`").json();
        assert_eq!(
            plain,
            json!({"type": "about:blank", "title": "Not Found", "status": 404, "detail": "no list is named `x`"})
        );
        let typed = ApiProblem::of("field", 422, "not a number").at("/seconds").json();
        assert_eq!(typed["type"], "/problems/field");
        assert_eq!(typed["errors"], json!([{"pointer": "/seconds", "detail": "not a number"}]));
    }

    #[test]
    fn fields_repeat_the_scheme_of_a_401_and_the_time_to_wait() {
        let field =
            |problem: ApiProblem, name: &str| Reply::from(problem).fields.value(name).map(<[u8]>::to_vec);
        assert_eq!(field(ApiProblem::new(401, "log in"), "WWW-Authenticate"), Some(b"Bearer".to_vec()));
        assert_eq!(field(ApiProblem::new(403, "no"), "WWW-Authenticate"), None);
        assert_eq!(field(ApiProblem::new(429, "wait").retry_after(7), "Retry-After"), Some(b"7".to_vec()));
    }
}
