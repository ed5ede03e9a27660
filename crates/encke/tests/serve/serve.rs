//! `encke serve` from start to exit: its output, signals and exit status.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use crate::running::{Folder, Running, encke, is_container, text};
use encke_io::host::Signal;
use encke_io::testing::wait_until;

fn site(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("public/index.html", "hello");
    folder
}

#[test]
fn it_greets_serves_logs_and_stops() {
    let folder = site("serve");
    let mut server = Running::start(&[&folder.path("public")]);
    assert!(server.greeting.contains(&folder.path("public")), "{}", server.greeting);
    assert!(server.greeting.contains("2 workers, up to "), "{}", server.greeting);
    let answer = server.get("/");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{answer}");
    let line = server.line();
    assert!(
        line.starts_with("127.0.0.1 - - [") && line.contains("] \"GET / HTTP/1.1\" 200 5 \"-\""),
        "{line}"
    );
    server.signal(Signal::Terminate);
    assert_eq!(server.end(), (Some(0), String::new()));
}

#[test]
fn open_channels_in_a_container_or_unit_print_a_warning() {
    let folder = site("enclosure");
    let settings = folder.write("encke.toml", "[auth]\nanonymous = [\"subscribe\"]\n");
    let errors = |name: &str, value: &str, arguments: &[&str]| {
        let mut command = encke();
        command.args(["serve", "-l", "127.0.0.1:0", "--admin", "127.0.0.1:0", "-w", "2"]).args(arguments);
        let server = Running::start_command(command.arg(folder.path("public")).env(name, value));
        server.signal(Signal::Terminate);
        server.end_with_all().1
    };
    for (name, value, place) in [
        ("container", "podman", "a container"),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1", "a container"),
        ("INVOCATION_ID", "0123456789abcdef0123456789abcdef", "a systemd unit"),
        ("JOURNAL_STREAM", "8:12345", "a systemd unit"),
    ] {
        let said = errors(name, value, &[]);
        let place = if is_container() { "a container" } else { place };
        assert!(said.contains(&format!("this server runs in {place}: a reverse proxy")), "{name}: {said}");
        for closed in [&["--open"][..], &["-c", &settings], &["-l", ":0"]] {
            let said = errors(name, value, closed);
            assert!(!said.contains("a reverse proxy"), "{closed:?}: {said}");
        }
    }
}

#[test]
fn it_ends_with_130_after_an_interrupt() {
    let folder = site("interrupt");
    let server = Running::start(&[&folder.path("public")]);
    server.signal(Signal::Interrupt);
    assert_eq!(server.end().0, Some(130));
}

#[test]
fn a_second_signal_ends_it_while_a_request_is_open() {
    let folder = site("second");
    let pid = folder.path("pid");
    let file = folder.write(
        "encke.toml",
        &format!("[server]\npid_file = \"{pid}\"\ndrain_time = \"10m\"\n[limits]\nhead_time = \"10m\"\n"),
    );
    let server = Running::start(&["-c", &file, &folder.path("public")]);
    assert_eq!(folder.read("pid"), format!("{}\n", server.child.id()));
    let mut open = TcpStream::connect(&server.site).expect("it listens");
    open.write_all(b"GET / HTTP/1.1\r\n").expect("sent");
    // A response on a later connection shows that the worker has received the head.
    server.get("/");
    server.signal(Signal::Interrupt);
    server.signal(Signal::Interrupt);
    // Both signals may have been merged before the first was handled; then another is needed.
    let mut server = server;
    wait_until("the server has exited", || {
        let ended = server.child.try_wait().expect("a child").is_some();
        if !ended {
            server.signal(Signal::Interrupt);
        }
        ended
    });
    assert_eq!(server.end().0, Some(130));
    assert!(!fs::exists(&pid).expect("readable"), "the pid file is still there");
    let mut rest = Vec::new();
    let _reset_or_end = open.read_to_end(&mut rest);
}

