//! The numbered message, and how it is known again in whatever wraps it.
//!
//! ```text
//! #PPNNNNNNNN.....................................................      64 bytes: publisher, number, filling
//! ```
//! A [`Finder`] looks for messages and for nothing else, so the same one reads event streams, WebSocket frames and
//! plain answers. It costs a receiver a look at eleven bytes of each message; the filling is jumped over.

/// Bytes of a message.
pub(crate) const BYTES: usize = 64;
/// As many publishers have names of two digits.
pub(crate) const PUBLISHERS_MAX: usize = 100;

const MARK: u8 = b'#';
const DIGITS: usize = 10;
/// The last eight digits are the number.
const NUMBERS: u64 = 100_000_000;

/// Who published a message, and the how many-th of that publisher it is, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    pub(crate) publisher: usize,
    pub(crate) number: u32,
}

/// The text of a message.
pub(crate) fn text(stamp: Stamp) -> String {
    let Stamp { publisher, number } = stamp;
    format!("#{publisher:02}{number:08}{:.<filling$}", "", filling = BYTES - 1 - DIGITS)
}

/// Finds messages in a stream that comes in pieces.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Finder {
    /// Bytes of the present message that have been seen; 0: between two messages.
    seen: u8,
    digits: u64,
}

impl Finder {
    /// Whether the stream stands between two messages.
    pub(crate) fn between(self) -> bool {
        self.seen == 0
    }

    /// Tells each message whose last byte is in this piece.
    pub(crate) fn feed(&mut self, mut piece: &[u8], mut found: impl FnMut(Stamp)) {
        loop {
            let seen = usize::from(self.seen);
            match seen {
                0 => {
                    let Some(mark) = piece.iter().position(|byte| *byte == MARK) else { return };
                    piece = &piece[mark + 1..];
                    *self = Self { seen: 1, digits: 0 };
                }
                1..=DIGITS => match piece.split_first() {
                    None => return,
                    Some((digit @ b'0'..=b'9', rest)) => {
                        self.digits = self.digits * 10 + u64::from(digit - b'0');
                        self.seen += 1;
                        piece = rest;
                    }
                    // Something else that begins as a message does; this byte may begin one.
                    Some(_) => self.seen = 0,
                },
                _ => {
                    let missing = BYTES - seen;
                    if piece.len() < missing {
                        self.seen += piece.len() as u8;
                        return;
                    }
                    piece = &piece[missing..];
                    self.seen = 0;
                    let (publisher, number) = (self.digits / NUMBERS, self.digits % NUMBERS);
                    found(Stamp { publisher: publisher as usize, number: number as u32 });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Stamp = Stamp { publisher: 0, number: 0 };
    const LAST: Stamp = Stamp { publisher: 99, number: 99_999_999 };

    fn found(pieces: &[&[u8]]) -> Vec<Stamp> {
        let (mut finder, mut stamps) = (Finder::default(), Vec::new());
        for piece in pieces {
            finder.feed(piece, |stamp| stamps.push(stamp));
        }
        assert!(finder.between(), "the stream ends between two messages");
        stamps
    }

    #[test]
    fn a_message_is_64_bytes_whatever_its_number() {
        assert_eq!(text(FIRST).len(), BYTES);
        assert_eq!(text(LAST).len(), BYTES);
    }

    #[test]
    fn messages_are_found_wherever_the_stream_is_cut() {
        let stream = format!("id: a-1\ndata: {}\n\n: 12 # 3\n\ndata: {}\n\n", text(FIRST), text(LAST));
        let stream = stream.as_bytes();
        for cut in 0..=stream.len() {
            let (one, other) = stream.split_at(cut);
            assert_eq!(found(&[one, other]), [FIRST, LAST], "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(found(&bytes), [FIRST, LAST], "byte by byte");
    }

    #[test]
    fn a_mark_right_before_a_message_does_not_hide_it() {
        let stream = format!("##12{}", text(LAST));
        assert_eq!(found(&[stream.as_bytes()]), [LAST]);
    }

    #[test]
    fn a_message_without_its_end_is_not_told() {
        let mut finder = Finder::default();
        finder.feed(&text(FIRST).as_bytes()[..BYTES - 1], |stamp| panic!("{stamp:?} is not whole"));
        assert!(!finder.between());
    }
}
