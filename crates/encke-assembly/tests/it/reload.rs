//! Reloads of a running server: new settings apply as a whole or not at all, without a visible interruption.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use encke_assembly::Service;
use encke_assembly::settings::{ChannelSettings, Settings};
use encke_io::Address;

use crate::rig::{Client, Folder, Stand, any_port, wait_for};

on_every_stand! {
    a_reload_adds_and_removes_listeners_and_leaves_the_others_alone,
    a_reload_to_another_port_and_back_succeeds_at_once,
    a_reload_names_this_server_where_its_own_listener_is_in_the_way,
    nobody_under_load_notices_a_reload,
}

on_two_stands! {
    a_reload_changes_limits_and_sites,
    a_reload_that_cannot_be_done_changes_nothing,
    a_reload_says_that_durable_channels_need_a_start,
}

/// Returns the next free port of a range for these cases. The range is below the one of port 0, and apart from those of
/// examples/cluster and of the browser tests.
fn free_port() -> u16 {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + (std::process::id() as u16 % 100 * 67 + count) % 7_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

fn at(port: u16) -> Address {
    Address::Inet(SocketAddr::from(([127, 0, 0, 1], port)))
}

fn settings(stand: Stand, ports: &[u16], folder: &Folder, limits: &str) -> Settings {
    let listen: Vec<String> = ports.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    let text = format!(
        "[server]\nlisten = [{}]\nadmin = \"off\"\nworkers = {}\nbackend = \"{}\"\n[limits]\n{limits}\n\
         [log]\naccess = \"off\"\n[[site]]\nroot = \"{}\"\n",
        listen.join(", "),
        stand.workers,
        stand.backend,
        folder.path().display(),
    );
    Settings::parse("case", &text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Whether nothing listens at the port. Attempts during the close of a listener may get no reply, so the timeout is short.
fn is_closed(port: u16) -> bool {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let attempt = TcpStream::connect_timeout(&address, Duration::from_millis(50));
    attempt.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Waits until a new connection gets the new settings.
fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    wait_for(&mut happened, what, String::new);
}

fn a_reload_changes_limits_and_sites(stand: Stand) {
    let (one, other) = (Folder::new().with("file", "one"), Folder::new().with("file", "other"));
    let port = free_port();
    let mut service = Service::start(&settings(stand, &[port], &one, "")).expect("a free port");
    let mut client = Client::connect(&at(port));
    assert_eq!(client.get("/file").text(), "one");
    service.reload(&settings(stand, &[port], &other, "requests_per_connection = 2")).expect("good settings");
    // The connection stays open with the new content.
    wait_until("the new folder is served", || client.get("/file").text() == "other");
    wait_until("a connection has two requests", || {
        // Each worker applies the settings at its next turn: this one may still serve the old directory.
        let mut client = Client::connect(&at(port));
        client.get("/file").text() == "other" && client.get("/file").closes()
    });
    service.drain();
    drop(client);
    service.join();
}

fn a_reload_adds_and_removes_listeners_and_leaves_the_others_alone(stand: Stand) {
    let folder = Folder::new().with("file", "content");
    let (kept, removed, added) = (free_port(), free_port(), free_port());
    let mut service = Service::start(&settings(stand, &[kept, removed], &folder, "")).expect("free ports");
    let mut on_kept = Client::connect(&at(kept));
    let mut on_removed = Client::connect(&at(removed));
    assert_eq!(on_kept.get("/file").text(), "content");
    assert_eq!(on_removed.get("/file").text(), "content");

    service.reload(&settings(stand, &[kept, added], &folder, "")).expect("a free port");
    assert_eq!(service.addresses(), [at(kept), at(added)]);
    assert_eq!(Client::connect(&at(added)).get("/file").text(), "content");
    wait_until("nobody listens there any more", || is_closed(removed));
    // Connections stay open, whatever listener accepted them.
    assert_eq!(on_kept.get("/file").text(), "content");
    assert_eq!(on_removed.get("/file").text(), "content");
    assert_eq!(Client::connect(&at(kept)).get("/file").text(), "content");

    // Then the change is reverted.
    service.reload(&settings(stand, &[kept, removed], &folder, "")).expect("the port is free again");
    assert_eq!(Client::connect(&at(removed)).get("/file").text(), "content");
}

fn a_reload_to_another_port_and_back_succeeds_at_once(stand: Stand) {
    let folder = Folder::new().with("file", "content");
    let (one, other) = (free_port(), free_port());
    let mut service = Service::start(&settings(stand, &[one], &folder, "")).expect("a free port");
    for _ in 0..2 {
        for port in [other, one] {
            service.reload(&settings(stand, &[port], &folder, "")).expect("the port is this server's own");
            assert_eq!(Client::connect(&at(port)).get("/file").text(), "content");
        }
    }
    service.drain();
    service.join();
}

fn a_reload_names_this_server_where_its_own_listener_is_in_the_way(stand: Stand) {
    let folder = Folder::new().with("file", "content");
    let port = free_port();
    let mut service = Service::start(&settings(stand, &[port], &folder, "")).expect("a free port");
    let everywhere = settings(stand, &[port], &folder, "");
    let text = format!(":{port}").parse().expect("an address");
    let mut everywhere = everywhere;
    everywhere.server.listen = vec![encke_assembly::settings::Listen::at(text)];
    let error = service.reload(&everywhere).expect_err("the port is taken").to_string();
    assert!(error.contains(&format!("this server itself listens on 127.0.0.1:{port}")), "{error}");
    assert_eq!(Client::connect(&at(port)).get("/file").text(), "content");
    service.drain();
    service.join();
}

fn a_reload_says_that_durable_channels_need_a_start(stand: Stand) {
    let folder = Folder::new();
    let memory = settings(stand, &[free_port()], &folder, "");
    let mut durable = memory.clone();
    durable.server.state_dir = Some(folder.path().join("state"));
    durable.push.channel = vec![ChannelSettings { durable: true, ..ChannelSettings::default() }];
    let said = |notes: &[String]| {
        notes.iter().any(|note| note.starts_with("durable channels take effect at the next"))
    };

    let mut service = Service::start(&memory).expect("a free port");
    let notes = service.reload(&durable).expect("good settings");
    assert!(said(&notes), "{notes:?}");
    service.drain();
    service.join();

    let mut service = Service::start(&durable).expect("the port is free again");
    let notes = service.reload(&durable).expect("good settings");
    assert!(!said(&notes), "{notes:?}");
    service.drain();
    service.join();
}

fn a_reload_that_cannot_be_done_changes_nothing(stand: Stand) {
    let folder = Folder::new().with("file", "content");
    let port = free_port();
    let mut service = Service::start(&settings(stand, &[port], &folder, "")).expect("a free port");
    let mut client = Client::connect(&at(port));
    assert_eq!(client.get("/file").text(), "content");

    let taken = TcpListener::bind(any_port()).expect("a free port");
    let taken_port = taken.local_addr().expect("it is bound").port();
    let limits = "requests_per_connection = 1";
    let error =
        service.reload(&settings(stand, &[port, taken_port], &folder, limits)).expect_err("it is taken");
    assert!(error.to_string().contains(&taken_port.to_string()), "{error}");
    let nowhere = Folder::new();
    let lost = settings(stand, &[port], &nowhere, limits);
    drop(nowhere);
    service.reload(&lost).expect_err("there is no such folder");

    assert_eq!(service.addresses(), [at(port)]);
    for _ in 0..5 {
        let answer = client.get("/file");
        assert!(answer.text() == "content" && !answer.closes(), "{answer:?}");
    }
}

fn nobody_under_load_notices_a_reload(stand: Stand) {
    let folder = Folder::new().with("file", vec![b'x'; 20_000]);
    let (port, other) = (free_port(), free_port());
    let mut service = Service::start(&settings(stand, &[port], &folder, "")).expect("a free port");
    let (answers, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (answers, over) = (Arc::clone(&answers), Arc::clone(&over));
            thread::spawn(move || {
                let mut client = Client::connect(&at(port));
                while !over.load(Ordering::Relaxed) {
                    if number % 2 == 0 {
                        client = Client::connect(&at(port));
                    }
                    let answer = client.get("/file");
                    assert!(answer.status == 200 && answer.body.len() == 20_000 && !answer.closes());
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for round in 1..=20 {
        let ports = if round % 2 == 0 { vec![port] } else { vec![port, other] };
        let limits = format!("idle_time = \"{}s\"", 30 + round);
        service.reload(&settings(stand, &ports, &folder, &limits)).expect("good settings");
        if round % 2 == 0 {
            // A removed listener stays open for a moment, for connections in progress.
            wait_until("nobody listens there any more", || is_closed(other));
        }
        let wanted = answers.load(Ordering::Relaxed) + 40;
        wait_until("the load goes on", || answers.load(Ordering::Relaxed) >= wanted);
    }
    over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("every request was answered");
    }
}
