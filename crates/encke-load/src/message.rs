//! Requests as bytes, prepared once, and the choice of the next one.
//!
//! ```text
//!   method, target, fields, body ──► Message ──┬─ fixed: one block of bytes, shared by all connections
//!                                              └─ with placeholders: written for each use
//!   Messages and weights, or an order ──► Mix ──choose()──► the next one
//! ```

use std::fmt;
use std::sync::Arc;

use encke_session::http2::H2Request;
use encke_wire::field;
use encke_wire::http1::{FieldError, put_field, put_field_number};
use encke_wire::method::Method;

use crate::random::Random;
use crate::template::Template;

/// Variations in how requests are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Style {
    /// Use HTTP/1.0, like old tools.
    pub http10: bool,
    /// Ask the server to close the connection after its response.
    pub closing: bool,
    /// Do not interpret placeholders.
    pub literal: bool,
}

/// A request, ready to be sent.
#[derive(Clone, Debug)]
pub struct PreparedRequest {
    method: Method,
    /// The head up to the length of the body.
    head: Template,
    body: Option<Template>,
    /// Whether requests of this method usually have a body.
    expects_body: bool,
    /// All bytes, if they are the same each time.
    fixed: Option<Arc<[u8]>>,
}

/// Why a request is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MessageError {
    /// The method is not a token (RFC 9110 section 9.1).
    Method(String),
    /// A field that must not be sent.
    Field(String, FieldError),
    /// A field that follows from the plan: the length of the body, or the end of the connection.
    Reserved(String),
}

impl PreparedRequest {
    /// A request for `target` on the server `authority`. Fields are names and values; `Host` and `User-Agent` are added if
    /// missing. Target, field values and body may have placeholders.
    ///
    /// # Errors
    /// The method or a field is invalid, or a field is reserved.
    pub fn new(
        method: &str,
        authority: &str,
        target: &str,
        fields: &[(String, String)],
        body: Option<&[u8]>,
        style: Style,
    ) -> Result<Self, MessageError> {
        if !field::is_token(method.as_bytes()) {
            return Err(MessageError::Method(method.to_owned()));
        }
        let version = if style.http10 { "1.0" } else { "1.1" };
        let mut head = format!("{method} {target} HTTP/{version}\r\n").into_bytes();
        let absent = |name: &str| !fields.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let mut put = |name: &str, value: &str| {
            put_field(&mut head, name, value.as_bytes())
                .map_err(|error| MessageError::Field(name.to_owned(), error))
        };
        if absent("Host") {
            put("Host", authority)?;
        }
        if absent("User-Agent") {
            put("User-Agent", USER_AGENT)?;
        }
        for (name, value) in fields {
            if RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
                return Err(MessageError::Reserved(name.clone()));
            }
            put(name, value)?;
        }
        match style {
            Style { closing: true, http10: false, .. } => put("Connection", "close")?,
            Style { closing: false, http10: true, .. } => put("Connection", "keep-alive")?,
            _ => {}
        }
        let template = if style.literal { Template::literal } else { Template::of };
        let mut message = Self {
            method: Method::of(method.as_bytes()),
            head: template(&head),
            body: body.map(template),
            expects_body: WITH_BODY.contains(&method),
            fixed: None,
        };
        if message.head.is_fixed() && message.body.as_ref().is_none_or(Template::is_fixed) {
            let mut bytes = Vec::new();
            message.write(0, &mut Random::new(0, 0), &mut bytes);
            message.fixed = Some(bytes.into());
        }
        Ok(message)
    }

    /// Method of the request; the end of the response depends on it.
    pub(crate) fn method(&self) -> Method {
        self.method
    }

    /// The bytes of the request, if they are always the same.
    pub(crate) fn fixed(&self) -> Option<&Arc<[u8]>> {
        self.fixed.as_ref()
    }

    /// Appends the bytes of the request.
    pub(crate) fn put(&self, sequence: u64, random: &mut Random, out: &mut Vec<u8>) {
        match &self.fixed {
            Some(bytes) => out.extend_from_slice(bytes),
            None => self.write(sequence, random, out),
        }
    }

    /// The request for HTTP/2, over TLS (`secure`) or plaintext; `None` if HTTP/2 cannot represent it.
    pub(crate) fn h2_request(&self, secure: bool, sequence: u64, random: &mut Random) -> Option<H2Request> {
        let mut bytes = Vec::new();
        self.put(sequence, random, &mut bytes);
        H2Request::of(&bytes, secure)
    }

    /// Whether HTTP/2 can represent the request. Its rules for method, host and target are stricter.
    pub fn fits_http2(&self) -> bool {
        self.h2_request(false, 0, &mut Random::new(0, 0)).is_some()
    }

    fn write(&self, sequence: u64, random: &mut Random, out: &mut Vec<u8>) {
        self.head.put(sequence, random, out);
        let Some(body) = &self.body else {
            // A method that defines a meaning for content declares an empty body (RFC 9110 section 8.6).
            if self.expects_body {
                put_field_number(out, "Content-Length", 0);
            }
            out.extend_from_slice(b"\r\n");
            return;
        };
        let mut content = Vec::new();
        body.put(sequence, random, &mut content);
        put_field_number(out, "Content-Length", content.len() as u64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&content);
    }
}

