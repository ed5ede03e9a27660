//! Commands from clients: a line of NDJSON to publish, or a frame of `encke.v1`.
//!
//! ```text
//! bytes ─► CommandMembers: the JSON text of each member ─► ClientCommand: checked values
//!              │ not an object, invalid JSON                   │ a wrong type
//!              └ an unknown member, one given twice            └─► EnvelopeError: the member, and the rule
//! ```
//! Each member is split off as JSON text first, and checked by its own rule afterwards. So an error names the member, and a JSON
//! value as `data` keeps the bytes of its publisher: its number format, the order of its members, its white space.
//!
//! `null` counts as an absent member. The exception is `data`, where it is a value, unless `data64` is given, too.

use std::borrow::Cow;
use std::fmt;

use encke_hub::NameError;
use encke_wire::base64;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::negotiate::shown;

/// A command from a client. An unknown member is an error that names it.
#[derive(Debug, Default)]
pub(crate) struct ClientCommand {
    /// The operation; the default is to publish.
    pub(crate) op: ClientOp,
    /// A number of the client's choice, repeated in the response.
    pub(crate) reference: Option<u64>,
    /// The channel to publish to.
    pub(crate) channel: Option<String>,
    /// The channels to subscribe to or unsubscribe from.
    pub(crate) channels: Vec<String>,
    pub(crate) event: Option<String>,
    pub(crate) content_type: Option<String>,
    /// The idempotency key: a second message with this key is not published again.
    pub(crate) key: Option<String>,
    data: Option<EnvelopeData>,
    data64: Option<String>,
}

/// The operation of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ClientOp {
    #[default]
    Publish,
    Subscribe,
    Unsubscribe,
    /// A request for a response, which shows that the connection is alive.
    Ping,
}

/// The value of `data`.
#[derive(Debug)]
enum EnvelopeData {
    /// A string: the payload is its text.
    Text(String),
    /// Any other value: the payload is its JSON text.
    Json(Box<str>),
}

/// The payload of a command.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct CommandPayload {
    pub(crate) bytes: Vec<u8>,
    /// The media type if the command names none; `None`: text or bytes.
    pub(crate) default_type: Option<&'static str>,
}

/// The media type of a JSON value.
const JSON_TYPE: &str = "application/json";

/// Limit of an event's name, in bytes.
pub(crate) const EVENT_BYTES_MAX: usize = 128;
/// Limit of an idempotency key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 255;

