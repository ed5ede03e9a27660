//! Conditions for a run: `p99<10ms`, `errors<0.1%`, `rate>=20k`, `reach=100%`, joined by commas.

use std::fmt;
use std::str::FromStr;

use encke_stats::Distribution;

use crate::input::InputError;
use crate::report::Report;
use crate::words;

/// Conditions that must all hold.
#[derive(Clone, PartialEq, Debug)]
pub struct Slo(Vec<Condition>);

#[derive(Clone, PartialEq, Debug)]
struct Condition {
    text: String,
    metric: SloMetric,
    relation: Relation,
    /// In nanoseconds, as a share, or per second.
    bound: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum SloMetric {
    /// A percentile of latency, as a share; 1 is the maximum.
    Latency(f64),
    Mean,
    /// Requests without a complete response or with a wrong one, as a share of all that were sent; in a push run errors of
    /// connections and rejected messages.
    Errors,
    /// Responses per second, or receipts per second.
    Rate,
    /// Receipts, as a share of those expected.
    Reach,
}

/// Figures that conditions refer to. `None` means not measured; no condition holds for it.
pub trait Figures {
    /// Latency of users.
    fn latency(&self) -> &Distribution;

    /// Requests without a response, or receipts that are missing. They count as slower than every latency.
    fn missing(&self) -> u64;

    /// Errors, as a share of all attempts.
    fn error_share(&self) -> Option<f64>;

    /// Results per second: responses or receipts.
    fn rate(&self) -> Option<f64>;

    /// Receipts, as a share of those expected.
    fn reach(&self) -> Option<f64>;
}

impl Figures for Report {
    fn latency(&self) -> &Distribution {
        self.outcome.totals.latency()
    }

    fn missing(&self) -> u64 {
        self.outcome.totals.unanswered()
    }

    fn error_share(&self) -> Option<f64> {
        let totals = &self.outcome.totals;
        (totals.finished + totals.unanswered() > 0).then(|| totals.error_share())
    }

    fn rate(&self) -> Option<f64> {
        let totals = &self.outcome.totals;
        (totals.finished + totals.unanswered() > 0).then(|| Self::rate(self))
    }

