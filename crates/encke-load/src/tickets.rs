//! Decides when the next request may begin, from the plan's stop and pace.
//!
//! ```text
//!            closed loop                         open loop
//!   take ──► now, until the count or the time    when the next is due, or late if it was due earlier;
//!            is reached                          requests due within the time are also given out after it
//! ```
//! A free user takes a ticket. A due ticket that is not taken costs nothing: it is a number in the schedule ([`crate::pace`]).

use crate::pace::{Pace, Schedule};
use crate::plan::{Plan, PlanShare, Stop, WarmUp};

/// Requests of a thread that have not begun.
#[derive(Debug)]
pub(crate) struct Tickets {
    /// Requests that may still begin.
    left: u64,
    /// How many of them are warm-up.
    warm: u64,
    /// Requests that begin earlier are warm-up.
    warm_until_ns: u64,
    /// Nothing is due from this time on.
    until_ns: u64,
    pace: TicketSchedule,
    given: u64,
}

#[derive(Debug)]
enum TicketSchedule {
    /// Always due.
    Closed,
    /// Due at the moments of the schedule, relative to its beginning.
    Open { schedule: Schedule, begin_ns: u64, next_ns: Option<u64> },
}

/// Permission to begin a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestTicket {
    /// When the request should begin.
    pub(crate) intended_ns: u64,
    /// Whether the request is warm-up, and not counted.
    pub(crate) warm: bool,
}

impl Tickets {
    /// The tickets of a share of a plan that begins at `begin_ns`.
    pub(crate) fn new(plan: &Plan, share: PlanShare, begin_ns: u64) -> Self {
        Self::of(plan.stop, &plan.pace, plan.warm_up, plan.seed, share, begin_ns)
    }

    /// The tickets of a share of work with this stop, pace and warm-up.
    pub(crate) fn of(
        stop: Stop,
        pace: &Pace,
        warm_up: WarmUp,
        seed: u64,
        share: PlanShare,
        begin_ns: u64,
    ) -> Self {
        let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (warm, warm_until_ns) = match warm_up {
            WarmUp::None => (0, 0),
            WarmUp::Count(count) => (share.of(count), 0),
            WarmUp::For(time) => (0, begin_ns.saturating_add(nanoseconds(time))),
        };
        let (left, until_ns) = match stop {
            Stop::Count(count) => (share.of(count).saturating_add(warm), u64::MAX),
            Stop::After(time) => (u64::MAX, begin_ns.max(warm_until_ns).saturating_add(nanoseconds(time))),
            Stop::Told => (u64::MAX, u64::MAX),
        };
        let pace = match pace {
            Pace::Closed => TicketSchedule::Closed,
            Pace::Open(rate, arrivals) => {
                let mut schedule = Schedule::new(rate, *arrivals, share.number, share.threads, seed);
                let next_ns = schedule.next_ns().map(|after| begin_ns.saturating_add(after));
                TicketSchedule::Open { schedule, begin_ns, next_ns }
            }
        };
        Self { left, warm, warm_until_ns, until_ns, pace, given: 0 }
    }

    /// Takes the next ticket, if it is due.
    #[inline]
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<RequestTicket> {
        if self.left == 0 {
            return None;
        }
        let intended_ns = match &mut self.pace {
            TicketSchedule::Closed => now_ns,
            TicketSchedule::Open { schedule, begin_ns, next_ns } => {
                let due_ns = (*next_ns)?;
                if due_ns > now_ns {
                    return None;
                }
                if due_ns < self.until_ns {
                    *next_ns = schedule.next_ns().map(|after| begin_ns.saturating_add(after));
                }
                due_ns
            }
        };
        if intended_ns >= self.until_ns {
            self.left = 0;
            return None;
        }
        let first = self.given < self.warm;
        let warm = first || intended_ns < self.warm_until_ns;
        // The count of a plan does not include warm-up requests that end by time.
        if !warm || first {
            self.left -= 1;
        }
        self.given += 1;
        Some(RequestTicket { intended_ns, warm })
    }

