"""Servers with a console, and clients of their API.

    ConsoleRig.console ─► Console  an `encke serve` with a token, users of both roles, and a settings file that may be edited
                             ├─ call      one request, with the credentials of a Login or none
                             ├─ log_in    ─► Login: cookie and CSRF token
                             ├─ page      ─► Page: an event stream
                             └─ state     what a rejected request must leave unchanged
"""
import contextlib
import json
import re
import time
import urllib.parse
from dataclasses import dataclass

from rig import RELOADED, Client, Fault, Response, Rig, Server, merged, require

PASSWORD = "correct horse battery"
# Hash of PASSWORD: bcrypt with the smallest cost, because a debug binary computes it.
PASSWORD_HASH = "$2b$04$FR7n3.a8rnUEqB7IRYFysOgaauQiwWVMk9ZVjUgpw31K94Cslo5Wq"
USERS = [{"name": "ann", "password": PASSWORD_HASH, "role": "admin"}, {"name": "ben", "password": PASSWORD_HASH, "role": "view"}]
NOT_LIMITED = 1_000_000
# How the audit marks a request with a wrong token.
WRONG_TOKEN = " with a wrong token: "
API = "/api/v1"
PROBLEM = "application/problem+json"


class ConsoleRig(Rig):
    def console(self, settings: dict | None = None) -> "Console":
        """Starts a server whose log-ins are not limited, with these settings on top."""
        return self.started(Console(self, settings or {}))


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
    def __init__(self, lab: ConsoleRig, settings: dict):
        # A secret that no other text contains.
        token = f"admin-{lab.chance.randbytes(8).hex()}"
        own = {"server": {"admin": {"token": token}}, "console": {"edit": True, "attempts": NOT_LIMITED, "user": USERS}}
        super().__init__(lab, merged(own, settings))
        self.token = token
        self.operator = Login(bearer=self.token)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.admin}"

    def client(self, source: str = "127.0.0.1", port: int | None = None) -> "AdminClient":
        """A client of the admin listener, or of another port."""
        return self.rig.keep(AdminClient(self, source, port))

    def call(self, method: str, path: str, body: object = None, login: Login = NOBODY, fields: dict | None = None,
             source: str = "127.0.0.1") -> "Answer":
        """One request of the API on a connection of its own."""
        with contextlib.closing(AdminClient(self, source)) as client:
            return client.call(method, path, body, login, fields)

    def get(self, path: str, login: Login | None = None) -> dict:
        """The object of a resource, read with the token unless there is a log-in."""
        answer = self.call("GET", path, login=login or self.operator)
        require(answer.status == 200, f"GET {path}: {answer}")
        return answer.json()

    def log_in(self, user: str = "ann", password: str = PASSWORD, source: str = "127.0.0.1") -> Login:
        answer = self.call("POST", "/session", {"user": user, "password": password}, source=source)
        require(answer.status == 201, f"{user} could not log in: {answer}")
        return answer.login()

    def login_token(self) -> str:
        answer = self.call("POST", "/session/token", login=self.operator)
        require(answer.status == 201, f"no one-time token: {answer}")
        return answer.json()["token"]

    def page(self, *watches: str, every_ms: int = 250, login: Login | None = None, receive_bytes: int | None = None) -> "Page":
        return self.rig.keep(Page(self, watches, every_ms, login or self.operator, receive_bytes))

    def state(self) -> dict[str, object]:
        """The state that a rejected request must not change."""
        files = {str(path): path.read_bytes() for path in sorted(self.folder.rglob("*"))
                 if path.is_file() and path != self.log}
        # Wrong tokens are in the audit, but change nothing. The log has no limit of entries.
        audit = [line for line in self.log_text().splitlines() if "console: " in line and WRONG_TOKEN not in line]
        return {"audit": audit, "level": self.get("/log/level"), "files": files,
                "channels": [row["channel"] for row in self.get("/lists/channels")["rows"]],
                "log": [line for line in self.log_text().splitlines() if RELOADED in line]}


class Answer(Response):
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


class AdminClient(Client):
    reply = Answer

    def __init__(self, server: Console, source: str = "127.0.0.1", port: int | None = None):
        super().__init__(server, source, port or server.admin)

    def call(self, method: str, path: str, body: object = None, login: Login = NOBODY, fields: dict | None = None) -> "Answer":
        """One request below /api/v1. A body that is not bytes is sent as JSON. The content of an event stream is not read."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        json_type = {} if body is None else {"Content-Type": "application/json"}
        return self.ask(API + path, method, content, {**json_type, **login.fields(self.port, method), **(fields or {})})


class Page:
    """An event stream of a page."""

    def __init__(self, server: Console, watches: tuple[str, ...], every_ms: int, login: Login, receive_bytes: int | None = None):
        query = urllib.parse.urlencode([*(("watch", watch) for watch in watches), ("every", every_ms)])
        fields = "".join(f"{name}: {value}\r\n" for name, value in login.fields(server.admin).items())
        self.patience, self.socket = server.patience, server.rig.connect(server.admin, receive_bytes=receive_bytes)
        # In HTTP/1.0 a stream is not cut into chunks.
        self.socket.request(f"{API}/live?{query}", fields=fields, version="1.0", host=server.host)
        self.status = int(self.socket.head().split()[1])

    def close(self) -> None:
        self.socket.close()

    def next(self) -> tuple[str, dict] | None:
        """Waits for an event. Returns its name and data; None at the end of the stream."""
        while b"\n\n" not in self.socket.received:
            if not self.socket.more("an event of a page"):
                require(not self.socket.was_reset, "the stream of a page broke")
                return None
        text = self.socket.until(b"\n\n")[:-2]
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
