"""Access to each operation of the API: credentials, roles, CSRF tokens, origins, hosts, methods, listeners.

The operations come from the server's own description, so a new route is covered without a new case.
"""
import re
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from admin import API, NOBODY, PROBLEM, AdminClient, Answer, Console, ConsoleRig, Login
from rig import case, require

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
FOREIGN = "http://evil.example"
# Values that would change something if the request were not rejected: the general ones of a schema may not.
BODIES = {
    "POST /session": {"token": "no one-time token"},
    "PUT /log/level": {"level": "debug"},
    "POST /actions/{feature}/{verb}": {"channel": "matrix", "text": "a message"},
    "POST /explain": {"url": "http://localhost/"},
    "PUT /settings/file": {"text": "[server]\nbacklog = 99\n"},
    "PATCH /settings": {"changes": [{"path": ["server", "backlog"], "value": 99}]},
}
PARAMETERS = {"feature": "channels", "verb": "publish", "name": "channels", "number": "1"}


@dataclass(frozen=True)
class Operation:
    """An operation of the description."""

    method: str
    path: str
    facts: dict
    schemas: dict

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def role(self) -> str | None:
        return self.facts["x-role"]

    @property
    def is_change(self) -> bool:
        return self.method not in ("GET", "HEAD")

    @property
    def target(self) -> str:
        """The path with a value for each variable."""
        return re.sub(r"{(\w+)}", lambda match: PARAMETERS.get(match[1], "x"), self.path)

    @property
    def body(self) -> object:
        content = self.facts.get("requestBody", {}).get("content", {})
        return BODIES.get(str(self)) or next((sample(media["schema"], self.schemas) for media in content.values()), None)


def operations(server: Console) -> list[Operation]:
    document = server.call("GET", "/openapi.json").json()
    return [Operation(method.upper(), path, facts, document["components"]["schemas"])
            for path, item in document["paths"].items() for method, facts in item.items() if method != "parameters"]


def sample(schema: dict, schemas: dict) -> object:
    """A value of a schema."""
    if "$ref" in schema:
        return sample(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for key in ("oneOf", "anyOf"):
        if key in schema:
            return sample(schema[key][0], schemas)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: sample(schema["properties"][name], schemas) for name in schema.get("required", [])}
    return {"string": "text", "integer": schema.get("minimum", 1), "number": 1, "boolean": True, "array": [], "null": None}[kind]


@dataclass(frozen=True)
class Cast:
    """The credentials of the matrix, and the port of the listener."""

    port: int
    operator: Login
    admin: Login
    other: Login
    view: Login
    ended: Login

    def secrets(self) -> list[str]:
        return [text for login in (self.operator, self.admin, self.other, self.view, self.ended)
                for text in (login.bearer, login.cookie, login.csrf) if text]


def cast(server: Console) -> Cast:
    ended = server.log_in("ann")
    answer = server.call("DELETE", "/session", login=ended)
    require(answer.status == 204, f"no log-out: {answer}")
    return Cast(server.admin, server.operator, server.log_in("ann"), server.log_in("ann"), server.log_in("ben"), ended)


@dataclass(frozen=True)
class Attack:
    """A request that must be rejected, with the status and the type of its problem."""

    name: str
    status: int
    type: str
    applies: Callable[[Operation], bool]
    # The log-in, more fields, and the query.
    of: Callable[[Cast, Operation], tuple[Login, dict, str]]


