//! Times some work on both clocks.

use encke_io::clock::{Clock, thread_cpu_ns};

use crate::experiment::Sample;

/// What `work` took on this thread.
pub(crate) fn time(work: impl FnOnce()) -> Sample {
    let mut clock = Clock::new();
    let (wall_ns, cpu_ns) = (clock.now().mono_ns, thread_cpu_ns());
    work();
    Sample { wall_ns: clock.now().mono_ns - wall_ns, cpu_ns: thread_cpu_ns() - cpu_ns, facts: Vec::new() }
}
