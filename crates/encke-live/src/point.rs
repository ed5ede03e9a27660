//! The requests of live streams: sources, listeners, the list, and the pages of browsers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use encke_io::{Now, lock};
use encke_push::{
    ChannelPoint, ChannelRules, Name, Pattern, PointBody, PointHandler, PointRead, PointStream,
    PushPublisher, SourceHolder,
};
use encke_server::{EndToken, Fields, HandlerContext, Reply, Request, WorkerSetup};
use encke_stats::Source;
use encke_wire::field::Known;
use encke_wire::http1::Framing;
use encke_wire::media::MediaInfo;
use encke_wire::method::Method;
use encke_wire::target::query_pairs;

use crate::actions::{FEATURE, LiveActions, verbs};
use crate::figures::LiveReport;
use crate::keeper::LiveKeeper;
use crate::listener_places::ListenerPlace;
use crate::page;
use crate::settings::LiveSettings;
use crate::source::{LiveSource, PROGRAM_CHARS_MAX, SourceFault, SourceRequest, TITLE_CHARS_MAX, shown};
use crate::state::{LiveChannelState, LiveState, Occupied, SourceKind};

/// Live streams, at the prefix of the settings.
pub struct LivePoint {
    settings: LiveSettings,
    state: Arc<LiveState>,
    publisher: PushPublisher,
}

impl LivePoint {
    /// Creates the point. `publisher` is that of the push plan to which the point is added; `state` outlives reloads.
    pub fn new(settings: &LiveSettings, state: &Arc<LiveState>, publisher: PushPublisher) -> Self {
        Self { settings: settings.clone(), state: Arc::clone(state), publisher }
    }
}

impl ChannelPoint for LivePoint {
    fn prefix(&self) -> &str {
        &self.settings.prefix
    }

    fn rules(&self) -> Vec<(Pattern, ChannelRules)> {
        self.settings.rules()
    }

    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn PointHandler> {
        worker.resident(|worker| {
            LiveKeeper::new(Arc::clone(&self.state), self.publisher.clone(), worker.number() == 0)
        });
        worker.actions(FEATURE, verbs(), LiveActions(Arc::clone(&self.state)));
        Box::new(LiveDesk {
            names: self.settings.names().to_owned(),
            state: Arc::clone(&self.state),
            publisher: self.publisher.clone(),
            context,
            siblings: 0,
            number: self.state.next_number(),
        })
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        let names = self.settings.names().to_owned();
        vec![Arc::new(LiveReport { state: Arc::clone(&self.state), names })]
    }
}

/// Live streams on one worker.
struct LiveDesk {
    names: String,

    state: Arc<LiveState>,
    publisher: PushPublisher,
    context: HandlerContext,
    /// Number of listeners that were sent to siblings.
    siblings: usize,
    /// Distinguishes this part from the parts of other workers and of earlier settings.
    number: u64,
}

impl PointHandler for LiveDesk {
    fn list(&mut self, request: &Request<'_>, may_read: &dyn Fn(&Name) -> bool) -> Reply {
        if page::is_wanted(request) {
            return page::list();
        }
        let now_ns = request.now().mono_ns;
        let streams = self.state.all().into_iter().filter(|stream| may_read(&stream.name));
        let mut streams: Vec<_> =
            streams.map(|stream| crate::figures::described(&stream, &self.names, now_ns)).collect();
        crate::figures::add_elsewhere(&mut streams, self.state.held_elsewhere(), |title| {
            Name::parse(format!("{}{title}", self.names).as_bytes()).is_ok_and(|name| may_read(&name))
        });
        page::json_list(&streams)
    }

