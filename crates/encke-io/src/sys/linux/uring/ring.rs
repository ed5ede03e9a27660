//! The two queues shared by a process and its kernel. Opened with the features that the kernel has, entered once per turn.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue};

use crate::reactor::{Backend, Unavailable};

/// Operations submitted by one system call: 512 × 64 B = 32 KiB. More operations need further calls.
const SUBMISSIONS: u32 = 512;
/// Number of completions that end a batching wait.
const GATHERED: usize = 256;
/// Timeout of a batching wait without a deadline. The wait may then end without events.
const LONG: Duration = Duration::from_secs(3_600);
/// Size of the completion queue: 4,096 × 16 B = 64 KiB. The kernel holds back further completions until there is room.
const COMPLETIONS: u32 = 4_096;

/// A completion reported by the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    /// The `user_data` given with the operation.
    pub user_data: u64,
    /// The return value of the system call; errors are negated.
    pub result: i32,
    /// IORING_CQE_F_*.
    pub flags: u32,
}

impl Completion {
    /// Whether the operation continues: this was not its last completion.
    pub(super) fn has_more(&self) -> bool {
        cqueue::more(self.flags)
    }
}

/// Whether an enter waits for completions.
#[derive(Clone, Copy, Debug)]
pub(super) enum EnterWait {
    /// Takes only completions that are ready.
    No,
    /// Waits for the first completion, at most `timeout`, but at least `gather` if the ring supports batching.
    For { timeout: Option<Duration>, gather: Duration },
}

pub(super) struct KernelRing {
    pub(super) uring: IoUring,
    /// Operations in order that the kernel did not accept because the queue was full: it wants completions to be taken first.
    backlog: VecDeque<Entry>,
}

impl KernelRing {
    /// Opens the queues. Completions are delivered only when this thread enters the kernel (Linux 6.1), or else without
    /// interrupting the thread (5.19).
    ///
    /// # Errors
    /// io_uring is not available. The error gives the reason and advice.
    pub(super) fn open() -> Result<Self, Unavailable> {
        let mut deferred = IoUring::builder();
        deferred.setup_single_issuer().setup_defer_taskrun();
        let mut cooperative = IoUring::builder();
        cooperative.setup_coop_taskrun();
        let mut outcome = Err(io::ErrorKind::Unsupported.into());
        for builder in [&mut deferred, &mut cooperative] {
            builder.setup_taskrun_flag().setup_submit_all().setup_cqsize(COMPLETIONS).dontfork();
            outcome = builder.build(SUBMISSIONS);
            if !matches!(&outcome, Err(error) if error.raw_os_error() == Some(libc::EINVAL)) {
                break;
            }
        }
        let uring = outcome.map_err(|error| unavailable(error, disabled_setting()))?;
        if !uring.params().is_feature_ext_arg() {
            return Err(unavailable(io::Error::from_raw_os_error(libc::EINVAL), None));
        }
        Ok(Self { uring, backlog: VecDeque::new() })
    }

