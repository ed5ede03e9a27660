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
    /// The part of the tag that identifies the state of the file.
    pub(super) opaque: Vec<u8>,
    pub(super) coding: Coding,
}

/// Compressed bytes that some worker still holds. Only threads of the pool take the lock.
#[derive(Default)]
pub(super) struct CompressionCache {
    made: Mutex<HashMap<CompressionKey, Weak<[u8]>>>,
}

impl CompressionCache {
    /// Returns the compressed bytes of `content`; `None` if they are not much fewer.
    ///
    /// # Errors
    /// The file cannot be read, or has changed.
    pub(super) fn compressed(
        &self,
        source: CompressionKey,
        content: Content,
        len: u64,
    ) -> Result<Option<Arc<[u8]>>, CompressionError> {
        let found = self.lock().get(&source).and_then(Weak::upgrade);
        if let Some(made) = found {
            return Ok(Some(made));
        }
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
        let made = ContentEncoder::encode_whole(source.coding, &plain)?;
        if made.len() + plain.len() / GAIN_PART >= plain.len() {
            return Ok(None);
        }
        let made: Arc<[u8]> = made.into();
        let mut all = self.lock();
        if all.len() >= all.capacity() {
            all.retain(|_, made| made.strong_count() > 0);
        }
        all.insert(source, Arc::downgrade(&made));
        Ok(Some(made))
    }

    /// A panic cannot leave the table inconsistent.
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<CompressionKey, Weak<[u8]>>> {
        lock(&self.made)
    }
}

/// Compression must save at least an eighth to be worth the client's work.
const GAIN_PART: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn source(coding: Coding) -> CompressionKey {
        CompressionKey { site: 0, opaque: b"1-2-3".to_vec(), coding }
    }

    #[test]
    fn what_is_compressed_can_be_read_back() {
        let plain = "Comet Encke has the shortest period of all. ".repeat(200).into_bytes();
        let press = CompressionCache::default();
        let len = plain.len() as u64;
        let made = press.compressed(source(Coding::Gzip), Content::Memory(plain.clone()), len);
        let made = made.expect("compressed").expect("smaller");
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(&*made).read_to_end(&mut back).expect("gzip");
        assert_eq!(back, plain);
        #[cfg(feature = "zstd")]
        {
            let made = press.compressed(source(Coding::Zstd), Content::Memory(plain.clone()), len);
            let back = zstd::stream::decode_all(&*made.expect("compressed").expect("smaller")).expect("zstd");
            assert_eq!(back, plain);
        }
        assert!(press.compressed(source(Coding::Brotli), Content::Memory(plain), len).is_err());
    }

    #[test]
    fn the_same_state_is_compressed_once_while_somebody_holds_it() {
        let press = CompressionCache::default();
        let text = || Content::Memory(vec![b'a'; 10_000]);
        let made = |press: &CompressionCache, content| {
            press.compressed(source(Coding::Gzip), content, 10_000).expect("compressed").expect("smaller")
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
    fn what_does_not_get_smaller_is_left_alone() {
        let mut state = 1u64;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        });
        let noise: Vec<u8> = noise.take(5_000).collect();
        let press = CompressionCache::default();
        assert!(
            press.compressed(source(Coding::Gzip), Content::Memory(noise), 5_000).expect("tried").is_none()
        );
    }
}
