"""Attacks on the gateway: clients that take no response, and clients and applications that break off.

    attacker ──► encke serve ──► Flooding, an application of this process
"""
import asyncio
import socket
import struct
import threading

from attackers import AttackRig, attack, expect
from http2 import (CANCEL, END_HEADERS, H2, HEADERS, RST_STREAM, STREAM_BYTES_MAX, STREAMS, UNSENT_BYTES_MAX, frame, get, head,
                   window)
from rig import MIB, Fault, until

CONTENT = b"x" * MIB
# Under io_uring a worker may hold buffers of 4 MiB, and 16 MiB that have arrived on connections when they were paused.
RING_BYTES_MAX = 2 * 20 * MIB


class Flooding:
    """An application that sends 1 MiB to each request, as fast as its peer reads."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listener.setblocking(False)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.requests = 0
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self.loop.run_until_complete(self._accept())

    async def _accept(self) -> None:
        while True:
            try:
                connection, _ = await self.loop.sock_accept(self.listener)
            except OSError:
                return
            connection.setblocking(False)
            self.loop.create_task(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                received = b""
                while b"\r\n\r\n" not in received:
                    if not (piece := await self.loop.sock_recv(connection, 65_536)):
                        return
                    received += piece
                self.requests += 1
                if b"upgrade: websocket" in received.lower():
                    await self.loop.sock_sendall(connection, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                                                             b"Connection: Upgrade\r\n\r\n" + CONTENT)
                    await self.loop.sock_recv(connection, 1)
                    return
                await self.loop.sock_sendall(connection, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(CONTENT))
                await self.loop.sock_sendall(connection, CONTENT)
                await self.loop.sock_recv(connection, 1)
            except OSError:
                return

    def close(self) -> None:
        self.listener.close()


class Impatient:
    """An application that closes connections whose request has a body, and responds to others."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                received = connection.recv(65_536)
                if received.startswith(b"POST ") and not received.endswith(b"abc"):
                    connection.recv(65_536)
                elif received.startswith(b"GET "):
                    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")

    def close(self) -> None:
        self.listener.close()


def shut_windows_of_an_application(rig: AttackRig, connections: int, request) -> str:
    """Opens `connections` × 128 streams with a window of 0 for responses of an application, and judges the memory that they hold
    once the application has all requests."""
    application = Flooding()
    server = rig.server()
    server.reload({"site": [{"root": str(server.root), "route": [{"pattern": "/app/**", "upstream": application.url}]}]})
    before = server.anonymous_bytes()
    with server.innocent(push=True) as innocent:
        clients = []
        for _ in range(connections):
            client = H2(server, initial_window=0)
            client.send(b"".join(request(stream) for stream in range(1, 2 * STREAMS, 2)))
            clients.append(client)
        streams = connections * STREAMS
        until(lambda: application.requests >= streams, lambda: f"{application.requests} of {streams} requests", rig.patience)
        # All connections have had their turn, and the share of each is known.
        for client in clients:
            client.ping()
        until(lambda: sum(len(client.read() or client.heads) for client in clients) >= connections,
              lambda: "no response begins", rig.patience)
        innocent.served()
        unsent = server.value("encke_h2_unsent_bytes")
        grown = server.anonymous_bytes() - before
        # A client that frees its share goes on: its other streams get all of their content.
        client, kept = clients[0], range(1, 9, 2)
        client.send(b"".join(frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL)) for stream in range(9, 2 * STREAMS, 2)))
        client.send(window(0, len(kept) * 2 * MIB) + b"".join(window(stream, 2 * MIB) for stream in kept))
        client.until(lambda: all(len(client.bodies.get(stream, b"")) >= MIB for stream in kept), "a stream does not continue")
    application.close()
    bound = UNSENT_BYTES_MAX + streams * STREAM_BYTES_MAX + (RING_BYTES_MAX if rig.backend == "uring" else 0)
    figures = (f"{connections} x {STREAMS} streams: memory +{grown / MIB:.0f} MiB, at most {bound / MIB:.0f}, "
               f"charged {unsent / MIB:.0f}")
    if grown > bound:
        raise Fault(figures)
    return f"{figures}; {innocent}"


@attack()
def shut_windows_of_an_application_hold_little_memory(rig: AttackRig) -> str:
    """10 connections request 1 MiB of an application 128 times, with a window of 0: memory grows by less than 64 MiB and 8 KiB a
    stream.

    A file and channels must be served meanwhile."""
    return shut_windows_of_an_application(rig, 10, lambda stream: get(stream, "/app/"))


@attack()
def shut_windows_of_tunnels_hold_little_memory(rig: AttackRig) -> str:
    """10 connections open 128 WebSockets to an application that sends 1 MiB, with a window of 0: memory grows by less than 64 MiB and
    8 KiB a stream.

    A file and channels must be served meanwhile."""
    fields = {":protocol": "websocket", "sec-websocket-version": "13"}
    return shut_windows_of_an_application(
        rig, 10, lambda stream: frame(HEADERS, END_HEADERS, stream, head("/app/", b"CONNECT", fields)))


@attack()
def unfinished_bodies_eject_no_target(rig: AttackRig) -> str:
    """A client sends a part of 12 bodies to an application that gives up: its target stays, and serves the next request."""
    application = Impatient()
    server = rig.server()
    server.reload({"site": [{"root": str(server.root), "route": [{"pattern": "/app/**", "upstream": application.url}]}]})
    for _ in range(12):
        client = server.connect()
        client.sendall(b"POST /app/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc")
        client.head()
    failures = server.value("encke_gateway_target_failures_total")
    expect(server.ask("/app/"), 200, b"ok", "a complete request")
    application.close()
    if failures:
        raise Fault(f"12 unfinished bodies are {failures} failures of the target")
    return "12 unfinished bodies, no failure of the target"
