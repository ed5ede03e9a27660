//! Rights: made from settings, replaced whole at a reload, and asked by every worker.

use std::borrow::Cow;
use std::collections::HashMap;
use std::iter;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use encke_hub::Name;
use encke_wire::field::Known;
use encke_wire::target;

use crate::act::Act;
use crate::ask::{Question, Verdict};
use crate::denial::Denial;
use crate::grants::{Acts, Grants};
use crate::keys::{self, Digest, KEYS_MAX, Key};
use crate::open::{Openness, Shut};
use crate::origins::{Origins, Page};
use crate::settings::{AskUrl, AuthSettings, StaticToken};
use crate::share::Share;
use crate::table::Table;
use crate::token::{self, TOKEN_BYTES_MAX};
use encke_server::{Request, household};

/// Fixed tokens there may be: each request with a token that this worker has not seen is compared with all.
const TOKENS_MAX: usize = 1024;

/// Characters of a fixed token: 16 hexadecimal digits are 64 bits, which nobody guesses over a network.
const STATIC_TOKEN_BYTES_MIN: usize = 16;

/// Who may do what, by the settings of one moment.
pub struct Rights {
    /// Tells these rights from those before a reload.
    serial: u64,
    anonymous: Acts,
    keys: Box<[Key]>,
    tokens: Box<[Fixed]>,
    /// By subject.
    certificates: HashMap<String, Grants>,
    cookie: Option<Box<str>>,
    ask: Option<AskUrl>,
    origins: Origins,
    openness: Openness,
}

/// A fixed token.
struct Fixed {
    digest: Digest,
    name: Option<Arc<str>>,
    grants: Grants,
}

/// Who asks. A clone costs a count.
#[derive(Clone, Debug)]
pub struct Identity(Arc<Somebody>);

/// What is known of somebody.
#[derive(Debug)]
pub struct Somebody {
    /// The user's name, if a token says it.
    pub name: Option<Arc<str>>,
    /// What they may do.
    pub grants: Grants,
    /// When that ends, in seconds since 1970.
    pub expires_unix_s: Option<u64>,
    credential: Credential,
}

/// How somebody has come to be who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Credential {
    /// By nothing; and why that does not open everything.
    Nobody(Shut),
    /// By nothing, and the server is open to them.
    Open,
    /// By a fixed token.
    Fixed(Digest),
    /// By a token that this key has signed.
    Signed(Digest),
    /// By the certificate of their TLS.
    Certified,
}

/// What a worker remembers: who came with which token, and what an application has answered; at most 4,096 of each.
///
/// Empty at first: 160 KiB for either when there is something to remember, and some 300 bytes a token. One that
/// names as many channels as fit takes 20 KiB, so whoever may sign could fill 80 MiB.
#[derive(Default)]
pub struct TokenCache(Option<Box<Memory>>);

/// What is known under the rights of one moment.
struct Memory {
    /// Of those rights.
    serial: u64,
    open: Identity,
    /// Nobody, by the reason for which the server is not open to them.
    nobody: [Identity; Shut::ALL.len()],
    tokens: Table<Identity>,
    answers: Table<Answer>,
}

/// What an application has answered.
struct Answer {
    until_unix_s: u64,
    denial: Option<Denial>,
}

/// What [`Rights::decide`] comes to.
pub enum Decision {
    /// They may.
    Allowed,
    /// They may not.
    Denied(Denial),
    /// The application decides: ask it on the offload pool ([`Question::ask`]), and hand its verdict to
    /// [`TokenCache::learn`].
    Ask(Box<Question>),
}

