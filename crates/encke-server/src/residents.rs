//! The residents of a worker, by seat.

use std::any::Any;

use crate::conns::earlier;
use crate::duty::RESIDENTS_MAX;
use crate::resident::{Gone, Resident};

/// The residents of a worker, by seat.
#[derive(Default)]
pub(crate) struct Residents {
    /// `None` while it is being called.
    pub(crate) seats: Vec<Option<Box<dyn Resident>>>,
    /// The seats of those that receive while they send, as bits.
    duplex: u16,
    /// Connections that closed, until their residents know.
    gone: Vec<(u8, Gone)>,
    /// When a resident must have a turn, since the last one; `None` if one was called meanwhile.
    due_ns: Option<Option<u64>>,
}

/// The seat of the engine's own resident for WebSockets.
pub(crate) const WEBSOCKETS: u8 = 0;

impl Residents {
    pub(crate) fn new(websockets: impl Resident) -> Self {
        Self { seats: vec![Some(Box::new(websockets))], ..Self::default() }
    }

    pub(crate) fn seats(&self) -> std::ops::Range<u8> {
        0..self.seats.len() as u8
    }

    /// The seats of residents that take turns: the engine's own has none.
    #[inline]
    pub(crate) fn with_turns(&self) -> std::ops::Range<u8> {
        WEBSOCKETS + 1..self.seats.len() as u8
    }

    /// When a resident must have a turn.
    #[inline]
    pub(crate) fn seat_due_ns(&self, seat: u8) -> Option<u64> {
        self.seats.get(usize::from(seat))?.as_deref()?.due_ns()
    }

    /// When a resident must have a turn, of all of them.
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let ask = || self.with_turns().map(|seat| self.seat_due_ns(seat)).fold(None, earlier);
        self.due_ns.unwrap_or_else(ask)
    }

    /// Keeps the answer of [`Residents::due_ns`] until a resident is called: to ask costs some 40 instructions, and each turn
    /// wants to know twice.
    #[inline]
    pub(crate) const fn keep_due_ns(&mut self, due_ns: Option<u64>) {
        self.due_ns = Some(due_ns);
    }

    /// Forgets the answer: what it depends on may have changed.
    #[inline]
    pub(crate) const fn forget_due_ns(&mut self) {
        self.due_ns = None;
    }

    /// The residents; during a call, without the one that is being called.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Resident> {
        self.seats.iter().filter_map(Option::as_deref)
    }

    /// The resident of a type; it is opened if there is none.
    pub(crate) fn of_type<R: Resident>(&mut self, open: impl FnOnce() -> R) -> (u8, &mut R) {
        let same = |seat: &Option<Box<dyn Resident>>| {
            seat.as_deref().is_some_and(|resident| (resident as &dyn Any).is::<R>())
        };
        let seat = self.seats.iter().position(same).unwrap_or_else(|| {
            let resident = open();
            assert!(self.seats.len() < RESIDENTS_MAX, "a worker has at most {RESIDENTS_MAX} residents");
            self.duplex |= u16::from(resident.is_duplex()) << self.seats.len();
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

    /// A connection of a resident has closed.
    pub(crate) fn note_gone(&mut self, seat: u8, gone: Gone) {
        self.gone.push((seat, gone));
    }

    /// Tells residents which connections have closed.
    #[inline]
    pub(crate) fn report_gone(&mut self) {
        while let Some((seat, gone)) = self.gone.pop() {
            self.due_ns = None;
            if let Some(Some(resident)) = self.seats.get_mut(usize::from(seat)) {
                resident.closed(gone);
            }
        }
    }

    /// Whether every resident knows what has closed.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_settled(&self) -> bool {
        self.gone.is_empty()
    }
}
