//! Access rules of a complete server: files and channels alike, over HTTP/1.1 and HTTP/2, and after a reload.
//!
//! The hashes of these passwords have the lowest cost of bcrypt, 4.

use encke_assembly::Service;
use encke_assembly::settings::{Settings, SettingsError};

use crate::rig::h2::{self, END_STREAM, GET, H2, frame};
use crate::rig::{Answer, Client, Folder, Stand, wait_for};

on_two_stands! {
    rules_protect_files_and_channels_alike,
    rules_apply_to_streams_of_http2,
    a_reload_reads_a_changed_password_file,
    a_reload_adds_and_removes_rules,
    a_reload_with_a_bad_password_file_changes_nothing,
    a_password_file_is_never_served,
    the_log_names_the_user_of_a_request_that_passed,
    a_subscriber_behind_a_password_stays_subscribed,
    rules_for_channels_that_could_be_evaded_are_contradictions,
}

/// Entries for the user `ann` with the passwords `secret` and `other`: `htpasswd -nbB -C 4 ann secret`.
const SECRET: &str = "ann:$2y$04$QwyTMGb40uZk0meOEBJf6ODDhgJ3QmEPMT0my0U.DF17TEg7uaapW\n";
const OTHER: &str = "ann:$2y$04$eWTfd/qxj0WNpHsp6izo4ex7NSKyicOrQF0nawsKcdxtBuinGxrNq\n";
/// `ann:secret` and `ann:other` in Base64.
const ANN: &str = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
const ANN_OTHER: &str = "Authorization: Basic YW5uOm90aGVy\r\n";

const RULES: &str = "[[access]]\npattern = \"/admin/**\"\npasswords = \"users\"\nrealm = \"admin\"\n\
    [[access]]\npattern = \"/push/**\"\npasswords = \"users\"\n\
    [[access]]\npattern = \"/local/**\"\nallow = [\"192.0.2.0/24\"]\n";

fn folder() -> Folder {
    Folder::new()
        .with("admin/file", "inside")
        .with("local/file", "inside")
        .with("file", "outside")
        .with("users", SECRET)
}

fn try_settings(stand: Stand, folder: &Folder, rules: &str) -> Result<Settings, SettingsError> {
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nworkers = {}\nbackend = \"{}\"\n[server.admin]\naddress = \"127.0.0.1:0\"\n\
         metrics = \"open\"\n[log]\naccess = \"log\"\n[[site]]\nroot = \".\"\n\
         [auth]\nanonymous = [\"publish\", \"subscribe\"]\n{rules}",
        stand.workers, stand.backend,
    );
    folder.write("encke.toml", text);
    Settings::read(&folder.path().join("encke.toml"))
}

fn settings(stand: Stand, folder: &Folder, rules: &str) -> Settings {
    try_settings(stand, folder, rules).unwrap_or_else(|error| panic!("{error}"))
}

fn start(stand: Stand, folder: &Folder, rules: &str) -> Service {
    let started = Service::start(&settings(stand, folder, rules));
    started.unwrap_or_else(|error| panic!("{error}"))
}

fn client(service: &Service) -> Client {
    Client::connect(&service.addresses()[0])
}

fn get(service: &Service, path: &str, fields: &str) -> Answer {
    client(service).ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"))
}

fn metrics(service: &Service) -> String {
    Client::connect(&service.admin_addresses()[0]).get("/metrics").text().to_owned()
}

