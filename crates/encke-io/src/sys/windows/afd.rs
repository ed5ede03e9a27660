//! Polls of the socket driver, as WSAPoll makes them, but without waiting: their results come through a completion port.
//!
//! ```text
//!  add ─► free slot ─► PENDING ─┬─ an event ─► the slot is free ─► report ─► the reactor adds the socket again, once a turn
//!                               ├─ modify, more events ─► cancel ─► canceled ─► PENDING with the new events
//!                               └─ remove ─► ORPHAN: cancel ─► canceled, or an event that nobody gets ─► the slot is free
//! ```
//! The driver is undocumented, but libuv, mio, wepoll and others rely on it. A poll is level-triggered: one of a ready socket
//! completes at once. It is also one-shot. Sockets stay free of ports, so that another process can take them over.
//!
//! **Memory.** The kernel writes the result of a poll into its slot at any time until the poll completes. So chunks of slots
//! never move, and a slot is used again only after its completion came. A chunk is freed when no poll is pending; if the
//! kernel does not complete one when the poller is dropped, its memory stays allocated.

use std::cell::UnsafeCell;
use std::os::windows::io::{AsRawHandle, AsRawSocket, OwnedHandle};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use windows_sys::Wdk::Storage::FileSystem::NtCancelIoFileEx;
use windows_sys::Wdk::System::IO::NtDeviceIoControlFile;
use windows_sys::Win32::Foundation::{HANDLE, NTSTATUS, STATUS_CANCELLED, STATUS_PENDING, STATUS_SUCCESS};
use windows_sys::Win32::Networking::WinSock as ws;
use windows_sys::Win32::Storage::FileSystem::{FILE_SHARE_READ, FILE_SHARE_WRITE, SYNCHRONIZE};
use windows_sys::Win32::System::IO::{IO_STATUS_BLOCK, IO_STATUS_BLOCK_0, OVERLAPPED_ENTRY};

use super::bell::Bell;
use super::error::SysError;
use super::net::HandleRef;
use super::object::ObjectOpening;
use super::port::{Port, file_end};
use super::transmit::{self, FileSender, TransmitRule};
use crate::op::Token;
use crate::poller::{Interest, Poller, Ready};
use crate::reactor::Backend;

/// Packets taken per call. Further packets stay in the kernel and come with the next call.
const PACKETS: usize = 256;

/// Polls per handle of the driver. The kernel searches the pending polls of a handle one by one; mio has the same limit.
const CHUNK_SLOTS: usize = 32;

/// The time that a dropped poller waits for the kernel to end its polls.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// The request that polls sockets (IOCTL_AFD_POLL).
const POLL: u32 = 0x0001_2024;

const RECEIVE: u32 = 0x01;
const RECEIVE_EXPEDITED: u32 = 0x02;
const SEND: u32 = 0x04;
const DISCONNECT: u32 = 0x08;
const ABORT: u32 = 0x10;
const LOCAL_CLOSE: u32 = 0x20;
const ACCEPT: u32 = 0x80;
const CONNECT_FAIL: u32 = 0x100;

/// The driver's structure for one socket (AFD_POLL_HANDLE_INFO).
#[repr(C)]
struct PolledSocket {
    socket: HANDLE,
    events: u32,
    status: NTSTATUS,
}

/// The driver's structure for a poll of one socket (AFD_POLL_INFO): the request, then the result.
#[repr(C)]
struct PollInfo {
    timeout: i64,
    count: u32,
    exclusive: u32,
    sockets: [PolledSocket; 1],
}

/// The part of a slot that the kernel writes to.
#[repr(C)]
struct KernelPart {
    /// The status block, whose address identifies the operation in the packets of the port.
    status: IO_STATUS_BLOCK,
    info: PollInfo,
    /// The number of the slot, which never changes.
    slot: usize,
}

