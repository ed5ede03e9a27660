//! Options and calls of sockets that only Linux has.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use rustix::event::PollFlags;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self as net, AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};

use crate::files::OpenFile;
use crate::op::{Peer, Tuning};
use crate::sending::SendFault;
use crate::stream_facts::TcpFacts;

/// Several listeners can share an address, and the kernel distributes connections among them (SO_REUSEPORT).
pub(crate) const SHARES_ADDRESS: bool = true;

/// Whether accepted connections inherit what [`tune`] sets on their listener.
pub(crate) const INHERITS_TUNING: bool = true;

/// Linux reports a socket without a peer only together with a hang-up (`tcp_poll` in net/ipv4/tcp.c).
pub(crate) const WRITABLE_MEANS_CONNECTED: bool = true;

/// The event of poll(2) for the end of the peer's stream.
pub(crate) const PEER_ENDED: PollFlags = PollFlags::RDHUP;

/// Data follows that shares a packet (tcp(7)).
pub(crate) const MORE: SendFlags = SendFlags::MORE;
/// A lost peer is an error, not a signal.
pub(crate) const QUIET: SendFlags = SendFlags::NOSIGNAL;

/// Creates a stream socket, non-blocking and close-on-exec.
pub(crate) fn stream_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

/// Accepts one connection from a listener's queue, non-blocking and close-on-exec.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> rustix::io::Result<(OwnedFd, Peer)> {
    let (descriptor, name) = net::acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let peer = name.and_then(|name| SocketAddr::try_from(name).ok()).map_or(Peer::Local, Peer::Inet);
    Ok((descriptor, peer))
}

/// Lets further listeners bind the same address.
pub(crate) fn share_address(listener: BorrowedFd<'_>) -> rustix::io::Result<()> {
    sockopt::set_socket_reuseport(listener, true)
}

/// Defers the choice of the local port to connect(2), which knows the peer (IP_BIND_ADDRESS_NO_PORT, ip(7), Linux 4.2). A port
/// chosen by bind(2) is exclusive to this socket for all peers, which allows fewer connections.
pub(crate) fn choose_port_late(descriptor: BorrowedFd<'_>) {
    let _best_effort = set_int(descriptor, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
}

/// Sets an int option (setsockopt(2)) for which rustix has no wrapper.
fn set_int(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> rustix::io::Result<()> {
    // SAFETY: pointer and length belong to `value`; the descriptor is open while borrowed.
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

/// Makes the kernel ignore new connection attempts to `listener`, while those in progress complete.
///
/// Closing a listener resets the connections in its queue, and more may arrive between the last accept and the close. With this
/// filter later attempts get no response and are retried after a second. They then reach the next listener, or are refused. No
/// established connection is reset.
pub(crate) fn refuse_new(listener: BorrowedFd<'_>) {
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
    let _best_effort = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
}

/// Limits the data that the kernel holds for a stream, or for the streams that a listener accepts from now on. Unix sockets have neither option and need neither, because their peer is
/// on this machine.
pub(crate) fn tune(stream: BorrowedFd<'_>, tuning: Tuning) {
    let unsent = tuning.unsent_bytes as libc::c_int;
    let _best_effort = set_int(stream, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, unsent);
    let _best_effort = sockopt::set_tcp_user_timeout(stream, tuning.dead_after_ms);
}

/// Connections that `listener` dropped because its queue was full.
pub(crate) fn drops(listener: BorrowedFd<'_>) -> Option<u32> {
    memory_info(listener).map(|info| info[SK_MEMINFO_DROPS])
}

/// Kernel memory in bytes used by a stream's buffers in both directions, without the memory for the socket itself.
pub(crate) fn buffered(stream: BorrowedFd<'_>) -> Option<u64> {
    let info = memory_info(stream)?;
    Some(SK_MEMINFO_HELD.iter().map(|place| u64::from(info[*place])).sum())
}

/// Indices into SO_MEMINFO (sock_diag(7)): received and unread, allocated ahead, to be sent, options, backlog.
const SK_MEMINFO_HELD: [usize; 5] = [0, 4, 5, 6, 7];
const SK_MEMINFO_DROPS: usize = 8;

/// SO_MEMINFO (socket(7), Linux 4.12).
fn memory_info(socket: BorrowedFd<'_>) -> Option<[u32; 9]> {
    const SO_MEMINFO: libc::c_int = 55;
    let mut info = [0u32; 9];
    read_option(socket, libc::SOL_SOCKET, SO_MEMINFO, &mut info)?;
    Some(info)
}

/// Reads an option of a socket (getsockopt(2)). `None` if the system reports less than `words` has room for.
fn read_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    words: &mut [u32],
) -> Option<()> {
    let mut len = size_of_val(words) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `words`, which is that long.
    // WHY: rustix has no wrapper for SO_MEMINFO and TCP_INFO.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, words.as_mut_ptr().cast(), &raw mut len)
    };
    (result == 0 && len as usize == size_of_val(words)).then_some(())
}

/// Bytes in a stream's send queue: SIOCOUTQ (tcp(7), unix(7)), which has the same number as TIOCOUTQ.
pub(crate) fn unacknowledged(stream: BorrowedFd<'_>) -> u64 {
    let mut queued: libc::c_int = 0;
    // SAFETY: the request writes one int to where its argument points.
    // WHY: rustix has no wrapper for it.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
    if result == 0 { u64::try_from(queued).unwrap_or(0) } else { 0 }
}

/// Words of `struct tcp_info` up to `tcpi_bytes_received` (linux/tcp.h, Linux 4.1).
const WORDS: usize = 34;

/// Facts about a TCP connection (TCP_INFO, tcp(7)); `None` for other streams.
pub(crate) fn tcp_facts(stream: BorrowedFd<'_>) -> Option<TcpFacts> {
    let mut words = [0u32; WORDS];
    read_option(stream, libc::IPPROTO_TCP, libc::TCP_INFO, &mut words)?;
    // The first eight bytes are single bytes; 32-bit fields follow, and 64-bit ones from word 26 on.
    let double = |place: usize| {
        let [a, b, c, d] = words[place].to_ne_bytes();
        let [e, f, g, h] = words[place + 1].to_ne_bytes();
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    };
    Some(TcpFacts {
        since_sent_ms: words[11],
        since_received_ms: words[13],
        round_trip_us: words[17],
        acknowledged_bytes: double(30),
        received_bytes: double(32),
    })
}

/// Sends a range of a file without a copy through this process (sendfile(2)).
pub(crate) fn send_file(
    socket: BorrowedFd<'_>,
    file: &OpenFile,
    mut offset: u64,
    len: u64,
    _scratch: &mut [u8],
) -> Result<u64, SendFault> {
    match rustix::fs::sendfile(socket, file, Some(&mut offset), len as usize)? {
        0 => Err(SendFault::FileShrunk),
        sent => Ok(sent as u64),
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
