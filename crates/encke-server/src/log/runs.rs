//! Complete lines of several outputs in one buffer, in the order in which they ended.

use super::LogOutput;

/// Lines, in runs for the same output. Nearly always there is only one run.
#[derive(Default)]
pub(super) struct LineRuns {
    bytes: Vec<u8>,
    runs: Vec<LineRun>,
}

struct LineRun {
    output: LogOutput,
    /// The end of the run in the bytes.
    end: usize,
    lines: u64,
}

impl LineRuns {
    /// Adds the line that `put` appends.
    pub(super) fn add(&mut self, output: LogOutput, put: impl FnOnce(&mut Vec<u8>)) {
        put(&mut self.bytes);
        let end = self.bytes.len();
        match self.runs.last_mut() {
            Some(last) if last.output == output => {
                last.end = end;
                last.lines += 1;
            }
            _ => self.runs.push(LineRun { output, end, lines: 1 }),
        }
    }

    /// All lines.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Output, bytes and number of lines of each run, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (LogOutput, &[u8], u64)> {
        let mut start = 0;
        self.runs.iter().map(move |run| {
            let bytes = self.bytes.get(start..run.end).unwrap_or_default();
            start = run.end;
            (run.output, bytes, run.lines)
        })
    }

    /// Removes all lines, and memory for more than `bytes_kept`.
    pub(super) fn clear(&mut self, bytes_kept: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(bytes_kept);
        self.runs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_output_are_one_run() {
        let mut runs = LineRuns::default();
        let other = LogOutput::other(0);
        for (output, text) in
            [(LogOutput::MAIN, "a\n"), (LogOutput::MAIN, "b\n"), (other, "c\n"), (LogOutput::MAIN, "d\n")]
        {
            runs.add(output, |out| out.extend_from_slice(text.as_bytes()));
        }
        let seen: Vec<_> = runs.iter().collect();
        assert_eq!(
            seen,
            [(LogOutput::MAIN, &b"a\nb\n"[..], 2), (other, b"c\n", 1), (LogOutput::MAIN, b"d\n", 1)]
        );
        runs.clear(0);
        assert_eq!((runs.bytes().len(), runs.iter().count()), (0, 0));
    }
}
