//! Rights: built from the settings, replaced as a whole at a reload, and queried by every worker.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::iter;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use encke_hub::Name;
use encke_wire::field::Known;
use encke_wire::target;

use crate::act::Act;
use crate::ask::{AskVerdict, Question};
use crate::ask_client::{AskClient, AskEndpoint};
use crate::denial::Denial;
use crate::error::{RightsError, StaticTokenError};
use crate::grants::{Acts, Grants};
use crate::keys::{self, Digest, Key};
use crate::limits::{KEYS_MAX, STATIC_TOKEN_BYTES_MIN, TOKEN_BYTES_MAX, TOKENS_MAX};
use crate::open::{Openness, Shut};
use crate::origins::{Origins, RequestPage};
use crate::settings::{AuthSettings, StaticToken};
use crate::share::Share;
use crate::table::Table;
use crate::token;
use encke_server::{HandlerContext, Request, household};

/// The rights that one version of the settings grants.
pub struct Rights {
    /// Distinguishes these rights from earlier and later ones. Each reload has its own number.
    serial: u64,
    anonymous: Acts,
    keys: Box<[Key]>,
    tokens: Box<[Fixed]>,
    /// By subject.
    certificates: HashMap<String, Grants>,
    cookie: Option<Box<str>>,
    ask: Option<Arc<AskEndpoint>>,
    origins: Origins,
    openness: Openness,
}

/// A static token.
struct Fixed {
    digest: Digest,
    name: Option<Arc<str>>,
    grants: Grants,
}

/// The identity of a client, anonymous or authenticated. Cloning increments a reference count.
#[derive(Clone, Debug)]
pub struct Principal(Arc<PrincipalData>);

/// The content of a [`Principal`].
#[derive(Debug)]
pub struct PrincipalData {
    /// The user's name: a token's `sub`, a static token's `name`, or a certificate's subject.
    pub name: Option<Arc<str>>,
    /// The acts that the client may do.
    pub grants: Grants,
    /// Expiry of the token or certificate, in seconds since 1970.
    pub expires_unix_s: Option<u64>,
    credential: Credential,
}

/// The expiry of an ended identity, in seconds since 1970. A token with this expiry is rejected, so no other identity has it.
const ENDED: u64 = 0;

/// The expiry of an identity whose right a reload has removed. It has passed, as [`ENDED`] has.
const REVOKED: u64 = 1;

/// The credential of an identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Credential {
    /// None, and the reason why open mode does not apply.
    Nobody(Shut),
    /// None, and the server is open to the client.
    Open,
    /// A static token, by its digest.
    Fixed(Digest),
    /// A signed token, by the digest of its key.
    Signed(Digest),
    /// The certificate of the client's TLS session.
    Certified,
}

/// A worker's cache of verified tokens and of verdicts from the application, at most 4,096 of each.
///
/// Each table is allocated at its first entry: 160 KiB for tokens, 288 KiB for verdicts. A token adds about 300 bytes. A token
/// with as many channels as fit takes 20 KiB, so a malicious signer could fill 80 MiB.
#[derive(Default)]
pub struct TokenCache(Option<Box<TokenCacheState>>);

/// The cached results under one set of rights.
struct TokenCacheState {
    /// The serial of those rights.
    serial: u64,
    open: Principal,
    /// Anonymous identities, indexed by the reason why open mode does not apply.
    nobody: [Principal; Shut::ALL.len()],
    tokens: Table<Principal>,
    answers: Table<CachedVerdict>,
}

/// A cached verdict of the application.
struct CachedVerdict {
    until_unix_s: u64,
    denial: Option<Denial>,
}

/// The result of [`Rights::decide`].
pub enum Decision {
    /// The act is allowed.
    Allowed,
    /// The act is denied.
    Denied(Denial),
    /// The application decides. Send the question by [`AskClient::ask`], and pass its verdict to [`TokenCache::learn`].
    Ask(Box<Question>),
}