    /// When the next ticket is due. `None`: there is none, or a closed loop gives it out at any time.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        match self.pace {
            TicketSchedule::Open { next_ns, .. } if self.left > 0 => next_ns,
            _ => None,
        }
    }

    /// Whether no more requests will begin. A closed loop that ends by time is exhausted with the first ticket refused.
    pub(crate) fn is_exhausted(&self) -> bool {
        let over = match self.pace {
            TicketSchedule::Closed => false,
            TicketSchedule::Open { next_ns, .. } => next_ns.is_none_or(|due_ns| due_ns >= self.until_ns),
        };
        over || self.left == 0
    }

    /// The time at which no more requests are due, if the plan ends by time.
    pub(crate) fn until_ns(&self) -> Option<u64> {
        (self.until_ns < u64::MAX).then_some(self.until_ns)
    }

    /// Gives out no more tickets.
    pub(crate) fn stop(&mut self) {
        self.left = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::message::{Mix, PreparedRequest, Style};
    use crate::pace::{Arrivals, Rate};

    const SECOND: u64 = 1_000_000_000;

    fn tickets(stop: Stop, pace: Pace, warm_up: WarmUp) -> Tickets {
        let message = PreparedRequest::new("GET", "h", "/", &[], None, Style::default()).expect("a request");
        let mix = Mix::new(vec![(message, 1)]).expect("one message");
        let plan =
            Plan { stop, pace, warm_up, ..Plan::new(std::net::SocketAddr::from(([127, 0, 0, 1], 1)), mix) };
        Tickets::new(&plan, PlanShare { number: 0, threads: 1 }, SECOND)
    }

    fn open(rate: &str) -> Pace {
        Pace::Open(rate.parse::<Rate>().expect("a rate"), Arrivals::Even)
    }

    #[test]
    fn a_closed_loop_begins_whenever_it_is_asked() {
        let mut counted = tickets(Stop::Count(2), Pace::Closed, WarmUp::None);
        assert_eq!(counted.take(5), Some(RequestTicket { intended_ns: 5, warm: false }));
        assert!(counted.take(6).is_some() && counted.take(7).is_none() && counted.is_exhausted());

        let mut timed = tickets(Stop::After(Duration::from_secs(1)), Pace::Closed, WarmUp::None);
        assert!(timed.take(2 * SECOND - 1).is_some() && !timed.is_exhausted());
        assert!(timed.take(2 * SECOND).is_none() && timed.is_exhausted());
    }

    #[test]
    fn an_open_loop_gives_what_was_due_however_late() {
        let mut tickets = tickets(Stop::After(Duration::from_secs(1)), open("10"), WarmUp::None);
        assert_eq!(tickets.take(SECOND).map(|ticket| ticket.intended_ns), Some(SECOND));
        assert_eq!(tickets.take(SECOND), None);
        assert_eq!(tickets.next_ns(), Some(SECOND + SECOND / 10));
        let late: Vec<u64> =
            std::iter::from_fn(|| tickets.take(60 * SECOND)).map(|ticket| ticket.intended_ns).collect();
        assert_eq!(late.len(), 9, "{late:?}");
        assert!(late.iter().all(|intended| *intended < 2 * SECOND), "{late:?}");
        assert!(tickets.is_exhausted());
    }

    #[test]
    fn warm_up_comes_before_what_is_counted() {
        let mut counted = tickets(Stop::Count(3), Pace::Closed, WarmUp::Count(2));
        let warm: Vec<bool> = std::iter::from_fn(|| counted.take(1)).map(|ticket| ticket.warm).collect();
        assert_eq!(warm, [true, true, false, false, false]);

        let two = WarmUp::For(Duration::from_secs(2));
        let mut timed = tickets(Stop::After(Duration::from_secs(1)), open("10"), two);
        let warm: Vec<bool> =
            std::iter::from_fn(|| timed.take(60 * SECOND)).map(|ticket| ticket.warm).collect();
        assert_eq!((warm.len(), warm.iter().filter(|warm| **warm).count()), (30, 20));

        let mut both = tickets(Stop::Count(3), Pace::Closed, two);
        assert!(both.take(SECOND).is_some_and(|ticket| ticket.warm));
        let counted = std::iter::from_fn(|| both.take(3 * SECOND)).filter(|ticket| !ticket.warm).count();
        assert_eq!(counted, 3);
    }

    #[test]
    fn none_is_given_after_it_was_stopped() {
        let mut tickets = tickets(Stop::Told, open("10"), WarmUp::None);
        tickets.stop();
        assert!(tickets.is_exhausted() && tickets.next_ns().is_none() && tickets.take(9 * SECOND).is_none());
    }
}
