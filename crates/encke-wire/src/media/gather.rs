//! Messages of a live stream: whole units, gathered up to a size and for a time, because each message has its cost for each
//! listener.
//!
//! ```text
//!  Splitter ─► MediaSink: MediaGatherer ─► MediaPiece: head │ data (start …) │ data │ data (start …)
//! ```
//! A piece ends with a unit. If the stream has units that are no starts, each start begins a new piece; otherwise every piece
//! begins with a start anyway. Only a unit that is larger than [`GatherLimits::unit_bytes`] is spread over several pieces, which
//! no other unit shares ([`MediaPiece::continues`]).
//!
//! A unit is complete when its container says so, or else when the next one begins; until then it is held back.

use super::gauge::MediaGauge;
use super::{MediaSink, MediaUnit};

/// Limits of a [`MediaGatherer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherLimits {
    /// A piece that has as many bytes ends with its unit.
    pub bytes: usize,
    /// A larger unit is spread over pieces of this size.
    pub unit_bytes: usize,
    /// Time in ms that a piece waits for more units after its first byte. 0: each unit is a piece.
    pub gather_ms: u32,
}

impl Default for GatherLimits {
    /// 64 KiB, 1 MiB and 100 ms.
    fn default() -> Self {
        Self { bytes: 64 * 1024, unit_bytes: 1024 * 1024, gather_ms: 100 }
    }
}

/// The kind of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PieceKind {
    /// A new head, whole. It differs from the last one.
    Head,
    /// Units.
    Data,
}

/// A message of a live stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaPiece {
    /// Head or data.
    pub kind: PieceKind,
    /// The bytes.
    pub data: Vec<u8>,
    /// Whether the piece begins with a unit that is a start.
    pub start: bool,
    /// Whether the next piece belongs to the same unit, which is larger than [`GatherLimits::unit_bytes`].
    pub continues: bool,
    /// The time of the first unit in µs, on the clock of the stream. `None` in the middle of a unit.
    pub time_us: Option<u64>,
}

/// Gathers units into pieces.
#[derive(Debug)]
pub struct MediaGatherer {
    limits: GatherLimits,
    now_ns: u64,
    /// The complete units of the next piece.
    whole: Vec<u8>,
    /// The first unit of `whole`, and the time of its first byte.
    whole_unit: Option<(MediaUnit, u64)>,
    /// The bytes of the unit in progress.
    open: Vec<u8>,
    /// The unit in progress, and the time of its first byte.
    open_unit: Option<(MediaUnit, u64)>,
    /// Whether pieces of the unit in progress were passed on.
    is_spread: bool,
    /// Whether a unit that is no start came since the last head.
    has_others: bool,
    head: Vec<u8>,
    pieces: Vec<MediaPiece>,
    gauge: MediaGauge,
}

impl MediaGatherer {
    /// Returns a gatherer at the start of a stream. Limits of 0 bytes count as 1.
    #[must_use]
    pub fn new(limits: GatherLimits) -> Self {
        Self {
            limits: GatherLimits {
                bytes: limits.bytes.max(1),
                unit_bytes: limits.unit_bytes.max(1),
                ..limits
            },
            now_ns: 0,
            whole: Vec::new(),
            whole_unit: None,
            open: Vec::new(),
            open_unit: None,
            is_spread: false,
            has_others: false,
            head: Vec::new(),
            pieces: Vec::new(),
            gauge: MediaGauge::new(),
        }
    }

