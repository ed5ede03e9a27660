//! The reactor over readiness: try each operation at once, and if it would block, wait until the poller reports readiness.
//!
//! ```text
//! submit(Recv) ─► ARMED ─┬─ poller: readable ─► READABLE, queued ─► next(): recv into the scratch ─► Received
//!                        │                          ▲                  │ buffer full: queued again, at the end
//!                        └──────────────────────────┴── short read ◄───┘
//! submit(Send) ─► tried at once ─┬─ all taken ─► Sent
//!                                ├─ would block ─► BLOCKED ── poller: writable ─► queued ─► tried again
//!                                ├─ quantum used up ─► queued again, at the end
//!                                └─ file in flight (Windows) ─► BLOCKED ── its end is reported as writable ─► queued
//! ```
//!
//! A source with work is queued once, and each `next` serves the head of the queue. So a busy connection gets one unit of work
//! per pass over the queue, whatever the trigger.
//!
//! Registration with the poller is deferred until `wait`. A connection that is accepted, served and closed within one turn is
//! never registered, and pausing and resuming within a turn costs no system call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Now};
use crate::offload::{Pool, Returns};
use crate::op::{CloseOp, Done, Event, LendLimit, Op, OpKind, Send, Token};
use crate::op_error::OpError;
use crate::places::Places;
use crate::poller::{Interest, Poller, Ready};
use crate::reactor::{
    Backend, LEASE_BYTES_MAX, NARROW_LEASE_BYTES, Occupancy, Reactor, ReactorSource, SPARES_MAX, Unavailable,
};
use crate::sending::{SendStep, Sending, is_one_segment};
use crate::slab::Slab;
use crate::socket::Stream;
use crate::stream_facts::{StreamFacts, stream_facts};
use crate::sys::net::{self, FileFlight, Handle, HandleRef, INTERRUPTED, SysError, WOULD_BLOCK};
use crate::wake::{self, Waker};

/// A reactor that performs operations itself once the poller `P` reports that they will not block.
pub struct Readiness<P> {
    /// Dropped first: a file in flight ends before its socket is closed.
    sends: Slab<Sending>,
    poller: P,
    sources: Places<ReadySource>,
    /// Sources with work, each at most once.
    queue: VecDeque<Token>,
    /// Events to deliver before any further work.
    done: VecDeque<Event<'static>>,
    /// Sources whose registration with the poller may need to change.
    changed: Vec<Token>,
    scratch: Box<[u8]>,
    spares: Vec<Stream>,
    wake: wake::WakeReceiver,
    pool: Pool,
    returns: Arc<Returns>,
    returned: VecDeque<(u64, Option<Done>)>,
    jobs: usize,
    clock: Clock,
    now: Now,
    /// Whether `now` was read at the end of a turn and no operation was submitted since, so that it is still current.
    is_read: bool,
}

/// The first slot belongs to the bell, so that a wake-up is handled like any other event.
const BELL: Token = Token { index: 0, generation: 0 };
const NONE: u32 = u32::MAX;

