//! Certificates of the program: from its local authority, from files that change, and by ACME from Pebble, the test server of
//! Let's Encrypt. The client is curl.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use crate::running::{self, Folder, Running, encke, text};
use encke_io::host::Signal;
use encke_session::tls::LocalAuthority;

/// A name that only Pebble resolves to this machine.
const NAME: &str = "www.encke.test";

/// Requests a page, trusting the authority in `ca`. `words` are further arguments of curl.
fn curl(ca: &str, url: &str, words: &[&str]) -> Output {
    // Only a failing test waits that long.
    let patience = ["--max-time", "120", "--noproxy", "*"];
    Command::new("curl")
        .args(["-sS", "--cacert", ca])
        .args(patience)
        .args(words)
        .arg(url)
        .output()
        .expect("curl is installed")
}

/// Returns the page; panics if the request fails.
fn page(ca: &str, url: &str, words: &[&str]) -> String {
    let output = curl(ca, url, words);
    assert!(output.status.success(), "{url}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn port_of(server: &Running) -> &str {
    server.site.rsplit(':').next().expect("it has one")
}

#[test]
fn an_authority_of_its_own_is_made_once_and_trusted_from_then_on() {
    let folder = Folder::new("self-signed");
    folder.write("public/index.html", "hello");
    let start = || {
        let mut command = encke();
        command.env("XDG_STATE_HOME", folder.path("state"));
        command.args(["serve", "-l", "127.0.0.1:0", "-l", &format!("unix:{}", folder.path("socket"))]);
        command.args(["--admin", "127.0.0.1:0", "--tls-self-signed", "--open", &folder.path("public")]);
        Running::start_command(&mut command)
    };
    let authority = folder.path("state/encke/authority/authority.pem");
    let first = start();
    assert!(first.greeting.contains(&format!("trust    {authority} (new")), "{}", first.greeting);
    for program in ["curl --cacert", "certutil", "Firefox", "update-ca-certificates"] {
        assert!(first.greeting.contains(program), "{program}: {}", first.greeting);
    }
    assert!(first.greeting.contains("site     https://127.0.0.1:"), "{}", first.greeting);
    assert!(first.greeting.contains("curl --unix-socket "), "a Unix socket stays plain: {}", first.greeting);
    let port = port_of(&first);
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(page(&authority, &format!("https://{host}:{port}/"), &["--ipv4"]), "hello");
    }
    // Some host names cannot be in a certificate.
    let letters = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphabetic());
    if let Some(machine) = encke_io::host::name().filter(letters) {
        let here = format!("{machine}:{port}:127.0.0.1");
        assert_eq!(page(&authority, &format!("https://{machine}:{port}/"), &["--resolve", &here]), "hello");
    }
    // The printed commands work as printed.
    let publish =
        first.greeting.lines().find_map(|line| line.strip_prefix("  publish  ")).expect("it is told");
    let words: Vec<&str> = publish.split(' ').collect();
    let published = Command::new(words[0]).args(&words[1..]).args(["-sS", "-w", "%{http_code}"]).output();
    let published = published.expect("curl is installed");
    assert!(text(&published.stdout).ends_with("201"), "{publish}: {published:?}");
    // Other clients do not trust the certificate, and the authority may not sign other names.
    let system =
        curl("/etc/ssl/certs/ca-certificates.crt", &format!("https://localhost:{port}/"), &["--ipv4"]);
    assert!(!system.status.success(), "{}", text(&system.stdout));
    let made = folder.read("state/encke/authority/authority.pem");
    first.signal(Signal::Terminate);
    assert_eq!(first.end().0, Some(0));

    let again = start();
    assert!(again.greeting.contains(&format!("trust    {authority}\n")), "{}", again.greeting);
    assert_eq!(folder.read("state/encke/authority/authority.pem"), made);
    assert_eq!(page(&authority, &format!("https://localhost:{}/", port_of(&again)), &["--ipv4"]), "hello");
}

#[test]
fn the_command_that_shows_the_authority_works_on_any_loopback_address() {
    let folder = Folder::new("second-loopback");
    folder.write("public/index.html", "hello");
    let mut command = encke();
    command.env("XDG_STATE_HOME", folder.path("state"));
    command.args([
        "serve",
        "-l",
        "127.0.0.2:0",
        "--admin",
        "off",
        "--tls-self-signed",
        &folder.path("public"),
    ]);
    let server = Running::start_command(&mut command);
    let line =
        server.greeting.lines().find_map(|line| line.trim().strip_prefix("curl       ")).expect("a command");
    let output = Command::new("sh").args(["-c", &format!("{line} -sS --noproxy '*'")]).output();
    let output = output.expect("a shell is installed");
    assert_eq!(text(&output.stdout), "hello", "{line}: {}", text(&output.stderr));
}

