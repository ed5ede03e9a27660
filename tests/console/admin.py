"""Servers with a console, and clients of their API.

    ConsoleLab.console ─► Console  an `encke serve` with a token, users of both roles, and a settings file that may be edited
                             ├─ ask       one request, with the credentials of a Login or none
                             ├─ log_in    ─► Login: cookie and CSRF token
                             ├─ page      ─► Page: an event stream
                             └─ state     what a rejected request must leave unchanged
"""
import contextlib
import json
import re
import signal
import sys
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gateway"))

from harness import Client, Fault, Lab, Response, Server, connect, merged, read_head, require  # noqa: E402

PASSWORD = "correct horse battery"
# Hash of PASSWORD: bcrypt with the smallest cost, because a debug binary computes it.
PASSWORD_HASH = "$2b$04$FR7n3.a8rnUEqB7IRYFysOgaauQiwWVMk9ZVjUgpw31K94Cslo5Wq"
USERS = [{"name": "ann", "password": PASSWORD_HASH, "role": "admin"}, {"name": "ben", "password": PASSWORD_HASH, "role": "view"}]
NOT_LIMITED = 1_000_000
# How the audit marks a request with a wrong token.
WRONG_TOKEN = " with a wrong token: "
API = "/api/v1"
EVENT_STREAM = "text/event-stream"
PROBLEM = "application/problem+json"


@dataclass
class ConsoleLab(Lab):
    def console(self, settings: dict | None = None, **options) -> "Console":
        """Starts a server whose log-ins are not limited, with these settings on top."""
        server = Console(self, settings or {}, **options)
        self.stack.callback(server.stop)
        server.start()
        return server


@dataclass(frozen=True)
class Login:
    """The credentials of a request."""

    cookie: str = ""
    csrf: str = ""
    bearer: str = ""

    def fields(self, port: int, method: str = "GET") -> dict[str, str]:
        """The fields of a request to a port. The name of the cookie has it, because cookies themselves have none."""
        fields = {"Authorization": f"Bearer {self.bearer}"} if self.bearer else {}
        if self.cookie:
            fields["Cookie"] = f"encke_session_{port}={self.cookie}"
        if self.csrf and method not in ("GET", "HEAD"):
            fields["Encke-Csrf"] = self.csrf
        return fields


NOBODY = Login()


class Console(Server):
    def __init__(self, lab: ConsoleLab, settings: dict):
        # A secret that no other text contains.
        self.token = f"admin-{lab.chance.randbytes(8).hex()}"
        own = {"server": {"admin": {"token": self.token}}, "console": {"edit": True, "attempts": NOT_LIMITED, "user": USERS}}
        super().__init__(lab, merged(own, settings))
        self.operator = Login(bearer=self.token)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.admin}"

    def client(self, source: str = "127.0.0.1", port: int | None = None) -> "AdminClient":
        """A client of the admin listener, or of another one."""
        return self.rig.keep(AdminClient(self, source, port))

    def ask(self, method: str, path: str, body: object = None, login: Login = NOBODY, fields: dict | None = None,
            source: str = "127.0.0.1") -> "Answer":
        """One request of the API on a connection of its own."""
        with contextlib.closing(AdminClient(self, source)) as client:
            return client.call(method, path, body, login, fields)

    def get(self, path: str, login: Login | None = None) -> dict:
        """The object of a resource, read with the token unless there is a log-in."""
        answer = self.ask("GET", path, login=login or self.operator)
        require(answer.status == 200, f"GET {path}: {answer}")
        return answer.json()

    def log_in(self, user: str = "ann", password: str = PASSWORD, source: str = "127.0.0.1") -> Login:
        answer = self.ask("POST", "/session", {"user": user, "password": password}, source=source)
        require(answer.status == 201, f"{user} could not log in: {answer}")
        return answer.login()

    def login_token(self) -> str:
        answer = self.ask("POST", "/session/token", login=self.operator)
        require(answer.status == 201, f"no one-time token: {answer}")
        return answer.json()["token"]

    def page(self, *watches: str, every_ms: int = 250, login: Login | None = None, receive_bytes: int | None = None) -> "Page":
        return self.rig.keep(Page(self, watches, every_ms, login or self.operator, receive_bytes))

    def reload(self, settings: dict) -> None:
        """Replaces keys of the settings file, and waits until they are in use."""
        before = self.log_text().count("settings reloaded")
        self.settings = merged(self.settings, settings)
        self.write_settings()
        self.process.send_signal(signal.SIGHUP)
        self.rig.until(lambda: self.log_text().count("settings reloaded") > before, f"no reload: {self.log_text()[-400:]}")
        if "tls" not in self.settings["server"]["admin"]:
            # Each worker takes part in this list after it has taken the new settings.
            self.get("/lists/connections?limit=1")

    def state(self) -> dict[str, object]:
        """The state that a rejected request must not change."""
        files = {str(path): path.read_bytes() for path in sorted(self.folder.rglob("*"))
                 if path.is_file() and path != self.log}
        # Wrong tokens are in the audit, but change nothing. The log has no limit of entries.
        audit = [line for line in self.log_text().splitlines() if "console: " in line and WRONG_TOKEN not in line]
        return {"audit": audit, "level": self.get("/log/level"), "files": files,
                "channels": [row["channel"] for row in self.get("/lists/channels")["rows"]],
                "log": [line for line in self.log_text().splitlines() if "settings reloaded" in line]}


