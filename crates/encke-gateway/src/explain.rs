//! Explains the route that applies to a request, and the targets that it leads to.

use std::sync::Arc;

use encke_io::clock::Clock;
use encke_server::{Explain, Request, RuleStep, SourceLine};
use encke_settings::SourceMap;

use crate::route::{Found, PathChange, RouteTable, SiteRoute};
use crate::settings::FilesOrder;
use crate::upstream::NamedUpstream;

/// The routes of all sites, and the explanation of the mount below them.
pub(crate) struct ExplainedRoutes {
    pub(crate) routes: Arc<RouteTable>,
    pub(crate) upstreams: Vec<Arc<NamedUpstream>>,
    /// Positions in the section `site`.
    pub(crate) source: SourceMap,
    pub(crate) below: Option<Box<dyn Explain>>,
}

impl Explain for ExplainedRoutes {
    fn explain(&self, request: &Request<'_>) -> Vec<RuleStep> {
        let mut decoded = String::new();
        let site = self.routes.hosts.site(request.authority());
        let route = match self.routes.find(request.authority(), request.path(), &mut decoded) {
            Found::None => return self.explain_below(request),
            Found::Closed => return vec![RuleStep::new("clients may not see this path: 404", None)],
            Found::Malformed => return vec![RuleStep::new("the path cannot be decoded: 400", None)],
            Found::Route(route) => route,
        };
        let mut steps = vec![RuleStep::new(
            format!("the most specific route with this path is {}", route.pattern),
            site.and_then(|site| self.line(site, &route)),
        )];
        if route.is_overruled(&decoded) {
            steps.push(RuleStep::new(
                "a rule of the site is more specific than the route, and responds",
                None,
            ));
            steps.extend(self.explain_below(request));
            return steps;
        }
        match (&route.path, route.changed_path(&decoded)) {
            (PathChange::None, _) | (_, None) => {}
            (_, Some(path)) => steps.push(RuleStep::new(format!("the path becomes {path}"), None)),
        }
        if route.php.is_some() {
            steps.push(RuleStep::new(
                "a PHP route: the script of the path, or a file, or the front script",
                None,
            ));
        }
        match (route.files, route.upstream) {
            (Some(FilesOrder::First), Some(_)) => {
                steps.push(RuleStep::new("the files of the site come first", None));
                steps.extend(self.explain_below(request));
            }
            (_, None) => steps.extend(self.explain_below(request)),
            _ => {}
        }
        let upstream = route.upstream.and_then(|upstream| self.upstreams.get(upstream));
        steps.extend(upstream.into_iter().flat_map(|upstream| targets(upstream)));
        if route.files == Some(FilesOrder::Last) {
            steps.push(RuleStep::new("if the application responds with 404: the files of the site", None));
        }
        steps
    }
}

impl ExplainedRoutes {
    fn explain_below(&self, request: &Request<'_>) -> Vec<RuleStep> {
        self.below.as_ref().map_or_else(Vec::new, |below| below.explain(request))
    }

    /// The line of a route in the settings file.
    fn line(&self, site: u16, route: &SiteRoute) -> Option<SourceLine> {
        self.source.line(&[&site.to_string(), "route", &route.number.to_string()])
    }
}

/// Names an upstream, and each of its targets with its state.
fn targets(upstream: &NamedUpstream) -> Vec<RuleStep> {
    let now_ns = Clock::new().now().mono_ns;
    let mut steps = vec![RuleStep::new(format!("upstream {}", upstream.settings.name), None)];
    for target in &upstream.targets.targets {
        let failure = target.tally.last_failure(now_ns);
        let failure =
            failure.map_or_else(String::new, |failure| format!("; last failure: {}", failure.text()));
        let text = format!(
            "target {} is {}, with {} requests in progress{failure}",
            target.url(),
            target.phase(now_ns).name(),
            target.busy()
        );
        steps.push(RuleStep::new(text, None));
    }
    steps
}
