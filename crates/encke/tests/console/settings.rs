//! The settings of the console: read, check, edit, conflicts, versions, reloads, over HTTP with the program itself.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::running::{Folder, Running, encke};
use encke_io::host::Signal;
use encke_io::testing::wait_until;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A response of the API.
struct Answer {
    status: u16,
    etag: String,
    body: Value,
}

impl Answer {
    #[track_caller]
    fn with(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }
}

/// A server with a settings file that the console may edit.
struct Console {
    server: Running,
    folder: Folder,
    admin: String,
}

/// The settings file of the tests. `console` are the lines of its section.
fn file(console: &str) -> String {
    format!(
        "# Of the test.\n[server]\nbacklog = 512 # queue\nadmin = {{ address = \"127.0.0.1:0\", token = \"{TOKEN}\" }}\n\
         state_dir = \"state\"\n\n[log]\naccess = \"off\"\n\n[[site]]\nroot = \"public\"\n\n[console]\n{console}\n"
    )
}

impl Console {
    fn start(name: &str, console: &str) -> Self {
        let folder = Folder::new(name);
        folder.write("public/index.html", "hello");
        let path = folder.write("encke.toml", &file(console));
        Self::serve(folder, &["-c", &path])
    }

    fn serve(folder: Folder, arguments: &[&str]) -> Self {
        let mut command = encke();
        command.args(["serve", "-l", "127.0.0.1:0", "-w", "2"]).args(arguments);
        Self::of(Running::start_command(&mut command), folder)
    }

    fn of(mut server: Running, folder: Folder) -> Self {
        let (_, rest) = server.admin.split_once("://").expect("a URL");
        let admin = rest.split('/').next().expect("an address").to_owned();
        // Each reload is reported. Nothing else may wait for a reader of the pipe.
        let mut errors = server.take_errors().expect("not taken");
        thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Self { server, folder, admin }
    }

    fn ask(&self, method: &str, path: &str, etag: Option<&str>, body: Option<&Value>) -> Answer {
        ask(&self.admin, TOKEN, method, path, etag, body)
    }

    fn read(&self, path: &str) -> Answer {
        self.ask("GET", path, None, None)
    }

    fn put(&self, etag: &str, text: &str) -> Answer {
        self.ask("PUT", "/file", Some(etag), Some(&json!({ "text": text })))
    }

    /// The entity tag of the file.
    fn etag(&self) -> String {
        self.read("/file").with(200).etag
    }

    fn text(&self) -> String {
        self.folder.read("encke.toml")
    }
}

