//! Rate limits by client address: anonymous messages and new channels per second.

use std::num::NonZeroU32;
use std::sync::Mutex;

use encke_hub::{TokenBucket, TokenBuckets};
use encke_io::lock;

/// The token buckets of all client addresses for one limit, shared by all workers.
#[derive(Debug)]
pub(crate) struct AddressRates {
    limit: LimitedAction,
    rate: NonZeroU32,
    /// Locked for about 20 ns, and only for anonymous publishes and for subscriptions that open a channel.
    paces: Mutex<TokenBuckets>,
}

/// The limits by client address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LimitedAction {
    /// Anonymous messages: `push.anonymous_rate`.
    Messages,
    /// Opened channels: `push.channel_rate`.
    Channels,
}

/// The error of an address that exceeds a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TooFast {
    /// One request has more messages than the burst.
    AtOnce {
        /// The burst.
        most: u64,
    },
    /// No tokens are left.
    OfLate {
        /// The limit.
        limit: LimitedAction,
        /// The rate per second.
        rate: NonZeroU32,
        /// Time until there are enough tokens, in ns.
        wait_ns: u64,
    },
}

/// The burst, as seconds of the rate: three messages in a row from a person are no flood.
const BURST_S: u64 = 2;

impl AddressRates {
    /// Limits each address to `rate` tokens of `limit` per second.
    pub(crate) fn new(limit: LimitedAction, rate: NonZeroU32) -> Self {
        Self {
            limit,
            rate,
            paces: Mutex::new(TokenBuckets::new(TokenBucket::new(rate, u64::from(rate.get()) * BURST_S))),
        }
    }

    /// Returns the rate per second.
    pub(crate) const fn rate(&self) -> NonZeroU32 {
        self.rate
    }

    /// Takes `count` tokens of an address, given as a number ([`client_number`](encke_rights::client_number)). A subscription
    /// to more channels than the burst costs the whole burst, so that it is never rejected for good.
    ///
    /// # Errors
    /// There are too few tokens, or a request has more messages than the burst.
    pub(crate) fn admit(&self, client: u64, count: u64, now_ns: u64) -> Result<(), TooFast> {
        let most = u64::from(self.rate.get()) * BURST_S;
        if count > most && self.limit == LimitedAction::Messages {
            return Err(TooFast::AtOnce { most });
        }
        let count = count.min(most);
        // A panic leaves the buckets valid at every point, so a poisoned lock is usable.
        let mut paces = lock(&self.paces);
        let taken = paces.take(client, now_ns, count);
        taken.map_err(|wait_ns| TooFast::OfLate { limit: self.limit, rate: self.rate, wait_ns })
    }
}

/// The label in `encke_http_refusals_total` for messages beyond `push.anonymous_rate`.
pub(crate) const TOO_FAST: &str = "anonymous_rate";
/// The label there for channels that WebSockets opened beyond `push.channel_rate`.
pub(crate) const CHANNELS_TOO_FAST: &str = "channel_rate";

impl TooFast {
    /// Returns the time until there are enough tokens, in ns.
    pub(crate) const fn wait_ns(self) -> u64 {
        match self {
            Self::AtOnce { .. } => 0,
            Self::OfLate { wait_ns, .. } => wait_ns,
        }
    }

    /// Returns this time in whole seconds, at least 1, for `Retry-After`.
    pub(crate) fn retry_after_s(self) -> u64 {
        self.wait_ns().div_ceil(1_000_000_000).max(1)
    }
}

impl std::fmt::Display for TooFast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtOnce { most } => write!(
                f,
                "more than {most} messages at once without a token (push.anonymous_rate): send fewer, or publish with a token"
            ),
            Self::OfLate { limit: LimitedAction::Channels, rate, .. } => write!(
                f,
                "more than {rate} new channels a second from one address (push.channel_rate): retry in {} s",
                self.retry_after_s()
            ),
            Self::OfLate { limit: LimitedAction::Messages, rate, .. } => write!(
                f,
                "more than {rate} messages a second from one address without a token (push.anonymous_rate): retry in {} s, or publish with a token",
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
    fn an_address_publishes_at_its_rate_and_the_others_do_not_notice() {
        let rates = AddressRates::new(LimitedAction::Messages, rate(10));
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
        // All but a few, which share both cells with the fast address.
        let others = (2..1_002).filter(|number| rates.admit(*number, 1, SECOND_NS).is_ok());
        assert!(others.count() >= 999);
    }

    #[test]
    fn a_thousand_addresses_at_their_limit_hardly_hold_up_a_stranger() {
        let rates = AddressRates::new(LimitedAction::Messages, rate(10));
        for number in 0..1_000 {
            while rates.admit(number, 1, 0).is_ok() {}
        }
        let held_up = (1_000..11_000).filter(|number| rates.admit(*number, 1, 0).is_err());
        // (2,000 / 32,768)² is 0.4 %: about 37 of 10,000, and never five times as many.
        assert!(held_up.count() < 185);
    }

    #[test]
    fn more_at_once_than_there_ever_is_is_refused_for_good() {
        let rates = AddressRates::new(LimitedAction::Messages, rate(10));
        assert!(rates.admit(1, 20, 0).is_ok());
        let refused = rates.admit(2, 21, 0).expect_err("20 is the most");
        assert_eq!(refused, TooFast::AtOnce { most: 20 });
        assert!(refused.to_string().contains("push.anonymous_rate"), "{refused}");
    }

    #[test]
    fn workers_at_the_same_time_admit_no_more_than_one_would() {
        let rates = &AddressRates::new(LimitedAction::Messages, rate(1_000));
        let tries = |_| (0..2_000).filter(|_| rates.admit(7, 1, 0).is_ok()).count();
        let taken: usize = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4).map(|number| scope.spawn(move || tries(number))).collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
        });
        assert_eq!(taken, 2_000, "two seconds' worth");
    }

    #[test]
    fn a_subscription_to_more_channels_than_the_burst_costs_all_of_it() {
        let rates = AddressRates::new(LimitedAction::Channels, rate(10));
        assert!(rates.admit(1, 128, 0).is_ok());
        let refused = rates.admit(1, 1, 0).expect_err("all 20 are taken");
        assert_eq!(refused.wait_ns(), SECOND_NS / 10);
        assert!(refused.to_string().contains("push.channel_rate"), "{refused}");
        assert!(rates.admit(1, 128, 2 * SECOND_NS).is_ok());
    }
}
