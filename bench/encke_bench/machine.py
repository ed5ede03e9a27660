"""The machine: two cores, processes in sessions of their own, and counters of the kernel.

Why sessions: with autogroup scheduling the kernel shares a core between *sessions*, whatever their nice value. A compiler in
another terminal takes half of the server's core unless the server has a session of its own with a raised autogroup (sched(7)).
Without that, figures measure other programs; so every result says whether it was done.

    Process: started ──► listening ──► stopped (TERM, after five seconds KILL), always by its own id
"""

import ctypes
import os
import resource
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# The descriptor limit of every server and generator: 18,064 connections and some more. The floor's table ends at 20,480, so a
# larger inherited limit is lowered.
DESCRIPTORS = 20_000
AUTOGROUP_NICE = -19
START_SECONDS = 20.0  # with valgrind, a server takes three to start
STOP_SECONDS = 5.0
STOP_STEP = 0.01
LAST_WORDS_MAX = 200
PR_SET_PDEATHSIG = 1
REALTIME_PRIORITY = 10
TCP_LISTEN = "0A"

# Servers and generators have priority over all other processes (SCHED_FIFO of sched(7), as root). On a shared machine this is
# the only way to measure wake-up latencies.
realtime = False

_libc = ctypes.CDLL(None, use_errno=True)


class Trouble(Exception):
    """An error that the reader can fix; the text says how."""


@dataclass(frozen=True)
class Cores:
    """The core of the server and that of the generator; if possible not two threads of one core."""

    server: int
    generator: int


def cores() -> Cores:
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise Trouble(f"the bench needs two cores, one for the server, one for the generator; this process may use {allowed}")
    siblings = _siblings(allowed[0])
    apart = [core for core in allowed[1:] if core not in siblings]
    return Cores(server=allowed[0], generator=(apart or allowed[1:])[0])


