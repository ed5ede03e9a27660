//! Listeners: TCP of both families, Unix sockets, several at once, inherited ones; and addresses that cannot be bound.

use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;

use encke_io::{Address, Listener};
use encke_server::{ListenConfig, Server};

use crate::rig::handlers::{Echo, hello};
use crate::rig::{Client, End, Folder, Rig, Stand, any_port};

on_every_stand! {
    several_listeners_serve_alike,
    a_unix_socket_serves_everything_that_tcp_does,
    an_inherited_listener_is_served,
    an_inherited_listener_outlives_a_drain,
    every_worker_accepts,
}

on_two_stands! {
    a_stale_unix_socket_is_replaced_and_a_live_one_is_not,
    a_port_that_is_taken_is_an_error_that_names_it,
    an_address_of_another_machine_is_an_error_unless_it_is_optional,
}

fn several_listeners_serve_alike(stand: Stand) {
    let folder = Folder::new();
    let unix = ListenConfig {
        address: Address::Unix(folder.path().join("socket")),
        proxy_protocol: false,
        mode: None,
        optional: false,
        tls: None,
        to_https: false,
    };
    let server = Server::new(stand.options(|_| {}))
        .listen(any_port())
        .listen(any_port())
        .listen(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)))
        .listener(unix)
        .mount("/", hello);
    let rig = Rig::of(server.start().expect("free ports"));
    assert_eq!(rig.addresses().len(), 4);
    for address in rig.addresses() {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/").text(), "Hello\n", "{address}");
        assert_eq!(client.get("/").text(), "Hello\n", "{address}");
    }
}

fn unix_door(folder: &Folder, mode: Option<u32>) -> ListenConfig {
    ListenConfig {
        address: Address::Unix(folder.path().join("socket")),
        proxy_protocol: false,
        mode,
        optional: false,
        tls: None,
        to_https: false,
    }
}

fn a_unix_socket_serves_everything_that_tcp_does(stand: Stand) {
    let folder = Folder::new();
    let server = Server::new(stand.options(|_| {}))
        .listener(unix_door(&folder, Some(0o600)))
        .mount("/", hello)
        .mount("/echo", Echo);
    let rig = Rig::of(server.start().expect("a folder of our own"));
    let mode = std::fs::metadata(folder.path().join("socket")).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut client = rig.client();
    let body = vec![b'x'; 1_000_000];
    client.send(format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.send(&body);
    assert!(client.answer().body == body);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(10));
    client.finish();
    assert!(client.answers(10).iter().all(|answer| answer.text() == "Hello\n"));
    assert_eq!(client.end(), End::Finished);
}

fn a_stale_unix_socket_is_replaced_and_a_live_one_is_not(stand: Stand) {
    let folder = Folder::new();
    let start =
        || Server::new(stand.options(|_| {})).listener(unix_door(&folder, None)).mount("/", hello).start();
    for _ in 0..2 {
        // The socket file of an ended server is stale for the next one.
        let rig = Rig::of(start().expect("a folder of our own"));
        assert_eq!(rig.client().get("/").text(), "Hello\n");
        let error = start().err().expect("somebody listens there").to_string();
        assert!(error.contains("socket"), "{error}");
        assert_eq!(rig.client().get("/").text(), "Hello\n", "the first one is as it was");
    }
}

fn an_inherited_listener_is_served(stand: Stand) {
    let listener = TcpListener::bind(any_port()).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    // A client is already waiting when the server starts.
    let mut early = Client::connect(&Address::Inet(address));
    early.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let listener = Listener::inherited(OwnedFd::from(listener)).expect("it listens");
    let server = Server::new(stand.options(|_| {})).inherit(listener).mount("/", hello);
    let rig = Rig::of(server.start().expect("it listens already"));
    assert_eq!(rig.addresses(), [Address::Inet(address)]);
    assert_eq!(early.answer().text(), "Hello\n");
    for _ in 0..10 {
        assert_eq!(rig.client().get("/").text(), "Hello\n");
    }
}

/// As with socket activation: another process keeps the socket, and passes it to the next server.
fn an_inherited_listener_outlives_a_drain(stand: Stand) {
    let kept = TcpListener::bind(any_port()).expect("a free port");
    let address = Address::Inet(kept.local_addr().expect("it is bound"));
    let inherit = || {
        let duplicate = OwnedFd::from(kept.try_clone().expect("a descriptor"));
        let server =
            Server::new(stand.options(|_| {})).inherit(Listener::inherited(duplicate).expect("it listens"));
        Rig::of(server.mount("/", hello).start().expect("it listens already"))
    };
    for _ in 0..3 {
        let rig = inherit();
        assert_eq!(rig.client().get("/").text(), "Hello\n");
        rig.end();
        // Between two servers the kernel completes connections, and the next server accepts them.
        let mut early = Client::connect(&address);
        early.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let next = inherit();
        assert_eq!(early.answer().text(), "Hello\n");
        next.end();
    }
}

fn a_port_that_is_taken_is_an_error_that_names_it(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    let Address::Inet(taken) = *rig.address() else { panic!("an Internet address was asked for") };
    for _ in 0..3 {
        let error = Server::new(stand.options(|_| {})).listen(taken).mount("/", hello).start();
        let error = error.err().expect("the port is taken").to_string();
        assert!(error.contains(&taken.to_string()), "it names the address: {error}");
        assert!(error.contains("another program"), "it says what to do: {error}");
    }
    // No connection went to the second server.
    for _ in 0..20 {
        assert_eq!(rig.client().get("/").text(), "Hello\n");
    }
}

fn an_address_of_another_machine_is_an_error_unless_it_is_optional(stand: Stand) {
    // A block for documentation (RFC 5737): no machine has it.
    let elsewhere = ListenConfig::from(SocketAddr::from(([192, 0, 2, 1], 8080)));
    let start = |door: ListenConfig| {
        Server::new(stand.options(|_| {})).listen(any_port()).listener(door).mount("/", hello).start()
    };
    let error = start(elsewhere.clone()).err().expect("it is not here").to_string();
    assert!(error.contains("192.0.2.1:8080"), "{error}");
    let rig = Rig::of(start(ListenConfig { optional: true, ..elsewhere }).expect("it serves without it"));
    assert_eq!(rig.addresses().len(), 1);
    assert_eq!(rig.client().get("/").text(), "Hello\n");
}

fn every_worker_accepts(stand: Stand) {
    let rig = stand.serve(|server| {
        server.mount("/", |_: &encke_server::Request<'_>, _| {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            encke_server::Outcome::Now(encke_server::Reply::text(200, name))
        })
    });
    let mut names = std::collections::BTreeSet::new();
    let mut clients = Vec::new();
    // The kernel distributes connections by a hash of both addresses: 200 connections miss one of four workers in one of 10^25
    // runs.
    for _ in 0..200 {
        let mut client = rig.client();
        names.insert(client.get("/").text().to_owned());
        clients.push(client);
    }
    let expected: Vec<String> = (0..stand.workers).map(|number| format!("worker-{number}")).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), expected);
}
