//! Client addresses: behind load balancers that send a PROXY header, and behind proxies that set a field.

use encke_settings::OrOff;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;

use encke_server::{CloseReason, ConnLimits, ListenConfig, Network, Server};
use encke_wire::forwarded::ForwardingField;

use crate::rig::handlers::who;
use crate::rig::{Client, Cut, Folder, Rig, Stand, any_port, ms};

on_every_stand! {
    a_proxy_header_may_be_cut_anywhere,
    a_connection_without_its_proxy_header_is_closed_without_an_answer,
    a_proxy_header_has_its_time,
    an_address_behind_a_proxy_header_has_so_many_connections,
}

on_two_stands! {
    a_proxy_header_names_the_client,
    a_trusted_proxy_is_believed,
    a_client_cannot_hide_the_element_of_its_proxy,
    anybody_else_is_not_believed,
    the_other_field_is_not_looked_at,
    a_proxy_at_a_unix_socket_is_believed,
}

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A server whose connections begin with a PROXY header.
fn serve_proxied(stand: Stand, limit: impl FnOnce(&mut ConnLimits)) -> Rig {
    let door = ListenConfig { proxy_protocol: true, ..ListenConfig::from(any_port()) };
    let server = Server::new(stand.options(limit)).listener(door).mount("/", who);
    Rig::of(server.start().expect("a free port"))
}

/// A version 2 header: signature, version and command, family, and the rest with its length.
fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([0x20 | command, family]);
    header.extend((rest.len() as u16).to_be_bytes());
    header.extend(rest);
    header
}

/// From 203.0.113.9:51234 to 10.0.0.1:443.
const V4: [u8; 12] = [203, 0, 113, 9, 10, 0, 0, 1, 0xC8, 0x22, 0x01, 0xBB];

