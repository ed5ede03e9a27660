//! The reactor over io_uring(7): the kernel performs the operations and reports their completion.
//!
//! ```text
//!  submit ─► Place: what is wanted ──── reconcile, once a turn ────► submission queue ─┐
//!                                                                                      │ one enter a turn
//!  next ◄── Event ◄── handle ◄── completions ◄── completion queue ◄────────────────────┘
//! ```
//!
//! A source and its supply operation (multishot accept, receive or poll):
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
//! - **Data that arrives for a paused source** (the kernel was faster than the cancel) is kept as a [`Parcel`], and delivered
//!   first once the source is armed again. It is copied out of the ring's buffers, so that idle connections do not exhaust
//!   them. Above [`UringSettings::parked_bytes`] of copies it stays in its buffer.
//! - **A cancel is delayed by one turn**, because a send completes a turn after its submission. Otherwise a worker that pauses
//!   while it responds would pay for a cancel and a new operation per request.
//! - **No free buffer** (ENOBUFS): one recv(2) receives into the scratch buffer, then a poll replaces the receive until the
//!   ring has free buffers. So no connection waits for a buffer that another one holds.
//! - **Sends from memory** go through the ring, all sends of a turn with one enter. They do not use MSG_WAITALL: a partial
//!   completion shows in [`Reactor::unsent`] that a slow reader still reads. **Sends with files** call send(2) and sendfile(2)
//!   directly: io_uring has no sendfile, and its splice runs on other threads. When they block, a poll for room resumes them.
//! - **Closing** first cancels all operations of the source, and closes the descriptor after the last completion. A descriptor
//!   that is closed while a receive is armed keeps its connection open.

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

use self::buffers::{BufferRing, Lease};
use self::ring::{Completion, EnterWait, KernelRing};
use crate::clock::{Clock, Now};
use crate::offload::{Pool, Returns};
use crate::op::{CloseOp, Done, Event, Op, OpKind, Peer, Send, Token};
use crate::op_error::OpError;
use crate::places::Places;
use crate::reactor::{
    Backend, LEASE_BYTES_MAX, Occupancy, Reactor, ReactorSource, SEND_QUANTUM, SPARES_MAX, Unavailable,
};
use crate::sending::{SendStep, Sending, is_one_segment};
use crate::slab::Slab;
use crate::socket::Stream;
use crate::stream_facts::{StreamFacts, stream_facts};
use crate::sys::bell::Bell;
use crate::sys::net::{self, FileSender, SLICES_MAX, send_flags};
use crate::wake::{self, Waker};

/// Maximum number of 10 ms turns for which a dropped reactor waits for the kernel to release its memory.
const LAST_TURNS: u32 = 500;

/// Settings of a [`UringReactor`].
#[derive(Clone, Copy, Debug)]
pub struct UringSettings {
    /// Number of receive buffers: a power of two, at most 32,768. A turn takes up to 256 events, so 256 buffers always suffice
    /// for the events of one turn.
    pub buffers: u16,
    /// Size of each buffer in bytes, at most [`LEASE_BYTES_MAX`]. 16 KiB hold any request head and a TLS record.
    pub buffer_bytes: u32,
    /// Maximum bytes copied out of the ring for paused connections. Above it, data stays in the ring's buffers. So paused peers
    /// make a worker hold at most `parked_bytes + buffers × buffer_bytes`.
    pub parked_bytes: usize,
    /// Whether one accept or receive operation yields events until it is cancelled (Linux 6.0), instead of a single event.
    /// Where the kernel refuses, the reactor continues without it.
    pub multishot: bool,
}

impl Default for UringSettings {
    fn default() -> Self {
        Self { buffers: 256, buffer_bytes: 16 * 1024, parked_bytes: 16 << 20, multishot: true }
    }
}

/// A reactor over io_uring. Stays on the thread that created it, as its ring requires (IORING_SETUP_SINGLE_ISSUER).
pub struct UringReactor {
    ring: KernelRing,
    buffers: BufferRing,
    settings: UringSettings,
    sources: Places<RingSource>,
    sends: Slab<Outgoing>,
    connects: Slab<Box<SocketAddrAny>>,
    /// Sources whose connects are submitted at the end of the turn.
    dialed: Vec<Token>,
    /// Message headers of completed sends, for reuse.
    spare_messages: Vec<MsgHeader>,
    /// Data that arrived for paused sources, by slot index.
    parked: HashMap<u32, VecDeque<Parcel>>,
    parked_bytes: usize,
    /// Slots whose operations may need to change before the next enter.
    changed: Vec<u32>,
    /// Sources with work that needs no completion: a send that used up its quantum, or parcels to deliver.
    ready: VecDeque<Token>,
    /// Whether `ready` is served before the completions.
    ready_first: bool,
    completions: VecDeque<Completion>,
    /// Events to deliver before any further work.
    done: VecDeque<Event<'static>>,
    lent: Option<Lease>,
    /// The parked bytes that the current lease refers to.
    lent_bytes: Vec<u8>,
    scratch: Box<[u8]>,
    /// Operations whose last completion has not been taken yet.
    inflight: usize,
    starved: u64,
    wake: wake::WakeReceiver,
    pool: Pool,
    returns: Arc<Returns>,
    returned: VecDeque<(u64, Option<Done>)>,
    jobs: usize,
    clock: Clock,
    now: Now,
    /// Minimum duration of a wait.
    gather: Duration,
    spares: Vec<Stream>,
    thread: PhantomData<*const ()>,
}

