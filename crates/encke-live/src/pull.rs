//! Pulls: a stream without a source of its own is fetched from another server by HTTP, for as long as it has listeners.
//!
//! ```text
//! listener ─► want ─► resolve ─► dial ─► GET, Encke-Hops ─► 200 ─► LiveSource: as if the bytes came by PUT
//!                        ▲                                    │
//!                        └─ the next URL, after a pause ◄─ loss, silence, error, 508
//! no listener for IDLE_NS ─► closed
//! ```
//! **TLS.** A server with an `https` URL must prove its name, as the servers of upstreams do. Authorities are read for each
//! connection, so a changed file applies to the next one. A redirection never leaves TLS.
//!
//! **Redirections** lead no further inside than the server of the URL is: from a public address to no private one, and from another
//! machine never to this one. What is there would reach all listeners.
//!
//! **Tokens.** The token of a URL is read like the authorities. Only the server of that URL gets it: a redirection to another one is
//! followed without it.
//!
//! **Loops.** Every node has an id. A request names the nodes that it is for (`Encke-Hops`), and a response the nodes that the
//! stream has passed. A node that finds itself there responds with 508 (RFC 5842, section 7.2) or drops the stream.

use std::sync::Arc;

use encke_io::{Now, Segment, lock};
use encke_push::PushPublisher;
use encke_server::{Engine, JobId, ResidentMailbox, UpstreamEvent, UpstreamId};
use encke_settings::notice::{self, Level};
use encke_wire::http1::{AppResponseReader, ReadStep, ResponseHead};
use encke_wire::method::Method;

use crate::pull_lookup::{LookupError, PullLookup, PullRoute};
use crate::pull_reach::PullReach;
use crate::pull_url::PullUrl;
use crate::source::{LiveSource, PROGRAM_CHARS_MAX, SourceRequest, TITLE_CHARS_MAX, shown};
use crate::state::{KeeperLook, LiveChannel, LiveState, PullPlaces, SourceKind};

/// Time without listeners after which a pull ends.
const IDLE_NS: u64 = 30_000_000_000;
/// Time for which a failing pull goes on without listeners: requests that waited for it become listeners meanwhile.
const LEFT_NS: u64 = 3_000_000_000;
/// Time for the connection and the head of the response.
const RESPONSE_NS: u64 = 5_000_000_000;
/// Time without a byte after which a server is regarded as lost.
const SILENCE_NS: u64 = 10_000_000_000;
/// Pause between two attempts, doubled with each round over all URLs up to the second value.
const PAUSE_NS: u64 = 500_000_000;
const PAUSE_MAX_NS: u64 = 8_000_000_000;
/// Redirections that are followed in a row.
const REDIRECTS_MAX: u8 = 3;

/// The fetching of one stream.
pub(crate) struct LivePull {
    pub(crate) stream: Arc<LiveChannel>,
    places: PullPlaces,
    /// The nodes for which the stream is fetched, as a field value.
    hops: String,
    /// Attempts so far without a byte of the stream.
    tries: usize,
    redirected: Option<PullUrl>,
    redirects: u8,
    /// How far the server of the URL reaches; redirections lead no further inside.
    reach: PullReach,
    phase: PullPhase,
    /// The time since which the stream has had no listeners, on the monotonic clock in ns.
    idle_ns: Option<u64>,
}

enum PullPhase {
    Resolving(JobId),
    Open(Box<PullConn>),
    /// Until the next attempt, on the monotonic clock in ns.
    Pause(u64),
}

struct PullConn {
    id: UpstreamId,
    /// The URL, for operators.
    from: String,
    kind: SourceKind,
    reader: AppResponseReader,
    head: ResponseHead,
    source: Option<LiveSource>,
    is_paused: bool,
}

/// The parts of the keeper that pulls need.
pub(crate) struct PullSetup<'a> {
    pub(crate) state: &'a Arc<LiveState>,
    pub(crate) publisher: &'a PushPublisher,
    pub(crate) mailbox: Option<&'a ResidentMailbox>,
}

/// Why a connection ends.
enum PullEnd {
    /// The server has named another URL.
    Redirect(PullUrl),
    Failure(String),
}

fn failure(text: &str) -> PullEnd {
    PullEnd::Failure(text.to_owned())
}

