//! Checks of supervised applications against the routes and upstreams that name them.

use encke_apps::{AppError, AppProtocol, AppSettings, FoundApps};
use encke_gateway::{TARGETS_MAX, TargetUrl};
use encke_settings::{Contradiction, Section as _, TargetScheme};

use super::{Settings, SettingsFileError};

/// The keys that lead to a value.
type KeyPath = Vec<String>;

fn keys(path: &[&str]) -> KeyPath {
    path.iter().map(ToString::to_string).collect()
}

impl Settings {
    /// Errors in `[[app]]`, and in targets that name an application.
    pub(super) fn app_errors(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        for (place, app) in self.app.iter().enumerate() {
            let place_text = place.to_string();
            found.extend(app.check().into_iter().map(|one| one.within(&place_text).within("app")));
            if self.app[..place].iter().any(|earlier| earlier.name == app.name) {
                let text = format!("two applications have the name {:?}", app.name);
                found.push(Contradiction::at(&["app", &place_text, "name"], text));
            }
        }
        let targets = self.targets();
        for same in targets.chunk_by(|(_, one), (_, other)| one == other) {
            found.extend(self.too_many_processes(same));
        }
        for (url, path) in targets {
            let Some(name) = url.app() else { continue };
            if let Some(message) = self.app_named(name).map_or_else(
                || Some(format!("there is no application {name:?}: add [[app]] with name = {name:?}")),
                |app| wrong_protocol(app, &url),
            ) {
                found.push(Contradiction { path, message });
            }
        }
        found
    }

    /// The error of an upstream, of which these are all targets, with more processes of applications than it can have targets.
    fn too_many_processes(&self, targets: &[(TargetUrl, KeyPath)]) -> Option<Contradiction> {
        let processes = |url: &TargetUrl| {
            let app = url.app().and_then(|name| self.app_named(name));
            app.map_or(1, |app| usize::from(app.count.get()))
        };
        let count: usize = targets.iter().map(|(url, _)| processes(url)).sum();
        // A longer list is an error of its own.
        let (_, path) = targets.first().filter(|_| count > TARGETS_MAX && targets.len() <= TARGETS_MAX)?;
        let message = format!(
            "an upstream has at most {TARGETS_MAX} targets, and this one has {count} with each process of its \
             applications: lower count in [[app]]"
        );
        Some(Contradiction { path: path.clone(), message })
    }

    /// Applications that get no requests.
    pub(super) fn unused_apps(&self) -> Vec<Contradiction> {
        let targets = self.targets();
        let is_used = |app: &AppSettings| targets.iter().any(|(url, _)| url.app() == Some(&*app.name));
        let unused = self.app.iter().enumerate().filter(|(_, app)| !is_used(app));
        let warning = |(place, app): (usize, &AppSettings)| {
            let text = format!(
                "no route leads to this application, so it gets no requests: add [[site.route]] with upstream = \"app:{}\"",
                app.name
            );
            Contradiction::at(&["app", &place.to_string(), "name"], text)
        };
        unused.map(warning).collect()
    }

    /// Applications that this machine cannot start.
    pub(super) fn missing_programs(&self) -> Vec<SettingsFileError> {
        let errors = self.app.iter().enumerate().filter_map(|(place, app)| {
            let error = FoundApps::find(std::slice::from_ref(app)).err()?;
            // The user of the check need not be the one of the server.
            if matches!(error, AppError::NotRoot { .. }) {
                return None;
            }
            let place = self.source.line(&["app", &place.to_string(), error.key()]);
            Some(SettingsFileError { place, message: error.to_string() })
        });
        errors.collect()
    }

    fn app_named(&self, name: &str) -> Option<&AppSettings> {
        self.app.iter().find(|app| app.name == name)
    }

    /// The targets of all upstreams and routes, with their keys.
    pub(super) fn targets(&self) -> Vec<(TargetUrl, KeyPath)> {
        let mut found = Vec::new();
        for (number, upstream) in self.upstream.iter().enumerate() {
            let path = keys(&["upstream", &number.to_string(), "to"]);
            found.extend(upstream.to.iter().map(|target| (target.url.clone(), path.clone())));
        }
        for (site, table) in self.site.iter().enumerate() {
            for (route, table) in table.route.iter().enumerate() {
                let path = |key| keys(&["site", &site.to_string(), "route", &route.to_string(), key]);
                found.extend(table.url().ok().flatten().map(|url| (url, path("upstream"))));
                found.extend(table.php_url().ok().flatten().map(|url| (url, path("php"))));
            }
        }
        found
    }
}

/// Why a target does not fit the protocol of its application.
fn wrong_protocol(app: &AppSettings, url: &TargetUrl) -> Option<String> {
    let name = &app.name;
    match (app.protocol, url.scheme()) {
        (AppProtocol::Http, TargetScheme::FastCgi) => Some(format!(
            "{url} is for FastCGI, and application {name:?} speaks HTTP: write \"app:{name}\", or protocol = \"fastcgi\" \
             in [[app]]"
        )),
        (AppProtocol::FastCgi, TargetScheme::Http | TargetScheme::Https) => Some(format!(
            "application {name:?} speaks FastCGI: write \"fcgi://app:{name}\" here, or php = \"app:{name}\" for PHP"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;

    #[test]
    fn processes_of_all_applications_of_an_upstream_count_as_targets() {
        let read = |counts: [u16; 2]| {
            let apps = ["a", "b"].iter().zip(counts).map(|(name, count)| {
                format!("[[app]]\nname = \"{name}\"\nrun = [\"/bin/true\"]\ncount = {count}\n")
            });
            let apps: String = apps.collect();
            let text = format!(
                "{apps}[[upstream]]\nname = \"u\"\nto = [\"app:a\", \"app:b\", \"http://127.0.0.1:3000\"]\n\
                 [[site]]\n[[site.route]]\nupstream = \"u\"\n"
            );
            Settings::parse("encke.toml", &text).map_err(|error| error.to_string())
        };
        assert!(read([40, 23]).is_ok());
        let error = read([40, 24]).expect_err("one too many");
        assert!(error.contains("at most 64 targets") && error.contains("65"), "{error}");
        assert!(error.contains("encke.toml:11:"), "{error}");
    }
}
