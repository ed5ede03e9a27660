//! The handler of one worker: finds the route of a request, and composes the site's files and the applications.
//!
//! ```text
//!  call ─► route? ── none ─────────────────────────────────────────► the site (below)
//!            │ files, or files first ─► the site ── 404 ──┐
//!            │ upstream ──────────────────────────────────┴─► Proxy ─► response
//!            │ WebSocket ─► TunnelStart, a takeover              │ replaced by
//!            └─ internal ─► 404                                  ├─ X-Accel-Redirect ─► its route, or the site
//!                                                                ├─ X-Sendfile ───────► the site, under a name of its own
//!                                                                ├─ 404, files last ──► the site
//!                                                                └─ an error page ────► the site
//! ```
//! The site answers requests of the gateway in place of the client's ([`Exchange::delegate`]): it opens files by its rules, and
//! evaluates conditions and ranges.

mod redirects;

use std::collections::HashMap;
use std::sync::Arc;

use encke_io::Done;
use encke_server::{
    Body, ConnDescription, Exchange, ExchangeKey, Fields, Handler, HandlerContext, JobId, Kept, LogLabel,
    Outcome, Piece, Reply, Request, Takeover, UpstreamEvent, UpstreamId,
};
use encke_wire::coding::AcceptEncoding;
use encke_wire::field::{self, Known};
use encke_wire::http1::Framing;
use encke_wire::method::Method;
use encke_wire::target::encode_target_path;

use self::redirects::escaped_target;
use crate::app_file::{AppConditions, AskedHead, KeptConditions, app_file};
use crate::health_check::HealthChecks;
use crate::id_map::IdMap;
use crate::proxied_request::{ClientTarget, ProxiedRequest, Replacement};
use crate::proxy::Proxy;
use crate::request_head::{RequestHeadPlan, Upgrading, accepts_trailers, put_request_head};
use crate::route::{Found, RouteTable, SiteRoute};
use crate::script::{PhpScript, ScriptCache, ScriptLook, look, names_script};
use crate::settings::FilesOrder;
use crate::site_rules::SiteFields;
use crate::tunnel::TunnelStart;
use crate::upstream::NamedUpstream;

/// The handler of the gateway.
pub(crate) struct GatewayHandler {
    context: HandlerContext,
    routes: Arc<RouteTable>,
    upstreams: Vec<Arc<NamedUpstream>>,
    proxy: Proxy,
    /// The checks of targets, on one worker.
    checks: Option<Box<HealthChecks>>,
    /// The handler of the sites.
    below: Box<dyn Handler>,
    /// Requests whose response comes from the site, later.
    waiting: IdMap<ExchangeKey, Delegated>,
    /// The decoded path of a request, for the length of a call.
    decoded: String,
    scripts: ScriptCache,
    /// Requests for PHP routes, while a job looks for their scripts.
    looking: HashMap<JobId, LookingRequest>,
}

/// A request for a PHP route, while a job looks for its script.
struct LookingRequest {
    exchange: Exchange,
    request: ScriptRequest,
    /// The key of its scripts in the cache.
    key: ScriptKey,
}

/// The number of a route, and a decoded path.
type ScriptKey = (usize, Box<str>);

/// A request that needs a script.
enum ScriptRequest {
    Client(Kept),
    /// An application has sent the client to this target, with these fields.
    Redirect(Box<ProxiedRequest>, String, Fields),
}

/// The scripts for a path, or the job that looks for them, with the key for the cache.
enum ScriptLookup {
    Known(ScriptLook),
    Job(JobId, ScriptKey),
}

/// A request that the site answers later.
struct Delegated {
    exchange: Exchange,
    purpose: Purpose,
}

/// The use of the site's response.
enum Purpose {
    /// The response.
    Response,
    /// The response, unless its status is 404: then the application responds.
    FilesFirst(Box<ProxiedRequest>),
    /// A file of an application, with the application's fields.
    AppFile(Box<AppFileFields>),
    /// The page for an error.
    ErrorPage(ErrorResponse),
}

