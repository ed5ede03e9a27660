//! The path to which an application sends a client by `X-Accel-Redirect`.
//!
//! ```text
//!  path ─┬─ a channel ─────────────────────────► the worker routes the request again
//!        ├─ a route to an application ─────────► its response to GET or HEAD
//!        ├─ a route with PHP ─┬─ a script ─────► the same
//!        │                    └─ none ─────────► the file, else the response of the front script
//!        ├─ another path of the site ──────────► the file, with the fields of the application
//!        └─ closed, a script's source, or the sixth in a row ─────► 502
//! ```

use std::sync::Arc;

use encke_server::{Exchange, Fields, JobId, Reply};
use encke_wire::http1::Framing;
use encke_wire::target::push_escape;

use super::{
    GatewayHandler, LookingRequest, REDIRECTS_MAX, ScriptKey, ScriptLookup, ScriptRequest, with_query,
};
use crate::app_file::{AskedHead, KeptConditions, reading};
use crate::proxied_request::{ClientTarget, ProxiedRequest};
use crate::request_head::{RequestHeadPlan, Upgrading, put_request_head};
use crate::route::{Found, SiteRoute};
use crate::script::{PhpScript, ScriptLook, names_script};

/// The resource at the path of an `X-Accel-Redirect`.
enum AccelTarget {
    Application(Arc<SiteRoute>, Option<Arc<PhpScript>>),
    /// A file of the site, else the response of the front script.
    File(Option<Arc<SiteRoute>>, Option<Arc<PhpScript>>),
    /// A job looks for the script, which has this key in the cache.
    Looking(JobId, ScriptKey),
    Nothing,
}

/// The target of an `X-Accel-Redirect`, with escapes in place of bytes that a target cannot have. Applications give the name of a file
/// as text, with some escapes or with all.
pub(super) fn escaped_target(value: &[u8]) -> String {
    let mut target = String::with_capacity(value.len());
    for (at, &byte) in value.iter().enumerate() {
        let is_escape =
            || value.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let is_kept = match byte {
            b'%' => is_escape(),
            b'"' | b'#' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => false,
            _ => byte.is_ascii_graphic(),
        };
        if is_kept {
            target.push(char::from(byte));
        } else {
            push_escape(byte, &mut target);
        }
    }
    target
}

impl GatewayHandler {
    /// Serves the path to which an application has sent a client.
    pub(super) fn redirect(
        &mut self,
        exchange: Exchange,
        mut request: ProxiedRequest,
        target: &str,
        fields: Fields,
    ) {
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let site = request.site.take();
        let Some(asked) = AskedHead::parse(&request.head) else {
            return self.context.respond(exchange, Reply::error(500));
        };
        if let Some(channel) = request.route.subscription(path) {
            self.proxy.note(&request, exchange.key());
            let (host, all) = (asked.authority(&request), KeptConditions::All);
            match asked.for_site(&request, Some(&with_query(&channel, query)), host, all) {
                Some(kept) => self.context.reroute(exchange, kept),
                None => self.astray(exchange, &request, &asked, site),
            }
            return self.proxy.recycle(request);
        }
        let found = self.routes.find_any(asked.authority(&request), path.as_bytes(), &mut self.decoded);
        let is_last = request.redirects >= REDIRECTS_MAX;
        match self.accel_target(found) {
            AccelTarget::Looking(job, key) => {
                request.site = site;
                let request = ScriptRequest::Redirect(Box::new(request), target.to_owned(), fields);
                self.looking.insert(job, LookingRequest { exchange, request, key });
                return;
            }
            AccelTarget::Application(route, script) if !is_last => {
                match self.next_request((&request, &asked), (route, script), (path, query)) {
                    Some(mut next) => {
                        (next.exchange, next.site) = (Some(exchange), site);
                        self.proxy.begin(next);
                    }
                    None => self.astray(exchange, &request, &asked, site),
                }
            }
            AccelTarget::File(route, front) if !is_last || front.is_none() => {
                let changed = route.as_ref().and_then(|route| route.changed_path(&self.decoded));
                let leads_to = changed.as_deref().unwrap_or(&self.decoded);
                if route.as_ref().is_some_and(|route| route.hides(leads_to)) {
                    self.proxy.note(&request, exchange.key());
                    self.astray(exchange, &request, &asked, site);
                    return self.proxy.recycle(request);
                }
                let target = with_query(&changed.unwrap_or_else(|| path.to_owned()), query);
                let next = route.filter(|_| front.is_some()).and_then(|route| {
                    self.next_request((&request, &asked), (route, front), (path, query)).map(Box::new)
                });
                self.proxy.note(&request, exchange.key());
                let place = (target.as_str(), asked.authority(&request));
                self.send_file(exchange, (&request, &asked), place, (fields, site), next);
            }
            AccelTarget::Application(..) | AccelTarget::File(..) | AccelTarget::Nothing => {
                self.proxy.note(&request, exchange.key());
                self.astray(exchange, &request, &asked, site);
            }
        }
        self.proxy.recycle(request);
    }

