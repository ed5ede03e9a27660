//! `[auth]`: the rights to publish and subscribe, to list members, and to manage channels.
//!
//! These are values as written in the settings file. [`Section::check`] reports contradictions. Keys, secrets and files are
//! read when the server starts, and must exist then.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use encke_settings::{Contradiction, Secret, Section, ValueError, Written, written};
use encke_wire::{field, target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::act::Act;
use crate::grants;

/// `[auth]`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSettings {
    /// Rights of every client on every channel, with or without a token: any of `"publish"`, `"subscribe"`, `"presence"` and
    /// `"manage"`. Without a settings file, clients on this machine that use a loopback name have all rights, and all others
    /// none.
    pub anonymous: Vec<Act>,
    /// Keys that sign tokens. A token is valid if one of them verifies it. The kind of a key decides the algorithm, whatever a
    /// token says: a `secret` is for HS256, a P-256 key for ES256, an Ed25519 key for EdDSA.
    pub keys: Vec<KeySettings>,
    /// File with more such keys as a JWK Set (RFC 7517): EC keys on P-256, OKP keys on Ed25519, `oct` keys for HS256. Other
    /// keys in it are ignored. Encke reads it again on SIGHUP.
    pub jwks: Option<PathBuf>,
    /// Fixed tokens, for programs that publish.
    pub tokens: Vec<StaticToken>,
    /// Rights of clients by their certificates, on listeners that request them (`tls.client_ca`). A token in the request
    /// replaces the certificate.
    pub certificates: Vec<CertificateRights>,
    /// Name of a cookie that holds a token, for pages that cannot send a header field (EventSource, WebSocket). Requests from
    /// pages of other origins are rejected, unless `push.origins` lists the origin.
    pub cookie: Option<String>,
    /// URL (`http://` only) of your application that decides when neither a token nor `anonymous` allows a request. Encke
    /// sends a GET with the request's Authorization and Cookie, `X-Encke-Action` and `X-Encke-Channel`, and the name in a
    /// client's certificate as `X-Encke-Certificate`. 2xx allows, 401 and 403 deny; any other status, and no response
    /// within 5 s, is a 503. Encke caches a response for the `max-age` of its `Cache-Control`, at most an hour.
    pub ask: Option<AskUrl>,
}

/// `[[auth.keys]]`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeySettings {
    /// Name of the key. Encke verifies a token that names a key (`kid`) with that key, and with keys without a name.
    pub kid: Option<String>,
    /// Secret shared with the program that signs tokens, at least 32 bytes: `openssl rand -hex 32`. The bytes of the text are
    /// the key. Set either this or `pem`.
    pub secret: Option<Secret>,
    /// PEM file with a public key (P-256 or Ed25519). With a private key `encke token` can also sign; a server needs only the
    /// public key.
    pub pem: Option<PathBuf>,
}

/// `[[auth.tokens]]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StaticToken {
    /// The token: at least 16 letters, digits or `-._~+/`, for example from `openssl rand -hex 16`.
    pub token: Secret,
    /// Name of the client with this token, as a member of channels.
    #[serde(default)]
    pub name: Option<String>,
    /// Patterns of channels that it may publish to.
    #[serde(default)]
    pub publish: Vec<String>,
    /// Patterns of channels that it may read.
    #[serde(default)]
    pub subscribe: Vec<String>,
    /// Patterns of channels whose members it may list.
    #[serde(default)]
    pub presence: Vec<String>,
    /// Patterns of channels that it may manage: list them, delete their messages, log users out.
    #[serde(default)]
    pub manage: Vec<String>,
}

/// `[[auth.certificates]]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateRights {
    /// Name in the certificate: the common name of its subject; without one, the first e-mail address, host or URI of its
    /// subjectAltName. `"*"` is every certificate that no other entry names.
    pub subject: String,
    /// Patterns of channels that the client may publish to.
    #[serde(default)]
    pub publish: Vec<String>,
    /// Patterns of channels that the client may read.
    #[serde(default)]
    pub subscribe: Vec<String>,
    /// Patterns of channels whose members the client may list.
    #[serde(default)]
    pub presence: Vec<String>,
    /// Patterns of channels that the client may manage: list them, delete their messages, log users out.
    #[serde(default)]
    pub manage: Vec<String>,
}

/// URL of an authorization endpoint: `http://HOST[:PORT]/PATH`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AskUrl {
    /// `HOST[:PORT]`, as written.
    authority: String,
    /// Path and query.
    target: String,
}

impl StaticToken {
    /// Returns the patterns for a right.
    pub fn patterns(&self, act: Act) -> &[String] {
        match act {
            Act::Publish => &self.publish,
            Act::Subscribe => &self.subscribe,
            Act::Presence => &self.presence,
            Act::Manage => &self.manage,
        }
    }
}

