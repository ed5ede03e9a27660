//! What a run does: which requests, to whom, how many at a time, at which pace, until when.
//!
//! A plan is a value: `stop` × `pace` × the mix of messages. One loop (`requests.rs`) runs all of them, so a
//! correction in it is a correction everywhere.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use encke_io::Backend;
use encke_io::socket::Address;
use encke_session::tls::Sessions;

use crate::check::Expected;
use crate::dial::{self, Sources};
use crate::message::Mix;
use crate::pace::{Arrivals, Pace};
use crate::words;

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub server: Address,
    /// Addresses of this machine that connections come from, each in its turn; none: as [`Plan::placed`] has it.
    pub sources: Vec<IpAddr>,
    /// What speaks TLS with it; none: nothing is sealed.
    pub tls: Option<Arc<dyn Sessions>>,
    /// What is sent.
    pub mix: Mix,
    /// Several servers, among which connections, requests and rate are divided; `server`, `tls` and `mix` are then the
    /// first one's. None: those are all there is.
    pub targets: Vec<Target>,
    /// When it ends.
    pub stop: Stop,
    /// When requests begin.
    pub pace: Pace,
    /// What at the beginning is not counted.
    pub warm_up: WarmUp,
    /// Connections in all.
    pub connections: u32,
    /// Threads; each has its share of connections, requests and rate.
    pub threads: u16,
    /// What is spoken.
    pub protocol: Protocol,
    /// Requests that may be under way on a connection: one behind the other, or each on a stream of its own.
    pub pipeline: u16,
    /// Requests after which a connection is closed and another one opened; with 1 each request has its own.
    pub requests_per_connection: Option<u64>,
    /// A request that has taken so long has failed, and its connection is closed.
    pub timeout: Duration,
    /// How long what is under way at the end may go on.
    pub drain: Duration,
    /// Statuses that are no wrong answer.
    pub expected: Vec<RangeInclusive<u16>>,
    /// What every body must be, else its answer is wrong.
    pub body: Option<Expected>,
    /// How events are waited for.
    pub backend: Backend,
    /// Where chance begins: the same seed repeats the same choices and arrivals.
    pub seed: u64,
}

/// A server among several.
#[derive(Clone, Debug)]
pub struct Target {
    /// What it is called in reports.
    pub name: String,
    /// The server.
    pub server: Address,
    /// What speaks TLS with it, if something does.
    pub tls: Option<Arc<dyn Sessions>>,
    /// What is sent to it.
    pub mix: Mix,
    /// Its part of everything, beside those of the others; not 0.
    pub weight: u64,
}

/// Divides a number by weights into parts that add up to it, each of which has `least` at least, if there is so much.
fn divided(whole: u64, weights: &[u64], least: u64) -> Vec<u64> {
    let sum = weights.iter().sum::<u64>().max(1);
    let spread = whole.saturating_sub(least * weights.len() as u64);
    // What is left over by rounding down goes to those of whom most was cut off.
    let exact = |weight: u64| u128::from(spread) * u128::from(weight);
    let mut parts: Vec<u64> =
        weights.iter().map(|weight| (exact(*weight) / u128::from(sum)) as u64).collect();
    let mut left = spread - parts.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|place| std::cmp::Reverse(exact(weights[*place]) % u128::from(sum)));
    for place in order {
        let more = left.min(1);
        parts[place] += more + least;
        left -= more;
    }
    parts
}

/// What is spoken with the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// HTTP/1.1, or 1.0 if the messages say so.
    #[default]
    Http1,
    /// HTTP/2, without asking first: by TLS nothing else is offered, in the clear it is known (RFC 9113 §3.3).
    Http2,
}

impl Protocol {
    /// Its name in saved runs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http/1",
            Self::Http2 => "http/2",
        }
    }
}

/// When a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// After so many requests.
    Count(u64),
    /// After so long.
    After(Duration),
    /// When it is told to.
    Told,
}

/// What at the beginning is done and not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WarmUp {
    /// Nothing.
    #[default]
    None,
    /// So many requests, before those of the plan.
    Count(u64),
    /// What begins within so long; the plan's own time begins after it.
    For(Duration),
}

impl Plan {
    /// Ten seconds of a closed loop on 64 connections and one thread: what is meant where nothing else is said.
    pub fn new(server: impl Into<Address>, mix: Mix) -> Self {
        Self {
            server: server.into(),
            sources: Vec::new(),
            tls: None,
            mix,
            targets: Vec::new(),
            stop: Stop::After(Duration::from_secs(10)),
            pace: Pace::Closed,
            warm_up: WarmUp::None,
            connections: 64,
            threads: 1,
            protocol: Protocol::Http1,
            pipeline: 1,
            requests_per_connection: None,
            timeout: Duration::from_secs(10),
            drain: Duration::from_secs(10),
            expected: vec![100..=399],
            body: None,
            backend: Backend::EpollEdge,
            seed: 1,
        }
    }

