//! `trigger` (report 004): what level- and edge-triggered epoll report of the same bytes, and why Encke drains.

use crate::experiment::{
    Absent, CellIndex, CellSample, Claim, Design, Experiment, Fact, Judged, Load, LoadAxis, RowPlan, Seen,
    Way, design_rows, is_windows, row_of, rows_here,
};
use crate::results::Results;
use crate::rounds::RoundPace;
use crate::specimens::trigger::{TriggerHow, trace};
use crate::stopwatch;

/// The rows of all systems.
const ROWS: [RowPlan<TriggerHow>; 4] = [
    (TriggerHow::Level, Way::Old, "level, 2 bytes a turn"),
    (TriggerHow::Edge, Way::Cure, "edge, 2 bytes a turn"),
    (TriggerHow::EdgeDrained, Way::Encke, "edge, drained, as Encke does"),
    (TriggerHow::WsaPoll, Way::Old, "WSAPoll: level, 2 bytes a turn"),
];

/// The difference on Windows.
const ON_WINDOWS: &str = "Edge-triggered events do not exist here: WSAPoll is level-triggered, and the polls of the socket driver \
                          (afd), which Encke uses, are one-shot and level-triggered. One of a socket with unread bytes \
                          completes at once; Encke arms it again once a turn, and so needs no draining. The claims on epoll \
                          are not measured, but WSAPoll reports as level-triggered epoll does.";

/// Names of the facts: the turns after `aabbcc`, and those after `dd`.
const FIRST: &str = "after aabbcc";
const SECOND: &str = "after dd";

/// Turns after each arrival.
const TURNS: usize = 4;

pub(super) struct Trigger {
    design: Design,
    /// The rows of this system.
    rows: Vec<RowPlan<TriggerHow>>,
}

impl Trigger {
    pub(super) fn new(_pace: &RoundPace) -> Self {
        let rows = rows_here(&ROWS, |how| how.system().is_here());
        let design = Design {
            name: "trigger",
            unit: "a trace",
            judged: Judged::Facts,
            rows: design_rows(&rows),
            loads: vec![Load::kind(FIRST), Load::kind(SECOND)],
            axis: LoadAxis::Kinds,
            drawn: Vec::new(),
        };
        Self { design, rows }
    }
}

impl Experiment for Trigger {
    fn design(&self) -> &Design {
        &self.design
    }

    fn measure(&mut self, cell: CellIndex, count: u64) -> Result<CellSample, Absent> {
        let how = self.rows[cell.row].0;
        let mut turns = None;
        let mut sample = stopwatch::time(|| {
            for _ in 0..count {
                turns = trace(how);
            }
        });
        let Some(turns) = turns else { return Err(Absent("the sockets of this system failed".into())) };
        let (first, second) = turns.split_at(TURNS.min(turns.len()));
        let (name, told) = if cell.load == 0 { (FIRST, first) } else { (SECOND, second) };
        sample.facts.push((name, Fact::Text(told.join(" | "))));
        Ok(sample)
    }

    fn difference(&self) -> Option<&'static str> {
        is_windows().then_some(ON_WINDOWS)
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let told = |row, load| match results.facts(CellIndex { row, load }) {
            [(_, Fact::Text(text)), ..] => text.as_str(),
            _ => "",
        };
        let claim = |how, first: &str, second: &str| {
            let Some(row) = row_of(&self.rows, &how) else { return Claim::unclear() };
            let (seen_first, seen_second) = (told(row, 0), told(row, 1));
            let seen = match (seen_first, seen_second) {
                ("", _) | (_, "") => Seen::Unclear,
                seen if seen == (first, second) => Seen::Yes,
                _ => Seen::No,
            };
            Claim { seen, figure: format!("{seen_first} ‖ {seen_second}").into() }
        };
        vec![
            claim(TriggerHow::Level, "aa | bb | cc | -", "dd | - | - | -"),
            claim(TriggerHow::Edge, "aa | - | - | -", "bb | - | - | -"),
            claim(TriggerHow::EdgeDrained, "aa bb cc | - | - | -", "dd | - | - | -"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::{self, StopHandle};

    /// The traces do not depend on the system's load: all claims hold where there is epoll, and a poll is level-triggered.
    #[test]
    fn the_traces_are_those_of_the_report() {
        let pace = RoundPace::quick(1);
        let mut trigger = Trigger::new(&pace);
        let results = rounds::run(&mut trigger, &pace, &StopHandle::new());
        let claims = trigger.claims(&results);
        let expected = if is_windows() { Seen::Unclear } else { Seen::Yes };
        assert!(claims.iter().all(|claim| claim.seen == expected), "{claims:?}");
        if TriggerHow::WsaPoll.system().is_here() {
            let turns = trace(TriggerHow::WsaPoll).expect("two sockets");
            assert_eq!(turns, ["aa", "bb", "cc", "-", "dd", "-", "-", "-"]);
        }
    }
}