fn headers() -> Vec<(Vec<u8>, &'static str)> {
    let mut v6 = [0; 36];
    v6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    v6[15] = 9;
    v6[31] = 1;
    let with_values = [&V4[..], &[0x04, 0, 3, 1, 2, 3]].concat();
    vec![
        (b"PROXY TCP4 203.0.113.9 10.0.0.1 51234 443\r\n".to_vec(), "203.0.113.9"),
        (b"PROXY TCP6 2001:db8::9 ::1 51234 443\r\n".to_vec(), "2001:db8::9"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (version_2(1, 0x11, &V4), "203.0.113.9"),
        (version_2(1, 0x21, &v6), "2001:db8::9"),
        (version_2(1, 0x11, &with_values), "203.0.113.9"),
        // The proxy itself: a health check.
        (version_2(0, 0x00, &[]), "127.0.0.1"),
    ]
}

fn a_proxy_header_names_the_client(stand: Stand) {
    let rig = serve_proxied(stand, |_| {});
    for (header, client_is) in headers() {
        let mut client = rig.client();
        let answer = client.ask([&header, GET.as_bytes()].concat());
        assert_eq!(answer.text(), format!("{client_is} clear"), "{header:?}");
        assert_eq!(client.get("/").text(), format!("{client_is} clear"), "of each request");
    }
}

fn a_proxy_header_may_be_cut_anywhere(stand: Stand) {
    let rig = serve_proxied(stand, |_| {});
    for (header, client_is) in headers() {
        let bytes = [&header, GET.as_bytes()].concat();
        for cut in Cut::all(&bytes).filter(|cut| !matches!(cut, Cut::At(at) if *at > header.len() + 2)) {
            let mut client = rig.client();
            client.send_cut(&rig, &bytes, cut);
            assert_eq!(client.answer().text(), format!("{client_is} clear"), "{cut:?} of {header:?}");
        }
    }
}

fn a_connection_without_its_proxy_header_is_closed_without_an_answer(stand: Stand) {
    let rig = serve_proxied(stand, |_| {});
    let garbage = [
        GET.as_bytes().to_vec(),
        b"PROXY TCP4 203.0.113.9\r\n".to_vec(),
        b"proxy tcp4 203.0.113.9 10.0.0.1 51234 443\r\n".to_vec(),
        b"PROXY TCP4 203.0.113.900 10.0.0.1 51234 443\r\n".to_vec(),
        vec![b'P'; 200],
        version_2(7, 0x11, &V4),
        version_2(1, 0x11, &V4[..8]),
    ];
    let count = garbage.len() as u64;
    for bytes in garbage {
        let mut client = rig.client();
        client.send(&bytes);
        client.finish();
        let (rest, _) = client.rest();
        assert!(rest.is_empty(), "{bytes:?} was answered with {rest:?}");
    }
    rig.wait_for_closes(CloseReason::ProxyHeader, count);
    assert_eq!(rig.count("encke_http_requests_total"), 0);
}

fn a_proxy_header_has_its_time(stand: Stand) {
    let rig = serve_proxied(stand, |policy| policy.limits.head_time = ms(100));
    for (count, beginning) in (1..).zip(["", "PROXY TCP4 203"]) {
        let mut client = rig.client();
        client.send(beginning);
        // Bytes that a busy machine sends after the time reset the connection.
        let (rest, _) = client.rest();
        assert!(rest.is_empty(), "{beginning:?}: {rest:?}");
        rig.wait_for_closes(CloseReason::ProxyHeader, count);
    }
}

/// The limit applies to the client, not to the proxy, and every count is released.
fn an_address_behind_a_proxy_header_has_so_many_connections(stand: Stand) {
    let rig = serve_proxied(stand, |policy| {
        policy.limits.connections_per_address = OrOff::On(NonZeroU32::new(2).expect("above 0"));
    });
    let from = |last: u8| {
        let mut client = rig.client();
        client.send(format!("PROXY TCP4 203.0.113.{last} 10.0.0.1 51234 443\r\n{GET}"));
        client
    };
    for round in 1..=3 {
        let mut inside = [from(1), from(1), from(2), from(2)];
        for client in &mut inside {
            assert_eq!(client.answer().status, 200);
        }
        let (rest, _) = from(1).rest();
        assert!(rest.is_empty(), "the third of one address: {rest:?}");
        rig.wait_for_closes(CloseReason::AddressLimit, round);
        drop(inside);
        rig.wait(|| rig.connections() == 0, "all have gone");
    }
}

/// A server that trusts proxies at 127.0.0.1, but not at 127.0.0.2.
fn serve_trusting(stand: Stand, dialect: ForwardingField) -> Rig {
    let limit = |policy: &mut ConnLimits| {
        policy.trusted_proxies = vec![
            Network { address: Ipv4Addr::LOCALHOST.into(), prefix: 32 },
            Network { address: Ipv4Addr::new(10, 0, 0, 0).into(), prefix: 8 },
        ];
        policy.dialect = dialect;
    };
    stand.serve_by(limit, |server| server.mount("/", who))
}

fn said(client: &mut Client, fields: &str) -> String {
    client.ask(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).text().to_owned()
}

fn a_trusted_proxy_is_believed(stand: Stand) {
    let rig = serve_trusting(stand, ForwardingField::XForwardedFor);
    let mut client = rig.client();
    for (fields, expected) in [
        ("", "127.0.0.1 clear"),
        ("X-Forwarded-For: 203.0.113.9\r\n", "203.0.113.9 clear"),
        ("X-Forwarded-For: 203.0.113.9, 10.1.2.3\r\n", "203.0.113.9 clear"),
        // Values that the client sent precede the values that our proxy added.
        ("X-Forwarded-For: 8.8.8.8, 203.0.113.9\r\n", "203.0.113.9 clear"),
        ("X-Forwarded-For: 8.8.8.8\r\nX-Forwarded-For: 203.0.113.9\r\n", "203.0.113.9 clear"),
        ("X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n", "203.0.113.9 secure"),
        ("X-Forwarded-For: 2001:db8::9\r\n", "2001:db8::9 clear"),
    ] {
        assert_eq!(said(&mut client, fields), expected, "{fields:?}");
    }

    let rig = serve_trusting(stand, ForwardingField::Forwarded);
    let mut client = rig.client();
    for (fields, expected) in [
        ("Forwarded: for=203.0.113.9;proto=https\r\n", "203.0.113.9 secure"),
        ("Forwarded: for=\"[2001:db8::9]:4711\"\r\n", "2001:db8::9 clear"),
        ("Forwarded: for=8.8.8.8, for=203.0.113.9, for=10.0.0.2\r\n", "203.0.113.9 clear"),
    ] {
        assert_eq!(said(&mut client, fields), expected, "{fields:?}");
    }
}

/// A proxy appends the client's address to the text that the client has sent.
fn a_client_cannot_hide_the_element_of_its_proxy(stand: Stand) {
    let rig = serve_trusting(stand, ForwardingField::XForwardedFor);
    let mut client = rig.client();
    for (sent, expected) in
        [("\"", "203.0.113.9 clear"), ("\", 10.0.0.1", "203.0.113.9 clear"), ("a\\\"", "203.0.113.9 clear")]
    {
        let fields = format!("X-Forwarded-For: {sent}, 203.0.113.9\r\n");
        assert_eq!(said(&mut client, &fields), expected, "{fields}");
    }
    assert_eq!(said(&mut client, "X-Forwarded-For: 8.8.8.8, _hidden\r\n"), "nobody clear");

    let rig = serve_trusting(stand, ForwardingField::Forwarded);
    let ask = |field: &str| rig.client().ask(format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"));
    assert_eq!(ask("Forwarded: for=\", for=203.0.113.9").status, 400);
    assert_eq!(ask("Forwarded: for=\"10.0.0.2\\\", for=203.0.113.9").status, 400);
    let secure = "Forwarded: for=203.0.113.9\r\nX-Forwarded-Proto: https";
    assert_eq!(ask(secure).text(), "203.0.113.9 clear", "the client may have sent the other field");
}

fn anybody_else_is_not_believed(stand: Stand) {
    for dialect in [ForwardingField::XForwardedFor, ForwardingField::Forwarded] {
        let rig = serve_trusting(stand, dialect);
        let mut client = Client::connect_from(Ipv4Addr::new(127, 0, 0, 2), rig.address());
        for fields in [
            "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n",
            "Forwarded: for=203.0.113.9;proto=https\r\n",
        ] {
            assert_eq!(said(&mut client, fields), "127.0.0.2 clear", "{fields:?}");
        }
    }
}

fn the_other_field_is_not_looked_at(stand: Stand) {
    let rig = serve_trusting(stand, ForwardingField::Forwarded);
    assert_eq!(said(&mut rig.client(), "X-Forwarded-For: 203.0.113.9\r\n"), "127.0.0.1 clear");
    let rig = serve_trusting(stand, ForwardingField::XForwardedFor);
    assert_eq!(said(&mut rig.client(), "Forwarded: for=203.0.113.9\r\n"), "127.0.0.1 clear");
}

fn a_proxy_at_a_unix_socket_is_believed(stand: Stand) {
    let folder = Folder::new();
    let address = encke_io::Address::Unix(folder.path().join("socket"));
    let door = ListenConfig {
        address: address.clone(),
        proxy_protocol: false,
        mode: None,
        optional: false,
        tls: None,
        to_https: false,
    };
    let limit = |policy: &mut ConnLimits| {
        policy.trusted_proxies = vec![Network { address: Ipv4Addr::LOCALHOST.into(), prefix: 32 }];
    };
    let server = Server::new(stand.options(limit)).listener(door).mount("/", who);
    let rig = Rig::of(server.start().expect("a folder of our own"));
    let mut client = rig.client();
    assert_eq!(said(&mut client, "X-Forwarded-For: 203.0.113.9\r\n"), "203.0.113.9 clear");
    assert_eq!(said(&mut client, ""), "nobody clear");
}
