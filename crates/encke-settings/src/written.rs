//! Values that stand as one piece of text in a settings file: how they are read, shown and described.

use std::fmt;
use std::str::FromStr;

use schemars::{Schema, json_schema};
use serde::de::{self, Deserializer, Visitor};

/// A value that is written as text, and perhaps as a whole number.
pub trait Written: FromStr<Err = String> + fmt::Display {
    /// Its name in the schema.
    const NAME: &'static str;
    /// "expected …", the end of every error.
    const EXPECTED: &'static str;
    /// Texts that are right.
    const EXAMPLES: &'static [&'static str];
    /// Whether a whole number may stand in place of text.
    const NUMBERS: bool = false;

    /// The value that a whole number means.
    fn of_number(_number: u64) -> Result<Self, String> {
        Err(Self::EXPECTED.into())
    }
}

/// Deserializes a value from its text, or from a number if it allows one.
///
/// # Errors
/// The text is not valid; the error says what is.
pub fn deserialize<'de, D: Deserializer<'de>, T: Written>(deserializer: D) -> Result<T, D::Error> {
    struct Text<T>(std::marker::PhantomData<T>);

    impl<T: Written> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTED.trim_start_matches("expected "))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
            if T::NUMBERS {
                T::of_number(number).map_err(E::custom)
            } else {
                // Most often the unit was forgotten, and the text says so best.
                number.to_string().parse().map_err(E::custom)
            }
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
            match u64::try_from(number) {
                Ok(number) => self.visit_u64(number),
                Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
            }
        }
    }

    deserializer.deserialize_any(Text(std::marker::PhantomData))
}

/// The JSON Schema of a value that is written as text.
pub fn schema<T: Written>() -> Schema {
    let examples = T::EXAMPLES;
    if T::NUMBERS {
        json_schema!({ "type": ["string", "integer"], "minimum": 0, "examples": examples })
    } else {
        json_schema!({ "type": "string", "examples": examples })
    }
}

/// Gives each type of the list the three traits that settings need, all by way of [`Written`].
#[macro_export]
macro_rules! written {
    ($($name:ty),+ $(,)?) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::written::deserialize(deserializer)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                <Self as $crate::written::Written>::NAME.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::written::schema::<Self>()
            }
        }
    )+};
}
