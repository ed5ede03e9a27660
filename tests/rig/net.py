"""Connections of clients: requests, heads, responses and WebSocket frames.

    Connection   a socket with a buffer: each read waits for its bytes, or names them in a Fault
    Client       whole requests and responses, by http.client
"""
import contextlib
import http.client
import io
import json
import os
import select
import socket
import struct
from pathlib import Path
from typing import NamedTuple

from .waiting import PATIENCE, Fault, require

TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
FIN = 0x80
UPGRADE = ("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
# The server's Sec-WebSocket-Accept for this key (RFC 6455 §1.3).
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
EVENT_STREAM = "text/event-stream"


class Response(NamedTuple):
    status: int
    body: bytes
    fields: http.client.HTTPMessage

    def __str__(self) -> str:
        return f"{self.status} {dict(self.fields.items())} {self.body[:200]!r}"

    def json(self) -> dict:
        return json.loads(self.body)


class Connection(socket.socket):
    """A TCP connection. `received` has the bytes that no read has taken yet."""

    def __init__(self, port: int, source: str = "127.0.0.1", receive_bytes: int | None = None, patience: float = PATIENCE):
        super().__init__()
        self.received, self.was_reset = bytearray(), False
        self.settimeout(patience)
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_bytes:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            self.bind((source, 0))
            self.connect(("127.0.0.1", port))
        except OSError:
            self.close()
            raise

    def request(self, target: str, method: str = "GET", fields: str = "", version: str = "1.1", host: str = "localhost") -> None:
        """Sends a head. `fields` are whole lines."""
        self.sendall(f"{method} {target} HTTP/{version}\r\nHost: {host}\r\n{fields}\r\n".encode())

    def more(self, awaited: object, bytes_max: int = 1 << 18) -> bool:
        """Waits for further bytes. Returns whether there are any before the end of the connection, which may be a reset."""
        try:
            piece = self.recv(bytes_max)
        except TimeoutError:
            raise Fault(f"{awaited} does not arrive, after {bytes(self.received[-200:])!r}") from None
        except ConnectionError:
            piece, self.was_reset = b"", True
        self.received += piece
        return bool(piece)

    def need(self, awaited: object) -> None:
        """Waits for further bytes, which must arrive."""
        require(self.more(awaited), f"the connection ended before {awaited}, after {bytes(self.received[-200:])!r}")

    def take(self, count: int) -> bytes:
        while len(self.received) < count:
            self.need(f"byte {count}")
        taken = bytes(self.received[:count])
        del self.received[:count]
        return taken

    def until(self, end: bytes) -> bytes:
        """Takes everything up to the end of `end`."""
        while (at := self.received.find(end)) < 0:
            self.need(end)
        return self.take(at + len(end))

    def to_end(self) -> bytes:
        """Reads to the end of the connection, which may be a reset."""
        while self.more("the end of the connection"):
            pass
        return self.take(len(self.received))

    def head(self) -> bytes:
        """A head, without the empty line at its end."""
        return self.until(b"\r\n\r\n")[:-4]

    def response(self) -> Response:
        """A response with a Content-Length, or without a body."""
        response = parsed_head(self.head())
        return response._replace(body=self.take(int(response.fields.get("Content-Length", 0))))

    def frame(self) -> tuple[int, bytes]:
        """The opcode and the payload of a WebSocket frame."""
        while not (found := parsed_frame(self.received)):
            self.need("a WebSocket frame")
        self.take(found[2])
        return found[0] & 15, found[1]

    def reset(self) -> None:
        """Closes the connection by a reset."""
        self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


def parsed_head(head: bytes) -> Response:
    """A response without its body."""
    line, _, fields = head.partition(b"\r\n")
    return Response(int(line.split()[1]), b"", http.client.parse_headers(io.BytesIO(fields + b"\r\n\r\n")))


def parsed_frame(bytes_: bytes | bytearray) -> tuple[int, bytes, int] | None:
    """The first byte, the payload and the size of a server's frame (RFC 6455 §5.2); None if it is incomplete."""
    size, at = bytes_[1] if len(bytes_) > 1 else 0, 2
    require(size < 128, "a frame of the server is masked")
    if size >= 126:
        at = 4 if size == 126 else 10
        size = int.from_bytes(bytes_[2:at], "big")
    return (bytes_[0], bytes(bytes_[at:at + size]), at + size) if len(bytes_) >= at + size else None


def masked_frame(payload: bytes, opcode: int = TEXT, first: int = FIN) -> bytes:
    """A frame of a client. `first` has the bits before the opcode."""
    size = len(payload)
    if size < 126:
        length = bytes([size | 128])
    elif size < 65_536:
        length = bytes([126 | 128]) + size.to_bytes(2, "big")
    else:
        length = bytes([127 | 128]) + size.to_bytes(8, "big")
    mask = os.urandom(4)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return bytes([first | opcode]) + length + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


class Client(http.client.HTTPConnection):
    """A client of one connection, which opens another one after its end."""

    reply = Response

    def __init__(self, server, source: str = "127.0.0.1", port: int | None = None, patience: float | None = None):
        super().__init__("127.0.0.1", port or server.port, timeout=patience or server.patience, source_address=(source, 0))
        self.server = server

    def exchange(self, target: str, method: str = "GET", body: bytes | str | None = None, fields: dict | None = None) -> Response:
        """One request. An event stream has no end: its content is not read."""
        self.request(method, target, body, fields or {})
        response = self.getresponse()
        streams = response.headers.get_content_type() == EVENT_STREAM
        if streams:
            self.close()
        return self.reply(response.status, b"" if streams else response.read(), response.headers)

    def ask(self, target: str, *arguments, **options) -> Response:
        """`exchange` whose failure is a fault."""
        try:
            return self.exchange(target, *arguments, **options)
        except (OSError, http.client.HTTPException) as error:
            self.server.alive()
            raise Fault(f"{target} {arguments} {options}: {error!r}"[:1000]) from None


def reserved_port(stack: contextlib.ExitStack) -> int:
    """A port that a listener of this test can take, and take again after its end. A socket that is bound to it, and does not
    listen, keeps the system from giving it to a connection or to another test."""
    reservation = stack.enter_context(contextlib.closing(socket.socket()))
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("127.0.0.1", 0))
    return reservation.getsockname()[1]


def send_queues(port: int, peers: set[int]) -> list[int]:
    """Bytes that the kernel holds in each connection from `port` to one of these ports, and the peer has not received
    (proc_net_tcp.rst)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    number = lambda address: int(address.rpartition(":")[2], 16)
    return [int(row[4].partition(":")[0], 16) for row in rows if number(row[1]) == port and number(row[2]) in peers]


def ended(client: socket.socket) -> bool:
    """Whether the server has ended the connection; reads and drops its bytes."""
    client.setblocking(False)
    try:
        while client.recv(1 << 16):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def ready(sockets: list[socket.socket], wait: float = 0.0, events: int = select.POLLIN) -> list[socket.socket]:
    """Returns the sockets that can be read, or written with POLLOUT; waits for the first. Unlike select(2) it takes any
    descriptor number."""
    poll, by_number = select.poll(), {socket_.fileno(): socket_ for socket_ in sockets}
    for number in by_number:
        poll.register(number, events)
    return [by_number[number] for number, _ in poll.poll(wait * 1000)]
