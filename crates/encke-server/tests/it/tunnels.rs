//! Tunnels from outside: a resident that connects its clients to another server (`rig/relays.rs`).

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use encke_server::CloseReason;

use crate::rig::handlers::hello;
use crate::rig::relays::{
    StreamCheck, TUNNEL_HEAD, Tunnel, accept, finish, listen, read_all, reset, write_rest, write_stream,
    write_until_stopped,
};
use crate::rig::{Client, Cut, End, PATIENCE, Rig, Stand};

on_every_stand! {
    bytes_pass_in_both_directions,
    bytes_behind_the_request_reach_the_other_server,
    half_a_close_passes_to_the_other_server,
    half_a_close_passes_to_the_client,
    a_client_that_resets_closes_the_outgoing_connection,
    a_server_that_resets_resets_the_client,
    a_refused_dial_resets_the_client,
    a_tunnel_goes_on_during_a_drain,
    the_end_of_a_drain_closes_tunnels,
}

on_every_back_end! {
    a_client_that_reads_nothing_stops_the_other_server,
    a_server_that_reads_nothing_stops_the_client,
}

#[cfg(feature = "tls")]
on_two_stands! {
    half_a_close_passes_to_the_other_server_by_tls,
    half_a_close_passes_to_the_client_by_tls,
}

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A server, and the listener that its tunnels connect to.
fn rig(on: Stand) -> (Rig, TcpListener, Tunnel) {
    let (listener, address) = listen();
    let tunnel = Tunnel::to(address);
    let mount = tunnel.clone();
    (on.serve(|server| server.mount("/", mount).mount("/turn", hello)), listener, tunnel)
}

/// A tunnel: the client's end, and the other server's.
fn opened(rig: &Rig, listener: &TcpListener) -> (Client, TcpStream) {
    let mut client = rig.client();
    client.send(REQUEST);
    let stream = accept(listener);
    assert_eq!(client.read_exact(TUNNEL_HEAD.len()), TUNNEL_HEAD);
    (client, stream)
}

fn nothing_is_open(rig: &Rig) {
    let open = || rig.count("encke_upstream_connections") + rig.connections();
    rig.wait(|| open() == 0, "nothing is open");
}

fn bytes_pass_in_both_directions(on: Stand) {
    const BYTES: u64 = 6 << 20;
    let (rig, listener, _) = rig(on);
    let (client, stream) = opened(&rig, &listener);
    std::thread::scope(|scope| {
        scope.spawn(|| write_stream(client.stream(), BYTES, 1, 11).expect("room"));
        scope.spawn(|| write_stream(&stream, BYTES, 2, 12).expect("room"));
        scope.spawn(|| StreamCheck::new(1).read(&stream, BYTES, 13));
        scope.spawn(|| StreamCheck::new(2).read(client.stream(), BYTES, 14));
    });
    drop(client);
    assert!(read_all(&mut { stream }).is_empty());
    nothing_is_open(&rig);
    rig.end();
}

fn bytes_behind_the_request_reach_the_other_server(on: Stand) {
    let (rig, listener, _) = rig(on);
    let bytes = format!("{REQUEST}behind");
    for cut in Cut::all(bytes.as_bytes()).step_by(7) {
        let mut client = rig.client();
        client.send_cut(&rig, bytes.as_bytes(), cut);
        let mut stream = accept(&listener);
        let mut behind = [0; 6];
        stream.read_exact(&mut behind).expect("they come");
        assert_eq!(&behind, b"behind", "{cut:?}");
    }
    rig.end();
}

fn half_a_close_passes_to_the_other_server(on: Stand) {
    let (rig, listener, _) = rig(on);
    let (mut client, mut stream) = opened(&rig, &listener);
    client.send("a question");
    client.finish();
    assert_eq!(read_all(&mut stream), b"a question");
    write_stream(&stream, 300_000, 3, 1).expect("it takes bytes after its own end");
    drop(stream);
    let (bytes, end) = client.rest();
    assert_eq!((bytes.len(), end), (300_000, End::Finished));
    StreamCheck::new(3).take(&bytes);
    rig.wait_for_closes(CloseReason::PeerDone, 1);
    nothing_is_open(&rig);
    rig.end();
}

fn half_a_close_passes_to_the_client(on: Stand) {
    let (rig, listener, _) = rig(on);
    let (mut client, mut stream) = opened(&rig, &listener);
    stream.write_all(b"all that I have to say").expect("room");
    finish(&stream);
    assert_eq!(client.rest(), (b"all that I have to say".to_vec(), End::Finished));
    write_stream(client.stream(), 300_000, 4, 1).expect("it takes bytes after the other's end");
    client.finish();
    let bytes = read_all(&mut stream);
    assert_eq!(bytes.len(), 300_000);
    StreamCheck::new(4).take(&bytes);
    rig.wait_for_closes(CloseReason::PeerDone, 1);
    nothing_is_open(&rig);
    rig.end();
}

fn a_client_that_resets_closes_the_outgoing_connection(on: Stand) {
    let (rig, listener, _) = rig(on);
    let (client, mut stream) = opened(&rig, &listener);
    client.reset();
    assert!(read_all(&mut stream).is_empty());
    rig.wait_for_closes(CloseReason::PeerReset, 1);
    nothing_is_open(&rig);
    rig.end();
}

fn a_server_that_resets_resets_the_client(on: Stand) {
    let (rig, listener, _) = rig(on);
    let (mut client, stream) = opened(&rig, &listener);
    reset(stream);
    assert_eq!(client.end(), End::Reset);
    rig.wait_for_closes(CloseReason::Upstream, 1);
    nothing_is_open(&rig);
    rig.end();
}

