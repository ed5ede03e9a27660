//! A table whose places are used again: insertion, removal and look-up cost O(1), and nothing moves.

/// Values at dense, stable indices. The indices of removed values are given out again, last first, so that a
/// table that has shrunk works in few cache lines.
#[derive(Debug)]
pub struct Slab<T> {
    places: Vec<Place<T>>,
    /// The most recently freed place, and through it all others.
    free: u32,
    len: usize,
}

#[derive(Debug)]
enum Place<T> {
    Used(T),
    Free { next: u32 },
}

const END: u32 = u32::MAX;

impl<T> Slab<T> {
    /// An empty table; allocates nothing.
    pub const fn new() -> Self {
        Self { places: Vec::new(), free: END, len: 0 }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a value into a free place and names it.
    pub fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if self.free == END {
            self.places.push(Place::Used(value));
            return (self.places.len() - 1) as u32;
        }
        let index = self.free;
        let place = &mut self.places[index as usize];
        if let Place::Free { next } = *place {
            self.free = next;
        }
        *place = Place::Used(value);
        index
    }

    /// The place that the next value will get.
    pub fn next_index(&self) -> u32 {
        if self.free == END { self.places.len() as u32 } else { self.free }
    }

    /// Takes a value out; its place may be given out again at once.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let place = self.places.get_mut(index as usize)?;
        match std::mem::replace(place, Place::Free { next: self.free }) {
            Place::Used(value) => {
                self.free = index;
                self.len -= 1;
                Some(value)
            }
            free @ Place::Free { .. } => {
                *place = free;
                None
            }
        }
    }

    /// The value at a place.
    pub fn get(&self, index: u32) -> Option<&T> {
        match self.places.get(index as usize)? {
            Place::Used(value) => Some(value),
            Place::Free { .. } => None,
        }
    }

    /// The value at a place, to be changed.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.places.get_mut(index as usize)? {
            Place::Used(value) => Some(value),
            Place::Free { .. } => None,
        }
    }

    /// Every value with its place.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places.iter().enumerate().filter_map(|(index, place)| match place {
            Place::Used(value) => Some((index as u32, value)),
            Place::Free { .. } => None,
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
