//! The handler of channels: parses and authorizes requests. Its only state are incomplete bodies and pending authorization.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use encke_hub::{Draft, Flags, IdempotencyKey, Name, Since};
use encke_io::Done;
use encke_rights::{
    Act, AskClient, AskVerdict, Decision, Denial, Digest, Principal, Question, Share, TokenCache,
};
use encke_server::{
    Exchange, ExchangeKey, Fields, Handler, HandlerContext, JobId, Kept, Mount, Outcome, Piece, Reply,
    Request, Takeover, UpstreamEvent, UpstreamId, WorkerSetup, accept_deflate, is_event_source,
};
use encke_stats::Source;
use encke_wire::method::Method;
use encke_wire::websocket;

use crate::address_rates::{self, TooFast};
use crate::client::{CLIENT_PATH, client};
use crate::command::{ClientCommand, ClientOp, EVENT_BYTES_MAX, EnvelopeError, KEY_BYTES_MAX};
use crate::console;
use crate::draft::{draft, is_type, media};
use crate::form::MessageForm;
use crate::listing::{ListQuery, ListRequest};
use crate::log_out::{self, LogOutOrder, LogOutRequest};
use crate::negotiate::{self, ReadMode, ReadQuery, bad, refusal};
use crate::page;
use crate::plan::PushPlan;
use crate::push_worker::{PublishRequest, PushRequest, PushRequests, PushWorker, Subscription};
use crate::socket;
use crate::subscriber::Start;

mod point;

/// Limit of envelopes in one request.
const BATCH_MAX: usize = 10_000;

/// The metric's label for bodies rejected because incomplete bodies use all their memory.
const CROWDED: &str = "push_incoming";
/// The metric's label for requests that met too many pending authorization requests.
const ASK_FULL: &str = "push_ask";

/// The handler of all channels, mounted at their prefix.
pub(crate) struct Push(pub(crate) Arc<PushPlan>);

impl PushPlan {
    /// Returns the mounts: the channels at their prefix, the client library, and the points.
    pub fn mounts(self: &Arc<Self>) -> Vec<(String, Arc<dyn Mount>)> {
        let push: Arc<dyn Mount> = Arc::new(Push(Arc::clone(self)));
        let mut mounts = vec![(self.prefix.clone(), push), (CLIENT_PATH.to_owned(), Arc::new(client))];
        for point in &self.points {
            let mount = Arc::new(point::PointMount::new(Arc::clone(self), Arc::clone(point)));
            mounts.push((point.prefix().to_owned(), mount));
        }
        mounts
    }
}

impl Mount for Push {
    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        let plan = &self.0;
        let push_worker = open_worker(plan, worker);
        push_worker.reload(Arc::clone(plan));
        push_worker.fanouts = push_worker.counters.fanouts(&plan.classes);
        let push_requests = push_worker.push_requests();
        console::offer_actions(plan, worker);
        worker.explain(console::ExplainedChannels(Arc::clone(plan)));
        Box::new(Pusher::new(Arc::clone(plan), push_requests, context))
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        self.0.sources()
    }
}

/// Returns push on this worker. The first mount opens it.
fn open_worker<'a>(plan: &Arc<PushPlan>, worker: &'a mut WorkerSetup<'_>) -> &'a mut PushWorker {
    worker
        .resident(|worker| PushWorker::new(worker.now(), Arc::clone(plan), worker.number(), worker.workers()))
}

struct Pusher {
    plan: Arc<PushPlan>,
    /// Requests to the worker's [`PushWorker`].
    push_requests: PushRequests,
    context: HandlerContext,
    /// Incomplete bodies: at most one per connection or HTTP/2 stream. Each takes at most `push.message_bytes`, or 16 times
    /// that if it contains envelopes.
    bodies: HashMap<ExchangeKey, Incoming>,
    /// Memory of these bodies in bytes: at most `push.incoming`, or a single body.
    incoming_bytes: usize,
    tokens: TokenCache,
    /// Sends authorization requests, if an application decides.
    asker: Option<AskClient>,
    /// The requests that wait for a verdict, by question. The settings `auth.ask_connections` and `auth.ask_queue` limit the
    /// questions.
    inquiries: HashMap<Digest, Vec<Asking>>,
    /// At the prefix of another feature: its part.
    point: Option<point::Desk>,
}

