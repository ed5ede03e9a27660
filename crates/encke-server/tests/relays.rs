//! Memory of relays and tunnels: forwarded bytes occupy memory only for a moment.
//!
//! A separate test program, because resident memory belongs to the process. Each case has its own process, because memory freed
//! by another case would hide its growth. `ENCKE_RELAY_MIB` sets the amount that passes through the relay: 64 MiB each way if
//! it is unset; `make soak` sets 2 GiB.
#![cfg(unix)]

#[path = "rig/mod.rs"]
mod rig;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use encke_io::{Address, Backend, host};
use encke_settings::OrOff;

use rig::relays::{Relay, TUNNEL_HEAD, Tunnel, accept, finish, listen};
use rig::{Rig, Stand};

/// Tolerance for memory that allocators keep.
const MEMORY_BYTES_MAX: u64 = 3 << 20;
const BLOCK_BYTES: usize = 1 << 20;
/// Blocks before the first measurement: buffers and tables grow once.
const WARM_BLOCKS: u64 = 8;

type Case = (&'static str, fn(Stand));

/// The cases, by name.
const CASES: [Case; 2] =
    [("passes_through_a_relay", passes_through_a_relay), ("rests_in_tunnels", rests_in_tunnels)];
/// The environment variable that selects a process's case: a back end and a name.
const CASE: &str = "ENCKE_RELAY_CASE";

#[test]
fn memory_stays_the_same_whatever_passes() {
    if let Ok(case) = std::env::var(CASE) {
        let (backend, name) = case.split_once(' ').expect("a back end and a name");
        let stand = Stand { backend: backend.parse().expect("a back end"), workers: 1 };
        let (_, play) = CASES.iter().find(|(other, _)| *other == name).expect("a case");
        return play(stand);
    }
    for backend in Backend::NAMED {
        for (name, _) in CASES {
            let mut process = Command::new(std::env::current_exe().expect("a running program"));
            process.args(["--exact", "memory_stays_the_same_whatever_passes", "--nocapture"]);
            let done = process.env(CASE, format!("{backend} {name}")).output().expect("it starts");
            let text = String::from_utf8_lossy(&done.stdout);
            text.lines().filter(|line| line.contains("memory grew")).for_each(|line| println!("{line}"));
            assert!(
                done.status.success(),
                "{backend} {name}: {text}{}",
                String::from_utf8_lossy(&done.stderr)
            );
        }
    }
}

fn resident() -> u64 {
    host::resident_bytes().expect("/proc is there")
}

/// Blocks differ from each other, so that a misplaced one is detected.
fn block(number: u64) -> Vec<u8> {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    word.iter().copied().cycle().take(BLOCK_BYTES).collect()
}

/// Reads blocks and measures memory. Returns the maximum growth since the warm-up blocks.
fn read_blocks(mut from: impl std::io::Read, blocks: u64) -> u64 {
    let (mut buffer, mut warm, mut grown) = (vec![0; BLOCK_BYTES], 0, 0);
    for number in 0..blocks {
        from.read_exact(&mut buffer).expect("all of it comes");
        assert!(buffer == block(number), "block {number}");
        if number < WARM_BLOCKS {
            warm = resident();
        } else {
            grown = grown.max(resident().saturating_sub(warm));
        }
    }
    grown
}

fn write_blocks(mut to: impl std::io::Write, blocks: u64) {
    for number in 0..blocks {
        to.write_all(&block(number)).expect("room");
    }
}

fn socket(rig: &Rig) -> TcpStream {
    let Address::Inet(address) = rig.address() else { panic!("it listens on TCP") };
    TcpStream::connect(address).expect("it listens")
}

fn passes_through_a_relay(stand: Stand) {
    let blocks = std::env::var("ENCKE_RELAY_MIB").map_or(64, |mib| mib.parse().expect("a number of MiB"));
    let bytes = blocks * BLOCK_BYTES as u64;
    let (listener, address) = listen();
    let rig = stand.serve_by(
        |policy| policy.limits.body_bytes = OrOff::Off,
        |server| server.mount("/", Relay::to(address)),
    );
    let mut client = socket(&rig);
    write!(client, "POST /length/{bytes} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {bytes}\r\n\r\n")
        .expect("room");
    let to = client.try_clone().expect("a descriptor");
    let sending = std::thread::spawn(move || write_blocks(&to, blocks));
    let other = accept(&listener);
    let uploaded = read_blocks(&other, blocks);
    sending.join().expect("no panic");
    let responding = std::thread::spawn(move || {
        write_blocks(&other, blocks);
        finish(&other);
    });
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    let downloaded = read_blocks(&client, blocks);
    responding.join().expect("no panic");
    println!("{}: {blocks} MiB each way, memory grew by {uploaded} and {downloaded} bytes", stand.backend);
    assert!(uploaded.max(downloaded) <= MEMORY_BYTES_MAX, "memory has grown");
    rig.end();
}

/// An idle tunnel that has carried bytes uses no more memory than a new one.
fn rests_in_tunnels(stand: Stand) {
    const TUNNELS: usize = 200;
    const ROUND_BYTES: usize = 32 * 1024;
    const ROUNDS: usize = 4;
    let (listener, address) = listen();
    let rig = stand.serve(|server| server.mount("/", Tunnel::to(address)));
    let mut tunnels: Vec<(TcpStream, TcpStream)> = (0..TUNNELS)
        .map(|_| {
            let mut client = socket(&rig);
            client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("room");
            client.read_exact(&mut [0; TUNNEL_HEAD.len()]).expect("a head");
            (client, accept(&listener))
        })
        .collect();
    let mut buffer = vec![7; ROUND_BYTES];
    let mut carry = |(client, other): &mut (TcpStream, TcpStream)| {
        for _ in 0..ROUNDS {
            client.write_all(&buffer).expect("room");
            other.read_exact(&mut buffer).expect("they come");
            other.write_all(&buffer).expect("room");
            client.read_exact(&mut buffer).expect("they come");
        }
    };
    // Half of them carry bytes first: the buffers of the worker and of the kernel's ring are used once.
    let (warm, others) = tunnels.split_at_mut(TUNNELS / 2);
    warm.iter_mut().for_each(&mut carry);
    let before = resident();
    others.iter_mut().for_each(&mut carry);
    let grown = resident().saturating_sub(before);
    println!("{}: {} tunnels at rest, memory grew by {grown} bytes", stand.backend, TUNNELS / 2);
    // If each tunnel kept a buffer, it would be at least as long as a round.
    assert!(grown <= (TUNNELS / 2 * ROUND_BYTES / 4) as u64, "memory has grown by {grown} bytes");
    rig.end();
}
