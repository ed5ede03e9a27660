//! Several servers in one run: one crowd of requests per server, with its own connections and schedule.
//!
//! ```text
//!   users:  0 … │ n … │ m …            an event goes to the crowd that owns the connection,
//!           one │ two │ three          time to all crowds
//! ```
//! [`Plan::parts`] divides the plan among the servers; this file only runs their crowds on one reactor. A single crowd pays
//! nothing for this.

use std::sync::Arc;

use encke_io::{Event, OpError, Token};

use crate::crowd::{Crowd, Outbox, TurnTime};
use crate::dial::{self, Sockets};
use crate::plan::{Plan, PlanShare};
use crate::requests::Requests;
use crate::sealed::Sealed;

/// Crowds that share a reactor.
pub(crate) struct Several {
    crowds: Vec<Sealed<Requests>>,
    /// The first user of each crowd.
    first: Vec<u32>,
    /// The crowd of each of the reactor's tokens, by token index. Unused if there is only one crowd.
    homes: Vec<usize>,
}

/// The sockets of a thread. Its users are numbered plan by plan.
pub(crate) fn sockets(plans: &[Arc<Plan>], share: PlanShare) -> Sockets {
    let mut each: Vec<Sockets> =
        plans.iter().map(|plan| dial::sockets(plan.server.clone(), plan.sources.clone(), share)).collect();
    let first = first_users(plans.iter().map(|plan| users(plan, share)));
    // With several servers, it is unknown to which of them a spare socket belonged.
    let is_single = each.len() == 1;
    Box::new(move |user, spare| (each[home(&first, user)])(user, spare.filter(|_| is_single)))
}

/// Number of a thread's users for a plan.
fn users(plan: &Plan, share: PlanShare) -> u32 {
    // A part of a 32-bit number, so the cast holds.
    share.of(plan.connections.into()) as u32
}

fn first_users(counts: impl Iterator<Item = u32>) -> Vec<u32> {
    counts.scan(0, |sum, count| Some(std::mem::replace(sum, *sum + count))).collect()
}

/// The crowd that a user belongs to.
fn home(first: &[u32], user: u32) -> usize {
    // The first user of the first crowd is 0.
    first.partition_point(|first| *first <= user) - 1
}

impl Several {
    /// The crowds of a thread, one per plan.
    pub(crate) fn new(crowds: Vec<Sealed<Requests>>, plans: &[Arc<Plan>], share: PlanShare) -> Self {
        let first = first_users(plans.iter().map(|plan| users(plan, share)));
        Self { crowds, first, homes: Vec::new() }
    }

    pub(crate) fn into_inner(self) -> Vec<Requests> {
        self.crowds.into_iter().map(Sealed::into_inner).collect()
    }

    /// Calls one crowd and renumbers the users it dials.
    fn with(&mut self, place: usize, out: &mut Outbox, act: impl FnOnce(&mut Sealed<Requests>, &mut Outbox)) {
        let before = out.dials.len();
        act(&mut self.crowds[place], out);
        let first = self.first[place];
        out.dials.iter_mut().skip(before).for_each(|user| *user += first);
    }

    fn with_each(&mut self, out: &mut Outbox, mut act: impl FnMut(&mut Sealed<Requests>, &mut Outbox)) {
        for place in 0..self.crowds.len() {
            self.with(place, out, &mut act);
        }
    }
}

impl Crowd for Several {
    const DIALS_AT_ONCE: usize = Sealed::<Requests>::DIALS_AT_ONCE;

    fn open(&mut self, at: TurnTime, out: &mut Outbox) {
        self.with_each(out, |crowd, out| crowd.open(at, out));
    }

    fn is_open(&self) -> bool {
        self.crowds.iter().all(Crowd::is_open)
    }

    fn begin(&mut self, at: TurnTime, out: &mut Outbox) {
        self.with_each(out, |crowd, out| crowd.begin(at, out));
    }

    fn is_queued(&self, user: u32) -> bool {
        let place = home(&self.first, user);
        self.crowds[place].is_queued(user - self.first[place])
    }

    fn dialed(&mut self, user: u32, token: Result<Token, OpError>, at: TurnTime, out: &mut Outbox) {
        let place = home(&self.first, user);
        if let (Ok(token), [_, _, ..]) = (token, &self.crowds[..]) {
            let index = token.index as usize;
            if self.homes.len() <= index {
                self.homes.resize(index + 1, 0);
            }
            self.homes[index] = place;
        }
        let own = user - self.first[place];
        self.with(place, out, |crowd, out| crowd.dialed(own, token, at, out));
    }

    fn on_event(&mut self, event: Event<'_>, at: TurnTime, out: &mut Outbox) {
        let place = match &event {
            _ if self.crowds.len() == 1 => 0,
            Event::Connected { token }
            | Event::Received { token, .. }
            | Event::PeerClosed { token, .. }
            | Event::Sent { token, .. }
            | Event::Closed { token, .. }
            | Event::Failed { token, .. } => self.homes.get(token.index as usize).copied().unwrap_or(0),
            Event::Accepted { .. } | Event::Watched { .. } | Event::Offloaded { .. } | Event::Woken => return,
        };
        self.with(place, out, |crowd, out| crowd.on_event(event, at, out));
    }

    fn on_time(&mut self, at: TurnTime, out: &mut Outbox) {
        self.with_each(out, |crowd, out| crowd.on_time(at, out));
    }

    fn gather_ns(&self) -> u64 {
        let under_way = self.crowds.iter().filter(|crowd| !crowd.is_over());
        under_way.map(Crowd::gather_ns).min().unwrap_or(0)
    }

    fn next_ns(&self) -> Option<u64> {
        self.crowds.iter().filter(|crowd| !crowd.is_over()).filter_map(Crowd::next_ns).min()
    }

    fn stop(&mut self, at: TurnTime) {
        self.crowds.iter_mut().for_each(|crowd| crowd.stop(at));
    }

    fn is_over(&self) -> bool {
        self.crowds.iter().all(Crowd::is_over)
    }

    fn close(&mut self, out: &mut Outbox) {
        self.with_each(out, Crowd::close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_stand_one_crowd_behind_the_other() {
        let first = first_users([3, 1, 2].into_iter());
        assert_eq!(first, [0, 3, 4]);
        let homes: Vec<usize> = (0..6).map(|user| home(&first, user)).collect();
        assert_eq!(homes, [0, 0, 0, 1, 2, 2]);
    }
}
