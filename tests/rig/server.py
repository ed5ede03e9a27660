"""Servers under test, other processes, and the resources of a test.

    Rig ─┬─ Server ─► Encke ─► Process   an `encke serve` on port 0 with settings on top of common ones
         ├─ started   any Process: its start lines, its log, its end
         └─ folder, sockets, patience, random choices

All of them are released at the end of the test, and each process is stopped by its id.
"""
import contextlib
import itertools
import json
import os
import random
import re
import resource
import signal
import subprocess
import tempfile
import threading
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .innocent import SMALL_FILE, TOKEN, Innocent
from .net import Client, Connection, Response
from .waiting import PATIENCE, Fault, until

REPOSITORY = Path(__file__).resolve().parent.parent.parent
# Programs of Python that applications and schemathesis need (.ci/need gateway-venv, console-venv).
VENV = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target") / "gateway-venv/bin"
KIB, MIB = 1 << 10, 1 << 20
RELOADED = "settings reloaded"
# Seconds after which a foreign program that ignores its signal is killed.
GRACE = 5.0


class Process:
    """A program whose output is in a file."""

    def __init__(self, words: list, log: Path, *, patience: float = PATIENCE, **options):
        self.words, self.log, self.patience, self.options = [str(word) for word in words], log, patience, options
        self.process: subprocess.Popen | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self) -> "Process":
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.words, **{
                "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "cwd": self.log.parent, **self.options})
        return self

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def said(self, pattern: str) -> re.Match:
        """Waits until the log matches."""
        return self._until_log(lambda text: re.search(pattern, text, re.MULTILINE), repr(pattern), PATIENCE)

    def logged(self, text: str, times: int = 1) -> None:
        """Waits until the log has a text this number of times."""
        self._until_log(lambda log: log.count(text) >= times, f"{text!r} {times} times", self.patience)

    def _until_log(self, test, awaited: str, patience: float):
        def event():
            has_ended = self.process.poll() is not None
            if not (found := test(self.log_text())) and has_ended:
                raise Fault(f"exited with status {self.process.poll()} before it logged {awaited}: {self.log_text()[-2000:]}")
            return found

        return until(event, lambda: f"did not log {awaited}: {self.log_text()[-2000:]}", patience)

    def alive(self) -> None:
        """Raises a fault if the process has ended."""
        # A connection may end before wait(2) reports the process.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.1)
        if (status := self.process.poll()) is not None:
            raise Fault(f"the server exited with status {status}: {' '.join(self.log_text()[-200:].split())}")

    def send_signal(self, signal_: int) -> None:
        self.process.send_signal(signal_)

    def wait(self, patience: float = PATIENCE) -> int:
        """Waits for the end of the process. Returns its status."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Fault(f"{self.words[0]} did not exit within {patience:g} s: {self.log_text()[-400:]}") from None

    def stop(self, signal_: int = signal.SIGTERM) -> int | None:
        """Ends the process. Returns its status."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.send_signal(signal_)
        return self.wait()


class ProcessGroup(Process):
    """A foreign program, with the processes that it starts. It is killed if it ignores its signal."""

    def __init__(self, words: list, log: Path, **options):
        super().__init__(words, log, start_new_session=True, **options)

    def send_signal(self, signal_: int) -> None:
        os.killpg(self.pid, signal_)

    def stop(self, signal_: int = signal.SIGTERM) -> None:
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(signal_)
            self.send_signal(signal.SIGCONT)
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGKILL)
            self.process.wait()
        self.process = None


