"""Crowds of idle connections: memory of one, and the cost of many for the active ones.

    memory: fresh ─► RSS ─► 10,000 held after one GET each ─► RSS ─► 18,000 ─► RSS
    crowd:  two processes of a server, one holding 18,000; 64 others load the one, then the other, by rounds
"""

import statistics
import time

from .figures import Bar, Section, judge, number, paired
from .generators import holder, wrk
from .machine import Trouble, cpu, rss_bytes
from .report import Progress
from .servers import HELLO, Bench, Encke, Running, Server

CROWDS = (10_000, 18_000)
ACTIVE = 64
SETTLE_SECONDS_MAX = 5.0
SETTLE_STEP = 0.1

CONNECTION_BAR = Bar(160, "bytes of RSS per idle connection")
FRESH_BAR = Bar(8.0, "MB of RSS, fresh")
CROWD_BAR = Bar(0.95, "requests/s, 64 among 18,000 idle ÷ 64 alone", at_least=True)


def memory_seconds(bench: Bench) -> float:
    return 6 * len(bench.servers_for("memory"))


def memory(bench: Bench, progress: Progress) -> Section:
    section = Section("memory", "memory of an idle connection, bytes",
                      "(RSS with N kept connections after one GET each − RSS of the fresh process) ÷ N, smaps_rollup",
                      ["server", "fresh RSS, MB", *[f"at {crowd:,}" for crowd in CROWDS],
                       f"from {CROWDS[0]:,} to {CROWDS[1]:,}"])
    for server in bench.servers_for("memory"):
        progress.step(f"memory: {server.name}")
        row = [server.name]
        try:
            _memory(bench, server, section, row)
            section.rows.append(row)
        except (Trouble, OSError) as trouble:
            section.failed(server.name, trouble, server.barred(CONNECTION_BAR), row)
    return section


def _memory(bench: Bench, server: Server, section: Section, row: list[str]) -> None:
    """Fills the row step by step, so that a server that holds only the smaller crowd still has that figure."""
    with bench.running(server, HELLO) as run:
        settle(run)
        fresh = rss_bytes(run.pid)
        row.append(f"{fresh / 1e6:.2f}")
        _judge_if_ours(section, server, FRESH_BAR, round(fresh / 1e6, 2))
        sizes = []
        with holder(bench, run) as clients:
            for crowd in CROWDS:
                if crowd > server.connections_max:
                    raise Trouble(f"holds at most {server.connections_max:,}")
                clients.hold(crowd)
                settle(run)
                sizes.append(rss_bytes(run.pid))
                each = (sizes[-1] - fresh) / crowd
                row.append(f"{each:,.0f}")
                bar = Bar(CONNECTION_BAR.limit, f"{CONNECTION_BAR.what}, {crowd:,}")
                _judge_if_ours(section, server, bar, round(each))
            alive = clients.alive()
        row.append(f"{(sizes[-1] - sizes[0]) / (CROWDS[-1] - CROWDS[0]):,.0f}")
        if alive != CROWDS[-1]:
            section.notes.append(f"{server.name} closed {CROWDS[-1] - alive:,} of {CROWDS[-1]:,} idle connections")


def crowd_seconds(bench: Bench) -> float:
    return len(_crowd_servers(bench)) * (6 + bench.rounds * 2 * (bench.seconds + 0.3))


def crowd(bench: Bench, progress: Progress) -> Section:
    section = Section("crowd", f"{ACTIVE} active connections among {CROWDS[-1]:,} idle ones",
                      f"wrk -t1 -c{ACTIVE}, 13 bytes, alternately on two processes of the server, one of which holds the crowd",
                      ["server", "alone, requests/s", "among the crowd", "rate ÷ alone [95 %]", "CPU ÷ alone [95 %]"])
    for server in _crowd_servers(bench):
        try:
            _crowd(bench, server, section, progress)
        except (Trouble, OSError) as trouble:
            section.failed(server.name, trouble, _crowd_bars(server), [server.name])
    return section


def _crowd_servers(bench: Bench) -> list[Server]:
    """Encke, the floor and the peer that the other bars name: a server takes half a minute."""
    return [server for server in bench.servers_for("crowd")
            if isinstance(server, Encke) or server.name in ("floor", "nginx")]


def _crowd(bench: Bench, server: Server, section: Section, progress: Progress) -> None:
    # One server after the other, not all by rounds: connections must not reach their idle timeout.
    progress.step(f"crowd: {server.name}, connecting")
    with bench.running(server, HELLO) as alone, bench.running(server, HELLO) as among:
        alone.verify(bench.root, 200)
        with holder(bench, among) as clients:
            clients.hold(CROWDS[-1])
            rates: dict[int, list[float]] = {alone.pid: [], among.pid: []}
            costs: dict[int, list[float]] = {alone.pid: [], among.pid: []}
            for number_of_round in range(1, bench.rounds + 1):
                progress.step(f"crowd: round {number_of_round} of {bench.rounds}, {server.name}")
                for run in bench.chance.sample((alone, among), 2):
                    before = cpu(run.pid)
                    load = wrk(bench, run, ACTIVE, bench.seconds)
                    ran, _ = cpu(run.pid).since(before)
                    rates[run.pid].append(load.requests / load.seconds)
                    costs[run.pid].append(ran / 1e3 / load.requests)
            alive = clients.alive()
    rate, cost = (paired(of[among.pid], of[alone.pid]) for of in (rates, costs))
    section.rows.append([server.name, *[number(statistics.median(rates[run.pid])) for run in (alone, among)],
                         str(rate), str(cost)])
    if alive != CROWDS[-1]:
        section.notes.append(f"{server.name} closed {CROWDS[-1] - alive:,} of {CROWDS[-1]:,} idle connections")
    section.verdicts += [judge(section.title, server.name, bar, rate, rounds=bench.rounds)
                         for bar in _crowd_bars(server)]


def _crowd_bars(server: Server) -> tuple[Bar, ...]:
    """poll has no bar here: its cost of a linear scan is only shown."""
    return (CROWD_BAR,) if isinstance(server, Encke) and server.backend != "poll" else ()


def _judge_if_ours(section: Section, server: Server, bar: Bar, value: float) -> None:
    if isinstance(server, Encke):
        section.verdicts.append(judge(section.title, server.name, bar, value))


def settle(run: Running, step: float = SETTLE_STEP, seconds_max: float = SETTLE_SECONDS_MAX) -> None:
    """Returns once the server has used no CPU for a moment."""
    deadline = time.monotonic() + seconds_max
    before = cpu(run.pid)
    while time.monotonic() < deadline:
        time.sleep(step)
        now = cpu(run.pid)
        if now.since(before)[0] == 0:
            return
        before = now
