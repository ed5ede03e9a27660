//! The right to manage: lists of channels, and log-outs of users.

use std::sync::Arc;

use encke_assembly::settings::{Act, AuthSettings, KeySettings, PushSettings, Secret};
use encke_push::PushPlan;
use encke_rights::{Openness, Shut, Signer, TokenContents};
use encke_server::CloseReason;
use encke_wire::websocket::Opcode;
use serde_json::Value;

use super::push_clients::{Socket, Stream, publish, publish_by, stand, wait_for_subscribers};
use crate::rig::{Answer, End, Rig, Stand};

on_every_stand! {
    a_log_out_ends_every_kind_of_subscriber_of_the_user,
    channels_are_listed_in_pages_by_name,
}

on_two_stands! {
    a_list_has_only_channels_that_the_token_may_manage,
    a_list_needs_the_right_to_manage,
    an_invalid_query_of_a_list_is_reported,
    a_log_out_keeps_other_users_channels_and_messages,
    a_log_out_needs_the_right_to_manage,
    a_misspelled_user_deletes_no_messages,
    a_chosen_name_is_not_a_user,
    a_busy_socket_of_a_user_ends_at_a_log_out,
}

pub(super) fn serve(on: Stand, anonymous: Vec<Act>) -> (Rig, Signer) {
    let secret = Secret::Text("0123456789abcdef0123456789abcdef".into());
    let key = KeySettings { kid: None, secret: Some(secret), pem: None };
    let auth = AuthSettings { keys: vec![key], anonymous, ..AuthSettings::default() };
    let rig = on.serve(|server| {
        let shut = Openness::Shut(Shut::Settings);
        let plan = PushPlan::new(&PushSettings::default(), &auth, shut).expect("valid settings");
        server.mount_all(Arc::new(plan).mounts())
    });
    (rig, Signer::of_settings(&auth, None).expect("a key that signs"))
}

/// Signs a token of a user that may publish and subscribe everywhere, and manage these channels.
pub(super) fn token(signer: &Signer, user: &str, manage: &[&str]) -> String {
    let all = vec!["**".to_owned()];
    let contents = TokenContents {
        subject: (!user.is_empty()).then(|| user.to_owned()),
        publish: all.clone(),
        subscribe: all,
        manage: manage.iter().map(|pattern| (*pattern).to_owned()).collect(),
        ..TokenContents::default()
    };
    signer.sign(&contents).expect("a token")
}