    fn read(&mut self, request: &Request<'_>, channel: &Name) -> PointRead {
        if let Some(query) = request.query()
            && query_pairs(query).any(|(key, _)| key == "info")
        {
            return PointRead::Reply(self.info(channel));
        }
        let upgrades = request.all(Known::Upgrade).any(|value| value.eq_ignore_ascii_case(b"websocket"));
        if !upgrades && request.method() == Method::Get && page::is_wanted(request) {
            return PointRead::Reply(page::player());
        }
        let hops = request.field("encke-hops").map(|hops| String::from_utf8_lossy(hops).into_owned());
        let rules = self.state.rules_of(channel);
        let KnownMedia { info, path, title } = match self.media_of(channel) {
            StreamMedia::Known(known) => known,
            StreamMedia::Waits(stream) => return self.wait(&stream),
            StreamMedia::Absent => return self.fetch(channel, hops.as_deref().unwrap_or_default()),
        };
        if let Some(hops) = &hops
            && (self.state.has_passed(hops) || shares_node(hops, &path))
        {
            return PointRead::Reply(looped());
        }
        let stream = self.state.found_or_made(channel);
        // A HEAD is no listener.
        let place = match request.method() {
            Method::Get => ListenerPlace::take(stream, rules.listeners).map(EndToken::new).map(Some),
            _ => stream.listeners.admits(rules.listeners).then_some(None),
        };
        let Some(until_end) = place else { return PointRead::Reply(self.full(&rules.siblings)) };
        let mut fields = media_fields(&info, title.as_deref());
        if hops.is_some() {
            let path = if path.is_empty() { String::new() } else { format!("{path}, ") };
            fields.push_lines(format!("Encke-Hops: {path}{}\r\n", self.state.node()).as_bytes());
        }
        let relay = hops.map(|hops| shown(&hops, RELAY_CHARS_MAX));
        PointRead::Stream(PointStream { fields, relay, until_end })
    }

    fn write(
        &mut self,
        request: &Request<'_>,
        channel: Name,
        _publisher: u64,
    ) -> Result<Box<dyn PointBody>, Reply> {
        // RFC 9112, section 6.3: a request without a length has no body, and its bytes would be the next request.
        if request.framing() == Framing::None {
            let text =
                "a source needs a body of unknown length (Transfer-Encoding: chunked) or a Content-Length";
            return Err(refusal(411, text.into()).and_close());
        }
        let text = |value: &[u8]| std::str::from_utf8(value).ok().map(|value| value.trim().to_owned());
        let title = request.field("ice-name").and_then(text).filter(|title| !title.is_empty());
        let title = title.map(|title| shown(&title, TITLE_CHARS_MAX));
        let program = request.field("user-agent").and_then(text).filter(|program| !program.is_empty());
        let takeover = query_pairs(request.query().unwrap_or_default()).any(|(key, _)| key == "takeover");
        let waker = self.context.waker();
        let stream = self.state.found_or_made(&channel);
        let source = LiveSource::begin(
            &self.state,
            stream,
            self.publisher.clone(),
            SourceRequest {
                content_type: request.known(Known::ContentType).and_then(text),
                title,
                origin: request.client().map_or_else(|| "unix".to_owned(), |client| client.to_string()),
                takeover,
                path: String::new(),
                kind: SourceKind::Own,
                program: program.map(|program| shown(&program, PROGRAM_CHARS_MAX)),
                wake: Box::new(move || waker.wake()),
            },
            self.context.now(),
        );
        match source {
            Ok(source) => Ok(Box::new(LiveBody(source))),
            Err(occupied) => {
                self.state.figures.sources_refused.fetch_add(1, Ordering::Relaxed);
                let status = if occupied == Occupied::Full { 503 } else { 409 };
                Err(refusal(status, format!("{}: {occupied}", self.shown(&channel))).and_close())
            }
        }
    }
}

/// Maximum number of characters of a relay's list of hops: 16 nodes.
const RELAY_CHARS_MAX: usize = 16 * 18;

impl LiveDesk {
    fn shown(&self, channel: &Name) -> String {
        format!("/{channel}")
    }

