//! The reactor over readiness: try at once, and where that would block, wait until the poller says it will not.
//!
//! ```text
//! submit(Recv) ─► ARMED ─┬─ poller: readable ─► READABLE, queued ─► next(): recv into the scratch ─► Received
//!                        │                          ▲                  │ buffer full: queued again, at the end
//!                        └──────────────────────────┴── short read ◄───┘
//! submit(Send) ─► tried at once ─┬─ all taken ─► Sent
//!                                ├─ would block ─► BLOCKED ── poller: writable ─► queued ─► tried again
//!                                └─ quantum used up ─► queued again, at the end
//! ```
//!
//! A source that has work stands in one queue, once; each `next` serves its head. So one busy connection gets
//! one piece of work a round, whatever the trigger.
//!
//! Registration with the poller is put off until `wait`: a connection that is accepted, answered and closed
//! within a turn is never registered, and pausing and resuming within a turn costs no system call.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Duration;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self as sys, RecvFlags, SendFlags, Shutdown, sockopt};

use crate::clock::{Clock, Now};
use crate::fault::Fault;
use crate::offload::{Pool, Returns};
use crate::op::{Done, Event, Op, OpKind, Segment, Send, Token};
use crate::poller::{Interest, Poller, Ready};
use crate::reactor::{Backend, LEASE_BYTES_MAX, Occupancy, Reactor, SEND_QUANTUM, Source, Unavailable};
use crate::slab::Slab;
use crate::socket;
use crate::wake::{self, Waker};

/// Slices handed to one sendmsg(2); Linux takes up to 1,024.
const SLICES: usize = 32;

/// A reactor that tries operations itself when `P` says that they will not block.
pub struct Readiness<P> {
    poller: P,
    places: Vec<Place>,
    /// Free places, through `Place::link`.
    free: u32,
    used: usize,
    sends: Slab<Sending>,
    /// Places with work, each at most once.
    queue: VecDeque<u32>,
    /// Completions that are not delivered yet; each comes before any further work.
    done: VecDeque<Event<'static>>,
    /// Sources whose registration with the poller may have to change.
    changed: Vec<Token>,
    scratch: Box<[u8]>,
    bell: wake::Listener,
    pool: Pool,
    returns: std::sync::Arc<Returns>,
    returned: VecDeque<(u64, Option<Done>)>,
    jobs: usize,
    clock: Clock,
    now: Now,
}

/// The first place is the bell's, so that a wake is an event like any other.
const BELL: u32 = 0;
const NONE: u32 = u32::MAX;

/// A source, or room for one. 16 bytes: with the connection's slot and its timer, all that an idle connection
/// costs.
struct Place {
    descriptor: Option<OwnedFd>,
    generation: u32,
    /// In a used place the send in flight, in a free one the next free place; else `NONE`.
    link: u32,
    flags: u16,
    kind: Kind,
    registered: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Free,
    Bell,
    Listener,
    Stream,
    Watched,
}

/// `Accept`, `Recv` or `Watch` is armed.
const ARMED: u16 = 1;
/// Reading may find something: the poller said so, or nobody has looked yet.
const READABLE: u16 = 1 << 1;
/// The send in flight waits for room.
const BLOCKED: u16 = 1 << 2;
/// The poller has seen the peer's end.
const HANGUP: u16 = 1 << 3;
/// There is nothing more to be told of reading: the end was delivered, or reading or connecting has failed.
const ENDED: u16 = 1 << 4;
/// The end was announced while receiving was paused.
const HINTED: u16 = 1 << 5;
/// Stands in `queue`.
const QUEUED: u16 = 1 << 6;
/// Stands in `changed`.
const CHANGED: u16 = 1 << 7;
/// A connect is in flight.
const CONNECTING: u16 = 1 << 8;
/// An error is pending on the socket.
const BROKEN: u16 = 1 << 9;
/// Our side is shut down once the send in flight has ended.
const FINISHING: u16 = 1 << 10;
/// The send in flight had the last turn; what is to be read has the next.
const SENT_LAST: u16 = 1 << 11;

/// Whether reading may find something that somebody wants, or an end is to be announced.
const fn reading_due(flags: u16) -> bool {
    let wanted = flags & (ARMED | READABLE) == ARMED | READABLE;
    wanted || flags & (ARMED | ENDED | HINTED) == 0 && flags & (HANGUP | BROKEN) != 0
}

