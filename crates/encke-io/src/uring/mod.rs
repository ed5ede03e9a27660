//! The reactor over io_uring(7): the kernel does the work and tells when it is done.
//!
//! ```text
//!  submit ─► Place: what is wanted ──── reconcile, once a turn ────► submission queue ─┐
//!                                                                                      │ one enter a turn
//!  next ◄── Event ◄── handle ◄── completions ◄── completion queue ◄────────────────────┘
//! ```
//!
//! A source and the operation that keeps it supplied (multishot accept, receive or poll):
//!
//! ```text
//!           Recv                         last completion, still wanted
//!  ┌──────┐ ─────────► ┌───────┐ ◄───────────────────────────────────────┐
//!  │ IDLE │            │ ARMED │ ──── Pause, and a turn later still ────► CANCELING
//!  └──────┘ ◄───────── └───────┘                                         │
//!     ▲   last completion                                                │
//!     └──────────────────────────── last completion, not wanted ─────────┘
//! ```
//!
//! - **What arrives while it is not wanted** (the kernel was faster than the cancel) is kept as a [`Parcel`] and
//!   delivered first when it is wanted again. It is copied out of the ring's buffers, so that connections at
//!   rest do not use them up, until [`UringSettings::parked_bytes`] lie there.
//! - **The cancel is put off by a turn**, because a send completes a turn later than it was given: a worker
//!   that pauses while it answers would else pay a cancel and a new operation for each request.
//! - **No buffer left** (ENOBUFS): the connection is received from once by recv(2) into the scratch, then
//!   waited for by poll until the ring has buffers again. So nobody waits for a buffer that others hold.
//! - **Sends of memory** go through the ring, all of a turn with one enter. No MSG_WAITALL: a partial completion
//!   is what tells [`Reactor::unsent`] that a slow reader still reads. **Sends with files** are tried at once
//!   with send(2) and sendfile(2), because io_uring has no sendfile and its splice runs on other threads; when
//!   they block, a poll for room continues them.
//! - **Closing** cancels everything of the source first and closes the descriptor after the last completion:
//!   a descriptor that is closed with a receive armed keeps its connection open.

mod buffers;
mod ring;

use std::collections::{HashMap, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, Fd};
use io_uring::{cqueue, opcode};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self as sys, RecvFlags, Shutdown, SocketAddrAny, sockopt};

use self::buffers::{Buffers, Lease};
use self::ring::{Completion, Ring, Wait};
use crate::clock::{Clock, Now};
use crate::fault::Fault;
use crate::offload::{Pool, Returns};
use crate::op::{Closing, Done, Event, Op, OpKind, Peer, Send, Token};
use crate::places::Places;
use crate::reactor::{
    Backend, LEASE_BYTES_MAX, Occupancy, Reactor, SEND_QUANTUM, SPARES_MAX, Source, Unavailable,
};
use crate::sending::{SLICES, Sending, Step, is_one_segment};
use crate::slab::Slab;
use crate::socket::{self, Stream};
use crate::wake::{self, Waker};

/// Turns in which a reactor that is dropped waits for the kernel to give its memory back, 10 ms each.
const LAST_TURNS: u32 = 500;

/// How a [`UringReactor`] uses its ring.
#[derive(Clone, Copy, Debug)]
pub struct UringSettings {
    /// Receive buffers, a power of two, at most 32,768. A turn takes up to 256 events, so with 256 of them a
    /// turn's events never lack one.
    pub buffers: u16,
    /// Bytes of each, at most [`LEASE_BYTES_MAX`]. 16 KiB hold any request head and a TLS record.
    pub buffer_bytes: u32,
    /// Bytes that arrived for paused connections and were copied out of the ring. Past that their buffers stay
    /// with them; so `parked_bytes + buffers × buffer_bytes` is all that paused peers can make a worker hold.
    pub parked_bytes: usize,
    /// One accept or receive operation serves until it is cancelled (Linux 6.0), instead of one event each.
    /// Where the kernel refuses, the reactor goes on without.
    pub multishot: bool,
}

impl Default for UringSettings {
    fn default() -> Self {
        Self { buffers: 256, buffer_bytes: 16 * 1024, parked_bytes: 16 << 20, multishot: true }
    }
}

/// A reactor over io_uring. It lives on the thread that made it, as its ring does (IORING_SETUP_SINGLE_ISSUER).
pub struct UringReactor {
    ring: Ring,
    buffers: Buffers,
    settings: UringSettings,
    places: Places<Place>,
    sends: Slab<Outgoing>,
    connects: Slab<Box<SocketAddrAny>>,
    /// Sources to be connected, for the end of the turn.
    dialed: Vec<Token>,
    /// Message headers of former sends, to be used again.
    spare_messages: Vec<Message>,
    /// What arrived for sources that did not want it, by place.
    parked: HashMap<u32, VecDeque<Parcel>>,
    parked_bytes: usize,
    /// Places whose operations may have to change before the next enter.
    changed: Vec<u32>,
    /// Sources with work that needs no kernel: a send whose quantum was used up, parcels to deliver.
    ready: VecDeque<Token>,
    /// Whether `ready` or the completions come next.
    ready_first: bool,
    completions: VecDeque<Completion>,
    /// Events that are not delivered yet; each comes before any further work.
    done: VecDeque<Event<'static>>,
    lent: Option<Lease>,
    /// Parked bytes that are lent.
    lent_bytes: Vec<u8>,
    scratch: Box<[u8]>,
    /// Operations whose last completion was not taken yet.
    inflight: usize,
    starved: u64,
    bell: wake::Listener,
    pool: Pool,
    returns: Arc<Returns>,
    returned: VecDeque<(u64, Option<Done>)>,
    jobs: usize,
    clock: Clock,
    now: Now,
    /// How long a wait lasts at least.
    gather: Duration,
    spares: Vec<Stream>,
    thread: PhantomData<*const ()>,
}

/// The first place is the bell's, so that a wake is an event like any other.
const BELL: Token = Token { index: 0, generation: 0 };
const NONE: u32 = u32::MAX;

