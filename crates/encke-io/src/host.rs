//! Facts about this machine and process, and the few system settings that a server changes.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

pub(crate) use crate::sys::host::page_bytes;
pub use crate::sys::host::{
    Signals, cpu_seconds, descriptor_limit, exit_now, inherited_listeners, is_lost_terminal, name,
    open_terminal, pin_thread, pin_thread_here, prepare_console, pseudo_terminal, raise_descriptor_limit,
    random, redirect_errors, reopen_errors, reserve_descriptors, send_signal, send_to_manager, under_journal,
    wake_on_time,
};
use crate::sys::host::{system_size, system_text, ticks_per_second};
use crate::sys::usage;

/// Number of processors this process may use: its affinity, capped by the cgroup's CPU quota rounded up. At least 1.
pub fn processors() -> usize {
    // std respects both sched_getaffinity(2) and the quota of cgroups v1 and v2.
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The kernel's release; `None` if the system does not report it.
pub fn kernel_release() -> Option<String> {
    Some(system_text("/proc/sys/kernel/osrelease")?.trim().to_owned())
}

/// The model name of the first processor (/proc/cpuinfo); `None` on systems and architectures that do not report it.
pub fn processor_name() -> Option<String> {
    let text = system_text("/proc/cpuinfo")?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Total memory of the machine in bytes (/proc/meminfo); `None` if the system does not report it.
pub fn memory_bytes() -> Option<u64> {
    let Some(text) = system_text("/proc/meminfo") else { return usage::memory_bytes() };
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The kernel's maximum for the backlog of listen(2); `None` if the system does not report it.
pub fn backlog_limit() -> Option<u32> {
    system_text("/proc/sys/net/core/somaxconn")?.trim().parse().ok()
}

/// Memory limit of this process's cgroup in bytes, or `None` if unlimited: the minimum of `memory.max` from its group up to the
/// root (cgroups(7), version 2).
pub fn memory_limit() -> Option<u64> {
    let groups = system_text("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut least = None;
    for group in std::path::Path::new(own).ancestors() {
        let group = group.strip_prefix("/").unwrap_or(group);
        let file = std::path::Path::new("/sys/fs/cgroup").join(group).join("memory.max");
        let limit = system_text(file).and_then(|text| text.trim().parse::<u64>().ok());
        least = least.into_iter().chain(limit).min();
    }
    least
}

/// Counters of a process's CPU quota, in periods, summed over its cgroup and all groups above it (cgroups(7), cpu.stat).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaPeriods {
    /// Periods, usually of 100 ms, in which a process of the group ran.
    pub all: u64,
    /// Periods in which the quota was exhausted, so that no process ran until the next period.
    pub used_up: u64,
}

impl QuotaPeriods {
    /// The fraction of the periods since `earlier` in which the quota was exhausted.
    pub fn share_since(self, earlier: Self) -> f64 {
        let [all, used_up] =
            [self.all.saturating_sub(earlier.all), self.used_up.saturating_sub(earlier.used_up)];
        if all == 0 { 0.0 } else { used_up as f64 / all as f64 }
    }
}

/// Returns the CPU quota counters of a process, or of this one if `pid` is `None`. Zero if no group with such counters is
/// visible.
pub fn quota_periods(pid: Option<u32>) -> QuotaPeriods {
    let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let groups = system_text(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let mut sum = QuotaPeriods::default();
    // A line is number:controllers:path. The list of controllers is empty in version 2.
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(own)) = (fields.next(), fields.next()) else { continue };
        let mount = match controllers {
            "" => "",
            _ if controllers.split(',').any(|name| name == "cpu") => controllers,
            _ => continue,
        };
        for group in std::path::Path::new(own).ancestors() {
            let group = group.strip_prefix("/").unwrap_or(group);
            let file = std::path::Path::new("/sys/fs/cgroup").join(mount).join(group).join("cpu.stat");
            let stat = system_text(file).unwrap_or_default();
            sum.all = sum.all.saturating_add(field(&stat, "nr_periods").unwrap_or(0));
            sum.used_up = sum.used_up.saturating_add(field(&stat, "nr_throttled").unwrap_or(0));
        }
    }
    sum
}

/// Finds a number in a file with one name and one number per line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.next()?.trim().parse().ok()
}

/// Resident memory of this process in bytes (/proc/self/statm).
pub fn resident_bytes() -> Option<u64> {
    let Some(statm) = system_text("/proc/self/statm") else {
        return Some(usage::of_this_process()?.resident_bytes);
    };
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_bytes())
}

