//! The side table: state of subscribers that does not fit into the two words of their slots.
//!
//! ```text
//! slot  ── index ─►  SubscriberRow   socket    a WebSocket's publisher and partial messages
//!                                    request   the identity, the deadline of a pipelined poll, CORS
//!                                    stashed   a delivery that follows the send in flight
//!       ── index ─►  relays          the names of subscribers that relay their channel
//! ```
//! A row exists while it has a part. Most subscribers have no row, so the table counts its parts: a completed send needs no
//! look-up while no delivery is stashed, whatever other parts exist. [`SideTable::clear`] removes all parts of a subscriber.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use encke_hub::{Gap, Name, Positions};

use super::plan::PushPlan;
use super::push_worker::renew;
use super::socket::SocketPublisher;
use encke_rights::{Principal, Share};
use encke_server::{Fields, SocketState};

/// A delivery that follows the send in flight.
pub(crate) enum Stashed {
    /// Encoded messages.
    Bytes(Arc<[u8]>),
    /// The start of an event stream or a WebSocket.
    Start(Positions, Option<Box<Gap>>),
    /// The end of the stream.
    End,
}

/// The properties of a request that its subscriber still needs.
pub(crate) struct RequestDetails {
    /// The identity of a token or certificate, and the subscribed channels.
    pub(crate) right: Option<(Principal, Vec<Name>)>,
    /// The deadline of a poll whose connection is still sending an earlier response, on the monotonic clock in ns.
    pub(crate) until_ns: Option<NonZeroU64>,
    /// The pages of other origins that may read the response, until its head is written.
    pub(crate) share: Share,
    /// The header fields of media, until the head is written.
    pub(crate) head: Option<Box<Fields>>,
    /// The client's address as a number.
    pub(crate) client: u64,
}

impl RequestDetails {
    /// Returns when the right to subscribe expires, in seconds since 1970.
    pub(crate) fn expires_unix_s(&self) -> Option<u64> {
        self.right.as_ref().and_then(|(identity, _)| identity.expires_unix_s)
    }

    /// Replaces the identity by its value under the rights of a new plan. Returns whether the subscriber may stay.
    pub(crate) fn renew(&mut self, plan: &PushPlan) -> bool {
        match &mut self.right {
            Some((identity, channels)) => renew(identity, channels, plan),
            None => plan.rights.admits_nobody(),
        }
    }

    fn is_empty(&self) -> bool {
        self.right.is_none() && self.until_ns.is_none() && self.share == Share::Nobody && self.head.is_none()
    }
}

/// The parts of a subscriber's state besides its slot. Boxed, because few rows have more than one.
#[derive(Default)]
struct SubscriberRow {
    socket: Option<Box<SocketState<SocketPublisher>>>,
    request: Option<Box<RequestDetails>>,
    stashed: Option<Box<Stashed>>,
}

impl SubscriberRow {
    const fn is_empty(&self) -> bool {
        self.socket.is_none() && self.request.is_none() && self.stashed.is_none()
    }
}

/// The rows of a worker's subscribers, by index of the connection.
#[derive(Default)]
pub(crate) struct SideTable {
    rows: HashMap<u32, SubscriberRow>,
    /// Rows with a socket.
    sockets: usize,
    /// Rows with request details.
    requests: usize,
    /// Rows with a stashed delivery.
    stashed: usize,
    /// The names of subscribers that relay their channel. A table of its own, because almost none does.
    relays: HashMap<u32, Box<str>>,
}

impl SideTable {
    /// Returns whether a connection has a row.
    pub(crate) fn has_row(&self, index: u32) -> bool {
        self.rows.contains_key(&index)
    }

