//! Sockets of Unix: descriptors, with errno as error.

use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self as net, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrAny, sockopt};

use crate::files::FileSends;
use crate::sending::{FileAhead, FlightState};
use crate::socket::{Address, ListenOptions, Listener};
pub(crate) use crate::sys::own::net::{
    INHERITS_TUNING, SHARES_ADDRESS, WRITABLE_MEANS_CONNECTED, accept, buffered, drops, refuse_new,
    send_file, share_address, tcp_facts, tune, unacknowledged,
};
use crate::sys::own::net::{choose_port_late, stream_socket};

/// A blocking stream over a Unix socket, for programs without a reactor.
pub use std::os::unix::net::UnixStream as LocalStream;

/// An owned socket, or another descriptor that poll(2) supports.
pub(crate) type Handle = OwnedFd;
/// A borrowed [`Handle`].
pub(crate) type HandleRef<'a> = BorrowedFd<'a>;
/// An error number of the system.
pub(crate) type SysError = Errno;

/// The call would have to wait.
pub(crate) const WOULD_BLOCK: SysError = Errno::AGAIN;
/// A signal interrupted the call, which can be repeated at once.
pub(crate) const INTERRUPTED: SysError = Errno::INTR;

/// Whether this system has Unix sockets.
pub const HAS_UNIX_SOCKETS: bool = true;

/// Maximum number of slices per sendmsg(2). Linux accepts up to 1,024.
pub(crate) const SLICES_MAX: usize = 32;

/// Borrows a handle.
#[inline]
pub(crate) fn borrowed(handle: &Handle) -> HandleRef<'_> {
    handle.as_fd()
}

/// Binds and listens. Returns the bound address, too.
///
/// Removes the stale file of a Unix socket without a listener. A live socket at the path is an error.
pub(crate) fn listen(address: &Address, options: ListenOptions) -> io::Result<(Handle, Address)> {
    match address {
        Address::Inet(inet) => listen_inet(inet, options),
        Address::Unix(path) => listen_unix(path, options),
    }
}