impl PullConn {
    /// Reads bytes of the response. Returns whether more are wanted.
    fn read(
        &mut self,
        stream: &Arc<LiveChannel>,
        setup: &PullSetup<'_>,
        bytes: &[u8],
        now: Now,
    ) -> Result<bool, PullEnd> {
        let (mut rest, mut keeps) = (bytes, false);
        loop {
            let used = match self.reader.step(&mut self.head, rest, &mut keeps) {
                Err(fault) => {
                    return Err(PullEnd::Failure(format!("the response is not valid: {fault:?}")));
                }
                Ok(ReadStep::More) => break,
                Ok(ReadStep::End { .. }) => {
                    if let Some(mut source) = self.source.take() {
                        source.release(now, true);
                    }
                    return Err(failure("the stream has ended"));
                }
                Ok(ReadStep::Data(data, used)) => {
                    if let Some(source) = &mut self.source {
                        source.data(data, now).map_err(|fault| PullEnd::Failure(fault.to_string()))?;
                    }
                    used
                }
                Ok(ReadStep::Head(view, used)) => {
                    let text = |name: &str| {
                        let value = view.head.field(view.bytes, name)?;
                        std::str::from_utf8(value).ok().map(|value| value.trim().to_owned())
                    };
                    match view.head.status() {
                        100..=199 => {}
                        200 => {
                            let from = (self.kind, &*self.from);
                            self.source = Some(begin_source(stream, setup, from, text, now)?);
                        }
                        status @ (301 | 302 | 303 | 307 | 308) => {
                            let url = text("location").and_then(|location| PullUrl::parse(&location, ""));
                            let without =
                                || format!("status {status} without an http:// or https:// URL as Location");
                            return Err(url.map_or_else(|| PullEnd::Failure(without()), PullEnd::Redirect));
                        }
                        status @ (401 | 403) => {
                            let remedy = match self.kind {
                                SourceKind::NodePull => {
                                    "that node must allow `subscribe` to the address of this one"
                                }
                                _ => "the server requires another token, see live.channel.pull",
                            };
                            return Err(PullEnd::Failure(format!("status {status}: {remedy}")));
                        }
                        508 => return Err(failure("status 508: the nodes pull from each other, a loop")),
                        status => return Err(PullEnd::Failure(format!("status {status}"))),
                    }
                    used
                }
            };
            rest = rest.get(used..).unwrap_or_default();
        }
        match &mut self.source {
            Some(source) => source.wants_more(now).map_err(|fault| PullEnd::Failure(fault.to_string())),
            None => Ok(true),
        }
    }
}

/// Begins the source of a stream with the fields of a response.
fn begin_source(
    stream: &Arc<LiveChannel>,
    setup: &PullSetup<'_>,
    (kind, origin): (SourceKind, &str),
    text: impl Fn(&str) -> Option<String>,
    now: Now,
) -> Result<LiveSource, PullEnd> {
    let path = text("encke-hops").unwrap_or_default();
    if setup.state.has_passed(&path) {
        return Err(failure("the stream comes from this server: a loop"));
    }
    let mailbox = setup.mailbox.cloned();
    let request = SourceRequest {
        content_type: text("content-type"),
        title: text("icy-name").map(|title| shown(&title, TITLE_CHARS_MAX)),
        origin: origin.to_owned(),
        takeover: false,
        path,
        kind,
        program: text("server").map(|server| shown(&server, PROGRAM_CHARS_MAX)),
        wake: Box::new(move || {
            if let Some(mailbox) = &mailbox {
                mailbox.send(KeeperLook);
            }
        }),
    };
    LiveSource::begin(setup.state, Arc::clone(stream), setup.publisher.clone(), request, now)
        .map_err(|_| failure("the stream has a source of its own"))
}

impl LivePull {
    /// Begins to fetch a stream. `hops` are the nodes for which it is fetched.
    pub(crate) fn begin(
        engine: &mut Engine<'_>,
        stream: Arc<LiveChannel>,
        places: PullPlaces,
        hops: String,
    ) -> Self {
        let mut pull = Self {
            stream,
            places,
            hops,
            tries: 0,
            redirected: None,
            redirects: 0,
            reach: PullReach::default(),
            phase: PullPhase::Pause(0),
            idle_ns: None,
        };
        pull.resolve(engine);
        pull
    }

