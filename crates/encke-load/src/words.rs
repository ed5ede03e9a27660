//! Formats numbers for people: `1,234,567`, `1.25 ms`, `18.3 MB`.

/// A count with thousands separators.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate or share: whole from 1,000 up, else with three significant digits.
pub fn number(value: f64) -> String {
    match value {
        value if value >= 999.5 => count(value.round() as u64),
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// A requested rate, without digits that were not given.
pub fn rate(value: f64) -> String {
    if value >= 1_000.0 { number(value) } else { value.to_string() }
}

/// A duration, in the unit that leaves three digits.
pub fn time(ns: u64) -> String {
    let ns = ns as f64;
    for (unit, name) in [(1e9, "s"), (1e6, "ms"), (1e3, "µs")] {
        // 999.6 µs are 1.00 ms.
        if ns >= 0.9995 * unit {
            return format!("{} {name}", number(ns / unit));
        }
    }
    format!("{ns:.0} ns")
}

/// Bytes, in decimal units.
pub fn bytes(number_of: u64) -> String {
    let value = number_of as f64;
    for (unit, name) in [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")] {
        if value >= 0.9995 * unit {
            return format!("{} {name}", number(value / unit));
        }
    }
    format!("{number_of} B")
}

/// A count and its noun: `1 connection`, `2 connections`.
pub fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1_000, 1_234_567].map(count)[..]);
        assert_eq!(
            ["0.00", "1.23", "9.99", "10.0", "99.9", "100", "999", "1,000", "12,346"],
            [0.0, 1.234, 9.99, 9.999, 99.91, 99.96, 999.4, 999.6, 12_345.6].map(number)[..]
        );
    }

    #[test]
    fn a_rate_is_told_as_it_was_asked_for() {
        assert_eq!(["0.5", "100", "20,000"], [0.5, 100.0, 20_000.0].map(rate)[..]);
    }

    #[test]
    fn times_and_bytes_have_the_unit_that_fits() {
        assert_eq!(
            ["0 ns", "999 ns", "1.00 µs", "1.50 ms", "1.00 ms", "2.00 s", "120 s"],
            [0, 999, 1_000, 1_500_000, 999_600, 2_000_000_000, 120_000_000_000].map(time)[..]
        );
        assert_eq!(["0 B", "999 B", "1.00 kB", "18.3 MB"], [0, 999, 1_000, 18_300_000].map(bytes)[..]);
        assert_eq!((plural(1, "thread"), plural(2, "thread")), ("1 thread".into(), "2 threads".into()));
    }
}
