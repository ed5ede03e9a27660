//! Checks of routes against each other and against the other sections: routes that no request reaches, that lead around a
//! rule of access or rates, or back to this server.

use encke_gateway::{RouteSettings, TargetUrl};
use encke_io::Address;
use encke_settings::{ByteSize, Contradiction, TargetScheme};
use encke_wire::path_pattern::PathPattern;

use super::path_rules::GuardedPath;
use super::{ListenAddress, RoutedSite, Settings};

/// The key of a route in the settings file.
type RoutePath = [String; 4];

fn path(site: usize, route: usize) -> RoutePath {
    ["site".to_owned(), site.to_string(), "route".to_owned(), route.to_string()]
}

fn at(path: &RoutePath, key: &str, message: String) -> Contradiction {
    let keys: Vec<&str> = path.iter().map(String::as_str).chain([key]).collect();
    Contradiction::at(&keys, message)
}

impl Settings {
    /// All routes, with their sites and their keys.
    fn routes(&self) -> impl Iterator<Item = (&RoutedSite, &RouteSettings, RoutePath)> {
        self.site.iter().enumerate().flat_map(|(number, site)| {
            let routes = site.route.iter().enumerate();
            routes.map(move |(place, route)| (site, route, path(number, place)))
        })
    }

    /// Routes to upstreams that do not exist, or that do not speak the protocol of the route.
    pub(super) fn unknown_upstreams(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        for (_, route, path) in self.routes() {
            if let Some(name) = route.php_upstream() {
                found.extend(self.php_upstream_fault(name).map(|text| at(&path, "php", text)));
            }
            let Some(name) = route.upstream_name() else { continue };
            if self.upstream.iter().any(|upstream| upstream.name == name) {
                continue;
            }
            let text = format!(
                "there is no upstream {name:?}: add [[upstream]] with name = {name:?}, or write a URL: upstream = \
                 \"http://127.0.0.1:3000\""
            );
            found.push(at(&path, "upstream", text));
        }
        found
    }

    /// Why the upstream of this name cannot run PHP; `None` if it can.
    fn php_upstream_fault(&self, name: &str) -> Option<String> {
        let Some(upstream) = self.upstream.iter().find(|upstream| upstream.name == name) else {
            return Some(format!(
                "there is no upstream {name:?}: add [[upstream]] with name = {name:?}, or write an address: php = \
                 \"/run/php/fpm.sock\", \"./{name}\" or \"127.0.0.1:9000\""
            ));
        };
        let speaks = upstream.to.iter().all(|target| target.url.scheme() == TargetScheme::FastCgi);
        (!speaks).then(|| {
            format!(
                "the upstream {name:?} does not speak FastCGI: to = \"fcgi://unix:/run/php/fpm.sock\", or route to it by \
                 upstream = {name:?}"
            )
        })
    }

    /// Sites with PHP that could send the source of a script.
    pub(super) fn script_sources(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        for (site, route, path) in self.routes() {
            if site.route.iter().any(|other| other.php.is_some()) && route.files.is_some() {
                let text =
                    "this site runs PHP, so another route must not send its files: files could be scripts";
                found.push(at(&path, "files", text.to_owned()));
            }
            if site.route.iter().any(|other| other.php.is_some())
                && route.upstream.is_none()
                && let Some(rewrite) = route.rewrite.as_deref().filter(|rewrite| is_script(rewrite))
            {
                let text = format!(
                    "{rewrite} is a script, and this route sends files, so its requests get a 404: without rewrite, php = \
                     \"…\" with front = \"/index.php\" runs a script for all paths"
                );
                found.push(at(&path, "rewrite", text));
            }
        }
        for (number, site) in self.site.iter().enumerate() {
            let has_php = site.route.iter().any(|route| route.php.is_some());
            let mut pages = site.errors.values().chain(&site.index);
            if has_php && let Some(page) = pages.find(|page| is_script(page)) {
                let text = format!("{page} would be sent as it is, and not executed: name a page in HTML");
                found.push(Contradiction::at(&["site", &number.to_string()], text));
            }
        }
        found
    }