/// Number of open descriptors of this process (proc(5), /proc/self/fd); on Windows of handles.
pub fn open_descriptors() -> Option<usize> {
    // Since Linux 6.2 the directory's size is their number. Before that it is 0, and reading the directory costs 1 µs per
    // descriptor.
    match system_size("/proc/self/fd") {
        Some(0) => descriptors_listed(),
        Some(size) => usize::try_from(size).ok(),
        None => usage::open_handles(),
    }
}

/// Counts the entries of /proc/self/fd, without the descriptor by which they are read.
fn descriptors_listed() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1))
}

/// Processor time of a thread since its start (/proc/thread-self/schedstat).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadTimes {
    /// Time on a processor, in ns.
    pub run_ns: u64,
    /// Time runnable but waiting for a processor, in ns.
    pub wait_ns: u64,
}

/// The times of this thread; `None` if the system does not report them.
pub fn thread_times() -> Option<ThreadTimes> {
    times(&system_text("/proc/thread-self/schedstat")?)
}

pub(crate) fn times(schedstat: &str) -> Option<ThreadTimes> {
    let mut numbers = schedstat.split_ascii_whitespace().map(str::parse);
    Some(ThreadTimes { run_ns: numbers.next()?.ok()?, wait_ns: numbers.next()?.ok()? })
}

/// Resource usage of a process and its descendants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessUsage {
    /// CPU time, user and system, in ns, with the system's resolution (10 ms). Includes threads that have ended.
    pub cpu_ns: u64,
    /// Resident memory in bytes. Memory shared by several processes is counted once per process.
    pub resident_bytes: u64,
    /// Size of the address space in bytes (VSZ), including mapped pages that were never touched.
    pub mapped_bytes: u64,
    /// Usage of each thread.
    pub threads: Vec<ThreadUsage>,
}

/// Processor time of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadUsage {
    /// The thread's id (gettid(2)).
    pub number: u32,
    /// Time on a processor, in ns.
    pub run_ns: u64,
    /// Time runnable but waiting for a processor, in ns.
    pub wait_ns: u64,
}

/// Maximum number of processes that [`process_usage`] inspects. A server with more has other problems.
const PROCESSES_MAX: usize = 1_024;

/// Resource usage so far of a process and its descendants (/proc/PID/stat, statm and task/TID/schedstat); on Windows of the
/// process alone, without its threads. `None` if no such process exists, or the system does not report it.
pub fn process_usage(pid: u32) -> Option<ProcessUsage> {
    let mut usage = ProcessUsage::default();
    let (mut processes, mut at) = (vec![pid], 0);
    while let Some(pid) = processes.get(at).copied() {
        // A child may have exited by now. Only the process `pid` itself must exist.
        match add_process(pid, &mut usage, &mut processes) {
            None if at == 0 => return usage::of_process(pid),
            _ => at += 1,
        }
    }
    Some(usage)
}

