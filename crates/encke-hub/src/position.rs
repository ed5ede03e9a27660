//! Positions in a stream, or in several: epochs, offsets, and the start of a subscription.

use std::fmt;
use std::str::FromStr;

use crate::limits::STREAMS_MAX;

/// An incarnation of a stream. No offset is assigned twice within an epoch, and two epochs are unrelated. The creator of a
/// stream draws the epoch at random.
///
/// The text form is lower-case base 32 (`0-9a-z` without i, l, o, u: Crockford's digits), 1 to 13 characters, no leading zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// A point in a stream: everything up to the offset was received, in all channels of the subscriber. The text form is
/// `EPOCH-OFFSET`, with the offset in decimal; only this exact form parses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The epoch of the stream.
    pub epoch: Epoch,
    /// The offset of the last message received; 0 for none.
    pub offset: u64,
}

/// The value of an id: positions in one or several streams, at most one in each. The text form joins the positions by commas;
/// only this exact form parses.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Positions(Few);

/// One or more positions. One is by far the most common case and needs no allocation.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Few {
    One(Position),
    /// At least two.
    Several(Box<[Position]>),
}

impl Positions {
    /// Returns all positions.
    pub fn as_slice(&self) -> &[Position] {
        match &self.0 {
            Few::One(one) => std::slice::from_ref(one),
            Few::Several(several) => several,
        }
    }

    /// Returns the offset in the stream with this epoch, if the id has one.
    pub fn of(&self, epoch: Epoch) -> Option<u64> {
        self.as_slice().iter().find(|position| position.epoch == epoch).map(|position| position.offset)
    }

    /// Returns the earlier position in each stream, or `None` if the streams differ.
    pub fn earlier(&self, other: &Self) -> Option<Self> {
        if self.as_slice().len() != other.as_slice().len() {
            return None;
        }
        let earlier = |one: &Position| {
            other.of(one.epoch).map(|offset| Position { offset: offset.min(one.offset), ..*one })
        };
        Self::new(self.as_slice().iter().map(earlier).collect::<Option<_>>()?)
    }

    /// Creates an id from positions; `None` if there are none.
    pub fn new(positions: Vec<Position>) -> Option<Self> {
        match positions[..] {
            [] => None,
            [one] => Some(Self(Few::One(one))),
            _ => Some(Self(Few::Several(positions.into()))),
        }
    }
}

impl From<Position> for Positions {
    fn from(one: Position) -> Self {
        Self(Few::One(one))
    }
}

/// The id of a message, or of a point after a message, for a subscriber of one or several streams. Prints like [`Positions`].
#[derive(Clone, Copy, Debug)]
pub struct Id<'a> {
    /// The position in the stream of the message.
    pub position: Position,
    /// The positions in the other streams.
    pub beside: Beside<'a>,
}

/// The positions of a subscriber in streams other than that of the current message. Usually empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside<'a> {
    /// Positions in earlier streams.
    pub before: &'a [Position],
    /// Positions in later streams.
    pub behind: &'a [Position],
}

impl Beside<'_> {
    /// Returns these positions with `position` inserted.
    pub fn with(&self, position: Position) -> Positions {
        if self.before.is_empty() && self.behind.is_empty() {
            return position.into();
        }
        Positions(Few::Several([self.before, &[position], self.behind].concat().into()))
    }
}

/// A text is not a [`Position`] or [`Positions`]. Clients must return ids unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionError;

/// The start of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Since {
    /// Messages published from now on.
    Now,
    /// The oldest kept message.
    All,
    /// The last `N` kept messages of each stream.
    Last(u32),
    /// Messages not older than an age.
    Age {
        /// The maximum age in milliseconds.
        ms: u64,
    },
    /// The newest key frame of the channel, after its preamble. This holds for a stream of one channel. A poll gets the last
    /// message instead, and a subscriber of several channels starts now.
    Key,
    /// Messages after these positions.
    After(Positions),
}

/// A text is not a [`Since`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinceError;

