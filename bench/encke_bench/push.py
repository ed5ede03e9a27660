"""Push: cost of a message per receiver for one and many receivers, cost to connect and to hold a subscriber.

    all servers started, each with a crowd of its own (`encke load push --paced`)
    for each round:  servers in a new random order
        for each server:  prepare ─► CPU time ─► one run of the crowd ─► CPU time again

The floor (`floor/rawpush.c`) sends the same bytes to every descriptor of an array and keeps nothing; nchan is the peer. Every
message has 64 bytes and a number, so that lost, repeated or late messages are detected. A round with a lost message has no
figure and is a failure.
"""

import json
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .crowds import settle
from .entries import Entry, contended, failed, ratio, shown
from .figures import Bar, Ratio, Section, judge, number, paired
from .machine import Process, Trouble, ask, cpu, rss_bytes
from .report import Progress
from .servers import HELLO, Bench, Running, Server

FAN_CROWDS = ((1_000, ("sse",)), (10_000, ("sse", "poll", "ws")), (18_000, ("sse",)))
CONNECT_CROWD = 10_000
STORM_CROWD = 18_000
MEMORY_CROWD = 18_000
SUSTAINED_CROWD = 1_000
SUSTAINED_PUBLISHERS = 4
SUSTAINED_SECONDS_MIN = 2
CYCLE_CROWD = 2_000
# A round of a small crowd has several messages: 7 ms of CPU time would be lost in noise.
RECEIPTS_A_ROUND = 20_000

# Options by server; the floor has one path, and responds as nchan does.
WAYS = {"encke": (), "nchan": ("--preset", "nchan"),
        "rawpush": ("--preset", "nchan", "--subscribe-url", "/", "--publish-url", "/")}
PATIENCE = "30s"
ANSWER_SECONDS_MAX = 60
REST_STEP = 0.005
REST_SECONDS_MAX = 0.5

FAN_FLOOR_BAR = Bar(1.15, "CPU per receiver ÷ floor", "floor")
FAN_NCHAN_BAR = Bar(0.7, "CPU per receiver ÷ nchan", "nchan")
SPREAD_BAR = Bar(1.2, "first to last ÷ floor", "floor")
STREAM_BARS = (FAN_FLOOR_BAR, FAN_NCHAN_BAR, SPREAD_BAR)
TRANSPORT_BARS = {"poll": Bar(1.2, "long poll: CPU per receiver ÷ SSE"),
                  "ws": Bar(1.1, "WebSocket: CPU per receiver ÷ SSE")}
RATE_NCHAN_BAR = Bar(3, "delivered/s ÷ nchan", "nchan", at_least=True)
RATE_FLOOR_BAR = Bar(2.5, "delivered/s ÷ floor", "floor", at_least=True)
LATE_BAR = Bar(1, "p99 ÷ nchan", "nchan")
LOST_BAR = Bar(0, "messages lost")
CONNECT_BAR = Bar(1.3, "CPU per subscriber ÷ floor", "floor")
STORM_BAR = Bar(2, f"seconds until {STORM_CROWD:,} are reconnected")
MEMORY_BARS = {"sse": Bar(400, "bytes of RSS per subscriber, SSE"),
               "poll": Bar(400, "bytes of RSS per subscriber, long poll"),
               "ws": Bar(450, "bytes of RSS per subscriber, WebSocket")}
CYCLE_BAR = Bar(50, f"ms from first to last at {CYCLE_CROWD:,}")

SPOKEN = {"sse": "SSE", "poll": "long poll", "ws": "WebSocket"}


