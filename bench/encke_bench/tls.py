"""TLS: memory of an idle connection, and of a subscriber.

    fresh ─► RSS ─► N clients perform a handshake, send one request and stay idle ─► RSS

Fewer clients than without TLS: each is an OpenSSL session in one thread of Python, and takes 30 KB itself.
"""

import ssl
import socket
from contextlib import ExitStack

from .crowds import settle
from .figures import Bar, Section, judge
from .machine import Trouble, rss_bytes
from .report import Progress
from .servers import HELLO, Bench, Encke, Running

CONNECTIONS = 8_000
TIMEOUT_SECONDS = 10

IDLE_BAR = Bar(4_200, "bytes of RSS per idle connection")
SUBSCRIBER_BAR = Bar(4_500, "bytes of RSS per subscriber")


def memory_seconds(bench: Bench) -> float:
    return 60 * len(bench.servers_for("tls-memory"))


def memory(bench: Bench, progress: Progress) -> Section:
    section = Section("tls-memory", "TLS: memory of a connection, bytes",
                      f"(RSS with {CONNECTIONS:,} idle connections − RSS before) ÷ {CONNECTIONS:,}, smaps_rollup; TLS 1.3, "
                      "each kind on a fresh process",
                      ["server", "fresh RSS, MB", "idle after a GET", "subscriber"])
    for server in bench.servers_for("tls-memory"):
        progress.step(f"tls-memory: {server.name}")
        ours = isinstance(server, Encke)
        row = [server.name]
        try:
            for rest, bar in ((_asked, IDLE_BAR), (_subscribed, SUBSCRIBER_BAR)):
                if bar is SUBSCRIBER_BAR and not ours:
                    row.append("–")
                    continue
                with bench.running(server, HELLO) as run:
                    settle(run)
                    fresh = rss_bytes(run.pid)
                    each = _each(run, rest, fresh)
                if bar is IDLE_BAR:
                    row.append(f"{fresh / 1e6:.2f}")
                row.append(f"{each:,.0f}")
                if ours:
                    section.verdicts.append(judge(section.title, server.name, bar, round(each)))
            section.rows.append(row)
        except (Trouble, OSError) as trouble:
            section.failed(server.name, trouble, (IDLE_BAR, SUBSCRIBER_BAR) if ours else (), row)
    return section


def _each(run: Running, rest, fresh: int) -> float:
    context = ssl._create_unverified_context()
    context.set_alpn_protocols(["http/1.1"])
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            plain = socket.create_connection(("127.0.0.1", run.port), TIMEOUT_SECONDS)
            client = stack.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
            rest(client, run)
        settle(run)
        return (rss_bytes(run.pid) - fresh) / CONNECTIONS


def _asked(client: ssl.SSLSocket, run: Running) -> None:
    client.sendall(f"GET {run.server.path(HELLO)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    _until(client, b"Hello, World!")


def _subscribed(client: ssl.SSLSocket, run: Running) -> None:
    client.sendall(b"GET /push/news HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    _until(client, b"id: ")


def _until(client: ssl.SSLSocket, mark: bytes) -> None:
    received = b""
    while mark not in received:
        piece = client.recv(65_536)
        if not piece:
            raise Trouble("the server closed the connection within a response")
        received += piece
