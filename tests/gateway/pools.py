"""Kept connections that applications close, and requests that must not be executed twice."""
import collections
import time

from applications import Lab
from rig import Fault, at_once, case, require

CLIENTS = 8
IDLE_MS = 20


@case(basic=("raw", "node"))
def reads_survive_idle_connections_that_close(lab: Lab, app: str) -> str:
    """The application closes idle connections after random 0 to 20 ms. No GET fails: it is repeated on another connection if the
    one that it was sent on closes without a byte. Planted: the application breaks off one response."""
    application = lab.application(app, environment={"IDLE_MS": str(IDLE_MS)})
    upstream = {"name": "app", "to": [application], "keep": 64}
    server = lab.gateway([{"pattern": "/**", "upstream": "app"}], [upstream])
    each = lab.of(1_000, 5_000, 20_000) // CLIENTS
    pauses = [[lab.chance.uniform(0, IDLE_MS / 1000) * (lab.chance.random() < 0.5) for _ in range(each)] for _ in range(CLIENTS)]
    failures = collections.Counter()

    def client(number: int) -> None:
        connection = server.client()
        for index, pause in enumerate(pauses[number]):
            time.sleep(pause)  # so that the application's timer and the next request coincide
            broken = lab.planted and number == 0 and index == 7
            response = connection.ask(f"/a/{('crash' if app == 'raw' else 'short') if broken else 'echo'}/{number}")
            if response.status != 200:
                failures[response.status] += 1

    at_once([lambda number=number: client(number) for number in range(CLIENTS)])
    require(not failures, f"statuses: {dict(failures)}, in the log: {server.reasons()}")
    kept = server.value("encke_gateway_requests_sent_total", connection="kept")
    require(kept > each, f"{kept} requests used a kept connection: too few for a test")
    retries = server.value("encke_gateway_retries_total")
    return f"{each * CLIENTS} requests, {kept} on kept connections, {retries} repeated"


@case(basic=("raw",), more=("node",))
def writes_are_never_executed_twice(lab: Lab, app: str) -> str:
    """The application closes idle connections as above, and closes some others after a POST was executed but not responded to.
    Each POST is executed at most once, and exactly once if the response says so. Planted: a client that repeats one."""
    application = lab.application(app, environment={"IDLE_MS": str(IDLE_MS)})
    server = lab.gateway([{"pattern": "/**", "upstream": application}])
    each = lab.of(200, 500, 2_000) // CLIENTS
    plans = [[(lab.chance.uniform(0, IDLE_MS / 1000), lab.chance.random() < 0.1) for _ in range(each)] for _ in range(CLIENTS)]
    statuses: dict[str, int] = {}

    def client(number: int) -> None:
        connection = server.client()
        for index, (pause, crashes) in enumerate(plans[number]):
            time.sleep(pause)
            target = f"/a/{'crash' if crashes and app == 'raw' else 'echo'}/{number}/{index}"
            for _ in range(2 if lab.planted and index == 7 else 1):
                statuses[target] = connection.ask(target, "POST", b"x" * 100).status

    at_once([lambda number=number: client(number) for number in range(CLIENTS)])
    counts = collections.Counter(line["target"] for line in application.record() if "target" in line)
    twice = [target for target, count in counts.items() if count > 1]
    require(not twice, f"executed twice: {twice}")
    for target, status in statuses.items():
        if status not in (200, 502):
            raise Fault(f"{target}: {status}")
        require(status == 502 or counts[target] == 1, f"{target}: 200, and executed {counts[target]} times")
    failed = sum(status == 502 for status in statuses.values())
    crashed = sum("crash" in target for target in statuses)
    # A POST that meets a connection as it closes fails: on a busy machine a tenth of them.
    require(failed - crashed <= len(statuses) // 2, f"{failed} of {len(statuses)} failed, of which {crashed} by a crash")
    return f"{len(statuses)} requests, {crashed} crashes, {failed - crashed} met a connection as it closed"
