"""Timed workloads: rounds of load, CPU time per request, ratios of servers within a round.

    for each round:  servers in a new random order
        for each server:  read its CPU time ─► load it for a second ─► read its CPU time again

The comparison uses CPU time per request, not requests per second: on a shared machine wall-clock rates vary by a third, and a
generator on one core is often the bottleneck. On loopback the sender's CPU also runs the receiver's TCP input, so the figure
includes the kernel's work for both, as the floor's does.
"""

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from .figures import Bar, Section, Verdict, judge, number, paired
from .generators import Load, ab_closing, openssl_resumed, wrk
from .machine import Trouble, cpu, stolen_seconds
from .report import Progress
from .servers import HELLO, IMAGE, KIB, KIB16, MIB64, Bench, Encke, Resource, Running, Server

SETUP_SECONDS = 0.15 # a generator's own start and end, beside its seconds of load
WARM_REQUESTS = 200
# Responses of at least this size are counted by bytes, because a run ends in the middle of some.
COUNTED_BY_BYTES = 100_000


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    resource: Resource
    connections: int
    bars: tuple[Bar, ...]
    pipelined: bool = False
    closing: bool = False
    resumed: bool = False

    @property
    def how(self) -> str:
        if self.resumed:
            return "openssl s_time -reuse: a new connection per request, one after the other, with the ticket of the first"
        if self.closing and self.name.startswith("tls"):
            return f"ab -t SECONDS -c {self.connections}: a new connection and a full handshake per request, the server closes"
        if self.closing:
            return f"ab -t SECONDS -c {self.connections}, 13 bytes: HTTP/1.0, the server closes"
        depth = " with 16 requests in one write" if self.pipelined else ""
        return f"wrk -t1 -c{self.connections}{depth}, kept connections"

    @property
    def tool(self) -> tuple[str, str]:
        """(program, Debian package)."""
        if self.resumed:
            return ("openssl", "openssl")
        return ("ab", "apache2-utils") if self.closing else ("wrk", "wrk")

    def load(self, bench: Bench, run: Running) -> Load:
        if self.resumed:
            return openssl_resumed(bench, run, bench.seconds)
        if self.closing:
            return ab_closing(bench, run, self.connections, bench.seconds)
        return wrk(bench, run, self.connections, bench.seconds, pipelined=self.pipelined)

    def requests(self, load: Load) -> float:
        if self.resource.size >= COUNTED_BY_BYTES:
            return load.bytes / self.resource.size
        return load.requests


def _bar(limit: float, against: str) -> Bar:
    return Bar(limit, f"CPU ÷ {against}", against)


WORKLOADS = (
    Workload("keepalive", "13 bytes, kept connections, c = 64", HELLO, 64,
             (_bar(1.12, "floor"), _bar(0.85, "nginx"))),
    Workload("pipelined", "13 bytes, 16 pipelined, c = 64", HELLO, 64,
             (_bar(1.5, "floor"), _bar(1 / 12, "nginx")), pipelined=True),
    Workload("1k", "1 KiB, c = 64", KIB, 64, (_bar(1.15, "floor"), _bar(1 / 2, "nginx"))),
    Workload("16k", "16 KiB, c = 64", KIB16, 64, (_bar(1.15, "floor"),)),
    Workload("image", "2,397,701 bytes, c = 16", IMAGE, 16, (_bar(1.05, "floor"),)),
    Workload("64m", "64 MiB, c = 4", MIB64, 4, (_bar(1.05, "floor"),)),
    Workload("connect", "a new connection per request, c = 64", HELLO, 64, (_bar(1.05, "floor"),), closing=True),
    Workload("pingpong", "ping-pong, 13 bytes, c = 1", HELLO, 1, (_bar(1.12, "floor"),)),
)

# Without a floor: no program performs a handshake with less than a TLS library. By CPU time, because it limits the handshakes per
# second, and a generator needs more of it than a server.
TLS_WORKLOADS = (
    Workload("tls-full", "TLS: a full handshake per request, c = 64", HELLO, 64, (_bar(1.0, "nginx"),), closing=True),
    Workload("tls-resumed", "TLS: a resumed session per request, c = 1", HELLO, 1, (_bar(1.0, "nginx"),), resumed=True),
)

COLUMNS = ["server", "CPU µs/request", "requests/s", "÷ floor [95 %]", "÷ nginx [95 %]", "p50 µs", "p99 µs",
           "waited", "generator"]
STOLEN_NOTED = 0.02
WAITED_NOTED = 0.05


@dataclass(frozen=True)
class Sample:
    """One round of one server. `waited` is the share of its time on the run queue while others used the core, `stolen` the share
    of the wall clock in which the host gave the core to other guests."""

    cpu_us: float
    rate: float
    p50_us: float | None
    p99_us: float | None
    waited: float
    stolen: float
    generator: float
    errors: int


@dataclass
class Entry:
    """The state of one server during the rounds. A server that fails leaves with its reason."""

    server: Server
    run: Running | None = None
    samples: list[Sample] = field(default_factory=list)
    failure: str = ""

    def cpu(self) -> list[float]:
        return [sample.cpu_us for sample in self.samples]

    def errors(self) -> int:
        return sum(sample.errors for sample in self.samples)


