//! The actions of an operator on supervised applications: `restart`.
//!
//! The applications have no mount of their own, because the gateway forwards their requests. So [`AppActionsMount`] adds the
//! actions to the mount of the sites.

use std::sync::Arc;

use encke_apps::{AppRestarter, AppSettings, RestartFailure};
use encke_server::{
    ActionError, ActionReport, ActionResult, ActionValue, Actions, CodedText, FieldShape, FieldValue,
    Handler, HandlerContext, Mount, SourceLine, Ticket, Verb, VerbField, WorkerSetup,
};
use encke_stats::Source;

/// A mount with the actions on applications.
struct AppActionsMount {
    below: Arc<dyn Mount>,
    restarter: AppRestarter,
    /// The names of the applications.
    names: Vec<String>,
}

/// The actions on one worker. The first worker acts.
struct AppActions(AppRestarter);

/// Adds the actions on these applications to a mount, if there are any.
pub(crate) fn with_app_actions(
    below: Arc<dyn Mount>,
    restarter: AppRestarter,
    apps: &[AppSettings],
) -> Arc<dyn Mount> {
    if apps.is_empty() {
        return below;
    }
    let names = apps.iter().map(|app| app.name.clone()).collect();
    Arc::new(AppActionsMount { below, restarter, names })
}

impl Mount for AppActionsMount {
    fn source(&self) -> Option<SourceLine> {
        self.below.source()
    }

    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        let field = VerbField {
            name: "app",
            help: "The name of the application.",
            shape: FieldShape::Choice(self.names.clone()),
            optional: false,
        };
        let verb = Verb {
            name: "restart",
            help: "Starts new processes, and stops the old ones once the new ones respond.",
            fields: vec![field],
            on_each_worker: false,
        };
        worker.actions("apps", vec![verb], AppActions(self.restarter.clone()));
        self.below.open(context, worker)
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        self.below.sources()
    }
}

impl Actions for AppActions {
    fn act(&mut self, _: &str, value: &ActionValue, ticket: Ticket<ActionResult>) {
        let Some(FieldValue::Text(app)) = value.get("app") else {
            return ticket.resolve(Err(ActionError::Value("app".to_owned())));
        };
        let done = Ticket::new(move |result| {
            ticket.resolve(match result {
                Some(Ok(replaced)) => {
                    let notes: Vec<String> = replaced;
                    Ok(ActionReport { affected: notes.len() as u64, notes })
                }
                Some(Err(failure)) => Err(ActionError::Refused(match failure {
                    RestartFailure::NotRunning => {
                        CodedText::new("app_not_running", "no application of this name is running")
                    }
                    failure => failure.to_string().into(),
                })),
                None => Err(ActionError::Refused(CodedText::new("stopping", "the server is stopping"))),
            });
        });
        self.0.restart(app, done);
    }
}
