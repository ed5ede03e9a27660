//! Models of wake-ups: loom runs each with the possible interleavings of its threads, and the values that its atomics may return.
//!
//! `wake.rs` is compiled here a second time, with loom's primitives in place of std's and a bell of atomics in place of the
//! system's. So plain `cargo test` runs the models, without a flag that recompiles every crate.

use std::panic::catch_unwind;

use loom::model::Builder;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use sync::Arc;
use sys::bell::{Bell, BellKind};
use wake::{WakeReceiver, WakeSignal, Waker};

mod sync {
    pub(crate) use loom::sync::{Arc, atomic};
}

mod sys {
    pub(crate) mod bell {
        //! A bell without a system. Its atomics are relaxed: systems order more, but do not promise that to programs.

        use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

        #[derive(Clone, Copy)]
        pub(crate) enum BellKind {
            /// An eventfd or a pipe: readable until it is silenced.
            Descriptor,
            /// A packet of a completion port: the wait takes it, and silence does nothing.
            Packet,
        }

        pub(crate) struct Bell {
            kind: BellKind,
            rings: AtomicUsize,
            /// The system has no memory for the next packet.
            fails_once: AtomicBool,
        }

        impl Bell {
            pub(crate) fn new(kind: BellKind, fails_once: bool) -> Self {
                Self { kind, rings: AtomicUsize::new(0), fails_once: AtomicBool::new(fails_once) }
            }

            pub(crate) fn ring(&self) -> bool {
                let fails = self.fails_once.swap(false, Ordering::Relaxed);
                if !fails {
                    self.rings.fetch_add(1, Ordering::Relaxed);
                }
                !fails
            }

            pub(crate) fn silence(&self) {
                if matches!(self.kind, BellKind::Descriptor) {
                    self.rings.swap(0, Ordering::Relaxed);
                }
            }

            /// Whether a wait of the reactor returns.
            pub(crate) fn ends_a_wait(&self) -> bool {
                match self.kind {
                    BellKind::Descriptor => self.rings.load(Ordering::Relaxed) > 0,
                    // Only the reactor takes packets, so the count cannot fall in between.
                    BellKind::Packet => {
                        self.rings.load(Ordering::Relaxed) > 0
                            && self.rings.fetch_sub(1, Ordering::Relaxed) > 0
                    }
                }
            }
        }
    }
}

// `pub`, because lints of the file must not depend on where it is compiled.
#[path = "../src/wake.rs"]
pub mod wake;

/// Maximum number of preemptions per execution. Two show every planted fault, and three take less than a second per model.
const PREEMPTIONS_MAX: usize = 3;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

/// Asserts that an execution of `model` fails with `message`.
fn assert_fails(model: impl Fn() + Send + Sync + std::panic::UnwindSafe + 'static, message: &str) {
    let panic = catch_unwind(|| explore(model)).expect_err("no interleaving shows the planted fault");
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(text.contains(message), "another failure: {text}");
}

/// The work of a reactor: items that threads add before they wake it. Relaxed, so that only the wake-ups publish the items.
struct Inbox([AtomicBool; ITEMS]);

const ITEMS: usize = 3;

impl Inbox {
    fn new() -> Arc<Self> {
        Arc::new(Self(std::array::from_fn(|_| AtomicBool::new(false))))
    }

    fn add(&self, item: usize) {
        self.0[item].store(true, Ordering::Relaxed);
    }

    /// Marks the items that are visible in `taken`.
    fn take(&self, taken: &mut [bool; ITEMS]) {
        for (item, taken) in self.0.iter().zip(taken) {
            *taken |= item.load(Ordering::Relaxed);
        }
    }
}

/// One turn of a reactor that the bell ended the wait of. The last argument has the items taken so far.
type Turn = fn(&WakeReceiver, &Inbox, &mut [bool; ITEMS]);

/// The turn of our reactors: an event is delivered if the flag was set, and its receiver takes all work.
fn turn(receiver: &WakeReceiver, inbox: &Inbox, taken: &mut [bool; ITEMS]) {
    if receiver.clear() {
        inbox.take(taken);
    }
}

