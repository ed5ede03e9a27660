//! Paces: how often something may happen, and when it may again.
//!
//! ```text
//! tokens    full ──take──► less ──time──► full                 what is kept is one number: when it is full again
//!                            └─ take ─► none left ─► Err(how long until there are enough)
//! ```
//! [`Pace`] is the arithmetic (the "generic cell rate algorithm" of ATM Forum TM 4.0): it has no clock and keeps
//! nothing. [`AddressRates`] keeps one such number for each client address, in a table that cannot grow.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

/// A number of tokens that comes back evenly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    /// Between two tokens.
    interval_ns: u64,
    /// In which all of them come back.
    burst_ns: u64,
}

impl Pace {
    /// `rate` tokens a second, and at most `burst` of them at once.
    pub(crate) fn new(rate: NonZeroU32, burst: u64) -> Self {
        let interval_ns = 1_000_000_000 / u64::from(rate.get());
        Self { interval_ns, burst_ns: interval_ns.saturating_mul(burst) }
    }

    /// Between two tokens, in ns.
    pub(crate) const fn interval_ns(self) -> u64 {
        self.interval_ns
    }

    /// Takes `count` tokens of those that are all back at `full_ns`: the moment at which they are all back again.
    /// Moments are of one clock, in ns.
    ///
    /// # Errors
    /// There are not so many: how long until there are. For more than there ever are that moment never comes.
    pub(crate) fn take(self, full_ns: u64, now_ns: u64, count: u64) -> Result<u64, u64> {
        let cost_ns = self.interval_ns.saturating_mul(count);
        let full_ns = full_ns.max(now_ns).saturating_add(cost_ns);
        let latest_ns = now_ns.saturating_add(self.burst_ns);
        if full_ns <= latest_ns { Ok(full_ns) } else { Err(full_ns - latest_ns) }
    }
}

/// How often each client address may do something.
///
/// Each address has two of the table's cells, by a hash that nobody outside can compute, and may go on while either of
/// them has a token left: it is held up by others only if two of them hit both of its cells at the same time. With
/// 1,000 addresses at their limit that meets four in a thousand. Nothing has to be swept, and nothing can be filled up.
#[derive(Debug)]
pub(crate) struct AddressRates {
    limit: Limit,
    rate: NonZeroU32,
    pace: Pace,
    seed: RandomState,
    /// When a cell's tokens are all back, on the monotonic clock in ns. The lock is held for some 20 ns, and only for publishes
    /// without a token and for subscriptions that open a channel.
    cells: Mutex<Box<[u64]>>,
}

/// What is limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// Messages without a token: `push.anonymous_rate`.
    Messages,
    /// Opened channels: `push.channel_rate`.
    Channels,
}

/// Too much came from one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TooFast {
    /// So many messages at once are never taken.
    AtOnce {
        /// That is the most.
        most: u64,
    },
    /// There have been too many of late.
    OfLate {
        /// Of these.
        limit: Limit,
        /// Allowed a second.
        rate: NonZeroU32,
        /// After which these would be taken.
        wait_ns: u64,
    },
}

/// Cells of a table: 256 KiB.
const CELLS: usize = 32 * 1024;

/// Tokens at most, as seconds of the rate: a person who sends three messages in a row is no flood.
const BURST_S: u64 = 2;

impl AddressRates {
    /// `rate` of what `limit` names, a second and from each address.
    pub(crate) fn new(limit: Limit, rate: NonZeroU32) -> Self {
        Self {
            limit,
            rate,
            pace: Pace::new(rate, u64::from(rate.get()) * BURST_S),
            seed: RandomState::new(),
            cells: Mutex::new(vec![0; CELLS].into()),
        }
    }

    /// How many a second.
    pub(crate) const fn rate(&self) -> NonZeroU32 {
        self.rate
    }

    /// Takes `count` tokens of an address, which is a number ([`client_number`](super::rights::client_number)). More channels
    /// than there ever are tokens cost all of them, so that no subscription is refused for good.
    ///
    /// # Errors
    /// There are not so many tokens.
    pub(crate) fn admit(&self, client: u64, count: u64, now_ns: u64) -> Result<(), TooFast> {
        let most = u64::from(self.rate.get()) * BURST_S;
        if count > most && self.limit == Limit::Messages {
            return Err(TooFast::AtOnce { most });
        }
        let count = count.min(most);
        let hash = self.seed.hash_one(client);
        let places = [hash, hash >> 32].map(|part| part as usize % CELLS);
        // Whole at every point where a thread could panic.
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let used_ns = places.map(|place| cells[place]).into_iter().min().unwrap_or_default();
        let full_ns = self.pace.take(used_ns, now_ns, count).map_err(|wait_ns| TooFast::OfLate {
            limit: self.limit,
            rate: self.rate,
            wait_ns,
        })?;
        for place in places {
            cells[place] = cells[place].max(full_ns);
        }
        Ok(())
    }
}

/// What `encke_http_refusals_total` calls messages that came faster than `push.anonymous_rate`.
pub(crate) const TOO_FAST: &str = "anonymous_rate";
/// What it calls channels that WebSockets opened faster than `push.channel_rate`.
pub(crate) const CHANNELS_TOO_FAST: &str = "channel_rate";

impl TooFast {
    /// When there are enough tokens, in ns.
    pub(crate) const fn wait_ns(self) -> u64 {
        match self {
            Self::AtOnce { .. } => 0,
            Self::OfLate { wait_ns, .. } => wait_ns,
        }
    }

