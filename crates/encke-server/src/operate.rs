//! Interfaces for operators: actions on a feature, and explanations of the rules that handle a request.
//!
//! ```text
//!  Mount::open ─► WorkerSetup::actions(feature, verbs, …) ─┐
//!                 WorkerSetup::explain(…) ─────────────────┤ one set per worker, replaced at a reload
//!                                                          ▼
//!  Running::verbs   ─► first worker ──────────────────► Ticket<Vec<FeatureVerbs>>
//!  Running::act     ─► each worker ─► Actions::act ───► merged ─► Ticket<ActionResult>
//!  Running::explain ─► first worker ─► the engine's rules, Explain::explain of guards and mount point ─► Ticket<Vec<RuleStep>>
//! ```
//! A console knows no feature: it draws a button for each verb and an input for each field, and sends the values back. The
//! engine checks a value against its verb before a feature receives it. Most tickets are given on a worker's thread, so a
//! ticket's function must not wait. A ticket whose workers have ended is dropped with the server.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use encke_settings::SourceLine;
use encke_stats::{Gathered, ListTicket, Ticket};

use crate::coded_text::CodedText;
use crate::request::{Kept, Request};

/// Actions of an operator on one feature, on one worker.
pub trait Actions {
    /// Performs an action, now or later. `verb` is one of the feature's verbs, and `value` has its fields. Must not block.
    fn act(&mut self, verb: &str, value: &ActionValue, ticket: Ticket<ActionResult>);
}

/// Explains the rules of one mount point or guard.
pub trait Explain {
    /// Returns the rules that apply to a request, in the order in which they apply.
    fn explain(&self, request: &Request<'_>) -> Vec<RuleStep>;
}

/// The values of a verb's fields, by name.
pub type ActionValue = BTreeMap<String, FieldValue>;

/// The result of an action, on one worker or merged over all of them.
pub type ActionResult = Result<ActionReport, ActionError>;

/// The value of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldValue {
    /// See [`FieldShape::Text`] and [`FieldShape::Choice`].
    Text(String),
    /// See [`FieldShape::Number`].
    Number(u64),
    /// See [`FieldShape::Flag`].
    Flag(bool),
}

/// An action that a feature offers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verb {
    /// The name, for example `drain`.
    pub name: &'static str,
    /// A description, one sentence.
    pub help: &'static str,
    /// The fields of its value.
    pub fields: Vec<VerbField>,
    /// Whether each worker acts on its own part. Otherwise the first worker acts for all.
    pub on_each_worker: bool,
}

/// A field of a verb's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerbField {
    /// The name, for example `target`.
    pub name: &'static str,
    /// A description, one sentence.
    pub help: &'static str,
    /// The shape of the value.
    pub shape: FieldShape,
    /// Whether the field may be absent.
    pub optional: bool,
}

/// The shape of a field's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldShape {
    /// Non-empty text.
    Text,
    /// An integer within bounds.
    Number {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A boolean.
    Flag,
    /// One of these texts.
    Choice(Vec<String>),
}

/// The verbs of a feature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeatureVerbs {
    /// The feature's name.
    pub feature: &'static str,
    /// The feature's verbs.
    pub verbs: Vec<Verb>,
}

/// The effect of an action.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ActionReport {
    /// Number of affected objects: targets, connections.
    pub affected: u64,
    /// Remarks for the operator.
    pub notes: Vec<String>,
}

/// The reason that an action was not performed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ActionError {
    /// No feature has this name, or it has no such verb.
    Unknown,
    /// The named field is missing, has another shape, or is unknown to the verb.
    Value(String),
    /// The feature rejected the action, for this reason.
    Refused(CodedText),
}

impl fmt::Display for ActionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no feature offers this action"),
            Self::Value(field) => write!(f, "invalid value of `{field}`"),
            Self::Refused(reason) => reason.fmt(f),
        }
    }
}

impl std::error::Error for ActionError {}

/// A rule that applies to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleStep {
    /// The rule and its effect.
    pub rule: String,
    /// The rule's line in the settings file; `None` for a default.
    pub source: Option<SourceLine>,
}

impl RuleStep {
    /// Creates a step from a rule and its line in the settings file.
    pub fn new(rule: impl Into<String>, source: Option<SourceLine>) -> Self {
        Self { rule: rule.into(), source }
    }
}

impl fmt::Display for RuleStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{} ({source})", self.rule),
            None => f.write_str(&self.rule),
        }
    }
}

impl Verb {
    /// Checks a value against the verb's fields.
    ///
    /// # Errors
    /// Names the first field that does not match.
    pub(crate) fn check(&self, value: &ActionValue) -> Result<(), ActionError> {
        let unknown = value.keys().find(|name| !self.fields.iter().any(|field| field.name == **name));
        if let Some(unknown) = unknown {
            return Err(ActionError::Value(unknown.clone()));
        }
        match self.fields.iter().find(|field| !field.admits(value.get(field.name))) {
            Some(field) => Err(ActionError::Value(field.name.to_owned())),
            None => Ok(()),
        }
    }
}

