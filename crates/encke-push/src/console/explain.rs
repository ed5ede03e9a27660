//! Explains the rules of push that apply to a request: the rights of its client, and the pattern and limits of its channels.

use std::sync::Arc;

use encke_hub::Name;
use encke_rights::{Act, Decision, Denial, TokenCache};
use encke_server::{Explain, Request, RuleStep};
use encke_wire::method::Method;

use super::channel_rows::policy_name;
use crate::negotiate;
use crate::plan::PushPlan;

/// The rules of all channels.
pub(crate) struct ExplainedChannels(pub(crate) Arc<PushPlan>);

impl Explain for ExplainedChannels {
    fn explain(&self, request: &Request<'_>) -> Vec<RuleStep> {
        let plan = &self.0;
        let act = match request.method() {
            Method::Get | Method::Head => Act::Subscribe,
            Method::Post | Method::Put => Act::Publish,
            Method::Delete => Act::Manage,
            _ => return vec![RuleStep::new("push supports GET, HEAD, POST, PUT, DELETE and OPTIONS", None)],
        };
        let mut cache = TokenCache::default();
        let identity = match plan.rights.identify(request, &mut cache) {
            Ok(identity) => identity,
            Err(denial) => return vec![denied(&denial)],
        };
        let user =
            identity.name.as_deref().map_or_else(|| "no user".to_owned(), |name| format!("user {name:?}"));
        let mut steps = vec![RuleStep::new(format!("push: the client is {user}"), None)];
        let path = request.path().strip_prefix(plan.prefix.as_bytes()).unwrap_or_default();
        if path.is_empty() {
            steps.push(RuleStep::new("the path names no channel", None));
            return steps;
        }
        let Ok(channels) = negotiate::channels(path, plan.rules.channels_per_stream) else {
            steps.push(RuleStep::new("the path is no valid list of channels: 400", None));
            return steps;
        };
        for channel in &channels {
            steps.push(RuleStep::new(limits(plan, channel), None));
            steps.push(match plan.rights.decide(&identity, act, channel, request, &mut cache) {
                Decision::Allowed => RuleStep::new(format!("may {} {channel}", verb(act)), None),
                Decision::Denied(denial) => denied(&denial),
                Decision::Ask(_) => {
                    let text =
                        format!("the application (auth.ask) decides whether it may {} {channel}", verb(act));
                    RuleStep::new(text, None)
                }
            });
        }
        steps
    }
}

const fn verb(act: Act) -> &'static str {
    match act {
        Act::Subscribe => "subscribe to",
        Act::Publish => "publish to",
        Act::Manage => "manage",
        Act::Presence => "list the members of",
    }
}

fn denied(denial: &Denial) -> RuleStep {
    RuleStep::new(format!("{}: {}", denial.text(), denial.status()), None)
}

/// Describes the limits of a channel.
fn limits(plan: &PushPlan, channel: &Name) -> String {
    let rules = plan.rules.of(channel);
    let pattern = match rules.class {
        0 => "no pattern of push.channel, so the defaults".to_owned(),
        class => format!("the pattern {}", plan.classes.get(usize::from(class)).map_or("?", String::as_str)),
    };
    let mut text = format!(
        "channel {channel} has {pattern}: it keeps {} messages, at most {} bytes, for {} s; a subscriber that is too slow: {}",
        rules.messages,
        rules.bytes,
        rules.age_ms / 1_000,
        policy_name(rules.policy)
    );
    if rules.presence {
        text += &format!("; presence of at most {} members", rules.members);
    }
    if rules.durable {
        text += "; durable";
    }
    text
}