impl CertificateRights {
    /// Returns the patterns for a right.
    pub fn patterns(&self, act: Act) -> &[String] {
        match act {
            Act::Publish => &self.publish,
            Act::Subscribe => &self.subscribe,
            Act::Presence => &self.presence,
            Act::Manage => &self.manage,
        }
    }
}

impl AskUrl {
    /// Returns `HOST[:PORT]`, for the Host field.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the host and port to connect to; an IPv6 address without its brackets.
    pub fn host_and_port(&self) -> (&str, u16) {
        let authority = target::parse_authority(self.authority.as_bytes());
        let port = authority.ok().and_then(|authority| authority.port).unwrap_or(80);
        let host_len = authority.map_or(self.authority.len(), |authority| authority.host.len());
        let host = &self.authority[..host_len];
        (host.trim_start_matches('[').trim_end_matches(']'), port)
    }

    /// Returns path and query, for the request line.
    pub fn target(&self) -> &str {
        &self.target
    }
}

impl FromStr for AskUrl {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::invalid("URL", text, Self::EXPECTED);
        if text.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://")) {
            return Err(ValueError::Unsupported {
                text: text.into(),
                reason: "an application cannot be asked over TLS yet; ask it by http:// on this machine or in a \
                         network that nobody else is in",
            });
        }
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let target = match target.as_bytes() {
            [] => "/".to_owned(),
            [b'?', ..] => format!("/{target}"),
            _ => target.to_owned(),
        };
        let sendable = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if target::parse_authority(authority.as_bytes()).is_err() || !sendable {
            return Err(wrong());
        }
        Ok(Self { authority: authority.to_owned(), target })
    }
}

impl fmt::Display for AskUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.target)
    }
}

impl Written for AskUrl {
    const NAME: &'static str = "AskUrl";
    const EXPECTED: &'static str = "expected http://HOST[:PORT]/PATH";
    const EXAMPLES: &'static [&'static str] = &["http://127.0.0.1:3000/may"];
}

written! { AskUrl }

impl AuthSettings {
    /// Whether the section gives no client any right.
    pub fn grants_nothing(&self) -> bool {
        let by_certificate =
            |one: &CertificateRights| Act::ALL.iter().any(|act| !one.patterns(*act).is_empty());
        self.anonymous.is_empty()
            && self.keys.is_empty()
            && self.jwks.is_none()
            && self.tokens.is_empty()
            && self.ask.is_none()
            && !self.certificates.iter().any(by_certificate)
    }

    /// Returns every file that the section names. Encke serves none of them, and resolves relative paths against the directory
    /// of the settings file.
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let keys =
            self.keys.iter().flat_map(|key| key.pem.iter().chain(key.secret.as_ref().and_then(file_of)));
        let tokens = self.tokens.iter().filter_map(|token| file_of(&token.token));
        keys.chain(tokens).chain(&self.jwks)
    }

    /// Returns the paths of [`AuthSettings::files`] for modification.
    fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let keys = self
            .keys
            .iter_mut()
            .flat_map(|key| key.pem.iter_mut().chain(key.secret.as_mut().and_then(file_of_mut)));
        let tokens = self.tokens.iter_mut().filter_map(|token| file_of_mut(&mut token.token));
        keys.chain(tokens).chain(&mut self.jwks)
    }
}

impl Section for AuthSettings {
    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let mut wrong = |path: &[&str], message: String| found.push(Contradiction::at(path, message));
        for (place, key) in self.keys.iter().enumerate() {
            if key.secret.is_some() == key.pem.is_some() {
                let message = "auth.keys: a key has either `secret` or `pem`: set one of them";
                wrong(&["keys", &place.to_string()], message.into());
            }
        }
        for (place, token) in self.tokens.iter().enumerate() {
            let place = place.to_string();
            let all = || {
                Act::ALL.into_iter().flat_map(|act| token.patterns(act).iter().map(move |text| (act, text)))
            };
            if all().next().is_none() {
                let message = "auth.tokens: this token allows nothing: name channels in `publish`, `subscribe`, \
                               `presence` or `manage`";
                wrong(&["tokens", &place], message.into());
            }
            for (act, text) in all() {
                if let Err(error) = grants::pattern(text) {
                    wrong(&["tokens", &place, act.name()], format!("auth.tokens: {error}"));
                }
            }
        }
        for (place, one) in self.certificates.iter().enumerate() {
            let place = place.to_string();
            for (act, text) in
                Act::ALL.into_iter().flat_map(|act| one.patterns(act).iter().map(move |text| (act, text)))
            {
                if let Err(error) = grants::pattern(text) {
                    wrong(&["certificates", &place, act.name()], format!("auth.certificates: {error}"));
                }
            }
        }
        for (place, one) in self.certificates.iter().enumerate() {
            if self.certificates[..place].iter().any(|earlier| earlier.subject == one.subject) {
                let message = format!("auth.certificates names {:?} twice", one.subject);
                wrong(&["certificates", &place.to_string(), "subject"], message);
            }
        }
        if let Some(cookie) = &self.cookie
            && !field::is_token(cookie.as_bytes())
        {
            wrong(&["cookie"], format!("auth.cookie: `{cookie}` is not the name of a cookie"));
        }
        found
    }

    fn anchor(&mut self, folder: &Path) {
        for path in self.files_mut() {
            *path = folder.join(&*path);
        }
    }

    fn private_files(&self) -> Vec<PathBuf> {
        self.files().cloned().collect()
    }
}

