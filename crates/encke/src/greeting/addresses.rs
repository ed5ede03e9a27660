//! The URLs and curl commands that reach a listener.
//!
//! ```text
//!  listener ─► names: of the sites, of the certificate ─► Entry: a URL to open, or curl's arguments
//!  all addresses, an address of the network      https://example.org/
//!  loopback                                      curl --resolve example.org:8443:127.0.0.1 https://example.org:8443/
//!  Unix socket                                   curl --unix-socket /run/encke.sock http://example.org/
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use encke_assembly::Service;
use encke_assembly::settings::Settings;
use encke_io::Address;
use encke_server::HTTPS_PORT;
use encke_wire::host::HostPattern;

use crate::shell::quoted;

/// Maximum number of site names that are printed for a listener.
const NAMES_MAX: usize = 8;

/// The default port of `http` (RFC 9110 §4.2.1).
const HTTP_PORT: u16 = 80;

/// A listener, as its clients see it.
#[derive(Clone, Debug)]
pub(super) struct Face {
    pub(super) address: Address,
    pub(super) secure: bool,
    /// Whether all requests are redirected to https.
    pub(super) redirect: bool,
    /// The names in its certificates.
    pub(super) certificate: Vec<String>,
}

/// A way to reach a listener under one host name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    secure: bool,
    /// The host of the URL; an IPv6 address in brackets.
    host: String,
    port: u16,
    route: Route,
    /// Whether the certificate has the host. Always true without TLS.
    trusted: bool,
}

/// How a client finds the listener.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Route {
    /// By the URL alone.
    Url,
    /// By an address that the name does not resolve to.
    Resolved(IpAddr),
    Socket(PathBuf),
}

impl Face {
    /// All listeners of a service, in their order.
    pub(super) fn all(service: &Service) -> Vec<Self> {
        let face = |address: Address| Self {
            secure: service.is_secure(&address),
            redirect: service.is_redirect(&address),
            certificate: service.certificate_names(&address),
            address,
        };
        service.addresses().into_iter().map(face).collect()
    }

    /// The entry by the listener's own address.
    pub(super) fn own(&self) -> Entry {
        let (host, port, route) = match &self.address {
            Address::Inet(inet) if inet.ip().is_unspecified() => {
                ("localhost".to_owned(), inet.port(), Route::Url)
            }
            Address::Inet(inet) => (host_of(inet.ip()), inet.port(), Route::Url),
            Address::Unix(socket) => {
                ("localhost".to_owned(), default_port(self.secure), Route::Socket(socket.clone()))
            }
        };
        let trusted = self.covers(&host);
        Entry { secure: self.secure, host, port, route, trusted }
    }

    /// The entry by a name.
    fn by(&self, name: &str) -> Entry {
        let (port, route) = match &self.address {
            Address::Inet(inet) => {
                let resolves = !inet.ip().is_loopback() || (is_local(name) && is_localhost(inet.ip()));
                let route = if resolves { Route::Url } else { Route::Resolved(inet.ip()) };
                (inet.port(), route)
            }
            Address::Unix(socket) => (default_port(self.secure), Route::Socket(socket.clone())),
        };
        Entry { secure: self.secure, host: name.to_owned(), port, route, trusted: self.covers(name) }
    }

