//! Decompression of gzip (RFC 1952), for clients that accept no coding.

use std::io::Read as _;

use flate2::read::GzDecoder;

/// Decompresses one gzip member of at most `bytes_max` bytes. `None` if it is malformed, or larger.
///
/// ```
/// assert_eq!(encke_wire::gunzip::gunzip(b"no gzip", 100), None);
/// ```
pub fn gunzip(compressed: &[u8], bytes_max: u64) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let mut decoder = GzDecoder::new(compressed).take(bytes_max.saturating_add(1));
    decoder.read_to_end(&mut plain).ok()?;
    (plain.len() as u64 <= bytes_max).then_some(plain)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn a_member_is_decompressed_up_to_its_limit() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&[b'a'; 1000]).expect("memory takes everything");
        let compressed = encoder.finish().expect("memory takes everything");
        assert_eq!(gunzip(&compressed, 1000).as_deref(), Some(&[b'a'; 1000][..]));
        assert_eq!(gunzip(&compressed, 999), None);
        for length in 0..compressed.len() {
            assert_eq!(gunzip(&compressed[..length], 1000), None, "{length} bytes");
        }
    }
}
