//! The engine's lists and actions for operators: connections with their causes, recent closes, blocked addresses.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use encke_server::{
    ActionError, ActionReport, ActionResult, ActionValue, Answers, CloseReason, CodedText, ConnDescription,
    ConnLimits, Exchange, ExchangeKey, FieldValue, Handler, HandlerContext, Mount, Outcome, Pull, Pulled,
    Reply, Request, Server, Socket, SocketMessage, Ticket, Upgrade, WorkerSetup,
};
use encke_stats::{Cell, ListTicket, Query, Row, Rows, Sort, Value};

use crate::rig::h2::{self, H2};
use crate::rig::handlers::{Echo, Held, hello, streamed};
use crate::rig::{Client, End, PATIENCE, Rig, Stand, any_port};

on_every_back_end! {
    the_kernel_counts_the_bytes_of_a_listed_connection,
    a_client_that_does_not_read_is_named,
    an_id_of_a_closed_connection_closes_nothing,
    a_request_is_served_between_two_slices_of_a_list,
}

on_two_stands! {
    the_rows_of_all_workers_are_one_list,
    the_first_rows_by_a_column_are_kept,
    the_slots_of_a_plain_list_are_visited_in_few_turns,
    a_connection_between_requests_says_so,
    half_a_head_is_being_read,
    a_request_waits_for_its_handler,
    a_handler_describes_its_request,
    a_request_body_is_being_sent,
    streams_of_http2_are_rows_of_their_own,
    a_web_socket_waits_for_messages,
    all_connections_of_an_address_are_closed,
    a_blocked_address_is_refused_until_it_is_unblocked,
    a_block_ends_by_itself,
    closes_are_listed_with_their_reasons,
    actions_name_the_field_that_is_wrong,
    a_worker_shows_its_share_of_the_work,
}

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

pub(crate) fn list(rig: &Rig, name: &str, query: &Query) -> Rows {
    let (send, receive) = channel();
    let ticket = ListTicket::new(query, move |rows| send.send(rows).expect("the case waits"));
    assert!(rig.running().status().list(name, query, ticket), "no list {name}");
    receive.recv_timeout(PATIENCE).expect("every worker answers")
}

pub(crate) fn all() -> Query {
    Query { limit: 1_000, ..Query::default() }
}

fn connections(rig: &Rig) -> Vec<Row> {
    list(rig, "connections", &all()).rows
}

/// The row of the only connection.
fn only_row(rig: &Rig) -> Row {
    let mut rows = connections(rig);
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.remove(0)
}

pub(crate) fn text(row: &Row, column: &str) -> String {
    match row.cell(column) {
        Some(Cell::Text(text)) => text.clone().into_owned(),
        other => panic!("{column} is no text: {other:?} in {row:?}"),
    }
}

pub(crate) fn count(row: &Row, column: &str) -> u64 {
    match row.cell(column) {
        Some(Cell::Count(count)) => *count,
        other => panic!("{column} is no count: {other:?} in {row:?}"),
    }
}

fn act(rig: &Rig, verb: &str, fields: &[(&str, FieldValue)]) -> ActionResult {
    let (send, receive) = channel();
    let ticket = Ticket::new(move |result| send.send(result).expect("the case waits"));
    let value: ActionValue = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    rig.running().status().act("connections", verb, value, ticket);
    receive.recv_timeout(PATIENCE).expect("an end").expect("a result")
}

fn affected(result: ActionResult) -> u64 {
    result.map(|ActionReport { affected, .. }| affected).expect("a success")
}

fn word(text: &str) -> FieldValue {
    FieldValue::Text(text.to_owned())
}

/// Waits until the only connection says what it waits for.
pub(crate) fn wait_for_cause(rig: &Rig, begin: &str) -> Row {
    let mut found = None;
    let look = || {
        found = connections(rig).into_iter().find(|row| text(row, "waits").starts_with(begin));
        found.is_some()
    };
    rig.wait(look, &format!("a connection that waits: {begin}"));
    found.expect("waited for")
}

