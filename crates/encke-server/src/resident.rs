//! Residents: features whose connections outlive a request. A WebSocket, a subscriber, a tunnel.
//!
//! ```text
//! Handler::call ─► Outcome::Takeover ─► enter(slot, start)
//!                                         │
//!        bytes ─► received      sent ◄────┤ slot.put_head(), slot.out(), slot.send()
//!     deadline ─► overdue      ended ◄────┤ the peer has ended its side
//!                                         │
//!                     slot.respond ◄──────┼──────► slot.close ─► closed
//!                     (HTTP goes on)
//! once a worker's turn:  begin ─► slice, sliced ─► … ─► finish      message, offloaded, each_second, drain
//! ```
//! **The resident owns the protocol, the engine owns bytes and time.** A resident is opened once per worker by
//! [`Mount::open`](crate::Mount::open) and lives as long as the worker; a reload reaches it through the same call. What it
//! keeps of a connection is its own, except two words in the connection's slot, which the engine lends it.
//!
//! A call to a resident never leads to another call to it: what it closes is reported by [`Resident::closed`] when its call
//! has returned.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use encke_io::{Done, Job, JobLane, Now, Op, Reactor, Segment, Token, Tuning};
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
use crate::log::LogEntry;
use crate::operate::{Actions, Explain, FeatureVerbs, Offers, Verb};
use crate::outgoing::{UpstreamEvent, UpstreamId};
use crate::record::Asked;
use crate::reply::{Fields, Reply};
use crate::residents::Residents;
use crate::transport::MaybeTls;

/// Memory of a connection on its worker, in bytes: its slot, its place in the reactor (16 bytes, 20 under io_uring) and its
/// entry in the wheel of timers.
pub const CONNECTION_BYTES: usize = size_of::<Conn>() + 20 + 12;