def _siblings(core: int) -> set[int]:
    """The hardware threads that share a core with this one."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
    except OSError:
        return {core}
    threads: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        threads.update(range(int(first), int(last or first) + 1))
    return threads


@dataclass(frozen=True)
class Cpu:
    """CPU time of a process so far: nanoseconds by thread, so that an ended thread does not count backwards."""

    run_ns: dict[str, int]
    wait_ns: dict[str, int]

    def since(self, earlier: "Cpu") -> tuple[int, int]:
        """Returns (nanoseconds running, nanoseconds waiting for the core) between two readings."""
        ran = sum(ns - earlier.run_ns.get(thread, 0) for thread, ns in self.run_ns.items())
        waited = sum(ns - earlier.wait_ns.get(thread, 0) for thread, ns in self.wait_ns.items())
        return ran, waited


def cpu(pid: int) -> Cpu:
    """Reads /proc/PID/task/*/schedstat: every thread, kernel workers of io_uring included (proc(5))."""
    run: dict[str, int] = {}
    wait: dict[str, int] = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            ran, waited, _ = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()
        except OSError:
            continue  # the thread has ended meanwhile
        run[thread], wait[thread] = int(ran), int(waited)
    return Cpu(run, wait)


def rss_bytes(pid: int) -> int:
    return _rollup_bytes(pid, "Rss:")


def dirty_bytes(pid: int) -> int:
    """Bytes of pages that the process has written: its heap and stacks, but not its program."""
    return _rollup_bytes(pid, "Private_Dirty:", "Shared_Dirty:")


def _rollup_bytes(pid: int, *names: str) -> int:
    """The sum of these lines of smaps_rollup (proc(5))."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith(names)]
    if len(found) != len(names):
        raise Trouble(f"/proc/{pid}/smaps_rollup has no line {' or '.join(names)}")
    return sum(found)


def stolen_seconds(core: int) -> float:
    """Seconds of this core that the hypervisor has given to others (proc(5), "steal")."""
    for line in Path("/proc/stat").read_text().splitlines():
        fields = line.split()
        if fields[0] == f"cpu{core}":
            return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    raise Trouble(f"/proc/stat has no core {core}")


class Process:
    """A child in a session of its own, on one core, with a raised autogroup; it dies with the bench."""

    def __init__(self, name: str, argv: list[str], core: int, log: Path, *, stdin=subprocess.DEVNULL,
                 stdout=subprocess.DEVNULL, stderr: int | None = None):
        self.name = name
        self.log = log
        try:
            with log.open("wb") as errors:
                self._child = subprocess.Popen(
                    argv, stdin=stdin, stdout=stdout, stderr=errors if stderr is None else stderr,
                    start_new_session=True,
                    preexec_fn=lambda: _enter(core))
        except FileNotFoundError:
            raise Trouble(f"{name}: {argv[0]} not found") from None
        except subprocess.SubprocessError:
            raise Trouble(f"{name}: could not get {DESCRIPTORS} descriptors on core {core}; run as root, or raise "
                          f"the hard limit (ulimit -Hn) to {DESCRIPTORS}") from None
        self.autogroup_raised = raise_autogroup(self._child.pid)

    @property
    def root_pid(self) -> int:
        return self._child.pid

    @property
    def stdin(self):
        return self._child.stdin

    @property
    def stdout(self):
        return self._child.stdout

    def wait_listening(self, port: int) -> None:
        """Returns once something listens on the port, according to the kernel's table, without a connection."""
        deadline = time.monotonic() + START_SECONDS
        while self._child.poll() is None and not listening(port, self.root_pid):
            if time.monotonic() > deadline:
                raise Trouble(f"{self.name} did not listen on port {port} within {START_SECONDS:.0f} s"
                              f"{self.last_words()}")
            time.sleep(0.01)
        if self._child.poll() is not None:
            raise Trouble(f"{self.name} exited with status {self._child.returncode} before listening{self.last_words()}")

    def output(self, seconds: float, ends: tuple[int, ...] = (0,)) -> str:
        """Returns the output of the child until it ends, which must be in time and with one of these statuses."""
        try:
            out, _ = self._child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise Trouble(f"{self.name} did not exit within {seconds:.0f} s{self.last_words()}") from None
        if self._child.returncode not in ends:
            raise Trouble(f"{self.name} exited with status {self._child.returncode}{self.last_words()}")
        return (out or b"").decode(errors="replace")

    def runs(self) -> bool:
        """Whether the process is running."""
        return self._child.poll() is None

    def only_child(self) -> int:
        """Returns the process that this one traces."""
        children = self._children()
        if len(children) != 1:
            raise Trouble(f"{self.name}: its tracer has {len(children)} children instead of one{self.last_words()}")
        return children[0]

    def stop(self, traced: bool = False) -> None:
        """Ends the child by TERM, and if necessary by KILL. A tracer ends by itself after its children, and only then writes its
        counts."""
        deadline = time.monotonic() + STOP_SECONDS
        asked: set[int] = set()
        while self._child.poll() is None:
            for pid in set(self._children() if traced else [self._child.pid]) - asked:
                _signal(pid, signal.SIGTERM)
                asked.add(pid)
            if time.monotonic() > deadline:
                for pid in [*self._children(), self._child.pid]:
                    _signal(pid, signal.SIGKILL)
                self._child.wait()
            time.sleep(STOP_STEP)
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe:
                with suppress(BrokenPipeError):  # the process has ended and reads nothing
                    pipe.close()

    def _children(self) -> list[int]:
        pid = self._child.pid
        try:
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            return []  # the process has just ended

    def last_words(self) -> str:
        """Returns the end of the child's standard error, for an error text."""
        return last_words(self.log.read_text(errors="replace"))


def last_words(text: str) -> str:
    lines = text.strip().splitlines()
    return f": {lines[-1].strip()[-LAST_WORDS_MAX:]}" if lines else ""


def _enter(core: int) -> None:
    """Runs in the child between fork and exec."""
    # As under systemd: a client that disconnects during a sendfile(2) must not end the floor.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.sched_setaffinity(0, {core})
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    if realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def raise_autogroup(pid: int | str, nice: int = AUTOGROUP_NICE) -> bool:
    """Returns true if the kernel has no autogroups, or this one now has the nice value."""
    try:
        if Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() == "0":
            return True
    except FileNotFoundError:
        return True
    try:
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
        return True
    except OSError:
        return False


@contextmanager
def own_session_raised() -> Iterator[bool]:
    """Raises the session of the bench, which is a client itself where single responses are timed. The session is the user's, so
    its value is restored."""
    try:
        before = int(Path("/proc/self/autogroup").read_text().split()[-1])  # "/autogroup-7 nice 0"
    except (OSError, ValueError, IndexError):
        before = 0
    try:
        yield raise_autogroup("self")
    finally:
        raise_autogroup("self", before)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def ask(process: Process, line: str, seconds: float) -> bytes:
    """Writes a line to a child. Returns the next line of its output, or nothing if it has ended or is silent for too long."""
    with suppress(BrokenPipeError):  # the process has ended, and so has its output
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()
    return read_line(process.stdout, seconds)


def read_line(pipe: IO[bytes], seconds: float) -> bytes:
    """Returns the next line of a child's output, or nothing if it has ended or is silent for too long."""
    ready, _, _ = select.select([pipe], [], [], seconds)
    return pipe.readline() if ready else b""


def listening(port: int, pid: int | str = "self") -> bool:
    """Whether a socket in that process's network namespace listens on the port."""
    local = f":{port:04X}"
    try:
        table = Path(f"/proc/{pid}/net/tcp").read_text()
    except OSError:
        return False  # the process has just ended
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[3] == TCP_LISTEN and fields[1].endswith(local):
            return True
    return False


_ports = iter(range(17_100, 32_000))  # below the range of client ports


def free_port() -> int:
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise Trouble("no free port between 17100 and 32000")


def description() -> list[tuple[str, str]]:
    """Returns lines (name, value) that describe the machine."""
    model = _field("/proc/cpuinfo", "model name") or "unknown processor"
    memory = int((_field("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) // (1 << 20)
    system = os.uname()
    return [
        ("machine", f"{os.cpu_count()} × {model}, {memory} GiB"),
        ("kernel", f"{system.sysname} {system.release} {system.machine}"),
        ("load average before", " ".join(Path("/proc/loadavg").read_text().split()[:3])),
    ]


def _field(path: str, name: str) -> str | None:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None
