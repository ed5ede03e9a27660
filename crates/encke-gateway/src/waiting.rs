//! The part of a proxy for requests that wait for a connection. The queue is shared by all workers; each proxy keeps the times of
//! its own requests, and starts them when it gets a permit.
//!
//! ```text
//!  wait ─► NamedUpstream::enqueue, own times ─► GrantInbox::give (any worker) ─► Handler::woken ─► Proxy::start
//!                                              └──► QueueTimer (read by the resident) ─► Handler::woken ─► 503
//! ```

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use encke_server::{ExchangeKey, Fields, HandlerWaker, Takeover, UpstreamId};

use crate::fault::GatewayFault;
use crate::proxied_request::{ProxiedRequest, RequestWait, is_safe};
use crate::proxy::{FRESH_NS, Proxy};
use crate::queue::{Grant, GrantInbox, Permit, QueuedRequest};
use crate::settings::UpstreamSettings;
use crate::tunnel::TunnelStart;
use crate::upstream::NamedUpstream;

/// Time after which a proxy with waiting requests looks again whether a target of several may be used that was ejected before, in
/// ns.
const AGAIN_NS: u64 = 100_000_000;

/// The waiting requests of a proxy.
pub(crate) struct ProxyWaits {
    inbox: Arc<GrantInbox>,
    timer: Rc<QueueTimer>,
    /// The limits of the waits in time, by upstream, in the order of arrival. Those of requests that wait no more may be left.
    by_upstream: Vec<(Arc<NamedUpstream>, VecDeque<WaitLimit>)>,
}

/// The end of a wait.
struct WaitLimit {
    key: ExchangeKey,
    ticket: u64,
    until_ns: u64,
}

/// The time at which a handler looks at its waiting requests, or at its checks. The resident of the worker reads it.
pub(crate) struct QueueTimer {
    due_ns: Cell<u64>,
    inbox: Arc<GrantInbox>,
}

impl QueueTimer {
    /// Creates a timer that wakes the handler of an inbox.
    pub(crate) fn new(inbox: &Arc<GrantInbox>) -> Rc<Self> {
        Rc::new(Self { due_ns: Cell::new(u64::MAX), inbox: Arc::clone(inbox) })
    }

    /// Sets the time, in ns of the monotonic clock; `u64::MAX`: never.
    pub(crate) fn set(&self, due_ns: u64) {
        if due_ns < self.due_ns.replace(due_ns) {
            // The worker may have read the timer already in this turn.
            self.inbox.wake();
        }
    }

    /// The time in ns of the monotonic clock; `None`: never.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        Some(self.due_ns.get()).filter(|due_ns| *due_ns < u64::MAX)
    }

    /// Wakes the handler if the time has passed.
    pub(crate) fn check(&self, now_ns: u64) {
        if self.due_ns.get() <= now_ns {
            self.due_ns.set(u64::MAX);
            self.inbox.wake();
        }
    }
}

impl ProxyWaits {
    pub(crate) fn new(waker: HandlerWaker, upstreams: &[Arc<NamedUpstream>]) -> Self {
        let inbox = GrantInbox::new(waker);
        upstreams.iter().for_each(|upstream| upstream.queue.join(&inbox));
        let timer = QueueTimer::new(&inbox);
        let by_upstream = upstreams.iter().map(|upstream| (Arc::clone(upstream), VecDeque::new())).collect();
        Self { inbox, timer, by_upstream }
    }

    pub(crate) const fn inbox(&self) -> &Arc<GrantInbox> {
        &self.inbox
    }

    pub(crate) const fn timer(&self) -> &Rc<QueueTimer> {
        &self.timer
    }
}

impl Drop for ProxyWaits {
    fn drop(&mut self) {
        self.by_upstream.iter().for_each(|(upstream, _)| upstream.queue.leave(&self.inbox));
        // Permits that have arrived go to others.
        drop(self.inbox.take());
    }
}

