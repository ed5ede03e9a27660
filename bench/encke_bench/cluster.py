"""Cluster: cost of a delivery for a node that shares its channels by NATS, and of a message that it consumes.

    for each round, in random order:
        cluster    two nodes on one NATS, 1,000 event streams each: a message is published to the first
        alone      two separate servers, 1,000 event streams each: a message is published to both
        unwanted   a connection to NATS fills the stream; a third node, without subscribers, follows its head
        read       also a fourth node without subscribers, which reads the whole stream (`filters = 1`)

All servers, including NATS, are on the server's core. CPU time is that of both Enckes, all threads (including the one for
NATS), ÷ deliveries; the CPU time of NATS is reported separately.
"""

import selectors
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .crowds import settle
from .figures import Bar, Section, judge, number, paired
from .machine import Process, Trouble, cpu, free_port
from .report import Progress
from .servers import HELLO, PUBLISHER_TOKEN, Bench, Encke, Place, Running, located

STREAMS = 1_000
MESSAGES = 50  # per round
BYTES = 64
ANSWER_SECONDS_MAX = 20
PIECE_BYTES = 64 * 1024
UNWANTED_MESSAGES = 10_000  # per round
CLUSTER, ALONE = "a node of a cluster", "an independent server"
UNWANTED = "a message that no client here needs"
READ = "a message that is received, before its delivery"
COST_BAR = Bar(1.10, "CPU per delivery ÷ an independent server")


class Node(Encke):
    """A node that shares a NATS server."""

    def __init__(self, nats: int, more: str = ""):
        super().__init__("epoll-edge", name=CLUSTER, settings="encke-push.toml")
        self._nats = nats
        self._more = more

    def command(self, place: Place) -> list[str]:
        argv = super().command(place)
        settings = Path(argv[argv.index("-c") + 1])
        settings.write_text(f'{settings.read_text()}\n[cluster]\nnats = "nats://127.0.0.1:{self._nats}"\n{self._more}')
        return argv


