"""Figures that are counted, not timed: user instructions and system calls per request, and system calls of an idle server. Other
load on the machine does not affect counts.

A count per request is the difference between a long and a short run of the same server, divided by the difference in requests,
so that start-up, connections and shut-down cancel out.
"""

import functools
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from .figures import Bar, Section, judge
from .generators import BROWSER_FIELDS, h2load
from .machine import Trouble, last_words
from .report import Progress
from .servers import HELLO, KIB16, Bench, Encke, Resource, Running, Server, located

INSTRUCTION_RUNS = (200, 2_200)
CALL_RUNS = (2_000, 12_000)
IDLE_SECONDS = 10

PLAIN_BAR = Bar(1_500, "user instructions, 70 B of fields")
BROWSER_BAR = Bar(4_000, "user instructions, 650 B of fields")
EPOLL_CALLS_BAR = Bar(2.1, "system calls per request, 13 B")
URING_CALLS_BAR = Bar(0.2, "system calls per request, 13 B")
FILE_CALLS_BAR = Bar(4, "system calls per request, 16 KiB")
IDLE_BAR = Bar(1, "system calls per second")


def instructions_seconds(bench: Bench) -> float:
    return 11 * sum(server.callgrind for server in bench.servers_for("instructions"))


def instructions(bench: Bench, progress: Progress) -> Section:
    browser_bytes = sum(len(name) + len(value) + 4 for name, value in BROWSER_FIELDS)
    section = Section("instructions", "user instructions per request, 13 bytes",
                      f"callgrind, h2load --h1 -c 1, difference between {INSTRUCTION_RUNS[0]:,} and "
                      f"{INSTRUCTION_RUNS[1]:,} requests; a browser's fields add {browser_bytes} B",
                      ["server", "70 B of fields", "a browser's fields"])
    for server in bench.servers_for("instructions"):
        if not server.callgrind:
            section.rows.append([server.name, "not known", "not known"])
            section.notes.append(f"{server.name}: valgrind does not support io_uring")
            continue
        row = [server.name]
        for bar, fields in ((PLAIN_BAR, ()), (BROWSER_BAR, BROWSER_FIELDS)):
            progress.step(f"instructions: {server.name}, {bar.what}")
            bars = server.barred(bar)
            try:
                value = round(_instructions(bench, server, fields))
            except (Trouble, OSError) as trouble:
                section.failed(server.name, trouble, bars)
                row.append("failed")
                continue
            row.append(f"{value:,}")
            section.verdicts += [judge(section.title, server.name, bar, value) for bar in bars]
        section.rows.append(row)
    return section


def _instructions(bench: Bench, server: Server, fields: tuple) -> float:
    """User instructions per request: callgrind's sum over all threads."""
    under = (located("valgrind", "valgrind"), "--tool=callgrind", "--callgrind-out-file=@STATE@/callgrind.out")
    totals = []
    for requests in INSTRUCTION_RUNS:
        with bench.running(server, HELLO, under=under) as run:
            h2load(bench, run, requests, 1, fields)
        totals.append(read_callgrind(run.process.log.read_text(errors="replace")))
    return (totals[1] - totals[0]) / (INSTRUCTION_RUNS[1] - INSTRUCTION_RUNS[0])


def read_callgrind(text: str) -> int:
    found = re.search(r"Collected : (\d+)", text)
    if found is None:
        raise Trouble(f"callgrind printed no total (did the server exit on SIGTERM?){last_words(text)}")
    return int(found[1])


def calls_seconds(bench: Bench) -> float:
    return 6 * len(bench.servers_for("calls"))