/// The first slot belongs to the bell, so that a wake-up is handled like any other event.
const BELL: Token = Token { index: 0, generation: 0 };
const NONE: u32 = u32::MAX;

/// A source: 16 bytes, or 20 with its generation.
struct RingSource {
    /// `None` only in the bell's slot.
    descriptor: Option<OwnedFd>,
    /// The send or the connect in flight, or `NONE`.
    link: u32,
    flags: u32,
    kind: RingSourceKind,
    /// Operations whose last completion has not been taken yet: at most one supply, one hint, and one send or connect.
    inflight: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RingSourceKind {
    Bell,
    Listener,
    Stream,
    Watched,
}

/// `Accept`, `Recv` or `Watch` is requested.
const WANTED: u32 = 1;
/// The supply operation is in flight.
const ARMED: u32 = 1 << 1;
/// The supply operation is a poll, because no buffer was free for a receive.
const POLLING: u32 = 1 << 2;
/// The supply operation is being cancelled.
const CANCELING: u32 = 1 << 3;
/// The supply operation was unwanted at the last enter, and is cancelled if it still is at the next.
const LINGERING: u32 = 1 << 4;
/// A poll for the peer's end is in flight.
const WATCHING: u32 = 1 << 5;
/// The end of stream was reported while receiving was paused.
const HINTED: u32 = 1 << 6;
/// Reading has no further events: the end was delivered, or reading or connecting failed.
const ENDED: u32 = 1 << 7;
/// `link` refers to a connect.
const CONNECTING: u32 = 1 << 8;
/// The send or connect in flight was cancelled.
const CANCELED: u32 = 1 << 9;
/// The sending direction is shut down once the send in flight has ended.
const FINISHING: u32 = 1 << 10;
/// Parcels wait in `parked`.
const PARKED: u32 = 1 << 11;
/// Closed by its owner. Removed when no operation is in flight.
const CLOSING: u32 = 1 << 12;
/// Queued in `changed`.
const CHANGED: u32 = 1 << 13;
/// Queued in `ready`.
const READY: u32 = 1 << 14;
/// Connected by [`Op::Connect`], with Nagle's algorithm enabled.
const NAGLE: u32 = 1 << 15;
/// No send has started yet.
const UNSENT: u32 = 1 << 16;
/// The end of stream was delivered after all data.
const OVER: u32 = 1 << 17;
/// Closed by its owner, and the socket should be kept for reuse.
const RECYCLING: u32 = 1 << 18;

/// A send in flight.
struct Outgoing {
    sending: Sending,
    /// The message header and slices of a vectored send.
    message: Option<MsgHeader>,
    /// Contains a file range, so it is sent with direct system calls.
    direct: bool,
    /// Whether an operation of the send is in flight. Otherwise the send waits in `ready`.
    in_kernel: bool,
}

/// The arguments of sendmsg(2), on the heap so that they do not move before the completion.
struct MsgHeader(Box<Slices>);

struct Slices {
    header: libc::msghdr,
    slices: [libc::iovec; SLICES_MAX],
}

/// A completion that arrived while its source was paused.
enum Parcel {
    Bytes(Vec<u8>),
    /// Bytes that exceed the limit of parked memory.
    Lease(Lease),
    Accepted(OwnedFd),
    Readable,
    End,
    Failed(OpError),
}

/// The purpose of an operation: the upper half of its `user_data`. The lower half is the slot index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum OpPurpose {
    /// Accept, receive, or poll of a watched descriptor.
    Supply,
    /// Poll of a stream for which no buffer was free.
    Look,
    /// Poll for the peer's end.
    Hint,
    Send,
    /// Poll for room to send a file.
    Room,
    Connect,
    Cancel,
}

impl OpPurpose {
    const ALL: [Self; 7] =
        [Self::Supply, Self::Look, Self::Hint, Self::Send, Self::Room, Self::Connect, Self::Cancel];

    const fn of(self, index: u32) -> u64 {
        (self as u64) << 32 | index as u64
    }

    const fn split(user_data: u64) -> (Self, u32) {
        (Self::ALL[(user_data >> 32) as usize], user_data as u32)
    }
}

impl RingSource {
    const fn new(descriptor: Option<OwnedFd>, kind: RingSourceKind) -> Self {
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
            RingSourceKind::Listener => OpKind::Accept,
            RingSourceKind::Stream => OpKind::Recv,
            RingSourceKind::Watched | RingSourceKind::Bell => OpKind::Watch,
        }
    }
}

/// The outcome of a unit of work.
enum RingOutcome {
    Nothing,
    Event(Event<'static>),
    /// Bytes in a ring buffer.
    Lease(Token, Lease),
    /// Bytes that were parked.
    Bytes(Token, Vec<u8>),
    /// The number of bytes received into the scratch buffer.
    Scratch(Token, usize),
}

/// Returns whether a [`UringReactor`] supports [`Reactor::gather`], if this process can create one.
///
/// # Errors
/// As [`UringReactor::with`].
pub(crate) fn probe() -> Result<bool, Unavailable> {
    let ring = KernelRing::open()?;
    let few = BufferRing::register(&ring.uring.submitter(), 1, 4_096);
    few.map(drop).map_err(|error| ring::unavailable(error, None))?;
    Ok(ring.gathers())
}

impl UringReactor {
    /// Creates a reactor with the default settings. Its blocking jobs run on `pool`.
    ///
    /// # Errors
    /// As [`UringReactor::with`].
    pub fn new(pool: Pool) -> Result<Self, Unavailable> {
        Self::with(pool, UringSettings::default())
    }