/// A publish whose body is being read.
struct Incoming {
    exchange: Exchange,
    bytes: Vec<u8>,
    most: usize,
    publish: Intent,
}

/// How a body is published.
enum Intent {
    /// As one message, in each of these channels.
    Message {
        channels: Vec<Name>,
        content_type: Option<Box<str>>,
        event: Option<Box<str>>,
        key: Option<IdempotencyKey>,
        trace: bool,
    },
    /// As envelopes, one per line.
    Envelopes { identity: Principal, publisher: u64 },
}

/// A request that waits for the application's verdict. A request with the same question joins it and sends no second one. At most
/// one request per connection waits.
struct Asking {
    request: Kept,
    exchange: Exchange,
    act: Act,
    channel: Name,
    granted: Granted,
}

/// The acts that the application has allowed for this request.
type Granted = Vec<(Act, Name)>;

/// The reason why a request does not proceed.
enum RequestStop {
    /// This response.
    Reply(Reply),
    /// The application must decide first.
    Ask(Box<Question>, Act, Name),
}

impl From<Reply> for RequestStop {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

impl Pusher {
    fn new(plan: Arc<PushPlan>, push_requests: PushRequests, context: HandlerContext) -> Self {
        Self {
            asker: plan.rights.ask_client(context.clone()),
            plan,
            push_requests,
            context,
            bodies: HashMap::new(),
            incoming_bytes: 0,
            tokens: TokenCache::default(),
            inquiries: HashMap::new(),
            point: None,
        }
    }
}

impl Handler for Pusher {
    fn call(&mut self, request: &Request<'_>, mut exchange: Exchange) -> Outcome {
        let share = self.plan.rights.share(request);
        if request.method() == Method::Options {
            return Outcome::Now(preflight(&share));
        }
        exchange.add_fields(&share.fields());
        let mut exchange = Some(exchange);
        match self.answer(request, &mut exchange, &[]) {
            Ok(outcome) => outcome,
            Err(RequestStop::Reply(reply)) => Outcome::Now(share.onto(reply)),
            Err(RequestStop::Ask(question, act, channel)) => {
                let exchange = exchange.expect("an exchange is kept by an outcome alone");
                let asking = Asking { request: request.keep(), exchange, act, channel, granted: Vec::new() };
                self.inquire(*question, asking);
                self.apply_verdicts();
                Outcome::Later
            }
        }
    }

    fn body(&mut self, key: ExchangeKey, piece: Piece<'_>) {
        if let Some(desk) = &mut self.point {
            return desk.body(key, piece, self.context.now());
        }
        let Some(mut incoming) = self.bodies.remove(&key) else { return };
        self.incoming_bytes -= incoming.bytes.capacity();
        match piece {
            Piece::Data(data) if incoming.bytes.len() + data.len() > incoming.most => {
                let text =
                    format!("the body is larger than {} bytes (see push.message_bytes)", incoming.most);
                incoming.exchange.answer(refusal(413, text).and_close());
            }
            Piece::Data(data) => {
                incoming.bytes.extend_from_slice(data);
                let bytes = self.incoming_bytes + incoming.bytes.capacity();
                if bytes > self.plan.incoming_bytes && self.incoming_bytes > 0 {
                    self.context.refused(CROWDED);
                    return incoming.exchange.answer(crowded().and_close());
                }
                self.incoming_bytes = bytes;
                incoming.exchange.read_more();
                self.bodies.insert(key, incoming);
            }
            Piece::End => self.publish(incoming),
            // The server responds, or the client has disconnected.
            Piece::Broken => {}
        }
    }

    fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        if let Some(asker) = &mut self.asker {
            asker.upstream(id, event);
            self.apply_verdicts();
        }
    }

