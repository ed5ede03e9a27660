#!/usr/bin/env python3
"""Measures Encke against a floor and its peers on this machine. `bench/README.md` has the rules.

This file contains the command line and the plan; `encke_bench/` contains the measurements.
"""

import argparse
import datetime
import functools
import json
import os
import random
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from encke_bench import (agreement, cluster, console, counts, crowds, gateway, load, machine, promises, push, report, servers,
                         stream, timed, tls, verdicts)
from encke_bench.figures import ROUNDS_FOR_VERDICT, Section
from encke_bench.machine import Trouble
from encke_bench.report import Progress
from encke_bench.servers import BACKENDS, BENCH, CLUSTER, CONSOLE, GATEWAY, LOAD, PEER_NAMES, PUSH, SERVERS, STREAM, TLS, Bench, Encke, located

REPOSITORY = BENCH.parent
SAMPLES = BENCH / "out" / "samples.json"
QUICK_ROUNDS = 3
QUICK_BACKENDS = "epoll-edge,uring"
QUICK_PEERS = "floor,nginx,nchan,icecast2"
NONE = "none"

# The page of each kind of measurement; all others are in RESULTS.md.
PAGES = {"RESULTS-agreement.md": ("push-agreement",), "RESULTS-push.md": PUSH, "RESULTS-tls.md": TLS, "RESULTS-load.md": LOAD,
         "RESULTS-cluster.md": CLUSTER, "RESULTS-gateway.md": GATEWAY, "RESULTS-console.md": CONSOLE, "RESULTS-live.md": STREAM}

EXAMPLES = """
  bench/run.py --quick                              three rounds, fewer servers: a tendency in three minutes
  bench/run.py --only keepalive --backends uring    one workload, one back end
  bench/run.py --write                              everything, into bench/RESULTS*.md
"""


@dataclass(frozen=True)
class Measurement:
    """An entry of the plan."""

    name: str
    title: str
    seconds: Callable[[Bench], float]
    run: Callable[[Bench, Progress], Section]
    tools: tuple[tuple[str, str], ...]  # (program, Debian package)
    quick: bool = True  # part of --quick


NATS = ("nats-server", "nats-server")
WRK = ("wrk", "wrk")
AB = ("ab", "apache2-utils")
H2LOAD = ("h2load", "nghttp2-client")
VALGRIND = ("valgrind", "valgrind")
PHP = ("php-fpm8.2", "php8.2-fpm")
STRACE = ("strace", "strace")
NGINX = ("nginx", "nginx")
OPENSSL = ("openssl", "openssl")
LIBURING = ("/usr/include/liburing.h", "liburing-dev")

