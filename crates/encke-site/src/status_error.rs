//! Default error pages, for sites without their own.

use encke_wire::field::Known;
use encke_wire::{accept, status};

use encke_server::{Body, Fields, Reply, Request};

/// An error: its status, and the fields that belong to it (`Allow`, `Content-Range`).
#[derive(Clone, Debug)]
pub(super) struct StatusError {
    pub(super) status: u16,
    pub(super) fields: Fields,
    /// Whether a rule removes X-Content-Type-Options.
    pub(super) sniffable: bool,
    /// The rule that decided, for the log.
    pub(super) rule: Option<&'static &'static str>,
}

impl StatusError {
    /// Creates an error without fields of its own.
    pub(super) const fn new(status: u16) -> Self {
        Self { status, fields: Fields::new(), sniffable: false, rule: None }
    }

    /// Sets the rule that decided.
    pub(super) const fn because(mut self, rule: &'static &'static str) -> Self {
        self.rule = Some(rule);
        self
    }

    /// The response, as HTML for clients that accept it, else as text. HEAD gets the same head.
    pub(super) fn reply(&self, request: &Request<'_>) -> Reply {
        let Self { status, fields, sniffable, rule } = self;
        let reason = status::reason(*status);
        let mut reply = Reply::new(*status).with("Vary", "Accept").with("Cache-Control", "no-cache");
        reply.fields.extend(fields);
        if *status == 503 {
            reply = reply.with("Retry-After", "1");
        }
        if !sniffable && fields.value("X-Content-Type-Options").is_none() {
            reply = reply.with("X-Content-Type-Options", "nosniff");
        }
        if let Some(rule) = rule {
            reply = reply.because(rule);
        }
        if asks_for_html(request) {
            let page = PAGE.replace("{status}", &status.to_string()).replace("{reason}", reason);
            let page = page.replace("{text}", explanation(*status));
            reply.with("Content-Type", "text/html; charset=utf-8").body(Body::Bytes(page.into_bytes()))
        } else {
            // Only a malformed request names its rule: others would tell strangers about files.
            let rule = rule.filter(|_| *status == 400).map_or_else(String::new, |rule| format!("{rule}\n"));
            let text = format!("{status} {reason}\n{rule}");
            reply.with("Content-Type", "text/plain; charset=utf-8").body(Body::Bytes(text.into_bytes()))
        }
    }
}

/// Whether the client names HTML in Accept, as browsers do for navigation. Scripts that fetch data accept `*/*`.
pub(super) fn asks_for_html(request: &Request<'_>) -> bool {
    accept::names(request.all(Known::Accept), "text/html") && accepts_html(request)
}

/// Whether the client accepts HTML, perhaps only by a wildcard.
pub(super) fn accepts_html(request: &Request<'_>) -> bool {
    accept::preferred(request.all(Known::Accept), &["text/html"]).is_some()
}

const fn explanation(status: u16) -> &'static str {
    match status {
        400 => "The request is invalid.",
        403 => "Access to this address is not allowed.",
        404 => "There is nothing at this address.",
        405 => "This address does not support the method of the request.",
        410 => "The page at this address was removed permanently.",
        412 => "The page has changed since you last loaded it.",
        416 => "The file does not have the requested range.",
        421 => "This server has no site of this name.",
        500 => "This server failed to process the request.",
        503 => "This server is too busy. Please try again in a moment.",
        _ => "",
    }
}

const PAGE: &str = include_str!("fault.html");
