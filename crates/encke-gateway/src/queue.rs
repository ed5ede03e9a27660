//! Limits on connections to applications, and the queue of requests that wait for one. Shared by all workers.
//!
//! ```text
//!  a request ─┬─ a kept connection of its worker ──────────────────────► sent
//!             ├─ a free permit ─► dial ────────────────────────────────► sent
//!             └─ neither, or others wait for it ─► WaitQueue ─┬─ a grant ─► sent
//!                                                             ├─ full ────► 503 queue_full
//!                                                             ├─ queue_time ► 503 queue_time
//!                                                             └─ the client has left
//! ```
//! **A permit is the right to one connection to a target**, from the dial to the close, so a kept connection holds its permit.
//! Without a limit permits are only counted.
//!
//! **Requests for the same target keep their order**: a request joins the end of the queue if an earlier one waits for each
//! target that it may use. A request whose target no other one waits for starts at once, so a target that hangs delays only the
//! requests that a cookie or a hash binds to it.
//!
//! **A connection that becomes free** goes to the first request of its own worker, if that has waited at least half as long as
//! the first request of all workers. Otherwise the worker closes the connection, and its permit goes to the first of all. So
//! connections are reused under load, and the waits of two workers differ at most by a factor of two. A kept connection is given
//! up by the same rule when a request of another worker begins to wait.
//!
//! **The lock** of the queue is taken only while requests wait. A request enters the queue before it reads the number of open
//! connections a last time, and a permit is released before its owner reads the number of waiting requests. So one of the two
//! sees the other, and no wake-up is lost.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use encke_io::{Address, lock};
use encke_server::{ExchangeKey, HandlerWaker};

use crate::affinity::TargetWish;
use crate::app_place::AddressUse;
use crate::fault::GatewayFault;
use crate::target::UpstreamTarget;
use crate::upstream::NamedUpstream;

/// The right to one connection to a target. Released when dropped.
pub(crate) struct Permit {
    upstream: Arc<NamedUpstream>,
    target: usize,
    /// The address of a supervised application's process.
    used: Option<AddressUse>,
    /// The address of the connection, of a target with several.
    dialed: Option<Address>,
}

/// The requests that wait for a connection to a target of an upstream.
#[derive(Default)]
pub(crate) struct WaitQueue {
    /// Number of waiting requests, readable without the lock.
    waiting: AtomicU32,
    /// Kept connections of all workers.
    idle: AtomicU32,
    /// The number of times that all proxies were asked to close kept connections, and the last time in ns of the monotonic clock.
    releases: AtomicU32,
    released_ns: AtomicU64,
    state: Mutex<QueueState>,
    /// All proxies.
    proxies: Mutex<Vec<Arc<GrantInbox>>>,
    /// Requests whose wait has ended, and the sum of their waits.
    waits: AtomicU64,
    waits_ns: AtomicU64,
}

#[derive(Default)]
struct QueueState {
    last_ticket: u64,
    /// In the order of arrival.
    waiters: VecDeque<QueuedRequest>,
}

/// A waiting request.
pub(crate) struct QueuedRequest {
    pub(crate) key: ExchangeKey,
    pub(crate) ticket: u64,
    wish: TargetWish,
    since_ns: u64,
    /// The proxy of the request.
    pub(crate) inbox: Arc<GrantInbox>,
}

/// A permit for a request that has waited.
pub(crate) struct Grant {
    pub(crate) key: ExchangeKey,
    pub(crate) ticket: u64,
    pub(crate) permit: Permit,
}

/// The permits for waiting requests of a proxy, from any worker.
pub(crate) struct GrantInbox {
    waker: HandlerWaker,
    /// Whether the proxy was woken, and has not begun to look.
    is_woken: AtomicBool,
    grants: Mutex<Vec<Grant>>,
}

