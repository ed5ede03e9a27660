//! Out of descriptors: accepting pauses, who is there is served, nothing spins, and it goes on by itself.
//!
//! A test program of its own, because the limit is the process's, and one test, because tests share it.
#![cfg(unix)]

#[path = "rig/mod.rs"]
mod rig;

use std::fs::File;

use encke_io::Backend;
use encke_server::CloseReason;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use rig::handlers::{Echo, hello};
use rig::{Client, Folder, Rig, Stand, files};

/// Small, so that it is soon used up, and room for everything that the test itself holds.
const LIMIT: u64 = 256;
/// A worker that waits turns once when it is woken, and once when its timer ends; some more for what else comes.
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
    // All of them are busy, so that none can be let go to make room.
    for client in &mut inside {
        client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    }
    rig.wait(|| rig.count("encke_exchanges_open") == 4, "all are accepted");

    let mut hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    // Room for the client's end of a connection, and none for the server's.
    hoard.pop();
    let mut outside = rig.client();
    outside.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let before = rig.count("encke_accept_pauses_total");
    rig.wait(|| rig.count("encke_accept_pauses_total") > before, "accepting pauses");

    // It is tried again every now and then, and between the tries nothing turns.
    let (pauses, turns) = (rig.count("encke_accept_pauses_total"), rig.count("encke_turns_total"));
    rig.wait(|| rig.count("encke_accept_pauses_total") >= pauses + 5, "accepting is tried again");
    let retries = rig.count("encke_accept_pauses_total") - pauses;
    let turned = rig.count("encke_turns_total") - turns;
    assert!(turned <= (retries + 1) * TURNS_PER_RETRY, "{turned} turns for {retries} tries{}", rig.told());

    // Who is there is served, one after the other; the last one leaves, and his place is taken.
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
