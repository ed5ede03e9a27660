//! Warm requests allocate nothing: a counting allocator watches the workers.
//!
//! A test program of its own, because an allocator is global. It counts only on workers: each opens a mount of this test, which
//! marks its thread.
#![allow(unsafe_code)]
#![cfg(unix)]

#[path = "rig/mod.rs"]
mod rig;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use encke_io::Backend;
use encke_server::{Exchange, Handler, HandlerContext, Mount, Outcome, Request, WorkerSetup};

use rig::handlers::hello;
use rig::{Client, Folder, Stand, site};

/// The system's allocator with a counter of its calls from workers.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // A constant without a destructor, so that reading it never allocates at any point of a thread's lifetime.
    static WORKER: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    if WORKER.get() {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came; what is added touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
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
        WORKER.set(true);
        Box::new(Wasteful)
    }
}

struct Wasteful;

impl Handler for Wasteful {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        hello(request, exchange)
    }
}

const WARM: usize = 200;
const ROUNDS: u64 = 1_000;

/// One test for all cases, because the count is global.
#[test]
fn a_thousand_warm_requests_allocate_nothing() {
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
                calls <= most * ROUNDS,
                "{backend}: {what}: {calls} calls of the allocator in {ROUNDS} rounds"
            );
        }
        // Verifies that the counter works.
        let wasted = calls(&mut client, &get("waste", ""), 1);
        assert!(wasted >= ROUNDS, "{backend}: a handler that allocates is not seen: {wasted}");
    }
}

/// Returns the worker's allocator calls in [`ROUNDS`] rounds, after as many rounds that fill its caches.
fn calls(client: &mut Client, requests: &str, answers: usize) -> u64 {
    let mut round = || {
        client.send(requests);
        assert!(client.answers(answers).iter().all(|answer| answer.status < 400));
    };
    (0..WARM).for_each(|_| round());
    let before = CALLS.load(Ordering::Relaxed);
    (0..ROUNDS).for_each(|_| round());
    CALLS.load(Ordering::Relaxed) - before
}
