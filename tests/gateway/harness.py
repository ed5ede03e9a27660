"""Encke in front of real applications: the processes, the clients, and the registry of cases.

    @case ─► CASES ─► run: one Lab per case and application ─┬─ Gateway      an `encke serve` with routes, on port 0
                                                             ├─ Application  a process that inherits its listening socket
                                                             └─ Fault        the case failed

Applications write each request that they execute to a record, one JSON object per line: method, target, names of fields, and the
length and digest of the body. A case never judges by tight times: every wait ends with its event, and PATIENCE only bounds a wait
in vain. Servers and sockets come from tests/attacks.
"""
import collections
import contextlib
import hashlib
import http.client
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
sys.path.insert(0, str(REPOSITORY / "tests/attacks"))

from rig import KIB, MIB, PATIENCE, START_PATIENCE, TOKEN, Fault, Rig, Server, connect, merged, reserved_port, toml  # noqa: E402, F401

APPS = HERE / "apps"
VENV = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target") / "gateway-venv/bin"
# Bounds the wait of `--self-check` for an event that a planted fault prevents.
PLANTED_PATIENCE = 5.0
BLOCK_BYTES = 64 * KIB
# Applications that speak FastCGI.
FASTCGI = ("php-fpm", "plackup")


@dataclass(eq=False)
class Case:
    name: str
    function: Callable[["Lab", str | None], str]
    # Applications with which it runs, each as a case of its own: in all tiers, not in the basic one, in the full one only.
    basic: list[str | None]
    more: list[str | None]
    full: list[str | None]

    def applications(self, tier: str) -> list[str | None]:
        return self.basic + (self.more if tier != "basic" else []) + (self.full if tier == "full" else [])


CASES: list[Case] = []


def case(*, basic: tuple = (None,), more: tuple = (), full: tuple = ()):
    """Registers a function as a case. Its docstring states the requirement. While `lab.planted` is set the function plants the
    fault that its docstring names, and must then report one."""

    def register(function):
        CASES.append(Case(function.__name__, function, list(basic), list(more), list(full)))
        return function

    return register


