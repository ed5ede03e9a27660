//! Durations, sizes and rates as text: `10s`, `64KiB`, `1KiB/s`; and `off` in place of any.
//!
//! A duration or rate always has a unit: `head_time = 10` could be seconds or milliseconds, so it is rejected. A size may be a
//! plain number of bytes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor, value};
use serde::ser::{Serialize, Serializer};

use crate::written::Written;
use crate::{ValueError, written};

/// A duration, in whole nanoseconds: `250ms`, `10s`, `1m30s`, `2h`, `7d`.
///
/// ```
/// use encke_settings::Period;
///
/// assert_eq!("1m30s".parse(), Ok(Period::seconds(90)));
/// assert_eq!(Period::seconds(90).to_string(), "1m30s");
/// assert!("90".parse::<Period>().is_err(), "a unit is required");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Period(u64);

/// The longest period, ten years. It fits 58 times into the 64 bits of nanoseconds that hold deadlines.
const PERIOD_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

const PERIOD_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Period {
    /// Creates a period of whole seconds, saturating.
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Creates a period of whole milliseconds, saturating.
    pub const fn milliseconds(milliseconds: u64) -> Self {
        Self(milliseconds.saturating_mul(1_000_000))
    }

    /// The period as the standard library's type.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// The period in nanoseconds.
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }
}

impl FromStr for Period {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::invalid("duration", text, Self::EXPECTED);
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(wrong());
        }
        if rest.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ValueError::NoUnit(text.into()));
        }
        let mut total_ms = 0u64;
        let mut last_unit_ms = u64::MAX;
        while !rest.is_empty() {
            let (number, tail) = split_number(rest).ok_or_else(wrong)?;
            let unit_len = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
            let (unit, tail) = tail.split_at(unit_len);
            let &(_, unit_ms) = PERIOD_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
            if unit_ms >= last_unit_ms {
                return Err(wrong());
            }
            last_unit_ms = unit_ms;
            total_ms = number
                .checked_mul(unit_ms)
                .and_then(|part| total_ms.checked_add(part))
                .filter(|&sum| sum <= PERIOD_MAX.as_millis() as u64)
                .ok_or_else(|| ValueError::TooLong(text.into()))?;
            rest = tail;
        }
        Ok(Self::milliseconds(total_ms))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0 / 1_000_000;
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, unit_ms) in PERIOD_UNITS {
            if rest >= unit_ms {
                write!(f, "{}{unit}", rest / unit_ms)?;
                rest %= unit_ms;
            }
        }
        Ok(())
    }
}

impl Written for Period {
    const NAME: &'static str = "Period";
    const EXPECTED: &'static str = "expected a number and a unit, such as 250ms, 10s, 1m30s or 2h";
    const EXAMPLES: &'static [&'static str] = &["250ms", "10s", "1m30s", "2h"];
}

/// A number of bytes: `64KiB`, `1.5 MB`, `4096`.
///
/// ```
/// use encke_settings::ByteSize;
///
/// assert_eq!("64KiB".parse(), Ok(ByteSize::kib(64)));
/// assert_eq!("1.5 MB".parse(), Ok(ByteSize::of(1_500_000)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByteSize(u64);

