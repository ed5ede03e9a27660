"""Servers of live streams, and their sources and listeners.

    LiveLab.station ─► Station    an `encke serve` with live streams
                          ├─ source   ─► Source    a PUT with chunks, by a socket
                          ├─ ffmpeg   ─► Pusher    a PUT by ffmpeg, through a relay that records the body
                          └─ listener ─► Listener  a GET: HTTP/1.0, HTTP/1.1, HTTP/2 by curl, or a WebSocket
"""
import contextlib
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gateway"))

from harness import Fault, Gateway, Lab, Response, connect, merged, read_head, require  # noqa: E402
from rig import TOKEN  # noqa: E402

TRANSPORTS = ("http/1.1", "http/1.0", "http/2", "websocket")
# Transports without another program.
SOCKETS = ("http/1.1", "http/1.0", "websocket")
LAST_CHUNK = b"0\r\n\r\n"


@dataclass
class LiveLab(Lab):
    def station(self, channel: dict | None = None, settings: dict | None = None) -> "Station":
        """Starts a server for any source. `channel` has the rules of all streams; by default each frame is a message of its own, a
        listener starts at the newest key frame, and a stream ends soon after its source."""
        rules = {"pattern": "**", "gather": "0s", "burst": "0s", "hold": "500ms", **(channel or {})}
        own = {"push": {"enabled": True}, "auth": {"anonymous": ["subscribe", "publish"]}, "live": {"channel": [rules]}}
        station = Station(self, [], [], settings=merged(own, settings or {}))
        self.stack.callback(station.stop)
        station.start()
        return station


class Station(Gateway):
    """An Encke with live streams. `sent` counts the bytes of all instances of Source."""

    sent = 0

    def listener(self, name: str, transport: str = "http/1.1", **options) -> "Listener":
        kind = {"websocket": SocketListener, "http/2": CurlListener}.get(transport, Listener)
        return kind(self, name, transport, **options)

    def source(self, name: str, **options) -> "Source":
        return Source(self, name, **options)

    def ffmpeg(self, name: str, words: list, **options) -> "Pusher":
        pusher = Pusher(self, name, words, **options)
        self.rig.stack.callback(pusher.kill)
        return pusher

    def info(self, name: str) -> dict:
        """The description of a stream; empty if it is not known."""
        answer = self.ask(f"/live/{name}?info")
        return json.loads(answer.body) if answer.status == 200 else {}

    def until_info(self, name: str, holds, complaint: str) -> dict:
        """Waits until `holds(info)`."""
        seen = {}

        def event() -> bool:
            seen.clear()
            seen.update(self.info(name))
            return holds(seen)

        try:
            self.rig.until(event, complaint)
        except Fault as fault:
            raise Fault(f"{fault}; the stream is {seen}") from None
        return seen

    def until_sent(self) -> None:
        """Waits until the server has taken all bytes that sockets have sent as sources. The last unit may be incomplete."""
        self.rig.until(lambda: self.value("encke_live_source_bytes_total") == self.sent, f"{self.sent} bytes do not arrive")

    def until_gone(self, name: str) -> None:
        """Waits until a stream is not known."""
        self.until_info(name, lambda info: not info, "the stream of a lost source stays")

    def until_listeners(self, name: str, count: int) -> None:
        """Waits until a stream has this number of listeners. The stream counts them with each message, so its source must send."""
        self.until_info(name, lambda info: info.get("listeners") == count, f"there are not {count} listeners")


