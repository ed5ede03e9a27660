//! The list of subscribers: their users and connections, and how far each is behind its channel.
//!
//! ```text
//!  ?channel=NAME, few subscribers ─► those of the channel, in one turn
//!  otherwise                      ─► all connections of push, in slices: slots do not move during a walk
//! ```

use encke_hub::{Name, ReaderState, SubscriberId};
use encke_io::{Peer, Token};
use encke_server::{ConnDescription, Engine, Kernel, Slot};
use encke_stats::{Cell, ListTicket, Query, Row};

use super::best_rows::BestRows;
use crate::form::{self, EXPIRES};
use crate::push_worker::{NONE, PushWorker, hub_now};
use crate::reject::SubscriberTransport;
use crate::subscriber::kind_of;

/// The columns, in the order of display.
pub(super) const COLUMNS: &[&str] = &[
    "channel",
    "id",
    "address",
    "user",
    "transport",
    "behind",
    "behind_bytes",
    "behind_s",
    "unsent_bytes",
    "idle_s",
    "skipped",
    "relay",
    "worker",
];

/// Limit of slots visited in a turn: about 0.1 ms.
const SLICE_PLACES: usize = 1_024;
/// The same if each subscriber needs a row or a system call.
const SLICE_ROWS: usize = 128;
/// Channels of one subscriber that become rows.
const CHANNELS_MAX: usize = 128;

/// A list of subscribers in progress on one worker.
pub(crate) struct SubscriberRows {
    query: Query,
    ticket: ListTicket,
    /// The only channel, if the query names it; the inner `None`: no channel can have this name.
    only: Option<Option<Name>>,
    /// The next slot to visit.
    next: usize,
    best: Option<BestRows<ListedReader>>,
}

/// Number of channels in the description of a connection.
const DESCRIBED_MAX: usize = 8;

/// One subscription of a subscriber, ordered by its channel and its connection.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ListedReader {
    channel: Name,
    place: u32,
    generation: u32,
    state: ReaderFigures,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ReaderFigures {
    behind: u64,
    behind_bytes: u64,
    behind_ms: u64,
    idle_ms: Option<u64>,
    skips: u8,
}

impl SubscriberRows {
    pub(super) fn new(query: Query, ticket: ListTicket, only: Option<Option<Name>>) -> Self {
        let best = Some(BestRows::new(&query));
        Self { query, ticket, only, next: 0, best }
    }

    /// Visits the next subscribers. Returns whether the list is complete.
    pub(super) fn advance(
        &mut self,
        worker: &PushWorker,
        engine: &mut Engine<'_>,
        kernel: &dyn Kernel,
    ) -> bool {
        let Some(mut best) = self.best.take() else { return true };
        let slice = if self.needs_row() { SLICE_ROWS } else { SLICE_PLACES };
        match &self.only {
            Some(None) => return true,
            Some(Some(name)) if worker.hub.readers(name) <= slice => {
                for key in worker.hub.reader_keys(name) {
                    self.visit(worker, (engine, kernel), Token::from_word(key), &mut best);
                }
                return self.finish(best, worker, engine, kernel);
            }
            _ => {}
        }
        let places = engine.places();
        let end = places.min(self.next.saturating_add(slice));
        for place in self.next..end {
            if let Some(token) = engine.slot_at(place).map(|slot| slot.token()) {
                self.visit(worker, (engine, kernel), token, &mut best);
            }
        }
        self.next = end;
        if end < places {
            self.best = Some(best);
            return false;
        }
        self.finish(best, worker, engine, kernel)
    }

    /// Whether the query can only be decided with the cells of a row.
    fn needs_row(&self) -> bool {
        let by_unsent = self.query.sort.as_ref().is_some_and(|sort| sort.column == "unsent_bytes");
        self.query.filter.is_some()
            || by_unsent
            || self.query.whole.iter().any(|(column, _)| column != "channel")
    }

    fn visit(
        &self,
        worker: &PushWorker,
        (engine, kernel): (&mut Engine<'_>, &dyn Kernel),
        token: Token,
        best: &mut BestRows<ListedReader>,
    ) {
        let Some(slot) = engine.slot(token) else { return };
        if slot.word() == NONE {
            return;
        }
        let unix_ms = hub_now(slot.now()).unix_ms;
        let idle_ms = idle_ns(worker, &slot).map(|ns| ns / 1_000_000);
        let is_sending = slot.is_sending();
        let only = self.only.as_ref().and_then(Option::as_ref);
        for reader in worker.hub.reader_states(SubscriberId(slot.word()), only, CHANNELS_MAX) {
            let ReaderState { channel, behind, behind_bytes, behind_since_ms, skips } = reader;
            let behind_ms = behind_since_ms.map_or(0, |since_ms| unix_ms.saturating_sub(since_ms));
            // A busy subscriber has read nothing completely since a message waits for it.
            let idle_ms = idle_ms.map(|idle_ms| if is_sending { idle_ms.max(behind_ms) } else { idle_ms });
            let state = ReaderFigures { behind: behind as u64, behind_bytes, behind_ms, idle_ms, skips };
            let reader = ListedReader { channel, place: token.index, generation: token.generation, state };
            let needs_row = self.needs_row();
            let row = if needs_row { row(&reader, worker, (engine, kernel)) } else { None };
            if needs_row && !row.as_ref().is_some_and(|row| self.query.admits(row)) {
                continue;
            }
            let cell = best.column().and_then(|column| match (&row, reader.number(column)) {
                (Some(row), _) => row.cell(column).cloned(),
                (None, Some(cell)) => Some(cell),
                (None, None) => row_cell(column, &reader, worker, engine),
            });
            best.add(cell, || reader);
        }
    }

    fn finish(
        &self,
        best: BestRows<ListedReader>,
        worker: &PushWorker,
        engine: &mut Engine<'_>,
        kernel: &dyn Kernel,
    ) -> bool {
        let (kept, omitted) = best.finish();
        self.ticket.add_selected(Vec::new(), omitted);
        self.ticket.add(kept.iter().filter_map(|reader| row(reader, worker, (engine, kernel))));
        true
    }
}

impl ListedReader {
    const fn token(&self) -> Token {
        Token { index: self.place, generation: self.generation }
    }

