//! A table that reuses freed slots. Insertion, removal and lookup cost O(1), and values never move.

/// Values at dense, stable indices. Freed indices are reused in last-in, first-out order, so a table that has shrunk touches
/// few cache lines.
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<SlabEntry<T>>,
    /// The most recently freed slot, which links to all other free slots.
    free: u32,
    len: usize,
}

#[derive(Debug)]
enum SlabEntry<T> {
    Used(T),
    Free { next: u32 },
}

const END: u32 = u32::MAX;

impl<T> Slab<T> {
    /// Creates an empty table without allocating.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), free: END, len: 0 }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the table holds no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stores a value in a free slot and returns its index.
    ///
    /// ```
    /// use encke_io::slab::Slab;
    ///
    /// let mut slab = Slab::new();
    /// let (one, two) = (slab.insert("one"), slab.insert("two"));
    /// assert_eq!(slab.remove(one), Some("one"));
    /// assert_eq!(slab.insert("three"), one, "the index is reused");
    /// assert_eq!(slab.get(two), Some(&"two"));
    /// ```
    pub fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if self.free == END {
            self.entries.push(SlabEntry::Used(value));
            return (self.entries.len() - 1) as u32;
        }
        let index = self.free;
        let place = &mut self.entries[index as usize];
        if let SlabEntry::Free { next } = *place {
            self.free = next;
        }
        *place = SlabEntry::Used(value);
        index
    }

    /// The index that the next insertion returns.
    pub fn next_index(&self) -> u32 {
        if self.free == END { self.entries.len() as u32 } else { self.free }
    }

    /// Removes and returns a value. Its slot may be reused at once.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let place = self.entries.get_mut(index as usize)?;
        match std::mem::replace(place, SlabEntry::Free { next: self.free }) {
            SlabEntry::Used(value) => {
                self.free = index;
                self.len -= 1;
                Some(value)
            }
            free @ SlabEntry::Free { .. } => {
                *place = free;
                None
            }
        }
    }

    /// The value at an index.
    pub fn get(&self, index: u32) -> Option<&T> {
        match self.entries.get(index as usize)? {
            SlabEntry::Used(value) => Some(value),
            SlabEntry::Free { .. } => None,
        }
    }

    /// Mutable access to the value at an index.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.entries.get_mut(index as usize)? {
            SlabEntry::Used(value) => Some(value),
            SlabEntry::Free { .. } => None,
        }
    }

    /// Iterates over all values with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, place)| match place {
            SlabEntry::Used(value) => Some((index as u32, value)),
            SlabEntry::Free { .. } => None,
        })
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_values_stay_where_they_are() {
        let mut slab = Slab::new();
        let indices: Vec<u32> = (0..5).map(|value| slab.insert(value)).collect();
        assert_eq!(slab.remove(indices[1]), Some(1));
        assert_eq!(slab.remove(indices[3]), Some(3));
        assert_eq!(slab.remove(indices[3]), None);
        assert_eq!(slab.get(indices[4]), Some(&4));
        assert_eq!(slab.next_index(), indices[3]);
        assert_eq!(slab.insert(30), indices[3]);
        assert_eq!(slab.insert(10), indices[1]);
        assert_eq!(slab.next_index(), 5);
        assert_eq!(slab.insert(50), 5);
        assert_eq!(slab.len(), 6);
        assert_eq!(slab.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [0, 10, 2, 30, 4, 50]);
        assert_eq!(slab.get(99), None);
        assert_eq!(slab.remove(99), None);
    }
}
