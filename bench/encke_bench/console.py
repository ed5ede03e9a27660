"""The console: the cost of an open page among many connections, and the rate of its static page.

    console-open: 15,000 held ─► rounds: CPU without a page, CPU with one ─► µs per update, share of a core
    console-page: ab on the start page of the admin listener
"""

import http.client
import json
import re
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from .crowds import settle
from .figures import Bar, Section, judge, number
from .generators import ab_requests, holder
from .machine import Trouble, cpu
from .report import Progress
from .servers import HELLO, Bench, Encke, Running

CROWD = 15_000
# Four updates per second: the shortest interval that the server accepts.
EVERY_MS = 250
WATCHES = ("overview", "lists/connections?sort=-idle_s&limit=100")
TIMEOUT_SECONDS = 10
OPEN_SECONDS = 4
SHARE_BAR = Bar(0.02, f"share of a core, {1000 // EVERY_MS} updates per second, {CROWD:,} connections")
# PeerCast's settings server made 94 requests per second (report 000); the bar is a hundred times that.
PAGE_BAR = Bar(9_400, "requests/s of ab on the start page", at_least=True)
PAGE_REQUESTS, PAGE_CONNECTIONS = 50_000, 64


def open_seconds(bench: Bench) -> float:
    return len(_ours(bench, "console-open")) * (12 + bench.rounds * 2 * (OPEN_SECONDS + 0.5))


def open_page(bench: Bench, progress: Progress) -> Section:
    section = Section("console-open", f"an open page of the console among {CROWD:,} idle connections",
                      f"CPU of the process over {OPEN_SECONDS} s with a page (overview, the 100 connections that are idle longest, every {EVERY_MS} "
                      "ms) less that without one, in alternation; an update is one event of each watch",
                      ["server", "CPU µs per update", "share of a core", "bytes per update", "without a page"])
    for server in _ours(bench, "console-open"):
        try:
            _open_page(bench, server, section, progress)
        except (Trouble, OSError) as trouble:
            section.failed(server.name, trouble, (SHARE_BAR,), [server.name])
    return section


def _open_page(bench: Bench, server: Encke, section: Section, progress: Progress) -> None:
    progress.step(f"console-open: {server.name}, connecting")
    closed, costs, shares, sizes = [], [], [], []
    with bench.running(server, HELLO) as run, holder(bench, run) as clients:
        admin = AdminListener(run)
        clients.hold(CROWD)
        for number_of_round in range(1, bench.rounds + 1):
            progress.step(f"console-open: round {number_of_round} of {bench.rounds}, {server.name}")
            settle(run)
            closed.append(_share(run))
            with admin.page() as page:
                page.wait()
                before = page.updates, page.received
                opened = _share(run)
                updates, received = page.updates - before[0], page.received - before[1]
            if not updates:
                raise Trouble("the page got no update")
            shares.append(max(0.0, opened - closed[-1]))
            costs.append(shares[-1] * OPEN_SECONDS * 1e6 / updates)
            sizes.append(received / updates)
        alive = clients.alive()
    share = statistics.median(shares)
    section.rows.append([server.name, number(statistics.median(costs)), f"{share:.2%}", number(statistics.median(sizes)),
                         f"{statistics.median(closed):.2%}"])
    section.samples = {**(section.samples or {}), server.name: {"closed": closed, "share": shares, "us": costs}}
    section.verdicts.append(judge(section.title, server.name, SHARE_BAR, round(share, 4), rounds=bench.rounds))
    if alive != CROWD:
        section.notes.append(f"{server.name} closed {CROWD - alive:,} of {CROWD:,} idle connections")


def _share(run: Running) -> float:
    """The share of a core that the server uses over a while."""
    before, began = cpu(run.pid), time.monotonic()
    time.sleep(OPEN_SECONDS)
    ran, _ = cpu(run.pid).since(before)
    return ran / 1e9 / (time.monotonic() - began)


def page_seconds(bench: Bench) -> float:
    return len(_ours(bench, "console-page")) * 3 * (1 + PAGE_REQUESTS / PAGE_BAR.limit)


