//! Access rules, built from the settings and shared by all workers.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use encke_io::host;
use encke_server::{
    CHALLENGES, Explain, Guard, GuardMount, HandlerContext, Network, PassedFields, Request, RuleStep,
    SourceMap, WorkerSetup,
};
use encke_wire::host::HostPattern;
use encke_wire::path_pattern::PathPattern;
use encke_wire::target::decode_path;

use super::asking::AccessAsk;
use super::error::AccessError;
use super::figures::AccessFigures;
use super::guard::AccessGuard;
use super::passwords::PasswordFile;
use super::settings::AccessSettings;
use crate::ask_client::AskEndpoint;

/// All access rules of a server: a guard ([`Server::guard`](encke_server::Server::guard)).
#[derive(Clone)]
pub struct AccessRules {
    shared: Arc<SharedRules>,
    figures: Arc<AccessFigures>,
    /// Positions in the section `access`.
    source: SourceMap,
}

/// Rules and password files.
pub(crate) struct SharedRules {
    pub(crate) rules: Vec<AccessRule>,
    pub(crate) files: Vec<PasswordFile>,
    /// The random prefix of all digests of credentials.
    pub(crate) salt: [u8; 32],
    /// Fields that only the applications of `ask` may set.
    pub(crate) reserved: Option<Arc<PassedFields>>,
}

/// A rule that restricts something.
pub(crate) struct AccessRule {
    /// The rule's place in the settings.
    place: usize,
    hosts: Vec<HostPattern>,
    pattern: PathPattern,
    /// `None`: every address that `deny` does not contain.
    allow: Option<Vec<Network>>,
    deny: Vec<Network>,
    /// The index of the password file.
    pub(crate) file: Option<usize>,
    /// The value of `WWW-Authenticate`.
    pub(crate) challenge: String,
    any: bool,
    /// The application that decides.
    pub(crate) ask: Option<Arc<AccessAsk>>,
}

/// The demands of all rules on a request.
#[derive(Default)]
pub(crate) struct AccessDemands {
    /// Indices of the rules that demand a password.
    pub(crate) passwords: Vec<usize>,
    /// Indices of the rules whose application decides.
    pub(crate) asks: Vec<usize>,
    /// The path cannot be decoded, so no pattern can be compared with it.
    pub(crate) undecodable: bool,
}

/// The demand of a rule on a request from an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Demand {
    /// The request passes.
    Nothing,
    /// The request needs a password.
    Password,
    /// An application decides.
    Answer,
    /// The request is refused.
    OtherAddress,
}

impl AccessRules {
    /// Builds the rules and reads their password files. Rules that restrict nothing are left out.
    ///
    /// # Errors
    /// A rule or a password file cannot be used.
    pub fn new(settings: &[AccessSettings]) -> Result<Self, AccessError> {
        let mut salt = [0; 32];
        host::random(&mut salt).map_err(AccessError::Random)?;
        let copied = settings.iter().flat_map(|one| &one.copy).map(String::as_str);
        let reserved = Arc::new(PassedFields::new(copied));
        let has_reserved = settings.iter().any(|one| !one.copy.is_empty());
        let mut shared = SharedRules {
            rules: Vec::new(),
            files: Vec::new(),
            salt,
            reserved: has_reserved.then(|| Arc::clone(&reserved)),
        };
        let mut paths: Vec<PathBuf> = Vec::new();
        for (place, one) in settings.iter().enumerate() {
            let number = place + 1;
            let file = match &one.passwords {
                Some(path) => match paths.iter().position(|other| other == path) {
                    Some(known) => Some(known),
                    None => {
                        let file = PasswordFile::read(path);
                        shared.files.push(file.map_err(|error| AccessError::Passwords(number, error))?);
                        paths.push(path.clone());
                        Some(paths.len() - 1)
                    }
                },
                None => None,
            };
            let ask = one.ask.as_ref().map(|url| {
                let (ca, time) = (one.ask_ca.as_deref(), one.ask_time);
                let endpoint = AskEndpoint::new(url, ca, time, one.ask_connections, one.ask_queue)?;
                let (copy, user, removed) = (one.copy.clone(), one.user.clone(), Arc::clone(&reserved));
                Ok(Arc::new(AccessAsk { endpoint, copy, user, removed }))
            });
            let ask = ask.transpose().map_err(|error| AccessError::Ask(number, error))?;
            if file.is_none() && ask.is_none() && !one.has_addresses() {
                continue;
            }
            let hosts = one.host.iter().map(|host| host.parse());
            shared.rules.push(AccessRule {
                place,
                hosts: hosts.collect::<Result<_, _>>().map_err(|error| AccessError::Host(number, error))?,
                pattern: PathPattern::parse(&one.pattern)
                    .map_err(|error| AccessError::Pattern(number, error))?,
                allow: one.allow.clone(),
                deny: one.deny.clone(),
                file,
                challenge: challenge(&one.realm),
                any: one.any,
                ask,
            });
        }
        Ok(Self { shared: Arc::new(shared), figures: Arc::default(), source: SourceMap::default() })
    }

    /// Whether no rule restricts anything. Such rules need no guard.
    pub fn is_empty(&self) -> bool {
        self.shared.rules.is_empty()
    }

    /// Adds the positions of the rules in the settings file, for explanations.
    #[must_use]
    pub fn with_source(mut self, source: SourceMap) -> Self {
        self.source = source;
        self
    }

    /// Counts in figures that outlive these rules.
    #[must_use]
    pub fn with_figures(mut self, figures: &Arc<AccessFigures>) -> Self {
        self.figures = Arc::clone(figures);
        self
    }

