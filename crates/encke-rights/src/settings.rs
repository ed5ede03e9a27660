//! `[auth]`: who may publish, subscribe, see who is there, and manage channels.
//!
//! These are values as people write them. [`Section::check`] tells what cannot be meant; keys,
//! secrets and files are looked at when the server starts, which is also when they must be there.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use encke_settings::{Contradiction, Secret, Section, Written, written};
use encke_wire::{field, target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::act::Act;
use crate::grants;

/// `[auth]`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSettings {
    /// What anybody may do on every channel, with or without a token: any of `"publish"`, `"subscribe"`,
    /// `"presence"` and `"manage"`. Without a settings file it is everything for those who ask from this machine
    /// by a name of this machine, and nothing for all others.
    pub anonymous: Vec<Act>,
    /// Keys that sign tokens. A token is taken if one of them verifies it. The kind of a key decides the algorithm,
    /// whatever a token says: a `secret` is for HS256, a P-256 key for ES256, an Ed25519 key for EdDSA.
    pub keys: Vec<KeySettings>,
    /// A file with more such keys as a JWK Set (RFC 7517): EC keys on P-256, OKP keys on Ed25519, `oct` keys for
    /// HS256; others in it are passed over. It is read again on SIGHUP.
    pub jwks: Option<PathBuf>,
    /// Fixed tokens, for programs that publish.
    pub tokens: Vec<StaticToken>,
    /// Clients by their certificates, where a listener asks for them (`tls.client_ca`). A token that comes along counts
    /// in place of the certificate.
    pub certificates: Vec<CertificateRights>,
    /// The name of a cookie that holds a token, for pages that cannot send a header (EventSource, WebSocket).
    /// Requests of other origins than the page's own are refused, unless `push.origins` names them.
    pub cookie: Option<String>,
    /// Asks this URL of your application where no token and not `anonymous` allows it: a GET with the request's
    /// Authorization and Cookie, `X-Encke-Action` and `X-Encke-Channel`, and who a client's certificate is for as
    /// `X-Encke-Certificate`. 2xx allows, 401 and 403 deny, all else
    /// and no answer within 5 s is a 503. An answer is kept as long as its `Cache-Control: max-age` says.
    pub ask: Option<AskUrl>,
}

/// `[[auth.keys]]`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeySettings {
    /// The key's name. A token that names a key (`kid`) is tried with that one, and with keys that have no name.
    pub kid: Option<String>,
    /// A secret shared with the program that makes tokens, at least 32 bytes: `openssl rand -hex 32`. The bytes
    /// of the text are the key. Either this or `pem`.
    pub secret: Option<Secret>,
    /// A PEM file with a public key (P-256 or Ed25519). With a private key `encke token` can sign, too; a server
    /// needs only the public one.
    pub pem: Option<PathBuf>,
}

/// `[[auth.tokens]]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StaticToken {
    /// The token: at least 16 letters, digits or `-._~+/`, such as `openssl rand -hex 16` makes.
    pub token: Secret,
    /// Who has it: its name where members of a channel are listed.
    #[serde(default)]
    pub name: Option<String>,
    /// Patterns of channels it may publish to.
    #[serde(default)]
    pub publish: Vec<String>,
    /// Patterns of channels it may read.
    #[serde(default)]
    pub subscribe: Vec<String>,
    /// Patterns of channels whose members it may see.
    #[serde(default)]
    pub presence: Vec<String>,
    /// Patterns of channels whose messages it may have forgotten.
    #[serde(default)]
    pub manage: Vec<String>,
}

/// `[[auth.certificates]]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateRights {
    /// Who it is for: the common name of the certificate's subject; without any, the first e-mail address, host or URI of
    /// its subjectAltName. `"*"` is everybody with a certificate whom no other entry names.
    pub subject: String,
    /// Patterns of channels they may publish to.
    #[serde(default)]
    pub publish: Vec<String>,
    /// Patterns of channels they may read.
    #[serde(default)]
    pub subscribe: Vec<String>,
    /// Patterns of channels whose members they may see.
    #[serde(default)]
    pub presence: Vec<String>,
    /// Patterns of channels whose messages they may have forgotten.
    #[serde(default)]
    pub manage: Vec<String>,
}

/// Where an application is asked: `http://HOST[:PORT]/PATH`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AskUrl {
    /// `HOST[:PORT]`, as written.
    authority: String,
    /// Path and query.
    target: String,
}

impl StaticToken {
    /// The patterns for an act.
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
    /// The patterns for an act.
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
    /// `HOST[:PORT]`, for the Host field.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Host and port to connect to; an IPv6 address without its brackets.
    pub fn host_and_port(&self) -> (&str, u16) {
        let authority = target::parse_authority(self.authority.as_bytes());
        let port = authority.ok().and_then(|authority| authority.port).unwrap_or(80);
        let host_len = authority.map_or(self.authority.len(), |authority| authority.host.len());
        let host = &self.authority[..host_len];
        (host.trim_start_matches('[').trim_end_matches(']'), port)
    }

    /// Path and query, for the request line.
    pub fn target(&self) -> &str {
        &self.target
    }
}

impl FromStr for AskUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no URL to ask; {}", Self::EXPECTED);
        if text.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://")) {
            return Err(format!(
                "`{text}`: an application cannot be asked over TLS yet; ask it by http:// on this machine or in a \
                 network that nobody else is in"
            ));
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
    /// Every file that it names: none of them is ever served, and relative ones start at the settings file's
    /// folder.
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let keys =
            self.keys.iter().flat_map(|key| key.pem.iter().chain(key.secret.as_ref().and_then(file_of)));
        let tokens = self.tokens.iter().filter_map(|token| file_of(&token.token));
        keys.chain(tokens).chain(&self.jwks)
    }

    /// The same, to be changed.
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
                let message = "auth.keys: a key is either `secret` or `pem`, and one of them is needed";
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

/// The file that a secret is in.
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
            let error = text.parse::<AskUrl>().expect_err(text);
            assert!(error.contains("expected http://"), "{error}");
        }
        for text in ["https://app/may", "HTTPS://app/may"] {
            let error = text.parse::<AskUrl>().expect_err(text);
            assert!(error.contains("over TLS yet"), "{error}");
        }
    }
}