fn a_refused_dial_resets_the_client(on: Stand) {
    let refusing = Tunnel::to(SocketAddr::from(([127, 0, 0, 1], 1)));
    let rig = on.serve(|server| server.mount("/", refusing));
    let mut client = rig.client();
    client.send(REQUEST);
    // The head may be sent before the dial has failed.
    assert_eq!(client.rest().1, End::Reset);
    rig.wait_for_closes(CloseReason::Upstream, 1);
    assert_eq!(rig.count_of("encke_upstream_closes_total", "refused"), 1);
    rig.end();
}

/// The tunnel asserts at each event that the waiting bytes are within the limit.
fn a_client_that_reads_nothing_stops_the_other_server(on: Stand) {
    let (rig, listener, tunnel) = rig(on);
    let mut client = rig.narrow_client();
    client.send(REQUEST);
    let stream = accept(&listener);
    assert_eq!(client.read_exact(TUNNEL_HEAD.len()), TUNNEL_HEAD);
    let taken = || rig.count_of("encke_upstream_bytes_total", "received");
    let written = write_until_stopped(&rig, &stream, 64 << 20, 5, taken);
    assert!(tunnel.pauses.load(Ordering::Relaxed) > 0, "the other server is paused");
    let end = written + (4 << 20);
    std::thread::scope(|scope| {
        scope.spawn(|| write_rest(&stream, written..end, 5, 1).expect("in the end all is taken"));
        StreamCheck::new(5).read(client.stream(), end, 2);
    });
    rig.end();
}

fn a_server_that_reads_nothing_stops_the_client(on: Stand) {
    let (rig, listener, _) = rig(on);
    let (client, stream) = opened(&rig, &listener);
    let written = write_until_stopped(&rig, client.stream(), 64 << 20, 6, || rig.received());
    let end = written + (4 << 20);
    std::thread::scope(|scope| {
        scope.spawn(|| write_rest(client.stream(), written..end, 6, 1).expect("in the end all is taken"));
        StreamCheck::new(6).read(&stream, end, 2);
    });
    rig.end();
}

fn a_tunnel_goes_on_during_a_drain(on: Stand) {
    let (rig, listener, _) = rig(on);
    let (mut client, mut stream) = opened(&rig, &listener);
    rig.running().drain(Duration::ZERO, PATIENCE * 2);
    let open = rig.running().open_work(PATIENCE).expect("the drain has begun");
    assert_eq!((open.streams, open.requests), (1, 0));
    for round in 0..20_u8 {
        client.send([round; 1_000]);
        let mut bytes = [0; 1_000];
        stream.read_exact(&mut bytes).expect("the tunnel goes on");
        stream.write_all(&bytes).expect("room");
        assert_eq!(client.read_exact(1_000), [round; 1_000]);
    }
    client.finish();
    assert!(read_all(&mut stream).is_empty());
    drop(stream);
    assert_eq!(client.end(), End::Finished);
    rig.end();
}

fn the_end_of_a_drain_closes_tunnels(on: Stand) {
    let (rig, listener, _) = rig(on);
    let (mut client, mut stream) = opened(&rig, &listener);
    rig.running().drain(Duration::ZERO, Duration::from_millis(1));
    assert_eq!(client.end(), End::Reset);
    assert!(read_all(&mut stream).is_empty(), "closed in order");
    rig.end();
}

/// A tunnel whose client uses TLS.
#[cfg(feature = "tls")]
fn sealed(on: Stand) -> (Rig, crate::rig::tls::Stream, TcpStream) {
    use crate::rig::tls;

    let (listener, address) = listen();
    let authority = tls::Authority::new();
    let rig = tls::serve(on, &authority, |_| {}, |server| server.mount("/", Tunnel::to(address)));
    let config = std::sync::Arc::new(authority.client(&tls::BOTH[..1]));
    let mut client = tls::shake(&rig, &config, "localhost");
    client.write_all(REQUEST.as_bytes()).expect("sent");
    let stream = accept(&listener);
    let mut head = [0; TUNNEL_HEAD.len()];
    client.read_exact(&mut head).expect("the head");
    assert_eq!(head, TUNNEL_HEAD);
    (rig, client, stream)
}

/// Ends the client's side as TLS does, and leaves the socket open.
#[cfg(feature = "tls")]
fn finish_sealed(client: &mut crate::rig::tls::Stream) {
    client.conn.send_close_notify();
    client.flush().expect("sent");
}

#[cfg(feature = "tls")]
fn half_a_close_passes_to_the_other_server_by_tls(on: Stand) {
    let (rig, mut client, mut stream) = sealed(on);
    client.write_all(b"a question").expect("sent");
    finish_sealed(&mut client);
    assert_eq!(read_all(&mut stream), b"a question");
    write_stream(&stream, 300_000, 7, 1).expect("it takes bytes after its own end");
    drop(stream);
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).expect("the end is authenticated");
    assert_eq!(bytes.len(), 300_000);
    StreamCheck::new(7).take(&bytes);
    nothing_is_open(&rig);
    rig.end();
}

#[cfg(feature = "tls")]
fn half_a_close_passes_to_the_client_by_tls(on: Stand) {
    let (rig, mut client, mut stream) = sealed(on);
    stream.write_all(b"all that I have to say").expect("room");
    finish(&stream);
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).expect("the end is authenticated");
    assert_eq!(bytes, b"all that I have to say");
    write_stream(&mut client, 300_000, 8, 1).expect("it takes bytes after the other's end");
    finish_sealed(&mut client);
    let bytes = read_all(&mut stream);
    assert_eq!(bytes.len(), 300_000);
    StreamCheck::new(8).take(&bytes);
    drop(client);
    nothing_is_open(&rig);
    rig.end();
}
