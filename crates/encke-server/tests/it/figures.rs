//! Figures from outside: a feature counts separately, and shows its figures through its own source. The feature here is a toy
//! that counts visits on each worker, and keeps visitors that want to stay.

use std::any::Any;
use std::collections::HashMap;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};

use encke_io::Token;
use encke_server::{
    Asked, CloseReason, ConnLimits, Engine, Exchange, Gone, Handler, HandlerContext, Mount, Outcome, Reply,
    Request, Resident, ResidentMailbox, Slot, Takeover, WorkerSetup,
};
use encke_stats::{Counter, Family, ListTicket, Query, Row, Sort, Source};

use crate::rig::handlers::hello;
use crate::rig::{Client, PATIENCE, Rig, Stand};

on_every_stand! {
    a_source_sums_the_figures_of_all_workers,
    a_list_has_the_rows_of_all_workers,
}

on_two_stands! {
    the_sources_of_a_server_are_those_of_its_mounts,
    a_refusal_of_a_handler_is_counted_by_its_rule,
}

const HEAD: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: stay\r\nConnection: Upgrade\r\n\r\n";
const LONG_NS: u64 = 60_000_000_000;
const WORKERS_MAX: usize = 4;

/// The feature's counts on all workers.
#[derive(Default)]
struct Visits {
    workers: [Counter; WORKERS_MAX],
    mailboxes: OnceLock<Arc<[ResidentMailbox]>>,
}

impl Source for Visits {
    fn name(&self) -> &'static str {
        "visits"
    }

    fn families(&self) -> Vec<Family> {
        let sum = self.workers.iter().map(Counter::value).sum::<u64>();
        vec![Family::counter("toy_visits_total", "Visits.").value(sum)]
    }

    fn columns(&self) -> &'static [&'static str] {
        &["name", "worker"]
    }

    fn list(&self, _: &Query, ticket: ListTicket) {
        for mailbox in self.mailboxes.get().into_iter().flat_map(|mailboxes| mailboxes.iter()) {
            mailbox.send(ticket.clone());
        }
    }
}

struct Toy(Arc<Visits>);

impl Mount for Toy {
    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        let number = worker.number();
        worker.resident(|_| Visitors { visits: Arc::clone(&self.0), number, staying: HashMap::new() });
        Box::new(ToyHandler { visits: Arc::clone(&self.0), number, context })
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        vec![Arc::<Visits>::clone(&self.0)]
    }
}

struct ToyHandler {
    visits: Arc<Visits>,
    number: usize,
    context: HandlerContext,
}

impl Handler for ToyHandler {
    fn call(&mut self, request: &Request<'_>, _: Exchange) -> Outcome {
        self.visits.workers[self.number].increment();
        let path = String::from_utf8_lossy(request.path()).into_owned();
        match path.strip_prefix("/stay/") {
            Some("") => {
                self.context.refused("nameless");
                Outcome::Now(Reply::error(400))
            }
            Some(name) => Outcome::Takeover(Takeover::new(name.to_owned())),
            None => Outcome::Now(Reply::text(200, "come again")),
        }
    }
}

/// The visitors that stay on a worker.
struct Visitors {
    visits: Arc<Visits>,
    number: usize,
    staying: HashMap<Token, String>,
}

impl Resident for Visitors {
    fn enter(&mut self, slot: &mut Slot<'_>, _: Asked, start: Box<dyn Any + Send>) {
        self.staying.insert(slot.token(), *start.downcast().expect("the handler has put a name there"));
        slot.out().extend_from_slice(HEAD);
        slot.set_deadline(LONG_NS);
    }

    fn sent(&mut self, slot: &mut Slot<'_>) {
        slot.rest_until(slot.now().mono_ns + LONG_NS);
        slot.settle();
    }

    fn overdue(&mut self, slot: &mut Slot<'_>) {
        slot.close(CloseReason::IdleTime);
    }

    fn closed(&mut self, gone: Gone) {
        self.staying.remove(&gone.token);
    }

    fn start(&mut self, mailboxes: Arc<[ResidentMailbox]>) {
        let _first_one_sets_it = self.visits.mailboxes.set(mailboxes);
    }

    fn message(&mut self, _: &mut Engine<'_>, message: Box<dyn Any + Send>) {
        let ticket: ListTicket = *message.downcast().expect("tickets are the only messages");
        let row =
            |name: &String| Row(vec![("name", name.clone().into()), ("worker", (self.number as u64).into())]);
        ticket.add(self.staying.values().map(row));
    }
}