impl Permit {
    /// Takes a permit for a target; `None` if all are in use.
    pub(crate) fn take(upstream: &Arc<NamedUpstream>, target: usize) -> Option<Self> {
        let has_room = upstream.targets.get(target)?.open_one(upstream.settings.connections);
        has_room.then(|| Self { upstream: Arc::clone(upstream), target, used: None, dialed: None })
    }

    /// The address for a connection, and the most time to establish it in ns.
    ///
    /// # Errors
    /// The target has none at present.
    pub(crate) fn address(&mut self, now_ns: u64) -> Result<(Address, u64), GatewayFault> {
        let target = self.upstream.targets.get(self.target).ok_or(GatewayFault::Unreachable)?;
        let connect_ns = self.upstream.settings.connect_time.nanoseconds();
        match target.place() {
            Some(place) => {
                self.used = place.use_now();
                let address = self.used.as_ref().map(AddressUse::address).ok_or(GatewayFault::NotReady)?;
                Ok((address, connect_ns))
            }
            None => {
                let (address, limit_ns) =
                    target.next_address(now_ns, connect_ns).ok_or(GatewayFault::Unresolved)?;
                self.dialed = Some(address.clone());
                Ok((address, limit_ns))
            }
        }
    }

    /// The address to which the connection goes.
    pub(crate) fn destination(&self) -> Option<Address> {
        let used = self.used.as_ref().map(AddressUse::address);
        used.or_else(|| self.dialed.clone())
    }

    /// The connection was established.
    pub(crate) fn connected(&self) {
        if let Some((target, address)) = self.dialed_of_several() {
            target.address_works(address);
        }
    }

    /// The connection was not established. Returns whether no other address of the target is left.
    pub(crate) fn not_connected(&self, now_ns: u64) -> bool {
        self.dialed_of_several().is_none_or(|(target, address)| target.address_failed(address, now_ns))
    }

    fn dialed_of_several(&self) -> Option<(&UpstreamTarget, &Address)> {
        let target = self.upstream.targets.get(self.target)?;
        Some((target, self.dialed.as_ref()?)).filter(|(target, _)| target.addresses() > 1)
    }

    /// Whether a new connection would have the same address. If not, the process of the connection was replaced.
    pub(crate) fn is_current(&self) -> bool {
        let Some(used) = &self.used else { return true };
        let target = self.upstream.targets.get(self.target);
        target.and_then(|target| target.place()).is_none_or(|place| place.is_current(used))
    }

    /// The index of the target.
    pub(crate) const fn target(&self) -> usize {
        self.target
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(target) = self.upstream.targets.get(self.target) {
            target.close_one();
        }
        self.upstream.queue.wake_first();
    }
}

impl GrantInbox {
    pub(crate) fn new(waker: HandlerWaker) -> Arc<Self> {
        Arc::new(Self { waker, is_woken: AtomicBool::new(false), grants: Mutex::default() })
    }

    /// Wakes the proxy.
    pub(crate) fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Gives a permit to a request of the proxy. If the request has ended, the proxy releases the permit.
    pub(crate) fn give(&self, grant: Grant) {
        lock(&self.grants).push(grant);
        self.wake();
    }

    /// Takes the permits. Later permits wake the proxy again.
    pub(crate) fn take(&self) -> Vec<Grant> {
        self.is_woken.store(false, Ordering::SeqCst);
        std::mem::take(&mut *lock(&self.grants))
    }
}

impl WaitQueue {
    /// Number of waiting requests.
    pub(crate) fn len(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Whether requests wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.len() > 0
    }

