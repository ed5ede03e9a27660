//! JSON of the API that several routes and the live pages send.

use encke_server::{Body, Reply};
use encke_stats::Rows;
use serde::Serialize;
use serde_json::{Value, json};

/// Creates a JSON response with the status 200.
pub(crate) fn as_json(value: &Value) -> Reply {
    json_text(200, value.to_string())
}

pub(crate) fn json_text(status: u16, text: String) -> Reply {
    Reply::new(status).with("Content-Type", "application/json").body(Body::Bytes(text.into_bytes()))
}

/// The rows of a list as JSON, with the watch that they belong to.
pub(crate) fn list_json(name: &str, rows: &Rows, watch: Option<&str>) -> String {
    #[derive(Serialize)]
    struct ListPage<'a> {
        schema: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        watch: Option<&'a str>,
        name: &'a str,
        #[serde(flatten)]
        rows: &'a Rows,
    }
    serde_json::to_string(&ListPage { schema: 1, watch, name, rows }).expect("every key is a string")
}

/// The last lines of standard error as JSON, oldest first.
pub(crate) fn notices_json() -> Value {
    let notices: Vec<Value> = encke_settings::notice::recent()
        .into_iter()
        .map(|notice| json!({ "time_ms": notice.unix_ms, "level": notice.level, "text": notice.text }))
        .collect();
    json!({ "schema": 1, "notices": notices })
}
