//! `encke load push` against `encke serve`: receipts by transport, and failures of subscribers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Output, Stdio};
use std::thread;

use crate::running::{Folder, Running, encke, text};
use encke_io::clock::Clock;
use serde_json::{Value, json};

fn push(arguments: &[&str]) -> Output {
    encke().args(["load", "push"]).args(arguments).output().expect("the program starts")
}

/// Returns the report of a run whose conditions must hold.
fn report(arguments: &[&str], url: &str) -> Value {
    let output = push(&[arguments, &["--json", "--slo", "reach=100%", url]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said}"))
}

fn server(name: &str) -> (Folder, Running) {
    let folder = Folder::new(name);
    let server = Running::start(&[&folder.path("")]);
    (folder, server)
}

#[test]
fn by_every_transport_each_message_reaches_each_subscriber_once() {
    let (_folder, server) = server("push-transports");
    let url = format!("http://{}/", server.site);
    for transport in ["sse", "poll", "ws", "ndjson"] {
        for more in [&["-t", "2", "-k", "3"][..], &["--publishers", "2", "--payload", "3000"]] {
            let flags = [&["-s", "60", "-n", "30", "--transport", transport], more].concat();
            let json = report(&flags, &url);
            let case = format!("{transport}, {more:?}");
            assert_eq!(json["schema"], 1);
            assert_eq!(json["subscribers"]["answered"], 60, "{case}");
            assert_eq!(
                (&json["messages"]["published"], &json["messages"]["refused"]),
                (&30.into(), &0.into())
            );
            // With three channels, each subscriber receives a third.
            let expected = if more[0] == "-t" { 600 } else { 1_800 };
            assert_eq!(json["receipts"]["expected"], expected, "{case}");
            assert_eq!(json["receipts"]["received"], expected, "{case}");
            assert_eq!(json["times"]["receipt"]["count"], expected, "{case}");
            for none in ["lost", "repeated", "out_of_order", "gaps_told"] {
                assert_eq!(json["receipts"][none], 0, "{case}, {none}");
            }
            assert!(json["errors"].as_array().is_some_and(Vec::is_empty), "{case}: {}", json["errors"]);
        }
    }
}

#[test]
fn who_leaves_or_is_cut_comes_back_and_has_missed_nothing() {
    let (_folder, server) = server("push-storm");
    let url = format!("http://{}/", server.site);
    for transport in ["sse", "poll", "ndjson", "ws"] {
        let flags =
            ["-s", "50", "-d", "2s", "-r", "40", "--churn", "20%/s", "--storm", "--transport", transport];
        let json = report(&flags, &url);
        assert_eq!(json["receipts"]["lost"], 0, "{transport}");
        assert_eq!(json["receipts"]["repeated"], 0, "{transport}");
        assert!(json["subscribers"]["left"].as_u64().is_some_and(|left| left >= 50), "{transport}");
        let storm = &json["storm"];
        let [back, caught_up] = ["back_ns", "caught_up_ns"].map(|name| storm[name].as_u64());
        assert!(back.is_some_and(|back| back > 0) && caught_up >= back, "{transport}: {storm}");
    }
}

#[test]
fn by_https_it_is_the_same_and_handshakes_are_counted() {
    let folder = Folder::new("push-https");
    let mut command = encke();
    command.env("XDG_STATE_HOME", folder.path("state"));
    command.args(["serve", "-l", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--tls-self-signed"]);
    folder.write("public/index.html", "hello");
    let server = Running::start_command(command.arg(folder.path("public")).stdout(Stdio::null()));
    let authority = folder.path("state/encke/authority/authority.pem");
    let port = server.site.rsplit(':').next().expect("a port");
    let url = format!("https://127.0.0.1:{port}/");
    for transport in ["sse", "poll", "ws", "ndjson"] {
        let flags = ["-s", "40", "-n", "20", "-t", "2", "--transport", transport, "--cacert", &authority];
        let json = report(&[&flags[..], &["--payload", "3000"]].concat(), &url);
        assert_eq!(json["receipts"]["received"], 800, "{transport}");
        assert_eq!(json["errors"], serde_json::json!([]), "{transport}");
        // One handshake per subscriber, and one for the publisher.
        assert_eq!(json["subscribers"]["handshakes"], 41, "{transport}");
        assert_eq!(json["times"]["handshake"]["count"], 41, "{transport}");
    }
    let churn = ["-s", "30", "-d", "2s", "-r", "40", "--churn", "30%/s", "--storm", "--insecure"];
    for transport in ["sse", "ws"] {
        let json = report(&[&churn[..], &["--transport", transport]].concat(), &url);
        assert_eq!(json["receipts"]["lost"], 0, "{transport}");
        // The client keeps eight tickets, which the storm uses. On a busy machine it dials all others before it gets new ones.
        assert!(json["subscribers"]["resumed"].as_u64() >= Some(8), "{transport}: {}", json["subscribers"]);
    }

    let output = push(&["-s", "5", "-n", "5", "--cacert", &authority, "--sni", "example.com", &url]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("(TLS)"), "{}", text(&output.stderr));
}

#[test]
fn a_cycle_prints_the_lines_of_report_001() {
    let (_folder, server) = server("push-cycle");
    let url = format!("http://{}/", server.site);
    let output = push(&["--cycle=2", "-s", "40", "--transport", "poll", &url]);
    let printed = text(&output.stdout);
    let lines: Vec<Vec<&str>> = printed.lines().take(4).map(|line| line.split(',').collect()).collect();
    for (line, name) in lines.iter().zip(["c", "r", "c", "r"]) {
        let [found, count, whole, each] = line[..] else { panic!("{printed}") };
        assert_eq!((found, count), (name, "40"), "{printed}");
        let [whole, each] = [whole, each].map(|seconds| seconds.parse::<f64>().expect("seconds"));
        assert!(whole > 0.0 && (whole / 40.0 - each).abs() < 1e-7, "{printed}");
    }
}

#[test]
fn rounds_are_begun_by_lines_and_tell_what_they_came_to() {
    let (_folder, server) = server("push-paced");
    let url = format!("http://{}/", server.site);
    for (round, transport) in [
        ("fan", "sse"),
        ("fan", "poll"),
        ("fan", "ws"),
        ("connect", "sse"),
        ("cycle", "poll"),
        ("storm", "ndjson"),
        ("sustained", "sse"),
    ] {
        let case = format!("{round}, {transport}");
        let more = if round == "sustained" { &["-d", "300ms", "--publishers", "2"][..] } else { &[] };
        let mut child = encke()
            .args(["load", "push", "--paced", round, "--transport", transport, "-s", "30"])
            .args(more)
            .arg(&url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut input = child.stdin.take().expect("it is piped");
        let mut step = || -> Value {
            input.write_all(b"\n").expect("it reads");
            let line = lines.next().unwrap_or_else(|| panic!("{case}: it has ended")).expect("text");
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{case}: {error}: {line}"))
        };
        for _ in 0..3 {
            assert_eq!(step(), json!({ "ready": true }), "{case}");
            let told = step();
            for none in ["lost", "repeated", "out_of_order", "refused", "closed", "turned_away"] {
                assert_eq!(told[none], 0, "{case}, {none}: {told}");
            }
            assert_eq!((&told["round"], &told["held"]), (&round.into(), &30.into()), "{case}");
            let [received, published] = ["received", "published"].map(|name| told[name].as_u64());
            match round {
                "connect" | "storm" => assert_eq!(received, Some(0), "{case}"),
                "fan" | "cycle" => assert_eq!((received, published), (Some(30), Some(1)), "{case}"),
                _ => assert_eq!(received, published.map(|published| published * 30), "{case}"),
            }
            let connects = matches!(round, "connect" | "storm" | "cycle");
            assert_eq!(told["connect_ns"].as_u64().is_some_and(|ns| ns > 0), connects, "{case}: {told}");
            assert_eq!(told["p99_ns"].is_u64(), received != Some(0), "{case}: {told}");
        }
        drop(input);
        assert!(child.wait().expect("it ends").success(), "{case}");
    }
}

#[test]
fn a_saved_run_can_be_printed_explained_joined_and_compared() {
    let (folder, server) = server("push-saved");
    let [file, page] = ["run.json", "run.html"].map(|name| folder.path(name));
    let url = format!("http://{}/", server.site);
    let made = push(&["-s", "20", "-n", "40", "-r", "100", "--save", &file, "--report", &page, &url]);
    let load = |arguments: &[&str]| {
        let output = encke().arg("load").args(arguments).output().expect("the program starts");
        // 4: a run without a verdict is valid here.
        assert!(matches!(output.status.code(), Some(0 | 4)), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(load(&["report", &file]), text(&made.stdout));
    assert!(folder.read("run.html").contains("Fan-out: receivers reached"));
    assert!(load(&["explain", &file]).contains("the first and first to last"));
    let both = load(&["merge", &file, &file]);
    assert!(both.contains("1,600 of 1,600 due: reach 100 %"), "{both}");
    let compared = load(&["compare", &file, &file]);
    assert!(compared.contains("first to last") && compared.contains("lost"), "{compared}");
}

#[test]
fn two_servers_are_measured_in_turns() {
    let (_folder, one) = server("push-one");
    let (_folder, other) = server("push-other-one");
    let [a, b] = [&one, &other].map(|server| format!("http://{}/", server.site));
    let flags = ["-s", "5", "-n", "5", "-r", "100", "--rounds", "1", "--json", "--against", &b, &a];
    let output = push(&flags);
    assert!(matches!(output.status.code(), Some(0 | 4)), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let compared = &json["compare"];
    assert_eq!((&compared["a"], &compared["b"]), (&a.into(), &b.into()));
    assert_eq!(compared["figures"]["lost_share"]["a"], 0.0, "{json:#}");
    for figure in ["connect_ns", "first_ns", "first_to_last_ns", "last_ns", "receipt_p99_ns"] {
        assert!(compared["figures"][figure]["b"].as_f64().is_some_and(|ns| ns > 0.0), "{figure}: {json:#}");
    }
    assert!(compared["how"].as_str().is_some_and(|how| how.contains("2 pairs of runs")), "{json:#}");
}

/// Returns the median delay of messages in ns, as another client measures it and as the report has it.
fn medians_of_both() -> (u64, u64) {
    let (_folder, server) = server("push-other");
    let url = format!("http://{}/push/both", server.site);
    let mut stream = TcpStream::connect(&server.site).expect("it listens");
    write!(stream, "GET /push/both HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n\r\n", server.site)
        .expect("it reads");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("it goes on"));
    lines.by_ref().find(|line| line.contains("encke")).expect("it has answered");
    let other = thread::spawn(move || {
        let mut clock = Clock::new();
        // After run and lane follow the number and the send time, all hexadecimal.
        let messages = lines.filter_map(|line| {
            let now_ns = clock.now().mono_ns;
            let mark = line.strip_prefix("data: #")?.to_owned();
            let number = u32::from_str_radix(&mark[12..20], 16).expect("a number");
            let sent_ns = u64::from_str_radix(&mark[20..36], 16).expect("a time");
            Some((number, now_ns - sent_ns))
        });
        messages.take(60).collect::<Vec<_>>()
    });
    // Four seconds of messages: a time from the begin of the run would have a median of two.
    let json = report(&["-s", "20", "-n", "60", "-r", "15"], &url);
    let seen = other.join().expect("it has read");
    assert_eq!(seen.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..60).collect::<Vec<_>>());
    let mut took: Vec<u64> = seen.iter().map(|(_, ns)| *ns).collect();
    took.sort_unstable();
    (took[30], json["times"]["receipt"]["p50_ns"].as_u64().expect("there are some"))
}

#[test]
fn another_client_of_the_same_channel_sees_the_same() {
    // Both have 21 receivers of the same messages, and only the wake-up order differs; but a busy machine may stop one of them.
    let mut seen = Vec::new();
    let is_near = |_| {
        let (theirs, ours) = medians_of_both();
        seen.push((theirs, ours));
        theirs.abs_diff(ours) < 50_000_000 && theirs < 100 * ours && ours < 100 * theirs
    };
    assert!((0..10).any(is_near), "medians in ns, the other client's and the report's: {seen:?}");
}

#[test]
fn what_cannot_be_meant_or_is_not_there_is_told() {
    for (arguments, status, said) in [
        (&["--payload", "10", "http://127.0.0.1:1/"][..], 2, "at least 37 bytes"),
        (&["--cycle", "-t", "2", "http://127.0.0.1:1/"], 2, "one thread"),
        (&["--paced", "fan", "-t", "2", "http://127.0.0.1:1/"], 2, "one thread"),
        (&["--paced", "sustained", "--transport", "poll", "http://127.0.0.1:1/"], 2, "requires a stream"),
        (&["--slow", "1%", "--transport", "poll", "http://127.0.0.1:1/"], 2, "requires a stream"),
        (
            &["--preset", "mercure", "--transport", "ws", "http://127.0.0.1:1/"],
            2,
            "not support the transport ws",
        ),
        (&["-k", "2", "http://127.0.0.1:1/push/a"], 2, "{channel} is required"),
        (&["--churn", "200%", "http://127.0.0.1:1/"], 2, "invalid share"),
        (&["-s", "2", "-n", "1", "--timeout", "200ms", "http://127.0.0.1:1/"], 1, "refused"),
    ] {
        let output = push(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
    let output = push(&["-s", "2", "-n", "1", "http://127.0.0.1:1/"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("refused (connect)"), "{}", text(&output.stderr));
    let unwatched = push(&["--watch", "4194304", "http://127.0.0.1:1/"]);
    assert_eq!(unwatched.status.code(), Some(1));
    assert!(
        text(&unwatched.stderr).contains("--watch 4194304: no such process"),
        "{}",
        text(&unwatched.stderr)
    );
    let (_folder, server) = server("push-none");
    let output = push(&["-s", "2", "-n", "1", &format!("http://{}/no/such/path", server.site)]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("status 404") && said.contains("--subscribe-url"), "{said}");
}

#[test]
fn rejected_messages_are_no_measurement() {
    let folder = Folder::new("push-rejected");
    let public = folder.path("");
    let settings = |auth: &str| format!("[auth]\n{auth}\n[[site]]\nroot = \"{public}\"\n");
    let quiet = folder.write("quiet.toml", &settings("anonymous = [\"subscribe\"]"));
    let quiet = Running::start(&["-c", &quiet]);
    let url = format!("http://{}/", quiet.site);
    let flags = ["-s", "2", "-n", "4", "-r", "100"];
    for more in [&[][..], &["--json"]] {
        let output = push(&[&flags, more, &[&url]].concat());
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{said}");
        for part in ["not published: 4 of 4 (status 40", "pass a token with the right to publish: --token"] {
            assert!(said.contains(part), "no `{part}`: {said}");
        }
        assert!(!said.contains("Too short"), "{said}");
    }
    let missed = push(&[&flags, &["--slo", "errors<1%", &url][..]].concat());
    assert_eq!(missed.status.code(), Some(3), "{}", text(&missed.stderr));

    let closed = folder.write("closed.toml", &settings("anonymous = []"));
    let closed = Running::start(&["-c", &closed]);
    let output = push(&[&flags, &[&*format!("http://{}/", closed.site)][..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("the right to subscribe") && said.contains("encke token --subscribe"), "{said}");
}

#[test]
fn a_header_field_replaces_the_token_of_publishers() {
    let folder = Folder::new("push-two-tokens");
    folder.write("token", "0123456789abcdef");
    let settings =
        "[auth]\ntokens = [{ token = { file = \"token\" }, publish = [\"*\"], subscribe = [\"*\"] }]\n";
    let site = format!("[[site]]\nroot = \"{}\"\n", folder.path(""));
    let server = Running::start(&["-c", &folder.write("encke.toml", &format!("{settings}{site}"))]);
    let url = format!("http://{}/", server.site);
    let field = "authorization: Bearer 0123456789abcdef";
    let output =
        push(&["-s", "2", "-n", "4", "-r", "100", "--json", "-H", field, "--token", "another", &url]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(json["messages"]["refused"], 0, "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("publishers send the Authorization of -H"),
        "{}",
        text(&output.stderr)
    );
}
