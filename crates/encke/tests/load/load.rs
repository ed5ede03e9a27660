//! `encke load` against `encke serve`: counts, output, exit status.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use crate::running::{Folder, Running, encke, text};
use encke_io::Backend;
use encke_io::host::Signal;
use encke_io::testing::{own_host, wait_until};

fn load(arguments: &[&str]) -> Output {
    encke().arg("load").args(arguments).output().expect("the program starts")
}

/// Starts a server of a small site with an access log file.
fn server(name: &str) -> (Folder, Running) {
    let folder = Folder::new(name);
    folder.write("public/index.html", "hello");
    let log = folder.path("access.log");
    let public = folder.path("public");
    let file =
        folder.write("encke.toml", &format!("[log]\naccess = \"{log}\"\n[[site]]\nroot = \"{public}\"\n"));
    let server = Running::start(&["-c", &file]);
    (folder, server)
}

#[test]
fn a_fixed_number_agrees_with_the_servers_log() {
    let (folder, server) = server("load-count");
    let url = format!("http://{}/", server.site);
    let mut sent = 0;
    for (flags, count) in [
        (&["-n", "2000", "-c", "20"][..], 2_000),
        (&["-n", "1500", "-c", "10", "-t", "2", "--no-keepalive"][..], 1_500),
        (&["-n", "2000", "-c", "4", "--pipeline", "8"][..], 2_000),
        (&["-n", "500", "-X", "HEAD", "--per-conn", "7"][..], 500),
        (&["-n", "300", "--http10", "--backend", "poll"][..], 300),
        (&["-n", "400", "-r", "4k"][..], 400),
    ] {
        let output = load(&[flags, &["--json", &url]].concat());
        let json: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{flags:?}: {error}: {}", text(&output.stderr)));
        assert_eq!(json["schema"], 1);
        assert_eq!(
            (&json["requests"]["begun"], &json["requests"]["finished"]),
            (&count.into(), &count.into())
        );
        assert_eq!(json["statuses"]["2xx"], count, "{flags:?}");
        sent += count;
    }
    // The server writes its whole log before it exits.
    server.signal(Signal::Terminate);
    assert_eq!(server.end().0, Some(0));
    let lines = folder.read("access.log").lines().count();
    assert_eq!(lines, sent, "the log has a line for each request");
}

/// Returns the number before `behind` in the report line that contains `mark`.
fn figure(report: &str, mark: &str, behind: &str) -> u64 {
    let line =
        report.lines().find(|line| line.contains(mark)).unwrap_or_else(|| panic!("no {mark}: {report}"));
    let (before, _) = line.split_once(behind).unwrap_or_else(|| panic!("no {behind}: {line}"));
    let digits = before.rsplit(|char: char| !char.is_ascii_digit()).find(|digits| !digits.is_empty());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("no number: {line}"))
}

#[test]
fn counts_and_bytes_are_those_of_ab_of_h2load_and_of_the_servers_log() {
    let (folder, server) = server("load-others");
    folder.write("public/large.txt", &"x".repeat(100_000));
    let (mut answers, mut bodies) = (0, 0);
    // A recently changed file has a weak ETag, and its responses are two bytes longer.
    for path in ["/", "/large.txt"] {
        let mut weak = true;
        while weak {
            let response = server.get(path);
            let (head, body) = response.split_once("\r\n\r\n").expect("a head ends");
            weak = head.contains("\r\nETag: W/");
            (answers, bodies) = (answers + 1, bodies + body.len() as u64);
        }
    }
    for path in ["/", "/large.txt", "/none"] {
        let url = format!("http://{}{path}", server.site);
        // A tool to imitate, its flags, and our flags for the same requests.
        for (tool, words, ours) in [
            ("ab", &["-q"][..], &["--http10", "--no-keepalive"][..]),
            ("ab", &["-q", "-k"], &["--http10"]),
            ("h2load", &["--h1"], &[]),
        ] {
            let count = &["-n", "300", "-c", "5"][..];
            let output =
                Command::new(tool).args(words).args(count).arg(&url).output().expect("it is installed");
            let theirs = text(&output.stdout);
            let output = load(&[count, ours, &["--json", &url]].concat());
            let json: serde_json::Value = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|error| panic!("{url}: {error}: {}", text(&output.stderr)));
            let own = ["received", "bodies"].map(|key| json["bytes"][key].as_u64().expect("a count"));
            let (done, told) = if tool == "ab" {
                let transferred = |what| figure(&theirs, what, " bytes");
                let done = theirs.lines().find_map(|line| line.strip_prefix("Complete requests:"));
                let done = done.and_then(|count| count.trim().parse().ok());
                (done, [transferred("Total transferred:"), transferred("HTML transferred:")])
            } else {
                let traffic = |behind| figure(&theirs, "traffic:", behind);
                (Some(figure(&theirs, "requests:", " done")), [traffic(") total"), traffic(") data")])
            };
            assert_eq!((done, json["requests"]["finished"].as_u64()), (Some(300), Some(300)), "{theirs}");
            assert_eq!(own, told, "{tool} {words:?} {url}");
            (answers, bodies) = (answers + 2 * 300, bodies + 2 * own[1]);
        }
    }
    server.signal(Signal::Terminate);
    assert_eq!(server.end().0, Some(0));
    let log = folder.read("access.log");
    // After the quoted request: status and body bytes.
    let logged =
        log.lines().filter_map(|line| line.split('"').nth(2)?.split(' ').nth(2)?.parse::<u64>().ok());
    let logged: Vec<u64> = logged.collect();
    assert_eq!((logged.len(), logged.iter().sum::<u64>()), (answers, bodies));
}

