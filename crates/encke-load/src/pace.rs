//! When requests begin: as soon as a connection is free (closed loop), or on a schedule (open loop).
//!
//! ```text
//!   rate                 ┌──── 5k              N(t): arrivals up to t, the area below the rate
//!    │     ╱────── 2k ───┘                     the k-th arrival is at the t where N(t) = k
//!    │  ╱  a leg: from one rate to another     Poisson: at the t where N(t) is the sum of k intervals
//!    └──────────────────────────► time                  of mean 1
//! ```
//! A schedule is a function, not a queue. However late requests are, they need no memory, and the intended begin of each is
//! known to the nanosecond.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::input::InputError;
use crate::random::Random;
use crate::words;

/// When requests begin.
#[derive(Clone, PartialEq, Debug)]
pub enum Pace {
    /// Each connection sends its next request as soon as it has a response.
    Closed,
    /// Requests are due on a schedule, whatever the server does.
    Open(Rate, Arrivals),
}

/// Requests per second, over time.
#[derive(Clone, PartialEq, Debug)]
pub struct Rate {
    legs: Vec<Leg>,
}

/// Distribution of requests over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Arrivals {
    /// At equal distances.
    #[default]
    Even,
    /// Independent of each other, like requests of many users.
    Poisson,
}

/// A part of a rate, with linear growth or decline.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Leg {
    /// Duration; the last leg may be infinite.
    seconds: f64,
    /// Requests per second at the beginning.
    from: f64,
    /// Requests per second at the end.
    to: f64,
}

/// Maximum rate: one request per 10 ns is beyond every machine, and keeps the arithmetic exact.
const RATE_MAX: f64 = 1e8;

impl Rate {
    /// A constant rate; `None` if it is not positive or exceeds 100 million per second.
    pub fn constant(per_second: f64) -> Option<Self> {
        let leg = Leg { seconds: f64::INFINITY, from: per_second, to: per_second };
        (per_second > 0.0 && per_second <= RATE_MAX).then(|| Self { legs: vec![leg] })
    }

    /// A rate from the number of requests in each second of a log. `None` if all are 0, or one exceeds the maximum rate.
    pub fn of_seconds(counts: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut legs: Vec<Leg> = Vec::new();
        for count in counts {
            let rate = count as f64;
            match legs.last_mut() {
                Some(leg) if leg.to == rate => leg.seconds += 1.0,
                _ => legs.push(Leg { seconds: 1.0, from: rate, to: rate }),
            }
        }
        let within = legs.iter().all(|leg| leg.to <= RATE_MAX);
        (within && legs.iter().any(|leg| leg.to > 0.0)).then_some(Self { legs })
    }

    /// This rate multiplied by a share from 0 to 1.
    pub(crate) fn part(&self, share: f64) -> Self {
        let legs = self.legs.iter();
        let legs = legs.map(|leg| Leg { from: leg.from * share, to: leg.to * share, ..*leg });
        Self { legs: legs.collect() }
    }

    /// The duration of the rate, if it is finite.
    pub fn duration(&self) -> Option<Duration> {
        let seconds: f64 = self.legs.iter().map(|leg| leg.seconds).sum();
        seconds.is_finite().then(|| Duration::from_secs_f64(seconds))
    }

    /// The number of requests due within this time from the beginning.
    pub fn due_within(&self, time: Duration) -> f64 {
        let mut left = time.as_secs_f64();
        let mut due = 0.0;
        for leg in &self.legs {
            let seconds = left.min(leg.seconds);
            due += leg.arrivals(seconds);
            left -= seconds;
        }
        due
    }
}

impl Leg {
    /// The number of arrivals in the first `seconds`.
    fn arrivals(&self, seconds: f64) -> f64 {
        if self.from == self.to {
            return self.from * seconds;
        }
        (self.from + self.growth() * seconds / 2.0) * seconds
    }

    /// The time in seconds after which this number has arrived.
    fn moment(&self, arrivals: f64) -> f64 {
        if self.from == self.to {
            return arrivals / self.from;
        }
        // The root of `from·t + growth·t²/2 = arrivals`, in the form that keeps its precision for small growth.
        let root = (self.from * self.from + 2.0 * self.growth() * arrivals).max(0.0).sqrt();
        2.0 * arrivals / (self.from + root)
    }

    fn growth(&self) -> f64 {
        (self.to - self.from) / self.seconds
    }
}

