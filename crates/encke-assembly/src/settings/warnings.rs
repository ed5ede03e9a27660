//! Warnings: settings that are valid, but probably not meant. `encke check` and the start of a server print them.

use std::fmt;

use super::{AskUrl, RoutedSite, Settings};
use encke_rights::RateBy;
use encke_settings::{Contradiction, Section as _, SourceLine};
use encke_wire::path_pattern::PathPattern;

/// A warning about the settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsWarning {
    /// The position of the value, or of the table around it. `None`: the file does not have the value.
    pub place: Option<SourceLine>,
    /// The message, with the remedy.
    pub message: String,
}

impl fmt::Display for SettingsWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}:{}: ", place.column)?;
        }
        f.write_str(&self.message)
    }
}

impl Settings {
    /// Returns warnings about values that are valid, but probably not meant. Reads the directories of sites.
    pub fn warnings(&self) -> Vec<SettingsWarning> {
        let mut found = self.redirect_warnings();
        found.extend(self.site_warnings());
        found.extend(self.access_warnings());
        found.extend(self.host_warnings());
        found.extend(self.rate_warnings());
        found.extend(self.route_warnings());
        found.extend(self.rights_warnings());
        found.extend(self.live_warnings());
        let place = |path: &[String]| self.source.line(&path.iter().map(String::as_str).collect::<Vec<_>>());
        let included = self.notes.iter().map(|note| SettingsWarning { place: None, message: note.clone() });
        let found = found
            .into_iter()
            .map(|Contradiction { path, message }| SettingsWarning { place: place(&path), message });
        included.chain(found).collect()
    }

    /// Redirects to https on a server that has no https, and no proxy that could have it.
    fn redirect_warnings(&self) -> Vec<Contradiction> {
        let server = &self.server;
        let listeners = server.listen.iter().enumerate();
        let unreachable = listeners.filter(|(_, one)| {
            let is_inferred = one.redirect.is_some_and(|port| port.0.is_none());
            is_inferred && !one.proxy_protocol && server.trusted_proxies.is_empty()
        });
        if server.listen.iter().any(|one| one.tls.is_some()) {
            return Vec::new();
        }
        unreachable
            .map(|(number, one)| {
                let text = format!(
                    "{} redirects to https, but no listener uses TLS: add tls to another listener, or name the port of \
                     the program that serves https: redirect = \"https:443\"",
                    one.address
                );
                Contradiction::at(&["server", "listen", &number.to_string()], text)
            })
            .collect()
    }

    fn site_warnings(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        if self.site.is_empty() && self.file.is_some() {
            let text = "no [[site]]: no files are served; to serve files, add a [[site]] with a root, or name a \
                        directory: encke serve -c FILE DIR";
            found.push(Contradiction::at(&["site"], text));
        }
        for (number, site) in self.site.iter().enumerate() {
            let number = number.to_string();
            found.extend(site.warnings().into_iter().map(|one| one.within(&number).within("site")));
            let folder =
                self.file.as_ref().and_then(|file| file.parent()).filter(|folder| *folder == site.root);
            let is_default = !self.source.contains(&["site", &number, "root"]);
            if let Some(folder) = folder.filter(|_| is_default) {
                let text = format!(
                    "this site has no root, so it serves the directory of the settings file, {}: set root",
                    folder.display()
                );
                found.push(Contradiction::at(&["site", &number], text));
            }
            found.extend(self.hidden_by_channels(site, &["site", &number, "root"]));
            found.extend(self.hidden_by_live(site, &["site", &number, "root"]));
        }
        found
    }

    /// A directory of a site that the prefix of the channels hides.
    fn hidden_by_channels(&self, site: &RoutedSite, path: &[&str]) -> Option<Contradiction> {
        let prefix = &self.push.prefix;
        let hidden = site.root.join(prefix.trim_matches('/'));
        let is_hidden = self.push.enabled && encke_io::files::id_of(&hidden).is_some();
        is_hidden.then(|| {
            let text = format!(
                "{} is not served, because channels use {prefix}; set push.prefix, or push.enabled = false",
                hidden.display()
            );
            Contradiction::at(path, text)
        })
    }

