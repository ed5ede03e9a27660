"""The servers and the resources, in one table each. A new server is one more entry.

A server knows how to start for a resource, and the path of that resource. Everything else (cores, sessions, ports, stopping)
is common to all. The floor (`floor/epl.c`) is not an HTTP server: it counts empty lines and sends fixed bytes, so it is
restarted for each resource.
"""

import hashlib
import http.client
import os
import random
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .figures import Bar
from .machine import DESCRIPTORS, Cores, Process, Trouble, free_port

BENCH = Path(__file__).resolve().parent.parent
PEERS = BENCH / "peers"
BACKENDS = ("epoll-edge", "uring", "epoll-level", "poll")
# Servers take part in these sections only if they name them.
PUSH = ("push-fan", "push-sustained", "push-connect", "push-memory", "push-cycle", "push-agreement")
# TLS sections; servers must name these, too.
TLS = ("tls-full", "tls-resumed", "tls-memory")
# Sections of generators, against nginx.
LOAD = ("load-keepalive", "load-connect", "load-pipelined", "load-held", "load-screen", "load-verdict")
# Sections of Encke with NATS.
CLUSTER = ("cluster-cost",)
# Sections of Encke's console, only its default configurations.
CONSOLE = ("console-open", "console-page")
# Sections of live streams; the last one has no server.
STREAM = ("stream-cpu", "stream-memory", "stream-storm", "stream-many", "stream-split")
STREAM_PATH = "/live/bench"
# Sections of gateways, in front of an application.
GATEWAY_HTTP = ("gateway-get", "gateway-calls", "gateway-tunnels", "gateway-relay", "gateway-accel", "gateway-sse", "gateway-gigabyte")
GATEWAY_PHP = ("gateway-fastcgi",)
GATEWAY = GATEWAY_HTTP + GATEWAY_PHP
TRANSPORTS = ("sse", "poll", "ws")
# The publisher without a rate limit in peers/encke-push.toml; others have 10 messages per second.
PUBLISHER_TOKEN = "a-token-for-the-bench"
# The directory of certificate and key, below the state directory.
TLS_FOLDER = "tls"
NCHAN_MODULE = "/usr/lib/nginx/modules/ngx_nchan_module.so"


@dataclass(frozen=True)
class Resource:
    name: str
    size: int


HELLO = Resource("hello.txt", 13)
KIB = Resource("1k.bin", 1024)
KIB16 = Resource("16k.bin", 16 * 1024)
IMAGE = Resource("image.png", 2_397_701)
MIB64 = Resource("64m.bin", 64 << 20)
RESOURCES = (HELLO, KIB, KIB16, IMAGE, MIB64)


@dataclass(frozen=True)
class Place:
    """The parameters for starting a server."""

    port: int
    root: Path
    state: Path
    resource: Resource
    closing: bool
    programs: "Programs"
    backend: int = 0  # the port of the application behind a gateway


@dataclass(frozen=True)
class Programs:
    """Programs that are built before the bench; from the third on only if a measurement needs them."""

    floor: Path
    encke: Path
    push_floor: Path = Path()
    witness: Path = Path()
    stream_floor: Path = Path()
    listeners: Path = Path()
    media_speed: Path = Path()


