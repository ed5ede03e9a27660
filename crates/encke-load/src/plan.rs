//! The plan of a run: requests, servers, connections, pace and end.
//!
//! A plan is a value: `stop` × `pace` × the mix of messages. One loop (`requests.rs`) runs all combinations, so a fix in it
//! applies to all of them.

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

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Address of the server.
    pub server: Address,
    /// Local addresses that connections are made from, in rotation. Empty: chosen by [`Plan::placed`].
    pub sources: Vec<IpAddr>,
    /// Creates the TLS sessions; `None` for plaintext.
    pub tls: Option<Arc<dyn Sessions>>,
    /// Requests to send.
    pub mix: Mix,
    /// Several servers that share connections, requests and rate; `server`, `tls` and `mix` then equal the first server's.
    /// Empty: one server, described by these fields.
    pub targets: Vec<Target>,
    /// When the run ends.
    pub stop: Stop,
    /// When requests begin.
    pub pace: Pace,
    /// Initial part of the run that is not counted.
    pub warm_up: WarmUp,
    /// Connections, over all threads and servers.
    pub connections: u32,
    /// Threads; each has its share of connections, requests and rate.
    pub threads: u16,
    /// Protocol of the connections.
    pub protocol: Protocol,
    /// Maximum open requests per connection: pipelined (HTTP/1.1) or as concurrent streams (HTTP/2).
    pub pipeline: u16,
    /// Requests per connection before it is closed and replaced; 1 means one connection per request.
    pub requests_per_connection: Option<u64>,
    /// Timeout of a request. A request that exceeds it fails, and its connection is closed.
    pub timeout: Duration,
    /// How long requests that are open at the end may still take.
    pub drain: Duration,
    /// Status codes that count as success.
    pub expected: Vec<RangeInclusive<u16>>,
    /// Expected body. A response with another body counts as wrong.
    pub body: Option<Expected>,
    /// Reactor back end.
    pub backend: Backend,
    /// Seed of the random generator. The same seed repeats the same choices and arrivals.
    pub seed: u64,
}

/// One of several servers.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name in reports.
    pub name: String,
    /// Address of the server.
    pub server: Address,
    /// Creates the TLS sessions; `None` for plaintext.
    pub tls: Option<Arc<dyn Sessions>>,
    /// Requests to send to this server.
    pub mix: Mix,
    /// Weight of this server's share of connections, requests and rate, relative to the other servers; not 0.
    pub weight: u64,
}

/// Divides a number by weights into parts that add up to it. Each part is at least `least`, if `whole` suffices.
fn divided(whole: u64, weights: &[u64], least: u64) -> Vec<u64> {
    let sum = weights.iter().sum::<u64>().max(1);
    let spread = whole.saturating_sub(least * weights.len() as u64);
    // The remainder of rounding down goes to the parts with the largest fractions.
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

/// Protocol spoken with the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// HTTP/1.1, or HTTP/1.0 if the messages use it.
    #[default]
    Http1,
    /// HTTP/2 without negotiation: the only protocol offered in TLS, and prior knowledge in plaintext (RFC 9113 section 3.3).
    Http2,
}

impl Protocol {
    /// Name in saved runs.
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
    /// After this number of requests.
    Count(u64),
    /// After this duration.
    After(Duration),
    /// When it is halted ([`crate::run::RunHandle::halt`]).
    Told,
}

/// Initial part of a run that is not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WarmUp {
    /// No warm-up.
    #[default]
    None,
    /// This number of requests, before the plan's own.
    Count(u64),
    /// Requests that begin within this duration. The plan's own duration begins after it.
    For(Duration),
}

impl Plan {
    /// The default plan: ten seconds of a closed loop on 64 connections and one thread.
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
            backend: Backend::auto().0,
            seed: 1,
        }
    }

    /// Fills in `sources` if none are given. For a server on 127.0.0.0/8 these are loopback addresses, as many as it takes for
    /// each to have enough free ports. For others the system chooses. With several servers this happens per server, at the
    /// begin of the run.
    #[must_use]
    pub fn placed(self) -> Self {
        if !self.targets.is_empty() {
            return self;
        }
        Self { sources: Sources::of(&self.server, &self.sources, self.connections.into()), ..self }
    }

    /// One placed plan per server. Each gets at least one connection per thread, so `connections` must suffice for that.
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
            // Parts of a 32-bit number, so the cast holds.
            connections: connections[place] as u32,
            stop: requests.get(place).map_or(self.stop, |count| Stop::Count(*count)),
            warm_up: warm_up.get(place).map_or(self.warm_up, |count| WarmUp::Count(*count)),
            pace: match &self.pace {
                Pace::Closed => Pace::Closed,
                Pace::Open(rate, arrivals) => {
                    Pace::Open(rate.part(target.weight as f64 / whole as f64), *arrivals)
                }
            },
            // Each server has its own random sequence.
            seed: self.seed.wrapping_add(place as u64),
            ..self.clone()
        };
        self.targets.iter().enumerate().map(part).map(Self::placed).collect()
    }

    /// Whether each request has its own connection.
    pub(crate) fn one_shot(&self) -> bool {
        self.requests_per_connection == Some(1)
    }
}

/// One line: kind of loop, connections and threads.
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
            Some(1) => "one per request".to_owned(),
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

/// One thread's share of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlanShare {
    /// Number of the thread, from 0.
    pub(crate) number: usize,
    pub(crate) threads: usize,
}

impl PlanShare {
    /// This thread's part of a number that all threads share. Parts differ by at most one and add up to the whole.
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
                    (0..threads).map(|number| PlanShare { number, threads }.of(whole)).collect();
                assert_eq!(parts.iter().sum::<u64>(), whole);
                assert!(parts[0] - parts[threads - 1] <= 1, "{parts:?}");
            }
        }
    }
}
