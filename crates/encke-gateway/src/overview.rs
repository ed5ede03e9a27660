//! The routes of a site as an operator reads them: in the order in which they are tried, each in one line, and the paths to which
//! they lead.

use encke_wire::path_pattern::PathPattern;

use crate::route::order;
use crate::settings::{FilesOrder, RouteSettings, UpstreamSettings};

/// Returns the routes of a site in the order in which they are tried.
///
/// ```
/// use encke_gateway::{RouteSettings, routes_in_order};
///
/// let route = |pattern: &str| RouteSettings { pattern: pattern.into(), ..RouteSettings::default() };
/// let routes = [route("/**"), route("/api/**")];
/// let patterns: Vec<&str> = routes_in_order(&routes).iter().map(|route| route.pattern.as_str()).collect();
/// assert_eq!(patterns, ["/api/**", "/**"]);
/// ```
pub fn routes_in_order(routes: &[RouteSettings]) -> Vec<&RouteSettings> {
    let mut routes: Vec<&RouteSettings> = routes.iter().collect();
    routes.sort_by_key(|route| order(&route.pattern, route.internal));
    routes
}

impl RouteSettings {
    /// Returns one line for the operator: the pattern, and the files or the application that it leads to.
    ///
    /// ```
    /// use encke_gateway::RouteSettings;
    ///
    /// let route = RouteSettings {
    ///     pattern: "/api/**".into(),
    ///     upstream: Some("http://127.0.0.1:3000".into()),
    ///     strip: Some("/api".into()),
    ///     ..RouteSettings::default()
    /// };
    /// assert_eq!(route.summary(&[]), "/api/** → http://127.0.0.1:3000, without /api");
    /// ```
    pub fn summary(&self, upstreams: &[UpstreamSettings]) -> String {
        let application = |name: &String| {
            let known = upstreams.iter().find(|upstream| upstream.name == *name);
            let targets: Vec<String> =
                known.iter().flat_map(|known| &known.to).map(|target| target.url.to_string()).collect();
            if targets.is_empty() { name.clone() } else { format!("{name} ({})", targets.join(", ")) }
        };
        let mut line = match (self.upstream.as_ref().map(application), self.files) {
            (None, _) => match self.php.as_ref().map(application) {
                Some(php) => format!("{} → PHP by {php}, files, then {}", self.pattern, self.front),
                None => format!("{} → files", self.pattern),
            },
            (Some(app), None) => format!("{} → {app}", self.pattern),
            (Some(app), Some(FilesOrder::First)) => format!("{} → files, then {app}", self.pattern),
            (Some(app), Some(FilesOrder::Last)) => format!("{} → {app}, then files", self.pattern),
        };
        if let Some(prefix) = &self.strip {
            line += &format!(", without {prefix}");
        }
        if let Some(path) = &self.rewrite {
            line += &format!(", as {path}");
        }
        if self.internal {
            line += ", only by X-Accel-Redirect";
        }
        line
    }

    /// Returns a pattern of the paths to which the route leads, if it changes the path. `None` if it does not, or if a setting is
    /// invalid. The pattern may match more paths than the route leads to.
    ///
    /// ```
    /// use encke_gateway::RouteSettings;
    ///
    /// let route = RouteSettings {
    ///     pattern: "/old/*/**".into(),
    ///     rewrite: Some("/new/$2/by-$1".into()),
    ///     ..RouteSettings::default()
    /// };
    /// assert_eq!(route.leads_to().map(|pattern| pattern.to_string()).as_deref(), Some("/new/**/by-*"));
    /// ```
    pub fn leads_to(&self) -> Option<PathPattern> {
        let text = match (&self.strip, &self.rewrite) {
            (_, Some(rewrite)) => {
                let stars = stars(&self.pattern);
                let mut pieces = rewrite.split('$');
                let mut text = pieces.next()?.to_owned();
                for piece in pieces {
                    let number = piece.chars().next()?.to_digit(10)? as usize;
                    text += stars.get(number.checked_sub(1)?)?;
                    text += piece.get(1..)?;
                }
                text
            }
            (Some(strip), None) => {
                let rest = self.pattern.strip_prefix(strip.as_str())?;
                if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") }
            }
            (None, None) => return None,
        };
        let mut text = text;
        while text.contains("***") {
            text = text.replace("***", "**");
        }
        PathPattern::parse(&text).ok()
    }
}

/// The stars of a pattern, in order.
fn stars(pattern: &str) -> Vec<&str> {
    let mut stars = Vec::new();
    let mut rest = pattern;
    while let Some(at) = rest.find('*') {
        let length = if rest[at..].starts_with("**") { 2 } else { 1 };
        stars.push(&rest[at..at + length]);
        rest = &rest[at + length..];
    }
    stars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::TargetSettings;

    fn route(pattern: &str) -> RouteSettings {
        RouteSettings { pattern: pattern.into(), ..RouteSettings::default() }
    }

    #[test]
    fn a_summary_names_the_targets_and_the_change_of_the_path() {
        let target: TargetSettings = "http://127.0.0.1:3000".parse().expect("a URL");
        let upstreams = [UpstreamSettings {
            name: "app".into(),
            to: vec![target.clone(), target],
            ..UpstreamSettings::default()
        }];
        let app = |files| RouteSettings { upstream: Some("app".into()), files, ..route("/**") };
        let targets = "app (http://127.0.0.1:3000, http://127.0.0.1:3000)";
        for (route, summary) in [
            (app(None), format!("/** → {targets}")),
            (app(Some(FilesOrder::First)), format!("/** → files, then {targets}")),
            (app(Some(FilesOrder::Last)), format!("/** → {targets}, then files")),
            (
                RouteSettings { php: Some("app".into()), ..route("/**") },
                format!("/** → PHP by {targets}, files, then /index.php"),
            ),
            (
                RouteSettings { internal: true, ..route("/p/**") },
                "/p/** → files, only by X-Accel-Redirect".into(),
            ),
            (
                RouteSettings { rewrite: Some("/b/$1".into()), ..route("/a/**") },
                "/a/** → files, as /b/$1".into(),
            ),
        ] {
            assert_eq!(route.summary(&upstreams), summary);
        }
    }

    #[test]
    fn the_paths_behind_a_route_are_a_pattern() {
        for (pattern, strip, rewrite, leads_to) in [
            ("/api/**", Some("/api"), None, Some("/**")),
            ("/api/v1/*", Some("/api"), None, Some("/v1/*")),
            ("/upload**", Some("/upload"), None, Some("/**")),
            ("/a/*/**/c", None, Some("/x$1$2"), Some("/x**")),
            ("/a/*", None, Some("/fixed"), Some("/fixed")),
            ("/a/*", None, Some("/$2"), None),
            ("/a/*", None, None, None),
        ] {
            let route = RouteSettings {
                strip: strip.map(str::to_owned),
                rewrite: rewrite.map(str::to_owned),
                ..route(pattern)
            };
            let found = route.leads_to().map(|pattern| pattern.to_string());
            assert_eq!(found.as_deref(), leads_to, "{pattern} {strip:?} {rewrite:?}");
        }
    }
}