/// The fields of a file that an application has named.
struct AppFileFields {
    /// The application's.
    fields: Fields,
    site: Option<Box<SiteFields>>,
    /// The request for the site's page if there is no such file.
    missing: Option<Kept>,
    /// The request for the front script if there is no such file.
    front: Option<Box<ProxiedRequest>>,
}

/// An error in place of an application's response.
struct ErrorResponse {
    status: u16,
    reason: Option<&'static &'static str>,
    /// The fields that the site gives the response.
    site: Option<Box<SiteFields>>,
}

/// Paths to which an application may send a client one after the other.
const REDIRECTS_MAX: u8 = 5;

impl GatewayHandler {
    pub(crate) fn new(
        context: HandlerContext,
        (routes, upstreams): (Arc<RouteTable>, Vec<Arc<NamedUpstream>>),
        proxy: Proxy,
        checks: Option<Box<HealthChecks>>,
        below: Box<dyn Handler>,
    ) -> Self {
        Self {
            context,
            routes,
            upstreams,
            proxy,
            checks,
            below,
            waiting: IdMap::default(),
            decoded: String::new(),
            scripts: ScriptCache::default(),
            looking: HashMap::new(),
        }
    }

    /// Serves a request of a PHP route: by the script that its path names, a file, or the front script.
    fn serve_php(
        &mut self,
        request: &Request<'_>,
        exchange: Exchange,
        route: Arc<SiteRoute>,
        front: &Arc<str>,
    ) -> Outcome {
        let look = match self.look_up(&route, front) {
            Some(ScriptLookup::Known(look)) => look,
            Some(ScriptLookup::Job(job, key)) => {
                let request = ScriptRequest::Client(request.keep());
                self.looking.insert(job, LookingRequest { exchange, request, key });
                return Outcome::Later;
            }
            None => return Outcome::Now(Reply::error(500)),
        };
        if let Some(script) = look.named {
            if script.name != self.decoded && self.is_closed(request, &route, &script.name) {
                return self.fail(request, exchange, &route, (404, &"no_script"));
            }
            return self.serve(request, exchange, route, Some(script));
        }
        if names_script(&self.decoded) {
            return self.fail(request, exchange, &route, (404, &"no_script"));
        }
        // Files first: a 404 of the site leads to the front script, or stays without one.
        match look.front {
            Some(front) => self.serve(request, exchange, route, Some(front)),
            None => self.below.call(request, exchange),
        }
    }

    /// Looks for the scripts of the decoded path. `None`: the site has no directory.
    fn look_up(&mut self, route: &Arc<SiteRoute>, front: &Arc<str>) -> Option<ScriptLookup> {
        // The table of routes keeps the route where it is.
        let number = Arc::as_ptr(route).addr();
        if let Some(look) = self.scripts.get(number, &self.decoded, self.context.now().mono_ns) {
            return Some(ScriptLookup::Known(look.clone()));
        }
        let (root, follows) = (route.root.clone()?, route.follows_links);
        let (path, front) = (self.decoded.clone(), Arc::clone(front));
        let job = self.context.offload(move || look(&root, &path, &front, follows));
        Some(ScriptLookup::Job(job, (number, self.decoded.as_str().into())))
    }

    /// Whether clients may not see a script itself, whatever path leads to it.
    fn is_closed(&self, request: &Request<'_>, route: &SiteRoute, name: &str) -> bool {
        let (mut escaped, mut decoded) = (String::new(), String::new());
        encode_target_path(name, &mut escaped);
        let found = self.routes.find(request.authority(), escaped.as_bytes(), &mut decoded);
        route.is_overruled(name) || matches!(found, Found::Closed | Found::Malformed)
    }

    /// Continues a request after the look-up of its script. The worker calls this handler again with one of a client.
    fn looked(&mut self, looking: LookingRequest, done: Option<Done>) {
        let LookingRequest { exchange, request, key } = looking;
        let Some(look) = done.and_then(|done| done.downcast::<ScriptLook>().ok()) else {
            return self.context.respond(exchange, Reply::error(503).with("Retry-After", "1"));
        };
        self.scripts.insert(key.0, key.1, *look, self.context.now().mono_ns);
        match request {
            ScriptRequest::Client(request) => {
                self.context.call_again(exchange, request);
            }
            ScriptRequest::Redirect(request, target, fields) => {
                self.redirect(exchange, *request, &target, fields);
                self.replace_all();
            }
        }
    }

