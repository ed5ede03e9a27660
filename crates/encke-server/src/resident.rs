//! Residents: features whose connections outlive a request, such as WebSockets, subscribers, and tunnels.
//!
//! ```text
//! Handler::call ─► Outcome::Takeover ─► enter(slot, start)
//!                                         │
//!        bytes ─► received      sent ◄────┤ slot.put_head(), slot.out(), slot.send()
//!     deadline ─► overdue      ended ◄────┤ the peer has ended its side
//!                                         │
//!                     slot.respond ◄──────┼──────► slot.close ─► closed
//!                     (HTTP continues)
//! once a worker's turn:  begin ─► slice, sliced ─► … ─► finish      message, offloaded, each_second, drain
//! ```
//! **The resident owns the protocol, the engine owns bytes and time.** A resident is opened once per worker by
//! [`Mount::open`](crate::Mount::open) and lives as long as the worker; a reload reaches it through the same call. The resident
//! owns its state of a connection. Two words of it are in the connection's slot, where the engine keeps them.
//!
//! A call to a resident never causes another call to the same resident. If a call closes a connection, [`Resident::closed`]
//! follows after it has returned.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use encke_io::{Done, Job, JobLane, Now, Op, Peer, Reactor, Segment, Token, Tuning};
use encke_wire::date::DATE_BYTES;

use crate::close::CloseReason;
use crate::conn::{
    Conn, ConnPhase, Duty, ENDING, HELD, LAST, LINGER, NONE, OUTLASTS, PAUSED, PEER_ENDED, RateWindow,
    SENDING,
};
use crate::conns::is_stream;
use crate::core::Core;
use crate::framing::{ContentLength, FramingKind};
use crate::handler::{HandlerContext, JobId};
use crate::inbox::{Inbox, WorkerMessage};
use crate::inspect::ConnDescription;
use crate::log::{LogEntry, LogNotes, WaitingEntry};
use crate::operate::{Actions, Explain, FeatureVerbs, Offers, Verb};
use crate::outgoing::{UpstreamEvent, UpstreamId};
use crate::record::Asked;
use crate::reply::{Fields, Reply};
use crate::residents::Residents;
use crate::spread::Farewells;
use crate::transport::MaybeTls;

/// Memory of a connection on its worker, in bytes: its slot, its entry in the reactor (16 bytes, 20 under io_uring), and its
/// entry in the timer wheel.
pub const CONNECTION_BYTES: usize = size_of::<Conn>() + 20 + 12;