/// Sends a request of the settings API.
fn ask(
    admin: &str,
    token: &str,
    method: &str,
    path: &str,
    etag: Option<&str>,
    body: Option<&Value>,
) -> Answer {
    let body = body.map(Value::to_string).unwrap_or_default();
    let if_match = etag.map(|etag| format!("If-Match: {etag}\r\n")).unwrap_or_default();
    let mut stream = TcpStream::connect(admin).expect("it listens");
    let request = format!(
        "{method} /api/v1/settings{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{if_match}\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let etag = head.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap_or_default().to_owned();
    let body = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    Answer { status, etag, body }
}

#[test]
fn a_form_changes_one_value_and_keeps_the_rest_of_the_file() {
    let console = Console::start("set-form", "edit = true");
    let before = console.text();
    let overview = console.read("").with(200).body;
    assert_eq!((&overview["edit"], &overview["edit_reason"]), (&json!(true), &Value::Null));
    assert_eq!(overview["file_differs"], false);
    let changes = json!({ "changes": [
        { "path": ["server", "backlog"], "value": 1024 },
        { "path": ["limits", "idle_time"], "value": "31s" },
    ] });
    let changed = console.ask("PATCH", "", Some(&console.etag()), Some(&changes)).with(200);
    assert_eq!(changed.etag, console.etag());
    let notes = changed.body["notes"].to_string();
    assert!(notes.contains("server.backlog has changed"), "{notes}");
    let expected = format!("{}\n[limits]\nidle_time = \"31s\"\n", before.replace("512 #", "1024 #"));
    assert_eq!(console.text(), expected);
    let overview = console.read("").with(200).body;
    assert_eq!(overview["running"]["limits"]["idle_time"], "31s");
    assert_eq!(overview["waiting_for_start"], json!(["server.backlog"]));
    assert_eq!(overview["overridden"][0], json!({ "key": "server.listen", "by": "--listen" }));
    assert!(overview["set"].to_string().contains("\"limits.idle_time\""), "{}", overview["set"]);
    let wrong = json!({ "changes": [{ "path": ["limits", "idle_time"], "value": "31" }] });
    let wrong = console.ask("PATCH", "", Some(&console.etag()), Some(&wrong)).with(422).body;
    assert_eq!(wrong["problems"][0]["key"], "limits.idle_time");
    assert_eq!(console.text(), expected, "the file is unchanged");
}

#[test]
fn errors_have_their_place_and_leave_the_file_unchanged() {
    let console = Console::start("set-errors", "edit = true");
    let before = console.text();
    let text =
        before.replace("backlog = 512", "backlogg = 512").replace("root = \"public\"", "root = \"nowhere\"");
    let found = console.ask("POST", "/check", None, Some(&json!({ "text": text }))).with(200).body;
    let first = &found["problems"][0];
    assert_eq!((&first["line"], &first["column"], &first["end_column"]), (&json!(3), &json!(1), &json!(9)));
    assert_eq!((&first["key"], &first["level"]), (&json!("server.backlogg"), &json!("error")));
    assert!(first["hint"].to_string().contains("`backlog`"), "{first}");
    assert_eq!(found["difference"].as_array().map(Vec::len), Some(before.lines().count() + 2));
    // A directory that is missing is an error of the check, too.
    let missing = before.replace("root = \"public\"", "root = \"nowhere\"");
    let found = console.ask("POST", "/check", None, Some(&json!({ "text": missing }))).with(200).body;
    assert_eq!(
        (&found["problems"][0]["line"], &found["problems"][0]["level"]),
        (&json!(11), &json!("error"))
    );
    let rejected = console.put(&console.etag(), &missing).with(422).body;
    assert!(rejected["problems"][0]["message"].to_string().contains("nowhere"), "{rejected}");
    console.put(&console.etag(), "not toml").with(422);
    assert_eq!(console.text(), before);
    assert_eq!(console.read("/history").with(200).body["versions"], json!([]), "nothing was stored");
}

#[test]
fn a_failed_reload_restores_the_file_itself() {
    let console = Console::start("set-restore", "edit = true");
    let before = console.text();
    let path = console.folder.path("encke.toml");
    let id = encke_io::files::id_of(path.as_ref());
    // An address that another socket has passes the check, but not the reload. The flag must not override it.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listen = taken.local_addr().expect("bound");
    drop(console.server);
    let mut command = encke();
    command.args(["serve", "-w", "2", "-c", &path]);
    fs::write(&path, before.replace("[log]", "listen = \"127.0.0.1:0\"\n[log]")).expect("written");
    let console = Console::of(Running::start_command(&mut command), console.folder);
    let before = console.text();
    let text = before.replace("listen = \"127.0.0.1:0\"", &format!("listen = \"{listen}\""));
    let rejected = console.put(&console.etag(), &text).with(409).body;
    let detail = rejected["detail"].to_string();
    assert!(detail.contains(&listen.to_string()) && detail.contains("unchanged"), "{detail}");
    assert_eq!((console.text(), encke_io::files::id_of(path.as_ref())), (before, id));
    let versions = console.read("/history").with(200).body["versions"].clone();
    assert_eq!(versions.as_array().map(Vec::len), Some(1), "{versions}");
    assert!(console.server.get("/").ends_with("hello"));
}

#[test]
fn versions_are_kept_and_restored_and_other_programs_are_noticed() {
    let console = Console::start("set-history", "edit = true\nhistory = 3");
    let first = console.text();
    let text = |number: u32| first.replace("512", &number.to_string());
    for number in 600..603 {
        console.put(&console.etag(), &text(number)).with(200);
    }
    let versions = console.read("/history").with(200).body["versions"].clone();
    let numbers: Vec<_> =
        versions.as_array().expect("a list").iter().map(|one| one["number"].clone()).collect();
    assert_eq!(numbers, [4, 3, 2]);
    assert_eq!((&versions[0]["current"], &versions[0]["user"]), (&json!(true), &json!("token")));
    assert_eq!(versions[0]["summary"], "1 line changed");
    console.ask("POST", "/history/2/restore", Some(&console.etag()), None).with(200);
    assert_eq!(console.text(), text(600));
    console.ask("POST", "/history/99/restore", Some(&console.etag()), None).with(404);
    let version = console.read("/history/4").with(200).body;
    assert_eq!(version["text"], text(602));
    // Another program.
    let etag = console.etag();
    console.folder.write("encke.toml", &text(700));
    let overview = console.read("").with(200).body;
    assert_eq!(overview["file_differs"], true);
    assert!(
        overview["difference"]
            .to_string()
            .contains("{\"kind\":\"added\",\"text\":\"backlog = 700 # queue\"}")
    );
    let conflict = console.put(&etag, &text(603)).with(412).body;
    assert_eq!((&conflict["user"], &conflict["etag"]), (&Value::Null, &overview["etag"]));
    console.put(&console.etag(), &text(603)).with(200);
    let versions = console.read("/history").with(200).body["versions"].clone();
    let kept: Vec<Value> = versions
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| console.read(&format!("/history/{}", one["number"])).with(200).body["text"].clone())
        .collect();
    assert_eq!(kept, [text(603), text(700), text(600)].map(Value::from), "{versions}");
}