class Server:
    """Base of the table's entries.

    `peer` is the name for --servers or --backends; `only` lists its sections (empty for all sections of files without TLS); a
    `variant` has no bars and is not in quick runs; `callgrind` tells whether valgrind can run it; `connections_max` is its
    limit here; `dialect` and `transports` configure the crowd.
    """

    name: str
    peer: str
    program = ""
    package = ""
    only: tuple[str, ...] = ()
    scheme = "http"
    variant = False
    callgrind = True
    connections_max = DESCRIPTORS
    dialect = ""
    transports: tuple[str, ...] = ()
    token = ""

    @property
    def needs(self) -> tuple[tuple[str, str], ...]:
        """Required programs or files, with their Debian packages."""
        return ((self.program, self.package),) if self.package else ()

    def barred(self, *bars: Bar) -> tuple[Bar, ...]:
        """Returns the bars that apply to this server: only Encke has any."""
        return ()

    def takes_part(self, section: str) -> bool:
        return section in self.only if self.only else section not in PUSH + TLS + CLUSTER + STREAM + GATEWAY

    def speaking(self, transport: str) -> "Server":
        """Returns this server, or another configuration of it that the transport needs."""
        return self

    def sending(self, gather_ms: int) -> "Server":
        """Returns this server, or another configuration of it with this gather time of live streams."""
        return self

    def command(self, place: Place) -> list[str]:
        raise NotImplementedError

    def path(self, resource: Resource) -> str:
        return f"/{resource.name}"

    def version(self, programs: Programs) -> str:
        raise NotImplementedError

    def prepare(self, place: Place) -> Path:
        """Fills in the template of this server and returns the settings file."""
        raise NotImplementedError


class CompiledFloor(Server):
    """A C program of bench/floor/, the minimum of its kind of server."""

    name = peer = "floor"
    source: str

    def version(self, programs: Programs) -> str:
        return f"bench/floor/{self.source}, cc -O2, sha256 {_digest((BENCH / 'floor' / self.source).read_bytes())[:12]}"


class Floor(CompiledFloor):
    """The minimum of a readiness loop: no HTTP, one receive, one fixed response."""

    source = "epl.c"
    # One send up to this size, sendfile above it: whichever is faster (the limit was measured near 8 KiB).
    MEMORY_MAX = 6_000

    def command(self, place: Place) -> list[str]:
        argv = [str(place.programs.floor)]
        if place.closing:
            argv.append("-C")
        if place.resource is not HELLO:
            how = "-m" if place.resource.size <= self.MEMORY_MAX else "-f"
            argv += [how, str(place.root / place.resource.name)]
        return [*argv, str(place.port)]


class PushFloor(CompiledFloor):
    """The minimum of a push server: one send() for each descriptor of an array."""

    source = "rawpush.c"
    only = PUSH
    dialect = "rawpush"
    transports = ("sse", "poll")

    def __init__(self, mode: str = "send"):
        self._mode = mode

    def command(self, place: Place) -> list[str]:
        return [str(place.programs.push_floor), str(place.port), self._mode]

    def speaking(self, transport: str) -> Server:
        return PushFloor("lp") if transport == "poll" else self


class StreamFloor(CompiledFloor):
    """The minimum of a server of live streams: gathered bytes, one send() for each descriptor of an array."""

    source = "rawstream.c"
    only = STREAM[:4]
    dialect = "rawstream"

    def __init__(self, gather_ms: int = 250):
        self._gather_ms = gather_ms

    def command(self, place: Place) -> list[str]:
        return [str(place.programs.stream_floor), str(place.port), str(self._gather_ms)]

    def sending(self, gather_ms: int) -> Server:
        return StreamFloor(gather_ms)


class Templated(Server):
    """A peer from a Debian package, with its settings in bench/peers/."""

    def __init__(self, name: str, program: str, package: str, template: str, arguments: list[str], *, only: tuple[str, ...] = (),
                 paths: dict[str, str] | None = None, connections_max: int = DESCRIPTORS, scheme: str = "http"):
        self.scheme = scheme
        self.name, self.peer, self.only, self.connections_max = name, name, only, connections_max
        self.program, self.package = program, package
        self._template, self._arguments, self._paths = template, arguments, paths or {}

    def command(self, place: Place) -> list[str]:
        settings = _fill(self._template, place)
        words = [word.replace("@SETTINGS@", str(settings)).replace("@STATE@", str(place.state))
                 for word in self._arguments]
        return [located(self.program, self.package), *words]

    def path(self, resource: Resource) -> str:
        return self._paths.get(resource.name, super().path(resource))

    def version(self, programs: Programs) -> str:
        line = _first_line([located(self.program, self.package), "--version" if self.program == "h2o" else "-v"])
        # haproxy appends the address of its site.
        return line.split(" - http")[0]


