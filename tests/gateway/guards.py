"""Rates, limits of open requests, and an application that decides about requests."""
import base64
import contextlib
import json
import os
import re
import shutil
import threading
import time
from pathlib import Path

from applications import APPS, Gateway, Lab
from rig import PATIENCE, UPGRADE, Client, Connection, case, require

# `htpasswd -nbB -C 4 ann secret`
ANN = "ann:$2y$04$QwyTMGb40uZk0meOEBJf6ODDhgJ3QmEPMT0my0U.DF17TEg7uaapW\n"


@case(basic=("plain",))
def an_application_decides_about_files_routes_and_channels(lab: Lab, app: str) -> str:
    """Requests without a session are redirected to the login. With a session the application of the route gets the user, and no client
    can send that field. If the deciding application ends, no request passes. Planted: no rule protects the pages."""
    application, gatekeeper = lab.application(app), lab.application("gatekeeper")
    rule = {"pattern": "/app/**", "ask": f"{gatekeeper.url}/check", "copy": ["X-User"], "user": "X-User"}
    rules = [rule, {**rule, "pattern": "/push/**"}]
    server = lab.gateway(
        [{"pattern": "/app/fields**", "upstream": application}, {"pattern": "/open/**", "upstream": application},
         {"pattern": "/login", "upstream": gatekeeper}],
        settings={"push": {"enabled": True}, "auth": {"anonymous": ["publish", "subscribe"]},
                  **({} if lab.planted else {"access": rules})})
    (server.root / "app").mkdir()
    (server.root / "app/page").write_bytes(b"the page")
    publish = {"method": "POST", "body": b"news"}
    for target, options in [("/app/page", {}), ("/app/fields?q=1", {}), ("/x/..//app/page", {}), ("/push/news", publish),
                            ("/app/none", {})]:
        response = server.ask(target, **options)
        require((response.status, response.body) == (302, b"log in"), f"{target}: {response}")
        require(response.fields["Location"].startswith("/login?rd=%2F"), f"{target}: {response}")
        require(response.fields["Set-Cookie"] == "csrf=1", f"{target}: {response}")
    require(application.record() == [], "the application has executed a request")
    denied = server.ask("/app/page", fields={"Cookie": "session=eve"})
    require((denied.status, denied.body) == (403, b"<h1>Not for you</h1>"), f"{denied}")
    cookie = server.ask("/login?user=ann").fields["Set-Cookie"].partition(";")[0]
    session = {"Cookie": cookie}
    require(server.ask("/app/page", fields=session).body == b"the page", "a file")
    require(server.ask("/push/news", **publish, fields=session).status == 201, "a channel")
    for target, forged in [("/app/fields", {}), ("/app/fields", {"X-User": "eve", "x-user": "eve", "X_User": "eve"}),
                           ("/app/fields", {"Connection": "X-User, close"}), ("/open/fields", {"x-USER": "eve", "X_USER": "eve"})]:
        seen = json.loads(server.ask(target, fields={**session, **forged}).body)
        users = [value for name, value in seen if name.lower().replace("_", "-") == "x-user"]
        require(users == (["ann"] if target.startswith("/app") else []), f"{target} {forged}: {seen}")
    asked = [line["target"] for line in gatekeeper.record()]
    require(all(target.startswith(("/app/", "/push/")) for target in asked), f"{asked}")
    users = {line.get("user") for line in server.lines() if line["status"] == 200 and line["target"].startswith("/app/page")}
    require(users == {"ann"}, f"the user in the log: {users}")
    gatekeeper.stop()
    for target in ["/app/page", "/app/fields", "/push/news"]:
        response = server.ask(target, fields=session)
        require(response.status == 503, f"without the application that decides: {target}: {response}")
    require(server.ask("/open/fields").status == 200, "other pages")
    return f"{len(asked)} questions"