PLAN: tuple[Measurement, ...] = (
    *(Measurement(workload.name, workload.title, functools.partial(timed.seconds_of, workload),
                  functools.partial(timed.measure, workload), (workload.tool,))
      for workload in timed.WORKLOADS),
    Measurement("instructions", "user instructions per request", counts.instructions_seconds, counts.instructions,
                (VALGRIND, H2LOAD)),
    Measurement("calls", "system calls per request", counts.calls_seconds, counts.calls, (STRACE, H2LOAD), quick=False),
    Measurement("memory", "memory of an idle connection at 10,000 and 18,000", crowds.memory_seconds, crowds.memory,
                ()),
    Measurement("crowd", "64 active connections among 18,000 idle ones", crowds.crowd_seconds, crowds.crowd, (WRK,),
                quick=False),
    Measurement("idle", "system calls of an idle server", counts.idle_seconds, counts.idle, (STRACE,), quick=False),
    Measurement("stall", "responses delayed by Nagle's algorithm or delayed acknowledgements", promises.stall_seconds,
                promises.stall, ()),
    Measurement("ab", "failed requests of ab", promises.ab_seconds, promises.ab, (AB,), quick=False),
    Measurement("push-fan", "push: one message to 1,000, 10,000 and 18,000 subscribers", push.fan_seconds, push.fan,
                (LIBURING,), quick=False),
    Measurement("push-sustained", "push: 1,000 subscribers, each publisher waits only for its response",
                push.sustained_seconds, push.sustained, (LIBURING,), quick=False),
    Measurement("push-connect", "push: the cost of connecting a subscriber, calmly and in a storm", push.connect_seconds,
                push.connect, (LIBURING,), quick=False),
    Measurement("push-memory", "push: memory of a subscriber", push.memory_seconds, push.memory, (LIBURING,),
                quick=False),
    Measurement("push-cycle", "push: the cycle of report 001", push.cycle_seconds, push.cycle, (LIBURING,),
                quick=False),
    Measurement("push-agreement", "push: `encke load push` and an independent client", agreement.seconds_of,
                agreement.measure, (), quick=False),
    *(Measurement(workload.name, workload.title, functools.partial(timed.seconds_of, workload),
                  functools.partial(timed.measure, workload), (workload.tool, OPENSSL), quick=False)
      for workload in timed.TLS_WORKLOADS),
    Measurement("tls-memory", "TLS: memory of a connection, and of a subscriber", tls.memory_seconds,
                tls.memory, (OPENSSL,), quick=False),
    *(Measurement(kind.name, f"load generators: {kind.title}", functools.partial(load.seconds_of, kind),
                  functools.partial(load.measure, kind), (WRK, AB, H2LOAD), quick=False)
      for kind in load.KINDS),
    Measurement("load-held", "load generators: memory per connection, and time to open connections", load.held_seconds,
                load.held, (WRK,), quick=False),
    Measurement("load-screen", "load generators: the cost of the live screen", load.screen_seconds, load.screen, (),
                quick=False),
    Measurement("load-verdict", "load generators: verdicts on the bottleneck, in staged cases", verdicts.seconds_of,
                verdicts.measure, (), quick=False),
    Measurement("cluster-cost", "cluster: cost of a delivery, and of a consumed message", cluster.seconds_of, cluster.cost,
                (NATS,), quick=False),
    *(Measurement(workload.name, workload.title, functools.partial(timed.seconds_of, workload),
                  functools.partial(gateway.timed, workload), (NGINX, WRK, *((PHP,) if workload.name in servers.GATEWAY_PHP else ())),
                  quick=False)
      for workload in gateway.TIMED),
    Measurement("gateway-calls", "gateway: system calls per GET", gateway.calls_seconds, gateway.calls, (NGINX, STRACE, H2LOAD),
                quick=False),
    Measurement("gateway-tunnels", "gateway: memory of an idle WebSocket", gateway.tunnels_seconds, gateway.tunnels, (),
                quick=False),
    Measurement("gateway-sse", "gateway: delay of the first event of a stream", gateway.sse_seconds, gateway.sse, (), quick=False),
    Measurement("console-open", "console: CPU of an open page among 15,000 connections", console.open_seconds, console.open_page, (),
                quick=False),
    Measurement("console-page", "console: requests per second of its start page", console.page_seconds, console.page, (AB,),
                quick=False),
    Measurement("stream-cpu", "live streams: CPU time of a delivered megabyte", stream.cpu_seconds, stream.per_megabyte, (), quick=False),
    Measurement("stream-memory", "live streams: memory of a listener", stream.memory_seconds, stream.memory, (), quick=False),
    Measurement("stream-storm", "live streams: 500 listeners connect at once", stream.storm_seconds, stream.storm, (), quick=False),
    Measurement("stream-many", "live streams: 18,000 listeners", stream.many_seconds, stream.many, (), quick=False),
    Measurement("stream-split", "live streams: throughput of the splitters", stream.split_seconds, stream.split, (), quick=False),
    Measurement("gateway-gigabyte", "gateway: memory while 1 GiB is relayed", gateway.gigabyte_seconds, gateway.gigabyte, (NGINX,),
                quick=False),
)


def main() -> int:
    options = _options()
    if options.list:
        return _list()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # SIGTERM must also stop the started processes
    try:
        return _bench(options)
    except Trouble as trouble:
        print(f"bench: {trouble}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nbench: interrupted; nothing was written", file=sys.stderr)
        return 130