    fn reach(&self) -> Option<f64> {
        None
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Relation {
    Below,
    AtMost,
    Above,
    AtLeast,
}

/// A condition that did not hold.
#[derive(Clone, PartialEq, Debug)]
pub struct Missed {
    condition: String,
    found: String,
}

impl Slo {
    /// Whether a condition limits the errors of a run, so that a run with fewer errors is as intended.
    pub fn limits_errors(&self) -> bool {
        self.0.iter().any(|condition| condition.metric == SloMetric::Errors)
    }

    /// The conditions that a run did not meet. A figure that was not measured meets none.
    pub fn missed(&self, figures: &impl Figures) -> Vec<Missed> {
        let missed = self.0.iter().filter_map(|condition| {
            let found = condition.metric.of(figures);
            let holds = found.is_some_and(|found| condition.relation.holds(found, condition.bound));
            let found = found.map_or_else(|| "unknown".into(), |found| condition.metric.words(found));
            (!holds).then(|| Missed { condition: condition.text.clone(), found })
        });
        missed.collect()
    }
}

impl SloMetric {
    fn of(self, figures: &impl Figures) -> Option<f64> {
        let latency = figures.latency();
        match self {
            Self::Latency(share) => quantile_of_all(latency, figures.missing(), share),
            Self::Mean => latency.mean_ns(),
            Self::Errors => figures.error_share(),
            Self::Rate => figures.rate(),
            Self::Reach => figures.reach(),
        }
    }

    fn words(self, value: f64) -> String {
        match self {
            Self::Latency(_) if value.is_infinite() => "no response".to_owned(),
            Self::Latency(_) | Self::Mean => words::time(value as u64),
            Self::Errors | Self::Reach => words::percent(value),
            Self::Rate => format!("{} a second", words::number(value)),
        }
    }
}

/// A quantile of latencies in ns, of which `missing` are above all others. `None` if there is no latency at all.
fn quantile_of_all(latency: &Distribution, missing: u64, share: f64) -> Option<f64> {
    let count = latency.count();
    let rank = (share * (count + missing) as f64).ceil() as u64;
    if count == 0 {
        None
    } else if rank > count {
        Some(f64::INFINITY)
    } else if share >= 1.0 {
        Some(latency.max_ns() as f64)
    } else {
        // Half a rank less, so that rounding does not reach the next one.
        latency.quantile_ns((rank as f64 - 0.5).max(0.0) / count as f64).map(|ns| ns as f64)
    }
}

impl Relation {
    fn holds(self, found: f64, bound: f64) -> bool {
        match self {
            Self::Below => found < bound,
            Self::AtMost => found <= bound,
            Self::Above => found > bound,
            Self::AtLeast => found >= bound,
        }
    }
}

impl FromStr for Slo {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        text.split(',').map(|part| Condition::parse(part.trim())).collect::<Result<_, _>>().map(Self)
    }
}

impl Condition {
    fn parse(text: &str) -> Result<Self, InputError> {
        let wrong = || InputError::Condition(text.to_owned());
        let at = text.find(['<', '>', '=']).ok_or_else(wrong)?;
        let (name, rest) = text.split_at(at);
        let (relation, bound) = match rest.as_bytes() {
            // Reach cannot exceed 100 %, so `=` means at least.
            [b'=', ..] if name.trim() == "reach" => (Relation::AtLeast, &rest[1..]),
            [b'=', ..] => return Err(wrong()),
            [b'<', b'=', ..] => (Relation::AtMost, &rest[2..]),
            [b'>', b'=', ..] => (Relation::AtLeast, &rest[2..]),
            [b'<', ..] => (Relation::Below, &rest[1..]),
            _ => (Relation::Above, &rest[1..]),
        };
        let metric = match name.trim() {
            "max" => SloMetric::Latency(1.0),
            "mean" => SloMetric::Mean,
            "errors" => SloMetric::Errors,
            "rate" => SloMetric::Rate,
            "reach" => SloMetric::Reach,
            name => {
                let percent: f64 =
                    name.strip_prefix('p').and_then(|digits| digits.parse().ok()).ok_or_else(wrong)?;
                if !(percent > 0.0 && percent < 100.0) {
                    return Err(wrong());
                }
                SloMetric::Latency(percent / 100.0)
            }
        };
        let units: &[(&str, f64)] = match metric {
            SloMetric::Latency(_) | SloMetric::Mean => {
                &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)]
            }
            SloMetric::Errors | SloMetric::Reach => &[("%", 0.01), ("", 1.0)],
            SloMetric::Rate => &[("k", 1e3), ("M", 1e6), ("", 1.0)],
        };
        let bound = bound.trim();
        let digits = bound.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, unit) = bound.split_at(digits);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let unit = units.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
        Ok(Self { text: text.to_owned(), metric, relation, bound: number * unit.1 })
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "missed: {} (measured {})", self.condition, self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn conditions_are_compared_with_what_was_found() {
        // 1,000 responses of 1 ms within 10 s, 10 of them wrong, no failures.
        let report = example();
        for (text, missed) in [
            ("p99<10ms", 0),
            ("p99 < 1us", 1),
            ("p99.9<=1s, max<2s, mean<1.1ms", 0),
            ("errors<0.1%", 1),
            ("errors<=1%", 0),
            ("errors<0.011", 0),
            ("rate>=100", 0),
            ("rate>0.1k", 1),
            ("p50<1ms,rate>1M,errors<1%", 3),
            // Runs of requests have no reach.
            ("reach=100%", 1),
        ] {
            let slo: Slo = text.parse().unwrap_or_else(|error| panic!("{error}"));
            let found = slo.missed(&report);
            assert_eq!(found.len(), missed, "{text}: {found:?}");
        }
        let slo: Slo = "errors<0.5%".parse().expect("a condition");
        assert_eq!(slo.missed(&report)[0].to_string(), "missed: errors<0.5% (measured 1.00 %)");
    }

    #[test]
    fn unanswered_requests_are_slower_than_all_others_and_errors() {
        // 1,000 responses of 1 ms, 10 of them wrong.
        let mut report = example();
        (report.outcome.totals.failed, report.outcome.totals.aborted) = (15, 5);
        for (text, found) in [
            ("p98<10ms", None),
            ("p99<10ms", Some("no response")),
            ("max<10s", Some("no response")),
            ("mean<10ms", None),
            ("errors<2%", Some("2.94 %")),
            ("errors<3%", None),
        ] {
            let slo: Slo = text.parse().unwrap_or_else(|error| panic!("{error}"));
            let missed = slo.missed(&report);
            assert_eq!(missed.first().map(|missed| missed.found.as_str()), found, "{text}");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in [
            "",
            "p99",
            "p99<",
            "p99<10",
            "p0<1ms",
            "p100<1ms",
            "errors<1ms",
            "rate>=5%",
            "x<1",
            "p99=1ms",
            "reach=all",
        ] {
            let error = text.parse::<Slo>().expect_err(text).to_string();
            assert!(error.contains("invalid condition"), "{text}: {error}");
        }
    }
}