    pub(crate) fn explained(&self) -> ExplainedRules {
        ExplainedRules { shared: Arc::clone(&self.shared), source: self.source.clone() }
    }
}

impl GuardMount for AccessRules {
    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Guard> {
        worker.explain(self.explained());
        let counters = self.figures.of_worker(worker.number());
        Box::new(AccessGuard::new(context, Arc::clone(&self.shared), counters))
    }
}

impl SharedRules {
    /// Returns the demands on a request; `None` if a rule denies its address. `decoded` is a buffer for the path.
    pub(crate) fn demands(&self, request: &Request<'_>, decoded: &mut String) -> Option<AccessDemands> {
        let mut client = None;
        let mut found = AccessDemands::default();
        if decode_path(request.path(), decoded).is_err() {
            found.undecodable = true;
            return Some(found);
        }
        for (index, rule) in self.of(request, decoded.as_str()) {
            let address = match client {
                Some(known) => known,
                None if rule.has_addresses() => *client.insert(RuleClient::of(request)),
                None => RuleClient::Local,
            };
            match rule.demand(address) {
                Demand::Nothing => {}
                Demand::Password => found.passwords.push(index),
                Demand::Answer => found.asks.push(index),
                Demand::OtherAddress => return None,
            }
        }
        Some(found)
    }

    /// Whether a client has sent a field that only an application of `ask` may set.
    #[inline]
    pub(crate) fn is_forged(&self, request: &Request<'_>) -> bool {
        let is_reserved = |reserved: &PassedFields| request.fields().any(|(name, _)| reserved.removes(name));
        self.reserved.as_deref().is_some_and(is_reserved)
    }

    /// Returns the rules for a request with a decoded path, with their indices.
    fn of<'a>(
        &'a self,
        request: &'a Request<'_>,
        path: &'a str,
    ) -> impl Iterator<Item = (usize, &'a AccessRule)> {
        let rules = if path.starts_with(CHALLENGES) { &[] } else { &self.rules[..] };
        rules.iter().enumerate().filter(move |(_, rule)| rule.matches(request.authority(), path))
    }
}

impl AccessRule {
    fn matches(&self, authority: &[u8], path: &str) -> bool {
        let hosts = &self.hosts;
        (hosts.is_empty() || hosts.iter().any(|host| host.matches(authority))) && self.pattern.matches(path)
    }

    /// Whether the rule depends on the client's address.
    fn has_addresses(&self) -> bool {
        self.allow.is_some() || !self.deny.is_empty()
    }

    /// The requirement of the rule for a request.
    fn demand(&self, client: RuleClient) -> Demand {
        let within = |networks: &[Network]| match client {
            RuleClient::Address(client) => networks.iter().any(|network| network.contains(client)),
            RuleClient::Local | RuleClient::Hidden => false,
        };
        let is_denied = within(&self.deny) || client == RuleClient::Hidden && !self.deny.is_empty();
        let is_allowed = self.allow.as_deref().is_none_or(within) && !is_denied;
        let is_exempt = self.any && is_allowed && self.has_addresses();
        match (self.file, &self.ask) {
            _ if !is_allowed && !self.any => Demand::OtherAddress,
            _ if is_exempt => Demand::Nothing,
            (Some(_), _) => Demand::Password,
            (None, Some(_)) => Demand::Answer,
            (None, None) if !is_allowed => Demand::OtherAddress,
            (None, None) => Demand::Nothing,
        }
    }

    fn described(&self) -> String {
        let mut text = format!("access to {}", self.pattern);
        let list =
            |networks: &[Network]| networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        // Writing to a String cannot fail.
        let mut add = |words: &str, value: &str| {
            let _ = write!(text, ", {words}{value}");
        };
        if let Some(allow) = &self.allow {
            add("only from ", &list(allow));
        }
        if !self.deny.is_empty() {
            add("not from ", &list(&self.deny));
        }
        if self.file.is_some() {
            add(if self.any { "or " } else { "" }, "with a password");
        }
        if let Some(ask) = &self.ask {
            add(if self.any { "or if allowed by " } else { "if allowed by " }, &ask.endpoint.url.to_string());
        }
        text
    }
}

/// The client of a request, for rules about addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleClient {
    Address(IpAddr),
    /// A Unix socket whose peer reports no address.
    Local,
    /// A trusted proxy hides the address: it is in no `allow`, and may be in any `deny`.
    Hidden,
}

impl RuleClient {
    fn of(request: &Request<'_>) -> Self {
        match request.client() {
            Some(address) => Self::Address(address),
            None if request.is_hidden() => Self::Hidden,
            None => Self::Local,
        }
    }
}

/// The rules, for an explanation.
pub(crate) struct ExplainedRules {
    shared: Arc<SharedRules>,
    source: SourceMap,
}

impl Explain for ExplainedRules {
    fn explain(&self, request: &Request<'_>) -> Vec<RuleStep> {
        let mut decoded = String::new();
        if decode_path(request.path(), &mut decoded).is_err() {
            return vec![RuleStep::new("the path cannot be decoded: 400", None)];
        }
        let rules = self.shared.of(request, &decoded);
        let step =
            |rule: &AccessRule| RuleStep::new(rule.described(), self.source.line(&[&rule.place.to_string()]));
        rules.map(|(_, rule)| step(rule)).collect()
    }
}

/// The value of `WWW-Authenticate` (RFC 7617).
fn challenge(realm: &str) -> String {
    let mut text = String::from("Basic realm=\"");
    for letter in realm.chars().filter(|letter| !letter.is_control()) {
        if matches!(letter, '"' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push_str("\", charset=\"UTF-8\"");
    text
}
