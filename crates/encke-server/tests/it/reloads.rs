//! Reloads: handlers are replaced, any number of times.

use std::sync::Arc;

use encke_server::{ConnLimits, Exchange, Mount, Outcome, Reply, Request};

use crate::rig::handlers::hello;
use crate::rig::{Rig, Stand};

on_two_stands! {
    the_newest_handlers_serve_after_more_reloads_than_there_are_numbers,
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
