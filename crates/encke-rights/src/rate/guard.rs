//! The guard of one worker: counts requests in the tables of the rules.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use encke_server::{
    EndToken, ExchangeKey, Guard, GuardCall, GuardOutcome, HandlerContext, Passage, Reply, Request,
    is_event_source,
};

use super::figures::RateCounters;
use super::rule::{DecodedPath, RateRule};
use super::table::{RateAdmission, RateHasher};
use super::timer::{DelayedRequest, DelayedRequests, UsedLimit};

/// Rates on one worker.
pub(crate) struct RateGuard {
    context: HandlerContext,
    rules: Arc<[Arc<RateRule>]>,
    hasher: Arc<RateHasher>,
    counters: Arc<RateCounters>,
    /// Requests that wait for their turn, if a rule has a delay.
    delayed: Option<Rc<RefCell<DelayedRequests>>>,
    /// A buffer for paths.
    decoded: String,
}

/// The decision of all rules.
enum RateDecision {
    /// The request passes now, with tokens of its open requests.
    Now(Vec<EndToken>),
    /// The request passes after this time, in ns, which the rule at this place in `rules` demands.
    After(u64, usize, Vec<EndToken>),
    /// The request would be admitted after this time, in ns.
    Rejected(u64),
    /// The key of the request has too many open requests.
    Crowded,
}

/// Takes back a request from the rules before `place`, because another one rejects it.
#[cold]
fn refund(
    rules: &[Arc<RateRule>],
    place: usize,
    request: &Request<'_>,
    hasher: &RateHasher,
    path: &mut DecodedPath<'_>,
) {
    for earlier in rules.iter().take(place) {
        if let Some(table) = earlier.table.as_ref().filter(|_| earlier.matches(request, path)) {
            table.refund(earlier.key(request, hasher));
        }
    }
}

impl RateGuard {
    pub(crate) fn new(
        context: HandlerContext,
        rules: Arc<[Arc<RateRule>]>,
        hasher: Arc<RateHasher>,
        counters: Arc<RateCounters>,
        delayed: Option<Rc<RefCell<DelayedRequests>>>,
    ) -> Self {
        Self { context, rules, hasher, counters, delayed, decoded: String::new() }
    }

    /// Counts a request in all rules that match it, or in none of them: a rejected request uses no limit.
    fn count(&mut self, request: &Request<'_>) -> RateDecision {
        let Self { context, rules, hasher, counters, decoded, .. } = self;
        // Not the time of arrival: another guard may have held the request.
        let now_ns = context.now().mono_ns;
        let mut path = DecodedPath::new(decoded);
        if path.is_challenge(request) {
            return RateDecision::Now(Vec::new());
        }
        let (mut longest, mut tokens) = ((0, 0), Vec::new());
        for (place, rule) in rules.iter().enumerate() {
            if !rule.matches(request, &mut path) {
                continue;
            }
            let key = rule.key(request, hasher);
            let mut rejection = None;
            if let Some(open) = &rule.open {
                match open.enter(key) {
                    Some(token) => tokens.push(token),
                    None => rejection = Some(RateDecision::Crowded),
                }
            }
            if let Some(table) = &rule.table
                && rejection.is_none()
            {
                match table.admit(key, now_ns, rule.delay_ns) {
                    RateAdmission::After { wait_ns, evicts } => {
                        longest = longest.max((wait_ns, place));
                        if evicts {
                            counters.evicted.increment();
                        }
                    }
                    RateAdmission::Rejected { retry_ns } => {
                        rejection = Some(RateDecision::Rejected(retry_ns.saturating_sub(rule.delay_ns)));
                    }
                }
            }
            if let Some(rejection) = rejection {
                refund(rules, place, request, hasher, &mut path);
                return rejection;
            }
        }
        match longest {
            (0, _) => RateDecision::Now(tokens),
            (wait_ns, place) => RateDecision::After(wait_ns, place, tokens),
        }
    }

    /// Holds a request until its turn, unless its rule holds too many.
    fn hold(
        &mut self,
        request: &Request<'_>,
        call: GuardCall<'_>,
        wait_ns: u64,
        place: usize,
        passage: Passage,
    ) -> GuardOutcome {
        let (Some(delayed), Some(rule)) = (&self.delayed, self.rules.get(place)) else {
            // Only rules with a delay let requests wait.
            return GuardOutcome::Pass(passage);
        };
        if delayed.borrow().held_by(rule.place) >= rule.delayed_max {
            let mut path = DecodedPath::new(&mut self.decoded);
            refund(&self.rules, self.rules.len(), request, &self.hasher, &mut path);
            self.context.refused("delayed");
            return GuardOutcome::Refuse(refusal(request, wait_ns).because(&"delayed"));
        }
        self.counters.delayed.increment();
        let mut path = DecodedPath::new(&mut self.decoded);
        let used: Vec<UsedLimit> = self
            .rules
            .iter()
            .filter(|rule| rule.matches(request, &mut path))
            .filter_map(|rule| Some((Arc::clone(rule.table.as_ref()?), rule.key(request, &self.hasher))))
            .collect();
        let (hold, ticket) = call.hold();
        let due_ns = self.context.now().mono_ns.saturating_add(wait_ns);
        let held = DelayedRequest { key: hold.key(), ticket, passage, rule: rule.place, used };
        delayed.borrow_mut().hold(due_ns, held);
        GuardOutcome::Later(hold)
    }
}

/// Refuses a request that may succeed after `retry_ns`.
fn refusal(request: &Request<'_>, retry_ns: u64) -> Reply {
    let reply = Reply::error(429);
    if is_event_source(request) {
        return reply.for_event_source((retry_ns / 1_000_000).max(1_000));
    }
    reply.with("Retry-After", retry_ns.div_ceil(1_000_000_000).max(1).to_string())
}

impl Guard for RateGuard {
    fn passes(&mut self, request: &Request<'_>) -> bool {
        let Self { context, rules, hasher, counters, decoded, .. } = self;
        let mut path = DecodedPath::new(decoded);
        if path.is_challenge(request) {
            return true;
        }
        for (place, rule) in rules.iter().enumerate() {
            if !rule.matches(request, &mut path) {
                continue;
            }
            let table = rule.table.as_ref().filter(|_| rule.open.is_none());
            let admission =
                table.map(|table| table.admit(rule.key(request, hasher), context.now().mono_ns, 0));
            match admission {
                Some(RateAdmission::After { evicts: false, .. }) => {}
                Some(RateAdmission::After { .. }) => counters.evicted.increment(),
                Some(RateAdmission::Rejected { .. }) | None => {
                    refund(rules, place, request, hasher, &mut path);
                    return false;
                }
            }
        }
        true
    }

    fn check(&mut self, request: &Request<'_>, call: GuardCall<'_>) -> GuardOutcome {
        match self.count(request) {
            RateDecision::Now(until_end) => GuardOutcome::Pass(Passage { until_end, ..Passage::default() }),
            RateDecision::After(wait_ns, place, until_end) => {
                self.hold(request, call, wait_ns, place, Passage { until_end, ..Passage::default() })
            }
            RateDecision::Rejected(retry_ns) => {
                self.context.refused("rate");
                GuardOutcome::Refuse(refusal(request, retry_ns).because(&"rate"))
            }
            RateDecision::Crowded => {
                self.context.refused("at_once");
                GuardOutcome::Refuse(refusal(request, 0).because(&"at_once"))
            }
        }
    }

    fn gone(&mut self, key: ExchangeKey) {
        if let Some(delayed) = &self.delayed {
            delayed.borrow_mut().forget(key);
        }
    }
}
