//! A request that is forwarded, and the connection that carries it.

use std::sync::Arc;

use encke_io::Now;
use encke_server::{
    Body, Exchange, ExchangeKey, Fields, GuardResults, HandlerContext, Origin, Piece, Reply, UpstreamId,
};
use encke_wire::coding::AcceptEncoding;
use encke_wire::fastcgi::{put_body, put_body_end};
use encke_wire::field::Known;
use encke_wire::http1::{Framing, HeadView, LAST_CHUNK, put_chunk_head};
use encke_wire::method::Method;

use crate::affinity::TargetWish;
use crate::app_file::AskedHead;
use crate::client_pace::ClientPace;
use crate::conn_reader::ConnReader;
use crate::fastcgi_head::{FastCgiPlan, FastCgiWriter};
use crate::fault::GatewayFault;
use crate::log_notes::AttemptFacts;
use crate::queue::Permit;
use crate::request_head::set_length;
use crate::response_coding::{
    EncoderPool, ResponseEncoder, coded_fields, coding_for, may_code, unchanged_fields,
};
use crate::response_head::response_fields;
use crate::route::SiteRoute;
use crate::script::PhpScript;
use crate::settings::{FilesOrder, UpstreamSettings};
use crate::site_rules::SiteFields;
use crate::upstream::NamedUpstream;

/// Time after which the gateway reads the body of a client that waits for the application's consent, in ns.
const CONSENT_NS: u64 = 1_000_000_000;
/// Bytes of a request's body that are kept for another attempt.
const REPLAY_BYTES_MAX: usize = 64 * 1024;

/// A response in place of the application's.
pub(crate) enum Replacement {
    /// The files of the site.
    Files,
    /// The file that the application names in `X-Accel-Redirect`, as a path of the site, with the application's fields.
    Path(Vec<u8>, Fields),
    /// The file that the application names in `X-Sendfile`, as an absolute path, with the application's fields.
    File(Vec<u8>, Fields),
    /// The site's page for an error.
    ErrorPage(u16, Option<&'static &'static str>),
}

/// A connection to a target.
pub(crate) struct UpstreamConn {
    pub(crate) upstream: usize,
    pub(crate) target: usize,
    /// The right to the connection; absent once it has passed on.
    pub(crate) permit: Option<Permit>,
    /// The request that it carries; `None` while it is kept.
    pub(crate) request: Option<ExchangeKey>,
    pub(crate) reader: ConnReader,
    pub(crate) connected: bool,
    /// Whether it has carried a request before the present one.
    pub(crate) reused: bool,
    /// Whether the application keeps the connection after the present response.
    pub(crate) keeps: bool,
    /// Bytes of the request that the kernel has not taken.
    pub(crate) unsent: u64,
    /// Time of the last event, in ns of the monotonic clock.
    pub(crate) active_ns: u64,
    /// Time of the present request.
    pub(crate) begun_ns: u64,
    pub(crate) flow: ResponseFlow,
    /// Whether the application may send content that the present response must not have, after its head.
    pub(crate) may_trail: bool,
    /// The time until which no further request is sent, in ns of the monotonic clock.
    pub(crate) rests_until_ns: u64,
    /// Interim responses to the present request.
    pub(crate) interims: u8,
    /// Whether this side has ended, so that the connection carries no further request.
    pub(crate) shut: bool,
}

/// The target and authority of a client's request.
#[derive(Clone)]
pub(crate) struct ClientTarget {
    pub(crate) target: Vec<u8>,
    pub(crate) authority: Vec<u8>,
}

/// The wait of a request for a connection.
#[derive(Clone, Copy)]
pub(crate) struct RequestWait {
    /// The ticket in the queue.
    pub(crate) ticket: u64,
    pub(crate) since_ns: u64,
}

