//! No leaks: after a thousand connections of every faulty kind the process holds no more resources than before.
//!
//! A test program of its own with one test, because descriptors belong to the process. They are counted in /proc/self/fd, so
//! that a leak cannot hide from our own counters, which must agree.
//!
//! Each worker keeps requested files open. The kernel chooses the worker of a connection, so clients connect until every worker
//! has the file open. Otherwise one of the thousand connections may open it.
#![cfg(unix)]

#[path = "rig/mod.rs"]
mod rig;

use encke_settings::ByteRate;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use encke_io::{Backend, host};
use encke_server::{Exchange, Outcome, Reply, Request};

use rig::handlers::{Echo, Held, PATTERN_BYTES_MAX, Pattern, hello, pattern, streamed};
use rig::{Client, Folder, Rig, Stand, ms, site, wait_for};

const CONNECTIONS: usize = 1_000;
/// Concurrent clients.
const CROWD: usize = 32;
/// Tolerance for resident memory, which allocators retain: buffers of a crowd, tables that have grown.
const MEMORY_BYTES_MAX: u64 = 8 << 20;

#[test]
fn nothing_is_left_of_clients_that_misbehave() {
    for backend in Backend::NAMED {
        for workers in [1, 4] {
            println!("{backend}, {workers} workers");
            leaves_nothing(Stand { backend, workers });
        }
    }
}

fn leaves_nothing(stand: Stand) {
    let folder = Folder::new().with("large", pattern(4 << 20));
    let site = site(&folder);
    let held = Held::default();
    let rig = stand.serve_by(
        |policy| {
            policy.limits.head_time = ms(400);
            policy.limits.linger_time = ms(100);
            policy.rate_window_ns = ms(100).nanoseconds();
            policy.limits.body_rate = ByteRate::of(10_000);
            policy.limits.write_rate = ByteRate::of(10_000);
        },
        |server| {
            server
                .mount("/", hello)
                .mount("/large", site)
                .mount("/echo", Echo)
                .mount("/held", held.clone())
                .mount("/stream", |_: &Request<'_>, _: Exchange| {
                    let bytes = pattern(PATTERN_BYTES_MAX);
                    Outcome::Now(streamed(Pattern { bytes, pulled: Arc::default() }))
                })
        },
    );
    let large = folder.path().join("large");
    let opened_by_all = || {
        let mut client = rig.client();
        if client.try_send("GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").is_ok() {
            // On a busy machine it may be too slow for the limits, and is then ended within the file.
            client.rest();
        }
        descriptors().iter().filter(|&path| *path == large).count() == stand.workers
    };
    rig.wait(opened_by_all, "every worker has opened the file");
    all_have_gone(&rig, &held);
    let before = settled(&rig);

    // Tables and buffers grow once, and are retained.
    misbehave(&rig, &held, CONNECTIONS / 4);
    all_have_gone(&rig, &held);
    let memory = host::resident_bytes().expect("/proc is there");

    misbehave(&rig, &held, CONNECTIONS);
    all_have_gone(&rig, &held);
    // A connection that was reset before a worker accepted it is in no counter, and its socket is closed shortly after.
    let told = || format!("\n  before {before:?}\n  now {:?}{}", descriptors(), rig.told());
    wait_for(|| descriptors().len() == before.len(), "the descriptors are those of before", told);
    let grown = host::resident_bytes().expect("/proc is there").saturating_sub(memory);
    assert!(grown <= MEMORY_BYTES_MAX, "memory has grown by {grown} bytes");
}

/// Returns the descriptors once every socket of a client is closed. A connection leaves the counters before its socket is
/// closed: the back end closes it in the worker's next submission. A connection that a peer reset before it was accepted is in
/// no counter.
fn settled(rig: &Rig) -> Vec<PathBuf> {
    // Clients are in this process, too. Without them, every connected socket is the server's.
    let none = || connected_sockets() == 0;
    wait_for(none, "no socket is connected any more", || format!("{:?}{}", descriptors(), rig.told()));
    descriptors()
}

/// Counts the connected TCP sockets of this process: entries of /proc/self/fd with a peer in /proc/self/net/tcp.
fn connected_sockets() -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("/proc is there");
    let own = descriptors();
    let connected = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // A listener has no peer; inode 0 is a socket that no process holds.
        let [_, _, peer, _, _, _, _, _, _, inode, ..] = fields[..] else { return false };
        let link = PathBuf::from(format!("socket:[{inode}]"));
        peer != "00000000:0000" && own.contains(&link)
    };
    table.lines().skip(1).filter(|line| connected(line)).count()
}

/// Returns the open descriptors of this process (/proc/self/fd), including that of this call: files by path, others by kind and
/// number.
fn descriptors() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("/proc is there");
    let mut links: Vec<PathBuf> = entries
        .map(|entry| std::fs::read_link(entry.expect("an entry").path()).unwrap_or_default())
        .collect();
    links.sort();
    links
}

/// Waits until no client is left.
fn all_have_gone(rig: &Rig, held: &Held) {
    for gauge in ["encke_connections", "encke_exchanges_open", "encke_sends_in_flight", "encke_offload_jobs"]
    {
        let empty = || {
            // A request may be held only after its client has disconnected.
            drop(held.take_all());
            rig.count(gauge) == 0
        };
        rig.wait(empty, &format!("{gauge} is 0 again"));
    }
}

fn misbehave(rig: &Rig, held: &Held, connections: usize) {
    // xorshift64 mixes well enough. The seed is constant, so that every run is equal.
    let mut seed = 0x5EED_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize % below
    };
    let mut crowd: Vec<Client> = Vec::new();
    // A client of a busy machine may be ended before its first byte, but not one in ten.
    let mut ends = 0;
    for number in 0..connections {
        let mut client = if random(4) == 0 { rig.narrow_client() } else { rig.client() };
        let request: &[u8] = match random(10) {
            0 => b"",
            1 => b"GET / HTTP/1.1\r\nHost: a\r\nX-Slo",
            2 => b"nonsense \0\xff\r\n\r\n and more of it",
            3 => b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nhalf",
            4 => b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\nhalf",
            5 => b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n",
            6 => b"GET /large HTTP/1.1\r\nHost: a\r\n\r\nGET /large HTTP/1.1\r\nHost: a\r\n\r\n",
            7 => b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n",
            8 => b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
            _ => b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        };
        client.send(&request[..request.len() - random(request.len().max(2) / 2)]);
        if random(2) == 0 {
            // Some clients then disconnect during their response, and some before it begins.
            client.idle(Duration::from_millis(1));
        }
        match random(5) {
            0 => client.reset(),
            1 => drop(client),
            2 => {
                client.finish();
                crowd.push(client);
            }
            _ => crowd.push(client),
        }
        if crowd.len() > CROWD {
            crowd.swap_remove(random(CROWD)).reset();
        }
        // Some held requests are answered, some are dropped. Most of their clients have disconnected by then.
        if number % 10 == 9 {
            for exchange in held.take_all() {
                if random(2) == 0 {
                    exchange.answer(Reply::text(200, "late"));
                }
            }
        }
        let (mut good, more) = rig.begun("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        ends += more;
        assert!(ends <= 10 + number as u64 / 10, "{ends} good clients got no response{}", rig.told());
        assert_eq!(good.answer().text(), "Hello\n", "a good client, after {number} others");
    }
}