/// One thread wakes the reactor twice and another one once, each time with an item, while the reactor makes up to two turns.
/// Once its bell is silent, the reactor must have all items: no more wake-ups will come.
fn two_threads_wake_a_reactor(kind: BellKind, turn: Turn) {
    let receiver = WakeReceiver::new(Bell::new(kind, false));
    let inbox = Inbox::new();
    let spawn = |items: &'static [usize]| {
        let (waker, inbox) = (receiver.waker(), Arc::clone(&inbox));
        thread::spawn(move || {
            for &item in items {
                inbox.add(item);
                waker.wake();
            }
        })
    };
    let wakers = [spawn(&[0, 1]), spawn(&[2])];
    let mut taken = [false; ITEMS];
    for _ in 0..2 {
        if receiver.bell().ends_a_wait() {
            turn(&receiver, &inbox, &mut taken);
        }
    }
    wakers.into_iter().for_each(|waker| waker.join().expect("no panic"));
    while receiver.bell().ends_a_wait() {
        turn(&receiver, &inbox, &mut taken);
    }
    assert_eq!(taken, [true; ITEMS], "a wake-up is lost");
}

#[test]
fn no_wake_up_by_an_eventfd_is_lost() {
    explore(|| two_threads_wake_a_reactor(BellKind::Descriptor, turn));
}

#[test]
fn no_wake_up_by_a_completion_packet_is_lost() {
    explore(|| two_threads_wake_a_reactor(BellKind::Packet, turn));
}

#[test]
fn a_wake_after_a_failed_ring_delivers_all_work() {
    explore(|| {
        let receiver = WakeReceiver::new(Bell::new(BellKind::Packet, true));
        let inbox = Inbox::new();
        let wakers = [0, 1].map(|item| {
            let (waker, inbox) = (receiver.waker(), Arc::clone(&inbox));
            thread::spawn(move || {
                inbox.add(item);
                waker.wake();
            })
        });
        let mut taken = [false; ITEMS];
        if receiver.bell().ends_a_wait() {
            turn(&receiver, &inbox, &mut taken);
        }
        wakers.into_iter().for_each(|waker| waker.join().expect("no panic"));
        // Either of the two may have met the failure, and the other one may have relied on it.
        inbox.add(2);
        receiver.waker().wake();
        while receiver.bell().ends_a_wait() {
            turn(&receiver, &inbox, &mut taken);
        }
        assert_eq!(taken, [true; ITEMS], "a wake-up is lost");
    });
}

#[test]
fn the_flag_alone_loses_no_wake_up_in_the_simulator() {
    explore(|| {
        let signal = WakeSignal::without_bell();
        let inbox = Inbox::new();
        let wake = |waker: Waker, items: &'static [usize]| {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                for &item in items {
                    inbox.add(item);
                    waker.wake();
                }
            })
        };
        let wakers = [wake(Waker::of(&signal), &[0, 1]), wake(Waker::of(&signal), &[2])];
        let mut taken = [false; ITEMS];
        for _ in 0..2 {
            if signal.is_set() && signal.clear() {
                inbox.take(&mut taken);
            }
        }
        wakers.into_iter().for_each(|waker| waker.join().expect("no panic"));
        if signal.is_set() && signal.clear() {
            inbox.take(&mut taken);
        }
        assert_eq!(taken, [true; ITEMS], "a wake-up is lost");
    });
}

#[test]
fn loom_finds_a_wake_up_lost_by_silence_after_the_clear() {
    // A wake between the two sets the flag, and its ring is silenced. No later wake rings.
    let silences_last: Turn = |receiver, inbox, taken| {
        let was_set = receiver.clear();
        receiver.bell().silence();
        if was_set {
            inbox.take(taken);
        }
    };
    assert_fails(
        move || two_threads_wake_a_reactor(BellKind::Descriptor, silences_last),
        "a wake-up is lost",
    );
}

#[test]
fn loom_finds_work_lost_by_a_clear_after_the_work_is_taken() {
    // Work added between the two is neither taken, nor announced by a set flag.
    let takes_first: Turn = |receiver, inbox, taken| {
        inbox.take(taken);
        receiver.clear();
    };
    for kind in [BellKind::Descriptor, BellKind::Packet] {
        assert_fails(move || two_threads_wake_a_reactor(kind, takes_first), "a wake-up is lost");
    }
}