    /// A directory of a site that the prefix of live streams hides.
    fn hidden_by_live(&self, site: &RoutedSite, path: &[&str]) -> Option<Contradiction> {
        let prefix = &self.live.prefix;
        let hidden = site.root.join(prefix.trim_matches('/'));
        let is_hidden = self.push.enabled && self.live.enabled && encke_io::files::id_of(&hidden).is_some();
        is_hidden.then(|| {
            let text = format!(
                "{} is not served, because live streams use {prefix}; set live.prefix, or live.enabled = false",
                hidden.display()
            );
            Contradiction::at(path, text)
        })
    }

    /// Access rules that restrict nothing, that ask this server itself, or whose password file is in the directory of a site.
    fn access_warnings(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let listeners = self.listener_addresses();
        for (number, rule) in self.access.iter().enumerate() {
            let number = number.to_string();
            found.extend(rule.warnings().into_iter().map(|one| one.within(&number).within("access")));
            let is_asked = |url: &&AskUrl| {
                let path = url.target().split('?').next().unwrap_or_default();
                url.place().is_one_of(&listeners)
                    && PathPattern::parse(&rule.pattern).is_ok_and(|pattern| pattern.matches(path))
            };
            if let Some(url) = rule.ask.as_ref().filter(is_asked) {
                let text = format!(
                    "{url} is a page of this server that this rule protects, so every question gets a 503: name the \
                     application's address"
                );
                found.push(Contradiction::at(&["access", &number, "ask"], text));
            }
            let site = |file: &std::path::PathBuf| self.site.iter().find(|site| file.starts_with(&site.root));
            if let Some(site) = rule.passwords.as_ref().and_then(site) {
                let text = format!(
                    "the password file is in {}, the directory of a site: if an editor replaces it, Encke serves the new one \
                     until the next reload; move it elsewhere",
                    site.root.display()
                );
                found.push(Contradiction::at(&["access", &number, "passwords"], text));
            }
        }
        found
    }

    /// Rules of access and rates that another host name evades.
    fn host_warnings(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let names: Vec<&String> = self.site.iter().flat_map(|site| &site.host).collect();
        let serves_all = self.site.is_empty() || self.site.iter().any(|site| site.host.is_empty());
        for rule in self.path_rules() {
            let unnamed = |host: &&String| !names.iter().any(|name| name.eq_ignore_ascii_case(host));
            if let Some(host) = rule.host.iter().find(unnamed).filter(|_| serves_all) {
                let text = format!(
                    "requests for other hosts get the same files without this rule, because no site has the host {host:?}: add \
                     it to a site, or omit host here"
                );
                found.push(rule.at("host", text));
            }
            let has = |host: &String| rule.host.iter().any(|name| name.eq_ignore_ascii_case(host));
            let partly =
                self.site.iter().find(|site| site.host.iter().any(has) && !site.host.iter().all(has));
            if let Some(host) = partly.and_then(|site| site.host.iter().find(|host| !has(host))) {
                let text = format!(
                    "requests for {host:?} get the same site without this rule: add this host to the rule, or to another site"
                );
                found.push(rule.at("host", text));
            }
        }
        found
    }

    /// Rates that limit nothing, or that never find a user.
    fn rate_warnings(&self) -> Vec<Contradiction> {
        let names_users = self.access.iter().any(|rule| rule.passwords.is_some() || rule.user.is_some());
        let mut found = Vec::new();
        for (number, rule) in self.rate.iter().enumerate() {
            let number = number.to_string();
            found.extend(rule.warnings().into_iter().map(|one| one.within(&number).within("rate")));
            if rule.by == RateBy::User && !names_users {
                let text = "no rule of [[access]] names users, so this rate counts by address: set passwords or user in \
                            [[access]], or by = \"address\"";
                found.push(Contradiction::at(&["rate", &number, "by"], text));
            }
        }
        found
    }