/// Requests and the frequency or order in which they are sent.
#[derive(Clone, Debug)]
pub struct Mix {
    messages: Vec<PreparedRequest>,
    /// Cumulative weights up to each message; empty if the messages have an order.
    sums: Vec<u64>,
    /// The order of the messages, repeated from the beginning; empty if they are chosen by weight.
    order: Arc<[u32]>,
}

/// Maximum messages of a mix: at about 200 bytes each they take 200 MB.
pub const MESSAGES_MAX: usize = 1 << 20;

impl Mix {
    /// Messages and their weights, none of which is 0. `None` if there are no messages or more than [`MESSAGES_MAX`].
    pub fn new(messages: Vec<(PreparedRequest, u32)>) -> Option<Self> {
        if messages.is_empty() || messages.len() > MESSAGES_MAX {
            return None;
        }
        let mut sum = 0;
        let sums = messages.iter().map(|(_, weight)| {
            sum += u64::from(*weight).max(1);
            sum
        });
        let sums = sums.collect();
        let messages = messages.into_iter().map(|(message, _)| message).collect();
        Some(Self { messages, sums, order: Arc::default() })
    }

    /// Messages in a fixed order, given as indices into `messages`. `None` if the order is empty, an index is out of range, or
    /// there are more than [`MESSAGES_MAX`] messages.
    pub fn in_order(messages: Vec<PreparedRequest>, order: Vec<u32>) -> Option<Self> {
        let there = order.iter().all(|place| (*place as usize) < messages.len());
        if order.is_empty() || messages.len() > MESSAGES_MAX || !there {
            return None;
        }
        Some(Self { messages, sums: Vec::new(), order: order.into() })
    }

    /// The message with a number returned by [`Mix::choose`].
    pub(crate) fn message(&self, number: u32) -> &PreparedRequest {
        &self.messages[number as usize]
    }

    /// Number of messages.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether HTTP/2 can represent all messages.
    pub fn fits_http2(&self) -> bool {
        self.messages.iter().all(PreparedRequest::fits_http2)
    }

    /// The bytes of the only message, if they are always the same.
    pub(crate) fn single(&self) -> Option<&Arc<[u8]>> {
        match &self.messages[..] {
            [message] => message.fixed(),
            _ => None,
        }
    }

    /// The number of the message to send: by order at this place (from 0), or at random by weight.
    pub(crate) fn choose(&self, place: u64, random: &mut Random) -> u32 {
        if let Some(place) = place.checked_rem(self.order.len() as u64) {
            return self.order[place as usize];
        }
        let [.., total] = self.sums[..] else { return 0 };
        if self.sums.len() == 1 {
            return 0;
        }
        let at = random.below(total);
        // Fewer than MESSAGES_MAX, so the cast holds.
        self.sums.partition_point(|sum| *sum <= at) as u32
    }
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(method) => write!(f, "invalid method `{method}`"),
            Self::Field(name, error) => write!(f, "invalid field `{name}`: {error}"),
            Self::Reserved(name) => {
                write!(f, "cannot set `{name}` with -H: it follows from the body and from --no-keepalive")
            }
        }
    }
}

impl std::error::Error for MessageError {}

const USER_AGENT: &str = concat!("encke-load/", env!("CARGO_PKG_VERSION"));
const WITH_BODY: [&str; 3] = ["POST", "PUT", "PATCH"];
const RESERVED: [&str; 3] = ["Content-Length", "Transfer-Encoding", "Connection"];

#[cfg(test)]
mod tests {
    use super::*;

    fn written(message: &PreparedRequest, sequence: u64) -> String {
        let mut out = Vec::new();
        message.put(sequence, &mut Random::new(1, 0), &mut out);
        String::from_utf8(out).expect("text")
    }

