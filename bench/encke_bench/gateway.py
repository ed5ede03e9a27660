"""Gateways: the cost of a proxied request, a relayed response, a named file and an idle WebSocket for the front.

    client ─► front ─► application
    │         └─ on the server's core: only its CPU time, memory and system calls count
    └─ on the generator's core, and so is the application: nginx with fixed responses, php-fpm, or a thread of this process

Fronts have kept connections on both sides, except to php-fpm, and are loaded by rounds in random order. All of them get the same bytes from the same
application. Tunnels and event streams have an application in Python: it only has to accept, to echo and to write an event.
"""

import functools
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from .counts import calls_per_request, spelled
from .crowds import settle
from .figures import Bar, Section, judge
from .machine import Trouble, rss_bytes
from .report import Progress
from .servers import APPLICATION, HELLO, IMAGE, PHP, Bench, Encke, Resource, Running, Server
from .timed import WARM_REQUESTS, Entry, Workload, by_rounds, fill

SCRIPT = Resource("hello.php", HELLO.size)
SCRIPT_TEXT = "<?php header('Content-Type: text/plain'); echo 'Hello, World!';"
ACCEL = Resource("accel/image.png", IMAGE.size)
OWN_FILE = ", own file"
TUNNELS = 3_000
CALL_RUNS = (500, 3_500)
EVENTS = 100  # per round and front
EVENT_PAUSE = 0.004
GIGABYTE = 1 << 30
GIGABYTE_FILE = "1g.bin"
TIMEOUT_SECONDS = 20
PIECE_BYTES = 1 << 20
ECHOED = b"\x82\x84\0\0\0\0echo"  # a masked frame, which the application returns as it is

TIMED = (
    Workload("gateway-get", "gateway: GET of 13 bytes, c = 16", HELLO, 16,
             (Bar(0.85, "CPU ÷ nginx", "nginx"), Bar(0.90, "CPU ÷ haproxy", "haproxy"))),
    Workload("gateway-relay", "gateway: 2,397,701 bytes relayed, c = 16", IMAGE, 16, (Bar(0.9, "CPU ÷ haproxy", "haproxy"),)),
    Workload("gateway-accel", "gateway: 2,397,701 bytes by X-Accel-Redirect, c = 16", ACCEL, 16,
             (Bar(1.0, "CPU ÷ nginx", "nginx"), Bar(1.1, "CPU ÷ own file", OWN_FILE))),
    Workload("gateway-fastcgi", "gateway: a script of php-fpm, 13 bytes, c = 16", SCRIPT, 16, (Bar(1.0, "CPU ÷ nginx", "nginx"),)),
)
CALLS_BAR = Bar(6, "system calls per proxied GET")
TUNNEL_BAR = Bar(600, "bytes of RSS per idle WebSocket")
EVENT_BAR = Bar(1.0, "ms from the application's write to the client, p99")
GROWTH_BAR = Bar(1.0, "MiB of RSS while 1 GiB is relayed")
DIRECT = "no gateway"


def timed(workload: Workload, bench: Bench, progress: Progress) -> Section:
    entries = [Entry(server) for server in bench.servers_for(workload.name)]
    with ExitStack() as stack:
        behind = stack.enter_context(_application(bench, workload.resource))
        for entry in entries:
            own = OWN_FILE in entry.server.name
            resource = IMAGE if own else workload.resource
            try:
                entry.run = stack.enter_context(bench.running(entry.server, resource, backend=behind.port))
                content = {ACCEL: IMAGE, SCRIPT: HELLO}.get(workload.resource, workload.resource)
                entry.run.verify(bench.root, WARM_REQUESTS if content is HELLO else 2, content)
            except Trouble as trouble:
                entry.failure = str(trouble)
        by_rounds(workload, bench, progress, entries)
    return _timed_section(bench, workload, entries)


def _timed_section(bench: Bench, workload: Workload, entries: list[Entry]) -> Section:
    bases = [bar.against for bar in workload.bars]
    bases += [name for name in ("nginx", "haproxy") if name not in bases and name in [entry.server.name for entry in entries]]
    section = Section(workload.name, workload.title, f"{workload.how}; CPU time of the front only",
                      ["front", "CPU µs/request", *[f"÷ {base.removeprefix(', ')} [95 %]" for base in bases], "requests/s",
                       "p50 µs", "p99 µs", "waited", "generator"])
    fill(section, bench, workload, entries, bases, rate_at=2 + len(bases), base_of=_base)
    return section


def _base(base: str, name: str) -> str:
    """The server that a front is compared with: a peer, or the same Encke with a file of its own."""
    return name.removesuffix(OWN_FILE) + OWN_FILE if base == OWN_FILE else base


def calls_seconds(bench: Bench) -> float:
    return 5 * len(bench.servers_for("gateway-calls"))