    /// Settings of live streams without effect.
    fn live_warnings(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let has_live = !self.source.section("live").is_empty();
        if has_live && self.live.enabled && !self.push.enabled {
            let text = "live streams need channels, so [live] has no effect: set push.enabled = true, or remove [live]";
            found.push(Contradiction::at(&["live"], text));
        }
        let prefix = self.live.prefix.trim_start_matches('/');
        for (number, rule) in self.live.channel.iter().enumerate() {
            if rule.pattern.trim_start_matches('/').starts_with(prefix) {
                let text = format!(
                    "this rule applies to streams such as {}{prefix}…: if that is not meant, write the pattern without {prefix}",
                    self.live.prefix
                );
                found.push(Contradiction::at(&["live", "channel", &number.to_string(), "pattern"], text));
            }
        }
        if self.cluster.address.is_some() && !self.cluster.is_on() {
            let text = "cluster.address has no effect without cluster.nats: set cluster.nats, or remove it";
            found.push(Contradiction::at(&["cluster", "address"], text));
        }
        found
    }

    /// Rights that no client can get, if the file has settings of channels.
    fn rights_warnings(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        if self.open || !self.push.enabled || self.file.is_none() {
            return found;
        }
        let has = |section: &str| !self.source.section(section).is_empty();
        let listen = &self.server.listen;
        let asks = listen.iter().any(|one| one.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()));
        if !self.auth.certificates.is_empty() && !asks {
            let text = "no listener requests client certificates, so auth.certificates has no effect: set client_ca in \
                        tls of a listener";
            found.push(Contradiction::at(&["auth", "certificates"], text));
        }
        if self.auth.grants_nothing() {
            let remedy = "grant rights by anonymous, tokens, keys, jwks, certificates or ask";
            let section = ["push", "cluster"].into_iter().find(|section| has(section));
            if has("auth") {
                let text = format!("[auth] grants no rights, so no client may use channels: {remedy}");
                found.push(Contradiction::at(&["auth"], text));
            } else if let Some(section) = section {
                let text = format!(
                    "no client may use channels, because [auth] is empty: {remedy}, or set push.enabled = false"
                );
                found.push(Contradiction::at(&[section], text));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("encke-warnings-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("push")).expect("a temporary folder");
        folder
    }

    fn told(folder: &std::path::Path, text: &str) -> Vec<String> {
        let file = folder.join("encke.toml");
        std::fs::write(&file, text).expect("a temporary file");
        let settings = Settings::read(&file).unwrap_or_else(|error| panic!("{text}: {error}"));
        let start = format!("{}:", file.display());
        let place = |line: String| line.strip_prefix(&start).unwrap_or(&line).to_owned();
        settings.warnings().iter().map(|warning| place(warning.to_string())).collect()
    }

    #[test]
    fn valid_settings_that_cannot_be_meant_are_reported_with_their_place() {
        let folder = folder("wrong");
        for (text, place, said) in [
            (
                "[server]\nlisten = [8080, { address = 8081, redirect = \"https\" }]",
                "2:17: ",
                "8081 redirects to https, but no listener uses TLS",
            ),
            ("\n  [[site]]\nhost = [\"a\"]", "2:3: ", "this site has no root"),
            ("[[site]]\nroot = \".\"", "2:1: ", "push is not served, because channels use /push/"),
            ("[[site]]\nroot = \"push\"\nerrors = { 404 = \"/404.html\" }", "3:12: ", "404 does not exist"),
            (
                "[[site]]\nroot = \"push\"\n[[site.redirects]]\nfrom = \"/a\"\nto = \"/a\"",
                "3:",
                "/a is redirected again and again",
            ),
            ("[auth]\ncookie = \"session\"", "no [[site]]", "no [[site]]: no files are served"),
            ("[[access]]\npattern = \"/admin/**\"", "2:1: ", "this rule restricts nothing"),
            (
                "[[access]]\nhost = [\"a\"]\ndeny = [\"::1\"]",
                "2:1: ",
                "requests for other hosts get the same files without this rule",
            ),
            (
                "[[site]]\nroot = \"push\"\nhost = [\"a\", \"b\"]\n[[access]]\nhost = [\"A\"]\ndeny = [\"::1\"]",
                "5:1: ",
                "requests for \"b\" get the same site without this rule",
            ),
            (
                "[[site]]\nroot = \"push\"\n[[access]]\npasswords = \"push/users\"",
                "4:1: ",
                "the directory of a site: if an editor replaces it",
            ),
            (
                "[server]\nlisten = 8080\n[[access]]\nask = \"http://localhost:8080/check?a\"",
                "4:1: ",
                "is a page of this server that this rule protects",
            ),
            ("[[rate]]\npattern = \"/login\"", "2:1: ", "this rule limits nothing"),
            (
                "[[rate]]\nhost = [\"a\"]\nlimit = \"1/s\"",
                "2:1: ",
                "requests for other hosts get the same files without this rule",
            ),
            (
                "[[site]]\nroot = \"push\"\nhost = [\"a\", \"b\"]\n[[rate]]\nhost = [\"A\"]\nlimit = \"1/s\"",
                "5:1: ",
                "requests for \"b\" get the same site without this rule",
            ),
            (
                "[[access]]\nask = \"http://127.0.0.1:1/\"\n[[rate]]\nlimit = \"1/s\"\nby = \"user\"",
                "5:1: ",
                "no rule of [[access]] names users, so this rate counts by address",
            ),
            ("[auth]\ncookie = \"session\"", "1:2: ", "[auth] grants no rights"),
            ("[[push.channel]]\npattern = \"news\"", "1:", "no client may use channels"),
            (
                "[push]\nenabled = false\n[live]\npulls = 2",
                "3:",
                "live streams need channels, so [live] has no effect",
            ),
            (
                "[[live.channel]]\npattern = \"live/news/*\"",
                "2:",
                "this rule applies to streams such as /live/live/…: if that is not meant, write the pattern without live/",
            ),
            (
                "[cluster]\naddress = \"http://node-a:8080\"",
                "2:",
                "cluster.address has no effect without cluster.nats",
            ),
            (
                "[auth]\nanonymous = [\"subscribe\"]\n[[auth.certificates]]\nsubject = \"a\"",
                "3:",
                "no listener requests client certificates",
            ),
        ] {
            let warnings = told(&folder, text);
            let warnings: Vec<_> = warnings.iter().filter(|line| line.contains(said)).collect();
            let [line] = warnings[..] else { panic!("{text}: {warnings:?}") };
            assert!(line.starts_with(place), "{text}: {line}");
        }
        std::fs::remove_dir_all(&folder).expect("it was made here");
    }

    #[test]
    fn settings_that_make_sense_have_no_warnings() {
        let folder = folder("right");
        let tls = "tls = { cert = \"c\", key = \"k\" }";
        for text in [
            "",
            "[push]\n[auth]\n[cluster]",
            "[push]\nenabled = false\n[[site]]\nroot = \".\"\nhost = [\"a\"]\n[auth]\nanonymous = []",
            "[[site]]\nroot = \"push\"\nhost = [\"A\"]\n[[access]]\nhost = [\"a\"]\npasswords = \"users\"\n[[access]]",
            "[[access]]\npasswords = \"users\"\n[[rate]]\nlimit = \"1/s\"\nby = \"user\"",
            "[[access]]\nask = \"http://127.0.0.1:1/\"\nuser = \"X-User\"\n[[rate]]\nlimit = \"1/s\"\nby = \"user\"",
            "[push]\nretry = \"1s\"\n[auth]\nanonymous = [\"subscribe\"]",
            "[live]\npulls = 2\n[[live.channel]]\npattern = \"lively/*\"\n[auth]\nanonymous = [\"subscribe\"]",
            "[server]\nlisten = [{ address = 8081, redirect = \"https:443\" }]",
            "[server]\nlisten = 8080\n[[access]]\npattern = \"/a/**\"\nask = \"http://localhost:8080/check\"\n[[rate]]\nat_once = 1",
            "[server]\nlisten = [{ address = 8081, redirect = \"https\" }]\ntrusted_proxies = [\"10.0.0.1\"]",
            &format!(
                "[server]\nlisten = [{{ address = 8081, redirect = \"https\" }}, {{ address = 8082, {tls} }}]"
            ),
        ] {
            let text = format!("{text}\n[[site]]\nroot = \"push\"");
            assert_eq!(told(&folder, &text), [""; 0], "{text}");
        }
        std::fs::remove_dir_all(&folder).expect("it was made here");
    }
}