    fn woken(&mut self) {
        self.point_woken();
    }

    fn offloaded(&mut self, job: JobId, done: Option<Done>) {
        if let Some(asker) = &mut self.asker {
            asker.offloaded(job, done);
            self.apply_verdicts();
        }
    }
}

impl Pusher {
    /// Queues a request for the worker's [`PushWorker`], which executes it in this turn.
    fn enqueue(&self, request: PushRequest) {
        self.push_requests.borrow_mut().push(request);
    }

    /// Responds to a request, or takes the exchange to respond later.
    fn answer(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Option<Exchange>,
        granted: &[(Act, Name)],
    ) -> Result<Outcome, RequestStop> {
        if self.point.is_some() {
            return self.answer_at_point(request, exchange, granted);
        }
        let path = request.path().strip_prefix(self.plan.prefix.as_bytes()).unwrap_or_default();
        let query = match request.method() {
            // A DELETE has its own parameters.
            Method::Delete => ReadQuery::default(),
            _ => ReadQuery::read(request.query())?,
        };
        let identity = self.identify(request)?;
        match request.method() {
            Method::Post | Method::Put => self.accept(request, exchange, path, &query, identity, granted),
            Method::Get | Method::Head if path.is_empty() => self.list(request, exchange, &query, identity),
            Method::Get | Method::Head => self.subscribe(request, exchange, path, &query, &identity, granted),
            Method::Delete => self.delete(request, exchange, path, identity, granted),
            _ => Err(refusal(
                405,
                "unsupported method: read a channel with GET, publish to it with POST".into(),
            )
            .with("Allow", METHODS)
            .into()),
        }
    }

    /// Identifies the client of a request.
    fn identify(&mut self, request: &Request<'_>) -> Result<Principal, RequestStop> {
        if request.is_rerouted() {
            return Ok(self.plan.rights.nobody(&mut self.tokens));
        }
        Ok(self.plan.rights.identify(request, &mut self.tokens).map_err(denied)?)
    }

    /// Lists channels.
    fn list(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Option<Exchange>,
        query: &ReadQuery,
        identity: Principal,
    ) -> Result<Outcome, RequestStop> {
        if negotiate::wish(request, query, 1).is_stream() {
            let text = format!("the path names no channel: subscribe to {}CHANNEL", self.plan.prefix);
            return Err(refusal(404, text).into());
        }
        let query = ListQuery::read(request.query()).map_err(Reply::from)?;
        if !identity.may_anywhere(Act::Manage) {
            return Err(denied(identity.denial_anywhere(Act::Manage)).into());
        }
        let exchange = exchange.take().expect("it was not kept yet");
        self.enqueue(PushRequest::List(ListRequest { exchange, query, identity }));
        Ok(Outcome::Later)
    }

    /// Handles a DELETE: of the messages of channels, or of the subscriptions of a user.
    fn delete(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Option<Exchange>,
        path: &[u8],
        identity: Principal,
        granted: &[(Act, Name)],
    ) -> Result<Outcome, RequestStop> {
        let user = log_out::user_in(request.query())?;
        let channels = match (path, &user) {
            (b"", None) => {
                let text = format!(
                    "the path names no channel: DELETE {0}CHANNEL deletes messages, DELETE {0}?user=NAME logs a user out",
                    self.plan.prefix
                );
                return Err(bad(text).into());
            }
            (b"", Some(_)) => None,
            _ => Some(negotiate::channels(path, self.plan.rules.channels_per_stream)?),
        };
        match &channels {
            Some(channels) => self.permit(request, &identity, Act::Manage, channels, granted)?,
            None if !identity.may_anywhere(Act::Manage) => {
                return Err(denied(identity.denial_anywhere(Act::Manage)).into());
            }
            None => {}
        }
        let exchange = exchange.take().expect("it was not kept yet");
        self.enqueue(match user {
            Some(user) => PushRequest::LogOut(LogOutRequest {
                exchange,
                order: LogOutOrder { user, channels, identity: Some(identity) },
            }),
            None => PushRequest::Forget { exchange, channels: channels.unwrap_or_default() },
        });
        Ok(Outcome::Later)
    }

