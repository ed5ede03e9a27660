"""Agreement: whether `encke load push` and an independent program report the same figures for a push server.

    for each crowd and server, in each round:
        c       three times, in random order:  floor/witness.c connects │ encke load push connects
        the     both hold their crowd, each on a channel of its own; their messages alternate:
        rest        witness    ─────●─────────●─────────●────
                    load       ●─────────●─────────●─────────●

Each run is a process of its own on the generator's core. It uses a source address of its own, so that no run searches for
ports among those that the previous run left in TIME-WAIT. The messages alternate because a shared machine has fast and slow
seconds: runs one after the other differed by a third, messages half an interval apart by some hundredths. The witness takes
its times just before send(2) and just after recv(2), and its percentiles are exact. Those of `encke load` have a resolution of
1/64, rounded up, which is at most 1.6 % of the allowed 5 %.

The witness contains no code of Encke. It knows only the position of the send time in the messages of `encke load push`.
"""

import itertools
import json
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from .crowds import settle
from .figures import Bar, Ratio, Section, judge, number, paired
from .machine import Trouble, read_line
from .report import Progress
from .servers import HELLO, Bench, Running, Server

# Subscribers, messages, and messages per second: slow enough that all subscribers have a message before the other program sends
# its next. Both crowds are in one process of the server, which has 20,000 descriptors. The first 16 messages on a connection
# took 1.5 times as long, as many as Linux acknowledges immediately (TCP_MAX_QUICKACKS, include/net/tcp.h). Where possible there
# are enough messages that they do not determine p99.
CROWDS = ((100, 2_000, 200), (1_000, 150, 20), (9_000, 20, 2))
CONNECTS = 3  # per round
PATHS = {"encke": ("/push/{}", "/push/{}"), "nchan": ("/sub/{}", "/pub/{}")}
# Separate channels, so that neither receives the other's messages.
CHANNELS = {"load": "agreement", "witness": "witness"}
ANSWER_SECONDS_MAX = 60
# 127.0.0.2 to 127.0.0.251 in turn: each is unused for more than a minute before its next use.
SOURCES = 250
ENDS = (0, 4)  # 4: a run without a verdict still has its figures
READY = b"ready\n"
# The compared figures: name, and path in the output of the witness and in the JSON of `encke load push`.
FIGURES = (("c", ("connect_ns",), ("subscribers", "opening_ns")),
           ("first, p50", ("first", "p50_ns"), ("times", "first", "p50_ns")),
           ("first to last, p50", ("first_to_last", "p50_ns"), ("times", "first_to_last", "p50_ns")),
           ("last, p50", ("last", "p50_ns"), ("times", "last", "p50_ns")),
           ("last, p99", ("last", "p99_ns"), ("times", "last", "p99_ns")),
           ("each receiver, p50", ("receipt", "p50_ns"), ("times", "receipt", "p50_ns")),
           ("each receiver, p99", ("receipt", "p99_ns"), ("times", "receipt", "p99_ns")))
CONNECTING = FIGURES[0][0]
APART = 0.05

Pairs = dict[str, list[tuple[float, float]]]  # pairs of a figure by witness and load


@dataclass(frozen=True)
class Apart:
    """The distance of a ratio from 1: minimum of its interval (0 if that contains 1), median, and maximum."""

    ratio: Ratio

    def value(self) -> float:
        return max(self.ratio.low - 1, 1 - self.ratio.high, 0.0)

    def likely(self) -> float:
        return abs(self.ratio.median - 1)

    def at_most(self) -> float:
        return max(abs(self.ratio.low - 1), abs(self.ratio.high - 1))


def seconds_of(bench: Bench) -> float:
    return len(_servers(bench)) * (bench.rounds + 1) * sum(
        2 * CONNECTS * (0.6 + subscribers * 80e-6) + 1.0 + 2 * subscribers * 80e-6 + messages / rate
        for subscribers, messages, rate in CROWDS)


def measure(bench: Bench, progress: Progress) -> Section:
    section = Section("push-agreement", "push: `encke load push` and an independent client",
                      "event streams, 64 bytes; medians of the rounds, in ms; c: the two connect alternately, all else: both "
                      "are connected and publish alternately; the ratio compares the two in the same round; bars: the distance "
                      "of that ratio's interval from 1",
                      ["crowd", "server", "figure", "witness", "encke load", "ratio [95 %]"], samples={})
    compared: list[Apart] = []
    for crowd in CROWDS:
        for server in _servers(bench):
            title = f"{crowd[0]:,}, {server.name}"
            try:
                pairs = _rounds(bench, progress, server, crowd)
            except (Trouble, OSError) as trouble:
                section.failed(title, trouble, (Bar(APART, "distance from the witness"),), [f"{crowd[0]:,}", server.name])
                continue
            section.samples[title] = pairs
            for name, *_ in FIGURES:
                theirs, ours = zip(*pairs[name], strict=True)
                ratio = paired(ours, theirs)
                section.rows.append([f"{crowd[0]:,}", server.name, name,
                                     *(number(statistics.median(values) / 1e6) for values in (theirs, ours)), str(ratio)])
                bar = Bar(APART, f"{name}: distance from the witness")
                apart = Apart(ratio)
                compared.append(apart)
                verdict = judge(f"{section.title}, {crowd[0]:,}", server.name, bar, round(apart.value(), 3),
                                rounds=bench.rounds)
                section.verdicts.append(verdict)
    likely, surely = (sum(apart <= APART for apart in aparts) for aparts in
                      ([one.likely() for one in compared], [one.at_most() for one in compared]))
    section.notes.append(f"of {len(compared)} ratios {likely} are within {APART:.0%} of 1 by their median, {surely} with all of their "
                         "interval")
    return section