#[test]
fn preconditions_parameters_and_bodies_are_checked() {
    let console = Console::start("set-wrong", "edit = true");
    let text = json!({ "text": console.text() });
    console.ask("PUT", "/file", None, Some(&text)).with(428);
    console.ask("PUT", "/file", Some("\"other\""), Some(&text)).with(412);
    console.ask("PUT", "/file", Some("*"), Some(&text)).with(200);
    console.ask("PUT", "/file", Some("*"), Some(&json!({ "txt": "" }))).with(400);
    console.read("?x=1").with(400);
    console.read("/history/x").with(404);
    console.read("/nothing").with(404);
    let large = json!({ "text": "#".repeat((1 << 20) + 1) });
    console.ask("POST", "/check", None, Some(&large)).with(413);
    let completion = json!({ "text": "[server]\nbackl", "offset": 14 });
    let completion = console.ask("POST", "/complete", None, Some(&completion)).with(200).body;
    assert_eq!((&completion["start"], &completion["items"][0]["insert"]), (&json!(9), &json!("backlog = ")));
    assert!(completion["items"][0]["help"].to_string().contains("listen(2)"), "{completion}");
    assert_eq!(ask(&console.admin, "wrong", "GET", "", None, None).status, 401);
}

#[test]
fn secrets_are_masked_and_reasons_against_editing_come_first() {
    let console = Console::start("set-masked", "edit = false");
    let overview = console.read("").with(200).body;
    assert!(!overview.to_string().contains(TOKEN), "{overview}");
    assert!(
        overview["running"]["server"]["admin"].to_string().contains("•••"),
        "{}",
        overview["running"]["server"]
    );
    assert!(overview["edit_reason"].to_string().contains("edit = true"), "{}", overview["edit_reason"]);
    let text = json!({ "text": console.text() });
    let refused = console.ask("PUT", "/file", Some("*"), Some(&text)).with(409).body;
    assert_eq!(refused["detail"], overview["edit_reason"]);
    // Without the right to edit, a check reads no other files.
    let missing = json!({ "text": console.text().replace("root = \"public\"", "root = \"nowhere\"") });
    let found = console.ask("POST", "/check", None, Some(&missing)).with(200).body;
    assert_eq!(found["problems"], json!([]));
    console.folder.write("encke.toml", &file("edit = true"));
    console.ask("POST", "/reload", None, None).with(200);
    assert_eq!(console.read("").with(200).body["edit"], true);
    let path = console.folder.path("encke.toml");
    let mut permissions = fs::metadata(&path).expect("there").permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).expect("own file");
    let reason = console.read("").with(200).body["edit_reason"].to_string();
    assert!(reason.contains("is read-only") && reason.contains("chmod u+w"), "{reason}");
    console.ask("PUT", "/file", Some("*"), Some(&text)).with(409);
}

#[test]
fn errors_in_included_files_name_their_file() {
    let folder = Folder::new("set-include");
    folder.write("public/index.html", "hello");
    folder.write("sites/a.toml", "[[site]]\nhost = [\"a\"]\nroot = \"public\"\n");
    let path = folder.write("encke.toml", &format!("include = \"sites/*.toml\"\n{}", file("edit = true")));
    let console = Console::serve(folder, &["-c", &path]);
    let overview = console.read("").with(200).body;
    assert_eq!(overview["included"], json!([console.folder.path("sites/a.toml")]));
    assert_eq!(overview["file_differs"], false);
    console.folder.write("sites/a.toml", "[[site]]\nhost = [\"b\"]\nroot = \"public\"\n");
    assert_eq!(console.read("").with(200).body["file_differs"], true, "an included file has changed");
    console.folder.write("sites/a.toml", "[[site]]\nhots = [\"b\"]\n");
    let reload = console.ask("POST", "/reload", None, None).with(422).body;
    let problem = &reload["problems"][0];
    assert!(problem["file"].to_string().ends_with("sites/a.toml\""), "{problem}");
    assert_eq!((&problem["line"], &problem["key"]), (&json!(2), &json!("site.0.hots")));
}