#[test]
fn the_back_end_is_the_one_that_costs_least_unless_it_is_named() {
    let folder = Folder::new("load-back-end");
    folder.write("public/index.html", "hello");
    let server = Running::start(&[&folder.path("public")]);
    let url = format!("http://{}/", server.site);
    // Since Linux 6.12 responses accumulate in the ring.
    let gathering = Backend::auto_client(true).0.name();
    for (flags, used) in [
        (&[][..], "uring"),
        (&["--backend", "auto"], "uring"),
        (&["--pipeline", "8"], gathering),
        (&["--pipeline", "8", "--backend", "uring"], "uring"),
        (&["--backend", "poll"], "poll"),
    ] {
        let output = load(&[flags, &["-n", "40", "-c", "2", "--json", &url]].concat());
        let json: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{flags:?}: {error}: {}", text(&output.stderr)));
        assert_eq!((&json["plan"]["backend"], &json["requests"]["finished"]), (&used.into(), &40.into()));
    }
}

#[test]
fn by_http2_counts_and_bytes_are_those_of_h2load_and_of_the_servers_log() {
    let folder = Folder::new("load-http2");
    folder.write("public/index.html", "hello");
    folder.write("public/large.txt", &"x".repeat(100_000));
    let (log, public) = (folder.path("access.log"), folder.path("public"));
    let listen = "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"";
    let site = format!("[log]\naccess = \"{log}\"\n[[site]]\nroot = \"{public}\"\n");
    let file = folder.write("encke.toml", &format!("[server]\n{listen}\n{site}"));
    for scheme in ["http", "https"] {
        let mut command = encke();
        command.env("XDG_STATE_HOME", folder.path("state")).args(["serve", "-c", &file]);
        let server = Running::start_command(if scheme == "https" {
            command.arg("--tls-self-signed")
        } else {
            &mut command
        });
        let authority = folder.path("state/encke/authority/authority.pem");
        let believed = if scheme == "https" { &["--cacert", &authority][..] } else { &[] };
        let port = server.site.rsplit(':').next().expect("a port");
        let (mut answers, mut bodies) = (0, 0);
        for (path, flags) in [
            ("/", &["--streams", "8"][..]),
            ("/large.txt", &["--streams", "3", "-t", "2", "--backend", "uring"]),
            ("/none", &["--per-conn", "7", "--expect-status", "404"]),
            ("/", &["-r", "2k", "--streams", "4"]),
            ("/", &["--no-keepalive"]),
        ] {
            let url = format!("{scheme}://127.0.0.1:{port}{path}");
            let count = &["-n", "100", "-c", "5"][..];
            let output =
                Command::new("h2load").args(count).args(["-m", "8", &url]).output().expect("it is installed");
            let theirs = text(&output.stdout);
            let data = figure(&theirs, "traffic:", ") data");
            assert_eq!(figure(&theirs, "requests:", " done"), 100, "{theirs}");
            let output = load(&[count, flags, believed, &["--http2", "--json", &url]].concat());
            let json: serde_json::Value = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|error| panic!("{url}: {error}: {}", text(&output.stderr)));
            let case = format!("{url} {flags:?}: {}", json["errors"]);
            assert_eq!(json["requests"]["finished"], 100, "{case}");
            assert_eq!(
                (&json["requests"]["wrong"], &json["plan"]["protocol"]),
                (&0.into(), &"http/2".into()),
                "{case}"
            );
            assert_eq!(json["bytes"]["bodies"], data, "{case}");
            (answers, bodies) = (answers + 200, bodies + 2 * data);
        }
        server.signal(Signal::Terminate);
        assert_eq!(server.end().0, Some(0));
        let log = std::fs::read_to_string(&log).expect("a log");
        let logged =
            log.lines().filter_map(|line| line.split('"').nth(2)?.split(' ').nth(2)?.parse::<u64>().ok());
        let logged: Vec<u64> = logged.collect();
        assert_eq!((logged.len(), logged.iter().sum::<u64>()), (answers, bodies), "{scheme}");
        assert!(log.lines().all(|line| line.contains(" HTTP/2.0\" ")), "{scheme}");
        std::fs::remove_file(folder.path("access.log")).expect("a log");
    }
}

