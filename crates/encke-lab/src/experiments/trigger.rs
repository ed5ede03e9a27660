//! `trigger` (report 004): what level- and edge-triggered epoll report of the same bytes, and why Encke drains.

use crate::experiment::{
    Absent, CellIndex, CellSample, Claim, Design, DesignRow, Experiment, Fact, Judged, Load, LoadAxis, Seen,
    Way,
};
use crate::results::Results;
use crate::rounds::RoundPace;
use crate::specimens::trigger::{TriggerHow, trace};
use crate::stopwatch;

const ROWS: [(TriggerHow, Way, &str); 3] = [
    (TriggerHow::Level, Way::Old, "level, 2 bytes a turn"),
    (TriggerHow::Edge, Way::Cure, "edge, 2 bytes a turn"),
    (TriggerHow::EdgeDrained, Way::Encke, "edge, drained, as Encke does"),
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
    pub(super) fn new(_pace: &RoundPace) -> Self {
        let design = Design {
            name: "trigger",
            unit: "a trace",
            judged: Judged::Facts,
            rows: ROWS.iter().map(|&(_, way, name)| DesignRow::new(way, name)).collect(),
            loads: vec![Load::kind(FIRST), Load::kind(SECOND)],
            axis: LoadAxis::Kinds,
            drawn: Vec::new(),
        };
        Self { design }
    }
}

impl Experiment for Trigger {
    fn design(&self) -> &Design {
        &self.design
    }

    fn measure(&mut self, cell: CellIndex, count: u64) -> Result<CellSample, Absent> {
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
        let told = |row, load| match results.facts(CellIndex { row, load }) {
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
    use crate::rounds::{self, StopHandle};

    /// The traces do not depend on the system's load: all three claims hold, or there is no epoll.
    #[test]
    fn the_traces_are_those_of_the_report() {
        let pace = RoundPace::quick(1);
        let mut trigger = Trigger::new(&pace);
        let results = rounds::run(&mut trigger, &pace, &StopHandle::new());
        let claims = trigger.claims(&results);
        if trace(TriggerHow::Level).is_some() {
            assert!(claims.iter().all(|claim| claim.seen == Seen::Yes), "{claims:?}");
        } else {
            assert!(claims.iter().all(|claim| claim.seen == Seen::Unclear), "{claims:?}");
        }
    }
}
