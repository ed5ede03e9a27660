"""Load generators: wrk, ab and h2load from Debian, and the child that holds idle connections.

Each run is a process of its own, pinned to the generator's core, in a raised session of its own. wrk loads persistent
connections. ab opens a connection per request and lets the server close it, the one order of closing that is the same for
every server. h2load sends an exact number of requests, as instruction and system call counts require.
"""

import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .machine import Process, Trouble, ask, last_words
from .servers import Bench, Running, located

LUA = Path(__file__).resolve().parent / "wrk"
GRACE_SECONDS = 30
HOLD_SECONDS_MAX = 60
AB_REQUESTS_MAX = 1_000_000  # ab -t reserves 40 bytes for each request: 40 MB

# The fields of a browser besides Host: ten fields, about 650 bytes.
BROWSER_FIELDS = (
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
                   "Chrome/131.0.0.0 Safari/537.36"),
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8"),
    ("Accept-Encoding", "gzip, deflate, br, zstd"),
    ("Accept-Language", "en-GB,en;q=0.9,de;q=0.8"),
    ("Cache-Control", "max-age=0"),
    ("Cookie", "session=6f1c0f7e9a5d4b3c8e2a1d0b9f8e7d6c; theme=dark; consent=eyJhIjoxLCJiIjowfQ"),
    ("Referer", "https://www.example.org/articles/2026/11/the-shortest-period-of-all.html"),
    ("Sec-Fetch-Mode", "navigate"),
    ("Sec-Fetch-Site", "same-origin"),
    ("Upgrade-Insecure-Requests", "1"),
)


@dataclass(frozen=True)
class Load:
    """One run of a generator. Latencies are its own, in microseconds; ab's are not used."""

    requests: int
    bytes: int
    seconds: float
    errors: int
    busy: float  # the generator's share of its core; near 1 it was the bottleneck
    p50_us: float | None = None
    p99_us: float | None = None


def wrk(bench: Bench, run: Running, connections: int, seconds: int, *, pipelined: bool = False) -> Load:
    script = LUA / ("pipeline.lua" if pipelined else "report.lua")
    text, cpu_seconds = _run(bench, [located("wrk", "wrk"), "-t1", f"-c{connections}", f"-d{seconds}s",
                                     "-s", str(script), run.url], seconds)
    return read_wrk(text, cpu_seconds)


def read_wrk(text: str, cpu_seconds: float) -> Load:
    line = re.search(r"^@ (\{.*\})$", text, re.MULTILINE)
    if line is None:
        raise Trouble(f"wrk printed no result{last_words(text)}")
    said = json.loads(line[1])
    seconds = said["us"] / 1e6
    # With pipelining, wrk sometimes loses the tail and reports 0, which is no latency.
    return Load(said["requests"], said["bytes"], seconds, said["errors"], cpu_seconds / seconds,
                said["p50_us"] or None, said["p99_us"] or None)


def ab_closing(bench: Bench, run: Running, connections: int, seconds: int) -> Load:
    """Opens a connection per request (HTTP/1.0 without keep-alive) for a number of seconds."""
    text, cpu_seconds = _run(bench, [located("ab", "apache2-utils"), "-q", "-t", str(seconds),
                                     "-n", str(AB_REQUESTS_MAX), "-c", str(connections), run.url], seconds)
    return read_ab(text, cpu_seconds)


def ab_requests(bench: Bench, run: Running, requests: int, connections: int, *, keep: bool) -> Load:
    text, cpu_seconds = _run(bench, [located("ab", "apache2-utils"), "-q", *(["-k"] if keep else []),
                                     "-n", str(requests), "-c", str(connections), run.url], 60)
    return read_ab(text, cpu_seconds)


def read_ab(text: str, cpu_seconds: float) -> Load:
    def said(name: str) -> float:
        found = re.search(rf"^{name}:\s+([\d.]+)", text, re.MULTILINE)
        if found is None:
            raise Trouble(f"ab printed no line {name!r}{last_words(text)}")
        return float(found[1])

    # ab prints this line only if there were any.
    refused = re.search(r"^Non-2xx responses:\s+(\d+)", text, re.MULTILINE)
    seconds = said("Time taken for tests")
    errors = int(said("Failed requests")) + (int(refused[1]) if refused else 0)
    return Load(int(said("Complete requests")), int(said("Total transferred")), seconds, errors, cpu_seconds / seconds)