const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl ByteSize {
    /// Creates a size of `bytes`.
    pub const fn of(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Creates a size of `kib` times 1024 bytes.
    pub const fn kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::invalid("size", text, Self::EXPECTED);
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, unit) = trimmed.split_at(digits);
        let unit = unit.trim_start();
        let factor = match SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
            Some(&(_, factor)) => factor,
            None if unit.is_empty() => 1,
            None => {
                let ambiguous = ["K", "M", "G", "T"].iter().any(|prefix| prefix.eq_ignore_ascii_case(unit));
                return Err(if ambiguous { ValueError::AmbiguousUnit(text.into()) } else { wrong() });
            }
        };
        // A fraction is multiplied in whole numbers before it is cut: 1.5MiB is exactly 1,572,864 bytes.
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        if fraction.len() > 6 || fraction.is_empty() {
            return Err(wrong());
        }
        let scale = 10u128.pow(fraction.len() as u32);
        let parse = |digits: &str| digits.parse::<u128>().map_err(|_| wrong());
        let (whole, fraction) = (parse(whole)?, parse(fraction)?);
        let bytes = whole
            .checked_mul(scale)
            .and_then(|scaled| scaled.checked_add(fraction))
            .and_then(|scaled| scaled.checked_mul(u128::from(factor)))
            .map(|scaled| scaled / scale);
        bytes
            .and_then(|bytes| i64::try_from(bytes).ok())
            .map(|bytes| Self(bytes as u64))
            .ok_or_else(|| ValueError::TooLarge(text.into()))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = SIZE_UNITS
            .into_iter()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor))
            .unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl Written for ByteSize {
    const NAME: &'static str = "ByteSize";
    const EXPECTED: &'static str = "expected a number of bytes or a number and a unit, such as 64KiB or 1MB";
    const EXAMPLES: &'static [&'static str] = &["64KiB", "1.5MB", "4096"];
    const NUMBERS: bool = true;
}

/// A rate in bytes a second: `1KiB/s`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByteRate(u64);

impl ByteRate {
    /// Creates a rate in bytes a second.
    pub const fn of(bytes_per_second: u64) -> Self {
        Self(bytes_per_second)
    }

    /// The rate in bytes a second.
    pub const fn bytes_per_second(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteRate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let size = text
            .trim()
            .strip_suffix("/s")
            .ok_or_else(|| ValueError::invalid("rate", text, Self::EXPECTED))?;
        Ok(Self(size.parse::<ByteSize>()?.bytes()))
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", ByteSize(self.0))
    }
}

impl Written for ByteRate {
    const NAME: &'static str = "Rate";
    const EXPECTED: &'static str = "expected a size a second, such as 240B/s or 1KiB/s";
    const EXAMPLES: &'static [&'static str] = &["240B/s", "1KiB/s"];
}

written! { Period, ByteSize, ByteRate }

/// A value, or `off`.
///
/// ```
/// use encke_settings::{OrOff, Period};
///
/// assert_eq!("off".parse::<OrOff<Period>>().map(OrOff::on), Ok(None));
/// assert_eq!("10s".parse::<OrOff<Period>>().map(OrOff::on), Ok(Some(Period::seconds(10))));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OrOff<T> {
    /// `off`: no value.
    #[default]
    Off,
    /// A value.
    On(T),
}

impl<T> OrOff<T> {
    /// The value, if any.
    pub fn on(self) -> Option<T> {
        match self {
            Self::Off => None,
            Self::On(value) => Some(value),
        }
    }

    /// Converts to a reference to the value.
    pub fn as_ref(&self) -> OrOff<&T> {
        match self {
            Self::Off => OrOff::Off,
            Self::On(value) => OrOff::On(value),
        }
    }
}

impl<T: FromStr<Err = ValueError>> FromStr for OrOff<T> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "off" { Ok(Self::Off) } else { Ok(Self::On(text.parse()?)) }
    }
}

impl<T: fmt::Display> fmt::Display for OrOff<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::On(value) => value.fmt(f),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrOff<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = OrOff<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or \"off\"")
            }

            fn visit_bool<E: serde::de::Error>(self, on: bool) -> Result<Self::Value, E> {
                if on {
                    T::deserialize(on.into_deserializer()).map(OrOff::On)
                } else {
                    Err(E::custom("write \"off\" instead of false"))
                }
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
                T::deserialize(number.into_deserializer()).map(OrOff::On)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
                T::deserialize(number.into_deserializer()).map(OrOff::On)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                if text == "off" {
                    Ok(OrOff::Off)
                } else {
                    T::deserialize(text.into_deserializer()).map(OrOff::On)
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(value::MapAccessDeserializer::new(map)).map(OrOff::On)
            }
        }

        deserializer.deserialize_any(Either(std::marker::PhantomData))
    }
}

