//! Sockets on Unix systems other than Linux: the calls of POSIX. Functions for other features of Linux do nothing.

use std::net::SocketAddr;

use rustix::event::PollFlags;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::net::{self as net, AddressFamily, SendFlags, SocketType};

use crate::files::OpenFile;
use crate::op::{Peer, Tuning};
use crate::sending::SendFault;
use crate::stream_facts::TcpFacts;

/// SO_REUSEPORT has another meaning on each system: handles of one listener are used instead.
pub(crate) const SHARES_ADDRESS: bool = false;

/// Whether accepted connections inherit what [`tune`] sets on their listener.
pub(crate) const INHERITS_TUNING: bool = false;

/// Whether a writable socket is connected differs between systems.
pub(crate) const WRITABLE_MEANS_CONNECTED: bool = false;

/// poll(2) has no portable event for the end of the peer's stream alone.
pub(crate) const PEER_ENDED: PollFlags = PollFlags::empty();

/// There is no portable way to hold back a packet.
pub(crate) const MORE: SendFlags = SendFlags::empty();
/// A lost peer is an error, not a signal. Systems without the flag rely on Rust's runtime, which ignores SIGPIPE from the start.
#[cfg(not(target_vendor = "apple"))]
pub(crate) const QUIET: SendFlags = SendFlags::NOSIGNAL;
/// A lost peer is an error, not a signal: Rust's runtime ignores SIGPIPE from the start.
#[cfg(target_vendor = "apple")]
pub(crate) const QUIET: SendFlags = SendFlags::empty();

/// Creates a stream socket, non-blocking and close-on-exec.
pub(crate) fn stream_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let descriptor = net::socket(family, SocketType::STREAM, None)?;
    prepare(&descriptor)?;
    Ok(descriptor)
}

/// Accepts one connection from a listener's queue, non-blocking and close-on-exec.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> rustix::io::Result<(OwnedFd, Peer)> {
    let (descriptor, name) = net::acceptfrom(listener)?;
    prepare(&descriptor)?;
    let peer = name.and_then(|name| SocketAddr::try_from(name).ok()).map_or(Peer::Local, Peer::Inet);
    Ok((descriptor, peer))
}

fn prepare(descriptor: &OwnedFd) -> rustix::io::Result<()> {
    rustix::io::ioctl_fionbio(descriptor, true)?;
    rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)
}

/// Does nothing: see [`SHARES_ADDRESS`].
pub(crate) fn share_address(_: BorrowedFd<'_>) -> rustix::io::Result<()> {
    Ok(())
}

/// Does nothing: not available.
pub(crate) fn choose_port_late(_: BorrowedFd<'_>) {}

/// Does nothing: not available.
pub(crate) fn refuse_new(_: BorrowedFd<'_>) {}

/// Does nothing: other systems keep their own limits.
pub(crate) fn tune(_: BorrowedFd<'_>, _: Tuning) {}

/// Not available: always `None`.
pub(crate) fn drops(_: BorrowedFd<'_>) -> Option<u32> {
    None
}

/// Not available: always `None`.
pub(crate) fn buffered(_: BorrowedFd<'_>) -> Option<u64> {
    None
}

/// Not available: always 0.
pub(crate) fn unacknowledged(_: BorrowedFd<'_>) -> u64 {
    0
}

/// Not available: always `None`.
pub(crate) fn tcp_facts(_: BorrowedFd<'_>) -> Option<TcpFacts> {
    None
}

/// Sends a range of a file through the scratch buffer. The sendfile calls of other systems differ, and will be added with
/// their back ends.
pub(crate) fn send_file(
    socket: BorrowedFd<'_>,
    file: &OpenFile,
    offset: u64,
    len: u64,
    scratch: &mut [u8],
) -> Result<u64, SendFault> {
    let wanted = scratch.len().min(usize::try_from(len).unwrap_or(usize::MAX));
    match rustix::io::pread(file, &mut scratch[..wanted], offset)? {
        0 => Err(SendFault::FileShrunk),
        read => Ok(net::send(socket, &scratch[..read], QUIET)? as u64),
    }
}
