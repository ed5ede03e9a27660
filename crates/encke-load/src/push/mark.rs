//! The mark that identifies a message, whatever wraps it: an event, a frame, a line of JSON, a body.
//!
//! ```text
//!   #RRRRRRRRLLLLNNNNNNNNTTTTTTTTTTTTTTTT.........      run · lane · number · send time · padding
//! ```
//! All digits are hexadecimal, so JSON, event streams and forms leave them unchanged. The time is from the monotonic clock,
//! which all threads of a machine share. A receiver therefore needs only the mark to compute the latency. The run number
//! separates messages of this run from older ones in the same channel.

use memchr::memchr;

/// Bytes of a mark, and the minimum payload.
pub const BYTES: usize = 1 + RUN + LANE + NUMBER + TIME;

const RUN: usize = 8;
const LANE: usize = 4;
const NUMBER: usize = 8;
const TIME: usize = 16;
const SIGN: u8 = b'#';
const FILLING: u8 = b'.';

/// Identity and send time of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    /// The sequence of messages.
    pub(crate) lane: u16,
    /// The number within the lane, from 0.
    pub(crate) number: u32,
    /// The send time, on the monotonic clock.
    pub(crate) sent_ns: u64,
}

impl Mark {
    /// Appends a payload of `bytes` bytes, at least [`BYTES`].
    pub(crate) fn put(self, run: u32, bytes: usize, out: &mut Vec<u8>) {
        let end = out.len() + bytes.max(BYTES);
        out.push(SIGN);
        put_digits(out, run.into(), RUN);
        put_digits(out, self.lane.into(), LANE);
        put_digits(out, self.number.into(), NUMBER);
        put_digits(out, self.sent_ns, TIME);
        out.resize(end, FILLING);
    }

    /// Overwrites the time of a mark that [`Mark::put`] wrote at `place`. The clock can thus be read after all other work.
    pub(crate) fn put_time(sent_ns: u64, place: usize, out: &mut [u8]) {
        let time = &mut out[place + BYTES - TIME..][..TIME];
        time.iter_mut().zip(digits_of(sent_ns, TIME)).for_each(|(byte, digit)| *byte = digit);
    }

    /// The first mark of a run in a text, and the text after it.
    pub(crate) fn find(run: u32, text: &[u8]) -> Option<(Self, &[u8])> {
        let mut rest = text;
        loop {
            let at = memchr(SIGN, rest)?;
            rest = &rest[at + 1..];
            if let Some(found) = Self::read(run, rest) {
                return Some((found, &rest[BYTES - 1..]));
            }
        }
    }

    /// Parses the text after a sign.
    fn read(run: u32, text: &[u8]) -> Option<Self> {
        let (own, rest) = text.split_at_checked(RUN)?;
        let (lane, rest) = rest.split_at_checked(LANE)?;
        let (number, rest) = rest.split_at_checked(NUMBER)?;
        let time = rest.get(..TIME)?;
        if digits(own)? != u64::from(run) {
            return None;
        }
        // The casts hold, as the digits fit.
        Some(Self { lane: digits(lane)? as u16, number: digits(number)? as u32, sent_ns: digits(time)? })
    }
}

fn put_digits(out: &mut Vec<u8>, value: u64, count: usize) {
    out.extend(digits_of(value, count));
}

fn digits_of(value: u64, count: usize) -> impl Iterator<Item = u8> {
    (0..count).rev().map(move |place| b"0123456789abcdef"[(value >> (4 * place)) as usize & 0xF])
}

/// Parses digits without branches on their values: the digits of times vary, so such branches would be mispredicted.
fn digits(text: &[u8]) -> Option<u64> {
    let (value, all) = text.iter().fold((0, 0), |(value, all), byte| {
        let digit = DIGITS[usize::from(*byte)];
        (value << 4 | u64::from(digit), all | digit)
    });
    (all != NO_DIGIT).then_some(value)
}

/// The value of each byte as a digit.
const DIGITS: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value] as usize] = value as u8;
        value += 1;
    }
    table
};
/// Has bits that no digit has, so an OR of digits never equals it.
const NO_DIGIT: u8 = 0xFF;

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark { lane: 0xBEE, number: 4_000_000_000, sent_ns: u64::MAX - 5 };

    fn payload(bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        MARK.put(7, bytes, &mut out);
        out
    }

    #[test]
    fn a_payload_has_the_length_that_was_asked_for() {
        for (asked, bytes) in [(0, BYTES), (BYTES, BYTES), (64, 64), (5_000, 5_000)] {
            assert_eq!(payload(asked).len(), bytes);
        }
    }

    #[test]
    fn a_mark_is_found_whatever_stands_around_it() {
        let text = String::from_utf8(payload(64)).expect("ASCII");
        for text in [
            format!("data: {text}\n\n"),
            format!("##0{text}"),
            format!("{{\"id\":\"#1\",\"data\":\"{text}\"}}"),
        ] {
            let (mark, rest) = Mark::find(7, text.as_bytes()).expect("a mark");
            assert_eq!(mark, MARK, "{text}");
            assert!(rest.starts_with(b"."), "{text}");
            assert_eq!(Mark::find(7, rest), None, "{text}");
        }
    }

    #[test]
    fn a_mark_may_have_its_time_last() {
        let mut text = b"data=".to_vec();
        Mark { sent_ns: 7, ..MARK }.put(7, 64, &mut text);
        Mark::put_time(MARK.sent_ns, 5, &mut text);
        assert_eq!(text, [b"data=".to_vec(), payload(64)].concat());
    }

    #[test]
    fn only_small_hexadecimal_digits_are_digits() {
        for byte in 0..=u8::MAX {
            let value = char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
            assert_eq!(
                digits(&[b'1', byte, b'f']),
                value.map(|value| u64::from(0x10F | value << 4)),
                "{byte}"
            );
        }
        assert_eq!(digits(b"fedcba9876543210"), Some(0xFEDC_BA98_7654_3210));
    }

    #[test]
    fn what_is_cut_or_of_another_run_is_no_mark() {
        let text = payload(BYTES);
        assert!((0..text.len()).all(|cut| Mark::find(7, &text[..cut]).is_none()));
        assert_eq!(Mark::find(8, &text), None);
    }
}