/// A request that is forwarded.
pub(crate) struct ProxiedRequest {
    /// Present until the response has begun.
    pub(crate) exchange: Option<Exchange>,
    pub(crate) route: Arc<SiteRoute>,
    pub(crate) origin: Origin,
    /// The client's target and authority, if the application gets others.
    pub(crate) client: Option<Box<ClientTarget>>,
    /// The fields that the site gives the response.
    pub(crate) site: Option<Box<SiteFields>>,
    /// The user of the request, and the fields of guards.
    pub(crate) guarded: Option<Box<GuardResults>>,
    /// The time of the request.
    pub(crate) started: Now,
    pub(crate) upstream: usize,
    pub(crate) method: Method,
    pub(crate) conn: Option<UpstreamId>,
    /// Present while the request waits for a connection.
    pub(crate) wait: Option<RequestWait>,
    /// The facts for the log.
    pub(crate) facts: AttemptFacts,
    /// Whether the request becomes a tunnel once it has a connection.
    pub(crate) upgrades: bool,
    /// The head for the application, for further attempts.
    pub(crate) head: Vec<u8>,
    pub(crate) framing: Framing,
    /// Whether the client waits for `100 Continue` before it sends its body.
    pub(crate) awaits_continue: bool,
    /// Whether the body is complete, and sent or queued.
    pub(crate) body_is_whole: bool,
    /// The body so far as it was sent, for another attempt; `None` if it is too long for that.
    pub(crate) replay: Option<Vec<u8>>,
    /// Whether the application speaks FastCGI.
    pub(crate) fastcgi: bool,
    /// The PHP script that serves the request.
    pub(crate) script: Option<Arc<PhpScript>>,
    /// The body so far, while the application waits for it.
    pub(crate) buffered: Option<Vec<u8>>,
    /// Whether more of the body is read only once fewer bytes wait.
    pub(crate) full: bool,
    /// Bytes of the body so far.
    pub(crate) body_seen: u64,
    /// The targets that have failed, and the one that the request prefers.
    pub(crate) wish: TargetWish,
    /// Whether only new connections are used.
    pub(crate) avoids_kept: bool,
    /// Whether the client accepts trailers.
    pub(crate) trailers: bool,
    /// The codings that the client accepts, if the route removes Accept-Encoding.
    pub(crate) accepted: Option<AcceptEncoding>,
    /// Compresses the response.
    pub(crate) encoder: Option<Box<ResponseEncoder>>,
    /// Times that an application has sent the client to another path.
    pub(crate) redirects: u8,
    /// The response in place of the application's, whose content is dropped.
    pub(crate) replacement: Option<Replacement>,
    /// Bytes of that content.
    pub(crate) dropped: u64,
}

impl UpstreamConn {
    pub(crate) const fn new(upstream: usize, permit: Permit, reader: ConnReader, now_ns: u64) -> Self {
        Self {
            upstream,
            target: permit.target(),
            permit: Some(permit),
            request: None,
            reader,
            connected: false,
            reused: false,
            keeps: false,
            unsent: 0,
            active_ns: now_ns,
            begun_ns: now_ns,
            flow: ResponseFlow::NEW,
            may_trail: false,
            rests_until_ns: 0,
            interims: 0,
            shut: false,
        }
    }
}

impl UpstreamConn {
    /// Whether the client may have caused this fault, by a body that it does not complete or by an end of its side: applications
    /// close such connections. It must not count against the target, or clients could eject it.
    pub(crate) fn is_clients(&self, fault: GatewayFault, body_is_whole: bool) -> bool {
        self.connected && fault == GatewayFault::Ended && (self.shut || !body_is_whole)
    }
}