fn the_rows_of_all_workers_are_one_list(on: Stand) {
    const CLIENTS: usize = 32;
    let rig = on.serve(|server| server.mount("/", hello));
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| rig.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    let rows = list(&rig, "connections", &all());
    assert_eq!((rows.total, rows.rows.len()), (CLIENTS, CLIENTS));
    let distinct = |column| {
        rows.rows
            .iter()
            .map(|row| format!("{:?}", row.cell(column)))
            .collect::<std::collections::HashSet<_>>()
    };
    assert_eq!(distinct("id").len(), CLIENTS);
    assert_eq!(distinct("worker").len() > 1, on.workers > 1);
    for row in &rows.rows {
        assert_eq!(text(row, "listener"), rig.address().to_string());
        assert_eq!((text(row, "protocol"), text(row, "state")), ("http/1.1".into(), "idle".into()));
        assert_eq!((text(row, "tls"), count(row, "requests")), (String::new(), 1));
    }
    // Exact cells select by address; one of no connection selects nothing.
    let of = |address: &str| Query { whole: vec![("address".into(), address.into())], ..all() };
    assert_eq!(list(&rig, "connections", &of("127.0.0.1")).total, CLIENTS);
    assert_eq!(list(&rig, "connections", &of("127.0.0.9")).total, 0);
    let one = text(&rows.rows[7], "id");
    let by_id = Query { whole: vec![("id".into(), one.clone())], ..all() };
    let listed = list(&rig, "connections", &by_id);
    assert_eq!((listed.total, text(&listed.rows[0], "id")), (1, one));
    rig.end();
}

fn the_first_rows_by_a_column_are_kept(on: Stand) {
    let rig = on.serve(|server| server.mount("/", hello));
    let mut clients: Vec<Client> = (0..20).map(|_| rig.client()).collect();
    for (requests, client) in clients.iter_mut().enumerate() {
        for _ in 0..requests {
            client.get("/");
        }
    }
    rig.wait(|| connections(&rig).len() == clients.len(), "all are accepted");
    let sorted = |column: &str, descending, filter: Option<&str>| {
        let sort = Some(Sort { column: column.into(), descending });
        let rows = list(
            &rig,
            "connections",
            &Query { sort, limit: 3, filter: filter.map(Into::into), ..Query::default() },
        );
        (rows.total, rows.rows.iter().map(|row| count(row, "requests")).collect::<Vec<_>>())
    };
    assert_eq!(sorted("requests", true, None), (20, vec![19, 18, 17]));
    assert_eq!(sorted("requests", false, None), (20, vec![0, 1, 2]));
    // A filter builds rows to select, and selects the same.
    assert_eq!(sorted("requests", true, Some("127.0.0.1")), (20, vec![19, 18, 17]));
    // A client may have a response before its worker counts it.
    rig.wait(|| sorted("out_bytes", true, None) == (20, vec![19, 18, 17]), "a response each");
    assert_eq!(sorted("requests", true, Some("no such cell")), (0, vec![]));
    rig.end();
}

