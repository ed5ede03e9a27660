//! Values written as text in a settings file: parsing, display and schema.

use std::fmt;
use std::str::FromStr;

use schemars::{Schema, json_schema};
use serde::de::{self, Deserializer, Visitor};

use crate::ValueError;

/// A value written as text, and perhaps as a whole number.
pub trait Written: FromStr<Err = ValueError> + fmt::Display {
    /// The name in the schema.
    const NAME: &'static str;
    /// The end of every error: "expected …".
    const EXPECTED: &'static str;
    /// Valid texts.
    const EXAMPLES: &'static [&'static str];
    /// Whether a whole number may replace the text in the schema. A number is parsed as its decimal text.
    const NUMBERS: bool = false;
}

/// Deserializes a value from its text, or from a number if the type allows one.
///
/// # Errors
/// The text is not valid; the error says what is expected.
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
            // If the type allows no number, the unit is probably missing: the parser of texts reports that best.
            self.visit_str(&number.to_string())
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

/// The JSON Schema of a value written as text.
pub fn schema<T: Written>() -> Schema {
    let examples = T::EXAMPLES;
    if T::NUMBERS {
        json_schema!({ "type": ["string", "integer"], "minimum": 0, "examples": examples })
    } else {
        json_schema!({ "type": "string", "examples": examples })
    }
}

/// Implements `Deserialize`, `Serialize` and `JsonSchema` for each listed type, by means of [`Written`].
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