/// A thread's part of a schedule: the times at which its requests are due.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    rate: Rate,
    arrivals: Arrivals,
    /// Number of threads that share the rate. With even arrivals, each takes every `threads`-th.
    threads: f64,
    /// Arrivals before the next, over all threads.
    position: f64,
    /// The current leg, the time at which it began, and arrivals before it.
    leg: usize,
    leg_seconds: f64,
    leg_position: f64,
    random: Random,
}

impl Schedule {
    /// The part of thread `number` (from 0) of `threads`.
    pub(crate) fn new(rate: &Rate, arrivals: Arrivals, number: usize, threads: usize, seed: u64) -> Self {
        let mut random = Random::new(seed, SCHEDULES + number as u64);
        let threads = threads as f64;
        let position = match arrivals {
            Arrivals::Even => number as f64,
            Arrivals::Poisson => random.interval() * threads,
        };
        let rate = rate.clone();
        Self { rate, arrivals, threads, position, leg: 0, leg_seconds: 0.0, leg_position: 0.0, random }
    }

    /// The next due time, in nanoseconds from the beginning; `None` once the schedule has ended.
    pub(crate) fn next_ns(&mut self) -> Option<u64> {
        let leg = loop {
            let leg = self.rate.legs.get(self.leg)?;
            let arrivals = leg.arrivals(leg.seconds);
            if self.position - self.leg_position < arrivals {
                break leg;
            }
            self.leg_position += arrivals;
            self.leg_seconds += leg.seconds;
            self.leg += 1;
        };
        let seconds = self.leg_seconds + leg.moment(self.position - self.leg_position);
        self.position += match self.arrivals {
            Arrivals::Even => self.threads,
            Arrivals::Poisson => self.random.interval() * self.threads,
        };
        Some((seconds * 1e9) as u64)
    }
}

/// First random stream used by schedules.
const SCHEDULES: u64 = 1 << 32;

impl FromStr for Rate {
    type Err = InputError;

    /// Parses `20k`, `1k..50k/60s` (a ramp), or `1k,2k,5k@10s` (steps of ten seconds each).
    fn from_str(text: &str) -> Result<Self, InputError> {
        let wrong = || InputError::Rate(text.to_owned());
        if let Some((range, time)) = text.split_once('/') {
            let (from, to) = range.split_once("..").ok_or_else(wrong)?;
            let (from, to) = (per_second(from).ok_or_else(wrong)?, per_second(to).ok_or_else(wrong)?);
            let seconds = seconds(time).ok_or_else(wrong)?;
            return Ok(Self { legs: vec![Leg { seconds, from, to }] });
        }
        if let Some((steps, time)) = text.split_once('@') {
            let seconds = seconds(time).ok_or_else(wrong)?;
            let rates: Option<Vec<f64>> = steps.split(',').map(per_second).collect();
            let legs = rates.ok_or_else(wrong)?.into_iter().map(|rate| Leg { seconds, from: rate, to: rate });
            return Ok(Self { legs: legs.collect() });
        }
        per_second(text).and_then(Self::constant).ok_or_else(wrong)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.legs[..] {
            [leg] if leg.seconds.is_infinite() => write!(f, "{}/s", words::rate(leg.from)),
            legs if legs.len() > LEGS_TOLD => {
                let seconds: f64 = legs.iter().map(|leg| leg.seconds).sum();
                let due: f64 = legs.iter().map(|leg| leg.arrivals(leg.seconds)).sum();
                write!(f, "{} requests within {seconds} s, as they came", words::count(due as u64))
            }
            legs => {
                for (place, leg) in legs.iter().enumerate() {
                    let comma = if place > 0 { ", " } else { "" };
                    write!(f, "{comma}{}/s", words::rate(leg.from))?;
                    if leg.to != leg.from {
                        write!(f, " to {}/s", words::rate(leg.to))?;
                    }
                    write!(f, " for {} s", leg.seconds)?;
                }
                Ok(())
            }
        }
    }
}

/// A rate with more legs is summarised.
const LEGS_TOLD: usize = 8;

/// Parses `500`, `1.5k` or `2M`, without a `/s`.
fn per_second(text: &str) -> Option<f64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1e3),
        b'M' | b'm' => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let rate = plain.then(|| digits.parse::<f64>().ok()).flatten()? * unit;
    (rate > 0.0 && rate <= RATE_MAX).then_some(rate)
}

