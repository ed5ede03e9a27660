//! What the processes of applications write: one line for the operator for each of theirs.

use std::io::{self, BufRead as _, BufReader, Read};

use encke_settings::Level;
use encke_settings::notice::{report, report_output};

/// Bytes of a line. The rest of a longer one becomes a line of its own.
const LINE_BYTES_MAX: u64 = 8 * 1024;

/// Reports the lines that a process writes, until its last writer ends. Blocks.
pub(crate) fn report_lines(name: &str, pid: i32, pipe: impl Read) {
    let end = each_line(pipe, |line| report_output(&format!("{name}[{pid}]"), line));
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
