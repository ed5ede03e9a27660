//! Sockets that no reactor owns yet: listeners, streams to connect, and descriptors to watch.

use std::fmt;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;

#[cfg(unix)]
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
#[cfg(unix)]
use rustix::net::{self as sys, AddressFamily, SocketFlags, SocketType, sockopt};

/// An address to listen on or connect to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// TCP.
    Inet(SocketAddr),
    /// A Unix domain socket, by path.
    Unix(PathBuf),
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Options of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Maximum number of connections that wait to be accepted (listen(2)). The system silently caps it at net.core.somaxconn,
    /// see [`crate::host::backlog_limit`].
    pub backlog: u32,
    /// Whether several listeners share the address, with the kernel distributing connections among them (SO_REUSEPORT).
    pub shared: bool,
    /// Permission bits of a Unix socket's file.
    pub mode: Option<u32>,
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    #[cfg(unix)]
    pub(crate) descriptor: OwnedFd,
    address: Address,
}

/// A stream socket that no reactor owns yet.
#[derive(Debug)]
pub struct Stream {
    #[cfg(unix)]
    pub(crate) descriptor: OwnedFd,
}

/// A descriptor whose readability is reported.
#[derive(Debug)]
pub struct Watched {
    #[cfg(unix)]
    pub(crate) descriptor: OwnedFd,
}

#[cfg(unix)]
impl Listener {
    /// Binds and listens.
    ///
    /// Removes the stale file of a Unix socket without a listener. A live socket at the path is an error.
    ///
    /// # Errors
    /// The system's reason: the port is in use, not permitted, or the address does not belong to this machine.
    pub fn bind(address: &Address, options: ListenOptions) -> io::Result<Self> {
        match address {
            Address::Inet(inet) => Self::bind_inet(inet, options),
            Address::Unix(path) => Self::bind_unix(path, options),
        }
    }

    fn bind_inet(inet: &SocketAddr, options: ListenOptions) -> io::Result<Self> {
        let family = if inet.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let descriptor = stream_socket(family)?;
        // A restarted server can bind while connections of its predecessor are in TIME-WAIT (socket(7)).
        sockopt::set_socket_reuseaddr(&descriptor, true)?;
        if inet.is_ipv6() {
            // [::]:80 and 0.0.0.0:80 are separate listeners, so that a peer's address has one spelling.
            sockopt::set_ipv6_v6only(&descriptor, true)?;
        }
        #[cfg(target_os = "linux")]
        if options.shared {
            sockopt::set_socket_reuseport(&descriptor, true)?;
        }
        // Inherited by accepted sockets on Linux: no system call per connection, no Nagle delay (tcp(7)).
        sockopt::set_tcp_nodelay(&descriptor, true)?;
        sys::bind(&descriptor, inet)?;
        sys::listen(&descriptor, i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
        Self::inherited(descriptor)
    }

    fn bind_unix(path: &Path, options: ListenOptions) -> io::Result<Self> {
        let address = sys::SocketAddrUnix::new(path)?;
        let descriptor = stream_socket(AddressFamily::UNIX)?;
        match sys::bind(&descriptor, &address) {
            Err(rustix::io::Errno::ADDRINUSE) => {
                let probe = stream_socket(AddressFamily::UNIX)?;
                match sys::connect(&probe, &address) {
                    Err(rustix::io::Errno::CONNREFUSED) => {
                        std::fs::remove_file(path)?;
                        sys::bind(&descriptor, &address)?;
                    }
                    _ => return Err(rustix::io::Errno::ADDRINUSE.into()),
                }
            }
            other => other?,
        }
        if let Some(mode) = options.mode {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        }
        sys::listen(&descriptor, i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
        Ok(Self { descriptor, address: Address::Unix(path.to_owned()) })
    }

    /// Adopts a socket that already listens (socket activation, sd_listen_fds(3)).
    ///
    /// # Errors
    /// The descriptor is not a socket, or its address is of another family.
    pub fn inherited(descriptor: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
        let address = address_of(sys::getsockname(&descriptor)?)?;
        if matches!(address, Address::Inet(_)) {
            sockopt::set_tcp_nodelay(&descriptor, true)?;
        }
        Ok(Self { descriptor, address })
    }

    /// Another handle to the same queue, for the next worker, where the address cannot be bound twice.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn duplicate(&self) -> io::Result<Self> {
        Ok(Self { descriptor: self.descriptor.try_clone()?, address: self.address.clone() })
    }
}

#[cfg(not(unix))]
impl Listener {
    /// Binds and listens.
    ///
    /// # Errors
    /// Always: no event back end supports this system yet.
    pub fn bind(_address: &Address, _options: ListenOptions) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Another handle to the same queue.
    ///
    /// # Errors
    /// Always: no event back end supports this system yet.
    pub fn duplicate(&self) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Listener {
    /// The bound address, with the port that the system chose if port 0 was requested.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// A listener of the simulator.
    pub(crate) fn simulated(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            descriptor: stream_socket(AddressFamily::INET)?,
            address: Address::Inet(address),
        })
    }
}

