//! Tests of wake-ups with a real bell. They are not in `wake.rs`, because `tests/loom.rs` contains that file as well, with its
//! own primitives and bell.

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sys::bell::Bell;
use crate::wake::WakeReceiver;

const WAKES: usize = 100_000;

fn is_readable(receiver: &WakeReceiver) -> bool {
    let mut entries = [PollFd::new(receiver.bell(), PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut entries, Some(&at_once)).expect("a descriptor of ours") > 0
}

#[test]
fn a_set_signal_has_a_rung_bell_after_any_number_of_clears() {
    let receiver = WakeReceiver::new(Bell::new().expect("a descriptor"));
    let wakers: Vec<_> = (0..2)
        .map(|_| {
            let waker = receiver.waker();
            std::thread::spawn(move || (0..WAKES).for_each(|_| waker.wake()))
        })
        .collect();
    // As in a reactor, the signal is cleared only when its descriptor is readable.
    while wakers.iter().any(|waker| !waker.is_finished()) {
        if is_readable(&receiver) {
            receiver.clear();
        }
    }
    wakers.into_iter().for_each(|waker| waker.join().expect("no panic"));
    assert!(is_readable(&receiver) || !receiver.clear(), "the flag is set, but no later wake rings the bell");
}