#[test]
fn good_settings_are_taken_at_hup_and_bad_ones_refused_whole() {
    let folder = site("reload");
    folder.write("other/index.html", "other");
    let settings = |root: &str, rest: &str| {
        folder.write("encke.toml", &format!("[[site]]\nroot = \"{root}\"\n{rest}"));
    };
    settings("public", "");
    let mut server = Running::start(&["-c", &folder.path("encke.toml")]);
    assert!(server.get("/").ends_with("hello"));

    settings("other", "lst = true\n");
    server.signal(Signal::HangUp);
    // Each line has the form of a log line, and the file's text follows its header.
    let header = server.error_with("keeping the old ones:");
    assert!(header.contains("error: invalid settings in ") && header.contains("encke.toml"), "{header}");
    for text in ["unknown key `lst`", "did you mean `list`?"] {
        let line = server.error_with(text);
        assert!(line.starts_with("20") && line.contains("Z error: "), "{line}");
        assert!(!line.contains("error: error:"), "{line}");
    }
    assert!(server.get("/").ends_with("hello"), "the old settings did not stay");

    settings("nowhere", "");
    server.signal(Signal::HangUp);
    server.error_with("keeping the old ones");
    assert!(server.get("/").ends_with("hello"), "the old settings did not stay");

    settings("other", "[server]\nworkers = 7\n");
    server.signal(Signal::HangUp);
    server.error_with("settings reloaded");
    // -w is a flag, and flags have priority: nothing waits for a restart.
    let mut answer = server.get("/");
    while !answer.ends_with("other") {
        // A worker applies new settings once it receives its message: one more response may have the old ones.
        assert!(answer.ends_with("hello"), "{answer}");
        answer = server.get("/");
    }
}