#[cfg(unix)]
impl Stream {
    /// Adopts a connected stream socket.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking.
    pub fn connected(descriptor: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        Ok(Self { descriptor })
    }
}

impl Stream {
    /// A stream of the simulator.
    pub(crate) fn simulated() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            descriptor: stream_socket(AddressFamily::INET)?,
        })
    }
}

#[cfg(unix)]
impl Watched {
    /// Adopts a descriptor that poll(2) supports.
    pub fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }
}

/// Converts an address as the system reports it.
///
/// # Errors
/// It is of another family.
#[cfg(unix)]
pub(crate) fn address_of(name: sys::SocketAddrAny) -> rustix::io::Result<Address> {
    if let Ok(inet) = SocketAddr::try_from(name.clone()) {
        return Ok(Address::Inet(inet));
    }
    use std::os::unix::ffi::OsStrExt;
    let unix = sys::SocketAddrUnix::try_from(name)?;
    let path = unix.path_bytes().unwrap_or_default();
    Ok(Address::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(path))))
}

/// Creates a stream socket for [`crate::Op::Connect`] to `peer`, bound to `source` if given. With port 0 the system picks any
/// port that gives a unique connection. Nagle's algorithm stays enabled until the first send that it could delay.
///
/// # Errors
/// Out of descriptors, or `source` does not belong to this machine.
#[cfg(unix)]
pub fn unconnected(peer: &SocketAddr, source: Option<SocketAddr>) -> io::Result<Stream> {
    let family = if peer.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let descriptor = stream_socket(family)?;
    if let Some(source) = source {
        #[cfg(target_os = "linux")]
        if source.port() == 0 {
            choose_port_late(descriptor.as_fd());
        }
        sys::bind(&descriptor, &source)?;
    }
    Ok(Stream { descriptor })
}

/// Not supported: no back end of this system could connect the stream.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn unconnected(_: &SocketAddr, _: Option<SocketAddr>) -> io::Result<Stream> {
    Err(crate::host::unsupported())
}

/// Creates a stream connected to the Unix socket at `path`. The connection is established without waiting.
///
/// # Errors
/// Out of descriptors, no listener at `path`, or its queue is full (`WouldBlock`, connect(2) under EAGAIN).
#[cfg(unix)]
pub fn connected_local(path: &Path) -> io::Result<Stream> {
    let descriptor = stream_socket(AddressFamily::UNIX)?;
    sys::connect(&descriptor, &sys::SocketAddrUnix::new(path)?)?;
    Ok(Stream { descriptor })
}

/// Not supported: Unix sockets are not available on this system.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn connected_local(_: &std::path::Path) -> io::Result<Stream> {
    Err(crate::host::unsupported())
}

/// Disables Nagle's algorithm (TCP_NODELAY, tcp(7)).
#[cfg(unix)]
pub(crate) fn send_at_once(stream: BorrowedFd<'_>) {
    // On failure data may arrive later, but none is lost.
    let _best_effort = sockopt::set_tcp_nodelay(stream, true);
}

/// Ends this side of a stream whose peer has ended. Returns whether the connection is thereby closed, and the socket
/// unconnected again (connect(2) under AF_UNSPEC).
#[cfg(unix)]
pub(crate) fn disconnect(stream: BorrowedFd<'_>) -> bool {
    // A socket without a peer name is closed. A connection that still waits for its last acknowledgement would be discarded,
    // and the acknowledgement answered by a reset.
    sys::shutdown(stream, sys::Shutdown::Write).is_ok()
        && matches!(sys::getpeername(stream), Err(rustix::io::Errno::NOTCONN))
        && sys::connect_unspec(stream).is_ok()
}

