//! Tests of tickets. They are not in `ticket.rs`, because `tests/loom.rs` contains that file as well, with its own primitives.

use std::sync::mpsc::{Receiver, channel};

use crate::ticket::{Gathered, Ticket};

fn ticket<T: Send + 'static>() -> (Ticket<T>, Receiver<Option<T>>) {
    let (send, receive) = channel();
    (Ticket::new(move |result| send.send(result).expect("the test waits")), receive)
}

#[test]
fn a_ticket_gives_its_result_once_from_any_thread() {
    let (ticket, result) = ticket();
    std::thread::spawn(move || ticket.resolve(7)).join().expect("it does not panic");
    assert_eq!(result.iter().collect::<Vec<_>>(), [Some(7)]);
}

#[test]
fn a_dropped_ticket_has_no_result() {
    let (ticket, result) = ticket::<u32>();
    drop(ticket);
    assert_eq!(result.iter().collect::<Vec<_>>(), [None]);
}

#[test]
fn results_are_merged_when_the_last_part_has_come() {
    let (ticket, result) = ticket();
    let gathered = Gathered::new(ticket, |sum: &mut u32, part| *sum += part);
    let parts = [gathered.ticket(), gathered.ticket(), gathered.ticket()];
    drop(gathered);
    for (number, part) in parts.into_iter().enumerate() {
        assert!(result.try_recv().is_err(), "part {number} is missing");
        // One worker ends without a result.
        if number != 1 {
            part.resolve(number as u32 + 1);
        }
    }
    assert_eq!(result.iter().collect::<Vec<_>>(), [Some(4)]);
}

#[test]
fn a_result_without_any_part_is_a_dropped_ticket() {
    let (ticket, result) = ticket::<u32>();
    drop(Gathered::new(ticket, |_, _| {}).ticket());
    assert_eq!(result.iter().collect::<Vec<_>>(), [None]);
}