@dataclass
class Lab(Rig):
    """The resources of one case, all released at its end."""

    seed: int = 0
    # "basic", "whole" or "full".
    tier: str = "basic"
    # Whether `--self-check` runs: the case plants its fault.
    planted: bool = False
    chance: random.Random = field(default_factory=random.Random)

    def of(self, basic, whole, full):
        """The value for the present tier."""
        return {"basic": basic, "whole": whole, "full": full}[self.tier]

    def application(self, name: str, **options) -> "Application":
        application = Application(self, name, **options)
        self.stack.callback(application.stop)
        application.start()
        return application

    def gateway(self, routes: list[dict], upstreams: list[dict] = (), **options) -> "Gateway":
        """Starts an Encke with these routes. A route may have an Application as `upstream`."""
        server = Gateway(self, routes, list(upstreams), **options)
        self.stack.callback(server.stop)
        server.start()
        return server

    def path(self, name: str) -> Path:
        return self.folder / name

    def file(self, name: str, bytes_: int) -> Path:
        """A file of random bytes."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.chance.randbytes(bytes_))
        return path


class Gateway(Server):
    """An Encke with routes, and a JSON access log."""

    def __init__(self, lab: Lab, routes: list[dict], upstreams: list[dict], *, site: dict | None = None,
                 settings: dict | None = None):
        super().__init__(lab, {})
        self.access = self.folder / "access.log"
        self.site, self.more = site or {}, settings or {}
        self.set_routes(routes, upstreams)

    def set_routes(self, routes: list[dict], upstreams: list[dict] = ()) -> None:
        routes = [{**route, **({"upstream": route["upstream"].url} if isinstance(route.get("upstream"), Application) else {})}
                  for route in routes]
        upstreams = [{**upstream, "to": [getattr(to, "url", to) for to in upstream["to"]]} for upstream in upstreams]
        own = {"log": {"access": str(self.access), "format": "json"},
               "site": [{"root": str(self.root), "route": routes, **self.site}], "push": {"enabled": False},
               **({"upstream": upstreams} if upstreams else {})}
        self.settings = merged(own, self.more)

    def reload(self, routes: list[dict], upstreams: list[dict] = ()) -> None:
        """Changes the routes by SIGHUP, and waits until they are in use."""
        old = self.settings
        self.set_routes(routes, upstreams)
        path = self.folder / "encke.toml"
        text, before = path.read_text(), self.log_text().count("settings reloaded")
        for key in ("site", "upstream"):
            if key in old:
                text = text.replace(toml({key: old[key]}), "")
            text += toml({key: self.settings[key]}) if key in self.settings else ""
        path.write_text(text)
        self.process.send_signal(signal.SIGHUP)
        self.rig.until(lambda: self.log_text().count("settings reloaded") > before, f"no reload: {self.log_text()[-400:]}")
        # Each worker takes part in this list after it has taken the new routes.
        url = f"http://127.0.0.1:{self.admin}/api/v1/lists/connections?limit=1&token={TOKEN}"
        urllib.request.urlopen(url, timeout=self.rig.patience).read()

    def lines(self) -> list[dict]:
        """The lines of the access log."""
        return json_lines(self.access) if self.access.exists() else []

    def reasons(self) -> dict:
        """Counts the lines of the access log that have a reason, by status and reason."""
        return dict(collections.Counter((line["status"], line["reason"]) for line in self.lines() if line["reason"]))

    def client(self) -> "Client":
        return self.rig.stack.enter_context(contextlib.closing(Client(self)))

    def ask(self, target: str, method: str = "GET", body: bytes | None = None, fields: dict | None = None) -> "Response":
        """One request on a connection of its own."""
        with contextlib.closing(Client(self)) as client:
            return client.ask(target, method, body, fields)


@dataclass
class Response:
    status: int
    body: bytes
    fields: http.client.HTTPMessage

    def __str__(self) -> str:
        return f"{self.status} {dict(self.fields.items())} {self.body[:100]!r}"


class Client(http.client.HTTPConnection):
    def __init__(self, server: Server, port: int | None = None, source: str = "127.0.0.1"):
        super().__init__("127.0.0.1", port or server.port, timeout=server.rig.patience, source_address=(source, 0))

    def ask(self, target: str, method: str = "GET", body: bytes | None = None, fields: dict | None = None) -> Response:
        try:
            self.request(method, target, body, fields or {})
            response = self.getresponse()
            return Response(response.status, response.read(), response.headers)
        except (OSError, http.client.HTTPException) as error:
            raise Fault(f"{method} {target}: {error!r}") from None


class Application:
    """A process that serves requests on a socket that it inherits as descriptor 3, so no two processes race for a port."""

    def __init__(self, lab: Lab, name: str, *, environment: dict | None = None, unix: bool = False, arguments: tuple = (),
                 psgi: Path | None = None):
        self.lab, self.name, self.process, self.port = lab, name, None, 0
        self.folder = lab.folder / f"app-{len(list(lab.folder.iterdir()))}"
        self.folder.mkdir()
        self.record_file = self.folder / "record"
        self.record_file.touch()
        self.socket_file = self.folder / "socket" if unix else None
        self.arguments, self.psgi = arguments, psgi or APPS / "app.psgi"
        self.environment = {"RECORD": str(self.record_file), "PYTHONDONTWRITEBYTECODE": "1", "GATE": str(self.folder / "gate"),
                            **(environment or {})}

    @property
    def url(self) -> str:
        if self.name in FASTCGI:
            return f"fcgi://127.0.0.1:{self.port}"
        return f"http://unix:{self.socket_file}" if self.socket_file else f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        if self.socket_file:
            self.socket_file.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(self.socket_file))
            listener.listen(1024)
        else:
            # The port stays the same when the application starts again.
            self.port = self.port or reserved_port(self.lab.stack)
            listener = socket.create_server(("127.0.0.1", self.port), backlog=1024)
            # Connections inherit it. Some servers do not set it on a socket that they have inherited.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with listener, (self.folder / "log").open("ab") as log:
            # The variables of systemd and of Server::Starter, by which some servers find the socket.
            words = (f"exec 3<&{listener.fileno()}; export LISTEN_FDS=1 LISTEN_PID=$$; exec {shlex.join(self.command())}")
            self.process = subprocess.Popen(
                ["bash", "-c", words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=APPS, start_new_session=True,
                pass_fds=[listener.fileno()],
                env={**os.environ, "SERVER_STARTER_PORT": f"127.0.0.1:{self.port}=3",
                     "FPM_SOCKETS": f"127.0.0.1:{self.port}=3", **self.environment})
        self.is_ready()

    def command(self) -> list[str]:
        address = f"127.0.0.1:{self.port}"
        commands = {
            "plain": [sys.executable, "plain.py"],
            "raw": [sys.executable, "raw.py"],
            "echo": [sys.executable, "echo.py"],
            "gatekeeper": [sys.executable, "gatekeeper.py"],
            "node": ["node", "app.js"],
            "gunicorn": [VENV / "gunicorn", "--workers", "1", "--threads", "4", "wsgi:app"],
            "uvicorn": [VENV / "uvicorn", "--fd", "3", "--log-level", "warning", "--lifespan", "off", "asgi:app"],
            "hypercorn": [VENV / "hypercorn", "--bind", "fd://3", "asgi:app"],
            "waitress": [VENV / "python", "waitress_app.py"],
            "go": ["bash", "-c", f"go build -o {self.folder}/app app.go && exec {self.folder}/app"],
            "puma": ["puma", "--environment", "production", "--bind", f"tcp://{address}", "config.ru"],
            "php-fpm": ["/usr/sbin/php-fpm8.2", "-F", "-y", self.php_settings()],
            "starman": ["starman", "--listen", address, "--workers", "1", self.psgi],
            # As a web server starts a FastCGI program: its standard input is the listening socket.
            "plackup": ["bash", "-c", f"unset SERVER_STARTER_PORT; exec plackup -s FCGI --nproc 1 {self.psgi} <&3"],
        }
        return [str(word) for word in [*commands[self.name], *self.arguments]]

    def php_settings(self) -> Path:
        """The settings of php-fpm with two processes, on the socket that it inherits."""
        path = self.folder / "fpm.conf"
        path.write_text(f"[global]\nerror_log = {self.folder}/fpm.log\n[www]\nlisten = 127.0.0.1:{self.port}\npm = static\n"
                        "pm.max_children = 2\nphp_admin_flag[log_errors] = on\nphp_admin_value[error_log] =\n"
                        # PHP itself would execute a file of any name: only Encke's rules protect other files.
                        "user = www-data\nsecurity.limit_extensions =\n")
        return path

    def is_ready(self) -> None:
        """Waits for the application's first response: the connection waits in the queue of the socket until then."""
        if self.name in FASTCGI:
            # The application does not speak HTTP. The first request waits in the queue of the socket.
            return
        try:
            with contextlib.closing(self.connect()) as client:
                client.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                if not client.recv(4096).startswith(b"HTTP/1.1 "):
                    raise Fault(f"{self.name} did not start: {self.log_text()[-400:]}")
        except OSError as error:
            raise Fault(f"{self.name} did not start: {error!r} {self.log_text()[-400:]}") from None

    def connect(self) -> socket.socket:
        if not self.socket_file:
            return connect(self.port)
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(PATIENCE)
        client.connect(str(self.socket_file))
        return client

    def log_text(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def send_signal(self, signal_: int) -> None:
        os.killpg(self.process.pid, signal_)

    def stop(self, signal_: int = signal.SIGTERM) -> None:
        """Ends the application, and the processes that it has started."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(signal_)
            self.send_signal(signal.SIGCONT)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGKILL)
            self.process.wait()
        self.process = None

    def open_gate(self) -> None:
        """Releases the requests that wait for the gate."""
        Path(self.environment["GATE"]).touch()

    def record(self) -> list[dict]:
        """The requests that the application has executed, and other events, in order."""
        return [line for line in json_lines(self.record_file) if line.get("target") != "/ready"]

    def noted(self, event: str) -> dict | None:
        """The line of an event besides requests."""
        return next((line for line in self.record() if line.get("event") == event), None)


class MemoryWatch(threading.Thread):
    """Samples the memory of a process that belongs to no file; `growth` is its maximum less its value at the start."""

    def __init__(self, server: Server):
        super().__init__(daemon=True)
        self.server, self.over = server, threading.Event()
        self.first = self.most = server.anonymous_bytes()

    def __enter__(self) -> "MemoryWatch":
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        self.join()

    def run(self) -> None:
        while not self.over.wait(0.02):
            self.most = max(self.most, self.server.anonymous_bytes())

    @property
    def growth(self) -> int:
        return self.most - self.first


def json_lines(path: Path) -> list[dict]:
    """The objects of a file, without a last line that is being written."""
    return [json.loads(line) for line in path.read_text(errors="replace").split("\n")[:-1]]


def blocks(count: int):
    """The content of a large transfer: blocks of which no two are equal. apps/ make and check the same ones."""
    base = bytearray(range(256)) * (BLOCK_BYTES // 256)
    for number in range(count):
        base[:8] = number.to_bytes(8, "big")
        yield bytes(base)


def digest(pieces) -> str:
    sum_ = hashlib.sha256()
    for piece in pieces:
        sum_.update(piece)
    return sum_.hexdigest()


def readable(root: Path) -> None:
    """Lets the processes of php-fpm, which run as another user, read the scripts of a site."""
    for folder in [root, *root.parents]:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)


def require(holds: object, complaint: object) -> None:
    if not holds:
        raise Fault(str(complaint))


def at_once(functions: list[Callable[[], None]]) -> None:
    """Runs functions on threads, and raises the first error."""
    errors = []

    def guarded(function):
        try:
            function()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def mib(bytes_: int) -> str:
    return f"{bytes_ / MIB:.1f} MiB"


def read_head(client: socket.socket, before: bytes = b"") -> tuple[bytes, bytes]:
    """Returns (head, bytes after it)."""
    data = before
    while b"\r\n\r\n" not in data:
        if not (piece := client.recv(1 << 16)):
            raise Fault(f"the connection ended within a head: {data[:200]!r}")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def read_all(client: socket.socket) -> bytes:
    """Reads to the end, which may be a reset."""
    pieces = []
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)
