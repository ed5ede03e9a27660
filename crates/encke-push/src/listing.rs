//! The list of channels for clients with the right to manage them: `GET /push/`.
//!
//! ```text
//! handler ─► ListRequest ─► first worker: a queue of ChannelListing
//!                              │ each turn: a slice of the first one (Sequencer::walk)
//!                              └─ complete: a row for each name of the page ─► the response
//! ```
//! Only the sequencers know all channels, so the first worker lists them for all workers. At 100,000 channels a list takes about
//! 100 turns of 0.1 ms each.

use std::fmt;
use std::sync::Arc;

use encke_hub::{ChannelRow, ChannelWalk, Info, Name, Pattern, PatternError, Position, Sequencer};
use encke_rights::{Act, Principal};
use encke_server::{Body, Exchange, Reply};
use encke_wire::target::query_pairs;

use super::envelope;
use super::negotiate::{bad, shown};

/// Channels in a page, unless `?limit=` is given.
const PAGE_CHANNELS: usize = 100;
/// Limit of channels in a page. A row takes about 200 bytes, so the largest page has about 200 KB.
const PAGE_CHANNELS_MAX: usize = 1_000;
/// Limit of channels visited in one turn: about 0.1 ms.
const SLICE_CHANNELS: u32 = 1_024;

/// The query of a list.
#[derive(Debug)]
pub(crate) struct ListQuery {
    /// The page begins after this name.
    after: Option<Name>,
    limit: usize,
    pattern: Option<Pattern>,
}

/// Why the query of a list is invalid.
#[derive(Debug)]
pub(crate) enum ListQueryError {
    After(String, encke_hub::NameError),
    Limit(String),
    Pattern(String, PatternError),
    Unknown(String),
}

/// A request for a list.
pub(crate) struct ListRequest {
    pub(crate) exchange: Exchange,
    pub(crate) query: ListQuery,
    /// The client. The list has only channels that it may manage.
    pub(crate) identity: Principal,
}

/// A list that is being made.
pub(crate) struct ChannelListing {
    exchange: Exchange,
    identity: Principal,
    pattern: Option<Pattern>,
    walk: ChannelWalk,
    /// The stream that the walk is in.
    stream: usize,
}

impl ListQuery {
    /// Parses a query. An unknown key is an error: a list without a misspelled `pattern` would have other channels.
    ///
    /// # Errors
    /// The invalid key and its rule.
    pub(crate) fn read(query: Option<&[u8]>) -> Result<Self, ListQueryError> {
        let mut found = Self { after: None, limit: PAGE_CHANNELS, pattern: None };
        for (key, value) in query_pairs(query.unwrap_or_default()) {
            let text = || shown(&value);
            match &*key {
                "after" if value.is_empty() => found.after = None,
                "after" => {
                    let name = Name::parse(value.as_bytes());
                    found.after = Some(name.map_err(|error| ListQueryError::After(text(), error))?);
                }
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=PAGE_CHANNELS_MAX).contains(limit));
                    found.limit = limit.ok_or_else(|| ListQueryError::Limit(text()))?;
                }
                "pattern" => {
                    let pattern = value.parse().map_err(|error| ListQueryError::Pattern(text(), error));
                    found.pattern = Some(pattern?);
                }
                "access_token" => {}
                other => return Err(ListQueryError::Unknown(shown(other))),
            }
        }
        Ok(found)
    }
}

impl ChannelListing {
    pub(crate) fn new(request: ListRequest) -> Self {
        let ListRequest { exchange, query: ListQuery { after, limit, pattern }, identity } = request;
        Self { exchange, identity, pattern, walk: ChannelWalk::new(after, limit), stream: 0 }
    }

