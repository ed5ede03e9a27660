//! The audit of changes: the last ones in memory, and a line for each on standard error.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use encke_io::lock;
use encke_settings::notice;
use serde_json::{Value, json};

/// Maximum number of kept entries.
const ENTRIES_MAX: usize = 200;
/// Maximum length in characters of an old or new value.
const VALUE_CHARS_MAX: usize = 200;

/// The last changes.
#[derive(Default)]
pub(crate) struct Audit {
    entries: Mutex<VecDeque<AuditEntry>>,
}

/// A change, or the attempt of one.
#[derive(Clone, Debug)]
pub(crate) struct AuditEntry {
    pub(crate) unix_ms: u64,
    pub(crate) user: Arc<str>,
    /// The client's address; `unix` for a Unix socket.
    pub(crate) address: String,
    /// Method and path.
    pub(crate) act: String,
    /// The old and the new value in short; empty if there is none.
    pub(crate) old: String,
    pub(crate) new: String,
    /// The status of the response.
    pub(crate) result: u16,
}

impl Audit {
    /// Records a change.
    pub(crate) fn record(&self, mut entry: AuditEntry) {
        for value in [&mut entry.old, &mut entry.new, &mut entry.act] {
            if let Some((end, _)) = value.char_indices().nth(VALUE_CHARS_MAX) {
                value.truncate(end);
                value.push('…');
            }
        }
        notice::record(&entry.line());
        let mut entries = lock(&self.entries);
        if entries.len() >= ENTRIES_MAX {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// Returns the entries as JSON, newest first.
    pub(crate) fn json(&self) -> Value {
        let entries: Vec<Value> = lock(&self.entries).iter().rev().map(AuditEntry::json).collect();
        json!({ "schema": 1, "entries": entries })
    }
}

impl AuditEntry {
    fn line(&self) -> String {
        let Self { user, address, act, old, new, result, .. } = self;
        // The name of a failed log-in is any text.
        let is_plain = user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte));
        let user = if is_plain { user.to_string() } else { format!("{user:?}") };
        let mut line = format!("console: {user} from {address}: {act}: {result}");
        for (name, value) in [("old", old), ("new", new)] {
            if !value.is_empty() {
                // Quoted, so that a value cannot begin a line of its own.
                let _never_fails = write!(line, ", {name} {value:?}");
            }
        }
        line
    }

    fn json(&self) -> Value {
        json!({
            "time_ms": self.unix_ms,
            "user": &*self.user,
            "address": self.address,
            "act": self.act,
            "old": self.old,
            "new": self.new,
            "result": self.result,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, new: &str) -> AuditEntry {
        AuditEntry {
            unix_ms: number,
            user: "ann".into(),
            address: "192.0.2.1".into(),
            act: "PUT /api/v1/log/level".into(),
            old: "info".into(),
            new: new.into(),
            result: 200,
        }
    }

    #[test]
    fn the_last_changes_are_kept_and_long_values_cut() {
        let audit = Audit::default();
        for number in 0..=ENTRIES_MAX as u64 {
            audit.record(entry(number, &"é".repeat(VALUE_CHARS_MAX + 1)));
        }
        let json = audit.json();
        let entries = json["entries"].as_array().expect("a list");
        assert_eq!(entries.len(), ENTRIES_MAX);
        assert_eq!((&entries[0]["time_ms"], &entries[199]["time_ms"]), (&json!(200), &json!(1)));
        assert_eq!(entries[0]["new"], format!("{}…", "é".repeat(VALUE_CHARS_MAX)));
    }

    #[test]
    fn a_value_cannot_begin_a_line_of_its_own() {
        let line = entry(0, "debug\nerror: forged").line();
        assert_eq!(
            line,
            "console: ann from 192.0.2.1: PUT /api/v1/log/level: 200, old \"info\", new \"debug\\nerror: forged\""
        );
    }
}