/// Declares the members of a command by name.
macro_rules! command_members {
    ($($variant:ident $name:literal,)+) => {
        /// A member of a command.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum CommandMember {
            $(#[doc = concat!("`", $name, "`")] $variant,)+
        }

        impl CommandMember {
            /// Every member, in the order of its discriminant.
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the name in JSON.
            const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

command_members! {
    Op "op",
    Reference "ref",
    Channel "channel",
    Channels "channels",
    Event "event",
    Type "type",
    Data "data",
    Data64 "data64",
    Key "key",
}

/// Why a command is invalid. The origin is always the client, which receives the text; a retry does not help.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EnvelopeError {
    /// The text is not a JSON object.
    NotObject,
    /// The text begins as an object and is not valid JSON: line and column, from 1, and whether the text ends too early.
    Json {
        line: usize,
        column: usize,
        ends: bool,
    },
    /// No member has this name.
    Unknown(String),
    /// A member is given twice.
    Twice(CommandMember),
    /// A member has a value of another type: the type, and the expected one.
    Kind {
        member: CommandMember,
        found: &'static str,
        expected: &'static str,
    },
    /// An escape in a string is half of a surrogate pair.
    Surrogate(CommandMember),
    /// `ref` is negative, too large, or has a fraction.
    Reference,
    /// `op` is no operation: its value.
    Op(String),
    /// The operation is not possible in a request: its name.
    OnlyPublish(&'static str),
    NoChannel,
    NoChannels,
    /// The name of a channel is invalid: the name, and the cause.
    Channel(String, NameError),
    /// The idempotency key is too long: its length, in bytes.
    Key(usize),
    /// The event's name is too long, or has control characters.
    Event,
    /// The type is not a media type.
    Type,
    NoData,
    /// The payload is given twice.
    TwoData,
    /// `data64` is not base64.
    Base64,
}

/// The members of a JSON object that is a command, as JSON text.
struct CommandMembers<'a> {
    /// By the discriminant of [`CommandMember`].
    texts: [Option<&'a RawValue>; CommandMember::ALL.len()],
    /// The first unknown member, or the first that is given twice.
    mistake: Option<EnvelopeError>,
}

/// The name of a member.
enum MemberName {
    Known(CommandMember),
    Unknown(String),
}

impl ClientCommand {
    /// Parses a command.
    ///
    /// # Errors
    /// The text is not JSON, or a member is unknown or has a wrong type.
    pub(crate) fn read(text: &[u8]) -> Result<Self, EnvelopeError> {
        if text.trim_ascii_start().first() != Some(&b'{') {
            return Err(EnvelopeError::NotObject);
        }
        let members: CommandMembers<'_> = serde_json::from_slice(text)?;
        let data64 = members.text(CommandMember::Data64)?;
        let data = match members.raw(CommandMember::Data) {
            Some("null") if data64.is_some() => None,
            Some(text) if text.starts_with('"') => {
                Some(EnvelopeData::Text(string(CommandMember::Data, text)?.into_owned()))
            }
            Some(text) => Some(EnvelopeData::Json(text.into())),
            None => None,
        };
        let command = Self {
            op: members.op()?,
            reference: members.reference()?,
            channel: members.text(CommandMember::Channel)?,
            channels: members.channels()?,
            event: members.text(CommandMember::Event)?,
            content_type: members.text(CommandMember::Type)?,
            key: members.text(CommandMember::Key)?,
            data,
            data64,
        };
        members.mistake.map_or(Ok(command), Err)
    }

    /// Returns the payload and removes it from the command.
    ///
    /// # Errors
    /// There is no payload, there are two, or `data64` is invalid.
    pub(crate) fn payload(&mut self) -> Result<CommandPayload, EnvelopeError> {
        let plain = |bytes| CommandPayload { bytes, default_type: None };
        match (self.data.take(), self.data64.take()) {
            (Some(EnvelopeData::Text(text)), None) => Ok(plain(text.into_bytes())),
            (Some(EnvelopeData::Json(text)), None) => {
                Ok(CommandPayload { bytes: text.into_string().into_bytes(), default_type: Some(JSON_TYPE) })
            }
            (None, Some(text)) => base64::decode(text.as_bytes()).map(plain).ok_or(EnvelopeError::Base64),
            (None, None) => Err(EnvelopeError::NoData),
            (Some(_), Some(_)) => Err(EnvelopeError::TwoData),
        }
    }
}

impl ClientOp {
    /// Returns the name in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::Unsubscribe => "unsubscribe",
            Self::Ping => "ping",
        }
    }
}

impl<'a> CommandMembers<'a> {
    /// Returns the JSON text of a member, if it is given.
    fn raw(&self, member: CommandMember) -> Option<&'a str> {
        self.texts[member as usize].map(RawValue::get)
    }

    /// Returns the JSON text of a member, if it is given and not null.
    fn given(&self, member: CommandMember) -> Option<&'a str> {
        self.raw(member).filter(|text| *text != "null")
    }

    fn text(&self, member: CommandMember) -> Result<Option<String>, EnvelopeError> {
        self.given(member).map(|text| string(member, text).map(Cow::into_owned)).transpose()
    }

    fn op(&self) -> Result<ClientOp, EnvelopeError> {
        let Some(text) = self.given(CommandMember::Op) else { return Ok(ClientOp::default()) };
        let all = [ClientOp::Publish, ClientOp::Subscribe, ClientOp::Unsubscribe, ClientOp::Ping];
        let text = string(CommandMember::Op, text)?;
        all.into_iter().find(|op| op.name() == text).ok_or_else(|| EnvelopeError::Op(shown(&text)))
    }

    fn reference(&self) -> Result<Option<u64>, EnvelopeError> {
        let Some(text) = self.given(CommandMember::Reference) else { return Ok(None) };
        match kind_of(text) {
            "a number" => text.parse().map(Some).map_err(|_| EnvelopeError::Reference),
            found => {
                let member = CommandMember::Reference;
                Err(EnvelopeError::Kind { member, found, expected: "a whole number" })
            }
        }
    }

    fn channels(&self) -> Result<Vec<String>, EnvelopeError> {
        let member = CommandMember::Channels;
        let Some(text) = self.given(member) else { return Ok(Vec::new()) };
        let expected = "a list of strings";
        let items: Vec<&RawValue> = match kind_of(text) {
            "a list" => serde_json::from_str(text)?,
            found => return Err(EnvelopeError::Kind { member, found, expected }),
        };
        let name = |item: &RawValue| match kind_of(item.get()) {
            "a string" => string(member, item.get()).map(Cow::into_owned),
            _ => Err(EnvelopeError::Kind { member, found: "a list with other values", expected }),
        };
        items.into_iter().map(name).collect()
    }
}

