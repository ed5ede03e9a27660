//! Values written as text or as a table: `"http://a"` is short for `{ url = "http://a" }`.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor, value};

use crate::ValueError;

/// A table with a short form.
pub trait ShortForm: FromStr<Err = ValueError> {
    /// The type of the text, for the schema.
    type Text: JsonSchema;
    /// The end of an error: "expected …".
    const EXPECTED: &'static str;
}

/// A value written as text or as a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(transparent)]
pub struct TextOrTable<T>(pub T);

impl<'de, T: Deserialize<'de> + ShortForm> Deserialize<'de> for TextOrTable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + ShortForm> Visitor<'de> for Either<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(value::MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_any(Either(PhantomData)).map(Self)
    }
}

impl<T: JsonSchema + ShortForm> JsonSchema for TextOrTable<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let text = generator.subschema_for::<T::Text>();
        let table = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [text, table] })
    }
}

/// Deserializes a list of values, each as text or as a table. A single value is a list of one.
///
/// # Errors
/// A value is invalid; the error says what is expected.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de> + ShortForm>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct OneOrMany<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de> + ShortForm> Visitor<'de> for OneOrMany<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}, or a list of them", T::EXPECTED.replacen(", or ", ", ", 1))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![text.parse().map_err(E::custom)?])
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<Vec<T>, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<T>, A::Error> {
            Ok(vec![T::deserialize(value::MapAccessDeserializer::new(map))?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut values = Vec::new();
            while let Some(TextOrTable(value)) = list.next_element::<TextOrTable<T>>()? {
                values.push(value);
            }
            Ok(values)
        }
    }

    deserializer.deserialize_any(OneOrMany(PhantomData))
}
