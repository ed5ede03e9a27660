//! Connections in the operator's view: their ids, and what features know about them.
//!
//! ```text
//!  list ──► each worker: walks its slots, some hundred in a turn ─► the rows that the query keeps ─► ListTicket
//!                                │ row: slot, exchange, kernel,
//!                                └────► Resident::describe, Handler::describe
//!  close ─► the worker in the id ─► the slot, if its generation matches
//! ```
//! A slot has no state for this view: all of it is derived when a list is requested, so a connection costs nothing as long as
//! no operator looks at it.

mod blocks;
mod closes;
mod row;
mod sources;
mod verbs;
mod waits;
mod walk;

use std::fmt;
use std::str::FromStr;

use encke_io::Token;

pub(crate) use blocks::AddressBlocks;
pub(crate) use closes::RecentCloses;
pub(crate) use sources::{BlockList, CertificateList, CloseList, ConnectionList, WorkerFigures};
pub(crate) use verbs::{FEATURE, verbs};
pub(crate) use walk::{ConnListing, ConnWalk};

use crate::conns::{among_streams, is_stream, stream_place};
use crate::core::Core;

/// A feature's facts about one of its connections or exchanges, for the operator's list of connections. The default has none: the
/// row then has the facts of the engine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConnDescription {
    /// The protocol on the connection, such as `sse` or `tunnel`.
    pub protocol: Option<&'static str>,
    /// The cause for which the connection waits, in words, such as `waits for upstream app`. A client that does not read its responses
    /// takes precedence: the engine says that itself.
    pub waits: Option<String>,
    /// The path of the request. The engine knows it only while a log is on.
    pub path: Option<String>,
    /// The authenticated user.
    pub user: Option<String>,
    /// The channels of a subscriber.
    pub channel: Option<String>,
    /// Bytes for the client that the feature holds, apart from the send in flight.
    pub unsent_bytes: u64,
    /// The start of the exchange or subscription, in ns of the monotonic clock.
    pub since_ns: Option<u64>,
}

/// The id of a connection in lists and actions: unique among all connections of the process, and of the processes before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnId {
    /// [`Census::server_id`](crate::census::Census::server_id).
    pub(crate) server: u16,
    pub(crate) worker: usize,
    pub(crate) token: Token,
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, worker, token } = self;
        let (kind, index) = if is_stream(*token) { ("s", among_streams(*token)) } else { ("", token.index) };
        write!(f, "{server:04x}-{worker}-{kind}{index}-{}", token.generation)
    }
}

/// A text that is no id of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoConnId;

impl FromStr for ConnId {
    type Err = NoConnId;

    fn from_str(text: &str) -> Result<Self, NoConnId> {
        let mut parts = text.split('-');
        let mut part = || parts.next().ok_or(NoConnId);
        let server = u16::from_str_radix(part()?, 16).map_err(|_| NoConnId)?;
        let worker = part()?.parse().map_err(|_| NoConnId)?;
        let place = part()?;
        let index = match place.strip_prefix('s') {
            Some(stream) => stream.parse().map(stream_place),
            None => place.parse(),
        };
        let token =
            Token { index: index.map_err(|_| NoConnId)?, generation: part()?.parse().map_err(|_| NoConnId)? };
        let id = Self { server, worker, token };
        // Only the form in which ids are given out: it has no sign, and no second prefix.
        if id.to_string() == text { Ok(id) } else { Err(NoConnId) }
    }
}

impl Core {
    /// Returns the id of a connection of this worker.
    pub(crate) fn connection_id(&self, token: Token) -> String {
        ConnId { server: self.census.server_id(), worker: self.number, token }.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_one_connection() {
        for (index, generation, text) in
            [(17, 3, "00fe-2-17-3"), (stream_place(0), u32::MAX, "00fe-2-s0-4294967295")]
        {
            let id = ConnId { server: 0xfe, worker: 2, token: Token { index, generation } };
            assert_eq!(id.to_string(), text);
            assert_eq!(text.parse(), Ok(id));
        }
        for text in [
            "",
            "0-0-0",
            "00fe-2-17",
            "00fe-2-17-3-4",
            "fe-2-17-3",
            "00fe-2-+17-3",
            "00fe-2-s-3",
            "00fe-2--1-3",
        ] {
            assert_eq!(text.parse::<ConnId>(), Err(NoConnId), "{text}");
        }
    }
}
