//! `[auth]`: the rights to publish and subscribe, to list members, and to manage channels.
//!
//! These are values as written in the settings file. [`Section::check`] reports contradictions. Keys, secrets and files are
//! read when the server starts, and must exist then.

use std::fmt;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use encke_settings::{
    Contradiction, Period, Secret, Section, TargetScheme, TargetUrl, ValueError, Written, written,
};
use encke_wire::field;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::act::Act;
use crate::grants;

/// `[auth]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
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
    /// URL of your application that decides when neither a token nor `anonymous` allows a request: `http://`, `https://`, or
    /// `http://unix:PATH:/may` for a Unix socket. Encke sends a GET with the request's Authorization and Cookie,
    /// `X-Encke-Action` (`subscribe`, `publish` or `manage`, which deletes messages) and `X-Encke-Channel`, and the name in a client's certificate as `X-Encke-Certificate`. 2xx allows,
    /// 401 and 403 deny; any other status, and no response within `ask_time`, is a 503. Encke caches a response for the
    /// `max-age` of its `Cache-Control`, at most an hour.
    pub ask: Option<AskUrl>,
    /// PEM file of the authorities that sign the certificate of an `https` application (`ask`). The default is the authorities
    /// of the system.
    pub ask_ca: Option<PathBuf>,
    /// Time limit of a question to the application (`ask`), including its time in the queue, but not the time in which the system
    /// resolves the application's name.
    pub ask_time: Period,
    /// Maximum number of concurrent questions of each worker, and of its connections to the application (`ask`).
    pub ask_connections: NonZeroU16,
    /// Maximum number of queued questions of each worker (`ask`). Above it a request gets a 503.
    pub ask_queue: NonZeroU16,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self {
            anonymous: Vec::new(),
            keys: Vec::new(),
            jwks: None,
            tokens: Vec::new(),
            certificates: Vec::new(),
            cookie: None,
            ask: None,
            ask_ca: None,
            ask_time: Period::seconds(5),
            ask_connections: NonZeroU16::MIN.saturating_add(15),
            ask_queue: NonZeroU16::MIN.saturating_add(63),
        }
    }
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

/// URL of an authorization endpoint: `http://HOST[:PORT]/PATH`, `https://HOST[:PORT]/PATH`, or `http://unix:SOCKET:/PATH`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AskUrl {
    /// Where to connect to.
    place: TargetUrl,
    /// `HOST[:PORT]` as written; `None` for a Unix socket.
    authority: Option<String>,
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
        self.authority.as_deref().unwrap_or("localhost")
    }

    /// Returns where to connect to.
    pub const fn place(&self) -> &TargetUrl {
        &self.place
    }

    /// Makes the relative path of a Unix socket start at `folder`.
    pub(crate) fn anchor(&mut self, folder: &Path) {
        if let Some(socket) = self.place.unix_path() {
            *socket = folder.join(&*socket);
        }
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
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let (place, authority, target) = match rest.strip_prefix("unix:") {
            Some(socket) => {
                let (path, target) = socket.split_once(':').unwrap_or((socket, ""));
                (&rest[.."unix:".len() + path.len()], None, target)
            }
            None => {
                let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
                (authority, Some(authority.to_owned()), target)
            }
        };
        let target = match target.as_bytes() {
            [] => "/".to_owned(),
            [b'?', ..] => format!("/{target}"),
            [b'/', ..] => target.to_owned(),
            _ => return Err(wrong()),
        };
        if !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err(wrong());
        }
        let place: TargetUrl = format!("{scheme}://{place}").parse().map_err(|_| wrong())?;
        if place.scheme() == TargetScheme::FastCgi || place.app().is_some() {
            return Err(wrong());
        }
        Ok(Self { place, authority, target })
    }
}

impl fmt::Display for AskUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.authority {
            Some(authority) => {
                let scheme = if self.place.secure_name().is_some() { "https" } else { "http" };
                write!(f, "{scheme}://{authority}{}", self.target)
            }
            None => write!(f, "{}:{}", self.place, self.target),
        }
    }
}

impl Written for AskUrl {
    const NAME: &'static str = "AskUrl";
    const EXPECTED: &'static str =
        "expected http://HOST[:PORT]/PATH, https://HOST[:PORT]/PATH or http://unix:SOCKET:/PATH";
    const EXAMPLES: &'static [&'static str] =
        &["http://127.0.0.1:3000/may", "http://unix:/run/app.sock:/may"];
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
        keys.chain(tokens).chain(&self.jwks).chain(&self.ask_ca)
    }

    /// Returns the paths of [`AuthSettings::files`] for modification.
    fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let keys = self
            .keys
            .iter_mut()
            .flat_map(|key| key.pem.iter_mut().chain(key.secret.as_mut().and_then(file_of_mut)));
        let tokens = self.tokens.iter_mut().filter_map(|token| file_of_mut(&mut token.token));
        keys.chain(tokens).chain(&mut self.jwks).chain(&mut self.ask_ca)
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
        if let Some(url) = &mut self.ask {
            url.anchor(folder);
        }
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
    fn an_application_has_a_url_by_http_https_or_a_unix_socket() {
        for (text, place, authority, target) in [
            ("http://127.0.0.1", "http://127.0.0.1:80", "127.0.0.1", "/"),
            ("http://localhost:3000/may", "http://localhost:3000", "localhost:3000", "/may"),
            ("http://[::1]:3000?a=b", "http://[::1]:3000", "[::1]:3000", "/?a=b"),
            ("http://app/a/b?c", "http://app:80", "app", "/a/b?c"),
            ("https://app/may", "https://app:443", "app", "/may"),
            ("http://unix:/run/app.sock:/may?x=1", "http://unix:/run/app.sock", "localhost", "/may?x=1"),
            ("http://unix:app.sock", "http://unix:app.sock", "localhost", "/"),
        ] {
            let url: AskUrl = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((url.place().to_string().as_str(), url.authority()), (place, authority), "{text}");
            assert_eq!(url.target(), target, "{text}");
            assert_eq!(url.to_string().parse(), Ok(url), "{text}: written and read again");
        }
        for text in [
            "",
            "localhost:3000",
            "http://",
            "https://",
            "http:///x",
            "http://user@host/",
            "http://h/a b",
            "http://h/\r\nX: y",
            "http://h/#f",
            "http://unix:",
            "http://unix:/run/app.sock:may",
            "ftp://h/",
            "fcgi://127.0.0.1:9000/may",
            "fcgi://unix:/run/fpm.sock:/may",
            // An application that this server supervises: its address is its supervisor's.
            "http://app:auth/check",
            "http://app:auth",
        ] {
            let error = text.parse::<AskUrl>().expect_err(text).to_string();
            assert!(error.contains("expected http://"), "{error}");
        }
    }

    #[test]
    fn the_socket_and_the_authorities_of_the_application_can_be_moved() {
        let mut auth = read(r#"{"ask": "http://unix:app.sock:/may", "ask_ca": "ca.pem"}"#);
        auth.anchor(Path::new("/etc/encke"));
        let socket = Path::new("/etc/encke").join("app.sock");
        let expected = format!("http://unix:{}:/may", socket.display());
        assert_eq!(auth.ask.map(|url| url.to_string()), Some(expected));
        assert_eq!(auth.ask_ca.as_deref(), Some(Path::new("/etc/encke/ca.pem")));
    }
}
