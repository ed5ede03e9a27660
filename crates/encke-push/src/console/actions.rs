//! Actions of an operator on channels: publish a message, delete the messages of a channel, log a user out, disconnect the
//! subscribers of a channel.

use std::sync::Arc;

use encke_hub::{Draft, Form, Name, NameError};
use encke_io::Token;
use encke_server::{
    ActionError, ActionReport, ActionResult, ActionValue, Actions, CloseReason, CodedText, Engine,
    FieldShape, FieldValue, Ticket, Verb, VerbField, WorkerSetup,
};
use encke_settings::{Level, notice};
use encke_stats::Gathered;

use crate::draft::is_type;
use crate::form;
use crate::log_out::LogOutOrder;
use crate::plan::PushPlan;
use crate::publisher::Accepted;
use crate::push_worker::{NONE, PushMessage, PushWorker};
use crate::subscriber::end_subscriber;

/// The feature's name.
const FEATURE: &str = "channels";

/// Subscribers that a worker disconnects in a turn: about 0.5 ms.
const SLICE_SUBSCRIBERS: usize = 256;

/// The actions on one worker. The first worker acts for all.
struct ChannelActions(Arc<PushPlan>);

/// An operator's request to delete the messages of a channel, for the first worker.
pub(crate) struct ChannelDeletion {
    pub(crate) channel: Name,
    pub(crate) ticket: Ticket<ActionResult>,
}

/// The subscribers of a channel that are still to be disconnected on one worker.
pub(crate) struct DisconnectWalk {
    tokens: Vec<u64>,
    count: u64,
    /// Receives the number of disconnected subscribers.
    ticket: Option<Ticket<u64>>,
}

/// Offers the actions of push to operators.
pub(crate) fn offer_actions(plan: &Arc<PushPlan>, worker: &mut WorkerSetup<'_>) {
    worker.actions(FEATURE, verbs(), ChannelActions(Arc::clone(plan)));
}

fn verbs() -> Vec<Verb> {
    let field = |name, help, optional| VerbField { name, help, shape: FieldShape::Text, optional };
    let channel = || field("channel", "The channel.", false);
    let verb = |name, help, fields| Verb { name, help, fields, on_each_worker: false };
    vec![
        verb(
            "publish",
            "Publishes a message, as a POST to the channel does.",
            vec![
                channel(),
                field("text", "The payload.", false),
                field("event", "The event name.", true),
                field("content_type", "The media type, such as application/json.", true),
            ],
        ),
        verb("delete", "Deletes the messages of a channel.", vec![channel()]),
        verb(
            "log_out",
            "Ends all subscriptions of a user. The token still works until it expires: take the right away first.",
            vec![field("user", "The name in the token or certificate.", false)],
        ),
        verb("disconnect", "Disconnects the subscribers of a channel; they may reconnect.", vec![channel()]),
    ]
}

impl Actions for ChannelActions {
    fn act(&mut self, verb: &str, value: &ActionValue, ticket: Ticket<ActionResult>) {
        match (verb, text(value, "user")) {
            ("log_out", Some(user)) => self.log_out(user, ticket),
            ("log_out", None) => ticket.resolve(Err(ActionError::Value("user".to_owned()))),
            _ => match channel(value) {
                Err(error) => ticket.resolve(Err(error)),
                Ok(channel) if verb == "publish" => self.publish(channel, value, ticket),
                Ok(channel) if verb == "delete" => {
                    self.send(PushMessage::Delete(ChannelDeletion { channel, ticket }));
                }
                Ok(channel) => self.disconnect(channel, ticket),
            },
        }
    }
}

fn text<'a>(value: &'a ActionValue, name: &str) -> Option<&'a str> {
    match value.get(name) {
        Some(FieldValue::Text(text)) => Some(text),
        _ => None,
    }
}

/// Returns the channel of an action.
///
/// # Errors
/// No channel can have this name.
fn channel(value: &ActionValue) -> Result<Name, ActionError> {
    let given = text(value, "channel").ok_or_else(|| ActionError::Value("channel".to_owned()))?;
    let refused = |error: NameError| {
        let text = CodedText::new("channel_invalid", "invalid channel {channel}: {error}");
        ActionError::Refused(text.with("channel", format!("{given:?}")).with("error", error))
    };
    Name::parse(given.as_bytes()).map_err(refused)
}

impl ChannelActions {
    /// Sends a message to the first worker. If the server is not running, the ticket in it is dropped.
    fn send(&self, message: PushMessage) {
        if let Some(first) = self.0.mailboxes.all().first() {
            first.send(message);
        }
    }

