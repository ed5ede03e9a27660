//! The text that a server prints when it starts: addresses and commands ready to copy, and access rights.
//!
//! ```text
//! encke 0.1.0 serves
//!   site     http://127.0.0.1:8080/
//!   trust    …/authority.pem of --tls-self-signed, and instructions
//!   root     /srv/site
//!   publish  curl -d hi http://127.0.0.1:8080/push/news
//!   read     http://127.0.0.1:8080/push/news in a browser, or: encke sub http://127.0.0.1:8080/push/news
//!   access   only clients on this machine may publish and subscribe
//!   admin    http://127.0.0.1:8081/api/v1/status?token=…
//!   backend  epoll-edge: …
//!   capacity 2 workers, up to 1000 connections
//! ```

use std::fs;
use std::path::Path;

use encke_assembly::Service;
use encke_assembly::settings::{Act, Admin, LogTarget, OrOff, PushSettings, Settings};
use encke_io::Address;
use encke_session::tls::LocalAuthority;

/// Returns the start text of a server that was made from settings.
///
/// `authority` is the local authority of this machine, if there is one that clients can trust.
pub(crate) fn text(service: &Service, settings: &Settings, authority: Option<&LocalAuthority>) -> String {
    let (backend, reason) = service.backend();
    let workers = service.workers();
    let threads = if workers == 1 { "worker" } else { "workers" };
    let mut lines = vec![format!("encke {} serves", env!("CARGO_PKG_VERSION"))];
    let mut line = |name: &str, value: String| lines.push(format!("  {name:<8} {value}"));
    for address in service.addresses() {
        line("site", url(&address, service.is_secure(&address), ""));
    }
    if let Some(authority) = authority {
        let secure = service.addresses().into_iter().find(|address| service.is_secure(address));
        for (name, how) in trust(authority, secure.as_ref()) {
            line(name, how);
        }
    }
    for site in &settings.site {
        let root = fs::canonicalize(&site.root).unwrap_or_else(|_| site.root.clone());
        let hosts =
            if site.host.is_empty() { String::new() } else { format!(" for {}", site.host.join(", ")) };
        line("root", format!("{}{hosts}", root.display()));
    }
    if settings.push.enabled
        && let Some(address) = service.addresses().first()
    {
        let secure = service.is_secure(address);
        let trusted = authority.filter(|_| secure).map(|authority| authority.certificate.as_path());
        let [publish, read] = push(address, secure, trusted, &settings.push);
        line("publish", publish);
        line("read", read);
        line("access", rights(settings, &service.addresses()));
    }
    let token_is_ours = matches!(&settings.server.admin, OrOff::On(Admin { token: None, .. }));
    for address in service.admin_addresses() {
        // A configured token is a secret of the operator, and this text may end up in logs.
        let token = if token_is_ours { service.admin_token() } else { "********" };
        line("admin", url(&address, false, &format!("api/v1/status?token={token}")));
    }
    line("backend", format!("{backend}: {reason}"));
    line("capacity", format!("{workers} {threads}, up to {} connections", service.connections()));
    match &settings.log.access {
        LogTarget::Stdout => {}
        other => line("log", other.to_string()),
    }
    lines.join("\n") + "\n"
}

/// Returns the URL to open, or the command to type, for an address.
pub(crate) fn url(address: &Address, secure: bool, path: &str) -> String {
    match address {
        Address::Inet(inet) if inet.ip().is_unspecified() => {
            format!("{}  (on all addresses, {inet})", bare_url(address, secure, path))
        }
        Address::Inet(_) => bare_url(address, secure, path),
        Address::Unix(_) => format!("curl {}", of_curl(address, secure, path)),
    }
}

/// Instructions for trusting the local authority, by client.
fn trust(authority: &LocalAuthority, address: Option<&Address>) -> Vec<(&'static str, String)> {
    let file = authority.certificate.display();
    let url = address.map_or_else(|| "https://localhost/".into(), |address| bare_url(address, true, ""));
    let again = if authority.is_new { " (new: trust it once; it is reused)" } else { "" };
    vec![
        ("trust", format!("{file}{again}")),
        ("", format!("curl       curl --cacert {file} {url}")),
        ("", format!("Chromium   certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n encke -i {file}")),
        ("", "Firefox    Settings, Privacy & Security, View Certificates, Authorities, Import".into()),
        (
            "",
            format!(
                "Debian     sudo install -m 644 {file} /usr/local/share/ca-certificates/encke.crt && sudo \
                 update-ca-certificates"
            ),
        ),
    ]
}

/// Commands that publish and read a message at this address. `trusted` is a CA certificate to pass to the commands.
fn push(address: &Address, secure: bool, trusted: Option<&Path>, settings: &PushSettings) -> [String; 2] {
    let path = format!("{}news", settings.prefix.trim_start_matches('/'));
    let by = trusted.map(|file| format!("--cacert {} ", file.display())).unwrap_or_default();
    let publish = format!("curl {by}-d hi {}", of_curl(address, secure, &path));
    let url = bare_url(address, secure, &path);
    let read = match address {
        Address::Inet(_) => format!("{url} in a browser, or: encke sub {by}{url}"),
        Address::Unix(_) => {
            format!("curl -N -H 'Accept: text/event-stream' {}", of_curl(address, secure, &path))
        }
    };
    [publish, read]
}

