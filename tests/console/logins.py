"""Log-in and log-out: one-time tokens, the limit of attempts, the cookie, the ends of sessions, the audit, secrets."""
import contextlib
import json
import re
import subprocess
import threading
import time
from collections import Counter
from http.cookies import SimpleCookie

from access import FOREIGN, operations
from admin import NOBODY, PASSWORD, PASSWORD_HASH, USERS, WRONG_TOKEN, Answer, Console, ConsoleRig, Login
from rig import KIB, Fault, at_once, case, require

CREDENTIALS = "/problems/credentials"
ATTEMPTS = 5


def together(functions: list) -> list:
    """Calls functions at the same moment. Returns their results in order."""
    barrier, results = threading.Barrier(len(functions)), [None] * len(functions)

    def run(place: int) -> None:
        barrier.wait()
        results[place] = functions[place]()

    at_once([lambda place=place: run(place) for place in range(len(functions))])
    return results


@case()
def a_one_time_token_opens_one_session(lab: ConsoleRig) -> str:
    """Of requests with the same token at the same moment one wins, and later ones lose. `encke console` and the start line give
    such tokens. Fault: one of the requests has another valid token."""
    server, rounds, rivals = lab.console(), lab.of(10, 50, 200), 4
    for number in range(rounds):
        tokens = [server.login_token()] * rivals
        if lab.planted:
            tokens[0] = server.login_token()
        clients = [server.client() for _ in range(rivals)]
        for client in clients:
            client.connect()
        statuses = Counter(answer.status for answer in together(
            [lambda client=client, token=token: client.call("POST", "/session", {"token": token})
             for client, token in zip(clients, tokens)]))
        require(statuses == {201: 1, 401: rivals - 1}, f"round {number}: {statuses}")
        late = server.call("POST", "/session", {"token": tokens[-1]})
        require(not (why := late.complaint(401, CREDENTIALS)), f"a used token: {why}")
    own = lab.console({"server": {"admin": {"token": None}}})
    printed = re.search(r"console +http://127\.0\.0\.1:\d+/#login=(\w+)", own.log_text())
    require(printed, f"no address with a token: {own.log_text()}")
    command = [lab.encke, "console", "--print", "--token", server.token, f"http://{server.host}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=lab.patience)
    require(done.returncode == 0, f"{command}: {done}")
    for one, token in ((own, printed[1]), (server, done.stdout.strip().rpartition("#login=")[2])):
        answers = [one.call("POST", "/session", {"token": token}) for _ in range(2)]
        require([answer.status for answer in answers] == [201, 401], f"{token}: {answers}")
        require(answers[0].json()["user"] == "operator" and answers[0].json()["role"] == "admin", answers[0].json())
    return f"{rounds} rounds of {rivals}"


@case()
def failed_attempts_are_limited_per_address(lab: ConsoleRig) -> str:
    """After five failures, one after the other or at once, an address gets 429 with the time to wait, even with the right
    password. Another address is not concerned. Fault: the limit is higher."""
    limit = ATTEMPTS + 1 if lab.planted else ATTEMPTS
    server = lab.console({"console": {"attempts": limit}})
    for kind, wrong in (("password", {"user": "ann", "password": "wrong"}), ("unknown user", {"user": "eve", "password": "x"}),
                        ("token", {"token": "wrong"})):
        source = f"127.0.1.{len(kind)}"
        statuses = [server.call("POST", "/session", wrong, source=source).status for _ in range(ATTEMPTS + 1)]
        require(statuses == [401] * ATTEMPTS + [429], f"{kind}: {statuses}")
        answer = server.call("POST", "/session", {"user": "ann", "password": PASSWORD}, source=source)
        require(not (why := answer.complaint(429, "/problems/attempts")), f"the right password, too late: {why}")
        require(0 < answer.json()["retry_after_s"] <= 60, answer.json())
        require(answer.fields["Retry-After"] == str(answer.json()["retry_after_s"]), f"Retry-After: {dict(answer.fields)}")
        require(server.log_in(source="127.0.2.1"), "another address is limited, too")
    for kind, wrong in (("password", {"user": "ann", "password": "wrong"}), ("token", {"token": "wrong"})):
        source = f"127.0.3.{len(kind)}"
        clients = [server.client(source) for _ in range(6 * ATTEMPTS)]
        for client in clients:
            client.connect()
        statuses = Counter(answer.status for answer in together(
            [lambda client=client: client.call("POST", "/session", wrong) for client in clients]))
        require(statuses == {401: ATTEMPTS, 429: 5 * ATTEMPTS}, f"{kind}, at once: {dict(statuses)}")
    return f"{ATTEMPTS} attempts per address"


@case()
def wrong_tokens_are_limited_as_wrong_passwords_are(lab: ConsoleRig) -> str:
    """After five wrong tokens, in fields or queries, of one operation or several, an address gets 429 with the time to wait, for
    tokens. Each is in the audit. A long token is still accepted there, a short one is not. Passwords, another address and requests
    without token are not concerned. Fault: the limit is higher."""
    limit = ATTEMPTS + 1 if lab.planted else ATTEMPTS
    server = lab.console({"console": {"attempts": limit}})
    wrong = Login(bearer="wrong")
    ways = {
        "field": lambda source: server.call("GET", "/status", login=wrong, source=source),
        "query": lambda source: server.call("GET", "/status?token=wrong", source=source),
        "change": lambda source: server.call("PUT", "/log/level", {"level": "debug"}, wrong, source=source),
        "its beginning": lambda source: server.call("GET", "/status", login=Login(bearer=server.token[:-1]), source=source),
    }
    sources = {}
    for number, (name, way) in enumerate(ways.items()):
        source = sources[name] = f"127.0.4.{number + 1}"
        statuses = [way(source).status for _ in range(ATTEMPTS + 2)]
        require(statuses == [401] * ATTEMPTS + [429, 429], f"{name}: {statuses}")
        same, open_operation = way(source), server.call("GET", "/session", login=wrong, source=source)
        for asked, answer in (("the same", same), ("an open operation", open_operation)):
            require(not (why := answer.complaint(429, "/problems/attempts")), f"{name}, then {asked}: {why}")
            require(0 < answer.json()["retry_after_s"] <= 60, answer.json())
            require(answer.fields["Retry-After"] == str(answer.json()["retry_after_s"]), f"Retry-After: {dict(answer.fields)}")
        with contextlib.closing(server.client(source)) as client:
            answer = client.ask("/metrics", fields=wrong.fields(server.admin))
        require(answer.status == 429 and answer.fields["Retry-After"], f"{name}, then /metrics: {answer}")
        for asked, expected, login in (("a long token", 200, server.operator), ("no token", 401, NOBODY)):
            answer = server.call("GET", "/status", login=login, source=source)
            require(answer.status == expected, f"{name}, then {asked}: {answer}")
        answer = server.call("POST", "/session", {"user": "ann", "password": PASSWORD}, source=source)
        require(answer.status == 201, f"{name}, then the right password: {answer}")
        require(server.call("GET", "/status", login=wrong, source="127.0.2.1").status == 401, "another address is limited, too")
    opened = [server.call("GET", "/session", login=wrong, source="127.0.4.9") for _ in range(ATTEMPTS)]
    require(all(answer.status == 200 and answer.json()["role"] is None for answer in opened), f"open: {opened}")
    require(server.call("GET", "/session", login=wrong, source="127.0.4.9").status == 429, "an open operation is not limited")
    session = server.log_in()
    for _ in range(ATTEMPTS):
        answer = server.call("GET", "/status", login=Login(session.cookie, session.csrf, "wrong"), source="127.0.4.10")
        require(answer.status == 200, f"a session with a wrong token: {answer}")
    answer = server.call("GET", "/status", login=wrong, source="127.0.4.10")
    require(answer.status == 429, f"wrong tokens beside a session do not count: {answer}")
    lines = [line for line in server.log_text().splitlines() if f"from {sources['change']}: PUT /api/v1/log/level{WRONG_TOKEN}" in line]
    require([line[-3:] for line in lines] == ["401"] * ATTEMPTS + ["429"], f"audit: {lines}")
    entries = [entry for entry in server.get("/audit")["entries"] if entry["address"] == sources["field"]]
    tokens = [entry["result"] for entry in entries if entry["act"] == "GET /api/v1/status with a wrong token"]
    require(tokens == [429] + [401] * ATTEMPTS, f"entries: {entries}")

    short = lab.console({"server": {"admin": {"token": "hunter2"}}, "console": {"attempts": limit}})
    right = Login(bearer="hunter2")
    statuses = [short.call("GET", "/status", login=right).status for _ in range(2 * ATTEMPTS)]
    require(statuses == [200] * 2 * ATTEMPTS, f"a right token: {statuses}")
    statuses = [short.call("GET", "/status", login=login).status for login in [wrong] * ATTEMPTS + [right]]
    require(statuses == [401] * ATTEMPTS + [429], f"a short token: {statuses}")
    return f"{len(ways)} ways"


@case()
def the_cookie_is_out_of_reach_of_scripts_and_other_sites(lab: ConsoleRig) -> str:
    """It is HttpOnly, SameSite=Strict, for all paths of this host only, and lives as long as its session. Each log-in gets a new
    one; the log-out deletes it. Fault: an attribute is removed, each in turn."""
    server = lab.console()

    def complaint(text: str, answer: Answer) -> str:
        ((name, morsel),) = SimpleCookie(text).items()
        lives_s = answer.json()["ends_ms"] / 1000 - time.time()
        return next((why for why, wrong in {
            f"the name {name}": not re.fullmatch(r"encke_session_\d+", name),
            "a script can read it": not morsel["httponly"],
            "other sites send it": morsel["samesite"] != "Strict",
            "a domain": morsel["domain"],
            "not all paths": morsel["path"] != "/",
            f"it lives {morsel['max-age']} s instead of {lives_s:.0f}": abs(int(morsel["max-age"] or 0) - lives_s) > 60,
            f"{len(morsel.value)} characters": not re.fullmatch(r"[0-9a-f]{32,}", morsel.value),
        }.items() if wrong), "")

    answers = [server.call("POST", "/session", {"user": "ann", "password": PASSWORD}) for _ in range(2)]
    texts = [answer.fields["Set-Cookie"] for answer in answers]
    if lab.planted:
        for part in ("; HttpOnly", "; SameSite=Strict", "; Path=/", re.search("; Max-Age=\\d+", texts[0])[0]):
            if not complaint(texts[0].replace(part, ""), answers[0]):
                return f"{part} is not missed"
        raise Fault("each attribute is missed")
    for text, answer in zip(texts, answers):
        require(not (why := complaint(text, answer)), f"{text}: {why}")
    first, second = (answer.login() for answer in answers)
    require(first.cookie != second.cookie and first.csrf != second.csrf, "two sessions share a secret")
    require(first.cookie not in answers[0].body.decode(), "the content has the cookie")
    over = server.call("DELETE", "/session", login=first)
    require(over.status == 204 and re.match(r"encke_session_\d+=;", over.fields["Set-Cookie"]) and "Max-Age=0" in over.fields["Set-Cookie"],
            f"log-out: {over}")
    require(server.get("/session", second)["user"] == "ann", "the other session has ended, too")
    return "7 attributes"


def ends(server: Console, name: str, login: Login, end) -> None:
    """Requires `end` to end a session and its page."""
    page = server.page("overview", login=login)
    require(page.status == 200 and page.next(), f"{name}: no page")
    end()
    page.until(lambda event, _: event == "end", f"{name}: its page goes on")
    require(page.next() is None, f"{name}: events after the end")
    why = server.call("GET", "/status", login=login).complaint(401, CREDENTIALS)
    require(not why, f"{name}: {why}")


@case()
def a_session_ends_with_its_log_out_its_user_or_its_role(lab: ConsoleRig) -> str:
    """A log-out ends the session and its live page, and so does a reload that removes the user or changes the role. Other sessions
    continue. Fault: the reload leaves the user as it is."""
    server = lab.console()
    kept = server.log_in("ann")
    page = server.page("notices", login=kept)
    once = server.log_in("ben")
    ends(server, "log-out", once, lambda: server.call("DELETE", "/session", login=once))
    ann, ben = USERS
    for name, users in (("a new role", [ann, {**ben, "role": "admin"}]), ("a removed user", [ann])):
        ends(server, name, server.log_in("ben"),
             lambda users=users: server.reload({"console": {"user": USERS if lab.planted else users}}))
    require(server.call("POST", "/session", {"user": "ben", "password": PASSWORD}).status == 401, "a removed user logs in")
    require(server.get("/session", kept)["user"] == "ann", "the session of another user has ended")
    server.call("PUT", "/log/level", {"level": "debug"}, kept)
    page.until(lambda event, data: event == "notices" and "/log/level" in json.dumps(data), "the page of another user has ended")
    return "log-out, role, user"


@case(basic=(), more=(None,))
def a_session_ends_at_its_time(lab: ConsoleRig) -> str:
    """A session of one minute, the shortest, and its page end after it. Fault: the session is longer."""
    server = lab.console({"console": {"session_time": "2m" if lab.planted else "1m"}})
    began = time.monotonic()
    login = server.log_in()
    page = server.page("overview", every_ms=1000, login=login)
    while (event := page.next()) and event[0] != "end":
        require(time.monotonic() < began + 60 + lab.patience, "the page goes on")
    took = time.monotonic() - began
    require(took > 58, f"ended after {took:.0f} s")
    require(not (why := server.call("GET", "/status", login=login).complaint(401, CREDENTIALS)), why)
    require(server.get("/session", login)["role"] is None, "the session has a role after its end")
    return f"after {took:.0f} s"


@case()
def log_ins_and_changes_are_in_the_audit_and_on_standard_error(lab: ConsoleRig) -> str:
    """Each has user, address, act, old and new value, and result; reads and rejected requests have no entry.
    Fault: another user makes the changes."""
    server, source = lab.console(), "127.0.4.1"
    began = server.get("/audit")["entries"]
    answer = server.call("POST", "/session", {"user": "ann", "password": PASSWORD}, source=source)
    login = server.operator if lab.planted else answer.login()
    client = server.client(source)
    wanted = [("ann", "POST /session", "", "", 201)]
    for method, path, body, old, new, result in (
            ("PUT", "/log/level", {"level": "debug"}, "info", "debug", 200),
            ("PUT", "/log/level", {"level": "loud"}, "", "", 400),
            ("POST", "/actions/channels/publish", {"channel": "audit", "text": "x"}, "", None, 200),
            ("POST", "/actions/channels/none", {}, "", None, 404),
            ("POST", "/session/token", None, "", "", 201),
            ("DELETE", "/session", None, "", "", 204)):
        answer = client.call(method, path, body, login)
        require(answer.status == result, f"{method} {path}: {answer}")
        wanted.append(("ann", f"{method} {path}", old, json.dumps(body, separators=(",", ":")) if new is None else new, result))
        client.call("GET", "/status", login=login)
        client.call(method, path, body, NOBODY)
    client.call("POST", "/session", {"user": "ann", "password": "wrong"})
    wanted.append(("ann", "POST /session", "", "", 401))
    entries = server.get("/audit")["entries"]
    new = [entry for entry in entries[:len(entries) - len(began)]][::-1]
    found = [(entry["user"], entry["act"].replace("/api/v1", ""), entry["old"], entry["new"].replace(" ", ""), entry["result"])
             for entry in new]
    require(found == wanted, f"the audit has {found} instead of {wanted}")
    require({entry["address"] for entry in new} == {source}, f"addresses: {new}")
    require(all(abs(entry["time_ms"] / 1000 - time.time()) < 300 for entry in new), "a wrong time")
    lines = [line for line in server.log_text().splitlines() if f"from {source}: " in line]
    require(len(lines) == len(wanted), f"{len(lines)} lines instead of {len(wanted)}: {lines}")
    for line, (user, act, old, new_, result) in zip(lines, wanted):
        method, _, path = act.partition(" ")
        require(f"{user} from {source}: {method} /api/v1{path}: {result}" in line, f"{line} instead of {act}")
        require(all(json.dumps(value) in line for value in (old,) if value), f"{line} without {old}")
    return f"{len(wanted)} entries"


@case()
def secrets_appear_in_no_response_log_or_audit(lab: ConsoleRig) -> str:
    """Tokens, cookies, passwords and their hashes are in no resource, error, event, notice, access log, or line of standard error.
    Fault: a password is given as the name of a user, which the audit records."""
    server = lab.console({"log": {"access": str(lab.folder / "access.log"), "format": "json", "level": "debug"}})
    ann, ben = server.log_in("ann"), server.log_in("ben")
    used, unused, wrong = server.login_token(), server.login_token(), "a wrong passphrase"
    page = server.page("log", "notices", "overview")
    seen: list[str] = []

    def ask(method: str, path: str, body: object = None, login: Login = NOBODY, **options) -> None:
        answer = server.call(method, path, body, login, **options)
        seen.append(answer.body.decode(errors="replace"))

    ask("POST", "/session", {"user": wrong if lab.planted else "ann", "password": wrong})
    ask("POST", "/session", {"user": "eve", "password": wrong})
    ask("POST", "/session", {"user": "ann", "password": [wrong]})
    ask("POST", "/session", {"user": "ann", "passwort": wrong})
    ask("POST", "/session", ["ann", wrong])
    ask("POST", "/session", b'{"user": "ann", "password": "' + wrong.encode() + b'" "x"}')
    ask("POST", "/session", {"token": server.token})
    ask("POST", "/session", {"token": used, "user": "ann"})
    require(server.call("POST", "/session", {"token": used}).status == 201, "no session")
    ask("GET", f"/status?token={server.token}")
    ask("GET", f"/session?token={server.token}&x=1")
    ask("GET", f"/none?token={server.token}")
    ask("PUT", f"/log/level?token={server.token}", {"level": "info"})
    ask("PUT", "/log/level", {"level": "debug"}, Login(ann.cookie, "0" * 32))
    ask("DELETE", "/session", None, ben, fields={"Origin": FOREIGN})
    ask("GET", "/status", None, ann, fields={"Host": "evil.example"})
    for op in operations(server):
        # The session's own CSRF token is for its page. The role admin may read the text of the settings file.
        if op.role == "view" and not op.is_change and op.path != "/session":
            ask("GET", op.target, None, ben)
    server.client(port=server.port).ask(f"/?token={server.token}")
    client = server.client()
    seen.append(client.ask("/metrics", fields=server.operator.fields(server.admin)).body.decode())
    server.call("PUT", "/log/level", {"level": "error"}, server.operator)
    page.until(lambda event, data: seen.append(json.dumps(data)) or event == "notices" and '"error' in json.dumps(data),
               "no notice of the change")
    seen += [server.log_text(), (lab.folder / "access.log").read_text()]
    secrets = {"the token": server.token, "a cookie": ann.cookie, "another cookie": ben.cookie, "a CSRF token": ann.csrf,
               "a password": PASSWORD, "a wrong password": wrong, "a hash": PASSWORD_HASH, "a used token": used,
               "an unused token": unused}
    shown = [f"{name}: …{text[max(0, (at := text.index(secret)) - 200):at + 100]}…" for name, secret in secrets.items()
             for text in seen if secret in text]
    require(not shown, "; ".join(shown)[:4 * KIB])
    return f"{len(secrets)} secrets in {sum(map(len, seen)) // KIB} KiB"
