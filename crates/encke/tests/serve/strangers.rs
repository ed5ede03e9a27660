//! TLS and HTTP/2 with independent clients: curl, Python, Go, h2load.

use std::process::{Command, Stdio};

use crate::running::{Folder, Running, encke, text};

const LARGE_BYTES: usize = 1_000_003;

/// A server with TLS and a site.
struct Secure {
    folder: Folder,
    server: Running,
}

impl Secure {
    fn start(name: &str) -> Self {
        let folder = Folder::new(name);
        folder.write("public/index.html", "hello");
        folder.write("public/large.bin", &"x".repeat(LARGE_BYTES));
        certificate(&folder);
        let settings = folder.write(
            "encke.toml",
            "[server]\nlisten = [{ address = \"127.0.0.1:0\", tls = { cert = \"cert.pem\", key = \"key.pem\" } }]\n\
             admin = \"127.0.0.1:0\"\nworkers = 2\n\
             [[site]]\nroot = \"public\"\n\
             [log]\naccess = \"off\"\n\
             [push]\nanonymous_rate = \"off\"\n\
             [auth]\nanonymous = [\"subscribe\", \"publish\"]\n",
        );
        let server = Running::start_command(encke().args(["serve", "-c", &settings]).stdout(Stdio::null()));
        assert!(server.greeting.contains("  site     https://127.0.0.1:"), "{}", server.greeting);
        Self { folder, server }
    }

    fn certificate(&self) -> String {
        self.folder.path("cert.pem")
    }

    fn port(&self) -> &str {
        self.server.site.rsplit_once(':').expect("a port").1
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port())
    }
}

/// Writes `cert.pem`, for `localhost`, and `key.pem`.
fn certificate(folder: &Folder) {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-keyout", &folder.path("key.pem"), "-out", &folder.path("cert.pem")])
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{}", text(&made.stderr));
}

/// Returns the standard output of a successful program.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn curl_is_served_by_either_version_of_tls_and_of_http() {
    let secure = Secure::start("curl");
    for tls in ["1.2", "1.3"] {
        for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
            let curl = || {
                let mut curl = Command::new("curl");
                curl.args([
                    "-sS",
                    "--max-time",
                    "60",
                    flag,
                    "--tls-max",
                    tls,
                    "--cacert",
                    &secure.certificate(),
                ]);
                curl.args(["-w", " HTTP/%{http_version} %{response_code} %{size_download}"]);
                curl
            };
            let page = said(curl().arg(secure.url("/")));
            assert_eq!(page, format!("hello HTTP/{version} 200 5"));
            let large = said(curl().args(["-o", "/dev/null", &secure.url("/large.bin")]));
            assert_eq!(large, format!(" HTTP/{version} 200 {LARGE_BYTES}"));
            let posted = said(curl().args(["-d", "hi", &secure.url("/push/news")]));
            assert!(posted.contains(&format!(" HTTP/{version} 201 ")), "{posted}");
            // curl waits for the 100 before it sends this much; then the body is rejected.
            let body = format!("@{}", secure.folder.path("public/large.bin"));
            let refused =
                said(curl().args(["-H", "Expect: 100-continue", "--data-binary", &body, &secure.url("/")]));
            assert!(refused.contains(&format!(" HTTP/{version} 405 ")), "{refused}");
            let history = said(curl().arg(secure.url("/push/news?wait=0&since=all")));
            assert!(history.starts_with("hi "), "{history}");
        }
    }
}

#[test]
fn curl_refuses_a_server_of_another_authority() {
    let secure = Secure::start("stranger");
    let output = Command::new("curl").args(["-sS", &secure.url("/")]).output().expect("curl is installed");
    assert_eq!(output.status.code(), Some(60), "{}", text(&output.stderr));
}

#[test]
fn pythons_client_is_served() {
    let secure = Secure::start("python");
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/client.py");
    let words = said(Command::new("python3").args([client, secure.port(), &secure.certificate()]));
    assert_eq!(words, "TLSv1.2\nTLSv1.3\nfine\n");
}

#[test]
fn gos_client_is_served() {
    let secure = Secure::start("go");
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/client.go");
    let program = secure.folder.path("client");
    said(Command::new("go").args(["build", "-o", &program, client]));
    let words = said(Command::new(&program).args([secure.port(), &secure.certificate()]));
    assert_eq!(words, "HTTP/2.0\nHTTP/1.1\nfine\n");
}

#[test]
fn h2load_gets_every_answer() {
    let secure = Secure::start("h2load");
    let words = said(Command::new("h2load").args(["-n", "20000", "-c", "10", "-m", "32", &secure.url("/")]));
    assert!(words.contains("Application protocol: h2\n"), "{words}");
    assert!(words.contains("20000 done, 20000 succeeded, 0 failed, 0 errored, 0 timeout"), "{words}");
}
