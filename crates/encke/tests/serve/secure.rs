//! `encke pub` and `encke sub` over `https`: trusted certificates, and errors for others.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::thread;

use crate::running::{Folder, Running, encke, text};
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Starts a server with TLS for `localhost`; its CA certificate is `authority.pem` in the directory.
fn server(name: &str) -> (Folder, Running) {
    let folder = Folder::new(name);
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let key = KeyPair::generate().expect("randomness");
    let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
    folder.write("authority.pem", &issuer.pem());
    let key = KeyPair::generate().expect("randomness");
    let params = CertificateParams::new(vec!["localhost".into()]).expect("a name");
    let cert = folder.write("cert.pem", &params.signed_by(&key, &issuer).expect("a certificate").pem());
    let key = folder.write("key.pem", &key.serialize_pem());
    folder.write("public/index.html", "hello");
    let settings = format!(
        "[server]\n\
         listen = [{{ address = \"127.0.0.1:0\", tls = {{ cert = {cert:?}, key = {key:?} }} }}]\n\
         admin = \"127.0.0.1:0\"\nworkers = 2\n\
         [[site]]\nroot = {:?}\n",
        folder.path("public")
    );
    let settings = folder.write("encke.toml", &settings);
    let mut command = encke();
    command.args(["serve", "-c", &settings, "--open"]).stdout(Stdio::piped());
    let server = Running::start_command(&mut command);
    (folder, server)
}

/// Returns the URL of the server under this host name.
fn url(server: &Running, host: &str) -> String {
    let (_, port) = server.site.rsplit_once(':').expect("an address");
    format!("https://{host}:{port}")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = encke();
    command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR").args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("it starts")
}

#[test]
fn messages_are_published_and_read_over_https() {
    let (folder, server) = server("https");
    let authority = folder.path("authority.pem");
    let url = url(&server, "localhost");
    let lines = [&["--cacert", &authority][..], &["--insecure"], &[]];
    for (number, flags) in lines.into_iter().enumerate() {
        // The last case uses the environment.
        let secured = |arguments: &[&str]| {
            let mut command = command(arguments);
            command.args(["--server", &url]).args(flags);
            if flags.is_empty() {
                command.env("SSL_CERT_FILE", &authority);
            }
            command
        };
        let message = format!("message {number}");
        let published = secured(&["pub", "news", &message]).output().expect("it starts");
        assert_eq!(published.status.code(), Some(0), "{}", text(&published.stderr));
        let read = secured(&["sub", "news", "--since", "last:1", "-n", "1"]).output().expect("it starts");
        assert_eq!(text(&read.stdout), format!("{message}\n"), "{}", text(&read.stderr));
    }
}

#[test]
fn a_stream_goes_on_and_many_lines_take_one_connection() {
    let (folder, server) = server("https-stream");
    let authority = folder.path("authority.pem");
    let url = url(&server, "localhost");
    let flags = ["--server", &url, "--cacert", &authority];
    let mut reader = command(&["sub", "log", "--since", "all"])
        .args(flags)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut output = BufReader::new(reader.stdout.take().expect("piped"));
    let mut publisher = command(&["pub", "log", "-"])
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut input = publisher.stdin.take().expect("piped");
    // Longer than a TLS record, so that one message spans several.
    let long = "x".repeat(40_000);
    for line in ["one", &long, "three"] {
        writeln!(input, "{line}").expect("it reads");
        let mut read = String::new();
        output.read_line(&mut read).expect("text");
        assert!(read.trim_end() == line, "{} bytes came, {} went", read.trim_end().len(), line.len());
    }
    drop(input);
    assert!(publisher.wait().expect("a child").success());
    reader.kill().expect("it lives");
    reader.wait().expect("a child");
}

#[test]
fn who_is_not_believed_is_told_with_what_helps() {
    let (other_folder, _other) = server("https-other");
    let (folder, server) = server("https-distrust");
    let (authority, other) = (folder.path("authority.pem"), other_folder.path("authority.pem"));
    let (by_name, by_address) = (url(&server, "localhost"), url(&server, "127.0.0.1"));
    let plain = by_name.replace("https", "http");
    for (url, flags, said) in [
        (&by_name, &[][..], "--cacert"),
        (&by_name, &["--cacert", &other], "no authority that is believed"),
        (&by_name, &["--cacert", "/nonexistent.pem"], "/nonexistent.pem"),
        (&by_address, &["--cacert", &authority], "is for others: "),
        (&plain, &[], "invalid request for"),
    ] {
        for command in [&["pub", "news", "hi"][..], &["sub", "news"]] {
            let output = run(&[command, &["--server", url], flags].concat());
            let errors = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{url} {flags:?}: {errors}");
            assert!(errors.contains(said), "{url} {flags:?}: {errors}");
        }
    }
}

#[test]
fn a_port_without_tls_is_told_as_that() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let answering = thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a client");
        peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("it reads");
        peer
    });
    let output = run(&["pub", "news", "hi", "--insecure", "--server", &format!("https://{address}")]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("does not speak TLS"), "{errors}");
    drop(answering.join());
}