def _servers(bench: Bench) -> list[Server]:
    return [server for server in bench.servers_for("push-agreement") if server.dialect in PATHS]


def _rounds(bench: Bench, progress: Progress, server: Server, crowd: tuple[int, int, int]) -> Pairs:
    sources = itertools.cycle(f"127.0.0.{last}" for last in range(2, 2 + SOURCES))
    with bench.running(server, HELLO) as run:
        # The first pass is not measured.
        _round(bench, run, crowd, sources, Pairs())
        pairs = {name: [] for name, *_ in FIGURES}
        for number_of_round in range(1, bench.rounds + 1):
            progress.step(f"push-agreement: {crowd[0]:,}, round {number_of_round} of {bench.rounds}, {server.name}")
            _round(bench, run, crowd, sources, pairs)
    return pairs


def _round(bench: Bench, run: Running, crowd: tuple[int, int, int], sources: Iterator[str], pairs: Pairs) -> None:
    subscribers, messages, rate = crowd
    for _ in range(CONNECTS):
        order = [("witness", _witness), ("load", _load)]
        bench.chance.shuffle(order)
        told = {}
        for name, generator in order:
            # The server must first close the previous connections.
            settle(run)
            told[name] = generator(bench, run, (subscribers, 1, rate), next(sources)).figures()
        pairs.setdefault(CONNECTING, []).append((told["witness"][CONNECTING], told["load"][CONNECTING]))
    settle(run)
    # The witness begins after the other's first message, ends before its last, and disconnects after it: both crowds are
    # connected throughout.
    witness = _witness(bench, run, (subscribers, messages - 2, rate), next(sources), follows=True)
    try:
        witness.wait_ready()
        load = _load(bench, run, crowd, next(sources)).figures()
        told = witness.figures()
    finally:
        witness.stop()
    for name in told.keys() - {CONNECTING}:
        pairs.setdefault(name, []).append((told[name], load[name]))


class _Run:
    """A run of one of the two programs. It reports its figures at its end."""

    def __init__(self, bench: Bench, name: str, argv: list[str], places: list[tuple[str, ...]]):
        self._process = bench.generator(name.replace(" ", "-"), argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._places = places

    def wait_ready(self) -> None:
        """Returns when the witness has all connections and waits for the other's first message."""
        if read_line(self._process.stdout, ANSWER_SECONDS_MAX) != READY:
            raise Trouble(f"{self._process.name} is not ready{self._process.last_words()}")

    def figures(self) -> dict[str, float]:
        """Closes standard input, and returns the figures that the program prints at its end."""
        told = json.loads(self._process.output(ANSWER_SECONDS_MAX, ENDS))
        wrong = {what: count for what, count in told.get("receipts", {}).items()
                 if what in ("lost", "repeated", "out_of_order") and count}
        if wrong:
            raise Trouble(f"{wrong} in a run of {self._process.name}")
        return read(told, self._places)

    def stop(self) -> None:
        self._process.stop()


def _witness(bench: Bench, run: Running, crowd: tuple[int, int, int], source: str, *, follows: bool = False) -> _Run:
    subscribe, publish = PATHS[run.server.dialect]
    own = CHANNELS["witness"]
    argv = [str(bench.programs.witness), str(run.port), subscribe.format(own), publish.format(own), run.server.token or "-",
            *(str(part) for part in crowd), source, *([subscribe.format(CHANNELS["load"])] if follows else [])]
    return _Run(bench, "witness", argv, [where for _, where, _ in FIGURES])


def _load(bench: Bench, run: Running, crowd: tuple[int, int, int], source: str) -> _Run:
    subscribers, messages, rate = (str(part) for part in crowd)
    argv = [str(bench.programs.encke), "load", "push", f"http://127.0.0.1:{run.port}/", "--json", "--preset",
            run.server.dialect, "--channel", CHANNELS["load"], "-s", subscribers, "-n", messages, "-r", rate, "--source", source]
    if run.server.token:
        argv += ["--token", run.server.token]
    return _Run(bench, "encke load push", argv, [where for _, _, where in FIGURES])


def read(told: dict, places: list[tuple[str, ...]]) -> dict[str, float]:
    """Returns the figures by name; each place is a path through the JSON."""
    figures = {}
    for (name, *_), place in zip(FIGURES, places, strict=True):
        value = told
        with suppress(KeyError, TypeError):
            for key in place:
                value = value[key]
        if not isinstance(value, (int, float)) or value <= 0:
            raise Trouble(f"no {name} at {'.'.join(place)}")
        figures[name] = value
    return figures