/// Parses `60s`, `500ms` or `2m`.
fn seconds(text: &str) -> Option<f64> {
    let unit_at = text.find(|char: char| char.is_ascii_alphabetic())?;
    let (digits, unit) = text.split_at(unit_at);
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = plain.then(|| digits.parse::<f64>().ok()).flatten()?;
    let seconds = number
        * [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)]
            .into_iter()
            .find_map(|(name, seconds)| (name == unit).then_some(seconds))?;
    (seconds > 0.0).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(rate: &str, arrivals: Arrivals, number: usize, threads: usize) -> Vec<u64> {
        let rate: Rate = rate.parse().unwrap_or_else(|error| panic!("{error}"));
        let mut schedule = Schedule::new(&rate, arrivals, number, threads, 1);
        std::iter::from_fn(move || schedule.next_ns()).take(100_000).collect()
    }

    #[test]
    fn an_even_schedule_is_exact_after_a_hundred_thousand() {
        let moments = moments("3k", Arrivals::Even, 0, 1);
        for (place, moment) in moments.iter().enumerate() {
            let exact = place as f64 * 1e9 / 3e3;
            assert!((*moment as f64 - exact).abs() <= 1.0, "{place}: {moment}");
        }
    }

    #[test]
    fn threads_share_an_even_schedule_without_gap_or_repeat() {
        let mut all: Vec<u64> =
            (0..3).flat_map(|number| moments("1k,2k@1s", Arrivals::Even, number, 3)).collect();
        all.sort_unstable();
        assert_eq!(all, moments("1k,2k@1s", Arrivals::Even, 0, 1));
    }

    #[test]
    fn steps_follow_each_other() {
        let moments = moments("10,20,5@2s", Arrivals::Even, 0, 1);
        let within = |from: u64, to: u64| {
            moments
                .iter()
                .filter(|moment| (from * 1_000_000_000..to * 1_000_000_000).contains(*moment))
                .count()
        };
        assert_eq!((within(0, 2), within(2, 4), within(4, 6), moments.len()), (20, 40, 10, 70));
    }

    #[test]
    fn a_ramp_has_the_area_below_it() {
        for rate in ["100..300/10s", "300..100/10s"] {
            let moments = moments(rate, Arrivals::Even, 0, 1);
            assert_eq!(moments.len(), 2_000, "{rate}");
            assert!(moments.is_sorted(), "{rate}");
            let half = moments.iter().filter(|moment| **moment < 5_000_000_000).count();
            let expected = if rate.starts_with('1') { 750 } else { 1_250 };
            assert!(half.abs_diff(expected) <= 1, "{rate}: {half}");
        }
    }

    #[test]
    fn poisson_arrivals_keep_the_rate_and_are_independent() {
        let moments: Vec<u64> = moments("10k", Arrivals::Poisson, 0, 1);
        let mean = *moments.last().expect("there are many") as f64 / moments.len() as f64;
        assert!((mean - 100_000.0).abs() < 2_000.0, "{mean}");
        // A share of 1/e of independent intervals is longer than the mean.
        let long = moments.windows(2).filter(|pair| pair[1] - pair[0] > 100_000).count();
        assert!((long as f64 / moments.len() as f64 - 0.368).abs() < 0.01, "{long}");
    }

    #[test]
    fn a_log_is_due_as_it_came_second_by_second() {
        let rate = Rate::of_seconds([2, 0, 0, 4, 4]).expect("a rate");
        assert_eq!(rate.duration(), Some(Duration::from_secs(5)));
        assert_eq!(rate.due_within(Duration::from_secs(60)), 10.0);
        let mut schedule = Schedule::new(&rate, Arrivals::Even, 0, 1, 1);
        let ms: Vec<u64> = std::iter::from_fn(|| schedule.next_ns()).map(|ns| ns / 1_000_000).collect();
        assert_eq!(ms, [0, 500, 3_000, 3_250, 3_500, 3_750, 4_000, 4_250, 4_500, 4_750]);
        assert!(Rate::of_seconds([0, 0]).is_none() && Rate::of_seconds([]).is_none());
        let long = Rate::of_seconds((1..=20).map(|count| count % 3)).expect("a rate");
        assert_eq!(long.to_string(), "21 requests within 20 s, as they came");
    }

    #[test]
    fn what_is_due_is_known_ahead() {
        for (rate, seconds, due) in [
            ("100", 10, 1_000.0),
            ("100..300/10s", 5, 750.0),
            ("100..300/10s", 60, 2_000.0),
            ("1,2@3s", 4, 5.0),
        ] {
            let rate: Rate = rate.parse().expect("a rate");
            assert_eq!(rate.due_within(Duration::from_secs(seconds)), due, "{rate}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "0", "-1", "1e3", "k", "1k..2k", "1k..2k/0s", "1,,2@1s", "1@5", "999M", "nan", "inf"]
        {
            let error = text.parse::<Rate>().expect_err(text).to_string();
            assert!(error.contains("invalid rate"), "{text}: {error}");
        }
    }
}