    /// Returns whether no connection has a row.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.relays.is_empty()
    }

    /// Removes all state of the connection.
    pub(crate) fn clear(&mut self, index: u32) {
        if !self.relays.is_empty() {
            self.relays.remove(&index);
        }
        let Some(row) = self.rows.remove(&index) else { return };
        self.sockets -= usize::from(row.socket.is_some());
        self.requests -= usize::from(row.request.is_some());
        self.stashed -= usize::from(row.stashed.is_some());
    }

    /// Returns the state of a WebSocket.
    pub(crate) fn socket(&mut self, index: u32) -> Option<&mut SocketState<SocketPublisher>> {
        self.rows.get_mut(&index)?.socket.as_deref_mut()
    }

    /// Stores the state of a WebSocket.
    pub(crate) fn put_socket(&mut self, index: u32, socket: Box<SocketState<SocketPublisher>>) {
        let old = self.rows.entry(index).or_default().socket.replace(socket);
        self.sockets += usize::from(old.is_none());
    }

    /// Removes the state of a WebSocket and returns it.
    pub(crate) fn take_socket(&mut self, index: u32) -> Option<Box<SocketState<SocketPublisher>>> {
        let socket = self.take(index, |row| row.socket.take())?;
        self.sockets -= 1;
        Some(socket)
    }

    /// Returns the name of a subscriber's user, if a token or certificate established one.
    pub(crate) fn user(&self, index: u32) -> Option<&Arc<str>> {
        let row = self.rows.get(&index)?;
        let right = row.request.as_ref().and_then(|request| request.right.as_ref());
        let by_request = right.and_then(|(identity, _)| identity.name.as_ref());
        by_request.or_else(|| row.socket.as_ref().and_then(|socket| socket.speaker.identity.name.as_ref()))
    }

    /// Returns the name of a subscriber that relays its channel.
    pub(crate) fn relay(&self, index: u32) -> Option<&str> {
        self.relays.get(&index).map(|relay| &**relay)
    }

    /// Stores the name of a subscriber that relays its channel.
    pub(crate) fn put_relay(&mut self, index: u32, relay: Box<str>) {
        self.relays.insert(index, relay);
    }

    /// Returns the details of a subscriber's request.
    pub(crate) fn request(&self, index: u32) -> Option<&RequestDetails> {
        if self.requests == 0 {
            return None;
        }
        self.rows.get(&index)?.request.as_deref()
    }

    /// Returns the details of a subscriber's request, to renew its identity or to change its channels.
    pub(crate) fn request_mut(&mut self, index: u32) -> Option<&mut RequestDetails> {
        if self.requests == 0 {
            return None;
        }
        self.rows.get_mut(&index)?.request.as_deref_mut()
    }

    /// Stores the details of a subscriber's request, if there are any.
    pub(crate) fn put_request(&mut self, index: u32, request: RequestDetails) {
        if request.is_empty() {
            return;
        }
        let old = self.rows.entry(index).or_default().request.replace(Box::new(request));
        self.requests += usize::from(old.is_none());
    }

    /// Replaces the identity and the channels of a subscriber.
    pub(crate) fn put_right(&mut self, index: u32, right: (Principal, Vec<Name>)) {
        match self.request_mut(index) {
            Some(request) => request.right = Some(right),
            None => {
                let right = Some(right);
                self.put_request(
                    index,
                    RequestDetails { right, until_ns: None, share: Share::Nobody, head: None, client: 0 },
                );
            }
        }
    }

    /// Returns the pages of other origins that may read the response whose head is about to be written.
    pub(crate) fn take_share(&mut self, index: u32) -> Share {
        let Some(request) = self.request_mut(index) else { return Share::Nobody };
        let share = std::mem::take(&mut request.share);
        self.trim_request(index);
        share
    }

    /// Returns the header fields of media whose head is about to be written.
    pub(crate) fn take_head(&mut self, index: u32) -> Fields {
        let Some(request) = self.request_mut(index) else { return Fields::new() };
        let head = request.head.take();
        self.trim_request(index);
        head.map(|head| *head).unwrap_or_default()
    }

    /// Ends the wait of a poll whose connection is still sending an earlier response.
    pub(crate) fn end_wait(&mut self, index: u32) {
        if let Some(request) = self.request_mut(index) {
            request.until_ns = None;
        }
        self.trim_request(index);
    }

    /// Removes the details of a request once they are empty.
    fn trim_request(&mut self, index: u32) {
        let trimmed = self.take(index, |row| row.request.take_if(|request| request.is_empty()));
        self.requests -= usize::from(trimmed.is_some());
    }

    /// Stores a delivery until the send in flight completes.
    pub(crate) fn stash(&mut self, index: u32, stashed: Stashed) {
        let old = self.rows.entry(index).or_default().stashed.replace(Box::new(stashed));
        self.stashed += usize::from(old.is_none());
    }

    /// Returns whether the stashed delivery is the start of a stream: no part of its response was sent.
    pub(crate) fn is_start_stashed(&self, index: u32) -> bool {
        let stashed = self.rows.get(&index).and_then(|row| row.stashed.as_deref());
        matches!(stashed, Some(Stashed::Start(..)))
    }

    /// Removes the stashed delivery and returns it.
    #[inline]
    pub(crate) fn take_stashed(&mut self, index: u32) -> Option<Stashed> {
        if self.stashed == 0 {
            return None;
        }
        let stashed = self.take(index, |row| row.stashed.take())?;
        self.stashed -= 1;
        Some(*stashed)
    }

    /// Takes a part of a row, and removes the row if that was its last.
    fn take<T>(&mut self, index: u32, part: impl FnOnce(&mut SubscriberRow) -> Option<T>) -> Option<T> {
        let row = self.rows.get_mut(&index)?;
        let part = part(row);
        if row.is_empty() {
            self.rows.remove(&index);
        }
        part
    }

    /// Returns the memory of the table and its boxes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        table_bytes::<SubscriberRow>(self.rows.capacity())
            + self.sockets * size_of::<SocketState<SocketPublisher>>()
            + self.requests * size_of::<RequestDetails>()
            + self.stashed * size_of::<Stashed>()
            + table_bytes::<Box<str>>(self.relays.capacity())
            + self.relays.values().map(|relay| relay.len()).sum::<usize>()
    }
}