class Nginx(Templated):
    """nginx with one of the settings files."""

    def __init__(self, template: str, **how):
        super().__init__(how.pop("name", "nginx"), "nginx", how.pop("package", "nginx"), template,
                         ["-p", "@STATE@", "-e", "stderr", "-c", "@SETTINGS@"], **how)


class Nchan(Nginx):
    """nginx with the push module from its Debian package."""

    dialect = "nchan"
    transports = TRANSPORTS

    @property
    def needs(self) -> tuple[tuple[str, str], ...]:
        return (("nginx", "nginx"), (NCHAN_MODULE, self.package))

    def version(self, programs: Programs) -> str:
        return f"{_first_line(['dpkg-query', '-W', self.package])}; {super().version(programs)}"


class Encke(Server):
    """The shipped binary with its default limits, on one back end."""

    program = "encke"
    dialect = "encke"
    transports = TRANSPORTS
    token = PUBLISHER_TOKEN

    def __init__(self, backend: str, *, name: str = "", settings: str = "encke.toml", only: tuple[str, ...] = (),
                 variant: bool = False):
        self.backend = backend
        self.name = name or f"encke {backend}"
        self.peer = backend
        self.only = only
        self.variant = variant
        self.callgrind = backend != "uring"  # valgrind does not support io_uring
        self._settings = settings

    def command(self, place: Place) -> list[str]:
        settings = _fill(self._settings, place)
        return [str(place.programs.encke), "serve", str(place.root), "-l", f"127.0.0.1:{place.port}", "-w", "1",
                "--backend", self.backend, "-c", str(settings), "--admin", "127.0.0.1:0"]

    def version(self, programs: Programs) -> str:
        return _first_line([str(programs.encke), "--version"])

    def barred(self, *bars: Bar) -> tuple[Bar, ...]:
        return bars


class SecureEncke(Encke):
    """Encke with TLS. Its listener is a table of the settings file, which a flag would override."""

    scheme = "https"

    def __init__(self, backend: str):
        super().__init__(backend, settings="encke-tls.toml", only=TLS)

    def command(self, place: Place) -> list[str]:
        settings = _fill(self._settings, place)
        return [str(place.programs.encke), "serve", "-w", "1", "--backend", self.backend, "-c", str(settings),
                "--admin", "127.0.0.1:0", "--open"]