fn ask(rig: &Rig, method: &str, target: &str, token: &str) -> Answer {
    let authorization =
        if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    rig.client().ask(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\n"))
}

fn list(rig: &Rig, query: &str, token: &str) -> Value {
    let answer = ask(rig, "GET", &format!("/push/{query}"), token);
    assert_eq!((answer.status, answer.field("Content-Type")), (200, Some("application/json")), "{answer:?}");
    serde_json::from_str(answer.text()).expect("JSON")
}

fn names(list: &Value) -> Vec<&str> {
    let rows = list["channels"].as_array().expect("a list");
    rows.iter().map(|row| row["channel"].as_str().expect("a name")).collect()
}

/// Returns the number of subscriptions that a log-out has ended.
fn log_out(rig: &Rig, target: &str, token: &str) -> u64 {
    let answer = ask(rig, "DELETE", target, token);
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str::<Value>(answer.text()).expect("JSON")["disconnected"].as_u64().expect("a number")
}

fn channels_are_listed_in_pages_by_name(on: Stand) {
    let rig = stand(on);
    assert_eq!(list(&rig, "", ""), serde_json::json!({ "channels": [], "total": 0 }));
    // More than a page, and more than a slice.
    let count = 1_100;
    let lines: Vec<String> =
        (0..count).map(|n| format!("{{\"channel\":\"c/{:04}\",\"data\":\"x\"}}", n * 7 % count)).collect();
    let answer = super::push_clients::post(
        &rig,
        "/push/",
        "Content-Type: application/x-ndjson\r\n",
        lines.join("\n").as_bytes(),
    );
    assert_eq!(answer.status, 201, "{answer:?}");
    let mut streams: Vec<Stream> = (0..3).map(|_| Stream::open(&rig, "/push/read/only,c/0001", "")).collect();
    wait_for_subscribers(&rig, 3);
    let first = list(&rig, "", "");
    assert_eq!(
        (names(&first).len(), &first["total"], &first["next"]),
        (100, &1_101.into(), &"c/0099".into())
    );
    let row = &first["channels"][1];
    let info: Value = serde_json::from_str(rig.client().get("/push/c/0001?info").text()).expect("JSON");
    for key in ["channel", "messages", "bytes", "first", "last", "subscribers"] {
        assert_eq!(row[key], info[key], "{key}: {row}");
    }
    assert_eq!(
        (&row["subscribers"], &row["messages"], &row["durable"]),
        (&3.into(), &1.into(), &false.into())
    );
    assert!(row["age_ms"].as_u64().is_some_and(|age| age < 600_000), "{row}");
    // All pages together have every channel once, in order.
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = list(&rig, &format!("?limit=400&after={after}"), "");
        all.extend(names(&page).into_iter().map(str::to_owned));
        let Some(next) = page["next"].as_str() else { break };
        next.clone_into(&mut after);
    }
    let expected: Vec<String> = (0..count).map(|n| format!("c/{n:04}")).chain(["read/only".into()]).collect();
    assert_eq!(all, expected);
    let page = list(&rig, "?pattern=read/**", "");
    assert_eq!((names(&page), &page["total"], &page["next"]), (vec!["read/only"], &1.into(), &Value::Null));
    let row = &page["channels"][0];
    assert_eq!((&row["messages"], &row["last"], &row["age_ms"]), (&0.into(), &Value::Null, &Value::Null));
    streams.clear();
}

fn a_list_has_only_channels_that_the_token_may_manage(on: Stand) {
    let (rig, signer) = serve(on, Vec::new());
    let admin = token(&signer, "admin", &["team/*", "news"]);
    let mut client = rig.client();
    for channel in ["news", "other", "team/1", "team/2", "team/2/deep"] {
        assert_eq!(publish_by(&mut client, channel, &admin, "x").status, 201);
    }
    let page = list(&rig, "", &admin);
    assert_eq!((names(&page), &page["total"]), (vec!["news", "team/1", "team/2"], &3.into()));
    let page = list(&rig, "?pattern=*&limit=1", &admin);
    assert_eq!((names(&page), &page["total"]), (vec!["news"], &1.into()));
    // A list never has a channel twice, and the name after which it begins need not exist.
    assert_eq!(names(&list(&rig, "?after=team/10", &admin)), ["team/2"]);
}

fn a_list_needs_the_right_to_manage(on: Stand) {
    let (rig, signer) = serve(on, vec![Act::Subscribe]);
    let answer = ask(&rig, "GET", "/push/", "");
    assert_eq!(answer.status, 401);
    assert!(answer.text().starts_with("a token is required to manage any channel: send one"), "{answer:?}");
    let answer = ask(&rig, "GET", "/push/", &token(&signer, "ann", &[]));
    assert_eq!((answer.status, answer.text()), (403, "the token grants no right to manage any channel\n"));
    // A stream of no channel is an error, not a list.
    let admin = token(&signer, "admin", &["**"]);
    let request = format!(
        "GET /push/ HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nAuthorization: Bearer {admin}\r\n\r\n"
    );
    assert_eq!(rig.client().ask(request).status, 404);
}

