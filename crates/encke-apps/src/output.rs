//! What the processes of applications write: one line for the operator for each of theirs.

use std::io::{self, BufRead as _, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use encke_io::clock::Clock;
use encke_settings::notice::{report, report_output};
use encke_settings::{ByteRate, Level};

/// Bytes of a line. The rest of a longer one becomes a line of its own.
const LINE_BYTES_MAX: u64 = 8 * 1024;

/// Bytes that each line counts besides its own: the name of the application, the time, and the work for a line.
const LINE_COST: u64 = 64;

/// The pace at which the output of a process is read. Above it the pipe fills, and the process waits: its endless output would
/// otherwise take a core, and most of its lines would be dropped.
struct OutputPace {
    bytes_per_second: u64,
    /// The time of the first counted byte, in ns.
    since_ns: u64,
    bytes: u64,
}

impl OutputPace {
    fn new(rate: ByteRate, now_ns: u64) -> Self {
        Self { bytes_per_second: rate.bytes_per_second().max(1), since_ns: now_ns, bytes: 0 }
    }

    /// Counts a line. Returns the time in ns to wait before the next one: none, for the bytes of one second.
    fn wait_ns(&mut self, line_bytes: u64, now_ns: u64) -> u64 {
        self.bytes += line_bytes + LINE_COST;
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        let needed_ns = u128::from(self.bytes) * u128::from(SECOND_NS) / u128::from(self.bytes_per_second);
        let needed_ns = u64::try_from(needed_ns).unwrap_or(u64::MAX);
        if needed_ns <= passed_ns {
            (self.since_ns, self.bytes) = (now_ns, 0);
        }
        needed_ns.saturating_sub(passed_ns).saturating_sub(SECOND_NS)
    }
}

const SECOND_NS: u64 = 1_000_000_000;

/// The lines of a process.
pub(crate) struct AppOutput {
    pub(crate) name: String,
    pub(crate) pid: i32,
    /// The most bytes a second that are read while the process runs.
    pub(crate) rate: ByteRate,
    /// Its sender is dropped when the process has ended.
    pub(crate) ended: Receiver<()>,
}

impl AppOutput {
    /// Reports the lines that the process writes to `pipe`, until its last writer ends. Blocks.
    pub(crate) fn report(&self, pipe: impl Read) {
        let Self { name, pid, rate, ended } = self;
        let mut clock = Clock::new();
        let (mut pace, mut is_told) = (OutputPace::new(*rate, clock.now().mono_ns), false);
        let end = each_line(pipe, |line| {
            report_output(&format!("{name}[{pid}]"), line);
            let wait_ns = pace.wait_ns(line.len() as u64, clock.now().mono_ns);
            if wait_ns == 0 {
                return;
            }
            let waited = ended.recv_timeout(Duration::from_nanos(wait_ns));
            if waited == Err(RecvTimeoutError::Timeout) && !is_told {
                is_told = true;
                let text =
                    format!("{name}[{pid}]: it writes more than output_rate ({rate}), so it has to wait");
                report(Level::Warn, &text);
            }
        });
        if let Err(error) = end {
            report(Level::Warn, &format!("{name}[{pid}]: cannot read its output: {error}"));
        }
    }
}

/// Calls `tell` with each line that is not empty, without control characters: a terminal would obey them.
fn each_line(pipe: impl Read, mut tell: impl FnMut(&str)) -> io::Result<()> {
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        let text: String = text
            .trim_end()
            .chars()
            .map(|letter| if letter.is_control() && letter != '\t' { '\u{fffd}' } else { letter })
            .collect();
        if !text.is_empty() {
            tell(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_writes_a_second_ahead_of_its_rate_and_then_waits() {
        let mut pace = OutputPace::new(ByteRate::of(1_000), 0);
        let second = |halves: u64| halves * SECOND_NS / 2;
        assert_eq!(pace.wait_ns(1_000 - LINE_COST, 0), 0, "the bytes of one second");
        assert_eq!(pace.wait_ns(500 - LINE_COST, 0), second(1));
        assert_eq!(pace.wait_ns(500 - LINE_COST, second(1)), second(1));
        assert_eq!(pace.wait_ns(0, second(120)), 0, "a pause");
        assert_eq!(pace.wait_ns(2_000 - LINE_COST, second(120)), second(2), "saves nothing up");
    }

    #[test]
    fn lines_are_told_one_by_one_without_control_characters_and_long_ones_in_pieces() {
        let long = "x".repeat(LINE_BYTES_MAX as usize + 10);
        let text = format!("one\r\n\n\x1b[31mred\ttab\n{long}\nlast");
        let mut lines = Vec::new();
        each_line(text.as_bytes(), |line| lines.push(line.to_owned())).expect("it is in memory");
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert_eq!(lines[..2], ["one", "\u{fffd}[31mred\ttab"]);
        assert_eq!((lines[2].len(), lines[3].len()), (LINE_BYTES_MAX as usize, 10));
        assert_eq!(lines[4], "last");
    }
}