    /// States the time in ns. To be called before a splitter passes on bytes to this sink.
    pub fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Removes and returns the pieces that are ready.
    pub fn drain(&mut self) -> std::vec::Drain<'_, MediaPiece> {
        self.pieces.drain(..)
    }

    /// Returns when to call [`Self::flush`]; `None` while no unit is complete.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        self.whole_unit.map(|(_, first_ns)| first_ns.saturating_add(self.gather_ns()))
    }

    /// Ends the piece after its last complete unit. A unit in progress stays.
    pub fn flush(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.end_piece();
    }

    /// The source has ended: passes on everything, the unit in progress as if it were complete.
    pub fn finish(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.end_unit();
        self.end_piece();
    }

    /// Returns the bytes held back: complete units and the unit in progress.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.whole.len() + self.open.len()
    }

    /// Returns the figures about the stream.
    pub fn gauge(&mut self) -> &mut MediaGauge {
        &mut self.gauge
    }

    fn gather_ns(&self) -> u64 {
        u64::from(self.limits.gather_ms) * 1_000_000
    }

    /// The unit in progress is complete.
    fn end_unit(&mut self) {
        let Some((unit, first_ns)) = self.open_unit.take() else { return };
        if std::mem::take(&mut self.is_spread) {
            self.pass_open(unit, false);
            return;
        }
        if self.open.is_empty() {
            return;
        }
        let (_, first_ns) = *self.whole_unit.get_or_insert((unit, first_ns));
        if self.whole.is_empty() {
            std::mem::swap(&mut self.whole, &mut self.open);
        } else {
            self.whole.append(&mut self.open);
        }
        let is_due = self.now_ns.saturating_sub(first_ns) >= self.gather_ns();
        if self.whole.len() >= self.limits.bytes || is_due {
            self.end_piece();
        }
    }

    /// Passes on the complete units.
    fn end_piece(&mut self) {
        let Some((unit, _)) = self.whole_unit.take() else { return };
        let data = std::mem::take(&mut self.whole);
        self.pieces.push(MediaPiece {
            kind: PieceKind::Data,
            data,
            start: unit.start,
            continues: false,
            time_us: unit.time_us,
        });
    }

    /// Passes on bytes of the unit in progress, which is spread.
    fn pass_open(&mut self, unit: MediaUnit, continues: bool) {
        let data = std::mem::take(&mut self.open);
        self.pieces.push(MediaPiece {
            kind: PieceKind::Data,
            data,
            start: unit.start,
            continues,
            time_us: unit.time_us,
        });
    }
}

/// The unit of bytes in the middle of a unit.
const MIDDLE: MediaUnit = MediaUnit { start: false, time_us: None };

impl MediaSink for MediaGatherer {
    /// A head with the bytes of the last one is dropped.
    fn head(&mut self, head: &[u8]) {
        self.gauge.bytes(head.len(), self.now_ns);
        if self.head == head {
            return;
        }
        self.end_unit();
        self.end_piece();
        self.gauge.restart();
        self.has_others = false;
        self.head = head.to_vec();
        self.pieces.push(MediaPiece {
            kind: PieceKind::Head,
            data: head.to_vec(),
            start: false,
            continues: false,
            time_us: None,
        });
    }

    fn unit(&mut self, unit: MediaUnit) {
        self.gauge.unit(unit);
        self.end_unit();
        self.has_others |= !unit.start;
        // Bytes between units may have begun the piece.
        let begins_between = self.whole_unit.is_some_and(|(first, _)| !first.start);
        if unit.start && (self.has_others || begins_between) {
            self.end_piece();
        }
        self.open_unit = Some((unit, self.now_ns));
    }

    fn end(&mut self) {
        self.end_unit();
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.gauge.bytes(bytes.len(), self.now_ns);
        if self.open.is_empty() && !self.is_spread {
            // The time of the first byte counts, which may come later than the unit's announcement.
            let unit = self.open_unit.map_or(MIDDLE, |(unit, _)| unit);
            self.open_unit = Some((unit, self.now_ns));
        }
        let mut rest = bytes;
        while self.open.len() + rest.len() > self.limits.unit_bytes {
            let (now, later) = rest.split_at(self.limits.unit_bytes - self.open.len());
            self.open.extend_from_slice(now);
            rest = later;
            if !self.is_spread {
                self.end_piece();
            }
            let unit = self.open_unit.replace((MIDDLE, self.now_ns)).map_or(MIDDLE, |(unit, _)| unit);
            self.is_spread = true;
            self.pass_open(unit, true);
        }
        self.open.extend_from_slice(rest);
    }
}