    /// Routes whose application would subscribe clients outside of the channels.
    pub(super) fn foreign_subscriptions(&self) -> Vec<Contradiction> {
        let prefix = &self.push.prefix;
        let mut found = Vec::new();
        for (_, route, path) in self.routes() {
            let outside = route.subscribe.iter().filter(|pattern| !pattern.starts_with(prefix.as_str()));
            for pattern in outside {
                let text = format!(
                    "{pattern:?} is not below the channels (push.prefix): subscribe = [\"{prefix}news\"]"
                );
                found.push(at(&path, "subscribe", text));
            }
            if !self.push.enabled && !route.subscribe.is_empty() {
                let text = "there are no channels to subscribe to: push.enabled is false".to_owned();
                found.push(at(&path, "subscribe", text));
            }
        }
        found
    }

    /// Routes of one site with the same pattern, of which no request reaches the second.
    pub(super) fn repeated_patterns(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        for (number, site) in self.site.iter().enumerate() {
            for (place, route) in site.route.iter().enumerate() {
                let Some(first) = site.route[..place].iter().position(|other| other.pattern == route.pattern)
                else {
                    continue;
                };
                let text = format!(
                    "route {} of this site has the pattern {:?}, too, so no request reaches this one: combine both, or \
                     change one pattern",
                    first + 1,
                    route.pattern
                );
                found.push(at(&path(number, place), "pattern", text));
            }
        }
        found
    }

    /// Routes that are valid, but probably not meant.
    pub(super) fn route_warnings(&self) -> Vec<Contradiction> {
        let mut found = self.returning_targets();
        found.extend(self.unused_apps());
        for (site, route, path) in self.routes() {
            let limit = self.limits.body_bytes.as_ref().on().map(|limit| limit.bytes());
            let own = route.body_bytes.map(ByteSize::bytes);
            if let (Some(limit), Some(own)) = (limit, own)
                && own > limit
            {
                let text = format!(
                    "limits.body_bytes is {}, so larger requests never reach this route: raise it, or lower body_bytes",
                    ByteSize::of(limit)
                );
                found.push(at(&path, "body_bytes", text));
            }
            if route.php.is_some() {
                let of_script =
                    |rule: &GuardedPath<'_>| rule.applies_to(site) && rule.pattern.ends_with(".php");
                for rule in self.path_rules().filter(of_script) {
                    let text = format!(
                        "{0} does not apply to {1}/more, which runs the same script: write {1}**",
                        rule.name(),
                        rule.pattern
                    );
                    found.push(at(&path, "php", text));
                }
            }
            let rules = self.path_rules().filter(|rule| rule.applies_to(site));
            let evaded = rules.filter_map(|rule| evasion(&rule, site, route));
            found.extend(evaded.map(|(key, text)| at(&path, key, text)));
        }
        found
    }

    /// Returns the addresses of the listeners, except host names, which a resolver would have to resolve.
    pub fn listener_addresses(&self) -> Vec<Address> {
        let listen = self.server.listen.iter().map(|listen| &listen.address);
        let plain = listen.filter(|address| !matches!(address, ListenAddress::Name(..)));
        plain.filter_map(|address| address.addresses().ok()).flatten().collect()
    }

    /// Targets that are listeners of this server.
    fn returning_targets(&self) -> Vec<Contradiction> {
        let listeners = self.listener_addresses();
        let text = |url: &TargetUrl| {
            format!(
                "{url} is a listener of this server, so requests return here: name the application's address"
            )
        };
        let mut found = Vec::new();
        for (number, upstream) in self.upstream.iter().enumerate() {
            for target in upstream.to.iter().filter(|target| target.url.is_one_of(&listeners)) {
                let number = number.to_string();
                found.push(Contradiction::at(&["upstream", &number, "to"], text(&target.url)));
            }
        }
        for (_, route, path) in self.routes() {
            if let Ok(Some(url)) = route.url()
                && url.is_one_of(&listeners)
            {
                found.push(at(&path, "upstream", text(&url)));
            }
        }
        found
    }
}