impl Proxy {
    /// Lets a request wait for a connection.
    pub(crate) fn wait(&mut self, key: ExchangeKey, fault: Option<GatewayFault>) {
        let now_ns = self.context.now().mono_ns;
        let Some(request) = self.requests.get_mut(&key) else { return };
        let Some((upstream, limits)) = self.waits.by_upstream.get_mut(request.upstream) else { return };
        let upstream = Arc::clone(upstream);
        let settings = &upstream.settings;
        let ticket = upstream.enqueue((key, request.wish), &self.waits.inbox, now_ns);
        let Some(ticket) = ticket else {
            return self.refuse(key, fault.unwrap_or(GatewayFault::QueueFull));
        };
        request.wait = Some(RequestWait { ticket, since_ns: now_ns });
        let until_ns = now_ns.saturating_add(settings.queue_time.nanoseconds());
        limits.push_back(WaitLimit { key, ticket, until_ns });
        // A connection may have become free before the request was in the queue, or other workers have connections to give up.
        upstream.distribute(now_ns);
        upstream.queue.wake_idle();
        self.set_timer();
    }

    /// Takes a request out of the queue. Returns whether it waited.
    pub(crate) fn leave_queue(&mut self, key: ExchangeKey) -> bool {
        let Some(request) = self.requests.get(&key) else { return false };
        let (Some(wait), Some(upstream)) = (request.wait, self.upstreams.get(request.upstream)) else {
            return false;
        };
        upstream.queue.remove(wait.ticket);
        self.end_wait(key, wait.ticket)
    }

    /// Records the end of a wait. Returns false if the request does not wait with this ticket.
    fn end_wait(&mut self, key: ExchangeKey, ticket: u64) -> bool {
        let now_ns = self.context.now().mono_ns;
        let Some(request) = self.requests.get_mut(&key) else { return false };
        let Some(wait) = request.wait.filter(|wait| wait.ticket == ticket) else { return false };
        request.wait = None;
        let ns = now_ns.saturating_sub(wait.since_ns);
        request.facts.waited_ns += ns;
        if let Some(upstream) = self.upstreams.get(request.upstream) {
            upstream.queue.waited(ns);
        }
        true
    }

    /// Handles permits, waits whose time is over, requests of other workers that wait for a connection which this one keeps, and
    /// drained targets.
    pub(crate) fn woken(&mut self) {
        let now_ns = self.context.now().mono_ns;
        let mut grants = self.waits.inbox.take();
        self.close_drained();
        self.close_released(now_ns);
        for place in 0..self.upstreams.len() {
            let upstream = Arc::clone(&self.upstreams[place]);
            if upstream.is_limited() && upstream.queue.is_waiting() {
                self.give_up_kept(place, &upstream, now_ns);
                upstream.distribute(now_ns);
                self.expire(place, &upstream, now_ns);
            }
        }
        loop {
            for Grant { key, ticket, permit } in grants {
                if self.end_wait(key, ticket) {
                    self.start(key, permit.target(), Some(permit), None);
                }
            }
            grants = self.waits.inbox.take();
            if grants.is_empty() {
                break;
            }
        }
        self.set_timer();
    }

    /// Ends the waits whose time is over.
    fn expire(&mut self, place: usize, upstream: &NamedUpstream, now_ns: u64) {
        while let Some((_, limits)) = self.waits.by_upstream.get_mut(place)
            && limits.front().is_some_and(|limit| limit.until_ns <= now_ns)
            && let Some(WaitLimit { key, ticket, .. }) = limits.pop_front()
        {
            // Otherwise the request has left the queue, or a permit for it is in its inbox.
            if upstream.queue.remove(ticket) && self.end_wait(key, ticket) {
                self.refuse(key, GatewayFault::QueueTime);
            }
        }
    }

    /// Gives up kept connections for waiting requests, the least recently used first.
    fn give_up_kept(&mut self, place: usize, upstream: &NamedUpstream, now_ns: u64) {
        for target in 0..upstream.targets.len() {
            while self.kept.get(place).is_some_and(|kept| kept.has(target))
                && let Some(waiter) = upstream.next_waiter(target, &self.waits.inbox, now_ns)
            {
                match self.kept.get_mut(place).and_then(|kept| kept.pop_first(target)) {
                    Some(id) => self.pass_on(id, waiter),
                    None => return,
                }
            }
        }
    }

