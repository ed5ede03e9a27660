//! Settings of an upstream with several targets: the choice of a target, sticky sessions, checks, and slow start.

use std::num::NonZeroU16;
use std::str::FromStr;

use encke_settings::{Contradiction, Period, ShortForm, ValueError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::UpstreamSettings;

/// The choice of the target for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// Of two targets that are drawn by weight, the one with fewer requests in progress for its weight.
    #[default]
    Two,
    /// The target with the fewest requests in progress for its weight.
    Least,
    /// All targets in turn, by weight.
    RoundRobin,
    /// A hash of a part of the request: equal parts lead to the same target.
    Hash(BalanceKey),
}

/// The part of a request that decides on its target.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BalanceKey {
    /// The client's address.
    Address,
    /// The path without the query.
    Path,
    /// The value of the field with this name.
    Field(String),
    /// The value of the cookie with this name.
    Cookie(String),
}

/// Checks of the targets at regular times.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckSettings {
    /// Path and query of a GET. A check is good if the status of the response is 200 to 399. Without it, and for FastCGI, a check
    /// only establishes a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The field Host of this request. The default is the host and port of the target's URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Time from one check of a target to the next.
    pub every: Period,
    /// Time in which a check must succeed.
    pub time: Period,
    /// Good checks in a row after which a target gets requests again.
    pub rise: NonZeroU16,
    /// Bad checks in a row after which a target gets no more requests, if there is another one.
    pub fall: NonZeroU16,
}

impl Default for CheckSettings {
    fn default() -> Self {
        Self {
            path: None,
            host: None,
            every: Period::seconds(5),
            time: Period::seconds(2),
            rise: NonZeroU16::MIN.saturating_add(1),
            fall: NonZeroU16::MIN.saturating_add(2),
        }
    }
}

impl FromStr for CheckSettings {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        Ok(Self { path: Some(text.to_owned()), ..Self::default() })
    }
}

impl ShortForm for CheckSettings {
    type Text = String;
    const EXPECTED: &'static str = "a path in quotes, or a table { path = …, every = … }";
}

/// The shortest time between two checks of a target.
const EVERY_MIN_MS: u64 = 100;

/// Finds contradictions in the settings of this file.
pub(crate) fn check(settings: &UpstreamSettings) -> Vec<Contradiction> {
    let mut found = Vec::new();
    let mut wrong = |path: &[&str], message: String| found.push(Contradiction::at(path, message));
    if let Some(name) = settings.sticky.as_ref().filter(|name| !is_token(name)) {
        wrong(&["sticky"], format!("{name:?} is no name of a cookie: sticky = \"encke_target\""));
    }
    if let Balance::Hash(key) = &settings.balance {
        match key {
            BalanceKey::Field(name) | BalanceKey::Cookie(name) if !is_token(name) => {
                let message = format!(
                    "{name:?} is no name of a field or cookie: balance = {{ hash = {{ field = \"X-User\" }} }}"
                );
                wrong(&["balance"], message);
            }
            _ => {}
        }
        if settings.slow_start.nanoseconds() > 0 {
            let message = "slow_start has no effect with a hash, which must not change with time: remove one";
            wrong(&["slow_start"], message.to_owned());
        }
    }
    let Some(check) = settings.check.as_ref().map(|check| &check.0) else { return found };
    match &check.path {
        Some(_) if settings.is_fastcgi() => {
            let message =
                "a check of a FastCGI application only establishes a connection: check = { every = \"5s\" }";
            wrong(&["check"], message.to_owned());
        }
        Some(path) if !is_path(path) => {
            wrong(&["check"], format!("{path:?} is no path of a check: check = \"/health\""));
        }
        None if check.host.is_some() => {
            let message = "host has no effect without a path: check = { path = \"/health\", host = … }";
            wrong(&["check"], message.to_owned());
        }
        _ => {}
    }
    if let Some(host) = check.host.as_ref().filter(|host| !is_host(host)) {
        wrong(&["check"], format!("{host:?} is no host of a check: host = \"example.org\""));
    }
    if check.every.nanoseconds() < EVERY_MIN_MS * 1_000_000 {
        wrong(&["check"], format!("checks are at least {EVERY_MIN_MS} ms apart: every = \"5s\""));
    }
    if check.time.nanoseconds() == 0 {
        wrong(&["check"], "a check needs time to succeed: time = \"2s\"".to_owned());
    }
    found
}

/// Whether the text is a token (RFC 9110 §5.6.2).
fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

/// Whether the text can be the target of a request as it is.
fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

fn is_host(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte))
}

#[cfg(test)]
mod tests {
    use encke_settings::{Section as _, TextOrTable};

    use super::*;

    fn settings(change: impl FnOnce(&mut UpstreamSettings)) -> UpstreamSettings {
        let mut settings = UpstreamSettings {
            name: "app".into(),
            to: vec!["3000".parse().expect("a URL")],
            ..UpstreamSettings::default()
        };
        change(&mut settings);
        settings
    }

    fn checked(change: impl FnOnce(&mut CheckSettings)) -> UpstreamSettings {
        let mut check: CheckSettings = "/health".parse().expect("a path");
        change(&mut check);
        settings(|settings| settings.check = Some(TextOrTable(check)))
    }

    #[test]
    fn settings_that_contradict_each_other_are_found() {
        let hash = |key| move |settings: &mut UpstreamSettings| settings.balance = Balance::Hash(key);
        for (settings, key) in [
            (settings(|settings| settings.sticky = Some("a b".into())), "sticky"),
            (settings(|settings| settings.sticky = Some(String::new())), "sticky"),
            (settings(hash(BalanceKey::Field("X User".into()))), "balance"),
            (settings(hash(BalanceKey::Cookie("a;b".into()))), "balance"),
            (
                settings(|settings| {
                    settings.balance = Balance::Hash(BalanceKey::Address);
                    settings.slow_start = Period::seconds(1);
                }),
                "slow_start",
            ),
            (checked(|check| check.path = Some("health".into())), "check"),
            (checked(|check| check.path = Some("/a b".into())), "check"),
            (checked(|check| check.path = Some("/a\r\nX: y".into())), "check"),
            (checked(|check| check.host = Some("a\r\nX: y".into())), "check"),
            (checked(|check| (check.path, check.host) = (None, Some("a".into()))), "check"),
            (checked(|check| check.every = Period::milliseconds(99)), "check"),
            (checked(|check| check.time = Period::milliseconds(0)), "check"),
        ] {
            let found: Vec<_> = settings.check().into_iter().map(|one| one.path.join(".")).collect();
            assert_eq!(found, [key], "{settings:?}");
        }
        let mut fastcgi = checked(|_| {});
        fastcgi.to = vec!["fcgi://127.0.0.1:9000".parse().expect("a URL")];
        assert_eq!(fastcgi.check().len(), 1, "{fastcgi:?}");
        for settings in [
            settings(hash(BalanceKey::Address)),
            settings(hash(BalanceKey::Field("X-User".into()))),
            settings(|settings| settings.sticky = Some("app".into())),
            checked(|_| {}),
            checked(|check| check.path = None),
            checked(|check| check.host = Some("[::1]:80".into())),
        ] {
            assert!(settings.check().is_empty(), "{:?}", settings.check());
        }
    }
}