/// A source: 16 bytes, 20 with its generation.
struct Place {
    /// None only in the bell's place.
    descriptor: Option<OwnedFd>,
    /// The send or the connect in flight, or `NONE`.
    link: u32,
    flags: u32,
    kind: Kind,
    /// Operations whose last completion was not taken yet: one to receive, one hint, one to send or connect.
    inflight: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Bell,
    Listener,
    Stream,
    Watched,
}

/// `Accept`, `Recv` or `Watch` was asked for.
const WANTED: u32 = 1;
/// The operation that supplies it is in flight.
const ARMED: u32 = 1 << 1;
/// That operation is a poll, because there was no buffer for a receive.
const POLLING: u32 = 1 << 2;
/// That operation is being cancelled.
const CANCELING: u32 = 1 << 3;
/// It was not wanted any more at the last enter; if that still holds at the next it is cancelled.
const LINGERING: u32 = 1 << 4;
/// A poll for the peer's end is in flight.
const WATCHING: u32 = 1 << 5;
/// The peer's end was announced while receiving was paused.
const HINTED: u32 = 1 << 6;
/// There is nothing more to be told of reading: the end was delivered, or reading or connecting has failed.
const ENDED: u32 = 1 << 7;
/// `link` names a connect.
const CONNECTING: u32 = 1 << 8;
/// The send or connect in flight was given up.
const CANCELED: u32 = 1 << 9;
/// Our side is shut down once the send in flight has ended.
const FINISHING: u32 = 1 << 10;
/// Parcels wait in `parked`.
const PARKED: u32 = 1 << 11;
/// Closed by its owner; goes when nothing is in flight.
const CLOSING: u32 = 1 << 12;
/// Stands in `changed`.
const CHANGED: u32 = 1 << 13;
/// Stands in `ready`.
const READY: u32 = 1 << 14;
/// Connected by [`Op::Connect`], and Nagle's algorithm is on.
const NAGLE: u32 = 1 << 15;
/// No send has begun on it yet.
const UNSENT: u32 = 1 << 16;
/// The peer's end was told, behind everything else.
const OVER: u32 = 1 << 17;
/// Closed by its owner, and the socket is to be kept.
const RECYCLING: u32 = 1 << 18;

/// A send in flight.
struct Outgoing {
    sending: Sending,
    /// What a vectored send points to.
    message: Option<Message>,
    /// Contains a piece of a file: sent by system calls of its own.
    direct: bool,
    /// An operation of it is in flight; else it waits for its turn.
    in_kernel: bool,
}

/// What sendmsg(2) is given, on the heap, so that it stays where it is until the completion.
struct Message(Box<Slices>);

struct Slices {
    header: libc::msghdr,
    slices: [libc::iovec; SLICES],
}

/// A completion that its source did not want yet.
enum Parcel {
    Bytes(Vec<u8>),
    /// Bytes for which there was no room in memory.
    Lease(Lease),
    Accepted(OwnedFd),
    Readable,
    End,
    Failed(Fault),
}

/// What an operation is for: the upper half of its `user_data`; the lower is the place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Purpose {
    /// Accept, receive, or poll of a watched descriptor.
    Supply,
    /// Poll of a stream for which there was no buffer.
    Look,
    /// Poll for the peer's end.
    Hint,
    Send,
    /// Poll for room to send a file.
    Room,
    Connect,
    Cancel,
}

impl Purpose {
    const ALL: [Self; 7] =
        [Self::Supply, Self::Look, Self::Hint, Self::Send, Self::Room, Self::Connect, Self::Cancel];

    const fn of(self, index: u32) -> u64 {
        (self as u64) << 32 | index as u64
    }

    const fn split(user_data: u64) -> (Self, u32) {
        (Self::ALL[(user_data >> 32) as usize], user_data as u32)
    }
}

impl Place {
    const fn new(descriptor: Option<OwnedFd>, kind: Kind) -> Self {
        Self { descriptor, link: NONE, flags: 0, kind, inflight: 0 }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_ref().expect("every source but the bell holds its descriptor").as_fd()
    }

    fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    fn op(&self) -> OpKind {
        match self.kind {
            Kind::Listener => OpKind::Accept,
            Kind::Stream => OpKind::Recv,
            Kind::Watched | Kind::Bell => OpKind::Watch,
        }
    }
}

/// What a piece of work came to.
enum Served {
    Nothing,
    Event(Event<'static>),
    /// Bytes in one of the ring's buffers.
    Lease(Token, Lease),
    /// Bytes that were parked.
    Bytes(Token, Vec<u8>),
    /// So many bytes lie in the scratch.
    Scratch(Token, usize),
}

/// Whether the waits of a [`UringReactor`] gather, if this process can have one.
///
/// # Errors
/// As [`UringReactor::with`].
pub(crate) fn probe() -> Result<bool, Unavailable> {
    let ring = Ring::open()?;
    let few = Buffers::register(&ring.uring.submitter(), 1, 4_096);
    few.map(drop).map_err(|error| ring::unavailable(&error, None))?;
    Ok(ring.gathers())
}

impl UringReactor {
    /// A reactor whose blocking jobs go to `pool`, with the default settings.
    ///
    /// # Errors
    /// As [`UringReactor::with`].
    pub fn new(pool: Pool) -> Result<Self, Unavailable> {
        Self::with(pool, UringSettings::default())
    }

