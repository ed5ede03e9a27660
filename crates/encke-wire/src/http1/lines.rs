//! Field lines (RFC 9112 §5): the one recogniser that request and response heads share, and the table of what
//! it found.
//!
//! A line is looked at as a whole: if its end has not arrived, what is there is checked all the same (so that
//! garbage is refused at once), nothing is kept, and the next call begins at the line again. Sent byte by byte,
//! the longest line allowed (32 KiB) costs about 32 Ki × 512 vector steps ≈ 15 ms in all, far less than
//! receiving its 32 Ki packets.

use crate::field::Known;
use crate::http1::Refusal;
use crate::limits::{FIELDS_MAX, NAME_BYTES_MAX};
use crate::scan::Scanner;

/// One field line: where its name and value lie in the buffer of the head.
#[derive(Clone, Copy)]
struct Line {
    name: u16,
    name_bytes: u8,
    known: Option<Known>,
    value: u16,
    value_end: u16,
}

/// The fields of one head, in the order they came.
#[derive(Clone)]
pub(super) struct Lines {
    /// The set of known fields that are present ([`Known::bit`]).
    present: u64,
    count: u16,
    /// The index in `lines` of a known field's first line, valid if its bit is set in `present`.
    first: [u8; Known::ALL.len()],
    lines: [Line; FIELDS_MAX as usize],
}

/// What one step over a head's lines found.
pub(super) enum Step {
    /// The end of the line has not arrived.
    Partial,
    /// A field; the next line begins at `next`.
    Field { known: Option<Known>, value: (usize, usize), next: usize },
    /// The empty line that ends the head; the body begins at `next`.
    End { next: usize },
}

impl Lines {
    pub(super) const fn new() -> Self {
        let line = Line { name: 0, name_bytes: 0, known: None, value: 0, value_end: 0 };
        Self { present: 0, count: 0, first: [0; Known::ALL.len()], lines: [line; FIELDS_MAX as usize] }
    }

    /// Forgets all fields. The tables stay as they are: nothing looks beyond `count` and `present`.
    #[inline]
    pub(super) const fn reset(&mut self) {
        self.present = 0;
        self.count = 0;
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether any field of `set` (bits of [`Known::bit`]) is present.
    #[inline]
    pub(super) const fn has_any(&self, set: u64) -> bool {
        self.present & set != 0
    }

    /// Recognises the line that begins at `start` and keeps it. `buf` has at most 65,535 bytes.
    #[inline(always)]
    pub(super) fn step<S: Scanner>(
        &mut self,
        scanner: S,
        buf: &[u8],
        start: usize,
        fields_max: u16,
    ) -> Result<Step, Refusal> {
        // Asked first, although it is so once a head: the last bytes of a buffer are the slowest to scan.
        if buf.get(start) == Some(&b'\r') {
            return match buf.get(start + 1) {
                Some(b'\n') => Ok(Step::End { next: start + 2 }),
                Some(_) => Err(Refusal::BareCr),
                None => Ok(Step::Partial),
            };
        }
        let (name_end, text_end) = scanner.skip_line(buf, start);
        let name_bytes = name_end - start;
        if name_bytes == 0 || name_bytes > NAME_BYTES_MAX || buf.get(name_end) != Some(&b':') {
            return self.no_field(buf, start, name_end);
        }
        if buf[text_end..].first_chunk() != Some(CRLF) {
            return no_end(&buf[text_end..]);
        }
        if self.count >= fields_max.min(FIELDS_MAX) {
            return Err(Refusal::TooManyFields);
        }
        let (value, value_end) = trim(buf, name_end + 1, text_end);
        let known = Known::of(&buf[start..name_end]);
        // The casts hold: positions are below 65,536 and names have at most 255 bytes.
        self.lines[self.count as usize] = Line {
            name: start as u16,
            name_bytes: name_bytes as u8,
            known,
            value: value as u16,
            value_end: value_end as u16,
        };
        if let Some(known) = known
            && self.present & known.bit() == 0
        {
            self.present |= known.bit();
            self.first[known as usize] = self.count as u8;
        }
        self.count += 1;
        Ok(Step::Field { known, value: (value, value_end), next: text_end + 2 })
    }

    /// What a line is that has no name and colon: not whole yet, or a fault.
    #[cold]
    fn no_field(&self, buf: &[u8], start: usize, name_end: usize) -> Result<Step, Refusal> {
        let name_bytes = name_end - start;
        if name_bytes > NAME_BYTES_MAX {
            return Err(Refusal::FieldNameTooLong);
        }
        match &buf[name_end..] {
            [] => Ok(Step::Partial),
            [byte, ..] => Err(self.name_fault(*byte, name_bytes)),
        }
    }

    /// Why a name of `name_bytes` bytes may not end at `byte`.
    #[cold]
    const fn name_fault(&self, byte: u8, name_bytes: usize) -> Refusal {
        match byte {
            b' ' | b'\t' if name_bytes > 0 => Refusal::SpaceBeforeColon,
            b' ' | b'\t' if self.count == 0 => Refusal::LeadingSpace,
            b' ' | b'\t' => Refusal::ObsoleteFold,
            b':' => Refusal::EmptyFieldName,
            b'\r' => Refusal::MissingColon,
            b'\n' => Refusal::BareLf,
            _ => Refusal::InvalidFieldName,
        }
    }

    /// The first value of a known field.
    #[inline]
    pub(super) fn known<'a>(&self, buf: &'a [u8], known: Known) -> Option<&'a [u8]> {
        if self.present & known.bit() == 0 {
            return None;
        }
        Some(self.lines[self.first[known as usize] as usize].value(buf))
    }

    /// All values of a known field, in order.
    #[inline]
    pub(super) fn all<'a>(&'a self, buf: &'a [u8], known: Known) -> Values<'a> {
        if self.present & known.bit() == 0 {
            return Values { buf, lines: &[], known };
        }
        let first = usize::from(self.first[known as usize]);
        Values { buf, lines: &self.lines[first..self.len()], known }
    }

    /// The first value of the field called `name`, in any mix of cases.
    pub(super) fn field<'a>(&self, buf: &'a [u8], name: &str) -> Option<&'a [u8]> {
        let mut fields = self.fields(buf);
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// All fields as name and value, in order.
    pub(super) fn fields<'a>(&self, buf: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.lines[..self.len()].iter().map(|line| (line.name(buf), line.value(buf)))
    }
}

