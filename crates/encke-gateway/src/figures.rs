//! The figures of the gateway.

use std::sync::{Arc, Mutex};

use encke_io::lock;
use encke_settings::{Level, notice};

use encke_io::clock::Clock;
use encke_stats::{Cell, Counter, Family, ListTicket, Query, Row, Sample, Source, Value};

use crate::fault::GatewayFault;
use crate::queue::WaitQueue;
use crate::target::UpstreamTarget;
use crate::target_state::{TargetUsage, WHOLE_SHARE};
use crate::upstream::NamedUpstream;

/// The counters of one worker.
#[derive(Default)]
pub(crate) struct ProxyCounters {
    /// Final responses by class, 2xx to 5xx.
    responses: [Counter; 4],
    faults: [Counter; GatewayFault::ALL.len()],
    pub(crate) dials: Counter,
    pub(crate) reuses: Counter,
    pub(crate) retries: Counter,
    pub(crate) ejections: Counter,
    pub(crate) tunnels: Counter,
}

impl ProxyCounters {
    pub(crate) fn responded(&self, status: u16) {
        if let Some(class) = self.responses.get(usize::from(status / 100).wrapping_sub(2)) {
            class.increment();
        }
    }

    pub(crate) fn failed(&self, fault: GatewayFault) {
        self.faults[fault as usize].increment();
    }
}

/// Reports a target that is left out.
pub(crate) fn report_ejection(upstream: &NamedUpstream, target: &UpstreamTarget, fault: GatewayFault) {
    let (name, url) = (&upstream.settings.name, target.url());
    let text = format!(
        "upstream {name}: {url} is left out for some time, after failures in a row: {} ({})",
        fault.sentence(),
        fault.name()
    );
    notice::report(Level::Warn, &text);
}

/// Reports the messages of a FastCGI application for its operator.
pub(crate) fn report_messages(upstream: &NamedUpstream, text: &[u8]) {
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
        let line = String::from_utf8_lossy(line.trim_ascii()).replace(char::is_control, " ");
        notice::report(Level::Warn, &format!("upstream {}: {line}", upstream.settings.name));
    }
}

/// Reports a target that responds after it was left out.
pub(crate) fn report_return(upstream: &NamedUpstream, target: &UpstreamTarget) {
    let text = format!("upstream {}: {} responds again", upstream.settings.name, target.url());
    notice::report(Level::Info, &text);
}

/// Reports a target whose checks fail.
pub(crate) fn report_bad_checks(upstream: &NamedUpstream, target: &UpstreamTarget, reason: &str) {
    let text = format!("upstream {}: {} fails its checks: {reason}", upstream.settings.name, target.url());
    notice::report(Level::Warn, &text);
}

/// Reports a target whose checks succeed again.
pub(crate) fn report_good_checks(upstream: &NamedUpstream, target: &UpstreamTarget) {
    let text = format!("upstream {}: {} passes its checks again", upstream.settings.name, target.url());
    notice::report(Level::Info, &text);
}

/// The figures of a gateway.
pub(crate) struct GatewayFigures {
    pub(crate) workers: Arc<Mutex<Vec<Arc<ProxyCounters>>>>,
    pub(crate) upstreams: Vec<Arc<NamedUpstream>>,
}

/// One sample per target of all upstreams.
fn by_target(
    family: Family,
    upstreams: &[Arc<NamedUpstream>],
    value: impl Fn(&UpstreamTarget) -> Value,
) -> Family {
    by_target_and(family, upstreams, |target| vec![(None, value(target))])
}

/// Samples per target of all upstreams, each perhaps with one more label.
fn by_target_and(
    mut family: Family,
    upstreams: &[Arc<NamedUpstream>],
    values: impl Fn(&UpstreamTarget) -> Vec<(Option<(&'static str, &'static str)>, Value)>,
) -> Family {
    for upstream in upstreams {
        for target in (0..upstream.targets.len()).filter_map(|index| upstream.targets.get(index)) {
            for (label, value) in values(target) {
                let mut labels = vec![
                    ("upstream".into(), upstream.settings.name.clone().into()),
                    ("target".into(), target.url().to_string().into()),
                ];
                labels.extend(label.map(|(name, value)| (name.into(), value.into())));
                family.samples.push(Sample { labels, value });
            }
        }
    }
    family
}