/// Keeps connections on one worker after their requests.
pub trait Resident: Any {
    /// A request has become a connection of this resident. It responds by [`Slot::respond`], or begins a response by
    /// [`Slot::put_head`], now or later. `start` is what its handler put into the [`Takeover`](crate::Takeover).
    fn enter(&mut self, slot: &mut Slot<'_>, asked: Asked, start: Box<dyn Any + Send>);

    /// Bytes have arrived, and nothing is being sent. Returns how many were used; the engine keeps the others and reads no
    /// further until [`Slot::take_input`].
    fn received(&mut self, _slot: &mut Slot<'_>, _bytes: &mut [u8]) -> usize {
        0
    }

    /// Whether [`Resident::received`] is called while something is being sent, too: for protocols in which neither direction
    /// waits for the other. Such a call may not append to the connection's own output.
    fn is_duplex(&self) -> bool {
        false
    }

    /// Everything that was to be sent has left.
    fn sent(&mut self, slot: &mut Slot<'_>);

    /// The peer has ended its side of the connection. The engine closes it when its last bytes were used, unless
    /// [`Slot::outlast`] was called.
    fn ended(&mut self, _slot: &mut Slot<'_>) {}

    /// The deadline has passed, and nothing is being sent.
    fn overdue(&mut self, slot: &mut Slot<'_>);

    /// A connection has closed, whatever the cause.
    fn closed(&mut self, _gone: Gone) {}

    /// A message from a [`ResidentMailbox`].
    fn message(&mut self, _engine: &mut Engine<'_>, _message: Box<dyn Any + Send>) {}

    /// A job of [`Engine::offload`] has ended; `None` if it was refused (busy) or has panicked.
    fn offloaded(&mut self, _engine: &mut Engine<'_>, _job: JobId, _done: Option<Done>) {}

    /// Something has happened on a connection that a context of this resident ([`Engine::context`], [`Slot::context`]) has opened.
    fn upstream(&mut self, _engine: &mut Engine<'_>, _id: UpstreamId, _event: UpstreamEvent<'_>) {}

    /// All workers have started: the mailboxes of this resident on each of them, by number.
    fn start(&mut self, _mailboxes: Arc<[ResidentMailbox]>) {}

    /// When it must have a turn, on the monotonic clock; 0: at once.
    fn due_ns(&self) -> Option<u64> {
        None
    }

    /// Its turn begins.
    fn begin(&mut self, _engine: &mut Engine<'_>) {}

    /// A part of its turn: at most `sends` sends. Returns whether there is more.
    fn slice(&mut self, _engine: &mut Engine<'_>, _sends: usize) -> bool {
        false
    }

    /// The sends of the slice were submitted, at `now`; whether there is more.
    fn sliced(&mut self, _engine: &mut Engine<'_>, _now: Now, _more: bool) {}

    /// Its turn ends.
    fn finish(&mut self, _engine: &mut Engine<'_>) {}

    /// Once a second.
    fn each_second(&mut self, _engine: &mut Engine<'_>, _kernel: &dyn Kernel) {}

    /// The server stops: its connections are to end one by one within `time_ns`.
    fn drain(&mut self, _engine: &mut Engine<'_>, _time_ns: u64) {}

    /// Whether the worker may end when it has no connection; `late`: the time for the drain is over.
    fn may_end(&self, _late: bool) -> bool {
        true
    }

    /// The worker ends.
    fn end(&mut self, _now: Now) {}

    /// What another process needs to continue with a connection at rest; `None` if it is not at rest. The connection stays.
    fn park(&mut self, _slot: &mut Slot<'_>) -> Option<Vec<u8>> {
        None
    }

    /// Continues with a connection from what [`Resident::park`] returned. Returns false if that is not possible.
    fn unpark(&mut self, _slot: &mut Slot<'_>, _parked: &[u8]) -> bool {
        false
    }
}

/// A connection that has closed, and what its resident had noted in its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone {
    /// The connection.
    pub token: Token,
    /// See [`Slot::word`].
    pub word: u32,
    /// See [`Slot::form`].
    pub form: u8,
}

/// What the kernel has of a connection's output.
pub trait Kernel {
    /// Bytes that the peer has not acknowledged.
    fn unacknowledged(&self, token: Token) -> u64;
    /// Bytes of memory for them, if the system says.
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

/// Where other threads leave messages for a resident.
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

/// A worker that opens a mount.
pub struct WorkerSetup<'a> {
    pub(crate) residents: &'a mut Residents,
    pub(crate) now: Now,
    pub(crate) number: usize,
    pub(crate) workers: usize,
    /// The seat of the mount's resident, once it has one.
    pub(crate) seat: Option<u8>,
    pub(crate) offers: Offers,
}

#[cfg(any(test, feature = "testing"))]
impl WorkerSetup<'_> {
    /// Calls `open` as a worker of its own would.
    pub(crate) fn alone<T>(now: Now, open: impl FnOnce(&mut WorkerSetup<'_>) -> T) -> T {
        let mut residents = Residents::default();
        let offers = Offers::default();
        open(&mut WorkerSetup { residents: &mut residents, now, number: 0, workers: 1, seat: None, offers })
    }
}

impl WorkerSetup<'_> {
    /// This worker's resident of type `R`, which takes over connections of the mount. There is one of a type: it is opened
    /// at the first call, and found again at a reload.
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

    /// When the worker's present turn began.
    pub fn now(&self) -> Now {
        self.now
    }

    /// The worker's number, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// How many workers the server has.
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
    /// The moment at which the worker's present turn began.
    pub fn now(&self) -> Now {
        self.core.now
    }

    /// The present second as a `Date` field has it.
    pub fn date(&self) -> &[u8; DATE_BYTES] {
        self.core.date.bytes()
    }

    /// A connection of this resident, if it is still that one.
    #[inline]
    pub fn slot(&mut self, token: Token) -> Option<Slot<'_>> {
        let seat = self.seat;
        let conn = self.core.conn(token)?;
        (conn.duty.seat() == Some(seat)).then_some(Slot { core: self.core, token, seat })
    }

    /// Number of places that connections have, of any kind.
    pub fn places(&self) -> usize {
        self.core.conns.len()
    }

    /// The connection at one of the places, if it is one of this resident.
    pub fn slot_at(&mut self, place: usize) -> Option<Slot<'_>> {
        let index = self.core.conns.place(place);
        let token = Token { index, generation: self.core.conns[index as usize].generation };
        self.slot(token)
    }

    /// The resident's own context: what it dials there reports to [`Resident::upstream`].
    pub fn context(&self) -> HandlerContext {
        HandlerContext::new(JobId::number_of(self.seat), Rc::clone(&self.core.handler_requests))
    }

    /// Bytes that a connection's peer has not acknowledged, and what the kernel keeps for them.
    pub fn backlog(&self, kernel: &dyn Kernel, token: Token) -> (u64, u64) {
        // A stream has what its connection has not taken yet; in the kernel it has nothing of its own.
        if is_stream(token) {
            (self.core.http2.unsent(token), 0)
        } else {
            (kernel.unacknowledged(token), kernel.buffered(token).unwrap_or(0))
        }
    }

    /// Runs a blocking job on the pool; its result comes by [`Resident::offloaded`].
    pub fn offload<T: Any + Send>(&mut self, job: impl FnOnce() -> T + Send + 'static) -> JobId {
        let id = JobId::of_resident(self.seat);
        let run = Box::new(move || Box::new(job()) as Done);
        self.core.ops.push((Token::NONE, Op::Offload(Job { key: id.0, lane: JobLane::Local, run })));
        id
    }
}

/// A connection of a resident.
pub struct Slot<'a> {
    core: &'a mut Core,
    token: Token,
    /// The seat of its resident, also after it has left.
    seat: u8,
}

impl Slot<'_> {
    /// Names the connection on its worker.
    #[inline]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Its place on the worker. Another connection has it after this one has closed.
    #[inline]
    pub fn place(&self) -> u32 {
        self.token.index
    }

    /// The moment at which the worker's present turn began.
    #[inline]
    pub fn now(&self) -> Now {
        self.core.now
    }

    /// The present second as a `Date` field has it.
    pub fn date(&self) -> &[u8; DATE_BYTES] {
        self.core.date.bytes()
    }

    /// The resident's own context, as [`Engine::context`] returns it.
    pub fn context(&self) -> HandlerContext {
        HandlerContext::new(JobId::number_of(self.seat), Rc::clone(&self.core.handler_requests))
    }

    /// Whether the server stops.
    pub fn draining(&self) -> bool {
        self.core.draining()
    }

    /// Connections of the whole process, and how many it may have.
    pub fn connections(&self) -> (usize, usize) {
        (self.core.open_everywhere(), self.core.policy.connections)
    }

    /// Requests that the connection has carried.
    pub fn requests(&self) -> u32 {
        self.conn().requests
    }

    /// The first word that the resident has noted; `u32::MAX` at first. While it is `u32::MAX`, a connection that is to
    /// close after its output closes without [`Resident::sent`].
    #[inline]
    pub fn word(&self) -> u32 {
        self.conn().duty.words().map_or(NONE, |(word, _)| word)
    }

    /// Notes the first word.
    #[inline]
    pub fn set_word(&mut self, word: u32) {
        self.conn_mut().duty.set_word(word);
    }

    /// The second word that the resident has noted; 0 at first.
    #[inline]
    pub fn form(&self) -> u8 {
        self.conn().duty.words().map_or(0, |(_, form)| form)
    }

    /// Notes the second word.
    #[inline]
    pub fn set_form(&mut self, form: u8) {
        self.conn_mut().duty.set_form(form);
    }

    /// Whether something is being sent: [`Slot::send`] and [`Slot::out`] have to wait for [`Resident::sent`].
    #[inline]
    pub fn is_sending(&self) -> bool {
        self.conn().has(SENDING)
    }

    /// Whether the connection is to close after its output.
    #[inline]
    pub fn is_ending(&self) -> bool {
        self.conn().has(LAST)
    }

    /// Whether nothing is received at the moment.
    #[inline]
    pub fn is_paused(&self) -> bool {
        self.conn().has(PAUSED)
    }

    /// Whether the peer has ended its side.
    #[inline]
    pub fn peer_has_ended(&self) -> bool {
        self.conn().has(PEER_ENDED | ENDING)
    }

    /// Whether the peer has ended its side, and all its bytes have reached [`Resident::received`] and were used.
    pub fn input_is_over(&self) -> bool {
        self.conn().has(PEER_ENDED) && self.conn().input.is_none()
    }

    /// Whether the connection is still the resident's, after a call that may have closed it.
    pub fn is_open(&mut self) -> bool {
        self.core.conn(self.token).is_some_and(|conn| conn.phase == ConnPhase::Resident)
    }

    /// Whether there is output that [`Slot::settle`] will send.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.core.out.len() > 0 || !self.core.segments.is_empty()
    }

    /// Begins a response with `status` and `fields`: [`Asked::framing`], or after an upgrade anything, is its framing.
    /// `Date`, `Connection` and the fields about the content are the engine's.
    pub fn put_head(&mut self, framing: FramingKind, status: u16, fields: &Fields, content: ContentLength) {
        let last = self.is_ending() || content == ContentLength::Open && framing == FramingKind::Close;
        self.core.put_head(self.token, (framing, last), status, fields, content);
    }

    /// Ends content without a length, and sends `trailers` where the protocol has a place for them. By HTTP/2 and HTTP/1.0 the
    /// content ends when the connection does: call [`Slot::end_after`], too.
    pub fn finish(&mut self, framing: FramingKind, trailers: &Fields) {
        self.core.finish(self.token, framing, trailers);
    }

    /// Where content is appended, behind the head ([`Slot::put_head`]); [`FramingKind::put_data`] frames it. It leaves in one
    /// send, with [`Slot::settle`] or when the resident's call returns.
    pub fn out(&mut self) -> &mut Vec<u8> {
        self.core.out.tail(&mut self.core.buffers)
    }

    /// Appends a segment to the output.
    pub fn push(&mut self, segment: Segment) {
        self.core.out_segment(segment);
    }

    /// Appends shared bytes from `start` on to the output, as a segment if copying them would take longer.
    pub fn push_shared(&mut self, bytes: Arc<[u8]>, start: usize) {
        self.core.out_shared(bytes, start);
    }

    /// Sends bytes that are shared with other connections. The output must be empty, and nothing may be in flight.
    #[inline]
    pub fn send(&mut self, bytes: Arc<[u8]>) {
        let core = &mut *self.core;
        let mut segments = core.spare_segments.pop().unwrap_or_default();
        if !core.entries.is_empty()
            && let Some(waiting) = core.entries.get_mut(&self.token.index)
        {
            waiting.sent_bytes += bytes.len() as u64;
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

    /// Sends the output, closes what is over, and reads on or pauses.
    pub fn settle(&mut self) {
        self.core.settle(self.token);
    }

    /// Takes an empty buffer from the worker.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.core.buffers.take()
    }

    /// Appends a buffer to the output, or gives it back if it is empty.
    pub fn push_buffer(&mut self, buffer: Vec<u8>) {
        if buffer.is_empty() {
            self.core.buffers.give(buffer);
        } else {
            self.core.out_segment(Segment::Bytes(buffer));
        }
    }

    /// Whether bytes wait that the resident has not used.
    #[inline]
    pub fn has_input(&self) -> bool {
        self.conn().input.is_some()
    }

    /// Takes the bytes that wait. They go back by [`Slot::give_input`].
    pub fn take_input(&mut self) -> Option<Vec<u8>> {
        let input = self.conn_mut().input.take()?;
        self.core.give_head(input.head);
        Some(input.bytes)
    }

    /// Gives back what [`Slot::take_input`] took; all but the first `used` bytes still wait.
    pub fn give_input(&mut self, mut bytes: Vec<u8>, used: usize) {
        if used == bytes.len() || !self.is_open() {
            return self.core.buffers.give(bytes);
        }
        bytes.drain(..used);
        self.core.keep_input(self.token, bytes);
    }

    /// Reads no further, also if no bytes wait.
    pub fn hold(&mut self) {
        self.conn_mut().flags |= HELD;
    }

    /// Reads on after [`Slot::hold`].
    pub fn unhold(&mut self) {
        self.conn_mut().flags &= !HELD;
    }

    /// Has the connection stay open after its peer has ended its side.
    pub fn outlast(&mut self) {
        self.conn_mut().flags |= OUTLASTS;
    }

    /// Ends this side of the connection: the peer sees the end behind everything that was sent. Nothing may be in flight or in
    /// the output, and nothing is sent afterwards. With [`Slot::outlast`] the connection stays open for what the peer sends.
    pub fn shutdown(&mut self) {
        debug_assert!(!self.is_sending() && !self.has_output(), "what was sent before must have left");
        let conn = self.conn_mut();
        match &mut conn.transport {
            MaybeTls::Plain => self.core.ops.push((self.token, Op::Shutdown)),
            // The end is a record of its own; it leaves when the connection settles.
            MaybeTls::Tls(tls) => tls.finish(),
        }
    }

    /// Calls [`Resident::overdue`] after `after_ns`.
    pub fn set_deadline(&mut self, after_ns: u64) {
        self.core.set_deadline(self.token, after_ns);
    }

    /// The deadline, on the monotonic clock.
    #[inline]
    pub fn deadline_ns(&self) -> u64 {
        self.conn().deadline_ns
    }

    /// Sets the deadline of a connection whose send has just ended: `due_ns` on the monotonic clock. The send has armed the
    /// timer for its rate window; a later deadline is armed when that timer fires.
    #[inline]
    pub fn rest_until(&mut self, due_ns: u64) {
        let armed_ns = self.core.now.mono_ns.saturating_add(self.core.policy.rate_window_ns);
        self.conn_mut().deadline_ns = due_ns;
        if due_ns < armed_ns {
            self.core.wheel.arm_earlier(self.token.index, due_ns);
        }
    }

    /// Sets options of the connection's socket.
    pub fn tune(&mut self, tuning: Tuning) {
        self.core.ops.push((self.token, Op::Tune(tuning)));
    }

    /// Closes the connection after its output, with [`Slot::end`].
    pub fn end_after(&mut self, reason: CloseReason) {
        let conn = self.conn_mut();
        conn.flags |= LAST;
        conn.reason = reason;
    }

    /// Has the connection read on for a moment after its end: closing with unread input would reset it, and the peer might
    /// never see the last bytes.
    pub fn linger(&mut self) {
        self.conn_mut().flags |= LINGER;
    }

    /// States why the connection will close, if it does after its response.
    pub fn set_reason(&mut self, reason: CloseReason) {
        self.conn_mut().reason = reason;
    }

    /// Ends a connection whose last bytes have left.
    pub fn end(&mut self) {
        self.core.end(self.token);
    }

    /// Closes the connection now.
    pub fn close(&mut self, reason: CloseReason) {
        self.core.close(self.token, reason, false);
    }

    /// Closes the connection now with a reset, so that the peer does not take what it has for whole.
    pub fn reset(&mut self, reason: CloseReason) {
        self.core.close(self.token, reason, true);
    }

    /// Responds as a handler would: the connection is between requests again, or closes.
    pub fn respond(&mut self, asked: Asked, reply: Reply) {
        let status = reply.status;
        let (_, content) = self.core.put_reply(self.token, asked, true, reply);
        self.log(status, content);
        self.next_request();
    }

    /// The output is a whole response with this status and so many bytes of content: the connection is between requests
    /// again, or closes.
    pub fn responded(&mut self, status: u16, content: u64) {
        self.count_response(status);
        self.log(status, content);
        self.next_request();
    }

    /// Counts a response that has begun.
    pub fn count_response(&self, status: u16) {
        self.core.metrics.responses(status);
    }

    /// Counts something that was refused, by the rule that it broke.
    pub fn count_refusal(&self, rule: &'static str) {
        self.core.metrics.refused(rule);
    }

    /// Counts a panic of code that the resident called.
    pub fn count_panic(&self) {
        self.core.metrics.handler_panics.add(1);
    }

    /// Has the request logged with this status, once the output has left. Otherwise it is logged when the connection closes.
    pub fn log(&mut self, status: u16, content: u64) {
        if let Some(waiting) = self.core.entries.remove(&self.token.index) {
            self.core.end_entry(Some(waiting.entry), status, content, waiting.started_ns);
        }
    }

    fn next_request(&mut self) {
        let conn = self.conn_mut();
        conn.duty = Duty::Rest;
        conn.flags &= !(HELD | OUTLASTS);
        self.core.next_request(self.token);
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

/// The log entry of a request whose connection a resident has.
pub(crate) struct WaitingEntry {
    pub(crate) entry: Box<LogEntry>,
    pub(crate) started_ns: u64,
    pub(crate) sent_bytes: u64,
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

    /// Calls a resident for something that concerns no single connection.
    pub(crate) fn call_engine<T>(
        &mut self,
        seat: u8,
        call: impl FnOnce(&mut dyn Resident, &mut Engine<'_>) -> T,
    ) -> Option<T> {
        self.call_resident(seat, |resident, core| call(resident, &mut Engine { core, seat }))
    }

    /// A request becomes a connection of a resident.
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
        if let Some(entry) = entry {
            let waiting = WaitingEntry { entry, started_ns: self.now.mono_ns, sent_bytes: 0 };
            self.entries.insert(token.index, waiting);
        }
        self.call_for(token, |resident, slot| resident.enter(slot, asked, start));
        if let Some(mut waiting) = self.entries.remove(&token.index) {
            waiting.entry = self.log.at_rest(waiting.entry);
            self.entries.insert(token.index, waiting);
        }
    }

    /// Bytes for a connection of a resident, which are used unless something is being sent. Returns how many were used.
    pub(crate) fn resident_received(&mut self, token: Token, bytes: &mut [u8]) -> usize {
        self.call_for(token, |resident, slot| resident.received(slot, bytes)).unwrap_or(bytes.len())
    }

    /// A send of a resident's connection has ended.
    pub(crate) fn resident_sent(&mut self, token: Token) {
        let flight = std::mem::replace(&mut self.conns[token.index as usize].flight, NONE);
        if flight != NONE {
            self.end_flight(flight, None);
        }
        self.call_for(token, Resident::sent);
    }

    /// The peer of a resident's connection has ended its side.
    pub(crate) fn resident_ended(&mut self, token: Token) {
        self.call_for(token, Resident::ended);
    }

    /// A deadline of a resident's connection has passed, and nothing is being sent.
    pub(crate) fn resident_overdue(&mut self, token: Token) {
        self.call_for(token, Resident::overdue);
    }

    /// Receives or pauses, or closes after the peer's last bytes, on a resident's connection without a send in flight.
    pub(crate) fn settle_resident(&mut self, token: Token) {
        let conn = &mut self.conns[token.index as usize];
        let waits = conn.input.as_ref().is_some_and(|input| !input.bytes.is_empty());
        if conn.has(PEER_ENDED) && !waits && !conn.has(OUTLASTS) {
            return self.close(token, CloseReason::PeerDone, false);
        }
        let hungry = !waits && !conn.has(HELD) && !conn.has(PEER_ENDED);
        self.set_receiving(token, hungry);
    }

    /// Receives or pauses on a resident's connection with a send in flight, if its resident receives meanwhile.
    pub(crate) fn settle_duplex(&mut self, token: Token) {
        let conn = &self.conns[token.index as usize];
        if conn.duty.seat().is_some_and(|seat| self.residents.is_duplex(seat)) {
            let hungry = conn.input.is_none() && !conn.has(HELD) && !conn.has(PEER_ENDED);
            self.set_receiving(token, hungry);
        }
    }

    /// A resident's connection closes: notes it for the resident, and writes its log line.
    pub(crate) fn leave_resident(&mut self, token: Token) {
        let conn = &mut self.conns[token.index as usize];
        let duty = std::mem::replace(&mut conn.duty, Duty::Rest);
        let (Some(seat), Some((word, form))) = (duty.seat(), duty.words()) else { return };
        self.residents.note_gone(seat, Gone { token, word, form });
        if let Some(waiting) = self.entries.remove(&token.index) {
            self.finish_entry(waiting.entry, waiting.sent_bytes, waiting.started_ns);
        }
    }

    /// The mailbox of a resident on another worker.
    pub(crate) fn pass_mailboxes(&mut self, links: &[Arc<Inbox>]) {
        for seat in self.residents.seats() {
            let mailbox = |link: &Arc<Inbox>| ResidentMailbox { link: Arc::clone(link), seat };
            let mailboxes = links.iter().map(mailbox).collect();
            self.call_resident(seat, |resident, _| resident.start(mailboxes));
        }
    }

    /// Tells residents that the server stops.
    pub(crate) fn drain_residents(&mut self, time_ns: u64) {
        for seat in self.residents.seats() {
            self.call_engine(seat, |resident, engine| resident.drain(engine, time_ns));
        }
    }
}
