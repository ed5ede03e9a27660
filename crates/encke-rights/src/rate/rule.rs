//! Rates, built from the settings and shared by all workers.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use encke_server::{
    CHALLENGES, Explain, Guard, GuardMount, HandlerContext, Request, RuleStep, SourceMap, WorkerSetup,
};
use encke_wire::host::HostPattern;
use encke_wire::path_pattern::PathPattern;
use encke_wire::target::decode_path;

use super::error::RateError;
use super::figures::RateFigures;
use super::guard::RateGuard;
use super::open::OpenRequests;
use super::settings::{RateBy, RateSettings};
use super::table::{ALL, RateHasher, RateTable, prefix_mask};
use super::timer::{DelayedRequests, RateTimer};

/// All rates of a server.
#[derive(Clone)]
pub struct RateRules {
    rules: Vec<Arc<RateRule>>,
    hasher: Arc<RateHasher>,
    figures: Arc<RateFigures>,
    /// Positions in the section `rate`.
    source: SourceMap,
}

/// Rates that are checked before the rules of `[[access]]`, or after them: a guard
/// ([`Server::guard`](encke_server::Server::guard)).
#[derive(Clone)]
pub struct RateStage {
    rules: Arc<[Arc<RateRule>]>,
    hasher: Arc<RateHasher>,
    figures: Arc<RateFigures>,
    source: SourceMap,
}

/// A limit.
pub(crate) struct RateRule {
    /// The rule's place in the settings.
    pub(crate) place: usize,
    settings: RateSettings,
    hosts: Vec<HostPattern>,
    /// `None`: every path.
    pattern: Option<PathPattern>,
    /// Whether the rule applies to every request.
    matches_all: bool,
    /// The bits of an IPv6 address that identify a client.
    ipv6_mask: u128,
    /// The rates of the keys, if the rule limits them.
    pub(crate) table: Option<Arc<RateTable>>,
    /// The open requests of the keys, if the rule limits them.
    pub(crate) open: Option<Arc<OpenRequests>>,
    pub(crate) delay_ns: u64,
    /// Maximum number of requests that the rule holds on a worker.
    pub(crate) delayed_max: u32,
}

impl RateRules {
    /// Builds the rules. Rules that limit nothing are left out. Unchanged rules continue with the state of `old`.
    ///
    /// # Errors
    /// A rule cannot be used.
    pub fn new(settings: &[RateSettings], old: Option<&Self>) -> Result<Self, RateError> {
        let hasher = match old {
            Some(old) => Arc::clone(&old.hasher),
            None => Arc::new(RateHasher::new()?),
        };
        let mut known: Vec<&Arc<RateRule>> = old.iter().flat_map(|old| &old.rules).collect();
        let mut rules = Vec::new();
        for (place, one) in settings.iter().enumerate().filter(|(_, one)| one.limits()) {
            // Two equal rules have a state each.
            let same = known.iter().position(|rule| rule.settings == *one).map(|at| known.remove(at));
            rules.push(Arc::new(RateRule::new(place, one, same)?));
        }
        let figures = old.map(|old| Arc::clone(&old.figures)).unwrap_or_default();
        Ok(Self { rules, hasher, figures, source: SourceMap::default() })
    }

    /// Number of keys with open requests, of all rules.
    #[cfg(test)]
    pub(crate) fn open_keys(&self) -> usize {
        self.rules.iter().filter_map(|rule| rule.open.as_ref()).map(|open| open.keys()).sum()
    }

    /// Adds the positions of the rules in the settings file, for explanations.
    #[must_use]
    pub fn with_source(mut self, source: SourceMap) -> Self {
        self.source = source;
        self
    }

    /// The figures, which outlive the rules.
    pub fn figures(&self) -> Arc<RateFigures> {
        Arc::clone(&self.figures)
    }

    /// The rates to be checked before the rules of `[[access]]`; `None` if there are none.
    pub fn early(&self) -> Option<RateStage> {
        self.stage(|by| *by != RateBy::User)
    }

    /// The rates to be checked after the rules of `[[access]]`; `None` if there are none.
    pub fn late(&self) -> Option<RateStage> {
        self.stage(|by| *by == RateBy::User)
    }

    fn stage(&self, is_of: impl Fn(&RateBy) -> bool) -> Option<RateStage> {
        let rules: Vec<_> = self.rules.iter().filter(|rule| is_of(&rule.settings.by)).cloned().collect();
        (!rules.is_empty()).then(|| RateStage {
            rules: rules.into(),
            hasher: Arc::clone(&self.hasher),
            figures: Arc::clone(&self.figures),
            source: self.source.clone(),
        })
    }
}

impl RateStage {
    /// Creates the guard of a worker. `delayed` are its held requests, if it holds any.
    pub(crate) fn guard(
        &self,
        context: HandlerContext,
        worker: usize,
        delayed: Option<Rc<RefCell<DelayedRequests>>>,
    ) -> RateGuard {
        let counters = self.figures.of_worker(worker);
        RateGuard::new(context, Arc::clone(&self.rules), Arc::clone(&self.hasher), counters, delayed)
    }

    pub(crate) fn explained(&self) -> ExplainedRates {
        ExplainedRates { rules: Arc::clone(&self.rules), source: self.source.clone() }
    }
}