/// Returns the text of a JSON string.
fn string(member: CommandMember, text: &str) -> Result<Cow<'_, str>, EnvelopeError> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match inner {
        None => Err(EnvelopeError::Kind { member, found: kind_of(text), expected: "a string" }),
        Some(inner) if !inner.contains('\\') => Ok(Cow::Borrowed(inner)),
        // The syntax was checked when the member was split off. Only the value of an escape may be invalid.
        Some(_) => serde_json::from_str(text).map(Cow::Owned).map_err(|_| EnvelopeError::Surrogate(member)),
    }
}

/// Returns the type of a JSON value, by its first byte.
fn kind_of(text: &str) -> &'static str {
    match text.as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

impl<'de> Deserialize<'de> for CommandMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = CommandMembers<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = CommandMembers { texts: Default::default(), mistake: None };
        while let Some(name) = map.next_key()? {
            let text: &RawValue = map.next_value()?;
            let mistake = match name {
                MemberName::Unknown(name) => Some(EnvelopeError::Unknown(name)),
                MemberName::Known(member) => {
                    members.texts[member as usize].replace(text).map(|_| EnvelopeError::Twice(member))
                }
            };
            members.mistake = members.mistake.or(mistake);
        }
        Ok(members)
    }
}

impl<'de> Deserialize<'de> for MemberName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl Visitor<'_> for NameVisitor {
    type Value = MemberName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E>(self, name: &str) -> Result<MemberName, E> {
        let known = CommandMember::ALL.iter().find(|member| member.name() == name);
        Ok(known.map_or_else(|| MemberName::Unknown(shown(name)), |member| MemberName::Known(*member)))
    }
}