class Streams:
    """Event streams of one server, all of one channel, read by one thread."""

    def __init__(self, run: Running, channel: str):
        self.run = run
        self._ready = selectors.EpollSelector()
        self._publisher = socket.create_connection(("127.0.0.1", run.port), ANSWER_SECONDS_MAX)
        self._channel = channel
        self._last = {}
        for _ in range(STREAMS):
            client = socket.create_connection(("127.0.0.1", run.port), ANSWER_SECONDS_MAX)
            client.sendall(f"GET /push/{channel} HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
            self._ready.register(client, selectors.EVENT_READ)
            self._last[client] = b""
        self.wait(b"\nid: ")

    def close(self) -> None:
        for client in self._last:
            client.close()
        self._publisher.close()
        self._ready.close()

    def publish(self, payload: bytes) -> None:
        head = (f"POST /push/{self._channel} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {PUBLISHER_TOKEN}\r\n"
                f"Content-Type: text/plain\r\nContent-Length: {len(payload)}\r\n\r\n")
        self._publisher.sendall(head.encode() + payload)

    def published(self) -> None:
        """Reads the response to the publisher, which must be a success."""
        answer = b""
        while not answer.endswith(b"}\n"):
            piece = self._publisher.recv(PIECE_BYTES)
            answer += piece
            if not piece or not answer.startswith(b"HTTP/1.1 201"[:len(answer)]):
                raise Trouble(f"{self.run.server.name}: unexpected response to a publish: {answer[:200]!r}")

    def wait(self, part: bytes) -> None:
        """Waits until every stream has received `part`."""
        missing = STREAMS
        while missing:
            events = self._ready.select(ANSWER_SECONDS_MAX)
            if not events:
                raise Trouble(f"{self.run.server.name}: {missing} of {STREAMS} streams did not receive the message")
            for key, _ in events:
                client = key.fileobj
                piece = client.recv(PIECE_BYTES)
                if not piece:
                    raise Trouble(f"{self.run.server.name} closed a stream")
                # `part` may arrive in two pieces.
                text = self._last[client] + piece
                if part in text:
                    missing -= 1
                    text = b""
                self._last[client] = text[-4 * BYTES:]


def seconds_of(bench: Bench) -> float:
    return 5 + (bench.rounds + 1) * (1 + MESSAGES * 4 * STREAMS * 25e-6)


def cost(bench: Bench, progress: Progress) -> Section:
    section = Section("cluster-cost", "cluster: cost of a delivery, and of a consumed message",
                      f"two servers with {STREAMS:,} event streams each, {BYTES} bytes, {MESSAGES} messages per round, one "
                      f"after the other; unneeded messages, filtered or received: {UNWANTED_MESSAGES:,} at once, ÷ messages",
                      ["", "CPU µs", "÷ independent [95 %]", "NATS' CPU µs/message"], samples={})
    rounds: dict[str, list[dict]] = {CLUSTER: [], ALONE: [], UNWANTED: [], READ: []}
    with ExitStack() as stack:
        progress.step("cluster-cost: servers and streams start")
        nats, nats_port = stack.enter_context(_nats(bench))
        servers = {CLUSTER: Node(nats_port), ALONE: Encke("epoll-edge", name=ALONE, settings="encke-push.toml")}
        pairs = {name: [_streams(bench, stack, server) for _ in range(2)] for name, server in servers.items()}
        publisher = stack.enter_context(_publisher(nats_port))
        idle, reader = (stack.enter_context(bench.running(Node(nats_port, more), HELLO)) for more in ("", "filters = 1\n"))
        turns = {CLUSTER: lambda: _round(pairs[CLUSTER], nats, shared=True), ALONE: lambda: _round(pairs[ALONE], nats, shared=False),
                 UNWANTED: lambda: _filled_round(publisher, idle, reader, nats), READ: lambda: _filled_round(publisher, reader, reader, nats)}
        for turn in range(bench.rounds + 1):
            order = list(rounds)
            bench.chance.shuffle(order)
            for name in order:
                progress.step(f"cluster-cost: round {turn} of {bench.rounds}, {name}")
                rounds[name].append(turns[name]())
    samples = {name: of[1:] for name, of in rounds.items()}  # the first pass is not measured
    section.samples = samples
    ratio = paired(*([sample["cpu_us"] for sample in samples[name]] for name in (CLUSTER, ALONE)))
    for name, of in samples.items():
        section.rows.append([name, _middle(of, "cpu_us"), str(ratio) if name == CLUSTER else "–",
                             "–" if name == ALONE else _middle(of, "nats_us")])
    section.verdicts.append(judge(section.title, CLUSTER, COST_BAR, ratio, rounds=bench.rounds))
    return section


def _streams(bench: Bench, stack: ExitStack, server: Encke) -> Streams:
    streams = Streams(stack.enter_context(bench.running(server, HELLO)), "cost")
    stack.callback(streams.close)
    return streams


def _round(pair: list[Streams], nats: Process, shared: bool) -> dict:
    """Sends messages one after the other. All processes are idle when CPU time is read."""
    first, other = pair
    pids = [streams.run.pid for streams in pair]
    for streams in pair:
        settle(streams.run)
    before, nats_before = [cpu(pid) for pid in pids], cpu(nats.root_pid)
    for _ in range(MESSAGES):
        payload = _payload()
        for streams in pair[:1] if shared else pair:
            streams.publish(payload)
        other.wait(payload)
        first.wait(payload)
        for streams in pair[:1] if shared else pair:
            streams.published()
    for streams in pair:
        settle(streams.run)
    ran = sum(cpu(pid).since(earlier)[0] for pid, earlier in zip(pids, before, strict=True))
    return {"cpu_us": ran / 1e3 / (2 * STREAMS * MESSAGES), "nats_us": cpu(nats.root_pid).since(nats_before)[0] / 1e3 / MESSAGES}


def _middle(samples: list[dict], name: str) -> str:
    return number(statistics.median(sample[name] for sample in samples))


def _filled_round(publisher: socket.socket, node: Running, reader: Running, nats: Process) -> dict:
    """Measures a node while the stream is filled without subscribers, until the node that reads all of it is idle."""
    settle(reader)
    settle(node)
    before, nats_before = cpu(node.pid), cpu(nats.root_pid)
    payload = _payload()
    publisher.sendall(b"PUB encke.m.unwanted %d\r\n%s\r\n" % (len(payload), payload) * UNWANTED_MESSAGES)
    settle(reader)
    settle(node)
    return {"cpu_us": cpu(node.pid).since(before)[0] / 1e3 / UNWANTED_MESSAGES,
            "nats_us": cpu(nats.root_pid).since(nats_before)[0] / 1e3 / UNWANTED_MESSAGES}


def _payload() -> bytes:
    return str(time.perf_counter_ns()).encode().rjust(BYTES, b"-")


@contextmanager
def _nats(bench: Bench) -> Iterator[tuple[Process, int]]:
    state, port = bench.new_state("nats"), free_port()
    argv = [located("nats-server", "nats-server"), "-js", "-a", "127.0.0.1", "-p", str(port), "-sd", str(state)]
    process = Process("nats-server", argv, bench.cores.server, state / "stderr")
    try:
        process.wait_listening(port)
        yield process, port
    finally:
        process.stop()


@contextmanager
def _publisher(port: int) -> Iterator[socket.socket]:
    """Yields a connection that uses the NATS protocol directly."""
    with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX) as client:
        client.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        received = b""
        while b"PONG" not in received:
            piece = client.recv(PIECE_BYTES)
            if not piece:
                raise Trouble(f"NATS closed a connection: {received[-80:]!r}")
            received += piece
        yield client