impl ProxiedRequest {
    /// Creates a request to be forwarded. `head` is for the application.
    pub(crate) fn new(
        (exchange, route, upstream): (Option<Exchange>, Arc<SiteRoute>, usize),
        (method, framing, expects): (Method, Framing, bool),
        (origin, started): (Origin, Now),
        head: Vec<u8>,
    ) -> Self {
        let body_is_whole = matches!(framing, Framing::None | Framing::Length(0));
        Self {
            exchange,
            fastcgi: false,
            script: None,
            buffered: (route.buffer > 0 && !body_is_whole).then(Vec::new),
            route,
            origin,
            client: None,
            site: None,
            guarded: None,
            started,
            upstream,
            method,
            conn: None,
            wait: None,
            facts: AttemptFacts::default(),
            upgrades: false,
            head,
            framing,
            awaits_continue: expects && framing != Framing::None,
            body_is_whole,
            replay: Some(Vec::new()),
            full: false,
            body_seen: 0,
            wish: TargetWish::default(),
            avoids_kept: false,
            trailers: false,
            accepted: None,
            encoder: None,
            redirects: 0,
            replacement: None,
            dropped: 0,
        }
    }

    /// The time until the next check of the request, in ns.
    pub(crate) fn wait_ns(&self, settings: &UpstreamSettings) -> u64 {
        let response_ns = settings.response_time.nanoseconds();
        if self.awaits_continue { response_ns.min(CONSENT_NS) } else { response_ns }
    }

    /// Keeps a piece of the body that arrives while the request waits for another connection. No further piece is read until
    /// then, so this exceeds the limit of the replay by one piece at most.
    pub(crate) fn keep_piece(&mut self, piece: Piece<'_>) {
        let form = self.body_form();
        put_piece(self.replay.get_or_insert_default(), form, piece);
    }

    /// Sends the request to an application that speaks FastCGI. It needs the length of the body.
    pub(crate) fn for_fastcgi(mut self, script: Option<Arc<PhpScript>>) -> Self {
        (self.fastcgi, self.script) = (true, script);
        // A FastCGI application cannot consent to a body.
        self.awaits_continue = false;
        // A script runs with the part of a body that has arrived when the client breaks off, so it gets only whole bodies, if they fit.
        let fits = match self.framing {
            Framing::Length(length) => length <= self.buffer_max(),
            Framing::Chunked | Framing::None => true,
        };
        if fits && !self.body_is_whole {
            self.buffered.get_or_insert_default();
        }
        self
    }

    /// Appends the start of the request for the application. Returns false if that is impossible.
    pub(crate) fn put_head(&self, out: &mut Vec<u8>, keep: bool, writer: &mut FastCgiWriter) -> bool {
        if !self.fastcgi {
            out.extend_from_slice(&self.head);
            return true;
        }
        let script = self.script.as_deref();
        let root = script.map(|script| &*script.root).or(self.route.root.as_deref());
        let plan = FastCgiPlan { origin: &self.origin, script, root, keep };
        let is_written = writer.put(out, &self.head, &plan);
        if matches!(self.framing, Framing::None | Framing::Length(0)) {
            put_body_end(out);
        }
        is_written
    }

    /// Bytes of a body that are read before the application gets the request.
    pub(crate) fn buffer_max(&self) -> u64 {
        if self.fastcgi { self.route.buffer.max(REPLAY_BYTES_MAX as u64) } else { self.route.buffer }
    }

    /// Whether the body has no length, and is too long to find it out.
    pub(crate) fn lacks_length(&self) -> bool {
        self.fastcgi && self.framing == Framing::Chunked && self.body_seen > self.buffer_max()
    }

    /// The form of the body for the application.
    pub(crate) fn body_form(&self) -> PieceForm {
        match self.framing {
            _ if self.fastcgi => PieceForm::Records,
            Framing::Chunked => PieceForm::Chunks,
            Framing::None | Framing::Length(_) => PieceForm::Plain,
        }
    }