    /// The resource at the decoded path.
    fn accel_target(&mut self, found: Found) -> AccelTarget {
        let route = match found {
            Found::Closed | Found::Malformed => return AccelTarget::Nothing,
            Found::None => return AccelTarget::File(None, None),
            Found::Route(route) => route,
        };
        let Some(front) = route.php.clone() else {
            return match route.upstream {
                Some(_) => AccelTarget::Application(route, None),
                None => AccelTarget::File(Some(route), None),
            };
        };
        let ScriptLook { named, front } = match self.look_up(&route, &front) {
            Some(ScriptLookup::Known(look)) => look,
            Some(ScriptLookup::Job(job, key)) => return AccelTarget::Looking(job, key),
            None => return AccelTarget::Nothing,
        };
        // The rules of the site for a path also apply to applications, unlike `internal`.
        let is_overruled = route.is_overruled(&self.decoded);
        match named {
            Some(script) if is_overruled || route.is_overruled(&script.name) => AccelTarget::Nothing,
            Some(script) => AccelTarget::Application(route, Some(script)),
            None if names_script(&self.decoded) => AccelTarget::Nothing,
            None => AccelTarget::File(Some(route), front.filter(|_| !is_overruled)),
        }
    }

    /// The request for the application at a path: GET or HEAD, without the body of the client's request. `None` if the path cannot
    /// be forwarded.
    fn next_request(
        &mut self,
        (request, asked): (&ProxiedRequest, &AskedHead<'_>),
        (route, script): (Arc<SiteRoute>, Option<Arc<PhpScript>>),
        (path, query): (&str, Option<&str>),
    ) -> Option<ProxiedRequest> {
        let changed = route.changed_path(&self.decoded).unwrap_or_else(|| path.to_owned());
        let target = with_query(&changed, query);
        let authority = asked.authority(request);
        let kept = asked.for_site(request, Some(&target), authority, KeptConditions::None)?;
        let upstream = route.upstream?;
        let found = self.upstreams.get(upstream)?;
        let (settings, wish) = (&found.settings, found.wish(&kept.view()));
        let mut head = self.proxy.head_buffer();
        let plan = RequestHeadPlan {
            path: None,
            changes: &route.request,
            upgrading: Upgrading::No,
            keep: settings.kept() > 0,
            origin: &request.origin,
            forwarded: settings.forwarded,
            via: settings.via,
            expect: false,
            restores: false,
        };
        if !put_request_head(&mut head, &kept.view(), &plan) {
            return None;
        }
        let shape = (reading(request.method), Framing::None, false);
        let times = (request.origin.clone(), request.started);
        let mut next = ProxiedRequest::new((None, route, upstream), shape, times, head);
        if settings.is_fastcgi() {
            next = next.for_fastcgi(script);
        }
        let target = with_query(path, query).into_bytes();
        next.client = Some(Box::new(ClientTarget { target, authority: authority.to_vec() }));
        next.redirects = request.redirects + 1;
        next.wish = wish;
        next.guarded.clone_from(&request.guarded);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_escaped_where_it_must_be() {
        for (value, target) in [
            ("/p/tä st.pdf", "/p/t%C3%A4%20st.pdf"),
            ("/p/t%C3%A4%20st.pdf", "/p/t%C3%A4%20st.pdf"),
            ("/p/t%C3%A4 st.pdf?a=b c", "/p/t%C3%A4%20st.pdf?a=b%20c"),
            ("/100%.txt", "/100%25.txt"),
            ("/a%2", "/a%252"),
            ("/a#b{c}|\"d\\e", "/a%23b%7Bc%7D%7C%22d%5Ce"),
        ] {
            assert_eq!(escaped_target(value.as_bytes()), target);
        }
        assert_eq!(escaped_target(b"/\xE4"), "/%E4");
    }
}