    /// With the addresses that connections come from, where nobody has named some: for a server on 127.0.0.0/8 as many
    /// as it takes that each has ports enough left, else the system's choice. Of several servers each has its own, when
    /// the run begins.
    #[must_use]
    pub fn placed(self) -> Self {
        if !self.targets.is_empty() {
            return self;
        }
        Self { sources: Sources::of(&self.server, &self.sources, self.connections.into()), ..self }
    }

    /// A plan for each server, placed. Each has a connection for each thread at least, of which there must be enough.
    pub(crate) fn parts(&self) -> Vec<Self> {
        if self.targets.is_empty() {
            return vec![self.clone().placed()];
        }
        let weights: Vec<u64> = self.targets.iter().map(|target| target.weight).collect();
        let whole = weights.iter().sum::<u64>().max(1);
        let connections = divided(self.connections.into(), &weights, self.threads.into());
        let requests = match self.stop {
            Stop::Count(count) => divided(count, &weights, 0),
            Stop::After(_) | Stop::Told => Vec::new(),
        };
        let warm_up = match self.warm_up {
            WarmUp::Count(count) => divided(count, &weights, 0),
            WarmUp::None | WarmUp::For(_) => Vec::new(),
        };
        let part = |(place, target): (usize, &Target)| Self {
            server: target.server.clone(),
            tls: target.tls.clone(),
            mix: target.mix.clone(),
            targets: Vec::new(),
            // A part of a number of 32 bits.
            connections: connections[place] as u32,
            stop: requests.get(place).map_or(self.stop, |count| Stop::Count(*count)),
            warm_up: warm_up.get(place).map_or(self.warm_up, |count| WarmUp::Count(*count)),
            pace: match &self.pace {
                Pace::Closed => Pace::Closed,
                Pace::Open(rate, arrivals) => {
                    Pace::Open(rate.part(target.weight as f64 / whole as f64), *arrivals)
                }
            },
            // Each has a chance of its own.
            seed: self.seed.wrapping_add(place as u64),
            ..self.clone()
        };
        self.targets.iter().enumerate().map(part).map(Self::placed).collect()
    }

    /// Whether each request has a connection of its own.
    pub(crate) fn one_shot(&self) -> bool {
        self.requests_per_connection == Some(1)
    }
}

/// The kind of loop, and how it is driven, in a line.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connections = words::plural(self.connections.into(), "connection");
        let threads = words::plural(self.threads.into(), "thread");
        let pace = match &self.pace {
            Pace::Closed => "Closed loop".to_owned(),
            Pace::Open(rate, arrivals) => {
                let arrivals = match arrivals {
                    Arrivals::Even => "",
                    Arrivals::Poisson => ", Poisson arrivals",
                };
                format!("Open loop: {rate}{arrivals}")
            }
        };
        let kept = match self.requests_per_connection {
            None => "kept open".to_owned(),
            Some(1) => "one a request".to_owned(),
            Some(limit) => format!("{} requests each", words::count(limit)),
        };
        let pipeline = match (self.protocol, self.pipeline) {
            (Protocol::Http1, 1) => String::new(),
            (Protocol::Http1, depth) => format!(", {depth} requests at a time on each"),
            (Protocol::Http2, 1) => ", one stream of HTTP/2 at a time on each".to_owned(),
            (Protocol::Http2, depth) => format!(", {depth} streams of HTTP/2 at a time on each"),
        };
        let from = dial::from(&self.sources);
        write!(f, "{pace}; {connections}{from}, {kept}{pipeline}; {threads} ({})", self.backend)
    }
}

/// What a thread of a run has to do: its part of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    /// Which thread, from 0.
    pub(crate) number: usize,
    pub(crate) threads: usize,
}

impl Share {
    /// Its part of a number that all threads share: parts differ by one at most, and their sum is the whole.
    pub(crate) fn of(self, whole: u64) -> u64 {
        let (number, threads) = (self.number as u64, self.threads as u64);
        whole / threads + u64::from(number < whole % threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_divided_adds_up_and_follows_the_weights() {
        assert_eq!(divided(10, &[3, 1], 1), [7, 3]);
        assert_eq!(divided(1_000, &[9, 1], 0), [900, 100]);
        assert_eq!(divided(10, &[1, 1, 1], 0), [4, 3, 3]);
        assert_eq!(divided(0, &[1, 2], 0), [0, 0]);
        for whole in 0..200 {
            for weights in [&[1, 1][..], &[7, 2, 1], &[1, 1_000_000], &[5]] {
                let parts = divided(whole, weights, 0);
                assert_eq!(parts.iter().sum::<u64>(), whole, "{weights:?}");
            }
        }
    }

    #[test]
    fn shares_add_up_to_the_whole() {
        for threads in 1..=7 {
            for whole in [0, 1, 6, 7, 1_000, 1_000_003] {
                let parts: Vec<u64> =
                    (0..threads).map(|number| Share { number, threads }.of(whole)).collect();
                assert_eq!(parts.iter().sum::<u64>(), whole);
                assert!(parts[0] - parts[threads - 1] <= 1, "{parts:?}");
            }
        }
    }
}
