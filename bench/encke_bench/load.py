"""Load generators against one server: cost of a request for the generator, and of a connection that it holds.

    for each round:  generators in a new random order
        for each generator:  load nginx for three seconds ─► its own CPU time, by wait4(2), and the responses it counted

The server is nginx with one process and `return 200`, on a core of its own: the figures describe the generators.
"""

import fcntl
import json
import os
import pty
import resource
import statistics
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .figures import Bar, Section, judge, number, paired
from .generators import GRACE_SECONDS, LUA, read_ab, read_h2load, read_wrk
from .machine import Trouble, rss_bytes
from .report import Progress
from .servers import HELLO, LOAD, Bench, Running, located

CONNECTIONS = 64
DEPTH = 16
HELD = 10_000
FEW = 16
BASE = "wrk"
SETUP_SECONDS = 0.2
RUN_SECONDS = 3  # at least: start and end of a run take some 13 ms of CPU, which must stay below 1 %
AB_REQUESTS_MAX = 1_000_000
# 4: "the generator was the bottleneck", which is intended here.
ENDS = (0, 4)
ENCKE_BACKENDS = ("epoll-edge", "uring")


@dataclass(frozen=True, eq=False)
class Generator:
    """A load generator. Without `argv` for a kind of load it takes no part in that."""

    name: str
    read: Callable[[str], int]
    argv: dict[str, Callable[[Bench, Running, int], list[str]]]

    @property
    def is_ours(self) -> bool:
        return self.name.startswith("encke")


@dataclass(frozen=True)
class Kind:
    name: str
    title: str
    how: str
    bars: tuple[Bar, ...]


@dataclass
class Spent:
    """One run of a generator: CPU microseconds per request, in its own code and in the kernel."""

    user_us: list[float] = field(default_factory=list)
    total_us: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)


USER_BAR = Bar(1.2, "user µs per request")

KINDS = (
    Kind("load-keepalive", f"kept connections, c = {CONNECTIONS}",
         f"13 bytes, one thread, {RUN_SECONDS} s a run; encke uses uring unless configured otherwise",
         (Bar(1.0, "CPU ÷ wrk", BASE), USER_BAR)),
    Kind("load-connect", f"a new connection per request, c = {CONNECTIONS}",
         f"13 bytes, one thread, {RUN_SECONDS} s a run; wrk with Connection: close, ab with HTTP/1.0; encke uses uring "
         "unless configured otherwise", (Bar(0.8, "CPU ÷ wrk", BASE),)),
    Kind("load-pipelined", f"{DEPTH} pipelined, c = {CONNECTIONS}",
         f"13 bytes, one thread, {RUN_SECONDS} s a run; encke uses uring unless configured otherwise",
         (Bar(0.85, "CPU ÷ wrk", BASE),)),
)


def _wrk(*extra: str, script: str = "report.lua") -> Callable[[Bench, Running, int], list[str]]:
    return lambda bench, run, seconds: [located("wrk", "wrk"), "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", *extra,
                                        "-s", str(LUA / script), run.url]


def _ab(*extra: str) -> Callable[[Bench, Running, int], list[str]]:
    return lambda bench, run, seconds: [located("ab", "apache2-utils"), "-q", *extra, "-t", str(seconds),
                                        "-n", str(AB_REQUESTS_MAX), "-c", str(CONNECTIONS), run.url]


def _h2load(streams: int) -> Callable[[Bench, Running, int], list[str]]:
    return lambda bench, run, seconds: [located("h2load", "nghttp2-client"), "--h1", "-t1", f"-c{CONNECTIONS}",
                                        f"-m{streams}", "-D", str(seconds), run.url]


def _encke(backend: str, *extra: str) -> Callable[[Bench, Running, int], list[str]]:
    return lambda bench, run, seconds: [str(bench.programs.encke), "load", "--json", "--backend", backend, "-d",
                                        f"{seconds}s", "-c", str(CONNECTIONS), *extra, run.url]


