//! The table of a reactor's sources. A lookup by token costs O(1), and a stale token finds nothing.
//!
//! ```text
//!           insert                outdate                  remove                  release
//! FREE ───────────────► IN USE ──────────────► LEAVING ──────────────► EMPTY ──────────────► FREE
//!                     token valid          token is stale          `Closed` under way
//! ```
//!
//! A source leaves in steps, because its index must stay unused until nothing can refer to it. The kernel may still hold
//! operations for it (LEAVING), or its end may not have been reported to the worker yet (EMPTY).

use crate::op::Token;
use crate::table::connection_table;

/// The sources of one reactor, by token.
#[derive(Debug)]
pub(crate) struct Places<T> {
    rows: Vec<PlacesRow<T>>,
    /// The most recently released row, which links to all other free rows.
    free: u32,
    used: usize,
}

/// One slot. A row costs its source plus four bytes, if the source has a niche (an enum, a descriptor).
#[derive(Debug)]
pub(crate) struct PlacesRow<T> {
    generation: u32,
    state: RowState<T>,
}

#[derive(Debug)]
enum RowState<T> {
    Used(T),
    Empty { next: u32 },
}

const END: u32 = u32::MAX;

impl<T> Places<T> {
    pub(crate) fn new() -> Self {
        Self { rows: connection_table(), free: END, used: 0 }
    }

    /// Number of sources, including sources that are being closed.
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Number of slots, used or not.
    pub(crate) fn rows(&self) -> u32 {
        self.rows.len() as u32
    }

    pub(crate) fn insert(&mut self, source: T) -> Token {
        self.used += 1;
        if self.free == END {
            self.rows.push(PlacesRow { generation: 0, state: RowState::Used(source) });
            return Token { index: (self.rows.len() - 1) as u32, generation: 0 };
        }
        let index = self.free;
        let row = &mut self.rows[index as usize];
        if let RowState::Empty { next } = row.state {
            self.free = next;
        }
        row.state = RowState::Used(source);
        Token { index, generation: row.generation }
    }

    /// The source of a token, unless the token is stale.
    pub(crate) fn get(&self, token: Token) -> Option<&T> {
        match self.rows.get(token.index as usize)? {
            PlacesRow { generation, state: RowState::Used(source) } if *generation == token.generation => {
                Some(source)
            }
            _ => None,
        }
    }

    /// Mutable access to the source of a token, unless the token is stale.
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        match self.rows.get_mut(token.index as usize)? {
            PlacesRow { generation, state: RowState::Used(source) } if *generation == token.generation => {
                Some(source)
            }
            _ => None,
        }
    }

    /// The source in a slot, even if it is leaving.
    #[allow(dead_code, reason = "io_uring alone uses it, and not every system has it")]
    pub(crate) fn at(&mut self, index: u32) -> Option<&mut T> {
        match &mut self.rows.get_mut(index as usize)?.state {
            RowState::Used(source) => Some(source),
            RowState::Empty { .. } => None,
        }
    }

    /// The token that is currently valid for a slot.
    pub(crate) fn token(&self, index: u32) -> Token {
        Token { index, generation: self.rows[index as usize].generation }
    }

    /// Makes the slot's token stale. The source stays until it is removed.
    pub(crate) fn outdate(&mut self, index: u32) {
        let row = &mut self.rows[index as usize];
        row.generation = row.generation.wrapping_add(1);
    }

    /// Removes and returns the source. The slot stays unused until it is released.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let row = &mut self.rows[index as usize];
        match std::mem::replace(&mut row.state, RowState::Empty { next: END }) {
            RowState::Used(source) => {
                self.used -= 1;
                source
            }
            RowState::Empty { .. } => unreachable!("a source leaves once"),
        }
    }

    /// Makes an empty slot available again.
    pub(crate) fn release(&mut self, index: u32) {
        let row = &mut self.rows[index as usize];
        debug_assert!(matches!(row.state, RowState::Empty { .. }), "released with its source inside");
        row.state = RowState::Empty { next: self.free };
        self.free = index;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_out_again_only_after_its_release() {
        let mut places = Places::new();
        let first = places.insert('a');
        let second = places.insert('b');
        places.outdate(first.index);
        assert_eq!(places.get(first), None);
        assert_eq!(places.at(first.index), Some(&mut 'a'));
        assert_eq!(places.insert('c').index, 2, "the first is leaving");
        assert_eq!(places.remove(first.index), 'a');
        assert_eq!(places.at(first.index), None);
        assert_eq!(places.insert('d').index, 3, "the first is resting");
        places.release(first.index);
        let again = places.insert('e');
        assert_eq!(again, Token { index: first.index, generation: first.generation + 1 });
        assert_eq!(
            (places.get(first), places.get(again), places.get(second)),
            (None, Some(&'e'), Some(&'b'))
        );
        assert_eq!((places.len(), places.token(again.index)), (4, again));
        assert_eq!(places.get(Token { index: 99, generation: 0 }), None);
    }
}
