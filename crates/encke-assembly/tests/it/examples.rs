//! The examples of the embedding API (`docs/embedding.md`), each with a client.

use encke_server::Server;

use crate::push_clients::Stream;
use crate::rig::{Client, Folder, Rig, Stand, any_port};

#[allow(dead_code, reason = "the test program has a `main` of its own")]
#[path = "../../examples/files.rs"]
mod files_example;
#[allow(dead_code, reason = "the test program has a `main` of its own")]
#[path = "../../examples/metrics.rs"]
mod metrics;
#[allow(dead_code, reason = "the test program has a `main` of its own")]
#[path = "../../examples/publish.rs"]
mod publish;

on_two_stands! {
    files_serves_a_directory_beside_a_handler,
    publish_sends_lines_to_subscribers,
    metrics_shows_a_metric_of_the_program,
}

fn files_serves_a_directory_beside_a_handler(stand: Stand) {
    let folder = Folder::new().with("page.html", "<p>a page");
    let root = folder.path().to_owned();
    let rig = stand.serve(|server| files_example::app(server, root).expect("a directory that can be read"));
    let mut client = rig.client();
    let page = client.get("/page.html");
    assert_eq!((page.status, page.text()), (200, "<p>a page"));
    assert!(client.get("/").text().contains("page.html"), "no listing");
    assert_eq!(client.get("/api/version").text(), "1.0\n");
    assert_eq!(client.get("/missing").status, 404);
}

fn publish_sends_lines_to_subscribers(stand: Stand) {
    let mut publisher = None;
    let rig = stand.serve(|server| {
        let (server, created) = publish::app(server).expect("valid settings");
        publisher = Some(created);
        server
    });
    let mut stream = Stream::open(&rig, "/push/news", "");
    let publisher = publisher.expect("the server was assembled");
    publish::publish_lines(&publisher, &b"one\ntwo\n"[..]).expect("lines of UTF-8");
    assert_eq!([stream.data(), stream.data()], ["one", "two"]);
}

fn metrics_shows_a_metric_of_the_program(stand: Stand) {
    let server = Server::new(stand.options(|_| {})).listen(any_port());
    let rig = Rig::of(metrics::start(server, any_port()).expect("free ports, and the back end is there"));
    let mut client = rig.client();
    for _ in 0..3 {
        assert_eq!(client.get("/order").status, 201);
    }
    let mut admin = Client::connect(&rig.running().admin_addresses()[0]);
    let shown = admin.get("/metrics");
    assert!(shown.text().contains("\nshop_orders_total 3\n"), "{}", shown.text());
    // Prometheus scrapes a name, which a page on the Internet could have, too.
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(
            admin.ask(format!("GET {path} HTTP/1.1\r\nHost: shop:8081\r\n\r\n")).status,
            200,
            "{path}"
        );
    }
    let denied = admin.ask("GET /api/v1/status?token=secret HTTP/1.1\r\nHost: shop:8081\r\n\r\n");
    assert!(denied.status == 421 && denied.text().contains("server.admin.hosts"), "{}", denied.text());
    assert_eq!(admin.get("/api/v1/status").status, 401);
    assert_eq!(admin.get("/api/v1/status?token=secret").status, 200);
}