impl From<serde_json::Error> for EnvelopeError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json { line: error.line(), column: error.column(), ends: error.is_eof() }
    }
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::NotObject => "expected a JSON object such as {\"channel\":\"news\",\"data\":\"hello\"}",
            Self::Json { line, column, ends } => {
                let what = if *ends { "the JSON object ends too early" } else { "invalid JSON" };
                // The caller names the line if it has split the lines itself.
                let line = if *line > 1 { format!("line {line}, ") } else { String::new() };
                return write!(f, "{what}, at {line}column {column}: expected one complete object");
            }
            Self::Unknown(name) => {
                let known: Vec<&str> = CommandMember::ALL.iter().map(|member| member.name()).collect();
                return write!(f, "unknown member {name:?}: the known ones are {}", known.join(", "));
            }
            Self::Twice(member) => return write!(f, "{} is given twice", member.name()),
            Self::Kind { member, found, expected } => {
                return write!(f, "{} is {found}: expected {expected}", member.name());
            }
            Self::Surrogate(member) => {
                return write!(f, "{} has a \\u escape that is half of a surrogate pair", member.name());
            }
            Self::Reference => "ref is out of range: expected a whole number from 0 to 18446744073709551615",
            Self::Op(op) => {
                return write!(f, "op is {op:?}: expected publish, subscribe, unsubscribe or ping");
            }
            Self::OnlyPublish(op) => {
                return write!(f, "op is {op}: a request only publishes; open a WebSocket with encke.v1");
            }
            Self::NoChannel => "channel is missing: name the channel to publish to",
            Self::NoChannels => "channels is missing or empty: name at least one channel",
            Self::Channel(name, error) => return write!(f, "channel {:?}: {error}", shown(name)),
            Self::Key(bytes) => {
                return write!(f, "key has {bytes} bytes: at most {KEY_BYTES_MAX} are allowed");
            }
            Self::Event => {
                return write!(
                    f,
                    "invalid event: expected at most {EVENT_BYTES_MAX} bytes without control characters"
                );
            }
            Self::Type => "invalid type: expected a media type such as application/json",
            Self::NoData => "data is missing: give data, or data64 for bytes",
            Self::TwoData => "both data and data64 are given: give one of them",
            Self::Base64 => "data64 is not base64 (RFC 4648 §4, with padding)",
        };
        f.write_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        match ClientCommand::read(text.as_bytes()).and_then(|mut command| command.payload()) {
            Ok(payload) => panic!("{text}: {payload:?}"),
            Err(error) => error.to_string(),
        }
    }

    fn payload(text: &str) -> (String, Option<&'static str>) {
        let read = ClientCommand::read(text.as_bytes()).and_then(|mut command| command.payload());
        let CommandPayload { bytes, default_type } = read.unwrap_or_else(|error| panic!("{text}: {error}"));
        (String::from_utf8(bytes).expect("these are texts"), default_type)
    }

    #[test]
    fn any_json_value_is_a_payload() {
        for (data, bytes, default_type) in [
            (r#""hello""#, "hello", None),
            (r#""""#, "", None),
            (r#""{\"x\":1}""#, "{\"x\":1}", None),
            (r#""\ud83d\ude80 caf\u00e9""#, "🚀 café", None),
            (r#"{"x":1}"#, r#"{"x":1}"#, Some(JSON_TYPE)),
            ("[1, 2,\r\n 3]", "[1, 2,\r\n 3]", Some(JSON_TYPE)),
            (
                " { \"b\" : 1.50e3 , \"a\":\"\\ud800\" } ",
                "{ \"b\" : 1.50e3 , \"a\":\"\\ud800\" }",
                Some(JSON_TYPE),
            ),
            ("12345678901234567890123", "12345678901234567890123", Some(JSON_TYPE)),
            ("-0.0", "-0.0", Some(JSON_TYPE)),
            ("true", "true", Some(JSON_TYPE)),
            ("false", "false", Some(JSON_TYPE)),
            ("null", "null", Some(JSON_TYPE)),
        ] {
            let text = format!("{{\"channel\":\"a\",\"data\":{data},\"ref\":7}}");
            assert_eq!(payload(&text), (bytes.to_owned(), default_type), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(payload(&format!("{{\"data\":{deep}}}")), (deep, Some(JSON_TYPE)));
    }

    #[test]
    fn null_is_an_absent_member_except_in_data() {
        let text = r#"{"op":null,"ref":null,"channel":null,"channels":null,"event":null,"type":null,"key":null,
                       "data":null,"data64":null}"#;
        let mut command = ClientCommand::read(text.as_bytes()).expect("valid");
        assert_eq!((command.op, command.reference, &command.channel), (ClientOp::Publish, None, &None));
        assert_eq!((&command.event, &command.content_type, &command.key), (&None, &None, &None));
        assert!(command.channels.is_empty());
        assert_eq!(command.payload().expect("null").bytes, b"null");
        assert_eq!(payload(r#"{"data":null,"data64":"aGk="}"#), ("hi".to_owned(), None));
        assert_eq!(payload(r#"{"data":"hi","data64":null}"#), ("hi".to_owned(), None));
    }

    #[test]
    fn a_command_has_all_its_members() {
        let text = r#"{"op":"subscribe","ref":18446744073709551615,"channel":"a\/b","channels":["a","\u0062"],
                       "event":"x","type":"text/plain","key":"k","data":"d"}"#;
        let command = ClientCommand::read(text.as_bytes()).expect("valid");
        assert_eq!((command.op, command.reference), (ClientOp::Subscribe, Some(u64::MAX)));
        assert_eq!(
            (command.channel.as_deref(), command.channels),
            (Some("a/b"), vec!["a".into(), "b".into()])
        );
        let others = (command.event.as_deref(), command.content_type.as_deref(), command.key.as_deref());
        assert_eq!(others, (Some("x"), Some("text/plain"), Some("k")));
    }

    #[test]
    fn an_error_names_the_member_and_the_rule() {
        const OBJECT: &str = "expected a JSON object such as {\"channel\":\"news\",\"data\":\"hello\"}";
        let long = format!("{{\"{}\":1}}", "x".repeat(100));
        let known = "op, ref, channel, channels, event, type, data, data64, key";
        for (text, expected) in [
            ("", OBJECT),
            ("hello", OBJECT),
            ("[1]", OBJECT),
            ("\"data\"", OBJECT),
            ("{", "the JSON object ends too early, at column 1: expected one complete object"),
            ("{\"data\":\"x", "the JSON object ends too early, at column 10: expected one complete object"),
            ("{data:1}", "invalid JSON, at column 2: expected one complete object"),
            ("{\"data\":01}", "invalid JSON, at column 10: expected one complete object"),
            ("{\"data\":1} {}", "invalid JSON, at column 12: expected one complete object"),
            ("{\"data\":\n{]}", "invalid JSON, at line 2, column 2: expected one complete object"),
            ("{\"data\":\"\x01\"}", "invalid JSON, at column 9: expected one complete object"),
            ("{\"data\":\"\\x\"}", "invalid JSON, at column 11: expected one complete object"),
            ("{\"chanel\":1,\"dat\":2}", &format!("unknown member \"chanel\": the known ones are {known}")),
            (&long, &format!("unknown member \"{}…\": the known ones are {known}", "x".repeat(40))),
            ("{\"data\":1,\"data\":1}", "data is given twice"),
            ("{\"\\u0064ata\":1,\"data\":1}", "data is given twice"),
            ("{\"op\":7}", "op is a number: expected a string"),
            ("{\"op\":\"fly\"}", "op is \"fly\": expected publish, subscribe, unsubscribe or ping"),
            ("{\"ref\":\"7\"}", "ref is a string: expected a whole number"),
            ("{\"ref\":-1}", "ref is out of range: expected a whole number from 0 to 18446744073709551615"),
            ("{\"ref\":1.5}", "ref is out of range: expected a whole number from 0 to 18446744073709551615"),
            ("{\"channel\":[\"a\"]}", "channel is a list: expected a string"),
            ("{\"channel\":{}}", "channel is an object: expected a string"),
            ("{\"channels\":\"a\"}", "channels is a string: expected a list of strings"),
            ("{\"channels\":[\"a\",1]}", "channels is a list with other values: expected a list of strings"),
            ("{\"event\":true}", "event is a boolean: expected a string"),
            ("{\"type\":false}", "type is a boolean: expected a string"),
            ("{\"key\":1}", "key is a number: expected a string"),
            ("{\"data64\":{}}", "data64 is an object: expected a string"),
            ("{\"data\":\"\\ud800\"}", "data has a \\u escape that is half of a surrogate pair"),
            ("{\"data64\":\"a\"}", "data64 is not base64 (RFC 4648 §4, with padding)"),
            ("{\"channel\":\"a\"}", "data is missing: give data, or data64 for bytes"),
            ("{\"data\":1,\"data64\":\"\"}", "both data and data64 are given: give one of them"),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
        let error = ClientCommand::read(b"{\"data\":\"\xff\"}").expect_err("not UTF-8");
        assert!(error.to_string().starts_with("invalid JSON, at column "), "{error}");
    }

    /// The text of a command may be cut anywhere: the error never has a term of the parser.
    #[test]
    fn a_command_that_is_cut_anywhere_is_an_error() {
        let text = r#"{"op":"publish","channel":"room/one","data":{"x":[1,-2.5e3,true,null,"é\n"]},"ref":1}"#;
        ClientCommand::read(text.as_bytes()).expect("valid as a whole");
        for end in 0..text.len() {
            let error = ClientCommand::read(&text.as_bytes()[..end]).expect_err("cut");
            assert!(
                matches!(error, EnvelopeError::NotObject | EnvelopeError::Json { .. }),
                "{end}: {error:?}"
            );
        }
    }
}