/// A source: 12 bytes, or 16 with its generation (16 and 24 on Windows). Together with the connection's slot and its timer, this is the whole cost of
/// an idle connection.
struct ReadySource {
    /// `None` only in the bell's slot.
    handle: Option<Handle>,
    /// The send in flight, or `NONE`.
    link: u32,
    flags: u16,
    kind: ReadySourceKind,
    registered: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadySourceKind {
    Bell,
    Listener,
    Stream,
    Watched,
}

/// `Accept`, `Recv` or `Watch` is armed.
const ARMED: u16 = 1;
/// Reading may succeed: the poller reported it, or no read was tried yet.
const READABLE: u16 = 1 << 1;
/// The send in flight waits for room.
const BLOCKED: u16 = 1 << 2;
/// The poller reported the end of stream.
const HANGUP: u16 = 1 << 3;
/// Reading has no further events: the end was delivered, or reading or connecting failed.
const ENDED: u16 = 1 << 4;
/// The end of stream was reported while receiving was paused.
const HINTED: u16 = 1 << 5;
/// Queued in `queue`.
const QUEUED: u16 = 1 << 6;
/// Queued in `changed`.
const CHANGED: u16 = 1 << 7;
/// A connect is in flight.
const CONNECTING: u16 = 1 << 8;
/// An error is pending on the socket.
const BROKEN: u16 = 1 << 9;
/// The sending direction is shut down once the send in flight has ended.
const FINISHING: u16 = 1 << 10;
/// The send in flight was served last, so reading comes next.
const SENT_LAST: u16 = 1 << 11;
/// The connect in flight has succeeded.
const CONNECTED: u16 = 1 << 12;

/// Connected by [`Op::Connect`], with Nagle's algorithm enabled.
const NAGLE: u16 = 1 << 13;
/// No send has started yet.
const UNSENT: u16 = 1 << 14;
/// The end of stream was delivered after all data.
const OVER: u16 = 1 << 15;

/// Whether an armed source may be readable, or an end of stream is due to be reported.
const fn reading_due(flags: u16) -> bool {
    let wanted = flags & (ARMED | READABLE) == ARMED | READABLE;
    wanted || flags & (ARMED | ENDED | HINTED) == 0 && flags & (HANGUP | BROKEN) != 0
}

/// Bits of `ReadySource::registered`: the current registration with the poller.
const REGISTERED: u8 = 1;
const REGISTERED_READ: u8 = 2;
const REGISTERED_WRITE: u8 = 4;
const REGISTERED_HANGUP: u8 = 8;
/// The other bit of `ReadySource::registered`: leases are narrow ([`LendLimit::Narrow`]).
const NARROW: u8 = 16;

impl ReadySource {
    const fn new(handle: Option<Handle>, kind: ReadySourceKind, flags: u16) -> Self {
        Self { handle, link: NONE, flags, kind, registered: 0 }
    }

    fn handle(&self) -> HandleRef<'_> {
        net::borrowed(self.handle.as_ref().expect("every source but the bell holds its handle"))
    }
}

impl<P: Poller> Readiness<P> {
    /// Creates a reactor. Its blocking jobs run on `pool`.
    ///
    /// # Errors
    /// The system lacks the back end, or is out of descriptors.
    pub fn new(pool: Pool) -> Result<Self, Unavailable> {
        Self::with_poller(P::new().map_err(unavailable::<P>)?, pool)
    }

    /// Creates a reactor over an existing poller.
    pub(crate) fn with_poller(mut poller: P, pool: Pool) -> Result<Self, Unavailable> {
        let bell = wake::WakeReceiver::new(poller.bell(BELL).map_err(unavailable::<P>)?);
        let mut places = Places::new();
        let token = places.insert(ReadySource {
            registered: REGISTERED,
            ..ReadySource::new(None, ReadySourceKind::Bell, 0)
        });
        assert_eq!(token, BELL, "the first place of an empty table");
        let mut clock = Clock::new();
        Ok(Self {
            poller,
            sources: places,
            sends: Slab::new(),
            queue: VecDeque::new(),
            done: VecDeque::new(),
            changed: Vec::new(),
            scratch: vec![0; LEASE_BYTES_MAX].into_boxed_slice(),
            spares: Vec::new(),
            returns: Returns::new(bell.waker()),
            wake: bell,
            pool,
            returned: VecDeque::new(),
            jobs: 0,
            now: clock.now(),
            is_read: false,
            clock,
        })
    }

    /// Queues a source with work, unless it is already queued.
    fn enqueue(&mut self, token: Token) {
        let row = self.sources.get_mut(token).expect(LIVE);
        if row.flags & QUEUED == 0 {
            row.flags |= QUEUED;
            self.queue.push_back(token);
        }
    }

    /// Records that the registration of a slot may be out of date.
    fn note_change(&mut self, token: Token) {
        let row = self.sources.get_mut(token).expect(LIVE);
        let settled = P::EDGE && row.registered & REGISTERED != 0;
        if !settled && row.flags & CHANGED == 0 {
            row.flags |= CHANGED;
            self.changed.push(token);
        }
    }

