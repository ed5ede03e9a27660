//! Walks over all connections of a worker, which list connections or close the connections of an address. A walk does a bounded
//! part of its work in each turn, so that no other connection is delayed.
//!
//! ```text
//! command ─► begin_walk ─► WorkerMessage::Walk to this worker ─► the next turn: one part of one walk ─┐
//!                                   ▲                                                                 │ not done
//!                                   └─────────────────────────────────────────────────────────────────┘
//! ```
//! A list first selects: it visits each slot, and keeps the tokens of as many connections as the query wants, by the cell of
//! the column that sorts. Then it builds the rows of those. Only a query with a filter needs rows to select. A query that
//! selects all connections, sorted by a field of the slot, is the usual one of an open page: its visits are a loop over the
//! slots of their own ([`Core::visit_plain`]).

use std::cmp::Ordering;
use std::net::IpAddr;

use encke_io::{Peer, Reactor, StreamFacts, Token};
use encke_settings::Network;
use encke_stats::{Cell, Gathered, ListTicket, Query, Row};

use super::row::{address, is_listed, seconds};
use super::waits::KernelView;
use super::{ConnDescription, ConnId};
use crate::close::CloseReason;
use crate::conn::{ADMIN, SENDING};
use crate::conns::is_stream;
use crate::core::Core;
use crate::inbox::WorkerMessage;
use crate::operate::{ActionReport, ActionResult};
use crate::worker::Worker;

/// The work of a walk in one turn: 4,096 plain visits, 512 others, or 64 rows, each some 100 µs.
const TURN_WORK: usize = 4_096;
/// The work of a visit that reads the slot alone, of any other visit, of a row, and of the system calls for the kernel's view.
const PLAIN_VISIT: usize = 1;
const VISIT: usize = 8;
const ROW: usize = 40;
const KERNEL: usize = 24;
/// The work to close a connection.
const CLOSE: usize = 16;

/// A walk that has begun.
pub(crate) enum ConnWalk {
    List(Box<ConnListing>),
    Close(ConnClosing),
}

/// A list in progress.
pub(crate) struct ConnListing {
    ticket: ListTicket,
    column: SortColumn,
    /// The address that the query selects; `Some(None)` if no connection can have it.
    address: Option<Option<IpAddr>>,
    /// The connection that the query selects by its id; `Some(None)` if this worker does not have it.
    only: Option<Option<Token>>,
    /// Whether the query selects the peers of Unix sockets by their address.
    wants_local: bool,
    /// Whether the filter selects by cells that need the kernel's view.
    needs_kernel: bool,
    /// Whether the query selects all connections, and the cell that sorts is in the slot of most of them.
    is_plain: bool,
    /// The next index; `None` once all were visited.
    next: Option<u32>,
    /// Number of selected connections.
    total: usize,
    /// The first of them in the query's order, at most twice its limit.
    kept: Vec<(Option<Cell>, Token)>,
    /// Whether a further connection is kept only if it precedes the last of these.
    is_full: bool,
    /// For a plain query, the number of the last of these ([`SortColumn::plain_cell`]).
    last: Option<u64>,
    rows: Vec<Row>,
}

/// The closing of all connections of an address, in progress.
pub(crate) struct ConnClosing {
    network: Network,
    next: u32,
    affected: u64,
    parts: Gathered<ActionResult>,
}

/// The column that sorts, by the work to compute its cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SortColumn {
    /// No sort, or by a cell that all connections of a worker share.
    None,
    Requests,
    Idle,
    Age,
    Address,
    State,
    /// Any other: the whole row is built. Whether the kernel's view is needed.
    OfRow(bool),
}

impl SortColumn {
    fn of(query: &Query) -> Self {
        match query.sort.as_ref().map(|sort| sort.column.as_str()) {
            None | Some("worker") => Self::None,
            Some("requests") => Self::Requests,
            Some("idle_s") => Self::Idle,
            Some("age_s") => Self::Age,
            Some("address") => Self::Address,
            Some("state") => Self::State,
            Some("listener" | "waits" | "in_bytes" | "out_bytes" | "unsent_bytes") => Self::OfRow(true),
            Some(_) => Self::OfRow(false),
        }
    }

    /// Returns the cell of a number in a slot: requests, or a time in ms.
    fn plain_cell(self, number: u64) -> Cell {
        if self == Self::Idle { seconds(number.saturating_mul(1_000_000)) } else { Cell::Count(number) }
    }
}

