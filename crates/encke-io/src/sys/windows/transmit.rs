//! Files sent by the system: TransmitFile, overlapped, with an event.
//!
//! ```text
//!  start ─► a wait for the event is registered (if not: read and send)
//!             ▼
//!           PENDING ── the event is set ─┬─► a thread of the system posts a packet to the reactor's port
//!             │                          └─► state: Ended(bytes), and everything is freed
//!             └─ halt: cancel, wait for the event ─► bytes
//! ```
//! The end comes by an event, because a socket of Encke is at no completion port. One call sends the head of a response and up to
//! 2 GiB of the file. Bytes after the file are sent by later calls, because none may follow a file that was cut.
//!
//! **When.** From 64 KiB on, and only on server editions: other editions perform two such calls at a time, and queue all others
//! (golang/go#73746). The server must also see the progress of a slow client, by SIO_TCP_INFO (Windows 10 1703, Server 2019).
//! Otherwise files are read and sent. `ENCKE_TEST_EDITION`, for tests only, overrides both conditions: `server` or `client`.
//!
//! **After a cancel** nothing is sent on the connection: the documentation does not promise that the reported bytes are those that
//! the peer gets. Only for tests in wine, which reports no progress, a cancelled call is continued.
//!
//! **Memory.** A [`Transmission`] owns everything that the kernel uses: the status block, the head, the file. It is freed after
//! the event was set. If a cancelled call does not end in [`HALT_WAIT`], its memory stays allocated.

use std::cell::{Cell, UnsafeCell};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::windows::io::{AsRawHandle, AsRawSocket};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{
    HANDLE, NTSTATUS, STATUS_CANCELLED, STATUS_END_OF_FILE, STATUS_SUCCESS, WAIT_OBJECT_0,
};
use windows_sys::Win32::Networking::WinSock as ws;
use windows_sys::Win32::System::IO::{CancelIoEx, OVERLAPPED, OVERLAPPED_0, OVERLAPPED_0_0};
use windows_sys::Win32::System::SystemInformation::{
    OSVERSIONINFOEXW, VER_PRODUCT_TYPE, VerSetConditionMask, VerifyVersionInfoW,
};
use windows_sys::Win32::System::SystemServices::{VER_EQUAL, VER_NT_WORKSTATION};
use windows_sys::Win32::System::Threading::WaitForSingleObject;

use super::error::SysError;
use super::event_wait::{EventWait, Rings};
use super::net::HandleRef;
use super::port::Port;
use crate::files::{FileSends, OpenFile};
use crate::op::Token;
use crate::sending::{FileAhead, FlightState, SendFault};

/// Shorter ranges are read and sent: a call costs as much as sending them.
const FILE_BYTES_MIN: u64 = 64 * 1024;

/// Maximum bytes of one call, head and file together: the documented limit of TransmitFile. Shorter pieces would cost throughput,
/// because a call ends with the last acknowledgement, and the next one starts a round trip later.
const CALL_BYTES_MAX: u64 = (1 << 31) - 2;

/// Maximum bytes before the file that share its call. They are copied. A longer head is sent before.
const HEAD_BYTES_MAX: u64 = 16 * 1024;

/// Maximum time to wait for the end of a cancelled call.
const HALT_WAIT: Duration = Duration::from_secs(5);

/// Time after which a cancel is repeated: wine loses a cancel that comes while the call sends.
const CANCEL_AGAIN: Duration = Duration::from_millis(20);

/// The age from which a question for the progress of a call ends it, where the system does not report the progress.
const MEASURE_AFTER: Duration = Duration::from_secs(1);

/// When files are sent by TransmitFile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransmitRule {
    Never,
    /// On connections whose progress the system reports.
    Observed,
    /// For tests: a call without reported progress is measured by cancelling it.
    Always,
}

/// The rule for this machine.
pub(crate) fn rule() -> TransmitRule {
    static RULE: OnceLock<TransmitRule> = OnceLock::new();
    *RULE.get_or_init(|| {
        let edition = std::env::var("ENCKE_TEST_EDITION");
        rule_on(edition.as_deref().ok(), is_server, reports_progress)
    })
}

/// Decides for an edition given for a test, or else for that of the system.
fn rule_on(
    test_edition: Option<&str>,
    is_server: impl FnOnce() -> bool,
    reports_progress: impl FnOnce() -> bool,
) -> TransmitRule {
    match test_edition {
        Some("server") => TransmitRule::Always,
        Some("client") => TransmitRule::Never,
        _ if is_server() && reports_progress() => TransmitRule::Observed,
        _ => TransmitRule::Never,
    }
}