class AdminClient(Client):
    def __init__(self, server: Console, source: str = "127.0.0.1", port: int | None = None):
        super().__init__(server, port or server.admin, source)
        self.server = server

    def call(self, method: str, path: str, body: object = None, login: Login = NOBODY, fields: dict | None = None) -> "Answer":
        """One request below /api/v1. A body that is not bytes is sent as JSON. The content of an event stream is not read."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        fields = {**({} if body is None else {"Content-Type": "application/json"}), **login.fields(self.port, method), **(fields or {})}
        return self.ask(API + path, method, content, fields)

    def ask(self, target: str, method: str = "GET", body: bytes | None = None, fields: dict | None = None) -> "Answer":
        try:
            self.request(method, target, body, fields or {})
            response = self.getresponse()
            if response.headers.get_content_type() == EVENT_STREAM:
                self.close()
                return Answer(response.status, b"", response.headers)
            return Answer(response.status, response.read(), response.headers)
        except OSError as error:
            self.server.alive()
            raise Fault(f"{method} {target}: {error!r}") from None


class Answer(Response):
    def json(self) -> dict:
        return json.loads(self.body)

    def login(self) -> Login:
        """The session that the response opened."""
        cookie = re.match(r"encke_session_\d+=(\w+);", self.fields["Set-Cookie"])
        return Login(cookie[1], self.json()["csrf"])

    def complaint(self, status: int, type_: str = "about:blank") -> str:
        """Why this is no problem document with a status and a type; empty if it is."""
        if self.status != status:
            return f"status {self.status} instead of {status}: {self.body[:200]!r}"
        if self.fields.get_content_type() != PROBLEM:
            return f"content type {self.fields.get('Content-Type')}"
        document = self.json()
        missing = {"type", "title", "status", "detail"} - document.keys()
        if missing or document["type"] != type_ or document["status"] != status or not document["detail"]:
            return f"not the problem {type_}: {document}"
        return ""



class Page:
    """An event stream of a page."""

    def __init__(self, server: Console, watches: tuple[str, ...], every_ms: int, login: Login, receive_bytes: int | None = None):
        query = urllib.parse.urlencode([*(("watch", watch) for watch in watches), ("every", every_ms)])
        fields = "".join(f"{name}: {value}\r\n" for name, value in login.fields(server.admin).items())
        self.patience = server.rig.patience
        self.socket = connect(server.admin, receive_bytes=receive_bytes)
        self.socket.settimeout(self.patience)
        # In HTTP/1.0 a stream is not cut into chunks.
        self.socket.sendall(f"GET {API}/live?{query} HTTP/1.0\r\nHost: {server.host}\r\n{fields}\r\n".encode())
        head, self.rest = read_head(self.socket)
        self.status = int(head.split()[1])

    def close(self) -> None:
        self.socket.close()

    def next(self) -> tuple[str, dict] | None:
        """Waits for an event. Returns its name and data; None at the end of the stream."""
        while b"\n\n" not in self.rest:
            try:
                piece = self.socket.recv(1 << 18)
            except TimeoutError:
                raise Fault("a page received no event") from None
            except ConnectionError as error:
                raise Fault(f"the stream of a page broke: {error!r}") from None
            if not piece:
                return None
            self.rest += piece
        text, _, self.rest = self.rest.partition(b"\n\n")
        if text == b":":
            return self.next()
        fields = dict(line.split(": ", 1) for line in text.decode().split("\n"))
        return fields.get("event", "message"), json.loads(fields["data"])

    def until(self, wanted, complaint: str) -> tuple[str, dict]:
        """Waits for an event that is wanted; `wanted` gets its name and data."""
        deadline = time.monotonic() + self.patience
        while (event := self.next()) is not None:
            if wanted(*event):
                return event
            if time.monotonic() > deadline:
                break
        raise Fault(complaint)