/// Defers the choice of the local port to connect(2), which knows the peer (IP_BIND_ADDRESS_NO_PORT, ip(7), Linux 4.2). A port
/// chosen by bind(2) is exclusive to this socket for all peers, which allows fewer connections.
#[cfg(target_os = "linux")]
fn choose_port_late(descriptor: BorrowedFd<'_>) {
    let _best_effort = set_int(descriptor, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
}

/// Sets an int option (setsockopt(2)) for which rustix has no wrapper.
#[cfg(target_os = "linux")]
fn set_int(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> rustix::io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: pointer and length are those of `value`; the descriptor is open while borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

#[cfg(unix)]
pub(crate) fn stream_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    {
        sys::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = SocketFlags::empty();
        let descriptor = sys::socket(family, SocketType::STREAM, None)?;
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
        Ok(descriptor)
    }
}

/// Accepts one connection from a listener's queue, non-blocking and close-on-exec.
#[cfg(unix)]
pub(crate) fn accept(listener: BorrowedFd<'_>) -> rustix::io::Result<(OwnedFd, crate::op::Peer)> {
    #[cfg(target_os = "linux")]
    let (descriptor, name) = sys::acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    #[cfg(not(target_os = "linux"))]
    let (descriptor, name) = {
        let (descriptor, name) = sys::acceptfrom(listener)?;
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
        (descriptor, name)
    };
    let peer = name
        .and_then(|name| SocketAddr::try_from(name).ok())
        .map_or(crate::op::Peer::Local, crate::op::Peer::Inet);
    Ok((descriptor, peer))
}

/// Whether accept(2) failed only because this one connection ended before it was accepted ("Error handling" there). The next
/// accept may follow at once.
#[cfg(unix)]
pub(crate) fn failed_before_accept(errno: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
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

/// Makes the kernel ignore new connection attempts to `listener`, while those in progress complete.
///
/// Closing a listener resets the connections in its queue, and more may arrive between the last accept and the close. With this
/// filter later attempts get no response and are retried after a second. They then reach the next listener, or are refused. No
/// established connection is reset.
#[cfg(target_os = "linux")]
pub(crate) fn refuse_new(listener: BorrowedFd<'_>) -> rustix::io::Result<()> {
    use std::os::fd::AsRawFd;
    // Classic BPF over the TCP header (tcp(7) SO_ATTACH_FILTER, RFC 9293 §3.1): byte 13 holds the flags. SYN without ACK is
    // dropped, everything else is kept whole.
    let mut program = [
        libc::sock_filter { code: 0x30, jt: 0, jf: 0, k: 13 }, // ldb [13]
        libc::sock_filter { code: 0x54, jt: 0, jf: 0, k: 0x12 }, // and #SYN|ACK
        libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: 0x02 }, // jeq #SYN, drop, keep
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 },  // drop: ret #0
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0xFFFF_FFFF }, // keep: ret #-1
    ];
    let filter = libc::sock_fprog { len: 5, filter: program.as_mut_ptr() };
    // SAFETY: `filter` points to five instructions that live until the call returns; the kernel copies them.
    // WHY: rustix has no wrapper for SO_ATTACH_FILTER.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Limits the data that the kernel holds for a stream. Unix sockets have neither option and need neither, because their peer is
/// on this machine.
#[cfg(target_os = "linux")]
pub(crate) fn tune(stream: BorrowedFd<'_>, tuning: crate::op::Tuning) {
    let unsent = tuning.unsent_bytes as libc::c_int;
    let _best_effort = set_int(stream, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, unsent);
    let _best_effort = sockopt::set_tcp_user_timeout(stream, tuning.dead_after_ms);
}