    /// Creates a reactor. Its blocking jobs run on `pool`.
    ///
    /// # Errors
    /// The kernel has no io_uring, or no provided buffers (before Linux 5.19), or denies them to this process. The error gives
    /// the reason and advice.
    pub fn with(pool: Pool, settings: UringSettings) -> Result<Self, Unavailable> {
        assert!(settings.buffer_bytes as usize <= LEASE_BYTES_MAX, "a buffer is lent as one lease");
        let ring = KernelRing::open()?;
        let buffers = BufferRing::register(&ring.uring.submitter(), settings.buffers, settings.buffer_bytes)
            .map_err(|error| ring::unavailable(error, None))?;
        let bell = Bell::new().map_err(|errno| Unavailable::new(Backend::Uring, errno.into(), ""))?;
        let bell = wake::WakeReceiver::new(bell);
        let mut places = Places::new();
        let token = places
            .insert(RingSource { flags: WANTED | CHANGED, ..RingSource::new(None, RingSourceKind::Bell) });
        assert_eq!(token, BELL, "the first place of an empty table");
        let mut clock = Clock::new();
        Ok(Self {
            ring,
            buffers,
            settings,
            sources: places,
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
            wake: bell,
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

    /// How often a connection found the ring without buffers and was received from directly.
    pub fn starved(&self) -> u64 {
        self.starved
    }

    /// Records that a slot's operations may need to change.
    fn note_change(&mut self, index: u32) {
        let Some(place) = self.sources.at(index) else { return };
        if !place.has(CHANGED) {
            place.flags |= CHANGED;
            self.changed.push(index);
        }
    }

    fn make_ready(&mut self, index: u32) {
        let token = self.sources.token(index);
        let Some(place) = self.sources.at(index) else { return };
        if !place.has(READY) {
            place.flags |= READY;
            self.ready.push_back(token);
        }
    }

    /// Submits an operation that ends with a completion of its own.
    ///
    /// # Safety
    /// As [`KernelRing::push`].
    unsafe fn begin(&mut self, index: u32, purpose: OpPurpose, entry: Entry) {
        let place = self.sources.at(index).expect(THERE);
        place.inflight += 1;
        self.inflight += 1;
        // SAFETY: the caller's promise.
        unsafe { self.ring.push(entry.user_data(purpose.of(index))) };
    }

    /// Updates the kernel's operations to match the requested ones.
    fn reconcile(&mut self) {
        let mut changed = std::mem::take(&mut self.changed);
        for index in changed.drain(..) {
            self.reconcile_place(index);
        }
        // Slots deferred to the next turn were added meanwhile.
        changed.append(&mut self.changed);
        self.changed = changed;
    }

    fn reconcile_place(&mut self, index: u32) {
        let Some(place) = self.sources.at(index) else { return };
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
        } else if place.kind == RingSourceKind::Stream
            && !place.has(WATCHING | HINTED | ENDED | CONNECTING | CLOSING)
        {
            place.flags |= WATCHING;
            let entry =
                opcode::PollAdd::new(Fd(place.descriptor().as_raw_fd()), libc::POLLRDHUP as u32).build();
            // SAFETY: a poll points to nothing.
            unsafe { self.begin(index, OpPurpose::Hint, entry) };
        }
        self.give_up(index);
    }

    /// Cancels the operations that are no longer wanted. Only their own completions count. The cancel's completion matters only
    /// if the kernel found no such operation, see [`Self::insist`].
    fn give_up(&mut self, index: u32) {
        let place = self.sources.at(index).expect(THERE);
        let outgoing = if place.has(CONNECTING) { None } else { self.sends.get(place.link) };
        let sending = outgoing
            .filter(|outgoing| outgoing.in_kernel)
            .map(|outgoing| if outgoing.direct { OpPurpose::Room } else { OpPurpose::Send });
        let supply = if place.has(POLLING) { OpPurpose::Look } else { OpPurpose::Supply };
        let unwanted = [
            (place.has(ARMED) && place.has(CANCELING | CLOSING)).then_some(supply),
            (place.has(WATCHING) && place.has(CLOSING)).then_some(OpPurpose::Hint),
            sending.filter(|_| place.has(CANCELED | CLOSING)),
            (place.has(CONNECTING) && place.has(CANCELED | CLOSING)).then_some(OpPurpose::Connect),
        ];
        for purpose in unwanted.into_iter().flatten() {
            let cancel = opcode::AsyncCancel::new(purpose.of(index)).build().flags(Flags::SKIP_SUCCESS);
            // SAFETY: a cancel points to nothing.
            unsafe { self.ring.push(cancel.user_data(OpPurpose::Cancel.of(index))) };
        }
    }

    /// Starts the supply operation of a source.
    fn arm(&mut self, index: u32) {
        let multishot = self.settings.multishot;
        let bell = self.wake.bell().as_fd().as_raw_fd();
        let has_free = self.buffers.has_free();
        let place = self.sources.at(index).expect(THERE);
        place.flags = place.flags & !POLLING | ARMED;
        let fd = Fd(place.descriptor.as_ref().map_or(bell, AsRawFd::as_raw_fd));
        let mut purpose = OpPurpose::Supply;
        let entry = match place.kind {
            RingSourceKind::Listener => {
                let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
                if multishot {
                    opcode::AcceptMulti::new(fd).flags(flags).build()
                } else {
                    opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut()).flags(flags).build()
                }
            }
            RingSourceKind::Stream if !has_free => {
                place.flags |= POLLING;
                purpose = OpPurpose::Look;
                opcode::PollAdd::new(fd, (libc::POLLIN | libc::POLLRDHUP) as u32).build()
            }
            RingSourceKind::Stream if multishot => opcode::RecvMulti::new(fd, buffers::GROUP).build(),
            RingSourceKind::Stream => opcode::Recv::new(fd, std::ptr::null_mut(), self.settings.buffer_bytes)
                .buf_group(buffers::GROUP)
                .build()
                .flags(Flags::BUFFER_SELECT),
            RingSourceKind::Watched | RingSourceKind::Bell => {
                opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build()
            }
        };
        // SAFETY: none of these points to memory but a receive, to the ring's buffers, which are unmapped only
        // after the last completion.
        unsafe { self.begin(index, purpose, entry) };
    }

    /// Processes a completion for its source.
    fn handle(&mut self, completion: Completion) -> RingOutcome {
        let (purpose, index) = OpPurpose::split(completion.user_data);
        let lease = cqueue::buffer_select(completion.flags)
            .map(|id| self.buffers.take(id, u32::try_from(completion.result).unwrap_or(0)));
        if purpose == OpPurpose::Cancel {
            // The cancel found no operation, usually because the operation had just ended. If it has not, it was in a state
            // that cancels do not find, and must be cancelled again.
            let place = self.sources.at(index);
            if place.is_some_and(|place| place.has(CLOSING | CANCELING | CANCELED) && place.inflight > 0) {
                self.insist(index);
            }
            return RingOutcome::Nothing;
        }
        let place = self.sources.at(index).expect("a place is kept while operations are in flight");
        if !completion.has_more() {
            place.inflight -= 1;
            self.inflight -= 1;
            match purpose {
                OpPurpose::Supply | OpPurpose::Look => {
                    place.flags &= !(ARMED | POLLING | CANCELING | LINGERING);
                    self.note_change(index);
                }
                OpPurpose::Hint => place.flags &= !WATCHING,
                OpPurpose::Send | OpPurpose::Room => {
                    if let Some(outgoing) = self.sends.get_mut(place.link) {
                        outgoing.in_kernel = false;
                    }
                }
                OpPurpose::Connect | OpPurpose::Cancel => {}
            }
        }
        let place = self.sources.at(index).expect(THERE);
        if place.has(CLOSING) {
            let accepted = place.kind == RingSourceKind::Listener
                && purpose == OpPurpose::Supply
                && completion.result >= 0;
            if accepted {
                drop(adopt_descriptor(completion.result));
            }
            if let Some(lease) = lease {
                self.buffers.give_back(lease);
            }
            self.free_closed(index);
            return RingOutcome::Nothing;
        }
        match (purpose, place.kind) {
            (OpPurpose::Supply, RingSourceKind::Stream) => self.received(index, completion.result, lease),
            (OpPurpose::Supply, RingSourceKind::Listener) => self.accepted(index, completion.result),
            (OpPurpose::Supply, RingSourceKind::Watched | RingSourceKind::Bell) => {
                self.readable(index, completion.result)
            }
            (OpPurpose::Look, _) => self.receive_directly(index),
            (OpPurpose::Hint, _) => self.hinted(index, completion.result),
            (OpPurpose::Send, _) => self.send_completed(index, completion.result),
            (OpPurpose::Room, _) => self.room(index, completion.result),
            (OpPurpose::Connect, _) => self.connected(index, completion.result),
            (OpPurpose::Cancel, _) => unreachable!("returned above"),
        }
    }

    /// Cancels operations once more. A closing connection is also shut down, so that a flood that keeps its receive running
    /// ends in a reset.
    fn insist(&mut self, index: u32) {
        let place = self.sources.at(index).expect(THERE);
        if place.has(CLOSING) && place.kind == RingSourceKind::Stream {
            let _down_already = sys::shutdown(place.descriptor(), Shutdown::Both);
        }
        self.note_change(index);
    }

    fn received(&mut self, index: u32, result: i32, lease: Option<Lease>) -> RingOutcome {
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
            // Multishot receive is newer than provided buffers (Linux 6.0, 5.19). Fall back to single receives.
            Errno::INVAL if self.settings.multishot => {
                self.settings.multishot = false;
                RingOutcome::Nothing
            }
            Errno::CANCELED | Errno::INTR | Errno::AGAIN => RingOutcome::Nothing,
            errno => self.reading_failed(index, errno.into()),
        }
    }

