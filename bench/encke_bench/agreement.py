"""Agreement: whether `encke load push` says of a push server what a program says that shares nothing with it.

    for each crowd and server, in each round, in random order:  floor/witness.c │ encke load push

Both hold as many event streams and publish the same messages at the same rate; each run is a process of its own on the
generator's core, and comes from an address of its own, so that none looks for ports among those that the run before it has
left in TIME-WAIT. The witness takes its times just before send(2) and just after recv(2), and its percentiles are exact;
those of `encke load` are known to 1/64, rounded up, which is at most 1.6 % of the 5 % that they may be apart.
"""

import itertools
import json
import statistics
import subprocess
from contextlib import suppress
from dataclasses import dataclass

from .crowds import settle
from .figures import Bar, Ratio, Section, judge, number, paired
from .machine import Trouble
from .report import Progress
from .servers import HELLO, Bench, Encke, Running, Server

# Subscribers, messages, and how many of them a second: far enough apart that all have one before the next is sent. The
# first 16 on a connection were seen to take half as long again, as many as Linux acknowledges at once (TCP_MAX_QUICKACKS,
# include/net/tcp.h); where there can be so many messages, there are enough that p99 is of the others.
CROWDS = ((100, 2_000, 400), (1_000, 100, 25), (10_000, 20, 3))
PATHS = {"encke": ("/push/{}", "/push/{}"), "nchan": ("/sub/{}", "/pub/{}")}
CHANNEL = "agreement"
ANSWER_SECONDS_MAX = 60
# 127.0.0.2 to 127.0.0.251, one after the other: each has rested for more than a minute before its next turn.
SOURCES = 250
ENDS = (0, 4)  # 4: a run without a verdict has its figures all the same
# What is compared: its name, and where it stands in what the witness prints and in the JSON of `encke load push`.
FIGURES = (("c", ("connect_ns",), ("subscribers", "opening_ns")),
           ("first, p50", ("first", "p50_ns"), ("times", "first", "p50_ns")),
           ("first to last, p50", ("first_to_last", "p50_ns"), ("times", "first_to_last", "p50_ns")),
           ("last, p50", ("last", "p50_ns"), ("times", "last", "p50_ns")),
           ("last, p99", ("last", "p99_ns"), ("times", "last", "p99_ns")),
           ("each receiver, p50", ("receipt", "p50_ns"), ("times", "receipt", "p50_ns")),
           ("each receiver, p99", ("receipt", "p99_ns"), ("times", "receipt", "p99_ns")))
APART = 0.05


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
    return len(_servers(bench)) * (bench.rounds + 1) * 2 * sum(
        0.5 + subscribers * 80e-6 + messages / rate for subscribers, messages, rate in CROWDS)


def measure(bench: Bench, progress: Progress) -> Section:
    section = Section("push-agreement", "push: `encke load push` and an independent client",
                      "event streams, 64 bytes; medians of the rounds, in ms; the ratio is that of the two in the same "
                      "round; bars: how far the interval of that ratio is from 1",
                      ["crowd", "server", "figure", "witness", "encke load", "ratio [95 %]"], samples={})
    compared: list[Apart] = []
    for crowd in CROWDS:
        for server in _servers(bench):
            title = f"{crowd[0]:,}, {server.name}"
            try:
                rounds = _rounds(bench, progress, server, crowd)
            except (Trouble, OSError) as trouble:
                section.failed(title, trouble, (Bar(APART, "apart from the witness"),))
                section.failed_row([f"{crowd[0]:,}", server.name])
                continue
            section.samples[title] = rounds
            for name, *_ in FIGURES:
                ours, theirs = ([one[who][name] for one in rounds] for who in ("load", "witness"))
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


def _rounds(bench: Bench, progress: Progress, server: Server, crowd: tuple[int, int, int]) -> list[dict]:
    rounds = []
    sources = itertools.cycle(f"127.0.0.{last}" for last in range(2, 2 + SOURCES))
    with bench.running(server, HELLO) as run:
        for number_of_round in range(bench.rounds + 1):
            progress.step(f"push-agreement: {crowd[0]:,}, round {number_of_round} of {bench.rounds}, {server.name}")
            order = [("load", _load), ("witness", _witness)]
            bench.chance.shuffle(order)
            told = {}
            for name, generator in order:
                # The server has yet to close what the last one held.
                settle(run)
                told[name] = generator(bench, run, crowd, next(sources))
            rounds.append(told)
    return rounds[1:]  # what is done for the first time is not measured


def _witness(bench: Bench, run: Running, crowd: tuple[int, int, int], source: str) -> dict[str, float]:
    subscribe, publish = (path.format(CHANNEL) for path in PATHS[run.server.dialect])
    argv = [str(bench.programs.witness), str(run.port), subscribe, publish, run.server.token or "-",
            *(str(part) for part in crowd), source]
    return read(_told(bench, "witness", argv), [where for _, where, _ in FIGURES])


def _load(bench: Bench, run: Running, crowd: tuple[int, int, int], source: str) -> dict[str, float]:
    subscribers, messages, rate = (str(part) for part in crowd)
    argv = [str(bench.programs.encke), "load", "push", f"http://127.0.0.1:{run.port}/", "--json", "--preset",
            run.server.dialect, "--channel", CHANNEL, "-s", subscribers, "-n", messages, "-r", rate, "--source", source]
    if run.server.token:
        argv += ["--token", run.server.token]
    told = _told(bench, "encke load push", argv)
    wrong = {what: told["receipts"][what] for what in ("lost", "repeated", "out_of_order") if told["receipts"][what]}
    if wrong:
        raise Trouble(f"{run.server.name}: {wrong} in a run of encke load push")
    return read(told, [where for _, _, where in FIGURES])


def _told(bench: Bench, name: str, argv: list[str]) -> dict:
    process = bench.generator(name.replace(" ", "-"), argv, stdout=subprocess.PIPE)
    return json.loads(process.output(ANSWER_SECONDS_MAX, ENDS))


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