#[test]
fn start_up_lines_of_named_sites_with_a_redirect_are_commands_that_work() {
    let folder = Folder::new("named");
    folder.write("public/index.html", "hello");
    let authority = LocalAuthority::open(Path::new(&folder.path("authority"))).expect("a writable folder");
    let (cert, key) = (authority.leaf.cert.display(), authority.leaf.key.display());
    let tls = format!("{{ address = \"127.0.0.1:0\", tls = {{ cert = \"{cert}\", key = \"{key}\" }} }}");
    let file = folder.write(
        "encke.toml",
        &format!(
            "[server]\nlisten = [{{ address = \"127.0.0.2:0\", redirect = \"https:8443\" }}, {tls}, \"127.0.0.3:0\"]\n\
             admin = \"off\"\n[[site]]\nroot = \"public\"\nhost = [\"localhost\", \"example.org\"]\n\
             [[auth.tokens]]\ntoken = \"0123456789abcdef\"\npublish = [\"orders/*\"]\n"
        ),
    );
    let server = Running::start_command(encke().args(["serve", "-c", &file]));
    let lines = |name: &str| {
        let start = format!("  {name:<8} ");
        server.greeting.lines().filter_map(|line| line.strip_prefix(&start)).collect::<Vec<_>>()
    };
    let run = |command: &str| {
        let command = format!("{command} -sS --noproxy '*' --cacert {}", authority.certificate.display());
        let output = Command::new("sh").args(["-c", &command]).output();
        text(&output.expect("a shell is installed").stdout)
    };
    // The certificate has names of this machine only, so that of the other site is not shown for its listener.
    let [secure, plain, resolved] = lines("site")[..] else { panic!("{}", server.greeting) };
    assert!(secure.starts_with("https://localhost:"), "{}", server.greeting);
    assert!(plain.starts_with("curl --resolve localhost:"), "{}", server.greeting);
    assert!(resolved.starts_with("curl --resolve example.org:"), "{}", server.greeting);
    for command in [&format!("curl {secure}"), plain, resolved] {
        assert_eq!(run(command), "hello", "{command}");
    }
    let [redirect] = lines("redirect")[..] else { panic!("{}", server.greeting) };
    let address = redirect.strip_suffix(" → https:8443").expect(redirect);
    let head = run(&format!("curl -I {address}/"));
    assert!(head.contains("\r\nLocation: https://127.0.0.2:8443/\r\n"), "{head}");
    let [publish] = lines("publish")[..] else { panic!("{}", server.greeting) };
    let published = run(&format!("{} -w ' %{{http_code}}'", publish.replace("TOKEN", "0123456789abcdef")));
    assert!(published.ends_with(" 201") && publish.ends_with("/push/orders/news"), "{publish}: {published}");
    assert_eq!(lines("read"), [""; 0], "no token may subscribe: {}", server.greeting);
}

#[test]
fn a_certificate_that_changes_is_taken_and_one_that_does_not_hold_is_refused_with_its_reason() {
    let folder = Folder::new("changing");
    folder.write("public/index.html", "hello");
    let authority = |name: &str| {
        LocalAuthority::open(Path::new(&folder.path(name))).expect("a folder that can be written")
    };
    let (one, two) = (authority("one"), authority("two"));
    let put = |from: &LocalAuthority, name: &str| {
        fs::copy(&from.leaf.cert, folder.path(name)).expect("written");
    };
    put(&one, "shown.pem");
    put(&one, "shown.key");
    let file = folder.write(
        "encke.toml",
        "[server]\nlisten = [{ address = \"127.0.0.1:0\", tls = { cert = \"shown.pem\", key = \"shown.key\" } }]\n\
         admin = { address = \"127.0.0.1:0\", metrics = \"open\" }\n[[site]]\nroot = \"public\"\n",
    );
    let mut command = encke();
    let mut server = Running::start_command(command.args(["serve", "-c", &file]));
    let url = format!("https://localhost:{}/", port_of(&server));
    let ask = |by: &LocalAuthority| curl(&by.certificate.display().to_string(), &url, &["--ipv4"]);
    assert_eq!(text(&ask(&one).stdout), "hello");

    put(&two, "shown.pem");
    let line = server.error_with("keeping the old certificates");
    assert!(line.contains("shown.key"), "{line}");
    assert_eq!(text(&ask(&one).stdout), "hello", "the old pair stays");

    put(&two, "shown.key");
    let line = server.error_with("reloaded the certificates");
    assert!(line.contains("shown.pem"), "{line}");
    assert_eq!(text(&ask(&two).stdout), "hello");
    assert!(!ask(&one).status.success());

    fs::remove_file(folder.path("shown.pem")).expect("it was there");
    let line = server.error_with("keeping the old certificates");
    assert!(line.contains("shown.pem") && line.contains("No such file"), "{line}");
    assert_eq!(text(&ask(&two).stdout), "hello");

    // A start has no earlier pair to keep.
    drop(server);
    let mut command = encke();
    let output = command.args(["serve", "-c", &file]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("shown.pem"), "{}", text(&output.stderr));
}