class Paced:
    """A crowd on one server: a child that prepares and then runs a round, by one line each."""

    def __init__(self, process: Process, run: Running):
        self._process = process
        self._run = run

    def make_ready(self) -> None:
        self._step()

    def run(self) -> dict:
        """Returns the figures of one run. Lost messages or closed connections make it a failure."""
        figures = self._step()
        wrong = {what: figures[what] for what in ("lost", "repeated", "closed", "refused") if figures.get(what)}
        if wrong:
            told = ", ".join(f"{count:,} {what}" for what, count in wrong.items())
            raise Trouble(f"{self._run.server.name}: {told} in a run of {figures['round']}")
        return figures

    def _step(self) -> dict:
        answer = ask(self._process, "", ANSWER_SECONDS_MAX)
        if not answer:
            raise Trouble(f"{self._run.server.name}: the crowd returned no figures{self._process.last_words()}")
        return json.loads(answer)


@contextmanager
def paced(bench: Bench, run: Running, mode: str, crowd: int, transport: str, *more: str) -> Iterator[Paced]:
    argv = [str(bench.programs.encke), "load", "push", f"http://127.0.0.1:{run.port}/", "--paced", mode, "-s", str(crowd),
            "--transport", transport, "--timeout", PATIENCE, *WAYS[run.server.dialect], *more]
    if run.server.token:
        argv += ["--token", run.server.token]
    process = bench.generator("load-push", argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Paced(process, run)
    finally:
        process.stop()


@dataclass
class PushEntry(Entry):
    transport: str = "sse"
    paced: Paced | None = None


@dataclass(frozen=True)
class Crowd:
    """The kind of round, and its number of runs."""

    mode: str
    subscribers: int
    rounds: int
    runs: int = 1
    more: tuple[str, ...] = ()


def _by_rounds(bench: Bench, progress: Progress, section: str, crowd: Crowd, entries: list[PushEntry]) -> list[PushEntry]:
    """Starts a server and a crowd for every entry, and runs them by rounds in random order."""
    with ExitStack() as stack:
        for entry in entries:
            progress.step(f"{section}: {entry.server.name} and {crowd.subscribers:,} start")
            with entry.failing():
                entry.run = stack.enter_context(bench.running(entry.server.speaking(entry.transport), HELLO))
                entry.paced = stack.enter_context(paced(bench, entry.run, crowd.mode, crowd.subscribers,
                                                        entry.transport, *crowd.more))
                _sample(crowd, entry)  # the first pass is not measured
        for number_of_round in range(1, crowd.rounds + 1):
            taking_part = [entry for entry in entries if not entry.failure]
            bench.chance.shuffle(taking_part)
            for entry in taking_part:
                progress.step(f"{section}: {crowd.subscribers:,}, round {number_of_round} of {crowd.rounds}, "
                              f"{entry.server.name}")
                with entry.failing():
                    entry.samples.append(_sample(crowd, entry))
    return entries


def _sample(crowd: Crowd, entry: PushEntry) -> dict:
    """Returns the figures of one round: CPU time summed over its runs, the median of everything else."""
    ran = waited = 0
    runs = []
    for _ in range(crowd.runs):
        entry.paced.make_ready()
        _rest(entry.run)
        before = cpu(entry.run.pid)
        runs.append(entry.paced.run())
        _rest(entry.run)
        more_run, more_waited = cpu(entry.run.pid).since(before)
        ran, waited = ran + more_run, waited + more_waited
    sample = {name: statistics.median(figures[name] for figures in runs)
              for name, value in runs[0].items() if isinstance(value, (int, float))}
    # The unit of cost: a message to a receiver if messages are sent, otherwise a subscriber.
    units = sum(figures["received"] for figures in runs) or crowd.subscribers * crowd.runs
    return sample | {"cpu_us": ran / 1e3 / units, "waited": waited / max(ran + waited, 1)}


def _rest(run: Running) -> None:
    """Returns once the server is idle, so that work of one run is not counted in the next."""
    settle(run, REST_STEP, REST_SECONDS_MAX)


def fan_seconds(bench: Bench) -> float:
    # Connecting takes about 40 µs per subscriber, a message 15 µs per receiver.
    return sum(len(_fan_entries(bench, transports)) * (
        1 + subscribers * 40e-6 + bench.rounds * (0.1 + 15e-6 * max(subscribers, RECEIPTS_A_ROUND)))
        for subscribers, transports in FAN_CROWDS)


def fan(bench: Bench, progress: Progress) -> Section:
    section = Section("push-fan", "push: one message of 64 bytes to all subscribers",
                      "CPU time from the publisher's send until all subscribers have the message, ÷ receivers; times are from "
                      "just before that send to each receive; r: first to last; the floor has no WebSocket",
                      ["crowd", "server", "CPU µs/receiver", "÷ floor [95 %]", "÷ nchan [95 %]", "÷ SSE [95 %]",
                       "first ms", "p50 ms", "p99 ms", "max ms", "r ms", "r ÷ floor [95 %]", "waited"], samples={})
    for subscribers, transports in FAN_CROWDS:
        crowd = Crowd("fan", subscribers, bench.rounds, max(1, RECEIPTS_A_ROUND // subscribers))
        entries = _by_rounds(bench, progress, "push-fan", crowd, _fan_entries(bench, transports))
        for transport in transports:
            alike = [entry for entry in entries if entry.transport == transport]
            title = f"{subscribers:,} {SPOKEN[transport]}"
            section.samples[title] = _samples(alike)
            for entry in alike:
                stream = next(one for one in entries if one.server is entry.server)
                _fan_row(section, bench, title, entry, alike, stream)
    section.notes += contended(section.samples)
    return section


def _fan_entries(bench: Bench, transports: tuple[str, ...]) -> list[PushEntry]:
    """A server's event stream precedes its other transports."""
    return [PushEntry(server, transport=transport) for transport in transports for server in bench.servers_for("push-fan")
            if transport in server.transports]


def _fan_row(section: Section, bench: Bench, title: str, entry: PushEntry, alike: list[PushEntry], stream: PushEntry) -> None:
    bars = STREAM_BARS if entry is stream else (TRANSPORT_BARS[entry.transport],)
    if entry.failure:
        return failed(section, entry, title, bars)
    floor, nchan = ratio(entry, alike, "floor", "cpu_us"), ratio(entry, alike, "nchan", "cpu_us")
    spread = ratio(entry, alike, "floor", "first_to_last_ns")
    by_stream = None if entry is stream or stream.failure else paired(entry.all("cpu_us"), stream.all("cpu_us"))
    section.rows.append([title, entry.server.name, number(entry.middle("cpu_us")), shown(floor), shown(nchan),
                         shown(by_stream), *_ms(entry, "first_ns", "p50_ns", "p99_ns", "max_ns", "first_to_last_ns"),
                         shown(spread), f"{entry.middle('waited'):.0%}"])
    values = (floor, nchan, spread) if entry is stream else (by_stream,)
    for bar, value in zip(bars, values, strict=True):
        _judge(section, bench, title, entry, bar, value)


def sustained_seconds(bench: Bench) -> float:
    return len(bench.servers_for("push-sustained")) * (1 + (bench.rounds + 1) * (_sustained_seconds(bench) + 0.2))


def _sustained_seconds(bench: Bench) -> int:
    return max(bench.seconds, SUSTAINED_SECONDS_MIN)


def sustained(bench: Bench, progress: Progress) -> Section:
    seconds = _sustained_seconds(bench)
    section = Section("push-sustained",
                      f"push: {SUSTAINED_CROWD:,} subscribers, each publisher waits only for its response",
                      f"SSE, 64 bytes, {bench.rounds} rounds of {seconds} s; {SUSTAINED_PUBLISHERS} publishers, each on a kept connection",
                      ["server", "published/s", "delivered/s", "÷ floor [95 %]", "÷ nchan [95 %]",
                       "CPU µs/delivery", "p50 ms", "p99 ms", "max ms", "p99 ÷ nchan [95 %]", "generator"], samples={})
    crowd = Crowd("sustained", SUSTAINED_CROWD, bench.rounds,
                  more=("--publishers", str(SUSTAINED_PUBLISHERS), "--duration", f"{seconds}s"))
    entries = _by_rounds(bench, progress, "push-sustained", crowd, _entries(bench, "push-sustained"))
    section.samples["sustained"] = _samples(entries)
    for entry in entries:
        _sustained_row(section, bench, entry, entries)
    section.notes += contended(section.samples)
    return section


def _sustained_row(section: Section, bench: Bench, entry: PushEntry, entries: list[PushEntry]) -> None:
    bars = (RATE_FLOOR_BAR, RATE_NCHAN_BAR, LATE_BAR, LOST_BAR)
    if entry.failure:
        return failed(section, entry, "", bars)
    seconds = entry.middle("seconds")
    floor, nchan = (ratio(entry, entries, base, "delivered_per_second") for base in ("floor", "nchan"))
    late = ratio(entry, entries, "nchan", "p99_ns")
    section.rows.append([entry.server.name, number(entry.middle("published") / seconds),
                         number(entry.middle("delivered_per_second")), shown(floor), shown(nchan),
                         number(entry.middle("cpu_us")), *_ms(entry, "p50_ns", "p99_ns", "max_ns"), shown(late),
                         f"{entry.middle('own_cpu_ns') / 1e9 / seconds:.0%}"])
    for bar, value in zip(bars, (floor, nchan, late, sum(entry.all("lost"))), strict=True):
        _judge(section, bench, "", entry, bar, value)


def connect_seconds(bench: Bench) -> float:
    return len(bench.servers_for("push-connect")) * (
        2 + (bench.rounds + 1) * (0.2 + CONNECT_CROWD * 60e-6) + bench.rounds * (1 + STORM_CROWD * 120e-6))


def connect(bench: Bench, progress: Progress) -> Section:
    section = Section("push-connect", "push: the cost of connecting a subscriber",
                      f"SSE; {CONNECT_CROWD:,} connect, 256 at a time: CPU time ÷ subscribers; storm: {STORM_CROWD:,} "
                      "are reset and reconnect, all at once: until the last is answered",
                      ["server", "CPU µs/subscriber", "÷ floor [95 %]", "÷ nchan [95 %]", "storm, s", "slowest",
                       "storm, CPU µs/subscriber", "generator's CPU µs"], samples={})
    calm = _by_rounds(bench, progress, "push-connect", Crowd("connect", CONNECT_CROWD, bench.rounds),
                      _entries(bench, "push-connect"))
    storms = []
    for entry in _entries(bench, "push-connect"):  # one after the other: each uses both cores completely
        storms += _by_rounds(bench, progress, "push-connect, storm", Crowd("storm", STORM_CROWD, bench.rounds), [entry])
    section.samples = {"connect": _samples(calm), "storm": _samples(storms)}
    for entry, storm in zip(calm, storms, strict=True):
        name = entry.server.name
        row = [name, "failed", "", ""]
        if entry.failure:
            section.failed(name, entry.failure, entry.server.barred(CONNECT_BAR))
        else:
            floor, nchan = (ratio(entry, calm, base, "cpu_us") for base in ("floor", "nchan"))
            row = [name, number(entry.middle("cpu_us")), shown(floor), shown(nchan)]
            _judge(section, bench, "", entry, CONNECT_BAR, floor)
        if storm.failure:
            section.failed(name, storm.failure, storm.server.barred(STORM_BAR))
            row += ["failed", "", "", ""]
        else:
            slowest = max(storm.all("connect_ns")) / 1e9
            row += [number(storm.middle("connect_ns") / 1e9), number(slowest), number(storm.middle("cpu_us")),
                    number(storm.middle("own_cpu_ns") / 1e3 / STORM_CROWD)]
            _judge(section, bench, "", storm, STORM_BAR, round(slowest, 2))
        section.rows.append(row)
    return section


def memory_seconds(bench: Bench) -> float:
    return 5 * sum(len(server.transports) for server in bench.servers_for("push-memory"))


def memory(bench: Bench, progress: Progress) -> Section:
    section = Section("push-memory", "push: memory of a subscriber, bytes",
                      f"(RSS with {MEMORY_CROWD:,} subscribers − RSS of the fresh process) ÷ {MEMORY_CROWD:,}, "
                      "before the first message; kernel: growth of its slabs ÷ 2, because both ends are on this machine",
                      ["transport", "server", "fresh RSS, MB", "per subscriber", "kernel"])
    for transport, bar in MEMORY_BARS.items():
        for server in bench.servers_for("push-memory"):
            if transport not in server.transports:
                continue
            progress.step(f"push-memory: {SPOKEN[transport]}, {server.name}")
            try:
                fresh, held, kernel = _memory(bench, server, transport)
            except (Trouble, OSError) as trouble:
                failed(section, Entry(server, failure=str(trouble)), SPOKEN[transport], (bar,))
                continue
            section.rows.append([SPOKEN[transport], server.name, f"{fresh / 1e6:.2f}",
                                 f"{held:,.0f}", f"{kernel:,.0f}"])
            _judge(section, bench, "", Entry(server), bar, round(held))
    return section


def _memory(bench: Bench, server: Server, transport: str) -> tuple[float, float, float]:
    """Returns (RSS of the fresh process, growth per subscriber, kernel memory of one end)."""
    with bench.running(server.speaking(transport), HELLO) as run:
        _rest(run)
        fresh, slabs = rss_bytes(run.pid), _slab_bytes()
        with paced(bench, run, "fan", MEMORY_CROWD, transport) as clients:
            clients.make_ready()
            _rest(run)
            held, grown = rss_bytes(run.pid), _slab_bytes()
    return fresh, (held - fresh) / MEMORY_CROWD, (grown - slabs) / MEMORY_CROWD / 2


def _slab_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Slab:"):
            return int(line.split()[1]) * 1024
    raise Trouble("/proc/meminfo has no Slab line")


def cycle_seconds(bench: Bench) -> float:
    return len(bench.servers_for("push-cycle")) * (0.5 + (bench.rounds + 1) * (0.2 + CYCLE_CROWD * 120e-6))


def cycle(bench: Bench, progress: Progress) -> Section:
    section = Section("push-cycle", "push: the cycle of report 001",
                      f"{CYCLE_CROWD:,} long polls connect, all at once (c: until each has been answered once, or, where no poll is "
                      "answered at once, its request is sent), one message is published, all are answered (r: first to last); "
                      "medians",
                      ["server", "c ms", "first ms", "r ms", "r ÷ floor [95 %]"], samples={})
    entries = _by_rounds(bench, progress, "push-cycle", Crowd("cycle", CYCLE_CROWD, bench.rounds), _entries(bench, "push-cycle", "poll"))
    section.samples["cycle"] = _samples(entries)
    for entry in entries:
        if entry.failure:
            failed(section, entry, "", (CYCLE_BAR,))
            continue
        section.rows.append([entry.server.name, *_ms(entry, "connect_ns", "first_ns", "first_to_last_ns"),
                             shown(ratio(entry, entries, "floor", "first_to_last_ns"))])
        _judge(section, bench, "", entry, CYCLE_BAR, round(entry.middle("first_to_last_ns") / 1e6, 1))
    return section


def _entries(bench: Bench, section: str, transport: str = "sse") -> list[PushEntry]:
    return [PushEntry(server, transport=transport) for server in bench.servers_for(section) if transport in server.transports]


def _samples(entries: list[PushEntry]) -> dict[str, list[dict]]:
    return {entry.server.name: entry.samples for entry in entries}


def _ms(entry: PushEntry, *names: str) -> list[str]:
    return [number(entry.middle(name) / 1e6) for name in names]


def _judge(section: Section, bench: Bench, crowd: str, entry: Entry, bar: Bar, value: Ratio | float | None) -> None:
    """Applies a bar to Encke, unless its base is missing."""
    if value is not None and entry.server.barred(bar):
        title = ", ".join(filter(None, (section.title, crowd)))
        section.verdicts.append(judge(title, entry.server.name, bar, value, rounds=bench.rounds))
