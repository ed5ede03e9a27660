"""Push: cost of an acknowledgement for a stored message.

    for each number of publishers:  each publishes 64 bytes, and again as soon as it has its 201
    floor:                          write() of 64 bytes and fdatasync() in a loop, one file, one thread

Both use the same file system, one after the other in each round. The floor makes one message durable per sync. A server that
stores waiting messages together may be faster; with one publisher it cannot.
"""

import os
import selectors
import socket
import statistics
import time
from contextlib import ExitStack

from .figures import Section, number
from .machine import Trouble
from .report import Progress
from .servers import HELLO, PUBLISHER_TOKEN, Bench, Encke

PUBLISHERS = (1, 16, 256)
SECONDS_MIN = 2
MESSAGE = b"x" * 64
SERVER = Encke("epoll-edge", name="encke, durable", settings="encke-durable.toml")
ANSWER_SECONDS_MAX = 10
ANSWER_BYTES_MAX = 64 * 1024


def seconds_of(bench: Bench) -> float:
    return 1 + bench.rounds * (len(PUBLISHERS) + 1) * _seconds(bench)


def measure(bench: Bench, progress: Progress) -> Section:
    seconds = _seconds(bench)
    section = Section("push-durable", "push: durable messages", f"{len(MESSAGE)} bytes, {bench.rounds} rounds of "
                      f"{seconds} s; medians of the rounds; the publishers share one Python thread; generator: its share of a "
                      "core, near 100 % it is the bottleneck",
                      ["", "publishers", "stored/s", "÷ floor", "p50 ms", "p99 ms", "generator"], samples={})
    rounds: dict[int, list[dict]] = {publishers: [] for publishers in (0, *PUBLISHERS)}
    with bench.running(SERVER, HELLO) as run:
        for turn in range(bench.rounds):
            for publishers, samples in rounds.items():
                progress.step(f"push-durable: round {turn + 1}, {publishers or 'floor'}")
                samples.append(publish(run.port, publishers, seconds) if publishers else sync(bench, seconds))
    section.samples = {str(publishers or "floor"): samples for publishers, samples in rounds.items()}
    floor = _middle(rounds[0], "rate")
    for publishers, samples in rounds.items():
        rate = _middle(samples, "rate")
        section.rows.append([
            SERVER.name if publishers else "floor", str(publishers or 1), number(rate), f"{rate / floor:.2f}",
            *(f"{_middle(samples, name) * 1e3:.2f}" for name in ("p50", "p99")),
            f"{_middle(samples, 'busy'):.0%}" if publishers else ""])
    return section


def sync(bench: Bench, seconds: float) -> dict:
    """One thread makes messages durable one by one."""
    lasted = []
    path = bench.new_state("sync") / "file"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            os.write(file, MESSAGE)
            os.fdatasync(file)
            lasted.append(time.perf_counter() - began)
    finally:
        os.close(file)
    return _figures(lasted, seconds, 0)


def publish(port: int, publishers: int, seconds: float) -> dict:
    """Publishers on persistent connections, each with a channel of its own."""
    lasted, cpu = [], time.process_time()
    with ExitStack() as stack:
        ready = stack.enter_context(selectors.DefaultSelector())
        began, received = {}, {}
        for channel in range(publishers):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head = (f"POST /push/bench/{channel} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {PUBLISHER_TOKEN}\r\n"
                    f"Content-Type: text/plain\r\nContent-Length: {len(MESSAGE)}\r\n\r\n")
            request = head.encode() + MESSAGE
            ready.register(client, selectors.EVENT_READ, request)
            began[client], received[client] = time.perf_counter(), b""
            client.sendall(request)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            events = ready.select(ANSWER_SECONDS_MAX)
            if not events:
                raise Trouble(f"{SERVER.name}: no response within {ANSWER_SECONDS_MAX} s")
            for key, _ in events:
                client = key.fileobj
                received[client] += client.recv(ANSWER_BYTES_MAX)
                # The response is one line of JSON.
                if not received[client].endswith(b"}\n"):
                    if not received[client].startswith(b"HTTP/1.1 201"[:len(received[client])]):
                        raise Trouble(f"{SERVER.name}: {received[client][:200]!r}")
                    continue
                if not received[client].startswith(b"HTTP/1.1 201"):
                    raise Trouble(f"{SERVER.name}: {received[client][:200]!r}")
                now = time.perf_counter()
                lasted.append(now - began[client])
                began[client], received[client] = now, b""
                client.sendall(key.data)
    return _figures(lasted, seconds, time.process_time() - cpu)


def _figures(lasted: list[float], seconds: float, cpu: float) -> dict:
    if not lasted:
        raise Trouble(f"{SERVER.name}: no message was stored in {seconds} s")
    lasted.sort()
    return {"rate": len(lasted) / seconds, "p50": lasted[len(lasted) // 2], "p99": lasted[len(lasted) * 99 // 100],
            "busy": cpu / seconds}


def _middle(samples: list[dict], name: str) -> float:
    return statistics.median(sample[name] for sample in samples)


def _seconds(bench: Bench) -> int:
    return max(bench.seconds, SECONDS_MIN)