/// The part of a slot that the kernel does not see.
#[derive(Clone, Copy)]
struct PollSlot {
    /// The source, or `Token::NONE` if it was removed.
    token: Token,
    socket: HANDLE,
    /// The events of the pending poll; 0 if none is pending.
    pending: u32,
    /// The events to poll for, if the pending poll is canceled.
    wanted: u32,
}

/// A handle of the driver, and the memory of its polls.
///
/// INVARIANT: `parts` points to `CHUNK_SLOTS` parts on the heap, which only this chunk frees.
struct AfdChunk {
    driver: OwnedHandle,
    parts: NonNull<UnsafeCell<KernelPart>>,
}

/// The poller of Windows.
pub struct Afd {
    port: Arc<Port>,
    bell: Token,
    chunks: Vec<AfdChunk>,
    slots: Vec<PollSlot>,
    free: Vec<usize>,
    /// The slot of each registered source by its index.
    by_index: Vec<Option<usize>>,
    /// Polls whose packet has not come.
    pending: usize,
    packets: Vec<OVERLAPPED_ENTRY>,
    /// Whether files are sent by TransmitFile.
    transmits: TransmitRule,
    /// Whether a service provider is layered over the sockets, so that the driver knows them by another handle.
    layered: bool,
}

impl AfdChunk {
    /// Creates a chunk whose first slot has the number `first`.
    fn new(port: &Port, first: usize) -> Result<Self, SysError> {
        let driver = open_driver()?;
        port.associate(&driver)?;
        let parts: Vec<UnsafeCell<KernelPart>> =
            (0..CHUNK_SLOTS).map(|place| UnsafeCell::new(KernelPart::new(first + place))).collect();
        let parts = Box::leak(parts.into_boxed_slice());
        Ok(Self { driver, parts: NonNull::from(parts).cast() })
    }

    fn part(&self, place: usize) -> *mut KernelPart {
        assert!(place < CHUNK_SLOTS, "a place of a chunk");
        // SAFETY: the allocation contains the place (INVARIANT), and UnsafeCell allows writes through a shared pointer.
        unsafe { UnsafeCell::raw_get(self.parts.as_ptr().add(place)) }
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// The kernel has no poll in it, and the chunk is not used again.
    unsafe fn free(&mut self) {
        let parts = NonNull::slice_from_raw_parts(self.parts, CHUNK_SLOTS);
        // SAFETY: `new` has leaked this box (INVARIANT), and the caller vouches for the rest.
        drop(unsafe { Box::from_raw(parts.as_ptr()) });
    }
}

impl KernelPart {
    fn new(slot: usize) -> Self {
        Self {
            status: IO_STATUS_BLOCK {
                Anonymous: IO_STATUS_BLOCK_0 { Status: STATUS_SUCCESS },
                Information: 0,
            },
            info: PollInfo {
                timeout: i64::MAX,
                count: 1,
                exclusive: 0,
                sockets: [PolledSocket { socket: std::ptr::null_mut(), events: 0, status: 0 }],
            },
            slot,
        }
    }
}

/// Opens the socket driver, without a socket.
fn open_driver() -> Result<OwnedHandle, SysError> {
    let opening = ObjectOpening {
        root: std::ptr::null_mut(),
        attributes: 0,
        access: SYNCHRONIZE,
        share: FILE_SHARE_READ | FILE_SHARE_WRITE,
        options: 0,
    };
    opening.open(r"\Device\Afd\Encke").map_err(SysError::of_status)
}

/// The handle by which the driver knows a socket (SIO_BASE_HANDLE).
fn base_handle(socket: HandleRef<'_>) -> HANDLE {
    let own = socket.as_raw_socket() as HANDLE;
    let mut base: HANDLE = std::ptr::null_mut();
    let mut bytes = 0;
    // SAFETY: the request writes one handle to `base`, and does not wait.
    let result = unsafe {
        ws::WSAIoctl(
            own as ws::SOCKET,
            ws::SIO_BASE_HANDLE,
            std::ptr::null(),
            0,
            (&raw mut base).cast(),
            size_of::<HANDLE>() as u32,
            &raw mut bytes,
            std::ptr::null_mut(),
            None,
        )
    };
    if result == 0 && !base.is_null() { base } else { own }
}

/// The events to poll for. The driver also reports events that end a connection.
fn events(interest: Interest) -> u32 {
    let mut events = ABORT | CONNECT_FAIL | LOCAL_CLOSE;
    if interest.read {
        events |= RECEIVE | ACCEPT | DISCONNECT;
    }
    if interest.hangup {
        events |= DISCONNECT;
    }
    if interest.write {
        // Also reported when a connect succeeds. The event of connects (0x40) stays true of every connected socket, and would keep
        // the worker of a blocked send busy.
        events |= SEND;
    }
    events
}

fn readiness(events: u32) -> Ready {
    Ready {
        read: events & (RECEIVE | RECEIVE_EXPEDITED | ACCEPT) != 0,
        write: events & SEND != 0,
        hangup: events & DISCONNECT != 0,
        error: events & (ABORT | CONNECT_FAIL | LOCAL_CLOSE) != 0,
    }
}

impl Afd {
    fn slot_of(&self, token: Token) -> Option<usize> {
        let slot = (*self.by_index.get(token.index as usize)?)?;
        (self.slots[slot].token == token).then_some(slot)
    }

