//! Sockets of Windows: Winsock 2.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::windows::io::{AsRawSocket, AsSocket, BorrowedSocket, FromRawSocket, OwnedSocket, RawSocket};
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use windows_sys::Win32::Foundation::{HANDLE, HANDLE_FLAG_INHERIT, SetHandleInformation};
use windows_sys::Win32::Networking::WinSock as ws;

pub(crate) use super::error::SysError;
pub(crate) use super::transmit::{FileFlight, FileSender, file_sends};
use crate::files::OpenFile;
use crate::op::{Peer, Tuning};
use crate::sending::SendFault;
use crate::socket::{Address, ListenOptions, Listener};
use crate::stream_facts::TcpFacts;

/// An owned socket.
pub(crate) type Handle = OwnedSocket;
/// A borrowed [`Handle`].
pub(crate) type HandleRef<'a> = BorrowedSocket<'a>;

/// The call would have to wait.
pub(crate) const WOULD_BLOCK: SysError = SysError(ws::WSAEWOULDBLOCK);
/// Another thread interrupted the call.
pub(crate) const INTERRUPTED: SysError = SysError(ws::WSAEINTR);

/// Maximum number of slices per WSASend.
pub(crate) const SLICES_MAX: usize = 32;

/// Maximum bytes per WSASend. While less than SO_SNDBUF waits, Windows accepts everything that one call offers, so a larger call
/// would fill the kernel's memory for a slow client.
const SEND_BYTES_MAX: usize = 256 * 1024;

/// Whether this system has Unix sockets: wine has none, so nothing was tried yet.
pub const HAS_UNIX_SOCKETS: bool = false;

/// Every worker accepts from the same listener: SO_REUSEADDR would let other programs take the port.
pub(crate) const SHARES_ADDRESS: bool = false;

/// Whether accepted connections inherit what [`tune`] sets on their listener.
pub(crate) const INHERITS_TUNING: bool = false;

/// Does nothing: see [`SHARES_ADDRESS`].
pub(crate) fn share_address(_listener: HandleRef<'_>) -> Result<(), SysError> {
    Ok(())
}

/// The driver does not promise it.
pub(crate) const WRITABLE_MEANS_CONNECTED: bool = false;

/// Borrows a handle.
#[inline]
pub(crate) fn borrowed(handle: &Handle) -> HandleRef<'_> {
    handle.as_socket()
}

fn raw(socket: HandleRef<'_>) -> ws::SOCKET {
    socket.as_raw_socket() as ws::SOCKET
}

/// Takes the result of a call that returns 0 or SOCKET_ERROR.
fn check(result: i32) -> Result<(), SysError> {
    if result == 0 { Ok(()) } else { Err(SysError::last()) }
}

/// Takes the result of a call that returns a number of bytes or SOCKET_ERROR.
fn count(result: i32) -> Result<usize, SysError> {
    usize::try_from(result).map_err(|_| SysError::last())
}

/// Creates a stream socket, non-blocking, which children do not inherit.
fn stream_socket(family: ws::ADDRESS_FAMILY) -> Result<Handle, SysError> {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let mut data = ws::WSADATA::default();
        // SAFETY: `data` is the structure that the call fills in.
        let _the_next_call_fails = unsafe { ws::WSAStartup(0x0202, &raw mut data) };
    });
    let flags = ws::WSA_FLAG_OVERLAPPED | ws::WSA_FLAG_NO_HANDLE_INHERIT;
    // SAFETY: the call takes no pointers but a null one.
    let socket = unsafe {
        ws::WSASocketW(family.into(), ws::SOCK_STREAM, ws::IPPROTO_TCP, std::ptr::null(), 0, flags)
    };
    if socket == ws::INVALID_SOCKET {
        return Err(SysError::last());
    }
    // SAFETY: the socket was created above, and nothing else knows of it.
    let handle = unsafe { OwnedSocket::from_raw_socket(socket as RawSocket) };
    set_nonblocking(borrowed(&handle))?;
    Ok(handle)
}

fn set_nonblocking(socket: HandleRef<'_>) -> Result<(), SysError> {
    let mut on = 1;
    // SAFETY: the request reads one number from where its argument points.
    check(unsafe { ws::ioctlsocket(raw(socket), ws::FIONBIO, &raw mut on) })
}

