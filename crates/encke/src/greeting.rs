//! The text that a server prints when it starts: addresses and commands ready to copy, and access rights.
//!
//! ```text
//! encke 0.1.0 serves
//!   site     http://127.0.0.1:8080/
//!   redirect http://example.org/ → https:8443  (on all addresses, 0.0.0.0:80)
//!   trust    …/authority.pem of --tls-self-signed, and instructions
//!   root     /srv/site
//!   publish  curl -d hi http://127.0.0.1:8080/push/news
//!   read     http://127.0.0.1:8080/push/news in a browser, or: encke sub http://127.0.0.1:8080/push/news
//!   rights   only clients on this machine may publish and subscribe
//!   admin    http://127.0.0.1:8081/api/v1/status?token=…
//!   console  http://127.0.0.1:8081/#login=…
//!   backend  epoll-edge: …
//!   capacity 2 workers, up to 1000 connections
//! ```

use std::fs;
use std::path::Path;

use encke_assembly::Service;
use encke_assembly::settings::{Act, Admin, LogTarget, OrOff, RouteSettings, Settings, routes_in_order};
use encke_io::Address;
use encke_session::tls::LocalAuthority;

use crate::admin_token::AdminTokenFile;
use crate::shell::{on_windows, quoted, word};

mod addresses;
mod rights;

use addresses::{Entry, Face};
use rights::{CHANNEL, ChannelAccess, CredentialKind};

/// Returns the start text of a server that was made from settings.
///
/// `authority` is the local authority of this machine, if there is one that clients can trust; `token` the file from which
/// `encke console` reads the token.
pub(crate) fn text(
    service: &Service,
    settings: &Settings,
    authority: Option<&LocalAuthority>,
    token: Option<&AdminTokenFile>,
) -> String {
    let (backend, reason) = service.backend();
    let workers = service.workers();
    let threads = if workers == 1 { "worker" } else { "workers" };
    let mut lines = vec![format!("encke {} serves", env!("CARGO_PKG_VERSION"))];
    let mut line = |name: &str, value: String| lines.push(format!("  {name:<8} {value}"));
    let faces = Face::all(service);
    for site in addresses::sites(&faces, settings) {
        line("site", site);
    }
    if let Some(redirects) = addresses::redirects(&faces, settings, settings.https_port()) {
        line("redirect", redirects);
    }
    if let Some(authority) = authority {
        // By a name of the certificate: it has 127.0.0.1, and no other address of the listener.
        let secure = faces.iter().find(|face| face.secure).map(|face| face.for_channels(settings));
        for (name, how) in trust(authority, secure.as_ref()) {
            line(name, how);
        }
    }
    for site in &settings.site {
        let root = shown(&fs::canonicalize(&site.root).unwrap_or_else(|_| site.root.clone()));
        let hosts =
            if site.host.is_empty() { String::new() } else { format!(" for {}", site.host.join(", ")) };
        let takes_all = |route: &RouteSettings| {
            route.pattern == "/**" && route.upstream.is_some() && route.files.is_none()
        };
        if !site.route.iter().any(takes_all) {
            line("root", format!("{root}{hosts}"));
        }
        for route in routes_in_order(&site.route) {
            line("route", format!("{}{hosts}", route.summary(&settings.upstream)));
        }
    }
    if settings.site.is_empty() {
        line("root", "none: no [[site]], so no files are served".into());
    }
    if settings.push.enabled
        && let Some(face) = faces.iter().find(|face| !face.redirect)
    {
        let addresses = service.addresses();
        let way = |act| rights::access(settings, &addresses, act);
        let trusted = authority.filter(|_| face.secure).map(|authority| authority.certificate.as_path());
        let channels = Channels { entry: face.for_channels(settings), trusted, settings };
        if let Some(command) = channels.publish(&way(Act::Publish)) {
            line("publish", command);
        }
        if let Some(command) = channels.read(&way(Act::Subscribe)) {
            line("read", command);
        }
        line("rights", rights::sentence(settings, &addresses));
    }
    let token_is_ours = matches!(&settings.server.admin, OrOff::On(Admin { token: None, .. }));
    // A configured token is a secret of the operator, and this text may end up in logs.
    let (path, remark) = if token_is_ours {
        (format!("api/v1/status?token={}", service.admin_token()), "")
    } else {
        ("api/v1/status".to_owned(), "the token is server.admin.token")
    };
    let secure = service.admin_addresses().first().is_some_and(|address| service.is_secure(address));
    for admin in addresses::admin(service.admin_addresses(), secure, &path, remark) {
        line("admin", admin);
    }
    // A one-time token is no lasting secret, but a server with a configured token may write this text to a log of others.
    let (path, remark) = match service.console_token().filter(|_| token_is_ours) {
        Some(login) => {
            let later = token.map(|file| format!("; later: {}", file.command())).unwrap_or_default();
            (format!("#login={login}"), format!("valid once, for ten minutes{later}"))
        }
        None => {
            let file =
                settings.file.as_deref().map(|file| format!(" -c {}", quoted(file))).unwrap_or_default();
            (String::new(), format!("`encke console{file}` opens it, logged in"))
        }
    };
    for console in console(service, &path, &remark) {
        line("console", console);
    }
    line("backend", format!("{backend}: {reason}"));
    line("capacity", format!("{workers} {threads}, up to {} connections", service.connections()));
    match &settings.log.access {
        LogTarget::Stdout => {}
        other => line("log", other.to_string()),
    }
    lines.join("\n") + "\n"
}