    /// Checks that an act is allowed on all channels.
    ///
    /// # Errors
    /// A response, or a question to the application.
    fn permit(
        &mut self,
        request: &Request<'_>,
        identity: &Principal,
        act: Act,
        channels: &[Name],
        granted: &[(Act, Name)],
    ) -> Result<(), RequestStop> {
        if act == Act::Subscribe && request.is_rerouted() {
            // An application has decided, by X-Accel-Redirect.
            return Ok(());
        }
        for channel in channels {
            if granted.iter().any(|(other, name)| *other == act && name == channel) {
                continue;
            }
            match self.plan.rights.decide(identity, act, channel, request, &mut self.tokens) {
                Decision::Allowed => {}
                Decision::Denied(denial) => return Err(denied(denial).into()),
                Decision::Ask(question) => return Err(RequestStop::Ask(question, act, channel.clone())),
            }
        }
        Ok(())
    }

    /// Sends a question to the application, or joins the same question in progress.
    fn inquire(&mut self, question: Question, asking: Asking) {
        match self.inquiries.entry(question.digest()) {
            Entry::Occupied(mut inquiry) => inquiry.get_mut().push(asking),
            Entry::Vacant(place) => {
                if self.asker.as_mut().is_some_and(|asker| asker.ask(question)) {
                    place.insert(vec![asking]);
                } else {
                    self.context.refused(ASK_FULL);
                    let text = "too many authorization requests (auth.ask) are pending";
                    answer_later(self.asker.as_mut(), asking, text);
                }
            }
        }
    }

    /// Applies the verdicts of the application to the requests that wait for them.
    fn apply_verdicts(&mut self) {
        while let Some((question, verdict)) = self.asker.as_mut().and_then(AskClient::next_verdict) {
            if let AskVerdict::Unanswered(error) = &verdict {
                encke_settings::notice::report(encke_settings::Level::Warn, error);
            }
            self.tokens.learn(&question, &verdict, self.context.now().unix_s());
            for asking in self.inquiries.remove(&question.digest()).unwrap_or_default() {
                match &verdict {
                    AskVerdict::Allowed { .. } => self.go_on(asking),
                    AskVerdict::Denied { denial, .. } => asking.exchange.answer(denied(denial.clone())),
                    AskVerdict::Unanswered(_) => {
                        let text = "the authorization endpoint (auth.ask) did not respond";
                        answer_later(self.asker.as_mut(), asking, text);
                    }
                }
            }
        }
    }

    /// Continues a request that the application has allowed.
    fn go_on(&mut self, asking: Asking) {
        let Asking { request, exchange, act, channel, mut granted } = asking;
        granted.push((act, channel));
        let view = request.view();
        let mut exchange = Some(exchange);
        let outcome = self.answer(&view, &mut exchange, &granted);
        let Some(exchange) = exchange else { return };
        match outcome {
            Ok(Outcome::Now(reply)) => exchange.answer(reply),
            Ok(Outcome::Takeover(takeover)) => exchange.take_over(takeover),
            // The exchange was taken.
            Ok(Outcome::Later) => {}
            Err(RequestStop::Reply(reply)) => exchange.answer(reply),
            Err(RequestStop::Ask(question, act, channel)) => {
                self.inquire(*question, Asking { request, exchange, act, channel, granted });
            }
        }
    }

