//! Notes of a handler in a line of the JSON log.

use std::io::Write as _;

use super::line::put_json;

/// Notes of a handler about a request, as members of its line in the JSON log:
/// [`HandlerContext::note`](crate::HandlerContext::note). A line in the combined format has none.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct LogNotes {
    /// The members, each after a comma.
    pub(super) members: Vec<u8>,
    pub(crate) reason: Option<&'static str>,
}

impl LogNotes {
    /// Adds a number, or `null`. A name must be unique in the line: a feature's names share a prefix.
    #[must_use]
    pub fn number(mut self, name: &'static str, value: Option<u64>) -> Self {
        match value {
            Some(value) => write!(self.members, ",\"{name}\":{value}").expect("a Vec takes everything"),
            None => put_json(&mut self.members, name, None),
        }
        self
    }

    /// Adds a text, or `null`. Tokens in it are masked.
    #[must_use]
    pub fn text(mut self, name: &'static str, value: Option<&str>) -> Self {
        put_json(&mut self.members, name, value.map(str::as_bytes));
        self
    }

    /// Sets the reason why the response is cut short, for a response that has begun. A
    /// [`Reply`](crate::Reply::because) has its own.
    #[must_use]
    pub fn because(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }
}
