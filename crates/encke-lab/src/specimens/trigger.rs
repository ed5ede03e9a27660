//! Level-triggered against edge-triggered epoll, and poll (`trigger.c`): the events reported for bytes that are read two at a
//! time.

use super::system::{CSocket, SpecimenSystem, pairs, socket};

/// How to wait, and how to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TriggerHow {
    Level,
    Edge,
    EdgeDrained,
    /// WSAPoll, the poll of Windows.
    WsaPoll,
}

impl TriggerHow {
    /// The systems that have it.
    pub(crate) const fn system(self) -> SpecimenSystem {
        match self {
            Self::Level | Self::Edge | Self::EdgeDrained => SpecimenSystem::Linux,
            Self::WsaPoll => SpecimenSystem::Windows,
        }
    }

    /// The number in `trigger.c`.
    const fn number(self) -> i32 {
        match self {
            Self::Level => 0,
            Self::Edge => 1,
            Self::EdgeDrained => 2,
            Self::WsaPoll => 3,
        }
    }
}

// SAFETY: the signature is that of trigger.c.
unsafe extern "C" {
    fn lab_trigger(how: i32, writer: CSocket, reader: CSocket, trace: *mut u8) -> i32;
}

/// Capacity of a trace. Eight turns take at most 8 · 1 (`-`) + 4 · 3 (reads of two bytes, with a space) + 8 (bars) = 28 bytes.
const TRACE_BYTES: usize = 64;

/// Returns the turns: the bytes read in each, or `-` if nothing was reported. Four turns follow the arrival of `aabbcc`, four
/// that of `dd`. `None` if this system does not have it.
pub(crate) fn trace(how: TriggerHow) -> Option<Vec<String>> {
    let (writer, reader) = pairs(1).ok()?.pop()?;
    reader.set_nonblocking(true).ok()?;
    let mut trace = [0; TRACE_BYTES];
    // SAFETY: the function writes at most TRACE_BYTES (see there). Both sockets are open until it returns.
    let bytes = unsafe { lab_trigger(how.number(), socket(&writer), socket(&reader), trace.as_mut_ptr()) };
    let text = trace.get(..usize::try_from(bytes).ok()?)?;
    let turns = text.split(|&byte| byte == b'|').map(|turn| String::from_utf8_lossy(turn).trim().to_owned());
    let mut turns: Vec<String> = turns.collect();
    turns.pop();
    Some(turns)
}