impl Since {
    /// Parses `now`, `all`, `key`, `last:N`, an age (`90s`, `10m`, `12h`, `7d`) or the id of a message.
    ///
    /// ```
    /// use encke_hub::{Since, SinceError};
    ///
    /// assert_eq!(Since::parse("last:10"), Ok(Since::Last(10)));
    /// assert_eq!(Since::parse("10m"), Ok(Since::Age { ms: 600_000 }));
    /// assert_eq!(Since::parse("yesterday"), Err(SinceError));
    /// ```
    ///
    /// # Errors
    /// The text has none of these forms.
    pub fn parse(text: &str) -> Result<Self, SinceError> {
        match text {
            "now" => return Ok(Self::Now),
            "all" => return Ok(Self::All),
            "key" => return Ok(Self::Key),
            _ => {}
        }
        if let Some(count) = text.strip_prefix("last:") {
            let count = decimal(count).and_then(|count| u32::try_from(count).ok());
            return count.map(Self::Last).ok_or(SinceError);
        }
        if let Some(ms) = age_ms(text) {
            return Ok(Self::Age { ms });
        }
        text.parse().map(Self::After).map_err(|PositionError| SinceError)
    }
}

fn age_ms(text: &str) -> Option<u64> {
    let unit_ms: u64 = match text.as_bytes().last()? {
        b's' => 1_000,
        b'm' => 60_000,
        b'h' => 3_600_000,
        b'd' => 86_400_000,
        _ => return None,
    };
    decimal(&text[..text.len() - 1])?.checked_mul(unit_ms)
}

/// Parses a decimal number without a sign or leading zeros, the form that `Display` writes.
fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let shortest = text == "0" || !text.starts_with('0');
    if digits && shortest { text.parse().ok() } else { None }
}

const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// 64 bits in digits of 5 bits: twelve whole digits, and one of 4 bits.
const EPOCH_DIGITS_MAX: usize = 13;

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [b'0'; EPOCH_DIGITS_MAX];
        let mut rest = self.0;
        let mut begins = EPOCH_DIGITS_MAX;
        while begins == EPOCH_DIGITS_MAX || rest > 0 {
            begins -= 1;
            text[begins] = DIGITS[(rest & 31) as usize];
            rest >>= 5;
        }
        f.write_str(std::str::from_utf8(&text[begins..]).expect("digits are ASCII"))
    }
}

impl FromStr for Epoch {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let bytes = text.as_bytes();
        if bytes.is_empty() || bytes.len() > EPOCH_DIGITS_MAX || (bytes.len() > 1 && bytes[0] == b'0') {
            return Err(PositionError);
        }
        let mut number: u64 = 0;
        for byte in bytes {
            let digit = DIGITS.iter().position(|digit| digit == byte).ok_or(PositionError)?;
            number = number.checked_mul(32).ok_or(PositionError)? | digit as u64;
        }
        Ok(Self(number))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.offset)
    }
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let (epoch, offset) = text.split_once('-').ok_or(PositionError)?;
        Ok(Self { epoch: epoch.parse()?, offset: decimal(offset).ok_or(PositionError)? })
    }
}

impl fmt::Display for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        joined(self.as_slice(), f)
    }
}

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, beside: Beside { before, behind } } = self;
        joined(before, f)?;
        if !before.is_empty() {
            f.write_str(",")?;
        }
        fmt::Display::fmt(position, f)?;
        if !behind.is_empty() {
            f.write_str(",")?;
        }
        joined(behind, f)
    }
}

fn joined(positions: &[Position], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, position) in positions.iter().enumerate() {
        if at > 0 {
            f.write_str(",")?;
        }
        fmt::Display::fmt(position, f)?;
    }
    Ok(())
}

impl FromStr for Positions {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let mut positions: Vec<Position> = Vec::new();
        for one in text.split(',') {
            let one: Position = one.parse()?;
            if positions.len() == STREAMS_MAX || positions.iter().any(|other| other.epoch == one.epoch) {
                return Err(PositionError);
            }
            positions.push(one);
        }
        Self::new(positions).ok_or(PositionError)
    }
}

impl fmt::Debug for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PositionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an id of this server: send ids back unchanged")
    }
}

impl fmt::Display for SinceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected now, all, key, last:N, an age such as 90s, 10m, 12h or 7d, or the id of a message",
        )
    }
}

