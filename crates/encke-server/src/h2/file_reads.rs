//! Reads of files on the thread pool for HTTP/2 streams.
//!
//! The key of a job names an entry of this table, which stays until the job's result arrives. So no result of an ended stream
//! reaches a later stream, however many streams began meanwhile.

use encke_io::Token;
use encke_io::slab::Slab;

/// The high bits of the keys of jobs that read files for streams. No handler has so high a number.
const FILE_JOB: u64 = 0xFFFE << 48;
const FILE_JOB_MASK: u64 = 0xFFFF << 48;

/// Whether a job reads a file for a stream.
pub(crate) const fn is_file_job(key: u64) -> bool {
    key & FILE_JOB_MASK == FILE_JOB
}

/// The streams whose reads are on the thread pool.
pub(super) struct FileReads(Slab<Token>);

impl FileReads {
    pub(super) const fn new() -> Self {
        Self(Slab::new())
    }

    /// Returns the key of a job that reads for a stream.
    pub(super) fn begin(&mut self, stream: Token) -> u64 {
        FILE_JOB | u64::from(self.0.insert(stream))
    }

    /// Returns the stream of a job whose result has arrived.
    pub(super) fn end(&mut self, key: u64) -> Option<Token> {
        self.0.remove(key as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_names_its_stream_after_any_number_of_streams() {
        let mut reads = FileReads::new();
        let first = Token { index: 7, generation: 1 };
        let key = reads.begin(first);
        // Streams at the same index, each of which ends before its result arrives.
        let later: Vec<(u64, Token)> = (2..=65_537 + 1)
            .map(|generation| Token { index: 7, generation })
            .map(|stream| (reads.begin(stream), stream))
            .collect();
        assert!(is_file_job(key) && later.iter().all(|(other, _)| is_file_job(*other) && *other != key));
        assert_eq!(reads.end(key), Some(first));
        assert_eq!(reads.end(key), None, "a job has one result");
        assert!(later.iter().all(|(key, stream)| reads.end(*key) == Some(*stream)));
    }
}
