//! A queue that several clients share: each has a line of its own, and the lines are served in turn.
//!
//! ```text
//!  push(client, item) ─► line of the client (at most LINE_MAX) ─┐
//!                        line of another client ────────────────┼─► pop: the first of the next line
//!                        …                                      ┘
//! ```
//! A client with many items delays another one by a single item. While the queue is full, a client that has less than the longest
//! line takes the place of the newest item there, so that one client cannot take all places.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The items that wait, by client.
#[derive(Debug)]
pub struct Turns<C, T> {
    lines: HashMap<C, VecDeque<T>>,
    /// The clients that have items, the next one first.
    order: VecDeque<C>,
    count: usize,
    count_max: usize,
    line_max: usize,
}

impl<C: Clone + Eq + Hash, T> Turns<C, T> {
    /// Creates a queue of at most `count_max` items, and `line_max` of one client.
    pub fn new(count_max: usize, line_max: usize) -> Self {
        Self { lines: HashMap::new(), order: VecDeque::new(), count: 0, count_max, line_max }
    }

    /// Whether no item waits.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether [`push`](Self::push) takes an item of this client.
    pub fn has_room(&self, client: &C) -> bool {
        let own = self.len_of(client);
        own < self.line_max
            && (self.count < self.count_max || own + 1 < self.longest().map_or(0, |(_, len)| len))
    }

    /// Adds an item at the end of its client's line. Returns the item that lost its place, with its client.
    ///
    /// # Errors
    /// There is no room: the item.
    pub fn push(&mut self, client: C, item: T) -> Result<Option<(C, T)>, T> {
        if !self.has_room(&client) {
            return Err(item);
        }
        let longest =
            (self.count >= self.count_max).then(|| self.longest().map(|(client, _)| client.clone()));
        let evicted = longest.flatten().and_then(|longest| {
            let item = self.lines.get_mut(&longest)?.pop_back()?;
            self.count -= 1;
            Some((longest, item))
        });
        if !self.lines.contains_key(&client) {
            self.order.push_back(client.clone());
        }
        self.lines.entry(client).or_default().push_back(item);
        self.count += 1;
        Ok(evicted)
    }

    /// Takes the next item.
    pub fn pop(&mut self) -> Option<T> {
        let client = self.order.pop_front()?;
        let line = self.lines.get_mut(&client)?;
        let item = line.pop_front();
        self.count -= usize::from(item.is_some());
        if line.is_empty() {
            self.lines.remove(&client);
        } else {
            self.order.push_back(client);
        }
        item
    }

    /// Whether an item is in the line of a client.
    pub fn contains(&self, client: &C, item: &T) -> bool
    where
        T: PartialEq,
    {
        self.lines.get(client).is_some_and(|line| line.contains(item))
    }

    /// Keeps only the items that match.
    pub fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.lines.retain(|_, line| {
            line.retain(&mut keeps);
            !line.is_empty()
        });
        self.order.retain(|client| self.lines.contains_key(client));
        self.count = self.lines.values().map(VecDeque::len).sum();
    }

    fn len_of(&self, client: &C) -> usize {
        self.lines.get(client).map_or(0, VecDeque::len)
    }

    /// The longest line. Searched only while the queue is full.
    fn longest(&self) -> Option<(&C, usize)> {
        self.lines.iter().map(|(client, line)| (client, line.len())).max_by_key(|(_, len)| *len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn popped(turns: &mut Turns<char, u32>) -> Vec<u32> {
        std::iter::from_fn(|| turns.pop()).collect()
    }

    #[test]
    fn clients_are_served_in_turn_and_each_in_its_order() {
        let mut turns = Turns::new(100, 100);
        for item in 0..4 {
            assert_eq!(turns.push('a', item), Ok(None));
        }
        assert_eq!(turns.pop(), Some(0));
        for (client, item) in [('b', 10), ('b', 11), ('c', 20)] {
            assert_eq!(turns.push(client, item), Ok(None));
        }
        assert_eq!(popped(&mut turns), [1, 10, 20, 2, 11, 3]);
        assert!(turns.is_empty() && turns.lines.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn a_line_has_a_limit() {
        let mut turns = Turns::new(100, 2);
        assert_eq!(
            (turns.push('a', 0), turns.push('a', 1), turns.push('a', 2)),
            (Ok(None), Ok(None), Err(2))
        );
        assert!(!turns.has_room(&'a') && turns.has_room(&'b'));
    }

    #[test]
    fn a_full_queue_takes_a_place_of_the_longest_line() {
        let mut turns = Turns::new(3, 3);
        for item in 0..3 {
            assert_eq!(turns.push('a', item), Ok(None));
        }
        assert_eq!(turns.push('b', 10), Ok(Some(('a', 2))));
        assert_eq!(turns.push('b', 11), Err(11), "the lines would only swap their lengths");
        assert_eq!(turns.push('c', 20), Ok(Some(('a', 1))));
        assert_eq!(turns.push('d', 30), Err(30), "all lines are short");
        assert_eq!(popped(&mut turns), [0, 10, 20]);
    }

    #[test]
    fn removed_items_leave_no_line() {
        let mut turns = Turns::new(100, 100);
        for (client, item) in [('a', 0), ('b', 1), ('b', 2), ('c', 1)] {
            assert_eq!(turns.push(client, item), Ok(None));
        }
        assert!(turns.contains(&'b', &2) && !turns.contains(&'a', &2));
        turns.retain(|item| *item != 1 && *item != 0);
        assert_eq!((turns.lines.len(), turns.count), (1, 1));
        assert_eq!(popped(&mut turns), [2]);
    }
}
