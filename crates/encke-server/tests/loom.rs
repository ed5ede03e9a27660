//! Models of a worker's call mark and of a tail's queue: loom runs each with the possible interleavings of its threads, and the values that its atomics may
//! return.
//!
//! Both files are compiled here a second time, with loom's primitives in place of std's. So plain `cargo test` runs the models,
//! without a flag that recompiles every crate.

use std::panic::{UnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::time::Duration;

use loom::model::Builder;
use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use loom::thread;

use call_mark::CallMark;
use filter::TailFilter;
use queue::{TailEntry, TailList, TailQueue, TailReader, Tails};
use sync::{Arc, lock};

mod sync {
    // Loom's `Arc` has no `Weak`. So the models do not show which thread drops a queue.
    pub(crate) use std::sync::{Arc, Weak};

    use loom::sync::MutexGuard;
    pub(crate) use loom::sync::{Mutex, atomic};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no thread of a model panics")
    }

    pub(crate) mod mpsc {
        //! A bounded channel of loom's parts, which has room for two entries only.

        use std::collections::VecDeque;
        pub(crate) use std::sync::mpsc::RecvTimeoutError;
        use std::time::Duration;

        use super::{Arc, Mutex, lock};

        pub(crate) const ROOM: usize = 2;

        pub(crate) struct SyncSender<T>(Arc<Mutex<VecDeque<T>>>);

        pub(crate) struct Receiver<T>(Arc<Mutex<VecDeque<T>>>);

        pub(crate) fn sync_channel<T>(_room: usize) -> (SyncSender<T>, Receiver<T>) {
            let items = Arc::new(Mutex::new(VecDeque::new()));
            (SyncSender(Arc::clone(&items)), Receiver(items))
        }

        impl<T> SyncSender<T> {
            pub(crate) fn try_send(&self, item: T) -> Result<(), T> {
                let mut items = lock(&self.0);
                if items.len() == ROOM {
                    return Err(item);
                }
                items.push_back(item);
                Ok(())
            }
        }

        impl<T> Receiver<T> {
            pub(crate) fn try_recv(&self) -> Result<T, RecvTimeoutError> {
                lock(&self.0).pop_front().ok_or(RecvTimeoutError::Timeout)
            }

            /// Receives as if `_time` were over.
            pub(crate) fn recv_timeout(&self, _time: Duration) -> Result<T, RecvTimeoutError> {
                self.try_recv()
            }
        }
    }
}

mod filter {
    /// A filter that selects every entry.
    pub(crate) struct TailFilter;

    impl TailFilter {
        pub(crate) fn admits(&self, _status: u16, _path: &[u8], _line: &[u8]) -> bool {
            true
        }
    }
}

// `pub`, because lints of the files must not depend on where they are compiled.
#[path = "../src/call_mark.rs"]
pub mod call_mark;
#[path = "../src/log/tail/queue.rs"]
pub mod queue;

/// Maximum number of preemptions per execution. Two show every planted fault, and three take less than a second per model.
const PREEMPTIONS_MAX: usize = 3;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

/// Asserts that an execution of `model` fails with `message`.
fn assert_fails(model: impl Fn() + Send + Sync + UnwindSafe + 'static, message: &str) {
    let panic = catch_unwind(|| explore(model)).expect_err("no interleaving shows the planted fault");
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(text.contains(message), "another failure: {text}");
}

/// The line of an entry.
#[derive(Clone, Copy)]
enum Line {
    /// A usual line.
    Short,
    /// A line that fits into a queue, but not twice.
    Long,
}

fn entry(line: Line) -> TailEntry {
    static SHORT: LazyLock<Arc<[u8]>> = LazyLock::new(|| vec![b'x'; 300].into());
    static LONG: LazyLock<Arc<[u8]>> = LazyLock::new(|| vec![b'x'; 200 * 1024].into());
    let line = match line {
        Line::Short => &SHORT,
        Line::Long => &LONG,
    };
    TailEntry { status: 200, line: Arc::clone(line) }
}

/// The two operations on a queue: ours, or one with a planted fault.
#[derive(Clone, Copy)]
struct Operations {
    offer: fn(&TailQueue, TailEntry),
    next: fn(&TailReader) -> Option<TailEntry>,
}

const OURS: Operations = Operations { offer: TailQueue::offer, next: TailReader::try_next };

/// Figures of a queue once its workers have ended and its reader sleeps.
struct AtRest {
    received: usize,
    dropped: u64,
    bytes: usize,
}

