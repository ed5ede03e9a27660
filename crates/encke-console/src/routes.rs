//! The routes of the API, and the calls behind them. `openapi.json` describes them; a test compares both.

use std::collections::BTreeMap;
use std::net::IpAddr;

use encke_server::{
    ActionError, ActionReport, ActionValue, Body, CodedText, FeatureVerbs, FieldShape, FieldValue, Fields,
    Kept, Reply,
};
use encke_settings::{Level, notice};
use encke_stats::{ListTicket, Ticket};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::Call;
use crate::history::HistoryStep;
use crate::json::{as_json, json_text, list_json, notices_json};
use crate::live::{EVERY_MS, EVERY_MS_MAX, EVERY_MS_MIN, LivePage, WATCHES_MAX};
use crate::log_in;
use crate::problem::ApiProblem;
use crate::settings_routes::SETTINGS_ROUTES;
use crate::watch::{Watch, check_columns, list_query};

/// The description of the API (OpenAPI 3.1).
const OPENAPI: &str = include_str!("../openapi.json");

/// A route of the API.
pub(crate) struct ApiRoute {
    pub(crate) method: &'static str,
    /// The path below `/api/v1`; a segment in braces is variable.
    pub(crate) pattern: &'static str,
    pub(crate) access: RouteAccess,
    /// Whether the audit records a request that is no GET. A check changes nothing.
    pub(crate) is_change: bool,
    pub(crate) call: fn(Call),
}

/// Maximum size in bytes of a body: without credentials, of a usual request, and with the text of a settings file in JSON.
const OPEN_BODY_MAX: usize = 4 * 1024;
const BODY_MAX: usize = 64 * 1024;
const SETTINGS_BODY_MAX: usize = 2 * 1024 * 1024;

impl ApiRoute {
    /// Whether the route is one of [`SETTINGS_ROUTES`], which mask secrets by the role of their reader.
    pub(crate) fn is_of_settings(&self) -> bool {
        self.pattern.starts_with("/settings")
    }

    /// Maximum size of a request's body in bytes.
    pub(crate) fn body_max(&self) -> usize {
        match self.access {
            Open => OPEN_BODY_MAX,
            View | Admin if self.is_of_settings() => SETTINGS_BODY_MAX,
            View | Admin => BODY_MAX,
        }
    }
}

/// The least rights that a route needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RouteAccess {
    /// No credentials.
    Open,
    View,
    Admin,
}

use RouteAccess::{Admin, Open, View};

/// All routes but those of the settings, [`SETTINGS_ROUTES`].
pub(crate) const ROUTES: &[ApiRoute] = &[
    read("/openapi.json", Open, |call| {
        call.responder.send(Ok(json_text(200, OPENAPI.to_owned())));
    }),
    change("POST", "/session", Open, log_in::log_in),
    read("/session", Open, log_in::session),
    change("DELETE", "/session", View, log_in::log_out),
    change("POST", "/session/token", Admin, log_in::new_token),
    read("/status", View, |call| answer(call, &[], |call| Ok(as_json(&call.shared.full_status())))),
    read("/cluster", View, |call| answer(call, &[], cluster)),
    read("/live", View, live),
    read("/overview", View, |call| answer(call, &[], |call| Ok(overview(call)))),
    read("/history", View, |call| answer(call, &["step"], history)),
    read("/lists", View, |call| answer(call, &[], |call| Ok(lists(call)))),
    read("/lists/{name}", View, list),
    read("/actions", View, verbs),
    change("POST", "/actions/{feature}/{verb}", Admin, act),
    check("POST", "/explain", View, explain),
    read("/notices", View, |call| answer(call, &[], |call| Ok(as_json(&notices_json(call.role()))))),
    read("/log/level", View, |call| answer(call, &[], |_| Ok(level()))),
    change("PUT", "/log/level", Admin, set_level),
    read("/audit", View, |call| answer(call, &[], |call| Ok(as_json(&call.shared.audit.json())))),
];