    /// A reactor whose blocking jobs go to `pool`.
    ///
    /// # Errors
    /// The kernel has no io_uring, or no provided buffers (before Linux 5.19), or this process may not use
    /// them; says which, and what helps.
    pub fn with(pool: Pool, settings: UringSettings) -> Result<Self, Unavailable> {
        assert!(settings.buffer_bytes as usize <= LEASE_BYTES_MAX, "a buffer is lent as one lease");
        let ring = Ring::open()?;
        let buffers = Buffers::register(&ring.uring.submitter(), settings.buffers, settings.buffer_bytes)
            .map_err(|error| ring::unavailable(&error, None))?;
        let bell =
            wake::Listener::new().map_err(|errno| Unavailable::new(Backend::Uring, &errno.into(), ""))?;
        let mut places = Places::new();
        let token = places.insert(Place { flags: WANTED | CHANGED, ..Place::new(None, Kind::Bell) });
        assert_eq!(token, BELL, "the first place of an empty table");
        let mut clock = Clock::new();
        Ok(Self {
            ring,
            buffers,
            settings,
            places,
            sends: Slab::new(),
            connects: Slab::new(),
            dialed: Vec::new(),
            spare_messages: Vec::new(),
            parked: HashMap::new(),
            parked_bytes: 0,
            changed: vec![BELL.index],
            ready: VecDeque::new(),
            ready_first: false,
            completions: VecDeque::new(),
            done: VecDeque::new(),
            lent: None,
            lent_bytes: Vec::new(),
            scratch: vec![0; LEASE_BYTES_MAX].into_boxed_slice(),
            inflight: 0,
            starved: 0,
            returns: Returns::new(bell.waker()),
            bell,
            pool,
            returned: VecDeque::new(),
            jobs: 0,
            now: clock.now(),
            gather: Duration::ZERO,
            spares: Vec::new(),
            clock,
            thread: PhantomData,
        })
    }

    /// How often a connection met a ring without buffers and was received from by itself.
    pub fn starved(&self) -> u64 {
        self.starved
    }

    /// Notes that a place's operations may have to change.
    fn note_change(&mut self, index: u32) {
        let Some(place) = self.places.at(index) else { return };
        if !place.has(CHANGED) {
            place.flags |= CHANGED;
            self.changed.push(index);
        }
    }

    fn make_ready(&mut self, index: u32) {
        let token = self.places.token(index);
        let Some(place) = self.places.at(index) else { return };
        if !place.has(READY) {
            place.flags |= READY;
            self.ready.push_back(token);
        }
    }

    /// Hands an operation to the kernel that ends with a completion of its own.
    ///
    /// # Safety
    /// As [`Ring::push`].
    unsafe fn begin(&mut self, index: u32, purpose: Purpose, entry: Entry) {
        let place = self.places.at(index).expect(THERE);
        place.inflight += 1;
        self.inflight += 1;
        // SAFETY: the caller's promise.
        unsafe { self.ring.push(entry.user_data(purpose.of(index))) };
    }

    /// Brings the kernel's operations in line with what is wanted.
    fn reconcile(&mut self) {
        let mut changed = std::mem::take(&mut self.changed);
        for index in changed.drain(..) {
            self.reconcile_place(index);
        }
        // What is put off to the next turn was noted meanwhile.
        changed.append(&mut self.changed);
        self.changed = changed;
    }

    fn reconcile_place(&mut self, index: u32) {
        let Some(place) = self.places.at(index) else { return };
        place.flags &= !CHANGED;
        if place.has(WANTED) {
            place.flags &= !LINGERING;
            if !place.has(ARMED | ENDED | PARKED) {
                self.arm(index);
            }
        } else if place.has(ARMED) && !place.has(LINGERING | CLOSING) {
            place.flags |= LINGERING;
            self.note_change(index);
        } else if place.has(ARMED) {
            place.flags |= CANCELING;
        } else if place.kind == Kind::Stream && !place.has(WATCHING | HINTED | ENDED | CONNECTING | CLOSING) {
            place.flags |= WATCHING;
            let entry =
                opcode::PollAdd::new(Fd(place.descriptor().as_raw_fd()), libc::POLLRDHUP as u32).build();
            // SAFETY: a poll points to nothing.
            unsafe { self.begin(index, Purpose::Hint, entry) };
        }
        self.give_up(index);
    }

    /// Asks the kernel to give up what is not wanted any more. That the operations end is what counts; the
    /// answer is looked at only if the kernel has not found one, see [`Self::insist`].
    fn give_up(&mut self, index: u32) {
        let place = self.places.at(index).expect(THERE);
        let outgoing = if place.has(CONNECTING) { None } else { self.sends.get(place.link) };
        let sending = outgoing
            .filter(|outgoing| outgoing.in_kernel)
            .map(|outgoing| if outgoing.direct { Purpose::Room } else { Purpose::Send });
        let supply = if place.has(POLLING) { Purpose::Look } else { Purpose::Supply };
        let unwanted = [
            (place.has(ARMED) && place.has(CANCELING | CLOSING)).then_some(supply),
            (place.has(WATCHING) && place.has(CLOSING)).then_some(Purpose::Hint),
            sending.filter(|_| place.has(CANCELED | CLOSING)),
            (place.has(CONNECTING) && place.has(CANCELED | CLOSING)).then_some(Purpose::Connect),
        ];
        for purpose in unwanted.into_iter().flatten() {
            let cancel = opcode::AsyncCancel::new(purpose.of(index)).build().flags(Flags::SKIP_SUCCESS);
            // SAFETY: a cancel points to nothing.
            unsafe { self.ring.push(cancel.user_data(Purpose::Cancel.of(index))) };
        }
    }

    /// Starts the operation that supplies a source.
    fn arm(&mut self, index: u32) {
        let multishot = self.settings.multishot;
        let bell = self.bell.descriptor().as_raw_fd();
        let has_free = self.buffers.has_free();
        let place = self.places.at(index).expect(THERE);
        place.flags = place.flags & !POLLING | ARMED;
        let fd = Fd(place.descriptor.as_ref().map_or(bell, AsRawFd::as_raw_fd));
        let mut purpose = Purpose::Supply;
        let entry = match place.kind {
            Kind::Listener => {
                let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
                if multishot {
                    opcode::AcceptMulti::new(fd).flags(flags).build()
                } else {
                    opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut()).flags(flags).build()
                }
            }
            Kind::Stream if !has_free => {
                place.flags |= POLLING;
                purpose = Purpose::Look;
                opcode::PollAdd::new(fd, (libc::POLLIN | libc::POLLRDHUP) as u32).build()
            }
            Kind::Stream if multishot => opcode::RecvMulti::new(fd, buffers::GROUP).build(),
            Kind::Stream => opcode::Recv::new(fd, std::ptr::null_mut(), self.settings.buffer_bytes)
                .buf_group(buffers::GROUP)
                .build()
                .flags(Flags::BUFFER_SELECT),
            Kind::Watched | Kind::Bell => opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build(),
        };
        // SAFETY: none of these points to memory but a receive, to the ring's buffers, which are unmapped only
        // after the last completion.
        unsafe { self.begin(index, purpose, entry) };
    }