impl Rights {
    /// Loads keys, secrets and files; `origins` is `push.origins`.
    ///
    /// # Errors
    /// A key, secret or file cannot be loaded, or a setting is invalid.
    pub fn new(auth: &AuthSettings, origins: &[String], openness: Openness) -> Result<Self, RightsError> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let mut keys = Vec::new();
        for (place, key) in auth.keys.iter().enumerate() {
            keys.push(Key::of_settings(key).map_err(|error| RightsError::Key(place + 1, error))?);
        }
        if let Some(path) = &auth.jwks {
            keys.extend(keys::of_jwks(path).map_err(RightsError::KeySet)?);
        }
        if keys.len() > KEYS_MAX {
            return Err(RightsError::Keys(keys.len()));
        }
        if auth.tokens.len() > TOKENS_MAX {
            return Err(RightsError::Tokens(auth.tokens.len()));
        }
        let mut tokens = Vec::new();
        for (place, token) in auth.tokens.iter().enumerate() {
            tokens.push(Fixed::new(token).map_err(|error| RightsError::Token(place + 1, error))?);
        }
        let mut certificates = HashMap::new();
        for one in &auth.certificates {
            let grants = Grants::named(|act| one.patterns(act))
                .map_err(|(_, error)| RightsError::Certificate(one.subject.clone(), error))?;
            certificates.insert(one.subject.clone(), grants);
        }
        let origins = Origins::new(origins)?;
        if origins.are_all() && (auth.cookie.is_some() || auth.ask.is_some() || !auth.certificates.is_empty())
        {
            return Err(RightsError::AllOrigins);
        }
        Ok(Self {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            anonymous: auth.anonymous.iter().copied().collect(),
            keys: keys.into(),
            tokens: tokens.into(),
            certificates,
            cookie: auth.cookie.as_deref().map(Into::into),
            ask: AskEndpoint::of(auth).map_err(RightsError::AskTls)?,
            origins,
            openness,
        })
    }

    /// Returns the client by which a worker asks the application, if the settings name one.
    pub fn ask_client(&self, context: HandlerContext) -> Option<AskClient> {
        self.ask.as_ref().map(|endpoint| AskClient::new(context, Arc::clone(endpoint)))
    }

    /// Returns the identity of a request's client.
    ///
    /// # Errors
    /// The request comes from a page of another site, or its token or certificate is invalid.
    pub fn identify(&self, request: &Request<'_>, cache: &mut TokenCache) -> Result<Principal, Denial> {
        let token = if self.takes_tokens() { self.token(request)? } else { None };
        self.identify_by(token, request, cache)
    }

    /// Returns the identity of a program's request. A token may also be the password of `Authorization: Basic`, because many
    /// programs have a field for nothing else.
    ///
    /// # Errors
    /// See [`Rights::identify`].
    pub fn identify_program(
        &self,
        request: &Request<'_>,
        cache: &mut TokenCache,
    ) -> Result<Principal, Denial> {
        let token = if self.takes_tokens() { self.token(request)? } else { None };
        let token = token.or_else(|| basic_password(request).filter(|_| self.takes_tokens()).map(Cow::Owned));
        self.identify_by(token, request, cache)
    }

    fn identify_by(
        &self,
        // Without keys and static tokens every token would be invalid, so tokens are ignored.
        token: Option<Cow<'_, str>>,
        request: &Request<'_>,
        cache: &mut TokenCache,
    ) -> Result<Principal, Denial> {
        let page = self.origins.page(request);
        let open = self.openness.admits(request, page);
        if let (RequestPage::Foreign(_), Err(_)) = (page, open) {
            return Err(Denial::ForeignOrigin(
                "the request comes from a page of another site: add its origin to push.origins".into(),
            ));
        }
        let memory = cache.memory(self);
        let without = match open {
            Ok(()) => &memory.open,
            Err(shut) => &memory.nobody[shut as usize],
        };
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
            // The token may be the application's own.
            Err(_) if self.ask.is_some() => Ok(without.clone()),
            Err(fault) => Err(Denial::InvalidToken(format!("invalid token: {fault}"))),
        }
    }

    /// The identity of a client without credentials, for requests that an application has allowed.
    pub fn nobody(&self, cache: &mut TokenCache) -> Principal {
        cache.memory(self).nobody[Shut::Settings as usize].clone()
    }

    /// Returns the identity of a client certificate, if the connection has one.
    ///
    /// # Errors
    /// The certificate was valid during the handshake and has expired since.
    fn certified(&self, request: &Request<'_>) -> Result<Option<Principal>, Denial> {
        let Some(client) = request.tls().and_then(|tls| tls.client.as_ref()) else { return Ok(None) };
        let identity = Principal(Arc::new(PrincipalData {
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

    /// Returns the grants of a certificate's subject.
    fn grants_of(&self, subject: &str) -> Grants {
        match self.certificates.get(subject).or_else(|| self.certificates.get("*")) {
            Some(grants) => grants.with_everywhere(self.anonymous),
            None => Grants::everywhere(self.anonymous),
        }
    }

    /// Decides whether a client may do an act, as far as this server and its cached verdicts know.
    pub fn decide(
        &self,
        identity: &Principal,
        act: Act,
        channel: &Name,
        request: &Request<'_>,
        cache: &mut TokenCache,
    ) -> Decision {
        if identity.may(act, channel) {
            return Decision::Allowed;
        }
        let Some(endpoint) = &self.ask else { return Decision::Denied(identity.denial(act, channel)) };
        let mut cookies = request.all(Known::Cookie);
        let question = Question {
            serial: self.serial,
            url: endpoint.url.clone(),
            act,
            channel: channel.clone(),
            authorization: request
                .known(Known::Authorization)
                .map(Into::into)
                .or_else(|| Some([b"Bearer ", query_token(request).ok()??.as_bytes()].concat().into())),
            // Several fields are equivalent to a joined one (RFC 9113 §8.2.3).
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

    /// Returns the identity under these rights, after a reload: `None` if its credential is no longer valid.
    pub fn renew(&self, identity: &Principal) -> Option<Principal> {
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
        Some(Principal(Arc::new(PrincipalData { name, grants, expires_unix_s, credential })))
    }

    /// Returns whether these rights may admit a client without credentials (`Nobody`) as a subscriber: the server is open,
    /// `anonymous` allows it, or an application decides.
    pub fn admits_nobody(&self) -> bool {
        !matches!(self.openness, Openness::Shut(_))
            || self.anonymous.has(Act::Subscribe)
            || self.ask.is_some()
    }

    /// Returns whether a page of another origin may read the response to its request (CORS).
    pub fn share(&self, request: &Request<'_>) -> Share {
        match self.origins.page(request) {
            RequestPage::None | RequestPage::Same => Share::Nobody,
            RequestPage::Listed(origin) => self.origins.named(origin).map_or(Share::Anybody, Share::Page),
            page @ RequestPage::Foreign(_) if self.openness.admits(request, page).is_ok() => Share::Anybody,
            RequestPage::Foreign(_) => Share::Nobody,
        }
    }

    /// Returns a number that distinguishes these rights from earlier and later ones. Each reload has its own.
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    fn takes_tokens(&self) -> bool {
        !self.keys.is_empty() || !self.tokens.is_empty()
    }

    /// Returns the token that a request carries.
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

    fn verify(&self, token: &str, digest: Digest, now_s: u64) -> Result<Principal, token::TokenError> {
        // Every token is compared in full, so that the time reveals none of them.
        let mut fixed = None;
        for one in &self.tokens {
            if one.digest.is(&digest) {
                fixed = Some(one);
            }
        }
        let data = if let Some(fixed) = fixed {
            PrincipalData {
                name: fixed.name.clone(),
                grants: fixed.grants.with_everywhere(self.anonymous),
                expires_unix_s: None,
                credential: Credential::Fixed(digest),
            }
        } else {
            let statement = token::verify(token, &self.keys, now_s)?;
            PrincipalData {
                name: statement.subject.map(Into::into),
                grants: statement.grants.with_everywhere(self.anonymous),
                expires_unix_s: statement.expires_unix_s,
                credential: Credential::Signed(statement.key.print),
            }
        };
        Ok(Principal(Arc::new(data)))
    }
}

impl Principal {
    fn new(grants: Grants, credential: Credential) -> Self {
        Self(Arc::new(PrincipalData { name: None, grants, expires_unix_s: None, credential }))
    }

    /// Returns whether an act is allowed without a query to the application.
    pub fn may(&self, act: Act, channel: &Name) -> bool {
        self.grants.allow(act, channel)
    }

    /// Returns whether both are clones of one identity.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns whether only `anonymous` allows the client to publish. Such publishers are rate-limited.
    pub fn publishes_anonymously(&self) -> bool {
        matches!(self.credential, Credential::Nobody(_)) && self.grants.is_everywhere(Act::Publish)
    }

    /// Returns whether the token or certificate has expired at this time, in seconds since 1970.
    pub fn has_expired(&self, now_unix_s: u64) -> bool {
        self.expires_unix_s.is_some_and(|end_s| end_s <= now_unix_s)
    }

    /// Returns whether a token or certificate authenticates the client.
    pub fn is_authenticated(&self) -> bool {
        matches!(self.credential, Credential::Fixed(_) | Credential::Signed(_) | Credential::Certified)
    }

    /// Returns whether an act is allowed on any channel without a query to the application.
    pub fn may_anywhere(&self, act: Act) -> bool {
        self.grants.is_anywhere(act)
    }

    /// Returns this identity as one whose subscriptions end now: it has expired, and [`Principal::is_ended`].
    #[must_use]
    pub fn ended(&self) -> Self {
        let PrincipalData { name, grants, credential, .. } = &*self.0;
        let (name, grants) = (name.clone(), grants.clone());
        Self(Arc::new(PrincipalData { name, grants, expires_unix_s: Some(ENDED), credential: *credential }))
    }

    /// Returns whether [`Principal::ended`] created this identity. A reload keeps the mark.
    pub fn is_ended(&self) -> bool {
        self.expires_unix_s == Some(ENDED)
    }

    /// Returns an identity without rights for a subscriber whose right a reload has removed: it has expired, and
    /// [`Principal::is_revoked`].
    pub fn revoked() -> Self {
        Self(Arc::new(PrincipalData {
            name: None,
            grants: Grants::everywhere(Acts::NONE),
            expires_unix_s: Some(REVOKED),
            credential: Credential::Nobody(Shut::Settings),
        }))
    }

    /// Returns whether [`Principal::revoked`] created this identity. A reload keeps the mark.
    pub fn is_revoked(&self) -> bool {
        self.expires_unix_s == Some(REVOKED)
    }

    /// Returns the response to a forbidden act.
    pub fn denial(&self, act: Act, channel: &Name) -> Denial {
        self.denial_of(act, format_args!("{channel}"))
    }

    /// Returns the response to an act that is allowed on no channel.
    pub fn denial_anywhere(&self, act: Act) -> Denial {
        self.denial_of(act, format_args!("any channel"))
    }

    fn denial_of(&self, act: Act, channels: fmt::Arguments<'_>) -> Denial {
        let act = match act {
            Act::Publish => "publish to",
            Act::Subscribe => "read",
            Act::Presence => "read the members of",
            Act::Manage => "manage",
        };
        match self.credential {
            Credential::Nobody(shut) => {
                Denial::Unauthorized(format!("a token is required to {act} {channels}: {}", shut.hint()))
            }
            Credential::Certified => {
                Denial::Forbidden(format!("the client certificate grants no right to {act} {channels}"))
            }
            _ => Denial::Forbidden(format!("the token grants no right to {act} {channels}")),
        }
    }

    /// Returns a number that identifies the publisher and scopes its idempotency keys. All tokens of a named user share it.
    ///
    /// Without a name a static token has its own number, and a signed token that of its key. Other clients count by address
    /// (IPv6: by /64 network).
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

    /// Returns whether limits by client address do not apply: the server is open to this machine, or by `--open` to all.
    pub fn is_unlimited(&self) -> bool {
        matches!(self.credential, Credential::Open)
    }
}

/// Returns a number for a client address (IPv6: for its /64 network). `None` is a Unix socket. IPv4 addresses use the numbers
/// of ::/16, which is reserved.
pub fn client_number(address: Option<IpAddr>) -> u64 {
    match address.map(household) {
        Some(IpAddr::V4(v4)) => 0xffff << 32 | u64::from(v4.to_bits()),
        Some(IpAddr::V6(v6)) => (v6.to_bits() >> 64) as u64,
        None => u64::MAX,
    }
}

impl Deref for Principal {
    type Target = PrincipalData;

    fn deref(&self) -> &PrincipalData {
        &self.0
    }
}

impl TokenCache {
    /// Caches a verdict of the application for as long as the verdict allows.
    pub fn learn(&mut self, question: &Question, verdict: &AskVerdict, now_unix_s: u64) {
        let (kept_s, denial) = match verdict {
            AskVerdict::Allowed { kept_s } => (*kept_s, None),
            AskVerdict::Denied { denial, kept_s } => (*kept_s, Some(denial.clone())),
            AskVerdict::Unanswered(_) => return,
        };
        // A reload during the query may have changed the rights and the application.
        if let Some(memory) = self.0.as_mut().filter(|memory| kept_s > 0 && memory.serial == question.serial)
        {
            let answer = CachedVerdict { until_unix_s: now_unix_s.saturating_add(kept_s), denial };
            memory.answers.keep(question.digest(), answer);
        }
    }

    /// Returns the results cached under these rights. Those of earlier rights are dropped.
    fn memory(&mut self, rights: &Rights) -> &mut TokenCacheState {
        if self.0.as_ref().is_none_or(|memory| memory.serial != rights.serial) {
            self.0 = None;
        }
        self.0.get_or_insert_with(|| {
            let nobody =
                |shut| Principal::new(Grants::everywhere(rights.anonymous), Credential::Nobody(shut));
            Box::new(TokenCacheState {
                serial: rights.serial,
                open: Principal::new(Grants::everywhere(Acts::ALL), Credential::Open),
                nobody: Shut::ALL.map(nobody),
                tokens: Table::new(),
                answers: Table::new(),
            })
        })
    }
}

impl Fixed {
    fn new(settings: &StaticToken) -> Result<Self, StaticTokenError> {
        let token = settings.token.reveal().map_err(StaticTokenError::Secret)?;
        if token.len() < STATIC_TOKEN_BYTES_MIN {
            return Err(StaticTokenError::Short(token.len()));
        }
        if !is_token68(token.as_bytes()) {
            return Err(StaticTokenError::Characters);
        }
        Ok(Self {
            digest: Digest::of(token.as_bytes()),
            name: settings.name.as_deref().map(Into::into),
            grants: Grants::named(|act| settings.patterns(act)).map_err(|(_, error)| error)?,
        })
    }
}

/// Returns the password of `Authorization: Basic …` (RFC 7617), which is a token for programs that have no field for one.
fn basic_password(request: &Request<'_>) -> Option<String> {
    let value = request.known(Known::Authorization)?;
    let (scheme, encoded) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let pair = String::from_utf8(encke_wire::base64::decode(encoded.trim_ascii())?).ok()?;
    let (_user, password) = pair.split_once(':')?;
    (!password.is_empty()).then(|| password.to_owned())
}

/// Returns the token of `Authorization: Bearer …`. Other schemes are ignored: they are meant for a proxy or an application.
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

/// Returns the token of `?access_token=` (RFC 6750 §2.3).
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

/// Returns the token in a cookie (RFC 6265 §4.2). An empty value is a deleted cookie.
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
        // A subdomain can add a cookie with our cookie's name, and the order of the two proves nothing.
        if found.is_some_and(|other| other != value) {
            return Err(ambiguous("Cookie"));
        }
        found = Some(value);
    }
    found.filter(|value| !value.is_empty()).map(token_of).transpose()
}

fn ambiguous(place: &str) -> Denial {
    Denial::InvalidToken(format!("more than one token in {place}: send only one"))
}

fn token_of(bytes: &[u8]) -> Result<Cow<'_, str>, Denial> {
    if bytes.len() <= TOKEN_BYTES_MAX && is_token68(bytes) {
        Ok(String::from_utf8_lossy(bytes))
    } else {
        let text = "invalid token: expected 1 byte to 8 KiB of letters, digits and `-._~+/`, with `=` only at the end";
        Err(Denial::InvalidToken(text.into()))
    }
}

/// The syntax of a bearer token (RFC 6750 §2.1), which excludes line ends.
fn is_token68(bytes: &[u8]) -> bool {
    let end = bytes.iter().rposition(|&byte| byte != b'=').map_or(0, |at| at + 1);
    end > 0 && bytes[..end].iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte))
}

impl AuthSettings {
    /// Checks that keys, secrets and files exist and are valid, and that they go with `push.origins`.
    ///
    /// # Errors
    /// A key, secret or file cannot be loaded, or an origin is invalid.
    pub fn try_rights(&self, origins: &[String]) -> Result<(), RightsError> {
        Rights::new(self, origins, Openness::Shut(Shut::Settings)).map(drop)
    }
}

#[cfg(test)]
pub(crate) mod tests;