fn listen_inet(inet: &SocketAddr, options: ListenOptions) -> io::Result<(Handle, Address)> {
    let family = if inet.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let descriptor = stream_socket(family)?;
    // A restarted server can bind while connections of its predecessor are in TIME-WAIT (socket(7)).
    sockopt::set_socket_reuseaddr(&descriptor, true)?;
    if inet.is_ipv6() {
        // [::]:80 and 0.0.0.0:80 are separate listeners, so that a peer's address has one spelling.
        sockopt::set_ipv6_v6only(&descriptor, true)?;
    }
    if options.shared {
        share_address(descriptor.as_fd())?;
    }
    // Inherited by accepted sockets on Linux: no system call per connection, no Nagle delay (tcp(7)).
    sockopt::set_tcp_nodelay(&descriptor, true)?;
    net::bind(&descriptor, inet)?;
    net::listen(&descriptor, i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    listening(descriptor)
}

fn listen_unix(path: &Path, options: ListenOptions) -> io::Result<(Handle, Address)> {
    let address = net::SocketAddrUnix::new(path)?;
    let descriptor = stream_socket(AddressFamily::UNIX)?;
    match net::bind(&descriptor, &address) {
        Err(Errno::ADDRINUSE) => {
            let probe = stream_socket(AddressFamily::UNIX)?;
            match net::connect(&probe, &address) {
                Err(Errno::CONNREFUSED) => {
                    std::fs::remove_file(path)?;
                    net::bind(&descriptor, &address)?;
                }
                _ => return Err(Errno::ADDRINUSE.into()),
            }
        }
        other => other?,
    }
    if let Some(mode) = options.mode {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    net::listen(&descriptor, i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    Ok((descriptor, Address::Unix(path.to_owned())))
}

/// Prepares a listening socket, and returns its address, too.
fn listening(descriptor: OwnedFd) -> io::Result<(Handle, Address)> {
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
    let address = address_of(net::getsockname(&descriptor)?)?;
    if matches!(address, Address::Inet(_)) {
        sockopt::set_tcp_nodelay(&descriptor, true)?;
    }
    Ok((descriptor, address))
}

impl Listener {
    /// Adopts a socket that already listens (socket activation, sd_listen_fds(3)).
    ///
    /// # Errors
    /// The descriptor is not a socket, or its address is of another family.
    pub fn inherited(descriptor: OwnedFd) -> io::Result<Self> {
        let (handle, address) = listening(descriptor)?;
        Ok(Self { handle, address })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Makes a socket of another origin non-blocking.
pub(crate) fn make_nonblocking(handle: HandleRef<'_>) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(handle, true)?)
}

/// Creates a socket to connect to `peer`, bound to `source` if given.
pub(crate) fn unconnected(peer: &SocketAddr, source: Option<SocketAddr>) -> io::Result<Handle> {
    let family = if peer.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let descriptor = stream_socket(family)?;
    if let Some(source) = source {
        if source.port() == 0 {
            choose_port_late(descriptor.as_fd());
        }
        net::bind(&descriptor, &source)?;
    }
    Ok(descriptor)
}

/// Creates a socket connected to the Unix socket at `path`, without waiting.
pub(crate) fn connected_local(path: &Path) -> io::Result<Handle> {
    let descriptor = stream_socket(AddressFamily::UNIX)?;
    net::connect(&descriptor, &net::SocketAddrUnix::new(path)?)?;
    Ok(descriptor)
}

/// Creates a socket that the simulator never uses.
pub(crate) fn placeholder() -> io::Result<Handle> {
    Ok(stream_socket(AddressFamily::INET)?)
}

/// Converts an address as the system reports it.
///
/// # Errors
/// It is of another family.
pub(crate) fn address_of(name: SocketAddrAny) -> rustix::io::Result<Address> {
    if let Ok(inet) = SocketAddr::try_from(name.clone()) {
        return Ok(Address::Inet(inet));
    }
    use std::os::unix::ffi::OsStrExt;
    let unix = net::SocketAddrUnix::try_from(name)?;
    let path = unix.path_bytes().unwrap_or_default();
    Ok(Address::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(path))))
}

/// The address of this side of a stream.
pub(crate) fn local_address(stream: HandleRef<'_>) -> Option<Address> {
    net::getsockname(stream).ok().and_then(|name| address_of(name).ok())
}

/// Disables Nagle's algorithm (TCP_NODELAY, tcp(7)).
pub(crate) fn send_at_once(stream: HandleRef<'_>) {
    // On failure data may arrive later, but none is lost.
    let _best_effort = sockopt::set_tcp_nodelay(stream, true);
}

/// Ends this side of a stream whose peer has ended. Returns whether the connection is thereby closed, and the socket
/// unconnected again (connect(2) under AF_UNSPEC).
pub(crate) fn disconnect(stream: HandleRef<'_>) -> bool {
    // A socket without a peer name is closed. A connection that still waits for its last acknowledgement would be discarded,
    // and the acknowledgement answered by a reset.
    net::shutdown(stream, Shutdown::Write).is_ok()
        && matches!(net::getpeername(stream), Err(Errno::NOTCONN))
        && net::connect_unspec(stream).is_ok()
}

/// Whether accept(2) failed only because this one connection ended before it was accepted ("Error handling" there). The next
/// accept may follow at once.
pub(crate) fn failed_before_accept(errno: SysError) -> bool {
    matches!(
        errno,
        Errno::CONNABORTED
            | Errno::INTR
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::OPNOTSUPP
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::PERM
    )
}

/// Starts to connect a stream. Returns whether it is connected already.
pub(crate) fn connect(stream: HandleRef<'_>, peer: &SocketAddr) -> Result<bool, SysError> {
    match net::connect(stream, peer) {
        Ok(()) => Ok(true),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// The outcome of a connect; `None` while it is in progress.
pub(crate) fn connected(stream: HandleRef<'_>) -> Option<Result<(), SysError>> {
    match net::getpeername(stream) {
        Ok(_) => Some(Ok(())),
        Err(nameless) => match sockopt::socket_error(stream) {
            // In progress, or woken without an outcome (a hang-up before connect(2), see epoll(7)).
            Ok(Ok(())) if nameless == Errno::NOTCONN => None,
            Ok(Ok(())) => Some(Err(nameless)),
            Ok(Err(errno)) | Err(errno) => Some(Err(errno)),
        },
    }
}

/// Receives into `into`, and returns the number of bytes: 0 at the end of the stream. `_broken` has a meaning on Windows only.
#[inline]
pub(crate) fn receive(stream: HandleRef<'_>, into: &mut [u8], _broken: bool) -> Result<usize, SysError> {
    net::recv(stream, into, RecvFlags::empty()).map(|(len, _)| len)
}

/// The flags of a send. A lost peer is an error, not a signal. With `more` the kernel may hold back a partly filled packet.
#[inline]
pub(crate) fn send_flags(more: bool) -> SendFlags {
    use crate::sys::own::net::{MORE, QUIET};
    if more { QUIET | MORE } else { QUIET }
}

/// Sends bytes, and returns how many the kernel has accepted.
#[inline]
pub(crate) fn send(stream: HandleRef<'_>, bytes: &[u8], more: bool) -> Result<usize, SysError> {
    net::send(stream, bytes, send_flags(more))
}

/// Sends several slices by one call, at most [`SLICES_MAX`].
#[inline]
pub(crate) fn send_slices(
    stream: HandleRef<'_>,
    slices: &[IoSlice<'_>],
    more: bool,
) -> Result<usize, SysError> {
    let mut control = net::SendAncillaryBuffer::default();
    net::sendmsg(stream, slices, &mut control, send_flags(more))
}

/// Ends the sending direction of a stream.
pub(crate) fn end_sending(stream: HandleRef<'_>) -> Result<(), SysError> {
    net::shutdown(stream, Shutdown::Write)
}

/// Makes close(2) send a reset and discard queued data: a zero linger time (socket(7)).
pub(crate) fn reset_on_close(stream: HandleRef<'_>) {
    let _best_effort = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

/// A file that the system sends by itself: none on this system, where [`send_file`] is enough.
pub(crate) struct FileFlight;

/// Reports the end of a [`FileFlight`]: no value has a meaning on this system.
#[derive(Clone, Copy)]
pub struct FileSender<'a>(PhantomData<&'a ()>);

impl FileSender<'_> {
    pub(crate) const fn none() -> Self {
        Self(PhantomData)
    }
}

impl FileFlight {
    /// Whether the system has this way of sending. All other functions are called only then.
    pub(crate) const EXISTS: bool = false;

    pub(crate) const fn none() -> Self {
        Self
    }

    pub(crate) const fn fits(&self, _: FileSender<'_>, _: &FileAhead<'_>) -> bool {
        false
    }

    pub(crate) fn start<'a>(
        &mut self,
        _: HandleRef<'_>,
        _: FileSender<'_>,
        _: impl Iterator<Item = &'a [u8]>,
        _: &FileAhead<'_>,
    ) {
    }

    pub(crate) const fn state(&self) -> FlightState {
        FlightState::Idle
    }

    pub(crate) const fn is_pending(&self) -> bool {
        false
    }

    pub(crate) const fn progress(&self) -> u64 {
        0
    }

    pub(crate) const fn halt(&self) -> u64 {
        0
    }
}

/// Not used on this system: always zero.
pub(crate) fn file_sends() -> FileSends {
    FileSends::default()
}