fn rules_protect_files_and_channels_alike(stand: Stand) {
    let folder = folder();
    let service = start(stand, &folder, RULES);
    assert_eq!(get(&service, "/file", "").text(), "outside");
    for path in ["/admin/file", "/%61dmin/file", "/x/../admin/file", "/admin/none"] {
        let answer = get(&service, path, "");
        assert_eq!(answer.status, 401, "{path}");
        assert_eq!(answer.field("WWW-Authenticate"), Some("Basic realm=\"admin\", charset=\"UTF-8\""));
        assert_eq!(get(&service, path, ANN_OTHER).status, 401, "{path}");
    }
    assert_eq!(get(&service, "/admin/file", ANN).text(), "inside");
    assert_eq!(get(&service, "/admin/none", ANN).status, 404);
    assert_eq!(get(&service, "/local/file", ANN).status, 403);
    assert_eq!(
        get(&service, "/admin%2Ffile", "").status,
        400,
        "the site rejects what the rules cannot compare"
    );

    let publish = |fields: &str| {
        let head =
            format!("POST /push/news HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: 5\r\n\r\nhello");
        client(&service).ask(head)
    };
    assert_eq!(publish("").status, 401);
    let published = publish(ANN);
    assert_eq!(published.status, 201, "{}", published.text());
    let poll = get(&service, "/push/news?since=all&as=poll", ANN);
    assert_eq!(poll.text(), "hello");
    assert_eq!(get(&service, "/push/news?since=all&as=poll", "").status, 401);
    for path in ["/push//news", "/push/../push/news", "/push/%zz", "/push/a%2Fb", "/push/a%5Cb"] {
        let status = get(&service, path, "").status;
        assert!([400, 401].contains(&status), "{path}: {status}");
    }

    let metrics = metrics(&service);
    for line in [
        "encke_http_refusals_total{reason=\"address\"} 1\n",
        "encke_http_refusals_total{reason=\"password\"}",
        "encke_password_checks_total{outcome=\"right\"}",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    service.drain();
    service.join();
}

fn rules_apply_to_streams_of_http2(stand: Stand) {
    let folder = folder();
    let service = start(stand, &folder, RULES);
    let mut h2 = H2::speak(client(&service));
    h2.send(&h2::begin());
    let request = |stream: u32, path: &str, credentials: &str| {
        let mut block = [GET, &[0x86], &h2::target(path)].concat();
        if !credentials.is_empty() {
            h2::put_literal(&mut block, b"authorization", credentials.as_bytes());
        }
        frame(1, 4 | END_STREAM, stream, &block)
    };
    let ann = "Basic YW5uOnNlY3JldA==";
    // All streams are held, or refused, at the same time.
    for (stream, path, credentials) in [
        (1, "/admin/file", ""),
        (3, "/admin/file", ann),
        (5, "/admin/file", "Basic YW5uOm90aGVy"),
        (7, "/file", ""),
        (9, "/local/file", ann),
        (11, "/admin/file", ann),
    ] {
        h2.send(&request(stream, path, credentials));
    }
    for (stream, body) in
        [(1, "a user name"), (3, "inside"), (5, "a user name"), (7, "outside"), (9, "403"), (11, "inside")]
    {
        let got = h2.answer(stream);
        let text = String::from_utf8_lossy(&got.body);
        assert!(text.starts_with(body), "stream {stream}: {text}");
    }
    service.drain();
    service.join();
}

fn a_reload_reads_a_changed_password_file(stand: Stand) {
    let folder = folder();
    let mut service = start(stand, &folder, RULES);
    let mut client = client(&service);
    let mut status = |fields: &str| {
        client.ask(format!("GET /admin/file HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")).status
    };
    assert_eq!((status(ANN), status(ANN_OTHER)), (200, 401));
    folder.replace("users", OTHER);
    assert_eq!((status(ANN), status(ANN_OTHER)), (200, 401), "the file is read at a reload");
    service.reload(&settings(stand, &folder, RULES)).expect("good settings");
    wait_for(|| status(ANN_OTHER) == 200, "the new password is valid", String::new);
    assert_eq!(status(ANN), 401);
    service.drain();
    service.join();
}

fn a_reload_adds_and_removes_rules(stand: Stand) {
    let folder = folder();
    let mut service = start(stand, &folder, "");
    let mut client = client(&service);
    let mut status = || client.get("/admin/file").status;
    assert_eq!(status(), 200);
    service.reload(&settings(stand, &folder, RULES)).expect("good settings");
    wait_for(|| status() == 401, "the rule applies", String::new);
    service.reload(&settings(stand, &folder, "[[access]]\n")).expect("good settings");
    wait_for(|| status() == 200, "the rule is gone", String::new);
    service.drain();
    service.join();
}

fn a_reload_with_a_bad_password_file_changes_nothing(stand: Stand) {
    let folder = folder();
    let mut service = start(stand, &folder, RULES);
    folder.replace("users", format!("{OTHER}bob:secret\n"));
    let Err(error) = service.reload(&settings(stand, &folder, RULES)) else { panic!("bob has no hash") };
    let text = error.to_string();
    let place = format!("access, number 1: password file {}:2: ", folder.path().join("users").display());
    assert!(text.starts_with(&place) && text.contains("htpasswd -B"), "{text}");
    assert_eq!(
        (get(&service, "/admin/file", ANN).status, get(&service, "/admin/file", "").status),
        (200, 401)
    );
    service.drain();
    service.join();
    let Err(error) = Service::start(&settings(stand, &folder, RULES)) else { panic!("bob has no hash") };
    assert_eq!(error.to_string(), text);
}

fn a_password_file_is_never_served(stand: Stand) {
    let folder = folder();
    let service = start(stand, &folder, "");
    assert_eq!(get(&service, "/users", "").text(), SECRET, "without a rule it is a file like any other");
    service.drain();
    service.join();
    let service = start(stand, &folder, RULES);
    assert_eq!(get(&service, "/users", "").status, 404);
    service.drain();
    service.join();
}

fn the_log_names_the_user_of_a_request_that_passed(stand: Stand) {
    let folder = folder();
    let service = start(stand, &folder, RULES);
    for fields in ["", ANN_OTHER, ANN] {
        get(&service, "/admin/file", fields);
    }
    service.drain();
    service.join();
    let log = std::fs::read_to_string(folder.path().join("log")).expect("the log");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("/admin/file")).collect();
    let is_of_ann: Vec<bool> = lines.iter().map(|line| line.starts_with("127.0.0.1 - ann [")).collect();
    assert_eq!(is_of_ann, [false, false, true], "{log}");
    assert!(!log.contains("secret") && !log.contains("YW5u"), "{log}");
}