#[test]
fn included_files_are_checked_served_and_reloaded() {
    let folder = site("include");
    folder.write("other/index.html", "other");
    let file = folder.write("encke.toml", "include = \"sites/*.toml\"\n");
    let check = || encke().args(["check", &file]).output().expect("the program starts");
    let checked = check();
    assert_eq!(checked.status.code(), Some(0));
    assert!(text(&checked.stderr).contains("warning: ") && text(&checked.stderr).contains("matches no file"));

    folder.write("sites/one.toml", "[[site]]\nroot = \"public\"\n");
    let checked = check();
    assert_eq!((checked.status.code(), text(&checked.stderr).as_str()), (Some(0), ""));
    assert!(text(&checked.stdout).contains("include 1 file\n"), "{}", text(&checked.stdout));

    let mut server = Running::start(&["-c", &file]);
    assert!(server.get("/").ends_with("hello"));
    folder.write("sites/one.toml", "[[site]]\nroot = \"other\"\nlst = true\n");
    server.signal(Signal::HangUp);
    server.error_with("keeping the old ones");
    server.error_with("sites/one.toml:3:1");
    assert!(server.get("/").ends_with("hello"), "the old settings did not stay");
    let checked = check();
    assert_eq!(checked.status.code(), Some(1));
    assert!(text(&checked.stderr).contains("sites/one.toml:3:1"), "{}", text(&checked.stderr));

    folder.write("sites/one.toml", "[[site]]\nroot = \"other\"\n");
    server.signal(Signal::HangUp);
    server.error_with("settings reloaded");
    let mut answer = server.get("/");
    while !answer.ends_with("other") {
        // A worker applies new settings once it receives its message: one more response may have the old ones.
        assert!(answer.ends_with("hello"), "{answer}");
        answer = server.get("/");
    }
    fs::remove_file(folder.path("sites/one.toml")).expect("it was written here");
    server.signal(Signal::HangUp);
    server.error_with("no [[site]]: no files are served");
    let mut answer = server.get("/");
    while !answer.starts_with("HTTP/1.1 404 ") {
        assert!(answer.ends_with("other"), "{answer}");
        answer = server.get("/");
    }
    // The working directory of this test.
    let answer = server.get("/Cargo.toml");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

#[test]
fn a_settings_file_without_sites_serves_no_files() {
    let folder = site("no-site");
    let file = folder.write("encke.toml", "[auth]\nanonymous = [\"publish\", \"subscribe\"]\n");
    let checked = encke().args(["check", &file]).output().expect("the program starts");
    assert_eq!(checked.status.code(), Some(0));
    let warning = "warning: no [[site]]: no files are served";
    assert!(text(&checked.stderr).contains(warning), "{}", text(&checked.stderr));

    let mut command = encke();
    command.args(["serve", "-l", "127.0.0.1:0", "--admin", "127.0.0.1:0", "-w", "2", "-c", &file]);
    let mut server =
        Running::start_command(command.current_dir(folder.path("public")).stdout(Stdio::piped()));
    assert!(server.greeting.contains("root     none: no [[site]]"), "{}", server.greeting);
    server.error_with("no [[site]]: no files are served");
    for path in ["/", "/index.html"] {
        let answer = server.get(path);
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    }
    let answer = server.get("/push/news?wait=0");
    assert!(answer.starts_with("HTTP/1.1 204 "), "channels work without a site: {answer}");

    let server = Running::start(&["-c", &file, &folder.path("public")]);
    assert!(server.get("/").ends_with("hello"));
}

#[test]
fn sites_have_access_logs_of_their_own() {
    let folder = site("site-logs");
    let sites = "[log]\naccess = \"main.log\"\n[[site]]\nroot = \"public\"\n[[site]]\nhost = [\"a.test\"]\nroot = \"public\"\n\
        access_log = \"public/a.log\"\n[[site]]\nhost = [\"b.test\"]\nroot = \"public\"\naccess_log = \"off\"\n";
    let file = folder.write("encke.toml", sites);
    let server = Running::start(&["-c", &file]);
    let ask = |host: &str, path: &str| {
        let mut stream = TcpStream::connect(&server.site).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    };
    for host in ["localhost", "a.test", "b.test"] {
        assert!(ask(host, &format!("/of-{host}")).starts_with("HTTP/1.1 404 "));
    }
    assert!(ask("a.test", "/a.log").starts_with("HTTP/1.1 404 "), "a log is not served");
    server.signal(Signal::Terminate);
    assert_eq!(server.end().0, Some(0));
    let (main, own) = (folder.read("main.log"), folder.read("public/a.log"));
    assert!(main.contains("/of-localhost") && main.lines().count() == 1, "{main}");
    assert!(own.contains("/of-a.test") && own.contains("/a.log") && own.lines().count() == 2, "{own}");
}

#[test]
fn logs_are_opened_again_at_usr1() {
    let folder = site("reopen");
    let file = folder.write(
        "encke.toml",
        "[log]\naccess = \"access.log\"\nformat = \"json\"\n[[site]]\nroot = \"public\"\n",
    );
    let mut server = Running::start(&["-c", &file]);
    server.get("/one");
    let written = |name: &str, part: &str| {
        wait_until(&format!("{name} contains {part}"), || folder.read(name).contains(part));
    };
    written("access.log", "/one");
    fs::rename(folder.path("access.log"), folder.path("access.log.1")).expect("moved");
    server.signal(Signal::User1);
    server.error_with("logs reopened");
    server.get("/two");
    written("access.log", "/two");
    assert!(!folder.read("access.log.1").contains("/two"));
    let line: serde_json::Value = serde_json::from_str(folder.read("access.log").trim()).expect("JSON");
    assert_eq!((line["target"].as_str(), line["status"].as_u64()), (Some("/two"), Some(404)));
}

#[test]
fn it_serves_on_when_nobody_reads_its_log() {
    let folder = site("no-reader");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = encke();
    command.args(["serve", "-l", "127.0.0.1:0", "--admin", "off", "-w", "1", &folder.path("public")]);
    drop(reader);
    let server = Running::start_command(command.stdout(writer));
    for _ in 0..20 {
        assert!(server.get("/").ends_with("hello"));
    }
    server.signal(Signal::Terminate);
    assert_eq!(server.end(), (Some(0), String::new()));
}

#[test]
fn it_serves_on_when_nobody_reads_its_errors() {
    let folder = site("no-errors");
    let file = folder.write("encke.toml", "[[site]]\nroot = \"public\"\n");
    let mut server = Running::start(&["-c", &file]);
    drop(server.take_errors());
    folder.write("encke.toml", "nonsense");
    for _ in 0..5 {
        server.signal(Signal::HangUp);
        assert!(server.get("/").ends_with("hello"));
    }
    server.signal(Signal::Terminate);
    assert_eq!(server.child.wait().expect("a child").code(), Some(0));
}

#[test]
fn what_it_cannot_do_is_said_with_a_remedy_and_status_1() {
    let folder = site("cannot");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("bound").to_string();
    for (arguments, said) in [
        (vec!["serve", "-l", taken.as_str(), "--admin", "off"], "another program listens there"),
        (vec!["serve", "-l", "127.0.0.1:0", "--admin", taken.as_str()], taken.as_str()),
        (vec!["serve", "-l", "127.0.0.1:0", "--admin", "off", "/nonexistent-folder"], "/nonexistent-folder"),
        (vec!["serve", "-c", "/nonexistent.toml"], "cannot read settings file /nonexistent.toml"),
    ] {
        let output = encke().args(&arguments).current_dir(folder.path("public")).output().expect("it starts");
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.starts_with("error: ") && error.contains(said), "{arguments:?}: {error}");
    }
    drop(listener);
}

