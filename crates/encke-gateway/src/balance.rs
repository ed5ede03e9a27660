//! The choice of a target for a request.
//!
//! ```text
//!  candidates: not tried, of the best rank: 0 good, 1 backup, 2 ejected or failing; never drained
//!    the target of the cookie, else of the hash ─► this one, or the request waits for it
//!    else, among those with a free permit:  two ─► the less loaded of two drawn by weight   round_robin ─► in turn
//!                                           least ─► the least loaded                       rank 2 ─► the first to return
//!    none has a free permit ─► the request waits: neither a backup nor an ejected target replaces a busy one
//! ```
//! Load is the number of requests in progress, divided by the weight. Draws depend on a counter only: no generator is shared, and
//! a simulation repeats them.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;

use crate::affinity::{TargetWish, mix};
use crate::balance_settings::Balance;
use crate::target::{TargetSet, UpstreamTarget};
use crate::target_state::{TargetUsage, WHOLE_SHARE};

/// The target for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetChoice {
    Free(usize),
    /// All targets that the request may go to are busy.
    Busy,
    /// The request has tried all targets, or the others get no requests.
    None,
}

impl TargetChoice {
    /// The target, if there is one.
    pub(crate) fn free(self) -> Option<usize> {
        if let Self::Free(target) = self { Some(target) } else { None }
    }
}

/// The progress of a target with weight 1 by one request, for [`TargetSet::in_turn`].
const STRIDE: u64 = 1 << 32;
/// No target is further ahead than this: one request at the lowest share.
const AHEAD_MAX: u64 = STRIDE * 10;
/// 2³² divided by the golden ratio: multiples of it, modulo 2³², spread evenly (Knuth, The Art of Computer Programming, §6.4).
const SPREAD: u32 = 0x9e37_79b9;

/// The rank of ejected and failing targets.
const LAST_RANK: u8 = 2;

impl TargetSet {
    /// Chooses the target of a request among those for which `free` holds.
    pub(crate) fn choose(
        &self,
        wish: &TargetWish,
        now_ns: u64,
        free: impl Fn(usize) -> bool,
    ) -> TargetChoice {
        if let [only] = self.targets.as_slice() {
            return if wish.has_tried(0) || only.usage(now_ns) == TargetUsage::None {
                TargetChoice::None
            } else if free(0) {
                TargetChoice::Free(0)
            } else {
                TargetChoice::Busy
            };
        }
        let Some((rank, candidates)) = self.candidates(wish, now_ns) else { return TargetChoice::None };
        if let Some(home) = self.home(wish, candidates) {
            return if free(home) { TargetChoice::Free(home) } else { TargetChoice::Busy };
        }
        let open =
            places(candidates).filter(|place| free(*place)).fold(0_u64, |mask, place| mask | 1 << place);
        let chosen = match &self.balance {
            _ if open == 0 => None,
            _ if rank == LAST_RANK => self.first_to_return(open, now_ns),
            Balance::Least => self.least_loaded(open, now_ns),
            Balance::RoundRobin => self.in_turn(open, now_ns),
            // With two targets both are compared.
            Balance::Two | Balance::Hash(_) if open.count_ones() <= 2 => self.least_loaded(open, now_ns),
            Balance::Two | Balance::Hash(_) => self.less_loaded_of_two(open, now_ns),
        };
        chosen.map_or(TargetChoice::Busy, TargetChoice::Free)
    }

    /// Whether [`TargetSet::choose`] may choose a target, if it is free.
    pub(crate) fn is_choice(&self, wish: &TargetWish, target: usize, now_ns: u64) -> bool {
        self.choices(wish, now_ns) & 1 << target != 0
    }

    /// The targets that [`TargetSet::choose`] may choose, if they are free, as a bit mask.
    pub(crate) fn choices(&self, wish: &TargetWish, now_ns: u64) -> u64 {
        let Some((_, candidates)) = self.candidates(wish, now_ns) else { return 0 };
        self.home(wish, candidates).map_or(candidates, |home| 1 << home)
    }

    /// The targets of the best rank that a request may go to, as a bit mask, and this rank.
    fn candidates(&self, wish: &TargetWish, now_ns: u64) -> Option<(u8, u64)> {
        let mut best = (u8::MAX, 0);
        for (place, target) in self.targets.iter().enumerate().filter(|(place, _)| !wish.has_tried(*place)) {
            let rank = match target.usage(now_ns) {
                TargetUsage::Normal => u8::from(target.is_backup),
                TargetUsage::Last => LAST_RANK,
                TargetUsage::None => continue,
            };
            if rank < best.0 {
                best = (rank, 0);
            }
            if rank == best.0 {
                best.1 |= 1 << place;
            }
        }
        (best.1 != 0).then_some(best)
    }