fn a_subscriber_behind_a_password_stays_subscribed(stand: Stand) {
    let folder = folder();
    let service = start(stand, &folder, RULES);
    let mut stream = client(&service);
    stream.send(format!("GET /push/news?as=sse HTTP/1.1\r\nHost: localhost\r\n{ANN}\r\n"));
    assert_eq!(stream.head().status, 200);
    let token = "Authorization: Bearer 0123456789abcdef\r\n";
    assert_eq!(get(&service, "/push/news", token).status, 401, "a token is no password");
    let publish =
        format!("POST /push/news HTTP/1.1\r\nHost: localhost\r\n{ANN}Content-Length: 5\r\n\r\nhello");
    assert_eq!(client(&service).ask(publish).status, 201);
    let mut received = Vec::new();
    while !received.windows(5).any(|part| part == b"hello") {
        received.extend(stream.read_some(1_024));
    }
    service.drain();
    service.join();
}

fn rules_for_channels_that_could_be_evaded_are_contradictions(stand: Stand) {
    let folder = folder();
    for (rule, said) in [
        ("pattern = \"/push/news/**\"\ndeny = [\"::1\"]", "write pattern = \"/push/**\""),
        ("pattern = \"/push/news\"\ndeny = [\"::1\"]", "can be evaded by the path of another channel"),
        ("pattern = \"/push/**\"\nhost = [\"a\"]\ndeny = [\"::1\"]", "omit host in a rule for channels"),
    ] {
        let error = try_settings(stand, &folder, &format!("[[access]]\n{rule}")).expect_err(rule).to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(
        try_settings(stand, &folder, "[push]\nenabled = false\n[[access]]\npattern = \"/push/x\"\n").is_ok()
    );
}