def attacks() -> Iterator[Attack]:
    protected = lambda op: op.role is not None  # noqa: E731
    change = lambda op: protected(op) and op.is_change  # noqa: E731
    admin = lambda op: op.role == "admin"  # noqa: E731
    every = lambda op: True  # noqa: E731

    def credentials(name, of, applies=protected):
        return Attack(name, 401, "/problems/credentials", applies, of)

    def csrf(name, csrf_of):
        return Attack(name, 403, "/problems/csrf", change,
                      lambda cast, op: (Login(cast.admin.cookie, csrf_of(cast)), {}, ""))

    def origin(name, fields):
        yield Attack(f"{name}, with the token", 403, "/problems/origin", every, lambda cast, op: (cast.operator, fields, ""))
        yield Attack(f"{name}, with a session", 403, "/problems/origin", every, lambda cast, op: (cast.admin, fields, ""))

    yield credentials("no credentials", lambda cast, op: (NOBODY, {}, ""))
    yield credentials("a wrong token", lambda cast, op: (Login(bearer="wrong"), {}, ""))
    yield credentials("the beginning of the token", lambda cast, op: (Login(bearer=cast.operator.bearer[:-1]), {}, ""))
    yield credentials("the token and more", lambda cast, op: (Login(bearer=cast.operator.bearer + "x"), {}, ""))
    yield credentials("an empty token", lambda cast, op: (NOBODY, {"Authorization": "Bearer "}, ""))
    yield credentials("the token as a password",
                      lambda cast, op: (NOBODY, {"Authorization": f"Basic {cast.operator.bearer}"}, ""))
    yield credentials("the token as a cookie", lambda cast, op: (Login(cast.operator.bearer, cast.admin.csrf), {}, ""))
    yield credentials("a cookie as the token", lambda cast, op: (Login(bearer=cast.admin.cookie), {}, ""))
    yield credentials("a wrong cookie", lambda cast, op: (Login("0" * 32, cast.admin.csrf), {}, ""))
    yield credentials("an empty cookie", lambda cast, op: (NOBODY, {"Cookie": f"encke_session_{cast.port}="}, ""))
    yield credentials("the cookie of TLS without TLS",
                      lambda cast, op: (NOBODY, {"Cookie": f"__Host-encke_session_{cast.port}={cast.admin.cookie}",
                                                 "Encke-Csrf": cast.admin.csrf}, ""))
    yield credentials("the cookie of another port",
                      lambda cast, op: (NOBODY, Login(cast.admin.cookie, cast.admin.csrf).fields(cast.port + 1, op.method), ""))
    yield credentials("an ended session", lambda cast, op: (cast.ended, {}, ""))
    yield credentials("a wrong token in the query", lambda cast, op: (NOBODY, {}, "token=wrong"))
    yield credentials("the token in the query of a change",
                      lambda cast, op: (NOBODY, {}, f"token={cast.operator.bearer}"), change)
    yield Attack("the role view", 403, "/problems/role", admin, lambda cast, op: (cast.view, {}, ""))
    yield csrf("no CSRF token", lambda cast: "")
    yield csrf("a wrong CSRF token", lambda cast: "0" * 32)
    yield csrf("the CSRF token of another session", lambda cast: cast.other.csrf)
    yield csrf("the CSRF token of an ended session", lambda cast: cast.ended.csrf)
    yield csrf("the cookie as the CSRF token", lambda cast: cast.admin.cookie)
    yield from origin("a foreign origin", {"Origin": FOREIGN})
    yield from origin("the origin null", {"Origin": "null"})
    yield from origin("the origin of another port", {"Origin": "http://127.0.0.1:1"})
    yield from origin("a cross-site request", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"})
    yield from origin("a same-site request", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"})
    yield from origin("a cross-site navigation", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})
    yield Attack("a rebound host", 421, "/problems/host", every, lambda cast, op: (cast.operator, {"Host": "evil.example"}, ""))
    yield Attack("a rebound host with its origin", 421, "/problems/host", every,
                 lambda cast, op: (cast.admin, {"Host": "evil.example", "Origin": FOREIGN}, ""))


def send(client: AdminClient, op: Operation, login: Login, fields: dict, query: str, method: str | None = None) -> Answer:
    separator = "&" if "?" in op.target else "?"
    return client.call(method or op.method, op.target + (separator + query if query else ""), op.body, login, fields)


def complaint_of(answer: Answer, op: Operation, secrets: list[str]) -> str:
    """A violation of the rules for every response; empty if there is none."""
    if str(answer.status) not in op.facts["responses"] and answer.status != 405:
        return f"the status {answer.status} is not described"
    if answer.fields.get("Cache-Control") != "no-store" or answer.fields.get("X-Content-Type-Options") != "nosniff":
        return f"it may be stored or sniffed: {dict(answer.fields)}"
    if allowed := [name for name in answer.fields if name.lower().startswith("access-control-")]:
        return f"other origins may read it: {allowed}"
    if answer.status >= 400 and answer.body and answer.fields.get_content_type() != PROBLEM:
        return f"content type {answer.fields.get('Content-Type')}"
    if answer.status == 401 and not answer.fields.get("WWW-Authenticate"):
        return "no WWW-Authenticate (RFC 9110 §11.6.1)"
    if answer.status >= 400 and (shown := [secret for secret in secrets if secret.encode() in answer.body]):
        return f"it shows {shown}"
    return ""


def judged(lab: ConsoleRig, complaints: dict[str, str], count: int, text: str) -> str:
    """Requires no complaint. With a planted fault every check must have one."""
    if lab.planted:
        missed = count - len(complaints)
        require(missed, f"{count} checks found their faults")
        return f"{missed} of {count} checks miss their faults"
    require(not complaints, f"{len(complaints)} of {count}: " + "; ".join(f"{name}: {why}" for name, why in list(complaints.items())[:5]))
    return text


@case()
def a_request_without_rights_is_rejected_and_changes_nothing(lab: ConsoleRig) -> str:
    """Each operation rejects each attack with its status and problem. Audit, level, files and channels remain. GET /session is
    open, and returns no role. Fault: the requests have the token instead."""
    server = lab.console()
    people, described = cast(server), operations(server)
    named = {str(op): op for op in described}
    session, status = named["GET /session"], named["GET /status"]
    complaints, count = {}, 0
    client = server.client()
    for attack in attacks():
        before = server.state()
        for op in filter(attack.applies, described):
            login, fields, query = (people.operator, {}, "") if lab.planted else attack.of(people, op)
            answer = send(client, op, login, fields, query)
            why = answer.complaint(attack.status, attack.type) or complaint_of(answer, op, people.secrets())
            complaints |= {f"{attack.name}: {op}": why} if why else {}
            count += 1
        if attack.status == 401 and attack.applies(status):
            login, fields, query = (people.operator, {}, "") if lab.planted else attack.of(people, session)
            answer = send(client, session, login, fields, query)
            why = complaint_of(answer, session, people.secrets())
            if answer.status != 200 or (found := answer.json())["role"] is not None or found["user"] is not None or found["csrf"]:
                why = f"{answer}: {answer.body[:200]!r}"
            complaints |= {f"{attack.name}: {session}": why} if why else {}
            count += 1
        changed = [name for name, value in server.state().items() if value != before[name]]
        complaints |= {attack.name: f"it changed {changed}"} if changed else {}
        # An attack on operations that only read changes nothing.
        count += any(op.is_change for op in described if attack.applies(op))
    for login in (people.admin, people.other, people.view):
        require(server.get("/session", login)["role"] or lab.planted, "a session has ended")
    return judged(lab, complaints, count, f"{len(described)} operations, {count} checks")


@case()
def a_request_with_rights_is_granted(lab: ConsoleRig) -> str:
    """Each operation passes the token, the token in the query of a GET, a session with its CSRF token, and the least role; the
    response is described. Fault: the requests have no credentials."""
    server = lab.console()
    described = operations(server)
    complaints, count = {}, 0

    def check(name: str, op: Operation, login: Login, fields: dict, query: str = "") -> None:
        nonlocal count
        client = server.client()
        answer = send(client, op, NOBODY, {}, "") if lab.planted else send(client, op, login, fields, query)
        why = complaint_of(answer, op, [])
        if answer.status in (401, 403, 405, 421):
            why = f"rejected with {answer.status}: {answer.body[:200]!r}"
        complaints.update({f"{name}: {op}": why} if why else {})
        count += 1

    own = {"Origin": f"http://{server.host}", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    for op in described:
        if op.role is None:
            continue
        check("the token", op, server.operator, {})
        check("a page of the console", op, server.log_in("ann"), own)
        check("the address bar", op, server.log_in("ann"), {"Sec-Fetch-Site": "none"})
        check("localhost", op, server.operator, {"Host": f"localhost:{server.admin}"})
        if op.role == "view":
            check("the role view", op, server.log_in("ben"), own)
        if not op.is_change:
            check("the token in the query", op, NOBODY, {}, urllib.parse.urlencode({"token": server.token}))
    return judged(lab, complaints, count, f"{count} checks")


@case()
def each_path_has_only_the_methods_of_its_description(lab: ConsoleRig) -> str:
    """Another method is a 405 with the right Allow, also for OPTIONS; a preflight of a foreign page is a 403. HEAD is a GET without
    content. TRACE and unknown methods never reach the console. Fault: the methods of the description are sent."""
    server = lab.console()
    described, client = operations(server), server.client()
    complaints, count = {}, 0

    def check(name: str, why: str) -> None:
        nonlocal count
        complaints.update({name: why} if why else {})
        count += 1

    for path in dict.fromkeys(op.path for op in described):
        there = {op.method: op for op in described if op.path == path}
        op, allowed = next(iter(there.values())), {*there, *(["HEAD"] if "GET" in there else [])}
        for method in METHODS:
            if method in there:
                continue
            answer = send(client, op, server.operator, {}, "", op.method if lab.planted else method)
            why = answer.complaint(405) or complaint_of(answer, op, [])
            check(f"{method} {path}", why or ("" if set(answer.fields["Allow"].split(", ")) == allowed
                                              else f"Allow: {answer.fields['Allow']}"))
        preflight = {"Origin": FOREIGN, "Access-Control-Request-Method": op.method, "Access-Control-Request-Headers": "encke-csrf"}
        answer = send(client, op, server.operator, {} if lab.planted else preflight, "", op.method if lab.planted else "OPTIONS")
        check(f"preflight {path}", answer.complaint(403, "/problems/origin") or complaint_of(answer, op, []))
        for method in ("TRACE", "QUERY"):
            answer = send(client, op, server.operator, {}, "", op.method if lab.planted else method)
            status = {"TRACE": 405, "QUERY": 501}[method]
            check(f"{method} {path}", "" if answer.status == status and server.token.encode() not in answer.body else str(answer))
        if "GET" in there:
            answer = send(client, there["GET"], server.operator, {}, "", "POST" if lab.planted else "HEAD")
            full = send(client, there["GET"], server.operator, {}, "")
            same = answer.status == full.status and answer.fields["Content-Type"] == full.fields["Content-Type"]
            check(f"HEAD {path}", "" if same and not answer.body else str(answer))
    return judged(lab, complaints, count, f"{count} checks")


@case()
def a_public_listener_serves_no_path_of_the_console(lab: ConsoleRig) -> str:
    """Paths of the API and the pages get the same response as a missing file, even with the token, and change nothing.
    Fault: the requests go to the admin listener."""
    server = lab.console()
    described, before = operations(server), server.state()
    page = server.client().ask("/")
    require(page.status == 200 and page.fields.get_content_type() == "text/html", f"no page: {page}")
    files = re.findall(r'(?:src|href)="(/?[\w./-]+)"', page.body.decode())
    require(files, "the page names no file")
    targets = [(op.method, API + op.target) for op in described]
    targets += [("GET", f"/{name.lstrip('./')}") for name in files] + [("GET", "/"), ("GET", "/metrics"), ("GET", "/healthz")]
    client, fields = server.client(port=server.admin if lab.planted else server.port), server.operator.fields(server.admin)

    def ask(method: str, target: str) -> tuple[int, bytes]:
        answer = client.ask(target, method, b"{}" if method != "GET" else None, fields)
        return answer.status, answer.body

    missing = {method: server.client(port=server.port).ask("/no-such-file", method, fields=fields) for method in METHODS}
    require(missing["GET"].status == 404, f"a missing file is a {missing['GET']}")
    complaints = {f"{method} {target}": f"{answer}" for method, target in targets
                  if (answer := ask(method, target)) != (missing[method].status, missing[method].body)}
    require(lab.planted or server.state() == before, "something was changed")
    return judged(lab, complaints, len(targets), f"{len(targets)} targets")