/// Does nothing: other systems keep their own limits.
#[cfg(all(unix, not(target_os = "linux")))]
pub(crate) fn tune(_: BorrowedFd<'_>, _: crate::op::Tuning) {}

/// Connections that `listener` dropped because its queue was full.
#[cfg(target_os = "linux")]
pub(crate) fn drops(listener: BorrowedFd<'_>) -> Option<u32> {
    memory_info(listener).map(|info| info[SK_MEMINFO_DROPS])
}

/// Kernel memory in bytes used by a stream's buffers in both directions, without the memory for the socket itself.
#[cfg(target_os = "linux")]
pub(crate) fn buffered(stream: BorrowedFd<'_>) -> Option<u64> {
    let info = memory_info(stream)?;
    Some(SK_MEMINFO_HELD.iter().map(|place| u64::from(info[*place])).sum())
}

/// Indices into SO_MEMINFO (sock_diag(7)): received and unread, allocated ahead, to be sent, options, backlog.
#[cfg(target_os = "linux")]
const SK_MEMINFO_HELD: [usize; 5] = [0, 4, 5, 6, 7];
#[cfg(target_os = "linux")]
const SK_MEMINFO_DROPS: usize = 8;

/// SO_MEMINFO (socket(7), Linux 4.12).
#[cfg(target_os = "linux")]
fn memory_info(socket: BorrowedFd<'_>) -> Option<[u32; 9]> {
    const SO_MEMINFO: libc::c_int = 55;
    let mut info = [0u32; 9];
    read_option(socket, libc::SOL_SOCKET, SO_MEMINFO, &mut info)?;
    Some(info)
}

/// Reads an option of a socket (getsockopt(2)). `None` if the system reports less than `words` has room for.
#[cfg(target_os = "linux")]
pub(crate) fn read_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    words: &mut [u32],
) -> Option<()> {
    use std::os::fd::AsRawFd;
    let mut len = size_of_val(words) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `words`, which is that long.
    // WHY: rustix has no wrapper for SO_MEMINFO and TCP_INFO.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, words.as_mut_ptr().cast(), &raw mut len)
    };
    (result == 0 && len as usize == size_of_val(words)).then_some(())
}

/// Bytes in a stream's send queue: SIOCOUTQ (tcp(7), unix(7)), which has the same number as TIOCOUTQ.
#[cfg(target_os = "linux")]
pub(crate) fn unacknowledged(stream: BorrowedFd<'_>) -> u64 {
    use std::os::fd::AsRawFd;
    let mut queued: libc::c_int = 0;
    // SAFETY: the request writes one int to where its argument points.
    // WHY: rustix has no wrapper for it.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
    if result == 0 { u64::try_from(queued).unwrap_or(0) } else { 0 }
}

#[cfg(target_os = "linux")]
fn last_errno() -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(rustix::io::Errno::IO)
}

#[cfg(unix)]
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::offload::Pool;
    use crate::op::{Event, Op, Segment, Send, Token};
    use crate::reactor::{Reactor, ReactorSource};

    /// Takes turns until an event of the connection satisfies `wanted`.
    fn until(reactor: &mut impl Reactor, wanted: impl Fn(&Event<'_>) -> bool) {
        loop {
            reactor.wait(None).expect("the system waits");
            while let Some(event) = reactor.next() {
                assert!(!matches!(event, Event::Failed { .. }), "it failed");
                if wanted(&event) {
                    return;
                }
            }
        }
    }

    /// Whether Nagle's algorithm is off after each send of a new connection. A send is a number of bytes and its `more` flag.
    fn is_off<R: Reactor>(mut reactor: R, sends: &[(usize, bool)]) -> Vec<bool> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let stream = unconnected(&address, None).expect("a socket");
        let eye = stream.descriptor.try_clone().expect("a descriptor");
        let token: Token = reactor.adopt(ReactorSource::Stream(stream)).expect("room for a source");
        reactor.submit(token, Op::Connect(address));
        until(&mut reactor, |event| matches!(event, Event::Connected { .. }));
        let sends = sends.iter().map(|(len, more)| {
            let segments = vec![Segment::Bytes(vec![b'x'; *len])];
            reactor.submit(token, Op::Send(Send { segments, more: *more }));
            until(&mut reactor, |event| matches!(event, Event::Sent { .. }));
            sockopt::tcp_nodelay(&eye).expect("a TCP socket")
        });
        sends.collect()
    }

    #[test]
    fn nagles_algorithm_is_off_before_it_could_hold_anything_back() {
        for (sends, off) in [
            (&[(1, false)][..], &[false][..]),
            (&[(536, false), (1, false), (1, false)], &[false, true, true]),
            (&[(537, false), (1, false)], &[true, true]),
            (&[(1, true), (1, false)], &[true, true]),
        ] {
            let pool = Pool::start(1, 1).expect("room for a thread");
            assert_eq!(is_off(crate::PollReactor::new(pool.clone()).expect("poll"), sends), off);
            assert_eq!(is_off(crate::EpollLevelReactor::new(pool.clone()).expect("epoll"), sends), off);
            assert_eq!(is_off(crate::EpollEdgeReactor::new(pool.clone()).expect("epoll"), sends), off);
            assert_eq!(is_off(crate::UringReactor::new(pool.clone()).expect("io_uring"), sends), off);
            pool.close();
        }
    }
}