/// A process that is killed when the test ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Pebble, and a DNS server that resolves every name to this machine.
struct Pebble {
    _pebble: Ended,
    _names: Ended,
}

/// The ports and settings of Pebble, chosen before it starts.
struct Plan {
    folder: Folder,
    directory: u16,
    management: u16,
    names: u16,
    http: u16,
    tls: u16,
    /// The lifetime of its certificates, in seconds.
    lasts_s: u32,
}

impl Plan {
    fn new(name: &str, lasts_s: u32) -> Self {
        let folder = Folder::new(name);
        folder.write("public/index.html", "hello");
        LocalAuthority::open(Path::new(&folder.path("pebble"))).expect("a folder that can be written");
        // Both sides must know each other's ports before they start.
        let [directory, management, http, tls, names] = [(); 5].map(|()| free_port());
        Self { folder, directory, management, names, http, tls, lasts_s }
    }

    /// Returns the path of the CA certificate of Pebble's own https listener.
    fn authority(&self) -> String {
        self.folder.path("pebble/authority/authority.pem")
    }

    fn start(&self) -> Pebble {
        let names = Command::new("pebble-challtestsrv")
            .args(["-dnsserver", &format!("127.0.0.1:{}", self.names), "-defaultIPv6", ""])
            .args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-management", ""])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let names = Ended(names.expect("pebble-challtestsrv is installed: .ci/need pebble-challtestsrv"));
        let leaf = self.folder.path("pebble/authority/localhost.pem");
        let Self { directory, management, http, tls, lasts_s, .. } = self;
        let config = format!(
            r#"{{ "pebble": {{
                "listenAddress": "127.0.0.1:{directory}", "managementListenAddress": "127.0.0.1:{management}",
                "certificate": "{leaf}", "privateKey": "{leaf}", "httpPort": {http}, "tlsPort": {tls},
                "externalAccountBindingRequired": false, "domainBlocklist": ["blocked.encke.test"],
                "retryAfter": {{ "authz": 1, "order": 1 }}, "keyAlgorithm": "ecdsa",
                "profiles": {{ "default": {{ "description": "as said", "validityPeriod": {lasts_s} }} }}
            }} }}"#
        );
        let config = self.folder.write("pebble.json", &config);
        let mut pebble = Command::new("pebble")
            .args(["-config", &config, "-dnsserver", &format!("127.0.0.1:{}", self.names)])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("pebble is installed: .ci/need pebble");
        let mut lines = BufReader::new(pebble.stdout.take().expect("piped")).lines();
        let pebble = Ended(pebble);
        let ready = lines.any(|line| line.is_ok_and(|line| line.contains("ACME directory available")));
        assert!(ready, "pebble ended");
        // Pebble keeps logging, and a full pipe would block it.
        std::thread::spawn(move || lines.for_each(drop));
        // It says so before both of its listeners are open, and the other program says nothing.
        for port in [self.directory, self.management, self.names] {
            running::wait_until_open(&format!("127.0.0.1:{port}"));
        }
        Pebble { _pebble: pebble, _names: names }
    }

    /// Saves the CA certificate that Pebble has just created, and returns its path.
    fn root(&self) -> String {
        let url = format!("https://127.0.0.1:{}/roots/0", self.management);
        self.folder.write("root.pem", &page(&self.authority(), &url, &[]))
    }

    /// Writes a settings file: a listener that redirects, one for https, and a site with a redirect that also matches challenge
    /// paths.
    fn settings(&self, domain: &str, challenge: &str) -> String {
        let Self { directory, http, tls, .. } = self;
        let authority = self.authority();
        self.folder.write(
            "encke.toml",
            &format!(
                "[server]\nstate_dir = \"state\"\nadmin = {{ address = \"127.0.0.1:0\", metrics = \"open\" }}\n\
                 listen = [{{ address = \"127.0.0.1:{http}\", redirect = \"https\" }}, {{ address = \"127.0.0.1:{tls}\", tls = {{ acme = {{ \
                 domains = [\"{domain}\"], agree = true, email = \"somebody@encke.test\", challenge = \"{challenge}\", \
                 directory = \"https://127.0.0.1:{directory}/dir\", ca = \"{authority}\" }} }} }}]\n\
                 [log]\naccess = \"off\"\n[[site]]\nroot = \"public\"\n\
                 redirects = [{{ from = \"/.well-known/**\", to = \"/elsewhere\", status = 301 }}]\n"
            ),
        )
    }

    fn serve(&self, domain: &str, challenge: &str) -> Running {
        let file = self.settings(domain, challenge);
        Running::start_command(encke().args(["serve", "-c", &file]))
    }

    /// Requests the page by https with `root` as the trusted CA.
    fn ask(&self, root: &str) -> Output {
        let here = format!("{NAME}:{}:127.0.0.1", self.tls);
        curl(root, &format!("https://{NAME}:{}/", self.tls), &["--resolve", &here])
    }

    /// Repeats the request until the certificate is in use.
    fn ask_until_shown(&self, root: &str) {
        let shown =
            std::iter::repeat_with(|| self.ask(root)).take(ASKED_MAX).any(|output| output.status.success());
        assert!(shown, "the certificate was not shown: {}", text(&self.ask(root).stderr));
    }
}

