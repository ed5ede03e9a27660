//! Limits shared by the HTTP/2 connections of all workers: open streams, and bytes of responses that were read but not sent.
//!
//! ```text
//! Budget (all workers'): max, used ◄── Account (a connection's): used ◄── Charge (one thing held; returned when dropped)
//! ```
//! **A connection may hold an eighth of the free budget**, a dynamic threshold (Choudhury and Hahne, "Dynamic queue length
//! thresholds for shared-memory packet switches", 1998). `k` greedy connections therefore leave `1 / (1 + k/8)` of the budget
//! free: a few connections use it well, and thousands cannot exhaust it. A connection that holds nothing may always take the
//! least amount. At its limit a connection waits for the release of a charge of its own, never for that of another connection.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A connection may hold one part in `SHARE` of the free budget.
const SHARE: usize = 8;

/// Bytes that a connection may read if it holds none, even when the budget is exhausted.
pub const BYTES_LEAST: usize = 1024;

/// A worker's view of the limits that the connections of all workers share.
pub struct Budgets {
    /// Bytes of responses that were read but not sent.
    pub bytes: Rc<Budget>,
    /// Open streams.
    pub streams: Rc<Budget>,
}

/// The charges of all workers to the limits that their connections share.
#[derive(Default)]
pub struct BudgetTotals {
    bytes: Arc<AtomicUsize>,
    streams: Arc<AtomicUsize>,
}

impl Budgets {
    /// Creates budgets without room; [`Budgets::limit`] sets their limits.
    pub fn new(totals: &BudgetTotals) -> Self {
        Self { bytes: Budget::new(BYTES_LEAST, &totals.bytes), streams: Budget::new(1, &totals.streams) }
    }

    /// Replaces the limits; charges stay.
    pub fn limit(&self, bytes: usize, streams: usize) {
        self.bytes.set_max(bytes);
        self.streams.set_max(streams);
    }
}

/// A worker's view of an amount that the connections of all workers share.
pub struct Budget {
    max: Cell<usize>,
    /// The sum of the charges of all workers. It may include recent charges of other workers late.
    total: Arc<AtomicUsize>,
    /// The charges of this worker.
    used: Cell<usize>,
    /// The amount that a connection may always take if it holds nothing.
    least: usize,
}

impl Budget {
    pub(super) fn new(least: usize, total: &Arc<AtomicUsize>) -> Rc<Self> {
        Rc::new(Self { max: Cell::new(0), total: Arc::clone(total), used: Cell::new(0), least })
    }

    /// Replaces the limit; charges stay.
    pub(super) fn set_max(&self, max: usize) {
        self.max.set(max);
    }

    /// The sum of this worker's charges.
    pub fn used(&self) -> usize {
        self.used.get()
    }
}

/// The charges of one connection to a [`Budget`].
pub struct Account {
    budget: Rc<Budget>,
    used: Cell<usize>,
}

impl Account {
    pub(super) fn new(budget: &Rc<Budget>) -> Rc<Self> {
        Rc::new(Self { budget: Rc::clone(budget), used: Cell::new(0) })
    }

    /// The amount that the connection may still take.
    pub fn room(&self) -> usize {
        let free = self.budget.max.get().saturating_sub(self.budget.total.load(Ordering::Relaxed));
        let share = (free / SHARE).saturating_sub(self.used.get());
        if self.used.get() == 0 { share.max(self.budget.least) } else { share }
    }

    /// Whether the connection holds nothing.
    pub fn is_empty(&self) -> bool {
        self.used.get() == 0
    }

    /// Charges an amount to the account, whether or not there is room.
    pub fn charge(self: &Rc<Self>, amount: usize) -> Charge {
        self.take(amount);
        Charge { account: Rc::clone(self), amount }
    }

    fn take(&self, amount: usize) {
        self.used.set(self.used.get() + amount);
        self.budget.used.set(self.budget.used.get() + amount);
        self.budget.total.fetch_add(amount, Ordering::Relaxed);
    }

    fn give(&self, amount: usize) {
        self.used.set(self.used.get() - amount);
        self.budget.used.set(self.budget.used.get() - amount);
        self.budget.total.fetch_sub(amount, Ordering::Relaxed);
    }
}

/// A part of an [`Account`], returned when dropped.
pub struct Charge {
    account: Rc<Account>,
    amount: usize,
}

impl Charge {
    /// Splits off a charge of at most `amount`.
    pub fn split_to(&mut self, amount: usize) -> Self {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        Self { account: Rc::clone(&self.account), amount }
    }

    /// Changes the amount of the charge.
    pub fn set(&mut self, amount: usize) {
        self.account.take(amount);
        self.account.give(self.amount);
        self.amount = amount;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.give(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: usize = 10;

    fn budget(max: usize) -> Rc<Budget> {
        let budget = Budget::new(LEAST, &Arc::default());
        budget.set_max(max);
        budget
    }

    #[test]
    fn a_dropped_charge_returns_what_it_held() {
        let budget = budget(8_000);
        let account = Account::new(&budget);
        let mut whole = account.charge(500);
        assert_eq!((account.room(), budget.used()), ((8_000 - 500) / SHARE - 500, 500));
        let part = whole.split_to(200);
        drop(whole);
        assert_eq!(budget.used(), 200);
        drop(part);
        assert_eq!((account.room(), budget.used()), (1_000, 0));
        let mut held = account.charge(5);
        held.set(7);
        assert_eq!(budget.used(), 7);
        held.set(0);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn greedy_connections_never_exhaust_a_budget() {
        let budget = budget(64_000);
        let mut held = Vec::new();
        let accounts: Vec<_> = (0..1_000).map(|_| Account::new(&budget)).collect();
        for account in &accounts {
            while let room @ 1.. = account.room() {
                held.push(account.charge(room));
            }
        }
        assert!(budget.used() < 64_000 + accounts.len() * LEAST, "{}", budget.used());
        let newcomer = Account::new(&budget);
        assert!(newcomer.room() >= LEAST);
        drop(held);
        assert_eq!((budget.used(), newcomer.room()), (0, 64_000 / SHARE));
    }

    #[test]
    fn a_connection_that_holds_nothing_may_always_take_the_least() {
        let budget = budget(0);
        let account = Account::new(&budget);
        assert_eq!(account.room(), LEAST);
        let _held = account.charge(1);
        assert_eq!(account.room(), 0);
    }

    #[test]
    fn workers_share_a_budget() {
        let total = Arc::default();
        let [one, other] = [(), ()].map(|()| Budget::new(LEAST, &total));
        one.set_max(8_000);
        other.set_max(8_000);
        let held = Account::new(&one).charge(4_000);
        assert_eq!(Account::new(&other).room(), 4_000 / SHARE);
        assert_eq!((one.used(), other.used()), (4_000, 0));
        drop(held);
        assert_eq!(Account::new(&other).room(), 8_000 / SHARE);
    }
}
