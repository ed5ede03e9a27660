"""Live pages: event streams of lists, the overview, the log and the notices."""
import json
import resource
import signal
import time
from pathlib import Path

from admin import Console, ConsoleRig, Page
from rig import KIB, MIB, at_once, case, require

IDLE = 2_000
PAGES_MAX, LOGS_MAX = 24, 16
LONGEST_IDLE = "lists/connections?sort=-idle_s&limit=100"


def publish(server: Console, channel: str, text: str = "x") -> None:
    answer = server.call("POST", "/actions/channels/publish", {"channel": channel, "text": text}, server.operator)
    require(answer.status == 200, f"publish: {answer}")


def raise_file_limit(count: int) -> None:
    """Lets this process open more sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, count), hard), hard))


def idle_connections(server: Console, count: int) -> list:
    """Connections that have had a response, and are idle."""
    raise_file_limit(count + 512)
    clients = [server.connect() for _ in range(count)]
    for client in clients:
        client.sendall(b"GET /small.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for client in clients:
        require(client.recv(4 * KIB).startswith(b"HTTP/1.1 200"), "no response")
    return clients


@case()
def a_list_of_many_connections_is_live_four_times_per_second(lab: ConsoleRig) -> str:
    """With 2,000 open connections a page gets the hundred with the longest idle time, in order, at most four times per second, and
    their changes; a client is served meanwhile. Fault: the page wants twice as many updates."""
    server = lab.console()
    clients = idle_connections(server, IDLE)
    with server.innocent() as innocent:
        page = server.page(LONGEST_IDLE)
        page.until(lambda _, data: data["total"] >= IDLE, "not all connections are in the list")
        # The longest idle time is a clock of the server: a page of a busy machine may read several updates at once.
        idle, updates = [], 0
        while updates < 20:
            name, data = page.next()
            times = [row["idle_s"] for row in data["rows"]]
            require(name == "list" and data["watch"] == LONGEST_IDLE and data["name"] == "connections", f"{name} {data}"[:300])
            require(len(times) == 100 and times == sorted(times, reverse=True), f"{len(times)} rows, not in order: {times}")
            idle.append(times[0])
            updates += 1
        # The first may have been late.
        took = idle[-1] - idle[1]
        require((updates - 2) / took <= 4.4 / (2 if lab.planted else 1), f"{updates} updates in {took:.1f} s")
        innocent.served()
        for client in clients[:IDLE // 2]:
            client.close()
        page.until(lambda _, data: data["total"] <= IDLE // 2 + 50, "closed connections stay in the list")
    return f"{updates / took:.1f} updates per second of {IDLE} connections"


@case()
def a_page_that_reads_slowly_gets_the_newest_state_without_a_backlog(lab: ConsoleRig) -> str:
    """While a page does not read, others get their updates. Then it reads what its socket held, and next the present state; the
    server has kept no backlog. Fault: the page reads all the time."""
    server, updates = lab.console({"push": {"channel": [{"pattern": "**", "messages": 1000}]}}), 24
    watch = "lists/messages?channel=slow&limit=1000"
    # An update of 300 KiB: larger than what the sockets of both sides hold.
    text = "x" * 190

    def fill(part: int) -> None:
        client = server.client()
        for number in range(125):
            client.call("POST", "/actions/channels/publish", {"channel": "slow", "text": f"{part} {number} {text}"}, server.operator)

    at_once([lambda part=part: fill(part) for part in range(8)])
    slow, fast = server.page(watch, receive_bytes=4 * KIB), server.page(watch)
    require(slow.next() and fast.next(), "no first event")
    memory, read = server.anonymous_bytes(), 0
    for number in range(updates):
        publish(server, "slow", f"state {number}")
        fast.until(lambda _, data, number=number: f"state {number}" in json.dumps(data), "a page is delayed by another one")
        if lab.planted:
            slow.until(lambda _, data, number=number: f"state {number}" in json.dumps(data), "no update")
            read += 1
    growth = server.anonymous_bytes() - memory
    # Every event counts, until the newest state.
    newest = f"state {updates - 1}"
    while not lab.planted:
        read += 1
        if newest in json.dumps(slow.next()[1]):
            break
        require(read <= updates, "the newest state is missing")
    require(read <= updates // 3, f"{read} events for {updates} updates")
    require(growth < 4 * MIB, f"the server has grown by {growth / MIB:.1f} MiB")
    return f"{read} events instead of {updates}"


@case()
def pages_with_the_same_watch_get_the_same_rows(lab: ConsoleRig) -> str:
    """Two pages, and two watches of a page, get all events, each with its own watch. Fault: the pages watch two channels."""
    server = lab.console()
    publish(server, "a")
    publish(server, "b")
    watches = ["lists/channels?channel=a", "lists/channels?channel=b" if lab.planted else "lists/channels?channel=a",
               "lists/channels?filter=a&channel=a"]
    first, second = server.page(watches[0]), server.page(watches[1], watches[2])
    for number in range(2, 5):
        publish(server, "a")
        for page, watch in ((first, watches[0]), (second, watches[1]), (second, watches[2])):
            page.until(lambda name, data, watch=watch, number=number: (name, data["watch"]) == ("list", watch)
                       and [row["channel"] for row in data["rows"]] == ["a"] and data["rows"][0]["messages"] == number,
                       f"{watch} does not show {number} messages")
    return "3 watches"


@case()
def pages_are_limited(lab: ConsoleRig) -> str:
    """The page of a user beyond the 24th gets a 503, until another one is closed; nothing else is limited. Fault: there are
    fewer pages."""
    server = lab.console()
    pages = [server.page("overview") for _ in range(PAGES_MAX - lab.planted)]
    require(all(page.status == 200 for page in pages), [page.status for page in pages])
    require(all(page.next()[0] == "overview" for page in pages), "a page got no event")
    answer = server.call("GET", "/live", login=server.operator)
    require(not (why := answer.complaint(503, "/problems/full")), f"a page too many: {why}")
    require(server.get("/overview")["state"] == "serving", "no overview")
    pages.pop().close()
    lab.until(lambda: server.page("overview").status == 200, "the place of a closed page stays taken")
    # Nothing is sent to these pages, so that no send can fail.
    server = lab.console()
    quiet = [server.page("log?path=/none") for _ in range(LOGS_MAX)]
    require(all(page.status == 200 for page in quiet), [page.status for page in quiet])
    require(server.page("log?path=/none").status == 503, "the views of the log are not limited")
    for page in quiet:
        page.close()
    lab.until(lambda: server.page("log?path=/none").status == 200, "the place of a closed log stays taken")
    return f"{PAGES_MAX} pages, {LOGS_MAX} logs"


@case()
def pages_get_an_end_before_the_server_stops(lab: ConsoleRig) -> str:
    """A drain ends each page with an event, and the process exits at once. Fault: the server is killed."""
    server = lab.console({"server": {"drain_time": "1h"}})
    pages = [server.page(*watches) for watches in (("overview",), ("lists/channels", "log"), ("notices",), ())]
    require(all(page.next() for page in (pages[0], pages[1], pages[3])), "a page got no event")
    began = time.monotonic()
    server.send_signal(signal.SIGKILL if lab.planted else signal.SIGTERM)
    for page in pages:
        page.until(lambda name, _: name == "end", "the stream ended without an end")
        require(page.next() is None, "an event after the end")
    status = server.wait()
    took = time.monotonic() - began
    require(status == 0, f"status {status} after {took:.1f} s")
    return f"{len(pages)} pages, {took:.1f} s"


def wake_ups(server: Console) -> int:
    """Number of times that a thread of the server gave up the processor, which it does to wait."""
    count = 0
    for status in Path(f"/proc/{server.pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                count += int(line.split()[1])
    return count


def wake_ups_in(server: Console, seconds: float) -> int:
    before = wake_ups(server)
    time.sleep(seconds)  # the figure is a rate
    return wake_ups(server) - before


@case()
def closed_pages_cost_nothing(lab: ConsoleRig) -> str:
    """Without an open page the threads of a server wake as seldom as those of a server without any page so far, even
    with idle connections. Fault: a page stays open."""
    never, closed = lab.console(), lab.console()
    idle_connections(closed, 50)
    pages = [closed.page("overview", LONGEST_IDLE, "log", "notices") for _ in range(8)]
    for page in pages:
        page.until(lambda name, _: name == "list", "no list")
    for page in pages[1 if lab.planted else 0:]:
        page.close()
    if not lab.planted:
        lab.until(lambda: wake_ups_in(closed, 0.5) <= 4, "the server does not come to rest")
    counts = {}
    at_once([lambda server=server, name=name: counts.update({name: wake_ups_in(server, 5)})
             for name, server in (("never", never), ("closed", closed))])
    # Timers of connections, and the history every ten seconds. One open page causes about a hundred.
    require(counts["closed"] <= counts["never"] + 30, f"wake-ups in 5 s: {counts}")
    return f"wake-ups in 5 s: {counts}"


@case()
def the_log_and_the_notices_are_live_with_filters(lab: ConsoleRig) -> str:
    """Pages get the requests that match their filter, and lines of standard error, even if the access log is off.
    Fault: the filter is that of the other status."""
    server = lab.console()
    log = f"log?status={2 if lab.planted else 4}&path=/no"
    page = server.page(log, "notices")
    other: Page = server.page("log?address=127.0.5.1")
    client = server.client("127.0.5.1", server.port)
    for target in ("/small.txt", "/no-such-file", "/nothing"):
        client.ask(target)
        server.client(port=server.port).ask(target)
    seen: list[dict] = []
    page.until(lambda name, data: name == "log" and (seen.extend(data["entries"]), len(seen) >= 4)[1], "entries are missing")
    require(sorted((entry["target"], entry["status"]) for entry in seen) == [("/no-such-file", 404)] * 2 + [("/nothing", 404)] * 2, seen)
    seen.clear()
    other.until(lambda name, data: name == "log" and (seen.extend(data["entries"]), len(seen) >= 3)[1], "entries are missing")
    require([entry["status"] for entry in seen] == [200, 404, 404], seen)
    server.call("PUT", "/log/level", {"level": "error"}, server.operator)
    page.until(lambda name, data: name == "notices" and any("/log/level" in notice["text"] for notice in data["notices"]),
               "no notice")
    return "4 and 3 entries"