/// A settings file that is in the root of a site, and a user with the role view.
fn public_file(console: &str) -> String {
    file(console).replace("root = \"public\"", "root = \".\"\nhidden = true\nlist = true")
}

#[test]
fn the_file_is_never_public_while_it_is_replaced() {
    let folder = Folder::new("set-public");
    folder.write("page.txt", "hello");
    let path = folder.write("encke.toml", &public_file("edit = true"));
    let console = Console::serve(folder, &["-c", &path]);
    let names = ["encke.toml", ".encke.toml.encke-new", ".encke.toml.encke-old", "state/"];
    let (over, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let clients: Vec<_> = names
            .iter()
            .map(|name| {
                let (console, over, requests) = (&console, &over, &requests);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let answer = console.server.get(&format!("/{name}"));
                        assert!(answer.starts_with("HTTP/1.1 404 "), "{name}: {answer}");
                        requests.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let first = console.text();
        for change in 0..10 {
            let seen = requests.load(Ordering::Relaxed);
            console.put(&console.etag(), &format!("{first}# change {change}\n")).with(200);
            // An editor that saves by a rename, before any reload.
            let saved = console.folder.write("saved.txt", &format!("{first}# saved {change}\n"));
            fs::rename(saved, &path).expect("renamed");
            wait_until("eight more requests are answered", || {
                requests.load(Ordering::Relaxed) >= seen + 8
                    || clients.iter().any(thread::ScopedJoinHandle::is_finished)
            });
        }
        over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("the file is never served");
        }
    });
    assert!(console.server.get("/page.txt").ends_with("hello"));
}

/// Requests a resource of the API with the cookie or token of a user.
fn get(admin: &str, path: &str, authorization: &str) -> String {
    let mut stream = TcpStream::connect(admin).expect("it listens");
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    answer
}

/// Logs a user in. Returns the header line of its cookie.
fn log_in(admin: &str, user: &str, password: &str) -> String {
    let body = json!({ "user": user, "password": password }).to_string();
    let mut stream = TcpStream::connect(admin).expect("it listens");
    let request = format!(
        "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let cookie = answer.lines().find_map(|line| line.strip_prefix("Set-Cookie: "));
    let cookie = cookie.and_then(|cookie| cookie.split(';').next()).unwrap_or_else(|| panic!("{answer}"));
    format!("Cookie: {cookie}")
}

#[test]
fn a_rejected_file_shows_no_secret_to_users_that_may_not_see_it() {
    const MARKER: &str = "m4rk3r";
    // `openssl passwd -6 -salt saltsalt secret`
    const HASH: &str =
        "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1";
    let user =
        format!("edit = true\n[[console.user]]\nname = \"viewer\"\npassword = '{HASH}'\nrole = \"view\"\n");
    let console = Console::start("set-view", &user);
    let first = console.text();
    let cookie = log_in(&console.admin, "viewer", "secret");
    // Errors whose lines, keys and values have secrets.
    for wrong in [
        format!("[cluster]\ntoken = {{ {MARKER} = \"{MARKER}\" }}\n"),
        format!("[cluster]\ntoken = [\"{MARKER}\"]\n"),
        format!("[cluster]\ntokn = \"{MARKER}\"\n"),
        format!("[[upstream]]\nname = \"a\"\nto = \"nats://u:{MARKER}@h\"\n"),
        format!("[cluster]\ntoken = \"{MARKER}\" {MARKER}\n"),
        format!("[[console.user]]\nname = \"ann\"\npassword = \"{MARKER}\"\n"),
        format!("[[live.channel]]\npull = [{{ url = \"http://a/\", tokn = \"{MARKER}\" }}]\n"),
        format!("[[live.channel]]\npull = {{ url = \"ftp://a/\", token = \"{MARKER}\" }}\n"),
        format!("[limits]\nidle_time = \"{MARKER}\"\nfields = \"{MARKER}\"\n"),
    ] {
        console.folder.write("encke.toml", &format!("{first}{wrong}"));
        let rejected =
            || get(&console.admin, "/api/v1/notices", &cookie).matches("keeping the old ones").count();
        let before = rejected();
        console.server.signal(Signal::HangUp);
        wait_until(&format!("{wrong:?} is rejected"), || rejected() > before);
        for path in ["/api/v1/notices", "/api/v1/overview", "/api/v1/settings", "/api/v1/settings/history"] {
            let answer = get(&console.admin, path, &cookie);
            assert!(!answer.contains(MARKER), "{wrong}{path}: {answer}");
        }
        let settings = get(&console.admin, "/api/v1/settings", &cookie);
        assert!(settings.contains("users with the role admin see the message"), "{settings}");
        let settings = get(&console.admin, "/api/v1/settings", &format!("Authorization: Bearer {TOKEN}"));
        assert!(!settings.contains("users with the role admin see"), "{settings}");
        let notices = get(&console.admin, "/api/v1/notices", &cookie);
        assert!(notices.contains("encke.toml:"), "{notices}");
    }
}

/// The open descriptors of a process.
fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Watches of replaced sites that may still be open, however many reloads there were. A leak would be one for each of them.
const REPLACED_WATCHES: usize = 8;

/// The targets of the open descriptors of a process.
fn descriptor_targets(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string())).collect()
}

