//! `encke pub` and `encke sub` against a real server: messages arrive complete and in order, or an error is reported.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::running::{Folder, Running, encke, get, patiently, text};
use encke_io::host::{Signal, send_signal};
use encke_io::lock;
use encke_io::testing::wait_until;
use serde_json::Value;

/// Starts a server with an empty directory and default settings: local clients may publish and subscribe.
fn server(name: &str) -> (Folder, Running) {
    let folder = Folder::new(name);
    folder.write("public/index.html", "hello");
    let server = Running::start(&[&folder.path("public")]);
    (folder, server)
}

/// Starts a server as [`server`] does, whose address [`again`] can take.
fn server_to_restart(name: &str) -> (Folder, Running) {
    let folder = Folder::new(name);
    folder.write("public/index.html", "hello");
    let server = Running::start_alone(&[&folder.path("public")]);
    (folder, server)
}

/// Returns a command that connects to this server.
fn command(site: &str, arguments: &[&str]) -> Command {
    let mut command = encke();
    command.env("ENCKE_URL", format!("http://{site}")).args(arguments);
    command
}

fn run(site: &str, arguments: &[&str]) -> Output {
    command(site, arguments).output().expect("it starts")
}

/// Runs the command with `input` on standard input.
fn run_with(site: &str, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = command(site, arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("piped").write_all(input).expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// Returns the standard output of a successful command.
fn printed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Returns the id in `ID, N subscribers`.
fn id(line: &str) -> String {
    line.split(',').next().expect("a line").to_owned()
}

/// A running `encke sub`, and its output.
struct Reader {
    child: Child,
    output: BufReader<ChildStdout>,
    errors: BufReader<ChildStderr>,
}

impl Reader {
    /// Starts the command, and waits until the server counts `subscribers` on `channel`.
    fn start(server: &Running, arguments: &[&str], channel: &str, subscribers: u64) -> Self {
        let mut reader = Self::spawn(&server.site, arguments);
        reader.wait_until_subscribed(server, channel, subscribers);
        reader
    }

    fn spawn(site: &str, arguments: &[&str]) -> Self {
        let mut command = command(site, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let errors = BufReader::new(child.stderr.take().expect("piped"));
        Self { child, output, errors }
    }

    fn wait_until_subscribed(&mut self, server: &Running, channel: &str, subscribers: u64) {
        wait_until(&format!("{channel} has {subscribers} subscribers"), || {
            let ended = self.child.try_wait().expect("a child");
            assert!(ended.is_none(), "it ended: {}", self.rest_of_errors());
            info(server, channel)["subscribers"].as_u64() == Some(subscribers)
        });
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line
    }

    /// Returns the next line on standard error that contains `part`.
    fn error_with(&mut self, part: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            let read = self.errors.read_line(&mut line).expect("text");
            assert!(read > 0, "it ended without `{part}`: {all}");
            if line.contains(part) {
                return line;
            }
            all += &line;
        }
    }

    fn rest_of_errors(&mut self) -> String {
        let mut rest = String::new();
        self.errors.read_to_string(&mut rest).expect("text");
        rest
    }

    /// Waits until the command exits. Returns its status and the rest of its output.
    fn end(mut self) -> (Option<i32>, String, String) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        let errors = self.rest_of_errors();
        (self.child.wait().expect("a child").code(), rest, errors)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns the counts of a channel.
fn info(server: &Running, channel: &str) -> Value {
    let answer = server.get(&format!("/push/{channel}?info"));
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    serde_json::from_str(body).unwrap_or_default()
}

#[test]
fn a_message_reaches_whoever_is_subscribed() {
    let (_folder, server) = server("push-one");
    let mut reader = Reader::start(&server, &["sub", "news", "-n", "1"], "news", 1);
    let told = printed(&run(&server.site, &["pub", "news", "hello, world"]));
    assert!(told.ends_with(", 1 subscriber\n"), "{told}");
    assert_eq!(reader.line(), "hello, world\n");
    assert_eq!(reader.end(), (Some(0), String::new(), String::new()));
    let told = printed(&run(&server.site, &["pub", "news", "nobody hears it"]));
    assert!(told.ends_with(", 0 subscribers\n") || told.ends_with(", 1 subscriber\n"), "{told}");
}

#[test]
fn a_silent_stream_says_that_it_is_alive_as_often_as_it_is_set() {
    let folder = Folder::new("push-heartbeat");
    folder.write("public/index.html", "hello");
    let settings =
        "[[site]]\nroot = \"public\"\n[auth]\nanonymous = [\"subscribe\"]\n[push]\nheartbeat = \"1s\"\n";
    let server = Running::start(&["-c", &folder.write("encke.toml", settings)]);
    let mut stream = TcpStream::connect(&server.site).expect("it listens");
    stream.write_all(b"GET /push/news?as=sse HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("sent");
    // Without the setting the fourth heartbeat would come after 40 s: this poll is answered earlier.
    let mut poll = TcpStream::connect(&server.site).expect("it listens");
    poll.write_all(b"GET /push/news?wait=30 HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let lines = BufReader::new(stream).lines().map(|line| line.expect("text"));
    assert_eq!(lines.filter(|line| line == ":").take(4).count(), 4);
    poll.set_nonblocking(true).expect("a socket");
    let answer = poll.read(&mut [0; 1]);
    assert!(answer.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "the poll was answered first");
}

#[test]
fn what_was_published_before_is_read_from_where_one_asks() {
    let (_folder, server) = server("push-since");
    let ids: Vec<String> = ["one", "two", "three", "four"]
        .iter()
        .map(|data| id(&printed(&run(&server.site, &["pub", "news", data]))))
        .collect();
    for (since, count, lines) in [
        ("all", "4", "one\ntwo\nthree\nfour\n"),
        ("last:2", "2", "three\nfour\n"),
        ("10m", "4", "one\ntwo\nthree\nfour\n"),
        (ids[1].as_str(), "2", "three\nfour\n"),
    ] {
        let output = run(&server.site, &["sub", "news", "--since", since, "-n", count, "--timeout", "30s"]);
        assert_eq!(printed(&output), lines, "{since}");
    }
}

#[test]
fn envelopes_tell_everything_that_is_known() {
    let (_folder, server) = server("push-json");
    let answer = printed(&run(
        &server.site,
        &["pub", "prices/gold", "{\"eur\":5}", "--event", "price", "--type", "application/json", "--json"],
    ));
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let output = run(&server.site, &["sub", "prices/gold", "--since", "all", "-n", "1", "--json"]);
    let envelope: Value = serde_json::from_str(&printed(&output)).expect("JSON");
    assert_eq!(envelope["id"], answer["id"]);
    assert_eq!(answer["subscribers"], 0);
    for (name, value) in [
        ("channel", "prices/gold"),
        ("event", "price"),
        ("type", "application/json"),
        ("data", "{\"eur\":5}"),
    ] {
        assert_eq!(envelope[name], value, "{envelope}");
    }
    assert!(envelope["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{envelope}");
}

#[test]
fn bytes_come_out_as_they_went_in() {
    let (folder, server) = server("push-bytes");
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let file = folder.path("bytes");
    std::fs::write(&file, &bytes).expect("written");
    let from_file = format!("@{file}");
    for arguments in [&["pub", "bin"][..], &["pub", "bin", &from_file], &["pub", "bin", "--file", &file]] {
        let input = if arguments.len() == 2 { &bytes[..] } else { b"" };
        printed(&run_with(&server.site, arguments, input));
        let output = run(&server.site, &["sub", "bin", "--since", "last:1", "-n", "1", "--raw"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(output.stdout == bytes, "{arguments:?}: {} bytes came out", output.stdout.len());
    }
    let output = run(&server.site, &["sub", "bin", "--since", "last:1", "-n", "1"]);
    assert!(printed(&output).starts_with("data:application/octet-stream;base64,AAECAwQF"));
    // Text keeps every line end if it is read as a whole.
    for data in ["", "a", "a\n", "a\r\nb\rc\n\n", "data:text/plain;base64,aGk=", "\u{feff}\0é"] {
        printed(&run_with(&server.site, &["pub", "text"], data.as_bytes()));
        let output = run(&server.site, &["sub", "text", "--since", "last:1", "-n", "1", "--raw"]);
        assert_eq!(printed(&output), data);
    }
}

#[test]
fn lines_are_published_in_order_each_with_an_id() {
    let (_folder, server) = server("push-lines");
    let input: String = (1..=50).map(|number| format!("line {number}\n")).collect();
    let told = printed(&run_with(&server.site, &["pub", "log", "-"], input.as_bytes()));
    let mut ids: Vec<String> = told.lines().map(id).collect();
    assert_eq!(ids.len(), 50);
    ids.dedup();
    assert_eq!(ids.len(), 50, "an id came twice: {told}");
    let output = run(&server.site, &["sub", "log", "--since", "all", "-n", "50"]);
    assert_eq!(printed(&output), input);
}

#[test]
fn lines_keep_their_pace() {
    let (_folder, server) = server("push-pace");
    let before = Instant::now();
    let told = printed(&run_with(&server.site, &["pub", "log", "-", "--rate", "20/s"], b"1\n2\n3\n4\n"));
    let (lines, took) = (told.lines().count(), before.elapsed());
    assert_eq!(lines, 4);
    // Four lines have three pauses of 50 ms.
    assert!(took >= Duration::from_millis(150), "it took {took:?}");
}

#[test]
fn several_channels_share_a_stream() {
    let (_folder, server) = server("push-several");
    let url = format!("http://{}/push/c/d", server.site);
    let mut reader = Reader::start(&server, &["sub", "a", "b,c", &url, "--json", "-n", "4"], "c/d", 1);
    for channel in ["c/d", "a", "c", "b"] {
        let told = printed(&run(&server.site, &["pub", channel, &format!("to {channel}")]));
        assert!(told.ends_with(", 1 subscriber\n"), "{told}");
        let envelope: Value = serde_json::from_str(&reader.line()).expect("JSON");
        assert_eq!(envelope["channel"], channel);
        assert_eq!(envelope["data"], format!("to {channel}"));
    }
    assert_eq!(reader.end().0, Some(0));
}

#[test]
fn one_message_goes_to_several_channels() {
    let (_folder, server) = server("push-both");
    printed(&run(&server.site, &["pub", "a,b", "hello"]));
    for channel in ["a", "b"] {
        assert_eq!(printed(&run(&server.site, &["sub", channel, "--since", "all", "-n", "1"])), "hello\n");
    }
}

#[test]
fn a_key_keeps_a_repeat_from_being_published() {
    let (_folder, server) = server("push-key");
    let publish = |data: &str| run(&server.site, &["pub", "news", data, "--key", "k1"]);
    let first = id(&printed(&publish("hello")));
    assert_eq!(id(&printed(&publish("hello"))), first);
    let other = publish("another");
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other.stderr).contains("--key"), "{}", text(&other.stderr));
    assert_eq!(info(&server, "news")["messages"], 1);
}

/// Restarts the server at the same address. Its messages are lost with its memory.
fn again(folder: &Folder, site: &str) -> Running {
    let mut command = encke();
    command.args(["serve", "-l", site, "--admin", "off", "-w", "2", &folder.path("public")]);
    Running::start_command(command.stdout(Stdio::null()))
}

#[test]
fn a_subscriber_comes_back_and_tells_what_is_missing() {
    let (folder, server) = server_to_restart("push-resume");
    let site = server.site.clone();
    let mut reader = Reader::start(&server, &["sub", "news", "--json", "-n", "2"], "news", 1);
    printed(&run(&site, &["pub", "news", "before"]));
    assert!(reader.line().contains("\"before\""));
    drop(server);
    reader.error_with("retrying in");
    let server = again(&folder, &site);
    // A restarted server does not know the client's position, which is a gap.
    let note = reader.error_with("gap: ");
    assert!(note.contains("are lost"), "{note}");
    let gap: Value = serde_json::from_str(&reader.line()).expect("JSON");
    assert_eq!(gap["op"], "gap", "{gap}");
    reader.wait_until_subscribed(&server, "news", 1);
    printed(&run(&site, &["pub", "news", "after"]));
    assert!(reader.line().contains("\"after\""));
    assert_eq!(reader.end().0, Some(0));
}

#[test]
fn a_publisher_goes_on_over_a_new_connection() {
    let (folder, server) = server_to_restart("push-reconnect");
    let site = server.site.clone();
    let mut command = command(&site, &["pub", "log", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("piped");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut told = String::new();
    input.write_all(b"one\n").expect("it reads");
    output.read_line(&mut told).expect("text");
    drop(server);
    let server = again(&folder, &site);
    input.write_all(b"two\n").expect("it reads");
    output.read_line(&mut told).expect("text");
    assert_eq!(told.lines().count(), 2, "{told}");
    drop(server);
    input.write_all(b"three\n").expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with("error: line 3: ") && said.contains("is the server running?"), "{said}");
}

#[test]
fn nobody_at_the_port_is_told_at_once_with_status_1() {
    // A service of 1988 (RFC 1078), on a port that no test gets from the system.
    let site = "127.0.0.1:1";
    for arguments in [&["pub", "news", "hi"][..], &["sub", "news"]] {
        let output = run(site, arguments);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.starts_with(&format!("error: {site}: ")), "{said}");
        assert!(said.contains("is the server running? `encke serve` starts one"), "{said}");
    }
}

#[test]
fn what_cannot_be_meant_is_a_usage_error() {
    for (arguments, said) in [
        (&["pub"][..], "CHANNEL|URL"),
        (&["pub", "a b", "hi"], "invalid channel"),
        (&["pub", "news", "hi", "--server", "nonsense"], "invalid server address"),
        (&["pub", "news", "hi", "--rate", "5/s"], "set DATA to `-`"),
        (&["pub", "news", "-", "--rate", "often"], "invalid rate"),
        (&["pub", "news", "hi", "--file", "x"], "cannot be used with"),
        (&["pub", "news", "@"], "without a file name"),
        (&["pub", "news", "--jsn"], "'--json'"),
        (&["sub"], "CHANNEL|URL"),
        (&["sub", "news", "--since", "later"], "expected now, all, key, last:N"),
        (&["sub", "news", "-n", "0"], "0"),
        (&["sub", "news", "--timeout", "5"], "write 5s"),
        (&["sub", "news", "--json", "--raw"], "cannot be used with"),
        (&["sub", "http://127.0.0.1:1/push/a", "http://127.0.0.1:2/push/b"], "one server"),
    ] {
        let output = encke().args(arguments).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(said), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn what_the_server_refuses_is_told_with_a_remedy() {
    let (folder, server) = server("push-refused");
    let url = |path: &str| format!("http://{}{path}", server.site);
    for (arguments, said) in [
        (&["pub", &url("/index.html"), "hi"][..], "no channel at /index.html"),
        (&["sub", &url("/nowhere")], "no channel at /nowhere"),
        (&["sub", &url("/index.html")], "not an event stream; is it a push channel?"),
        (&["pub", "news//more", "hi"], "invalid request for /push/news//more"),
        (&["pub", "news", "hi", "--event", "encke.gap"], "invalid request for"),
        (&["pub", "news", "@/nonexistent"], "cannot read /nonexistent"),
    ] {
        let output = run(&server.site, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(said), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
    let large = folder.path("large");
    std::fs::write(&large, vec![b'x'; 2 << 20]).expect("written");
    let output = run(&server.site, &["pub", "news", "--file", &large]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("too large"), "{}", text(&output.stderr));
}

#[test]
fn tokens_open_what_they_are_for() {
    let folder = Folder::new("push-token");
    folder.write("public/index.html", "hello");
    let file = folder.write(
        "encke.toml",
        "[[auth.tokens]]\ntoken = \"0123456789abcdef\"\npublish = [\"news\"]\nsubscribe = [\"news\"]\n[[site]]\n\
         root = \"public\"\n",
    );
    let server = Running::start(&["-c", &file]);
    for (arguments, said) in [
        (&["pub", "news", "hi"][..], "a token is required"),
        (&["sub", "news"], "a token is required"),
        (&["pub", "news", "hi", "--token", "fedcba9876543210"], "invalid token"),
        (&["pub", "other", "hi", "--token", "0123456789abcdef"], "no right to publish to /push/other"),
        (&["sub", "other", "--token", "0123456789abcdef"], "no right to subscribe to /push/other"),
    ] {
        let output = run(&server.site, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains(said), "{arguments:?}: {}", text(&output.stderr));
    }
    printed(&run(&server.site, &["pub", "news", "hi", "--token", "0123456789abcdef"]));
    let mut sub = command(&server.site, &["sub", "news", "--since", "all", "-n", "1"]);
    let output = sub.env("ENCKE_TOKEN", "0123456789abcdef").output().expect("it starts");
    assert_eq!(printed(&output), "hi\n");
}

#[test]
fn waiting_has_an_end_when_it_was_given_one() {
    let (_folder, server) = server("push-timeout");
    let nothing = run(&server.site, &["sub", "news", "--timeout", "50ms"]);
    assert_eq!((nothing.status.code(), text(&nothing.stdout)), (Some(1), String::new()));
    printed(&run(&server.site, &["pub", "news", "one"]));
    // The time includes that of the connection, on a busy machine.
    let fewer = run(&server.site, &["sub", "news", "--since", "all", "-n", "2", "--timeout", "3s"]);
    assert_eq!((fewer.status.code(), text(&fewer.stdout)), (Some(1), "one\n".into()));
    let some = run(&server.site, &["sub", "news", "--since", "all", "--timeout", "3s"]);
    assert_eq!((some.status.code(), text(&some.stdout)), (Some(0), "one\n".into()));
}

#[test]
fn an_interrupt_ends_it_with_130() {
    let (_folder, server) = server("push-interrupt");
    let reader = Reader::start(&server, &["sub", "news"], "news", 1);
    send_signal(reader.child.id(), Signal::Interrupt).expect("it lives");
    assert_eq!(reader.end(), (Some(130), String::new(), String::new()));
    let mut command = command(&server.site, &["pub", "news", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    // Standard input stays open, because the command would end after the last line.
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"one\n").expect("it reads");
    let mut told = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut told).expect("text");
    send_signal(child.id(), Signal::Interrupt).expect("it lives");
    assert_eq!(child.wait().expect("a child").code(), Some(130));
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let (_folder, server) = server("push-reader-gone");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = command(&server.site, &["sub", "news", "--since", "all"]);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(command);
    printed(&run(&server.site, &["pub", "news", "one"]));
    let mut lines = BufReader::new(reader);
    let mut line = String::new();
    lines.read_line(&mut line).expect("text");
    assert_eq!(line, "one\n");
    drop(lines);
    printed(&run(&server.site, &["pub", "news", "two"]));
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

/// Starts a server with a script: for each connection the response to each request before it closes; `None` is no response. The
/// thread returns the received requests, heads and bodies.
fn actor(part: Vec<Vec<Option<String>>>) -> (String, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let site = listener.local_addr().expect("bound").to_string();
    let play = thread::spawn(move || {
        let mut requests = Vec::new();
        for answers in part {
            let (peer, _) = listener.accept().expect("a client");
            let mut peer = BufReader::new(peer);
            for answer in answers {
                requests.push(request(&mut peer));
                if let Some(answer) = answer {
                    peer.get_mut().write_all(answer.as_bytes()).expect("it reads");
                }
            }
        }
        requests
    });
    (site, play)
}

/// Reads the next request of a connection.
fn request(peer: &mut BufReader<TcpStream>) -> String {
    let mut request = String::new();
    let mut body_bytes = 0;
    while !request.ends_with("\r\n\r\n") {
        let start = request.len();
        assert!(peer.read_line(&mut request).expect("text") > 0, "it ended within {request}");
        if let Some(length) = request[start..].strip_prefix("Content-Length: ") {
            body_bytes = length.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; body_bytes];
    peer.read_exact(&mut body).expect("it is whole");
    request + &text(&body)
}

fn answer(status: &str, fields: &str, body: &str) -> Option<String> {
    Some(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len()))
}

#[test]
fn a_line_whose_answer_is_lost_is_asked_for_again_under_the_same_key() {
    let told = |id: &str| answer("201 Created", "", &format!("{{\"id\":\"{id}\",\"subscribers\":0}}"));
    let (site, play) = actor(vec![vec![told("e-1"), None], vec![told("e-2")]]);
    let output = run_with(&site, &["pub", "log", "-", "--key", "k"], b"one\ntwo\n");
    assert_eq!(printed(&output), "e-1, 0 subscribers\ne-2, 0 subscribers\n");
    let requests = play.join().expect("it played its part");
    assert!(requests[0].contains("\r\nIdempotency-Key: k-1\r\n") && requests[0].ends_with("\r\n\r\none"));
    assert!(requests[1].contains("\r\nIdempotency-Key: k-2\r\n") && requests[1].ends_with("\r\n\r\ntwo"));
    assert_eq!(requests[1], requests[2]);
}

#[test]
fn a_server_that_asks_to_wait_is_asked_again() {
    let later = |status: &str| answer(status, "Retry-After: 0\r\n", "");
    let told = answer("201 Created", "", "{\"id\":\"e-1\",\"subscribers\":2}");
    let (site, play) =
        actor(vec![vec![later("429 Too Many Requests"), later("503 Service Unavailable"), told]]);
    let output = run(&site, &["pub", "news", "hi"]);
    assert_eq!(printed(&output), "e-1, 2 subscribers\n");
    assert_eq!(text(&output.stderr), format!("note: {site} requests a wait of 1 s\n").repeat(2));
    let requests = play.join().expect("it played its part");
    assert!(requests[0].contains("\r\nIdempotency-Key: "), "{}", requests[0]);
    assert_eq!((requests.len(), &requests[1], &requests[2]), (3, &requests[0], &requests[0]));
    // A 503 without `Retry-After` is not retried.
    let (site, _play) = actor(vec![vec![answer("503 Service Unavailable", "", "")]]);
    let output = run(&site, &["pub", "news", "hi"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("try again later"), "{}", text(&output.stderr));
}

#[test]
fn a_stream_that_ends_is_asked_for_again_from_its_last_position() {
    let stream = |events: &str| {
        Some(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nretry: 1\n\n{events}"))
    };
    let (site, play) = actor(vec![
        vec![stream("id: e-4\n\n")],
        // Busy, then broken within an event: an incomplete event is not printed.
        vec![answer("503 Service Unavailable", "", "")],
        vec![stream("id: e-5\ndata: one\n\nid: e-6\ndata: tw")],
        vec![stream("id: e-6\ndata: two\n\n")],
    ]);
    let output = run(&site, &["sub", "news", "-n", "2", "--since", "last:1"]);
    assert_eq!(printed(&output), "one\ntwo\n");
    assert_eq!(text(&output.stderr).matches("retrying in").count(), 3, "{}", text(&output.stderr));
    let requests = play.join().expect("it played its part");
    for (request, id) in requests.iter().zip([None, Some("e-4"), Some("e-4"), Some("e-5")]) {
        assert!(request.starts_with("GET /push/news?envelope&since=last:1 HTTP/1.1\r\n"), "{request}");
        let field = id.map(|id| format!("\r\nLast-Event-ID: {id}\r\n"));
        assert_eq!(request.contains("Last-Event-ID"), field.is_some(), "{request}");
        assert!(field.is_none_or(|field| request.contains(&field)), "{request}");
    }
}

/// Held while a demo starts: two that start at the same moment could both find the default admin port free.
static DEMO_STARTS: Mutex<()> = Mutex::new(());

#[test]
fn the_demo_brings_its_chat_along() {
    let folder = Folder::new("push-demo");
    let mut demo = encke();
    let starting = lock(&DEMO_STARTS);
    demo.args(["demo", "-l", "127.0.0.1:0"]).current_dir(folder.path("")).stderr(Stdio::piped());
    let mut child = demo.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut line = || lines.next().expect("it runs").expect("text");
    let mut open = line();
    while !open.starts_with("  open ") {
        open = line();
    }
    drop(starting);
    let site = open.trim_start_matches("  open").trim().trim_start_matches("http://").trim_end_matches('/');
    for (path, part) in
        [("/", "<title>"), ("/chat.css", "{"), ("/chat.js", "/encke.js"), ("/encke.js", "subscribe")]
    {
        let answer = get(site, path);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(part), "{path}: {answer}");
    }
    assert!(get(site, "/nothing").starts_with("HTTP/1.1 404 "));
    printed(&run(site, &["pub", "chat/lobby", "hello"]));
    assert_eq!(printed(&run(site, &["sub", "chat/lobby", "--since", "all", "-n", "1"])), "hello\n");
    // The terminal that started the program is closed.
    send_signal(child.id(), Signal::HangUp).expect("it lives");
    assert_eq!(child.wait().expect("a child").code(), Some(0));
}

#[test]
fn the_live_demo_continues_over_a_repetition_of_its_clip() {
    let folder = Folder::new("live-demo");
    let mut demo = encke();
    let starting = lock(&DEMO_STARTS);
    demo.args(["demo", "--live", "-l", "127.0.0.1:0"]).current_dir(folder.path("")).stderr(Stdio::piped());
    let mut child = demo.spawn().expect("it starts");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let greeting: Vec<String> = patiently(child.id(), || {
        let lines = lines.map(|line| line.expect("text"));
        let mut greeting = Vec::new();
        for line in lines {
            greeting.push(line);
            if greeting.last().is_some_and(|line| line.starts_with("  end ")) {
                break;
            }
        }
        greeting
    });
    drop(starting);
    let value = |name: &str| {
        let line = greeting.iter().find_map(|line| line.trim().strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {greeting:?}")).trim().to_owned()
    };
    let open = value("open");
    let site = open.trim_start_matches("http://").trim_end_matches('/');
    assert_eq!(value("player"), format!("mpv http://{site}/live/demo"));
    assert!(value("send").ends_with(&format!(" -method PUT http://{site}/live/film")), "{greeting:?}");
    let front = get(site, "/");
    assert!(front.starts_with("HTTP/1.1 302 ") && front.contains("\r\nLocation: /live/demo\r\n"), "{front}");

    let mut listener = TcpStream::connect(site).expect("it listens");
    listener.write_all(b"GET /live/demo HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    // The steps from one Cluster of the clip to the next, and from its last one to the first of the next repetition.
    let is_step = |pair: &[u64]| [1_981, 2_000, 2_019].contains(&pair[1].wrapping_sub(pair[0]));
    let times = patiently(child.id(), || {
        let mut received = Vec::new();
        let mut part = [0; 65536];
        loop {
            let count = listener.read(&mut part).expect("a live stream has no end");
            assert!(count > 0, "the stream has ended: {}", text(&received));
            received.extend_from_slice(&part[..count]);
            let times = cluster_times(&received);
            let is_repeated = times.iter().skip(1).any(|time| time % 8_000 == 0);
            if is_repeated || !times.windows(2).all(is_step) {
                return times;
            }
        }
    });
    assert!(times.windows(2).all(is_step), "{times:?}");

    // A listener does not delay the end.
    send_signal(child.id(), Signal::Interrupt).expect("it lives");
    let status = patiently(child.id(), || child.wait().expect("a child"));
    assert_eq!(status.code(), Some(130));
    let mut rest = Vec::new();
    listener.read_to_end(&mut rest).expect("the stream has ended");
}

/// The times of all Clusters of a WebM stream whose Timestamps have 8 bytes, in ms.
fn cluster_times(stream: &[u8]) -> Vec<u64> {
    let header = b"\x1F\x43\xB6\x75\x01\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xE7\x88";
    let headers = stream.windows(header.len() + 8).filter_map(|bytes| bytes.strip_prefix(header));
    headers.map(|time| u64::from_be_bytes(time.try_into().expect("8 bytes"))).collect()
}

#[test]
fn a_unix_socket_is_spoken_to() {
    let folder = Folder::new("push-unix");
    folder.write("public/index.html", "hello");
    let address = format!("unix:{}", folder.path("encke.sock"));
    // A client of that socket may be a proxy, so the rights must be configured.
    let file = folder.write("encke.toml", "[auth]\nanonymous = [\"publish\", \"subscribe\"]\n");
    let mut serve = encke();
    serve.args(["serve", "-c", &file, "-l", &address, "--admin", "off", &folder.path("public")]);
    let _server = Running::start_command(serve.stdout(Stdio::null()));
    let run =
        |arguments: &[&str]| encke().args(arguments).env("ENCKE_URL", &address).output().expect("it starts");
    printed(&run(&["pub", "news", "hi"]));
    assert_eq!(printed(&run(&["sub", "news", "--since", "all", "-n", "1"])), "hi\n");
}
