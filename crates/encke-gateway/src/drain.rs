//! Actions of an operator on targets: `drain` withholds new requests from a target, and `resume` ends that.
//!
//! ```text
//!  drain ─► TargetState, which all workers read ─► each proxy is woken ─► closes its kept connections to the target
//! ```
//! Requests in progress and WebSockets continue. A reload keeps the state of targets whose upstream has the same name.

use std::sync::Arc;

use encke_server::{
    ActionError, ActionReport, ActionResult, ActionValue, Actions, CodedText, FieldShape, FieldValue,
    HandlerContext, Ticket, Verb, VerbField,
};
use encke_settings::{Level, notice};

use crate::proxy::Proxy;
use crate::target::UpstreamTarget;
use crate::upstream::NamedUpstream;

/// The actions on the targets of these upstreams.
pub(crate) struct UpstreamActions {
    context: HandlerContext,
    upstreams: Vec<Arc<NamedUpstream>>,
}

impl UpstreamActions {
    pub(crate) const fn new(context: HandlerContext, upstreams: Vec<Arc<NamedUpstream>>) -> Self {
        Self { context, upstreams }
    }

    /// The verbs, with the present targets as choices.
    pub(crate) fn verbs(&self) -> Vec<Verb> {
        let names = self.upstreams.iter().map(|upstream| upstream.settings.name.clone()).collect();
        let targets = self.upstreams.iter().flat_map(|upstream| &upstream.targets.targets);
        let mut urls: Vec<String> = targets.map(|target| target.url().to_string()).collect();
        urls.sort_unstable();
        urls.dedup();
        let fields = vec![
            VerbField {
                name: "target",
                help: "The URL of the target.",
                shape: FieldShape::Choice(urls),
                optional: false,
            },
            VerbField {
                name: "upstream",
                help: "The name of the upstream; without it, all upstreams with this target.",
                shape: FieldShape::Choice(names),
                optional: true,
            },
        ];
        let verb = |name, help| Verb { name, help, fields: fields.clone(), on_each_worker: false };
        vec![
            verb("drain", "Withholds new requests from a target, and lets the others end."),
            verb("resume", "Lets a drained target get requests again."),
        ]
    }

    fn perform(&self, verb: &str, url: &str, name: Option<&str>) -> ActionResult {
        let now_ns = self.context.now().mono_ns;
        let mut report = ActionReport::default();
        let mut found = 0;
        for upstream in &self.upstreams {
            let own = &upstream.settings.name;
            if name.is_some_and(|name| name != own) {
                continue;
            }
            for target in upstream.targets.targets.iter().filter(|target| target.url().to_string() == url) {
                found += 1;
                let (has_changed, change) = match verb {
                    "drain" => (target.state.drain(), "gets no new requests"),
                    _ => (target.state.resume(now_ns), "gets requests again"),
                };
                report.affected += u64::from(has_changed);
                if has_changed {
                    notice::report(
                        Level::Info,
                        &format!("upstream {own}: {url} {change}, as an operator asks"),
                    );
                }
                if target.state.is_drained() {
                    report.notes.push(format!("{own}: {}", in_progress(target)));
                }
            }
            if upstream.targets.targets.iter().all(|target| target.state.is_drained()) {
                report.notes.push(format!("{own}: all targets are drained, and requests get a 503"));
            }
            upstream.queue.wake_all();
        }
        if found == 0 {
            return Err(ActionError::Refused(match name {
                None => CodedText::new("target_unknown", "{target} is no target").with("target", url),
                Some(name) => {
                    let text = CodedText::new(
                        "target_unknown_of",
                        "{target} is no target of the upstream {upstream}",
                    );
                    text.with("target", url).with("upstream", name)
                }
            }));
        }
        Ok(report)
    }
}

impl Actions for UpstreamActions {
    fn act(&mut self, verb: &str, value: &ActionValue, ticket: Ticket<ActionResult>) {
        let text = |name| match value.get(name) {
            Some(FieldValue::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        let result = match text("target") {
            Some(url) => self.perform(verb, url, text("upstream")),
            None => Err(ActionError::Value("target".to_owned())),
        };
        ticket.resolve(result);
    }
}

fn in_progress(target: &UpstreamTarget) -> String {
    format!(
        "{} has {} requests in progress, and {} connections with WebSockets",
        target.url(),
        target.busy(),
        target.open()
    )
}

impl Proxy {
    /// Closes the kept connections to drained targets.
    pub(crate) fn close_drained(&mut self) {
        for place in 0..self.upstreams.len() {
            let upstream = Arc::clone(&self.upstreams[place]);
            let drained = upstream.targets.targets.iter().enumerate();
            for (target, _) in drained.filter(|(_, target)| target.state.is_drained()) {
                while let Some(permit) = self.take_idle_permit(place, target) {
                    drop(permit);
                }
            }
        }
    }
}
