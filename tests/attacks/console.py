"""Attacks on the console: rights that outlive their cause."""
import json
from types import SimpleNamespace

from attackers import AttackRig, attack
from rig import Connection, ready, require

# `openssl passwd -6 -salt saltsalt secret`
HASH = "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1"
PASSWORD = "secret"


def users(*names: str, role: str = "admin") -> dict:
    """The section of a console with these users and one password."""
    return {"console": {"user": [{"name": name, "password": HASH, "role": role} for name in names]}}


def logged_in(server, name: str, source: str = "127.0.0.1") -> dict:
    """Logs a user in. Returns the fields of the session's requests."""
    client = server.client(source, server.admin)
    response = client.ask("/api/v1/session", "POST", json.dumps({"user": name, "password": PASSWORD}))
    require(response.status == 201, f"the log-in of {name}: {response}")
    cookie = response.fields["Set-Cookie"].partition(";")[0]
    return {"Cookie": cookie, "Encke-Csrf": json.loads(response.body)["csrf"]}


def unfinished(rig: AttackRig, server, method: str, target: str, fields: dict, body: bytes) -> SimpleNamespace:
    """Begins a request whose credentials the server has checked, and holds its body back until `end`, which returns the status."""
    client: Connection = rig.connect(server.admin)
    lines = {**fields, "Expect": "100-continue", "Content-Length": len(body)}
    client.request(target, method, "".join(f"{name}: {value}\r\n" for name, value in lines.items()), host=f"127.0.0.1:{server.admin}")

    def status() -> int:
        return int(client.head().split()[1])

    def end() -> int:
        client.sendall(body)
        return status()

    require((early := status()) == 100, f"{method} {target} was rejected with {early}")
    return SimpleNamespace(end=end)


@attack(undefended=None)
def requests_of_removed_admins_do_nothing(rig: AttackRig) -> str:
    """An administrator holds back the body of a request for a one-time token, of a change of the log level, and of one of the
    settings. The user is removed, then the bytes arrive.

    Each request gets a 401 and changes nothing; the request of another administrator succeeds."""
    server = rig.server(users("ann", "ben"))
    ann, ben = logged_in(server, "ann"), logged_in(server, "ben")
    level = json.dumps({"level": "debug"}).encode()
    requests = [("POST", "/api/v1/session/token", b" "), ("PUT", "/api/v1/log/level", level),
                ("POST", "/api/v1/settings/check", b"{}"), ("DELETE", "/api/v1/session", b" ")]
    held = [(target, unfinished(rig, server, method, target, ann, body)) for method, target, body in requests]
    kept = unfinished(rig, server, *requests[0][:2], ben, b" ")
    server.reload(users("ben"))
    statuses = {target: request.end() for target, request in held}
    require(set(statuses.values()) == {401}, f"a removed user got {statuses}")
    require(server.api("log/level")["level"] != "debug", "a removed user has changed the level of the log")
    require(kept.end() == 201, "another administrator got no token")
    return f"{len(held)} of {len(held)} requests rejected"


@attack(undefended=None)
def wrong_passwords_of_one_address_delay_no_other_log_in(rig: AttackRig) -> str:
    """One address sends 300 wrong passwords for the console at once, and another one logs in.

    The log-in succeeds before half of the guesses that are hashed have an answer, and is never rejected."""
    settings = users("ann")
    settings["console"]["attempts"] = 1_000
    server = rig.server(settings)
    body = json.dumps({"user": "ann", "password": "wrong"}).encode()
    fields = f"Content-Length: {len(body)}\r\n"
    guesses = [rig.connect(server.admin, "127.1.0.1") for _ in range(300)]
    for guess in guesses:
        guess.request("/api/v1/session", "POST", fields, host=f"127.0.0.1:{server.admin}")
        guess.sendall(body)
    logged_in(server, "ann", "127.0.0.9")
    answered = len(ready(guesses))
    statuses = [guess.response().status for guess in guesses]
    require(set(statuses) <= {401, 503}, f"the guesses got {set(statuses)}")
    rejected = statuses.count(503)
    hashed = len(guesses) - rejected
    require(answered - rejected < hashed, "the log-in waited for all guesses")
    return f"{rejected} of 300 guesses rejected, {max(answered - rejected, 0)} of {hashed} hashed before the log-in"


@attack(undefended=None)
def live_pages_of_a_viewer_leave_room_for_an_administrator(rig: AttackRig) -> str:
    """A viewer opens live pages, some with views of the log, until each kind is rejected.

    An administrator still gets a live page with eight views of the log."""
    settings = users("ann")
    settings["console"]["user"].append({"name": "ben", "password": HASH, "role": "view"})
    server = rig.server(settings)
    admin, viewer = logged_in(server, "ann"), logged_in(server, "ben")

    def opened(fields: dict, query: str) -> int:
        client: Connection = rig.connect(server.admin)
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        client.request(f"/api/v1/live?{query}", fields=lines, host=f"127.0.0.1:{server.admin}")
        return int(client.head().split()[1])

    counts = []
    for query in ("watch=log", "watch=overview"):
        count = 0
        while (status := opened(viewer, query)) == 200:
            count += 1
            require(count <= 64, "a viewer opens any number of pages")
        require(status == 503, f"a page too many got {status}")
        counts.append(count)
    status = opened(admin, "&".join(["watch=log"] * 8))
    require(status == 200, f"the administrator got {status} after {counts} pages of a viewer")
    return f"{counts[0]} views of the log and {counts[1]} other pages of a viewer"