    fn deliver_lease(&mut self, index: u32, lease: Lease) -> RingOutcome {
        let token = self.sources.token(index);
        let place = self.sources.at(index).expect(THERE);
        if place.flags & (WANTED | PARKED | ENDED) == WANTED {
            return RingOutcome::Lease(token, lease);
        }
        if place.has(ENDED) {
            self.buffers.give_back(lease);
            return RingOutcome::Nothing;
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
        RingOutcome::Nothing
    }

    /// Receives without a ring buffer: when none is free, the connection must not wait for others.
    fn receive_directly(&mut self, index: u32) -> RingOutcome {
        let token = self.sources.token(index);
        let place = self.sources.at(index).expect(THERE);
        if place.flags & (WANTED | PARKED | ENDED) != WANTED {
            return RingOutcome::Nothing;
        }
        match sys::recv(
            place.descriptor(),
            &mut self.scratch[..self.settings.buffer_bytes as usize],
            RecvFlags::DONTWAIT,
        ) {
            Ok((0, _)) => self.peer_ended(index),
            Ok((len, _)) => RingOutcome::Scratch(token, len),
            Err(Errno::AGAIN | Errno::INTR) => RingOutcome::Nothing,
            Err(errno) => self.reading_failed(index, errno.into()),
        }
    }

    fn peer_ended(&mut self, index: u32) -> RingOutcome {
        let token = self.sources.token(index);
        let place = self.sources.at(index).expect(THERE);
        if place.flags & (WANTED | PARKED) == WANTED {
            place.flags = place.flags & !WANTED | ENDED | OVER;
            return RingOutcome::Event(Event::PeerClosed { token, behind_data: false });
        }
        let announce = place.flags & (WANTED | HINTED) == 0;
        place.flags |= HINTED;
        self.park(index, Parcel::End);
        if announce {
            RingOutcome::Event(Event::PeerClosed { token, behind_data: true })
        } else {
            RingOutcome::Nothing
        }
    }

    /// Handles a receive error. A source with parked bytes to deliver reports the error after them, any other source at once.
    fn reading_failed(&mut self, index: u32, fault: OpError) -> RingOutcome {
        let token = self.sources.token(index);
        let place = self.sources.at(index).expect(THERE);
        if place.flags & (WANTED | PARKED) == WANTED | PARKED {
            self.park(index, Parcel::Failed(fault));
            return RingOutcome::Nothing;
        }
        if place.has(ENDED) {
            return RingOutcome::Nothing;
        }
        place.flags = place.flags & !WANTED | ENDED;
        let op = place.op();
        self.forget_parcels(index);
        RingOutcome::Event(failed(token, op, fault))
    }

    fn hinted(&mut self, index: u32, result: i32) -> RingOutcome {
        let token = self.sources.token(index);
        let place = self.sources.at(index).expect(THERE);
        if place.has(WANTED | ARMED | HINTED | ENDED) || result < 0 {
            return RingOutcome::Nothing;
        }
        if result & i32::from(libc::POLLERR) != 0 {
            return self.reading_failed(index, OpError::Reset);
        }
        place.flags |= HINTED;
        RingOutcome::Event(Event::PeerClosed { token, behind_data: true })
    }

    fn accepted(&mut self, index: u32, result: i32) -> RingOutcome {
        let place = self.sources.at(index).expect(THERE);
        if result >= 0 {
            let descriptor = adopt_descriptor(result);
            if place.flags & (WANTED | PARKED) == WANTED {
                return self.deliver_accepted(index, descriptor);
            }
            self.park(index, Parcel::Accepted(descriptor));
            return RingOutcome::Nothing;
        }
        match Errno::from_raw_os_error(-result) {
            Errno::INVAL if self.settings.multishot => self.settings.multishot = false,
            Errno::CANCELED => {}
            errno if net::failed_before_accept(errno) => {}
            errno => return self.supply_failed(index, errno.into()),
        }
        RingOutcome::Nothing
    }

    /// Reports an accepted connection. A multishot accept does not return peer addresses, so getpeername(2) does.
    fn deliver_accepted(&mut self, index: u32, descriptor: OwnedFd) -> RingOutcome {
        // Without an address the connection is already closed: treat it as failed before it was accepted.
        let Ok(name) = sys::getpeername(&descriptor) else { return RingOutcome::Nothing };
        let peer = name.and_then(|name| name.try_into().ok()).map_or(Peer::Local, Peer::Inet);
        let listener = self.sources.token(index);
        let token = self.sources.insert(RingSource::new(Some(descriptor), RingSourceKind::Stream));
        RingOutcome::Event(Event::Accepted { listener, token, peer })
    }

    fn readable(&mut self, index: u32, result: i32) -> RingOutcome {
        let token = self.sources.token(index);
        let place = self.sources.at(index).expect(THERE);
        if result < 0 {
            let errno = Errno::from_raw_os_error(-result);
            return if errno == Errno::CANCELED {
                RingOutcome::Nothing
            } else {
                self.supply_failed(index, errno.into())
            };
        }
        if place.kind == RingSourceKind::Bell {
            if !self.wake.clear() {
                return RingOutcome::Nothing;
            }
            self.returns.take(&mut self.returned);
            return RingOutcome::Event(Event::Woken);
        }
        if place.has(WANTED) {
            return RingOutcome::Event(Event::Watched { token });
        }
        if !place.has(PARKED) {
            self.park(index, Parcel::Readable);
        }
        RingOutcome::Nothing
    }

    fn supply_failed(&mut self, index: u32, fault: OpError) -> RingOutcome {
        let token = self.sources.token(index);
        let place = self.sources.at(index).expect(THERE);
        let wanted = place.has(WANTED);
        let op = place.op();
        place.flags &= !WANTED;
        // A paused listener reports the error when it is armed again.
        if wanted { RingOutcome::Event(failed(token, op, fault)) } else { RingOutcome::Nothing }
    }

    fn park(&mut self, index: u32, parcel: Parcel) {
        self.sources.at(index).expect(THERE).flags |= PARKED;
        self.parked.entry(index).or_default().push_back(parcel);
    }

    fn forget_parcels(&mut self, index: u32) {
        if let Some(place) = self.sources.at(index) {
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

    /// Delivers the oldest parcel of an armed source.
    fn deliver_parcel(&mut self, index: u32) -> RingOutcome {
        let token = self.sources.token(index);
        let parcels = self.parked.get_mut(&index).expect("flagged as parked");
        let parcel = parcels.pop_front().expect("an empty queue is removed");
        if parcels.is_empty() {
            self.parked.remove(&index);
            self.sources.at(index).expect(THERE).flags &= !PARKED;
            self.note_change(index);
        } else {
            self.make_ready(index);
        }
        match parcel {
            Parcel::Bytes(bytes) => {
                self.parked_bytes -= bytes.len();
                RingOutcome::Bytes(token, bytes)
            }
            Parcel::Lease(lease) => RingOutcome::Lease(token, lease),
            Parcel::Accepted(descriptor) => self.deliver_accepted(index, descriptor),
            Parcel::Readable => RingOutcome::Event(Event::Watched { token }),
            Parcel::End => self.peer_ended(index),
            Parcel::Failed(fault) => self.reading_failed(index, fault),
        }
    }

    fn start_send(&mut self, token: Token, send: Send) {
        let place = self.sources.get_mut(token).expect(THERE);
        assert!(
            place.kind == RingSourceKind::Stream && place.link == NONE,
            "one send at a time, on a stream"
        );
        if place.has(NAGLE) {
            if !place.has(UNSENT) || !is_one_segment(&send) {
                net::send_at_once(place.descriptor());
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

    /// Submits the next part of a send.
    fn advance_send(&mut self, index: u32) {
        let place = self.sources.at(index).expect(THERE);
        let outgoing = self.sends.get_mut(place.link).expect("a place's link names its send");
        if !outgoing.direct {
            outgoing.in_kernel = true;
            let entry = outgoing.entry(Fd(place.descriptor().as_raw_fd()), &mut self.spare_messages);
            // SAFETY: the entry points into the segments and the message of a send that stays in `sends` until
            // this operation's completion. Neither moves when `sends` does: both are on the heap.
            unsafe { self.begin(index, OpPurpose::Send, entry) };
            return;
        }
        match outgoing.sending.advance(place.descriptor(), FileSender::none(), &mut self.scratch) {
            SendStep::Done => self.end_send(index, Ok(())),
            SendStep::Failed(fault) => self.end_send(index, Err(fault)),
            SendStep::Yielded => self.make_ready(index),
            SendStep::Blocked => {
                outgoing.in_kernel = true;
                let entry =
                    opcode::PollAdd::new(Fd(place.descriptor().as_raw_fd()), libc::POLLOUT as u32).build();
                // SAFETY: a poll points to nothing.
                unsafe { self.begin(index, OpPurpose::Room, entry) };
            }
        }
    }

    fn send_completed(&mut self, index: u32, result: i32) -> RingOutcome {
        let place = self.sources.at(index).expect(THERE);
        let canceled = place.has(CANCELED);
        let outgoing = self.sends.get_mut(place.link).expect("a place's link names its send");
        if let Ok(sent) = u64::try_from(result) {
            outgoing.sending.skip(sent);
            if outgoing.sending.is_done() {
                self.end_send(index, Ok(()));
            } else if canceled {
                self.end_send(index, Err(OpError::Canceled));
            } else {
                self.advance_send(index);
            }
            return RingOutcome::Nothing;
        }
        match Errno::from_raw_os_error(-result) {
            Errno::INTR | Errno::AGAIN if !canceled => self.advance_send(index),
            Errno::INTR | Errno::AGAIN => self.end_send(index, Err(OpError::Canceled)),
            errno => self.end_send(index, Err(errno.into())),
        }
        RingOutcome::Nothing
    }

    fn room(&mut self, index: u32, result: i32) -> RingOutcome {
        let place = self.sources.at(index).expect(THERE);
        if place.has(CANCELED) {
            self.end_send(index, Err(OpError::Canceled));
        } else if result < 0 {
            self.end_send(index, Err(Errno::from_raw_os_error(-result).into()));
        } else {
            self.advance_send(index);
        }
        RingOutcome::Nothing
    }

    /// Removes the send in flight from its source, then performs a shutdown that was waiting for it.
    fn end_send(&mut self, index: u32, result: Result<(), OpError>) {
        let token = self.sources.token(index);
        let place = self.sources.at(index).expect(THERE);
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
        let place = self.sources.get_mut(token).expect(THERE);
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
        let place = self.sources.get_mut(token).expect(THERE);
        assert!(
            place.kind == RingSourceKind::Stream && place.link == NONE,
            "connected once, before anything is sent"
        );
        place.link = self.connects.insert(Box::new(SocketAddrAny::from(peer)));
        place.flags |= CONNECTING | NAGLE | UNSENT;
        self.dialed.push(token);
    }

    /// Submits the connects of a turn after its sends, so that the sends reach a server back to back. With handshakes in
    /// between, the server would sleep before each send and be woken for each.
    fn dial(&mut self) {
        let mut dialed = std::mem::take(&mut self.dialed);
        for token in dialed.drain(..) {
            // Skip sources that were closed since.
            let Some(place) = self.sources.get_mut(token) else { continue };
            let address = self.connects.get(place.link).expect("a place's link names its connect");
            let fd = Fd(place.descriptor().as_raw_fd());
            let entry = opcode::Connect::new(fd, address.as_ptr().cast(), address.addr_len()).build();
            // SAFETY: the address is on the heap, and in `connects` until this operation's completion.
            unsafe { self.begin(token.index, OpPurpose::Connect, entry) };
        }
        self.dialed = dialed;
    }

    fn connected(&mut self, index: u32, result: i32) -> RingOutcome {
        let token = self.sources.token(index);
        let place = self.sources.at(index).expect(THERE);
        self.connects.remove(std::mem::replace(&mut place.link, NONE));
        place.flags &= !(CONNECTING | CANCELED);
        if result == 0 {
            return RingOutcome::Event(Event::Connected { token });
        }
        place.flags |= ENDED;
        RingOutcome::Event(failed(token, OpKind::Connect, Errno::from_raw_os_error(-result).into()))
    }

    fn cancel(&mut self, token: Token) {
        let place = self.sources.get_mut(token).expect(THERE);
        if place.link == NONE {
            return;
        }
        let in_kernel = self.sends.get(place.link).is_some_and(|outgoing| outgoing.in_kernel);
        if !in_kernel && !place.has(CONNECTING) {
            self.end_send(token.index, Err(OpError::Canceled));
            return;
        }
        place.flags |= CANCELED;
        self.note_change(token.index);
    }

    fn close(&mut self, token: Token, how: CloseOp) {
        self.sources.outdate(token.index);
        self.forget_parcels(token.index);
        let place = self.sources.at(token.index).expect(THERE);
        let is_over = how == CloseOp::Recycle && place.has(OVER) && place.link == NONE;
        place.flags = place.flags & (CHANGED | CONNECTING | ARMED | POLLING | WATCHING) | CLOSING;
        if is_over {
            place.flags |= RECYCLING;
        }
        if how == CloseOp::Abort {
            // A zero linger time makes close(2) send a reset and discard queued data (socket(7)).
            let _best_effort = sockopt::set_socket_linger(place.descriptor(), Some(Duration::ZERO));
        }
        self.note_change(token.index);
        self.free_closed(token.index);
    }

    /// Frees a closing source once the kernel has no operation on it. Its descriptor is closed, or kept for reuse.
    fn free_closed(&mut self, index: u32) {
        if self.sources.at(index).is_none_or(|place| place.inflight > 0) {
            return;
        }
        let Token { generation, .. } = self.sources.token(index);
        let token = Token { index, generation: generation.wrapping_sub(1) };
        let place = self.sources.remove(index);
        let recycling = place.has(RECYCLING);
        let mut segments = Vec::new();
        if place.has(CONNECTING) {
            self.connects.remove(place.link);
        } else if let Some(outgoing) = self.sends.remove(place.link) {
            self.spare_messages.extend(outgoing.message);
            segments = outgoing.sending.into_segments();
        }
        if let Some(descriptor) = place.descriptor.filter(|descriptor| {
            recycling && self.spares.len() < SPARES_MAX && net::disconnect(descriptor.as_fd())
        }) {
            self.spares.push(Stream { handle: descriptor });
        }
        self.done.push_back(Event::Closed { token, segments });
    }

    /// Serves a source that has work which needs no completion.
    fn serve(&mut self, token: Token) -> RingOutcome {
        let Some(place) = self.sources.get_mut(token) else { return RingOutcome::Nothing };
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
        RingOutcome::Nothing
    }

    /// Performs the next unit of work. Alternates between ready sources and completions.
    fn work(&mut self) -> Option<RingOutcome> {
        self.ready_first = !self.ready_first;
        if (self.ready_first || self.completions.is_empty())
            && let Some(token) = self.ready.pop_front()
        {
            return Some(self.serve(token));
        }
        let completion = self.completions.pop_front()?;
        Some(self.handle(completion))
    }

    fn enter(&mut self, wait: EnterWait) -> Result<(), OpError> {
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
    /// The operation that sends the current run of memory segments.
    fn entry(&mut self, fd: Fd, spare_messages: &mut Vec<MsgHeader>) -> Entry {
        let sending = &self.sending;
        let mut run = sending.run();
        let first = run.next().expect("a send without files that is not done has bytes");
        let Some(second) = run.next() else {
            let len = first.len().min(SEND_QUANTUM as usize) as u32;
            let flags = send_flags(sending.has_more(1)).bits() as i32;
            return opcode::Send::new(fd, first.as_ptr(), len).flags(flags).build();
        };
        let message = self.message.get_or_insert_with(|| spare_messages.pop().unwrap_or_else(MsgHeader::new));
        let Slices { header, slices } = &mut *message.0;
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip([first, second].into_iter().chain(run)) {
            *slice = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            count += 1;
        }
        header.msg_iov = slices.as_mut_ptr();
        header.msg_iovlen = count as _;
        opcode::SendMsg::new(fd, header).flags(send_flags(sending.has_more(count)).bits()).build()
    }
}

impl MsgHeader {
    fn new() -> Self {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all zeros is a msghdr without name, slices, and control data (recvmsg(2)).
        let header = unsafe { std::mem::zeroed() };
        Self(Box::new(Slices { header, slices: [nothing; SLICES_MAX] }))
    }
}

/// Takes ownership of a descriptor returned by an accept.
fn adopt_descriptor(result: i32) -> OwnedFd {
    // SAFETY: the kernel made this descriptor for this completion, and nothing else knows of it.
    unsafe { OwnedFd::from_raw_fd(result) }
}

fn failed(token: Token, op: OpKind, fault: OpError) -> Event<'static> {
    Event::Failed { token, op, fault, sent: 0, segments: Vec::new() }
}

/// The reason why slots used internally exist.
const THERE: &str =
    "tokens are checked where they come in, and places are kept while operations are in flight";

impl Reactor for UringReactor {
    fn backend(&self) -> Backend {
        Backend::Uring
    }

    fn adopt(&mut self, source: ReactorSource) -> Result<Token, OpError> {
        let (descriptor, kind) = match source {
            ReactorSource::Listener(listener) => (listener.handle, RingSourceKind::Listener),
            ReactorSource::Stream(stream) => (stream.handle, RingSourceKind::Stream),
            ReactorSource::Watched(watched) => (watched.handle, RingSourceKind::Watched),
        };
        Ok(self.sources.insert(RingSource::new(Some(descriptor), kind)))
    }

    fn submit(&mut self, token: Token, op: Op) {
        if let Op::Offload(job) = op {
            self.jobs += 1;
            if let Err(refused) = self.pool.submit(job, &self.returns) {
                self.returned.push_back((refused.key, None));
            }
            return;
        }
        let Some(place) = self.sources.get_mut(token) else { return };
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
                // Without the filter a few connection attempts may be reset, which is acceptable at the end.
                net::refuse_new(place.descriptor());
            }
            Op::Tune(tuning) => net::tune(place.descriptor(), tuning),
            // A lease is a buffer of the ring, whose size is the same for all.
            Op::Lend(_) => {}
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
        self.dial();
        self.reconcile();
        let busy = !(self.done.is_empty()
            && self.returned.is_empty()
            && self.ready.is_empty()
            && self.completions.is_empty());
        // Measured from now, not from the start of the turn, so that a long turn does not delay the timers.
        let timeout = until.map(|until| Duration::from_nanos(until.saturating_sub(self.clock.now().mono_ns)));
        self.enter(if busy { EnterWait::No } else { EnterWait::For { timeout, gather: self.gather } })?;
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
                    self.sources.release(token.index);
                }
                return Some(event);
            }
            if let Some((key, done)) = self.returned.pop_front() {
                self.jobs -= 1;
                return Some(Event::Offloaded { key, done });
            }
            match self.work()? {
                RingOutcome::Nothing => {}
                RingOutcome::Event(event) => return Some(event),
                RingOutcome::Lease(token, lease) => {
                    let lease = self.lent.insert(lease);
                    return Some(Event::Received { token, lease: self.buffers.bytes_mut(lease) });
                }
                RingOutcome::Bytes(token, bytes) => {
                    self.lent_bytes = bytes;
                    return Some(Event::Received { token, lease: &mut self.lent_bytes });
                }
                RingOutcome::Scratch(token, len) => {
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
        self.wake.waker()
    }

    fn unsent(&self, token: Token) -> u64 {
        let place = self.sources.get(token).filter(|place| !place.has(CONNECTING));
        place.and_then(|place| self.sends.get(place.link)).map_or(0, |outgoing| outgoing.sending.unsent())
    }

    fn unacknowledged(&self, token: Token) -> u64 {
        let place = self.sources.get(token).filter(|place| place.kind == RingSourceKind::Stream);
        place.map_or(0, |place| net::unacknowledged(place.descriptor()))
    }

    fn buffered(&self, token: Token) -> Option<u64> {
        let place = self.sources.get(token).filter(|place| place.kind == RingSourceKind::Stream)?;
        net::buffered(place.descriptor())
    }

    fn facts(&self, token: Token) -> Option<StreamFacts> {
        let place = self.sources.get(token).filter(|place| place.kind == RingSourceKind::Stream)?;
        Some(stream_facts(place.descriptor()))
    }

    fn listen_drops(&self, listener: Token) -> Option<u32> {
        let place = self.sources.get(listener).filter(|place| place.kind == RingSourceKind::Listener)?;
        net::drops(place.descriptor())
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy {
            sources: self.sources.len() - 1,
            sends: self.sends.len(),
            jobs: self.jobs,
            leases: self.buffers.leased() - usize::from(self.lent.is_some()),
        }
    }
}

impl Drop for UringReactor {
    /// Takes all operations back from the kernel before their memory is freed: closing the ring alone would end them some time
    /// later. The reactor first shuts down all streams, which ends most operations. Cancelling all of them costs the kernel
    /// time quadratic in their number, some 20 s for 10,000.
    fn drop(&mut self) {
        for index in 0..self.sources.rows() {
            if let Some(place) = self.sources.at(index).filter(|place| place.kind == RingSourceKind::Stream) {
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
                unsafe { self.ring.push(cancel.user_data(OpPurpose::Cancel.of(BELL.index))) };
            }
            let a_while = EnterWait::For { timeout: Some(Duration::from_millis(10)), gather: Duration::ZERO };
            if self.enter(a_while).is_err() {
                break;
            }
            cancelling = self.completions.is_empty();
            for completion in std::mem::take(&mut self.completions) {
                let (purpose, index) = OpPurpose::split(completion.user_data);
                if purpose == OpPurpose::Cancel {
                    continue;
                }
                self.inflight -= usize::from(!completion.has_more());
                let listener =
                    self.sources.at(index).is_some_and(|place| place.kind == RingSourceKind::Listener);
                if listener && purpose == OpPurpose::Supply && completion.result >= 0 {
                    drop(adopt_descriptor(completion.result));
                }
            }
        }
        if self.inflight > 0 {
            // The kernel did not release the operations. Memory that it may still use must never be reused.
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
        assert_eq!(size_of::<crate::places::PlacesRow<RingSource>>(), 20);
    }

    #[test]
    fn what_an_operation_is_for_survives_the_kernel() {
        for purpose in OpPurpose::ALL {
            for index in [0, 1, 77, u32::MAX] {
                assert_eq!(OpPurpose::split(purpose.of(index)), (purpose, index));
            }
        }
    }
}