    /// Returns the cell of a column of numbers, without a row.
    fn number(&self, column: &str) -> Option<Cell> {
        let ReaderFigures { behind, behind_bytes, behind_ms, idle_ms, skips } = self.state;
        match column {
            "behind" => Some(behind.into()),
            "behind_bytes" => Some(behind_bytes.into()),
            "behind_s" => Some(seconds(behind_ms)),
            "idle_s" => idle_ms.map(seconds),
            "skipped" => Some(u64::from(skips).into()),
            _ => None,
        }
    }
}

fn seconds(ms: u64) -> Cell {
    Cell::Number(ms as f64 / 1e3)
}

/// Returns the cell of a column of text.
fn row_cell(
    column: &str,
    reader: &ListedReader,
    worker: &PushWorker,
    engine: &mut Engine<'_>,
) -> Option<Cell> {
    let slot = engine.slot(reader.token())?;
    match column {
        "channel" => Some(reader.channel.as_str().to_owned().into()),
        "id" => Some(slot.connection_id().into()),
        "address" => Some(address(&slot).into()),
        "user" => Some(worker.sides.user(slot.place()).map_or_else(String::new, ToString::to_string).into()),
        "transport" => Some(SubscriberTransport::of(kind_of(&slot)).name().into()),
        "relay" => worker.sides.relay(slot.place()).map(|relay| relay.to_owned().into()),
        "worker" => Some((worker.core as u64).into()),
        _ => None,
    }
}

/// Builds a row; `None` if the connection has closed.
fn row(
    reader: &ListedReader,
    worker: &PushWorker,
    (engine, kernel): (&mut Engine<'_>, &dyn Kernel),
) -> Option<Row> {
    let (unsent_bytes, _) = engine.backlog(kernel, reader.token());
    let mut cells = Vec::with_capacity(COLUMNS.len());
    engine.slot(reader.token())?;
    for column in COLUMNS {
        let cell = match *column {
            "unsent_bytes" => Some(unsent_bytes.into()),
            column => reader.number(column).or_else(|| row_cell(column, reader, worker, engine)),
        };
        cells.extend(cell.map(|cell| (*column, cell)));
    }
    Some(Row(cells))
}

fn address(slot: &Slot<'_>) -> String {
    match slot.peer() {
        Peer::Inet(address) => address.ip().to_canonical().to_string(),
        Peer::Local => "unix".to_owned(),
    }
}

impl PushWorker {
    /// Describes a subscriber for the operator's list of connections.
    pub(crate) fn describe_subscriber(&self, slot: &Slot<'_>) -> ConnDescription {
        if slot.word() == NONE {
            return ConnDescription::default();
        }
        let states = self.hub.reader_states(SubscriberId(slot.word()), None, DESCRIBED_MAX + 1);
        let (mut channels, mut behind_bytes) = (Vec::new(), 0);
        for ReaderState { channel, behind_bytes: bytes, .. } in states {
            channels.push(channel.as_str().to_owned());
            behind_bytes += bytes;
        }
        if channels.len() > DESCRIBED_MAX {
            channels.truncate(DESCRIBED_MAX);
            channels.push("…".to_owned());
        }
        ConnDescription {
            protocol: Some(SubscriberTransport::of(kind_of(slot)).name()),
            waits: (behind_bytes == 0).then(|| "waits for messages".to_owned()),
            user: self.sides.user(slot.place()).map(ToString::to_string),
            channel: Some(channels.join(", ")),
            unsent_bytes: behind_bytes,
            ..ConnDescription::default()
        }
    }
}

/// Returns the time since the last complete send, or since the progress of the present one was last checked; `None` if the
/// deadline of the connection does not tell.
fn idle_ns(worker: &PushWorker, slot: &Slot<'_>) -> Option<u64> {
    if slot.is_sending() {
        return Some(slot.sending_ns());
    }
    // At rest its deadline is the next heartbeat, unless its right expires before that.
    let is_plain = !form::is_poll(kind_of(slot))
        && slot.form() & EXPIRES == 0
        && !slot.draining()
        && worker.farewells.is_none();
    let since_ns = slot.deadline_ns().checked_sub(worker.plan.heartbeat_ns).filter(|_| is_plain)?;
    slot.now().mono_ns.checked_sub(since_ns)
}
