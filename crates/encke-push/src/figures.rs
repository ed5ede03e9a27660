//! The figures of push: each worker has its own, and a [`Source`] adds them up.
//!
//! ```text
//!  PushWorker 0 ─ PushCounters ─┐
//!  PushWorker n ─ PushCounters ─┴─ PushFigures ─┐
//!  Admission, Archive ──────────────────────────┴─ PushPlan: Source ─► /metrics, /api/v1/status
//! ```
//! The figures outlive a reload: a new plan takes them over from its predecessor.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use encke_io::clock::Clock;
use encke_io::lock;
use encke_stats::{Counter, Distribution, Family, Gauge, Histogram, LastSecond, Source};
use serde_json::{Value, json};

use super::reject::{RejectReason, SubscriberTransport};

/// The figures of one worker.
#[derive(Default)]
pub(crate) struct PushCounters {
    pub(crate) subscribers: Gauge,
    /// Admitted subscribers.
    pub(crate) admissions: Counter,
    rejected: [[Counter; SubscriberTransport::ALL.len()]; RejectReason::ALL.len()],
    pub(crate) published: Counter,
    pub(crate) deliveries: Counter,
    /// By class of channels: the time from a message's acceptance to the last send of its fan-out on this worker.
    fanouts: Mutex<BTreeMap<String, Arc<Histogram>>>,
    /// Maximum age in µs of the oldest message that waited for a subscriber able to receive it.
    pub(crate) queue_age_us: LastSecond,
    /// The last sample of subscribers, from the last second with a turn.
    pub(crate) sample: SubscriberSample,
}

/// A sample of subscribers.
#[derive(Default)]
pub(crate) struct SubscriberSample {
    /// All subscribers at the time of the sample, and their memory in this process, in bytes.
    pub(crate) subscribers: Gauge,
    pub(crate) user: Gauge,
    /// Subscribers in the sample.
    pub(crate) count: Gauge,
    /// Bytes that their peers have not acknowledged: the sum, and the maximum of one.
    pub(crate) unsent: Gauge,
    pub(crate) unsent_most: Gauge,
    /// Kernel memory of their buffers in bytes: the sum.
    pub(crate) kernel: Gauge,
}

impl PushCounters {
    /// Counts a rejected subscriber.
    pub(crate) fn count_rejected(&self, away: RejectReason, transport: SubscriberTransport) {
        self.rejected[away as usize][transport as usize].add(1);
    }

    /// Returns the histograms of fan-out times for these classes. A class keeps its histogram over reloads.
    pub(crate) fn fanouts(&self, classes: &[String]) -> Vec<Arc<Histogram>> {
        let mut known = lock(&self.fanouts);
        classes.iter().map(|class| Arc::clone(known.entry(class.clone()).or_default())).collect()
    }
}

/// The figures of all workers.
#[derive(Default)]
pub(crate) struct PushFigures {
    /// By the worker's number. A worker takes its own once, when it opens push.
    workers: Mutex<Vec<Arc<PushCounters>>>,
}

impl PushFigures {
    /// Returns the figures of a worker.
    pub(crate) fn of_worker(&self, number: usize) -> Arc<PushCounters> {
        let mut workers = lock(&self.workers);
        if workers.len() <= number {
            workers.resize_with(number + 1, Arc::default);
        }
        Arc::clone(&workers[number])
    }

    /// Returns the fan-out times of a class of channels, of all workers.
    pub(crate) fn fanout(&self, class: &str) -> Distribution {
        let mut sum = Distribution::default();
        for worker in lock(&self.workers).iter() {
            if let Some(histogram) = lock(&worker.fanouts).get(class) {
                histogram.add_to(&mut sum);
            }
        }
        sum
    }

    /// Returns the state of all channels at the moment `now_ns` of the monotonic clock.
    pub(crate) fn levels(&self, now_ns: u64) -> PushLevels {
        let workers = lock(&self.workers);
        let sum = |of: &dyn Fn(&PushCounters) -> &Gauge| -> u64 {
            workers.iter().map(|worker| u64::try_from(of(worker).value()).unwrap_or(0)).sum()
        };
        let most =
            |of: &dyn Fn(&PushCounters) -> u64| workers.iter().map(|worker| of(worker)).max().unwrap_or(0);
        let sampled = sum(&|worker| &worker.sample.count);
        let mean = |sum: u64, count: u64| sum.checked_div(count).unwrap_or(0);
        PushLevels {
            subscribers: sum(&|worker| &worker.subscribers),
            queue_age_ns: most(&|worker| worker.queue_age_us.recent(now_ns)) * 1_000,
            unsent_bytes: mean(sum(&|worker| &worker.sample.unsent), sampled),
            unsent_bytes_max: most(&|worker| u64::try_from(worker.sample.unsent_most.value()).unwrap_or(0)),
            user_bytes: mean(sum(&|worker| &worker.sample.user), sum(&|worker| &worker.sample.subscribers)),
            kernel_bytes: mean(sum(&|worker| &worker.sample.kernel), sampled),
        }
    }
}

