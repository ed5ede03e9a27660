//! Timers of other programs. In one heap cancelled entries stay until they reach the top; another one can remove an entry from
//! its middle. The third structure is an ordered tree.
//!
//! All implement [`TimerSet`], as Encke's wheel does: one timer per index, armed for a moment.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use encke_io::wheel::Wheel;

/// A set of timers.
pub(crate) trait TimerSet {
    /// Arms the timer of `index` for `deadline_ns`, which replaces an earlier deadline.
    fn arm(&mut self, index: u32, deadline_ns: u64);

    /// Disarms the timer of `index`.
    fn cancel(&mut self, index: u32);

    /// Disarms all timers that are due at `now_ns`, and appends their indices to `due`.
    fn expire(&mut self, now_ns: u64, due: &mut Vec<u32>);

    /// Memory in bytes, computed from the collections' capacities.
    fn bytes(&self) -> usize;
}

/// A binary heap that keeps a cancelled or postponed entry until it is the smallest, as the server of
/// report 004 did, which the experiment `timers` examines.
pub(crate) struct LazyHeap {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// The valid deadline of each index; heap entries with another one are dead.
    deadlines: Vec<Option<u64>>,
}

impl LazyHeap {
    pub(crate) fn new(count: u32) -> Self {
        Self { heap: BinaryHeap::new(), deadlines: vec![None; count as usize] }
    }
}

impl TimerSet for LazyHeap {
    fn arm(&mut self, index: u32, deadline_ns: u64) {
        self.deadlines[index as usize] = Some(deadline_ns);
        self.heap.push(Reverse((deadline_ns, index)));
    }

    fn cancel(&mut self, index: u32) {
        self.deadlines[index as usize] = None;
    }

    fn expire(&mut self, now_ns: u64, due: &mut Vec<u32>) {
        while let Some(&Reverse((deadline, index))) = self.heap.peek() {
            let lives = self.deadlines[index as usize] == Some(deadline);
            if lives && deadline > now_ns {
                return;
            }
            self.heap.pop();
            if lives {
                self.deadlines[index as usize] = None;
                due.push(index);
            }
        }
    }

    fn bytes(&self) -> usize {
        self.heap.capacity() * size_of::<(u64, u32)>() + self.deadlines.capacity() * size_of::<Option<u64>>()
    }
}

/// A binary heap that knows the position of each entry, and so can move and remove it.
pub(crate) struct IndexedHeap {
    heap: Vec<(u64, u32)>,
    /// By index: the position in the heap, or [`NOWHERE`].
    places: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl IndexedHeap {
    pub(crate) fn new(count: u32) -> Self {
        Self { heap: Vec::new(), places: vec![NOWHERE; count as usize] }
    }

    fn put(&mut self, place: usize, entry: (u64, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }

    /// Moves the entry at `place` to its correct position.
    fn settle(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 && self.heap[(place - 1) / 2] > entry {
            self.put(place, self.heap[(place - 1) / 2]);
            place = (place - 1) / 2;
        }
        loop {
            let mut child = 2 * place + 1;
            if child + 1 < self.heap.len() && self.heap[child + 1] < self.heap[child] {
                child += 1;
            }
            if child >= self.heap.len() || self.heap[child] > entry {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, entry);
    }
}

impl TimerSet for IndexedHeap {
    fn arm(&mut self, index: u32, deadline_ns: u64) {
        let place = self.places[index as usize];
        if place == NOWHERE {
            self.heap.push((deadline_ns, index));
            self.settle(self.heap.len() - 1);
        } else {
            self.heap[place as usize].0 = deadline_ns;
            self.settle(place as usize);
        }
    }

    fn cancel(&mut self, index: u32) {
        let place = std::mem::replace(&mut self.places[index as usize], NOWHERE);
        if place == NOWHERE {
            return;
        }
        let last = self.heap.pop().expect("who has a place is in the heap");
        if last.1 != index {
            self.heap[place as usize] = last;
            self.settle(place as usize);
        }
    }

    fn expire(&mut self, now_ns: u64, due: &mut Vec<u32>) {
        while let Some(&(deadline, index)) = self.heap.first() {
            if deadline > now_ns {
                return;
            }
            self.cancel(index);
            due.push(index);
        }
    }

    fn bytes(&self) -> usize {
        self.heap.capacity() * size_of::<(u64, u32)>() + self.places.capacity() * size_of::<u32>()
    }
}

/// An ordered tree, with up to eleven entries per node; other programs use a red-black tree.
pub(crate) struct TimerTree {
    tree: BTreeSet<(u64, u32)>,
    deadlines: Vec<Option<u64>>,
}

impl TimerTree {
    pub(crate) fn new(count: u32) -> Self {
        Self { tree: BTreeSet::new(), deadlines: vec![None; count as usize] }
    }
}

impl TimerSet for TimerTree {
    fn arm(&mut self, index: u32, deadline_ns: u64) {
        self.cancel(index);
        self.deadlines[index as usize] = Some(deadline_ns);
        self.tree.insert((deadline_ns, index));
    }

    fn cancel(&mut self, index: u32) {
        if let Some(deadline) = self.deadlines[index as usize].take() {
            self.tree.remove(&(deadline, index));
        }
    }

    fn expire(&mut self, now_ns: u64, due: &mut Vec<u32>) {
        while let Some(&(deadline, index)) = self.tree.first() {
            if deadline > now_ns {
                return;
            }
            self.tree.pop_first();
            self.deadlines[index as usize] = None;
            due.push(index);
        }
    }

    /// Nodes have room for eleven entries and are two thirds full after random inserts (Yao 1978: ln 2).
    fn bytes(&self) -> usize {
        self.tree.len() * size_of::<(u64, u32)>() * 3 / 2
            + self.deadlines.capacity() * size_of::<Option<u64>>()
    }
}

impl TimerSet for Wheel {
    fn arm(&mut self, index: u32, deadline_ns: u64) {
        Self::arm(self, index, deadline_ns);
    }

    fn cancel(&mut self, index: u32) {
        Self::cancel(self, index);
    }

    fn expire(&mut self, now_ns: u64, due: &mut Vec<u32>) {
        Self::expire(self, now_ns, due);
    }

    fn bytes(&self) -> usize {
        Self::bytes(self)
    }
}