    /// Serves a request by its route, and by a script of a PHP route.
    fn serve(
        &mut self,
        request: &Request<'_>,
        exchange: Exchange,
        route: Arc<SiteRoute>,
        script: Option<Arc<PhpScript>>,
    ) -> Outcome {
        let path = route.changed_path(&self.decoded);
        let Some(upstream) = route.upstream else {
            let is_hidden = path.is_none() && route.hides(&self.decoded);
            return if is_hidden { self.closed() } else { self.rewritten(request, exchange, path) };
        };
        if let Framing::Length(length) = request.framing()
            && route.exceeds(length)
        {
            return self.fail(request, exchange, &route, (413, &"route_body_bytes"));
        }
        let origin = request.origin();
        let mut upgrading = upgrading(request);
        let Some((settings, wish)) =
            self.upstreams.get(upstream).map(|upstream| (&upstream.settings, upstream.wish(request)))
        else {
            return Outcome::Now(Reply::error(500));
        };
        let is_fastcgi = settings.is_fastcgi();
        if is_fastcgi {
            upgrading = Upgrading::No;
        }
        let mut head = self.proxy.head_buffer();
        let plan = RequestHeadPlan {
            path: path.as_deref(),
            changes: &route.request,
            upgrading,
            keep: settings.kept() > 0,
            origin: &origin,
            forwarded: settings.forwarded,
            via: settings.via,
            expect: route.buffer == 0,
            restores: route.compression.is_some(),
        };
        if !put_request_head(&mut head, request, &plan) {
            return self.fail(request, exchange, &route, (400, &"path"));
        }
        if upgrading == Upgrading::WebSocket
            && let Some(upstream) = self.upstreams.get(upstream).filter(|upstream| !upstream.is_limited())
        {
            let (upstream, counters) = (Arc::clone(upstream), self.proxy.counters());
            let start =
                TunnelStart { route, upstream, counters, head, origin, wish, permit: None, waited_ns: 0 };
            return Outcome::Takeover(Takeover::new(start));
        }
        // Only if the application gets the field, it can consent.
        let expects = request.known(Known::Expect).is_some()
            && route.buffer == 0
            && !route.request.drops(b"expect")
            && !request
                .all(Known::Connection)
                .flat_map(field::list)
                .any(|name| name.eq_ignore_ascii_case(b"expect"));
        let shape = (request.method(), request.framing(), expects);
        let is_front = script.as_ref().is_some_and(|script| script.is_front);
        let files_first = (route.files == Some(FilesOrder::First) || is_front)
            && request.method().reads()
            && upgrading == Upgrading::No;
        let accepted = (route.compression.is_some() && route.request.drops(b"accept-encoding"))
            .then(|| AcceptEncoding::of(request.all(Known::AcceptEncoding)));
        let is_changed = path.is_some() || route.request.drops(b"host");
        let site = route.site_fields(&self.decoded, origin.secure);
        let mut forwarded =
            ProxiedRequest::new((None, route, upstream), shape, (origin, request.now()), head);
        forwarded.site = site;
        forwarded.guarded = request.guard_results().map(Box::new);
        forwarded.wish = wish;
        if is_fastcgi {
            forwarded = forwarded.for_fastcgi(script);
        }
        forwarded.upgrades = upgrading == Upgrading::WebSocket;
        forwarded.trailers = accepts_trailers(request);
        forwarded.accepted = accepted;
        if is_changed {
            let (target, authority) = (request.target().to_vec(), request.authority().to_vec());
            forwarded.client = Some(Box::new(ClientTarget { target, authority }));
        }
        if files_first {
            match exchange.delegate(request, &mut *self.below) {
                Outcome::Now(reply) if reply.status == 404 => {}
                Outcome::Later => {
                    let purpose = Purpose::FilesFirst(Box::new(forwarded));
                    self.waiting.insert(exchange.key(), Delegated { exchange, purpose });
                    return Outcome::Later;
                }
                outcome => return outcome,
            }
        }
        forwarded.exchange = Some(exchange);
        self.proxy.begin(forwarded);
        self.replace_all();
        Outcome::Later
    }

