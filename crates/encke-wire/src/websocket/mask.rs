//! Masking (RFC 6455 §5.3): every byte from a client is XORed with one of four key bytes in rotation. Masking twice restores
//! the data.

/// Masks or unmasks `bytes` in place. Returns the key for the bytes that follow, rotated by `bytes.len() % 4`. Handles eight
/// bytes at a time, which the compiler vectorises.
pub(super) fn apply(bytes: &mut [u8], key: [u8; 4]) -> [u8; 4] {
    let mut turned = key;
    turned.rotate_left(bytes.len() % 4);
    let [a, b, c, d] = key;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, tail) = bytes.as_chunks_mut();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

    #[test]
    fn the_example_of_the_rfc_is_unmasked() {
        let mut hello = [0x7f, 0x9f, 0x4d, 0x51, 0x58];
        assert_eq!(apply(&mut hello, KEY), [0xfa, 0x21, 0x3d, 0x37]);
        assert_eq!(&hello, b"Hello");
    }

    #[test]
    fn any_length_and_any_two_pieces_agree_with_byte_after_byte() {
        for length in 0..70 {
            let plain: Vec<u8> = (0..length).collect();
            let masked: Vec<u8> =
                plain.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
            for cut in 0..=plain.len() {
                let mut bytes = masked.clone();
                let (one, two) = bytes.split_at_mut(cut);
                let turned = apply(one, KEY);
                apply(two, turned);
                assert_eq!(bytes, plain, "{length} bytes cut at {cut}");
            }
        }
    }
}