    fn publish(&self, channel: Name, value: &ActionValue, ticket: Ticket<ActionResult>) {
        let data = text(value, "text").unwrap_or_default().as_bytes().to_vec();
        let content_type = text(value, "content_type");
        if let Some(given) = content_type.filter(|given| !is_type(given)) {
            let reason = CodedText::new(
                "type_invalid",
                "invalid content_type {type}: expected a media type such as application/json",
            );
            return ticket.resolve(Err(ActionError::Refused(reason.with("type", format!("{given:?}")))));
        }
        let draft = Draft {
            event: text(value, "event").map(Into::into),
            content_type: content_type.map(Into::into),
            ..Draft::new(channel, data)
        };
        self.0.publisher().publish(draft, move |result| {
            ticket.resolve(match result {
                Ok(Accepted::Published(published)) => {
                    Ok(report(published.subscribers.into(), format!("id {}", published.position)))
                }
                Ok(Accepted::Queued { subscribers }) => {
                    Ok(report(subscribers.into(), "queued for the cluster".to_owned()))
                }
                Err(failure) => Err(ActionError::Refused(failure.to_string().into())),
            });
        });
    }

    fn log_out(&self, user: &str, ticket: Ticket<ActionResult>) {
        let user: Arc<str> = user.into();
        let order = LogOutOrder { user: Arc::clone(&user), channels: None, identity: None };
        let done = counted(ticket, move |count| {
            notice::report(
                Level::Info,
                &format!("user {user:?} was logged out by an operator; ended subscriptions: {count}"),
            );
        });
        let order = Arc::new(order);
        self.send_to_all(&done, |ticket| PushMessage::LogOut { order: Arc::clone(&order), ticket });
    }

    fn disconnect(&self, channel: Name, ticket: Ticket<ActionResult>) {
        let named = channel.clone();
        let done = counted(ticket, move |count| {
            let text = format!("{count} subscribers of {named} were disconnected by an operator");
            notice::report(Level::Info, &text);
        });
        self.send_to_all(&done, |ticket| PushMessage::Disconnect { channel: channel.clone(), ticket });
    }

    fn send_to_all(&self, parts: &Gathered<u64>, message: impl Fn(Ticket<u64>) -> PushMessage) {
        for mailbox in self.0.mailboxes.all().iter() {
            mailbox.send(message(parts.ticket()));
        }
    }
}

fn report(affected: u64, note: String) -> ActionReport {
    ActionReport { affected, notes: vec![note] }
}

/// Sums the counts of all workers into the result of an action, and calls `tell` with the sum.
fn counted(ticket: Ticket<ActionResult>, tell: impl FnOnce(u64) + Send + 'static) -> Gathered<u64> {
    let sum = Ticket::new(move |count: Option<u64>| match count {
        Some(count) => {
            tell(count);
            ticket.resolve(Ok(ActionReport { affected: count, notes: Vec::new() }));
        }
        None => ticket
            .resolve(Err(ActionError::Refused(CodedText::new("not_running", "the server is not running")))),
    });
    Gathered::new(sum, |sum, part| *sum += part)
}

impl DisconnectWalk {
    pub(super) fn new(tokens: Vec<u64>, ticket: Ticket<u64>) -> Self {
        Self { tokens, count: 0, ticket: Some(ticket) }
    }

    /// Disconnects the next subscribers. Returns whether it was the last of them.
    pub(super) fn advance(&mut self, worker: &mut PushWorker, engine: &mut Engine<'_>) -> bool {
        let left = self.tokens.len().saturating_sub(SLICE_SUBSCRIBERS);
        for token in self.tokens.split_off(left) {
            self.count += u64::from(worker.disconnect(engine, Token::from_word(token)));
        }
        if left > 0 {
            return false;
        }
        if let Some(ticket) = self.ticket.take() {
            ticket.resolve(self.count);
        }
        true
    }
}

impl PushWorker {
    /// Disconnects a subscriber, which may reconnect. Returns whether there was one.
    fn disconnect(&mut self, engine: &mut Engine<'_>, token: Token) -> bool {
        let Some(mut slot) = engine.slot(token).filter(|slot| slot.word() != NONE) else { return false };
        let slot = &mut slot;
        let form = Form(slot.form());
        if slot.is_sending() || !self.has_begun(slot) {
            // A slow subscriber may never finish its send, and nothing may precede a head.
            slot.close(CloseReason::Operator);
        } else if form::is_poll(form::kind(form)) {
            self.answer_poll(slot, None);
        } else {
            let retry_ms = self.retry_ms(slot);
            end_subscriber(slot, &form::last_event(form, retry_ms), CloseReason::Operator);
        }
        true
    }
}