    /// Updates the poller's registrations before the wait.
    fn register(&mut self) {
        for position in 0..self.changed.len() {
            let token = self.changed[position];
            // Sources closed since then need no update.
            let Some(row) = self.sources.get_mut(token) else { continue };
            row.flags &= !CHANGED;
            let flags = row.flags;
            let interest = Interest {
                read: flags & ARMED != 0 && flags & ENDED == 0,
                write: flags & (BLOCKED | CONNECTING) != 0
                    && !(FileFlight::EXISTS && self.sends.get(row.link).is_some_and(Sending::is_in_flight)),
                hangup: flags & (ENDED | HINTED) == 0 && row.kind == ReadySourceKind::Stream,
            };
            let (current, narrow) = (row.registered & !NARROW, row.registered & NARROW);
            let wanted = interest != Interest::default() || P::EDGE && current & REGISTERED != 0;
            let target = if wanted {
                REGISTERED
                    | if interest.read { REGISTERED_READ } else { 0 }
                    | if interest.write { REGISTERED_WRITE } else { 0 }
                    | if interest.hangup { REGISTERED_HANGUP } else { 0 }
            } else {
                0
            };
            if current == target {
                continue;
            }
            row.registered = target | narrow;
            let result = match (current & REGISTERED != 0, wanted) {
                (false, true) => self.poller.add(row.handle(), token, interest),
                (true, true) => self.poller.modify(row.handle(), token, interest),
                (_, false) => {
                    self.poller.remove(row.handle(), token, false);
                    Ok(())
                }
            };
            if let Err(error) = result {
                row.registered = narrow;
                row.flags &= !ARMED;
                let op = if row.kind == ReadySourceKind::Listener { OpKind::Accept } else { OpKind::Recv };
                self.done.push_back(failed(token, op, error.into()));
            }
        }
        self.changed.clear();
    }

    /// Records the readiness that the poller reports. Returns whether this gives the source work.
    fn note_ready(row: &mut ReadySource, ready: Ready) -> bool {
        if ready.read || ready.hangup || ready.error {
            row.flags |= READABLE;
        }
        if ready.hangup {
            row.flags |= HANGUP;
        }
        if ready.error {
            row.flags |= BROKEN;
        }
        if net::WRITABLE_MEANS_CONNECTED
            && ready.write
            && row.flags & (CONNECTING | HANGUP | BROKEN) == CONNECTING
        {
            row.flags |= CONNECTED;
        }
        let mut work = reading_due(row.flags);
        if row.flags & (BLOCKED | CONNECTING) != 0 && (ready.write || ready.hangup || ready.error) {
            row.flags &= !BLOCKED;
            work = true;
        }
        work
    }

    /// Serves the source at the head of the queue, with at most one event.
    fn serve(&mut self, token: Token) -> ReadyOutcome {
        let Some(row) = self.sources.get_mut(token) else { return ReadyOutcome::Nothing };
        row.flags &= !QUEUED;
        match row.kind {
            ReadySourceKind::Bell => {
                if self.wake.clear() {
                    self.returns.take(&mut self.returned);
                    ReadyOutcome::Event(Event::Woken)
                } else {
                    ReadyOutcome::Nothing
                }
            }
            ReadySourceKind::Watched => {
                if row.flags & (ARMED | READABLE) != ARMED | READABLE {
                    return ReadyOutcome::Nothing;
                }
                // The owner reads until nothing is left, so that an edge will report the next data.
                row.flags &= !READABLE;
                ReadyOutcome::Event(Event::Watched { token })
            }
            ReadySourceKind::Listener => self.accept(token),
            ReadySourceKind::Stream => self.serve_stream(token),
        }
    }

    fn accept(&mut self, listener: Token) -> ReadyOutcome {
        let row = self.sources.get_mut(listener).expect(LIVE);
        if row.flags & (ARMED | READABLE) != ARMED | READABLE {
            return ReadyOutcome::Nothing;
        }
        match net::accept(row.handle()) {
            Ok((handle, peer)) => {
                self.enqueue(listener);
                // A new connection has often sent its request already, so the first receive is tried at once.
                let token =
                    self.sources.insert(ReadySource::new(Some(handle), ReadySourceKind::Stream, READABLE));
                ReadyOutcome::Event(Event::Accepted { listener, token, peer })
            }
            Err(WOULD_BLOCK) => {
                row.flags &= !READABLE;
                ReadyOutcome::Nothing
            }
            Err(error) if net::failed_before_accept(error) => {
                self.enqueue(listener);
                ReadyOutcome::Nothing
            }
            Err(error) => {
                // The listener's queue still has connections: READABLE stays set, and arming again tries again.
                row.flags &= !ARMED;
                self.note_change(listener);
                ReadyOutcome::Event(failed(listener, OpKind::Accept, error.into()))
            }
        }
    }