def calls(bench: Bench, progress: Progress) -> Section:
    short, long = CALL_RUNS
    section = Section("gateway-calls", "gateway: system calls per GET of 13 bytes, c = 1",
                      f"strace -f -c, h2load --h1 -c 1, difference between {short:,} and {long:,} requests",
                      ["front", "system calls", "which"])
    for server in bench.servers_for("gateway-calls"):
        progress.step(f"gateway-calls: {server.name}")
        bars = server.barred(CALLS_BAR)
        try:
            each = calls_per_request(bench, CALL_RUNS, 1, functools.partial(_front, bench, server))
        except (Trouble, OSError) as trouble:
            section.failed(server.name, trouble, bars, [server.name])
            continue
        total = round(sum(each.values()), 2)
        section.rows.append([server.name, f"{total:.2f}", spelled(each)])
        section.verdicts += [judge(section.title, server.name, bar, total) for bar in bars]
    return section


def tunnels_seconds(bench: Bench) -> float:
    return 5 * len(bench.servers_for("gateway-tunnels"))


def tunnels(bench: Bench, progress: Progress) -> Section:
    section = Section("gateway-tunnels", f"gateway: memory of {TUNNELS:,} idle WebSockets, bytes",
                      f"(RSS with {TUNNELS:,} tunnels after an echo through each − RSS of the fresh process) ÷ {TUNNELS:,}, "
                      "smaps_rollup", ["front", "fresh RSS, MB", "each"])
    for server in bench.servers_for("gateway-tunnels"):
        progress.step(f"gateway-tunnels: {server.name}")
        bars = server.barred(TUNNEL_BAR)
        try:
            with Echoes() as behind, bench.running(server, HELLO, backend=behind.port) as run, ExitStack() as stack:
                settle(run)
                fresh = rss_bytes(run.pid)
                for _ in range(TUNNELS):
                    _tunnel(stack, run)
                settle(run)
                each = (rss_bytes(run.pid) - fresh) / TUNNELS
        except (Trouble, OSError) as trouble:
            section.failed(server.name, trouble, bars, [server.name])
            continue
        section.rows.append([server.name, f"{fresh / 1e6:.2f}", f"{each:,.0f}"])
        section.verdicts += [judge(section.title, server.name, bar, round(each)) for bar in bars]
    return section