/// Keeps connections on one worker after their requests.
pub trait Resident: Any {
    /// A request has become a connection of this resident. The resident responds with [`Slot::respond`], or begins a response
    /// with [`Slot::put_head`], now or later. `start` is the value that the handler passed in [`Takeover`](crate::Takeover).
    fn enter(&mut self, slot: &mut Slot<'_>, asked: Asked, start: Box<dyn Any + Send>);

    /// Bytes have arrived, and no send is in flight. Returns the number of bytes used. The engine keeps the rest and stops
    /// receiving until [`Slot::take_input`].
    fn received(&mut self, _slot: &mut Slot<'_>, _bytes: &mut [u8]) -> usize {
        0
    }

    /// Whether [`Resident::received`] is also called during a send, for protocols in which neither direction waits for the
    /// other. Such a call must not append to the connection's own output.
    fn is_duplex(&self) -> bool {
        false
    }

    /// All output has been sent.
    fn sent(&mut self, slot: &mut Slot<'_>);

    /// The client's connection holds as many unsent bytes as it may (`limits.unsent`): the resident must stop reading content for this
    /// slot until [`Resident::writable`]. Called after [`Slot::await_room`].
    fn crowded(&mut self, _slot: &mut Slot<'_>) {}

    /// The connection has room again.
    fn writable(&mut self, _slot: &mut Slot<'_>) {}

    /// The peer has ended its side of the connection. The engine closes the connection once its last bytes are used, unless
    /// [`Slot::outlast`] was called.
    fn ended(&mut self, _slot: &mut Slot<'_>) {}

    /// The deadline has passed, and no send is in flight.
    fn overdue(&mut self, slot: &mut Slot<'_>);

    /// A connection has closed, for any reason.
    fn closed(&mut self, _gone: Gone) {}

    /// A message from a [`ResidentMailbox`].
    fn message(&mut self, _engine: &mut Engine<'_>, _message: Box<dyn Any + Send>) {}

    /// A job of [`Engine::offload`] has ended; `None` if it was rejected (busy) or has panicked.
    fn offloaded(&mut self, _engine: &mut Engine<'_>, _job: JobId, _done: Option<Done>) {}

    /// An event of a connection that a context of this resident ([`Engine::context`], [`Slot::context`]) has opened.
    fn upstream(&mut self, _engine: &mut Engine<'_>, _id: UpstreamId, _event: UpstreamEvent<'_>) {}

    /// All workers have started. `_mailboxes` contains this resident's mailbox on each worker, by number.
    fn start(&mut self, _mailboxes: Arc<[ResidentMailbox]>) {}

    /// When the resident needs a turn, in nanoseconds of the monotonic clock; 0 means at once.
    fn due_ns(&self) -> Option<u64> {
        None
    }

    /// The resident's turn begins.
    fn begin(&mut self, _engine: &mut Engine<'_>) {}

    /// A part of the resident's turn, with at most `_sends` sends. Returns whether there is more to do.
    fn slice(&mut self, _engine: &mut Engine<'_>, _sends: usize) -> bool {
        false
    }

    /// The sends of the slice were submitted at `_now`. `_more` is the result of [`Resident::slice`].
    fn sliced(&mut self, _engine: &mut Engine<'_>, _now: Now, _more: bool) {}

    /// The resident's turn ends.
    fn finish(&mut self, _engine: &mut Engine<'_>, _kernel: &dyn Kernel) {}

    /// Called once in each second in which the worker has a turn. An idle worker is not woken for it, so nothing that others
    /// decide by may depend on it.
    fn each_second(&mut self, _engine: &mut Engine<'_>, _kernel: &dyn Kernel) {}

    /// A drain begins: the resident closes its connections one by one within `_time_ns`, by [`Engine::farewells`]. The
    /// listeners still accept, and new connections of the resident end soon, too.
    fn drain(&mut self, _engine: &mut Engine<'_>, _time_ns: u64) {}

    /// Whether the worker may stop once it has no connections. `_late`: the time of the drain has expired.
    fn may_end(&self, _late: bool) -> bool {
        true
    }

    /// The worker stops.
    fn end(&mut self, _now: Now) {}

    /// Describes a connection for the operator's list of connections. Called only while a list is requested.
    fn describe(&mut self, _slot: &mut Slot<'_>) -> ConnDescription {
        ConnDescription::default()
    }

    /// Whether the connections carry the bytes of another protocol, between the client and another server.
    fn is_tunnel(&self) -> bool {
        false
    }

    /// Returns the state that another process needs to continue a connection; `None` if the connection is busy. The connection
    /// stays open.
    fn park(&mut self, _slot: &mut Slot<'_>) -> Option<Vec<u8>> {
        None
    }

    /// Continues a connection from the state that [`Resident::park`] returned. Returns false if that is not possible.
    fn unpark(&mut self, _slot: &mut Slot<'_>, _parked: &[u8]) -> bool {
        false
    }
}

/// A closed connection, with the two words that its resident kept in its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone {
    /// The connection.
    pub token: Token,
    /// See [`Slot::word`].
    pub word: u32,
    /// See [`Slot::form`].
    pub form: u8,
}

/// Information of the kernel about a connection's output.
pub trait Kernel {
    /// Bytes that the peer has not acknowledged.
    fn unacknowledged(&self, token: Token) -> u64;
    /// Bytes of kernel memory for the connection's output, if the system reports them.
    fn buffered(&self, token: Token) -> Option<u64>;
}

impl<R: Reactor> Kernel for R {
    fn unacknowledged(&self, token: Token) -> u64 {
        Reactor::unacknowledged(self, token)
    }

    fn buffered(&self, token: Token) -> Option<u64> {
        Reactor::buffered(self, token)
    }
}

/// A handle that sends messages to a resident from any thread.
#[derive(Clone)]
pub struct ResidentMailbox {
    link: Arc<Inbox>,
    seat: u8,
}

impl ResidentMailbox {
    /// Sends a message to [`Resident::message`].
    pub fn send(&self, message: impl Any + Send) {
        self.link.send(WorkerMessage::Resident(self.seat, Box::new(message)));
    }
}

/// A worker's interface to a mount or guard that it opens.
pub struct WorkerSetup<'a> {
    pub(crate) residents: &'a mut Residents,
    pub(crate) now: Now,
    pub(crate) number: usize,
    pub(crate) workers: usize,
    /// The seat of the mount's resident, once opened.
    pub(crate) seat: Option<u8>,
    pub(crate) offers: Offers,
}

#[cfg(any(test, feature = "testing"))]
impl WorkerSetup<'_> {
    /// Calls `open` with the setup of a single worker.
    pub(crate) fn alone<T>(now: Now, open: impl FnOnce(&mut WorkerSetup<'_>) -> T) -> T {
        let mut residents = Residents::default();
        let offers = Offers::default();
        open(&mut WorkerSetup { residents: &mut residents, now, number: 0, workers: 1, seat: None, offers })
    }
}

impl WorkerSetup<'_> {
    /// Returns this worker's resident of type `R`, which takes over connections of the mount. A worker has one resident per
    /// type: the first call opens it, and later calls, also after a reload, return it.
    pub fn resident<R: Resident>(&mut self, open: impl FnOnce(&Self) -> R) -> &mut R {
        let mut opened = None;
        if !self.residents.iter().any(|resident| (resident as &dyn Any).is::<R>()) {
            opened = Some(open(self));
        }
        let (seat, resident) = self.residents.of_type(|| opened.expect("opened if there is none"));
        self.seat = Some(seat);
        resident
    }

    /// Offers actions of a feature to an operator.
    pub fn actions(&mut self, feature: &'static str, verbs: Vec<Verb>, actions: impl Actions + 'static) {
        self.offers.actions.push((FeatureVerbs { feature, verbs }, Box::new(actions)));
    }

    /// Explains the rules of the mount point, or of the guard.
    pub fn explain(&mut self, explain: impl Explain + 'static) {
        self.offers.explain = Some(Box::new(explain));
    }

    /// Takes the explanation that a mount below this one has offered, to make it a part of the own one.
    pub fn take_explain(&mut self) -> Option<Box<dyn Explain>> {
        self.offers.explain.take()
    }

    /// Start of the worker's current turn.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Number of the worker, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Number of workers of the server.
    pub fn workers(&self) -> usize {
        self.workers
    }
}

/// A resident's access to its worker.
pub struct Engine<'a> {
    core: &'a mut Core,
    seat: u8,
}

impl Engine<'_> {
    /// Start of the worker's current turn.
    pub fn now(&self) -> Now {
        self.core.now
    }

    /// The current second, formatted for a `Date` field.
    pub fn date(&self) -> &[u8; DATE_BYTES] {
        self.core.date.bytes()
    }

    /// Returns a connection of this resident; `None` if it has closed or belongs to another resident.
    #[inline]
    pub fn slot(&mut self, token: Token) -> Option<Slot<'_>> {
        let seat = self.seat;
        let conn = self.core.conn(token)?;
        (conn.duty.seat() == Some(seat)).then_some(Slot { core: self.core, token, seat })
    }

    /// Number of slots for connections of any kind.
    pub fn places(&self) -> usize {
        self.core.conns.len()
    }

    /// Returns the connection in a slot, if it belongs to this resident.
    pub fn slot_at(&mut self, place: usize) -> Option<Slot<'_>> {
        let index = self.core.conns.place(place);
        let token = Token { index, generation: self.core.conns[index as usize].generation };
        self.slot(token)
    }

    /// Returns the id under which the operator's lists and actions know a connection.
    pub fn connection_id(&self, token: Token) -> String {
        self.core.connection_id(token)
    }

    /// Returns the schedule by which the resident ends its connections in a drain of `time_ns`, at
    /// [`ConnLimits::drain_rate`](crate::ConnLimits::drain_rate) for all streams of the server.
    pub fn farewells(&self, time_ns: u64) -> Farewells {
        let core = &*self.core;
        Farewells::new(core.now, core.streams_everywhere(), core.policy.drain_rate, time_ns)
    }

    /// Returns the resident's own context. [`Resident::upstream`] receives the events of connections that it opens.
    pub fn context(&self) -> HandlerContext {
        HandlerContext::new(JobId::number_of(self.seat), Rc::clone(&self.core.handler_requests))
    }

    /// Returns the bytes that a connection's peer has not acknowledged, and the bytes of kernel memory for them.
    pub fn backlog(&self, kernel: &dyn Kernel, token: Token) -> (u64, u64) {
        // An HTTP/2 stream counts the bytes that its connection has not taken. It has no kernel memory of its own.
        if is_stream(token) {
            (self.core.http2.unsent(token), 0)
        } else {
            (kernel.unacknowledged(token), kernel.buffered(token).unwrap_or(0))
        }
    }

    /// Runs a blocking job on the thread pool. [`Resident::offloaded`] receives its result with this id, which no other job has.
    pub fn offload<T: Any + Send>(&mut self, job: impl FnOnce() -> T + Send + 'static) -> JobId {
        let id = JobId(self.core.handler_requests.next_job_key(JobId::number_of(self.seat)));
        let run = Box::new(move || Box::new(job()) as Done);
        self.core.ops.push((Token::NONE, Op::Offload(Job { key: id.0, lane: JobLane::Local, run })));
        id
    }
}

/// A connection of a resident.
pub struct Slot<'a> {
    core: &'a mut Core,
    token: Token,
    /// The seat of the connection's resident, also after the connection has left it.
    seat: u8,
}

impl Slot<'_> {
    /// The token that identifies the connection on its worker.
    #[inline]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Index of the connection's slot. Another connection reuses it after this one has closed.
    #[inline]
    pub fn place(&self) -> u32 {
        self.token.index
    }

    /// Start of the worker's current turn.
    #[inline]
    pub fn now(&self) -> Now {
        self.core.now
    }

    /// The current second, formatted for a `Date` field.
    pub fn date(&self) -> &[u8; DATE_BYTES] {
        self.core.date.bytes()
    }

    /// Returns the resident's own context, like [`Engine::context`].
    pub fn context(&self) -> HandlerContext {
        HandlerContext::new(JobId::number_of(self.seat), Rc::clone(&self.core.handler_requests))
    }

    /// Whether a drain is in progress.
    pub fn draining(&self) -> bool {
        self.core.draining()
    }

    /// Number of connections of the whole process, and their limit.
    pub fn connections(&self) -> (usize, usize) {
        (self.core.open_everywhere(), self.core.policy.connections)
    }

    /// The peer of the connection: the address of a proxy, if one is in between.
    pub fn peer(&self) -> Peer {
        self.conn().peer.unpack()
    }

    /// Time since the send in flight began, or since the last check of its progress; 0 if none is in flight. In nanoseconds.
    pub fn sending_ns(&self) -> u64 {
        if !self.is_sending() {
            return 0;
        }
        let window_ns = self.core.policy.rate_window_ns;
        self.core.now.mono_ns.saturating_add(window_ns).saturating_sub(self.deadline_ns())
    }

    /// Returns the id under which the operator's lists and actions know the connection.
    pub fn connection_id(&self) -> String {
        self.core.connection_id(self.token)
    }

    /// Number of requests that the connection has carried.
    pub fn requests(&self) -> u32 {
        self.conn().requests
    }

    /// The resident's first word for the connection; initially `u32::MAX`. While it is `u32::MAX`, a connection that is to
    /// close after its output closes without [`Resident::sent`].
    #[inline]
    pub fn word(&self) -> u32 {
        self.conn().duty.words().map_or(NONE, |(word, _)| word)
    }

    /// Sets the first word.
    #[inline]
    pub fn set_word(&mut self, word: u32) {
        self.conn_mut().duty.set_word(word);
    }

    /// The resident's second word for the connection; initially 0.
    #[inline]
    pub fn form(&self) -> u8 {
        self.conn().duty.words().map_or(0, |(_, form)| form)
    }

    /// Sets the second word.
    #[inline]
    pub fn set_form(&mut self, form: u8) {
        self.conn_mut().duty.set_form(form);
    }

    /// Whether a send is in flight: [`Slot::send`] and [`Slot::out`] then have to wait for [`Resident::sent`].
    #[inline]
    pub fn is_sending(&self) -> bool {
        self.conn().has(SENDING)
    }

    /// Whether the connection closes after its output.
    #[inline]
    pub fn is_ending(&self) -> bool {
        self.conn().has(LAST)
    }

    /// Whether receiving is paused.
    #[inline]
    pub fn is_paused(&self) -> bool {
        self.conn().has(PAUSED)
    }

    /// Whether the peer has ended its side.
    #[inline]
    pub fn peer_has_ended(&self) -> bool {
        self.conn().has(PEER_ENDED | ENDING)
    }

    /// Whether the peer has ended its side, and the resident has used all its bytes.
    pub fn input_is_over(&self) -> bool {
        self.conn().has(PEER_ENDED) && self.conn().input.is_none()
    }

    /// Whether the connection is still the resident's, after a call that may have closed it.
    pub fn is_open(&mut self) -> bool {
        self.core.conn(self.token).is_some_and(|conn| conn.phase == ConnPhase::Resident)
    }

    /// Whether there is output for [`Slot::settle`] to send.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.core.out.len() > 0 || !self.core.segments.is_empty()
    }

    /// Begins a response with `status` and `fields`. `framing` is [`Asked::framing`], or any framing after an upgrade. The
    /// engine adds `Date`, `Connection` and the fields that describe the content.
    pub fn put_head(&mut self, framing: FramingKind, status: u16, fields: &Fields, content: ContentLength) {
        let last = self.is_ending() || content == ContentLength::Open && framing == FramingKind::Close;
        let before = self.core.out.len();
        if self.core.open_ids.is_empty() && self.core.end_tokens.is_empty() {
            self.core.put_head(self.token, (framing, last), status, fields, content);
        } else {
            let own = self.core.take_guard_fields(self.token);
            // No cache stores the response to an upgrade.
            let has_cookie = status != 101 && own.value("Set-Cookie").is_some();
            let mut fields = if has_cookie { fields.unstorable() } else { fields.clone() };
            fields.extend(&own);
            self.core.put_id(self.token, &mut fields);
            self.core.put_head(self.token, (framing, last), status, &fields, content);
        }
        let head_bytes = self.core.out.len() - before;
        self.core.begin_waiting_response(self.token, status, head_bytes);
    }

    /// Ends content without a length, and sends `trailers` where the protocol allows them. In HTTP/2 and HTTP/1.0 the content
    /// ends with the connection: also call [`Slot::end_after`].
    pub fn finish(&mut self, framing: FramingKind, trailers: &Fields) {
        self.core.finish(self.token, framing, trailers);
    }

    /// Returns the buffer for content after the head ([`Slot::put_head`]). [`FramingKind::put_data`] frames the content. It is
    /// sent as one, by [`Slot::settle`] or when the resident's call returns.
    pub fn out(&mut self) -> &mut Vec<u8> {
        self.core.out.tail(&mut self.core.buffers)
    }

    /// Appends a segment to the output.
    pub fn push(&mut self, segment: Segment) {
        self.core.out_segment(segment);
    }

    /// Appends shared bytes from `start` on to the output: as a segment if copying them would take longer.
    pub fn push_shared(&mut self, bytes: Arc<[u8]>, start: usize) {
        self.core.out_shared(bytes, start);
    }

    /// Sends bytes that are shared with other connections. The output must be empty, and no send may be in flight.
    #[inline]
    pub fn send(&mut self, bytes: Arc<[u8]>) {
        let core = &mut *self.core;
        let mut segments = core.spare_segments.pop().unwrap_or_else(|| Vec::with_capacity(1));
        if !core.entries.is_empty() {
            core.count_waiting(self.token, bytes.len() as u64);
        }
        segments.push(Segment::Shared(bytes, 0));
        let deadline_ns = core.now.mono_ns.saturating_add(core.policy.rate_window_ns);
        let conn = &mut core.conns[self.token.index as usize];
        conn.flags |= SENDING;
        conn.deadline_ns = deadline_ns;
        conn.window = RateWindow::Unmeasured;
        let last = conn.has(LAST);
        if !conn.transport.is_plain()
            && let Err(fault) = conn.transport.seal(&mut segments, last, &mut core.scratch)
        {
            return core.conn_failed(self.token, fault, 0, segments);
        }
        core.wheel.arm_earlier(self.token.index, deadline_ns);
        core.ops.push((self.token, Op::Send(encke_io::Send { segments, more: false })));
    }

    /// Sends the output. Then closes the connection if it has ended, or resumes or pauses receiving.
    pub fn settle(&mut self) {
        self.core.settle(self.token);
    }

    /// Takes an empty buffer from the worker.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.core.buffers.take()
    }

    /// Appends a buffer to the output, or returns it to the worker if it is empty.
    pub fn push_buffer(&mut self, buffer: Vec<u8>) {
        if buffer.is_empty() {
            self.core.buffers.give(buffer);
        } else {
            self.core.out_segment(Segment::Bytes(buffer));
        }
    }

    /// Whether there are received bytes that the resident has not used.
    #[inline]
    pub fn has_input(&self) -> bool {
        self.conn().input.is_some()
    }

    /// Takes the received bytes that are not used. Return them with [`Slot::give_input`].
    pub fn take_input(&mut self) -> Option<Vec<u8>> {
        let input = self.conn_mut().input.take()?;
        self.core.give_head(input.head);
        Some(input.bytes)
    }

    /// Returns the bytes of [`Slot::take_input`]. All but the first `used` bytes stay unused.
    pub fn give_input(&mut self, mut bytes: Vec<u8>, used: usize) {
        if used == bytes.len() || !self.is_open() {
            return self.core.buffers.give(bytes);
        }
        bytes.drain(..used);
        self.core.keep_input(self.token, bytes);
    }

    /// Stops receiving, even if no received bytes are left.
    pub fn hold(&mut self) {
        self.conn_mut().flags |= HELD;
    }

    /// Resumes receiving after [`Slot::hold`].
    pub fn unhold(&mut self) {
        self.conn_mut().flags &= !HELD;
    }

    /// Keeps the connection open after its peer has ended its side.
    pub fn outlast(&mut self) {
        self.conn_mut().flags |= OUTLASTS;
    }

    /// Ends this side of the connection, after all bytes sent before. No send may be in flight, the output must be empty, and
    /// nothing may be sent afterwards. With [`Slot::outlast`] the connection continues to receive.
    pub fn shutdown(&mut self) {
        debug_assert!(!self.is_sending() && !self.has_output(), "what was sent before must have left");
        let conn = self.conn_mut();
        match &mut conn.transport {
            MaybeTls::Plain => self.core.ops.push((self.token, Op::Shutdown)),
            // The end is a separate TLS record, sent when the connection settles.
            MaybeTls::Tls(tls) => tls.finish(),
        }
    }

    /// Calls [`Resident::overdue`] after `after_ns`.
    pub fn set_deadline(&mut self, after_ns: u64) {
        self.core.set_deadline(self.token, after_ns);
    }

    /// The deadline, in nanoseconds of the monotonic clock.
    #[inline]
    pub fn deadline_ns(&self) -> u64 {
        self.conn().deadline_ns
    }

    /// Sets the deadline of a connection whose send has just ended: `due_ns` on the monotonic clock. The send has armed the
    /// timer for its rate window; when that timer fires, a later deadline is armed.
    #[inline]
    pub fn rest_until(&mut self, due_ns: u64) {
        let armed_ns = self.core.now.mono_ns.saturating_add(self.core.policy.rate_window_ns);
        self.conn_mut().deadline_ns = due_ns;
        if due_ns < armed_ns {
            self.core.wheel.arm_earlier(self.token.index, due_ns);
        }
    }

    /// Requests [`Resident::crowded`] for a connection whose content is read from elsewhere, if it is a stream of HTTP/2.
    pub fn await_room(&mut self) {
        if is_stream(self.token) {
            self.core.http2.add_source(self.token);
        }
    }

    /// Charges the memory of bytes that the resident keeps until the send in flight has ended, in place of those charged before, to
    /// the connection's share of `limits.unsent`.
    pub fn charge_waiting(&mut self, bytes: usize) {
        if is_stream(self.token) {
            self.core.http2.charge_waiting(self.token, bytes);
        }
    }

    /// Sets options of the connection's socket.
    pub fn tune(&mut self, tuning: Tuning) {
        self.core.ops.push((self.token, Op::Tune(tuning)));
    }

    /// Marks the connection to close after its output, with [`Slot::end`].
    pub fn end_after(&mut self, reason: CloseReason) {
        let conn = self.conn_mut();
        conn.flags |= LAST;
        conn.reason = reason;
    }

    /// Closes the connection once its output is sent, which ends with the last message of this side. The other side may send at any
    /// time, so this one keeps receiving for a moment: the kernel would answer with a reset, and the last message might be lost.
    pub fn part(&mut self, reason: CloseReason) {
        self.end_after(reason);
        self.linger();
    }

    /// Keeps receiving for a moment after the connection's end: closing with unread input would reset the connection, and the
    /// peer might lose the last bytes.
    pub fn linger(&mut self) {
        self.conn_mut().flags |= LINGER;
    }

    /// Sets the reason with which the connection closes, if it closes after its response.
    pub fn set_reason(&mut self, reason: CloseReason) {
        self.conn_mut().reason = reason;
    }

    /// Closes a connection whose output was sent.
    pub fn end(&mut self) {
        self.core.end(self.token);
    }

    /// Closes the connection now.
    pub fn close(&mut self, reason: CloseReason) {
        self.core.close(self.token, reason, false);
    }

    /// Closes the connection now with a reset, so that the peer does not take the received part as complete.
    pub fn reset(&mut self, reason: CloseReason) {
        self.core.close(self.token, reason, true);
    }

    /// Responds as a handler would: the connection is between requests again, or closes.
    pub fn respond(&mut self, asked: Asked, mut reply: Reply) {
        if !self.core.end_tokens.is_empty() {
            reply.add_guard_fields(&self.core.take_guard_fields(self.token));
        }
        let (status, reason) = (reply.status, reply.reason.copied());
        let (_, content) = self.core.put_reply(self.token, asked, true, reply);
        self.core.end_waiting_entry(self.token, status, content, reason);
        self.next_request();
    }

    /// Completes a response that is in the output, with this status and number of content bytes. The connection is then between
    /// requests again, or closes.
    pub fn responded(&mut self, status: u16, content: u64) {
        self.count_response(status);
        self.core.end_waiting_entry(self.token, status, content, None);
        self.next_request();
    }

    /// Adds notes to the line of the connection's request in the JSON log, in place of earlier ones.
    pub fn note(&mut self, notes: LogNotes) {
        if let Some(waiting) = self.core.entries.get_mut(&self.token.index) {
            waiting.notes = Some(Box::new(notes));
        }
    }

    /// Counts a response by its status.
    pub fn count_response(&self, status: u16) {
        self.core.metrics.responses(status);
    }

    /// Counts a rejection, by the rule that was broken.
    pub fn count_refusal(&self, rule: &'static str) {
        self.core.metrics.refused(rule);
    }

    /// Counts a panic of code that the resident called.
    pub fn count_panic(&self) {
        self.core.metrics.handler_panics.add(1);
    }

    fn next_request(&mut self) {
        self.core.metrics.lasting(self.core.residents.is_tunnel(self.seat)).decrement();
        let conn = self.conn_mut();
        conn.duty = Duty::Rest;
        conn.flags &= !(HELD | OUTLASTS);
        self.core.next_request(self.token);
        if !self.core.end_tokens.is_empty() {
            self.core.end_resident_tokens(self.token);
        }
    }

    #[inline]
    fn conn(&self) -> &Conn {
        &self.core.conns[self.token.index as usize]
    }

    #[inline]
    fn conn_mut(&mut self) -> &mut Conn {
        &mut self.core.conns[self.token.index as usize]
    }
}

impl Core {
    /// Calls a resident.
    #[inline]
    fn call_resident<T>(
        &mut self,
        seat: u8,
        call: impl FnOnce(&mut dyn Resident, &mut Self) -> T,
    ) -> Option<T> {
        self.residents.forget_due_ns();
        let resident = self.residents.seats.get_mut(usize::from(seat)).and_then(Option::take);
        debug_assert!(resident.is_some(), "no resident at seat {seat}, or it is being called");
        let mut resident = resident?;
        let outcome = call(&mut *resident, self);
        self.residents.seats[usize::from(seat)] = Some(resident);
        Some(outcome)
    }

    /// Calls the resident of a connection.
    #[inline]
    pub(crate) fn call_for<T>(
        &mut self,
        token: Token,
        call: impl FnOnce(&mut dyn Resident, &mut Slot<'_>) -> T,
    ) -> Option<T> {
        let seat = self.conns[token.index as usize].duty.seat()?;
        self.call_resident(seat, |resident, core| call(resident, &mut Slot { core, token, seat }))
    }

    /// Calls a resident for an event that concerns no single connection.
    pub(crate) fn call_engine<T>(
        &mut self,
        seat: u8,
        call: impl FnOnce(&mut dyn Resident, &mut Engine<'_>) -> T,
    ) -> Option<T> {
        self.call_resident(seat, |resident, core| call(resident, &mut Engine { core, seat }))
    }

    /// Makes a request's connection a resident's.
    pub(crate) fn take_over(
        &mut self,
        token: Token,
        asked: Asked,
        seat: u8,
        start: Box<dyn Any + Send>,
        entry: Option<Box<LogEntry>>,
    ) {
        let conn = &mut self.conns[token.index as usize];
        conn.phase = ConnPhase::Resident;
        conn.duty = Duty::resident(seat);
        conn.flags &= !(HELD | OUTLASTS);
        self.metrics.lasting(self.residents.is_tunnel(seat)).increment();
        if let Some(entry) = entry {
            // Responses to earlier requests may still be in the output.
            let uncounted_bytes = self.output_bytes();
            let started_ns = self.now.mono_ns;
            let waiting = WaitingEntry { entry, started_ns, sent_bytes: 0, uncounted_bytes, notes: None };
            self.entries.insert(token.index, waiting);
        }
        self.call_for(token, |resident, slot| resident.enter(slot, asked, start));
        if let Some(mut waiting) = self.entries.remove(&token.index) {
            waiting.entry = self.log.at_rest(waiting.entry);
            self.entries.insert(token.index, waiting);
        }
    }

    /// Passes received bytes to a resident. Returns how many were used.
    pub(crate) fn resident_received(&mut self, token: Token, bytes: &mut [u8]) -> usize {
        self.call_for(token, |resident, slot| resident.received(slot, bytes)).unwrap_or(bytes.len())
    }

    /// Notifies a resident that its connection's send has completed.
    pub(crate) fn resident_sent(&mut self, token: Token) {
        let flight = std::mem::replace(&mut self.conns[token.index as usize].flight, NONE);
        if flight != NONE {
            self.end_flight(flight, None, None);
        }
        self.call_for(token, Resident::sent);
    }

    /// Notifies a resident that its connection's peer has ended its side.
    pub(crate) fn resident_ended(&mut self, token: Token) {
        self.call_for(token, Resident::ended);
    }

    /// Notifies a resident of an expired deadline, while no send is in flight.
    pub(crate) fn resident_overdue(&mut self, token: Token) {
        self.call_for(token, Resident::overdue);
    }

    /// Resumes or pauses receiving on a resident's connection without a send in flight, or closes it after the peer's last
    /// bytes.
    pub(crate) fn settle_resident(&mut self, token: Token) {
        let conn = &mut self.conns[token.index as usize];
        let waits = conn.input.as_ref().is_some_and(|input| !input.bytes.is_empty());
        if conn.has(PEER_ENDED) && !waits && !conn.has(OUTLASTS) {
            return self.close(token, CloseReason::PeerDone, false);
        }
        let hungry = !waits && !conn.has(HELD) && !conn.has(PEER_ENDED);
        self.set_receiving(token, hungry);
    }

    /// Resumes or pauses receiving on a resident's connection during a send, if its resident is duplex.
    pub(crate) fn settle_duplex(&mut self, token: Token) {
        let conn = &self.conns[token.index as usize];
        if conn.duty.seat().is_some_and(|seat| self.residents.is_duplex(seat)) {
            let hungry = conn.input.is_none() && !conn.has(HELD) && !conn.has(PEER_ENDED);
            self.set_receiving(token, hungry);
        }
    }

    /// Removes a closing connection from its resident: notifies the resident later, and writes the log line.
    pub(crate) fn leave_resident(&mut self, token: Token, reason: CloseReason) {
        let conn = &mut self.conns[token.index as usize];
        let duty = std::mem::replace(&mut conn.duty, Duty::Rest);
        let (Some(seat), Some((word, form))) = (duty.seat(), duty.words()) else { return };
        self.metrics.lasting(self.residents.is_tunnel(seat)).decrement();
        self.residents.note_gone(seat, Gone { token, word, form });
        if let Some(waiting) = self.take_waiting_entry(token) {
            let WaitingEntry { entry, started_ns, sent_bytes, .. } = waiting;
            self.finish_entry(Some(entry), sent_bytes, started_ns, reason.cause());
        }
    }

    /// Passes the mailboxes of all workers to each resident.
    pub(crate) fn pass_mailboxes(&mut self, links: &[Arc<Inbox>]) {
        for seat in self.residents.seats() {
            let mailbox = |link: &Arc<Inbox>| ResidentMailbox { link: Arc::clone(link), seat };
            let mailboxes = links.iter().map(mailbox).collect();
            self.call_resident(seat, |resident, _| resident.start(mailboxes));
        }
    }

    /// Notifies residents of a drain.
    pub(crate) fn drain_residents(&mut self, time_ns: u64) {
        for seat in self.residents.seats() {
            self.call_engine(seat, |resident, engine| resident.drain(engine, time_ns));
        }
    }
}