const fn read(pattern: &'static str, access: RouteAccess, call: fn(Call)) -> ApiRoute {
    ApiRoute { method: "GET", pattern, access, is_change: false, call }
}

const fn change(
    method: &'static str,
    pattern: &'static str,
    access: RouteAccess,
    call: fn(Call),
) -> ApiRoute {
    ApiRoute { method, pattern, access, is_change: true, call }
}

const fn check(method: &'static str, pattern: &'static str, access: RouteAccess, call: fn(Call)) -> ApiRoute {
    ApiRoute { method, pattern, access, is_change: false, call }
}

/// Finds the route of a request, and the variable segments of its path.
///
/// # Errors
/// The methods of the path; none if there is no such path.
pub(crate) fn find(method: &[u8], path: &str) -> Result<(&'static ApiRoute, Vec<String>), Vec<&'static str>> {
    let Some(rest) = path.strip_prefix("/api/v1") else { return Err(Vec::new()) };
    let mut allowed = Vec::new();
    for route in ROUTES.iter().chain(SETTINGS_ROUTES) {
        if let Some(params) = matched(route.pattern, rest) {
            if route.method.as_bytes() == method {
                return Ok((route, params));
            }
            allowed.push(route.method);
            if route.method == "GET" {
                allowed.push("HEAD");
            }
        }
    }
    Err(allowed)
}

/// The variable segments of a path that matches a pattern.
fn matched(pattern: &str, path: &str) -> Option<Vec<String>> {
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    let mut params = Vec::new();
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(params),
            (Some(variable), Some(segment)) if variable.starts_with('{') && !segment.is_empty() => {
                params.push(segment.to_owned());
            }
            (Some(wanted), Some(given)) if wanted == given => {}
            _ => return None,
        }
    }
}

/// Responds at once, if the query has only known parameters.
fn answer(call: Call, known: &[&str], respond: impl FnOnce(&Call) -> Result<Reply, ApiProblem>) {
    let result = call.allow_query(known).and_then(|()| respond(&call));
    call.responder.send(result);
}

fn cluster(call: &Call) -> Result<Reply, ApiProblem> {
    match call.shared.board.part("cluster") {
        Some(cluster) if !cluster.is_null() => Ok(as_json(&cluster)),
        _ => Err(ApiProblem::new(404, "this server is not in a cluster: cluster.nats is not set")),
    }
}

fn overview(call: &Call) -> Reply {
    let now = call.shared.snapshot();
    let before = call.shared.history().last(now.mono_ns).cloned();
    as_json(&call.shared.overview(before.as_deref().unwrap_or(&now), &now))
}

fn history(call: &Call) -> Result<Reply, ApiProblem> {
    let step = match call.query.iter().find(|(key, _)| key == "step") {
        None => HistoryStep::TenSeconds,
        Some((_, value)) => {
            let known = HistoryStep::ALL.into_iter().find(|step| step.name() == value);
            known.ok_or_else(|| ApiProblem::new(400, format!("step: `{value}` is neither 10s nor 5m")))?
        }
    };
    let page = call.shared.history().page(step);
    let series: serde_json::Map<String, Value> =
        page.series.into_iter().map(|(name, numbers)| (name.to_owned(), json!(numbers))).collect();
    Ok(as_json(&json!({ "schema": 1, "step_s": page.step_s, "end_ms": page.end_ms, "series": series })))
}

fn lists(call: &Call) -> Reply {
    let board = &call.shared.board;
    let lists = board.list_names();
    let columns: serde_json::Map<String, Value> =
        lists.iter().filter_map(|name| Some(((*name).to_owned(), json!(board.columns(name)?)))).collect();
    as_json(&json!({ "schema": 1, "lists": lists, "columns": columns }))
}

