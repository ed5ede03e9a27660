//! A snapshot of metrics: families of samples, from which both output formats are made.

use std::borrow::Cow;

use serde::Serialize;

use crate::histogram::Distribution;

/// The type of a family's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A number that only grows; the family's name ends in `_total`.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// A distribution of durations; the family's name ends in `_seconds`.
    Histogram,
}

/// One metric with all its labelled samples.
#[derive(Clone, PartialEq, Debug)]
pub struct Family {
    /// The name: `[a-zA-Z_:][a-zA-Z0-9_:]*`, with the base unit last: `encke_sent_bytes_total`.
    pub name: Cow<'static, str>,
    /// The help text: one sentence.
    pub help: Cow<'static, str>,
    /// The type of its numbers.
    pub kind: Kind,
    /// The samples; no two have the same labels.
    pub samples: Vec<Sample>,
}

/// One number of a family.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// Label names (`[a-zA-Z_][a-zA-Z0-9_]*`) and values, from sets of limited size.
    pub labels: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    /// The value.
    pub value: Value,
}

/// The value of a sample.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// Any number, in base units: seconds, bytes, ratios from 0 to 1.
    Number(f64),
    /// A distribution of durations.
    Distribution(Box<Distribution>),
}

impl Family {
    /// Creates a family of counters.
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        debug_assert!(name.ends_with("_total"), "a counter's name ends in _total: {name}");
        Self::new(name, help, Kind::Counter)
    }

    /// Creates a family of gauges.
    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(name, help, Kind::Gauge)
    }

    /// Creates a family of histograms.
    pub fn histogram(name: &'static str, help: &'static str) -> Self {
        debug_assert!(name.ends_with("_seconds"), "a histogram's name ends in _seconds: {name}");
        Self::new(name, help, Kind::Histogram)
    }

    fn new(name: &'static str, help: &'static str, kind: Kind) -> Self {
        debug_assert!(
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'))
                && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit()),
            "no metric may be called {name}"
        );
        Self { name: name.into(), help: help.into(), kind, samples: Vec::new() }
    }

    /// Adds the only sample, which has no labels.
    #[must_use]
    pub fn value(self, value: impl Into<Value>) -> Self {
        self.with(&[], value)
    }

    /// Adds a sample whose labels are fixed words of the program.
    #[must_use]
    pub fn with(mut self, labels: &[(&'static str, &'static str)], value: impl Into<Value>) -> Self {
        let labels = labels.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        self.samples.push(Sample { labels, value: value.into() });
        self
    }

    /// Adds a sample with one label whose value is found at run time, such as a listener's address.
    #[must_use]
    pub fn labelled(mut self, name: &'static str, label: impl Into<String>, value: impl Into<Value>) -> Self {
        let labels = vec![(name.into(), Cow::Owned(label.into()))];
        self.samples.push(Sample { labels, value: value.into() });
        self
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<i64> for Value {
    fn from(count: i64) -> Self {
        u64::try_from(count).map_or(Self::Number(count as f64), Self::Count)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<Distribution> for Value {
    fn from(distribution: Distribution) -> Self {
        Self::Distribution(Box::new(distribution))
    }
}
