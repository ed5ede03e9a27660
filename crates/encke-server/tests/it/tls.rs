//! TLS: certificates, successful and failed handshakes, and everything else as without encryption.

use encke_settings::ByteRate;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use encke_io::Address;
use encke_server::{CloseReason, ConnLimits, ListenConfig, Server, TlsIdentity};
use encke_settings::{AcmeSettings, CertSettings, ClientCert, TlsSettings, TlsVersion};
use rcgen::ExtendedKeyUsagePurpose;
use rustix::net::sockopt;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, version};

use crate::rig::handlers;
use crate::rig::tls::*;
use crate::rig::{Folder, Rig, Stand, any_port, files, ms};

on_every_stand! {
    a_request_may_be_cut_anywhere_within_its_records,
    a_handshake_may_be_cut_anywhere,
    a_handshake_has_its_time,
    a_handshake_that_drips_has_no_more_time,
    a_handshake_may_be_cut_off_anywhere,
    a_thousand_stopped_handshakes_block_no_client,
    slow_clients_are_ended_as_in_the_clear,
    so_many_handshakes_go_on_at_a_time,
    partial_client_hellos_do_not_count_as_handshakes,
    a_stalled_handshake_gives_way_to_a_new_one,
    a_client_hello_beyond_its_limit_is_rejected,
    an_answer_that_is_the_last_one_ends_with_a_farewell,
    a_client_that_stops_reading_is_ended,
}

on_two_stands! {
    answers_are_the_same_as_in_the_clear,
    records_that_are_none_end_their_connection,
    what_is_no_handshake_is_closed_with_an_alert,
    plain_http_is_told_to_use_tls,
    a_proxy_header_comes_before_the_handshake,
    each_name_gets_its_certificate,
    a_session_is_resumed_on_any_worker,
    a_renewed_certificate_is_shown_to_new_connections_and_old_ones_go_on,
    a_failed_reload_leaves_no_identity_behind,
    pairs_that_change_are_taken_while_clients_come_and_nobody_notices,
    clients_show_certificates_where_they_must,
    renegotiation_is_refused,
    without_a_certificate_handshakes_are_refused,
}

fn answers_are_the_same_as_in_the_clear(stand: Stand) {
    let authority = Authority::new();
    let folder = Folder::new();
    folder.write("small.txt", b"small");
    // Below, at and above the sizes of records and of sealed pieces.
    for size in [16_383, 16_384, 16_385, 65_536, 200_000, 2_397_701] {
        folder.write(&format!("{size}.bin"), bytes(size));
    }
    let rig = serve(stand, &authority, |_| {}, |server| server.mount("/", files(&folder)));
    for version in BOTH {
        let config = Arc::new(authority.client(&[version]));
        let mut stream = shake(&rig, &config, "localhost");
        for _ in 0..3 {
            let (head, content) = ask(&mut stream, &get("/small.txt"));
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            assert_eq!(content, b"small");
        }
        assert_eq!(stream.conn.protocol_version(), Some(version.version));
        assert_eq!(stream.conn.alpn_protocol(), None);
        for size in [16_383, 16_384, 16_385, 65_536, 200_000, 2_397_701] {
            let (_, content) = ask(&mut stream, &get(&format!("/{size}.bin")));
            assert!(content == bytes(size), "{size} bytes");
        }
        // Several requests in one record, with their responses in order.
        let many = get("/small.txt") + &get("/65536.bin") + &get("/small.txt");
        stream.write_all(many.as_bytes()).expect("sent");
        for size in [5, 65_536, 5] {
            assert_eq!(answer(&mut stream).1.len(), size);
        }
    }
    assert_eq!(rig.count_of("encke_tls_handshakes_total", "1.3"), 1);
    assert_eq!(rig.count_of("encke_tls_handshakes_total", "1.2"), 1);
}

fn a_request_may_be_cut_anywhere_within_its_records(stand: Stand) {
    let authority = Authority::new();
    let folder = Folder::new();
    folder.write("a.txt", b"here");
    let rig = serve(stand, &authority, |_| {}, |server| server.mount("/", files(&folder)));
    let config = Arc::new(authority.client(&BOTH));
    let mut stream = shake(&rig, &config, "localhost");
    ask(&mut stream, &get("/a.txt"));
    stream.sock.set_nodelay(true).expect("a socket");
    // The records are created first, and then sent in two pieces.
    let length = {
        let mut records = Vec::new();
        stream.conn.writer().write_all(get("/a.txt").as_bytes()).expect("room");
        stream.conn.write_tls(&mut records).expect("records");
        stream.sock.write_all(&records).expect("sent");
        assert_eq!(answer(&mut stream).1, b"here");
        records.len()
    };
    for cut in 1..length {
        let mut records = Vec::new();
        stream.conn.writer().write_all(get("/a.txt").as_bytes()).expect("room");
        stream.conn.write_tls(&mut records).expect("records");
        let before = rig.received();
        stream.sock.write_all(&records[..cut]).expect("sent");
        rig.wait(|| rig.received() >= before + cut as u64, "the first piece");
        stream.sock.write_all(&records[cut..]).expect("sent");
        assert_eq!(answer(&mut stream).1, b"here", "cut at {cut}");
    }
}