/// Returns a port that is free for TCP and UDP, and that no other test gets: below the range that the system gives to connections and
/// for port 0, and counted.
fn free_port() -> u16 {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let ports = std::iter::repeat_with(|| COUNT.fetch_add(1, Ordering::Relaxed))
        .map(|count| 15_000 + (std::process::id() as u16 % 10 * 97 + count) % 1_000);
    let is_free = |port: &u16| {
        TcpListener::bind(("127.0.0.1", *port)).is_ok() && UdpSocket::bind(("127.0.0.1", *port)).is_ok()
    };
    ports.take(1_000).find(is_free).expect("a free port")
}

/// Attempts to wait for an expected response: each takes about 20 ms, and the response two seconds.
const ASKED_MAX: usize = 10_000;

fn orders(server: &Running, outcome: &str) -> u64 {
    let site = server.admin.trim_start_matches("http://").split('/').next().expect("an address");
    let metrics = running::get(site, "/metrics");
    let start = format!("encke_acme_orders_total{{outcome=\"{outcome}\"}} ");
    let count = metrics.lines().find_map(|line| line.strip_prefix(&start)).expect("it is counted");
    count.trim().parse().expect("a number")
}

#[test]
fn a_certificate_is_fetched_by_handshake_and_renewed_while_clients_come() {
    // The renewal begins after 60 s and has 30 s: the client polls an order at doubling intervals, so that one slow validation
    // on a busy machine takes 16 s.
    let plan = Plan::new("acme-renewal", 90);
    let _pebble = plan.start();
    let root = plan.root();
    let mut server = plan.serve(NAME, "tls-alpn-01");
    let line = server.error_with("received a certificate for");
    assert!(line.contains(NAME) && line.contains("is renewed at"), "{line}");
    plan.ask_until_shown(&root);

    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut count = 0;
            while !over.load(Ordering::Relaxed) {
                let output = plan.ask(&root);
                assert!(output.status.success(), "after {count}: {}", text(&output.stderr));
                assert_eq!(text(&output.stdout), "hello");
                count += 1;
            }
            count
        });
        server.error_with("received a certificate for");
        // The certificate watch reports when the new certificate is in use.
        server.error_with("reloaded the certificates");
        over.store(true, Ordering::Relaxed);
        assert!(client.join().expect("no request failed") > 0);
    });
    assert_eq!((orders(&server, "issued"), orders(&server, "failed")), (2, 0));

    // The saved certificate is enough for the next start, which orders nothing.
    let kept = plan.folder.read(&format!("state/acme/at-127.0.0.1-{}-dir/{NAME}.pem", plan.directory));
    assert!(kept.contains("PRIVATE KEY") && kept.matches("BEGIN CERTIFICATE").count() >= 2, "{kept}");
    server.signal(Signal::Terminate);
    assert_eq!(server.end().0, Some(0));
    let again = plan.serve(NAME, "tls-alpn-01");
    assert_eq!(text(&plan.ask(&root).stdout), "hello");
    assert_eq!(orders(&again, "issued"), 0);
}

