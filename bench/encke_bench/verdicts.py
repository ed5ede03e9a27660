"""Verdicts of `encke load` on the bottleneck, in staged cases where it is known.

    a server with a fault ─┐
    a load, and actions    ├─► its verdict: the kind, and a word that it or its remarks must contain
    on either side ────────┘

Every case uses real processes and sockets. Some need privileges (a network namespace, a cgroup); without them, the case is
reported as not staged.
"""

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from .figures import Bar, Section, judge
from .machine import Process, Trouble, free_port
from .report import Progress
from .servers import HELLO, Bench

RIGHT_BAR = Bar(0, "cases with a wrong verdict")
RUN_SECONDS = 2
GRACE_SECONDS = 30
QUOTA_SHARE = 0.2
PERIOD_US = 100_000
CGROUPS = Path("/sys/fs/cgroup")
LINK = "ip link set lo mtu 1500 && tc qdisc add dev lo root tbf rate 20mbit burst 16kb latency 2ms"


@dataclass(frozen=True)
class Case:
    """A staged case, and its expected verdict."""

    name: str
    limits: tuple[str, ...]
    said: str
    load: tuple[str, ...]
    moods: tuple[str, ...] | None = None  # options of moody.py; None: nginx
    watched: bool = False
    around: "Callable[[Bench, Process, Process], object] | None" = None
    world: str = "true"  # a shell command in the network namespace of both, before they start


def _hogs(of: str, count: int = 3) -> Callable:
    """Processes that compete for the core of one side all the time; they are in that side's session, with its priority."""

    @contextmanager
    def around(bench: Bench, server: Process, load: Process) -> Iterator[None]:
        core, side = (bench.cores.server, server) if of == "server" else (bench.cores.generator, load)

        def enter() -> None:
            os.sched_setaffinity(0, {core})
            # The scheduler shares the core between autogroups.
            Path("/proc/self/autogroup").write_text(Path(f"/proc/{side.root_pid}/autogroup").read_text().split()[-1])

        hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=enter, start_new_session=True)
                for _ in range(count)]
        try:
            yield
        finally:
            for hog in hogs:
                hog.kill()
                hog.wait()

    return around


def _stopped(of: str) -> Callable:
    """Stops one side by a signal for half a second, in the middle of the run."""

    @contextmanager
    def around(_: Bench, server: Process, load: Process) -> Iterator[None]:
        time.sleep(RUN_SECONDS / 2)
        pid = (server if of == "server" else load).root_pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(pid, signal.SIGCONT)
        yield

    return around


@contextmanager
def _ended(_: Bench, server: Process, __: Process) -> Iterator[None]:
    time.sleep(RUN_SECONDS / 2)
    server.stop()
    yield


@contextmanager
def _few_descriptors(_: Bench, __: Process, load: Process) -> Iterator[None]:
    """Lowers the descriptor limit after the start."""
    time.sleep(RUN_SECONDS / 4)
    resource.prlimit(load.root_pid, resource.RLIMIT_NOFILE, (20, 20))
    yield


def _quota(of: str) -> Callable:
    """Limits one side to a fifth of a processor, by a cgroup (version 1 or 2)."""

    @contextmanager
    def around(_: Bench, server: Process, load: Process) -> Iterator[None]:
        one = (CGROUPS / "cpu").is_dir()
        group = (CGROUPS / "cpu" if one else CGROUPS) / f"encke-bench-{os.getpid()}"
        try:
            group.mkdir()
            quota = int(PERIOD_US * QUOTA_SHARE)
            if one:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
            (group / "cgroup.procs").write_text(str((server if of == "server" else load).root_pid))
        except OSError as error:
            raise NotStaged(f"a CPU quota: {error}") from None
        try:
            yield
        finally:
            for process in (load, server):
                if process.runs():
                    (group.parent / "cgroup.procs").write_text(str(process.root_pid))
            group.rmdir()

    return around


class NotStaged(Exception):
    """The requirements of a case are not available."""


HEAVY = ("--spin-us", "1000")
SLOW = ("--delay-ms", "20")
FROZEN = ("--freeze-ms", "300")