fn a_handshake_may_be_cut_anywhere(stand: Stand) {
    let authority = Authority::new();
    let folder = Folder::new();
    folder.write("a.txt", b"here");
    let rig = serve(stand, &authority, |_| {}, |server| server.mount("/", files(&folder)));
    for version in BOTH {
        let config = Arc::new(authority.client(&[version]));
        let mut stream = shake(&rig, &config, "localhost");
        stream.sock.set_nodelay(true).expect("a socket");
        while stream.conn.is_handshaking() {
            let mut records = Vec::new();
            while stream.conn.wants_write() {
                stream.conn.write_tls(&mut records).expect("records");
            }
            // Byte by byte. The test waits for every fifth byte, so that pieces of one byte and of a few bytes arrive.
            for (place, byte) in records.iter().enumerate() {
                let before = rig.received();
                stream.sock.write_all(&[*byte]).expect("sent");
                if place % 5 == 0 {
                    rig.wait(|| rig.received() > before, "a byte");
                }
            }
            if stream.conn.wants_read() {
                stream.conn.read_tls(&mut stream.sock).expect("records");
                stream.conn.process_new_packets().expect("a handshake");
            }
        }
        assert_eq!(ask(&mut stream, &get("/a.txt")).1, b"here");
    }
}

fn a_handshake_has_its_time(stand: Stand) {
    let authority = Authority::new();
    let rig = serve(stand, &authority, |policy| policy.limits.handshake_time = ms(200), |server| server);
    let mut silent = connect(&rig);
    let mut slow = connect(&rig);
    // The beginning of a record that never ends.
    slow.write_all(&[22, 3, 1, 2, 0, 1]).expect("sent");
    rig.wait_for_closes(CloseReason::HandshakeTime, 2);
    assert_eq!(silent.read(&mut [0]).expect("its end"), 0);
    // On a busy machine its bytes may arrive after the time, and reset the connection.
    let end = slow.read(&mut [0]);
    assert!(matches!(&end, Ok(0)) || end.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset));
}

fn a_handshake_that_drips_has_no_more_time(stand: Stand) {
    let authority = Authority::new();
    let rig = serve(stand, &authority, |policy| policy.limits.handshake_time = ms(200), |server| server);
    let mut slow = connect(&rig);
    slow.set_read_timeout(Some(Duration::from_millis(5))).expect("a time");
    // A ClientHello of 15 KiB: a byte every 5 ms would take 77 s.
    slow.write_all(&[22, 3, 1, 0x40, 0, 1, 0, 0x3c, 0]).expect("sent");
    let waits = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    while slow.read(&mut [0]).is_err_and(|error| waits(&error)) && slow.write_all(&[1]).is_ok() {}
    rig.wait_for_closes(CloseReason::HandshakeTime, 1);
}

fn a_handshake_may_be_cut_off_anywhere(stand: Stand) {
    let authority = Authority::new();
    let rig = serve(stand, &authority, |_| {}, |server| server);
    let said = client_hello(&authority);
    let cuts = [0, 1, 5, said.len() / 2, said.len() - 1, said.len()];
    for cut in cuts {
        let mut stream = connect(&rig);
        stream.write_all(&said[..cut]).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("a socket");
        stream.read_to_end(&mut Vec::new()).expect("its end");
    }
    rig.wait_for_closes(CloseReason::Handshake, cuts.len() as u64);
    // Without a byte, the connection may end before the server notices it.
    for cut in &cuts[1..] {
        let mut stream = connect(&rig);
        let before = rig.received();
        stream.write_all(&said[..*cut]).expect("sent");
        rig.wait(|| rig.received() == before + *cut as u64, "what it has said");
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
    }
    rig.wait_for_closes(CloseReason::PeerReset, cuts.len() as u64 - 1);
}

fn a_thousand_stopped_handshakes_block_no_client(stand: Stand) {
    const STOPPED: usize = 1_000;
    let authority = Authority::new();
    let folder = Folder::new().with("a.txt", "here");
    let limit = |policy: &mut ConnLimits| {
        policy.limits.handshakes = NonZeroU32::new(1).expect("above 0");
        policy.connections = 2 * STOPPED;
    };
    let rig = serve(stand, &authority, limit, |server| server.mount("/", files(&folder)));
    let said = client_hello(&authority);
    let stopped: Vec<TcpStream> = (0..STOPPED)
        .map(|_| {
            let mut stream = connect(&rig);
            stream.write_all(&said[..said.len() / 2]).expect("sent");
            stream
        })
        .collect();
    rig.wait(|| rig.connections() == STOPPED as u64, "all of them");
    for version in BOTH {
        let config = Arc::new(authority.client(&[version]));
        assert_eq!(ask(&mut shake(&rig, &config, "localhost"), &get("/a.txt")).1, b"here");
    }
    drop(stopped);
    rig.wait_for_closes(CloseReason::Handshake, STOPPED as u64);
}