/// Whether this is a server edition of Windows.
fn is_server() -> bool {
    let mut client = OSVERSIONINFOEXW {
        dwOSVersionInfoSize: size_of::<OSVERSIONINFOEXW>() as u32,
        wProductType: VER_NT_WORKSTATION as u8,
        ..OSVERSIONINFOEXW::default()
    };
    // SAFETY: the first call takes no pointers; the second reads `client`, which has the size that it states.
    unsafe {
        let equal = VerSetConditionMask(0, VER_PRODUCT_TYPE, VER_EQUAL as u8);
        VerifyVersionInfoW(&raw mut client, VER_PRODUCT_TYPE, equal) == 0
    }
}

/// Whether this system knows SIO_TCP_INFO: asked of a connection to this process.
fn reports_progress() -> bool {
    let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) else { return false };
    let stream = listener.local_addr().and_then(TcpStream::connect);
    stream.is_ok_and(|stream| acknowledged(stream.as_raw_socket() as ws::SOCKET).is_ok())
}

/// Bytes of a connection that were sent and acknowledged, or fewer (SIO_TCP_INFO).
fn acknowledged(socket: ws::SOCKET) -> Result<u64, SysError> {
    let version = 0_u32;
    let mut info = ws::TCP_INFO_v0::default();
    let mut bytes = 0;
    // SAFETY: the request reads `version` and writes at most the size of `info` to it; it does not wait.
    let result = unsafe {
        ws::WSAIoctl(
            socket,
            ws::SIO_TCP_INFO,
            (&raw const version).cast(),
            size_of::<u32>() as u32,
            (&raw mut info).cast(),
            size_of::<ws::TCP_INFO_v0>() as u32,
            &raw mut bytes,
            std::ptr::null_mut(),
            None,
        )
    };
    if result != 0 {
        return Err(SysError::last());
    }
    Ok(acknowledged_of(&info))
}

/// A lower bound: the documentation does not say whether BytesOut includes what was sent again.
fn acknowledged_of(info: &ws::TCP_INFO_v0) -> u64 {
    info.BytesOut.saturating_sub(info.BytesRetrans.into()).saturating_sub(info.BytesInFlight.into())
}

thread_local! {
    static FILE_SENDS: Cell<FileSends> = const { Cell::new(FileSends { calls: 0, with_head: 0, bytes: 0 }) };
}

/// The figures of this thread.
pub(crate) fn file_sends() -> FileSends {
    FILE_SENDS.get()
}

/// Reports the end of a [`FileFlight`] to a reactor.
#[derive(Clone, Copy)]
pub struct FileSender<'a> {
    rule: TransmitRule,
    port: &'a Arc<Port>,
    token: Token,
}

impl<'a> FileSender<'a> {
    pub(crate) const fn new(rule: TransmitRule, port: &'a Arc<Port>, token: Token) -> Self {
        Self { rule, port, token }
    }
}

/// A file that the system sends by itself, or none.
pub(crate) struct FileFlight {
    transmission: Option<Transmission>,
    /// A call could not start, or was ended by a test to measure it: the rest is read and sent.
    is_grounded: bool,
}

impl FileFlight {
    /// Whether the system has this way of sending. All other functions are called only then.
    pub(crate) const EXISTS: bool = true;

    pub(crate) const fn none() -> Self {
        Self { transmission: None, is_grounded: false }
    }

    /// Whether to send a file range by [`FileFlight::start`].
    pub(crate) fn fits(&self, sender: FileSender<'_>, ahead: &FileAhead<'_>) -> bool {
        sender.rule != TransmitRule::Never
            && !self.is_grounded
            && ahead.left >= FILE_BYTES_MIN
            && ahead.head_bytes <= HEAD_BYTES_MAX
    }

