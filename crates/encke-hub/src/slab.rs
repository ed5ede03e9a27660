//! A table with stable indices. Freed entries are reused, the most recently freed one first.

use std::ops::{Index, IndexMut};

/// Values at stable indices. Indices come from this crate only, so indexing a free entry is a bug and panics.
#[derive(Debug)]
pub(crate) struct HubSlab<T> {
    places: Vec<HubSlabEntry<T>>,
    /// The most recently freed entry; the free entries form a linked list.
    free: u32,
    len: usize,
}

#[derive(Debug)]
pub(crate) enum HubSlabEntry<T> {
    Used(T),
    Free { next: u32 },
}

const END: u32 = u32::MAX;
/// Size from which glibc and musl map a block of its own (128 KiB), and some more.
const OWN_BLOCK_BYTES: usize = 144 * 1024;

impl<T> HubSlab<T> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: END, len: 0 }
    }

    /// Creates an empty table in a block of its own. Allocators map it for the table alone, so it takes memory as it fills, and its
    /// growth leaves no hole in the heap.
    pub(crate) fn in_own_block() -> Self {
        let room = OWN_BLOCK_BYTES / size_of::<HubSlabEntry<T>>().max(1);
        Self { places: Vec::with_capacity(room), ..Self::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if self.free == END {
            self.places.push(HubSlabEntry::Used(value));
            return u32::try_from(self.places.len() - 1).expect("a table has fewer places than 2^32");
        }
        let at = self.free;
        let place = &mut self.places[at as usize];
        let HubSlabEntry::Free { next } = *place else { unreachable!("the free list holds free places") };
        self.free = next;
        *place = HubSlabEntry::Used(value);
        at
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<T> {
        let place = self.places.get_mut(at as usize)?;
        match std::mem::replace(place, HubSlabEntry::Free { next: self.free }) {
            HubSlabEntry::Used(value) => {
                self.free = at;
                self.len -= 1;
                Some(value)
            }
            free @ HubSlabEntry::Free { .. } => {
                *place = free;
                None
            }
        }
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        match self.places.get(at as usize)? {
            HubSlabEntry::Used(value) => Some(value),
            HubSlabEntry::Free { .. } => None,
        }
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        match self.places.get_mut(at as usize)? {
            HubSlabEntry::Used(value) => Some(value),
            HubSlabEntry::Free { .. } => None,
        }
    }

    /// Returns the number of entries, used or free.
    pub(crate) fn places(&self) -> u32 {
        self.places.len() as u32
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places.iter().enumerate().filter_map(|(at, place)| match place {
            HubSlabEntry::Used(value) => Some((at as u32, value)),
            HubSlabEntry::Free { .. } => None,
        })
    }
}

impl<T> Index<u32> for HubSlab<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        self.get(at).expect("only places in use are named")
    }
}

impl<T> IndexMut<u32> for HubSlab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        self.get_mut(at).expect("only places in use are named")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_values_stay_where_they_are() {
        let mut slab = HubSlab::new();
        let at: Vec<u32> = (0..4).map(|value| slab.insert(value)).collect();
        assert_eq!((slab.remove(at[1]), slab.remove(at[2])), (Some(1), Some(2)));
        assert_eq!((slab.remove(at[2]), slab.get(at[1]), slab.get(99)), (None, None, None));
        assert_eq!((slab.insert(20), slab.insert(10), slab.insert(40)), (at[2], at[1], 4));
        assert_eq!(slab.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [0, 10, 20, 3, 40]);
        assert_eq!((slab.len(), slab.places(), slab[at[3]]), (5, 5, 3));
    }
}
