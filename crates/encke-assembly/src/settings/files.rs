//! Errors in the files and directories that the settings name. A start would open the same files; this check starts nothing.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use encke_console::ConsoleUsers;
use encke_io::files;
use encke_rights::{AccessRules, RightsError};
use encke_server::TlsIdentity;
use encke_session::tls::TlsError;
use encke_settings::{Secret, SourceLine, TlsSettings};
use encke_site::Site;

use super::{ListenAddress, LogTarget, OrOff, Settings, SettingsWarning, TargetUrl};

/// Why an address is an error on Windows, up to an example.
const NO_UNIX_SOCKETS: &str = "Unix sockets are not available on this system: use an address such as";

/// An error in a file or directory that the settings name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsFileError {
    /// The position of the value, or of the table around it. `None`: the settings file does not have the value.
    pub place: Option<SourceLine>,
    /// The message, with the remedy.
    pub message: String,
}

impl fmt::Display for SettingsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}:{}: ", place.column)?;
        }
        f.write_str(&self.message)
    }
}

impl Settings {
    /// Reads the roots of the sites, certificates, keys and secrets, and tests whether the access logs can be written. Creates
    /// and changes nothing. Appends warnings about certificates to `notes`.
    ///
    /// Returns the errors. With the first one a start would fail.
    pub fn file_errors(&self, notes: &mut Vec<String>) -> Vec<SettingsFileError> {
        let mut found = Vec::new();
        let mut wrong = |path: &[&str], message: String| {
            found.push(SettingsFileError { place: self.source.line(path), message });
        };
        if let OrOff::On(admin) = &self.server.admin
            && let Some(tls) = &admin.tls
            && let Err(error) = TlsIdentity::read(tls, notes)
        {
            let key = tls_key(tls, &error);
            let path: Vec<&str> = ["server", "admin", "tls"].into_iter().chain(key).collect();
            wrong(&path, error.to_string());
        }
        for (number, listen) in self.server.listen.iter().enumerate() {
            let Some(tls) = &listen.tls else { continue };
            if let Err(error) = TlsIdentity::read(tls, notes) {
                let key = tls_key(tls, &error).unwrap_or_default();
                let number = number.to_string();
                // One listener may be a table instead of a list.
                let is_list = self.source.contains(&["server", "listen", &number]);
                let path = ["server", "listen", &number, "tls", key];
                let path: Vec<&str> = path
                    .into_iter()
                    .filter(|part| *part != number || is_list)
                    .filter(|part| !part.is_empty())
                    .collect();
                wrong(&path, error.to_string());
            }
        }
        if let OrOff::On(admin) = &self.server.admin
            && let Some(Err(error)) = admin.token.as_ref().map(Secret::reveal)
        {
            wrong(&["server", "admin", "token"], format!("server.admin.token: {error}"));
        }
        if let Err(error) = ConsoleUsers::read(&self.console) {
            wrong(&["console", "user", &error.place.to_string(), "password"], error.to_string());
        }
        if let Some(error) = log_error(&self.log.access) {
            wrong(&["log", "access"], format!("log.access: {error}"));
        }
        if let Err(error) = Site::new(&self.site, Vec::new()) {
            wrong(&["site", &error.number.to_string(), error.key], error.to_string());
        }
        if let Err(error) = AccessRules::new(&self.access) {
            wrong(&["access"], error.to_string());
        }
        for (number, upstream) in self.upstream.iter().enumerate() {
            if let Err(error) = encke_gateway::try_trust(upstream) {
                let key = if upstream.tls.ca.is_some() { "ca" } else { "" };
                let path = ["upstream", &number.to_string(), "tls", key];
                let path: Vec<&str> = path.into_iter().filter(|part| !part.is_empty()).collect();
                wrong(&path, format!("upstream.tls: {error}"));
            }
        }
        if let Err(error) = self.live.try_trust() {
            let key = self.live.tls.ca.as_ref().map(|_| "ca");
            let path: Vec<&str> = ["live", "tls"].into_iter().chain(key).collect();
            wrong(&path, format!("live.tls: {error}"));
        }
        for (channel, number, error) in self.live.try_tokens() {
            let (channel, number) = (channel.to_string(), number.to_string());
            // One server may be a table instead of a list.
            let is_list = self.source.contains(&["live", "channel", &channel, "pull", &number]);
            let path = ["live", "channel", &channel, "pull", &number, "token"];
            let path: Vec<&str> = path
                .into_iter()
                .enumerate()
                .filter(|(place, _)| *place != 4 || is_list)
                .map(|(_, key)| key)
                .collect();
            wrong(&path, format!("live.channel.pull.token: {error}"));
        }
        let routes = self.site.iter().enumerate().flat_map(|(site, table)| {
            table
                .route
                .iter()
                .enumerate()
                .map(move |(route, table)| (site.to_string(), route.to_string(), table))
        });
        for (site, route, table) in routes {
            for directory in &table.sendfile {
                if let Err(error) = fs::read_dir(directory) {
                    let text = format!(
                        "site.route.sendfile: cannot read the directory {}: {error}",
                        directory.display()
                    );
                    wrong(&["site", &site, "route", &route, "sendfile"], text);
                }
            }
        }
        notes.extend(self.unresolved_targets());
        for (number, site) in self.site.iter().enumerate() {
            if let Some(error) = site.access_log.as_ref().and_then(log_error) {
                wrong(&["site", &number.to_string(), "access_log"], format!("site.access_log: {error}"));
            }
        }
        if self.push.enabled
            && let Err(error) = self.auth.try_rights(&self.push.origins)
        {
            let path = self.path_of(&error);
            wrong(&path.iter().map(String::as_str).collect::<Vec<_>>(), error.to_string());
        }
        if self.push.enabled && self.cluster.is_on() {
            for (key, secret) in [("token", &self.cluster.token), ("password", &self.cluster.password)] {
                if let Some(Err(error)) = secret.as_ref().map(Secret::reveal) {
                    wrong(&["cluster", key], format!("cluster.{key}: {error}"));
                }
            }
            for (key, file) in [("credentials", &self.cluster.credentials), ("ca", &self.cluster.ca)] {
                if let Some((path, Err(error))) = file.as_ref().map(|path| (path, files::open_regular(path)))
                {
                    wrong(&["cluster", key], format!("cluster.{key}: {}: {error}", path.display()));
                }
            }
        }
        found.extend(self.missing_programs());
        if !encke_io::socket::HAS_UNIX_SOCKETS {
            found.extend(self.unix_sockets());
        }
        found
    }