/// Bits of `Place::registered`: what the poller was told.
const TOLD: u8 = 1;
const TOLD_READ: u8 = 2;
const TOLD_WRITE: u8 = 4;
const TOLD_HANGUP: u8 = 8;

/// A send in flight: everything before `segment` is sent, and `offset` bytes of it.
struct Sending {
    segments: Vec<Segment>,
    more: bool,
    segment: usize,
    offset: u64,
    sent: u64,
}

/// How far a send got.
enum Step {
    Done,
    Blocked,
    Yielded,
    Failed(Fault),
}

impl<P: Poller> Readiness<P> {
    /// A reactor whose blocking jobs go to `pool`.
    ///
    /// # Errors
    /// The system lacks the back end, or is out of descriptors.
    pub fn new(pool: Pool) -> Result<Self, Unavailable> {
        let unavailable = |errno: Errno| Unavailable::new(P::BACKEND, &errno.into(), "");
        let bell = wake::Listener::new().map_err(unavailable)?;
        let mut poller = P::new().map_err(unavailable)?;
        let token = Token { index: BELL, generation: 0 };
        let interest = Interest { read: true, write: false, hangup: false };
        poller.add(bell.descriptor().as_fd(), token, interest).map_err(unavailable)?;
        let mut clock = Clock::new();
        Ok(Self {
            poller,
            places: vec![Place {
                descriptor: None,
                generation: 0,
                link: NONE,
                flags: 0,
                kind: Kind::Bell,
                registered: TOLD,
            }],
            free: NONE,
            used: 0,
            sends: Slab::new(),
            queue: VecDeque::new(),
            done: VecDeque::new(),
            changed: Vec::new(),
            scratch: vec![0; LEASE_BYTES_MAX].into_boxed_slice(),
            returns: Returns::new(bell.waker()),
            bell,
            pool,
            returned: VecDeque::new(),
            jobs: 0,
            now: clock.now(),
            clock,
        })
    }

    fn place(&mut self, token: Token) -> Option<&mut Place> {
        let place = self.places.get_mut(token.index as usize)?;
        (place.generation == token.generation && place.kind != Kind::Free).then_some(place)
    }

    fn take_place(&mut self, descriptor: OwnedFd, kind: Kind, flags: u16) -> Token {
        self.used += 1;
        let place =
            Place { descriptor: Some(descriptor), generation: 0, link: NONE, flags, kind, registered: 0 };
        if self.free == NONE {
            self.places.push(place);
            return Token { index: (self.places.len() - 1) as u32, generation: 0 };
        }
        let index = self.free;
        let vacant = &mut self.places[index as usize];
        self.free = vacant.link;
        let generation = vacant.generation;
        let queued = vacant.flags & QUEUED;
        *vacant = Place { generation, flags: flags | queued, ..place };
        Token { index, generation }
    }

    /// Puts a place with work at the end of the queue, unless it stands there.
    fn enqueue(&mut self, index: u32) {
        let place = &mut self.places[index as usize];
        if place.flags & QUEUED == 0 {
            place.flags |= QUEUED;
            self.queue.push_back(index);
        }
    }

    /// Notes that what the poller was told about a place may be out of date.
    fn note_change(&mut self, token: Token) {
        let place = &mut self.places[token.index as usize];
        let settled = P::EDGE && place.registered & TOLD != 0;
        if !settled && place.flags & CHANGED == 0 {
            place.flags |= CHANGED;
            self.changed.push(token);
        }
    }

    /// Brings the poller up to date before the wait.
    fn register(&mut self) {
        for position in 0..self.changed.len() {
            let token = self.changed[position];
            let Some(place) = self.place(token) else { continue };
            place.flags &= !CHANGED;
            let flags = place.flags;
            let interest = Interest {
                read: flags & ARMED != 0 && flags & ENDED == 0,
                write: flags & (BLOCKED | CONNECTING) != 0,
                hangup: flags & (ENDED | HINTED) == 0 && place.kind == Kind::Stream,
            };
            let told = place.registered;
            let wanted = interest != Interest::default() || P::EDGE && told & TOLD != 0;
            let telling = if wanted {
                TOLD | if interest.read { TOLD_READ } else { 0 }
                    | if interest.write { TOLD_WRITE } else { 0 }
                    | if interest.hangup { TOLD_HANGUP } else { 0 }
            } else {
                0
            };
            if told == telling {
                continue;
            }
            place.registered = telling;
            let descriptor = place.descriptor.take().expect("a used place holds its descriptor");
            let result = match (told & TOLD != 0, wanted) {
                (false, true) => self.poller.add(descriptor.as_fd(), token, interest),
                (true, true) => self.poller.modify(descriptor.as_fd(), token, interest),
                (_, false) => {
                    self.poller.remove(descriptor.as_fd(), token, false);
                    Ok(())
                }
            };
            let place = &mut self.places[token.index as usize];
            place.descriptor = Some(descriptor);
            if let Err(errno) = result {
                place.registered = 0;
                place.flags &= !ARMED;
                let op = if place.kind == Kind::Listener { OpKind::Accept } else { OpKind::Recv };
                self.done.push_back(failed(token, op, errno.into()));
            }
        }
        self.changed.clear();
    }