fn list(call: Call) {
    let name = call.param(0).to_owned();
    let checked = list_query(call.query.iter().cloned()).and_then(|query| {
        let columns = call.shared.board.columns(&name).ok_or_else(|| unknown_list(&call, &name))?;
        check_columns(&query, columns).map(|()| query)
    });
    let query = match checked {
        Ok(query) => query,
        Err(problem) => return call.responder.send(Err(problem)),
    };
    let Call { shared, responder, .. } = call;
    let named = name.clone();
    let ticket = ListTicket::new(&query, move |rows| {
        responder.send(Ok(json_text(200, list_json(&named, &rows))));
    });
    shared.board.list(&name, &query, ticket);
}

fn unknown_list(call: &Call, name: &str) -> ApiProblem {
    let known = call.shared.board.list_names().join(", ");
    ApiProblem::new(404, format!("no list is named `{name}`; the lists are {known}"))
}

fn verbs(call: Call) {
    if let Err(problem) = call.allow_query(&[]) {
        return call.responder.send(Err(problem));
    }
    let Call { shared, responder, .. } = call;
    shared.board.verbs(Ticket::new(move |features: Option<Vec<FeatureVerbs>>| {
        let features: Option<Vec<Value>> = features.map(|features| features.iter().map(verbs_json).collect());
        let reply = features.map(|features| as_json(&json!({ "schema": 1, "features": features })));
        responder.send(reply.ok_or_else(stopping));
    }));
}

fn verbs_json(feature: &FeatureVerbs) -> Value {
    let verbs = feature.verbs.iter().map(|verb| {
        let fields = verb.fields.iter().map(|field| {
            let mut json = json!({ "name": field.name, "help": field.help, "optional": field.optional });
            match &field.shape {
                FieldShape::Text => json["shape"] = "text".into(),
                FieldShape::Flag => json["shape"] = "flag".into(),
                FieldShape::Number { min, max } => {
                    json["shape"] = "number".into();
                    (json["min"], json["max"]) = ((*min).into(), (*max).into());
                }
                FieldShape::Choice(texts) => {
                    json["shape"] = "choice".into();
                    json["choices"] = json!(texts);
                }
            }
            json
        });
        json!({ "name": verb.name, "help": verb.help, "fields": fields.collect::<Vec<_>>() })
    });
    json!({ "feature": feature.feature, "verbs": verbs.collect::<Vec<_>>() })
}

fn act(mut call: Call) {
    let value = call.allow_query(&[]).and_then(|()| action_value(&call));
    let value = match value {
        Ok(value) => value,
        Err(problem) => return call.responder.send(Err(problem)),
    };
    call.responder.change("", String::from_utf8_lossy(&call.body).into_owned());
    let (feature, verb) = (call.param(0).to_owned(), call.param(1).to_owned());
    let Call { shared, responder, .. } = call;
    let known = format!("{feature}/{verb}");
    let ticket = Ticket::new(move |result: Option<Result<ActionReport, ActionError>>| {
        let result = result.ok_or_else(stopping);
        responder.send(result.and_then(|result| match result {
            Ok(ActionReport { affected, notes }) => {
                Ok(as_json(&json!({ "schema": 1, "affected": affected, "notes": notes })))
            }
            Err(ActionError::Value(field)) => {
                let text = CodedText::new(
                    "field_invalid",
                    "the value of `{field}` is missing, unknown or invalid; see /api/v1/actions",
                );
                Err(ApiProblem::of("field", 422, text.with("field", &field)).at(&format!("/{field}")))
            }
            Err(ActionError::Refused(reason)) => Err(ApiProblem::of("refused", 409, reason)),
            Err(_) => Err(ApiProblem::new(
                404,
                format!("no feature offers the action {known}; see /api/v1/actions"),
            )),
        }));
    });
    shared.board.act(&feature, &verb, value, ticket);
}

/// Reads the values of an action: an object whose values are texts, whole numbers, and booleans.
fn action_value(call: &Call) -> Result<ActionValue, ApiProblem> {
    let given: BTreeMap<String, Value> = if call.body.is_empty() { BTreeMap::new() } else { call.json()? };
    let values = given.into_iter().map(|(name, value)| {
        let value = match value {
            Value::String(text) => FieldValue::Text(text),
            Value::Bool(flag) => FieldValue::Flag(flag),
            Value::Number(number) if number.as_u64().is_some() => {
                FieldValue::Number(number.as_u64().unwrap_or_default())
            }
            _ => {
                let text = format!("`{name}` is neither a text, a whole number, nor a boolean");
                return Err(ApiProblem::of("field", 422, text).at(&format!("/{name}")));
            }
        };
        Ok((name, value))
    });
    values.collect()
}