    /// Starts to send a file range, after the bytes of `head`. If that fails, no byte is sent, and all files are read and sent from then on.
    pub(crate) fn start<'a>(
        &mut self,
        socket: HandleRef<'_>,
        sender: FileSender<'_>,
        head: impl Iterator<Item = &'a [u8]>,
        ahead: &FileAhead<'_>,
    ) {
        assert!(self.transmission.is_none(), "one flight at a time");
        let head = head.fold(Vec::with_capacity(ahead.head_bytes as usize), |mut all, bytes| {
            all.extend_from_slice(bytes);
            all
        });
        let len = ahead.left.min(CALL_BYTES_MAX - head.len() as u64);
        match Transmission::start(socket, sender, head, (ahead.file, ahead.offset, len)) {
            Ok(transmission) => self.transmission = Some(transmission),
            Err(_) => self.is_grounded = true,
        }
    }

    /// The state. The end of a flight is returned once.
    pub(crate) fn state(&mut self) -> FlightState {
        let Some(transmission) = &self.transmission else { return FlightState::Idle };
        let Some((status, sent)) = transmission.result() else { return FlightState::Pending };
        let (wanted, is_measured) = (transmission.part().wanted, transmission.part().is_measured.get());
        self.transmission = None;
        let result = match status {
            STATUS_SUCCESS if sent >= wanted => Ok(()),
            // Wine sends the bytes that exist, and succeeds. The documentation of Windows mentions neither status.
            STATUS_SUCCESS | STATUS_END_OF_FILE => Err(SendFault::FileShrunk),
            // Only in tests ([`TransmitRule::Always`]).
            STATUS_CANCELLED if is_measured => {
                self.is_grounded = true;
                Ok(())
            }
            other => Err(SendFault::System(SysError::of_status(other))),
        };
        FlightState::Ended(sent.min(wanted), result)
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.transmission.as_ref().is_some_and(|transmission| transmission.result().is_none())
    }

    /// Bytes of the flight that the peer has received. In tests on a system that does not report them, this call ends a flight of
    /// some age, and the rest is read and sent.
    pub(crate) fn progress(&self) -> u64 {
        self.transmission.as_ref().map_or(0, Transmission::progress)
    }

    /// Ends the flight, and returns the number of bytes sent.
    pub(crate) fn halt(&mut self) -> u64 {
        let Some(transmission) = self.transmission.take() else { return 0 };
        let (_, sent) = transmission.cancel().unwrap_or_default();
        sent.min(transmission.part().wanted)
    }
}

/// The reactor to which the end of a flight is reported.
struct FileEnd {
    port: Arc<Port>,
    token: Token,
}

/// A call of TransmitFile.
///
/// INVARIANT: `part` points to a part on the heap, which only this value frees, after the event was set.
struct Transmission {
    part: NonNull<TransmissionPart>,
}

/// The memory of a call, which never moves.
struct TransmissionPart {
    /// Written by the kernel until the event is set.
    overlapped: UnsafeCell<OVERLAPPED>,
    /// The event is set by the kernel at the end, and never reset after the start.
    wait: EventWait<FileEnd>,
    /// The socket, which stays open as long as this value: the reactor ends a flight before it closes a socket.
    socket: ws::SOCKET,
    buffers: ws::TRANSMIT_FILE_BUFFERS,
    /// Read by the kernel.
    _head: Vec<u8>,
    /// Read by the kernel, and open as long.
    file: Arc<OpenFile>,
    /// Bytes of head and file.
    wanted: u64,
    begun: Instant,
    /// Bytes of the connection that were acknowledged at the start; `None` if the system does not report them.
    acknowledged: Option<u64>,
    /// Whether the call was cancelled to measure its progress.
    is_measured: Cell<bool>,
    /// Whether a cancelled call has not ended in time: nothing waits for it again.
    is_given_up: Cell<bool>,
}

impl Transmission {
    /// Starts a call that sends a head and a range of a file: offset and length. After an error nothing was started.
    fn start(
        socket: HandleRef<'_>,
        sender: FileSender<'_>,
        mut head: Vec<u8>,
        (file, offset, len): (&Arc<OpenFile>, u64, u64),
    ) -> Result<Self, SysError> {
        let acknowledged = match acknowledged(socket.as_raw_socket() as ws::SOCKET) {
            Ok(bytes) => Some(bytes),
            Err(_) if sender.rule == TransmitRule::Always => None,
            Err(error) => return Err(error),
        };
        let end = FileEnd { port: Arc::clone(sender.port), token: sender.token };
        let wait = EventWait::new(Rings::Once, end, FileEnd::report)?;
        let head_bytes = head.len();
        let part = Box::new(TransmissionPart {
            overlapped: UnsafeCell::new(OVERLAPPED {
                Anonymous: OVERLAPPED_0 {
                    Anonymous: OVERLAPPED_0_0 { Offset: offset as u32, OffsetHigh: (offset >> 32) as u32 },
                },
                hEvent: wait.event(),
                ..OVERLAPPED::default()
            }),
            wait,
            socket: socket.as_raw_socket() as ws::SOCKET,
            buffers: ws::TRANSMIT_FILE_BUFFERS {
                Head: head.as_mut_ptr().cast(),
                HeadLength: head_bytes as u32,
                Tail: std::ptr::null_mut(),
                TailLength: 0,
            },
            _head: head,
            file: Arc::clone(file),
            wanted: head_bytes as u64 + len,
            begun: Instant::now(),
            acknowledged,
            is_measured: Cell::new(false),
            is_given_up: Cell::new(false),
        });
        let part = NonNull::from(Box::leak(part));
        // SAFETY: `part` was leaked just now.
        let TransmissionPart { overlapped, socket, buffers, file, .. } = unsafe { part.as_ref() };
        let buffers = if head_bytes == 0 { std::ptr::null() } else { &raw const *buffers };
        // SAFETY: socket and file are open. Status block, buffers, head and file live in `part` until the call has ended (see
        // INVARIANT).
        let done = unsafe {
            let handle = file.handle.as_raw_handle();
            ws::TransmitFile(*socket, handle, len as u32, 0, overlapped.get(), buffers, 0)
        };
        let error = if done == 0 { SysError::last() } else { SysError(0) };
        if done == 0 && error != SysError(ws::WSA_IO_PENDING) {
            // SAFETY: the call has not started, so nothing but this function uses the part, which was leaked above.
            drop(unsafe { Box::from_raw(part.as_ptr()) });
            return Err(error);
        }
        FILE_SENDS.set({
            let FileSends { calls, with_head, bytes } = FILE_SENDS.get();
            FileSends { calls: calls + 1, with_head: with_head + u64::from(head_bytes > 0), bytes }
        });
        Ok(Self { part })
    }