    /// What the poller reports becomes work, if somebody wants it.
    fn note_ready(place: &mut Place, ready: Ready) -> bool {
        if ready.read || ready.hangup || ready.error {
            place.flags |= READABLE;
        }
        if ready.hangup {
            place.flags |= HANGUP;
        }
        if ready.error {
            place.flags |= BROKEN;
        }
        let mut work = reading_due(place.flags);
        if place.flags & (BLOCKED | CONNECTING) != 0 && (ready.write || ready.hangup || ready.error) {
            place.flags &= !BLOCKED;
            work = true;
        }
        work
    }

    /// Serves the place at the head of the queue: at most one event.
    fn serve(&mut self, index: u32) -> Served {
        let place = &mut self.places[index as usize];
        place.flags &= !QUEUED;
        let token = Token { index, generation: place.generation };
        match place.kind {
            Kind::Free => Served::Nothing,
            Kind::Bell => {
                if self.bell.silence() {
                    self.returns.take(&mut self.returned);
                    Served::Event(Event::Woken)
                } else {
                    Served::Nothing
                }
            }
            Kind::Watched => {
                if place.flags & (ARMED | READABLE) != ARMED | READABLE {
                    return Served::Nothing;
                }
                // The owner reads until nothing is left, so that an edge will tell the next time.
                place.flags &= !READABLE;
                Served::Event(Event::Watched { token })
            }
            Kind::Listener => self.accept(token),
            Kind::Stream => self.serve_stream(token),
        }
    }

    fn accept(&mut self, listener: Token) -> Served {
        let place = &mut self.places[listener.index as usize];
        if place.flags & (ARMED | READABLE) != ARMED | READABLE {
            return Served::Nothing;
        }
        let descriptor = place.descriptor.as_ref().expect("a used place holds its descriptor");
        match socket::accept(descriptor.as_fd()) {
            Ok((descriptor, peer)) => {
                self.enqueue(listener.index);
                // A client that has connected has often sent its request: the first receive is tried at once.
                let token = self.take_place(descriptor, Kind::Stream, READABLE);
                Served::Event(Event::Accepted { listener, token, peer })
            }
            Err(Errno::AGAIN) => {
                place.flags &= !READABLE;
                Served::Nothing
            }
            // That one connection failed before it was taken (accept(2), "Error handling").
            Err(
                Errno::CONNABORTED
                | Errno::INTR
                | Errno::PROTO
                | Errno::NETDOWN
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::OPNOTSUPP
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::PERM,
            ) => {
                self.enqueue(listener.index);
                Served::Nothing
            }
            Err(errno) => {
                // The queue is still full of connections: READABLE stays, and arming again tries again.
                place.flags &= !ARMED;
                self.note_change(listener);
                Served::Event(failed(listener, OpKind::Accept, errno.into()))
            }
        }
    }