class Source:
    """A source that writes its request itself."""

    def __init__(self, station: Station, name: str, *, method: str = "PUT", fields: str = "", query: str = ""):
        self.station, self.name = station, name
        self.socket = station.rig.keep(connect(station.port))
        self.socket.settimeout(station.rig.patience)
        self.socket.sendall(f"{method} /live/{name}{query} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{fields}\r\n"
                            .encode())

    def send(self, bytes_: bytes) -> None:
        if bytes_:
            self.socket.sendall(b"%x\r\n%s\r\n" % (len(bytes_), bytes_))
            self.station.sent += len(bytes_)

    def begin(self, bytes_: bytes) -> "Source":
        """Sends the first bytes, and waits until the server has them."""
        self.send(bytes_)
        self.station.until_sent()
        return self

    def end(self) -> Response:
        self.socket.sendall(LAST_CHUNK)
        return self.response()

    def kill(self) -> None:
        """Resets the connection within the body."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def response(self) -> Response:
        return read_response(self.socket)[0]


def read_response(client: socket.socket, before: bytes = b"") -> tuple[Response, bytes]:
    """Reads a response with a Content-Length, or without a body. Returns it and the bytes after it."""
    try:
        head, rest = read_head(client, before)
        status, fields = parsed_head(head)
        length = int(fields.get("content-length", 0))
        while len(rest) < length:
            if not (piece := client.recv(1 << 16)):
                raise Fault(f"the connection ended within a response: {head!r} {rest!r}")
            rest += piece
    except OSError as error:
        raise Fault(f"no response: {error!r}") from None
    return Response(status, rest[:length], fields), rest[length:]


def parsed_head(head: bytes) -> tuple[int, dict]:
    status, *lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(status.split()[1]), fields


class Listener:
    """A listener by HTTP/1. `body` is the received body, without chunks. `clean` is whether the response was complete."""

    def __init__(self, station: Station, name: str, transport: str = "http/1.1", *, fields: str = "",
                 receive_bytes: int | None = None):
        self.transport, self.body, self.ended, self.clean = transport, bytearray(), False, False
        self.socket = station.rig.keep(connect(station.port, receive_bytes=receive_bytes))
        self.socket.settimeout(station.rig.patience)
        self.socket.sendall(f"GET /live/{name} {transport.upper()}\r\nHost: localhost\r\n{self.own_fields}{fields}\r\n".encode())
        self.raw, self.head = bytearray(), None

    def opened(self) -> tuple[int, dict]:
        """Returns status and fields. A response begins when the stream is known."""
        if self.head is None:
            try:
                head, rest = read_head(self.socket)
            except OSError as error:
                raise Fault(f"{self.transport}: no head: {error!r}") from None
            self.head = parsed_head(head)
            if self.head[0] == self.expected:
                self.took(rest)
            else:
                self.ended = True
        return self.head

    @property
    def status(self) -> int:
        return self.opened()[0]

    @property
    def fields(self) -> dict:
        return self.opened()[1]

    own_fields, expected = "", 200

    def took(self, bytes_: bytes) -> None:
        """Takes bytes of the connection."""
        if self.transport == "http/1.0":
            self.body += bytes_
            return
        self.raw += bytes_
        while (at := self.raw.find(b"\r\n")) >= 0:
            size = int(self.raw[:at], 16)
            if len(self.raw) < at + size + 4:
                return
            require(self.raw[at + 2 + size:at + 4 + size] == b"\r\n", "a chunk does not end")
            self.body += self.raw[at + 2:at + 2 + size]
            del self.raw[:at + 4 + size]
            if size == 0:
                self.ended = self.clean = True
                require(not self.raw, f"bytes follow the last chunk: {bytes(self.raw[:100])!r}")

    def more(self, bytes_max: int = 1 << 16) -> None:
        """Waits for bytes."""
        if self.head is None:
            self.opened()
            return
        try:
            piece = self.socket.recv(bytes_max)
        except TimeoutError:
            raise Fault(f"{self.transport}: nothing more arrives after {len(self.body)} bytes") from None
        except ConnectionError:
            self.ended = True
            return
        if not piece:
            # Without chunks the end of the connection is that of the response.
            self.ended, self.clean = True, self.transport == "http/1.0"
        self.took(piece)

    def until(self, bytes_: int) -> bytes:
        """Waits for this number of bytes of the body."""
        while len(self.body) < bytes_:
            require(not self.ended, f"{self.transport}: the stream ended after {len(self.body)} bytes of {bytes_}")
            self.more()
        return bytes(self.body)

    def until_true(self, holds) -> bytes:
        """Waits until `holds(body)`."""
        while not holds(bytes(self.body)):
            require(not self.ended, f"{self.transport}: the stream ended after {len(self.body)} bytes")
            self.more()
        return bytes(self.body)

    def to_end(self) -> bytes:
        """Reads to the end, which must be clean."""
        while not self.ended:
            self.more()
        require(self.clean, f"{self.transport}: the stream was cut after {len(self.body)} bytes")
        return bytes(self.body)


class SocketListener(Listener):
    """A listener by WebSocket: each message is a binary frame. A close frame is a clean end."""

    own_fields = ("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
    expected = 101

    def __init__(self, station: Station, name: str, transport: str, **options):
        self.close_code = None
        super().__init__(station, name, "http/1.1", **options)
        self.transport = transport

    def took(self, bytes_: bytes) -> None:
        self.raw += bytes_
        while len(self.raw) >= 2:
            size, at = self.raw[1], 2
            require(size < 128, "a frame of the server is masked")
            if size >= 126:
                at += 2 if size == 126 else 8
                size = int.from_bytes(self.raw[2:at], "big")
            if len(self.raw) < at + size:
                return
            opcode, payload = self.raw[0], bytes(self.raw[at:at + size])
            del self.raw[:at + size]
            if opcode == 0x82:
                self.body += payload
            elif opcode == 0x88:
                self.close_code = int.from_bytes(payload[:2], "big")
                self.ended = self.clean = True
            else:
                require(opcode == 0x89, f"a frame of kind {opcode:#x}: {payload[:300]!r}")


class CurlListener:
    """A listener by HTTP/2, from curl."""

    def __init__(self, station: Station, name: str, transport: str):
        self.transport, self.station = transport, station
        self.file = station.folder / f"curl-{name}-{id(self)}"
        self.process = subprocess.Popen(
            ["curl", "--silent", "--show-error", "--fail", "--http2-prior-knowledge", "--no-buffer", "-o", self.file,
             f"http://127.0.0.1:{station.port}/live/{name}"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        station.rig.stack.callback(end_process, self.process)

    def until(self, bytes_: int) -> bytes:
        self.station.rig.until(lambda: self.process.poll() is not None or self.file.exists() and self.file.stat().st_size >= bytes_,
                               f"http/2: {bytes_} bytes do not arrive")
        return self.file.read_bytes()

    def to_end(self) -> bytes:
        try:
            _, errors = self.process.communicate(timeout=self.station.rig.patience)
        except subprocess.TimeoutExpired:
            raise Fault("http/2: the stream does not end") from None
        require(self.process.returncode == 0, f"http/2: curl exited with {self.process.returncode}: {errors}")
        return self.file.read_bytes()


class Pusher:
    """ffmpeg as a source. `recorded` is the body that it has sent, which a relay in between records."""

    def __init__(self, station: Station, name: str, words: list, *, fields: str = "", login: str = "", query: str = ""):
        self.name, self.station, self.requests, self.responses = name, station, [], []
        self.relay = station.rig.keep(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=self._serve, daemon=True).start()
        url = f"http://{login}127.0.0.1:{self.relay.getsockname()[1]}/live/{name}{query}"
        self.process = subprocess.Popen(
            ["ffmpeg", "-nostdin", "-v", "error", "-re", *map(str, words), "-method", "PUT", *(["-headers", fields] if fields else []), url],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.relay.accept()
                self.station.rig.stack.callback(client.close)
                server = connect(self.station.port)
                server.settimeout(None)
                request, response = bytearray(), bytearray()
                self.requests.append(request)
                self.responses.append(response)
                for one, other, record in ((client, server, request), (server, client, response)):
                    threading.Thread(target=self._relay, args=(one, other, record), daemon=True).start()

    @staticmethod
    def _relay(one: socket.socket, other: socket.socket, record: bytearray) -> None:
        with contextlib.suppress(OSError):
            while piece := one.recv(1 << 16):
                record += piece
                other.sendall(piece)
            other.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RD)

    @property
    def recorded(self) -> bytes:
        """The body of the last request."""
        body, raw = bytearray(), self.requests[-1].partition(b"\r\n\r\n")[2]
        while (end := raw.find(b"\r\n")) > 0:
            size = int(raw[:end], 16)
            body += raw[end + 2:end + 2 + size]
            raw = raw[end + 4 + size:]
        return bytes(body)

    def wait(self) -> str:
        """Waits until ffmpeg has ended. Returns its output."""
        try:
            _, errors = self.process.communicate(timeout=self.station.rig.patience)
        except subprocess.TimeoutExpired:
            raise Fault("ffmpeg does not end") from None
        return errors

    def end(self) -> None:
        """Ends ffmpeg as its user does: it completes the file and the body."""
        self.process.send_signal(signal.SIGINT)
        self.wait()

    def kill(self) -> None:
        """Ends ffmpeg at once."""
        end_process(self.process)


def end_process(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    if process.stderr:
        process.stderr.close()


BEARER_LINE = f"Authorization: Bearer {TOKEN}\r\n"