    /// Accepts a POST or PUT: reads the body, then publishes it.
    fn accept(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Option<Exchange>,
        path: &[u8],
        query: &ReadQuery,
        identity: Principal,
        granted: &[(Act, Name)],
    ) -> Result<Outcome, RequestStop> {
        let content_type = content_type(request)?;
        let publisher = identity.publisher(request);
        let batch = content_type.as_deref().is_some_and(|given| media(given) == "application/x-ndjson");
        let (publish, most) = if path.is_empty() && batch {
            let most = self.plan.rules.message_bytes.saturating_mul(16);
            (Intent::Envelopes { identity, publisher }, most)
        } else if path.is_empty() {
            let text = format!(
                "the path names no channel: publish to {0}CHANNEL, or envelopes as application/x-ndjson to {0}",
                self.plan.prefix
            );
            return Err(bad(text).into());
        } else if batch {
            let text = format!(
                "application/x-ndjson holds envelopes, which name their channels: publish them to {0}, or one message to \
                 {0}CHANNEL with another Content-Type",
                self.plan.prefix
            );
            return Err(refusal(415, text).into());
        } else {
            let channels = negotiate::channels(path, self.plan.rules.channels_per_stream)?;
            self.permit(request, &identity, Act::Publish, &channels, granted)?;
            self.pace(&identity, publisher, channels.len())?;
            let key = field_text(request, "idempotency-key", KEY_BYTES_MAX)?;
            let key = key.map(|key| IdempotencyKey { publisher, key });
            let event = field_text(request, "encke-event", EVENT_BYTES_MAX)?;
            let intent = Intent::Message { channels, content_type, event, key, trace: query.trace };
            (intent, self.plan.rules.message_bytes)
        };
        let exchange = exchange.take().expect("it was not kept yet");
        exchange.read_more();
        self.bodies.insert(exchange.key(), Incoming { exchange, bytes: Vec::new(), most, publish });
        Ok(Outcome::Later)
    }

    /// Checks the rate of a publisher. Only clients without a token have a limit.
    fn pace(&self, identity: &Principal, publisher: u64, messages: usize) -> Result<(), Reply> {
        let rates = self.plan.anonymous_rates.as_ref().filter(|_| identity.publishes_anonymously());
        let Some(rates) = rates else { return Ok(()) };
        rates.admit(publisher, messages as u64, self.context.now().mono_ns).map_err(|too_fast| {
            self.context.refused(address_rates::TOO_FAST);
            rate_limited(too_fast)
        })
    }

    /// Publishes a complete body.
    fn publish(&mut self, incoming: Incoming) {
        let Incoming { exchange, bytes, publish, .. } = incoming;
        let drafts = match publish {
            Intent::Message { channels, content_type, event, key, trace } => {
                let (last, others) = channels.split_last().expect("a path names a channel");
                let draft = |channel: &Name, data: Vec<u8>| Draft {
                    channel: channel.clone(),
                    data: data.into_boxed_slice(),
                    content_type: content_type.clone(),
                    event: event.clone(),
                    flags: Flags::default(),
                    key: key.clone(),
                };
                let mut drafts: Vec<Draft> =
                    others.iter().map(|channel| draft(channel, bytes.clone())).collect();
                drafts.push(draft(last, bytes));
                return self.enqueue(PushRequest::Publish(PublishRequest {
                    exchange,
                    drafts,
                    trace,
                    lines: false,
                }));
            }
            Intent::Envelopes { identity, publisher } => drafts(&bytes, &identity, publisher)
                .and_then(|drafts| self.pace(&identity, publisher, drafts.len()).map(|()| drafts)),
        };
        match drafts {
            Ok(drafts) => {
                self.enqueue(PushRequest::Publish(PublishRequest {
                    exchange,
                    drafts,
                    trace: false,
                    lines: true,
                }));
            }
            Err(reply) => exchange.answer(reply),
        }
    }