    /// Removes a request. Returns false if the queue no longer has it, because a permit for it is in its inbox.
    pub(crate) fn remove(&self, ticket: u64) -> bool {
        let mut state = lock(&self.state);
        // Tickets ascend.
        let found = state.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket);
        let removed = found.is_ok_and(|place| state.waiters.remove(place).is_some());
        self.count(&state);
        removed
    }

    fn count(&self, state: &QueueState) {
        self.waiting.store(state.waiters.len() as u32, Ordering::SeqCst);
    }

    /// Counts a wait that has ended.
    pub(crate) fn waited(&self, ns: u64) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waits_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Number of waits that have ended, and their sum in seconds.
    pub(crate) fn waits(&self) -> (u64, f64) {
        (self.waits.load(Ordering::Relaxed), self.waits_ns.load(Ordering::Relaxed) as f64 / 1e9)
    }

    /// Wakes the proxy of the first request, which looks for free permits.
    fn wake_first(&self) {
        if self.is_waiting() {
            let first = lock(&self.state).waiters.front().map(|waiter| Arc::clone(&waiter.inbox));
            if let Some(inbox) = first {
                inbox.wake();
            }
        }
    }

    /// Adds a proxy.
    pub(crate) fn join(&self, inbox: &Arc<GrantInbox>) {
        lock(&self.proxies).push(Arc::clone(inbox));
    }

    /// Removes a proxy and its requests.
    pub(crate) fn leave(&self, inbox: &Arc<GrantInbox>) {
        lock(&self.proxies).retain(|other| !Arc::ptr_eq(other, inbox));
        let mut state = lock(&self.state);
        state.waiters.retain(|waiter| !Arc::ptr_eq(&waiter.inbox, inbox));
        self.count(&state);
        drop(state);
        self.wake_first();
    }

    /// Wakes all proxies.
    pub(crate) fn wake_all(&self) {
        lock(&self.proxies).iter().for_each(|inbox| inbox.wake());
    }

    /// Counts a connection that is kept (1) or no longer kept (-1).
    pub(crate) fn count_idle(&self, change: i32) {
        self.idle.fetch_add(change as u32, Ordering::SeqCst);
    }

    /// Asks all proxies to close idle connections, at most once in `again_ns` (`release.rs`).
    pub(crate) fn release(&self, now_ns: u64, again_ns: u64) {
        let before_ns = self.released_ns.load(Ordering::Relaxed);
        if now_ns.saturating_sub(before_ns) >= again_ns
            && self
                .released_ns
                .compare_exchange(before_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.releases.fetch_add(1, Ordering::SeqCst);
            self.wake_all();
        }
    }

    /// The number of calls of [`WaitQueue::release`] so far.
    pub(crate) fn releases(&self) -> u32 {
        self.releases.load(Ordering::SeqCst)
    }

    /// Wakes all proxies if one may have a kept connection.
    pub(crate) fn wake_idle(&self) {
        if self.idle.load(Ordering::SeqCst) > 0 {
            self.wake_all();
        }
    }
}

impl NamedUpstream {
    /// Adds a request to the queue. Returns its ticket; `None` if as many requests as the settings allow wait for targets that it
    /// may use. Requests that are bound to another target do not count.
    pub(crate) fn enqueue(
        &self,
        (key, wish): (ExchangeKey, TargetWish),
        inbox: &Arc<GrantInbox>,
        now_ns: u64,
    ) -> Option<u64> {
        let mut state = lock(&self.queue.state);
        let most = self.settings.queue as usize;
        if state.waiters.len() >= most {
            let own = self.targets.choices(&wish, now_ns);
            let mut last = (wish, true);
            let is_rival = |waiter: &&QueuedRequest| {
                if last.0 != waiter.wish {
                    last = (waiter.wish, self.targets.choices(&waiter.wish, now_ns) & own != 0);
                }
                last.1
            };
            if state.waiters.iter().filter(is_rival).count() >= most {
                return None;
            }
        }
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        let inbox = Arc::clone(inbox);
        state.waiters.push_back(QueuedRequest { key, ticket, wish, since_ns: now_ns, inbox });
        self.queue.count(&state);
        Some(ticket)
    }