SERVERS: tuple[Server, ...] = (
    Floor(),
    Nginx("nginx.conf", paths={HELLO.name: "/plain"}),
    Templated("h2o", "h2o", "h2o", "h2o.conf", ["-m", "worker", "-c", "@SETTINGS@"]),
    Templated("lighttpd", "lighttpd", "lighttpd", "lighttpd.conf", ["-D", "-f", "@SETTINGS@"],
              connections_max=DESCRIPTORS // 2),
    *(Encke(backend) for backend in BACKENDS),
    Encke("epoll-edge", name="encke, access log", settings="encke-log.toml", only=("keepalive",), variant=True),
    PushFloor(),
    Nchan("nchan.conf", name="nchan", package="libnginx-mod-nchan", only=PUSH),
    *(Encke(backend, settings="encke-push.toml", only=PUSH) for backend in BACKENDS[:2]),
    Nginx("nginx-tls.conf", only=TLS, paths={HELLO.name: "/plain"}, scheme="https"),
    *(SecureEncke(backend) for backend in BACKENDS[:2]),
    Nginx("gateway-nginx.conf", only=GATEWAY_HTTP),
    Nginx("gateway-nginx-php.conf", only=GATEWAY_PHP),
    Templated("haproxy", "haproxy", "haproxy", "gateway-haproxy.cfg", ["-db", "-q", "-f", "@SETTINGS@"],
              only=("gateway-get", "gateway-calls", "gateway-tunnels")),
    Templated("haproxy", "haproxy", "haproxy", "gateway-haproxy-large.cfg", ["-db", "-q", "-f", "@SETTINGS@"],
              only=("gateway-relay", "gateway-gigabyte")),
    Templated("haproxy", "haproxy", "haproxy", "gateway-haproxy-events.cfg", ["-db", "-q", "-f", "@SETTINGS@"],
              only=("gateway-sse",)),
    Templated("h2o", "h2o", "h2o", "gateway-h2o.conf", ["-m", "worker", "-c", "@SETTINGS@"],
              only=("gateway-get", "gateway-calls", "gateway-tunnels", "gateway-relay", "gateway-sse")),
    *(Encke(backend, settings="encke-gateway.toml", only=GATEWAY_HTTP) for backend in BACKENDS[:2]),
    *(Encke(backend, settings="encke-gateway-php.toml", only=GATEWAY_PHP) for backend in BACKENDS[:2]),
    *(Encke(backend, name=f"encke {backend}, own file", only=("gateway-accel",), variant=True) for backend in BACKENDS[:2]),
    StreamFloor(),
    Templated("icecast2", "icecast2", "icecast2", "icecast2.xml", ["-c", "@SETTINGS@"], only=("stream-cpu", "stream-memory")),
    *(Encke(backend, settings="encke-push.toml", only=STREAM[:4]) for backend in BACKENDS[:2]),
)
# The application of the gateway measurements.
APPLICATION = Nginx("gateway-backend.conf", name="application")
# The same for FastCGI. -R: it may run as root.
PHP = Templated("php-fpm", "php-fpm8.2", "php8.2-fpm", "gateway-php.conf", ["-F", "-R", "-y", "@SETTINGS@"])
PEER_NAMES = ("floor", "nginx", "haproxy", "h2o", "lighttpd", "nchan", "icecast2")


@dataclass
class Running:
    """A server that listens."""

    server: Server
    process: Process
    port: int
    resource: Resource
    pid: int

    @property
    def url(self) -> str:
        return f"{self.server.scheme}://127.0.0.1:{self.port}{self.server.path(self.resource)}"

    def verify(self, root: Path, warm: int, content: Resource | None = None) -> None:
        """Compares one complete response with the file, and requests `warm` more, so that no round includes first-time costs.
        `content` is the file of a response whose path is another one."""
        whole = self._body()
        if _digest(whole) != _digest((root / (content or self.resource).name).read_bytes()):
            raise Trouble(f"{self.server.name}: {self.url} returned {len(whole)} bytes that differ from the file")
        for _ in range(warm):
            self._body()

    def _body(self) -> bytes:
        if self.server.scheme == "https":
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10,
                                                     context=ssl._create_unverified_context())
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", self.server.path(self.resource))
            answer = connection.getresponse()
            if answer.status != 200:
                raise Trouble(f"{self.server.name}: {self.url} returned status {answer.status}")
            return answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Trouble(f"{self.server.name}: {self.url} did not respond: {error!r}") from None
        finally:
            connection.close()


