//! Timers as others keep them: a heap whose cancelled entries stay until they come up, a heap that can take an entry
//! out of its middle, and an ordered tree.
//!
//! All have the interface of [`Timers`], Encke's wheel included: one timer for each index, armed for a moment.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use encke_io::wheel::Wheel;

/// A set of timers.
pub(crate) trait Timers {
    /// Arms the timer of `index` for `deadline_ns`, in place of an earlier deadline of its.
    fn arm(&mut self, index: u32, deadline_ns: u64);

    /// Disarms the timer of `index`.
    fn cancel(&mut self, index: u32);

    /// Appends every timer that is due at `now_ns`, disarmed, to `due`.
    fn expire(&mut self, now_ns: u64, due: &mut Vec<u32>);

    /// Memory, in bytes: reckoned from what the collections say they hold.
    fn bytes(&self) -> usize;
}

/// A binary heap in which a cancelled or postponed entry stays until it is the least: as the report's server had it.
pub(crate) struct LazyHeap {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// What holds for each index; an entry of the heap that says otherwise is dead.
    deadlines: Vec<Option<u64>>,
}

impl LazyHeap {
    pub(crate) fn new(count: u32) -> Self {
        Self { heap: BinaryHeap::new(), deadlines: vec![None; count as usize] }
    }
}

impl Timers for LazyHeap {
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

/// A binary heap that knows where each entry is, and so can move and remove it.
pub(crate) struct IndexedHeap {
    heap: Vec<(u64, u32)>,
    /// By index: its place in the heap, or [`NOWHERE`].
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

    /// Moves the entry at `place` to where it belongs.
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

impl Timers for IndexedHeap {
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

/// An ordered tree: what a red-black tree is elsewhere, with eleven entries a node.
pub(crate) struct Tree {
    tree: BTreeSet<(u64, u32)>,
    deadlines: Vec<Option<u64>>,
}

impl Tree {
    pub(crate) fn new(count: u32) -> Self {
        Self { tree: BTreeSet::new(), deadlines: vec![None; count as usize] }
    }
}

impl Timers for Tree {
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

impl Timers for Wheel {
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