/// Two workers offer entries with these lines. The reader begins asleep. When woken, it reads until it finds nothing. It sleeps
/// again with entries in the queue only if they have not woken it.
fn two_workers_and_a_reader(lines: [&'static [Line]; 2], operations: Operations) -> AtRest {
    let is_woken = Arc::new(AtomicBool::new(false));
    let reader = {
        let is_woken = Arc::clone(&is_woken);
        let wake = move || {
            is_woken.swap(true, Ordering::AcqRel);
        };
        TailReader::new(TailFilter, Box::new(wake))
    };
    let workers = lines.map(|lines| {
        let queue = Arc::clone(&reader.queue);
        thread::spawn(move || {
            for &line in lines {
                (operations.offer)(&queue, entry(line));
            }
        })
    });
    let mut received = 0;
    let mut turn = || {
        if is_woken.swap(false, Ordering::AcqRel) {
            while (operations.next)(&reader).is_some() {
                received += 1;
            }
        }
    };
    turn();
    turn();
    workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    turn();
    AtRest { received, dropped: reader.dropped(), bytes: reader.queue.bytes.load(Ordering::Relaxed) }
}

fn every_entry_is_received(operations: Operations) {
    let at_rest = two_workers_and_a_reader([&[Line::Short], &[Line::Short]], operations);
    assert_eq!(at_rest.dropped, 0, "an entry is dropped, although the queue has room");
    assert_eq!(at_rest.received, 2, "the reader sleeps before an entry");
    assert_eq!(at_rest.bytes, 0, "an empty queue has no bytes");
}

#[test]
fn an_entry_is_found_by_the_reader_or_wakes_it() {
    explore(|| every_entry_is_received(OURS));
}

#[test]
fn entries_beyond_the_limits_are_dropped_and_leave_no_bytes() {
    let limits: [[&'static [Line]; 2]; 2] = [
        // Together they have too many bytes.
        [&[Line::Long], &[Line::Long]],
        // One entry more than the channel has room for.
        [&[Line::Short, Line::Short], &[Line::Short]],
    ];
    for lines in limits {
        explore(move || {
            let AtRest { received, dropped, bytes } = two_workers_and_a_reader(lines, OURS);
            let offered: usize = lines.iter().map(|lines| lines.len()).sum();
            assert_eq!(received + dropped as usize, offered, "each entry is received or counted");
            assert!(dropped <= 1, "{dropped} entries are dropped");
            assert_eq!(bytes, 0, "an empty queue has no bytes");
        });
    }
}

#[test]
fn workers_wake_a_sleeping_reader_once() {
    explore(|| {
        let wakes = Arc::new(AtomicUsize::new(0));
        let reader = {
            let wakes = Arc::clone(&wakes);
            let wake = move || {
                wakes.fetch_add(1, Ordering::Relaxed);
            };
            TailReader::new(TailFilter, Box::new(wake))
        };
        let workers = [(); 2].map(|()| {
            let queue = Arc::clone(&reader.queue);
            thread::spawn(move || queue.offer(entry(Line::Short)))
        });
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        assert_eq!(wakes.load(Ordering::Relaxed), 1);
        let received = std::iter::from_fn(|| reader.next_within(Duration::ZERO)).count();
        assert_eq!(received, 2);
    });
}

#[test]
fn loom_finds_an_entry_missed_by_a_reader_that_does_not_look_again() {
    let next = |reader: &TailReader| {
        let entry = reader.entries.try_recv().ok();
        if entry.is_none() {
            // An entry that arrived since the attempt has not woken the reader.
            reader.queue.waits.swap(true, Ordering::SeqCst);
        }
        reader.taken(entry)
    };
    assert_fails(
        move || every_entry_is_received(Operations { next, ..OURS }),
        "the reader sleeps before an entry",
    );
}

#[test]
fn loom_finds_an_entry_missed_by_a_worker_that_looks_too_early() {
    let offer = |queue: &TailQueue, entry: TailEntry| {
        queue.bytes.fetch_add(entry.line.len(), Ordering::AcqRel);
        // The reader may begin to wait between this and the arrival of the entry.
        let waits = queue.waits.swap(false, Ordering::SeqCst);
        assert!(queue.entries.try_send(entry).is_ok(), "the channel has room");
        if waits {
            (queue.wake)();
        }
    };
    assert_fails(
        move || every_entry_is_received(Operations { offer, ..OURS }),
        "the reader sleeps before an entry",
    );
}

#[test]
fn loom_finds_bytes_that_are_counted_after_the_entry_is_sent() {
    let offer = |queue: &TailQueue, entry: TailEntry| {
        // The reader may have subtracted an entry that is not yet added: the size is then below 0, which wraps.
        let bytes = entry.line.len();
        let has_room = queue.bytes.load(Ordering::Acquire) <= usize::MAX / 2;
        assert!(has_room, "an entry is dropped, although the queue has room");
        assert!(queue.entries.try_send(entry).is_ok(), "the channel has room");
        if queue.waits.swap(false, Ordering::SeqCst) {
            (queue.wake)();
        }
        queue.bytes.fetch_add(bytes, Ordering::AcqRel);
    };
    assert_fails(
        move || every_entry_is_received(Operations { offer, ..OURS }),
        "an entry is dropped, although the queue has room",
    );
}

/// A worker's list of tails: ours, or one with a planted fault.
trait WorkerList: Default + Send + 'static {
    fn offer(&mut self, tails: &Tails);
}

impl WorkerList for TailList {
    fn offer(&mut self, tails: &Tails) {
        self.offer(tails, 200, b"/", |line| line.extend_from_slice(b"a line\n"));
    }
}

/// One tail begins and another one ends while a worker offers entries. The worker's next entry must arrive in exactly the tails
/// that are left.
fn a_worker_follows_changes_of_the_tails<L: WorkerList>() {
    let tails = Arc::new(Tails::default());
    let [early, late] = [(); 2].map(|()| TailReader::new(TailFilter, Box::new(|| {})));
    assert!(tails.add(&early.queue, || {}));
    let worker = {
        let tails = Arc::clone(&tails);
        thread::spawn(move || {
            let mut list = L::default();
            list.offer(&tails);
            list
        })
    };
    assert!(tails.add(&late.queue, || {}));
    tails.remove(&early.queue, || panic!("a tail is left"));
    let mut list = worker.join().expect("no panic");
    let drain = |reader: &TailReader| std::iter::from_fn(|| reader.try_next()).count();
    drain(&early);
    drain(&late);
    list.offer(&tails);
    assert_eq!([drain(&early), drain(&late)], [0, 1], "the list is out of date");
}

#[test]
fn a_worker_offers_entries_to_the_tails_that_are_left() {
    explore(a_worker_follows_changes_of_the_tails::<TailList>);
}

#[test]
fn loom_finds_a_list_whose_version_is_read_after_the_lock() {
    #[derive(Default)]
    struct LateVersion {
        queues: Vec<Arc<TailQueue>>,
        version: u64,
    }

    impl WorkerList for LateVersion {
        fn offer(&mut self, tails: &Tails) {
            if tails.version.load(Ordering::Acquire) != self.version {
                self.queues = lock(&tails.queues).clone();
                // A change since then has raised the version, but is not in the list.
                self.version = tails.version.load(Ordering::Acquire);
            }
            self.queues.iter().for_each(|queue| queue.offer(entry(Line::Short)));
        }
    }

    assert_fails(a_worker_follows_changes_of_the_tails::<LateVersion>, "the list is out of date");
}

/// A way to mark calls, for models of exchanges that another thread drops.
trait Calls: Send + Sync + 'static {
    fn new() -> Self;
    fn enter(&self, exchange: u64);
    fn leave(&self) -> bool;
    fn drop_in_call(&self, exchange: u64) -> bool;
}