#[test]
fn the_root_of_the_machine_is_served_only_when_it_is_named() {
    let output = encke().arg("serve").current_dir("/").output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("specify a directory"), "{}", text(&output.stderr));
}

#[cfg(unix)]
#[test]
fn a_unix_socket_is_served_with_its_permissions() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;
    let folder = site("unix");
    let file = folder.write(
        "encke.toml",
        "[server]\nlisten = { address = \"unix:encke.sock\", mode = \"0600\" }\nadmin = \"off\"\n[[site]]\n\
         root = \"public\"\n",
    );
    let mut command = encke();
    let server = Running::start_command(command.args(["serve", "-c", &file]).stdout(Stdio::piped()));
    let socket = folder.path("encke.sock");
    assert!(server.greeting.contains(&format!("curl --unix-socket {socket} ")), "{}", server.greeting);
    assert_eq!(fs::metadata(&socket).expect("there").permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&socket).expect("it listens");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    assert!(answer.ends_with("hello"), "{answer}");
}

#[test]
fn status_is_asked_with_the_url_that_was_printed() {
    let folder = site("status");
    let server = Running::start(&[&folder.path("public")]);
    server.get("/");
    let status = |arguments: &[&str]| encke().arg("status").args(arguments).output().expect("it starts");
    let output = status(&[&server.admin]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(said.contains(&format!("serving, pid {}", server.child.id())), "{said}");
    assert!(said.contains(&server.site), "{said}");

    let json = status(&["--json", &server.admin]);
    let read: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(read["schema"], 1);
    assert_eq!(read["workers"], 2);

    let host = server.admin.trim_start_matches("http://").split('/').next().expect("a host");
    let without = status(&[host]);
    assert_eq!(without.status.code(), Some(1));
    assert!(text(&without.stderr).contains("a token is required"), "{}", text(&without.stderr));
    let wrong = status(&[host, "--token", "wrong"]);
    assert!(text(&wrong.stderr).contains("wrong token"), "{}", text(&wrong.stderr));
    let not_admin = status(&[&server.site]);
    assert_eq!(not_admin.status.code(), Some(1));
    drop(server);
    let gone = status(&["127.0.0.1:1"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(text(&gone.stderr).contains("is the server running"), "{}", text(&gone.stderr));
}

#[test]
fn the_status_comes_as_an_event_stream_every_second_until_the_server_stops() {
    let folder = site("live");
    let server = Running::start(&[&folder.path("public")]);
    let (host, token) =
        server.admin.trim_start_matches("http://").split_once("/api/v1/status").expect("a URL");
    let ask = |request: String| {
        let mut stream = TcpStream::connect(host).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("settable");
        stream.write_all(request.as_bytes()).expect("sent");
        BufReader::new(stream)
    };
    let denied = ask(format!("GET /api/v1/live HTTP/1.1\r\nHost: {host}\r\n\r\n")).lines().next();
    assert_eq!(denied.expect("an answer").expect("text"), "HTTP/1.1 401 Unauthorized");

    let mut lines = ask(format!("GET /api/v1/live{token} HTTP/1.1\r\nHost: {host}\r\n\r\n")).lines();
    let mut event = || {
        let mut told = lines.by_ref().map(|line| line.expect("more to come"));
        let data = told.find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
        data.map(|data| serde_json::from_str::<serde_json::Value>(&data).expect("JSON"))
    };
    let first = event().expect("one at once");
    assert_eq!((&first["schema"], &first["state"]), (&1.into(), &"serving".into()));
    server.get("/");
    while event().expect("one every second")["requests"] == first["requests"] {}
    server.signal(Signal::Terminate);
    while event().is_some() {}
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_token_from_the_settings_is_never_printed() {
    let folder = site("token");
    let file = folder.write(
        "encke.toml",
        "[server]\nadmin = { address = \"127.0.0.1:0\", token = \"hunter2\" }\nlisten = \"127.0.0.1:0\"\n[[site]]\n\
         root = \"public\"\n",
    );
    let mut command = encke();
    let server = Running::start_command(command.args(["serve", "-c", &file]).stdout(Stdio::piped()));
    let greeting = &server.greeting;
    assert!(!greeting.contains("hunter2") && !greeting.contains("token="), "{greeting}");
    assert!(server.admin.ends_with("/api/v1/status  (the token is server.admin.token)"), "{greeting}");
    let host = server.admin.trim_start_matches("http://").split('/').next().expect("a host");
    let output = encke().args(["status", host]).env("ENCKE_TOKEN", "hunter2").output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[cfg(unix)]
#[test]
fn the_service_manager_receives_each_state_and_rejected_reloads() {
    let folder = site("manager");
    let socket = folder.path("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).expect("a socket");
    let mut command = encke();
    let file = folder.write("encke.toml", "[[site]]\nroot = \"public\"\n");
    command.args(["serve", "-c", &file, "-l", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let server = Running::start_command(command.env("NOTIFY_SOCKET", &socket).stdout(Stdio::piped()));
    let hear = || {
        let mut message = [0; 256];
        let length = manager.recv(&mut message).expect("told");
        text(&message[..length])
    };
    assert!(hear().starts_with("READY=1\n"));
    assert!(server.get("/").ends_with("hello"));
    let metrics = || {
        let (address, token) = server.admin.trim_start_matches("http://").split_once('/').expect("a path");
        let token = token.rsplit_once('=').expect("a token").1;
        crate::running::get(address, &format!("/metrics?token={token}"))
    };
    for (text, status, rejected) in [
        ("[[sites]]\n", "READY=1\nSTATUS=serving with the old settings: ", 1),
        ("", "READY=1\nSTATUS=serving", 0),
    ] {
        folder.write("encke.toml", &format!("{text}[[site]]\nroot = \"public\"\n"));
        server.signal(Signal::HangUp);
        assert_eq!(hear(), "STATUS=reloading the settings");
        let heard = hear();
        assert!(heard.starts_with(status), "{heard}");
        assert!(metrics().contains(&format!("encke_reload_rejected {rejected}\n")), "{}", metrics());
    }
    assert!(metrics().contains("encke_reloads_total{outcome=\"rejected\"} 1\n"), "{}", metrics());
    server.signal(Signal::Terminate);
    assert!(hear().starts_with("STOPPING=1\n"));
    assert_eq!(server.end().0, Some(0));
}

#[cfg(unix)]
#[test]
fn a_socket_of_the_service_manager_is_served_and_kept_at_a_reload() {
    let folder = site("activated");
    let file = folder.write("encke.toml", "[[site]]\nroot = \"public\"\n");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    // The shell duplicates the socket to the descriptor that sd_listen_fds(3) expects, and executes the program.
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" 3<&0 </dev/null";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_encke"), "serve", "-c", &file]);
    command.args(["-l", "127.0.0.1:1", "--admin", "off", "-w", "2"]);
    let mut server = Running::start_command(
        command.env_remove("ENCKE_CONFIG").stdin(std::os::fd::OwnedFd::from(listener)).stdout(Stdio::piped()),
    );
    assert_eq!(server.site, address);
    assert!(server.get("/").ends_with("hello"));
    server.signal(Signal::HangUp);
    server.error_with("settings reloaded");
    for _ in 0..8 {
        assert!(server.get("/").ends_with("hello"));
    }
    server.signal(Signal::Terminate);
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn settings_and_logs_are_not_served_though_they_lie_in_the_folder() {
    let folder = site("forbidden");
    let file = folder.write("public/encke.toml", "[log]\naccess = \"access.log\"\n[[site]]\nroot = \".\"\n");
    folder.write("public/plain.toml", "for all");
    let mut server = Running::start(&["-c", &file]);
    assert!(server.get("/plain.toml").ends_with("for all"));
    let refused = |server: &Running, name: &str| {
        let answer = server.get(&format!("/{name}"));
        assert!(answer.starts_with("HTTP/1.1 404 "), "{name}: {answer}");
    };
    refused(&server, "encke.toml");
    refused(&server, "access.log");
    fs::remove_file(folder.path("public/access.log")).expect("there");
    server.signal(Signal::User1);
    server.error_with("logs reopened");
    // Workers apply new settings when their messages arrive, within a turn.
    let obeyed = (0..10_000).any(|_| server.get("/access.log").starts_with("HTTP/1.1 404 "));
    assert!(obeyed, "the new log file is served");
    refused(&server, "encke.toml");
}