/// Lets one test at a time have thousands of connections: four of them would need more descriptors than a program may have. Dropped
/// after the connections.
fn crowd() -> MutexGuard<'static, ()> {
    static CROWD: Mutex<()> = Mutex::new(());
    let _limit = encke_io::host::raise_descriptor_limit();
    // A test that failed has released its descriptors.
    CROWD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn the_slots_of_a_plain_list_are_visited_in_few_turns(on: Stand) {
    const IDLE: usize = 3_000;
    let _alone = crowd();
    let limit = |limits: &mut ConnLimits| limits.connections = 10_000;
    let rig = on.serve_by(limit, |server| server.mount("/", hello));
    let mut clients: Vec<Client> = (0..IDLE).map(|_| rig.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    let turns = || {
        let families = rig.running().status().families();
        let family = families.iter().find(|family| family.name == "encke_turns_total").expect("a metric");
        match family.samples[0].value {
            Value::Count(turns) => turns,
            ref other => panic!("no count: {other:?}"),
        }
    };
    for column in [None, Some("requests"), Some("idle_s")] {
        let sort = column.map(|column| Sort { column: column.into(), descending: true });
        let query = Query { sort, limit: 10, ..Query::default() };
        // Timers and late events cause other turns, but not in each of 20 lists.
        let fewest = (0..20).map(|_| {
            let before = turns();
            let rows = list(&rig, "connections", &query);
            assert_eq!((rows.total, rows.rows.len()), (IDLE, 10));
            turns() - before
        });
        // The turn of the command, that of the visits and rows, and one of chance.
        let fewest = fewest.min().expect("20 lists");
        assert!(fewest <= 3 * on.workers as u64, "{fewest} turns by {column:?}");
    }
    rig.end();
}

fn the_kernel_counts_the_bytes_of_a_listed_connection(on: Stand) {
    let rig = on.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    client.send(GET);
    let answer = client.answer();
    assert_eq!(answer.status, 200);
    let first = only_row(&rig);
    assert_eq!(count(&first, "in_bytes"), GET.len() as u64);
    client.send(GET);
    client.answer();
    let row = only_row(&rig);
    // The second request has acknowledged the first response.
    assert_eq!(count(&row, "in_bytes"), 2 * GET.len() as u64);
    assert!(count(&row, "out_bytes") > 40, "{row:?}");
    assert!(matches!(row.cell("idle_s"), Some(Cell::Number(idle)) if *idle < 60.0), "{row:?}");
    rig.end();
}

fn a_connection_between_requests_says_so(on: Stand) {
    let rig = on.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    let fresh = wait_for_cause(&rig, "no request since the connection began ");
    assert!(text(&fresh, "waits").ends_with(" ago (closes after 60 s, limits.head_time)"), "{fresh:?}");
    assert!(fresh.cell("age_s").is_some(), "{fresh:?}");
    client.get("/");
    let row = wait_for_cause(&rig, "no request for ");
    assert!(text(&row, "waits").ends_with(" (closes after 60 s, limits.idle_time)"), "{row:?}");
    rig.end();
}

fn half_a_head_is_being_read(on: Stand) {
    let rig = on.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    client.send("GET / HTTP/1.1\r\nHost: loc");
    let row = wait_for_cause(&rig, "reads the request head for ");
    assert!(text(&row, "waits").contains(": 25 bytes so far"), "{row:?}");
    assert_eq!(text(&row, "state"), "request head");
    client.send("alhost\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    rig.end();
}

fn a_request_waits_for_its_handler(on: Stand) {
    let held = Held::default();
    let rig = on.serve(|server| server.mount("/", held.clone()));
    let mut client = rig.client();
    client.send(GET);
    let exchange = held.take(&rig);
    let row = wait_for_cause(&rig, "waits for the handler for ");
    assert_eq!(text(&row, "state"), "request");
    assert!(row.cell("age_s").is_some(), "it is the connection's first request: {row:?}");
    exchange.answer(Reply::text(200, "at last"));
    assert_eq!(client.answer().status, 200);
    wait_for_cause(&rig, "no request for ");
    rig.end();
}

/// Keeps each request, and describes it by its path.
#[derive(Clone, Default)]
struct Describing {
    /// Called for each description.
    hook: Arc<Mutex<Option<Hook>>>,
}

type Hook = Box<dyn FnMut() + Send>;

struct DescribingHandler {
    hook: Arc<Mutex<Option<Hook>>>,
    open: Vec<(Exchange, String)>,
}

impl Mount for Describing {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(DescribingHandler { hook: Arc::clone(&self.hook), open: Vec::new() })
    }
}

impl Handler for DescribingHandler {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        self.open.push((exchange, String::from_utf8_lossy(request.path()).into_owned()));
        Outcome::Later
    }

    fn describe(&self, key: ExchangeKey) -> ConnDescription {
        if let Some(hook) = self.hook.lock().expect("no panic").as_mut() {
            hook();
        }
        let open = self.open.iter().find(|(exchange, _)| exchange.key() == key);
        ConnDescription {
            waits: Some("waits for the moon".into()),
            path: open.map(|(_, path)| path.clone()),
            user: Some("ann".into()),
            channel: Some("tides".into()),
            ..ConnDescription::default()
        }
    }
}