    fn serve_stream(&mut self, token: Token) -> Served {
        let place = &mut self.places[token.index as usize];
        if place.flags & CONNECTING != 0 {
            return self.finish_connect(token);
        }
        let sending_due = place.link != NONE && place.flags & BLOCKED == 0;
        let reading_due = reading_due(place.flags);
        if sending_due && reading_due {
            // By turns: neither an endless download nor an endless upload holds up the other.
            place.flags ^= SENT_LAST;
            self.enqueue(token.index);
        }
        let place = &mut self.places[token.index as usize];
        if sending_due && (!reading_due || place.flags & SENT_LAST != 0) {
            self.continue_send(token);
            return Served::Nothing;
        }
        if !reading_due {
            return Served::Nothing;
        }
        if place.flags & ARMED == 0 {
            place.flags |= HINTED;
            let broken = place.flags & BROKEN != 0;
            if broken {
                place.flags |= ENDED;
            }
            self.note_change(token);
            return Served::Event(if broken {
                failed(token, OpKind::Recv, Fault::Reset)
            } else {
                Event::PeerClosed { token, behind_data: true }
            });
        }
        let descriptor = place.descriptor.as_ref().expect("a used place holds its descriptor");
        match sys::recv(descriptor, &mut self.scratch[..], RecvFlags::empty()) {
            Ok((0, _)) => {
                place.flags = place.flags & !ARMED | ENDED;
                self.note_change(token);
                Served::Event(Event::PeerClosed { token, behind_data: false })
            }
            Ok((len, _)) => {
                if len < LEASE_BYTES_MAX && place.flags & (HANGUP | BROKEN) == 0 {
                    // A short read has emptied the socket: no second call only to see EAGAIN (epoll(7), Q9).
                    place.flags &= !READABLE;
                } else {
                    self.enqueue(token.index);
                }
                Served::Received(token, len)
            }
            Err(Errno::AGAIN) => {
                place.flags &= !READABLE;
                Served::Nothing
            }
            Err(Errno::INTR) => {
                self.enqueue(token.index);
                Served::Nothing
            }
            Err(errno) => {
                place.flags = place.flags & !ARMED | ENDED;
                self.note_change(token);
                Served::Event(failed(token, OpKind::Recv, errno.into()))
            }
        }
    }

    fn finish_connect(&mut self, token: Token) -> Served {
        let place = &mut self.places[token.index as usize];
        let descriptor = place.descriptor.as_ref().expect("a used place holds its descriptor");
        let outcome = match sockopt::socket_error(descriptor) {
            Ok(Ok(())) => match sys::getpeername(descriptor) {
                Ok(_) => Ok(()),
                // Woken without an outcome (a hang-up before connect(2), see epoll(7)): wait on.
                Err(Errno::NOTCONN) => {
                    place.flags &= !(READABLE | HANGUP | BROKEN);
                    return Served::Nothing;
                }
                Err(errno) => Err(errno),
            },
            Ok(Err(errno)) | Err(errno) => Err(errno),
        };
        // What else was seen stays: an edge that brought the outcome may have brought the first bytes, too.
        place.flags &= !CONNECTING;
        if outcome.is_err() {
            place.flags |= ENDED;
        }
        self.note_change(token);
        Served::Event(match outcome {
            Ok(()) => Event::Connected { token },
            Err(errno) => failed(token, OpKind::Connect, errno.into()),
        })
    }

    fn start_send(&mut self, token: Token, Send { segments, more }: Send) {
        let place = &mut self.places[token.index as usize];
        assert!(place.kind == Kind::Stream && place.link == NONE, "one send at a time, on a stream");
        let mut sending = Sending { segments, more, segment: 0, offset: 0, sent: 0 };
        let descriptor = place.descriptor.as_ref().expect("a used place holds its descriptor");
        let step = sending.advance(descriptor.as_fd(), &mut self.scratch);
        match step {
            Step::Done => {
                let Sending { segments, sent, .. } = sending;
                self.done.push_back(Event::Sent { token, bytes: sent, segments });
            }
            Step::Blocked | Step::Yielded => {
                self.places[token.index as usize].link = self.sends.insert(sending);
                self.put_off(token, &step);
            }
            Step::Failed(fault) => self.done.push_back(sending.failed(token, fault)),
        }
    }

    fn continue_send(&mut self, token: Token) {
        let place = &mut self.places[token.index as usize];
        let link = place.link;
        let sending = self.sends.get_mut(link).expect("a place's link names its send");
        let descriptor = place.descriptor.as_ref().expect("a used place holds its descriptor");
        let step = sending.advance(descriptor.as_fd(), &mut self.scratch);
        match step {
            Step::Blocked | Step::Yielded => self.put_off(token, &step),
            Step::Done | Step::Failed(_) => {
                place.link = NONE;
                self.note_change(token);
                let sending = self.sends.remove(link).expect("looked up above");
                self.finish(token);
                self.done.push_back(match step {
                    Step::Failed(fault) => sending.failed(token, fault),
                    _ => Event::Sent { token, bytes: sending.sent, segments: sending.segments },
                });
            }
        }
    }