    /// The URL by a name of another listener; `None` if the URL alone does not reach this one.
    fn redirect_url(&self, name: &str) -> Option<String> {
        let Address::Inet(inet) = &self.address else { return None };
        let reaches = match name.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => ip == inet.ip(),
            Err(_) => !is_local(name) || is_localhost(inet.ip()),
        };
        let entry = self.by(name);
        ((reaches || inet.ip().is_unspecified()) && entry.is_url()).then(|| entry.url(""))
    }

    /// The entries under which a site of the settings responds, the best first, without TLS errors if there are any.
    pub(super) fn entries(&self, settings: &Settings) -> Vec<Entry> {
        let names = site_names(settings);
        let has_default = settings.site.iter().any(|site| site.host.is_empty()) || settings.site.is_empty();
        let own = has_default.then(|| self.own());
        // The site for all names is reached by the names of a certificate that has not the listener's address.
        let is_foreign = own.as_ref().is_some_and(|own| !own.trusted);
        let certificate =
            self.certificate.iter().filter(|name| is_foreign && name.parse::<IpAddr>().is_err());
        let mut entries: Vec<Entry> = Vec::new();
        for entry in own.into_iter().chain(names.iter().chain(certificate).map(|name| self.by(name))) {
            if !entries.iter().any(|other| other.host == entry.host) {
                entries.push(entry);
            }
        }
        if entries.iter().any(|entry| entry.trusted) {
            entries.retain(|entry| entry.trusted);
        }
        entries
    }

    /// The entry for requests to channels, which have no host name.
    pub(super) fn for_channels(&self, settings: &Settings) -> Entry {
        let own = self.own();
        if own.trusted {
            return own;
        }
        let is_exact = |entry: &Entry| entry.trusted && !entry.host.starts_with('*');
        self.entries(settings).into_iter().find(is_exact).unwrap_or(own)
    }

    /// Whether the certificate has a name, or there is no TLS.
    fn covers(&self, name: &str) -> bool {
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let fits = |known: &String| {
            let pattern = known.parse::<HostPattern>();
            // A star in a certificate stands for one label (RFC 9525 §6.3).
            let labels = |text: &str| text.matches('.').count();
            known.eq_ignore_ascii_case(bare)
                || pattern.is_ok_and(|pattern| {
                    pattern.is_below() && labels(known) == labels(bare) && pattern.matches(bare.as_bytes())
                })
        };
        !self.secure || self.certificate.iter().any(fits)
    }
}

impl Entry {
    /// The URL of a path without its first slash.
    pub(super) fn url(&self, path: &str) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        let port =
            if self.port == default_port(self.secure) { String::new() } else { format!(":{}", self.port) };
        format!("{scheme}://{}{port}/{path}", self.host)
    }

    /// The arguments of curl for a path.
    pub(super) fn curl(&self, path: &str) -> String {
        let url = self.url(path);
        match &self.route {
            Route::Url => url,
            Route::Resolved(ip) => format!("--resolve {}:{}:{} {url}", self.host, self.port, host_of(*ip)),
            Route::Socket(socket) => format!("--unix-socket {} {url}", quoted(socket)),
        }
    }

    /// Whether the URL alone reaches the listener.
    pub(super) fn is_url(&self) -> bool {
        self.route == Route::Url
    }

    /// The URL to open, or the command to type. A pattern of names is neither, so its line is a text.
    fn shown(&self) -> String {
        let (host, port) = (&self.host, self.port);
        let is_pattern = host.starts_with('*');
        let scheme = if self.secure { "https" } else { "http" };
        match &self.route {
            Route::Url if is_pattern => format!("{host} by {scheme} on port {port}"),
            Route::Resolved(ip) if is_pattern => format!("{host} by {scheme} on {}:{port}", host_of(*ip)),
            Route::Socket(socket) if is_pattern => format!("{host} by {scheme} on {}", socket.display()),
            Route::Url => self.url(""),
            Route::Resolved(_) | Route::Socket(_) => format!("curl {}", self.curl("")),
        }
    }
}

/// The `site` lines: each URL once, with remarks.
pub(super) fn sites(faces: &[Face], settings: &Settings) -> Vec<String> {
    // Listeners of both families show the same names.
    let mut lines: Vec<(String, Vec<SocketAddr>, &str)> = Vec::new();
    let mut seen: Vec<(String, u16, bool)> = Vec::new();
    for face in faces.iter().filter(|face| !face.redirect) {
        let entries = face.entries(settings);
        let count = entries.len();
        for (place, entry) in entries.into_iter().enumerate() {
            let key = (entry.host.clone(), entry.port, entry.secure);
            let everywhere = match &face.address {
                Address::Inet(inet) if inet.ip().is_unspecified() => Some(*inet),
                _ => None,
            };
            let line = if place == NAMES_MAX {
                format!("… and {} more names", count - NAMES_MAX)
            } else {
                entry.shown()
            };
            if let Some((_, addresses, _)) = lines.iter_mut().find(|(other, ..)| *other == line) {
                addresses.extend(everywhere);
            } else if matches!(entry.route, Route::Socket(_)) || !seen.contains(&key) {
                let remark = if entry.trusted { "" } else { "the certificate has another name" };
                lines.push((line, everywhere.into_iter().collect(), remark));
            }
            seen.push(key);
            if place == NAMES_MAX {
                break;
            }
        }
    }
    lines.into_iter().map(|(line, addresses, remark)| with_remarks(&line, &addresses, remark)).collect()
}

