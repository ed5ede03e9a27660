//! Changes to the header fields of requests and responses, compiled from the settings.

use std::fmt;

use encke_server::{Fields, are_alike};
use encke_wire::http1::put_field;

use crate::settings::FieldRules;

/// Changes to header fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldChanges {
    /// Names in lower case of fields that the sender may not set: the set and the removed ones.
    dropped: Vec<Box<[u8]>>,
    /// Names and values that are appended.
    appended: Vec<(Box<str>, Vec<ValuePart>)>,
}

/// A part of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
enum ValuePart {
    Text(Box<str>),
    Client,
    Host,
    Scheme,
    User,
}

/// The values of a request that fields may contain.
pub(crate) struct FieldValues<'a> {
    pub(crate) client: &'a str,
    pub(crate) host: &'a [u8],
    pub(crate) scheme: &'a str,
    pub(crate) user: &'a str,
}

/// Why a change of a field is rejected. The origin is the settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FieldChangeError {
    /// The text is not the name of a field, or its value has a control character.
    Malformed(String),
    /// The gateway writes this field itself.
    Reserved(String),
    /// A request has exactly one Host.
    OneHost,
    /// The name in braces is no value of a request.
    UnknownValue(String),
    /// The name of a value after a brace that is not closed.
    Unclosed(String),
    /// A value of a request in a field of a response.
    InResponse(String),
}

impl fmt::Display for FieldChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(name) => {
                write!(f, "{name:?} is not the name of a header field, or its value has a control character")
            }
            Self::Reserved(name) => write!(f, "Encke writes {name} itself"),
            Self::OneHost => f.write_str("a request has exactly one Host: replace it by set"),
            Self::UnknownValue(name) => {
                write!(
                    f,
                    "there is no value {{{name}}}: expected {{client}}, {{host}}, {{scheme}} or {{user}}"
                )
            }
            Self::Unclosed(name) => write!(f, "a brace is missing: write {{{name}}}"),
            Self::InResponse(name) => write!(f, "{{{name}}} can be used in fields of requests only"),
        }
    }
}

impl std::error::Error for FieldChangeError {}