    /// Uses a free connection for a request that was taken out of the queue: for one of this proxy as it is, unless it has rested too
    /// long for a request that must not be repeated, for one of another proxy by its permit.
    pub(crate) fn pass_on(&mut self, id: UpstreamId, waiter: QueuedRequest) {
        let QueuedRequest { key, ticket, inbox, .. } = waiter;
        let is_own = Arc::ptr_eq(&inbox, &self.waits.inbox) && self.end_wait(key, ticket);
        let now_ns = self.context.now().mono_ns;
        let is_fresh =
            self.conns.get(&id).is_some_and(|conn| now_ns.saturating_sub(conn.active_ns) <= FRESH_NS);
        let request = self.requests.get(&key).filter(|_| is_own);
        let fits = |request: &ProxiedRequest| {
            !request.avoids_kept && !request.upgrades && (is_fresh || is_safe(request.method))
        };
        if request.is_some_and(fits)
            && self.is_current(id)
            && let Some(conn) = self.conns.get_mut(&id)
        {
            conn.reused = true;
            self.counters.reuses.increment();
            self.context.resume(id);
            return self.carry(id, key);
        }
        let Some(permit) = self.take_permit(id) else { return };
        if is_own {
            self.start(key, permit.target(), Some(permit), None);
        } else {
            inbox.give(Grant { key, ticket, permit });
        }
    }

    /// Closes a connection that carries no request, and returns its permit.
    fn take_permit(&mut self, id: UpstreamId) -> Option<Permit> {
        let mut conn = self.conns.remove(&id)?;
        self.context.close(id);
        conn.permit.take()
    }

    /// Closes a kept connection that a request cannot use, and returns its permit for a new one.
    pub(crate) fn take_idle_permit(&mut self, place: usize, target: usize) -> Option<Permit> {
        let id = self.kept.get_mut(place)?.pop_first(target)?;
        self.take_permit(id)
    }

    /// Passes the connection of a client to the resident of tunnels, together with a permit.
    pub(crate) fn begin_tunnel(&mut self, key: ExchangeKey, permit: Permit) {
        let Some(mut request) = self.requests.remove(&key) else { return };
        let Some(upstream) = self.upstreams.get(request.upstream).map(Arc::clone) else { return };
        let Some(exchange) = request.exchange.take() else { return };
        exchange.take_over(Takeover::new(TunnelStart {
            route: Arc::clone(&request.route),
            upstream,
            counters: self.counters(),
            head: std::mem::take(&mut request.head),
            origin: request.origin.clone(),
            wish: request.wish,
            permit: Some(permit),
            waited_ns: request.facts.waited_ns,
        }));
    }

    /// Sets the time at which the proxy looks at its waiting requests next.
    fn set_timer(&mut self) {
        let now_ns = self.context.now().mono_ns;
        let mut due_ns = u64::MAX;
        for (upstream, limits) in &mut self.waits.by_upstream {
            let waits = |limit: &WaitLimit| {
                let request = self.requests.get(&limit.key);
                let wait = request.and_then(|request| request.wait);
                wait.is_some_and(|wait| wait.ticket == limit.ticket)
            };
            while limits.front().is_some_and(|limit| !waits(limit)) {
                limits.pop_front();
            }
            if let Some(limit) = limits.front() {
                let again_ns = if upstream.targets.len() > 1 { now_ns + AGAIN_NS } else { u64::MAX };
                due_ns = due_ns.min(limit.until_ns).min(again_ns);
            }
        }
        self.waits.timer.set(due_ns);
    }
}

/// The field Retry-After for a request that has found no connection: from one second to `queue_time` and a second, so that clients
/// do not all return at once.
pub(crate) fn retry_after(key: ExchangeKey, settings: &UpstreamSettings) -> Fields {
    let queue_s = settings.queue_time.nanoseconds() / 1_000_000_000;
    let mut fields = Fields::new();
    let value = (1 + spread(key, queue_s + 1)).to_string();
    fields.push("Retry-After", value.as_bytes()).expect("digits are a value");
    fields
}

/// A number below `below`. Consecutive keys have distant numbers.
pub(crate) fn spread(key: ExchangeKey, below: u64) -> u64 {
    (u64::from(key.slot ^ key.generation).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % below.max(1)
}
