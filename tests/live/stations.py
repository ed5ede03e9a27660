"""Servers of live streams, and their sources and listeners.

    LiveRig.station ─► Station    an `encke serve` with live streams
                          ├─ source   ─► Source    a PUT with chunks, by a socket
                          ├─ ffmpeg   ─► Pusher    a PUT by ffmpeg, through a relay that records the body
                          └─ listener ─► Listener  a GET: HTTP/1.0, HTTP/1.1, HTTP/2 by curl, or a WebSocket
"""
import contextlib
import signal
import socket
import threading

from rig import (BINARY, CLOSE, PING, TOKEN, UPGRADE, Connection, Fault, ProcessGroup, Response, Rig, Server, merged,
                 parsed_frame, parsed_head, ready, require, until)

TRANSPORTS = ("http/1.1", "http/1.0", "http/2", "websocket")
# Transports without another program.
SOCKETS = ("http/1.1", "http/1.0", "websocket")
LAST_CHUNK = b"0\r\n\r\n"
BEARER_LINE = f"Authorization: Bearer {TOKEN}\r\n"


class LiveRig(Rig):
    def station(self, channel: dict | None = None, settings: dict | None = None) -> "Station":
        """Starts a server for any source. `channel` has the rules of all streams; by default each frame is a message of its own,
        a listener starts at the newest key frame, and a stream ends soon after its source."""
        station = Station(self)
        rules = {"pattern": "**", "gather": "0s", "burst": "0s", "hold": "500ms", **(channel or {})}
        own = {"log": station.json_log(), "auth": {"anonymous": ["subscribe", "publish"]}, "live": {"channel": [rules]}}
        station.settings = merged(own, settings or {})
        return self.started(station)


class Station(Server):
    """An Encke with live streams. `sent` counts the bytes of all instances of Source."""

    sent = 0

    def listener(self, name: str, transport: str = "http/1.1", **options) -> "Listener":
        kind = {"websocket": SocketListener, "http/2": CurlListener}.get(transport, Listener)
        return kind(self, name, transport, **options)

    def source(self, name: str, **options) -> "Source":
        return Source(self, name, **options)

    def ffmpeg(self, name: str, words: list, **options) -> "Pusher":
        return self.rig.started(Pusher(self, name, words, **options))

    def info(self, name: str) -> dict:
        """The description of a stream; empty if it is not known."""
        response = self.ask(f"/live/{name}?info")
        return response.json() if response.status == 200 else {}

    def until_info(self, name: str, holds, complaint: str) -> dict:
        """Waits until `holds(info)`."""
        seen = {}

        def event() -> bool:
            seen.clear()
            seen.update(self.info(name))
            return holds(seen)

        self.rig.until(event, lambda: f"{complaint}; the stream is {seen}")
        return seen

    def until_sent(self) -> None:
        """Waits until the server has taken all bytes that sockets have sent as sources. The last unit may be incomplete."""
        self.rig.until(lambda: self.value("encke_live_source_bytes_total") == self.sent, f"{self.sent} bytes do not arrive")

    def until_gone(self, name: str) -> None:
        """Waits until a stream is not known."""
        self.until_info(name, lambda info: not info, "the stream of a lost source stays")

    def until_listeners(self, name: str, count: int) -> None:
        """Waits until a stream has this number of listeners. The stream counts them with each message: its source must send."""
        self.until_info(name, lambda info: info.get("listeners") == count, f"there are not {count} listeners")


class Source:
    """A source that writes its request itself."""

    def __init__(self, station: Station, name: str, *, method: str = "PUT", fields: str = "", query: str = ""):
        self.station, self.name = station, name
        self.socket = station.requested(f"/live/{name}{query}", method, f"Transfer-Encoding: chunked\r\n{fields}")
        self.response = self.socket.response

    def send(self, bytes_: bytes) -> None:
        if bytes_:
            try:
                self.socket.sendall(b"%x\r\n%s\r\n" % (len(bytes_), bytes_))
            except OSError as error:
                raise Fault(f"a source cannot send: {error!r}") from None
            self.station.sent += len(bytes_)

    def begin(self, bytes_: bytes) -> "Source":
        """Sends the first bytes, and waits until the server has them."""
        self.send(bytes_)
        self.station.until_sent()
        return self

    def repeat(self, bytes_: bytes, listeners: list["Listener"], mark: bytes, before: list[int] | None = None) -> None:
        """Sends bytes again and again, until each listener has received `mark` from now on, or after its first `before` bytes. A
        node may have to fetch the stream from another node first."""
        before = before or [len(listener.body) for listener in listeners]

        def received() -> bool:
            waiting = [one for one, seen in zip(listeners, before) if mark not in one.body[seen:] and not one.ended]
            if waiting:
                self.send(bytes_)
            for one in waiting:
                if ready([one.socket], 0.1):
                    one.more()
            return not waiting

        self.station.rig.until(received, lambda: f"listeners get nothing more after {[len(one.body) for one in listeners]} bytes")
        for one, seen in zip(listeners, before):
            require(mark in one.body[seen:], f"{one.transport}: the stream ended after {len(one.body)} bytes")

    def end(self) -> Response:
        self.socket.sendall(LAST_CHUNK)
        return self.response()

    def kill(self) -> None:
        """Resets the connection within the body."""
        self.socket.reset()


