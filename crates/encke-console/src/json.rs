//! JSON of the API that several routes and the live pages send.

use encke_server::{Body, Reply};
use encke_settings::conceal::MASK;
use encke_settings::notice::WrittenNotice;
use encke_stats::Rows;
use serde::Serialize;
use serde_json::{Value, json};

use crate::settings::ConsoleRole;

/// Creates a JSON response with the status 200.
pub(crate) fn as_json(value: &Value) -> Reply {
    json_text(200, value.to_string())
}

pub(crate) fn json_text(status: u16, text: String) -> Reply {
    Reply::new(status).with("Content-Type", "application/json").body(Body::Bytes(text.into_bytes()))
}

/// The rows of a list, with the watch that they belong to.
#[derive(Serialize)]
pub(crate) struct ListPage<'a> {
    schema: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    watch: Option<&'a str>,
    name: &'a str,
    #[serde(flatten)]
    rows: &'a Rows,
}

impl<'a> ListPage<'a> {
    pub(crate) fn new(name: &'a str, rows: &'a Rows, watch: Option<&'a str>) -> Self {
        Self { schema: 1, watch, name, rows }
    }
}

/// The rows of a list as JSON.
pub(crate) fn list_json(name: &str, rows: &Rows) -> String {
    serde_json::to_string(&ListPage::new(name, rows, None)).expect("every key is a string")
}

/// The last lines of standard error as JSON, oldest first. What an application writes may have its secrets, so users with the role
/// `view` read only that it has written.
pub(crate) fn notices_json(role: ConsoleRole) -> Value {
    let text = |notice: WrittenNotice| match notice.application {
        Some(application) if role < ConsoleRole::Admin => format!("{application}: {MASK}"),
        _ => notice.text,
    };
    let notices: Vec<Value> = encke_settings::notice::recent()
        .into_iter()
        .map(|notice| json!({ "time_ms": notice.unix_ms, "level": notice.level, "text": text(notice) }))
        .collect();
    json!({ "schema": 1, "notices": notices })
}