    /// The same in whole seconds, for `Retry-After`.
    pub(crate) fn retry_after_s(self) -> u64 {
        self.wait_ns().div_ceil(1_000_000_000).max(1)
    }
}

impl std::fmt::Display for TooFast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtOnce { most } => write!(
                f,
                "without a token at most {most} messages are taken at once (push.anonymous_rate); send fewer, or \
                 publish with a token"
            ),
            Self::OfLate { limit: Limit::Channels, rate, .. } => write!(
                f,
                "more than {rate} new channels a second from one address (push.channel_rate); try again in {} s",
                self.retry_after_s()
            ),
            Self::OfLate { limit: Limit::Messages, rate, .. } => write!(
                f,
                "more than {rate} messages a second from one address without a token (push.anonymous_rate); come \
                 back in {} s, or publish with a token",
                self.retry_after_s()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn rate(rate: u32) -> NonZeroU32 {
        NonZeroU32::new(rate).expect("above 0")
    }

    #[test]
    fn tokens_are_spent_and_come_back_one_by_one() {
        let pace = Pace::new(rate(10), 3);
        let mut full_ns = 0;
        for _ in 0..3 {
            full_ns = pace.take(full_ns, SECOND_NS, 1).expect("three at once");
        }
        assert_eq!(pace.take(full_ns, SECOND_NS, 1), Err(SECOND_NS / 10));
        assert_eq!(pace.take(full_ns, SECOND_NS, 3), Err(3 * SECOND_NS / 10));
        let later_ns = SECOND_NS + SECOND_NS / 10;
        full_ns = pace.take(full_ns, later_ns, 1).expect("one has come back");
        assert_eq!(pace.take(full_ns, later_ns, 1), Err(SECOND_NS / 10));
        // However long nothing is taken, there are never more than at first.
        assert!(pace.take(full_ns, 1_000 * SECOND_NS, 4).is_err());
        assert!(pace.take(full_ns, 1_000 * SECOND_NS, 3).is_ok());
    }

    #[test]
    fn neither_the_end_of_time_nor_any_count_overflows() {
        let pace = Pace::new(rate(1), u64::MAX);
        assert_eq!(pace.take(u64::MAX, u64::MAX, u64::MAX), Ok(u64::MAX));
        assert!(Pace::new(rate(1), 1).take(0, 0, u64::MAX).is_err());
    }

    #[test]
    fn an_address_publishes_at_its_rate_and_the_others_do_not_notice() {
        let rates = AddressRates::new(Limit::Messages, rate(10));
        let fast = 1;
        let mut taken = 0;
        // A hundred tries a second, for ten seconds.
        for step in 0..1_000 {
            taken += u32::from(rates.admit(fast, 1, step * SECOND_NS / 100).is_ok());
        }
        assert!((119..=121).contains(&taken), "10 a second and 20 at first: {taken}");
        let Err(TooFast::OfLate { wait_ns, .. }) = rates.admit(fast, 5, 10 * SECOND_NS) else {
            panic!("it has nothing left")
        };
        assert!(rates.admit(fast, 5, 10 * SECOND_NS + wait_ns).is_ok(), "it was told when to come back");
        // All but those few that share both cells with it.
        let others = (2..1_002).filter(|number| rates.admit(*number, 1, SECOND_NS).is_ok());
        assert!(others.count() >= 999);
    }

    #[test]
    fn a_thousand_addresses_at_their_limit_hardly_hold_up_a_stranger() {
        let rates = AddressRates::new(Limit::Messages, rate(10));
        for number in 0..1_000 {
            while rates.admit(number, 1, 0).is_ok() {}
        }
        let held_up = (1_000..11_000).filter(|number| rates.admit(*number, 1, 0).is_err());
        // (2,000 / 32,768)² is 0.4 %: some 37, and never five times as many.
        assert!(held_up.count() < 185);
    }

    #[test]
    fn more_at_once_than_there_ever_is_is_refused_for_good() {
        let rates = AddressRates::new(Limit::Messages, rate(10));
        assert!(rates.admit(1, 20, 0).is_ok());
        let refused = rates.admit(2, 21, 0).expect_err("20 is the most");
        assert_eq!(refused, TooFast::AtOnce { most: 20 });
        assert!(refused.to_string().contains("push.anonymous_rate"), "{refused}");
    }

    #[test]
    fn workers_at_the_same_time_admit_no_more_than_one_would() {
        let rates = &AddressRates::new(Limit::Messages, rate(1_000));
        let tries = |_| (0..2_000).filter(|_| rates.admit(7, 1, 0).is_ok()).count();
        let taken: usize = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4).map(|number| scope.spawn(move || tries(number))).collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
        });
        assert_eq!(taken, 2_000, "two seconds' worth");
    }

    #[test]
    fn a_subscription_to_more_channels_than_the_burst_costs_all_of_it() {
        let rates = AddressRates::new(Limit::Channels, rate(10));
        assert!(rates.admit(1, 128, 0).is_ok());
        let refused = rates.admit(1, 1, 0).expect_err("all 20 are taken");
        assert_eq!(refused.wait_ns(), SECOND_NS / 10);
        assert!(refused.to_string().contains("push.channel_rate"), "{refused}");
        assert!(rates.admit(1, 128, 2 * SECOND_NS).is_ok());
    }
}