    fn put_off(&mut self, token: Token, step: &Step) {
        if matches!(step, Step::Blocked) {
            self.places[token.index as usize].flags |= BLOCKED;
            self.note_change(token);
        } else {
            self.enqueue(token.index);
        }
    }

    fn connect(&mut self, token: Token, peer: std::net::SocketAddr) {
        let place = &mut self.places[token.index as usize];
        let descriptor = place.descriptor.as_ref().expect("a used place holds its descriptor");
        match sys::connect(descriptor, &peer) {
            Ok(()) => self.done.push_back(Event::Connected { token }),
            Err(Errno::INPROGRESS | Errno::INTR) => {
                place.flags = place.flags & !READABLE | CONNECTING;
                self.note_change(token);
            }
            Err(errno) => self.done.push_back(failed(token, OpKind::Connect, errno.into())),
        }
    }

    fn cancel(&mut self, token: Token) {
        let place = &mut self.places[token.index as usize];
        if place.flags & CONNECTING != 0 {
            place.flags = place.flags & !CONNECTING | ENDED;
            self.note_change(token);
            self.done.push_back(failed(token, OpKind::Connect, Fault::Canceled));
        } else if place.link != NONE {
            let link = std::mem::replace(&mut place.link, NONE);
            place.flags &= !BLOCKED;
            self.note_change(token);
            let sending = self.sends.remove(link).expect("a place's link names its send");
            self.finish(token);
            self.done.push_back(sending.failed(token, Fault::Canceled));
        }
    }

    /// Shuts our side down if that was asked for while a send was in flight.
    fn finish(&mut self, token: Token) {
        let place = &mut self.places[token.index as usize];
        if place.flags & FINISHING != 0 {
            place.flags &= !FINISHING;
            self.shutdown(token);
        }
    }

    fn shutdown(&mut self, token: Token) {
        let place = &mut self.places[token.index as usize];
        if place.link != NONE {
            place.flags |= FINISHING;
            return;
        }
        let descriptor = place.descriptor.as_ref().expect("a used place holds its descriptor");
        if let Err(errno) = sys::shutdown(descriptor, Shutdown::Write) {
            self.done.push_back(failed(token, OpKind::Shutdown, errno.into()));
        }
    }

    fn close(&mut self, token: Token, abort: bool) {
        let place = &mut self.places[token.index as usize];
        let descriptor = place.descriptor.take().expect("a used place holds its descriptor");
        let told = place.registered & TOLD != 0;
        let link = std::mem::replace(&mut place.link, NONE);
        if told {
            // Of a listener or a watched descriptor others may hold duplicates, which keep it in epoll's set.
            let closing = place.kind == Kind::Stream;
            self.poller.remove(descriptor.as_fd(), token, closing);
        }
        if abort {
            // A linger time of zero makes close(2) send a reset and drop what is queued (socket(7)).
            let _best_effort = sockopt::set_socket_linger(&descriptor, Some(Duration::ZERO));
        }
        drop(descriptor);
        let segments = self.sends.remove(link).map_or_else(Vec::new, |sending| sending.segments);
        // Its number is given out again once `next` has delivered `Closed`.
        let place = &mut self.places[token.index as usize];
        place.kind = Kind::Free;
        place.generation = place.generation.wrapping_add(1);
        place.flags &= QUEUED; // the queue may still hold its number
        place.registered = 0;
        self.used -= 1;
        self.done.push_back(Event::Closed { token, segments });
    }
}

impl Sending {
    /// Hands the kernel as much as it takes, at most a quantum.
    fn advance(&mut self, socket: BorrowedFd<'_>, scratch: &mut [u8]) -> Step {
        let quantum_end = self.sent + SEND_QUANTUM;
        while let Some(segment) = self.segments.get(self.segment) {
            if self.sent >= quantum_end {
                return Step::Yielded;
            }
            let left = segment.len() - self.offset;
            let result = match segment {
                _ if left == 0 => Ok(0),
                Segment::File { file, offset, .. } => {
                    send_file(socket, file, offset + self.offset, left.min(SEND_QUANTUM), scratch)
                }
                Segment::Bytes(_) | Segment::Shared(..) => self.send_bytes(socket),
            };
            match result {
                Ok(sent) => self.skip(sent),
                Err(SendFault::Errno(Errno::AGAIN)) => return Step::Blocked,
                Err(SendFault::Errno(Errno::INTR)) => {}
                Err(SendFault::Errno(errno)) => return Step::Failed(errno.into()),
                Err(SendFault::FileShrunk) => return Step::Failed(Fault::FileShrunk),
            }
        }
        Step::Done
    }

