//! A worker's part of operator requests: it lists verbs, performs actions, and explains rules.

use std::panic::{AssertUnwindSafe, catch_unwind};

use encke_stats::Gathered;

use crate::core::Core;
use crate::inspect::{self, ConnListing, ConnWalk};
use crate::operate::{ActionError, ActionResult, ActionValue, OperatorCommand, RuleStep};
use crate::request::Request;

impl Core {
    /// Executes an operator's request. If a feature panics, the ticket of this part is dropped.
    pub(crate) fn operate(&mut self, order: OperatorCommand) {
        let obeyed = catch_unwind(AssertUnwindSafe(|| match order {
            OperatorCommand::Verbs(ticket) => {
                let features = self.operators.actions.iter().map(|(verbs, _)| verbs.clone());
                ticket.resolve([inspect::verbs()].into_iter().chain(features).collect());
            }
            OperatorCommand::Act { feature, verb, value, parts } => {
                self.operate_verb(&feature, &verb, &value, &parts);
            }
            OperatorCommand::Explain(mut request, ticket) => {
                request.set_now(self.now);
                ticket.resolve(self.explain(&request.view()));
            }
            OperatorCommand::Connections(ticket) => {
                let listing = ConnListing::new(self, ticket);
                self.begin_walk(ConnWalk::List(Box::new(listing)));
            }
            OperatorCommand::Closes(ticket) => ticket.add(self.close_rows()),
        }));
        if obeyed.is_err() {
            self.metrics.handler_panics.add(1);
        }
    }

    fn operate_verb(
        &mut self,
        feature: &str,
        verb: &str,
        value: &ActionValue,
        parts: &Gathered<ActionResult>,
    ) {
        if feature == inspect::FEATURE {
            return self.operate_own_verb(verb, value, parts);
        }
        let mut offers = self.operators.actions.iter_mut();
        let offer = offers.find_map(|(offered, actions)| {
            let verb = offered.verbs.iter().find(|other| other.name == verb)?;
            (offered.feature == feature).then_some((verb, actions))
        });
        let Some((verb, actions)) = offer else { return parts.add(Err(ActionError::Unknown)) };
        if let Err(error) = verb.check(value) {
            return parts.add(Err(error));
        }
        if verb.on_each_worker || self.number == 0 {
            actions.act(verb.name, value, parts.ticket());
        }
    }

    /// Performs one of the engine's own actions.
    fn operate_own_verb(&mut self, name: &str, value: &ActionValue, parts: &Gathered<ActionResult>) {
        let own = inspect::verbs().verbs;
        let Some(verb) = own.iter().find(|verb| verb.name == name) else {
            return parts.add(Err(ActionError::Unknown));
        };
        if let Err(error) = verb.check(value) {
            return parts.add(Err(error));
        }
        if verb.on_each_worker || self.number == 0 {
            self.act_on_connections(verb.name, value, parts.ticket());
        }
    }

    /// Returns the rules that apply to a request.
    fn explain(&self, request: &Request<'_>) -> Vec<RuleStep> {
        if let Some(reply) = self.preliminary(request, false) {
            return vec![RuleStep::new(format!("the engine responds with {}", reply.status), None)];
        }
        let handler = self.route(false, request.path());
        let mut steps = Vec::new();
        for context in self.guards.contexts(handler) {
            steps.push(RuleStep::new("a guard checks the request", None));
            steps.extend(self.operators.explain(context, request));
        }
        let point = self.operators.points.iter().find(|(number, ..)| Some(*number) == handler);
        match (handler, point) {
            (Some(handler), Some((_, prefix, source))) => {
                steps.push(RuleStep::new(format!("mount point {prefix}"), source.clone()));
                steps.extend(self.operators.explain(handler, request));
            }
            _ => steps.push(RuleStep::new("no mount point: 404", None)),
        }
        steps
    }
}