impl VerbField {
    fn admits(&self, value: Option<&FieldValue>) -> bool {
        match (&self.shape, value) {
            (_, None) => self.optional,
            (FieldShape::Text, Some(FieldValue::Text(text))) => !text.is_empty(),
            (FieldShape::Number { min, max }, Some(FieldValue::Number(number))) => {
                (min..=max).contains(&number)
            }
            (FieldShape::Flag, Some(FieldValue::Flag(_))) => true,
            (FieldShape::Choice(texts), Some(FieldValue::Text(text))) => texts.contains(text),
            _ => false,
        }
    }
}

/// Merges the results of two workers. An error prevails, so that a partial success never looks complete.
pub(crate) fn merge_results(merged: &mut ActionResult, part: ActionResult) {
    match (&mut *merged, part) {
        (Ok(report), Ok(part)) => {
            report.affected += part.affected;
            for note in part.notes {
                if !report.notes.contains(&note) {
                    report.notes.push(note);
                }
            }
        }
        (Ok(_), Err(error)) => *merged = Err(error),
        (Err(_), _) => {}
    }
}

/// The actions and the explanation of one mount point or guard.
#[derive(Default)]
pub(crate) struct Offers {
    pub(crate) actions: Vec<(FeatureVerbs, Box<dyn Actions>)>,
    pub(crate) explain: Option<Box<dyn Explain>>,
}

/// The actions and explanations of a worker's current plan.
#[derive(Default)]
pub(crate) struct Operators {
    pub(crate) actions: Vec<(FeatureVerbs, Box<dyn Actions>)>,
    explains: Vec<(u16, Box<dyn Explain>)>,
    /// Mount points: handler, prefix, and line in the settings file.
    pub(crate) points: Vec<(u16, String, Option<SourceLine>)>,
}

impl Operators {
    /// Adds the offers of the mount point or guard with this context.
    pub(crate) fn add(&mut self, context: u16, offers: Offers) {
        self.actions.extend(offers.actions);
        self.explains.extend(offers.explain.map(|explain| (context, explain)));
    }

    /// Adds a mount point.
    pub(crate) fn add_point(&mut self, handler: u16, prefix: &str, source: Option<SourceLine>) {
        self.points.push((handler, prefix.to_owned(), source));
    }

    pub(crate) fn explain(&self, context: u16, request: &Request<'_>) -> Vec<RuleStep> {
        let explain = self.explains.iter().find(|(number, _)| *number == context);
        explain.map(|(_, explain)| explain.explain(request)).unwrap_or_default()
    }
}

/// A request from an operator to a worker.
pub(crate) enum OperatorCommand {
    Verbs(Ticket<Vec<FeatureVerbs>>),
    Act {
        feature: Arc<str>,
        verb: Arc<str>,
        value: Arc<ActionValue>,
        parts: Gathered<ActionResult>,
    },
    Explain(Box<Kept>, Ticket<Vec<RuleStep>>),
    /// The rows of the list `connections`.
    Connections(ListTicket),
    /// The rows of the list `closes`.
    Closes(ListTicket),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_must_fit_the_fields_of_its_verb() {
        let field = |name, shape, optional| VerbField { name, help: "", shape, optional };
        let verb = Verb {
            name: "drain",
            help: "",
            fields: vec![
                field("target", FieldShape::Text, false),
                field("seconds", FieldShape::Number { min: 1, max: 60 }, true),
                field("how", FieldShape::Choice(vec!["slow".into(), "fast".into()]), true),
                field("wait", FieldShape::Flag, true),
            ],
            on_each_worker: true,
        };
        let text = |text: &str| FieldValue::Text(text.into());
        let number = FieldValue::Number;
        for (values, wrong) in [
            (vec![("target", text("a"))], None),
            (vec![("target", text("a")), ("seconds", number(60)), ("how", text("slow"))], None),
            (vec![("target", text("a")), ("wait", FieldValue::Flag(true))], None),
            (vec![], Some("target")),
            (vec![("target", text(""))], Some("target")),
            (vec![("target", number(1))], Some("target")),
            (vec![("target", text("a")), ("seconds", number(61))], Some("seconds")),
            (vec![("target", text("a")), ("seconds", number(0))], Some("seconds")),
            (vec![("target", text("a")), ("how", text("quick"))], Some("how")),
            (vec![("target", text("a")), ("wait", number(1))], Some("wait")),
            (vec![("target", text("a")), ("other", number(1))], Some("other")),
        ] {
            let value: ActionValue =
                values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            let expected = wrong.map_or(Ok(()), |field| Err(ActionError::Value(field.into())));
            assert_eq!(verb.check(&value), expected, "{value:?}");
        }
    }

    #[test]
    fn a_merged_result_is_a_success_only_if_every_part_is() {
        let ok = |affected, note: &str| Ok(ActionReport { affected, notes: vec![note.to_owned()] });
        let failed = || Err(ActionError::Refused("busy".into()));
        let mut merged = ok(2, "a");
        merge_results(&mut merged, ok(3, "a"));
        merge_results(&mut merged, ok(0, "b"));
        let notes = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(merged, Ok(ActionReport { affected: 5, notes }));
        merge_results(&mut merged, failed());
        merge_results(&mut merged, ok(1, "c"));
        assert_eq!(merged, failed());
    }
}
