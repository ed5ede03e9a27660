//! Limits: rates, admission, memory, and slow subscribers.

use super::*;
use crate::settings::OverrunPolicy;

#[test]
fn an_address_publishes_twice_its_rate_at_once_and_then_gets_a_429() {
    let settings = PushSettings { anonymous_rate: OrOff::On(some(5)), ..PushSettings::default() };
    let mut stage = Stage::with(&settings, &open_to_all());
    let mut peer = stage.net.connect(0);
    let mut statuses = Vec::new();
    let mut last = None;
    for _ in 0..11 {
        stage.net.send(&mut peer, request("POST", "news", "", "x").as_bytes());
        let response = stage.net.response(&mut peer);
        statuses.push(response.status);
        last = Some(response);
    }
    assert_eq!(statuses[..10], [201; 10]);
    let last = last.expect("eleven");
    assert_eq!((last.status, last.field("Retry-After")), (429, Some("1")));
    assert!(last.text().contains("push.anonymous_rate"), "{}", last.text());
    stage.run(seconds(1));
    stage.net.send(&mut peer, request("POST", "news", "", "x").as_bytes());
    assert_eq!(stage.net.response(&mut peer).status, 201);
}

#[test]
fn a_token_has_no_rate() {
    const TOKEN: &str = "writer-0123456789";
    let settings = PushSettings { anonymous_rate: OrOff::On(some(1)), ..PushSettings::default() };
    let auth = AuthSettings {
        anonymous: vec![Act::Publish],
        tokens: vec![token(TOKEN, "writer", ["vip", "", "", ""])],
        ..AuthSettings::default()
    };
    let mut stage = Stage::with(&settings, &auth);
    let mut peer = stage.net.connect(0);
    for _ in 0..10 {
        let fields = format!("Authorization: Bearer {TOKEN}\r\n");
        stage.net.send(&mut peer, request("POST", "vip", &fields, "x").as_bytes());
        assert_eq!(stage.net.response(&mut peer).status, 201);
    }
}

#[test]
fn envelopes_count_as_so_many_messages() {
    let settings = PushSettings { anonymous_rate: OrOff::On(some(5)), ..PushSettings::default() };
    let mut stage = Stage::with(&settings, &open_to_all());
    let kind = "Content-Type: application/x-ndjson\r\n";
    let rejected = stage.ask("POST", "", kind, &"{\"channel\":\"a\",\"data\":1}\n".repeat(11));
    assert_eq!(rejected.status, 429);
    let text = "more than 10 messages at once without a token (push.anonymous_rate): send fewer, or publish with a token\n";
    assert_eq!(rejected.text(), text);
    assert_eq!(stage.ask("POST", "", kind, &"{\"channel\":\"a\",\"data\":1}\n".repeat(10)).status, 201);
}

