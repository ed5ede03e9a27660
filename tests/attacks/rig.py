"""Servers under attack, the innocent client that must be served meanwhile, and the registry of attacks.

    @attack ─► ATTACKS ─► run: one Rig per attack and back end ─┬─ Server    an `encke serve` on port 0
                                                                ├─ Innocent  a thread that reads, publishes and receives
                                                                └─ Fault     the attack succeeded, or a victim was not served

An attack never judges by tight times: every wait ends with its event, and PATIENCE only bounds a wait in vain.
"""
import contextlib
import http.client
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE = 60.0  # seconds: debug binaries on two busy cores; the longest limit under test judges over 10 s
START_PATIENCE = 180.0
KIB, MIB = 1 << 10, 1 << 20
TOKEN = "innocent-0123456789"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
INNOCENT_ADDRESS = "127.0.0.9"
INNOCENT_PAUSE = 0.1
SMALL_FILE = b"small\n"


class Fault(Exception):
    """The attack succeeded, or a victim was not served."""


@dataclass
class Attack:
    name: str
    subject: str
    function: Callable[["Rig"], str]
    # Whether it mostly waits, for several seconds: long attacks all run at the same time.
    long: bool
    # How `--self-check` removes the defence: settings for the real server, STAND_IN, or None where neither is possible.
    undefended: dict | str | None


ATTACKS: list[Attack] = []
STAND_IN = "stand-in"


def attack(*, long: bool = False, undefended: dict | str | None = None):
    """Registers a function as an attack. Its docstring states the attack, the bound, and the service that must remain."""

    def register(function):
        ATTACKS.append(Attack(function.__name__, function.__module__, function, long, undefended))
        return function

    return register


@dataclass
class Rig:
    """The resources of one attack on one back end: servers, sockets and a directory, all released at its end."""

    encke: Path
    backend: str
    folder: Path
    stack: contextlib.ExitStack
    patience: float = PATIENCE
    # Settings of `--self-check`, applied last.
    overrides: dict = field(default_factory=dict)
    stand_in: bool = False

    def server(self, settings: dict | None = None, **options) -> "Server":
        """Starts a server with these settings on top of the common ones."""
        if self.stand_in:
            return self.stack.enter_context(StandIn(self))
        server = Server(self, settings or {}, **options)
        # Before the start, which may fail when the process already runs.
        self.stack.callback(server.stop)
        server.start()
        return server

    def until(self, event: Callable[[], object], complaint: str, patience: float | None = None):
        """Waits for a true value of `event` and returns it."""
        deadline = time.monotonic() + (patience or self.patience)
        while not (value := event()):
            if time.monotonic() > deadline:
                raise Fault(complaint)
            time.sleep(0.02)
        return value

    def keep(self, resource_):
        """Registers a socket, which is closed when the attack is over."""
        return self.stack.enter_context(contextlib.closing(resource_))


