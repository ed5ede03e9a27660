//! What the processes of applications write: one line for the operator for each of theirs.

use std::io::{self, BufRead as _, BufReader, Read};
use std::thread;
use std::time::{Duration, Instant};

use encke_settings::notice::{report, report_output};
use encke_settings::{ByteRate, Level};

/// Bytes of a line. The rest of a longer one becomes a line of its own.
const LINE_BYTES_MAX: u64 = 8 * 1024;

/// Bytes that each line counts besides its own: the name of the application, the time, and the work for a line.
const LINE_COST: u64 = 64;

/// The pace at which the output of a process is read. Above it the pipe fills, and the process waits: its endless output would
/// otherwise take a core, and most of its lines would be dropped.
struct Pace {
    bytes_per_second: u64,
    since: Instant,
    bytes: u64,
}

impl Pace {
    fn new(rate: ByteRate, now: Instant) -> Self {
        Self { bytes_per_second: rate.bytes_per_second().max(1), since: now, bytes: 0 }
    }

    /// Counts a line. Returns the time to wait before the next one: none, for the bytes of one second.
    fn wait(&mut self, line_bytes: u64, now: Instant) -> Duration {
        self.bytes += line_bytes + LINE_COST;
        let passed = now.duration_since(self.since);
        let needed_ns = u128::from(self.bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let needed = Duration::from_nanos(u64::try_from(needed_ns).unwrap_or(u64::MAX));
        if needed <= passed {
            (self.since, self.bytes) = (now, 0);
        }
        needed.saturating_sub(passed).saturating_sub(Duration::from_secs(1))
    }
}

/// Reports the lines that a process writes, at most at `rate`, until its last writer ends. Blocks.
pub(crate) fn report_lines(name: &str, pid: i32, pipe: impl Read, rate: ByteRate) {
    let (mut pace, mut is_told) = (Pace::new(rate, Instant::now()), false);
    let end = each_line(pipe, |line| {
        report_output(&format!("{name}[{pid}]"), line);
        let wait = pace.wait(line.len() as u64, Instant::now());
        if !wait.is_zero() {
            if !is_told {
                is_told = true;
                report(
                    Level::Warn,
                    &format!("{name}[{pid}]: it writes more than output_rate ({rate}), so it has to wait"),
                );
            }
            thread::sleep(wait);
        }
    });
    if let Err(error) = end {
        report(Level::Warn, &format!("{name}[{pid}]: cannot read its output: {error}"));
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
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut pace = Pace::new(ByteRate::of(1_000), start);
        assert_eq!(pace.wait(1_000 - LINE_COST, start), Duration::ZERO, "the bytes of one second");
        assert_eq!(pace.wait(500 - LINE_COST, start), Duration::from_millis(500));
        assert_eq!(pace.wait(500 - LINE_COST, after(500)), Duration::from_millis(500));
        assert_eq!(pace.wait(0, after(60_000)), Duration::ZERO, "a pause");
        assert_eq!(pace.wait(2_000 - LINE_COST, after(60_000)), Duration::from_secs(1), "saves nothing up");
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