impl Line {
    fn name<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        let start = usize::from(self.name);
        &buf[start..start + usize::from(self.name_bytes)]
    }

    #[inline]
    fn value<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        &buf[usize::from(self.value)..usize::from(self.value_end)]
    }
}

/// Why no CRLF begins `rest`, at which a value ends: it has not arrived, or something else is there.
#[cold]
fn no_end(rest: &[u8]) -> Result<Step, Refusal> {
    match rest {
        [] | [b'\r'] => Ok(Step::Partial),
        [b'\r', ..] => Err(Refusal::BareCr),
        [b'\n', ..] => Err(Refusal::BareLf),
        _ => Err(Refusal::ControlByte),
    }
}

/// The text from `start` to `end` without white space at its ends. Nearly every value has one space before it.
#[inline(always)]
fn trim(buf: &[u8], start: usize, end: usize) -> (usize, usize) {
    // In text, what is not above a space is a space or a tab.
    match &buf[start..end] {
        [b' ', first, .., last] if *first > b' ' && *last > b' ' => (start + 1, end),
        text => {
            let from = text.iter().take_while(|&&byte| byte <= b' ').count();
            let spaces = text[from..].iter().rev().take_while(|&&byte| byte <= b' ').count();
            (start + from, end - spaces)
        }
    }
}

/// The values of all lines of one known field, in order.
#[derive(Clone)]
pub struct Values<'a> {
    buf: &'a [u8],
    lines: &'a [Line],
    known: Known,
}

impl<'a> Iterator for Values<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let at = self.lines.iter().position(|line| line.known == Some(self.known))?;
        let line = self.lines[at];
        self.lines = &self.lines[at + 1..];
        Some(line.value(self.buf))
    }
}

impl std::fmt::Debug for Values<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.clone().map(<[u8]>::escape_ascii)).finish()
    }
}

const CRLF: &[u8; 2] = b"\r\n";

const _: () = assert!(FIELDS_MAX as usize <= u8::MAX as usize + 1, "`first` holds indices as u8");
const _: () = assert!(size_of::<Line>() == 8, "FIELDS_MAX lines are 1 KiB");