    /// Adds a piece of a body that is read before the application gets the request. Returns whether more is to be read.
    pub(crate) fn buffer(&mut self, piece: Piece<'_>) -> bool {
        let buffer_max = self.buffer_max();
        let Some(buffered) = &mut self.buffered else { return false };
        if let Piece::Data(data) = piece {
            buffered.extend_from_slice(data);
            if self.body_seen < buffer_max || self.fastcgi && self.framing == Framing::Chunked {
                return true;
            }
        } else if self.framing == Framing::Chunked {
            set_length(&mut self.head, self.body_seen);
            self.framing = Framing::Length(self.body_seen);
        }
        self.body_is_whole |= piece == Piece::End;
        let body = self.buffered.take().unwrap_or_default();
        self.replay = Some(Vec::new());
        self.keep_piece(Piece::Data(&body));
        // The head of a request without content ends it.
        if self.body_is_whole && self.fastcgi && self.body_seen > 0 {
            self.keep_piece(Piece::End);
        }
        false
    }

    /// Adds the cookie that leads the client to this target again.
    pub(crate) fn stick(&mut self, upstream: Option<&Arc<NamedUpstream>>, target: usize) {
        let cookie =
            upstream.and_then(|upstream| upstream.sticky_cookie(&self.wish, target, self.origin.secure));
        if let (Some(exchange), Some(cookie)) = (&mut self.exchange, cookie) {
            exchange.add_fields(&cookie);
        }
    }

    /// Bytes of the body that are kept for another attempt.
    pub(crate) fn replay_max(&self) -> usize {
        REPLAY_BYTES_MAX.max(usize::try_from(self.route.buffer).unwrap_or(usize::MAX))
    }

    /// Sets up the compression of a response, if the rules and the client permit it.
    pub(crate) fn code(&mut self, view: &HeadView<'_>, reply: &mut Reply, encoders: &mut EncoderPool) {
        let Some(rules) = self.route.compression.as_ref() else { return };
        if view.head.status() == 304 {
            // The client may hold the compressed content, whose tag is weak and which depends on Accept-Encoding.
            let is_weak =
                |asked: AskedHead<'_>| reply.fields.value("etag").is_some_and(|tag| asked.names_weak(tag));
            if AskedHead::parse(&self.head).is_some_and(is_weak) {
                reply.fields = unchanged_fields(&reply.fields);
            }
            return;
        }
        if !may_code(rules, self.method, view, &reply.fields) {
            return;
        }
        let accepted = self.accepted.or_else(|| AskedHead::parse(&self.head).map(|asked| asked.codings()));
        let mut coding = accepted.as_ref().and_then(coding_for);
        if let Some(chosen) = coding
            && self.method != Method::Head
        {
            self.encoder = encoders.take(chosen, rules.at_once).map(Box::new);
            coding = coding.filter(|_| self.encoder.is_some());
        }
        if coding.is_some() {
            reply.body = Body::Open(None);
        }
        reply.fields = coded_fields(&reply.fields, coding);
    }

    /// The fields of the response for the client.
    pub(crate) fn response_fields(&self, view: &HeadView<'_>) -> Fields {
        let mut fields = response_fields(view, &self.route.response);
        if self.trailers {
            for value in view.head.all(view.bytes, Known::Trailer) {
                // The reader has checked the value.
                let _ = fields.push("Trailer", value);
            }
        }
        fields
    }

    /// The response in place of the application's, if its head or the route says so.
    pub(crate) fn replacement_for(&self, view: &HeadView<'_>) -> Option<Replacement> {
        self.exchange.as_ref()?;
        let (head, bytes, status) = (view.head, view.bytes, view.head.status());
        let fields = || response_fields(view, &self.route.response);
        if let Some(path) = head.field(bytes, "X-Accel-Redirect") {
            return Some(Replacement::Path(path.to_vec(), fields()));
        }
        if !self.route.sendfile.is_empty()
            && let Some(path) =
                ["X-Sendfile", "X-Lighttpd-Send-File"].iter().find_map(|name| head.field(bytes, name))
        {
            return Some(Replacement::File(path.to_vec(), fields()));
        }
        let reads = matches!(self.method, Method::Get | Method::Head);
        if status == 404 && self.route.files == Some(FilesOrder::Last) && reads {
            return Some(Replacement::Files);
        }
        let intercepts = self.route.intercept_errors && self.route.error_page(status).is_some();
        intercepts.then_some(Replacement::ErrorPage(status, None))
    }