def calls(bench: Bench, progress: Progress) -> Section:
    section = Section("calls", "system calls per request, c = 64",
                      f"strace -f -c, h2load --h1 -c 64, difference between {CALL_RUNS[0]:,} and {CALL_RUNS[1]:,} requests",
                      ["server", "13 B", "which", "16 KiB", "which"])
    for server in bench.servers_for("calls"):
        row = [server.name]
        for resource in (HELLO, KIB16):
            progress.step(f"calls: {server.name}, {resource.name}")
            bars = _calls_bars(server, resource)
            try:
                by_name = calls_per_request(bench, CALL_RUNS, 64, functools.partial(bench.running, server, resource))
            except (Trouble, OSError) as trouble:
                section.failed(server.name, trouble, bars)
                row += ["failed", ""]
                continue
            total = round(sum(by_name.values()), 2)
            row += [f"{total:.2f}", spelled(by_name)]
            section.verdicts += [judge(section.title, server.name, bar, total) for bar in bars]
        section.rows.append(row)
    return section


def _calls_bars(server: Server, resource: Resource) -> tuple[Bar, ...]:
    if not isinstance(server, Encke):
        return ()
    if resource is KIB16:
        return (FILE_CALLS_BAR,)
    if server.backend == "poll":
        return ()  # it has no bar
    return (URING_CALLS_BAR if server.backend == "uring" else EPOLL_CALLS_BAR,)


def calls_per_request(bench: Bench, runs: tuple[int, int], connections: int,
                      running: Callable[..., AbstractContextManager[Running]]) -> dict[str, float]:
    """System calls per request by name, most frequent first. `running` starts the server as `Bench.running` does."""
    under = (located("strace", "strace"), "-f", "-c", "-o", "@STATE@/calls")
    counted = []
    for requests in runs:
        with running(under=under, traced=True) as run:
            h2load(bench, run, requests, connections)
        counted.append(read_strace_summary((run.process.log.parent / "calls").read_text()))
    short, long = counted
    by_name = {name: (count - short.get(name, 0)) / (runs[1] - runs[0]) for name, count in long.items()}
    return dict(sorted(by_name.items(), key=lambda item: -item[1]))


def spelled(by_name: dict[str, float]) -> str:
    return " ".join(f"{name} {count:.2f}" for name, count in by_name.items() if count >= 0.005)


def read_strace_summary(text: str) -> dict[str, int]:
    """Calls by name from the table of `strace -c`: share, seconds, µs per call, calls, optional errors, name."""
    calls_by_name = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) in (5, 6) and fields[3].isdigit() and fields[-1] != "total":
            calls_by_name[fields[-1]] = int(fields[3])
    if not calls_by_name:
        raise Trouble("strace wrote no table")
    return calls_by_name


def idle_seconds(bench: Bench) -> float:
    return IDLE_SECONDS + 2 + 0.5 * len(bench.servers_for("idle"))


def idle(bench: Bench, progress: Progress) -> Section:
    section = Section("idle", "an idle server, system calls per second",
                      f"strace -f -ttt for {IDLE_SECONDS} s without connections; all threads together",
                      ["server", "system calls per second"])
    under = (located("strace", "strace"), "-f", "-ttt", "-o", "@STATE@/trace")
    started = []
    with ExitStack() as stack:
        for server in bench.servers_for("idle"):
            try:
                started.append(stack.enter_context(bench.running(server, HELLO, under=under, traced=True)))
            except Trouble as trouble:
                section.failed(server.name, trouble, server.barred(IDLE_BAR), [server.name])
        progress.step("idle")
        time.sleep(1)
        start = time.time()
        time.sleep(IDLE_SECONDS)
        end = start + IDLE_SECONDS
    for run in started:
        times = read_strace_times((run.process.log.parent / "trace").read_text(errors="replace"))
        rate = sum(start <= moment < end for moment in times) / IDLE_SECONDS
        section.rows.append([run.server.name, f"{rate:.1f}"])
        if isinstance(run.server, Encke):
            section.verdicts.append(judge(section.title, run.server.name, IDLE_BAR, rate))
    return section


def read_strace_times(text: str) -> list[float]:
    """Start times of the calls. The second half of a call that the log interrupts is not another call."""
    return [float(moment) for moment in re.findall(r"^(?:\d+\s+)?(\d+\.\d+) \w+\(", text, re.MULTILINE)]