#[test]
fn a_certificate_is_fetched_by_a_page_that_comes_before_every_site() {
    let plan = Plan::new("acme-http", 3600);
    let _pebble = plan.start();
    let root = plan.root();
    let mut server = plan.serve(NAME, "http-01");
    server.error_with("received a certificate for");
    plan.ask_until_shown(&root);
    let site = format!("127.0.0.1:{}", plan.http);
    let unknown = running::get(&site, "/.well-known/acme-challenge/unknown");
    assert!(unknown.starts_with("HTTP/1.1 404 "), "{unknown}");
    let other = running::get(&site, "/.well-known/other");
    assert!(
        other.starts_with("HTTP/1.1 301 ") && other.contains("\r\nLocation: https://localhost:"),
        "{other}"
    );
}

#[test]
fn a_directory_that_is_down_keeps_nothing_from_being_served_and_is_tried_again() {
    let plan = Plan::new("acme-down", 3600);
    let mut server = plan.serve(NAME, "tls-alpn-01");
    let line = server.error_with("no certificate for");
    assert!(
        line.contains("cannot reach the directory")
            && line.contains("refused")
            && line.contains("retrying at"),
        "{line}"
    );
    let plain = running::get(&format!("127.0.0.1:{}", plan.http), "/");
    assert!(plain.starts_with("HTTP/1.1 301 "), "{plain}");
    // Without a certificate the handshake is rejected with a TLS alert.
    let refused = plan.ask(&plan.authority());
    assert_eq!(refused.status.code(), Some(35), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("alert"), "{}", text(&refused.stderr));
    assert_eq!((orders(&server, "issued"), orders(&server, "failed")), (0, 1));

    let pebble = plan.start();
    let root = plan.root();
    // A reload does not wait for the back-off.
    server.signal(Signal::HangUp);
    server.error_with("received a certificate for");
    plan.ask_until_shown(&root);

    // If the directory has lost the account, a new one is registered.
    drop(pebble);
    let _another = plan.start();
    let root = plan.root();
    fs::remove_file(plan.folder.path(&format!("state/acme/at-127.0.0.1-{}-dir/{NAME}.pem", plan.directory)))
        .expect("it was fetched");
    server.signal(Signal::HangUp);
    server.error_with("received a certificate for");
    plan.ask_until_shown(&root);
}

#[test]
fn a_start_orders_no_earlier_than_the_server_before_it_would_have() {
    let plan = Plan::new("acme-restart", 3600);
    let mut before = plan.serve(NAME, "tls-alpn-01");
    before.error_with("no certificate for");
    drop(before);

    let _pebble = plan.start();
    let root = plan.root();
    let mut server = plan.serve(NAME, "tls-alpn-01");
    let line = server.error_with("the next order is at");
    assert!(line.contains("the last order for") && line.contains("or immediately after a reload"), "{line}");
    assert_eq!((orders(&server, "issued"), orders(&server, "failed")), (0, 0));
    server.signal(Signal::HangUp);
    server.error_with("received a certificate for");
    plan.ask_until_shown(&root);
    drop(server);

    // A successful order resets the failure count.
    let server = plan.serve(NAME, "tls-alpn-01");
    plan.ask_until_shown(&root);
    assert_eq!((orders(&server, "issued"), orders(&server, "failed")), (0, 0));
}

#[test]
fn a_refused_order_is_told_in_the_words_of_the_directory() {
    let plan = Plan::new("acme-refused", 3600);
    let _pebble = plan.start();
    let mut server = plan.serve("blocked.encke.test", "tls-alpn-01");
    let line = server.error_with("no certificate for");
    assert!(line.contains("blocked.encke.test") && line.contains("rejectedIdentifier"), "{line}");

    // The challenge is validated at a port where nothing listens.
    let mut plan = Plan::new("acme-elsewhere", 3600);
    let _elsewhere = plan.start();
    plan.http = free_port();
    let mut server = plan.serve(NAME, "http-01");
    let line = server.error_with("no certificate for");
    assert!(line.contains("the directory rejected the order") && line.contains("connection"), "{line}");
}
