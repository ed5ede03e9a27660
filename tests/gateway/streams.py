"""Event streams and WebSockets."""
import os
import socket
from pathlib import Path

from harness import Fault, Gateway, Lab, case, connect, read_head, require

TEXT, BINARY, CLOSE = 1, 2, 8


@case(basic=("plain", "node"), more=("uvicorn", "hypercorn"))
def each_event_arrives_before_the_next_is_written(lab: Lab, app: str) -> str:
    """Client and application proceed in lock-step: event N + 1 is written only after the client has event N, so nothing may wait
    for more bytes. Planted: two events are expected at once."""
    application = lab.application(app)
    server = lab.gateway([{"pattern": "/**", "upstream": application}])
    events = lab.of(20, 100, 1_000)
    client = lab.keep(connect(server.port))
    client.settimeout(lab.patience)
    client.sendall(f"GET /a/sse?events={events} HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
    lines = client.makefile("rb")
    try:
        while (line := lines.readline()).strip():
            require(not line.startswith(b"HTTP/") or b" 200 " in line, line)
        for number in range(events):
            Path(f"{application.environment['GATE']}.{number}").touch()
            for expected in [number, number + 1] if lab.planted else [number]:
                require(lines.readline() == b"data: %d\n" % expected and lines.readline() == b"\n", f"not event {expected}")
        require(lines.read() == b"", "bytes follow the last event")
    except TimeoutError:
        raise Fault("an event did not arrive before the next one") from None
    return f"{events} events"


class WebSocket:
    """A WebSocket client that writes and reads raw frames."""

    def __init__(self, lab: Lab, server: Gateway, target: str = "/a/ws"):
        self.socket = lab.keep(connect(server.port))
        self.socket.settimeout(lab.patience)
        # The first frame follows the request at once: it must not be lost before the 101.
        self.socket.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
        head, self.bytes = read_head(self.socket)
        require(b" 101 " in head and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head, head)

    def send(self, payload: bytes, opcode: int = BINARY) -> None:
        self.socket.sendall(masked_frame(payload, opcode))

    def take(self, size: int) -> bytes:
        while len(self.bytes) < size:
            if not (piece := self.socket.recv(1 << 18)):
                raise Fault(f"the WebSocket ended, with {len(self.bytes)} bytes of {size}")
            self.bytes += piece
        taken, self.bytes = self.bytes[:size], self.bytes[size:]
        return taken

    def receive(self) -> tuple[int, bytes]:
        first, size = self.take(2)
        if size >= 126:
            size = int.from_bytes(self.take(2 if size == 126 else 8), "big")
        return first & 15, self.take(size)


def masked_frame(payload: bytes, opcode: int) -> bytes:
    """A frame of a client (RFC 6455 §5.2)."""
    size = len(payload)
    if size < 126:
        length = bytes([size | 128])
    elif size < 65_536:
        length = bytes([126 | 128]) + size.to_bytes(2, "big")
    else:
        length = bytes([127 | 128]) + size.to_bytes(8, "big")
    mask = os.urandom(4)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    masked = (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")
    return bytes([128 | opcode]) + length + mask + masked


def echoes(client: WebSocket, payload: bytes) -> None:
    client.send(payload)
    try:
        opcode, got = client.receive()
    except OSError as error:
        raise Fault(f"no echo of {len(payload)} bytes: {error!r}") from None
    require((opcode, got) == (BINARY, payload), f"an echo of {len(payload)} bytes differs: {opcode}, {len(got)} bytes")


@case(basic=("plain",), more=("uvicorn", "hypercorn"))
def websockets_echo_and_survive_reloads(lab: Lab, app: str) -> str:
    """Frames of all sizes come back through a tunnel. Its first frame, which follows the 101 at once, is not lost. A SIGHUP that
    adds a route does not touch the tunnel, and neither does a SIGHUP that removes its route. A close handshake reaches the
    application. Planted: the application dies."""
    application = lab.application(app)
    route = {"pattern": "/a/**", "upstream": application}
    server = lab.gateway([route])
    client = WebSocket(lab, server)
    require(client.receive() == (TEXT, b"first"), "the first frame")
    sizes = [0, 1, 125, 126, 65_535, 65_536, 200_000, *(lab.chance.randrange(100_000) for _ in range(lab.of(5, 50, 500)))]
    if app == "plain":
        sizes = [size for size in sizes if size < 65_536]
    for size in sizes:
        echoes(client, lab.chance.randbytes(size))
    for routes in [[route, {"pattern": "/other/**", "upstream": application}], [{"pattern": "/other/**", "upstream": application}]]:
        server.reload(routes)
        if lab.planted:
            application.stop()
        echoes(client, b"after a reload")
    require(server.ask("/other/echo").status == 200, "the new route")
    require(server.ask("/a/echo").status == 404, "the old route is still there")
    client.send((1000).to_bytes(2, "big"), CLOSE)
    opcode, _ = client.receive()
    require(opcode == CLOSE, f"a frame {opcode} in place of the close")
    lab.until(lambda: application.noted("left") or application.noted("closed"), "the application was not closed")
    return f"{len(sizes)} frames, 2 reloads"


@case(basic=("plain",), more=("uvicorn",))
def an_application_learns_that_its_websocket_has_left(lab: Lab, app: str) -> str:
    """A client's connection is reset: the application's ends, too. Planted: the client stays."""
    application = lab.application(app)
    server = lab.gateway([{"pattern": "/**", "upstream": application}])
    client = WebSocket(lab, server)
    require(client.receive() == (TEXT, b"first"), "the first frame")
    if not lab.planted:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.socket.close()
    lab.until(lambda: application.noted("left"), "the application still has its connection", 10)
    return "reset"


@case(basic=("plain",), more=("uvicorn",))
def a_websocket_needs_its_application(lab: Lab, app: str) -> str:
    """Without the application a WebSocket gets a 502, and the next request of the connection is served. Planted: the application
    runs."""
    application = lab.application(app)
    server = lab.gateway([{"pattern": "/**", "upstream": application}])
    if not lab.planted:
        application.stop()
    client = lab.keep(connect(server.port))
    for _ in range(2):
        client.sendall(b"GET /a/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                       b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        head, rest = read_head(client)
        require(b" 502 " in head, head)
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        while len(rest) < length:
            rest += client.recv(4096)
    return "502 twice on one connection"
