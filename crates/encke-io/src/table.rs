//! Tables with an entry per connection, which only grow.

/// Size from which allocators map a block of its own: from 128 KiB on, in glibc and in musl. Such a block takes memory as it is
/// written, and moves without a copy as it grows. Below that size each growth leaves a hole in the heap: with 2,000 listeners of
/// a live stream the holes had half as many bytes as the tables.
const OWN_BLOCK_BYTES: usize = 144 * 1024;

/// Creates an empty table that takes a block of its own. Its memory is used only as it fills.
pub fn connection_table<T>() -> Vec<T> {
    Vec::with_capacity(OWN_BLOCK_BYTES.div_ceil(size_of::<T>().max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_size_of_a_block_of_its_own() {
        assert_eq!(connection_table::<[u8; 72]>().capacity(), 2_048);
        assert_eq!(connection_table::<u8>().capacity(), OWN_BLOCK_BYTES);
        assert!(connection_table::<()>().is_empty());
    }
}
