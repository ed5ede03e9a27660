//! The residents of a worker, by seat.

use std::any::Any;

use crate::conns::earlier;
use crate::duty::RESIDENTS_MAX;
use crate::resident::{Gone, Resident};

/// The residents of a worker, by seat.
#[derive(Default)]
pub(crate) struct Residents {
    /// Residents by seat; `None` during a call of the resident.
    pub(crate) seats: Vec<Option<Box<dyn Resident>>>,
    /// Seats of residents that receive while they send, as bits.
    duplex: u16,
    /// Seats of residents whose connections are tunnels, as bits.
    tunnels: u16,
    /// Closed connections that their residents have not been notified of.
    gone: Vec<(u8, Gone)>,
    /// The cached result of [`Residents::due_ns`]; outer `None` if a resident was called since.
    due_ns: Option<Option<u64>>,
}

/// Seat of the engine's own resident for WebSockets.
pub(crate) const WEBSOCKETS: u8 = 0;

impl Residents {
    pub(crate) fn new(websockets: impl Resident) -> Self {
        Self { seats: vec![Some(Box::new(websockets))], ..Self::default() }
    }

    pub(crate) fn seats(&self) -> std::ops::Range<u8> {
        0..self.seats.len() as u8
    }

    /// Seats of residents that have turns: the engine's own resident has none.
    #[inline]
    pub(crate) fn with_turns(&self) -> std::ops::Range<u8> {
        WEBSOCKETS + 1..self.seats.len() as u8
    }

    /// Returns when the resident at a seat needs a turn.
    #[inline]
    pub(crate) fn seat_due_ns(&self, seat: u8) -> Option<u64> {
        self.seats.get(usize::from(seat))?.as_deref()?.due_ns()
    }

    /// Returns the earliest moment at which a resident needs a turn.
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let ask = || self.with_turns().map(|seat| self.seat_due_ns(seat)).fold(None, earlier);
        self.due_ns.unwrap_or_else(ask)
    }

    /// Caches the result of [`Residents::due_ns`] until a resident is called. Computing it costs some 40 instructions, and each
    /// turn needs it twice.
    #[inline]
    pub(crate) const fn keep_due_ns(&mut self, due_ns: Option<u64>) {
        self.due_ns = Some(due_ns);
    }

    /// Clears the cached result of [`Residents::due_ns`], because the residents' state may have changed.
    #[inline]
    pub(crate) const fn forget_due_ns(&mut self) {
        self.due_ns = None;
    }

    /// Iterates over the residents, except the one that is being called.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Resident> {
        self.seats.iter().filter_map(Option::as_deref)
    }

    /// Returns the seat and the resident of a type. Opens it if there is none.
    pub(crate) fn of_type<R: Resident>(&mut self, open: impl FnOnce() -> R) -> (u8, &mut R) {
        let same = |seat: &Option<Box<dyn Resident>>| {
            seat.as_deref().is_some_and(|resident| (resident as &dyn Any).is::<R>())
        };
        let seat = self.seats.iter().position(same).unwrap_or_else(|| {
            let resident = open();
            assert!(self.seats.len() < RESIDENTS_MAX, "a worker has at most {RESIDENTS_MAX} residents");
            self.duplex |= u16::from(resident.is_duplex()) << self.seats.len();
            self.tunnels |= u16::from(resident.is_tunnel()) << self.seats.len();
            self.seats.push(Some(Box::new(resident)));
            self.seats.len() - 1
        });
        let resident = self.seats[seat].as_deref_mut().map(|resident| resident as &mut dyn Any);
        let resident = resident.and_then(|resident| resident.downcast_mut::<R>());
        (seat as u8, resident.expect("found by its type, or just opened"))
    }

    /// Whether the resident at a seat receives while it sends.
    pub(crate) const fn is_duplex(&self, seat: u8) -> bool {
        self.duplex >> seat & 1 != 0
    }

    /// Whether the connections of the resident at a seat are tunnels.
    pub(crate) const fn is_tunnel(&self, seat: u8) -> bool {
        self.tunnels >> seat & 1 != 0
    }

    /// Records that a connection of a resident has closed.
    pub(crate) fn note_gone(&mut self, seat: u8, gone: Gone) {
        self.gone.push((seat, gone));
    }

    /// Notifies residents of their closed connections.
    #[inline]
    pub(crate) fn report_gone(&mut self) {
        while let Some((seat, gone)) = self.gone.pop() {
            self.due_ns = None;
            if let Some(Some(resident)) = self.seats.get_mut(usize::from(seat)) {
                resident.closed(gone);
            }
        }
    }

    /// Whether residents were notified of all closed connections.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_settled(&self) -> bool {
        self.gone.is_empty()
    }
}
