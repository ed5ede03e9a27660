"""Agreement: whether `encke load push` says of a push server what a program says that shares nothing with it.

    for each crowd and server, in each round:
        c       three times, in random order:  floor/witness.c connects │ encke load push connects
        the     both hold their crowd, each on a channel of its own; their messages go by turns:
        rest        witness    ─────●─────────●─────────●────
                    load       ●─────────●─────────●─────────●

Each run is a process of its own on the generator's core, and comes from an address of its own, so that none looks for ports
among those that the run before it has left in TIME-WAIT. By turns, because a machine that others use has fast and slow
seconds: runs one after the other were seen to differ by a third, messages half an interval apart by some hundredths. The
witness takes its times just before send(2) and just after recv(2), and its percentiles are exact; those of `encke load` are
known to 1/64, rounded up, which is at most 1.6 % of the 5 % that they may be apart.

The witness has no line of Encke's code. It knows one thing of `encke load push`: where its messages say when they were sent.
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
from .servers import HELLO, Bench, Encke, Running, Server

# Subscribers, messages, and how many of them a second: far enough apart that all have one before the other program sends its
# next. Both crowds are in one process of the server, which has 20,000 descriptors. The first 16 on a connection were seen to
# take half as long again, as many as Linux acknowledges at once (TCP_MAX_QUICKACKS, include/net/tcp.h); where there can be so
# many messages, there are enough that p99 is of the others.
CROWDS = ((100, 2_000, 200), (1_000, 150, 20), (9_000, 20, 2))
CONNECTS = 3  # of each a round
PATHS = {"encke": ("/push/{}", "/push/{}"), "nchan": ("/sub/{}", "/pub/{}")}
# Each has a channel of its own: nobody hears what the other publishes.
CHANNELS = {"load": "agreement", "witness": "witness"}
ANSWER_SECONDS_MAX = 60
# 127.0.0.2 to 127.0.0.251, one after the other: each has rested for more than a minute before its next turn.
SOURCES = 250
ENDS = (0, 4)  # 4: a run without a verdict has its figures all the same
READY = b"ready\n"
# What is compared: its name, and where it stands in what the witness prints and in the JSON of `encke load push`.
FIGURES = (("c", ("connect_ns",), ("subscribers", "opening_ns")),
           ("first, p50", ("first", "p50_ns"), ("times", "first", "p50_ns")),
           ("first to last, p50", ("first_to_last", "p50_ns"), ("times", "first_to_last", "p50_ns")),
           ("last, p50", ("last", "p50_ns"), ("times", "last", "p50_ns")),
           ("last, p99", ("last", "p99_ns"), ("times", "last", "p99_ns")),
           ("each receiver, p50", ("receipt", "p50_ns"), ("times", "receipt", "p50_ns")),
           ("each receiver, p99", ("receipt", "p99_ns"), ("times", "receipt", "p99_ns")))
CONNECTING = FIGURES[0][0]
APART = 0.05

Pairs = dict[str, list[tuple[float, float]]]  # what witness and load say of a figure, a pair each time


@dataclass(frozen=True)
class Apart:
    """How far a ratio is from 1: at least, by its interval (0 if that holds 1), by its median, and at most."""

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
                      "event streams, 64 bytes; medians of the rounds, in ms; c: the two connect in turns, all else: both are "
                      "there and publish in turns; the ratio is that of the two in the same round; bars: how far the interval of "
                      "that ratio is from 1",
                      ["crowd", "server", "figure", "witness", "encke load", "ratio [95 %]"], samples={})
    compared: list[Apart] = []
    for crowd in CROWDS:
        for server in _servers(bench):
            title = f"{crowd[0]:,}, {server.name}"
            try:
                pairs = _rounds(bench, progress, server, crowd)
            except (Trouble, OSError) as trouble:
                section.failed(title, trouble, (Bar(APART, "apart from the witness"),))
                section.failed_row([f"{crowd[0]:,}", server.name])
                continue
            section.samples[title] = pairs
            for name, *_ in FIGURES:
                theirs, ours = zip(*pairs[name], strict=True)
                ratio = paired(ours, theirs)
                section.rows.append([f"{crowd[0]:,}", server.name, name,
                                     *(number(statistics.median(values) / 1e6) for values in (theirs, ours)), str(ratio)])
                bar = Bar(APART, f"{name}: apart from the witness")
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
        # What is done for the first time is not measured.
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
            # The server has yet to close what the last one held.
            settle(run)
            told[name] = generator(bench, run, (subscribers, 1, rate), next(sources)).figures()
        pairs.setdefault(CONNECTING, []).append((told["witness"][CONNECTING], told["load"][CONNECTING]))
    settle(run)
    # The witness begins after the other's first message, ends before its last, and leaves after it: both crowds are there
    # all the time.
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
    """A run of one of the two: started, and asked for its figures when it has ended."""

    def __init__(self, bench: Bench, name: str, argv: list[str], places: list[tuple[str, ...]]):
        self._process = bench.generator(name.replace(" ", "-"), argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._places = places

    def wait_ready(self) -> None:
        """Returns when the witness has all of its connections and waits for the other's first message."""
        if read_line(self._process.stdout, ANSWER_SECONDS_MAX) != READY:
            raise Trouble(f"{self._process.name} is not ready{self._process.last_words()}")

    def figures(self) -> dict[str, float]:
        """What it says when it has ended; its standard input ends here."""
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
    """The figures by their names; each place is a way through the JSON."""
    figures = {}
    for (name, *_), place in zip(FIGURES, places, strict=True):
        value = told
        with suppress(KeyError, TypeError):
            for key in place:
                value = value[key]
        if not isinstance(value, (int, float)) or value <= 0:
            raise Trouble(f"there is no {name} at {'.'.join(place)}")
        figures[name] = value
    return figures
