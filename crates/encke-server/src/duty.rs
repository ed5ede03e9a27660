//! The duty of a connection: its present purpose, and the numbers that belong to it.
//!
//! A slot has 6 bytes for the duty. So numbers are stored as bytes, which need no alignment, and the values that a [`Seat`]
//! cannot have distinguish the other duties.

/// No index: of an exchange, an engine or a flight. Also a resident's first word before it is set.
pub(crate) const NONE: u32 = u32::MAX;

/// The purpose of a connection. A test pins its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Duty {
    /// None: the connection is between requests, in the call of a handler, or about to end.
    Rest,
    /// An open exchange with this index.
    Exchange(Word),
    /// A connection of the resident with this seat, and the resident's two words.
    Resident { seat: Seat, form: u8, word: Word },
    /// An HTTP/2 connection; the index of its engine.
    Engine(Word),
    /// An outgoing connection with this index. A closed one has [`Duty::Rest`].
    Upstream(Word),
    /// A lingering connection; the number of bytes dropped since its last response was sent, and in `spare` the number of further
    /// windows of time, with [`HEARD`] if bytes came in the present one.
    Linger { spare: u8, dropped: Word },
}

/// Bytes came in the present window of a lingering connection.
const HEARD: u8 = 1 << 7;

/// A number as bytes, which need no alignment.
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

/// A resident's number on its worker. As an enum it leaves values unused, which [`Duty`] needs.
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

/// Maximum number of residents of a worker.
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

    /// The duty of a connection of the resident at `seat`, which is below [`RESIDENTS_MAX`]. Its words are not set yet.
    pub(crate) const fn resident(seat: u8) -> Self {
        Self::Resident { seat: Seat::ALL[seat as usize], form: 0, word: Word::new(NONE) }
    }

    /// The duty of a connection that begins to linger: for one window of time, and at most `spare` (below 128) further ones.
    pub(crate) const fn linger(spare: u8) -> Self {
        Self::Linger { spare, dropped: Word::new(0) }
    }

    /// The index of the connection's exchange.
    #[inline]
    pub(crate) const fn as_exchange(self) -> Option<u32> {
        if let Self::Exchange(place) = self { Some(place.get()) } else { None }
    }

    /// The index of the connection's engine.
    #[inline]
    pub(crate) const fn as_engine(self) -> Option<u32> {
        if let Self::Engine(place) = self { Some(place.get()) } else { None }
    }

    /// The connection's index among outgoing connections.
    #[inline]
    pub(crate) const fn as_upstream(self) -> Option<u32> {
        if let Self::Upstream(place) = self { Some(place.get()) } else { None }
    }

    /// The seat of the connection's resident.
    #[inline]
    pub(crate) const fn seat(self) -> Option<u8> {
        if let Self::Resident { seat, .. } = self { Some(seat as u8) } else { None }
    }

    /// The two words that the connection's resident has set.
    #[inline]
    pub(crate) const fn words(self) -> Option<(u32, u8)> {
        if let Self::Resident { form, word, .. } = self { Some((word.get(), form)) } else { None }
    }

    /// Sets the first word of the connection's resident. Without a resident it does nothing.
    #[inline]
    pub(crate) const fn set_word(&mut self, noted: u32) {
        if let Self::Resident { word, .. } = self {
            *word = Word::new(noted);
        }
    }

    /// Sets the second word of the connection's resident. Without a resident it does nothing.
    #[inline]
    pub(crate) const fn set_form(&mut self, noted: u8) {
        if let Self::Resident { form, .. } = self {
            *form = noted;
        }
    }

    /// Adds bytes that a lingering connection drops. Returns the total.
    pub(crate) fn drop_bytes(&mut self, bytes: usize) -> u64 {
        let Self::Linger { spare, dropped } = self else { return 0 };
        *spare |= HEARD;
        let sum = dropped.get().saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        *dropped = Word::new(sum);
        u64::from(sum)
    }

    /// Begins another window of a lingering connection, if one is left and bytes came in the present one.
    pub(crate) const fn begin_window(&mut self) -> bool {
        let Self::Linger { spare, .. } = self else { return false };
        let left = *spare & !HEARD;
        if *spare & HEARD == 0 || left == 0 {
            return false;
        }
        *spare = left - 1;
        true
    }

    /// Whether the connection may end after its output: it has no open exchange, and its resident has set no first word.
    #[inline]
    pub(crate) const fn is_done(self) -> bool {
        match self {
            Self::Rest | Self::Linger { .. } => true,
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
        // Form, word and seat, whose unused values encode the other duties.
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
            Duty::linger(0),
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
            assert_eq!(duty.drop_bytes(3), if before == Duty::linger(0) { 3 } else { 0 });
        }
    }

    #[test]
    fn a_lingering_connection_gets_another_window_while_bytes_come() {
        let mut duty = Duty::linger(2);
        assert!(!duty.begin_window(), "no bytes came");
        for left in [1, 0] {
            assert!(duty.drop_bytes(10) > 0);
            assert!(duty.begin_window(), "{left} windows are left");
            assert!(!duty.begin_window(), "no bytes came in this window");
        }
        assert_eq!(duty.drop_bytes(10), 30);
        assert!(!duty.begin_window(), "no window is left");
        assert!(!Duty::exchange(0).begin_window());
    }

    #[test]
    fn a_resident_without_a_word_lets_its_connection_end() {
        let mut duty = Duty::resident(1);
        assert!(duty.is_done());
        duty.set_word(0);
        assert!(!duty.is_done());
        assert!(Duty::Rest.is_done() && Duty::linger(0).is_done());
        assert!(!Duty::exchange(0).is_done() && !Duty::engine(0).is_done() && !Duty::upstream(0).is_done());
    }
}