    /// Makes of a completion what it means for its source.
    fn handle(&mut self, completion: Completion) -> Served {
        let (purpose, index) = Purpose::split(completion.user_data);
        let lease = cqueue::buffer_select(completion.flags)
            .map(|id| self.buffers.take(id, u32::try_from(completion.result).unwrap_or(0)));
        if purpose == Purpose::Cancel {
            // It has found nothing: mostly because what it was for had just ended. If that has not, it was
            // where cancels do not look, and has to be given up again.
            let place = self.places.at(index);
            if place.is_some_and(|place| place.has(CLOSING | CANCELING | CANCELED) && place.inflight > 0) {
                self.insist(index);
            }
            return Served::Nothing;
        }
        let place = self.places.at(index).expect("a place is kept while operations are in flight");
        if !completion.has_more() {
            place.inflight -= 1;
            self.inflight -= 1;
            match purpose {
                Purpose::Supply | Purpose::Look => {
                    place.flags &= !(ARMED | POLLING | CANCELING | LINGERING);
                    self.note_change(index);
                }
                Purpose::Hint => place.flags &= !WATCHING,
                Purpose::Send | Purpose::Room => {
                    if let Some(outgoing) = self.sends.get_mut(place.link) {
                        outgoing.in_kernel = false;
                    }
                }
                Purpose::Connect | Purpose::Cancel => {}
            }
        }
        let place = self.places.at(index).expect(THERE);
        if place.has(CLOSING) {
            let accepted =
                place.kind == Kind::Listener && purpose == Purpose::Supply && completion.result >= 0;
            if accepted {
                drop(adopt_descriptor(completion.result));
            }
            if let Some(lease) = lease {
                self.buffers.give_back(lease);
            }
            self.bury(index);
            return Served::Nothing;
        }
        match (purpose, place.kind) {
            (Purpose::Supply, Kind::Stream) => self.received(index, completion.result, lease),
            (Purpose::Supply, Kind::Listener) => self.accepted(index, completion.result),
            (Purpose::Supply, Kind::Watched | Kind::Bell) => self.readable(index, completion.result),
            (Purpose::Look, _) => self.receive_directly(index),
            (Purpose::Hint, _) => self.hinted(index, completion.result),
            (Purpose::Send, _) => self.send_completed(index, completion.result),
            (Purpose::Room, _) => self.room(index, completion.result),
            (Purpose::Connect, _) => self.connected(index, completion.result),
            (Purpose::Cancel, _) => unreachable!("returned above"),
        }
    }

    /// Gives operations up once more. A closing connection is shut down besides: a flood that keeps its receive
    /// out of the kernel's reach then ends in a reset.
    fn insist(&mut self, index: u32) {
        let place = self.places.at(index).expect(THERE);
        if place.has(CLOSING) && place.kind == Kind::Stream {
            let _down_already = sys::shutdown(place.descriptor(), Shutdown::Both);
        }
        self.note_change(index);
    }

    fn received(&mut self, index: u32, result: i32, lease: Option<Lease>) -> Served {
        match (result, lease) {
            (1.., Some(lease)) => return self.deliver_lease(index, lease),
            (_, Some(unused)) => self.buffers.give_back(unused),
            (_, None) => {}
        }
        if result >= 0 {
            return self.peer_ended(index);
        }
        match Errno::from_raw_os_error(-result) {
            Errno::NOBUFS => {
                self.starved += 1;
                self.receive_directly(index)
            }
            // Multishot receive is younger than the ring of buffers (6.0 and 5.19): one at a time, then.
            Errno::INVAL if self.settings.multishot => {
                self.settings.multishot = false;
                Served::Nothing
            }
            Errno::CANCELED | Errno::INTR | Errno::AGAIN => Served::Nothing,
            errno => self.reading_failed(index, errno.into()),
        }
    }

    fn deliver_lease(&mut self, index: u32, lease: Lease) -> Served {
        let token = self.places.token(index);
        let place = self.places.at(index).expect(THERE);
        if place.flags & (WANTED | PARKED | ENDED) == WANTED {
            return Served::Lease(token, lease);
        }
        if place.has(ENDED) {
            self.buffers.give_back(lease);
            return Served::Nothing;
        }
        let parcel = if self.parked_bytes + lease.len() > self.settings.parked_bytes {
            Parcel::Lease(lease)
        } else {
            let bytes = self.buffers.bytes_mut(&lease).to_vec();
            self.buffers.give_back(lease);
            self.parked_bytes += bytes.len();
            Parcel::Bytes(bytes)
        };
        self.park(index, parcel);
        Served::Nothing
    }