    /// Visits the next channels of the sequencers. Returns whether the list is complete.
    pub(crate) fn advance<'a>(&mut self, mut sequencers: impl Iterator<Item = &'a Sequencer>) -> bool {
        let Some(sequencer) = sequencers.nth(self.stream) else { return true };
        let (identity, pattern) = (&self.identity, &self.pattern);
        let admits = |name: &Name| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches(name)) && identity.may(Act::Manage, name)
        };
        let walked = sequencer.walk(&mut self.walk, SLICE_CHANNELS, admits);
        self.stream += usize::from(walked);
        walked && sequencers.next().is_none()
    }

    /// Responds. `row` returns the present state of a channel, unless it has ended since the walk.
    pub(crate) fn finish(self, unix_ms: u64, row: impl Fn(&Name) -> Option<ChannelRow>) {
        let page = self.walk.finish();
        let mut json = b"{\"channels\":[".to_vec();
        for (name, row) in page.names.iter().filter_map(|name| Some((name, row(name)?))) {
            if json.last() == Some(&b'}') {
                json.push(b',');
            }
            put_row(&mut json, name, &row, unix_ms);
        }
        json.extend_from_slice(format!("],\"total\":{}", page.total).as_bytes());
        if let Some(last) = page.names.last().filter(|_| page.more) {
            json.extend_from_slice(format!(",\"next\":\"{last}\"").as_bytes());
        }
        json.extend_from_slice(b"}\n");
        let reply = Reply::new(200)
            .with("Content-Type", "application/json")
            .with("Cache-Control", "no-store")
            .with("X-Content-Type-Options", "nosniff")
            .body(Body::Bytes(json));
        self.exchange.answer(reply);
    }
}

/// Appends the row of a channel. Its name needs no escapes.
fn put_row(json: &mut Vec<u8>, name: &Name, row: &ChannelRow, unix_ms: u64) {
    // A node does not know the history of a channel that only other nodes keep.
    let kept = |value: u64| if row.kept { value.to_string() } else { "null".into() };
    let age = row.last_unix_ms.map_or_else(|| "null".into(), |last| unix_ms.saturating_sub(last).to_string());
    let text = format!(
        "{{\"channel\":\"{name}\",\"messages\":{},\"bytes\":{},\"first\":{},\"last\":{},\"age_ms\":{age},\
         \"subscribers\":{},\"durable\":{}}}",
        kept(row.messages as u64),
        kept(row.bytes),
        id(row.first),
        id(row.last),
        row.subscribers,
        row.durable
    );
    json.extend_from_slice(text.as_bytes());
}

/// Returns an id as JSON.
fn id(position: Option<Position>) -> String {
    position.map_or_else(|| "null".into(), |position| format!("\"{position}\""))
}

/// Builds the response to `?info`.
pub(crate) fn info_reply(channel: &Name, info: &Info, members: Option<&Vec<Arc<str>>>) -> Reply {
    // This node does not know the history of a channel that only other nodes keep.
    let kept = |value: u64| if info.kept { value.to_string() } else { "null".into() };
    let mut json = format!(
        "{{\"channel\":\"{channel}\",\"messages\":{},\"bytes\":{},\"first\":{},\"last\":{},\"subscribers\":{}",
        kept(info.messages as u64),
        kept(info.bytes),
        id(info.first),
        id(info.last),
        info.subscribers
    )
    .into_bytes();
    if let Some(names) = members {
        json.extend_from_slice(b",\"members\":[");
        for (place, name) in names.iter().enumerate() {
            if place > 0 {
                json.push(b',');
            }
            envelope::put_text(&mut json, name);
        }
        json.push(b']');
    }
    json.extend_from_slice(b"}\n");
    Reply::new(200)
        .with("Content-Type", "application/json")
        .with("Cache-Control", "no-store")
        .body(Body::Bytes(json))
}

impl fmt::Display for ListQueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(name, error) => write!(f, "invalid after={name}: {error}"),
            Self::Limit(limit) => {
                write!(f, "invalid limit={limit}: expected a number from 1 to {PAGE_CHANNELS_MAX}")
            }
            Self::Pattern(pattern, error) => write!(f, "invalid pattern={pattern}: {error}"),
            Self::Unknown(key) => {
                write!(f, "unknown parameter {key:?}: a list takes after, limit, pattern and access_token")
            }
        }
    }
}

impl From<ListQueryError> for Reply {
    fn from(error: ListQueryError) -> Self {
        bad(error.to_string())
    }
}