fn an_invalid_query_of_a_list_is_reported(on: Stand) {
    let rig = stand(on);
    for (query, text) in [
        ("limit=0", "invalid limit=0: expected a number from 1 to 1000\n"),
        ("limit=1001", "invalid limit=1001: expected a number from 1 to 1000\n"),
        ("limit=x", "invalid limit=x: expected a number from 1 to 1000\n"),
        ("after=a//b", "invalid after=a//b: empty segment at byte 2: remove a slash\n"),
        (
            "pattern=**/a",
            "invalid pattern=**/a: ** at byte 0 must be the last segment: write * for one segment\n",
        ),
        (
            "limit=1&patern=a",
            "unknown parameter \"patern\": a list takes after, limit, pattern and access_token\n",
        ),
    ] {
        let answer = rig.client().get(&format!("/push/?{query}"));
        assert_eq!((answer.status, answer.text()), (400, text), "{query}");
    }
}

fn a_log_out_ends_every_kind_of_subscriber_of_the_user(on: Stand) {
    let (rig, signer) = serve(on, Vec::new());
    let (ann, admin) = (token(&signer, "ann", &[]), token(&signer, "admin", &["**"]));
    let mut clients = Vec::new();
    for accept in ["text/event-stream", "application/x-ndjson"] {
        let mut client = rig.client();
        client.send(format!(
            "GET /push/room HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nAuthorization: Bearer {ann}\r\n\r\n"
        ));
        assert_eq!(client.head().status, 200);
        clients.push(client);
    }
    let mut polls = [rig.client(), rig.client()];
    for (poll, shape) in polls.iter_mut().zip(["poll", "json"]) {
        poll.send(format!(
            "GET /push/room?wait=55&as={shape}&access_token={ann} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ));
    }
    let mut sockets = ["", "encke.v1"]
        .map(|protocol| Socket::open(&rig, &format!("/push/room?access_token={ann}"), protocol));
    sockets[1].text();
    wait_for_subscribers(&rig, 6);
    assert_eq!(log_out(&rig, "/push/?user=ann", &admin), 6);
    for client in &mut clients {
        let (bytes, end) = client.rest();
        assert_eq!(end, End::Finished);
        assert!(bytes.ends_with(b"0\r\n\r\n"), "a whole response: {:?}", String::from_utf8_lossy(&bytes));
    }
    for poll in &mut polls {
        let answer = poll.answer();
        assert_eq!(answer.status, 403, "{answer:?}");
        assert_eq!(answer.text(), "an administrator has ended the subscriptions of this user\n");
        assert_eq!(poll.end(), End::Finished);
    }
    for socket in &mut sockets {
        assert_eq!(socket.close_code(), 4403);
    }
    drop(sockets);
    rig.wait_for_closes(CloseReason::LoggedOut, 6);
    wait_for_subscribers(&rig, 0);
    assert_eq!(log_out(&rig, "/push/?user=ann", &admin), 0);
}

fn a_log_out_keeps_other_users_channels_and_messages(on: Stand) {
    let (rig, signer) = serve(on, Vec::new());
    let admin = token(&signer, "admin", &["team/*"]);
    let [ann, bob] = ["ann", "bob"].map(|user| token(&signer, user, &[]));
    let fields = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let mut publisher = rig.client();
    assert_eq!(publish_by(&mut publisher, "team/1", &bob, "kept").status, 201);
    let mut in_team = Stream::open(&rig, "/push/team/1,news", &fields(&ann));
    let mut in_other_team = Stream::open(&rig, "/push/team/2", &fields(&ann));
    let mut in_news = Stream::open(&rig, "/push/news", &fields(&ann));
    let mut of_bob = Stream::open(&rig, "/push/team/1", &fields(&bob));
    assert_eq!(log_out(&rig, "/push/team/1?user=ann", &admin), 1);
    assert_eq!(in_team.client.rest().1, End::Finished);
    // Without a channel: wherever the administrator may manage one.
    assert_eq!(log_out(&rig, "/push/?user=ann", &admin), 1);
    assert_eq!(in_other_team.client.rest().1, End::Finished);
    assert_eq!(ask(&rig, "DELETE", "/push/news?user=ann", &admin).status, 403);
    assert_eq!(publish_by(&mut publisher, "news", &bob, "still here").status, 201);
    assert_eq!(in_news.data(), "still here");
    assert_eq!(publish_by(&mut publisher, "team/1", &bob, "there").status, 201);
    assert_eq!(of_bob.data(), "there");
    let batch = ask(&rig, "GET", "/push/team/1?since=all&wait=0&as=json", &ann);
    assert!(batch.text().contains("kept") && batch.text().contains("there"), "the token works on: {batch:?}");
}

fn a_log_out_needs_the_right_to_manage(on: Stand) {
    let (rig, signer) = serve(on, Vec::new());
    let ann = token(&signer, "ann", &[]);
    let mut stream = Stream::open(&rig, "/push/room", &format!("Authorization: Bearer {ann}\r\n"));
    for target in ["/push/room?user=ann", "/push/?user=ann"] {
        assert_eq!(ask(&rig, "DELETE", target, "").status, 401, "{target}");
        assert_eq!(ask(&rig, "DELETE", target, &ann).status, 403, "{target}");
    }
    assert_eq!(publish_by(&mut rig.client(), "room", &ann, "still here").status, 201);
    assert_eq!(stream.data(), "still here");
}

fn a_misspelled_user_deletes_no_messages(on: Stand) {
    let rig = stand(on);
    assert_eq!(publish(&rig, "a", "kept").status, 201);
    for (target, text) in [
        ("/push/a?usr=ann", "unknown parameter \"usr\": DELETE takes user and access_token\n"),
        ("/push/a?user", "invalid user: expected a name of 1 to 1024 bytes\n"),
        ("/push/a?user=", "invalid user: expected a name of 1 to 1024 bytes\n"),
        ("/push/a?user=a&user=b", "user is given twice: name one user\n"),
        (
            "/push/",
            "the path names no channel: DELETE /push/CHANNEL deletes messages, DELETE /push/?user=NAME logs a user out\n",
        ),
    ] {
        let answer = ask(&rig, "DELETE", target, "");
        assert_eq!((answer.status, answer.text()), (400, text), "{target}");
    }
    assert_eq!(rig.client().get("/push/a?since=all&wait=0").text(), "kept");
}

fn a_chosen_name_is_not_a_user(on: Stand) {
    let (rig, signer) = serve(on, vec![Act::Subscribe]);
    let admin = token(&signer, "admin", &["**"]);
    let nameless = token(&signer, "", &[]);
    let mut anonymous = Stream::open(&rig, "/push/room?name=ann", "");
    let mut named =
        Stream::open(&rig, "/push/room?name=ann", &format!("Authorization: Bearer {nameless}\r\n"));
    assert_eq!(log_out(&rig, "/push/?user=ann", &admin), 0);
    assert_eq!(publish_by(&mut rig.client(), "room", &admin, "still here").status, 201);
    assert_eq!([anonymous.data(), named.data()], ["still here", "still here"]);
}

/// The socket publishes without a pause, so that sends and messages are in flight at the log-out.
fn a_busy_socket_of_a_user_ends_at_a_log_out(on: Stand) {
    let (rig, signer) = serve(on, Vec::new());
    let (ann, admin) = (token(&signer, "ann", &[]), token(&signer, "admin", &["**"]));
    let mut socket = Socket::open(&rig, &format!("/push/room?access_token={ann}"), "encke.v1");
    socket.text();
    std::thread::scope(|scope| {
        let socket = scope.spawn(move || {
            loop {
                socket.say(Opcode::Text, br#"{"channel":"room","data":{"x":1},"ref":1}"#);
                match socket.hear() {
                    (8, payload) => break u16::from_be_bytes([payload[0], payload[1]]),
                    (opcode, _) => assert_eq!(opcode, Opcode::Text as u8),
                }
            }
        });
        assert_eq!(log_out(&rig, "/push/?user=ann", &admin), 1);
        assert_eq!(socket.join().expect("no panic"), 4403);
    });
    rig.wait_for_closes(CloseReason::LoggedOut, 1);
}
