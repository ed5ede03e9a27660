"""Applications: their processes, their records, and servers with routes to them.

    Lab ─┬─ gateway      ─► Gateway      an `encke serve` with routes, on port 0
         └─ application  ─► Application  a process that inherits its listening socket

Applications write each request that they execute to a record, one JSON object per line: method, target, names of fields, and the
length and digest of the body.
"""
import contextlib
import hashlib
import os
import shlex
import socket
import sys
from pathlib import Path

from rig import KIB, PATIENCE, VENV, Connection, Fault, ProcessGroup, Rig, Server, json_lines, merged, reserved_port

HERE = Path(__file__).resolve().parent
APPS = HERE / "apps"
BLOCK_BYTES = 64 * KIB
# Applications that speak FastCGI.
FASTCGI = ("php-fpm", "plackup")


class Lab(Rig):
    def application(self, name: str, **options) -> "Application":
        return self.started(Application(self, name, **options))

    def gateway(self, routes: list[dict], upstreams: list[dict] = (), **options) -> "Gateway":
        """Starts an Encke with these routes. A route may have an Application as `upstream`."""
        return self.started(Gateway(self, routes, upstreams, **options))

    def served(self, name: str, **options) -> tuple["Application", "Gateway"]:
        """Starts an application, and an Encke that sends it all requests."""
        application = self.application(name)
        return application, self.gateway([{"pattern": "/**", "upstream": application}], **options)


class Gateway(Server):
    """An Encke with routes, and a JSON access log."""

    def __init__(self, lab: Lab, routes: list[dict], upstreams: list[dict], *, site: dict | None = None,
                 settings: dict | None = None):
        super().__init__(lab)
        self.site = site or {}
        own = {"log": self.json_log(), "push": {"enabled": False}, **self.routed(routes, upstreams)}
        self.settings = merged(own, settings or {})

    def routed(self, routes: list[dict], upstreams: list[dict] = ()) -> dict:
        """The settings of routes and upstreams."""
        routes = [{**route, **({"upstream": route["upstream"].url} if isinstance(route.get("upstream"), Application) else {})}
                  for route in routes]
        upstreams = [{**upstream, "to": [getattr(to, "url", to) for to in upstream["to"]]} for upstream in upstreams]
        return {"site": [{"root": str(self.root), "route": routes, **self.site}], "upstream": upstreams or None}

    def reload_routes(self, routes: list[dict], upstreams: list[dict] = ()) -> None:
        self.reload(self.routed(routes, upstreams))


class Application(ProcessGroup):
    """A process that serves requests on a socket that it inherits as descriptor 3, so no two processes race for a port."""

    def __init__(self, lab: Lab, name: str, *, environment: dict | None = None, unix: bool = False, arguments: tuple = (),
                 psgi: Path | None = None):
        self.lab, self.name, self.port = lab, name, 0
        self.folder = lab.new_path("app")
        self.folder.mkdir()
        self.record_file, self.gate = self.folder / "record", self.folder / "gate"
        self.record_file.touch()
        self.socket_file = self.folder / "socket" if unix else None
        self.arguments, self.psgi = arguments, psgi or APPS / "app.psgi"
        self.environment = {**os.environ, **recording(self.record_file, self.gate), **(environment or {})}
        super().__init__([], self.folder / "log", cwd=APPS)

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
        with listener:
            # The variables of systemd and of Server::Starter, by which some servers find the socket.
            words = f"exec 3<&{listener.fileno()}; export LISTEN_FDS=1 LISTEN_PID=$$; exec {shlex.join(self.command())}"
            address = f"127.0.0.1:{self.port}=3"
            self.words = ["bash", "-c", words]
            self.options |= {"pass_fds": [listener.fileno()],
                             "env": {**self.environment, "SERVER_STARTER_PORT": address, "FPM_SOCKETS": address}}
            super().start()
        # An application of FastCGI does not speak HTTP. The first request waits in the queue of the socket.
        if self.name not in FASTCGI:
            self.wait_ready()

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

    def wait_ready(self) -> None:
        """Waits for the application's first response: the connection waits in the queue of the socket until then."""
        try:
            with contextlib.closing(self.connect()) as client:
                client.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                if not client.recv(4096).startswith(b"HTTP/1.1 "):
                    raise Fault(f"{self.name} did not start: {self.log_text()[-400:]}")
        except OSError as error:
            raise Fault(f"{self.name} did not start: {error!r} {self.log_text()[-400:]}") from None

    def connect(self) -> socket.socket:
        if not self.socket_file:
            return Connection(self.port)
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(PATIENCE)
        client.connect(str(self.socket_file))
        return client

    def open_gate(self) -> None:
        """Releases the requests that wait for the gate."""
        self.gate.touch()

    def record(self) -> list[dict]:
        """The requests that the application has executed, and other events, in order."""
        return [line for line in json_lines(self.record_file) if line.get("target") != "/ready"]

    def noted(self, event: str) -> dict | None:
        """The line of an event besides requests."""
        return next((line for line in self.record() if line.get("event") == event), None)


def recording(record: Path, gate: Path) -> dict[str, str]:
    """Variables by which an application finds its record and its gate."""
    return {"RECORD": str(record), "GATE": str(gate), "PYTHONDONTWRITEBYTECODE": "1"}


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