def seconds_of(workload: Workload, bench: Bench) -> float:
    return len(bench.servers_for(workload.name)) * (bench.rounds * (bench.seconds + SETUP_SECONDS) + 0.5)


def measure(workload: Workload, bench: Bench, progress: Progress) -> Section:
    entries = [Entry(server) for server in bench.servers_for(workload.name)]
    with ExitStack() as stack:
        for entry in entries:
            try:
                entry.run = stack.enter_context(bench.running(entry.server, workload.resource,
                                                              closing=workload.closing))
                entry.run.verify(bench.root, 0 if workload.resource.size >= COUNTED_BY_BYTES else WARM_REQUESTS)
            except Trouble as trouble:
                entry.failure = str(trouble)
        by_rounds(workload, bench, progress, entries)
    return _section(bench, workload, entries)


def by_rounds(workload: Workload, bench: Bench, progress: Progress, entries: list[Entry]) -> None:
    """Loads all running servers in each round, in random order."""
    for number_of_round in range(1, bench.rounds + 1):
        taking_part = [entry for entry in entries if not entry.failure]
        bench.chance.shuffle(taking_part)
        for entry in taking_part:
            progress.step(f"{workload.name}: round {number_of_round} of {bench.rounds}, {entry.server.name}")
            try:
                entry.samples.append(sample(bench, workload, entry.run))
            except (Trouble, OSError) as trouble:
                entry.failure = str(trouble)


def sample(bench: Bench, workload: Workload, run: Running) -> Sample:
    """Loads a server for one round."""
    before, stolen = cpu(run.pid), stolen_seconds(bench.cores.server)
    load = workload.load(bench, run)
    ran, waited = cpu(run.pid).since(before)
    stolen = stolen_seconds(bench.cores.server) - stolen
    requests = workload.requests(load)
    if requests == 0:
        raise Trouble(f"{run.server.name}: no response in {load.seconds:.1f} s")
    return Sample(ran / 1e3 / requests, requests / load.seconds, load.p50_us, load.p99_us,
                  waited / max(ran + waited, 1), stolen / load.seconds, load.busy, load.errors)


def _section(bench: Bench, workload: Workload, entries: list[Entry]) -> Section:
    section = Section(workload.name, workload.title, workload.how, COLUMNS)
    fill(section, bench, workload, entries, ["floor", "nginx"], rate_at=2)
    return section


def fill(section: Section, bench: Bench, workload: Workload, entries: list[Entry], bases: list[str], *, rate_at: int,
         base_of: Callable[[str, str], str] = lambda base, name: base) -> None:
    """Adds the rows and the verdicts. `bases` are the columns of ratios, which follow the CPU time; `rate_at` is the column of the
    rate. `base_of(base, name)` is the server that the ratio of the server `name` has below the line."""
    section.samples = {entry.server.name: [vars(one) for one in entry.samples] for entry in entries}
    whole = {entry.server.name: entry for entry in entries if not entry.failure}
    for entry in entries:
        name = entry.server.name
        ratios = {base: paired(entry.cpu(), whole[of].cpu()) for base, of in ((base, base_of(base, name)) for base in bases)
                  if name in whole and of in whole and of != name}
        if entry.failure:
            section.failed(name, entry.failure, row=[name])
        else:
            row = _row(entry, [str(ratios.get(base, "–")) for base in bases])
            row.insert(rate_at, _middle([one.rate for one in entry.samples]))
            section.rows.append(row)
            if entry.errors():
                section.notes.append(f"{name}: the generator counted {entry.errors()} errors")
        if isinstance(entry.server, Encke) and not entry.server.variant:
            section.verdicts += _verdicts(bench, workload, entry, ratios)
    section.notes += disturbances([one for entry in entries for one in entry.samples])


def disturbances(samples: list[Sample]) -> list[str]:
    """Other users of the server's core, if they were active enough to blur the figures."""
    if not samples:
        return []
    stolen = statistics.fmean(sample.stolen for sample in samples)
    waited = statistics.fmean(sample.waited for sample in samples)
    notes = []
    if stolen >= STOLEN_NOTED:
        notes.append(f"the host gave {stolen:.0%} of the server's core to other guests")
    if waited >= WAITED_NOTED:
        notes.append(f"contended: servers waited for their core for {waited:.0%} of their runnable time")
    return notes


def _verdicts(bench: Bench, workload: Workload, entry: Entry, ratios: dict) -> list[Verdict]:
    """A failure or an error misses the bar, whatever the time."""
    name = entry.server.name
    if entry.failure or entry.errors():
        reason = "failed" if entry.failure else "errors"
        return [Verdict(workload.title, str(bar), name, reason, False) for bar in workload.bars]
    return [judge(workload.title, name, bar, ratios[bar.against], rounds=bench.rounds)
            for bar in workload.bars if bar.against in ratios]


def _row(entry: Entry, ratios: list[str]) -> list[str]:
    """The cells of a row, except the rate."""
    samples = entry.samples
    return [entry.server.name, _middle(entry.cpu()), *ratios, _middle([one.p50_us for one in samples]),
            _middle([one.p99_us for one in samples]), f"{statistics.median(one.waited for one in samples):.0%}",
            f"{statistics.median(one.generator for one in samples):.0%}"]


def _middle(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return number(statistics.median(known)) if known else "–"
