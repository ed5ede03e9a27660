//! Rights of clients: statuses, texts, and the end of subscriptions.

use super::*;

const WRITER: &str = "writer-0123456789";
const READER: &str = "reader-0123456789";
const ADMIN: &str = "admin-01234567890";

fn guarded(anonymous: &[Act]) -> Stage {
    let auth = AuthSettings {
        anonymous: anonymous.to_vec(),
        tokens: vec![
            token(WRITER, "writer", ["news", "", "", ""]),
            token(READER, "reader", ["", "news", "", ""]),
            token(ADMIN, "admin", ["**", "**", "**", "**"]),
        ],
        ..AuthSettings::default()
    };
    Stage::with(&PushSettings::default(), &auth)
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn a_request_without_a_token_is_a_401_with_a_challenge() {
    let mut stage = guarded(&[]);
    for (method, target) in
        [("POST", "news"), ("GET", "news"), ("DELETE", "news"), ("GET", ""), ("GET", "news?info")]
    {
        let rejected = stage.ask(method, target, "", "");
        assert_eq!(rejected.status, 401, "{method} {target}");
        assert_eq!(rejected.field("WWW-Authenticate"), Some("Bearer"), "{method} {target}");
        assert_eq!(rejected.field("Cache-Control"), Some("no-store"));
    }
}

#[test]
fn a_token_without_the_right_is_a_403() {
    let mut stage = guarded(&[]);
    for (method, target, token, status) in [
        ("POST", "news", WRITER, 201),
        ("POST", "news", READER, 403),
        ("POST", "other", WRITER, 403),
        ("POST", "news,other", WRITER, 403),
        ("GET", "news?wait=0", READER, 204),
        ("GET", "news?wait=0", WRITER, 403),
        ("GET", "news,other?wait=0", READER, 403),
        ("GET", "news?info", READER, 200),
        ("DELETE", "news", WRITER, 403),
        ("DELETE", "news", READER, 403),
        ("GET", "", READER, 403),
        ("GET", "", ADMIN, 200),
        ("DELETE", "?user=reader", READER, 403),
        ("DELETE", "news", ADMIN, 204),
        ("POST", "news", "unknown-0123456789", 401),
    ] {
        let response = stage.ask(method, target, &bearer(token), if method == "POST" { "x" } else { "" });
        assert_eq!(response.status, status, "{method} {target} {token}: {}", response.text());
        assert_eq!(response.head.contains("WWW-Authenticate"), status == 401);
    }
}

#[test]
fn an_envelope_without_the_right_publishes_nothing() {
    let mut stage = guarded(&[]);
    let lines = "{\"channel\":\"news\",\"data\":1}\n{\"channel\":\"other\",\"data\":1}\n";
    let fields = format!("Content-Type: application/x-ndjson\r\n{}", bearer(WRITER));
    let rejected = stage.ask("POST", "", &fields, lines);
    assert_eq!(rejected.status, 403);
    let text = rejected.text();
    assert!(text.starts_with("line 2: ") && text.ends_with("; nothing was published\n"), "{text}");
    assert_eq!(stage.get("news?since=all&wait=0", &bearer(READER)).status, 204);
}

#[test]
fn a_websocket_needs_the_right_for_each_command() {
    let mut stage = guarded(&[]);
    let mut socket = stage.envelopes("news", &bearer(READER));
    stage.heard(&mut socket);
    stage.say(&mut socket, r#"{"channel":"news","data":1,"ref":1}"#);
    assert_eq!(
        stage.heard(&mut socket),
        r#"{"op":"error","ref":1,"status":403,"text":"you may not publish to news"}"#
    );
    stage.say(&mut socket, r#"{"op":"subscribe","channels":["news","other"],"ref":2}"#);
    assert_eq!(
        stage.heard(&mut socket),
        r#"{"op":"error","ref":2,"status":403,"text":"you may not subscribe to other"}"#
    );
    let mut plain = stage.socket("news", &bearer(READER));
    stage.say(&mut plain, "hello");
    assert_eq!(stage.closed(&mut plain), (4403, "you may not publish here".into()));
}

#[test]
fn a_log_out_ends_the_subscriptions_of_a_user_alone() {
    let mut stage = guarded(&[]);
    let mut stream = stage.open("news?as=sse", &bearer(READER));
    stage.wait(&mut stream, "retry:");
    let mut socket = stage.envelopes("news", &bearer(READER));
    stage.heard(&mut socket);
    let mut other = stage.open("news?as=sse", &bearer(ADMIN));
    stage.wait(&mut other, "retry:");
    let mut poll = stage.open("news", &bearer(READER));
    stage.run(seconds(1));
    let reply = stage.ask("DELETE", "?user=reader", &bearer(ADMIN), "");
    assert_eq!((reply.status, &*reply.text()), (200, "{\"disconnected\":3}\n"));
    assert!(stage.net.response(&mut stream).is_complete);
    let text = "an administrator has ended the subscriptions of this user";
    assert_eq!(stage.closed(&mut socket), (4403, text.into()));
    assert_eq!(stage.net.response(&mut poll).status, 403);
    stage.run(seconds(1));
    assert!(!stage.head(&mut other).is_complete);
    let none = stage.ask("DELETE", "?user=reader", &bearer(ADMIN), "");
    assert_eq!(none.text(), "{\"disconnected\":0}\n");
    let mut again = stage.open("news?as=sse", &bearer(READER));
    stage.wait(&mut again, "retry:");
    assert!(!stage.head(&mut again).is_complete, "the token still works, as the action says");
}

#[test]
fn a_log_out_of_a_channel_keeps_the_other_subscriptions() {
    let mut stage = guarded(&[]);
    let mut streams: Vec<_> =
        ["news", "other"].map(|channel| stage.open(&format!("{channel}?as=sse"), &bearer(ADMIN))).into();
    for stream in &mut streams {
        stage.wait(stream, "retry:");
    }
    let reply = stage.ask("DELETE", "other?user=admin", &bearer(ADMIN), "");
    assert_eq!(reply.text(), "{\"disconnected\":1}\n");
    stage.run(seconds(1));
    let complete: Vec<bool> = streams.iter_mut().map(|stream| stage.head(stream).is_complete).collect();
    assert_eq!(complete, [false, true]);
}

#[test]
fn a_log_out_needs_a_valid_name() {
    let mut stage = guarded(&[]);
    let long = "u".repeat(1_025);
    for (query, text) in [
        ("user=", "invalid user: expected a name of 1 to 1024 bytes\n"),
        (&*format!("user={long}"), "invalid user: expected a name of 1 to 1024 bytes\n"),
        ("user=a&user=b", "user is given twice: name one user\n"),
        ("usr=a", "unknown parameter \"usr\": DELETE takes user and access_token\n"),
        (
            "",
            "the path names no channel: DELETE /push/CHANNEL deletes messages, DELETE /push/?user=NAME logs a user out\n",
        ),
    ] {
        let rejected = stage.ask("DELETE", &format!("?{query}"), &bearer(ADMIN), "");
        assert_eq!((rejected.status, &*rejected.text()), (400, text), "{query}");
    }
    let longest = "u".repeat(1_024);
    assert_eq!(stage.ask("DELETE", &format!("?user={longest}"), &bearer(ADMIN), "").status, 200);
}

#[test]
fn members_are_listed_for_clients_with_the_right_to_presence() {
    let mut push = channels(|channel| channel.presence = true);
    push.anonymous_rate = OrOff::Off;
    let auth = AuthSettings {
        anonymous: vec![Act::Subscribe],
        tokens: vec![token(ADMIN, "admin", ["**", "**", "**", "**"])],
        ..AuthSettings::default()
    };
    let mut stage = Stage::with(&push, &auth);
    let mut named = stage.open("room?as=sse&name=b%22x", "");
    stage.wait(&mut named, "retry:");
    let mut known = stage.open("room?as=sse&name=ignored", &bearer(ADMIN));
    stage.wait(&mut known, "retry:");
    let mut nameless = stage.open("room?as=sse", "");
    stage.wait(&mut nameless, "retry:");
    stage.run(seconds(2));
    let info = stage.get("room?info", &bearer(ADMIN)).text();
    assert!(info.contains("\"members\":[\"admin\",\"b\\\"x\"]"), "{info}");
    assert!(info.contains("\"subscribers\":3"), "{info}");
    let public = stage.get("room?info", "").text();
    assert!(!public.contains("members"), "{public}");
}

#[test]
fn a_reload_that_removes_a_right_ends_its_subscriptions() {
    let mut stage = guarded(&[Act::Subscribe]);
    let mut stream = stage.open("news?as=sse", "");
    stage.wait(&mut stream, "retry:");
    let mut socket = stage.envelopes("news", "");
    stage.heard(&mut socket);
    let auth = AuthSettings {
        tokens: vec![token(ADMIN, "admin", ["**", "**", "**", "**"])],
        ..AuthSettings::default()
    };
    let new = PushPlan::new(&PushSettings::default(), &auth, Openness::Shut(Shut::Settings)).expect("valid");
    let new = Arc::new(new.with_epoch_of(&stage.plan));
    stage
        .net
        .server(0)
        .reload(encke_server::ConnLimits { connections: 1_000, ..Default::default() }, new.mounts());
    assert!(stage.net.response(&mut stream).is_complete);
    assert_eq!(stage.closed(&mut socket), (4401, "the server has new settings, without this right".into()));
    assert_eq!(stage.get("news", "").status, 401);
}
