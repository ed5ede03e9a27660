//! Warm requests allocate nothing, and an update of an open page little: a counting allocator watches the server's threads.
//!
//! A test program of its own, because an allocator is global. It counts only on threads that are marked: a worker opens a mount of
//! this test, and the console's ticker reads the figures of a source of it. The tests run one after the other.
#![allow(unsafe_code)]
#![cfg(unix)]

#[path = "rig/mod.rs"]
mod rig;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use encke_assembly::Service;
use encke_assembly::settings::Settings;
use encke_io::{Backend, lock};
use encke_server::{Exchange, Handler, HandlerContext, Mount, Outcome, Request, WorkerSetup};
use encke_stats::{Family, Source};

use rig::handlers::hello;
use rig::{Client, Folder, Stand, site};

/// The system's allocator with a counter of its calls from workers.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
/// Readings of the figures of [`MarkerFigures`]: the console makes one per update.
static READINGS: AtomicU64 = AtomicU64::new(0);
/// The counters are global, so one test counts at a time.
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    // A constant without a destructor, so that reading it never allocates at any point of a thread's lifetime.
    static MARKED: Cell<bool> = const { Cell::new(false) };
}

fn count(bytes: usize) {
    if MARKED.get() {
        CALLS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came; what is added touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Marks each worker that opens it. Its handler allocates for every request, to show that allocations are detected.
struct Marker;

impl Mount for Marker {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        MARKED.set(true);
        Box::new(Wasteful)
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        vec![Arc::new(MarkerFigures)]
    }
}

/// Marks each thread that reads it.
struct MarkerFigures;

impl Source for MarkerFigures {
    fn name(&self) -> &'static str {
        "marker"
    }

    fn families(&self) -> Vec<Family> {
        MARKED.set(true);
        READINGS.fetch_add(1, Ordering::Relaxed);
        Vec::new()
    }
}

struct Wasteful;

impl Handler for Wasteful {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        hello(request, exchange)
    }
}

const WARM: usize = 200;
/// The rounds of a block, and the blocks of a measurement. Some calls of the allocator are not caused by requests: the site reads the
/// facts of a file again once its cache entry is old (some 120 calls), and the pool frees buffers each second. However long the rounds
/// take on a busy machine, no such call falls into the block with the fewest calls.
const ROUNDS: u64 = 50;
const BLOCKS: usize = 20;