class Listener:
    """A listener by HTTP/1. `body` is the received body, without chunks. `clean` is whether the response was complete."""

    own_fields, expected = "", 200

    def __init__(self, station: Station, name: str, transport: str = "http/1.1", *, fields: str = "",
                 receive_bytes: int | None = None):
        self.transport, self.body, self.ended, self.clean, self.head = transport, bytearray(), False, False, None
        version = "1.0" if transport == "http/1.0" else "1.1"
        self.socket = station.requested(f"/live/{name}", fields=self.own_fields + fields, version=version,
                                        receive_bytes=receive_bytes)

    def opened(self) -> Response:
        """The head of the response, which begins when the stream is known."""
        if self.head is None:
            self.head = parsed_head(self.socket.head())
            self.ended = self.head.status != self.expected
            if not self.ended:
                self.parse()
        return self.head

    @property
    def status(self) -> int:
        return self.opened().status

    @property
    def fields(self):
        return self.opened().fields

    def parse(self) -> None:
        """Moves complete chunks or frames from the received bytes to the body."""
        if self.transport == "http/1.0":
            self.body += self.socket.take(len(self.socket.received))
            return
        received, at = self.socket.received, 0
        while not self.ended and (end := received.find(b"\r\n", at)) >= 0:
            size = int(received[at:end], 16)
            if len(received) < end + size + 4:
                break
            require(received[end + 2 + size:end + 4 + size] == b"\r\n", "a chunk does not end")
            self.body += received[end + 2:end + 2 + size]
            at, self.ended = end + size + 4, size == 0
        self.socket.take(at)
        if self.ended:
            self.clean = True
            require(not self.socket.received, f"bytes follow the last chunk: {self.socket.received[:100]!r}")

    def more(self, bytes_max: int = 1 << 16) -> None:
        """Waits for bytes."""
        if self.head is None:
            self.opened()
            return
        lasts = self.socket.more(f"{self.transport}: a byte after {len(self.body)} of the body", bytes_max)
        self.parse()
        if not lasts and not self.ended:
            # Without chunks the end of the connection is that of the response.
            self.ended, self.clean = True, self.transport == "http/1.0" and not self.socket.was_reset

    def until(self, bytes_: int) -> bytes:
        """Waits for this number of bytes of the body."""
        return self.until_true(lambda body: len(body) >= bytes_)

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

    own_fields, expected = UPGRADE, 101

    def parse(self) -> None:
        while found := parsed_frame(self.socket.received):
            first, payload, size = found
            self.socket.take(size)
            if first == 0x80 | BINARY:
                self.body += payload
            elif first == 0x80 | CLOSE:
                self.ended = self.clean = True
            else:
                require(first == 0x80 | PING, f"a frame of kind {first:#x}: {payload[:300]!r}")


class CurlListener(ProcessGroup):
    """A listener by HTTP/2, from curl."""

    def __init__(self, station: Station, name: str, transport: str):
        self.transport, self.file = transport, station.rig.new_path("curl")
        super().__init__(["curl", "--silent", "--show-error", "--fail", "--http2-prior-knowledge", "--no-buffer", "-o", self.file,
                          f"http://127.0.0.1:{station.port}/live/{name}"], station.rig.new_path("log"), patience=station.patience)
        station.rig.started(self)

    def until(self, bytes_: int) -> bytes:
        until(lambda: self.process.poll() is not None or self.file.exists() and self.file.stat().st_size >= bytes_,
              f"http/2: {bytes_} bytes do not arrive", self.patience)
        return self.file.read_bytes()

    def to_end(self) -> bytes:
        require((status := self.wait(self.patience)) == 0, f"http/2: curl exited with {status}: {self.log_text()}")
        return self.file.read_bytes()


class Pusher(ProcessGroup):
    """ffmpeg as a source, through a relay."""

    def __init__(self, station: Station, name: str, words: list, *, fields: str = "", login: str = "", query: str = ""):
        self.station, self.requests, self.relay = station, [], station.rig.keep(socket.create_server(("127.0.0.1", 0)))
        url = f"http://{login}127.0.0.1:{self.relay.getsockname()[1]}/live/{name}{query}"
        super().__init__(["ffmpeg", "-nostdin", "-v", "error", "-re", *words, "-method", "PUT",
                          *(["-headers", fields] if fields else []), url], station.rig.new_path("ffmpeg"))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self.station.rig.keep(self.relay.accept()[0])
                server = Connection(self.station.port)
                server.settimeout(None)
                self.requests.append(request := bytearray())
                for one, other, record in ((client, server, request), (server, client, bytearray())):
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
        """The body of the last request, as ffmpeg has sent it."""
        body, raw = bytearray(), self.requests[-1].partition(b"\r\n\r\n")[2]
        while (end := raw.find(b"\r\n")) > 0:
            size = int(raw[:end], 16)
            body += raw[end + 2:end + 2 + size]
            raw = raw[end + 4 + size:]
        return bytes(body)

    def end(self) -> None:
        """Ends ffmpeg as its user does: it completes the file and the body."""
        self.send_signal(signal.SIGINT)
        self.wait()

    def kill(self) -> None:
        """Ends ffmpeg at once."""
        self.stop(signal.SIGKILL)
