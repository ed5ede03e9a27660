"""Clients that speak HTTP/2, before applications that speak HTTP/1.1. The client is Node's (h2_client.js), not one of ours."""
import base64
import json
import queue
import subprocess
import threading
import time
from pathlib import Path

from applications import BLOCK_BYTES, HERE, Gateway, Lab, blocks, digest
from rig import BINARY, CLOSE, KIB, MIB, TEXT, Fault, MemoryWatch, case, masked_frame, mib, require
from transfers import MEMORY_BYTES_MAX, STUCK_BYTES_MAX

QUIET_S = 0.5


class H2Client:
    """A process with one connection. Events of all streams wait in `events` until a case takes them."""

    def __init__(self, lab: Lab, server: Gateway):
        self.lab, self.events, self.next = lab, [], 0
        self.process = subprocess.Popen(["node", str(HERE / "h2_client.js"), str(server.port)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.queue: queue.Queue = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        lab.stack.callback(self.close)
        require(self.take("settings")["connect"] is True, "no CONNECT for WebSockets in the settings")

    def _read(self) -> None:
        for line in self.process.stdout:
            self.queue.put(json.loads(line))
        self.queue.put({"event": "error", "text": "the client has ended"})

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def do(self, command: str, stream: int, **more) -> None:
        self.process.stdin.write(json.dumps({"do": command, "stream": stream, **more}) + "\n")
        self.process.stdin.flush()

    def request(self, path: str, method: str = "GET", end: bool = True, **fields: str) -> int:
        """Sends a head, and returns the number of its stream."""
        self.next += 1
        headers = {":method": method, ":path": path, **{name.replace("_", "-"): value for name, value in fields.items()}}
        if fields.get("protocol"):
            headers[":protocol"] = headers.pop("protocol")
        self.do("request", self.next, headers=headers, end=end)
        return self.next

    def take(self, event: str, stream: int | None = None, patience: float | None = None) -> dict:
        """Returns the next event of a kind; waits for it."""
        deadline = time.monotonic() + (patience or self.lab.patience)
        while True:
            for index, one in enumerate(self.events):
                if one["event"] == event and one.get("stream") == stream:
                    return self.events.pop(index)
            try:
                self.events.append(self.queue.get(timeout=max(deadline - time.monotonic(), 0.001)))
            except queue.Empty:
                raise Fault(f"no event {event} of stream {stream}, but {self.events[-4:]}") from None
            if self.events[-1]["event"] == "error":
                raise Fault(f"the connection: {self.events[-1]['text']}")

    def whole(self, stream: int) -> tuple[int, dict, dict]:
        """Returns (status, fields, end) of a complete response."""
        headers = self.take("response", stream)["headers"]
        end = self.take("end", stream)
        require(self.take("closed", stream)["code"] == 0, f"stream {stream} was reset")
        return headers[":status"], headers, end

    def data(self, stream: int, size: int, before: bytes = b"") -> tuple[bytes, bytes]:
        """Returns (this many bytes of content, the bytes after them)."""
        while len(before) < size:
            before += base64.b64decode(self.take("data", stream)["data"])
        return before[:size], before[size:]


def gateway(lab: Lab, app: str, **settings):
    application, server = lab.served(app, settings=settings)
    return application, server, H2Client(lab, server)


@case(basic=("plain", "node"), more=("uvicorn", "puma"))
def http2_requests_reach_an_http1_application(lab: Lab, app: str) -> str:
    """Many streams of one connection: GETs, and POSTs with and without a length. Each reaches the application once, with its body, and
    each response belongs to its stream. Planted: the digests of other bodies are expected."""
    application, _, client = gateway(lab, app)
    count = lab.of(20, 40, 400)
    bodies = {}
    for number in range(count):
        body = lab.chance.randbytes(lab.chance.choice([0, 1, 100, 20_000]))
        target = f"/a/echo/{number}"
        if number % 2:
            stream = client.request(target, end=True)
            body = b""
        else:
            sized = {"content_length": str(len(body))} if number % 4 else {}
            stream = client.request(target, "POST", end=False, **sized)
            client.do("write", stream, data=base64.b64encode(body).decode())
            client.do("end", stream)
        bodies[stream] = (target, body)
    for stream, (target, body) in bodies.items():
        status, fields, end = client.whole(stream)
        require((status, fields["x-seen"]) == (200, "1"), f"{target}: {fields}")
        expected = digest([digest([body + b"x" * lab.planted]).encode()])
        require(end["digest"] == expected, f"{target}: the digest of {len(body)} bytes differs")
    wanted = sorted((target, digest([body])) for target, body in bodies.values())
    seen = sorted((line["target"], line["digest"]) for line in application.record())
    require(seen == wanted, f"the application executed {seen[:3]}, not {wanted[:3]}")
    return f"{count} streams"


@case(basic=("plain",), more=("node",))
def an_http2_upload_waits_for_its_application(lab: Lab, app: str) -> str:
    """As for HTTP/1.1: the client cannot send more than the windows and the kernel's buffers hold while the application does not read,
    and another stream of the connection is served meanwhile. Then all arrives. Planted: a block differs."""
    count = lab.of(48 * MIB, 64 * MIB, 2048 * MIB) // BLOCK_BYTES
    application, server, client = gateway(lab, app, limits={"body_bytes": "off"})
    require(client.whole(client.request("/a/echo"))[0] == 200, "the first request")
    with MemoryWatch(server) as watch:
        stream = client.request("/a/sum", "POST", end=False, content_length=str(count * BLOCK_BYTES))
        client.do("blocks", stream, count=count, change=1 if lab.planted else -1)
        taken = client.take("taken", stream)["bytes"]
        while True:  # until nothing is taken for half a second
            try:
                taken = client.take("taken", stream, QUIET_S)["bytes"]
            except Fault:
                break
        require(taken < STUCK_BYTES_MAX, f"{mib(taken)} were taken, though the application reads nothing")
        require(client.whole(client.request("/a/echo"))[0] == 200, "another stream meanwhile")
        application.open_gate()
        status, _, _ = client.whole(stream)
    expected = f"{count * BLOCK_BYTES} {digest(blocks(count))}".encode()
    got = b"".join(base64.b64decode(one["data"]) for one in client.events if (one["event"], one.get("stream")) == ("data", stream))
    require((status, got) == (200, expected), f"{status} {got!r}, not {expected!r}")
    require(watch.growth <= MEMORY_BYTES_MAX, f"memory grew by {mib(watch.growth)}")
    return f"{mib(count * BLOCK_BYTES)}, stuck at {mib(taken)}, memory +{mib(watch.growth)}"


@case(basic=("plain",), more=("node",))
def an_http2_download_waits_for_its_client(lab: Lab, app: str) -> str:
    """A client pauses a stream: the application is not read, memory does not grow, and other streams are served. Then all arrives.
    Planted: another content is expected."""
    count = lab.of(48 * MIB, 64 * MIB, 2048 * MIB) // BLOCK_BYTES
    _, server, client = gateway(lab, app)
    require(client.whole(client.request("/a/echo"))[0] == 200, "the first request")
    with MemoryWatch(server) as watch:
        stream = client.request(f"/a/make?blocks={count}")
        client.do("pause", stream)
        require(client.take("response", stream)["headers"][":status"] == 200, "no response")
        for _ in range(5):
            require(client.whole(client.request("/a/echo"))[0] == 200, "another stream meanwhile")
        require(not any(one["event"] == "end" for one in client.events if one.get("stream") == stream), "the paused download has ended")
        client.do("resume", stream)
        end = client.take("end", stream)
    require(end["length"] == count * BLOCK_BYTES, f"{end['length']} bytes of {count * BLOCK_BYTES}")
    require(end["digest"] == digest(blocks(count + lab.planted)), "the content differs")
    require(watch.growth <= MEMORY_BYTES_MAX, f"memory grew by {mib(watch.growth)}")
    return f"{mib(end['length'])}, memory +{mib(watch.growth)}"


@case(basic=("plain", "node"))
def trailers_of_applications_reach_clients_that_accept_them(lab: Lab, app: str) -> str:
    """A response with trailers: its content is complete, the stream ends with the trailers if the request has `te: trailers`, and the
    connection to the application serves the next request. Planted: no request accepts trailers."""
    _, _, client = gateway(lab, app)
    for accepts in (True, False, True):
        stream = client.request("/a/trailers", **({"te": "trailers"} if accepts and not lab.planted else {}))
        status, fields, end = client.whole(stream)
        require((status, end["length"], end["digest"]) == (200, 9, digest([b"a trailer"])), f"{fields} {end}")
        trailers = [one["headers"].get("x-sum") for one in client.events if one["event"] == "trailers" and one["stream"] == stream]
        require(trailers == (["1"] if accepts else []), f"accepts: {accepts}, trailers: {trailers}")
    return "3 responses"


@case(basic=("plain", "node"), more=("uvicorn",))
def http2_streams_get_each_event_at_once(lab: Lab, app: str) -> str:
    """Client and application proceed in lock-step, as for HTTP/1.1. Then the client resets the stream of another request, and the
    application sees its connection end. Planted: two events are expected at once, or the client stays."""
    application, _, client = gateway(lab, app)
    events = lab.of(10, 50, 500)
    stream = client.request(f"/a/sse?events={events}", accept="text/event-stream")
    require(client.take("response", stream)["headers"][":status"] == 200, "no response")
    rest = b""
    for number in range(events):
        Path(f"{application.gate}.{number}").touch()
        for expected in [number, number + 1] if lab.planted else [number]:
            wanted = b"data: %d\n\n" % expected
            got, rest = client.data(stream, len(wanted), rest)
            require(got == wanted, f"{got!r} in place of event {expected}")
    client.take("end", stream)
    stream = client.request("/a/hold")
    lab.until(lambda: application.noted("held"), "the application has no request")
    client.do("reset", stream)
    lab.until(lambda: application.noted("left"), "the application still has its connection", lab.of(5, 10, 10))
    return f"{events} events; reset"


@case(basic=("plain",), more=("uvicorn", "hypercorn"))
def http2_websockets_reach_an_http1_application(lab: Lab, app: str) -> str:
    """A WebSocket by RFC 8441: the application sees an Upgrade of HTTP/1.1, frames come back, several WebSockets share the connection
    with requests, and a close handshake ends the stream. Planted: another echo is expected."""
    application, _, client = gateway(lab, app)
    count = lab.of(3, 10, 50)
    sockets = []
    for _ in range(count):
        stream = client.request("/a/ws", "CONNECT", end=False, protocol="websocket", sec_websocket_version="13")
        headers = client.take("response", stream)["headers"]
        require(headers[":status"] == 200, headers)
        first, rest = client.data(stream, 7)
        require(first == bytes([128 | TEXT, 5]) + b"first", f"the first frame: {first!r}")
        sockets.append([stream, rest])
    for turn in range(3):
        for stream, _ in sockets:
            client.do("write", stream, data=base64.b64encode(masked_frame(b"%d of %d" % (turn, stream), BINARY)).decode())
        require(client.whole(client.request("/a/echo"))[0] == 200, "a request meanwhile")
        for one in sockets:
            wanted = b"%d of %d" % (turn, one[0] + lab.planted)
            got, one[1] = client.data(one[0], 2 + len(wanted), one[1])
            require(got == bytes([128 | BINARY, len(wanted)]) + wanted, f"{got!r} in place of {wanted!r}")
    for one in sockets:
        client.do("write", one[0], data=base64.b64encode(masked_frame((1000).to_bytes(2, "big"), CLOSE)).decode())
        got, _ = client.data(one[0], 2, one[1])
        require(got[:1] == bytes([128 | CLOSE]), f"{got!r} in place of a close")
        client.do("end", one[0])
        client.take("end", one[0])
    ended = ("left", "closed")
    lab.until(lambda: sum(line.get("event") in ended for line in application.record()) >= count, "an application's WebSocket is open")
    return f"{count} WebSockets"


@case(basic=("plain", "node"))
def http2_clients_get_ranges_of_named_files(lab: Lab, app: str) -> str:
    """A file that the application names by X-Accel-Redirect: whole, in ranges, conditional, and by HEAD. Planted: another range is
    expected."""
    server = lab.gateway([{"pattern": "/**", "upstream": lab.application(app)}, {"pattern": "/internal/**", "internal": True}])
    client = H2Client(lab, server)
    content = lab.chance.randbytes(300 * KIB)
    (server.root / "internal").mkdir()
    (server.root / "internal/file").write_bytes(content)
    target = "/a/send?X-Accel-Redirect=/internal/file&Content-Type=image/x-test"
    status, fields, end = client.whole(client.request(target))
    require((status, end["digest"], fields["content-type"]) == (200, digest([content]), "image/x-test"), fields)
    require("x-accel-redirect" not in fields, fields)
    for given, first, last in [("bytes=100-199", 100, 199), ("bytes=-10", len(content) - 10, len(content) - 1),
                               (f"bytes={256 * KIB}-", 256 * KIB, len(content) - 1)]:
        status, part, end = client.whole(client.request(target, range=given))
        require((status, part["content-range"]) == (206, f"bytes {first}-{last}/{len(content)}"), f"{given}: {part}")
        require(end["digest"] == digest([content[first + lab.planted:last + 1]]), f"{given}: the content differs")
    status, _, end = client.whole(client.request(target, if_none_match=fields["etag"]))
    require((status, end["length"]) == (304, 0), f"If-None-Match: {status}")
    status, head, end = client.whole(client.request(target, "HEAD"))
    require((status, head["content-length"], end["length"]) == (200, str(len(content)), 0), f"HEAD: {head}")
    status, _, _ = client.whole(client.request("/internal/file"))
    require(status == 404, f"a client gets an internal path: {status}")
    return "7 requests"
