//! The slots of a worker and their timers: one table for sockets, by index in the reactor, and one for the streams of HTTP/2
//! connections.
//!
//! ```text
//! place   0 … sockets          STREAM | 0 … STREAM | streams
//!         a reactor's source   a stream: its "socket" is an HTTP/2 connection, which has a slot among the sockets
//! ```
//! For code above, a stream is a connection of its own: it has a phase, deadlines, an exchange or a subscriber. Only its
//! operations and events take another path than a socket's; see `h2`.

use std::ops::{Index, IndexMut};

use encke_io::wheel::Wheel;
use encke_io::{Token, connection_table};

use crate::conn::Conn;

/// The bit that distinguishes a stream's index from a socket's. Slots are numbered densely, so no socket has it.
const STREAM: u32 = 1 << 31;

/// Whether a token names a stream.
pub(crate) const fn is_stream(token: Token) -> bool {
    token.index & STREAM != 0 && token.index != Token::NONE.index
}

/// Returns the slot index of the stream with index `place` among streams.
pub(crate) const fn stream_place(place: u32) -> u32 {
    place | STREAM
}

/// Returns the index among streams of a stream's token.
pub(crate) const fn among_streams(token: Token) -> u32 {
    token.index & !STREAM
}

/// Slots by index.
pub(crate) struct Conns {
    pub(crate) sockets: Vec<Conn>,
    streams: Vec<Conn>,
}

impl Default for Conns {
    fn default() -> Self {
        Self { sockets: connection_table(), streams: Vec::new() }
    }
}

impl Conns {
    /// Returns every index, vacant slots included.
    pub(crate) fn places(&self) -> impl Iterator<Item = u32> + use<> {
        (0..self.sockets.len() as u32).chain((0..self.streams.len() as u32).map(stream_place))
    }

    /// Number of slots.
    pub(crate) fn len(&self) -> usize {
        self.sockets.len() + self.streams.len()
    }

    /// Returns the index of the `nth` slot, counted from 0.
    pub(crate) fn place(&self, nth: usize) -> u32 {
        let sockets = self.sockets.len();
        if nth < sockets { nth as u32 } else { stream_place((nth - sockets) as u32) }
    }

    /// Returns `place` if there is a slot, otherwise the index of the next slot in the order of [`Conns::places`].
    pub(crate) fn place_from(&self, place: u32) -> Option<u32> {
        let (is_stream, among) = (place & STREAM != 0, (place & !STREAM) as usize);
        match is_stream {
            false if among < self.sockets.len() => Some(place),
            false => (!self.streams.is_empty()).then_some(stream_place(0)),
            true => (among < self.streams.len()).then_some(place),
        }
    }

    /// Returns the slot at an index.
    #[inline]
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut Conn> {
        let (slots, place) = self.slots_mut(place);
        slots.get_mut(place)
    }

    /// Fills the slot at an index.
    pub(crate) fn put(&mut self, place: u32, conn: Conn) {
        let (slots, place) = self.slots_mut(place as usize);
        if place >= slots.len() {
            slots.resize_with(place + 1, Conn::vacant);
        }
        slots[place] = conn;
    }

    /// Returns every slot with its index.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Conn)> {
        let sockets = self.sockets.iter_mut().zip(0..).map(|(conn, place)| (place, conn));
        sockets.chain(self.streams.iter_mut().zip(0..).map(|(conn, place)| (stream_place(place), conn)))
    }

    #[inline]
    fn slots_mut(&mut self, place: usize) -> (&mut Vec<Conn>, usize) {
        if place & STREAM as usize == 0 {
            (&mut self.sockets, place)
        } else {
            (&mut self.streams, place & !(STREAM as usize))
        }
    }
}

impl Index<usize> for Conns {
    type Output = Conn;

    #[inline]
    fn index(&self, place: usize) -> &Conn {
        if place & STREAM as usize == 0 {
            &self.sockets[place]
        } else {
            &self.streams[place & !(STREAM as usize)]
        }
    }
}

impl IndexMut<usize> for Conns {
    #[inline]
    fn index_mut(&mut self, place: usize) -> &mut Conn {
        let (slots, place) = self.slots_mut(place);
        &mut slots[place]
    }
}