    /// Responds to a client's request with an error: the site's page for it, or a short text.
    fn fail(
        &mut self,
        request: &Request<'_>,
        exchange: Exchange,
        route: &SiteRoute,
        (status, reason): (u16, &'static &'static str),
    ) -> Outcome {
        self.context.refused(reason);
        let origin = request.origin();
        let site = route.site_fields(&self.decoded, origin.secure);
        let error = ErrorResponse { status, reason: Some(reason), site };
        let method = if request.method() == Method::Head { "HEAD" } else { "GET" };
        let host = String::from_utf8_lossy(request.authority());
        let page = route.error_page(status);
        let page = page.and_then(|page| Kept::sample(method, page, &host, &Fields::new()));
        let Some(page) = page.map(|page| page.from_origin(origin, request.now())) else {
            return Outcome::Now(error.text());
        };
        match exchange.delegate(&page.view(), &mut *self.below) {
            Outcome::Now(reply) => Outcome::Now(error.page(reply)),
            Outcome::Later => {
                let purpose = Purpose::ErrorPage(error);
                self.waiting.insert(exchange.key(), Delegated { exchange, purpose });
                Outcome::Later
            }
            Outcome::Takeover(_) => Outcome::Now(error.text()),
        }
    }

    /// Serves a request from the files of the site, under another path.
    fn rewritten(&mut self, request: &Request<'_>, exchange: Exchange, path: Option<String>) -> Outcome {
        let Some(path) = path else { return self.below.call(request, exchange) };
        let changed = self.routes.find_any(request.authority(), path.as_bytes(), &mut self.decoded);
        let is_closed = match changed {
            Found::Closed => true,
            Found::Route(route) => route.internal || route.hides(&self.decoded),
            Found::None | Found::Malformed => false,
        };
        if is_closed {
            return self.closed();
        }
        let mut fields = Fields::new();
        for (name, value) in request.fields().filter(|(name, _)| !name.eq_ignore_ascii_case(b"host")) {
            if let Ok(name) = std::str::from_utf8(name) {
                // The parser has checked both.
                let _ = fields.push(name, value);
            }
        }
        let mut target = path;
        if let Some(query) = request.query() {
            target.push('?');
            target.push_str(&String::from_utf8_lossy(query));
        }
        let method = String::from_utf8_lossy(request.method_text());
        let host = String::from_utf8_lossy(request.authority());
        let Some(kept) = Kept::sample(&method, &target, &host, &fields) else {
            return Outcome::Now(Reply::error(400).because(&"path"));
        };
        let kept = kept.from_origin(request.origin(), request.now());
        match exchange.delegate(&kept.view(), &mut *self.below) {
            Outcome::Later => {
                self.waiting.insert(exchange.key(), Delegated { exchange, purpose: Purpose::Response });
                Outcome::Later
            }
            outcome => outcome,
        }
    }

    /// Responds to a request for a place that clients may not see.
    fn closed(&self) -> Outcome {
        self.context.refused("internal");
        Outcome::Now(Reply::error(404).because(&"internal"))
    }

    /// Replaces the responses that the proxy has given up.
    fn replace_all(&mut self) {
        while let Some((request, replacement)) = self.proxy.next_replaced() {
            self.replace(request, replacement);
        }
    }

    fn replace(&mut self, mut request: ProxiedRequest, replacement: Replacement) {
        let Some(exchange) = request.exchange.take() else { return };
        let site = request.site.take();
        let Some(asked) = AskedHead::parse(&request.head) else {
            return self.context.respond(exchange, Reply::error(500));
        };
        match replacement {
            Replacement::Files => {
                let kept = asked.for_site(&request, None, asked.authority(&request), KeptConditions::All);
                self.delegate(exchange, kept, Purpose::Response);
            }
            Replacement::ErrorPage(status, reason) => {
                let error = ErrorResponse { status, reason, site };
                self.replace_by_error(exchange, &request, &asked, error);
            }
            Replacement::Path(path, fields) => {
                let path = escaped_target(&path);
                request.site = site;
                return self.redirect(exchange, request, &path, fields);
            }
            Replacement::File(path, fields) => {
                let path = String::from_utf8_lossy(&path).into_owned();
                match app_file(&request.route.sendfile, &path) {
                    Some((host, target)) => {
                        let place = (target.as_str(), host.as_bytes());
                        self.send_file(exchange, (&request, &asked), place, (fields, site), None);
                    }
                    None => {
                        self.context.refused("app_file");
                        let error = ErrorResponse { status: 404, reason: Some(&"app_file"), site };
                        self.replace_by_error(exchange, &request, &asked, error);
                    }
                }
            }
        }
        self.proxy.recycle(request);
    }