/// Returns the addresses of the console, one for each listener that a browser can open.
pub(crate) fn console(service: &Service, path: &str, remark: &str) -> Vec<String> {
    let addresses = service.admin_addresses();
    let secure = addresses.first().is_some_and(|address| service.is_secure(address));
    addresses::console(addresses, secure, path, remark)
}

/// Returns the URL to open, or the command to type, for an address.
pub(crate) fn url(address: &Address, secure: bool, path: &str) -> String {
    let face = Face { address: address.clone(), secure, redirect: false, certificate: Vec::new() };
    let entry = face.own();
    match address {
        Address::Inet(inet) if inet.ip().is_unspecified() => {
            format!("{}  (on all addresses, {inet})", entry.url(path))
        }
        Address::Inet(_) => entry.url(path),
        Address::Unix(_) => format!("curl {}", entry.curl(path)),
    }
}

/// A path as users of this system write it: without the prefix `\\?\` of Windows, which `canonicalize` adds there.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    match text.strip_prefix(r"\\?\") {
        Some(rest) => {
            rest.strip_prefix(r"UNC\").map_or_else(|| rest.to_owned(), |share| format!(r"\\{share}"))
        }
        None => text,
    }
}

/// Instructions for trusting the local authority, by client.
fn trust(authority: &LocalAuthority, entry: Option<&Entry>) -> Vec<(&'static str, String)> {
    let file = quoted(&authority.certificate);
    let url = entry.map_or_else(|| "https://localhost/".into(), |entry| entry.curl(""));
    let again = if authority.is_new { " (new: trust it once; it is reused)" } else { "" };
    let mut lines = vec![
        ("trust", format!("{}{again}", authority.certificate.display())),
        ("", format!("curl       curl --cacert {file} {url}")),
    ];
    if on_windows() {
        lines.push(("", format!("Windows    certutil -user -addstore Root {file}")));
        lines.push(("", "Firefox    reads the certificates of Windows".into()));
        return lines;
    }
    lines.extend([
        ("", format!("Chromium   certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n encke -i {file}")),
        ("", "Firefox    Settings, Privacy & Security, View Certificates, Authorities, Import".into()),
        (
            "",
            format!(
                "Debian     sudo install -m 644 {file} /usr/local/share/ca-certificates/encke.crt && sudo \
                 update-ca-certificates"
            ),
        ),
    ]);
    lines
}

