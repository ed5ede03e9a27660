//! Marks of draining servers on Linux: abstract Unix sockets, and pidfd_open(2).

use std::io;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::net::{self as sys, AddressFamily, SocketAddrUnix};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::drain_mark::HeldResource;
use crate::sys::linux::net::stream_socket;

/// Successors whose connections the kernel keeps. A further one does not find the mark.
const BACKLOG: i32 = 8;

/// The mark of this process, until it is dropped.
pub struct DrainMark {
    _listeners: Vec<OwnedFd>,
}

impl DrainMark {
    /// Marks resources as held by this draining process. A resource that cannot be marked is skipped: a successor then
    /// reports it as in use.
    pub fn set(held: &[HeldResource]) -> Self {
        Self { _listeners: held.iter().filter_map(|held| listen(held).ok()).collect() }
    }
}

fn listen(held: &HeldResource) -> io::Result<OwnedFd> {
    let listener = stream_socket(AddressFamily::UNIX)?;
    sys::bind(&listener, &name(held)?)?;
    sys::listen(&listener, BACKLOG)?;
    Ok(listener)
}

fn name(held: &HeldResource) -> io::Result<SocketAddrUnix> {
    let name = match held {
        HeldResource::Port(port) => format!("encke-draining/port/{port}"),
        HeldResource::File((device, inode)) => format!("encke-draining/file/{device}/{inode}"),
    };
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// A draining process that holds a resource.
#[derive(Debug)]
pub struct DrainingProcess {
    connection: OwnedFd,
    pid: u32,
    /// The process itself; `None` if the kernel or a namespace does not show it.
    process: Option<OwnedFd>,
}

impl DrainingProcess {
    /// Finds the draining process of this user, or of root, that holds a resource.
    pub fn find(held: &HeldResource) -> Option<Self> {
        let connection = stream_socket(AddressFamily::UNIX).ok()?;
        sys::connect(&connection, &name(held).ok()?).ok()?;
        let peer = credentials(&connection).ok()?;
        // Any user may bind the name. Another user must not delay this process.
        if peer.uid != rustix::process::geteuid().as_raw() && peer.uid != 0 {
            return None;
        }
        let process = Pid::from_raw(peer.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Some(Self { connection, pid: peer.pid.unsigned_abs(), process })
    }

    /// The process id; 0 if it is in a namespace that this process cannot see.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until the process has ended, for at most `time`. Returns whether it has.
    pub fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        // The connection ends with the mark, and the process has then closed everything else, or is about to.
        is_readable(&self.connection, time)
            && self
                .process
                .as_ref()
                .is_none_or(|process| is_readable(process, end.saturating_duration_since(Instant::now())))
    }
}

/// Waits until a descriptor is readable or has ended, for at most `time`.
fn is_readable(descriptor: &OwnedFd, time: Duration) -> bool {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().min(i64::MAX as u64) as _,
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) if !left.is_zero() => {}
            ready => return ready.is_ok_and(|count| count > 0),
        }
    }
}

/// Returns the process and user that listen at the other end.
fn credentials(connection: &OwnedFd) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `peer`, whose fields are plain integers.
    // WHY: rustix's type cannot represent a process of another namespace, whose id is 0.
    let result = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(peer) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_until_it_is_dropped() {
        let held = HeldResource::File((u64::from(std::process::id()), 1));
        assert!(DrainingProcess::find(&held).is_none());
        let mark = DrainMark::set(std::slice::from_ref(&held));
        let found = DrainingProcess::find(&held).expect("it is marked");
        assert_eq!(found.pid(), std::process::id());
        assert!(DrainingProcess::find(&HeldResource::File((u64::from(found.pid()), 2))).is_none());
        assert!(!found.wait(Duration::ZERO), "the mark is still there");
        drop(mark);
        assert!(is_readable(&found.connection, Duration::from_secs(60)), "the mark is gone");
        assert!(!found.wait(Duration::ZERO), "this process still runs");
        assert!(DrainingProcess::find(&held).is_none());
    }

    #[test]
    fn more_successors_than_the_backlog_do_not_block() {
        let held = HeldResource::File((u64::from(std::process::id()), 3));
        let _mark = DrainMark::set(std::slice::from_ref(&held));
        let found: Vec<_> = (0..BACKLOG * 4).filter_map(|_| DrainingProcess::find(&held)).collect();
        assert!(found.len() >= BACKLOG as usize && found.len() < BACKLOG as usize * 4);
    }
}
