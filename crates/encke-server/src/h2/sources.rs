//! Streams whose responses come from elsewhere: another server, or a handler that produces content on request.
//!
//! ```text
//! a source reads ─► bytes of its stream, charged to the connection ─► the client receives them
//!    ▲                         │ no room left                                │ room again
//!    └──── writable ───────────┼──◄──────────────────────────────────────────┘
//!                              └─► crowded: no source of the connection reads
//! ```
//! **A source reads only while its connection has room.** Bytes that were read must be kept, so a check after the read would let
//! each of the streams hold a whole read: 128 requests with a window of 0, some 10 bytes each, held 64 KiB each. When the charges of
//! a connection reach its share of `limits.unsent`, all its sources stop before their next read. A connection thus exceeds its
//! share by one read at most.

use encke_io::{LEASE_BYTES_MAX, Token};
use encke_session::http2::{Account, BYTES_LEAST};

use crate::conn::SENDING;
use crate::conns::{among_streams, is_stream};
use crate::core::Core;
use crate::exchange::ExchangeKey;
use crate::record::ResponseRest;

use super::Http2;

/// The sources of a connection's streams.
#[derive(Default)]
pub(super) struct StreamSources {
    /// Indices of the streams, and whether each was stopped.
    streams: Vec<(u32, bool)>,
    /// Whether the sources are to be stopped.
    held: bool,
    /// Whether a source differs from `held`.
    changed: bool,
}

impl StreamSources {
    fn add(&mut self, stream: u32) {
        match self.streams.iter_mut().find(|(other, _)| *other == stream) {
            // It has begun to read from another place.
            Some((_, stopped)) => *stopped = false,
            None => self.streams.push((stream, false)),
        }
        self.changed |= self.held;
    }

    pub(super) fn remove(&mut self, stream: u32) {
        self.streams.retain(|(other, _)| *other != stream);
    }

    /// Compares the connection's charges with its share. Returns whether a source is to be stopped or continued.
    pub(super) fn check(&mut self, account: &Account) -> bool {
        if self.streams.is_empty() {
            return false;
        }
        let room = account.room();
        // A whole read must fit again, or everything was sent. Otherwise each sent frame would restart all sources for one read.
        let is_free = room >= LEASE_BYTES_MAX || account.is_empty();
        let held = if self.held { !is_free } else { room < BYTES_LEAST };
        self.changed |= held != self.held;
        self.held = held;
        self.changed
    }

    /// The next source to be stopped (true) or continued.
    fn next(&mut self) -> Option<(u32, bool)> {
        let held = self.held;
        let next = self.streams.iter_mut().find(|(_, stopped)| *stopped != held);
        self.changed = next.is_some();
        let (stream, stopped) = next?;
        *stopped = held;
        Some((*stream, held))
    }

    fn is_held(&self, stream: u32) -> bool {
        self.held && self.streams.iter().any(|(other, _)| *other == stream)
    }
}

impl Http2 {
    /// Adds a stream to the sources of its connection. They are checked before the next event.
    pub(crate) fn add_source(&mut self, token: Token) {
        let place = among_streams(token);
        let Some(engine) = self.stream_of(token).map(|stream| stream.engine) else { return };
        if let Some(engine) = self.engines.get_mut(engine) {
            engine.sources.add(place);
        }
        self.stir(engine);
    }

    /// Whether a stream is a source that must not read.
    pub(crate) fn is_held(&self, token: Token) -> bool {
        if !is_stream(token) {
            return false;
        }
        let place = among_streams(token);
        let engine = self.streams.get(place).and_then(|stream| self.engines.get(stream.engine));
        engine.is_some_and(|engine| engine.sources.is_held(place))
    }

    /// Charges the bytes that wait for the end of a stream's send, in place of those charged before. The next send has its own charge.
    pub(crate) fn charge_waiting(&mut self, token: Token, bytes: usize) {
        let Some(stream) = self.stream_of(token) else { return };
        stream.waits(bytes);
        let engine = stream.engine;
        self.stir(engine);
    }
}

impl Core {
    /// Adds an exchange to the sources, if it is a stream's.
    pub(crate) fn await_room(&mut self, key: ExchangeKey) {
        let record = self.records.get(key.slot).filter(|record| record.generation == key.generation);
        if let Some(token) = record.map(|record| record.token).filter(|token| is_stream(*token)) {
            self.http2.add_source(token);
        }
    }

    /// Stops or continues the sources of an engine.
    pub(super) fn check_sources(&mut self, engine: u32) {
        while let Some((place, stops)) =
            self.http2.engines.get_mut(engine).and_then(|engine| engine.sources.next())
        {
            let Some(token) = self.http2.streams.get(place).map(|stream| stream.token) else { continue };
            if self.conn(token).is_some() {
                self.tell_source(token, stops);
            }
        }
    }

    fn tell_source(&mut self, token: Token, stops: bool) {
        let duty = &self.conns[token.index as usize].duty;
        if duty.seat().is_some() {
            self.call_for(
                token,
                |resident, slot| {
                    if stops { resident.crowded(slot) } else { resident.writable(slot) }
                },
            );
            return;
        }
        let Some(place) = duty.as_exchange() else { return };
        let Some(record) = self.records.get(place) else { return };
        let (handler, key) = (record.handler, record.key(place));
        if stops {
            return self.call_handler(handler, key, |handler| handler.crowded(key));
        }
        if let Some(ResponseRest::Pull(_)) = record.stream {
            if !self.conns[token.index as usize].has(SENDING) {
                self.pull(token, place);
                self.settle(token);
            }
        } else if !self.handler_requests.open().is_crowded(place) {
            self.call_handler(handler, key, |handler| handler.writable(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use encke_session::http2::{BudgetTotals, Budgets, Limits, ServerConnection};

    use super::*;
    use crate::h2::stream::StreamData;

    #[test]
    fn sources_stop_at_the_share_and_continue_once_a_read_fits() {
        let budgets = Budgets::new(&BudgetTotals::default());
        budgets.limit(8 << 20, 8);
        let limits = Limits { streams: 8, head_bytes: 1024, resets: 100 };
        let connection = ServerConnection::<StreamData>::new(limits, 0, &budgets);
        let account = &connection.bytes;
        let mut sources = StreamSources::default();
        let told = |sources: &mut StreamSources| {
            sources.check(account);
            std::iter::from_fn(|| sources.next()).collect::<Vec<_>>()
        };
        sources.add(1);
        sources.add(2);
        assert_eq!(told(&mut sources), [], "there is room");
        let mut held = account.charge(1 << 20);
        assert_eq!(told(&mut sources), [(1, true), (2, true)]);
        sources.add(3);
        assert_eq!(told(&mut sources), [(3, true)], "a new source does not begin");
        sources.add(1);
        assert_eq!(told(&mut sources), [(1, true)], "nor one that reads from another place");
        held.set((1 << 20) - LEASE_BYTES_MAX);
        assert_eq!(told(&mut sources), [], "the read would exceed the share");
        sources.remove(2);
        drop(held);
        assert_eq!(told(&mut sources), [(1, false), (3, false)]);
        assert_eq!(told(&mut sources), []);
    }
}