    /// Receives without the ring: when it has no buffer, this one connection must not wait for others.
    fn receive_directly(&mut self, index: u32) -> Served {
        let token = self.places.token(index);
        let place = self.places.at(index).expect(THERE);
        if place.flags & (WANTED | PARKED | ENDED) != WANTED {
            return Served::Nothing;
        }
        match sys::recv(place.descriptor(), &mut self.scratch[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.peer_ended(index),
            Ok((len, _)) => Served::Scratch(token, len),
            Err(Errno::AGAIN | Errno::INTR) => Served::Nothing,
            Err(errno) => self.reading_failed(index, errno.into()),
        }
    }

    fn peer_ended(&mut self, index: u32) -> Served {
        let token = self.places.token(index);
        let place = self.places.at(index).expect(THERE);
        if place.flags & (WANTED | PARKED) == WANTED {
            place.flags = place.flags & !WANTED | ENDED | OVER;
            return Served::Event(Event::PeerClosed { token, behind_data: false });
        }
        let announce = place.flags & (WANTED | HINTED) == 0;
        place.flags |= HINTED;
        self.park(index, Parcel::End);
        if announce { Served::Event(Event::PeerClosed { token, behind_data: true }) } else { Served::Nothing }
    }

    /// Receiving has failed. One who waits for parked bytes hears of it after them, everybody else at once.
    fn reading_failed(&mut self, index: u32, fault: Fault) -> Served {
        let token = self.places.token(index);
        let place = self.places.at(index).expect(THERE);
        if place.flags & (WANTED | PARKED) == WANTED | PARKED {
            self.park(index, Parcel::Failed(fault));
            return Served::Nothing;
        }
        if place.has(ENDED) {
            return Served::Nothing;
        }
        place.flags = place.flags & !WANTED | ENDED;
        let op = place.op();
        self.forget_parcels(index);
        Served::Event(failed(token, op, fault))
    }

    fn hinted(&mut self, index: u32, result: i32) -> Served {
        let token = self.places.token(index);
        let place = self.places.at(index).expect(THERE);
        if place.has(WANTED | ARMED | HINTED | ENDED) || result < 0 {
            return Served::Nothing;
        }
        if result & i32::from(libc::POLLERR) != 0 {
            return self.reading_failed(index, Fault::Reset);
        }
        place.flags |= HINTED;
        Served::Event(Event::PeerClosed { token, behind_data: true })
    }

    fn accepted(&mut self, index: u32, result: i32) -> Served {
        let place = self.places.at(index).expect(THERE);
        if result >= 0 {
            let descriptor = adopt_descriptor(result);
            if place.flags & (WANTED | PARKED) == WANTED {
                return self.deliver_accepted(index, descriptor);
            }
            self.park(index, Parcel::Accepted(descriptor));
            return Served::Nothing;
        }
        match Errno::from_raw_os_error(-result) {
            Errno::INVAL if self.settings.multishot => self.settings.multishot = false,
            Errno::CANCELED => {}
            errno if socket::failed_before_accept(errno) => {}
            errno => return self.supply_failed(index, errno.into()),
        }
        Served::Nothing
    }

    /// A multishot accept cannot tell the address of each connection: it is asked for.
    fn deliver_accepted(&mut self, index: u32, descriptor: OwnedFd) -> Served {
        // Without an address it is gone already, as one that failed before it was accepted.
        let Ok(name) = sys::getpeername(&descriptor) else { return Served::Nothing };
        let peer = name.and_then(|name| name.try_into().ok()).map_or(Peer::Local, Peer::Inet);
        let listener = self.places.token(index);
        let token = self.places.insert(Place::new(Some(descriptor), Kind::Stream));
        Served::Event(Event::Accepted { listener, token, peer })
    }

    fn readable(&mut self, index: u32, result: i32) -> Served {
        let token = self.places.token(index);
        let place = self.places.at(index).expect(THERE);
        if result < 0 {
            let errno = Errno::from_raw_os_error(-result);
            return if errno == Errno::CANCELED {
                Served::Nothing
            } else {
                self.supply_failed(index, errno.into())
            };
        }
        if place.kind == Kind::Bell {
            if !self.bell.silence() {
                return Served::Nothing;
            }
            self.returns.take(&mut self.returned);
            return Served::Event(Event::Woken);
        }
        if place.has(WANTED) {
            return Served::Event(Event::Watched { token });
        }
        if !place.has(PARKED) {
            self.park(index, Parcel::Readable);
        }
        Served::Nothing
    }

    fn supply_failed(&mut self, index: u32, fault: Fault) -> Served {
        let token = self.places.token(index);
        let place = self.places.at(index).expect(THERE);
        let wanted = place.has(WANTED);
        let op = place.op();
        place.flags &= !WANTED;
        // A paused listener hears of it when it tries again.
        if wanted { Served::Event(failed(token, op, fault)) } else { Served::Nothing }
    }

    fn park(&mut self, index: u32, parcel: Parcel) {
        self.places.at(index).expect(THERE).flags |= PARKED;
        self.parked.entry(index).or_default().push_back(parcel);
    }

    fn forget_parcels(&mut self, index: u32) {
        if let Some(place) = self.places.at(index) {
            place.flags &= !PARKED;
        }
        for parcel in self.parked.remove(&index).into_iter().flatten() {
            match parcel {
                Parcel::Bytes(bytes) => self.parked_bytes -= bytes.len(),
                Parcel::Lease(lease) => self.buffers.give_back(lease),
                Parcel::Accepted(_) | Parcel::Readable | Parcel::End | Parcel::Failed(_) => {}
            }
        }
    }

    /// Delivers the oldest parcel of a source that wants it.
    fn deliver_parcel(&mut self, index: u32) -> Served {
        let token = self.places.token(index);
        let parcels = self.parked.get_mut(&index).expect("flagged as parked");
        let parcel = parcels.pop_front().expect("an empty queue is removed");
        if parcels.is_empty() {
            self.parked.remove(&index);
            self.places.at(index).expect(THERE).flags &= !PARKED;
            self.note_change(index);
        } else {
            self.make_ready(index);
        }
        match parcel {
            Parcel::Bytes(bytes) => {
                self.parked_bytes -= bytes.len();
                Served::Bytes(token, bytes)
            }
            Parcel::Lease(lease) => Served::Lease(token, lease),
            Parcel::Accepted(descriptor) => self.deliver_accepted(index, descriptor),
            Parcel::Readable => Served::Event(Event::Watched { token }),
            Parcel::End => self.peer_ended(index),
            Parcel::Failed(fault) => self.reading_failed(index, fault),
        }
    }

    fn start_send(&mut self, token: Token, send: Send) {
        let place = self.places.get_mut(token).expect(THERE);
        assert!(place.kind == Kind::Stream && place.link == NONE, "one send at a time, on a stream");
        if place.has(NAGLE) {
            if !place.has(UNSENT) || !is_one_segment(&send) {
                socket::send_at_once(place.descriptor());
                place.flags &= !NAGLE;
            }
            place.flags &= !UNSENT;
        }
        let sending = Sending::new(send);
        if sending.is_done() {
            self.done.push_back(sending.ended(token, Ok(())));
            return;
        }
        let direct = sending.has_file();
        place.link = self.sends.insert(Outgoing { sending, message: None, direct, in_kernel: false });
        self.advance_send(token.index);
    }

    /// Gives the next part of a send to the kernel.
    fn advance_send(&mut self, index: u32) {
        let place = self.places.at(index).expect(THERE);
        let outgoing = self.sends.get_mut(place.link).expect("a place's link names its send");
        if !outgoing.direct {
            outgoing.in_kernel = true;
            let entry = outgoing.entry(Fd(place.descriptor().as_raw_fd()), &mut self.spare_messages);
            // SAFETY: the entry points into the segments and the message of a send that stays in `sends` until
            // this operation's completion. Neither moves when `sends` does: both are on the heap.
            unsafe { self.begin(index, Purpose::Send, entry) };
            return;
        }
        match outgoing.sending.advance(place.descriptor(), &mut self.scratch) {
            Step::Done => self.end_send(index, Ok(())),
            Step::Failed(fault) => self.end_send(index, Err(fault)),
            Step::Yielded => self.make_ready(index),
            Step::Blocked => {
                outgoing.in_kernel = true;
                let entry =
                    opcode::PollAdd::new(Fd(place.descriptor().as_raw_fd()), libc::POLLOUT as u32).build();
                // SAFETY: a poll points to nothing.
                unsafe { self.begin(index, Purpose::Room, entry) };
            }
        }
    }

    fn send_completed(&mut self, index: u32, result: i32) -> Served {
        let place = self.places.at(index).expect(THERE);
        let canceled = place.has(CANCELED);
        let outgoing = self.sends.get_mut(place.link).expect("a place's link names its send");
        if let Ok(sent) = u64::try_from(result) {
            outgoing.sending.skip(sent);
            if outgoing.sending.is_done() {
                self.end_send(index, Ok(()));
            } else if canceled {
                self.end_send(index, Err(Fault::Canceled));
            } else {
                self.advance_send(index);
            }
            return Served::Nothing;
        }
        match Errno::from_raw_os_error(-result) {
            Errno::INTR | Errno::AGAIN if !canceled => self.advance_send(index),
            Errno::INTR | Errno::AGAIN => self.end_send(index, Err(Fault::Canceled)),
            errno => self.end_send(index, Err(errno.into())),
        }
        Served::Nothing
    }

    fn room(&mut self, index: u32, result: i32) -> Served {
        let place = self.places.at(index).expect(THERE);
        if place.has(CANCELED) {
            self.end_send(index, Err(Fault::Canceled));
        } else if result < 0 {
            self.end_send(index, Err(Errno::from_raw_os_error(-result).into()));
        } else {
            self.advance_send(index);
        }
        Served::Nothing
    }

    /// Takes the send in flight off its source, which shuts its side down if that had to wait for it.
    fn end_send(&mut self, index: u32, result: Result<(), Fault>) {
        let token = self.places.token(index);
        let place = self.places.at(index).expect(THERE);
        let link = std::mem::replace(&mut place.link, NONE);
        let finishing = place.has(FINISHING);
        place.flags &= !(CANCELED | FINISHING);
        let outgoing = self.sends.remove(link).expect("a place's link names its send");
        self.spare_messages.extend(outgoing.message);
        self.done.push_back(outgoing.sending.ended(token, result));
        if finishing {
            self.shutdown(token);
        }
    }

    fn shutdown(&mut self, token: Token) {
        let place = self.places.get_mut(token).expect(THERE);
        if place.link != NONE {
            place.flags |= FINISHING;
            return;
        }
        // Not through the ring, where it always costs a worker thread.
        if let Err(errno) = sys::shutdown(place.descriptor(), Shutdown::Write) {
            self.done.push_back(failed(token, OpKind::Shutdown, errno.into()));
        }
    }

    fn connect(&mut self, token: Token, peer: std::net::SocketAddr) {
        let place = self.places.get_mut(token).expect(THERE);
        assert!(place.kind == Kind::Stream && place.link == NONE, "connected once, before anything is sent");
        place.link = self.connects.insert(Box::new(SocketAddrAny::from(peer)));
        place.flags |= CONNECTING | NAGLE | UNSENT;
        self.dialed.push(token);
    }

    /// Begins the connects of a turn, behind its sends: those reach a server one behind the other. With a handshake
    /// between them it sleeps before each, and is woken for each.
    fn dial(&mut self) {
        let mut dialed = std::mem::take(&mut self.dialed);
        for token in dialed.drain(..) {
            // One that has been closed since is nobody's any more.
            let Some(place) = self.places.get_mut(token) else { continue };
            let address = self.connects.get(place.link).expect("a place's link names its connect");
            let fd = Fd(place.descriptor().as_raw_fd());
            let entry = opcode::Connect::new(fd, address.as_ptr().cast(), address.addr_len()).build();
            // SAFETY: the address is on the heap, and in `connects` until this operation's completion.
            unsafe { self.begin(token.index, Purpose::Connect, entry) };
        }
        self.dialed = dialed;
    }

    fn connected(&mut self, index: u32, result: i32) -> Served {
        let token = self.places.token(index);
        let place = self.places.at(index).expect(THERE);
        self.connects.remove(std::mem::replace(&mut place.link, NONE));
        place.flags &= !(CONNECTING | CANCELED);
        if result == 0 {
            return Served::Event(Event::Connected { token });
        }
        place.flags |= ENDED;
        Served::Event(failed(token, OpKind::Connect, Errno::from_raw_os_error(-result).into()))
    }

    fn cancel(&mut self, token: Token) {
        let place = self.places.get_mut(token).expect(THERE);
        if place.link == NONE {
            return;
        }
        let in_kernel = self.sends.get(place.link).is_some_and(|outgoing| outgoing.in_kernel);
        if !in_kernel && !place.has(CONNECTING) {
            self.end_send(token.index, Err(Fault::Canceled));
            return;
        }
        place.flags |= CANCELED;
        self.note_change(token.index);
    }

    fn close(&mut self, token: Token, how: Closing) {
        self.places.outdate(token.index);
        self.forget_parcels(token.index);
        let place = self.places.at(token.index).expect(THERE);
        let is_over = how == Closing::Recycle && place.has(OVER) && place.link == NONE;
        place.flags = place.flags & (CHANGED | CONNECTING | ARMED | POLLING | WATCHING) | CLOSING;
        if is_over {
            place.flags |= RECYCLING;
        }
        if how == Closing::Abort {
            // A linger time of zero makes close(2) send a reset and drop what is queued (socket(7)).
            let _best_effort = sockopt::set_socket_linger(place.descriptor(), Some(Duration::ZERO));
        }
        self.note_change(token.index);
        self.bury(token.index);
    }

    /// Closes a closing source's descriptor if the kernel does nothing with it any more.
    fn bury(&mut self, index: u32) {
        if self.places.at(index).is_none_or(|place| place.inflight > 0) {
            return;
        }
        let Token { generation, .. } = self.places.token(index);
        let token = Token { index, generation: generation.wrapping_sub(1) };
        let place = self.places.remove(index);
        let recycling = place.has(RECYCLING);
        let mut segments = Vec::new();
        if place.has(CONNECTING) {
            self.connects.remove(place.link);
        } else if let Some(outgoing) = self.sends.remove(place.link) {
            self.spare_messages.extend(outgoing.message);
            segments = outgoing.sending.into_segments();
        }
        if let Some(descriptor) = place.descriptor.filter(|descriptor| {
            recycling && self.spares.len() < SPARES_MAX && socket::disconnect(descriptor.as_fd())
        }) {
            self.spares.push(Stream { descriptor });
        }
        self.done.push_back(Event::Closed { token, segments });
    }

    /// Serves a source that has work which needs no kernel.
    fn serve(&mut self, token: Token) -> Served {
        let Some(place) = self.places.get_mut(token) else { return Served::Nothing };
        place.flags &= !READY;
        let yielded =
            !place.has(CONNECTING) && self.sends.get(place.link).is_some_and(|outgoing| !outgoing.in_kernel);
        if place.flags & (WANTED | PARKED) == WANTED | PARKED {
            if yielded {
                self.make_ready(token.index);
            }
            return self.deliver_parcel(token.index);
        }
        if yielded {
            self.advance_send(token.index);
        }
        Served::Nothing
    }

    /// The next piece of work: of those that need no kernel and the completions by turns.
    fn work(&mut self) -> Option<Served> {
        self.ready_first = !self.ready_first;
        if (self.ready_first || self.completions.is_empty())
            && let Some(token) = self.ready.pop_front()
        {
            return Some(self.serve(token));
        }
        let completion = self.completions.pop_front()?;
        Some(self.handle(completion))
    }

    fn enter(&mut self, wait: Wait) -> Result<(), Fault> {
        self.ring.enter(wait)?;
        let Self { ring, completions, buffers, .. } = self;
        ring.take(|completion| {
            if cqueue::buffer_select(completion.flags).is_some() {
                buffers.left_ring();
            }
            completions.push_back(completion);
        });
        Ok(())
    }
}

impl Outgoing {
    /// The operation that sends the run of memory segments at the current place.
    fn entry(&mut self, fd: Fd, spare_messages: &mut Vec<Message>) -> Entry {
        let sending = &self.sending;
        let mut run = sending.run();
        let first = run.next().expect("a send without files that is not done has bytes");
        let Some(second) = run.next() else {
            let len = first.len().min(SEND_QUANTUM as usize) as u32;
            let flags = sending.flags(1).bits() as i32;
            return opcode::Send::new(fd, first.as_ptr(), len).flags(flags).build();
        };
        let message = self.message.get_or_insert_with(|| spare_messages.pop().unwrap_or_else(Message::new));
        let Slices { header, slices } = &mut *message.0;
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip([first, second].into_iter().chain(run)) {
            *slice = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            count += 1;
        }
        header.msg_iov = slices.as_mut_ptr();
        header.msg_iovlen = count as _;
        opcode::SendMsg::new(fd, header).flags(sending.flags(count).bits()).build()
    }
}

impl Message {
    fn new() -> Self {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all zeros is a msghdr without name, slices, and control data (recvmsg(2)).
        let header = unsafe { std::mem::zeroed() };
        Self(Box::new(Slices { header, slices: [nothing; SLICES] }))
    }
}

/// Owns a descriptor that an accept has returned.
fn adopt_descriptor(result: i32) -> OwnedFd {
    // SAFETY: the kernel made this descriptor for this completion, and nothing else knows of it.
    unsafe { OwnedFd::from_raw_fd(result) }
}

fn failed(token: Token, op: OpKind, fault: Fault) -> Event<'static> {
    Event::Failed { token, op, fault, sent: 0, segments: Vec::new() }
}

