"""Guarantees for every single response: none fails under ab, none is delayed by Nagle's algorithm or a delayed acknowledgement.

A server that writes head and body separately, without TCP_NODELAY or a cork, holds back the second write until the client
acknowledges the first, which the client delays by 40 ms. The first responses of a connection hide this, because a new
connection acknowledges immediately. Each kind is therefore requested many times on one connection.
"""

import socket
import time
from dataclasses import dataclass

from .figures import Bar, Section, judge
from .generators import ab_requests
from .machine import Trouble
from .report import Progress
from .servers import HELLO, IMAGE, KIB, KIB16, Bench, Encke, Running

AB_KEPT = (20, 100_000, 500)  # runs, requests, connections
AB_CLOSING = (5, 20_000, 200)
STALL_SECONDS = 0.035  # delayed acknowledgements arrive after 40 ms
STALL_ANSWERS = 60

FAILED_BAR = Bar(0, "failed requests of ab")
STALL_BAR = Bar(0, "responses delayed 35 ms or more")


def ab_seconds(bench: Bench) -> float:
    kept, closing = _ab_runs(bench)
    return (kept * 2.5 + closing * 2.2) * len(_ours(bench, "ab"))


def ab(bench: Bench, progress: Progress) -> Section:
    kept, closing = _ab_runs(bench)
    _, many, wide = AB_KEPT
    _, fewer, narrow = AB_CLOSING
    section = Section("ab", "ab, failed requests",
                      f"ab -n {many} -c {wide} -k, {kept} times; ab -n {fewer} -c {narrow}, {closing} times",
                      ["server", "kept: failed", "slowest run, requests/s", "closing: failed",
                       "slowest run, requests/s"])
    for server in _ours(bench, "ab"):
        try:
            with bench.running(server, HELLO) as run:
                row = [server.name]
                failed = 0
                for runs, requests, connections, keep in ((kept, many, wide, True), (closing, fewer, narrow, False)):
                    loads = []
                    for index in range(runs):
                        progress.step(f"ab: {server.name}, run {index + 1} of {runs}{' -k' if keep else ''}")
                        loads.append(ab_requests(bench, run, requests, connections, keep=keep))
                    missing = sum(load.errors + requests - load.requests for load in loads)
                    failed += missing
                    row += [str(missing), f"{min(load.requests / load.seconds for load in loads):,.0f}"]
            section.rows.append(row)
            section.verdicts.append(judge(section.title, server.name, FAILED_BAR, failed))
        except (Trouble, OSError) as trouble:
            section.failed(server.name, trouble, (FAILED_BAR,), [server.name])
    return section


def _ab_runs(bench: Bench) -> tuple[int, int]:
    """Number of runs on persistent and on closing connections."""
    return (2, 1) if bench.quick else (AB_KEPT[0], AB_CLOSING[0])


def _ours(bench: Bench, section: str) -> list:
    return [server for server in bench.servers_for(section) if isinstance(server, Encke)]


@dataclass(frozen=True)
class Ask:
    """The bytes that a client writes, in pieces, and the number of responses it then waits for."""

    name: str
    pieces: tuple[bytes, ...]
    answers: int = 1
    bodyless: bool = False


def _asks(path: str) -> list[Ask]:
    def request(method: str, target: str, *fields: str) -> bytes:
        return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", *fields, "", ""]).encode()

    hello = request("GET", path)
    return [
        Ask("13 bytes", (hello,)),
        Ask("1 KiB", (request("GET", f"/{KIB.name}"),)),
        Ask("16 KiB", (request("GET", f"/{KIB16.name}"),)),
        Ask("an image", (request("GET", f"/{IMAGE.name}"),)),
        Ask("HEAD", (request("HEAD", f"/{KIB16.name}"),), bodyless=True),
        Ask("a range", (request("GET", f"/{KIB16.name}", "Range: bytes=100-4999"),)),
        Ask("a missing file", (request("GET", "/missing"),)),
        Ask("three pipelined requests", (hello + request("GET", f"/{KIB16.name}") + hello,), answers=3),
        Ask("a request in two pieces", (hello[:20], hello[20:])),
    ]


def stall_seconds(bench: Bench) -> float:
    return 2 * len(bench.servers_for("stall"))


def stall(bench: Bench, progress: Progress) -> Section:
    section = Section("stall", "delayed responses",
                      f"{STALL_ANSWERS} requests of each kind in sequence, on one connection per kind: the number of "
                      f"responses that took {STALL_SECONDS * 1000:.0f} ms or more",
                      ["server", "delayed", "slowest kind", "its median ms", "its slowest ms"])
    # The floor sends the same bytes for every path, so it has no HEAD and no range.
    for server in [server for server in bench.servers_for("stall") if server.name != "floor"]:
        progress.step(f"stall: {server.name}")
        try:
            with bench.running(server, HELLO) as run:
                times = {ask.name: answer_times(run, ask) for ask in _asks(server.path(HELLO))}
        except (Trouble, OSError) as trouble:
            section.failed(server.name, trouble, server.barred(STALL_BAR), [server.name])
            continue
        held = {name: sum(t >= STALL_SECONDS for t in of) for name, of in times.items()}
        slowest = max(times, key=lambda name: max(times[name]))
        ordered = sorted(times[slowest])
        section.rows.append([server.name, str(sum(held.values())), slowest,
                             f"{ordered[len(ordered) // 2] * 1e3:.2f}", f"{ordered[-1] * 1e3:.2f}"])
        section.notes += [f"{server.name}: {count} of {STALL_ANSWERS} responses to {name} were delayed"
                          for name, count in held.items() if count]
        if isinstance(server, Encke):
            section.verdicts.append(judge(section.title, server.name, STALL_BAR, sum(held.values())))
    return section


def answer_times(run: Running, ask: Ask) -> list[float]:
    """Returns the seconds from the first byte written to the last byte read, for each repetition on one connection."""
    times = []
    with socket.create_connection(("127.0.0.1", run.port), timeout=10) as connection:
        # Nagle's algorithm must not delay the client's own second piece.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(STALL_ANSWERS):
            start = time.monotonic()
            for piece in ask.pieces:
                connection.sendall(piece)
            _read_answers(connection, ask)
            times.append(time.monotonic() - start)
    return times


def _read_answers(connection: socket.socket, ask: Ask) -> None:
    received = bytearray()
    for _ in range(ask.answers):
        while (end := received.find(b"\r\n\r\n")) < 0:
            _receive(connection, received)
        head = bytes(received[:end]).lower()
        del received[:end + 4]
        length = 0 if ask.bodyless else _content_length(head)
        while len(received) < length:
            _receive(connection, received)
        del received[:length]


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    raise Trouble(f"a response without Content-Length: {head[:80]!r}")


def _receive(connection: socket.socket, into: bytearray) -> None:
    piece = connection.recv(1 << 18)
    if not piece:
        raise Trouble("the server closed the connection within a response")
    into += piece