/// The resident memory of a process in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

#[test]
fn two_writers_under_load_lose_no_request_and_no_version() {
    const WRITERS: usize = 2;
    const CHANGES: usize = 100;
    let console = Console::start("set-storm", "edit = true\nhistory = 1000");
    let pid = console.server.child.id();
    let first = console.text();
    // The descriptors and the memory of a server that has reloaded a few times.
    for _ in 0..5 {
        console.ask("POST", "/reload", None, None).with(200);
    }
    let (descriptors_before, memory_before) = (descriptors(pid), resident_kib(pid));
    let (over, requests, conflicts) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let (site, admin) = (&console.server.site, &console.admin);
    thread::scope(|scope| {
        // Requests on kept connections, through all reloads.
        for _ in 0..2 {
            scope.spawn(|| {
                let mut stream = TcpStream::connect(site).expect("it listens");
                let mut answer = [0; 4096];
                while !over.load(Ordering::Relaxed) {
                    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
                    let mut read = 0;
                    while !answer[..read].ends_with(b"hello") {
                        let count = stream.read(&mut answer[read..]).expect("answered");
                        assert!(count > 0, "closed: {:?}", String::from_utf8_lossy(&answer[..read]));
                        read += count;
                    }
                    assert!(
                        answer.starts_with(b"HTTP/1.1 200 "),
                        "{:?}",
                        String::from_utf8_lossy(&answer[..read])
                    );
                    requests.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // An operator who reloads, too.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                console.server.signal(Signal::HangUp);
                thread::park_timeout(std::time::Duration::from_millis(5));
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (first, conflicts) = (&first, &conflicts);
                scope.spawn(move || {
                    for change in 0..CHANGES {
                        loop {
                            let etag = ask(admin, TOKEN, "GET", "/file", None, None).with(200).etag;
                            let text = format!("{first}# writer {writer}, change {change}\n");
                            let body = json!({ "text": text });
                            let answer = ask(admin, TOKEN, "PUT", "/file", Some(&etag), Some(&body));
                            match answer.status {
                                200 => break,
                                412 => conflicts.fetch_add(1, Ordering::Relaxed),
                                _ => panic!("{}", answer.body),
                            };
                        }
                    }
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        for writer in ended {
            writer.expect("no writer failed");
        }
    });
    // A writer with an old version of the file gets an error.
    let etag = console.etag();
    console.put(&etag, &format!("{first}# one\n")).with(200);
    console.put(&etag, &format!("{first}# other\n")).with(412);
    let versions = console.read("/history").with(200).body["versions"].clone();
    let versions = versions.as_array().expect("a list");
    assert_eq!(versions.len(), WRITERS * CHANGES + 2, "the first version, each change, and the last one");
    let mut texts: Vec<String> = versions
        .iter()
        .map(|one| console.read(&format!("/history/{}", one["number"])).with(200).body["text"].to_string())
        .collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), versions.len(), "each change is there once");
    assert!(requests.load(Ordering::Relaxed) > 0);
    // The server may not have closed the last connections of the test yet.
    wait_until("the last connections are closed", || {
        // An idle worker frees the replaced settings in its next turn.
        assert!(console.server.get("/").contains("200 OK"));
        descriptors(pid) <= descriptors_before + REPLACED_WATCHES
    });
    eprintln!(
        "{} requests during the changes, {} conflicts, {} -> {} descriptors, {} -> {} KiB",
        requests.load(Ordering::Relaxed),
        conflicts.load(Ordering::Relaxed),
        descriptors_before,
        descriptors(pid),
        memory_before,
        resident_kib(pid)
    );
    let allowed = descriptors_before + REPLACED_WATCHES;
    assert!(descriptors(pid) <= allowed, "{descriptors_before} -> {:?}", descriptor_targets(pid));
    assert!(resident_kib(pid) < memory_before + 16 * 1024, "{memory_before} -> {} KiB", resident_kib(pid));
}