impl Calls for CallMark {
    fn new() -> Self {
        Self::new()
    }

    fn enter(&self, exchange: u64) {
        self.enter(exchange);
    }

    fn leave(&self) -> bool {
        self.leave()
    }

    fn drop_in_call(&self, exchange: u64) -> bool {
        self.drop_in_call(exchange)
    }
}

/// A handler gives its exchange to another thread, which drops it. The worker must learn it once: at the end of the call, or by a
/// message. The request of the next call is another one.
fn an_exchange_is_dropped_on_another_thread<C: Calls>() {
    let calls = Arc::new(C::new());
    calls.enter(1);
    let thread = {
        let calls = Arc::clone(&calls);
        thread::spawn(move || !calls.drop_in_call(1))
    };
    let in_call = calls.leave();
    calls.enter(2);
    assert!(!calls.leave(), "the next request is answered for the dropped one");
    let by_message = thread.join().expect("no panic");
    assert!(in_call || by_message, "the worker never learns of the drop");
    assert!(!(in_call && by_message), "the worker learns of the drop twice");
}

#[test]
fn a_worker_learns_once_that_an_exchange_was_dropped() {
    explore(an_exchange_is_dropped_on_another_thread::<CallMark>);
}

#[test]
fn an_exchange_that_is_dropped_during_an_inner_call_sends_a_message() {
    explore(|| {
        let calls = Arc::new(CallMark::new());
        calls.enter(1);
        let thread = {
            let calls = Arc::clone(&calls);
            thread::spawn(move || !calls.drop_in_call(1))
        };
        let ((), inner) = calls.within(2, || ());
        assert!(!inner, "the inner exchange was not dropped");
        let in_call = calls.leave();
        assert_ne!(in_call, thread.join().expect("no panic"), "once, by the call or by a message");
    });
}

/// Two words for what is one fact.
struct TwoWords {
    calling: AtomicU64,
    dropped: AtomicBool,
}

impl Calls for TwoWords {
    fn new() -> Self {
        Self { calling: AtomicU64::new(u64::MAX), dropped: AtomicBool::new(false) }
    }

    fn enter(&self, exchange: u64) {
        self.dropped.store(false, Ordering::Relaxed);
        self.calling.store(exchange, Ordering::Release);
    }

    fn leave(&self) -> bool {
        self.calling.store(u64::MAX, Ordering::Release);
        self.dropped.load(Ordering::Acquire)
    }

    fn drop_in_call(&self, exchange: u64) -> bool {
        let calling = self.calling.load(Ordering::Acquire) == exchange;
        if calling {
            self.dropped.store(true, Ordering::Release);
        }
        calling
    }
}

#[test]
fn loom_finds_a_drop_that_is_lost_between_two_words() {
    assert_fails(an_exchange_is_dropped_on_another_thread::<TwoWords>, "the worker never learns");
}
