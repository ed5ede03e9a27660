//! The handler of channels at the prefix of another feature ([`ChannelPoint`]).

use std::collections::HashMap;
use std::sync::Arc;

use encke_hub::{Name, Since};
use encke_io::Now;
use encke_rights::{Act, Principal};
use encke_server::{
    Exchange, ExchangeKey, Handler, HandlerContext, Mount, Outcome, Piece, Reply, Request, Takeover,
    WorkerSetup,
};
use encke_stats::Source;
use encke_wire::field::Known;
use encke_wire::http1::Framing;
use encke_wire::method::Method;
use encke_wire::target::decode_escapes;

use super::{Asking, Pusher, RequestStop, WishedSocket, denied, open_worker};
use crate::channel_point::{
    ChannelPoint, PointHandler, PointRead, PointStream, PointUpload, PointWaiting, names_of,
};
use crate::form::MessageForm;
use crate::negotiate::{bad, refusal, shown};
use crate::plan::PushPlan;
use crate::push_worker::Subscription;
use crate::subscriber::Start;

/// The methods at the prefix of a point.
const POINT_METHODS: &str = "GET, HEAD, POST, PUT, OPTIONS";

/// A point, mounted at its prefix.
pub(super) struct PointMount {
    plan: Arc<PushPlan>,
    point: Arc<dyn ChannelPoint>,
}

impl PointMount {
    pub(super) fn new(plan: Arc<PushPlan>, point: Arc<dyn ChannelPoint>) -> Self {
        Self { plan, point }
    }
}

impl Mount for PointMount {
    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        // The resident opened last takes over the connections of the mount.
        let part = self.point.open(context.clone(), worker);
        let push_requests = open_worker(&self.plan, worker).push_requests();
        let mut pusher = Pusher::new(Arc::clone(&self.plan), push_requests, context);
        pusher.point =
            Some(Desk { point: Arc::clone(&self.point), part, uploads: HashMap::new(), waiting: Vec::new() });
        Box::new(pusher)
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        self.point.sources()
    }
}

/// A point on one worker, and the bodies that it reads.
pub(super) struct Desk {
    point: Arc<dyn ChannelPoint>,
    part: Box<dyn PointHandler>,
    uploads: HashMap<ExchangeKey, PointUpload>,
    waiting: Vec<PointWaiting>,
}

impl Desk {
    /// A piece of a body has arrived.
    pub(super) fn body(&mut self, key: ExchangeKey, piece: Piece<'_>, now: Now) {
        let Some(mut upload) = self.uploads.remove(&key) else { return };
        let taken = match piece {
            Piece::Data(bytes) => upload.body.data(bytes, now),
            Piece::End => Err(upload.body.end(now)),
            Piece::Broken => return upload.body.broken(now),
        };
        self.go_on(upload, taken, now);
    }

    /// Requests the next pieces that are wanted, and ends the bodies that have failed.
    fn bodies_woken(&mut self, now: Now) {
        let keys: Vec<ExchangeKey> = self.uploads.keys().copied().collect();
        for key in keys {
            let Some(mut upload) = self.uploads.remove(&key) else { continue };
            match upload.body.wants_more(now) {
                Ok(wanted) => {
                    // A body that does not rest has requested its next piece already.
                    if upload.rests && wanted {
                        upload.rests = false;
                        upload.exchange.read_more();
                    }
                    self.uploads.insert(key, upload);
                }
                Err(reply) => upload.exchange.answer(reply.amid_endless_body()),
            }
        }
    }

    /// Requests the next piece if it is wanted, or responds.
    fn go_on(&mut self, mut upload: PointUpload, taken: Result<(), Reply>, now: Now) {
        match taken.and_then(|()| upload.body.wants_more(now)) {
            Ok(wanted) => {
                upload.rests = !wanted;
                if wanted {
                    upload.exchange.read_more();
                }
                self.uploads.insert(upload.exchange.key(), upload);
            }
            Err(reply) => upload.exchange.answer(reply.amid_endless_body()),
        }
    }
}

impl Pusher {
    /// Continues bodies and reads that waited.
    pub(super) fn point_woken(&mut self) {
        let now = self.context.now();
        let Some(desk) = &mut self.point else { return };
        desk.bodies_woken(now);
        for PointWaiting { request, exchange, granted } in std::mem::take(&mut desk.waiting) {
            let mut exchange = Some(exchange);
            let outcome = self.answer_at_point(&request.view(), &mut exchange, &granted);
            let Some(exchange) = exchange else { continue };
            match outcome {
                Ok(Outcome::Now(reply)) | Err(RequestStop::Reply(reply)) => exchange.answer(reply),
                Ok(Outcome::Takeover(takeover)) => exchange.take_over(takeover),
                // The exchange was taken.
                Ok(Outcome::Later) => {}
                Err(RequestStop::Ask(question, act, channel)) => {
                    self.inquire(*question, Asking { request, exchange, act, channel, granted });
                }
            }
        }
        self.apply_verdicts();
    }