impl Rights {
    /// Reads keys, secrets and files; `origins` is `push.origins`.
    ///
    /// # Errors
    /// What of it is not to be had or cannot be meant.
    pub fn new(auth: &AuthSettings, origins: &[String], openness: Openness) -> Result<Self, String> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let mut keys = Vec::new();
        for (place, key) in auth.keys.iter().enumerate() {
            keys.push(
                Key::of_settings(key).map_err(|error| format!("auth.keys, number {}: {error}", place + 1))?,
            );
        }
        if let Some(path) = &auth.jwks {
            keys.extend(keys::of_jwks(path).map_err(|error| format!("auth.jwks: {error}"))?);
        }
        if keys.len() > KEYS_MAX {
            return Err(format!("auth: there are {} keys; {KEYS_MAX} is the most", keys.len()));
        }
        if auth.tokens.len() > TOKENS_MAX {
            return Err(format!("auth.tokens: there are {}; {TOKENS_MAX} is the most", auth.tokens.len()));
        }
        let mut tokens = Vec::new();
        for (place, token) in auth.tokens.iter().enumerate() {
            let fixed =
                Fixed::new(token).map_err(|error| format!("auth.tokens, number {}: {error}", place + 1))?;
            tokens.push(fixed);
        }
        let mut certificates = HashMap::new();
        for one in &auth.certificates {
            let grants = Grants::named(|act| one.patterns(act))
                .map_err(|error| format!("auth.certificates, {:?}: {error}", one.subject))?;
            certificates.insert(one.subject.clone(), grants);
        }
        let origins = Origins::new(origins).map_err(|error| format!("push.origins: {error}"))?;
        if origins.are_all() && (auth.cookie.is_some() || auth.ask.is_some() || !auth.certificates.is_empty())
        {
            return Err("push.origins = [\"*\"] would let every page on the Internet use the cookies and certificates of \
                        whoever looks at it (auth.cookie, auth.ask, auth.certificates): name the origins"
                .into());
        }
        Ok(Self {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            anonymous: auth.anonymous.iter().copied().collect(),
            keys: keys.into(),
            tokens: tokens.into(),
            certificates,
            cookie: auth.cookie.as_deref().map(Into::into),
            ask: auth.ask.clone(),
            origins,
            openness,
        })
    }

    /// Who sends a request.
    ///
    /// # Errors
    /// A page of another site does, or the token is worth nothing.
    pub fn identify(&self, request: &Request<'_>, cache: &mut TokenCache) -> Result<Identity, Denial> {
        let page = self.origins.page(request);
        let open = self.openness.admits(request, page);
        if let (Page::Foreign(_), Err(_)) = (page, open) {
            return Err(Denial::Forbidden(
                "the request comes from a page of another site; its origin is not in push.origins".into(),
            ));
        }
        let memory = cache.memory(self);
        let without = match open {
            Ok(()) => &memory.open,
            Err(shut) => &memory.nobody[shut as usize],
        };
        // Where no token can be right, none is wrong either.
        let token = if self.takes_tokens() { self.token(request)? } else { None };
        let Some(token) = token else {
            let certified = if open.is_ok() { None } else { self.certified(request)? };
            return Ok(certified.unwrap_or_else(|| without.clone()));
        };
        let (digest, now_s) = (Digest::of(token.as_bytes()), request.now().unix_s());
        if let Some(identity) = memory.tokens.find(&digest)
            && !identity.has_expired(now_s)
        {
            return Ok(identity.clone());
        }
        match self.verify(&token, digest, now_s) {
            Ok(identity) => {
                memory.tokens.keep(digest, identity.clone());
                Ok(identity)
            }
            // It may be the application's own.
            Err(_) if self.ask.is_some() => Ok(without.clone()),
            Err(fault) => Err(Denial::Unauthorized(format!("the token is not taken: {fault}"))),
        }
    }

    /// The identity of a client certificate, if the connection has one.
    ///
    /// # Errors
    /// The certificate was valid during the handshake and has expired since.
    fn certified(&self, request: &Request<'_>) -> Result<Option<Identity>, Denial> {
        let Some(client) = request.tls().and_then(|tls| tls.client.as_ref()) else { return Ok(None) };
        let identity = Identity(Arc::new(Somebody {
            grants: self.grants_of(&client.name),
            name: Some(Arc::clone(&client.name)),
            expires_unix_s: Some(client.expires_unix_s),
            credential: Credential::Certified,
        }));
        if identity.has_expired(request.now().unix_s()) {
            let text = "the client certificate has expired: connect again with a valid one";
            return Err(Denial::Unauthorized(text.into()));
        }
        Ok(Some(identity))
    }

    /// What a certificate's subject may do.
    fn grants_of(&self, subject: &str) -> Grants {
        match self.certificates.get(subject).or_else(|| self.certificates.get("*")) {
            Some(grants) => grants.with_everywhere(self.anonymous),
            None => Grants::everywhere(self.anonymous),
        }
    }

    /// Whether somebody may do something, as far as it is known here.
    pub fn decide(
        &self,
        identity: &Identity,
        act: Act,
        channel: &Name,
        request: &Request<'_>,
        cache: &mut TokenCache,
    ) -> Decision {
        if identity.may(act, channel) {
            return Decision::Allowed;
        }
        let Some(url) = &self.ask else { return Decision::Denied(identity.denial(act, channel)) };
        let mut cookies = request.all(Known::Cookie);
        let question = Question {
            serial: self.serial,
            url: url.clone(),
            act,
            channel: channel.clone(),
            authorization: request
                .known(Known::Authorization)
                .map(Into::into)
                .or_else(|| Some([b"Bearer ", query_token(request).ok()??.as_bytes()].concat().into())),
            // Several fields are as good as one (RFC 9113 §8.2.3).
            cookie: cookies
                .next()
                .map(|first| iter::once(first).chain(cookies).collect::<Vec<_>>().join(&b"; "[..]).into()),
            certificate: request
                .tls()
                .and_then(|tls| tls.client.as_ref())
                .map(|client| client.name.as_bytes().into()),
        };
        let answers = &mut cache.memory(self).answers;
        match answers.find(&question.digest()) {
            Some(answer) if request.now().unix_s() < answer.until_unix_s => match &answer.denial {
                None => Decision::Allowed,
                Some(denial) => Decision::Denied(denial.clone()),
            },
            _ => Decision::Ask(Box::new(question)),
        }
    }

    /// The same somebody under these rights, which have replaced those before: `None` if what they came with is worth
    /// nothing any more.
    pub fn renew(&self, identity: &Identity) -> Option<Identity> {
        let (grants, credential) = match identity.credential {
            Credential::Open if !matches!(self.openness, Openness::Shut(_)) => {
                (Grants::everywhere(Acts::ALL), Credential::Open)
            }
            Credential::Open => (Grants::everywhere(self.anonymous), Credential::Nobody(Shut::Settings)),
            Credential::Nobody(shut) => (Grants::everywhere(self.anonymous), Credential::Nobody(shut)),
            Credential::Fixed(digest) => {
                let fixed = self.tokens.iter().find(|fixed| fixed.digest == digest)?;
                (fixed.grants.with_everywhere(self.anonymous), identity.credential)
            }
            Credential::Certified => {
                (self.grants_of(identity.name.as_deref().unwrap_or_default()), identity.credential)
            }
            Credential::Signed(print) => {
                self.keys.iter().find(|key| key.print == print)?;
                (identity.grants.with_everywhere(self.anonymous), identity.credential)
            }
        };
        let (name, expires_unix_s) = (identity.name.clone(), identity.expires_unix_s);
        Some(Identity(Arc::new(Somebody { name, grants, expires_unix_s, credential })))
    }

    /// Whether those who came without a token may still read channels, as far as it is known here.
    pub fn admits_nobody(&self) -> bool {
        !matches!(self.openness, Openness::Shut(_))
            || self.anonymous.has(Act::Subscribe)
            || self.ask.is_some()
    }

    /// Whether the page that sent a request may read the answer, though it is of another origin (CORS).
    pub fn share(&self, request: &Request<'_>) -> Share {
        match self.origins.page(request) {
            Page::None | Page::Same => Share::Nobody,
            Page::Listed(origin) => self.origins.named(origin).map_or(Share::Anybody, Share::Page),
            page @ Page::Foreign(_) if self.openness.admits(request, page).is_ok() => Share::Anybody,
            Page::Foreign(_) => Share::Nobody,
        }
    }

    /// Distinguishes these rights from those before and after a reload.
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    fn takes_tokens(&self) -> bool {
        !self.keys.is_empty() || !self.tokens.is_empty()
    }

    /// The token that a request carries.
    fn token<'a>(&self, request: &Request<'a>) -> Result<Option<Cow<'a, str>>, Denial> {
        let token = match bearer_token(request)? {
            Some(token) => Some(token),
            None => query_token(request)?,
        };
        match (token, &self.cookie) {
            (None, Some(name)) => cookie_token(request, name),
            (token, _) => Ok(token),
        }
    }

    fn verify(&self, token: &str, digest: Digest, now_s: u64) -> Result<Identity, token::Fault> {
        // Each is looked at whole, so that the time it takes tells nothing of any.
        let mut fixed = None;
        for one in &self.tokens {
            if one.digest.is(&digest) {
                fixed = Some(one);
            }
        }
        let somebody = if let Some(fixed) = fixed {
            Somebody {
                name: fixed.name.clone(),
                grants: fixed.grants.with_everywhere(self.anonymous),
                expires_unix_s: None,
                credential: Credential::Fixed(digest),
            }
        } else {
            let statement = token::verify(token, &self.keys, now_s)?;
            Somebody {
                name: statement.subject.map(Into::into),
                grants: statement.grants.with_everywhere(self.anonymous),
                expires_unix_s: statement.expires_unix_s,
                credential: Credential::Signed(statement.key.print),
            }
        };
        Ok(Identity(Arc::new(somebody)))
    }
}

