//! Errors of the API: problem details (RFC 9457).

use encke_server::{Body, CodedText, Reply};
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
    detail: CodedText,
    /// Further members.
    more: Vec<(&'static str, Value)>,
}

impl ApiProblem {
    /// Creates a problem that has no type beyond its status.
    pub(crate) fn new(status: u16, detail: impl Into<CodedText>) -> Self {
        Self::of("", status, detail)
    }

    /// Creates a problem of a type.
    pub(crate) fn of(kind: &'static str, status: u16, detail: impl Into<CodedText>) -> Self {
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
        let mut error = json!({ "pointer": pointer, "detail": self.detail.to_string() });
        add_reason(&mut error, &self.detail);
        self.with("errors", json!([error]))
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
            "detail": self.detail.to_string(),
        });
        add_reason(&mut json, &self.detail);
        for (name, value) in &self.more {
            json[*name] = value.clone();
        }
        json
    }
}

/// Adds the code of a text, if it has one.
fn add_reason(json: &mut Value, text: &CodedText) {
    if let Some(reason) = reason_json(text) {
        json["reason"] = reason;
    }
}

/// Returns the code and the parameters of a text as JSON. A page that has the text in its language shows that.
pub(crate) fn reason_json(text: &CodedText) -> Option<Value> {
    let params: serde_json::Map<String, Value> =
        text.params().map(|(name, value)| (name.to_owned(), value.into())).collect();
    Some(json!({ "code": text.code()?, "params": params }))
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
        assert!(typed.get("reason").is_none());
    }

    #[test]
    fn a_text_with_a_code_is_in_english_and_as_code_with_parameters() {
        let text = CodedText::new("full", "{n} pages are open").with("n", 5);
        let json = ApiProblem::of("field", 422, text).at("/pages").json();
        let reason = json!({ "code": "full", "params": { "n": "5" } });
        assert_eq!((&json["detail"], &json["reason"]), (&json!("5 pages are open"), &reason));
        assert_eq!(
            json["errors"],
            json!([{"pointer": "/pages", "detail": "5 pages are open", "reason": reason}])
        );
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
