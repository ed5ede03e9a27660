//! Level-triggered against edge-triggered epoll (`trigger.c`): the events reported for bytes that are read two at a time.

/// How to wait, and how to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TriggerHow {
    Level = 0,
    Edge = 1,
    EdgeDrained = 2,
}

// SAFETY: the signature is that of trigger.c.
unsafe extern "C" {
    fn lab_trigger(how: i32, trace: *mut u8) -> i32;
}

/// Capacity of a trace. Eight turns take at most 8 · 1 (`-`) + 4 · 3 (reads of two bytes, with a space) + 8 (bars) = 28 bytes.
const TRACE_BYTES: usize = 64;

/// Returns the turns: the bytes read in each, or `-` if nothing was reported. Four turns follow the arrival of `aabbcc`, four
/// that of `dd`. `None` if this system has no epoll.
pub(crate) fn trace(how: TriggerHow) -> Option<Vec<String>> {
    let mut trace = [0; TRACE_BYTES];
    // SAFETY: it writes at most TRACE_BYTES (see there), and closes what it opens.
    let bytes = unsafe { lab_trigger(how as i32, trace.as_mut_ptr()) };
    let text = trace.get(..usize::try_from(bytes).ok()?)?;
    let turns = text.split(|&byte| byte == b'|').map(|turn| String::from_utf8_lossy(turn).trim().to_owned());
    let mut turns: Vec<String> = turns.collect();
    turns.pop();
    Some(turns)
}