impl Identity {
    fn new(grants: Grants, credential: Credential) -> Self {
        Self(Arc::new(Somebody { name: None, grants, expires_unix_s: None, credential }))
    }

    /// Whether they may do something without anybody being asked.
    pub fn may(&self, act: Act, channel: &Name) -> bool {
        self.grants.allow(act, channel)
    }

    /// Whether it is the same value: clones are.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether they may publish only because anybody may: then there is a limit to how fast.
    pub fn publishes_as_anybody(&self) -> bool {
        matches!(self.credential, Credential::Nobody(_)) && self.grants.is_everywhere(Act::Publish)
    }

    /// Whether the token or certificate has expired at this time, in seconds since 1970.
    pub fn has_expired(&self, now_unix_s: u64) -> bool {
        self.expires_unix_s.is_some_and(|end_s| end_s <= now_unix_s)
    }

    /// Whether a token or a certificate has told who they are.
    pub fn is_somebody(&self) -> bool {
        matches!(self.credential, Credential::Fixed(_) | Credential::Signed(_) | Credential::Certified)
    }

    /// What to answer when they may not.
    pub fn denial(&self, act: Act, channel: &Name) -> Denial {
        let act = match act {
            Act::Publish => "publish to",
            Act::Subscribe => "read",
            Act::Presence => "see who is on",
            Act::Manage => "forget the messages of",
        };
        match self.credential {
            Credential::Nobody(shut) => {
                Denial::Unauthorized(format!("nobody may {act} {channel} without a token: {}", shut.hint()))
            }
            Credential::Certified => {
                Denial::Forbidden(format!("this certificate does not allow to {act} {channel}"))
            }
            _ => Denial::Forbidden(format!("this token does not allow to {act} {channel}")),
        }
    }