    /// Returns the state of a channel for a new listener.
    fn media_of(&self, channel: &Name) -> StreamMedia {
        let of = |name: &Name, inner: &LiveChannelState| {
            let Some(info) = inner.info.clone() else { return StreamMedia::Waits(name.clone()) };
            let source = inner.source.as_ref();
            let path = source.map(|source| source.path.clone()).unwrap_or_default();
            StreamMedia::Known(KnownMedia {
                info,
                path,
                title: source.and_then(|source| source.title.clone()),
            })
        };
        if let Some(stream) = self.state.find(channel) {
            let inner = lock(&stream.inner);
            if inner.source.is_some() || inner.held_until_ns.is_some() || inner.falls_back {
                return of(channel, &inner);
            }
        }
        let now_ns = self.context.now().mono_ns;
        let cannot_be_pulled = || {
            self.state.find(channel).is_some_and(|stream| lock(&stream.inner).pull_failure(now_ns).is_some())
        };
        if self.state.places_of(channel).node.is_some() && !cannot_be_pulled() {
            // The source has begun on another node just now.
            return StreamMedia::Absent;
        }
        let fallback = self.state.fallback_of(channel).and_then(|fallback| self.state.find(&fallback));
        let Some(fallback) = fallback.filter(|fallback| lock(&fallback.inner).source.is_some()) else {
            return StreamMedia::Absent;
        };
        // The source of the fallback finds the stream, and publishes to it, too.
        self.state.found_or_made(channel);
        of(&fallback.name, &lock(&fallback.inner))
    }

    /// Fetches a stream; or, if it is nowhere, its fallback from the node that has it.
    fn fetch(&mut self, channel: &Name, hops: &str) -> PointRead {
        match self.state.fallback_elsewhere(channel, self.context.now().mono_ns) {
            Some(fallback) => self.pull(&fallback.name, hops),
            None => self.pull(channel, hops),
        }
    }

    /// Lets a listener wait until the stream is known.
    fn wait(&mut self, channel: &Name) -> PointRead {
        let stream = self.state.found_or_made(channel);
        let waker = self.context.waker();
        let mut inner = lock(&stream.inner);
        inner.wait(self.number, || Box::new(move || waker.wake()));
        if inner.source.is_some() && inner.info.is_some() {
            // The description became known after the stream was looked up.
            inner.wake();
        }
        PointRead::Wait
    }

    /// Fetches a stream from another server if there is one that may have it, unless that has just failed.
    fn pull(&mut self, channel: &Name, hops: &str) -> PointRead {
        let places = self.state.places_of(channel);
        if places.is_empty() {
            return PointRead::Reply(match self.state.holder_of(channel) {
                Some(SourceHolder { node, .. }) => refusal(
                    502,
                    format!(
                        "{node} has the source of this stream, and does not say where it can be reached: set cluster.address there"
                    ),
                ),
                None => self.absent(channel),
            });
        }
        if self.state.has_passed(hops) {
            return PointRead::Reply(looped());
        }
        let stream = self.state.found_or_made(channel);
        let failure = lock(&stream.inner).pull_failure(self.context.now().mono_ns).map(ToOwned::to_owned);
        if let Some(failure) = failure {
            return PointRead::Reply(refusal(502, failure).with("Retry-After", "5"));
        }
        let waits = self.wait(channel);
        self.state.want(&stream, hops);
        waits
    }

    fn info(&self, channel: &Name) -> Reply {
        match self.state.find(channel) {
            Some(stream) => {
                let now_ns = self.context.now().mono_ns;
                page::json(&crate::figures::described(&stream, &self.names, now_ns))
            }
            None => match self.state.holder_of(channel) {
                Some(holder) => {
                    let title = channel.as_str().strip_prefix(&*self.names).unwrap_or_default();
                    page::json(&crate::figures::elsewhere(title, &holder))
                }
                None => self.absent(channel),
            },
        }
    }

