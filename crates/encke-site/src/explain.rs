//! Explains the rules of a site that apply to a request, in the order of their application.

use std::sync::Arc;

use encke_settings::{SourceLine, SourceMap};
use encke_wire::method::Method;
use encke_wire::target::decode_path;

use super::Shared;
use super::rules::RuleSet;
use encke_server::{Explain, Request, RuleStep};

/// The rules of all sites, and their positions.
pub(super) struct SiteRules {
    pub(super) shared: Arc<Shared>,
    pub(super) rules: Vec<Arc<RuleSet>>,
    /// Positions in the section `site`.
    pub(super) source: SourceMap,
}

impl SiteRules {
    fn line(&self, site: &str, key: &str, place: Option<usize>) -> Option<SourceLine> {
        let place = place.map(|place| place.to_string());
        let path: Vec<&str> = [site, key].into_iter().chain(place.as_deref()).collect();
        self.source.line(&path)
    }
}

impl Explain for SiteRules {
    fn explain(&self, request: &Request<'_>) -> Vec<RuleStep> {
        let hosts = &self.shared.hosts;
        let Some(number) = hosts.only().or_else(|| hosts.site(request.authority())) else {
            let text = if self.rules.is_empty() { "no [[site]]: 404" } else { "no site has this host: 421" };
            return vec![RuleStep::new(text, None)];
        };
        let Some(rules) = self.rules.get(usize::from(number)) else { return Vec::new() };
        let site = number.to_string();
        let named = format!("site {} of the settings", number + 1);
        let mut steps = vec![RuleStep::new(named, self.source.line(&[&site]))];
        if !matches!(request.method(), Method::Get | Method::Head) {
            steps.push(RuleStep::new("a site supports only GET, HEAD and OPTIONS", None));
            return steps;
        }
        let mut path = String::new();
        if decode_path(request.path(), &mut path).is_err() {
            steps.push(RuleStep::new("the path cannot be decoded: 400", None));
            return steps;
        }
        let applied = rules.explain(&path).into_iter();
        steps.extend(applied.map(|(key, place, rule)| RuleStep::new(rule, self.line(&site, key, place))));
        steps
    }
}