/// One sample per upstream with a limit on connections.
fn by_queue(
    mut family: Family,
    upstreams: &[Arc<NamedUpstream>],
    value: impl Fn(&WaitQueue) -> Value,
) -> Family {
    for upstream in upstreams.iter().filter(|upstream| upstream.is_limited()) {
        let labels = vec![("upstream".into(), upstream.settings.name.clone().into())];
        family.samples.push(Sample { labels, value: value(&upstream.queue) });
    }
    family
}

impl GatewayFigures {
    fn of_queues(&self) -> [Family; 3] {
        let all = &self.upstreams;
        [
            by_queue(
                Family::gauge("encke_gateway_queue_requests", "Requests that wait for a connection."),
                all,
                |queue| u64::from(queue.len()).into(),
            ),
            by_queue(
                Family::counter(
                    "encke_gateway_queue_waits_total",
                    "Requests that have waited for a connection, with or without success.",
                ),
                all,
                |queue| queue.waits().0.into(),
            ),
            by_queue(
                Family::counter(
                    "encke_gateway_queue_wait_seconds_total",
                    "Time for which these requests have waited.",
                ),
                all,
                |queue| queue.waits().1.into(),
            ),
        ]
    }

    fn of_targets(&self) -> Vec<Family> {
        let all = &self.upstreams;
        let now_ns = Clock::new().now().mono_ns;
        vec![
            by_target_and(
                Family::counter(
                    "encke_gateway_target_responses_total",
                    "Responses of a target, by status class.",
                ),
                all,
                |target| {
                    let classes = CLASSES.iter().zip(target.tally.responses());
                    classes.map(|(class, count)| (Some(("status", *class)), count.into())).collect()
                },
            ),
            by_target(
                Family::counter(
                    "encke_gateway_target_failures_total",
                    "Requests to a target without a response.",
                ),
                all,
                |target| target.tally.failures().into(),
            ),
            by_target(
                Family::gauge("encke_gateway_target_requests_open", "Requests in progress at a target."),
                all,
                |target| u64::from(target.busy()).into(),
            ),
            by_target(
                Family::gauge(
                    "encke_gateway_target_connections_open",
                    "Open connections to a target, including WebSockets and kept connections.",
                ),
                all,
                |target| u64::from(target.open()).into(),
            ),
            by_target(
                Family::gauge(
                    "encke_gateway_target_up",
                    "Whether a target gets requests: it is not ejected or drained, and its checks do not fail.",
                ),
                all,
                |target| u64::from(target.usage(now_ns) == TargetUsage::Normal).into(),
            ),
            by_target(
                Family::gauge(
                    "encke_gateway_target_share_ratio",
                    "The part of its share of the requests that a target gets, which rises in a slow start.",
                ),
                all,
                |target| (target.state.share(now_ns) as f64 / WHOLE_SHARE as f64).into(),
            ),
            by_target_and(
                Family::counter("encke_gateway_target_checks_total", "Checks of a target, by result."),
                all,
                |target| {
                    let results = ["good", "bad"].into_iter().zip(target.tally.checks());
                    results.map(|(result, count)| (Some(("result", result)), count.into())).collect()
                },
            ),
            by_target(
                Family::gauge(
                    "encke_gateway_target_ejected",
                    "Whether a target is left out after failures in a row.",
                ),
                all,
                |target| u64::from(target.state.ejected_ns(now_ns) > 0).into(),
            ),
            by_target(
                Family::counter(
                    "encke_gateway_target_connects_total",
                    "Connections established to a target.",
                ),
                all,
                |target| target.tally.connects().into(),
            ),
            by_target(
                Family::counter(
                    "encke_gateway_target_connect_seconds_total",
                    "Time spent on establishing connections to a target.",
                ),
                all,
                |target| target.tally.seconds().0.into(),
            ),
            by_target(
                Family::counter(
                    "encke_gateway_target_wait_seconds_total",
                    "Time from the requests to a target to the heads of its responses.",
                ),
                all,
                |target| target.tally.seconds().1.into(),
            ),
        ]
    }
}

/// The classes of final responses.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

