//! Cells that one thread writes and any thread reads.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A number that only grows: requests, bytes, closes.
///
/// One thread writes it. A second writer would not corrupt anything, but additions would be lost.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Creates a counter of zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds one.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`.
    ///
    /// ```
    /// use encke_stats::Counter;
    ///
    /// let requests = Counter::new();
    /// requests.increment();
    /// requests.add(2);
    /// assert_eq!(requests.value(), 3);
    /// ```
    #[inline]
    pub fn add(&self, count: u64) {
        // Not `fetch_add`: one writer needs no atomic addition, and a locked add costs some 20 cycles.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Replaces the value by one counted elsewhere, such as in the kernel.
    #[inline]
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Returns a recent value.
    #[inline]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down: currently open connections. One thread writes it.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Creates a gauge of zero.
    pub const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    /// Adds `change`, which may be negative.
    #[inline]
    pub fn add(&self, change: i64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(change), Ordering::Relaxed);
    }

    /// Adds one.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Subtracts one.
    #[inline]
    pub fn decrement(&self) {
        self.add(-1);
    }

    /// Replaces the value.
    #[inline]
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns a recent value.
    #[inline]
    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_adds_up() {
        let counter = Counter::new();
        counter.increment();
        counter.add(41);
        assert_eq!(counter.value(), 42);
        counter.set(7);
        assert_eq!(counter.value(), 7);
    }

    #[test]
    fn a_gauge_goes_both_ways() {
        let gauge = Gauge::new();
        gauge.increment();
        gauge.add(-3);
        assert_eq!(gauge.value(), -2);
        gauge.set(5);
        gauge.decrement();
        assert_eq!(gauge.value(), 4);
    }

    #[test]
    fn another_thread_reads_what_the_writer_wrote_before_it_ended() {
        let counter = Counter::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..10_000).for_each(|_| counter.increment()));
        });
        assert_eq!(counter.value(), 10_000);
    }
}