/// Adds the usage of one process, and appends its children to `processes`.
fn add_process(pid: u32, usage: &mut ProcessUsage, processes: &mut Vec<u32>) -> Option<()> {
    let read = |name: &str| system_text(format!("/proc/{pid}/{name}"));
    usage.cpu_ns += cpu_ticks(&read("stat")?)? * (1_000_000_000 / ticks_per_second());
    let statm = read("statm")?;
    let mut pages = statm.split_ascii_whitespace().map(str::parse::<u64>);
    usage.mapped_bytes += pages.next()?.ok()? * page_bytes();
    usage.resident_bytes += pages.next()?.ok()? * page_bytes();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let Some(number) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // The thread may have exited since.
        if let Some(times) = read(&format!("task/{number}/schedstat")).as_deref().and_then(times) {
            let ThreadTimes { run_ns, wait_ns } = times;
            usage.threads.push(ThreadUsage { number, run_ns, wait_ns });
        }
        let children = read(&format!("task/{number}/children")).unwrap_or_default();
        let room = PROCESSES_MAX.saturating_sub(processes.len());
        processes
            .extend(children.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()).take(room));
    }
    Some(())
}

/// User plus system time in ticks from a line of /proc/PID/stat (proc_pid_stat(5), fields 14 and 15). The second field is a
/// name in parentheses and may contain any characters.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// TCP counters of this network namespace, for all programs together (/proc/net/netstat and snmp).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpCounters {
    /// Connections that listeners dropped because their queue was full.
    pub listen_drops: u64,
    /// Retransmitted segments, except segments that the peer reported as duplicates (DSACK, RFC 2883).
    pub retransmits: u64,
}

/// The current counters; `None` if the system does not report them.
pub fn tcp_counters() -> Option<TcpCounters> {
    let (netstat, snmp) = (system_text("/proc/net/netstat")?, system_text("/proc/net/snmp")?);
    tcp_counters_of(&netstat, &snmp)
}

fn tcp_counters_of(netstat: &str, snmp: &str) -> Option<TcpCounters> {
    let again = named(snmp, "Tcp:", "RetransSegs")?;
    let in_vain = named(netstat, "TcpExt:", "TCPDSACKRecv").unwrap_or(0);
    Some(TcpCounters {
        listen_drops: named(netstat, "TcpExt:", "ListenDrops")?,
        retransmits: again.saturating_sub(in_vain),
    })
}

/// Finds a number in a table in which each row has two lines, names and values, with the same first word.
pub(crate) fn named(table: &str, row: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter(|line| line.starts_with(row));
    let place = lines.next()?.split_ascii_whitespace().position(|other| other == name)?;
    lines.next()?.split_ascii_whitespace().nth(place)?.parse().ok()
}

/// Number of local ports that the system uses for connections to one address (ip(7), ip_local_port_range).
pub fn local_ports() -> Option<u32> {
    let text = system_text("/proc/sys/net/ipv4/ip_local_port_range")?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u32>);
    let (first, last) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(last.saturating_sub(first) + 1)
}

/// Counts the connections of this network namespace to `server`, by local address. Includes open connections, and closed
/// connections that keep their port for a minute (TIME-WAIT, RFC 9293 §3.3.2). `None` if the system does not report them, or
/// has fewer than `from` TCP sockets in total. Reading the socket table takes 2 ms per thousand sockets (/proc/net/sockstat and
/// tcp).
pub fn connections_to(server: SocketAddrV4, from: u64) -> Option<HashMap<Ipv4Addr, u64>> {
    if sockets_of(&system_text("/proc/net/sockstat")?)? < from {
        return None;
    }
    Some(connections_of(&system_text("/proc/net/tcp")?, server))
}

/// Number of TCP sockets in use and in TIME-WAIT.
fn sockets_of(sockstat: &str) -> Option<u64> {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let count = |name| {
        let mut words = line.split_ascii_whitespace().skip_while(|word| *word != name);
        words.nth(1)?.parse::<u64>().ok()
    };
    Some(count("inuse")? + count("tw")?)
}