    /// Handles a GET or HEAD.
    fn subscribe(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Option<Exchange>,
        path: &[u8],
        query: &ReadQuery,
        identity: &Principal,
        granted: &[(Act, Name)],
    ) -> Result<Outcome, RequestStop> {
        let channels = negotiate::channels(path, self.plan.rules.channels_per_stream)?;
        let wish = negotiate::wish(request, query, channels.len());
        self.permit(request, identity, Act::Subscribe, &channels, granted)?;
        let member = match (&identity.name, query.name.as_deref()) {
            (Some(subject), _) => Some(Arc::clone(subject)),
            (None, Some(name)) => Some(Arc::from(name)),
            (None, None) => None,
        };
        let share = self.plan.rights.share(request);
        match wish {
            ReadMode::Info => {
                let [channel] = &channels[..] else {
                    return Err(bad("?info supports only one channel".into()).into());
                };
                let exchange = exchange.take().expect("it was not kept yet");
                let members = identity.may(Act::Presence, channel);
                self.enqueue(PushRequest::Info { exchange, channel: channel.clone(), members });
                Ok(Outcome::Later)
            }
            ReadMode::Page => {
                Ok(Outcome::Now(page::page(include_str!("page.html"), "frame-ancestors 'none'")))
            }
            ReadMode::Messages(kind) => {
                let poll = matches!(kind, MessageForm::Raw | MessageForm::Json);
                let subscription = Subscription {
                    since: negotiate::since(request, query, poll),
                    wait_s: query.wait_s.unwrap_or(negotiate::WAIT_S),
                    member,
                    share,
                    ..self.subscription(request, identity, channels, kind)
                };
                Ok(Outcome::Takeover(Takeover::new(Start::Messages(subscription))))
            }
            ReadMode::Socket => {
                let since = negotiate::since(request, query, false);
                let socket = WishedSocket { channels, since, member, only_payloads: false };
                self.upgrade(request, identity, socket).map(Outcome::Takeover)
            }
        }
    }

    /// Returns a subscription from now on, without a member, that no page of another origin may read.
    fn subscription(
        &self,
        request: &Request<'_>,
        identity: &Principal,
        channels: Vec<Name>,
        kind: MessageForm,
    ) -> Subscription {
        Subscription {
            channels,
            since: Since::Now,
            kind,
            wait_s: 0,
            member: None,
            share: Share::Nobody,
            head: None,
            relay: None,
            identity: identity.is_authenticated().then(|| identity.clone()),
            rights_serial: self.plan.rights.serial(),
            client: encke_rights::client_number(request.origin().client),
            limited: !identity.is_unlimited(),
        }
    }

    /// Passes a WebSocket to push.
    fn upgrade(
        &self,
        request: &Request<'_>,
        identity: &Principal,
        WishedSocket { channels, since, member, only_payloads }: WishedSocket,
    ) -> Result<Takeover, RequestStop> {
        let handshake = websocket::WebSocketHandshake::check(request.method(), request.version(), |name| {
            request.all(name)
        })
        .map_err(|error| {
            refusal(error.status(), error.to_string())
                .with("Sec-WebSocket-Version", websocket::VERSION)
                .with("Upgrade", "websocket")
        })?;
        let envelopes = !only_payloads && handshake.protocols().any(|protocol| protocol == b"encke.v1");
        let kind = if envelopes { MessageForm::Envelope } else { MessageForm::Payload };
        let mut fields = Fields::new();
        let mut lines = Vec::new();
        handshake.put_fields(&mut lines, envelopes.then_some("encke.v1"));
        fields.push_lines(&lines);
        // CORS does not apply to WebSockets: the server checks the origin (RFC 6455 §10.2).
        let subscription =
            Subscription { since, member, ..self.subscription(request, identity, channels, kind) };
        let speaker = socket::SocketPublisher {
            identity: identity.clone(),
            publisher: identity.publisher(request),
            channel: if envelopes { None } else { subscription.channels.first().cloned() },
        };
        // Media is compressed already.
        let deflate = self.plan.compress && !only_payloads && accept_deflate(request, &mut fields);
        let start = Start::Socket { fields, deflate, speaker, subscription };
        Ok(Takeover::new(start))
    }
}

/// The parameters of a WebSocket.
struct WishedSocket {
    channels: Vec<Name>,
    since: Since,
    member: Option<Arc<str>>,
    /// Whether only plain payloads are sent, whatever sub-protocol the client offers.
    only_payloads: bool,
}

/// The methods that a channel supports.
const METHODS: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS";