class Server:
    """A running `encke serve`."""

    def __init__(self, rig: Rig, settings: dict, *, file_bytes_max: int | None = None, ignore_sigxfsz: bool = False):
        self.rig, self.settings = rig, settings
        self.file_bytes_max, self.ignore_sigxfsz = file_bytes_max, ignore_sigxfsz
        self.folder = rig.folder / f"server-{len(list(rig.folder.iterdir()))}"
        self.root = self.folder / "root"
        self.root.mkdir(parents=True)
        (self.root / "small.txt").write_bytes(SMALL_FILE)
        self.lives, self.process = 0, None

    def write_settings(self) -> Path:
        common = {
            "server": {"listen": "127.0.0.1:0", "workers": 2, "backend": self.rig.backend, "drain_time": "1s",
                       "admin": {"address": "127.0.0.1:0", "token": TOKEN}},
            "log": {"access": "off"},
            "site": [{"root": str(self.root)}],
            "auth": {"anonymous": ["subscribe"], "tokens": [{"token": TOKEN, "name": "innocent", "publish": ["**"],
                     "subscribe": ["**"], "presence": ["**"], "manage": ["**"]}]},
        }
        path = self.folder / "encke.toml"
        path.write_text(toml(merged(merged(common, self.settings), self.rig.overrides)))
        return path

    def start(self) -> None:
        self.lives += 1
        path = self.write_settings()
        self.log = self.folder / f"log-{self.lives}"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [self.rig.encke, "serve", "-c", path], stdout=subprocess.DEVNULL, stderr=log, cwd=self.folder,
                # Python ignores SIGXFSZ, and restores its default in the child unless it is kept.
                restore_signals=not self.ignore_sigxfsz)
        self.pid = self.process.pid
        if self.file_bytes_max:
            self.limit_files(self.file_bytes_max)
        self.port, self.admin = self._port("site"), self._port("admin")

    def stop(self, signal_: int = signal.SIGTERM) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal_)
        try:
            self.process.wait(START_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Fault(f"the server did not exit within {START_PATIENCE:g} s of a SIGTERM") from None

    def limit_files(self, bytes_: int) -> None:
        """Sets the size beyond which no file of the process can grow."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (bytes_, resource.RLIM_INFINITY))

    def alive(self) -> None:
        """Raises a fault if the process has ended."""
        # A connection may end before wait(2) reports the process.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.1)
        if (status := self.process.poll()) is not None:
            raise Fault(f"the server exited with status {status}: {' '.join(self.log_text()[-200:].split())}")

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def file(self, name: str, bytes_: int) -> None:
        """A sparse file of zeros."""
        with (self.root / name).open("wb") as file:
            file.truncate(bytes_)

    def anonymous_bytes(self) -> int:
        """Resident memory that belongs to no file."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * KIB
        raise Fault("the server process has exited")

    def value(self, family: str, **labels: str) -> int:
        """The sum of a family's samples with these labels."""
        url = f"http://127.0.0.1:{self.admin}/api/v1/status?token={TOKEN}"
        families = json.load(urllib.request.urlopen(url, timeout=PATIENCE))["families"]
        return sum(sample["value"] for one in families if one["name"] == family for sample in one["samples"]
                   if all(sample.get("labels", {}).get(name) == value for name, value in labels.items()))

    def connect(self, source: str = "127.0.0.1", *, receive_bytes: int | None = None) -> socket.socket:
        return self.rig.keep(connect(self.port, source, receive_bytes))

    def innocent(self, **options) -> "Innocent":
        return Innocent(self, **options)

    def _port(self, name: str) -> int:
        def found() -> int | None:
            self.alive()
            port = re.search(rf"\b{name}\s+https?://(?:127\.0\.0\.1|localhost):(\d+)\b", self.log_text())
            return port and int(port[1])

        return self.rig.until(found, "the server did not start", START_PATIENCE)


class StandIn:
    """A server without any defence, for `--self-check`: it responds to the first request, then reads forever."""

    def __init__(self, rig: Rig):
        self.rig = rig
        self.folder = self.root = rig.folder
        self.socket = rig.keep(socket.create_server(("127.0.0.1", 0), backlog=4096))
        self.port = self.socket.getsockname()[1]
        self.pid = os.getpid()

    def __enter__(self) -> "StandIn":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        pass  # its socket is closed by the rig, which ends the thread

    def file(self, name: str, bytes_: int) -> None:
        pass

    def alive(self) -> None:
        pass

    def anonymous_bytes(self) -> int:
        return 0

    def connect(self, source: str = "127.0.0.1", *, receive_bytes: int | None = None) -> socket.socket:
        return self.rig.keep(connect(self.port, source, receive_bytes))

    def innocent(self, **options) -> "Innocent":
        return Innocent(self, **{**options, "push": False})

    def _serve(self) -> None:
        clients: dict[int, socket.socket] = {}
        try:
            while self.socket.fileno() >= 0:
                for client in ready([self.socket, *clients.values()], 0.1):
                    if client is self.socket:
                        accepted = client.accept()[0]
                        clients[accepted.fileno()] = accepted
                    else:
                        self._read(client, clients)
        except (OSError, ValueError):
            pass  # the attack is over
        for client in clients.values():
            client.close()

    @staticmethod
    def _read(client: socket.socket, clients: dict[int, socket.socket]) -> None:
        try:
            piece = client.recv(1 << 20)
            if piece.startswith(b"GET /small.txt"):
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(SMALL_FILE), SMALL_FILE))
            elif piece.startswith(b"PRI "):
                client.sendall(bytes.fromhex("000000040000000000" "000000040100000000"))
        except ConnectionError:
            piece = b""
        if not piece:
            del clients[client.fileno()]
            client.close()


class Innocent(threading.Thread):
    """A well-behaved client. During the attack it reads a file, publishes a message and receives it, repeatedly.

    `with server.innocent() as innocent:` encloses the attack. At the end a whole further round must succeed.
    """

    def __init__(self, server, *, push: bool = False, fresh: bool = False, files: bool = True):
        super().__init__(daemon=True)
        self.server, self.push, self.fresh, self.files = server, push, fresh, files
        self.rounds, self.slowest, self.begun, self.failure, self.ending = 0, 0.0, 0, None, False
        self.pause = threading.Event()

    def __enter__(self) -> "Innocent":
        self.start()
        self._wait_for_round("before")
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            if kind is None:
                self._wait_for_round("after")
        finally:
            self.ending = True
            self.pause.set()
            self.join(PATIENCE)

    def __str__(self) -> str:
        return f"innocent: {self.rounds} rounds, slowest {self.slowest:.2f} s"

    def served(self) -> None:
        """Waits for a complete round that begins after this call."""
        self._wait_for_round("during")

    def run(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                self._serve_itself(stack)
        except Exception as error:  # raised by _wait_for_round
            if not self.ending:
                self.failure = error

    def _serve_itself(self, stack: contextlib.ExitStack) -> None:
        client = stack.enter_context(contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE,
                                       source_address=(INNOCENT_ADDRESS, 0))))
        stream = None
        if self.push:
            stream = EventStream(self.server, "innocent", source=INNOCENT_ADDRESS, stack=stack)
        while not self.ending:
            self.begun += 1
            began = time.monotonic()
            if self.files:
                expect(self._read_file(client), 200, SMALL_FILE, "its file")
            if stream:
                channels = f"innocent,fresh/{self.begun}" if self.fresh else "innocent"
                message = f"innocent {self.begun}"
                expect(request(client, "POST", f"/push/{channels}", message, BEARER), 201, None, "its publish")
                stream.until(message.encode())
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.rounds += 1
            self.pause.wait(INNOCENT_PAUSE)

    @staticmethod
    def _read_file(client: http.client.HTTPConnection) -> tuple:
        try:
            client.request("GET", "/small.txt")
            response = client.getresponse()
        except ConnectionError:  # a server may end an idle connection, also while a request arrives: every client connects again
            client.close()
            return request(client, "GET", "/small.txt")
        return response.status, response.read(), response.headers

    def _wait_for_round(self, when: str) -> None:
        # The round that is open now may have begun before the attack.
        target = self.begun + 1
        deadline = time.monotonic() + PATIENCE
        while self.rounds < target:
            if self.failure:
                raise Fault(f"the innocent client was not served {when} the attack: {self.failure!r}")
            if time.monotonic() > deadline:
                raise Fault(f"the innocent client was not served within {PATIENCE:g} s {when} the attack")
            time.sleep(0.01)


