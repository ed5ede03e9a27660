//! Sockets and files as C has them (`system.h`), and pairs of connected sockets. Like the C files, this one differs by system.

#[cfg(unix)]
pub(crate) use unix::{CFile, CSocket, PAIRS_MAX, PairEnd, file, pairs, socket};
#[cfg(windows)]
pub(crate) use windows::{CFile, CSocket, PAIRS_MAX, PairEnd, file, pairs, socket};

/// The systems that a specimen exists on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpecimenSystem {
    /// Linux only: epoll, io_uring, sendfile and others.
    Linux,
    /// Every Unix system.
    Unix,
    /// Windows only.
    Windows,
    /// All systems.
    Any,
}

impl SpecimenSystem {
    /// Whether this program runs on it.
    pub(crate) const fn is_here(self) -> bool {
        match self {
            Self::Linux => cfg!(target_os = "linux"),
            Self::Unix => cfg!(unix),
            Self::Windows => cfg!(windows),
            Self::Any => true,
        }
    }
}

#[cfg(unix)]
mod unix {
    use std::fs::File;
    use std::io;
    use std::os::fd::{AsRawFd, RawFd};

    /// An end of a pair: a Unix socket, which needs no port.
    pub(crate) use std::os::unix::net::UnixStream as PairEnd;

    /// A socket in C.
    pub(crate) type CSocket = RawFd;
    /// An open file in C.
    pub(crate) type CFile = RawFd;

    /// Maximum number of pairs: the limit of descriptors is reached before.
    pub(crate) const PAIRS_MAX: usize = 1 << 20;

    /// The socket as C has it, valid while it is open.
    pub(crate) fn socket(socket: &impl AsRawFd) -> CSocket {
        socket.as_raw_fd()
    }

    /// The file as C has it, valid while it is open.
    pub(crate) fn file(file: &File) -> CFile {
        file.as_raw_fd()
    }

    /// Creates pairs of connected sockets.
    ///
    /// # Errors
    /// Out of descriptors.
    pub(crate) fn pairs(count: usize) -> io::Result<Vec<(PairEnd, PairEnd)>> {
        (0..count).map(|_| PairEnd::pair()).collect()
    }
}

#[cfg(windows)]
mod windows {
    use std::fs::File;
    use std::io;
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::windows::io::{AsRawHandle as _, AsRawSocket, RawHandle, RawSocket};

    /// An end of a pair: TCP over loopback, because this system has no pairs of sockets.
    pub(crate) use std::net::TcpStream as PairEnd;

    /// A socket in C.
    pub(crate) type CSocket = RawSocket;
    /// An open file in C.
    pub(crate) type CFile = RawHandle;

    /// Maximum number of pairs. Each takes one of 16,384 ports, and ports are in use for a while after the end.
    pub(crate) const PAIRS_MAX: usize = 1_000;

    // SAFETY: the signature is that of mux.c.
    unsafe extern "C" {
        fn lab_reset_at_close(socket: CSocket);
    }

    /// The socket as C has it, valid while it is open.
    pub(crate) fn socket(socket: &impl AsRawSocket) -> CSocket {
        socket.as_raw_socket()
    }

    /// The file as C has it, valid while it is open.
    pub(crate) fn file(file: &File) -> CFile {
        file.as_raw_handle()
    }

    /// Creates pairs of connected sockets. They end with a reset, so that no port stays in TIME-WAIT.
    ///
    /// # Errors
    /// Out of ports or memory.
    pub(crate) fn pairs(count: usize) -> io::Result<Vec<(PairEnd, PairEnd)>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let pair = |_| {
            let one = PairEnd::connect(address)?;
            let (other, _) = listener.accept()?;
            for end in [&one, &other] {
                end.set_nodelay(true)?;
                // SAFETY: the socket is open; the call takes no pointers.
                unsafe { lab_reset_at_close(socket(end)) };
            }
            Ok((one, other))
        };
        (0..count).map(pair).collect()
    }
}