    /// The driver and the kernel's part of a slot.
    fn part(&self, slot: usize) -> (HANDLE, *mut KernelPart) {
        let chunk = &self.chunks[slot / CHUNK_SLOTS];
        (chunk.driver.as_raw_handle(), chunk.part(slot % CHUNK_SLOTS))
    }

    /// Takes a free slot.
    fn take_slot(&mut self) -> Result<usize, SysError> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        let first = self.chunks.len() * CHUNK_SLOTS;
        self.chunks.push(AfdChunk::new(&self.port, first)?);
        let unused = PollSlot { token: Token::NONE, socket: std::ptr::null_mut(), pending: 0, wanted: 0 };
        self.slots.resize(first + CHUNK_SLOTS, unused);
        self.free.extend((first + 1..first + CHUNK_SLOTS).rev());
        Ok(first)
    }

    /// Frees a slot without a pending poll.
    fn release(&mut self, slot: usize) {
        let token = std::mem::replace(&mut self.slots[slot].token, Token::NONE);
        if let Some(place) = self.by_index.get_mut(token.index as usize)
            && *place == Some(slot)
        {
            *place = None;
        }
        self.free.push(slot);
    }

    /// Starts the poll of a slot without one.
    fn submit(&mut self, slot: usize) -> Result<(), SysError> {
        let (driver, part) = self.part(slot);
        let PollSlot { socket, wanted, .. } = self.slots[slot];
        let info_bytes = size_of::<PollInfo>() as u32;
        // SAFETY: no poll is pending in this slot, so the kernel does not write to it. From the call on only the kernel does,
        // until its packet comes; `part` stays where it is until then (see the module).
        let result = unsafe {
            (*part).status.Anonymous.Status = STATUS_PENDING;
            (*part).info.count = 1;
            (*part).info.sockets[0] = PolledSocket { socket, events: wanted, status: 0 };
            let info = &raw mut (*part).info;
            NtDeviceIoControlFile(
                driver,
                std::ptr::null_mut(),
                None,
                part.cast(),
                &raw mut (*part).status,
                POLL,
                info.cast(),
                info_bytes,
                info.cast(),
                info_bytes,
            )
        };
        // A poll that is over already has its packet in the port, too.
        if result != STATUS_SUCCESS && result != STATUS_PENDING {
            return Err(SysError::of_status(result));
        }
        self.slots[slot].pending = wanted;
        self.pending += 1;
        Ok(())
    }