#[test]
fn a_thousand_warm_requests_allocate_nothing() {
    let _turn = lock(&TURN);
    for backend in Backend::NAMED {
        let folder = Folder::new()
            .with("small", "13 bytes here")
            .with("sixteen", vec![b'x'; 16 * 1024])
            .with("large", vec![b'x'; 300_000]);
        let site = site(&folder);
        let rig =
            Stand { backend, workers: 1 }.serve(|server| server.mount("/", site).mount("/waste", Marker));
        let get =
            |name: &str, fields: &str| format!("GET /{name} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        let mut client = rig.client();
        let tag = client.get("/small").field("ETag").expect("a tag").to_owned();

        let browser = "User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: text/html,*/*;q=0.8\r\n\
                       Accept-Language: en\r\nAccept-Encoding: identity\r\nCookie: a=b; c=d\r\n";
        for (what, requests, answers, most) in [
            ("a small file", get("small", ""), 1, 0),
            ("a small file for a browser", get("small", browser), 1, 0),
            ("a file of 16 KiB", get("sixteen", ""), 1, 0),
            ("a file of 300 kB", get("large", ""), 1, 0),
            ("16 small files in a pipeline", get("small", "").repeat(16), 16, 0),
            // Conditional requests leave the warm path, which copies the request's path and drops it.
            ("a file that the client has", get("small", &format!("If-None-Match: {tag}\r\n")), 1, 2),
        ] {
            let calls = calls(&mut client, &requests, answers);
            assert!(
                calls < (most + 1) * ROUNDS,
                "{backend}: {what}: {calls} calls of the allocator in {ROUNDS} rounds"
            );
        }
        // Verifies that the counter works.
        let wasted = calls(&mut client, &get("waste", ""), 1);
        assert!(wasted >= ROUNDS, "{backend}: a handler that allocates is not seen: {wasted}");
    }
}

/// Returns the worker's allocator calls in the block of [`ROUNDS`] rounds with the fewest, after rounds that fill its caches.
fn calls(client: &mut Client, requests: &str, answers: usize) -> u64 {
    let mut round = || {
        client.send(requests);
        assert!(client.answers(answers).iter().all(|answer| answer.status < 400));
    };
    (0..WARM).for_each(|_| round());
    let mut block = || {
        let before = CALLS.load(Ordering::Relaxed);
        (0..ROUNDS).for_each(|_| round());
        CALLS.load(Ordering::Relaxed) - before
    };
    (0..BLOCKS).map(|_| block()).min().expect("some blocks")
}

/// Idle connections among which a page is open, and its rows.
const IDLE: usize = 400;
const ROWS: usize = 100;
const UPDATES: usize = 4;
/// Most bytes, and most calls of the allocator, of an update: an overview and a list of [`ROWS`] connections. A copy of each
/// histogram for each series would take 400 KiB more, and an allocation for each visited connection 800 calls.
const UPDATE_BYTES_MAX: u64 = 336 * 1024;
const UPDATE_CALLS_MAX: u64 = 2_800;

#[test]
fn an_update_of_an_open_page_allocates_little() {
    let _turn = lock(&TURN);
    let folder = Folder::new().with("small", "13 bytes here");
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = {{ address = \"127.0.0.1:0\", token = \"t\" }}\nworkers = 1\n\
         [log]\naccess = \"off\"\n[[site]]\nroot = \"{}\"\n",
        folder.path().display(),
    );
    let settings = Settings::parse("case", &text).unwrap_or_else(|problems| panic!("{problems}"));
    let service = Service::start_with(&settings, Marker).expect("free ports");
    let (site, admin) = (service.addresses()[0].clone(), service.admin_addresses()[0].clone());
    let _idle: Vec<Client> = (0..IDLE)
        .map(|_| {
            let mut client = Client::connect(&site);
            assert_eq!(client.get("/small").status, 200);
            client
        })
        .collect();
    let mut page = Client::connect(&admin);
    page.send(format!(
        "GET /api/v1/live?watch=overview&watch=lists/connections%3Fsort%3D-idle_s%26limit%3D{ROWS}&every=250&token=t HTTP/1.0\r\n\
         Host: localhost\r\n\r\n"
    ));
    let mut received = String::new();
    let mut update = || next_list(&mut page, &mut received);
    let full = format!("\"total\":{IDLE},");
    (0..UPDATES).for_each(|_| drop(update()));
    let before = [&BYTES, &CALLS, &READINGS].map(|counter| counter.load(Ordering::Relaxed));
    for _ in 0..UPDATES {
        let list = update();
        assert!(list.contains(&full) && list.matches("\"state\":\"idle\"").count() == ROWS, "{list}");
    }
    let after = [&BYTES, &CALLS, &READINGS].map(|counter| counter.load(Ordering::Relaxed));
    // A page that is slow to read misses updates, so they are counted where they are made.
    let [bytes, calls] = [0, 1].map(|place| (after[place] - before[place]) / (after[2] - before[2]));
    println!("{bytes} bytes and {calls} calls per update");
    assert!(bytes <= UPDATE_BYTES_MAX, "{bytes} bytes per update");
    assert!(calls <= UPDATE_CALLS_MAX, "{calls} calls of the allocator per update");
    // Verifies that both threads are seen.
    assert!(calls > 500 && bytes > 30_000, "{bytes} bytes, {calls} calls");
    service.drain();
    service.join();
}

/// Reads up to the end of the next list, and returns its event.
fn next_list(page: &mut Client, received: &mut String) -> String {
    loop {
        if let Some(begin) = received.find("event: list\n")
            && let Some(length) = received[begin..].find("\n\n")
        {
            let list = received[begin..begin + length].to_owned();
            received.drain(..begin + length);
            return list;
        }
        let piece = page.read_some(1 << 16);
        assert!(!piece.is_empty(), "the page has ended: {received}");
        received.push_str(std::str::from_utf8(&piece).expect("ASCII"));
    }
}