/// Fields that frame the message or belong to the connection.
const RESERVED: [&str; 8] =
    ["connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "date"];

impl FieldChanges {
    /// Compiles changes; `of_request` allows values of the request.
    ///
    /// # Errors
    /// The key of the first rule that is invalid, and the reason.
    pub(crate) fn of(rules: &FieldRules, of_request: bool) -> Result<Self, (&'static str, FieldChangeError)> {
        let mut changes = Self::default();
        for (key, pairs) in [("set", &rules.set), ("add", &rules.add)] {
            for (name, value) in pairs {
                let wrong = |error| (key, error);
                check_name(name).map_err(wrong)?;
                if key == "add" && name.eq_ignore_ascii_case("host") {
                    return Err((key, FieldChangeError::OneHost));
                }
                let parts = value_parts(value).map_err(wrong)?;
                let foreign = parts.iter().find_map(ValuePart::name).filter(|_| !of_request);
                if let Some(foreign) = foreign {
                    return Err((key, FieldChangeError::InResponse(foreign.into())));
                }
                put_field(&mut Vec::new(), name, value.as_bytes())
                    .map_err(|_| (key, FieldChangeError::Malformed(name.clone())))?;
                if key == "set" {
                    changes.dropped.push(name.to_ascii_lowercase().into_bytes().into());
                }
                changes.appended.push((name.as_str().into(), parts));
            }
        }
        for name in &rules.remove {
            check_name(name).map_err(|error| ("remove", error))?;
            if name.eq_ignore_ascii_case("host") {
                return Err(("remove", FieldChangeError::OneHost));
            }
            changes.dropped.push(name.to_ascii_lowercase().into_bytes().into());
        }
        Ok(changes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dropped.is_empty() && self.appended.is_empty()
    }

    /// Whether the sender's fields of this name are dropped.
    pub(crate) fn drops(&self, name: &[u8]) -> bool {
        self.dropped.iter().any(|dropped| are_alike(dropped, name))
    }

    /// Whether fields of this name in a head are not the sender's alone.
    pub(crate) fn touches(&self, name: &[u8]) -> bool {
        self.drops(name) || self.appended.iter().any(|(own, _)| own.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Appends the fields that are set and added to a request's head.
    pub(crate) fn put(&self, out: &mut Vec<u8>, values: &FieldValues<'_>) {
        for (name, parts) in &self.appended {
            let mut value = Vec::new();
            for part in parts {
                value.extend_from_slice(match part {
                    ValuePart::Text(text) => text.as_bytes(),
                    ValuePart::Client => values.client.as_bytes(),
                    ValuePart::Host => values.host,
                    ValuePart::Scheme => values.scheme.as_bytes(),
                    ValuePart::User => values.user.as_bytes(),
                });
            }
            // A value that is no field, such as a user name with a control character, is left out.
            let _ = put_field(out, name, &value);
        }
    }

    /// Appends the fields that are set and added to a response.
    pub(crate) fn extend(&self, fields: &mut Fields) {
        if self.appended.is_empty() {
            return;
        }
        let mut lines = Vec::new();
        self.put(&mut lines, &FieldValues { client: "", host: b"", scheme: "", user: "" });
        fields.push_lines(&lines);
    }
}

impl ValuePart {
    /// The name of a value of the request.
    const fn name(&self) -> Option<&'static str> {
        match self {
            Self::Text(_) => None,
            Self::Client => Some("client"),
            Self::Host => Some("host"),
            Self::Scheme => Some("scheme"),
            Self::User => Some("user"),
        }
    }
}

fn check_name(name: &str) -> Result<(), FieldChangeError> {
    if put_field(&mut Vec::new(), name, b"").is_err() {
        return Err(FieldChangeError::Malformed(name.to_owned()));
    }
    if RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
        return Err(FieldChangeError::Reserved(name.to_owned()));
    }
    Ok(())
}

/// Splits a value at its names in braces.
fn value_parts(text: &str) -> Result<Vec<ValuePart>, FieldChangeError> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let Some(length) = rest[open..].find('}') else {
            let values = ["client", "host", "scheme", "user"];
            if let Some(name) = values.into_iter().find(|name| rest[open + 1..].starts_with(name)) {
                return Err(FieldChangeError::Unclosed(name.to_owned()));
            }
            break;
        };
        let name = &rest[open + 1..open + length];
        if open > 0 {
            parts.push(ValuePart::Text(rest[..open].into()));
        }
        parts.push(match name {
            "client" => ValuePart::Client,
            "host" => ValuePart::Host,
            "scheme" => ValuePart::Scheme,
            "user" => ValuePart::User,
            _ => return Err(FieldChangeError::UnknownValue(name.to_owned())),
        });
        rest = &rest[open + length + 1..];
    }
    if !rest.is_empty() {
        parts.push(ValuePart::Text(rest.into()));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(set: &[(&str, &str)], remove: &[&str]) -> FieldRules {
        FieldRules {
            set: set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            add: [("X-Added".to_owned(), "yes".to_owned())].into(),
            remove: remove.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn fields_are_set_added_and_removed() {
        let rules =
            rules(&[("X-Real-IP", "{client}"), ("X-From", "{scheme}://{host}/ by {user}")], &["Cookie"]);
        let changes = FieldChanges::of(&rules, true).expect("valid");
        for (name, drops) in [("x-real-ip", true), ("COOKIE", true), ("X-Added", false), ("Accept", false)] {
            assert_eq!(changes.drops(name.as_bytes()), drops, "{name}");
        }
        let mut out = Vec::new();
        let values =
            FieldValues { client: "192.0.2.1", host: b"a.example:8080", scheme: "https", user: "ann" };
        changes.put(&mut out, &values);
        assert_eq!(
            String::from_utf8_lossy(&out),
            "X-From: https://a.example:8080/ by ann\r\nX-Real-IP: 192.0.2.1\r\nX-Added: yes\r\n"
        );
    }

    #[test]
    fn rules_that_cannot_be_meant_are_rejected() {
        for (set, remove, key, error) in [
            (&[("a b", "")][..], &[][..], "set", FieldChangeError::Malformed("a b".into())),
            (&[("A", "x\ny")], &[], "set", FieldChangeError::Malformed("A".into())),
            (&[("Connection", "close")], &[], "set", FieldChangeError::Reserved("Connection".into())),
            (&[("A", "{ip}")], &[], "set", FieldChangeError::UnknownValue("ip".into())),
            (&[("A", "for={client")], &[], "set", FieldChangeError::Unclosed("client".into())),
            (&[], &["Host"], "remove", FieldChangeError::OneHost),
            (&[], &["transfer-encoding"], "remove", FieldChangeError::Reserved("transfer-encoding".into())),
        ] {
            assert_eq!(
                FieldChanges::of(&rules(set, remove), true).err(),
                Some((key, error)),
                "{set:?} {remove:?}"
            );
        }
        let error = FieldChanges::of(&rules(&[("A", "{host}")], &[]), false).err();
        assert_eq!(error, Some(("set", FieldChangeError::InResponse("host".into()))));
        assert!(FieldChanges::of(&rules(&[("A", "{ open")], &[]), false).is_ok(), "a brace alone is text");
    }
}
