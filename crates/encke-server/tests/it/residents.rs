//! Residents from outside: connections that a feature keeps after their requests. The resident here is a toy: it returns the
//! bytes of each connection, and sends bytes after `all:` to every connection on every worker. After `bye` it ends the
//! connection.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use encke_io::{Done, Token, lock};
use encke_server::{
    Asked, CloseReason, Engine, Exchange, Gone, Handler, HandlerContext, JobId, Mount, Outcome, Reply,
    Request, Resident, ResidentMailbox, Slot, Takeover, WorkerSetup,
};

use crate::rig::{Client, Cut, End, Rig, Stand};

on_every_stand! {
    a_connection_of_a_resident_returns_every_byte,
    bytes_behind_the_request_reach_the_resident,
    a_takeover_may_come_from_another_thread,
    half_a_close_ends_a_connection_when_its_bytes_have_left,
    a_resident_reaches_its_connections_on_all_workers,
    a_connection_goes_back_to_http_after_a_response,
    a_resident_closes_what_is_silent,
    a_resident_forgets_a_connection_that_lingers,
    a_request_with_a_body_is_not_taken_over,
    each_job_of_a_resident_returns_its_own_result,
}

pub(crate) const HEAD: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n";
/// Long enough for any test; a connection with `/brief` times out at once.
const LONG_NS: u64 = 60_000_000_000;

/// The start value of a takeover.
enum Start {
    Echo { silence_ns: u64 },
    Respond,
}

pub(crate) struct Echo;

struct EchoHandler;

/// A message to all connections.
struct ToAll(Vec<u8>);

#[derive(Default)]
struct Echoes {
    /// The silence timeout of each connection, by slot index.
    silence_ns: HashMap<u32, u64>,
    tokens: HashMap<u32, Token>,
    workers: Arc<[ResidentMailbox]>,
}

impl Mount for Echo {
    fn open(&self, _: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        worker.resident(|_| Echoes::default());
        Box::new(EchoHandler)
    }
}

impl Handler for EchoHandler {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        let start = match request.path() {
            b"/respond" => Start::Respond,
            b"/brief" => Start::Echo { silence_ns: 1 },
            _ => Start::Echo { silence_ns: LONG_NS },
        };
        let takeover = Takeover::new(start);
        if request.path() != b"/late" {
            return Outcome::Takeover(takeover);
        }
        std::thread::spawn(move || exchange.take_over(takeover));
        Outcome::Later
    }
}

impl Echoes {
    fn echo(&self, slot: &mut Slot<'_>, bytes: &[u8]) {
        match bytes.strip_prefix(b"all:") {
            Some(text) => self.workers.iter().for_each(|worker| worker.send(ToAll(text.to_vec()))),
            None => slot.out().extend_from_slice(bytes),
        }
        if bytes == b"bye" {
            // Without a word the connection would end before `sent`.
            slot.set_word(0);
            slot.end_after(CloseReason::Answered);
            slot.linger();
        }
        slot.set_deadline(self.silence_ns[&slot.place()]);
    }
}

impl Resident for Echoes {
    fn enter(&mut self, slot: &mut Slot<'_>, asked: Asked, start: Box<dyn Any + Send>) {
        let silence_ns = match *start.downcast::<Start>().expect("what the handler has put there") {
            Start::Echo { silence_ns } => silence_ns,
            Start::Respond => return slot.respond(asked, Reply::text(200, "by a resident")),
        };
        self.silence_ns.insert(slot.place(), silence_ns);
        self.tokens.insert(slot.place(), slot.token());
        slot.out().extend_from_slice(HEAD);
        slot.count_response(101);
        slot.set_deadline(silence_ns);
    }

    fn received(&mut self, slot: &mut Slot<'_>, bytes: &mut [u8]) -> usize {
        self.echo(slot, bytes);
        bytes.len()
    }

    fn sent(&mut self, slot: &mut Slot<'_>) {
        let due_ns = slot.now().mono_ns + self.silence_ns[&slot.place()];
        slot.rest_until(due_ns);
        if slot.is_ending() {
            return slot.end();
        }
        if let Some(bytes) = slot.take_input() {
            self.echo(slot, &bytes);
            let used = bytes.len();
            slot.give_input(bytes, used);
        }
        slot.settle();
    }

    fn overdue(&mut self, slot: &mut Slot<'_>) {
        slot.close(CloseReason::IdleTime);
    }

    fn closed(&mut self, gone: Gone) {
        self.silence_ns.remove(&gone.token.index);
        self.tokens.remove(&gone.token.index);
    }

    fn start(&mut self, mailboxes: Arc<[ResidentMailbox]>) {
        self.workers = mailboxes;
    }

    fn message(&mut self, engine: &mut Engine<'_>, message: Box<dyn Any + Send>) {
        let ToAll(text) = *message.downcast().expect("what a resident has sent");
        for token in self.tokens.values() {
            let mut slot = engine.slot(*token).expect("it has not closed");
            assert!(!slot.is_sending(), "nothing else is sent in this test");
            slot.send(text.as_slice().into());
        }
    }
}