def read_encke(text: str) -> int:
    """Returns the number of finished requests; failed ones are an error."""
    said = json.loads(text)["requests"]
    if said["failed"] or said["wrong"]:
        raise Trouble(f"encke load: {said['failed']} failed, {said['wrong']} wrong")
    return said["finished"]


GENERATORS = (
    Generator(BASE, lambda text: read_wrk(text, 0).requests, {
        "load-keepalive": _wrk(),
        "load-connect": _wrk("-H", "Connection: close"),
        "load-pipelined": _wrk(script="pipeline.lua"),
    }),
    *(Generator(f"encke {backend}", read_encke, {
        "load-keepalive": _encke(backend),
        "load-connect": _encke(backend, "--no-keepalive"),
        "load-pipelined": _encke(backend, "--pipeline", str(DEPTH)),
    }) for backend in ENCKE_BACKENDS),
    Generator("h2load", lambda text: read_h2load(text, 0).requests, {
        "load-keepalive": _h2load(1),
        "load-pipelined": _h2load(DEPTH),
    }),
    Generator("ab", lambda text: read_ab(text, 0).requests, {
        "load-keepalive": _ab("-k"),
        "load-connect": _ab(),
    }),
)


def seconds_of(kind: Kind, bench: Bench) -> float:
    return len(_taking_part(kind)) * bench.rounds * (_run_seconds(bench) + SETUP_SECONDS)


def _run_seconds(bench: Bench) -> int:
    return max(bench.seconds, RUN_SECONDS)


def _taking_part(kind: Kind) -> list[Generator]:
    return [generator for generator in GENERATORS if kind.name in generator.argv]


def measure(kind: Kind, bench: Bench, progress: Progress) -> Section:
    section = Section(kind.name, kind.title, kind.how,
                      ["generator", "CPU µs/request", "user", "requests/s", "÷ wrk [95 %]"])
    spent = {generator: Spent() for generator in _taking_part(kind)}
    failures: dict[Generator, str] = {}
    with bench.running(_server(bench), HELLO) as run:
        for number_of_round in range(1, bench.rounds + 1):
            order = [generator for generator in spent if generator not in failures]
            bench.chance.shuffle(order)
            for generator in order:
                progress.step(f"{kind.name}: round {number_of_round} of {bench.rounds}, {generator.name}")
                try:
                    _round(bench, kind, run, generator, spent[generator])
                except (Trouble, OSError) as trouble:
                    failures[generator] = str(trouble)
    whole = {generator: all_spent for generator, all_spent in spent.items() if generator not in failures}
    base = next((all_spent for generator, all_spent in whole.items() if generator.name == BASE), None)
    for generator in spent:
        bars = kind.bars if generator.is_ours else ()
        if generator in failures:
            section.failed(generator.name, failures[generator], bars, [generator.name])
            continue
        one = whole[generator]
        user = statistics.median(one.user_us)
        ratio = paired(one.total_us, base.total_us) if base and base is not one else None
        section.rows.append([generator.name, number(statistics.median(one.total_us)), number(user),
                             number(statistics.median(one.rate)), str(ratio or "–")])
        for bar in bars:
            value = user if bar is USER_BAR else ratio
            if value is not None:
                section.verdicts.append(judge(kind.title, generator.name, bar, value, rounds=bench.rounds))
    section.samples = {generator.name: vars(all_spent) for generator, all_spent in spent.items()}
    return section


def _server(bench: Bench):
    servers = [server for server in bench.servers if server.name == "nginx" and server.takes_part(LOAD[0])]
    if not servers:
        raise Trouble("generators are measured with nginx: name it with --servers")
    return servers[0]


