//! Actions of an operator on live streams: `end` ends the source of a stream.
//!
//! ```text
//! end ─► SourceNotice: is_stopped, wake ─► the source's worker: LiveSource::wants_more ─► release: listeners wait for `hold`
//! ```
//! Listeners are subscribers of push and connections of the engine, whose actions end them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use encke_io::lock;
use encke_push::Name;
use encke_server::{
    ActionError, ActionReport, ActionResult, ActionValue, Actions, CodedText, FieldShape, FieldValue, Ticket,
    Verb, VerbField,
};
use encke_settings::notice::{self, Level};

use crate::state::LiveState;

/// The feature's name.
pub(crate) const FEATURE: &str = "live";

/// The actions on one worker. The first worker acts for all.
pub(crate) struct LiveActions(pub(crate) Arc<LiveState>);

pub(crate) fn verbs() -> Vec<Verb> {
    let stream = VerbField {
        name: "stream",
        help: "The name of the stream, without the prefix.",
        shape: FieldShape::Text,
        optional: false,
    };
    vec![Verb {
        name: "end",
        help: "Ends the source of a stream; listeners wait for another one. A pull that has listeners begins again.",
        fields: vec![stream],
        on_each_worker: false,
    }]
}

impl Actions for LiveActions {
    fn act(&mut self, _: &str, value: &ActionValue, ticket: Ticket<ActionResult>) {
        ticket.resolve(match value.get("stream") {
            Some(FieldValue::Text(stream)) => self.end(stream),
            _ => Err(ActionError::Value("stream".to_owned())),
        });
    }
}

impl LiveActions {
    fn end(&self, title: &str) -> ActionResult {
        let refused = |text: CodedText| Err(ActionError::Refused(text.with("stream", format!("{title:?}"))));
        let stream = Name::parse(self.0.name_of(title).as_bytes()).ok().and_then(|name| self.0.find(&name));
        let Some(stream) = stream else {
            return refused(CodedText::new("stream_unknown", "{stream} is no stream of this server"));
        };
        let source = lock(&stream.inner).source.as_ref().map(|card| {
            card.notice.is_stopped.store(true, Ordering::Release);
            (Arc::clone(&card.notice), card.origin.clone())
        });
        let Some((source, origin)) = source else {
            return refused(CodedText::new("stream_without_source", "{stream} has no source now"));
        };
        (source.wake)();
        notice::report(
            Level::Info,
            &format!("live stream {}: an operator ends the source {origin}", stream.name),
        );
        Ok(ActionReport { affected: 1, notes: Vec::new() })
    }
}