    /// Responds with an error in place of an application: the site's page for it, or a short text.
    fn replace_by_error(
        &mut self,
        exchange: Exchange,
        request: &ProxiedRequest,
        asked: &AskedHead<'_>,
        error: ErrorResponse,
    ) {
        match error_request(request, asked, error.status) {
            Some(kept) => self.delegate(exchange, Some(kept), Purpose::ErrorPage(error)),
            None => self.context.respond(exchange, error.text()),
        }
    }

    /// An `X-Accel-Redirect` leads nowhere.
    fn astray(
        &mut self,
        exchange: Exchange,
        request: &ProxiedRequest,
        asked: &AskedHead<'_>,
        site: Option<Box<SiteFields>>,
    ) {
        self.context.refused("app_redirect");
        let error = ErrorResponse { status: 502, reason: Some(&"app_redirect"), site };
        self.replace_by_error(exchange, request, asked, error);
    }

    /// Sends a file that an application names, at a target of the site with this host, or else the response of the front script.
    fn send_file(
        &mut self,
        exchange: Exchange,
        (request, asked): (&ProxiedRequest, &AskedHead<'_>),
        (target, host): (&str, &[u8]),
        (fields, site): (Fields, Option<Box<SiteFields>>),
        front: Option<Box<ProxiedRequest>>,
    ) {
        let conditions = match asked.conditions(request.method, &fields, self.context.now()) {
            AppConditions::Unchanged(status) => {
                let mut reply = Reply::new(status);
                reply.fields = fields;
                if let Some(site) = site {
                    site.apply(&mut reply);
                }
                return self.context.respond(exchange, reply);
            }
            AppConditions::Kept(conditions) => conditions,
        };
        let kept = asked.for_site(request, Some(target), host, conditions);
        let missing = error_request(request, asked, 404);
        let own = AppFileFields { fields, site, missing, front };
        self.delegate(exchange, kept, Purpose::AppFile(Box::new(own)));
    }

    /// Lets the site respond to `kept`.
    fn delegate(&mut self, exchange: Exchange, kept: Option<Kept>, purpose: Purpose) {
        let Some(kept) = kept else {
            return self.context.respond(exchange, Reply::error(502).because(&"app_redirect"));
        };
        match exchange.delegate(&kept.view(), &mut *self.below) {
            Outcome::Now(reply) => self.answer(exchange, purpose, reply),
            Outcome::Later => {
                self.waiting.insert(exchange.key(), Delegated { exchange, purpose });
            }
            Outcome::Takeover(takeover) => exchange.take_over(takeover),
        }
    }

    /// Uses a response of the site.
    fn answer(&mut self, exchange: Exchange, purpose: Purpose, reply: Reply) {
        let reply = match purpose {
            Purpose::Response => reply,
            Purpose::FilesFirst(mut request) if reply.status == 404 => {
                request.exchange = Some(exchange);
                return self.proxy.begin(*request);
            }
            Purpose::FilesFirst(request) => {
                self.proxy.recycle(*request);
                reply
            }
            Purpose::AppFile(own) => {
                let AppFileFields { fields, site, missing, front } = *own;
                match merged(reply, fields) {
                    Some(mut reply) => {
                        if let Some(site) = site {
                            site.apply(&mut reply);
                        }
                        reply
                    }
                    None => {
                        if let Some(mut front) = front {
                            (front.exchange, front.site) = (Some(exchange), site);
                            return self.proxy.begin(*front);
                        }
                        let error = ErrorResponse { status: 404, reason: Some(&"app_file"), site };
                        match missing {
                            Some(kept) => {
                                return self.delegate(exchange, Some(kept), Purpose::ErrorPage(error));
                            }
                            None => error.text(),
                        }
                    }
                }
            }
            Purpose::ErrorPage(error) => error.page(reply),
        };
        self.context.respond(exchange, reply);
    }
}

impl Handler for GatewayHandler {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        if request.is_rerouted() {
            // The path of a channel has led back here: there are no channels.
            self.context.refused("app_redirect");
            return Outcome::Now(Reply::error(502).because(&"app_redirect"));
        }
        match self.routes.find(request.authority(), request.path(), &mut self.decoded) {
            Found::None => self.below.call(request, exchange),
            Found::Route(route) if route.is_overruled(&self.decoded) => self.below.call(request, exchange),
            Found::Route(route) => match route.php.clone() {
                Some(front) => self.serve_php(request, exchange, route, &front),
                None => self.serve(request, exchange, route, None),
            },
            Found::Closed => self.closed(),
            Found::Malformed => {
                self.context.refused("path");
                Outcome::Now(Reply::error(400).because(&"path"))
            }
        }
    }