/// Why a place that is used inside is there.
const THERE: &str =
    "tokens are checked where they come in, and places are kept while operations are in flight";

impl Reactor for UringReactor {
    fn backend(&self) -> Backend {
        Backend::Uring
    }

    fn adopt(&mut self, source: Source) -> Result<Token, Fault> {
        let (descriptor, kind) = match source {
            Source::Listener(listener) => (listener.descriptor, Kind::Listener),
            Source::Stream(stream) => (stream.descriptor, Kind::Stream),
            Source::Watched(watched) => (watched.descriptor, Kind::Watched),
        };
        Ok(self.places.insert(Place::new(Some(descriptor), kind)))
    }

    fn submit(&mut self, token: Token, op: Op) {
        if let Op::Offload(job) = op {
            self.jobs += 1;
            if let Err(refused) = self.pool.submit(job, &self.returns) {
                self.returned.push_back((refused.key, None));
            }
            return;
        }
        let Some(place) = self.places.get_mut(token) else { return };
        match op {
            Op::Accept | Op::Recv | Op::Watch => {
                if !place.has(ENDED) {
                    place.flags |= WANTED;
                    let parked = place.has(PARKED);
                    self.note_change(token.index);
                    if parked {
                        self.make_ready(token.index);
                    }
                }
            }
            Op::Pause => {
                place.flags &= !WANTED;
                self.note_change(token.index);
            }
            Op::Retire => {
                // Without the filter a few attempts may be reset: no reason not to stop.
                let _best_effort = socket::refuse_new(place.descriptor());
            }
            Op::Tune(tuning) => socket::tune(place.descriptor(), tuning),
            Op::Connect(peer) => self.connect(token, peer),
            Op::Send(send) => self.start_send(token, send),
            Op::Shutdown => self.shutdown(token),
            Op::Cancel => self.cancel(token),
            Op::Close => self.close(token, Closing::Close),
            Op::Recycle => self.close(token, Closing::Recycle),
            Op::Abort => self.close(token, Closing::Abort),
            Op::Offload(_) => unreachable!("returned above"),
        }
    }