    /// Cancels the pending poll of a slot. Its packet still comes.
    fn cancel(&self, slot: usize) {
        let (driver, part) = self.part(slot);
        let mut status = IO_STATUS_BLOCK::default();
        // SAFETY: the block of the pending poll only names it; the other lives until the call returns.
        let _is_over = unsafe { NtCancelIoFileEx(driver, &raw const (*part).status, &raw mut status) };
    }

    /// Takes the result of a poll whose packet was taken. Returns the source and its readiness, if there is any to report.
    fn complete(&mut self, part: *const KernelPart) -> Option<(Token, Ready)> {
        // SAFETY: the packet names a part of this poller's chunks, which live as long as it. The kernel writes to it no more.
        let (slot, status, count, events) = unsafe {
            let info = &raw const (*part).info;
            ((*part).slot, (*part).status.Anonymous.Status, (*info).count, (*info).sockets[0].events)
        };
        self.pending -= 1;
        let PollSlot { token, wanted, .. } = self.slots[slot];
        self.slots[slot].pending = 0;
        if token == Token::NONE {
            self.free.push(slot);
            return None;
        }
        if status == STATUS_CANCELLED && wanted != 0 && self.submit(slot).is_ok() {
            return None;
        }
        self.release(slot);
        let ready = match status {
            STATUS_SUCCESS if count > 0 => readiness(events),
            STATUS_SUCCESS => Ready::default(),
            _ => Ready { error: true, ..Ready::default() },
        };
        Some((token, ready))
    }
}

impl Afd {
    /// Creates a poller that sends files by this rule.
    pub(crate) fn transmitting(transmits: TransmitRule) -> Result<Self, SysError> {
        let probe = super::net::placeholder().map_err(|error| SysError(error.raw_os_error().unwrap_or(0)))?;
        let probe = super::net::borrowed(&probe);
        Ok(Self {
            port: Arc::new(Port::new()?),
            bell: Token::NONE,
            chunks: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            by_index: Vec::new(),
            pending: 0,
            packets: vec![OVERLAPPED_ENTRY::default(); PACKETS],
            transmits,
            layered: base_handle(probe) != probe.as_raw_socket() as HANDLE,
        })
    }

    /// Takes packets, at most for `timeout`, and returns their number.
    fn take_packets(
        &mut self,
        timeout: Option<Duration>,
        mut report: impl FnMut(Token, Ready),
    ) -> Result<usize, SysError> {
        let mut packets = std::mem::take(&mut self.packets);
        let taken = self.port.take(&mut packets, timeout).map(|packets| {
            for packet in packets {
                if let Some(token) = file_end(packet) {
                    report(token, Ready { write: true, ..Ready::default() });
                } else if packet.lpOverlapped.is_null() {
                    report(self.bell, Ready { read: true, ..Ready::default() });
                } else if let Some((token, ready)) = self.complete(packet.lpOverlapped.cast()) {
                    report(token, ready);
                }
            }
            packets.len()
        });
        self.packets = packets;
        taken
    }
}

impl Poller for Afd {
    const BACKEND: Backend = Backend::Afd;
    const EDGE: bool = false;
    const ONE_SHOT: bool = true;

    fn new() -> Result<Self, SysError> {
        Self::transmitting(transmit::rule())
    }

    fn bell(&mut self, token: Token) -> Result<Bell, SysError> {
        self.bell = token;
        Ok(Bell::posting_to(Arc::clone(&self.port)))
    }

    fn add(&mut self, handle: HandleRef<'_>, token: Token, interest: Interest) -> Result<(), SysError> {
        if self.slot_of(token).is_some() {
            // The report of a file's end has left the poll of its socket pending.
            return self.modify(handle, token, interest);
        }
        let slot = self.take_slot()?;
        let socket = if self.layered { base_handle(handle) } else { handle.as_raw_socket() as HANDLE };
        self.slots[slot] = PollSlot { token, socket, pending: 0, wanted: events(interest) };
        let index = token.index as usize;
        if self.by_index.len() <= index {
            self.by_index.resize(index + 1, None);
        }
        self.by_index[index] = Some(slot);
        self.submit(slot).inspect_err(|_| self.release(slot))
    }

