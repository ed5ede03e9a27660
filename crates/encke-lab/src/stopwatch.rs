//! Measures wall and CPU time of some work, and processor counters where programs may read them.

use std::cell::RefCell;
use std::sync::Arc;

use encke_io::clock::{Clock, thread_cpu_ns};
use encke_io::counters::{CountedEvent, CounterError, Counters};

use crate::error::LabError;
use crate::experiment::{CellSample, Counts};

/// Returns the time that `work` takes on this thread.
pub(crate) fn time(work: impl FnOnce()) -> CellSample {
    let mut clock = Clock::new();
    let (wall_ns, cpu_ns) = (clock.now().mono_ns, thread_cpu_ns());
    work();
    CellSample {
        wall_ns: clock.now().mono_ns - wall_ns,
        cpu_ns: thread_cpu_ns() - cpu_ns,
        ..CellSample::default()
    }
}

/// Like [`time`], with processor counters of user space: for work outside the kernel.
pub(crate) fn count(work: impl FnOnce()) -> CellSample {
    let before = counted();
    let sample = time(work);
    let counts = before.and_then(|before| Ok(counted()?.since(before)));
    CellSample { counts: Some(counts), ..sample }
}

/// This thread's counters, or the reason why they are not available.
fn counted() -> Result<Counts, Arc<LabError>> {
    thread_local! {
        static COUNTERS: RefCell<Result<Counters, Arc<LabError>>> = RefCell::new(
            Counters::of_this_thread(&[CountedEvent::Cycles, CountedEvent::Instructions, CountedEvent::BranchMisses]).map_err(shared),
        );
    }
    COUNTERS.with_borrow_mut(|counters| {
        let numbers = counters.as_mut().map_err(|error| Arc::clone(error))?.read();
        match numbers.map_err(shared)?[..] {
            [cycles, instructions, branch_misses] => Ok(Counts { cycles, instructions, branch_misses }),
            _ => Err(Arc::new(LabError::unexpected("the kernel counted other events"))),
        }
    })
}

fn shared(error: CounterError) -> Arc<LabError> {
    Arc::new(error.into())
}

impl Counts {
    const fn since(self, before: Self) -> Self {
        Self {
            cycles: self.cycles - before.cycles,
            instructions: self.instructions - before.instructions,
            branch_misses: self.branch_misses - before.branch_misses,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_there_or_it_is_said_why_not() {
        let sample = count(|| {
            for number in 0..1_000_000_u64 {
                std::hint::black_box(number);
            }
        });
        match sample.counts.expect("it was asked for") {
            Ok(counts) => assert!(counts.instructions > 1_000_000, "{counts:?}"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