def _bench(options: argparse.Namespace) -> int:
    plan = _plan(options)
    chosen = _servers(options)
    _require(plan, chosen)
    encke = _encke(options, chosen, plan)
    cores = machine.cores()
    machine.realtime = options.realtime
    facts = machine.description()
    with tempfile.TemporaryDirectory(prefix="encke-bench-") as scratch:
        folder = Path(scratch)
        root, state = folder / "root", folder / "state"
        root.mkdir()
        state.mkdir()
        servers.write_resources(root)
        if any(entry.name in TLS for entry in plan):
            servers.make_certificate(state)
        programs = servers.Programs(servers.build_floor(folder / "epl", "pthread"), encke)
        if any(LIBURING in entry.tools for entry in plan):
            programs = replace(programs, push_floor=servers.build_floor(folder / "rawpush", "uring"))
        if any(entry.name == "push-agreement" for entry in plan):
            programs = replace(programs, witness=servers.build_floor(folder / "witness", "pthread"))
        if any(entry.name in STREAM for entry in plan):
            programs = replace(programs, stream_floor=servers.build_floor(folder / "rawstream", "pthread"),
                               listeners=servers.build_floor(folder / "listeners", "pthread"), media_speed=_media_speed(plan))
        bench = Bench(root, state, cores, programs, chosen, options.rounds, options.seconds, options.quick,
                      random.Random(options.seed))
        os.sched_setaffinity(0, {cores.generator})  # the bench itself must not use the server's core
        expected = sum(entry.seconds(bench) for entry in plan)
        names = dict.fromkeys(server.name for server in chosen if _takes_part(server, plan))
        print(f"{len(plan)} measurements, servers: {'; '.join(names)}\n"
              f"server on core {cores.server}, generator on core {cores.generator}, {bench.rounds} rounds of "
              f"{bench.seconds} s, seed {options.seed}; about {expected / 60:.0f} minutes")
        with machine.own_session_raised() as raised:
            bench.autogroup_raised = raised
            sections, progress = _measured(plan, bench, expected)
        facts += _versions([server for server in chosen if _takes_part(server, plan)], programs)
    warnings = _warnings(bench)
    print(f"\n{report.summary(sections)} Took {progress.elapsed()}.")
    for warning in warnings:
        print(warning)
    _keep_samples(sections)
    if options.write:
        account = report.Account(_command(), _now(), progress.elapsed(), options.seed, bench.rounds, bench.seconds,
                                 facts, warnings)
        _write(account, sections)
    return 0


def _measured(plan: list[Measurement], bench: Bench, expected: float) -> tuple[list[Section], Progress]:
    progress = Progress(expected)
    sections = []
    for entry in plan:
        try:
            section = entry.run(bench, progress)
        finally:
            progress.clear()
        report.show(section)
        sections.append(section)
    return sections, progress


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measures Encke, a floor and peers on this machine: CPU time, instructions, system calls and memory "
                    "per request or connection.",
        epilog=f"examples:{EXAMPLES}", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAMES", help="measurements to run, separated by commas (--list shows the names)")
    parser.add_argument("--backends", metavar="NAMES", help=f"back ends of Encke ({', '.join(BACKENDS)}), or none")
    parser.add_argument("--servers", metavar="NAMES", help=f"other servers ({', '.join(PEER_NAMES)}), or none")
    parser.add_argument("--rounds", type=_positive, metavar="N", help="rounds of each timed workload "
                        f"(default {ROUNDS_FOR_VERDICT}; fewer give no verdict)")
    parser.add_argument("--seconds", type=_positive, default=1, metavar="N", help="seconds per round (default 1)")
    parser.add_argument("--seed", type=int, default=int(time.time()), metavar="N",
                        help="seed for the order of the rounds (default: the time)")
    parser.add_argument("--encke", type=Path, metavar="FILE", help="Encke's binary (default: the build of profile dist)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds, fewer servers, no slow measurements")
    parser.add_argument("--realtime", action="store_true", help="run servers and generators with priority over all other "
                        "processes (as root), to measure wake-up latencies on a shared machine")
    parser.add_argument("--write", action="store_true", help="write the results to bench/RESULTS.md and "
                        f"{', '.join(PAGES)}")
    parser.add_argument("--list", action="store_true", help="list the measurements and exit")
    options = parser.parse_args()
    if options.quick and options.write:
        parser.error("--quick gives no verdicts and cannot be combined with --write")
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS_FOR_VERDICT)
    options.backends = options.backends or (QUICK_BACKENDS if options.quick else ",".join(BACKENDS))
    options.servers = options.servers or (QUICK_PEERS if options.quick else ",".join(PEER_NAMES))
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _list() -> int:
    for entry in PLAN:
        print(f"{entry.name:18}{entry.title}")
    return 0


