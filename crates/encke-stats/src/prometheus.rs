//! A snapshot of metrics as text for Prometheus (exposition format 0.0.4, which OpenMetrics parsers accept as well).

use std::fmt::Write as _;

use crate::family::{Family, Kind, Value};
use crate::histogram::Distribution;

/// The content type of [`render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds of a histogram's buckets in nanoseconds: 1, 2.5, 5 in each decade from 10 µs to 10 s. Few enough to be stored
/// once per scrape and label, and close enough that an interpolated quantile is in the right third of a decade.
const BOUNDS_NS: [u64; 19] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Renders a snapshot. Families without samples are left out.
///
/// ```
/// use encke_stats::{Family, prometheus};
///
/// let orders = Family::counter("shop_orders_total", "Orders placed.").value(3_u64);
/// let text = "# HELP shop_orders_total Orders placed.\n# TYPE shop_orders_total counter\nshop_orders_total 3\n";
/// assert_eq!(prometheus::render(&[orders]), text);
/// ```
pub fn render(families: &[Family]) -> String {
    let mut text = String::with_capacity(families.len() * 256);
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        text.push_str("# HELP ");
        text.push_str(&family.name);
        text.push(' ');
        push_escaped(&mut text, &family.help, false);
        text.push_str("\n# TYPE ");
        text.push_str(&family.name);
        text.push(' ');
        text.push_str(kind);
        text.push('\n');
        for sample in &family.samples {
            match &sample.value {
                Value::Distribution(distribution) => {
                    push_distribution(&mut text, &family.name, &sample.labels, distribution);
                }
                Value::Count(count) => {
                    push_name(&mut text, &family.name, &sample.labels, None);
                    push_line_end(&mut text, count);
                }
                Value::Number(number) => {
                    push_name(&mut text, &family.name, &sample.labels, None);
                    push_line_end(&mut text, PrometheusNumber(*number));
                }
            }
        }
    }
    text
}

type LabelPairs = [(std::borrow::Cow<'static, str>, std::borrow::Cow<'static, str>)];

fn push_distribution(text: &mut String, name: &str, labels: &LabelPairs, distribution: &Distribution) {
    let bucket = format!("{name}_bucket");
    for bound in BOUNDS_NS {
        push_name(text, &bucket, labels, Some(&seconds(bound).to_string()));
        push_line_end(text, distribution.count_up_to(bound));
    }
    push_name(text, &bucket, labels, Some("+Inf"));
    push_line_end(text, distribution.count());
    push_name(text, &format!("{name}_sum"), labels, None);
    push_line_end(text, PrometheusNumber(distribution.sum_ns() as f64 / 1e9));
    push_name(text, &format!("{name}_count"), labels, None);
    push_line_end(text, distribution.count());
}

fn push_name(text: &mut String, name: &str, labels: &LabelPairs, upper_end: Option<&str>) {
    text.push_str(name);
    let all = labels
        .iter()
        .map(|(name, value)| (name.as_ref(), value.as_ref()))
        .chain(upper_end.map(|end| ("le", end)));
    let mut open = '{';
    for (label, value) in all {
        text.push(open);
        text.push_str(label);
        text.push_str("=\"");
        push_escaped(text, value, true);
        text.push('"');
        open = ',';
    }
    if open == ',' {
        text.push('}');
    }
}

fn push_line_end(text: &mut String, value: impl std::fmt::Display) {
    writeln!(text, " {value}").expect("a String takes everything");
}

/// Appends text. Backslashes and line ends are escaped everywhere, quotes only in label values.
fn push_escaped(text: &mut String, value: &str, in_label: bool) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if in_label => text.push_str("\\\""),
            other => text.push(other),
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A number in the syntax of Prometheus, which spells infinities differently from Rust.
struct PrometheusNumber(f64);

impl std::fmt::Display for PrometheusNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == f64::INFINITY {
            f.write_str("+Inf")
        } else if self.0 == f64::NEG_INFINITY {
            f.write_str("-Inf")
        } else {
            self.0.fmt(f)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_gauges_have_help_type_and_labels() {
        let families = [
            Family::counter("encke_http_requests_total", "Requests answered.")
                .with(&[("status", "2xx")], 41u64)
                .with(&[("status", "4xx")], 1u64),
            Family::gauge("encke_up_seconds", "Since the start.").value(1.5),
            Family::gauge("encke_balance", "May be negative.").value(-2i64),
            Family::gauge("encke_nothing", "Has no sample."),
        ];
        assert_eq!(
            render(&families),
            "# HELP encke_http_requests_total Requests answered.\n\
             # TYPE encke_http_requests_total counter\n\
             encke_http_requests_total{status=\"2xx\"} 41\n\
             encke_http_requests_total{status=\"4xx\"} 1\n\
             # HELP encke_up_seconds Since the start.\n\
             # TYPE encke_up_seconds gauge\n\
             encke_up_seconds 1.5\n\
             # HELP encke_balance May be negative.\n\
             # TYPE encke_balance gauge\n\
             encke_balance -2\n"
        );
    }

    #[test]
    fn what_would_break_a_line_or_a_label_is_escaped() {
        let family = Family { help: "two\nlines, a \\ and \"quotes\"".into(), ..Family::gauge("g", "") }
            .labelled("path", "a\"b\\c\nd", 1u64);
        assert_eq!(
            render(&[family]),
            "# HELP g two\\nlines, a \\\\ and \"quotes\"\n# TYPE g gauge\ng{path=\"a\\\"b\\\\c\\nd\"} 1\n"
        );
    }

    #[test]
    fn a_histogram_has_growing_buckets_a_sum_and_a_count() {
        let mut distribution = Distribution::new();
        for ns in [9_000, 10_000, 3_000_000, 60_000_000_000] {
            distribution.record(ns);
        }
        let text = render(&[Family::histogram("encke_request_seconds", "How long.").value(distribution)]);
        let bucket = |end: &str| {
            let start = format!("encke_request_seconds_bucket{{le=\"{end}\"}} ");
            text.lines()
                .find_map(|line| line.strip_prefix(&start))
                .unwrap_or_else(|| panic!("no {end} in {text}"))
        };
        // 10,000 ns shares its bucket with values up to 10,111, so it counts as above the bound.
        assert_eq!(bucket("0.00001"), "1");
        assert_eq!(bucket("0.000025"), "2");
        assert_eq!(bucket("0.005"), "3");
        assert_eq!(bucket("10"), "3");
        assert_eq!(bucket("+Inf"), "4");
        assert!(
            text.ends_with("encke_request_seconds_sum 60.003019\nencke_request_seconds_count 4\n"),
            "{text}"
        );
        let counts: Vec<u64> = text
            .lines()
            .filter(|line| line.contains("_bucket"))
            .map(|line| {
                line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("ends in a number")
            })
            .collect();
        assert_eq!(counts.len(), BOUNDS_NS.len() + 1);
        assert!(counts.is_sorted());
    }

    #[test]
    fn infinities_are_spelt_as_prometheus_does() {
        let family = Family::gauge("g", "").value(f64::INFINITY).labelled("l", "1", f64::NEG_INFINITY);
        assert!(render(&[family]).ends_with("g +Inf\ng{l=\"1\"} -Inf\n"));
    }
}