fn rig(on: Stand) -> Rig {
    on.serve(|server| server.mount("/", Echo))
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn opened(rig: &Rig, path: &str) -> Client {
    let mut client = rig.client();
    client.send(request(path));
    assert_eq!(client.read_exact(HEAD.len()), HEAD);
    client
}

fn a_connection_of_a_resident_returns_every_byte(on: Stand) {
    let rig = rig(on);
    let mut client = opened(&rig, "/");
    for round in 0..32_u8 {
        let bytes: Vec<u8> = (0..40_000_usize).map(|at| at as u8 ^ round).collect();
        client.send(&bytes);
        assert!(client.read_exact(bytes.len()) == bytes, "round {round}");
    }
    drop(client);
    rig.wait_for_closes(CloseReason::PeerDone, 1);
    rig.end();
}

fn bytes_behind_the_request_reach_the_resident(on: Stand) {
    let rig = rig(on);
    let bytes = format!("{}behind", request("/"));
    for cut in Cut::all(bytes.as_bytes()) {
        let mut client = rig.client();
        client.send_cut(&rig, bytes.as_bytes(), cut);
        assert_eq!(client.read_exact(HEAD.len() + 6), [HEAD, b"behind"].concat(), "{cut:?}");
    }
    rig.end();
}

fn a_takeover_may_come_from_another_thread(on: Stand) {
    let rig = rig(on);
    let mut client = opened(&rig, "/late");
    client.send("late");
    assert_eq!(client.read_exact(4), b"late");
    rig.end();
}

fn half_a_close_ends_a_connection_when_its_bytes_have_left(on: Stand) {
    let rig = rig(on);
    let mut client = opened(&rig, "/");
    client.send("the last bytes");
    client.finish();
    assert_eq!(client.rest(), (b"the last bytes".to_vec(), End::Finished));
    rig.wait_for_closes(CloseReason::PeerDone, 1);
    rig.end();
}

fn a_resident_reaches_its_connections_on_all_workers(on: Stand) {
    let rig = rig(on);
    let mut clients: Vec<Client> = (0..12).map(|_| opened(&rig, "/")).collect();
    clients[7].send("all:heard");
    for (nth, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.read_exact(5), b"heard", "client {nth}");
    }
    rig.end();
}

fn a_connection_goes_back_to_http_after_a_response(on: Stand) {
    let rig = rig(on);
    let mut client = rig.client();
    for _ in 0..3 {
        let answer = client.get("/respond");
        assert_eq!((answer.status, answer.text()), (200, "by a resident"));
    }
    client.send(request("/"));
    assert_eq!(client.read_exact(HEAD.len()), HEAD);
    rig.end();
}

fn a_resident_closes_what_is_silent(on: Stand) {
    let rig = rig(on);
    let mut client = opened(&rig, "/brief");
    assert_eq!(client.end(), End::Finished);
    rig.wait_for_closes(CloseReason::IdleTime, 1);
    rig.end();
}

fn a_resident_forgets_a_connection_that_lingers(on: Stand) {
    let rig = rig(on);
    let mut lingers = opened(&rig, "/");
    let mut other = opened(&rig, "/");
    lingers.send("bye");
    assert_eq!(lingers.rest(), (b"bye".to_vec(), End::Finished));
    // A resident that still recorded the closed connection would fail here.
    other.send("all:heard");
    assert_eq!(other.read_exact(5), b"heard");
    drop(lingers);
    rig.wait_for_closes(CloseReason::Answered, 1);
    rig.end();
}

fn a_request_with_a_body_is_not_taken_over(on: Stand) {
    let rig = rig(on);
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.answer().status, 400);
    rig.end();
}

/// Jobs that a resident has at the same time.
const JOBS: u32 = 5;

/// The number of each job whose result has come, with the number that its id belongs to.
type Results = Arc<Mutex<Vec<(u32, Option<u32>)>>>;

/// A feature whose resident only has jobs.
struct Jobs(Results);

#[derive(Default)]
struct JobResident {
    begun: HashMap<JobId, u32>,
    results: Results,
}

/// A message to begin the jobs.
struct Begin;

impl Mount for Jobs {
    fn open(&self, _: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        let results = Arc::clone(&self.0);
        worker.resident(|_| JobResident { results, ..JobResident::default() });
        Box::new(EchoHandler)
    }
}

impl Resident for JobResident {
    fn enter(&mut self, slot: &mut Slot<'_>, asked: Asked, _: Box<dyn Any + Send>) {
        slot.respond(asked, Reply::error(500));
    }

    fn sent(&mut self, _: &mut Slot<'_>) {}

    fn overdue(&mut self, _: &mut Slot<'_>) {}

    fn start(&mut self, mailboxes: Arc<[ResidentMailbox]>) {
        mailboxes[0].send(Begin);
    }

    fn message(&mut self, engine: &mut Engine<'_>, message: Box<dyn Any + Send>) {
        assert!(message.is::<Begin>());
        for number in 0..JOBS {
            self.begun.insert(engine.offload(move || number), number);
        }
    }

    fn offloaded(&mut self, _: &mut Engine<'_>, job: JobId, done: Option<Done>) {
        let number = *done.expect("the pool runs").downcast::<u32>().expect("a number");
        lock(&self.results).push((number, self.begun.remove(&job)));
    }
}

fn each_job_of_a_resident_returns_its_own_result(on: Stand) {
    let results = Results::default();
    let rig = on.serve(|server| server.mount("/", Jobs(Arc::clone(&results))));
    // Each worker's resident sends a message to the first one.
    let expected = JOBS as usize * on.workers;
    rig.wait(|| lock(&results).len() == expected, "all jobs have ended");
    for (number, known) in &*lock(&results) {
        assert_eq!(Some(*number), *known, "the result of another job");
    }
    rig.end();
}
