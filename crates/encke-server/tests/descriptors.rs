//! Out of descriptors: accepting pauses, existing connections are served, no worker spins, and accepting resumes by itself.
//!
//! A separate test program, because the limit applies to the process; and one test, because tests would share it.
#![cfg(unix)]

#[path = "rig/mod.rs"]
mod rig;

use std::fs::File;

use encke_io::Backend;
use encke_server::CloseReason;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use rig::handlers::{Echo, hello};
use rig::{Client, Folder, Rig, Stand, files};

/// Small, so that it is soon used up, with room for the descriptors of the test.
const LIMIT: u64 = 256;
/// A waiting worker turns once per wake-up and once per timer. The rest is for other events.
const TURNS_PER_RETRY: u64 = 8;

#[test]
fn a_server_without_descriptors_serves_on_and_recovers() {
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum: hard }).expect("a lower limit");
    for backend in Backend::NAMED {
        for workers in [1, 4] {
            println!("{backend}, {workers} workers");
            runs_out_and_recovers(Stand { backend, workers });
        }
    }
}

fn runs_out_and_recovers(stand: Stand) {
    let folder = Folder::new().with("file", "content");
    let files = files(&folder);
    let rig = stand.serve(|server| server.mount("/", hello).mount("/echo", Echo).mount("/file", files));
    let mut inside: Vec<Client> = (0..4).map(|_| rig.client()).collect();
    // All of them are busy, so none can be closed to make room.
    for client in &mut inside {
        client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    }
    rig.wait(|| rig.count("encke_exchanges_open") == 4, "all are accepted");

    let mut hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    // Room for the client's end of a connection, but not for the server's.
    hoard.pop();
    let mut outside = rig.client();
    outside.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let before = rig.count("encke_accept_pauses_total");
    rig.wait(|| rig.count("encke_accept_pauses_total") > before, "accepting pauses");

    // Accepting is retried from time to time, and between retries no worker turns.
    let (pauses, turns) = (rig.count("encke_accept_pauses_total"), rig.count("encke_turns_total"));
    rig.wait(|| rig.count("encke_accept_pauses_total") >= pauses + 5, "accepting is tried again");
    let retries = rig.count("encke_accept_pauses_total") - pauses;
    let turned = rig.count("encke_turns_total") - turns;
    assert!(turned <= (retries + 1) * TURNS_PER_RETRY, "{turned} turns for {retries} tries{}", rig.told());

    // Open connections are served one after the other. When the last one closes, a new one takes its place.
    for client in &mut inside {
        client.send("full");
        assert_eq!(client.answer().text(), "halffull");
    }
    assert_eq!(rig.closes(CloseReason::System), 0);
    drop(inside.pop());
    assert_eq!(outside.answer().text(), "Hello\n");
    drop(hoard);
    recovers(&rig);
}

fn recovers(rig: &Rig) {
    let mut clients: Vec<Client> = (0..40).map(|_| rig.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").text(), "Hello\n");
        assert_eq!(client.get("/file").text(), "content");
    }
}