CASES = (
    Case("one thread of the server computes", ("server",), "The server was the bottleneck", ("-c", "16"), HEAVY, True),
    Case("as before, unwatched", ("server",), "or the number of connections", ("-c", "16"), HEAVY),
    Case("the server waits for others, few connections", ("connections",), "A higher -c", ("-c", "4"), SLOW, True),
    Case("a fast server, a body to be checked by its digest", ("generator",), "(-t 2)",
         ("-c", "32", "--expect-body", "@DIGEST@"), ("--body", "2000000"), True),
    Case("a rate, and a body that takes longer to be checked", ("generator",), "(-t 2)",
         ("-c", "32", "-r", "5000", "--expect-body", "@DIGEST@"), ("--body", "2000000"), True),
    Case("others on the generator's core", ("starved",), "other processes used its processor", ("-c", "64"),
         around=_hogs("load")),
    Case("others on the generator's core, a rate", ("starved",), "other processes used its processor", ("-c", "16", "-r", "2000"),
         around=_hogs("load", 8)),
    Case("others on the server's core", ("server_starved",), "other processes used its processor", ("-c", "16"), HEAVY, True,
         _hogs("server")),
    Case("a quota on the generator", ("starved",), "its CPU quota was used up", ("-c", "64"), around=_quota("load")),
    Case("a quota on the server", ("server_starved",), "its CPU quota was used up", ("-c", "16"), HEAVY, True,
         _quota("server")),
    Case("a rate that is kept", ("kept",), "The schedule was kept", ("-c", "32", "-r", "500")),
    Case("a rate that the server cannot keep", ("behind",), "slower than the rate: its busiest thread",
         ("-c", "16", "-r", "3000"), HEAVY, True),
    Case("a rate, and too few connections for it", ("behind",), "-c is too small", ("-c", "2", "-r", "1000"), SLOW, True),
    Case("a rate, and a server that freezes", ("behind",), "waited for a free connection", ("-c", "8", "-r", "500"),
         FROZEN),
    Case("a rate, and a server that is stopped for half a second", ("behind",), "waited for a free connection",
         ("-c", "8", "-r", "500"), SLOW, around=_stopped("server")),
    Case("a rate, and a generator that is stopped for half a second", ("generator",), "did not keep the schedule",
         ("-c", "512", "-r", "500"), around=_stopped("load")),
    Case("ten local ports", ("generator",), "no local port is left", ("-c", "64", "--source", "127.0.0.1"), SLOW,
         world="echo 50000 50009 > /proc/sys/net/ipv4/ip_local_port_range"),
    Case("a slow link that drops", ("connections",), "The network was the bottleneck", ("-c", "16"), ("--body", "30000"), True,
         world=LINK),
    Case("a listener with a queue of one", ("server",), "because a queue was full", ("-c", "128", "--no-keepalive"),
         ("--delay-ms", "1", "--backlog", "1")),
    Case("descriptors that are taken away", ("generator",), "descriptors", ("-c", "32", "--no-keepalive"), SLOW,
         around=_few_descriptors),
    Case("a tenth of a second", ("too_short",), "Too short", ("-c", "4", "-d", "100ms")),
    Case("a server that ends in the middle", ("server",), "the connection was refused", ("-c", "16"), SLOW,
         around=_ended),
)


def _digest(case: Case) -> str:
    """The SHA-256 of the body that moody.py sends."""
    moods = case.moods or ()
    size = int(moods[moods.index("--body") + 1]) if "--body" in moods else 13
    return "sha256:" + hashlib.sha256(b"." * size).hexdigest()


def seconds_of(bench: Bench) -> float:
    return len(CASES) * (RUN_SECONDS + 1.0)


def measure(bench: Bench, progress: Progress) -> Section:
    section = Section("load-verdict", "verdicts on the bottleneck",
                      f"{len(CASES)} staged cases, {RUN_SECONDS} s each; a verdict is right if it is of the expected kind "
                      "and gives the reason", ["case", "expected", "verdict", ""])
    wrong = 0
    for number, case in enumerate(CASES, 1):
        progress.step(f"load-verdict: {number} of {len(CASES)}, {case.name}")
        try:
            limit, text = _judged(bench, case)
        except NotStaged as lack:
            section.rows.append([case.name, "/".join(case.limits), "–", f"not staged: {lack}"])
            continue
        right = limit in case.limits and case.said in text
        wrong += not right
        section.rows.append([case.name, "/".join(case.limits), limit, "right" if right else f"WRONG: {text}"])
    section.verdicts.append(judge(section.title, "encke load", RIGHT_BAR, wrong))
    return section


def _judged(bench: Bench, case: Case) -> tuple[str, str]:
    """Returns (the kind of verdict, its text with its remarks and errors)."""
    with _serving(bench, case) as (server, port):
        url = f"http://127.0.0.1:{port}/"
        options = [option.replace("@DIGEST@", _digest(case)) for option in case.load]
        if "-d" not in options:
            options += ["-d", f"{RUN_SECONDS}s"]
        argv = [str(bench.programs.encke), "load", "--json", *options, url]
        if case.watched:
            argv[2:2] = ["--watch", str(server.root_pid)]
        if case.moods is not None:
            argv = ["nsenter", "-t", str(server.root_pid), "-n", *argv]
        told = bench.new_state("verdict") / "stdout"
        with told.open("wb") as out:
            load = bench.generator("encke load", argv, stdout=out)
        try:
            with case.around(bench, server, load) if case.around else nullcontext():
                load.output(RUN_SECONDS + GRACE_SECONDS, ends=(0, 1, 4))
        finally:
            load.stop()
    try:
        said = json.loads(told.read_text())
    except json.JSONDecodeError:
        raise Trouble(f"{case.name}: encke load printed no result{load.last_words()}") from None
    verdict = said["verdict"]
    errors = json.dumps(said.get("errors", []), ensure_ascii=False)
    return verdict["limit"], " ".join([verdict["text"], *verdict["remarks"], errors])


@contextmanager
def _serving(bench: Bench, case: Case) -> Iterator[tuple[Process, int]]:
    if case.moods is None:
        nginx = next((server for server in bench.servers if server.name == "nginx"), None)
        if nginx is None:
            raise Trouble("verdicts are staged with nginx: name it with --servers")
        with bench.running(nginx, HELLO) as run:
            yield run.process, run.port
        return
    port = free_port()
    state = bench.new_state("moody")
    argv = [sys.executable, str(Path(__file__).parent / "moody.py"), str(port), *case.moods]
    # A separate network namespace, so that its TCP counters belong to this case alone.
    if os.geteuid() != 0:
        raise NotStaged("a network namespace needs root")
    argv = ["unshare", "-n", "sh", "-c", f"ip link set lo up && {case.world} && exec \"$@\"", "sh", *argv]
    server = Process("moody", argv, bench.cores.server, state / "stderr")
    try:
        server.wait_listening(port)
        yield server, port
    finally:
        server.stop()
