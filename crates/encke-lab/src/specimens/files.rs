//! Ways to send a file (`files.c`), and a receiver that discards its input.

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};

use super::system::{CFile, CSocket, SpecimenSystem, file as c_file, socket as c_socket};

/// How a file's bytes reach the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileHow {
    ReadWrite4K = 0,
    ReadWrite64K = 1,
    MmapWrite = 2,
    Sendfile = 3,
    Splice = 4,
    Zerocopy = 5,
    Uring = 6,
    TransmitFile = 7,
}

impl FileHow {
    /// The systems that have it.
    pub(crate) const fn system(self) -> SpecimenSystem {
        match self {
            Self::ReadWrite4K | Self::ReadWrite64K => SpecimenSystem::Any,
            Self::MmapWrite | Self::Sendfile | Self::Splice | Self::Zerocopy | Self::Uring => {
                SpecimenSystem::Linux
            }
            Self::TransmitFile => SpecimenSystem::Windows,
        }
    }
}

// SAFETY: the signatures are those of files.c.
unsafe extern "C" {
    fn lab_send_file(how: i32, socket: CSocket, file: CFile, bytes: u64) -> i32;
    fn lab_discard(socket: CSocket, bytes: u64) -> i32;
}

/// All callers share the buffer and the ring of `files.c`.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Sends the first `bytes` of `file`, which must have that many, over a blocking stream.
///
/// # Errors
/// The system does not support this way, or the peer has closed.
pub(crate) fn send(how: FileHow, socket: &TcpStream, file: &File, bytes: u64) -> io::Result<()> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: both descriptors are open for as long as they are borrowed; the lock excludes other users of the
    // buffer and the ring.
    checked(unsafe { lab_send_file(how as i32, c_socket(socket), c_file(file), bytes) })
}

/// Receives and discards exactly `bytes` bytes.
///
/// # Errors
/// The peer has sent fewer, or the system does not support it.
pub(crate) fn discard(socket: &TcpStream, bytes: u64) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as it is borrowed; no memory is written.
    checked(unsafe { lab_discard(c_socket(socket), bytes) })
}

/// Converts a result of `files.c`: 0, or failure with the reason in `errno`.
fn checked(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