    /// Whether the client is an `EventSource`, which tries again only after a 200.
    #[cold]
    pub(crate) fn is_of_event_source(&self) -> bool {
        self.method == Method::Get
            && AskedHead::parse(&self.head).is_some_and(|asked| asked.accepts_events_only())
    }

    /// Whether another attempt is safe. It is if the connection was never established, because no application has executed the
    /// request. `is_early`: the application closed a kept connection without a byte of a response, so it probably has not seen the
    /// request, or another target may respond in its place. Then only requests that change nothing are repeated (RFC 9110 §9.2.2).
    pub(crate) fn may_retry(&self, conn: &UpstreamConn, is_early: bool) -> bool {
        self.exchange.is_some()
            && self.replay.is_some()
            && (!conn.connected || is_early && is_safe(self.method))
    }
}

/// The form of a request's body for an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PieceForm {
    /// As it is, with a length in the head.
    Plain,
    Chunks,
    /// FastCGI.
    Records,
}

/// Appends a piece of a request's body for the application.
pub(crate) fn put_piece(out: &mut Vec<u8>, form: PieceForm, piece: Piece<'_>) {
    match piece {
        Piece::Data(data) if form == PieceForm::Records => put_body(out, data),
        Piece::End if form == PieceForm::Records => put_body_end(out),
        Piece::Data(data) if form == PieceForm::Chunks => {
            put_chunk_head(out, data.len() as u64);
            out.extend_from_slice(data);
            out.extend_from_slice(b"\r\n");
        }
        Piece::Data(data) => out.extend_from_slice(data),
        Piece::End if form == PieceForm::Chunks => out.extend_from_slice(LAST_CHUNK),
        Piece::End | Piece::Broken => {}
    }
}

/// Whether a method changes nothing at the application (RFC 9110 §9.2.1).
pub(crate) const fn is_safe(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options)
}

/// Bytes that may wait on one side before the other side is no longer read.
pub(crate) const WAITING_MAX: u64 = 64 * 1024;

/// Adds the facts of a request's last attempt to its line in the log.
pub(crate) fn note(
    context: &HandlerContext,
    upstreams: &[Arc<NamedUpstream>],
    request: &ProxiedRequest,
    key: ExchangeKey,
) {
    if context.takes_notes()
        && let Some(upstream) = upstreams.get(request.upstream)
    {
        context.note(key, request.facts.notes(upstream));
    }
}

/// The present response on its way to the client.
pub(crate) struct ResponseFlow {
    pace: ClientPace,
    /// Whether receiving is paused, because the client takes the response slowly.
    pub(crate) paused: bool,
}

impl ResponseFlow {
    const NEW: Self = Self { pace: ClientPace::NEW, paused: false };

    /// Writes content for the client. Pauses the connection if the client takes it slowly.
    pub(crate) fn write(
        &mut self,
        context: &HandlerContext,
        (id, key): (UpstreamId, ExchangeKey),
        content: &[u8],
    ) {
        if content.is_empty() {
            return;
        }
        self.pace.count(content.len());
        if context.write(key, content).is_full {
            self.paused = true;
            context.pause(id);
        }
    }

    /// Prepares for the response to a request.
    pub(crate) fn begin(&mut self, context: &HandlerContext, id: UpstreamId) {
        self.pace.restart(context, id);
        self.paused = false;
    }

    /// Receives again.
    pub(crate) fn read_on(&mut self, context: &HandlerContext, id: UpstreamId) {
        self.paused = false;
        self.pace.widen(context, id);
        context.resume(id);
    }
}