fn connections_of(table: &str, server: SocketAddrV4) -> HashMap<Ipv4Addr, u64> {
    // "0100007F:1F90": the address in memory order, the port as a number.
    let address = |text: &str| {
        let (ip, port) = text.split_once(':')?;
        let ip = u32::from_str_radix(ip, 16).ok()?.to_ne_bytes();
        Some(SocketAddrV4::new(ip.into(), u16::from_str_radix(port, 16).ok()?))
    };
    let mut counts = HashMap::new();
    for line in table.lines() {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let Some((own, other)) = fields.next().and_then(address).zip(fields.next().and_then(address)) else {
            continue;
        };
        if other == server {
            *counts.entry(*own.ip()).or_default() += 1;
        }
    }
    counts
}

/// A signal that the program's main thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGTERM: drain, then stop.
    Terminate,
    /// SIGINT, ^C: drain, then stop.
    Interrupt,
    /// SIGHUP: a server reloads its settings, other programs exit.
    HangUp,
    /// SIGUSR1: reopen the logs.
    User1,
    /// SIGUSR2: hand over to a new process.
    User2,
}

/// The environment of this process, if it usually has a reverse proxy in front: a container or a systemd unit. `None` if
/// neither is detected.
pub fn enclosure() -> Option<&'static str> {
    use std::io::IsTerminal as _;
    let has_variable = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let has_file = |path: &str| system_size(path).is_some();
    enclosure_by(has_variable, has_file, std::io::stderr().is_terminal())
}