    /// Sends the run of memory segments that begins at the current place.
    fn send_bytes(&self, socket: BorrowedFd<'_>) -> Result<u64, SendFault> {
        let mut run = self.segments[self.segment..].iter().map_while(Segment::memory);
        let first = &run.next().expect("the current segment is in memory")[self.offset as usize..];
        let Some(second) = run.next() else {
            return Ok(sys::send(socket, first, self.flags(1))? as u64);
        };
        let mut slices = [IoSlice::new(&[]); SLICES];
        slices[0] = IoSlice::new(first);
        slices[1] = IoSlice::new(second);
        let mut count = 2;
        for (slice, bytes) in slices[2..].iter_mut().zip(run) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        let mut control = sys::SendAncillaryBuffer::default();
        Ok(sys::sendmsg(socket, &slices[..count], &mut control, self.flags(count))? as u64)
    }

    /// What follows `count` segments shall share a packet with them (tcp(7), MSG_MORE): a head and its file.
    fn flags(&self, count: usize) -> SendFlags {
        if self.more || self.segment + count < self.segments.len() {
            SendFlags::NOSIGNAL | MORE
        } else {
            SendFlags::NOSIGNAL
        }
    }

    /// Moves on by `sent` bytes, over the segments that are thereby done.
    fn skip(&mut self, sent: u64) {
        self.sent += sent;
        self.offset += sent;
        while let Some(segment) = self.segments.get(self.segment)
            && self.offset >= segment.len()
        {
            self.offset -= segment.len();
            self.segment += 1;
        }
    }

    fn unsent(&self) -> u64 {
        self.segments[self.segment..].iter().map(Segment::len).sum::<u64>() - self.offset
    }

    fn failed(self, token: Token, fault: Fault) -> Event<'static> {
        Event::Failed { token, op: OpKind::Send, fault, sent: self.sent, segments: self.segments }
    }
}

#[cfg(target_os = "linux")]
const MORE: SendFlags = SendFlags::MORE;
#[cfg(not(target_os = "linux"))]
const MORE: SendFlags = SendFlags::empty();

enum SendFault {
    Errno(Errno),
    FileShrunk,
}

impl From<Errno> for SendFault {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// Sends a range of a file without a copy through this process (sendfile(2)).
#[cfg(target_os = "linux")]
fn send_file(
    socket: BorrowedFd<'_>,
    file: &crate::files::OpenFile,
    mut offset: u64,
    len: u64,
    _scratch: &mut [u8],
) -> Result<u64, SendFault> {
    match rustix::fs::sendfile(socket, file, Some(&mut offset), len as usize)? {
        0 => Err(SendFault::FileShrunk),
        sent => Ok(sent as u64),
    }
}

/// Sends a range of a file through the scratch: other systems' sendfile calls differ and come with their
/// back ends.
#[cfg(not(target_os = "linux"))]
fn send_file(
    socket: BorrowedFd<'_>,
    file: &crate::files::OpenFile,
    offset: u64,
    len: u64,
    scratch: &mut [u8],
) -> Result<u64, SendFault> {
    let wanted = scratch.len().min(usize::try_from(len).unwrap_or(usize::MAX));
    match rustix::io::pread(file, &mut scratch[..wanted], offset)? {
        0 => Err(SendFault::FileShrunk),
        read => Ok(sys::send(socket, &scratch[..read], SendFlags::NOSIGNAL)? as u64),
    }
}

fn failed(token: Token, op: OpKind, fault: Fault) -> Event<'static> {
    Event::Failed { token, op, fault, sent: 0, segments: Vec::new() }
}

impl<P: Poller> Reactor for Readiness<P> {
    fn backend(&self) -> Backend {
        P::BACKEND
    }

    fn adopt(&mut self, source: Source) -> Result<Token, Fault> {
        Ok(match source {
            Source::Listener(listener) => self.take_place(listener.descriptor, Kind::Listener, READABLE),
            Source::Stream(stream) => self.take_place(stream.descriptor, Kind::Stream, READABLE),
            Source::Watched(watched) => self.take_place(watched.descriptor, Kind::Watched, 0),
        })
    }