def _round(bench: Bench, kind: Kind, run: Running, generator: Generator, spent: Spent) -> None:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    argv = generator.argv[kind.name](bench, run, _run_seconds(bench))
    process = bench.generator(Path(argv[0]).name, argv, stdout=subprocess.PIPE)
    text = process.output(_run_seconds(bench) + GRACE_SECONDS, ENDS)
    after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    requests = generator.read(text)
    if requests == 0:
        raise Trouble(f"{generator.name}: no response in {took:.1f} s")
    user = after.ru_utime - before.ru_utime
    total = user + after.ru_stime - before.ru_stime
    spent.user_us.append(user * 1e6 / requests)
    spent.total_us.append(total * 1e6 / requests)
    spent.rate.append(requests / took)


# ---- held connections ----

MEMORY_BAR = Bar(512, f"bytes of RSS per connection at {HELD:,}")
OPEN_BAR = Bar(1.5, f"seconds to open {HELD:,}")
OPEN_ROUNDS = 5


def held_seconds(bench: Bench) -> float:
    return 3 * 10 + len(ENCKE_BACKENDS) * OPEN_ROUNDS * 2


def held(bench: Bench, progress: Progress) -> Section:
    section = Section("load-held", f"{HELD:,} connections",
                      f"(RSS with {HELD:,} connections, all busy − with {FEW}) ÷ {HELD - FEW:,}; opening: median "
                      f"of {OPEN_ROUNDS}, as `encke load` reports", ["generator", "bytes per connection", "opened in, s"])
    with bench.running(_server(bench), HELLO) as run:
        for name, argv in _holders(bench, run).items():
            progress.step(f"load-held: {name}")
            bars = (MEMORY_BAR, OPEN_BAR) if name.startswith("encke") else ()
            try:
                few, many = (_resident(bench, argv(count), count) for count in (FEW, HELD))
                each = (many[0] - few[0]) / (HELD - FEW)
                row = [name, f"{each:,.0f}", "–"]
                if bars:
                    section.verdicts.append(judge(section.title, name, MEMORY_BAR, round(each)))
                    opened = [json.loads(many[1])["connections"]["opening_ns"] / 1e9]
                    opened += [json.loads(_resident(bench, argv(HELD), HELD)[1])["connections"]["opening_ns"] / 1e9
                               for _ in range(OPEN_ROUNDS - 1)]
                    row[2] = number(statistics.median(opened))
                    section.verdicts.append(judge(section.title, name, OPEN_BAR, statistics.median(opened)))
                section.rows.append(row)
            except (Trouble, OSError) as trouble:
                section.failed(name, trouble, bars, [name])
    return section


def _holders(bench: Bench, run: Running) -> dict[str, Callable[[int], list[str]]]:
    def encke(backend: str) -> Callable[[int], list[str]]:
        return lambda count: [str(bench.programs.encke), "load", "--json", "--backend", backend, "-d", "2s",
                              "-c", str(count), run.url]

    return {
        BASE: lambda count: [located("wrk", "wrk"), "-t1", f"-c{count}", "-d2s", run.url],
        **{f"encke {backend}": encke(backend) for backend in ENCKE_BACKENDS},
    }


def _resident(bench: Bench, argv: list[str], connections: int) -> tuple[float, str]:
    """Returns (the generator's resident bytes, the median of samples during the run; its output). Memory that it needs only for
    a moment, at the start or for its report, is not the cost of a connection. VmHWM includes that, and proc_pid_status(5)
    calls it inaccurate."""
    # A file, not a pipe: nothing reads the output during the run.
    told = bench.new_state("held") / "stdout"
    with told.open("wb") as out:
        process = bench.generator(Path(argv[0]).name, argv, stdout=out)
    looks: list[int] = []
    while process.runs():
        # The process may end between the check and the sample.
        with suppress(Trouble, FileNotFoundError, ProcessLookupError):
            looks.append(rss_bytes(process.root_pid))
        time.sleep(0.02)
    process.output(GRACE_SECONDS, ENDS)
    if not looks:
        raise Trouble(f"{argv[0]} exited before its memory could be read, with {connections:,} connections")
    return statistics.median(looks), told.read_text()