    fn absent(&self, channel: &Name) -> Reply {
        let text = format!(
            "no source sends to {0} now: send one by PUT {0}, for example with ffmpeg -re -i FILE -c copy -f webm -method PUT \
             http://HOST{0}",
            self.shown(channel)
        );
        refusal(404, text).with("Retry-After", "5")
    }

    /// Responds to a listener above the limit.
    fn full(&mut self, siblings: &[String]) -> Reply {
        if siblings.is_empty() {
            let text = "the stream has as many listeners as live.channel.listeners allows: try again later";
            return refusal(503, text.into()).with("Retry-After", "10");
        }
        self.siblings = self.siblings.wrapping_add(1);
        match siblings.get(self.siblings % siblings.len()) {
            Some(sibling) => Reply::text(302, format!("{sibling}\n"))
                .with("Location", sibling.clone())
                .with("Cache-Control", "no-store"),
            None => Reply::error(503),
        }
    }
}

/// A stream that can be received.
struct KnownMedia {
    info: MediaInfo,
    /// The nodes that the stream has passed.
    path: String,
    title: Option<Box<str>>,
}

/// The state of a stream for a new listener.
enum StreamMedia {
    Known(KnownMedia),
    /// There is a source of this stream, whose container is not known yet.
    Waits(Name),
    /// There is no source.
    Absent,
}

/// Returns whether two lists of hops have a node in common.
fn shares_node(hops: &str, path: &str) -> bool {
    hops.split(',')
        .map(str::trim)
        .any(|one| !one.is_empty() && path.split(',').map(str::trim).any(|other| one == other))
}

/// The response to a node that would receive its own stream.
fn looped() -> Reply {
    refusal(508, "the nodes pull this stream from each other: a loop".into())
}

/// Returns the header fields of a stream of media. Players show the title.
fn media_fields(info: &MediaInfo, title: Option<&str>) -> Fields {
    let lines = format!(
        "Content-Type: {}\r\nCache-Control: no-store, no-transform\r\nAccept-Ranges: none\r\n\
         X-Content-Type-Options: nosniff\r\nX-Accel-Buffering: no\r\n",
        info.container.media_type(info.video)
    );
    let mut fields = Fields::new();
    fields.push_lines(lines.as_bytes());
    if let Some(title) = title {
        fields.push_lines(format!("Icy-Name: {title}\r\n").as_bytes());
    }
    fields
}

/// Returns an error with this text.
pub(crate) fn refusal(status: u16, text: String) -> Reply {
    Reply::text(status, text + "\n")
        .with("X-Content-Type-Options", "nosniff")
        .with("Cache-Control", "no-store")
        .because(match status {
            403 => &"source_stopped",
            404 => &"no_source",
            409 => &"source_exists",
            411 => &"source_without_length",
            415 => &"not_media",
            502 => &"live_pull",
            503 => &"live_full",
            508 => &"live_loop",
            _ => &"live_request",
        })
}

/// The body of a source.
struct LiveBody(LiveSource);

impl PointBody for LiveBody {
    fn data(&mut self, bytes: &[u8], now: Now) -> Result<(), Reply> {
        self.0.data(bytes, now).map_err(|fault| failed(&fault))
    }

    fn wants_more(&mut self, now: Now) -> Result<bool, Reply> {
        self.0.wants_more(now).map_err(|fault| failed(&fault))
    }

    fn end(&mut self, now: Now) -> Reply {
        self.0.release(now, true);
        Reply::text(200, "the stream has ended\n".to_owned()).with("Cache-Control", "no-store")
    }

    fn broken(&mut self, now: Now) {
        self.0.release(now, false);
    }
}

/// Returns the response to a source that ends with a fault.
fn failed(fault: &SourceFault) -> Reply {
    let status = match fault {
        SourceFault::Replaced => 409,
        SourceFault::Stopped => 403,
        SourceFault::Media(_) => 415,
        SourceFault::Publish(_) => 503,
    };
    refusal(status, fault.to_string()).and_close()
}