    /// The Unix sockets of listeners and targets, as errors of a system that has none.
    fn unix_sockets(&self) -> Vec<SettingsFileError> {
        let mut found = Vec::new();
        let mut wrong = |path: &[&str], message: String| {
            found.push(SettingsFileError { place: self.source.line(path), message });
        };
        for (number, listen) in self.server.listen.iter().enumerate() {
            if let ListenAddress::Unix(_) = listen.address {
                let number = number.to_string();
                let path = ["server", "listen", &number];
                // One listener may be a text instead of a list.
                let path = if self.source.contains(&path) { &path[..] } else { &path[..2] };
                wrong(path, format!("server.listen: {}: {NO_UNIX_SOCKETS} 127.0.0.1:8080", listen.address));
            }
        }
        if let OrOff::On(admin) = &self.server.admin
            && let address @ ListenAddress::Unix(_) = admin.address()
        {
            wrong(&["server", "admin"], format!("server.admin: {address}: {NO_UNIX_SOCKETS} 127.0.0.1:8081"));
        }
        for (url, path) in self.targets() {
            if matches!(url.addresses().as_deref(), Ok([encke_io::Address::Unix(_)])) {
                let keys: Vec<&str> = path.iter().map(String::as_str).collect();
                wrong(&keys, format!("{url}: {NO_UNIX_SOCKETS} http://127.0.0.1:3000"));
            }
        }
        found
    }

