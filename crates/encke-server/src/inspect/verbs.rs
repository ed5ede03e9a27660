//! The engine's own actions for operators: close connections, block client addresses.

use encke_settings::Network;
use encke_stats::Ticket;

use super::NoConnId;
use super::blocks::BlocksFull;
use super::row::is_listed;
use super::walk::{ConnClosing, ConnWalk, own_token};
use crate::close::CloseReason;
use crate::coded_text::CodedText;
use crate::conn::ADMIN;
use crate::core::Core;
use crate::operate::{
    ActionError, ActionReport, ActionResult, ActionValue, FeatureVerbs, FieldShape, FieldValue, Verb,
    VerbField,
};

/// The name under which the engine offers its actions.
pub(crate) const FEATURE: &str = "connections";

/// Longest block: a day. An address passes from one client to another, and a forgotten block refuses the wrong one.
const BLOCK_SECONDS_MAX: u64 = 86_400;

/// Returns the engine's actions.
pub(crate) fn verbs() -> FeatureVerbs {
    let field = |name, help, shape| VerbField { name, help, shape, optional: false };
    let address = || field("address", "An IP address, or a network such as 192.0.2.0/24.", FieldShape::Text);
    let seconds = FieldShape::Number { min: 1, max: BLOCK_SECONDS_MAX };
    let verb = |name, help, fields, on_each_worker| Verb { name, help, fields, on_each_worker };
    FeatureVerbs {
        feature: FEATURE,
        verbs: vec![
            verb(
                "close",
                "Closes one connection, or one HTTP/2 stream.",
                vec![field("id", "The connection's id in the list.", FieldShape::Text)],
                true,
            ),
            verb(
                "close_address",
                "Closes all connections of a client address, except those of the admin listener.",
                vec![address()],
                true,
            ),
            verb(
                "block",
                "Refuses new connections of a client address for a time, except those of the admin listener.",
                vec![address(), field("seconds", "How long, 1 to 86400 seconds.", seconds)],
                false,
            ),
            verb("unblock", "Ends the block of a client address.", vec![address()], false),
        ],
    }
}

/// Returns the text of a field that the engine has checked.
fn text<'a>(value: &'a ActionValue, field: &str) -> Result<&'a str, ActionError> {
    match value.get(field) {
        Some(FieldValue::Text(text)) => Ok(text),
        _ => Err(ActionError::Value(field.to_owned())),
    }
}

fn network(value: &ActionValue) -> Result<Network, ActionError> {
    text(value, "address")?.parse().map_err(|_| ActionError::Value("address".to_owned()))
}

impl Core {
    /// Performs an action on connections.
    pub(crate) fn act_on_connections(
        &mut self,
        verb: &str,
        value: &ActionValue,
        ticket: Ticket<ActionResult>,
    ) {
        if verb == "close_address" {
            return match network(value) {
                Ok(network) => {
                    let parts = encke_stats::Gathered::new(ticket, crate::operate::merge_results);
                    self.begin_walk(ConnWalk::Close(ConnClosing::new(network, parts)));
                }
                Err(error) => ticket.resolve(Err(error)),
            };
        }
        ticket.resolve(match verb {
            "close" => self.close_one(value),
            "block" => self.block(value),
            "unblock" => self.unblock(value),
            _ => Err(ActionError::Unknown),
        });
    }

    fn close_one(&mut self, value: &ActionValue) -> ActionResult {
        let gone =
            || ActionError::Refused(CodedText::new("connection_gone", "the connection has closed already"));
        let token = match own_token(self, text(value, "id")?) {
            Ok(Some(token)) => token,
            // Another worker has it.
            Ok(None) => return Ok(ActionReport::default()),
            Err(NoConnId) => return Err(gone()),
        };
        // A slot that another connection has reused has another generation.
        if !self.conn(token).is_some_and(|conn| is_listed(conn) && !conn.has(ADMIN)) {
            return Err(gone());
        }
        self.close_by_operator(token, CloseReason::Operator);
        Ok(ActionReport { affected: 1, notes: Vec::new() })
    }

    fn block(&mut self, value: &ActionValue) -> ActionResult {
        let network = network(value)?;
        let Some(FieldValue::Number(seconds)) = value.get("seconds") else {
            return Err(ActionError::Value("seconds".to_owned()));
        };
        let now_ns = self.now.mono_ns;
        let ends_ns = now_ns.saturating_add(seconds.saturating_mul(1_000_000_000));
        self.census.blocks.block(network, ends_ns, now_ns).map_err(|BlocksFull| {
            ActionError::Refused(CodedText::new(
                "blocks_full",
                "too many addresses are blocked: unblock some, or block their network",
            ))
        })?;
        let mut notes = vec!["open connections stay open: close_address closes them".to_owned()];
        if !self.policy.trusted_proxies.is_empty() {
            notes.push(
                "clients behind a trusted proxy are not blocked: their connections are the proxy's"
                    .to_owned(),
            );
        }
        Ok(ActionReport { affected: 1, notes })
    }

    fn unblock(&mut self, value: &ActionValue) -> ActionResult {
        if self.census.blocks.unblock(network(value)?, self.now.mono_ns) {
            return Ok(ActionReport { affected: 1, notes: Vec::new() });
        }
        Err(ActionError::Refused(CodedText::new(
            "not_blocked",
            "this address is not blocked: the list `blocks` has all that are",
        )))
    }
}
