//! The list of connections, for TLS: handshakes, versions, ages, certificates.

use std::sync::Arc;

use encke_stats::Cell;

use crate::inspect::{all, count, list, text, wait_for_cause};
use crate::rig::handlers::hello;
use crate::rig::tls::{Authority, ask, connect, get, serve, shake};
use crate::rig::{Rig, Stand};

on_two_stands! {
    a_tls_handshake_is_named,
    a_tls_connection_has_a_version_and_an_age,
    certificates_are_listed,
}

fn rig(on: Stand, authority: &Authority) -> Rig {
    serve(on, authority, |_| {}, |server| server.mount("/", hello))
}

fn a_tls_handshake_is_named(on: Stand) {
    let rig = rig(on, &Authority::new());
    let _silent = connect(&rig);
    let row = wait_for_cause(&rig, "TLS handshake for ");
    assert_eq!((text(&row, "protocol"), text(&row, "tls")), ("tls handshake".into(), String::new()));
    assert!(text(&row, "waits").ends_with(" (closes after 60 s, limits.handshake_time)"), "{row:?}");
    rig.end();
}

fn a_tls_connection_has_a_version_and_an_age(on: Stand) {
    let authority = Authority::new();
    let rig = rig(on, &authority);
    let config = Arc::new(authority.client(&[&rustls::version::TLS13]));
    let mut stream = shake(&rig, &config, "localhost");
    for _ in 0..2 {
        ask(&mut stream, &get("/"));
    }
    let row = wait_for_cause(&rig, "no request for ");
    assert_eq!((text(&row, "tls"), count(&row, "requests")), ("1.3".into(), 2));
    assert!(matches!(row.cell("age_s"), Some(Cell::Number(age)) if *age < 600.0), "{row:?}");
    rig.end();
}

fn certificates_are_listed(on: Stand) {
    let rig = rig(on, &Authority::new());
    let rows = list(&rig, "certificates", &all()).rows;
    assert_eq!((rows.len(), text(&rows[0], "listener")), (1, rig.address().to_string()));
    assert_eq!(text(&rows[0], "names"), "localhost");
    assert!(count(&rows[0], "expires_ms") > 1_000_000_000_000, "{rows:?}");
    rig.end();
}