    /// Responds to a request at a point, or takes the exchange to respond later.
    pub(super) fn answer_at_point(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Option<Exchange>,
        granted: &[(Act, Name)],
    ) -> Result<Outcome, RequestStop> {
        let is_write = matches!(request.method(), Method::Post | Method::Put);
        if is_write && !request.is_rerouted() {
            let identified = self.plan.rights.identify_program(request, &mut self.tokens).map_err(denied);
            return identified
                .map_err(RequestStop::Reply)
                .and_then(|identity| self.dispatch(request, exchange, identity, granted))
                .map_err(|stop| to_source(stop, request));
        }
        let identity = self.identify(request)?;
        self.dispatch(request, exchange, identity, granted)
    }

    fn dispatch(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Option<Exchange>,
        identity: Principal,
        granted: &[(Act, Name)],
    ) -> Result<Outcome, RequestStop> {
        let Some(Desk { point, .. }) = &self.point else { return Ok(Outcome::Now(Reply::error(404))) };
        let prefix = point.prefix();
        let path = request.path().strip_prefix(prefix.as_bytes()).unwrap_or_default();
        let is_read = matches!(request.method(), Method::Get | Method::Head);
        let is_write = matches!(request.method(), Method::Post | Method::Put);
        if path.is_empty() && is_read {
            let may_read = |channel: &Name| identity.may(Act::Subscribe, channel);
            let reply = self.point.as_mut().map(|desk| desk.part.list(request, &may_read));
            return Err(reply.unwrap_or_else(|| Reply::error(404)).into());
        }
        if path.is_empty() {
            return Err(bad(format!("the path names no channel: send a source to {prefix}NAME")).into());
        }
        let channel = channel_at(&**point, path)?;
        if is_read {
            return self.read_at_point(request, exchange, &identity, channel, granted);
        }
        if is_write {
            return self.write_at_point(request, exchange, &identity, channel, granted);
        }
        Err(refusal(
            405,
            "unsupported method: read a channel with GET, send a source with PUT or POST".into(),
        )
        .with("Allow", POINT_METHODS)
        .into())
    }

    fn read_at_point(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Option<Exchange>,
        identity: &Principal,
        channel: Name,
        granted: &[(Act, Name)],
    ) -> Result<Outcome, RequestStop> {
        let channels = vec![channel];
        self.permit(request, identity, Act::Subscribe, &channels, granted)?;
        let Some((desk, channel)) = self.point.as_mut().zip(channels.first()) else {
            return Ok(Outcome::Now(Reply::error(404)));
        };
        let PointStream { fields, relay, until_end } = match desk.part.read(request, channel) {
            PointRead::Reply(reply) => return Err(reply.into()),
            PointRead::Stream(stream) => stream,
            PointRead::Wait => {
                let exchange = exchange.take().expect("it was not kept yet");
                desk.waiting.push(PointWaiting {
                    request: request.keep(),
                    exchange,
                    granted: granted.to_vec(),
                });
                return Ok(Outcome::Later);
            }
        };
        let kept = |takeover: Takeover| match until_end {
            Some(token) => takeover.until_end(token),
            None => takeover,
        };
        let member = identity.name.clone();
        if request.all(Known::Upgrade).any(|value| value.eq_ignore_ascii_case(b"websocket")) {
            let socket = WishedSocket { channels, since: Since::Key, member, only_payloads: true };
            return Ok(Outcome::Takeover(kept(self.upgrade(request, identity, socket)?)));
        }
        let subscription = Subscription {
            since: Since::Key,
            member,
            share: self.plan.rights.share(request),
            head: Some(Box::new(fields)),
            relay,
            ..self.subscription(request, identity, channels, MessageForm::Media)
        };
        Ok(Outcome::Takeover(kept(Takeover::new(Start::Messages(subscription)))))
    }

    fn write_at_point(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Option<Exchange>,
        identity: &Principal,
        channel: Name,
        granted: &[(Act, Name)],
    ) -> Result<Outcome, RequestStop> {
        self.permit(request, identity, Act::Publish, std::slice::from_ref(&channel), granted)?;
        let publisher = identity.publisher(request);
        let now = self.context.now();
        let Some(desk) = &mut self.point else { return Ok(Outcome::Now(Reply::error(404))) };
        let body = desk.part.write(request, channel, publisher)?;
        let exchange = exchange.take().expect("it was not kept yet");
        exchange.allow_endless_body();
        desk.go_on(PointUpload { exchange, body, rests: false }, Ok(()), now);
        Ok(Outcome::Later)
    }
}

/// Completes the response to a source that is rejected: a 401 has the challenge that programs with a user and a password understand.
fn to_source(stop: RequestStop, request: &Request<'_>) -> RequestStop {
    let RequestStop::Reply(mut reply) = stop else { return stop };
    if reply.status == 401 {
        reply = reply.with("WWW-Authenticate", "Basic realm=\"live streams\"");
    }
    RequestStop::Reply(if request.framing() == Framing::Chunked { reply.amid_endless_body() } else { reply })
}

/// Parses the channel in a path after the prefix of a point.
///
/// # Errors
/// A 400: the name is invalid.
fn channel_at(point: &dyn ChannelPoint, path: &[u8]) -> Result<Name, Reply> {
    let wrong = |error: &dyn std::fmt::Display| {
        bad(format!("channel {:?}: {error}", shown(&String::from_utf8_lossy(path))))
    };
    let decoded = decode_escapes(path).map_err(|error| wrong(&error))?;
    let name = [names_of(point).as_bytes(), &decoded].concat();
    Name::parse(&name).map_err(|error| wrong(&error))
}