    fn describe(&self, key: ExchangeKey) -> ConnDescription {
        let of_files = || self.below.describe(key);
        self.proxy.describe(key).unwrap_or_else(of_files)
    }

    fn rejected(&mut self, request: &Request<'_>, exchange: Exchange, reply: Reply) -> Outcome {
        self.below.rejected(request, exchange, reply)
    }

    fn body(&mut self, key: ExchangeKey, piece: Piece<'_>) {
        if piece == Piece::Broken {
            // The worker responds itself.
            self.waiting.remove(&key);
            self.looking.retain(|_, looking| looking.exchange.key() != key);
        }
        if self.proxy.has(key) {
            self.proxy.body(key, piece);
            self.replace_all();
        } else {
            self.below.body(key, piece);
        }
    }

    fn crowded(&mut self, key: ExchangeKey) {
        self.proxy.crowded(key);
        self.below.crowded(key);
    }

    fn writable(&mut self, key: ExchangeKey) {
        self.proxy.writable(key);
        self.below.writable(key);
    }

    fn gone(&mut self, key: ExchangeKey) {
        self.waiting.remove(&key);
        self.looking.retain(|_, looking| looking.exchange.key() != key);
        self.proxy.gone(key);
        self.below.gone(key);
    }

    fn ended(&mut self, key: ExchangeKey) {
        self.proxy.ended(key);
        self.replace_all();
        self.below.ended(key);
    }

    fn delegated(&mut self, key: ExchangeKey, reply: Reply) {
        if let Some(Delegated { exchange, purpose }) = self.waiting.remove(&key) {
            self.answer(exchange, purpose, reply);
            self.replace_all();
        }
    }

    fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        if let Some(checks) = self.checks.as_mut().filter(|checks| checks.has(id)) {
            return checks.upstream(id, event);
        }
        self.proxy.upstream(id, event);
        self.replace_all();
    }

    fn offloaded(&mut self, job: JobId, done: Option<Done>) {
        if let Some(looking) = self.looking.remove(&job) {
            return self.looked(looking, done);
        }
        let done = match &mut self.checks {
            Some(checks) => checks.offloaded(job, done),
            None => Some(done),
        };
        let Some(done) = done else { return };
        if let Some(done) = self.proxy.offloaded(job, done) {
            self.below.offloaded(job, done);
        }
    }

    fn watched(&mut self) {
        self.below.watched();
    }

    fn woken(&mut self) {
        if let Some(checks) = &mut self.checks {
            checks.woken();
        }
        self.proxy.woken();
        self.replace_all();
        self.below.woken();
    }

    fn shrink(&mut self) {
        self.below.shrink();
    }

    fn log_label(&self, request: &Request<'_>) -> LogLabel<'_> {
        self.below.log_label(request)
    }
}

/// The protocol that a request asks to change to.
fn upgrading(request: &Request<'_>) -> Upgrading {
    let asks = request.method() == Method::Get
        && request
            .all(Known::Upgrade)
            .flat_map(field::list)
            .any(|name| name.eq_ignore_ascii_case(b"websocket"))
        && request
            .all(Known::Connection)
            .flat_map(field::list)
            .any(|name| name.eq_ignore_ascii_case(b"upgrade"));
    if asks { Upgrading::WebSocket } else { Upgrading::No }
}