    fn serve_stream(&mut self, token: Token) -> ReadyOutcome {
        let row = self.sources.get_mut(token).expect(LIVE);
        if row.flags & CONNECTING != 0 {
            return self.finish_connect(token);
        }
        let sending_due = row.link != NONE && row.flags & BLOCKED == 0;
        let reading_due = reading_due(row.flags);
        if sending_due && reading_due {
            // Alternate, so that neither an endless download nor an endless upload blocks the other.
            row.flags ^= SENT_LAST;
            self.enqueue(token);
        }
        let row = self.sources.get_mut(token).expect(LIVE);
        if sending_due && (!reading_due || row.flags & SENT_LAST != 0) {
            self.continue_send(token);
            return ReadyOutcome::Nothing;
        }
        if !reading_due {
            return ReadyOutcome::Nothing;
        }
        if row.flags & ARMED == 0 {
            row.flags |= HINTED;
            let broken = row.flags & BROKEN != 0;
            if broken {
                row.flags |= ENDED;
            }
            self.note_change(token);
            return ReadyOutcome::Event(if broken {
                failed(token, OpKind::Recv, OpError::Reset)
            } else {
                Event::PeerClosed { token, behind_data: true }
            });
        }
        let most = if row.registered & NARROW == 0 { LEASE_BYTES_MAX } else { NARROW_LEASE_BYTES };
        match net::receive(row.handle(), &mut self.scratch[..most], row.flags & BROKEN != 0) {
            Ok(0) => {
                row.flags = row.flags & !ARMED | ENDED | OVER;
                self.note_change(token);
                ReadyOutcome::Event(Event::PeerClosed { token, behind_data: false })
            }
            Ok(len) => {
                if len < most && row.flags & (HANGUP | BROKEN) == 0 {
                    // A short read has emptied the socket. A second call would only return EAGAIN (epoll(7), Q9).
                    row.flags &= !READABLE;
                } else {
                    self.enqueue(token);
                }
                ReadyOutcome::Received(token, len)
            }
            Err(WOULD_BLOCK) => {
                row.flags &= !READABLE;
                ReadyOutcome::Nothing
            }
            Err(INTERRUPTED) => {
                self.enqueue(token);
                ReadyOutcome::Nothing
            }
            Err(error) => {
                row.flags = row.flags & !ARMED | ENDED;
                self.note_change(token);
                ReadyOutcome::Event(failed(token, OpKind::Recv, error.into()))
            }
        }
    }

    fn finish_connect(&mut self, token: Token) -> ReadyOutcome {
        let row = self.sources.get_mut(token).expect(LIVE);
        let outcome = if row.flags & CONNECTED != 0 {
            Ok(())
        } else {
            let Some(outcome) = net::connected(row.handle()) else {
                row.flags &= !(READABLE | HANGUP | BROKEN);
                return ReadyOutcome::Nothing;
            };
            outcome
        };
        // Other flags stay set: the edge that reported the outcome may also have reported the first bytes.
        row.flags &= !(CONNECTING | CONNECTED);
        if outcome.is_err() {
            row.flags |= ENDED;
        }
        self.note_change(token);
        ReadyOutcome::Event(match outcome {
            Ok(()) => Event::Connected { token },
            Err(error) => failed(token, OpKind::Connect, error.into()),
        })
    }