impl ConnListing {
    pub(crate) fn new(core: &Core, ticket: ListTicket) -> Self {
        let query = ticket.query();
        let exact_address = |text: &str| {
            let address = text.parse::<IpAddr>().ok()?;
            (address.to_canonical().to_string() == text).then_some(address)
        };
        let of_kernel = ["listener", "waits", "in_bytes", "out_bytes", "unsent_bytes", "idle_s"];
        let column = SortColumn::of(query);
        let by_slot = matches!(column, SortColumn::None | SortColumn::Requests | SortColumn::Idle);
        Self {
            column,
            is_plain: by_slot && query.filter.is_none() && query.whole.is_empty(),
            address: query.whole_of("address").map(exact_address),
            wants_local: query.whole_of("address") == Some("unix"),
            only: query.whole_of("id").map(|id| own_token(core, id).ok().flatten()),
            needs_kernel: of_kernel.iter().any(|column| query.whole_of(column).is_some()),
            next: Some(0),
            total: 0,
            kept: Vec::new(),
            is_full: false,
            last: None,
            rows: Vec::new(),
            ticket,
        }
    }

    /// Whether rows must be built to select connections.
    fn selects_by_row(&self) -> bool {
        let query = self.ticket.query();
        query.filter.is_some() || query.whole.iter().any(|(column, _)| column != "address" && column != "id")
    }

    /// Adds a selected connection.
    fn keep(&mut self, cell: Option<Cell>, token: Token) {
        self.total += 1;
        let query = self.ticket.query();
        if self.is_full
            && let Some((worst, _)) = self.kept.get(query.limit.wrapping_sub(1))
            && query.compare_cells(cell.as_ref(), worst.as_ref()) != Ordering::Less
        {
            return;
        }
        self.kept.push((cell, token));
        if self.kept.len() >= query.limit.saturating_mul(2).max(1) {
            self.cut();
        }
    }

    /// Adds a selected connection by the number in its slot that sorts. Most of many connections come after the kept ones, which
    /// numbers show in fewer steps than cells.
    fn keep_plain(&mut self, number: Option<u64>, token: Token) {
        let is_descending = self.ticket.query().sort.as_ref().is_some_and(|sort| sort.descending);
        let is_after = match (number, self.last) {
            (Some(number), Some(last)) if is_descending => number <= last,
            (Some(number), Some(last)) => number >= last,
            (number, _) => number.is_none(),
        };
        if self.is_full && is_after {
            self.total += 1;
        } else {
            self.keep(number.map(|number| self.column.plain_cell(number)), token);
        }
    }

    /// Drops the connections beyond the limit.
    fn cut(&mut self) {
        let query = self.ticket.query();
        self.kept.sort_by(|(one, _), (other, _)| query.compare_cells(one.as_ref(), other.as_ref()));
        self.is_full = self.kept.len() >= query.limit;
        self.kept.truncate(query.limit);
        self.last = self.kept.last().and_then(|(cell, _)| match cell {
            Some(Cell::Count(count)) => Some(*count),
            Some(Cell::Number(seconds)) => Some((seconds * 1e3).round() as u64),
            Some(Cell::Text(_)) | None => None,
        });
    }
}

impl ConnClosing {
    pub(crate) fn new(network: Network, parts: Gathered<ActionResult>) -> Self {
        Self { network, next: 0, affected: 0, parts }
    }
}

impl Core {
    /// Begins a walk over all connections.
    pub(crate) fn begin_walk(&mut self, walk: ConnWalk) {
        if self.walks.is_empty() {
            self.link.send(WorkerMessage::Walk);
        }
        self.walks.push_back(walk);
    }

    /// Visits slots of sockets from `next` on, at most `most`, up to the first one whose cell is not in the slot. Returns the
    /// next index, and the number of visited slots; none for a query that is not plain.
    fn visit_plain(&self, listing: &mut ConnListing, next: u32, most: usize) -> (u32, usize) {
        let slots = self.conns.sockets.get(next as usize..).unwrap_or_default();
        if !listing.is_plain {
            return (next, 0);
        }
        let mut visits = 0;
        for (conn, index) in slots.iter().zip(next..).take(most) {
            if is_listed(conn) && !conn.has(ADMIN) {
                let number = match listing.column {
                    SortColumn::Requests => Some(conn.requests.into()),
                    SortColumn::Idle if conn.is_at_rest() => self.phase_of(conn).map(|ns| ns / 1_000_000),
                    SortColumn::Idle => break,
                    _ => None,
                };
                listing.keep_plain(number, Token { index, generation: conn.generation });
            }
            visits += 1;
        }
        (next + visits as u32, visits)
    }