/// Describes the rights to publish and subscribe.
fn rights(settings: &Settings, addresses: &[Address]) -> String {
    if settings.open {
        return "all clients may publish and subscribe (--open)".into();
    }
    if settings.file.is_none() {
        let here = |address: &Address| matches!(address, Address::Inet(inet) if inet.ip().is_loopback());
        return if addresses.iter().all(here) {
            "only clients on this machine may publish and subscribe".into()
        } else {
            "no client may publish or subscribe: --open permits all, [auth] in a settings file permits some"
                .into()
        };
    }
    let auth = &settings.auth;
    let has_token = !(auth.keys.is_empty() && auth.tokens.is_empty() && auth.jwks.is_none());
    let needs = match (has_token, auth.ask.is_some()) {
        (true, true) => "need a token or the permission of auth.ask",
        (true, false) => "need a token",
        (false, true) => "need the permission of auth.ask",
        (false, false) => "are rejected: [auth] has no tokens, keys or anonymous rights",
    };
    let anybody = |act: Act| auth.anonymous.contains(&act);
    match (anybody(Act::Publish), anybody(Act::Subscribe)) {
        (true, true) => "all clients may publish and subscribe".into(),
        (false, true) => format!("all clients may subscribe; messages {needs}"),
        (true, false) => format!("all clients may publish; subscriptions {needs}"),
        (false, false) => format!("messages and subscriptions {needs}"),
    }
}

/// Returns the arguments of curl for a path.
fn of_curl(address: &Address, secure: bool, path: &str) -> String {
    match address {
        Address::Inet(_) => bare_url(address, secure, path),
        Address::Unix(socket) => {
            format!("--unix-socket {} {}", socket.display(), bare_url(address, secure, path))
        }
    }
}

/// Returns the URL alone. A listener on all addresses is reached as `localhost`.
fn bare_url(address: &Address, secure: bool, path: &str) -> String {
    let scheme = if secure { "https" } else { "http" };
    match address {
        Address::Inet(inet) if inet.ip().is_unspecified() => {
            format!("{scheme}://localhost:{}/{path}", inet.port())
        }
        Address::Inet(inet) => format!("{scheme}://{inet}/{path}"),
        Address::Unix(_) => format!("{scheme}://localhost/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use encke_assembly::settings::AuthSettings;

    fn at(text: &str) -> Address {
        Address::Inet(text.parse().expect("an address"))
    }

    #[test]
    fn addresses_are_told_as_they_are_typed() {
        assert_eq!(url(&at("127.0.0.1:80"), false, ""), "http://127.0.0.1:80/");
        assert_eq!(url(&at("[::1]:80"), false, "x"), "http://[::1]:80/x");
        assert_eq!(url(&at("127.0.0.1:443"), true, ""), "https://127.0.0.1:443/");
        assert!(url(&at("0.0.0.0:80"), false, "").starts_with("http://localhost:80/ "));
        assert_eq!(url(&Address::Unix("/s".into()), false, ""), "curl --unix-socket /s http://localhost/");
    }

    #[test]
    fn push_is_told_as_it_is_typed() {
        let settings = PushSettings::default();
        let [publish, read] = push(&at("0.0.0.0:80"), false, None, &settings);
        assert_eq!(publish, "curl -d hi http://localhost:80/push/news");
        let url = "http://localhost:80/push/news";
        assert_eq!(read, format!("{url} in a browser, or: encke sub {url}"));
        let [publish, read] = push(&at("127.0.0.1:443"), true, Some(Path::new("ca.pem")), &settings);
        let url = "https://127.0.0.1:443/push/news";
        assert_eq!(publish, format!("curl --cacert ca.pem -d hi {url}"));
        assert_eq!(read, format!("{url} in a browser, or: encke sub --cacert ca.pem {url}"));
        let live = PushSettings { prefix: "/live/".into(), ..settings };
        let [publish, read] = push(&Address::Unix("/s".into()), false, None, &live);
        assert_eq!(publish, "curl -d hi --unix-socket /s http://localhost/live/news");
        let curl = "curl -N -H 'Accept: text/event-stream' --unix-socket /s http://localhost/live/news";
        assert_eq!(read, curl);
    }

    #[test]
    fn rights_are_told_in_a_sentence() {
        let here = [at("127.0.0.1:80"), at("[::1]:80")];
        let told = |settings: &Settings| rights(settings, &here);
        let none = Settings::default();
        assert!(told(&none).starts_with("only clients on this machine may"));
        for elsewhere in [at("0.0.0.0:80"), Address::Unix("/s".into())] {
            assert!(rights(&none, &[at("127.0.0.1:80"), elsewhere]).starts_with("no client may"));
        }
        assert!(told(&Settings { open: true, ..none }).starts_with("all clients may publish"));

        let with = |anonymous: &[Act], ask: Option<&str>, jwks: Option<&str>| Settings {
            file: Some("encke.toml".into()),
            auth: AuthSettings {
                anonymous: anonymous.to_vec(),
                ask: ask.map(|url| url.parse().expect("a URL")),
                jwks: jwks.map(Into::into),
                ..AuthSettings::default()
            },
            ..Settings::default()
        };
        let (publish, subscribe) = (Act::Publish, Act::Subscribe);
        let (url, keys) = (Some("http://127.0.0.1:3000/may"), Some("keys.json"));
        for (settings, sentence) in [
            (
                with(&[], None, None),
                "messages and subscriptions are rejected: [auth] has no tokens, keys or anonymous rights",
            ),
            (with(&[], None, keys), "messages and subscriptions need a token"),
            (
                with(&[subscribe], url, None),
                "all clients may subscribe; messages need the permission of auth.ask",
            ),
            (
                with(&[publish], url, keys),
                "all clients may publish; subscriptions need a token or the permission of auth.ask",
            ),
            (with(&[publish, subscribe], None, None), "all clients may publish and subscribe"),
        ] {
            assert_eq!(told(&settings), sentence);
        }
    }
}
