//! The operating systems: each call that differs between them, once per system. Only this module has `cfg` for systems.
//!
//! ```text
//!  readiness.rs  sending.rs  socket.rs  files.rs  host.rs  changes.rs  process.rs  wake.rs …
//!        │            (the same code on every system; `use crate::sys::…`)
//!        ▼
//!  sys:: net  files  host  process  usage  service  bell  changes  counters  drain_mark  backends
//!        │
//!        ├─ unix ── descriptors and errno; what Linux and the others share ──┬─ own = linux   (epoll, io_uring, inotify, …)
//!        │                                                                   └─ own = posix   (poll(2) only)
//!        └─ windows ── SOCKET and HANDLE
//! ```
//! Both sides of each pair have the same functions and types. A function that a system cannot support returns `None`,
//! does nothing, or fails with `Unsupported`. A caller never needs to know the system.
//!
//! # Guarantees of all systems
//! - **Handles.** A `Handle` closes when it is dropped. Children inherit no handle, except the one that
//!   [`Process::start`](crate::process::Process::start) passes on purpose.
//! - **Calls on sockets never wait.** They return `WOULD_BLOCK` instead.
//! - **`receive`** returns 0 at the end of the stream only. After a reset it fails.
//! - **`send`** may accept fewer bytes than given, and reports how many. A lost peer is an error, never a signal.
//! - **`listen`** without `shared` never takes a port that another server uses. A restarted server can bind at once.
//! - **`send_file`** may send a part of the range, and reports how much. It fails with `FileShrunk` if the file ends before.
//!
//! # Linux
//! - Accepted sockets inherit TCP_NODELAY and are non-blocking by the same call.
//! - `tune` limits unsent bytes by TCP_NOTSENT_LOWAT, and silent peers by TCP_USER_TIMEOUT.
//! - `refuse_new` drops connection attempts by a socket filter; none that is established is reset.
//! - `send_file` is sendfile(2): no copy through this process. Data that follows shares a packet (MSG_MORE).
//! - A connected socket that is writable is connected for sure (`WRITABLE_MEANS_CONNECTED`).
//! - Files are opened beneath a root by openat2(2); changes of directories are reported by inotify(7).
//!
//! # Other Unix systems
//! - poll(2) is the only back end, and files are sent by reading them. Links below a root are rejected (`Links::Deny`).
//! - No limits of unsent data, no figures of the kernel about connections, no change notifications: caches revalidate.
//! - CI only checks that these builds compile.
//!
//! # Windows
//! - Sockets are at no completion port, so that another process can take them over. Every worker accepts from one listener.
//! - A poll of the driver reports a reset before `receive` is called, which then fails: data that arrived before is lost.
//! - `send` takes at most 256 KiB a call; `tune` limits the send buffer (SO_SNDBUF) to the unsent bytes, and silent peers by
//!   TCP_MAXRT, in whole seconds. A packet is never held back.
//! - Server editions send files from 64 KiB on by themselves (`FileFlight`): TransmitFile, overlapped, with the head before it. The
//!   end is reported as readiness to write. Other editions read and send.
//! - Changes of directories are reported by ReadDirectoryChangesW, a moment after they have happened.
//! - Waits end with the system's clock tick, up to 16 ms late.
//! - Links below a root are resolved component by component, and never lead to another machine.
//! - Processes that this one starts get no socket, and end with it, as members of a job. Signals are named events, and the controls of
//!   the service manager.
//! - No Unix sockets, no figures of the kernel about connections.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(all(unix, not(target_os = "linux")))]
mod posix;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
use linux as own;
#[cfg(all(unix, not(target_os = "linux")))]
use posix as own;

#[cfg(unix)]
pub(crate) use unix::{
    backends, bell, changes, counters, drain_mark, files, host, net, process, service, usage,
};
#[cfg(windows)]
pub(crate) use windows::{
    backends, bell, changes, counters, drain_mark, files, host, net, process, service, usage,
};
