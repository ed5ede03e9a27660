//! From `http` to `https`: listeners that redirect, and sites that require TLS.

use encke_assembly::Service;
use encke_assembly::settings::Settings;
use encke_server::{ListenConfig, Network, Server};
use encke_site::{Site, SiteSettings};

use crate::rig::{Client, Folder, Rig, Stand, any_port, site};

on_two_stands! {
    a_listener_that_redirects_answers_nothing_else,
    whom_a_trusted_proxy_brings_by_https_is_not_sent_on,
    a_site_says_over_tls_alone_that_it_wants_tls,
}

/// Starts a server with two listeners: the first redirects, the second serves.
fn serve(stand: Stand, folder: &Folder, trusted: &[Network]) -> Rig {
    let options = stand.options(|policy| {
        policy.https_port = 8443;
        policy.trusted_proxies = trusted.to_vec();
    });
    let server = Server::new(options)
        .listener(ListenConfig { to_https: true, ..ListenConfig::from(any_port()) })
        .listen(any_port())
        .mount("/", site(folder));
    Rig::of(server.start().expect("free ports"))
}

fn a_listener_that_redirects_answers_nothing_else(stand: Stand) {
    let folder =
        Folder::new().with("page.html", "here").with(".well-known/acme-challenge/token", "token.print");
    let rig = serve(stand, &folder, &[]);
    let mut client = rig.client();
    // The connection stays open: a browser also requests the icon on it.
    for _ in 0..2 {
        let answer = client.get("/page.html?a=b");
        assert_eq!(answer.status, 301);
        assert_eq!(answer.field("Location"), Some("https://localhost:8443/page.html?a=b"));
    }
    client.send(b"POST /x HTTP/1.1\r\nHost: example.org\r\nContent-Length: 4\r\n\r\nbody");
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("Location")), (308, Some("https://example.org:8443/x")));
    assert_eq!(client.get("/.well-known/acme-challenge/token").text(), "token.print");
    assert_eq!(Client::connect(&rig.addresses()[1]).get("/page.html").text(), "here");
}

fn whom_a_trusted_proxy_brings_by_https_is_not_sent_on(stand: Stand) {
    let folder = Folder::new().with("page.html", "here");
    let loopback = "127.0.0.0/8".parse().expect("a range");
    let rig = serve(stand, &folder, &[loopback]);
    let mut client = rig.client();
    for (scheme, status) in [("https", 200), ("http", 301), ("https", 200)] {
        client.send(
            format!("GET /page.html HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: {scheme}\r\n\r\n").as_bytes(),
        );
        assert_eq!(client.answer().status, status, "{scheme}");
    }
}

fn a_site_says_over_tls_alone_that_it_wants_tls(stand: Stand) {
    let folder = Folder::new().with("page.html", "here").with("large.bin", vec![7; 100_000]);
    let settings = SiteSettings {
        root: folder.path().to_owned(),
        hsts: Some("max-age=300; includeSubDomains".into()),
        list: true,
        ..SiteSettings::default()
    };
    let site = Site::new(&[settings], Vec::new()).expect("settings that hold");
    let loopback: Network = "127.0.0.0/8".parse().expect("a range");
    let rig =
        stand.serve_by(|policy| policy.trusted_proxies = vec![loopback], |server| server.mount("/", site));
    let mut client = rig.client();
    // Twice: the second response is the cached one, which both schemes share.
    for path in ["/page.html", "/page.html", "/large.bin", "/large.bin", "/missing", "/", "/page.html"] {
        for (scheme, said) in [("https", Some("max-age=300; includeSubDomains")), ("http", None)] {
            client.send(
                format!("GET {path} HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: {scheme}\r\n\r\n").as_bytes(),
            );
            let answer = client.answer();
            assert_eq!(answer.field("Strict-Transport-Security"), said, "{path} by {scheme}");
            assert_eq!(
                answer.field("Content-Length"),
                Some(answer.body.len().to_string().as_str()),
                "{path}"
            );
        }
    }
}

#[test]
fn a_listener_redirects_as_its_settings_say() {
    let folder = Folder::new().with("page.html", "here");
    let text = |redirect: &str| {
        format!(
            "[server]\nadmin = \"off\"\nlisten = [{{ address = \"127.0.0.1:0\"{redirect} }}]\n\
             [log]\naccess = \"off\"\n[[site]]\nroot = {:?}\n",
            folder.path()
        )
    };
    let settings = |redirect: &str| Settings::parse("case", &text(redirect)).expect("settings that hold");
    let mut service = Service::start(&settings(", redirect = \"https\"")).expect("a free port");
    let address = service.addresses().remove(0);
    let answer = Client::connect(&address).get("/page.html");
    assert_eq!(answer.field("Location"), Some("https://localhost/page.html"));
    // The port changes immediately. Whether a listener redirects is fixed at start.
    assert_eq!(service.reload(&settings(", redirect = \"https:8443\"")).expect("settings"), [""; 0]);
    let notes = service.reload(&settings("")).expect("settings");
    assert!(notes.iter().any(|note| note.starts_with("redirect at 127.0.0.1:0 has changed")), "{notes:?}");
    service.drain();
    service.join();
}