    /// Gives free permits to waiting requests, in their order.
    pub(crate) fn distribute(self: &Arc<Self>, now_ns: u64) {
        while self.queue.is_waiting() {
            let mut state = lock(&self.queue.state);
            // Nearly all waiters have tried the same targets, and so find the same ones busy.
            let mut busy = None;
            let found = state.waiters.iter().enumerate().find_map(|(place, waiter)| {
                if busy == Some(waiter.wish) {
                    return None;
                }
                let target = self.targets.choose(&waiter.wish, now_ns, |target| self.has_room(target)).free();
                if target.is_none() {
                    busy = Some(waiter.wish);
                }
                Some((place, target?))
            });
            let Some((place, target)) = found else { return };
            // Another worker may have taken the permit: then the search begins again.
            let Some(permit) = Permit::take(self, target) else { continue };
            let waiter = state.waiters.remove(place);
            self.queue.count(&state);
            // A permit must not be released under the lock.
            drop(state);
            if let Some(QueuedRequest { key, ticket, inbox, .. }) = waiter {
                inbox.give(Grant { key, ticket, permit });
            }
        }
    }

    /// The targets that waiting requests may use, as a bit mask: a new request must not take them first.
    pub(crate) fn awaited(&self, now_ns: u64) -> u64 {
        let all = u64::MAX >> (u64::BITS as usize - self.targets.len().clamp(1, 64));
        let (mut awaited, mut last) = (0, None);
        for QueuedRequest { wish, .. } in &lock(&self.queue.state).waiters {
            // Nearly all waiters without a cookie and a hash have the same wish.
            if last != Some(*wish) {
                awaited |= self.targets.choices(wish, now_ns);
                last = Some(*wish);
            }
            if awaited == all {
                break;
            }
        }
        awaited
    }