/// A request to explain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainQuestion {
    #[serde(default = "get")]
    method: String,
    /// A whole URL, or a path on the first listener.
    url: String,
    address: Option<IpAddr>,
    #[serde(default)]
    fields: BTreeMap<String, String>,
}

fn get() -> String {
    "GET".into()
}

fn explain(call: Call) {
    let asked = call.allow_query(&[]).and_then(|()| question(&call));
    let (url, kept) = match asked {
        Ok(asked) => asked,
        Err(problem) => return call.responder.send(Err(problem)),
    };
    let Call { shared, responder, .. } = call;
    shared.board.explain(
        kept,
        Ticket::new(move |steps: Option<Vec<encke_server::RuleStep>>| {
            let steps = steps.map(|steps| {
                let step = |step: encke_server::RuleStep| {
                    json!({ "rule": step.rule, "source": step.source.map(|source| source.to_string()) })
                };
                let steps = steps.into_iter().map(step).collect::<Vec<_>>();
                as_json(&json!({ "schema": 1, "url": url, "steps": steps }))
            });
            responder.send(steps.ok_or_else(stopping));
        }),
    );
}

/// Returns the URL and the request to explain.
fn question(call: &Call) -> Result<(String, Kept), ApiProblem> {
    let ExplainQuestion { method, url, address, fields } = call.json()?;
    let url = if url.starts_with('/') { format!("{}{url}", first_origin(call)) } else { url };
    let mut sent = Fields::new();
    for (name, value) in &fields {
        sent.push(name, value.as_bytes()).map_err(|_| {
            let text = CodedText::new(
                "explain_field",
                "fields: `{name}` is no name of a field, or its value has control characters",
            );
            ApiProblem::of("field", 422, text.with("name", name)).at("/fields")
        })?;
    }
    let kept = Kept::for_url(&method, &url, &sent).ok_or_else(|| {
        let text = CodedText::new(
            "explain_url",
            "{method} {url} is no valid request; the URL begins with http://, https:// or /",
        );
        ApiProblem::of("field", 422, text.with("method", &method).with("url", &url)).at("/url")
    })?;
    let kept = match address {
        Some(address) => kept.from_client(address),
        None => kept,
    };
    Ok((url, kept))
}

/// Scheme and host of the first listener with an IP address; `http://localhost` if there is none.
fn first_origin(call: &Call) -> String {
    let board = &call.shared.board;
    let first = board.addresses().into_iter().find(|address| matches!(address, encke_io::Address::Inet(_)));
    match first {
        Some(address) if board.is_secure(&address) => format!("https://{address}"),
        Some(address) => format!("http://{address}"),
        None => "http://localhost".to_owned(),
    }
}

