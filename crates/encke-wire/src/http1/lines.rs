//! Field lines (RFC 9112 §5): the parser shared by request and response heads, and the table of its results.
//!
//! A line is parsed as a whole. An incomplete line is checked as far as it has arrived, so that garbage is rejected at once.
//! The parser keeps no state of it, and the next call starts again at its first byte. Sent byte by byte, the longest allowed
//! line (32 KiB) costs about 32 Ki × 512 vector steps ≈ 15 ms in total, far less than receiving its 32 Ki packets.

use crate::field::Known;
use crate::http1::{Head, Refusal, ResponseHead};
use crate::limits::{FIELDS_MAX, NAME_BYTES_MAX};
use crate::scan::Scanner;

/// One field line: the positions of its name and value in the head's buffer.
#[derive(Clone, Copy)]
struct FieldLine {
    name: u16,
    name_bytes: u8,
    known: Option<Known>,
    value: u16,
    value_end: u16,
}

/// The fields of one head, in order of arrival.
#[derive(Clone)]
pub(super) struct Lines {
    tally: FieldTally,
    /// The index in `lines` of a known field's first line. Valid if its bit is set in `present`.
    first: [u8; Known::ALL.len() + 1],
    lines: [FieldLine; FIELDS_MAX as usize],
}

/// The number of fields, and which known ones are present. The parsing loop works on a copy, because every line changes it.
#[derive(Clone, Copy)]
pub(super) struct FieldTally {
    /// The set of known fields that are present ([`Known::bit`]).
    present: u64,
    count: usize,
}

/// The result of parsing one line.
pub(super) enum LineStep {
    /// The end of the line has not arrived.
    Partial,
    /// A field. The next line begins at `next`.
    Field { known: Option<Known>, value: (usize, usize), next: usize },
    /// The empty line that ends the head. The body begins at `next`.
    End { next: usize },
}

impl Lines {
    pub(super) const fn new() -> Self {
        let line = FieldLine { name: 0, name_bytes: 0, known: None, value: 0, value_end: 0 };
        Self { tally: FieldTally::NONE, first: [0; Known::ALL.len() + 1], lines: [line; FIELDS_MAX as usize] }
    }

    /// Clears all fields. The tables stay as they are, because `count` and `present` limit their use.
    #[inline]
    pub(super) const fn reset(&mut self) {
        self.tally = FieldTally::NONE;
    }

    /// The state from which [`Self::step`] continues.
    #[inline]
    pub(super) const fn tally(&self) -> FieldTally {
        self.tally
    }

    /// Stores the state after [`Self::step`], so that the other functions see the new fields.
    #[inline]
    pub(super) const fn keep(&mut self, tally: FieldTally) {
        self.tally = tally;
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.tally.count
    }

    /// Whether any field of `set` (bits of [`Known::bit`]) is present.
    #[inline]
    pub(super) const fn has_any(&self, set: u64) -> bool {
        self.tally.present & set != 0
    }

    /// Parses the line that begins at `start` and stores it, unless `fields_max` fields are already stored. `buf` has at most
    /// 65,535 bytes.
    #[inline(always)]
    pub(super) fn step<S: Scanner>(
        &mut self,
        tally: &mut FieldTally,
        scanner: S,
        buf: &[u8],
        start: usize,
        fields_max: u16,
    ) -> Result<LineStep, Refusal> {
        // Tested first, although it happens once per head: this is cheaper than scanning the line.
        match buf.get(start) {
            Some(b'\r') => return empty_line(buf, start),
            Some(_) => {}
            None => return Ok(LineStep::Partial),
        }
        let (name_bytes, text_bytes) = scanner.line(buf, start);
        let line = &buf[start..];
        if line[text_bytes..].first_chunk() != Some(CRLF)
            || line[name_bytes] != b':'
            || !(1..=NAME_BYTES_MAX).contains(&name_bytes)
        {
            return rare_line(line, name_bytes, text_bytes, tally.count);
        }
        let index = tally.count;
        if index >= usize::from(fields_max.min(FIELDS_MAX)) {
            return Err(Refusal::TooManyFields);
        }
        tally.count += 1;
        let known = Known::at(buf, start, start + name_bytes);
        let (value, value_end) = trim(buf, start + name_bytes + 1, start + text_bytes);
        // The casts hold: positions are below 65,536, and names have at most 255 bytes.
        self.lines[index] = FieldLine {
            name: start as u16,
            name_bytes: name_bytes as u8,
            known,
            value: value as u16,
            value_end: value_end as u16,
        };
        // Unknown fields have an unused entry as well, which saves one branch per line.
        let place = known.map_or(Known::ALL.len(), |known| known as usize);
        if tally.present & 1 << place == 0 {
            tally.present |= 1 << place;
            self.first[place] = index as u8;
        }
        Ok(LineStep::Field { known, value: (value, value_end), next: start + text_bytes + 2 })
    }