#[test]
fn a_websocket_that_publishes_too_fast_gets_an_error_or_a_close() {
    let settings = PushSettings { anonymous_rate: OrOff::On(some(1)), ..PushSettings::default() };
    let mut stage = Stage::with(&settings, &open_to_all());
    let mut socket = stage.envelopes("other", "");
    stage.heard(&mut socket);
    let texts: Vec<String> = (0..3)
        .map(|_| {
            stage.say(&mut socket, r#"{"channel":"news","data":1,"ref":1}"#);
            stage.heard(&mut socket)
        })
        .collect();
    assert!(texts[..2].iter().all(|text| text.contains("\"op\":\"ok\"")), "{texts:?}");
    assert!(texts[2].starts_with("{\"op\":\"error\",\"ref\":1,\"status\":429,"), "{texts:?}");
    stage.run(seconds(5));
    let mut plain = stage.socket("plain", "");
    for _ in 0..3 {
        stage.say(&mut plain, "x");
    }
    for _ in 0..2 {
        assert_eq!(stage.frame(&mut plain).1, b"x");
    }
    let closed = stage.closed(&mut plain);
    assert_eq!(closed, (4429, "push.anonymous_rate: publish slower, or with a token".into()));
}

#[test]
fn an_address_that_opens_too_many_channels_gets_a_429() {
    let settings = PushSettings { channel_rate: OrOff::On(some(2)), ..PushSettings::default() };
    let mut stage = Stage::with(&settings, &open_to_all());
    let mut streams = Vec::new();
    for number in 0..4 {
        let mut stream = stage.open(&format!("c{number}?as=ndjson"), "");
        assert_eq!(stage.head(&mut stream).status, 200, "{number}");
        streams.push(stream);
    }
    let rejected = stage.get("c4?as=ndjson", "");
    assert_eq!(rejected.status, 429);
    let text = rejected.text();
    assert!(
        text.starts_with("too many new channels from one address (push.channel_rate): retry in "),
        "{text}"
    );
    let retry_s: u64 = rejected.field("Retry-After").expect("a time").parse().expect("a number");
    assert!((1..=5).contains(&retry_s), "{retry_s}");
    // A channel that is open already costs nothing.
    let mut again = stage.open("c0?as=ndjson", "");
    assert_eq!(stage.head(&mut again).status, 200);
}

#[test]
fn subscribers_above_the_admission_are_rejected_by_each_transport() {
    let settings = PushSettings { admission: OrOff::On(some(1)), ..PushSettings::default() };
    let mut stage = Stage::with(&settings, &open_to_all());
    let mut streams: Vec<_> = (0..2).map(|_| stage.open("news?as=sse", "")).collect();
    for stream in &mut streams {
        stage.wait(stream, "id:");
    }
    let events = stage.get("news?as=sse", "");
    assert_eq!((events.status, events.field("Content-Type")), (200, Some("text/event-stream")));
    let text = events.text();
    assert!(text.starts_with("retry:") && text.ends_with("\n\n") && !text.contains("id:"), "{text:?}");
    let lines = stage.get("news?as=ndjson", "");
    assert_eq!(lines.status, 503);
    let retry_s: u64 = lines.field("Retry-After").expect("a time").parse().expect("a number");
    assert_eq!(
        lines.text(),
        format!("too many new subscribers at once (push.admission): retry in {retry_s} s\n")
    );
    assert!((2..=6).contains(&retry_s), "{retry_s}");
    assert_eq!(lines.field("Connection"), Some("close"));
    assert_eq!(stage.get("news?wait=0", "").status, 503, "the first poll of a connection");
    let mut socket = stage.envelopes("news", "");
    let (code, reason) = stage.closed(&mut socket);
    assert_eq!(code, 1013);
    assert!(reason.parse::<u64>().is_ok_and(|retry_ms| retry_ms >= 1_000), "{reason}");
    stage.run(seconds(2));
    let mut stream = stage.open("news?as=sse", "");
    stage.wait(&mut stream, "id:");
}

#[test]
fn a_further_poll_of_a_connection_is_always_admitted() {
    let settings = PushSettings { admission: OrOff::On(some(1)), ..PushSettings::default() };
    let mut stage = Stage::with(&settings, &open_to_all());
    let mut peer = stage.net.connect(0);
    for _ in 0..5 {
        stage.net.send(&mut peer, request("GET", "news?wait=0", "", "").as_bytes());
        assert_eq!(stage.net.response(&mut peer).status, 204);
    }
}

#[test]
fn subscribers_leave_one_connection_in_a_hundred_to_others() {
    let mut net = SimNet::new(7);
    let plan = plan(&PushSettings::default(), &open_to_all());
    let policy = encke_server::ConnLimits { connections: 100, ..Default::default() };
    net.start_with(SocketAddr::from(([10, 0, 0, 1], 80)), 1, policy, plan.mounts());
    let mut stage = Stage { net, plan };
    let mut streams: Vec<_> = (0..99).map(|_| stage.open("news?as=ndjson", "")).collect();
    for stream in &mut streams {
        assert_eq!(stage.head(stream).status, 200);
    }
    let rejected = stage.get("news?as=ndjson", "");
    assert_eq!(rejected.status, 503);
    let text = rejected.text();
    assert!(
        text.starts_with("the server has reached its limit of connections (limits.connections): "),
        "{text}"
    );
    assert_eq!(stage.ask("POST", "news", "", "x").status, 201);
}

#[test]
fn incomplete_bodies_take_limited_memory() {
    let settings = PushSettings { incoming: encke_settings::ByteSize::of(20_000), ..PushSettings::default() };
    let mut stage = Stage::with(&settings, &open_to_all());
    let begun = |bytes: usize| {
        format!(
            "POST /push/news HTTP/1.1\r\nHost: sim\r\nContent-Length: {}\r\n\r\n{}",
            bytes + 1,
            "x".repeat(bytes)
        )
    };
    let mut first = stage.net.open(0, begun(30_000).as_bytes());
    stage.run(seconds(1));
    let mut second = stage.net.open(0, begun(1_000).as_bytes());
    let rejected = stage.net.response(&mut second);
    assert_eq!((rejected.status, rejected.field("Retry-After")), (503, Some("1")));
    assert_eq!(rejected.text(), "too many incomplete messages (push.incoming): retry in a second\n");
    // A single message is always accepted.
    stage.net.send(&mut first, b"x");
    assert_eq!(stage.net.response(&mut first).status, 201);
    stage.post("news", &"x".repeat(15_000));
}

/// A subscriber that reads nothing while its channel evicts messages, and its content once it reads.
fn slow(policy: OverrunPolicy) -> (SimResponse, Stage) {
    let mut settings = channels(|channel| {
        channel.messages = 2;
        channel.policy = policy;
    });
    settings.anonymous_rate = OrOff::Off;
    let mut stage = Stage::with(&settings, &open_to_all());
    let mut stream = stage.open("news?as=ndjson", "");
    stage.wait(&mut stream, "\n");
    stream.set_window(10);
    for number in 0..40 {
        stage.post("news", &format!("m{number}:{}", "x".repeat(20_000)));
    }
    stream.set_window(1 << 20);
    stage.run(seconds(2));
    let response = stage.head(&mut stream);
    (response, stage)
}

#[test]
fn a_slow_subscriber_is_disconnected_by_default() {
    let (response, mut stage) = slow(OverrunPolicy::Disconnect);
    assert!(!response.text().contains("m39:"), "{} bytes", response.body.len());
    assert_eq!(stage.get("news?since=last:1&wait=0", "").text().split(':').next(), Some("m39"));
}

#[test]
fn a_slow_subscriber_with_skip_gets_the_gap_and_the_rest() {
    let (response, _stage) = slow(OverrunPolicy::Skip);
    let text = response.text();
    assert!(text.contains("\"op\":\"gap\"") && text.contains("\"reason\":\"late\""), "{} bytes", text.len());
    assert!(text.contains("m38:") && text.contains("m39:"));
}

#[test]
fn a_slow_subscriber_with_latest_gets_the_newest_message_alone() {
    let (response, _stage) = slow(OverrunPolicy::Latest);
    let text = response.text();
    assert!(!text.contains("\"op\":\"gap\""), "{} bytes", text.len());
    assert!(text.contains("m39:") && !text.contains("m38:"));
}

#[test]
fn messages_expire_at_their_age() {
    let mut stage = Stage::with(&channels(|channel| channel.age = Period::seconds(10)), &open_to_all());
    stage.post("news", "old");
    stage.run(seconds(9));
    assert_eq!(stage.get("news?since=all&wait=0", "").text(), "old");
    stage.run(seconds(2));
    assert_eq!(stage.get("news?since=all&wait=0", "").status, 204);
}

#[test]
fn settings_select_the_rules_of_the_most_specific_pattern() {
    let channel = |pattern: &str, messages| ChannelSettings {
        pattern: pattern.into(),
        messages,
        ..ChannelSettings::default()
    };
    let settings = PushSettings {
        channel: vec![channel("**", 3), channel("a/*", 2), channel("a/x", 1)],
        anonymous_rate: OrOff::Off,
        ..PushSettings::default()
    };
    let mut stage = Stage::with(&settings, &open_to_all());
    for (name, kept) in [("b", 3), ("a/y", 2), ("a/x", 1)] {
        for _ in 0..5 {
            stage.post(name, "x");
        }
        let info = stage.get(&format!("{name}?info"), "").text();
        assert!(info.contains(&format!("\"messages\":{kept},")), "{info}");
    }
}