impl std::error::Error for PositionError {}
impl std::error::Error for SinceError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, offset: u64) -> Position {
        Position { epoch: Epoch(epoch), offset }
    }

    #[test]
    fn what_is_printed_reads_back() {
        for (position, text) in [
            (at(0, 0), "0-0"),
            (at(31, 7), "z-7"),
            (at(32, 10), "10-10"),
            (at(u64::MAX, u64::MAX), "fzzzzzzzzzzzz-18446744073709551615"),
        ] {
            assert_eq!(position.to_string(), text);
            assert_eq!(text.parse(), Ok(position));
        }
    }

    #[test]
    fn positions_in_several_streams_are_joined_by_commas() {
        let [one, other, third] = [at(31, 7), at(32, 10), at(1, 0)];
        let positions: Positions = "z-7,10-10,1-0".parse().expect("positions");
        assert_eq!(positions.as_slice(), [one, other, third]);
        assert_eq!((positions.of(Epoch(32)), positions.of(Epoch(33))), (Some(10), None));
        for before in 0..3 {
            let beside = Beside {
                before: &positions.as_slice()[..before],
                behind: &positions.as_slice()[before + 1..],
            };
            let position = positions.as_slice()[before];
            assert_eq!(Id { position, beside }.to_string(), "z-7,10-10,1-0");
            assert_eq!(beside.with(position), positions);
        }
        assert_eq!(Id { position: one, beside: Beside::default() }.to_string(), "z-7");
        assert_eq!(Beside::default().with(one), "z-7".parse().expect("a position"));
        assert_eq!(Positions::new(Vec::new()), None);
        let nine: Vec<String> = (0..=STREAMS_MAX).map(|number| format!("{number}-1")).collect();
        assert!(nine[1..].join(",").parse::<Positions>().is_ok());
        for text in ["", ",", "z-7,", ",z-7", "z-7,z-8", "z-7, 1-0", "z-7,,1-0", &nine.join(",")] {
            assert_eq!(text.parse::<Positions>(), Err(PositionError), "{text:?}");
        }
    }

    #[test]
    fn no_other_text_is_a_position() {
        for text in [
            "",
            "-",
            "0",
            "0-",
            "-0",
            "00-1",
            "0-01",
            "0-+1",
            "0--1",
            "Z-1",
            "i-1",
            "u-1",
            "0-1 ",
            " 0-1",
            "0-1-1",
            "g000000000000-1",
            "00000000000001-1",
            "0-18446744073709551616",
            "0-\u{661}",
            "ä-1",
        ] {
            assert_eq!(text.parse::<Position>(), Err(PositionError), "{text:?}");
        }
    }

    #[test]
    fn arbitrary_text_is_an_error_or_the_printed_form_and_never_a_panic() {
        let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
        println!("seed {seed}");
        let alphabet: Vec<char> = "0123456789abfgz-,:lastnowmhd+ ä".chars().collect();
        for _ in 0..100_000 {
            let mut text = String::new();
            for _ in 0..seed % 16 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push(alphabet[(seed >> 33) as usize % alphabet.len()]);
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if let Ok(position) = text.parse::<Position>() {
                assert_eq!(position.to_string(), text);
            }
            if let Ok(Since::After(positions)) = Since::parse(&text) {
                assert_eq!(positions.to_string(), text);
            }
        }
    }

    #[test]
    fn since_reads_each_of_its_forms() {
        for (text, since) in [
            ("now", Since::Now),
            ("all", Since::All),
            ("key", Since::Key),
            ("last:1", Since::Last(1)),
            ("last:0", Since::Last(0)),
            ("90s", Since::Age { ms: 90_000 }),
            ("10m", Since::Age { ms: 600_000 }),
            ("12h", Since::Age { ms: 43_200_000 }),
            ("7d", Since::Age { ms: 604_800_000 }),
            ("7d-7", Since::After(at(7 * 32 + 13, 7).into())),
        ] {
            assert_eq!(Since::parse(text), Ok(since), "{text}");
        }
        let wrong = [
            "",
            "s",
            "Key",
            "last:",
            "last:-1",
            "last:4294967296",
            "10",
            "1w",
            "-5m",
            "Now",
            "99999999999999999d",
        ];
        for text in wrong {
            assert_eq!(Since::parse(text), Err(SinceError), "{text}");
        }
    }
}