/// As [`enclosure`], with the environment, the file system and standard error as arguments.
fn enclosure_by(
    has_variable: impl Fn(&str) -> bool,
    has_file: impl Fn(&str) -> bool,
    on_terminal: bool,
) -> Option<&'static str> {
    // Kubernetes sets variables for its services, systemd-nspawn and Podman set `container`, and the files are Docker's and
    // Podman's.
    let is_container = ["KUBERNETES_SERVICE_HOST", "container"].into_iter().any(&has_variable)
        || ["/.dockerenv", "/run/.containerenv"].into_iter().any(has_file);
    if is_container {
        return Some("a container");
    }
    // A desktop's terminal is a unit as well, and its shells inherit the variables (systemd.exec(5)). But a service has no
    // terminal.
    let is_unit = ["INVOCATION_ID", "JOURNAL_STREAM"].into_iter().any(has_variable);
    (is_unit && !on_terminal).then_some("a systemd unit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enclosure_is_known_by_its_variables_and_files() {
        let of = |known: &[&str], on_terminal| {
            let has = |name: &str| known.contains(&name);
            enclosure_by(has, has, on_terminal)
        };
        assert_eq!(of(&[], false), None);
        assert_eq!(of(&["HOME", "/etc/passwd"], false), None);
        for name in ["container", "KUBERNETES_SERVICE_HOST", "/.dockerenv", "/run/.containerenv"] {
            assert_eq!(of(&[name, "INVOCATION_ID"], true), Some("a container"), "{name}");
        }
        for name in ["INVOCATION_ID", "JOURNAL_STREAM"] {
            assert_eq!(of(&[name], false), Some("a systemd unit"), "{name}");
            assert_eq!(of(&[name], true), None, "a terminal of a desktop inherits {name}");
        }
    }

    /// Other tests of this program open descriptors, too: the two counts must enclose a third.
    #[test]
    #[cfg(target_os = "linux")]
    fn descriptors_are_counted_alike_by_size_and_by_name() {
        let some: Vec<std::fs::File> =
            (0..500).map(|_| std::fs::File::open("/dev/null").expect("null(4) is there")).collect();
        let many = open_descriptors().expect("proc(5) is there");
        let listed = descriptors_listed().expect("proc(5) is there");
        assert!(many >= 500 && listed >= 500 && many.abs_diff(listed) < 100, "{many}, {listed}");
        drop(some);
        let few = open_descriptors().expect("proc(5) is there");
        assert!(few + 400 < many, "{few} of {many}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_table_of_descriptors_has_room_for_what_was_asked_for() {
        raise_descriptor_limit();
        reserve_descriptors(900);
        let status = std::fs::read_to_string("/proc/self/status").expect("proc(5) is there");
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).expect("it is told");
        assert!(size.trim().parse::<u64>().expect("a number") >= 900, "{size}");
    }

    #[test]
    fn a_counter_is_found_by_its_row_and_name() {
        let table = "TcpExt: A B ListenDrops\nTcpExt: 1 2 3\nIpExt: A\nIpExt: 9\n";
        assert_eq!(named(table, "TcpExt:", "ListenDrops"), Some(3));
        assert_eq!(named(table, "IpExt:", "A"), Some(9));
        assert_eq!(named(table, "IpExt:", "B"), None);
        assert_eq!(named("TcpExt: A\n", "TcpExt:", "A"), None);
    }

    #[test]
    fn what_was_sent_again_in_vain_is_no_loss() {
        let netstat = |vain| format!("TcpExt: ListenDrops TCPDSACKRecv\nTcpExt: 3 {vain}\n");
        let snmp = "Tcp: OutSegs RetransSegs\nTcp: 100 7\n";
        for (vain, retransmits) in [(0, 7), (5, 2), (9, 0)] {
            let counted = TcpCounters { listen_drops: 3, retransmits };
            assert_eq!(tcp_counters_of(&netstat(vain), snmp), Some(counted));
        }
        let old = tcp_counters_of("TcpExt: ListenDrops\nTcpExt: 3\n", snmp);
        assert_eq!(old, Some(TcpCounters { listen_drops: 3, retransmits: 7 }));
    }

    #[test]
    fn connections_to_a_server_are_counted_by_where_they_come_from() {
        let one = |own: &str, other: &str, state: &str| {
            let [own, other] = [own, other].map(|address| {
                let address: SocketAddrV4 = address.parse().expect("an address");
                format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
            });
            format!(
                "   1: {own} {other} {state} 00000000:00000000 00:00000000 00000000     0        0 7 1 0 20\n"
            )
        };
        let table = [
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n".into(),
            one("127.0.0.1:8080", "0.0.0.0:0", "0A"),
            one("127.0.0.1:40000", "127.0.0.1:8080", "06"),
            one("127.0.0.1:40002", "127.0.0.1:8080", "01"),
            one("127.0.0.2:40002", "127.0.0.1:8080", "01"),
            one("127.0.0.1:8080", "127.0.0.1:40002", "01"),
            one("127.0.0.1:40004", "127.0.0.1:8081", "01"),
            "   7: 0100007F:9C46".into(),
        ];
        let counts = connections_of(&table.concat(), "127.0.0.1:8080".parse().expect("an address"));
        assert_eq!(counts, HashMap::from([(Ipv4Addr::LOCALHOST, 2), (Ipv4Addr::new(127, 0, 0, 2), 1)]));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_system_tells_of_connections() {
        // At 127.0.0.1 the port may be that of an ended server, whose connections are still known.
        let listener = std::net::TcpListener::bind("127.83.0.1:0").expect("a port");
        let std::net::SocketAddr::V4(server) = listener.local_addr().expect("it has one") else {
            unreachable!("bound to an address of IPv4")
        };
        assert_eq!(connections_to(server, 0), Some(HashMap::new()));
        let held: Vec<_> =
            (0..3).map(|_| std::net::TcpStream::connect(server).expect("it listens")).collect();
        assert_eq!(connections_to(server, 0), Some(HashMap::from([(Ipv4Addr::LOCALHOST, 3)])));
        assert_eq!(connections_to(server, u64::MAX), None);
        drop(held);
    }

    #[test]
    fn sockets_in_use_and_those_that_have_ended_take_ports() {
        let sockstat = "sockets: used 9\nTCP: inuse 3 orphan 0 tw 40 alloc 5 mem 1\nUDP: inuse 7 mem 0\n";
        assert_eq!(sockets_of(sockstat), Some(43));
        assert_eq!(sockets_of("TCP: inuse 3 orphan 0\n"), None);
    }

    #[test]
    fn what_a_quota_has_taken_is_a_share_of_its_periods() {
        let stat = "usage_usec 9\nnr_periods 22\nnr_throttled 11\nthrottled_usec 30\n";
        assert_eq!((field(stat, "nr_periods"), field(stat, "nr_throttled")), (Some(22), Some(11)));
        for stat in ["", "nr_periods", "nr_periods x", "nr_periodsx 2", "xnr_periods 2"] {
            assert_eq!(field(stat, "nr_periods"), None, "{stat}");
        }
        let [before, after] = [(2, 1), (22, 11)].map(|(all, used_up)| QuotaPeriods { all, used_up });
        assert_eq!((after.share_since(before), before.share_since(after)), (0.5, 0.0));
        assert_eq!(quota_periods(Some(u32::MAX)), QuotaPeriods::default(), "there is no such process");
    }

    #[test]
    fn a_process_may_have_any_name() {
        let stat = "7 (a) R (b) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 1 0 99 8192 1";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(cpu_ticks("7 (a) S 1"), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_disappeared_terminal_is_not_a_bad_disk() {
        use std::io::{Read as _, Write as _};
        let (terminal, mut slave) = pseudo_terminal().expect("a pseudo-terminal");
        drop(terminal);
        assert_eq!(slave.read(&mut [0; 8]).expect("end of file"), 0);
        let error = slave.write(b"x").expect_err("nobody sees it");
        assert!(is_lost_terminal(&error, &slave), "{error}");
        let file = std::fs::File::open("/proc/self/exe")
            .or_else(|_| std::fs::File::open("/bin/sh"))
            .expect("a file");
        assert!(!is_lost_terminal(&error, &file));
        assert!(!is_lost_terminal(&std::io::ErrorKind::BrokenPipe.into(), &slave));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn children_inherit_no_ignored_signal() {
        // SIGPIPE is 13, SIGXFSZ 25.
        const BITS: u64 = 1 << 12 | 1 << 24;
        let ignored = |status: &str, name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("proc(5) has it");
            u64::from_str_radix(line.trim(), 16).expect("hexadecimal") & BITS
        };
        let child = std::thread::spawn(|| {
            let _blocked_here_alone = Signals::block();
            std::process::Command::new("cat").arg("/proc/self/status").output().expect("cat(1)")
        });
        let child = String::from_utf8(child.join().expect("no panic").stdout).expect("text");
        let own = std::fs::read_to_string("/proc/self/status").expect("proc(5) is there");
        assert_eq!((ignored(&own, "SigIgn:"), ignored(&own, "SigCgt:")), (1 << 12, 1 << 24));
        assert_eq!((ignored(&child, "SigIgn:"), ignored(&child, "SigBlk:")), (0, 0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn children_are_looked_at_with_their_parent() {
        let own = process_usage(std::process::id()).expect("this process runs");
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read line"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let both = process_usage(std::process::id()).expect("this process runs");
        let there = both.threads.iter().any(|thread| thread.number == child.id());
        drop(child.stdin.take());
        child.wait().expect("it ends with its input");
        assert!(there && !own.threads.iter().any(|thread| thread.number == child.id()), "{both:?}");
        assert_eq!(process_usage(u32::MAX), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_system_tells_of_threads_and_of_tcp() {
        let before = thread_times().expect("Linux has schedstat");
        let mut busy = 0u64;
        while thread_times().is_some_and(|now| now.run_ns == before.run_ns) {
            busy += 1;
        }
        assert!(thread_times().is_some_and(|now| now.run_ns > before.run_ns), "after {busy} looks");
        assert!(tcp_counters().is_some() && local_ports().is_some_and(|ports| ports > 1_000));
    }
}