fn level() -> Reply {
    as_json(&json!({ "schema": 1, "level": notice::level() }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewLevel {
    level: Level,
}

fn set_level(mut call: Call) {
    let old = notice::level();
    let result = call.allow_query(&[]).and_then(|()| call.json()).map(|NewLevel { level: new }| {
        notice::set_level(new);
        let name = |level: Level| json!(level).as_str().unwrap_or_default().to_owned();
        call.responder.change(name(old), name(new));
        level()
    });
    call.responder.send(result);
}

/// Opens the event stream of a page.
fn live(call: Call) {
    match live_reply(&call) {
        Ok(reply) => call.responder.send(Ok(reply)),
        Err(problem) => call.responder.send(Err(problem)),
    }
}

fn live_reply(call: &Call) -> Result<Reply, ApiProblem> {
    call.allow_query(&["watch", "every"])?;
    let values = |wanted: &'static str| {
        call.query.iter().filter(move |(key, _)| key == wanted).map(|(_, value)| value.as_str())
    };
    let every_ms = match values("every").next() {
        None => EVERY_MS,
        Some(text) => {
            let every = text.parse().ok().filter(|every| (EVERY_MS_MIN..=EVERY_MS_MAX).contains(every));
            every.ok_or_else(|| {
                let text =
                    format!("every: `{text}` is not a number from {EVERY_MS_MIN} to {EVERY_MS_MAX} (ms)");
                ApiProblem::new(400, text)
            })?
        }
    };
    let mut watches = Vec::new();
    for text in values("watch") {
        let watch = Watch::parse(text)?;
        if let Watch::List(name, query) = &watch {
            let columns = call.shared.board.columns(name).ok_or_else(|| unknown_list(call, name))?;
            check_columns(query, columns)?;
        }
        watches.push((text.to_owned(), watch, None));
    }
    if watches.len() > WATCHES_MAX {
        return Err(ApiProblem::new(400, format!("at most {WATCHES_MAX} watches in one stream")));
    }
    if watches.is_empty() {
        watches.push((String::new(), Watch::Status, None));
    }
    // A proxy such as nginx would hold events back until its buffer is full.
    let reply = Reply::new(200).with("Content-Type", "text/event-stream").with("X-Accel-Buffering", "no");
    if call.is_head {
        return Ok(reply);
    }
    for (_, watch, tail) in &mut watches {
        if let Watch::Log(filter) = watch {
            let begun = call.shared.board.tail(filter.clone(), || {});
            *tail = Some(begun.ok_or_else(|| full("views of the log"))?);
        }
    }
    let page = LivePage::new(watches, every_ms, call.identity.clone(), call.responder.wake_handle());
    call.shared.ticker.add(&page).map_err(|limit| full(&limit.to_string()))?;
    Ok(reply.body(Body::Stream(Box::new(page.stream()))))
}

fn full(what: &str) -> ApiProblem {
    ApiProblem::of("full", 503, format!("the limit of {what} is reached; close another page"))
}

/// The server stops, and its workers do not respond.
pub(crate) fn stopping() -> ApiProblem {
    ApiProblem::new(503, CodedText::new("stopping", "the server is stopping"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Method, path and least role of each operation that the description has.
    fn described() -> BTreeSet<(String, String, String)> {
        let document: Value = serde_json::from_str(OPENAPI).expect("the description is JSON");
        let paths = document["paths"].as_object().expect("an object");
        let operations = paths.iter().flat_map(|(path, item)| {
            let item = item.as_object().expect("an object");
            item.iter().map(move |(method, operation)| {
                let role = operation["x-role"].as_str().unwrap_or("none");
                (method.to_uppercase(), path.clone(), role.to_owned())
            })
        });
        operations.collect()
    }

    #[test]
    fn the_description_has_exactly_the_routes_and_their_roles() {
        let role = |access| match access {
            Open => "none",
            View => "view",
            Admin => "admin",
        };
        let routes = ROUTES
            .iter()
            .chain(SETTINGS_ROUTES)
            .map(|route| (route.method.to_owned(), route.pattern.to_owned(), role(route.access).to_owned()));
        assert_eq!(routes.collect::<BTreeSet<_>>(), described());
    }

    #[test]
    fn a_route_is_found_by_method_and_path() {
        let (route, params) = find(b"POST", "/api/v1/actions/upstreams/drain").expect("a route");
        assert_eq!(route.pattern, "/actions/{feature}/{verb}");
        assert_eq!(params, ["upstreams", "drain"]);
        assert_eq!(find(b"PUT", "/api/v1/session").err(), Some(vec!["POST", "GET", "HEAD", "DELETE"]));
        for path in
            ["/api/v1", "/api/v1/", "/api/v2/status", "/api/v1/lists/", "/api/v1/lists/a/b", "/status"]
        {
            assert_eq!(find(b"GET", path).err(), Some(vec![]), "{path}");
        }
    }
}