/// The commands for channels at one listener.
struct Channels<'a> {
    entry: Entry,
    /// A CA certificate to pass to the commands.
    trusted: Option<&'a Path>,
    settings: &'a Settings,
}

impl Channels<'_> {
    /// A command that publishes a message; `None` if no command is known to be allowed.
    fn publish(&self, way: &ChannelAccess) -> Option<String> {
        let (channel, credentials) = curl_credentials(way)?;
        if rights::stream_of(self.settings, channel).is_some() {
            let token = self.player_token(&credentials, "-headers ")?;
            let url = self.entry.url(channel);
            return Some(format!("ffmpeg -re -i FILM.webm -c copy -f webm -method PUT {token}{url}"));
        }
        Some(format!("curl {}{credentials}-d hi {}", self.authority(), self.entry.curl(&self.path(channel))))
    }

    /// A command, and perhaps a page, that reads messages; `None` if neither is known to be allowed.
    fn read(&self, way: &ChannelAccess) -> Option<String> {
        let (channel, credentials) = curl_credentials(way)?;
        if rights::stream_of(self.settings, channel).is_some() {
            let token = self.player_token(&credentials, "--http-header-fields=")?;
            return Some(format!("mpv {token}{}", self.entry.url(channel)));
        }
        let path = self.path(channel);
        let (url, by) = (self.entry.url(&path), self.authority());
        // `encke sub` connects to the host of the URL only, and has no certificates.
        let is_plain = matches!(way, ChannelAccess::Open);
        let has_token = credentials.contains("Bearer");
        Some(if self.entry.is_url() && is_plain {
            format!("{url} in a browser, or: encke sub {by}{url}")
        } else if self.entry.is_url() && has_token {
            format!("encke sub {by}--token TOKEN {url}")
        } else {
            let accept = word("Accept: text/event-stream");
            format!("curl -N {by}{credentials}-H {accept} {}", self.entry.curl(&path))
        })
    }

    /// The argument of ffmpeg or mpv for a token. `None` if they cannot reach the listener, or the credential is no token.
    fn player_token(&self, credentials: &str, option: &str) -> Option<String> {
        let is_possible = self.entry.is_url() && self.trusted.is_none() && credentials.contains("Bearer");
        is_possible.then(|| format!("{option}{} ", word(BEARER)))
    }

    fn path(&self, channel: &str) -> String {
        format!("{}{channel}", self.settings.push.prefix.trim_start_matches('/'))
    }

    fn authority(&self) -> String {
        self.trusted.map(|file| format!("--cacert {} ", quoted(file))).unwrap_or_default()
    }
}

/// A header field with a placeholder for the token.
const BEARER: &str = "Authorization: Bearer TOKEN";