    /// Removes the request for which a free connection of the proxy `own` is to be used; `None` if no request waits for this
    /// target.
    pub(crate) fn next_waiter(
        &self,
        target: usize,
        own: &Arc<GrantInbox>,
        now_ns: u64,
    ) -> Option<QueuedRequest> {
        if !self.queue.is_waiting() {
            return None;
        }
        let mut state = lock(&self.queue.state);
        let fits = |waiter: &QueuedRequest| self.targets.is_choice(&waiter.wish, target, now_ns);
        let first = state.waiters.iter().position(fits)?;
        let first_own =
            state.waiters.iter().position(|waiter| Arc::ptr_eq(&waiter.inbox, own) && fits(waiter));
        let wait_ns = |place: usize| now_ns.saturating_sub(state.waiters[place].since_ns);
        let place = first_own.filter(|place| wait_ns(*place) >= wait_ns(first) / 2).unwrap_or(first);
        let waiter = state.waiters.remove(place);
        self.queue.count(&state);
        waiter
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use encke_io::Now;
    use encke_server::testing::Stage;
    use encke_server::{Exchange, Handler, Outcome, Reply, Request};

    use super::*;
    use crate::balance_settings::Balance;
    use crate::settings::UpstreamSettings;
    use crate::target::{NewTarget, TargetSet};

    struct None;

    impl Handler for None {
        fn call(&mut self, _: &Request<'_>, _: Exchange) -> Outcome {
            Outcome::Now(Reply::error(404))
        }
    }

    fn inbox() -> Arc<GrantInbox> {
        let mut waker = Option::None;
        Stage::open(Now::default(), |context, _| {
            waker = Some(context.waker());
            Box::new(None)
        });
        GrantInbox::new(waker.expect("opened above"))
    }

    fn upstream(targets: usize, connections: u32) -> Arc<NamedUpstream> {
        let target = |_| NewTarget {
            url: "3000".parse().expect("a URL"),
            addresses: Vec::new(),
            weight: 1,
            is_backup: false,
            sessions: Option::None,
            place: Option::None,
        };
        let settings = UpstreamSettings { connections, ..UpstreamSettings::default() };
        let targets = TargetSet::new((0..targets).map(target).collect(), Balance::Two, 0);
        NamedUpstream::new(settings, targets)
    }

    fn push(upstream: &NamedUpstream, slot: u32, tried: u64, inbox: &Arc<GrantInbox>, at_ms: u64) {
        let key = ExchangeKey { slot, generation: 0, stream: 0 };
        let wish = TargetWish { tried, ..TargetWish::default() };
        upstream.enqueue((key, wish), inbox, ms(at_ms)).expect("room");
    }

    fn ms(time: u64) -> u64 {
        Duration::from_millis(time).as_nanos() as u64
    }

    #[test]
    fn a_free_connection_serves_its_own_worker_unless_another_waits_twice_as_long() {
        let (own, other) = (inbox(), inbox());
        for (own_ms, first) in [(0, 1), (500, 1), (501, 0), (999, 0)] {
            let upstream = upstream(1, 1);
            push(&upstream, 0, 0, &other, 0);
            push(&upstream, 1, 0, &own, own_ms);
            push(&upstream, 2, 0, &own, own_ms);
            let next = || upstream.next_waiter(0, &own, ms(1_000)).map(|waiter| waiter.key.slot);
            assert_eq!(next(), Some(first), "the own request has waited since {own_ms} ms");
            assert_eq!(upstream.queue.len(), 2);
        }
        let upstream = upstream(1, 1);
        assert!(upstream.next_waiter(0, &own, 0).is_none(), "nobody waits");
    }

    #[test]
    fn permits_go_to_the_first_requests_that_may_use_them() {
        let inbox = inbox();
        let upstream = upstream(2, 1);
        let permits = [0, 1].map(|target| Permit::take(&upstream, target).expect("a free one"));
        assert!(Permit::take(&upstream, 0).is_none());
        // The first request has tried target 0.
        for (slot, tried) in [(0, 0b01), (1, 0), (2, 0)] {
            push(&upstream, slot, tried, &inbox, 0);
        }
        upstream.distribute(0);
        assert!(inbox.take().is_empty());
        let [first, second] = permits;
        drop(first);
        upstream.distribute(0);
        let grants = inbox.take();
        let granted = |grants: &[Grant]| {
            grants.iter().map(|grant| (grant.key.slot, grant.permit.target())).collect::<Vec<_>>()
        };
        assert_eq!(granted(&grants), [(1, 0)]);
        drop(second);
        upstream.distribute(0);
        let more = inbox.take();
        assert_eq!(granted(&more), [(0, 1)]);
        // The next request gets a permit that is not used.
        drop(more);
        upstream.distribute(0);
        assert_eq!(granted(&inbox.take()), [(2, 1)]);
        drop(grants);
        assert!(!upstream.queue.is_waiting());
        assert!((0..2).all(|target| upstream.has_room(target)));
    }

    #[test]
    fn a_target_is_awaited_while_a_request_may_use_it() {
        let inbox = inbox();
        let upstream = upstream(3, 1);
        assert_eq!(upstream.awaited(0), 0, "nobody waits");
        push(&upstream, 0, 0b101, &inbox, 0);
        push(&upstream, 1, 0b101, &inbox, 0);
        assert_eq!(upstream.awaited(0), 0b010, "the others were tried");
        push(&upstream, 2, 0b110, &inbox, 0);
        assert_eq!(upstream.awaited(0), 0b011);
        assert!(upstream.targets.targets.iter().take(1).all(|target| target.state.drain()));
        assert_eq!(upstream.awaited(0), 0b010, "no request may use a drained target");
        push(&upstream, 3, 0, &inbox, 0);
        assert_eq!(upstream.awaited(0), 0b110);
        assert!(upstream.next_waiter(1, &inbox, 0).is_some_and(|waiter| waiter.key.slot == 0));
    }

    #[test]
    fn a_proxy_that_ends_leaves_no_request_and_wakes_the_next() {
        let (gone, other) = (inbox(), inbox());
        let upstream = upstream(1, 1);
        upstream.queue.join(&gone);
        push(&upstream, 0, 0, &gone, 0);
        push(&upstream, 1, 0, &other, 0);
        upstream.queue.leave(&gone);
        assert_eq!(upstream.queue.len(), 1);
        assert!(other.is_woken.load(Ordering::SeqCst));
    }
}