impl Source for GatewayFigures {
    fn name(&self) -> &'static str {
        "gateway"
    }

    fn families(&self) -> Vec<Family> {
        let workers = lock(&self.workers).clone();
        let sum = |of: &dyn Fn(&ProxyCounters) -> u64| workers.iter().map(|worker| of(worker)).sum::<u64>();
        let mut responses =
            Family::counter("encke_gateway_responses_total", "Responses of applications, by status class.");
        for (index, class) in CLASSES.into_iter().enumerate() {
            responses = responses.with(&[("status", class)], sum(&|worker| worker.responses[index].value()));
        }
        let mut faults = Family::counter(
            "encke_gateway_failures_total",
            "Requests without a complete response of an application, by reason.",
        );
        for fault in GatewayFault::ALL {
            let count = sum(&|worker| worker.faults[fault as usize].value());
            faults = faults.with(&[("reason", fault.name())], count);
        }
        let mut families = vec![
            responses,
            faults,
            Family::counter(
                "encke_gateway_requests_sent_total",
                "Requests sent to applications, by connection.",
            )
            .with(&[("connection", "new")], sum(&|worker| worker.dials.value()))
            .with(&[("connection", "kept")], sum(&|worker| worker.reuses.value())),
            Family::counter("encke_gateway_retries_total", "Further attempts after a failed one.")
                .value(sum(&|worker| worker.retries.value())),
            Family::counter("encke_gateway_tunnels_total", "WebSockets that an application has accepted.")
                .value(sum(&|worker| worker.tunnels.value())),
            Family::counter(
                "encke_gateway_ejections_total",
                "Times that a target was ejected after failures in a row.",
            )
            .value(sum(&|worker| worker.ejections.value())),
        ];
        families.extend(self.of_targets());
        families.extend(self.of_queues());
        families
    }

    /// The targets with their states; `None` without any.
    fn status(&self) -> Option<serde_json::Value> {
        let now_ns = Clock::new().now().mono_ns;
        let mut targets = Vec::new();
        for upstream in &self.upstreams {
            targets.extend(upstream.targets.targets.iter().map(|target| {
                serde_json::json!({
                    "upstream": upstream.settings.name,
                    "target": target.url().to_string(),
                    "state": target.phase(now_ns).name(),
                    "requests": target.busy(),
                    "last_failure": target.tally.last_failure(now_ns).map(super::failure::LastFailure::text),
                })
            }));
        }
        (!targets.is_empty()).then(|| serde_json::json!({ "targets": targets }))
    }

    fn columns(&self) -> &'static [&'static str] {
        COLUMNS
    }

    /// The targets with their states.
    fn list(&self, _: &Query, ticket: ListTicket) {
        let now_ns = Clock::new().now().mono_ns;
        for upstream in &self.upstreams {
            ticket.add(upstream.targets.targets.iter().map(|target| target_row(upstream, target, now_ns)));
        }
    }
}

/// The columns of targets, in the order of display. Columns of the queue and its waits are those of the whole upstream.
const COLUMNS: &[&str] = &[
    "upstream",
    "target",
    "state",
    "requests",
    "connections",
    "responses",
    "failures",
    "queue",
    "waits",
    "wait_s",
    "connect_s",
    "first_byte_s",
    "ejections",
    "last_failure",
    "last_failure_s",
    "checks_good",
    "checks_bad",
    "share",
    "weight",
    "backup",
];

fn target_row(upstream: &NamedUpstream, target: &UpstreamTarget, now_ns: u64) -> Row {
    let tally = &target.tally;
    let (waits, wait_s) = upstream.queue.waits();
    let (connect_s, first_byte_s) = tally.mean_seconds();
    let [checks_good, checks_bad] = tally.checks();
    let mut cells: Vec<(&'static str, Cell)> = vec![
        ("upstream", upstream.settings.name.clone().into()),
        ("target", target.url().to_string().into()),
        ("state", target.phase(now_ns).name().into()),
        ("requests", u64::from(target.busy()).into()),
        ("connections", u64::from(target.open()).into()),
        ("responses", tally.responses().iter().sum::<u64>().into()),
        ("failures", tally.failures().into()),
        ("queue", u64::from(upstream.queue.len()).into()),
        ("waits", waits.into()),
    ];
    cells.extend((waits > 0).then(|| ("wait_s", (wait_s / waits as f64).into())));
    cells.extend(connect_s.map(|seconds| ("connect_s", seconds.into())));
    cells.extend(first_byte_s.map(|seconds| ("first_byte_s", seconds.into())));
    cells.push(("ejections", tally.ejections().into()));
    if let Some(failure) = tally.last_failure(now_ns) {
        cells.push(("last_failure", failure.text().into()));
        cells.push(("last_failure_s", failure.seconds().into()));
    }
    cells.extend([
        ("checks_good", checks_good.into()),
        ("checks_bad", checks_bad.into()),
        ("share", (target.state.share(now_ns) as f64 / WHOLE_SHARE as f64).into()),
        ("weight", u64::from(target.weight).into()),
        ("backup", if target.is_backup { "yes" } else { "no" }.into()),
    ]);
    Row(cells)
}