def _plan(options: argparse.Namespace) -> list[Measurement]:
    if options.only is None:
        return [entry for entry in PLAN if entry.quick or not options.quick]
    wanted = _names("--only", options.only, [entry.name for entry in PLAN])
    return [entry for entry in PLAN if entry.name in wanted]


def _servers(options: argparse.Namespace) -> list[servers.Server]:
    wanted = _names("--servers", options.servers, PEER_NAMES) | _names("--backends", options.backends, BACKENDS)
    chosen = [server for server in SERVERS if server.peer in wanted]
    if options.quick:
        chosen = [server for server in chosen if not server.variant]
    if not chosen:
        raise Trouble("no server to measure: name some with --servers or --backends")
    return chosen


def _names(option: str, text: str, known) -> set[str]:
    if text == NONE:
        return set()
    wanted = set(text.split(","))
    unknown = wanted - set(known)
    if unknown:
        raise Trouble(f"invalid name for {option}: {', '.join(sorted(unknown))}; expected {', '.join(known)}")
    return wanted


def _require(plan: list[Measurement], chosen: list[servers.Server]) -> None:
    """Reports all missing programs together, before the first run."""
    needed = {tool for entry in plan for tool in entry.tools} | {("cc", "gcc")}
    needed |= {need for server in chosen if _takes_part(server, plan) for need in server.needs}
    missing = {}
    for program, package in sorted(needed):
        try:
            located(program, package)
        except Trouble:
            missing[program] = package
    if missing:
        raise Trouble(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: "
                      f"apt install {' '.join(sorted(set(missing.values())))} (or exclude peers with --servers)")


def _media_speed(plan: list[Measurement]) -> Path:
    binary = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release/examples/media_speed"
    if any(entry.name == "stream-split" for entry in plan) and not os.access(binary, os.X_OK):
        raise Trouble(f"{_shown(binary)} is missing: run cargo build --release -p encke-wire --example media_speed")
    return binary


def _encke(options: argparse.Namespace, chosen: list[servers.Server], plan: list[Measurement]) -> Path:
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    binary = (options.encke or target / "dist" / "encke").resolve()
    # Encke is a server, and the generator of some measurements.
    needed = any(isinstance(server, Encke) for server in chosen) or any(entry.name in PUSH + LOAD + CLUSTER for entry in plan)
    if needed and not os.access(binary, os.X_OK):
        raise Trouble(f"{_shown(binary)} is missing: run cargo build --profile dist -p encke, name another with --encke "
                      "FILE, or measure only the other servers with --backends none")
    return binary


def _takes_part(server: servers.Server, plan: list[Measurement]) -> bool:
    return any(server.takes_part(entry.name) for entry in plan)


def _versions(chosen: list[servers.Server], programs: servers.Programs) -> list[tuple[str, str]]:
    versions = {}
    for server in chosen:
        kind = {servers.PushFloor: ", push", servers.StreamFloor: ", live streams"}.get(type(server), "")
        versions.setdefault("encke" if isinstance(server, Encke) else server.peer + kind, server.version(programs))
    return list(versions.items())


def _warnings(bench: Bench) -> list[str]:
    if bench.autogroup_raised:
        return []
    return ["The autogroups could not be raised (run as root): other sessions had their full share of both cores, "
            "so these figures are contended."]


def _keep_samples(sections: list[Section]) -> None:
    """Writes the raw samples of every round for later analysis; they are not committed."""
    SAMPLES.parent.mkdir(exist_ok=True)
    kept = {section.name: section.samples for section in sections if section.samples}
    SAMPLES.write_text(json.dumps(kept, indent=1))


def _write(account: report.Account, sections: list[Section]) -> None:
    """Writes one page per kind of section, so that each kind can be measured separately."""
    pages: dict[str, list[Section]] = {}
    for section in sections:
        pages.setdefault(page_of(section.name), []).append(section)
    for page, of in pages.items():
        report.write_results(BENCH / page, account, of)
    print("Written: " + ", ".join(f"bench/{page}" for page in pages))


def page_of(section: str) -> str:
    return next((page for page, names in PAGES.items() if section in names), "RESULTS.md")


def _command() -> str:
    return shlex.join(["bench/run.py", *sys.argv[1:]])


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _shown(path: Path) -> str:
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else str(path)


if __name__ == "__main__":
    sys.exit(main())