/// Returns the memory of a map by index: entries, a control byte each, and an eighth that stays empty.
const fn table_bytes<T>(capacity: usize) -> usize {
    capacity / 7 * 8 * (size_of::<(u32, T)>() + 1)
}

#[cfg(test)]
mod tests {
    use encke_io::{Now, Peer};
    use encke_rights::{AuthSettings, Openness, Rights, TokenCache};
    use encke_server::{Origin, testing};

    use super::*;

    const INDEX: u32 = 7;

    fn poll() -> RequestDetails {
        RequestDetails {
            right: None,
            until_ns: NonZeroU64::new(1),
            share: Share::Anybody,
            head: None,
            client: 0,
        }
    }

    fn socket() -> Box<SocketState<SocketPublisher>> {
        let rights = Rights::new(&AuthSettings::default(), &[], Openness::Loopback).expect("the defaults");
        let origin = Origin {
            peer: Peer::Local,
            client: None,
            forwards: false,
            hidden: false,
            secure: false,
            tls: None,
            local: true,
        };
        let now = Now { mono_ns: 0, unix_ns: 0 };
        let identity = testing::lend(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", &origin, now, |request| {
            let Ok(identity) = rights.identify(request, &mut TokenCache::default()) else {
                panic!("a local request")
            };
            identity
        });
        Box::new(SocketState::new(SocketPublisher { identity, publisher: 0, channel: None }))
    }

    fn counts(sides: &SideTable) -> [usize; 4] {
        [sides.rows.len(), sides.sockets, sides.requests, sides.stashed]
    }

    #[test]
    fn a_row_is_three_pointers_and_request_details_are_80_bytes() {
        assert_eq!(size_of::<SubscriberRow>(), 24);
        assert_eq!(size_of::<RequestDetails>(), 80);
    }

    #[test]
    fn a_leave_clears_every_part() {
        let mut sides = SideTable::default();
        sides.put_socket(INDEX, socket());
        sides.put_request(INDEX, poll());
        sides.stash(INDEX, Stashed::Bytes(Arc::from([])));
        sides.put_relay(INDEX, "b5".into());
        assert_eq!((counts(&sides), sides.relay(INDEX)), ([1; 4], Some("b5")));
        sides.clear(INDEX);
        assert_eq!((counts(&sides), sides.relay(INDEX)), ([0; 4], None));
    }

    #[test]
    fn a_row_ends_with_its_last_part() {
        let mut sides = SideTable::default();
        sides.put_socket(INDEX, socket());
        sides.put_request(INDEX, poll());
        sides.stash(INDEX, Stashed::Bytes(Arc::from([])));
        assert!(sides.take_socket(INDEX).is_some());
        assert_eq!(counts(&sides), [1, 0, 1, 1]);
        assert!(sides.take_stashed(INDEX).is_some());
        assert_eq!(counts(&sides), [1, 0, 1, 0]);
        assert_eq!(sides.take_share(INDEX), Share::Anybody);
        assert_eq!(counts(&sides), [1, 0, 1, 0], "the deadline of the poll is still needed");
        sides.end_wait(INDEX);
        assert_eq!(counts(&sides), [0; 4]);
    }

    #[test]
    fn a_part_that_replaces_another_is_counted_once() {
        let mut sides = SideTable::default();
        for _ in 0..2 {
            sides.put_socket(INDEX, socket());
            sides.put_request(INDEX, poll());
            sides.stash(INDEX, Stashed::Bytes(Arc::from([])));
        }
        assert_eq!(counts(&sides), [1; 4]);
    }

    #[test]
    fn a_plain_subscriber_has_no_row() {
        let mut sides = SideTable::default();
        let plain =
            RequestDetails { right: None, until_ns: None, share: Share::Nobody, head: None, client: 1 };
        sides.put_request(INDEX, plain);
        assert_eq!(sides.take_share(INDEX), Share::Nobody);
        assert!(sides.take_stashed(INDEX).is_none());
        assert!(!sides.has_row(INDEX));
        assert_eq!(sides.bytes(), 0);
    }
}