    /// The first value of a known field.
    #[inline]
    pub(super) fn known<'a>(&self, buf: &'a [u8], known: Known) -> Option<&'a [u8]> {
        if self.tally.present & known.bit() == 0 {
            return None;
        }
        Some(self.lines[self.first[known as usize] as usize].value(buf))
    }

    /// All values of a known field, in order.
    #[inline]
    pub(super) fn all<'a>(&'a self, buf: &'a [u8], known: Known) -> Values<'a> {
        if self.tally.present & known.bit() == 0 {
            return Values { buf, lines: &[], known };
        }
        let first = usize::from(self.first[known as usize]);
        Values { buf, lines: &self.lines[first..self.len()], known }
    }

    /// The first value of the field `name` (case-insensitive).
    pub(super) fn field<'a>(&self, buf: &'a [u8], name: &str) -> Option<&'a [u8]> {
        let mut fields = self.fields(buf);
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// All fields, in order.
    pub(super) fn head_fields<'a>(&self, buf: &'a [u8]) -> impl Iterator<Item = HeadField<'a>> {
        self.lines[..self.len()].iter().map(|line| HeadField {
            name: line.name(buf),
            value: line.value(buf),
            known: line.known,
            line: line.plain(buf),
        })
    }

    /// All fields as name and value, in order.
    pub(super) fn fields<'a>(&self, buf: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.lines[..self.len()].iter().map(|line| (line.name(buf), line.value(buf)))
    }
}

/// A field of a head.
#[derive(Clone, Copy, Debug)]
pub struct HeadField<'a> {
    /// The name as sent.
    pub name: &'a [u8],
    /// The value, without the space around it.
    pub value: &'a [u8],
    /// The known field that has this name.
    pub known: Option<Known>,
    /// The line with its CRLF, if it is written as [`HeadField::put`] writes it.
    line: Option<&'a [u8]>,
}

impl HeadField<'_> {
    /// Appends `name: value CRLF`.
    #[inline]
    pub fn put(&self, out: &mut Vec<u8>) {
        // One copy costs less than four.
        if let Some(line) = self.line {
            return out.extend_from_slice(line);
        }
        out.extend_from_slice(self.name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(self.value);
        out.extend_from_slice(b"\r\n");
    }
}

impl Head {
    /// All fields with the parser's results, in order.
    pub fn head_fields<'a>(&self, buf: &'a [u8]) -> impl Iterator<Item = HeadField<'a>> {
        self.lines.head_fields(buf)
    }
}

impl ResponseHead {
    /// All fields with the parser's results, in order.
    pub fn head_fields<'a>(&self, buf: &'a [u8]) -> impl Iterator<Item = HeadField<'a>> {
        self.lines.head_fields(buf)
    }
}

impl FieldTally {
    const NONE: Self = Self { present: 0, count: 0 };
}