    fn start_send(&mut self, token: Token, send: Send) {
        let row = self.sources.get_mut(token).expect(LIVE);
        assert!(row.kind == ReadySourceKind::Stream && row.link == NONE, "one send at a time, on a stream");
        if row.flags & NAGLE != 0 {
            if row.flags & UNSENT == 0 || !is_one_segment(&send) {
                net::send_at_once(row.handle());
                row.flags &= !NAGLE;
            }
            row.flags &= !UNSENT;
        }
        // Most sends are one buffer that the kernel accepts whole. They need no `Sending`.
        let mut taken = 0;
        if let [segment] = &send.segments[..]
            && let Some(bytes) = segment.memory()
            && !send.more
            && let Ok(sent) = net::send(row.handle(), bytes, false)
        {
            taken = sent as u64;
            if sent == bytes.len() {
                self.done.push_back(Event::Sent { token, bytes: taken, segments: send.segments });
                return;
            }
        }
        let mut sending = Sending::new(send);
        sending.skip(taken);
        match sending.advance(row.handle(), self.poller.file_sender(token), &mut self.scratch) {
            SendStep::Done => self.done.push_back(sending.ended(token, Ok(()))),
            SendStep::Failed(fault) => self.done.push_back(sending.ended(token, Err(fault))),
            step @ (SendStep::Blocked | SendStep::Yielded) => {
                row.link = self.sends.insert(sending);
                self.put_off(token, &step);
            }
        }
    }

    fn continue_send(&mut self, token: Token) {
        let row = self.sources.get_mut(token).expect(LIVE);
        let sending = self.sends.get_mut(row.link).expect("a place's link names its send");
        match sending.advance(row.handle(), self.poller.file_sender(token), &mut self.scratch) {
            SendStep::Done => self.end_send(token, Ok(())),
            SendStep::Failed(fault) => self.end_send(token, Err(fault)),
            step @ (SendStep::Blocked | SendStep::Yielded) => self.put_off(token, &step),
        }
    }

    /// Removes the send in flight from its source, then performs a shutdown that was waiting for it.
    fn end_send(&mut self, token: Token, result: Result<(), OpError>) {
        let row = self.sources.get_mut(token).expect(LIVE);
        let link = std::mem::replace(&mut row.link, NONE);
        let finishing = row.flags & FINISHING != 0;
        row.flags &= !(BLOCKED | FINISHING);
        let sending = self.sends.remove(link).expect("a place's link names its send");
        self.done.push_back(sending.ended(token, result));
        self.note_change(token);
        if finishing {
            self.shutdown(token);
        }
    }

    fn put_off(&mut self, token: Token, step: &SendStep) {
        if matches!(step, SendStep::Blocked) {
            self.sources.get_mut(token).expect(LIVE).flags |= BLOCKED;
            self.note_change(token);
        } else {
            self.enqueue(token);
        }
    }

    fn connect(&mut self, token: Token, peer: std::net::SocketAddr) {
        let row = self.sources.get_mut(token).expect(LIVE);
        row.flags |= NAGLE | UNSENT;
        match net::connect(row.handle(), &peer) {
            Ok(true) => self.done.push_back(Event::Connected { token }),
            Ok(false) => {
                row.flags = row.flags & !READABLE | CONNECTING;
                self.note_change(token);
            }
            Err(error) => self.done.push_back(failed(token, OpKind::Connect, error.into())),
        }
    }

    fn cancel(&mut self, token: Token) {
        let row = self.sources.get_mut(token).expect(LIVE);
        if row.flags & CONNECTING != 0 {
            row.flags = row.flags & !(CONNECTING | CONNECTED) | ENDED;
            self.note_change(token);
            self.done.push_back(failed(token, OpKind::Connect, OpError::Canceled));
        } else if row.link != NONE {
            if FileFlight::EXISTS {
                self.sends.get_mut(row.link).expect("a place's link names its send").halt();
            }
            self.end_send(token, Err(OpError::Canceled));
        }
    }

    fn shutdown(&mut self, token: Token) {
        let row = self.sources.get_mut(token).expect(LIVE);
        if row.link != NONE {
            row.flags |= FINISHING;
            return;
        }
        if let Err(error) = net::end_sending(row.handle()) {
            self.done.push_back(failed(token, OpKind::Shutdown, error.into()));
        }
    }