fn with_query(path: &str, query: Option<&str>) -> String {
    match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}

/// The site's response with the application's fields: its type, disposition, cookies, cache fields and validators. Length,
/// ranges and codings are the site's. `None`: there is no such file.
fn merged(reply: Reply, mut fields: Fields) -> Option<Reply> {
    let mut reply = reply.unprepared();
    if !matches!(reply.status, 200 | 206 | 304 | 416) {
        // A redirect to a directory, for example, would show an internal path.
        return None;
    }
    let own = std::mem::take(&mut reply.fields);
    if own.value("content-encoding").is_some() {
        fields = with_weak_tag(&fields);
    }
    let is_sites = |name: &[u8]| SITE_FIELDS.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()));
    // A response with several ranges has the type of the envelope around its parts.
    let has_parts = own.value("content-type").is_some_and(|value| value.starts_with(b"multipart/byteranges"));
    let keeps_own = |name: &[u8]| {
        is_sites(name)
            || name.eq_ignore_ascii_case(b"vary")
            || has_parts && name.eq_ignore_ascii_case(b"content-type")
            || !fields.iter().any(|(other, _)| other.eq_ignore_ascii_case(name))
    };
    let mut merged = Fields::with_capacity(own.len_bytes() + fields.len_bytes());
    for (name, value) in own.iter() {
        push(&mut merged, keeps_own(name), name, value);
    }
    for (name, value) in fields.iter() {
        let is_type = name.eq_ignore_ascii_case(b"content-type");
        push(&mut merged, !(is_sites(name) || is_type && has_parts), name, value);
    }
    reply.fields = merged;
    Some(reply)
}

/// The request for the site's page for an error; `None` if it has none.
fn error_request(request: &ProxiedRequest, asked: &AskedHead<'_>, status: u16) -> Option<Kept> {
    let page = request.route.error_page(status)?;
    asked.for_site(request, Some(page), asked.authority(request), KeptConditions::None)
}

/// Fields of a file's response that only the site knows.
const SITE_FIELDS: [&str; 6] =
    ["content-length", "content-encoding", "content-range", "accept-ranges", "transfer-encoding", "date"];

/// The fields with a weak entity tag, because the site has compressed the content.
fn with_weak_tag(fields: &Fields) -> Fields {
    let mut weak = Fields::with_capacity(fields.len_bytes() + 2);
    for (name, value) in fields.iter() {
        if name.eq_ignore_ascii_case(b"etag") && !value.starts_with(b"W/") {
            push(&mut weak, true, name, &[b"W/", value].concat());
        } else {
            push(&mut weak, true, name, value);
        }
    }
    weak
}

impl ErrorResponse {
    /// The response with the site's page. As the error may be over soon, no cache keeps it.
    fn page(self, page: Reply) -> Reply {
        let mut page = page.unprepared();
        if page.status != 200 {
            return self.text();
        }
        let mut reply = Reply::new(self.status)
            .with("Cache-Control", "no-cache")
            .with("X-Content-Type-Options", "nosniff");
        for name in ["content-type", "content-encoding"] {
            let value = page.fields.value(name).map(<[u8]>::to_vec);
            if let Some(value) = value {
                push(&mut reply.fields, true, name.as_bytes(), &value);
            }
        }
        reply.body = std::mem::replace(&mut page.body, Body::Empty);
        self.finished(reply)
    }

    /// The response with a short text.
    fn text(self) -> Reply {
        let reply = Reply::error(self.status);
        self.finished(reply)
    }

    fn finished(self, mut reply: Reply) -> Reply {
        if let Some(site) = self.site {
            site.apply(&mut reply);
        }
        match self.reason {
            Some(reason) => reply.because(reason),
            None => reply,
        }
    }
}

fn push(fields: &mut Fields, wanted: bool, name: &[u8], value: &[u8]) {
    if wanted && let Ok(name) = std::str::from_utf8(name) {
        // The name and the value were a field before.
        let _ = fields.push(name, value);
    }
}