/// Whether a path has the name of a script in PHP.
fn is_script(path: &str) -> bool {
    path.to_ascii_lowercase().ends_with(".php")
}

/// How a route leads around a rule of access or rates: the key, and the message. Rules see the path that the client has sent.
fn evasion(
    rule: &GuardedPath<'_>,
    site: &RoutedSite,
    route: &RouteSettings,
) -> Option<(&'static str, String)> {
    let protected = PathPattern::parse(rule.pattern).ok()?;
    let pattern = PathPattern::parse(&route.pattern).ok()?;
    if protected.matches(&pattern.sample()) {
        if route.internal && pattern.matches(&protected.sample()) {
            let text = format!(
                "{} has no effect here, because clients get a 404 and an X-Accel-Redirect is not checked: restrict the \
                 paths whose responses have X-Accel-Redirect",
                rule.name()
            );
            return Some(("internal", text));
        }
        return None;
    }
    let leads_to = route.leads_to().filter(|leads_to| leads_to.overlaps(&protected))?;
    // With another application the same path is another resource.
    let is_same = route.upstream.is_none()
        || site.route.iter().any(|other| {
            let covers = PathPattern::parse(&other.pattern).is_ok_and(|other| other.overlaps(&protected));
            other.upstream == route.upstream && other.leads_to().is_none() && covers
        });
    let key = if route.rewrite.is_some() { "rewrite" } else { "strip" };
    let text = format!(
        "this route leads to {leads_to}, and so around {}, which checks the path that the client has sent: add a rule to \
         [[{}]] with pattern = {:?}",
        rule.name(),
        rule.section,
        route.pattern
    );
    is_same.then_some((key, text))
}

#[cfg(test)]
mod tests {
    use crate::settings::{Settings, SettingsError};

    fn read(text: &str) -> Result<Settings, SettingsError> {
        Settings::parse("encke.toml", text).map_err(SettingsError::Wrong)
    }

    /// The warnings about routes, each with its position.
    fn told(text: &str) -> Vec<String> {
        let settings = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found = settings.route_warnings();
        let place = |path: &[String]| {
            let keys: Vec<&str> = path.iter().map(String::as_str).collect();
            settings.source.line(&keys).map(|line| format!("{line}:{}", line.column)).unwrap_or_default()
        };
        found.iter().map(|one| format!("{}: {}", place(&one.path), one.message)).collect()
    }

    const APP: &str = "upstream = \"http://127.0.0.1:3000\"\n";

    #[test]
    fn a_pattern_that_a_site_has_twice_is_rejected_with_both_places() {
        let twice = format!(
            "[[site]]\n[[site.route]]\npattern = \"/a/**\"\n{APP}[[site.route]]\npattern = \"/a/**\"\n{APP}"
        );
        let error = read(&twice).expect_err("twice").to_string();
        assert!(error.contains("route 1 of this site has the pattern \"/a/**\", too"), "{error}");
        assert!(error.contains("encke.toml:6:11"), "{error}");
        let two_sites = format!(
            "[[site]]\nhost = [\"a\"]\n[[site.route]]\n{APP}[[site]]\nhost = [\"b\"]\n[[site.route]]\n{APP}"
        );
        assert!(read(&two_sites).is_ok());
    }