    fn wait(&mut self, until: Option<u64>) -> Result<Now, Fault> {
        self.dial();
        self.reconcile();
        let busy = !(self.done.is_empty()
            && self.returned.is_empty()
            && self.ready.is_empty()
            && self.completions.is_empty());
        // From now, not from when the turn began: a long turn must not put off the timers by its length.
        let timeout = until.map(|until| Duration::from_nanos(until.saturating_sub(self.clock.now().mono_ns)));
        self.enter(if busy { Wait::No } else { Wait::For { timeout, gather: self.gather } })?;
        self.now = self.clock.now();
        Ok(self.now)
    }

    fn gather(&mut self, time: Duration) -> bool {
        self.gather = if self.ring.gathers() { time } else { Duration::ZERO };
        !self.gather.is_zero()
    }

    fn spare(&mut self) -> Option<Stream> {
        self.spares.pop()
    }

    fn next(&mut self) -> Option<Event<'_>> {
        if let Some(lease) = self.lent.take() {
            self.buffers.give_back(lease);
        }
        loop {
            if let Some(event) = self.done.pop_front() {
                if let Event::Closed { token, .. } = event {
                    self.places.release(token.index);
                }
                return Some(event);
            }
            if let Some((key, done)) = self.returned.pop_front() {
                self.jobs -= 1;
                return Some(Event::Offloaded { key, done });
            }
            match self.work()? {
                Served::Nothing => {}
                Served::Event(event) => return Some(event),
                Served::Lease(token, lease) => {
                    let lease = self.lent.insert(lease);
                    return Some(Event::Received { token, lease: self.buffers.bytes_mut(lease) });
                }
                Served::Bytes(token, bytes) => {
                    self.lent_bytes = bytes;
                    return Some(Event::Received { token, lease: &mut self.lent_bytes });
                }
                Served::Scratch(token, len) => {
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
        let place = self.places.get(token).filter(|place| !place.has(CONNECTING));
        place.and_then(|place| self.sends.get(place.link)).map_or(0, |outgoing| outgoing.sending.unsent())
    }

    fn unacknowledged(&self, token: Token) -> u64 {
        let place = self.places.get(token).filter(|place| place.kind == Kind::Stream);
        place.map_or(0, |place| socket::unacknowledged(place.descriptor()))
    }

    fn buffered(&self, token: Token) -> Option<u64> {
        let place = self.places.get(token).filter(|place| place.kind == Kind::Stream)?;
        socket::buffered(place.descriptor())
    }

    fn listen_drops(&self, listener: Token) -> Option<u32> {
        let place = self.places.get(listener).filter(|place| place.kind == Kind::Listener)?;
        socket::drops(place.descriptor())
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy {
            sources: self.places.len() - 1,
            sends: self.sends.len(),
            jobs: self.jobs,
            leases: self.buffers.leased() - usize::from(self.lent.is_some()),
        }
    }
}

impl Drop for UringReactor {
    /// Takes everything back from the kernel before its memory goes: closing the ring alone would end its
    /// operations some time later. What a shutdown ends comes first: to cancel all operations takes the kernel a time
    /// that grows with the square of their number, some 20 s for 10,000.
    fn drop(&mut self) {
        for index in 0..self.places.rows() {
            if let Some(place) = self.places.at(index).filter(|place| place.kind == Kind::Stream) {
                let _down_already = sys::shutdown(place.descriptor(), Shutdown::Both);
            }
        }
        let mut cancelling = false;
        for _ in 0..LAST_TURNS {
            if self.inflight == 0 {
                return;
            }
            if cancelling {
                let cancel = opcode::AsyncCancel2::new(CancelBuilder::any()).build();
                // SAFETY: a cancel points to nothing.
                unsafe { self.ring.push(cancel.user_data(Purpose::Cancel.of(BELL.index))) };
            }
            let a_while = Wait::For { timeout: Some(Duration::from_millis(10)), gather: Duration::ZERO };
            if self.enter(a_while).is_err() {
                break;
            }
            cancelling = self.completions.is_empty();
            for completion in std::mem::take(&mut self.completions) {
                let (purpose, index) = Purpose::split(completion.user_data);
                if purpose == Purpose::Cancel {
                    continue;
                }
                self.inflight -= usize::from(!completion.has_more());
                let listener = self.places.at(index).is_some_and(|place| place.kind == Kind::Listener);
                if listener && purpose == Purpose::Supply && completion.result >= 0 {
                    drop(adopt_descriptor(completion.result));
                }
            }
        }
        if self.inflight > 0 {
            // The kernel would not let go. Memory that it may still use must never be used for anything else.
            std::mem::forget(std::mem::take(&mut self.sends));
            std::mem::forget(std::mem::take(&mut self.connects));
            self.buffers.leak();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_costs_twenty_bytes() {
        assert_eq!(size_of::<crate::places::Row<Place>>(), 20);
    }

    #[test]
    fn what_an_operation_is_for_survives_the_kernel() {
        for purpose in Purpose::ALL {
            for index in [0, 1, 77, u32::MAX] {
                assert_eq!(Purpose::split(purpose.of(index)), (purpose, index));
            }
        }
    }
}