impl<T: Serialize> Serialize for OrOff<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            Self::On(value) => value.serialize(serializer),
        }
    }
}

impl<T: JsonSchema> JsonSchema for OrOff<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("OrOff_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [value, { "const": "off" }] })
    }
}

/// Deserializes a value from `min` to `max`, both included.
///
/// # Errors
/// The value is invalid, or outside this range.
pub fn within<'de, D, T>(deserializer: D, min: T, max: T) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + PartialOrd + fmt::Display,
{
    let value = T::deserialize(deserializer)?;
    if value < min {
        return Err(D::Error::custom(format!("{value} is less than {min}, the least that is allowed")));
    }
    if value > max {
        return Err(D::Error::custom(format!("{value} is more than {max}, the most that is allowed")));
    }
    Ok(value)
}

fn split_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_read_in_every_unit_and_mixture() {
        for (text, ms) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0s", 0),
            (" 10s ", 10_000),
        ] {
            assert_eq!(text.parse::<Period>().map(|period| period.duration().as_millis()), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_period_is_refused_with_a_reason() {
        for (text, reason) in [
            ("10", "has no unit; write 10s"),
            ("", "invalid duration"),
            ("s", "invalid duration"),
            ("10 s", "invalid duration"),
            ("10sec", "invalid duration"),
            ("-1s", "invalid duration"),
            ("1.5s", "invalid duration"),
            ("30s1m", "invalid duration"),
            ("1s1s", "invalid duration"),
            ("1s ", ""),
            ("99999999d", "longer than ten years"),
            ("18446744073709551615d", "longer than ten years"),
            ("18446744073709551616s", "invalid duration"),
        ] {
            match text.parse::<Period>() {
                Ok(_) => assert_eq!(reason, "", "{text}"),
                Err(error) => {
                    assert!(!reason.is_empty() && error.to_string().contains(reason), "{text}: {error}");
                }
            }
        }
    }

    #[test]
    fn sizes_are_read_in_both_kinds_of_units() {
        for (text, bytes) in [
            ("64KiB", 65_536),
            ("64 kib", 65_536),
            ("1 MB", 1_000_000),
            ("1.5MiB", 1_572_864),
            ("4096", 4_096),
            ("0", 0),
            ("17B", 17),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(text.parse::<ByteSize>().map(ByteSize::bytes), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_a_reason() {
        for (text, reason) in [
            ("64K", "write 64KiB (units of 1024) or 64kB"),
            ("1m", "write 1MiB (units of 1024) or 1MB"),
            ("", "invalid size"),
            ("KiB", "invalid size"),
            ("-1", "invalid size"),
            ("1.2.3KiB", "invalid size"),
            ("1.KiB", "invalid size"),
            ("1.0000001KiB", "invalid size"),
            ("64 bananas", "invalid size"),
            ("99999999999TiB", "more than any file"),
        ] {
            let error = text.parse::<ByteSize>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn rates_are_sizes_a_second() {
        assert_eq!("1KiB/s".parse::<ByteRate>().map(ByteRate::bytes_per_second), Ok(1_024));
        assert!("1KiB".parse::<ByteRate>().expect_err("no /s").to_string().contains("invalid rate"));
    }

    #[test]
    fn what_is_written_reads_back_as_the_same() {
        for ms in [0, 1, 999, 1_000, 90_000, 93_784_005, 3_600_000, 86_400_000] {
            let period = Period::milliseconds(ms);
            assert_eq!(period.to_string().parse(), Ok(period), "{period}");
        }
        for bytes in [0, 1, 1_000, 1_024, 1_025, 65_536, 1_000_000, 1 << 30, i64::MAX as u64] {
            let (size, rate) = (ByteSize(bytes), ByteRate(bytes));
            assert_eq!(size.to_string().parse(), Ok(size), "{size}");
            assert_eq!(rate.to_string().parse(), Ok(rate), "{rate}");
        }
    }
}