/// A source of its own in a server without push: all zeros. With push, [`PushPlan`](super::plan::PushPlan) delegates to it.
impl Source for PushFigures {
    fn name(&self) -> &'static str {
        "push"
    }

    fn families(&self) -> Vec<Family> {
        let workers = lock(&self.workers);
        let sum = |of: &dyn Fn(&PushCounters) -> u64| workers.iter().map(|worker| of(worker)).sum::<u64>();
        let level = |of: &dyn Fn(&PushCounters) -> i64| workers.iter().map(|worker| of(worker)).sum::<i64>();
        let mut turned_away = Family::counter(
            "encke_push_rejected_total",
            "Subscribers rejected with a retry time, by reason and transport.",
        );
        for (away, transport) in RejectReason::ALL
            .into_iter()
            .flat_map(|away| SubscriberTransport::ALL.map(|transport| (away, transport)))
        {
            let count = sum(&|worker| worker.rejected[away as usize][transport as usize].value());
            let labels = [("reason", away.name()), ("transport", transport.name())];
            turned_away = turned_away.with(&labels, count);
        }
        let mut by_class: BTreeMap<String, Distribution> = BTreeMap::new();
        for worker in workers.iter() {
            for (class, histogram) in lock(&worker.fanouts).iter() {
                histogram.add_to(by_class.entry(class.clone()).or_default());
            }
        }
        let mut fanouts = Family::histogram(
            "encke_push_fanout_seconds",
            "Time from accepting a message to its last send to a subscriber that can receive it, by channel class.",
        );
        for (class, distribution) in by_class {
            fanouts = fanouts.labelled("class", class, distribution);
        }
        vec![
            Family::gauge("encke_push_subscribers", "Open subscribers of channels.")
                .value(level(&|worker| worker.subscribers.value())),
            Family::counter("encke_push_admissions_total", "Admitted subscribers.")
                .value(sum(&|worker| worker.admissions.value())),
            turned_away,
            Family::counter("encke_push_messages_total", "Messages accepted from publishers.")
                .value(sum(&|worker| worker.published.value())),
            Family::counter(
                "encke_push_deliveries_total",
                "Sends of messages to subscribers; one may carry several messages.",
            )
            .value(sum(&|worker| worker.deliveries.value())),
            fanouts,
        ]
    }

    fn status(&self) -> Option<Value> {
        let PushLevels {
            subscribers,
            queue_age_ns,
            unsent_bytes,
            unsent_bytes_max,
            user_bytes,
            kernel_bytes,
        } = self.levels(now_ns());
        Some(json!({
            "subscribers": subscribers,
            "queue_age_ns": queue_age_ns,
            "unsent_bytes": unsent_bytes,
            "unsent_bytes_max": unsent_bytes_max,
            "subscriber_user_bytes": user_bytes,
            "subscriber_kernel_bytes": kernel_bytes,
        }))
    }
}

/// The state of all channels, on all workers together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PushLevels {
    subscribers: u64,
    /// Age of the oldest message that waits for a subscriber able to receive it: maximum over the last two seconds.
    queue_age_ns: u64,
    /// Bytes in the kernel that a subscriber's peer has not acknowledged: mean and maximum of a sample.
    unsent_bytes: u64,
    unsent_bytes_max: u64,
    /// Memory of a subscriber: in this process by its own account, and in the kernel's buffers.
    user_bytes: u64,
    kernel_bytes: u64,
}

impl PushLevels {
    pub(crate) fn families(&self) -> [Family; 3] {
        [
            Family::gauge(
                "encke_push_queue_age_seconds",
                "Age of the oldest message waiting for a subscriber that can receive it: maximum over the last two seconds.",
            )
            .value(self.queue_age_ns as f64 / 1e9),
            Family::gauge(
                "encke_push_unsent_bytes",
                "Bytes in the kernel that a subscriber's peer has not acknowledged: mean and maximum over a sample of subscribers each second.",
            )
            .with(&[("of", "mean")], self.unsent_bytes)
            .with(&[("of", "most")], self.unsent_bytes_max),
            Family::gauge(
                "encke_push_subscriber_bytes",
                "Memory of one subscriber: in this process, as it accounts for it, and in kernel buffers (without the socket itself, some 4 kB).",
            )
            .with(&[("memory", "user")], self.user_bytes)
            .with(&[("memory", "kernel")], self.kernel_bytes),
        ]
    }
}

/// Returns the present time of the monotonic clock that workers use.
pub(crate) fn now_ns() -> u64 {
    Clock::new().now().mono_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn figures_are_means_over_all_workers_and_the_most_of_any() {
        let figures = PushFigures::default();
        assert_eq!(figures.levels(0).user_bytes, 0, "there is no worker");
        for (number, (unsent, most, age_us)) in [(100, 60, 5), (500, 400, 2)].into_iter().enumerate() {
            let worker = figures.of_worker(number);
            // Others have subscribed since the sample.
            worker.subscribers.set(15);
            worker.sample.subscribers.set(10);
            worker.sample.user.set(1_400);
            worker.sample.count.set(3);
            worker.sample.unsent.set(unsent);
            worker.sample.unsent_most.set(most);
            worker.sample.kernel.set(3 * 768);
            worker.queue_age_us.raise(SECOND_NS, age_us);
        }
        assert_eq!(
            figures.levels(SECOND_NS),
            PushLevels {
                subscribers: 30,
                queue_age_ns: 5_000,
                unsent_bytes: 100,
                unsent_bytes_max: 400,
                user_bytes: 140,
                kernel_bytes: 768,
            }
        );
    }

    #[test]
    fn a_worker_that_opens_push_again_finds_its_figures() {
        let figures = PushFigures::default();
        // Workers open push in any order.
        for number in [2, 0, 1] {
            figures.of_worker(number).published.add(1 << number);
        }
        figures.of_worker(0).published.add(8);
        let class = ["chat".to_owned()];
        figures.of_worker(1).fanouts(&class)[0].record(1);
        figures.of_worker(1).fanouts(&class)[0].record(1);
        let families = figures.families();
        let value = |name: &str| {
            let family = families.iter().find(|family| family.name == name).expect("it has this family");
            &family.samples[0].value
        };
        assert_eq!(*value("encke_push_messages_total"), 15_u64.into());
        let encke_stats::Value::Distribution(fanouts) = value("encke_push_fanout_seconds") else {
            panic!("no distribution");
        };
        assert_eq!(fanouts.count(), 2);
    }
}
