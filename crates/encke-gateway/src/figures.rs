//! The figures of the gateway.

use std::sync::{Arc, Mutex};

use encke_io::lock;

use encke_stats::{Counter, Family, Source};

use crate::fault::GatewayFault;

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

/// The figures of a gateway.
pub(crate) struct GatewayFigures {
    pub(crate) workers: Arc<Mutex<Vec<Arc<ProxyCounters>>>>,
}

impl Source for GatewayFigures {
    fn name(&self) -> &'static str {
        "gateway"
    }

    fn families(&self) -> Vec<Family> {
        let workers = lock(&self.workers).clone();
        let sum = |of: &dyn Fn(&ProxyCounters) -> u64| workers.iter().map(|worker| of(worker)).sum::<u64>();
        let mut responses =
            Family::counter("encke_gateway_responses_total", "Responses of applications, by status class.");
        for (index, class) in ["2xx", "3xx", "4xx", "5xx"].into_iter().enumerate() {
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
        vec![
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
        ]
    }
}