def _tunnel(stack: ExitStack, run: Running) -> None:
    client = stack.enter_context(socket.create_connection(("127.0.0.1", run.port), TIMEOUT_SECONDS))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.sendall(b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                   b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    head = _until(client, b"\r\n\r\n")
    if b" 101 " not in head:
        raise Trouble(f"{run.server.name}: no WebSocket: {head[:100]!r}")
    client.sendall(ECHOED)
    _until(client, ECHOED)


class Echoes:
    """An application that accepts every WebSocket and returns all bytes, on a thread of this process."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=TUNNELS)
        self.port = self._listener.getsockname()[1]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "Echoes":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self._thread.join()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as ready, ExitStack() as stack:
            stack.enter_context(self._listener)
            ready.register(self._listener, selectors.EVENT_READ)
            while not self._over.is_set():
                for key, _ in ready.select(0.2):
                    if key.fileobj is self._listener:
                        client = stack.enter_context(self._listener.accept()[0])
                        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        ready.register(client, selectors.EVENT_READ)
                    else:
                        self._answer(ready, key.fileobj)

    @staticmethod
    def _answer(ready: selectors.BaseSelector, client: socket.socket) -> None:
        try:
            piece = client.recv(4096)
            if piece.startswith(b"GET "):
                piece = (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                         b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
            client.sendall(piece)
        except OSError:
            piece = b""  # the front has ended
        if not piece:
            ready.unregister(client)
            client.close()


def sse_seconds(bench: Bench) -> float:
    return bench.rounds * EVENTS * (EVENT_PAUSE + 0.002) * (1 + len(bench.servers_for("gateway-sse")))


def sse(bench: Bench, progress: Progress) -> Section:
    section = Section("gateway-sse", "gateway: the first event of a stream, ms",
                      f"{EVENTS} new streams per round, one after the other on an idle machine: from the application's write to "
                      "the client's receive, both in one thread of Python", ["front", "p50", "p99", "most"], samples={})
    lasted: dict[str, list[float]] = {DIRECT: []}
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:
        ports = {DIRECT: listener.getsockname()[1]}
        for server in bench.servers_for("gateway-sse"):
            try:
                ports[server.name] = stack.enter_context(bench.running(server, HELLO, backend=ports[DIRECT])).port
                lasted[server.name] = []
            except Trouble as trouble:
                section.failed(server.name, trouble, server.barred(EVENT_BAR))
        for turn in range(bench.rounds):
            for name in bench.chance.sample(list(lasted), len(lasted)):
                progress.step(f"gateway-sse: round {turn + 1} of {bench.rounds}, {name}")
                lasted[name] += [_event(name, ports[name], listener) for _ in range(EVENTS)]
    section.samples = lasted
    ours = {server.name for server in bench.servers_for("gateway-sse") if isinstance(server, Encke)}
    for name, times in lasted.items():
        times = sorted(times)
        p50, p99, most = (times[min(len(times) * share // 100, len(times) - 1)] * 1e3 for share in (50, 99, 100))
        section.rows.append([name, f"{p50:.3f}", f"{p99:.3f}", f"{most:.3f}"])
        if name in ours:
            section.verdicts.append(judge(section.title, name, EVENT_BAR, round(p99, 3), rounds=bench.rounds))
    return section


def _event(name: str, port: int, listener: socket.socket) -> float:
    """Opens a stream, and returns the time of its first event."""
    time.sleep(EVENT_PAUSE)
    with ExitStack() as stack:
        client = stack.enter_context(socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS))
        client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        listener.settimeout(TIMEOUT_SECONDS)
        application = stack.enter_context(listener.accept()[0])
        application.settimeout(TIMEOUT_SECONDS)
        application.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _until(application, b"\r\n\r\n")
        application.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
                            b"Connection: close\r\n\r\n")
        time.sleep(EVENT_PAUSE)  # h2o keeps the head until there is content, so the client does not wait for it
        began = time.perf_counter()
        application.sendall(b"e\r\ndata: event\n\n\n\r\n")
        received = _until(client, b"data: event\n\n")
        took = time.perf_counter() - began
        if not received:
            raise Trouble(f"{name} sent no event")
        return took


@dataclass
class Growth:
    """A reading of the largest RSS since the last reset (proc(5), clear_refs and VmHWM)."""

    pid: int

    def reset(self) -> None:
        with open(f"/proc/{self.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")

    def most(self) -> int:
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:"))


def gigabyte_seconds(bench: Bench) -> float:
    return 4 * len(bench.servers_for("gateway-gigabyte"))


def gigabyte(bench: Bench, progress: Progress) -> Section:
    section = Section("gateway-gigabyte", "gateway: memory while 1 GiB is relayed",
                      "largest RSS during one response of 1 GiB less the RSS after a first small request",
                      ["front", "RSS before, MB", "growth, MiB", "seconds"])
    with (bench.root / GIGABYTE_FILE).open("wb") as file:
        file.truncate(GIGABYTE)
    for server in bench.servers_for("gateway-gigabyte"):
        progress.step(f"gateway-gigabyte: {server.name}")
        bars = server.barred(GROWTH_BAR)
        try:
            with _front(bench, server) as run:
                run.verify(bench.root, 2)
                settle(run)
                growth, before = Growth(run.pid), rss_bytes(run.pid)
                growth.reset()
                seconds = _relay(run)
                grown = max(growth.most() - before, 0) / (1 << 20)
        except (Trouble, OSError) as trouble:
            section.failed(server.name, trouble, bars, [server.name])
            continue
        section.rows.append([server.name, f"{before / 1e6:.2f}", f"{grown:.2f}", f"{seconds:.2f}"])
        section.verdicts += [judge(section.title, server.name, bar, round(grown, 2)) for bar in bars]
    (bench.root / GIGABYTE_FILE).unlink()
    return section


def _relay(run: Running) -> float:
    """Reads the whole response, as fast as it arrives. Returns the time."""
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", run.port), TIMEOUT_SECONDS) as client:
        client.sendall(f"GET /{GIGABYTE_FILE} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        data = _until(client, b"\r\n\r\n")
        received = len(data) - data.index(b"\r\n\r\n") - 4
        room = bytearray(PIECE_BYTES)
        while count := client.recv_into(room):
            received += count
    if b" 200 " not in data[:20] or received != GIGABYTE:
        raise Trouble(f"{run.server.name}: {received:,} bytes of {GIGABYTE:,}, head {data[:60]!r}")
    return time.perf_counter() - began


@contextmanager
def _front(bench: Bench, server: Server, **how) -> Iterator[Running]:
    """Runs a gateway and its application."""
    with _application(bench) as behind, bench.running(server, HELLO, backend=behind.port, **how) as run:
        yield run


@contextmanager
def _application(bench: Bench, resource: Resource = HELLO) -> Iterator[Running]:
    if resource is SCRIPT:
        (bench.root / SCRIPT.name).write_text(SCRIPT_TEXT)
    server = PHP if resource is SCRIPT else APPLICATION
    with bench.running(server, HELLO, core=bench.cores.generator) as run:
        yield run


def _until(client: socket.socket, mark: bytes) -> bytes:
    """Reads until the mark has arrived. Returns all bytes."""
    received = b""
    while mark not in received:
        piece = client.recv(65_536)
        if not piece:
            raise Trouble(f"the connection ended before {mark!r}: {received[:100]!r}")
        received += piece
    return received