fn a_handler_describes_its_request(on: Stand) {
    let rig = on.serve(|server| server.mount("/", Describing::default()));
    let mut clients: Vec<Client> = (0..5).map(|_| rig.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("GET /sea/{number} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    }
    let described = || {
        connections(&rig)
            .iter()
            .filter(|row| text(row, "waits").starts_with("waits for the moon, for "))
            .count()
    };
    rig.wait(|| described() == clients.len(), "all wait");
    let filter = |filter: &str| list(&rig, "connections", &Query { filter: Some(filter.into()), ..all() });
    let found = filter("/sea/3");
    assert_eq!(found.total, 1);
    let row = &found.rows[0];
    assert_eq!(
        (text(row, "user"), text(row, "channel"), text(row, "path")),
        ("ann".into(), "tides".into(), "/sea/3".into())
    );
    assert!(row.cell("listener").is_some(), "a row that is kept has the kernel's cells: {row:?}");
    let sort = Some(Sort { column: "path".into(), descending: true });
    let last = list(&rig, "connections", &Query { sort, limit: 2, ..Query::default() });
    assert_eq!(last.rows.iter().map(|row| text(row, "path")).collect::<Vec<_>>(), ["/sea/4", "/sea/3"]);
    rig.end();
}

fn a_request_body_is_being_sent(on: Stand) {
    let rig = on.serve(|server| server.mount("/", Echo));
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf");
    let row = wait_for_cause(&rig, "the client sends the request body: 4 bytes so far, in ");
    assert_eq!(text(&row, "state"), "request body");
    client.send("a body");
    assert_eq!(client.answer().status, 200);
    rig.end();
}

fn streams_of_http2_are_rows_of_their_own(on: Stand) {
    let held = Held::default();
    let rig = on.serve(|server| server.mount("/", held.clone()));
    let mut client = H2::connect(&rig);
    for stream in [1, 3] {
        client.send(&h2::request(stream, h2::GET, "/", h2::END_STREAM));
    }
    let waiting = Query { filter: Some("waits for the handler".into()), ..all() };
    rig.wait(|| list(&rig, "connections", &waiting).total == 2, "both wait");
    let rows = connections(&rig);
    let carrier = rows.iter().find(|row| text(row, "protocol") == "h2").expect("a connection");
    assert_eq!((rows.len(), text(carrier, "waits")), (3, "2 open streams".into()));
    let stream = rows.iter().find(|row| text(row, "protocol") == "h2 stream").expect("a stream");
    assert_eq!(text(stream, "listener"), rig.address().to_string());
    // A closed stream leaves its connection open.
    assert_eq!(affected(act(&rig, "close", &[("id", word(&text(stream, "id")))])), 1);
    rig.wait(|| connections(&rig).len() == 2, "one stream is left");
    held.take_all().into_iter().for_each(|exchange| exchange.answer(Reply::text(200, "at last")));
    wait_for_cause(&rig, "no request for ");
    assert_eq!(connections(&rig).len(), 1);
    rig.end();
}

/// A response without an end.
struct Flood;

impl Pull for Flood {
    fn pull(&mut self, most: usize, out: &mut Vec<u8>) -> Pulled {
        out.resize(out.len() + most, b'x');
        Pulled::More
    }
}

fn a_client_that_does_not_read_is_named(on: Stand) {
    let rig =
        on.serve(|server| server.mount("/", |_: &Request<'_>, _: Exchange| Outcome::Now(streamed(Flood))));
    let mut client = rig.narrow_client();
    client.send(GET);
    let row = wait_for_cause(&rig, "slow: the client has read nothing for ");
    let unsent = count(&row, "unsent_bytes");
    assert!(unsent > 0, "{row:?}");
    assert!(text(&row, "waits").ends_with(&format!("; {unsent} bytes wait")), "{row:?}");
    // The list finds it by its cause, and by its unsent bytes.
    let by_cause = Query { filter: Some("read nothing".into()), ..all() };
    assert_eq!(list(&rig, "connections", &by_cause).total, 1);
    let mut other = rig.client();
    other.send("GET / HT");
    wait_for_cause(&rig, "reads the request head");
    let sort = Some(Sort { column: "unsent_bytes".into(), descending: true });
    let first = list(&rig, "connections", &Query { sort, limit: 1, ..Query::default() });
    assert_eq!((first.total, text(&first.rows[0], "id")), (2, text(&row, "id")));
    rig.end();
}

struct Quiet;

impl Socket for Quiet {
    fn message(&mut self, message: SocketMessage<'_>, answers: &mut Answers<'_>) {
        answers.send(message);
    }
}

fn a_web_socket_waits_for_messages(on: Stand) {
    let upgrade = |request: &Request<'_>, _: Exchange| match Upgrade::accept(request, 100, Quiet) {
        Ok(upgrade) => Outcome::Takeover(upgrade.into()),
        Err(reply) => Outcome::Now(reply),
    };
    let rig = on.serve(|server| server.mount("/", upgrade));
    let mut client = rig.client();
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
    let row = wait_for_cause(&rig, "waits for the next message");
    assert_eq!((text(&row, "protocol"), text(&row, "state")), ("websocket".into(), "stream".into()));
    assert_eq!(rig.count_of("encke_lasting_connections", "stream"), 1);
    // The head of a frame with five masked bytes, and two of them.
    client.send([0x81, 0x85, 0, 0, 0, 0, b'h', b'e']);
    wait_for_cause(&rig, "waits for the rest of a message");
    client.send(b"llo");
    wait_for_cause(&rig, "waits for the next message");
    assert_eq!(affected(act(&rig, "close", &[("id", word(&text(&row, "id")))])), 1);
    rig.wait_for_closes(CloseReason::Operator, 1);
    rig.wait(|| rig.count_of("encke_lasting_connections", "stream") == 0, "the socket is counted out");
    rig.end();
}

fn an_id_of_a_closed_connection_closes_nothing(on: Stand) {
    let rig = on.serve(|server| server.mount("/", hello));
    let mut first = rig.client();
    first.get("/");
    let id = text(&only_row(&rig), "id");
    let close = || act(&rig, "close", &[("id", word(&id))]);
    assert_eq!(affected(close()), 1);
    assert_eq!(first.rest().1, End::Finished);
    rig.wait(|| rig.connections() == 0, "its slot is free");
    let mut second = rig.client();
    second.get("/");
    let other = text(&only_row(&rig), "id");
    let place = |id: &str| id.rsplit_once('-').expect("a generation").0.to_owned();
    assert_eq!(place(&other), place(&id), "the slot is used again");
    assert_ne!(other, id);
    let text = CodedText::new("connection_gone", "the connection has closed already");
    let gone = Err(ActionError::Refused(text));
    assert_eq!(close(), gone);
    assert_eq!(second.get("/").status, 200, "the other connection is open");
    let (server, rest) = other.split_at(4);
    let server = u16::from_str_radix(server, 16).expect("the number of the server");
    for stranger in ["", "7", &format!("{:04x}{rest}", !server)] {
        let result = act(&rig, "close", &[("id", word(stranger))]);
        let expected = if stranger.is_empty() { Err(ActionError::Value("id".into())) } else { gone.clone() };
        assert_eq!(result, expected, "{stranger}");
    }
    assert_eq!(second.get("/").status, 200);
    rig.end();
}

/// A server with an admin listener. Returns its address, too.
fn with_admin(on: Stand) -> (Rig, encke_io::Address) {
    let admin = Server::bind_admin(&any_port().into(), 64).expect("a free port");
    let address = admin.address().clone();
    let server = Server::new(on.options(|_| {})).listen(any_port()).mount("/", hello).admin(admin);
    let mounts =
        |_: &Arc<encke_server::ServerStatus>| Ok(vec![("/".to_owned(), Arc::new(hello) as Arc<dyn Mount>)]);
    (Rig::of(server.start_with(mounts).expect("free ports")), address)
}

fn all_connections_of_an_address_are_closed(on: Stand) {
    let (rig, admin) = with_admin(on);
    let connect = |last: u8| {
        let mut client = Client::connect_from([127, 0, 0, last], rig.address());
        client.get("/");
        client
    };
    let mut of_two: Vec<Client> = (0..9).map(|_| connect(2)).collect();
    let mut of_three = connect(3);
    let mut operator = Client::connect_from([127, 0, 0, 2], &admin);
    operator.get("/");
    assert_eq!(affected(act(&rig, "close_address", &[("address", word("127.0.0.2"))])), 9);
    for client in &mut of_two {
        assert_eq!(client.rest().1, End::Finished);
    }
    assert_eq!((of_three.get("/").status, operator.get("/").status), (200, 200));
    assert_eq!(affected(act(&rig, "close_address", &[("address", word("127.0.0.0/8"))])), 1);
    assert_eq!(of_three.rest().1, End::Finished);
    assert_eq!(operator.get("/").status, 200, "the admin listener's connections stay");
    rig.end();
}

/// Whether a request from an address gets a response.
fn is_admitted(source: [u8; 4], address: &encke_io::Address) -> bool {
    // A refused connection is reset as soon as it is established: the connect, the request or the response fails.
    let Ok(mut client) = Client::try_connect_from(source, address) else { return false };
    client.try_send("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").is_ok()
        && client.rest().0.starts_with(b"HTTP/1.1 200 ")
}

fn a_blocked_address_is_refused_until_it_is_unblocked(on: Stand) {
    let (rig, admin) = with_admin(on);
    let mut open = Client::connect_from([127, 0, 0, 2], rig.address());
    open.get("/");
    let block = [("address", word("127.0.0.2")), ("seconds", FieldValue::Number(3_600))];
    assert_eq!(affected(act(&rig, "block", &block)), 1);
    assert!(!is_admitted([127, 0, 0, 2], rig.address()));
    assert!(is_admitted([127, 0, 0, 3], rig.address()));
    assert!(is_admitted([127, 0, 0, 2], &admin), "the admin listener refuses nobody");
    assert_eq!(open.get("/").status, 200, "an open connection stays open");
    rig.wait(|| rig.count_of("encke_http_refusals_total", "blocked") == 1, "the refusal is counted");
    rig.running().reload(ConnLimits::default(), Some(vec![("/".into(), Arc::new(hello) as Arc<dyn Mount>)]));
    assert!(!is_admitted([127, 0, 0, 2], rig.address()), "a block survives a reload");
    rig.wait(|| rig.count_of("encke_http_refusals_total", "blocked") == 2, "the refusal is counted");
    let rows = list(&rig, "blocks", &all()).rows;
    assert_eq!(
        (rows.len(), text(&rows[0], "address"), count(&rows[0], "refused")),
        (1, "127.0.0.2".into(), 2)
    );
    let unblock = || act(&rig, "unblock", &[("address", word("127.0.0.2"))]);
    assert_eq!(affected(unblock()), 1);
    assert!(is_admitted([127, 0, 0, 2], rig.address()));
    assert!(matches!(unblock(), Err(ActionError::Refused(_))));
    rig.end();
}

fn a_block_ends_by_itself(on: Stand) {
    let rig = on.serve(|server| server.mount("/", hello));
    let block = [("address", word("127.0.0.0/8")), ("seconds", FieldValue::Number(1))];
    assert_eq!(affected(act(&rig, "block", &block)), 1);
    let rows = list(&rig, "blocks", &all()).rows;
    assert!(rows.iter().all(|row| text(row, "address") == "127.0.0.0/8"), "{rows:?}");
    rig.wait(|| is_admitted([127, 0, 0, 2], rig.address()), "the block ends");
    assert_eq!(list(&rig, "blocks", &all()).total, 0);
    rig.end();
}

fn closes_are_listed_with_their_reasons(on: Stand) {
    let rig = on.serve(|server| server.mount("/", hello));
    let mut first = rig.client();
    first.get("/");
    let id = text(&only_row(&rig), "id");
    affected(act(&rig, "close", &[("id", word(&id))]));
    first.rest();
    let mut second = rig.client();
    second.get("/");
    drop(second);
    rig.wait_for_closes(CloseReason::PeerDone, 1);
    let rows = list(&rig, "closes", &all()).rows;
    let causes: Vec<_> =
        rows.iter().map(|row| (text(row, "cause"), text(row, "reason"), count(row, "requests"))).collect();
    assert!(
        causes.contains(&("operator".into(), "An operator closed the connection.".into(), 1)),
        "{causes:?}"
    );
    assert!(
        causes.contains(&("peer_done".into(), "The client closed between requests.".into(), 1)),
        "{causes:?}"
    );
    assert!(rows.iter().all(|row| text(row, "address") == "127.0.0.1"), "{rows:?}");
    rig.end();
}

fn actions_name_the_field_that_is_wrong(on: Stand) {
    let rig = on.serve(|server| server.mount("/", hello));
    let seconds = |seconds| [("address", word("192.0.2.1")), ("seconds", FieldValue::Number(seconds))];
    let wrong = |field: &str| Err(ActionError::Value(field.into()));
    assert_eq!(act(&rig, "block", &seconds(0)), wrong("seconds"));
    assert_eq!(act(&rig, "block", &seconds(86_401)), wrong("seconds"));
    assert_eq!(
        act(&rig, "block", &[("address", word("here")), ("seconds", FieldValue::Number(9))]),
        wrong("address")
    );
    assert_eq!(act(&rig, "close_address", &[("address", word("10.0.0.1/8"))]), wrong("address"));
    assert_eq!(act(&rig, "close", &[]), wrong("id"));
    assert_eq!(act(&rig, "open", &[]), Err(ActionError::Unknown));
    rig.end();
}

fn a_worker_shows_its_share_of_the_work(on: Stand) {
    let rig = on.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    client.get("/");
    let measured = || {
        let rows = list(&rig, "workers", &all()).rows;
        assert_eq!(rows.len(), on.workers);
        assert_eq!(rows.iter().map(|row| count(row, "requests")).sum::<u64>(), 1);
        rows.iter().all(|row| row.cell("busy_ratio").is_some())
    };
    // Two readings, a second apart, make a ratio.
    rig.wait(measured, "a ratio");
    assert_eq!(rig.count("encke_worker_requests_total"), 1);
    let families = rig.running().families();
    let cpu = families.iter().find(|family| family.name == "encke_worker_cpu_seconds_total").expect("there");
    assert_eq!(cpu.samples.len(), on.workers);
    rig.end();
}

/// The order of events in a case.
type Events = Sender<&'static str>;

/// Serves `/next`, and records that it did.
fn recording(events: Events) -> impl Fn(&Request<'_>, Exchange) -> Outcome + Clone + Send + Sync {
    let events = Arc::new(Mutex::new(events));
    move |_: &Request<'_>, _: Exchange| {
        events.lock().expect("no panic").send("a request").expect("the case reads them");
        Outcome::Now(Reply::text(200, "next"))
    }
}

fn a_request_is_served_between_two_slices_of_a_list(on: Stand) {
    const IDLE: usize = 3_000;
    let _alone = crowd();
    let (events, order): (Events, Receiver<&'static str>) = channel();
    let describing = Describing::default();
    let limit = |limits: &mut ConnLimits| limits.connections = 10_000;
    let rig = on.serve_by(limit, |server| {
        server.mount("/", describing.clone()).mount("/next", recording(events.clone()))
    });
    // The first slot: it is visited in the first slice.
    let mut described = rig.client();
    described.send(GET);
    wait_for_cause(&rig, "waits for the moon");
    let mut busy = rig.client();
    let _idle: Vec<Client> = (0..IDLE).map(|_| rig.client()).collect();
    rig.wait(|| rig.connections() == IDLE as u64 + 2, "all are accepted");
    // The worker waits in the first slice until the request is in its receive queue.
    let (began, first_slice) = channel();
    let (go, wait) = channel::<()>();
    let mut once = Some((began, wait));
    *describing.hook.lock().expect("no panic") = Some(Box::new(move || {
        if let Some((began, wait)) = once.take() {
            began.send(()).expect("the case waits");
            wait.recv().expect("the case sends the request");
        }
    }));
    // A filter describes each connection as it is visited.
    let query = Query { filter: Some("127.0.0.1".into()), limit: 10, ..Query::default() };
    let listed = events;
    let (send, rows) = channel();
    let ticket = ListTicket::new(&query, move |rows| {
        listed.send("the list").expect("the case reads them");
        send.send(rows).expect("the case waits");
    });
    assert!(rig.running().status().list("connections", &query, ticket));
    first_slice.recv_timeout(PATIENCE).expect("the list begins");
    busy.send("GET /next HTTP/1.1\r\nHost: localhost\r\n\r\n");
    go.send(()).expect("the worker waits");
    assert_eq!(busy.answer().status, 200);
    let rows = rows.recv_timeout(PATIENCE).expect("the list ends");
    assert_eq!((rows.total, rows.rows.len()), (IDLE + 2, 10));
    assert_eq!(order.try_iter().collect::<Vec<_>>(), ["a request", "the list"]);
    rig.end();
}