/// Returns the earlier of two moments, if there are any. An iterator over them takes five times the instructions, in each turn.
#[inline]
pub const fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(first), Some(second)) => Some(if first < second { first } else { second }),
        (Some(moment), None) | (None, Some(moment)) => Some(moment),
        (None, None) => None,
    }
}

/// A timer for each slot.
pub(crate) struct Timers {
    sockets: Wheel,
    streams: Wheel,
    due: Vec<u32>,
}

impl Timers {
    /// Creates timers that start at `mono_ns`.
    pub(crate) fn new(mono_ns: u64) -> Self {
        Self { sockets: Wheel::for_connections(mono_ns), streams: Wheel::new(mono_ns), due: Vec::new() }
    }

    /// Arms the timer of a slot, and replaces its earlier deadline.
    pub(crate) fn arm(&mut self, place: u32, deadline_ns: u64) {
        let (wheel, place) = self.wheel_mut(place);
        wheel.arm(place, deadline_ns);
    }

    /// Arms the timer of a slot unless it is already armed for that moment or an earlier one.
    #[inline]
    pub(crate) fn arm_earlier(&mut self, place: u32, deadline_ns: u64) {
        let (wheel, place) = self.wheel_mut(place);
        wheel.arm_earlier(place, deadline_ns);
    }

    /// Disarms the timer of a slot.
    pub(crate) fn cancel(&mut self, place: u32) {
        let (wheel, place) = self.wheel_mut(place);
        wheel.cancel(place);
    }

    /// Returns the monotonic time of the next expiry check in ns, if a timer is armed.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        earlier(self.sockets.next_ns(), self.streams.next_ns())
    }

    /// Disarms all timers that are due, and appends their slots' indices to `due`.
    #[inline]
    pub(crate) fn expire(&mut self, mono_ns: u64, due: &mut Vec<u32>) {
        self.sockets.expire(mono_ns, due);
        self.streams.expire(mono_ns, &mut self.due);
        due.extend(self.due.drain(..).map(stream_place));
    }

    /// Number of armed timers.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn armed(&self) -> u32 {
        self.sockets.armed() + self.streams.armed()
    }

    #[inline]
    fn wheel_mut(&mut self, place: u32) -> (&mut Wheel, u32) {
        if place & STREAM == 0 { (&mut self.sockets, place) } else { (&mut self.streams, place & !STREAM) }
    }
}

#[cfg(test)]
mod tests {
    use encke_io::Peer;

    use super::*;
    use crate::conn::ConnPhase;

    #[test]
    fn sockets_and_streams_have_places_of_their_own() {
        let mut conns = Conns::default();
        for (place, generation) in [(0, 1), (stream_place(0), 2), (stream_place(1), 3)] {
            conns.put(place, Conn::new(generation, Peer::Local, ConnPhase::Idle));
        }
        let generations: Vec<u32> = conns.places().map(|place| conns[place as usize].generation).collect();
        assert_eq!(generations, [1, 2, 3]);
        assert!(conns.get_mut(1).is_none(), "one socket");
        assert!(conns.get_mut(stream_place(2) as usize).is_none(), "two streams");
        let places: Vec<u32> = conns.iter_mut().map(|(place, _)| place).collect();
        assert_eq!(places, conns.places().collect::<Vec<u32>>());
    }

    #[test]
    fn no_token_is_no_stream() {
        assert!(!is_stream(Token::NONE));
        assert!(!is_stream(Token { index: 7, generation: 0 }));
        let stream = Token { index: stream_place(7), generation: 0 };
        assert!(is_stream(stream));
        assert_eq!(among_streams(stream), 7);
    }

    #[test]
    fn the_timer_of_a_stream_is_not_that_of_the_socket_with_its_number() {
        let mut timers = Timers::new(0);
        timers.arm(3, 1_000_000_000);
        timers.arm(stream_place(3), 2_000_000_000);
        let mut due = Vec::new();
        timers.expire(1_500_000_000, &mut due);
        assert_eq!(due, [3]);
        timers.expire(2_500_000_000, &mut due);
        assert_eq!(due, [3, stream_place(3)]);
        assert_eq!(timers.armed(), 0);
    }
}
