//! Echo servers on poll, epoll, signals and WSAPoll (`mux.c`), which differ in how they find the record of an event.

use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::system::{CSocket, PairEnd, SpecimenSystem, socket};

/// How to wait, and how to find the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MuxHow {
    PollIndex,
    LevelScan,
    EdgeScan,
    LevelIndex,
    EdgeIndex,
    Signals,
    /// WSAPoll, the poll of Windows.
    WsaPollIndex,
}

impl MuxHow {
    /// The systems that have it.
    pub(crate) const fn system(self) -> SpecimenSystem {
        match self {
            Self::PollIndex => SpecimenSystem::Unix,
            Self::WsaPollIndex => SpecimenSystem::Windows,
            Self::LevelScan | Self::EdgeScan | Self::LevelIndex | Self::EdgeIndex | Self::Signals => {
                SpecimenSystem::Linux
            }
        }
    }

    /// The number in `mux.c`, where both polls are one.
    const fn number(self) -> i32 {
        match self {
            Self::PollIndex | Self::WsaPollIndex => 0,
            Self::LevelScan => 1,
            Self::EdgeScan => 2,
            Self::LevelIndex => 3,
            Self::EdgeIndex => 4,
            Self::Signals => 5,
        }
    }
}

#[repr(C)]
struct CMux {
    opaque: [u8; 0],
}

// SAFETY: the signatures are those of mux.c.
unsafe extern "C" {
    fn lab_mux_open(how: i32, sockets: *const CSocket, count: u32) -> *mut CMux;
    fn lab_mux_serve(mux: *mut CMux, messages: u64) -> i64;
    fn lab_mux_close(mux: *mut CMux);
}

/// A server over sockets that the caller keeps open.
///
/// INVARIANT: `state` was returned by `lab_mux_open` and is not yet closed. It stays on its thread, which receives the signals;
/// a pointer is not `Send`.
pub(crate) struct Mux<'a> {
    state: NonNull<CMux>,
    sockets: PhantomData<&'a [PairEnd]>,
}

impl<'a> Mux<'a> {
    /// Creates a server over these sockets, which must be non-blocking.
    ///
    /// # Errors
    /// The system has no such multiplexer, or memory is insufficient.
    pub(crate) fn new(how: MuxHow, sockets: &'a [PairEnd]) -> io::Result<Self> {
        let numbers: Vec<CSocket> = sockets.iter().map(socket).collect();
        let count = u32::try_from(numbers.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: there are `count` numbers, which are copied.
        let state = unsafe { lab_mux_open(how.number(), numbers.as_ptr(), count) };
        let state = NonNull::new(state).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { state, sockets: PhantomData })
    }

    /// Responds to `messages` messages of 1,024 bytes with their own content. Returns the number of records searched to find
    /// the records of the events.
    ///
    /// # Errors
    /// A peer has closed, or 30 s have passed without a message.
    pub(crate) fn serve(&mut self, messages: u64) -> io::Result<u64> {
        // SAFETY: the state is alive, and so are the sockets that it knows.
        let looked = unsafe { lab_mux_serve(self.state.as_ptr(), messages) };
        u64::try_from(looked).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for Mux<'_> {
    fn drop(&mut self) {
        // SAFETY: it is alive, and nobody uses it any more.
        unsafe { lab_mux_close(self.state.as_ptr()) };
    }
}
