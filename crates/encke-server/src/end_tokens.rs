//! The tokens of a worker whose requests have ended their exchange: see [`crate::end_token`]; and the fields of guards for the
//! responses of residents.

use encke_io::Token;

use crate::conn::{ConnPhase, SENDING};
use crate::core::Core;
use crate::end_token::{ConnTokens, EndToken};
use crate::reply::Fields;

impl Core {
    /// Keeps the tokens of a request whose exchange has ended until its response is sent.
    #[cold]
    pub(crate) fn keep_tokens(&mut self, token: Token, tokens: impl IntoIterator<Item = EndToken>) {
        let conn = &self.conns[token.index as usize];
        let has_output = conn.has(SENDING) || self.output_bytes() > 0;
        if conn.phase == ConnPhase::Resident {
            self.keep_resident_tokens(token, tokens);
        } else if has_output {
            self.end_tokens.entry(token.index).or_default().responses.extend(tokens);
        }
    }

    /// Keeps the tokens of a request that passes its connection to a resident, until the resident's end.
    #[cold]
    pub(crate) fn keep_resident_tokens(&mut self, token: Token, tokens: impl IntoIterator<Item = EndToken>) {
        self.end_tokens.entry(token.index).or_default().resident.extend(tokens);
    }

    /// Keeps the fields of guards for the response of a resident, and its handler's value until its end.
    #[inline]
    pub(crate) fn keep_of_takeover(&mut self, token: Token, fields: Fields, until_end: Option<EndToken>) {
        if until_end.is_some() {
            self.keep_resident_tokens(token, until_end);
        }
        if !fields.is_empty() {
            self.keep_guard_fields(token, fields);
        }
    }

    #[cold]
    fn keep_guard_fields(&mut self, token: Token, fields: Fields) {
        self.end_tokens.entry(token.index).or_default().fields = fields;
    }

    /// Takes the fields of guards for the response of a resident; empty if there are none.
    #[cold]
    pub(crate) fn take_guard_fields(&mut self, token: Token) -> Fields {
        let Some(tokens) = self.end_tokens.get_mut(&token.index) else { return Fields::new() };
        let fields = std::mem::take(&mut tokens.fields);
        if tokens.responses.is_empty() && tokens.resident.is_empty() {
            self.end_tokens.remove(&token.index);
        }
        fields
    }

    /// The resident of a connection has responded: its tokens last until the response is sent.
    #[cold]
    pub(crate) fn end_resident_tokens(&mut self, token: Token) {
        if let Some(tokens) = self.end_tokens.remove(&token.index) {
            let ConnTokens { responses, resident, fields: _ } = tokens;
            self.keep_tokens(token, responses.into_iter().chain(resident));
        }
    }

    /// All output of a connection is sent.
    #[cold]
    pub(crate) fn drop_sent_tokens(&mut self, token: Token) {
        if let Some(tokens) = self.end_tokens.get_mut(&token.index) {
            tokens.responses.clear();
            if tokens.resident.is_empty() && tokens.fields.is_empty() {
                self.end_tokens.remove(&token.index);
            }
        }
    }
}
