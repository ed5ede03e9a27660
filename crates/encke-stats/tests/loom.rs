//! Models of tickets: loom runs each with the possible interleavings of its threads, and the values that its atomics may return.
//!
//! `ticket.rs` is compiled here a second time, with loom's primitives in place of std's. So plain `cargo test` runs the models,
//! without a flag that recompiles every crate.

use std::panic::catch_unwind;

use loom::model::Builder;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use sync::{Arc, Mutex};
use ticket::{Gathered, Ticket};

mod sync {
    pub(crate) use std::sync::PoisonError;

    pub(crate) use loom::sync::{Arc, Mutex};
}

// `pub`, because lints of the file must not depend on where it is compiled.
#[path = "../src/ticket.rs"]
pub mod ticket;

/// Maximum number of preemptions per execution. Two show every planted fault, and three take less than a second per model.
const PREEMPTIONS_MAX: usize = 3;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

/// Asserts that an execution of `model` fails with `message`.
fn assert_fails(model: fn(), message: &str) {
    let panic = catch_unwind(|| explore(model)).expect_err("no interleaving shows the planted fault");
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(text.contains(message), "another failure: {text}");
}

/// An implementation of [`Gathered`]: the real one, or one with a planted fault.
trait PartialSums: Clone + Send + 'static {
    fn new(ticket: Ticket<u32>) -> Self;
    fn add(&self, part: u32);
}

impl PartialSums for Gathered<u32> {
    fn new(ticket: Ticket<u32>) -> Self {
        Self::new(ticket, |sum, part| *sum += part)
    }

    fn add(&self, part: u32) {
        self.add(part);
    }
}

/// Two workers add a part each, and drop their copies at any time. The sum must be given once, after the work of both.
fn two_workers_add_their_parts<S: PartialSums>() {
    const PARTS: [u32; 2] = [1, 2];
    let results = Arc::new(AtomicUsize::new(0));
    let is_done = Arc::new(PARTS.map(|_| AtomicBool::new(false)));
    let ticket = {
        let (results, is_done) = (Arc::clone(&results), Arc::clone(&is_done));
        Ticket::new(move |sum| {
            assert_eq!(sum, Some(PARTS.iter().sum()), "a part is missing");
            // Relaxed, so that only the drops of the copies order these accesses.
            assert!(is_done.iter().all(|is_done| is_done.load(Ordering::Relaxed)), "a worker is not done");
            results.fetch_add(1, Ordering::Relaxed);
        })
    };
    let sums = S::new(ticket);
    let workers = [0, 1].map(|worker| {
        let (sums, is_done) = (sums.clone(), Arc::clone(&is_done));
        thread::spawn(move || {
            sums.add(PARTS[worker]);
            is_done[worker].store(true, Ordering::Relaxed);
        })
    });
    drop(sums);
    workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    assert_eq!(results.load(Ordering::Relaxed), 1, "the sum is given once");
}

#[test]
fn the_last_of_several_threads_gives_the_merged_result() {
    explore(two_workers_add_their_parts::<Gathered<u32>>);
}

#[test]
fn a_worker_that_ends_without_a_result_delays_no_other() {
    explore(|| {
        let results = Arc::new(Mutex::new(Vec::new()));
        let ticket = {
            let results = Arc::clone(&results);
            Ticket::new(move |sum| results.lock().expect("no panic").push(sum))
        };
        let gathered = Gathered::new(ticket, |sum: &mut u32, part| *sum += part);
        let (answered, unanswered) = (gathered.ticket(), gathered.ticket());
        drop(gathered);
        let workers = [thread::spawn(move || answered.resolve(7)), thread::spawn(move || drop(unanswered))];
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        assert_eq!(*results.lock().expect("no panic"), [Some(7)]);
    });
}

#[test]
fn parts_dropped_by_all_threads_drop_the_ticket_once() {
    explore(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let ticket = {
            let drops = Arc::clone(&drops);
            Ticket::new(move |sum| {
                assert_eq!(sum, None);
                drops.fetch_add(1, Ordering::Relaxed);
            })
        };
        let gathered = Gathered::new(ticket, |sum: &mut u32, part| *sum += part);
        let workers = [gathered.ticket(), gathered.ticket()].map(|part| thread::spawn(move || drop(part)));
        drop(gathered);
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    });
}

/// The count is read, and decremented later: two copies that are dropped at once both read 2, and no copy resolves.
const COUNT_IS_READ: u8 = 0;
/// The count is decremented without an order: the last copy does not see all work of the others.
const COUNT_IS_RELAXED: u8 = 1;

/// Sums with a count of copies of their own, and a planted fault.
struct CountedSums<const FAULT: u8>(Arc<CountedParts>);

struct CountedParts {
    copies: AtomicUsize,
    state: Mutex<(u32, Option<Ticket<u32>>)>,
}

impl<const FAULT: u8> PartialSums for CountedSums<FAULT> {
    fn new(ticket: Ticket<u32>) -> Self {
        Self(Arc::new(CountedParts { copies: AtomicUsize::new(1), state: Mutex::new((0, Some(ticket))) }))
    }

    fn add(&self, part: u32) {
        self.0.state.lock().expect("no panic").0 += part;
    }
}

impl<const FAULT: u8> Clone for CountedSums<FAULT> {
    fn clone(&self) -> Self {
        self.0.copies.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl<const FAULT: u8> Drop for CountedSums<FAULT> {
    fn drop(&mut self) {
        let copies = &self.0.copies;
        let is_last = match FAULT {
            COUNT_IS_READ => copies.load(Ordering::Acquire) == 1,
            _ => copies.fetch_sub(1, Ordering::Relaxed) == 1,
        };
        if is_last {
            let mut state = self.0.state.lock().expect("no panic");
            let (sum, ticket) = (state.0, state.1.take().expect("one copy is the last"));
            drop(state);
            ticket.resolve(sum);
        }
        if FAULT == COUNT_IS_READ {
            copies.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[test]
fn loom_finds_a_result_lost_by_a_count_that_is_read() {
    assert_fails(two_workers_add_their_parts::<CountedSums<COUNT_IS_READ>>, "a part is missing");
}

#[test]
fn loom_finds_a_result_without_an_order_after_all_parts() {
    assert_fails(two_workers_add_their_parts::<CountedSums<COUNT_IS_RELAXED>>, "a worker is not done");
}
