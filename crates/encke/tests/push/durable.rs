//! Durable messages survive the process: after a stop, after a kill, and with a full disk.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::running::{Folder, Running, encke, text};
use encke_io::host::Signal;
use encke_io::testing::wait_until;
use serde_json::Value;

/// Settings of a server with durable channels below `disk`, and early acknowledgement below `soon`.
struct Place {
    folder: Folder,
    settings: String,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        folder.write("public/index.html", "hello");
        let settings = folder.write(
            "encke.toml",
            "[server]\nstate_dir = \"state\"\n[[site]]\nroot = \"public\"\n\
             [auth]\nanonymous = [\"publish\", \"subscribe\", \"manage\"]\n\
             [push]\nanonymous_rate = \"off\"\n\
             [[push.channel]]\npattern = \"disk/*\"\ndurable = true\nmessages = 100000\nbytes = \"64MiB\"\n\
             [[push.channel]]\npattern = \"soon/*\"\ndurable = true\nack = \"memory\"\n",
        );
        Self { folder, settings }
    }

    fn start(&self) -> Running {
        Running::start(&["-c", &self.settings])
    }
}

/// A response: status, header fields, body.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}{}", self.head, self.body))
    }

    fn id(&self) -> String {
        self.json()["id"].as_str().expect("an id").to_owned()
    }
}