fn names_of(rig: &Rig) -> Vec<String> {
    rig.running().families().into_iter().map(|family| family.name.into_owned()).collect()
}

/// Positions of the toy's family among the families of the server.
fn positions(rig: &Rig) -> Vec<usize> {
    let names = names_of(rig);
    (0..names.len()).filter(|at| names[*at] == "toy_visits_total").collect()
}

fn a_source_sums_the_figures_of_all_workers(on: Stand) {
    let visits = Arc::<Visits>::default();
    let rig = on.serve(|server| server.mount("/", Toy(Arc::clone(&visits))));
    for _ in 0..3 * WORKERS_MAX {
        assert_eq!(rig.client().get("/").status, 200);
    }
    let count = 3 * WORKERS_MAX as u64;
    assert_eq!(rig.count("toy_visits_total"), count);
    assert_eq!(rig.count("encke_http_requests_total"), count, "the engine counts as well");
    rig.end();
}

fn the_sources_of_a_server_are_those_of_its_mounts(on: Stand) {
    let visits = Arc::<Visits>::default();
    let toy = || Toy(Arc::clone(&visits));
    let rig = on.serve(|server| server.mount("/", toy()).mount("/again", toy()));
    assert_eq!(rig.client().get("/again").status, 200);
    let [at] = positions(&rig)[..] else { panic!("{:?}", names_of(&rig)) };
    assert_eq!(at, names_of(&rig).len() - 1, "it follows the engine's");

    let reload = |mounts: Option<Vec<(String, Arc<dyn Mount>)>>| {
        rig.running().reload(ConnLimits::default(), mounts);
    };
    reload(None);
    assert_eq!(positions(&rig), [at], "other limits leave the mounts");
    reload_to_hello(&rig);
    assert!(positions(&rig).is_empty(), "a source goes with its mount");
    reload(Some(vec![("/".into(), Arc::new(toy()))]));
    assert_eq!(positions(&rig), [at]);
    assert_eq!(rig.count("toy_visits_total"), 1, "the mount shares the figures of the one before");
    rig.end();

    let rig = on.serve(|server| {
        let other = Arc::<Visits>::default();
        other.workers[0].add(7);
        server.source(other).mount("/", toy())
    });
    assert_eq!(rig.count("toy_visits_total"), 1, "a mount's source comes before others of its name");
    reload_to_hello(&rig);
    assert_eq!(rig.count("toy_visits_total"), 7, "it belongs to no mount");
    rig.end();
}

fn reload_to_hello(rig: &Rig) {
    let hello: Arc<dyn Mount> = Arc::new(hello);
    rig.running().reload(ConnLimits::default(), Some(vec![("/".into(), hello)]));
}

fn a_refusal_of_a_handler_is_counted_by_its_rule(on: Stand) {
    let rig = on.serve(|server| server.mount("/", Toy(Arc::default())));
    assert_eq!(rig.client().get("/stay/").status, 400);
    assert_eq!(rig.count_of("encke_http_refusals_total", "nameless"), 1);
    rig.end();
}

fn a_list_has_the_rows_of_all_workers(on: Stand) {
    const VISITORS: usize = 12;
    let visits = Arc::<Visits>::default();
    let rig = on.serve(|server| server.mount("/", Toy(Arc::clone(&visits))));
    let stay = |number: usize| {
        let mut client = rig.client();
        client.send(format!("GET /stay/visitor-{number:02} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(client.read_exact(HEAD.len()), HEAD);
        client
    };
    let _clients: Vec<Client> = (0..VISITORS).map(stay).collect();
    let sort = Some(Sort { column: "name".into(), descending: true });
    let query = Query { filter: Some("visitor-0".into()), sort, limit: 3, ..Query::default() };
    let (send, receive) = channel();
    let source: Arc<dyn Source> = visits;
    source.list(&query, ListTicket::new(&query, move |rows| send.send(rows).expect("somebody waits")));
    let list = receive.recv_timeout(PATIENCE).expect("every worker answers");
    let names: Vec<Row> = list.rows.iter().map(|row| Row(row.0[..1].to_vec())).collect();
    let named = |name: &'static str| Row(vec![("name", name.into())]);
    assert_eq!(names, ["visitor-09", "visitor-08", "visitor-07"].map(named));
    assert_eq!(list.total, 10, "as many names begin so");
    rig.end();
}