    fn close(&mut self, token: Token, how: CloseOp) {
        self.sources.outdate(token.index);
        let row = self.sources.remove(token.index);
        let handle = row.handle.expect("the bell's token is nobody's to close");
        let is_kept = how == CloseOp::Recycle
            && row.flags & OVER != 0
            && row.link == NONE
            && self.spares.len() < SPARES_MAX
            && net::disconnect(net::borrowed(&handle));
        if FileFlight::EXISTS
            && let Some(sending) = self.sends.get_mut(row.link)
        {
            sending.halt();
        }
        // The report of a file in flight clears `registered`, but leaves the registration of a one-shot poller.
        if row.registered & REGISTERED != 0 || P::ONE_SHOT {
            // Listeners and watched descriptors may have duplicates elsewhere, which keep them in epoll's set.
            let closing = row.kind == ReadySourceKind::Stream && !is_kept;
            self.poller.remove(net::borrowed(&handle), token, closing);
        }
        if how == CloseOp::Abort {
            net::reset_on_close(net::borrowed(&handle));
        }
        if is_kept {
            self.spares.push(Stream { handle });
        } else {
            drop(handle);
        }
        let segments = self.sends.remove(row.link).map_or_else(Vec::new, Sending::into_segments);
        self.done.push_back(Event::Closed { token, segments });
    }
}

fn unavailable<P: Poller>(error: SysError) -> Unavailable {
    Unavailable::new(P::BACKEND, error.into(), "")
}

/// The reason why tokens used internally are valid.
const LIVE: &str = "tokens are checked where they come in";

fn failed(token: Token, op: OpKind, fault: OpError) -> Event<'static> {
    Event::Failed { token, op, fault, sent: 0, segments: Vec::new() }
}

impl<P: Poller> Reactor for Readiness<P> {
    fn backend(&self) -> Backend {
        P::BACKEND
    }

    fn adopt(&mut self, source: ReactorSource) -> Result<Token, OpError> {
        // No read was tried yet, so a listener or stream may be readable. The owner of a watched descriptor reads by itself.
        let (handle, kind, flags) = match source {
            ReactorSource::Listener(listener) => (listener.handle, ReadySourceKind::Listener, READABLE),
            ReactorSource::Stream(stream) => (stream.handle, ReadySourceKind::Stream, READABLE),
            ReactorSource::Watched(watched) => (watched.handle, ReadySourceKind::Watched, 0),
        };
        Ok(self.sources.insert(ReadySource::new(Some(handle), kind, flags)))
    }

    fn submit(&mut self, token: Token, op: Op) {
        self.is_read = false;
        if let Op::Offload(job) = op {
            self.jobs += 1;
            if let Err(refused) = self.pool.submit(job, &self.returns) {
                self.returned.push_back((refused.key, None));
            }
            return;
        }
        let Some(row) = self.sources.get_mut(token) else { return };
        match op {
            Op::Accept | Op::Recv | Op::Watch => {
                if row.flags & ENDED == 0 {
                    row.flags |= ARMED;
                    let readable = row.flags & READABLE != 0;
                    self.note_change(token);
                    if readable {
                        self.enqueue(token);
                    }
                }
            }
            Op::Pause => {
                row.flags &= !ARMED;
                let hangup = row.flags & (HANGUP | ENDED | HINTED) == HANGUP;
                self.note_change(token);
                if hangup {
                    self.enqueue(token);
                }
            }
            // Without the filter a few connection attempts may be reset, which is acceptable at the end.
            Op::Retire => net::refuse_new(row.handle()),
            Op::Tune(_) if row.kind == ReadySourceKind::Listener && !net::INHERITS_TUNING => {}
            Op::Tune(tuning) => net::tune(row.handle(), tuning),
            Op::Lend(LendLimit::Narrow) => row.registered |= NARROW,
            Op::Lend(LendLimit::Wide) => row.registered &= !NARROW,
            Op::Connect(peer) => self.connect(token, peer),
            Op::Send(send) => self.start_send(token, send),
            Op::Shutdown => self.shutdown(token),
            Op::Cancel => self.cancel(token),
            Op::Close => self.close(token, CloseOp::Close),
            Op::Recycle => self.close(token, CloseOp::Recycle),
            Op::Abort => self.close(token, CloseOp::Abort),
            Op::Offload(_) => unreachable!("returned above"),
        }
    }