    fn part(&self) -> &TransmissionPart {
        // SAFETY: the part lives as long as this value (INVARIANT). The fields that the kernel writes are in an UnsafeCell.
        unsafe { self.part.as_ref() }
    }

    /// Status and bytes; `None` while the call is pending.
    fn result(&self) -> Option<(NTSTATUS, u64)> {
        self.result_within(Duration::ZERO)
    }

    fn result_within(&self, time: Duration) -> Option<(NTSTATUS, u64)> {
        let part = self.part();
        // SAFETY: the event is open.
        let waited = unsafe { WaitForSingleObject(part.wait.event(), time.as_millis() as u32) };
        if waited != WAIT_OBJECT_0 {
            return None;
        }
        // SAFETY: the event is set, so the kernel has stopped writing to the block.
        let OVERLAPPED { Internal: status, InternalHigh: bytes, .. } =
            unsafe { part.overlapped.get().read() };
        Some((status as NTSTATUS, bytes as u64))
    }

    /// Cancels the call, again every [`CANCEL_AGAIN`], and waits for its end, once. Returns its result; `None` if it does not end in time.
    fn cancel(&self) -> Option<(NTSTATUS, u64)> {
        self.cancel_within(HALT_WAIT)
    }

    fn cancel_within(&self, time: Duration) -> Option<(NTSTATUS, u64)> {
        let part = self.part();
        let time = if part.is_given_up.get() { Duration::ZERO } else { time };
        let begun = Instant::now();
        let result = loop {
            // SAFETY: the socket is open, and the block of the call only names it.
            let _is_over = unsafe { CancelIoEx(part.socket as HANDLE, part.overlapped.get()) };
            let left = time.saturating_sub(begun.elapsed());
            let result = self.result_within(left.min(CANCEL_AGAIN));
            if result.is_some() || left <= CANCEL_AGAIN {
                break result;
            }
        };
        part.is_given_up.set(result.is_none());
        result
    }

    fn progress(&self) -> u64 {
        let part = self.part();
        let sent = if let Some((_, sent)) = self.result() {
            sent
        } else if let Some(before) = part.acknowledged {
            acknowledged(part.socket).map_or(0, |now| now.saturating_sub(before))
        } else if part.begun.elapsed() >= MEASURE_AFTER {
            part.is_measured.set(true);
            self.cancel().map_or(0, |(_, sent)| sent)
        } else {
            0
        };
        sent.min(part.wanted)
    }
}

impl Drop for Transmission {
    fn drop(&mut self) {
        let ended = self.result().or_else(|| self.cancel());
        let Some((_, sent)) = ended else {
            // The kernel still uses the memory: it stays allocated.
            return;
        };
        FILE_SENDS.set({
            let FileSends { bytes, .. } = FILE_SENDS.get();
            FileSends { bytes: bytes + sent, ..FILE_SENDS.get() }
        });
        // SAFETY: `start` has leaked this box, and the kernel has stopped using it. The callback uses only the context of the wait,
        // which frees that by itself.
        drop(unsafe { Box::from_raw(self.part.as_ptr()) });
    }
}

impl FileEnd {
    /// Reports the end of a call, on a thread of the system.
    fn report(&self) {
        // Without memory for a packet the send stays blocked, until the server ends it as one without progress.
        let _posted = self.port.post_file_end(self.token);
    }
}

#[cfg(test)]
mod tests;
