//! The calls below `/settings`: queued on the console's thread, which edits the settings file in order.

use std::sync::Arc;

use encke_io::lock;
use encke_server::{Body, Reply};
use encke_wire::method::Method;

use crate::call::Call;
use crate::log_in::busy;
use crate::problem::ApiProblem;
use crate::routes::{ApiRoute, RouteAccess};
use crate::settings::{ConsoleRole, SettingsAnswer, SettingsCall};
use crate::worker::JobFate;

const fn route(
    method: &'static str,
    pattern: &'static str,
    access: RouteAccess,
    is_change: bool,
) -> ApiRoute {
    let call = match method.as_bytes() {
        b"PUT" => |call| queue(call, Method::Put),
        b"PATCH" => |call| queue(call, Method::Patch),
        b"POST" => |call| queue(call, Method::Post),
        _ => |call| queue(call, Method::Get),
    };
    ApiRoute { method, pattern, access, is_change, call }
}

/// The routes of the settings.
pub(crate) const SETTINGS_ROUTES: &[ApiRoute] = &[
    route("GET", "/settings", RouteAccess::View, false),
    route("PATCH", "/settings", RouteAccess::Admin, true),
    route("GET", "/settings/schema", RouteAccess::View, false),
    route("GET", "/settings/file", RouteAccess::Admin, false),
    route("PUT", "/settings/file", RouteAccess::Admin, true),
    route("POST", "/settings/check", RouteAccess::Admin, false),
    route("POST", "/settings/complete", RouteAccess::Admin, false),
    route("GET", "/settings/history", RouteAccess::View, false),
    route("GET", "/settings/history/{number}", RouteAccess::Admin, false),
    route("POST", "/settings/history/{number}/restore", RouteAccess::Admin, true),
    route("POST", "/settings/reload", RouteAccess::Admin, true),
];

/// Queues a call; it is answered from the console's thread.
fn queue(mut call: Call, method: Method) {
    let identity = call.identity.take();
    let request = SettingsCall {
        method,
        path: call.path.strip_prefix("/api/v1/settings").unwrap_or_default().to_owned(),
        query: std::mem::take(&mut call.query),
        body: std::mem::take(&mut call.body),
        if_match: call.if_match.take(),
        address: call.address(),
        is_admin: identity.as_ref().is_some_and(|identity| identity.role == ConsoleRole::Admin),
        user: identity.as_ref().map_or_else(String::new, |identity| identity.user.to_string()),
    };
    let shared = Arc::clone(&call.shared);
    let user = identity.as_ref().map_or_else(|| "-".into(), |identity| Arc::clone(&identity.user));
    let mut responder = call.responder;
    shared.clone().thread.run(user, move |fate| {
        if fate == JobFate::Rejected {
            return responder.send(Err(busy()));
        }
        // Earlier calls may have taken long, and one of them may have removed the user.
        let access = shared.check_access(identity.as_ref());
        let answer = match (&shared.settings, access) {
            (_, Err(ended)) => ended.into(),
            (Some(editor), Ok(())) => lock(editor).call(&request),
            (None, Ok(())) => ApiProblem::new(404, "this program has no settings file").into(),
        };
        if let Some((old, new)) = &answer.audit {
            responder.change(old, new);
        }
        responder.send(Ok(reply(&answer)));
    });
}

fn reply(answer: &SettingsAnswer) -> Reply {
    let is_problem = answer.status >= 400;
    let content_type = if is_problem { "application/problem+json" } else { "application/json" };
    let reply = Reply::new(answer.status)
        .with("Content-Type", content_type)
        .body(Body::Bytes(answer.body.to_string().into_bytes()));
    match &answer.etag {
        Some(etag) => reply.with("ETag", etag.as_str()),
        None => reply,
    }
}