    fn modify(&mut self, _: HandleRef<'_>, token: Token, interest: Interest) -> Result<(), SysError> {
        let Some(slot) = self.slot_of(token) else { return Ok(()) };
        let wanted = events(interest);
        self.slots[slot].wanted = wanted;
        // A poll for more than is wanted may stay: an event that is not wanted is only reported once.
        if wanted & !self.slots[slot].pending != 0 {
            self.cancel(slot);
        }
        Ok(())
    }

    fn remove(&mut self, _: HandleRef<'_>, token: Token, _: bool) {
        let Some(slot) = self.slot_of(token) else { return };
        self.by_index[token.index as usize] = None;
        self.slots[slot].token = Token::NONE;
        self.cancel(slot);
    }

    fn file_sender(&self, token: Token) -> FileSender<'_> {
        // A service provider that is layered over the sockets may end or cancel TransmitFile in another way than the system.
        let rule = if self.layered { TransmitRule::Never } else { self.transmits };
        FileSender::new(rule, &self.port, token)
    }

    fn wait(&mut self, timeout: Option<Duration>, report: impl FnMut(Token, Ready)) -> Result<(), SysError> {
        self.take_packets(timeout, report).map(drop)
    }
}

impl Drop for Afd {
    fn drop(&mut self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].pending != 0 {
                self.slots[slot].token = Token::NONE;
                self.cancel(slot);
            }
        }
        while self.pending > 0 {
            if !matches!(self.take_packets(Some(DROP_WAIT), |_, _| {}), Ok(1..)) {
                // The kernel still has polls in this memory: it stays allocated.
                return;
            }
        }
        for chunk in &mut self.chunks {
            // SAFETY: no poll is pending, and the poller is not used again.
            unsafe { chunk.free() };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::windows::io::AsSocket as _;

    use super::*;
    use crate::files::{Links, Patience, Root};
    use crate::sending::FileAhead;
    use crate::sys::windows::transmit::FileFlight;

    /// Longer than any event takes that a test waits for.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Service providers cannot be installed for a test: this one only says that there is one.
    #[test]
    fn under_a_layered_provider_sockets_are_polled_and_files_are_read() {
        let mut afd = Afd::transmitting(TransmitRule::Always).expect("a port");
        assert!(!afd.layered, "this machine has none");
        afd.layered = true;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let mut peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (stream, _) = listener.accept().expect("accepted");
        assert_eq!(base_handle(stream.as_socket()), stream.as_raw_socket() as HANDLE);
        let token = Token { index: 3, generation: 7 };
        let read = Interest { read: true, ..Interest::default() };
        afd.add(stream.as_socket(), token, read).expect("added by its base handle");
        peer.write_all(b"!").expect("sent");
        let mut ready = None;
        while ready.is_none() {
            let taken = afd.take_packets(Some(PATIENCE), |token, found| ready = Some((token, found)));
            assert_ne!(taken.expect("the system waits"), 0, "no event has come");
        }
        assert!(ready.is_some_and(|(of, found)| of == token && found.read), "{ready:?}");
        let program = std::env::current_exe().expect("its path");
        let root = Root::new(program.parent().expect("a directory")).expect("a root");
        let name = program.file_name().expect("a name").as_encoded_bytes();
        let file = Arc::new(root.open(name, Links::Deny, Patience::Patient).expect("opened"));
        let ahead = FileAhead { file: &file, offset: 0, left: 1 << 20, head_bytes: 0 };
        assert!(!FileFlight::none().fits(afd.file_sender(token), &ahead), "a provider could change the call");
        afd.layered = false;
        assert!(FileFlight::none().fits(afd.file_sender(token), &ahead));
    }
}
