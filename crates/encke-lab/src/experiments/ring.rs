//! `ring` (report 004): how a position is mapped to an index in a ring, alone and within a parser.

use std::hint::black_box;
use std::ops::Range;

use super::requests;
use crate::experiment::{
    Absent, CellIndex, CellSample, Claim, Design, DesignRow, Experiment, Judged, Load, LoadAxis, Way,
};
use crate::results::Results;
use crate::rounds::RoundPace;
use crate::specimens::bytewise::{ByteRing, Bytewise, CHead};
use crate::stopwatch;

/// In the order of the table: one parser with four ways of indexing.
const WAYS: [(Bytewise, Way, &str); 4] = [
    (Bytewise::SwitchModulo, Way::Old, "% 8124"),
    (Bytewise::SwitchDivide, Way::Old, "% a size known at run time"),
    (Bytewise::SwitchWrap, Way::Cure, "compare and reset"),
    (Bytewise::SwitchMask, Way::Cure, "& 8191"),
];

/// Indices of the loads.
const ALONE: usize = 0;
const PARSER: usize = 1;

pub(super) struct RingReads {
    design: Design,
    /// By row.
    rings: Vec<(ByteRing, Range<u32>)>,
    head: Box<CHead>,
}

impl RingReads {
    pub(super) fn new(_pace: &RoundPace) -> Self {
        let load = |name: &str| Load { units: requests::BROWSER.len() as f64, ..Load::kind(name) };
        Self {
            design: Design {
                name: "ring",
                unit: "a byte",
                judged: Judged::Cpu,
                rows: WAYS.iter().map(|&(_, way, name)| DesignRow::new(way, name)).collect(),
                loads: vec![load("reading alone"), load("in the parser")],
                axis: LoadAxis::Kinds,
                drawn: Vec::new(),
            },
            rings: WAYS.iter().map(|&(how, ..)| ByteRing::holding(requests::BROWSER, 0, how)).collect(),
            head: Box::new(CHead::new()),
        }
    }
}

impl Experiment for RingReads {
    fn design(&self) -> &Design {
        &self.design
    }

    fn measure(&mut self, cell: CellIndex, count: u64) -> Result<CellSample, Absent> {
        let how = WAYS[cell.row].0;
        let (ring, place) = &self.rings[cell.row];
        // An operation is a request; a unit is a byte of it.
        Ok(stopwatch::count(|| {
            for _ in 0..count {
                if cell.load == ALONE {
                    black_box(how.read(black_box(ring), place.clone()));
                } else {
                    black_box(how.parse(black_box(ring), place.clone(), &mut self.head));
                }
            }
        }))
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let row = |how| WAYS.iter().position(|(known, ..)| *known == how).expect("every way has a row");
        let (modulo, mask) = (row(Bytewise::SwitchModulo), row(Bytewise::SwitchMask));
        let divide = row(Bytewise::SwitchDivide);
        vec![
            results.at_most(0.9, mask, modulo, ALONE),
            results.at_most(0.95, mask, modulo, PARSER),
            results.at_most(0.95, modulo, divide, ALONE),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::OrderRandom;

    #[test]
    fn every_way_reads_the_same_bytes_wherever_they_lie() {
        let mut random = OrderRandom::new(0x5eed);
        for _ in 0..200 {
            let text: Vec<u8> = (0..random.below(2_000)).map(|_| random.next() as u8).collect();
            let expected: u32 = text.iter().map(|&byte| u32::from(byte)).sum();
            let at = random.below(1 << 31) as u32;
            for (how, ..) in WAYS {
                let (ring, place) = ByteRing::holding(&text, at, how);
                assert_eq!(how.read(&ring, place), expected, "{how:?}, {} bytes at {at}", text.len());
            }
        }
    }

    #[test]
    fn each_cell_is_measured() {
        let mut ring = RingReads::new(&RoundPace::quick(1));
        for row in 0..WAYS.len() {
            for load in [ALONE, PARSER] {
                let sample = ring.measure(CellIndex { row, load }, 1_000).expect("nothing is lacking");
                assert!(sample.wall_ns > 0);
            }
        }
    }
}
