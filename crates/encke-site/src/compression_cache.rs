//! Compression on the fly, on the thread pool: each state of a file is compressed once for all workers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use encke_io::lock;
use encke_wire::coding::Coding;
use encke_wire::content_encoder::ContentEncoder;

use super::error::CompressionError;
use super::find::Content;

/// The key of compressed bytes: a state of a file, and the coding.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct CompressionKey {
    pub(super) site: u16,
    /// The exact tag of the file's state.
    pub(super) state: Vec<u8>,
    pub(super) coding: Coding,
}

/// Compressed bytes that some worker still holds, and compressions in progress. Only threads of the pool take the lock.
#[derive(Default)]
pub(super) struct CompressionCache {
    entries: Mutex<HashMap<CompressionKey, CompressionEntry>>,
}

enum CompressionEntry {
    /// A thread compresses the state.
    InProgress,
    Made(Weak<[u8]>),
}

/// The outcome of a compression.
#[derive(Debug)]
pub(super) enum CompressionOutcome {
    Made(Arc<[u8]>),
    /// The compressed bytes are not much fewer.
    Futile,
    /// Another thread compresses the same state now.
    InProgress,
}

/// Ends a compression in progress that has no result, also if it panics.
struct CompressionTurn<'a> {
    cache: &'a CompressionCache,
    key: CompressionKey,
}

impl Drop for CompressionTurn<'_> {
    fn drop(&mut self) {
        let mut entries = self.cache.lock();
        if let Some(CompressionEntry::InProgress) = entries.get(&self.key) {
            entries.remove(&self.key);
        }
    }
}

impl CompressionCache {
    /// Compresses `content`, unless another thread does or some worker holds the result.
    ///
    /// # Errors
    /// The file cannot be read, or has changed.
    pub(super) fn compressed(
        &self,
        source: CompressionKey,
        content: Content,
        len: u64,
    ) -> Result<CompressionOutcome, CompressionError> {
        let turn = match self.begin(source) {
            Ok(turn) => turn,
            Err(known) => return Ok(known),
        };
        let plain = match content {
            Content::Memory(bytes) => bytes,
            Content::File(file) => {
                let mut bytes = vec![0; usize::try_from(len).map_err(|_| CompressionError::TooLong(len))?];
                let read = file.read_at(0, &mut bytes)?;
                if read != bytes.len() || file.stat()? != file.metadata {
                    return Err(CompressionError::Changed);
                }
                bytes
            }
        };
        let made = ContentEncoder::encode_whole(turn.key.coding, &plain)?;
        if made.len() + plain.len() / GAIN_PART >= plain.len() {
            return Ok(CompressionOutcome::Futile);
        }
        let made: Arc<[u8]> = made.into();
        self.lock().insert(turn.key.clone(), CompressionEntry::Made(Arc::downgrade(&made)));
        Ok(CompressionOutcome::Made(made))
    }

    /// Begins the compression of a state.
    ///
    /// # Errors
    /// There is nothing to do: the result is known, or another thread is at it.
    fn begin(&self, key: CompressionKey) -> Result<CompressionTurn<'_>, CompressionOutcome> {
        let mut entries = self.lock();
        match entries.get(&key) {
            Some(CompressionEntry::InProgress) => return Err(CompressionOutcome::InProgress),
            Some(CompressionEntry::Made(made)) => {
                if let Some(made) = made.upgrade() {
                    return Err(CompressionOutcome::Made(made));
                }
            }
            None => {}
        }
        if entries.len() >= entries.capacity() {
            entries.retain(|_, entry| match entry {
                CompressionEntry::InProgress => true,
                CompressionEntry::Made(made) => made.strong_count() > 0,
            });
        }
        entries.insert(key.clone(), CompressionEntry::InProgress);
        Ok(CompressionTurn { cache: self, key })
    }

    /// A panic cannot leave the table inconsistent.
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<CompressionKey, CompressionEntry>> {
        lock(&self.entries)
    }
}

/// Compression must save at least an eighth to be worth the client's work.
const GAIN_PART: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::sync::Barrier;

    fn bytes(compression: CompressionOutcome) -> Arc<[u8]> {
        match compression {
            CompressionOutcome::Made(made) => made,
            other => panic!("{other:?}"),
        }
    }

    fn source(coding: Coding) -> CompressionKey {
        CompressionKey { site: 0, state: b"1-2-3".to_vec(), coding }
    }

    #[test]
    fn what_is_compressed_can_be_read_back() {
        let plain = "Comet Encke has the shortest period of all. ".repeat(200).into_bytes();
        let press = CompressionCache::default();
        let len = plain.len() as u64;
        let made = press.compressed(source(Coding::Gzip), Content::Memory(plain.clone()), len);
        let made = bytes(made.expect("compressed"));
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(&*made).read_to_end(&mut back).expect("gzip");
        assert_eq!(back, plain);
        #[cfg(feature = "zstd")]
        {
            let made = press.compressed(source(Coding::Zstd), Content::Memory(plain.clone()), len);
            let back = zstd::stream::decode_all(&*bytes(made.expect("compressed"))).expect("zstd");
            assert_eq!(back, plain);
        }
        assert!(press.compressed(source(Coding::Brotli), Content::Memory(plain), len).is_err());
    }

    #[test]
    fn the_same_state_is_compressed_once_while_somebody_holds_it() {
        let press = CompressionCache::default();
        let text = || Content::Memory(vec![b'a'; 10_000]);
        let made = |press: &CompressionCache, content| {
            bytes(press.compressed(source(Coding::Gzip), content, 10_000).expect("compressed"))
        };
        let one = made(&press, text());
        let two = made(&press, Content::Memory(b"not even looked at".to_vec()));
        assert!(Arc::ptr_eq(&one, &two));
        drop((one, two));
        let three = made(&press, Content::Memory(vec![b'b'; 10_000]));
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(&*three).read_to_end(&mut back).expect("gzip");
        assert_eq!(back, vec![b'b'; 10_000]);
    }

    #[test]
    fn threads_compress_one_state_once() {
        const THREADS: usize = 4;
        let press = CompressionCache::default();
        let start = Barrier::new(THREADS);
        let text = "Comet Encke has the shortest period of all. ".repeat(100_000).into_bytes();
        let compress = || {
            start.wait();
            let len = text.len() as u64;
            press.compressed(source(Coding::Gzip), Content::Memory(text.clone()), len).expect("compressed")
        };
        let all: Vec<CompressionOutcome> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(compress)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
        });
        let made: Vec<_> = all
            .iter()
            .filter_map(|one| if let CompressionOutcome::Made(made) = one { Some(made) } else { None })
            .collect();
        assert!(made.iter().all(|one| Arc::ptr_eq(one, made[0])), "compressed {} times", made.len());
        assert!(!all.iter().any(|one| matches!(one, CompressionOutcome::Futile)));
    }

    #[test]
    fn what_does_not_get_smaller_is_left_alone() {
        let mut state = 1u64;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        });
        let noise: Vec<u8> = noise.take(5_000).collect();
        let press = CompressionCache::default();
        let tried = press.compressed(source(Coding::Gzip), Content::Memory(noise), 5_000).expect("tried");
        assert!(matches!(tried, CompressionOutcome::Futile));
        // A compression without a result is no longer in progress.
        let text = Content::Memory(vec![b'a'; 5_000]);
        bytes(press.compressed(source(Coding::Gzip), text, 5_000).expect("compressed"));
    }
}