    /// Queues an operation, which starts with the next [`KernelRing::enter`], or earlier if the queue is full. So ten thousand
    /// operations of one turn need no extra memory.
    ///
    /// # Safety
    /// All memory that the operation points to stays valid and in place until its last completion.
    pub(super) unsafe fn push(&mut self, entry: Entry) {
        if self.backlog.is_empty() {
            // SAFETY: as above; the caller promises it.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            // If the kernel accepts none now, the next enter reports the reason.
            let _taken = self.uring.submit();
            // SAFETY: as above.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    /// Whether waits can batch completions (Linux 6.12).
    pub(super) fn gathers(&self) -> bool {
        self.uring.params().is_feature_min_timeout()
    }

    /// Submits all queued operations and lets them complete where possible; then waits.
    ///
    /// # Errors
    /// The kernel refuses, which is a fault of this program or of the machine.
    pub(super) fn enter(&mut self, wait: EnterWait) -> io::Result<()> {
        while !self.backlog.is_empty() {
            self.fill();
            if !self.backlog.is_empty() && !interrupted(self.uring.submit())? {
                // The kernel accepts nothing until completions are taken. The rest is submitted in the next turn.
                return Ok(());
            }
        }
        let queue = self.uring.submission();
        let idle = queue.is_empty() && !queue.taskrun() && !queue.cq_overflow();
        drop(queue);
        let EnterWait::For { timeout, gather } = wait else {
            return if idle { Ok(()) } else { interrupted(self.uring.submit()).map(drop) };
        };
        // The end of the timeout does not end the minimum wait (Linux 6.18).
        let gather = timeout.map_or(gather, |timeout| gather.min(timeout));
        let result = match (timeout, u32::try_from(gather.as_micros()).unwrap_or(u32::MAX)) {
            (None, 0) => self.uring.submit_and_wait(1),
            (Some(timeout), 0) => {
                let timeout = Timespec::from(timeout);
                self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
            (timeout, gather_us) => {
                let timeout = Timespec::from(timeout.unwrap_or(LONG));
                let arguments = SubmitArgs::new().timespec(&timeout).min_wait_usec(gather_us);
                self.uring.submitter().submit_with_args(GATHERED, &arguments)
            }
        };
        interrupted(result).map(drop)
    }

    /// Moves operations from the backlog into the queue while there is room.
    fn fill(&mut self) {
        let mut queue = self.uring.submission();
        while let Some(entry) = self.backlog.pop_front() {
            // SAFETY: the promise given to `push` for this entry still holds.
            if unsafe { queue.push(&entry) }.is_err() {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    /// Takes all completions that are ready.
    pub(super) fn take(&mut self, mut each: impl FnMut(Completion)) {
        for entry in self.uring.completion() {
            each(Completion { user_data: entry.user_data(), result: entry.result(), flags: entry.flags() });
        }
    }
}

/// Tolerates an interrupted enter: the next one submits the rest. Returns false if the enter was interrupted.
fn interrupted(result: io::Result<usize>) -> io::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            // ETIME: the timeout. EBUSY, EAGAIN: the kernel first wants completions to be taken.
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(false),
            _ => Err(error),
        },
    }
}

/// The value of kernel.io_uring_disabled, if the system has it (Linux 6.6): 0 allows all processes, 1 a group, 2 none.
fn disabled_setting() -> Option<u8> {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok()
}

/// Creates an error with the reason why io_uring is not available, and advice.
pub(super) fn unavailable(error: io::Error, disabled: Option<u8>) -> Unavailable {
    const OTHERWISE: &str = "or choose --backend epoll-edge";
    let help = match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            format!(
                ": this kernel was built without io_uring, or a seccomp filter hides it; allow it, {OTHERWISE}"
            )
        }
        Some(libc::EPERM | libc::EACCES) => match disabled {
            Some(2) => format!(": it is disabled; run `sysctl kernel.io_uring_disabled=0`, {OTHERWISE}"),
            Some(1) => format!(
                ": only the group kernel.io_uring_group and CAP_SYS_ADMIN may use it; join that group, run \
                 `sysctl kernel.io_uring_disabled=0`, {OTHERWISE}"
            ),
            _ => format!(
                ": a seccomp filter forbids it, as containers do by default; allow io_uring_setup, \
                 io_uring_enter and io_uring_register, {OTHERWISE}"
            ),
        },
        Some(libc::ENOMEM) => {
            format!(
                ": the limit of locked memory is used up; raise RLIMIT_MEMLOCK (`ulimit -l`), {OTHERWISE}"
            )
        }
        Some(libc::EINVAL) => {
            format!(
                ": Linux 5.19 or later is needed (provided buffers, multishot accept); upgrade, {OTHERWISE}"
            )
        }
        Some(libc::EMFILE | libc::ENFILE) => ": raise the limit of open files (`ulimit -n`)".into(),
        _ => format!("; {OTHERWISE}"),
    };
    Unavailable::new(Backend::Uring, error, help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_remedy() {
        let text = |errno, disabled| unavailable(io::Error::from_raw_os_error(errno), disabled).to_string();
        assert!(text(libc::ENOSYS, None).contains("without io_uring"));
        assert!(text(libc::EPERM, Some(2)).contains("sysctl kernel.io_uring_disabled=0"));
        assert!(text(libc::EPERM, Some(1)).contains("kernel.io_uring_group"));
        assert!(text(libc::EPERM, Some(0)).contains("seccomp"));
        assert!(text(libc::EPERM, None).contains("seccomp"));
        assert!(text(libc::ENOMEM, None).contains("RLIMIT_MEMLOCK"));
        assert!(text(libc::EINVAL, None).contains("Linux 5.19"));
        assert!(text(libc::EMFILE, None).contains("ulimit -n"));
        assert!(text(libc::EIO, None).contains("epoll-edge"));
        let error = unavailable(io::Error::from_raw_os_error(libc::EPERM), None);
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert!(cause.is_some_and(|cause| error.to_string().contains(&cause)), "{error}");
    }

    #[test]
    fn what_the_queue_has_no_room_for_begins_at_once() {
        let mut ring = KernelRing::open().unwrap_or_else(|refusal| panic!("{refusal}"));
        for number in 0..3 * u64::from(SUBMISSIONS) {
            let nothing = io_uring::opcode::Nop::new().build().user_data(number);
            // SAFETY: it points to nothing.
            unsafe { ring.push(nothing) };
            assert!(ring.backlog.is_empty(), "operation {number} waits");
        }
        let mut completed = 0;
        while completed < 3 * u64::from(SUBMISSIONS) {
            let wait = EnterWait::For { timeout: None, gather: Duration::ZERO };
            ring.enter(wait).expect("they complete");
            completed += ring.uring.completion().count() as u64;
        }
    }

    #[test]
    fn a_filter_that_forbids_it_is_named() {
        // On a separate thread, because a filter cannot be removed.
        let refusal = std::thread::spawn(|| {
            forbid_io_uring();
            KernelRing::open().err().map(|error| error.to_string())
        });
        let refusal = refusal.join().expect("no panic").expect("it is forbidden");
        assert!(refusal.starts_with("back end uring is not available"), "{refusal}");
        assert!(refusal.contains("seccomp") && refusal.contains("epoll-edge"), "{refusal}");
    }

    /// Makes io_uring_setup(2) fail with EPERM on this thread (seccomp(2)).
    fn forbid_io_uring() {
        let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        let mut program = [
            libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 }, // ld [nr]
            libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_io_uring_setup as u32 },
            libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: refuse },
            libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
        ];
        let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
        // SAFETY: the program is four instructions that live until the calls return; the kernel copies them.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}
