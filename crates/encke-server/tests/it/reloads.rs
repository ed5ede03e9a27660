//! Reloads: handlers are replaced, any number of times.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use encke_server::{ConnLimits, Exchange, Mount, Outcome, Reply, Request};

use crate::rig::handlers::hello;
use crate::rig::{PATIENCE, Rig, Stand};

on_two_stands! {
    a_reload_is_complete_once_every_worker_has_applied_it,
    the_newest_handlers_serve_after_more_reloads_than_there_are_numbers,
}

fn a_reload_is_complete_once_every_worker_has_applied_it(on: Stand) {
    let (begun, entered) = channel();
    let (release, released) = channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let blocking = move |_: &Request<'_>, _: Exchange| {
        begun.send(()).expect("the case waits");
        let _ended = released.lock().expect("one request").recv();
        Outcome::Now(Reply::text(200, "late"))
    };
    let rig = on.serve(|server| server.mount("/", hello).mount("/block", blocking));
    assert!(rig.running().has_reloaded(Duration::ZERO), "no reload yet");
    let mut busy = rig.client();
    busy.send("GET /block HTTP/1.1\r\nHost: a\r\n\r\n");
    entered.recv().expect("a worker is in the handler");
    reload(&rig, 1);
    assert!(!rig.running().has_reloaded(Duration::ZERO), "a worker has no turn");
    release.send(()).expect("the handler waits");
    assert!(rig.running().has_reloaded(PATIENCE));
    for _ in 0..8 {
        assert_eq!(rig.client().get("/").text(), "site 1");
    }
    assert_eq!(busy.answer().text(), "late");
}

/// More than there are handler numbers.
const RELOADS: u32 = 70_000;

fn says(text: String) -> Arc<dyn Mount> {
    Arc::new(move |_: &Request<'_>, _: Exchange| Outcome::Now(Reply::text(200, text.clone())))
}

fn reload(rig: &Rig, number: u32) {
    let mounts =
        vec![("/".into(), says(format!("site {number}"))), ("/in/".into(), says(format!("in {number}")))];
    rig.running().reload(ConnLimits::default(), Some(mounts));
}

fn the_newest_handlers_serve_after_more_reloads_than_there_are_numbers(on: Stand) {
    let rig = on.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    for number in 1..=RELOADS {
        reload(&rig, number);
        if number % 10_000 == 0 {
            rig.wait(|| client.get("/").text() == format!("site {number}"), "the newest handler serves");
            assert_eq!(client.get("/in/").text(), format!("in {number}"), "the longest prefix decides");
        }
    }
    rig.end();
}
