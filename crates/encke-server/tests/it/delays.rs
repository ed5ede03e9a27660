//! No response waits for an acknowledgement. If the kernel holds back a packet until the client's delayed acknowledgement
//! arrives (Nagle's algorithm, MSG_MORE without a further send), each response takes 40 ms more.
//!
//! A busy machine delays some responses by as much. A bug in Encke delays every response of a kind, except the first ones of a
//! connection, which Linux acknowledges at once. So the fastest tenth of those that follow is judged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use encke_server::{Outcome, Request};

use crate::rig::handlers::{Pattern, hello, pattern, streamed};
use crate::rig::{Client, Folder, Stand, files};

on_every_back_end! {
    no_answer_waits_for_an_acknowledgement,
}

/// Linux delays an acknowledgement by at least 40 ms (tcp(7), TCP_QUICKACK). Slightly less is equally suspicious.
const STALL: Duration = Duration::from_millis(38);
const ROUNDS: usize = 200;
/// The first rounds of a connection: Linux acknowledges up to 16 segments of a new one at once.
const FIRST: usize = 20;
/// The index of the round that is judged, ordered by time: so many were faster.
const QUICK: usize = 20;

fn no_answer_waits_for_an_acknowledgement(stand: Stand) {
    let sixteen = pattern(16 * 1024);
    let folder =
        Folder::new().with("small", "13 bytes here").with("sixteen", sixteen).with("large", pattern(300_000));
    let files = files(&folder);
    let rig = stand.serve(|server| {
        server.mount("/", files).mount("/hello", hello).mount("/stream", |_: &Request<'_>, _| {
            Outcome::Now(streamed(Pattern { bytes: pattern(20_000), pulled: Arc::default() }))
        })
    });
    let get = |name: &str| format!("GET /{name} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for (requests, count) in [
        (get("small"), 1),
        (get("sixteen"), 1),
        (get("large"), 1),
        (get("hello"), 1),
        (get("stream"), 1),
        (get("small").repeat(4), 4),
        ([get("small"), get("sixteen"), get("hello")].concat(), 3),
        ([get("sixteen"), get("small"), get("absent")].concat(), 3),
        ([get("stream"), get("small")].concat(), 2),
    ] {
        let mut client = rig.client();
        let times = (0..ROUNDS).map(|_| exchange(&mut client, &requests, count)).skip(FIRST);
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        let quick = times[QUICK];
        let stalled = times.iter().filter(|&&time| time >= STALL).count();
        assert!(
            quick < STALL,
            "{requests:?}: only {QUICK} took less than {quick:?}, {stalled} of {} stalled",
            times.len()
        );
    }
    // The head first, its file later, on new connections.
    let mut times: Vec<Duration> =
        (0..ROUNDS).map(|_| exchange(&mut rig.client(), &get("sixteen"), 1)).collect();
    times.sort_unstable();
    assert!(times[QUICK] < STALL, "on a new connection: {:?}", times[QUICK]);
}

fn exchange(client: &mut Client, requests: &str, answers: usize) -> Duration {
    let begun = Instant::now();
    client.send(requests);
    client.answers(answers);
    begun.elapsed()
}
