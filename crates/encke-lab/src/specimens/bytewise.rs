//! Parsers that read byte by byte (`parser.c`), over a ring whose size affects their speed (`ring.c`).

use std::ops::Range;

#[cfg(test)]
use crate::parsed::Parsed;

/// Bytes of a [`ByteRing`]: the larger of the specimens' two sizes.
pub(crate) const RING_BYTES: usize = 8192;
/// The size that costs a division per byte.
const RING_ODD: usize = 8124;
/// Capacity of a [`CHead`] in fields.
const FIELDS_MAX: usize = 64;

/// How a parser maps a position to an index in the ring, and finds its next state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bytewise {
    SwitchModulo,
    SwitchMask,
    SwitchWrap,
    SwitchDivide,
    GotoModulo,
    GotoMask,
    ThreadedMask,
}

/// The head that a specimen finds, as positions in the ring.
#[repr(C)]
pub(crate) struct CHead {
    method: CSpan,
    target: CSpan,
    minor: u32,
    fields: u32,
    names: [CSpan; FIELDS_MAX],
    values: [CSpan; FIELDS_MAX],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CSpan {
    at: u32,
    bytes: u32,
}

// SAFETY: who calls one keeps what parser.h and ring.c ask for: a ring of RING_BYTES bytes.
type CParser = unsafe extern "C" fn(*const u8, u32, u32, *mut CHead) -> i32;
type CReader = unsafe extern "C" fn(*const u8, u32, u32) -> u32;

// SAFETY: the signatures are those of parser.h and ring.c.
unsafe extern "C" {
    fn lab_parse_switch_modulo(ring: *const u8, at: u32, end: u32, head: *mut CHead) -> i32;
    fn lab_parse_switch_mask(ring: *const u8, at: u32, end: u32, head: *mut CHead) -> i32;
    fn lab_parse_switch_wrap(ring: *const u8, at: u32, end: u32, head: *mut CHead) -> i32;
    fn lab_parse_switch_divide(ring: *const u8, at: u32, end: u32, head: *mut CHead) -> i32;
    fn lab_parse_goto_modulo(ring: *const u8, at: u32, end: u32, head: *mut CHead) -> i32;
    fn lab_parse_goto_mask(ring: *const u8, at: u32, end: u32, head: *mut CHead) -> i32;
    fn lab_parse_threaded_mask(ring: *const u8, at: u32, end: u32, head: *mut CHead) -> i32;
    fn lab_ring_modulo(ring: *const u8, at: u32, end: u32) -> u32;
    fn lab_ring_mask(ring: *const u8, at: u32, end: u32) -> u32;
    fn lab_ring_wrap(ring: *const u8, at: u32, end: u32) -> u32;
    fn lab_ring_divide(ring: *const u8, at: u32, end: u32) -> u32;
}

impl Bytewise {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] = [
        Self::SwitchModulo,
        Self::SwitchMask,
        Self::SwitchWrap,
        Self::SwitchDivide,
        Self::GotoModulo,
        Self::GotoMask,
        Self::ThreadedMask,
    ];

    /// Bytes after which its positions wrap around.
    const fn size(self) -> usize {
        match self {
            Self::SwitchModulo | Self::SwitchWrap | Self::SwitchDivide | Self::GotoModulo => RING_ODD,
            Self::SwitchMask | Self::GotoMask | Self::ThreadedMask => RING_BYTES,
        }
    }

    const fn parser(self) -> CParser {
        match self {
            Self::SwitchModulo => lab_parse_switch_modulo,
            Self::SwitchMask => lab_parse_switch_mask,
            Self::SwitchWrap => lab_parse_switch_wrap,
            Self::SwitchDivide => lab_parse_switch_divide,
            Self::GotoModulo => lab_parse_goto_modulo,
            Self::GotoMask => lab_parse_goto_mask,
            Self::ThreadedMask => lab_parse_threaded_mask,
        }
    }

    /// The function that only reads, with this parser's indexing.
    const fn reader(self) -> CReader {
        match self {
            Self::SwitchModulo | Self::GotoModulo => lab_ring_modulo,
            Self::SwitchMask | Self::GotoMask | Self::ThreadedMask => lab_ring_mask,
            Self::SwitchWrap => lab_ring_wrap,
            Self::SwitchDivide => lab_ring_divide,
        }
    }

    /// Parses the head at `place` of the ring. Returns its length in bytes if it is complete and valid.
    #[inline]
    pub(crate) fn parse(self, ring: &ByteRing, place: Range<u32>, head: &mut CHead) -> Option<usize> {
        // SAFETY: a ring has RING_BYTES bytes, and the parser reads at places below a size that is no larger;
        // `head` is a whole one, of which it writes at most FIELDS_MAX names and values (parser_states.h).
        let bytes = unsafe { self.parser()(ring.bytes.as_ptr(), place.start, place.end, head) };
        usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)
    }

    /// Reads the bytes at `place` of the ring, and returns their sum.
    #[inline]
    pub(crate) fn read(self, ring: &ByteRing, place: Range<u32>) -> u32 {
        // SAFETY: as in `parse`; nothing is written.
        unsafe { self.reader()(ring.bytes.as_ptr(), place.start, place.end) }
    }
}

/// The bytes that specimens read.
pub(crate) struct ByteRing {
    bytes: Box<[u8; RING_BYTES]>,
}

impl ByteRing {
    /// Stores `text` at position `at`, for the specimen that will read it. Returns the ring and the positions.
    ///
    /// # Panics
    /// `text` is longer than the smaller ring.
    pub(crate) fn holding(text: &[u8], at: u32, reader: Bytewise) -> (Self, Range<u32>) {
        assert!(text.len() <= RING_ODD, "a ring holds what is not longer than it is");
        let mut bytes = Box::new([0; RING_BYTES]);
        for (position, &byte) in (at as usize..).zip(text) {
            bytes[position % reader.size()] = byte;
        }
        (Self { bytes }, at..at + text.len() as u32)
    }

    #[cfg(test)]
    fn text(&self, span: CSpan, reader: Bytewise) -> Vec<u8> {
        let places = span.at as usize..(span.at + span.bytes) as usize;
        places.map(|position| self.bytes[position % reader.size()]).collect()
    }
}

impl CHead {
    pub(crate) const fn new() -> Self {
        const NOWHERE: CSpan = CSpan { at: 0, bytes: 0 };
        Self {
            method: NOWHERE,
            target: NOWHERE,
            minor: 0,
            fields: 0,
            names: [NOWHERE; FIELDS_MAX],
            values: [NOWHERE; FIELDS_MAX],
        }
    }
}

/// The head that a specimen finds in `text`, stored at position `at` of its ring.
#[cfg(test)]
pub(crate) fn parsed(specimen: Bytewise, text: &[u8], at: u32) -> Option<Parsed> {
    let (ring, place) = ByteRing::holding(text, at, specimen);
    let mut head = CHead::new();
    let bytes = specimen.parse(&ring, place, &mut head)?;
    let fields = head.names.iter().zip(&head.values).take(head.fields as usize);
    Some(Parsed {
        bytes,
        method: ring.text(head.method, specimen),
        target: ring.text(head.target, specimen),
        minor: head.minor as u8,
        fields: fields
            .map(|(name, value)| (ring.text(*name, specimen), ring.text(*value, specimen)))
            .collect(),
    })
}