def h2load(bench: Bench, run: Running, requests: int, connections: int,
           fields: tuple[tuple[str, str], ...] = ()) -> None:
    """Sends exactly this many requests over HTTP/1.1; a different number of good responses is an error."""
    extra = [word for name, value in fields for word in ("-H", f"{name}: {value}")]
    text, _ = _run(bench, [located("h2load", "nghttp2-client"), "--h1", "-n", str(requests), "-c", str(connections),
                           *extra, run.url], 120)
    good = re.search(r"(\d+) succeeded", text)
    if good is None or int(good[1]) != requests:
        raise Trouble(f"{run.server.name}: h2load got {good[1] if good else 'no'} successful responses to {requests} requests")


def read_h2load(text: str, cpu_seconds: float) -> Load:
    took = re.search(r"^finished in ([\d.]+)(us|ms|s)", text, re.MULTILINE)
    counts = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed", text)
    size = re.search(r"^traffic: .*\((\d+)\) total", text, re.MULTILINE)
    if took is None or counts is None or size is None:
        raise Trouble(f"h2load printed no result{last_words(text)}")
    seconds = float(took[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1}[took[2]]
    done, succeeded, _ = (int(count) for count in counts.groups())
    return Load(succeeded, int(size[1]), seconds, done - succeeded, cpu_seconds / seconds)


def openssl_resumed(bench: Bench, run: Running, seconds: int) -> Load:
    """Opens connections that resume a session by ticket; others count as errors."""
    text, cpu_seconds = _run(bench, [located("openssl", "openssl"), "s_time", "-reuse", "-time", str(seconds),
                                     "-connect", f"127.0.0.1:{run.port}", "-www", run.server.path(run.resource)], seconds)
    return read_s_time(text, seconds, cpu_seconds)


def read_s_time(text: str, seconds: int, cpu_seconds: float) -> Load:
    """Parses `openssl s_time`, which prints `r` for each resumed session, and `t` or `*` for others."""
    marks = re.search(r"^starting\n([rt*]*)", text, re.MULTILINE)
    if marks is None:
        raise Trouble(f"openssl s_time printed no result{last_words(text)}")
    resumed = marks[1].count("r")
    return Load(resumed, 0, seconds, len(marks[1]) - resumed, cpu_seconds / seconds)


def _run(bench: Bench, argv: list[str], seconds: int) -> tuple[str, float]:
    """Returns (output of the generator, its CPU seconds)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = bench.generator(Path(argv[0]).name, argv, stdout=subprocess.PIPE)
    text = process.output(seconds + GRACE_SECONDS)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return text, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Holder:
    """A child with many persistent connections to one server, each after one GET."""

    def __init__(self, process: Process, run: Running):
        self._process = process
        self._run = run

    def hold(self, connections: int) -> None:
        """Returns once this many connections are open and have received a response."""
        held = self._ask(f"hold {connections}")
        if held != connections:
            raise Trouble(f"{self._run.server.name} could not hold {connections:,} connections: {held:,} received a response"
                          f"{self._process.last_words()}")

    def alive(self) -> int:
        """Number of connections that the server has not closed."""
        return self._ask("alive")

    def _ask(self, command: str) -> int:
        answer = ask(self._process, command, HOLD_SECONDS_MAX)
        if not answer:
            raise Trouble(f"the process that holds the connections did not respond to {command!r}{self._process.last_words()}")
        return int(answer)


@contextmanager
def holder(bench: Bench, run: Running) -> Iterator[Holder]:
    script = Path(__file__).resolve().parent / "holder.py"
    process = bench.generator("holder", [sys.executable, "-S", "-E", str(script), str(run.port),
                                         run.server.path(run.resource)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Holder(process, run)
    finally:
        process.stop()