class EventStream:
    """An event stream by HTTP/1: lines of server-sent events."""

    def __init__(self, server, channels: str, *, source: str, stack: contextlib.ExitStack):
        self.socket = stack.enter_context(contextlib.closing(connect(server.port, source)))
        self.socket.sendall(f"GET /push/{channels}?since=now HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
                            f"Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        self.lines = self.socket.makefile("rb")
        if b" 200 " not in (status := self.lines.readline()):
            raise Fault(f"its event stream got {status!r}")

    def until(self, data: bytes) -> None:
        while (line := self.lines.readline()).strip() != b"data: " + data:
            if not line:
                raise Fault("its event stream ended")


def reserved_port(stack: contextlib.ExitStack) -> int:
    """A port that a listener of this test can take, and take again after its end. A socket that is bound to it, and does not listen,
    keeps the system from giving it to a connection or to another test."""
    reservation = stack.enter_context(contextlib.closing(socket.socket()))
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("127.0.0.1", 0))
    return reservation.getsockname()[1]


def connect(port: int, source: str = "127.0.0.1", receive_bytes: int | None = None) -> socket.socket:
    client = socket.socket()
    client.settimeout(PATIENCE)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.bind((source, 0))
    client.connect(("127.0.0.1", port))
    return client


def request(client: http.client.HTTPConnection, method: str, path: str, body: str | bytes | None = None,
            fields: dict | None = None) -> tuple[int, bytes, http.client.HTTPMessage]:
    client.request(method, path, body, fields or {})
    response = client.getresponse()
    return response.status, response.read(), response.headers


def ask(server, method: str, path: str, body: str | bytes | None = None, fields: dict | None = None,
        source: str = "127.0.0.1", patience: float = PATIENCE) -> tuple[int, bytes, http.client.HTTPMessage]:
    """One request on a connection of its own."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=patience,
                                                       source_address=(source, 0))) as client:
        try:
            return request(client, method, path, body, fields)
        except ConnectionError:
            server.alive()
            raise


def expect(response: tuple, status: int, body: bytes | None, name: str) -> None:
    if response[0] != status or body is not None and response[1] != body:
        raise Fault(f"{name}: got {response[0]} {response[1][:200]!r}")


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


def has_hung_up(client: socket.socket) -> bool:
    """Whether the connection was reset; reads nothing."""
    poll = select.poll()
    poll.register(client, 0)
    return bool(poll.poll(0))


def wait_for_ends(rig: Rig, clients: list[socket.socket], complaint: str,
                  tick: Callable[[list[socket.socket]], None] = lambda _: None, test=ended) -> None:
    """Waits until the server has ended all of these connections; `tick` continues the attack on the others."""
    open_ = list(clients)
    deadline = time.monotonic() + rig.patience
    while open_ := [client for client in open_ if not test(client)]:
        if time.monotonic() > deadline:
            raise Fault(f"{complaint}: {len(open_)} of {len(clients)} connections are still open")
        tick(open_)
        time.sleep(0.1)


def drip(clients: list[socket.socket], bytes_: bytes) -> None:
    for client in clients:
        with contextlib.suppress(OSError):
            client.send(bytes_)


def addresses(count: int) -> Iterator[str]:
    """Returns `count` loopback addresses, without the innocent client's."""
    return (f"127.1.{number >> 8}.{(number & 255) or 1}" for number in range(1, count + 1))


def merged(base: dict, more: dict) -> dict:
    result = dict(base)
    for key, value in more.items():
        below = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if below else value
    return result


def toml(settings: dict) -> str:
    """Settings as inline values, one per line. None removes a setting."""

    def text(value) -> str:
        if isinstance(value, dict):
            return "{ " + ", ".join(f"{json.dumps(key)} = {text(below)}" for key, below in value.items()
                                    if below is not None) + " }"
        if isinstance(value, list):
            return "[" + ", ".join(map(text, value)) + "]"
        return json.dumps(value)

    return "".join(f"{key} = {text(value)}\n" for key, value in settings.items())