def page(bench: Bench, progress: Progress) -> Section:
    section = Section("console-page", "the start page of the console",
                      f"ab -k -n {PAGE_REQUESTS} -c {PAGE_CONNECTIONS} on / of the admin listener, three times",
                      ["server", "requests/s, slowest", "CPU µs per request"])
    for server in _ours(bench, "console-page"):
        try:
            with bench.running(server, HELLO) as run:
                start = AdminListener(run).as_running()
                loads, costs = [], []
                for index in range(3):
                    progress.step(f"console-page: {server.name}, run {index + 1} of 3")
                    before = cpu(run.pid)
                    loads.append(ab_requests(bench, start, PAGE_REQUESTS, PAGE_CONNECTIONS, keep=True))
                    costs.append(cpu(run.pid).since(before)[0] / 1e3 / loads[-1].requests)
            if failed := sum(load.errors for load in loads):
                raise Trouble(f"{failed} failed requests")
            slowest = min(load.requests / load.seconds for load in loads)
            section.rows.append([server.name, number(slowest), number(statistics.median(costs))])
            section.verdicts.append(judge(section.title, server.name, PAGE_BAR, round(slowest)))
        except (Trouble, OSError) as trouble:
            section.failed(server.name, trouble, (PAGE_BAR,), [server.name])
    return section


def _ours(bench: Bench, section: str) -> list[Encke]:
    return [server for server in bench.servers_for(section) if isinstance(server, Encke)]


class AdminListener:
    """The admin listener of a running Encke, and a session of its console."""

    def __init__(self, run: Running):
        self._run = run
        text = run.process.log.read_text(errors="replace")
        found = re.search(r"console +http://127\.0\.0\.1:(\d+)/#login=(\w+)", text)
        if found is None:
            raise Trouble(f"{run.server.name} printed no address of its console")
        self.port = int(found[1])
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)
        client.request("POST", "/api/v1/session", json.dumps({"token": found[2]}), {"Content-Type": "application/json"})
        response = client.getresponse()
        if response.status != 201:
            raise Trouble(f"{run.server.name}: no session: status {response.status}")
        self._cookie = response.headers["Set-Cookie"].split(";")[0]
        client.close()

    def as_running(self) -> Running:
        """The same process, with the start page as its resource."""
        return Running(_StartPage(), self._run.process, self.port, HELLO, self._run.pid)

    @contextmanager
    def page(self) -> Iterator["OpenPage"]:
        """An open page until the end of the context."""
        client = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_SECONDS)
        with client:
            watches = "&".join(f"watch={quote(watch, safe='')}" for watch in WATCHES)
            client.sendall(f"GET /api/v1/live?{watches}&every={EVERY_MS} HTTP/1.0\r\nHost: 127.0.0.1:{self.port}\r\n"
                           f"Cookie: {self._cookie}\r\n\r\n".encode())
            page = OpenPage(client)
            page.start()
            yield page
            client.shutdown(socket.SHUT_RDWR)
        page.join(TIMEOUT_SECONDS)


class _StartPage(Encke):
    def __init__(self):
        super().__init__("epoll-edge")

    def path(self, resource) -> str:
        return "/"


class OpenPage(threading.Thread):
    """Reads the events of a page and counts them."""

    def __init__(self, client: socket.socket):
        super().__init__(daemon=True)
        self._client, self._first, self._head = client, threading.Event(), b""
        self.updates = self.received = 0

    def run(self) -> None:
        last = b""
        try:
            while piece := self._client.recv(1 << 18):
                self._head = self._head or piece[:300]
                self.received += len(piece)
                # The list is the last event of an update. Its first line may be cut by a read.
                self.updates += (last + piece).count(b"event: list\n") - last.count(b"event: list\n")
                last = (last + piece)[-11:]
                if self.updates:
                    self._first.set()
        except OSError:
            pass  # the page is closed, or the server does not send: wait() reports it

    def wait(self) -> None:
        """Returns once the first update has arrived."""
        if not self._first.wait(TIMEOUT_SECONDS):
            raise Trouble(f"the page got no list within {TIMEOUT_SECONDS} s: {self._head!r}")