class Encke(Process):
    """An `encke serve` with any settings. The ports of its listeners are in its start lines."""

    def __init__(self, words: list, log: Path, *, token: str = TOKEN, has_admin: bool = True, **options):
        super().__init__(words, log, **options)
        self.token, self.has_admin = token, has_admin
        self.port = self.admin = 0

    def start(self) -> "Encke":
        super().start()
        self.port = self.port_of("site")
        self.admin = self.port_of("admin") if self.has_admin else 0
        return self

    def port_of(self, name: str) -> int:
        """Waits for the start line of a listener. Returns its port."""
        return int(self.said(rf"\b{name}\s+(?:curl .* )?https?://(?:127\.0\.0\.1|[a-z][a-z.]*):(\d+)[/\s]")[1])

    def innocent(self, **options) -> Innocent:
        return Innocent(self, **options)

    def ask(self, target: str, method: str = "GET", body: bytes | str | None = None, fields: dict | None = None,
            **options) -> Response:
        """One request on a connection of its own."""
        with contextlib.closing(Client(self, **options)) as client:
            return client.ask(target, method, body, fields)

    def api(self, path: str) -> dict:
        """A resource of the admin listener."""
        url = f"http://127.0.0.1:{self.admin}/api/v1/{path}"
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(asked, timeout=PATIENCE) as response:
            return json.load(response)

    def samples(self, family: str) -> list[dict]:
        return [sample for one in self.api("status")["families"] if one["name"] == family for sample in one["samples"]]

    def value(self, family: str, **labels: str) -> int:
        """The sum of a family's samples with these labels."""
        return sum(sample["value"] for sample in self.samples(family)
                   if all(sample.get("labels", {}).get(name) == value for name, value in labels.items()))

    def anonymous_bytes(self) -> int:
        """Resident memory that belongs to no file."""
        found = re.search(r"^RssAnon:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        if not found:
            raise Fault("the server process has exited")
        return int(found[1]) * KIB


class Server(Encke):
    """An `encke serve` of a Rig, on port 0."""

    def __init__(self, rig: "Rig", settings: dict | None = None, *, file_bytes_max: int | None = None,
                 ignore_sigxfsz: bool = False):
        self.rig, self.settings, self.file_bytes_max, self.lives = rig, settings or {}, file_bytes_max, 0
        self.folder = rig.new_path("server")
        self.root, self.settings_file, self.access = (self.folder / name for name in ("root", "encke.toml", "access.log"))
        self.root.mkdir(parents=True)
        (self.root / "small.txt").write_bytes(SMALL_FILE)
        super().__init__([rig.encke, "serve", "-c", self.settings_file], self.folder / "log", patience=rig.patience,
                         stdout=subprocess.DEVNULL,
                         # Python ignores SIGXFSZ, and restores its default in the child unless it is kept.
                         restore_signals=not ignore_sigxfsz)

    def write_settings(self) -> None:
        common = {
            "server": {"listen": "127.0.0.1:0", "workers": 2, "backend": self.rig.backend, "drain_time": "1s",
                       "admin": {"address": "127.0.0.1:0", "token": TOKEN}},
            "log": {"access": "off"},
            "site": [{"root": str(self.root)}],
            "auth": {"anonymous": ["subscribe"], "tokens": [{"token": TOKEN, "name": "innocent", "publish": ["**"],
                     "subscribe": ["**"], "presence": ["**"], "manage": ["**"]}]},
        }
        self.settings_file.write_text(toml(merged(merged(common, self.settings), self.rig.undefended)))

    def start(self) -> "Server":
        self.lives += 1
        self.log = self.folder / f"log-{self.lives}"
        self.write_settings()
        Process.start(self)
        if self.file_bytes_max:
            self.limit_files(self.file_bytes_max)
        self.port, self.admin = self.port_of("site"), self.port_of("admin")
        return self

    def reload(self, settings: dict) -> None:
        """Changes settings by SIGHUP, and waits until they are in use. None removes a setting."""
        self.settings = merged(self.settings, settings)
        before = self.log_text().count(RELOADED)
        self.write_settings()
        self.send_signal(signal.SIGHUP)
        self.logged(RELOADED, before + 1)
        if "tls" not in self.settings.get("server", {}).get("admin", {}):
            # Each worker takes part in this list after it has taken the new settings.
            self.api("lists/connections?limit=1")

    def limit_files(self, bytes_: int) -> None:
        """Sets the size beyond which no file of the process can grow."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (bytes_, resource.RLIM_INFINITY))

    def file(self, name: str, bytes_: int) -> None:
        """A sparse file of zeros."""
        with (self.root / name).open("wb") as file:
            file.truncate(bytes_)

    def json_log(self) -> dict:
        """The settings of an access log that `lines` can read."""
        return {"access": str(self.access), "format": "json"}

    def lines(self) -> list[dict]:
        """The lines of the access log."""
        return json_lines(self.access) if self.access.exists() else []

    def reasons(self) -> dict:
        """Counts the lines of the access log that have a reason, by status and reason."""
        return dict(Counter((line["status"], line["reason"]) for line in self.lines() if line["reason"]))

    def connect(self, source: str = "127.0.0.1", *, receive_bytes: int | None = None) -> Connection:
        return self.rig.connect(self.port, source, receive_bytes)

    def requested(self, target: str, method: str = "GET", fields: str = "", *, receive_bytes: int | None = None,
                  **options) -> Connection:
        """A connection with one request."""
        client = self.connect(receive_bytes=receive_bytes)
        client.request(target, method, fields, **options)
        return client

    def client(self, source: str = "127.0.0.1", port: int | None = None) -> Client:
        return self.rig.keep(Client(self, source, port))


@dataclass
class Rig:
    """The resources of one test, all released at its end: processes, sockets and a directory."""

    encke: Path
    backend: str = "epoll-edge"
    seed: int = 0
    # "basic", "whole" or "full".
    tier: str = "basic"
    chance: random.Random = field(default_factory=random.Random)
    # Whether `--self-check` runs, and the defence that it removes: settings that are applied last, or a name for the suite.
    planted: bool = False
    undefended: dict | str | None = field(default_factory=dict)
    patience: float = PATIENCE

    def __enter__(self) -> "Rig":
        self.stack, self.numbers = contextlib.ExitStack(), itertools.count()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="encke-test-"))).resolve()
        return self

    def __exit__(self, *exception) -> bool | None:
        return self.stack.__exit__(*exception)

    def started(self, process):
        """Starts a process, which is stopped at the end."""
        # Before the start, which may fail when the process already runs.
        self.stack.callback(process.stop)
        process.start()
        return process

    def server(self, settings: dict | None = None, **options) -> Server:
        return self.started(Server(self, settings, **options))

    def until(self, event, complaint: str, patience: float | None = None):
        """Waits for a true value of `event` and returns it. The complaint names the event."""
        return until(event, complaint, patience or self.patience)

    def keep(self, resource_):
        """Registers a socket, which is closed at the end."""
        return self.stack.enter_context(contextlib.closing(resource_))

    def connect(self, port: int, source: str = "127.0.0.1", receive_bytes: int | None = None) -> Connection:
        return self.keep(Connection(port, source, receive_bytes, self.patience))

    def of(self, basic, whole, full):
        """The value for the present tier."""
        return {"basic": basic, "whole": whole, "full": full}[self.tier]

    def path(self, name: str) -> Path:
        return self.folder / name

    def new_path(self, kind: str) -> Path:
        """A path that no other part of the test has."""
        return self.folder / f"{kind}-{next(self.numbers)}"

    def file(self, name: str, bytes_: int) -> Path:
        """A file of random bytes."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.chance.randbytes(bytes_))
        return path


class MemoryWatch(threading.Thread):
    """Samples the memory of a process that belongs to no file; `growth` is its maximum less its value at the start."""

    def __init__(self, server: Encke):
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


def mib(bytes_: int) -> str:
    return f"{bytes_ / MIB:.1f} MiB"


def json_lines(path: Path) -> list[dict]:
    """The objects of a file, without a last line that is being written."""
    return [json.loads(line) for line in path.read_text(errors="replace").split("\n")[:-1]]


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

    return "".join(f"{key} = {text(value)}\n" for key, value in settings.items() if value is not None)