impl GuardMount for RateStage {
    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Guard> {
        worker.explain(self.explained());
        let has_delays = self.rules.iter().any(|rule| rule.delay_ns > 0);
        let delayed = has_delays.then(|| Rc::clone(&worker.resident(|_| RateTimer::default()).delayed));
        Box::new(self.guard(context, worker.number(), delayed))
    }
}

impl RateRule {
    fn new(place: usize, settings: &RateSettings, same: Option<&Arc<Self>>) -> Result<Self, RateError> {
        let number = place + 1;
        let hosts = settings.host.iter().map(|host| host.parse());
        let hosts: Vec<HostPattern> =
            hosts.collect::<Result<_, _>>().map_err(|error| RateError::Host(number, error))?;
        let pattern =
            PathPattern::parse(&settings.pattern).map_err(|error| RateError::Pattern(number, error))?;
        let (table, open) = match same {
            Some(same) => (same.table.clone(), same.open.clone()),
            None => {
                let keys = if settings.by == RateBy::All { 1 } else { settings.keys };
                let table = settings.limit.map(|limit| {
                    let burst = settings.burst.unwrap_or(limit.count()).get();
                    Arc::new(RateTable::new(keys, limit.interval_ns(), burst))
                });
                (table, settings.at_once.map(|most| Arc::new(OpenRequests::new(most))))
            }
        };
        let pattern = Some(pattern).filter(|_| settings.pattern != "/**");
        Ok(Self {
            place,
            settings: settings.clone(),
            matches_all: pattern.is_none() && hosts.is_empty() && settings.methods.is_empty(),
            ipv6_mask: prefix_mask(settings.ipv6_prefix),
            hosts,
            pattern,
            table,
            open,
            delay_ns: settings.delay.nanoseconds(),
            delayed_max: settings.delayed.get(),
        })
    }

    /// Whether the rule applies to a request. `path` is a buffer for the decoded path, filled by the first rule that needs it.
    #[inline]
    pub(crate) fn matches(&self, request: &Request<'_>, path: &mut DecodedPath<'_>) -> bool {
        self.matches_all || self.matches_parts(request, path)
    }

    fn matches_parts(&self, request: &Request<'_>, path: &mut DecodedPath<'_>) -> bool {
        let Self { hosts, settings, pattern, .. } = self;
        (settings.methods.is_empty()
            || settings.methods.iter().any(|method| counts(method, request.method_text())))
            && (hosts.is_empty() || hosts.iter().any(|host| host.matches(request.authority())))
            && pattern.as_ref().is_none_or(|pattern| {
                let plainly = pattern.matches_plain(request.path());
                plainly.unwrap_or_else(|| path.of(request).is_none_or(|path| pattern.matches(path)))
            })
    }

    /// The hash of the key that a request counts for.
    #[inline]
    pub(crate) fn key(&self, request: &Request<'_>, hasher: &RateHasher) -> u64 {
        let text = match &self.settings.by {
            RateBy::All => return ALL,
            RateBy::Address => None,
            RateBy::User => request.user().map(str::as_bytes),
            RateBy::Field(name) => request.field(name),
        };
        match text {
            Some(text) => hasher.text(text),
            None => hasher.address(request.client_octets(), self.ipv6_mask),
        }
    }

    fn described(&self) -> String {
        let RateSettings { by, limit, at_once, pattern, .. } = &self.settings;
        let limit = limit.map(|limit| format!(", {limit}")).unwrap_or_default();
        let at_once = at_once.map(|most| format!(", {most} at once")).unwrap_or_default();
        format!("rate of {pattern}{limit}{at_once} by {by}")
    }
}

/// Whether a rule for a method counts requests with another method: a HEAD costs nearly what a GET costs.
fn counts(method: &str, sent: &[u8]) -> bool {
    method.as_bytes() == sent || method == "GET" && sent == b"HEAD"
}

/// The decoded path of a request, decoded once for all rules.
pub(crate) struct DecodedPath<'a> {
    buffer: &'a mut String,
    state: Option<bool>,
}

impl<'a> DecodedPath<'a> {
    pub(crate) fn new(buffer: &'a mut String) -> Self {
        Self { buffer, state: None }
    }

    /// The path; `None` if it cannot be decoded. Every handler rejects it, and it counts for every rule.
    fn of(&mut self, request: &Request<'_>) -> Option<&str> {
        let Self { buffer, state } = self;
        let is_valid = *state.get_or_insert_with(|| decode_path(request.path(), buffer).is_ok());
        is_valid.then_some(&***buffer)
    }

    /// Whether the path is that of an ACME challenge, which has no limit: a certificate authority sends several at once. The
    /// decoded path decides, because `/../` may follow.
    #[inline]
    pub(crate) fn is_challenge(&mut self, request: &Request<'_>) -> bool {
        request.path().starts_with(CHALLENGES.as_bytes())
            && self.of(request).is_some_and(|path| path.starts_with(CHALLENGES))
    }
}

/// The rules, for an explanation.
pub(crate) struct ExplainedRates {
    rules: Arc<[Arc<RateRule>]>,
    source: SourceMap,
}

impl Explain for ExplainedRates {
    fn explain(&self, request: &Request<'_>) -> Vec<RuleStep> {
        let mut buffer = String::new();
        let mut path = DecodedPath::new(&mut buffer);
        if path.is_challenge(request) {
            return Vec::new();
        }
        let rules = self.rules.iter().filter(|rule| rule.matches(request, &mut path));
        rules
            .map(|rule| RuleStep::new(rule.described(), self.source.line(&[&rule.place.to_string()])))
            .collect()
    }
}