impl FieldLine {
    fn name<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        let start = usize::from(self.name);
        &buf[start..start + usize::from(self.name_bytes)]
    }

    /// The whole line, if one space precedes the value and none follows it.
    #[inline]
    fn plain<'a>(&self, buf: &'a [u8]) -> Option<&'a [u8]> {
        let (start, end) = (usize::from(self.name), usize::from(self.value_end));
        let line = buf.get(start..end + 2)?;
        let name_bytes = usize::from(self.name_bytes);
        let is_plain = usize::from(self.value) == start + name_bytes + 2
            && line.get(name_bytes + 1) == Some(&b' ')
            && line.ends_with(b"\r\n");
        is_plain.then_some(line)
    }

    #[inline]
    fn value<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        &buf[usize::from(self.value)..usize::from(self.value_end)]
    }
}

/// Handles a line that begins with CR at `start`: the end of the head, an incomplete line, or an error.
#[inline(always)]
fn empty_line(buf: &[u8], start: usize) -> Result<LineStep, Refusal> {
    match buf.get(start + 1) {
        Some(b'\n') => Ok(LineStep::End { next: start + 2 }),
        Some(_) => Err(Refusal::BareCr),
        None => Ok(LineStep::Partial),
    }
}

/// Handles a line that is neither empty nor a complete field: it is incomplete or an error. Its name ends after `name_bytes`,
/// its text after `text_bytes`, and `count` fields precede it.
#[cold]
fn rare_line(line: &[u8], name_bytes: usize, text_bytes: usize, count: usize) -> Result<LineStep, Refusal> {
    if name_bytes > NAME_BYTES_MAX {
        return Err(Refusal::FieldNameTooLong);
    }
    match &line[name_bytes..] {
        [] => Ok(LineStep::Partial),
        [b':', ..] if name_bytes > 0 => no_end(&line[text_bytes..]),
        [byte, ..] => Err(name_fault(*byte, name_bytes, count)),
    }
}

/// The reason why a name of `name_bytes` bytes may not end at `byte`.
const fn name_fault(byte: u8, name_bytes: usize, count: usize) -> Refusal {
    match byte {
        b' ' | b'\t' if name_bytes > 0 => Refusal::SpaceBeforeColon,
        b' ' | b'\t' if count == 0 => Refusal::LeadingSpace,
        b' ' | b'\t' => Refusal::ObsoleteFold,
        b':' => Refusal::EmptyFieldName,
        b'\r' => Refusal::MissingColon,
        b'\n' => Refusal::BareLf,
        _ => Refusal::InvalidFieldName,
    }
}

/// Handles a value whose end is not followed by CRLF in `rest`: more bytes are needed, or another byte is an error.
fn no_end(rest: &[u8]) -> Result<LineStep, Refusal> {
    match rest {
        [] | [b'\r'] => Ok(LineStep::Partial),
        [b'\r', ..] => Err(Refusal::BareCr),
        [b'\n', ..] => Err(Refusal::BareLf),
        _ => Err(Refusal::ControlByte),
    }
}

/// The text from `start` to `end` without white space at its ends. Nearly every value has one leading space.
#[inline(always)]
fn trim(buf: &[u8], start: usize, end: usize) -> (usize, usize) {
    // In text, a byte that is not above the space is a space or a tab.
    let value = start + 1;
    if value < end && buf[start] == b' ' && buf[value] > b' ' && buf[end - 1] > b' ' {
        return (value, end);
    }
    rare_trim(buf, start, end)
}

/// As [`trim`], for values without exactly one leading space.
fn rare_trim(buf: &[u8], start: usize, end: usize) -> (usize, usize) {
    let text = &buf[start..end];
    let from = text.iter().take_while(|&&byte| byte <= b' ').count();
    let spaces = text[from..].iter().rev().take_while(|&&byte| byte <= b' ').count();
    (start + from, end - spaces)
}

/// The values of all lines of one known field, in order.
#[derive(Clone)]
pub struct Values<'a> {
    buf: &'a [u8],
    lines: &'a [FieldLine],
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

const _: () =
    assert!(Known::ALL.len() < 64, "a set of known fields, and whether there are others, is one u64");
const _: () = assert!(FIELDS_MAX as usize <= u8::MAX as usize + 1, "`first` holds indices as u8");
const _: () = assert!(size_of::<FieldLine>() == 8, "FIELDS_MAX lines are 1 KiB");