    fn submit(&mut self, token: Token, op: Op) {
        if let Op::Offload(job) = op {
            self.jobs += 1;
            if let Err(refused) = self.pool.submit(job, &self.returns) {
                self.returned.push_back((refused.key, None));
            }
            return;
        }
        let Some(place) = self.place(token) else { return };
        match op {
            Op::Accept | Op::Recv | Op::Watch => {
                if place.flags & ENDED == 0 {
                    place.flags |= ARMED;
                    let readable = place.flags & READABLE != 0;
                    self.note_change(token);
                    if readable {
                        self.enqueue(token.index);
                    }
                }
            }
            Op::Pause => {
                place.flags &= !ARMED;
                let hangup = place.flags & (HANGUP | ENDED | HINTED) == HANGUP;
                self.note_change(token);
                if hangup {
                    self.enqueue(token.index);
                }
            }
            Op::Retire => {
                #[cfg(target_os = "linux")]
                if let Some(descriptor) = &place.descriptor {
                    // Without the filter a few attempts may be reset: no reason not to stop.
                    let _best_effort = socket::refuse_new(descriptor.as_fd());
                }
            }
            Op::Connect(peer) => self.connect(token, peer),
            Op::Send(send) => self.start_send(token, send),
            Op::Shutdown => self.shutdown(token),
            Op::Cancel => self.cancel(token),
            Op::Close => self.close(token, false),
            Op::Abort => self.close(token, true),
            Op::Offload(_) => unreachable!("returned above"),
        }
    }

    fn wait(&mut self, until: Option<u64>) -> Result<Now, Fault> {
        self.register();
        let busy = !(self.queue.is_empty() && self.done.is_empty() && self.returned.is_empty());
        let timeout = if busy {
            Some(Duration::ZERO)
        } else {
            // From now, not from when the turn began: a long turn must not put off the timers by its length.
            until.map(|until| Duration::from_nanos(until.saturating_sub(self.clock.now().mono_ns)))
        };
        let (places, queue) = (&mut self.places, &mut self.queue);
        self.poller.wait(timeout, |token, ready| {
            let Some(place) = places.get_mut(token.index as usize) else { return };
            if place.generation != token.generation || place.kind == Kind::Free {
                return;
            }
            let work = Self::note_ready(place, ready) || place.kind == Kind::Bell;
            if work && place.flags & QUEUED == 0 {
                place.flags |= QUEUED;
                queue.push_back(token.index);
            }
        })?;
        self.now = self.clock.now();
        Ok(self.now)
    }

    fn next(&mut self) -> Option<Event<'_>> {
        loop {
            if let Some(event) = self.done.pop_front() {
                if let Event::Closed { token, .. } = event {
                    self.places[token.index as usize].link = self.free;
                    self.free = token.index;
                }
                return Some(event);
            }
            if let Some((key, done)) = self.returned.pop_front() {
                self.jobs -= 1;
                return Some(Event::Offloaded { key, done });
            }
            let index = self.queue.pop_front()?;
            match self.serve(index) {
                Served::Nothing => {}
                Served::Event(event) => return Some(event),
                Served::Received(token, len) => {
                    return Some(Event::Received { token, lease: &mut self.scratch[..len] });
                }
            }
        }
    }

    fn now(&mut self) -> Now {
        self.now = self.clock.now();
        self.now
    }

    fn waker(&self) -> Waker {
        self.bell.waker()
    }

    fn unsent(&self, token: Token) -> u64 {
        match self.places.get(token.index as usize) {
            Some(place) if place.generation == token.generation && place.kind == Kind::Stream => {
                self.sends.get(place.link).map_or(0, Sending::unsent)
            }
            _ => 0,
        }
    }

    fn listen_drops(&self, listener: Token) -> Option<u32> {
        #[cfg(target_os = "linux")]
        {
            let place = self.places.get(listener.index as usize)?;
            if place.generation != listener.generation || place.kind != Kind::Listener {
                return None;
            }
            socket::drops(place.descriptor.as_ref()?.as_fd())
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = listener;
            None
        }
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy { sources: self.used, sends: self.sends.len(), jobs: self.jobs, leases: 0 }
    }
}

/// What serving a place came to.
enum Served {
    Nothing,
    Event(Event<'static>),
    /// So many bytes lie in the scratch.
    Received(Token, usize),
}