/// Sets an option of four bytes.
fn set_option(socket: HandleRef<'_>, level: i32, option: i32, value: u32) -> Result<(), SysError> {
    let bytes = value.to_ne_bytes();
    // SAFETY: pointer and length belong to `bytes`.
    check(unsafe { ws::setsockopt(raw(socket), level, option, bytes.as_ptr(), bytes.len() as i32) })
}

/// An address as Winsock has it.
struct RawAddress {
    storage: ws::SOCKADDR_STORAGE,
    len: i32,
}

impl RawAddress {
    /// Room for any address.
    fn empty() -> Self {
        Self { storage: ws::SOCKADDR_STORAGE::default(), len: size_of::<ws::SOCKADDR_STORAGE>() as i32 }
    }

    fn of(address: &SocketAddr) -> Self {
        let mut new = Self::empty();
        match address {
            SocketAddr::V4(v4) => {
                let raw = ws::SOCKADDR_IN {
                    sin_family: ws::AF_INET,
                    sin_port: v4.port().to_be(),
                    sin_addr: ws::IN_ADDR {
                        S_un: ws::IN_ADDR_0 { S_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is larger than every address, and aligned for each.
                unsafe { (&raw mut new.storage).cast::<ws::SOCKADDR_IN>().write(raw) };
                new.len = size_of::<ws::SOCKADDR_IN>() as i32;
            }
            SocketAddr::V6(v6) => {
                let raw = ws::SOCKADDR_IN6 {
                    sin6_family: ws::AF_INET6,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: ws::IN6_ADDR { u: ws::IN6_ADDR_0 { Byte: v6.ip().octets() } },
                    Anonymous: ws::SOCKADDR_IN6_0 { sin6_scope_id: v6.scope_id() },
                };
                // SAFETY: the storage is larger than every address, and aligned for each.
                unsafe { (&raw mut new.storage).cast::<ws::SOCKADDR_IN6>().write(raw) };
                new.len = size_of::<ws::SOCKADDR_IN6>() as i32;
            }
        }
        new
    }

    fn as_ptr(&self) -> *const ws::SOCKADDR {
        (&raw const self.storage).cast()
    }

    fn as_mut_ptr(&mut self) -> *mut ws::SOCKADDR {
        (&raw mut self.storage).cast()
    }

    fn inet(&self) -> Option<SocketAddr> {
        match self.storage.ss_family {
            ws::AF_INET => {
                // SAFETY: the family says which address the storage holds; every bit pattern is one.
                let raw = unsafe { (&raw const self.storage).cast::<ws::SOCKADDR_IN>().read() };
                // SAFETY: all variants of the union are plain bytes.
                let bytes = unsafe { raw.sin_addr.S_un.S_addr }.to_ne_bytes();
                Some(SocketAddrV4::new(Ipv4Addr::from(bytes), u16::from_be(raw.sin_port)).into())
            }
            ws::AF_INET6 => {
                // SAFETY: as above.
                let raw = unsafe { (&raw const self.storage).cast::<ws::SOCKADDR_IN6>().read() };
                // SAFETY: all variants of the unions are plain bytes.
                let (bytes, scope) = unsafe { (raw.sin6_addr.u.Byte, raw.Anonymous.sin6_scope_id) };
                let port = u16::from_be(raw.sin6_port);
                Some(SocketAddrV6::new(Ipv6Addr::from(bytes), port, raw.sin6_flowinfo, scope).into())
            }
            _ => None,
        }
    }
}

fn family(address: &SocketAddr) -> ws::ADDRESS_FAMILY {
    if address.is_ipv6() { ws::AF_INET6 } else { ws::AF_INET }
}

/// Binds and listens. Returns the bound address, too.
pub(crate) fn listen(address: &Address, options: ListenOptions) -> io::Result<(Handle, Address)> {
    let Address::Inet(inet) = address else { return Err(no_unix_sockets()) };
    let handle = stream_socket(family(inet))?;
    let socket = borrowed(&handle);
    // Without it another program could take the port by SO_REUSEADDR. Connections in TIME-WAIT do not bar binding here.
    set_option(socket, ws::SOL_SOCKET, ws::SO_EXCLUSIVEADDRUSE, 1)?;
    if inet.is_ipv6() {
        // [::]:80 and 0.0.0.0:80 are separate listeners, so that a peer's address has one spelling.
        set_option(socket, ws::IPPROTO_IPV6, ws::IPV6_V6ONLY, 1)?;
    }
    let name = RawAddress::of(inet);
    // SAFETY: pointer and length belong to the address.
    check(unsafe { ws::bind(raw(socket), name.as_ptr(), name.len) })?;
    let backlog = i32::try_from(options.backlog).unwrap_or(i32::MAX);
    // SAFETY: the call takes no pointers.
    check(unsafe { ws::listen(raw(socket), backlog) })?;
    let bound = local_address(socket).ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((handle, bound))
}

impl AsSocket for Listener {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        self.handle.as_socket()
    }
}

/// Makes a socket of another origin non-blocking.
pub(crate) fn make_nonblocking(handle: HandleRef<'_>) -> io::Result<()> {
    Ok(set_nonblocking(handle)?)
}

/// Creates a socket to connect to `peer`, bound to `source` if given.
pub(crate) fn unconnected(peer: &SocketAddr, source: Option<SocketAddr>) -> io::Result<Handle> {
    let handle = stream_socket(family(peer))?;
    if let Some(source) = source {
        let name = RawAddress::of(&source);
        // SAFETY: pointer and length belong to the address.
        check(unsafe { ws::bind(raw(borrowed(&handle)), name.as_ptr(), name.len) })?;
    }
    Ok(handle)
}

/// The error of every use of a Unix socket.
fn no_unix_sockets() -> io::Error {
    let text = "Unix sockets are not available on Windows: use an address such as 127.0.0.1:8080";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Not supported: Unix sockets are not available on this system yet.
pub(crate) fn connected_local(_path: &Path) -> io::Result<Handle> {
    Err(no_unix_sockets())
}

/// A blocking stream over a Unix socket: no value exists, because they are not available on this system yet.
#[derive(Debug)]
pub enum LocalStream {}

impl LocalStream {
    /// Connects.
    ///
    /// # Errors
    /// Always.
    pub fn connect(_path: &Path) -> io::Result<Self> {
        Err(no_unix_sockets())
    }

    /// Limits each read.
    ///
    /// # Errors
    /// None: no value exists.
    pub fn set_read_timeout(&self, _time: Option<Duration>) -> io::Result<()> {
        match *self {}
    }

    /// Limits each write.
    ///
    /// # Errors
    /// None: no value exists.
    pub fn set_write_timeout(&self, _time: Option<Duration>) -> io::Result<()> {
        match *self {}
    }
}

impl io::Read for LocalStream {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

impl io::Write for LocalStream {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }
}

/// Creates a socket that the simulator never uses.
pub(crate) fn placeholder() -> io::Result<Handle> {
    Ok(stream_socket(ws::AF_INET)?)
}

/// The address of this side of a stream or listener.
pub(crate) fn local_address(socket: HandleRef<'_>) -> Option<Address> {
    let mut name = RawAddress::empty();
    let mut len = name.len;
    // SAFETY: the call writes at most `len` bytes to the address, which is that long.
    check(unsafe { ws::getsockname(raw(socket), name.as_mut_ptr(), &raw mut len) }).ok()?;
    name.inet().map(Address::Inet)
}

/// Accepts one connection from a listener's queue, non-blocking, without Nagle's delay. Children do not inherit it.
pub(crate) fn accept(listener: HandleRef<'_>) -> Result<(Handle, Peer), SysError> {
    let mut name = RawAddress::empty();
    let mut len = name.len;
    // SAFETY: the call writes at most `len` bytes to the address, which is that long.
    let socket = unsafe { ws::accept(raw(listener), name.as_mut_ptr(), &raw mut len) };
    if socket == ws::INVALID_SOCKET {
        return Err(SysError::last());
    }
    // SAFETY: the call has just created the socket, and nothing else knows of it.
    let handle = unsafe { OwnedSocket::from_raw_socket(socket as RawSocket) };
    // Winsock's documentation does not promise that accepted sockets inherit any of these.
    set_nonblocking(borrowed(&handle))?;
    send_at_once(borrowed(&handle));
    // SAFETY: the socket is open; the call takes no pointers.
    let _best_effort = unsafe { SetHandleInformation(socket as HANDLE, HANDLE_FLAG_INHERIT, 0) };
    Ok((handle, name.inet().map_or(Peer::Local, Peer::Inet)))
}

/// Whether accept failed only because this one connection ended before it was accepted. The next accept may follow at once.
pub(crate) fn failed_before_accept(SysError(number): SysError) -> bool {
    matches!(
        number,
        ws::WSAECONNRESET | ws::WSAECONNABORTED | ws::WSAEINTR | ws::WSAENETDOWN | ws::WSAEHOSTUNREACH
    )
}

/// Does nothing: not available on this system.
pub(crate) fn refuse_new(_listener: HandleRef<'_>) {}

/// Limits the data that the kernel holds for a stream. Windows has no limit of unsent bytes, so the send buffer is limited to
/// that size. A socket whose peer does not acknowledge ends after whole seconds (TCP_MAXRT).
pub(crate) fn tune(stream: HandleRef<'_>, tuning: Tuning) {
    let _best_effort = set_option(stream, ws::SOL_SOCKET, ws::SO_SNDBUF, tuning.unsent_bytes);
    let seconds = tuning.dead_after_ms.div_ceil(1_000);
    let _best_effort = set_option(stream, ws::IPPROTO_TCP, ws::TCP_MAXRT, seconds);
}

/// Not available on this system: always `None`.
pub(crate) fn drops(_listener: HandleRef<'_>) -> Option<u32> {
    None
}

/// Not available on this system: always `None`.
pub(crate) fn buffered(_stream: HandleRef<'_>) -> Option<u64> {
    None
}

/// Not available on this system: always 0.
pub(crate) fn unacknowledged(_stream: HandleRef<'_>) -> u64 {
    0
}

/// Not available on this system: always `None`.
pub(crate) fn tcp_facts(_stream: HandleRef<'_>) -> Option<TcpFacts> {
    None
}

/// Disables Nagle's algorithm (TCP_NODELAY).
pub(crate) fn send_at_once(stream: HandleRef<'_>) {
    // On failure data may arrive later, but none is lost.
    let _best_effort = set_option(stream, ws::IPPROTO_TCP, ws::TCP_NODELAY, 1);
}

/// Sockets are not reused on this system: always false.
pub(crate) fn disconnect(_stream: HandleRef<'_>) -> bool {
    false
}

/// Starts to connect a stream. Returns whether it is connected already.
pub(crate) fn connect(stream: HandleRef<'_>, peer: &SocketAddr) -> Result<bool, SysError> {
    let name = RawAddress::of(peer);
    // SAFETY: pointer and length belong to the address.
    match check(unsafe { ws::connect(raw(stream), name.as_ptr(), name.len) }) {
        Ok(()) => Ok(true),
        Err(WOULD_BLOCK | SysError(ws::WSAEINPROGRESS)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The outcome of a connect; `None` while it is in progress.
pub(crate) fn connected(stream: HandleRef<'_>) -> Option<Result<(), SysError>> {
    let mut name = RawAddress::empty();
    let mut len = name.len;
    // SAFETY: the call writes at most `len` bytes to the address, which is that long.
    match check(unsafe { ws::getpeername(raw(stream), name.as_mut_ptr(), &raw mut len) }) {
        Ok(()) => Some(Ok(())),
        Err(nameless) => match socket_error(stream) {
            Ok(0) if nameless == SysError(ws::WSAENOTCONN) => None,
            Ok(0) => Some(Err(nameless)),
            Ok(number) => Some(Err(SysError(number))),
            Err(error) => Some(Err(error)),
        },
    }
}

/// The pending error of a socket (SO_ERROR); 0 without one.
fn socket_error(socket: HandleRef<'_>) -> Result<i32, SysError> {
    let mut number = 0_i32;
    let mut len = size_of::<i32>() as i32;
    // SAFETY: the call writes at most `len` bytes to `number`, which is that long.
    check(unsafe {
        ws::getsockopt(raw(socket), ws::SOL_SOCKET, ws::SO_ERROR, (&raw mut number).cast(), &raw mut len)
    })?;
    Ok(number)
}

/// Receives into `into`, and returns the number of bytes: 0 at the end of the stream.
///
/// `broken` says that the driver has reported a reset. It is the truth: bytes that arrived before are lost then, and some
/// versions of wine report the end of the stream instead.
#[inline]
pub(crate) fn receive(stream: HandleRef<'_>, into: &mut [u8], broken: bool) -> Result<usize, SysError> {
    if broken {
        return Err(SysError(ws::WSAECONNRESET));
    }
    let len = i32::try_from(into.len()).unwrap_or(i32::MAX);
    // SAFETY: the call writes at most `len` bytes to `into`, which is at least that long.
    count(unsafe { ws::recv(raw(stream), into.as_mut_ptr(), len, 0) })
}

/// Sends bytes, at most [`SEND_BYTES_MAX`], and returns how many the kernel has accepted. `_more` has no meaning here.
#[inline]
pub(crate) fn send(stream: HandleRef<'_>, bytes: &[u8], _more: bool) -> Result<usize, SysError> {
    let len = bytes.len().min(SEND_BYTES_MAX) as i32;
    // SAFETY: the call reads `len` bytes, and `bytes` is at least that long.
    count(unsafe { ws::send(raw(stream), bytes.as_ptr(), len, 0) })
}

/// Sends several slices by one call, at most [`SLICES_MAX`] and [`SEND_BYTES_MAX`].
#[inline]
pub(crate) fn send_slices(
    stream: HandleRef<'_>,
    slices: &[IoSlice<'_>],
    _more: bool,
) -> Result<usize, SysError> {
    let mut buffers = [ws::WSABUF { len: 0, buf: std::ptr::null_mut() }; SLICES_MAX];
    let (mut used, mut left) = (0, SEND_BYTES_MAX);
    for (buffer, slice) in buffers.iter_mut().zip(slices) {
        let len = slice.len().min(left);
        *buffer = ws::WSABUF { len: len as u32, buf: slice.as_ptr().cast_mut() };
        used += 1;
        left -= len;
        if left == 0 {
            break;
        }
    }
    let mut sent = 0;
    // SAFETY: each buffer points to a slice of at least its length, which the call only reads; it does not wait, so nothing is
    // read later.
    check(unsafe {
        ws::WSASend(raw(stream), buffers.as_ptr(), used, &raw mut sent, 0, std::ptr::null_mut(), None)
    })?;
    Ok(sent as usize)
}

/// Ends the sending direction of a stream.
pub(crate) fn end_sending(stream: HandleRef<'_>) -> Result<(), SysError> {
    // SAFETY: the call takes no pointers.
    check(unsafe { ws::shutdown(raw(stream), ws::SD_SEND) })
}

/// Makes closesocket send a reset and discard queued data: a zero linger time.
pub(crate) fn reset_on_close(stream: HandleRef<'_>) {
    let linger = ws::LINGER { l_onoff: 1, l_linger: 0 };
    // SAFETY: pointer and length belong to `linger`.
    let _best_effort = unsafe {
        ws::setsockopt(
            raw(stream),
            ws::SOL_SOCKET,
            ws::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<ws::LINGER>() as i32,
        )
    };
}

/// Sends a range of a file through the scratch buffer.
pub(crate) fn send_file(
    socket: HandleRef<'_>,
    file: &OpenFile,
    offset: u64,
    len: u64,
    scratch: &mut [u8],
) -> Result<u64, SendFault> {
    let wanted = scratch.len().min(usize::try_from(len).unwrap_or(usize::MAX));
    let read = file
        .read_at(offset, &mut scratch[..wanted])
        .map_err(|error| SendFault::System(SysError(error.raw_os_error().unwrap_or(0))))?;
    if read == 0 {
        return Err(SendFault::FileShrunk);
    }
    Ok(send(socket, &scratch[..read], false)? as u64)
}