@case(basic=(), more=("php-fpm",))
def php_gets_the_user_of_the_answer_and_no_other_spelling(lab: Lab, app: str) -> str:
    """CGI reads X-User, X_User and X.User as one variable. Planted: the rule does not copy the field."""
    application, gatekeeper = lab.application(app), lab.application("gatekeeper")
    copy = {} if lab.planted else {"copy": ["X-User"]}
    rule = {"pattern": "/app/**", "ask": f"{gatekeeper.url}/check", **copy}
    server = lab.gateway([{"pattern": "/**", "php": f"127.0.0.1:{application.port}"}], settings={"access": [rule]})
    for folder in [server.root, *server.root.parents]:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    shutil.copy(APPS / "index.php", server.root / "index.php")
    for forged in [{}, {"X-User": "eve"}, {"X_User": "eve"}, {"X.User": "eve"}, {"x-uSER": "eve", "X_USER": "eve", "X~User": "eve"}]:
        for target, expected in [("/app/", "ann"), ("/other", None)]:
            seen = json.loads(server.ask(target, fields={"Cookie": "session=ann", **forged}).body)
            require(seen["user"] == expected, f"{target} {forged}: {seen}")
    return "five spellings"


def hammer(server: Gateway, seconds: float, threads: int, until_rejected: bool = False) -> tuple[int, int, float, float, float]:
    """Requests on new connections. Returns how many passed, how many did not, the time, the part of it after which the rate was used up
    (from the first response to the last request that was rejected), and when that request began. With `until_rejected` they
    continue until a request is rejected."""
    counts, lock, first, last = [0, 0], threading.Lock(), [], [0.0]
    began = time.monotonic()

    def ask(source: str) -> None:
        while (at := time.monotonic()) - began < (PATIENCE if until_rejected and not counts[1] else seconds):
            with contextlib.closing(Client(server, source=source)) as client:
                status = client.ask("/file").status
            require(status in (200, 429), f"status {status}")
            with lock:
                counts[status == 429] += 1
                first.append(time.monotonic())
                if status == 429:
                    last[0] = max(last[0], at)

    # Addresses of their own: each connection keeps its port for a minute, and thousands leave none at 127.0.0.1 for other tests.
    workers = [threading.Thread(target=ask, args=(f"127.0.7.{number + 1}",)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return *counts, time.monotonic() - began, last[0] - first[0], last[0]


@case()
def a_rate_holds_across_workers_and_reloads(lab: Lab) -> str:
    """Four workers admit the rate in total, within 5 %, and a reload grants no second burst. Planted: a limit that is never
    reached."""
    # Clients of a busy machine must exceed the rate.
    rate, burst = 20, 40
    rule = {"pattern": "/file", "limit": f"{rate}/s", "burst": burst, "by": "all"}
    if lab.planted:
        rule = {**rule, "at_once": 1000, "limit": "100000/s"}
    server = lab.gateway([], settings={"rate": [rule], "server": {"workers": 4}})
    (server.root / "file").write_bytes(b"content")
    passed, rejected, elapsed, used_up, empty = hammer(server, lab.of(3, 5, 10), 4)
    expected, least = burst + rate * elapsed, burst + rate * used_up
    require(rejected > 0, "the clients were too slow to reach the rate")
    require(passed <= expected * 1.05, f"{passed} passed instead of {expected:.0f}")
    # A request was rejected when this number had passed.
    require(passed >= least * 0.95 - 4, f"only {passed} of {least:.0f} passed")
    # The rate was used up when that request was rejected, and has grown since.
    first, began = passed, empty
    server.reload_routes([])
    passed, rejected, *_ = hammer(server, 0.5, 4, until_rejected=True)
    most = rate * (time.monotonic() - began) + 2
    require(passed <= most and rejected > 0, f"after a reload {passed} instead of {most:.0f} passed")
    response = next(response for response in iter(lambda: server.ask("/file"), None) if response.status == 429)
    require(int(response.fields["Retry-After"]) == 1, f"{response}")
    return f"{first} passed, {expected:.0f} expected"


@case()
def guesses_of_passwords_stop_before_their_hash(lab: Lab) -> str:
    """A rate by address comes before passwords: a hundred guesses cost five hashes, and a client of another address still logs in.
    Planted: there is no rate."""
    users = lab.file("users", 0)
    users.write_text(ANN)
    rates = [] if lab.planted else [{"pattern": "/admin/**", "limit": "5/h"}]
    server = lab.gateway([], settings={"access": [{"pattern": "/admin/**", "passwords": str(users)}], "rate": rates,
                                       "server": {"workers": 2, "trusted_proxies": ["127.0.0.1"]}})

    def log_in(password: str, client: str) -> int:
        credentials = base64.b64encode(f"ann:{password}".encode()).decode()
        return server.ask("/admin/", fields={"Authorization": f"Basic {credentials}", "X-Forwarded-For": client}).status

    statuses = [log_in(f"guess {number}", "192.0.2.1") for number in range(100)]
    hashes = server.value("encke_password_checks_total")
    require(statuses == [401] * 5 + [429] * 95, f"{statuses}")
    require(hashes == 5, f"{hashes} hashes")
    require(log_in("secret", "192.0.2.2") == 404, "another client")
    return "5 hashes for 100 guesses"


@case(basic=("plain",))
def open_requests_of_a_client_are_limited_to_their_end(lab: Lab, app: str) -> str:
    """A request counts until its response is sent, a WebSocket until its end, whether the client leaves or the application ends it.
    Planted: there is no limit."""
    application = lab.application(app)
    rule = {"pattern": "/x/**", **({"limit": "1000/s"} if lab.planted else {"at_once": 2})}
    server = lab.gateway([{"pattern": "/x/**", "upstream": application}], settings={"rate": [rule]})

    def raw(target: str, fields: str = "") -> Connection:
        client = server.requested(target, fields=fields)
        return client

    def is_free() -> bool:
        return server.ask("/x/fields").status == 200

    def admitted(target: str, fields: str) -> Connection | None:
        """A client whose response has begun, or `None` while requests before it still count."""
        client = raw(target, fields)
        head = client.head()
        if head.startswith(b"HTTP/1.1 429 "):
            client.close()
            return None
        require(re.match(rb"HTTP/1.1 (200|101) ", head), head)
        return client

    for target, fields in [("/x/hold", ""), ("/x/make?blocks=2000", ""), ("/x/ws", UPGRADE)]:
        with contextlib.ExitStack() as stack:
            if target != "/x/hold":
                clients = [lab.until(lambda: admitted(target, fields), f"a place for {target}") for _ in range(2)]
            else:
                clients = [raw(target) for _ in range(2)]
            for client in clients:
                stack.enter_context(contextlib.closing(client))
            if target == "/x/hold":
                lab.until(lambda: len([1 for line in application.record() if line.get("event") == "held"]) == 2, "held")
            for _ in range(3):
                response = server.ask("/x/fields")
                require(response.status == 429, f"beside two of {target}: {response}")
            clients[0].close()
            lab.until(is_free, f"the end of {target} is not counted")
        lab.until(lambda: application.record() is not None and is_free(), f"the end of {target}")
    for _ in range(20):
        # The request before may still count for a moment.
        lab.until(is_free, "complete requests do not count")
    return "requests, downloads, WebSockets"


@case(basic=("plain",))
def delayed_requests_reach_the_application_at_the_rate(lab: Lab, app: str) -> str:
    """Requests above the burst wait. If the wait would be too long, they get a 429. Planted: they do not wait."""
    application = lab.application(app)
    delay = "0s" if lab.planted else "1s"
    rule = {"pattern": "/x/**", "limit": "10/s", "burst": 1, "delay": delay}
    server = lab.gateway([{"pattern": "/x/**", "upstream": application}], settings={"rate": [rule], "server": {"workers": 2}})
    began, results, lock = time.monotonic(), [], threading.Lock()

    def ask() -> None:
        status = server.ask("/x/fields").status
        with lock:
            results.append((time.monotonic() - began, status))

    threads = [threading.Thread(target=ask) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed = sorted(at for at, status in results if status == 200)
    require(5 <= len(passed) < 30, f"{len(passed)} of 30 passed")
    for number, at in enumerate(passed):
        # The worker's clock is that of its turn: a millisecond or two behind.
        require(at >= number * 0.1 - 0.02, f"request {number} passed after {at:.3f} s")
    # A late request may find a token.
    require(len(passed) // 2 <= server.value("encke_rate_delayed_total") < 30, "the metric")
    return f"{len(passed)} of 30"