@dataclass
class Bench:
    """Common data of all measurements: paths, servers, durations, seed."""

    root: Path
    state: Path
    cores: Cores
    programs: Programs
    servers: list[Server]
    rounds: int
    seconds: int
    quick: bool
    chance: random.Random
    autogroup_raised: bool = True
    _started: int = field(default=0, repr=False)

    def servers_for(self, section: str) -> list[Server]:
        return [server for server in self.servers if server.takes_part(section)]

    def new_state(self, name: str) -> Path:
        """Creates a directory for one process."""
        self._started += 1
        state = self.state / f"{self._started:04d}-{name.replace(' ', '-').replace(',', '')}"
        state.mkdir()
        return state

    def generator(self, name: str, argv: list[str], **pipes) -> Process:
        process = Process(name, argv, self.cores.generator, self.new_state(name) / "stderr", **pipes)
        self.autogroup_raised &= process.autogroup_raised
        return process

    @contextmanager
    def running(self, server: Server, resource: Resource, *, closing: bool = False, under: tuple[str, ...] = (),
                traced: bool = False, backend: int = 0, core: int | None = None) -> Iterator[Running]:
        """Runs a server until the end of the context. `under` is the command it runs under; `traced` means that this command
        starts the server as its child instead of becoming it. `backend` is the port of the application behind a gateway,
        `core` replaces the server's core."""
        state = self.new_state(server.name)
        place = Place(free_port(), self.root, state, resource, closing, self.programs, backend)
        argv = [word.replace("@STATE@", str(state)) for word in under] + server.command(place)
        process = Process(server.name, argv, self.cores.server if core is None else core, state / "stderr")
        self.autogroup_raised &= process.autogroup_raised
        try:
            process.wait_listening(place.port)
            # Only once it listens: strace tests its methods on another child first.
            pid = process.only_child() if traced else process.root_pid
            yield Running(server, process, place.port, resource, pid)
        finally:
            process.stop(traced)


def write_resources(root: Path) -> None:
    """Writes the document root: incompressible bytes, equal in every run."""
    for resource in RESOURCES:
        body = b"Hello, World!" if resource is HELLO else random.Random(resource.size).randbytes(resource.size)
        (root / resource.name).write_bytes(body)
    # A file changed within the last two seconds gets a weak ETag, so the files must be older.
    settled = time.time() - 60
    for resource in RESOURCES:
        os.utime(root / resource.name, (settled, settled))


def make_certificate(state: Path) -> None:
    """Creates a certificate on P-256, as most sites have. No client here verifies it."""
    folder = state / TLS_FOLDER
    folder.mkdir()
    outcome = subprocess.run(
        [located("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        raise Trouble(f"openssl created no certificate: {outcome.stderr.strip()[-400:]}")


def build_floor(target: Path, library: str) -> Path:
    """Compiles a floor program, with the library that it needs besides libc."""
    compiler = located("cc", "gcc")
    source = BENCH / "floor" / f"{target.name}.c"
    outcome = subprocess.run([compiler, "-O2", "-o", str(target), str(source), f"-l{library}"],
                             capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        raise Trouble(f"cc could not compile bench/floor/{source.name}: {outcome.stderr.strip()[-400:]}")
    return target


def located(program: str, package: str) -> str:
    """Returns the program's path, searching /usr/sbin even if PATH does not include it. A file keeps its full path."""
    if program.startswith("/"):
        path = program if os.path.exists(program) else None
    else:
        path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise Trouble(f"{program} is missing: apt install {package}")
    return path


def _fill(template: str, place: Place) -> Path:
    text = (PEERS / template).read_text()
    for word, part in (("@MAIN@", "nginx-main.conf"), ("@HTTP@", "nginx-http.conf")):
        text = text.replace(word, (PEERS / part).read_text())
    user = "user: root" if os.geteuid() == 0 else ""  # h2o started by root would switch to nobody
    # icecast2 does not run as root.
    owner = "<changeowner><user>nobody</user><group>nogroup</group></changeowner>" if os.geteuid() == 0 else ""
    for word, value in (("@PORT@", place.port), ("@ROOT@", place.root), ("@STATE@", place.state), ("@USER@", user), ("@OWNER@", owner),
                        ("@TOKEN@", PUBLISHER_TOKEN), ("@BACKEND@", place.backend), ("@TLS@", place.state.parent / TLS_FOLDER)):
        text = text.replace(word, str(value))
    filled = place.state / template
    filled.write_text(text)
    return filled


def _first_line(argv: list[str]) -> str:
    outcome = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
    lines = (outcome.stdout + outcome.stderr).strip().splitlines()
    return " ".join(lines[0].split()) if lines else "unknown version"


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
