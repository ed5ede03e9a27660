//! Input in any pieces for a parser that wants its fields whole.
//!
//! ```text
//!  bytes ─► HeldInput ─► ContainerParser::step(window)     the window is the caller's slice, as long as nothing is held
//!              ▲                │ Need(n): hold the window until it has n bytes
//!              └────────────────┘ Used(n): the next window begins n bytes later
//! ```
//! Payloads therefore pass as slices of the caller. Only the field at the end of a piece is copied.

use super::{Container, HELD_BYTES_MAX, MediaError, MediaSink};

/// The capacity that stays allocated while nothing is held. One TS packet or tag header needs far less.
const IDLE_CAPACITY: usize = 4096;

/// The result of one step of a parser.
pub(super) enum InputStep {
    /// The first bytes of the window are done: at least one.
    Used(usize),
    /// The window must have this many bytes, which is more than it has.
    Need(usize),
}

/// A parser of a container, without the bytes of an incomplete field.
pub(super) trait ContainerParser {
    /// Parses the begin of `window`, which is not empty. `at` is its position in the stream.
    fn step(&mut self, window: &[u8], at: u64, sink: &mut impl MediaSink) -> Result<InputStep, MediaError>;
    /// Returns the number of bytes that the parser itself holds.
    fn held(&self) -> usize;
    /// The container, for errors.
    fn container(&self) -> Container;
}

/// The bytes of an incomplete field, and the position in the stream.
#[derive(Debug, Default)]
pub(super) struct HeldInput {
    held: Vec<u8>,
    /// The length `held` must reach before the next step. Only used while `held` is not empty.
    need: usize,
    /// The position in the stream of the next window.
    at: u64,
    /// The error after which every call fails.
    failed: Option<MediaError>,
}

impl HeldInput {
    /// Passes `bytes` to `parser`. After an error, every later call returns the same error.
    pub(super) fn push<P: ContainerParser>(
        &mut self,
        parser: &mut P,
        bytes: &[u8],
        sink: &mut impl MediaSink,
    ) -> Result<(), MediaError> {
        let result = match self.failed.take() {
            Some(error) => Err(error),
            None => self.advance(parser, bytes, sink),
        };
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            self.held = Vec::new();
        }
        result
    }

    fn advance<P: ContainerParser>(
        &mut self,
        parser: &mut P,
        mut bytes: &[u8],
        sink: &mut impl MediaSink,
    ) -> Result<(), MediaError> {
        loop {
            let direct = self.held.is_empty();
            if !direct {
                let missing = self.need.saturating_sub(self.held.len());
                let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
                self.hold(taken);
                bytes = rest;
                if self.held.len() < self.need {
                    return Ok(());
                }
            }
            let window = if direct { bytes } else { &self.held };
            if window.is_empty() {
                return Ok(());
            }
            match parser.step(window, self.at, sink)? {
                InputStep::Used(used) => {
                    debug_assert!(0 < used && used <= window.len());
                    self.at = self.at.saturating_add(used as u64);
                    if direct {
                        bytes = bytes.get(used..).unwrap_or_default();
                    } else {
                        self.release(used);
                    }
                }
                InputStep::Need(need) => {
                    debug_assert!(window.len() < need);
                    if need.saturating_add(parser.held()) > HELD_BYTES_MAX {
                        let what = "a part that is needed whole is longer than 4 MiB";
                        return Err(MediaError { container: parser.container(), at: self.at, what });
                    }
                    // A step that asks for no more than it has would loop.
                    self.need = need.max(window.len() + 1);
                    if direct {
                        self.hold(bytes);
                        bytes = &[];
                    }
                }
            }
        }
    }

    /// Appends `bytes`. The capacity stays within `need`, and grows only as bytes arrive.
    fn hold(&mut self, bytes: &[u8]) {
        let len = self.held.len();
        if self.held.capacity() < len + bytes.len() {
            let room = self.need.saturating_sub(len);
            self.held.reserve_exact(bytes.len().max(len.min(room)));
        }
        self.held.extend_from_slice(bytes);
    }

    fn release(&mut self, used: usize) {
        self.held.drain(..used.min(self.held.len()));
        self.need = self.held.len();
        if self.held.is_empty() && self.held.capacity() > IDLE_CAPACITY {
            self.held = Vec::new();
        }
    }
}

/// Returns the big-endian number of `len` bytes, at most 8, at `at`.
pub(super) fn big_endian(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(len)?)?;
    Some(field.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}