/// Returns the response to a CORS preflight (Fetch standard). Whether the request itself is allowed is decided when it arrives.
fn preflight(share: &Share) -> Reply {
    let names = "accept, authorization, cache-control, content-type, encke-event, idempotency-key, if-match, if-modified-since, \
                 if-none-match, last-event-id, traceparent, tracestate, x-request-id, x-requested-with";
    let mut reply = Reply::new(204).with("Allow", METHODS);
    reply.fields.extend(&share.preflight_fields("GET, HEAD, POST, PUT, DELETE", names));
    reply
}

/// The response to an address that publishes too fast.
fn rate_limited(too_fast: TooFast) -> Reply {
    refusal(429, too_fast.to_string()).with("Retry-After", too_fast.retry_after_s().to_string())
}

/// The response while incomplete bodies use all their memory.
fn crowded() -> Reply {
    let text = "too many incomplete messages (push.incoming): retry in a second";
    refusal(503, text.into()).with("Retry-After", "1")
}

/// Refuses a request without a verdict. The client may try again at the pace of the application.
fn answer_later(asker: Option<&mut AskClient>, asking: Asking, text: &str) {
    let retry_ms = asker.map_or(2_000, AskClient::retry_ms);
    let seconds = retry_ms.div_ceil(1_000);
    let reply = refusal(503, format!("{text}: retry in {seconds} s"));
    let is_event_source = asking.act == Act::Subscribe && is_event_source(&asking.request.view());
    asking.exchange.answer(if is_event_source {
        reply.for_event_source(retry_ms)
    } else {
        reply.with("Retry-After", seconds.to_string())
    });
}

/// Parses a body of envelopes.
///
/// # Errors
/// The response to the first invalid or forbidden envelope.
fn drafts(bytes: &[u8], identity: &Principal, publisher: u64) -> Result<Vec<Draft>, Reply> {
    let mut drafts = Vec::new();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let place = number + 1;
        if drafts.len() == BATCH_MAX {
            return Err(refusal(413, format!("line {place}: at most {BATCH_MAX} envelopes per request")));
        }
        let draft = ClientCommand::read(line)
            .and_then(|said| match said.op {
                ClientOp::Publish => draft(said, publisher),
                other => Err(EnvelopeError::OnlyPublish(other.name())),
            })
            .map_err(|error| bad(format!("line {place}: {error}; nothing was published")))?;
        if !identity.may(Act::Publish, &draft.channel) {
            let denial = identity.denial(Act::Publish, &draft.channel);
            return Err(denied(denial.map(|text| format!("line {place}: {text}; nothing was published"))));
        }
        drafts.push(draft);
    }
    Ok(drafts)
}

fn denied(denial: Denial) -> Reply {
    let status = denial.status();
    let reply = refusal(status, denial.text().to_owned()).because(denial.reason());
    if status == 401 { reply.with("WWW-Authenticate", "Bearer") } else { reply }
}

/// Returns the media type of a body. The default type of curl and of forms is ignored, because it does not describe the body.
fn content_type(request: &Request<'_>) -> Result<Option<Box<str>>, Reply> {
    let Some(given) = request.known(encke_wire::field::Known::ContentType) else { return Ok(None) };
    let given = std::str::from_utf8(given).ok().map(str::trim).filter(|given| is_type(given));
    let given = given.ok_or_else(|| bad("invalid Content-Type: expected a media type".into()))?;
    Ok((media(given) != "application/x-www-form-urlencoded").then(|| given.into()))
}

/// Returns a field's value as trimmed text; `None` if it is absent or blank.
fn field_text(request: &Request<'_>, name: &str, most: usize) -> Result<Option<Box<str>>, Reply> {
    let Some(value) = request.field(name) else { return Ok(None) };
    match std::str::from_utf8(value) {
        Ok(text) if text.len() <= most && !text.chars().any(char::is_control) => {
            let text = text.trim();
            Ok((!text.is_empty()).then(|| text.into()))
        }
        _ => Err(bad(format!(
            "invalid {name}: expected at most {most} bytes of UTF-8 without control characters"
        ))),
    }
}