    /// Warnings about targets whose names have no address at present, each with its position.
    fn unresolved_targets(&self) -> Vec<String> {
        let unresolved = self.targets().into_iter().filter(|(url, _)| url.addresses().is_err());
        let warning = |(url, path): (TargetUrl, Vec<String>)| {
            let keys: Vec<&str> = path.iter().map(String::as_str).collect();
            SettingsWarning { place: self.source.line(&keys), message: url.unresolved_note() }.to_string()
        };
        unresolved.map(warning).collect()
    }

    /// The keys that lead to the value with an error of rights.
    fn path_of(&self, error: &RightsError) -> Vec<String> {
        let path: (&str, &str, Option<usize>) = match error {
            // The numbers of keys and tokens begin at 1.
            RightsError::Key(number, _) => ("auth", "keys", number.checked_sub(1)),
            RightsError::Token(number, _) => ("auth", "tokens", number.checked_sub(1)),
            RightsError::KeySet(_) => ("auth", "jwks", None),
            RightsError::Keys(_) => ("auth", "keys", None),
            RightsError::Tokens(_) => ("auth", "tokens", None),
            RightsError::Certificate(subject, _) => {
                let number = self.auth.certificates.iter().position(|one| one.subject == *subject);
                ("auth", "certificates", number)
            }
            RightsError::Origin(text) => {
                ("push", "origins", self.push.origins.iter().position(|one| one == text))
            }
            RightsError::AllOrigins => ("push", "origins", None),
            _ => return vec!["auth".into()],
        };
        let (section, key, number) = path;
        [section.to_owned(), key.to_owned()]
            .into_iter()
            .chain(number.map(|number| number.to_string()))
            .collect()
    }
}

/// The key of `tls` that names the file with an error.
fn tls_key(tls: &TlsSettings, error: &TlsError) -> Option<&'static str> {
    let TlsError::File(file, _) = error else { return None };
    let is_file = |path: &Option<PathBuf>| path.as_ref() == Some(file);
    [("cert", &tls.cert), ("key", &tls.key), ("client_ca", &tls.client_ca)]
        .into_iter()
        .find_map(|(key, path)| is_file(path).then_some(key))
}

/// Why an access log cannot be opened, with the remedy.
fn log_error(target: &LogTarget) -> Option<String> {
    let LogTarget::File(path) = target else { return None };
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Some(format!("{shown} is a directory: name a file in it")),
        Ok(_) => files::may_write(path).err().map(|error| {
            format!("cannot write to {shown}: {error}; change its permissions, or name another file")
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let directory = directory.unwrap_or(Path::new("."));
            let error = files::may_write(directory).err()?;
            let remedy = if error.kind() == io::ErrorKind::NotFound {
                "create the directory"
            } else {
                "change its permissions"
            };
            Some(format!(
                "cannot create {shown} in {}: {error}; {remedy}, or name another file",
                directory.display()
            ))
        }
        Err(error) => Some(format!("cannot open {shown}: {error}; name another file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_socket_is_an_error_at_its_place_where_there_are_none() {
        let text = "[server]\nlisten = [\"8080\", \"unix:/run/a.sock\"]\nadmin = \"unix:/run/admin.sock\"\n\
                    [[site]]\n[[site.route]]\npattern = \"/**\"\nupstream = \"http://unix:/run/app.sock\"\n\
                    [[upstream]]\nname = \"x\"\nto = [\"http://127.0.0.1:1\"]\n";
        let settings = Settings::parse("a.toml", text).unwrap_or_else(|problems| panic!("{problems}"));
        let said: Vec<String> = settings.unix_sockets().iter().map(ToString::to_string).collect();
        let [listen, admin, route] = &said[..] else { panic!("{said:?}") };
        assert!(
            listen.starts_with("a.toml:2:") && listen.contains("unix:/run/a.sock: Unix sockets"),
            "{listen}"
        );
        assert!(admin.starts_with("a.toml:3:") && admin.ends_with("127.0.0.1:8081"), "{admin}");
        assert!(route.starts_with("a.toml:7:") && route.contains("unix:/run/app.sock"), "{route}");
    }
}