    /// Returns when the pull needs a turn.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        match self.phase {
            PullPhase::Pause(until_ns) => Some(until_ns),
            PullPhase::Resolving(_) | PullPhase::Open(_) => None,
        }
    }

    /// Returns when [`Self::flush_due`] is to be called.
    pub(crate) fn flush_ns(&self) -> Option<u64> {
        match &self.phase {
            PullPhase::Open(conn) => conn.source.as_ref()?.flush_ns(),
            PullPhase::Resolving(_) | PullPhase::Pause(_) => None,
        }
    }

    /// Passes on the units of the source whose time has come.
    pub(crate) fn flush_due(&mut self, engine: &mut Engine<'_>) {
        let now = engine.now();
        if let PullPhase::Open(conn) = &mut self.phase
            && let Some(source) = &mut conn.source
            && let Err(fault) = source.flush_due(now)
        {
            engine.context().close(conn.id);
            self.failed(now, &fault.to_string());
        }
    }

    /// Returns whether this connection is the pull's.
    pub(crate) fn has(&self, id: UpstreamId) -> bool {
        matches!(&self.phase, PullPhase::Open(conn) if conn.id == id)
    }

    fn url(&self) -> Option<&PullUrl> {
        self.redirected.as_ref().or_else(|| self.places.of_attempt(self.tries))
    }

    fn resolve(&mut self, engine: &mut Engine<'_>) {
        let Some(url) = self.url() else { return };
        let (url, tls) = (url.clone(), self.places.tls.clone());
        self.phase = PullPhase::Resolving(engine.offload(move || PullLookup::of(&url, &tls)));
    }

    /// A name was resolved. Returns whether it was this pull's.
    pub(crate) fn resolved(
        &mut self,
        engine: &mut Engine<'_>,
        job: JobId,
        lookup: Option<&PullLookup>,
    ) -> bool {
        if !matches!(self.phase, PullPhase::Resolving(one) if one == job) {
            return false;
        }
        let round = self.tries / self.places.count().max(1);
        if self.redirected.is_none() {
            self.reach = lookup.map(PullLookup::reach).unwrap_or_default();
        }
        let reach = self.reach;
        let lookup = lookup.map_or(Err(LookupError::Ended), |lookup| lookup.route(round, reach));
        match (lookup, self.url()) {
            (Ok(PullRoute { address, session, token }), Some(url)) => {
                let is_node = self.redirected.is_none() && self.places.node.as_ref() == Some(url);
                // A node has the source itself, so there is no chain behind it.
                let hops =
                    if is_node { self.hops.rsplit(", ").next().unwrap_or_default() } else { &self.hops };
                let context = engine.context();
                let id = context.dial(address, session);
                let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
                let request = format!(
                    "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: encke\r\nAccept: */*\r\nEncke-Hops: {hops}\r\n{}\r\n",
                    url.path,
                    url.target.authority(),
                    authorization.unwrap_or_default()
                );
                context.send(id, [Segment::Bytes(request.into_bytes())]);
                context.deadline(id, RESPONSE_NS);
                let from = url.to_string();
                let kind = if is_node { SourceKind::NodePull } else { SourceKind::Pull };
                let mut reader = AppResponseReader::new();
                reader.begin(Method::Get);
                let (head, source) = (ResponseHead::new(), None);
                self.phase = PullPhase::Open(Box::new(PullConn {
                    id,
                    from,
                    kind,
                    reader,
                    head,
                    source,
                    is_paused: false,
                }));
            }
            (Ok(_), None) => self.failed(engine.now(), "the URL was removed"),
            (Err(error), _) => self.failed_with(engine.now(), &error.to_string(), &error.public()),
        }
        true
    }

    /// An event of the connection.
    pub(crate) fn event(&mut self, engine: &mut Engine<'_>, setup: &PullSetup<'_>, event: UpstreamEvent<'_>) {
        let now = engine.now();
        let PullPhase::Open(conn) = &mut self.phase else { return };
        let id = conn.id;
        let context = engine.context();
        let outcome = match event {
            UpstreamEvent::Received(bytes) => {
                context.deadline(id, SILENCE_NS);
                conn.read(&self.stream, setup, bytes, now)
            }
            UpstreamEvent::Ended => Err(failure("the server has ended the stream")),
            UpstreamEvent::Overdue => Err(failure("the server is silent")),
            UpstreamEvent::Failed(fault) => Err(PullEnd::Failure(fault.to_string())),
            _ => return,
        };
        let is_secure = self.url().is_some_and(|url| url.target.secure_name().is_some());
        let PullPhase::Open(conn) = &mut self.phase else { return };
        let end = match outcome {
            Ok(wants_more) => {
                if conn.source.is_some() {
                    self.tries = 0;
                }
                conn.is_paused = !wants_more;
                if !wants_more {
                    context.pause(id);
                    context.deadline(id, u64::MAX);
                }
                return;
            }
            Err(end) => end,
        };
        context.close(id);
        self.lost(now);
        match end {
            PullEnd::Redirect(url) if is_secure && url.target.secure_name().is_none() => {
                self.failed(now, &format!("the server redirects to {url}, without TLS"));
            }
            PullEnd::Redirect(url) if self.redirects < REDIRECTS_MAX => {
                self.redirects += 1;
                self.redirected =
                    Some(self.url().map_or_else(|| url.clone(), |from| from.redirected(url.clone())));
                self.resolve(engine);
            }
            PullEnd::Redirect(_) => self.failed(now, "too many redirections in a row"),
            PullEnd::Failure(text) => self.failed(now, &text),
        }
    }

    /// Ends the source, because its connection has ended.
    fn lost(&mut self, now: Now) {
        if let PullPhase::Open(conn) = &mut self.phase
            && let Some(mut source) = conn.source.take()
        {
            source.release(now, false);
        }
    }

    /// An attempt has failed: another one follows after a pause. Waiting listeners get the error after each round over all URLs.
    fn failed(&mut self, now: Now, text: &str) {
        self.failed_with(now, text, text);
    }

    /// Like [`failed`](Self::failed), with a separate text for the listeners.
    fn failed_with(&mut self, now: Now, text: &str, public: &str) {
        let name = &self.stream.name;
        let from = self.url().map(ToString::to_string).unwrap_or_default();
        notice::report(Level::Warn, &format!("live stream {name}: cannot be pulled from {from}: {text}"));
        (self.redirected, self.redirects) = (None, 0);
        self.tries += 1;
        let places = self.places.count().max(1);
        let round = self.tries / places;
        let pause_ns = if self.tries.is_multiple_of(places) {
            // Only operators see addresses of other servers.
            let text = format!("the stream cannot be pulled: {public}");
            lock(&self.stream.inner).fail_pull(text, now.mono_ns);
            PAUSE_NS.saturating_mul(1 << round.min(4)).min(PAUSE_MAX_NS)
        } else {
            0
        };
        self.phase = PullPhase::Pause(now.mono_ns.saturating_add(pause_ns));
    }

    /// Applies the places where the stream is now. If its source is on another node than before, the stream is fetched from there at
    /// once. While no node is known to have it, a connection that delivers it stays.
    pub(crate) fn redirect(&mut self, engine: &mut Engine<'_>, places: PullPlaces) {
        if self.places == places {
            return;
        }
        // The source may have been lost and have returned on the same node meanwhile.
        let is_there = |node: &PullUrl| match &self.phase {
            PullPhase::Open(conn) => conn.kind == SourceKind::NodePull && conn.from == node.to_string(),
            _ => false,
        };
        let moves =
            places.node != self.places.node && places.node.as_ref().is_some_and(|node| !is_there(node));
        self.places = places;
        if moves {
            if let PullPhase::Open(conn) = &self.phase {
                engine.context().close(conn.id);
            }
            self.lost(engine.now());
            (self.tries, self.redirected, self.redirects) = (0, None, 0);
            self.resolve(engine);
        }
    }

    /// Another listener wants the stream: the next attempt names the fewer hops, so that no listener can lengthen the chain for others.
    pub(crate) fn shorten(&mut self, hops: String) {
        if hops.split(',').count() < self.hops.split(',').count() {
            self.hops = hops;
        }
    }

    /// Ends the pull.
    pub(crate) fn close(&mut self, engine: &mut Engine<'_>) {
        if let PullPhase::Open(conn) = &self.phase {
            engine.context().close(conn.id);
        }
        self.lost(engine.now());
    }

    /// Does what is due. Returns whether the pull continues. `is_fallback`: the stream replaces another one that has listeners.
    pub(crate) fn look(&mut self, engine: &mut Engine<'_>, is_fallback: bool) -> bool {
        let now = engine.now();
        let listeners = self.stream.listeners.count();
        let is_wanted = listeners > 0 || is_fallback || lock(&self.stream.inner).is_awaited();
        if is_wanted {
            self.idle_ns = None;
        }
        let idle_ns = *self.idle_ns.get_or_insert(now.mono_ns);
        let is_idle = !is_wanted && now.mono_ns.saturating_sub(idle_ns) >= IDLE_NS;
        let has_source = matches!(&self.phase, PullPhase::Open(conn) if conn.source.is_some());
        // A source of its own has begun, or a failing pull has no listeners left.
        let is_left = !is_wanted && now.mono_ns.saturating_sub(idle_ns) >= LEFT_NS;
        let is_over = !has_source && (lock(&self.stream.inner).source.is_some() || is_left);
        let is_lost = !has_source && !is_over && self.places.is_empty();
        if is_lost {
            let text = "no node has the source of the stream any more".to_owned();
            lock(&self.stream.inner).fail_pull(text, now.mono_ns);
        }
        if is_idle || is_over || is_lost {
            self.close(engine);
            return false;
        }
        match &mut self.phase {
            PullPhase::Pause(until_ns) if *until_ns <= now.mono_ns => self.resolve(engine),
            PullPhase::Open(conn) => {
                // An operator may have ended the source, which then sends nothing for a while.
                let wants_more = conn.source.as_mut().map(|source| source.wants_more(now));
                match wants_more {
                    Some(Ok(true)) if conn.is_paused => {
                        conn.is_paused = false;
                        engine.context().resume(conn.id);
                        engine.context().deadline(conn.id, SILENCE_NS);
                    }
                    Some(Ok(_)) | None => {}
                    Some(Err(fault)) => {
                        engine.context().close(conn.id);
                        self.failed(now, &fault.to_string());
                    }
                }
            }
            _ => {}
        }
        true
    }
}