    fn message(
        style: Style,
        fields: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Result<PreparedRequest, MessageError> {
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        PreparedRequest::new("GET", "h:1", "/a", &fields, body, style)
    }

    #[test]
    fn a_request_is_what_the_server_needs_and_who_asks() {
        let plain = message(Style::default(), &[], None).expect("a request");
        let agent = format!("User-Agent: {USER_AGENT}\r\n");
        assert_eq!(written(&plain, 0), format!("GET /a HTTP/1.1\r\nHost: h:1\r\n{agent}\r\n"));
        assert!(plain.fixed().is_some());

        let own = message(Style::default(), &[("host", "x"), ("user-agent", "me"), ("A", "b")], None);
        assert_eq!(
            written(&own.expect("a request"), 0),
            "GET /a HTTP/1.1\r\nhost: x\r\nuser-agent: me\r\nA: b\r\n\r\n"
        );
    }

    #[test]
    fn the_style_decides_version_and_connection() {
        let told = |http10, closing| {
            let fields = [("Host", "x"), ("User-Agent", "y")];
            written(&message(Style { http10, closing, literal: false }, &fields, None).expect("a request"), 0)
        };
        assert_eq!(
            told(false, true),
            "GET /a HTTP/1.1\r\nHost: x\r\nUser-Agent: y\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(told(true, true), "GET /a HTTP/1.0\r\nHost: x\r\nUser-Agent: y\r\n\r\n");
        assert_eq!(
            told(true, false),
            "GET /a HTTP/1.0\r\nHost: x\r\nUser-Agent: y\r\nConnection: keep-alive\r\n\r\n"
        );
    }

    #[test]
    fn the_length_is_that_of_the_body_as_it_is_sent() {
        let message = message(Style::default(), &[("Host", "x"), ("User-Agent", "y")], Some(b"n={seq}"));
        let message = message.expect("a request");
        assert!(message.fixed().is_none());
        assert!(written(&message, 7).ends_with("Content-Length: 3\r\n\r\nn=7"));
        assert!(written(&message, 1_000).ends_with("Content-Length: 6\r\n\r\nn=1000"));
    }

    #[test]
    fn a_method_that_gives_a_body_its_meaning_says_that_there_is_none() {
        for (method, told) in
            [("POST", true), ("PUT", true), ("PATCH", true), ("GET", false), ("DELETE", false)]
        {
            let message =
                PreparedRequest::new(method, "h", "/", &[], None, Style::default()).expect("a request");
            assert_eq!(written(&message, 0).contains("Content-Length: 0\r\n\r\n"), told, "{method}");
        }
    }

    #[test]
    fn what_would_be_no_request_is_refused() {
        assert!(matches!(
            PreparedRequest::new("G T", "h", "/", &[], None, Style::default()),
            Err(MessageError::Method(_))
        ));
        assert!(matches!(
            message(Style::default(), &[("A", "b\r\nC: d")], None),
            Err(MessageError::Field(..))
        ));
        assert!(matches!(
            message(Style::default(), &[("content-length", "5")], None),
            Err(MessageError::Reserved(_))
        ));
    }

    #[test]
    fn messages_come_as_often_as_their_weights_say() {
        let one = message(Style::default(), &[], None).expect("a request");
        let mix = Mix::new(vec![(one.clone(), 3), (one.clone(), 1), (one, 6)]).expect("three messages");
        let mut random = Random::new(9, 0);
        let mut counts = [0i32; 3];
        (0..10_000).for_each(|_| counts[mix.choose(0, &mut random) as usize] += 1);
        for (count, expected) in counts.into_iter().zip([3_000, 1_000, 6_000]) {
            assert!((count - expected).abs() < 200, "{counts:?}");
        }
        assert!(mix.single().is_none());
        assert!(Mix::new(Vec::new()).is_none());
    }

    #[test]
    fn messages_with_an_order_come_in_it_and_from_its_beginning_again() {
        let one = message(Style::default(), &[], None).expect("a request");
        let mix = Mix::in_order(vec![one.clone(), one.clone()], vec![1, 0, 0]).expect("an order");
        let mut random = Random::new(9, 0);
        let told: Vec<u32> = (0..7).map(|place| mix.choose(place, &mut random)).collect();
        assert_eq!(told, [1, 0, 0, 1, 0, 0, 1]);
        assert!(Mix::in_order(vec![one.clone()], vec![1]).is_none());
        assert!(Mix::in_order(vec![one], Vec::new()).is_none());
    }

    #[test]
    fn what_is_literal_has_no_holes() {
        let style = Style { literal: true, ..Style::default() };
        let message = PreparedRequest::new("GET", "h", "/{seq}", &[], None, style).expect("a request");
        assert!(message.fixed().is_some() && written(&message, 7).starts_with("GET /{seq} "));
    }
}