# ---- the live screen ----

SCREEN_BAR = Bar(0.01, "the screen's share of all CPU")
TERMINAL = (40, 120)  # rows, columns
SCREEN_SECONDS = 5  # at least: in one second the start and end of a run weigh as much as its frames
SHOWN = {"lines (--plain)": ("--plain",), "the screen": ()}


def screen_seconds(bench: Bench) -> float:
    return len(SHOWN) * bench.rounds * (_screen_seconds(bench) + SETUP_SECONDS)


def _screen_seconds(bench: Bench) -> float:
    return max(bench.seconds, SCREEN_SECONDS)


def screen(bench: Bench, progress: Progress) -> Section:
    """Both run on a terminal. Other load hardly affects the time outside of the load threads (by --save). The ratio of the whole
    time shows whether the screen disturbs the load threads."""
    rows, columns = TERMINAL
    section = Section("load-screen", "the live screen",
                      f"c = {CONNECTIONS}, a terminal of {rows} × {columns}; the screen's share: CPU time outside the "
                      "load threads, less the same with --plain, ÷ all",
                      ["shown", "CPU µs/request", "outside the threads, ms per second", "÷ lines [95 %]"])
    each_us: dict[str, list[float]] = {shown: [] for shown in SHOWN}
    beside: dict[str, list[float]] = {shown: [] for shown in SHOWN}
    part: list[float] = []
    with bench.running(_server(bench), HELLO) as run:
        for number_of_round in range(1, bench.rounds + 1):
            progress.step(f"load-screen: round {number_of_round} of {bench.rounds}")
            order = list(SHOWN)
            bench.chance.shuffle(order)
            spent = {shown: _shown(bench, run, SHOWN[shown]) for shown in order}
            for shown, (total, own, requests) in spent.items():
                each_us[shown].append(total * 1e6 / requests)
                beside[shown].append(own * 1e3 / _screen_seconds(bench))
            (_, lines, _), (total, screened, _) = (spent[shown] for shown in SHOWN)
            part.append((screened - lines) / total)
    base = next(iter(SHOWN))
    for shown in SHOWN:
        ratio = "–" if shown == base else str(paired(each_us[shown], each_us[base]))
        section.rows.append([shown, number(statistics.median(each_us[shown])),
                             number(statistics.median(beside[shown])), ratio])
    section.verdicts.append(judge(section.title, "encke load", SCREEN_BAR, statistics.median(part), rounds=bench.rounds))
    section.samples = {"each_us": each_us, "beside_ms_per_s": beside, "part": part}
    return section


def _shown(bench: Bench, run: Running, how: tuple[str, ...]) -> tuple[float, float, int]:
    """Returns (CPU seconds of a run on a terminal; of those, the ones outside of the load threads; finished requests)."""
    saved = bench.new_state("screen") / "run.json"
    argv = ["env", "TERM=xterm-256color", str(bench.programs.encke), "load", "--save", str(saved), *how, "-d",
            f"{_screen_seconds(bench)}s", "-c", str(CONNECTIONS), run.url]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *TERMINAL, 0, 0))
    # The terminal must be read, or the screen would block.
    viewer = threading.Thread(target=_view, args=(ours,), daemon=True)
    viewer.start()
    try:
        process = bench.generator("encke load", argv, stdin=theirs, stderr=theirs)
        process.output(_screen_seconds(bench) + GRACE_SECONDS, ENDS)
    finally:
        os.close(theirs)
        viewer.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = json.loads(saved.read_text())
    loading = sum(thread["cpu_ns"] for thread in told["threads"]) / 1e9
    return total, total - loading, read_encke(json.dumps(told))


def _view(terminal: int) -> None:
    """Reads a terminal until its last user has closed it."""
    with os.fdopen(terminal, "rb", buffering=0) as drawn:
        try:
            while drawn.read(65_536):
                pass
        except OSError:  # EIO: the end of a terminal
            pass
