//! TLS clients, the authority that they trust, and servers with certificates from it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use encke_io::Address;
use encke_server::{ConnLimits, Exchange, ListenConfig, Outcome, Reply, Request, Server, TlsIdentity};
use encke_settings::{CertSettings, TlsSettings};
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, version};

use super::{Folder, PATIENCE, Rig, Stand, any_port, ms};

/// A certificate authority of a case, with its files.
pub struct Authority {
    pub folder: Folder,
    pub issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "an authority of this test");
        let key = KeyPair::generate().expect("randomness");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let folder = Folder::new();
        folder.write("authority.pem", issuer.pem().as_bytes());
        Self { folder, issuer }
    }

    /// Signs a certificate for names. Returns its files.
    pub fn sign(&self, file: &str, names: &[&str]) -> CertSettings {
        self.sign_by(file, names, |_| {})
    }

    pub fn sign_by(
        &self,
        file: &str,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> CertSettings {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names");
        change(&mut params);
        let key = KeyPair::generate().expect("randomness");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        self.folder.write(&format!("{file}.pem"), signed.pem().as_bytes());
        self.folder.write(&format!("{file}.key"), key.serialize_pem().as_bytes());
        CertSettings {
            cert: self.path(&format!("{file}.pem")),
            key: self.path(&format!("{file}.key")),
            ocsp: None,
        }
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// The configuration of a client that trusts this authority.
    pub fn client(&self, versions: &[&'static rustls::SupportedProtocolVersion]) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("versions that are there")
            .with_root_certificates(self.roots());
        builder.with_no_client_auth()
    }

    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("an authority");
        roots
    }
}

pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

pub const BOTH: [&rustls::SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

pub fn settings(first: CertSettings) -> TlsSettings {
    TlsSettings { cert: Some(first.cert), key: Some(first.key), ..TlsSettings::default() }
}

pub fn identity(settings: &TlsSettings) -> Arc<TlsIdentity> {
    Arc::new(TlsIdentity::read(settings, &mut Vec::new()).expect("it holds"))
}

/// Starts a TLS server for `localhost`.
pub fn serve(
    stand: Stand,
    authority: &Authority,
    limit: impl FnOnce(&mut ConnLimits),
    assemble: impl FnOnce(Server) -> Server,
) -> Rig {
    let identity = identity(&settings(authority.sign("localhost", &["localhost"])));
    serve_as(stand, identity, limit, assemble)
}

pub fn serve_as(
    stand: Stand,
    identity: Arc<TlsIdentity>,
    limit: impl FnOnce(&mut ConnLimits),
    assemble: impl FnOnce(Server) -> Server,
) -> Rig {
    let door = ListenConfig { tls: Some(identity), ..ListenConfig::from(any_port()) };
    let server = Server::new(stand.options(|policy| {
        policy.limits.handshake_time = ms(60_000);
        limit(policy);
    }));
    Rig::of(assemble(server.listener(door)).start().expect("a free port"))
}

pub fn connect(rig: &Rig) -> TcpStream {
    let Address::Inet(address) = rig.address() else { panic!("it listens on TCP") };
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream
}

pub type Stream = StreamOwned<ClientConnection, TcpStream>;

pub fn shake(rig: &Rig, config: &Arc<ClientConfig>, name: &str) -> Stream {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let session = ClientConnection::new(Arc::clone(config), name).expect("a session");
    StreamOwned::new(session, connect(rig))
}

/// Sends a request, and reads one response with a length: head and content.
pub fn ask(stream: &mut Stream, request: &str) -> (String, Vec<u8>) {
    stream.write_all(request.as_bytes()).expect("sent");
    answer(stream)
}

pub fn answer(stream: &mut Stream) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).expect("an answer"), 1, "it ended in the head");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut content = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
    stream.read_exact(&mut content).expect("all of it");
    (head, content)
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

pub fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|place| (place * 31 % 251) as u8).collect()
}

/// Responds with the facts about the TLS session.
pub fn known(request: &Request<'_>, _: Exchange) -> Outcome {
    let Some(known) = request.tls() else { return Outcome::Now(Reply::text(200, "nothing")) };
    let client = known.client.as_ref().map_or("-", |client| &client.name);
    let name = known.server_name.as_deref().unwrap_or("-");
    Outcome::Now(Reply::text(200, format!("{} {} {name} {client}", known.version, known.cipher)))
}