    /// A number for whoever publishes, the same for all tokens of a user: by it keys of idempotency are told apart.
    /// Somebody without a name is their address (of IPv6 its /64 network).
    pub fn publisher(&self, request: &Request<'_>) -> u64 {
        let digest = match (&self.name, self.credential) {
            (Some(name), _) => Digest::of(&[b"name", name.as_bytes()].concat()),
            (None, Credential::Fixed(digest) | Credential::Signed(digest)) => digest,
            (None, Credential::Nobody(_) | Credential::Open | Credential::Certified) => {
                return client_number(request.origin().client);
            }
        };
        digest.short()
    }

    /// Whether limits by client address do not apply: the server is open to this machine, or to all for a demonstration.
    pub fn is_unlimited(&self) -> bool {
        matches!(self.credential, Credential::Open)
    }
}

/// A number for a client address; of IPv6, for its /64 network. `None` is a Unix socket. IPv4 has the numbers of ::/16, which
/// is reserved.
pub fn client_number(address: Option<IpAddr>) -> u64 {
    match address.map(household) {
        Some(IpAddr::V4(v4)) => 0xffff << 32 | u64::from(v4.to_bits()),
        Some(IpAddr::V6(v6)) => (v6.to_bits() >> 64) as u64,
        None => u64::MAX,
    }
}

impl Deref for Identity {
    type Target = Somebody;

    fn deref(&self) -> &Somebody {
        &self.0
    }
}

impl TokenCache {
    /// Remembers what an application has answered, as long as it allows.
    pub fn learn(&mut self, question: &Question, verdict: &Verdict, now_unix_s: u64) {
        let (kept_s, denial) = match verdict {
            Verdict::Allowed { kept_s } => (*kept_s, None),
            Verdict::Denied { denial, kept_s } => (*kept_s, Some(denial.clone())),
            Verdict::Unanswered(_) => return,
        };
        // Since it was asked other rights may have come, and another application.
        if let Some(memory) = self.0.as_mut().filter(|memory| kept_s > 0 && memory.serial == question.serial)
        {
            let answer = Answer { until_unix_s: now_unix_s.saturating_add(kept_s), denial };
            memory.answers.keep(question.digest(), answer);
        }
    }

    /// What is known under these rights; what was known under others is forgotten.
    fn memory(&mut self, rights: &Rights) -> &mut Memory {
        if self.0.as_ref().is_none_or(|memory| memory.serial != rights.serial) {
            self.0 = None;
        }
        self.0.get_or_insert_with(|| {
            let nobody = |shut| Identity::new(Grants::everywhere(rights.anonymous), Credential::Nobody(shut));
            Box::new(Memory {
                serial: rights.serial,
                open: Identity::new(Grants::everywhere(Acts::ALL), Credential::Open),
                nobody: Shut::ALL.map(nobody),
                tokens: Table::new(),
                answers: Table::new(),
            })
        })
    }
}

