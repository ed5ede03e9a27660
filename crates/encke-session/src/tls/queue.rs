//! Seals queued plaintext into records, one send at a time.

use std::collections::VecDeque;

use encke_io::{OpError, Segment};

/// Maximum plaintext of a record (RFC 8446 §5.1).
pub(super) const RECORD_BYTES: usize = 16 * 1024;

/// Maximum size of the records of one send, which the last record may exceed. Four records keep a socket busy whose buffer
/// holds some 200 KiB, and bound the memory of a connection whose peer has stopped reading.
const WINDOW_BYTES: usize = 64 * 1024;

/// Seals plaintext from the front of the queue until `out` holds one send or the queue is empty. Files are read in pieces of
/// one record into the buffer `gathered`.
///
/// # Errors
/// A file has become shorter or cannot be read, or `seal` has failed.
pub fn fill(
    queue: &mut VecDeque<Segment>,
    gathered: &mut Vec<u8>,
    out: &mut Vec<u8>,
    mut seal: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), OpError>,
) -> Result<(), OpError> {
    while out.len() < WINDOW_BYTES && !queue.is_empty() {
        // Large segments in memory are sealed in place; all others are gathered into a record.
        let large = |segment: &Segment| segment.memory().is_some_and(|bytes| bytes.len() >= RECORD_BYTES);
        if queue.front().is_some_and(large)
            && let Some(segment) = queue.pop_front()
        {
            let bytes = segment.memory().unwrap_or_default();
            let take = bytes.len().min(WINDOW_BYTES);
            seal(&bytes[..take], out)?;
            if let Some(rest) = segment.after(take as u64) {
                queue.push_front(rest);
            }
            continue;
        }
        gathered.clear();
        gather(queue, gathered)?;
        seal(gathered, out)?;
    }
    Ok(())
}

/// Fills a record with plaintext from the front of the queue.
fn gather(queue: &mut VecDeque<Segment>, record: &mut Vec<u8>) -> Result<(), OpError> {
    while record.len() < RECORD_BYTES {
        let Some(segment) = queue.pop_front() else { return Ok(()) };
        let room = RECORD_BYTES - record.len();
        let take = match &segment {
            Segment::File { file, offset, len } => {
                let start = record.len();
                let wish = usize::try_from(*len).unwrap_or(usize::MAX).min(room);
                record.resize(start + wish, 0);
                let read = match file.read_cached_at(*offset, &mut record[start..]) {
                    Some(read) => read,
                    // Blocks on the disk, as sendfile(2) does.
                    None => file.read_at(*offset, &mut record[start..]).map_err(|_| OpError::FileShrunk)?,
                };
                if read == 0 {
                    return Err(OpError::FileShrunk);
                }
                record.truncate(start + read);
                read
            }
            other => {
                let bytes = other.memory().unwrap_or_default();
                let take = bytes.len().min(room);
                record.extend_from_slice(&bytes[..take]);
                take
            }
        };
        if let Some(rest) = segment.after(take as u64) {
            queue.push_front(rest);
        }
    }
    Ok(())
}