    fn wait(&mut self, until: Option<u64>) -> Result<Now, OpError> {
        self.register();
        let busy = !(self.queue.is_empty() && self.done.is_empty() && self.returned.is_empty());
        let timeout = if busy {
            Some(Duration::ZERO)
        } else {
            // Measured from now, not from the start of the turn, so that a long turn does not delay the timers.
            let now = if self.is_read { self.now } else { self.clock.now() };
            until.map(|until| Duration::from_nanos(until.saturating_sub(now.mono_ns)))
        };
        let (places, queue, changed) = (&mut self.sources, &mut self.queue, &mut self.changed);
        self.poller.wait(timeout, |token, ready| {
            let Some(row) = places.get_mut(token) else { return };
            if P::ONE_SHOT {
                row.registered &= NARROW;
                if row.flags & CHANGED == 0 {
                    row.flags |= CHANGED;
                    changed.push(token);
                }
            }
            let work = Self::note_ready(row, ready) || row.kind == ReadySourceKind::Bell;
            if work && row.flags & QUEUED == 0 {
                row.flags |= QUEUED;
                // Watched descriptors go first, so that a request sent after a file was changed sees the change.
                match row.kind {
                    ReadySourceKind::Watched => queue.push_front(token),
                    _ => queue.push_back(token),
                }
            }
        })?;
        self.now = self.clock.now();
        self.is_read = false;
        Ok(self.now)
    }

    fn spare(&mut self) -> Option<Stream> {
        self.spares.pop()
    }

    fn next(&mut self) -> Option<Event<'_>> {
        loop {
            if let Some(event) = self.done.pop_front() {
                if let Event::Closed { token, .. } = event {
                    self.sources.release(token.index);
                }
                return Some(event);
            }
            if let Some((key, done)) = self.returned.pop_front() {
                self.jobs -= 1;
                return Some(Event::Offloaded { key, done });
            }
            let token = self.queue.pop_front()?;
            match self.serve(token) {
                ReadyOutcome::Nothing => {}
                ReadyOutcome::Event(event) => return Some(event),
                ReadyOutcome::Received(token, len) => {
                    return Some(Event::Received { token, lease: &mut self.scratch[..len] });
                }
            }
        }
    }

    fn now(&mut self) -> Now {
        self.now = self.clock.now();
        self.is_read = true;
        self.now
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn unsent(&self, token: Token) -> u64 {
        let row = self.sources.get(token);
        row.and_then(|row| self.sends.get(row.link)).map_or(0, Sending::unsent)
    }

    fn unacknowledged(&self, token: Token) -> u64 {
        let row = self.sources.get(token).filter(|row| row.kind == ReadySourceKind::Stream);
        row.map_or(0, |row| net::unacknowledged(row.handle()))
    }

    fn buffered(&self, token: Token) -> Option<u64> {
        let row = self.sources.get(token).filter(|row| row.kind == ReadySourceKind::Stream)?;
        net::buffered(row.handle())
    }

    fn facts(&self, token: Token) -> Option<StreamFacts> {
        let row = self.sources.get(token).filter(|row| row.kind == ReadySourceKind::Stream)?;
        Some(stream_facts(row.handle()))
    }

    fn listen_drops(&self, listener: Token) -> Option<u32> {
        let row = self.sources.get(listener).filter(|row| row.kind == ReadySourceKind::Listener)?;
        net::drops(row.handle())
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy { sources: self.sources.len() - 1, sends: self.sends.len(), jobs: self.jobs, leases: 0 }
    }
}

/// The outcome of serving a source.
enum ReadyOutcome {
    Nothing,
    Event(Event<'static>),
    /// The number of bytes received into the scratch buffer.
    Received(Token, usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_costs_sixteen_bytes() {
        // A handle of 8 bytes is aligned to them.
        let expected = if size_of::<Handle>() == 4 { 16 } else { 24 };
        assert_eq!(size_of::<crate::places::PlacesRow<ReadySource>>(), expected);
    }
}