impl Fixed {
    fn new(settings: &StaticToken) -> Result<Self, String> {
        let token = settings.token.reveal()?;
        if token.len() < STATIC_TOKEN_BYTES_MIN {
            let bytes = token.len();
            return Err(format!(
                "a token of {bytes} characters can be guessed, it needs {STATIC_TOKEN_BYTES_MIN}; make one with \
                 `openssl rand -hex 16`"
            ));
        }
        if !is_token68(token.as_bytes()) {
            return Err(
                "a token is made of letters, digits and `-._~+/`: no field and no query holds others".into(),
            );
        }
        Ok(Self {
            digest: Digest::of(token.as_bytes()),
            name: settings.name.as_deref().map(Into::into),
            grants: Grants::named(|act| settings.patterns(act))?,
        })
    }
}

/// The token of `Authorization: Bearer …`. Other schemes are somebody else's: a proxy's, an application's.
fn bearer_token<'a>(request: &Request<'a>) -> Result<Option<Cow<'a, str>>, Denial> {
    let mut fields = request.all(Known::Authorization);
    let Some(value) = fields.next() else { return Ok(None) };
    if fields.next().is_some() {
        return Err(ambiguous("Authorization"));
    }
    let scheme_len = value.iter().position(|&byte| byte == b' ').unwrap_or(value.len());
    let (scheme, token) = value.split_at(scheme_len);
    if scheme.eq_ignore_ascii_case(b"bearer") { token_of(token.trim_ascii()).map(Some) } else { Ok(None) }
}

/// The token of `?access_token=` (RFC 6750 §2.3).
fn query_token<'a>(request: &Request<'a>) -> Result<Option<Cow<'a, str>>, Denial> {
    let query = request.query().unwrap_or_default();
    let mut values =
        target::query_pairs(query).filter(|(name, _)| name == "access_token").map(|(_, value)| value);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(Cow::Borrowed(token)), None) => token_of(token.as_bytes()).map(Some),
        (Some(Cow::Owned(token)), None) => {
            token_of(token.as_bytes()).map(|token| Some(token.into_owned().into()))
        }
        (Some(_), Some(_)) => Err(ambiguous("access_token")),
    }
}

/// The token in a cookie (RFC 6265 §4.2). One without a value was taken away.
fn cookie_token<'a>(request: &Request<'a>, name: &str) -> Result<Option<Cow<'a, str>>, Denial> {
    let pairs = request.all(Known::Cookie).flat_map(|field| field.split(|&byte| byte == b';'));
    let mut found = None;
    for pair in pairs {
        let Some(value) =
            pair.trim_ascii_start().strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
        else {
            continue;
        };
        let value = value.trim_ascii();
        let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        // A subdomain can set a cookie of the same name beside ours: which of them comes first tells nothing.
        if found.is_some_and(|other| other != value) {
            return Err(ambiguous("Cookie"));
        }
        found = Some(value);
    }
    found.filter(|value| !value.is_empty()).map(token_of).transpose()
}

fn ambiguous(place: &str) -> Denial {
    Denial::Unauthorized(format!("there is more than one token in {place}: which one counts?"))
}

fn token_of(bytes: &[u8]) -> Result<Cow<'_, str>, Denial> {
    if bytes.len() <= TOKEN_BYTES_MAX && is_token68(bytes) {
        Ok(String::from_utf8_lossy(bytes))
    } else {
        let text =
            "the token is not taken: it has characters that no token has, none, or more than 8 KiB of them";
        Err(Denial::Unauthorized(text.into()))
    }
}

/// What can stand behind `Bearer` (RFC 6750 §2.1), and so nothing that ends a line.
fn is_token68(bytes: &[u8]) -> bool {
    let end = bytes.iter().rposition(|&byte| byte != b'=').map_or(0, |at| at + 1);
    end > 0 && bytes[..end].iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte))
}

impl AuthSettings {
    /// Looks whether keys, secrets and files are there and can be used.
    ///
    /// # Errors
    /// What of it is not so.
    pub fn try_keys(&self) -> Result<(), String> {
        Rights::new(self, &[], Openness::Shut(Shut::Settings)).map(drop)
    }
}

#[cfg(test)]
pub(crate) mod tests;