    #[test]
    fn a_site_with_php_sends_no_scripts_and_an_application_subscribes_to_channels_only() {
        const PHP: &str = "[[site.route]]\npattern = \"/a/**\"\nphp = \"./fpm.sock\"\n";
        for (text, said) in [
            (
                format!("[[site]]\n{PHP}[[site.route]]\nfiles = \"first\"\n{APP}"),
                "another route must not send its files",
            ),
            (
                format!("[[site]]\n{PHP}[[site.route]]\npattern = \"/b/*\"\nrewrite = \"/index.php\"\n"),
                "/index.php is a script, and this route sends files",
            ),
            (
                format!("[[site]]\nerrors = {{ 404 = \"/404.php\" }}\n{PHP}"),
                "/404.php would be sent as it is",
            ),
            (format!("[[site]]\nindex = [\"index.PHP\"]\n{PHP}"), "index.PHP would be sent as it is"),
            (
                format!("[[site]]\n[[site.route]]\nsubscribe = [\"/**\"]\n{APP}"),
                "\"/**\" is not below the channels",
            ),
            (
                format!(
                    "[push]\nenabled = false\n[[site]]\n[[site.route]]\nsubscribe = [\"/push/a\"]\n{APP}"
                ),
                "push.enabled is false",
            ),
        ] {
            let error = read(&text).expect_err(&text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        for text in [
            format!(
                "[[site]]\nerrors = {{ 404 = \"/404.html\" }}\n{PHP}[[site]]\nhost = [\"b\"]\nindex = [\"a.php\"]\n"
            ),
            format!("[[site]]\n[[site.route]]\nsubscribe = [\"/push/news/*\"]\n{APP}"),
        ] {
            assert!(read(&text).is_ok(), "{text}");
        }
        let warnings =
            told(&format!("[[access]]\npattern = \"/admin.php\"\ndeny = [\"::1\"]\n[[site]]\n{PHP}"));
        assert!(warnings.iter().any(|line| line.contains("write /admin.php**")), "{warnings:?}");
    }

    #[test]
    fn php_names_an_upstream_that_speaks_fastcgi() {
        const UPSTREAMS: &str = "[[upstream]]\nname = \"fpm\"\nto = [\"fcgi://unix:/run/fpm.sock\"]\nconnections = 2\n\
                                 [[upstream]]\nname = \"app\"\nto = [\"http://127.0.0.1:3000\"]\n[[site]]\n[[site.route]]\n";
        assert!(read(&format!("{UPSTREAMS}php = \"fpm\"\n")).is_ok());
        assert!(read(&format!("{UPSTREAMS}php = \"127.0.0.1:9000\"\n")).is_ok());
        for (name, said) in [
            ("app", "the upstream \"app\" does not speak FastCGI"),
            (
                "fpm.sock",
                "there is no upstream \"fpm.sock\": add [[upstream]] with name = \"fpm.sock\", or write an address",
            ),
        ] {
            let error = read(&format!("{UPSTREAMS}php = \"{name}\"\n")).expect_err(name).to_string();
            assert!(error.contains(said) && error.contains("encke.toml:10:7"), "{error}");
        }
    }

    #[test]
    fn routes_that_are_probably_not_meant_are_reported_with_their_place() {
        for (text, place, said) in [
            (
                format!("[limits]\nbody_bytes = \"1MiB\"\n[[site]]\n[[site.route]]\nbody_bytes = \"20MiB\"\n{APP}"),
                "encke.toml:5",
                "limits.body_bytes is 1MiB, so larger requests never reach this route",
            ),
            (
                format!("[server]\nlisten = \":3000\"\n[[site]]\n[[site.route]]\n{APP}"),
                "encke.toml:5",
                "http://127.0.0.1:3000 is a listener of this server",
            ),
            (
                "[[upstream]]\nname = \"app\"\nto = [\"http://localhost:8080\"]\n[server]\nlisten = 8080\n".into(),
                "encke.toml:3",
                "http://localhost:8080 is a listener of this server",
            ),
            (
                "[[access]]\npattern = \"/admin/**\"\ndeny = [\"::1\"]\n[[site]]\n[[site.route]]\npattern = \"/old/**\"\n\
                 rewrite = \"/admin/$1\"\n"
                    .into(),
                "encke.toml:7",
                "leads to /admin/**, and so around the rule of [[access]] for \"/admin/**\"",
            ),
            (
                format!(
                    "[[access]]\npattern = \"/admin/**\"\ndeny = [\"::1\"]\n[[site]]\n[[site.route]]\n{APP}\
                     [[site.route]]\npattern = \"/api/**\"\nstrip = \"/api\"\n{APP}"
                ),
                "encke.toml:9",
                "add a rule to [[access]] with pattern = \"/api/**\"",
            ),
            (
                "[[access]]\npattern = \"/files/**\"\ndeny = [\"::1\"]\n[[site]]\n[[site.route]]\npattern = \"/files/**\"\n\
                 internal = true\n"
                    .into(),
                "encke.toml:7",
                "has no effect here, because clients get a 404",
            ),
        ] {
            let warnings = told(&text);
            let [line] = &warnings[..] else { panic!("{text}: {warnings:?}") };
            assert!(line.starts_with(place) && line.contains(said), "{text}: {line}");
        }
    }

    #[test]
    fn routes_that_lead_around_a_rate_are_reported_as_those_around_access() {
        const RATE: &str = "[[rate]]\nlimit = \"5/m\"\npattern = ";
        for (text, said) in [
            (
                format!("{RATE}\"/login.php\"\n[[site]]\n[[site.route]]\nphp = \"./fpm.sock\"\n"),
                "the rule of [[rate]] for \"/login.php\" does not apply to /login.php/more",
            ),
            (
                format!(
                    "{RATE}\"/login\"\n[[site]]\n[[site.route]]\n{APP}[[site.route]]\npattern = \"/api/**\"\n\
                     strip = \"/api\"\n{APP}"
                ),
                "around the rule of [[rate]] for \"/login\", which checks the path that the client has sent: add a rule to \
                 [[rate]] with pattern = \"/api/**\"",
            ),
        ] {
            let warnings = told(&text);
            let [line] = &warnings[..] else { panic!("{text}: {warnings:?}") };
            assert!(line.contains(said), "{text}: {line}");
        }
        let text = format!("{RATE}\"/push/news\"\n");
        let error = read(&text).expect_err(&text).to_string();
        assert!(
            error.contains("encke.toml:3:11") && error.contains("by the path of another channel"),
            "{error}"
        );
        let text = format!("{RATE}\"/push/**\"\nhost = [\"a\"]\n");
        let error = read(&text).expect_err(&text).to_string();
        assert!(error.contains("all hosts have the same channels"), "{error}");
        assert!(read(&format!("{RATE}\"/push/**\"\n")).is_ok());
        assert!(read("[[rate]]\nlimit = \"5/m\"\nhost = [\"a\"]\n").is_ok());
    }

    #[test]
    fn routes_that_make_sense_have_no_warnings() {
        for text in [
            format!("[limits]\nbody_bytes = \"off\"\n[[site]]\n[[site.route]]\nbody_bytes = \"20MiB\"\n{APP}"),
            // Another site may be restricted.
            String::from(
                "[[access]]\nhost = [\"a\"]\npattern = \"/admin/**\"\ndeny = [\"::1\"]\n[[site]]\nhost = [\"b\"]\n\
                 [[site.route]]\npattern = \"/old/**\"\nrewrite = \"/admin/$1\"\n[[site]]\nhost = [\"a\"]\n"
            ),
            // The whole server is restricted.
            "[[access]]\ndeny = [\"::1\"]\n[[site]]\n[[site.route]]\npattern = \"/old/**\"\nrewrite = \"/admin/$1\"\n".into(),
            // The protected paths are files, and the route leads to an application.
            format!(
                "[[access]]\npattern = \"/admin/**\"\ndeny = [\"::1\"]\n[[site]]\n[[site.route]]\npattern = \"/api/**\"\n\
                 strip = \"/api\"\n{APP}"
            ),
            format!("[server]\nlisten = \"192.0.2.1:3000\"\n[[site]]\n[[site.route]]\n{APP}"),
        ] {
            assert_eq!(told(&text), [""; 0], "{text}");
        }
    }
}
