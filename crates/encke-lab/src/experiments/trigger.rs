//! `trigger` (report 004): what level- and edge-triggered epoll report of the same bytes, and why Encke drains.

use crate::experiment::{
    Absent, Axis, Cell, Claim, Design, Experiment, Fact, Judged, Load, Row, Sample, Seen, Way,
};
use crate::results::Results;
use crate::rounds::Pace;
use crate::specimens::trigger::{How, trace};
use crate::stopwatch;

const ROWS: [(How, Way, &str); 3] = [
    (How::Level, Way::Old, "level, 2 bytes a turn"),
    (How::Edge, Way::Cure, "edge, 2 bytes a turn"),
    (How::EdgeDrained, Way::Encke, "edge, drained, as Encke does"),
];

/// Names of the facts: the turns after `aabbcc`, and those after `dd`.
const FIRST: &str = "after aabbcc";
const SECOND: &str = "after dd";

/// Turns after each arrival.
const TURNS: usize = 4;

pub(super) struct Trigger {
    design: Design,
}

impl Trigger {
    pub(super) fn new(_pace: &Pace) -> Self {
        let design = Design {
            name: "trigger",
            unit: "a trace",
            judged: Judged::Facts,
            rows: ROWS.iter().map(|&(_, way, name)| Row::new(way, name)).collect(),
            loads: vec![Load::kind(FIRST), Load::kind(SECOND)],
            axis: Axis::Kinds,
            drawn: Vec::new(),
        };
        Self { design }
    }
}

impl Experiment for Trigger {
    fn design(&self) -> &Design {
        &self.design
    }

    fn measure(&mut self, cell: Cell, count: u64) -> Result<Sample, Absent> {
        let how = ROWS[cell.row].0;
        let mut turns = None;
        let mut sample = stopwatch::time(|| {
            for _ in 0..count {
                turns = trace(how);
            }
        });
        let Some(turns) = turns else { return Err(Absent("this system has no epoll".into())) };
        let (first, second) = turns.split_at(TURNS.min(turns.len()));
        let (name, told) = if cell.load == 0 { (FIRST, first) } else { (SECOND, second) };
        sample.facts.push((name, Fact::Text(told.join(" | "))));
        Ok(sample)
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let told = |row, load| match results.facts(Cell { row, load }) {
            [(_, Fact::Text(text)), ..] => text.as_str(),
            _ => "",
        };
        let claim = |row: usize, first: &str, second: &str| {
            let (seen_first, seen_second) = (told(row, 0), told(row, 1));
            let seen = match (seen_first, seen_second) {
                ("", _) | (_, "") => Seen::Unclear,
                seen if seen == (first, second) => Seen::Yes,
                _ => Seen::No,
            };
            Claim { seen, figure: format!("{seen_first} ‖ {seen_second}").into() }
        };
        vec![
            claim(0, "aa | bb | cc | -", "dd | - | - | -"),
            claim(1, "aa | - | - | -", "bb | - | - | -"),
            claim(2, "aa bb cc | - | - | -", "dd | - | - | -"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::{self, Stop};

    /// The traces do not depend on the system's load: all three claims hold, or there is no epoll.
    #[test]
    fn the_traces_are_those_of_the_report() {
        let pace = Pace::quick(1);
        let mut trigger = Trigger::new(&pace);
        let results = rounds::run(&mut trigger, &pace, &Stop::new());
        let claims = trigger.claims(&results);
        if trace(How::Level).is_some() {
            assert!(claims.iter().all(|claim| claim.seen == Seen::Yes), "{claims:?}");
        } else {
            assert!(claims.iter().all(|claim| claim.seen == Seen::Unclear), "{claims:?}");
        }
    }
}