/// nginx with cleartext HTTP/2, which closes each connection after 100 requests. Killed when dropped.
struct Nginx(Child);

impl Nginx {
    /// Starts nginx at this address, which writes a line per response to `access.log` in the directory.
    fn start(folder: &Folder, address: &str) -> Self {
        let place = folder.path("");
        let settings = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/error.log;\n\
             events {{}}\n\
             http {{ access_log {place}/access.log; client_body_temp_path {place}/t; proxy_temp_path {place}/t;\n\
             fastcgi_temp_path {place}/t; uwsgi_temp_path {place}/t; scgi_temp_path {place}/t;\n\
             server {{ listen {address} http2; keepalive_requests 100; return 200 hello; }} }}\n"
        );
        let file = folder.write("nginx.conf", &settings);
        let child = Command::new("nginx").args(["-e", &folder.path("error.log"), "-c", &file]).spawn();
        let mut nginx = Self(child.expect("it is installed"));
        wait_until("nginx listens", || {
            let ended = nginx.0.try_wait().expect("a child");
            assert!(ended.is_none(), "{ended:?}: {}", folder.read("error.log"));
            TcpStream::connect(address).is_ok()
        });
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn a_goaway_of_nginx_in_mid_run_loses_no_request() {
    let folder = Folder::new("load-nginx");
    // All ports of such an address are free.
    let address = format!("{}:8080", own_host());
    let nginx = Nginx::start(&folder, &address);
    let url = format!("http://{address}/");
    let (mut sent, expected) = (0, ["--expect-body", "hello"]);
    for flags in
        [&["--streams", "8"][..], &["--streams", "200", "-t", "2"], &["-r", "5k", "--streams", "2"], &[]]
    {
        let output =
            load(&[flags, &["-n", "1500", "-c", "4", "--http2", "--json"], &expected, &[&url]].concat());
        let json: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{flags:?}: {error}: {}", text(&output.stderr)));
        assert_eq!(json["errors"], serde_json::json!([]), "{flags:?}");
        let requests = &json["requests"];
        assert_eq!((&requests["finished"], &requests["wrong"]), (&1_500.into(), &0.into()), "{flags:?}");
        assert!(json["connections"]["made"].as_u64() >= Some(15), "{flags:?}: {}", json["connections"]);
        sent += 1_500;
    }
    drop(nginx);
    let log = folder.read("access.log");
    assert_eq!(log.lines().filter(|line| line.contains("HTTP/2.0\" 200")).count(), sent);
}

#[test]
fn http2_is_spoken_with_who_speaks_it_and_asked_for_as_it_is() {
    let (_folder, server) = server("load-http2-asked");
    let url = format!("http://{}/", server.site);
    for (flags, said) in [
        (&["--pipeline", "4", "--http2"][..], "--streams 4"),
        (&["--streams", "4"], "--http2 --streams 4"),
        (&["--http2", "--http10"], "--http10"),
        (&["-m", "32"], "--http2 --streams"),
        (&["--http2", "-H", "Host: a b"], "cannot carry"),
    ] {
        let output = load(&[flags, &["-n", "1", &url]].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        assert!(text(&output.stderr).contains(said), "{flags:?}: {}", text(&output.stderr));
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _gone = std::io::Write::write_all(&mut &stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let output = load(&["--http2", "-n", "2", "-c", "1", &format!("http://{address}/")]);
    let words = text(&[output.stdout, output.stderr].concat());
    assert!(words.contains("the server does not support HTTP/2"), "{words}");
}

#[test]
fn https_is_asked_as_http_is_and_its_handshakes_are_counted() {
    let folder = Folder::new("load-https");
    folder.write("public/index.html", "hello");
    let (log, public) = (folder.path("access.log"), folder.path("public"));
    let listen = "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"";
    let settings = format!("[server]\n{listen}\n[log]\naccess = \"{log}\"\n[[site]]\nroot = \"{public}\"\n");
    let file = folder.write("encke.toml", &settings);
    let mut command = encke();
    command.env("XDG_STATE_HOME", folder.path("state"));
    let server = Running::start_command(command.args(["serve", "-c", &file, "--tls-self-signed"]));
    let authority = folder.path("state/encke/authority/authority.pem");
    let port = server.site.rsplit(':').next().expect("a port");
    let url = format!("https://127.0.0.1:{port}/");
    let trusted = ["--json", "--cacert", &authority, &url];
    let mut sent = 0;
    for (flags, requests, handshakes, resumed) in [
        (&["-n", "1000", "-c", "10"][..], 1_000, 10, None),
        (&["-n", "300", "-c", "5", "--no-keepalive"][..], 300, 300, None),
        (&["-n", "100", "-c", "5", "--no-keepalive", "--tls-resume", "off"][..], 100, 100, Some(0)),
        (&["-n", "900", "-c", "3", "--pipeline", "8", "-t", "2"][..], 900, 3, None),
        (&["-n", "200", "-c", "4", "--backend", "uring", "-X", "HEAD"][..], 200, 4, None),
        (&["-n", "200", "-c", "4", "-r", "2k", "--insecure", "--sni", "localhost"][..], 200, 4, None),
    ] {
        let trusted = if flags.contains(&"--insecure") { &["--json", &url][..] } else { &trusted[..] };
        let output = load(&[flags, trusted].concat());
        let json: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{flags:?}: {error}: {}", text(&output.stderr)));
        assert_eq!(json["requests"]["finished"], requests, "{flags:?}: {}", json["errors"]);
        assert_eq!(json["errors"], serde_json::json!([]), "{flags:?}");
        assert_eq!(json["connections"]["handshakes"], handshakes, "{flags:?}");
        assert_eq!(json["latency"]["handshake"]["count"], handshakes, "{flags:?}");
        let told = json["connections"]["resumed"].as_u64();
        assert!(resumed.is_none() || told == resumed, "{flags:?}: {told:?}");
        // New connections resume sessions where possible.
        assert!(handshakes != 300 || told > Some(100), "{flags:?}: {told:?}");
        sent += requests;
    }
    server.signal(Signal::Terminate);
    assert_eq!(server.end().0, Some(0));
    assert_eq!(folder.read("access.log").lines().count(), sent, "the log has a line for each request");
}

#[test]
fn who_is_not_believed_is_asked_nothing() {
    let folder = Folder::new("load-distrust");
    folder.write("public/index.html", "hello");
    let mut command = encke();
    command.env("XDG_STATE_HOME", folder.path("state"));
    command.args(["serve", "-l", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--tls-self-signed"]);
    let server = Running::start_command(command.arg(folder.path("public")));
    let authority = folder.path("state/encke/authority/authority.pem");
    let port = server.site.rsplit(':').next().expect("a port");
    let url = format!("https://127.0.0.1:{port}/");
    for (flags, said) in [
        (&["-n", "2", "-c", "2", "--cacert", &authority, "--sni", "example.com"][..], "is for others"),
        (&["-n", "2", "-c", "2", "--cacert", "nowhere.pem"][..], "nowhere.pem"),
    ] {
        let output = load(&[flags, &[&url]].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
    // A server without TLS.
    let plain = Running::start(&[&folder.path("public")]);
    let output = load(&["-n", "2", "-c", "2", "--insecure", &format!("https://{}/", plain.site)]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("(TLS)"), "{}", text(&output.stderr));
}

#[test]
fn requests_come_from_a_file_by_weights_or_from_a_log_in_order() {
    let (folder, server) = server("load-listed");
    for name in ["a", "b", "c"] {
        folder.write(&format!("public/{name}"), name);
    }
    let url = format!("http://{}/", server.site);
    let json = |flags: &[&str]| -> serde_json::Value {
        let output = load(&[flags, &["--json", &url]].concat());
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{flags:?}: {error}: {}", text(&output.stderr)))
    };
    let urls = folder.write("urls", &format!("# three\n/a\n8@HEAD /b\n{url}none\n"));
    let listed = json(&["-n", "1000", "-c", "4", "--urls", &urls]);
    assert_eq!(listed["requests"]["finished"], 1_000);
    let [found, gone] = ["2xx", "4xx"].map(|class| listed["statuses"][class].as_u64().expect("a count"));
    assert!((50..200).contains(&gone) && found + gone == 1_000, "{found} found, {gone} not");

    // Seven requests within three seconds; the last line contains none.
    let line = |second, request: &str| {
        format!("::1 - - [21/Nov/2026:21:26:0{second} +0000] \"{request} HTTP/1.1\" 200 1 \"-\" \"x\"\n")
    };
    let recorded = [(3, "GET /a"), (3, "GET /b"), (3, "HEAD /c"), (5, "GET /c"), (5, "GET /{seq}")];
    let mut log: String = recorded.iter().map(|(second, request)| line(*second, request)).collect();
    log.push_str(&line(5, "POST /a"));
    let file = folder.write("old.log", &log);
    assert_eq!(json(&["-c", "1", "--from-log", &file])["requests"]["finished"], 5);
    let replayed = json(&["--replay", "--from-log", &file]);
    assert_eq!((&replayed["requests"]["begun"], &replayed["requests"]["unsent"]), (&5.into(), &0.into()));
    assert!(replayed["elapsed_ns"].as_u64().expect("a time") >= 2_400_000_000, "{}", replayed["elapsed_ns"]);
    server.signal(Signal::Terminate);
    assert_eq!(server.end().0, Some(0));
    let served = folder.read("access.log");
    let served: Vec<&str> = served.lines().collect();
    assert_eq!(served.len(), 1_010);
    for times in served[1_000..].chunks(5) {
        let asked: Vec<_> = times.iter().map(|line| line.split('"').nth(1).expect("a request")).collect();
        let expected: Vec<_> = recorded.iter().map(|(_, request)| format!("{request} HTTP/1.1")).collect();
        assert_eq!(asked, expected);
    }
}

#[test]
fn a_server_that_is_watched_tells_what_it_used() {
    let (_folder, server) = server("load-watch");
    let url = format!("http://{}/", server.site);
    let process = server.child.id().to_string();
    let metrics = server.admin.replace("/api/v1/status", "/metrics");
    for (watched, told) in [(&process, format!("process {process}")), (&metrics, metrics[..20].to_owned())] {
        let output = load(&["-n", "20000", "-c", "8", "--json", "--watch", watched, &url]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{watched}: {error}: {}", text(&output.stderr)));
        let server = &json["server"];
        assert!(server["what"].as_str().is_some_and(|what| what.starts_with(&told)), "{server}");
        assert!(!server["what"].as_str().is_some_and(|what| what.contains("token")), "{server}");
        let number = |key: &str| server[key].as_f64().unwrap_or_else(|| panic!("no {key} in {server}"));
        // A request takes some microseconds of CPU, less than a millisecond, even in a build without optimization.
        let (cpu_ns, each_ns) = (number("cpu_ns"), number("cpu_per_request_ns"));
        assert!((each_ns - cpu_ns / 20_000.0).abs() <= 1.0 && (1e3..1e6).contains(&each_ns), "{server}");
        assert!(number("resident_bytes_max") > 1e6 && number("cores") > 0.0, "{server}");
        assert_eq!(server["busiest_thread"].is_number(), watched == &process, "{server}");
    }
    let output = load(&["-n", "100", "--watch", &process, &url]);
    assert!(text(&output.stdout).contains(&format!("(process {process})")), "{}", text(&output.stdout));
    for (watched, status, said) in [
        ("4294967295", 1, "no such process"),
        ("nobody", 2, "expected a process id"),
        (&url[..], 1, "process_cpu_seconds_total is missing"),
    ] {
        let output = load(&["-n", "1", "--watch", watched, &url]);
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
}

#[test]
fn a_file_that_is_no_list_is_told_with_its_line() {
    let folder = Folder::new("load-unlisted");
    let urls = folder.write("urls", "/a\nnowhere\n");
    let other = folder.write("other", "/\nhttp://127.0.0.1:2/\n");
    let log = folder.write("log", "nothing\n");
    for (flags, said) in [
        (["--urls", &urls], "line 2: invalid URL `nowhere`"),
        (["--urls", &other], "threads × 2 servers"),
        (["--from-log", &log], "no GET or HEAD"),
        (["--expect-body", "sha256:1"], "64 hexadecimal digits"),
    ] {
        let output = load(&[&flags[..], &["-c", "1", "http://127.0.0.1:1/"]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
}

#[test]
fn the_summary_says_what_was_done_and_what_came_of_it() {
    let (_folder, server) = server("load-summary");
    let url = format!("http://{}/gone", server.site);
    let output = load(&["-n", "100", "-c", "5", &url]);
    let said = text(&output.stdout);
    for part in [
        "Closed loop; 5 connections",
        "100 finished",
        "100 wrong",
        "4xx 100 (404)",
        "p99.99",
        "service time",
        &format!("Again: encke load -n 100 -c 5 {url}"),
    ] {
        assert!(said.contains(part), "no `{part}`:\n{said}");
    }
    assert!(said.lines().count() <= 24, "{said}");
}

#[test]
fn a_report_contains_no_secrets() {
    let folder = Folder::new("load-secrets");
    folder.write("public/index.html", "hello");
    let server = Running::start(&[&folder.path("public")]);
    let url = format!("http://{}/?api_key=hush-1", server.site);
    let push_url = format!("http://{}/push/{{channel}}?api_key=hush-1", server.site);
    let fields = ["-H", "Authorization: Bearer hush-2", "-H", "Cookie: id=hush-3"];
    let page = folder.path("page.html");
    let saved = folder.path("run.json");
    let files = ["--report", &page, "--save", &saved];
    for words in [
        [&["-n", "5", "-c", "1", "-H", "Proxy-Authorization: hush-4", &url], &fields[..], &files].concat(),
        [
            &["push", "-n", "1", "-s", "1", "-H", "Cookie: id=hush-3", "--token", "hush-5"],
            &files[..],
            &[&push_url],
        ]
        .concat(),
        [&["compare", "--rounds", "1", "-d", "50ms", "--json", &url, &url], &fields[..]].concat(),
    ] {
        let output = load(&words);
        let mut told = vec![text(&output.stdout), text(&output.stderr)];
        if words.contains(&"--save") {
            told.extend([folder.read("page.html"), folder.read("run.json")]);
        }
        assert!(told[0].contains('…'), "{words:?}: {}{}", told[0], told[1]);
        for text in told {
            // With the hyphen, which the histograms in base64 do not have.
            assert!(!text.contains("hush-"), "{words:?}:\n{text}");
        }
    }
    let output = load(&["-n", "1", "http://ann:hush-6@127.0.0.1:1/"]);
    assert!(!text(&output.stderr).contains("hush"), "{}", text(&output.stderr));
}

#[test]
fn the_exit_status_is_for_scripts() {
    let (_folder, server) = server("load-status");
    let url = format!("http://{}/", server.site);
    let held = load(&["-n", "200", "-c", "2", "--slo", "errors<=0%,p99<10s,rate>1", &url]);
    assert_eq!(held.status.code(), Some(0), "{}", text(&held.stderr));
    // A generator that waits for a processor measures nothing (4), but not each time.
    let mut attempts = (0..10).map(|_| load(&["-n", "200", "-c", "2", "--slo", "p50<1ns", &url]));
    let missed = attempts.find(|run| run.status.code() != Some(4)).expect("a run on free processors");
    assert_eq!(missed.status.code(), Some(3), "{}", text(&missed.stdout));
    assert!(text(&missed.stderr).contains("missed: p50<1ns (measured "), "{}", text(&missed.stderr));

    // Errors are no measurement of the pages, unless they are expected.
    let gone = format!("{url}gone");
    for (flags, status) in [
        (&[][..], 4),
        (&["--slo", "p99<10s"], 4),
        (&["--slo", "p99<10s,errors<1%"], 3),
        (&["--slo", "p99<10s,errors<1%", "--expect-status", "404"], 0),
    ] {
        let output = load(&[flags, &["-n", "200", "-c", "2", &gone]].concat());
        assert_eq!(output.status.code(), Some(status), "{flags:?}: {}", text(&output.stdout));
        let warned = text(&output.stdout).contains("unexpected status (404 100 %). If that is intended");
        assert_eq!(warned, status > 0, "{flags:?}: {}", text(&output.stdout));
    }
    let told = load(&["-n", "200", "-c", "2", "--json", &gone]);
    assert_eq!(told.status.code(), Some(4));
    assert!(text(&told.stderr).contains("--expect-status 404"), "{}", text(&told.stderr));

    // Port 1: a service of 1988 (RFC 1078), which no test gets from the system.
    let refused = load(&["-n", "3", "http://127.0.0.1:1/"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("refused"), "{}", text(&refused.stderr));
}

#[test]
fn mostly_unanswered_requests_are_no_measurement_unless_admitted() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    // A server that reads each request and ends the connection.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _request = stream.read(&mut [0; 1_024]);
        }
    });
    for (flags, status) in [
        (&[][..], 4),
        (&["--slo", "p99<10s"], 3),
        (&["--slo", "errors<1%"], 3),
        (&["--slo", "errors<=100%"], 0),
    ] {
        let output = load(&[flags, &["-n", "4", "-c", "2", &url]].concat());
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(status), "{flags:?}: {said}{}", text(&output.stderr));
        assert!(said.contains("most requests got no response: 4 of 4 (first byte: "), "{flags:?}: {said}");
    }
    let output = load(&["-n", "4", "-c", "2", "--json", &url]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("got no response: 4 of 4"), "{}", text(&output.stderr));
}

#[test]
fn it_takes_the_flags_of_ab_and_prints_its_lines() {
    let (_folder, server) = server("load-ab");
    let url = format!("http://{}/", server.site);
    for (keeps, line) in [("-k", "Keep-Alive requests:    300"), ("-q", "Complete requests:      300")] {
        let output = load(&["--as", "ab", "-n", "300", "-c", "5", keeps, &url]);
        let said = text(&output.stdout);
        assert!(said.lines().any(|other| other == line), "{said}{}", text(&output.stderr));
        assert!(said.contains("\nRequests per second:    "), "{said}");
    }
    let output = load(&["--as", "siege", &url]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn a_search_for_a_rate_ends_with_one_or_says_why_not() {
    let (_folder, server) = server("load-find");
    let url = format!("http://{}/", server.site);
    let output = load(&["--find-max", "p99<1ns", "-d", "50ms", "-c", "4", "--json", &url]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    // No response arrives within a nanosecond. On a busy machine the run has no verdict.
    assert_eq!(json["find_max"]["rate_per_s"], serde_json::Value::Null);
    let expected = if json["find_max"]["is_verdict"] == true { 3 } else { 4 };
    assert_eq!(output.status.code(), Some(expected), "{}", text(&output.stderr));
    assert!(json["find_max"]["text"].as_str().is_some_and(|text| text.starts_with("no rate held")), "{json}");

    let gone = load(&["--find-max", "p99<1s", "-d", "50ms", "-c", "4", &format!("{url}gone")]);
    assert_eq!(gone.status.code(), Some(4), "{}", text(&gone.stderr));
    assert!(text(&gone.stdout).contains("unexpected status (404 100 %)"), "{}", text(&gone.stdout));
}

#[test]
fn a_saved_run_is_printed_explained_and_joined() {
    let (folder, server) = server("load-saved");
    let url = format!("http://{}/", server.site);
    let file = folder.path("run.json");
    let output = load(&["-n", "1500", "-c", "5", "--save", &file, &url]);
    assert!(matches!(output.status.code(), Some(0 | 4)), "{}", text(&output.stderr));
    let again = load(&["report", &file]);
    assert_eq!(text(&again.stdout), text(&output.stdout), "the same summary from the file");
    let json: serde_json::Value = serde_json::from_str(&folder.read("run.json")).expect("JSON");
    let printed: serde_json::Value =
        serde_json::from_slice(&load(&["report", "--json", &file]).stdout).expect("JSON");
    assert_eq!(printed["latency"], json["latency"]);
    let explained = load(&["explain", &file]);
    assert!(text(&explained.stdout).contains("A closed loop"), "{}", text(&explained.stdout));
    let merged = load(&["merge", "--json", &file, &file]);
    let merged: serde_json::Value = serde_json::from_slice(&merged.stdout).expect("JSON");
    assert_eq!(
        (&merged["requests"]["finished"], &merged["latency"]["service"]["count"]),
        (&3_000.into(), &3_000.into())
    );
    for (arguments, said) in [
        (&["report", "/nonexistent.json"][..], "/nonexistent.json: "),
        (&["explain", &folder.path("public/index.html")], "not a run"),
        (&["compare", &file, &url], "two URLs, or two files"),
    ] {
        let output = load(arguments);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}");
        assert!(text(&output.stderr).contains(said), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn several_servers_have_their_parts_of_one_run() {
    let (one_folder, one) = server("load-several-a");
    let (other_folder, other) = server("load-several-b");
    let urls = [&one.site, &other.site].map(|address| format!("http://{address}/"));
    let weighted = [format!("2@{}", urls[0]), format!("1@{}none", urls[0]), format!("1@{}", urls[1])];
    let [first, second, third] = weighted.each_ref().map(String::as_str);
    for flags in [
        &["-n", "400", "-c", "8", "-t", "2"][..],
        &["-n", "400", "-c", "5", "-r", "2k", "--arrivals", "poisson"],
    ] {
        let output = load(&[flags, &["--json", first, second, third]].concat());
        let json: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{flags:?}: {error}: {}", text(&output.stderr)));
        assert_eq!(json["requests"]["finished"], 400, "{flags:?}");
        let targets = json["targets"].as_array().expect("two servers");
        let told = |target: &serde_json::Value| {
            (
                target["name"].clone(),
                target["requests"]["finished"].clone(),
                target["latency"]["count"].clone(),
            )
        };
        let names = [&one.site, &other.site].map(|address| format!("http://{address}"));
        assert_eq!(told(&targets[0]), (names[0].as_str().into(), 300.into(), 300.into()), "{flags:?}");
        assert_eq!(told(&targets[1]), (names[1].as_str().into(), 100.into(), 100.into()), "{flags:?}");
        assert_eq!(json["requests"]["wrong"], targets[0]["requests"]["wrong"], "the other one has the page");
    }
    let list = one_folder.write("urls.txt", &format!("/\n3@{}\n", urls[1]));
    let output = load(&["-n", "40", "-c", "2", "--urls", &list, &urls[0]]);
    let summary = text(&output.stdout);
    assert!(summary.contains("             30: ") && summary.contains("             10: "), "{summary}");
    for (folder, server, lines) in [(one_folder, one, 610), (other_folder, other, 230)] {
        server.signal(Signal::Terminate);
        assert_eq!(server.end().0, Some(0));
        assert_eq!(folder.read("access.log").lines().count(), lines);
    }
}

#[test]
fn two_servers_are_compared_in_turns() {
    let (_one, one) = server("load-compare-a");
    let (_other, other) = server("load-compare-b");
    let urls = [&one.site, &other.site].map(|address| format!("http://{address}/"));
    let flags = ["compare", "--json", "-d", "30ms", "--rounds", "4", "-c", "4"];
    let output = load(&[&flags[..], &[&urls[0], &urls[1]]].concat());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let figures = &json["compare"]["figures"];
    for (name, change) in
        [("rate_per_s", "ratio"), ("p50_ns", "ratio"), ("p99_ns", "ratio"), ("error_share", "difference")]
    {
        let [low, change, high] = ["low", change, "high"].map(|key| figures[name][key].as_f64());
        assert!(low <= change && change <= high && low.is_some(), "{name}: {figures}");
    }
    assert_eq!(figures["error_share"]["shown"], "none");
    assert!(figures.get("server_cpu_per_request_ns").is_none(), "nobody watched");
    let watch = [&one, &other].map(|server| server.child.id().to_string());
    let watched = ["--watch", &watch[0], "--watch", &watch[1], &urls[0], &urls[1]];
    let output = load(&[&flags[..], &watched].concat());
    let watched: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let cpu = &watched["compare"]["figures"]["server_cpu_per_request_ns"];
    assert!(["a", "b"].iter().all(|side| cpu[side].as_f64() > Some(0.0)), "{cpu}");
    let words = json["compare"]["text"].as_str().unwrap_or_default();
    assert!(words.contains("shown"), "{words}");
    assert!(
        json["compare"]["how"].as_str().is_some_and(|how| how.contains("8 pairs of blocks of 30ms")),
        "{json}"
    );
}

#[test]
fn different_responses_of_two_servers_are_not_compared() {
    let (_folder, server) = server("load-compare-unlike");
    let url = format!("http://{}/", server.site);
    let gone = format!("{url}gone");
    let compared = |flags: &[&str], urls: [&str; 2]| {
        let output = load(&[&["compare", "-d", "30ms", "--rounds", "4", "-c", "4"], flags, &urls].concat());
        (output.status.code(), text(&output.stdout))
    };
    let (status, said) = compared(&[], [&url, &gone]);
    assert_eq!(status, Some(4), "{said}");
    assert!(said.contains("the responses differ: statuses A 200 100 %; B 404 100 %"), "{said}");
    assert!(!said.contains("rate"), "it ends before anything is measured: {said}");
    let (_, said) = compared(&["--different-responses"], [&url, &gone]);
    assert!(said.contains("B against A: ") || said.contains("No difference shown"), "{said}");
    assert!(said.contains("The responses differ: "), "{said}");
    let (status, said) = compared(&[], [&gone, &gone]);
    assert!(status == Some(4) && said.contains("unexpected status (404 100 %)"), "{said}");
    assert!(said.contains("Nothing was compared."), "{said}");
    let (_, said) = compared(&["--expect-status", "404"], [&gone, &gone]);
    assert!(said.contains("rate") && !said.contains("unexpected"), "{said}");
}

/// Runs under script(1), which provides a terminal. Checks its contents while the screen is shown, and after `q`.
#[test]
fn a_screen_is_shown_on_a_terminal_and_gives_it_back() {
    // Without settings, so that local clients may publish.
    let folder = Folder::new("load-screen");
    let server = Running::start(&[&folder.path("")]);
    let url = format!("http://{}/", server.site);
    for (arguments, shown) in
        [("load -c 2 -r 50 -d 60s", "┌responses"), ("load push -s 5 -r 50 -d 60s", "┌receipts")]
    {
        let command = format!(
            "stty rows 30 cols 100; stty -g; '{}' {arguments} {url}; echo status $?; stty -g",
            env!("CARGO_BIN_EXE_encke")
        );
        let mut terminal = Command::new("script")
            .args(["-qc", &command, "/dev/null"])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script starts");
        let mut output = terminal.stdout.take().expect("it is piped");
        let mut said = Vec::new();
        let mut piece = [0; 4_096];
        // Sends the key once the screen is shown.
        while !text(&said).contains(shown) {
            let count = output.read(&mut piece).expect("it says something");
            assert_ne!(count, 0, "{arguments}: {}", text(&said));
            said.extend_from_slice(&piece[..count]);
        }
        let mut input = terminal.stdin.take().expect("it is piped");
        input.write_all(b"q").expect("it reads");
        output.read_to_end(&mut said).expect("it ends");
        terminal.wait().expect("it ends");
        let said = text(&said);
        let [enter, leave] = ["\x1b[?1049h", "\x1b[?1049l"];
        let (before, rest) =
            said.split_once(enter).unwrap_or_else(|| panic!("{arguments}: no screen: {said}"));
        let (screen, after) =
            rest.split_once(leave).unwrap_or_else(|| panic!("{arguments}: still there: {rest}"));
        assert!(screen.contains("\x1b[?25l"), "{arguments}: no cursor in a picture: {screen}");
        assert!(after.contains("Again: encke load") && after.contains("status 130"), "{arguments}: {after}");
        assert!(!after.contains("due and not sent"), "{arguments}: it was ended before: {after}");
        let [modes, modes_after] = [before.lines().next(), after.lines().last()];
        assert_eq!(modes, modes_after, "{arguments}: the terminal's modes are as they were");
    }
}