    /// The only candidate for a request with a cookie or a hash. Rendezvous hashing (Thaler, Ravishankar 1998) with weights: if a
    /// target is left out, only its requests go elsewhere, and they return with it.
    fn home(&self, wish: &TargetWish, candidates: u64) -> Option<usize> {
        if let Some(sticky) = wish.sticky.filter(|sticky| candidates & 1 << sticky != 0) {
            return Some(sticky.into());
        }
        let key = wish.key?;
        let distance = |place: usize| {
            let target = self.targets.get(place)?;
            // A number from 0 to 1, of which f64 holds 53 bits. Its logarithm makes the first of several exponential waits.
            let draw = ((mix(key ^ target.digest()) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            Some(-draw.ln() / f64::from(target.weight))
        };
        let distances = places(candidates).filter_map(|place| Some((place, distance(place)?)));
        distances.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(place, _)| place)
    }

    /// The ejected target that returns first. One whose checks fail returns at an unknown time.
    fn first_to_return(&self, open: u64, now_ns: u64) -> Option<usize> {
        self.in_mask(open)
            .min_by_key(|(_, target)| {
                (target.state.ejected_ns(now_ns), target.is_backup, target.load(now_ns))
            })
            .map(|(place, _)| place)
    }

    /// The least loaded target. Equal ones take turns by their weights.
    fn least_loaded(&self, open: u64, now_ns: u64) -> Option<usize> {
        // A backup has no turns of its own.
        let share = |target: &UpstreamTarget| if target.is_backup { 0 } else { target.weight(now_ns) };
        let total: u64 = self.targets.iter().map(share).sum();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let is_whole = self.targets.iter().all(|target| target.state.share(now_ns) == WHOLE_SHARE);
        let mut turn = if is_whole {
            u64::from(number) * WHOLE_SHARE % total.max(1)
        } else {
            // Shares of a slow start are fractions: turns in sequence would go to one target many times in a row.
            scaled(number.wrapping_mul(SPREAD), total)
        };
        let first = self.targets.iter().position(|target| {
            let is_first = turn < share(target);
            turn = turn.saturating_sub(share(target));
            is_first
        });
        let first = first.unwrap_or(0) as u32;
        // The bits from `first` on, then the others.
        let (high, low) = (open >> first << first, open & !(u64::MAX << first));
        let order = self.in_mask(high).chain(self.in_mask(low));
        order.min_by_key(|(_, target)| target.load(now_ns)).map(|(place, _)| place)
    }

    /// The less loaded of two targets that are drawn by weight: nearly as even as the least loaded of all, and workers that choose
    /// at the same time do not all choose the same one (Mitzenmacher, The Power of Two Choices, 2001).
    fn less_loaded_of_two(&self, open: u64, now_ns: u64) -> Option<usize> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let random = mix(u64::from(number) ^ u64::from(SPREAD) << 32);
        let one = self.draw(open, random as u32, now_ns)?;
        let other = self.draw(open & !(1 << one), (random >> 32) as u32, now_ns).unwrap_or(one);
        let load = |place: usize| self.targets.get(place).map(|target| target.load(now_ns));
        Some(if load(other) < load(one) { other } else { one })
    }

    /// Draws a target by weight. `random` is any number.
    fn draw(&self, open: u64, random: u32, now_ns: u64) -> Option<usize> {
        let total: u64 = self.in_mask(open).map(|(_, target)| target.weight(now_ns)).sum();
        let mut left = scaled(random, total);
        let mut drawn = None;
        for (place, target) in self.in_mask(open) {
            drawn = Some(place);
            let weight = target.weight(now_ns);
            if left < weight {
                break;
            }
            left -= weight;
        }
        drawn
    }

    /// The next target in turn, smoothly by weight: each request moves its target forward by a step, the shorter the higher the
    /// weight, and the rearmost target is next. Progress is modulo 2⁶⁴. A target that returns begins where the last one was, so it
    /// has no requests to catch up on.
    fn in_turn(&self, open: u64, now_ns: u64) -> Option<usize> {
        // Two workers may move the same target at once: then one of them chooses again.
        for _ in 0..4 {
            let base = self.progress.load(Ordering::Relaxed);
            let ahead = |target: &UpstreamTarget| {
                let ahead = target.progress.load(Ordering::Relaxed).wrapping_sub(base);
                if ahead <= AHEAD_MAX { ahead } else { 0 }
            };
            let rearmost = self
                .in_mask(open)
                .map(|(place, target)| (place, target, target.progress.load(Ordering::Relaxed)))
                .min_by_key(|(place, target, _)| (ahead(target), Reverse(target.weight), *place));
            let (place, target, progress) = rearmost?;
            let begin = base.wrapping_add(ahead(target));
            let end = begin.wrapping_add(STRIDE * WHOLE_SHARE / target.weight(now_ns).max(1));
            let moved = target.progress.compare_exchange(progress, end, Ordering::Relaxed, Ordering::Relaxed);
            if moved.is_ok() {
                self.progress.store(begin, Ordering::Relaxed);
                return Some(place);
            }
        }
        self.least_loaded(open, now_ns)
    }

    fn in_mask(&self, mask: u64) -> impl Iterator<Item = (usize, &UpstreamTarget)> {
        places(mask).filter_map(|place| Some((place, self.targets.get(place)?)))
    }
}

impl UpstreamTarget {
    /// The weight in thousandths, with regard to a slow start.
    fn weight(&self, now_ns: u64) -> u64 {
        u64::from(self.weight) * self.state.share(now_ns)
    }

    /// Requests in progress for the weight. Only the order of two loads means anything.
    fn load(&self, now_ns: u64) -> u64 {
        (u64::from(self.busy()) << 32) / self.weight(now_ns).max(1)
    }
}

/// Maps a 32-bit number to 0 up to `total`, the sum of weights in thousandths: 64 × 65,535 × 1,000 is less than 2³².
const fn scaled(number: u32, total: u64) -> u64 {
    (number as u64).wrapping_mul(total) >> 32
}

/// The places of the bits of a mask, in order.
fn places(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(place)
    })
}

#[cfg(test)]
mod tests;