    /// Continues to close the connections of an address. Returns whether more are left. The admin listener's stay open: among
    /// them is the operator's own.
    fn close_some(&mut self, closing: &mut ConnClosing) -> bool {
        let mut work = 0;
        while work < TURN_WORK {
            let Some(place) = self.conns.place_from(closing.next) else {
                closing.parts.add(Ok(ActionReport { affected: closing.affected, notes: Vec::new() }));
                return false;
            };
            closing.next = place + 1;
            work += VISIT;
            let conn = &self.conns[place as usize];
            let token = Token { index: place, generation: conn.generation };
            if is_stream(token) || !is_listed(conn) || conn.has(ADMIN) {
                continue;
            }
            if let Peer::Inet(address) = conn.peer.unpack()
                && closing.network.contains(address.ip())
            {
                work += CLOSE;
                closing.affected += 1;
                self.close_by_operator(token, CloseReason::Operator);
            }
        }
        true
    }

    /// Closes a connection at once. A client that does not read would otherwise keep its unsent bytes in the kernel.
    pub(crate) fn close_by_operator(&mut self, token: Token, reason: CloseReason) {
        let abort = is_stream(token) || self.conns[token.index as usize].has(SENDING);
        self.close(token, reason, abort);
    }
}

impl<R: Reactor> Worker<R> {
    /// Does one part of the first walk.
    pub(crate) fn walk(&mut self) {
        let Some(mut walk) = self.core.walks.pop_front() else { return };
        let more = match &mut walk {
            ConnWalk::List(listing) => self.list_some(listing),
            ConnWalk::Close(closing) => self.core.close_some(closing),
        };
        if more {
            self.core.walks.push_back(walk);
        }
        if !self.core.walks.is_empty() {
            self.core.link.send(WorkerMessage::Walk);
        }
    }

    /// Continues a list. Returns whether it is incomplete.
    fn list_some(&mut self, listing: &mut ConnListing) -> bool {
        let mut work = 0;
        while work < TURN_WORK {
            if let Some(next) = listing.next {
                let (next, visits) = self.core.visit_plain(listing, next, (TURN_WORK - work) / PLAIN_VISIT);
                work += visits * PLAIN_VISIT;
                if work >= TURN_WORK {
                    listing.next = Some(next);
                    break;
                }
                let place = self.core.conns.place_from(next);
                listing.next = place.map(|place| place + 1);
                match place {
                    Some(place) => work += VISIT + self.visit(listing, place),
                    None => listing.cut(),
                }
            } else if let Some((_, token)) = listing.kept.pop() {
                // A connection may have closed since its visit.
                if self.core.conn(token).is_some_and(|conn| is_listed(conn)) {
                    let kernel = self.kernel_view(token);
                    listing.rows.push(self.core.conn_row(token, Some(&kernel)));
                    work += ROW + KERNEL;
                }
            } else {
                listing.ticket.add_selected(std::mem::take(&mut listing.rows), listing.total);
                return false;
            }
        }
        true
    }

    /// Visits a slot. Returns the work beyond that of the visit.
    fn visit(&mut self, listing: &mut ConnListing, place: u32) -> usize {
        let conn = &self.core.conns[place as usize];
        // An operator's own connections would be found by every search, since they carry its text.
        if !is_listed(conn) || conn.has(ADMIN) {
            return 0;
        }
        let token = Token { index: place, generation: conn.generation };
        if listing.only.is_some_and(|only| only != Some(token)) {
            return 0;
        }
        if let Some(wanted) = listing.address {
            let is_wanted = match conn.peer.unpack() {
                Peer::Inet(address) => Some(address.ip().to_canonical()) == wanted,
                Peer::Local => listing.wants_local,
            };
            if !is_wanted {
                return 0;
            }
        }
        let (mut row, mut work) = (None, 0);
        if listing.selects_by_row() {
            let query = listing.ticket.query();
            let mut admitted = None;
            // Most rows are selected, or not, by cells that need no system call.
            if !listing.needs_kernel {
                work += ROW;
                admitted = Some(self.core.conn_row(token, None)).filter(|row| query.admits(row));
            }
            // Only the kernel knows for how long a slow client has read nothing.
            if admitted.is_none() && (listing.needs_kernel || self.core.conns[place as usize].has(SENDING)) {
                work += ROW + KERNEL;
                let kernel = self.kernel_view(token);
                admitted = Some(self.core.conn_row(token, Some(&kernel))).filter(|row| query.admits(row));
            }
            if admitted.is_none() {
                return work;
            }
            row = admitted;
        }
        let (cell, extra) = self.sort_cell(listing, token, row);
        listing.keep(cell, token);
        work + extra
    }