/// The `admin` lines: each URL of the path once, with remarks.
pub(super) fn admin(addresses: Vec<Address>, secure: bool, path: &str, remark: &str) -> Vec<String> {
    // Listeners of both families have the same URL.
    let mut lines: Vec<(String, Vec<SocketAddr>)> = Vec::new();
    for address in addresses {
        let everywhere = match &address {
            Address::Inet(inet) if inet.ip().is_unspecified() => Some(*inet),
            _ => None,
        };
        let entry = Face { address, secure, redirect: false, certificate: Vec::new() }.own();
        let line = if entry.is_url() { entry.url(path) } else { format!("curl {}", entry.curl(path)) };
        match lines.iter_mut().find(|(other, _)| *other == line) {
            Some((_, addresses)) => addresses.extend(everywhere),
            None => lines.push((line, everywhere.into_iter().collect())),
        }
    }
    lines.into_iter().map(|(line, addresses)| with_remarks(&line, &addresses, remark)).collect()
}

/// The `console` lines: the addresses of admin listeners that a browser can open.
pub(super) fn console(mut addresses: Vec<Address>, secure: bool, path: &str, remark: &str) -> Vec<String> {
    addresses.retain(|address| matches!(address, Address::Inet(_)));
    admin(addresses, secure, path, remark)
}

/// A line with its unspecified addresses, and with a remark that may be empty.
fn with_remarks(line: &str, addresses: &[SocketAddr], remark: &str) -> String {
    let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let everywhere =
        if addresses.is_empty() { String::new() } else { format!("on all addresses, {addresses}") };
    match (everywhere.as_str(), remark) {
        ("", "") => line.to_owned(),
        (one, "") | ("", one) => format!("{line}  ({one})"),
        (one, other) => format!("{line}  ({one}; {other})"),
    }
}

/// The `redirect` line: the listeners that redirect to https, by the names of the sites with TLS, and the port of https. A
/// redirect keeps the name, so that the address of the listener itself may lead to no site.
pub(super) fn redirects(faces: &[Face], settings: &Settings, https_port: u16) -> Option<String> {
    let secure = faces.iter().filter(|face| face.secure).flat_map(|face| face.entries(settings));
    // Listeners of both families have the same names.
    let mut names: Vec<String> = Vec::new();
    for host in secure.map(|entry| entry.host) {
        if !host.starts_with('*') && !names.contains(&host) {
            names.push(host);
        }
    }
    names.truncate(NAMES_MAX);
    let mut found: Vec<String> = Vec::new();
    let mut everywhere = Vec::new();
    for face in faces.iter().filter(|face| face.redirect) {
        let urls: Vec<String> = names.iter().filter_map(|name| face.redirect_url(name)).collect();
        match &face.address {
            Address::Inet(inet) if urls.is_empty() => found.push(format!("http://{inet}")),
            Address::Inet(inet) if inet.ip().is_unspecified() => everywhere.push(*inet),
            Address::Inet(_) => {}
            Address::Unix(socket) => found.push(format!("unix:{}", socket.display())),
        }
        for url in urls {
            if !found.contains(&url) {
                found.push(url);
            }
        }
    }
    let port = if https_port == HTTPS_PORT { String::new() } else { format!(":{https_port}") };
    let line = format!("{} → https{port}", found.join(", "));
    (!found.is_empty()).then(|| with_remarks(&line, &everywhere, ""))
}

/// The host names of all sites: exact names first, then `*.` and a name.
fn site_names(settings: &Settings) -> Vec<String> {
    let patterns: Vec<HostPattern> =
        settings.site.iter().flat_map(|site| &site.host).filter_map(|host| host.parse().ok()).collect();
    let (below, exact): (Vec<_>, Vec<_>) = patterns.into_iter().partition(HostPattern::is_below);
    exact.into_iter().chain(below).map(|pattern| pattern.to_string()).collect()
}

/// Whether a name leads to the loopback addresses on every machine (RFC 6761 §6.3), or is an address.
fn is_local(name: &str) -> bool {
    encke_wire::target::parse_authority(name.as_bytes()).is_ok_and(|authority| authority.is_loopback())
        || name.starts_with('[')
        || name.parse::<IpAddr>().is_ok()
}

/// Whether `localhost` leads to an address. Other loopback addresses, such as 127.0.0.2, have no name.
fn is_localhost(ip: IpAddr) -> bool {
    ip == IpAddr::V4(Ipv4Addr::LOCALHOST) || ip == IpAddr::V6(Ipv6Addr::LOCALHOST)
}

