//! Channels, rights and reloads over TLS.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use encke_assembly::Service;
use encke_assembly::settings::{Act, AuthSettings, CertificateRights, ClientCert, PushSettings, Settings};
use encke_io::Address;
use encke_server::Server;
use rcgen::ExtendedKeyUsagePurpose;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, StreamOwned};

use crate::rig::Channels as _;
use crate::rig::Stand;
use crate::rig::tls::*;

on_two_stands! {
    a_subscriber_gets_what_is_published,
    who_asks_together_with_the_end_of_the_handshake_gets_what_is_published,
    a_certificate_is_a_user_also_when_its_session_is_resumed,
}

/// Mounts channels that allow anonymous reads and writes.
fn open_channels(server: Server) -> Server {
    let auth = AuthSettings { anonymous: vec![Act::Publish, Act::Subscribe], ..AuthSettings::default() };
    server.push(&PushSettings::default(), &auth).expect("settings that hold")
}

fn a_subscriber_gets_what_is_published(stand: Stand) {
    let authority = Authority::new();
    let rig = serve(stand, &authority, |_| {}, open_channels);
    let config = Arc::new(authority.client(&BOTH));
    let mut reader = shake(&rig, &config, "localhost");
    let request = "GET /push/news HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    reader.write_all(request.as_bytes()).expect("sent");
    let mut seen = String::new();
    let mut until = |reader: &mut Stream, what: &str| {
        while !seen.contains(what) {
            let mut piece = [0; 4096];
            let read = reader.read(&mut piece).expect("more");
            assert!(read > 0, "it ended: {seen}");
            seen.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
    };
    until(&mut reader, "id: ");
    let mut writer = shake(&rig, &config, "localhost");
    for number in 0..20 {
        let said = format!("message {number} {}", "x".repeat(number * 1_000));
        let request = format!(
            "POST /push/news HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{said}",
            said.len()
        );
        let (head, _) = ask(&mut writer, &request);
        assert!(head.starts_with("HTTP/1.1 201 "), "{head}");
        until(&mut reader, &format!("data: {said}\n"));
    }
}

fn who_asks_together_with_the_end_of_the_handshake_gets_what_is_published(stand: Stand) {
    let authority = Authority::new();
    let rig = serve(stand, &authority, |_| {}, open_channels);
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let envelopes = format!("{upgrade}Sec-WebSocket-Protocol: encke.v1\r\n");
    for version in BOTH {
        let config = Arc::new(authority.client(&[version]));
        for fields in ["Accept: text/event-stream\r\n", upgrade, &envelopes] {
            let name = ServerName::try_from("localhost").expect("a name");
            let mut session = ClientConnection::new(Arc::clone(&config), name).expect("a session");
            // The request waits in the session until the handshake ends, and is sent with it.
            let request = format!("GET /push/news HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
            session.writer().write_all(request.as_bytes()).expect("there is room");
            let mut reader = StreamOwned::new(session, connect(&rig));
            let mut seen = String::new();
            let mut until = |what: &str| {
                while !seen.contains(what) {
                    let mut piece = [0; 4096];
                    let read = reader.read(&mut piece).expect("more");
                    assert!(read > 0, "{fields}: it ended: {seen}");
                    seen.push_str(&String::from_utf8_lossy(&piece[..read]));
                }
            };
            until("\r\n\r\n");
            let mut writer = shake(&rig, &config, "localhost");
            let said = "POST /push/news HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello";
            let (head, _) = ask(&mut writer, said);
            assert!(head.starts_with("HTTP/1.1 201 "), "{head}");
            until("hello");
        }
    }
}

fn a_certificate_is_a_user_also_when_its_session_is_resumed(stand: Stand) {
    let authority = Authority::new();
    let shown = authority.sign_by("client", &[], |params| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "ann");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let mut settings = settings(authority.sign("localhost", &["localhost"]));
    settings.client_ca = Some(authority.path("authority.pem"));
    settings.client = ClientCert::Optional;
    let rights = CertificateRights {
        subject: "ann".into(),
        publish: vec!["news".into()],
        subscribe: Vec::new(),
        presence: Vec::new(),
        manage: Vec::new(),
    };
    let auth = AuthSettings { certificates: vec![rights], ..AuthSettings::default() };
    let rig = serve_as(
        stand,
        identity(&settings),
        |_| {},
        |server| {
            let server = server.push(&PushSettings::default(), &auth).expect("settings that hold");
            server.mount("/known", known)
        },
    );
    // Under a loopback name this machine has all rights without a certificate.
    let publish = "POST /push/news HTTP/1.1\r\nHost: example.org\r\nContent-Length: 2\r\n\r\nhi";
    for version in BOTH {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(authority.roots());
        let chain = vec![CertificateDer::from_pem_file(&shown.cert).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_file(&shown.key).expect("a key");
        let config = Arc::new(builder.with_client_auth_cert(chain, key).expect("a pair"));
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut stream = shake(&rig, &config, "localhost");
            let (_, told) = ask(&mut stream, &get("/known"));
            let told = String::from_utf8(told).expect("text");
            let number = if version.version == ProtocolVersion::TLSv1_3 { "1.3" } else { "1.2" };
            assert!(told.starts_with(number) && told.ends_with(" localhost ann"), "{told}");
            assert_eq!(stream.conn.handshake_kind(), Some(kind));
            let (head, _) = ask(&mut stream, publish);
            assert!(head.starts_with("HTTP/1.1 201 "), "{head}");
            let elsewhere = publish.replace("news", "other");
            assert!(ask(&mut stream, &elsewhere).0.starts_with("HTTP/1.1 403 "));
        }
        let mut stranger = shake(&rig, &Arc::new(authority.client(&[version])), "localhost");
        assert!(ask(&mut stranger, publish).0.starts_with("HTTP/1.1 401 "));
        let (_, told) = ask(&mut stranger, &get("/known"));
        assert!(told.ends_with(b" localhost -"), "{}", String::from_utf8_lossy(&told));
    }
}

#[test]
fn a_reload_reads_certificates_again_and_refuses_what_does_not_hold() {
    let authority = Authority::new();
    let first = authority.sign("first", &["localhost"]);
    let second = authority.sign("second", &["localhost"]);
    authority.folder.write("index.html", b"hello");
    let text = format!(
        "[server]\nadmin = \"off\"\nlisten = [{{ address = \"127.0.0.1:0\", tls = {{ cert = {:?}, key = {:?} }} }}]\n\
         [[site]]\nroot = {:?}\n",
        first.cert,
        first.key,
        authority.folder.path()
    );
    let settings = Settings::parse("test.toml", &text).expect("settings that hold");
    let mut service = Service::start(&settings).expect("it starts");
    let address = service.addresses().remove(0);
    assert!(service.is_secure(&address));
    let config = || Arc::new(authority.client(&BOTH));
    let connect = || {
        let Address::Inet(address) = &address else { panic!("it listens on TCP") };
        let stream = TcpStream::connect(address).expect("it listens");
        let name = ServerName::try_from("localhost").expect("a name");
        StreamOwned::new(ClientConnection::new(config(), name).expect("a session"), stream)
    };
    let shown = |stream: &Stream| stream.conn.peer_certificates().expect("one")[0].clone();
    let mut old = connect();
    assert_eq!(ask(&mut old, &get("/")).1, b"hello");
    // A private key is never served, wherever it is.
    assert!(ask(&mut old, &get("/first.key")).0.starts_with("HTTP/1.1 404 "));

    std::fs::copy(&second.cert, &first.cert).expect("written");
    let error = service.reload(&settings).expect_err("half a pair").to_string();
    assert!(error.contains("first.key"), "{error}");
    let mut same = connect();
    ask(&mut same, &get("/"));
    assert_eq!(shown(&same), shown(&old));

    std::fs::copy(&second.key, &first.key).expect("written");
    assert_eq!(service.reload(&settings).expect("a pair"), Vec::<String>::new());
    let mut new = connect();
    ask(&mut new, &get("/"));
    assert_ne!(shown(&new), shown(&old));
    assert_eq!(ask(&mut old, &get("/")).1, b"hello", "who is there stays");
    drop((old, same, new));
    service.drain();
    service.join();
}