fn records_that_are_none_end_their_connection(stand: Stand) {
    let authority = Authority::new();
    let rig = serve(stand, &authority, |_| {}, |server| server);
    // A record that is too large, a record of an unknown type, an unsealed record, and a plaintext handshake record.
    let records = [
        &[23, 3, 3, 0xff, 0xff][..],
        &[99, 3, 3, 0, 1, 0],
        &[23, 3, 3, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[22, 3, 3, 0, 4, 1, 0, 0, 0],
    ];
    for version in BOTH {
        let config = Arc::new(authority.client(&[version]));
        for said in records {
            let mut stream = shake(&rig, &config, "localhost");
            ask(&mut stream, &get("/"));
            stream.sock.write_all(said).expect("sent");
            let told = stream.read(&mut [0]).expect_err("an alert").to_string();
            assert!(told.contains("alert"), "{said:?}: {told}");
        }
    }
    rig.wait_for_closes(CloseReason::Tls, 2 * records.len() as u64);
}

fn slow_clients_are_ended_as_in_the_clear(stand: Stand) {
    const SLOW: usize = 8;
    let authority = Authority::new();
    let folder = Folder::new().with("large", vec![b'x'; 8 << 20]);
    let config = Arc::new(authority.client(&BOTH));
    for (request, reason) in [
        (String::new(), CloseReason::HeadTime),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: ".to_owned(), CloseReason::HeadTime),
        (
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf".to_owned(),
            CloseReason::BodyRate,
        ),
        (get("/large"), CloseReason::WriteRate),
        (get("/"), CloseReason::IdleTime),
    ] {
        let limit = |policy: &mut ConnLimits| {
            // A client of a busy machine may pause before its request.
            policy.limits.head_time = ms(if reason == CloseReason::HeadTime { 1_000 } else { 60_000 });
            policy.limits.idle_time = ms(300);
            policy.limits.linger_time = ms(100);
            policy.rate_window_ns = ms(100).nanoseconds();
            policy.limits.body_rate = ByteRate::of(10_000);
            policy.limits.write_rate = ByteRate::of(10_000);
        };
        let large = files(&folder);
        let rig = serve(stand, &authority, limit, |server| {
            server.mount("/", handlers::hello).mount("/echo", handlers::Echo).mount("/large", large)
        });
        let slow: Vec<Stream> = (0..SLOW)
            .map(|_| {
                let mut stream = shake(&rig, &config, "localhost");
                while stream.conn.is_handshaking() {
                    stream.conn.complete_io(&mut stream.sock).expect("a handshake");
                }
                stream.write_all(request.as_bytes()).expect("sent");
                stream
            })
            .collect();
        // On a machine so slow that a good client seems slow, too, it tries again.
        let served = || {
            let mut good = shake(&rig, &config, "localhost");
            let asked = good.write_all(get("/").as_bytes());
            asked.is_ok() && good.read(&mut [0; 12]).is_ok_and(|count| count > 0)
        };
        rig.wait(served, "a good client is served");
        rig.wait(|| rig.closes(reason) >= SLOW as u64, reason.name());
        drop(slow);
    }
}

/// Renegotiation exists only in TLS 1.2. It has allowed attacks on others' connections (CVE-2009-3555), and keeps a server
/// busy.
fn renegotiation_is_refused(stand: Stand) {
    let authority = Authority::new();
    let rig = serve(stand, &authority, |_| {}, |server| server.mount("/", handlers::hello));
    let mut client = Command::new("openssl")
        .args(["s_client", "-tls1_2", "-servername", "localhost", "-connect", &rig.address().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is installed");
    // A line that begins with `R` is a command of `openssl s_client`. It ends by itself after the refusal. At an end of its input it
    // would not wait for the response of the server.
    let mut input = client.stdin.take().expect("piped");
    input.write_all(b"R\n").expect("it reads");
    let told = client.wait_with_output().expect("its end");
    drop(input);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("no renegotiation"), "{told}");
    rig.wait(|| rig.connections() == 0, "its end");
    let config = Arc::new(authority.client(&BOTH));
    assert_eq!(ask(&mut shake(&rig, &config, "localhost"), &get("/")).1, b"Hello\n");
}

/// The ClientHello of a client that trusts an authority.
fn client_hello(authority: &Authority) -> Vec<u8> {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut session = ClientConnection::new(Arc::new(authority.client(&BOTH)), name).expect("a session");
    let mut records = Vec::new();
    session.write_tls(&mut records).expect("records");
    records
}

fn what_is_no_handshake_is_closed_with_an_alert(stand: Stand) {
    let authority = Authority::new();
    let rig = serve(stand, &authority, |_| {}, |server| server);
    // A record of another type, a record that is too large, and an unknown handshake message.
    for said in [&[23, 3, 3, 0, 1, 0][..], &[22, 3, 1, 0xff, 0xff, 1], &[22, 3, 1, 0, 4, 9, 0, 0, 0]] {
        let mut stream = connect(&rig);
        stream.write_all(said).expect("sent");
        let mut told = Vec::new();
        stream.read_to_end(&mut told).expect("its end");
        assert_eq!(told.first(), Some(&21), "an alert: {told:?}");
        assert_eq!(told.len(), 7, "one alert: {told:?}");
    }
    // A message of 16 MiB: there is no need to wait for it, nor to respond.
    let mut stream = connect(&rig);
    stream.write_all(&[22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff]).expect("sent");
    stream.read_to_end(&mut Vec::new()).expect("its end");
    drop(stream);
    rig.wait_for_closes(CloseReason::Handshake, 4);
    assert_eq!(rig.count_of("encke_tls_handshake_failures_total", "protocol"), 4);
}

fn plain_http_is_told_to_use_tls(stand: Stand) {
    let authority = Authority::new();
    let rig = serve(stand, &authority, |_| {}, |server| server);
    let mut stream = connect(&rig);
    stream.write_all(get("/").as_bytes()).expect("sent");
    stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    let mut told = String::new();
    stream.read_to_string(&mut told).expect("its end");
    assert!(told.starts_with("HTTP/1.1 400 ") && told.contains("use https"), "{told}");
    rig.wait(|| rig.count_of("encke_tls_handshake_failures_total", "plain_http") == 1, "it is counted");
}

fn a_proxy_header_comes_before_the_handshake(stand: Stand) {
    let authority = Authority::new();
    let identity = identity(&settings(authority.sign("localhost", &["localhost"])));
    let door = ListenConfig { proxy_protocol: true, tls: Some(identity), ..ListenConfig::from(any_port()) };
    let server =
        Server::new(stand.options(|policy| policy.limits.handshake_time = ms(60_000))).listener(door);
    let rig = Rig::of(server.mount("/", crate::rig::handlers::who).start().expect("a free port"));
    let config = Arc::new(authority.client(&BOTH));
    let header = b"PROXY TCP4 203.0.113.9 10.0.0.1 51234 443\r\n";
    for cut in [0, 1, 20, header.len()] {
        let mut stream = shake(&rig, &config, "localhost");
        stream.sock.set_nodelay(true).expect("a socket");
        let before = rig.received();
        stream.sock.write_all(&header[..cut]).expect("sent");
        rig.wait(|| rig.received() >= before + cut as u64, "the first piece");
        stream.sock.write_all(&header[cut..]).expect("sent");
        let (_, told) = ask(&mut stream, &get("/"));
        let told = String::from_utf8(told).expect("text");
        assert!(told.contains("203.0.113.9"), "{told}");
    }
}

fn so_many_handshakes_go_on_at_a_time(stand: Stand) {
    let authority = Authority::new();
    let rig = serve(
        stand,
        &authority,
        |policy| policy.limits.handshakes = NonZeroU32::new(2).expect("above 0"),
        |server| server,
    );
    let said = client_hello(&authority);
    let most = 2 * stand.workers as u64;
    let refused = || rig.count_of("encke_tls_handshake_failures_total", "busy");
    let mut waiting = Vec::new();
    while refused() == 0 {
        let mut stream = connect(&rig);
        stream.write_all(&said).expect("sent");
        // The server's part of the handshake, or the end.
        let _response_or_end = stream.read(&mut [0; 16]);
        waiting.push(stream);
        // On a busy machine the first may have stalled, and give way.
        let ended = rig.closes(CloseReason::HandshakeTime);
        assert!(waiting.len() as u64 <= most + 1 + ended, "{most} handshakes, and one too many");
    }
    // Each handshake that ends makes room for another.
    drop(waiting);
    rig.wait(|| rig.connections() == 0, "their end");
    let config = Arc::new(authority.client(&BOTH));
    let (head, _) = ask(&mut shake(&rig, &config, "localhost"), &get("/"));
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
}

fn partial_client_hellos_do_not_count_as_handshakes(stand: Stand) {
    // With 4 workers each has at least one in all but one of 10^7 runs.
    const PARTIAL: usize = 64;
    let authority = Authority::new();
    let rig = serve(
        stand,
        &authority,
        |policy| policy.limits.handshakes = NonZeroU32::new(1).expect("above 0"),
        |server| server,
    );
    let said = client_hello(&authority);
    let partial: Vec<TcpStream> = (0..PARTIAL)
        .map(|number| {
            let mut stream = connect(&rig);
            // Also beginnings that make a session wait: of other records, and of another message.
            let others: [&[u8]; 4] = [&[23], &[22, 2], &[23, 3, 3, 0x40, 0], &[22, 3, 1, 0x40, 0, 2]];
            let part = match others.get(number) {
                Some(other) => other,
                None => &said[..number * (said.len() - 1) / (PARTIAL - 1)],
            };
            stream.write_all(part).expect("sent");
            stream
        })
        .collect();
    let accepted = || rig.connections() + rig.count_of("encke_tls_handshake_failures_total", "busy");
    rig.wait(|| accepted() == PARTIAL as u64, "all of them");
    let sent = |number: usize| match number {
        0 => 1,
        1 => 2,
        2 => 5,
        3 => 6,
        _ => number * (said.len() - 1) / (PARTIAL - 1),
    };
    let bytes: usize = (0..PARTIAL).map(sent).sum();
    rig.wait(|| rig.received() >= bytes as u64, "all that they have sent");
    for version in BOTH {
        let config = Arc::new(authority.client(&[version]));
        let (head, _) = ask(&mut shake(&rig, &config, "localhost"), &get("/"));
        assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    }
    assert_eq!(rig.count_of("encke_tls_handshake_failures_total", "busy"), 0);
    drop(partial);
    rig.wait_for_closes(CloseReason::Handshake, PARTIAL as u64);
}

fn a_stalled_handshake_gives_way_to_a_new_one(stand: Stand) {
    // Enough that each of 4 workers has a stalled one in all but one of 10^7 runs.
    const STALLED: usize = 64;
    let authority = Authority::new();
    let limit = |policy: &mut ConnLimits| {
        policy.limits.handshakes = NonZeroU32::new(1).expect("above 0");
        policy.limits.handshake_time = ms(600_000);
    };
    let rig = serve(stand, &authority, limit, |server| server);
    let said = client_hello(&authority);
    let _stalled: Vec<TcpStream> = (0..STALLED)
        .map(|_| {
            let mut stream = connect(&rig);
            stream.write_all(&said).expect("sent");
            let _response_or_end = stream.read(&mut [0; 16]);
            stream
        })
        .collect();
    let config = Arc::new(authority.client(&BOTH));
    let served = || {
        let mut stream = shake(&rig, &config, "localhost");
        stream.write_all(get("/").as_bytes()).is_ok()
            && stream.read(&mut [0; 12]).is_ok_and(|count| count > 0)
    };
    rig.wait(served, "a new client is served");
    assert!(rig.closes(CloseReason::HandshakeTime) > 0, "one has given way");
}

fn a_client_hello_beyond_its_limit_is_rejected(stand: Stand) {
    let authority = Authority::new();
    let rig = serve(stand, &authority, |_| {}, |server| server);
    // A message of 32 KiB in two records, the first of which is complete.
    let mut said = vec![22, 3, 1, 0x40, 0, 1, 0, 0x80, 0];
    said.resize(5 + 0x4000, 0);
    let mut stream = connect(&rig);
    stream.write_all(&said).expect("sent");
    stream.read_to_end(&mut Vec::new()).expect("its end");
    drop(stream);
    rig.wait_for_closes(CloseReason::Handshake, 1);
    assert_eq!(rig.count_of("encke_tls_handshake_failures_total", "protocol"), 1);
}

fn an_answer_that_is_the_last_one_ends_with_a_farewell(stand: Stand) {
    let authority = Authority::new();
    let folder = Folder::new();
    folder.write("a.bin", bytes(300_000));
    let rig = serve(stand, &authority, |_| {}, |server| server.mount("/", files(&folder)));
    for version in BOTH {
        let config = Arc::new(authority.client(&[version]));
        let mut stream = shake(&rig, &config, "localhost");
        let request = "GET /a.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        assert_eq!(ask(&mut stream, request).1, bytes(300_000));
        // An end without close_notify would be an error here: the response may have been truncated.
        assert_eq!(stream.read(&mut [0]).expect("a farewell"), 0);
    }
}

fn a_client_that_stops_reading_is_ended(stand: Stand) {
    let authority = Authority::new();
    let folder = Folder::new();
    folder.write("large.bin", bytes(8_000_000));
    let limit = |policy: &mut ConnLimits| policy.rate_window_ns = ms(200).nanoseconds();
    let rig = serve(stand, &authority, limit, |server| server.mount("/", files(&folder)));
    let config = Arc::new(authority.client(&BOTH));
    let mut stream = shake(&rig, &config, "localhost");
    stream.write_all(get("/large.bin").as_bytes()).expect("sent");
    stream.read_exact(&mut [0; 100]).expect("its beginning");
    rig.wait_for_closes(CloseReason::WriteRate, 1);
}

fn each_name_gets_its_certificate(stand: Stand) {
    let authority = Authority::new();
    let mut settings = settings(authority.sign("first", &["localhost"]));
    settings.more = vec![
        authority.sign("second", &["second.example", "www.second.example"]),
        authority.sign("wild", &["*.wild.example"]),
    ];
    let rig = serve_as(stand, identity(&settings), |_| {}, |server| server);
    let config = Arc::new(authority.client(&BOTH));
    for name in ["localhost", "second.example", "WWW.second.example", "a.wild.example"] {
        let (head, _) = ask(&mut shake(&rig, &config, name), &get("/"));
        assert!(head.starts_with("HTTP/1.1 404 "), "{name}: {head}");
    }
    // A client that requests another name receives the first certificate, and rejects it.
    for name in ["wild.example", "a.b.wild.example", "third.example"] {
        let error = shake(&rig, &config, name).write_all(b"x").expect_err("another's certificate");
        assert!(error.to_string().contains("not valid for name"), "{name}: {error}");
    }
}

fn a_session_is_resumed_on_any_worker(stand: Stand) {
    let authority = Authority::new();
    let stand = Stand { workers: 4, ..stand };
    let rig = serve(stand, &authority, |_| {}, |server| server);
    for version in BOTH {
        let config = Arc::new(authority.client(&[version]));
        let mut kinds = Vec::new();
        for _ in 0..12 {
            let mut stream = shake(&rig, &config, "localhost");
            ask(&mut stream, &get("/"));
            kinds.push(stream.conn.handshake_kind());
        }
        assert_ne!(kinds[0], Some(HandshakeKind::Resumed));
        assert!(kinds[1..].iter().all(|kind| *kind == Some(HandshakeKind::Resumed)), "{kinds:?}");
    }
    assert_eq!(rig.count_of("encke_tls_handshakes_total", "resumed"), 22);
}

fn a_renewed_certificate_is_shown_to_new_connections_and_old_ones_go_on(stand: Stand) {
    let authority = Authority::new();
    let settings = settings(authority.sign("localhost", &["localhost"]));
    let identity = identity(&settings);
    let rig = serve_as(stand, Arc::clone(&identity), |_| {}, |server| server);
    let config = Arc::new(authority.client(&BOTH));
    let shown = |stream: &Stream| stream.conn.peer_certificates().expect("one")[0].clone();
    let mut old = shake(&rig, &config, "localhost");
    ask(&mut old, &get("/"));

    // An invalid pair changes nothing.
    let other = authority.sign("other", &["localhost"]);
    std::fs::copy(&other.cert, settings.cert.as_ref().expect("named")).expect("written");
    let error = identity.reread(&mut Vec::new()).expect_err("half a pair").to_string();
    assert!(error.contains("localhost.key") && error.contains("not the key of the certificate"), "{error}");
    let fresh = Arc::new(authority.client(&BOTH));
    let mut same = shake(&rig, &fresh, "localhost");
    ask(&mut same, &get("/"));
    assert_eq!(shown(&same), shown(&old));

    std::fs::copy(&other.key, settings.key.as_ref().expect("named")).expect("written");
    identity.reread(&mut Vec::new()).expect("a pair");
    let fresh = Arc::new(authority.client(&BOTH));
    let mut new = shake(&rig, &fresh, "localhost");
    ask(&mut new, &get("/"));
    assert_ne!(shown(&new), shown(&old));
    ask(&mut old, &get("/"));
}

fn a_failed_reload_leaves_no_identity_behind(stand: Stand) {
    let authority = Authority::new();
    let rig = stand.serve(|server| server.mount("/", handlers::hello));
    let socket = Address::Unix(authority.path("socket"));
    let sealed = |file: &str| ListenConfig {
        tls: Some(identity(&settings(authority.sign(file, &["localhost"])))),
        address: socket.clone(),
        ..ListenConfig::from(any_port())
    };
    let listener = TcpListener::bind(any_port()).expect("a free port");
    let taken = ListenConfig::from(listener.local_addr().expect("an address"));
    let Err(error) = rig.running().bind_new(&[sealed("first"), taken]) else { panic!("its port is taken") };
    assert!(error.is_address_in_use(), "{error}");

    let second = [sealed("second")];
    let bound = rig.running().bind_new(&second).expect("its path is free again");
    rig.running().listen_only(&second, bound);
    let third = [sealed("third")];
    assert_eq!(rig.running().renew_identities(&third), [], "the encryption of no listener changes");
    let config = Arc::new(authority.client(&BOTH));
    let session = ClientConnection::new(config, ServerName::try_from("localhost").expect("a name"));
    let Address::Unix(path) = &socket else { panic!("it is a Unix socket") };
    let stream = std::os::unix::net::UnixStream::connect(path).expect("it listens");
    let mut stream = rustls::StreamOwned::new(session.expect("a session"), stream);
    stream.write_all(get("/").as_bytes()).expect("sent");
    let shown = stream.conn.peer_certificates().expect("one")[0].clone();
    let expected = CertificateDer::from_pem_file(authority.path("third.pem")).expect("a certificate");
    assert_eq!(shown, expected);
}

/// Twenty certificate pairs, each installed as another tool does it.
fn pairs_that_change_are_taken_while_clients_come_and_nobody_notices(stand: Stand) {
    let authority = Authority::new();
    let pairs: Vec<CertSettings> =
        (0..20).map(|number| authority.sign(&format!("pair-{number}"), &["localhost"])).collect();
    let link = |from: &str, to: &Path| std::os::unix::fs::symlink(to, authority.path(from)).expect("a link");
    let renamed = |from: &str, to: &str| {
        std::fs::rename(authority.path(from), authority.path(to)).expect("a folder of the case");
    };
    // As certbot does: names that are links into an archive.
    link("shown.pem", &pairs[0].cert);
    link("shown.key", &pairs[0].key);
    let shown =
        CertSettings { cert: authority.path("shown.pem"), key: authority.path("shown.key"), ocsp: None };
    let door =
        ListenConfig { tls: Some(identity(&settings(shown.clone()))), ..ListenConfig::from(any_port()) };
    let mut options = stand.options(|policy| policy.limits.handshake_time = ms(60_000));
    options.certificates_every = Duration::from_millis(10);
    let rig = Rig::of(Server::new(options).listener(door).start().expect("a free port"));

    let over = AtomicBool::new(false);
    // A new configuration for each client: no session is resumed, and every handshake is a full one.
    let come = || {
        let mut stream = shake(&rig, &Arc::new(authority.client(&BOTH)), "localhost");
        let (head, _) = ask(&mut stream, &get("/"));
        assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
        stream
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while !over.load(Ordering::Relaxed) {
                        come();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let mut old = come();
        for (number, pair) in pairs.iter().enumerate().skip(1) {
            match number % 3 {
                // A link replaces a link.
                0 => {
                    link("new.pem", &pair.cert);
                    link("new.key", &pair.key);
                    renamed("new.pem", "shown.pem");
                    renamed("new.key", "shown.key");
                }
                // A file replaces the name.
                1 => {
                    std::fs::copy(&pair.cert, authority.path("new.pem")).expect("written");
                    std::fs::copy(&pair.key, authority.path("new.key")).expect("written");
                    renamed("new.key", "shown.key");
                    renamed("new.pem", "shown.pem");
                }
                // The file itself is overwritten.
                _ => {
                    std::fs::copy(&pair.cert, &shown.cert).expect("written");
                    std::fs::copy(&pair.key, &shown.key).expect("written");
                }
            }
            let wanted = CertificateDer::from_pem_file(&pair.cert).expect("a certificate");
            let taken = || come().conn.peer_certificates().expect("one")[0] == wanted;
            rig.wait(taken, &format!("pair {number} is shown"));
            ask(&mut old, &get("/"));
        }
        over.store(true, Ordering::Relaxed);
        for client in clients {
            let count = client.join().expect("no request failed");
            assert!(count > 0, "a client never came round");
        }
    });
    assert_eq!(rig.count("encke_tls_handshake_failures_total"), 0);
    let families = rig.running().families();
    let ends = families.iter().find(|family| family.name == "encke_tls_certificate_expiry_seconds");
    let samples = &ends.expect("there is a certificate").samples;
    assert_eq!(samples.len(), 1);
    assert_eq!(samples[0].labels[0].1, shown.cert.display().to_string());
}

fn clients_show_certificates_where_they_must(stand: Stand) {
    let authority = Authority::new();
    let shown = authority.sign_by("client", &["client"], |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    for client in [ClientCert::Required, ClientCert::Optional] {
        let mut settings = settings(authority.sign("localhost", &["localhost"]));
        settings.client_ca = Some(authority.path("authority.pem"));
        settings.client = client;
        let rig = serve_as(stand, identity(&settings), |_| {}, |server| server);
        for version in BOTH {
            let builder = ClientConfig::builder_with_provider(provider())
                .with_protocol_versions(&[version])
                .expect("a version")
                .with_root_certificates(authority.roots());
            let chain = vec![CertificateDer::from_pem_file(&shown.cert).expect("a certificate")];
            let key = PrivateKeyDer::from_pem_file(&shown.key).expect("a key");
            let config = Arc::new(builder.with_client_auth_cert(chain, key).expect("a pair"));
            let (head, _) = ask(&mut shake(&rig, &config, "localhost"), &get("/"));
            assert!(head.starts_with("HTTP/1.1 404 "), "{head}");

            let without = Arc::new(authority.client(&[version]));
            let mut stream = shake(&rig, &without, "localhost");
            let asked = stream.write_all(get("/").as_bytes()).and_then(|()| stream.read(&mut [0; 9]));
            assert_eq!(asked.is_ok(), client == ClientCert::Optional, "{asked:?}");
        }
        let failures = || rig.count_of("encke_tls_handshake_failures_total", "client_certificate");
        let due = if client == ClientCert::Required { 2 } else { 0 };
        rig.wait(|| failures() >= due, "the refusals are counted");
        assert_eq!(failures(), due);
    }
}

fn without_a_certificate_handshakes_are_refused(stand: Stand) {
    let authority = Authority::new();
    let acme = AcmeSettings {
        domains: vec!["localhost".into()],
        folder: authority.folder.path().join("acme"),
        ..AcmeSettings::default()
    };
    let none = TlsSettings { acme: Some(acme), ..TlsSettings::default() };
    let both = {
        let CertSettings { cert, key, .. } = authority.sign("localhost", &["localhost"]);
        TlsSettings { cert: Some(cert), key: Some(key), ..none.clone() }
    };
    let proof = &b"acme-tls/1"[..];
    let by = |rig: &Rig, protocols: &[&[u8]]| {
        let mut config = authority.client(&BOTH);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let mut stream = shake(rig, &Arc::new(config), "localhost");
        stream.write_all(get("/").as_bytes()).and_then(|()| stream.read(&mut [0; 9]))
    };
    let refused = |rig: &Rig| rig.count_of("encke_tls_handshake_failures_total", "no_certificate");

    // No certificate has been fetched yet.
    let rig = serve_as(stand, identity(&none), |_| {}, |server| server);
    let error = by(&rig, &[b"http/1.1"]).expect_err("no certificate").to_string();
    assert!(error.contains("AccessDenied"), "{error}");
    rig.wait(|| refused(&rig) == 1, "a refusal");

    // With a regular certificate pair: only a client that requests nothing but a proof, of which there is none, is rejected.
    let rig = serve_as(stand, identity(&both), |_| {}, |server| server);
    assert!(by(&rig, &[b"http/1.1"]).is_ok());
    assert!(by(&rig, &[proof, b"http/1.1"]).is_ok(), "it asked for more than a proof");
    assert_eq!(refused(&rig), 0);
    let error = by(&rig, &[proof]).expect_err("no proof").to_string();
    assert!(error.contains("AccessDenied"), "{error}");
    rig.wait(|| refused(&rig) == 1, "a refusal");
    // The server would not read a request after such a handshake.
    let read = by(&rig, &[proof, b"unknown"]);
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    rig.wait_for_closes(CloseReason::Answered, 1);
    assert_eq!(rig.count("encke_http_requests_total"), 2);
}

#[test]
fn what_is_wrong_with_a_pair_is_told_with_its_file_and_the_remedy() {
    let authority = Authority::new();
    let good = authority.sign("good", &["localhost"]);
    let other = authority.sign("other", &["localhost"]);
    let day = |year: i32| rcgen::date_time_ymd(year, 1, 1);
    let expired = authority.sign_by("expired", &["localhost"], |params| {
        (params.not_before, params.not_after) = (day(2020), day(2021));
    });
    let early = authority.sign_by("early", &["localhost"], |params| {
        (params.not_before, params.not_after) = (day(3000), day(3001));
    });
    authority.folder.write("empty.pem", b"");
    let empty = CertSettings { cert: authority.path("empty.pem"), ..good.clone() };
    let absent = CertSettings { key: authority.path("absent.key"), ..good.clone() };
    let mixed = CertSettings { key: other.key, ..good.clone() };
    for (pair, file, says) in [
        (expired, "expired.pem", "has expired"),
        (early, "early.pem", "is the clock right?"),
        (empty, "empty.pem", "there is no certificate in it"),
        (absent, "absent.key", "No such file"),
        (mixed, "other.key", "not the key of the certificate in"),
    ] {
        let error = TlsIdentity::read(&settings(pair), &mut Vec::new()).err().expect("it does not hold");
        let error = error.to_string();
        assert!(error.contains(file) && error.contains(says), "{error}");
    }
    let mut notes = Vec::new();
    let soon = authority.sign_by("soon", &["localhost"], |params| {
        let now = std::time::SystemTime::now();
        params.not_after = (now + std::time::Duration::from_secs(3 * 86_400)).into();
    });
    assert!(TlsIdentity::read(&settings(soon), &mut notes).is_ok());
    assert!(notes[0].contains("soon.pem") && notes[0].contains("expires"), "{notes:?}");
    let strict = TlsSettings { min_version: TlsVersion::Tls13, ..settings(good) };
    let rig = {
        let stand = Stand { backend: encke_io::Backend::EpollEdge, workers: 1 };
        serve_as(stand, identity(&strict), |_| {}, |server| server)
    };
    let old = Arc::new(authority.client(&[&version::TLS12]));
    assert!(shake(&rig, &old, "localhost").write_all(b"x").is_err());
    rig.wait(|| rig.count_of("encke_tls_handshake_failures_total", "incompatible") == 1, "it is counted");
    let mut new = shake(&rig, &Arc::new(authority.client(&BOTH)), "localhost");
    ask(&mut new, &get("/"));
    assert_eq!(new.conn.protocol_version(), Some(ProtocolVersion::TLSv1_3));
}
