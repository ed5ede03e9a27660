//! A snapshot of metrics as JSON, for `jq` and for the console.

use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

use crate::family::{Family, Sample, Value};
use crate::histogram::Distribution;
use crate::source::{Cell, Row};

/// Renders a snapshot as `{"schema": 1, "families": [{"name", "help", "kind", "samples": [{"labels", "value"}]}]}`. The value
/// of a histogram is `{"count", "sum_ns", "max_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns"}`; its quantiles are `null` while
/// it is empty. Keys are only ever added to a schema.
pub fn render(families: &[Family]) -> String {
    #[derive(serde::Serialize)]
    struct Snapshot<'a> {
        schema: u32,
        families: &'a [Family],
    }
    serde_json::to_string(&Snapshot { schema: 1, families }).expect("every key is a string")
}

impl Serialize for Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut family = serializer.serialize_struct("Family", 4)?;
        family.serialize_field("name", &self.name)?;
        family.serialize_field("help", &self.help)?;
        family.serialize_field("kind", &self.kind)?;
        family.serialize_field("samples", &self.samples)?;
        family.end()
    }
}

impl Serialize for Sample {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Labels<'a>(&'a Sample);
        impl Serialize for Labels<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.labels.iter().map(|(name, value)| (name, value)))
            }
        }
        let mut sample = serializer.serialize_struct("Sample", 2)?;
        sample.serialize_field("labels", &Labels(self))?;
        sample.serialize_field("value", &self.value)?;
        sample.end()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Distribution(distribution) => distribution.serialize(serializer),
        }
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, cell)| (name, cell)))
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(7))?;
        map.serialize_entry("count", &self.count())?;
        map.serialize_entry("sum_ns", &u64::try_from(self.sum_ns()).unwrap_or(u64::MAX))?;
        map.serialize_entry("max_ns", &self.max_ns())?;
        for (key, quantile) in [("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99), ("p999_ns", 0.999)] {
            map.serialize_entry(key, &self.quantile_ns(quantile))?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn families_come_with_their_labels_and_values() {
        let mut distribution = Distribution::new();
        distribution.record(50);
        distribution.record(60);
        let families = [
            Family::counter("a_total", "A \"quoted\" help.").with(&[("x", "1"), ("y", "2")], 3u64),
            Family::gauge("b", "").value(0.5),
            Family::histogram("c_seconds", "").value(distribution),
            Family::histogram("d_seconds", "").value(Distribution::new()),
        ];
        let read: serde_json::Value = serde_json::from_str(&render(&families)).expect("JSON");
        assert_eq!(read["schema"], 1);
        assert_eq!(
            read["families"][0],
            json!({"name": "a_total", "help": "A \"quoted\" help.", "kind": "counter",
                   "samples": [{"labels": {"x": "1", "y": "2"}, "value": 3}]})
        );
        assert_eq!(read["families"][1]["samples"], json!([{"labels": {}, "value": 0.5}]));
        assert_eq!(
            read["families"][2]["samples"][0]["value"],
            json!({"count": 2, "sum_ns": 110, "max_ns": 60,
                   "p50_ns": 50, "p90_ns": 60, "p99_ns": 60, "p999_ns": 60})
        );
        assert_eq!(read["families"][3]["samples"][0]["value"]["p50_ns"], json!(null));
    }

    #[test]
    fn a_row_is_an_object_with_its_columns_as_keys() {
        let row = Row(vec![("channel", "news".into()), ("subscribers", 3_u64.into()), ("rate", 0.5.into())]);
        let text = serde_json::to_string(&[row]).expect("every key is a string");
        assert_eq!(text, r#"[{"channel":"news","subscribers":3,"rate":0.5}]"#);
    }
}
