//! A drain: open work is counted, and the listeners stay open until it has ended.
//!
//! ```text
//!  Drain ─► each worker counts its open requests and streams ─► DrainCensus ─► Running::draining: the sum
//!  Leaving: a worker's open work has ended ─► DrainCensus: the last worker wakes all ─► Retired
//! ```
//! The workers retire their listeners together. If one of them did so alone, the kernel would drop its share of new connections
//! although the others still accept.

use encke_io::Token;

use crate::conn::{ADMIN, Conn, ConnPhase, SENDING};
use crate::core::{Core, RETIRE_NS, WorkerStage};
use crate::drain_census::{Leaving, OpenWork};
use crate::inbox::WorkerMessage;

/// The open work on a connection.
#[derive(PartialEq, Eq)]
enum WorkKind {
    Stream,
    Request,
}

/// Returns the open work of a connection. The admin listener's does not count: an operator who follows the status delays no
/// restart. An HTTP/2 connection has none, but its streams, whose slots are separate.
fn work_of(conn: &Conn) -> Option<WorkKind> {
    if conn.has(ADMIN) {
        return None;
    }
    match conn.phase {
        ConnPhase::Resident => Some(WorkKind::Stream),
        ConnPhase::Open => Some(WorkKind::Request),
        // The response to an earlier request is still being sent.
        ConnPhase::Idle | ConnPhase::Head if conn.has(SENDING) => Some(WorkKind::Request),
        _ => None,
    }
}

impl Core {
    fn work(&self) -> impl Iterator<Item = (Token, WorkKind)> {
        self.conns.places().filter_map(|index| {
            let conn = &self.conns[index as usize];
            Some((Token { index, generation: conn.generation }, work_of(conn)?))
        })
    }

    /// Reports the open work of this worker to the program.
    pub(crate) fn count_work(&self) {
        let mut open = OpenWork::default();
        for (_, kind) in self.work() {
            match kind {
                WorkKind::Stream => open.streams += 1,
                WorkKind::Request => open.requests += 1,
            }
        }
        self.census.drain.count(open);
    }

    /// Estimates the number of streams of all workers, without asking them. Workers have about the same number, except if one
    /// accepts most connections: then the number of connections limits the estimate.
    pub(crate) fn streams_everywhere(&self) -> usize {
        let own = self.work().filter(|(_, kind)| *kind == WorkKind::Stream).count();
        let others = self.open_everywhere().saturating_sub(self.open);
        own.saturating_mul(self.workers).min(own.saturating_add(others))
    }

    /// Begins to leave: responses close their connections, and residents close theirs one by one. Listeners still accept.
    pub(crate) fn begin_leaving(&mut self, time_ns: u64) {
        self.leaving = Leaving { open: self.work().map(|(token, _)| token).collect(), ended: false };
        let now_ns = self.now.mono_ns;
        self.stage = WorkerStage::Leaving { until_ns: now_ns + time_ns / 4 * 3, end_ns: now_ns + time_ns };
        self.leave_http2();
        self.drain_residents(time_ns);
    }

    /// Whether the work that was open at the beginning of the drain has ended on all workers.
    pub(crate) fn has_left(&mut self) -> bool {
        while let Some(&token) = self.leaving.open.last() {
            if self.conn(token).is_some_and(|conn| work_of(conn).is_some()) {
                return false;
            }
            self.leaving.open.pop();
        }
        if self.leaving.ended {
            return self.census.drain.ended() >= self.workers;
        }
        self.leaving.ended = true;
        let is_last = self.census.drain.end_one() >= self.workers;
        if is_last {
            self.links.iter().for_each(|worker| worker.send(WorkerMessage::Left));
        }
        is_last
    }

    /// Starts to close connections, after the listeners. Idle connections get [`RETIRE_NS`] to send a last request. Busy
    /// connections get the same time after their response.
    pub(crate) fn release_idle(&mut self) {
        self.rest_ns = RETIRE_NS;
        let rest = self.now.mono_ns.saturating_add(RETIRE_NS);
        let connected = |(_, conn): &(u32, &mut Conn)| conn.phase != ConnPhase::Vacant;
        for (index, conn) in self.conns.iter_mut().filter(connected) {
            if matches!(conn.phase, ConnPhase::Resident | ConnPhase::Upstream) {
                continue;
            }
            if conn.phase == ConnPhase::Idle && !conn.has(SENDING) {
                conn.deadline_ns = rest;
            }
            self.wheel.arm_earlier(index, rest);
        }
    }

    /// Counts the work that the deadline of the drain cuts off.
    pub(crate) fn count_late(&self) {
        self.census.drain.add_late(self.work().count());
    }
}
