//! The duty of a connection: what it is for at the moment, and the numbers that belong to that.
//!
//! A slot has room for 6 bytes here. So the numbers are kept as bytes, which need no alignment, and the duties are told
//! apart by the values that a [`Seat`] does not have.

/// No place: of an exchange, an engine or a flight, and the first word of a resident that has noted none.
pub(crate) const NONE: u32 = u32::MAX;

/// What a connection is for. Its size is pinned by a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Duty {
    /// Nothing beyond the slot itself: between requests, during the call of a handler, or on the way to its end.
    Rest,
    /// An exchange is open, at this place.
    Exchange(Word),
    /// A resident has it, and has noted two words.
    Resident { seat: Seat, form: u8, word: Word },
    /// An engine of HTTP/2 runs it, at this place.
    Engine(Word),
    /// It is an outgoing connection, at this place among them. A closed one is at [`Duty::Rest`].
    Upstream(Word),
    /// Its last response is sent, and it has dropped this number of bytes since.
    Linger(Word),
}

/// A number as bytes, so that nothing has to be aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word([u8; 4]);

impl Word {
    const fn new(number: u32) -> Self {
        Self(number.to_ne_bytes())
    }

    const fn get(self) -> u32 {
        u32::from_ne_bytes(self.0)
    }
}

/// The seat of a resident at its worker, as an enum because of the values that it does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[rustfmt::skip]
pub(crate) enum Seat { S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11, S12, S13, S14, S15 }

impl Seat {
    #[rustfmt::skip]
    const ALL: [Self; 16] = [
        Self::S0, Self::S1, Self::S2, Self::S3, Self::S4, Self::S5, Self::S6, Self::S7,
        Self::S8, Self::S9, Self::S10, Self::S11, Self::S12, Self::S13, Self::S14, Self::S15,
    ];
}

/// Residents that a worker may have, at most.
pub(crate) const RESIDENTS_MAX: usize = Seat::ALL.len();

impl Duty {
    pub(crate) const fn exchange(place: u32) -> Self {
        Self::Exchange(Word::new(place))
    }

    pub(crate) const fn engine(place: u32) -> Self {
        Self::Engine(Word::new(place))
    }

    pub(crate) const fn upstream(place: u32) -> Self {
        Self::Upstream(Word::new(place))
    }

    /// The connection of the resident at a seat, below [`RESIDENTS_MAX`], which has noted nothing yet.
    pub(crate) const fn resident(seat: u8) -> Self {
        Self::Resident { seat: Seat::ALL[seat as usize], form: 0, word: Word::new(NONE) }
    }

    /// A connection that lingers, and has dropped nothing yet.
    pub(crate) const fn linger() -> Self {
        Self::Linger(Word::new(0))
    }

    /// The place of its exchange.
    #[inline]
    pub(crate) const fn as_exchange(self) -> Option<u32> {
        if let Self::Exchange(place) = self { Some(place.get()) } else { None }
    }

    /// The place of its engine.
    #[inline]
    pub(crate) const fn as_engine(self) -> Option<u32> {
        if let Self::Engine(place) = self { Some(place.get()) } else { None }
    }

    /// Its place among outgoing connections.
    #[inline]
    pub(crate) const fn as_upstream(self) -> Option<u32> {
        if let Self::Upstream(place) = self { Some(place.get()) } else { None }
    }

    /// The seat of its resident.
    #[inline]
    pub(crate) const fn seat(self) -> Option<u8> {
        if let Self::Resident { seat, .. } = self { Some(seat as u8) } else { None }
    }

    /// The words that its resident has noted.
    #[inline]
    pub(crate) const fn words(self) -> Option<(u32, u8)> {
        if let Self::Resident { form, word, .. } = self { Some((word.get(), form)) } else { None }
    }

    /// Notes the first word of its resident. Without one nothing is noted.
    #[inline]
    pub(crate) const fn set_word(&mut self, noted: u32) {
        if let Self::Resident { word, .. } = self {
            *word = Word::new(noted);
        }
    }

    /// Notes the second word of its resident. Without one nothing is noted.
    #[inline]
    pub(crate) const fn set_form(&mut self, noted: u8) {
        if let Self::Resident { form, .. } = self {
            *form = noted;
        }
    }

    /// Adds bytes that a lingering connection drops. Returns the number of bytes it has dropped by then.
    pub(crate) fn drop_bytes(&mut self, bytes: usize) -> u64 {
        let Self::Linger(dropped) = self else { return 0 };
        let sum = dropped.get().saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        *dropped = Word::new(sum);
        u64::from(sum)
    }

    /// Whether the connection may end after its output: nothing is open on it, and its resident has noted no first word.
    #[inline]
    pub(crate) const fn is_done(self) -> bool {
        match self {
            Self::Rest | Self::Linger(_) => true,
            Self::Resident { word, .. } => word.get() == NONE,
            Self::Exchange(_) | Self::Engine(_) | Self::Upstream(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duty_takes_six_bytes() {
        // Form, word and seat, whose unused values name the other duties.
        assert_eq!(size_of::<Duty>(), 1 + 4 + 1);
        assert_eq!(align_of::<Duty>(), 1);
    }

    #[test]
    fn every_seat_is_the_number_it_was_made_from() {
        for seat in 0..RESIDENTS_MAX as u8 {
            assert_eq!(Duty::resident(seat).seat(), Some(seat));
        }
    }

    #[test]
    fn a_number_is_read_only_under_its_own_duty() {
        let all = [
            Duty::Rest,
            Duty::exchange(7),
            Duty::resident(3),
            Duty::engine(7),
            Duty::upstream(7),
            Duty::linger(),
        ];
        let places = |read: fn(Duty) -> Option<u32>| all.map(|duty| read(duty) == Some(7));
        assert_eq!(places(Duty::as_exchange), [false, true, false, false, false, false]);
        assert_eq!(places(Duty::as_engine), [false, false, false, true, false, false]);
        assert_eq!(places(Duty::as_upstream), [false, false, false, false, true, false]);
        assert_eq!(all.map(|duty| duty.words().is_some()), [false, false, true, false, false, false]);
        for mut duty in all {
            let before = duty;
            duty.set_word(9);
            duty.set_form(5);
            assert!(duty == before || duty.words() == Some((9, 5)), "{before:?}");
            assert_eq!(duty.drop_bytes(3), if before == Duty::linger() { 3 } else { 0 });
        }
    }

    #[test]
    fn a_resident_without_a_word_lets_its_connection_end() {
        let mut duty = Duty::resident(1);
        assert!(duty.is_done());
        duty.set_word(0);
        assert!(!duty.is_done());
        assert!(Duty::Rest.is_done() && Duty::linger().is_done());
        assert!(!Duty::exchange(0).is_done() && !Duty::engine(0).is_done() && !Duty::upstream(0).is_done());
    }
}