/// Returns the file of a secret, if it is in one.
fn file_of(secret: &Secret) -> Option<&PathBuf> {
    match secret {
        Secret::File(path) => Some(path),
        Secret::Text(_) | Secret::Env(_) => None,
    }
}

fn file_of_mut(secret: &mut Secret) -> Option<&mut PathBuf> {
    match secret {
        Secret::File(path) => Some(path),
        Secret::Text(_) | Secret::Env(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a JSON object as TOML tables would be read.
    fn read(json: &str) -> AuthSettings {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    #[test]
    fn every_key_is_read() {
        let auth = read(
            r#"{
                "anonymous": ["subscribe", "publish", "presence", "manage"],
                "keys": [{"kid": "a", "secret": {"env": "KEY"}}, {"pem": "key.pem"}],
                "jwks": "keys.json", "cookie": "session", "ask": "http://127.0.0.1:3000/may?x=1",
                "tokens": [{"token": {"file": "t"}, "name": "shop", "publish": ["orders/**"]}]
            }"#,
        );
        assert_eq!(auth.anonymous, [Act::Subscribe, Act::Publish, Act::Presence, Act::Manage]);
        assert_eq!(auth.keys[1].pem.as_deref(), Some("key.pem".as_ref()));
        assert_eq!(auth.tokens[0].patterns(Act::Publish), ["orders/**"]);
        assert_eq!(
            auth.ask.as_ref().map(ToString::to_string).as_deref(),
            Some("http://127.0.0.1:3000/may?x=1")
        );
        assert_eq!(auth.check(), []);
        let files: Vec<_> = auth.files().map(|path| path.display().to_string()).collect();
        assert_eq!(files, ["key.pem", "t", "keys.json"]);
    }

    #[test]
    fn every_file_can_be_moved() {
        let mut auth = read(
            r#"{"keys": [{"secret": {"file": "s"}}, {"pem": "p"}], "jwks": "j",
                "tokens": [{"token": {"file": "t"}, "publish": ["**"]}, {"token": "in place", "publish": ["**"]}]}"#,
        );
        for path in auth.files_mut() {
            *path = std::path::Path::new("/etc/encke").join(&*path);
        }
        assert!(auth.files().all(|path| path.starts_with("/etc/encke")) && auth.files().count() == 4);
    }

    #[test]
    fn what_cannot_be_meant_is_told_with_its_place() {
        for (json, place, reason) in [
            (r#"{"keys": [{"kid": "a"}]}"#, "keys.0", "either `secret` or `pem`"),
            (
                r#"{"keys": [{"pem": "a"}, {"pem": "a", "secret": "b"}]}"#,
                "keys.1",
                "either `secret` or `pem`",
            ),
            (r#"{"tokens": [{"token": "a"}]}"#, "tokens.0", "allows nothing"),
            (r#"{"tokens": [{"token": "a", "subscribe": ["a//b"]}]}"#, "tokens.0.subscribe", "auth.tokens: "),
            (r#"{"cookie": "a b"}"#, "cookie", "`a b` is not the name of a cookie"),
            (r#"{"cookie": ""}"#, "cookie", "not the name of a cookie"),
        ] {
            let found = read(json).check();
            let [Contradiction { path, message }] = &found[..] else { panic!("{json}: {found:?}") };
            assert!(path.join(".") == place && message.contains(reason), "{json}: {found:?}");
        }
    }

    #[test]
    fn an_application_is_asked_by_http() {
        for (text, host, port, target) in [
            ("http://127.0.0.1", "127.0.0.1", 80, "/"),
            ("http://localhost:3000/may", "localhost", 3000, "/may"),
            ("http://[::1]:3000?a=b", "::1", 3000, "/?a=b"),
            ("http://app/a/b?c", "app", 80, "/a/b?c"),
        ] {
            let url: AskUrl = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((url.host_and_port(), url.target()), ((host, port), target), "{text}");
        }
        for text in [
            "",
            "localhost:3000",
            "http://",
            "http:///x",
            "http://user@host/",
            "http://h/a b",
            "http://h/\r\nX: y",
            "http://h/#f",
            "ftp://h/",
        ] {
            let error = text.parse::<AskUrl>().expect_err(text).to_string();
            assert!(error.contains("expected http://"), "{error}");
        }
        for text in ["https://app/may", "HTTPS://app/may"] {
            let error = text.parse::<AskUrl>().expect_err(text).to_string();
            assert!(error.contains("over TLS yet"), "{error}");
        }
    }
}