/// A channel that a client may use, and curl's arguments for its credentials, which end with a space. `None` if there is none,
/// or if only the application knows the credentials.
fn curl_credentials(way: &ChannelAccess) -> Option<(&str, String)> {
    let means = match way {
        ChannelAccess::Open => return Some((CHANNEL, String::new())),
        ChannelAccess::By(means) => means,
    };
    means.iter().find_map(|one| match one {
        CredentialKind::Token(channel) => Some((channel.as_str(), format!("-H {} ", word(BEARER)))),
        CredentialKind::Certificate(channel) => {
            Some((channel.as_str(), "--cert CERT.pem --key KEY.pem ".into()))
        }
        CredentialKind::Endpoint => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::quoted_here;
    use encke_assembly::settings::PushSettings;

    fn at(text: &str) -> Address {
        Address::Inet(text.parse().expect("an address"))
    }

    fn push(
        address: &Address,
        trusted: Option<&Path>,
        settings: &PushSettings,
        way: &ChannelAccess,
    ) -> [String; 2] {
        let secure = trusted.is_some();
        let face = Face { address: address.clone(), secure, redirect: false, certificate: Vec::new() };
        let settings = Settings { push: settings.clone(), ..Settings::default() };
        let channels = Channels { entry: face.own(), trusted, settings: &settings };
        [channels.publish(way), channels.read(way)].map(Option::unwrap_or_default)
    }

    #[test]
    fn addresses_are_told_as_they_are_typed() {
        assert_eq!(url(&at("127.0.0.1:81"), false, ""), "http://127.0.0.1:81/");
        assert_eq!(url(&at("[::1]:80"), false, "x"), "http://[::1]/x");
        assert_eq!(url(&at("127.0.0.1:443"), true, ""), "https://127.0.0.1/");
        assert!(url(&at("0.0.0.0:81"), false, "").starts_with("http://localhost:81/ "));
        assert_eq!(url(&Address::Unix("/s".into()), false, ""), "curl --unix-socket /s http://localhost/");
    }

    #[test]
    fn push_is_told_as_it_is_typed() {
        let settings = PushSettings::default();
        let [publish, read] = push(&at("0.0.0.0:81"), None, &settings, &ChannelAccess::Open);
        assert_eq!(publish, "curl -d hi http://localhost:81/push/news");
        let url = "http://localhost:81/push/news";
        assert_eq!(read, format!("{url} in a browser, or: encke sub {url}"));
        let [publish, read] =
            push(&at("127.0.0.1:444"), Some(Path::new("ca.pem")), &settings, &ChannelAccess::Open);
        let url = "https://127.0.0.1:444/push/news";
        assert_eq!(publish, format!("curl --cacert ca.pem -d hi {url}"));
        assert_eq!(read, format!("{url} in a browser, or: encke sub --cacert ca.pem {url}"));
        let live = PushSettings { prefix: "/live/".into(), ..settings };
        let [publish, read] = push(&Address::Unix("/s".into()), None, &live, &ChannelAccess::Open);
        assert_eq!(publish, "curl -d hi --unix-socket /s http://localhost/live/news");
        let curl = "curl -N -H 'Accept: text/event-stream' --unix-socket /s http://localhost/live/news";
        assert_eq!(read, quoted_here(curl));
    }

    #[test]
    fn commands_have_the_credentials_that_the_rights_require() {
        let told = |means: &[CredentialKind]| {
            push(&at("127.0.0.1:81"), None, &PushSettings::default(), &ChannelAccess::By(means.to_vec()))
        };
        let [publish, read] = told(&[CredentialKind::Token("orders/news".into()), CredentialKind::Endpoint]);
        let url = "http://127.0.0.1:81/push/orders/news";
        assert_eq!(publish, quoted_here(&format!("curl -H 'Authorization: Bearer TOKEN' -d hi {url}")));
        assert_eq!(read, format!("encke sub --token TOKEN {url}"));
        let [publish, read] = told(&[CredentialKind::Certificate("news".into())]);
        let url = "http://127.0.0.1:81/push/news";
        assert_eq!(publish, format!("curl --cert CERT.pem --key KEY.pem -d hi {url}"));
        let stream = quoted_here("-H 'Accept: text/event-stream'");
        assert_eq!(read, format!("curl -N --cert CERT.pem --key KEY.pem {stream} {url}"));
        let [publish, read] = told(&[CredentialKind::Token("live/news".into())]);
        let (url, token) = ("http://127.0.0.1:81/live/news", quoted_here("'Authorization: Bearer TOKEN'"));
        let sent = "ffmpeg -re -i FILM.webm -c copy -f webm -method PUT";
        assert_eq!(publish, format!("{sent} -headers {token} {url}"));
        assert_eq!(read, format!("mpv --http-header-fields={token} {url}"));
        for means in [&[][..], &[CredentialKind::Endpoint]] {
            assert_eq!(told(means), ["", ""], "{means:?}");
        }
    }
}