/// An address as the host of a URL.
fn host_of(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

const fn default_port(secure: bool) -> u16 {
    if secure { HTTPS_PORT } else { HTTP_PORT }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::quoted_here;

    fn face(address: &str, certificate: Option<&[&str]>) -> Face {
        let address = match address.strip_prefix("unix:") {
            Some(path) => Address::Unix(path.into()),
            None => Address::Inet(address.parse().expect("an address")),
        };
        Face {
            address,
            secure: certificate.is_some(),
            redirect: false,
            certificate: certificate.unwrap_or_default().iter().map(ToString::to_string).collect(),
        }
    }

    fn settings(hosts: &[&[&str]]) -> Settings {
        let sites = hosts.iter().map(|hosts| format!("[[site]]\nhost = {hosts:?}\n")).collect::<String>();
        Settings::parse("t", &sites).unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn told(faces: &[Face], hosts: &[&[&str]]) -> Vec<String> {
        sites(faces, &settings(hosts))
    }

    #[test]
    fn a_site_for_all_names_is_shown_by_address() {
        for hosts in [&[][..], &[&[][..]]] {
            for (address, certificate, shown) in [
                ("127.0.0.1:80", None, "http://127.0.0.1/"),
                ("[::1]:8080", None, "http://[::1]:8080/"),
                ("127.0.0.1:443", Some(&["127.0.0.1"][..]), "https://127.0.0.1/"),
                ("[::1]:8443", Some(&["::1"]), "https://[::1]:8443/"),
                ("0.0.0.0:80", None, "http://localhost/  (on all addresses, 0.0.0.0:80)"),
                ("10.0.0.5:8080", None, "http://10.0.0.5:8080/"),
                ("unix:/s", None, "curl --unix-socket /s http://localhost/"),
                ("unix:/a b/s", None, "curl --unix-socket '/a b/s' http://localhost/"),
            ] {
                assert_eq!(told(&[face(address, certificate)], hosts), [quoted_here(shown)]);
            }
        }
        let both = [face("0.0.0.0:80", None), face("[::]:80", None)];
        assert_eq!(told(&both, &[]), ["http://localhost/  (on all addresses, 0.0.0.0:80, [::]:80)"]);
        let both = [face("127.0.0.1:80", None), face("[::1]:80", None)];
        assert_eq!(told(&both, &[]), ["http://127.0.0.1/", "http://[::1]/"]);
    }

    #[test]
    fn named_sites_are_shown_by_their_names() {
        let hosts: &[&[&str]] = &[&["*.example.net"], &["example.org", "app.localhost"]];
        let certificate = Some(&["example.org", "*.example.net", "*.localhost"][..]);
        assert_eq!(
            told(&[face("0.0.0.0:443", certificate), face("[::]:443", certificate)], hosts),
            [
                "https://example.org/  (on all addresses, 0.0.0.0:443, [::]:443)",
                "https://app.localhost/  (on all addresses, 0.0.0.0:443, [::]:443)",
                "*.example.net by https on port 443  (on all addresses, 0.0.0.0:443, [::]:443)",
            ]
        );
        assert_eq!(
            told(&[face("127.0.0.1:8080", None), face("[::1]:8080", None)], hosts),
            [
                "curl --resolve example.org:8080:127.0.0.1 http://example.org:8080/",
                "http://app.localhost:8080/",
                "*.example.net by http on 127.0.0.1:8080",
            ]
        );
        assert_eq!(
            told(&[face("unix:/s", None)], &[&["a", "*.a"]]),
            ["curl --unix-socket /s http://a/", "*.a by http on /s"]
        );
        let second = "curl --resolve localhost:81:127.0.0.2 http://localhost:81/";
        assert_eq!(told(&[face("127.0.0.2:81", None)], &[&["localhost"]]), [second]);
        let ipv6 = "curl --resolve a:8443:[::1] https://a:8443/";
        assert_eq!(told(&[face("[::1]:8443", Some(&["a"]))], &[&["a"]]), [ipv6]);
    }

    #[test]
    fn names_without_certificate_are_shown_only_if_there_is_no_other() {
        let own = face("0.0.0.0:443", Some(&["example.org", "*.example.org"]));
        let on = "(on all addresses, 0.0.0.0:443";
        assert_eq!(
            told(std::slice::from_ref(&own), &[]),
            [format!("https://example.org/  {on})"), format!("*.example.org by https on port 443  {on})")]
        );
        assert_eq!(
            told(std::slice::from_ref(&own), &[&["a.b.example.org"], &["www.example.org"]]),
            [format!("https://www.example.org/  {on})")]
        );
        assert_eq!(
            told(&[own], &[&["example.com"]]),
            [format!("https://example.com/  {on}; the certificate has another name)")]
        );
    }

    #[test]
    fn a_long_list_of_names_is_cut() {
        let names: Vec<String> = (0..20).map(|number| format!("s{number}.example.org")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let lines = told(&[face("10.0.0.5:80", None)], &[&names]);
        assert_eq!(lines.len(), NAMES_MAX + 1);
        assert_eq!(lines.last().map(String::as_str), Some("… and 12 more names"));
    }

    #[test]
    fn listeners_that_redirect_have_a_line_of_their_own() {
        let redirect = |address: &str| Face { redirect: true, ..face(address, None) };
        let faces = [redirect("0.0.0.0:80"), face("10.0.0.5:8443", Some(&["10.0.0.5"])), redirect("[::]:80")];
        assert_eq!(told(&faces, &[]), ["https://10.0.0.5:8443/"]);
        let line = |faces: &[Face], hosts: &[&[&str]], port| {
            redirects(faces, &settings(hosts), port).unwrap_or_default()
        };
        let on = "(on all addresses, 0.0.0.0:80, [::]:80)";
        assert_eq!(line(&faces, &[], 8443), format!("http://10.0.0.5/ → https:8443  {on}"));
        assert_eq!(line(&faces, &[], 443), format!("http://10.0.0.5/ → https  {on}"));
        assert_eq!(line(&faces[1..2], &[], 443), "");
        // The names are the same as in the lines of the sites.
        let secure = face("0.0.0.0:443", Some(&["a.test", "b.test", "*.b.test"]));
        let hosts: &[&[&str]] = &[&["a.test"], &["b.test", "*.b.test"]];
        let faces = [redirect("0.0.0.0:8080"), redirect("[::]:8080"), secure.clone()];
        assert_eq!(
            line(&faces, hosts, 443),
            "http://a.test:8080/, http://b.test:8080/ → https  (on all addresses, 0.0.0.0:8080, [::]:8080)"
        );
        for (address, shown) in [
            ("10.0.0.6:80", "http://a.test/, http://b.test/ → https"),
            ("127.0.0.1:80", "http://127.0.0.1:80 → https"),
            ("unix:/s", "unix:/s → https"),
        ] {
            assert_eq!(line(&[redirect(address), secure.clone()], hosts, 443), shown, "{address}");
        }
        let own = face("0.0.0.0:443", Some(&["localhost"]));
        for (address, shown) in [
            ("127.0.0.1:80", "http://localhost/ → https"),
            ("10.0.0.6:80", "http://10.0.0.6:80 → https"),
            ("0.0.0.0:80", "http://localhost/ → https  (on all addresses, 0.0.0.0:80)"),
        ] {
            assert_eq!(line(&[redirect(address), own.clone()], &[], 443), shown, "{address}");
        }
    }

    #[test]
    fn an_admin_url_is_shown_once() {
        let told = |addresses: &[&str], remark| {
            let addresses = addresses.iter().map(|address| face(address, None).address).collect();
            admin(addresses, false, "x", remark)
        };
        assert_eq!(told(&["127.0.0.1:81", "[::1]:81"], ""), ["http://127.0.0.1:81/x", "http://[::1]:81/x"]);
        let both = ["0.0.0.0:81", "[::]:81"];
        let url = "http://localhost:81/x  (on all addresses, 0.0.0.0:81, [::]:81";
        assert_eq!(told(&both, ""), [format!("{url})")]);
        assert_eq!(told(&both, "the token is t"), [format!("{url}; the token is t)")]);
        assert_eq!(told(&["127.0.0.1:81"], "the token is t"), ["http://127.0.0.1:81/x  (the token is t)"]);
        assert_eq!(told(&["unix:/s"], ""), ["curl --unix-socket /s http://localhost/x"]);
    }

    #[test]
    fn channels_are_reached_by_address_unless_the_certificate_has_names() {
        let named = settings(&[&["example.org"]]);
        assert_eq!(face("0.0.0.0:80", None).for_channels(&named).url("push/x"), "http://localhost/push/x");
        let secure = face("127.0.0.1:8443", Some(&["*.example.org", "example.org"]));
        let entry = secure.for_channels(&named);
        assert_eq!(entry.curl("x"), "--resolve example.org:8443:127.0.0.1 https://example.org:8443/x");
        assert_eq!(secure.for_channels(&settings(&[])), entry);
    }
}