/// Sends a request. Returns `None` if the server ended before its response.
fn try_ask(site: &str, method: &str, path: &str, body: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(site).ok()?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: application/json\r\n\
         Content-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = text(&answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

fn ask(site: &str, method: &str, path: &str, body: &str) -> Answer {
    try_ask(site, method, path, body).expect("answered")
}

/// Publishes a message and returns its id.
fn publish(site: &str, channel: &str, body: &str) -> String {
    let answer = ask(site, "POST", &format!("/push/{channel}"), body);
    assert_eq!(answer.status, 201, "{}{}", answer.head, answer.body);
    answer.id()
}

/// Reads the history of a channel: ids and texts. Panics if a read after `since` reports a gap.
fn history(site: &str, channel: &str, since: &str) -> Vec<(String, String)> {
    let mut since = since.to_owned();
    let mut all = Vec::new();
    loop {
        let answer = ask(site, "GET", &format!("/push/{channel}?since={since}&wait=0"), "");
        assert!(!answer.body.contains("\"gap\""), "a gap after {since}: {}", answer.body);
        if answer.status == 204 {
            return all;
        }
        assert_eq!(answer.status, 200, "{}{}", answer.head, answer.body);
        let told = answer.json();
        let messages = told["messages"].as_array().expect("a list");
        if messages.is_empty() {
            return all;
        }
        for one in messages {
            let part = |name: &str| one[name].as_str().expect("text").to_owned();
            all.push((part("id"), part("data")));
        }
        since = told["next"].as_str().expect("an id").to_owned();
    }
}

/// Whether a read after `since` reports a gap.
fn is_told_of_a_gap(site: &str, channel: &str, since: &str) -> bool {
    ask(site, "GET", &format!("/push/{channel}?since={since}&wait=0"), "").body.contains("\"gap\"")
}

fn epoch(id: &str) -> &str {
    id.split_once('-').expect("EPOCH-OFFSET").0
}

fn offset(id: &str) -> u64 {
    id.split_once('-').expect("EPOCH-OFFSET").1.parse().expect("a number")
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_at_any_moment_and_no_id_comes_again() {
    let place = Place::new("durable-kill");
    let mut known: Vec<(String, String)> = Vec::new();
    for round in 0..4 {
        let mut server = place.start();
        let site = server.site.clone();
        let acknowledged = Mutex::new(Vec::new());
        let (count, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for publisher in 0..4 {
                let (site, acknowledged, count, over) = (&site, &acknowledged, &count, &over);
                scope.spawn(move || {
                    for number in 0.. {
                        let said = format!("{round}.{publisher}.{number}");
                        let Some(answer) = try_ask(site, "POST", "/push/disk/a", &said) else { return };
                        assert_eq!(answer.status, 201, "{}", answer.body);
                        acknowledged.lock().expect("nobody panics").push((answer.id(), said));
                        count.fetch_add(1, Ordering::Relaxed);
                        if over.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
            }
            // The server is killed during publishing, a little later in each round.
            wait_until("enough messages are stored", || count.load(Ordering::Relaxed) >= 20 + 37 * round);
            server.child.kill().expect("it runs");
            over.store(true, Ordering::Relaxed);
        });
        drop(server);
        known.extend(acknowledged.into_inner().expect("nobody panics"));
    }
    let server = place.start();
    let kept = history(&server.site, "disk/a", "all");
    for message in &known {
        assert!(kept.contains(message), "{message:?} was acknowledged and is gone");
    }
    let mut offsets: Vec<u64> = kept.iter().map(|(id, _)| offset(id)).collect();
    assert!(offsets.is_sorted_by(|a, b| a < b), "in order, each once");
    assert!(kept.iter().all(|(id, _)| epoch(id) == epoch(&kept[0].0)), "one stream");
    // A subscriber at the third message resumes there after all restarts.
    assert_eq!(history(&server.site, "disk/a", &kept[2].0), kept[3..]);
    offsets.push(offset(&publish(&server.site, "memory", "x")));
    assert!(offsets.is_sorted_by(|a, b| a < b), "what comes later has a higher id");
    // Messages that were only in memory are reported lost.
    assert!(is_told_of_a_gap(&server.site, "memory", &kept[2].0));
}

#[test]
fn a_planned_restart_keeps_every_ring_and_tells_nobody_of_a_gap() {
    let place = Place::new("durable-planned");
    let server = place.start();
    let mut sent = Vec::new();
    for number in 0..5 {
        for channel in ["memory", "disk/a"] {
            let said = format!("{channel} {number}");
            sent.push((channel, publish(&server.site, channel, &said), said));
        }
    }
    server.signal(Signal::Terminate);
    assert_eq!(server.end().0, Some(0));
    let of = |channel: &str| -> Vec<(String, String)> {
        let mine = sent.iter().filter(|(name, ..)| *name == channel);
        mine.map(|(_, id, said)| (id.clone(), said.clone())).collect()
    };
    for _ in 0..2 {
        let server = place.start();
        for channel in ["memory", "disk/a"] {
            let all = of(channel);
            assert_eq!(history(&server.site, channel, "all"), all);
            assert_eq!(history(&server.site, channel, &all[1].0), all[2..]);
        }
        server.signal(Signal::Terminate);
        assert_eq!(server.end().0, Some(0));
    }
}

#[test]
fn what_is_acknowledged_early_is_a_202_and_a_kill_begins_a_new_epoch() {
    let place = Place::new("durable-early");
    let server = place.start();
    let early = loop {
        // Until the store knows that acknowledgements are early, they are not.
        let answer = ask(&server.site, "POST", "/push/soon/a", "early");
        if answer.status == 202 {
            break answer;
        }
        assert_eq!(answer.status, 201, "{}", answer.body);
    };
    let stored = publish(&server.site, "disk/a", "stored");
    let last = loop {
        let answer = ask(&server.site, "POST", "/push/soon/a", "last");
        if answer.status == 202 {
            break answer.id();
        }
    };
    drop(server);
    let server = place.start();
    let kept = history(&server.site, "disk/a", "all");
    assert_eq!(kept[0].1, "stored");
    assert_ne!(epoch(&kept[0].0), epoch(&last));
    assert!(is_told_of_a_gap(&server.site, "disk/a", &stored), "ids of another epoch mean nothing");
    // The commit of the other channel's message also stored the earlier message.
    let early = offset(&early.id());
    assert!(history(&server.site, "soon/a", "all").iter().any(|(id, _)| offset(id) == early));
}

#[test]
fn a_channel_that_was_forgotten_stays_forgotten_after_a_kill() {
    let place = Place::new("durable-forgotten");
    let server = place.start();
    let before = publish(&server.site, "disk/b", "before");
    let first = publish(&server.site, "disk/a", "one");
    assert_eq!(ask(&server.site, "DELETE", "/push/disk/a", "").status, 204);
    drop(server);
    let server = place.start();
    assert_eq!(history(&server.site, "disk/a", "all"), []);
    assert!(is_told_of_a_gap(&server.site, "disk/a", &before));
    assert!(offset(&publish(&server.site, "disk/a", "two")) > offset(&first));
    assert_eq!(history(&server.site, "disk/b", &before), []);
}

#[test]
fn a_key_is_known_after_a_kill() {
    let place = Place::new("durable-key");
    let said = "{\"channel\":\"disk/a\",\"data\":\"once\",\"key\":\"k1\"}\n";
    let send = |server: &Running| {
        let mut stream = TcpStream::connect(&server.site).expect("it listens");
        let request = format!(
            "POST /push/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n{said}",
            said.len()
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let body = answer.split_once("\r\n\r\n").expect("a head").1.to_owned();
        serde_json::from_str::<Value>(&body).expect("JSON")["id"].as_str().expect("an id").to_owned()
    };
    let server = place.start();
    let first = send(&server);
    drop(server);
    let server = place.start();
    assert_eq!(send(&server), first);
    assert_eq!(history(&server.site, "disk/a", "all").len(), 1);
}

/// Starts a server with its state on a disk of six million bytes, in a mount namespace of its own.
fn start_on_a_small_disk(place: &Place) -> Running {
    let state = place.folder.path("state");
    std::fs::create_dir_all(&state).expect("made");
    let script = format!(
        "mount -t tmpfs -o size=6m tmpfs {state} && exec {} serve -c {} -l 127.0.0.1:0 --admin 127.0.0.1:0",
        env!("CARGO_BIN_EXE_encke"),
        place.settings
    );
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    Running::start_command(command.stdin(Stdio::null()).stdout(Stdio::piped()))
}

#[test]
fn a_delete_works_on_a_disk_that_another_file_fills() {
    let place = Place::new("durable-filled");
    let server = start_on_a_small_disk(&place);
    // The file has just grown, so most of it has no blocks yet.
    for _ in 0..3 {
        publish(&server.site, "disk/a", &"x".repeat(200_000));
    }
    let filler = format!("/proc/{}/root{}", server.child.id(), place.folder.path("state/filler"));
    let mut filler = std::fs::File::create(filler).expect("the server's disk is there");
    for bytes in [65_536, 4_096, 1] {
        while filler.write_all(&vec![0; bytes]).is_ok() {}
    }
    for bytes in [200_000, 50_000, 5_000, 100] {
        let body = "x".repeat(bytes);
        while ask(&server.site, "POST", "/push/disk/a", &body).status == 201 {}
    }
    delete_and_publish(&place, server);
}

#[test]
fn a_full_disk_refuses_what_is_durable_and_nothing_else() {
    let place = Place::new("durable-full");
    let server = start_on_a_small_disk(&place);
    let (mut stored, mut refused) = (Vec::new(), 0);
    let large = "x".repeat(200_000);
    for number in 0..40 {
        let answer = ask(&server.site, "POST", "/push/disk/a", &format!("{number} {large}"));
        match answer.status {
            201 => stored.push(answer.id()),
            507 => {
                assert!(answer.body.contains("no space left"), "{}", answer.body);
                refused += 1;
            }
            other => panic!("{other}: {}", answer.body),
        }
        publish(&server.site, "memory", "goes on");
    }
    assert!(!stored.is_empty() && refused > 10, "{} stored, {refused} refused", stored.len());
    let kept = history(&server.site, "disk/a", "all");
    assert_eq!(kept.iter().map(|(id, _)| id).collect::<Vec<_>>(), stored.iter().collect::<Vec<_>>());
    // After space becomes available, it is used.
    delete_and_publish(&place, server);
}

/// Deletes a channel to free space, and restarts the server.
fn delete_and_publish(place: &Place, mut server: Running) {
    let deleted = ask(&server.site, "DELETE", "/push/disk/a", "");
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    assert_eq!(history(&server.site, "disk/a", "all"), []);
    let again = (publish(&server.site, "disk/a", "again"), "again".to_owned());
    let end = server.kill();
    assert_eq!(end.code(), None, "it was killed, and not before");
    if std::path::Path::new(&place.folder.path("state/push.redb")).exists() {
        let server = place.start();
        assert_eq!(history(&server.site, "disk/a", "all"), [again]);
    }
}

/// Starts a server with a limit on file sizes (RLIMIT_FSIZE).
fn start_limited(place: &Place, bytes: u64) -> Running {
    let mut command = std::process::Command::new("prlimit");
    command.arg(format!("--fsize={bytes}")).arg(env!("CARGO_BIN_EXE_encke"));
    command.args(["serve", "-c", &place.settings, "-l", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    Running::start_command(command.stdin(Stdio::null()).stdout(Stdio::piped()))
}

#[test]
fn a_store_at_the_file_size_limit_is_full_until_something_is_deleted() {
    let place = Place::new("durable-limit");
    let server = start_limited(&place, 5_000_000);
    let mut stored = 0;
    // After large messages fail, small ones may still fit.
    for bytes in [100_000, 1_000] {
        let message = "x".repeat(bytes);
        loop {
            let answer = ask(&server.site, "POST", "/push/disk/a", &message);
            match answer.status {
                201 => stored += 1,
                507 => break,
                other => panic!("{other}: {}", answer.body),
            }
        }
    }
    assert!(stored > 10, "{stored}");
    assert_eq!(history(&server.site, "disk/a", "all").len(), stored);
    delete_and_publish(&place, server);
}

#[test]
fn a_log_at_the_file_size_limit_drops_lines_and_recovers() {
    let place = Place::new("durable-log");
    let settings = std::fs::read_to_string(&place.settings).expect("written above");
    place.folder.write("encke.toml", &format!("{settings}[log]\naccess = \"access.log\"\n"));
    // A new store has three million bytes.
    let mut server = start_limited(&place, 5_000_000);
    let log = place.folder.path("access.log");
    let file = std::fs::File::options().append(true).open(&log).expect("the server has made it");
    file.set_len(4_999_990).expect("it may grow so far");
    assert!(server.get("/").starts_with("HTTP/1.1 200 "));
    server.error_with("cannot write access log");
    assert_eq!(std::fs::metadata(&log).expect("there").len(), 5_000_000);
    file.set_len(0).expect("it may shrink");
    assert!(server.get("/again").starts_with("HTTP/1.1 404 "));
    server.error_with("works again; 1 lines were lost");
    assert!(std::fs::read_to_string(&log).expect("there").contains("GET /again"));
}

#[test]
fn a_store_file_that_is_gone_rejects_publishes_and_deletes() {
    let place = Place::new("durable-gone");
    let mut server = place.start();
    let kept = vec![(publish(&server.site, "disk/a", "kept"), "kept".to_owned())];
    let [file, away, folder] = ["state/push.redb", "away", "state"].map(|name| place.folder.path(name));
    for gone in [&file, &folder] {
        publish(&server.site, "disk/c", "to be deleted");
        std::fs::rename(gone, &away).expect("moved");
        let answer = ask(&server.site, "POST", "/push/disk/a", "lost");
        assert_eq!(answer.status, 503, "{}", answer.body);
        let said = server.error_with("was deleted, moved or replaced");
        assert!(said.contains("push.redb") && said.contains("put it back"), "{said}");
        let deleted = ask(&server.site, "DELETE", "/push/disk/c", "");
        assert_eq!(deleted.status, 503, "{}", deleted.body);
        assert!(deleted.body.contains("the server repeats it"), "{}", deleted.body);
        assert_eq!(history(&server.site, "disk/c", "all").len(), 1);
        publish(&server.site, "memory", "goes on");
        // Another file at the same path is not used as the store.
        if gone == &file {
            std::fs::write(&file, "something else").expect("written");
            assert_eq!(ask(&server.site, "POST", "/push/disk/b", "lost").status, 503);
        }
        std::fs::rename(&away, gone).expect("moved back");
        publish(&server.site, "disk/b", "stored");
        server.error_with("accept messages again");
        assert_eq!(history(&server.site, "disk/c", "all"), []);
    }
    server.kill();
    assert_eq!(history(&place.start().site, "disk/a", "all"), kept);
}

#[test]
fn a_damaged_store_ends_the_start_with_a_remedy() {
    let place = Place::new("durable-damaged");
    let server = place.start();
    publish(&server.site, "disk/a", "kept");
    server.signal(Signal::Terminate);
    assert_eq!(server.end().0, Some(0));
    let file = place.folder.path("state/push.redb");
    let whole = std::fs::read(&file).expect("there");
    let flipped = || {
        let mut bytes = whole.clone();
        bytes[4096..].iter_mut().filter(|byte| **byte != 0).for_each(|byte| *byte ^= 0x55);
        bytes
    };
    for damaged in [Vec::new(), vec![0; 5_000], whole[..whole.len() / 2].to_vec(), flipped()] {
        std::fs::write(&file, damaged).expect("written");
        let output = encke()
            .args(["serve", "-c", &place.settings, "-l", "127.0.0.1:0", "--admin", "off"])
            .output()
            .expect("it starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("push.redb is damaged (") && said.contains("move it away"), "{said}");
        assert!(!said.contains("thread '"), "{said}");
    }
    std::fs::write(&file, whole).expect("written");
    assert_eq!(history(&place.start().site, "disk/a", "all")[0].1, "kept");
}

#[test]
fn the_store_is_measured() {
    let place = Place::new("durable-figures");
    let server = place.start();
    publish(&server.site, "disk/a", "one");
    publish(&server.site, "disk/a", "two");
    let (address, token) = server.admin.split_once("/api/v1/status").expect("a token in the URL");
    let figures = ask(address.trim_start_matches("http://"), "GET", &format!("/metrics{token}"), "").body;
    let value = |name: &str| -> f64 {
        let line = figures.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}: {figures}")).parse().expect("a number")
    };
    let stored = value("encke_push_commits_total{outcome=\"stored\"}");
    assert!(stored >= 2.0, "{stored}");
    assert_eq!(value("encke_push_commits_total{outcome=\"failed\"}"), 0.0);
    assert_eq!(value("encke_push_commit_seconds_count"), stored);
    assert_eq!(
        value("encke_push_store_bytes"),
        std::fs::metadata(place.folder.path("state/push.redb")).expect("it is there").len() as f64
    );
    let output = encke().args(["status", &server.admin]).output().expect("it starts");
    assert!(text(&output.stdout).contains("store        "), "{}", text(&output.stdout));
}

#[test]
fn a_folder_of_state_that_cannot_be_used_is_an_error_that_names_it() {
    let place = Place::new("durable-errors");
    let server = place.start();
    let second = || {
        let output = encke()
            .args(["serve", "-c", &place.settings, "-l", "127.0.0.1:0", "--admin", "off"])
            .output()
            .expect("it starts");
        (output.status.code(), text(&output.stderr))
    };
    let (status, said) = second();
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("push.redb is in use by another process") && said.contains("state_dir"), "{said}");
    let kept = publish(&server.site, "disk/a", "still here");
    server.signal(Signal::Terminate);
    server.end();
    place.folder.write("state/format", "7\n");
    let (status, said) = second();
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("has format \"7\""), "{said}");
    place.folder.write("state/format", "1\n");
    assert_eq!(history(&place.start().site, "disk/a", "all")[0].0, kept);

    let alone = place.folder.write("alone.toml", "[[push.channel]]\npattern = \"a\"\ndurable = true\n");
    let output = encke().args(["check", &alone]).output().expect("it starts");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("server.state_dir") && said.contains("alone.toml:3"), "{said}");
}