    /// Returns the cell by which a connection is sorted, and the work for it.
    fn sort_cell(&mut self, listing: &ConnListing, token: Token, row: Option<Row>) -> (Option<Cell>, usize) {
        let conn = &self.core.conns[token.index as usize];
        match listing.column {
            SortColumn::None => (None, 0),
            SortColumn::Requests => (Some(Cell::Count(conn.requests.into())), 0),
            SortColumn::Address => (Some(Cell::Text(address(conn.peer.unpack()).into())), VISIT),
            SortColumn::State => (Some(self.core.state_of(token).into()), 0),
            SortColumn::Idle if conn.is_at_rest() => (self.core.phase_ns(token).map(seconds), 0),
            SortColumn::Idle => {
                let kernel = self.kernel_view(token);
                (self.core.idle_ns(token, Some(&kernel)).map(seconds), KERNEL)
            }
            SortColumn::Age => {
                let is_open = self.core.conns[token.index as usize].requests == 1;
                let known = if is_open { self.core.describe(token) } else { ConnDescription::default() };
                (self.core.age_ns(token, known.since_ns).map(seconds), VISIT)
            }
            SortColumn::OfRow(by_kernel) => {
                let mut work = 0;
                let row = row.filter(|_| !by_kernel).unwrap_or_else(|| {
                    work += ROW + if by_kernel { KERNEL } else { 0 };
                    let kernel = by_kernel.then(|| self.kernel_view(token));
                    self.core.conn_row(token, kernel.as_ref())
                });
                let column = listing.ticket.query().sort.as_ref().map(|sort| sort.column.as_str());
                (column.and_then(|column| row.cell(column).cloned()), work)
            }
        }
    }

    /// Returns the kernel's view of a connection, by three system calls. A stream has only its listener in common with the
    /// connection that carries it.
    fn kernel_view(&self, token: Token) -> KernelView {
        let carrier = if is_stream(token) { self.core.http2.carrier(token) } else { Some(token) };
        let facts = carrier.and_then(|carrier| self.facts(carrier)).unwrap_or_default();
        let facts = if is_stream(token) { StreamFacts { tcp: None, ..facts } } else { facts };
        KernelView { unsent_bytes: self.unsent(token), facts }
    }
}

/// Checks that a text is the id of a connection of this worker, and returns its token. `Ok(None)`: it is the id of a
/// connection of another worker.
pub(super) fn own_token(core: &Core, text: &str) -> Result<Option<Token>, super::NoConnId> {
    let id: ConnId = text.parse()?;
    if id.server != core.census.server_id() || id.worker >= core.workers {
        return Err(super::NoConnId);
    }
    Ok((id.worker == core.number).then_some(id.token))
}

#[cfg(test)]
mod tests {
    use encke_stats::Sort;

    use super::*;

    fn listing(column: SortColumn, name: &str, descending: bool, limit: usize) -> ConnListing {
        let sort = Some(Sort { column: name.into(), descending });
        let query = Query { sort, limit, ..Query::default() };
        ConnListing {
            ticket: ListTicket::new(&query, |_| {}),
            column,
            address: None,
            only: None,
            wants_local: false,
            needs_kernel: false,
            is_plain: true,
            next: None,
            total: 0,
            kept: Vec::new(),
            is_full: false,
            last: None,
            rows: Vec::new(),
        }
    }

    #[test]
    fn numbers_of_slots_keep_the_connections_that_their_cells_keep() {
        let mut seed = 11_u64;
        println!("seed {seed}");
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for round in 0..400 {
            let (limit, count) = (1 + random(6) as usize, random(60) as u32);
            // Few numbers are equal, or nearly all; some slots have none.
            let range = if round % 2 == 0 { 4 } else { 10_000_000 };
            for (column, name) in [(SortColumn::Idle, "idle_s"), (SortColumn::Requests, "requests")] {
                for descending in [false, true] {
                    let [mut plain, mut by_cell] = [0, 1].map(|_| listing(column, name, descending, limit));
                    for index in 0..count {
                        let number = (random(9) > 0).then(|| random(range));
                        let token = Token { index, generation: 0 };
                        plain.keep_plain(number, token);
                        by_cell.keep(number.map(|number| column.plain_cell(number)), token);
                    }
                    plain.cut();
                    by_cell.cut();
                    assert_eq!((plain.total, &plain.kept), (by_cell.total, &by_cell.kept), "{name} {limit}");
                }
            }
        }
    }
}
